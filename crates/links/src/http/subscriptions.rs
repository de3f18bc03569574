//! The subscriptions by contact point that other nodes have here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chappe_identity::Contact;
use chappe_stream::Position;
use chappe_transport::http::{Client, ClientLimits};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::host::KeptSubscription;
use crate::{LinkHost, Reader, Serialization};

/// The subscriptions of other nodes.
pub(crate) struct PushSubscriptions {
    /// The client for `http` contact points; an `https` one has its own, which trusts its
    /// certificate.
    client: Client,
    subscriptions: Mutex<BTreeMap<String, Subscription>>,
    /// A change to be stored.
    pub(super) news: Notify,
    keeper: OnceLock<AbortHandle>,
    /// Whether they were stored for the last time; locked while they are being stored.
    pub(super) ended: Mutex<bool>,
}

/// One subscription.
pub(super) struct Subscription {
    pub(super) expires: Instant,
    pub(super) task: AbortHandle,
    pub(super) kept: KeptSubscription,
    /// The name under which its stream was defined.
    pub(super) stream: String,
    pub(super) destination: Destination,
}

/// A contact point, and its client.
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

impl Default for PushSubscriptions {
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

impl PushSubscriptions {
    /// The client for `http` contact points.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Starts the task that stores them, unless it runs.
    pub(super) fn kept_by(&self, start: impl FnOnce() -> AbortHandle) {
        self.keeper.get_or_init(start);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Subscription>> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends subscriptions with expired leases.
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

    /// Ends subscriptions of readers that may not read their stream any more by the name they use.
    pub(crate) fn review(&self, host: &dyn LinkHost) {
        // The host is not asked under the lock.
        let all: Vec<(KeptSubscription, String)> = {
            let all = self.lock();
            let each = all.values().map(|it| (it.kept.clone(), it.stream.clone()));
            each.collect()
        };
        let ended = all.into_iter().filter(|(kept, stream)| {
            let reader = Reader {
                address: Some(kept.reader),
                key: None,
                account: kept.account.clone(),
            };
            !host.may_read(&kept.stream, stream, &reader)
        });
        for (kept, _) in ended {
            if let Some(task) = self.remove(&kept.id) {
                task.abort();
                let text = format!(
                    "the subscriber may not read {} any more, or the name was freed",
                    kept.stream
                );
                host.dropped("access ended", &kept.contact_point, text, None);
            }
        }
    }

    /// Waits until a lease expires.
    pub(super) async fn lease_over(&self) {
        let first = self.lock().values().map(|it| it.expires).min();
        match first {
            Some(first) => tokio::time::sleep_until(first).await,
            None => std::future::pending().await,
        }
    }

    /// Ends all, and stores them for the last time.
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

    /// Removes a subscription.
    pub(super) fn remove(&self, id: &str) -> Option<AbortHandle> {
        let removed = self.lock().remove(id);
        self.news.notify_one();
        removed.map(|subscription| subscription.task)
    }

    /// Notes that everything up to this position is at the contact point, or a dead letter.
    pub(super) fn reached(&self, id: &str, position: Position) {
        if let Some(subscription) = self.lock().get_mut(id) {
            subscription.kept.after = position;
            self.news.notify_one();
        }
    }

    /// The subscriptions to be stored.
    pub(super) fn kept(&self) -> Vec<KeptSubscription> {
        let subscriptions = self.lock();
        subscriptions.values().map(|it| it.kept.clone()).collect()
    }

    /// The contact point at this address that is subscribed to the stream, and its serialization;
    /// of several, the one with this path.
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

    /// Passes the subscriptions to the host, and nothing more after the `last` time.
    pub(super) fn keep(&self, host: &dyn LinkHost, last: bool) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            *ended = last;
            host.keep_subscriptions(&self.kept());
        }
    }
}
