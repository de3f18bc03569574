//! Which events of a source were seen: the newest number and the 64 up to it.

use chappe_machine::ReplayWindow;

/// What a sink has seen of one source; to be stored before the event is used, and given again after
/// a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The source's boot; events of earlier ones are old.
    pub boot: u32,
    /// The sequence numbers seen.
    pub numbers: ReplayWindow,
    /// The first sequence number that this sink may have missed and asks for: earlier ones are taken when
    /// they come.
    pub since: u64,
}

impl Window {
    /// Whether this event may be new: not seen, and not too old to tell.
    #[must_use]
    pub fn accepts(&self, boot: u32, sequence: u64) -> bool {
        if boot != self.boot {
            return boot > self.boot && sequence > 0;
        }
        self.numbers.is_new(sequence)
    }

    /// Notes an event as seen.
    pub fn note(&mut self, boot: u32, sequence: u64) {
        if sequence == 0 || boot < self.boot {
            return;
        }
        if boot > self.boot || self.numbers.newest == 0 {
            // Of a source that was known before, all of a new life is missed that does not come.
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

    /// Asks no more for what is missing up to now. Not seen all the same: it is taken when it comes.
    pub(crate) fn give_up(&mut self) {
        self.since = self.numbers.newest.saturating_add(1);
    }

    /// The oldest missing number and, from it on, which are missing.
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
    fn the_first_event_is_no_gap_and_later_ones_are() {
        let mut window = Window::default();
        window.note(1, 100);
        assert_eq!(window.missing(), None);
        assert!(
            window.accepts(1, 99),
            "what was overtaken by the first is taken"
        );
        window.note(1, 104);
        assert_eq!(window.missing(), Some((101, 0b111)));
        window.note(1, 102);
        assert_eq!(window.missing(), Some((101, 0b101)));
        assert!(!window.accepts(1, 102) && window.accepts(1, 103) && !window.accepts(1, 40));
        assert!(!window.accepts(0, 200) && window.accepts(2, 1) && !window.accepts(2, 0));
        window.give_up();
        assert_eq!(window.missing(), None);
        assert!(window.accepts(1, 103), "given up is not seen");
        window.note(1, 106);
        assert_eq!(window.missing(), Some((105, 1)), "a later gap is asked for");
        window.note(2, 1);
        assert!(!window.accepts(1, 103));
        window.note(2, 1_000);
        assert_eq!(
            window.missing().map(|it| it.0),
            Some(937),
            "older ones are given up"
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
