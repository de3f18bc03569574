//! The store: one directory, one log, many streams.

use crate::define::{Definer, Defining};
use crate::open::{Opened, open};
use crate::planted::{self, Defect};
use crate::queue::Shared;
use crate::scrub::{Scrub, Scrubbed};
use crate::step::{Committer, Step};
use crate::stream::Core;
use crate::waiting::Room;
use crate::{Commit, Disk, Error, Health, Level, Lost, Options, Recovery, Stream, StreamInfo};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

/// What the writer counted since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records written.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Group commits.
    pub groups: u64,
    /// Syncs of the segment.
    pub syncs: u64,
    /// Appends refused because the queue or the disk was full.
    pub refused: u64,
    /// Segments removed by the size limit, whatever they held.
    pub removed_segments: u64,
    /// Segments removed because every record in them was trimmed.
    pub trimmed_segments: u64,
    /// Bytes that the scrub has read.
    pub scrubbed_bytes: u64,
    /// Rounds of the scrub that are done.
    pub scrub_rounds: u64,
    /// Damaged ranges that the scrub found.
    pub scrub_found: u64,
}

/// What a call of [`Store::commit`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Nothing was queued.
    Nothing,
    /// A group was written, synced if one of its streams needs that, and acknowledged.
    Group,
    /// There is no room. After [`Options::full_polls`] such calls what waits is refused.
    Full {
        /// Bytes that are free.
        free: u64,
    },
}

/// Held by every handle; when the last goes, the store is closed.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) definer: Mutex<Definer>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// With [`Commit::Caller`], until it has ended.
    committer: Mutex<Option<Committer>>,
    this: Weak<Owner>,
}

impl Owner {
    /// What an acknowledgement needs to be waited for.
    pub(crate) fn driven(&self) -> Option<Weak<Owner>> {
        (self.shared.options.commit == Commit::Caller).then(|| Weak::clone(&self.this))
    }

    /// One group, on this thread.
    pub(crate) fn commit(&self) -> Result<Committed, Error> {
        let mut slot = self.committer();
        let Some(committer) = slot.as_mut() else {
            let stopped = self.shared.lock().stopped.clone();
            return stopped.map_or(Ok(Committed::Nothing), Err);
        };
        let mut committed = Committed::Nothing;
        loop {
            match self.shared.step(committer) {
                Ok(Step::Done) => committed = Committed::Group,
                Ok(Step::Idle) => return Ok(committed),
                Ok(Step::Full(free)) => return Ok(Committed::Full { free }),
                Err(error) => {
                    // What failed is never tried again.
                    *slot = None;
                    self.shared.lock().ended = Some(Err(error.clone()));
                    return Err(error);
                }
            }
            if committer.is_free() {
                return Ok(committed);
            }
        }
    }

    fn committer(&self) -> MutexGuard<'_, Option<Committer>> {
        self.committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is left and marks the clean end, on this thread.
    fn end(&self) -> Result<(), Error> {
        let Some(mut committer) = self.committer().take() else {
            return self.shared.lock().ended.clone().unwrap_or(Ok(()));
        };
        let ended = loop {
            match self.shared.step(&mut committer) {
                Ok(Step::Done) => {}
                Ok(Step::Idle) => break self.shared.end(&mut committer),
                Ok(Step::Full(_)) if committer.is_free() => break self.shared.end(&mut committer),
                Ok(Step::Full(free)) => break Err(self.shared.give_up(&mut committer, free)),
                Err(error) => break Err(error),
            }
        };
        self.shared.lock().ended = Some(ended.clone());
        ended
    }

    fn abandon(&self) {
        {
            let mut queue = self.shared.lock();
            queue.abandoned = true;
            queue.closing = true;
        }
        drop(self.committer().take());
        // The thread ends without writing.
        let _ = self.close();
        self.shared.stop(&Error::Closed, VecDeque::new());
    }

    fn close(&self) -> Result<(), Error> {
        let mut queue = self.shared.lock();
        queue.closing = true;
        self.shared.end_waiting(queue);
        let closed = self.end_writing();
        self.shared.reader.disk().0.unlock();
        closed
    }

    fn end_writing(&self) -> Result<(), Error> {
        if self.shared.options.commit == Commit::Caller {
            return self.end();
        }
        self.shared.work.notify_all();
        self.shared.pause.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The last handle may go on the commit thread itself, in somebody's waker.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id())
            && thread.join().is_err()
        {
            return Err(Error::Failed {
                reason: "the commit thread ended by a panic".to_owned(),
            });
        }
        self.shared.lock().ended.clone().unwrap_or(Ok(()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Who wants to know calls `Store::close`.
        let _ = self.close();
    }
}

fn start_thread(shared: &Arc<Shared>, committer: Committer) -> Result<JoinHandle<()>, Error> {
    let shared = Arc::clone(shared);
    let builder = thread::Builder::new().name("chappe-log".to_owned());
    let thread = builder.spawn(move || shared.run(committer));
    thread.map_err(|error| Error::Io {
        what: "start the commit thread".to_owned(),
        reason: error.to_string(),
    })
}

/// A log that is open. Clones share it; the last handle (store, stream, follower) that goes closes
/// it.
#[derive(Clone)]
pub struct Store {
    owner: Arc<Owner>,
}

impl Store {
    /// Opens or creates the log of a directory and recovers it: reads all of it once. `seed` must
    /// be random: epochs are drawn from it. No other store may have the directory open.
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
            drawn,
        } = open(&disk, &options, seed)?;
        let mut shared = Shared::new(disk, writer.store, options);
        shared.scrub = Mutex::new(Scrub::new(&recovery.corrupt));
        let shared = Arc::new(shared);
        {
            let mut queue = shared.lock();
            for (id, stream) in scanned.streams {
                let name = stream.definition.name.clone();
                let core = Core::new(id, stream.definition, stream.index, stream.bookmark);
                queue.streams.insert(name, Arc::new(core));
                queue.next_id = queue.next_id.max(id.saturating_add(1));
            }
            queue.removals = scanned.removals.len();
            let last = scanned.removals.last_key_value();
            let after = last.map_or(1, |(id, _)| id.saturating_add(1));
            queue.next_id = queue.next_id.max(after);
        }
        let committer = Committer::new(writer);
        let (thread, committer) = match shared.options.commit {
            Commit::Thread => (Some(start_thread(&shared, committer)?), None),
            Commit::Caller => (None, Some(committer)),
        };
        let owner = Arc::new_cyclic(|this| Owner {
            shared,
            definer: Mutex::new(Definer { seed, drawn }),
            thread: Mutex::new(thread),
            committer: Mutex::new(committer),
            this: Weak::clone(this),
        });
        Ok((Store { owner }, recovery))
    }

    /// Waits, after [`Error::QueueFull`], until a batch of so many bytes fits into the queue.
    pub fn room(&self, bytes: usize) -> Room {
        Room::new(&self.owner.shared, bytes)
    }

    /// Opens a stream, or creates it. A changed level or changed metadata are recorded before it
    /// returns.
    pub fn stream(&self, name: &str, level: Level, metadata: &[u8]) -> Result<Stream, Error> {
        let define = |_: Option<(Level, &[u8])>| Ok::<_, Error>((level, metadata.to_vec()));
        self.define(name, define)?.wait()
    }

    /// Opens a stream, or creates it, without waiting for the disk: `definition` makes level and
    /// metadata of the newest ones, or of none. Definitions that are queued together are made safe
    /// together.
    ///
    /// # Errors
    /// Those of `definition`; a name or metadata that are too large, no name, too many streams, a stream
    /// that is being removed, a queue or a disk that is full, a store that has stopped.
    pub fn define<E: From<Error>>(
        &self,
        name: &str,
        definition: impl FnOnce(Option<(Level, &[u8])>) -> Result<(Level, Vec<u8>), E>,
    ) -> Result<Defining, E> {
        self.owner.define(name, None, definition)
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// A stream that exists, as it is.
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

    /// Whether records are taken.
    pub fn health(&self) -> Health {
        self.owner.shared.lock().health.clone()
    }

    /// How often numbers were taken back from records that were refused while they waited for room
    /// on the disk; see [`Stream::append_derived`].
    pub fn taken_back(&self) -> u64 {
        self.owner.shared.lock().taken_back
    }

    /// What each stream has lost, by name.
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

    /// Reads about `budget_bytes` of the segments that are not written any more, looks at every
    /// checksum, and tells of damage that was not known. Each call goes on where the one before
    /// ended; after the newest segment it begins anew. Blocks on the disk.
    ///
    /// # Errors
    /// The disk does not read.
    pub fn scrub(&self, budget_bytes: u64) -> Result<Scrubbed, Error> {
        self.owner.scrub(budget_bytes)
    }

    /// What was counted since opening.
    pub fn counters(&self) -> Counters {
        self.owner.shared.lock().counters
    }

    /// With [`Commit::Caller`]: writes one group of what is queued, syncs it if one of its streams
    /// needs that, and acknowledges it, on this thread. With [`Commit::Thread`] it does nothing.
    ///
    /// # Errors
    /// The store has stopped: a write or a sync failed. Everything that waited was told.
    pub fn commit(&self) -> Result<Committed, Error> {
        self.owner.commit()
    }

    /// Stops without writing anything more: what is queued is refused and the log has no clean end,
    /// as if the process had been killed. For simulations; streams that are still held can be read.
    pub fn abandon(self) {
        self.owner.abandon();
    }

    /// Writes and syncs what is queued, marks the clean end and stops. Streams that are still held
    /// can be read afterwards, not appended to.
    pub fn close(self) -> Result<(), Error> {
        self.owner.close()
    }
}
