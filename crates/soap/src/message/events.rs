//! Parts of a message from a source of events, such as a tree or an EXI reader.

use std::borrow::Cow;
use std::fmt::Write as _;

use chappe_xml::{Error, Event, EventSource, Name, Reason, Str, Value};

use super::reader::{INSTANCE, NIL, Part, ReadError, is_true};

/// Reads the parts of an element from events, as [`Pull`](chappe_xml::text::Pull) does from text.
pub(super) struct EventParts<'s> {
    source: &'s mut dyn EventSource,
    /// The name of the last start.
    name: Name,
    /// The last value, if its source gives it in pieces.
    text: String,
    /// The event after the attributes that were asked for.
    pending: Option<Event<'static>>,
    /// Attributes without namespace that [`EventParts::is_nil`] has passed.
    passed: Vec<(Str, String)>,
}

/// The next event: a pending one first.
fn next<'e>(
    source: &'e mut dyn EventSource,
    pending: &mut Option<Event<'static>>,
) -> Result<Option<Event<'e>>, Error> {
    match pending.take() {
        Some(event) => Ok(Some(event)),
        None => source.next_event(),
    }
}

impl<'s> EventParts<'s> {
    pub(super) fn new(source: &'s mut dyn EventSource) -> Self {
        Self {
            source,
            name: Name::default(),
            text: String::new(),
            pending: None,
            passed: Vec::new(),
        }
    }

    /// Right after a start: whether the element is nil.
    pub(super) fn is_nil(&mut self) -> Result<bool, ReadError> {
        let mut passed = Vec::new();
        let mut is_nil = false;
        self.each_attribute(&mut |name, value| {
            match name.is(INSTANCE, NIL) {
                true => is_nil = is_true(value),
                false if name.namespace.is_empty() => {
                    passed.push((name.local.clone(), value.to_owned()))
                }
                false => {}
            }
            Ok(())
        })?;
        self.passed = passed;
        Ok(is_nil)
    }

    /// Right after a start: its attributes without namespace, by name.
    pub(super) fn attributes(
        &mut self,
        take: &mut dyn FnMut(&str, &str) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        for (local, value) in std::mem::take(&mut self.passed) {
            take(&local, &value)?;
        }
        self.each_attribute(&mut |name, value| match name.namespace.is_empty() {
            true => take(&name.local, value),
            false => Ok(()),
        })
    }

    fn each_attribute(
        &mut self,
        take: &mut dyn FnMut(&Name, &str) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        loop {
            self.pending = match next(self.source, &mut self.pending)? {
                Some(Event::Namespace { .. }) => continue,
                Some(Event::Attribute(name, value)) => {
                    take(&name, &value.lexical())?;
                    continue;
                }
                Some(Event::StartElement(name)) => Some(Event::StartElement(name)),
                Some(Event::Text(value)) => {
                    let text = value.into_lexical().into_owned();
                    Some(Event::Text(Value::Text(text.into())))
                }
                Some(Event::EndElement) => Some(Event::EndElement),
                None => None,
            };
            return Ok(());
        }
    }

    pub(super) fn next_part(&mut self) -> Result<Option<Part<'_>>, Error> {
        self.passed.clear();
        loop {
            match next(self.source, &mut self.pending)? {
                Some(Event::StartElement(name)) => self.name = name,
                Some(Event::EndElement) => return Ok(Some(Part::End)),
                Some(Event::Text(value)) => {
                    self.text.clear();
                    // Writing to a string cannot fail.
                    let _ = write!(self.text, "{value}");
                    return Ok(Some(Part::Text(Cow::Borrowed(&self.text))));
                }
                Some(Event::Attribute(..) | Event::Namespace { .. }) => continue,
                None => return Ok(None),
            }
            return Ok(Some(Part::Start {
                namespace: &self.name.namespace,
                local: &self.name.local,
            }));
        }
    }

    pub(super) fn name(&self) -> Name {
        self.name.clone()
    }

    /// The rest of the open element as one value, and its end; `None` if it has a child.
    pub(super) fn value(&mut self) -> Result<Option<Cow<'_, str>>, Error> {
        self.text.clear();
        self.passed.clear();
        loop {
            match next(self.source, &mut self.pending)? {
                Some(Event::Text(Value::Text(text))) => self.text.push_str(&text),
                Some(Event::Text(value)) => {
                    // Writing to a string cannot fail.
                    let _ = write!(self.text, "{value}");
                }
                Some(Event::EndElement) => return Ok(Some(Cow::Borrowed(&self.text))),
                Some(Event::StartElement(_)) => return Ok(None),
                Some(Event::Attribute(..) | Event::Namespace { .. }) => {}
                None => {
                    let (offset, reason) = (0, Reason::Truncated);
                    return Err(Error { offset, reason });
                }
            }
        }
    }
}
