//! Limits on concurrent requests of clients.

use std::sync::Arc;

use chappe_transport::Parsers;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Config;

/// Memory of all requests that write, by what they may hold: 64 MiB, an eighth of what a small host has.
const WRITE_UNITS: usize = (64 << 20) / WRITE_UNIT_BYTES;
/// A unit of this memory.
pub(crate) const WRITE_UNIT_BYTES: usize = 64 << 10;

/// Permits for expensive requests; dropping a permit returns it.
pub(crate) struct Permits {
    queries: Arc<Semaphore>,
    live_clients: Arc<Semaphore>,
    pulls: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    write_memory: Arc<Semaphore>,
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
            writes: limit(config.limits.writes),
            write_memory: Arc::new(Semaphore::new(WRITE_UNITS)),
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

    /// A permit for one request that writes elements (`limits.writes`).
    pub(crate) fn write(&self) -> Option<OwnedSemaphorePermit> {
        self.writes.clone().try_acquire_owned().ok()
    }

    /// A permit to hold so many bytes of requests that write, in units of [`WRITE_UNIT_BYTES`].
    pub(crate) fn write_memory(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(WRITE_UNIT_BYTES)).ok()?;
        self.write_memory.clone().try_acquire_many_owned(units).ok()
    }
}
