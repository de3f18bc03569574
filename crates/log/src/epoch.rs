//! Epochs: random numbers that distinguish the current numbering of a stream from one before a
//! rollback.

use crate::segment::mix;

/// Epochs stay below 2^53: exact as a number in JSON.
const EPOCH_MASK: u64 = (1 << 53) - 1;

/// Draws epochs from the seed of a store.
pub(crate) struct EpochSource {
    seed: u64,
    drawn: u64,
}

impl EpochSource {
    pub(crate) fn new(seed: u64) -> EpochSource {
        EpochSource { seed, drawn: 0 }
    }

    /// Draws an epoch that is not in `known`.
    pub(crate) fn draw(&mut self, known: &[(u64, u64)]) -> u64 {
        loop {
            self.drawn += 1;
            let epoch = mix(self.seed ^ mix(self.drawn)) & EPOCH_MASK;
            if epoch != 0 && known.iter().all(|(other, _)| *other != epoch) {
                return epoch;
            }
        }
    }
}
