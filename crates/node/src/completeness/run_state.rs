//! The state of the running process in a small file that outlives it: when it was last alive, and how far
//! it has acknowledged the streams of level `memory`.
//!
//! Writing goes to the system's memory, without a sync. It survives the death of the process, not a loss
//! of power: then the counts are lower bounds, which the boot id shows. The file has one slot of 32
//! bytes for each stream of level `memory` that received elements in this run.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chappe_log::Stream;

/// The file in the data directory.
const FILE: &str = "run-state";
/// Identifies the file and its version.
const MAGIC: &[u8; 8] = b"chappeR1";
/// Magic, boot id (16), time (8).
const HEADER_BYTES: usize = 32;
/// Stream's number (8), epoch (8), last acknowledged number (8), checksum (8).
const SLOT_BYTES: usize = 32;
/// Slots of a file; reason: 4 MiB. Streams beyond have no exact count.
const SLOTS_MAX: u64 = 1 << 17;

/// The file of this run.
pub(crate) struct RunState {
    file: File,
    slots: AtomicU64,
}

/// The state in which an earlier run ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LastRun {
    /// When it was last alive, nanoseconds since 1970.
    pub(super) alive: i64,
    /// Whether the system has not restarted since, so that nothing written to it is missing.
    pub(super) is_same_boot: bool,
    /// How far its streams of level memory were acknowledged.
    pub(super) acknowledged: Vec<Acknowledged>,
}

/// How far a stream was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// The stream's number in the log.
    pub(super) stream: u64,
    pub(super) epoch: u64,
    /// The last acknowledged number.
    pub(super) last: u64,
}

/// The slot of one stream.
pub(crate) struct Slot {
    state: Arc<RunState>,
    /// None beyond the limit.
    offset: Option<u64>,
    written: Mutex<u64>,
}

impl RunState {
    /// Reads the state of the run before, and begins that of this one at the time `now`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn begin(directory: &Path, now: i64) -> io::Result<(Arc<Self>, Option<LastRun>)> {
        let boot = boot_id();
        let path = directory.join(FILE);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).mode(0o600);
        let mut file = options.truncate(false).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let last = LastRun::read(&bytes, &boot);
        file.set_len(0)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..24].copy_from_slice(&boot);
        header[24..].copy_from_slice(&now.to_le_bytes());
        file.write_all_at(&header, 0)?;
        let slots = AtomicU64::new(0);
        Ok((Arc::new(Self { file, slots }), last))
    }

    /// The process is alive at the time `now`.
    pub(super) fn touch(&self, now: i64) {
        // A time that cannot be written is known less exactly after a crash.
        let _ = self.file.write_all_at(&now.to_le_bytes(), 24);
    }

    /// A slot for a stream.
    pub(crate) fn slot(self: &Arc<Self>) -> Slot {
        let index = self.slots.fetch_add(1, Ordering::Relaxed);
        let offset = HEADER_BYTES as u64 + index * SLOT_BYTES as u64;
        Slot {
            state: self.clone(),
            offset: (index < SLOTS_MAX).then_some(offset),
            written: Mutex::default(),
        }
    }
}

impl Slot {
    /// Notes how far the stream is acknowledged now.
    pub(crate) fn note(&self, stream: &Stream) {
        let Some(offset) = self.offset else { return };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let last = stream.assigned();
        if last > *written {
            *written = last;
            let acknowledged = Acknowledged {
                stream: stream.number().into(),
                epoch: stream.epoch(),
                last,
            };
            // Without it, the loss of these elements is not counted after a crash.
            let _ = self.state.file.write_all_at(&acknowledged.encode(), offset);
        }
    }
}

impl Acknowledged {
    fn check(self) -> u64 {
        let mixed = self.stream ^ self.epoch.rotate_left(21) ^ self.last.rotate_left(42);
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995
    }

    fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let words = [self.stream, self.epoch, self.last, self.check()];
        for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map(|part| {
            let part: [u8; 8] = part.try_into().unwrap_or_default();
            u64::from_le_bytes(part)
        });
        let found = Self {
            stream: words.next()?,
            epoch: words.next()?,
            last: words.next()?,
        };
        (words.next()? == found.check()).then_some(found)
    }
}

impl LastRun {
    fn read(bytes: &[u8], boot: &[u8; 16]) -> Option<Self> {
        let (header, slots) = bytes.split_at_checked(HEADER_BYTES)?;
        let alive: [u8; 8] = header[24..].try_into().ok()?;
        header.starts_with(MAGIC).then(|| Self {
            alive: i64::from_le_bytes(alive),
            is_same_boot: header[8..24] == *boot && *boot != [0; 16],
            acknowledged: slots
                .chunks_exact(SLOT_BYTES)
                .filter_map(Acknowledged::decode)
                .collect(),
        })
    }
}

/// Identifies the time since the system started; zeros where that is not known.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{Level, MemoryDisk, Options, Store};

    #[test]
    fn the_next_run_reads_how_far_the_last_one_came() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        let stream = store.stream("a", Level::Memory, b"").unwrap();
        let (state, last) = RunState::begin(directory.path(), 5).unwrap();
        assert_eq!(last, None);
        let slot = state.slot();
        for _ in 0..3 {
            drop(stream.append(vec![(0, vec![]); 7]).unwrap());
            slot.note(&stream);
        }
        state.touch(9);
        let (_, last) = RunState::begin(directory.path(), 10).unwrap();
        let last = last.unwrap();
        assert_eq!((last.alive, last.is_same_boot), (9, true));
        let [one] = last.acknowledged[..] else {
            panic!("{last:?}")
        };
        assert_eq!((one.epoch, one.last), (stream.epoch(), 21));
    }

    #[test]
    fn damaged_files_are_read_as_far_as_they_are_valid() {
        let good = Acknowledged {
            stream: 3,
            epoch: 77,
            last: 9,
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0; 24]);
        bytes.extend(good.encode());
        for at in 0..SLOT_BYTES {
            let mut damaged = bytes.clone();
            damaged[HEADER_BYTES + at] ^= 1;
            let read = LastRun::read(&damaged, &[1; 16]).unwrap();
            assert_eq!(read.acknowledged, []);
        }
        for length in 0..bytes.len() {
            let read = LastRun::read(&bytes[..length], &[1; 16]);
            assert!(read.is_none_or(|read| read.acknowledged.is_empty()));
        }
        let read = LastRun::read(&bytes, &[1; 16]).unwrap();
        assert_eq!(read.acknowledged, [good]);
    }
}
