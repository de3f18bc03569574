//! The named limits of a store, their defaults and the reasons.

use crate::Error;
use std::time::Duration;

/// Maximum length of a stream's name in bytes.
pub const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of a stream's metadata in bytes: a schema, not a document store.
pub const MAX_METADATA_BYTES: usize = 256 * 1024;
/// Most streams in one store: each costs some kilobytes of memory and a definition in each segment.
pub const MAX_STREAMS: usize = 128 * 1024;
/// Most bytes of all streams' names and metadata, with 1,200 bytes more for each stream. A segment
/// begins with all of them, twice, and its offsets have 32 bits.
pub const MAX_DEFINITIONS_BYTES: usize = 256 * 1024 * 1024;
/// Epochs of a stream that are remembered for [`crate::Stream::resume`]; a client that returns after
/// more than these gets a rollback, which is safe.
pub const MAX_EPOCHS: usize = 64;
/// Minimum of [`Options::segment_bytes`].
pub const MIN_SEGMENT_BYTES: u64 = 4 * 1024;
/// Maximum of [`Options::segment_bytes`]: offsets in a segment have 32 bits.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 31;

/// The behaviour of `append` when the queue in memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFull {
    /// Blocks the caller's thread until there is room.
    Wait,
    /// Returns [`Error::QueueFull`].
    Refuse,
}

/// The thread that commits the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// A thread of the store, as soon as something is queued.
    Thread,
    /// The caller, by [`crate::Store::commit`]: for a simulation, which is then deterministic. A
    /// thread that waits for an acknowledgement commits meanwhile; a full queue refuses, and a full
    /// disk is checked once in each call, without waiting.
    Caller,
}

/// 16 bytes of the caller's that a stream's records carry, for instance the position up to which
/// their source was read. See [`crate::Stream::cursor`].
pub type Cursor = [u8; 16];
/// Finds the cursor in a record's payload.
pub type CursorOf = fn(&[u8]) -> Option<Cursor>;

/// The limits of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size at which a new segment starts. Default 64 MiB: after an unclean end the next opening
    /// copies at most the last segment once.
    pub segment_bytes: u64,
    /// Maximum size of the writer's queue in bytes. Default 8 MiB: some hundred milliseconds of a
    /// slow disk.
    pub queue_bytes: usize,
    /// Maximum size of records of level memory that wait in the queue while the disk is full,
    /// beyond `queue_bytes`; more are refused. One stream may use as much as remains, so a stream
    /// that floods leaves half. Default 16 MiB: minutes of a thousand small records a second.
    pub full_bytes: usize,
    /// The behaviour of `append` when the queue is full. Default: wait.
    pub queue_full: QueueFull,
    /// Maximum size of one batch as stored in bytes. Default 4 MiB.
    pub batch_bytes: usize,
    /// Free space to leave on the disk in bytes, so that closing and other programs still have
    /// room. Default 1 MiB. The disk counts as full once a batch does not fit and less than 64 KiB
    /// more are free; if more is free, only the batch that does not fit is refused.
    pub reserve_bytes: u64,
    /// The interval at which a full disk is checked again. Default 200 ms.
    pub full_poll: Duration,
    /// Number of checks of a full disk before the batches that wait for room are refused with
    /// [`Error::Full`] and their numbers are assigned again. Default 5, with `full_poll` one second: a
    /// caller that waits for an acknowledgement does not hang for as long as the disk is full.
    pub full_polls: u32,
    /// The thread that commits the queue. Default: a thread of the store.
    pub commit: Commit,
    /// The pause of the commit thread after each group, so that more records gather for the next
    /// one: a sync costs the same for many. A record after a quiet time is written at once; a new
    /// stream, the end of the store, 256 KiB of queued records and
    /// [`crate::Stream::skip_commit_pause`] end the pause. Default zero: commits follow each other,
    /// and records gather during each sync.
    pub commit_pause: Duration,
    /// Maximum size of the newest records held in memory for readers of live data, in bytes; 0:
    /// none. Default 1 MiB: some seconds of a thousand records a second.
    pub recent_bytes: usize,
    /// Maximum size of all segments in bytes; beyond it the oldest segment is removed. Default
    /// `None`: nothing is removed.
    pub retain_bytes: Option<u64>,
    /// Whether `retain_bytes` applies only from the first [`crate::Store::set_share`] on, so that opening a full
    /// log removes nothing before the streams have their shares. Default false.
    pub waits_for_shares: bool,
    /// Maximum number of records that a follower returns at once. Default 1,024.
    pub follow_records: usize,
    /// Finds a stream's cursor in a record. Default `None`: records have no cursor.
    pub cursor_of: Option<CursorOf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 * 1024 * 1024,
            queue_bytes: 8 * 1024 * 1024,
            full_bytes: 16 * 1024 * 1024,
            queue_full: QueueFull::Wait,
            batch_bytes: 4 * 1024 * 1024,
            reserve_bytes: 1024 * 1024,
            full_poll: Duration::from_millis(200),
            full_polls: 5,
            commit: Commit::Thread,
            commit_pause: Duration::ZERO,
            recent_bytes: 1024 * 1024,
            retain_bytes: None,
            waits_for_shares: false,
            follow_records: 1024,
            cursor_of: None,
        }
    }
}

impl Options {
    /// Checks the options against each other.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |option, hint| Err(Error::Options { option, hint });
        if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes) {
            return wrong("segment_bytes", "use 4 KiB to 2 GiB");
        }
        if self.batch_bytes == 0 || self.batch_bytes > 256 * 1024 * 1024 {
            return wrong("batch_bytes", "use 1 byte to 256 MiB");
        }
        if self.queue_bytes < self.batch_bytes {
            return wrong("queue_bytes", "use at least batch_bytes");
        }
        if self.follow_records == 0 {
            return wrong("follow_records", "use at least 1");
        }
        Ok(())
    }
}
