//! Reads frames of one stream from segments, checked at each read.

use crate::frame::{HEADER_BYTES, Header, Kind, each_record};
use crate::index::{Chunk, FrameRef};
use crate::planted::{self, Defect};
use crate::segment::{Found, Scanner, at, salt, segment_name};
use crate::snapshot::snapshot_name;
use crate::{Disk, Error, File};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of segments open for reading: a few readers at different positions of the log.
const OPEN_SEGMENTS: usize = 8;
/// Size of a range of frames that is read at once, including the bytes between them.
const SPAN_BYTES: u64 = 256 * 1024;

type Handle = Arc<Mutex<Box<dyn File>>>;

/// Reads frames; shared by all readers of a store.
pub(crate) struct Reader {
    disk: Arc<dyn Disk>,
    store: u64,
    open: Mutex<Vec<(u32, Handle)>>,
    /// Segments in which damage was found.
    damaged: Mutex<BTreeSet<u32>>,
}

/// Receives epoch, sequence number, time and payload; returns whether it wants more.
pub(crate) type RecordVisitor<'a> = dyn FnMut(u64, u64, i64, &[u8]) -> bool + 'a;

/// The result of reading frames.
pub(crate) enum ReadOutcome {
    /// All frames were valid, or the receiver had enough.
    All,
    /// A frame is invalid; this is the number after it.
    Corrupt(u64),
}

impl Reader {
    pub(crate) fn new(disk: Arc<dyn Disk>, store: u64) -> Reader {
        Reader {
            disk,
            store,
            open: Mutex::new(Vec::new()),
            damaged: Mutex::default(),
        }
    }

    /// The disk and the key of the checksums.
    pub(crate) fn disk(&self) -> (&dyn Disk, u64) {
        (&*self.disk, self.store)
    }

    fn damaged(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a segment as damaged: the next opening reads it and reports the damage.
    pub(crate) fn distrust(&self, segment: u32) {
        if self.damaged().insert(segment) {
            // If the snapshot stays, the damage is only found again by reading.
            let _ = self.disk.remove(&snapshot_name(segment));
        }
    }

    /// Whether something in this segment was found damaged.
    pub(crate) fn is_damaged(&self, segment: u32) -> bool {
        self.damaged().contains(&segment)
    }

    fn handle(&self, segment: u32) -> Result<Handle, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(number, _)| *number == segment) {
            open[at..].rotate_left(1);
        } else {
            let name = segment_name(segment);
            let file = at("open", &name, self.disk.open(&name))?;
            if open.len() == OPEN_SEGMENTS {
                open.remove(0);
            }
            open.push((segment, Arc::new(Mutex::new(file))));
        }
        Ok(Arc::clone(&open[open.len() - 1].1))
    }

    /// Closes a segment that was removed.
    pub(crate) fn forget(&self, segment: u32) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(number, _)| *number != segment);
        self.damaged().remove(&segment);
    }

    /// The exact positions of a chunk's frames, as far as they can be found.
    pub(crate) fn frames_of(&self, stream: u32, chunk: &Chunk) -> Result<Vec<FrameRef>, Error> {
        let handle = self.handle(chunk.segment)?;
        let file = handle.lock().unwrap_or_else(PoisonError::into_inner);
        if u64::from(chunk.last - chunk.start) > SPAN_BYTES {
            let frames = self.walk_back(&**file, stream, chunk)?;
            if frames
                .first()
                .is_some_and(|frame| frame.first == chunk.first)
            {
                return Ok(frames);
            }
        }
        self.read_through(&**file, stream, chunk)
    }

    fn walk_back(
        &self,
        file: &dyn File,
        stream: u32,
        chunk: &Chunk,
    ) -> Result<Vec<FrameRef>, Error> {
        let salt = salt(self.store, chunk.segment);
        let mut frames: Vec<FrameRef> = Vec::new();
        let mut offset = chunk.last;
        let mut bytes = [0; HEADER_BYTES];
        loop {
            let name = || segment_name(chunk.segment);
            let length = at(
                "read",
                &name(),
                read_full(file, u64::from(offset), &mut bytes),
            )?;
            let Some((header, _)) = Header::decode(&bytes[..length], salt, offset) else {
                break;
            };
            let next = frames.last().map_or(chunk.next, |frame| frame.first);
            if header.stream != stream || header.kind != Kind::Records || header.next() != next {
                break;
            }
            frames.push(FrameRef::new(&header, offset));
            if header.first <= chunk.first || header.back >= offset || header.back < chunk.start {
                break;
            }
            offset = header.back;
        }
        frames.reverse();
        Ok(frames)
    }

    fn read_through(
        &self,
        file: &dyn File,
        stream: u32,
        chunk: &Chunk,
    ) -> Result<Vec<FrameRef>, Error> {
        let name = segment_name(chunk.segment);
        let length = at("read", &name, file.len())?;
        let mut scanner = Scanner::new(file, salt(self.store, chunk.segment), length);
        let mut frames = Vec::new();
        let mut offset = u64::from(chunk.start);
        while offset <= u64::from(chunk.last) {
            match at("read", &name, scanner.look(offset))? {
                Found::Frame(header, _) | Found::BadBody(header, _) => {
                    if header.stream == stream && header.kind == Kind::Records {
                        frames.push(FrameRef::new(&header, offset as u32));
                    }
                    offset += header.frame_bytes();
                }
                Found::Bad(bytes) => offset += bytes,
                Found::End => break,
            }
        }
        Ok(frames)
    }

    /// Reads records of consecutive frames in order.
    pub(crate) fn records(
        &self,
        stream: u32,
        segment: u32,
        frames: &[FrameRef],
        take: &mut RecordVisitor<'_>,
    ) -> Result<ReadOutcome, Error> {
        let handle = self.handle(segment)?;
        let salt = salt(self.store, segment);
        let mut rest = frames;
        let mut buffer = Vec::new();
        while let Some(first) = rest.first() {
            let start = u64::from(first.offset);
            let end = |frame: &FrameRef| u64::from(frame.offset) + u64::from(frame.bytes);
            let fits = rest
                .iter()
                .take_while(|frame| end(frame) - start <= SPAN_BYTES)
                .count();
            let span = &rest[..fits.max(1)];
            rest = &rest[span.len()..];
            buffer.resize((end(&span[span.len() - 1]) - start) as usize, 0);
            let length = {
                let file = handle.lock().unwrap_or_else(PoisonError::into_inner);
                at(
                    "read",
                    &segment_name(segment),
                    read_full(&**file, start, &mut buffer),
                )?
            };
            for frame in span {
                let from = (u64::from(frame.offset) - start) as usize;
                let bytes = &buffer[..length];
                let bytes = bytes.get(from..(from + frame.bytes as usize).min(length));
                match valid(bytes.unwrap_or_default(), salt, stream, frame) {
                    None => return Ok(ReadOutcome::Corrupt(frame.next())),
                    Some((header, body)) => {
                        let mut more = true;
                        let whole = each_record(&header, body, |sequence, time, payload| {
                            more = take(header.epoch, sequence, time, payload);
                            more
                        });
                        if whole.is_none() {
                            return Ok(ReadOutcome::Corrupt(frame.next()));
                        }
                        if !more {
                            return Ok(ReadOutcome::All);
                        }
                    }
                }
            }
        }
        Ok(ReadOutcome::All)
    }
}

fn valid<'a>(
    bytes: &'a [u8],
    salt: u64,
    stream: u32,
    frame: &FrameRef,
) -> Option<(Header, &'a [u8])> {
    let (header, _) = Header::decode(bytes, salt, frame.offset)?;
    let body = bytes.get(HEADER_BYTES..HEADER_BYTES + header.body_bytes as usize)?;
    let expected = header.stream == stream
        && matches!(header.kind, Kind::Records | Kind::Fill)
        && header.first == frame.first
        && header.count == frame.count;
    let whole = planted::is(Defect::TrustsBytes) || crc32fast::hash(body) == header.body_crc;
    (expected && whole).then_some((header, body))
}

fn read_full(file: &dyn File, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(offset + filled as u64, &mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}
