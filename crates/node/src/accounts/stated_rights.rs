//! Rights that were stated for entities which the node itself publishes.
//!
//! The node publishes its devices, streams and virtual sensors again at each start, and whenever a device comes
//! back. So what was stated for them is in a file of the data directory, and each publication gets it from here.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_registry::{Holder, Rights};
use serde::{Deserialize, Serialize};

use crate::links::StateFile;

/// The file of these rights in the data directory.
pub(crate) const RIGHTS: &str = "rights.json";
/// Maximum number of entities in it; reason: all are written with each change.
const ENTITIES_MAX: usize = 10_000;

/// The rights to an entity as they are in the file, as texts of [`Holder`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredRights {
    key: String,
    read: Vec<String>,
    #[serde(default)]
    annotate: Option<Vec<String>>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    administer: Vec<String>,
}

impl StoredRights {
    fn of(key: &str, rights: &Rights) -> Self {
        let texts = |holders: &[Holder]| holders.iter().map(ToString::to_string).collect();
        Self {
            key: key.to_owned(),
            read: texts(&rights.read),
            annotate: rights.annotate.as_deref().map(texts),
            write: texts(&rights.write),
            administer: texts(&rights.administer),
        }
    }

    fn rights(self) -> Result<(String, Rights), String> {
        let holders = |texts: Vec<String>| {
            let holders = texts.iter().map(|text| text.parse::<Holder>());
            holders.collect::<Result<Vec<_>, _>>()
        };
        let rights = || {
            Ok(Rights {
                read: holders(self.read)?,
                annotate: self.annotate.map(holders).transpose()?,
                write: holders(self.write)?,
                administer: holders(self.administer)?,
            })
        };
        let failed = |error: chappe_registry::Error| format!("{RIGHTS}: {}: {error}", self.key);
        match rights() {
            Ok(rights) => Ok((self.key, rights.normalized())),
            Err(error) => Err(failed(error)),
        }
    }
}

/// See the [module documentation](self).
pub(crate) struct StatedRights {
    file: StateFile<StoredRights>,
    rights: Mutex<BTreeMap<String, Rights>>,
    /// Held while the file is written, so that no reader waits for the disk.
    writing: Mutex<()>,
}

impl StatedRights {
    /// Reads what was stated in earlier runs.
    ///
    /// # Errors
    /// The file cannot be read: an entity would show what is hidden.
    pub(crate) fn open(file: StateFile<StoredRights>) -> Result<Self, String> {
        let stored = file.read()?.into_iter().map(StoredRights::rights);
        Ok(Self {
            rights: Mutex::new(stored.collect::<Result<_, String>>()?),
            writing: Mutex::default(),
            file,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Rights>> {
        self.rights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rights stated for the entity `key`.
    pub(crate) fn of(&self, key: &str) -> Option<Rights> {
        self.lock().get(key).cloned()
    }

    /// States the rights to the entity `key`, first in the file, and returns those before; `None` is the default.
    /// Waits for the disk.
    ///
    /// # Errors
    /// The file cannot be written, or has too many entities; then nothing has changed.
    pub(crate) fn set(&self, key: &str, rights: Option<Rights>) -> io::Result<Option<Rights>> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.lock().clone();
        let rights = rights.map(Rights::normalized).filter(|it| !is_default(it));
        let earlier = match rights.clone() {
            Some(rights) => changed.insert(key.to_owned(), rights),
            None => changed.remove(key),
        };
        if earlier == rights {
            return Ok(earlier);
        }
        if changed.len() > ENTITIES_MAX {
            let text = format!("rights are stated for {ENTITIES_MAX} entities already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let stored = changed.iter();
        let stored: Vec<_> = stored
            .map(|(key, rights)| StoredRights::of(key, rights))
            .collect();
        self.file.write(&stored)?;
        *self.lock() = changed;
        Ok(earlier)
    }
}

/// Whether these are the rights to an entity for which nothing is stated.
fn is_default(rights: &Rights) -> bool {
    let Rights {
        read,
        annotate,
        write,
        administer,
    } = rights;
    *read == [Holder::Everybody] && annotate.is_none() && write.is_empty() && administer.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_back_and_the_default_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let file = || StateFile::new(directory.path(), RIGHTS);
        let stated = StatedRights::open(file()).unwrap();
        let rights = Rights {
            read: vec![Holder::Account("bob".to_owned()), Holder::AnyAccount],
            annotate: Some(Vec::new()),
            ..Rights::default()
        };
        assert_eq!(stated.set("urn:a", Some(rights.clone())).unwrap(), None);
        let rights = rights.normalized();
        let read = StatedRights::open(file()).unwrap();
        assert_eq!(read.of("urn:a"), Some(rights.clone()));
        assert_eq!(read.of("urn:b"), None);
        let default = Rights {
            read: vec![Holder::Everybody],
            ..Rights::default()
        };
        assert_eq!(read.set("urn:a", Some(default)).unwrap(), Some(rights));
        assert_eq!(StatedRights::open(file()).unwrap().of("urn:a"), None);
        let broken = r#"{"version": 1, "kept": [{"key": "urn:a", "read": ["bob"]}]}"#;
        std::fs::write(directory.path().join(RIGHTS), broken).unwrap();
        let error = StatedRights::open(file()).err().unwrap();
        assert!(error.contains("urn:a"), "{error}");
    }
}
