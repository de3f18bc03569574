//! How far a stream of an origin was read.

use alloc::collections::VecDeque;

use chappe_flow::Position;

/// Earlier epochs of an origin that are remembered; reason: an origin keeps as many.
pub const EPOCHS_MAX: usize = 64;

/// How far a stream of an origin was read, and so which elements and losses are new.
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
    /// Epochs before that of `last`, as far as they were seen, oldest first.
    passed: VecDeque<u64>,
}

impl Progress {
    /// The newest element that is stored, lost or queued in the log.
    #[must_use]
    pub const fn last(&self) -> Option<Position> {
        self.last
    }

    /// The log has everything up to this element and nothing after it: at the beginning, and after the
    /// log removed elements that were queued.
    pub fn resume(&mut self, last: Option<Position>) {
        self.last = last;
        let back = self
            .passed
            .iter()
            .position(|epoch| last.is_some_and(|last| last.epoch == *epoch));
        self.passed.truncate(back.unwrap_or(self.passed.len()));
    }

    /// Everything up to this element is stored, lost or queued in the log.
    pub fn reach(&mut self, at: Position) {
        if let Some(back) = self.passed.iter().position(|epoch| *epoch == at.epoch) {
            self.passed.truncate(back);
        } else if let Some(last) = self.last.filter(|last| last.epoch != at.epoch) {
            self.passed.push_back(last.epoch);
            if self.passed.len() > EPOCHS_MAX {
                self.passed.pop_front();
            }
        }
        self.last = Some(at);
    }

    /// Whether a later epoch of the origin was reached: elements of this one were received before.
    #[must_use]
    pub fn has_passed(&self, epoch: u64) -> bool {
        self.passed.contains(&epoch)
    }

    /// How many of `count` consecutive elements were received before.
    #[must_use]
    pub fn repeated(&self, first: Position, count: u64) -> u64 {
        match self.last {
            Some(last) if last.epoch == first.epoch && first.sequence <= last.sequence => {
                (last.sequence - first.sequence + 1).min(count)
            }
            _ => 0,
        }
    }

    /// The first of the numbers from `from` up to `next` (exclusive) that was not passed over before;
    /// `None` when all of them were.
    #[must_use]
    pub fn first_unread(&self, from: Position, next: u64) -> Option<Position> {
        if self.has_passed(from.epoch) {
            return None;
        }
        let sequence = match self.last {
            Some(last) if last.epoch == from.epoch => from.sequence.max(last.sequence + 1),
            _ => from.sequence,
        };
        (next > sequence).then_some(Position { sequence, ..from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch, sequence }
    }

    #[test]
    fn an_earlier_epoch_is_passed_until_the_log_returns_to_it() {
        let mut progress = Progress::default();
        progress.reach(at(1, 5));
        progress.reach(at(2, 6));
        assert!(progress.has_passed(1));
        assert_eq!(progress.first_unread(at(1, 6), 9), None);
        progress.resume(Some(at(1, 4)));
        assert!(!progress.has_passed(1));
        assert_eq!(progress.first_unread(at(1, 2), 9), Some(at(1, 5)));
        assert_eq!(progress.repeated(at(2, 1), 3), 0, "another epoch");
    }

    #[test]
    fn epochs_are_bounded_and_the_newest_stay() {
        let mut progress = Progress::default();
        let end = EPOCHS_MAX as u64 + 10;
        (0..end).for_each(|epoch| progress.reach(at(epoch, epoch)));
        assert!(!progress.has_passed(0), "forgotten");
        assert!(progress.has_passed(end - 2));
        assert!(!progress.has_passed(end - 1), "the present one");
    }
}
