//! Writing bits to memory.

use alloc::vec::Vec;

use super::{Packing, SHIFT_CHUNK_BYTES, word_of};

/// Spreads at most four groups of seven bits to one octet each.
#[inline]
const fn split_groups(value: u32) -> u32 {
    let pairs = value & 0x3fff | (value & 0x0fff_c000) << 2;
    pairs & 0x007f_007f | (pairs & 0x3f80_3f80) << 1
}

/// Writes bits to memory.
#[derive(Debug)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits not yet in `bytes`, left-aligned; the rest is zero.
    pending: u64,
    /// Number of pending bits, below 64.
    pending_bits: u32,
    /// Bytes that were already drained.
    drained_bytes: u64,
    packing: Packing,
}

impl Default for BitWriter {
    fn default() -> Self {
        Self::new(Packing::Bytes)
    }
}

impl BitWriter {
    pub(crate) fn new(packing: Packing) -> Self {
        Self {
            bytes: Vec::new(),
            pending: 0,
            pending_bits: 0,
            drained_bytes: 0,
            packing,
        }
    }

    /// Clears the writer and keeps its buffer.
    pub(crate) fn clear(&mut self, packing: Packing) {
        self.bytes.clear();
        self.pending = 0;
        self.pending_bits = 0;
        self.drained_bytes = 0;
        self.packing = packing;
    }

    /// Changes the packing. A change to bytes pads the current byte with zeros.
    pub(crate) fn set_packing(&mut self, packing: Packing) {
        if packing == Packing::Bytes {
            self.align();
        }
        self.packing = packing;
    }

    /// Pads the current byte with zeros.
    pub(crate) fn align(&mut self) {
        self.pending_bits = self.pending_bits.next_multiple_of(8);
        self.flush();
    }

    /// Moves whole bytes out of the pending word.
    fn flush(&mut self) {
        let whole = self.pending_bits / 8;
        let bytes = self.pending.to_be_bytes();
        self.bytes.extend_from_slice(&bytes[..whole as usize]);
        // `whole` may be eight, so the shift takes two steps.
        self.pending = self.pending << (whole * 4) << (whole * 4);
        self.pending_bits -= whole * 8;
    }

    /// Number of bytes since the last drain, including an incomplete one.
    pub(crate) fn byte_length(&self) -> usize {
        self.bytes.len() + self.pending_bits.div_ceil(8) as usize
    }

    /// Number of bits written.
    pub(crate) fn bit_offset(&self) -> u64 {
        (self.drained_bytes + self.bytes.len() as u64) * 8 + u64::from(self.pending_bits)
    }

    /// Appends the whole bytes from index `from` on to `bytes`; returns the remaining bits,
    /// left-aligned, and their number.
    pub(crate) fn copy_from(&mut self, from: usize, bytes: &mut Vec<u8>) -> (u8, u32) {
        self.flush();
        bytes.extend_from_slice(&self.bytes[from..]);
        ((self.pending >> 56) as u8, self.pending_bits)
    }

    /// All bytes, the last one padded with zeros.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.align();
        &self.bytes
    }

    /// The whole bytes, which [`BitWriter::discard_whole_bytes`] discards.
    pub(crate) fn whole_bytes(&mut self) -> &[u8] {
        self.flush();
        &self.bytes
    }

    /// Discards the whole bytes.
    pub(crate) fn discard_whole_bytes(&mut self) {
        self.drained_bytes += self.bytes.len() as u64;
        self.bytes.clear();
    }

    /// Writes `count` bits, at most 32, regardless of the packing.
    #[inline(always)]
    pub(crate) fn raw_bits(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32 && (count == 32 || u64::from(value) < 1 << count));
        let value = u64::from(value);
        let room = 64 - self.pending_bits;
        if count < room {
            // `count` may be zero, so the shift takes two steps.
            self.pending |= value << 1 << (room - count - 1);
            self.pending_bits += count;
            return;
        }
        self.flush_full_word(value, count - room);
    }

    /// Flushes the full pending word; `over` bits of the value remain.
    #[inline(never)]
    fn flush_full_word(&mut self, value: u64, over: u32) {
        let word = self.pending | value >> over;
        self.bytes.extend_from_slice(&word.to_be_bytes());
        // At most 32 bits remain; if none do, two shifts clear the word.
        self.pending = value << 32 << (32 - over);
        self.pending_bits = over;
    }

    /// An n-bit unsigned integer of at most 32 bits.
    #[inline(always)]
    pub(crate) fn bits(&mut self, value: u32, count: u32) {
        match self.packing {
            Packing::Bits => self.raw_bits(value, count),
            Packing::Bytes => {
                let count = count.next_multiple_of(8);
                // The least significant byte comes first.
                if count > 0 {
                    self.raw_bits(value.swap_bytes() >> (32 - count), count);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn boolean(&mut self, value: bool) {
        self.bits(u32::from(value), 1);
    }

    /// An unsigned integer (7.1.6): groups of seven bits, the least significant first.
    #[inline]
    pub(crate) fn unsigned(&mut self, value: u64) {
        let mut rest = value;
        // Write four groups at a time.
        while rest >= 1 << 28 {
            let low = rest as u32;
            let groups = [low, low >> 7, low >> 14, low >> 21].map(|group| group as u8 | 0x80);
            self.raw_bits(u32::from_be_bytes(groups), 32);
            rest >>= 28;
        }
        let rest = rest as u32;
        let bits = (32 - rest.leading_zeros()).max(1).div_ceil(7) * 8;
        // All octets but the last have the continuation bit set.
        let more = 0x8080_8080 & !(u32::MAX << (bits - 8));
        self.raw_bits(
            (split_groups(rest) | more).swap_bytes() >> (32 - bits),
            bits,
        );
    }

    /// An unsigned integer from its groups of seven bits, the least significant first.
    pub(crate) fn unsigned_groups(&mut self, groups: &[u8]) {
        let last = groups.len().saturating_sub(1);
        for (index, group) in groups.iter().enumerate() {
            let more = if index < last { 0x80 } else { 0 };
            self.raw_bits(u32::from(*group) | more, 8);
        }
        if groups.is_empty() {
            self.raw_bits(0, 8);
        }
    }

    /// A signed integer (7.1.5).
    #[inline]
    pub(crate) fn integer(&mut self, value: i64) {
        self.boolean(value < 0);
        // A negative number is stored as its magnitude minus one.
        self.unsigned(if value < 0 {
            !value as u64
        } else {
            value as u64
        });
    }

    /// Writes octets unchanged.
    pub(crate) fn octets(&mut self, octets: &[u8]) {
        let mut rest = octets;
        if octets.len() >= 32 {
            self.flush();
            if self.pending_bits == 0 {
                self.bytes.extend_from_slice(octets);
                return;
            }
            rest = self.write_shifted(octets);
        }
        let words = rest.chunks_exact(4);
        let remainder = words.remainder();
        for four in words {
            let four = <[u8; 4]>::try_from(four).unwrap_or_default();
            self.raw_bits(u32::from_be_bytes(four), 32);
        }
        for octet in remainder {
            self.raw_bits(u32::from(*octet), 8);
        }
    }

    /// Writes octets word by word after fewer than eight pending bits; returns the octets that
    /// remain.
    fn write_shifted<'o>(&mut self, octets: &'o [u8]) -> &'o [u8] {
        let kept = self.pending_bits;
        self.bytes.reserve(octets.len());
        let mut run = [0; SHIFT_CHUNK_BYTES];
        let mut rest = octets;
        while rest.len() >= 8 {
            let length = rest.len().min(SHIFT_CHUNK_BYTES) / 8 * 8;
            let (chunk, following) = rest.split_at(length);
            let mut pending = self.pending;
            for (to, from) in run.chunks_exact_mut(8).zip(chunk.chunks_exact(8)) {
                let word = word_of(from);
                to.copy_from_slice(&(pending | word >> kept).to_be_bytes());
                pending = word << (64 - kept);
            }
            self.pending = pending;
            self.bytes.extend_from_slice(&run[..length]);
            rest = following;
        }
        rest
    }

    /// Writes characters as their code points.
    pub(crate) fn characters(&mut self, text: &str) {
        if text.is_ascii() {
            return self.octets(text.as_bytes());
        }
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
