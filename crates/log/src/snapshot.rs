//! The content of a segment, in a small file next to it, so that opening need not read the segment.
//!
//! A snapshot is written when its segment is sealed and never changed. It is a cache: it is trusted
//! only if its own checksum is valid, if the segment has the length and the last frame that it
//! states, and if the next segment's header states the same. Without it the segment is read, and
//! the file is created again. It is not synced. A segment with damage has none.
//!
//! Layout, numbers little endian: magic, format version (u32), whether records were searched for
//! cursors (u32), segment (u32), store (u64), checksum and length of the previous segment (u32
//! each), length (u32), last frame's offset and checksum (u32 each), streams (u32); for each stream
//! id (u32), first number (u64), epoch (u64), trim mark (u64), frames (u64), records (u64),
//! definition (length u32, bytes), chunks (count u32, 44 bytes each), fills (count u32, 36 bytes
//! each), ranges given up (count u32, 16 bytes each), cursor (number u64, 16 bytes); at the end the
//! checksum of everything and of the segment's salt.

use crate::frame::{Bookmark, Definition, HEADER_BYTES, Header, Kind, MAX_SEQUENCE, mark};
use crate::index::{Chunk, FrameRef, Index};
use crate::segment::{SegmentHeader, UNFINISHED, salt};
use crate::{Disk, File};
use std::collections::BTreeMap;
use std::io;

/// Version of the layout.
const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"CHAPPEix";
/// A larger file is not a snapshot: streams with their definitions take at most half a segment.
const MAX_BYTES: u64 = 1 << 30;

/// The name of a segment's snapshot.
pub(crate) fn snapshot_name(number: u32) -> String {
    format!("{number:010}.index")
}

/// The number in a snapshot's file name.
pub(crate) fn snapshot_number(name: &str) -> Option<u32> {
    crate::segment::segment_number(&format!("{}.segment", name.strip_suffix(".index")?))
}

/// The content of a segment for one stream.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The first number that the segment states, and its epoch.
    pub(crate) first: u64,
    pub(crate) epoch: u64,
    /// The first number kept by the newest trim mark; 0 if there is none.
    pub(crate) trimmed: u64,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    /// The newest definition; empty if there is none.
    pub(crate) definition: Vec<u8>,
    pub(crate) index: Index,
    /// Restored records.
    pub(crate) fills: Vec<FrameRef>,
    /// Ranges given up: first number, and the one after the last.
    pub(crate) given_up: Vec<(u64, u64)>,
    /// The newest cursor.
    pub(crate) bookmark: Option<Bookmark>,
}

/// The content of a segment.
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
    /// It is inconsistent and must not be written.
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
            spoilt: false,
        }
    }

    /// Adds the next frame. The body matters only for definitions and trim marks.
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
        if matches!(header.kind, Kind::Open | Kind::Close) {
            return;
        }
        let part = self.parts.entry(header.stream).or_insert_with(|| Part {
            first: header.first,
            epoch: header.epoch,
            trimmed: 0,
            frames: 0,
            records: 0,
            definition: Vec::new(),
            index: Index::new(header.first),
            fills: Vec::new(),
            given_up: Vec::new(),
            bookmark: None,
        });
        Bookmark::renew(&mut part.bookmark, bookmark, header.kind);
        let expected = part.index.next();
        match header.kind {
            Kind::Records if header.first == expected => {
                part.frames += 1;
                part.records += u64::from(header.count);
                part.index
                    .push(self.header.number, FrameRef::new(header, offset));
            }
            Kind::Fill => {
                part.frames += 1;
                part.records += u64::from(header.count);
                self.spoilt |= header.next() > expected;
                part.fills.push(FrameRef::new(header, offset));
            }
            Kind::Lost => {
                let next = mark(body).unwrap_or_default();
                part.given_up.push((header.first, next));
            }
            Kind::Definition if header.first == expected => part.definition = body.to_vec(),
            Kind::Trim if header.first == expected => {
                let before = mark(body).unwrap_or_default();
                part.trimmed = part.trimmed.max(before.min(header.first));
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
            for value in [
                part.first,
                part.epoch,
                part.trimmed,
                part.frames,
                part.records,
            ] {
                long(&mut bytes, value);
            }
            word(&mut bytes, part.definition.len() as u32);
            bytes.extend_from_slice(&part.definition);
            let chunks = part.index.clone().sealed();
            word(&mut bytes, chunks.len() as u32);
            for chunk in &chunks {
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
        let same = (version, number, store) == (VERSION, header.number, header.store)
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
            snapshot.parts.insert(id, rest.part(number)?);
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

    fn part(&mut self, segment: u32) -> Option<Part> {
        let (first, epoch, trimmed) = (self.long()?, self.long()?, self.long()?);
        if first == 0 || first >= MAX_SEQUENCE {
            return None;
        }
        let (frames, records) = (self.long()?, self.long()?);
        let length = self.word()? as usize;
        let definition = self.bytes(length)?.to_vec();
        if !definition.is_empty() {
            Definition::decode(&definition)?;
        }
        let mut index = Index::new(first);
        for _ in 0..self.word()? {
            let chunk = self.chunk(segment)?;
            let orderly = chunk.first == index.next() && chunk.first < chunk.next;
            if !orderly || chunk.next >= MAX_SEQUENCE || chunk.start > chunk.last {
                return None;
            }
            index.push_chunk(chunk);
        }
        let mut fills = Vec::new();
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
            fills.push(fill);
        }
        let mut given_up = Vec::new();
        for _ in 0..self.word()? {
            given_up.push((self.long()?, self.long()?));
        }
        let (number, cursor) = (self.long()?, self.bytes(16)?.try_into().ok()?);
        let bookmark = (number > 0).then_some(Bookmark { number, cursor });
        Some(Part {
            first,
            epoch,
            trimmed,
            frames,
            records,
            definition,
            index,
            fills,
            given_up,
            bookmark,
        })
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
        assert_eq!(
            (part.records, part.fills.len(), part.index.next()),
            (600, 4, 589)
        );
        let newest = part.bookmark.expect("a cursor");
        assert_eq!((newest.number, newest.cursor), (588, [198; 16]));
        let other = SegmentHeader {
            previous: 1,
            ..header()
        };
        assert!(Snapshot::decode(&bytes, &other).is_none());
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
