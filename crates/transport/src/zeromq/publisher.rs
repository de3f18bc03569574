//! PUB (29/PUBSUB): each subscriber gets the messages that match one of its prefixes, as far as it keeps up.
//! Subscribers in this process are served like those on TCP.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use chappe_identity::CurvePublic;
use chappe_zmtp::{Message, SocketType};
use tokio::sync::watch;

use super::driver::{Driver, Outgoing, Shared, SubscriptionHandler};
use super::listener::{Listener, Serve};
use super::queue::Queue;
use super::{Endpoint, Error, Limits, Peer, Security};
use crate::{Drops, Hop};

/// Publishes to subscribers on TCP and in this process. Its clones are one publisher; the sockets close with the last
/// one.
#[derive(Debug, Clone)]
pub struct Publisher {
    table: Arc<Table>,
    listeners: Arc<Mutex<Vec<Listener>>>,
}

/// The state of a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberState {
    /// Its address; `None` for one in this process.
    pub address: Option<SocketAddr>,
    /// The public key that it has proven, with CURVE.
    pub key: Option<CurvePublic>,
    /// The number of its prefixes.
    pub prefixes: usize,
    /// Matching messages since it connected.
    pub matched: u64,
    /// Those of them that were dropped because it was too slow.
    pub dropped: u64,
    /// Messages queued for it.
    pub queued: usize,
}

impl Publisher {
    /// A publisher that does not listen yet.
    #[must_use]
    pub fn new(limits: Limits, drops: Drops) -> Self {
        Self {
            table: Arc::new(Table {
                state: Mutex::default(),
                revision: watch::Sender::new(0),
                limits,
                drops,
            }),
            listeners: Arc::default(),
        }
    }

    /// A listening publisher.
    ///
    /// # Errors
    /// The endpoint is malformed or cannot be bound.
    pub async fn bind(
        endpoint: &str,
        security: Security,
        limits: Limits,
        drops: Drops,
    ) -> Result<Self, Error> {
        let publisher = Self::new(limits, drops);
        publisher.listen(endpoint, &security)?;
        Ok(publisher)
    }

    /// Listens at another endpoint; returns it with the bound port.
    ///
    /// # Errors
    /// The endpoint is malformed or cannot be bound.
    pub fn listen(&self, endpoint: &str, security: &Security) -> Result<Endpoint, Error> {
        let listener = Listener::bind(
            endpoint,
            SocketType::Xpub,
            security,
            &self.table.limits,
            self.table.drops.clone(),
            Subscribers {
                table: Arc::clone(&self.table),
            },
        )?;
        let local = listener.local.into();
        self.listeners().push(listener);
        Ok(local)
    }

    /// The first endpoint, with the bound port.
    #[must_use]
    pub fn local_endpoint(&self) -> Option<Endpoint> {
        self.listeners().first().map(|first| first.local.into())
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a message with the topic and these frames. Returns the number of its subscribers. Copies nothing
    /// for a subscriber, and never waits.
    pub fn publish(
        &self,
        topic: impl Into<Bytes>,
        frames: impl IntoIterator<Item = Bytes>,
    ) -> usize {
        let mut message = Message::new(topic);
        frames.into_iter().for_each(|frame| message.push(frame));
        self.publish_message(&message)
    }

    /// Publishes a message whose first frame is the topic or starts with it. Returns the number of its subscribers.
    pub fn publish_message(&self, message: &Message) -> usize {
        self.table.publish(message, &mut |_| true)
    }

    /// Like [`Publisher::publish_message`], to those subscribers whose proven key `allows` accepts, and to those
    /// without a key.
    pub fn publish_to(
        &self,
        message: &Message,
        allows: &mut dyn FnMut(&CurvePublic) -> bool,
    ) -> usize {
        self.table.publish(message, allows)
    }

    /// Whether the topic has a subscriber; otherwise messages need not be encoded.
    #[must_use]
    pub fn wants(&self, topic: &[u8]) -> bool {
        let state = self.table.state();
        state.matching(topic).next().is_some()
    }

    /// All current prefixes, in order.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<Bytes> {
        self.table.state().prefixes.keys().cloned().collect()
    }

    /// Increases when a prefix is added or removed, to wait for a change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.table.revision.subscribe()
    }

    /// The state of each subscriber.
    #[must_use]
    pub fn subscribers(&self) -> Vec<SubscriberState> {
        let state = self.table.state();
        let subscribers = state.subscribers.values();
        subscribers.map(Entry::state).collect()
    }

    /// Messages dropped for slow subscribers, including former ones.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let state = self.table.state();
        let now: u64 = state.subscribers.values().map(Entry::dropped).sum();
        state.dropped_before + now
    }

    /// A subscriber in this process, without prefixes at first.
    #[must_use]
    pub fn subscribe_here(&self) -> LocalSubscriber {
        let limits = &self.table.limits;
        let queue = Arc::new(Queue::new(limits.send_messages, limits.send_bytes));
        let number = self.table.add(None, Transport::Here(Arc::clone(&queue)));
        LocalSubscriber {
            table: Arc::clone(&self.table),
            number,
            queue,
            batch: Vec::new().into_iter(),
        }
    }
}

/// A subscriber in the publisher's process.
#[derive(Debug)]
pub struct LocalSubscriber {
    table: Arc<Table>,
    number: u64,
    queue: Arc<Queue<Outgoing>>,
    batch: std::vec::IntoIter<Outgoing>,
}

impl LocalSubscriber {
    /// Subscribes to messages with this prefix.
    pub fn subscribe(&self, prefix: impl Into<Bytes>) {
        self.table.subscribe(self.number, prefix.into());
    }

    /// Cancels the subscription of this prefix.
    pub fn cancel(&self, prefix: &[u8]) {
        self.table.cancel(self.number, prefix);
    }

    /// The next message. Cancel-safe.
    pub async fn recv(&mut self) -> Message {
        loop {
            for outgoing in self.batch.by_ref() {
                if let Outgoing::Message(message) = outgoing {
                    return message;
                }
            }
            let mut batch = Vec::new();
            self.queue.pop(&mut batch, usize::MAX).await;
            self.batch = batch.into_iter();
        }
    }
}

impl Drop for LocalSubscriber {
    fn drop(&mut self) {
        self.table.remove(self.number);
    }
}

/// The subscriptions.
#[derive(Debug)]
struct Table {
    state: Mutex<State>,
    revision: watch::Sender<u64>,
    limits: Limits,
    drops: Drops,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    subscribers: HashMap<u64, Entry>,
    prefixes: BTreeMap<Bytes, HashSet<u64>>,
    /// The number of prefixes of each length: a topic is looked up once for each length in use.
    lengths: BTreeMap<usize, usize>,
    dropped_before: u64,
}

#[derive(Debug)]
struct Entry {
    peer: Option<Peer>,
    transport: Transport,
    prefixes: HashSet<Bytes>,
    matched: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Transport {
    Tcp(Arc<Shared>),
    Here(Arc<Queue<Outgoing>>),
}

impl Entry {
    fn queue(&self) -> &Queue<Outgoing> {
        match &self.transport {
            Transport::Tcp(shared) => &shared.outgoing,
            Transport::Here(queue) => queue,
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn state(&self) -> SubscriberState {
        SubscriberState {
            address: self.peer.as_ref().map(|peer| peer.address),
            key: self.peer.as_ref().and_then(|peer| peer.key),
            prefixes: self.prefixes.len(),
            matched: self.matched.load(Ordering::Relaxed),
            dropped: self.dropped(),
            queued: self.queue().size().0,
        }
    }
}

impl State {
    /// The subscribers of each prefix that matches this topic.
    fn matching<'a>(&'a self, topic: &'a [u8]) -> impl Iterator<Item = &'a HashSet<u64>> {
        self.lengths
            .keys()
            .take_while(|length| **length <= topic.len())
            .filter_map(|length| self.prefixes.get(&topic[..*length]))
    }

    fn unsubscribe(&mut self, number: u64, prefix: &[u8]) -> bool {
        let Some(wanting) = self.prefixes.get_mut(prefix) else {
            return false;
        };
        wanting.remove(&number);
        if !wanting.is_empty() {
            return false;
        }
        self.prefixes.remove(prefix);
        if let Some(used) = self.lengths.get_mut(&prefix.len()) {
            *used -= 1;
            if *used == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
        true
    }
}

impl Table {
    /// Every change leaves the table consistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn add(&self, peer: Option<Peer>, transport: Transport) -> u64 {
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        let entry = Entry {
            peer,
            transport,
            prefixes: HashSet::new(),
            matched: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        state.subscribers.insert(number, entry);
        number
    }

    fn remove(&self, number: u64) {
        let mut state = self.state();
        let Some(entry) = state.subscribers.remove(&number) else {
            return;
        };
        state.dropped_before += entry.dropped();
        let mut is_unsubscribed = false;
        for prefix in &entry.prefixes {
            is_unsubscribed |= state.unsubscribe(number, prefix);
        }
        drop(state);
        if is_unsubscribed {
            self.changed();
        }
    }

    fn subscribe(&self, number: u64, prefix: Bytes) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(entry) = state.subscribers.get_mut(&number) else {
            return;
        };
        entry.prefixes.insert(prefix.clone());
        let length = prefix.len();
        let wanting = state.prefixes.entry(prefix).or_default();
        let new = wanting.is_empty();
        wanting.insert(number);
        if new {
            *state.lengths.entry(length).or_default() += 1;
            self.changed();
        }
    }

    fn cancel(&self, number: u64, prefix: &[u8]) {
        let mut state = self.state();
        if let Some(entry) = state.subscribers.get_mut(&number) {
            entry.prefixes.remove(prefix);
        }
        if state.unsubscribe(number, prefix) {
            self.changed();
        }
    }

    fn publish(&self, message: &Message, allows: &mut dyn FnMut(&CurvePublic) -> bool) -> usize {
        let state = self.state();
        let mut matching = state.matching(message.first());
        let Some(first) = matching.next() else {
            return 0;
        };
        // Usually one prefix matches; with several, no subscriber gets the message twice.
        let mut seen = None;
        for more in matching {
            let seen = seen.get_or_insert_with(|| first.clone());
            seen.extend(more);
        }
        let mut count = 0;
        for number in seen.as_ref().unwrap_or(first) {
            let Some(entry) = state.subscribers.get(number) else {
                continue;
            };
            let key = entry.peer.as_ref().and_then(|peer| peer.key.as_ref());
            if key.is_none_or(&mut *allows) {
                self.offer(entry, message);
                count += 1;
            }
        }
        count
    }

    fn offer(&self, entry: &Entry, message: &Message) {
        const REASON: &str = "subscriber too slow";
        entry.matched.fetch_add(1, Ordering::Relaxed);
        let outgoing = Outgoing::Message(message.clone());
        let dropped = entry.queue().offer(outgoing, self.limits.dropping);
        if dropped == 0 {
            return;
        }
        if entry.dropped.fetch_add(dropped, Ordering::Relaxed) > 0 {
            return self.drops.count(dropped, Hop::Exchange, REASON);
        }
        // Recorded once, counted always.
        let who = match &entry.peer {
            Some(peer) => peer.address.to_string(),
            None => "this process".to_owned(),
        };
        let hint = Some("best effort drops for slow subscribers: use a reliable link".to_owned());
        self.drops
            .record_times(dropped, Hop::Exchange, REASON, who, "", hint);
    }
}

#[derive(Clone)]
struct Subscribers {
    table: Arc<Table>,
}

impl Serve for Subscribers {
    async fn serve(&self, driver: Driver, peer: Peer) -> Error {
        let shared = Shared::new(&self.table.limits);
        let subscribing = Subscribing {
            number: self
                .table
                .add(Some(peer), Transport::Tcp(Arc::clone(&shared))),
            table: Arc::clone(&self.table),
        };
        driver.run(shared, &self.table.limits, subscribing).await
    }
}

/// A subscriber on TCP, removed when its connection ends.
struct Subscribing {
    table: Arc<Table>,
    number: u64,
}

impl SubscriptionHandler for Subscribing {
    fn on_subscribed(&mut self, prefix: Bytes) {
        self.table.subscribe(self.number, prefix);
    }
    fn on_cancelled(&mut self, prefix: &Bytes) {
        self.table.cancel(self.number, prefix);
    }
}

impl Drop for Subscribing {
    fn drop(&mut self) {
        self.table.remove(self.number);
    }
}
