//! The durable journal: one stream of a [`chappe_log::Store`].
//!
//! The stream's metadata remembers where the newest snapshot starts; earlier records are trimmed.
//! The store's size limit removes its oldest segments, whatever stream they belong to. Give the
//! registry its own store, or a store without a size limit: if a record is removed before the next
//! snapshot, the registry refuses to open.

use chappe_log::{Error as LogError, Stream};

use crate::journal::{Journal, JournalError, Receipt, Stamped};

/// Head of the metadata: format and version.
const METADATA: &[u8; 4] = b"crj1";

/// A [`Journal`] on a stream of the log, which nobody else appends to.
pub struct LogJournal {
    stream: Stream,
    now: Box<dyn Fn() -> i64 + Send + Sync>,
}

impl LogJournal {
    /// A journal on `stream`; `now` returns the time in nanoseconds with which records are stamped.
    /// Open the stream with its existing metadata: the journal keeps its own there.
    pub fn new(stream: Stream, now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self {
            stream,
            now: Box::new(now),
        }
    }
}

impl Journal for LogJournal {
    fn last(&self) -> u64 {
        self.stream.last()
    }

    fn append_if(
        &self,
        expected_last: u64,
        records: Vec<Vec<u8>>,
    ) -> Result<Receipt, JournalError> {
        let time = (self.now)();
        let batch: Vec<_> = records.into_iter().map(|record| (time, record)).collect();
        let appended = self
            .stream
            .append_if(expected_last, batch)
            .map_err(refused)?;
        Ok(Receipt::new(async move { appended.await.map_err(refused) }))
    }

    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        if from > self.stream.last() {
            return Ok(Vec::new());
        }
        let records = self.stream.read(from, max).map_err(refused)?;
        Ok(records
            .into_iter()
            .map(|record| (record.position.sequence, record.payload))
            .collect())
    }

    fn stamped(&self, position: u64) -> Result<Option<Stamped>, JournalError> {
        if position > self.stream.last() {
            return Ok(None);
        }
        let mut records = self.stream.read(position, 1).map_err(refused)?.into_iter();
        let found = records.find(|record| record.position.sequence == position);
        Ok(found.map(|record| Stamped {
            time_ns: Some(record.time),
            record: record.payload,
        }))
    }

    fn has_one_writer(&self) -> bool {
        true
    }

    fn snapshot(&self) -> u64 {
        let metadata = self.stream.metadata();
        let position = metadata
            .strip_prefix(METADATA)
            .and_then(|rest| <[u8; 8]>::try_from(rest).ok())
            .map(u64::from_le_bytes);
        position.unwrap_or(1).max(1)
    }

    fn set_snapshot(&self, position: u64) -> Result<(), JournalError> {
        let mut metadata = METADATA.to_vec();
        metadata.extend_from_slice(&position.to_le_bytes());
        self.stream.set_metadata(&metadata).map_err(refused)?;
        // Not awaited: the next snapshot trims what this one does not.
        let _ = self.stream.trim(position);
        Ok(())
    }
}

fn refused(error: LogError) -> JournalError {
    match error {
        LogError::Conflict { last, .. } => JournalError::Moved { last },
        LogError::Full { .. } | LogError::QueueFull { .. } | LogError::TooLarge { .. } => {
            JournalError::Full(error.to_string())
        }
        LogError::Gap { from, .. } => JournalError::Unreadable {
            position: from,
            reason: error.to_string(),
        },
        _ => JournalError::Failed(error.to_string()),
    }
}
