//! What the records of a body must look like, and why one does not.

use std::sync::Arc;

use crate::{
    Field, Quality, RECORD_BYTES_MAX, RECORD_HEAD_BYTES, StreamElement, StreamSchema, Timestamp,
    Value,
};

/// Fields that an error names.
const NAMED_MAX: usize = 16;
/// Characters of a text that an error repeats.
const SHOWN_MAX: usize = 64;

/// Why a record is no element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is longer than [`super::LINE_BYTES_MAX`].
    #[error("it is longer than {} bytes", super::LINE_BYTES_MAX)]
    TooLong,
    /// The element is larger than the log takes.
    #[error("the element takes more than {RECORD_BYTES_MAX} bytes")]
    TooLarge,
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    Encoding,
    /// It is not JSON, or not CSV.
    #[error("{0}")]
    Syntax(String),
    /// A name that the schema does not have.
    #[error("unknown field {field:?}; the stream has {known}")]
    Unknown {
        /// The name.
        field: String,
        /// The fields.
        known: String,
    },
    /// A name that occurs twice.
    #[error("{0:?} occurs twice")]
    Twice(String),
    /// A value of another type.
    #[error("field {field:?} is of type {wanted}, not {found}")]
    Type {
        /// The field.
        field: String,
        /// Its type.
        wanted: &'static str,
        /// The value.
        found: String,
    },
    /// A number that is not finite.
    #[error("field {0:?} is not a finite number")]
    NotFinite(String),
    /// A text that is no time.
    #[error("{field}: {text:?} is not a time; write it as 2026-11-21T10:00:00Z")]
    Time {
        /// The member.
        field: &'static str,
        /// The text.
        text: String,
    },
    /// A time in the future.
    #[error("source_time: {text} is more than {limit_s} s ahead of this node's clock")]
    Future {
        /// The time.
        text: String,
        /// The limit.
        limit_s: i64,
    },
    /// A quality that is none.
    #[error("quality: {0:?} is not good, questionable or bad")]
    Quality(String),
    /// A key for a stream without keys, or none for a stream with keys.
    #[error("{0}")]
    Key(&'static str),
    /// No field has a value.
    #[error("it has no value")]
    Empty,
    /// Another number of cells than columns.
    #[error("it has {found} cells, the header {wanted}")]
    Cells {
        /// Cells.
        found: usize,
        /// Columns.
        wanted: usize,
    },
}

/// The member or column of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    /// When it happened.
    SourceTime,
    /// Which instance it is about.
    Key,
    /// How far it may be trusted.
    Quality,
    /// The field with this index.
    Field(usize),
}

/// The schema of the elements and the limits of their times.
#[derive(Debug)]
pub(super) struct Shape {
    schema: Arc<StreamSchema>,
    future_ns: i64,
}

/// An element that is being read.
#[derive(Debug)]
pub(super) struct Draft {
    values: Vec<Value>,
    source_time: Option<Timestamp>,
    key: Option<String>,
    quality: Quality,
}

impl Shape {
    pub(super) fn new(schema: Arc<StreamSchema>, future_ns: i64) -> Self {
        Self { schema, future_ns }
    }

    pub(super) fn width(&self) -> usize {
        self.schema.fields.len()
    }

    pub(super) fn field(&self, index: usize) -> &Field {
        &self.schema.fields[index]
    }

    /// The slot of a member or column.
    pub(super) fn slot(&self, name: &str) -> Result<Slot, LineError> {
        match name {
            "source_time" => return Ok(Slot::SourceTime),
            "key" => return Ok(Slot::Key),
            "quality" => return Ok(Slot::Quality),
            _ => {}
        }
        let fields = &self.schema.fields;
        if let Some(index) = fields.iter().position(|field| field.name == name) {
            return Ok(Slot::Field(index));
        }
        let known = fields.iter().take(NAMED_MAX).map(|it| it.name.as_str());
        let mut known = known.collect::<Vec<_>>().join(", ");
        if fields.len() > NAMED_MAX {
            known.push_str(", …");
        }
        Err(LineError::Unknown {
            field: shown(name),
            known,
        })
    }

    pub(super) fn draft(&self) -> Draft {
        Draft {
            values: vec![Value::Null; self.width()],
            source_time: None,
            key: None,
            quality: Quality::Good,
        }
    }

    /// The element of a draft that arrived at `now`.
    pub(super) fn finish(&self, draft: Draft, now: Timestamp) -> Result<StreamElement, LineError> {
        if draft.values.iter().all(|value| *value == Value::Null) {
            return Err(LineError::Empty);
        }
        match (&self.schema.key, &draft.key) {
            (None, Some(_)) => return Err(LineError::Key("the stream has no keys")),
            (Some(_), None) => return Err(LineError::Key("the stream needs a key")),
            _ => {}
        }
        let source_time = draft.source_time.unwrap_or(now);
        if source_time.0.saturating_sub(now.0) > self.future_ns {
            return Err(LineError::Future {
                text: source_time.to_string(),
                limit_s: self.future_ns / 1_000_000_000,
            });
        }
        let bytes = draft
            .values
            .iter()
            .map(Value::record_bytes_max)
            .sum::<usize>();
        let bytes = bytes + draft.key.as_ref().map_or(0, String::len);
        if bytes + RECORD_HEAD_BYTES > RECORD_BYTES_MAX {
            return Err(LineError::TooLarge);
        }
        Ok(StreamElement {
            position: Default::default(),
            source_time,
            receive_time: now,
            key: draft.key,
            values: draft.values,
            quality: draft.quality,
            origin: None,
        })
    }

    /// The error of a value that its field does not take.
    pub(super) fn wrong_type(&self, index: usize, found: &str) -> LineError {
        let field = self.field(index);
        LineError::Type {
            field: field.name.clone(),
            wanted: field.field_type.name(),
            found: shown(found),
        }
    }
}

impl Draft {
    pub(super) fn set(&mut self, index: usize, value: Value) {
        self.values[index] = value;
    }

    pub(super) fn set_time(&mut self, text: &str) -> Result<(), LineError> {
        self.source_time = Some(time("source_time", text)?);
        Ok(())
    }

    pub(super) fn set_key(&mut self, key: String) {
        self.key = Some(key);
    }

    pub(super) fn set_quality(&mut self, word: &str) -> Result<(), LineError> {
        self.quality = match word {
            "good" => Quality::Good,
            "questionable" => Quality::Questionable,
            "bad" => Quality::Bad,
            _ => return Err(LineError::Quality(shown(word))),
        };
        Ok(())
    }
}

pub(super) fn time(field: &'static str, text: &str) -> Result<Timestamp, LineError> {
    Timestamp::parse(text).ok_or_else(|| LineError::Time {
        field,
        text: shown(text),
    })
}

/// The integer that a decimal number with a fraction or an exponent stands for, if it is one exactly: `1.0` and `2e3`
/// are, `1.5` is not.
pub(super) fn integral(text: &str) -> Option<i64> {
    let (sign, text) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // The number is these digits times a power of ten.
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let zeros = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let zeros = i64::try_from(zeros).ok()? - i64::try_from(fraction.len()).ok()?;
    let power = u32::try_from(zeros + i64::from(exponent)).ok()?;
    let number = significant.parse::<i128>().ok()?;
    let number = number.checked_mul(10_i128.checked_pow(power)?)?;
    i64::try_from(sign * number).ok()
}

/// The beginning of a text.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}
