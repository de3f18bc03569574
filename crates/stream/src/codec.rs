//! Elements as bytes, for the log.
//!
//! A record is the version of the schema, then the element without its position and source time
//! (the log keeps both), in `postcard`. The receive time is written as its distance from the source
//! time, which is short. Bytes after the element are an error: a record is read whole or not at all.

use serde::{Deserialize, Serialize};

use crate::{Position, Quality, StreamElement, Timestamp, Value};

/// Largest record in bytes; reason: a reader holds one whole, and the longest honest waveform
/// stretch (100,000 samples) takes 800 kB.
pub const RECORD_BYTES_MAX: usize = 2 << 20;

#[derive(Serialize)]
struct BodyRef<'a> {
    schema_version: u32,
    delay_ns: i64,
    quality: Quality,
    key: Option<&'a str>,
    values: &'a [Value],
}

#[derive(Deserialize)]
struct Body {
    schema_version: u32,
    delay_ns: i64,
    quality: Quality,
    key: Option<String>,
    values: Vec<Value>,
}

/// Bytes that are no element, or an element that is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes do not decode.
    #[error("the record does not decode: {0}")]
    Malformed(String),
    /// The element takes more than [`RECORD_BYTES_MAX`].
    #[error("the element takes {0} bytes, more than {RECORD_BYTES_MAX}")]
    TooLarge(usize),
}

/// The record of `element` under version `schema_version` of its stream's schema.
///
/// # Errors
/// An element that is too large.
pub fn encode_element(element: &StreamElement, schema_version: u32) -> Result<Vec<u8>, CodecError> {
    let body = BodyRef {
        schema_version,
        delay_ns: element.receive_time.0.wrapping_sub(element.source_time.0),
        quality: element.quality,
        key: element.key.as_deref(),
        values: &element.values,
    };
    let bytes =
        postcard::to_allocvec(&body).map_err(|error| CodecError::Malformed(error.to_string()))?;
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

/// The element of a record that the log keeps at `position` with time `source_time`, and the
/// version of its schema.
///
/// # Errors
/// Bytes that are no record, or more than one.
pub fn decode_element(
    bytes: &[u8],
    position: Position,
    source_time: Timestamp,
) -> Result<(StreamElement, u32), CodecError> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    let (body, rest) = postcard::take_from_bytes::<Body>(bytes)
        .map_err(|error| CodecError::Malformed(error.to_string()))?;
    if !rest.is_empty() {
        let rest = rest.len();
        return Err(CodecError::Malformed(format!("{rest} bytes too many")));
    }
    let element = StreamElement {
        position,
        source_time,
        receive_time: Timestamp(source_time.0.wrapping_add(body.delay_ns)),
        key: body.key,
        values: body.values,
        quality: body.quality,
    };
    Ok((element, body.schema_version))
}
