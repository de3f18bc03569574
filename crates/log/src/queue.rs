//! What appenders, readers and whoever commits share.

use crate::ack::Ack;
use crate::commit::{Draft, Fault, Writer};
use crate::frame::{Definition, Kind, mark};
use crate::index::FrameRef;
use crate::read::Reader;
use crate::recent::{Recent, Recents};
use crate::scrub::Scrub;
use crate::stream::Core;
use crate::waiting::Waiters;
use crate::{Commit, Counters, Disk, Error, Health, Level, Options, QueueFull};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Most bytes taken for one commit: more gains nothing and delays the first of them.
const GROUP_BYTES: u64 = 4 * 1024 * 1024;

/// How many drafts the queue keeps room for: as many as wait for a commit on a busy node.
const ROOM_KEPT: usize = 256;

/// With more queued than this there is enough for a commit: the pause between two ends.
const PAUSE_BYTES: usize = 256 * 1024;

/// A draft on its way through the commit thread.
pub(crate) struct Pending {
    pub(crate) draft: Draft,
    pub(crate) core: Arc<Core>,
    pub(crate) ack: Arc<Ack>,
    /// It may not be written before what was queued before it.
    pub(crate) ordered: bool,
}

impl Pending {
    /// The stream's definition, if it is one and no removal.
    fn definition(&self) -> Option<Definition> {
        let is = self.draft.kind == Kind::Definition;
        let definition = is.then(|| Definition::decode(&self.draft.body.bytes))?;
        definition.filter(|it| !it.is_removal())
    }
}

impl Drop for Pending {
    /// Nobody waits for ever, whatever happened to the commit thread.
    fn drop(&mut self) {
        let bytes = self.draft.body.bytes.len();
        self.core.queued.fetch_sub(bytes, Ordering::Relaxed);
        if self.draft.sets_cursor() {
            self.core.cursors.fetch_sub(1, Ordering::Relaxed);
        }
        if self.ack.result().is_none() {
            self.ack.resolve(Err(Error::Failed {
                reason: "the commit thread ended".to_owned(),
            }));
        }
    }
}

/// The part under one lock.
pub(crate) struct Queue {
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) bytes: usize,
    pub(crate) closing: bool,
    /// The commit thread waits for work and must be woken for it.
    pub(crate) asleep: bool,
    /// Something waits that is worth no pause.
    pub(crate) urgent: bool,
    /// Threads that wait for room.
    waiting: u32,
    /// Tasks that wait for a commit.
    pub(crate) waiters: Waiters,
    /// Nothing more is written, not even a clean end.
    pub(crate) abandoned: bool,
    /// Why nothing is taken any more.
    pub(crate) stopped: Option<Error>,
    pub(crate) health: Health,
    /// Records of level memory wait for room, though others may find some.
    pub(crate) waits_for_room: bool,
    /// Free bytes when the disk was found full.
    pub(crate) free: u64,
    pub(crate) streams: BTreeMap<String, Arc<Core>>,
    /// Those whose first definition is on its way.
    pub(crate) creating: BTreeMap<String, Arc<Core>>,
    pub(crate) next_id: u32,
    /// Removed streams that the log still has to name.
    pub(crate) removals: usize,
    pub(crate) counters: Counters,
    /// How often numbers were taken back from records that were refused.
    pub(crate) taken_back: u64,
    /// How the commit thread ended.
    pub(crate) ended: Option<Result<(), Error>>,
}

impl Queue {
    /// Every append is refused from now on.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.stopped.is_some() || self.closing
    }

    /// Records of level memory may wait for room on the disk.
    fn lacks_room(&self) -> bool {
        self.health == Health::Full || self.waits_for_room
    }
}

/// Shared by all handles of a store and its commit thread.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) reader: Reader,
    pub(crate) scrub: Mutex<Scrub>,
    pub(crate) queue: Mutex<Queue>,
    /// There is work, or the store is closing.
    pub(crate) work: Condvar,
    /// The store is closing: the pause between two commits ends.
    pub(crate) pause: Condvar,
    pub(crate) recents: Recents,
    /// There is room in the queue, or it will never be.
    pub(crate) room: Condvar,
}

/// Wakes everybody once: of what was acknowledged together much belongs to the same task, and a
/// wake-up from another thread costs a call of the system.
fn wake(wakers: Vec<Waker>) {
    /// How far back the same task is looked for.
    const NEAR: usize = 8;
    for (n, waker) in wakers.iter().enumerate() {
        let near = &wakers[n.saturating_sub(NEAR)..n];
        if !near.iter().any(|other| other.will_wake(waker)) {
            waker.wake_by_ref();
        }
    }
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: u64, options: Options) -> Shared {
        Shared {
            reader: Reader::new(disk, store),
            scrub: Mutex::default(),
            queue: Mutex::new(Queue {
                pending: VecDeque::new(),
                bytes: 0,
                closing: false,
                asleep: false,
                urgent: false,
                waiting: 0,
                waiters: Waiters::default(),
                abandoned: false,
                stopped: None,
                health: Health::Ok,
                waits_for_room: false,
                free: 0,
                streams: BTreeMap::new(),
                creating: BTreeMap::new(),
                next_id: 1,
                removals: 0,
                counters: Counters::default(),
                taken_back: 0,
                ended: None,
            }),
            work: Condvar::new(),
            pause: Condvar::new(),
            recents: Recents::new(options.recent_bytes),
            options,
            room: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue's lock, once records are taken and there is room for so many bytes.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<MutexGuard<'_, Queue>, Error> {
        self.room_in_queue(bytes, None)
    }

    /// As [`Shared::room_for`], for records of level memory: they are taken while there is no room on
    /// the disk too, up to [`Options::full_bytes`].
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

    /// Most bytes that may be queued now.
    fn queue_limit(&self, queue: &Queue) -> usize {
        let more = if queue.lacks_room() {
            self.options.full_bytes
        } else {
            0
        };
        self.options.queue_bytes.saturating_add(more)
    }

    /// Whether there is room for so many bytes; one batch always has some.
    pub(crate) fn fits(&self, queue: &Queue, bytes: usize) -> bool {
        queue.bytes == 0 || queue.bytes + bytes <= self.queue_limit(queue)
    }

    /// Queues a draft, and wakes the commit thread if it sleeps: a wake-up costs a call of the
    /// system, and while it writes it looks at the queue by itself.
    pub(crate) fn enqueue(&self, mut queue: MutexGuard<'_, Queue>, pending: Pending) {
        let bytes = pending.draft.body.bytes.len();
        queue.bytes += bytes;
        pending.core.queued.fetch_add(bytes, Ordering::Relaxed);
        // Nothing else brings room, which is looked for now and then.
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

    /// What waits is to be committed without a pause before.
    pub(crate) fn hurry(&self) {
        self.end_pause(self.lock());
    }

    fn end_pause(&self, mut queue: MutexGuard<'_, Queue>) {
        let known = std::mem::replace(&mut queue.urgent, true);
        drop(queue);
        if !known && !self.options.commit_pause.is_zero() {
            self.pause.notify_one();
        }
    }

    /// The queue's lock, for a trim mark: it makes room on a full disk, so that is no hindrance.
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

    /// The next group, into an empty one, which stays so when nothing waits.
    pub(crate) fn take(&self, group: &mut VecDeque<Pending>) {
        let mut queue = self.lock();
        (queue.urgent, queue.waits_for_room) = (false, false);
        let mut bytes = 0;
        let mut until = 0;
        while until < queue.pending.len() && bytes < GROUP_BYTES {
            bytes += queue.pending[until].draft.written_bytes();
            until += 1;
        }
        if until == queue.pending.len() {
            // The queue goes on in the room that the group had, unless that was a burst's.
            group.shrink_to(ROOM_KEPT);
            std::mem::swap(&mut queue.pending, group);
        } else {
            group.extend(queue.pending.drain(..until));
        }
    }

    /// Makes committed frames readable and acknowledges them, in order.
    pub(crate) fn acknowledge(
        &self,
        writer: &mut Writer,
        placed: Vec<FrameRef>,
        group: &mut VecDeque<Pending>,
    ) {
        let done: Vec<Pending> = group.drain(..placed.len()).collect();
        let (mut bytes, mut records, mut reviewed) = (0, 0, false);
        let mut wakers = Vec::new();
        for (pending, frame) in done.iter().zip(placed) {
            bytes += pending.draft.body.bytes.len();
            writer.define(&pending.draft);
            let removal = pending.draft.is_removal();
            reviewed |=
                removal || matches!(pending.draft.kind, Kind::Trim | Kind::Fill | Kind::Lost);
            match pending.draft.kind {
                Kind::Records => {
                    records += u64::from(frame.count);
                    let recent = Recent::new(&pending.draft);
                    let recent = self.recents.keep(&pending.core, recent);
                    let core = &pending.core;
                    let bookmark = pending.draft.bookmark;
                    if core.committed(writer.segment, frame, bookmark, recent, &mut wakers) {
                        writer.enter(writer.segment);
                    }
                }
                Kind::Fill => {
                    pending.core.renew_cursor(&pending.draft);
                    if pending.core.filled(writer.segment, frame) {
                        writer.enter(writer.segment);
                    }
                }
                Kind::Lost => {
                    let next = mark(&pending.draft.body.bytes).unwrap_or_default();
                    let index = &mut pending.core.view().index;
                    index.give_up(pending.draft.first, next);
                }
                Kind::Trim => {
                    pending.core.renew_cursor(&pending.draft);
                    writer.leave(&pending.core.trim_to(pending.draft.first));
                }
                Kind::Definition if removal => {
                    writer.leave(&pending.core.trim_to(u64::MAX));
                    pending.core.stop(&pending.core.removed_error());
                }
                Kind::Definition | Kind::Open | Kind::Close => {}
            }
        }
        {
            let mut queue = self.lock();
            for pending in &done {
                if let Some(definition) = pending.definition() {
                    queue.defined(&pending.core, definition);
                } else if pending.draft.is_removal() {
                    queue.removed(&pending.core);
                }
            }
            queue.removals = writer.removals.len();
            if reviewed && !writer.damaged.is_empty() {
                writer.review_damaged(|name, from, next| {
                    let core = queue.streams.get(name);
                    core.is_some_and(|core| core.view().index.misses_some(from, next))
                });
            }
            queue.bytes -= bytes.min(queue.bytes);
            queue.counters.records += records;
            if queue.health == Health::Full {
                queue.health = Health::Ok;
            }
            if queue.waiting > 0 {
                self.room.notify_all();
            }
        }
        for pending in done {
            wakers.extend(pending.ack.settle(Ok(())));
        }
        wakers.extend(self.lock().waiters.take());
        wake(wakers);
    }

    /// The disk stays full: refuses what waits, gives its numbers back, and returns what must be
    /// written all the same, because a record of level `Memory` is acknowledged already. That goes
    /// for what comes before such a record in its stream too, lest a number be missing.
    pub(crate) fn refuse_waiting(
        &self,
        mut group: VecDeque<Pending>,
        free: u64,
    ) -> VecDeque<Pending> {
        let mut queue = self.lock();
        group.append(&mut queue.pending);
        self.refuse(queue, group, free)
    }

    /// Batches that are larger than the room that is left are refused as by
    /// [`Shared::refuse_waiting`], with what is queued behind them in their streams or must not be
    /// written before them. What must be kept of all this stays in the group. Returns the others.
    pub(crate) fn refuse_large(
        &self,
        group: &mut VecDeque<Pending>,
        room: u64,
        free: u64,
    ) -> VecDeque<Pending> {
        let mut queue = self.lock();
        group.append(&mut queue.pending);
        let (mut large, mut others) = (VecDeque::new(), VecDeque::new());
        let mut streams = BTreeSet::new();
        for pending in std::mem::take(group) {
            let stream = pending.draft.stream;
            let after = streams.contains(&stream) || pending.ordered && !streams.is_empty();
            if after || pending.draft.written_bytes() > room {
                streams.insert(stream);
                large.push_back(pending);
            } else {
                others.push_back(pending);
            }
        }
        // There is room, if not for these.
        queue.health = Health::Ok;
        *group = self.refuse(queue, large, free);
        others
    }

    fn refuse(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        waiting: VecDeque<Pending>,
        free: u64,
    ) -> VecDeque<Pending> {
        let (mut kept, mut refused) = (VecDeque::new(), Vec::new());
        let mut acknowledged = BTreeSet::new();
        let mut wakers = Vec::new();
        for pending in waiting.into_iter().rev() {
            let draft = &pending.draft;
            if draft.kind == Kind::Records && draft.level == Level::Memory {
                acknowledged.insert(draft.stream);
            }
            if acknowledged.contains(&draft.stream) {
                kept.push_front(pending);
                continue;
            }
            queue.bytes -= draft.body.bytes.len().min(queue.bytes);
            if draft.kind == Kind::Records {
                // From the back: the lowest of the stream's refused numbers comes last.
                pending
                    .core
                    .assigned
                    .store(draft.first - 1, Ordering::Relaxed);
                let count = u64::from(draft.body.count);
                pending.core.refused.fetch_add(count, Ordering::Relaxed);
                pending.core.take_back(draft.first, &mut wakers);
                queue.taken_back += 1;
            }
            if draft.is_removal() {
                pending.core.removed.store(false, Ordering::Relaxed);
            } else if draft.kind == Kind::Definition {
                queue.undefined(&pending.core);
            }
            refused.push(pending);
        }
        for pending in &kept {
            if let Some(definition) = pending.definition() {
                queue.defining(&pending.core, definition);
            }
        }
        queue.counters.refused += refused.len() as u64;
        queue.waits_for_room = !kept.is_empty();
        drop(queue);
        wake(wakers);
        let reserve = self.options.reserve_bytes;
        for pending in refused.into_iter().rev() {
            pending.ack.resolve(Err(Error::Full { free, reserve }));
        }
        wake(self.lock().waiters.take());
        kept
    }

    /// Records of level memory are acknowledged: while they wait for room they are read from memory.
    pub(crate) fn show_waiting(&self, group: &VecDeque<Pending>) {
        let mut wakers = Vec::new();
        {
            let queue = self.lock();
            for pending in group.iter().chain(&queue.pending) {
                let draft = &pending.draft;
                if draft.kind == Kind::Records && draft.level == Level::Memory {
                    let next = draft.first + u64::from(draft.body.count);
                    pending.core.show(next, &mut wakers);
                }
            }
        }
        wake(wakers);
    }

    /// The disk has no room: refuses records until it has.
    pub(crate) fn full(&self, free: u64) {
        let mut queue = self.lock();
        queue.health = Health::Full;
        queue.free = free;
        self.end_waiting(queue);
    }

    /// Threads and tasks that wait look at the queue again.
    pub(crate) fn end_waiting(&self, mut queue: MutexGuard<'_, Queue>) {
        let wakers = queue.waiters.take();
        drop(queue);
        self.room.notify_all();
        wake(wakers);
    }

    /// Nothing more is taken; everything that waits is told.
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
            self.end_waiting(queue);
            (left, cores)
        };
        for pending in group.into_iter().chain(left) {
            pending.ack.resolve(Err(reason.clone()));
        }
        for core in cores {
            core.stop(reason);
        }
    }

    pub(crate) fn count(&self, writer: &Writer) {
        let mut queue = self.lock();
        queue.counters.bytes = writer.done.bytes;
        queue.counters.groups = writer.done.groups;
        queue.counters.syncs = writer.done.syncs;
    }

    /// Removes the segments in which every record is trimmed, then the oldest above the size limit,
    /// from the indexes first.
    pub(crate) fn trim(&self, writer: &mut Writer) -> Result<(), Fault> {
        let dead = writer.remove_dead()?;
        for &segment in &dead {
            self.reader.forget(segment);
        }
        if !dead.is_empty() {
            self.lock().counters.trimmed_segments += dead.len() as u64;
        }
        while let Some(segment) = writer.surplus() {
            let cores: Vec<Arc<Core>> = self.lock().streams.values().cloned().collect();
            for core in cores {
                writer.leave(&core.trim(segment));
                writer.note_removed(core.id, core.epoch, core.view().index.first());
            }
            writer.remove_oldest()?;
            self.reader.forget(segment);
            self.lock().counters.removed_segments += 1;
        }
        Ok(())
    }

    pub(crate) fn error_of(&self, fault: Fault) -> Error {
        match fault {
            Fault::Full(free) => Error::Full {
                free,
                reserve: self.options.reserve_bytes,
            },
            Fault::Failed(reason) => Error::Failed { reason },
        }
    }
}
