//! Following a stream: its elements in order, as they are stored, or before.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use chappe_log::{EagerFollower, Follower, Record};

use super::elements::{decode_all, decode_record};
use super::metadata::Metadata;
use super::{StoreError, StreamLog};
use crate::{StreamElement, StreamSchema};

/// Returns a stream's elements in order, as they are stored, or before.
pub struct StreamFollower {
    following: Following,
    log: StreamLog,
    /// The schema when the newest batch was decoded.
    metadata: Arc<Metadata>,
}

enum Following {
    Safe(Follower),
    Eager(EagerFollower),
}

impl StreamLog {
    /// Follows from number `from` (0: from the first kept).
    #[must_use]
    pub fn follow(&self, from: u64) -> StreamFollower {
        self.follower(Following::Safe(self.stream.follow(from)))
    }

    /// Like [`StreamLog::follow`], with batches of about `max_bytes` as stored instead of 8 MiB,
    /// for readers that may be many.
    #[must_use]
    pub fn follow_within(&self, from: u64, max_bytes: usize) -> StreamFollower {
        self.follower(Following::Safe(self.stream.follow(from).within(max_bytes)))
    }

    /// Follows from number `from` (0: from the first kept), without waiting until elements have
    /// reached their level; elements derived from them are stored by [`StreamLog::append_derived`].
    #[must_use]
    pub fn follow_eagerly(&self, from: u64) -> StreamFollower {
        self.follower(Following::Eager(self.stream.follow_eagerly(from)))
    }

    fn follower(&self, following: Following) -> StreamFollower {
        StreamFollower {
            following,
            metadata: self.snapshot(),
            log: self.clone(),
        }
    }
}

impl StreamFollower {
    /// The next batch; never empty. After a gap it continues with the first element after it.
    ///
    /// # Errors
    /// A gap, or elements that do not decode.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<StreamElement>, StoreError>> {
        let follower = match &mut self.following {
            Following::Safe(follower) => {
                let records = ready!(follower.poll_next(context))?;
                return Poll::Ready(self.decode(records));
            }
            Following::Eager(follower) => follower,
        };
        let metadata = self.log.snapshot();
        self.metadata.clone_from(&metadata);
        let mut elements = Ok(Vec::new());
        let mut take = |position, time, payload: &[u8]| {
            if let Ok(so_far) = &mut elements {
                match decode_record(&metadata, position, time, payload) {
                    Ok(element) => so_far.push(element),
                    Err(error) => elements = Err(error),
                }
            }
        };
        ready!(follower.poll_next(context, &mut take))?;
        Poll::Ready(elements)
    }

    /// Ready when there is something to read; it reads nothing. An eager follower is always ready.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.following {
            Following::Safe(follower) => {
                let seen = follower.next_sequence().saturating_sub(1);
                follower.poll_beyond(seen, context)
            }
            Following::Eager(_) => Poll::Ready(()),
        }
    }

    /// The next batch; never empty. After a gap it continues with the first element after it.
    ///
    /// # Errors
    /// A gap, or elements that do not decode.
    pub async fn next(&mut self) -> Result<Vec<StreamElement>, StoreError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next batch if there is one now.
    ///
    /// # Errors
    /// A gap, or elements that do not decode.
    pub fn try_next(&mut self) -> Result<Option<Vec<StreamElement>>, StoreError> {
        if let Following::Safe(follower) = &mut self.following {
            let records = follower.try_next()?;
            return records.map(|records| self.decode(records)).transpose();
        }
        let mut nobody = Context::from_waker(Waker::noop());
        match self.poll_next(&mut nobody) {
            Poll::Ready(elements) => elements.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    fn decode(&mut self, records: Vec<Record>) -> Result<Vec<StreamElement>, StoreError> {
        self.metadata = self.log.snapshot();
        decode_all(&self.metadata, records)
    }

    /// The schema whose shape the elements of the newest batch have. The stream may have another one
    /// by the time they are used.
    #[must_use]
    pub fn schema(&self) -> &StreamSchema {
        self.metadata.current()
    }

    /// The version of [`StreamFollower::schema`].
    #[must_use]
    pub fn schema_version(&self) -> u32 {
        self.metadata.current_version()
    }

    /// The next number.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        match &self.following {
            Following::Safe(follower) => follower.next_sequence(),
            Following::Eager(follower) => follower.next_sequence(),
        }
    }
}
