//! The bytes of messages: a borrowing reader, and varints.
//!
//! A varint is an unsigned number in groups of seven bits, lowest first; the high bit marks that
//! more follow. Each number has one encoding: a last group of zero is refused.

use alloc::vec::Vec;

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// The length of `value` as a varint in bytes.
#[must_use]
pub const fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `value` as a varint.
pub fn write_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends the length of `bytes` as a varint, and the bytes.
pub fn write_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    write_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Reads from borrowed bytes; each method returns `None` if the bytes do not match, and must not be
/// called again.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their first.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// The number of bytes read so far.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Whether all bytes are read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.offset.checked_add(length)?;
        let taken = self.bytes.get(self.offset..end)?;
        self.offset = end;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.offset..];
        self.offset = self.bytes.len();
        rest
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.offset)?;
        self.offset += 1;
        Some(byte)
    }

    /// A varint in its one form.
    pub fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for group in 1..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * group as u32;
            // The tenth group has one bit of room.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return (byte != 0).then_some(value);
            }
        }
        None
    }

    /// A varint of 32 bits.
    pub fn varint_u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// A length as a varint followed by that many bytes, at most `limit`.
    pub fn bytes(&mut self, limit: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        if length > limit {
            return None;
        }
        self.take(length)
    }

    /// The same as UTF-8.
    pub fn text(&mut self, limit: usize) -> Option<&'a str> {
        core::str::from_utf8(self.bytes(limit)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_one_form() {
        for value in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_len(value), "{value}");
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
        }
        assert_eq!(Reader::new(&[0x80, 0]).varint(), None, "a longer zero");
        assert_eq!(Reader::new(&[0x80]).varint(), None, "cut off");
        assert_eq!(Reader::new(&[0xff; 10]).varint(), None, "more than 64 bits");
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
        assert_eq!(Reader::new(&[1, 2, 3]).rest(), [1, 2, 3]);
    }
}
