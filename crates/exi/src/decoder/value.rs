//! Reading values by their datatypes, and strings.

use alloc::string::String;

use super::Decoder;
use super::event::{RawEvent, ValueSlot, resolve_decoded};
use crate::bits::{BitReader, width};
use crate::datatype::{self, DecodedValue, Representations};
use crate::error::Cause;
use crate::schema::{NONE, Representation};

impl Decoder {
    /// Reads the value of the current event, if it has one.
    #[inline]
    pub(crate) fn read_value(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let (RawEvent::Characters(slot) | RawEvent::Attribute { value: slot, .. }) = self.raw
        else {
            return Ok(());
        };
        let ValueSlot::Pending { name, datatype } = slot else {
            return Ok(());
        };
        self.read_typed_value(reader, name, datatype)?;
        if let RawEvent::Characters(slot) | RawEvent::Attribute { value: slot, .. } = &mut self.raw
        {
            *slot = ValueSlot::DecodedValue;
        }
        Ok(())
    }

    /// Reads a value of a datatype, or [`NONE`] for a string, into [`Decoder::decoded_value`].
    pub(super) fn read_typed_value(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        datatype: u32,
    ) -> Result<(), Cause> {
        if datatype == NONE {
            return self.read_string(reader, name, None);
        }
        match self.grammar.representation(datatype) {
            Representation::String => self.read_string(reader, name, None),
            Representation::Restricted(set) => {
                let set = *set;
                self.read_string(reader, name, Some(set))
            }
            Representation::List(item) => {
                let item = *item;
                self.read_list(reader, name, item)
            }
            Representation::Enumeration { values, base } => {
                let text = &mut self.buffers.text;
                datatype::read_enumerated(reader, values, text)?;
                self.decoded_value = match self.grammar.representation(*base) {
                    Representation::String | Representation::Restricted(_) => DecodedValue::Text,
                    _ => DecodedValue::Lexical,
                };
                Ok(())
            }
            representation => {
                let Self {
                    buffers,
                    decoded_value,
                    ..
                } = self;
                datatype::read(reader, representation, buffers, decoded_value)
            }
        }
    }

    /// Reads the items of a list into one lexical form, separated by spaces.
    fn read_list(&mut self, reader: &mut BitReader<'_>, name: u32, item: u32) -> Result<(), Cause> {
        if matches!(self.grammar.representation(item), Representation::List(_)) {
            return Err(Cause::OutOfRange("a list of plain values"));
        }
        let count = datatype::read_count(reader)?;
        let mut list = core::mem::take(&mut self.buffers.list);
        list.clear();
        for at in 0..count {
            if at > 0 {
                list.push(' ');
            }
            self.read_typed_value(reader, name, item)?;
            resolve_decoded(&self.decoded_value, &self.buffers, &self.values)
                .write_lexical(&mut list);
            if list.len() > self.limits.string_characters {
                let bound = self.limits.string_characters as u64;
                return Err(Cause::limit("string_characters", bound));
            }
        }
        self.buffers.list = core::mem::replace(&mut self.buffers.text, list);
        self.decoded_value = DecodedValue::Lexical;
        Ok(())
    }

    /// Reads a string using the value partitions (7.3.3), possibly of a restricted character set.
    pub(super) fn read_string(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        set: Option<u32>,
    ) -> Result<(), Cause> {
        let code = reader.unsigned()?;
        let length = match code {
            0 => {
                let count = self.values.local_count(name);
                let identifier = reader.bits(width(u64::from(count)))?;
                let entry = self.values.local_entry(name, identifier);
                self.decoded_value =
                    DecodedValue::InTable(entry.ok_or(unknown_identifier("value", identifier))?);
                return Ok(());
            }
            1 => {
                let count = self.values.global_count();
                let identifier = reader.bits(width(u64::from(count)))?;
                if identifier >= count {
                    return Err(unknown_identifier("value", identifier));
                }
                self.decoded_value = DecodedValue::InTable(identifier);
                return Ok(());
            }
            code => code - 2,
        };
        let limit = self.limits.string_characters;
        let takes = self.values.accepts_length(checked_length(length, limit)?);
        let text = match takes {
            true => self.values.text_buffer(),
            false => {
                self.buffers.text.clear();
                &mut self.buffers.text
            }
        };
        let start = text.len();
        match set {
            None => read_code_points(reader, length, text, limit)?,
            Some(set) => {
                let set = &self.grammar.schema.character_sets[set as usize];
                read_restricted(reader, length, set, text, limit)?;
            }
        }
        self.decoded_value = match takes {
            true => DecodedValue::InTable(self.values.insert_appended(name, start)?),
            false => DecodedValue::Text,
        };
        Ok(())
    }
}

pub(super) fn unknown_identifier(table: &'static str, identifier: u32) -> Cause {
    let identifier = u64::from(identifier);
    Cause::Identifier { table, identifier }
}

/// Reads a string preceded by its length and appends it to `text`.
pub(super) fn read_text(
    reader: &mut BitReader<'_>,
    text: &mut String,
    limit: usize,
) -> Result<(), Cause> {
    let length = reader.unsigned()?;
    read_code_points(reader, length, text, limit)
}

fn checked_length(length: u64, limit: usize) -> Result<usize, Cause> {
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit);
    length.ok_or(Cause::limit("string_characters", limit as u64))
}

pub(super) fn read_code_points(
    reader: &mut BitReader<'_>,
    length: u64,
    text: &mut String,
    limit: usize,
) -> Result<(), Cause> {
    Ok(reader.characters(checked_length(length, limit)?, text)?)
}

/// Reads the characters of a restricted set (7.1.10.1).
fn read_restricted(
    reader: &mut BitReader<'_>,
    length: u64,
    set: &[char],
    text: &mut String,
    limit: usize,
) -> Result<(), Cause> {
    let bits = width(set.len() as u64 + 1);
    for _ in 0..checked_length(length, limit)? {
        let code = reader.bits(bits)? as usize;
        match set.get(code) {
            Some(character) => text.push(*character),
            // With an empty set the code has no bits, and every character follows as a code point.
            None if code == set.len() => reader.characters(1, text)?,
            None => return Err(Cause::OutOfRange("a character of the restricted set")),
        }
    }
    Ok(())
}
