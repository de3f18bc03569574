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

mod apply;
mod scanned;

pub(crate) use scanned::Scanned;

use crate::frame::{Bookmark, Definition, Header, Kind, mark};
use crate::planted::{self, Defect};
use crate::report::MISSING;
use crate::segment::{
    Found, MARKER, Marker, SEGMENT_HEADER_BYTES, Scanner, SegmentHeader, at, salt, segment_name,
    segment_number,
};
use crate::snapshot::Snapshot;
use crate::{CorruptRange, CursorOf, Disk, Error, File, TornTail};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Names of streams by the newest segment, for those that only snapshots have named so far.
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
}
