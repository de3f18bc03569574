//! Reading text XML as events.

use std::borrow::Cow;
use std::collections::VecDeque;

use quick_xml::Reader as QuickReader;
use quick_xml::errors::{Error as QuickError, IllFormedError};
use quick_xml::events::{BytesDecl, BytesStart, Event as QuickEvent};

use super::chars::with_line_ends;
use super::chars::{Attributes, is_char, is_ncname, is_space, referenced, split_qname};
use super::scope::Scope;
use crate::{Error, Event, EventSource, Limits, Name, Reason, Value};

/// Maximum characters of the sender's text in an error.
const SHOWN_MAX: usize = 256;

/// Reads one document from a slice. Comments and processing instructions are skipped.
///
/// quick-xml supplies the tokens. Names, namespaces, attributes and references are checked here,
/// because a document that two readers interpret differently can bypass every check. After an
/// error, every call returns the same error.
///
/// ```
/// use chappe_xml::{Event, EventSource, Limits, Name, text::Reader};
/// let mut reader = Reader::new(b"<a/>", Limits::default())?;
/// assert_eq!(reader.next_event()?, Some(Event::StartElement(Name::local("a"))));
/// assert_eq!(reader.next_event()?, Some(Event::EndElement));
/// assert_eq!(reader.next_event()?, None);
/// # Ok::<(), chappe_xml::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<'i> {
    reader: QuickReader<&'i [u8]>,
    limits: Limits,
    scope: Scope,
    depth: usize,
    events: usize,
    started: bool,
    /// True once any token was read.
    begun: bool,
    /// Events of the last start tag that were not returned yet.
    pending: VecDeque<Event<'i>>,
    failed: Option<Error>,
}

impl<'i> Reader<'i> {
    /// Creates a reader of `document` and checks its size and encoding.
    ///
    /// # Errors
    /// The document exceeds the limit or is not UTF-8.
    pub fn new(document: &'i [u8], limits: Limits) -> Result<Self, Error> {
        if document.len() > limits.bytes {
            return Err(limit(0, "bytes", limits.bytes));
        }
        let text = std::str::from_utf8(document)
            .map_err(|error| Error::at(error.valid_up_to() as u64, Reason::Encoding))?;
        if let Some(offset) = text.find(|c: char| !is_char(c)) {
            let reason = Reason::Malformed("the document contains a forbidden character".into());
            return Err(Error::at(offset as u64, reason));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.starts_with('\u{feff}') {
            return Err(Error::at(
                3,
                Reason::Malformed("text outside the root element".into()),
            ));
        }
        let mut reader = QuickReader::from_str(text);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        Ok(Self {
            reader,
            limits,
            scope: Scope::default(),
            depth: 0,
            events: 0,
            started: false,
            begun: false,
            pending: VecDeque::new(),
            failed: None,
        })
    }

    /// The byte offset after the markup or text of the last event, for errors of the caller's own. A
    /// byte order mark at the start of the document does not count.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.offset()
    }

    fn offset(&self) -> u64 {
        self.reader.buffer_position()
    }

    fn fail(&self, reason: Reason) -> Error {
        Error::at(self.offset(), reason)
    }

    fn count(&mut self, events: usize) -> Result<(), Error> {
        self.events += events;
        if self.events > self.limits.events {
            return Err(limit(self.offset(), "events", self.limits.events));
        }
        Ok(())
    }

    /// Queues the events of a start tag: start, declarations, attributes.
    fn start(&mut self, start: &BytesStart<'i>) -> Result<(), Error> {
        if self.depth == 0 && self.started {
            return Err(self.fail(Reason::Malformed("a second root element".into())));
        }
        self.started = true;
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(limit(self.offset(), "depth", self.limits.depth));
        }
        let mut plain = Vec::new();
        let mut declared = Vec::new();
        let mut attributes = Attributes::new(start.attributes_raw());
        while let Some((qname, value)) = attributes.next().map_err(|reason| self.fail(reason))? {
            if plain.len() + declared.len() >= self.limits.attributes {
                return Err(limit(self.offset(), "attributes", self.limits.attributes));
            }
            let prefix = match self.qname(qname)? {
                ("xmlns", prefix) => prefix,
                ("", "xmlns") => "",
                pair => {
                    plain.push((pair, value));
                    continue;
                }
            };
            self.declare(prefix, &value)?;
            declared.push((prefix.to_owned(), value));
        }
        let name = self.name(self.qname(start.name().0)?, false)?;
        self.pending.push_back(Event::StartElement(name));
        for (prefix, namespace) in declared {
            self.pending.push_back(Event::Namespace {
                prefix: Cow::Owned(prefix),
                namespace: Cow::Owned(namespace),
            });
        }
        let first = self.pending.len();
        for (pair, value) in plain {
            let name = self.name(pair, true)?;
            // Namespaces of one document are interned, so equal ones have the same address.
            let repeats = self.pending.range(first..).any(|event| match event {
                Event::Attribute(other, _) => {
                    other.local == name.local && other.namespace.is_interned_with(&name.namespace)
                }
                _ => false,
            });
            if repeats {
                return Err(self.fail(Reason::Malformed(format!("attribute {name} is repeated"))));
            }
            self.pending
                .push_back(Event::Attribute(name, Value::Text(Cow::Owned(value))));
        }
        self.count(self.pending.len())
    }

    fn declare(&mut self, prefix: &str, namespace: &str) -> Result<(), Error> {
        if namespace.len() > self.limits.name_bytes {
            return Err(limit(self.offset(), "name_bytes", self.limits.name_bytes));
        }
        if self.scope.len() >= self.limits.namespaces {
            return Err(limit(self.offset(), "namespaces", self.limits.namespaces));
        }
        self.scope
            .declare(self.depth, prefix, namespace)
            .map_err(|reason| self.fail(reason))
    }

    fn qname<'q>(&self, qname: &'q str) -> Result<(&'q str, &'q str), Error> {
        if qname.len() > self.limits.name_bytes {
            return Err(limit(self.offset(), "name_bytes", self.limits.name_bytes));
        }
        split_qname(qname)
            .ok_or_else(|| self.fail(Reason::Malformed(format!("{qname:?} is not a valid name"))))
    }

    fn name(&self, (prefix, local): (&str, &str), attribute: bool) -> Result<Name, Error> {
        if prefix == "xmlns" {
            return Err(self.fail(Reason::Malformed("an element has the prefix xmlns".into())));
        }
        self.scope
            .resolve(prefix, local, attribute)
            .map_err(|reason| self.fail(reason))
    }

    /// Handles character data. Outside the root element only literal white space is allowed.
    fn text(&mut self, text: Cow<'i, str>, literal: bool) -> Result<Option<Event<'i>>, Error> {
        if self.depth == 0 {
            if literal && text.chars().all(is_space) {
                return Ok(None);
            }
            return Err(self.fail(Reason::Malformed("text outside the root element".into())));
        }
        self.count(1)?;
        Ok(Some(Event::Text(Value::Text(text))))
    }

    fn read(&mut self) -> Result<Option<Event<'i>>, Error> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            let event = self
                .reader
                .read_event()
                .map_err(|error| Error::at(self.reader.error_position(), reason_of(&error)))?;
            let first = !std::mem::replace(&mut self.begun, true);
            let (text, literal) = match event {
                QuickEvent::Start(start) | QuickEvent::Empty(start) => {
                    self.start(&start)?;
                    continue;
                }
                QuickEvent::End(_) => {
                    self.scope.leave(self.depth);
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(Some(Event::EndElement));
                }
                QuickEvent::Text(text) => {
                    let text = text.into_inner();
                    if text.contains("]]>") {
                        return Err(self.fail(Reason::Malformed("text contains ]]>".into())));
                    }
                    (with_line_ends(text), true)
                }
                QuickEvent::CData(data) => (with_line_ends(data.into_inner()), false),
                QuickEvent::GeneralRef(reference) => {
                    let char = referenced(&reference).map_err(|reason| self.fail(reason))?;
                    (Cow::Owned(char.to_string()), false)
                }
                QuickEvent::Comment(_) => continue,
                QuickEvent::PI(instruction) => {
                    let target = instruction.target();
                    if !is_ncname(target) || target.eq_ignore_ascii_case("xml") {
                        let what = format!(
                            "{:?} is not a valid target of a processing instruction",
                            shortened(target)
                        );
                        return Err(self.fail(Reason::Malformed(what)));
                    }
                    continue;
                }
                QuickEvent::Decl(declaration) => {
                    self.declaration(&declaration, first)?;
                    continue;
                }
                QuickEvent::DocType(_) => return Err(self.fail(Reason::DocumentType)),
                QuickEvent::Eof if self.depth > 0 || !self.started => {
                    return Err(self.fail(Reason::Truncated));
                }
                QuickEvent::Eof => return Ok(None),
            };
            if let Some(event) = self.text(text, literal)? {
                return Ok(Some(event));
            }
        }
    }

    /// Checks the XML declaration: it must come first and state version 1.0 and UTF-8.
    fn declaration(&self, declaration: &BytesDecl<'_>, first: bool) -> Result<(), Error> {
        let malformed = |what: &str| self.fail(Reason::Malformed(what.to_owned()));
        if !first {
            return Err(malformed(
                "an XML declaration must be at the start of the document",
            ));
        }
        let content = declaration.strip_prefix("xml").unwrap_or(declaration);
        let mut parts = Attributes::new(content);
        let mut position = 0;
        while let Some((name, value)) = parts.next().map_err(|reason| self.fail(reason))? {
            let allowed = ["version", "encoding", "standalone"];
            let index = allowed.iter().position(|known| *known == name);
            position = match index {
                Some(0) if position == 0 => 1,
                Some(index) if position > 0 && index >= position => index + 1,
                _ => {
                    return Err(malformed(
                        "the XML declaration has an unknown, repeated or misplaced part",
                    ));
                }
            };
            match index {
                Some(0) if value != "1.0" => {
                    return Err(malformed("only XML 1.0 is supported"));
                }
                Some(1) if !["utf-8", "us-ascii"].contains(&&*value.to_ascii_lowercase()) => {
                    return Err(self.fail(Reason::Encoding));
                }
                Some(2) if value != "yes" && value != "no" => {
                    return Err(malformed("standalone is neither yes nor no"));
                }
                _ => {}
            }
        }
        if position == 0 {
            return Err(malformed("the XML declaration has no version"));
        }
        Ok(())
    }
}

impl EventSource for Reader<'_> {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read();
        if let Err(error) = &read {
            self.failed = Some(error.clone());
        }
        read
    }
}

fn reason_of(error: &QuickError) -> Reason {
    match error {
        QuickError::Syntax(quick_xml::errors::SyntaxError::InvalidBangMarkup) => {
            Reason::Malformed("unknown markup after <!".into())
        }
        QuickError::IllFormed(IllFormedError::MissingEndTag(_)) | QuickError::Syntax(_) => {
            Reason::Truncated
        }
        other => Reason::Malformed(shortened(&other.to_string())),
    }
}

/// Limits names in errors, which the sender chooses and which may be as long as the document.
fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

fn limit(offset: u64, limit: &'static str, bound: usize) -> Error {
    Error::at(offset, Reason::Limit { limit, bound })
}
