//! Which values are new: the time of the newest value of each node, and the numbers of notifications.
//!
//! While a subscription lives, the server sends each value once, and nothing is dropped. After a gap the same value may come
//! from history, from the queue of the server, and as the first value of a subscription; then times tell them apart.

use chappe_stream::Timestamp;
use ring::digest::{SHA256, digest};

use crate::Mark;

/// The version of a mark.
const FORMAT: u8 = 1;
/// Most notifications that are asked for again; reason: servers keep fewer.
const MISSING_MAX: u32 = 1_000;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is new.
    New,
    /// It is stored already.
    Double,
    /// It is new, and older than the newest one: the clock of the source went back.
    ClockBack,
}

/// What is known of a node after a gap, until a value shows that the gap is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    /// The newest value before it.
    before: Timestamp,
    /// The newest value that history has given.
    history: Option<Timestamp>,
}

/// How far each node was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Track {
    /// Of the list of nodes, to which the times belong.
    checksum: [u8; 8],
    /// Batches so far, so that no two marks are equal.
    batches: u64,
    newest: Vec<Option<Timestamp>>,
    gaps: Vec<Option<Gap>>,
}

impl Track {
    /// What a mark says of these nodes; nothing if it is of others.
    pub(super) fn of(mark: Option<&Mark>, nodes: &[String]) -> Self {
        let sum = digest(&SHA256, nodes.join("\n").as_bytes());
        let own = Self {
            checksum: sum.as_ref().first_chunk().copied().unwrap_or_default(),
            batches: 0,
            newest: vec![None; nodes.len()],
            gaps: vec![None; nodes.len()],
        };
        let read = mark.and_then(|mark| own.read(mark.bytes()));
        read.unwrap_or(own)
    }

    fn read(&self, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(&[FORMAT])?;
        let bytes = bytes.strip_prefix(&self.checksum)?;
        let (batches, mut bytes) = bytes.split_first_chunk()?;
        let mut newest = Vec::new();
        while let Some((time, rest)) = bytes.split_first_chunk() {
            bytes = rest;
            let time = i64::from_be_bytes(*time);
            newest.push((time != i64::MIN).then_some(Timestamp(time)));
        }
        let is_whole = bytes.is_empty() && newest.len() == self.newest.len();
        is_whole.then(|| Self {
            checksum: self.checksum,
            batches: u64::from_be_bytes(*batches),
            gaps: vec![None; newest.len()],
            newest,
        })
    }

    /// The mark of the next batch: everything up to the newest values.
    pub(super) fn mark(&mut self) -> Mark {
        self.batches += 1;
        let mut bytes = vec![FORMAT];
        bytes.extend(self.checksum);
        bytes.extend(self.batches.to_be_bytes());
        let times = self.newest.iter();
        bytes.extend(times.flat_map(|time| time.map_or(i64::MIN, |it| it.0).to_be_bytes()));
        // A file has a limited number of nodes, with 8 bytes each.
        Mark::long(bytes)
    }

    /// Whether any value was ever read.
    pub(super) fn has_begun(&self) -> bool {
        self.newest.iter().any(Option::is_some)
    }

    /// The time of the newest value of a node.
    pub(super) fn newest(&self, node: usize) -> Option<Timestamp> {
        self.newest.get(node).copied().flatten()
    }

    /// Values of a node may be missing, or come again. A gap that is not closed yet goes on.
    pub(super) fn begin_gap(&mut self, node: usize) {
        if let (Some(gap @ None), Some(Some(before))) =
            (self.gaps.get_mut(node), self.newest.get(node))
        {
            *gap = Some(Gap {
                before: *before,
                history: None,
            });
        }
    }

    /// Whether a value from history is new.
    pub(super) fn history(&mut self, node: usize, time: Timestamp) -> bool {
        let (Some(newest), Some(gap)) = (self.newest.get_mut(node), self.gaps.get_mut(node)) else {
            return false;
        };
        if newest.is_some_and(|newest| time <= newest) {
            return false;
        }
        *newest = Some(time);
        if let Some(gap) = gap {
            gap.history = Some(time);
        }
        true
    }

    /// What a value is that a subscription brings.
    pub(super) fn live(&mut self, node: usize, time: Timestamp) -> Verdict {
        let (Some(newest), Some(gap)) = (self.newest.get_mut(node), self.gaps.get_mut(node)) else {
            return Verdict::Double;
        };
        if let Some(gap) = gap {
            let is_in_history = gap
                .history
                .is_some_and(|it| gap.before < time && time <= it);
            if time == gap.before || is_in_history {
                return Verdict::Double;
            }
        }
        *gap = None;
        let is_back = newest.is_some_and(|newest| time < newest);
        *newest = Some(time);
        match is_back {
            true => Verdict::ClockBack,
            false => Verdict::New,
        }
    }
}

/// The numbers of the notifications of one subscription (part 4, section 7.26: from 1, and after the largest 1 again).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Numbers {
    /// The next one; `None`: the first one decides.
    next: Option<u32>,
}

/// What a number tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Nothing is missing.
    Next,
    /// These are missing before it.
    After(Vec<u32>),
    /// It came before.
    Repeated,
    /// It has nothing to do with those before it: what is missing is not known.
    Jump,
}

impl Numbers {
    /// Those after a number.
    pub(super) fn after(number: u32) -> Self {
        let next = Some(following(number));
        Self { next }
    }

    /// A notification with this number has come. A message that only says that the server is there `is_alive` carries
    /// the number of the next notification.
    pub(super) fn arrived(&mut self, number: u32, is_alive: bool) -> Arrival {
        let after = if is_alive { number } else { following(number) };
        let Some(next) = self.next else {
            self.next = Some(after);
            return Arrival::Next;
        };
        let ahead = number.wrapping_sub(next);
        if ahead == 0 {
            self.next = Some(after);
            return Arrival::Next;
        }
        if ahead.wrapping_neg() <= MISSING_MAX {
            return Arrival::Repeated;
        }
        self.next = Some(after);
        if ahead > MISSING_MAX {
            return Arrival::Jump;
        }
        let numbers = std::iter::successors(Some(next), |number| Some(following(*number)));
        // No server sends 0, which would otherwise never be reached.
        let numbers = numbers.take(ahead as usize);
        Arrival::After(numbers.take_while(|it| *it != number).collect())
    }
}

fn following(number: u32) -> u32 {
    number.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn track() -> Track {
        Track::of(None, &["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn a_mark_is_of_its_nodes() {
        let nodes = ["a".to_owned(), "b".to_owned()];
        let mut track = track();
        assert!(!track.has_begun());
        assert_eq!(track.live(1, Timestamp(7)), Verdict::New);
        let mark = track.mark();
        let again = Track::of(Some(&mark), &nodes);
        assert_eq!(
            (again.newest(0), again.newest(1)),
            (None, Some(Timestamp(7)))
        );
        assert!(again.has_begun());
        assert_ne!(track.mark(), mark);
        let others = ["a".to_owned(), "c".to_owned()];
        assert!(!Track::of(Some(&mark), &others).has_begun());
        for end in 0..mark.bytes().len() {
            let part = Mark::long(mark.bytes()[..end].to_vec());
            assert!(!Track::of(Some(&part), &nodes).has_begun(), "{end}");
        }
    }

    #[test]
    fn a_gap_is_closed_by_history_without_doubles() {
        let mut track = track();
        assert_eq!(track.live(0, Timestamp(10)), Verdict::New);
        track.begin_gap(0);
        let history = [9, 10, 11, 12, 12].map(|time| track.history(0, Timestamp(time)));
        assert_eq!(history, [false, false, true, true, false]);
        // The queue of the server, which begins with the value at the time of the subscription.
        let live = [11, 12, 13, 14].map(|time| track.live(0, Timestamp(time)));
        use Verdict::{Double, New};
        assert_eq!(live, [Double, Double, New, New]);
        // Later nothing is dropped.
        assert_eq!(track.live(0, Timestamp(14)), New);
        // The connection breaks while history is read, and the queue begins with what came before.
        track.begin_gap(0);
        assert!(track.history(0, Timestamp(15)));
        track.begin_gap(0);
        assert!(track.history(0, Timestamp(16)));
        let live = [14, 15, 16, 17].map(|time| track.live(0, Timestamp(time)));
        assert_eq!(live, [Double, Double, Double, New]);
    }

    #[test]
    fn without_history_only_the_stored_value_is_a_double() {
        let mut track = track();
        track.live(0, Timestamp(10));
        track.begin_gap(0);
        assert_eq!(track.live(0, Timestamp(10)), Verdict::Double);
        assert_eq!(track.live(0, Timestamp(15)), Verdict::New);
        // A node without a value before the gap has none.
        track.begin_gap(1);
        assert_eq!(track.live(1, Timestamp(3)), Verdict::New);
        assert_eq!(track.live(2, Timestamp(3)), Verdict::Double);
    }

    #[test]
    fn a_clock_that_goes_back_loses_nothing() {
        let mut track = track();
        track.live(0, Timestamp(100));
        assert_eq!(track.live(0, Timestamp(50)), Verdict::ClockBack);
        assert_eq!(track.live(0, Timestamp(51)), Verdict::New);
        track.begin_gap(0);
        assert_eq!(track.live(0, Timestamp(20)), Verdict::ClockBack);
        track.begin_gap(0);
        assert_eq!(track.live(0, Timestamp(20)), Verdict::Double);
    }

    #[test]
    fn missing_numbers_are_named() {
        let mut numbers = Numbers::default();
        let mut arrived = |number, is_alive| numbers.arrived(number, is_alive);
        assert_eq!(arrived(u32::MAX - 1, false), Arrival::Next);
        assert_eq!(arrived(u32::MAX, true), Arrival::Next);
        assert_eq!(arrived(2, false), Arrival::After(vec![u32::MAX, 1]));
        assert_eq!(arrived(2, false), Arrival::Repeated);
        assert_eq!(arrived(5, true), Arrival::After(vec![3, 4]));
        assert_eq!(arrived(5, false), Arrival::Next);
        assert_eq!(arrived(900_000, false), Arrival::Jump);
        assert_eq!(arrived(900_001, false), Arrival::Next);
    }

    proptest! {
        /// A server with one node counts; connections break at any step, and history or the queue close the gap.
        #[test]
        fn each_value_is_stored_once(steps in proptest::collection::vec((0..4_u8, 1..5_i64), 1..40)) {
            let mut track = Track::of(None, &["a".to_owned()]);
            let (mut made, mut stored) = (0, Vec::new());
            for (kind, count) in steps {
                let first = made + 1;
                made += count;
                if kind == 0 && track.has_begun() {
                    // A gap: history has all values but the last few, which are in the queue.
                    track.begin_gap(0);
                    let old = (1..=made - count / 2).filter(|time| track.history(0, Timestamp(*time)));
                    stored.extend(old.collect::<Vec<_>>());
                    let queue = (first..=made).filter(|time| track.live(0, Timestamp(*time)) == Verdict::New);
                    stored.extend(queue.collect::<Vec<_>>());
                    continue;
                }
                let live = (first..=made).filter(|time| track.live(0, Timestamp(*time)) == Verdict::New);
                stored.extend(live.collect::<Vec<_>>());
            }
            prop_assert_eq!(stored, (1..=made).collect::<Vec<_>>());
        }

        #[test]
        fn any_numbers_are_bounded(numbers in proptest::collection::vec((any::<u32>(), any::<bool>()), 0..20)) {
            let mut state = Numbers::default();
            for (number, is_alive) in numbers {
                if let Arrival::After(missing) = state.arrived(number, is_alive) {
                    prop_assert!(!missing.is_empty() && missing.len() <= MISSING_MAX as usize);
                }
            }
        }
    }
}
