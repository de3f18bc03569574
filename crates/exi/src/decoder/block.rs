//! Blocks of compressed and pre-compressed streams (9): the structure first, then the values of each
//! name together.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::body::{Raw, Slot};
use super::{Decoder, Reading};
use crate::bits::{BitReader, Packing};
use crate::datatype::Found;
use crate::error::Cause;
use crate::grammar::At;
use crate::inflate::inflate;
use crate::value::Value;

/// Values that share a compressed stream, at most (9.3).
pub(crate) const SMALL_CHANNEL: usize = 100;

/// A value that was read.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// It comes later in the block.
    Missing,
    Text(usize, usize),
    Lexical(usize, usize),
    Base64(usize, usize),
    Hex(usize, usize),
    Other(Found),
}

/// The block at hand.
#[derive(Debug, Default)]
pub(crate) struct Block {
    events: Vec<Raw>,
    /// How many of them were given.
    given: usize,
    /// Texts of events that are no values: which event, where each begins and ends.
    strings: Vec<(usize, [(usize, usize); 4])>,
    values: Vec<Stored>,
    text: String,
    octets: Vec<u8>,
    in_use: bool,
}

/// The values of one name: which, and their datatypes.
type Channel = (u32, Vec<(u32, u32)>);

impl Block {
    pub(crate) fn reset(&mut self) {
        self.clear();
        self.in_use = false;
    }

    fn clear(&mut self) {
        self.events.clear();
        self.given = 0;
        self.strings.clear();
        self.values.clear();
        self.text.clear();
        self.octets.clear();
        self.in_use = true;
    }

    /// A value of the block.
    pub(crate) fn value(&self, at: u32) -> Value<'_> {
        match self.values[at as usize] {
            Stored::Missing => Value::Text(""),
            Stored::Text(start, end) => Value::Text(&self.text[start..end]),
            Stored::Lexical(start, end) => Value::Lexical(&self.text[start..end]),
            Stored::Base64(start, end) => Value::Base64(&self.octets[start..end]),
            Stored::Hex(start, end) => Value::Hex(&self.octets[start..end]),
            Stored::Other(found) => match found {
                Found::Boolean(value) => Value::Boolean(value),
                Found::Integer(value) => Value::Integer(value),
                Found::Unsigned(value) => Value::Unsigned(value),
                Found::Decimal(value) => Value::Decimal(value),
                Found::Float(value) => Value::Float(value),
                Found::DateTime(value) => Value::DateTime(value),
                // Kept as text or octets.
                Found::Base64 | Found::Hex | Found::Text | Found::Lexical | Found::Table(_) => {
                    Value::Text("")
                }
            },
        }
    }

    /// Texts of the event that was given last; none when there is no block.
    pub(crate) fn strings(&self) -> Option<[&str; 4]> {
        if !self.in_use {
            return None;
        }
        let event = self.given.checked_sub(1)?;
        let found = self.strings.binary_search_by_key(&event, |(at, _)| *at);
        Some(match found {
            Ok(at) => self.strings[at]
                .1
                .map(|(start, end)| &self.text[start..end]),
            Err(_) => [""; 4],
        })
    }
}

impl Decoder {
    /// Keeps a value that is in the buffers.
    fn store(&mut self, found: Found) -> Stored {
        let block = &mut self.block;
        let (text, octets) = (block.text.len(), block.octets.len());
        match found {
            Found::Text | Found::Lexical => block.text.push_str(&self.buffers.text),
            Found::Table(at) => block
                .text
                .push_str(self.values.global(at).unwrap_or_default()),
            Found::Base64 | Found::Hex => block.octets.extend_from_slice(&self.buffers.octets),
            _ => {}
        }
        match found {
            Found::Text | Found::Table(_) => Stored::Text(text, block.text.len()),
            Found::Lexical => Stored::Lexical(text, block.text.len()),
            Found::Base64 => Stored::Base64(octets, block.octets.len()),
            Found::Hex => Stored::Hex(octets, block.octets.len()),
            found => Stored::Other(found),
        }
    }

    /// Gives a value its number in the block, and its place in the channel of its name.
    fn place(&mut self, slot: Slot, channels: &mut Channels) -> Slot {
        let at = self.block.values.len() as u32;
        match slot {
            Slot::Pending { name, datatype } => {
                self.block.values.push(Stored::Missing);
                channels.add(name, at, datatype);
            }
            // Of the structure: xsi:type and xsi:nil.
            Slot::Found(found) => {
                let stored = self.store(found);
                self.block.values.push(stored);
            }
            slot => return slot,
        }
        Slot::InBlock(at)
    }

    /// Keeps the texts of an event.
    fn keep_strings(&mut self, event: usize, count: usize) {
        let mut spans = [(0, 0); 4];
        for (span, string) in spans.iter_mut().zip(&self.strings).take(count) {
            let start = self.block.text.len();
            self.block.text.push_str(string);
            *span = (start, self.block.text.len());
        }
        self.block.strings.push((event, spans));
    }

    /// Reads the structure of a block.
    fn structure(&mut self, reader: &mut BitReader<'_>) -> Result<Channels, Cause> {
        let mut channels = Channels::default();
        let size = self.grammar.options.block_size as usize;
        while channels.values < size {
            let Some(raw) = self.step(reader, &mut Vec::new())? else {
                break;
            };
            if self.block.events.len() as u64 >= self.limits.events {
                return Err(Cause::limit("events", self.limits.events));
            }
            let event = self.block.events.len();
            match raw {
                Raw::Namespace { .. } | Raw::Comment | Raw::EntityReference => {
                    self.keep_strings(event, 1);
                }
                Raw::ProcessingInstruction => self.keep_strings(event, 2),
                Raw::DocType => self.keep_strings(event, 4),
                _ => {}
            }
            let raw = match raw {
                Raw::Attribute {
                    name,
                    prefix,
                    value,
                } => Raw::Attribute {
                    name,
                    prefix,
                    value: self.place(value, &mut channels),
                },
                Raw::Characters(value) => Raw::Characters(self.place(value, &mut channels)),
                raw => raw,
            };
            self.block.events.push(raw);
        }
        Ok(channels)
    }

    /// Reads the values of a channel.
    fn channel(&mut self, reader: &mut BitReader<'_>, channel: &Channel) -> Result<(), Cause> {
        let (name, values) = channel;
        for (at, datatype) in values {
            let found = self.value(reader, *name, *datatype)?;
            self.block.values[*at as usize] = self.store(found);
        }
        Ok(())
    }
}

/// Channels in the order of their first value.
#[derive(Default)]
struct Channels {
    list: Vec<Channel>,
    of_name: BTreeMap<u32, usize>,
    values: usize,
}

impl Channels {
    fn add(&mut self, name: u32, value: u32, datatype: u32) {
        let list = &mut self.list;
        let at = *self.of_name.entry(name).or_insert_with(|| {
            list.push((name, Vec::new()));
            list.len() - 1
        });
        list[at].1.push((value, datatype));
        self.values += 1;
    }
}

impl Reading<'_, '_> {
    /// The next event, from the block at hand or the next one.
    pub(super) fn next_of_block(&mut self) -> Result<Option<Raw>, Cause> {
        if self.decoder.block.given == self.decoder.block.events.len() {
            if self.decoder.grammar.top().at == At::Ended {
                return Ok(None);
            }
            self.read_block()?;
        }
        let block = &mut self.decoder.block;
        let raw = block.events.get(block.given).copied();
        block.given += usize::from(raw.is_some());
        Ok(raw)
    }

    fn read_block(&mut self) -> Result<(), Cause> {
        self.decoder.block.clear();
        if !self.decoder.grammar.options.compression {
            let channels = self.decoder.structure(&mut self.reader)?;
            let (small, large) = split(&channels);
            for channel in small.into_iter().chain(large) {
                self.decoder.channel(&mut self.reader, channel)?;
            }
            return Ok(());
        }
        let first = self.inflated()?;
        let mut reader = BitReader::new(&first, Packing::Bytes);
        let channels = self.decoder.structure(&mut reader)?;
        if channels.values <= SMALL_CHANNEL {
            return channels
                .list
                .iter()
                .try_for_each(|channel| self.decoder.channel(&mut reader, channel));
        }
        let (small, large) = split(&channels);
        let groups = core::iter::once(small).chain(large.into_iter().map(|one| [one].into()));
        for group in groups.filter(|group: &Vec<&Channel>| !group.is_empty()) {
            let bytes = self.inflated()?;
            let mut reader = BitReader::new(&bytes, Packing::Bytes);
            for channel in group {
                self.decoder.channel(&mut reader, channel)?;
            }
        }
        Ok(())
    }

    /// The next compressed stream; empty when there is none, as one of nothing is left out.
    fn inflated(&mut self) -> Result<Vec<u8>, Cause> {
        let rest = self.reader.rest();
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        let limit = self.decoder.limits.block_bytes;
        let (bytes, consumed) = inflate(rest, limit)?;
        self.reader.skip(consumed);
        Ok(bytes)
    }
}

/// Channels that share a stream, and those that have one each. All are small when there are few
/// values in all.
fn split(channels: &Channels) -> (Vec<&Channel>, Vec<&Channel>) {
    let few = channels.values <= SMALL_CHANNEL;
    let list = channels.list.iter();
    list.partition(|(_, values)| few || values.len() <= SMALL_CHANNEL)
}
