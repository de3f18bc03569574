//! A bounded record in a log stream of its own, at level power.
//!
//! The name has a `/`, which no stream of elements has, so the record is neither listed nor published. It
//! keeps its newest entries; how many it has removed is known from the number of the first one kept.

use std::sync::OnceLock;

use chappe_log::{Error, Level, Store, Stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of an entry, its first byte.
const FORMAT: u8 = 1;
/// Entries read at once, or written in one batch; reason: 1,024 entries take less than a mebibyte.
const STEP: usize = 1_024;
/// Entries beyond the limit that are removed together; reason: each trim is a mark in the log.
const TRIM_STEP: u64 = 1_024;

/// The record.
pub(super) struct Journal {
    store: Store,
    name: &'static str,
    entries_max: u64,
    stream: OnceLock<Stream>,
}

/// What a journal holds.
pub(super) struct Entries<T> {
    /// Time of writing (nanoseconds since 1970) and entry, oldest first.
    pub(super) entries: Vec<(i64, T)>,
    /// Whether older or damaged entries are missing.
    pub(super) is_cut: bool,
}

impl Journal {
    pub(super) fn new(store: &Store, name: &'static str, entries_max: u64) -> Self {
        let stream = store
            .existing(name)
            .map_or_else(OnceLock::new, OnceLock::from);
        Self {
            store: store.clone(),
            name,
            entries_max,
            stream,
        }
    }

    /// Writes entries, each with its time, and waits until they are safe; returns how many are, even if the
    /// rest is not.
    pub(super) fn append<T: Serialize>(&self, entries: &[(i64, T)]) -> (usize, Result<(), Error>) {
        let mut written = 0;
        for part in entries.chunks(STEP) {
            if let Err(error) = self.append_part(part) {
                return (written, Err(error));
            }
            written += part.len();
        }
        (written, Ok(()))
    }

    fn append_part<T: Serialize>(&self, entries: &[(i64, T)]) -> Result<(), Error> {
        let stream = match self.stream.get() {
            Some(stream) => stream,
            None => {
                let stream = self.store.stream(self.name, Level::Power, &[FORMAT])?;
                self.stream.get_or_init(|| stream)
            }
        };
        let batch: Vec<(i64, Vec<u8>)> = entries
            .iter()
            .map(|(time, entry)| {
                let mut bytes = vec![FORMAT];
                // Plain data always encodes.
                bytes.extend(postcard::to_allocvec(entry).unwrap_or_default());
                (*time, bytes)
            })
            .collect();
        let appended = stream.append(batch)?;
        let last = appended.last().sequence;
        appended.wait()?;
        if last.saturating_sub(stream.first()) >= self.entries_max + TRIM_STEP {
            // If the mark is refused, older entries stay until the next one.
            drop(stream.trim(last - self.entries_max));
        }
        Ok(())
    }

    /// Reads all entries; may take long.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<Entries<T>, Error> {
        let mut read = Entries {
            entries: Vec::new(),
            is_cut: false,
        };
        let Some(stream) = self.stream.get() else {
            return Ok(read);
        };
        let mut from = stream.first();
        read.is_cut = from > 1 || !stream.gaps().is_empty();
        loop {
            let records = match stream.read(from, STEP) {
                Ok(records) => records,
                Err(Error::Gap { next, .. }) => {
                    from = next;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(last) = records.last() else {
                return Ok(read);
            };
            from = last.position.sequence + 1;
            for record in &records {
                match record.payload.split_first() {
                    Some((&FORMAT, bytes)) if let Ok(entry) = postcard::from_bytes(bytes) => {
                        read.entries.push((record.time, entry));
                    }
                    // Written by a newer program.
                    _ => read.is_cut = true,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{MemoryDisk, Options};

    #[test]
    fn it_keeps_the_newest_entries_and_says_that_older_ones_are_missing() {
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        let journal = Journal::new(&store, "record/test", 100);
        assert!(journal.read::<u64>().unwrap().entries.is_empty());
        let all = 3 * TRIM_STEP;
        for number in 0..all {
            let (written, outcome) = journal.append(&[(number as i64, number)]);
            assert_eq!((written, outcome), (1, Ok(())));
        }
        // Marks are queued before this record, so they are written first.
        let other = store.stream("x", Level::Power, b"").unwrap();
        other.append(vec![(0, vec![])]).unwrap().wait().unwrap();
        let read = Journal::new(&store, "record/test", 100)
            .read::<u64>()
            .unwrap();
        assert!(read.is_cut);
        assert!(read.entries.len() as u64 <= 100 + TRIM_STEP);
        assert_eq!(read.entries.last(), Some(&(all as i64 - 1, all - 1)));
        let numbers: Vec<u64> = read.entries.iter().map(|(_, number)| *number).collect();
        assert!(numbers.len() >= 100 && numbers.is_sorted());
    }
}
