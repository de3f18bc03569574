//! Limits on concurrent requests of clients, and the share that one account may have of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_stream::lines::LINE_BYTES_MAX;
use chappe_transport::Parsers;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::Config;

/// Memory of all requests that write, by what they may hold: 64 MiB, an eighth of what a small host has.
const WRITE_UNITS: usize = (64 << 20) / WRITE_UNIT_BYTES;
/// A unit of this memory.
pub(crate) const WRITE_UNIT_BYTES: usize = 64 << 10;
/// Memory that one atomic request takes, the most of all requests.
pub(crate) const WRITE_REQUEST_BYTES_MAX: usize = 4 << 20;

/// A kind of expensive requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RequestKind {
    /// SQL and SPARQL queries (`limits.queries`).
    Query,
    /// Clients of live data (`http.max_live_clients`).
    Live,
    /// Endless answers to other nodes (half of `http.max_connections`).
    Pull,
    /// Requests that write elements (`limits.writes`).
    Write,
}

impl RequestKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] = [Self::Query, Self::Live, Self::Pull, Self::Write];

    /// Its name for clients and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Live => "live",
            Self::Pull => "pull",
            Self::Write => "write",
        }
    }

    /// The key of its limit.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Query => "limits.queries",
            Self::Live => "http.max_live_clients",
            Self::Pull => "http.max_connections",
            Self::Write => "limits.writes",
        }
    }
}

/// An account whose requests are counted, with its share of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tenant {
    /// The account's name.
    pub(crate) name: Arc<str>,
    /// Percent of each kind.
    pub(crate) percent: u8,
}

/// Why a request gets no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    /// All permits of the node are in use.
    Node,
    /// The account has its share.
    Account {
        /// The permits that it may have.
        most: usize,
    },
}

/// A permit; dropping it returns it.
#[derive(Debug)]
pub(crate) struct Permit {
    _all: OwnedSemaphorePermit,
    _held: Option<Held>,
    // Dropped last: who waits finds the others returned.
    _returned: Returned,
}

/// Wakes those that wait for a permit when it is dropped.
#[derive(Debug)]
struct Returned(Arc<Notify>);

impl Drop for Returned {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// The permits that accounts hold, by name.
type HeldBy = Arc<Mutex<HashMap<Arc<str>, usize>>>;

/// Permits that count for an account.
#[derive(Debug)]
struct Held {
    by: HeldBy,
    account: Arc<str>,
    permits: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = held.get_mut(&self.account) {
            *permits -= self.permits.min(*permits);
            if *permits == 0 {
                held.remove(&self.account);
            }
        }
    }
}

/// The permits of one kind.
struct Pool {
    all: Arc<Semaphore>,
    size: usize,
    /// The permits that every account may have, however small its share is: those of one request.
    least: usize,
    held: HeldBy,
    returned: Arc<Notify>,
}

impl Pool {
    fn new(size: usize, least: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(size)),
            size,
            least,
            held: HeldBy::default(),
            returned: Arc::default(),
        }
    }

    fn take(&self, tenant: Option<&Tenant>, permits: usize) -> Result<Permit, Busy> {
        let held = tenant
            .map(|tenant| self.hold(tenant, permits))
            .transpose()?;
        let number = u32::try_from(permits).map_err(|_| Busy::Node)?;
        let all = self.all.clone().try_acquire_many_owned(number);
        Ok(Permit {
            _all: all.map_err(|_| Busy::Node)?,
            _held: held,
            _returned: Returned(self.returned.clone()),
        })
    }

    /// Waits until one permit is free.
    async fn take_within(&self, tenant: Option<&Tenant>, time: Duration) -> Result<Permit, Busy> {
        let end = Instant::now() + time;
        loop {
            // Begun before the attempt, so that no return is missed.
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            let busy = match self.take(tenant, 1) {
                Ok(permit) => return Ok(permit),
                Err(busy) => busy,
            };
            if tokio::time::timeout_at(end, returned).await.is_err() {
                return Err(busy);
            }
        }
    }

    fn hold(&self, tenant: &Tenant, permits: usize) -> Result<Held, Busy> {
        let share = (self.size * usize::from(tenant.percent)).div_ceil(100);
        let most = share.max(self.least);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.get(&tenant.name).copied().unwrap_or_default();
        if own + permits > most {
            return Err(Busy::Account { most });
        }
        held.insert(tenant.name.clone(), own + permits);
        Ok(Held {
            by: self.held.clone(),
            account: tenant.name.clone(),
            permits,
        })
    }

    fn held_by(&self, account: &str) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(account).copied().unwrap_or_default()
    }
}

/// Permits for expensive requests.
pub(crate) struct Permits {
    queries: Pool,
    live_clients: Pool,
    pulls: Pool,
    writes: Pool,
    write_memory: Pool,
    /// Threads that decode and encode large elements of live data.
    pub(crate) live_readers: Parsers,
    /// Answers of the guide, which strangers read: a quarter of `http.max_connections`.
    pub(crate) guide: Arc<Semaphore>,
}

impl Permits {
    pub(crate) fn new(config: &Config) -> Self {
        let pool = |permits: u32| Pool::new(permits as usize, 1);
        // A request that writes one long line takes its memory beside that of the request.
        let least = (WRITE_REQUEST_BYTES_MAX + LINE_BYTES_MAX).div_ceil(WRITE_UNIT_BYTES);
        Self {
            queries: pool(config.limits.queries),
            live_clients: pool(config.http.max_live_clients),
            // The other half of the connections is reserved for short requests.
            pulls: pool(config.http.max_connections.div_ceil(2)),
            writes: pool(config.limits.writes),
            write_memory: Pool::new(WRITE_UNITS, least),
            live_readers: Parsers::default(),
            guide: Arc::new(Semaphore::new(config.http.max_connections as usize / 4)),
        }
    }

    fn pool(&self, kind: RequestKind) -> &Pool {
        match kind {
            RequestKind::Query => &self.queries,
            RequestKind::Live => &self.live_clients,
            RequestKind::Pull => &self.pulls,
            RequestKind::Write => &self.writes,
        }
    }

    /// A permit for one request; `tenant`: the account for which it counts, if it has a share.
    ///
    /// # Errors
    /// None is free.
    pub(crate) fn take(&self, kind: RequestKind, tenant: Option<&Tenant>) -> Result<Permit, Busy> {
        self.pool(kind).take(tenant, 1)
    }

    /// The same, but waits for it for a time.
    ///
    /// # Errors
    /// None was free in this time.
    pub(crate) async fn take_within(
        &self,
        kind: RequestKind,
        tenant: Option<&Tenant>,
        time: Duration,
    ) -> Result<Permit, Busy> {
        self.pool(kind).take_within(tenant, time).await
    }

    /// A permit to hold so many bytes of requests that write, in units of [`WRITE_UNIT_BYTES`].
    ///
    /// # Errors
    /// None is free.
    pub(crate) fn write_memory(
        &self,
        bytes: usize,
        tenant: Option<&Tenant>,
    ) -> Result<Permit, Busy> {
        let units = bytes.div_ceil(WRITE_UNIT_BYTES);
        self.write_memory.take(tenant, units)
    }

    /// The requests of a kind that an account has now.
    pub(crate) fn held_by(&self, account: &str, kind: RequestKind) -> usize {
        self.pool(kind).held_by(account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, percent: u8) -> Tenant {
        let name = name.into();
        Tenant { name, percent }
    }

    #[test]
    fn one_account_leaves_the_others_their_part_and_gets_back_what_it_returns() {
        let pool = Pool::new(5, 1);
        let (ada, bob) = (tenant("ada", 50), tenant("bob", 50));
        let mut held: Vec<Permit> = (0..3).map(|_| pool.take(Some(&ada), 1).unwrap()).collect();
        let refused = pool.take(Some(&ada), 1).unwrap_err();
        assert_eq!(refused, Busy::Account { most: 3 });
        let others = [
            pool.take(Some(&bob), 1).unwrap(),
            pool.take(None, 1).unwrap(),
        ];
        assert_eq!(pool.take(None, 1).unwrap_err(), Busy::Node);
        assert_eq!(pool.take(Some(&bob), 1).unwrap_err(), Busy::Node);
        assert_eq!((pool.held_by("ada"), pool.held_by("bob")), (3, 1));
        held.pop();
        pool.take(Some(&ada), 1).unwrap();
        drop((held, others));
        assert_eq!((pool.held_by("ada"), pool.held_by("bob")), (0, 0));
        assert_eq!(pool.all.available_permits(), 5);
    }

    #[test]
    fn every_account_has_one_permit_however_small_its_share_is() {
        let pool = Pool::new(1, 1);
        drop(pool.take(Some(&tenant("ada", 1)), 1).unwrap());
        drop(pool.take(Some(&tenant("ada", 100)), 1).unwrap());
    }

    #[tokio::test]
    async fn who_waits_gets_the_permit_that_is_returned() {
        let pool = Pool::new(1, 1);
        let ada = tenant("ada", 100);
        let only = pool.take(Some(&ada), 1).unwrap();
        let refused = pool.take_within(None, Duration::from_millis(1)).await;
        assert_eq!(refused.unwrap_err(), Busy::Node);
        let waiting = pool.take_within(Some(&ada), Duration::from_secs(60));
        let returning = async {
            // The other waits by now.
            tokio::task::yield_now().await;
            drop(only);
        };
        let begun = Instant::now();
        let (taken, ()) = tokio::join!(waiting, returning);
        assert!(begun.elapsed() < Duration::from_secs(50));
        drop(taken.unwrap());
        assert_eq!(pool.all.available_permits(), 1);
    }

    #[test]
    fn every_account_has_the_memory_of_one_request_that_writes() {
        let permits = Permits::new(&Config::default());
        let ada = tenant("ada", 1);
        let request = permits.write_memory(WRITE_REQUEST_BYTES_MAX, Some(&ada));
        let request = request.unwrap();
        let line = permits.write_memory(LINE_BYTES_MAX, Some(&ada)).unwrap();
        let second = permits.write_memory(WRITE_REQUEST_BYTES_MAX, Some(&ada));
        assert!(matches!(second, Err(Busy::Account { .. })));
        drop((request, line));
    }
}
