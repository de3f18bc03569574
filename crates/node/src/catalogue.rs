//! The streams of the node: those of the log, with whom they belong to and how fast they are.

mod removal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use chappe_log::{Appended, Level, Store};
use chappe_stream::{
    DeviceIdentity, Opening, Retention, StoreError, StreamElement, StreamLog, StreamSchema,
    StreamStore, Timestamp,
};
use tokio::sync::watch;

use crate::config::Config;

pub(crate) use removal::{Abandoned, LOOK as ABANDONED_LOOK, RemovalError, remove};

/// Pause before an append to a full disk is tried again; meanwhile the sender waits.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(500);
/// Time over which a stream's rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);

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
    /// An operator removes it, which takes two syncs.
    #[error("the stream {0:?} is being removed")]
    Removing(String),
    /// There are too many.
    #[error("there are {0} streams already, as many as log.max_streams allows")]
    TooMany(usize),
    /// The device has too many.
    #[error("the device has {0} streams already, as many as devices.max_streams allows")]
    TooManyOfDevice(usize),
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

    /// As [`Entry::append`], after what the same caller handed over before; see
    /// [`StreamLog::append_after`].
    pub(crate) async fn append_after(
        &self,
        taken_back: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        let append = || self.log.append_after(taken_back, elements);
        self.append_with(append, elements).await
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
        let appended = self.log.when_room(append).await?;
        if let Some(last) = elements.last() {
            self.came(elements.len() as u64, last.source_time);
        }
        Ok(appended)
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

/// The streams by name.
#[derive(Default)]
struct Entries {
    ready: BTreeMap<String, Arc<Entry>>,
    making: BTreeMap<String, Claim>,
    /// Names of streams that are being removed: nobody finds or defines them.
    removing: BTreeSet<String>,
    /// How many of those are not ready for the first time yet.
    new: usize,
}

/// A name whose definition is on its way.
#[derive(Default)]
struct Claim {
    source: String,
    /// How many definitions are.
    times: usize,
    is_new: bool,
}

impl Entries {
    fn owner(&self, name: &str) -> Option<String> {
        match self.making.get(name) {
            Some(claim) => Some(claim.source.clone()),
            None => self.ready.get(name).map(|entry| entry.source()),
        }
    }

    fn claim(&mut self, name: &str, source: &str) {
        if !self.making.contains_key(name) {
            let is_new = !self.ready.contains_key(name);
            self.new += usize::from(is_new);
            let claim = Claim {
                is_new,
                ..Claim::default()
            };
            self.making.insert(name.to_owned(), claim);
        }
        if let Some(claim) = self.making.get_mut(name) {
            claim.source = source.to_owned();
            claim.times += 1;
        }
    }

    fn release(&mut self, name: &str) {
        if let Some(claim) = self.making.get_mut(name) {
            claim.times -= 1;
            if claim.times == 0 {
                self.new -= usize::from(claim.is_new);
                self.making.remove(name);
            }
        }
    }

    fn insert(&mut self, entry: Arc<Entry>) -> Arc<Entry> {
        if let Some(claim) = self.making.get_mut(&entry.name) {
            self.new -= usize::from(std::mem::take(&mut claim.is_new));
        }
        let name = entry.name.clone();
        self.ready.entry(name).or_insert(entry).clone()
    }
}

/// A stream whose definition is on its way.
pub(crate) struct Making<'a> {
    reserved: Reserved<'a>,
    opening: Opening,
}

/// A name that nobody else may take.
struct Reserved<'a> {
    catalogue: &'a Catalogue,
    name: String,
}

impl Making<'_> {
    /// The stream, when its definition is safe.
    pub(crate) async fn made(self) -> Result<Arc<Entry>, CatalogueError> {
        let log = self.opening.await?;
        Ok(self.reserved.catalogue.insert(log)?)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.catalogue.write().release(&self.name);
    }
}

/// Accepts the owners whose streams are `source`'s: itself, and the key that a device had formerly.
fn owner_test(source: &str) -> impl Fn(&str) -> bool {
    let former = crate::devices::former_key(source);
    move |owner| owner == source || former.as_deref() == Some(owner)
}

/// All streams.
pub(crate) struct Catalogue {
    store: StreamStore,
    streams_max: usize,
    level: Level,
    entries: RwLock<Entries>,
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
        let mut entries = Entries::default();
        for log in store.streams() {
            entries.insert(Entry::new(log)?);
        }
        Ok(Self {
            store,
            streams_max: config.log.max_streams as usize,
            level,
            entries: RwLock::new(entries),
            changes: watch::Sender::new(0),
        })
    }

    /// Opens the stream of `source`, making it or renewing its schema as needed; waits while a stream of
    /// this name is being removed. A stream that was stored under the former key of the device `source`
    /// is that device's.
    pub(crate) async fn create(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let begun = self.begin(name, schema, source, level, None, owner_test(source));
        begun.await?.made().await
    }

    /// Queues the definition of the stream of a device: those that are queued together cost one sync.
    /// Otherwise as [`Catalogue::create`]; the stream may also be one of an owner of which `may_take`
    /// says so. Waits only while the log's queue is full.
    pub(crate) async fn begin_of_device(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        identity: Option<&DeviceIdentity>,
        may_take: impl Fn(&str) -> bool,
    ) -> Result<Making<'_>, CatalogueError> {
        let is_own = owner_test(source);
        let may_be_of = |owner: &str| is_own(owner) || may_take(owner);
        self.begin(name, schema, source, None, identity, may_be_of)
            .await
    }

    /// Defines a stream again that was removed, as it was.
    pub(crate) async fn define_again(&self, removed: &Entry) -> Result<Arc<Entry>, CatalogueError> {
        let log = &removed.log;
        let (level, device, source) = (log.log().level(), log.device(), removed.source());
        let (name, schema, is_own) = (&removed.name, log.schema(), owner_test(&source));
        let begun = self.begin(name, &schema, &source, Some(level), device.as_ref(), is_own);
        begun.await?.made().await
    }

    async fn begin(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        identity: Option<&DeviceIdentity>,
        may_be_of: impl Fn(&str) -> bool,
    ) -> Result<Making<'_>, CatalogueError> {
        let mut changes = self.changes();
        loop {
            match self.make(name, schema, source, level, identity, &may_be_of) {
                Err(CatalogueError::Store(StoreError::Log(chappe_log::Error::QueueFull {
                    bytes,
                    ..
                }))) => self.store.room(bytes).await,
                // The sender is part of this catalogue.
                Err(CatalogueError::Removing(_)) => drop(changes.changed().await),
                made => return made,
            }
        }
    }

    /// As [`Catalogue::create`]; the stream may also be one of an owner of which `may_take` says so.
    pub(crate) async fn create_or_take(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        may_take: impl Fn(&str) -> bool,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let is_own = owner_test(source);
        let may_be_of = |owner: &str| is_own(owner) || may_take(owner);
        let begun = self.begin(name, schema, source, level, None, may_be_of);
        begun.await?.made().await
    }

    fn make(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        identity: Option<&DeviceIdentity>,
        may_be_of: impl Fn(&str) -> bool,
    ) -> Result<Making<'_>, CatalogueError> {
        let reserved = self.reserve(name, source, may_be_of)?;
        let level = level.unwrap_or(self.level);
        let opening =
            self.store
                .define_device_stream(name, level, schema, Some(source), identity)?;
        Ok(Making { reserved, opening })
    }

    /// Keeps a name for `source` while the stream is being made.
    fn reserve(
        &self,
        name: &str,
        source: &str,
        may_be_of: impl Fn(&str) -> bool,
    ) -> Result<Reserved<'_>, CatalogueError> {
        let mut entries = self.write();
        if entries.removing.contains(name) {
            return Err(CatalogueError::Removing(name.to_owned()));
        }
        match entries.owner(name) {
            Some(owner) if !owner.is_empty() && !may_be_of(&owner) => {
                let stream = name.to_owned();
                return Err(CatalogueError::Taken { stream, owner });
            }
            Some(_) => {}
            None => {
                let count = entries.ready.len() + entries.new;
                if count >= self.streams_max {
                    return Err(CatalogueError::TooMany(count));
                }
            }
        }
        entries.claim(name, source);
        Ok(Reserved {
            catalogue: self,
            name: name.to_owned(),
        })
    }

    /// Shows a stream that can be used.
    fn insert(&self, log: StreamLog) -> Result<Arc<Entry>, StoreError> {
        if let Some(entry) = self.get(log.name()) {
            return Ok(entry);
        }
        let entry = Entry::new(log)?;
        let entry = self.write().insert(entry);
        self.changes.send_modify(|number| *number += 1);
        Ok(entry)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
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

    /// How many streams belong to `source`, with those whose definition is on its way.
    pub(crate) fn count_of(&self, source: &str) -> usize {
        let may_own = owner_test(source);
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let ready = entries.ready.values().map(|entry| entry.source());
        let making = entries.making.values().filter(|claim| claim.is_new);
        ready.filter(|owner| may_own(owner)).count()
            + making.filter(|claim| may_own(&claim.source)).count()
    }

    /// The stream of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.ready.get(name).cloned()
    }

    /// All streams, by name.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.ready.values().cloned().collect()
    }

    /// The streams of devices of this durable identity, by name.
    pub(crate) fn of_identity(&self, identity: &str) -> Vec<Arc<Entry>> {
        let is_so = |entry: &Arc<Entry>| {
            let device = entry.log.device();
            device.is_some_and(|device| device.identity == identity)
        };
        self.entries().into_iter().filter(is_so).collect()
    }

    /// Changes when a stream is defined, and when a removal ends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
impl Catalogue {
    /// As [`Catalogue::create`], with a log that has room, on a thread that may wait.
    pub(crate) fn create_blocking(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let making = self.make(name, schema, source, level, None, owner_test(source))?;
        Ok(self.insert(making.opening.wait()?)?)
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
            let entry = catalogue
                .create_blocking(name, &schema, "urn:d", None)
                .unwrap();
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

    #[test]
    fn streams_stored_under_a_devices_former_key_stay_its_own() {
        use crate::devices::key_of;
        let disk = Box::new(MemoryDisk::new());
        let (store, _) = Store::open(disk, Options::default(), 1).unwrap();
        let catalogue = Catalogue::open(store, Level::Process, &Config::default()).unwrap();
        let create = |name: &str, source: &str| {
            let schema = StreamSchema::default();
            let made = catalogue.create_blocking(name, &schema, source, None);
            made.map(|entry| entry.source())
        };
        let (device, link) = ("urn:uuid:1", "urn:chappe:link:one");
        assert_eq!(create("d", device).unwrap(), device);
        assert_eq!(create("l", link).unwrap(), link);
        assert_eq!(create("s", "s").unwrap(), "s");
        for (name, endpoint) in [("d", "urn:uuid:2"), ("l", link), ("s", "s")] {
            let made = create(name, &key_of(endpoint));
            assert!(
                matches!(made, Err(CatalogueError::Taken { .. })),
                "{made:?}"
            );
        }
        assert_eq!(create("d", &key_of(device)).unwrap(), key_of(device));
    }
}
