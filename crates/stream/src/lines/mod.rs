//! Elements as text that any program can write: JSON, newline-delimited JSON, CSV (RFC 4180).
//!
//! A body is divided into records as it arrives ([`Splitter`]), and each record becomes one element of
//! a schema, or the reason why it is none ([`ElementReader`]). One bad record says nothing about the
//! next one. Memory is bounded by the longest record, not by the body.
//!
//! In JSON a record is one object, whose members are the fields and, if wanted, `source_time`
//! (RFC 3339), `key` and `quality`; the body is one object or an array of them. In CSV the first record
//! names the columns likewise, and an empty cell is null; `""` is an empty text. Bytes are base64,
//! samples are `{"start", "period_s", "values"}` and exist only in JSON.

mod csv;
mod json;
mod shape;
mod split;

use std::sync::Arc;

pub use shape::LineError;
pub use split::{Broken, Record, Splitter};

use crate::{StreamElement, StreamSchema, Timestamp};
use csv::Header;
use shape::Shape;

/// Longest record in bytes of text; reason: it is held whole, and the longest element that the log takes
/// is as long.
pub const LINE_BYTES_MAX: usize = crate::RECORD_BYTES_MAX;

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object, or an array of them (`application/json`).
    Json,
    /// One JSON object a line (`application/x-ndjson`).
    Ndjson,
    /// Comma-separated values with a header (`text/csv`).
    Csv,
}

/// One record of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The line on which it begins, from 1; in a JSON array, the number of the element.
    pub line: u64,
    /// Its index among the records that stand for elements, from 0; a CSV header is none.
    pub index: u64,
    /// The element, or why there is none.
    pub element: Result<StreamElement, LineError>,
}

/// Makes elements of the text of a body, piece by piece.
#[derive(Debug)]
pub struct ElementReader {
    splitter: Splitter,
    records: Records,
}

#[derive(Debug)]
struct Records {
    format: Format,
    shape: Shape,
    /// The columns of a CSV, once they are read.
    header: Option<Header>,
    /// The number of records so far.
    count: u64,
}

impl ElementReader {
    /// A reader of one body. Elements whose time is later than `future_ns` after their arrival are
    /// refused.
    #[must_use]
    pub fn new(format: Format, schema: Arc<StreamSchema>, future_ns: i64) -> Self {
        Self {
            splitter: Splitter::new(format),
            records: Records {
                format,
                shape: Shape::new(schema, future_ns),
                header: None,
                count: 0,
            },
        }
    }

    /// Reads the next bytes of the body, which arrive at `now`, and appends the records that they
    /// complete to `lines`. Each takes up to some hundred bytes of memory for two bytes of text.
    ///
    /// # Errors
    /// The body has lost its structure; the records before that point are in `lines`.
    pub fn push(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
        lines: &mut Vec<Line>,
    ) -> Result<(), Broken> {
        let records = &mut self.records;
        self.splitter
            .push(bytes, &mut |record| records.take(record, now, lines))
    }

    /// Ends the body.
    ///
    /// # Errors
    /// As for [`ElementReader::push`].
    pub fn finish(&mut self, now: Timestamp, lines: &mut Vec<Line>) -> Result<(), Broken> {
        let records = &mut self.records;
        self.splitter
            .finish(&mut |record| records.take(record, now, lines))
    }

    /// Bytes of the record that is not complete yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.splitter.held_bytes()
    }
}

impl Records {
    fn take(
        &mut self,
        record: Record<'_>,
        now: Timestamp,
        lines: &mut Vec<Line>,
    ) -> Result<(), Broken> {
        let line = record.line;
        if self.format == Format::Csv && self.header.is_none() {
            let broken = |error: LineError| Broken {
                line,
                reason: format!("the header: {error}"),
            };
            let text = record.text().map_err(broken)?;
            self.header = Some(Header::read(text, &self.shape).map_err(broken)?);
            return Ok(());
        }
        let element = record.text().and_then(|text| match &self.header {
            Some(header) => header.element(text, &self.shape, now),
            None => json::element(text, &self.shape, now),
        });
        lines.push(Line {
            line,
            index: self.count,
            element,
        });
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
