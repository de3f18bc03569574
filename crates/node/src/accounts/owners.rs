//! Owners of what accounts publish in the registry.
//!
//! A link or a virtual sensor belongs to the account that made it, and so does its stream. The entity
//! of a stream that an account defines names its owner itself. Everything else belongs to the node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_registry::oxrdf::Term;
use chappe_registry::{Entity, vocabulary};

use crate::links::StateFile;

/// The file of owners in the data directory.
pub(crate) const OWNERS: &str = "owners.json";

/// The owners of links and virtual sensors, by their keys in the registry.
pub(crate) struct Owners {
    file: StateFile<(String, String)>,
    owners: Mutex<BTreeMap<String, String>>,
}

impl Owners {
    /// Reads the owners of earlier runs.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(file: StateFile<(String, String)>) -> Result<Self, String> {
        let owners = Mutex::new(file.read()?.into_iter().collect());
        Ok(Self { file, owners })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the owner of what is new under `key`, and returns whether it was; an earlier owner stays.
    pub(crate) fn set(&self, key: &str, owner: &str) -> std::io::Result<bool> {
        let mut owners = self.lock();
        if owners.contains_key(key) {
            return Ok(false);
        }
        let mut changed = owners.clone();
        changed.insert(key.to_owned(), owner.to_owned());
        self.write(&changed)?;
        *owners = changed;
        Ok(true)
    }

    /// Forgets the owner of what was removed.
    pub(crate) fn forget(&self, key: &str) -> std::io::Result<()> {
        let mut owners = self.lock();
        let mut changed = owners.clone();
        if changed.remove(key).is_none() {
            return Ok(());
        }
        self.write(&changed)?;
        *owners = changed;
        Ok(())
    }

    fn write(&self, owners: &BTreeMap<String, String>) -> std::io::Result<()> {
        let items: Vec<(String, String)> = owners.clone().into_iter().collect();
        self.file.write(&items)
    }

    /// The owner of an entity that the node publishes: its own, or that of its producer.
    pub(crate) fn of(&self, entity: &Entity) -> Option<String> {
        let owners = self.lock();
        if let Some(owner) = owners.get(&entity.key) {
            return Some(owner.clone());
        }
        let producer = |triple: &&chappe_registry::oxrdf::Triple| {
            triple.predicate.as_ref() == vocabulary::PRODUCED_BY
        };
        let triple = entity.triples.iter().find(producer)?;
        let Term::NamedNode(producer) = &triple.object else {
            return None;
        };
        owners.get(producer.as_str()).cloned()
    }
}
