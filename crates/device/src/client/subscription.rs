//! Subscriptions: one event sink for each dialect, one server for each local address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::action::SUBSCRIPTION_END;
use chappe_dpws::eventing::{
    EndReason, EventSink, SinkCommand, SinkConfig, SinkEvent, SinkReceive, SinkTransmit, Source,
    SubscriptionKey, Token,
};
use chappe_dpws::exchange::Reply;
use chappe_identity::{CertificateName, Contact, Scheme};
use chappe_machine::{Input, Output};
use chappe_soap::Envelope;
use chappe_transport::http::{Request, Server, base};
use chappe_transport::{Drops, Hop, route_source};
use chappe_xml::Element;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::inbox::{self, Inbox, QueueLimits, QueueReader, QueueSlot};
use super::posted;
use super::tree::TreeNode;
use super::{DeviceClient, HostedService, Shared};
use crate::Error;
use crate::driver::{InputOf, OutputHandler, drive};

/// Inputs queued for a machine.
const INPUTS_MAX: usize = 1_024;
/// The requested lease; devices may grant less.
const LEASE: Duration = Duration::from_secs(600);
/// The time limit for Unsubscribe when the client closes.
const UNSUBSCRIBE_DEADLINE: Duration = Duration::from_secs(1);

/// An event of a subscription.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delivery {
    /// The device granted it, for the first time or after an end: earlier events may have been missed.
    Subscribed {
        /// The granted lease; it is renewed in time.
        granted: Duration,
    },
    /// It was renewed, or confirmed after trouble.
    Renewed {
        /// The granted lease; it is renewed in time.
        granted: Duration,
    },
    /// An event.
    Notification(Notification),
    /// It ended; unless it was unsubscribed, it is retried.
    Ended(EndReason),
    /// It cannot be established or kept for now; it is retried.
    Trouble {
        /// The problem.
        detail: String,
        /// A remedy, if one is known.
        hint: Option<&'static str>,
    },
}

/// An event of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// The action of the event.
    pub action: String,
    /// Its content.
    pub body: Element,
    /// The time of arrival.
    pub received_at: SystemTime,
}

/// A subscription; it ends when it is closed or dropped.
///
/// When the limit on waiting notifications or their bytes is reached, devices wait for their answers.
pub struct Subscription {
    key: SubscriptionKey,
    reader: QueueReader,
    sink: Arc<Sink>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Subscription {
    /// The next delivery; `None` after the client has closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        let queued = self.reader.queue.recv().await?;
        Some(queued.delivery)
    }

    /// Like [`Subscription::next`], for polling several.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let queued = ready!(self.reader.queue.poll_recv(context));
        Poll::Ready(queued.map(|queued| queued.delivery))
    }

    /// Asks the device, which may have restarted, whether it still has the subscription.
    pub async fn verify(&self) {
        self.sink
            .command(SinkCommand::Verify { key: self.key })
            .await;
    }

    /// Unsubscribes. Events that have arrived are still delivered and acknowledged; then `None` follows.
    /// Later ones are refused.
    pub fn close(&mut self) {
        if self.end() {
            self.reader.admit_all();
        }
    }

    /// Stops accepting events, and unsubscribes once the arrived ones are read; false if it has ended
    /// before.
    fn end(&mut self) -> bool {
        let mut state = self.sink.state();
        if state.receivers.remove(&self.key).is_none() {
            return false;
        }
        state.hosts.remove(&self.key);
        state.signers.remove(&self.key);
        // The last tree events have no reader.
        if let Some(tree) = state.trees.remove(&self.key) {
            tree.leave(&self.sink, self.key);
        }
        true
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.end();
        // A device whose event waits for room learns that it is not received.
        self.reader.reject_all();
    }
}

/// The subscriptions of one client and their servers.
#[derive(Default)]
pub(super) struct Sinks {
    pub(super) by_dialect: HashMap<Dialect, (Arc<Sink>, JoinHandle<()>)>,
    servers: HashMap<(IpAddr, Scheme), Server>,
    /// Nodes of notification trees, one for each local address.
    trees: HashMap<IpAddr, Arc<TreeNode>>,
    next_key: u64,
}

/// One event sink and the state of its driver.
pub(super) struct Sink {
    pub(super) inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
    pub(super) path: &'static str,
    state: Mutex<State>,
}

/// A message that the machine is processing.
struct Posted {
    /// Receives the answer; `None` if the notification has no reader any longer.
    answer: oneshot::Sender<Option<Reply>>,
    /// The reserved room, if the message may be a notification.
    slot: Option<QueueSlot>,
}

#[derive(Default)]
struct State {
    receivers: HashMap<SubscriptionKey, Arc<Inbox>>,
    /// The hosts of the subscriptions.
    hosts: HashMap<SubscriptionKey, IpAddr>,
    /// The certificates that have to sign the messages of subscriptions.
    signers: HashMap<SubscriptionKey, CertificateName>,
    /// The nodes of notification trees that subscriptions may use.
    trees: HashMap<SubscriptionKey, Arc<TreeNode>>,
    /// Open queries for the subscription at a path. At most one for each request being served.
    path_queries: Vec<(String, oneshot::Sender<Option<SubscriptionKey>>)>,
    /// Posted messages without an answer yet. At most one for each request being served.
    posted: HashMap<u64, Posted>,
    next_token: u64,
    /// The interfaces of link-local devices, which addresses in messages do not name.
    zones: HashMap<Ipv6Addr, u32>,
}

impl DeviceClient {
    /// Subscribes to events of a service by their actions; an empty list means all events of its WSDL.
    ///
    /// The subscription is kept alive, and renewed if the device loses it, until it is dropped.
    ///
    /// # Errors
    /// The service has no events, or notifications cannot be received on the address that reaches the
    /// device. Answers of the device arrive as a [`Delivery`].
    pub async fn subscribe(
        &self,
        service: &HostedService,
        actions: &[String],
    ) -> Result<Subscription, Error> {
        let actions = match actions {
            [] => service.events(),
            actions => actions.to_vec(),
        };
        let shared = &self.shared;
        let peer = service.contact.address;
        let local = route_source(peer).map_err(|source| Error::Listen { at: None, source })?;
        let (sink, base, tree, key) = {
            let mut sinks = shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
            let sink = sinks.sink(shared, service.dialect)?;
            let base = sinks.base(shared, local, &service.contact)?;
            let tree = sinks.tree(shared, local)?;
            sinks.next_key += 1;
            (sink, base, tree, SubscriptionKey(sinks.next_key))
        };
        shared.schemas.add(&service.exi_schema);
        let limits = QueueLimits {
            notifications: shared.options.notifications_max,
            bytes: shared.options.notifications_bytes,
        };
        let (inbox, reader) = inbox::queue(key, limits, sink.inputs.clone());
        {
            let mut state = sink.state();
            state.receivers.insert(key, inbox);
            state.hosts.insert(key, peer.ip());
            if let Some(signer) = &service.signer {
                state.signers.insert(key, signer.clone());
            }
            if let Some(tree) = &tree {
                state.trees.insert(key, Arc::clone(tree));
            }
            if let SocketAddr::V6(peer) = peer {
                state.zones.insert(*peer.ip(), peer.scope_id());
            }
        }
        let source = Source {
            endpoint: service.endpoint.clone(),
            peer,
            actions: actions.into_iter().map(Into::into).collect(),
            lease: LEASE,
            base: base.into(),
            tree: tree.map(|tree| tree.sink),
        };
        let source = Box::new(source);
        sink.command(SinkCommand::Subscribe { key, source }).await;
        Ok(Subscription { key, reader, sink })
    }
}

impl Shared {
    /// Asks a host, which may have restarted, whether it still has its subscriptions.
    pub(super) async fn verify(&self, host: IpAddr) {
        let mut doubted = Vec::new();
        {
            let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
            for (sink, _) in sinks.by_dialect.values() {
                let state = sink.state();
                let keys = state.hosts.iter().filter(|(_, at)| **at == host);
                doubted.extend(keys.map(|(key, _)| (Arc::clone(sink), *key)));
            }
        }
        for (sink, key) in doubted {
            sink.command(SinkCommand::Verify { key }).await;
        }
    }
}

impl Sinks {
    fn sink(&mut self, shared: &Arc<Shared>, dialect: Dialect) -> Result<Arc<Sink>, Error> {
        if let Some(sink) = self.by_dialect.get(&dialect) {
            return Ok(Arc::clone(&sink.0));
        }
        let path = match dialect {
            Dialect::V2009 => "/events",
            Dialect::V2005 => "/events-2005",
        };
        let config = SinkConfig {
            path: path.into(),
            dialect,
            utc_at_origin_ns: Some(crate::http::utc_at_origin_ns()),
            ..SinkConfig::default()
        };
        let weak = Arc::downgrade(shared);
        let check = move |address: &str, peer| {
            let shared = weak
                .upgrade()
                .ok_or_else(|| "the client is closed".to_owned())?;
            let checked = shared.known.check(&shared.options.policy, address, peer);
            checked.map(drop).map_err(|refusal| refusal.to_string())
        };
        let secret = crate::http::secret()?;
        let machine = EventSink::new(config, Arc::new(check), secret);
        let (inputs, receive) = mpsc::channel(INPUTS_MAX);
        let sink = Arc::new(Sink {
            inputs,
            path,
            state: Mutex::default(),
        });
        let outputs = SinkOutputs {
            sink: Arc::downgrade(&sink),
            shared: Arc::downgrade(shared),
            notification: None,
            requests: JoinSet::new(),
        };
        let running = tokio::spawn(run(machine, receive, outputs));
        self.by_dialect
            .insert(dialect, (Arc::clone(&sink), running));
        Ok(sink)
    }

    /// The node of notification trees on `local`, if trees are enabled.
    fn tree(
        &mut self,
        shared: &Arc<Shared>,
        local: IpAddr,
    ) -> Result<Option<Arc<TreeNode>>, Error> {
        let Some(options) = &shared.options.tree else {
            return Ok(None);
        };
        if let Some(tree) = self.trees.get(&local) {
            return Ok(Some(Arc::clone(tree)));
        }
        let tree = TreeNode::start(options, local, Arc::downgrade(shared), &shared.drops)?;
        self.trees.insert(local, Arc::clone(&tree));
        Ok(Some(tree))
    }

    /// Scheme, host and port of the server on `local` for a device, which is started on demand. A device with
    /// TLS sends its events with TLS.
    fn base(
        &mut self,
        shared: &Arc<Shared>,
        local: IpAddr,
        device: &Contact,
    ) -> Result<String, Error> {
        let (scheme, peer) = (device.scheme, device.address);
        if let Some(server) = self.servers.get(&(local, scheme)) {
            return Ok(base(scheme, server.local_addr()));
        }
        let security = match (scheme, &shared.options.tls) {
            (Scheme::Http, _) => None,
            (Scheme::Https, Some(security)) if security.serves() => Some(security),
            (Scheme::Https, _) => return Err(Error::NoCertificate),
        };
        let mut address = SocketAddr::new(local, 0);
        if let (SocketAddr::V6(address), SocketAddr::V6(peer)) = (&mut address, peer) {
            address.set_scope_id(peer.scope_id());
        }
        let weak = Arc::downgrade(shared);
        let handler = move |request: Request| {
            let weak = Weak::clone(&weak);
            async move { posted::receive(&weak, request).await }
        };
        let limits = shared.options.notifications.clone();
        let at = Some(local);
        let understood = (security, &shared.schemas);
        let drops = shared.drops.clone();
        let server = Server::bind_for_services(address, limits, understood, drops, handler)
            .map_err(|source| Error::Listen { at, source })?;
        let base = base(scheme, server.local_addr());
        self.servers.insert((local, scheme), server);
        Ok(base)
    }

    /// Ends all subscriptions and gives devices a moment to learn of it.
    pub(super) async fn close(self) {
        for (sink, running) in self.by_dialect.into_values() {
            sink.command(SinkCommand::Stop).await;
            let _ = sink.inputs.send(None).await;
            let _ = running.await;
            sink.close();
        }
    }

    /// Ends without notifying devices.
    pub(super) fn abandon(&mut self) {
        for (sink, running) in self.by_dialect.values() {
            running.abort();
            sink.close();
        }
    }
}

impl Sink {
    /// The queue of a subscription, while it is open.
    pub(super) fn inbox(&self, key: SubscriptionKey) -> Option<Arc<Inbox>> {
        self.state().receivers.get(&key).map(Arc::clone)
    }

    /// Ends all receivers.
    fn close(&self) {
        let mut state = self.state();
        state.posted.clear();
        state
            .receivers
            .drain()
            .for_each(|(_, inbox)| inbox.reject_all());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate that has to sign the messages of a subscription.
    pub(super) fn signer(&self, key: SubscriptionKey) -> Option<CertificateName> {
        self.state().signers.get(&key).cloned()
    }

    async fn command(&self, command: SinkCommand) {
        // If the machine has ended, the client and its subscriptions are closed.
        let _ = self.inputs.send(Some(Input::Command(command))).await;
    }

    /// The subscription at this path.
    pub(super) async fn subscription_at(&self, path: &str) -> Option<SubscriptionKey> {
        let (answer, answered) = oneshot::channel();
        self.state().path_queries.push((path.to_owned(), answer));
        // Paths are looked up after each input of the machine; this input changes nothing.
        if self.inputs.send(Some(Input::Timeout)).await.is_err() {
            self.state().path_queries.clear();
        }
        answered.await.ok().flatten()
    }

    fn answer_paths(&self, machine: &EventSink) {
        let asked = std::mem::take(&mut self.state().path_queries);
        for (path, answer) in asked {
            // The connection may be closed.
            let _ = answer.send(machine.subscription_at(&path));
        }
    }

    /// Gives the machine a posted message once there is room for it, and returns the answer; `None` if its
    /// subscription has ended. `key` is the subscription at the path.
    pub(super) async fn post(
        &self,
        (peer, drops): (SocketAddr, &Drops),
        (path, key): (String, Option<SubscriptionKey>),
        envelope: Envelope,
    ) -> Option<Reply> {
        let mut slot = None;
        // SubscriptionEnd is not a notification, and its device may not wait for long.
        if let Some(key) = key
            && envelope.addressing.action != SUBSCRIPTION_END
        {
            let inbox = self.inbox(key)?;
            slot = Some(inbox.reserve(envelope.body(), (peer.ip(), drops)).await?);
        }
        // No await between here and the machine, so that a sender that hangs up leaves no state.
        let input = self.inputs.reserve().await.ok()?;
        let (answer, answered) = oneshot::channel();
        let token = {
            let mut state = self.state();
            state.next_token += 1;
            let token = state.next_token;
            state.posted.insert(token, Posted { answer, slot });
            token
        };
        input.send(Some(Input::Receive(SinkReceive::Posted {
            token: Token(token),
            peer,
            path: path.into(),
            envelope: Box::new(envelope),
        })));
        answered.await.ok()?
    }
}

/// Handles the outputs of the machine.
struct SinkOutputs {
    sink: Weak<Sink>,
    shared: Weak<Shared>,
    /// A posted notification, whose answer is the next output.
    notification: Option<Delivery>,
    requests: JoinSet<()>,
}

async fn run(
    machine: EventSink,
    inputs: mpsc::Receiver<Option<InputOf<EventSink>>>,
    mut outputs: SinkOutputs,
) {
    drive(machine, inputs, &mut outputs).await;
    if let Some(sink) = outputs.sink.upgrade() {
        sink.state().path_queries.clear();
    }
    // The last requests are Unsubscribes.
    let rest = async { while outputs.requests.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(UNSUBSCRIBE_DEADLINE, rest).await;
}

impl OutputHandler<EventSink> for SinkOutputs {
    fn handle(&mut self, output: Output<SinkTransmit, SinkEvent>) {
        while self.requests.try_join_next().is_some() {}
        let (Some(sink), Some(shared)) = (self.sink.upgrade(), self.shared.upgrade()) else {
            return;
        };
        match output {
            Output::Transmit(SinkTransmit::Request {
                request,
                key,
                envelope,
            }) => {
                let signer = sink.signer(key);
                self.requests.spawn(async move {
                    let answer = send(&shared, &sink, &envelope, signer).await;
                    let answer = SinkReceive::Answer { request, answer };
                    let _ = sink.inputs.send(Some(Input::Receive(answer))).await;
                });
            }
            Output::Transmit(SinkTransmit::Reply { token, reply }) => {
                let notification = self.notification.take();
                let posted = sink.state().posted.remove(&token.0);
                let Some(Posted { answer, slot }) = posted else {
                    return;
                };
                let is_queued = match (notification, slot) {
                    (None, _) => true,
                    (Some(notification), Some(slot)) => slot.put(notification),
                    (Some(_), None) => false,
                };
                // The sender may have closed the connection.
                let _ = answer.send(is_queued.then_some(reply));
            }
            Output::Event(SinkEvent::Tree {
                key,
                offer,
                actions,
            }) => {
                let tree = sink.state().trees.get(&key).map(Arc::clone);
                if let Some(tree) = tree {
                    tree.join(&sink, key, &offer, &actions, &shared.drops);
                }
            }
            Output::Event(SinkEvent::Ignored { key }) => {
                shared.tree_counters.duplicate();
                if let Some(inbox) = sink.inbox(key) {
                    inbox.deliver_spread(None);
                }
            }
            Output::Event(event) => self.handle_event(&sink, &shared, event),
        }
    }

    fn on_drained(&mut self, machine: &EventSink) {
        if let Some(sink) = self.sink.upgrade() {
            sink.answer_paths(machine);
        }
    }
}

impl SinkOutputs {
    fn handle_event(&mut self, sink: &Arc<Sink>, shared: &Shared, event: SinkEvent) {
        let (key, delivery) = match event {
            SinkEvent::Subscribed { key, granted } => (key, Delivery::Subscribed { granted }),
            SinkEvent::Renewed { key, granted } => (key, Delivery::Renewed { granted }),
            SinkEvent::Ended { key, reason } => {
                let tree = sink.state().trees.get(&key).map(Arc::clone);
                if let Some(tree) = tree {
                    tree.leave(sink, key);
                }
                (key, Delivery::Ended(reason))
            }
            SinkEvent::Notification {
                key,
                action,
                body,
                by_tree,
            } => {
                let notification = Delivery::Notification(Notification {
                    action: action.into_owned(),
                    body,
                    received_at: SystemTime::now(),
                });
                if !by_tree {
                    self.notification = Some(notification);
                } else if let Some(inbox) = sink.inbox(key) {
                    inbox.deliver_spread(Some(notification));
                }
                return;
            }
            SinkEvent::Trouble { key, reason, hint } => {
                let detail = reason.to_string();
                let (what, hint_text) = ("subscription in trouble", hint.map(str::to_owned));
                shared
                    .drops
                    .record(Hop::Event, what, "", detail.clone(), hint_text);
                (key, Delivery::Trouble { detail, hint })
            }
            SinkEvent::Refused { peer, reason } => {
                let detail = format!("{reason:?}");
                let what = "notification refused";
                shared
                    .drops
                    .record(Hop::Event, what, peer.ip(), detail, None);
                return;
            }
            _ => return,
        };
        if let Some(inbox) = sink.inbox(key) {
            inbox.send(delivery);
        }
    }
}

/// Sends a request of the machine.
async fn send(
    shared: &Shared,
    sink: &Sink,
    envelope: &Envelope,
    signer: Option<CertificateName>,
) -> Result<Box<Envelope>, chappe_xml::Str> {
    let to = envelope.addressing.to.as_deref().unwrap_or_default();
    // The machine had the address checked.
    let contact = shared.known.contact(to);
    let mut contact = contact.map_err(|refusal| refusal.to_string())?;
    if let SocketAddr::V6(address) = &mut contact.address {
        let zones = &sink.state().zones;
        address.set_scope_id(zones.get(address.ip()).copied().unwrap_or(0));
    }
    let signing = shared.options.signing.as_ref();
    let http = &shared.http;
    let answer = http.exchange_signed(&contact, envelope, signing, signer.as_ref());
    match answer.await.map(|answer| answer.envelope) {
        Ok(Some(answer)) => Ok(Box::new(answer)),
        Ok(None) => Err("the device answered without a message".into()),
        Err(error) => Err(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::Waker;

    use proptest::prelude::*;

    use chappe_soap::{Addressing, AddressingVersion};

    use super::*;

    const KEY: SubscriptionKey = SubscriptionKey(1);
    /// A queue for one notification.
    const ONE: QueueLimits = QueueLimits {
        notifications: 1,
        bytes: 4_000,
    };

    fn event(number: usize) -> Delivery {
        Delivery::Notification(Notification {
            action: number.to_string(),
            body: Element::new(chappe_xml::Name::new("urn:test", "Event")),
            received_at: SystemTime::UNIX_EPOCH,
        })
    }

    fn body(bytes: usize) -> Element {
        Element::new(chappe_xml::Name::new("urn:test", "Event")).with_text("x".repeat(bytes))
    }

    /// A sink whose machine is played by the test.
    fn sink() -> (Arc<Sink>, mpsc::Receiver<Option<InputOf<EventSink>>>) {
        let (inputs, posted) = mpsc::channel(8);
        let sink = Sink {
            inputs,
            path: "/events",
            state: Mutex::default(),
        };
        (Arc::new(sink), posted)
    }

    /// A subscription with this queue limit.
    fn subscription(sink: &Arc<Sink>, limits: QueueLimits) -> Subscription {
        let (inbox, reader) = inbox::queue(KEY, limits, sink.inputs.clone());
        sink.state().receivers.insert(KEY, inbox);
        let sink = Arc::clone(sink);
        Subscription {
            key: KEY,
            reader,
            sink,
        }
    }

    /// Posts an event with this number and size of text.
    async fn post(sink: Arc<Sink>, drops: Drops, number: usize, bytes: usize) -> Option<Reply> {
        let addressing = Addressing::new(AddressingVersion::V200508, number.to_string());
        let envelope = Envelope::new(addressing).with_body(body(bytes));
        let peer = "127.0.0.1:1".parse().unwrap();
        let path = ("/events/1".to_owned(), Some(KEY));
        sink.post((peer, &drops), path, envelope).await
    }

    /// The machine processes the next posted event, if there is one, and delivers it.
    fn take_one(sink: &Arc<Sink>, posted: &mut mpsc::Receiver<Option<InputOf<EventSink>>>) -> bool {
        let Ok(Some(Input::Receive(SinkReceive::Posted {
            token, envelope, ..
        }))) = posted.try_recv()
        else {
            return false;
        };
        let one = sink.state().posted.remove(&token.0).unwrap();
        let number = envelope.addressing.action.parse().unwrap();
        let is_queued = one.slot.unwrap().put(event(number));
        let _ = one.answer.send(is_queued.then_some(Reply::ACCEPTED));
        true
    }

    fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
        future
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    }

    /// A subscription with one event, whose device gets no answer before there is room. `end` ends the
    /// subscription. Returns the device's answer and the subscription, if it is left.
    fn answer_after(
        end: impl FnOnce(Subscription) -> Option<Subscription>,
    ) -> (Option<Reply>, Option<Subscription>) {
        let (sink, mut posted) = sink();
        let subscription = subscription(&sink, ONE);
        let mut first = pin!(post(Arc::clone(&sink), Drops::default(), 1, 0));
        assert!(is_pending(first.as_mut()) && take_one(&sink, &mut posted));
        let mut second = pin!(post(Arc::clone(&sink), Drops::default(), 1, 0));
        assert!(is_pending(second.as_mut()) && !take_one(&sink, &mut posted));
        let left = end(subscription);
        if is_pending(second.as_mut()) {
            assert!(take_one(&sink, &mut posted));
        }
        match second.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => (reply, left),
            Poll::Pending => panic!("the device got no answer"),
        }
    }

    #[test]
    fn an_event_delivered_after_the_end_is_acknowledged() {
        let (reply, left) = answer_after(|mut subscription| {
            subscription.close();
            Some(subscription)
        });
        assert_eq!(reply, Some(Reply::ACCEPTED));
        let mut left = left.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(left.poll_next(&mut context), Poll::Ready(Some(event(1))));
        assert_eq!(left.poll_next(&mut context), Poll::Ready(Some(event(1))));
        assert_eq!(left.poll_next(&mut context), Poll::Ready(None));
    }

    #[test]
    fn an_undelivered_event_is_not_acknowledged() {
        let (sink, mut posted) = sink();
        let subscription = subscription(&sink, ONE);
        let drops = Drops::default();
        let mut first = pin!(post(Arc::clone(&sink), drops.clone(), 1, 0));
        assert!(is_pending(first.as_mut()));
        let mut second = pin!(post(Arc::clone(&sink), drops.clone(), 1, 0));
        assert!(is_pending(second.as_mut()));
        drop(subscription);
        assert!(take_one(&sink, &mut posted));
        let mut context = Context::from_waker(Waker::noop());
        for post in [first, second] {
            assert_eq!(post.poll(&mut context), Poll::Ready(None));
        }
        let next = posted.try_recv();
        let is_end = |next: &_| {
            matches!(
                next,
                Ok(Some(Input::Command(SinkCommand::Unsubscribe { .. })))
            )
        };
        assert!(is_end(&next), "{next:?}");
        assert_eq!(drops.total(Hop::Event, "notification not waited for"), 0);
    }

    #[test]
    fn senders_that_hang_up_while_they_wait_are_counted() {
        let (sink, mut posted) = sink();
        let mut subscription = subscription(&sink, ONE);
        let drops = Drops::default();
        for round in 0..100 {
            let mut first = pin!(post(Arc::clone(&sink), drops.clone(), 1, 0));
            assert!(is_pending(first.as_mut()) && take_one(&sink, &mut posted));
            for _ in 0..10 {
                let waiting = post(Arc::clone(&sink), drops.clone(), 1, 0);
                assert!(is_pending(pin!(waiting)));
            }
            assert!(!take_one(&sink, &mut posted), "round {round}");
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(
                subscription.poll_next(&mut context),
                Poll::Ready(Some(event(1)))
            );
            assert_eq!(subscription.poll_next(&mut context), Poll::Pending);
        }
        assert_eq!(
            drops.total(Hop::Event, "notification not waited for"),
            1_000
        );
    }

    /// Several senders that wait for their answers, and a reader.
    struct World {
        sink: Arc<Sink>,
        posted: mpsc::Receiver<Option<InputOf<EventSink>>>,
        subscription: Subscription,
        posts: Vec<Pin<Box<dyn Future<Output = Option<Reply>>>>>,
        /// The sizes of all sent events.
        sent: Vec<usize>,
        answered: usize,
        read: usize,
    }

    impl World {
        fn send(&mut self, bytes: usize) {
            let post = post(
                Arc::clone(&self.sink),
                Drops::default(),
                self.sent.len(),
                bytes,
            );
            self.sent.push(body(bytes).expanded_bytes());
            self.posts.push(Box::pin(post));
            self.settle();
        }

        fn settle(&mut self) {
            let answered = &mut self.answered;
            for _ in 0..2 {
                let mut context = Context::from_waker(Waker::noop());
                self.posts
                    .retain_mut(|post| match post.as_mut().poll(&mut context) {
                        Poll::Pending => true,
                        Poll::Ready(reply) => {
                            assert_eq!(reply, Some(Reply::ACCEPTED));
                            *answered += 1;
                            false
                        }
                    });
                while take_one(&self.sink, &mut self.posted) {}
            }
        }

        fn read(&mut self) -> bool {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(next) = self.subscription.poll_next(&mut context) else {
                return false;
            };
            assert_eq!(next, Some(event(self.read)));
            self.read += 1;
            self.settle();
            true
        }
    }

    proptest! {
        /// Waiting senders lose nothing and keep their order, and the queue stays within its limits.
        #[test]
        fn each_event_is_read_queued_or_waits_for_room(
            steps in proptest::collection::vec((proptest::bool::weighted(0.6), 0..2_500_usize), 1..200),
            notifications in 1..8_usize,
        ) {
            let limits = QueueLimits { notifications, bytes: 4_000 };
            let (sink, posted) = sink();
            let mut world = World {
                subscription: subscription(&sink, limits),
                sink,
                posted,
                posts: Vec::new(),
                sent: Vec::new(),
                answered: 0,
                read: 0,
            };
            for (sends, bytes) in steps {
                match sends {
                    true => world.send(bytes),
                    false => {
                        let is_empty = world.read == world.sent.len();
                        prop_assert_eq!(world.read(), !is_empty);
                    }
                }
                let queued = &world.sent[world.read..world.answered];
                prop_assert_eq!(world.answered + world.posts.len(), world.sent.len());
                prop_assert!(queued.len() <= notifications);
                prop_assert!(queued.iter().sum::<usize>() <= limits.bytes);
            }
            while world.read() {}
            prop_assert_eq!(world.read, world.sent.len());
        }
    }

    /// Answers path queries, and records the address of each subscription for its events.
    struct Paths(Arc<Sink>, Arc<Mutex<String>>);

    impl OutputHandler<EventSink> for Paths {
        fn handle(&mut self, output: Output<SinkTransmit, SinkEvent>) {
            if let Output::Transmit(SinkTransmit::Request { envelope, .. }) = output {
                *self.1.lock().unwrap() = envelope.to_text();
            }
        }

        fn on_drained(&mut self, machine: &EventSink) {
            self.0.answer_paths(machine);
        }
    }

    #[tokio::test]
    async fn a_path_is_known_as_long_as_its_subscription() {
        let config = SinkConfig::default();
        let machine = EventSink::new(config, Arc::new(|_: &str, _| Ok(())), [7; 16]);
        let (inputs, receive) = mpsc::channel(8);
        let sink = Arc::new(Sink {
            inputs,
            path: "/events",
            state: Mutex::default(),
        });
        let text = Arc::new(Mutex::default());
        let mut outputs = Paths(Arc::clone(&sink), Arc::clone(&text));
        let driving = tokio::spawn(async move { drive(machine, receive, &mut outputs).await });
        let source = Source {
            endpoint: chappe_soap::EndpointReference::new("http://192.0.2.7/thermometer"),
            peer: "192.0.2.7:80".parse().unwrap(),
            actions: Vec::new(),
            lease: LEASE,
            base: "http://192.0.2.1:1".into(),
            tree: None,
        };
        let source = Box::new(source);
        sink.command(SinkCommand::Subscribe { key: KEY, source })
            .await;
        let unknown = format!("/events/{:032x}", 1);
        assert_eq!(sink.subscription_at(&unknown).await, None);
        let text = text.lock().unwrap().clone();
        let path = text.split("192.0.2.1:1").nth(1).unwrap();
        let path = path.split('<').next().unwrap();
        let known = sink.subscription_at(path).await;
        assert_eq!(known, Some(KEY), "{path} of {text}");
        sink.inputs.send(None).await.unwrap();
        driving.await.unwrap();
        let known = sink.subscription_at(path).await;
        assert_eq!(known, None, "the client has ended");
    }
}
