//! Encodes and decodes the part of MessagePack that documents need.
//!
//! Source: the MessagePack specification (version 5, with `bin` and `str`). The reader accepts any
//! width, the writer uses the shortest. Extension types are skipped.

use super::SerializationError;

/// Deepest nesting that is skipped.
const DEPTH_MAX: usize = 8;

pub(super) fn nil(bytes: &mut Vec<u8>) {
    bytes.push(0xc0);
}

pub(super) fn boolean(flag: bool, bytes: &mut Vec<u8>) {
    bytes.push(0xc2 + u8::from(flag));
}

pub(super) fn unsigned(number: u64, bytes: &mut Vec<u8>) {
    match number {
        0..=0x7f => bytes.push(number as u8),
        0x80..=0xff => bytes.extend([0xcc, number as u8]),
        0x100..=0xffff => tagged(0xcd, &(number as u16).to_be_bytes(), bytes),
        0x1_0000..=0xffff_ffff => tagged(0xce, &(number as u32).to_be_bytes(), bytes),
        _ => tagged(0xcf, &number.to_be_bytes(), bytes),
    }
}

pub(super) fn signed(number: i64, bytes: &mut Vec<u8>) {
    match number {
        0.. => unsigned(number.unsigned_abs(), bytes),
        -0x20..=-1 => bytes.push(number as u8),
        -0x80..=-0x21 => bytes.extend([0xd0, number as u8]),
        -0x8000..=-0x81 => tagged(0xd1, &(number as i16).to_be_bytes(), bytes),
        -0x8000_0000..=-0x8001 => tagged(0xd2, &(number as i32).to_be_bytes(), bytes),
        _ => tagged(0xd3, &number.to_be_bytes(), bytes),
    }
}

pub(super) fn double(number: f64, bytes: &mut Vec<u8>) {
    tagged(0xcb, &number.to_bits().to_be_bytes(), bytes);
}

pub(super) fn text(text: &str, bytes: &mut Vec<u8>) {
    match text.len() {
        length @ 0..=31 => bytes.push(0xa0 | length as u8),
        length @ 32..=0xff => bytes.extend([0xd9, length as u8]),
        length => sized(length, 0xda, bytes),
    }
    bytes.extend_from_slice(text.as_bytes());
}

pub(super) fn binary(data: &[u8], bytes: &mut Vec<u8>) {
    match data.len() {
        length @ 0..=0xff => bytes.extend([0xc4, length as u8]),
        length => sized(length, 0xc5, bytes),
    }
    bytes.extend_from_slice(data);
}

pub(super) fn array(length: usize, bytes: &mut Vec<u8>) {
    match length {
        0..=15 => bytes.push(0x90 | length as u8),
        _ => sized(length, 0xdc, bytes),
    }
}

pub(super) fn map(length: usize, bytes: &mut Vec<u8>) {
    match length {
        0..=15 => bytes.push(0x80 | length as u8),
        _ => sized(length, 0xde, bytes),
    }
}

fn sized(length: usize, tag: u8, bytes: &mut Vec<u8>) {
    match u16::try_from(length) {
        Ok(length) => tagged(tag, &length.to_be_bytes(), bytes),
        // Documents are far below 4 GiB.
        Err(_) => tagged(tag + 1, &(length as u32).to_be_bytes(), bytes),
    }
}

fn tagged(tag: u8, data: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(tag);
    bytes.extend_from_slice(data);
}

/// A value without its contents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Item<'a> {
    Nil,
    Boolean(bool),
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Text(&'a str),
    Binary(&'a [u8]),
    Array(usize),
    Map(usize),
    Other,
}

/// Reads values one after another.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn malformed(&self, why: impl Into<String>) -> SerializationError {
        SerializationError::Malformed {
            offset: self.offset,
            why: why.into(),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], SerializationError> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..length).ok_or(SerializationError::Incomplete)?;
        self.offset += length;
        Ok(taken)
    }

    fn big_endian(&mut self, width: usize) -> Result<u64, SerializationError> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn length(&mut self, width: usize) -> Result<usize, SerializationError> {
        Ok(usize::try_from(self.big_endian(width)?).unwrap_or(usize::MAX))
    }

    fn utf8(&mut self, length: usize) -> Result<Item<'a>, SerializationError> {
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Item::Text(text)),
            Err(_) => Err(self.malformed("a text is not UTF-8")),
        }
    }

    pub(super) fn item(&mut self) -> Result<Item<'a>, SerializationError> {
        let tag = self.take(1)?[0];
        Ok(match tag {
            0x00..=0x7f => Item::Unsigned(u64::from(tag)),
            0x80..=0x8f => Item::Map(usize::from(tag & 0x0f)),
            0x90..=0x9f => Item::Array(usize::from(tag & 0x0f)),
            0xa0..=0xbf => self.utf8(usize::from(tag & 0x1f))?,
            0xc0 => Item::Nil,
            0xc1 => return Err(self.malformed("the byte 0xc1 is never used")),
            0xc2 | 0xc3 => Item::Boolean(tag == 0xc3),
            0xc4..=0xc6 => {
                let length = self.length(1 << (tag - 0xc4))?;
                Item::Binary(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (tag - 0xc7))?;
                self.take(length.saturating_add(1))?;
                Item::Other
            }
            0xca => Item::Double(f64::from(f32::from_bits(self.big_endian(4)? as u32))),
            0xcb => Item::Double(f64::from_bits(self.big_endian(8)?)),
            0xcc..=0xcf => Item::Unsigned(self.big_endian(1 << (tag - 0xcc))?),
            0xd0 => Item::Signed(i64::from(self.big_endian(1)? as u8 as i8)),
            0xd1 => Item::Signed(i64::from(self.big_endian(2)? as u16 as i16)),
            0xd2 => Item::Signed(i64::from(self.big_endian(4)? as u32 as i32)),
            0xd3 => Item::Signed(self.big_endian(8)? as i64),
            0xd4..=0xd8 => {
                self.take((1 << (tag - 0xd4)) + 1)?;
                Item::Other
            }
            0xd9..=0xdb => {
                let length = self.length(1 << (tag - 0xd9))?;
                self.utf8(length)?
            }
            0xdc | 0xdd => Item::Array(self.length(2 << (tag - 0xdc))?),
            0xde | 0xdf => Item::Map(self.length(2 << (tag - 0xde))?),
            0xe0..=0xff => Item::Signed(i64::from(tag as i8)),
        })
    }

    /// Skips a value and its contents.
    pub(super) fn skip(&mut self) -> Result<(), SerializationError> {
        self.skip_within(DEPTH_MAX)
    }

    fn skip_within(&mut self, depth: usize) -> Result<(), SerializationError> {
        let inside = match self.item()? {
            Item::Array(length) => length,
            Item::Map(length) => length.saturating_mul(2),
            _ => return Ok(()),
        };
        if depth == 0 {
            return Err(self.malformed("nested too deeply"));
        }
        // Each takes a byte at least, so the length of the input bounds this.
        (0..inside).try_for_each(|_| self.skip_within(depth - 1))
    }

    pub(super) fn map(&mut self, what: &str) -> Result<usize, SerializationError> {
        match self.item()? {
            Item::Map(length) => Ok(length),
            _ => Err(self.malformed(format!("{what} is not a map"))),
        }
    }

    pub(super) fn array(&mut self, what: &str) -> Result<usize, SerializationError> {
        match self.item()? {
            Item::Array(length) => Ok(length),
            _ => Err(self.malformed(format!("{what} is not an array"))),
        }
    }

    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, SerializationError> {
        match self.item()? {
            Item::Text(text) => Ok(text),
            _ => Err(self.malformed(format!("{what} is not a text"))),
        }
    }

    pub(super) fn optional_text(
        &mut self,
        what: &str,
    ) -> Result<Option<&'a str>, SerializationError> {
        match self.item()? {
            Item::Text(text) => Ok(Some(text)),
            Item::Nil => Ok(None),
            _ => Err(self.malformed(format!("{what} is not a text"))),
        }
    }

    pub(super) fn unsigned(&mut self, what: &str) -> Result<u64, SerializationError> {
        match self.item()? {
            Item::Unsigned(number) => Ok(number),
            _ => Err(self.malformed(format!("{what} is not an unsigned integer"))),
        }
    }

    pub(super) fn signed(&mut self, what: &str) -> Result<i64, SerializationError> {
        match self.item()? {
            Item::Signed(number) => Ok(number),
            Item::Unsigned(number) if i64::try_from(number).is_ok() => Ok(number as i64),
            _ => Err(self.malformed(format!("{what} is not a 64-bit integer"))),
        }
    }
}
