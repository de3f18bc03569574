//! The subscriptions by contact point that others have here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chappe_identity::Contact;
use chappe_stream::Position;
use chappe_transport::http::{Client, ClientLimits};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::host::KeptSubscription;
use crate::{LinkHost, Serialization};

/// The subscriptions that others have here.
pub(crate) struct Pushes {
    /// Calls contact points of `http`; one of `https` has a client that trusts its certificate.
    client: Client,
    subscriptions: Mutex<BTreeMap<String, Subscription>>,
    /// Something is to be kept.
    pub(super) news: Notify,
    keeper: OnceLock<AbortHandle>,
    /// Whether it was kept for the last time; locked while it is.
    pub(super) ended: Mutex<bool>,
}

/// One of them.
pub(super) struct Subscription {
    pub(super) expires: Instant,
    pub(super) task: AbortHandle,
    pub(super) kept: KeptSubscription,
    pub(super) destination: Destination,
}

/// A contact point, and the client that calls it.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) contact: Contact,
    pub(super) client: Client,
}

/// Limits of the clients that call contact points.
pub(super) fn limits() -> ClientLimits {
    ClientLimits {
        body_bytes: 64 << 10,
        ..ClientLimits::default()
    }
}

impl Default for Pushes {
    fn default() -> Self {
        Self {
            client: Client::new(limits()),
            subscriptions: Mutex::default(),
            news: Notify::new(),
            keeper: OnceLock::new(),
            ended: Mutex::default(),
        }
    }
}

impl Pushes {
    /// The client for contact points of `http`.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Starts the task that keeps them, if it does not run.
    pub(super) fn kept_by(&self, start: impl FnOnce() -> AbortHandle) {
        self.keeper.get_or_init(start);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Subscription>> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends those whose lease is over.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        let mut subscriptions = self.lock();
        let before = subscriptions.len();
        subscriptions.retain(|_, subscription| {
            let lives = subscription.expires > now && !subscription.task.is_finished();
            if !lives {
                subscription.task.abort();
            }
            lives
        });
        if subscriptions.len() < before {
            self.news.notify_one();
        }
    }

    /// Waits until a lease is over that is not renewed by then.
    pub(super) async fn lease_over(&self) {
        let first = self.lock().values().map(|it| it.expires).min();
        match first {
            Some(first) => tokio::time::sleep_until(first).await,
            None => std::future::pending().await,
        }
    }

    /// Ends all, and keeps what there is to keep.
    pub(crate) fn close(&self, host: &dyn LinkHost) {
        let Some(keeper) = self.keeper.get() else {
            return;
        };
        keeper.abort();
        self.keep(host, true);
        for (_, subscription) in std::mem::take(&mut *self.lock()) {
            subscription.task.abort();
        }
    }

    /// One is over.
    pub(super) fn remove(&self, id: &str) -> Option<AbortHandle> {
        let removed = self.lock().remove(id);
        self.news.notify_one();
        removed.map(|subscription| subscription.task)
    }

    /// Everything up to this position is at the contact point, or a dead letter.
    pub(super) fn reached(&self, id: &str, position: Position) {
        if let Some(subscription) = self.lock().get_mut(id) {
            subscription.kept.after = position;
            self.news.notify_one();
        }
    }

    /// What is to be kept.
    pub(super) fn kept(&self) -> Vec<KeptSubscription> {
        let subscriptions = self.lock();
        subscriptions.values().map(|it| it.kept.clone()).collect()
    }

    /// The contact point of this address that wants elements of a stream, and how; if there are
    /// several, the one of this path.
    pub(super) fn destination(
        &self,
        stream: &str,
        was: &Contact,
    ) -> Option<(Destination, Serialization)> {
        let subscriptions = self.lock();
        let mut fits: Vec<&Subscription> = subscriptions
            .values()
            .filter(|it| it.kept.stream == stream && it.destination.contact.address == was.address)
            .collect();
        fits.sort_by_key(|it| it.destination.contact.path != was.path);
        let found = fits.first()?;
        Some((found.destination.clone(), found.kept.serialization))
    }

    /// Hands what is to be kept to the host; nothing more after the last time.
    pub(super) fn keep(&self, host: &dyn LinkHost, last: bool) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            *ended = last;
            host.keep_subscriptions(&self.kept());
        }
    }
}
