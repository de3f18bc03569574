//! The byte format of messages: fixed-size numbers big-endian, others as LEB128.

use alloc::vec::Vec;

use crate::error::Malformed;

/// The largest datagram: with the headers of IPv6 and UDP it fits every IPv6 path (1,280 bytes).
pub const DATAGRAM_BYTES_MAX: usize = 1_232;

/// Appends to a datagram.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            // Only the low byte is kept.
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

/// Parses a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn number(&mut self) -> Result<u32, Malformed> {
        let mut number = 0u32;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            let part = u32::from(byte & 0x7F);
            // Overflowing bits and a trailing zero byte are other forms of a number: only the
            // shortest one is accepted.
            if shift > 28 || (shift == 28 && part > 0xF) || (shift > 0 && byte == 0) {
                return Err(Malformed::Number);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Number)
    }
}
