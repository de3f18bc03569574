//! Asynchronous delivery: messages of one frame, `NAME: ` and the element.

use crate::kryo::{GsnElement, KryoError, decode_element, encode_element};

/// The beginning of the publications of a sensor, to which its readers subscribe. GSN's own subscribe to it without the
/// space.
#[must_use]
pub fn topic(sensor: &str) -> Vec<u8> {
    format!("{}: ", sensor.to_lowercase()).into_bytes()
}

/// The publication of an element.
///
/// # Errors
/// The element cannot be encoded.
pub fn write_publication(sensor: &str, element: &GsnElement) -> Result<Vec<u8>, KryoError> {
    encode_element(element, topic(sensor))
}

/// The element of a publication, or `None` if it is of another sensor.
///
/// # Errors
/// The element cannot be decoded.
pub fn read_publication(sensor: &str, frame: &[u8]) -> Result<Option<GsnElement>, KryoError> {
    match frame.strip_prefix(&topic(sensor)[..]) {
        Some(frame) => decode_element(frame).map(Some),
        None => Ok(None),
    }
}
