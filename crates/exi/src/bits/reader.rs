//! Reading bits from memory or from a [`Source`].

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Packing, SHIFT_CHUNK_BYTES, word_of};
use crate::error::Cause;

/// Joins the low seven bits of each of eight octets.
#[inline]
const fn join_groups(octets: u64) -> u64 {
    let pairs = octets & 0x007f_007f_007f_007f | octets >> 1 & 0x3f80_3f80_3f80_3f80;
    let fours = pairs & 0x0000_3fff_0000_3fff | pairs >> 2 & 0x0fff_c000_0fff_c000;
    fours & 0x0fff_ffff | fours >> 4 & 0x00ff_ffff_f000_0000
}

/// Bytes requested from a source at a time.
const SOURCE_READ_BYTES: usize = 16 << 10;

/// Maximum size of an options document that the decoder caches, in bytes.
const CACHED_OPTIONS_BYTES_MAX: usize = 256;

/// Supplies the bytes of a stream in order, from a file or a connection for example. With the
/// feature `std`, every [`std::io::Read`] is a source.
pub trait Source {
    /// Fills the start of `buffer` and returns the number of bytes written; 0 at the end of the
    /// stream.
    ///
    /// # Errors
    /// A description of the failure.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, String>;
}

#[cfg(feature = "std")]
impl<R: std::io::Read> Source for R {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        loop {
            match self.read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| alloc::string::ToString::to_string(&error)),
            }
        }
    }
}

/// Errors of reading bits. The type is small because every read returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Cause::from(*self))]
pub(crate) enum BitError {
    Truncated,
    /// The source failed; the reader keeps its description.
    SourceFailed,
    Overflow,
    RedundantOctets,
    TooManyOctets,
    InvalidCharacter,
}

impl From<BitError> for Cause {
    #[cold]
    fn from(error: BitError) -> Self {
        match error {
            BitError::Truncated => Self::Truncated,
            BitError::SourceFailed => Self::Source(String::new()),
            BitError::Overflow => Self::OutOfRange("an unsigned integer of 64 bits"),
            BitError::RedundantOctets => {
                Self::OutOfRange("an unsigned integer without needless octets")
            }
            BitError::TooManyOctets => Self::OutOfRange("an unsigned integer of that many octets"),
            BitError::InvalidCharacter => Self::OutOfRange("a character of XML"),
        }
    }
}

/// The input of a reader.
enum Input<'a> {
    Memory(&'a [u8]),
    /// A buffer, the number of filled bytes, and the source that fills it.
    Source(Vec<u8>, usize, &'a mut dyn Source),
}

/// Reads bits.
pub(crate) struct BitReader<'a> {
    input: Input<'a>,
    /// Bit offsets in the buffer: the next bit, and the end of the available bits.
    next_bit: u64,
    end_bit: u64,
    /// Bits that were discarded from the buffer.
    discarded_bits: u64,
    packing: Packing,
    /// The source's description of its failure.
    failure: String,
}

impl fmt::Debug for BitReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BitReader")
            .field("bit", &self.bit_offset())
            .field("packing", &self.packing)
            .finish_non_exhaustive()
    }
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], packing: Packing) -> Self {
        Self {
            input: Input::Memory(bytes),
            next_bit: 0,
            end_bit: bytes.len() as u64 * 8,
            discarded_bits: 0,
            packing,
            failure: String::new(),
        }
    }

    /// A reader of a source.
    pub(crate) fn from_source(source: &'a mut dyn Source, packing: Packing) -> Self {
        Self {
            input: Input::Source(Vec::new(), 0, source),
            next_bit: 0,
            end_bit: 0,
            discarded_bits: 0,
            packing,
            failure: String::new(),
        }
    }

    pub(crate) fn set_packing(&mut self, packing: Packing) {
        if packing == Packing::Bytes {
            self.align();
        }
        self.packing = packing;
    }

    pub(crate) fn align(&mut self) {
        self.next_bit = self.next_bit.next_multiple_of(8);
    }

    pub(crate) fn bit_offset(&self) -> u64 {
        self.discarded_bits + self.next_bit
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.input {
            Input::Memory(bytes) => bytes,
            Input::Source(bytes, filled, _) => &bytes[..*filled],
        }
    }

    /// The available unread bytes, from the next byte boundary on.
    pub(crate) fn rest(&self) -> &[u8] {
        let from = usize::try_from(self.next_bit.div_ceil(8)).unwrap_or(usize::MAX);
        self.bytes().get(from..).unwrap_or_default()
    }

    /// The next bytes of a stream in memory, up to the size of a cached options document; empty if
    /// the next bit is not at a byte boundary.
    pub(crate) fn rest_in_memory(&self) -> &[u8] {
        match &self.input {
            Input::Memory(_) if self.next_bit.is_multiple_of(8) => {
                let rest = self.rest();
                &rest[..rest.len().min(CACHED_OPTIONS_BYTES_MAX)]
            }
            _ => &[],
        }
    }

    /// Skips these bits if they come next and start at a byte boundary; returns whether it did.
    pub(crate) fn skip_if_next(&mut self, bits: u64, bytes: &[u8]) -> bool {
        let whole = usize::try_from(bits / 8).unwrap_or(usize::MAX);
        if bits == 0 || bytes.len() as u64 != bits.div_ceil(8) {
            return false;
        }
        let rest = self.rest();
        let mask = !(0xff_u8 >> (bits % 8));
        let same = self.next_bit.is_multiple_of(8)
            && rest.len() >= bytes.len()
            && rest.get(..whole) == bytes.get(..whole)
            && (bits.is_multiple_of(8) || rest[whole] & mask == bytes[whole] & mask);
        self.next_bit += if same { bits } else { 0 };
        same
    }

    /// Skips `bytes` of [`BitReader::rest`].
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.align();
        self.next_bit += bytes as u64 * 8;
    }

    /// Reads more from the source; false at its end.
    #[cold]
    pub(crate) fn read_more(&mut self) -> Result<bool, BitError> {
        let Input::Source(bytes, filled, source) = &mut self.input else {
            return Ok(false);
        };
        if bytes.len() - *filled < SOURCE_READ_BYTES / 2 {
            // Discard the bytes that were read; grow the buffer if that is not enough.
            let read = usize::try_from(self.next_bit / 8).unwrap_or(usize::MAX);
            let read = read.min(*filled);
            bytes.copy_within(read..*filled, 0);
            *filled -= read;
            self.discarded_bits += read as u64 * 8;
            self.next_bit -= read as u64 * 8;
            bytes.resize(bytes.len().max(*filled + SOURCE_READ_BYTES), 0);
        }
        let room = &mut bytes[*filled..];
        let given = match source.fill(room) {
            Ok(given) => given.min(room.len()),
            Err(failure) => {
                self.failure = failure;
                return Err(BitError::SourceFailed);
            }
        };
        *filled += given;
        self.end_bit = *filled as u64 * 8;
        Ok(given > 0)
    }

    /// Adds the source's own description to a cause that is a failure of the source.
    pub(crate) fn with_source_failure(&mut self, cause: Cause) -> Cause {
        match cause {
            Cause::Source(_) => Cause::Source(core::mem::take(&mut self.failure)),
            cause => cause,
        }
    }

    /// Reads until `count` bits are available.
    #[inline(always)]
    fn ensure_bits(&mut self, count: u64) -> Result<(), BitError> {
        while self.next_bit + count > self.end_bit {
            if !self.read_more()? {
                return Err(BitError::Truncated);
            }
        }
        Ok(())
    }

    /// The next `count` bits, at most 32, regardless of the packing.
    #[inline(always)]
    pub(crate) fn raw_bits(&mut self, count: u32) -> Result<u32, BitError> {
        self.ensure_bits(u64::from(count))?;
        let word = self.word();
        self.next_bit += u64::from(count);
        // `count` may be zero, so the shift takes two steps.
        Ok((word >> 1 >> (63 - count)) as u32)
    }

    /// At least 57 bits from the next one on, left-aligned; zeros after the end.
    #[inline(always)]
    fn word(&self) -> u64 {
        let from = (self.next_bit / 8) as usize;
        let bytes = self.bytes();
        let word = match bytes.get(from..from + 8) {
            Some(bytes) => word_of(bytes),
            None => last_word(bytes, from),
        };
        word << (self.next_bit % 8)
    }

    #[inline(always)]
    pub(crate) fn bits(&mut self, count: u32) -> Result<u32, BitError> {
        match self.packing {
            Packing::Bits => self.raw_bits(count),
            Packing::Bytes => {
                let count = count.next_multiple_of(8);
                let value = self.raw_bits(count)?;
                // The least significant byte comes first.
                Ok(if count == 0 {
                    0
                } else {
                    (value << (32 - count)).swap_bytes()
                })
            }
        }
    }

    #[inline]
    pub(crate) fn boolean(&mut self) -> Result<bool, BitError> {
        Ok(self.bits(1)? & 1 == 1)
    }

    /// An unsigned integer of at most 64 bits (7.1.6).
    #[inline]
    pub(crate) fn unsigned(&mut self) -> Result<u64, BitError> {
        match self.short_unsigned() {
            Some(value) => Ok(value),
            None => self.long_unsigned(),
        }
    }

    /// An unsigned integer of at most seven octets, all of them available; otherwise none.
    #[inline]
    pub(crate) fn short_unsigned(&mut self) -> Option<u64> {
        let word = self.word();
        // The first octet without its high bit set ends the integer.
        let last = (!word & 0x8080_8080_8080_8000).leading_zeros() / 8;
        let bits = u64::from(last + 1) * 8;
        if last >= 7 || self.next_bit + bits > self.end_bit {
            return None;
        }
        self.next_bit += bits;
        // Move the first octet to the low end, then join the groups of seven bits.
        let octets = (word >> (64 - bits)).swap_bytes() >> (64 - bits);
        Some(join_groups(octets))
    }

    fn long_unsigned(&mut self) -> Result<u64, BitError> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let octet = self.raw_bits(8)?;
            let group = u64::from(octet & 0x7f);
            if shift > 63 || (shift == 63 && group > 1) {
                if group != 0 {
                    return Err(BitError::Overflow);
                }
                if shift > 70 {
                    return Err(BitError::RedundantOctets);
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

    /// An unsigned integer as groups of seven bits, the least significant first; at most `limit`
    /// groups.
    pub(crate) fn unsigned_groups(
        &mut self,
        groups: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), BitError> {
        loop {
            let octet = self.raw_bits(8)?;
            if groups.len() == limit {
                return Err(BitError::TooManyOctets);
            }
            groups.push((octet & 0x7f) as u8);
            if octet & 0x80 == 0 {
                return Ok(());
            }
        }
    }

    /// Number of available octets.
    fn available_octets(&self) -> usize {
        usize::try_from(self.end_bit.saturating_sub(self.next_bit) / 8).unwrap_or(usize::MAX)
    }

    /// Makes at least one octet available, or all `count` octets if the stream is in memory.
    /// Returns the number of available octets, up to `count`.
    fn ensure_octets(&mut self, count: usize) -> Result<usize, BitError> {
        match self.input {
            Input::Memory(_) if self.available_octets() < count => return Err(BitError::Truncated),
            Input::Memory(_) => {}
            Input::Source(..) => self.ensure_bits(8)?,
        }
        Ok(self.available_octets().min(count))
    }

    /// Copies available octets to the start of `run` and returns their number.
    #[inline]
    fn copy_octets(&self, run: &mut [u8; SHIFT_CHUNK_BYTES], count: usize) -> usize {
        let count = count.min(SHIFT_CHUNK_BYTES);
        let from = (self.next_bit / 8) as usize;
        let shift = self.next_bit % 8;
        let bytes = self.bytes();
        if shift == 0 {
            run[..count].copy_from_slice(&bytes[from..from + count]);
            return count;
        }
        let bytes = &bytes[from..=from + count];
        let words = run[..count].chunks_exact_mut(8);
        let done = words.len() * 8;
        for (to, from) in words.zip(bytes.windows(9).step_by(8)) {
            let word = word_of(&from[..8]) << shift | u64::from(from[8]) >> (8 - shift);
            to.copy_from_slice(&word.to_be_bytes());
        }
        for at in done..count {
            run[at] = bytes[at] << shift | bytes[at + 1] >> (8 - shift);
        }
        count
    }

    /// Appends `count` octets to `octets`.
    pub(crate) fn octets(&mut self, count: usize, octets: &mut Vec<u8>) -> Result<(), BitError> {
        let mut left = count;
        let mut run = [0; SHIFT_CHUNK_BYTES];
        while left > 0 {
            let available = self.ensure_octets(left)?;
            let from = (self.next_bit / 8) as usize;
            let given = if self.next_bit.is_multiple_of(8) {
                octets.extend_from_slice(&self.bytes()[from..from + available]);
                available
            } else {
                let given = self.copy_octets(&mut run, available);
                octets.extend_from_slice(&run[..given]);
                given
            };
            self.next_bit += given as u64 * 8;
            left -= given;
        }
        Ok(())
    }

    /// Appends `count` characters, decoded from their code points, to `text`.
    pub(crate) fn characters(&mut self, count: usize, text: &mut String) -> Result<(), BitError> {
        let mut left = count;
        let mut run = [0; SHIFT_CHUNK_BYTES];
        while left > 0 {
            let available = self.ensure_octets(left)?;
            let plain = if self.next_bit.is_multiple_of(8) {
                let from = (self.next_bit / 8) as usize;
                xml_octet_prefix(&self.bytes()[from..from + available])
            } else {
                let given = self.copy_octets(&mut run, available);
                xml_octet_prefix(&run[..given])
            };
            text.push_str(plain);
            let taken = plain.len();
            self.next_bit += taken as u64 * 8;
            left -= taken;
            // Characters outside ASCII tend to follow each other.
            while taken == 0 && left > 0 {
                let character = self.character()?;
                text.push(character);
                left -= 1;
                if character.is_ascii() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn character(&mut self) -> Result<char, BitError> {
        let point = u32::try_from(self.unsigned()?).ok();
        let character = point.and_then(char::from_u32).filter(|c| is_xml_char(*c));
        character.ok_or(BitError::InvalidCharacter)
    }
}

/// The last word of the bytes, padded with zeros.
#[cold]
fn last_word(bytes: &[u8], from: usize) -> u64 {
    let mut word = [0; 8];
    let rest = bytes.get(from..).unwrap_or_default();
    let count = rest.len().min(8);
    word[..count].copy_from_slice(&rest[..count]);
    u64::from_be_bytes(word)
}

/// The longest prefix of XML characters of one octet.
#[inline]
fn xml_octet_prefix(octets: &[u8]) -> &str {
    let is_plain = |octet: &u8| matches!(octet, 0x20..0x80 | b'\t' | b'\n' | b'\r');
    // Check sixteen octets at a time, without a branch for each.
    let mut length = 0;
    for chunk in octets.chunks(16) {
        if !chunk.iter().fold(true, |all, octet| all & is_plain(octet)) {
            length += chunk.iter().take_while(|octet| is_plain(octet)).count();
            break;
        }
        length += chunk.len();
    }
    core::str::from_utf8(&octets[..length]).unwrap_or_default()
}

/// Returns true if XML 1.0 allows the character.
fn is_xml_char(character: char) -> bool {
    !matches!(character, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}
