//! The registry itself: the state in memory and its journal.
//!
//! A change is appended to the journal first; memory changes once the journal has acknowledged it.
//! Readers use a snapshot of memory and never wait for writers. Many changes may be in flight, so
//! one sync of the journal commits them all.

mod apply;
mod follow;
mod leases;
mod publication;
mod room;
mod statistics;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};

use chappe_identity::Principal;

use crate::entity::Entity;
use crate::error::Error;
use crate::feed::{Entry, FEED_CAPACITY, Feed, Subscription};
use crate::journal::{Journal, JournalError, Tail};
use crate::lease_clock::LeaseClock;
use crate::limits::Room;
use crate::pending::Pending;
use crate::record::{Record, Step};
use crate::rights::Right;
use crate::state::State;
pub use leases::Expiry;
use leases::{LeaseChanges, note_leases};
use publication::{Again, InFlight};
pub use publication::{Attempts, Publication};
pub use statistics::Statistics;

use room::{Amount, Taken};

/// Attempts to append while other writers append first.
const MAX_ATTEMPTS: usize = 8;
/// Attempts at a change that only its receipt refuses, because another node was faster. With each of them some
/// node has made a change.
const MAX_CONFLICTS: usize = 256;
/// Maximum number of changes in flight; each holds its entity in memory.
const MAX_PENDING: usize = 4_096;
/// The journal is compacted when it holds this many times the existing entities ...
const COMPACT_FACTOR: u64 = 4;
/// ... and at least this many records since the last snapshot: a small registry may keep its
/// history.
const COMPACT_FLOOR: u64 = 4_096;
/// ... or when so many times their bytes were appended to it, and at least this many.
const COMPACT_FLOOR_BYTES: usize = 64 * 1024 * 1024;
/// Maximum size of a batch of changes as a record; reason: it is held in memory several times.
pub const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Size of one batch of a snapshot in bytes; changes wait while a batch is appended.
const SNAPSHOT_BATCH_BYTES: usize = 256 * 1024;
/// Number of records in one batch of a snapshot; each is a change in flight.
const SNAPSHOT_BATCH_RECORDS: usize = 512;

/// The semantic registry. Clones share it.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    journal: Box<dyn Journal>,
    state: RwLock<Arc<State>>,
    writer: Mutex<Writer>,
    /// The last position that memory contains, at least.
    visible: AtomicU64,
    feed: Feed,
    /// Held by the snapshot that is being written.
    compacting: Mutex<()>,
    /// The entities in flight, by owner.
    in_flight: Mutex<HashMap<String, Amount>>,
    /// Changes in flight that nobody waits for.
    dropped: Arc<Dropped>,
}

/// Changes whose publications were dropped before they resolved. Their receipts are polled by the
/// next reader once the journal has something to say: a waker may not take the writer's lock.
#[derive(Default)]
struct Dropped {
    receipts: Mutex<Vec<InFlight>>,
    is_due: AtomicBool,
    feed: Feed,
}

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.feed.wake();
    }
}

struct Writer {
    /// The last position assigned.
    assigned: u64,
    /// The last position that memory contains.
    applied: u64,
    /// Changes with a position that are not yet in memory, in order.
    pending: Pending,
    /// Memory with all pending changes, as long as transactions need it.
    ahead: Option<Arc<State>>,
    /// Records in the journal since the newest snapshot started.
    since_snapshot: u64,
    /// Bytes appended to it since then by this registry.
    bytes_since_snapshot: usize,
    /// Where the newest snapshot starts, as far as it is known.
    snapshot: u64,
    /// The journal's conflicts when memory was up to date.
    conflicts: u64,
    stopped: Option<String>,
    /// Memory is read from the journal for the first time.
    is_opening: bool,
    /// The changes up to this position are known only as state: the feed has no room for them.
    forgotten: u64,
    leases: LeaseClock,
}

impl Writer {
    fn tail(&self) -> Tail {
        Tail {
            last: self.assigned,
            conflicts: self.conflicts,
        }
    }
}

impl Registry {
    /// Opens the registry that `journal` describes.
    ///
    /// # Errors
    /// The journal cannot be read, or holds a record of an unknown form; such a record is never
    /// skipped.
    pub fn open(journal: impl Journal) -> Result<Self, Error> {
        let start = journal.snapshot();
        let feed = Feed::default();
        let forgotten = journal.last().saturating_sub(FEED_CAPACITY as u64);
        let inner = Inner {
            journal: Box::new(journal),
            state: RwLock::new(Arc::new(State::loading())),
            writer: Mutex::new(Writer {
                assigned: start.saturating_sub(1),
                applied: start.saturating_sub(1),
                pending: Pending::default(),
                ahead: None,
                since_snapshot: 0,
                bytes_since_snapshot: 0,
                snapshot: start,
                conflicts: 0,
                stopped: None,
                is_opening: true,
                forgotten,
                leases: LeaseClock::default(),
            }),
            visible: AtomicU64::new(0),
            feed: feed.clone(),
            compacting: Mutex::default(),
            in_flight: Mutex::default(),
            dropped: Arc::new(Dropped {
                feed,
                ..Dropped::default()
            }),
        };
        inner.feed.start_after(start.saturating_sub(1));
        let registry = Self {
            inner: Arc::new(inner),
        };
        let mut writer = registry.inner.writer();
        registry.inner.catch_up(&mut writer)?;
        let state = &registry.inner.state;
        let mut state = state.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut state).finish_loading();
        drop(state);
        writer.is_opening = false;
        drop(writer);
        let inner = Arc::downgrade(&registry.inner);
        registry.inner.journal.watch(Box::new(move || {
            // What fails now is tried again with the next change, and by whoever changes something.
            let inner = inner.upgrade();
            inner.is_some_and(|inner| {
                let _ = inner.catch_up(&mut inner.writer());
                true
            })
        }));
        Ok(registry)
    }

    /// Whether other nodes change it too, so that a change in flight can meet a conflict.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.inner.journal.is_shared()
    }

    /// Publishes `entity`, replacing the one with the same key.
    ///
    /// Once the publication resolves, the entity is visible and durable. Dropping the publication
    /// does not cancel it: readers see the entity once it is durable.
    ///
    /// # Errors
    /// [`Error::InvalidEntity`], [`Error::NotOwner`] if the key belongs to another owner,
    /// [`Error::Full`] at a limit, [`Error::Busy`] while too many changes are in flight, or the
    /// journal's error.
    pub fn publish(&self, entity: Entity) -> Result<Publication, Error> {
        self.publish_within(entity, &Room::default())
    }

    /// Publishes `entity` as [`Registry::publish`] does, if there is room for it.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if the entities would have more bytes than `room` allows; those of
    /// [`Registry::publish`].
    pub fn publish_within(&self, entity: Entity, room: &Room) -> Result<Publication, Error> {
        entity.check_published()?;
        let is_shared = self.inner.journal.is_shared();
        let again = is_shared.then(|| Again::Publish(Box::new(entity.clone()), *room));
        let mut taken = None;
        let mut publication = self.append(Record::Publish(entity), |inner, writer, record| {
            taken = None;
            for entity in record.published() {
                let owner = inner.owner_of(writer, &entity.key);
                if let Some(owner) = owner.filter(|owner| *owner != entity.owner) {
                    let key = entity.key.clone();
                    return Err(Error::NotOwner { key, owner });
                }
                inner.snapshot_of_memory().admits(entity)?;
            }
            taken = inner.take_room(record, room)?;
            Ok(())
        })?;
        publication._taken = taken;
        publication.set_again(again);
        Ok(publication)
    }

    /// Removes the entity `key` with all its triples.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no entity has this key, [`Error::Busy`] while too many changes are in
    /// flight, or the journal's error.
    pub fn remove(&self, key: &str) -> Result<Publication, Error> {
        let record = Record::Remove(key.to_owned());
        let mut publication = self.append(record, |inner, writer, _| {
            let owner = inner.owner_of(writer, key);
            owner
                .map(|_| ())
                .ok_or_else(|| Error::Unknown(key.to_owned()))
        })?;
        let is_shared = self.inner.journal.is_shared();
        publication.set_again(is_shared.then(|| Again::Remove(key.to_owned())));
        Ok(publication)
    }

    /// Applies several changes at once: all of them become visible and durable, or none.
    ///
    /// `plan` reads the state with all earlier changes, durable or not, and returns the changes
    /// and a value. It is called again when another writer of the journal was faster. If only the
    /// receipt reports that, the publication fails with [`Error::is_conflict`], and the caller plans again
    /// ([`Attempts`]).
    /// Without changes there is nothing to wait for, unless earlier changes are in flight: what the plan read
    /// counts once they are durable, so the publication resolves after them. What the batch publishes must fit
    /// into `room`.
    ///
    /// # Errors
    /// The plan's error, [`Error::TooLarge`] for more than [`MAX_BATCH_BYTES`], or as
    /// [`Registry::publish_within`].
    pub(crate) fn transact<T, E: From<Error>>(
        &self,
        room: &Room,
        mut plan: impl FnMut(&State) -> Result<(Vec<Step>, T), E>,
    ) -> Result<(Option<Publication>, T), E> {
        let mut writer = self.inner.writer();
        self.inner.apply_pending(&mut writer, 0);
        for _ in 0..MAX_ATTEMPTS {
            self.inner.check_room(&writer)?;
            if self.inner.journal.last() > writer.assigned {
                self.inner.catch_up(&mut writer)?;
            }
            let ahead = self.inner.ahead(&mut writer);
            let (steps, value) = plan(&ahead)?;
            if steps.is_empty() && writer.pending.is_empty() {
                return Ok((None, value));
            }
            let record = Record::Batch(steps);
            for entity in record.published() {
                entity.check_published()?;
            }
            ahead.admits_all(record.published())?;
            drop(ahead);
            let taken = self.inner.take_room(&record, room)?;
            let bytes = record
                .encode()
                .map_err(|error| E::from(JournalError::Failed(error).into()))?;
            if bytes.len() > MAX_BATCH_BYTES {
                let (bytes, limit) = (bytes.len(), MAX_BATCH_BYTES);
                return Err(Error::TooLarge { bytes, limit }.into());
            }
            match self.inner.try_append(&mut writer, record, bytes)? {
                Ok(mut publication) => {
                    publication._taken = taken;
                    return Ok((Some(publication), value));
                }
                Err(_moved) => {}
            }
        }
        let last = writer.assigned;
        Err(Error::from(JournalError::Moved { last }).into())
    }

    /// Appends a record that passes `check`. It is checked again when another writer of the
    /// journal was faster: that one may have taken the key or the last room.
    fn append(
        &self,
        mut record: Record,
        mut check: impl FnMut(&Arc<Inner>, &Writer, &Record) -> Result<(), Error>,
    ) -> Result<Publication, Error> {
        let bytes = record.encode().map_err(JournalError::Failed)?;
        let mut writer = self.inner.writer();
        for _ in 0..MAX_ATTEMPTS {
            check(&self.inner, &writer, &record)?;
            self.inner.check_room(&writer)?;
            match self.inner.try_append(&mut writer, record, bytes.clone())? {
                Ok(publication) => return Ok(publication),
                Err(moved) => record = moved,
            }
        }
        let last = writer.assigned;
        Err(JournalError::Moved { last }.into())
    }

    /// The entity `key`, if `principal` may see it.
    #[must_use]
    pub fn get(&self, key: &str, principal: &Principal) -> Option<Entity> {
        self.snapshot()
            .get(key)
            .filter(|entity| entity.permits(principal, Right::Read))
    }

    /// The remembered changes of the entity `key`, oldest first, and the first revision of which all changes are
    /// remembered.
    pub(crate) fn remembered(&self, key: &str) -> (Vec<(u64, Entry)>, u64) {
        self.inner.apply_dropped();
        let (mut entries, begins_at) = self.inner.feed.of_key(key);
        // Of a batch whose first changes are forgotten the rest is not shown either.
        entries.retain(|(revision, _)| *revision >= begins_at);
        (entries, begins_at)
    }

    pub(crate) fn journal(&self) -> &dyn Journal {
        &*self.inner.journal
    }

    /// Memory as it is now.
    pub(crate) fn snapshot(&self) -> Arc<State> {
        self.inner.apply_dropped();
        self.inner.snapshot_of_memory()
    }

    /// Changes from `from_revision` on, as far as `principal` may see them. Pass `revision() + 1`
    /// for future changes only.
    #[must_use]
    pub fn subscribe(&self, from_revision: u64, principal: Principal) -> Subscription {
        let inner = Arc::downgrade(&self.inner);
        let before_reading = move || {
            if let Some(inner) = inner.upgrade() {
                inner.apply_dropped();
            }
        };
        let feed = &self.inner.feed;
        feed.subscribe(from_revision, principal, Arc::new(before_reading))
    }

    /// Position of the last change in memory.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.apply_dropped();
        self.inner.feed.last()
    }

    /// Applies the records that other writers have appended to a shared journal.
    ///
    /// # Errors
    /// The journal's error, or a record that is not understood.
    pub fn refresh(&self) -> Result<(), Error> {
        self.inner.catch_up(&mut self.inner.writer())
    }

    /// Whether the journal has grown far beyond the existing entities.
    #[must_use]
    pub fn needs_compaction(&self) -> bool {
        let (since, bytes) = {
            let mut writer = self.inner.writer();
            let snapshot = self.inner.journal.snapshot();
            if snapshot > writer.snapshot {
                // Another node has written it.
                writer.snapshot = snapshot;
                writer.since_snapshot = (writer.applied + 1).saturating_sub(snapshot);
                writer.bytes_since_snapshot = 0;
            }
            (writer.since_snapshot, writer.bytes_since_snapshot)
        };
        let state = self.inner.snapshot_of_memory();
        let records = COMPACT_FACTOR.saturating_mul(state.len() as u64);
        let most = state.bytes().saturating_mul(COMPACT_FACTOR as usize);
        since >= COMPACT_FLOOR.max(records) || bytes >= COMPACT_FLOOR_BYTES.max(most)
    }

    /// Writes a snapshot into the journal, which may then remove earlier records. Other changes
    /// are made meanwhile: the snapshot starts before them, and leaves out the entities that they
    /// change. Call it on a thread that may block when [`Registry::needs_compaction`] is true. Does
    /// nothing while another node writes a snapshot of a shared journal.
    ///
    /// # Errors
    /// The journal's error; an unfinished snapshot is harmless.
    pub fn compact(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let compacting = inner.compacting.lock();
        let _compacting = compacting.unwrap_or_else(PoisonError::into_inner);
        if !inner.journal.begin_snapshot()? {
            return Ok(());
        }
        let written = self.write_snapshot();
        inner.journal.end_snapshot();
        written
    }

    fn write_snapshot(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let (state, first) = {
            let writer = inner.writer();
            if let Some(reason) = &writer.stopped {
                return Err(Error::Stopped(reason.clone()));
            }
            (inner.snapshot_of_memory(), writer.applied + 1)
        };
        let mut in_flight = inner.keep_all(&state, state.entities())?;
        // A change in flight may be refused. Then the entity remains as it was, and belongs to the snapshot.
        for _ in 0..MAX_CONFLICTS {
            if in_flight.is_empty() {
                break;
            }
            inner.settle()?;
            let entities = in_flight.iter().filter_map(|key| state.get(key));
            in_flight = inner.keep_all(&state, entities)?;
        }
        if !in_flight.is_empty() {
            return Err(Error::Busy {
                value: MAX_CONFLICTS,
            });
        }
        inner.journal.set_snapshot(first)?;
        let mut writer = inner.writer();
        writer.snapshot = writer.snapshot.max(first);
        writer.since_snapshot = (writer.assigned + 1).saturating_sub(first);
        writer.bytes_since_snapshot = 0;
        Ok(())
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the receipt of a dropped publication.
    fn adopt(self: &Arc<Self>, change: InFlight) {
        let receipts = self.dropped.receipts.lock();
        let mut receipts = receipts.unwrap_or_else(PoisonError::into_inner);
        receipts.push(change);
        drop(receipts);
        self.dropped.is_due.store(true, Ordering::Release);
        self.apply_dropped();
    }

    /// Applies those changes nobody waits for that the journal has acknowledged.
    fn apply_dropped(self: &Arc<Self>) {
        if !self.dropped.is_due.swap(false, Ordering::AcqRel) {
            return;
        }
        let waker = Waker::from(Arc::clone(&self.dropped));
        let mut context = Context::from_waker(&waker);
        let mut done = Vec::new();
        let receipts = self.dropped.receipts.lock();
        let mut receipts = receipts.unwrap_or_else(PoisonError::into_inner);
        receipts.retain_mut(
            |change| match Pin::new(&mut change.receipt).poll(&mut context) {
                Poll::Ready(outcome) => {
                    done.push((change.position, outcome, change.again.take()));
                    false
                }
                Poll::Pending => true,
            },
        );
        drop(receipts);
        for (position, outcome, again) in done {
            // A failure has stopped the writer, or the change was refused: nobody asked.
            if let Err(error) = self.resolve(position, outcome)
                && error.is_conflict()
                && let Some(again) = again
            {
                let _ = again.submit(self);
            }
        }
    }

    /// Makes a change visible, or takes it back.
    fn resolve(&self, position: u64, outcome: Result<(), JournalError>) -> Result<u64, Error> {
        match outcome {
            // Whoever took the lock meanwhile has applied it with the others of its sync.
            Ok(()) if self.visible.load(Ordering::Acquire) >= position => Ok(position),
            Ok(()) => match self.apply_through(position) {
                // It is stored, and visible here once the store can be read again.
                Err(Error::Journal(JournalError::Away(_))) => Ok(position),
                applied => applied.map(|()| position),
            },
            // All that was in flight with it is refused too, and the journal has counted that.
            Err(error) if self.journal.is_shared() => {
                let caught_up = self.catch_up(&mut self.writer());
                match error {
                    JournalError::Moved { .. } => caught_up.and(Err(error.into())),
                    error => Err(error.into()),
                }
            }
            Err(error) => Err(self.failed(&mut self.writer(), position, error)),
        }
    }

    fn snapshot_of_memory(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Refuses changes after a failure of the journal, and while too many are in flight.
    fn check_room(&self, writer: &Writer) -> Result<(), Error> {
        if let Some(reason) = &writer.stopped {
            return Err(Error::Stopped(reason.clone()));
        }
        if writer.pending.len() >= MAX_PENDING {
            return Err(Error::Busy { value: MAX_PENDING });
        }
        Ok(())
    }

    /// Appends a record; gives it back, with memory up to date, if another writer was faster.
    fn try_append(
        self: &Arc<Self>,
        writer: &mut Writer,
        record: Record,
        bytes: Vec<u8>,
    ) -> Result<Result<Publication, Record>, Error> {
        let length = bytes.len();
        match self.journal.append_after(writer.tail(), vec![bytes]) {
            Ok(receipt) => {
                writer.assigned += 1;
                writer.bytes_since_snapshot += length;
                if let Some(ahead) = &mut writer.ahead {
                    let position = writer.assigned;
                    record.apply_to(Arc::make_mut(ahead), position, None);
                }
                writer.pending.push(writer.assigned, record);
                let in_flight = InFlight {
                    position: writer.assigned,
                    receipt,
                    again: None,
                };
                Ok(Ok(Publication {
                    position: writer.assigned,
                    in_flight: Some(in_flight),
                    inner: Arc::clone(self),
                    conflicts: 0,
                    _taken: None,
                }))
            }
            Err(JournalError::Moved { last }) => {
                self.moved(writer, last)?;
                Ok(Err(record))
            }
            Err(error) => Err(self.failed(writer, writer.assigned + 1, error)),
        }
    }

    /// Memory with all pending changes.
    fn ahead(&self, writer: &mut Writer) -> Arc<State> {
        if writer.pending.is_empty() {
            writer.ahead = None;
            return self.snapshot_of_memory();
        }
        if writer.ahead.is_none() {
            let mut state = State::clone(&self.snapshot_of_memory());
            for (position, record) in writer.pending.records() {
                record.apply_to(&mut state, position, None);
            }
            writer.ahead = Some(Arc::new(state));
        }
        writer.ahead.clone().unwrap_or_default()
    }

    /// The owner of `key` once all pending changes are applied.
    fn owner_of(&self, writer: &Writer, key: &str) -> Option<String> {
        if let Some(owner) = writer.pending.owner_of(key) {
            return owner.map(str::to_owned);
        }
        self.snapshot_of_memory()
            .rule_of(key)
            .map(|(rule, _)| rule.owner)
    }

    fn apply(&self, writer: &mut Writer, position: u64, record: &Record) {
        if writer.is_opening && matches!(record, Record::Keep(_)) {
            // A change beside the snapshot may concern an entity that is not in memory yet.
            self.feed.forget_through(position);
        }
        let mut entries = Vec::new();
        let is_remembered = position > writer.forgotten;
        if !matches!(record, Record::Batch(steps) if steps.is_empty()) {
            let mut guard = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let changes = LeaseChanges::of(record, &guard);
            let remembered = is_remembered.then_some(&mut entries);
            record.apply_to(Arc::make_mut(&mut guard), position, remembered);
            note_leases(&mut writer.leases, &guard, changes, position);
        }
        match is_remembered {
            true => self.feed.push(position, entries),
            false => self.feed.forget_through(position),
        }
        writer.applied = position;
        writer.since_snapshot += 1;
        self.visible.store(position, Ordering::Release);
    }

    /// Applies the changes up to `position`, which the journal has acknowledged, and those that it has acknowledged
    /// with them.
    fn apply_through(&self, position: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        self.apply_pending(&mut writer, position);
        if writer.applied < position {
            self.catch_up(&mut writer)?;
        }
        Ok(())
    }

    /// Applies the changes in flight up to `position` or further, as far as the journal is known to have acknowledged
    /// them.
    fn apply_pending(&self, writer: &mut Writer, position: u64) {
        let last = match self.journal.has_one_writer() {
            true => position.max(self.journal.last()),
            false => position,
        };
        while writer.applied < last {
            let next = writer.applied + 1;
            let Some(record) = writer.pending.take(next) else {
                break;
            };
            self.apply(writer, next, &record);
        }
        if writer.pending.is_empty() {
            writer.ahead = None;
        }
    }

    /// Handles the failure of the append at `position`.
    fn failed(&self, writer: &mut Writer, position: u64, error: JournalError) -> Error {
        writer.pending.truncate_after(position.saturating_sub(1));
        writer.ahead = None;
        writer.assigned = writer.assigned.min(position - 1).max(writer.applied);
        if let JournalError::Failed(reason) = &error {
            writer.stopped = Some(reason.clone());
        }
        error.into()
    }

    /// Appends entities of `state` in batches, as [`Inner::keep`] does.
    fn keep_all(
        self: &Arc<Self>,
        state: &State,
        entities: impl Iterator<Item = Entity>,
    ) -> Result<Vec<String>, Error> {
        let (mut batch, mut bytes, mut in_flight) = (Vec::new(), 0, Vec::new());
        for entity in entities {
            let key = entity.key.clone();
            let record = Record::Keep(entity);
            let record = record.encode().map_err(JournalError::Failed)?;
            bytes += record.len();
            batch.push((key, record));
            if bytes >= SNAPSHOT_BATCH_BYTES || batch.len() >= SNAPSHOT_BATCH_RECORDS {
                in_flight.extend(self.keep(state, &std::mem::take(&mut batch))?);
                bytes = 0;
            }
        }
        in_flight.extend(self.keep(state, &batch)?);
        Ok(in_flight)
    }

    /// Waits until the changes that are in flight now are made or refused.
    fn settle(self: &Arc<Self>) -> Result<(), Error> {
        let record = Record::Batch(Vec::new());
        let bytes = record.encode().map_err(JournalError::Failed)?;
        let appended = {
            let mut writer = self.writer();
            if writer.pending.is_empty() {
                return Ok(());
            }
            self.try_append(&mut writer, record, bytes)?
        };
        // If another writer was faster, memory is up to date.
        let Ok(publication) = appended else {
            return Ok(());
        };
        match publication.wait() {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    /// Appends those entities of a batch that are as they were in `state`; later changes of the
    /// others are in the journal, after the start of the snapshot. Waits for the journal without
    /// keeping other changes waiting. Returns the keys of those that a change in flight concerns: they are not
    /// appended, because the change comes first.
    fn keep(
        self: &Arc<Self>,
        state: &State,
        batch: &[(String, Vec<u8>)],
    ) -> Result<Vec<String>, Error> {
        for _ in 0..MAX_CONFLICTS {
            let mut writer = self.writer();
            if let Some(reason) = &writer.stopped {
                return Err(Error::Stopped(reason.clone()));
            }
            let now = self.snapshot_of_memory();
            let unchanged = batch.iter().filter(|(key, _)| now.is_unchanged(state, key));
            let (in_flight, kept): (Vec<_>, Vec<_>) =
                unchanged.partition(|(key, _)| writer.pending.changes(key));
            let in_flight = in_flight.iter().map(|(key, _)| key.clone()).collect();
            let mut records: Vec<Vec<u8>> = kept.iter().map(|(_, record)| record.clone()).collect();
            let keys = kept.iter().map(|(key, _)| key.as_str());
            for leased in self.leased(&writer, &now, keys) {
                records.push(leased.encode().map_err(JournalError::Failed)?);
            }
            let count = records.len();
            if count == 0 {
                return Ok(in_flight);
            }
            let first = writer.assigned + 1;
            match self.journal.append_after(writer.tail(), records) {
                Ok(receipt) => {
                    for _ in 0..count {
                        writer.assigned += 1;
                        // Memory has them already.
                        let position = writer.assigned;
                        writer.pending.push(position, Record::Batch(Vec::new()));
                    }
                    let last = writer.assigned;
                    drop(writer);
                    match receipt.wait() {
                        Ok(()) => return self.apply_through(last).map(|()| in_flight),
                        Err(JournalError::Moved { .. }) if self.journal.is_shared() => {
                            self.catch_up(&mut self.writer())?;
                        }
                        Err(error) => return self.resolve(first, Err(error)).map(|_| in_flight),
                    }
                }
                Err(JournalError::Moved { last }) => self.moved(&mut writer, last)?,
                Err(error) => return Err(self.failed(&mut writer, first, error)),
            }
        }
        let last = self.journal.last();
        Err(JournalError::Moved { last }.into())
    }
}
