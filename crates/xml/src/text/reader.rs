//! Text XML to events.

use std::borrow::Cow;
use std::collections::VecDeque;

use quick_xml::NsReader;
use quick_xml::XmlVersion;
use quick_xml::errors::{Error as QuickError, IllFormedError};
use quick_xml::events::{BytesStart, Event as QuickEvent};
use quick_xml::name::{PrefixDeclaration, ResolveResult};

use crate::{Error, Event, EventSource, Limits, Name, Reason, Value};

/// Reads one document from a slice. Comments and processing instructions are skipped.
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
    reader: NsReader<&'i [u8]>,
    limits: Limits,
    depth: usize,
    events: usize,
    started: bool,
    /// Events of the start tag just read, still to be given.
    pending: VecDeque<Event<'i>>,
}

impl<'i> Reader<'i> {
    /// A reader of `document`, which is checked for size and encoding at once.
    ///
    /// # Errors
    /// When the document is larger than the limit or not UTF-8.
    pub fn new(document: &'i [u8], limits: Limits) -> Result<Self, Error> {
        if document.len() > limits.bytes {
            return Err(limit(0, "bytes", limits.bytes));
        }
        let text = std::str::from_utf8(document)
            .map_err(|error| Error::at(error.valid_up_to() as u64, Reason::Encoding))?;
        if let Some(offset) = text.find(|c: char| !is_char(c)) {
            let reason = Reason::Malformed("a control character".into());
            return Err(Error::at(offset as u64, reason));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = NsReader::from_str(text);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        Ok(Self {
            reader,
            limits,
            depth: 0,
            events: 0,
            started: false,
            pending: VecDeque::new(),
        })
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

    /// Queues a start tag's events: start, declarations, attributes.
    fn start(&mut self, start: &BytesStart<'i>) -> Result<(), Error> {
        if self.depth == 0 && self.started {
            return Err(self.fail(Reason::Malformed("a second root element".into())));
        }
        self.started = true;
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(limit(self.offset(), "depth", self.limits.depth));
        }
        let name = self.name(start.name(), false)?;
        self.pending.push_back(Event::StartElement(name));
        let mut attributes = Vec::new();
        for (index, attribute) in start.attributes().enumerate() {
            let attribute =
                attribute.map_err(|error| self.fail(Reason::Malformed(error.to_string())))?;
            if index >= self.limits.attributes {
                return Err(limit(self.offset(), "attributes", self.limits.attributes));
            }
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|error| self.fail(reason_of(&error)))?
                .into_owned();
            match attribute.key.as_namespace_binding() {
                Some(binding) => {
                    let prefix = match binding {
                        PrefixDeclaration::Default => String::new(),
                        PrefixDeclaration::Named(prefix) => prefix.to_owned(),
                    };
                    self.pending.push_back(Event::Namespace {
                        prefix: Cow::Owned(prefix),
                        namespace: Cow::Owned(value),
                    });
                }
                None => attributes.push((self.name(attribute.key, true)?, value)),
            }
        }
        for (index, (name, _)) in attributes.iter().enumerate() {
            if attributes[..index].iter().any(|(other, _)| other == name) {
                return Err(self.fail(Reason::Malformed(format!("attribute {name} repeats"))));
            }
        }
        for (name, value) in attributes {
            self.pending
                .push_back(Event::Attribute(name, Value::Text(Cow::Owned(value))));
        }
        self.count(self.pending.len())
    }

    fn name(&self, name: quick_xml::name::QName<'_>, attribute: bool) -> Result<Name, Error> {
        if name.as_ref().len() > self.limits.name_bytes {
            return Err(limit(self.offset(), "name_bytes", self.limits.name_bytes));
        }
        let resolver = self.reader.resolver();
        let (namespace, local) = if attribute {
            resolver.resolve_attribute(name)
        } else {
            resolver.resolve_element(name)
        };
        if local.as_ref().is_empty() || !is_name(local.as_ref()) {
            return Err(self.fail(Reason::Malformed(format!("{:?} is no name", name.as_ref()))));
        }
        match namespace {
            ResolveResult::Bound(namespace) => Ok(Name::owned(namespace.0, local.as_ref())),
            ResolveResult::Unbound => Ok(Name::owned("", local.as_ref())),
            ResolveResult::Unknown(prefix) => Err(self.fail(Reason::UnboundPrefix(prefix))),
        }
    }

    /// Character data; outside the root only white space may stand.
    fn text(&mut self, text: Cow<'i, str>) -> Result<Option<Event<'i>>, Error> {
        if self.depth == 0 {
            return match text.trim().is_empty() {
                true => Ok(None),
                false => Err(self.fail(Reason::Malformed("text outside the root element".into()))),
            };
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
            let text = match event {
                QuickEvent::Start(start) | QuickEvent::Empty(start) => {
                    self.start(&start)?;
                    continue;
                }
                QuickEvent::End(_) => {
                    self.depth -= 1;
                    return Ok(Some(Event::EndElement));
                }
                QuickEvent::Text(text) => match text.into_inner() {
                    Cow::Borrowed(text) => normalized(text),
                    Cow::Owned(text) => Cow::Owned(normalized(&text).into_owned()),
                },
                QuickEvent::CData(data) => match data.into_inner() {
                    Cow::Borrowed(text) => normalized(text),
                    Cow::Owned(text) => Cow::Owned(normalized(&text).into_owned()),
                },
                QuickEvent::GeneralRef(reference) => {
                    let char = match reference.resolve_char_ref() {
                        Ok(Some(char)) if is_char(char) => char,
                        Ok(None) => self.predefined(&reference)?,
                        _ => {
                            let what = format!("&{}; is no character", &*reference);
                            return Err(self.fail(Reason::Malformed(what)));
                        }
                    };
                    Cow::Owned(char.to_string())
                }
                QuickEvent::Comment(_) | QuickEvent::PI(_) => continue,
                QuickEvent::Decl(declaration) => {
                    self.declaration(&declaration)?;
                    continue;
                }
                QuickEvent::DocType(_) => return Err(self.fail(Reason::DocumentType)),
                QuickEvent::Eof if self.depth > 0 || !self.started => {
                    return Err(self.fail(Reason::Truncated));
                }
                QuickEvent::Eof => return Ok(None),
            };
            if let Some(event) = self.text(text)? {
                return Ok(Some(event));
            }
        }
    }

    fn predefined(&self, reference: &str) -> Result<char, Error> {
        match reference {
            "lt" => Ok('<'),
            "gt" => Ok('>'),
            "amp" => Ok('&'),
            "apos" => Ok('\''),
            "quot" => Ok('"'),
            other => Err(self.fail(Reason::Entity(other.chars().take(64).collect()))),
        }
    }

    fn declaration(&self, declaration: &quick_xml::events::BytesDecl<'_>) -> Result<(), Error> {
        match declaration.encoding() {
            Some(Ok(encoding))
                if !encoding.eq_ignore_ascii_case("utf-8")
                    && !encoding.eq_ignore_ascii_case("us-ascii") =>
            {
                Err(self.fail(Reason::Encoding))
            }
            _ => Ok(()),
        }
    }
}

impl EventSource for Reader<'_> {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        self.read()
    }
}

/// Line ends as XML 1.0, section 2.11 wants them.
fn normalized(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

fn reason_of(error: &QuickError) -> Reason {
    match error {
        QuickError::IllFormed(IllFormedError::MissingEndTag(_)) | QuickError::Syntax(_) => {
            Reason::Truncated
        }
        QuickError::Escape(quick_xml::escape::EscapeError::UnrecognizedEntity(_, name)) => {
            Reason::Entity(name.chars().take(64).collect())
        }
        other => Reason::Malformed(other.to_string()),
    }
}

fn limit(offset: u64, limit: &'static str, bound: usize) -> Error {
    Error::at(offset, Reason::Limit { limit, bound })
}

/// `Char` (XML 1.0, production 2).
fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// `NCName` (Namespaces in XML 1.0, production 4), with the ASCII part exact.
fn is_name(name: &str) -> bool {
    let start =
        |c: char| c == '_' || c.is_ascii_alphabetic() || (!c.is_ascii() && c.is_alphabetic());
    let rest = |c: char| start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}') || !c.is_ascii();
    let mut chars = name.chars();
    chars.next().is_some_and(start) && chars.all(rest)
}
