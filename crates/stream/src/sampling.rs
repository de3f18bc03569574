//! Which elements of a stream a source takes when it takes a share of them.
//!
//! The choice depends on a hash of the sensor, the source, the stream and the element's position, not on
//! its time: elements that arrive at regular times are sampled without bias, and a restart repeats the
//! choice.

use crate::Position;

/// Takes a share of the elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampler {
    seed: u64,
    share: f64,
}

impl Sampler {
    /// A sampler of `share`; `None` if it takes all.
    pub(crate) fn new(share: f64, sensor: &str, alias: &str) -> Option<Self> {
        let seed = text(text(FNV_OFFSET, sensor), alias);
        (share < 1.0).then_some(Self { seed, share })
    }

    /// Whether it takes the element of `stream` at `position`.
    pub(crate) fn takes(&self, stream: &str, position: Position) -> bool {
        let hash = mix(text(self.seed, stream) ^ mix(position.epoch.0) ^ position.sequence);
        // The 53 bits of a double, from 0 to below 1.
        let unit = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        unit < self.share
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a; the end of the text counts, so that two texts are not one longer text.
fn text(hash: u64, text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    step(text.bytes().fold(hash, step), 0xff)
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    #[test]
    fn a_share_is_taken_from_any_stretch_and_any_residue() {
        let sampler = Sampler::new(0.2, "ward", "a").unwrap();
        let taken = |numbers: &mut dyn Iterator<Item = u64>| {
            let position = |sequence| Position {
                epoch: Epoch(7),
                sequence,
            };
            numbers
                .filter(|number| sampler.takes("s", position(*number)))
                .count()
        };
        for start in [1, 1_000_000, u64::MAX - 20_000] {
            let count = taken(&mut (start..start + 10_000));
            assert!((1_850..2_150).contains(&count), "{count}");
        }
        for residue in 0..10 {
            let count = taken(&mut (0..10_000).map(|n| 10 * n + residue));
            assert!((1_850..2_150).contains(&count), "{count}");
        }
        let other = Sampler::new(0.2, "ward", "b").unwrap();
        let position = |sequence| Position {
            epoch: Epoch(7),
            sequence,
        };
        let both = (0..10_000)
            .filter(|n| sampler.takes("s", position(*n)) && other.takes("s", position(*n)));
        let both = both.count();
        assert!((300..500).contains(&both), "sources choose alone: {both}");
        assert!(Sampler::new(1.0, "ward", "a").is_none());
    }
}
