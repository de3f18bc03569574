//! The events seen of a source: the newest sequence number and the 64 up to it.

use chappe_machine::ReplayWindow;

/// The events that a sink has seen of one source. Store it before the event is used, and pass it again
/// after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The source's boot; events of earlier boots are rejected.
    pub boot: u32,
    /// The sequence numbers seen.
    pub numbers: ReplayWindow,
    /// The first sequence number that this sink requests if it is missing; earlier ones are accepted but
    /// not requested.
    pub since: u64,
}

impl Window {
    /// Whether this event may be new: neither seen nor older than the window.
    #[must_use]
    pub fn accepts(&self, boot: u32, sequence: u64) -> bool {
        if boot != self.boot {
            return boot > self.boot && sequence > 0;
        }
        self.numbers.is_new(sequence)
    }

    /// Marks an event as seen.
    pub fn note(&mut self, boot: u32, sequence: u64) {
        if sequence == 0 || boot < self.boot {
            return;
        }
        if boot > self.boot || self.numbers.newest == 0 {
            // After a restart of a known source, all events from 1 on count as missing.
            let since = match self.numbers.newest {
                0 => sequence,
                _ => 1,
            };
            *self = Self {
                boot,
                numbers: ReplayWindow::default(),
                since,
            };
        }
        self.numbers.accept(sequence);
    }

    /// Stops requesting events that are missing up to now. They are still accepted if they arrive.
    pub(crate) fn give_up(&mut self) {
        self.since = self.numbers.newest.saturating_add(1);
    }

    /// The first missing number, and a bitmap of the missing ones from it on.
    #[must_use]
    pub fn missing(&self) -> Option<(u64, u64)> {
        let newest = self.numbers.newest;
        let oldest = newest
            .saturating_sub(ReplayWindow::SIZE - 1)
            .max(self.since.max(1));
        let missing = (oldest..=newest).filter(|number| self.numbers.is_new(*number));
        let mut found = None;
        for number in missing {
            let (first, bits) = found.get_or_insert((number, 0u64));
            *bits |= 1 << (number - *first);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn only_gaps_after_the_first_event_are_missing() {
        let mut window = Window::default();
        window.note(1, 100);
        assert_eq!(window.missing(), None);
        assert!(
            window.accepts(1, 99),
            "an event overtaken by the first one is accepted"
        );
        window.note(1, 104);
        assert_eq!(window.missing(), Some((101, 0b111)));
        window.note(1, 102);
        assert_eq!(window.missing(), Some((101, 0b101)));
        assert!(!window.accepts(1, 102) && window.accepts(1, 103) && !window.accepts(1, 40));
        assert!(!window.accepts(0, 200) && window.accepts(2, 1) && !window.accepts(2, 0));
        window.give_up();
        assert_eq!(window.missing(), None);
        assert!(window.accepts(1, 103), "an event given up was not seen");
        window.note(1, 106);
        assert_eq!(window.missing(), Some((105, 1)), "a later gap is requested");
        window.note(2, 1);
        assert!(!window.accepts(1, 103));
        window.note(2, 1_000);
        assert_eq!(
            window.missing().map(|it| it.0),
            Some(937),
            "older events are given up"
        );
    }

    proptest! {
        #[test]
        fn nothing_is_accepted_twice(numbers in prop::collection::vec(1u64..200, 0..300)) {
            let mut window = Window::default();
            let mut taken = BTreeSet::new();
            for number in numbers {
                if window.accepts(1, number) {
                    prop_assert!(taken.insert(number));
                    window.note(1, number);
                }
                prop_assert!(!window.accepts(1, number));
                if let Some((first, bits)) = window.missing() {
                    let wanted: Vec<u64> =
                        (0..64).filter(|n| bits >> n & 1 == 1).map(|n| first + n).collect();
                    prop_assert!(wanted.iter().all(|number| !taken.contains(number)));
                }
            }
        }
    }
}
