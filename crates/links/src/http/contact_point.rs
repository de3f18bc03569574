//! The contact point of a link: where its origin delivers elements.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{CONTACT_POINTS_PATH, secret};
use crate::inlet::Inlet;

/// The contact point of a link.
pub(crate) struct ContactPoint {
    /// Part of its address: a peer that knows it may send.
    secret: String,
    inlets: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Inlet>>>>,
}

impl ContactPoint {
    pub(crate) fn new(secret: String) -> Self {
        Self {
            secret,
            inlets: Mutex::default(),
        }
    }

    /// Whether this is its secret.
    pub(super) fn is_secret(&self, given: &str) -> bool {
        secret::is_equal(self.secret.as_bytes(), given.as_bytes())
    }

    /// The path of its address.
    pub(super) fn path(&self, link: &str) -> String {
        format!("{}/{link}/{}", CONTACT_POINTS_PATH, self.secret)
    }

    /// The receiving end of a stream that was subscribed to.
    pub(super) fn inlet(&self, stream: &str) -> Option<Arc<tokio::sync::Mutex<Inlet>>> {
        let inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.get(stream).cloned()
    }

    /// The link ends: receiving ends hold it, and it holds them.
    pub(crate) fn close(&self) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.clear();
    }

    /// This node does not take a stream, or the origin does not give it: its receiving end gives way
    /// to that of another link, and is created again by the next subscription.
    pub(super) fn drop_inlet(&self, stream: &str) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.remove(stream);
    }

    /// A stream is about to be subscribed to.
    pub(super) fn put(&self, stream: &str, inlet: Inlet) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.insert(stream.to_owned(), Arc::new(tokio::sync::Mutex::new(inlet)));
    }
}
