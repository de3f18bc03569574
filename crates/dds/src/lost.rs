//! Counts the samples that a reader lost, by the sequence numbers of its writers.

use std::collections::BTreeMap;

use crate::Guid;

/// The largest number of writers; reason: any host in the domain can create an unlimited number. Losses of further
/// ones are not counted.
const WRITERS_MAX: usize = 4_096;

/// Counts the gaps after the first number of each writer.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    newest: BTreeMap<Guid, i64>,
    lost: u64,
}

impl Lost {
    /// Records a received sample.
    pub(crate) fn count(&mut self, writer: Guid, number: i64) {
        if let Some(newest) = self.newest.get_mut(&writer) {
            let passed = number.saturating_sub(*newest).saturating_sub(1);
            self.lost = self.lost.saturating_add(u64::try_from(passed).unwrap_or(0));
            *newest = number.max(*newest);
        } else if self.newest.len() < WRITERS_MAX {
            self.newest.insert(writer, number);
        }
    }

    /// The number of lost samples.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}
