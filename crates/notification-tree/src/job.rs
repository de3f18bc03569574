//! A range of sinks that a node spreads an event over, and the parts into which it divides the range.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use chappe_machine::Instant;

use crate::coverage::Pieces;
use crate::message::{Spread, Suspects};
use crate::plan::{Plan, Splitter};

/// Nodes that may request one range.
///
/// Reason: an honest sink gets a range from its parent, and from ancestors whose heads were silent.
pub(crate) const REQUESTERS_MAX: usize = 4;

/// The parameters of a hop in addition to range and event; a job passes them to its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    pub(crate) plan: Plan,
    pub(crate) timeout_us: u32,
    pub(crate) latency_us: u32,
    pub(crate) send_cost_ns: u32,
}

/// A range given to one head, and the answers so far.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// Sinks of the range that are reported as delivered or failed.
    pub(crate) covered: u32,
    pub(crate) head: Option<u32>,
    /// Messages sent to the head.
    pub(crate) attempts: u8,
    /// Pieces of coverage received from the head.
    pub(crate) pieces: u16,
    /// Increases when earlier timers become void.
    pub(crate) generation: u16,
    pub(crate) has_answered: bool,
    /// No more answers are awaited.
    pub(crate) is_done: bool,
    pub(crate) first_sent: Instant,
    pub(crate) last_sent: Instant,
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
            has_answered: false,
            is_done: false,
            first_sent: Instant::ZERO,
            last_sent: Instant::ZERO,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.end - self.first
    }

    /// Chooses the head: the first unsuspected sink from `start` on, wrapping around in the range; the
    /// one at `start` if all are suspected.
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

/// The first unsuspected sink of a range, found in as many steps as suspects precede it.
fn first_free(known: &BTreeSet<u32>, hint: &Suspects, (first, end): (u32, u32)) -> Option<u32> {
    let mut sink = first;
    for suspect in all_suspects(known, hint, (first, end)) {
        if suspect > sink {
            break;
        }
        sink += 1;
    }
    (sink < end).then_some(sink)
}

/// The suspects of a range, increasing: this node's own and those a hop named.
fn all_suspects<'a>(
    known: &'a BTreeSet<u32>,
    hint: &'a Suspects,
    (first, end): (u32, u32),
) -> impl Iterator<Item = u32> + 'a {
    let at = |sink| hint.places().partition_point(|hinted| *hinted < sink);
    let mut hinted = hint.places()[at(first)..at(end)].iter().copied().peekable();
    let mut known = known.range(first..end).copied().peekable();
    core::iter::from_fn(move || {
        let suspect = match (known.peek(), hinted.peek()) {
            (Some(one), Some(other)) => *one.min(other),
            (Some(one), None) | (None, Some(one)) => *one,
            (None, None) => return None,
        };
        known.next_if_eq(&suspect);
        hinted.next_if_eq(&suspect);
        Some(suspect)
    })
}

/// A node that gave this one a range, and gets the answers about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester {
    pub(crate) from: u32,
    /// The time when its latest message arrived, and the stamp in it.
    pub(crate) received_at: Instant,
    pub(crate) stamp_us: u32,
    pub(crate) answered_at: Option<Instant>,
    /// Responses sent since its latest message.
    pub(crate) responses: u8,
}

impl Requester {
    pub(crate) fn new(from: u32, received_at: Instant, stamp_us: u32) -> Self {
        Self {
            from,
            received_at,
            stamp_us,
            answered_at: None,
            responses: 0,
        }
    }
}

/// A range that a node answers for.
#[derive(Debug)]
pub(crate) struct Job {
    /// Empty at the source.
    pub(crate) requesters: Vec<Requester>,
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// The latest time of its answer.
    pub(crate) due: Instant,
    pub(crate) hop: Hop,
    pub(crate) suspects: Suspects,
    pub(crate) parts: Vec<Part>,
    /// Parts from this index on were added later, in no order.
    pub(crate) ordered_parts: usize,
    /// The next part to be sent for the first time.
    pub(crate) next_part: usize,
    /// Parts that are not done.
    pub(crate) open_parts: usize,
    /// The time when the last of the first messages leaves.
    pub(crate) burst_end: Instant,
    /// The coverage of the range; the source has its tally instead.
    pub(crate) pieces: Pieces,
    /// When requesters get the next response.
    pub(crate) progress_at: Option<Instant>,
    pub(crate) is_done: bool,
}

impl Job {
    /// Whether another requester of the same range can share this job: it uses the same plan, as quickly,
    /// and no sink has failed.
    pub(crate) fn can_be_joined(&self, spread: &Spread) -> bool {
        let complete = || match self.pieces.pieces() {
            [all] => (all.first, all.end) == (self.first, self.end) && all.failed.is_empty(),
            _ => false,
        };
        (self.first, self.end) == (spread.first, spread.end)
            && self.requesters.len() < REQUESTERS_MAX
            && self.hop.plan == spread.plan
            && self.hop.timeout_us / 2 <= spread.timeout_us
            && (!self.is_done || complete())
    }

    /// The index of the part with this range and head.
    pub(crate) fn part_of(&self, first: u32, end: u32, head: u32) -> Option<usize> {
        let fits = |part: &Part| (part.first, part.end, part.head) == (first, end, Some(head));
        let ordered = &self.parts[..self.ordered_parts];
        let at = ordered.partition_point(|part| part.first < first);
        if ordered.get(at).is_some_and(fits) {
            return Some(at);
        }
        let later = self.parts[self.ordered_parts..].iter().position(fits)?;
        Some(self.ordered_parts + later)
    }
}

/// Divides `first..end` by a plan, without the node itself (`own`) if it is in the range.
///
/// A part that the node would split becomes two.
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

/// Cuts a range into parts of at most `most` sinks.
pub(crate) fn cut(first: u32, end: u32, most: u32, parts: &mut Vec<Part>) {
    let mut at = first;
    while at < end {
        let next = end.min(at.saturating_add(most.max(1)));
        parts.push(Part::new(at, next));
        at = next;
    }
}

/// The suspects that the head of a range is notified of: as many of all known ones as fit in `room_bytes`.
pub(crate) fn suspects_in(
    known: &BTreeSet<u32>,
    hint: &Suspects,
    (first, end): (u32, u32),
    mut room_bytes: usize,
) -> Suspects {
    let mut suspects = Suspects::default();
    let mut next = first;
    for suspect in all_suspects(known, hint, (first, end)) {
        // Seven bits a byte.
        let bytes = (suspect - next).max(1).ilog2() as usize / 7 + 1;
        if bytes > room_bytes {
            break;
        }
        room_bytes -= bytes;
        next = suspect + 1;
        suspects.push(suspect);
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_other_sink_once() {
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
                let sinks: Vec<u32> = parts.iter().flat_map(|part| part.first..part.end).collect();
                let others: Vec<u32> = (10..31).filter(|sink| Some(*sink) != own).collect();
                assert_eq!(sinks, others, "{plan:?} {own:?}");
            }
        }
        let mut parts = Vec::new();
        divide((5, 6), Some(5), Plan::TwoHalves, &mut splitter, &mut parts);
        assert!(parts.is_empty());
    }

    #[test]
    fn a_suspect_is_head_only_among_suspects() {
        let mut part = Part::new(4, 7);
        let mut head = |start, known: &[u32], hinted: &[u32]| {
            let mut hint = Suspects::default();
            hinted.iter().for_each(|sink| hint.push(*sink));
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
    fn a_subnet_that_is_down_has_no_head() {
        // 10,000 neighbours, all suspected: most by this node, some by the hop.
        let known: BTreeSet<u32> = (100..10_100).filter(|sink| sink % 25 != 0).collect();
        let mut hint = Suspects::default();
        (100..10_100).step_by(25).for_each(|sink| hint.push(sink));
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
