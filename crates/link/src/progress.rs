//! How far the stream of an origin was read.

use alloc::collections::VecDeque;

use chappe_flow::Position;

/// Maximum number of an origin's earlier epochs that are remembered; reason: an origin keeps as
/// many.
pub const EPOCHS_MAX: usize = 64;

/// The position up to which an origin's stream was read, which tells new elements and losses from
/// repeated ones.
///
/// ```
/// use chappe_flow::Position;
/// use chappe_link::Progress;
/// let at = |sequence| Position { epoch: 1, sequence };
/// let mut progress = Progress::default();
/// progress.reach(at(10));
/// assert_eq!(progress.repeated(at(8), 5), 3, "8, 9 and 10");
/// assert_eq!(progress.first_unread(at(5), 13), Some(at(11)));
/// assert_eq!(progress.first_unread(at(5), 11), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The newest element that is stored, lost or queued in the log.
    last: Option<Position>,
    /// The newest element of each epoch before that of `last`, as far as they were seen, oldest
    /// first.
    passed: VecDeque<Position>,
}

impl Progress {
    /// The newest element that is stored, lost or queued in the log.
    #[must_use]
    pub const fn last(&self) -> Option<Position> {
        self.last
    }

    /// Adds the newest elements of earlier epochs in the log, newest first.
    pub fn know(&mut self, earlier: &[Position]) {
        let newest = earlier.iter().take(EPOCHS_MAX);
        self.passed = newest.rev().copied().collect();
    }

    /// The newest element of each earlier epoch, newest first.
    pub fn earlier(&self) -> impl Iterator<Item = Position> {
        self.passed.iter().rev().copied()
    }

    /// Sets the position to the end of the log: initially, and after the log removed queued
    /// elements.
    pub fn resume(&mut self, last: Option<Position>) {
        self.last = last;
        let back = self
            .passed
            .iter()
            .position(|at| last.is_some_and(|last| last.epoch == at.epoch));
        self.passed.truncate(back.unwrap_or(self.passed.len()));
    }

    /// Records that everything up to this element is stored, lost or queued in the log.
    pub fn reach(&mut self, at: Position) {
        self.passed.retain(|passed| passed.epoch != at.epoch);
        if let Some(last) = self.last.filter(|last| last.epoch != at.epoch) {
            self.passed.push_back(last);
            if self.passed.len() > EPOCHS_MAX {
                self.passed.pop_front();
            }
        }
        self.last = Some(at);
    }

    /// The newest number reached in this epoch, even if a later epoch was reached since.
    #[must_use]
    pub fn reached(&self, epoch: u64) -> Option<u64> {
        let all = self.last.iter().chain(&self.passed);
        all.into_iter()
            .find(|at| at.epoch == epoch)
            .map(|at| at.sequence)
    }

    /// Whether the origin is known to have been rolled back to here: `next` was reached since.
    #[must_use]
    pub fn went_back_to(&self, next: Position) -> bool {
        match self.last {
            Some(last) if last.epoch == next.epoch => last.sequence + 1 >= next.sequence,
            _ => self
                .reached(next.epoch)
                .is_some_and(|reached| reached >= next.sequence),
        }
    }

    /// The number of elements among `count` consecutive ones that were received before.
    #[must_use]
    pub fn repeated(&self, first: Position, count: u64) -> u64 {
        match self.reached(first.epoch) {
            Some(reached) if first.sequence <= reached => (reached - first.sequence + 1).min(count),
            _ => 0,
        }
    }

    /// The first of the numbers from `from` up to `next` (exclusive) that was not processed before;
    /// `None` if all were.
    #[must_use]
    pub fn first_unread(&self, from: Position, next: u64) -> Option<Position> {
        let reached = self.reached(from.epoch);
        let sequence = reached.map_or(from.sequence, |reached| from.sequence.max(reached + 1));
        (next > sequence).then_some(Position { sequence, ..from })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch, sequence }
    }

    #[test]
    fn an_earlier_epoch_is_passed_until_the_log_returns_to_it() {
        let mut progress = Progress::default();
        progress.reach(at(1, 5));
        progress.reach(at(2, 6));
        assert_eq!(progress.earlier().collect::<Vec<_>>(), [at(1, 5)]);
        assert_eq!(progress.repeated(at(1, 4), 3), 2, "4 and 5");
        assert_eq!(progress.first_unread(at(1, 3), 6), None);
        assert_eq!(progress.first_unread(at(1, 3), 9), Some(at(1, 6)));
        progress.resume(Some(at(1, 4)));
        assert_eq!(progress.earlier().count(), 0);
        assert_eq!(progress.first_unread(at(1, 2), 9), Some(at(1, 5)));
        assert_eq!(progress.repeated(at(2, 1), 3), 0, "another epoch");
    }

    #[test]
    fn an_origin_goes_back_to_a_place_once() {
        let mut progress = Progress::default();
        progress.know(&[at(2, 20), at(1, 10)]);
        progress.resume(Some(at(3, 30)));
        assert!(!progress.went_back_to(at(2, 21)), "the rest was never here");
        assert!(!progress.went_back_to(at(4, 21)));
        progress.reach(at(4, 20));
        assert!(progress.went_back_to(at(4, 21)), "nothing came since");
        progress.reach(at(4, 25));
        assert!(progress.went_back_to(at(4, 21)));
        progress.reach(at(5, 26));
        assert!(progress.went_back_to(at(4, 21)), "and a later epoch came");
        let earlier: Vec<Position> = progress.earlier().collect();
        assert_eq!(earlier, [at(4, 25), at(3, 30), at(2, 20), at(1, 10)]);
        // It continues in an epoch that it had left; the others stay known.
        progress.reach(at(3, 31));
        assert!(progress.went_back_to(at(5, 26)) && progress.went_back_to(at(3, 31)));
        assert_eq!(progress.reached(2), Some(20));
    }

    #[test]
    fn epochs_are_bounded_and_the_newest_stay() {
        let mut progress = Progress::default();
        let end = EPOCHS_MAX as u64 + 10;
        (0..end).for_each(|epoch| progress.reach(at(epoch, epoch)));
        assert_eq!(progress.reached(0), None, "forgotten");
        assert_eq!(progress.earlier().next(), Some(at(end - 2, end - 2)));
        assert_eq!(progress.earlier().count(), EPOCHS_MAX);
        assert_eq!(progress.reached(end - 1), Some(end - 1), "the present one");
    }
}
