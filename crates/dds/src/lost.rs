//! Counts the samples that a reader lost, by the sequence numbers of its writers.

use std::collections::BTreeMap;

use crate::Guid;

/// The largest number of writers; reason: any host in the domain can create an unlimited number. Losses of further
/// ones are not counted.
const WRITERS_MAX: usize = 4_096;

/// Counts the gaps after the first number of each writer, and the numbers before it if the reader was full.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    newest: BTreeMap<Guid, i64>,
    lost: u64,
}

impl Lost {
    /// Records a received sample. `was_full`: whether the reader may have dropped earlier ones. Then all numbers before
    /// the first of a writer count as lost, as none of them shows where the reader began.
    pub(crate) fn count(&mut self, writer: Guid, number: i64, was_full: bool) {
        if self.newest.len() >= WRITERS_MAX && !self.newest.contains_key(&writer) {
            return;
        }
        let before = if was_full { 0 } else { number };
        let newest = self.newest.entry(writer).or_insert(before);
        let passed = number.saturating_sub(*newest).saturating_sub(1);
        self.lost = self.lost.saturating_add(u64::try_from(passed).unwrap_or(0));
        *newest = number.max(*newest);
    }

    /// The number of lost samples.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_before_the_first_are_lost_only_if_the_reader_was_full() {
        let [late, full] = [Guid([1; 16]), Guid([2; 16])];
        let mut lost = Lost::default();
        lost.count(late, 100, false);
        assert_eq!(lost.lost(), 0);
        lost.count(full, 245, true);
        assert_eq!(lost.lost(), 244);
        lost.count(full, 246, true);
        lost.count(late, 103, true);
        assert_eq!(lost.lost(), 246);
        // A repeated number is no gap.
        lost.count(late, 101, true);
        lost.count(late, 104, false);
        assert_eq!(lost.lost(), 246);
    }
}
