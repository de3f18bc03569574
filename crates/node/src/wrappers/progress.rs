//! How far a wrapper read its peer, and the recovery of the batch that a crash interrupted.
//!
//! A batch is appended as one sequence of frames: first a record of its number, its mark and its
//! streams, then the elements of each stream. Each element carries the number of its batch as its
//! position at the origin, so a stream says durably, without being read, up to which batch it has
//! elements ([`StreamLog::newest_origin`]). The log keeps a prefix of what was appended: after a crash
//! the newest record tells whether its batch is there.
//! - No stream has it: the batch never happened, and the wrapper continues from the mark before.
//! - All streams have it: the wrapper continues from its mark.
//! - Some streams have it, of several: the record repeats the elements of such a batch, and the missing
//!   ones are appended again.
//!
//! So each element is stored exactly once, for every kind of peer that repeats what it sent after a
//! mark.
//!
//! A peer that numbers its elements keeps its numbers: its wrapper gives them positions at the origin, and the record
//! then names, for each stream, that of the batch's last element.

use std::sync::Arc;

use chappe_log::{Appended, Batch as Records, Error, Level, Store, Stream};
use chappe_stream::{
    Epoch, Position, StoreError, StreamElement, Timestamp, decode_element, encode_element,
};
use chappe_wrappers::Mark;
use serde::{Deserialize, Serialize};

use crate::catalogue::{Catalogue, Entry};
use crate::shared::App;

/// The prefix of the wrapper's name in the log.
const PREFIX: &str = "wrapper-progress/";
/// The version of a record.
const FORMAT: u8 = 1;
/// The version of a record that is followed by the position at the origin of each member's last element.
const FORMAT_POSITIONS: u8 = 2;
/// Records after which the older ones are trimmed; reason: each trim mark is a record.
const TRIM_STEP: u64 = 256;

/// The record of a batch. Its fields are the format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Record {
    /// The lineage of the batch numbers: another one when the records were lost.
    epoch: u64,
    number: u64,
    mark: Vec<u8>,
    /// The mark of the batch before, if there was one.
    before: Option<Vec<u8>>,
    members: Vec<Member>,
}

/// A stream that has elements of the batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Member {
    stream: String,
    /// The epoch of the stream, by which a stream that was removed since is recognized.
    epoch: u64,
    /// Source times and elements; none if this is the only stream.
    elements: Vec<(i64, Vec<u8>)>,
}

/// The positions at the origin of the members' last elements, epoch and sequence, in a record of
/// [`FORMAT_POSITIONS`]. Otherwise each is that of the batch.
type Positions = Vec<(u64, u64)>;

/// Elements of one stream to be stored.
pub(super) struct Prepared {
    pub(super) entry: Arc<Entry>,
    pub(super) elements: Vec<StreamElement>,
}

/// The progress of one wrapper.
pub(super) struct Progress {
    stream: Stream,
    /// The lineage of the batch numbers.
    epoch: u64,
    /// The number of the newest batch.
    number: u64,
    mark: Option<Mark>,
    /// The newest record, and the bytes that the log had written when it was appended.
    newest: Option<(Vec<u8>, u64)>,
    since_trim: u64,
}

impl Progress {
    /// Waits until nothing of the wrapper `name` is on its way to the disk, and continues where it was: a
    /// task that ended may have left a batch half queued.
    ///
    /// # Errors
    /// The log failed, or a newer program wrote the record.
    pub(super) async fn recover(app: &App, name: &str, level: Level) -> Result<Self, StoreError> {
        if let Some(stream) = app.storage.log.existing(&format!("{PREFIX}{name}")) {
            stream.settled().await;
            let newest = stream.newest(1)?;
            let record = newest.last().and_then(|record| decode(&record.payload));
            for member in record.into_iter().flat_map(|(record, _)| record.members) {
                if let Some(entry) = app.catalogue.get(&member.stream) {
                    entry.log.log().settled().await;
                }
            }
        }
        let seed = chappe_transport::seed_number();
        let seed = seed.map_err(|_| StoreError::Log(Error::Closed))?;
        let (app, name) = (app.clone(), name.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            Self::open(&app.storage.log, &app.catalogue, &name, level, seed)
        });
        let closed = |_| Err(StoreError::Log(Error::Closed));
        opened.await.unwrap_or_else(closed)
    }

    /// Reads the progress of the wrapper `name`, and completes the batch that was interrupted. `seed` is
    /// random. Waits for the disk; nothing of this wrapper may be on its way there.
    ///
    /// # Errors
    /// The log failed, or a newer program wrote the record.
    fn open(
        store: &Store,
        catalogue: &Catalogue,
        name: &str,
        level: Level,
        seed: u64,
    ) -> Result<Self, StoreError> {
        let stream = store.stream(&format!("{PREFIX}{name}"), level, &[FORMAT])?;
        let mut progress = Self {
            stream,
            epoch: seed,
            number: 0,
            mark: None,
            newest: None,
            since_trim: 0,
        };
        let newest = progress.stream.newest(1)?;
        let Some(bytes) = newest.into_iter().next_back().map(|record| record.payload) else {
            return Ok(progress);
        };
        let (record, positions) =
            decode(&bytes).ok_or_else(|| StoreError::Metadata(progress.stream.name()))?;
        (progress.epoch, progress.number) = (record.epoch, record.number);
        let missing = missing(&record, &positions, catalogue)?;
        let is_void = !missing.is_empty() && missing.len() == record.members.len();
        let mark = match is_void {
            true => record.before,
            false => {
                complete(&missing, catalogue)?;
                Some(record.mark)
            }
        };
        progress.mark = mark.map(Mark::long);
        if !is_void {
            progress.newest = Some((bytes, 0));
        }
        Ok(progress)
    }

    /// Whether a wrapper of this name ever ran.
    pub(super) fn exists(app: &App, name: &str) -> bool {
        app.storage
            .log
            .existing(&format!("{PREFIX}{name}"))
            .is_some()
    }

    /// Whether no batch was ever stored.
    pub(super) fn is_new(&self) -> bool {
        self.number == 0
    }

    /// The level of its records.
    pub(super) fn level(&self) -> Level {
        self.stream.level()
    }

    /// Begins where another one is.
    pub(super) fn continue_from(&mut self, former: &Self) {
        self.mark.clone_from(&former.mark);
    }

    /// The mark of the newest batch.
    pub(super) fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// The position at the origin that elements of the newest batch carry.
    fn position(&self) -> Position {
        Position {
            epoch: Epoch(self.epoch),
            sequence: self.number,
        }
    }

    /// Begins a batch: its elements get their position at the origin, unless they have one. Returns the record to
    /// append before them.
    ///
    /// # Errors
    /// An element cannot be encoded.
    pub(super) fn begin(
        &mut self,
        mark: &Mark,
        parts: &mut [Prepared],
    ) -> Result<Vec<u8>, StoreError> {
        self.number += 1;
        let position = self.position();
        let repeats = parts.len() > 1;
        let mut members = Vec::with_capacity(parts.len());
        let mut positions = Positions::with_capacity(parts.len());
        for part in parts {
            let mut elements = Vec::new();
            let mut last = position;
            for element in &mut part.elements {
                last = *element.origin.get_or_insert(position);
                if repeats {
                    elements.push((element.source_time.0, encode_element(element, 0)?));
                }
            }
            members.push(Member {
                stream: part.entry.name.clone(),
                epoch: part.entry.log.log().epoch(),
                elements,
            });
            positions.push((last.epoch.0, last.sequence));
        }
        let record = Record {
            epoch: self.epoch,
            number: self.number,
            mark: mark.bytes().to_vec(),
            before: self.mark.as_ref().map(|mark| mark.bytes().to_vec()),
            members,
        };
        let of_batch = (position.epoch.0, position.sequence);
        // Plain data always encodes.
        let bytes = match positions.iter().all(|at| *at == of_batch) {
            true => postcard::to_extend(&record, vec![FORMAT]),
            false => postcard::to_extend(&(&record, &positions), vec![FORMAT_POSITIONS]),
        };
        let bytes = bytes.unwrap_or_default();
        self.mark = Some(mark.clone());
        Ok(bytes)
    }

    /// Queues a record, after everything that the caller queued since `retractions` was read.
    ///
    /// # Errors
    /// The log refused it; its queue may be full.
    pub(super) fn append(&mut self, retractions: u64, record: &[u8]) -> Result<Appended, Error> {
        let mut batch = Records::with_capacity(1, record.len());
        batch.push(0, record);
        let appended = self.stream.append_derived(retractions, batch)?;
        self.since_trim += 1;
        if self.since_trim >= TRIM_STEP {
            self.since_trim = 0;
            // If it is refused, the next one trims more.
            let _ = self.stream.trim(appended.first.sequence);
        }
        Ok(appended)
    }

    /// Notes the newest record after which nothing is missing, and how much the log had written then.
    pub(super) fn stored(&mut self, record: Vec<u8>, written_bytes: u64) {
        self.newest = Some((record, written_bytes));
    }

    /// The record to append again if the log wrote `segment_bytes` since it was appended: the size limit
    /// removes old segments, and a wrapper may be idle for long.
    pub(super) fn refresh(&mut self, written_bytes: u64, segment_bytes: u64) -> Option<Vec<u8>> {
        let (record, since) = self.newest.as_mut()?;
        if written_bytes.saturating_sub(*since) < segment_bytes {
            return None;
        }
        *since = written_bytes;
        Some(record.clone())
    }
}

/// Most writers of a stream that are looked at for the elements of a batch; reason: each costs reads of the disk.
const ORIGINS_MAX: usize = 64;

/// A record, and the positions at the origin of its members' last elements.
fn decode(bytes: &[u8]) -> Option<(Record, Positions)> {
    match bytes.split_first()? {
        (&FORMAT, bytes) => {
            let record: Record = postcard::from_bytes(bytes).ok()?;
            let positions = vec![(record.epoch, record.number); record.members.len()];
            Some((record, positions))
        }
        (&FORMAT_POSITIONS, bytes) => postcard::from_bytes(bytes).ok(),
        _ => None,
    }
}

/// The streams that lack the elements of a batch.
fn missing(
    record: &Record,
    positions: &Positions,
    catalogue: &Catalogue,
) -> Result<Vec<Member>, StoreError> {
    let mut missing = Vec::new();
    for (member, (epoch, number)) in record.members.iter().zip(positions) {
        let Some(entry) = catalogue.get(&member.stream) else {
            continue;
        };
        let epochs = entry.log.log().epochs();
        // Elements of a removed stream are not stored again.
        if !epochs.iter().any(|(epoch, _)| *epoch == member.epoch) {
            continue;
        }
        let reaches = |at: &Position| at.epoch.0 == *epoch && at.sequence >= *number;
        // Another wrapper, or a link, may have written the stream since.
        let newest = entry.log.newest_origin();
        let has = newest.as_ref().is_some_and(reaches)
            || entry.log.earlier_origins(ORIGINS_MAX)?.iter().any(reaches);
        if !has {
            missing.push(member.clone());
        }
    }
    Ok(missing)
}

/// Stores the elements that are missing in some streams of a batch.
fn complete(missing: &[Member], catalogue: &Catalogue) -> Result<(), StoreError> {
    for member in missing {
        let Some(entry) = catalogue.get(&member.stream) else {
            continue;
        };
        let mut elements = Vec::with_capacity(member.elements.len());
        for (time, bytes) in &member.elements {
            // With its position at the origin.
            let (element, _) = decode_element(bytes, Position::default(), Timestamp(*time))?;
            elements.push(element);
        }
        if !elements.is_empty() {
            entry.log.append(&elements)?.wait()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{Commit, MemoryDisk, Options};
    use chappe_stream::{Field, FieldType, Quality, StreamSchema, Value, origin_cursor};
    use proptest::prelude::*;

    use crate::config::Config;

    fn options() -> Options {
        Options {
            commit: Commit::Caller,
            cursor_of: Some(origin_cursor),
            ..Options::default()
        }
    }

    fn element(value: i64) -> StreamElement {
        StreamElement {
            position: Position::default(),
            source_time: Timestamp(value),
            receive_time: Timestamp(value),
            key: None,
            values: vec![Value::Integer(value)],
            quality: Quality::Good,
            origin: None,
        }
    }

    fn schema() -> StreamSchema {
        StreamSchema {
            fields: vec![Field {
                name: "value".to_owned(),
                field_type: FieldType::Integer,
                unit: None,
                observed_property: None,
                description: None,
            }],
            key: None,
        }
    }

    /// A wrapper whose peer is the numbers from 1 and whose mark is the last one read.
    struct Numbers {
        store: Store,
        catalogue: Catalogue,
        progress: Progress,
        next: i64,
        /// Whether the peer numbers its elements.
        is_numbered: bool,
    }

    impl Numbers {
        fn open(disk: MemoryDisk, streams: usize) -> Self {
            let (store, _) = Store::open(Box::new(disk), options(), 1).unwrap();
            let config = Config::default();
            let catalogue = Catalogue::open(store.clone(), Level::Process, &config).unwrap();
            for stream in 0..streams {
                let name = format!("s{stream}");
                catalogue
                    .create_blocking(&name, &schema(), "w", None)
                    .unwrap();
            }
            let progress = Progress::open(&store, &catalogue, "w", Level::Process, 9).unwrap();
            let next = progress.mark().map_or(1, |mark| {
                i64::from_le_bytes(mark.bytes().try_into().unwrap()) + 1
            });
            Self {
                store,
                catalogue,
                progress,
                next,
                is_numbered: false,
            }
        }

        /// Appends the next batch, one number for each of the streams; at most `frames` of its frames.
        fn append(&mut self, streams: &[usize], frames: usize) {
            let retractions = self.store.retractions();
            let mut parts = Vec::new();
            for stream in streams {
                let entry = self.catalogue.get(&format!("s{stream}")).unwrap();
                let mut element = element(self.next);
                element.origin = self.is_numbered.then_some(Position {
                    epoch: Epoch(55),
                    sequence: self.next as u64,
                });
                let elements = vec![element];
                self.next += 1;
                parts.push(Prepared { entry, elements });
            }
            let mark = Mark::new((self.next - 1).to_le_bytes().to_vec()).unwrap();
            let record = self.progress.begin(&mark, &mut parts).unwrap();
            if frames > 0 {
                drop(self.progress.append(retractions, &record).unwrap());
            }
            for part in parts.iter().take(frames.saturating_sub(1)) {
                drop(
                    part.entry
                        .log
                        .append_derived(retractions, &part.elements)
                        .unwrap(),
                );
            }
        }

        fn commit(&self) {
            while self.store.commit().unwrap() != chappe_log::Committed::Nothing {}
        }

        fn stored(&self) -> Vec<i64> {
            let entries = self.catalogue.entries();
            let elements = entries
                .iter()
                .flat_map(|entry| entry.log.read(0, 1_000).unwrap());
            let mut values: Vec<i64> = elements
                .map(|element| match element.values[0] {
                    Value::Integer(value) => value,
                    _ => panic!("an integer"),
                })
                .collect();
            values.sort_unstable();
            values
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Runs end after any frame of a batch, as a crash leaves the log.
        #[test]
        fn each_number_is_stored_exactly_once(
            runs in prop::collection::vec(
                (
                    prop::collection::vec(
                        prop::sample::subsequence(vec![0_usize, 1, 2], 1..=3), 0..4,
                    ),
                    0_usize..5,
                ),
                1..5,
            ),
            is_numbered in any::<bool>(),
        ) {
            let disk = MemoryDisk::new();
            let mut last = 0;
            for (batches, frames) in runs {
                let mut run = Numbers::open(disk.clone(), 3);
                run.is_numbered = is_numbered;
                prop_assert!(run.next > last, "what was acknowledged is not read again");
                let (ending, whole) = match batches.split_last() {
                    Some((ending, whole)) => (Some(ending), whole),
                    None => (None, &batches[..]),
                };
                for streams in whole {
                    run.append(streams, usize::MAX);
                }
                run.commit();
                last = run.next - 1;
                if let Some(streams) = ending {
                    run.append(streams, frames);
                    run.commit();
                }
                run.store.abandon();
            }
            let run = Numbers::open(disk, 3);
            let stored = run.stored();
            prop_assert_eq!(&stored, &(1..run.next).collect::<Vec<i64>>());
            prop_assert!(run.next > last);
            for entry in run.catalogue.entries() {
                for element in entry.log.read(0, 1_000).unwrap() {
                    let origin = element.origin.unwrap();
                    let Value::Integer(value) = element.values[0] else { panic!("an integer") };
                    let is_own = origin.epoch == Epoch(55) && origin.sequence == value as u64;
                    prop_assert_eq!(is_own, is_numbered);
                }
            }
        }
    }

    #[test]
    fn a_batch_is_not_missing_because_another_wrapper_wrote_after_it() {
        let disk = MemoryDisk::new();
        let mut run = Numbers::open(disk.clone(), 2);
        run.append(&[0, 1], usize::MAX);
        run.commit();
        for stream in ["s0", "s1"] {
            let entry = run.catalogue.get(stream).unwrap();
            let mut other = element(100);
            other.origin = Some(Position {
                epoch: Epoch(77),
                sequence: 1,
            });
            let retractions = run.store.retractions();
            drop(entry.log.append_derived(retractions, &[other]).unwrap());
        }
        run.commit();
        run.store.abandon();
        let run = Numbers::open(disk, 2);
        assert_eq!((run.next, run.stored()), (3, vec![1, 2, 100, 100]));
    }

    #[test]
    fn a_record_is_repeated_before_the_size_limit_removes_it() {
        let mut run = Numbers::open(MemoryDisk::new(), 1);
        assert_eq!(run.progress.refresh(u64::MAX, 1), None, "there is none");
        run.append(&[0], 2);
        run.progress.stored(b"record".to_vec(), 100);
        assert_eq!(run.progress.refresh(199, 100), None);
        assert_eq!(run.progress.refresh(200, 100), Some(b"record".to_vec()));
        assert_eq!(run.progress.refresh(299, 100), None);
    }
}
