//! Decoding blocks of compressed and pre-compressed streams (9). The structure comes first, then
//! the values grouped by name.

use alloc::string::String;
use alloc::vec::Vec;

use super::event::{RawEvent, ValueSlot};
use super::{Decoder, StreamReader};
use crate::bits::{BitReader, Packing};
use crate::channels::Channels;
use crate::datatype::DecodedValue;
use crate::error::Cause;
use crate::grammar::Position;
use crate::inflate::Inflater;
use crate::schema::NONE;
use crate::value::Value;

/// A value of the block.
#[derive(Clone, Copy, Debug)]
enum StoredValue {
    /// Not read yet.
    Missing,
    Text(usize, usize),
    Lexical(usize, usize),
    Base64(usize, usize),
    Hex(usize, usize),
    Other(DecodedValue),
}

/// The current block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    events: Vec<RawEvent>,
    /// Number of events that were returned.
    returned: usize,
    /// Strings of events that are not values: the index of the event and the range of each string.
    strings: Vec<(usize, [(usize, usize); 4])>,
    values: Vec<StoredValue>,
    /// The datatypes of values in channels.
    datatypes: Vec<u32>,
    channels: Channels,
    text: String,
    octets: Vec<u8>,
    is_in_use: bool,
    inflater: Inflater,
    inflated: Vec<u8>,
}

impl Block {
    pub(crate) fn reset(&mut self) {
        self.clear();
        self.is_in_use = false;
    }

    fn clear(&mut self) {
        self.events.clear();
        self.returned = 0;
        self.strings.clear();
        self.values.clear();
        self.datatypes.clear();
        self.channels.clear();
        self.text.clear();
        self.octets.clear();
        self.is_in_use = true;
    }

    /// Returns a value of the block.
    pub(crate) fn value(&self, at: u32) -> Value<'_> {
        match self.values[at as usize] {
            StoredValue::Missing => Value::Text(""),
            StoredValue::Text(start, end) => Value::Text(&self.text[start..end]),
            StoredValue::Lexical(start, end) => Value::Lexical(&self.text[start..end]),
            StoredValue::Base64(start, end) => Value::Base64(&self.octets[start..end]),
            StoredValue::Hex(start, end) => Value::Hex(&self.octets[start..end]),
            StoredValue::Other(found) => match found {
                DecodedValue::Boolean(value) => Value::Boolean(value),
                DecodedValue::Integer(value) => Value::Integer(value),
                DecodedValue::Unsigned(value) => Value::Unsigned(value),
                DecodedValue::Decimal(value) => Value::Decimal(value),
                DecodedValue::Float(value) => Value::Float(value),
                DecodedValue::DateTime(value) => Value::DateTime(value),
                // These are stored as text or octets.
                DecodedValue::Base64
                | DecodedValue::Hex
                | DecodedValue::Text
                | DecodedValue::Lexical
                | DecodedValue::InTable(_) => Value::Text(""),
            },
        }
    }

    /// Strings of the last returned event; none outside a block.
    pub(crate) fn strings(&self) -> Option<[&str; 4]> {
        if !self.is_in_use {
            return None;
        }
        let event = self.returned.checked_sub(1)?;
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
    /// Stores the value in the buffers.
    fn store(&mut self) -> StoredValue {
        let found = self.decoded_value;
        let block = &mut self.block;
        let (text, octets) = (block.text.len(), block.octets.len());
        match found {
            DecodedValue::Text | DecodedValue::Lexical => block.text.push_str(&self.buffers.text),
            DecodedValue::InTable(at) => block.text.push_str(self.values.by_identifier(at)),
            DecodedValue::Base64 | DecodedValue::Hex => {
                block.octets.extend_from_slice(&self.buffers.octets)
            }
            _ => {}
        }
        match found {
            DecodedValue::Text | DecodedValue::InTable(_) => {
                StoredValue::Text(text, block.text.len())
            }
            DecodedValue::Lexical => StoredValue::Lexical(text, block.text.len()),
            DecodedValue::Base64 => StoredValue::Base64(octets, block.octets.len()),
            DecodedValue::Hex => StoredValue::Hex(octets, block.octets.len()),
            found => StoredValue::Other(found),
        }
    }

    /// Assigns a number in the block to a value and adds it to the channel of its name.
    fn assign_slot(&mut self, slot: ValueSlot) -> ValueSlot {
        let at = self.block.values.len() as u32;
        match slot {
            ValueSlot::Pending { name, datatype } => {
                self.block.values.push(StoredValue::Missing);
                self.block.datatypes.push(datatype);
                self.block.channels.add(name, at);
            }
            // Values of xsi:type and xsi:nil are part of the structure.
            ValueSlot::DecodedValue => {
                let stored = self.store();
                self.block.values.push(stored);
                self.block.datatypes.push(NONE);
            }
            slot => return slot,
        }
        ValueSlot::InBlock(at)
    }

    /// Stores the strings of an event.
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
    fn read_structure(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let size = self.grammar.options.block_size;
        while self.block.channels.value_count() < size {
            if !self.decode_event(reader, &mut Vec::new())? {
                break;
            }
            let raw = self.raw;
            if self.block.events.len() as u64 >= self.limits.events {
                return Err(Cause::limit("events", self.limits.events));
            }
            let event = self.block.events.len();
            match raw {
                RawEvent::Namespace { .. } | RawEvent::Comment | RawEvent::EntityReference => {
                    self.keep_strings(event, 1);
                }
                RawEvent::ProcessingInstruction => self.keep_strings(event, 2),
                RawEvent::DocType => self.keep_strings(event, 4),
                _ => {}
            }
            let raw = match raw {
                RawEvent::Attribute {
                    name,
                    prefix,
                    value,
                } => RawEvent::Attribute {
                    name,
                    prefix,
                    value: self.assign_slot(value),
                },
                RawEvent::Characters(value) => RawEvent::Characters(self.assign_slot(value)),
                raw => raw,
            };
            self.block.events.push(raw);
        }
        Ok(())
    }

    /// Reads the values of a channel.
    fn read_channel(&mut self, reader: &mut BitReader<'_>, at: usize) -> Result<(), Cause> {
        let channel = self.block.channels.channel(at);
        let mut value = Channels::first_value(&channel);
        while value != NONE {
            let datatype = self.block.datatypes[value as usize];
            self.read_typed_value(reader, channel.name, datatype)?;
            self.block.values[value as usize] = self.store();
            value = self.block.channels.next_value(value);
        }
        Ok(())
    }

    /// Reads all small channels, or all others.
    fn read_channels(&mut self, reader: &mut BitReader<'_>, small: bool) -> Result<(), Cause> {
        for at in 0..self.block.channels.len() {
            if self.is_small(at) == small {
                self.read_channel(reader, at)?;
            }
        }
        Ok(())
    }

    fn is_small(&self, at: usize) -> bool {
        let channels = &self.block.channels;
        channels.is_small(&channels.channel(at))
    }
}

impl StreamReader<'_, '_> {
    /// Moves to the next event, in this block or the next.
    pub(super) fn next_of_block(&mut self) -> Result<bool, Cause> {
        if self.decoder.block.returned == self.decoder.block.events.len() {
            if self.decoder.grammar.top().position == Position::Ended {
                return Ok(false);
            }
            self.read_block()?;
        }
        let block = &mut self.decoder.block;
        let Some(raw) = block.events.get(block.returned) else {
            return Ok(false);
        };
        self.decoder.raw = *raw;
        block.returned += 1;
        Ok(true)
    }

    fn read_block(&mut self) -> Result<(), Cause> {
        let decoder = &mut *self.decoder;
        decoder.block.clear();
        if !decoder.grammar.options.compression {
            decoder.read_structure(&mut self.reader)?;
            decoder.read_channels(&mut self.reader, true)?;
            return decoder.read_channels(&mut self.reader, false);
        }
        self.read_inflated(|decoder, reader| {
            decoder.read_structure(reader)?;
            match decoder.block.channels.share_one_stream() {
                true => decoder.read_channels(reader, true),
                false => Ok(()),
            }
        })?;
        if self.decoder.block.channels.share_one_stream() {
            return Ok(());
        }
        let count = self.decoder.block.channels.len();
        if (0..count).any(|at| self.decoder.is_small(at)) {
            self.read_inflated(|decoder, reader| decoder.read_channels(reader, true))?;
        }
        for at in 0..count {
            if !self.decoder.is_small(at) {
                self.read_inflated(|decoder, reader| decoder.read_channel(reader, at))?;
            }
        }
        Ok(())
    }

    /// Reads from the next compressed stream, or from an empty one at the end of the input, because
    /// empty streams are omitted.
    fn read_inflated(
        &mut self,
        read: impl FnOnce(&mut Decoder, &mut BitReader<'_>) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let limit = self.decoder.limits.block_bytes;
        let block = &mut self.decoder.block;
        let mut bytes = core::mem::take(&mut block.inflated);
        let none = self.reader.rest().is_empty() && !self.reader.read_more()?;
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
