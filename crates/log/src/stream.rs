//! One stream of the store: appending, reading, resuming.

use crate::ack::{Ack, Appended, Trimmed};
use crate::batch::Batch;
use crate::commit::Draft;
use crate::define::Defining;
use crate::eager::{Eager, EagerFollower};
use crate::frame::{
    Body, Bookmark, Definition, Kind, MAX_SEQUENCE, RECORD_BYTES, newest_cursor, record,
};
use crate::index::{FrameRef, Index, Plan};
use crate::queue::{Pending, Queue};
use crate::read::{Got, Take};
use crate::recent::Recent;
use crate::store::Owner;
use crate::waiting::{Room, Settled};
use crate::{Cursor, Error, Follower, GapReason, Level, Position, Record, Rollback};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Most payload bytes that one read gathers before it returns what it has.
pub(crate) const READ_BYTES: usize = 8 * 1024 * 1024;

/// What readers see of a stream.
pub(crate) struct View {
    /// The newest that is safe; of a stream that is being made, the first.
    pub(crate) definition: Definition,
    /// The newest one, while it is on its way.
    pub(crate) coming: Option<Definition>,
    pub(crate) index: Index,
    pub(crate) bookmark: Option<Bookmark>,
    pub(crate) wakers: BTreeMap<u64, Waker>,
    pub(crate) stopped: Option<Error>,
    /// The newest frames, without a gap, as long as there is room for them in memory.
    pub(crate) recent: VecDeque<Recent>,
    /// Frames that have their numbers and are on their way to the disk, without a gap behind the
    /// index.
    pub(crate) accepted: VecDeque<Recent>,
    /// Up to before this number they are read although they wait for room on the disk: they are of
    /// level memory.
    shown: u64,
    /// Who reads those, by the follower's number.
    pub(crate) eager: BTreeMap<u64, Eager>,
    next_follower: u64,
}

impl View {
    /// The newest definition, whether it is safe or on its way.
    pub(crate) fn newest(&self) -> &Definition {
        self.coming.as_ref().unwrap_or(&self.definition)
    }

    /// The newest definition, unless it is on its way.
    pub(crate) fn safe(&self) -> Option<&Definition> {
        self.coming.is_none().then_some(&self.definition)
    }

    /// The number after the last one that can be read.
    pub(crate) fn end(&self) -> u64 {
        self.index.next().max(self.shown)
    }

    /// Frames in memory that begin with a number, or else where they are.
    fn plan(&self, from: u64) -> (Vec<Recent>, Option<Plan>) {
        /// Most bytes that are handed out at once.
        const BYTES: usize = 64 * 1024;
        let first = self.recent.front().map_or(u64::MAX, |recent| recent.first);
        let waiting = from >= self.index.next() && from < self.shown;
        let written = from >= first.max(self.index.first()) && from < self.index.next();
        let frames = match (waiting, written) {
            (true, _) => &self.accepted,
            (_, true) => &self.recent,
            (false, false) => return (Vec::new(), Some(self.index.plan(from))),
        };
        let at = frames.partition_point(|frame| frame.next() <= from);
        let mut bytes = 0;
        let taken = frames.range(at..).take_while(|frame| {
            let fits = bytes < BYTES && (written || frame.first < self.shown);
            bytes += frame.body.len();
            fits
        });
        (taken.cloned().collect(), None)
    }
}

/// A stream's state, shared by its handles and the commit thread.
pub(crate) struct Core {
    pub(crate) id: u32,
    pub(crate) epoch: u64,
    /// The last number given out; changed only under the queue's lock.
    pub(crate) assigned: AtomicU64,
    /// It is removed, or about to be; changed only under the queue's lock.
    pub(crate) removed: AtomicBool,
    /// Records that were refused because there was no room for them.
    pub(crate) refused: AtomicU64,
    /// Bytes of what is queued of it.
    pub(crate) queued: AtomicUsize,
    /// Cursors that were set and are on their way to the disk.
    pub(crate) cursors: AtomicU64,
    view: Mutex<View>,
}

impl Core {
    pub(crate) fn new(
        id: u32,
        definition: Definition,
        index: Index,
        bookmark: Option<Bookmark>,
    ) -> Core {
        Core {
            id,
            epoch: definition.epochs.last().map_or(0, |(epoch, _)| *epoch),
            assigned: AtomicU64::new(index.next() - 1),
            removed: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            queued: AtomicUsize::new(0),
            cursors: AtomicU64::new(0),
            view: Mutex::new(View {
                definition,
                coming: None,
                index,
                bookmark,
                wakers: BTreeMap::new(),
                stopped: None,
                recent: VecDeque::new(),
                accepted: VecDeque::new(),
                shown: 0,
                eager: BTreeMap::new(),
                next_follower: 0,
            }),
        }
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame is safe: it can be read from now on. Whether it is the only one that the stream has
    /// in its segment.
    pub(crate) fn committed(
        &self,
        segment: u32,
        frame: FrameRef,
        bookmark: Option<Bookmark>,
        recent: Option<Recent>,
        wakers: &mut Vec<Waker>,
    ) -> bool {
        let mut view = self.view();
        let entered = view.index.push(segment, frame);
        Bookmark::renew(&mut view.bookmark, bookmark, Kind::Records);
        view.recent.extend(recent);
        while let Some(accepted) = view.accepted.front()
            && accepted.first < frame.next()
        {
            view.accepted.pop_front();
        }
        wakers.extend(std::mem::take(&mut view.wakers).into_values());
        entered
    }

    /// Records up to before `next` are read while they wait for room.
    pub(crate) fn show(&self, next: u64, wakers: &mut Vec<Waker>) {
        let mut view = self.view();
        if next > view.end() {
            view.shown = next;
            wakers.extend(std::mem::take(&mut view.wakers).into_values());
        }
    }

    /// A mark, or records that were put back, is safe.
    pub(crate) fn renew_cursor(&self, draft: &Draft) {
        Bookmark::renew(&mut self.view().bookmark, draft.bookmark, draft.kind);
    }

    /// Records before a number count no more; the segments in which the stream has nothing left.
    pub(crate) fn trim_to(&self, before: u64) -> Vec<u32> {
        self.view().index.trim_to(before)
    }

    /// Nothing more will come.
    pub(crate) fn stop(&self, reason: &Error) {
        let wakers: Vec<Waker> = {
            let mut view = self.view();
            view.stopped = Some(reason.clone());
            let eager = view.eager.values_mut();
            let mut wakers: Vec<Waker> = eager.filter_map(|eager| eager.waker.take()).collect();
            wakers.extend(std::mem::take(&mut view.wakers).into_values());
            wakers
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether nothing is on its way to the disk: neither records nor a cursor.
    pub(crate) fn is_settled(&self) -> bool {
        self.cursors.load(Ordering::Relaxed) == 0 && self.is_written()
    }

    fn is_written(&self) -> bool {
        self.view().index.next() > self.assigned.load(Ordering::Relaxed)
    }

    /// The numbers from `from` on are given out anew: their records were refused.
    pub(crate) fn take_back(&self, from: u64, wakers: &mut Vec<Waker>) {
        let mut view = self.view();
        while view.accepted.back().is_some_and(|it| it.first >= from) {
            view.accepted.pop_back();
        }
        for eager in view.eager.values_mut() {
            eager.take_back(from, wakers);
        }
    }

    pub(crate) fn trim(&self, segment: u32) -> Vec<u32> {
        self.view().index.trim(segment)
    }

    /// A frame that puts records back is safe. Whether it is the only one that the stream has in its
    /// segment.
    pub(crate) fn filled(&self, segment: u32, frame: FrameRef) -> bool {
        self.view().index.fill(segment, frame)
    }
}

/// On what terms a batch is taken.
#[derive(Default)]
struct Terms {
    /// If this is the last number given out.
    expected_last: Option<u64>,
    /// If numbers were taken back so often.
    taken_back: Option<u64>,
    /// See [`Stream::append_derived`].
    derived: bool,
}

/// A stream of records. Clones share it.
#[derive(Clone)]
pub struct Stream {
    pub(crate) core: Arc<Core>,
    pub(crate) owner: Arc<Owner>,
}

impl Stream {
    /// Queues a batch of (time in nanoseconds, payload). Nothing of it is visible before it is
    /// acknowledged, and then all of it is.
    pub fn append(&self, batch: impl Into<Batch>) -> Result<Appended, Error> {
        self.append_on(Terms::default(), batch.into())
    }

    /// Waits, after [`Error::QueueFull`], until a batch of so many bytes fits into the queue.
    pub fn room(&self, bytes: usize) -> Room {
        Room::new(&self.owner.shared, bytes)
    }

    /// As [`Stream::append`], if `expected_last` is the last number given out (0: none yet).
    pub fn append_if(
        &self,
        expected_last: u64,
        batch: impl Into<Batch>,
    ) -> Result<Appended, Error> {
        let terms = Terms {
            expected_last: Some(expected_last),
            ..Terms::default()
        };
        self.append_on(terms, batch.into())
    }

    /// As [`Stream::append`], for records derived from those of an [`EagerFollower`], as long as no
    /// numbers were taken back since [`crate::Store::taken_back`] said `taken_back`: what they were
    /// derived from comes before them in the log, or both are refused. Where a loss of power has
    /// damaged what was not safe yet, they count as damaged too if they lie behind it.
    ///
    /// # Errors
    /// [`Error::TakenBack`]; those of [`Stream::append`].
    pub fn append_derived(
        &self,
        taken_back: u64,
        batch: impl Into<Batch>,
    ) -> Result<Appended, Error> {
        let terms = Terms {
            taken_back: Some(taken_back),
            derived: true,
            ..Terms::default()
        };
        self.append_on(terms, batch.into())
    }

    /// As [`Stream::append`], as long as no numbers were taken back since [`crate::Store::taken_back`]
    /// said `taken_back`: what the caller queued before is in the log before it, or both are refused.
    ///
    /// # Errors
    /// [`Error::TakenBack`]; those of [`Stream::append`].
    pub fn append_behind(
        &self,
        taken_back: u64,
        batch: impl Into<Batch>,
    ) -> Result<Appended, Error> {
        let terms = Terms {
            taken_back: Some(taken_back),
            ..Terms::default()
        };
        self.append_on(terms, batch.into())
    }

    /// Ends the pause before the next commit ([`crate::Options::commit_pause`]) if records of this
    /// stream wait for it; says whether some do.
    pub fn hurry(&self) -> bool {
        let waits = !self.core.is_written();
        if waits {
            self.owner.shared.hurry();
        }
        waits
    }

    fn append_on(&self, terms: Terms, batch: Batch) -> Result<Appended, Error> {
        self.check_batch(&batch)?;
        let cursor = self.cursor_in(&batch);
        self.append_body(terms, Body::of_batch(batch), cursor)
    }

    /// The cursor that the last record of a batch names, of those that name one.
    fn cursor_in(&self, batch: &Batch) -> Option<Cursor> {
        let cursor_of = self.owner.shared.options.cursor_of?;
        // Nearly always it is the very last, or none does.
        cursor_of(&batch.bytes[batch.last_at..])
            .or_else(|| newest_cursor(batch.count, &batch.bytes, cursor_of))
    }

    fn append_body(
        &self,
        terms: Terms,
        body: Body,
        cursor: Option<Cursor>,
    ) -> Result<Appended, Error> {
        let bytes = body.bytes.len();
        let level = self.core.view().definition.level;
        let shared = &self.owner.shared;
        let queue = match level {
            Level::Memory => shared.room_in_memory(bytes, &self.core),
            Level::Process | Level::Power => shared.room_for(bytes),
        };
        let queue = queue.inspect_err(|error| {
            if matches!(error, Error::Full { .. } | Error::QueueFull { .. }) {
                let count = u64::from(body.count);
                self.core.refused.fetch_add(count, Ordering::Relaxed);
            }
        })?;
        self.core.check_kept()?;
        let last = self.core.assigned.load(Ordering::Relaxed);
        if let Some(expected) = terms.expected_last.filter(|expected| *expected != last) {
            return Err(Error::Conflict { expected, last });
        }
        if let Some(taken_back) = terms.taken_back {
            self.check_taken_back(&queue, taken_back)?;
        }
        if last + 1 >= MAX_SEQUENCE {
            let reason = format!("the numbers of stream {} are used up", self.name());
            return Err(Error::Failed { reason });
        }
        let (first, count, epoch) = (last + 1, body.count, self.core.epoch);
        self.core
            .assigned
            .store(last + u64::from(count), Ordering::Relaxed);
        let ack = Arc::new(Ack::default());
        if level == Level::Memory {
            ack.resolve(Ok(()));
        }
        let draft = Draft {
            kind: Kind::Records,
            stream: self.core.id,
            epoch,
            first,
            body,
            level,
            derived: terms.derived,
            bookmark: cursor.map(|cursor| Bookmark {
                number: last + u64::from(count),
                cursor,
            }),
        };
        let mut wakers = Vec::new();
        {
            let mut view = self.core.view();
            view.accepted.push_back(Recent::new(&draft));
            let eager = view.eager.values_mut();
            wakers.extend(eager.filter_map(|eager| eager.waker.take()));
        }
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: terms.taken_back.is_some(),
        };
        self.owner.shared.enqueue(queue, pending);
        wakers.into_iter().for_each(Waker::wake);
        Ok(Appended {
            first: Position {
                epoch,
                sequence: first,
            },
            count,
            ack,
            driven: self.owner.driven(),
        })
    }

    /// Puts records back that are missing from the middle, under their own numbers and in their own
    /// epoch, as somebody has them who read them before: a subscriber, a backup. When the result
    /// resolves they are safe against a power loss, [`Stream::gaps`] does not list them any more, and
    /// readers get them in their place. `first` is the position of the first one.
    ///
    /// # Errors
    /// [`Error::NotMissing`] when one of the numbers is there, was trimmed or was never given out;
    /// [`Error::OtherEpoch`] when the numbers were given out in another epoch; those of
    /// [`Stream::append`].
    pub fn fill(&self, first: Position, batch: impl Into<Batch>) -> Result<Appended, Error> {
        let batch = batch.into();
        self.check_batch(&batch)?;
        let cursor = self.cursor_in(&batch);
        let body = Body::of_batch(batch);
        let next = first.sequence.saturating_add(u64::from(body.count));
        {
            let view = self.core.view();
            if !view.index.misses(first.sequence, next) {
                return Err(Error::NotMissing {
                    stream: view.definition.name.clone(),
                    from: first.sequence,
                    next,
                });
            }
            let epochs = &view.definition.epochs;
            let at = epochs.partition_point(|(_, begin)| *begin <= first.sequence);
            let end = epochs.get(at).map_or(u64::MAX, |(_, begin)| *begin);
            let known = at.checked_sub(1).map(|at| epochs[at].0);
            if next > end || known.is_some_and(|epoch| epoch != first.epoch) {
                return Err(Error::OtherEpoch {
                    stream: view.definition.name.clone(),
                    sequence: first.sequence,
                    epoch: first.epoch,
                });
            }
        }
        let (ack, count, bytes) = (Arc::new(Ack::default()), body.count, body.bytes.len());
        let draft = Draft {
            kind: Kind::Fill,
            stream: self.core.id,
            epoch: first.epoch,
            first: first.sequence,
            body,
            level: Level::Power,
            derived: false,
            bookmark: cursor.map(|cursor| Bookmark {
                number: next - 1,
                cursor,
            }),
        };
        let queue = self.owner.shared.room_for(bytes)?;
        self.core.check_kept()?;
        let pending = Pending {
            draft,
            core: Arc::clone(&self.core),
            ack: Arc::clone(&ack),
            ordered: false,
        };
        self.owner.shared.enqueue(queue, pending);
        Ok(Appended {
            first,
            count,
            ack,
            driven: self.owner.driven(),
        })
    }

    /// Whether a batch may be stored.
    fn check_batch(&self, batch: &Batch) -> Result<(), Error> {
        let (bytes, limit) = (batch.bytes.len(), self.owner.shared.options.batch_bytes);
        if batch.is_empty() {
            return Err(Error::EmptyBatch);
        }
        if bytes > limit {
            return Err(Error::TooLarge {
                what: "the batch",
                bytes,
                limit,
            });
        }
        debug_assert!(
            batch.len() <= bytes / RECORD_BYTES,
            "the count fits 32 bits"
        );
        Ok(())
    }

    /// Lets go of the records before a number (at most those that are acknowledged): from the
    /// result's resolving on they are not read, and the space of segments in which nothing is kept
    /// is freed. The mark is as safe as the stream's level; after a loss of the mark the records are
    /// there again. What is let go already costs nothing.
    ///
    /// Readers and followers that come to such a record get [`Error::Gap`] with
    /// [`GapReason::Trimmed`] and go on behind it. Numbers are not given out anew.
    ///
    /// # Errors
    /// The store has stopped, or its queue is full; a full disk is no hindrance.
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
        self.core.check_kept()?;
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

    /// The newest cursor that the stream's acknowledged records named ([`crate::Options::cursor_of`]),
    /// or that was set. It outlives them: neither a trim nor the size limit takes it.
    pub fn cursor(&self) -> Option<Cursor> {
        self.core.view().bookmark.map(|bookmark| bookmark.cursor)
    }

    /// Sets the cursor behind what is queued, on the terms of [`Stream::append_behind`]. It is safe
    /// against a power loss when the result resolves.
    ///
    /// # Errors
    /// Those of [`Stream::append_behind`].
    pub fn set_cursor(&self, taken_back: u64, cursor: Cursor) -> Result<Trimmed, Error> {
        let ack = Arc::new(Ack::default());
        let queue = self.owner.shared.room_for(size_of::<Bookmark>())?;
        self.core.check_kept()?;
        self.check_taken_back(&queue, taken_back)?;
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

    /// Whether nothing of it is on its way to the disk: neither records nor a cursor.
    pub fn is_settled(&self) -> bool {
        self.core.is_settled()
    }

    /// Waits until nothing of it is on its way to the disk: neither records nor a cursor.
    pub fn settled(&self) -> Settled {
        Settled::new(&self.owner.shared, &self.core)
    }

    fn check_taken_back(&self, queue: &Queue, taken_back: u64) -> Result<(), Error> {
        if taken_back != queue.taken_back {
            let stream = self.name();
            return Err(Error::TakenBack { stream });
        }
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> String {
        self.core.view().definition.name.clone()
    }

    /// Whether it was removed by [`crate::Store::remove`], or is about to be: it takes no more records.
    pub fn is_removed(&self) -> bool {
        self.core.check_kept().is_err()
    }

    /// The number that it got when it was defined; a stream that was defined later has a higher one.
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

    /// The last acknowledged number that can be read, 0 when there was none yet. (A record of level
    /// `Memory` is acknowledged at once but can be read only when it is written, or waits for room on
    /// a full disk.)
    pub fn last(&self) -> u64 {
        self.core.view().end() - 1
    }

    /// The last number given out; those behind [`Stream::last`] are on their way to the disk.
    pub fn assigned(&self) -> u64 {
        self.core.assigned.load(Ordering::Relaxed)
    }

    /// The present epoch.
    pub fn epoch(&self) -> u64 {
        self.core.epoch
    }

    /// The epochs that are remembered, oldest first, each with its first number.
    pub fn epochs(&self) -> Vec<(u64, u64)> {
        self.core.view().definition.epochs.clone()
    }

    /// Notes that records that are missing will not come back, so that nobody waits for them: they
    /// are no gap of [`Stream::gaps`] any more, reading passes over them as before, and the damaged
    /// bytes need not be kept. They can still be put back. The result resolves as that of a trim, at
    /// level power.
    ///
    /// # Errors
    /// [`Error::NotMissing`] when one of the numbers is there; those of [`Stream::trim`].
    pub fn give_up(&self, from: u64, last: u64) -> Result<Trimmed, Error> {
        let next = last.saturating_add(1);
        if !self.core.view().index.misses(from, next) {
            let stream = self.name();
            return Err(Error::NotMissing { stream, from, next });
        }
        let ack = Arc::new(Ack::default());
        let draft = Draft::lost(self.core.id, self.core.epoch, from, next);
        let queue = self.owner.shared.room_for(draft.body.bytes.len())?;
        self.core.check_kept()?;
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

    /// Known gaps (first and last missing number), oldest first, but for what was given up.
    pub fn gaps(&self) -> Vec<(u64, u64)> {
        self.core.view().index.gaps()
    }

    /// At most `max_records` acknowledged records from `from_sequence` on (0: from the first kept),
    /// and no more than about 8 MiB of them. Stops before a gap; asked for a number in a gap it
    /// returns [`Error::Gap`].
    pub fn read(&self, from_sequence: u64, max_records: usize) -> Result<Vec<Record>, Error> {
        self.read_within(from_sequence, max_records, READ_BYTES)
    }

    /// As [`Stream::read`], and no more than about `max_bytes` of payload; at least one record.
    pub fn read_within(
        &self,
        from_sequence: u64,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        let mut take = |position: Position, time, payload: &[u8]| {
            records.push(record(position.epoch, position.sequence, time, payload));
        };
        self.visit(from_sequence, max_records, max_bytes, &mut take)?;
        Ok(records)
    }

    /// Hands out records as [`Stream::read`] does, without making anything of them: position, time,
    /// payload. Stops after `max_records`, after about `max_bytes` of payload, before a gap. The
    /// number to go on from. The newest records come from memory ([`crate::Options::recent_bytes`]).
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn visit(
        &self,
        from_sequence: u64,
        max_records: usize,
        max_bytes: usize,
        take: &mut dyn FnMut(Position, i64, &[u8]),
    ) -> Result<u64, Error> {
        let mut next = match from_sequence {
            0 => self.first(),
            from => from,
        };
        let (mut records, mut bytes) = (0, 0);
        if max_records == 0 {
            return Ok(next);
        }
        let outcome = self.each(next, &mut |epoch, sequence, time, payload| {
            take(Position { epoch, sequence }, time, payload);
            next = sequence + 1;
            records += 1;
            bytes += payload.len();
            records < max_records && bytes < max_bytes
        });
        match outcome {
            Err(Error::Gap { .. }) if records > 0 => Ok(next),
            Err(error) => Err(error),
            Ok(()) => Ok(next),
        }
    }

    /// Hands out records (epoch, number, time, payload) from a number on until `take` answers false,
    /// a gap or the end.
    fn each(&self, from: u64, take: &mut Take<'_>) -> Result<(), Error> {
        let reader = &self.owner.shared.reader;
        let (mut from, mut more) = (from, true);
        while more {
            let (recents, plan) = self.core.view().plan(from);
            for recent in &recents {
                recent.each(&mut |epoch, n, time, payload| {
                    if n == from && more {
                        from += 1;
                        more = take(epoch, n, time, payload);
                    }
                    more
                });
            }
            let mut fill = None;
            let (segment, frames, until) = match plan {
                None => continue,
                Some(Plan::End) => return Ok(()),
                Some(Plan::Gap(at, next)) => return Err(self.gap(at, next)),
                Some(Plan::Frames(segment, frames)) => {
                    let until = frames.last().map_or(from, FrameRef::next);
                    (segment, frames, until)
                }
                Some(Plan::Fill(segment, frame)) => {
                    fill = Some((segment, frame.offset));
                    (segment, vec![frame], frame.next())
                }
                Some(Plan::Chunk(chunk)) => {
                    let frames = reader.frames_of(self.core.id, &chunk);
                    let mut frames = frames.or_else(|error| self.trimmed(from, error))?;
                    frames.retain(|frame| frame.next() > from);
                    (chunk.segment, frames, chunk.next)
                }
            };
            let got = reader.records(
                self.core.id,
                segment,
                &frames,
                &mut |epoch, n, time, body| {
                    if n > from {
                        return false; // a frame is missing in between
                    }
                    if n == from {
                        from += 1;
                        more = take(epoch, n, time, body);
                    }
                    more
                },
            );
            match got.or_else(|error| self.trimmed(from, error))? {
                Got::Corrupt(..) if let Some((segment, offset)) = fill => {
                    reader.distrust(segment);
                    self.core.view().index.unfill(segment, offset);
                }
                // Frames before it could not be found either.
                Got::Corrupt(next) => self.found_gap(segment, from, next),
                // Frames of the chunk could not be found.
                Got::All if more && from < until => {
                    let next = frames.iter().map(|f| f.first).find(|first| *first > from);
                    self.found_gap(segment, from, next.unwrap_or(until));
                }
                Got::All => {}
            }
        }
        Ok(())
    }

    /// Reads the numbers from `from` to before `next`, so that what is corrupt of them is known.
    pub(crate) fn verify(&self, mut from: u64, next: u64) {
        while from < next {
            let outcome = self.each(from, &mut |_, sequence, _, _| {
                from = sequence + 1;
                from < next
            });
            match outcome {
                Err(Error::Gap { next: after, .. }) => from = after,
                Ok(()) if from >= next => {}
                // The end, or a disk that does not read: nothing is known of the rest.
                _ => return,
            }
        }
    }

    /// A segment that vanished while it was read was trimmed or removed by the size limit.
    fn trimmed<T>(&self, from: u64, error: Error) -> Result<T, Error> {
        let first = self.first();
        Err(if from < first {
            self.gap(from, first)
        } else {
            error
        })
    }

    fn found_gap(&self, segment: u32, from: u64, next: u64) {
        self.owner.shared.reader.distrust(segment);
        self.core.view().index.add_gap(from, next);
    }

    fn gap(&self, from: u64, next: u64) -> Error {
        let view = self.core.view();
        let trimmed = from < view.index.first();
        let reason = if trimmed {
            GapReason::Trimmed
        } else {
            GapReason::Corrupt
        };
        Error::Gap {
            stream: view.definition.name.clone(),
            from,
            next,
            reason,
        }
    }

    /// The newest records in order, at most `n`. Passes over gaps, which [`Stream::gaps`] lists.
    pub fn newest(&self, n: usize) -> Result<Vec<Record>, Error> {
        let from = self.newest_from(n as u64);
        self.gather(from, n, &mut |_| true, &mut Some)
    }

    /// Records with `from_ns <= time < to_ns` in order of their numbers, at most `limit`. Passes
    /// over gaps, which [`Stream::gaps`] lists.
    pub fn range(&self, from_ns: i64, to_ns: i64, limit: usize) -> Result<Vec<Record>, Error> {
        let mut seek = |from| self.seek_time(from, from_ns, to_ns);
        let within = &mut |record: &Record| record.time >= from_ns && record.time < to_ns;
        self.gather(self.first(), limit, within, &mut seek)
    }

    /// The number from which on there are `n` records, gaps passed over; the first kept when there
    /// are fewer.
    pub fn newest_from(&self, n: u64) -> u64 {
        let view = self.core.view();
        let waiting = view.end() - view.index.next();
        match n.checked_sub(waiting) {
            Some(n) => view.index.newest_from(n),
            None => view.end() - n,
        }
    }

    /// The first number from `from` on whose record may have a time with `from_ns <= time < to_ns`;
    /// `None` when none has. To be asked before each [`Stream::visit`], it passes over what was
    /// written at other times.
    pub fn seek_time(&self, from: u64, from_ns: i64, to_ns: i64) -> Option<u64> {
        let view = self.core.view();
        let waiting = from.max(view.index.next());
        let found = view.index.seek_time(from, from_ns, to_ns);
        // Of those that wait for room no times are kept.
        found.or_else(|| (waiting < view.end()).then_some(waiting))
    }

    fn gather(
        &self,
        mut from: u64,
        limit: usize,
        wanted: &mut dyn FnMut(&Record) -> bool,
        seek: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Vec<Record>, Error> {
        const STEP: usize = 1024;
        let mut records = Vec::new();
        while records.len() < limit {
            let Some(next) = seek(from) else { break };
            match self.read(next, STEP) {
                Ok(read) => {
                    let Some(last) = read.last() else { break };
                    from = last.position.sequence + 1;
                    records.extend(read.into_iter().filter(|record| wanted(record)));
                }
                Err(Error::Gap { next, .. }) => from = next,
                Err(error) => return Err(error),
            }
        }
        records.truncate(limit);
        Ok(records)
    }

    /// Follows from a number on (0: from the first kept).
    pub fn follow(&self, from_sequence: u64) -> Follower {
        let id = {
            let mut view = self.core.view();
            view.next_follower += 1;
            view.next_follower
        };
        let next = if from_sequence == 0 {
            self.first()
        } else {
            from_sequence
        };
        Follower::new(self.clone(), id, next)
    }

    /// Follows from a number on (0: from the first kept), without waiting until records are safe.
    pub fn follow_eagerly(&self, from_sequence: u64) -> EagerFollower {
        let next = match from_sequence {
            0 => self.first(),
            from => from,
        };
        let mut view = self.core.view();
        view.next_follower += 1;
        let id = view.next_follower;
        view.eager.insert(id, Eager::new(next));
        drop(view);
        EagerFollower::new(self.clone(), id)
    }

    /// Where a client that has everything up to `position` goes on; sequence 0 of a known epoch
    /// means that it has nothing.
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

    /// Records new metadata; returns when they are safe.
    pub fn set_metadata(&self, metadata: &[u8]) -> Result<(), Error> {
        self.change_metadata(|_| Ok::<_, Error>(metadata.to_vec()))?
            .wait()
            .map(drop)
    }

    /// Queues the metadata that `change` makes of the newest ones, without waiting for the disk.
    ///
    /// # Errors
    /// Those of `change`; those of [`crate::Store::define`].
    pub fn change_metadata<E: From<Error>>(
        &self,
        change: impl FnOnce(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Defining, E> {
        let level = self.level();
        self.owner.define(&self.name(), Some(&self.core), |so_far| {
            let (level, metadata) = so_far.unwrap_or((level, &[]));
            Ok((level, change(metadata)?))
        })
    }

    /// The caller's bytes.
    pub fn metadata(&self) -> Vec<u8> {
        self.core.view().definition.metadata.clone()
    }
}
