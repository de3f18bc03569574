#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! A [`Store`] is one directory behind the [`Disk`] seam. All streams of a node share one ordered
//! log, so one `fdatasync` commits everything that waits. A batch of one stream's records is one
//! frame. Frames are numbered, bound to their offset and chained by checksums, so a missing,
//! duplicated, misdirected or flipped frame is detected.
//!
//! Each stream has a [`Level`]: once [`Appended`] resolves, the record survives what the level names. A
//! record of level memory is acknowledged when queued and written later; it is still accepted while the
//! disk is full, see [`Options::full_bytes`].
//! The number of an acknowledged record is never assigned to another one. Where the log cannot know
//! the highest number that a reader may have seen (an unclean end with a level below `Power`, a cut
//! tail, a corrupt end, a restored copy of the files), the stream continues in a **new epoch**, and
//! [`Stream::resume`] reports a client that is ahead.
//!
//! Streams are trimmed one by one ([`Stream::trim`]): a mark in the log names the first record kept,
//! and a segment in which no stream keeps a record is removed. One kept record holds a whole segment,
//! and so does damage whose records are neither trimmed nor restored; [`Options::retain_bytes`] bounds
//! the log by removing the oldest segments regardless. Streams may be given a [`Share`] of it: those that keep
//! more make room first, and what other streams keep in the same segments is moved to newer ones.
//!
//! A stream may have a cursor ([`Stream::cursor`]): 16 bytes that its newest record names, or that
//! were set. It outlives trims and the size limit: each trim mark carries it, and each segment starts
//! with the cursors of all streams.
//!
//! Damage in the middle is reported and kept, and its numbers are a gap: [`Stream::fill`] restores
//! records from another copy, [`Store::scrub`] finds rot before a reader does, and [`Store::lost`]
//! counts lost records by cause. The definition and the trim mark of a stream are always written
//! twice, so a single bad sector takes no stream's name or first number.
//!
//! Each segment that is no longer written has a summary in an `.index` file, so opening reads only the
//! newest segment. That file is a cache: if it does not match, the segment is read. It lists streams with
//! records in the segment; definitions and trim marks come from the newest segment, or from older ones if
//! it is damaged.
//!
//! A store has at most [`MAX_STREAMS`] streams, whose definitions take at most
//! [`MAX_DEFINITIONS_BYTES`]. Creating and opening take time in proportion to their number.
//!
//! A reader of many streams keeps one [`Place`] instead of a position for each.
//!
//! [`Store::remove`] removes a stream with all its records.
//!
//! This crate has no clock (times are arguments), no replication and no compression. It does not
//! delete single records, and it moves records into newer segments only for shares. It recognizes a
//! copy of the files by their identity, but not a copy written *into* the same files in place,
//! unless a client is ahead of it.
//!
//! Memory: an index entry of 48 bytes for 64 frames of a stream, at least one for each segment in which it
//! has records, plus at most 128 exact frame references of 40 bytes a stream and its definition three times. A million records in frames of one record take 0.75 MB, in frames
//! of a hundred 7.5 kB.
//!
//! Files, from the bottom: `frame`, `segment`, `index` and `snapshot` are the format; `recover` and
//! `open` read it; `commit` writes it; `state` is one stream, `queue` and `shared` belong to all
//! streams; `step` and `settle` commit; `owner`, `store` and `stream` are the handles, and the
//! other files add methods to them.

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
mod place;
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
mod share;
mod shared;
mod shares;
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
    Commit, Cursor, CursorOf, MAX_DEFINITIONS_BYTES, MAX_EPOCHS, MAX_METADATA_BYTES,
    MAX_NAME_BYTES, MAX_SEGMENT_BYTES, MAX_STREAMS, MIN_SEGMENT_BYTES, Options, QueueFull,
};
/// Reads a log without changing anything and reports its contents.
pub fn check(disk: &dyn Disk) -> Result<Report, Error> {
    Ok(recover::scan(disk, recover::Read::All, None)?.report())
}

/// Bytes at the start of a file that [`check_format`] needs; fewer if the file is shorter.
pub const FORMAT_BYTES: usize = segment::MARKER_BYTES;

/// Checks by the first [`FORMAT_BYTES`] of a file in the directory of a log that no newer program wrote it. Files without a
/// version, and damaged ones, pass.
///
/// # Errors
/// [`Error::NewerFormat`].
pub fn check_format(name: &str, start: &[u8]) -> Result<(), Error> {
    segment::check_format(name, start)
}

pub use ack::{Appended, Trimmed};
pub use backup::{Aside, Backup, Repaired, back_up, repair};
pub use chappe_record::{Level, Position};
pub use define::Defining;
pub use owner::Committed;
pub use place::{Continuation, Place};
pub use report::{CorruptRange, EpochReason, NewEpoch, Recovery, Report, StreamReport, TornTail};
pub use scrub::Scrubbed;
pub use share::Share;
pub use store::Store;
pub use stream::Stream;
pub use waiting::{Room, Settled};

/// One stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Epoch and number.
    pub position: Position,
    /// Time in nanoseconds, as given by the caller.
    pub time: i64,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// Whether the store accepts records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It accepts records.
    Ok,
    /// A write or sync failed; the text names it. Reading still works.
    Failed(String),
    /// The disk is full; resumes automatically. Until then only records of level memory are accepted.
    Full,
}

/// The number of lost records of a stream, by cause, since the log was opened. Records of an incomplete
/// end are not counted: their number is unknown, and the stream's new epoch marks the loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The stream.
    pub stream: String,
    /// Records found corrupt or missing from the middle, by opening, reading or scrubbing.
    pub corrupt: u64,
    /// Of these, records that were restored by [`Stream::fill`].
    pub filled: u64,
    /// Records removed by [`Options::retain_bytes`], whether or not they were still needed.
    pub size_limit: u64,
    /// Records refused because the queue or the disk was full; their appends failed.
    pub refused: u64,
    /// Records that are currently missing from the middle.
    pub missing: u64,
}

/// A summary of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// The caller's bytes (a schema).
    pub metadata: Vec<u8>,
    /// The current epoch.
    pub epoch: u64,
    /// The first sequence number still kept (`last + 1` when there are no records).
    pub first: u64,
    /// The last acknowledged sequence number; 0 if there is none.
    pub last: u64,
    /// Size of its frames in the existing segments in bytes.
    pub bytes: u64,
}

/// Counters of the writer since the store was opened.
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
    /// Segments removed by the size limit.
    pub removed_segments: u64,
    /// Segments removed because all their records were trimmed or moved.
    pub trimmed_segments: u64,
    /// Bytes written again so that their segments could be removed; see [`Share`].
    pub moved_bytes: u64,
    /// Bytes read by the scrub.
    pub scrubbed_bytes: u64,
    /// Completed rounds of the scrub.
    pub scrub_rounds: u64,
    /// Damaged ranges found by the scrub.
    pub scrub_found: u64,
}
