//! The numbers of a stream that were counted as lost.

use alloc::collections::VecDeque;
use core::ops::Range;

use chappe_flow::Position;

/// Maximum number of ranges remembered for one stream; reason: only those matter that a full log
/// can roll back, and a link has no more losses queued in the log unless elements of less than a
/// kilobyte are between them. At 16 KiB for a stream, memory is bounded.
const RANGES_MAX: usize = 1_024;

/// The numbers of a stream that were counted as lost and may not be recorded in its log yet. A loss
/// that is reported again, by another session or another link, is counted once.
///
/// ```
/// use chappe_flow::Position;
/// use chappe_link::LostRanges;
/// let at = |sequence| Position { epoch: 1, sequence };
/// let mut lost = LostRanges::default();
/// assert_eq!(lost.add(at(10), 20), 10);
/// assert_eq!(lost.add(at(15), 25), 5, "15 to 19 were counted before");
/// lost.forget_to(at(25));
/// assert!(lost.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct LostRanges {
    epoch: u64,
    /// In ascending order, not adjacent. Elements between them were stored, or are still to arrive.
    ranges: VecDeque<Range<u64>>,
}

impl LostRanges {
    /// Records that the numbers from `from` up to `next` (exclusive) are lost; returns how many of
    /// them were not counted before. An epoch other than that of the last call starts over.
    pub fn add(&mut self, from: Position, next: u64) -> u64 {
        if self.epoch != from.epoch {
            self.epoch = from.epoch;
            self.ranges.clear();
        }
        let (mut all, mut known) = (from.sequence..next, 0);
        self.ranges.retain(|range| {
            let is_apart = range.end < from.sequence || range.start > next;
            if !is_apart {
                let both = range.start.max(from.sequence)..range.end.min(next);
                known += both.end.saturating_sub(both.start);
                all = all.start.min(range.start)..all.end.max(range.end);
            }
            is_apart
        });
        let index = self.ranges.partition_point(|range| range.start < all.start);
        self.ranges.insert(index, all);
        if self.ranges.len() > RANGES_MAX {
            self.ranges.pop_front();
        }
        (next - from.sequence) - known
    }

    /// Records that everything up to this position is stored: earlier losses are not reported
    /// again.
    pub fn forget_to(&mut self, stored: Position) {
        if self.epoch == stored.epoch {
            let done = self
                .ranges
                .partition_point(|range| range.end <= stored.sequence);
            self.ranges.drain(..done);
        }
    }

    /// Whether no range is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch, sequence }
    }

    #[test]
    fn what_was_taken_back_between_losses_and_is_lost_then_is_counted() {
        let mut lost = LostRanges::default();
        assert_eq!(lost.add(at(1, 100), 500), 400);
        // Elements 500 to 520 are queued, and the log is full.
        assert_eq!(lost.add(at(1, 521), 560), 39);
        // After the rollback, the stream is read again from 100, and the origin keeps nothing
        // before 700.
        assert_eq!(lost.add(at(1, 100), 700), 600 - 400 - 39);
        assert_eq!(lost.add(at(1, 100), 700), 0);
        assert_eq!(lost.add(at(1, 690), 701), 1);
        assert_eq!(lost.add(at(2, 100), 200), 100, "another epoch");
    }

    #[test]
    fn ranges_are_bounded_and_the_newest_stay() {
        let mut lost = LostRanges::default();
        let end = RANGES_MAX as u64 + 100;
        for n in 0..end {
            assert_eq!(lost.add(at(1, 10 * n + 1), 10 * n + 5), 4);
        }
        assert_eq!(lost.ranges.len(), RANGES_MAX);
        assert_eq!(lost.add(at(1, 10 * end - 100), 10 * end), 100 - 4 * 10);
    }

    #[test]
    fn what_is_stored_needs_no_memory() {
        let mut lost = LostRanges::default();
        lost.add(at(1, 10), 20);
        lost.add(at(1, 30), 40);
        lost.forget_to(at(2, 100));
        assert_eq!(lost.ranges.len(), 2, "another epoch");
        lost.forget_to(at(1, 35));
        assert_eq!(lost.ranges.len(), 1);
        assert_eq!(lost.add(at(1, 30), 45), 5);
    }
}
