//! Protection against replay.

/// The set of accepted numbers: the newest and the 63 before it. Older ones count as accepted, so
/// no number is accepted twice.
///
/// Numbers start with 1; 0 is never accepted.
///
/// ```
/// use chappe_machine::ReplayWindow;
///
/// let mut window = ReplayWindow::default();
/// assert!(window.accept(5) && window.accept(3));
/// assert!(!window.accept(5));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// The newest accepted number; 0: none.
    pub newest: u64,
    /// Bit `n`: `newest - n` was accepted.
    pub seen: u64,
}

impl ReplayWindow {
    /// Numbers that the window distinguishes, the newest included.
    pub const SIZE: u64 = u64::BITS as u64;

    /// Whether the number is new.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        match self.newest.checked_sub(number) {
            None => true,
            Some(age) => number > 0 && age < Self::SIZE && self.seen >> age & 1 == 0,
        }
    }

    /// Accepts the number if it is new, and returns whether it was.
    pub fn accept(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        match self.newest.checked_sub(number) {
            None => {
                let ahead = number - self.newest;
                let moved = if ahead < Self::SIZE {
                    self.seen << ahead
                } else {
                    0
                };
                self.seen = moved | 1;
                self.newest = number;
            }
            Some(age) => self.seen |= 1 << age,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_accepted_once_and_old_ones_never() {
        let mut window = ReplayWindow::default();
        assert!(!window.accept(0));
        for number in [5, 3, 4, 70, 69, 8] {
            assert!(window.accept(number), "{number}");
            assert!(!window.accept(number), "{number} again");
        }
        assert!(!window.accept(6), "64 before the newest");
        assert!(window.accept(1 << 32));
        assert!(!window.accept(71));
        assert!(window.accept(u64::MAX) && !window.accept(u64::MAX));
    }

    proptest::proptest! {
        #[test]
        fn no_number_is_accepted_twice(
            numbers in proptest::collection::vec(1_u64..200, 0..300),
        ) {
            let mut window = ReplayWindow::default();
            let mut accepted = std::collections::BTreeSet::new();
            let mut newest = 0;
            for number in numbers {
                let is_new = !accepted.contains(&number) && number + ReplayWindow::SIZE > newest;
                proptest::prop_assert_eq!(window.is_new(number), is_new);
                if window.accept(number) {
                    proptest::prop_assert!(accepted.insert(number));
                    newest = newest.max(number);
                }
            }
        }
    }
}
