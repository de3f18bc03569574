//! One stream of the store.

use crate::{Error, Follower, Level, Position, Record, Rollback};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A stream of records. Clones share it.
#[derive(Clone)]
pub struct Stream;

/// A batch on its way: resolves when it has reached its stream's level. Dropping it does not take
/// the batch back.
#[must_use = "a batch is acknowledged when this resolves"]
pub struct Appended {
    /// The position of the batch's first record. It is the batch's own only once acknowledged.
    pub first: Position,
    /// How many records the batch has.
    pub count: u32,
}

impl Appended {
    /// Waits on this thread.
    pub fn wait(self) -> Result<(), Error> {
        Err(Error::Closed)
    }
}

impl Future for Appended {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Err(Error::Closed))
    }
}

impl Stream {
    /// Queues a batch of (time in nanoseconds, payload).
    pub fn append(&self, batch: Vec<(i64, Vec<u8>)>) -> Result<Appended, Error> {
        let _ = batch;
        Err(Error::Closed)
    }

    /// As [`Stream::append`], if `expected_last` is the last number given out (0: none yet).
    pub fn append_if(
        &self,
        expected_last: u64,
        batch: Vec<(i64, Vec<u8>)>,
    ) -> Result<Appended, Error> {
        let _ = (expected_last, batch);
        Err(Error::Closed)
    }

    /// The name.
    pub fn name(&self) -> &str {
        ""
    }

    /// The level.
    pub fn level(&self) -> Level {
        Level::Power
    }

    /// The first number still kept; `last() + 1` when there are no records.
    pub fn first(&self) -> u64 {
        1
    }

    /// The last acknowledged number that can be read, 0 when there was none yet.
    pub fn last(&self) -> u64 {
        0
    }

    /// The present epoch.
    pub fn epoch(&self) -> u64 {
        0
    }

    /// The epochs that are remembered, oldest first, each with its first number.
    pub fn epochs(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Known gaps (first and last missing number), oldest first.
    pub fn gaps(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// At most `max_records` acknowledged records from `from_sequence` on (0: from the first kept).
    /// Stops before a gap; asked for a number in a gap it returns [`Error::Gap`].
    pub fn read(&self, from_sequence: u64, max_records: usize) -> Result<Vec<Record>, Error> {
        let _ = (from_sequence, max_records);
        Err(Error::Closed)
    }

    /// The newest records in order, at most `n`. Passes over gaps, which [`Stream::gaps`] lists.
    pub fn newest(&self, n: usize) -> Result<Vec<Record>, Error> {
        let _ = n;
        Err(Error::Closed)
    }

    /// Records with `from_ns <= time < to_ns` in order of their numbers, at most `limit`. Passes
    /// over gaps, which [`Stream::gaps`] lists.
    pub fn range(&self, from_ns: i64, to_ns: i64, limit: usize) -> Result<Vec<Record>, Error> {
        let _ = (from_ns, to_ns, limit);
        Err(Error::Closed)
    }

    /// Follows from a number on (0: from the first kept).
    pub fn follow(&self, from_sequence: u64) -> Follower {
        let _ = from_sequence;
        unreachable!("no stream can be made yet")
    }

    /// Where a client that has everything up to `position` goes on; sequence 0 of any epoch means
    /// that it has nothing.
    pub fn resume(&self, position: Position) -> Result<u64, Rollback> {
        Err(Rollback {
            have: position,
            kept: None,
            next: 0,
        })
    }

    /// Records new metadata; returns when they are safe.
    pub fn set_metadata(&self, metadata: &[u8]) -> Result<(), Error> {
        let _ = metadata;
        Err(Error::Closed)
    }

    /// The caller's bytes.
    pub fn metadata(&self) -> Vec<u8> {
        Vec::new()
    }
}
