//! A part of the sinks that a node spreads an event over, and the parts it makes of it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use chappe_machine::Instant;

use crate::coverage::Pieces;
use crate::message::{Spread, Suspects};
use crate::plan::{Plan, Splitter};

/// Who may ask for one range.
///
/// Reason: an honest sink is asked by its parent, and by those above it whose heads were silent.
pub(crate) const ASKERS_MAX: usize = 4;

/// What a hop says beside range and event; goes from job to part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) plan: Plan,
    pub(crate) timeout_us: u32,
    pub(crate) latency_us: u32,
    pub(crate) send_cost_ns: u32,
}

/// One message to a head, and what came of it.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// Sinks of it about which its heads have said something.
    pub(crate) covered: u32,
    /// Whom it is given to.
    pub(crate) head: Option<u32>,
    /// Messages to the head.
    pub(crate) attempts: u8,
    /// Pieces that came from it.
    pub(crate) pieces: u16,
    /// Counts what makes earlier timers void.
    pub(crate) generation: u16,
    /// Whether the head answered.
    pub(crate) heard: bool,
    /// Nothing more is expected.
    pub(crate) done: bool,
    /// When it was first sent, and last.
    pub(crate) begun: Instant,
    pub(crate) sent: Instant,
}

impl Part {
    pub(crate) fn new(first: u32, end: u32) -> Self {
        Self {
            first,
            end,
            covered: 0,
            head: None,
            attempts: 0,
            pieces: 0,
            generation: 0,
            heard: false,
            done: false,
            begun: Instant::ZERO,
            sent: Instant::ZERO,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.end - self.first
    }

    /// Takes a head: the first from `start` on, around the range, that nobody suspects; if there is
    /// none, the one at `start`.
    pub(crate) fn choose_head(
        &mut self,
        start: u32,
        known: &BTreeSet<u32>,
        hint: &Suspects,
    ) -> u32 {
        let start = start.clamp(self.first, self.end - 1);
        let free = |range| first_free(known, hint, range);
        let head = free((start, self.end)).or_else(|| free((self.first, start)));
        *self.head.insert(head.unwrap_or(start))
    }
}

/// The first place of a range that nobody suspects; as many steps as suspects stand before it.
fn first_free(known: &BTreeSet<u32>, hint: &Suspects, (first, end): (u32, u32)) -> Option<u32> {
    let mut place = first;
    for suspect in suspects_of(known, hint, (first, end)) {
        if suspect > place {
            break;
        }
        place += 1;
    }
    (place < end).then_some(place)
}

/// Suspects of a range, increasing: those that this node knows and those that it was told.
fn suspects_of<'a>(
    known: &'a BTreeSet<u32>,
    hint: &'a Suspects,
    (first, end): (u32, u32),
) -> impl Iterator<Item = u32> + 'a {
    let at = |place| hint.places().partition_point(|hinted| *hinted < place);
    let mut hinted = hint.places()[at(first)..at(end)].iter().copied().peekable();
    let mut known = known.range(first..end).copied().peekable();
    core::iter::from_fn(move || {
        let place = match (known.peek(), hinted.peek()) {
            (Some(one), Some(other)) => *one.min(other),
            (Some(one), None) | (None, Some(one)) => *one,
            (None, None) => return None,
        };
        known.next_if_eq(&place);
        hinted.next_if_eq(&place);
        Some(place)
    })
}

/// Who gave a range, and is told what becomes of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) from: u32,
    /// When its latest message came, and its stamp.
    pub(crate) received: Instant,
    pub(crate) stamp_us: u32,
    /// When it was last answered.
    pub(crate) answered: Option<Instant>,
    /// How often it was told that this node is on it, since it last asked.
    pub(crate) said: u8,
}

impl Asker {
    pub(crate) fn new(from: u32, received: Instant, stamp_us: u32) -> Self {
        Self {
            from,
            received,
            stamp_us,
            answered: None,
            said: 0,
        }
    }
}

/// A range that a node answers for.
#[derive(Debug)]
pub(crate) struct Job {
    /// Who gave it; nobody gives the source the whole.
    pub(crate) askers: Vec<Asker>,
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// When it is answered at the latest.
    pub(crate) due: Instant,
    pub(crate) hop: Hop,
    pub(crate) suspects: Suspects,
    pub(crate) parts: Vec<Part>,
    /// Parts from here on were added later, and are not in order.
    pub(crate) in_order: usize,
    /// The next part to be sent for the first time.
    pub(crate) next: usize,
    /// Parts that are not done.
    pub(crate) open: usize,
    /// When the last of the first messages leaves.
    pub(crate) burst_end: Instant,
    /// What is known, the source's own tally apart.
    pub(crate) pieces: Pieces,
    /// When those who wait are told again that this node is on it.
    pub(crate) progress: Option<Instant>,
    pub(crate) done: bool,
}

impl Job {
    /// Whether somebody else who gives the same range is told what comes of this one: it goes the same
    /// way, as quickly, and leaves nobody out.
    pub(crate) fn may_be_joined(&self, spread: &Spread) -> bool {
        let complete = || match self.pieces.pieces() {
            [all] => (all.first, all.end) == (self.first, self.end) && all.failed.is_empty(),
            _ => false,
        };
        (self.first, self.end) == (spread.first, spread.end)
            && self.askers.len() < ASKERS_MAX
            && self.hop.plan == spread.plan
            && self.hop.timeout_us / 2 <= spread.timeout_us
            && (!self.done || complete())
    }

    /// The part of this range, if it was sent to `head`.
    pub(crate) fn part_of(&self, first: u32, end: u32, head: u32) -> Option<usize> {
        let fits = |part: &Part| (part.first, part.end, part.head) == (first, end, Some(head));
        let ordered = &self.parts[..self.in_order];
        let at = ordered.partition_point(|part| part.first < first);
        if ordered.get(at).is_some_and(fits) {
            return Some(at);
        }
        let later = self.parts[self.in_order..].iter().position(fits)?;
        Some(self.in_order + later)
    }
}

/// Divides `first..end` without `own` (the node itself, when it is inside) by a plan.
///
/// A part that would have the node in its midst becomes two.
pub(crate) fn divide(
    (first, end): (u32, u32),
    own: Option<u32>,
    plan: Plan,
    splitter: &mut Splitter,
    parts: &mut Vec<Part>,
) {
    let own = own.filter(|own| (first..end).contains(own));
    let count = end - first - u32::from(own.is_some());
    let mut at = first;
    for size in splitter.split(plan, count) {
        let mut left = *size;
        if own == Some(at) {
            at += 1;
        }
        if let Some(own) = own.filter(|own| (at..at + left).contains(own)) {
            parts.push(Part::new(at, own));
            left -= own - at;
            at = own + 1;
        }
        if left > 0 {
            parts.push(Part::new(at, at + left));
            at += left;
        }
    }
    splitter.shrink();
}

/// Makes parts of at most `most` sinks of a range.
pub(crate) fn cut(first: u32, end: u32, most: u32, parts: &mut Vec<Part>) {
    let mut at = first;
    while at < end {
        let next = end.min(at.saturating_add(most.max(1)));
        parts.push(Part::new(at, next));
        at = next;
    }
}

/// Suspects of a range for its head's information: what this node knows, what it was told, and what
/// fits into so many bytes.
pub(crate) fn suspects_in(
    known: &BTreeSet<u32>,
    hint: &Suspects,
    (first, end): (u32, u32),
    mut room_bytes: usize,
) -> Suspects {
    let mut suspects = Suspects::default();
    let mut next = first;
    for place in suspects_of(known, hint, (first, end)) {
        // Seven bits a byte.
        let bytes = (place - next).max(1).ilog2() as usize / 7 + 1;
        if bytes > room_bytes {
            break;
        }
        room_bytes -= bytes;
        next = place + 1;
        suspects.push(place);
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_others_whoever_divides() {
        let mut splitter = Splitter::default();
        for plan in [
            Plan::Sequential,
            Plan::TwoHalves,
            Plan::Kary(3),
            Plan::measured(1, 4, 4),
        ] {
            for own in [None, Some(10), Some(11), Some(17), Some(30), Some(99)] {
                let mut parts = Vec::new();
                divide((10, 31), own, plan, &mut splitter, &mut parts);
                let places: Vec<u32> = parts.iter().flat_map(|part| part.first..part.end).collect();
                let others: Vec<u32> = (10..31).filter(|place| Some(*place) != own).collect();
                assert_eq!(places, others, "{plan:?} {own:?}");
            }
        }
        let mut parts = Vec::new();
        divide((5, 6), Some(5), Plan::TwoHalves, &mut splitter, &mut parts);
        assert!(parts.is_empty());
    }

    #[test]
    fn a_suspect_is_head_only_when_nobody_else_is_left() {
        let mut part = Part::new(4, 7);
        let mut head = |start, known: &[u32], told: &[u32]| {
            let mut hint = Suspects::default();
            told.iter().for_each(|place| hint.push(*place));
            part.choose_head(start, &known.iter().copied().collect(), &hint)
        };
        assert_eq!(head(4, &[4], &[]), 5);
        assert_eq!(head(4, &[4], &[4, 5]), 6);
        assert_eq!(head(6, &[6], &[2, 9]), 4);
        assert_eq!(head(6, &[6, 4], &[6]), 5);
        assert_eq!(head(5, &[4, 5], &[3, 6, 7]), 5);
        assert_eq!(part.head, Some(5));
    }

    #[test]
    fn a_subnet_that_is_down_has_no_head_however_large_it_is() {
        // 10,000 sinks that stand beside each other, some known to be silent, some said to be.
        let known: BTreeSet<u32> = (100..10_100).filter(|place| place % 25 != 0).collect();
        let mut hint = Suspects::default();
        (100..10_100).step_by(25).for_each(|place| hint.push(place));
        for start in [100, 163, 164, 5_000, 10_099, 10_100] {
            let mut part = Part::new(100, 10_102);
            assert_eq!(part.choose_head(start, &known, &hint), 10_100);
        }
        assert_eq!(
            Part::new(99, 10_102).choose_head(100, &known, &hint),
            10_100
        );
        assert_eq!(Part::new(99, 10_100).choose_head(100, &known, &hint), 99);
    }
}
