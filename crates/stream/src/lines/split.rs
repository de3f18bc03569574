//! Divides a body into records, holding one at a time.

use super::{Format, LINE_BYTES_MAX, LineError};

/// The byte order mark of UTF-8, with which some spreadsheets begin a file.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// A body that has lost its structure: nothing after this point can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Broken {
    /// The line, or in a JSON array the number of the element.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
}

/// One record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The line on which it begins, from 1; in a JSON array, the number of the element.
    pub line: u64,
    /// Its bytes; `None` when it is longer than [`LINE_BYTES_MAX`].
    pub bytes: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    pub(super) fn text(self) -> Result<&'a str, LineError> {
        let bytes = self.bytes.ok_or(LineError::TooLong)?;
        std::str::from_utf8(bytes).map_err(|_| LineError::Encoding)
    }
}

/// The part of a CSV cell at which the next byte is. A quote begins a cell in quotes only as its first byte: one
/// elsewhere is a mistake of its line and of no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Begin,
    Plain,
    Quoted,
    /// After a quote within a cell in quotes: it ends there, or the quote is doubled.
    Closed,
}

impl Cell {
    const fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::Closed,
            (Self::Quoted, _) | (Self::Begin | Self::Closed, b'"') => Self::Quoted,
            (_, b',') => Self::Begin,
            // The byte order mark.
            (Self::Begin, 0xef | 0xbb | 0xbf) => Self::Begin,
            _ => Self::Plain,
        }
    }
}

/// What the next byte is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Lines; for CSV with the part of a cell.
    Line(Cell),
    /// JSON, before the first value.
    Start,
    /// Before a value of the array; the first may be missing.
    Before { first: bool },
    /// In a value.
    Value {
        depth: u32,
        text: bool,
        escaped: bool,
    },
    /// After a value of the array.
    After,
    /// After the array or the only value.
    End,
}

/// Divides a body into records as it arrives.
#[derive(Debug)]
pub struct Splitter {
    format: Format,
    state: State,
    /// JSON: how much of the byte order mark has been read, all of it if there is none.
    mark: usize,
    /// JSON: the body is an array.
    is_array: bool,
    /// The current record.
    held: Vec<u8>,
    /// The current record is longer than may be held.
    is_too_long: bool,
    /// Lines that have ended; in JSON, values that have begun.
    lines: u64,
    /// The line on which the current record begins.
    begin: u64,
}

type Each<'f> = dyn FnMut(Record<'_>) -> Result<(), Broken> + 'f;

impl Splitter {
    /// A splitter of one body.
    #[must_use]
    pub fn new(format: Format) -> Self {
        let state = match format {
            Format::Json => State::Start,
            Format::Ndjson | Format::Csv => State::Line(Cell::Begin),
        };
        Self {
            format,
            state,
            mark: 0,
            is_array: false,
            held: Vec::new(),
            is_too_long: false,
            lines: 0,
            begin: 1,
        }
    }

    /// Bytes of the record that is not complete yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Reads the next bytes and hands out the records that they complete.
    ///
    /// # Errors
    /// The body has lost its structure, or the error of `each`.
    pub fn push(&mut self, bytes: &[u8], each: &mut Each<'_>) -> Result<(), Broken> {
        match self.format {
            Format::Json => self.push_json(bytes, each),
            Format::Ndjson | Format::Csv => self.push_lines(bytes, each),
        }
    }

    /// Ends the body, and hands out the last record when it lacks its line break.
    ///
    /// # Errors
    /// The body ends within a value, or the error of `each`.
    pub fn finish(&mut self, each: &mut Each<'_>) -> Result<(), Broken> {
        match self.state {
            State::Line(Cell::Quoted) => {
                self.lines = self.begin;
                Err(self.broken("the body ends within the cell in quotes that begins in this line"))
            }
            State::Line(_) => self.end_record(each),
            // A scalar ends with the body.
            State::Value {
                depth: 0,
                text: false,
                ..
            } if !self.is_array => {
                self.state = State::End;
                self.end_record(each)
            }
            State::End => Ok(()),
            State::Start => Err(self.broken("the body is empty")),
            _ => Err(self.broken("the body ends within its array")),
        }
    }

    fn push_lines(&mut self, bytes: &[u8], each: &mut Each<'_>) -> Result<(), Broken> {
        let is_csv = self.format == Format::Csv;
        let State::Line(mut cell) = self.state else {
            return Ok(());
        };
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            self.lines += u64::from(*byte == b'\n');
            if *byte == b'\n' && cell != Cell::Quoted {
                self.hold(&bytes[start..at]);
                start = at + 1;
                cell = Cell::Begin;
                self.state = State::Line(cell);
                self.end_record(each)?;
            } else if is_csv {
                cell = cell.after(*byte);
            }
        }
        self.state = State::Line(cell);
        self.hold(&bytes[start..]);
        Ok(())
    }

    fn push_json(&mut self, bytes: &[u8], each: &mut Each<'_>) -> Result<(), Broken> {
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if let State::Value {
                depth,
                text,
                escaped,
            } = self.state
            {
                let next = match (byte, text) {
                    (_, true) if escaped => (depth, true, false),
                    (b'\\', true) => (depth, true, true),
                    (b'"', _) => (depth, !text, false),
                    (b'{' | b'[', false) => (depth + 1, false, false),
                    (b'}' | b']', false) if depth > 0 => (depth - 1, false, false),
                    (b',' | b']', false) if depth == 0 && self.is_array => {
                        // A scalar is no element, which its reader says.
                        self.hold(&bytes[start..at]);
                        self.end_record(each)?;
                        self.state = match byte {
                            b',' => State::Before { first: false },
                            _ => State::End,
                        };
                        continue;
                    }
                    _ => (depth, text, false),
                };
                let (depth, text, escaped) = next;
                self.state = State::Value {
                    depth,
                    text,
                    escaped,
                };
                if depth == 0 && !text && matches!(byte, b'}' | b']') {
                    self.hold(&bytes[start..=at]);
                    self.end_record(each)?;
                    self.state = match self.is_array {
                        true => State::After,
                        false => State::End,
                    };
                }
                continue;
            }
            if self.skip_mark(*byte)? || byte.is_ascii_whitespace() {
                continue;
            }
            match (self.state, byte) {
                (State::Start, b'[') => {
                    self.is_array = true;
                    self.state = State::Before { first: true };
                }
                (State::Before { first: true }, b']') | (State::After, b']') => {
                    self.state = State::End;
                }
                (State::After, b',') => self.state = State::Before { first: false },
                (State::Start | State::Before { .. }, b',' | b']' | b'}') => {
                    return Err(self.broken("a value is missing"));
                }
                (State::Start | State::Before { .. }, _) => {
                    start = at;
                    self.lines += 1;
                    self.begin = self.lines;
                    self.state = State::Value {
                        depth: u32::from(matches!(byte, b'{' | b'[')),
                        text: *byte == b'"',
                        escaped: false,
                    };
                }
                (State::After, _) => return Err(self.broken("a comma or ] is missing")),
                _ => {
                    return Err(self.broken(
                        "the body continues after its value; send several as an array or as \
                         application/x-ndjson",
                    ));
                }
            }
        }
        if matches!(self.state, State::Value { .. }) {
            self.hold(&bytes[start..]);
        }
        Ok(())
    }

    /// Whether a byte of JSON outside of values belongs to the byte order mark, which may precede everything.
    fn skip_mark(&mut self, byte: u8) -> Result<bool, Broken> {
        let is_mark = MARK.get(self.mark) == Some(&byte);
        match self.mark {
            3.. => return Ok(false),
            0 if !is_mark => self.mark = MARK.len(),
            _ if !is_mark => return Err(self.broken("the body is not UTF-8")),
            _ => self.mark += 1,
        }
        Ok(is_mark)
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.held.len() + bytes.len() > LINE_BYTES_MAX {
            self.is_too_long = true;
            self.held = Vec::new();
        }
        if !self.is_too_long {
            self.held.extend_from_slice(bytes);
        }
    }

    fn end_record(&mut self, each: &mut Each<'_>) -> Result<(), Broken> {
        let line = self.begin;
        if self.format != Format::Json {
            self.begin = self.lines + 1;
        }
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let mut bytes = self.held.strip_suffix(b"\r").unwrap_or(&self.held);
        if line == 1 && self.format != Format::Json {
            bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
        }
        let is_blank = !is_too_long && bytes.iter().all(u8::is_ascii_whitespace);
        let outcome = match is_blank && self.format != Format::Json {
            true => Ok(()),
            false => each(Record {
                line,
                bytes: (!is_too_long).then_some(bytes),
            }),
        };
        self.held.clear();
        outcome
    }

    fn broken(&self, reason: &str) -> Broken {
        Broken {
            line: self.lines.max(1),
            reason: reason.to_owned(),
        }
    }
}
