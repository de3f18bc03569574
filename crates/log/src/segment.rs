//! Segment files and the marker: names, headers, and the scanner that finds frames in arbitrary
//! bytes.
//!
//! A segment's header (36 bytes) states the format version, its number, the store, and the end of
//! the previous segment (length and last checksum). Its salt follows from store and number, so that
//! a corrupt header does not invalidate the segment's frames. The marker is a small file that holds
//! its own identity: a copy of it does not match.

use crate::frame::{HEADER_BYTES, Header, MAGIC};
use crate::{Disk, Error, File};
use std::io;

/// The format version that is written, and the newest that is read.
///
/// Version 2 added restored records, version 3 derived records, version 4 cursors.
pub(crate) const FORMAT_VERSION: u32 = 4;
/// Length of a segment's header in bytes.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 36;
/// The marker's file name.
pub(crate) const MARKER: &str = "marker";
/// Suffix of unfinished files, which opening removes.
pub(crate) const UNFINISHED: &str = ".new";
/// Bytes that the scanner reads at once: large enough that calls do not matter, small compared with
/// the memory of a small device.
const SCAN_BYTES: usize = 256 * 1024;

const SEGMENT_MAGIC: &[u8; 8] = b"CHAPPElg";
const MARKER_MAGIC: &[u8; 8] = b"CHAPPEmk";
pub(crate) const MARKER_BYTES: usize = 40;

/// A segment's file name.
pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:010}.segment")
}

/// The number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".segment")?;
    if digits.len() != 10 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// A well-mixed function of 64 bits (the finalizer of splitmix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The salt of a segment's checksums.
pub(crate) fn salt(store: u64, number: u32) -> u64 {
    mix(store ^ mix(u64::from(number)))
}

fn io_error(what: &str, name: &str, error: &io::Error) -> Error {
    Error::Io {
        what: format!("{what} {name}"),
        reason: error.to_string(),
    }
}

/// Converts a result of the disk to the log's own error.
pub(crate) fn at<T>(what: &str, name: &str, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|error| io_error(what, name, &error))
}

/// The content of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) version: u32,
    pub(crate) number: u32,
    pub(crate) store: u64,
    /// Checksum of the last frame of the previous segment.
    pub(crate) previous: u32,
    /// Length of the previous segment; 0 for the first.
    pub(crate) previous_bytes: u32,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.previous.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.previous_bytes.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `Ok(None)` if the bytes are not a header of this number.
    pub(crate) fn decode(bytes: &[u8], number: u32) -> Result<Option<SegmentHeader>, Error> {
        if bytes.len() < SEGMENT_HEADER_BYTES || &bytes[0..8] != SEGMENT_MAGIC {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        if crc32fast::hash(&bytes[..32]) != word(32) {
            return Ok(None);
        }
        check_version(&segment_name(number), word(8))?;
        let store = u64::from(word(16)) | u64::from(word(20)) << 32;
        let header = SegmentHeader {
            version: word(8),
            number: word(12),
            store,
            previous: word(24),
            previous_bytes: word(28),
        };
        Ok((header.number == number).then_some(header))
    }
}

/// See [`crate::check_format`].
pub(crate) fn check_format(name: &str, start: &[u8]) -> Result<(), Error> {
    match segment_number(name) {
        Some(number) => SegmentHeader::decode(start, number).map(drop),
        None if name == MARKER => Marker::decode(start).map(drop),
        None => Ok(()),
    }
}

fn check_version(file: &str, found: u32) -> Result<(), Error> {
    if found > FORMAT_VERSION {
        return Err(Error::newer_format(file, found, FORMAT_VERSION));
    }
    Ok(())
}

/// The content of the marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) store: u64,
    pub(crate) identity: u128,
}

impl Marker {
    fn encode(&self) -> [u8; MARKER_BYTES] {
        let mut bytes = [0; MARKER_BYTES];
        bytes[0..8].copy_from_slice(MARKER_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.store.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.identity.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..36]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Option<Marker>, Error> {
        if bytes.len() < MARKER_BYTES || &bytes[0..8] != MARKER_MAGIC {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        if crc32fast::hash(&bytes[..36]) != word(36) {
            return Ok(None);
        }
        check_version(MARKER, word(8))?;
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[20..36]);
        let store = u64::from(word(12)) | u64::from(word(16)) << 32;
        Ok(Some(Marker {
            store,
            identity: u128::from_le_bytes(identity),
        }))
    }

    /// Reads the marker; `None` if there is none or it is malformed.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Marker>, Error> {
        let file = at("open", MARKER, disk.open(MARKER))?;
        let mut bytes = [0; MARKER_BYTES];
        let length = at("read", MARKER, file.read_at(0, &mut bytes))?;
        Marker::decode(&bytes[..length])
    }

    /// Writes a marker with its own identity and syncs it.
    pub(crate) fn write(disk: &dyn Disk, store: u64) -> Result<(), Error> {
        let name = format!("{MARKER}{UNFINISHED}");
        let mut file = at("create", &name, disk.create(&name))?;
        let identity = at("identify", &name, disk.identity(&name))?;
        at(
            "write",
            &name,
            file.append(&Marker { store, identity }.encode()),
        )?;
        at("sync", &name, file.sync())?;
        at("rename", &name, disk.rename(&name, MARKER))?;
        at("sync", "the directory", disk.sync_directory())
    }
}

/// The content at an offset of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A valid frame with its checksum.
    Frame(Header, u32),
    /// A valid header with an invalid body.
    BadBody(Header, u32),
    /// Bytes that are not a frame, up to the next valid header or the end; also a frame that is cut
    /// off by the end.
    Bad(u64),
    /// The end.
    End,
}

/// Reads a segment in pieces.
pub(crate) struct Scanner<'a> {
    file: &'a dyn File,
    salt: u64,
    end: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Scanner<'a> {
    /// A scanner up to `end`, which must not exceed the file's length.
    pub(crate) fn new(file: &'a dyn File, salt: u64, end: u64) -> Scanner<'a> {
        Scanner {
            file,
            salt,
            end,
            start: 0,
            buffer: Vec::new(),
        }
    }

    /// Bytes at an offset, fewer at the end.
    pub(crate) fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let length = length.min(usize::try_from(self.end.saturating_sub(offset)).unwrap_or(0));
        let held = self.start + self.buffer.len() as u64;
        if offset < self.start || offset + length as u64 > held {
            let left = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
            self.buffer.resize(length.max(SCAN_BYTES).min(left), 0);
            self.start = offset;
            let mut filled = 0;
            while filled < self.buffer.len() {
                match self
                    .file
                    .read_at(offset + filled as u64, &mut self.buffer[filled..])?
                {
                    0 => break,
                    n => filled += n,
                }
            }
            self.buffer.truncate(filled);
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from.min(self.buffer.len())..(from + length).min(self.buffer.len())])
    }

    /// The content at `offset`.
    pub(crate) fn look(&mut self, offset: u64) -> io::Result<Found> {
        if offset >= self.end {
            return Ok(Found::End);
        }
        let salt = self.salt;
        let bytes = self.bytes(offset, HEADER_BYTES)?;
        let Some((header, crc)) = Header::decode(bytes, salt, offset as u32) else {
            return Ok(Found::Bad(self.next_header(offset + 1)? - offset));
        };
        if offset + header.frame_bytes() > self.end {
            return Ok(Found::Bad(self.next_header(offset + 1)? - offset));
        }
        let body = self.bytes(offset + HEADER_BYTES as u64, header.body_bytes as usize)?;
        if body.len() == header.body_bytes as usize && crc32fast::hash(body) == header.body_crc {
            Ok(Found::Frame(header, crc))
        } else {
            Ok(Found::BadBody(header, crc))
        }
    }

    /// The body of a frame that `look` found at `offset`.
    pub(crate) fn body(&mut self, offset: u64, header: &Header) -> io::Result<&[u8]> {
        self.bytes(offset + HEADER_BYTES as u64, header.body_bytes as usize)
    }

    /// The next offset from `offset` with a valid header, or the end.
    fn next_header(&mut self, mut offset: u64) -> io::Result<u64> {
        let salt = self.salt;
        while offset + HEADER_BYTES as u64 <= self.end {
            let bytes = self.bytes(offset, SCAN_BYTES)?;
            if bytes.len() < HEADER_BYTES {
                break;
            }
            let places = bytes.len() - HEADER_BYTES + 1;
            let hit = (0..places).find(|&n| {
                bytes[n] == MAGIC[0]
                    && bytes[n..n + 4] == MAGIC
                    && Header::decode(&bytes[n..], salt, (offset + n as u64) as u32).is_some()
            });
            match hit {
                Some(n) => return Ok(offset + n as u64),
                None => offset += places as u64,
            }
        }
        Ok(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        assert_eq!(segment_number(&segment_name(42)), Some(42));
        assert_eq!(segment_number(&segment_name(u32::MAX)), Some(u32::MAX));
        assert_eq!(segment_number("42.segment"), None);
        assert_eq!(segment_number("marker"), None);
    }

    #[test]
    fn headers_come_back_and_refuse_a_newer_version() {
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            number: 3,
            store: u64::MAX - 5,
            previous: 9,
            previous_bytes: 8,
        };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, 3), Ok(Some(header)));
        assert_eq!(SegmentHeader::decode(&bytes, 4), Ok(None));
        bytes[8] = 5;
        assert_eq!(SegmentHeader::decode(&bytes, 3), Ok(None));
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(
            SegmentHeader::decode(&bytes, 3),
            Err(Error::NewerFormat {
                found: 5,
                known: 4,
                ..
            })
        ));
    }

    #[test]
    fn a_marker_comes_back() {
        let marker = Marker {
            store: 0x0102_0304_0506_0708,
            identity: u128::MAX / 3,
        };
        assert_eq!(Marker::decode(&marker.encode()), Ok(Some(marker)));
        assert_eq!(Marker::decode(&[0; 40]), Ok(None));
        let mut newer = marker.encode();
        newer[8] += 1;
        let crc = crc32fast::hash(&newer[..36]);
        newer[36..].copy_from_slice(&crc.to_le_bytes());
        let refused = Marker::decode(&newer).map_err(|error| error.to_string());
        let refused = refused.unwrap_err();
        assert!(refused.starts_with("cannot read marker: it has format version 5"));
    }
}
