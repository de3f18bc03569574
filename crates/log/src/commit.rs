//! The writer: appends all queued drafts to the segment in one write, and syncs if one of them
//! needs it.
//!
//! A failed sync is never repeated: the file as the system shows it may then differ from the disk.
//! A write that failed for lack of room is undone (the file is truncated), and writing continues in
//! a new segment once there is room.

use crate::draft::Draft;
use crate::frame::{Body, Bookmark, Definition, Header, Kind, Removal, mark_body};
use crate::index::FrameRef;
use crate::planted::{self, Defect};
use crate::segment::{FORMAT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader, at, salt, segment_name};
use crate::snapshot::{Snapshot, snapshot_name};
use crate::{Disk, Error, File, Level, Options};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Room for a segment is reserved only if the disk has room for this many more, so other programs
/// do not run short.
const PLENTY_SEGMENTS: u64 = 8;

/// With less room than this the disk counts as full: searching for smaller drafts is not
/// worthwhile.
const SMALL_BYTES: u64 = 64 * 1024;

/// The beginning of a segment is written in pieces of about so many bytes.
const HEAD_PIECE_BYTES: usize = 1024 * 1024;

/// Where a segment begins with more than this, it becomes so many times as long, lest the log be mostly
/// definitions.
const LARGE_HEAD_BYTES: u64 = 4 * 1024 * 1024;
const LARGE_HEAD_SHARE: u64 = 4;

/// Why a commit failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No room; nothing of the group is in the log. This many bytes are free.
    Full(u64),
    /// The writer must stop.
    Failed(String),
}

/// The writer's state of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    /// The next number in log order.
    pub(crate) next: u64,
    /// Offset of its last frame in the current segment, 0 for none.
    pub(crate) back: u32,
    /// Its cursor there.
    pub(crate) bookmark: Option<Bookmark>,
}

/// The content of a stream's definition frame, for the next segment.
#[derive(Clone, Debug)]
pub(crate) struct Defined {
    pub(crate) epoch: u64,
    pub(crate) body: Vec<u8>,
}

/// Counters of the writer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) bytes: u64,
    pub(crate) groups: u64,
    pub(crate) syncs: u64,
    pub(crate) moved: u64,
}

/// The end of the log.
pub(crate) struct Writer {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) store: u64,
    pub(crate) segment: u32,
    pub(crate) file: Box<dyn File>,
    pub(crate) offset: u64,
    /// End of the space reserved for the file.
    pub(crate) reserved: u64,
    /// End of the current segment's definitions.
    pub(crate) base: u64,
    pub(crate) synced: u64,
    pub(crate) previous: u32,
    /// The file must not be appended to any more.
    pub(crate) must_start_segment: bool,
    pub(crate) tracks: BTreeMap<u32, Track>,
    pub(crate) definitions: BTreeMap<u32, Defined>,
    /// Trim marks with their epochs, for the next segment.
    pub(crate) marks: BTreeMap<u32, (u64, u64)>,
    /// Streams that were removed, as long as segments with their frames may exist.
    pub(crate) removals: BTreeMap<u32, Removal>,
    /// Number of streams with untrimmed records in each segment; segments with none are absent.
    pub(crate) live: BTreeMap<u32, u32>,
    /// Damaged segments and their missing numbers: stream, first and last. Each counts once in
    /// `live`.
    pub(crate) damaged: Vec<(u32, Vec<Lacks>)>,
    /// A segment may no longer have untrimmed records.
    pub(crate) look_for_dead: bool,
    /// Number and length of all segments but the current one.
    pub(crate) older: VecDeque<(u32, u64)>,
    pub(crate) buffer: Vec<u8>,
    /// The buffer's content, for the snapshot.
    pub(crate) buffered_frames: Vec<FrameInBuffer>,
    /// The current segment's content; `None` if something in it is damaged.
    pub(crate) snapshot: Option<Snapshot>,
    /// Snapshots of sealed segments, to be written.
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) done: Done,
}

/// Missing numbers of a stream: its name, first and last.
pub(crate) type Lacks = (String, u64, u64);

/// A frame in the buffer: header, offset, checksum, its body if a snapshot needs it, and the cursor.
pub(crate) struct FrameInBuffer(Header, u32, u32, Vec<u8>, Option<Bookmark>);

fn failed(what: &str, name: &str, error: &io::Error) -> Fault {
    Fault::Failed(format!("{what} {name}: {error}"))
}

/// Whether the error means a full disk rather than a broken one.
pub(crate) fn no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl Writer {
    /// Makes the first segment, or the one after `number - 1`. `fill` adds pieces of what it begins with
    /// until it answers that nothing more follows.
    pub(crate) fn make_segment(
        disk: &dyn Disk,
        header: SegmentHeader,
        mut fill: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Box<dyn File>, Fault> {
        let name = segment_name(header.number);
        let undo = |what: &str, error: io::Error| {
            if no_room(&error) && disk.remove(&name).is_ok() {
                return Fault::Full(disk.free_bytes().unwrap_or(0));
            }
            failed(what, &name, &error)
        };
        let mut file = match disk.create(&name) {
            Ok(file) => file,
            Err(error) if no_room(&error) => {
                return Err(Fault::Full(disk.free_bytes().unwrap_or(0)));
            }
            Err(error) => return Err(failed("create", &name, &error)),
        };
        let mut bytes = header.encode().to_vec();
        loop {
            let more = fill(&mut bytes);
            file.append(&bytes).map_err(|error| undo("write", error))?;
            if !more {
                break;
            }
            bytes.clear();
        }
        file.sync().map_err(|error| failed("sync", &name, &error))?;
        disk.sync_directory()
            .map_err(|error| failed("sync the directory for", &name, &error))?;
        Ok(file)
    }

    /// Length from which on a new segment is begun.
    pub(crate) fn segment_limit(&self) -> u64 {
        let share = match self.base > LARGE_HEAD_BYTES {
            true => LARGE_HEAD_SHARE,
            false => 2,
        };
        self.options.segment_bytes.max(share * self.base)
    }

    /// Writes as many of the drafts as fit together, syncs if one of them needs it, and says where
    /// they are. `reserve` keeps the reserve free.
    pub(crate) fn commit<'a>(
        &mut self,
        drafts: impl Iterator<Item = &'a Draft>,
        reserve: bool,
    ) -> Result<Vec<FrameRef>, Fault> {
        let mut room = if reserve { self.room()? } else { u64::MAX };
        let mut drafts = drafts.peekable();
        let limit = self.segment_limit();
        let large = drafts.peek().is_some_and(|draft| {
            self.offset > self.base && self.offset + draft.written_bytes() > limit
        });
        if self.must_start_segment || large {
            self.next_segment()?;
        }
        let (start, previous) = (self.offset, self.previous);
        let count = drafts.size_hint().0;
        let mut undo = Vec::with_capacity(count);
        let (mut placed, mut power) = (Vec::with_capacity(count), false);
        self.buffer.clear();
        self.buffered_frames.clear();
        while let Some(draft) = drafts.peek() {
            let bytes = draft.written_bytes();
            let fits = placed.is_empty() || self.offset + bytes <= limit;
            if !fits || bytes > room {
                break;
            }
            room -= bytes;
            power |= !planted::is(Defect::AcknowledgesUnsynced) && draft.level == Level::Power;
            undo.push((draft.stream, self.tracks.get(&draft.stream).copied()));
            placed.push(self.encode_frame(draft));
            for _ in 1..draft.copies() {
                self.encode_frame(draft);
            }
            drafts.next();
        }
        if placed.is_empty() {
            return Err(Fault::Full(self.disk.free_bytes().unwrap_or(0)));
        }
        if let Err(error) = self.file.append(&self.buffer) {
            (self.offset, self.previous) = (start, previous);
            for (stream, track) in undo.into_iter().rev() {
                match track {
                    Some(track) => self.tracks.insert(stream, track),
                    None => self.tracks.remove(&stream),
                };
            }
            return Err(self.cut_back(&error));
        }
        self.note_written_frames();
        self.done.bytes += self.buffer.len() as u64;
        self.done.groups += 1;
        if power {
            self.sync()?;
        }
        Ok(placed)
    }

    /// Records a definition or a trim mark that was committed.
    pub(crate) fn define(&mut self, draft: &Draft) {
        match draft.kind {
            Kind::Definition => {
                let defined = Defined {
                    epoch: draft.epoch,
                    body: draft.body.bytes.to_vec(),
                };
                self.definitions.insert(draft.stream, defined);
                if draft.is_removal() {
                    self.note_removal(draft);
                }
            }
            Kind::Trim if draft.first > 0 => {
                let known = self.marks.get(&draft.stream).map_or(0, |(_, mark)| *mark);
                let mark = (draft.epoch, draft.first.max(known));
                self.marks.insert(draft.stream, mark);
            }
            Kind::Trim | Kind::Records | Kind::Fill | Kind::Lost | Kind::Open | Kind::Close => {}
        }
    }

    /// Records a removal: the next segments repeat it.
    fn note_removal(&mut self, draft: &Draft) {
        self.marks.remove(&draft.stream);
        if let Some(track) = self.tracks.get_mut(&draft.stream) {
            track.bookmark = None;
        }
        let removal = Removal {
            epoch: draft.epoch,
            segment: self.segment,
        };
        self.removals.insert(draft.stream, removal);
    }

    /// Removals whose segments, and all earlier ones, are removed need not be repeated.
    fn forget_removals(&mut self) {
        let oldest = self
            .older
            .front()
            .map_or(self.segment, |(number, _)| *number);
        let is_gone = |removal: &Removal| removal.segment < oldest;
        for (stream, _) in self.removals.iter().filter(|(_, it)| is_gone(it)) {
            self.definitions.remove(stream);
            self.tracks.remove(stream);
        }
        self.removals.retain(|_, it| !is_gone(it));
    }

    /// Records that the size limit has removed a stream's records before a number: the next
    /// segments state it, so it is not mistaken for damage.
    pub(crate) fn note_removed(&mut self, stream: u32, epoch: u64, first: u64) {
        let known = self.marks.get(&stream).map_or(1, |(_, mark)| *mark);
        if first > known {
            self.marks.insert(stream, (epoch, first));
        }
    }

    /// Counts a segment in which a stream has its first record.
    pub(crate) fn enter(&mut self, segment: u32) {
        *self.live.entry(segment).or_default() += 1;
    }

    /// Counts segments in which a stream has trimmed its last record.
    pub(crate) fn leave(&mut self, segments: &[u32]) {
        for segment in segments {
            if let Some(streams) = self.live.get_mut(segment) {
                *streams -= 1;
                if *streams == 0 {
                    self.live.remove(segment);
                    self.look_for_dead = true;
                }
            }
        }
    }

    /// After a trim or a restore: releases damaged segments that no longer lack anything.
    pub(crate) fn review_damaged(&mut self, missing: impl Fn(&str, u64, u64) -> bool) {
        let lacks = |gaps: &[Lacks]| {
            gaps.iter()
                .any(|(stream, from, last)| missing(stream, *from, *last + 1))
        };
        let whole = self.damaged.extract_if(.., |(_, gaps)| !lacks(gaps));
        let whole: Vec<u32> = whole.map(|(segment, _)| segment).collect();
        self.leave(&whole);
    }

    /// Bytes that may be written; if unknown, enough is assumed, and the write itself will fail.
    pub(crate) fn room(&self) -> Result<u64, Fault> {
        let Ok(free) = self.disk.free_bytes() else {
            return Ok(u64::MAX);
        };
        let free = free.saturating_add(self.reserved.saturating_sub(self.offset));
        match free.checked_sub(self.options.reserve_bytes) {
            Some(room) => Ok(room),
            None => Err(Fault::Full(free)),
        }
    }

    /// Like [`Writer::room`], if batches of up to [`SMALL_BYTES`] fit.
    pub(crate) fn useful_room(&self) -> Result<u64, Fault> {
        match self.room()? {
            room if room < SMALL_BYTES => {
                let free = room.saturating_add(self.options.reserve_bytes);
                Err(Fault::Full(free))
            }
            room => Ok(room),
        }
    }

    /// Reserves space for the rest of the segment: an append for which the file system has to
    /// allocate makes the next sync wait for its journal too.
    pub(crate) fn reserve(&mut self) {
        let limit = self.options.segment_bytes;
        let wanted = limit
            .saturating_mul(PLENTY_SEGMENTS + 1)
            .saturating_add(self.options.reserve_bytes);
        let plenty = self.disk.free_bytes().is_ok_and(|free| free >= wanted);
        let set_aside = plenty && self.offset < limit && self.file.reserve(limit);
        self.reserved = if set_aside { limit } else { 0 };
    }

    /// Records that the encoded frames are in the file.
    fn note_written_frames(&mut self) {
        let Some(snapshot) = &mut self.snapshot else {
            return;
        };
        for FrameInBuffer(header, offset, crc, body, bookmark) in self.buffered_frames.drain(..) {
            snapshot.push(&header, offset, crc, &body, bookmark);
        }
    }

    /// Writes the snapshots of sealed segments, except those known to be damaged.
    pub(crate) fn save_snapshots(&mut self, damaged: impl Fn(u32) -> bool) {
        for snapshot in self.snapshots.drain(..) {
            let number = snapshot.header.number;
            let there = self.older.iter().any(|(older, _)| *older == number);
            if there && !snapshot.spoilt && !damaged(number) {
                // Without it the next opening reads the segment.
                let _ = snapshot.save(&*self.disk);
            }
        }
    }

    /// Encodes a frame at the end of the buffer.
    fn encode_frame(&mut self, draft: &Draft) -> FrameRef {
        let offset = self.offset as u32;
        let known = self.tracks.get(&draft.stream).copied();
        let mut track = known.unwrap_or(Track {
            next: 1,
            back: 0,
            bookmark: None,
        });
        Bookmark::renew(&mut track.bookmark, draft.bookmark, draft.kind);
        let mark;
        let body = match draft.kind {
            Kind::Trim => {
                mark = Body::from_bytes(mark_body(draft.first, track.bookmark));
                &mark
            }
            _ => &draft.body,
        };
        let header = Header {
            kind: draft.kind,
            derived: draft.derived,
            body_bytes: body.bytes.len() as u32,
            stream: draft.stream,
            count: body.count,
            synced: self.synced as u32,
            epoch: draft.epoch,
            first: match draft.kind {
                Kind::Records | Kind::Fill | Kind::Lost => draft.first,
                Kind::Definition | Kind::Trim => track.next,
                Kind::Open | Kind::Close => 0,
            },
            time_min: body.time_min,
            time_max: body.time_max,
            back: track.back,
            previous: self.previous,
            body_crc: body.crc,
        };
        let (bytes, crc) = header.encode(salt(self.store, self.segment), offset);
        self.buffer.extend_from_slice(&bytes);
        self.buffer.extend_from_slice(&body.bytes);
        let kept = match draft.kind {
            Kind::Lost => body.bytes.to_vec(),
            Kind::Definition if Definition::removes(&body.bytes) => body.bytes.to_vec(),
            _ => Vec::new(),
        };
        let laid = FrameInBuffer(header, offset, crc, kept, track.bookmark);
        self.buffered_frames.push(laid);
        self.previous = crc;
        self.offset += header.frame_bytes();
        if draft.kind == Kind::Records {
            (track.next, track.back) = (header.next(), offset);
        }
        if draft.stream != 0 {
            self.tracks.insert(draft.stream, track);
        }
        FrameRef::new(&header, offset)
    }

    /// After a failed write: truncates the file if the disk was full.
    fn cut_back(&mut self, error: &io::Error) -> Fault {
        let name = segment_name(self.segment);
        if !no_room(error) {
            return failed("write", &name, error);
        }
        // Stale bytes of the truncated part must not count as part of the chain: continue in a new
        // file.
        (self.must_start_segment, self.reserved) = (true, 0);
        match self.file.truncate(self.offset) {
            Ok(()) => Fault::Full(self.disk.free_bytes().unwrap_or(0)),
            Err(error) => failed("cut back", &name, &error),
        }
    }

    /// Syncs a truncated file before its truncated drafts are reported as not written.
    pub(crate) fn settle(&mut self) -> Result<(), Fault> {
        if self.must_start_segment {
            self.sync()
        } else {
            Ok(())
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        if self.synced < self.offset || self.must_start_segment {
            let result = self.file.sync();
            let result = result.or_else(|error| match planted::is(Defect::IgnoresFailedSync) {
                true => Ok(()),
                false => Err(error),
            });
            result.map_err(|error| failed("sync", &segment_name(self.segment), &error))?;
            self.synced = self.offset;
            self.done.syncs += 1;
        }
        Ok(())
    }

    /// Syncs and ends the segment, and starts the next with all definitions, trim marks and
    /// cursors, so those in older segments are never needed again.
    fn next_segment(&mut self) -> Result<(), Fault> {
        self.sync()?;
        self.file.release();
        self.reserved = 0;
        let Some(number) = self.segment.checked_add(1) else {
            return Err(Fault::Failed(
                "the numbers of segments are exhausted".to_owned(),
            ));
        };
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            number,
            store: self.store,
            previous: self.previous,
            previous_bytes: self.offset as u32,
        };
        self.forget_removals();
        let before = (self.segment, self.offset, self.previous, self.synced);
        let tracks = self.tracks.clone();
        (self.segment, self.offset, self.synced) = (number, SEGMENT_HEADER_BYTES as u64, 0);
        self.tracks.values_mut().for_each(|track| track.back = 0);
        let mut next = Snapshot::new(header, self.options.cursor_of.is_some());
        match self.write_head(header, &mut next) {
            Ok(file) => {
                self.file = file;
                (self.base, self.synced) = (self.offset, self.offset);
                self.must_start_segment = false;
                self.reserve();
                let sealed = self.snapshot.replace(next);
                self.snapshots.extend(sealed);
                self.older.push_back((before.0, before.1));
                self.look_for_dead = true;
                Ok(())
            }
            Err(fault) => {
                (self.segment, self.offset, self.previous, self.synced) = before;
                self.tracks = tracks;
                Err(fault)
            }
        }
    }

    /// Creates the next segment, with everything that a segment begins with, twice.
    fn write_head(
        &mut self,
        header: SegmentHeader,
        snapshot: &mut Snapshot,
    ) -> Result<Box<dyn File>, Fault> {
        let has_mark = |(stream, track): &(&u32, &Track)| {
            let trimmed = self
                .marks
                .get(stream)
                .is_some_and(|(_, before)| *before > 0);
            trimmed || track.bookmark.is_some()
        };
        let definitions = self.definitions.keys().map(|stream| (*stream, false));
        let marks = self.tracks.iter().filter(has_mark);
        let marks = marks.map(|(stream, _)| (*stream, true));
        let frames: Vec<(u32, bool)> = definitions.chain(marks).collect();
        let mut left = frames.iter().chain(&frames).copied().peekable();
        let disk = Arc::clone(&self.disk);
        Writer::make_segment(&*disk, header, |bytes| {
            self.buffer.clear();
            self.buffered_frames.clear();
            while self.buffer.len() < HEAD_PIECE_BYTES
                && let Some((stream, is_mark)) = left.next()
            {
                if let Some(draft) = self.head_draft(stream, is_mark) {
                    self.encode_frame(&draft);
                }
            }
            bytes.extend_from_slice(&self.buffer);
            for FrameInBuffer(header, offset, crc, body, bookmark) in self.buffered_frames.drain(..)
            {
                snapshot.push(&header, offset, crc, &body, bookmark);
            }
            left.peek().is_some()
        })
    }

    /// A stream's definition or trim mark, for the beginning of a segment.
    fn head_draft(&self, stream: u32, is_mark: bool) -> Option<Draft> {
        let defined = self.definitions.get(&stream)?;
        if is_mark {
            let before = self.marks.get(&stream).map_or(0, |(_, before)| *before);
            return Some(Draft::trim(stream, defined.epoch, before, Level::Power));
        }
        Some(Draft {
            kind: Kind::Definition,
            stream,
            epoch: defined.epoch,
            first: 0,
            body: Body::from_bytes(defined.body.clone()),
            level: Level::Power,
            derived: false,
            bookmark: None,
        })
    }

    /// The oldest segment, when all are more than the limit.
    pub(crate) fn surplus(&self) -> Option<u32> {
        let oldest = self.older.front().filter(|_| self.bytes_above() > 0);
        oldest.map(|(number, _)| *number)
    }

    /// Whether all segments are more than the limit by a segment.
    pub(crate) fn is_far_above(&self) -> bool {
        self.bytes_above() > self.options.segment_bytes
    }

    /// By how much all segments are more than the limit.
    fn bytes_above(&self) -> u64 {
        let total: u64 = self.older.iter().map(|(_, bytes)| bytes).sum::<u64>() + self.offset;
        let limit = self.options.retain_bytes.unwrap_or(u64::MAX);
        total.saturating_sub(limit)
    }

    /// Removes a segment's snapshot, if there is one; otherwise the next opening removes it.
    fn remove_snapshot(&self, number: u32) {
        let _ = self.disk.remove(&snapshot_name(number));
    }

    /// Removes the oldest segment.
    pub(crate) fn remove_oldest(&mut self) -> Result<(), Fault> {
        let Some((number, _)) = self.older.pop_front() else {
            return Ok(());
        };
        self.live.remove(&number);
        let name = segment_name(number);
        self.remove_snapshot(number);
        self.disk
            .remove(&name)
            .map_err(|error| failed("remove", &name, &error))?;
        self.disk
            .sync_directory()
            .map_err(|error| failed("sync the directory for", &name, &error))
    }

    /// Removes the segments in which every record is trimmed; returns their numbers. The marks are
    /// durable before that, which distinguishes a removed segment from a lost one.
    pub(crate) fn remove_dead(&mut self) -> Result<Vec<u32>, Fault> {
        if !std::mem::take(&mut self.look_for_dead) {
            return Ok(Vec::new());
        }
        let numbers = self.older.iter().map(|(number, _)| *number);
        let dead: Vec<u32> = numbers.filter(|it| !self.live.contains_key(it)).collect();
        if dead.is_empty() {
            return Ok(dead);
        }
        self.sync()?;
        for &number in &dead {
            let name = segment_name(number);
            self.remove_snapshot(number);
            let removed = self.disk.remove(&name);
            removed.map_err(|error| failed("remove", &name, &error))?;
        }
        self.older.retain(|(number, _)| !dead.contains(number));
        let synced = self.disk.sync_directory();
        synced.map_err(|error| failed("sync", "the directory", &error))?;
        Ok(dead)
    }

    /// Syncs everything, then marks the clean end and syncs that.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let outcome = match self.sync() {
            Ok(()) => self
                .commit([Draft::mark(Kind::Close)].iter(), false)
                .map(drop),
            Err(fault) => Err(fault),
        };
        self.file.release();
        outcome.map_err(|fault| match fault {
            Fault::Full(free) => Error::Full {
                free,
                reserve: self.options.reserve_bytes,
            },
            Fault::Failed(reason) => Error::Failed { reason },
        })
    }

    /// Opens a segment to continue after its valid end.
    pub(crate) fn open_file(disk: &dyn Disk, number: u32) -> Result<Box<dyn File>, Error> {
        let name = segment_name(number);
        at("open", &name, disk.open(&name))
    }
}
