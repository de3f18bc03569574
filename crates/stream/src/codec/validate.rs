//! Validates the bytes of a record against a schema without decoding the element.
//!
//! Elements received over a link are stored unchanged after this check. It accepts exactly what
//! [`decode_element`](crate::decode_element) and [`StreamSchema::check`] accept together (a
//! property test verifies that), at about a tenth of the cost.

use super::{CodecError, ORIGIN_BYTES_MAX, RECORD_BYTES_MAX, RecordHead};
use crate::{FieldType, StreamSchema};

/// Checks that `bytes` are a record whose values match `schema`; returns its version of the schema.
///
/// # Errors
/// Bytes that are not a record, or values that do not match.
pub fn validate_record(bytes: &[u8], schema: &StreamSchema) -> Result<u32, CodecError> {
    if bytes.len() > RECORD_BYTES_MAX + ORIGIN_BYTES_MAX {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    let (head, body) = RecordHead::decode(bytes)?;
    validate_body(body, schema)?;
    Ok(head.schema_version)
}

pub(crate) fn validate_body(body: &[u8], schema: &StreamSchema) -> Result<(), CodecError> {
    let mut walk = Walk { rest: body };
    walk.varint("the receive time")?;
    if walk.varint32("the quality")? > 2 {
        return Err(malformed("the quality is not a known one"));
    }
    match walk.byte("the key")? {
        0 => {}
        1 => walk.text("the key")?,
        _ => return Err(malformed("the key is neither present nor absent")),
    }
    let values = walk.varint("the number of values")?;
    let fields = schema.fields.len();
    if values != fields as u64 {
        let why = format!("it has {values} values, its schema {fields} fields");
        return Err(malformed(why));
    }
    for field in &schema.fields {
        let found = walk.value(&field.name)?;
        if found.is_some_and(|found| found != field.field_type) {
            let (name, wanted) = (&field.name, field.field_type);
            return Err(malformed(format!("field {name:?} takes {wanted:?}")));
        }
    }
    match walk.rest.len() {
        0 => Ok(()),
        more => Err(malformed(format!("{more} surplus bytes"))),
    }
}

fn malformed(why: impl Into<String>) -> CodecError {
    CodecError::Malformed(why.into())
}

/// The bytes that are not read yet.
struct Walk<'a> {
    rest: &'a [u8],
}

impl<'a> Walk<'a> {
    fn byte(&mut self, what: &str) -> Result<u8, CodecError> {
        let (byte, rest) = self.rest.split_first().ok_or_else(|| cut(what))?;
        self.rest = rest;
        Ok(*byte)
    }

    fn varint(&mut self, what: &str) -> Result<u64, CodecError> {
        let (number, rest) = read_varint(self.rest).ok_or_else(|| cut(what))?;
        self.rest = rest;
        Ok(number)
    }

    /// A number that the codec reads with 32 bits, in at most five bytes.
    fn varint32(&mut self, what: &str) -> Result<u64, CodecError> {
        let before = self.rest.len();
        let number = self.varint(what)?;
        if before - self.rest.len() > 5 || number > u64::from(u32::MAX) {
            return Err(malformed(format!("{what} is larger than 32 bits")));
        }
        Ok(number)
    }

    fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], CodecError> {
        let length = usize::try_from(length).map_err(|_| cut(what))?;
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| cut(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn text(&mut self, what: &str) -> Result<(), CodecError> {
        let length = self.varint(what)?;
        let bytes = self.take(length, what)?;
        match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(malformed(format!("{what} is not UTF-8"))),
        }
    }

    /// Skips a value; returns its type, none for null. The numbers are those of the variants of
    /// [`crate::Value`].
    fn value(&mut self, what: &str) -> Result<Option<FieldType>, CodecError> {
        let variant = self.varint32(what)?;
        Ok(Some(match variant {
            0 => return Ok(None),
            1 => match self.byte(what)? {
                0 | 1 => FieldType::Boolean,
                _ => return Err(malformed(format!("{what} is neither true nor false"))),
            },
            2 => {
                self.varint(what)?;
                FieldType::Integer
            }
            3 => {
                self.take(8, what)?;
                FieldType::Double
            }
            4 => {
                self.text(what)?;
                FieldType::Text
            }
            5 => {
                let length = self.varint(what)?;
                self.take(length, what)?;
                FieldType::Bytes
            }
            6 => {
                self.varint(what)?;
                self.varint(what)?;
                let samples = self.varint(what)?;
                let bytes = samples.checked_mul(8).ok_or_else(|| cut(what))?;
                self.take(bytes, what)?;
                FieldType::Samples
            }
            _ => return Err(malformed(format!("{what} has a value of no known type"))),
        }))
    }
}

fn cut(what: &str) -> CodecError {
    malformed(format!("it ends within {what}"))
}

/// The number at the start and the rest; none if it is truncated or above 64 bits.
pub(crate) fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        if index == 9 && *byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// Appends `number`, seven bits a byte, the lowest first.
pub(crate) fn write_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
