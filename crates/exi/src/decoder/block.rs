//! Blocks of compressed and pre-compressed streams (9): the structure first, then the values of each
//! name together.

use alloc::string::String;
use alloc::vec::Vec;

use super::body::{Raw, Slot};
use super::{Decoder, Reading};
use crate::bits::{BitReader, Packing};
use crate::channels::Channels;
use crate::datatype::Found;
use crate::error::Cause;
use crate::grammar::At;
use crate::inflate::Inflater;
use crate::schema::NONE;
use crate::value::Value;

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
    /// The datatypes of values that come in channels.
    datatypes: Vec<u32>,
    channels: Channels,
    text: String,
    octets: Vec<u8>,
    in_use: bool,
    inflater: Inflater,
    inflated: Vec<u8>,
}

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
        self.datatypes.clear();
        self.channels.clear();
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
    fn store(&mut self) -> Stored {
        let found = self.found;
        let block = &mut self.block;
        let (text, octets) = (block.text.len(), block.octets.len());
        match found {
            Found::Text | Found::Lexical => block.text.push_str(&self.buffers.text),
            Found::Table(at) => block.text.push_str(self.values.shown(at)),
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
    fn place(&mut self, slot: Slot) -> Slot {
        let at = self.block.values.len() as u32;
        match slot {
            Slot::Pending { name, datatype } => {
                self.block.values.push(Stored::Missing);
                self.block.datatypes.push(datatype);
                self.block.channels.add(name, at);
            }
            // Of the structure: xsi:type and xsi:nil.
            Slot::Found => {
                let stored = self.store();
                self.block.values.push(stored);
                self.block.datatypes.push(NONE);
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
    fn structure(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let size = self.grammar.options.block_size;
        while self.block.channels.values() < size {
            if !self.step(reader, &mut Vec::new())? {
                break;
            }
            let raw = self.raw;
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
                    value: self.place(value),
                },
                Raw::Characters(value) => Raw::Characters(self.place(value)),
                raw => raw,
            };
            self.block.events.push(raw);
        }
        Ok(())
    }

    /// Reads the values of a channel.
    fn channel(&mut self, reader: &mut BitReader<'_>, at: usize) -> Result<(), Cause> {
        let channel = self.block.channels.channel(at);
        let mut value = Channels::first(&channel);
        while value != NONE {
            let datatype = self.block.datatypes[value as usize];
            self.value(reader, channel.name, datatype)?;
            self.block.values[value as usize] = self.store();
            value = self.block.channels.behind(value);
        }
        Ok(())
    }

    /// Reads all channels that are small, or all that are not.
    fn channels(&mut self, reader: &mut BitReader<'_>, small: bool) -> Result<(), Cause> {
        for at in 0..self.block.channels.len() {
            if self.is_small(at) == small {
                self.channel(reader, at)?;
            }
        }
        Ok(())
    }

    fn is_small(&self, at: usize) -> bool {
        let channels = &self.block.channels;
        channels.is_small(&channels.channel(at))
    }
}

impl Reading<'_, '_> {
    /// The next event, from the block at hand or the next one.
    pub(super) fn next_of_block(&mut self) -> Result<bool, Cause> {
        if self.decoder.block.given == self.decoder.block.events.len() {
            if self.decoder.grammar.top().at == At::Ended {
                return Ok(false);
            }
            self.read_block()?;
        }
        let block = &mut self.decoder.block;
        let Some(raw) = block.events.get(block.given) else {
            return Ok(false);
        };
        self.decoder.raw = *raw;
        block.given += 1;
        Ok(true)
    }

    fn read_block(&mut self) -> Result<(), Cause> {
        let decoder = &mut *self.decoder;
        decoder.block.clear();
        if !decoder.grammar.options.compression {
            decoder.structure(&mut self.reader)?;
            decoder.channels(&mut self.reader, true)?;
            return decoder.channels(&mut self.reader, false);
        }
        self.inflated(|decoder, reader| {
            decoder.structure(reader)?;
            match decoder.block.channels.few() {
                true => decoder.channels(reader, true),
                false => Ok(()),
            }
        })?;
        if self.decoder.block.channels.few() {
            return Ok(());
        }
        let count = self.decoder.block.channels.len();
        if (0..count).any(|at| self.decoder.is_small(at)) {
            self.inflated(|decoder, reader| decoder.channels(reader, true))?;
        }
        for at in 0..count {
            if !self.decoder.is_small(at) {
                self.inflated(|decoder, reader| decoder.channel(reader, at))?;
            }
        }
        Ok(())
    }

    /// Reads from the next compressed stream; from nothing when there is none, as one of nothing is
    /// left out.
    fn inflated(
        &mut self,
        read: impl FnOnce(&mut Decoder, &mut BitReader<'_>) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let limit = self.decoder.limits.block_bytes;
        let block = &mut self.decoder.block;
        let mut bytes = core::mem::take(&mut block.inflated);
        let none = self.reader.rest().is_empty() && !self.reader.more()?;
        let length = match none {
            true => Ok(0),
            false => block.inflater.inflate(&mut self.reader, &mut bytes, limit),
        };
        let read = length.and_then(|length| {
            let mut reader = BitReader::new(&bytes[..length], Packing::Bytes);
            read(self.decoder, &mut reader)
        });
        self.decoder.block.inflated = bytes;
        read
    }
}
