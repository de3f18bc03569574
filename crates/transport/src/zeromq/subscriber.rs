//! SUB (29/PUBSUB): connects to a publisher, and again whenever the connection ends.

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

/// First pause before connecting again; it doubles with each failure, and is drawn from half to
/// one and a half of that, so that subscribers do not come back all at once.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Changes of subscription that wait for the task.
const CHANGES_MAX: usize = 64;

/// How a subscriber's connection is.
#[derive(Debug, Clone)]
pub enum SubscriberLink {
    /// Not yet.
    Connecting,
    /// Connected.
    Connected(Peer),
    /// Not connected; tried again.
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
    /// Subscribes to these prefixes of a publisher. What fails is noted in `drops` and seen in
    /// [`Subscriber::link`], and tried again.
    ///
    /// # Errors
    /// When the endpoint cannot be read.
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

    /// Wants what begins so, too.
    pub async fn subscribe(&self, prefix: impl Into<Bytes>) {
        // The task ends only with this handle.
        let _ = self.changes.send(Change::Subscribe(prefix.into())).await;
    }

    /// Does not want it any more.
    pub async fn cancel(&self, prefix: impl Into<Bytes>) {
        let _ = self.changes.send(Change::Cancel(prefix.into())).await;
    }

    /// The next message. Giving the wait up loses nothing. While nobody takes what came, nothing
    /// more is read, and the publisher drops for this subscriber.
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

    /// How the connection is: to be watched.
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

    /// Runs a connection to its end.
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

    /// Waits, taking changes meanwhile; false when nobody wants anything any more.
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

    /// What has to be said of a change, if it is one.
    fn apply(&mut self, change: Change) -> Option<Outgoing> {
        match change {
            Change::Subscribe(prefix) => {
                let new = self.prefixes.insert(prefix.clone());
                new.then_some(Outgoing::Subscribe(prefix))
            }
            Change::Cancel(prefix) => {
                let gone = self.prefixes.remove(&prefix);
                gone.then_some(Outgoing::Cancel(prefix))
            }
        }
    }
}

/// From half to one and a half of it.
fn jittered(pause: Duration) -> Duration {
    // Without randomness every subscriber waits the same: worse, but not wrong.
    let draw = crate::seed_number().unwrap_or(0) % 1_001;
    pause / 2 + pause * u32::try_from(draw).unwrap_or(0) / 1_000
}
