//! Writes to the registry; refused changes are counted and reported as notices.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_registry::uddi::{Error as UddiError, ErrorCode, Publisher, Saved};
use chappe_registry::{
    Access, Attempts, Entity, EntityKind, Error, Principal, Publication, Registry, Right, Rights,
    Room, Search, vocabulary,
};
use chappe_transport::Hop;
use tokio::sync::watch;

use crate::accounts::Owners;
use crate::catalogue::{Names, stream_name};
use crate::clock;
use crate::config::RegistryStore;
use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::tasks::yield_every;

/// Pause before a refused change is retried; reason: a few syncs.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Consecutive failed attempts, about a minute, after which a change is given up; reason: a full
/// disk may stay full, and the caller has other work.
const RETRIES_MAX: u32 = 1_200;

/// The prefix of the keys of the node's own entities.
pub(crate) const OWN_KEYS: &str = "urn:chappe:";
/// The type of the entities of links.
pub(crate) const LINK_TYPE: &str = "Link";
/// The lease of a found device and its services, and in a shared registry of ontologies. It ends only if the node that
/// published them is gone and another node shares the registry; reason: a restart or an upgrade of a node takes less than an hour.
pub(crate) const FOUND_LEASE_S: u32 = 3_600;
/// Leases renewed by one record; reason: the record stays within some 100 kB.
const RENEWED_AT_ONCE: usize = 512;
/// The start of the types of UDDI data.
const UDDI_TYPES: &str = "{https://chappe.example/ns/uddi#}";
/// The owner of entities that the node itself publishes.
pub(crate) const NODE_OWNER: &str = "node";
/// The prefix of the owner of a node's own entities in a registry that it shares with other nodes. No
/// account has such a name.
const NODE_OWNER_PREFIX: &str = "node:";
/// All such owners, as authors of ontologies.
pub(crate) const ALL_NODES: &str = "node:*";

/// Bits for new keys of UDDI data: different ones in one request, from a random start with a random step.
///
/// # Errors
/// The system has no random bytes.
pub(crate) fn key_bits() -> std::io::Result<impl FnMut() -> u128> {
    let seed = chappe_transport::seed()?;
    let (start, step) = seed.split_at(16);
    let bits = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte))
    };
    let (mut next, step) = (bits(start), bits(step) | 1);
    Ok(move || {
        next = next.wrapping_add(step);
        next
    })
}

/// A change of the registry.
enum Change {
    Publish(Box<Entity>),
    Remove(String),
}

/// Rights to an entity of the node cannot be stated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RightsError {
    /// The registry refuses them.
    #[error(transparent)]
    Registry(#[from] Error),
    /// They cannot be written to their file.
    #[error("the rights cannot be stored: {0}")]
    File(#[from] std::io::Error),
}

/// States the rights to an entity, again while other nodes are faster. Returns whether they changed, and the entity.
///
/// # Errors
/// The principal may not administer it, or the registry has no room; then nothing has changed.
pub(crate) async fn set_rights(
    registry: &Registry,
    principal: &Principal,
    key: &str,
    rights: &Rights,
    room: &Room,
) -> Result<(bool, Entity), Error> {
    let mut attempts = Attempts::default();
    loop {
        let (publication, entity) = registry.set_rights(principal, key, rights, room)?;
        let is_changed = publication.is_some();
        if attempts.settle(publication).await? {
            return Ok((is_changed, entity));
        }
    }
}

/// A submitted change; `None` when there is nothing to change.
type Submission = Result<Option<Publication>, Error>;

/// Writes to the registry on behalf of the parts of the node.
pub(crate) struct Registrar {
    registry: Registry,
    /// Bytes of all entities, at most.
    bytes_max: usize,
    /// The owner of the node's own entities.
    node_owner: String,
    owners: Arc<Owners>,
    /// The names of renamed streams.
    names: Arc<Names>,
    /// Held by changes, and exclusively by a rename: it reads an entity and publishes it again.
    changing: tokio::sync::RwLock<()>,
    /// The keys of found devices and of what describes them, whose leases the node renews.
    leased: Mutex<BTreeSet<String>>,
    /// The revision at which each entity was registered in this run.
    registered: Mutex<HashMap<String, u64>>,
    observability: Arc<Observability>,
    /// True while the node shuts down: changes are not retried.
    drain: watch::Receiver<bool>,
}

impl Registrar {
    pub(crate) fn new(
        registry: Registry,
        bytes_max: usize,
        node_owner: String,
        owners: Arc<Owners>,
        names: Arc<Names>,
        observability: Arc<Observability>,
        drain: watch::Receiver<bool>,
    ) -> Self {
        Self {
            registry,
            bytes_max,
            node_owner,
            owners,
            names,
            changing: tokio::sync::RwLock::default(),
            leased: Mutex::default(),
            registered: Mutex::default(),
            observability,
            drain,
        }
    }

    /// The owner of the node's own entities: in a shared registry, each node has its own.
    pub(crate) fn owner_of(store: RegistryStore, public_key: impl std::fmt::Display) -> String {
        match store {
            RegistryStore::Log | RegistryStore::Memory => NODE_OWNER.to_owned(),
            RegistryStore::Postgres => format!("{NODE_OWNER_PREFIX}{public_key}"),
        }
    }

    /// The owner of the node's own entities.
    pub(crate) fn node_owner(&self) -> &str {
        &self.node_owner
    }

    /// Whether an owner is this or another node.
    pub(crate) fn is_node(owner: &str) -> bool {
        owner == NODE_OWNER || owner.starts_with(NODE_OWNER_PREFIX)
    }

    /// Publishes entities, except those that are unchanged in the registry. Waits while too many changes
    /// are pending. They belong to the account that made them or their producer, or to the node.
    pub(crate) async fn publish(&self, mut entities: Vec<Entity>) {
        let mut leased = Vec::new();
        for entity in &mut entities {
            if let Some(owner) = self.owners.of(entity) {
                entity.owner = owner;
            } else if entity.owner == NODE_OWNER {
                entity.owner.clone_from(&self.node_owner);
            }
            let is_found = matches!(entity.kind, EntityKind::Device | EntityKind::Service);
            let is_ontology = entity
                .types
                .iter()
                .any(|it| it == vocabulary::ONTOLOGY_TYPE);
            let is_leased = is_found || is_ontology && self.node_owner != NODE_OWNER;
            if is_leased && entity.owner == self.node_owner {
                entity.lease_s.get_or_insert(FOUND_LEASE_S);
                leased.push(entity.key.clone());
            }
        }
        let changes = entities.into_iter().map(Box::new).map(Change::Publish);
        let _changing = self.changing.read().await;
        self.apply(changes).await;
        self.leased().extend(leased);
    }

    /// Publishes the entity of a stream again, if there is one, after the stream was renamed.
    pub(crate) async fn rename(&self, key: &str) {
        let _changing = self.changing.write().await;
        let known = self.registry.get(key, &Principal::Operator);
        let known = known.into_iter().map(Box::new).map(Change::Publish);
        self.apply(known).await;
    }

    /// States the rights to an entity that this registrar publishes, in the name of `principal`, so that they
    /// last when it is published again. Returns whether they changed, and the entity.
    ///
    /// # Errors
    /// The principal may not administer it, the registry has no room, or the file cannot be written; then
    /// nothing has changed.
    pub(crate) async fn set_rights(
        &self,
        principal: &Principal,
        key: &str,
        rights: Rights,
        room: &Room,
    ) -> Result<(bool, Entity), RightsError> {
        // Nobody publishes the entity with its former rights meanwhile.
        let _changing = self.changing.write().await;
        self.registry.require(key, principal, Right::Administer)?;
        let earlier = self.keep_rights(key, Some(rights.clone())).await?;
        let set = set_rights(&self.registry, principal, key, &rights, room);
        match set.await {
            Ok(set) => Ok(set),
            Err(error) => {
                self.keep_rights(key, earlier).await?;
                Err(error.into())
            }
        }
    }

    /// Writes rights to their file; returns those before.
    async fn keep_rights(
        &self,
        key: &str,
        rights: Option<Rights>,
    ) -> std::io::Result<Option<Rights>> {
        let (owners, key) = (self.owners.clone(), key.to_owned());
        let written = tokio::task::spawn_blocking(move || owners.rights().set(&key, rights));
        let failed = |_| std::io::Error::other("the change panicked");
        written.await.map_err(failed)?
    }

    /// Whether this node publishes an entity, and thus keeps the rights to it.
    pub(crate) fn publishes(&self, entity: &Entity) -> bool {
        let is_uddi = |name: &String| name.starts_with(UDDI_TYPES);
        // Those of UDDI are saved by requests, not published here.
        let is_of_uddi = entity.kind == EntityKind::Document || entity.types.iter().any(is_uddi);
        let is_own = entity.owner == self.node_owner && !is_of_uddi;
        is_own || entity.key.starts_with(OWN_KEYS) && !Self::is_node(&entity.owner)
    }

    /// Removes those of the entities that exist.
    pub(crate) async fn remove(&self, keys: Vec<String>) {
        for key in &keys {
            self.registered().remove(key);
            self.leased().remove(key);
        }
        let _changing = self.changing.read().await;
        self.apply(keys.into_iter().map(Change::Remove)).await;
    }

    /// Removes the devices, services, streams, sensors and links of an earlier run. Those that still exist
    /// are published again later.
    /// `is_kept` tells the keys of those that nobody publishes again.
    pub(crate) async fn remove_stale(&self, is_kept: impl Fn(&str) -> bool) {
        for (kind, entity_type) in [
            (EntityKind::Stream, None),
            (EntityKind::VirtualSensor, None),
            (EntityKind::Service, None),
            (EntityKind::Device, None),
            (EntityKind::Other, Some(LINK_TYPE.to_owned())),
        ] {
            let search = Search {
                kind: Some(kind),
                entity_type,
                ..Search::default()
            };
            let mut keys = self.registry.search_keys(&search, &Principal::Operator);
            // Those of clients have other keys, and those of other nodes another owner.
            keys.retain(|key| {
                let is_own = || match self.node_owner == NODE_OWNER {
                    true => true,
                    false => {
                        let entity = self.registry.get(key, &Principal::Operator);
                        entity.is_some_and(|entity| entity.owner == self.node_owner)
                    }
                };
                key.starts_with(OWN_KEYS) && !is_kept(key) && is_own()
            });
            self.remove(keys).await;
        }
    }

    /// Runs a request about services of devices as a publisher, in the node's name. `about` is the device, for
    /// people.
    pub(crate) async fn change_services(
        &self,
        about: &str,
        request: impl Fn(&mut Publisher<'_>) -> Result<Saved<()>, UddiError>,
    ) {
        let room = Room {
            total_bytes: self.bytes_max,
            ..Room::default()
        };
        let mut retries = 0;
        let mut attempts = Attempts::default();
        loop {
            let outcome = match key_bits() {
                Ok(mut bits) => {
                    let unix_ms = clock::now().0 / 1_000_000;
                    let access = Access::Public;
                    let node =
                        Publisher::new(&self.registry, NODE_OWNER, access, unix_ms, &mut bits);
                    let mut node = node.within(room).leased(FOUND_LEASE_S);
                    let saved = request(&mut node).map(|saved| saved.publication);
                    saved.map(|publication| (publication, node.leased_keys()))
                }
                Err(error) => Err(UddiError::new(ErrorCode::Busy, error.to_string())),
            };
            let settled = match outcome {
                Ok((publication, leased)) => {
                    let has_changes = publication.is_some();
                    let settled = attempts.settle(publication).await;
                    if has_changes && matches!(settled, Ok(true)) {
                        self.leased().extend(leased);
                    }
                    settled.map_err(UddiError::from)
                }
                Err(error) => Err(error),
            };
            let error = match settled {
                Ok(true) => return,
                Ok(false) => continue,
                Err(error) => error,
            };
            let may_retry = error.code == ErrorCode::Busy && retries < RETRIES_MAX;
            if !may_retry || *self.drain.borrow() {
                let Observability { drops, notices, .. } = &*self.observability;
                let (reason, detail) = ("not registered", error.to_string());
                drops.record(Hop::Metadata, reason, about, detail, None);
                let text = format!("its services cannot be registered in UDDI: {error}");
                return notices.notify(NoticeKind::Health, about, text);
            }
            retries += 1;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn leased(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the leases of the devices and services that the node has found; false if that failed.
    pub(crate) async fn renew_found(&self) -> bool {
        let keys: Vec<String> = {
            let mut leased = self.leased();
            // Those that were removed.
            leased.retain(|key| self.registry.lease_remaining(key).is_some());
            leased.iter().cloned().collect()
        };
        for keys in keys.chunks(RENEWED_AT_ONCE) {
            let renewed = match self.registry.renew_all(keys.to_vec()) {
                Ok(renewal) => renewal.await.map(drop),
                Err(error) => Err(error),
            };
            match renewed {
                // All of them are being removed.
                Ok(()) | Err(Error::Unknown(_)) => {}
                // /ready says why.
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether an entity was published in this run and not removed since.
    pub(crate) fn is_registered(&self, key: &str) -> bool {
        self.registered().contains_key(key)
    }

    /// The revision at which an entity was first published in this run; `u64::MAX` if it was not.
    pub(crate) fn registered_at(&self, key: &str) -> u64 {
        self.registered().get(key).copied().unwrap_or(u64::MAX)
    }

    fn registered(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn apply(&self, changes: impl Iterator<Item = Change>) {
        let mut retries = 0;
        // Submit as many changes as possible before awaiting the first, so that they share a sync.
        let mut pending = VecDeque::new();
        for (index, change) in changes.enumerate() {
            yield_every(index).await;
            let mut submission = self.submit(&change);
            while let Err(Error::Busy { .. }) = submission
                && let Some((oldest, its_submission)) = pending.pop_front()
            {
                self.finish(oldest, its_submission, &mut retries).await;
                submission = self.submit(&change);
            }
            match submission {
                Ok(Some(_)) => pending.push_back((change, submission)),
                _ => self.finish(change, submission, &mut retries).await,
            }
        }
        for (index, (change, submission)) in pending.into_iter().enumerate() {
            yield_every(index).await;
            self.finish(change, submission, &mut retries).await;
        }
    }

    fn submit(&self, change: &Change) -> Submission {
        match change {
            Change::Publish(entity) => {
                let mut entity = Entity::clone(entity);
                if let Some(stream) = stream_name(&entity.key) {
                    entity.name = self.names.current(stream);
                }
                let known = self.registry.get(&entity.key, &Principal::Operator);
                if let Some(rights) = self.owners.rights().of(&entity.key) {
                    // Who may read it is what they state.
                    (entity.access, entity.rights) = (Access::Owner, rights);
                } else if let Some(known) = &known {
                    (entity.access, entity.rights) = (known.access.clone(), known.rights.clone());
                }
                if known.as_ref() == Some(&entity) {
                    return Ok(None);
                }
                let room = Room {
                    total_bytes: self.bytes_max,
                    ..Room::default()
                };
                self.registry.publish_within(entity, &room).map(Some)
            }
            Change::Remove(key) => match self.registry.remove(key) {
                Err(Error::Unknown(_)) => Ok(None),
                removal => removal.map(Some),
            },
        }
    }

    /// Waits until a change is applied or refused. A change that fails for lack of room is retried;
    /// `retries` counts the consecutive failures.
    async fn finish(&self, change: Change, mut submission: Submission, retries: &mut u32) {
        loop {
            let outcome = match submission {
                Ok(Some(publication)) => publication.await,
                Ok(None) => Ok(self.registry.revision()),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(revision) => {
                    *retries = 0;
                    if let Change::Publish(entity) = change {
                        self.registered().entry(entity.key).or_insert(revision);
                    }
                    return;
                }
                Err(error)
                    if error.is_transient() && *retries < RETRIES_MAX && !*self.drain.borrow() =>
                {
                    *retries += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                    submission = self.submit(&change);
                }
                Err(error) => return self.report_refusal(&change, &error),
            }
        }
    }

    fn report_refusal(&self, change: &Change, error: &Error) {
        let (key, text) = match change {
            Change::Publish(entity) => (&entity.key, "cannot be registered"),
            Change::Remove(key) => (key, "cannot be removed from the registry"),
        };
        let Observability { drops, notices, .. } = &*self.observability;
        let (reason, detail) = ("not registered", error.to_string());
        drops.record(Hop::Metadata, reason, key, detail, None);
        notices.notify(NoticeKind::Health, key, format!("{text}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::on_node;

    /// More than the registry's limit of pending changes.
    const MANY: usize = 5_000;

    #[test]
    fn found_devices_hold_leases_that_the_node_renews() {
        on_node(
            |_| {},
            async |app| {
                let (device, stream) = ("urn:chappe:device:1", "urn:chappe:stream:one");
                let entities = [
                    Entity::new(device, EntityKind::Device, "Pump"),
                    Entity::new(stream, EntityKind::Stream, "one"),
                ];
                app.registrar.publish(entities.into()).await;
                let lease_s = |key| {
                    let entity = app.registry.get(key, &Principal::Operator);
                    entity.map(|entity| entity.lease_s)
                };
                assert_eq!(lease_s(device), Some(Some(FOUND_LEASE_S)));
                assert_eq!(lease_s(stream), Some(None));
                let before = app.registry.revision();
                assert!(app.registrar.renew_found().await);
                assert!(app.registry.revision() > before);
                app.registrar.remove(vec![device.to_owned()]).await;
                assert!(app.registrar.renew_found().await);
                assert!(app.registrar.leased().is_empty());
            },
        );
    }

    #[test]
    fn changes_beyond_the_registrys_limit_are_all_applied() {
        on_node(
            |_| {},
            async |app| {
                let keys: Vec<String> = (0..MANY)
                    .map(|number| format!("urn:many:{number}"))
                    .collect();
                let entity = |key: &String| Entity::new(key.clone(), EntityKind::Other, "one");
                app.registrar
                    .publish(keys.iter().map(entity).collect())
                    .await;
                let is_there =
                    |key: &&String| app.registry.get(key, &Principal::Operator).is_some();
                assert_eq!(keys.iter().filter(is_there).count(), MANY);
                assert!(keys.iter().all(|key| app.registrar.is_registered(key)));
                app.registrar.remove(keys.clone()).await;
                assert_eq!(keys.iter().filter(is_there).count(), 0);
                assert_eq!(
                    app.observability
                        .drops
                        .total(Hop::Metadata, "not registered"),
                    0
                );
            },
        );
    }
}
