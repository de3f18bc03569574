//! A frame of records in memory, as it was written.

use crate::draft::Draft;
use crate::frame::each_of;
use crate::read::RecordVisitor;
use std::sync::Arc;

/// A frame of records in memory.
#[derive(Clone)]
pub(crate) struct Recent {
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    count: u32,
    pub(crate) body: Arc<Vec<u8>>,
}

impl Recent {
    /// The body of a draft, shared with it.
    pub(crate) fn new(draft: &Draft) -> Recent {
        Recent {
            epoch: draft.epoch,
            first: draft.first,
            count: draft.body.count,
            body: Arc::clone(&draft.body.bytes),
        }
    }

    /// The number after its last record.
    pub(crate) fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Calls `take` for each record (epoch, sequence, time, payload) until it returns false.
    pub(crate) fn each(&self, take: &mut RecordVisitor<'_>) {
        each_of(self.first, self.count, &self.body, |n, time, payload| {
            take(self.epoch, n, time, payload)
        });
    }
}
