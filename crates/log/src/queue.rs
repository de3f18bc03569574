//! What appenders, readers and the commit thread share, and the commit thread's loop.

use crate::ack::Ack;
use crate::commit::{Draft, Fault, Writer};
use crate::frame::Kind;
use crate::index::FrameRef;
use crate::read::Reader;
use crate::stream::Core;
use crate::{Counters, Disk, Error, Health, Level, Options, QueueFull};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most bytes taken for one commit: more gains nothing and delays the first of them.
const GROUP_BYTES: u64 = 4 * 1024 * 1024;

/// A draft on its way through the commit thread.
pub(crate) struct Pending {
    pub(crate) draft: Draft,
    pub(crate) core: Arc<Core>,
    pub(crate) ack: Arc<Ack>,
}

impl Drop for Pending {
    /// Nobody waits for ever, whatever happened to the commit thread.
    fn drop(&mut self) {
        self.ack.resolve(Err(Error::Failed {
            reason: "the commit thread ended".to_owned(),
        }));
    }
}

/// Tells everybody when the commit thread ends by a panic.
struct OnPanic<'a>(&'a Shared);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "the commit thread ended by a panic".to_owned();
            self.0.stop(&Error::Failed { reason }, VecDeque::new());
        }
    }
}

/// The part under one lock.
pub(crate) struct Queue {
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) bytes: usize,
    pub(crate) closing: bool,
    /// Why nothing is taken any more.
    pub(crate) stopped: Option<Error>,
    pub(crate) health: Health,
    /// Free bytes when the disk was found full.
    pub(crate) free: u64,
    pub(crate) streams: BTreeMap<String, Arc<Core>>,
    pub(crate) next_id: u32,
    pub(crate) counters: Counters,
    /// How the commit thread ended.
    pub(crate) ended: Option<Result<(), Error>>,
}

/// Shared by all handles of a store and its commit thread.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) reader: Reader,
    pub(crate) queue: Mutex<Queue>,
    /// There is work, or the store is closing.
    pub(crate) work: Condvar,
    /// There is room in the queue, or it will never be.
    pub(crate) room: Condvar,
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: u64, options: Options) -> Shared {
        Shared {
            options,
            reader: Reader::new(disk, store),
            queue: Mutex::new(Queue {
                pending: VecDeque::new(),
                bytes: 0,
                closing: false,
                stopped: None,
                health: Health::Ok,
                free: 0,
                streams: BTreeMap::new(),
                next_id: 1,
                counters: Counters::default(),
                ended: None,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue's lock, once records are taken and there is room for so many bytes.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<MutexGuard<'_, Queue>, Error> {
        let mut queue = self.lock();
        loop {
            if let Some(error) = &queue.stopped {
                return Err(error.clone());
            }
            if queue.closing {
                return Err(Error::Closed);
            }
            if queue.health == Health::Full {
                queue.counters.refused += 1;
                let (free, reserve) = (queue.free, self.options.reserve_bytes);
                return Err(Error::Full { free, reserve });
            }
            let limit = self.options.queue_bytes;
            if queue.bytes == 0 || queue.bytes + bytes <= limit {
                return Ok(queue);
            }
            if self.options.queue_full == QueueFull::Refuse {
                queue.counters.refused += 1;
                return Err(Error::QueueFull {
                    queued: queue.bytes,
                    limit,
                });
            }
            queue = self
                .room
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
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
        let (queued, limit) = (queue.bytes, self.options.queue_bytes);
        if queued > 0 && queued + draft.body.bytes.len() > limit {
            return Err(Error::QueueFull { queued, limit });
        }
        Ok(queue)
    }

    /// The next group; `None` when the store is closing and nothing is left.
    fn take(&self) -> Option<VecDeque<Pending>> {
        let mut queue = self.lock();
        loop {
            if !queue.pending.is_empty() {
                let mut bytes = 0;
                let mut until = 0;
                while until < queue.pending.len() && bytes < GROUP_BYTES {
                    bytes += queue.pending[until].draft.frame_bytes();
                    until += 1;
                }
                if until == queue.pending.len() {
                    return Some(std::mem::take(&mut queue.pending));
                }
                return Some(queue.pending.drain(..until).collect());
            }
            if queue.closing {
                return None;
            }
            queue = self
                .work
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes committed frames readable and acknowledges them, in order.
    fn acknowledge(
        &self,
        writer: &mut Writer,
        placed: Vec<FrameRef>,
        group: &mut VecDeque<Pending>,
    ) {
        let done: Vec<Pending> = group.drain(..placed.len()).collect();
        let (mut bytes, mut records) = (0, 0);
        let mut wakers = Vec::new();
        for (pending, frame) in done.iter().zip(placed) {
            bytes += pending.draft.body.bytes.len();
            writer.define(&pending.draft);
            match pending.draft.kind {
                Kind::Records => {
                    records += u64::from(frame.count);
                    if pending.core.committed(writer.segment, frame, &mut wakers) {
                        writer.enter(writer.segment);
                    }
                }
                Kind::Trim => writer.leave(&pending.core.trim_to(pending.draft.first)),
                Kind::Definition | Kind::Open | Kind::Close => {}
            }
        }
        {
            let mut queue = self.lock();
            queue.bytes -= bytes.min(queue.bytes);
            queue.counters.records += records;
            if queue.health == Health::Full {
                queue.health = Health::Ok;
            }
            self.room.notify_all();
        }
        for pending in done {
            pending.ack.resolve(Ok(()));
        }
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// The disk stays full: refuses what waits, gives its numbers back, and returns what must be
    /// written all the same, because a record of level `Memory` is acknowledged already. That goes
    /// for what comes before such a record in its stream too, lest a number be missing.
    fn refuse_waiting(&self, group: VecDeque<Pending>, free: u64) -> VecDeque<Pending> {
        let mut queue = self.lock();
        let waiting = group.into_iter().chain(std::mem::take(&mut queue.pending));
        let (mut kept, mut refused) = (VecDeque::new(), Vec::new());
        let mut acknowledged = BTreeSet::new();
        for pending in waiting.collect::<Vec<_>>().into_iter().rev() {
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
            }
            refused.push(pending);
        }
        queue.counters.refused += refused.len() as u64;
        drop(queue);
        let reserve = self.options.reserve_bytes;
        for pending in refused.into_iter().rev() {
            pending.ack.resolve(Err(Error::Full { free, reserve }));
        }
        kept
    }

    /// Nothing waits but the disk was full: takes records again as soon as there may be room, and
    /// trim marks, which may make it. Returns at once when the store is closing.
    fn idle_while_full(&self, writer: &mut Writer) -> Result<(), Fault> {
        while self.lock().health == Health::Full {
            let mut marks = VecDeque::new();
            let marked = self.marks_first(writer, &mut marks)?;
            marks
                .into_iter()
                .rev()
                .for_each(|mark| self.lock().pending.push_front(mark));
            match writer.room() {
                Err(Fault::Full(_)) if marked => {}
                Err(Fault::Full(free)) if self.wait_for_room(free) => {}
                Err(_) => return Ok(()),
                Ok(_) => self.lock().health = Health::Ok,
            }
        }
        Ok(())
    }

    /// Waits until the disk may have room again; false when the store is closing meanwhile.
    fn wait_for_room(&self, free: u64) -> bool {
        let mut queue = self.lock();
        queue.health = Health::Full;
        queue.free = free;
        self.room.notify_all();
        if !queue.closing {
            let poll = self.options.full_poll;
            let woken = self
                .work
                .wait_timeout(queue, poll)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken.0;
        }
        !queue.closing
    }

    /// Nothing more is taken; everything that waits is told.
    fn stop(&self, reason: &Error, group: VecDeque<Pending>) {
        let (left, cores) = {
            let mut queue = self.lock();
            if let Error::Failed { reason } = reason {
                queue.health = Health::Failed(reason.clone());
            }
            queue.stopped = Some(reason.clone());
            queue.bytes = 0;
            self.room.notify_all();
            let cores: Vec<Arc<Core>> = queue.streams.values().cloned().collect();
            (std::mem::take(&mut queue.pending), cores)
        };
        for pending in group.into_iter().chain(left) {
            pending.ack.resolve(Err(reason.clone()));
        }
        for core in cores {
            core.stop(reason);
        }
    }

    fn count(&self, writer: &Writer) {
        let mut queue = self.lock();
        queue.counters.bytes = writer.done.bytes;
        queue.counters.groups = writer.done.groups;
        queue.counters.syncs = writer.done.syncs;
    }

    /// Removes the segments in which every record is trimmed, then the oldest above the size limit,
    /// from the indexes first.
    fn trim(&self, writer: &mut Writer) -> Result<(), Fault> {
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
                core.trim(segment);
            }
            writer.remove_oldest()?;
            self.reader.forget(segment);
            self.lock().counters.removed_segments += 1;
        }
        Ok(())
    }

    /// The commit thread.
    pub(crate) fn run(&self, mut writer: Writer) {
        let _told = OnPanic(self);
        let ended = self.commit_all(&mut writer);
        let ended = ended.and_then(|()| {
            let closed = writer.close();
            let reason = closed.clone().err().unwrap_or(Error::Closed);
            self.stop(&reason, VecDeque::new());
            closed
        });
        self.lock().ended = Some(ended);
    }

    /// Writes the trim marks of a group and of the queue past the reserve, for they make room; false
    /// when there are none.
    fn marks_first(
        &self,
        writer: &mut Writer,
        group: &mut VecDeque<Pending>,
    ) -> Result<bool, Fault> {
        let split = |all: VecDeque<Pending>| -> (VecDeque<Pending>, VecDeque<Pending>) {
            all.into_iter().partition(|it| it.draft.kind == Kind::Trim)
        };
        let (mut marks, rest) = split(std::mem::take(group));
        *group = rest;
        {
            let mut queue = self.lock();
            let (more, rest) = split(std::mem::take(&mut queue.pending));
            queue.pending = rest;
            marks.extend(more);
        }
        let any = !marks.is_empty();
        while !marks.is_empty() {
            match writer.commit(marks.iter().map(|pending| &pending.draft), false) {
                Ok(placed) => self.acknowledge(writer, placed, &mut marks),
                Err(fault) => {
                    marks.extend(group.drain(..));
                    *group = marks;
                    return match fault {
                        Fault::Full(_) => Ok(false),
                        failed => Err(failed),
                    };
                }
            }
        }
        self.trim(writer)?;
        Ok(any)
    }

    /// What to do about a fault: `Ok` to try again with what is left of the group, or the end.
    fn after_fault(
        &self,
        fault: Fault,
        writer: &mut Writer,
        group: &mut VecDeque<Pending>,
        polls: &mut u32,
    ) -> Result<(), Error> {
        let Fault::Full(free) = fault else {
            return Err(self.error_of(fault));
        };
        let marked = self.marks_first(writer, group);
        if marked.map_err(|fault| self.error_of(fault))? {
            return Ok(());
        }
        if !self.wait_for_room(free) {
            return Err(self.error_of(Fault::Full(free)));
        }
        *polls += 1;
        if *polls >= self.options.full_polls {
            *polls = 0;
            if let Err(fault @ Fault::Failed(_)) = writer.settle() {
                return Err(self.error_of(fault));
            }
            *group = self.refuse_waiting(std::mem::take(group), free);
        }
        Ok(())
    }

    fn error_of(&self, fault: Fault) -> Error {
        match fault {
            Fault::Full(free) => Error::Full {
                free,
                reserve: self.options.reserve_bytes,
            },
            Fault::Failed(reason) => Error::Failed { reason },
        }
    }

    fn commit_all(&self, writer: &mut Writer) -> Result<(), Error> {
        // What a power loss kept from being removed.
        if let Err(fault) = self.trim(writer) {
            let error = self.error_of(fault);
            self.stop(&error, VecDeque::new());
            return Err(error);
        }
        while let Some(mut group) = self.take() {
            let mut polls = 0;
            while !group.is_empty() {
                let drafts = group.iter().map(|pending| &pending.draft);
                let fault = match writer.commit(drafts, true) {
                    Ok(placed) => {
                        self.count(writer);
                        self.acknowledge(writer, placed, &mut group);
                        self.trim(writer).err()
                    }
                    Err(fault) => Some(fault),
                };
                let Some(fault) = fault else {
                    polls = 0;
                    continue;
                };
                if let Err(error) = self.after_fault(fault, writer, &mut group, &mut polls) {
                    self.stop(&error, group);
                    return Err(error);
                }
            }
            if let Err(fault) = self.idle_while_full(writer) {
                let error = self.error_of(fault);
                self.stop(&error, VecDeque::new());
                return Err(error);
            }
        }
        Ok(())
    }
}
