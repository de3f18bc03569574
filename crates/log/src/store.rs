//! The store: one directory, one log, many streams.

use crate::{Disk, Error, Health, Level, Options, Recovery, Stream, StreamInfo};

/// A log that is open. Clones share it; the last handle (store or stream) that goes closes it.
#[derive(Clone)]
pub struct Store;

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
    /// Segments removed by the size limit.
    pub removed_segments: u64,
}

impl Store {
    /// Opens or creates the log of a directory and recovers it. `seed` must be random: epochs are
    /// drawn from it.
    pub fn open(
        disk: Box<dyn Disk>,
        options: Options,
        seed: u64,
    ) -> Result<(Store, Recovery), Error> {
        options.check()?;
        let _ = (disk, seed);
        Err(Error::Closed)
    }

    /// Opens a stream, or creates it. Changed level or metadata are recorded before it returns.
    pub fn stream(&self, name: &str, level: Level, metadata: &[u8]) -> Result<Stream, Error> {
        let _ = (name, level, metadata);
        Err(Error::Closed)
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<StreamInfo> {
        Vec::new()
    }

    /// Whether records are taken.
    pub fn health(&self) -> Health {
        Health::Ok
    }

    /// What was counted since opening.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Writes and syncs what is queued, marks the clean end and stops. Streams that are still held
    /// can be read afterwards, not appended to.
    pub fn close(self) -> Result<(), Error> {
        Ok(())
    }
}
