//! Changes in flight, as their callers wait for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Inner, MAX_CONFLICTS, Registry, Taken};
use crate::entity::Entity;
use crate::error::Error;
use crate::journal::{Receipt, block_on};
use crate::limits::Room;

/// A change that its journal has not acknowledged.
pub(super) struct InFlight {
    pub(super) position: u64,
    pub(super) receipt: Receipt,
    pub(super) again: Option<Again>,
}

/// How a change is made again when its receipt reports that another node was faster.
pub(super) enum Again {
    Publish(Box<Entity>, Room),
    Remove(String),
    Renew(Vec<String>),
}

impl Again {
    /// Checks the change and appends it again.
    pub(super) fn submit(self, inner: &Arc<Inner>) -> Result<Publication, Error> {
        let registry = Registry {
            inner: Arc::clone(inner),
        };
        match self {
            Self::Publish(entity, room) => registry.publish_within(*entity, &room),
            Self::Remove(key) => registry.remove(&key),
            Self::Renew(keys) => registry.renew_all(keys),
        }
    }
}

/// A change in flight. Resolves with its revision once it is durable and visible.
#[must_use = "the change is acknowledged only when this resolves"]
pub struct Publication {
    pub(super) position: u64,
    /// Absent once it has resolved.
    pub(super) in_flight: Option<InFlight>,
    pub(super) inner: Arc<Inner>,
    /// How often other nodes were faster.
    pub(super) conflicts: usize,
    pub(super) _taken: Option<Taken>,
}

impl Publication {
    /// Position in the journal: the future revision of the change. In a shared journal it changes when
    /// another node is faster.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn set_again(&mut self, again: Option<Again>) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.again = again;
        }
    }

    /// Blocks the calling thread until the change is durable and visible.
    ///
    /// # Errors
    /// The journal's error; then the change is not in memory.
    pub fn wait(self) -> Result<u64, Error> {
        block_on(self)
    }
}

impl Future for Publication {
    type Output = Result<u64, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let position = self.position;
            let Some(in_flight) = &mut self.in_flight else {
                return Poll::Ready(Ok(position));
            };
            let Poll::Ready(outcome) = Pin::new(&mut in_flight.receipt).poll(context) else {
                return Poll::Pending;
            };
            let again = in_flight.again.take();
            self.in_flight = None;
            let error = match self.inner.resolve(position, outcome) {
                Ok(position) => return Poll::Ready(Ok(position)),
                Err(error) => error,
            };
            let Some(again) = again.filter(|_| error.is_conflict()) else {
                return Poll::Ready(Err(error));
            };
            self.conflicts += 1;
            if self.conflicts > MAX_CONFLICTS {
                return Poll::Ready(Err(error));
            }
            // Its room is taken again.
            self._taken = None;
            let mut next = match again.submit(&self.inner) {
                Ok(next) => next,
                Err(error) => return Poll::Ready(Err(error)),
            };
            self.position = next.position;
            self.in_flight = next.in_flight.take();
            self._taken = next._taken.take();
        }
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            self.inner.adopt(in_flight);
        }
    }
}

/// How often other nodes of a shared registry were faster with one request.
///
/// A request of several changes is planned on the state that its node knows. If only the receipt reports
/// that another node changed it first, nothing was changed, and the request has to be planned again:
///
/// ```
/// use chappe_registry::{Attempts, Entity, EntityKind, MemoryJournal, Principal, Registry, Room};
///
/// # async fn publish() -> Result<(), chappe_registry::Error> {
/// let registry = Registry::open(MemoryJournal::new())?;
/// let entity = Entity::new("urn:x:1", EntityKind::Other, "one");
/// let mut attempts = Attempts::default();
/// loop {
///     let planned = registry.publish_as(&Principal::Operator, &entity, &Room::default())?;
///     if attempts.settle(planned).await? {
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Attempts(usize);

impl Attempts {
    /// Waits until a planned change is durable and visible. `false`: another node was faster, so the
    /// request has to be planned again. `None` has nothing to wait for.
    ///
    /// # Errors
    /// The journal's error; then nothing was changed. One of them is that other nodes were faster with
    /// each of many attempts.
    pub async fn settle(&mut self, publication: Option<Publication>) -> Result<bool, Error> {
        let Some(publication) = publication else {
            return Ok(true);
        };
        match publication.await {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() && self.0 < MAX_CONFLICTS => {
                self.0 += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Publication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publication")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
