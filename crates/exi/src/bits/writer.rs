//! Bits to memory.

use alloc::vec::Vec;

use super::{Packing, RUN, word_of};

/// Groups of seven bits, at most four of them, each in an octet.
#[inline]
const fn apart(value: u32) -> u32 {
    let pairs = value & 0x3fff | (value & 0x0fff_c000) << 2;
    pairs & 0x007f_007f | (pairs & 0x3f80_3f80) << 1
}

/// Writes to memory.
#[derive(Debug)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits not yet in `bytes`, at the high end; the rest is zero.
    pending: u64,
    /// How many; fewer than 64.
    pending_bits: u32,
    /// Bytes that were handed over already.
    before: u64,
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
            before: 0,
            packing,
        }
    }

    /// Forgets what was written and keeps the room.
    pub(crate) fn clear(&mut self, packing: Packing) {
        self.bytes.clear();
        self.pending = 0;
        self.pending_bits = 0;
        self.before = 0;
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
        self.pending_bits = self.pending_bits.next_multiple_of(8);
        self.flush();
    }

    /// Moves whole bytes out of the pending word.
    fn flush(&mut self) {
        let whole = self.pending_bits / 8;
        let bytes = self.pending.to_be_bytes();
        self.bytes.extend_from_slice(&bytes[..whole as usize]);
        // `whole` may be eight: a shift in two steps.
        self.pending = self.pending << (whole * 4) << (whole * 4);
        self.pending_bits -= whole * 8;
    }

    /// Bytes begun so far, of those that were not handed over.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() + self.pending_bits.div_ceil(8) as usize
    }

    /// Bits written so far.
    pub(crate) fn bit_offset(&self) -> u64 {
        (self.before + self.bytes.len() as u64) * 8 + u64::from(self.pending_bits)
    }

    /// Appends to `bytes` what was written from a byte on; the bits behind the last whole byte, at the
    /// high end, and how many they are.
    pub(crate) fn written_from(&mut self, from: usize, bytes: &mut Vec<u8>) -> (u8, u32) {
        self.flush();
        bytes.extend_from_slice(&self.bytes[from..]);
        ((self.pending >> 56) as u8, self.pending_bits)
    }

    /// All bytes, the last one filled with zeros.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.align();
        &self.bytes
    }

    /// Whole bytes so far, to be taken over with [`BitWriter::drained`].
    pub(crate) fn whole(&mut self) -> &[u8] {
        self.flush();
        &self.bytes
    }

    /// Lets go of the whole bytes.
    pub(crate) fn drained(&mut self) {
        self.before += self.bytes.len() as u64;
        self.bytes.clear();
    }

    /// Bits as they are, whatever the packing; `count` is at most 32.
    #[inline(always)]
    pub(crate) fn raw_bits(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32 && (count == 32 || u64::from(value) < 1 << count));
        let value = u64::from(value);
        let room = 64 - self.pending_bits;
        if count < room {
            // `count` may be zero: a shift in two steps.
            self.pending |= value << 1 << (room - count - 1);
            self.pending_bits += count;
            return;
        }
        self.spill(value, count - room);
    }

    /// The pending word is full; `over` bits of the value are left.
    #[inline(never)]
    fn spill(&mut self, value: u64, over: u32) {
        let word = self.pending | value >> over;
        self.bytes.extend_from_slice(&word.to_be_bytes());
        // At most 32 bits are over; without any, all are shifted out in two steps.
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
        // Four groups at once.
        while rest >= 1 << 28 {
            let low = rest as u32;
            let groups = [low, low >> 7, low >> 14, low >> 21].map(|group| group as u8 | 0x80);
            self.raw_bits(u32::from_be_bytes(groups), 32);
            rest >>= 28;
        }
        let rest = rest as u32;
        let bits = (32 - rest.leading_zeros()).max(1).div_ceil(7) * 8;
        // All but the last say that more follow.
        let more = 0x8080_8080 & !(u32::MAX << (bits - 8));
        self.raw_bits((apart(rest) | more).swap_bytes() >> (32 - bits), bits);
    }

    /// An unsigned integer whose groups of seven bits are given, the least significant first.
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

    /// A signed integer of any facets (7.1.5).
    #[inline]
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
        let mut rest = octets;
        if octets.len() >= 32 {
            self.flush();
            if self.pending_bits == 0 {
                self.bytes.extend_from_slice(octets);
                return;
            }
            rest = self.shifted(octets);
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

    /// Writes octets behind fewer than eight pending bits, by words; gives those that are left over.
    fn shifted<'o>(&mut self, octets: &'o [u8]) -> &'o [u8] {
        let kept = self.pending_bits;
        self.bytes.reserve(octets.len());
        let mut run = [0; RUN];
        let mut rest = octets;
        while rest.len() >= 8 {
            let length = rest.len().min(RUN) / 8 * 8;
            let (taken, behind) = rest.split_at(length);
            let mut pending = self.pending;
            for (to, from) in run.chunks_exact_mut(8).zip(taken.chunks_exact(8)) {
                let word = word_of(from);
                to.copy_from_slice(&(pending | word >> kept).to_be_bytes());
                pending = word << (64 - kept);
            }
            self.pending = pending;
            self.bytes.extend_from_slice(&run[..length]);
            rest = behind;
        }
        rest
    }

    /// Characters by their code points.
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
