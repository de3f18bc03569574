//! The streams of the node: those of the log, with whom they belong to and how fast they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use chappe_log::{Appended, Level, Store};
use chappe_stream::{
    Retention, StoreError, StreamElement, StreamLog, StreamSchema, StreamStore, Timestamp,
};
use tokio::sync::watch;

use crate::config::Config;

/// Time over which a stream's rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// How long an append waits before it asks a full queue again.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Why a stream cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CatalogueError {
    /// Another device or sensor has a stream of this name.
    #[error("the stream {stream:?} belongs to {owner}")]
    Taken {
        /// The stream.
        stream: String,
        /// Its source.
        owner: String,
    },
    /// There are too many.
    #[error("there are {0} streams already, as many as log.max_streams allows")]
    TooMany(usize),
    /// The name, the schema or the log refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A stream of the node.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// Its elements.
    pub(crate) log: StreamLog,
    meter: Mutex<Meter>,
}

#[derive(Debug)]
struct Meter {
    since: Instant,
    count: u64,
    rate: f64,
    last_time: Option<Timestamp>,
}

impl Entry {
    fn new(log: StreamLog) -> Result<Arc<Self>, StoreError> {
        let newest = log.newest(1)?;
        Ok(Arc::new(Self {
            name: log.name().to_owned(),
            meter: Mutex::new(Meter {
                since: Instant::now(),
                count: 0,
                rate: 0.0,
                last_time: newest.last().map(|element| element.source_time),
            }),
            log,
        }))
    }

    /// The key of the device, or the name of the virtual sensor, that yields it.
    pub(crate) fn source(&self) -> String {
        self.log.origin().unwrap_or_default()
    }

    /// Its key in the registry.
    pub(crate) fn key(&self) -> String {
        key(&self.name)
    }

    /// Hands a batch to the log; waits while the log's queue is full.
    pub(crate) async fn append(&self, elements: &[StreamElement]) -> Result<Appended, StoreError> {
        self.append_with(|| self.log.append(elements), elements)
            .await
    }

    /// As [`Entry::append`], for elements derived from what was followed eagerly; see
    /// [`StreamLog::append_derived`].
    pub(crate) async fn append_derived(
        &self,
        taken_back: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        let append = || self.log.append_derived(taken_back, elements);
        self.append_with(append, elements).await
    }

    async fn append_with(
        &self,
        append: impl Fn() -> Result<Appended, StoreError>,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        loop {
            match append() {
                Err(StoreError::Log(chappe_log::Error::QueueFull { .. })) => {
                    tokio::time::sleep(QUEUE_PAUSE).await;
                }
                Ok(appended) => {
                    if let Some(last) = elements.last() {
                        self.came(elements.len() as u64, last.source_time);
                    }
                    return Ok(appended);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Notes that so many elements came, the last one of this source time.
    pub(crate) fn came(&self, elements: u64, newest: Timestamp) {
        let mut meter = self.meter();
        meter.roll();
        meter.count += elements;
        meter.last_time = Some(newest);
    }

    /// Elements a second, lately.
    pub(crate) fn rate_per_s(&self) -> f64 {
        let mut meter = self.meter();
        meter.roll();
        (meter.rate * 100.0).round() / 100.0
    }

    /// The source time of the newest element.
    pub(crate) fn last_time(&self) -> Option<Timestamp> {
        self.meter().last_time
    }

    fn meter(&self) -> std::sync::MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    fn roll(&mut self) {
        let elapsed = self.since.elapsed();
        if elapsed >= RATE_WINDOW {
            self.rate = self.count as f64 / elapsed.as_secs_f64();
            (self.since, self.count) = (Instant::now(), 0);
        } else if self.rate == 0.0 && elapsed >= Duration::from_secs(1) {
            // A young stream has a rate before its first window is over.
            self.rate = self.count as f64 / elapsed.as_secs_f64();
        }
    }
}

/// The key of a stream in the registry.
pub(crate) fn key(stream: &str) -> String {
    format!("urn:chappe:stream:{stream}")
}

/// The name of the stream with this key in the registry.
pub(crate) fn name_of(key: &str) -> Option<&str> {
    key.strip_prefix("urn:chappe:stream:")
}

/// All streams.
pub(crate) struct Catalogue {
    store: StreamStore,
    streams_max: usize,
    level: Level,
    entries: RwLock<BTreeMap<String, Arc<Entry>>>,
    changes: watch::Sender<u64>,
}

impl Catalogue {
    /// The streams that the log has; new ones get `level` unless they ask for another.
    pub(crate) fn open(store: Store, level: Level, config: &Config) -> Result<Self, StoreError> {
        let bound = |number: u64| Some(number).filter(|number| *number > 0);
        let retention = Retention {
            elements: bound(config.log.keep_elements),
            age: bound(config.log.keep_age_s).map(Duration::from_secs),
        };
        let store = StreamStore::with_retention(store, retention);
        let mut entries = BTreeMap::new();
        for log in store.streams() {
            let entry = Entry::new(log)?;
            entries.insert(entry.name.clone(), entry);
        }
        Ok(Self {
            store,
            streams_max: config.log.max_streams as usize,
            level,
            entries: RwLock::new(entries),
            changes: watch::Sender::new(0),
        })
    }

    /// Opens the stream of `source`, making it or renewing its schema as needed.
    pub(crate) fn create(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, CatalogueError> {
        self.make(name, schema, source, level, |owner| owner == source)
    }

    /// As [`Catalogue::create`], whoever the stream belongs to: it belongs to `source` from now on.
    pub(crate) fn take_over(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, CatalogueError> {
        self.make(name, schema, source, level, |_| true)
    }

    fn make(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        may_be_of: impl Fn(&str) -> bool,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(name) {
            let owner = entry.source();
            if !owner.is_empty() && !may_be_of(&owner) {
                let stream = name.to_owned();
                return Err(CatalogueError::Taken { stream, owner });
            }
        } else if entries.len() >= self.streams_max {
            return Err(CatalogueError::TooMany(entries.len()));
        }
        let level = level.unwrap_or(self.level);
        let log = self.store.stream(name, level, schema, Some(source))?;
        if let Some(entry) = entries.get(name) {
            return Ok(entry.clone());
        }
        let entry = Entry::new(log)?;
        entries.insert(name.to_owned(), entry.clone());
        drop(entries);
        self.changes.send_modify(|number| *number += 1);
        Ok(entry)
    }

    /// Lets go of what the streams' retention does not keep at `now`; reads, and so may take long.
    pub(crate) fn retain(&self, now: Timestamp) {
        if let Err((stream, error)) = self.store.retain(now) {
            tracing::warn!(stream, %error, "old elements could not be let go");
        }
    }

    /// The streams of the log, for those who write them themselves.
    pub(crate) fn store(&self) -> StreamStore {
        self.store.clone()
    }

    /// The stream of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(name).cloned()
    }

    /// All streams, by name.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.values().cloned().collect()
    }

    /// Changes when a stream comes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{MemoryDisk, Options};

    #[test]
    fn streams_are_kept_as_the_configuration_says_unless_they_say_otherwise() {
        let disk = Box::new(MemoryDisk::new());
        let (store, _) = Store::open(disk, Options::default(), 1).unwrap();
        let mut config = Config::default();
        (config.log.keep_elements, config.log.keep_age_s) = (100, 0);
        let catalogue = Catalogue::open(store, Level::Process, &config).unwrap();
        let schema = StreamSchema::default();
        let kept = |name: &str, retention: Option<Retention>| {
            let entry = catalogue.create(name, &schema, "urn:d", None).unwrap();
            entry.log.set_retention(retention).unwrap();
            let element = StreamElement {
                position: Default::default(),
                source_time: Timestamp(0),
                receive_time: Timestamp(0),
                key: None,
                values: Vec::new(),
                quality: Default::default(),
                origin: None,
            };
            entry
                .log
                .append(&vec![element; 1_000])
                .unwrap()
                .wait()
                .unwrap();
            catalogue.retain(Timestamp(i64::MAX));
            // A mark is written in its turn, before this.
            entry
                .log
                .log()
                .append(vec![(0, vec![])])
                .unwrap()
                .wait()
                .unwrap();
            entry.log.log().last() - entry.log.log().first()
        };
        assert_eq!(kept("a", None), 100);
        assert_eq!(kept("b", Some(Retention::default())), 1_000);
    }
}
