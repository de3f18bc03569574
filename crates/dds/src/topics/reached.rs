//! How far a stream of a source is here: which of its elements is the next one.
//!
//! Numbers continue across epochs, unless the source rolled back. The last element of each earlier epoch is kept, so that an
//! element that the source publishes again is not taken for one after a rollback.

use chappe_stream::Position;

/// The largest number of epochs; reason: a source has another one after each loss of records, and each is in the mark of the
/// wrapper.
const EPOCHS_MAX: usize = 16;

/// The newest element, and the last one of each earlier epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reached(Vec<Position>);

/// What an element is for its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The next one. `first_missing` is the number after the one before it.
    Next { first_missing: u64 },
    /// The first one after a rollback of the source.
    Rollback,
    /// It is here.
    Repeated,
    /// One before it is missing.
    Early,
}

impl Reached {
    /// These positions, the newest first.
    #[must_use]
    pub fn new(positions: Vec<Position>) -> Self {
        Self(positions)
    }

    /// The positions, the newest first.
    #[must_use]
    pub fn positions(&self) -> &[Position] {
        &self.0
    }

    /// The newest element.
    #[must_use]
    pub fn newest(&self) -> Option<Position> {
        self.0.first().copied()
    }

    /// Moves on to an element, if it is not repeated or early. `previous` is the number of the element before it; 0 if it is
    /// accepted after any.
    pub(super) fn arrive(&mut self, at: Position, previous: u64) -> Arrival {
        let known = self.0.iter().position(|it| it.epoch == at.epoch);
        if known.is_some_and(|index| at.sequence <= self.0[index].sequence) {
            return Arrival::Repeated;
        }
        let arrival = match self.newest() {
            None => Arrival::Next {
                first_missing: at.sequence,
            },
            Some(newest) if at.sequence <= newest.sequence => Arrival::Rollback,
            Some(newest) if previous > newest.sequence => return Arrival::Early,
            Some(newest) => Arrival::Next {
                first_missing: newest.sequence + 1,
            },
        };
        if let Some(index) = known {
            self.0.remove(index);
        }
        self.0.insert(0, at);
        self.0.truncate(EPOCHS_MAX);
        arrival
    }
}

#[cfg(test)]
mod tests {
    use chappe_stream::Epoch;

    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        let epoch = Epoch(epoch);
        Position { epoch, sequence }
    }

    const fn next(first_missing: u64) -> Arrival {
        Arrival::Next { first_missing }
    }

    #[test]
    fn elements_are_accepted_once_and_after_the_one_before() {
        let mut reached = Reached::default();
        assert_eq!(reached.arrive(at(1, 5), 4), next(5));
        assert_eq!(reached.arrive(at(1, 5), 0), Arrival::Repeated);
        assert_eq!(reached.arrive(at(1, 7), 6), Arrival::Early);
        assert_eq!(reached.arrive(at(1, 6), 5), next(6));
        assert_eq!(reached.arrive(at(1, 9), 0), next(7));
        assert_eq!(reached.positions(), [at(1, 9)]);
    }

    #[test]
    fn elements_of_an_earlier_epoch_that_are_here_are_not_accepted_again() {
        let mut reached = Reached::new(vec![at(1, 67)]);
        assert_eq!(reached.arrive(at(2, 68), 67), next(68));
        for sequence in [1, 50, 67] {
            let previous = sequence - 1;
            assert_eq!(reached.arrive(at(1, sequence), previous), Arrival::Repeated);
        }
        assert_eq!(reached.arrive(at(2, 69), 68), next(69));
        // The source rolled back to number 40, in another epoch.
        assert_eq!(reached.arrive(at(3, 41), 0), Arrival::Rollback);
        assert_eq!(reached.arrive(at(1, 41), 0), Arrival::Repeated);
        assert_eq!(reached.arrive(at(2, 69), 68), Arrival::Repeated);
        assert_eq!(reached.arrive(at(3, 42), 41), next(42));
        assert_eq!(reached.positions(), [at(3, 42), at(2, 69), at(1, 67)]);
    }

    #[test]
    fn epochs_are_bounded() {
        let mut reached = Reached::default();
        for epoch in 1..100 {
            reached.arrive(at(epoch, epoch), epoch - 1);
        }
        assert_eq!(reached.positions().len(), EPOCHS_MAX);
        assert_eq!(reached.newest(), Some(at(99, 99)));
    }
}
