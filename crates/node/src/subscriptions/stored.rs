//! Subscriptions by e-mail, as they are stored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_registry::{EntityKind, Search, WatchSubject};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::links::StateFile;

/// The file of subscriptions.
const FILE: &str = "registry-subscriptions.json";

/// A subscription by e-mail, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) id: String,
    /// The account with the time of its creation; absent for the operator.
    pub(super) session: Option<String>,
    pub(crate) account: String,
    pub(crate) about: About,
    pub(crate) mail: String,
    /// Seconds of the lease that are left. It counts only while the node runs, so that no step of a clock
    /// ends it.
    pub(crate) left_s: u64,
    /// How far its mail was sent.
    pub(super) mark: Option<String>,
}

/// What a subscription is about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct About {
    pub(crate) key: Option<String>,
    pub(crate) query: Option<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) kind: Option<String>,
    #[serde(rename = "type")]
    pub(crate) entity_type: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) observed_property: Option<String>,
    pub(crate) about: Option<String>,
    pub(crate) owner: Option<String>,
}

impl About {
    /// Whether it names only one of these: an entity, a query, or criteria of a search.
    pub(crate) fn is_one(&self) -> bool {
        let criteria = Self {
            key: None,
            query: None,
            ..self.clone()
        };
        match (&self.key, &self.query) {
            (None, None) => true,
            (Some(_), Some(_)) => false,
            _ => criteria == Self::default(),
        }
    }

    pub(crate) fn subject(&self) -> WatchSubject {
        match (&self.key, &self.query) {
            (Some(key), _) => WatchSubject::Entity(key.clone()),
            (_, Some(query)) => WatchSubject::Query(query.clone()),
            _ => WatchSubject::Search(Box::new(Search {
                name_prefix: self.prefix.clone(),
                kind: self.kind.as_deref().and_then(EntityKind::from_word),
                entity_type: self.entity_type.clone(),
                scope: self.scope.clone(),
                observed_property: self.observed_property.clone(),
                about: self.about.clone(),
                owner: self.owner.clone(),
                ..Search::default()
            })),
        }
    }
}

/// A running subscription.
pub(super) struct Kept {
    pub(super) stored: Stored,
    /// Ends its task.
    pub(super) stop: watch::Sender<bool>,
    /// Since when `left_s` is not counted down.
    pub(super) since: Instant,
}

/// The subscriptions by e-mail.
pub(crate) struct MailSubscriptions {
    file: StateFile<Stored>,
    kept: Mutex<BTreeMap<String, Kept>>,
}

impl MailSubscriptions {
    /// None yet; they are stored in this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            file: StateFile::new(directory, FILE),
            kept: Mutex::default(),
        }
    }

    /// Reads what an earlier run stored.
    pub(super) fn read(&self) -> Result<Vec<Stored>, String> {
        self.file.read()
    }

    /// Stores the subscriptions.
    pub(super) fn write(&self, kept: &BTreeMap<String, Kept>) -> std::io::Result<()> {
        let all: Vec<Stored> = kept.values().map(|kept| kept.stored.clone()).collect();
        self.file.write(&all)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All subscriptions.
    pub(crate) fn all(&self) -> Vec<Stored> {
        let kept = self.lock();
        kept.values().map(|kept| kept.stored.clone()).collect()
    }

    /// Changes a subscription; false if there is none.
    pub(super) fn change(&self, id: &str, change: impl FnOnce(&mut Kept)) -> std::io::Result<bool> {
        let mut kept = self.lock();
        let Some(one) = kept.get_mut(id) else {
            return Ok(false);
        };
        change(one);
        self.write(&kept)?;
        Ok(true)
    }

    /// Gives a subscription its lease again.
    pub(crate) fn renew(&self, id: &str, lease_s: u64) -> std::io::Result<bool> {
        self.change(id, |kept| {
            (kept.stored.left_s, kept.since) = (lease_s, Instant::now());
        })
    }

    /// Ends a subscription; false if there is none.
    pub(crate) fn remove(&self, id: &str) -> std::io::Result<bool> {
        let mut kept = self.lock();
        let Some(removed) = kept.remove(id) else {
            return Ok(false);
        };
        removed.stop.send_replace(true);
        self.write(&kept)?;
        Ok(true)
    }

    /// Counts the leases down, and ends those that are over.
    ///
    /// # Errors
    /// They cannot be stored.
    pub(super) fn count_down(&self) -> std::io::Result<()> {
        let mut kept = self.lock();
        let mut over = Vec::new();
        for (id, one) in kept.iter_mut() {
            let elapsed = one.since.elapsed().as_secs();
            one.since += Duration::from_secs(elapsed);
            one.stored.left_s = one.stored.left_s.saturating_sub(elapsed);
            if one.stored.left_s == 0 {
                one.stop.send_replace(true);
                over.push(id.clone());
            }
        }
        kept.retain(|id, _| !over.contains(id));
        self.write(&kept)
    }
}
