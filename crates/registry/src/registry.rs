//! The registry itself: the state in memory and its journal.
//!
//! A change is appended to the journal first; memory changes once the journal has acknowledged it.
//! Readers use a snapshot of memory and never wait for writers. Many changes may be in flight, so
//! one sync of the journal commits them all.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};

use chappe_identity::Principal;

use crate::entity::Entity;
use crate::error::Error;
use crate::feed::{Entry, Feed, Subscription};
use crate::journal::{Journal, JournalError, Receipt, block_on};
use crate::limits::{Interrupt, Room, SparqlError, SparqlLimits};
use crate::record::{Record, Step};
use crate::search::{Search, SearchResult};
use crate::sparql::{Cost, SparqlAnswer};
use crate::state::State;

/// Records read from the journal at a time.
const READ_BATCH: usize = 256;
/// Attempts to append while other writers append first.
const MAX_ATTEMPTS: usize = 8;
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
/// Size of one batch of a snapshot in bytes.
const SNAPSHOT_BATCH_BYTES: usize = 1024 * 1024;

/// The semantic registry. Clones share it.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    journal: Box<dyn Journal>,
    state: RwLock<Arc<State>>,
    writer: Mutex<Writer>,
    feed: Feed,
    /// Bytes of the entities in flight, by owner.
    in_flight: Mutex<HashMap<String, usize>>,
}

struct Writer {
    /// The last position assigned.
    assigned: u64,
    /// The last position that memory contains.
    applied: u64,
    /// Changes with a position that are not yet in memory, in order.
    pending: VecDeque<(u64, Record)>,
    /// Memory with all pending changes, as long as transactions need it.
    ahead: Option<Arc<State>>,
    /// Records in the journal since the newest snapshot started.
    since_snapshot: u64,
    /// Bytes appended to it since then by this registry.
    bytes_since_snapshot: usize,
    stopped: Option<String>,
}

/// Size and state of the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Entities.
    pub entities: usize,
    /// Triples, counted once for each entity that brings them.
    pub triples: usize,
    /// Distinct terms.
    pub terms: usize,
    /// Bytes of the entities, as [`Entity::counted_bytes`] counts them.
    pub bytes: usize,
    /// Distinct access rules.
    pub access_groups: usize,
    /// Bytes of the indexes and the dictionary, computed from their capacities.
    pub memory_bytes: usize,
    /// Position of the last change in memory.
    pub revision: u64,
    /// Records in the journal since its newest snapshot started.
    pub records_since_snapshot: u64,
    /// Number of changes that the feed no longer remembers.
    pub feed_forgotten: u64,
}

impl Registry {
    /// Opens the registry that `journal` describes.
    ///
    /// # Errors
    /// The journal cannot be read, or holds a record of an unknown form; such a record is never
    /// skipped.
    pub fn open(journal: impl Journal) -> Result<Self, Error> {
        let start = journal.snapshot();
        let inner = Inner {
            journal: Box::new(journal),
            state: RwLock::new(Arc::new(State::new())),
            writer: Mutex::new(Writer {
                assigned: start.saturating_sub(1),
                applied: start.saturating_sub(1),
                pending: VecDeque::new(),
                ahead: None,
                since_snapshot: 0,
                bytes_since_snapshot: 0,
                stopped: None,
            }),
            feed: Feed::default(),
            in_flight: Mutex::default(),
        };
        inner.feed.start_after(start.saturating_sub(1));
        let registry = Self {
            inner: Arc::new(inner),
        };
        registry.inner.catch_up(&mut registry.inner.writer())?;
        Ok(registry)
    }

    /// Publishes `entity`, replacing the one with the same key.
    ///
    /// Once the publication resolves, the entity is visible and durable. Dropping the publication
    /// does not cancel it.
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
        entity.validate()?;
        let mut writer = self.inner.writer();
        if let Some(owner) = self.inner.owner_of(&writer, &entity.key)
            && owner != entity.owner
        {
            return Err(Error::NotOwner {
                key: entity.key,
                owner,
            });
        }
        self.inner.snapshot_of_memory().admits(&entity)?;
        let taken = self.inner.take_room(&entity, room)?;
        let publication = self.append(&mut writer, Record::Publish(entity))?;
        Ok(Publication {
            _taken: Some(taken),
            ..publication
        })
    }

    /// Removes the entity `key` with all its triples.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no entity has this key, [`Error::Busy`] while too many changes are in
    /// flight, or the journal's error.
    pub fn remove(&self, key: &str) -> Result<Publication, Error> {
        let mut writer = self.inner.writer();
        if self.inner.owner_of(&writer, key).is_none() {
            return Err(Error::Unknown(key.to_owned()));
        }
        self.append(&mut writer, Record::Remove(key.to_owned()))
    }

    /// Applies several changes at once: all of them become visible and durable, or none.
    ///
    /// `plan` reads the state with all earlier changes, durable or not, and returns the changes
    /// and a value. It is called again when another writer of the journal was faster. Without
    /// changes there is nothing to wait for.
    ///
    /// # Errors
    /// The plan's error, [`Error::TooLarge`] for more than [`MAX_BATCH_BYTES`], or as
    /// [`Registry::publish`].
    pub(crate) fn transact<T, E: From<Error>>(
        &self,
        mut plan: impl FnMut(&State) -> Result<(Vec<Step>, T), E>,
    ) -> Result<(Option<Publication>, T), E> {
        let mut writer = self.inner.writer();
        for _ in 0..MAX_ATTEMPTS {
            self.inner.check_room(&writer)?;
            if self.inner.journal.last() > writer.assigned {
                self.inner.catch_up(&mut writer)?;
            }
            let ahead = self.inner.ahead(&mut writer);
            let (steps, value) = plan(&ahead)?;
            if steps.is_empty() {
                return Ok((None, value));
            }
            let record = Record::Batch(steps);
            for entity in record.published() {
                entity.validate()?;
            }
            ahead.admits_all(record.published())?;
            drop(ahead);
            let bytes = record
                .encode()
                .map_err(|error| E::from(JournalError::Failed(error).into()))?;
            if bytes.len() > MAX_BATCH_BYTES {
                let (bytes, limit) = (bytes.len(), MAX_BATCH_BYTES);
                return Err(Error::TooLarge { bytes, limit }.into());
            }
            match self.inner.try_append(&mut writer, record, bytes)? {
                Ok(publication) => return Ok((Some(publication), value)),
                Err(_moved) => {}
            }
        }
        let last = writer.assigned;
        Err(Error::from(JournalError::Moved { last }).into())
    }

    fn append(&self, writer: &mut Writer, mut record: Record) -> Result<Publication, Error> {
        self.inner.check_room(writer)?;
        let bytes = record.encode().map_err(JournalError::Failed)?;
        for _ in 0..MAX_ATTEMPTS {
            match self.inner.try_append(writer, record, bytes.clone())? {
                Ok(publication) => return Ok(publication),
                Err(moved) => record = moved,
            }
        }
        Err(JournalError::Moved {
            last: writer.assigned,
        }
        .into())
    }

    /// The entity `key`, if `principal` may see it.
    #[must_use]
    pub fn get(&self, key: &str, principal: &Principal) -> Option<Entity> {
        self.inner
            .snapshot_of_memory()
            .get(key)
            .filter(|entity| entity.access.allows(&entity.owner, principal))
    }

    /// Finds entities by their fields.
    #[must_use]
    pub fn search(&self, search: &Search, principal: &Principal) -> SearchResult {
        crate::search::run(&self.inner.snapshot_of_memory(), search, principal)
    }

    /// The keys of all entities that match, in the order of [`Registry::search`], without its limit unless
    /// `search` names one.
    #[must_use]
    pub fn search_keys(&self, search: &Search, principal: &Principal) -> Vec<String> {
        crate::search::keys(&self.inner.snapshot_of_memory(), search, principal)
    }

    /// Answers a SPARQL 1.1 SELECT or ASK query over the triples that `principal` may see. Blocks
    /// the calling thread; a deep query is evaluated on its own thread with a larger stack.
    ///
    /// # Errors
    /// [`SparqlError`]: the query is invalid, not supported, or exceeds a limit.
    pub fn sparql(
        &self,
        query: &str,
        principal: &Principal,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<SparqlAnswer, SparqlError> {
        self.sparql_with_cost(query, principal, limits, interrupt)
            .map(|(answer, _)| answer)
    }

    /// Like [`Registry::sparql`], with the cost of the answer.
    ///
    /// # Errors
    /// As [`Registry::sparql`].
    pub fn sparql_with_cost(
        &self,
        query: &str,
        principal: &Principal,
        limits: &SparqlLimits,
        interrupt: &Interrupt,
    ) -> Result<(SparqlAnswer, Cost), SparqlError> {
        let state = self.inner.snapshot_of_memory();
        crate::sparql::run(&state, query, principal, limits, interrupt)
    }

    /// Memory as it is now.
    pub(crate) fn snapshot(&self) -> Arc<State> {
        self.inner.snapshot_of_memory()
    }

    /// Changes from `from_revision` on, as far as `principal` may see them. Pass `revision() + 1`
    /// for future changes only.
    #[must_use]
    pub fn subscribe(&self, from_revision: u64, principal: Principal) -> Subscription {
        self.inner.feed.subscribe(from_revision, principal)
    }

    /// Position of the last change in memory.
    #[must_use]
    pub fn revision(&self) -> u64 {
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
            let writer = self.inner.writer();
            (writer.since_snapshot, writer.bytes_since_snapshot)
        };
        let state = self.inner.snapshot_of_memory();
        let records = COMPACT_FACTOR.saturating_mul(state.len() as u64);
        let most = state.bytes().saturating_mul(COMPACT_FACTOR as usize);
        since >= COMPACT_FLOOR.max(records) || bytes >= COMPACT_FLOOR_BYTES.max(most)
    }

    /// Writes a snapshot into the journal, which may then remove earlier records. Changes wait
    /// meanwhile; reading still works. Call it on a thread that may block when
    /// [`Registry::needs_compaction`] is true.
    ///
    /// # Errors
    /// The journal's error; an unfinished snapshot is harmless.
    pub fn compact(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let mut writer = inner.writer();
        inner.drain(&mut writer)?;
        let first = writer.assigned + 1;
        let state = inner.snapshot_of_memory();
        let mut batch = Vec::new();
        let mut bytes = 0;
        for entity in state.entities() {
            let record = Record::Keep(entity)
                .encode()
                .map_err(JournalError::Failed)?;
            bytes += record.len();
            batch.push(record);
            if bytes >= SNAPSHOT_BATCH_BYTES {
                inner.keep(&mut writer, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            inner.keep(&mut writer, batch)?;
        }
        inner.journal.set_snapshot(first)?;
        writer.since_snapshot = writer.assigned + 1 - first;
        writer.bytes_since_snapshot = 0;
        Ok(())
    }

    /// Bytes of the entities of an owner, as [`Entity::counted_bytes`] counts them.
    #[must_use]
    pub fn bytes_of(&self, owner: &str) -> usize {
        self.inner.snapshot_of_memory().bytes_of(owner)
    }

    /// Sizes and counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let records_since_snapshot = self.inner.writer().since_snapshot;
        let state = self.inner.snapshot_of_memory();
        Statistics {
            entities: state.len(),
            triples: state.triples(),
            terms: state.terms(),
            bytes: state.bytes(),
            access_groups: state.access_groups(),
            memory_bytes: state.memory_bytes(),
            revision: self.inner.feed.last(),
            records_since_snapshot,
            feed_forgotten: self.inner.feed.forgotten(),
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

/// Room for an entity in flight; dropping it frees the room, which the entity in memory takes from then on.
struct Taken {
    inner: Arc<Inner>,
    owner: String,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut in_flight = self.inner.in_flight();
        if let Some(bytes) = in_flight.get_mut(&self.owner) {
            *bytes -= self.bytes;
            if *bytes == 0 {
                in_flight.remove(&self.owner);
            }
        }
    }
}

impl Inner {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the room for an entity, as long as it is in flight.
    fn take_room(self: &Arc<Self>, entity: &Entity, room: &Room) -> Result<Taken, Error> {
        let bytes = entity.counted_bytes();
        let state = self.snapshot_of_memory();
        let replaced = state.bytes_at(&entity.key);
        let mut in_flight = self.in_flight();
        let all = in_flight.values().sum::<usize>();
        let own = in_flight.get(&entity.owner).copied().unwrap_or_default();
        let check = |whose: String, used: usize, limit, is_owners| {
            let bytes = used.saturating_sub(replaced) + bytes;
            // An entity may always become smaller.
            match bytes > limit && bytes > used {
                true => Err(Error::NoRoom {
                    whose,
                    bytes,
                    limit,
                    is_owners,
                }),
                false => Ok(()),
            }
        };
        let owner = &entity.owner;
        let (all, own) = (all + state.bytes(), own + state.bytes_of(owner));
        check(
            format!("the entities of {owner:?}"),
            own,
            room.owner_bytes,
            true,
        )?;
        check("all entities".to_owned(), all, room.total_bytes, false)?;
        *in_flight.entry(owner.clone()).or_default() += bytes;
        drop(in_flight);
        Ok(Taken {
            inner: Arc::clone(self),
            owner: owner.clone(),
            bytes,
        })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
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
        match self.journal.append_if(writer.assigned, vec![bytes]) {
            Ok(receipt) => {
                writer.assigned += 1;
                writer.bytes_since_snapshot += length;
                if let Some(ahead) = &mut writer.ahead {
                    record.clone().apply_to(Arc::make_mut(ahead));
                }
                writer.pending.push_back((writer.assigned, record));
                Ok(Ok(Publication {
                    position: writer.assigned,
                    receipt,
                    inner: Arc::clone(self),
                    _taken: None,
                }))
            }
            Err(JournalError::Moved { last }) => {
                writer.pending.retain(|(position, _)| *position <= last);
                writer.ahead = None;
                self.catch_up(writer)?;
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
            for (_, record) in &writer.pending {
                record.clone().apply_to(&mut state);
            }
            writer.ahead = Some(Arc::new(state));
        }
        writer.ahead.clone().unwrap_or_default()
    }

    /// The owner of `key` once all pending changes are applied.
    fn owner_of(&self, writer: &Writer, key: &str) -> Option<String> {
        let pending = writer.pending.iter().rev();
        let mut effects = pending.filter_map(|(_, record)| record.effect_on(key));
        if let Some(effect) = effects.next() {
            return effect.map(|entity| entity.owner.clone());
        }
        self.snapshot_of_memory()
            .rule_of(key)
            .map(|(owner, _, _)| owner)
    }

    fn apply(&self, writer: &mut Writer, position: u64, record: Record) {
        let mut guard = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let entries = record.apply_to(Arc::make_mut(&mut guard));
        drop(guard);
        self.feed.push(position, entries);
        writer.applied = position;
        writer.since_snapshot += 1;
    }

    /// Applies the changes up to `position`, which the journal has acknowledged.
    fn apply_through(&self, position: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        while let Some((next, record)) = writer.pending.pop_front() {
            if next > position || next != writer.applied + 1 {
                writer.pending.push_front((next, record));
                break;
            }
            self.apply(&mut writer, next, record);
        }
        if writer.pending.is_empty() {
            writer.ahead = None;
        }
        if writer.applied < position {
            self.catch_up(&mut writer)?;
        }
        Ok(())
    }

    /// Reads the records that memory lacks from the journal.
    fn catch_up(&self, writer: &mut Writer) -> Result<(), Error> {
        loop {
            let records = self.journal.follow(writer.applied + 1, READ_BATCH)?;
            if records.is_empty() {
                break;
            }
            for (position, bytes) in records {
                let unreadable = |reason| JournalError::Unreadable { position, reason };
                if position != writer.applied + 1 {
                    let reason = format!("records from {} on are missing", writer.applied + 1);
                    return Err(unreadable(reason).into());
                }
                let record = Record::decode(&bytes).map_err(unreadable)?;
                self.apply(writer, position, record);
            }
        }
        let applied = writer.applied;
        writer.ahead = None;
        writer.pending.retain(|(position, _)| *position > applied);
        let pending = writer.pending.back().map_or(0, |(position, _)| *position);
        writer.assigned = applied.max(pending);
        Ok(())
    }

    /// Handles the failure of the append at `position`.
    fn failed(&self, writer: &mut Writer, position: u64, error: JournalError) -> Error {
        writer.pending.retain(|(pending, _)| *pending < position);
        writer.ahead = None;
        writer.assigned = writer.assigned.min(position - 1).max(writer.applied);
        if let JournalError::Failed(reason) = &error {
            writer.stopped = Some(reason.clone());
        }
        error.into()
    }

    /// Waits until no change is in flight.
    fn drain(&self, writer: &mut Writer) -> Result<(), Error> {
        if let Some(reason) = &writer.stopped {
            return Err(Error::Stopped(reason.clone()));
        }
        self.catch_up(writer)?;
        if writer.pending.is_empty() {
            Ok(())
        } else {
            Err(Error::Busy { value: 0 })
        }
    }

    fn keep(&self, writer: &mut Writer, batch: Vec<Vec<u8>>) -> Result<(), Error> {
        let count = batch.len() as u64;
        let receipt = self.journal.append_if(writer.assigned, batch)?;
        if let Err(error) = receipt.wait() {
            let position = writer.assigned + 1;
            return Err(self.failed(writer, position, error));
        }
        writer.assigned += count;
        writer.applied = writer.assigned;
        writer.since_snapshot += count;
        self.feed.skip_revision(writer.assigned);
        Ok(())
    }
}

impl Record {
    /// Changes the state; returns the entries of the change feed.
    fn apply_to(self, state: &mut State) -> Vec<Entry> {
        match self {
            Self::Publish(entity) => vec![publish_in(state, entity)],
            Self::Keep(entity) => {
                state.insert(&entity);
                Vec::new()
            }
            Self::Remove(key) => remove_in(state, key).into_iter().collect(),
            Self::Batch(steps) => {
                let entries = steps.into_iter().filter_map(|step| match step {
                    Step::Publish(entity) => Some(publish_in(state, entity)),
                    Step::Remove(key) => remove_in(state, key),
                });
                entries.collect()
            }
        }
    }
}

fn publish_in(state: &mut State, entity: Entity) -> Entry {
    let before = state.rule_of(&entity.key);
    state.insert(&entity);
    Entry {
        key: entity.key,
        kind: entity.kind,
        before: before.map(|(owner, access, _)| (owner, access)),
        after: Some((entity.owner, entity.access)),
    }
}

fn remove_in(state: &mut State, key: String) -> Option<Entry> {
    let (owner, access, kind) = state.rule_of(&key)?;
    state.remove(&key);
    Some(Entry {
        key,
        kind,
        before: Some((owner, access)),
        after: None,
    })
}

/// A change in flight. Resolves with its revision once it is durable and visible.
#[must_use = "the change is acknowledged only when this resolves"]
pub struct Publication {
    position: u64,
    receipt: Receipt,
    inner: Arc<Inner>,
    _taken: Option<Taken>,
}

impl Publication {
    /// Position in the journal: the future revision of the change.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Blocks the calling thread until the change is durable and visible.
    ///
    /// # Errors
    /// The journal's error; then the change is not in memory.
    pub fn wait(self) -> Result<u64, Error> {
        block_on(self)
    }
}

impl Future for Publication {
    type Output = Result<u64, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(done) = Pin::new(&mut self.receipt).poll(context) else {
            return Poll::Pending;
        };
        let position = self.position;
        Poll::Ready(match done {
            Ok(()) => self.inner.apply_through(position).map(|()| position),
            Err(error) => Err(self.inner.failed(&mut self.inner.writer(), position, error)),
        })
    }
}

impl std::fmt::Debug for Publication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publication")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
