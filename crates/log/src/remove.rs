//! Removes a stream: its records, its definition, and its name.
//!
//! A removal is a definition without a name. Like each definition it is written twice, synced, and
//! repeated at the start of each segment, so that older segments that still hold frames of the
//! stream do not restore it. It is repeated until all of these are removed. A stream created again
//! under the name has another number in the log and another epoch.
//!
//! On a full disk a removal is written before the queue. Queued records of its stream that it
//! overtakes are refused, so that no record of the stream follows its removal in the log.

use crate::ack::Ack;
use crate::draft::Draft;
use crate::frame::Definition;
use crate::owner::Owner;
use crate::queue::Pending;
use crate::{Error, MAX_STREAMS, Store};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Owner {
    fn remove(&self, name: &str) -> Result<bool, Error> {
        match self.queue_removal(name)? {
            Some(ack) => ack.wait(self.driven().as_ref()).map(|()| true),
            None => Ok(false),
        }
    }

    fn queue_removal(&self, name: &str) -> Result<Option<Arc<Ack>>, Error> {
        // No definition of the stream comes after its removal.
        let _definitions = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(core) = self.shared.lock().known(name) else {
            return Ok(None);
        };
        core.check_not_removed()?;
        let draft = Draft::definition(core.id, &Definition::removal(core.epoch));
        let queue = self.shared.room_for_mark(&draft)?;
        if queue.removals >= MAX_STREAMS {
            return Err(Error::TooManyStreams { limit: MAX_STREAMS });
        }
        core.removed.store(true, Ordering::Relaxed);
        let ack = Arc::new(Ack::default());
        let pending = Pending {
            draft,
            core,
            ack: Arc::clone(&ack),
            ordered: false,
        };
        self.shared.enqueue(queue, pending);
        Ok(Some(ack))
    }
}

impl Store {
    /// Removes a stream with all its records; returns once that survives a power loss, and whether
    /// the stream existed. From then on, appending to it and following it end with
    /// [`Error::Removed`]. A full disk does not prevent it. If the stream is created again, it has
    /// another epoch and no cursor.
    ///
    /// # Errors
    /// [`Error::Removed`] while another call removes it. [`Error::TooManyStreams`] if as many
    /// removals are still recorded as there may be streams: the oldest segments have to be removed
    /// first. The store has stopped, or its queue is full.
    pub fn remove(&self, name: &str) -> Result<bool, Error> {
        self.owner().remove(name)
    }
}
