//! Scanning a whole log: its valid frames, a torn end, corrupt ranges in the middle.
//!
//! A frame counts once its successor confirms it by the chained checksum, or nothing follows it.
//! Invalid bytes with a valid frame after them are a corrupt range and stay; invalid bytes at the
//! very end are a torn tail. Nothing is changed here: opening and `check` share this scan.
//!
//! Derived records do not count after damage that is not known to have been synced: their inputs may have
//! been in it. The frames up to the next opening record whether it was synced, so each scan gives the same
//! result.
//!
//! A missing segment is no damage if it is before the first one, or if only trimmed numbers are
//! missing: each segment starts with all definitions and trim marks.

use crate::frame::{Bookmark, Definition, Header, Kind, Removal, mark};
use crate::index::{FrameRef, Index};
use crate::planted::{self, Defect};
use crate::report::MISSING;
use crate::segment::{
    Found, MARKER, Marker, SEGMENT_HEADER_BYTES, Scanner, SegmentHeader, at, salt, segment_name,
    segment_number,
};
use crate::snapshot::Snapshot;
use crate::{
    CorruptRange, CursorOf, Disk, Error, File, Level, MAX_EPOCHS, Report, StreamInfo, StreamReport,
    TornTail,
};
use std::collections::{BTreeMap, BTreeSet};

/// A stream as found by the scan.
pub(crate) struct ScannedStream {
    pub(crate) definition: Definition,
    /// Its definition was read, not made up.
    defined: bool,
    pub(crate) index: Index,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    /// The first number kept by the newest trim mark; 0 if there is none.
    pub(crate) trimmed: u64,
    /// The newest cursor.
    pub(crate) bookmark: Option<Bookmark>,
    /// The first number that its first frame states, and the damage that may have held earlier
    /// ones.
    born: (u64, Option<Beginning>),
    /// Number of corrupt ranges, and of those with unknown content, before its last frame.
    ranges_seen: usize,
    opaque_seen: usize,
}

/// Damage that may contain the start of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beginning {
    /// The index of the range.
    range: usize,
    /// Not in the oldest segment: nothing before it was removed.
    sure: bool,
}

/// An entire log as found by the scan.
#[derive(Default)]
pub(crate) struct Scanned {
    /// The key of the checksums; `None` when there is no log yet.
    pub(crate) store: Option<u64>,
    /// There is a marker of another store (or none though there is a log).
    pub(crate) copied: bool,
    pub(crate) streams: BTreeMap<u32, ScannedStream>,
    /// Streams that were removed.
    pub(crate) removals: BTreeMap<u32, Removal>,
    /// Number of the last segment, and its length up to the end of the last valid frame.
    pub(crate) segments: Vec<(u32, u64)>,
    pub(crate) corrupt: Vec<CorruptRange>,
    pub(crate) torn: Option<TornTail>,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) clean: bool,
    /// Checksum of the last frame, for the chain.
    pub(crate) last_crc: u32,
    /// Segments that were not read because their snapshots are trusted.
    pub(crate) indexed: usize,
    /// Snapshots of the segments that were read, except the last one.
    pub(crate) snapshots: Vec<Snapshot>,
    /// The snapshot of the last segment, if it has no damage.
    pub(crate) last_snapshot: Option<Snapshot>,
    /// Format versions of the segments.
    pub(crate) versions: BTreeMap<u32, u32>,
    /// Of the newest segments, those that begin with all definitions and marks.
    complete: BTreeSet<u32>,
    /// Which of `corrupt` may have held anything.
    opaque: Vec<usize>,
    /// Indexes of the ranges of `corrupt` that are missing segments.
    holes: Vec<usize>,
}

impl Scanned {
    /// Applies the trim marks: trimmed records neither exist nor are missing.
    fn apply_marks(&mut self) {
        let mut marks = BTreeMap::new();
        for stream in self.streams.values_mut() {
            let (first, lost_in) = stream.born;
            let kept = stream.trimmed.max(1);
            // Without a mark, the size limit removed everything before the oldest segment.
            let lost_in = lost_in.filter(|lost_in| lost_in.sure || stream.trimmed > 0);
            match lost_in.filter(|_| kept < first) {
                Some(Beginning { range, .. }) => {
                    let gap = (stream.definition.name.clone(), kept, first - 1);
                    self.corrupt[range].gaps.push(gap);
                }
                // Restored records lie in later segments, and stay without the damaged one.
                None => drop(stream.index.trim_to(stream.index.put_back_before(first))),
            }
            stream.index.trim_to(stream.trimmed);
            stream.index.count_losses();
            marks.insert(stream.definition.name.clone(), kept);
        }
        let by_name = match self.corrupt.is_empty() {
            true => BTreeMap::new(),
            false => {
                let streams = self.streams.values().rev();
                streams.map(|it| (&*it.definition.name, it)).collect()
            }
        };
        let named = |name: &str| by_name.get(name);
        for range in &mut self.corrupt {
            for (name, from, _) in &mut range.gaps {
                let kept = marks.get(name.as_str()).copied();
                *from = kept.map_or(*from, |kept| kept.max(*from));
            }
            // Restored records are no longer missing.
            range.gaps.retain(|(name, from, last)| {
                let missing = |it: &&ScannedStream| it.index.misses_some(*from, *last + 1);
                from <= last && named(name).is_none_or(missing)
            });
        }
        // Damage in the newest segment may have held records that no later frame mentions.
        let newest = self
            .segments
            .last()
            .map(|(number, _)| segment_name(*number));
        for range in &mut self.corrupt {
            range.settled = range.gaps.is_empty() && Some(&range.segment) != newest.as_ref();
        }
        for hole in self.holes.drain(..).rev() {
            if self.corrupt[hole].gaps.is_empty() {
                self.corrupt.remove(hole);
            }
        }
    }

    /// Whether the newest segments, which were read, tell of every stream: one of them is whole, and so
    /// are the definitions and marks that it begins with.
    fn tells_of_all(&self) -> bool {
        let damaged = |number: u32| {
            let name = segment_name(number);
            let torn = self.torn.as_ref().is_some_and(|it| it.segment == name);
            torn || self.corrupt.iter().any(|it| it.segment == name)
        };
        let whole = self.complete.iter().any(|number| !damaged(*number));
        whole && self.streams.values().all(|stream| stream.defined)
    }

    /// The newest numbers of the stream may be lost in a corrupt range.
    pub(crate) fn end_unknown(&self, stream: &ScannedStream) -> bool {
        stream.opaque_seen < self.opaque.len()
    }

    /// A summary of a stream.
    pub(crate) fn info(stream: &ScannedStream) -> StreamInfo {
        StreamInfo {
            name: stream.definition.name.clone(),
            level: stream.definition.level,
            metadata: stream.definition.metadata.clone(),
            epoch: stream
                .definition
                .epochs
                .last()
                .map_or(0, |(epoch, _)| *epoch),
            first: stream.index.first(),
            last: stream.index.next() - 1,
            bytes: stream.index.bytes(),
        }
    }

    /// The scan as a report.
    pub(crate) fn report(self) -> Report {
        let streams = self.streams.values().map(|stream| StreamReport {
            info: Scanned::info(stream),
            records: stream.records,
            frames: stream.frames,
            gaps: stream.index.gaps(),
            given_up: stream.index.given_up(),
        });
        Report {
            streams: streams.collect(),
            segments: self.segments.len(),
            bytes: self.bytes,
            frames: self.frames,
            records: self.records,
            clean: self.clean,
            copied: self.copied,
            torn_tail: self.torn,
            corrupt: self.corrupt,
        }
    }
}

/// The description of derived records that do not count.
const ORPHANED: &str = "the records it was derived from may be lost";

/// A valid frame that waits for confirmation by its successor.
struct Held {
    header: Header,
    segment: u32,
    offset: u64,
    crc: u32,
    /// Empty for records.
    body: Vec<u8>,
    bookmark: Option<Bookmark>,
    /// Derived from records that may be lost.
    orphaned: bool,
}

impl Held {
    fn read(
        scanner: &mut Scanner<'_>,
        header: Header,
        crc: u32,
        segment: u32,
        offset: u64,
        cursor_of: Option<CursorOf>,
    ) -> std::io::Result<Held> {
        let body = scanner.body(offset, &header)?;
        let (body, bookmark) = match header.kind {
            Kind::Trim => (body.to_vec(), Bookmark::from_mark(body)),
            Kind::Definition | Kind::Lost => (body.to_vec(), None),
            Kind::Records | Kind::Fill => {
                let bookmark = Bookmark::from_records(&header, body, cursor_of);
                (Vec::new(), bookmark)
            }
            Kind::Open | Kind::Close => (Vec::new(), None),
        };
        Ok(Held {
            header,
            segment,
            offset,
            crc,
            body,
            bookmark,
            orphaned: false,
        })
    }
}

/// Invalid bytes that wait for a valid frame after them.
struct Doubtful {
    offset: u64,
    bytes: u64,
    header: Option<Header>,
}

struct Scan {
    found: Scanned,
    cursor_of: Option<CursorOf>,
    /// The number of the oldest segment.
    oldest: u32,
    held: Option<Held>,
    /// Checksum of the previous frame that the next must state; unknown after invalid bytes.
    chain: Option<u32>,
    doubtful: Vec<Doubtful>,
    /// End of the last damage in the current segment; 0: there is none.
    damaged_until: u64,
    /// The end of such damage, and whether it was synced before the process ended.
    synced_later: Option<(u64, bool)>,
    /// The current segment's content, with the number of ranges before it.
    building: Option<(Snapshot, usize)>,
    /// Names of streams by the newest segment, for those that only snapshots have told of so far.
    names: BTreeMap<u32, String>,
    /// How many ranges there were before the last segment of which at least the beginning was needed.
    noted: usize,
}

/// An existing segment: number, file, length and header.
struct SegmentFile {
    number: u32,
    file: Box<dyn File>,
    length: u64,
    header: Option<SegmentHeader>,
}

/// The extent of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Reads every byte.
    All,
    /// Skips segments whose snapshots can be trusted.
    Unknown,
}

/// Reads a log. Snapshots leave out what the newest segment begins with; if that is damaged, more of the
/// newest segments are read.
pub(crate) fn scan(
    disk: &dyn Disk,
    read: Read,
    cursor_of: Option<CursorOf>,
) -> Result<Scanned, Error> {
    let mut newest = 1;
    loop {
        let found = scan_reading(disk, read, newest, cursor_of)?;
        if found.indexed == 0 || found.tells_of_all() {
            return Ok(found);
        }
        newest *= 2;
    }
}

/// Reads a log, the `newest` segments in any case.
fn scan_reading(
    disk: &dyn Disk,
    read: Read,
    newest: usize,
    cursor_of: Option<CursorOf>,
) -> Result<Scanned, Error> {
    let names = at("list", "the directory", disk.list())?;
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| segment_number(name))
        .collect();
    numbers.sort_unstable();
    let has_marker = names.iter().any(|name| name == MARKER);
    let marker = if has_marker {
        Marker::read(disk)?
    } else {
        None
    };
    let mut found = Scanned {
        store: marker.map(|marker| marker.store),
        ..Scanned::default()
    };
    found.copied = match marker.filter(|_| !planted::is(Defect::IgnoresCopy)) {
        Some(marker) => at("identify", MARKER, disk.identity(MARKER))? != marker.identity,
        None => has_marker && !planted::is(Defect::IgnoresCopy),
    };
    let mut files = Vec::new();
    for &number in &numbers {
        let name = segment_name(number);
        let file = at("open", &name, disk.open(&name))?;
        let length = at("read", &name, file.len())?.min(u64::from(u32::MAX));
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = at("read", &name, file.read_at(0, &mut bytes))?;
        let header = SegmentHeader::decode(&bytes[..read], number)?;
        found.store = found.store.or(header.map(|header| header.store));
        found.bytes += length;
        files.push(SegmentFile {
            number,
            file,
            length,
            header,
        });
    }
    if found.store.is_none() {
        return unkeyed(found, &files, has_marker);
    }
    found.copied |= marker.is_none() && !files.is_empty();
    let mut scan = Scan {
        found,
        cursor_of,
        oldest: numbers.first().copied().unwrap_or(1),
        held: None,
        chain: None,
        doubtful: Vec::new(),
        damaged_until: 0,
        synced_later: None,
        building: None,
        names: BTreeMap::new(),
        noted: 0,
    };
    if read == Read::Unknown && files.len() > newest {
        let store = scan.found.store.unwrap_or_default();
        for one in files.iter().rev().take(newest) {
            let head = at("read", &segment_name(one.number), head_of(one, store))?;
            let Some(head) = head else { continue };
            if head.is_complete {
                scan.found.complete.insert(one.number);
            }
            for (header, body) in head.frames {
                let definition = Definition::decode(&body).filter(|it| !it.is_removal());
                if let (Kind::Definition, Some(definition)) = (header.kind, definition) {
                    scan.names.entry(header.stream).or_insert(definition.name);
                }
            }
        }
    }
    for (n, one) in files.iter().enumerate() {
        scan.segment_header(one.number, one.header);
        let next = files.get(n + 1);
        let may_trust = read == Read::Unknown && n + newest < files.len();
        let snapshot = may_trust.then(|| snapshot_of(disk, one, next));
        let fits = |it: &Snapshot| scan.continues(it) && (it.has_cursors || cursor_of.is_none());
        let mut snapshot = snapshot.flatten().filter(fits);
        // After damage, the next frame of each stream tells what it lost.
        let ranges = scan.found.corrupt.len();
        if snapshot.is_some() && ranges != scan.noted && !scan.apply_head(one)? {
            snapshot = None;
        }
        scan.noted = ranges;
        if let Some(snapshot) = snapshot {
            scan.apply_snapshot(snapshot);
        } else {
            let new = |header| Snapshot::new(header, cursor_of.is_some());
            let snapshot = one.header.map(new);
            scan.building = snapshot.map(|snapshot| (snapshot, scan.found.corrupt.len()));
            scan.segment(one.number, &*one.file, one.length, next.is_none())?;
        }
    }
    scan.settle_held();
    let ranges = scan.found.corrupt.len();
    let last = scan.building.take();
    scan.found.last_snapshot = last.filter(|it| it.1 == ranges).map(|it| it.0);
    let versions = files
        .iter()
        .filter_map(|one| Some((one.number, one.header?.version)));
    scan.found.versions = versions.collect();
    scan.found.apply_marks();
    Ok(scan.found)
}

/// The snapshot of a segment, if the next one confirms it.
fn snapshot_of(disk: &dyn Disk, one: &SegmentFile, next: Option<&SegmentFile>) -> Option<Snapshot> {
    let (header, next) = (one.header?, next?);
    if next.number != one.number + 1 {
        return None;
    }
    Snapshot::load(disk, &*one.file, one.length, &header, &next.header?)
}

/// What a segment begins with.
struct Head {
    /// The definitions and marks, once each.
    frames: Vec<(Header, Vec<u8>)>,
    /// They are all there, for the copies are too. A segment whose beginning was cut off by a power loss
    /// may have been written on.
    is_complete: bool,
}

/// What a segment begins with; `None` if some of it cannot be read.
fn head_of(one: &SegmentFile, store: u64) -> std::io::Result<Option<Head>> {
    let mut scanner = Scanner::new(&*one.file, salt(store, one.number), one.length);
    let mut frames: Vec<(Header, Vec<u8>)> = Vec::new();
    let mut known = BTreeSet::new();
    let (mut copies, mut copying) = (0, false);
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    let is_complete = loop {
        match scanner.look(offset)? {
            Found::Frame(header, _) if matches!(header.kind, Kind::Definition | Kind::Trim) => {
                let is_new = known.insert((header.stream, header.kind as u8));
                copying |= !is_new;
                match copying {
                    true if copies == frames.len() => break true,
                    true => copies += 1,
                    false => {
                        let body = scanner.body(offset, &header)?.to_vec();
                        frames.push((header, body));
                    }
                }
                offset += header.frame_bytes();
            }
            Found::Frame(..) | Found::End => break copying && copies == frames.len(),
            Found::BadBody(..) | Found::Bad(_) => return Ok(None),
        }
    };
    Ok(Some(Head {
        frames,
        is_complete,
    }))
}

/// No key is known: right for a log that was never finished being created, hopeless otherwise.
fn unkeyed(mut found: Scanned, files: &[SegmentFile], has_marker: bool) -> Result<Scanned, Error> {
    const FIRST_WRITE_BYTES: u64 = 512;
    match files {
        [] => {}
        [one] if one.number == 1 && one.length <= FIRST_WRITE_BYTES && !has_marker => {
            found.torn = Some(TornTail {
                segment: segment_name(1),
                offset: 0,
                bytes: one.length,
            });
        }
        [one, ..] => {
            return Err(Error::Unreadable {
                file: segment_name(one.number),
            });
        }
    }
    Ok(found)
}

/// Whether a frame from `offset`, by the process that wrote the frame with the checksum `crc`
/// before it, states that everything up to `until` was synced.
fn synced_later(
    mut ahead: Scanner<'_>,
    mut offset: u64,
    mut crc: u32,
    until: u64,
) -> std::io::Result<bool> {
    loop {
        match ahead.look(offset)? {
            Found::Frame(header, next) if header.previous == crc && header.kind != Kind::Open => {
                if u64::from(header.synced) >= until {
                    return Ok(true);
                }
                offset += header.frame_bytes();
                crc = next;
            }
            // After an opening everything before it is synced, including damaged bytes.
            Found::Frame(..) | Found::BadBody(..) | Found::Bad(_) | Found::End => return Ok(false),
        }
    }
}

impl Scan {
    fn corrupt(&mut self, segment: u32, offset: u64, bytes: u64, what: &str, opaque: bool) {
        if opaque {
            self.found.opaque.push(self.found.corrupt.len());
        }
        self.found.corrupt.push(CorruptRange {
            segment: segment_name(segment),
            offset,
            bytes,
            what: what.to_owned(),
            unsynced: what == ORPHANED,
            settled: false,
            gaps: Vec::new(),
        });
    }

    /// Links a segment to the previous one.
    fn segment_header(&mut self, number: u32, header: Option<SegmentHeader>) {
        let before = self.found.segments.last().copied();
        if let Some((last, _)) = before.filter(|(last, _)| last + 1 != number) {
            self.settle_held();
            self.found.holes.push(self.found.corrupt.len());
            self.corrupt(last + 1, 0, 0, MISSING, true);
            self.chain = None;
        } else if let (Some((last, end)), Some(header)) = (before, header) {
            let whole = end == u64::from(header.previous_bytes);
            let linked = self.chain.is_none_or(|crc| crc == header.previous);
            if !whole {
                self.settle_held();
                self.corrupt(last, end, 0, "the segment's end is missing", true);
            } else if linked {
                self.settle_held();
            } else {
                self.refuse_held();
            }
            self.chain = None;
        }
        self.finish_snapshot(before);
    }

    /// Handles the end of a segment: if all of it is valid, its snapshot can be written.
    fn finish_snapshot(&mut self, before: Option<(u32, u64)>) {
        if let Some((snapshot, ranges)) = self.building.take()
            && ranges == self.found.corrupt.len()
            && before == Some((snapshot.header.number, snapshot.bytes))
            && self.held.is_none()
        {
            self.found.snapshots.push(snapshot);
        }
    }

    fn segment(
        &mut self,
        number: u32,
        file: &dyn File,
        length: u64,
        last: bool,
    ) -> Result<(), Error> {
        let name = segment_name(number);
        let salt = salt(self.found.store.unwrap_or_default(), number);
        let mut scanner = Scanner::new(file, salt, length);
        (self.damaged_until, self.synced_later) = (0, None);
        let ranges_before = self.found.corrupt.len();
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = at("read", &name, file.read_at(0, &mut bytes))?;
        if SegmentHeader::decode(&bytes[..read], number)?.is_none() {
            let bytes = length.min(SEGMENT_HEADER_BYTES as u64);
            self.doubtful.push(Doubtful {
                offset: 0,
                bytes,
                header: None,
            });
        }
        let mut offset = (SEGMENT_HEADER_BYTES as u64).min(length);
        let mut end = if self.doubtful.is_empty() { offset } else { 0 };
        let mut synced = 0;
        loop {
            match at("read", &name, scanner.look(offset))? {
                Found::Frame(header, crc) => {
                    let cursor_of = self.cursor_of;
                    let held = Held::read(&mut scanner, header, crc, number, offset, cursor_of);
                    let held = at("read", &name, held)?;
                    self.settle_doubtful(number);
                    self.frame(held);
                    if header.derived && self.damaged_until > u64::from(header.synced) {
                        let ahead = Scanner::new(file, salt, length);
                        let next = offset + header.frame_bytes();
                        let orphaned = at("read", &name, self.orphaned(ahead, next, crc))?;
                        self.held.iter_mut().for_each(|it| it.orphaned = orphaned);
                    }
                    synced = synced.max(u64::from(header.synced));
                    offset += header.frame_bytes();
                    end = offset;
                }
                Found::BadBody(header, crc) => {
                    let bytes = header.frame_bytes();
                    self.doubt(offset, bytes, Some(header));
                    self.chain = Some(crc);
                    offset += bytes;
                    if last && planted::is(Defect::CutsMiddle) {
                        break;
                    }
                }
                Found::Bad(bytes) => {
                    self.doubt(offset, bytes, None);
                    self.chain = None;
                    offset += bytes;
                }
                Found::End => break,
            }
        }
        if last {
            self.settle_torn(&name, length);
            for range in &mut self.found.corrupt[ranges_before..] {
                range.unsynced = range.offset + range.bytes > synced;
            }
        } else if !self.doubtful.is_empty() {
            self.settle_doubtful(number);
            end = length;
        }
        self.found.segments.push((number, end));
        Ok(())
    }

    /// Whether the inputs of a derived frame may be in the last damage, which precedes it and was
    /// not known to be synced then. Frames from `next` may show that it was.
    fn orphaned(&mut self, ahead: Scanner<'_>, next: u64, crc: u32) -> std::io::Result<bool> {
        if planted::is(Defect::KeepsDerived) {
            return Ok(false);
        }
        let until = self.damaged_until;
        if let Some((_, synced)) = self.synced_later.filter(|(known, _)| *known == until) {
            return Ok(!synced);
        }
        let synced = synced_later(ahead, next, crc, until)?;
        self.synced_later = Some((until, synced));
        Ok(!synced)
    }

    fn doubt(&mut self, offset: u64, bytes: u64, header: Option<Header>) {
        self.settle_held();
        self.doubtful.push(Doubtful {
            offset,
            bytes,
            header,
        });
    }

    fn settle_torn(&mut self, name: &str, length: u64) {
        if let Some(first) = self.doubtful.first() {
            let bytes = length - first.offset;
            self.found.torn = Some(TornTail {
                segment: name.to_owned(),
                offset: first.offset,
                bytes,
            });
            self.found.clean = false;
            self.doubtful.clear();
        }
    }

    /// A valid frame follows the invalid bytes: they are corrupt.
    fn settle_doubtful(&mut self, segment: u32) {
        for doubtful in std::mem::take(&mut self.doubtful) {
            let Doubtful {
                offset,
                bytes,
                header,
            } = doubtful;
            self.damaged_until = offset + bytes;
            match header {
                Some(header) => {
                    let removed = self.found.removals.contains_key(&header.stream);
                    if header.kind == Kind::Definition && !removed {
                        // Its description is reported elsewhere; the position of its numbers is
                        // known.
                        self.stream(&header);
                    }
                    self.corrupt(
                        segment,
                        offset,
                        bytes,
                        "the body of a frame fails its checksum",
                        header.kind == Kind::Definition,
                    );
                    self.lost(&header);
                }
                None if offset == 0 => {
                    self.corrupt(
                        segment,
                        offset,
                        bytes,
                        "the header of the segment is invalid",
                        false,
                    );
                }
                None => self.corrupt(segment, offset, bytes, "no valid frame", true),
            }
        }
    }

    /// Records that the records of a frame with this header are lost.
    fn lost(&mut self, header: &Header) {
        if header.kind != Kind::Records {
            return;
        }
        self.stream(header);
        self.skip(header.stream, header.first);
        // The frame's own range was recorded just before.
        let own = self.found.corrupt.len().saturating_sub(1);
        self.stream(header).ranges_seen = own;
        self.skip(header.stream, header.next());
    }

    fn frame(&mut self, held: Held) {
        if self.chain.is_none_or(|chain| chain == held.header.previous) {
            self.settle_held();
        } else {
            self.refuse_held();
            self.damaged_until = held.offset;
        }
        self.chain = Some(held.crc);
        self.found.last_crc = held.crc;
        self.held = Some(held);
    }

    /// The successor states another predecessor than the held frame.
    fn refuse_held(&mut self) {
        let Some(Held {
            header,
            segment,
            offset,
            ..
        }) = self.held.take()
        else {
            let segment = self.found.segments.last().map_or(1, |(number, _)| *number);
            return self.corrupt(segment, 0, 0, "a frame is missing", true);
        };
        let bytes = header.frame_bytes();
        self.corrupt(
            segment,
            offset,
            bytes,
            "the next frame has another predecessor",
            true,
        );
        self.lost(&header);
    }

    fn settle_held(&mut self) {
        let Some(Held {
            header,
            segment,
            offset,
            crc,
            body,
            bookmark,
            orphaned,
        }) = self.held.take()
        else {
            return;
        };
        if orphaned {
            self.found.clean = false;
            self.corrupt(segment, offset, header.frame_bytes(), ORPHANED, false);
            return self.lost(&header);
        }
        if let Some((snapshot, _)) = &mut self.building
            && snapshot.header.number == segment
        {
            snapshot.push(&header, offset as u32, crc, &body, bookmark);
        }
        self.found.frames += 1;
        self.found.clean = header.kind == Kind::Close;
        match header.kind {
            Kind::Records => self.apply_records(&header, segment, offset),
            Kind::Fill => self.apply_fill(&header, segment, offset),
            Kind::Definition => match Definition::decode(&body) {
                Some(definition) if definition.is_removal() => {
                    self.apply_removal(header.stream, header.epoch, segment);
                }
                Some(definition) => self.apply_definition(&header, definition),
                None => {
                    let bytes = header.frame_bytes();
                    self.corrupt(segment, offset, bytes, "a definition is malformed", true);
                }
            },
            Kind::Lost => {
                let next = mark(&body).unwrap_or_default();
                self.stream(&header).index.give_up(header.first, next);
            }
            Kind::Trim => self.apply_mark(&header, mark(&body).unwrap_or_default()),
            Kind::Open | Kind::Close => {}
        }
        if let Some(stream) = self.found.streams.get_mut(&header.stream) {
            Bookmark::renew(&mut stream.bookmark, bookmark, header.kind);
        }
    }

    /// The stream of a frame of records; a stream whose definition is lost gets a generated name.
    fn stream(&mut self, header: &Header) -> &mut ScannedStream {
        self.stream_from(header.stream, header.epoch, header.first)
    }

    fn stream_from(&mut self, id: u32, epoch: u64, first: u64) -> &mut ScannedStream {
        let (ranges_seen, opaque_seen) = (self.found.corrupt.len(), self.found.opaque.len());
        let lost_in = self.lost_beginning();
        let name = self.names.get(&id);
        self.found.streams.entry(id).or_insert_with(|| {
            let mut index = Index::new(1);
            index.skip_to(first);
            ScannedStream {
                definition: Definition {
                    name: name.map_or_else(|| format!("lost-name-{id}"), String::clone),
                    level: Level::Power,
                    metadata: Vec::new(),
                    epochs: vec![(epoch, first)],
                },
                defined: false,
                index,
                frames: 0,
                records: 0,
                trimmed: 0,
                bookmark: None,
                born: (first, lost_in),
                ranges_seen,
                opaque_seen,
            }
        })
    }

    /// The damage that may contain the start of a stream with no earlier frame.
    fn lost_beginning(&self) -> Option<Beginning> {
        let range = self.found.opaque.last().copied()?;
        let in_oldest = self.found.corrupt[range].segment == segment_name(self.oldest);
        let sure = self.oldest == 1 || !in_oldest;
        Some(Beginning { range, sure })
    }

    /// Marks numbers of a stream up to `next` as missing, in the range that held them.
    fn skip(&mut self, id: u32, next: u64) {
        let (ranges, opaque) = (self.found.corrupt.len(), self.found.opaque.len());
        let Some(stream) = self.found.streams.get_mut(&id) else {
            return;
        };
        let from = stream.index.next();
        let seen = std::mem::replace(&mut stream.ranges_seen, ranges);
        stream.opaque_seen = opaque;
        if next <= from {
            return;
        }
        stream.index.skip_to(next);
        let gap = (stream.definition.name.clone(), from, next - 1);
        if seen >= ranges {
            let segment = self.found.segments.last().map_or(1, |(number, _)| *number);
            self.corrupt(segment, 0, 0, "records are missing", false);
        }
        let at = seen.min(self.found.corrupt.len() - 1);
        self.found.corrupt[at].gaps.push(gap);
    }

    fn apply_records(&mut self, header: &Header, segment: u32, offset: u64) {
        let expected = self.stream(header).index.next();
        if header.first < expected {
            let bytes = header.frame_bytes();
            return self.corrupt(
                segment,
                offset,
                bytes,
                "the numbers of a frame are lower than those before",
                false,
            );
        }
        self.skip(header.stream, header.first);
        let stream = self.stream(header);
        let epochs = &mut stream.definition.epochs;
        if epochs
            .last()
            .is_none_or(|(epoch, _)| *epoch != header.epoch)
        {
            epochs.push((header.epoch, header.first));
            if epochs.len() > MAX_EPOCHS {
                epochs.remove(0);
            }
        }
        stream.frames += 1;
        stream.records += u64::from(header.count);
        stream.index.push(
            segment,
            FrameRef {
                first: header.first,
                time_min: header.time_min,
                time_max: header.time_max,
                count: header.count,
                offset: offset as u32,
                bytes: header.frame_bytes() as u32,
            },
        );
        self.found.records += u64::from(header.count);
    }

    /// Handles restored records, whose numbers were assigned before.
    fn apply_fill(&mut self, header: &Header, segment: u32, offset: u64) {
        if planted::is(Defect::ForgetsFills) {
            return;
        }
        if header.next() > self.stream(header).index.next() {
            let bytes = header.frame_bytes();
            let what = "restored records have numbers that were never assigned";
            return self.corrupt(segment, offset, bytes, what, false);
        }
        let stream = self.stream(header);
        stream.frames += 1;
        stream.records += u64::from(header.count);
        stream
            .index
            .fill(segment, FrameRef::new(header, offset as u32));
        self.found.records += u64::from(header.count);
    }

    /// Whether a snapshot continues where the streams end.
    fn continues(&self, snapshot: &Snapshot) -> bool {
        snapshot.parts.iter().all(|(id, part)| {
            let known = self.found.streams.get(id).map_or(0, |it| it.index.next());
            known <= part.first
        })
    }

    /// Takes the content of a segment from its snapshot.
    fn apply_snapshot(&mut self, snapshot: Snapshot) {
        for (id, part) in snapshot.parts {
            self.found.frames += part.frames;
            self.found.records += part.records;
            if self.found.removals.contains_key(&id) {
                continue;
            }
            self.stream_from(id, part.epoch, part.first);
            self.skip(id, part.first);
            let stream = self.stream_from(id, part.epoch, part.first);
            for chunk in part.chunks {
                stream.index.push_chunk(chunk);
            }
            let fills = part.fills.into_iter();
            for fill in fills.filter(|_| !planted::is(Defect::ForgetsFills)) {
                stream.index.fill(snapshot.header.number, fill);
            }
            for (from, next) in part.given_up {
                stream.index.give_up(from, next);
            }
            Bookmark::renew(&mut stream.bookmark, part.bookmark, Kind::Trim);
            stream.frames += part.frames;
            stream.records += part.records;
        }
        for (id, epoch) in snapshot.removals {
            self.apply_removal(id, epoch, snapshot.header.number);
        }
        self.found.clean = snapshot.closed;
        self.found.indexed += 1;
        self.found.last_crc = snapshot.last_crc;
        self.found
            .segments
            .push((snapshot.header.number, snapshot.bytes));
        self.chain = Some(snapshot.last_crc);
    }

    /// What a segment begins with tells how far each stream was; false if it cannot be read.
    fn apply_head(&mut self, one: &SegmentFile) -> Result<bool, Error> {
        let store = self.found.store.unwrap_or_default();
        let name = segment_name(one.number);
        let head = at("read", &name, head_of(one, store))?;
        let Some(head) = head.filter(|it| it.is_complete) else {
            return Ok(false);
        };
        for (header, body) in head.frames {
            match header.kind {
                Kind::Trim => self.apply_mark(&header, mark(&body).unwrap_or_default()),
                _ => match Definition::decode(&body) {
                    Some(definition) if definition.is_removal() => {
                        self.apply_removal(header.stream, header.epoch, one.number);
                    }
                    Some(definition) => self.apply_definition(&header, definition),
                    None => return Ok(false),
                },
            }
        }
        Ok(true)
    }

    /// The stream is no more, and nothing of it is missing.
    fn apply_removal(&mut self, id: u32, epoch: u64, segment: u32) {
        if let Some(stream) = self.found.streams.remove(&id) {
            let name = stream.definition.name;
            for range in &mut self.found.corrupt {
                range.gaps.retain(|(of, _, _)| *of != name);
            }
        }
        let removal = Removal { epoch, segment };
        self.found.removals.entry(id).or_insert(removal);
    }

    fn apply_definition(&mut self, header: &Header, definition: Definition) {
        self.found.removals.remove(&header.stream);
        self.stream(header);
        self.skip(header.stream, header.first);
        let stream = self.stream(header);
        (stream.definition, stream.defined) = (definition, true);
    }

    fn apply_mark(&mut self, header: &Header, before: u64) {
        self.stream(header);
        self.skip(header.stream, header.first);
        let stream = self.stream(header);
        stream.trimmed = stream.trimmed.max(before.min(header.first));
    }
}
