//! The tokens of text XML: tags with names resolved and prefixes kept, text, instructions.
//!
//! [`Reader`](super::Reader) and [`canonical`](crate::canonical) both read documents through this
//! module, so that a signature covers exactly what the reader of the message sees.

use std::borrow::Cow;
use std::sync::Arc;

use super::chars::{
    Attributes, forbidden_char, is_ncname, is_space, referenced, split_qname, with_line_ends,
};
use super::markup::{Piece, Pieces};
use super::scope::Scope;
use crate::{Error, Limits, Name, Namespace, Reason};

/// Maximum characters of the sender's text in an error.
const SHOWN_MAX: usize = 256;
/// The XML declaration of most documents.
const USUAL_DECLARATION: &str = "xml version=\"1.0\" encoding=\"utf-8\"";
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One token of a document. Comments are skipped.
#[derive(Debug)]
pub(crate) enum Token<'i> {
    /// A start tag, see [`Tokens::tag`]. An empty-element tag is a start tag followed by an end.
    Start,
    /// The end of the innermost open element.
    End,
    /// Character data with line ends normalised. Adjacent text may be split into several tokens.
    Text(Cow<'i, str>),
    /// A processing instruction, without its delimiters.
    Instruction(Cow<'i, str>),
}

/// A start tag. It borrows from the document, and its memory serves all tags of it.
#[derive(Debug, Default)]
pub(crate) struct StartTag<'i> {
    /// The qualified name as written, if name and prefix mean the same in the next tag.
    qname: Option<&'i str>,
    /// The prefix of the name; empty without one.
    pub(crate) prefix: &'i str,
    /// The namespace.
    pub(crate) namespace: Namespace,
    /// The local part of the name.
    pub(crate) local: &'i str,
    /// Prefixes, empty for the default namespace, and their namespaces.
    pub(crate) declarations: Vec<(&'i str, Cow<'i, str>)>,
    /// The other attributes, in document order.
    pub(crate) attributes: Vec<Attribute<'i>>,
}

impl StartTag<'_> {
    /// A copy of the name.
    pub(crate) fn name(&self) -> Name {
        Name::inside(&self.namespace, self.local)
    }
}

/// An attribute that is not a namespace declaration.
#[derive(Debug)]
pub(crate) struct Attribute<'i> {
    /// The prefix of the name; empty without one.
    pub(crate) prefix: &'i str,
    /// The namespace.
    pub(crate) namespace: Namespace,
    /// The local part of the name.
    pub(crate) local: &'i str,
    /// The normalised value.
    pub(crate) value: Cow<'i, str>,
}

impl Attribute<'_> {
    /// A copy of the name.
    pub(crate) fn name(&self) -> Name {
        Name::inside(&self.namespace, self.local)
    }
}

/// An attribute whose prefix is not resolved: prefix and local part, and the value.
type Unresolved<'i> = ((&'i str, &'i str), Cow<'i, str>);

/// Reads the tokens of one document, or of one element of a document.
#[derive(Debug)]
pub(crate) struct Tokens<'i> {
    pieces: Pieces<'i>,
    text: &'i str,
    limits: Limits,
    scope: Scope,
    /// The qualified names of the open elements, as written.
    open: Vec<&'i str>,
    tag: StartTag<'i>,
    /// True if the last start tag is that of an empty element.
    is_empty: bool,
    events: usize,
    started: bool,
    /// True once any token was read.
    begun: bool,
    /// Where the last token starts.
    start: usize,
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
        if let Some(offset) = forbidden_char(text) {
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
        around: impl Iterator<Item = (&'s Arc<str>, &'s Namespace)>,
        limits: Limits,
    ) -> Self {
        let mut tokens = Self::of_text(text, limits);
        for (prefix, namespace) in around {
            tokens.scope.bind_shared(prefix, namespace);
        }
        tokens
    }

    fn of_text(text: &'i str, limits: Limits) -> Self {
        Self {
            pieces: Pieces::new(text),
            text,
            limits,
            scope: Scope::default(),
            open: Vec::new(),
            tag: StartTag::default(),
            is_empty: false,
            events: 0,
            started: false,
            begun: false,
            start: 0,
        }
    }

    /// The byte offset after the last token, not counting a byte order mark.
    pub(crate) fn offset(&self) -> u64 {
        self.pieces.position() as u64
    }

    /// The byte offset at which the last token starts, not counting a byte order mark.
    pub(crate) fn start(&self) -> u64 {
        self.start as u64
    }

    /// The number of open elements.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The last start tag.
    pub(crate) fn tag(&self) -> &StartTag<'i> {
        &self.tag
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
        self.count_at(self.offset(), events)
    }

    fn count_at(&mut self, offset: u64, events: usize) -> Result<(), Error> {
        self.events += events;
        if self.events > self.limits.events {
            return Err(limit(offset, "events", self.limits.events));
        }
        Ok(())
    }

    fn start_tag(&mut self, qname: &'i str, attributes: &'i str) -> Result<(), Error> {
        if self.open.is_empty() && self.started {
            return Err(self.fail(Reason::Malformed("a second root element".into())));
        }
        self.started = true;
        self.open.push(qname);
        if self.open.len() > self.limits.depth {
            return Err(limit(self.offset(), "depth", self.limits.depth));
        }
        self.tag.declarations.clear();
        self.tag.attributes.clear();
        // Most tags have no attributes, and many the name of the tag before.
        if attributes.is_empty() && self.tag.qname == Some(qname) {
            return self.count(1);
        }
        let plain = self.declarations(attributes)?;
        let (prefix, local) = self.qname(qname)?;
        if self.tag.qname.is_none() || self.tag.prefix != prefix {
            self.tag.namespace = self.namespace(prefix, false)?;
        }
        (self.tag.prefix, self.tag.local) = (prefix, local);
        self.tag.qname = Some(qname);
        for ((prefix, local), value) in plain {
            let namespace = self.namespace(prefix, true)?;
            // Namespaces of one document are interned, so equal ones have the same address.
            let repeats =
                self.tag.attributes.iter().any(|other| {
                    other.local == local && other.namespace.is_interned_with(&namespace)
                });
            if repeats {
                let name = Name::inside(&namespace, local);
                return Err(self.fail(Reason::Malformed(format!("attribute {name} is repeated"))));
            }
            self.tag.attributes.push(Attribute {
                prefix,
                namespace,
                local,
                value,
            });
        }
        self.count(1 + self.tag.declarations.len() + self.tag.attributes.len())
    }

    /// Reads the attributes of a tag: adds the declarations, and returns the others.
    fn declarations(&mut self, attributes: &'i str) -> Result<Vec<Unresolved<'i>>, Error> {
        let mut plain = Vec::new();
        let mut unread = Attributes::new(attributes);
        while let Some((qname, value)) = unread.next().map_err(|reason| self.fail(reason))? {
            if plain.len() + self.tag.declarations.len() >= self.limits.attributes {
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
            self.tag.declarations.push((prefix, value));
        }
        Ok(plain)
    }

    fn declare(&mut self, prefix: &str, namespace: &str) -> Result<(), Error> {
        if namespace.len() > self.limits.name_bytes {
            return Err(limit(self.offset(), "name_bytes", self.limits.name_bytes));
        }
        if self.scope.len() >= self.limits.namespaces {
            return Err(limit(self.offset(), "namespaces", self.limits.namespaces));
        }
        // The prefix of the tag before may mean something else now.
        self.tag.qname = None;
        self.scope
            .declare(self.open.len(), prefix, namespace)
            .map_err(|reason| self.fail(reason))
    }

    fn qname<'q>(&self, qname: &'q str) -> Result<(&'q str, &'q str), Error> {
        if qname.len() > self.limits.name_bytes {
            return Err(limit(self.offset(), "name_bytes", self.limits.name_bytes));
        }
        split_qname(qname)
            .ok_or_else(|| self.fail(Reason::Malformed(format!("{qname:?} is not a valid name"))))
    }

    fn namespace(&self, prefix: &str, attribute: bool) -> Result<Namespace, Error> {
        if prefix == "xmlns" {
            return Err(self.fail(Reason::Malformed("an element has the prefix xmlns".into())));
        }
        self.scope
            .resolve(prefix, attribute)
            .map_err(|reason| self.fail(reason))
    }

    /// Handles character data. Outside the root element only literal white space is allowed.
    fn text(&mut self, text: Cow<'i, str>, literal: bool) -> Result<Option<Token<'i>>, Error> {
        if self.open.is_empty() {
            if literal && text.chars().all(is_space) {
                return Ok(None);
            }
            return Err(self.fail(Reason::Malformed("text outside the root element".into())));
        }
        self.count(1)?;
        Ok(Some(Token::Text(text)))
    }

    /// Ends the innermost open element.
    fn end(&mut self) -> Token<'i> {
        if self.scope.leave(self.open.len()) {
            self.tag.qname = None;
        }
        self.open.pop();
        Token::End
    }

    /// Reads the rest of the innermost open element as one text if nothing in it has to be parsed: what would be a text
    /// token, unless it is empty, and an end. Otherwise reads nothing.
    ///
    /// # Errors
    /// There are too many events.
    pub(crate) fn take_text_and_end(&mut self) -> Result<Option<&'i str>, Error> {
        let Some(open) = self.open.last().filter(|_| !self.is_empty) else {
            return Ok(None);
        };
        let start = self.offset();
        let Some(text) = self.pieces.take_text_and_end(open) else {
            return Ok(None);
        };
        self.count_at(start + text.len() as u64, usize::from(!text.is_empty()))?;
        self.end();
        Ok(Some(text))
    }

    /// The next token; `None` at the end of the document. After an error, nothing more is read.
    ///
    /// # Errors
    /// The document is malformed, truncated or beyond a limit.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'i>>, Error> {
        loop {
            self.start = self.pieces.position();
            if std::mem::take(&mut self.is_empty) {
                return Ok(Some(self.end()));
            }
            if let Some(open) = self.open.last()
                && self.pieces.take_end(open)
            {
                return Ok(Some(self.end()));
            }
            // Repeated elements, without a look at each byte of their tags.
            if let Some(qname) = self.tag.qname
                && self.pieces.take_start(qname)
            {
                self.start_tag(qname, "")?;
                return Ok(Some(Token::Start));
            }
            let piece = self.pieces.next().map_err(|reason| self.fail(reason))?;
            let first = !std::mem::replace(&mut self.begun, true);
            let (text, literal) = match piece {
                Piece::Start {
                    name,
                    attributes,
                    is_empty,
                } => {
                    self.start_tag(name, attributes)?;
                    self.is_empty = is_empty;
                    return Ok(Some(Token::Start));
                }
                Piece::End(name) if self.open.last() == Some(&name) => {
                    return Ok(Some(self.end()));
                }
                Piece::End(name) => {
                    let open = shortened(self.open.last().unwrap_or(&""));
                    let what = match open.is_empty() {
                        true => format!("</{}> ends no element", shortened(name)),
                        false => format!("</{}> ends the element {open}", shortened(name)),
                    };
                    return Err(self.fail(Reason::Malformed(what)));
                }
                Piece::Text {
                    has_section_end: true,
                    ..
                } => return Err(self.fail(Reason::Malformed("text contains ]]>".into()))),
                Piece::Text {
                    text,
                    has_return: false,
                    ..
                } => (Cow::Borrowed(text), true),
                Piece::Text { text, .. } => (with_line_ends(text.into()), true),
                Piece::Section(data) => (with_line_ends(data.into()), false),
                Piece::Reference(reference) => {
                    let char = referenced(reference).map_err(|reason| self.fail(reason))?;
                    (Cow::Owned(char.to_string()), false)
                }
                Piece::Comment => continue,
                Piece::Instruction(instruction) => {
                    let target = instruction.split(is_space).next().unwrap_or_default();
                    if target == "xml" {
                        self.declaration(instruction, first)?;
                        continue;
                    }
                    if !is_ncname(target) || target.eq_ignore_ascii_case("xml") {
                        let what = format!(
                            "{:?} is not a valid target of a processing instruction",
                            shortened(target)
                        );
                        return Err(self.fail(Reason::Malformed(what)));
                    }
                    return Ok(Some(Token::Instruction(with_line_ends(instruction.into()))));
                }
                Piece::DocumentType => return Err(self.fail(Reason::DocumentType)),
                Piece::Nothing if !self.open.is_empty() || !self.started => {
                    return Err(self.fail(Reason::Truncated));
                }
                Piece::Nothing => return Ok(None),
            };
            if let Some(token) = self.text(text, literal)? {
                return Ok(Some(token));
            }
        }
    }

    /// Checks the XML declaration: it must come first and state version 1.0 and UTF-8.
    fn declaration(&self, declaration: &str, first: bool) -> Result<(), Error> {
        let malformed = |what: &str| self.fail(Reason::Malformed(what.to_owned()));
        if first && declaration == USUAL_DECLARATION {
            return Ok(());
        }
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

/// Limits names in errors, which the sender chooses and which may be as long as the document.
fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

fn limit(offset: u64, limit: &'static str, bound: usize) -> Error {
    Error::at(offset, Reason::Limit { limit, bound })
}
