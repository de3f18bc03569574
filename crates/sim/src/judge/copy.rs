//! The copy of a stream at a subscriber.

use std::collections::{BTreeMap, BTreeSet};

use super::{At, Counts, Reason};

/// The copy of a stream at a subscriber.
#[derive(Debug, Default)]
pub(super) struct Copy {
    /// Safe positions in the order of storing, and the same as a set.
    pub(super) stored: Vec<At>,
    pub(super) has: BTreeSet<At>,
    /// The furthest position that was ever safe or reported as lost.
    pub(super) reached: Option<(usize, u64)>,
    pub(super) said: BTreeMap<At, Reason>,
    /// Lost in the copy, and not repaired.
    pub(super) damaged: BTreeSet<At>,
    /// Lost in the copy at some time.
    pub(super) ever_damaged: BTreeSet<At>,
    /// How often a damaged element was stored again, after its successors.
    pub(super) stored_again: u64,
    /// Passed to the store since it was opened, and not safe yet.
    pub(super) storing: BTreeSet<At>,
    /// Unsafe when the power failed, before the found elements: possibly torn.
    pub(super) maybe_torn: BTreeSet<At>,
    /// Numbers that the store has reported as torn and that were not repaired since.
    pub(super) torn: u64,
    pub(super) counts: Option<Counts>,
    /// Earlier numbers were not granted.
    pub(super) granted_from: u64,
    /// A rollback was reported, and nothing was stored since.
    pub(super) warned: bool,
    /// A rollback was reported at some time, or the copy itself was rolled back.
    pub(super) rolled: bool,
    pub(super) holds: Option<Vec<(At, u64)>>,
}

impl Copy {
    /// Whether the gap around a missing element has a number that was reported as lost: the copy does not know
    /// which of the gap's numbers are damaged, and requests none.
    pub(super) fn lost_next_to(&self, held: &BTreeSet<At>, at: At) -> bool {
        let place = |number| At { number, ..at };
        let in_gap = |number: &u64| !held.contains(&place(*number));
        let below = (1..at.number).rev().take_while(in_gap);
        let last = held.range(at..).next().filter(|it| it.epoch == at.epoch);
        let above = at.number + 1..last.map_or(at.number + 1, |it| it.number);
        below
            .chain(above)
            .any(|number| self.said.contains_key(&place(number)))
    }
}
