//! Encoding events to event codes and content items.

use alloc::string::{String, ToString};

use super::Encoder;
use super::canonical::normalized;
use crate::bits::{BitWriter, width};
use crate::datatype::{self, PreparedValue, Representations};
use crate::error::Cause;
use crate::event::{Event, Name};
use crate::grammar::{Grammar, LearnedProduction, Position, SecondPart, SuspendedGrammar};
use crate::schema::{NONE, Production, Schema, Terminal};
use crate::tables::{ValueHit, ValuePartitions};
use crate::value::{Value, collapse};

/// How specifically a production matches an event: by name, by namespace or by wildcard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MatchRank {
    NoMatch,
    Wildcard,
    Namespace,
    Name,
}

/// State of the enclosing body while a self-contained element is encoded.
#[derive(Debug)]
pub(super) struct SuspendedBody {
    grammar: SuspendedGrammar,
    values: ValuePartitions,
}

pub(super) fn truncated(text: &str) -> String {
    text.chars().take(64).collect()
}

impl Encoder {
    pub(super) fn has_ended(&self) -> bool {
        self.grammar.top().position == Position::Ended
    }

    pub(super) fn finished_bytes(&mut self) -> &[u8] {
        match self.grammar.options.channels() {
            true => &self.block.out,
            false => self.writer.finish(),
        }
    }

    #[inline]
    pub(super) fn encode_event(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        match event {
            Event::StartDocument => return Ok(()),
            Event::Attribute(name, value) => return self.buffer_attribute(name, value),
            Event::Namespace {
                prefix, namespace, ..
            } => return self.encode_namespace(prefix, namespace),
            Event::SelfContained => return self.begin_self_contained(),
            _ => {}
        }
        if self.grammar.profile.is_some() {
            if self.ignores(event) {
                return Ok(());
            }
            self.limit_learning()?;
        }
        if !self.attributes.is_empty() {
            self.write_attributes()?;
        }
        match event {
            Event::StartElement(name) => self.encode_start_element(name),
            Event::EndElement => self.encode_end_element(),
            Event::Characters(Value::Text("")) if !self.expects_characters() => Ok(()),
            Event::Characters(value) => self.encode_characters(value),
            _ => self.encode_rare_event(event),
        }
    }

    /// Returns true if the options do not preserve an event.
    fn ignores(&self, event: &Event<'_>) -> bool {
        let preserve = self.grammar.options.preserve;
        match event {
            Event::Comment(_) => !preserve.comments,
            Event::ProcessingInstruction { .. } => !preserve.pis,
            Event::DocType { .. } => !preserve.dtd,
            _ => false,
        }
    }

    #[inline(never)]
    fn encode_rare_event(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        let preserve = self.grammar.options.preserve;
        match *event {
            Event::EndDocument => self.encode_end_document(),
            Event::Comment(text) if preserve.comments => {
                self.write_misc_code(SecondPart::Comment)?;
                self.write_string(text);
                Ok(())
            }
            Event::ProcessingInstruction { target, text } if preserve.pis => {
                self.write_misc_code(SecondPart::ProcessingInstruction)?;
                self.write_string(target);
                self.write_string(text);
                Ok(())
            }
            Event::DocType {
                name,
                public,
                system,
                text,
            } if preserve.dtd => {
                self.write_second_part(SecondPart::DocType)?;
                for text in [name, public, system, text] {
                    self.write_string(text);
                }
                Ok(())
            }
            Event::EntityReference(name) if preserve.dtd => {
                self.write_second_part(SecondPart::EntityReference)?;
                self.grammar.enter_undeclared_content();
                self.write_string(name);
                Ok(())
            }
            Event::EntityReference(_) => Err(Cause::Misuse(
                "an entity reference requires the option preserve.dtd",
            )),
            _ => Ok(()),
        }
    }

    // -- event codes --------------------------------------------------------------------------

    /// Writes the first part of an event code.
    #[inline]
    pub(super) fn write_first_part(&mut self, code: usize, count: usize) {
        let bits = match self.grammar.top().position {
            Position::Schema(state) => self.grammar.first_part(state).bits,
            _ => width((count + self.grammar.second_parts().escape_count()) as u64),
        };
        self.writer.bits(code as u32, bits);
    }

    /// Number of first parts, without the one that escapes to the second part.
    pub(super) fn first_part_count(&self) -> usize {
        let schema = &self.grammar.schema;
        match self.grammar.top().position {
            Position::DocContent => schema.global_elements.len() + 1,
            Position::DocEnd => 1,
            Position::FragmentContent => self.root_count() + 2,
            Position::Ended => 0,
            Position::Schema(state) => schema.states[state as usize].count as usize,
            Position::StartTagContent(_) | Position::ElementContent(_) => {
                self.grammar.learned_productions().len()
            }
        }
    }

    pub(super) fn root_count(&self) -> usize {
        match self.grammar.schema.informed {
            true => self.grammar.schema.fragment_elements.len(),
            false => self.grammar.fragment_roots.len(),
        }
    }

    /// The first of the best matching productions of a state, with its event code.
    pub(super) fn find_production(
        &self,
        state: u32,
        fit: impl Fn(Terminal, &Schema) -> MatchRank,
    ) -> Option<(usize, Production)> {
        let schema = &*self.grammar.schema;
        let (mut best, mut found) = (MatchRank::NoMatch, None);
        for (at, production) in schema.productions(state).iter().enumerate() {
            let fit = fit(production.terminal, schema);
            if fit > best {
                (best, found) = (fit, Some((at, *production)));
                if best == MatchRank::Name {
                    break;
                }
            }
        }
        found
    }

    /// Returns true if the current position has this second part.
    pub(super) fn has_second_part(&self, second: SecondPart) -> bool {
        self.grammar.second_parts().code(second).is_some()
    }

    /// Writes an event code of two parts; fails if the current position does not have it.
    pub(super) fn write_second_part(&mut self, second: SecondPart) -> Result<(), Cause> {
        let seconds = self.grammar.second_parts();
        let (found, bits) = (seconds.code(second), seconds.width);
        let Some(code) = found else {
            return Err(self.not_allowed(second));
        };
        let count = self.first_part_count();
        self.write_first_part(count, count);
        self.writer.bits(code, bits);
        Ok(())
    }

    pub(super) fn not_allowed(&self, second: SecondPart) -> Cause {
        if self.grammar.stack.len() == 1 {
            return Cause::Misuse("this event is not allowed outside the root element");
        }
        Cause::NotAllowed(match second {
            SecondPart::End => "the end of this element".into(),
            SecondPart::Characters => "character data".into(),
            SecondPart::XsiType => "xsi:type".into(),
            SecondPart::XsiNil => "xsi:nil".into(),
            other => alloc::format!("{other:?}"),
        })
    }

    /// Writes the event code of a comment or processing instruction. It has three parts if both are
    /// preserved.
    pub(super) fn write_misc_code(&mut self, second: SecondPart) -> Result<(), Cause> {
        if self.has_second_part(SecondPart::CommentOrInstruction) {
            self.write_second_part(SecondPart::CommentOrInstruction)?;
            let third = u32::from(second == SecondPart::ProcessingInstruction);
            self.writer.bits(third, 1);
        } else {
            self.write_second_part(second)?;
        }
        self.grammar.enter_undeclared_content();
        Ok(())
    }

    // -- document -----------------------------------------------------------------------------

    pub(super) fn encode_end_document(&mut self) -> Result<(), Cause> {
        match self.grammar.top().position {
            Position::DocEnd => self.write_first_part(0, 1),
            Position::FragmentContent => {
                let roots = self.root_count();
                self.write_first_part(roots + 1, roots + 2);
            }
            _ => {
                return Err(Cause::Misuse(
                    "the document ended without a complete root element",
                ));
            }
        }
        self.grammar.top_mut().position = Position::Ended;
        if self.grammar.options.channels() {
            self.end_block()?;
        }
        Ok(())
    }

    // -- elements -----------------------------------------------------------------------------

    pub(super) fn encode_start_element(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        match self.grammar.top().position {
            Position::Schema(state) => self.encode_child_of_schema(state, name)?,
            Position::StartTagContent(_) | Position::ElementContent(_) => {
                self.encode_child_of_built_in(name)?
            }
            Position::DocContent => self.encode_root(name)?,
            Position::FragmentContent => self.encode_fragment_root(name)?,
            Position::DocEnd | Position::Ended => {
                return Err(Cause::Misuse("a document has only one root element"));
            }
        }
        match self.grammar.options.preserve.prefixes {
            true => self.write_prefix(self.grammar.top().name, name.prefix),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn encode_root(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        let schema = &self.grammar.schema;
        let count = schema.global_elements.len() + 1;
        let known = self.find_name(name);
        let declared = known.and_then(|known| Some((known, schema.names.get(known as usize)?)));
        let declared = declared.filter(|(_, named)| named.element != NONE);
        let Some((known, named)) = declared else {
            self.write_first_part(count - 1, count);
            self.grammar.top_mut().position = Position::DocEnd;
            let name = self.write_name(name)?;
            return self.grammar.enter_global_element(name);
        };
        let element = named.element;
        let code = schema.global_code(element);
        self.write_first_part(code, count);
        self.grammar.top_mut().position = Position::DocEnd;
        self.grammar.enter_declared_element(known, element)
    }

    #[inline(never)]
    fn encode_fragment_root(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        let schema = self.grammar.schema.clone();
        let known = self.find_name(name);
        let roots = self.root_count();
        if schema.informed {
            let mut elements = schema.fragment_elements.iter();
            if let Some(at) = elements.position(|(other, _)| Some(*other) == known) {
                self.write_first_part(at, roots + 2);
                let (name, element) = schema.fragment_elements[at];
                return self.grammar.enter_declared_element(name, element);
            }
        } else if let Some(known) = known {
            let found = self
                .grammar
                .fragment_roots
                .iter()
                .rposition(|name| *name == known);
            if let Some(at) = found {
                self.write_first_part(roots - 1 - at, roots + 2);
                return self.grammar.enter_global_element(known);
            }
        }
        self.write_first_part(roots, roots + 2);
        let name = self.write_name(name)?;
        if !schema.informed {
            self.grammar.learn_root_element(name)?;
        }
        self.grammar.enter_global_element(name)
    }

    fn encode_child_of_schema(&mut self, state: u32, name: &Name<'_>) -> Result<(), Cause> {
        let found = self.find_production(state, |terminal, schema| match terminal {
            Terminal::Element { name: known, .. } if schema.is(known, name) => MatchRank::Name,
            Terminal::ElementIn(uri) if schema.uri(uri) == name.namespace => MatchRank::Namespace,
            Terminal::ElementAny => MatchRank::Wildcard,
            _ => MatchRank::NoMatch,
        });
        let Some((at, production)) = found else {
            return self.encode_undeclared_child(name);
        };
        self.writer
            .bits(at as u32, self.grammar.first_part(state).bits);
        self.grammar.move_to(production.next);
        let name = match production.terminal {
            Terminal::Element { name, element } => {
                return self.grammar.enter_declared_element(name, element);
            }
            Terminal::ElementIn(uri) => self.write_local_name(uri, name.local)?,
            _ => self.write_name(name)?,
        };
        self.grammar.enter_global_element(name)
    }

    #[cold]
    fn encode_undeclared_child(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        if self.grammar.options.strict {
            let mut text = String::from("element ");
            text.push_str(&truncated(name.local));
            return Err(Cause::NotAllowed(text));
        }
        self.write_second_part(SecondPart::ElementAny)?;
        self.grammar.enter_undeclared_content();
        let name = self.write_name(name)?;
        self.grammar.enter_global_element(name)
    }

    fn encode_child_of_built_in(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        if let Some(known) = self.find_name(name) {
            let learned = self.grammar.learned_productions();
            let found = learned
                .iter()
                .rposition(|one| *one == LearnedProduction::Element(known));
            if let Some(at) = found {
                let count = learned.len();
                self.write_first_part(count - 1 - at, count);
                self.grammar.enter_content();
                return self.grammar.enter_global_element(known);
            }
        }
        self.write_second_part(SecondPart::ElementAny)?;
        let name = self.write_name(name)?;
        self.grammar
            .learn_production(LearnedProduction::Element(name))?;
        self.grammar.enter_content();
        self.grammar.enter_global_element(name)
    }

    pub(super) fn encode_end_element(&mut self) -> Result<(), Cause> {
        match self.grammar.top().position {
            Position::Schema(state) => {
                if !self.write_end_of_schema(state)? {
                    // Callers omit empty values, but the schema requires an event for them.
                    if !self.expects_characters() {
                        return Err(self.not_allowed(SecondPart::End));
                    }
                    self.encode_characters(&Value::Text(""))?;
                    let ended = match self.grammar.top().position {
                        Position::Schema(state) => self.write_end_of_schema(state)?,
                        _ => false,
                    };
                    if !ended {
                        return Err(self.not_allowed(SecondPart::End));
                    }
                }
            }
            Position::StartTagContent(_) | Position::ElementContent(_) => {
                let learned = self.grammar.learned_productions();
                let count = learned.len();
                match learned
                    .iter()
                    .rposition(|one| *one == LearnedProduction::End)
                {
                    Some(at) => self.write_first_part(count - 1 - at, count),
                    None => {
                        self.write_second_part(SecondPart::End)?;
                        self.grammar.learn_production(LearnedProduction::End)?;
                    }
                }
            }
            _ => return Err(Cause::Misuse("no element is open")),
        }
        self.close_element();
        if self.grammar.stack.len() == 1 && !self.suspended.is_empty() {
            self.end_self_contained()?;
        }
        Ok(())
    }

    /// Writes the event code of the end of an element in a state of the schema; false if it has
    /// none.
    fn write_end_of_schema(&mut self, state: u32) -> Result<bool, Cause> {
        let productions = self.grammar.schema.productions(state);
        let count = productions.len();
        let mut last = productions.iter();
        match last.rposition(|one| one.terminal == Terminal::End) {
            Some(at) => self.write_first_part(at, count),
            None if self.has_second_part(SecondPart::End) => {
                self.write_second_part(SecondPart::End)?
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn close_element(&mut self) {
        self.grammar.stack.pop();
        let depth = self.grammar.stack.len();
        while self.scope.last().is_some_and(|(bound, ..)| *bound > depth) {
            self.scope.pop();
        }
    }

    /// Returns true if the current state of the schema expects a typed value, even an empty one.
    pub(super) fn expects_characters(&self) -> bool {
        let Position::Schema(state) = self.grammar.top().position else {
            return false;
        };
        let productions = self.grammar.schema.productions(state);
        // Character data are the last production.
        let last = productions.last().map(|last| last.terminal);
        matches!(last, Some(Terminal::Characters(_)))
    }

    // -- character data -----------------------------------------------------------------------

    pub(super) fn encode_characters(&mut self, value: &Value<'_>) -> Result<(), Cause> {
        let name = self.grammar.top().name;
        match self.grammar.top().position {
            Position::Schema(state) => self.encode_characters_of_schema(state, name, value),
            Position::StartTagContent(_) | Position::ElementContent(_) => {
                let learned = self.grammar.learned_productions();
                let count = learned.len();
                match learned
                    .iter()
                    .rposition(|one| *one == LearnedProduction::Characters)
                {
                    Some(at) => self.write_first_part(count - 1 - at, count),
                    None => {
                        self.write_second_part(SecondPart::Characters)?;
                        self.grammar
                            .learn_production(LearnedProduction::Characters)?;
                    }
                }
                self.grammar.enter_content();
                self.write_untyped(name, value)
            }
            _ if is_space(value) => Ok(()),
            _ => Err(Cause::Misuse(
                "character data must be inside the root element",
            )),
        }
    }

    pub(super) fn encode_characters_of_schema(
        &mut self,
        state: u32,
        name: u32,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        let mut refused = None;
        let productions = self.grammar.schema.productions(state);
        let count = productions.len();
        // Character data are the last production, and a state has at most one of them.
        if let Some(production) = productions.last().copied()
            && let Some(datatype) = match production.terminal {
                Terminal::Characters(datatype) => Some(datatype),
                Terminal::Untyped => Some(NONE),
                _ => None,
            }
        {
            let mut ready = PreparedValue::NONE;
            if self.prepare(datatype, value, &mut ready) {
                let bits = self.grammar.first_part(state).bits;
                self.writer.bits(count as u32 - 1, bits);
                self.grammar.move_to(production.next);
                return self.write_or_enqueue(name, datatype, &ready);
            }
            refused = Some(datatype);
        }
        if self.has_second_part(SecondPart::Characters) {
            self.write_second_part(SecondPart::Characters)?;
            self.grammar.enter_undeclared_content();
            return self.write_untyped(name, value);
        }
        match refused {
            Some(datatype) => Err(self.not_typed(datatype, value)),
            // White space between elements is insignificant to the schema.
            None if is_space(value) => Ok(()),
            None => Err(self.not_allowed(SecondPart::Characters)),
        }
    }

    pub(super) fn not_typed(&self, datatype: u32, value: &Value<'_>) -> Cause {
        let schema = &self.grammar.schema;
        let known = schema.datatypes.get(datatype as usize);
        let name = known.filter(|known| known.name != NONE);
        Cause::NotTyped {
            value: truncated(&value.to_string()),
            datatype: match name {
                Some(known) => schema.local(known.name).into(),
                None => known.map_or_else(String::new, |known| {
                    truncated(&alloc::format!("{:?}", known.representation))
                }),
            },
        }
    }

    // -- namespaces ---------------------------------------------------------------------------

    #[inline(never)]
    pub(super) fn encode_namespace(&mut self, prefix: &str, namespace: &str) -> Result<(), Cause> {
        let depth = self.grammar.stack.len();
        if depth == 1 {
            return Err(Cause::Misuse(
                "a namespace declaration must follow the start of an element",
            ));
        }
        self.scope.push((depth, prefix.into(), namespace.into()));
        if !self.has_second_part(SecondPart::Namespace) {
            return Ok(());
        }
        self.write_second_part(SecondPart::Namespace)?;
        let uri = self.write_uri(namespace)?;
        let known = self.grammar.names.find_prefix(uri, prefix);
        let bits = width(u64::from(self.grammar.names.prefix_count(uri)) + 1);
        self.writer.bits(known.map_or(0, |at| at + 1), bits);
        if known.is_none() {
            self.grammar.names.add_prefix(uri, prefix)?;
            self.write_string(prefix);
        }
        let of_element = self.is_element_prefix(uri, prefix);
        self.writer.boolean(of_element);
        Ok(())
    }

    /// Returns true if the declaration binds the prefix of the open element itself.
    pub(super) fn is_element_prefix(&self, uri: u32, prefix: &str) -> bool {
        let Grammar { names, schema, .. } = &self.grammar;
        let name = self.grammar.top().name;
        names.uri_of(schema, name) == uri && self.element_prefix == prefix
    }

    // -- names --------------------------------------------------------------------------------

    /// Looks up a name in the string tables.
    pub(super) fn find_name(&self, name: &Name<'_>) -> Option<u32> {
        let Grammar { names, schema, .. } = &self.grammar;
        let uri = names.find_uri(schema, name.namespace)?;
        names.find(schema, uri, name.local)
    }

    pub(super) fn write_uri(&mut self, namespace: &str) -> Result<u32, Cause> {
        let Grammar { names, schema, .. } = &mut self.grammar;
        let count = names.uri_count(schema);
        let bits = width(u64::from(count) + 1);
        match names.find_uri(schema, namespace) {
            Some(uri) => {
                self.writer.bits(uri + 1, bits);
                Ok(uri)
            }
            None => {
                self.writer.bits(0, bits);
                let uri = names.add_uri(schema, namespace)?;
                self.write_string(namespace);
                Ok(uri)
            }
        }
    }

    pub(super) fn write_name(&mut self, name: &Name<'_>) -> Result<u32, Cause> {
        let uri = self.write_uri(name.namespace)?;
        self.write_local_name(uri, name.local)
    }

    pub(super) fn write_local_name(&mut self, uri: u32, local: &str) -> Result<u32, Cause> {
        let Grammar { names, schema, .. } = &mut self.grammar;
        if let Some(name) = names.find(schema, uri, local) {
            let count = names.local_count(schema, uri);
            self.writer.unsigned(0);
            let identifier = names.local_identifier(schema, name);
            self.writer.bits(identifier, width(u64::from(count)));
            return Ok(name);
        }
        self.writer.unsigned(local.chars().count() as u64 + 1);
        self.writer.characters(local);
        names.add(schema, uri, local)
    }

    /// Writes the prefix of a name if prefixes are preserved. An unknown prefix is the one that a
    /// following declaration binds (7.1.7).
    pub(super) fn write_prefix(&mut self, name: u32, prefix: Option<&str>) -> Result<(), Cause> {
        if !self.grammar.options.preserve.prefixes {
            return Ok(());
        }
        self.element_prefix.clear();
        self.element_prefix.push_str(prefix.unwrap_or_default());
        let Grammar { names, schema, .. } = &self.grammar;
        let uri = names.uri_of(schema, name);
        let count = names.prefix_count(uri);
        let identifier = names.find_prefix(uri, prefix.unwrap_or_default());
        let bits = width(u64::from(count));
        self.writer.bits(identifier.unwrap_or(0), bits);
        Ok(())
    }

    // -- values -------------------------------------------------------------------------------

    /// Prepares a value for a datatype, or as a string for [`NONE`]. Returns false if the datatype
    /// cannot represent it.
    ///
    /// The result is written in place, into the caller's variable: it is large, and a copy would be
    /// loaded in other widths than it was stored in, which stalls the processor.
    #[inline]
    pub(super) fn prepare<'v>(
        &mut self,
        datatype: u32,
        value: &Value<'v>,
        ready: &mut PreparedValue<'v>,
    ) -> bool {
        if datatype != NONE
            && datatype::prepare_typed(self.grammar.representation(datatype), value, ready)
        {
            return true;
        }
        self.prepare_lexical(datatype, value, ready)
    }

    /// Prepares a value from its lexical form.
    fn prepare_lexical<'v>(
        &mut self,
        datatype: u32,
        value: &Value<'v>,
        ready: &mut PreparedValue<'v>,
    ) -> bool {
        let Self {
            grammar, scratch, ..
        } = self;
        scratch.octets.clear();
        if let Value::Text(text) | Value::Lexical(text) = value {
            if datatype == NONE {
                *ready = PreparedValue::Text(text);
                return true;
            }
            return datatype::prepare(grammar, datatype, text, scratch, ready);
        }
        let mut text = core::mem::take(&mut scratch.text);
        text.clear();
        value.write_lexical(&mut text);
        let mut unused = PreparedValue::NONE;
        let fits =
            datatype == NONE || datatype::prepare(grammar, datatype, &text, scratch, &mut unused);
        scratch.text = text;
        *ready = PreparedValue::Lexical(datatype);
        fits
    }

    pub(super) fn write_untyped(&mut self, name: u32, value: &Value<'_>) -> Result<(), Cause> {
        let mut ready = PreparedValue::NONE;
        match self.prepare(NONE, value, &mut ready) {
            true => self.write_or_enqueue(name, NONE, &ready),
            false => Err(Cause::Misuse("a value could not be encoded as a string")),
        }
    }

    /// Writes the value of an event, or adds it to its channel.
    #[inline]
    pub(super) fn write_or_enqueue(
        &mut self,
        name: u32,
        datatype: u32,
        ready: &PreparedValue<'_>,
    ) -> Result<(), Cause> {
        if self.grammar.options.channels() {
            self.enqueue(name, datatype, ready);
            return self.end_full_block();
        }
        self.write_value(name, ready)
    }

    /// Writes a value.
    #[inline]
    pub(super) fn write_value(
        &mut self,
        name: u32,
        ready: &PreparedValue<'_>,
    ) -> Result<(), Cause> {
        match ready {
            PreparedValue::Text(text) => self.write_string_value(name, text, None),
            PreparedValue::Restricted(set, text) => self.write_string_value(name, text, Some(*set)),
            PreparedValue::List(datatype, text, count) => {
                self.write_list(name, *datatype, text, *count)
            }
            PreparedValue::Lexical(datatype) => {
                let text = core::mem::take(&mut self.scratch.text);
                let written = self.write_text(name, *datatype, &text);
                self.scratch.text = text;
                written
            }
            plain => {
                let Self {
                    writer, scratch, ..
                } = self;
                write_prepared(writer, plain, scratch, self.canonical);
                Ok(())
            }
        }
    }

    /// Writes a value from a lexical form that its datatype can represent.
    pub(super) fn write_text(&mut self, name: u32, datatype: u32, text: &str) -> Result<(), Cause> {
        let mut ready = PreparedValue::NONE;
        match self.prepare_lexical(datatype, &Value::Text(text), &mut ready) {
            true => self.write_value(name, &ready),
            false => Err(Cause::Misuse("a stored value no longer fits its datatype")),
        }
    }

    fn write_list(
        &mut self,
        name: u32,
        datatype: u32,
        text: &str,
        count: u64,
    ) -> Result<(), Cause> {
        self.writer.unsigned(count);
        datatype::list_items(text).try_for_each(|word| self.write_text(name, datatype, word))
    }

    /// Writes a string using the value partitions (7.3.3).
    pub(super) fn write_string_value(
        &mut self,
        name: u32,
        text: &str,
        set: Option<u32>,
    ) -> Result<(), Cause> {
        let length = match text.is_ascii() {
            true => text.len(),
            false => text.chars().count(),
        };
        let (first, identifier, count) = match self.values.find_or_add(name, text, length)? {
            Some(ValueHit::Local { identifier, count }) => (0, identifier, count),
            Some(ValueHit::Global { identifier, count }) => (1, identifier, count),
            None => {
                self.writer.unsigned(length as u64 + 2);
                match set {
                    None => self.writer.characters(text),
                    Some(set) => {
                        let set = &self.grammar.schema.character_sets[set as usize];
                        write_restricted(&mut self.writer, set, text);
                    }
                }
                return Ok(());
            }
        };
        self.writer.unsigned(first);
        self.writer.bits(identifier, width(u64::from(count)));
        Ok(())
    }

    /// Writes a string that does not use the string table.
    pub(super) fn write_string(&mut self, text: &str) {
        self.writer.unsigned(text.chars().count() as u64);
        self.writer.characters(text);
    }

    // -- self-contained elements --------------------------------------------------------------

    #[inline(never)]
    pub(super) fn begin_self_contained(&mut self) -> Result<(), Cause> {
        self.write_second_part(SecondPart::SelfContained)?;
        self.writer.align();
        let Grammar { names, schema, .. } = &self.grammar;
        let name = self.grammar.top().name;
        let namespace = names.uri(schema, names.uri_of(schema, name)).to_string();
        let local = names.local(schema, name).to_string();
        let prefix = self.element_prefix.clone();
        let suspended = SuspendedBody {
            grammar: self.grammar.suspend(self.limits.table_bytes),
            values: core::mem::take(&mut self.values),
        };
        self.suspended.push(suspended);
        self.reset_values();
        self.encode_start_element(&Name {
            namespace: &namespace,
            local: &local,
            prefix: Some(&prefix),
        })
    }

    pub(super) fn end_self_contained(&mut self) -> Result<(), Cause> {
        let roots = self.root_count();
        self.write_first_part(roots + 1, roots + 2);
        self.writer.align();
        if let Some(suspended) = self.suspended.pop() {
            self.grammar.resume(suspended.grammar);
            self.values = suspended.values;
            self.close_element();
        }
        if self.grammar.stack.len() == 1 && !self.suspended.is_empty() {
            return self.end_self_contained();
        }
        Ok(())
    }
}

/// Writes a prepared value that does not use the string table, normalized in a canonical stream.
pub(super) fn write_prepared(
    writer: &mut BitWriter,
    plain: &PreparedValue<'_>,
    scratch: &datatype::Scratch,
    canonical: Option<super::CanonicalOptions>,
) {
    match canonical {
        None => datatype::write(writer, plain, scratch),
        Some(canonical) => datatype::write(writer, &normalized(*plain, canonical), scratch),
    }
}

pub(super) fn is_space(value: &Value<'_>) -> bool {
    matches!(value, Value::Text(text) | Value::Lexical(text) if collapse(text).is_empty())
}

/// Writes the characters of a restricted set (7.1.10.1).
fn write_restricted(writer: &mut BitWriter, set: &[char], text: &str) {
    let bits = width(set.len() as u64 + 1);
    for character in text.chars() {
        match set.binary_search(&character) {
            Ok(at) => writer.bits(at as u32, bits),
            Err(_) => {
                writer.bits(set.len() as u32, bits);
                writer.unsigned(u64::from(u32::from(character)));
            }
        }
    }
}
