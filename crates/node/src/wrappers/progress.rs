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
//!
//! A wrapper that was renamed continues the progress of the former name, and its records name it: the lineage and the
//! number of that progress. So when it is renamed back, the newer of the two progresses is known.

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
/// The version of a record that is followed by these positions and the continued progresses.
const FORMAT_FORMERS: u8 = 3;
/// Continued progresses that a record names; reason: each is there for a renaming.
const FORMERS_MAX: usize = 16;
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

/// Progresses that this one has continued, the latest first: the epoch and the number of each.
type Formers = Vec<(u64, u64)>;

/// A record as it was read.
struct Decoded {
    record: Record,
    positions: Positions,
    formers: Formers,
}

/// How the progress of a former name relates to that of the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    /// It never ran.
    Unknown,
    /// It ran, and nothing is to be continued: it stored nothing, or was continued before.
    Done,
    /// It is to be continued.
    Newer,
    /// Each was stored without the other.
    Separate,
}

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
    formers: Formers,
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
            let record = newest.last().map(|record| decode(&stream, &record.payload));
            for member in record
                .transpose()?
                .into_iter()
                .flat_map(|it| it.record.members)
            {
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
            formers: Formers::new(),
            newest: None,
            since_trim: 0,
        };
        let newest = progress.stream.newest(1)?;
        let Some(bytes) = newest.into_iter().next_back().map(|record| record.payload) else {
            return Ok(progress);
        };
        let decoded = decode(&progress.stream, &bytes)?;
        let (record, positions) = (decoded.record, decoded.positions);
        (progress.epoch, progress.number) = (record.epoch, record.number);
        progress.formers = decoded.formers;
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

    /// How the progress of the wrapper `former` relates to this one.
    ///
    /// # Errors
    /// The log failed, or a newer program wrote the record.
    pub(super) async fn relation(&self, app: &App, former: &str) -> Result<Former, StoreError> {
        let Some(stream) = app.storage.log.existing(&format!("{PREFIX}{former}")) else {
            return Ok(Former::Unknown);
        };
        stream.settled().await;
        let newest = stream.newest(1)?;
        let Some(bytes) = newest.last().map(|record| &record.payload) else {
            return Ok(Former::Done);
        };
        let decoded = decode(&stream, bytes)?;
        let Record { epoch, number, .. } = decoded.record;
        Ok(self.relation_to((epoch, number), &decoded.formers))
    }

    fn relation_to(&self, (epoch, number): (u64, u64), formers: &[(u64, u64)]) -> Former {
        let own = |(of, until): &(u64, u64)| *of == self.epoch && *until >= self.number;
        let is_known = |(of, until): &(u64, u64)| *of == epoch && *until >= number;
        match () {
            () if self.is_new() || formers.iter().any(own) => Former::Newer,
            () if self.formers.iter().any(is_known) => Former::Done,
            () => Former::Separate,
        }
    }

    /// Whether no batch was ever stored.
    pub(super) fn is_new(&self) -> bool {
        self.number == 0
    }

    /// The level of its records.
    pub(super) fn level(&self) -> Level {
        self.stream.level()
    }

    /// Begins where another one is. Returns the record to append, if there is a mark.
    ///
    /// # Errors
    /// None of these.
    pub(super) fn continue_from(&mut self, former: &Self) -> Result<Option<Vec<u8>>, StoreError> {
        let own = (self.number > 0).then_some((self.epoch, self.number));
        let before = former.formers.iter().chain(&self.formers).copied();
        let mut formers = vec![(former.epoch, former.number)];
        for one in own.into_iter().chain(before) {
            // Of each lineage, the highest number comes first.
            if formers.iter().all(|(epoch, _)| *epoch != one.0) {
                formers.push(one);
            }
        }
        formers.truncate(FORMERS_MAX);
        self.formers = formers;
        self.mark.clone_from(&former.mark);
        let mark = self.mark.clone();
        mark.map(|mark| self.begin(&mark, &mut [])).transpose()
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
        let are_of_batch = positions.iter().all(|at| *at == of_batch);
        let bytes = match self.formers.is_empty() {
            true if are_of_batch => postcard::to_extend(&record, vec![FORMAT]),
            true => postcard::to_extend(&(&record, &positions), vec![FORMAT_POSITIONS]),
            false => {
                let all = (&record, &positions, &self.formers);
                postcard::to_extend(&all, vec![FORMAT_FORMERS])
            }
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

/// A record with what follows it, of the progress in `stream`.
///
/// # Errors
/// A newer program wrote it, or it does not decode.
fn decode(stream: &Stream, bytes: &[u8]) -> Result<Decoded, StoreError> {
    match bytes.first() {
        Some(&found) if found > FORMAT_FORMERS => {
            Err(Error::newer_format(stream.name(), found, FORMAT_FORMERS).into())
        }
        _ => decode_known(bytes).ok_or_else(|| StoreError::Metadata(stream.name())),
    }
}

/// A record of a version that this program knows.
fn decode_known(bytes: &[u8]) -> Option<Decoded> {
    let (record, positions, formers) = match bytes.split_first()? {
        (&FORMAT, bytes) => {
            let record: Record = postcard::from_bytes(bytes).ok()?;
            let positions = vec![(record.epoch, record.number); record.members.len()];
            (record, positions, Formers::new())
        }
        (&FORMAT_POSITIONS, bytes) => {
            let (record, positions) = postcard::from_bytes(bytes).ok()?;
            (record, positions, Formers::new())
        }
        (&FORMAT_FORMERS, bytes) => postcard::from_bytes(bytes).ok()?,
        _ => return None,
    };
    Some(Decoded {
        record,
        positions,
        formers,
    })
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

    #[test]
    fn the_record_of_a_newer_program_is_refused() {
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), Options::default(), 1).unwrap();
        let stream = store
            .stream("wrapper-progress/a", Level::Power, &[FORMAT])
            .unwrap();
        let refused = |bytes: &[u8]| decode(&stream, bytes).err().unwrap().to_string();
        let newer = refused(&[FORMAT_FORMERS + 1]);
        assert!(
            newer.contains("wrapper-progress/a: it has format version 4"),
            "{newer}"
        );
        for broken in [&[][..], &[0], &[FORMAT, 0xff]] {
            assert!(refused(broken).contains("cannot be decoded"), "{broken:?}");
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
    fn of_two_names_of_a_wrapper_the_newer_progress_is_known() {
        let disk = MemoryDisk::new();
        let open = |run: &Numbers, name: &str, seed| {
            let catalogue = &run.catalogue;
            Progress::open(&run.store, catalogue, name, Level::Process, seed).unwrap()
        };
        let relation = |of: &Progress, former: &Progress| {
            of.relation_to((former.epoch, former.number), &former.formers)
        };
        let append = |run: &Numbers, progress: &mut Progress, record: &[u8]| {
            drop(progress.append(run.store.retractions(), record).unwrap());
            run.commit();
        };
        let mut run = Numbers::open(disk, 1);
        run.append(&[0], usize::MAX);
        run.commit();
        let renamed = open(&run, "renamed", 10);
        assert_eq!(relation(&renamed, &run.progress), Former::Newer);
        let mut renamed = renamed;
        let record = renamed.continue_from(&run.progress).unwrap().unwrap();
        append(&run, &mut renamed, &record);
        // After a restart, it was continued; the former name would continue it.
        let renamed = open(&run, "renamed", 11);
        assert_eq!(renamed.mark(), run.progress.mark());
        assert_eq!(relation(&renamed, &run.progress), Former::Done);
        assert_eq!(relation(&run.progress, &renamed), Former::Newer);
        let mut back = open(&run, "w", 12);
        let record = back.continue_from(&renamed).unwrap().unwrap();
        append(&run, &mut back, &record);
        let back = open(&run, "w", 13);
        assert_eq!(relation(&back, &renamed), Former::Done);
        assert_eq!(relation(&renamed, &back), Former::Newer);
        // Another wrapper, which ran on its own.
        let mut other = open(&run, "other", 14);
        let mark = Mark::new(vec![1]).unwrap();
        let record = other.begin(&mark, &mut []).unwrap();
        append(&run, &mut other, &record);
        assert_eq!(relation(&back, &other), Former::Separate);
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
