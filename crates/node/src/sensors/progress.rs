//! The progress of a virtual sensor on its streams, from which it resumes after a restart.
//!
//! Each output of a sensor with one stream carries the position of its newest input. For several
//! streams, and for inputs without output, a progress record is stored in a separate log stream, of
//! which only the newest record is kept. It is written after the outputs that it covers, so a crash
//! in between repeats an evaluation rather than omitting one.

use std::collections::BTreeMap;

use chappe_log::{Appended, Error, Level, Store, Stream};
use chappe_stream::{Epoch, Position};
use serde::{Deserialize, Serialize};

/// Maximum number of positions kept for a sensor; reason: a thousand rebindings are enough history.
const STREAMS_MAX: usize = 1_024;
/// The version of the record.
const FORMAT: u8 = 2;
/// The version without the first elements held.
const FORMAT_WITHOUT_HELD: u8 = 1;

/// The stored record: name, epoch, sequence, first, held.
#[derive(Serialize, Deserialize)]
struct Record(Vec<(String, u64, u64, u64, Held)>);

/// The stored record of [`FORMAT_WITHOUT_HELD`].
#[derive(Deserialize)]
struct RecordWithoutHeld(Vec<(String, u64, u64, u64)>);

/// The elements that windows hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Held {
    /// Stands for the windows; see `shape` of the running sensor.
    pub(super) shape: u64,
    /// These windows hold no element before this number.
    pub(super) first: u64,
}

/// The evaluated part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evaluated {
    /// The newest evaluated element.
    pub(super) at: Position,
    /// The number of the first element ever evaluated; windows hold no earlier one.
    pub(super) first: u64,
    /// What windows hold of it.
    pub(super) held: Held,
}

/// The progress of one sensor.
pub(super) struct Progress {
    stream: Stream,
    /// The progress of this run.
    known: BTreeMap<String, Evaluated>,
    stored: BTreeMap<String, Evaluated>,
    pending: Option<(Appended, BTreeMap<String, Evaluated>)>,
}

impl Progress {
    /// Reads the stored progress of the sensor `name`.
    ///
    /// # Errors
    /// The log failed, or a newer program wrote the record: without it, elements would be evaluated again.
    pub(super) fn open(store: &Store, name: &str, level: Level) -> Result<Self, Error> {
        let stream = store.stream(&format!("sensor-progress/{name}"), level, &[FORMAT])?;
        let newest = stream.newest(1)?;
        let record = newest.last().map(|record| record.payload.as_slice());
        let known = match record.and_then(<[u8]>::split_first) {
            Some((&FORMAT, bytes)) => postcard::from_bytes::<Record>(bytes).ok(),
            Some((&FORMAT_WITHOUT_HELD, bytes)) => {
                let record = postcard::from_bytes::<RecordWithoutHeld>(bytes).ok();
                let with_held = |(name, epoch, sequence, first)| {
                    (name, epoch, sequence, first, Held::default())
                };
                record.map(|record| Record(record.0.into_iter().map(with_held).collect()))
            }
            Some((&found, _)) if found > FORMAT => {
                return Err(Error::newer_format(stream.name(), found, FORMAT));
            }
            _ => None,
        };
        let positions = known.into_iter().flat_map(|record| record.0);
        let stored = positions.map(|(name, epoch, sequence, first, held)| {
            let epoch = Epoch(epoch);
            let at = Position { epoch, sequence };
            (name, Evaluated { at, first, held })
        });
        let stored: BTreeMap<_, _> = stored.collect();
        Ok(Self {
            known: stored.clone(),
            stored,
            stream,
            pending: None,
        })
    }

    /// The progress on a stream.
    pub(super) fn of(&self, stream: &str) -> Option<Evaluated> {
        self.known.get(stream).copied()
    }

    /// The streams that windows of this shape have read.
    pub(super) fn streams(&self, shape: u64) -> impl Iterator<Item = &String> {
        let known = self.known.iter();
        known.filter_map(move |(stream, known)| (known.held.shape == shape).then_some(stream))
    }

    /// Stores the start of evaluation in windows of this shape: after `at`.
    ///
    /// # Errors
    /// The log failed.
    pub(super) fn begin(
        &mut self,
        rollbacks_seen: u64,
        stream: &str,
        at: Position,
        shape: u64,
    ) -> Result<(), Error> {
        let first = at.sequence + 1;
        let held = Held { shape, first };
        self.known
            .insert(stream.to_owned(), Evaluated { at, first, held });
        self.store(rollbacks_seen)
    }

    /// Records new positions in memory.
    pub(super) fn note<'a>(&mut self, positions: impl Iterator<Item = (&'a str, Position)>) {
        for (name, at) in positions {
            if let Some(known) = self.known.get_mut(name) {
                known.at = at;
            }
        }
    }

    /// Records what windows hold of a stream.
    pub(super) fn note_held(&mut self, stream: &str, held: Held) {
        if let Some(known) = self.known.get_mut(stream) {
            known.held = held;
        }
    }

    /// Whether [`Self::note_held`] recorded something that is not stored yet.
    pub(super) fn has_new_held(&self) -> bool {
        let mut known = self.known.iter();
        known.any(|(stream, known)| {
            self.stored
                .get(stream)
                .is_some_and(|stored| stored.held != known.held)
        })
    }

    /// Appends the recorded positions after everything queued before.
    ///
    /// # Errors
    /// The log failed.
    pub(super) fn flush(&mut self, rollbacks_seen: u64) -> Result<(), Error> {
        self.settle();
        if self.pending.is_some() || self.known == self.stored {
            // A later record covers the positions recorded while one is pending.
            return Ok(());
        }
        self.store(rollbacks_seen)
    }

    fn store(&mut self, rollbacks_seen: u64) -> Result<(), Error> {
        let mut positions = self.known.clone();
        while positions.len() > STREAMS_MAX {
            positions.pop_first();
        }
        let flat = positions.iter().map(|(name, it)| {
            (
                name.clone(),
                it.at.epoch.0,
                it.at.sequence,
                it.first,
                it.held,
            )
        });
        let record = Record(flat.collect());
        let mut bytes = vec![FORMAT];
        // Plain data always encodes.
        bytes.extend(postcard::to_allocvec(&record).unwrap_or_default());
        let batch = vec![(0, bytes)];
        let appended = self.stream.append_derived(rollbacks_seen, batch)?;
        self.pending = Some((appended, positions));
        Ok(())
    }

    /// Handles the result of a finished append.
    pub(super) fn settle(&mut self) {
        let Some((appended, positions)) = self.pending.take() else {
            return;
        };
        match appended.try_result() {
            None => self.pending = Some((appended, positions)),
            Some(Ok(())) => {
                // Only the newest record counts; if trimming fails, older ones are kept longer.
                drop(self.stream.trim(appended.first.sequence));
                self.stored = positions;
            }
            // The outcome is unknown.
            Some(Err(_)) => {}
        }
    }

    /// Rolls back to the stored progress.
    pub(super) fn roll_back(&mut self) {
        self.settle();
        self.pending = None;
        self.known = self.stored.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{MemoryDisk, Options};

    #[test]
    fn the_record_of_a_newer_program_is_refused() {
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        let stream = store
            .stream("sensor-progress/mean", Level::Power, &[FORMAT])
            .unwrap();
        let appended = stream.append(vec![(0, vec![FORMAT + 1, 0])]).unwrap();
        appended.wait().unwrap();
        let error = Progress::open(&store, "mean", Level::Power).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("sensor-progress/mean"), "{text}");
        assert!(
            text.contains("version 3") && text.contains("up to 2"),
            "{text}"
        );
    }

    #[test]
    fn the_newest_is_kept_and_nothing_else() {
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        let at = |sequence| Position {
            epoch: Epoch(7),
            sequence,
        };
        let settled = |progress: &mut Progress| {
            while progress.pending.is_some() {
                std::thread::yield_now();
                progress.settle();
            }
        };
        let open = || Progress::open(&store, "ward mean", Level::Power).unwrap();
        let mut progress = open();
        let begin = |progress: &mut Progress, stream, sequence| {
            progress
                .begin(store.retractions(), stream, at(sequence), 5)
                .unwrap();
        };
        begin(&mut progress, "a", 3);
        begin(&mut progress, "b", 8);
        settled(&mut progress);
        for sequence in 4..=9 {
            let both = [("a", at(sequence)), ("b", at(9)), ("c", at(1))];
            progress.note(both.into_iter());
            progress.flush(store.retractions()).unwrap();
            let stored = |progress: &Progress| progress.stored["a"].at;
            assert_ne!(stored(&progress), at(sequence), "not before it is stored");
            settled(&mut progress);
            assert_eq!(stored(&progress), at(sequence));
        }
        progress.flush(store.retractions()).unwrap();
        assert!(progress.pending.is_none(), "nothing has changed");
        progress.note([("a", at(77))].into_iter());
        progress.roll_back();
        assert_eq!(progress.of("a").unwrap().at, at(9));
        let again = open();
        let held = |first| Held { shape: 5, first };
        let of = |at, first| {
            let held = held(first);
            Some(Evaluated { at, first, held })
        };
        assert_eq!(again.streams(5).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(again.streams(0).count(), 0);
        assert_eq!(again.of("a"), of(at(9), 4));
        assert_eq!(again.of("b"), of(at(9), 9));
        assert_eq!(again.of("c"), None);
        // The trim mark is queued before this record, so it is written first.
        let other = store.stream("x", Level::Power, b"").unwrap();
        other.append(vec![(0, vec![])]).unwrap().wait().unwrap();
        assert_eq!(again.stream.first(), again.stream.last());
    }
}
