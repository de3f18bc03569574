//! How far each producer of a stream was stored: the newest number of each epoch of the origin among the
//! newest elements.
//!
//! A client's element carries its producer and its number there as the position at the origin, in the
//! same record, as an element carries its position at the node that it came over a link from.

use std::collections::BTreeMap;

use chappe_log::Error;

use super::{StoreError, StreamLog};
use crate::Epoch;
use crate::codec::RecordHead;

/// Records that are read at once.
const READ_RECORDS: usize = 1_024;
/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 20;

impl StreamLog {
    /// The highest number of each epoch of the origin among the newest `count` elements. Reads all of
    /// these, so call it on a thread that may wait for the disk.
    ///
    /// # Errors
    /// An error of the log, or a record whose head does not decode.
    pub fn newest_origins(&self, count: u64) -> Result<BTreeMap<Epoch, u64>, StoreError> {
        let mut newest = BTreeMap::new();
        let mut next = self.stream.newest_from(count);
        loop {
            let records = match self.stream.read_within(next, READ_RECORDS, READ_BYTES) {
                Err(Error::Gap { next: after, .. }) => {
                    next = after;
                    continue;
                }
                records => records?,
            };
            let Some(last) = records.last() else {
                return Ok(newest);
            };
            next = last.position.sequence + 1;
            for record in &records {
                if let Some(origin) = RecordHead::decode(&record.payload)?.0.origin {
                    let number = newest.entry(origin.epoch).or_insert(0);
                    *number = origin.sequence.max(*number);
                }
            }
        }
    }
}
