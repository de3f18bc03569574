//! Bits from memory, or from a source that gives bytes piece by piece.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Packing, RUN, word_of};
use crate::error::Cause;

/// The low seven bits of eight octets next to each other.
#[inline]
const fn joined(octets: u64) -> u64 {
    let pairs = octets & 0x007f_007f_007f_007f | octets >> 1 & 0x3f80_3f80_3f80_3f80;
    let fours = pairs & 0x0000_3fff_0000_3fff | pairs >> 2 & 0x0fff_c000_0fff_c000;
    fours & 0x0fff_ffff | fours >> 4 & 0x00ff_ffff_f000_0000
}

/// Bytes that a source is asked for at once.
const PIECE: usize = 16 << 10;

/// Bytes of an options document that is worth remembering.
const OPTIONS_BYTES: usize = 256;

/// Gives the bytes of a stream one after another: a file, a connection. With the feature `std` all
/// that is [`std::io::Read`] is one.
pub trait Source {
    /// Fills the front of `buffer` and says how many bytes it gave; none at the end.
    ///
    /// # Errors
    /// Why it cannot, in words.
    fn give(&mut self, buffer: &mut [u8]) -> Result<usize, String>;
}

#[cfg(feature = "std")]
impl<R: std::io::Read> Source for R {
    fn give(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        loop {
            match self.read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| alloc::string::ToString::to_string(&error)),
            }
        }
    }
}

/// Why bits cannot be read. It is small, as it is in the result of each reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Cause::from(*self))]
pub(crate) enum Broken {
    Truncated,
    /// The source has failed; it said why.
    Source,
    TooLarge,
    Needless,
    TooLong,
    Character,
}

impl From<Broken> for Cause {
    #[cold]
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Truncated => Self::Truncated,
            Broken::Source => Self::Source(String::new()),
            Broken::TooLarge => Self::OutOfRange("an unsigned integer of 64 bits"),
            Broken::Needless => Self::OutOfRange("an unsigned integer without needless octets"),
            Broken::TooLong => Self::OutOfRange("an unsigned integer of that many octets"),
            Broken::Character => Self::OutOfRange("a character of XML"),
        }
    }
}

/// Where bytes come from.
enum Input<'a> {
    Memory(&'a [u8]),
    /// A buffer, how much of it was filled, and what fills it.
    Source(Vec<u8>, usize, &'a mut dyn Source),
}

/// Reads bits.
pub(crate) struct BitReader<'a> {
    input: Input<'a>,
    /// The next bit, and the one behind the last that is at hand.
    at: u64,
    end: u64,
    /// Bits that were let go of.
    before: u64,
    packing: Packing,
    /// What the source said when it failed.
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
            at: 0,
            end: bytes.len() as u64 * 8,
            before: 0,
            packing,
            failure: String::new(),
        }
    }

    /// Reads what a source gives.
    pub(crate) fn of(source: &'a mut dyn Source, packing: Packing) -> Self {
        Self {
            input: Input::Source(Vec::new(), 0, source),
            at: 0,
            end: 0,
            before: 0,
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
        self.at = self.at.next_multiple_of(8);
    }

    pub(crate) fn bit_offset(&self) -> u64 {
        self.before + self.at
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.input {
            Input::Memory(bytes) => bytes,
            Input::Source(bytes, filled, _) => &bytes[..*filled],
        }
    }

    /// The bytes at hand that are not yet read, from the next whole one on.
    pub(crate) fn rest(&self) -> &[u8] {
        let from = usize::try_from(self.at.div_ceil(8)).unwrap_or(usize::MAX);
        self.bytes().get(from..).unwrap_or_default()
    }

    /// The first bytes of the rest of a stream in memory, as far as an options document may go; none
    /// when the next bit begins no byte.
    pub(crate) fn rest_in_memory(&self) -> &[u8] {
        match &self.input {
            Input::Memory(_) if self.at.is_multiple_of(8) => {
                let rest = self.rest();
                &rest[..rest.len().min(OPTIONS_BYTES)]
            }
            _ => &[],
        }
    }

    /// Goes on behind these bits, if they come next and begin at a byte.
    pub(crate) fn take(&mut self, bits: u64, bytes: &[u8]) -> bool {
        let whole = usize::try_from(bits / 8).unwrap_or(usize::MAX);
        if bits == 0 || bytes.len() as u64 != bits.div_ceil(8) {
            return false;
        }
        let rest = self.rest();
        let mask = !(0xff_u8 >> (bits % 8));
        let same = self.at.is_multiple_of(8)
            && rest.len() >= bytes.len()
            && rest.get(..whole) == bytes.get(..whole)
            && (bits.is_multiple_of(8) || rest[whole] & mask == bytes[whole] & mask);
        self.at += if same { bits } else { 0 };
        same
    }

    /// Goes on after `bytes` of [`BitReader::rest`].
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.align();
        self.at += bytes as u64 * 8;
    }

    /// Asks the source for more; false when there is none.
    #[cold]
    pub(crate) fn more(&mut self) -> Result<bool, Broken> {
        let Input::Source(bytes, filled, source) = &mut self.input else {
            return Ok(false);
        };
        if bytes.len() - *filled < PIECE / 2 {
            // What was read makes room; where that is not enough, there is more room.
            let read = usize::try_from(self.at / 8).unwrap_or(usize::MAX);
            let read = read.min(*filled);
            bytes.copy_within(read..*filled, 0);
            *filled -= read;
            self.before += read as u64 * 8;
            self.at -= read as u64 * 8;
            bytes.resize(bytes.len().max(*filled + PIECE), 0);
        }
        let room = &mut bytes[*filled..];
        let given = match source.give(room) {
            Ok(given) => given.min(room.len()),
            Err(failure) => {
                self.failure = failure;
                return Err(Broken::Source);
            }
        };
        *filled += given;
        self.end = *filled as u64 * 8;
        Ok(given > 0)
    }

    /// The cause, in the source's own words where it was the source.
    pub(crate) fn explained(&mut self, cause: Cause) -> Cause {
        match cause {
            Cause::Source(_) => Cause::Source(core::mem::take(&mut self.failure)),
            cause => cause,
        }
    }

    /// Sees to it that so many bits are at hand.
    #[inline(always)]
    fn need(&mut self, count: u64) -> Result<(), Broken> {
        while self.at + count > self.end {
            if !self.more()? {
                return Err(Broken::Truncated);
            }
        }
        Ok(())
    }

    /// The next bits as they are, whatever the packing; `count` is at most 32.
    #[inline(always)]
    pub(crate) fn raw_bits(&mut self, count: u32) -> Result<u32, Broken> {
        self.need(u64::from(count))?;
        let word = self.word();
        self.at += u64::from(count);
        // `count` may be zero: a shift in two steps.
        Ok((word >> 1 >> (63 - count)) as u32)
    }

    /// At least 57 bits from the next one on, at the high end; zeros behind the end.
    #[inline(always)]
    fn word(&self) -> u64 {
        let from = (self.at / 8) as usize;
        let bytes = self.bytes();
        let word = match bytes.get(from..from + 8) {
            Some(bytes) => word_of(bytes),
            None => last_word(bytes, from),
        };
        word << (self.at % 8)
    }

    #[inline(always)]
    pub(crate) fn bits(&mut self, count: u32) -> Result<u32, Broken> {
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
    pub(crate) fn boolean(&mut self) -> Result<bool, Broken> {
        Ok(self.bits(1)? & 1 == 1)
    }

    /// An unsigned integer that must fit 64 bits.
    #[inline]
    pub(crate) fn unsigned(&mut self) -> Result<u64, Broken> {
        match self.short_unsigned() {
            Some(value) => Ok(value),
            None => self.long_unsigned(),
        }
    }

    /// An unsigned integer of at most seven octets that are all at hand.
    #[inline]
    pub(crate) fn short_unsigned(&mut self) -> Option<u64> {
        let word = self.word();
        // The first octet whose high bit is not set ends it.
        let last = (!word & 0x8080_8080_8080_8000).leading_zeros() / 8;
        let bits = u64::from(last + 1) * 8;
        if last >= 7 || self.at + bits > self.end {
            return None;
        }
        self.at += bits;
        // The octets before the end of it, the first one lowest; then their groups next to each other.
        let octets = (word >> (64 - bits)).swap_bytes() >> (64 - bits);
        Some(joined(octets))
    }

    fn long_unsigned(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let octet = self.raw_bits(8)?;
            let group = u64::from(octet & 0x7f);
            if shift > 63 || (shift == 63 && group > 1) {
                if group != 0 {
                    return Err(Broken::TooLarge);
                }
                if shift > 70 {
                    return Err(Broken::Needless);
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
    ) -> Result<(), Broken> {
        loop {
            let octet = self.raw_bits(8)?;
            if groups.len() == limit {
                return Err(Broken::TooLong);
            }
            groups.push((octet & 0x7f) as u8);
            if octet & 0x80 == 0 {
                return Ok(());
            }
        }
    }

    /// How many octets are at hand.
    fn at_hand(&self) -> usize {
        usize::try_from(self.end.saturating_sub(self.at) / 8).unwrap_or(usize::MAX)
    }

    /// Sees to it that an octet is at hand; of a stream in memory all `count` must be.
    fn need_octets(&mut self, count: usize) -> Result<usize, Broken> {
        match self.input {
            Input::Memory(_) if self.at_hand() < count => return Err(Broken::Truncated),
            Input::Memory(_) => {}
            Input::Source(..) => self.need(8)?,
        }
        Ok(self.at_hand().min(count))
    }

    /// Copies octets that are at hand to the front of a run; says how many.
    #[inline]
    fn run(&self, run: &mut [u8; RUN], count: usize) -> usize {
        let count = count.min(RUN);
        let from = (self.at / 8) as usize;
        let shift = self.at % 8;
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

    /// `count` octets as they are, appended to `octets`.
    pub(crate) fn octets(&mut self, count: usize, octets: &mut Vec<u8>) -> Result<(), Broken> {
        let mut left = count;
        let mut run = [0; RUN];
        while left > 0 {
            let at_hand = self.need_octets(left)?;
            let from = (self.at / 8) as usize;
            let given = if self.at.is_multiple_of(8) {
                octets.extend_from_slice(&self.bytes()[from..from + at_hand]);
                at_hand
            } else {
                let given = self.run(&mut run, at_hand);
                octets.extend_from_slice(&run[..given]);
                given
            };
            self.at += given as u64 * 8;
            left -= given;
        }
        Ok(())
    }

    /// `count` characters by their code points, appended to `text`.
    pub(crate) fn characters(&mut self, count: usize, text: &mut String) -> Result<(), Broken> {
        let mut left = count;
        let mut run = [0; RUN];
        while left > 0 {
            let at_hand = self.need_octets(left)?;
            let plain = if self.at.is_multiple_of(8) {
                let from = (self.at / 8) as usize;
                plain(&self.bytes()[from..from + at_hand])
            } else {
                let given = self.run(&mut run, at_hand);
                plain(&run[..given])
            };
            text.push_str(plain);
            let taken = plain.len();
            self.at += taken as u64 * 8;
            left -= taken;
            // Such characters come together.
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

    fn character(&mut self) -> Result<char, Broken> {
        let point = u32::try_from(self.unsigned()?).ok();
        let character = point.and_then(char::from_u32).filter(|c| is_xml_char(*c));
        character.ok_or(Broken::Character)
    }
}

/// The word at the end of the bytes, with zeros behind it.
#[cold]
fn last_word(bytes: &[u8], from: usize) -> u64 {
    let mut word = [0; 8];
    let rest = bytes.get(from..).unwrap_or_default();
    let count = rest.len().min(8);
    word[..count].copy_from_slice(&rest[..count]);
    u64::from_be_bytes(word)
}

/// The octets in front that are characters of XML of one octet.
#[inline]
fn plain(octets: &[u8]) -> &str {
    let is_plain = |octet: &u8| matches!(octet, 0x20..0x80 | b'\t' | b'\n' | b'\r');
    // Sixteen at once, without a branch for each.
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

/// Whether a character may be in an XML 1.0 document at all.
fn is_xml_char(character: char) -> bool {
    !matches!(character, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}
