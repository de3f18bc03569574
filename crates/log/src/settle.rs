//! The outcome of a commit: frames become readable and are acknowledged, or they are refused and
//! their numbers are free again.

use crate::commit::{Fault, Writer};
use crate::frame::{Kind, mark};
use crate::index::FrameRef;
use crate::queue::{Pending, Queue};
use crate::recent::Recent;
use crate::shared::{Shared, wake};
use crate::shares::MadeRoom;
use crate::{Error, Health, Level};
use std::collections::{BTreeSet, VecDeque};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

impl Shared {
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
                    queue.on_defined(&pending.core, definition);
                } else if pending.draft.is_removal() {
                    queue.on_removed(&pending.core);
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
        wakers.extend(self.lock().waiters.take_wakers());
        wake(wakers);
    }

    /// Handles a disk that stays full: refuses waiting drafts, frees their numbers, and returns
    /// those that must be written nevertheless, because a record of level `Memory` is acknowledged
    /// already. They include earlier records of the same stream, so that no number is missing.
    pub(crate) fn refuse_waiting(
        &self,
        mut group: VecDeque<Pending>,
        free: u64,
    ) -> VecDeque<Pending> {
        let mut queue = self.lock();
        group.append(&mut queue.pending);
        self.refuse(queue, group, free)
    }

    /// Refuses batches that are larger than the remaining room as in [`Shared::refuse_waiting`],
    /// with drafts queued after them in their streams or that must not be written before them.
    /// Those that must be kept stay in the group. Returns the others.
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
        // Without these there is room.
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
                pending.core.retract(draft.first, &mut wakers);
                queue.retractions += 1;
            }
            if draft.is_removal() {
                pending.core.removed.store(false, Ordering::Relaxed);
            } else if draft.kind == Kind::Definition {
                queue.on_definition_refused(&pending.core);
            }
            refused.push(pending);
        }
        for pending in &kept {
            if let Some(definition) = pending.definition() {
                queue.on_definition_queued(&pending.core, definition);
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
        wake(self.lock().waiters.take_wakers());
        kept
    }

    /// Records of level memory are acknowledged: while they wait for room they are read from
    /// memory.
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

    /// Refuses queued drafts of removed streams.
    pub(crate) fn refuse_overtaken(&self, removed: &BTreeSet<u32>, group: &mut VecDeque<Pending>) {
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

    pub(crate) fn count(&self, writer: &Writer) {
        let mut queue = self.lock();
        queue.counters.bytes = writer.done.bytes;
        queue.counters.groups = writer.done.groups;
        queue.counters.syncs = writer.done.syncs;
    }

    /// Removes the segments in which every record is trimmed. Above the size limit, exceeded shares make room,
    /// and if that does not suffice, the oldest segment is removed; from the indexes first.
    pub(crate) fn trim(&self, writer: &mut Writer) -> Result<(), Fault> {
        self.remove_dead(writer)?;
        if self.options.waits_for_shares && self.shares().is_empty() {
            return Ok(());
        }
        // Short segments may take as much room as what was moved out of others.
        let mut moves_left = writer.older.len();
        while let Some(segment) = writer.surplus() {
            match self.make_room(writer, &mut moves_left)? {
                MadeRoom::Some => continue,
                MadeRoom::Paused => return Ok(()),
                MadeRoom::None => {}
            }
            if moves_left > 0 {
                moves_left -= 1;
                self.carry_protected(writer, segment)?;
            }
            for core in self.cores() {
                writer.leave(&core.trim(segment));
                writer.note_removed(core.id, core.epoch, core.view().index.first());
            }
            writer.remove_oldest()?;
            self.reader.forget(segment);
            self.lock().counters.removed_segments += 1;
        }
        Ok(())
    }

    /// Removes the segments in which every record is trimmed.
    pub(crate) fn remove_dead(&self, writer: &mut Writer) -> Result<(), Fault> {
        let dead = writer.remove_dead()?;
        for &segment in &dead {
            self.reader.forget(segment);
        }
        let mut queue = self.lock();
        queue.counters.trimmed_segments += dead.len() as u64;
        queue.counters.moved_bytes = writer.done.moved;
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
