//! The findings of recovery and `check`, as plain values that can be printed or turned into JSON.

use crate::StreamInfo;

/// The description of a missing segment in a report.
pub(crate) const MISSING: &str = "the segment is missing";

/// The findings and actions of [`crate::Store::open`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The store did not exist before.
    pub created: bool,
    /// The log was closed cleanly; otherwise the process or the machine stopped unexpectedly.
    pub clean: bool,
    /// The files are a copy of the original ones.
    pub copied: bool,
    /// Number of segments.
    pub segments: usize,
    /// Number of segments that were not read because they have a valid snapshot. Damage in them is
    /// found by reading, by [`crate::check`] and by [`crate::Store::scrub`].
    pub indexed: usize,
    /// Total number of records.
    pub records: u64,
    /// The streams.
    pub streams: Vec<StreamInfo>,
    /// An incomplete end that was cut.
    pub torn_tail: Option<TornTail>,
    /// Ranges in the middle that fail the checksums. They are kept and read as gaps.
    pub corrupt: Vec<CorruptRange>,
    /// Streams that continue in a new epoch, and why.
    pub new_epochs: Vec<NewEpoch>,
    /// The last segment was rewritten after an unclean end, because its content as shown by the
    /// system may not be on the disk.
    pub rewritten: bool,
}

/// An incomplete end of the log, with nothing valid after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment's file.
    pub segment: String,
    /// Offset of the first invalid byte.
    pub offset: u64,
    /// Number of invalid bytes.
    pub bytes: u64,
}

/// A range of a segment whose bytes fail the checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptRange {
    /// The segment's file (for a missing one: its name).
    pub segment: String,
    /// Offset of the range.
    pub offset: u64,
    /// Its length in bytes; 0 if something is missing between two valid frames.
    pub bytes: u64,
    /// The kind of damage.
    pub what: String,
    /// No sync of these bytes is on record: it may be a torn write of a power loss rather than bit
    /// rot.
    pub unsynced: bool,
    /// No record is missing because of it: all were restored, given up or trimmed, or there were
    /// none.
    pub settled: bool,
    /// The numbers missing because of it: stream name, first and last sequence number.
    pub gaps: Vec<(String, u64, u64)>,
}

impl CorruptRange {
    /// Whether it is a missing segment.
    pub(crate) fn absent(&self) -> bool {
        self.what == MISSING
    }
}

/// A stream that continues in a new epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEpoch {
    /// The stream.
    pub stream: String,
    /// The epoch.
    pub epoch: u64,
    /// The first number to be assigned in it.
    pub first: u64,
    /// The reason.
    pub reason: EpochReason,
}

/// The reason for a stream's new epoch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochReason {
    /// The files are a copy: the original may have continued.
    Copied,
    /// An incomplete end was cut; it may have held numbers that were assigned.
    TornTail,
    /// The newest part of the stream is corrupt.
    Corrupt,
    /// An unclean end; at the stream's level acknowledged records may be lost.
    UncleanEnd,
}

impl EpochReason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            EpochReason::Copied => "the files are a restored copy",
            EpochReason::TornTail => "an incomplete end was cut",
            EpochReason::Corrupt => "the newest part is corrupt",
            EpochReason::UncleanEnd => "unclean end at a level below power",
        }
    }
}

/// The findings of [`crate::check`], which changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments.
    pub segments: usize,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Valid frames.
    pub frames: u64,
    /// Valid records.
    pub records: u64,
    /// The log was closed cleanly.
    pub clean: bool,
    /// The files are a copy of the original ones.
    pub copied: bool,
    /// Per stream.
    pub streams: Vec<StreamReport>,
    /// An incomplete end, which opening would cut.
    pub torn_tail: Option<TornTail>,
    /// Ranges that fail the checksums.
    pub corrupt: Vec<CorruptRange>,
}

impl Report {
    /// Whether all missing records were restored, given up or trimmed (an incomplete end alone is
    /// the ordinary trace of a power loss).
    pub fn healthy(&self) -> bool {
        self.corrupt.iter().all(|range| range.settled)
    }
}

/// A stream as found by [`crate::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Name, level, epoch, numbers, bytes.
    pub info: StreamInfo,
    /// Records that exist: neither trimmed, nor missing, nor given up.
    pub records: u64,
    /// Valid frames in the files, also of trimmed records.
    pub frames: u64,
    /// Missing numbers: first and last of each gap.
    pub gaps: Vec<(u64, u64)>,
    /// Missing numbers that were given up ([`crate::Stream::give_up`]).
    pub given_up: Vec<(u64, u64)>,
}
