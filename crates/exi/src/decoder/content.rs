//! Content items other than values: names and prefixes, namespace declarations, xsi:type and xsi:nil, comments,
//! processing instructions, document types and entity references.

use super::Decoder;
use super::event::{RawEvent, ValueSlot, resolve_decoded};
use super::value::{read_code_points, read_text, unknown_identifier};
use crate::bits::{BitReader, width};
use crate::error::Cause;
use crate::grammar::{Grammar, SecondPart};
use crate::schema::NONE;
use crate::value::Value;

impl Decoder {
    /// Reads xsi:type. Its value belongs to the structure because it selects the grammar.
    pub(super) fn read_xsi_type(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
    ) -> Result<(), Cause> {
        let prefix = self.read_prefix(reader, name)?;
        let value = if self.grammar.options.preserve.lexical_values {
            self.read_string(reader, name, None)?;
            if let Some(type_) = self.resolve_type_text() {
                self.grammar.apply_xsi_type(type_);
            }
            ValueSlot::DecodedValue
        } else {
            let type_ = self.read_name(reader)?;
            let prefix = self.read_prefix(reader, type_)?;
            self.grammar.apply_xsi_type(type_);
            ValueSlot::QName {
                name: type_,
                prefix,
            }
        };
        self.set_event(RawEvent::Attribute {
            name,
            prefix,
            value,
        })
    }

    /// Resolves a lexical QName with the prefixes in scope.
    fn resolve_type_text(&self) -> Option<u32> {
        let Value::Text(text) = resolve_decoded(&self.decoded_value, &self.buffers, &self.values)
        else {
            return None;
        };
        let text = crate::value::collapse(text);
        let (prefix, local) = text.split_once(':').unwrap_or(("", text));
        let bound = self
            .scope
            .iter()
            .rev()
            .find(|(_, bound, _)| bound == prefix);
        let namespace = bound.map_or("", |(_, _, namespace)| namespace.as_str());
        let Grammar { names, schema, .. } = &self.grammar;
        let uri = names.find_uri(schema, namespace)?;
        names.find(schema, uri, local)
    }

    pub(super) fn read_xsi_nil(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let name = self.grammar.schema.xsi_nil();
        let prefix = self.read_prefix(reader, name)?;
        let datatype = self.grammar.schema.boolean;
        self.read_typed_value(reader, name, datatype)?;
        let nil = match resolve_decoded(&self.decoded_value, &self.buffers, &self.values) {
            Value::Boolean(nil) => nil,
            Value::Text(text) => matches!(crate::value::collapse(text), "true" | "1"),
            _ => false,
        };
        if nil {
            self.grammar.apply_xsi_nil();
        }
        let value = ValueSlot::DecodedValue;
        self.set_event(RawEvent::Attribute {
            name,
            prefix,
            value,
        })
    }

    pub(super) fn read_namespace(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let uri = self.read_uri(reader)?;
        let count = self.grammar.names.prefix_count(uri);
        let code = reader.bits(width(u64::from(count) + 1))?;
        self.strings[0].clear();
        if code == 0 {
            read_text(reader, &mut self.strings[0], self.limits.string_characters)?;
            self.grammar.names.add_prefix(uri, &self.strings[0])?;
        } else {
            let known = self.grammar.names.prefix(uri, code - 1);
            let known = known.ok_or(unknown_identifier("prefix", code - 1))?;
            self.strings[0].push_str(known);
        }
        let of_element = reader.boolean()?;
        if self.grammar.options.preserve.lexical_values {
            let namespace = self.grammar.names.uri(&self.grammar.schema, uri);
            let depth = self.grammar.stack.len();
            self.scope
                .push((depth, self.strings[0].clone(), namespace.into()));
        }
        self.set_event(RawEvent::Namespace { uri, of_element })
    }

    pub(super) fn read_doc_type(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        for string in &mut self.strings {
            string.clear();
            read_text(reader, string, self.limits.string_characters)?;
        }
        self.set_event(RawEvent::DocType)
    }

    pub(super) fn read_entity_reference(
        &mut self,
        reader: &mut BitReader<'_>,
    ) -> Result<(), Cause> {
        self.strings[0].clear();
        read_text(reader, &mut self.strings[0], self.limits.string_characters)?;
        self.set_event(RawEvent::EntityReference)
    }

    /// Reads a comment or a processing instruction.
    pub(super) fn read_misc(
        &mut self,
        reader: &mut BitReader<'_>,
        second: SecondPart,
    ) -> Result<(), Cause> {
        let limit = self.limits.string_characters;
        self.strings[0].clear();
        read_text(reader, &mut self.strings[0], limit)?;
        if second == SecondPart::ProcessingInstruction {
            self.strings[1].clear();
            read_text(reader, &mut self.strings[1], limit)?;
            return self.set_event(RawEvent::ProcessingInstruction);
        }
        self.set_event(RawEvent::Comment)
    }

    /// Reads a namespace: a compact identifier or a new entry.
    fn read_uri(&mut self, reader: &mut BitReader<'_>) -> Result<u32, Cause> {
        let count = self.grammar.names.uri_count(&self.grammar.schema);
        let code = reader.bits(width(u64::from(count) + 1))?;
        match code {
            0 => {
                self.buffers.text.clear();
                let limit = self.limits.string_characters;
                read_text(reader, &mut self.buffers.text, limit)?;
                let Grammar { names, schema, .. } = &mut self.grammar;
                names.add_uri(schema, &self.buffers.text)
            }
            code if code <= count => Ok(code - 1),
            code => Err(unknown_identifier("namespace", code - 1)),
        }
    }

    /// Reads a qualified name without its prefix.
    pub(super) fn read_name(&mut self, reader: &mut BitReader<'_>) -> Result<u32, Cause> {
        let uri = self.read_uri(reader)?;
        self.read_local_name(reader, uri)
    }

    pub(super) fn read_local_name(
        &mut self,
        reader: &mut BitReader<'_>,
        uri: u32,
    ) -> Result<u32, Cause> {
        let Grammar { names, schema, .. } = &mut self.grammar;
        let length = reader.unsigned()?;
        if length == 0 {
            let count = names.local_count(schema, uri);
            let identifier = reader.bits(width(u64::from(count)))?;
            let known =
                (identifier < count).then(|| names.name_by_identifier(schema, uri, identifier));
            return known
                .flatten()
                .ok_or(unknown_identifier("local name", identifier));
        }
        self.buffers.text.clear();
        let limit = self.limits.string_characters;
        read_code_points(reader, length - 1, &mut self.buffers.text, limit)?;
        names.add(schema, uri, &self.buffers.text)
    }

    /// Reads the prefix of a name if prefixes are preserved.
    #[inline(always)]
    pub(super) fn read_prefix(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
    ) -> Result<u32, Cause> {
        match self.grammar.options.preserve.prefixes {
            true => self.read_preserved_prefix(reader, name),
            false => Ok(NONE),
        }
    }

    fn read_preserved_prefix(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
    ) -> Result<u32, Cause> {
        let Grammar { names, schema, .. } = &self.grammar;
        let count = names.prefix_count(names.uri_of(schema, name));
        let identifier = reader.bits(width(u64::from(count)))?;
        Ok(if identifier < count { identifier } else { NONE })
    }
}
