//! Owners of what accounts publish in the registry, with the rights to it.
//!
//! A link or a virtual sensor belongs to the account that made it, and so does its stream. The entity
//! of a stream that an account defines names its owner itself. Everything else belongs to the node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_registry::oxrdf::Term;
use chappe_registry::{Entity, vocabulary};

use super::StatedRights;
use crate::links::StateFile;

/// The file of owners in the data directory.
pub(crate) const OWNERS: &str = "owners.json";

/// The owners of links and virtual sensors, by their keys in the registry.
pub(crate) struct Owners {
    file: StateFile<(String, String)>,
    owners: Mutex<BTreeMap<String, String>>,
    rights: StatedRights,
    /// Held while the file is written, so that no reader of owners waits for the disk.
    writing: Mutex<()>,
}

impl Owners {
    /// Reads the owners of earlier runs.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(
        file: StateFile<(String, String)>,
        rights: StatedRights,
    ) -> Result<Self, String> {
        Ok(Self {
            rights,
            owners: Mutex::new(file.read()?.into_iter().collect()),
            writing: Mutex::default(),
            file,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the owner of what is new under `key`, and returns whether it was; an earlier owner stays. Waits for the
    /// disk.
    pub(crate) fn set(&self, key: &str, owner: &str) -> std::io::Result<bool> {
        self.change(|owners| match owners.contains_key(key) {
            true => false,
            false => owners.insert(key.to_owned(), owner.to_owned()).is_none(),
        })
    }

    /// The rights that are stated for what the node publishes.
    pub(crate) fn rights(&self) -> &StatedRights {
        &self.rights
    }

    /// Forgets the owner of what was removed, and the rights to it. Waits for the disk.
    pub(crate) fn forget(&self, key: &str) -> std::io::Result<()> {
        self.rights.set(key, None)?;
        self.change(|owners| owners.remove(key).is_some()).map(drop)
    }

    /// Changes the owners, first in the file. `change` returns whether it changes anything, and so does this.
    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, String>) -> bool,
    ) -> std::io::Result<bool> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.lock().clone();
        if !change(&mut changed) {
            return Ok(false);
        }
        let items: Vec<(String, String)> = changed.clone().into_iter().collect();
        self.file.write(&items)?;
        *self.lock() = changed;
        Ok(true)
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
