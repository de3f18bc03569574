//! The store: one directory, one log, many streams.

use crate::open::{Opened, open};
use crate::owner::{Committed, Owner};
use crate::planted::{self, Defect};
use crate::scrub::pass::Pass;
use crate::shared::Shared;
use crate::state::Core;
use crate::waiting::Room;
use crate::{Counters, Disk, Error, Health, Lost, Options, Recovery, Stream, StreamInfo};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An open log. Clones share it; dropping the last handle (store, stream, follower) closes it.
#[derive(Clone)]
pub struct Store {
    owner: Arc<Owner>,
}

impl Store {
    /// Opens or creates the log of a directory and recovers it: reads the newest segment and the
    /// snapshots of the others. `seed` must be random: epochs are drawn from it. No other store may have the directory open.
    pub fn open(
        disk: Box<dyn Disk>,
        options: Options,
        seed: u64,
    ) -> Result<(Store, Recovery), Error> {
        options.check()?;
        let disk: Arc<dyn Disk> = Arc::from(disk);
        let Opened {
            writer,
            scanned,
            recovery,
            epochs,
        } = open(&disk, &options, seed)?;
        let shared = Arc::new(Shared::new(disk, writer.store, options));
        {
            let mut queue = shared.lock();
            for (id, stream) in scanned.streams {
                let core = Core::new(id, stream.definition, stream.index, stream.bookmark);
                queue.found(Arc::new(core));
            }
            queue.removals = scanned.removals.len();
            let last = scanned.removals.last_key_value();
            let after = last.map_or(1, |(id, _)| id.saturating_add(1));
            queue.next_id = queue.next_id.max(after);
        }
        let owner = Owner::start(shared, writer, epochs, Pass::new(&recovery.corrupt))?;
        Ok((Store { owner }, recovery))
    }

    /// Waits, after [`Error::QueueFull`], until a batch of `bytes` bytes fits into the queue.
    pub fn room(&self, bytes: usize) -> Room {
        Room::new(&self.owner.shared, bytes)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// An existing stream, unchanged.
    pub fn existing(&self, name: &str) -> Option<Stream> {
        let core = self.owner.shared.lock().streams.get(name).cloned()?;
        Some(Stream {
            core,
            owner: Arc::clone(&self.owner),
        })
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<StreamInfo> {
        let cores: Vec<Arc<Core>> = self.owner.shared.lock().streams.values().cloned().collect();
        let info = |core: Arc<Core>| {
            let view = core.view();
            StreamInfo {
                name: view.definition.name.clone(),
                level: view.definition.level,
                metadata: view.definition.metadata.clone(),
                epoch: core.epoch,
                first: view.index.first(),
                last: view.end() - 1,
                bytes: view.index.bytes(),
            }
        };
        cores.into_iter().map(info).collect()
    }

    /// Whether records are accepted.
    pub fn health(&self) -> Health {
        self.owner.shared.lock().health.clone()
    }

    /// The number of times that numbers of records were retracted because the records were refused
    /// while waiting for room on the disk; see [`Stream::append_derived`].
    pub fn retractions(&self) -> u64 {
        self.owner.shared.lock().retractions
    }

    /// The losses of each stream, by name.
    pub fn lost(&self) -> Vec<Lost> {
        let cores: Vec<Arc<Core>> = self.owner.shared.lock().streams.values().cloned().collect();
        let lost = |core: Arc<Core>| {
            let view = core.view();
            let losses = view.index.losses();
            Lost {
                stream: view.definition.name.clone(),
                corrupt: match planted::is(Defect::HidesLosses) {
                    true => 0,
                    false => losses.corrupt,
                },
                filled: losses.filled,
                size_limit: losses.removed,
                refused: core.refused.load(Ordering::Relaxed),
                missing: view.index.missing(),
            }
        };
        cores.into_iter().map(lost).collect()
    }

    /// The counters since opening.
    pub fn counters(&self) -> Counters {
        self.owner.shared.lock().counters
    }

    /// With [`crate::Commit::Caller`]: writes one group of the queue, syncs it if one of its
    /// streams needs that, and acknowledges it, on this thread. With [`crate::Commit::Thread`] it
    /// does nothing.
    ///
    /// # Errors
    /// The store has stopped: a write or a sync failed, and all waiting drafts with it.
    pub fn commit(&self) -> Result<Committed, Error> {
        self.owner.commit()
    }

    /// Stops without writing anything more: queued appends are refused and the log has no clean end, as if
    /// the process had been killed. For simulations; existing stream handles can still read.
    pub fn abandon(self) {
        self.owner.abandon();
    }

    /// Writes and syncs the queue, marks the clean end and stops. Existing stream handles can still read,
    /// but not append.
    pub fn close(self) -> Result<(), Error> {
        self.owner.close()
    }
}
