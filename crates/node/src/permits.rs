//! Limits on concurrent requests of clients.

use std::sync::Arc;

use chappe_transport::Parsers;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Config;

/// Permits for expensive requests; dropping a permit returns it.
pub(crate) struct Permits {
    queries: Arc<Semaphore>,
    live_clients: Arc<Semaphore>,
    pulls: Arc<Semaphore>,
    /// Threads that decode and encode large elements of live data.
    pub(crate) live_readers: Parsers,
}

impl Permits {
    pub(crate) fn new(config: &Config) -> Self {
        let limit = |permits: u32| Arc::new(Semaphore::new(permits as usize));
        Self {
            queries: limit(config.limits.queries),
            live_clients: limit(config.http.max_live_clients),
            // The other half of the connections is reserved for short requests.
            pulls: limit(config.http.max_connections.div_ceil(2)),
            live_readers: Parsers::default(),
        }
    }

    /// A permit for one SQL or SPARQL query (`limits.queries`).
    pub(crate) fn query(&self) -> Option<OwnedSemaphorePermit> {
        self.queries.clone().try_acquire_owned().ok()
    }

    /// A permit for one client of live data (`http.max_live_clients`).
    pub(crate) fn live_client(&self) -> Option<OwnedSemaphorePermit> {
        self.live_clients.clone().try_acquire_owned().ok()
    }

    /// A permit for one endless answer to another node (half of `http.max_connections`).
    pub(crate) fn pull(&self) -> Option<OwnedSemaphorePermit> {
        self.pulls.clone().try_acquire_owned().ok()
    }
}
