//! The owner of an open store, shared by all its handles: its state, and the thread or the caller that
//! commits.

use crate::ack::{CommitOnDemand, Driver};
use crate::commit::Writer;
use crate::epoch::EpochSource;
use crate::scrub::pass::Pass;
use crate::shared::Shared;
use crate::step::{Committer, Step};
use crate::{Commit, Error};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

/// The outcome of [`crate::Store::commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Nothing was queued.
    Nothing,
    /// A group was written, synced if one of its streams needs that, and acknowledged.
    Group,
    /// The disk is full. After [`crate::Options::full_polls`] such calls the waiting appends are
    /// refused.
    Full {
        /// Free space in bytes.
        free: u64,
    },
}

/// Held by every handle; dropping the last one closes the store.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    /// Source of the epochs of new streams; its lock keeps definitions in order.
    pub(crate) epochs: Mutex<EpochSource>,
    pub(crate) scrub: Mutex<Pass>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// With [`Commit::Caller`], until the store is closed.
    committer: Mutex<Option<Committer>>,
    this: Weak<Owner>,
}

impl Owner {
    /// Starts the commit thread, unless the caller commits.
    pub(crate) fn start(
        shared: Arc<Shared>,
        writer: Writer,
        epochs: EpochSource,
        scrub: Pass,
    ) -> Result<Arc<Owner>, Error> {
        let committer = Committer::new(writer);
        let (thread, committer) = match shared.options.commit {
            Commit::Thread => (Some(start_thread(&shared, committer)?), None),
            Commit::Caller => (None, Some(committer)),
        };
        Ok(Arc::new_cyclic(|this| Owner {
            shared,
            epochs: Mutex::new(epochs),
            scrub: Mutex::new(scrub),
            thread: Mutex::new(thread),
            committer: Mutex::new(committer),
            this: Weak::clone(this),
        }))
    }

    /// The store to drive while a caller waits for an acknowledgement, if it has no thread.
    pub(crate) fn driven(&self) -> Option<Driver> {
        let this: Driver = self.this.clone();
        (self.shared.options.commit == Commit::Caller).then_some(this)
    }

    /// Commits one group, on this thread.
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
                    // A failed write is never retried.
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

    /// Begins a new segment with the next frame; only with [`Commit::Caller`].
    pub(crate) fn start_segment(&self) {
        if let Some(committer) = self.committer().as_mut() {
            committer.writer.must_start_segment = true;
        }
    }

    fn committer(&self) -> MutexGuard<'_, Option<Committer>> {
        self.committer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the rest of the queue and marks the clean end, on this thread.
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

    pub(crate) fn abandon(&self) {
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

    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut queue = self.shared.lock();
        queue.closing = true;
        self.shared.wake_waiters(queue);
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
        // The last handle may be dropped on the commit thread itself, in some task's waker.
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id())
            && thread.join().is_err()
        {
            return Err(Error::Failed {
                reason: "the commit thread panicked".to_owned(),
            });
        }
        self.shared.lock().ended.clone().unwrap_or(Ok(()))
    }
}

impl CommitOnDemand for Owner {
    fn commit_group(&self) -> Result<(), Error> {
        self.commit().map(drop)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // To see the result, call `Store::close`.
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
