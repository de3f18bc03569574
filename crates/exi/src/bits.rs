//! Bits and bytes, in and out: n-bit unsigned integers (7.1.9), unsigned integers (7.1.6), characters.
//!
//! Bit-packed streams put bits one after another, the most significant first. Otherwise all is
//! aligned to bytes, and an n-bit integer takes the fewest bytes that hold n bits, the least
//! significant first.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Cause;

/// Whether items are packed into bits or aligned to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// One bit after another.
    Bits,
    /// Every item begins at a byte.
    Bytes,
}

/// How many bits tell `count` values apart: the logarithm to base 2, rounded up.
pub(crate) const fn width(count: u64) -> u32 {
    match count {
        0 | 1 => 0,
        _ => 64 - (count - 1).leading_zeros(),
    }
}

/// Writes to memory.
#[derive(Debug)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits not yet in `bytes`, at the low end; fewer than eight between calls.
    pending: u64,
    pending_bits: u32,
    packing: Packing,
}

impl BitWriter {
    pub(crate) fn new(packing: Packing) -> Self {
        Self {
            bytes: Vec::new(),
            pending: 0,
            pending_bits: 0,
            packing,
        }
    }

    /// Forgets what was written and keeps the room.
    pub(crate) fn clear(&mut self, packing: Packing) {
        self.bytes.clear();
        self.pending = 0;
        self.pending_bits = 0;
        self.packing = packing;
    }

    /// From here on, packed so; the rest of the present byte is filled with zeros if it must be.
    pub(crate) fn set_packing(&mut self, packing: Packing) {
        if packing == Packing::Bytes {
            self.align();
        }
        self.packing = packing;
    }

    /// Fills the present byte with zeros.
    pub(crate) fn align(&mut self) {
        if self.pending_bits > 0 {
            let byte = (self.pending << (8 - self.pending_bits)) as u8;
            self.bytes.push(byte);
            self.pending = 0;
            self.pending_bits = 0;
        }
    }

    /// Bits written so far.
    pub(crate) fn bit_offset(&self) -> u64 {
        self.bytes.len() as u64 * 8 + u64::from(self.pending_bits)
    }

    /// All bytes, the last one filled with zeros.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.align();
        &self.bytes
    }

    /// Bits as they are, whatever the packing; `count` is at most 32.
    pub(crate) fn raw_bits(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32 && (count == 32 || u64::from(value) < 1 << count));
        self.pending = self.pending << count | u64::from(value);
        self.pending_bits += count;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.bytes.push((self.pending >> self.pending_bits) as u8);
        }
        self.pending &= (1 << self.pending_bits) - 1;
    }

    /// An n-bit unsigned integer of at most 32 bits.
    pub(crate) fn bits(&mut self, value: u32, count: u32) {
        match self.packing {
            Packing::Bits => self.raw_bits(value, count),
            Packing::Bytes => {
                let mut rest = value;
                for _ in 0..count.div_ceil(8) {
                    self.bytes.push(rest as u8);
                    rest >>= 8;
                }
            }
        }
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        self.bits(u32::from(value), 1);
    }

    fn octet(&mut self, octet: u8) {
        if self.pending_bits == 0 {
            self.bytes.push(octet);
        } else {
            self.raw_bits(u32::from(octet), 8);
        }
    }

    pub(crate) fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.octet(value as u8 | 0x80);
            value >>= 7;
        }
        self.octet(value as u8);
    }

    /// An unsigned integer whose groups of seven bits are given, the least significant first.
    pub(crate) fn unsigned_groups(&mut self, groups: &[u8]) {
        let last = groups.len().saturating_sub(1);
        for (index, group) in groups.iter().enumerate() {
            self.octet(if index < last { group | 0x80 } else { *group });
        }
        if groups.is_empty() {
            self.octet(0);
        }
    }

    /// A signed integer of any facets (7.1.5).
    pub(crate) fn integer(&mut self, value: i64) {
        self.boolean(value < 0);
        // The magnitude of a negative number is written less one.
        self.unsigned(if value < 0 {
            !value as u64
        } else {
            value as u64
        });
    }

    /// Octets as they are.
    pub(crate) fn octets(&mut self, octets: &[u8]) {
        if self.pending_bits == 0 {
            self.bytes.extend_from_slice(octets);
            return;
        }
        let kept = self.pending_bits;
        let chunks = octets.chunks_exact(7);
        let rest = chunks.remainder();
        self.bytes.reserve(octets.len());
        for chunk in chunks {
            // Seven octets behind at most seven bits: one word, of which 56 bits are whole bytes.
            let mut word = self.pending;
            for octet in chunk {
                word = word << 8 | u64::from(*octet);
            }
            self.pending = word & ((1 << kept) - 1);
            let whole = (word >> kept).to_be_bytes();
            self.bytes.extend_from_slice(&whole[1..]);
        }
        for octet in rest {
            self.raw_bits(u32::from(*octet), 8);
        }
    }

    /// Characters by their code points.
    pub(crate) fn characters(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let ascii = rest.bytes().take_while(u8::is_ascii).count();
            let (plain, other) = rest.split_at(ascii);
            self.octets(plain.as_bytes());
            rest = other;
            let mut characters = rest.chars();
            while let Some(character) = characters.clone().next().filter(|c| !c.is_ascii()) {
                self.unsigned(u64::from(u32::from(character)));
                characters.next();
            }
            rest = characters.as_str();
        }
    }
}

/// Reads a slice.
#[derive(Clone, Debug)]
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next bit.
    at: u64,
    packing: Packing,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], packing: Packing) -> Self {
        Self {
            bytes,
            at: 0,
            packing,
        }
    }

    pub(crate) fn set_packing(&mut self, packing: Packing) {
        if packing == Packing::Bytes {
            self.align();
        }
        self.packing = packing;
    }

    pub(crate) fn align(&mut self) {
        self.at = self.at.div_ceil(8) * 8;
    }

    pub(crate) fn bit_offset(&self) -> u64 {
        self.at
    }

    /// The bytes that are not yet read, from the next whole one on.
    pub(crate) fn rest(&self) -> &'a [u8] {
        let from = usize::try_from(self.at.div_ceil(8)).unwrap_or(usize::MAX);
        self.bytes.get(from..).unwrap_or_default()
    }

    /// Goes on after `bytes` of [`BitReader::rest`].
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.align();
        self.at += bytes as u64 * 8;
    }

    fn bits_left(&self) -> u64 {
        (self.bytes.len() as u64 * 8).saturating_sub(self.at)
    }

    /// The next bits as they are, whatever the packing; `count` is at most 32.
    pub(crate) fn raw_bits(&mut self, count: u32) -> Result<u32, Cause> {
        if u64::from(count) > self.bits_left() {
            return Err(Cause::Truncated);
        }
        let word = self.word();
        self.at += u64::from(count);
        // `count` may be zero: a shift in two steps.
        Ok((word >> 1 >> (63 - count)) as u32)
    }

    /// At least 57 bits from the next one on, at the high end; zeros behind the end.
    fn word(&self) -> u64 {
        let from = (self.at / 8) as usize;
        let bytes = match self.bytes.get(from..from + 8) {
            Some(bytes) => <[u8; 8]>::try_from(bytes).unwrap_or_default(),
            None => {
                let mut bytes = [0; 8];
                let rest = self.bytes.get(from..).unwrap_or_default();
                bytes[..rest.len()].copy_from_slice(rest);
                bytes
            }
        };
        u64::from_be_bytes(bytes) << (self.at % 8)
    }

    pub(crate) fn bits(&mut self, count: u32) -> Result<u32, Cause> {
        match self.packing {
            Packing::Bits => self.raw_bits(count),
            Packing::Bytes => {
                let mut value = 0;
                for index in 0..count.div_ceil(8) {
                    value |= self.raw_bits(8)? << (8 * index);
                }
                Ok(value)
            }
        }
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, Cause> {
        Ok(self.bits(1)? & 1 == 1)
    }

    /// An unsigned integer that must fit 64 bits.
    pub(crate) fn unsigned(&mut self) -> Result<u64, Cause> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let octet = self.raw_bits(8)?;
            let group = u64::from(octet & 0x7f);
            if shift > 63 || (shift == 63 && group > 1) {
                if group != 0 {
                    return Err(Cause::OutOfRange("an unsigned integer of 64 bits"));
                }
                if shift > 70 {
                    return Err(Cause::OutOfRange(
                        "an unsigned integer without needless octets",
                    ));
                }
            } else {
                value |= group << shift;
            }
            shift += 7;
            if octet & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    /// An unsigned integer as groups of seven bits, the least significant first; at most `limit`.
    pub(crate) fn unsigned_groups(
        &mut self,
        groups: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), Cause> {
        loop {
            let octet = self.raw_bits(8)?;
            if groups.len() == limit {
                return Err(Cause::OutOfRange("an unsigned integer of that many octets"));
            }
            groups.push((octet & 0x7f) as u8);
            if octet & 0x80 == 0 {
                return Ok(());
            }
        }
    }

    /// `count` octets as they are, appended to `octets`.
    pub(crate) fn octets(&mut self, count: usize, octets: &mut Vec<u8>) -> Result<(), Cause> {
        if count as u64 > self.bits_left() / 8 {
            return Err(Cause::Truncated);
        }
        if self.at.is_multiple_of(8) {
            let from = (self.at / 8) as usize;
            octets.extend_from_slice(&self.bytes[from..from + count]);
            self.at += count as u64 * 8;
            return Ok(());
        }
        for _ in 0..count / 7 {
            octets.extend_from_slice(&self.word().to_be_bytes()[..7]);
            self.at += 56;
        }
        for _ in 0..count % 7 {
            octets.push(self.raw_bits(8)? as u8);
        }
        Ok(())
    }

    /// `count` characters by their code points, appended to `text`.
    pub(crate) fn characters(&mut self, count: usize, text: &mut String) -> Result<(), Cause> {
        if count as u64 > self.bits_left() / 8 {
            return Err(Cause::Truncated);
        }
        const HIGH: u64 = 0x8080_8080_8080_8000;
        let mut left = count;
        while left > 0 {
            while left >= 7 && self.bits_left() >= 64 {
                let word = self.word();
                // An octet above 0x7f or below 0x20 goes the long way.
                let low = word.wrapping_sub(HIGH >> 2) & !word;
                if (word | low) & HIGH != 0 {
                    break;
                }
                let bytes = word.to_be_bytes();
                match core::str::from_utf8(&bytes[..7]) {
                    Ok(ascii) => text.push_str(ascii),
                    Err(_) => break,
                }
                self.at += 56;
                left -= 7;
            }
            if left == 0 {
                break;
            }
            let point = u32::try_from(self.unsigned()?).ok();
            let character = point.and_then(char::from_u32).filter(|c| is_xml_char(*c));
            text.push(character.ok_or(Cause::OutOfRange("a character of XML"))?);
            left -= 1;
        }
        Ok(())
    }
}

/// Whether a character may be in an XML 1.0 document at all.
fn is_xml_char(character: char) -> bool {
    !matches!(character, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn widths() {
        let widths = [0, 1, 2, 3, 4, 5, 8, 9, 4096].map(width);
        assert_eq!(widths, [0, 0, 1, 2, 2, 3, 3, 4, 12]);
    }

    #[derive(Debug, Clone)]
    enum Item {
        Bits(u32, u32),
        Unsigned(u64),
        Text(String),
        Octets(Vec<u8>),
    }

    fn item() -> impl Strategy<Value = Item> {
        prop_oneof![
            (0..=32u32, any::<u32>()).prop_map(|(count, value)| {
                let mask = if count == 32 {
                    u32::MAX
                } else {
                    (1 << count) - 1
                };
                Item::Bits(value & mask, count)
            }),
            any::<u64>().prop_map(Item::Unsigned),
            (0..64u32, any::<u64>()).prop_map(|(shift, value)| Item::Unsigned(value >> shift)),
            "[ -~\u{a0}-\u{ff}\u{10000}]{0,40}".prop_map(Item::Text),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Item::Octets),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            items in proptest::collection::vec(item(), 0..20),
            bytes in any::<bool>(),
        ) {
            let packing = if bytes { Packing::Bytes } else { Packing::Bits };
            let mut writer = BitWriter::new(packing);
            for item in &items {
                match item {
                    Item::Bits(value, count) => writer.bits(*value, *count),
                    Item::Unsigned(value) => writer.unsigned(*value),
                    Item::Text(text) => writer.characters(text),
                    Item::Octets(octets) => writer.octets(octets),
                }
            }
            let offset = writer.bit_offset();
            let written = writer.finish().to_vec();
            let mut reader = BitReader::new(&written, packing);
            for item in &items {
                match item {
                    Item::Bits(value, count) => prop_assert_eq!(reader.bits(*count)?, *value),
                    Item::Unsigned(value) => prop_assert_eq!(reader.unsigned()?, *value),
                    Item::Text(text) => {
                        let mut read = String::new();
                        reader.characters(text.chars().count(), &mut read)?;
                        prop_assert_eq!(&read, text);
                    }
                    Item::Octets(octets) => {
                        let mut read = Vec::new();
                        reader.octets(octets.len(), &mut read)?;
                        prop_assert_eq!(&read, octets);
                    }
                }
            }
            prop_assert_eq!(reader.bit_offset(), offset);
        }
    }
}
