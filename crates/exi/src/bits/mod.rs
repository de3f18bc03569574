//! Reading and writing of bits: n-bit unsigned integers (7.1.9), unsigned integers (7.1.6),
//! characters.
//!
//! Bit-packed streams store bits without padding, the most significant first. In all other streams
//! items are aligned to bytes, and an n-bit integer takes the fewest bytes that hold n bits, the
//! least significant byte first.

mod reader;
mod writer;

pub(crate) use reader::BitReader;
pub use reader::Source;
pub(crate) use writer::BitWriter;

/// Whether items are packed into bits or aligned to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Items are packed into bits without padding.
    Bits,
    /// Every item starts at a byte boundary.
    Bytes,
}

/// Number of bits that distinguish `count` values: the base-2 logarithm, rounded up.
pub(crate) const fn width(count: u64) -> u32 {
    match count {
        0 | 1 => 0,
        _ => 64 - (count - 1).leading_zeros(),
    }
}

/// Bytes that are shifted in one pass.
const SHIFT_CHUNK_BYTES: usize = 256;

/// Eight bytes as a big-endian word.
fn word_of(bytes: &[u8]) -> u64 {
    <[u8; 8]>::try_from(bytes).map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn width_is_rounded_up_logarithm() {
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
        fn items_round_trip(
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
