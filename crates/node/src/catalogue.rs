//! The streams of the node: the log's streams with their owners and rates.

mod names;
mod removal;
mod rename;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use chappe_log::{Appended, Level, Store};
use chappe_stream::{
    DeviceIdentity, Opening, Retention, StoreError, StreamElement, StreamLog, StreamSchema,
    StreamStore, Timestamp,
};
use tokio::sync::watch;

use crate::completeness::{RunState, Slot};
use crate::config::Config;

pub(crate) use names::Names;
pub(crate) use removal::{ABANDONED_CHECK_PERIOD, Abandoned, RemovalError, remove};
pub(crate) use rename::{RenameError, forget_name, is_own_name, rename, same_table};

/// The name of the audit stream, which only administrators read and only the node writes.
pub(crate) const AUDIT: &str = "chappe.audit";
/// Pause before an append to a full disk is retried; meanwhile the sender waits.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(500);
/// Time over which a stream's rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// A stream cannot be defined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CatalogueError {
    /// Another device or sensor owns a stream of this name.
    #[error("the stream {stream:?} belongs to {owner}")]
    Taken {
        /// The stream.
        stream: String,
        /// The owner.
        owner: String,
    },
    /// The stream is being removed, which takes two syncs.
    #[error("the stream {0:?} is being removed")]
    Removing(String),
    /// The node has too many streams.
    #[error("the node already has {0} streams, the limit of log.max_streams")]
    TooMany(usize),
    /// The device has too many streams.
    #[error("the device already has {0} streams, the limit of devices.max_streams")]
    TooManyOfDevice(usize),
    /// The name or the schema is invalid, or the log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A stream of the node.
pub(crate) struct Entry {
    /// The name under which it was defined, which identifies it in the node; see [`names`].
    pub(crate) name: String,
    /// Its elements.
    pub(crate) log: StreamLog,
    meter: Mutex<Meter>,
    /// Where it is noted how far a stream of level memory is acknowledged.
    acknowledged: OnceLock<Slot>,
    run_state: Arc<OnceLock<Arc<RunState>>>,
}

#[derive(Debug)]
struct Meter {
    since: Instant,
    count: u64,
    rate: f64,
    /// `None` until it is asked for or an element arrives: reading it from the log for each stream would
    /// delay the start of a node with many.
    last_time: Option<Option<Timestamp>>,
}

impl Entry {
    fn new(log: StreamLog, run_state: &Arc<OnceLock<Arc<RunState>>>) -> Arc<Self> {
        Arc::new(Self {
            name: log.name().to_owned(),
            meter: Mutex::new(Meter {
                since: Instant::now(),
                count: 0,
                rate: 0.0,
                last_time: None,
            }),
            acknowledged: OnceLock::new(),
            run_state: run_state.clone(),
            log,
        })
    }

    /// The key of its device, or the name of its virtual sensor.
    pub(crate) fn source(&self) -> String {
        self.log.origin().unwrap_or_default()
    }

    /// The name to show.
    pub(crate) fn current_name(&self) -> String {
        self.log.current_name()
    }

    /// Its key in the registry.
    pub(crate) fn key(&self) -> String {
        key(&self.name)
    }

    /// Appends a batch to the log; waits while the log's queue is full.
    pub(crate) async fn append(&self, elements: &[StreamElement]) -> Result<Appended, StoreError> {
        self.append_with(|| self.log.append(elements), elements)
            .await
    }

    /// Like [`Entry::append`], in order after the caller's earlier batches; see
    /// [`StreamLog::append_after`].
    pub(crate) async fn append_after(
        &self,
        rollbacks_seen: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        let append = || self.log.append_after(rollbacks_seen, elements);
        self.append_with(append, elements).await
    }

    /// Like [`Entry::append`], for elements derived from records that are not yet durable; see
    /// [`StreamLog::append_derived`].
    pub(crate) async fn append_derived(
        &self,
        rollbacks_seen: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        let append = || self.log.append_derived(rollbacks_seen, elements);
        self.append_with(append, elements).await
    }

    async fn append_with(
        &self,
        append: impl Fn() -> Result<Appended, StoreError>,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        let appended = self.log.when_room(append).await?;
        if let Some(last) = elements.last() {
            self.record_arrivals(elements.len() as u64, last.source_time);
        }
        Ok(appended)
    }

    /// Counts arrived elements; `newest` is the source time of the last one.
    pub(crate) fn record_arrivals(&self, elements: u64, newest: Timestamp) {
        let mut meter = self.meter();
        meter.roll();
        meter.count += elements;
        meter.last_time = Some(Some(newest));
        drop(meter);
        // What is acknowledged at this level before it is written can be lost, and is then counted.
        let log = self.log.log();
        if log.level() == Level::Memory
            && let Some(state) = self.run_state.get()
        {
            self.acknowledged.get_or_init(|| state.slot()).note(log);
        }
    }

    /// The current rate in elements per second.
    pub(crate) fn rate_per_s(&self) -> f64 {
        let mut meter = self.meter();
        meter.roll();
        (meter.rate * 100.0).round() / 100.0
    }

    /// The source time of the newest element; `None` without one, or if it cannot be read.
    pub(crate) fn last_time(&self) -> Option<Timestamp> {
        if let Some(known) = self.meter().last_time {
            return known;
        }
        let newest = self.log.newest(1).unwrap_or_default();
        let time = newest.last().map(|element| element.source_time);
        *self.meter().last_time.get_or_insert(time)
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
            // A new stream gets a rate before its first window ends.
            self.rate = self.count as f64 / elapsed.as_secs_f64();
        }
    }
}

/// The plain name of a stream's table in SQL.
pub(crate) fn table_name(stream: &str) -> String {
    stream.replace(['.', '-'], "_")
}

/// The key in the registry of the stream that was defined under this name.
pub(crate) fn key(stream: &str) -> String {
    format!("urn:chappe:stream:{stream}")
}

/// The name under which the stream with this key in the registry was defined.
pub(crate) fn stream_name(key: &str) -> Option<&str> {
    key.strip_prefix("urn:chappe:stream:")
}

/// Recent changes that are remembered, for parts that follow new streams.
const RECENT_MAX: usize = 1_024;

/// The streams by name.
#[derive(Default)]
struct Entries {
    ready: BTreeMap<String, Arc<Entry>>,
    /// The source and the device's identity by which a ready stream is counted below.
    counted: BTreeMap<String, (String, Option<String>)>,
    /// Number of ready streams of each source.
    of_source: HashMap<String, usize>,
    /// Names of the ready streams of each identity.
    of_identity: HashMap<String, BTreeSet<String>>,
    /// The newest streams with the number of their change, oldest first, without a gap.
    recent: VecDeque<(u64, Arc<Entry>)>,
    /// Number of streams defined so far.
    change: u64,
    pending: BTreeMap<String, Claim>,
    /// Streams that are being removed: they can be neither found nor defined.
    removing: BTreeSet<String>,
    /// Number of pending streams that were never ready.
    new_count: usize,
}

/// A name whose definition is pending.
#[derive(Default)]
struct Claim {
    source: String,
    /// Number of pending definitions.
    definitions: usize,
    is_new: bool,
}

impl Entries {
    fn owner(&self, name: &str) -> Option<String> {
        match self.pending.get(name) {
            Some(claim) => Some(claim.source.clone()),
            None => self.ready.get(name).map(|entry| entry.source()),
        }
    }

    fn claim(&mut self, name: &str, source: &str) {
        if !self.pending.contains_key(name) {
            let is_new = !self.ready.contains_key(name);
            self.new_count += usize::from(is_new);
            let claim = Claim {
                is_new,
                ..Claim::default()
            };
            self.pending.insert(name.to_owned(), claim);
        }
        if let Some(claim) = self.pending.get_mut(name) {
            claim.source = source.to_owned();
            claim.definitions += 1;
        }
    }

    fn release(&mut self, name: &str) {
        if let Some(claim) = self.pending.get_mut(name) {
            claim.definitions -= 1;
            if claim.definitions == 0 {
                self.new_count -= usize::from(claim.is_new);
                self.pending.remove(name);
            }
        }
    }

    fn insert(&mut self, entry: Arc<Entry>) -> Arc<Entry> {
        if let Some(claim) = self.pending.get_mut(&entry.name) {
            self.new_count -= usize::from(std::mem::take(&mut claim.is_new));
        }
        let entry = match self.ready.get(&entry.name) {
            Some(known) => known.clone(),
            None => {
                self.change += 1;
                if self.recent.len() >= RECENT_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back((self.change, entry.clone()));
                self.ready.insert(entry.name.clone(), entry.clone());
                entry
            }
        };
        self.count(&entry);
        entry
    }

    /// Counts a stream by its present source and identity.
    fn count(&mut self, entry: &Entry) {
        let identity = entry.log.device().map(|device| device.identity);
        let present = (entry.source(), identity);
        if self.counted.get(&entry.name) == Some(&present) {
            return;
        }
        self.discount(&entry.name);
        let (source, identity) = &present;
        *self.of_source.entry(source.clone()).or_default() += 1;
        if let Some(identity) = identity {
            let names = self.of_identity.entry(identity.clone()).or_default();
            names.insert(entry.name.clone());
        }
        self.counted.insert(entry.name.clone(), present);
    }

    fn discount(&mut self, name: &str) {
        let Some((source, identity)) = self.counted.remove(name) else {
            return;
        };
        if let Some(count) = self.of_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.of_source.remove(&source);
            }
        }
        if let Some(identity) = identity
            && let Some(names) = self.of_identity.get_mut(&identity)
        {
            names.remove(name);
            if names.is_empty() {
                self.of_identity.remove(&identity);
            }
        }
    }

    /// Takes a stream out.
    fn remove(&mut self, name: &str) -> Option<Arc<Entry>> {
        self.discount(name);
        self.recent.retain(|(_, entry)| entry.name != name);
        self.ready.remove(name)
    }
}

/// A stream whose definition is queued but not yet durable.
pub(crate) struct PendingStream<'a> {
    reserved: ReservedName<'a>,
    opening: Opening,
}

/// A name reserved for one source; released when dropped.
struct ReservedName<'a> {
    catalogue: &'a Catalogue,
    name: String,
}

impl PendingStream<'_> {
    /// Waits until the definition is durable.
    pub(crate) async fn finish(self) -> Result<Arc<Entry>, CatalogueError> {
        let log = self.opening.await?;
        Ok(self.reserved.catalogue.insert(log))
    }
}

impl Drop for ReservedName<'_> {
    fn drop(&mut self) {
        self.catalogue.write().release(&self.name);
    }
}

/// Accepts the owners whose streams belong to `source`: `source` itself, and a device's former key.
fn owner_test(source: &str) -> impl Fn(&str) -> bool {
    let former = crate::devices::former_key(source);
    move |owner| owner == source || former.as_deref() == Some(owner)
}

/// All streams of the node.
pub(crate) struct Catalogue {
    store: StreamStore,
    streams_max: usize,
    level: Level,
    entries: RwLock<Entries>,
    names: Arc<Names>,
    changes: watch::Sender<u64>,
    run_state: Arc<OnceLock<Arc<RunState>>>,
}

impl Catalogue {
    /// Opens the streams of the log; new ones get `level` unless they request another.
    pub(crate) fn open(store: Store, level: Level, config: &Config) -> Result<Self, StoreError> {
        let limit = |number: u64| Some(number).filter(|number| *number > 0);
        let retention = Retention {
            elements: limit(config.log.keep_elements),
            age: limit(config.log.keep_age_s).map(Duration::from_secs),
        };
        let store = StreamStore::with_retention(store, retention);
        let mut entries = Entries::default();
        let run_state = Arc::<OnceLock<Arc<RunState>>>::default();
        let names = Arc::<Names>::default();
        for log in store.streams() {
            names.write().learn(&log);
            entries.insert(Entry::new(log, &run_state));
        }
        Ok(Self {
            store,
            streams_max: config.log.max_streams as usize,
            level,
            entries: RwLock::new(entries),
            names,
            changes: watch::Sender::new(0),
            run_state,
        })
    }

    /// Sets where it is noted how far streams of level memory are acknowledged.
    pub(crate) fn set_run_state(&self, state: Arc<RunState>) {
        // It is set once, at the start.
        let _ = self.run_state.set(state);
    }

    /// Opens the stream of `source`, creating it or updating its schema as needed; waits while a stream
    /// of this name is being removed. A stream stored under the device's former key belongs to it. Other names of a
    /// stream of `source` refer to it.
    pub(crate) async fn create(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let is_own = owner_test(source);
        let renamed = self.get(name).filter(|entry| is_own(&entry.source()));
        let name = renamed.as_ref().map_or(name, |entry| &entry.name);
        let pending = self.define(name, schema, source, level, None, is_own);
        pending.await?.finish().await
    }

    /// Queues the definition of a device's stream, so that many definitions share one sync. Otherwise
    /// like [`Catalogue::create_or_take`]: a device has many streams, and the name that one was given must not
    /// make it take the elements of another. Waits only while the log's queue is full.
    pub(crate) async fn define_for_device(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        identity: Option<&DeviceIdentity>,
        may_take: impl Fn(&str) -> bool,
    ) -> Result<PendingStream<'_>, CatalogueError> {
        let is_own = owner_test(source);
        let is_allowed = |owner: &str| is_own(owner) || may_take(owner);
        self.define(name, schema, source, None, identity, is_allowed)
            .await
    }

    /// Defines a removed stream again, unchanged.
    pub(crate) async fn redefine(&self, removed: &Entry) -> Result<Arc<Entry>, CatalogueError> {
        let log = &removed.log;
        let (level, device, source) = (log.log().level(), log.device(), removed.source());
        let (name, schema, is_own) = (&removed.name, log.schema(), owner_test(&source));
        let pending = self.define(name, &schema, &source, Some(level), device.as_ref(), is_own);
        pending.await?.finish().await
    }

    async fn define(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        identity: Option<&DeviceIdentity>,
        is_allowed: impl Fn(&str) -> bool,
    ) -> Result<PendingStream<'_>, CatalogueError> {
        let mut changes = self.changes();
        loop {
            match self.try_define(name, schema, source, level, identity, &is_allowed) {
                Err(CatalogueError::Store(StoreError::Log(chappe_log::Error::QueueFull {
                    bytes,
                    ..
                }))) => self.store.room(bytes).await,
                // Cannot fail: the sender is part of this catalogue.
                Err(CatalogueError::Removing(_)) => drop(changes.changed().await),
                defined => return defined,
            }
        }
    }

    /// Like [`Catalogue::create`], but also takes over the stream of an owner that `may_take` accepts, and only under
    /// the name with which the stream was defined.
    pub(crate) async fn create_or_take(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        may_take: impl Fn(&str) -> bool,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let is_own = owner_test(source);
        let is_allowed = |owner: &str| is_own(owner) || may_take(owner);
        let pending = self.define(name, schema, source, level, None, is_allowed);
        pending.await?.finish().await
    }

    fn try_define(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
        identity: Option<&DeviceIdentity>,
        is_allowed: impl Fn(&str) -> bool,
    ) -> Result<PendingStream<'_>, CatalogueError> {
        let reserved = self.reserve(name, source, is_allowed)?;
        let level = level.unwrap_or(self.level);
        let opening =
            self.store
                .define_device_stream(name, level, schema, Some(source), identity)?;
        Ok(PendingStream { reserved, opening })
    }

    /// Reserves a name for `source` while the stream is being defined.
    fn reserve(
        &self,
        name: &str,
        source: &str,
        is_allowed: impl Fn(&str) -> bool,
    ) -> Result<ReservedName<'_>, CatalogueError> {
        let mut entries = self.write();
        if entries.removing.contains(name) {
            return Err(CatalogueError::Removing(name.to_owned()));
        }
        if let Some(first) = self.names.read().first(name) {
            let stream = name.to_owned();
            let owner = entries.owner(first).unwrap_or_default();
            return Err(CatalogueError::Taken { stream, owner });
        }
        match entries.owner(name) {
            Some(owner) if !owner.is_empty() && !is_allowed(&owner) => {
                let stream = name.to_owned();
                return Err(CatalogueError::Taken { stream, owner });
            }
            Some(_) => {}
            None => {
                // The audit stream does not count: a node that is full of streams still records changes.
                let audit = usize::from(entries.ready.contains_key(AUDIT));
                let count = entries.ready.len() - audit + entries.new_count;
                if count >= self.streams_max && name != AUDIT {
                    return Err(CatalogueError::TooMany(count));
                }
            }
        }
        entries.claim(name, source);
        Ok(ReservedName {
            catalogue: self,
            name: name.to_owned(),
        })
    }

    /// Adds a stream that is ready for use.
    fn insert(&self, log: StreamLog) -> Arc<Entry> {
        let known = self.get(log.name());
        let is_new = known.is_none();
        // A known one may have another source now.
        let entry = known.unwrap_or_else(|| Entry::new(log, &self.run_state));
        let entry = self.write().insert(entry);
        if is_new {
            self.changes.send_modify(|number| *number += 1);
        }
        entry
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the elements that retention no longer keeps at `now`. Reads the disk, so it may
    /// take long.
    pub(crate) fn retain(&self, now: Timestamp) {
        if let Err((stream, error)) = self.store.retain(now) {
            tracing::warn!(stream, %error, "cannot release old elements");
        }
    }

    /// The streams of the log, for parts that write them directly.
    pub(crate) fn store(&self) -> StreamStore {
        self.store.clone()
    }

    /// The number of streams that belong to `source`, pending ones included.
    pub(crate) fn stream_count(&self, source: &str) -> usize {
        let is_own = owner_test(source);
        let former = crate::devices::former_key(source);
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let owners = std::iter::once(source).chain(former.as_deref().filter(|it| *it != source));
        let ready = owners.filter_map(|owner| entries.of_source.get(owner));
        let pending = entries.pending.values().filter(|claim| claim.is_new);
        ready.sum::<usize>() + pending.filter(|claim| is_own(&claim.source)).count()
    }

    /// The stream that has or had this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.ready.get(name) {
            return Some(entry.clone());
        }
        let known = self.names.read();
        entries.ready.get(known.first(name)?).cloned()
    }

    /// The stream that was defined under this name, which it may share with no other.
    pub(crate) fn defined_as(&self, first: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.ready.get(first).cloned()
    }

    /// The names of renamed streams.
    pub(crate) fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// All streams, by the names under which they were defined.
    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.ready.values().cloned().collect()
    }

    /// All streams with their current names, by these.
    pub(crate) fn by_current_name(&self) -> Vec<(String, Arc<Entry>)> {
        let named = |entry: Arc<Entry>| (entry.current_name(), entry);
        let mut all: Vec<_> = self.entries().into_iter().map(named).collect();
        all.sort_by(|one, two| one.0.cmp(&two.0));
        all
    }

    /// The streams of devices with this durable identity, by name.
    pub(crate) fn streams_of_identity(&self, identity: &str) -> Vec<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let names = entries.of_identity.get(identity).into_iter().flatten();
        let found = names.filter_map(|name| entries.ready.get(name));
        found.cloned().collect()
    }

    /// The streams defined after the change `seen`, with the number of the newest change; all streams by
    /// name if that is too long ago, or with `seen` 0.
    pub(crate) fn defined_after(&self, seen: u64) -> (u64, Vec<Arc<Entry>>) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let oldest = entries.recent.front().map(|(change, _)| *change);
        let is_remembered = seen > 0 && oldest.is_none_or(|oldest| oldest <= seen + 1);
        let defined = if is_remembered && (oldest.is_some() || seen == entries.change) {
            let new = entries.recent.iter().filter(|(change, _)| *change > seen);
            new.map(|(_, entry)| entry.clone()).collect()
        } else {
            entries.ready.values().cloned().collect()
        };
        (entries.change, defined)
    }

    /// Changes when a stream is defined or renamed, and when a removal ends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
impl Catalogue {
    /// Like [`Catalogue::create`], for tests: the log must have room and the thread may block.
    pub(crate) fn create_blocking(
        &self,
        name: &str,
        schema: &StreamSchema,
        source: &str,
        level: Option<Level>,
    ) -> Result<Arc<Entry>, CatalogueError> {
        let pending = self.try_define(name, schema, source, level, None, owner_test(source))?;
        Ok(self.insert(pending.opening.wait()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{MemoryDisk, Options};

    #[test]
    fn a_streams_own_retention_overrides_the_configured_one() {
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
            // The retention mark is queued before this record, so it is written first.
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
    fn streams_are_counted_by_their_present_source_and_new_ones_are_found() {
        let disk = Box::new(MemoryDisk::new());
        let (store, _) = Store::open(disk, Options::default(), 1).unwrap();
        let catalogue = Catalogue::open(store, Level::Process, &Config::default()).unwrap();
        let schema = StreamSchema::default();
        let create = |name: &str, source: &str| {
            let created = catalogue.create_blocking(name, &schema, source, None);
            created.unwrap()
        };
        let names = |defined: Vec<Arc<Entry>>| {
            let names = defined.iter().map(|entry| entry.name.clone());
            names.collect::<Vec<_>>()
        };
        for number in 0..3 {
            create(&format!("s{number}"), "urn:uuid:1");
        }
        assert_eq!(catalogue.stream_count("urn:uuid:1"), 3);
        let key = crate::devices::device_key("urn:uuid:1");
        // Its former key counts too, and the stream that it takes over counts once.
        assert_eq!(catalogue.stream_count(&key), 3);
        create("s0", &key);
        assert_eq!(catalogue.stream_count(&key), 3);
        assert_eq!(catalogue.stream_count("urn:uuid:1"), 2);
        let (seen, all) = catalogue.defined_after(0);
        assert_eq!(names(all), ["s0", "s1", "s2"]);
        create("a", "urn:uuid:2");
        assert_eq!(names(catalogue.defined_after(seen).1), ["a"]);
        for number in 0..RECENT_MAX + 1 {
            create(&format!("m{number}"), "urn:uuid:2");
        }
        let (newest, all) = catalogue.defined_after(seen);
        assert_eq!(all.len(), RECENT_MAX + 5);
        assert_eq!(names(catalogue.defined_after(newest - 1).1), ["m1024"]);
        assert!(catalogue.defined_after(newest).1.is_empty());
    }

    #[test]
    fn streams_stored_under_a_devices_former_key_stay_its_own() {
        use crate::devices::device_key;
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
            let made = create(name, &device_key(endpoint));
            assert!(
                matches!(made, Err(CatalogueError::Taken { .. })),
                "{made:?}"
            );
        }
        assert_eq!(
            create("d", &device_key(device)).unwrap(),
            device_key(device)
        );
    }
}
