//! Events to event codes and content items.

use alloc::string::{String, ToString};

use super::Encoder;
use super::canonical::normalized;
use crate::bits::{BitWriter, width};
use crate::datatype::{self, Ready, Representations};
use crate::error::Cause;
use crate::event::{Event, Name};
use crate::grammar::{At, Grammar, Learnt, Second, State};
use crate::schema::{NONE, Production, Schema, Terminal};
use crate::tables::{Hit, Values};
use crate::value::{Value, collapse};

/// How well a production fits an event: by name, by namespace, by a wildcard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    No,
    Fair,
    Good,
    Best,
}

/// What is put aside while a self-contained element is written.
#[derive(Debug)]
pub(super) struct Saved {
    grammar: State,
    values: Values,
}

pub(super) fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

impl Encoder {
    pub(super) fn ended(&self) -> bool {
        self.grammar.top().at == At::Ended
    }

    pub(super) fn finished(&mut self) -> &[u8] {
        match self.grammar.options.channels() {
            true => &self.block.out,
            false => self.writer.finish(),
        }
    }

    #[inline]
    pub(super) fn take(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        match event {
            Event::StartDocument => return Ok(()),
            Event::Attribute(name, value) => return self.buffer(name, value),
            Event::Namespace {
                prefix, namespace, ..
            } => return self.namespace(prefix, namespace),
            Event::SelfContained => return self.self_contained(),
            _ => {}
        }
        if self.grammar.profile.is_some() {
            if self.ignores(event) {
                return Ok(());
            }
            self.limit_learning()?;
        }
        if !self.attributes.is_empty() {
            self.attributes()?;
        }
        match event {
            Event::StartElement(name) => self.start_element(name),
            Event::EndElement => self.end_element(),
            Event::Characters(Value::Text("")) if !self.expects_characters() => Ok(()),
            Event::Characters(value) => self.characters(value),
            _ => self.rare(event),
        }
    }

    /// Whether the options do not preserve an event.
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
    fn rare(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        let preserve = self.grammar.options.preserve;
        match *event {
            Event::EndDocument => self.end_document(),
            Event::Comment(text) if preserve.comments => {
                self.misc(Second::Comment)?;
                self.plain(text);
                Ok(())
            }
            Event::ProcessingInstruction { target, text } if preserve.pis => {
                self.misc(Second::ProcessingInstruction)?;
                self.plain(target);
                self.plain(text);
                Ok(())
            }
            Event::DocType {
                name,
                public,
                system,
                text,
            } if preserve.dtd => {
                self.undeclared(Second::DocType)?;
                for text in [name, public, system, text] {
                    self.plain(text);
                }
                Ok(())
            }
            Event::EntityReference(name) if preserve.dtd => {
                self.undeclared(Second::EntityReference)?;
                self.grammar.undeclared_content();
                self.plain(name);
                Ok(())
            }
            Event::EntityReference(_) => Err(Cause::Misuse(
                "an entity reference is kept only with Preserve.dtd",
            )),
            _ => Ok(()),
        }
    }

    // -- event codes --------------------------------------------------------------------------

    /// Writes the first part of an event code.
    #[inline]
    pub(super) fn code(&mut self, code: usize, count: usize) {
        let bits = match self.grammar.top().at {
            At::Schema(state) => self.grammar.first_part(state).bits,
            _ => width((count + self.grammar.seconds().escapes()) as u64),
        };
        self.writer.bits(code as u32, bits);
    }

    /// How many first parts there are in front of the one that leads to the second.
    pub(super) fn first_parts(&self) -> usize {
        let schema = &self.grammar.schema;
        match self.grammar.top().at {
            At::Document => schema.global_elements.len() + 1,
            At::DocumentEnd => 1,
            At::Fragment => self.roots() + 2,
            At::Ended => 0,
            At::Schema(state) => schema.states[state as usize].count as usize,
            At::StartTag(_) | At::Content(_) => self.grammar.learnt().len(),
        }
    }

    pub(super) fn roots(&self) -> usize {
        match self.grammar.schema.informed {
            true => self.grammar.schema.fragment_elements.len(),
            false => self.grammar.fragment.len(),
        }
    }

    /// The production of a state that fits best, the first of them, with its event code.
    pub(super) fn production(
        &self,
        state: u32,
        fit: impl Fn(Terminal, &Schema) -> Found,
    ) -> Option<(usize, Production)> {
        let schema = &*self.grammar.schema;
        let (mut best, mut found) = (Found::No, None);
        for (at, production) in schema.productions(state).iter().enumerate() {
            let fit = fit(production.terminal, schema);
            if fit > best {
                (best, found) = (fit, Some((at, *production)));
                if best == Found::Best {
                    break;
                }
            }
        }
        found
    }

    /// Whether the present place has this second part.
    pub(super) fn has(&self, second: Second) -> bool {
        self.grammar.seconds().code(second).is_some()
    }

    /// Writes an event code of two parts; an error when the place has none such.
    pub(super) fn undeclared(&mut self, second: Second) -> Result<(), Cause> {
        let seconds = self.grammar.seconds();
        let (found, bits) = (seconds.code(second), seconds.width);
        let Some(code) = found else {
            return Err(self.not_allowed(second));
        };
        let count = self.first_parts();
        self.code(count, count);
        self.writer.bits(code, bits);
        Ok(())
    }

    pub(super) fn not_allowed(&self, second: Second) -> Cause {
        if self.grammar.stack.len() == 1 {
            return Cause::Misuse("this event cannot stand outside the root element");
        }
        Cause::NotAllowed(match second {
            Second::End => "the end of this element".into(),
            Second::Characters => "character data".into(),
            Second::XsiType => "xsi:type".into(),
            Second::XsiNil => "xsi:nil".into(),
            other => alloc::format!("{other:?}"),
        })
    }

    /// A comment or processing instruction: its event code, of three parts where both are kept.
    pub(super) fn misc(&mut self, second: Second) -> Result<(), Cause> {
        if self.has(Second::CommentOrInstruction) {
            self.undeclared(Second::CommentOrInstruction)?;
            let third = u32::from(second == Second::ProcessingInstruction);
            self.writer.bits(third, 1);
        } else {
            self.undeclared(second)?;
        }
        self.grammar.undeclared_content();
        Ok(())
    }

    // -- document -----------------------------------------------------------------------------

    pub(super) fn end_document(&mut self) -> Result<(), Cause> {
        match self.grammar.top().at {
            At::DocumentEnd => self.code(0, 1),
            At::Fragment => {
                let roots = self.roots();
                self.code(roots + 1, roots + 2);
            }
            _ => return Err(Cause::Misuse("the document ends before its root element")),
        }
        self.grammar.top_mut().at = At::Ended;
        if self.grammar.options.channels() {
            self.end_block()?;
        }
        Ok(())
    }

    // -- elements -----------------------------------------------------------------------------

    pub(super) fn start_element(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        match self.grammar.top().at {
            At::Schema(state) => self.child_of_schema(state, name)?,
            At::StartTag(_) | At::Content(_) => self.child_of_built_in(name)?,
            At::Document => self.root(name)?,
            At::Fragment => self.fragment_root(name)?,
            At::DocumentEnd | At::Ended => {
                return Err(Cause::Misuse("a document has one root element"));
            }
        }
        match self.grammar.options.preserve.prefixes {
            true => self.prefix(self.grammar.top().name, name.prefix),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn root(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        let schema = &self.grammar.schema;
        let count = schema.global_elements.len() + 1;
        let known = self.find(name);
        let declared = known.and_then(|known| Some((known, schema.names.get(known as usize)?)));
        let declared = declared.filter(|(_, named)| named.element != NONE);
        let Some((known, named)) = declared else {
            self.code(count - 1, count);
            self.grammar.top_mut().at = At::DocumentEnd;
            let name = self.name(name)?;
            return self.grammar.enter_global(name);
        };
        let element = named.element;
        let code = schema.global_code(element);
        self.code(code, count);
        self.grammar.top_mut().at = At::DocumentEnd;
        self.grammar.enter_declared(known, element)
    }

    #[inline(never)]
    fn fragment_root(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        let schema = self.grammar.schema.clone();
        let known = self.find(name);
        let roots = self.roots();
        if schema.informed {
            let mut elements = schema.fragment_elements.iter();
            if let Some(at) = elements.position(|(other, _)| Some(*other) == known) {
                self.code(at, roots + 2);
                let (name, element) = schema.fragment_elements[at];
                return self.grammar.enter_declared(name, element);
            }
        } else if let Some(known) = known {
            let found = self
                .grammar
                .fragment
                .iter()
                .rposition(|name| *name == known);
            if let Some(at) = found {
                self.code(roots - 1 - at, roots + 2);
                return self.grammar.enter_global(known);
            }
        }
        self.code(roots, roots + 2);
        let name = self.name(name)?;
        if !schema.informed {
            self.grammar.learn_root(name)?;
        }
        self.grammar.enter_global(name)
    }

    fn child_of_schema(&mut self, state: u32, name: &Name<'_>) -> Result<(), Cause> {
        let found = self.production(state, |terminal, schema| match terminal {
            Terminal::Element { name: known, .. } if schema.is(known, name) => Found::Best,
            Terminal::ElementIn(uri) if schema.uri(uri) == name.namespace => Found::Good,
            Terminal::ElementAny => Found::Fair,
            _ => Found::No,
        });
        let Some((at, production)) = found else {
            return self.undeclared_child(name);
        };
        self.writer
            .bits(at as u32, self.grammar.first_part(state).bits);
        self.grammar.follow(production.next);
        let name = match production.terminal {
            Terminal::Element { name, element } => {
                return self.grammar.enter_declared(name, element);
            }
            Terminal::ElementIn(uri) => self.local_name(uri, name.local)?,
            _ => self.name(name)?,
        };
        self.grammar.enter_global(name)
    }

    #[cold]
    fn undeclared_child(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        if self.grammar.options.strict {
            let mut text = String::from("element ");
            text.push_str(&shortened(name.local));
            return Err(Cause::NotAllowed(text));
        }
        self.undeclared(Second::ElementAny)?;
        self.grammar.undeclared_content();
        let name = self.name(name)?;
        self.grammar.enter_global(name)
    }

    fn child_of_built_in(&mut self, name: &Name<'_>) -> Result<(), Cause> {
        if let Some(known) = self.find(name) {
            let learnt = self.grammar.learnt();
            let found = learnt
                .iter()
                .rposition(|one| *one == Learnt::Element(known));
            if let Some(at) = found {
                let count = learnt.len();
                self.code(count - 1 - at, count);
                self.grammar.content_begins();
                return self.grammar.enter_global(known);
            }
        }
        self.undeclared(Second::ElementAny)?;
        let name = self.name(name)?;
        self.grammar.learn(Learnt::Element(name))?;
        self.grammar.content_begins();
        self.grammar.enter_global(name)
    }

    pub(super) fn end_element(&mut self) -> Result<(), Cause> {
        match self.grammar.top().at {
            At::Schema(state) => {
                if !self.end_of_schema(state)? {
                    // An empty value is no event of the caller's, but one of the schema.
                    if !self.expects_characters() {
                        return Err(self.not_allowed(Second::End));
                    }
                    self.characters(&Value::Text(""))?;
                    let ended = match self.grammar.top().at {
                        At::Schema(state) => self.end_of_schema(state)?,
                        _ => false,
                    };
                    if !ended {
                        return Err(self.not_allowed(Second::End));
                    }
                }
            }
            At::StartTag(_) | At::Content(_) => {
                let learnt = self.grammar.learnt();
                let count = learnt.len();
                match learnt.iter().rposition(|one| *one == Learnt::End) {
                    Some(at) => self.code(count - 1 - at, count),
                    None => {
                        self.undeclared(Second::End)?;
                        self.grammar.learn(Learnt::End)?;
                    }
                }
            }
            _ => return Err(Cause::Misuse("no element is open")),
        }
        self.leave();
        if self.grammar.stack.len() == 1 && !self.saved.is_empty() {
            self.release()?;
        }
        Ok(())
    }

    /// The event code of the end of an element in a state of the schema; false when it has none.
    fn end_of_schema(&mut self, state: u32) -> Result<bool, Cause> {
        let productions = self.grammar.schema.productions(state);
        let count = productions.len();
        let mut last = productions.iter();
        match last.rposition(|one| one.terminal == Terminal::End) {
            Some(at) => self.code(at, count),
            None if self.has(Second::End) => self.undeclared(Second::End)?,
            None => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn leave(&mut self) {
        self.grammar.stack.pop();
        let depth = self.grammar.stack.len();
        while self.scope.last().is_some_and(|(bound, ..)| *bound > depth) {
            self.scope.pop();
        }
    }

    /// Whether a schema's state takes a typed value, even an empty one.
    pub(super) fn expects_characters(&self) -> bool {
        let At::Schema(state) = self.grammar.top().at else {
            return false;
        };
        let productions = self.grammar.schema.productions(state);
        // Character data come last.
        let last = productions.last().map(|last| last.terminal);
        matches!(last, Some(Terminal::Characters(_)))
    }

    // -- character data -----------------------------------------------------------------------

    pub(super) fn characters(&mut self, value: &Value<'_>) -> Result<(), Cause> {
        let name = self.grammar.top().name;
        match self.grammar.top().at {
            At::Schema(state) => self.characters_of_schema(state, name, value),
            At::StartTag(_) | At::Content(_) => {
                let learnt = self.grammar.learnt();
                let count = learnt.len();
                match learnt.iter().rposition(|one| *one == Learnt::Characters) {
                    Some(at) => self.code(count - 1 - at, count),
                    None => {
                        self.undeclared(Second::Characters)?;
                        self.grammar.learn(Learnt::Characters)?;
                    }
                }
                self.grammar.content_begins();
                self.untyped(name, value)
            }
            _ if is_space(value) => Ok(()),
            _ => Err(Cause::Misuse("character data outside the root element")),
        }
    }

    pub(super) fn characters_of_schema(
        &mut self,
        state: u32,
        name: u32,
        value: &Value<'_>,
    ) -> Result<(), Cause> {
        let mut refused = None;
        let productions = self.grammar.schema.productions(state);
        let count = productions.len();
        // Character data come last, and there is one production of them at most.
        if let Some(production) = productions.last().copied()
            && let Some(datatype) = match production.terminal {
                Terminal::Characters(datatype) => Some(datatype),
                Terminal::Untyped => Some(NONE),
                _ => None,
            }
        {
            let mut ready = Ready::NONE;
            if self.ready(datatype, value, &mut ready) {
                let bits = self.grammar.first_part(state).bits;
                self.writer.bits(count as u32 - 1, bits);
                self.grammar.follow(production.next);
                return self.put(name, datatype, &ready);
            }
            refused = Some(datatype);
        }
        if self.has(Second::Characters) {
            self.undeclared(Second::Characters)?;
            self.grammar.undeclared_content();
            return self.untyped(name, value);
        }
        match refused {
            Some(datatype) => Err(self.not_typed(datatype, value)),
            // White space between elements means nothing to the schema.
            None if is_space(value) => Ok(()),
            None => Err(self.not_allowed(Second::Characters)),
        }
    }

    pub(super) fn not_typed(&self, datatype: u32, value: &Value<'_>) -> Cause {
        let schema = &self.grammar.schema;
        let known = schema.datatypes.get(datatype as usize);
        let name = known.filter(|known| known.name != NONE);
        Cause::NotTyped {
            value: shortened(&value.to_string()),
            datatype: match name {
                Some(known) => schema.local(known.name).into(),
                None => known.map_or_else(String::new, |known| {
                    shortened(&alloc::format!("{:?}", known.representation))
                }),
            },
        }
    }

    // -- namespaces ---------------------------------------------------------------------------

    #[inline(never)]
    pub(super) fn namespace(&mut self, prefix: &str, namespace: &str) -> Result<(), Cause> {
        let depth = self.grammar.stack.len();
        if depth == 1 {
            return Err(Cause::Misuse("a namespace declaration outside an element"));
        }
        self.scope.push((depth, prefix.into(), namespace.into()));
        if !self.has(Second::Namespace) {
            return Ok(());
        }
        self.undeclared(Second::Namespace)?;
        let uri = self.uri(namespace)?;
        let known = self.grammar.names.find_prefix(uri, prefix);
        let bits = width(u64::from(self.grammar.names.prefix_count(uri)) + 1);
        self.writer.bits(known.map_or(0, |at| at + 1), bits);
        if known.is_none() {
            self.grammar.names.add_prefix(uri, prefix)?;
            self.plain(prefix);
        }
        let of_element = self.of_element(uri, prefix);
        self.writer.boolean(of_element);
        Ok(())
    }

    /// Whether a declaration is that of the open element's own prefix.
    pub(super) fn of_element(&self, uri: u32, prefix: &str) -> bool {
        let Grammar { names, schema, .. } = &self.grammar;
        let name = self.grammar.top().name;
        names.uri_of(schema, name) == uri && self.lexical == prefix
    }

    // -- names --------------------------------------------------------------------------------

    /// The name, if the tables have it.
    pub(super) fn find(&self, name: &Name<'_>) -> Option<u32> {
        let Grammar { names, schema, .. } = &self.grammar;
        let uri = names.find_uri(schema, name.namespace)?;
        names.find(schema, uri, name.local)
    }

    pub(super) fn uri(&mut self, namespace: &str) -> Result<u32, Cause> {
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
                self.plain(namespace);
                Ok(uri)
            }
        }
    }

    pub(super) fn name(&mut self, name: &Name<'_>) -> Result<u32, Cause> {
        let uri = self.uri(name.namespace)?;
        self.local_name(uri, name.local)
    }

    pub(super) fn local_name(&mut self, uri: u32, local: &str) -> Result<u32, Cause> {
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

    /// The prefix of a name, where prefixes are preserved. One that is not known is that of a
    /// declaration which follows (7.1.7).
    pub(super) fn prefix(&mut self, name: u32, prefix: Option<&str>) -> Result<(), Cause> {
        if !self.grammar.options.preserve.prefixes {
            return Ok(());
        }
        self.lexical.clear();
        self.lexical.push_str(prefix.unwrap_or_default());
        let Grammar { names, schema, .. } = &self.grammar;
        let uri = names.uri_of(schema, name);
        let count = names.prefix_count(uri);
        let identifier = names.find_prefix(uri, prefix.unwrap_or_default());
        let bits = width(u64::from(count));
        self.writer.bits(identifier.unwrap_or(0), bits);
        Ok(())
    }

    // -- values -------------------------------------------------------------------------------

    /// Makes a value ready for a datatype, or as a string for [`NONE`]; false: it does not fit.
    ///
    /// What is ready is put where the caller has room for it, and nowhere else: it is large, and a copy
    /// is read in other pieces than it was written in, for which a processor waits.
    #[inline]
    pub(super) fn ready<'v>(
        &mut self,
        datatype: u32,
        value: &Value<'v>,
        ready: &mut Ready<'v>,
    ) -> bool {
        if datatype != NONE
            && datatype::ready_typed(self.grammar.representation(datatype), value, ready)
        {
            return true;
        }
        self.ready_lexical(datatype, value, ready)
    }

    /// The same by the lexical form.
    fn ready_lexical<'v>(
        &mut self,
        datatype: u32,
        value: &Value<'v>,
        ready: &mut Ready<'v>,
    ) -> bool {
        let Self {
            grammar, scratch, ..
        } = self;
        scratch.octets.clear();
        if let Value::Text(text) | Value::Lexical(text) = value {
            if datatype == NONE {
                *ready = Ready::Text(text);
                return true;
            }
            return datatype::ready(grammar, datatype, text, scratch, ready);
        }
        let mut text = core::mem::take(&mut scratch.text);
        text.clear();
        value.write_lexical(&mut text);
        let mut unused = Ready::NONE;
        let fits =
            datatype == NONE || datatype::ready(grammar, datatype, &text, scratch, &mut unused);
        scratch.text = text;
        *ready = Ready::Lexical(datatype);
        fits
    }

    pub(super) fn untyped(&mut self, name: u32, value: &Value<'_>) -> Result<(), Cause> {
        let mut ready = Ready::NONE;
        match self.ready(NONE, value, &mut ready) {
            true => self.put(name, NONE, &ready),
            false => Err(Cause::Misuse("a string that is none")),
        }
    }

    /// Writes the value of an event, or lets it wait for its channel.
    #[inline]
    pub(super) fn put(&mut self, name: u32, datatype: u32, ready: &Ready<'_>) -> Result<(), Cause> {
        if self.grammar.options.channels() {
            self.enqueue(name, datatype, ready);
            return self.end_full_block();
        }
        self.write(name, ready)
    }

    /// Writes a value.
    #[inline]
    pub(super) fn write(&mut self, name: u32, ready: &Ready<'_>) -> Result<(), Cause> {
        match ready {
            Ready::Text(text) => self.string(name, text, None),
            Ready::Restricted(set, text) => self.string(name, text, Some(*set)),
            Ready::List(datatype, text, count) => self.list(name, *datatype, text, *count),
            Ready::Lexical(datatype) => {
                let text = core::mem::take(&mut self.scratch.text);
                let written = self.write_text(name, *datatype, &text);
                self.scratch.text = text;
                written
            }
            plain => {
                let Self {
                    writer, scratch, ..
                } = self;
                write_plain(writer, plain, scratch, self.canonical);
                Ok(())
            }
        }
    }

    /// Writes a value by its lexical form, of which it is known that it fits.
    pub(super) fn write_text(&mut self, name: u32, datatype: u32, text: &str) -> Result<(), Cause> {
        let mut ready = Ready::NONE;
        match self.ready_lexical(datatype, &Value::Text(text), &mut ready) {
            true => self.write(name, &ready),
            false => Err(Cause::Misuse("a value that was ready is not")),
        }
    }

    fn list(&mut self, name: u32, datatype: u32, text: &str, count: u64) -> Result<(), Cause> {
        self.writer.unsigned(count);
        datatype::words(text).try_for_each(|word| self.write_text(name, datatype, word))
    }

    /// A string by the value partitions (7.3.3).
    pub(super) fn string(&mut self, name: u32, text: &str, set: Option<u32>) -> Result<(), Cause> {
        let length = match text.is_ascii() {
            true => text.len(),
            false => text.chars().count(),
        };
        let (first, identifier, count) = match self.values.find_or_add(name, text, length)? {
            Some(Hit::Local { identifier, count }) => (0, identifier, count),
            Some(Hit::Global { identifier, count }) => (1, identifier, count),
            None => {
                self.writer.unsigned(length as u64 + 2);
                match set {
                    None => self.writer.characters(text),
                    Some(set) => {
                        let set = &self.grammar.schema.character_sets[set as usize];
                        restricted(&mut self.writer, set, text);
                    }
                }
                return Ok(());
            }
        };
        self.writer.unsigned(first);
        self.writer.bits(identifier, width(u64::from(count)));
        Ok(())
    }

    /// A string that goes by no table.
    pub(super) fn plain(&mut self, text: &str) {
        self.writer.unsigned(text.chars().count() as u64);
        self.writer.characters(text);
    }

    // -- self-contained elements --------------------------------------------------------------

    #[inline(never)]
    pub(super) fn self_contained(&mut self) -> Result<(), Cause> {
        self.undeclared(Second::SelfContained)?;
        self.writer.align();
        let Grammar { names, schema, .. } = &self.grammar;
        let name = self.grammar.top().name;
        let namespace = names.uri(schema, names.uri_of(schema, name)).to_string();
        let local = names.local(schema, name).to_string();
        let prefix = self.lexical.clone();
        let saved = Saved {
            grammar: self.grammar.put_aside(self.limits.table_bytes),
            values: core::mem::take(&mut self.values),
        };
        self.saved.push(saved);
        self.reset_values();
        self.start_element(&Name {
            namespace: &namespace,
            local: &local,
            prefix: Some(&prefix),
        })
    }

    pub(super) fn release(&mut self) -> Result<(), Cause> {
        let roots = self.roots();
        self.code(roots + 1, roots + 2);
        self.writer.align();
        if let Some(saved) = self.saved.pop() {
            self.grammar.take_back(saved.grammar);
            self.values = saved.values;
            self.leave();
        }
        if self.grammar.stack.len() == 1 && !self.saved.is_empty() {
            return self.release();
        }
        Ok(())
    }
}

/// Writes what goes by no string table.
pub(super) fn write_plain(
    writer: &mut BitWriter,
    plain: &Ready<'_>,
    scratch: &datatype::Scratch,
    canonical: Option<super::Canonical>,
) {
    match canonical {
        None => datatype::write(writer, plain, scratch),
        Some(canonical) => datatype::write(writer, &normalized(*plain, canonical), scratch),
    }
}

pub(super) fn is_space(value: &Value<'_>) -> bool {
    matches!(value, Value::Text(text) | Value::Lexical(text) if collapse(text).is_empty())
}

/// Characters of a restricted set (7.1.10.1).
fn restricted(writer: &mut BitWriter, set: &[char], text: &str) {
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
