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
mod elements;
mod error;
mod exchange;
mod follower;
mod metadata;
mod names;
mod opening;
mod producers;
pub(crate) mod records;
mod repair;
mod scan;
mod stream;
mod written;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_log::{Level, Room, Store, Stream};

pub use device::DeviceIdentity;
pub use error::{IntakeError, StoreError};
pub use exchange::{Intake, RawFollower, RawRecords, origin_cursor};
pub use follower::StreamFollower;
pub use names::{NAMES_MAX, RenameError};
pub use opening::{Opening, OpeningIntake};
pub use repair::Hole;
pub use scan::Scan;
pub use stream::StreamLog;
pub use written::{Written, WrittenFollower};

use crate::{Retention, StreamSchema, Timestamp, check_name};
use metadata::Metadata;

/// All streams of elements of a node. Clones share it.
#[derive(Clone)]
pub struct StreamStore {
    store: Store,
    open: Arc<Mutex<BTreeMap<String, StreamLog>>>,
    retention: Retention,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
