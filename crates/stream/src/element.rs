//! The common element: produced by every wrapper and consumed by every exporter.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The lineage of a stream's numbers.
///
/// A log that is recreated or restored from a backup gets a new one, so that (stream, epoch,
/// sequence) never identifies two elements. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// The position of an element in its stream. Written `epoch:sequence`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position {
    /// The lineage.
    pub epoch: Epoch,
    /// The number, increasing by one from 1; a new epoch continues counting.
    pub sequence: u64,
}

/// One element of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamElement {
    /// Its position; zero until the log has numbered it.
    pub position: Position,
    /// The time of the event according to the source.
    pub source_time: Timestamp,
    /// The time when this node received it.
    pub receive_time: Timestamp,
    /// The instance of the stream's subject, for streams with a key.
    pub key: Option<String>,
    /// One value for each field of the schema, in its order.
    pub values: Vec<Value>,
    /// The reliability of the values.
    pub quality: Quality,
    /// The position at its origin, for an element received over a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Position>,
}

/// The reliability of an element's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// The source vouches for them.
    #[default]
    Good,
    /// The source doubts them: calibration, range, ongoing measurement.
    Questionable,
    /// The source marks them as wrong.
    Bad,
}

/// A typed value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Double(f64),
    /// Text.
    Text(String),
    /// Opaque bytes.
    Bytes(Vec<u8>),
    /// A block of a waveform.
    Samples(Samples),
}

/// Evenly spaced samples: a waveform has one element per block, not one per sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Samples {
    /// Time of the first sample.
    pub start: Timestamp,
    /// Nanoseconds from one sample to the next.
    pub period_ns: u64,
    /// The samples, in the field's unit.
    pub values: Vec<f64>,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

/// A text that is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a position: write 16 hexadecimal digits, a colon and a number")]
pub struct PositionError(String);

impl FromStr for Position {
    type Err = PositionError;
    fn from_str(text: &str) -> Result<Self, PositionError> {
        let error = || PositionError(text.chars().take(64).collect());
        let (epoch, sequence) = text.split_once(':').ok_or_else(error)?;
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| error())?;
        let sequence = sequence.parse().map_err(|_| error())?;
        Ok(Self {
            epoch: Epoch(epoch),
            sequence,
        })
    }
}
