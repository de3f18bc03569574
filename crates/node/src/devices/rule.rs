//! The state of the rule by which newcomers replace devices; [`succession`](super::succession) applies it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chappe_device::client::Presence;

use super::profiles::Profiles;
use crate::clock;
use crate::config::Config;

/// Bounds of the time between two looks at the claims: a tenth of the time that a device must have been gone.
const LOOK: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The rule, if the configuration has it.
pub(crate) struct Rule {
    pub(super) after: Duration,
    pub(super) profiles: Profiles,
    /// Where the devices of this run answered, by their keys; only those that have left are missing.
    pub(super) presences: Mutex<BTreeMap<String, Presence>>,
    /// The doubts that were announced, each with its former device.
    pub(super) announced: Mutex<BTreeSet<(String, String)>>,
    /// Former devices that keep their places for another while: they answered though they are not in the table, or the
    /// replacement failed.
    pub(super) deferred: Mutex<BTreeMap<String, Instant>>,
    /// Held while a place is taken, so that each decision sees the ones before it.
    pub(super) deciding: tokio::sync::Mutex<()>,
}

impl Rule {
    /// The rule of a configuration; none unless `devices.replace_after_s` is set.
    ///
    /// # Errors
    /// The profiles of an earlier run cannot be read.
    pub(super) fn open(config: &Config) -> Result<Option<Self>, String> {
        let after = Duration::from_secs(u64::from(config.devices.replace_after_s));
        if after.is_zero() {
            return Ok(None);
        }
        Ok(Some(Self {
            after,
            profiles: Profiles::open(config, clock::now().0)?,
            presences: Mutex::default(),
            announced: Mutex::default(),
            deferred: Mutex::default(),
            deciding: tokio::sync::Mutex::default(),
        }))
    }

    /// The time between two looks at the claims.
    pub(super) fn period(&self) -> Duration {
        (self.after / 10).clamp(LOOK.0, LOOK.1)
    }

    /// Lets a former device keep its place for another while.
    pub(super) fn defer(&self, former: &str) {
        lock(&self.deferred).insert(former.to_owned(), Instant::now());
    }

    /// Whether a former device keeps its place for now.
    pub(super) fn is_deferred(&self, former: &str) -> bool {
        let mut deferred = lock(&self.deferred);
        deferred.retain(|_, since| since.elapsed() < self.after);
        deferred.contains_key(former)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
