//! A stream's state: its definition, its index, its newest frames in memory, and its waiting
//! readers.

use crate::Error;
use crate::draft::Draft;
use crate::frame::{Bookmark, Definition, Kind};
use crate::index::{FrameRef, Index, Plan};
use crate::recent::Recent;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The position of an eager follower; held by the stream, which may retract it.
#[derive(Default)]
pub(crate) struct Eager {
    pub(crate) next: u64,
    pub(crate) retractions: bool,
    pub(crate) waker: Option<Waker>,
}

impl Eager {
    pub(crate) fn new(next: u64) -> Eager {
        Eager {
            next,
            ..Eager::default()
        }
    }

    /// The numbers from `from` will be assigned to other records.
    pub(crate) fn retract(&mut self, from: u64, wakers: &mut Vec<Waker>) {
        if self.next > from {
            self.next = from;
            self.retractions = true;
            wakers.extend(self.waker.take());
        }
    }
}

/// The state of a stream as seen by readers.
pub(crate) struct View {
    /// The newest durable definition; of a stream being created, the first.
    pub(crate) definition: Definition,
    /// The newest definition, while it is in flight.
    pub(crate) coming: Option<Definition>,
    pub(crate) index: Index,
    pub(crate) bookmark: Option<Bookmark>,
    pub(crate) wakers: BTreeMap<u64, Waker>,
    pub(crate) stopped: Option<Error>,
    /// The newest frames, without a gap, as long as there is room for them in memory.
    pub(crate) recent: VecDeque<Recent>,
    /// Frames that have numbers and are in flight, without a gap after the index.
    pub(crate) accepted: VecDeque<Recent>,
    /// Records of level memory before this number are readable although they wait for room on the
    /// disk.
    shown: u64,
    /// The eager followers, by number.
    pub(crate) eager: BTreeMap<u64, Eager>,
    last_follower: u64,
}

impl View {
    /// The newest definition, durable or in flight.
    pub(crate) fn newest(&self) -> &Definition {
        self.coming.as_ref().unwrap_or(&self.definition)
    }

    /// The newest definition, unless it is in flight.
    pub(crate) fn safe(&self) -> Option<&Definition> {
        self.coming.is_none().then_some(&self.definition)
    }

    /// The number after the last readable one.
    pub(crate) fn end(&self) -> u64 {
        self.index.next().max(self.shown)
    }

    /// A number for a new follower.
    pub(crate) fn new_follower(&mut self) -> u64 {
        self.last_follower += 1;
        self.last_follower
    }

    /// Frames in memory that start with a number, or else their position.
    pub(crate) fn plan(&self, from: u64) -> (Vec<Recent>, Option<Plan>) {
        /// Maximum number of bytes returned at once.
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
    /// The last number assigned; changed only under the queue's lock.
    pub(crate) assigned: AtomicU64,
    /// It is removed, or about to be; changed only under the queue's lock.
    pub(crate) removed: AtomicBool,
    /// Records that were refused because there was no room for them.
    pub(crate) refused: AtomicU64,
    /// Size of its queued drafts in bytes.
    pub(crate) queued: AtomicUsize,
    /// Cursors that were set and are in flight to the disk.
    pub(crate) cursors: AtomicU64,
    /// The number of its share; see [`crate::Share`].
    pub(crate) share: AtomicU32,
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
            share: AtomicU32::new(0),
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
                last_follower: 0,
            }),
        }
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a frame is durable and readable. Returns whether it is the stream's only one in
    /// its segment.
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

    /// Makes records before `next` readable while they wait for room.
    pub(crate) fn show(&self, next: u64, wakers: &mut Vec<Waker>) {
        let mut view = self.view();
        if next > view.end() {
            view.shown = next;
            wakers.extend(std::mem::take(&mut view.wakers).into_values());
        }
    }

    /// Records that a mark, or restored records, are durable.
    pub(crate) fn renew_cursor(&self, draft: &Draft) {
        Bookmark::renew(&mut self.view().bookmark, draft.bookmark, draft.kind);
    }

    /// Drops the records before a number; returns the segments in which the stream has nothing
    /// left.
    pub(crate) fn trim_to(&self, before: u64) -> Vec<u32> {
        self.view().index.trim_to(before)
    }

    /// Ends the stream: no more records will arrive.
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

    /// Whether nothing is in flight to the disk: neither records nor a cursor.
    pub(crate) fn is_settled(&self) -> bool {
        self.cursors.load(Ordering::Relaxed) == 0 && self.is_written()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.view().index.next() > self.assigned.load(Ordering::Relaxed)
    }

    /// The records from `from` were refused: their numbers will be assigned to others.
    pub(crate) fn retract(&self, from: u64, wakers: &mut Vec<Waker>) {
        let mut view = self.view();
        while view.accepted.back().is_some_and(|it| it.first >= from) {
            view.accepted.pop_back();
        }
        for eager in view.eager.values_mut() {
            eager.retract(from, wakers);
        }
    }

    pub(crate) fn trim(&self, segment: u32) -> Vec<u32> {
        self.view().index.trim(segment)
    }

    /// Records that a frame of restored records is durable. Returns whether it is the stream's only
    /// one in its segment.
    pub(crate) fn filled(&self, segment: u32, frame: FrameRef) -> bool {
        self.view().index.fill(segment, frame)
    }

    /// # Errors
    /// The stream was removed. Asked under the queue's lock, no record follows a removal.
    pub(crate) fn check_not_removed(&self) -> Result<(), Error> {
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
