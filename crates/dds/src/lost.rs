//! What a reader was passed over, by the numbers of its writers.

use std::collections::BTreeMap;

use crate::Guid;

/// Writers whose numbers are remembered; reason: whoever reaches the domain can be as many as it
/// likes. Of those above it no loss is counted.
const WRITERS_MAX: usize = 4_096;

/// Counts the numbers missing behind the first of each writer.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    newest: BTreeMap<Guid, i64>,
    lost: u64,
}

impl Lost {
    /// A sample came.
    pub(crate) fn count(&mut self, writer: Guid, number: i64) {
        if let Some(newest) = self.newest.get_mut(&writer) {
            let passed = number.saturating_sub(*newest).saturating_sub(1);
            self.lost = self.lost.saturating_add(u64::try_from(passed).unwrap_or(0));
            *newest = number.max(*newest);
        } else if self.newest.len() < WRITERS_MAX {
            self.newest.insert(writer, number);
        }
    }

    /// How many so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}
