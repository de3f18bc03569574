//! Removing a stream: its records, its definition, and its place among the streams.
//!
//! A removal is a definition without a name. Like every definition it is written twice, synced, and
//! repeated at the start of each segment, so that older segments that still hold frames of the
//! stream do not bring it back. Once all of these are gone it is repeated no more. A stream that is
//! created again under the name has another number in the log and another epoch.
//!
//! On a full disk a removal is written before what is queued. What it overtakes of its stream is
//! refused, so that nothing of the stream comes after its removal in the log.

use crate::ack::Ack;
use crate::commit::{Draft, Writer};
use crate::frame::{Definition, Kind};
use crate::queue::{Pending, Queue, Shared};
use crate::store::Owner;
use crate::stream::Core;
use crate::{Error, Level, MAX_STREAMS, Store};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// A stream that was removed, as the scan of a log found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Its last epoch.
    pub(crate) epoch: u64,
    /// The oldest segment that says so: no later one holds records of it.
    pub(crate) segment: u32,
}

impl Definition {
    /// What stands in the place of a removed stream's definition.
    pub(crate) fn removal(epoch: u64) -> Definition {
        Definition {
            name: String::new(),
            level: Level::Power,
            metadata: Vec::new(),
            epochs: vec![(epoch, 1)],
        }
    }

    /// Whether it removes the stream.
    pub(crate) fn is_removal(&self) -> bool {
        self.name.is_empty()
    }
}

impl Draft {
    /// Whether it removes a stream.
    pub(crate) fn is_removal(&self) -> bool {
        self.kind == Kind::Definition
            && Definition::decode(&self.body.bytes).is_some_and(|it| it.is_removal())
    }

    /// Whether it may make room on the disk, so that it may be written before what is queued.
    pub(crate) fn makes_room(&self) -> bool {
        (self.kind == Kind::Trim && self.first > 0) || self.is_removal()
    }
}

impl Writer {
    /// A removal was written: the next segments repeat it.
    pub(crate) fn note_removal(&mut self, draft: &Draft) {
        self.marks.remove(&draft.stream);
        if let Some(track) = self.tracks.get_mut(&draft.stream) {
            track.bookmark = None;
        }
        let removal = Removal {
            epoch: draft.epoch,
            segment: self.segment,
        };
        self.removals.insert(draft.stream, removal);
    }

    /// Removals whose segments, and all before, are gone need not be repeated.
    pub(crate) fn forget_removals(&mut self) {
        let oldest = self
            .older
            .front()
            .map_or(self.segment, |(number, _)| *number);
        let is_gone = |removal: &Removal| removal.segment < oldest;
        for (stream, _) in self.removals.iter().filter(|(_, it)| is_gone(it)) {
            self.definitions.remove(stream);
            self.tracks.remove(stream);
        }
        self.removals.retain(|_, it| !is_gone(it));
    }
}

impl Core {
    /// # Errors
    /// The stream was removed. Asked under the queue's lock, no record follows a removal.
    pub(crate) fn check_kept(&self) -> Result<(), Error> {
        match self.removed.load(Ordering::Relaxed) {
            true => Err(self.removed_error()),
            false => Ok(()),
        }
    }

    pub(crate) fn removed_error(&self) -> Error {
        Error::Removed {
            stream: self.view().definition.name.clone(),
        }
    }
}

impl Queue {
    /// A removal is safe: the name is free.
    pub(crate) fn removed(&mut self, core: &Core) {
        let name = core.view().definition.name.clone();
        self.streams.remove(&name);
        self.creating.remove(&name);
    }
}

impl Shared {
    /// Refuses what is queued of removed streams.
    pub(crate) fn drop_overtaken(&self, removed: &BTreeSet<u32>, group: &mut VecDeque<Pending>) {
        if removed.is_empty() {
            return;
        }
        let is = |pending: &Pending| removed.contains(&pending.draft.stream);
        let take = |all: &mut VecDeque<Pending>| {
            let (taken, rest): (VecDeque<_>, _) = std::mem::take(all).into_iter().partition(is);
            *all = rest;
            taken
        };
        let mut overtaken = take(group);
        {
            let mut queue = self.lock();
            overtaken.extend(take(&mut queue.pending));
            for pending in &overtaken {
                queue.bytes -= pending.draft.body.bytes.len().min(queue.bytes);
            }
        }
        for pending in overtaken {
            pending.ack.resolve(Err(pending.core.removed_error()));
        }
    }
}

impl Owner {
    fn remove(&self, name: &str) -> Result<bool, Error> {
        match self.queue_removal(name)? {
            Some(ack) => ack.wait(self.driven().as_ref()).map(|()| true),
            None => Ok(false),
        }
    }

    fn queue_removal(&self, name: &str) -> Result<Option<Arc<Ack>>, Error> {
        // No definition of the stream comes after its removal.
        let _definer = self.definer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(core) = self.shared.lock().known(name) else {
            return Ok(None);
        };
        core.check_kept()?;
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
    /// Removes a stream with all its records; returns when that is safe against a power loss, and
    /// whether there was such a stream. Appending to it from then on, and following it, ends with
    /// [`Error::Removed`]. A full disk does not prevent it. Created again, the stream has another
    /// epoch and no cursor.
    ///
    /// # Errors
    /// [`Error::Removed`] while somebody else removes it.
    /// [`Error::TooManyStreams`] when as many removals are still kept as there may be streams: the
    /// oldest segments have to go first. The store has stopped, or its queue is full.
    pub fn remove(&self, name: &str) -> Result<bool, Error> {
        self.owner().remove(name)
    }
}
