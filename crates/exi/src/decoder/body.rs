//! Decoding event codes and content items to events.

use alloc::string::String;
use alloc::vec::Vec;

use super::Decoder;
use crate::bits::{BitReader, width};
use crate::datatype::{self, Buffers, DecodedValue, Representations};
use crate::error::Cause;
use crate::event::{Event, Name};
use crate::grammar::{
    Grammar, LearnedProduction, Position, SecondPart, SuspendedGrammar, is_xsi_type,
};
use crate::schema::{NONE, Representation, Terminal};
use crate::tables::ValuePartitions;
use crate::value::Value;

/// An event whose text is in the tables and buffers of the decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawEvent {
    StartDocument,
    EndDocument,
    StartElement {
        name: u32,
        prefix: u32,
    },
    EndElement,
    Attribute {
        name: u32,
        prefix: u32,
        value: ValueSlot,
    },
    Namespace {
        uri: u32,
        of_element: bool,
    },
    Characters(ValueSlot),
    Comment,
    ProcessingInstruction,
    DocType,
    EntityReference,
    SelfContained,
}

/// The state of an event's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueSlot {
    /// Not read yet: its datatype, or [`NONE`] for a string, and the name of its partition.
    Pending {
        name: u32,
        datatype: u32,
    },
    /// Read; it is in the decoder.
    DecodedValue,
    QName {
        name: u32,
        prefix: u32,
    },
    /// The value with this number in the block.
    InBlock(u32),
}

/// State of the enclosing body while a self-contained element is decoded.
#[derive(Debug)]
pub(crate) struct SuspendedBody {
    grammar: SuspendedGrammar,
    values: ValuePartitions,
}

/// Builds the current event from the tables and buffers.
///
/// Each arm builds the whole event in place: an event is large, and one that is assembled from
/// parts is copied.
#[inline(never)]
pub(crate) fn current_event(decoder: &Decoder) -> Option<Event<'_>> {
    match decoder.raw {
        RawEvent::StartElement { name, prefix } => {
            Some(Event::StartElement(resolve_name(decoder, name, prefix)))
        }
        RawEvent::EndElement => Some(Event::EndElement),
        RawEvent::Characters(ValueSlot::DecodedValue) => match decoder.decoded_value {
            DecodedValue::Text => Some(Event::Characters(Value::Text(&decoder.buffers.text))),
            DecodedValue::InTable(at) => Some(Event::Characters(Value::Text(
                decoder.values.by_identifier(at),
            ))),
            DecodedValue::Integer(value) => Some(Event::Characters(Value::Integer(value))),
            DecodedValue::Float(value) => Some(Event::Characters(Value::Float(value))),
            DecodedValue::Boolean(value) => Some(Event::Characters(Value::Boolean(value))),
            _ => Some(Event::Characters(resolve_value(
                decoder,
                ValueSlot::DecodedValue,
            ))),
        },
        RawEvent::Characters(value) => Some(Event::Characters(resolve_value(decoder, value))),
        RawEvent::Attribute {
            name,
            prefix,
            value,
        } => Some(Event::Attribute(
            resolve_name(decoder, name, prefix),
            resolve_value(decoder, value),
        )),
        _ => Some(rare_event(decoder)),
    }
}

fn rare_event(decoder: &Decoder) -> Event<'_> {
    let strings = decoder.event_strings();
    match decoder.raw {
        RawEvent::StartDocument => Event::StartDocument,
        RawEvent::Namespace { uri, of_element } => Event::Namespace {
            prefix: strings[0],
            namespace: decoder.grammar.names.uri(&decoder.grammar.schema, uri),
            of_element,
        },
        RawEvent::Comment => Event::Comment(strings[0]),
        RawEvent::ProcessingInstruction => Event::ProcessingInstruction {
            target: strings[0],
            text: strings[1],
        },
        RawEvent::DocType => Event::DocType {
            name: strings[0],
            public: strings[1],
            system: strings[2],
            text: strings[3],
        },
        RawEvent::EntityReference => Event::EntityReference(strings[0]),
        RawEvent::SelfContained => Event::SelfContained,
        // `current_event` handles the other events.
        _ => Event::EndDocument,
    }
}

#[inline(always)]
fn resolve_name(decoder: &Decoder, name: u32, prefix: u32) -> Name<'_> {
    let Grammar { names, schema, .. } = &decoder.grammar;
    let (uri, local) = names.name(schema, name);
    Name {
        namespace: names.uri(schema, uri),
        local,
        prefix: match prefix {
            NONE => None,
            prefix => names.prefix(uri, prefix),
        },
    }
}

fn resolve_value(decoder: &Decoder, value: ValueSlot) -> Value<'_> {
    match value {
        ValueSlot::DecodedValue => {
            resolve_decoded(&decoder.decoded_value, &decoder.buffers, &decoder.values)
        }
        ValueSlot::QName { name, prefix } => {
            let Name {
                namespace,
                local,
                prefix,
            } = resolve_name(decoder, name, prefix);
            Value::QName {
                namespace,
                local,
                prefix,
            }
        }
        ValueSlot::InBlock(at) => decoder.block.value(at),
        // Values are read before events are returned.
        ValueSlot::Pending { .. } => Value::Text(""),
    }
}

#[inline(always)]
fn resolve_decoded<'a>(
    found: &DecodedValue,
    buffers: &'a Buffers,
    values: &'a ValuePartitions,
) -> Value<'a> {
    match *found {
        DecodedValue::Boolean(value) => Value::Boolean(value),
        DecodedValue::Integer(value) => Value::Integer(value),
        DecodedValue::Unsigned(value) => Value::Unsigned(value),
        DecodedValue::Decimal(value) => Value::Decimal(value),
        DecodedValue::Float(value) => Value::Float(value),
        DecodedValue::DateTime(value) => Value::DateTime(value),
        DecodedValue::Base64 => Value::Base64(&buffers.octets),
        DecodedValue::Hex => Value::Hex(&buffers.octets),
        DecodedValue::Text => Value::Text(&buffers.text),
        DecodedValue::Lexical => Value::Lexical(&buffers.text),
        DecodedValue::InTable(at) => Value::Text(values.by_identifier(at)),
    }
}

impl Decoder {
    /// Strings of the current event, from its block if it is in one.
    fn event_strings(&self) -> [&str; 4] {
        match self.block.strings() {
            Some(strings) => strings,
            None => core::array::from_fn(|at| self.strings[at].as_str()),
        }
    }

    /// Sets the current event.
    #[inline]
    fn set_event(&mut self, raw: RawEvent) -> Result<(), Cause> {
        self.raw = raw;
        Ok(())
    }

    /// Reads the next event without its value into [`Decoder::raw`]; false after the end.
    pub(crate) fn decode_event(
        &mut self,
        reader: &mut BitReader<'_>,
        suspended: &mut Vec<SuspendedBody>,
    ) -> Result<bool, Cause> {
        match self.grammar.top().position {
            Position::Ended => return Ok(false),
            Position::DocContent => self.decode_document(reader)?,
            Position::DocEnd => self.decode_document_end(reader)?,
            Position::FragmentContent => self.decode_fragment(reader)?,
            Position::Schema(state) => self.decode_schema_state(reader, state)?,
            Position::StartTagContent(_) | Position::ElementContent(_) => {
                self.decode_built_in(reader)?
            }
        }
        match self.raw {
            RawEvent::SelfContained => self.begin_self_contained(reader, suspended)?,
            RawEvent::EndElement if self.grammar.stack.len() == 1 && !suspended.is_empty() => {
                self.end_self_contained(reader, suspended)?;
                self.raw = RawEvent::EndElement;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Reads the first part of an event code, one of `count` or the escape to the second part. None
    /// means the escape.
    #[inline]
    fn read_first_part(
        &self,
        reader: &mut BitReader<'_>,
        count: usize,
    ) -> Result<Option<usize>, Cause> {
        let all = count + self.grammar.second_parts().escape_count();
        let code = reader.bits(width(all as u64))?;
        match code as usize {
            code if code < count => Ok(Some(code)),
            code if code < all => Ok(None),
            _ => Err(Cause::EventCode(code)),
        }
    }

    /// Reads the second part of an event code, and the third part of comments and processing
    /// instructions.
    fn read_second_part(&self, reader: &mut BitReader<'_>) -> Result<SecondPart, Cause> {
        let seconds = self.grammar.second_parts();
        let code = reader.bits(seconds.width)?;
        match seconds.by_code(code) {
            None => Err(Cause::EventCode(code)),
            Some(SecondPart::CommentOrInstruction) => Ok(match reader.bits(1)? & 1 {
                0 => SecondPart::Comment,
                _ => SecondPart::ProcessingInstruction,
            }),
            Some(second) => Ok(second),
        }
    }

    fn decode_document(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let globals = self.grammar.schema.global_elements.len();
        let Some(code) = self.read_first_part(reader, globals + 1)? else {
            return match self.read_second_part(reader)? {
                SecondPart::DocType => self.read_doc_type(reader),
                second => self.read_misc(reader, second),
            };
        };
        self.grammar.top_mut().position = Position::DocEnd;
        match self.grammar.schema.global_elements.get(code) {
            Some(element) => {
                let element = *element;
                let name = self.grammar.schema.elements[element as usize].name;
                self.start_declared(reader, name, element)
            }
            None => self.start_any(reader),
        }
    }

    fn decode_document_end(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        match self.read_first_part(reader, 1)? {
            Some(_) => {
                self.grammar.top_mut().position = Position::Ended;
                self.set_event(RawEvent::EndDocument)
            }
            None => {
                let second = self.read_second_part(reader)?;
                self.read_misc(reader, second)
            }
        }
    }

    fn decode_fragment(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let schema = self.grammar.schema.clone();
        let roots = match schema.informed {
            true => schema.fragment_elements.len(),
            false => self.grammar.fragment_roots.len(),
        };
        let Some(code) = self.read_first_part(reader, roots + 2)? else {
            let second = self.read_second_part(reader)?;
            return self.read_misc(reader, second);
        };
        if code == roots + 1 {
            self.grammar.top_mut().position = Position::Ended;
            return self.set_event(RawEvent::EndDocument);
        }
        if code == roots {
            self.start_any(reader)?;
            if let (RawEvent::StartElement { name, .. }, false) = (self.raw, schema.informed) {
                self.grammar.learn_root_element(name)?;
            }
            return Ok(());
        }
        match schema.informed {
            true => {
                let (name, element) = schema.fragment_elements[code];
                self.start_declared(reader, name, element)
            }
            false => {
                let name = self.grammar.fragment_roots[roots - 1 - code];
                self.start_global(reader, name)
            }
        }
    }

    #[inline]
    fn decode_schema_state(&mut self, reader: &mut BitReader<'_>, state: u32) -> Result<(), Cause> {
        let part = self.grammar.first_part(state);
        let code = match part.bits {
            0 => 0,
            bits => reader.bits(bits)?,
        };
        if code >= part.count {
            return match code == part.count && part.has_second_part {
                true => self.decode_schema_second_part(reader, state),
                false => Err(Cause::EventCode(code)),
            };
        }
        let production = self.grammar.schema.productions[(part.first + code) as usize];
        if production.terminal == Terminal::End {
            return self.end_element();
        }
        self.grammar.move_to(production.next);
        match production.terminal {
            Terminal::Attribute { name, datatype } => self.read_attribute(reader, name, datatype),
            Terminal::AttributeIn(uri) => {
                let name = self.read_local_name(reader, uri)?;
                self.read_wildcard_attribute(reader, name)
            }
            Terminal::AttributeAny => {
                let name = self.read_name(reader)?;
                self.read_wildcard_attribute(reader, name)
            }
            Terminal::Element { name, element } => self.start_declared(reader, name, element),
            Terminal::ElementIn(uri) => {
                let name = self.read_local_name(reader, uri)?;
                self.start_global(reader, name)
            }
            Terminal::ElementAny => self.start_any(reader),
            Terminal::Characters(datatype) => self.read_characters(datatype),
            Terminal::Untyped => self.read_characters(NONE),
            Terminal::End => self.end_element(),
        }
    }

    fn decode_schema_second_part(
        &mut self,
        reader: &mut BitReader<'_>,
        state: u32,
    ) -> Result<(), Cause> {
        match self.read_second_part(reader)? {
            SecondPart::End => self.end_element(),
            SecondPart::XsiType => {
                let name = self.grammar.schema.xsi_type();
                self.read_xsi_type(reader, name)
            }
            SecondPart::XsiNil => self.read_xsi_nil(reader),
            SecondPart::AttributeAny => {
                let name = self.read_name(reader)?;
                self.read_wildcard_attribute(reader, name)
            }
            SecondPart::AttributeUntyped => self.read_untyped_attribute(reader, state),
            SecondPart::Namespace => self.read_namespace(reader),
            SecondPart::SelfContained => self.set_event(RawEvent::SelfContained),
            SecondPart::ElementAny => {
                self.grammar.enter_undeclared_content();
                self.start_any(reader)
            }
            SecondPart::Characters => {
                self.grammar.enter_undeclared_content();
                self.read_characters(NONE)
            }
            SecondPart::EntityReference => {
                self.grammar.enter_undeclared_content();
                self.read_entity_reference(reader)
            }
            second => {
                self.grammar.enter_undeclared_content();
                self.read_misc(reader, second)
            }
        }
    }

    fn decode_built_in(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let learned = self.grammar.learned_productions();
        let count = learned.len();
        let Some(code) = self.read_first_part(reader, count)? else {
            return self.decode_built_in_second_part(reader);
        };
        // The newest production has code 0.
        match learned[count - 1 - code] {
            LearnedProduction::End => self.end_element(),
            LearnedProduction::Characters => {
                self.grammar.enter_content();
                self.read_characters(NONE)
            }
            LearnedProduction::Element(name) => {
                self.grammar.enter_content();
                self.start_global(reader, name)
            }
            LearnedProduction::Attribute(name) => self.read_built_in_attribute(reader, name),
            // Only encoders learn these.
            LearnedProduction::Unused(_) => Err(Cause::EventCode(code as u32)),
        }
    }

    fn decode_built_in_second_part(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        match self.read_second_part(reader)? {
            SecondPart::End => {
                self.grammar.learn_production(LearnedProduction::End)?;
                self.end_element()
            }
            SecondPart::AttributeAny => {
                let name = self.read_name(reader)?;
                self.grammar
                    .learn_production(LearnedProduction::Attribute(name))?;
                self.read_built_in_attribute(reader, name)
            }
            SecondPart::Namespace => self.read_namespace(reader),
            SecondPart::SelfContained => self.set_event(RawEvent::SelfContained),
            SecondPart::ElementAny => {
                let name = self.read_name(reader)?;
                self.grammar
                    .learn_production(LearnedProduction::Element(name))?;
                self.grammar.enter_content();
                self.start_global(reader, name)
            }
            SecondPart::Characters => {
                self.grammar
                    .learn_production(LearnedProduction::Characters)?;
                self.grammar.enter_content();
                self.read_characters(NONE)
            }
            SecondPart::EntityReference => {
                self.grammar.enter_content();
                self.read_entity_reference(reader)
            }
            second => {
                self.grammar.enter_content();
                self.read_misc(reader, second)
            }
        }
    }

    fn read_built_in_attribute(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
    ) -> Result<(), Cause> {
        if is_xsi_type(&self.grammar.schema, name) {
            return self.read_xsi_type(reader, name);
        }
        self.read_attribute(reader, name, NONE)
    }

    /// Ends an element.
    fn end_element(&mut self) -> Result<(), Cause> {
        self.grammar.stack.pop();
        let depth = self.grammar.stack.len();
        while self.scope.last().is_some_and(|(bound, ..)| *bound > depth) {
            self.scope.pop();
        }
        self.set_event(RawEvent::EndElement)
    }

    /// Starts an element with a known name by its declaration.
    fn start_declared(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        element: u32,
    ) -> Result<(), Cause> {
        self.grammar.enter_declared_element(name, element)?;
        self.read_element_prefix(reader, name)
    }

    /// Starts an element with a known name by its global grammar.
    fn start_global(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        self.grammar.enter_global_element(name)?;
        self.read_element_prefix(reader, name)
    }

    /// Starts an element of any name.
    fn start_any(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let name = self.read_name(reader)?;
        self.start_global(reader, name)
    }

    #[inline]
    fn read_element_prefix(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        let prefix = self.read_prefix(reader, name)?;
        self.set_event(RawEvent::StartElement { name, prefix })
    }

    fn read_attribute(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        datatype: u32,
    ) -> Result<(), Cause> {
        let prefix = self.read_prefix(reader, name)?;
        let value = ValueSlot::Pending { name, datatype };
        self.set_event(RawEvent::Attribute {
            name,
            prefix,
            value,
        })
    }

    /// Reads an attribute that matches a wildcard. It has the type of its global declaration, if
    /// there is one.
    fn read_wildcard_attribute(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
    ) -> Result<(), Cause> {
        let datatype = self.grammar.global_attribute(name).unwrap_or(NONE);
        self.read_attribute(reader, name, datatype)
    }

    fn read_untyped_attribute(
        &mut self,
        reader: &mut BitReader<'_>,
        state: u32,
    ) -> Result<(), Cause> {
        let (first, count) = self.grammar.attributes(state);
        let code = reader.bits(width(u64::from(count) + 1))?;
        if code > count {
            return Err(Cause::EventCode(code));
        }
        if code == count {
            let name = self.read_name(reader)?;
            return self.read_attribute(reader, name, NONE);
        }
        let production = self.grammar.schema.productions[(first + code) as usize];
        self.grammar.move_to(production.next);
        match production.terminal {
            Terminal::Attribute { name, .. } => self.read_attribute(reader, name, NONE),
            _ => Err(Cause::EventCode(code)),
        }
    }

    fn read_characters(&mut self, datatype: u32) -> Result<(), Cause> {
        let name = self.grammar.top().name;
        self.set_event(RawEvent::Characters(ValueSlot::Pending { name, datatype }))
    }

    /// Reads xsi:type. Its value belongs to the structure because it selects the grammar.
    fn read_xsi_type(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
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

    fn read_xsi_nil(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
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

    fn read_namespace(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
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

    fn read_doc_type(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        for string in &mut self.strings {
            string.clear();
            read_text(reader, string, self.limits.string_characters)?;
        }
        self.set_event(RawEvent::DocType)
    }

    fn read_entity_reference(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        self.strings[0].clear();
        read_text(reader, &mut self.strings[0], self.limits.string_characters)?;
        self.set_event(RawEvent::EntityReference)
    }

    /// Reads a comment or a processing instruction.
    fn read_misc(&mut self, reader: &mut BitReader<'_>, second: SecondPart) -> Result<(), Cause> {
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
    fn read_name(&mut self, reader: &mut BitReader<'_>) -> Result<u32, Cause> {
        let uri = self.read_uri(reader)?;
        self.read_local_name(reader, uri)
    }

    fn read_local_name(&mut self, reader: &mut BitReader<'_>, uri: u32) -> Result<u32, Cause> {
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
    fn read_prefix(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<u32, Cause> {
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
    fn read_string(
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

    /// Starts a self-contained element with tables and grammars in their initial state.
    fn begin_self_contained(
        &mut self,
        reader: &mut BitReader<'_>,
        suspended: &mut Vec<SuspendedBody>,
    ) -> Result<(), Cause> {
        if suspended.len() >= self.limits.depth {
            return Err(Cause::limit("depth", self.limits.depth as u64));
        }
        reader.align();
        suspended.push(SuspendedBody {
            grammar: self.grammar.suspend(self.limits.table_bytes),
            values: core::mem::take(&mut self.values),
        });
        self.reset_values();
        self.decode_fragment(reader)?;
        match self.raw {
            RawEvent::StartElement { .. } => self.set_event(RawEvent::SelfContained),
            _ => Err(Cause::OutOfRange("a self-contained element")),
        }
    }

    /// Ends a self-contained element: reads the end of its fragment and restores the enclosing
    /// body.
    fn end_self_contained(
        &mut self,
        reader: &mut BitReader<'_>,
        suspended: &mut Vec<SuspendedBody>,
    ) -> Result<(), Cause> {
        self.decode_fragment(reader)?;
        match self.raw {
            RawEvent::EndDocument => {}
            _ => return Err(Cause::OutOfRange("the end of a self-contained element")),
        }
        reader.align();
        if let Some(suspended) = suspended.pop() {
            self.grammar.resume(suspended.grammar);
            self.values = suspended.values;
            self.end_element()?;
        }
        if self.grammar.stack.len() == 1 && !suspended.is_empty() {
            return self.end_self_contained(reader, suspended);
        }
        Ok(())
    }
}

fn unknown_identifier(table: &'static str, identifier: u32) -> Cause {
    let identifier = u64::from(identifier);
    Cause::Identifier { table, identifier }
}

/// Reads a string preceded by its length and appends it to `text`.
fn read_text(reader: &mut BitReader<'_>, text: &mut String, limit: usize) -> Result<(), Cause> {
    let length = reader.unsigned()?;
    read_code_points(reader, length, text, limit)
}

fn checked_length(length: u64, limit: usize) -> Result<usize, Cause> {
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit);
    length.ok_or(Cause::limit("string_characters", limit as u64))
}

fn read_code_points(
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
