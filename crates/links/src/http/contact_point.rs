//! The contact point of a link: the address to which its origin sends elements.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{CONTACT_POINTS_PATH, secret};
use crate::inlet::Inlet;

/// The contact point of a link.
pub(crate) struct ContactPoint {
    /// Part of its address: knowing it authorizes a peer to send.
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

    /// The receiving end of a subscribed stream.
    pub(super) fn inlet(&self, stream: &str) -> Option<Arc<tokio::sync::Mutex<Inlet>>> {
        let inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.get(stream).cloned()
    }

    /// The link ends; this breaks the cycle between receiving ends and their contact point.
    pub(crate) fn close(&self) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.clear();
    }

    /// Drops the receiving end of a stream that this node or the origin refuses: another link can
    /// feed the stream, and the next subscription creates the receiving end again.
    pub(super) fn drop_inlet(&self, stream: &str) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.remove(stream);
    }

    /// Adds the receiving end of a stream before its subscription.
    pub(super) fn put(&self, stream: &str, inlet: Inlet) {
        let mut inlets = self.inlets.lock().unwrap_or_else(PoisonError::into_inner);
        inlets.insert(stream.to_owned(), Arc::new(tokio::sync::Mutex::new(inlet)));
    }
}
