//! Frames: the encoding of batches, definitions of streams, and the marks of opening and closing.
//!
//! A frame is a header of 72 bytes and a body, all numbers little endian. The header's checksum
//! covers a salt of the segment and the frame's own offset, so that a frame is valid only at its
//! offset and a payload that looks like a frame is not one. `previous` is the checksum of the
//! previous frame, which reveals a frame that was lost or replaced.
//!
//! | offset | field | | offset | field |
//! |---|---|---|---|---|
//! | 0 | magic, u32 | | 32 | first sequence number, u64 |
//! | 4 | kind, u8; derived, u8; 2 zero bytes | | 40 | earliest time, i64 |
//! | 8 | body's length, u32 | | 48 | latest time, i64 |
//! | 12 | stream, u32 | | 56 | offset of the stream's frame before in this segment, u32 |
//! | 16 | records, u32 | | 60 | previous, u32 |
//! | 20 | bytes of the segment known to be synced, u32 | | 64 | body's checksum, u32 |
//! | 24 | epoch, u64 | | 68 | header's checksum, u32 |
//!
//! Records restored into a gap are a frame of their own kind, out of order. A body of records is
//! (time i64, length u32, payload) repeated. The body of a trim mark is the first number kept, u64
//! (0: nothing is trimmed), and the stream's cursor if it has one (the number of its record, u64,
//! and 16 bytes). The body of a mark of given-up records is the number after the last, u64.
//! Definitions and trim marks have the stream's next number as theirs.

use crate::batch::{Batch, RECORD_BYTES};
use crate::{
    Cursor, CursorOf, Level, MAX_EPOCHS, MAX_METADATA_BYTES, MAX_NAME_BYTES, Position, Record,
};
use std::sync::Arc;

/// Length of a frame's header in bytes.
pub(crate) const HEADER_BYTES: usize = 72;
/// First bytes of each frame: "CHf1".
pub(crate) const MAGIC: [u8; 4] = *b"CHf1";
/// Sequence numbers are below this limit, so that counting never overflows.
pub(crate) const MAX_SEQUENCE: u64 = 1 << 62;
/// Length of a trim mark's body without a cursor, in bytes.
const MARK_BYTES: u32 = 8;
/// The same, with a cursor.
pub(crate) const CURSOR_MARK_BYTES: u32 = 8 + 8 + 16;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Records of one stream.
    Records = 1,
    /// A stream's name, level, metadata and epochs.
    Definition = 2,
    /// The log was opened here.
    Open = 3,
    /// The log was closed here, with everything before it synced.
    Close = 4,
    /// A stream's records before a number are trimmed; also holds its cursor.
    Trim = 5,
    /// Missing records of one stream, restored under their own numbers.
    Fill = 6,
    /// Missing records of one stream that were given up.
    Lost = 7,
}

/// A frame's header without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// The records are derived from earlier ones and are at most as durable: if those may be lost,
    /// these do not count.
    pub(crate) derived: bool,
    pub(crate) body_bytes: u32,
    pub(crate) stream: u32,
    pub(crate) count: u32,
    pub(crate) synced: u32,
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
    pub(crate) back: u32,
    pub(crate) previous: u32,
    pub(crate) body_crc: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn checksum(salt: u64, offset: u32, header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(header);
    hasher.finalize()
}

impl Header {
    /// The header as bytes, and its checksum.
    pub(crate) fn encode(&self, salt: u64, offset: u32) -> ([u8; HEADER_BYTES], u32) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = u8::from(self.derived);
        bytes[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stream.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.synced.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.time_min.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.time_max.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.back.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.previous.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = checksum(salt, offset, &bytes[..68]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Parses a header at its offset; `None` if it is not one. Also returns its checksum.
    pub(crate) fn decode(bytes: &[u8], salt: u64, offset: u32) -> Option<(Header, u32)> {
        if bytes.len() < HEADER_BYTES || bytes[0..4] != MAGIC || bytes[6..8] != [0; 2] {
            return None;
        }
        let crc = u32_at(bytes, 68);
        if checksum(salt, offset, &bytes[..68]) != crc {
            return None;
        }
        let kind = match bytes[4] {
            1 => Kind::Records,
            2 => Kind::Definition,
            3 => Kind::Open,
            4 => Kind::Close,
            5 => Kind::Trim,
            6 => Kind::Fill,
            7 => Kind::Lost,
            _ => return None,
        };
        let derived = match bytes[5] {
            0 => false,
            1 => true,
            _ => return None,
        };
        let header = Header {
            kind,
            derived,
            body_bytes: u32_at(bytes, 8),
            stream: u32_at(bytes, 12),
            count: u32_at(bytes, 16),
            synced: u32_at(bytes, 20),
            epoch: u64_at(bytes, 24),
            first: u64_at(bytes, 32),
            time_min: u64_at(bytes, 40) as i64,
            time_max: u64_at(bytes, 48) as i64,
            back: u32_at(bytes, 56),
            previous: u32_at(bytes, 60),
            body_crc: u32_at(bytes, 64),
        };
        header.plausible().then_some((header, crc))
    }

    fn plausible(&self) -> bool {
        if self.derived && self.kind != Kind::Records {
            return false;
        }
        match self.kind {
            Kind::Records | Kind::Fill => {
                self.stream != 0 && self.count != 0 && self.first != 0 && self.first < MAX_SEQUENCE
            }
            Kind::Definition | Kind::Trim | Kind::Lost => {
                self.stream != 0
                    && self.count == 0
                    && match self.kind {
                        Kind::Definition => true,
                        Kind::Trim if self.body_bytes == CURSOR_MARK_BYTES => true,
                        _ => self.body_bytes == MARK_BYTES,
                    }
                    && self.first != 0
                    && self.first < MAX_SEQUENCE + u64::from(u32::MAX)
            }
            Kind::Open | Kind::Close => self.stream == 0 && self.count == 0,
        }
    }

    /// Length of header and body.
    pub(crate) fn frame_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.body_bytes)
    }

    /// The sequence number after the frame's last record.
    pub(crate) fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// Corrects the checksums of a frame's header, for fuzzing; returns the header's checksum.
pub(crate) fn reseal(header: &mut [u8], body: &[u8], salt: u64, offset: u32) -> u32 {
    header[64..68].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let crc = checksum(salt, offset, &header[..68]);
    header[68..72].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// A batch encoded as a body.
#[derive(Debug)]
pub(crate) struct Body {
    /// Shared with readers of records that are not written yet.
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) crc: u32,
    pub(crate) count: u32,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
}

impl Body {
    /// From a batch; the caller has checked that its size and count fit 32 bits.
    pub(crate) fn from_batch(batch: Batch) -> Body {
        let crc = crc32fast::hash(&batch.bytes);
        Body {
            crc,
            count: batch.count,
            time_min: batch.time_min,
            time_max: batch.time_max,
            bytes: Arc::new(batch.bytes),
        }
    }

    /// A body other than records.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Body {
        let crc = crc32fast::hash(&bytes);
        Body {
            bytes: Arc::new(bytes),
            crc,
            count: 0,
            time_min: 0,
            time_max: 0,
        }
    }
}

/// The first number kept, from a trim mark's body.
pub(crate) fn mark(body: &[u8]) -> Option<u64> {
    let long = [MARK_BYTES as usize, CURSOR_MARK_BYTES as usize];
    long.contains(&body.len()).then(|| u64_at(body, 0))
}

/// A stream's cursor, and the number of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bookmark {
    pub(crate) number: u64,
    pub(crate) cursor: Cursor,
}

impl Bookmark {
    /// From a trim mark's body.
    pub(crate) fn from_mark(body: &[u8]) -> Option<Bookmark> {
        let cursor = body.get(16..)?.try_into().ok()?;
        let number = u64_at(body, 8);
        Some(Bookmark { number, cursor })
    }

    /// From records: that of the last one with a cursor.
    pub(crate) fn from_records(
        header: &Header,
        body: &[u8],
        cursor_of: Option<CursorOf>,
    ) -> Option<Bookmark> {
        let cursor_of = cursor_of?;
        let cursor = newest_cursor(header.count, body, cursor_of)?;
        let number = header.next() - 1;
        Some(Bookmark { number, cursor })
    }

    /// Replaces it with a newer one in log order; restored records may be older.
    pub(crate) fn renew(known: &mut Option<Bookmark>, newer: Option<Bookmark>, kind: Kind) {
        let Some(newer) = newer else { return };
        let least = newer.number + u64::from(kind != Kind::Fill);
        if known.is_none_or(|known| known.number < least) {
            *known = Some(newer);
        }
    }
}

/// The cursor of the last of `count` records that has one.
pub(crate) fn newest_cursor(count: u32, body: &[u8], cursor_of: CursorOf) -> Option<Cursor> {
    let mut newest = None;
    each_of(1, count, body, |_, _, payload| {
        newest = cursor_of(payload).or(newest);
        true
    })?;
    newest
}

/// The body of a trim mark.
pub(crate) fn mark_body(before: u64, bookmark: Option<Bookmark>) -> Vec<u8> {
    let mut bytes = before.to_le_bytes().to_vec();
    if let Some(Bookmark { number, cursor }) = bookmark {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&cursor);
    }
    bytes
}

/// Calls `take` for each record (sequence, time, payload) until it returns false. `None` if the
/// body does not hold exactly the header's count.
pub(crate) fn each_record<'a>(
    header: &Header,
    body: &'a [u8],
    take: impl FnMut(u64, i64, &'a [u8]) -> bool,
) -> Option<()> {
    each_of(header.first, header.count, body, take)
}

/// Like [`each_record`], for a body whose first number and count are known.
pub(crate) fn each_of<'a>(
    first: u64,
    count: u32,
    body: &'a [u8],
    mut take: impl FnMut(u64, i64, &'a [u8]) -> bool,
) -> Option<()> {
    let mut rest = body;
    for n in 0..u64::from(count) {
        if rest.len() < RECORD_BYTES {
            return None;
        }
        let time = u64_at(rest, 0) as i64;
        let length = u32_at(rest, 8) as usize;
        let payload = rest.get(RECORD_BYTES..RECORD_BYTES.checked_add(length)?)?;
        rest = &rest[RECORD_BYTES + length..];
        if !take(first + n, time, payload) {
            return Some(());
        }
    }
    rest.is_empty().then_some(())
}

/// A record as returned to the caller.
pub(crate) fn record(epoch: u64, sequence: u64, time: i64, payload: &[u8]) -> Record {
    Record {
        position: Position { epoch, sequence },
        time,
        payload: payload.to_vec(),
    }
}

/// The content of a definition frame; epoch and next number are in the frame's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) level: Level,
    pub(crate) metadata: Vec<u8>,
    /// Epochs with their first numbers, oldest first, the current one last.
    pub(crate) epochs: Vec<(u64, u64)>,
}

/// A removed stream, as found by the scan of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Its last epoch.
    pub(crate) epoch: u64,
    /// The oldest segment with the removal: no later one holds records of the stream.
    pub(crate) segment: u32,
}

impl Definition {
    /// The definition that stands for a removed stream.
    pub(crate) fn removal(epoch: u64) -> Definition {
        Definition {
            name: String::new(),
            level: Level::Power,
            metadata: Vec::new(),
            epochs: vec![(epoch, 1)],
        }
    }

    /// Whether it removes the stream.
    pub(crate) fn is_removal(&self) -> bool {
        self.name.is_empty()
    }

    /// What it counts for in the bytes of all definitions: besides name and metadata there are the epochs.
    pub(crate) fn counted_bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 1200;
        self.name.len() + self.metadata.len() + OVERHEAD_BYTES
    }

    /// Whether an encoded definition removes the stream: its name has no bytes.
    pub(crate) fn removes(body: &[u8]) -> bool {
        body.get(1..5) == Some(&[0; 4])
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.level.number()];
        bytes.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(&(self.metadata.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.metadata);
        bytes.extend_from_slice(&(self.epochs.len() as u32).to_le_bytes());
        for (epoch, first) in &self.epochs {
            bytes.extend_from_slice(&epoch.to_le_bytes());
            bytes.extend_from_slice(&first.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Definition> {
        fn block<'a>(rest: &mut &'a [u8], limit: usize) -> Option<&'a [u8]> {
            if rest.len() < 4 {
                return None;
            }
            let length = u32_at(rest, 0) as usize;
            if length > limit {
                return None;
            }
            let block = rest.get(4..4 + length)?;
            *rest = &rest[4 + length..];
            Some(block)
        }
        let (level, mut rest) = bytes.split_first()?;
        let level = Level::from_number(*level)?;
        let name = std::str::from_utf8(block(&mut rest, MAX_NAME_BYTES)?)
            .ok()?
            .to_owned();
        let metadata = block(&mut rest, MAX_METADATA_BYTES)?.to_vec();
        if rest.len() < 4 {
            return None;
        }
        let count = u32_at(rest, 0) as usize;
        if count == 0 || count > MAX_EPOCHS || rest.len() != 4 + 16 * count {
            return None;
        }
        let epochs = (0..count)
            .map(|n| (u64_at(rest, 4 + 16 * n), u64_at(rest, 12 + 16 * n)))
            .collect();
        Some(Definition {
            name,
            level,
            metadata,
            epochs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(count: u32, first: u64, body: &Body) -> Header {
        Header {
            kind: Kind::Records,
            derived: first.is_multiple_of(2),
            body_bytes: body.bytes.len() as u32,
            stream: 7,
            count,
            synced: 64,
            epoch: 0x1234,
            first,
            time_min: body.time_min,
            time_max: body.time_max,
            back: 99,
            previous: 0xfeed,
            body_crc: body.crc,
        }
    }

    proptest! {
        #[test]
        fn header_and_records_come_back(
            batch in prop::collection::vec(
                (any::<i64>(), prop::collection::vec(any::<u8>(), 0..40)), 1..20),
            first in 1u64..1 << 60, salt: u64, offset: u32,
        ) {
            let body = Body::from_batch(batch.clone().into());
            let header = header(batch.len() as u32, first, &body);
            let (bytes, crc) = header.encode(salt, offset);
            prop_assert_eq!(Header::decode(&bytes, salt, offset), Some((header, crc)));
            prop_assert_eq!(Header::decode(&bytes, salt, offset.wrapping_add(1)), None);
            prop_assert_eq!(Header::decode(&bytes, salt ^ 1, offset), None);
            let mut got = Vec::new();
            each_record(&header, &body.bytes, |n, time, payload| {
                got.push((n, time, payload.to_vec()));
                true
            }).unwrap();
            let want: Vec<_> = batch.into_iter().enumerate()
                .map(|(n, (time, payload))| (first + n as u64, time, payload)).collect();
            prop_assert_eq!(got, want);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), salt: u64) {
            let _ = Header::decode(&bytes, salt, 0);
            let _ = Definition::decode(&bytes);
            let body = Body::from_bytes(Vec::new());
            let _ = each_record(&header(9, u64::MAX - 20, &body), &bytes, |_, _, _| true);
        }

        #[test]
        fn a_sealed_header_never_panics(fill in prop::collection::vec(any::<u8>(), 68), salt: u64) {
            let mut bytes = fill;
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[6..8].copy_from_slice(&[0; 2]);
            bytes[4] %= 8;
            bytes[5] %= 3;
            let crc = checksum(salt, 5, &bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            if let Some((header, _)) = Header::decode(&bytes, salt, 5) {
                prop_assert!(header.next() >= header.first);
            }
        }

        #[test]
        fn a_definition_comes_back(
            name in ".{0,30}", metadata in prop::collection::vec(any::<u8>(), 0..50),
            epochs in prop::collection::vec((any::<u64>(), any::<u64>()), 1..5),
        ) {
            let definition = Definition { name, level: Level::Process, metadata, epochs };
            prop_assert_eq!(Definition::decode(&definition.encode()), Some(definition));
        }
    }
}
