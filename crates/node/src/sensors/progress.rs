//! How far a virtual sensor has evaluated its streams, so that after a restart it goes on there.
//!
//! A sensor bound to one stream needs nothing of it while it brings forth: each output names its
//! newest input, and both are one record. For what brings forth nothing, and for several streams, a
//! record in a stream of the log of its own says it, with only the newest one kept: written behind
//! the outputs that it covers, so that a crash between them repeats an evaluation rather than omits
//! one.

use std::collections::BTreeMap;

use chappe_log::{Appended, Error, Level, Store, Stream};
use chappe_stream::{Epoch, Position};
use serde::{Deserialize, Serialize};

/// Streams whose positions are kept for a sensor; reason: a thousand rebindings are history.
const STREAMS_MAX: usize = 1_024;
/// The version of the record.
const FORMAT: u8 = 1;

/// What is stored: name, epoch, sequence, first.
#[derive(Serialize, Deserialize)]
struct Record(Vec<(String, u64, u64, u64)>);

/// How far a stream is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evaluated {
    /// The newest element that was.
    pub(super) at: Position,
    /// The number of the first one that ever was to be: windows do not reach behind it.
    pub(super) first: u64,
}

/// The progress of one sensor.
pub(super) struct Progress {
    stream: Stream,
    /// How far this run knows it to be.
    known: BTreeMap<String, Evaluated>,
    stored: BTreeMap<String, Evaluated>,
    pending: Option<(Appended, BTreeMap<String, Evaluated>)>,
}

impl Progress {
    /// What the log says of the sensor `name`.
    pub(super) fn open(store: &Store, name: &str, level: Level) -> Result<Self, Error> {
        let stream = store.stream(&format!("sensor-progress/{name}"), level, &[FORMAT])?;
        let newest = stream.newest(1)?;
        let record = newest.last().map(|record| record.payload.as_slice());
        // One that a newer program wrote says nothing here.
        let known = record.and_then(|bytes| match bytes.split_first() {
            Some((&FORMAT, bytes)) => postcard::from_bytes::<Record>(bytes).ok(),
            _ => None,
        });
        let positions = known.into_iter().flat_map(|record| record.0);
        let stored = positions.map(|(name, epoch, sequence, first)| {
            let epoch = Epoch(epoch);
            let at = Position { epoch, sequence };
            (name, Evaluated { at, first })
        });
        let stored: BTreeMap<_, _> = stored.collect();
        Ok(Self {
            known: stored.clone(),
            stored,
            stream,
            pending: None,
        })
    }

    /// How far the stream is evaluated.
    pub(super) fn of(&self, stream: &str) -> Option<Evaluated> {
        self.known.get(stream).copied()
    }

    /// Stores where evaluation begins: behind `at`.
    ///
    /// # Errors
    /// What the log says.
    pub(super) fn begin(
        &mut self,
        taken_back: u64,
        stream: &str,
        at: Position,
    ) -> Result<(), Error> {
        let first = at.sequence + 1;
        self.known
            .insert(stream.to_owned(), Evaluated { at, first });
        self.store(taken_back)
    }

    /// Notes how far evaluation is.
    pub(super) fn note<'a>(&mut self, positions: impl Iterator<Item = (&'a str, Position)>) {
        for (name, at) in positions {
            if let Some(known) = self.known.get_mut(name) {
                known.at = at;
            }
        }
    }

    /// Stores what has been noted, behind what was queued before.
    ///
    /// # Errors
    /// What the log says.
    pub(super) fn tell(&mut self, taken_back: u64) -> Result<(), Error> {
        self.settle();
        if self.pending.is_some() || self.known == self.stored {
            // What is on its way is followed by the next, which covers it.
            return Ok(());
        }
        self.store(taken_back)
    }

    fn store(&mut self, taken_back: u64) -> Result<(), Error> {
        let mut told = self.known.clone();
        while told.len() > STREAMS_MAX {
            told.pop_first();
        }
        let flat = told
            .iter()
            .map(|(name, it)| (name.clone(), it.at.epoch.0, it.at.sequence, it.first));
        let record = Record(flat.collect());
        let mut bytes = vec![FORMAT];
        // Plain data: it can always be written.
        bytes.extend(postcard::to_allocvec(&record).unwrap_or_default());
        let appended = self.stream.append_derived(taken_back, vec![(0, bytes)])?;
        self.pending = Some((appended, told));
        Ok(())
    }

    /// Notes what has been stored meanwhile.
    pub(super) fn settle(&mut self) {
        let Some((appended, told)) = self.pending.take() else {
            return;
        };
        match appended.try_result() {
            None => self.pending = Some((appended, told)),
            Some(Ok(())) => {
                // Only the newest counts; without the mark an older one is kept longer.
                drop(self.stream.trim(appended.first.sequence));
                self.stored = told;
            }
            // Nothing is known of it.
            Some(Err(_)) => {}
        }
    }

    /// Forgets what was not stored.
    pub(super) fn take_back(&mut self) {
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
                .begin(store.retractions(), stream, at(sequence))
                .unwrap();
        };
        begin(&mut progress, "a", 3);
        begin(&mut progress, "b", 8);
        settled(&mut progress);
        for sequence in 4..=9 {
            let both = [("a", at(sequence)), ("b", at(9)), ("c", at(1))];
            progress.note(both.into_iter());
            progress.tell(store.retractions()).unwrap();
            let stored = |progress: &Progress| progress.stored["a"].at;
            assert_ne!(stored(&progress), at(sequence), "not before it is stored");
            settled(&mut progress);
            assert_eq!(stored(&progress), at(sequence));
        }
        progress.tell(store.retractions()).unwrap();
        assert!(progress.pending.is_none(), "nothing has changed");
        progress.note([("a", at(77))].into_iter());
        progress.take_back();
        assert_eq!(progress.of("a").unwrap().at, at(9));
        let again = open();
        let of = |at, first| Some(Evaluated { at, first });
        assert_eq!(again.of("a"), of(at(9), 4));
        assert_eq!(again.of("b"), of(at(9), 9));
        assert_eq!(again.of("c"), None);
        // A mark is written in its turn, before this.
        let other = store.stream("x", Level::Power, b"").unwrap();
        other.append(vec![(0, vec![])]).unwrap().wait().unwrap();
        assert_eq!(again.stream.first(), again.stream.last());
    }
}
