//! The records of a segment, in a small file next to it, so that opening need not read the segment.
//!
//! A snapshot is written when its segment is sealed and never changed. It is a cache: it is trusted
//! only if its own checksum is valid, if the segment has the length and the last frame that it
//! states, and if the next segment's header states the same. Without it the segment is read, and
//! the file is created again. It is not synced. A segment with damage has none.
//!
//! It lists streams with records in the segment, and removed streams. Other definitions and trim marks
//! are not in it: the newest segment begins with those of all streams. So a log of many streams and many segments opens
//! in the time that its records' index takes, however many streams are quiet.
//!
//! Layout, numbers little endian: magic, format version (u32), whether records were looked through for
//! cursors (u32), segment (u32), store (u64), checksum and length of the segment before (u32 each),
//! length (u32), last frame's offset and checksum (u32 each), streams (u32); for each stream id (u32),
//! first number (u64), epoch (u64), frames (u64), records (u64), chunks (count u32, 44 bytes each),
//! fills (count u32, 36 bytes each), ranges given up (count u32, 16 bytes each), newest cursor of its
//! records (number u64, 16 bytes); removed streams (u32), for each id (u32) and epoch (u64); at the end
//! the checksum of everything and of the segment's salt.
//!
//! Version 2 listed every stream, with its trim mark (u64) after the epoch and its definition (length
//! u32, bytes) after the records, and had no list of removed streams. It is still read.

use crate::frame::{Bookmark, Definition, HEADER_BYTES, Header, Kind, MAX_SEQUENCE, mark};
use crate::index::{CHUNK_FRAMES, Chunk, FrameRef};
use crate::segment::{SegmentHeader, UNFINISHED, salt};
use crate::{Disk, File};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

/// Version of the layout that is written.
const VERSION: u32 = 3;
/// The version with all definitions and trim marks, which is read too.
const VERSION_WITH_DEFINITIONS: u32 = 2;
const MAGIC: &[u8; 8] = b"CHAPPEix";
/// A larger file is not a snapshot: a chunk stands for at least one frame, which is longer.
const MAX_BYTES: u64 = 1 << 30;

/// The name of a segment's snapshot.
pub(crate) fn snapshot_name(number: u32) -> String {
    format!("{number:010}.index")
}

/// The number in a snapshot's file name.
pub(crate) fn snapshot_number(name: &str) -> Option<u32> {
    crate::segment::segment_number(&format!("{}.segment", name.strip_suffix(".index")?))
}

/// A stream's records in a segment.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The first number that the segment states, and its epoch.
    pub(crate) first: u64,
    pub(crate) epoch: u64,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    pub(crate) chunks: Vec<Chunk>,
    /// How many frames the last chunk has.
    last_frames: usize,
    /// What was put back.
    pub(crate) fills: Vec<FrameRef>,
    /// Ranges given up: first number, and the one after the last.
    pub(crate) given_up: Vec<(u64, u64)>,
    /// The newest cursor.
    pub(crate) bookmark: Option<Bookmark>,
}

impl Part {
    fn new(first: u64, epoch: u64) -> Part {
        Part {
            first,
            epoch,
            frames: 0,
            records: 0,
            chunks: Vec::new(),
            last_frames: 0,
            fills: Vec::new(),
            given_up: Vec::new(),
            bookmark: None,
        }
    }

    /// The number after the last record.
    fn next(&self) -> u64 {
        self.chunks.last().map_or(self.first, |chunk| chunk.next)
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.fills.is_empty() && self.given_up.is_empty()
    }

    /// Adds the frame that continues the records.
    fn push(&mut self, segment: u32, frame: &FrameRef) {
        if let Some(chunk) = self.chunks.last_mut()
            && self.last_frames < CHUNK_FRAMES
        {
            chunk.next = frame.next();
            chunk.time_min = chunk.time_min.min(frame.time_min);
            chunk.time_max = chunk.time_max.max(frame.time_max);
            chunk.last = frame.offset;
            chunk.bytes = chunk.bytes.saturating_add(frame.bytes);
            self.last_frames += 1;
            return;
        }
        self.last_frames = 1;
        self.chunks.push(Chunk {
            first: frame.first,
            next: frame.next(),
            time_min: frame.time_min,
            time_max: frame.time_max,
            segment,
            start: frame.offset,
            last: frame.offset,
            bytes: frame.bytes,
        });
    }
}

/// What a segment holds.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) header: SegmentHeader,
    /// Records were searched for cursors.
    pub(crate) has_cursors: bool,
    /// Length up to the end of the last frame.
    pub(crate) bytes: u64,
    pub(crate) last_offset: u32,
    pub(crate) last_crc: u32,
    /// The last frame is the mark of closing.
    pub(crate) closed: bool,
    pub(crate) parts: BTreeMap<u32, Part>,
    /// Removed streams with their epochs.
    pub(crate) removals: BTreeMap<u32, u64>,
    /// The next numbers of streams that the segment defines and has no records of, yet.
    quiet: BTreeMap<u32, u64>,
    /// It does not hold together: it must not be written.
    pub(crate) spoilt: bool,
}

impl Snapshot {
    /// For a segment without frames.
    pub(crate) fn new(header: SegmentHeader, has_cursors: bool) -> Snapshot {
        Snapshot {
            header,
            has_cursors,
            bytes: 0,
            last_offset: 0,
            last_crc: 0,
            closed: false,
            parts: BTreeMap::new(),
            removals: BTreeMap::new(),
            quiet: BTreeMap::new(),
            spoilt: false,
        }
    }

    /// Adds the next frame. The body matters for removals and records given up alone.
    pub(crate) fn push(
        &mut self,
        header: &Header,
        offset: u32,
        crc: u32,
        body: &[u8],
        bookmark: Option<Bookmark>,
    ) {
        self.bytes = u64::from(offset) + header.frame_bytes();
        (self.last_offset, self.last_crc) = (offset, crc);
        self.closed = header.kind == Kind::Close;
        let part = match header.kind {
            Kind::Open | Kind::Close => return,
            Kind::Definition if Definition::removes(body) => {
                self.removals.insert(header.stream, header.epoch);
                return;
            }
            // The next segment repeats them.
            Kind::Definition | Kind::Trim => {
                match self.parts.get_mut(&header.stream) {
                    Some(part) => {
                        self.spoilt |= header.first != part.next();
                        Bookmark::renew(&mut part.bookmark, bookmark, header.kind);
                    }
                    None => drop(self.quiet.insert(header.stream, header.first)),
                }
                return;
            }
            Kind::Records | Kind::Fill | Kind::Lost => match self.parts.entry(header.stream) {
                Entry::Occupied(part) => part.into_mut(),
                Entry::Vacant(place) => {
                    let first = self.quiet.remove(&header.stream);
                    self.spoilt |= first.is_none() && header.kind != Kind::Records;
                    place.insert(Part::new(first.unwrap_or(header.first), header.epoch))
                }
            },
        };
        Bookmark::renew(&mut part.bookmark, bookmark, header.kind);
        match header.kind {
            Kind::Records if header.first == part.next() => {
                part.frames += 1;
                part.records += u64::from(header.count);
                part.push(self.header.number, &FrameRef::new(header, offset));
            }
            Kind::Fill => {
                part.frames += 1;
                part.records += u64::from(header.count);
                self.spoilt |= header.next() > part.next();
                part.fills.push(FrameRef::new(header, offset));
            }
            Kind::Lost => {
                let next = mark(body).unwrap_or_default();
                part.given_up.push((header.first, next));
            }
            _ => self.spoilt = true,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let word = |bytes: &mut Vec<u8>, word: u32| bytes.extend_from_slice(&word.to_le_bytes());
        let long = |bytes: &mut Vec<u8>, long: u64| bytes.extend_from_slice(&long.to_le_bytes());
        word(&mut bytes, VERSION);
        word(&mut bytes, u32::from(self.has_cursors));
        word(&mut bytes, self.header.number);
        long(&mut bytes, self.header.store);
        word(&mut bytes, self.header.previous);
        word(&mut bytes, self.header.previous_bytes);
        word(&mut bytes, self.bytes as u32);
        word(&mut bytes, self.last_offset);
        word(&mut bytes, self.last_crc);
        word(&mut bytes, self.parts.len() as u32);
        for (id, part) in &self.parts {
            word(&mut bytes, *id);
            for value in [part.first, part.epoch, part.frames, part.records] {
                long(&mut bytes, value);
            }
            word(&mut bytes, part.chunks.len() as u32);
            for chunk in &part.chunks {
                long(&mut bytes, chunk.first);
                long(&mut bytes, chunk.next);
                long(&mut bytes, chunk.time_min as u64);
                long(&mut bytes, chunk.time_max as u64);
                word(&mut bytes, chunk.start);
                word(&mut bytes, chunk.last);
                word(&mut bytes, chunk.bytes);
            }
            word(&mut bytes, part.fills.len() as u32);
            for fill in &part.fills {
                long(&mut bytes, fill.first);
                long(&mut bytes, fill.time_min as u64);
                long(&mut bytes, fill.time_max as u64);
                word(&mut bytes, fill.count);
                word(&mut bytes, fill.offset);
                word(&mut bytes, fill.bytes);
            }
            word(&mut bytes, part.given_up.len() as u32);
            for (from, next) in &part.given_up {
                long(&mut bytes, *from);
                long(&mut bytes, *next);
            }
            // Number 0: there is none.
            long(&mut bytes, part.bookmark.map_or(0, |it| it.number));
            bytes.extend_from_slice(&part.bookmark.map_or([0; 16], |it| it.cursor));
        }
        word(&mut bytes, self.removals.len() as u32);
        for (id, epoch) in &self.removals {
            word(&mut bytes, *id);
            long(&mut bytes, *epoch);
        }
        let crc = checksum(&self.header, &bytes);
        word(&mut bytes, crc);
        bytes
    }

    /// Reads a snapshot of the segment with this header; `None` if it is not one.
    pub(crate) fn decode(bytes: &[u8], header: &SegmentHeader) -> Option<Snapshot> {
        let (content, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if content.get(..8)? != MAGIC || checksum(header, content) != u32_of(crc)? {
            return None;
        }
        let mut rest = Rest(&content[8..]);
        let (version, has_cursors) = (rest.word()?, rest.word()? != 0);
        let (number, store) = (rest.word()?, rest.long()?);
        let (previous, previous_bytes) = (rest.word()?, rest.word()?);
        let same = matches!(version, VERSION | VERSION_WITH_DEFINITIONS)
            && (number, store) == (header.number, header.store)
            && (previous, previous_bytes) == (header.previous, header.previous_bytes);
        if !same {
            return None;
        }
        let mut snapshot = Snapshot::new(*header, has_cursors);
        snapshot.bytes = u64::from(rest.word()?);
        snapshot.last_offset = rest.word()?;
        snapshot.last_crc = rest.word()?;
        for _ in 0..rest.word()? {
            let id = rest.word()?;
            let (part, removed) = rest.part(version, number)?;
            if removed {
                snapshot.removals.insert(id, part.epoch);
            }
            if !part.is_empty() {
                snapshot.parts.insert(id, part);
            }
        }
        if version == VERSION {
            for _ in 0..rest.word()? {
                snapshot.removals.insert(rest.word()?, rest.long()?);
            }
        }
        rest.0.is_empty().then_some(snapshot)
    }

    /// Writes the snapshot next to its segment. A failure only slows the next opening.
    pub(crate) fn save(&self, disk: &dyn Disk) -> io::Result<()> {
        let name = snapshot_name(self.header.number);
        let new = format!("{name}{UNFINISHED}");
        let written = disk
            .create(&new)
            .and_then(|mut file| file.append(&self.encode()));
        match written.and_then(|()| disk.rename(&new, &name)) {
            Ok(()) => Ok(()),
            Err(error) => {
                // Half a file would only be rejected.
                let _ = disk.remove(&new);
                Err(error)
            }
        }
    }

    /// Reads the snapshot of a segment, if it matches the segment and the header of the next one.
    pub(crate) fn load(
        disk: &dyn Disk,
        segment: &dyn File,
        length: u64,
        header: &SegmentHeader,
        next: &SegmentHeader,
    ) -> Option<Snapshot> {
        let file = disk.open(&snapshot_name(header.number)).ok()?;
        let size = file.len().ok().filter(|size| *size <= MAX_BYTES)?;
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        read_all(&*file, 0, &mut bytes)?;
        let mut snapshot = Snapshot::decode(&bytes, header)?;
        let end = u64::from(next.previous_bytes);
        if snapshot.bytes != length || end != length || next.previous != snapshot.last_crc {
            return None;
        }
        let mut last = [0; HEADER_BYTES];
        read_all(segment, u64::from(snapshot.last_offset), &mut last)?;
        let salt = salt(header.store, header.number);
        let (last, crc) = Header::decode(&last, salt, snapshot.last_offset)?;
        snapshot.closed = last.kind == Kind::Close;
        let ends = u64::from(snapshot.last_offset) + last.frame_bytes() == length;
        (crc == snapshot.last_crc && ends).then_some(snapshot)
    }
}

fn checksum(header: &SegmentHeader, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt(header.store, header.number).to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

fn read_all(file: &dyn File, offset: u64, buffer: &mut [u8]) -> Option<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(offset + filled as u64, &mut buffer[filled..]) {
            Ok(0) | Err(_) => return None,
            Ok(read) => filled += read,
        }
    }
    Some(())
}

fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Bytes that are read from the front.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn word(&mut self) -> Option<u32> {
        u32_of(self.bytes(4)?)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A stream's part, and whether the stream is removed.
    fn part(&mut self, version: u32, segment: u32) -> Option<(Part, bool)> {
        let (first, epoch) = (self.long()?, self.long()?);
        if first == 0 || first >= MAX_SEQUENCE {
            return None;
        }
        let has_definitions = version == VERSION_WITH_DEFINITIONS;
        if has_definitions {
            self.long()?;
        }
        let mut part = Part::new(first, epoch);
        (part.frames, part.records) = (self.long()?, self.long()?);
        let mut removed = false;
        if has_definitions {
            let length = self.word()? as usize;
            removed = Definition::removes(self.bytes(length)?);
        }
        for _ in 0..self.word()? {
            let chunk = self.chunk(segment)?;
            let orderly = chunk.first == part.next() && chunk.first < chunk.next;
            if !orderly || chunk.next >= MAX_SEQUENCE || chunk.start > chunk.last {
                return None;
            }
            part.chunks.push(chunk);
        }
        for _ in 0..self.word()? {
            let fill = FrameRef {
                first: self.long()?,
                time_min: self.long()? as i64,
                time_max: self.long()? as i64,
                count: self.word()?,
                offset: self.word()?,
                bytes: self.word()?,
            };
            if fill.first == 0 || fill.first >= MAX_SEQUENCE {
                return None;
            }
            part.fills.push(fill);
        }
        for _ in 0..self.word()? {
            part.given_up.push((self.long()?, self.long()?));
        }
        let (number, cursor) = (self.long()?, self.bytes(16)?.try_into().ok()?);
        part.bookmark = (number > 0).then_some(Bookmark { number, cursor });
        Some((part, removed))
    }

    fn chunk(&mut self, segment: u32) -> Option<Chunk> {
        Some(Chunk {
            first: self.long()?,
            next: self.long()?,
            time_min: self.long()? as i64,
            time_max: self.long()? as i64,
            segment,
            start: self.word()?,
            last: self.word()?,
            bytes: self.word()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::FORMAT_VERSION;
    use proptest::prelude::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            version: FORMAT_VERSION,
            number: 4,
            store: 5,
            previous: 6,
            previous_bytes: 7,
        }
    }

    fn filled() -> Snapshot {
        let mut snapshot = Snapshot::new(header(), true);
        let mut offset = 36;
        for n in 0..200u64 {
            let kind = if n % 50 == 49 {
                Kind::Fill
            } else {
                Kind::Records
            };
            let next = 1 + (n - n / 50) * 3;
            let frame = Header {
                kind,
                derived: false,
                body_bytes: 40,
                stream: 1,
                count: 3,
                synced: 0,
                epoch: 9,
                first: if kind == Kind::Fill { 2 } else { next },
                time_min: n as i64,
                time_max: n as i64 + 2,
                back: 0,
                previous: 0,
                body_crc: 0,
            };
            let bookmark = Bookmark {
                number: frame.next() - 1,
                cursor: [n as u8; 16],
            };
            snapshot.push(&frame, offset, n as u32, b"", Some(bookmark));
            offset += frame.frame_bytes() as u32;
        }
        assert!(!snapshot.spoilt);
        snapshot
    }

    #[test]
    fn a_snapshot_comes_back() {
        let bytes = filled().encode();
        let read = Snapshot::decode(&bytes, &header()).expect("a snapshot");
        assert_eq!(read.encode(), bytes);
        let part = &read.parts[&1];
        assert_eq!((part.records, part.fills.len(), part.next()), (600, 4, 589));
        let newest = part.bookmark.expect("a cursor");
        assert_eq!((newest.number, newest.cursor), (588, [198; 16]));
        let other = SegmentHeader {
            previous: 1,
            ..header()
        };
        assert!(Snapshot::decode(&bytes, &other).is_none());
    }

    #[test]
    fn a_snapshot_of_the_version_before_is_read() {
        let snapshot = filled();
        let part = &snapshot.parts[&1];
        let bytes = snapshot.encode();
        // Up to the first part, which begins with its stream, first number and epoch.
        let head = 8 + 4 + 4 + 4 + 8 + 4 + 4 + 4 + 4 + 4;
        let mut old = bytes[..head].to_vec();
        old[8..12].copy_from_slice(&VERSION_WITH_DEFINITIONS.to_le_bytes());
        old.extend_from_slice(&2u32.to_le_bytes());
        let mut part_bytes = |stream: u32, frames_on: &[u8], frames: u64, records: u64| {
            old.extend_from_slice(&stream.to_le_bytes());
            for value in [1, 9, 1, frames, records] {
                old.extend_from_slice(&u64::to_le_bytes(value));
            }
            old.extend_from_slice(&3u32.to_le_bytes());
            old.extend_from_slice(b"abc");
            old.extend_from_slice(frames_on);
        };
        let rest = &bytes[head + 4 + 4 + 8 + 8 + 8 + 8..bytes.len() - 4 - 4];
        part_bytes(1, rest, part.frames, part.records);
        // A stream without records.
        part_bytes(2, &[0; 4 + 4 + 4 + 8 + 16], 0, 0);
        let crc = checksum(&header(), &old);
        old.extend_from_slice(&crc.to_le_bytes());
        let read = Snapshot::decode(&old, &header()).expect("a snapshot");
        assert_eq!(read.encode(), bytes);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..400, value: u8,
        ) {
            prop_assert!(Snapshot::decode(&bytes, &header()).is_none());
            // With a valid checksum.
            let mut sealed = filled().encode();
            sealed.truncate(sealed.len() - 4);
            let at = at % sealed.len();
            sealed[at] = value;
            let crc = checksum(&header(), &sealed);
            sealed.extend_from_slice(&crc.to_le_bytes());
            let _ = Snapshot::decode(&sealed, &header());
        }
    }
}
