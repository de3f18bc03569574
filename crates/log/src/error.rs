//! What can go wrong, kept apart by whose fault it is: the caller's use, the disk, the stored bytes.

use crate::Position;

/// Why an operation of the store was refused or failed.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    // -- the disk --
    /// No room (less than the reserve is free). Resumes by itself when there is room.
    #[error("the disk is full: {free} bytes are free, {reserve} are kept in reserve")]
    Full {
        /// Bytes that are free.
        free: u64,
        /// Bytes that the store leaves free.
        reserve: u64,
    },
    /// A write or sync failed: the writer has stopped and nothing more is acknowledged. Reading goes
    /// on; the store has to be opened anew.
    #[error("the log has stopped writing: {reason}")]
    Failed {
        /// What failed, on which file, and the operating system's words.
        reason: String,
    },
    /// The disk refused an operation other than the writer's.
    #[error("{what}: {reason}")]
    Io {
        /// The operation and the file.
        what: String,
        /// The operating system's words.
        reason: String,
    },
    /// The files were written by a newer program.
    #[error(
        "{file} has format version {found}, this program reads up to {known} \
         (hint: use the program that wrote it, or a newer one)"
    )]
    NewerFormat {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The newest version that is understood.
        known: u32,
    },
    // -- the stored bytes --
    /// Neither the marker nor a segment's header can be read, so nothing can be told of the rest.
    #[error(
        "{file} cannot be read as a log and nothing is left to tell its key \
             (hint: restore the marker or a segment from a backup)"
    )]
    Unreadable {
        /// The file.
        file: String,
    },
    /// Records are missing: a corrupt range, or the oldest were trimmed or removed by the size
    /// limit. Reading can go on at `next`.
    #[error("records {from} to {} of stream {stream} are missing: {reason}", next - 1)]
    Gap {
        /// The stream's name.
        stream: String,
        /// First missing sequence number (or the one asked for, if that is later).
        from: u64,
        /// The first sequence number after the gap.
        next: u64,
        /// Why they are missing.
        reason: GapReason,
    },
    /// The reader is ahead of the log: it has seen more than the log holds.
    #[error(transparent)]
    Rollback(#[from] Rollback),
    // -- the caller's use --
    /// The queue in memory is full and the options say to refuse rather than to wait.
    #[error("the queue holds {queued} of {limit} bytes, and the batch has {bytes}")]
    QueueFull {
        /// Size of the batch; see [`crate::Stream::room`].
        bytes: usize,
        /// Bytes queued.
        queued: usize,
        /// [`crate::Options::queue_bytes`].
        limit: usize,
    },
    /// A batch, a name or a stream's metadata is above its limit.
    #[error("{what} has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// `append_if` found another last number than expected.
    #[error("the last record is {last}, not {expected}")]
    Conflict {
        /// What the caller expected.
        expected: u64,
        /// The last number given out.
        last: u64,
    },
    /// Records that an eager follower had seen were refused, and their numbers are given out anew.
    #[error("records of a full disk were taken back from those that {stream} was derived from")]
    TakenBack {
        /// The stream's name.
        stream: String,
    },
    /// The stream was removed by [`crate::Store::remove`].
    #[error("stream {stream} was removed")]
    Removed {
        /// The stream's name.
        stream: String,
    },
    /// A stream needs a name.
    #[error("the stream has no name")]
    NoName,
    /// Records were to be put back whose numbers are not all missing.
    #[error("records {from} to {} of stream {stream} are not all missing", next - 1)]
    NotMissing {
        /// The stream's name.
        stream: String,
        /// First number.
        from: u64,
        /// The number after the last.
        next: u64,
    },
    /// Records were to be put back that are of another epoch than the missing ones.
    #[error("record {sequence} of stream {stream} is not of epoch {epoch}")]
    OtherEpoch {
        /// The stream's name.
        stream: String,
        /// First number.
        sequence: u64,
        /// The epoch of what was to be put back.
        epoch: u64,
    },
    /// A batch without records.
    #[error("the batch has no records")]
    EmptyBatch,
    /// The options contradict each other.
    #[error("option {option}: {hint}")]
    Options {
        /// The option's name.
        option: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// There are as many streams as the store takes.
    #[error("the store has {limit} streams, which is its limit")]
    TooManyStreams {
        /// [`crate::MAX_STREAMS`].
        limit: usize,
    },
    /// The store was closed.
    #[error("the log is closed")]
    Closed,
}

/// Why records are missing.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GapReason {
    /// Their bytes do not pass the checksums, or are gone from the middle of the log.
    #[error("their bytes are corrupt or lost")]
    Corrupt,
    /// They were the oldest: trimmed, or the log reached its size limit.
    #[error("trimmed by the stream's retention or removed by the log's size limit")]
    Trimmed,
}

/// A client has a position that this log never reached, or does not remember: the log was restored
/// from an older state, or lost what was not yet safe. The client must take the stream anew from
/// `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log goes back behind what was seen (epoch {} number {}): it resumes at {next}",
    have.epoch, have.sequence)]
pub struct Rollback {
    /// What the client has.
    pub have: Position,
    /// The last record of the client's epoch that the log has; `None` when it does not know the
    /// epoch.
    pub kept: Option<Position>,
    /// Where to go on.
    pub next: u64,
}
