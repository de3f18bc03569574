//! Streams of elements on the log.
//!
//! The metadata of a log stream contains its schema in every version that it ever had. Each record
//! names its version, so old elements remain readable after the schema has changed. Readers get them in
//! the shape of the current schema: fields by name, numbers in its units, and null for a field that did
//! not exist, had another type, or another unit that does not convert. A schema that returns to an
//! earlier version reuses it, and a change of descriptions alone makes no new version.
//!
//! The log's time of a record is the element's source time, so a time range refers to the source's
//! clock.

mod device;
mod exchange;
mod names;
mod opening;
mod producers;
pub(crate) mod records;
mod repair;
mod scan;
mod written;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Waker, ready};

pub use device::DeviceIdentity;
pub use exchange::{Intake, IntakeError, RawFollower, RawRecords, origin_cursor};
pub use names::{NAMES_MAX, RenameError};
pub use opening::{Opening, OpeningIntake};
pub use repair::Hole;
pub use scan::Scan;
pub use written::{Written, WrittenFollower};

use names::LaterNames;

use chappe_log::{
    Appended, Batch, Defining, EagerFollower, Follower, Level, Record, Rollback, Room, Store,
    Stream,
};
use serde::{Deserialize, Serialize};

use crate::codec::write_element;
use crate::retention::Trimmer;
use crate::{
    CodecError, Epoch, NameError, Position, Retention, SchemaError, StreamElement, StreamSchema,
    Timestamp, check_name, decode_element,
};

/// Maximum number of versions of a stream's schema. 256: one a day would last most of a year, and
/// the log accepts 256 KiB of metadata.
pub const SCHEMA_VERSIONS_MAX: usize = 256;

/// The version of the metadata's own format that is written, and the newest that is read.
const FORMAT: u8 = 5;
/// The version without later names.
const FORMAT_WITHOUT_NAMES: u8 = 4;
/// The version without the identity of a device.
const FORMAT_WITHOUT_DEVICE: u8 = 3;
/// The version whose last schema is the current one.
const FORMAT_WITHOUT_CURRENT: u8 = 2;
/// The version without retention.
const FORMAT_WITHOUT_RETENTION: u8 = 1;

/// An error of a stored stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The schema is invalid.
    #[error(transparent)]
    Schema(SchemaError),
    /// An element does not fit the schema.
    #[error("element {index}: {error}")]
    Element {
        /// Its index in the batch.
        index: usize,
        /// The mismatch.
        error: SchemaError,
    },
    /// An element cannot be encoded, or a stored one cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The schema changed more often than is remembered.
    #[error("the schema has had {SCHEMA_VERSIONS_MAX} versions, which is the limit")]
    Versions,
    /// The stored schema does not decode.
    #[error("the stored schema of {0} cannot be decoded")]
    Metadata(String),
    /// A stored element names a version of the schema that is not stored.
    #[error("the stored element has schema version {0}, which is not stored")]
    UnknownVersion(u32),
    /// Data received from another node does not fit.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The stream cannot have this name, or cannot lose it.
    #[error(transparent)]
    Rename(#[from] RenameError),
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] chappe_log::Error),
}

/// All streams of elements of a node. Clones share it.
#[derive(Clone)]
pub struct StreamStore {
    store: Store,
    open: Arc<Mutex<BTreeMap<String, StreamLog>>>,
    retention: Retention,
}

/// One stream of elements. Clones share it.
#[derive(Clone)]
pub struct StreamLog {
    name: Arc<str>,
    stream: Stream,
    metadata: Arc<RwLock<Arc<Metadata>>>,
    /// That of a stream without its own.
    default_retention: Retention,
    trimmer: Arc<Trimmer>,
}

/// The metadata of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Metadata {
    /// The origin of the elements: the key of a device, or the name of a virtual sensor.
    origin: Option<String>,
    /// Every version of the schema, each with its last descriptions.
    versions: Vec<StreamSchema>,
    /// The retention, if the stream has its own.
    retention: Option<Retention>,
    /// The index of the version that new elements have.
    current: u32,
    /// The device that produces the elements, if it has an identity beyond its key.
    device: Option<DeviceIdentity>,
    /// The names that it was given after its definition.
    later_names: LaterNames,
}

impl StreamStore {
    /// Streams of elements on `store`, which may hold other streams too. Elements are kept as long
    /// as the log keeps them, unless their stream has a [`Retention`].
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self::with_retention(store, Retention::default())
    }

    /// Like [`StreamStore::new`], with the retention of streams without their own.
    #[must_use]
    pub fn with_retention(store: Store, retention: Retention) -> Self {
        Self {
            store,
            open: Arc::default(),
            retention,
        }
    }

    /// Trims every stream of elements to its retention at `now`. Appends trim by number of elements;
    /// trimming by age needs this call, about once a minute. It reads, so call it on a thread that may
    /// wait for the disk.
    ///
    /// # Errors
    /// The first stream that could not be trimmed, by name; the others were.
    pub fn retain(&self, now: Timestamp) -> Result<(), (String, StoreError)> {
        let mut outcome = Ok(());
        for log in self.streams() {
            if let Err(error) = log.retain(now) {
                outcome = outcome.and(Err((log.name().to_owned(), error)));
            }
        }
        outcome
    }

    /// Creates or opens the stream `name`. A new schema or origin is recorded; an unchanged one costs
    /// nothing.
    ///
    /// # Errors
    /// The name or the schema is invalid, or the log failed.
    pub fn stream(
        &self,
        name: &str,
        level: Level,
        schema: &StreamSchema,
        origin: Option<&str>,
    ) -> Result<StreamLog, StoreError> {
        self.define(name, level, schema, origin)?.wait()
    }

    /// Like [`StreamStore::stream`], without waiting for the disk: streams whose definitions are
    /// queued together cost one sync.
    ///
    /// # Errors
    /// The name or the schema is invalid, or the log failed; its queue may be full.
    pub fn define(
        &self,
        name: &str,
        level: Level,
        schema: &StreamSchema,
        origin: Option<&str>,
    ) -> Result<Opening, StoreError> {
        self.define_device_stream(name, level, schema, origin, None)
    }

    /// Like [`StreamStore::define`], for a device that can be recognized by its identity.
    ///
    /// # Errors
    /// Those of [`StreamStore::define`].
    pub fn define_device_stream(
        &self,
        name: &str,
        level: Level,
        schema: &StreamSchema,
        origin: Option<&str>,
        device: Option<&DeviceIdentity>,
    ) -> Result<Opening, StoreError> {
        check_name(name)?;
        schema.check_names().map_err(StoreError::Schema)?;
        let defining = self.store.define(name, |so_far| {
            let (level, mut metadata) = match so_far {
                None => (level, Metadata::new(schema, None)),
                Some((level, stored)) => (level, Metadata::decode(name, stored)?),
            };
            metadata.describe(schema, origin, device)?;
            Ok::<_, StoreError>((level, metadata.encode()?))
        })?;
        Ok(Opening {
            store: self.clone(),
            defining,
        })
    }

    /// Waits, after [`chappe_log::Error::QueueFull`], until `bytes` bytes fit into the log's queue.
    pub fn room(&self, bytes: usize) -> Room {
        self.store.room(bytes)
    }

    /// The stream with its newest durable definition.
    fn opened(&self, stream: Stream) -> Result<StreamLog, StoreError> {
        let name = stream.name();
        let mut open = lock(&self.open);
        let same = |log: &&StreamLog| log.stream.epoch() == stream.epoch();
        if let Some(log) = open.get(&name).filter(same) {
            log.renew()?;
            return Ok(log.clone());
        }
        let metadata = Metadata::decode(&name, &stream.metadata())?;
        let log = StreamLog::new(&name, stream, metadata, self.retention);
        open.insert(name, log.clone());
        Ok(log)
    }

    /// The stream `name` as stored, or `None` if there is no such stream of elements.
    ///
    /// # Errors
    /// The metadata cannot be decoded, or the log failed.
    pub fn existing(&self, name: &str) -> Result<Option<StreamLog>, StoreError> {
        let mut open = lock(&self.open);
        if let Some(log) = open.get(name) {
            return Ok(Some(log.clone()));
        }
        if check_name(name).is_err() {
            return Ok(None);
        }
        let Some(stream) = self.store.existing(name) else {
            return Ok(None);
        };
        let metadata = Metadata::decode(name, &stream.metadata())?;
        let log = StreamLog::new(name, stream, metadata, self.retention);
        open.insert(name.to_owned(), log.clone());
        Ok(Some(log))
    }

    /// Removes a stream with all its elements; returns whether it existed. Waits for the disk. Its handles
    /// then fail with [`chappe_log::Error::Removed`].
    ///
    /// # Errors
    /// An error of the log.
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        let Some(stream) = self.store.existing(name) else {
            return Ok(false);
        };
        let removed = self.store.remove(name)?;
        let mut open = lock(&self.open);
        // Unless it was created again meanwhile.
        if open
            .get(name)
            .is_some_and(|log| log.stream.epoch() == stream.epoch())
        {
            open.remove(name);
        }
        Ok(removed)
    }

    /// All stored streams of elements, by name. Other streams of the same log are skipped.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamLog> {
        let mut names: Vec<String> = self.store.streams().into_iter().map(|s| s.name).collect();
        names.sort();
        let logs = names.iter().filter_map(|name| self.existing(name).ok());
        logs.flatten().collect()
    }

    /// The log underneath.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl StreamLog {
    fn new(name: &str, stream: Stream, metadata: Metadata, default_retention: Retention) -> Self {
        Self {
            name: name.into(),
            stream,
            metadata: Arc::new(RwLock::new(Arc::new(metadata))),
            default_retention,
            trimmer: Arc::default(),
        }
    }

    /// The name under which it was defined, which identifies it in the log; [`StreamLog::current_name`] is the
    /// one to show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// [`StreamLog::name`], shared.
    #[must_use]
    pub fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// The schema of its elements.
    #[must_use]
    pub fn schema(&self) -> StreamSchema {
        self.snapshot().current().clone()
    }

    /// The number of the schema's current version, from 0; it falls when an earlier schema returns.
    #[must_use]
    pub fn schema_version(&self) -> u32 {
        self.snapshot().current_version()
    }

    /// Whether this is its schema, and this its source.
    #[must_use]
    pub fn is_as(&self, schema: &StreamSchema, origin: &str) -> bool {
        let metadata = self.snapshot();
        metadata.current() == schema && metadata.origin.as_deref() == Some(origin)
    }

    /// The origin of the elements: the key of a device, or the name of a virtual sensor.
    #[must_use]
    pub fn origin(&self) -> Option<String> {
        self.snapshot().origin.clone()
    }

    /// The device that produces its elements, if it has an identity beyond its key.
    #[must_use]
    pub fn device(&self) -> Option<DeviceIdentity> {
        self.snapshot().device.clone()
    }

    /// The underlying stream of the log: level, first and last number, epochs, gaps.
    #[must_use]
    pub fn log(&self) -> &Stream {
        &self.stream
    }

    /// Makes `schema` the current one: the version that the stream had before, otherwise a new one.
    ///
    /// # Errors
    /// The schema is invalid, has too many versions, or the log failed.
    pub fn set_schema(&self, schema: &StreamSchema) -> Result<(), StoreError> {
        schema.check_names().map_err(StoreError::Schema)?;
        self.alter(|metadata| metadata.describe(schema, None, None))
    }

    /// The retention of its elements.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.snapshot().retention.unwrap_or(self.default_retention)
    }

    /// Records the retention of its elements; `None` for the store's default. It applies until
    /// another one is recorded, even if the sensor or device that set it is removed.
    ///
    /// # Errors
    /// An error of the log.
    pub fn set_retention(&self, retention: Option<Retention>) -> Result<(), StoreError> {
        self.alter(|metadata| {
            metadata.retention = retention;
            Ok(())
        })?;
        self.trimmer.reset();
        Ok(())
    }

    /// Trims it to its retention at `now`; see [`StreamStore::retain`].
    ///
    /// # Errors
    /// An error of the log.
    pub fn retain(&self, now: Timestamp) -> Result<(), StoreError> {
        Ok(self
            .trimmer
            .trim_overdue(&self.stream, now, self.retention())?)
    }

    /// Calls `append`, which queues elements of this stream, again whenever the log's queue was too
    /// full for them and has room again.
    ///
    /// # Errors
    /// Those of `append` other than [`chappe_log::Error::QueueFull`].
    pub async fn when_room<T>(
        &self,
        append: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match append() {
                Err(StoreError::Log(chappe_log::Error::QueueFull { bytes, .. })) => {
                    self.stream.room(bytes).await;
                }
                queued => return queued,
            }
        }
    }

    /// Queues `elements`. Their positions are ignored: the log assigns them, one after another from
    /// [`Appended::first`]. They are stored when the result resolves.
    ///
    /// # Errors
    /// The first element that does not match the schema, or the log's error; then none is queued.
    pub fn append(&self, elements: &[StreamElement]) -> Result<Appended, StoreError> {
        self.append_by(elements, |batch| self.stream.append(batch))
    }

    /// Like [`StreamLog::append`], after the elements that the same caller queued before, as in
    /// [`Intake::append`].
    ///
    /// # Errors
    /// [`chappe_log::Error::Retracted`]; those of [`StreamLog::append`].
    pub fn append_after(
        &self,
        retractions: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        self.append_by(elements, |batch| {
            self.stream.append_after(retractions, batch)
        })
    }

    /// Like [`StreamLog::append`], for elements derived from those that
    /// [`StreamLog::follow_eagerly`] returned since [`Store::retractions`] returned `retractions`.
    ///
    /// # Errors
    /// [`chappe_log::Error::Retracted`]; those of [`StreamLog::append`].
    pub fn append_derived(
        &self,
        retractions: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        self.append_by(elements, |batch| {
            self.stream.append_derived(retractions, batch)
        })
    }

    fn append_by(
        &self,
        elements: &[StreamElement],
        append: impl FnOnce(Batch) -> Result<Appended, chappe_log::Error>,
    ) -> Result<Appended, StoreError> {
        let metadata = self.snapshot();
        let batch = batch_of(elements, metadata.current(), metadata.current_version())?;
        Ok(self.queued(append(batch)?))
    }

    /// Trims the elements that a queued batch makes surplus.
    fn queued(&self, appended: Appended) -> Appended {
        let last = appended.last().sequence;
        self.trimmer.appended(&self.stream, last, self.retention());
        appended
    }

    /// At most `count` elements from number `from` (0: from the first kept).
    ///
    /// # Errors
    /// A gap, with the number to continue at; elements that cannot be decoded.
    pub fn read(&self, from: u64, count: usize) -> Result<Vec<StreamElement>, StoreError> {
        self.decode(self.stream.read(from, count)?)
    }

    /// The newest elements, at most `count`, oldest first.
    ///
    /// # Errors
    /// The log's error; elements that cannot be decoded.
    pub fn newest(&self, count: usize) -> Result<Vec<StreamElement>, StoreError> {
        self.decode(self.stream.newest(count)?)
    }

    /// Elements with source time from `from` to before `to`, in the order of their numbers.
    ///
    /// # Errors
    /// The log's error; elements that cannot be decoded.
    pub fn range(
        &self,
        from: Timestamp,
        to: Timestamp,
        count: usize,
    ) -> Result<Vec<StreamElement>, StoreError> {
        self.decode(self.stream.range(from.0, to.0, count)?)
    }

    /// Reads the elements from number `from` (0: from the first kept) with a source time in
    /// `times`, or all if there are none, piece by piece.
    #[must_use]
    pub fn scan(&self, from: u64, times: Option<Range<Timestamp>>) -> Scan {
        Scan::new(self, from, times)
    }

    /// The number of elements kept.
    #[must_use]
    pub fn kept(&self) -> u64 {
        let numbers = (self.stream.last() + 1).saturating_sub(self.stream.first());
        numbers.saturating_sub(self.damaged(0, u64::MAX))
    }

    /// The number of damaged elements between or next to the numbers `first` to `last`: a reader of
    /// these may lack as many elements.
    #[must_use]
    pub fn damaged(&self, first: u64, last: u64) -> u64 {
        let gaps = self.stream.gaps().into_iter().chain(self.stream.given_up());
        let near = gaps
            .filter(|(from, to)| *from <= last.saturating_add(1) && to.saturating_add(1) >= first);
        near.map(|(from, to)| to - from + 1).sum()
    }

    /// The position at which a client that has everything up to `position` continues.
    ///
    /// # Errors
    /// The client has seen elements that this log does not have.
    pub fn resume(&self, position: Position) -> Result<u64, Rollback> {
        self.stream.resume(chappe_log::Position {
            epoch: position.epoch.0,
            sequence: position.sequence,
        })
    }

    /// Follows from number `from` (0: from the first kept).
    #[must_use]
    pub fn follow(&self, from: u64) -> StreamFollower {
        self.follower(Following::Safe(self.stream.follow(from)))
    }

    /// Like [`StreamLog::follow`], with batches of about `max_bytes` as stored instead of 8 MiB,
    /// for readers that may be many.
    #[must_use]
    pub fn follow_within(&self, from: u64, max_bytes: usize) -> StreamFollower {
        self.follower(Following::Safe(self.stream.follow(from).within(max_bytes)))
    }

    /// Follows from number `from` (0: from the first kept), without waiting until elements have
    /// reached their level; elements derived from them are stored by [`StreamLog::append_derived`].
    #[must_use]
    pub fn follow_eagerly(&self, from: u64) -> StreamFollower {
        self.follower(Following::Eager(self.stream.follow_eagerly(from)))
    }

    fn snapshot(&self) -> Arc<Metadata> {
        let metadata = self.metadata.read();
        metadata.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the metadata that `change` computes from the newest ones; waits until they are
    /// durable.
    fn alter(
        &self,
        change: impl FnOnce(&mut Metadata) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.redefine(change)?.wait()?;
        self.renew()
    }

    /// Queues the metadata that `change` computes from the newest ones.
    fn redefine(
        &self,
        change: impl FnOnce(&mut Metadata) -> Result<(), StoreError>,
    ) -> Result<Defining, StoreError> {
        self.stream.change_metadata(|stored| {
            let mut metadata = Metadata::decode(&self.name, stored)?;
            change(&mut metadata)?;
            metadata.encode()
        })
    }

    /// Loads the newest durable metadata: only then may a record name a new version.
    fn renew(&self) -> Result<(), StoreError> {
        let mut shared = self
            .metadata
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let metadata = Metadata::decode(&self.name, &self.stream.metadata())?;
        if metadata != **shared {
            *shared = Arc::new(metadata);
        }
        Ok(())
    }

    fn decode(&self, records: Vec<Record>) -> Result<Vec<StreamElement>, StoreError> {
        decode_all(&self.snapshot(), records)
    }

    fn follower(&self, following: Following) -> StreamFollower {
        StreamFollower {
            following,
            metadata: self.snapshot(),
            log: self.clone(),
        }
    }
}

/// Returns a stream's elements in order, as they are stored, or before.
pub struct StreamFollower {
    following: Following,
    log: StreamLog,
    /// The schema when the newest batch was decoded.
    metadata: Arc<Metadata>,
}

enum Following {
    Safe(Follower),
    Eager(EagerFollower),
}

impl StreamFollower {
    /// The next batch; never empty. After a gap it continues with the first element after it.
    ///
    /// # Errors
    /// A gap, or elements that do not decode.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<StreamElement>, StoreError>> {
        let follower = match &mut self.following {
            Following::Safe(follower) => {
                let records = ready!(follower.poll_next(context))?;
                return Poll::Ready(self.decode(records));
            }
            Following::Eager(follower) => follower,
        };
        let metadata = self.log.snapshot();
        self.metadata.clone_from(&metadata);
        let mut elements = Ok(Vec::new());
        let mut take = |position, time, payload: &[u8]| {
            if let Ok(so_far) = &mut elements {
                match decode_record(&metadata, position, time, payload) {
                    Ok(element) => so_far.push(element),
                    Err(error) => elements = Err(error),
                }
            }
        };
        ready!(follower.poll_next(context, &mut take))?;
        Poll::Ready(elements)
    }

    /// Ready when there is something to read; it reads nothing. An eager follower is always ready.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.following {
            Following::Safe(follower) => {
                let seen = follower.next_sequence().saturating_sub(1);
                follower.poll_beyond(seen, context)
            }
            Following::Eager(_) => Poll::Ready(()),
        }
    }

    /// The next batch; never empty. After a gap it continues with the first element after it.
    ///
    /// # Errors
    /// A gap, or elements that do not decode.
    pub async fn next(&mut self) -> Result<Vec<StreamElement>, StoreError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next batch if there is one now.
    ///
    /// # Errors
    /// A gap, or elements that do not decode.
    pub fn try_next(&mut self) -> Result<Option<Vec<StreamElement>>, StoreError> {
        if let Following::Safe(follower) = &mut self.following {
            let records = follower.try_next()?;
            return records.map(|records| self.decode(records)).transpose();
        }
        let mut nobody = Context::from_waker(Waker::noop());
        match self.poll_next(&mut nobody) {
            Poll::Ready(elements) => elements.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    fn decode(&mut self, records: Vec<Record>) -> Result<Vec<StreamElement>, StoreError> {
        self.metadata = self.log.snapshot();
        decode_all(&self.metadata, records)
    }

    /// The schema whose shape the elements of the newest batch have. The stream may have another one
    /// by the time they are used.
    #[must_use]
    pub fn schema(&self) -> &StreamSchema {
        self.metadata.current()
    }

    /// The version of [`StreamFollower::schema`].
    #[must_use]
    pub fn schema_version(&self) -> u32 {
        self.metadata.current_version()
    }

    /// The next number.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        match &self.following {
            Following::Safe(follower) => follower.next_sequence(),
            Following::Eager(follower) => follower.next_sequence(),
        }
    }
}

impl Metadata {
    fn new(schema: &StreamSchema, origin: Option<&str>) -> Self {
        Self {
            origin: origin.map(str::to_owned),
            versions: vec![schema.clone()],
            retention: None,
            current: 0,
            device: None,
            later_names: LaterNames::default(),
        }
    }

    /// Accepts another schema, or an origin. Another origin is another device, unless stated
    /// otherwise.
    fn describe(
        &mut self,
        schema: &StreamSchema,
        origin: Option<&str>,
        device: Option<&DeviceIdentity>,
    ) -> Result<(), StoreError> {
        self.use_schema(schema)?;
        let Some(origin) = origin else { return Ok(()) };
        let is_another = self.origin.as_deref() != Some(origin);
        if is_another || device.is_some() {
            self.device = device.cloned();
        }
        self.origin = Some(origin.to_owned());
        Ok(())
    }

    fn current(&self) -> &StreamSchema {
        // `new`, `decode` and `use_schema` keep the index within the versions.
        &self.versions[self.current as usize]
    }

    /// The number of the current version.
    fn current_version(&self) -> u32 {
        self.current
    }

    /// Makes `schema` the current one.
    fn use_schema(&mut self, schema: &StreamSchema) -> Result<(), StoreError> {
        self.current = self.add_schema(schema)?;
        Ok(())
    }

    /// The version of `schema`, which is added if necessary.
    fn add_schema(&mut self, schema: &StreamSchema) -> Result<u32, StoreError> {
        let is_version = |version: &StreamSchema| version.equals_but_descriptions(schema);
        let index = match self.versions.iter().rposition(is_version) {
            Some(index) => {
                self.versions[index].clone_from(schema);
                index
            }
            None if self.versions.len() >= SCHEMA_VERSIONS_MAX => return Err(StoreError::Versions),
            None => {
                self.versions.push(schema.clone());
                self.versions.len() - 1
            }
        };
        Ok(u32::try_from(index).unwrap_or(u32::MAX))
    }

    fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let malformed = |error: postcard::Error| CodecError::Malformed(error.to_string());
        let mut bytes = vec![FORMAT];
        bytes.extend(postcard::to_allocvec(self).map_err(malformed)?);
        Ok(bytes)
    }

    fn decode(name: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        let error = || StoreError::Metadata(name.to_owned());
        let (format, bytes) = bytes.split_first().ok_or_else(error)?;
        // The fields of older versions are the first ones of newer.
        let decoded = match *format {
            FORMAT => postcard::from_bytes(bytes),
            FORMAT_WITHOUT_NAMES => {
                postcard::from_bytes(bytes).map(|(origin, versions, retention, current, device)| {
                    Self {
                        current,
                        device,
                        ..Self::with_last(origin, versions, retention)
                    }
                })
            }
            FORMAT_WITHOUT_DEVICE => {
                postcard::from_bytes(bytes).map(|(origin, versions, retention, current)| Self {
                    current,
                    ..Self::with_last(origin, versions, retention)
                })
            }
            FORMAT_WITHOUT_CURRENT => postcard::from_bytes(bytes)
                .map(|(origin, versions, retention)| Self::with_last(origin, versions, retention)),
            FORMAT_WITHOUT_RETENTION => postcard::from_bytes(bytes)
                .map(|(origin, versions)| Self::with_last(origin, versions, None)),
            found if found > FORMAT => {
                let file = format!("the schema of stream {name}");
                return Err(chappe_log::Error::newer_format(file, found, FORMAT).into());
            }
            _ => return Err(error()),
        };
        let metadata: Self = decoded.map_err(|_| error())?;
        if metadata.versions.get(metadata.current as usize).is_none() {
            return Err(error());
        }
        Ok(metadata)
    }

    /// Metadata of an older format: the last version is the current one.
    fn with_last(
        origin: Option<String>,
        versions: Vec<StreamSchema>,
        retention: Option<Retention>,
    ) -> Self {
        let current = u32::try_from(versions.len().saturating_sub(1)).unwrap_or(u32::MAX);
        Self {
            origin,
            versions,
            retention,
            current,
            device: None,
            later_names: LaterNames::default(),
        }
    }
}

fn decode_all(metadata: &Metadata, records: Vec<Record>) -> Result<Vec<StreamElement>, StoreError> {
    let element = |it: Record| decode_record(metadata, it.position, it.time, &it.payload);
    records.into_iter().map(element).collect()
}

/// `elements` as records of `version`, which is `schema`.
fn batch_of(
    elements: &[StreamElement],
    schema: &StreamSchema,
    version: u32,
) -> Result<Batch, StoreError> {
    let mut batch = Batch::with_capacity(elements.len(), 64 * elements.len());
    for (index, element) in elements.iter().enumerate() {
        schema
            .check(element)
            .map_err(|error| StoreError::Element { index, error })?;
        let write = |bytes: &mut Vec<u8>| write_element(element, version, bytes);
        batch.push_with(element.source_time.0, write)?;
    }
    Ok(batch)
}

/// The element of a record in the shape of the current schema.
fn decode_record(
    metadata: &Metadata,
    position: chappe_log::Position,
    time: i64,
    payload: &[u8],
) -> Result<StreamElement, StoreError> {
    let (mut element, schema) = decode_written(metadata, position, time, payload)?;
    let current = metadata.current();
    if !std::ptr::eq(schema, current) {
        element.values = current.project(schema, element.values);
    }
    Ok(element)
}

/// The element of a record and the schema in whose shape it was written.
fn decode_written<'a>(
    metadata: &'a Metadata,
    position: chappe_log::Position,
    time: i64,
    payload: &[u8],
) -> Result<(StreamElement, &'a StreamSchema), StoreError> {
    let position = Position {
        epoch: Epoch(position.epoch),
        sequence: position.sequence,
    };
    let (element, version) = decode_element(payload, position, Timestamp(time))?;
    let schema = usize::try_from(version)
        .ok()
        .and_then(|version| metadata.versions.get(version))
        .ok_or(StoreError::UnknownVersion(version))?;
    schema
        .check(&element)
        .map_err(|error| CodecError::Malformed(error.to_string()))?;
    Ok((element, schema))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_older_formats_the_last_version_is_the_current_one() {
        let versions = vec![StreamSchema::default(); 3];
        let older = [
            (1, postcard::to_allocvec(&(Some("urn:d"), &versions))),
            (
                2,
                postcard::to_allocvec(&(Some("urn:d"), &versions, None::<Retention>)),
            ),
        ];
        for (format, fields) in older {
            let mut bytes = vec![format];
            bytes.extend(fields.unwrap());
            let metadata = Metadata::decode("a", &bytes).unwrap();
            assert_eq!(metadata.current_version(), 2, "of format {format}");
            assert_eq!(metadata.origin.as_deref(), Some("urn:d"));
            let again = Metadata::decode("a", &metadata.encode().unwrap()).unwrap();
            assert_eq!(again, metadata);
        }
        let none = None::<Retention>;
        let device = DeviceIdentity {
            identity: "i".to_owned(),
            address: "http://192.0.2.7/".to_owned(),
        };
        let without_device = postcard::to_allocvec(&(Some("urn:d"), &versions, none, 1_u32));
        let without_names = (Some("urn:d"), &versions, none, 1_u32, Some(&device));
        for (format, fields, device) in [
            (FORMAT_WITHOUT_DEVICE, without_device, None),
            (
                FORMAT_WITHOUT_NAMES,
                postcard::to_allocvec(&without_names),
                Some(&device),
            ),
        ] {
            let mut bytes = vec![format];
            bytes.extend(fields.unwrap());
            let metadata = Metadata::decode("a", &bytes).unwrap();
            assert_eq!(metadata.current_version(), 1, "of format {format}");
            assert_eq!(metadata.device.as_ref(), device);
            assert_eq!(metadata.later_names.current("a"), "a");
        }
        let newer = Metadata::decode("a", &[FORMAT + 1]).map_err(|error| error.to_string());
        let newer = newer.unwrap_err();
        assert!(newer.contains("the schema of stream a: it has format version 6"));
        let beyond = Metadata {
            current: 1,
            ..Metadata::new(&StreamSchema::default(), None)
        };
        assert!(Metadata::decode("a", &beyond.encode().unwrap()).is_err());
    }

    #[test]
    fn the_identity_of_a_device_is_kept_until_the_stream_has_another_origin() {
        let schema = StreamSchema::default();
        let device = DeviceIdentity {
            identity: "example|t1|7".to_owned(),
            address: "http://192.0.2.7/".to_owned(),
        };
        let mut metadata = Metadata::new(&schema, Some("urn:a"));
        metadata
            .describe(&schema, Some("urn:b"), Some(&device))
            .unwrap();
        for origin in [None, Some("urn:b")] {
            metadata.describe(&schema, origin, None).unwrap();
            let stored = Metadata::decode("a", &metadata.encode().unwrap()).unwrap();
            assert_eq!(stored.device.as_ref(), Some(&device), "after {origin:?}");
        }
        metadata.describe(&schema, Some("sensor"), None).unwrap();
        assert_eq!(metadata.device, None);
    }
}
