//! Which of a source's choices is used: the first that delivers.
//!
//! A choice delivers if a stream of it exists and has got an element within a given time. If no choice delivers,
//! the present one is kept while its stream exists; otherwise the first one that exists is used. This is pure
//! logic: the driver says what it sees, and when.

use std::time::Duration;

use crate::Timestamp;

/// What is seen of a choice whose stream exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// The number of its last element; of several streams, the sum.
    pub last: u64,
    /// The time of receipt of its newest element.
    pub received: Option<Timestamp>,
}

/// The choices of a source, in order of preference.
#[derive(Debug, Clone)]
pub struct Fallback {
    after: Duration,
    choices: Vec<Seen>,
    current: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    exists: bool,
    /// The number of its last element when it was seen last.
    last: Option<u64>,
    /// When it delivered last, as far as is known.
    delivered: Option<Timestamp>,
}

impl Fallback {
    /// A number of choices that are not seen yet. A choice that delivers nothing for longer than `after` is
    /// passed over.
    #[must_use]
    pub fn new(choices: usize, after: Duration) -> Self {
        Self {
            after,
            choices: vec![Seen::default(); choices],
            current: None,
        }
    }

    /// Takes what is seen of each choice now, `None` if it has no stream. Returns the choice to use; `None` if
    /// no choice exists.
    pub fn update(&mut self, now: Timestamp, sightings: &[Option<Sighting>]) -> Option<usize> {
        for (index, choice) in self.choices.iter_mut().enumerate() {
            let sighting = sightings.get(index).copied().flatten();
            choice.exists = sighting.is_some();
            // A clock that was set back must not keep a choice alive for that long.
            choice.delivered = choice.delivered.map(|at| at.min(now));
            let Some(Sighting { last, received }) = sighting else {
                continue;
            };
            match choice.last {
                Some(known) if last > known => choice.delivered = Some(now),
                Some(_) => {}
                None => choice.delivered = received.map(|at| at.min(now)),
            }
            choice.last = Some(last);
        }
        let delivers = |choice: &&Seen| choice.exists && self.is_recent(now, choice.delivered);
        let first = |is_wanted: &dyn Fn(&&Seen) -> bool| {
            let mut choices = self.choices.iter();
            choices.position(|choice| is_wanted(&choice))
        };
        let kept = self.current.filter(|current| self.choices[*current].exists);
        self.current = first(&delivers)
            .or(kept)
            .or_else(|| first(&|choice| choice.exists));
        self.current
    }

    fn is_recent(&self, now: Timestamp, delivered: Option<Timestamp>) -> bool {
        let after = i64::try_from(self.after.as_nanos()).unwrap_or(i64::MAX);
        delivered.is_some_and(|at| now.0.saturating_sub(at.0) <= after)
    }

    /// Whether no stream of a choice was seen yet, so that the time of receipt of its newest element is asked for.
    #[must_use]
    pub fn is_new(&self, choice: usize) -> bool {
        let choice = self.choices.get(choice);
        choice.is_some_and(|choice| choice.last.is_none())
    }

    /// The choice in use.
    #[must_use]
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// When a choice delivered last, as far as is known.
    #[must_use]
    pub fn delivered(&self, choice: usize) -> Option<Timestamp> {
        self.choices.get(choice)?.delivered
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const AFTER: Duration = Duration::from_secs(10);

    fn at(second: i64) -> Timestamp {
        Timestamp(second * SECOND)
    }

    fn seen(last: u64, received: Option<i64>) -> Option<Sighting> {
        let received = received.map(at);
        Some(Sighting { last, received })
    }

    #[test]
    fn the_first_choice_that_delivers_is_used() {
        let mut fallback = Fallback::new(2, AFTER);
        assert_eq!(fallback.update(at(0), &[None, None]), None);
        // Neither has delivered: the first one that exists.
        assert_eq!(fallback.update(at(1), &[None, seen(0, None)]), Some(1));
        // It is kept, although one before it exists now.
        let both = [seen(0, None), seen(0, None)];
        assert_eq!(fallback.update(at(2), &both), Some(1));
        assert_eq!(
            fallback.update(at(3), &[seen(1, Some(3)), seen(1, Some(3))]),
            Some(0)
        );
        // The first falls silent, the second goes on.
        for second in 4..=13 {
            let number = u64::try_from(second).unwrap();
            let sightings = [seen(1, Some(3)), seen(number, Some(second))];
            assert_eq!(fallback.update(at(second), &sightings), Some(0));
        }
        let sightings = [seen(1, Some(3)), seen(14, Some(14))];
        assert_eq!(fallback.update(at(14), &sightings), Some(1));
        let sightings = [seen(2, Some(15)), seen(14, Some(14))];
        assert_eq!(fallback.update(at(15), &sightings), Some(0));
        // Its stream is gone.
        assert_eq!(fallback.update(at(16), &[None, seen(14, None)]), Some(1));
    }

    #[test]
    fn after_a_restart_the_time_of_receipt_counts() {
        let mut fallback = Fallback::new(2, AFTER);
        let sightings = [seen(7, Some(60)), seen(9, Some(95))];
        assert_eq!(fallback.update(at(100), &sightings), Some(1));
        // A time in the future is not believed.
        let mut fallback = Fallback::new(2, AFTER);
        let sightings = [seen(7, Some(1_000)), seen(9, Some(95))];
        assert_eq!(fallback.update(at(100), &sightings), Some(0));
        assert_eq!(fallback.update(at(104), &sightings), Some(0));
        let sightings = [seen(7, Some(1_000)), seen(10, Some(111))];
        assert_eq!(fallback.update(at(111), &sightings), Some(1));
    }

    proptest! {
        /// At each step of any history: a choice in use exists; the first that delivers is used, and only if none
        /// does, another; nothing changes without a cause.
        #[test]
        fn the_choice_follows_from_what_is_seen(
            steps in proptest::collection::vec(
                (1..8_i64, proptest::collection::vec(proptest::option::weighted(0.8, any::<bool>()), 3)),
                1..60,
            ),
        ) {
            let mut fallback = Fallback::new(3, AFTER);
            let (mut now, mut last, mut delivered) = (0, [0_u64; 3], [None::<i64>; 3]);
            let mut known = [false; 3];
            let mut before = None;
            for (pause, choices) in steps {
                now += pause;
                for (index, choice) in choices.iter().enumerate() {
                    if *choice == Some(true) {
                        last[index] += 1;
                    }
                    // A first sighting without a time of receipt says nothing.
                    if *choice == Some(true) && known[index] {
                        delivered[index] = Some(now);
                    }
                    known[index] |= choice.is_some();
                }
                let sightings: Vec<Option<Sighting>> = choices
                    .iter()
                    .zip(last)
                    .map(|(choice, last)| choice.and_then(|_| seen(last, None)))
                    .collect();
                let used = fallback.update(at(now), &sightings);
                let exists = |index: usize| choices[index].is_some();
                let delivers = |index: usize| {
                    exists(index) && delivered[index].is_some_and(|at| now - at <= 10)
                };
                let expected = (0..3)
                    .find(|index| delivers(*index))
                    .or(before.filter(|before| exists(*before)))
                    .or_else(|| (0..3).find(|index| exists(*index)));
                prop_assert_eq!(used, expected);
                prop_assert_eq!(fallback.current(), used);
                before = used;
            }
        }
    }
}
