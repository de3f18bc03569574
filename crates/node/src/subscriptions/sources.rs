//! The running event sources of WS-Eventing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_dpws::exchange::Reply;
use chappe_soap::Envelope;
use tokio::sync::{mpsc, oneshot};

/// Requests to an event source, each with where its answer goes.
pub(super) type Inputs = mpsc::Sender<(Request, oneshot::Sender<Reply>)>;

/// A request to an event source or a subscription manager.
pub(crate) struct Request {
    pub(crate) peer: SocketAddr,
    /// Scheme, host and port.
    pub(crate) base: String,
    pub(crate) path: String,
    pub(crate) envelope: Envelope,
}

/// What an event source is about, and for whom.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Audience {
    pub(super) account: String,
    /// The subject as text.
    pub(super) subject: String,
}

/// A running event source.
pub(super) struct Source {
    pub(super) audience: Audience,
    pub(super) inputs: Inputs,
}

/// The running event sources by number.
#[derive(Default)]
pub(crate) struct Events {
    sources: Mutex<(u64, HashMap<u64, Source>)>,
}

impl Events {
    pub(super) fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, Source>)> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
