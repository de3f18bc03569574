//! The markup of a text document, piece by piece, borrowed from it (XML 1.0, productions 14 to 44).
//!
//! It splits a document into tags, text, references and sections. What is in a tag, and whether tags
//! match, is checked by [`Tokens`](super::tokens::Tokens). A property test compares its pieces with
//! those of quick-xml.

use super::chars::{is_space, length_until};
use crate::Reason;

/// One piece of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'i> {
    /// A start tag: its qualified name as written, and the text after it.
    Start {
        name: &'i str,
        attributes: &'i str,
        is_empty: bool,
    },
    /// An end tag, with the qualified name as written.
    End(&'i str),
    /// Text up to the next markup or reference.
    Text {
        text: &'i str,
        /// Whether it has a carriage return.
        has_return: bool,
        /// Whether it has `]]>`, which is not allowed.
        has_section_end: bool,
    },
    /// The content of a CDATA section.
    Section(&'i str),
    /// A reference, without `&` and `;`.
    Reference(&'i str),
    /// A comment.
    Comment,
    /// A processing instruction or the XML declaration, without its delimiters.
    Instruction(&'i str),
    /// The start of a document type declaration.
    DocumentType,
    /// The end of the document.
    Nothing,
}

/// Splits a document into pieces.
#[derive(Debug)]
pub(super) struct Pieces<'i> {
    text: &'i str,
    position: usize,
}

/// Bytes of an end tag besides its name.
const END_BYTES: usize = 3;

fn starts_with_end(bytes: &[u8], name: &str) -> bool {
    let length = name.len() + END_BYTES;
    bytes.len() >= length
        && bytes.starts_with(b"</")
        && bytes[length - 1] == b'>'
        && bytes[2..length - 1] == *name.as_bytes()
}

const UNCLOSED: &str = "a reference is not closed";

impl<'i> Pieces<'i> {
    pub(super) const fn new(text: &'i str) -> Self {
        Self { text, position: 0 }
    }

    /// The byte offset after the last piece.
    pub(super) const fn position(&self) -> usize {
        self.position
    }

    /// The rest of the document.
    fn rest(&self) -> &'i str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Reads the end tag of this name if it comes next, without white space.
    pub(super) fn take_end(&mut self, name: &str) -> bool {
        let is_next = starts_with_end(self.rest().as_bytes(), name);
        if is_next {
            self.position += name.len() + END_BYTES;
        }
        is_next
    }

    /// Reads text and the end tag of this name if they come next, and the text is the same without being parsed.
    pub(super) fn take_text_and_end(&mut self, name: &str) -> Option<&'i str> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let is_end = |byte| (byte == b'<') | (byte == b'&') | (byte == b'\r') | (byte == b']');
        let length = match bytes.first()? {
            b'<' => 0,
            _ => length_until(bytes, is_end),
        };
        if !starts_with_end(&bytes[length..], name) {
            return None;
        }
        self.position += length + name.len() + END_BYTES;
        Some(&rest[..length])
    }

    /// Reads the start tag of this name if it comes next, without attributes and white space.
    pub(super) fn take_start(&mut self, name: &str) -> bool {
        let rest = self.rest().as_bytes();
        let length = name.len() + 2;
        let is_next = rest.len() >= length
            && rest[0] == b'<'
            && rest[length - 1] == b'>'
            && rest[1..length - 1] == *name.as_bytes();
        if is_next {
            self.position += length;
        }
        is_next
    }

    /// The next piece.
    pub(super) fn next(&mut self) -> Result<Piece<'i>, Reason> {
        let rest = self.rest();
        match rest.as_bytes() {
            [] => Ok(Piece::Nothing),
            [b'<', b'/', ..] => {
                let length = rest.find('>').ok_or(Reason::Truncated)?;
                self.position += length + 1;
                Ok(Piece::End(rest[2..length].trim_end_matches(is_space)))
            }
            [b'<', b'!', ..] => self.declared(rest),
            [b'<', b'?', ..] => {
                let mut pairs = rest.as_bytes()[2..].windows(2);
                let length = pairs.position(|pair| pair == b"?>");
                let length = length.ok_or(Reason::Truncated)?;
                self.position += length + 4;
                Ok(Piece::Instruction(&rest[2..length + 2]))
            }
            [b'<', ..] => self.start(rest),
            [b'&', ..] => {
                let is_end = |c: char| matches!(c, ';' | '<' | '&');
                let length = rest[1..].find(is_end).map(|at| at + 1);
                match length.filter(|at| rest.as_bytes()[*at] == b';') {
                    Some(length) => {
                        self.position += length + 1;
                        Ok(Piece::Reference(&rest[1..length]))
                    }
                    None => Err(Reason::Malformed(UNCLOSED.into())),
                }
            }
            _ => Ok(self.text(rest)),
        }
    }

    fn start(&mut self, rest: &'i str) -> Result<Piece<'i>, Reason> {
        let bytes = rest.as_bytes();
        let (mut at, mut name_end) = (1, None);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'>' => {
                    self.position += at + 1;
                    let is_empty = bytes[at - 1] == b'/' && at > 1;
                    let end = if is_empty { at - 1 } else { at };
                    let name_end = name_end.unwrap_or(end).min(end);
                    return Ok(Piece::Start {
                        name: &rest[1..name_end],
                        attributes: &rest[name_end..end],
                        is_empty,
                    });
                }
                quote @ (b'"' | b'\'') => {
                    at += 1 + length_until(&bytes[at + 1..], |byte| byte == *quote);
                }
                b' ' | b'\t' | b'\r' | b'\n' if name_end.is_none() => name_end = Some(at),
                _ => {}
            }
            at += 1;
        }
        Err(Reason::Truncated)
    }

    /// A comment, a CDATA section, or a document type declaration.
    fn declared(&mut self, rest: &'i str) -> Result<Piece<'i>, Reason> {
        if let Some(content) = rest.strip_prefix("<!--") {
            let length = content.find("-->").ok_or(Reason::Truncated)?;
            if content.as_bytes()[..=length]
                .windows(2)
                .any(|two| two == b"--")
            {
                return Err(Reason::Malformed("a comment contains --".into()));
            }
            self.position += length + 7;
            return Ok(Piece::Comment);
        }
        if let Some(content) = rest.strip_prefix("<![CDATA[") {
            let length = content.find("]]>").ok_or(Reason::Truncated)?;
            self.position += length + 12;
            return Ok(Piece::Section(&content[..length]));
        }
        let keyword = "<!DOCTYPE";
        let start = rest.as_bytes();
        let start = &start[..start.len().min(keyword.len())];
        if start.eq_ignore_ascii_case(keyword.as_bytes()) {
            return Ok(Piece::DocumentType);
        }
        // A document that ends in a keyword is incomplete.
        let is_incomplete = ["<!--", "<![CDATA[", keyword]
            .iter()
            .any(|keyword| keyword.starts_with(rest));
        match is_incomplete {
            true => Err(Reason::Truncated),
            false => Err(Reason::Malformed("unknown markup after <!".into())),
        }
    }

    fn text(&mut self, rest: &'i str) -> Piece<'i> {
        let length = length_until(rest.as_bytes(), |byte| (byte == b'<') | (byte == b'&'));
        self.position += length;
        let text = &rest[..length];
        Piece::Text {
            text,
            has_return: contains(text, b'\r'),
            has_section_end: contains(text, b']') && text.contains("]]>"),
        }
    }
}

fn contains(text: &str, wanted: u8) -> bool {
    text.bytes().fold(false, |any, byte| any | (byte == wanted))
}
