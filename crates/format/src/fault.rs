//! Why a message, or a record of it, is not an element.

use std::fmt;

/// Characters of a text that a fault repeats.
const SHOWN_MAX: usize = 64;

/// Where a record is in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Location {
    /// The number of the record, from 1; 0: the message itself.
    pub record: u64,
    /// The line, from 1; 0: the format has no lines.
    pub line: u64,
    /// The byte; for JSON records and XML elements 0, because their parsers keep none.
    pub byte: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.record, self.line) {
            (0, 0) => f.write_str("message")?,
            (0, line) => write!(f, "line {line}")?,
            (record, 0) => write!(f, "record {record}")?,
            (record, line) => write!(f, "record {record}, line {line}")?,
        }
        match self.byte {
            0 => Ok(()),
            byte => write!(f, ", byte {byte}"),
        }
    }
}

/// A record that gave no element of a stream, or a message that gave none at all. Written
/// `record 3, line 4: climate.{line}: field "celsius": ...`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The position.
    pub location: Location,
    /// The stream's name as configured, if the fault is of one stream.
    pub stream: Option<String>,
    /// The field, if it is of one field.
    pub field: Option<String>,
    /// The reason.
    pub reason: Reason,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if let Some(stream) = &self.stream {
            write!(f, "{stream}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "field {field:?}: ")?;
        }
        self.reason.fmt(f)
    }
}

impl std::error::Error for Fault {}

/// The reason of a [`Fault`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A limit of [`Limits`](crate::Limits) or of the configuration is exceeded.
    #[error("limit {limit} of {bound} is exceeded")]
    Limit {
        /// Its name.
        limit: &'static str,
        /// Its value.
        bound: u64,
    },
    /// The text does not follow the format.
    #[error("{0}")]
    Syntax(String),
    /// The text is not UTF-8.
    #[error("it is not UTF-8")]
    Encoding,
    /// The regular expression does not match.
    #[error("the expression does not match {0:?}")]
    Unmatched(String),
    /// Another number of cells than columns.
    #[error("the row has {found} cells, the header {wanted}")]
    Cells {
        /// Cells.
        found: usize,
        /// Columns.
        wanted: usize,
    },
    /// A checksum that is missing or wrong.
    #[error("{0}")]
    Checksum(String),
    /// The message ends within a record.
    #[error("the record needs {wanted} bytes, the message has {found} left")]
    Short {
        /// Bytes needed.
        wanted: u64,
        /// Bytes left.
        found: u64,
    },
    /// A value of another type.
    #[error("{found} is not of type {wanted}")]
    Type {
        /// The type of the field.
        wanted: &'static str,
        /// The value, shortened.
        found: String,
    },
    /// A whole number outside 64 bits.
    #[error("{0} does not fit an integer of 64 bits")]
    Range(String),
    /// A number that is not finite.
    #[error("the number is not finite")]
    NotFinite,
    /// A required value is missing.
    #[error("the value is required and missing")]
    Missing,
    /// A time that cannot be read.
    #[error("{found:?} is not a time of the form {wanted}")]
    Time {
        /// The text, shortened.
        found: String,
        /// The expected form.
        wanted: String,
    },
    /// A time in the future.
    #[error("the time {found} is more than {limit_s} s ahead of this node's clock")]
    Future {
        /// The time.
        found: String,
        /// The limit.
        limit_s: i64,
    },
    /// A unit that does not convert.
    #[error("{0}")]
    Unit(String),
    /// A placeholder without a value.
    #[error("there is no value for {{{0}}}")]
    NoValue(String),
    /// A value that cannot be part of a name.
    #[error("{0}")]
    Name(String),
    /// The placeholders of a stream name have made as many streams as they may.
    #[error("the placeholders have made {0} streams, as many as streams_max allows")]
    Streams(u32),
    /// No stream has a value in the record.
    #[error("no field of any stream has a value in it")]
    Empty,
    /// The element is larger than the log takes.
    #[error(
        "the element takes more than {} bytes",
        chappe_stream::RECORD_BYTES_MAX
    )]
    TooLarge,
}

impl Reason {
    /// A short word for counters.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Limit { .. } => "limit",
            Self::Syntax(_) => "syntax",
            Self::Encoding => "encoding",
            Self::Unmatched(_) => "unmatched",
            Self::Cells { .. } => "cells",
            Self::Checksum(_) => "checksum",
            Self::Short { .. } => "short",
            Self::Type { .. } => "type",
            Self::Range(_) => "range",
            Self::NotFinite => "not_finite",
            Self::Missing => "missing",
            Self::Time { .. } => "time",
            Self::Future { .. } => "future",
            Self::Unit(_) => "unit",
            Self::NoValue(_) => "no_value",
            Self::Name(_) => "name",
            Self::Streams(_) => "streams",
            Self::Empty => "empty",
            Self::TooLarge => "too_large",
        }
    }

    pub(crate) fn syntax(text: impl Into<String>) -> Self {
        Self::Syntax(text.into())
    }
}

/// The beginning of a text.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
