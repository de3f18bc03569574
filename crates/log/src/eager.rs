//! Following a stream ahead of the disk: records as soon as their numbers are assigned.
//!
//! For programs that derive records from records of the same store. The log has one order: derived
//! records are written after their inputs, mostly by the same group commit. That costs one wait for the
//! disk instead of two, and no reader sees either before both are safe. Where a power loss tears that
//! write and keeps only its later part, the derived records in it count as damaged too.
//!
//! The price: while the disk is full the store refuses waiting records and assigns their numbers again.
//! An eager follower that has seen such records gets [`Error::Retracted`], and records derived from them
//! are refused too, if need be by [`Stream::append_derived`]. It continues from the stored records.

use crate::read::RecordVisitor;
use crate::recent::Recent;
use crate::state::Eager;
use crate::{Error, Position, Rollback, Stream};
use std::task::{Context, Poll};

/// Maximum number of bytes of records that are not yet durable returned at a time.
const BYTES_MAX: usize = 64 * 1024;

/// Returns a stream's records in order, without gaps, as soon as they are accepted, before they are
/// durable.
pub struct EagerFollower {
    stream: Stream,
    id: u64,
}

impl Stream {
    /// Follows from a number (0: from the first kept), without waiting until records are durable.
    pub fn follow_eagerly(&self, from_sequence: u64) -> EagerFollower {
        let next = match from_sequence {
            0 => self.first(),
            from => from,
        };
        let mut view = self.core.view();
        let id = view.new_follower();
        view.eager.insert(id, Eager::new(next));
        drop(view);
        EagerFollower::new(self.clone(), id)
    }
}

/// The source of the next records.
enum Next {
    /// These records, starting with this number.
    Accepted(u64, Vec<Recent>),
    /// The log, from this number.
    Stored(u64),
    Nothing,
}

impl EagerFollower {
    pub(crate) fn new(stream: Stream, id: u64) -> EagerFollower {
        EagerFollower { stream, id }
    }

    /// Passes the next records (position, time, payload) to `take`, at least one. After
    /// [`Error::Gap`] it continues after the gap, after [`Error::Rollback`] (it started beyond the
    /// end) with the next record, after [`Error::Retracted`] with the retracted numbers, once they
    /// are assigned again. When the store has stopped, all durable records are still passed on,
    /// then the reason.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        take: &mut dyn FnMut(Position, i64, &[u8]),
    ) -> Poll<Result<(), Error>> {
        match self.try_next(take, Some(context)) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Like [`EagerFollower::poll_next`], as a future.
    pub async fn next(
        &mut self,
        take: &mut (dyn FnMut(Position, i64, &[u8]) + Send),
    ) -> Result<(), Error> {
        std::future::poll_fn(|context| self.poll_next(context, take)).await
    }

    fn try_next(
        &mut self,
        take: &mut dyn FnMut(Position, i64, &[u8]),
        context: Option<&mut Context<'_>>,
    ) -> Result<bool, Error> {
        match self.look(context)? {
            Next::Nothing => Ok(false),
            Next::Accepted(from, frames) => {
                for frame in frames {
                    let take: &mut RecordVisitor<'_> = &mut |epoch, sequence, time, payload| {
                        if sequence >= from {
                            take(Position { epoch, sequence }, time, payload);
                        }
                        true
                    };
                    frame.each(take);
                }
                Ok(true)
            }
            Next::Stored(from) => {
                let records = self.stream.owner.shared.options.follow_records;
                let outcome = self.stream.visit(from, records, usize::MAX, take);
                let next = match &outcome {
                    Ok(next) => *next,
                    Err(Error::Gap { next, .. }) => *next,
                    Err(_) => from,
                };
                if let Some(eager) = self.stream.core.view().eager.get_mut(&self.id) {
                    eager.next = next;
                }
                outcome.map(|next| next > from)
            }
        }
    }

    /// The source of the next records; registers the waker if there are none.
    fn look(&self, context: Option<&mut Context<'_>>) -> Result<Next, Error> {
        let mut view = self.stream.core.view();
        let view = &mut *view;
        let Some(eager) = view.eager.get_mut(&self.id) else {
            return Ok(Next::Nothing);
        };
        if std::mem::take(&mut eager.retractions) {
            let stream = view.definition.name.clone();
            return Err(Error::Retracted { stream });
        }
        let next = eager.next;
        if next < view.index.next() {
            return Ok(Next::Stored(next));
        }
        if let Some(error) = &view.stopped {
            return Err(error.clone());
        }
        let end = view.accepted.back().map_or(view.index.next(), Recent::next);
        if next > end {
            let epoch = self.stream.core.epoch;
            let position = |next: u64| Position {
                epoch,
                sequence: next - 1,
            };
            eager.next = end;
            return Err(Error::Rollback(Rollback {
                have: position(next),
                kept: Some(position(end)),
                next: end,
            }));
        }
        let at = view.accepted.partition_point(|it| it.next() <= next);
        let mut bytes = 0;
        let frames = view.accepted.range(at..).take_while(|frame| {
            let fits = bytes < BYTES_MAX;
            bytes += frame.body.len();
            fits
        });
        let frames: Vec<Recent> = frames.cloned().collect();
        if let Some(last) = frames.last() {
            eager.next = last.next();
            return Ok(Next::Accepted(next, frames));
        }
        eager.waker = context.map(|context| context.waker().clone());
        Ok(Next::Nothing)
    }

    /// The next number.
    pub fn next_sequence(&self) -> u64 {
        let view = self.stream.core.view();
        view.eager.get(&self.id).map_or(0, |eager| eager.next)
    }
}

impl Drop for EagerFollower {
    fn drop(&mut self) {
        self.stream.core.view().eager.remove(&self.id);
    }
}
