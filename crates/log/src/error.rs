//! Errors, divided by cause: the disk, the stored bytes, the caller's use.

use crate::Position;

/// The reason why an operation of the store was refused or failed.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    // -- the disk --
    /// Less than the reserve is free. The store resumes automatically once there is room.
    #[error("the disk is full: {free} bytes are free, the reserve is {reserve} bytes")]
    Full {
        /// Bytes that are free.
        free: u64,
        /// Bytes that the store leaves free.
        reserve: u64,
    },
    /// A write or sync failed: the writer has stopped and acknowledges nothing more. Reading still
    /// works; the store must be reopened.
    #[error("the log has stopped writing: {reason}")]
    Failed {
        /// The operation, the file, and the operating system's message.
        reason: String,
    },
    /// The disk refused an operation other than the writer's.
    #[error("{what}: {reason}")]
    Io {
        /// The operation and the file.
        what: String,
        /// The operating system's message.
        reason: String,
    },
    /// The files were written by a newer program.
    #[error(
        "cannot read {file}: it has format version {found}, this program reads up to {known} \
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
    /// Neither the marker nor a segment's header is readable, so the rest cannot be interpreted.
    #[error(
        "cannot read {file} as a log: no marker or segment header is left that holds its key \
             (hint: restore the marker or a segment from a backup)"
    )]
    Unreadable {
        /// The file.
        file: String,
    },
    /// Records are missing: a corrupt range, or the oldest were trimmed or removed by the size
    /// limit. Reading can continue at `next`.
    #[error("records {from} to {} of stream {stream} are missing: {reason}", next - 1)]
    Gap {
        /// The stream's name.
        stream: String,
        /// First missing sequence number (or the requested one, if that is greater).
        from: u64,
        /// The first sequence number after the gap.
        next: u64,
        /// The reason.
        reason: GapReason,
    },
    /// The reader is ahead of the log: it has seen more than the log holds.
    #[error(transparent)]
    Rollback(#[from] Rollback),
    // -- the caller's use --
    /// The queue in memory is full, and [`crate::QueueFull::Refuse`] is set.
    #[error("the queue is full: it holds {queued} of {limit} bytes, and the batch has {bytes}")]
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
        /// The object that is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The last assigned number is not the one that `append_if` expected.
    #[error("the last record is {last}, not {expected}")]
    Conflict {
        /// The expected number.
        expected: u64,
        /// The last assigned number.
        last: u64,
    },
    /// Records that an eager follower had seen were refused by a full disk; their numbers will be
    /// assigned to others.
    #[error(
        "inputs of stream {stream} were refused by a full disk, so its derived records are refused too"
    )]
    Retracted {
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
    /// [`crate::Stream::fill`] was called for numbers that are not all missing.
    #[error("records {from} to {} of stream {stream} are not all missing", next - 1)]
    NotMissing {
        /// The stream's name.
        stream: String,
        /// First number.
        from: u64,
        /// The number after the last.
        next: u64,
    },
    /// [`crate::Stream::fill`] was called with another epoch than that of the missing records.
    #[error("record {sequence} of stream {stream} is not of epoch {epoch}")]
    OtherEpoch {
        /// The stream's name.
        stream: String,
        /// First number.
        sequence: u64,
        /// The epoch of the given records.
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
        /// The remedy.
        hint: &'static str,
    },
    /// The limit of streams is reached.
    #[error("the limit of {limit} streams in a store is reached")]
    TooManyStreams {
        /// [`crate::MAX_STREAMS`].
        limit: usize,
    },
    /// The store was closed.
    #[error("the log is closed")]
    Closed,
}

impl Error {
    /// The error of a file or stream whose format is newer than the newest known one.
    pub fn newer_format(
        file: impl Into<String>,
        found: impl Into<u32>,
        known: impl Into<u32>,
    ) -> Self {
        Self::NewerFormat {
            file: file.into(),
            found: found.into(),
            known: known.into(),
        }
    }
}

/// The reason why records are missing.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GapReason {
    /// Their bytes fail the checksums, or are missing from the middle of the log.
    #[error("their bytes are corrupt or lost")]
    Corrupt,
    /// They were the oldest: trimmed, or removed when the log reached its size limit.
    #[error("trimmed by the stream's retention or removed by the log's size limit")]
    Trimmed,
}

/// A client has a position that this log never reached, or does not remember: the log was restored
/// from an older state, or lost records that were not yet durable. The client must read the stream
/// again from `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader is ahead of the log (at epoch {} number {}): it resumes at {next}",
    have.epoch, have.sequence)]
pub struct Rollback {
    /// The client's position.
    pub have: Position,
    /// The last record of the client's epoch in the log; `None` if the epoch is unknown.
    pub kept: Option<Position>,
    /// The number to resume at.
    pub next: u64,
}
