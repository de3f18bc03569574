//! Follows a stream: its acknowledged records in order, read from the log. A slow follower costs
//! the writer only a waker.

use crate::stream::read::READ_BYTES;
use crate::{Error, Position, Record, Rollback, Stream};
use std::task::{Context, Poll};

/// Returns a stream's acknowledged records in order, without gaps, as they arrive.
pub struct Follower {
    stream: Stream,
    id: u64,
    next: u64,
    max_records: usize,
    max_bytes: usize,
}

impl Stream {
    /// Follows from a number (0: from the first kept).
    pub fn follow(&self, from_sequence: u64) -> Follower {
        let id = self.core.view().new_follower();
        let next = if from_sequence == 0 {
            self.first()
        } else {
            from_sequence
        };
        Follower::new(self.clone(), id, next)
    }
}

impl Follower {
    pub(crate) fn new(stream: Stream, id: u64, next: u64) -> Follower {
        Follower {
            max_records: stream.owner.shared.options.follow_records,
            stream,
            id,
            next,
            max_bytes: READ_BYTES,
        }
    }

    /// Limits a batch to about `max_bytes` of payload instead of 8 MiB, where there may be many
    /// readers; a batch still has at least one record.
    #[must_use]
    pub fn within(mut self, max_bytes: usize) -> Follower {
        self.max_bytes = max_bytes;
        self
    }

    /// Limits a batch to so many records instead of [`crate::Options::follow_records`]: each batch reads whole frames,
    /// so that one of few records costs as much as one of many.
    #[must_use]
    pub fn records(mut self, max_records: usize) -> Follower {
        self.max_records = max_records.max(1);
        self
    }

    /// The next batch; never empty. After [`Error::Gap`] it continues after the gap, after
    /// [`Error::Rollback`] (it started beyond the end) with the next record. When the store has stopped,
    /// the remaining records are still returned, then the reason.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Record>, Error>> {
        loop {
            if let Some(batch) = self.try_next().transpose() {
                return Poll::Ready(batch);
            }
            let mut view = self.stream.core.view();
            if view.end() > self.next {
                continue;
            }
            if let Some(error) = &view.stopped {
                return Poll::Ready(Err(error.clone()));
            }
            view.wakers.insert(self.id, context.waker().clone());
            return Poll::Pending;
        }
    }

    /// The next batch, as a future; see [`Follower::poll_next`].
    pub async fn next(&mut self) -> Result<Vec<Record>, Error> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Ready when the stream has records after number `seen`, or ends. Returns no records.
    pub fn poll_beyond(&mut self, seen: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut view = self.stream.core.view();
        if view.end() > seen.saturating_add(1) || view.stopped.is_some() {
            return Poll::Ready(());
        }
        view.wakers.insert(self.id, context.waker().clone());
        Poll::Pending
    }

    /// The next batch, if one is available.
    pub fn try_next(&mut self) -> Result<Option<Vec<Record>>, Error> {
        let end = self.stream.core.view().end();
        if self.next > end {
            let epoch = self.stream.epoch();
            let have = Position {
                epoch,
                sequence: self.next - 1,
            };
            let kept = Some(Position {
                epoch,
                sequence: end - 1,
            });
            self.next = end;
            return Err(Error::Rollback(Rollback {
                have,
                kept,
                next: end,
            }));
        }
        let read = self
            .stream
            .read_within(self.next, self.max_records, self.max_bytes);
        match read {
            Ok(records) => {
                let Some(last) = records.last() else {
                    return Ok(None);
                };
                self.next = last.position.sequence + 1;
                Ok(Some(records))
            }
            Err(error) => {
                if let Error::Gap { next, .. } = &error {
                    self.next = *next;
                }
                Err(error)
            }
        }
    }

    /// The next sequence number.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stream.core.view().wakers.remove(&self.id);
    }
}
