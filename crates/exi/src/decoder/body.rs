//! Decoding event codes by the grammars.

use alloc::vec::Vec;

use super::Decoder;
use super::event::{RawEvent, ValueSlot};
use crate::bits::{BitReader, width};
use crate::error::Cause;
use crate::grammar::{LearnedProduction, Position, SecondPart, SuspendedGrammar, is_xsi_type};
use crate::schema::{NONE, Terminal};
use crate::tables::ValuePartitions;

/// State of the enclosing body while a self-contained element is decoded.
#[derive(Debug)]
pub(crate) struct SuspendedBody {
    grammar: SuspendedGrammar,
    values: ValuePartitions,
}

impl Decoder {
    /// Sets the current event.
    #[inline]
    pub(super) fn set_event(&mut self, raw: RawEvent) -> Result<(), Cause> {
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
