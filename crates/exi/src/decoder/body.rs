//! Event codes and content items to events.

use alloc::string::String;
use alloc::vec::Vec;

use super::Decoder;
use crate::bits::{BitReader, width};
use crate::datatype::{self, Buffers, Found, Representations};
use crate::error::Cause;
use crate::event::{Event, Name};
use crate::grammar::{At, Grammar, Learnt, Second, State, is_xsi_type};
use crate::schema::{NONE, Representation, Terminal};
use crate::tables::Values;
use crate::value::Value;

/// An event whose text is in the tables and buffers of the decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raw {
    StartDocument,
    EndDocument,
    StartElement { name: u32, prefix: u32 },
    EndElement,
    Attribute { name: u32, prefix: u32, value: Slot },
    Namespace { uri: u32, of_element: bool },
    Characters(Slot),
    Comment,
    ProcessingInstruction,
    DocType,
    EntityReference,
    SelfContained,
}

/// A value that is still to be read, or was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// Of a datatype, or [`NONE`] for a string; in the partition of `name`.
    Pending {
        name: u32,
        datatype: u32,
    },
    /// It is in the decoder.
    Found,
    QName {
        name: u32,
        prefix: u32,
    },
    /// The value of that number in the block.
    InBlock(u32),
}

/// What is put aside while a self-contained element is read.
#[derive(Debug)]
pub(crate) struct Saved {
    grammar: State,
    values: Values,
}

/// What the tables say of the present event.
///
/// Each arm makes the event as a whole, where the caller wants it: an event is large, and one that is
/// put together from parts is copied.
#[inline(never)]
pub(crate) fn shown(decoder: &Decoder) -> Option<Event<'_>> {
    match decoder.raw {
        Raw::StartElement { name, prefix } => {
            Some(Event::StartElement(named(decoder, name, prefix)))
        }
        Raw::EndElement => Some(Event::EndElement),
        Raw::Characters(Slot::Found) => match decoder.found {
            Found::Text => Some(Event::Characters(Value::Text(&decoder.buffers.text))),
            Found::Table(at) => Some(Event::Characters(Value::Text(decoder.values.shown(at)))),
            Found::Integer(value) => Some(Event::Characters(Value::Integer(value))),
            Found::Float(value) => Some(Event::Characters(Value::Float(value))),
            Found::Boolean(value) => Some(Event::Characters(Value::Boolean(value))),
            _ => Some(Event::Characters(value_shown(decoder, Slot::Found))),
        },
        Raw::Characters(value) => Some(Event::Characters(value_shown(decoder, value))),
        Raw::Attribute {
            name,
            prefix,
            value,
        } => Some(Event::Attribute(
            named(decoder, name, prefix),
            value_shown(decoder, value),
        )),
        _ => Some(rare(decoder)),
    }
}

fn rare(decoder: &Decoder) -> Event<'_> {
    let strings = decoder.event_strings();
    match decoder.raw {
        Raw::StartDocument => Event::StartDocument,
        Raw::Namespace { uri, of_element } => Event::Namespace {
            prefix: strings[0],
            namespace: decoder.grammar.names.uri(&decoder.grammar.schema, uri),
            of_element,
        },
        Raw::Comment => Event::Comment(strings[0]),
        Raw::ProcessingInstruction => Event::ProcessingInstruction {
            target: strings[0],
            text: strings[1],
        },
        Raw::DocType => Event::DocType {
            name: strings[0],
            public: strings[1],
            system: strings[2],
            text: strings[3],
        },
        Raw::EntityReference => Event::EntityReference(strings[0]),
        Raw::SelfContained => Event::SelfContained,
        // The others are not rare.
        _ => Event::EndDocument,
    }
}

#[inline(always)]
fn named(decoder: &Decoder, name: u32, prefix: u32) -> Name<'_> {
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

fn value_shown(decoder: &Decoder, value: Slot) -> Value<'_> {
    match value {
        Slot::Found => found_shown(&decoder.found, &decoder.buffers, &decoder.values),
        Slot::QName { name, prefix } => {
            let Name {
                namespace,
                local,
                prefix,
            } = named(decoder, name, prefix);
            Value::QName {
                namespace,
                local,
                prefix,
            }
        }
        Slot::InBlock(at) => decoder.block.value(at),
        // Values are read before events are shown.
        Slot::Pending { .. } => Value::Text(""),
    }
}

#[inline(always)]
fn found_shown<'a>(found: &Found, buffers: &'a Buffers, values: &'a Values) -> Value<'a> {
    match *found {
        Found::Boolean(value) => Value::Boolean(value),
        Found::Integer(value) => Value::Integer(value),
        Found::Unsigned(value) => Value::Unsigned(value),
        Found::Decimal(value) => Value::Decimal(value),
        Found::Float(value) => Value::Float(value),
        Found::DateTime(value) => Value::DateTime(value),
        Found::Base64 => Value::Base64(&buffers.octets),
        Found::Hex => Value::Hex(&buffers.octets),
        Found::Text => Value::Text(&buffers.text),
        Found::Lexical => Value::Lexical(&buffers.text),
        Found::Table(at) => Value::Text(values.shown(at)),
    }
}

impl Decoder {
    /// Texts of the present event, of the block it is in if it is in one.
    fn event_strings(&self) -> [&str; 4] {
        match self.block.strings() {
            Some(strings) => strings,
            None => core::array::from_fn(|at| self.strings[at].as_str()),
        }
    }

    /// The present event is this one.
    #[inline]
    fn give(&mut self, raw: Raw) -> Result<(), Cause> {
        self.raw = raw;
        Ok(())
    }

    /// Reads the next event, without its value, into [`Decoder::raw`]; false behind the end.
    pub(crate) fn step(
        &mut self,
        reader: &mut BitReader<'_>,
        saved: &mut Vec<Saved>,
    ) -> Result<bool, Cause> {
        match self.grammar.top().at {
            At::Ended => return Ok(false),
            At::Document => self.document(reader)?,
            At::DocumentEnd => self.document_end(reader)?,
            At::Fragment => self.fragment(reader)?,
            At::Schema(state) => self.schema_state(reader, state)?,
            At::StartTag(_) | At::Content(_) => self.built_in(reader)?,
        }
        match self.raw {
            Raw::SelfContained => self.contain(reader, saved)?,
            Raw::EndElement if self.grammar.stack.len() == 1 && !saved.is_empty() => {
                self.release(reader, saved)?;
                self.raw = Raw::EndElement;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Reads the first part of an event code among `count`, and the second ones behind them. None:
    /// it is a second part.
    #[inline]
    fn code(&self, reader: &mut BitReader<'_>, count: usize) -> Result<Option<usize>, Cause> {
        let all = count + self.grammar.seconds().escapes();
        let code = reader.bits(width(all as u64))?;
        match code as usize {
            code if code < count => Ok(Some(code)),
            code if code < all => Ok(None),
            _ => Err(Cause::EventCode(code)),
        }
    }

    /// Reads the second part of an event code, and the third of comments and instructions.
    fn second(&self, reader: &mut BitReader<'_>) -> Result<Second, Cause> {
        let seconds = self.grammar.seconds();
        let code = reader.bits(seconds.width)?;
        match seconds.of(code) {
            None => Err(Cause::EventCode(code)),
            Some(Second::CommentOrInstruction) => Ok(match reader.bits(1)? & 1 {
                0 => Second::Comment,
                _ => Second::ProcessingInstruction,
            }),
            Some(second) => Ok(second),
        }
    }

    fn document(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let globals = self.grammar.schema.global_elements.len();
        let Some(code) = self.code(reader, globals + 1)? else {
            return match self.second(reader)? {
                Second::DocType => self.doc_type(reader),
                second => self.misc(reader, second),
            };
        };
        self.grammar.top_mut().at = At::DocumentEnd;
        match self.grammar.schema.global_elements.get(code) {
            Some(element) => {
                let element = *element;
                let name = self.grammar.schema.elements[element as usize].name;
                self.declared(reader, name, element)
            }
            None => self.any_element(reader),
        }
    }

    fn document_end(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        match self.code(reader, 1)? {
            Some(_) => {
                self.grammar.top_mut().at = At::Ended;
                self.give(Raw::EndDocument)
            }
            None => {
                let second = self.second(reader)?;
                self.misc(reader, second)
            }
        }
    }

    fn fragment(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let schema = self.grammar.schema.clone();
        let roots = match schema.informed {
            true => schema.fragment_elements.len(),
            false => self.grammar.fragment.len(),
        };
        let Some(code) = self.code(reader, roots + 2)? else {
            let second = self.second(reader)?;
            return self.misc(reader, second);
        };
        if code == roots + 1 {
            self.grammar.top_mut().at = At::Ended;
            return self.give(Raw::EndDocument);
        }
        if code == roots {
            self.any_element(reader)?;
            if let (Raw::StartElement { name, .. }, false) = (self.raw, schema.informed) {
                self.grammar.learn_root(name)?;
            }
            return Ok(());
        }
        match schema.informed {
            true => {
                let (name, element) = schema.fragment_elements[code];
                self.declared(reader, name, element)
            }
            false => {
                let name = self.grammar.fragment[roots - 1 - code];
                self.global(reader, name)
            }
        }
    }

    #[inline]
    fn schema_state(&mut self, reader: &mut BitReader<'_>, state: u32) -> Result<(), Cause> {
        let part = self.grammar.first_part(state);
        let code = match part.bits {
            0 => 0,
            bits => reader.bits(bits)?,
        };
        if code >= part.count {
            return match code == part.count && part.escapes {
                true => self.schema_second(reader, state),
                false => Err(Cause::EventCode(code)),
            };
        }
        let production = self.grammar.schema.productions[(part.first + code) as usize];
        if production.terminal == Terminal::End {
            return self.end();
        }
        self.grammar.follow(production.next);
        match production.terminal {
            Terminal::Attribute { name, datatype } => self.attribute(reader, name, datatype),
            Terminal::AttributeIn(uri) => {
                let name = self.local_name(reader, uri)?;
                self.any_attribute(reader, name)
            }
            Terminal::AttributeAny => {
                let name = self.name(reader)?;
                self.any_attribute(reader, name)
            }
            Terminal::Element { name, element } => self.declared(reader, name, element),
            Terminal::ElementIn(uri) => {
                let name = self.local_name(reader, uri)?;
                self.global(reader, name)
            }
            Terminal::ElementAny => self.any_element(reader),
            Terminal::Characters(datatype) => self.characters(datatype),
            Terminal::Untyped => self.characters(NONE),
            Terminal::End => self.end(),
        }
    }

    fn schema_second(&mut self, reader: &mut BitReader<'_>, state: u32) -> Result<(), Cause> {
        match self.second(reader)? {
            Second::End => self.end(),
            Second::XsiType => {
                let name = self.grammar.schema.xsi_type();
                self.xsi_type(reader, name)
            }
            Second::XsiNil => self.xsi_nil(reader),
            Second::AttributeAny => {
                let name = self.name(reader)?;
                self.any_attribute(reader, name)
            }
            Second::AttributeUntyped => self.untyped_attribute(reader, state),
            Second::Namespace => self.namespace(reader),
            Second::SelfContained => self.give(Raw::SelfContained),
            Second::ElementAny => {
                self.grammar.undeclared_content();
                self.any_element(reader)
            }
            Second::Characters => {
                self.grammar.undeclared_content();
                self.characters(NONE)
            }
            Second::EntityReference => {
                self.grammar.undeclared_content();
                self.entity_reference(reader)
            }
            second => {
                self.grammar.undeclared_content();
                self.misc(reader, second)
            }
        }
    }

    fn built_in(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let learnt = self.grammar.learnt();
        let count = learnt.len();
        let Some(code) = self.code(reader, count)? else {
            return self.built_in_second(reader);
        };
        // The newest production has code 0.
        match learnt[count - 1 - code] {
            Learnt::End => self.end(),
            Learnt::Characters => {
                self.grammar.content_begins();
                self.characters(NONE)
            }
            Learnt::Element(name) => {
                self.grammar.content_begins();
                self.global(reader, name)
            }
            Learnt::Attribute(name) => self.built_in_attribute(reader, name),
            // Only encoders have these.
            Learnt::Unused(_) => Err(Cause::EventCode(code as u32)),
        }
    }

    fn built_in_second(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        match self.second(reader)? {
            Second::End => {
                self.grammar.learn(Learnt::End)?;
                self.end()
            }
            Second::AttributeAny => {
                let name = self.name(reader)?;
                self.grammar.learn(Learnt::Attribute(name))?;
                self.built_in_attribute(reader, name)
            }
            Second::Namespace => self.namespace(reader),
            Second::SelfContained => self.give(Raw::SelfContained),
            Second::ElementAny => {
                let name = self.name(reader)?;
                self.grammar.learn(Learnt::Element(name))?;
                self.grammar.content_begins();
                self.global(reader, name)
            }
            Second::Characters => {
                self.grammar.learn(Learnt::Characters)?;
                self.grammar.content_begins();
                self.characters(NONE)
            }
            Second::EntityReference => {
                self.grammar.content_begins();
                self.entity_reference(reader)
            }
            second => {
                self.grammar.content_begins();
                self.misc(reader, second)
            }
        }
    }

    fn built_in_attribute(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        if is_xsi_type(&self.grammar.schema, name) {
            return self.xsi_type(reader, name);
        }
        self.attribute(reader, name, NONE)
    }

    /// An element ends.
    fn end(&mut self) -> Result<(), Cause> {
        self.grammar.stack.pop();
        let depth = self.grammar.stack.len();
        while self.scope.last().is_some_and(|(bound, ..)| *bound > depth) {
            self.scope.pop();
        }
        self.give(Raw::EndElement)
    }

    /// An element by a declaration; its name is known.
    fn declared(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        element: u32,
    ) -> Result<(), Cause> {
        self.grammar.enter_declared(name, element)?;
        self.start(reader, name)
    }

    /// An element whose name is known, by its global grammar.
    fn global(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        self.grammar.enter_global(name)?;
        self.start(reader, name)
    }

    /// An element of any name.
    fn any_element(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let name = self.name(reader)?;
        self.global(reader, name)
    }

    #[inline]
    fn start(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        let prefix = self.prefix(reader, name)?;
        self.give(Raw::StartElement { name, prefix })
    }

    fn attribute(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        datatype: u32,
    ) -> Result<(), Cause> {
        let prefix = self.prefix(reader, name)?;
        let value = Slot::Pending { name, datatype };
        self.give(Raw::Attribute {
            name,
            prefix,
            value,
        })
    }

    /// An attribute by a wildcard: of the type of its global declaration, if there is one.
    fn any_attribute(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        let datatype = self.grammar.global_attribute(name).unwrap_or(NONE);
        self.attribute(reader, name, datatype)
    }

    fn untyped_attribute(&mut self, reader: &mut BitReader<'_>, state: u32) -> Result<(), Cause> {
        let (first, count) = self.grammar.attributes(state);
        let code = reader.bits(width(u64::from(count) + 1))?;
        if code > count {
            return Err(Cause::EventCode(code));
        }
        if code == count {
            let name = self.name(reader)?;
            return self.attribute(reader, name, NONE);
        }
        let production = self.grammar.schema.productions[(first + code) as usize];
        self.grammar.follow(production.next);
        match production.terminal {
            Terminal::Attribute { name, .. } => self.attribute(reader, name, NONE),
            _ => Err(Cause::EventCode(code)),
        }
    }

    fn characters(&mut self, datatype: u32) -> Result<(), Cause> {
        let name = self.grammar.top().name;
        self.give(Raw::Characters(Slot::Pending { name, datatype }))
    }

    /// xsi:type: its value is of the structure, as it decides on the grammar.
    fn xsi_type(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<(), Cause> {
        let prefix = self.prefix(reader, name)?;
        let value = if self.grammar.options.preserve.lexical_values {
            self.string(reader, name, None)?;
            if let Some(type_) = self.type_of_text() {
                self.grammar.cast(type_);
            }
            Slot::Found
        } else {
            let type_ = self.name(reader)?;
            let prefix = self.prefix(reader, type_)?;
            self.grammar.cast(type_);
            Slot::QName {
                name: type_,
                prefix,
            }
        };
        self.give(Raw::Attribute {
            name,
            prefix,
            value,
        })
    }

    /// The name that a lexical QName stands for, by the prefixes in scope.
    fn type_of_text(&self) -> Option<u32> {
        let Value::Text(text) = found_shown(&self.found, &self.buffers, &self.values) else {
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

    fn xsi_nil(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let name = self.grammar.schema.xsi_nil();
        let prefix = self.prefix(reader, name)?;
        let datatype = self.grammar.schema.boolean;
        self.value(reader, name, datatype)?;
        let nil = match found_shown(&self.found, &self.buffers, &self.values) {
            Value::Boolean(nil) => nil,
            Value::Text(text) => matches!(crate::value::collapse(text), "true" | "1"),
            _ => false,
        };
        if nil {
            self.grammar.nil();
        }
        let value = Slot::Found;
        self.give(Raw::Attribute {
            name,
            prefix,
            value,
        })
    }

    fn namespace(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let uri = self.uri(reader)?;
        let count = self.grammar.names.prefix_count(uri);
        let code = reader.bits(width(u64::from(count) + 1))?;
        self.strings[0].clear();
        if code == 0 {
            text(reader, &mut self.strings[0], self.limits.string_characters)?;
            self.grammar.names.add_prefix(uri, &self.strings[0])?;
        } else {
            let known = self.grammar.names.prefix(uri, code - 1);
            let known = known.ok_or(unknown("prefix", code - 1))?;
            self.strings[0].push_str(known);
        }
        let of_element = reader.boolean()?;
        if self.grammar.options.preserve.lexical_values {
            let namespace = self.grammar.names.uri(&self.grammar.schema, uri);
            let depth = self.grammar.stack.len();
            self.scope
                .push((depth, self.strings[0].clone(), namespace.into()));
        }
        self.give(Raw::Namespace { uri, of_element })
    }

    fn doc_type(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        for string in &mut self.strings {
            string.clear();
            text(reader, string, self.limits.string_characters)?;
        }
        self.give(Raw::DocType)
    }

    fn entity_reference(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        self.strings[0].clear();
        text(reader, &mut self.strings[0], self.limits.string_characters)?;
        self.give(Raw::EntityReference)
    }

    /// A comment or a processing instruction.
    fn misc(&mut self, reader: &mut BitReader<'_>, second: Second) -> Result<(), Cause> {
        let limit = self.limits.string_characters;
        self.strings[0].clear();
        text(reader, &mut self.strings[0], limit)?;
        if second == Second::ProcessingInstruction {
            self.strings[1].clear();
            text(reader, &mut self.strings[1], limit)?;
            return self.give(Raw::ProcessingInstruction);
        }
        self.give(Raw::Comment)
    }

    /// A namespace by its compact identifier, or a new one.
    fn uri(&mut self, reader: &mut BitReader<'_>) -> Result<u32, Cause> {
        let count = self.grammar.names.uri_count(&self.grammar.schema);
        let code = reader.bits(width(u64::from(count) + 1))?;
        match code {
            0 => {
                self.buffers.text.clear();
                let limit = self.limits.string_characters;
                text(reader, &mut self.buffers.text, limit)?;
                let Grammar { names, schema, .. } = &mut self.grammar;
                names.add_uri(schema, &self.buffers.text)
            }
            code if code <= count => Ok(code - 1),
            code => Err(unknown("namespace", code - 1)),
        }
    }

    /// A qualified name without its prefix.
    fn name(&mut self, reader: &mut BitReader<'_>) -> Result<u32, Cause> {
        let uri = self.uri(reader)?;
        self.local_name(reader, uri)
    }

    fn local_name(&mut self, reader: &mut BitReader<'_>, uri: u32) -> Result<u32, Cause> {
        let Grammar { names, schema, .. } = &mut self.grammar;
        let length = reader.unsigned()?;
        if length == 0 {
            let count = names.local_count(schema, uri);
            let identifier = reader.bits(width(u64::from(count)))?;
            let known = (identifier < count).then(|| names.of_local(schema, uri, identifier));
            return known.flatten().ok_or(unknown("local name", identifier));
        }
        self.buffers.text.clear();
        let limit = self.limits.string_characters;
        characters(reader, length - 1, &mut self.buffers.text, limit)?;
        names.add(schema, uri, &self.buffers.text)
    }

    /// The prefix of a name, where prefixes are preserved.
    #[inline(always)]
    fn prefix(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<u32, Cause> {
        match self.grammar.options.preserve.prefixes {
            true => self.kept_prefix(reader, name),
            false => Ok(NONE),
        }
    }

    fn kept_prefix(&mut self, reader: &mut BitReader<'_>, name: u32) -> Result<u32, Cause> {
        let Grammar { names, schema, .. } = &self.grammar;
        let count = names.prefix_count(names.uri_of(schema, name));
        let identifier = reader.bits(width(u64::from(count)))?;
        Ok(if identifier < count { identifier } else { NONE })
    }

    /// Reads the value of the present event, if it has one.
    #[inline]
    pub(crate) fn read_value(&mut self, reader: &mut BitReader<'_>) -> Result<(), Cause> {
        let (Raw::Characters(slot) | Raw::Attribute { value: slot, .. }) = self.raw else {
            return Ok(());
        };
        let Slot::Pending { name, datatype } = slot else {
            return Ok(());
        };
        self.value(reader, name, datatype)?;
        if let Raw::Characters(slot) | Raw::Attribute { value: slot, .. } = &mut self.raw {
            *slot = Slot::Found;
        }
        Ok(())
    }

    /// Reads a value of a datatype, or [`NONE`] for a string, into [`Decoder::found`].
    pub(super) fn value(
        &mut self,
        reader: &mut BitReader<'_>,
        name: u32,
        datatype: u32,
    ) -> Result<(), Cause> {
        if datatype == NONE {
            return self.string(reader, name, None);
        }
        match self.grammar.representation(datatype) {
            Representation::String => self.string(reader, name, None),
            Representation::Restricted(set) => {
                let set = *set;
                self.string(reader, name, Some(set))
            }
            Representation::List(item) => {
                let item = *item;
                self.list(reader, name, item)
            }
            Representation::Enumeration { values, base } => {
                let text = &mut self.buffers.text;
                datatype::read_enumerated(reader, values, text)?;
                self.found = match self.grammar.representation(*base) {
                    Representation::String | Representation::Restricted(_) => Found::Text,
                    _ => Found::Lexical,
                };
                Ok(())
            }
            representation => {
                let Self { buffers, found, .. } = self;
                datatype::read(reader, representation, buffers, found)
            }
        }
    }

    /// The values of a list, in their lexical form with spaces between.
    fn list(&mut self, reader: &mut BitReader<'_>, name: u32, item: u32) -> Result<(), Cause> {
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
            self.value(reader, name, item)?;
            found_shown(&self.found, &self.buffers, &self.values).write_lexical(&mut list);
            if list.len() > self.limits.string_characters {
                let bound = self.limits.string_characters as u64;
                return Err(Cause::limit("string_characters", bound));
            }
        }
        self.buffers.list = core::mem::replace(&mut self.buffers.text, list);
        self.found = Found::Lexical;
        Ok(())
    }

    /// A string by the value partitions (7.3.3), of a restricted character set or not.
    fn string(
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
                self.found = Found::Table(entry.ok_or(unknown("value", identifier))?);
                return Ok(());
            }
            1 => {
                let count = self.values.global_count();
                let identifier = reader.bits(width(u64::from(count)))?;
                if identifier >= count {
                    return Err(unknown("value", identifier));
                }
                self.found = Found::Table(identifier);
                return Ok(());
            }
            code => code - 2,
        };
        let limit = self.limits.string_characters;
        let takes = self.values.takes(within(length, limit)?);
        let text = match takes {
            true => self.values.text(),
            false => {
                self.buffers.text.clear();
                &mut self.buffers.text
            }
        };
        let start = text.len();
        match set {
            None => characters(reader, length, text, limit)?,
            Some(set) => {
                let set = &self.grammar.schema.character_sets[set as usize];
                restricted(reader, length, set, text, limit)?;
            }
        }
        self.found = match takes {
            true => Found::Table(self.values.added(name, start)?),
            false => Found::Text,
        };
        Ok(())
    }

    /// A self-contained element begins: tables and grammars as at the begin of the body.
    fn contain(&mut self, reader: &mut BitReader<'_>, saved: &mut Vec<Saved>) -> Result<(), Cause> {
        if saved.len() >= self.limits.depth {
            return Err(Cause::limit("depth", self.limits.depth as u64));
        }
        reader.align();
        saved.push(Saved {
            grammar: self.grammar.put_aside(self.limits.table_bytes),
            values: core::mem::take(&mut self.values),
        });
        self.reset_values();
        self.fragment(reader)?;
        match self.raw {
            Raw::StartElement { .. } => self.give(Raw::SelfContained),
            _ => Err(Cause::OutOfRange("a self-contained element")),
        }
    }

    /// It has ended: reads the end of its fragment and goes on as before.
    fn release(&mut self, reader: &mut BitReader<'_>, saved: &mut Vec<Saved>) -> Result<(), Cause> {
        self.fragment(reader)?;
        match self.raw {
            Raw::EndDocument => {}
            _ => return Err(Cause::OutOfRange("the end of a self-contained element")),
        }
        reader.align();
        if let Some(saved) = saved.pop() {
            self.grammar.take_back(saved.grammar);
            self.values = saved.values;
            self.end()?;
        }
        if self.grammar.stack.len() == 1 && !saved.is_empty() {
            return self.release(reader, saved);
        }
        Ok(())
    }
}

fn unknown(table: &'static str, identifier: u32) -> Cause {
    let identifier = u64::from(identifier);
    Cause::Identifier { table, identifier }
}

/// A string with its length, appended.
fn text(reader: &mut BitReader<'_>, text: &mut String, limit: usize) -> Result<(), Cause> {
    let length = reader.unsigned()?;
    characters(reader, length, text, limit)
}

fn within(length: u64, limit: usize) -> Result<usize, Cause> {
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit);
    length.ok_or(Cause::limit("string_characters", limit as u64))
}

fn characters(
    reader: &mut BitReader<'_>,
    length: u64,
    text: &mut String,
    limit: usize,
) -> Result<(), Cause> {
    Ok(reader.characters(within(length, limit)?, text)?)
}

/// Characters of a restricted set (7.1.10.1).
fn restricted(
    reader: &mut BitReader<'_>,
    length: u64,
    set: &[char],
    text: &mut String,
    limit: usize,
) -> Result<(), Cause> {
    let bits = width(set.len() as u64 + 1);
    for _ in 0..within(length, limit)? {
        let code = reader.bits(bits)? as usize;
        match set.get(code) {
            Some(character) => text.push(*character),
            // An empty set has no bits: every character is written out.
            None if code == set.len() => reader.characters(1, text)?,
            None => return Err(Cause::OutOfRange("a character of the restricted set")),
        }
    }
    Ok(())
}
