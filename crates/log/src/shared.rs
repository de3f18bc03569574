//! The state shared by appenders, readers and the committer: the queue under its lock, and its waiters.

use crate::cache::RecentCache;
use crate::draft::Draft;
use crate::frame::Kind;
use crate::queue::{Pending, Queue};
use crate::read::Reader;
use crate::share::Shares;
use crate::state::Core;
use crate::{Commit, Disk, Error, Health, Options, QueueFull};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Maximum size of one commit in bytes: more gains nothing and delays the first records.
const GROUP_BYTES: u64 = 4 * 1024 * 1024;

/// Number of drafts for which the queue keeps capacity: as many as wait for a commit on a busy
/// node.
const ROOM_KEPT: usize = 256;

/// If more than this is queued, there is enough for a commit: the pause between two ends.
const PAUSE_BYTES: usize = 256 * 1024;

/// Shared by all handles of a store and its commit thread.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) reader: Reader,
    pub(crate) queue: Mutex<Queue>,
    /// There is work, or the store is closing.
    pub(crate) work: Condvar,
    /// The store is closing: the pause between two commits ends.
    pub(crate) pause: Condvar,
    pub(crate) recents: RecentCache,
    /// There is room in the queue, or there will never be.
    pub(crate) room: Condvar,
    pub(crate) shares: Mutex<Shares>,
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: u64, options: Options) -> Shared {
        Shared {
            reader: Reader::new(disk, store),
            queue: Mutex::new(Queue::new()),
            work: Condvar::new(),
            pause: Condvar::new(),
            recents: RecentCache::new(options.recent_bytes),
            options,
            room: Condvar::new(),
            shares: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue's lock, once records are accepted and `bytes` fit.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<MutexGuard<'_, Queue>, Error> {
        self.room_in_queue(bytes, None)
    }

    /// Like [`Shared::room_for`], for records of level memory: they are accepted while the disk is
    /// full too, up to [`Options::full_bytes`].
    pub(crate) fn room_in_memory(
        &self,
        bytes: usize,
        core: &Core,
    ) -> Result<MutexGuard<'_, Queue>, Error> {
        self.room_in_queue(bytes, Some(core))
    }

    fn room_in_queue(
        &self,
        bytes: usize,
        memory: Option<&Core>,
    ) -> Result<MutexGuard<'_, Queue>, Error> {
        let mut queue = self.lock();
        loop {
            if let Some(error) = &queue.stopped {
                return Err(error.clone());
            }
            if queue.closing {
                return Err(Error::Closed);
            }
            let refused = match memory {
                Some(core) if queue.lacks_room() => {
                    let left = self.options.full_bytes.saturating_sub(queue.bytes);
                    core.queued.load(Ordering::Relaxed) + bytes > left
                }
                _ => queue.health == Health::Full,
            };
            if refused {
                queue.counters.refused += 1;
                let (free, reserve) = (queue.free, self.options.reserve_bytes);
                return Err(Error::Full { free, reserve });
            }
            if self.fits(&queue, bytes) {
                return Ok(queue);
            }
            let refuse = self.options.queue_full == QueueFull::Refuse;
            if refuse || self.options.commit == Commit::Caller {
                queue.counters.refused += 1;
                return Err(Error::QueueFull {
                    bytes,
                    queued: queue.bytes,
                    limit: self.queue_limit(&queue),
                });
            }
            queue.waiting += 1;
            let woken = self.room.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        }
    }

    /// Maximum number of bytes that may be queued now.
    fn queue_limit(&self, queue: &Queue) -> usize {
        let more = if queue.lacks_room() {
            self.options.full_bytes
        } else {
            0
        };
        self.options.queue_bytes.saturating_add(more)
    }

    /// Whether `bytes` fit; a single batch always fits.
    pub(crate) fn fits(&self, queue: &Queue, bytes: usize) -> bool {
        queue.bytes == 0 || queue.bytes + bytes <= self.queue_limit(queue)
    }

    /// Queues a draft, and wakes the commit thread if it sleeps: waking costs a system call, and
    /// while the thread writes it checks the queue anyway.
    pub(crate) fn enqueue(&self, mut queue: MutexGuard<'_, Queue>, pending: Pending) {
        let bytes = pending.draft.body.bytes.len();
        queue.bytes += bytes;
        pending.core.queued.fetch_add(bytes, Ordering::Relaxed);
        // Nothing else frees space, so the disk is checked at intervals.
        let wakes = queue.health != Health::Full || pending.draft.makes_room();
        let urgent = pending.draft.kind == Kind::Definition || queue.bytes > PAUSE_BYTES;
        queue.pending.push_back(pending);
        let asleep = wakes && std::mem::replace(&mut queue.asleep, false);
        if urgent {
            self.end_pause(queue);
        } else {
            drop(queue);
        }
        if asleep {
            self.work.notify_one();
        }
    }

    /// Commits queued drafts without the pause.
    pub(crate) fn skip_commit_pause(&self) {
        self.end_pause(self.lock());
    }

    fn end_pause(&self, mut queue: MutexGuard<'_, Queue>) {
        let known = std::mem::replace(&mut queue.urgent, true);
        drop(queue);
        if !known && !self.options.commit_pause.is_zero() {
            self.pause.notify_one();
        }
    }

    /// The queue's lock, for a trim mark: it frees space on a full disk, so a full disk does not
    /// prevent it.
    pub(crate) fn room_for_mark(&self, draft: &Draft) -> Result<MutexGuard<'_, Queue>, Error> {
        let queue = self.lock();
        if let Some(error) = &queue.stopped {
            return Err(error.clone());
        }
        if queue.closing {
            return Err(Error::Closed);
        }
        let bytes = draft.body.bytes.len();
        if !self.fits(&queue, bytes) {
            return Err(Error::QueueFull {
                bytes,
                queued: queue.bytes,
                limit: self.queue_limit(&queue),
            });
        }
        Ok(queue)
    }

    /// Moves the next group into an empty one, which stays empty if nothing waits.
    pub(crate) fn take_group(&self, group: &mut VecDeque<Pending>) {
        let mut queue = self.lock();
        (queue.urgent, queue.waits_for_room) = (false, false);
        let mut bytes = 0;
        let mut until = 0;
        while until < queue.pending.len() && bytes < GROUP_BYTES {
            bytes += queue.pending[until].draft.written_bytes();
            until += 1;
        }
        if until == queue.pending.len() {
            // The queue reuses the capacity of the group, unless that was a burst's.
            group.shrink_to(ROOM_KEPT);
            std::mem::swap(&mut queue.pending, group);
        } else {
            group.extend(queue.pending.drain(..until));
        }
    }

    /// Handles a full disk: refuses records until there is room.
    pub(crate) fn on_full_disk(&self, free: u64) {
        let mut queue = self.lock();
        queue.health = Health::Full;
        queue.free = free;
        self.wake_waiters(queue);
    }

    /// Makes waiting threads and tasks check the queue again.
    pub(crate) fn wake_waiters(&self, mut queue: MutexGuard<'_, Queue>) {
        let wakers = queue.waiters.take_wakers();
        drop(queue);
        self.room.notify_all();
        wake(wakers);
    }

    /// Refuses all drafts from now on, and all that wait.
    pub(crate) fn stop(&self, reason: &Error, group: VecDeque<Pending>) {
        let (left, cores) = {
            let mut queue = self.lock();
            if let Error::Failed { reason } = reason {
                queue.health = Health::Failed(reason.clone());
            }
            queue.stopped = Some(reason.clone());
            queue.bytes = 0;
            let cores: Vec<Arc<Core>> = queue.streams.values().cloned().collect();
            let left = std::mem::take(&mut queue.pending);
            self.wake_waiters(queue);
            (left, cores)
        };
        for pending in group.into_iter().chain(left) {
            pending.ack.resolve(Err(reason.clone()));
        }
        for core in cores {
            core.stop(reason);
        }
    }
}

/// Wakes each task once: many of the drafts acknowledged together belong to the same task, and
/// waking from another thread costs a system call.
pub(crate) fn wake(wakers: Vec<Waker>) {
    /// How far back to look for the same task.
    const NEAR: usize = 8;
    for (n, waker) in wakers.iter().enumerate() {
        let near = &wakers[n.saturating_sub(NEAR)..n];
        if !near.iter().any(|other| other.will_wake(waker)) {
            waker.wake_by_ref();
        }
    }
}
