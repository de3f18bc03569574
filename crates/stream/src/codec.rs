//! Elements as bytes, for the log.
//!
//! A record is a varint, then the element without its position and source time (the log keeps
//! both), in `postcard`. The varint's low eight bits are the version of the schema; its ninth bit
//! marks an element that came over a link, whose position at the origin follows (epoch and sequence
//! number, both as varints). The receive time is encoded as its distance from the source time,
//! which is short. Bytes after the element are an error: a record is decoded entirely or not at
//! all.

mod validate;

use serde::{Deserialize, Serialize};

pub use validate::validate_record;
use validate::write_varint;
pub(crate) use validate::{read_varint, validate_body};

use crate::{Epoch, Position, Quality, SCHEMA_VERSIONS_MAX, StreamElement, Timestamp, Value};

/// Maximum length of a record in bytes, without the origin; reason: a reader holds an entire one,
/// and the longest honest waveform (100,000 samples) takes 800 kB.
pub const RECORD_BYTES_MAX: usize = 2 << 20;

/// Room of a record for all but its key and values ([`Value::record_bytes_max`]).
pub const RECORD_HEAD_BYTES: usize = 64;

/// Maximum number of bytes added by an origin: two for the flag in the leading varint, ten per
/// number.
const ORIGIN_BYTES_MAX: usize = 22;

/// Set in the leading varint when an origin follows.
const ORIGIN_FOLLOWS: u64 = 1 << 8;

#[derive(Serialize)]
struct BodyRef<'a> {
    delay_ns: i64,
    quality: Quality,
    key: Option<&'a str>,
    values: &'a [Value],
}

#[derive(Deserialize)]
struct Body {
    delay_ns: i64,
    quality: Quality,
    key: Option<String>,
    values: Vec<Value>,
}

/// Bytes that are not an element, or an element that cannot be a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes do not decode.
    #[error("the record cannot be decoded: {0}")]
    Malformed(String),
    /// The element takes more than [`RECORD_BYTES_MAX`].
    #[error("the element takes {0} bytes, more than {RECORD_BYTES_MAX}")]
    TooLarge(usize),
    /// The version of the schema is beyond [`SCHEMA_VERSIONS_MAX`].
    #[error("schema version {0} is beyond the limit of {SCHEMA_VERSIONS_MAX}")]
    Version(u32),
}

/// The part of a record before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// The version of the schema.
    pub(crate) schema_version: u32,
    /// The position of the element at its origin.
    pub(crate) origin: Option<Position>,
}

impl RecordHead {
    /// Splits a record into head and body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), CodecError> {
        let cut = || CodecError::Malformed("the record ends within its head".into());
        let (lead, mut rest) = read_varint(bytes).ok_or_else(cut)?;
        if lead >= ORIGIN_FOLLOWS << 1 {
            let why = format!(
                "unknown head {lead:#x}; this program reads heads below {:#x} (hint: use the program that \
                 wrote it, or a newer one)",
                ORIGIN_FOLLOWS << 1
            );
            return Err(CodecError::Malformed(why));
        }
        let mut origin = None;
        if lead & ORIGIN_FOLLOWS != 0 {
            let (epoch, after_epoch) = read_varint(rest).ok_or_else(cut)?;
            let (sequence, after) = read_varint(after_epoch).ok_or_else(cut)?;
            rest = after;
            let epoch = Epoch(epoch);
            origin = Some(Position { epoch, sequence });
        }
        let schema_version = (lead & (ORIGIN_FOLLOWS - 1)) as u32;
        let head = Self {
            schema_version,
            origin,
        };
        Ok((head, rest))
    }

    /// Appends the head to `bytes`.
    pub(crate) fn encode(self, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        if self.schema_version as usize >= SCHEMA_VERSIONS_MAX {
            return Err(CodecError::Version(self.schema_version));
        }
        let version = u64::from(self.schema_version);
        match self.origin {
            None => write_varint(version, bytes),
            Some(origin) => {
                write_varint(version | ORIGIN_FOLLOWS, bytes);
                write_varint(origin.epoch.0, bytes);
                write_varint(origin.sequence, bytes);
            }
        }
        Ok(())
    }
}

/// The version of the schema stated in a record.
///
/// # Errors
/// Bytes that do not start a record.
pub fn record_version(bytes: &[u8]) -> Result<u32, CodecError> {
    Ok(RecordHead::decode(bytes)?.0.schema_version)
}

/// The record of `element` under version `schema_version` of its stream's schema.
///
/// # Errors
/// An element that is too large, or a version beyond the limit.
pub fn encode_element(element: &StreamElement, schema_version: u32) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(64);
    write_element(element, schema_version, &mut bytes)?;
    Ok(bytes)
}

/// Bytes to which an encoding is appended.
struct Behind<'a>(&'a mut Vec<u8>);

impl Extend<u8> for Behind<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

/// Like [`encode_element`], appended to `bytes`; after an error `bytes` holds a part of it.
pub(crate) fn write_element(
    element: &StreamElement,
    schema_version: u32,
    bytes: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let body = BodyRef {
        delay_ns: element.receive_time.0.wrapping_sub(element.source_time.0),
        quality: element.quality,
        key: element.key.as_deref(),
        values: &element.values,
    };
    let head = RecordHead {
        schema_version,
        origin: element.origin,
    };
    head.encode(bytes)?;
    let head_bytes = bytes.len();
    postcard::to_extend(&body, Behind(bytes))
        .map_err(|error| CodecError::Malformed(error.to_string()))?;
    let body_bytes = bytes.len() - head_bytes;
    match body_bytes >= RECORD_BYTES_MAX {
        true => Err(CodecError::TooLarge(body_bytes)),
        false => Ok(()),
    }
}

/// Appends a checked `body` with another delay between source time and receive time. If the new
/// delay takes more bytes than available, the body is unchanged.
pub(crate) fn write_body(body: &[u8], delay_ns: i64, bytes: &mut Vec<u8>) {
    let before = bytes.len();
    if let Some((_, rest)) = read_varint(body) {
        // Like postcard encodes a signed number.
        write_varint(((delay_ns << 1) ^ (delay_ns >> 63)) as u64, bytes);
        bytes.extend_from_slice(rest);
        if bytes.len() - before < RECORD_BYTES_MAX {
            return;
        }
        bytes.truncate(before);
    }
    bytes.extend_from_slice(body);
}

/// The element of a record that the log keeps at `position` with time `source_time`, and the
/// version of its schema.
///
/// # Errors
/// Bytes that are not a record, or more than one.
pub fn decode_element(
    bytes: &[u8],
    position: Position,
    source_time: Timestamp,
) -> Result<(StreamElement, u32), CodecError> {
    if bytes.len() > RECORD_BYTES_MAX + ORIGIN_BYTES_MAX {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    let (head, body) = RecordHead::decode(bytes)?;
    let (body, rest) = postcard::take_from_bytes::<Body>(body)
        .map_err(|error| CodecError::Malformed(error.to_string()))?;
    if !rest.is_empty() {
        let rest = rest.len();
        return Err(CodecError::Malformed(format!("{rest} surplus bytes")));
    }
    let element = StreamElement {
        position,
        source_time,
        receive_time: Timestamp(source_time.0.wrapping_add(body.delay_ns)),
        key: body.key,
        values: body.values,
        quality: body.quality,
        origin: head.origin,
    };
    Ok((element, head.schema_version))
}
