//! Delimited columns (RFC 4180, and what programs make of it).
//!
//! A path is the name of a column. An empty cell without quotes is null; `""` is an empty text. Blanks
//! around names are ignored, and around numbers. Rows are read without copying cells, unless a quote is doubled.

use std::borrow::Cow;

use toml::Spanned;

use super::{Names, OptionFault};
use crate::config::CsvConfig;
use crate::decoder::{Record, Sink, whole};
use crate::fault::{Fault, Location, Reason};
use crate::value::Raw;

/// Most columns; reason: the cells of a row are held.
const COLUMNS_MAX: usize = 4_096;

#[derive(Debug)]
pub(crate) struct CsvFormat {
    columns: Option<Vec<String>>,
    has_header: bool,
    delimiter: u8,
    quote: Option<u8>,
    comment: Option<u8>,
    skip_lines: u32,
    pub(crate) is_decimal_comma: bool,
    slots: Names,
}

/// The columns of a text.
#[derive(Debug, Clone)]
pub(crate) struct CsvHeader {
    names: Vec<String>,
    /// The column of each slot.
    columns: Vec<Option<usize>>,
}

/// The range of a cell's text.
#[derive(Debug, Clone, Copy)]
struct Cell {
    start: usize,
    end: usize,
    is_quoted: bool,
    has_doubled: bool,
}

fn character(
    option: Option<&Spanned<String>>,
    key: &'static str,
) -> Result<Option<u8>, OptionFault> {
    let Some(text) = option else { return Ok(None) };
    match text.get_ref().as_bytes() {
        [] => Ok(None),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(Some(*byte)),
        _ => {
            let message = format!("{:?} is not one ASCII character", text.get_ref());
            Err(OptionFault::new(text.span(), key, message))
        }
    }
}

impl CsvFormat {
    pub(crate) fn new(config: &CsvConfig) -> Result<Self, OptionFault> {
        let delimiter = character(config.delimiter.as_ref(), "delimiter")?;
        let quote = match &config.quote {
            Some(_) => character(config.quote.as_ref(), "quote")?,
            None => Some(b'"'),
        };
        let is_decimal_comma = match &config.decimal {
            None => false,
            Some(decimal) => match decimal.get_ref().as_str() {
                "." => false,
                "," => true,
                other => {
                    let message = format!("{other:?} is not \".\" or \",\"");
                    return Err(OptionFault::new(decimal.span(), "decimal", message));
                }
            },
        };
        let delimiter = delimiter.unwrap_or(b',');
        if quote == Some(delimiter) {
            let span = config.delimiter.as_ref().map_or(0..0, Spanned::span);
            let message = "delimiter and quote are the same";
            return Err(OptionFault::new(span, "delimiter", message));
        }
        let columns = match &config.columns {
            None => None,
            Some(columns) => {
                let (names, span) = (columns.get_ref(), columns.span());
                if let Err(reason) = check_columns(names) {
                    return Err(OptionFault::new(span, "columns", reason));
                }
                Some(names.clone())
            }
        };
        let has_header = match &config.header {
            None => columns.is_none(),
            Some(header) if !*header.get_ref() && columns.is_none() => {
                let message = "without a header the columns need names";
                return Err(OptionFault::new(header.span(), "header", message)
                    .hint("such as columns = [\"time\", \"celsius\"]"));
            }
            Some(header) => *header.get_ref(),
        };
        Ok(Self {
            columns,
            has_header,
            delimiter,
            quote,
            comment: character(config.comment.as_ref(), "comment")?,
            skip_lines: config.skip_lines,
            is_decimal_comma,
            slots: Names::default(),
        })
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        if let Some(columns) = &self.columns
            && !columns.iter().any(|column| column == path)
        {
            return Err(format!("{path:?} is not one of {}", columns.join(", ")));
        }
        self.slots.slot(path)
    }

    pub(crate) fn names(&self) -> Option<Vec<String>> {
        self.columns.clone()
    }

    fn header(&self, names: Vec<String>) -> CsvHeader {
        let column = |slot: &String| names.iter().position(|name| name == slot);
        CsvHeader {
            columns: self.slots.0.iter().map(column).collect(),
            names,
        }
    }

    pub(crate) fn decode(
        &self,
        text: &[u8],
        is_continuation: bool,
        sink: &mut Sink<'_>,
        held: &mut Option<CsvHeader>,
    ) -> Result<(), Box<Fault>> {
        let mut rows = Rows {
            text,
            at: 0,
            line: 1,
        };
        let mut header = held.take();
        if header.is_none() {
            if !is_continuation {
                (0..self.skip_lines).for_each(|_| rows.skip_line());
            }
            header = self.first_row(&mut rows, is_continuation)?;
        }
        let Some(header) = header else { return Ok(()) };
        let mut cells = Vec::with_capacity(header.names.len());
        while let Some(row) = rows.next(self, &mut cells) {
            let location = Location {
                record: sink.next_record(),
                line: row.line,
                byte: row.start as u64,
            };
            let (found, wanted) = (cells.len(), header.names.len());
            let reason = match (row.reason, std::str::from_utf8(&text[row.start..row.end])) {
                (Some(reason), _) => reason,
                (None, Err(_)) => Reason::Encoding,
                _ if found != wanted => Reason::Cells { found, wanted },
                (None, Ok(text)) => {
                    let record = Row {
                        text,
                        start: row.start,
                        quote: self.quote.unwrap_or(0),
                        cells: &cells,
                        header: &header,
                    };
                    if sink.record(location, &record).is_err() {
                        break;
                    }
                    continue;
                }
            };
            sink.fault(location, reason);
        }
        *held = Some(header);
        Ok(())
    }

    /// The header of a text; `None` if it has no row.
    fn first_row(
        &self,
        rows: &mut Rows<'_>,
        is_continuation: bool,
    ) -> Result<Option<CsvHeader>, Box<Fault>> {
        let configured = self.columns.clone();
        if let (Some(names), true) = (&configured, !self.has_header || is_continuation) {
            return Ok(Some(self.header(names.clone())));
        }
        let mut cells = Vec::new();
        let text = rows.text;
        let Some(row) = rows.next(self, &mut cells) else {
            return Ok(configured.map(|names| self.header(names)));
        };
        let location = Location {
            record: 0,
            line: row.line,
            byte: row.start as u64,
        };
        let fault = |reason| whole(location, reason);
        if let Some(reason) = row.reason {
            return Err(fault(reason));
        }
        if let Some(names) = configured {
            return Ok(Some(self.header(names)));
        }
        let row_text = std::str::from_utf8(&text[row.start..row.end]);
        let row_text = row_text.map_err(|_| fault(Reason::Encoding))?;
        let quote = self.quote.unwrap_or(0);
        let names = cells.iter().map(|cell| {
            let text = cell.text(row_text, row.start, quote);
            text.trim().to_owned()
        });
        let names: Vec<String> = names.collect();
        check_columns(&names)
            .map_err(|reason| fault(Reason::syntax(format!("the header: {reason}"))))?;
        Ok(Some(self.header(names)))
    }
}

fn check_columns(names: &[String]) -> Result<(), String> {
    if names.is_empty() || names.len() > COLUMNS_MAX {
        return Err(format!(
            "there are {} columns, not 1 to {COLUMNS_MAX}",
            names.len()
        ));
    }
    let mut sorted: Vec<&String> = names.iter().filter(|name| !name.is_empty()).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("the column {:?} occurs twice", pair[0])),
        None => Ok(()),
    }
}

impl Cell {
    fn text<'t>(&self, row: &'t str, start: usize, quote: u8) -> Cow<'t, str> {
        let text = &row[self.start - start..self.end - start];
        if !self.has_doubled {
            return Cow::Borrowed(text);
        }
        let quote = char::from(quote).to_string();
        Cow::Owned(text.replace(&quote.repeat(2), &quote))
    }
}

/// Finds the rows of a text.
struct Rows<'t> {
    text: &'t [u8],
    at: usize,
    line: u64,
}

struct RowRange {
    line: u64,
    start: usize,
    end: usize,
    reason: Option<Reason>,
}

impl Rows<'_> {
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return;
        }
        let end = rest.iter().position(|byte| *byte == b'\n');
        self.at += end.map_or(rest.len(), |end| end + 1);
        self.line += 1;
    }

    /// Finds the cells of the next row that is neither blank nor a comment.
    fn next(&mut self, format: &CsvFormat, cells: &mut Vec<Cell>) -> Option<RowRange> {
        loop {
            match self.text.get(self.at..)? {
                [] => return None,
                [first, ..] if format.comment == Some(*first) => self.skip_line(),
                [b'\n', ..] | [b'\r', b'\n', ..] => self.skip_line(),
                _ => break,
            }
        }
        let (start, line) = (self.at, self.line);
        cells.clear();
        let mut reason = None;
        loop {
            let is_last = match self.text.get(self.at) {
                Some(byte) if format.quote == Some(*byte) => {
                    self.quoted(format, cells, &mut reason)
                }
                _ => self.plain(format, cells, &mut reason),
            };
            if reason.is_some() || is_last {
                break;
            }
            if cells.len() > COLUMNS_MAX {
                reason = Some(Reason::syntax(format!(
                    "it has more than {COLUMNS_MAX} cells"
                )));
                break;
            }
        }
        if reason.is_some() {
            self.skip_line();
        }
        let mut end = self.at.min(self.text.len());
        if end > start && self.text[end - 1] == b'\n' {
            end -= 1;
        }
        Some(RowRange {
            line,
            start,
            end,
            reason,
        })
    }

    /// Reads a cell without quotes; whether it is the last of its row.
    fn plain(
        &mut self,
        format: &CsvFormat,
        cells: &mut Vec<Cell>,
        reason: &mut Option<Reason>,
    ) -> bool {
        let start = self.at;
        let rest = &self.text[start..];
        let is_end = |byte: &u8| *byte == format.delimiter || *byte == b'\n';
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        let mut end = start + length;
        let is_delimited = rest.get(length) == Some(&format.delimiter);
        self.at = (end + 1).min(self.text.len());
        if !is_delimited {
            self.line += 1;
            if end > start && self.text[end - 1] == b'\r' {
                end -= 1;
            }
        }
        if let Some(quote) = format.quote
            && self.text[start..end].contains(&quote)
        {
            let text = "a quote is inside a cell that does not start with one";
            *reason = Some(Reason::syntax(text));
            if !is_delimited {
                // The line is read to its end.
                self.at = end;
                self.line -= 1;
            }
            return true;
        }
        cells.push(Cell {
            start,
            end,
            is_quoted: false,
            has_doubled: false,
        });
        // A delimiter at the end of the text is followed by an empty cell.
        if is_delimited && self.at == self.text.len() {
            cells.push(Cell {
                start: self.at,
                end: self.at,
                is_quoted: false,
                has_doubled: false,
            });
            return true;
        }
        !is_delimited
    }

    /// Reads a cell in quotes; whether it is the last of its row.
    fn quoted(
        &mut self,
        format: &CsvFormat,
        cells: &mut Vec<Cell>,
        reason: &mut Option<Reason>,
    ) -> bool {
        let quote = format.quote.unwrap_or(b'"');
        let start = self.at + 1;
        let mut end = start;
        let mut has_doubled = false;
        loop {
            match self.text.get(end) {
                None => {
                    // The rest of the text was one cell: the next line is a row again.
                    *reason = Some(Reason::syntax("a cell in quotes has no closing quote"));
                    return true;
                }
                Some(byte) if *byte == quote => match self.text.get(end + 1) {
                    Some(next) if *next == quote => {
                        has_doubled = true;
                        end += 2;
                    }
                    _ => break,
                },
                Some(_) => end += 1,
            }
        }
        let lines = self.text[start..end].iter().filter(|byte| **byte == b'\n');
        let lines = lines.count() as u64;
        cells.push(Cell {
            start,
            end,
            is_quoted: true,
            has_doubled,
        });
        let after = &self.text[end + 1..];
        let (length, is_last) = match after {
            [] => (0, true),
            [byte, ..] if *byte == format.delimiter => (1, false),
            [b'\n', ..] => (1, true),
            [b'\r', b'\n', ..] => (2, true),
            [b'\r'] => (1, true),
            _ => {
                *reason = Some(Reason::syntax("a cell continues after its closing quote"));
                self.at = end + 1;
                self.line += lines;
                return true;
            }
        };
        self.at = end + 1 + length;
        self.line += lines + u64::from(is_last);
        if !is_last && self.at == self.text.len() {
            cells.push(Cell {
                start: self.at,
                end: self.at,
                is_quoted: false,
                has_doubled: false,
            });
            return true;
        }
        is_last
    }
}

struct Row<'r> {
    text: &'r str,
    /// The byte of the message at which `text` begins.
    start: usize,
    quote: u8,
    cells: &'r [Cell],
    header: &'r CsvHeader,
}

impl Row<'_> {
    fn cell(&self, column: usize) -> Raw<'_> {
        match self.cells.get(column) {
            Some(cell) if cell.is_quoted || cell.start < cell.end => {
                Raw::Text(cell.text(self.text, self.start, self.quote))
            }
            Some(_) => Raw::Null,
            None => Raw::Missing,
        }
    }
}

impl Record for Row<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        let column = self.header.columns.get(slot).copied().flatten();
        Ok(column.map_or(Raw::Missing, |column| self.cell(column)))
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        let column = self.header.names.iter().position(|other| other == name)?;
        match self.cell(column) {
            Raw::Text(text) => Some(text),
            _ => None,
        }
    }
}
