//! Splits an XML document into the elements below its root, without reading it whole.
//!
//! Each element is returned as a document of its own: inside the root's start tag, whose namespaces it
//! may use. [`chappe_xml`] reads these; here only the markup is told apart.

use std::io::BufRead;

use super::ImportError;

/// Maximum size of one element.
pub(super) const MAX_ELEMENT_BYTES: usize = 2 << 20;
/// Maximum size of the root's start tag.
const MAX_ROOT_BYTES: usize = 64 * 1024;

/// Reads the elements of a document in order.
pub(super) struct Splitter<R> {
    reader: R,
    /// The line of the next byte.
    line: u64,
    /// The root's start tag, once it is read.
    root: Vec<u8>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Start,
    /// Inside the root.
    Inside,
    /// The root has ended.
    Ended,
}

/// An element inside the start and end tag of the root.
pub(super) struct Part {
    /// Where it starts.
    pub(super) line: u64,
    pub(super) document: Vec<u8>,
}

/// A piece of markup or text.
enum Token {
    Text,
    /// `<name ...>`
    Start,
    /// `<name .../>`
    Empty,
    /// `</name>`
    End,
    /// A comment, processing instruction or CDATA section.
    Other,
}

fn refused(line: u64, reason: impl Into<String>) -> ImportError {
    ImportError::Refused {
        line,
        reason: reason.into(),
    }
}

impl<R: BufRead> Splitter<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            line: 1,
            root: Vec::new(),
            state: State::Start,
        }
    }

    /// The next element below the root. An empty root has none.
    pub(super) fn next(&mut self) -> Result<Option<Part>, ImportError> {
        if self.state == State::Start {
            self.read_root()?;
        }
        let mut depth = 0_usize;
        let mut document = self.root.clone();
        let (mut line, start) = (self.line, document.len());
        while self.state == State::Inside {
            if depth == 0 {
                document.truncate(start);
                line = self.line;
            }
            let Some(token) = self.token(&mut document, MAX_ELEMENT_BYTES)? else {
                return Err(refused(self.line, "the document ends inside an element"));
            };
            if document.len() - start > MAX_ELEMENT_BYTES {
                return Err(refused(line, too_long(MAX_ELEMENT_BYTES)));
            }
            match token {
                Token::Start => depth += 1,
                Token::End if depth == 0 => {
                    self.state = State::Ended;
                    self.check_end()?;
                    return Ok(None);
                }
                Token::End => depth -= 1,
                Token::Text | Token::Other | Token::Empty => {}
            }
            let is_blank = || {
                let text = document.get(start..).unwrap_or_default();
                text.iter().all(u8::is_ascii_whitespace)
            };
            match token {
                Token::Text if depth == 0 && !is_blank() => {
                    return Err(refused(line, "there is text between the elements"));
                }
                Token::End | Token::Empty if depth == 0 => {
                    document.extend_from_slice(&end_of(&self.root));
                    return Ok(Some(Part { line, document }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn read_root(&mut self) -> Result<(), ImportError> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let line = self.line;
            match self.token(&mut bytes, MAX_ROOT_BYTES)? {
                None => return Err(refused(line, "the file has no element")),
                Some(Token::Start) => {
                    self.root = bytes;
                    self.state = State::Inside;
                    return Ok(());
                }
                Some(Token::Empty) => {
                    self.state = State::Ended;
                    return self.check_end();
                }
                Some(Token::Text) => {
                    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
                    if !text.iter().all(u8::is_ascii_whitespace) {
                        return Err(refused(line, "the file is not XML"));
                    }
                }
                Some(Token::End) => return Err(refused(line, "an end tag without a start tag")),
                Some(Token::Other) => {}
            }
        }
    }

    /// After the root there is nothing but comments and white space.
    fn check_end(&mut self) -> Result<(), ImportError> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let line = self.line;
            match self.token(&mut bytes, MAX_ROOT_BYTES)? {
                None => return Ok(()),
                Some(Token::Other) => {}
                Some(Token::Text) if bytes.iter().all(u8::is_ascii_whitespace) => {}
                Some(_) => return Err(refused(line, "there is something after the root element")),
            }
        }
    }

    /// Appends the next piece to `out`; `None` at the end of the file.
    fn token(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<Option<Token>, ImportError> {
        let line = self.line;
        let start = out.len();
        let first = self.reader.fill_buf()?.first().copied();
        let Some(first) = first else { return Ok(None) };
        if first != b'<' {
            self.until(b'<', false, out, limit)?;
            return Ok(Some(Token::Text));
        }
        let (mut quote, mut scanned) = (None, start);
        loop {
            self.until(b'>', true, out, limit)?;
            if out.len() - start > limit {
                return Err(refused(line, too_long(limit)));
            }
            let markup = out.get(start..).unwrap_or_default();
            let end: &[u8] = match markup {
                [b'<', b'!', b'-', b'-', ..] => b"-->",
                [b'<', b'!', b'[', b'C', b'D', b'A', b'T', b'A', b'[', ..] => b"]]>",
                [b'<', b'!', ..] => {
                    return Err(refused(line, "document type declarations are not allowed"));
                }
                [b'<', b'?', ..] => b"?>",
                [b'<', b'/', ..] => return Ok(Some(Token::End)),
                _ => {
                    quote = quote_after(quote, out.get(scanned..).unwrap_or_default());
                    scanned = out.len();
                    match quote {
                        Some(_) => continue,
                        None if out.ends_with(b"/>") => return Ok(Some(Token::Empty)),
                        None => return Ok(Some(Token::Start)),
                    }
                }
            };
            // `<!-->` and `<!--->` are no comments.
            let is_long = !markup.starts_with(b"<!--") || markup.len() >= 7;
            if is_long && markup.ends_with(end) {
                return Ok(Some(Token::Other));
            }
        }
    }

    /// Appends the bytes up to `stop`, with or without it.
    fn until(
        &mut self,
        stop: u8,
        with_stop: bool,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), ImportError> {
        let start = out.len();
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return match with_stop {
                    true => Err(refused(self.line, "the document ends inside a tag")),
                    false => Ok(()),
                };
            }
            let found = buffer.iter().position(|byte| *byte == stop);
            let taken = found.map_or(buffer.len(), |at| at + usize::from(with_stop));
            let bytes = buffer.get(..taken).unwrap_or_default();
            out.extend_from_slice(bytes);
            self.line += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.reader.consume(taken);
            if found.is_some() {
                return Ok(());
            }
            if out.len() - start > limit {
                return Err(refused(self.line, too_long(limit)));
            }
        }
    }
}

fn too_long(limit: usize) -> String {
    format!("an element is longer than {limit} bytes")
}

/// The quotation mark that is open after `bytes` of a start tag.
fn quote_after(mut quote: Option<u8>, bytes: &[u8]) -> Option<u8> {
    for byte in bytes {
        match quote {
            None if matches!(byte, b'"' | b'\'') => quote = Some(*byte),
            Some(open) if open == *byte => quote = None,
            _ => {}
        }
    }
    quote
}

/// The end tag of a start tag.
fn end_of(start: &[u8]) -> Vec<u8> {
    let name = start.get(1..).unwrap_or_default();
    let length = name
        .iter()
        .position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/'));
    let name = name.get(..length.unwrap_or(name.len())).unwrap_or_default();
    [b"</", name, b">"].concat()
}
