//! SUB (29/PUBSUB): connects to a publisher, and reconnects whenever the connection ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_zmtp::{Message, SocketType};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::driver::{Driver, Outgoing, Shared};
use super::queue::Queue;
use super::router::dial;
use super::{Error, Limits, Peer, Security};
use crate::{Drops, Hop};

/// The first pause before reconnecting. It doubles with each failure, and is jittered between half and one and a half of
/// that, so that subscribers do not reconnect at the same time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Subscription changes queued for the task.
const CHANGES_MAX: usize = 64;

/// The state of a subscriber's connection.
#[derive(Debug, Clone)]
pub enum SubscriberLink {
    /// Not connected yet.
    Connecting,
    /// Connected.
    Connected(Peer),
    /// Not connected; it is retried.
    Broken(Error),
}

/// A subscriber on TCP. Dropping it ends it.
#[derive(Debug)]
pub struct Subscriber {
    changes: mpsc::Sender<Change>,
    link: watch::Receiver<SubscriberLink>,
    incoming: Arc<Queue<Message>>,
    batch: std::vec::IntoIter<Message>,
    task: AbortHandle,
}

#[derive(Debug)]
enum Change {
    Subscribe(Bytes),
    Cancel(Bytes),
}

impl Subscriber {
    /// Subscribes to these prefixes of a publisher. Failures are recorded in `drops`, visible in
    /// [`Subscriber::link`], and retried.
    ///
    /// # Errors
    /// The endpoint is malformed.
    pub async fn connect<P: Into<Bytes>>(
        endpoint: &str,
        prefixes: impl IntoIterator<Item = P>,
        security: Security,
        limits: Limits,
        drops: Drops,
    ) -> Result<Self, Error> {
        endpoint.parse::<super::Endpoint>()?;
        let (changes, changed) = mpsc::channel(CHANGES_MAX);
        let (link_sender, link) = watch::channel(SubscriberLink::Connecting);
        let incoming = Arc::new(Queue::new(limits.receive_messages, limits.receive_bytes));
        let task = Task {
            endpoint: endpoint.to_owned(),
            security,
            limits,
            drops,
            prefixes: prefixes.into_iter().map(Into::into).collect(),
            changed,
            link: link_sender,
            incoming: Arc::clone(&incoming),
        };
        Ok(Self {
            changes,
            link,
            incoming,
            batch: Vec::new().into_iter(),
            task: tokio::spawn(task.run()).abort_handle(),
        })
    }

    /// Adds a prefix.
    pub async fn subscribe(&self, prefix: impl Into<Bytes>) {
        // The task ends only with this handle.
        let _ = self.changes.send(Change::Subscribe(prefix.into())).await;
    }

    /// Removes a prefix.
    pub async fn cancel(&self, prefix: impl Into<Bytes>) {
        let _ = self.changes.send(Change::Cancel(prefix.into())).await;
    }

    /// The next message. Cancel-safe. If messages are not taken, no more are read, and the publisher drops those of
    /// this subscriber.
    pub async fn recv(&mut self) -> Message {
        loop {
            if let Some(message) = self.batch.next() {
                return message;
            }
            let mut batch = Vec::new();
            self.incoming.pop(&mut batch, usize::MAX).await;
            self.batch = batch.into_iter();
        }
    }

    /// The state of the connection, with change notifications.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<SubscriberLink> {
        self.link.clone()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Task {
    endpoint: String,
    security: Security,
    limits: Limits,
    drops: Drops,
    prefixes: BTreeSet<Bytes>,
    changed: mpsc::Receiver<Change>,
    link: watch::Sender<SubscriberLink>,
    incoming: Arc<Queue<Message>>,
}

impl Task {
    async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let dialed = dial(
                &self.endpoint,
                SocketType::Sub,
                &self.security,
                &self.limits,
            )
            .await;
            let error = match dialed {
                Ok((driver, peer)) => {
                    pause = PAUSE_MIN;
                    self.serve(driver, peer).await
                }
                Err(error) => error,
            };
            let (endpoint, hint) = (&self.endpoint, error.hint());
            let (reason, detail) = (error.reason(), error.to_string());
            self.drops
                .record(Hop::Exchange, reason, endpoint, detail, hint);
            self.link.send_replace(SubscriberLink::Broken(error));
            if !self.wait(jittered(pause)).await {
                return;
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Runs a connection until it ends.
    async fn serve(&mut self, driver: Driver, peer: Peer) -> Error {
        let shared = Shared::reconnecting(&self.limits, &self.incoming);
        for prefix in &self.prefixes {
            shared
                .outgoing
                .offer(Outgoing::Subscribe(prefix.clone()), Default::default());
        }
        self.link.send_replace(SubscriberLink::Connected(peer));
        let limits = self.limits.clone();
        let mut running = std::pin::pin!(driver.run(Arc::clone(&shared), &limits, ()));
        loop {
            let change = tokio::select! {
                error = &mut running => return error,
                Some(change) = self.changed.recv() => change,
            };
            if let Some(outgoing) = self.apply(change) {
                // A subscription costs nothing in the queue, and a SUB sends nothing else.
                if shared.outgoing.push(outgoing, true).await.is_err() {
                    return running.await;
                }
            }
        }
    }

    /// Waits, and handles changes meanwhile; false if the subscriber is dropped.
    async fn wait(&mut self, pause: Duration) -> bool {
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return true,
                change = self.changed.recv() => match change {
                    Some(change) => drop(self.apply(change)),
                    None => return false,
                },
            }
        }
    }

    /// The command for a change, if one is needed.
    fn apply(&mut self, change: Change) -> Option<Outgoing> {
        match change {
            Change::Subscribe(prefix) => {
                let new = self.prefixes.insert(prefix.clone());
                new.then_some(Outgoing::Subscribe(prefix))
            }
            Change::Cancel(prefix) => {
                let is_removed = self.prefixes.remove(&prefix);
                is_removed.then_some(Outgoing::Cancel(prefix))
            }
        }
    }
}

/// Between half and one and a half of the pause.
fn jittered(pause: Duration) -> Duration {
    // Without randomness all subscribers wait the same time, which is less good but correct.
    let draw = crate::seed_number().unwrap_or(0) % 1_001;
    pause / 2 + pause * u32::try_from(draw).unwrap_or(0) / 1_000
}
