//! Appending records to a stream, and restoring missing ones.

use super::Stream;
use crate::ack::{Ack, Appended};
use crate::batch::{Batch, RECORD_BYTES};
use crate::draft::Draft;
use crate::frame::{Body, Bookmark, Kind, MAX_SEQUENCE, newest_cursor};
use crate::queue::Pending;
use crate::recent::Recent;
use crate::{Cursor, Error, Level, Position};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// The conditions under which a batch is accepted.
#[derive(Default)]
struct AppendConditions {
    /// This must be the last assigned number.
    expected_last: Option<u64>,
    /// The count of retractions must still be this.
    retractions: Option<u64>,
    /// See [`Stream::append_derived`].
    derived: bool,
}

impl Stream {
    /// Queues a batch of (time in nanoseconds, payload). It becomes visible as a whole once it is
    /// acknowledged.
    pub fn append(&self, batch: impl Into<Batch>) -> Result<Appended, Error> {
        self.append_under(AppendConditions::default(), batch.into())
    }

    /// Like [`Stream::append`], if `expected_last` is the last assigned number (0: none yet).
    pub fn append_if(
        &self,
        expected_last: u64,
        batch: impl Into<Batch>,
    ) -> Result<Appended, Error> {
        let conditions = AppendConditions {
            expected_last: Some(expected_last),
            ..AppendConditions::default()
        };
        self.append_under(conditions, batch.into())
    }

    /// Like [`Stream::append`], for records derived from those of an [`crate::EagerFollower`], as
    /// long as no numbers were retracted since [`crate::Store::retractions`] returned
    /// `retractions`: their inputs come before them in the log, or both are refused. If a power
    /// loss has damaged records that were not yet durable, derived records after them count as
    /// damaged too.
    ///
    /// # Errors
    /// [`Error::Retracted`]; those of [`Stream::append`].
    pub fn append_derived(
        &self,
        retractions: u64,
        batch: impl Into<Batch>,
    ) -> Result<Appended, Error> {
        let conditions = AppendConditions {
            retractions: Some(retractions),
            derived: true,
            ..AppendConditions::default()
        };
        self.append_under(conditions, batch.into())
    }

    /// Like [`Stream::append`], as long as no numbers were retracted since
    /// [`crate::Store::retractions`] returned `retractions`: the records that the caller queued
    /// before come before it in the log, or both are refused.
    ///
    /// # Errors
    /// [`Error::Retracted`]; those of [`Stream::append`].
    pub fn append_after(
        &self,
        retractions: u64,
        batch: impl Into<Batch>,
    ) -> Result<Appended, Error> {
        let conditions = AppendConditions {
            retractions: Some(retractions),
            ..AppendConditions::default()
        };
        self.append_under(conditions, batch.into())
    }

    /// Ends the pause before the next commit ([`crate::Options::commit_pause`]) if records of this
    /// stream wait for it; returns whether some do.
    pub fn skip_commit_pause(&self) -> bool {
        let waits = !self.core.is_written();
        if waits {
            self.owner.shared.skip_commit_pause();
        }
        waits
    }

    fn append_under(&self, conditions: AppendConditions, batch: Batch) -> Result<Appended, Error> {
        self.check_batch(&batch)?;
        let cursor = self.cursor_in(&batch);
        self.append_body(conditions, Body::from_batch(batch), cursor)
    }

    /// The cursor of the last record of a batch that names one.
    fn cursor_in(&self, batch: &Batch) -> Option<Cursor> {
        let cursor_of = self.owner.shared.options.cursor_of?;
        // Usually it is the very last one, or there is none.
        cursor_of(&batch.bytes[batch.last_at..])
            .or_else(|| newest_cursor(batch.count, &batch.bytes, cursor_of))
    }

    fn append_body(
        &self,
        conditions: AppendConditions,
        body: Body,
        cursor: Option<Cursor>,
    ) -> Result<Appended, Error> {
        let bytes = body.bytes.len();
        let level = self.core.view().definition.level;
        let shared = &self.owner.shared;
        let queue = match level {
            Level::Memory => shared.room_in_memory(bytes, &self.core),
            Level::Process | Level::Power => shared.room_for(bytes),
        };
        let queue = queue.inspect_err(|error| {
            if matches!(error, Error::Full { .. } | Error::QueueFull { .. }) {
                let count = u64::from(body.count);
                self.core.refused.fetch_add(count, Ordering::Relaxed);
            }
        })?;
        self.core.check_not_removed()?;
        let last = self.core.assigned.load(Ordering::Relaxed);
        if let Some(expected) = conditions
            .expected_last
            .filter(|expected| *expected != last)
        {
            return Err(Error::Conflict { expected, last });
        }
        if let Some(retractions) = conditions.retractions {
            self.check_retractions(&queue, retractions)?;
        }
        if last + 1 >= MAX_SEQUENCE {
            let reason = format!("the numbers of stream {} are exhausted", self.name());
            return Err(Error::Failed { reason });
        }
        let (first, count, epoch) = (last + 1, body.count, self.core.epoch);
        self.core
            .assigned
            .store(last + u64::from(count), Ordering::Relaxed);
        let ack = Arc::new(Ack::default());
        if level == Level::Memory {
            ack.resolve(Ok(()));
        }
        let draft = Draft {
            kind: Kind::Records,
            stream: self.core.id,
            epoch,
            first,
            body,
            level,
            derived: conditions.derived,
            bookmark: cursor.map(|cursor| Bookmark {
                number: last + u64::from(count),
                cursor,
            }),
        };
        let mut wakers = Vec::new();
        {
            let mut view = self.core.view();
            view.accepted.push_back(Recent::new(&draft));
            let eager = view.eager.values_mut();
            wakers.extend(eager.filter_map(|eager| eager.waker.take()));
        }
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: conditions.retractions.is_some(),
        };
        self.owner.shared.enqueue(queue, pending);
        wakers.into_iter().for_each(Waker::wake);
        Ok(Appended {
            first: Position {
                epoch,
                sequence: first,
            },
            count,
            ack,
            driven: self.owner.driven(),
        })
    }

    /// Restores records that are missing from the middle, under their own numbers and in their own epoch,
    /// from a copy: a subscriber, a backup. Once the result resolves they are safe against a power loss,
    /// [`Stream::gaps`] no longer lists them, and readers get them in order. `first` is the position of
    /// the first one.
    ///
    /// # Errors
    /// [`Error::NotMissing`] when one of the numbers exists, was trimmed or was never assigned;
    /// [`Error::OtherEpoch`] when the numbers were assigned in another epoch; those of
    /// [`Stream::append`].
    pub fn fill(&self, first: Position, batch: impl Into<Batch>) -> Result<Appended, Error> {
        let batch = batch.into();
        self.check_batch(&batch)?;
        let cursor = self.cursor_in(&batch);
        let body = Body::from_batch(batch);
        let next = first.sequence.saturating_add(u64::from(body.count));
        {
            let view = self.core.view();
            if !view.index.misses(first.sequence, next) {
                return Err(Error::NotMissing {
                    stream: view.definition.name.clone(),
                    from: first.sequence,
                    next,
                });
            }
            let epochs = &view.definition.epochs;
            let at = epochs.partition_point(|(_, begin)| *begin <= first.sequence);
            let end = epochs.get(at).map_or(u64::MAX, |(_, begin)| *begin);
            let known = at.checked_sub(1).map(|at| epochs[at].0);
            if next > end || known.is_some_and(|epoch| epoch != first.epoch) {
                return Err(Error::OtherEpoch {
                    stream: view.definition.name.clone(),
                    sequence: first.sequence,
                    epoch: first.epoch,
                });
            }
        }
        let (ack, count, bytes) = (Arc::new(Ack::default()), body.count, body.bytes.len());
        let draft = Draft {
            kind: Kind::Fill,
            stream: self.core.id,
            epoch: first.epoch,
            first: first.sequence,
            body,
            level: Level::Power,
            derived: false,
            bookmark: cursor.map(|cursor| Bookmark {
                number: next - 1,
                cursor,
            }),
        };
        let queue = self.owner.shared.room_for(bytes)?;
        self.core.check_not_removed()?;
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: false,
        };
        self.owner.shared.enqueue(queue, pending);
        Ok(Appended {
            first,
            count,
            ack,
            driven: self.owner.driven(),
        })
    }

    /// Whether a batch may be stored.
    fn check_batch(&self, batch: &Batch) -> Result<(), Error> {
        let (bytes, limit) = (batch.bytes.len(), self.owner.shared.options.batch_bytes);
        if batch.is_empty() {
            return Err(Error::EmptyBatch);
        }
        if bytes > limit {
            return Err(Error::TooLarge {
                what: "the batch",
                bytes,
                limit,
            });
        }
        debug_assert!(
            batch.len() <= bytes / RECORD_BYTES,
            "the count fits 32 bits"
        );
        Ok(())
    }
}
