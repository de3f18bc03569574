//! The tokens of text XML: tags with names resolved and prefixes kept, text, instructions.
//!
//! [`Reader`](super::Reader) and [`canonical`](crate::canonical) both read documents through this
//! module, so that a signature covers exactly what the reader of the message sees.

use std::borrow::Cow;
use std::sync::Arc;

use quick_xml::Reader as QuickReader;
use quick_xml::errors::{Error as QuickError, IllFormedError};
use quick_xml::events::{BytesDecl, BytesStart, Event as QuickEvent};

use super::chars::with_line_ends;
use super::chars::{Attributes, is_char, is_ncname, is_space, referenced, split_qname};
use super::scope::Scope;
use crate::{Error, Limits, Name, Reason};

/// Maximum characters of the sender's text in an error.
const SHOWN_MAX: usize = 256;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One token of a document. Comments are skipped.
#[derive(Debug)]
pub(crate) enum Token<'i> {
    /// A start tag. An empty-element tag is a start tag followed by an end.
    Start(StartTag),
    /// The end of the innermost open element.
    End,
    /// Character data with line ends normalised. Adjacent text may be split into several tokens.
    Text(Cow<'i, str>),
    /// A processing instruction, without its delimiters.
    Instruction(Cow<'i, str>),
}

/// A start tag.
#[derive(Debug)]
pub(crate) struct StartTag {
    /// The prefix of the name; `None` without one.
    pub(crate) prefix: Option<Arc<str>>,
    /// The name.
    pub(crate) name: Name,
    /// Prefixes, empty for the default namespace, and their namespaces.
    pub(crate) declarations: Vec<(String, String)>,
    /// The other attributes, in document order.
    pub(crate) attributes: Vec<Attribute>,
}

/// An attribute that is not a namespace declaration.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// The prefix of the name; `None` without one.
    pub(crate) prefix: Option<Arc<str>>,
    /// The name.
    pub(crate) name: Name,
    /// The normalised value.
    pub(crate) value: String,
}

/// Reads the tokens of one document, or of one element of a document.
#[derive(Debug)]
pub(crate) struct Tokens<'i> {
    reader: QuickReader<&'i [u8]>,
    text: &'i str,
    limits: Limits,
    scope: Scope,
    depth: usize,
    events: usize,
    started: bool,
    /// True once any token was read.
    begun: bool,
    /// Where the last token starts.
    start: u64,
}

impl<'i> Tokens<'i> {
    /// Checks the size and the encoding of `document`.
    ///
    /// # Errors
    /// The document exceeds the limit or is not UTF-8.
    pub(crate) fn new(document: &'i [u8], limits: Limits) -> Result<Self, Error> {
        if document.len() > limits.bytes {
            return Err(limit(0, "bytes", limits.bytes));
        }
        let text = std::str::from_utf8(document)
            .map_err(|error| Error::at(error.valid_up_to() as u64, Reason::Encoding))?;
        if let Some(offset) = text.find(|c: char| !is_char(c)) {
            let reason = Reason::Malformed("the document contains a forbidden character".into());
            return Err(Error::at(offset as u64, reason));
        }
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        if text.starts_with(BYTE_ORDER_MARK) {
            return Err(Error::at(
                3,
                Reason::Malformed("text outside the root element".into()),
            ));
        }
        Ok(Self::of_text(text, limits))
    }

    /// The tokens of one element of a document that was read before, with the declarations around it.
    pub(crate) fn of_element<'s>(
        text: &'i str,
        around: impl Iterator<Item = (&'s str, &'s str)>,
        limits: Limits,
    ) -> Self {
        let mut tokens = Self::of_text(text, limits);
        for (prefix, namespace) in around {
            tokens.scope.bind(0, prefix, namespace);
        }
        tokens
    }

    fn of_text(text: &'i str, limits: Limits) -> Self {
        let mut reader = QuickReader::from_str(text);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        Self {
            reader,
            text,
            limits,
            scope: Scope::default(),
            depth: 0,
            events: 0,
            started: false,
            begun: false,
            start: 0,
        }
    }

    /// The byte offset after the last token, not counting a byte order mark.
    pub(crate) fn offset(&self) -> u64 {
        self.reader.buffer_position()
    }

    /// The byte offset at which the last token starts, not counting a byte order mark.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The number of open elements.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The declarations in scope.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The text from the first offset to the second.
    pub(crate) fn slice(&self, start: u64, end: u64) -> Option<&'i str> {
        let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        self.text.get(range)
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

    fn start_tag(&mut self, start: &BytesStart<'i>) -> Result<StartTag, Error> {
        if self.depth == 0 && self.started {
            return Err(self.fail(Reason::Malformed("a second root element".into())));
        }
        self.started = true;
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(limit(self.offset(), "depth", self.limits.depth));
        }
        let mut plain = Vec::new();
        let mut declarations = Vec::new();
        let mut unread = Attributes::new(start.attributes_raw());
        while let Some((qname, value)) = unread.next().map_err(|reason| self.fail(reason))? {
            if plain.len() + declarations.len() >= self.limits.attributes {
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
            declarations.push((prefix.to_owned(), value));
        }
        let (prefix, name) = self.name(self.qname(start.name().0)?, false)?;
        let mut attributes: Vec<Attribute> = Vec::with_capacity(plain.len());
        for (pair, value) in plain {
            let (prefix, name) = self.name(pair, true)?;
            // Namespaces of one document are interned, so equal ones have the same address.
            let repeats = attributes.iter().any(|other| {
                let other = &other.name;
                other.local == name.local && other.namespace.is_interned_with(&name.namespace)
            });
            if repeats {
                return Err(self.fail(Reason::Malformed(format!("attribute {name} is repeated"))));
            }
            attributes.push(Attribute {
                prefix,
                name,
                value,
            });
        }
        self.count(1 + declarations.len() + attributes.len())?;
        Ok(StartTag {
            prefix,
            name,
            declarations,
            attributes,
        })
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

    fn name(
        &self,
        (prefix, local): (&str, &str),
        attribute: bool,
    ) -> Result<(Option<Arc<str>>, Name), Error> {
        if prefix == "xmlns" {
            return Err(self.fail(Reason::Malformed("an element has the prefix xmlns".into())));
        }
        self.scope
            .resolve(prefix, local, attribute)
            .map_err(|reason| self.fail(reason))
    }

    /// Handles character data. Outside the root element only literal white space is allowed.
    fn text(&mut self, text: Cow<'i, str>, literal: bool) -> Result<Option<Token<'i>>, Error> {
        if self.depth == 0 {
            if literal && text.chars().all(is_space) {
                return Ok(None);
            }
            return Err(self.fail(Reason::Malformed("text outside the root element".into())));
        }
        self.count(1)?;
        Ok(Some(Token::Text(text)))
    }

    /// The next token; `None` at the end of the document. After an error, nothing more is read.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'i>>, Error> {
        loop {
            self.start = self.reader.buffer_position();
            let event = self
                .reader
                .read_event()
                .map_err(|error| Error::at(self.reader.error_position(), reason_of(&error)))?;
            let first = !std::mem::replace(&mut self.begun, true);
            let (text, literal) = match event {
                QuickEvent::Start(start) | QuickEvent::Empty(start) => {
                    return self.start_tag(&start).map(Token::Start).map(Some);
                }
                QuickEvent::End(_) => {
                    self.scope.leave(self.depth);
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(Some(Token::End));
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
                    return Ok(Some(Token::Instruction(with_line_ends(
                        instruction.into_inner(),
                    ))));
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
            if let Some(token) = self.text(text, literal)? {
                return Ok(Some(token));
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
