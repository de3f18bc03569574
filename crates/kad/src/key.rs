//! Places of the key space: 128 bits, the first of a SHA-256, and the XOR distance between them.
//!
//! 128 bits suffice: it takes 2^128 hashes to hit a given place. Two names with one place take 2^64
//! and gain nothing, because a record states its subject.

use std::fmt;

use chappe_identity::PublicKey;
use ring::digest::{Context, SHA256};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bits of a key.
pub const KEY_BITS: u32 = 128;
/// Levels of salt below a key. Each has 16 times as many places: 65,536 at the last.
pub const SALT_LEVELS_MAX: u8 = 4;

/// A position in the key space: of a node, or of a record.
///
/// ```
/// use chappe_kad::Key;
/// let (a, b) = (Key::new(0b1100), Key::new(0b1010));
/// assert_eq!(a.distance(b), 0b0110);
/// assert_eq!(a.shared_bits(b), 125);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// The key of this number.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u128 {
        self.0
    }

    /// The key of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; KEY_BYTES] {
        self.0.to_be_bytes()
    }

    /// Derives a key from parts within a domain: SHA-256 over each part, prefixed by its length.
    #[must_use]
    pub fn derive(domain: &str, parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        for part in [domain.as_bytes()].iter().chain(parts) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(&context.finish().as_ref()[..KEY_BYTES]);
        Self::from_bytes(bytes)
    }

    /// The position of the node with this public key.
    #[must_use]
    pub fn of_node(public: &PublicKey) -> Self {
        Self::derive("chappe kad node 1", &[public.as_bytes()])
    }

    /// The distance of two keys (Kademlia, section 2.1).
    #[must_use]
    pub const fn distance(self, other: Self) -> u128 {
        self.0 ^ other.0
    }

    /// The number of leading bits two keys share.
    #[must_use]
    pub const fn shared_bits(self, other: Self) -> u32 {
        (self.0 ^ other.0).leading_zeros()
    }

    /// The `width` bits that follow the first `skip`.
    #[must_use]
    pub(crate) const fn bits(self, skip: u32, width: u32) -> u32 {
        if skip >= KEY_BITS {
            return 0;
        }
        let rest = self.0 << skip;
        // Widths are at most 8, so nothing is truncated.
        (rest >> (KEY_BITS - width)) as u32
    }

    /// The key with the first `shared` bits of this one, then `width` bits of `cell`, then `noise`.
    #[must_use]
    pub(crate) fn within(self, shared: u32, width: u32, cell: u32, noise: u128) -> Self {
        let head = |bits: u32| match bits {
            0 => 0,
            bits => u128::MAX << (KEY_BITS - bits.min(KEY_BITS)),
        };
        let (kept, fixed) = (head(shared), head(shared + width));
        let cell = match KEY_BITS.checked_sub(shared + width) {
            Some(shift) if width > 0 => u128::from(cell) << shift,
            _ => 0,
        };
        Self((self.0 & kept) | (cell & fixed & !kept) | (noise & !fixed))
    }

    /// The place of this key's records whose identity has the salt as prefix; the key itself at
    /// level 0.
    #[must_use]
    pub fn salted(self, salt: Salt) -> Self {
        match salt.level {
            0 => self,
            level => {
                let nibbles = salt.nibbles.to_be_bytes();
                Self::derive("chappe kad salt 1", &[&self.to_bytes(), &[level], &nibbles])
            }
        }
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The share of a hot key's records whose identity has these nibbles as prefix.
///
/// If a key has more records than its region should store, it is split: further records go one
/// level down, to one of 16 places, chosen by the next nibble of the record's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Salt {
    level: u8,
    nibbles: u16,
}

impl Salt {
    /// The salt of a record at a level of at most [`SALT_LEVELS_MAX`].
    #[must_use]
    pub fn of_record(record: Key, level: u8) -> Self {
        let level = level.min(SALT_LEVELS_MAX);
        let nibbles = match level {
            0 => 0,
            level => record.bits(0, 16 - 4 * u32::from(4 - level)),
        };
        // At most 16 bits.
        Self {
            level,
            nibbles: nibbles as u16,
        }
    }

    /// The number of nibbles.
    #[must_use]
    pub const fn level(self) -> u8 {
        self.level
    }

    /// The 16 parts one level down; none at the last level.
    pub fn children(self) -> impl Iterator<Item = Self> {
        let deeper = self.level < SALT_LEVELS_MAX;
        (0..16).filter(move |_| deeper).map(move |nibble| Self {
            level: self.level + 1,
            nibbles: self.nibbles << 4 | nibble,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_keeps_the_head_and_sets_the_cell() {
        let key = Key::new(u128::MAX);
        let point = key.within(8, 4, 0b0101, 0);
        assert_eq!(point.number() >> 116, 0xff5);
        assert_eq!(point.bits(8, 4), 5);
        assert_eq!(key.within(0, 0, 0, 7), Key::new(7));
        assert_eq!(key.within(128, 4, 3, 7), key);
        assert_eq!(key.within(126, 4, 3, 0).number(), u128::MAX << 2);
    }

    #[test]
    fn a_record_is_below_each_salt_it_begins_with() {
        let record = Key::new(0xabcd << 112);
        let salts: Vec<_> = (0..=4)
            .map(|level| Salt::of_record(record, level))
            .collect();
        for pair in salts.windows(2) {
            assert_eq!(
                pair[0].children().filter(|child| *child == pair[1]).count(),
                1
            );
        }
        assert_eq!(salts[4].children().count(), 0);
        let places: std::collections::BTreeSet<_> =
            salts.iter().map(|salt| record.salted(*salt)).collect();
        assert_eq!(places.len(), 5);
        assert_eq!(record.salted(salts[0]), record);
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(
            Key::derive("d", &[b"ab", b"c"]),
            Key::derive("d", &[b"a", b"bc"])
        );
        assert_ne!(Key::derive("d", &[b"a"]), Key::derive("e", &[b"a"]));
    }
}
