//! Streams of links that are being defined.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_links::HostError;

/// Streams whose definition is on its way to the disk, by the key of the link that asked and their name,
/// or that could not be defined, until the link asks again. A link asks every few milliseconds, so that
/// no thread waits for the disk.
#[derive(Default)]
pub(super) struct Opening(Mutex<HashMap<(String, String), Option<HostError>>>);

impl Opening {
    pub(super) fn streams(&self) -> MutexGuard<'_, HashMap<(String, String), Option<HostError>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link is removed, and asks no more: the next one of its name begins without its errors.
    pub(super) fn forget(&self, source: &str) {
        self.streams().retain(|(asking, _), _| asking != source);
    }
}
