//! One stream of the store: its positions, trimming, its cursor, resuming. Appending and reading
//! have their own files.

mod append;
mod count;
pub(crate) mod read;

use crate::ack::{Ack, Trimmed};
use crate::draft::Draft;
use crate::frame::Bookmark;
use crate::owner::Owner;
use crate::queue::{Pending, Queue};
use crate::state::Core;
use crate::waiting::{Room, Settled};
use crate::{Cursor, Error, Level, Position, Rollback};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A stream of records. Clones share it.
#[derive(Clone)]
pub struct Stream {
    pub(crate) core: Arc<Core>,
    pub(crate) owner: Arc<Owner>,
}

impl Stream {
    /// Waits, after [`Error::QueueFull`], until a batch of `bytes` bytes fits into the queue.
    pub fn room(&self, bytes: usize) -> Room {
        Room::new(&self.owner.shared, bytes)
    }

    /// Removes the records before a number (at most those that are acknowledged): once the result
    /// resolves they are no longer read, and segments in which nothing is kept are deleted. The
    /// mark is as durable as the stream's level; if it is lost, the records reappear. Trimming
    /// again to a lower number costs nothing.
    ///
    /// Readers and followers that reach such a record get [`Error::Gap`] with
    /// [`crate::GapReason::Trimmed`] and continue after it. Numbers are never reused.
    ///
    /// # Errors
    /// The store has stopped, or its queue is full; a full disk does not prevent it.
    pub fn trim(&self, before_sequence: u64) -> Result<Trimmed, Error> {
        let ack = Arc::new(Ack::default());
        let (first, before, level) = {
            let view = self.core.view();
            let before = before_sequence.min(view.index.next());
            (view.index.first(), before, view.definition.level)
        };
        if before <= first {
            ack.resolve(Ok(()));
            return Ok(Trimmed {
                first,
                ack,
                driven: None,
            });
        }
        let draft = Draft::trim(self.core.id, self.core.epoch, before, level);
        let queue = self.owner.shared.room_for_mark(&draft)?;
        self.core.check_not_removed()?;
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: false,
        };
        self.owner.shared.enqueue(queue, pending);
        let first = before;
        Ok(Trimmed {
            first,
            ack,
            driven: self.owner.driven(),
        })
    }

    /// The newest cursor that the stream's acknowledged records named
    /// ([`crate::Options::cursor_of`]), or that was set. It outlives them: neither a trim nor the
    /// size limit removes it.
    pub fn cursor(&self) -> Option<Cursor> {
        self.core.view().bookmark.map(|bookmark| bookmark.cursor)
    }

    /// Sets the cursor after the queued records, on the conditions of [`Stream::append_after`]. It
    /// survives a power loss once the result resolves.
    ///
    /// # Errors
    /// Those of [`Stream::append_after`].
    pub fn set_cursor(&self, retractions: u64, cursor: Cursor) -> Result<Trimmed, Error> {
        let ack = Arc::new(Ack::default());
        let queue = self.owner.shared.room_for(size_of::<Bookmark>())?;
        self.core.check_not_removed()?;
        self.check_retractions(&queue, retractions)?;
        let number = self.assigned();
        let mut draft = Draft::trim(self.core.id, self.core.epoch, 0, Level::Power);
        draft.bookmark = Some(Bookmark { number, cursor });
        self.core.cursors.fetch_add(1, Ordering::Relaxed);
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: true,
        };
        self.owner.shared.enqueue(queue, pending);
        Ok(Trimmed {
            first: self.first(),
            ack,
            driven: self.owner.driven(),
        })
    }

    /// Whether nothing of it is in flight to the disk: neither records nor a cursor.
    pub fn is_settled(&self) -> bool {
        self.core.is_settled()
    }

    /// Waits until nothing of it is in flight to the disk: neither records nor a cursor.
    pub fn settled(&self) -> Settled {
        Settled::new(&self.owner.shared, &self.core)
    }

    fn check_retractions(&self, queue: &Queue, retractions: u64) -> Result<(), Error> {
        if retractions != queue.retractions {
            let stream = self.name();
            return Err(Error::Retracted { stream });
        }
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> String {
        self.core.view().definition.name.clone()
    }

    /// Whether it was removed by [`crate::Store::remove`], or is about to be: it accepts no more
    /// records.
    pub fn is_removed(&self) -> bool {
        self.core.check_not_removed().is_err()
    }

    /// The number assigned at its definition; a stream that was defined later has a higher one.
    pub fn number(&self) -> u32 {
        self.core.id
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.core.view().definition.level
    }

    /// The first number still kept; `last() + 1` when there are no records.
    pub fn first(&self) -> u64 {
        self.core.view().index.first()
    }

    /// The last acknowledged number that can be read; 0 if there is none. (A record of level
    /// `Memory` is acknowledged at once but can be read only when it is written, or while it waits
    /// for room on a full disk.)
    pub fn last(&self) -> u64 {
        self.core.view().end() - 1
    }

    /// The last assigned number; those after [`Stream::last`] are in flight to the disk.
    pub fn assigned(&self) -> u64 {
        self.core.assigned.load(Ordering::Relaxed)
    }

    /// The current epoch.
    pub fn epoch(&self) -> u64 {
        self.core.epoch
    }

    /// The epochs that are remembered, oldest first, each with its first number.
    pub fn epochs(&self) -> Vec<(u64, u64)> {
        self.core.view().definition.epochs.clone()
    }

    /// Gives up missing records: [`Stream::gaps`] no longer lists them, readers skip them as
    /// before, and the damaged bytes need not be kept. They can still be restored. The result
    /// resolves like that of a trim, at level power.
    ///
    /// # Errors
    /// [`Error::NotMissing`] if one of the numbers exists; those of [`Stream::trim`].
    pub fn give_up(&self, from: u64, last: u64) -> Result<Trimmed, Error> {
        let next = last.saturating_add(1);
        if !self.core.view().index.misses(from, next) {
            let stream = self.name();
            return Err(Error::NotMissing { stream, from, next });
        }
        let ack = Arc::new(Ack::default());
        let draft = Draft::lost(self.core.id, self.core.epoch, from, next);
        let queue = self.owner.shared.room_for(draft.body.bytes.len())?;
        self.core.check_not_removed()?;
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: false,
        };
        self.owner.shared.enqueue(queue, pending);
        Ok(Trimmed {
            first: next,
            ack,
            driven: self.owner.driven(),
        })
    }

    /// Missing numbers that were given up: first and last of each range.
    pub fn given_up(&self) -> Vec<(u64, u64)> {
        self.core.view().index.given_up()
    }

    /// Known gaps (first and last missing number), oldest first, except those given up.
    pub fn gaps(&self) -> Vec<(u64, u64)> {
        self.core.view().index.gaps()
    }

    /// The number at which a client that has everything up to `position` continues; sequence 0 of a known
    /// epoch means that it has nothing.
    pub fn resume(&self, position: Position) -> Result<u64, Rollback> {
        let view = self.core.view();
        let epochs = &view.definition.epochs;
        let Some(at) = epochs
            .iter()
            .position(|(epoch, _)| *epoch == position.epoch)
        else {
            return Err(Rollback {
                have: position,
                kept: None,
                next: view.index.first(),
            });
        };
        if position.sequence == 0 {
            return Ok(view.index.first());
        }
        let begin = epochs[at].1;
        let end = epochs.get(at + 1).map_or(view.end(), |(_, first)| *first);
        if position.sequence >= end || position.sequence + 1 < begin {
            let kept = Position {
                epoch: position.epoch,
                sequence: end - 1,
            };
            return Err(Rollback {
                have: position,
                kept: Some(kept),
                next: end,
            });
        }
        Ok(position.sequence + 1)
    }

    /// The caller's bytes.
    pub fn metadata(&self) -> Vec<u8> {
        self.core.view().definition.metadata.clone()
    }

    /// The number of the caller's bytes, of at most [`MAX_METADATA_BYTES`](crate::MAX_METADATA_BYTES).
    pub fn metadata_bytes(&self) -> usize {
        self.core.view().definition.metadata.len()
    }
}
