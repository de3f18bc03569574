//! Damaged numbers of a stream, and the positions of the same elements at the origin of a copy.

use crate::{Position, Stream};

/// Damaged numbers of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first number here.
    pub here: Position,
    /// The position of that element at its origin; for a stream of this node the same as `here`.
    pub origin: Position,
    /// The number of elements.
    pub count: u64,
}

impl Stream {
    /// The damaged numbers of a stream of this node, divided by epoch.
    pub fn holes(&self) -> Vec<Hole> {
        let epochs = self.epochs();
        let mut holes = Vec::new();
        for (first, last) in self.gaps() {
            let begins = epochs.iter().map(|(_, begin)| *begin);
            let begins = begins.filter(|begin| *begin > first && *begin <= last);
            let mut from = first;
            for next in begins.chain([last + 1]) {
                if next == from {
                    continue;
                }
                let here = self.position_of(from);
                let count = next - from;
                let origin = here;
                holes.push(Hole {
                    here,
                    origin,
                    count,
                });
                from = next;
            }
        }
        holes
    }

    /// The damaged numbers of a copy, and the possible positions of the elements at their origin: the
    /// origin's answer for such a range belongs there, number by number. `origin_of` reads the position
    /// at the origin from the record of a number.
    ///
    /// Between two elements of one epoch of the origin the position is certain if as many numbers lie
    /// between them there as here. Between two of its epochs this node does not know how many belong to
    /// which: it asks the origin for the numbers right before the element after the hole, and for those
    /// right after the element before it in the other epoch. The origin returns those that exist. None of
    /// them can be elsewhere in the copy, so nothing is stored twice.
    ///
    /// # Errors
    /// Those of `origin_of`.
    pub fn copied_holes<E>(
        &self,
        origin_of: impl Fn(u64) -> Result<Option<Position>, E>,
    ) -> Result<Vec<Hole>, E> {
        let mut holes = Vec::new();
        for hole in self.holes() {
            let first = hole.here.sequence;
            let Some(after) = origin_of(first + hole.count)? else {
                continue;
            };
            let before = origin_of(first.saturating_sub(1))?;
            let between = before.and_then(|it| after.sequence.checked_sub(it.sequence + 1));
            let earlier = before.filter(|before| before.epoch != after.epoch);
            if before.is_some() && earlier.is_none() && between != Some(hole.count) {
                continue;
            }
            // Some of the numbers between them were lost: this node does not know which are
            // damaged.
            if between.is_some_and(|between| between > hole.count) {
                continue;
            }
            // An epoch's numbers may start within the hole.
            let count = hole.count.min(after.sequence.saturating_sub(1));
            holes.push(Hole {
                here: Position {
                    sequence: first + (hole.count - count),
                    ..hole.here
                },
                origin: Position {
                    sequence: after.sequence - count,
                    ..after
                },
                count,
            });
            // Both requests cover their own numbers only if there is room for all in between.
            if let Some(earlier) = earlier
                && between.is_some_and(|between| between <= hole.count)
            {
                let sequence = earlier.sequence + 1;
                let origin = Position {
                    sequence,
                    ..earlier
                };
                holes.push(Hole { origin, ..hole });
            }
        }
        holes.retain(|hole| hole.count > 0);
        Ok(holes)
    }

    /// The position of the record with this number, whether it exists yet or not.
    pub fn position_of(&self, sequence: u64) -> Position {
        let epochs = self.epochs();
        let epoch = epochs.iter().rev().find(|(_, first)| *first <= sequence);
        Position {
            epoch: epoch.map_or(self.epoch(), |(epoch, _)| *epoch),
            sequence,
        }
    }
}
