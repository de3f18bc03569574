//! The durable store: many streams in one segmented, checksummed log with group commit.
//!
//! A [`Store`] is one directory behind the [`Disk`] seam. All streams of a node share one ordered
//! log, so that one `fdatasync` commits whatever is waiting. A batch of one stream's records is one
//! frame; frames are numbered, bound to their place and chained by checksums, so that a missing,
//! doubled, misdirected or flipped one is found.
//!
//! What is promised, level by level ([`Level`]): a record whose [`Appended`] has resolved is there
//! again after what the level names. A number of an acknowledged record is never given to another
//! one: where the log cannot know the highest number that somebody may have seen (an unclean end
//! with a level below `Power`, a cut tail, a corrupt end, a restored copy of the files) the stream
//! goes on counting in a **new epoch**, and [`Stream::resume`] tells a client that is ahead.
//!
//! Each stream is trimmed by itself ([`Stream::trim`]): a mark in the log says from which number on
//! records are kept, and a segment in which no stream keeps one is removed. A segment stays as long
//! as one record in it is kept, however slow its stream, or as long as it is damaged and what it lacks
//! is neither trimmed nor put back; [`Options::retain_bytes`] bounds the whole
//! by removing the oldest segments, whatever they hold.
//!
//! A stream may have a cursor ([`Stream::cursor`]): 16 bytes that its newest record names, or that were
//! set. It outlives every trim and the size limit: each trim mark carries it, and each segment begins
//! with the cursors of all streams.
//!
//! Damage in the middle is named and kept, and its numbers are a gap: [`Stream::fill`] puts records
//! back that somebody else still has, [`Store::scrub`] looks for rot before it is needed, and
//! [`Store::lost`] counts what is gone and why. What tells of a whole stream, its definition and its
//! trim mark, is written twice each time, so that one rotten bit takes no stream's name or beginning.
//!
//! Beside each segment that is not written any more lies what it holds in short (`.index`), so that
//! opening reads the newest segment alone. Such a file is a cache: where it does not fit, the segment
//! is read.
//!
//! A stream is removed with all its records by [`Store::remove`].
//!
//! What is not done here: no clock (times are the caller's), no replication, no compression, no
//! deletion of single records, no moving of a slow stream's old records into newer segments. A copy of
//! the files is noticed by their identity; one written *into* the very same files in place is not,
//! unless a client is ahead of it.
//!
//! Memory: an index entry of 48 bytes for 64 frames of a stream, plus at most 64 exact places of
//! 40 bytes a stream. A million records in frames of one record take 0.75 MB, in frames of a
//! hundred 7.5 kB.
//!
//! ```
//! use chappe_log::{Level, MemoryDisk, Options, Store};
//! let disk = Box::new(MemoryDisk::new()); // a node takes the transport's `FileDisk`
//! let (store, recovery) = Store::open(disk, Options::default(), 0x5eed)?;
//! assert!(recovery.corrupt.is_empty());
//! let stream = store.stream("plant/temperature", Level::Power, b"schema")?;
//! let appended = stream.append(vec![(1_700_000_000_000_000_000, b"21.5".to_vec())])?;
//! appended.wait()?; // or .await
//! assert_eq!(stream.read(1, 10)?.len(), 1);
//! # Ok::<(), chappe_log::Error>(())
//! ```

mod ack;
mod backup;
mod batch;
mod cache;
mod commit;
mod define;
mod disk;
mod draft;
mod eager;
mod epoch;
mod error;
mod follower;
mod frame;
mod fuzz;
mod holes;
mod index;
mod memory;
mod open;
mod options;
mod owner;
#[cfg(not(feature = "planted"))]
mod planted;
#[cfg(feature = "planted")]
pub mod planted;
mod queue;
mod read;
mod recent;
mod recover;
mod remove;
mod report;
mod scrub;
mod segment;
mod settle;
mod shared;
mod snapshot;
mod state;
mod step;
mod store;
mod stream;
mod waiting;

pub use batch::Batch;
pub use disk::{Disk, File};
pub use eager::EagerFollower;
pub use error::{Error, GapReason, Rollback};
pub use follower::Follower;
pub use fuzz::fuzz_recover;
pub use holes::Hole;
pub use memory::MemoryDisk;
pub use options::{
    Commit, Cursor, CursorOf, MAX_EPOCHS, MAX_METADATA_BYTES, MAX_NAME_BYTES, MAX_SEGMENT_BYTES,
    MAX_STREAMS, MIN_SEGMENT_BYTES, Options, QueueFull,
};
/// Reads a log without changing anything and says what it holds.
pub fn check(disk: &dyn Disk) -> Result<Report, Error> {
    Ok(recover::scan(disk, recover::Read::All, None)?.report())
}

pub use ack::{Appended, Trimmed};
pub use backup::{Aside, Backup, Repaired, back_up, repair};
pub use define::Defining;
pub use owner::Committed;
pub use report::{CorruptRange, EpochReason, NewEpoch, Recovery, Report, StreamReport, TornTail};
pub use scrub::Scrubbed;
pub use store::Store;
pub use stream::Stream;
pub use waiting::{Room, Settled};

/// What an acknowledgement of a stream's records means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In memory: acknowledged when queued, still written, lost when the process dies before. It goes
    /// on while the disk is full; see [`Options::full_bytes`].
    Memory,
    /// Written: survives the process (`kill -9`).
    Process,
    /// Synced: survives a power loss.
    Power,
}

/// The identity of a record within its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch: a random number that changes when the log may have gone back. Below 2^53, so
    /// that it is exact in JSON.
    pub epoch: u64,
    /// The sequence number: from 1, rising by one, going on through epochs.
    pub sequence: u64,
}

/// One stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Epoch and number.
    pub position: Position,
    /// Nanoseconds, as the caller gave it.
    pub time: i64,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// Whether the store takes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ok,
    /// A write or sync failed; the text says which. Reading goes on.
    Failed(String),
    /// The disk is full; resumes by itself. Until then only records of level memory are taken.
    Full,
}

/// How many records of a stream were lost, and why, since the log was opened. What an incomplete end
/// took is not in here: nobody knows how much that was, and the stream's new epoch tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The stream.
    pub stream: String,
    /// Records found corrupt or gone from the middle, by opening, reading or scrubbing.
    pub corrupt: u64,
    /// Of these, records that were put back by [`Stream::fill`].
    pub filled: u64,
    /// Records removed by [`Options::retain_bytes`], whoever may have wanted them.
    pub size_limit: u64,
    /// Records refused because the queue or the disk was full; whoever brought them was told.
    pub refused: u64,
    /// Records that are missing from the middle now.
    pub missing: u64,
}

/// A stream at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// The caller's bytes (a schema).
    pub metadata: Vec<u8>,
    /// The present epoch.
    pub epoch: u64,
    /// The first sequence number still kept (`last + 1` when there are no records).
    pub first: u64,
    /// The last acknowledged sequence number, 0 when there was none yet.
    pub last: u64,
    /// Bytes of its frames in the kept segments.
    pub bytes: u64,
}

/// What the writer counted since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records written.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Group commits.
    pub groups: u64,
    /// Syncs of the segment.
    pub syncs: u64,
    /// Appends refused because the queue or the disk was full.
    pub refused: u64,
    /// Segments removed by the size limit, whatever they held.
    pub removed_segments: u64,
    /// Segments removed because every record in them was trimmed.
    pub trimmed_segments: u64,
    /// Bytes that the scrub has read.
    pub scrubbed_bytes: u64,
    /// Rounds of the scrub that are done.
    pub scrub_rounds: u64,
    /// Damaged ranges that the scrub found.
    pub scrub_found: u64,
}
