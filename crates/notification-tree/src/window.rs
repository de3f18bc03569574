//! Which events of a source were seen: the newest number and the 64 up to it.

/// Sequence numbers up to the newest that are told apart.
pub const WINDOW: u64 = 64;

/// What a sink has seen of one source; to be stored before the event is used, and given again after
/// a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// The source's boot; events of earlier ones are old.
    pub boot: u32,
    /// The newest sequence number; 0: none.
    pub newest: u64,
    /// Bit `n`: `newest - n` was seen.
    pub seen: u64,
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
        match self.newest.checked_sub(sequence) {
            None => true,
            Some(age) => sequence > 0 && age < WINDOW && self.seen >> age & 1 == 0,
        }
    }

    /// Notes an event as seen.
    pub fn note(&mut self, boot: u32, sequence: u64) {
        if sequence == 0 || boot < self.boot {
            return;
        }
        if boot > self.boot || self.newest == 0 {
            // Of a source that was known before, all of a new life is missed that does not come.
            let since = if self.newest == 0 { sequence } else { 1 };
            *self = Self {
                boot,
                newest: sequence,
                seen: 1,
                since,
            };
            return;
        }
        match self.newest.checked_sub(sequence) {
            None => {
                let ahead = sequence - self.newest;
                self.seen = if ahead < WINDOW {
                    self.seen << ahead
                } else {
                    0
                } | 1;
                self.newest = sequence;
            }
            Some(age) if age < WINDOW => self.seen |= 1 << age,
            Some(_) => {}
        }
    }

    /// Asks no more for what is missing up to now. Not seen all the same: it is taken when it comes.
    pub(crate) fn give_up(&mut self) {
        self.since = self.newest.saturating_add(1);
    }

    /// The oldest missing number and, from it on, which are missing.
    #[must_use]
    pub fn missing(&self) -> Option<(u64, u64)> {
        let oldest = self
            .newest
            .saturating_sub(WINDOW - 1)
            .max(self.since.max(1));
        let missing = (oldest..=self.newest).filter(|number| !self.has(*number));
        let mut found = None;
        for number in missing {
            let (first, bits) = found.get_or_insert((number, 0u64));
            *bits |= 1 << (number - *first);
        }
        found
    }

    fn has(&self, sequence: u64) -> bool {
        self.seen >> (self.newest - sequence) & 1 == 1
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
