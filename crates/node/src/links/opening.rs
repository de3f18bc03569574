//! Streams of links that are being defined.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_links::HostError;

/// Streams that are being defined, by the key of the requesting link and their name. The error of a
/// failed definition stays until the link retries. A link polls every few milliseconds, so that no
/// thread waits for the disk.
#[derive(Default)]
pub(super) struct PendingOpens(Mutex<HashMap<(String, String), Option<HostError>>>);

impl PendingOpens {
    pub(super) fn streams(&self) -> MutexGuard<'_, HashMap<(String, String), Option<HostError>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the entries of a removed link, so that a later link of its name does not get its errors.
    pub(super) fn forget(&self, source: &str) {
        self.streams().retain(|(asking, _), _| asking != source);
    }
}
