//! State shared by all links and all serving of a node.

use std::sync::{Arc, Mutex, PoisonError};

use chappe_stream::StreamStore;

use super::dead_letters::DeadLetters;
use super::feed::Feeds;
use super::feeding::Feeding;
use super::http::PushSubscriptions;
use super::peers::Peers;
use super::{LinkError, LinkHost, LinksConfig, ZeromqConfig};

/// The name of the dead letters of pushing; no link may have it.
pub const PUSH_LETTERS: &str = "http-push";
/// Most dead letters of pushing; the default of a link.
const LETTERS_MAX: u64 = 10_000;

/// State shared by all links and all serving.
pub(crate) struct Shared {
    /// The node.
    pub(crate) host: Arc<dyn LinkHost>,
    /// Its streams.
    pub(crate) store: StreamStore,
    /// The limits.
    pub(crate) config: LinksConfig,
    /// New elements of the streams that other nodes read.
    pub(crate) feeds: Feeds,
    /// The local streams that links feed.
    pub(crate) feeding: Arc<Feeding>,
    /// Subscriptions by contact point that other nodes have here.
    pub(crate) pushes: Arc<PushSubscriptions>,
    /// Elements that contact points refused; opened on first use.
    push_letters: Mutex<Option<Arc<DeadLetters>>>,
    /// The ZeroMQ configuration.
    pub(crate) zeromq: ZeromqConfig,
    /// The readers.
    pub(crate) peers: Arc<Peers>,
}

impl Shared {
    pub(crate) fn new(
        host: Arc<dyn LinkHost>,
        store: StreamStore,
        config: LinksConfig,
        zeromq: ZeromqConfig,
    ) -> Self {
        Self {
            host,
            store,
            config,
            feeds: Feeds::default(),
            feeding: Arc::default(),
            peers: Arc::default(),
            pushes: Arc::default(),
            push_letters: Mutex::default(),
            zeromq,
        }
    }

    /// The dead letters of pushing.
    pub(crate) fn push_letters(&self) -> Result<Arc<DeadLetters>, LinkError> {
        let mut letters = self
            .push_letters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*letters {
            return Ok(open.clone());
        }
        let open = DeadLetters::named(&self.store, PUSH_LETTERS, LETTERS_MAX)?;
        Ok(letters.insert(Arc::new(open)).clone())
    }
}
