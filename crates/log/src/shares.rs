//! Shares of the size limit: streams that together keep more than theirs make room first.
//!
//! All streams lie in one log, so a stream that grows fast would push out the records of all others. A
//! [`Share`] bounds that: while the log is above [`crate::Options::retain_bytes`], the streams of the share that
//! is exceeded most lose their oldest records, a segment at a time. This alone frees no segment in which
//! another stream keeps a record. The sparsest segment is therefore cleaned: what is kept there is written
//! again at the end of the log, like restored records, and the segment is removed.
//!
//! The oldest segment is removed only when no share is exceeded and no segment is sparse, or when the disk has
//! no room for what has to be moved. A protected share keeps its records even then: they are moved first.
//!
//! All of this happens on the commit thread, for one segment at a time. Cleaning pauses after a part of it for the
//! next commit, as long as the log is above its limit by less than a segment. A share that uses room that nobody
//! else needs loses nothing.

use crate::batch::Batch;
use crate::commit::{Fault, Writer};
use crate::draft::Draft;
use crate::frame::{Body, Kind};
use crate::index::{FrameRef, Run};
use crate::read::ReadOutcome;
use crate::share::{Share, Shares};
use crate::shared::Shared;
use crate::state::Core;
use crate::{Level, Store, Stream};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A segment is cleaned if at most 3 of 4 bytes are kept there, so that a freed byte costs at most 3 moved
/// ones.
const SPARSE: (u64, u64) = (3, 4);
/// Most bytes of moved records in one frame, and the part of a segment that it may take at most; reason: an
/// index entry for each, and the end of a segment that has no room for one more is wasted.
const FRAME_BYTES: usize = 256 * 1024;
const FRAMES_PER_SEGMENT: usize = 16;
/// The part of a segment after which cleaning pauses; reason: records wait for their commit meanwhile, and up to
/// three segments have to be moved for each new one.
const PAUSES_PER_SEGMENT: u64 = 4;
/// Moved bytes that are written and synced at once.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

impl Store {
    /// Sets the share of this number, or removes it. Number 0 belongs to streams without a share.
    pub fn set_share(&self, number: u32, share: Option<Share>) {
        let mut shares = self.owner().shared.shares();
        match share.filter(|_| number > 0) {
            Some(share) => shares.insert(number, share),
            None => shares.remove(&number),
        };
    }

    /// The bytes that the streams of each share keep, without number 0.
    pub fn share_bytes(&self) -> BTreeMap<u32, u64> {
        let mut used = used(&self.owner().shared.cores());
        used.remove(&0);
        used
    }
}

impl Stream {
    /// Counts the stream's bytes for the share of this number; 0, the default: for none. Not stored.
    pub fn set_share(&self, number: u32) {
        self.core.share.store(number, Ordering::Relaxed);
    }

    /// The number of the stream's share; 0: none.
    pub fn share(&self) -> u32 {
        self.core.share.load(Ordering::Relaxed)
    }
}

/// The bytes that the streams of each share keep.
fn used(cores: &[Arc<Core>]) -> BTreeMap<u32, u64> {
    let mut used = BTreeMap::new();
    for core in cores {
        let bytes = core.view().index.bytes();
        *used.entry(core.share.load(Ordering::Relaxed)).or_default() += bytes;
    }
    used
}

/// What was done for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeRoom {
    /// Some was freed, or soon will be.
    Some,
    /// Cleaning continues after the next commit.
    Paused,
    /// Nothing can be done.
    None,
}

/// Why records stay where they are.
enum Stuck {
    /// Some cannot be read.
    Damaged,
    /// The disk has no room, or the writer must stop.
    Fault(Fault),
}

impl Shared {
    pub(crate) fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cores(&self) -> Vec<Arc<Core>> {
        self.lock().streams.values().cloned().collect()
    }

    /// Frees some of the log above the size limit at the expense of exceeded shares, and cleans at most
    /// `moves_left` segments.
    pub(crate) fn make_room(
        &self,
        writer: &mut Writer,
        moves_left: &mut usize,
    ) -> Result<MadeRoom, Fault> {
        let shares = self.shares().clone();
        if shares.is_empty() {
            return Ok(MadeRoom::None);
        }
        let cores = self.cores();
        let used = used(&cores);
        let excess = |number: &u32, share: &Share| {
            let used = used.get(number).copied().unwrap_or_default();
            used.saturating_sub(share.bytes)
        };
        // What was trimmed before comes first.
        let is_shared = *moves_left > 0 && shares.values().any(|share| !share.is_protected);
        if let Some(sparse) = is_shared.then(|| self.sparsest(writer, &cores)).flatten() {
            *moves_left -= 1;
            match self.clean(writer, &cores, sparse) {
                Ok(true) => return self.remove_dead(writer).map(|()| MadeRoom::Some),
                Ok(false) => return Ok(MadeRoom::Paused),
                Err(Stuck::Damaged) => {
                    self.reader.distrust(sparse);
                    return Ok(MadeRoom::Some);
                }
                // Trimming and removing need no room.
                Err(Stuck::Fault(Fault::Full(_))) => *moves_left = 0,
                Err(Stuck::Fault(failed)) => return Err(failed),
            }
        }
        let most = shares.iter().max_by_key(|(number, it)| excess(number, it));
        let exceeded = most.filter(|(number, share)| excess(number, share) > 0);
        let Some((number, _)) = exceeded else {
            return Ok(MadeRoom::None);
        };
        let is_in = |core: &&Arc<Core>| core.share.load(Ordering::Relaxed) == *number;
        let members: Vec<&Arc<Core>> = cores.iter().filter(is_in).collect();
        match self.trim_oldest(writer, &members) {
            Ok(true) => self.remove_dead(writer).map(|()| MadeRoom::Some),
            Ok(false) | Err(Fault::Full(_)) => Ok(MadeRoom::None),
            Err(failed) => Err(failed),
        }
    }

    /// Moves what is kept in a segment to the end of the log; false after a part of it.
    fn clean(&self, writer: &mut Writer, cores: &[Arc<Core>], segment: u32) -> Result<bool, Stuck> {
        let most = self.options.segment_bytes / PAUSES_PER_SEGMENT;
        let before = writer.done.moved;
        for core in cores {
            let is_there = core.view().index.holds(segment);
            if !is_there {
                continue;
            }
            if writer.done.moved - before >= most && !writer.is_far_above() {
                return Ok(false);
            }
            self.move_records(writer, core, segment, false)?;
        }
        Ok(true)
    }

    /// Removes the records that these streams keep in their oldest segment; false if that is the one being
    /// written.
    fn trim_oldest(&self, writer: &mut Writer, cores: &[&Arc<Core>]) -> Result<bool, Fault> {
        let oldest = cores.iter().filter_map(|core| {
            let view = core.view();
            view.index.segments().next()
        });
        let Some(segment) = oldest.min().filter(|it| *it < writer.segment) else {
            return Ok(false);
        };
        let mut marks = Vec::new();
        for core in cores {
            let before = core.view().index.first();
            writer.leave(&core.trim(segment));
            let first = core.view().index.first();
            if first > before {
                marks.push(Draft::trim(core.id, core.epoch, first, Level::Process));
            }
        }
        // Removing dead segments syncs the marks first.
        let mut rest = &marks[..];
        while !rest.is_empty() {
            let placed = writer.commit(rest.iter(), false)?.len();
            let (written, left) = rest.split_at(placed);
            written.iter().for_each(|mark| writer.define(mark));
            rest = left;
        }
        Ok(true)
    }

    /// The segment of which the least is kept, if it is sparse.
    fn sparsest(&self, writer: &Writer, cores: &[Arc<Core>]) -> Option<u32> {
        let mut kept: BTreeMap<u32, u64> = BTreeMap::new();
        for core in cores {
            let add = |segment, bytes| *kept.entry(segment).or_default() += bytes;
            core.view().index.bytes_by_segment(add);
        }
        let is_damaged = |number: u32| {
            self.reader.is_damaged(number) || writer.damaged.iter().any(|(it, _)| *it == number)
        };
        let limit = writer.segment_limit();
        let sparse = writer.older.iter().filter_map(|&(number, length)| {
            let kept = kept.get(&number).copied().unwrap_or_default();
            // The records of so much as this moved into segments that begin like the one being written. A
            // segment from before the definitions grew may be shorter than the definitions alone.
            let own = length.saturating_mul(limit.saturating_sub(writer.base)) / limit;
            let is_sparse = kept > 0 && kept * SPARSE.1 <= own * SPARSE.0;
            (is_sparse && !is_damaged(number)).then(|| (kept * 1024 / own, number))
        });
        sparse.min().map(|(_, number)| number)
    }

    /// Before the oldest segment is removed: moves the records of protected shares. Damaged ones are given up,
    /// so that those before them stay.
    pub(crate) fn carry_protected(&self, writer: &mut Writer, oldest: u32) -> Result<(), Fault> {
        let shares = self.shares().clone();
        if !shares.values().any(|share| share.is_protected) {
            return Ok(());
        }
        for core in self.cores() {
            let share = shares.get(&core.share.load(Ordering::Relaxed));
            let is_protected = share.is_some_and(|it| it.is_protected);
            if !is_protected || !core.view().index.holds(oldest) {
                continue;
            }
            match self.move_records(writer, &core, oldest, true) {
                // Without room they are removed with the segment.
                Ok(()) | Err(Stuck::Damaged | Stuck::Fault(Fault::Full(_))) => {}
                Err(Stuck::Fault(failed)) => return Err(failed),
            }
        }
        Ok(())
    }

    /// Moves a stream's records from a segment to the end of the log, synced.
    fn move_records(
        &self,
        writer: &mut Writer,
        core: &Core,
        segment: u32,
        gives_up: bool,
    ) -> Result<(), Stuck> {
        let mut moved: Vec<(u32, FrameRef)> = Vec::new();
        let mut piece: Vec<Draft> = Vec::new();
        let mut piece_bytes = 0;
        let runs = core.view().index.runs_in(segment);
        for run in runs {
            let drafts = match self.read_run(core, segment, &run) {
                Err(_) if gives_up => {
                    core.view().index.add_gap(run.from, run.next);
                    continue;
                }
                drafts => drafts?,
            };
            piece_bytes += drafts.iter().map(|it| it.body.bytes.len()).sum::<usize>();
            piece.extend(drafts);
            if piece_bytes >= PIECE_BYTES {
                write_moved(writer, &mut piece, &mut moved)?;
                piece_bytes = 0;
            }
        }
        let lost = if gives_up {
            core.view().index.gaps()
        } else {
            Vec::new()
        };
        let lost = lost.into_iter().map(|(from, last)| (from, last + 1));
        let lost: Vec<(u64, u64)> = lost.collect();
        piece.extend(
            lost.iter()
                .map(|it| Draft::lost(core.id, core.epoch, it.0, it.1)),
        );
        write_moved(writer, &mut piece, &mut moved)?;
        let mut view = core.view();
        let is_gone = view.index.move_out(segment);
        for (from, next) in lost {
            view.index.give_up(from, next);
        }
        for (to, frame) in moved {
            if view.index.fill(to, frame) {
                writer.enter(to);
            }
        }
        drop(view);
        if is_gone {
            writer.leave(&[segment]);
        }
        Ok(())
    }

    /// The records of a run, as drafts of as few frames as possible.
    fn read_run(&self, core: &Core, segment: u32, run: &Run) -> Result<Vec<Draft>, Stuck> {
        let frames = match &run.chunk {
            Some(chunk) => self.reader.frames_of(core.id, chunk),
            None => Ok(run.frames.clone()),
        };
        let mut frames = frames.map_err(|_| Stuck::Damaged)?;
        let (from, next) = (run.from, run.next);
        frames.retain(|frame| frame.first < next && from < frame.next());
        let mut drafts: Vec<Draft> = Vec::new();
        let mut open: Option<(u64, u64, Batch)> = None;
        let segment_bytes = usize::try_from(self.options.segment_bytes).unwrap_or(usize::MAX);
        let most = FRAME_BYTES.min(segment_bytes / FRAMES_PER_SEGMENT);
        let mut expected = from;
        let seal = |open: Option<(u64, u64, Batch)>| {
            open.map(|(epoch, first, batch)| moved_draft(core, epoch, first, batch))
        };
        let read = self.reader.records(
            core.id,
            segment,
            &frames,
            &mut |epoch, number, time, payload| {
                if number < expected || number >= next {
                    return true;
                }
                if number > expected {
                    return false; // a frame is missing in between
                }
                expected += 1;
                let is_full = open.as_ref().is_some_and(|(known, _, batch)| {
                    *known != epoch || batch.bytes.len() + payload.len() > most
                });
                if is_full {
                    drafts.extend(seal(open.take()));
                }
                let (_, _, batch) = open.get_or_insert_with(|| (epoch, number, Batch::default()));
                batch.push(time, payload);
                true
            },
        );
        drafts.extend(seal(open.take()));
        match read {
            Ok(ReadOutcome::All) if expected == next => Ok(drafts),
            _ => Err(Stuck::Damaged),
        }
    }
}

fn moved_draft(core: &Core, epoch: u64, first: u64, batch: Batch) -> Draft {
    Draft {
        kind: Kind::Fill,
        stream: core.id,
        epoch,
        first,
        body: Body::from_batch(batch),
        level: Level::Power,
        derived: false,
        bookmark: None,
    }
}

/// Writes and syncs drafts, and adds where they are.
fn write_moved(
    writer: &mut Writer,
    drafts: &mut Vec<Draft>,
    moved: &mut Vec<(u32, FrameRef)>,
) -> Result<(), Stuck> {
    let mut rest = &drafts[..];
    while !rest.is_empty() {
        let placed = writer.commit(rest.iter(), true).map_err(Stuck::Fault)?;
        let (written, left) = rest.split_at(placed.len());
        for (draft, frame) in written.iter().zip(placed) {
            writer.done.moved += u64::from(frame.bytes);
            if draft.kind == Kind::Fill {
                moved.push((writer.segment, frame));
            }
        }
        rest = left;
    }
    drafts.clear();
    Ok(())
}
