//! Subscriptions: one event sink for each dialect, one server for each local address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::action::SUBSCRIPTION_END;
use chappe_dpws::eventing::{
    EndReason, EventSink, SinkCommand, SinkConfig, SinkEvent, SinkReceive, SinkRefusal,
    SinkTransmit, Source, SubscriptionKey, Token,
};
use chappe_dpws::exchange::Reply;
use chappe_identity::Contact;
use chappe_machine::{Input, Output};
use chappe_soap::Envelope;
use chappe_transport::http::{Request, Response, Server};
use chappe_transport::{Drops, Hop, Parsers, route_source};
use chappe_xml::Element;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use super::inbox::{self, Inbox, Outlet, Place, QueueLimits};
use super::tree::TreeNode;
use super::{DeviceClient, HostedService, Shared};
use crate::Error;
use crate::driver::{InputOf, Take, drive};
use crate::http::{limits_for, response};

/// Inputs that may wait for a machine.
const INPUTS_MAX: usize = 1_024;
/// The lease that is asked for; devices may grant less.
const LEASE: Duration = Duration::from_secs(600);
/// Time that a device has to answer an Unsubscribe when the client closes.
const UNSUBSCRIBE_DEADLINE: Duration = Duration::from_secs(1);

/// What comes of a subscription.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delivery {
    /// The device granted it, at first or again after an end: earlier events may have been missed.
    Subscribed {
        /// For how long; it is renewed in time.
        granted: Duration,
    },
    /// It was renewed, or was found to stand after trouble.
    Renewed {
        /// For how long; it is renewed in time.
        granted: Duration,
    },
    /// An event.
    Notification(Notification),
    /// It ended; unless it was unsubscribed, it is tried again.
    Ended(EndReason),
    /// It cannot be had, or kept, for now; it is tried again.
    Trouble {
        /// What is wrong.
        detail: String,
        /// What can be done, when that is known.
        hint: Option<&'static str>,
    },
}

/// An event of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// Which event.
    pub action: String,
    /// Its content.
    pub body: Element,
    /// When it arrived here.
    pub received_at: SystemTime,
}

/// A subscription; it ends when this is closed or dropped.
///
/// A device is not answered while as many notifications, or bytes of them, as permitted wait here.
pub struct Subscription {
    key: SubscriptionKey,
    outlet: Outlet,
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
    /// The next delivery; `None` when the client is closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        let queued = self.outlet.queue.recv().await?;
        Some(queued.delivery)
    }

    /// As [`Subscription::next`], for one who polls several.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let queued = ready!(self.outlet.queue.poll_recv(context));
        Poll::Ready(queued.map(|queued| queued.delivery))
    }

    /// Asks the device whether it still knows the subscription: it was seen to restart.
    pub async fn doubt(&self) {
        self.sink
            .command(SinkCommand::Verify { key: self.key })
            .await;
    }

    /// Unsubscribes. Events that have arrived are still handed out, and their device is told that they
    /// are received; then `None`. Later ones are refused.
    pub fn close(&mut self) {
        if self.end() {
            self.outlet.open();
        }
    }

    /// Takes no more events, and unsubscribes when those that have arrived are taken; false when it has
    /// ended before.
    fn end(&mut self) -> bool {
        let mut state = self.sink.state();
        if state.receivers.remove(&self.key).is_none() {
            return false;
        }
        state.hosts.remove(&self.key);
        // The last events of a tree find nobody.
        if let Some(tree) = state.trees.remove(&self.key) {
            tree.leave(&self.sink, self.key);
        }
        true
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.end();
        // A device whose event waits for room is told that it is not received.
        self.outlet.close();
    }
}

/// All that belongs to subscriptions of one client.
#[derive(Default)]
pub(super) struct Sinks {
    of_dialect: HashMap<Dialect, (Arc<Sink>, JoinHandle<()>)>,
    servers: HashMap<IpAddr, Server>,
    /// Nodes of notification trees, one for each local address.
    trees: HashMap<IpAddr, Arc<TreeNode>>,
    next_key: u64,
}

/// One event sink and what its driver needs.
pub(super) struct Sink {
    pub(super) inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
    path: &'static str,
    state: Mutex<State>,
}

/// A message that the machine has been given.
struct Posted {
    /// Takes what to answer; `None`: the notification has no reader any more.
    answer: oneshot::Sender<Option<Reply>>,
    /// The place of the notification that it may be.
    place: Option<Place>,
}

#[derive(Default)]
struct State {
    receivers: HashMap<SubscriptionKey, Arc<Inbox>>,
    /// The hosts that subscriptions are at.
    hosts: HashMap<SubscriptionKey, IpAddr>,
    /// The nodes of notification trees that subscriptions may use.
    trees: HashMap<SubscriptionKey, Arc<TreeNode>>,
    /// Paths of which it is asked which subscription has them. As many as requests are served at once.
    asked_paths: Vec<(String, oneshot::Sender<Option<SubscriptionKey>>)>,
    /// Posted messages whose answer is awaited. As many as requests are served at once.
    posted: HashMap<u64, Posted>,
    next_token: u64,
    /// The interfaces of link-local devices: addresses in messages do not say them.
    zones: HashMap<Ipv6Addr, u32>,
}

impl DeviceClient {
    /// Subscribes to events of a service by their actions; none means all that its WSDL has.
    ///
    /// It is kept alive, and subscribed anew when the device forgets it, until it is dropped.
    ///
    /// # Errors
    /// When the service has no events, or notifications cannot be received on the address that
    /// reaches the device. What the device says comes as a [`Delivery`].
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
            let base = sinks.base(shared, local, peer)?;
            let tree = sinks.tree(shared, local)?;
            sinks.next_key += 1;
            (sink, base, tree, SubscriptionKey(sinks.next_key))
        };
        let limits = QueueLimits {
            notifications: shared.options.notifications_max,
            bytes: shared.options.notifications_bytes,
        };
        let (inbox, outlet) = inbox::queue(key, limits, sink.inputs.clone());
        {
            let mut state = sink.state();
            state.receivers.insert(key, inbox);
            state.hosts.insert(key, peer.ip());
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
        Ok(Subscription { key, outlet, sink })
    }
}

impl Shared {
    /// Asks a host, which may have restarted, whether it still knows its subscriptions.
    pub(super) async fn doubt(&self, host: IpAddr) {
        let mut doubted = Vec::new();
        {
            let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
            for (sink, _) in sinks.of_dialect.values() {
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
        if let Some(sink) = self.of_dialect.get(&dialect) {
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
        let policy = shared.options.policy.clone();
        let check = move |address: &str, peer| match policy.check(address, peer) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(refusal.to_string()),
        };
        let secret = crate::http::secret()?;
        let machine = EventSink::new(config, Arc::new(check), secret);
        let (inputs, receive) = mpsc::channel(INPUTS_MAX);
        let sink = Arc::new(Sink {
            inputs,
            path,
            state: Mutex::default(),
        });
        let taker = Taker {
            sink: Arc::downgrade(&sink),
            shared: Arc::downgrade(shared),
            notification: None,
            requests: JoinSet::new(),
        };
        let running = tokio::spawn(run(machine, receive, taker));
        self.of_dialect
            .insert(dialect, (Arc::clone(&sink), running));
        Ok(sink)
    }

    /// The node of notification trees on `local`, if there are to be any.
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

    /// Scheme, host and port of the server on `local`, which is started when it is not there.
    fn base(
        &mut self,
        shared: &Arc<Shared>,
        local: IpAddr,
        peer: SocketAddr,
    ) -> Result<String, Error> {
        if let Some(server) = self.servers.get(&local) {
            return Ok(format!("http://{}", without_zone(server.local_addr())));
        }
        let mut address = SocketAddr::new(local, 0);
        if let (SocketAddr::V6(address), SocketAddr::V6(peer)) = (&mut address, peer) {
            address.set_scope_id(peer.scope_id());
        }
        let weak = Arc::downgrade(shared);
        let handler = move |request: Request| {
            let weak = Weak::clone(&weak);
            async move { receive(&weak, request).await }
        };
        let limits = shared.options.notifications.clone();
        let at = Some(local);
        let server = Server::bind(address, limits, shared.drops.clone(), handler)
            .map_err(|source| Error::Listen { at, source })?;
        let base = format!("http://{}", without_zone(server.local_addr()));
        self.servers.insert(local, server);
        Ok(base)
    }

    /// Ends all subscriptions, giving devices a moment to hear of it.
    pub(super) async fn close(self) {
        for (sink, running) in self.of_dialect.into_values() {
            sink.command(SinkCommand::Stop).await;
            let _ = sink.inputs.send(None).await;
            let _ = running.await;
            sink.close();
        }
    }

    /// Ends without a word.
    pub(super) fn abandon(&mut self) {
        for (sink, running) in self.of_dialect.values() {
            running.abort();
            sink.close();
        }
    }
}

fn without_zone(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

impl Sink {
    /// The queue of a subscription, while it is open.
    pub(super) fn inbox(&self, key: SubscriptionKey) -> Option<Arc<Inbox>> {
        self.state().receivers.get(&key).map(Arc::clone)
    }

    /// Nothing comes any more.
    fn close(&self) {
        let mut state = self.state();
        state.posted.clear();
        state.receivers.drain().for_each(|(_, inbox)| inbox.close());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn command(&self, command: SinkCommand) {
        // When the machine has ended, the client is closed, and so is every subscription.
        let _ = self.inputs.send(Some(Input::Command(command))).await;
    }

    /// The subscription that has this path.
    async fn subscription_at(&self, path: &str) -> Option<SubscriptionKey> {
        let (answer, answered) = oneshot::channel();
        self.state().asked_paths.push((path.to_owned(), answer));
        // Paths are looked up after each input of the machine; this one changes nothing.
        if self.inputs.send(Some(Input::Timeout)).await.is_err() {
            self.state().asked_paths.clear();
        }
        answered.await.ok().flatten()
    }

    fn answer_paths(&self, machine: &EventSink) {
        let asked = std::mem::take(&mut self.state().asked_paths);
        for (path, answer) in asked {
            // Nobody waits for it when the connection is gone.
            let _ = answer.send(machine.subscription_at(&path));
        }
    }

    /// Gives the machine a posted message, once there is room for it, and waits for what to answer;
    /// `None` when its subscription has ended. `key`: which subscription has the path.
    async fn post(
        &self,
        (peer, drops): (SocketAddr, &Drops),
        (path, key): (String, Option<SubscriptionKey>),
        envelope: Envelope,
    ) -> Option<Reply> {
        let mut place = None;
        // The end of a subscription is no notification, and its device may not wait for long.
        if let Some(key) = key
            && envelope.addressing.action != SUBSCRIPTION_END
        {
            let inbox = self.inbox(key)?;
            place = Some(inbox.place(envelope.body(), (peer.ip(), drops)).await?);
        }
        // From here to the machine nothing waits, so that a sender that hangs up leaves nothing behind.
        let input = self.inputs.reserve().await.ok()?;
        let (answer, answered) = oneshot::channel();
        let token = {
            let mut state = self.state();
            state.next_token += 1;
            let token = state.next_token;
            state.posted.insert(token, Posted { answer, place });
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

/// Answers a request to the server of notifications.
async fn receive(shared: &Weak<Shared>, request: Request) -> Response {
    let Some(shared) = shared.upgrade() else {
        return response(&Reply::UNAVAILABLE);
    };
    let sink = {
        let sinks = shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sinks = sinks.of_dialect.values().map(|(sink, _)| sink);
        let is_below = |sink: &&Arc<Sink>| {
            let rest = request.path.strip_prefix(sink.path);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        sinks.find(is_below).map(Arc::clone)
    };
    let Some(sink) = sink else {
        return response(&Reply::NOT_FOUND);
    };
    let limits = limits_for(&shared.options.http);
    let (body, bytes) = (request.body.clone(), request.body.len());
    let key = sink.subscription_at(&request.path).await;
    // The machine tells the sender of a short one why.
    if key.is_none() && Parsers::is_large(bytes) {
        let (peer, detail) = (request.peer.ip(), format!("{:?}", SinkRefusal::Path));
        let reason = "notification refused";
        shared.drops.record(Hop::Event, reason, peer, detail, None);
        return response(&Reply::NOT_FOUND);
    }
    let parsing = move || Envelope::parse_within(&body, limits);
    let envelope = match shared.http.parsers().run_if_large(bytes, parsing).await {
        Ok(Ok(envelope)) => envelope,
        Err(_) => return response(&Reply::UNAVAILABLE),
        Ok(Err(error)) => {
            let (peer, detail) = (request.peer.ip(), error.to_string());
            let reason = "notification is no message";
            shared.drops.record(Hop::Event, reason, peer, detail, None);
            let fault = chappe_dpws::exchange::unreadable(&error, shared.message_id());
            return response(&Reply::message(fault));
        }
    };
    let (peer, path) = ((request.peer, &shared.drops), (request.path, key));
    let Some(reply) = sink.post(peer, path, envelope).await else {
        let (peer, reason) = (request.peer.ip(), "notification after the end");
        let drops = &shared.drops;
        drops.record(Hop::Event, reason, peer, String::new(), None);
        return response(&Reply::UNAVAILABLE);
    };
    response(&reply)
}

/// Takes what the machine says.
struct Taker {
    sink: Weak<Sink>,
    shared: Weak<Shared>,
    /// A posted notification; its answer comes next.
    notification: Option<Delivery>,
    requests: JoinSet<()>,
}

async fn run(
    machine: EventSink,
    inputs: mpsc::Receiver<Option<InputOf<EventSink>>>,
    mut taker: Taker,
) {
    drive(machine, inputs, &mut taker).await;
    if let Some(sink) = taker.sink.upgrade() {
        sink.state().asked_paths.clear();
    }
    // The last requests say that nothing is wanted any more.
    let rest = async { while taker.requests.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(UNSUBSCRIBE_DEADLINE, rest).await;
}

impl Take<EventSink> for Taker {
    fn take(&mut self, output: Output<SinkTransmit, SinkEvent>) {
        while self.requests.try_join_next().is_some() {}
        let (Some(sink), Some(shared)) = (self.sink.upgrade(), self.shared.upgrade()) else {
            return;
        };
        match output {
            Output::Transmit(SinkTransmit::Request { request, envelope }) => {
                self.requests.spawn(async move {
                    let answer = ask(&shared, &sink, &envelope).await;
                    let answer = SinkReceive::Answer { request, answer };
                    let _ = sink.inputs.send(Some(Input::Receive(answer))).await;
                });
            }
            Output::Transmit(SinkTransmit::Reply { token, reply }) => {
                let notification = self.notification.take();
                let posted = sink.state().posted.remove(&token.0);
                let Some(Posted { answer, place }) = posted else {
                    return;
                };
                let is_taken = match (notification, place) {
                    (None, _) => true,
                    (Some(notification), Some(place)) => place.put(notification),
                    (Some(_), None) => false,
                };
                // Whoever posted may have gone.
                let _ = answer.send(is_taken.then_some(reply));
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
                    inbox.spread_came(None);
                }
            }
            Output::Event(event) => self.event(&sink, &shared, event),
        }
    }

    fn settled(&mut self, machine: &EventSink) {
        if let Some(sink) = self.sink.upgrade() {
            sink.answer_paths(machine);
        }
    }
}

impl Taker {
    fn event(&mut self, sink: &Arc<Sink>, shared: &Shared, event: SinkEvent) {
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
                    inbox.spread_came(Some(notification));
                }
                return;
            }
            SinkEvent::Trouble { key, reason, hint } => {
                let detail = reason.to_string();
                let (what, told) = ("subscription in trouble", hint.map(str::to_owned));
                shared
                    .drops
                    .record(Hop::Event, what, "", detail.clone(), told);
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
            inbox.tell(delivery);
        }
    }
}

/// Sends a request of the machine.
async fn ask(
    shared: &Shared,
    sink: &Sink,
    envelope: &Envelope,
) -> Result<Box<Envelope>, chappe_xml::Str> {
    let to = envelope.addressing.to.as_deref().unwrap_or_default();
    // The machine has had the address judged.
    let mut contact = Contact::parse(to, 0).map_err(|refusal| refusal.to_string())?;
    if let SocketAddr::V6(address) = &mut contact.address {
        let zones = &sink.state().zones;
        address.set_scope_id(zones.get(address.ip()).copied().unwrap_or(0));
    }
    match shared.http.exchange_soap(&contact, envelope).await {
        Ok(Some(answer)) => Ok(Box::new(answer)),
        Ok(None) => Err("it answered without a message".into()),
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

    /// A sink whose machine is the test.
    fn sink() -> (Arc<Sink>, mpsc::Receiver<Option<InputOf<EventSink>>>) {
        let (inputs, posted) = mpsc::channel(8);
        let sink = Sink {
            inputs,
            path: "/events",
            state: Mutex::default(),
        };
        (Arc::new(sink), posted)
    }

    /// A subscription whose queue holds so much.
    fn subscription(sink: &Arc<Sink>, limits: QueueLimits) -> Subscription {
        let (inbox, outlet) = inbox::queue(KEY, limits, sink.inputs.clone());
        sink.state().receivers.insert(KEY, inbox);
        let sink = Arc::clone(sink);
        Subscription {
            key: KEY,
            outlet,
            sink,
        }
    }

    /// Posts an event with this number and so many bytes of text.
    async fn post(sink: Arc<Sink>, drops: Drops, number: usize, bytes: usize) -> Option<Reply> {
        let addressing = Addressing::new(AddressingVersion::V200508, number.to_string());
        let envelope = Envelope::new(addressing).with_body(body(bytes));
        let peer = "127.0.0.1:1".parse().unwrap();
        let path = ("/events/1".to_owned(), Some(KEY));
        sink.post((peer, &drops), path, envelope).await
    }

    /// The machine takes the next posted event, if there is one, and hands it out.
    fn take_one(sink: &Arc<Sink>, posted: &mut mpsc::Receiver<Option<InputOf<EventSink>>>) -> bool {
        let Ok(Some(Input::Receive(SinkReceive::Posted {
            token, envelope, ..
        }))) = posted.try_recv()
        else {
            return false;
        };
        let one = sink.state().posted.remove(&token.0).unwrap();
        let number = envelope.addressing.action.parse().unwrap();
        let is_taken = one.place.unwrap().put(event(number));
        let _ = one.answer.send(is_taken.then_some(Reply::ACCEPTED));
        true
    }

    fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
        future
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    }

    /// A subscription with one event, whose device is not answered before there is room. `end` ends it;
    /// gives what the device is answered then, and the subscription if it is left.
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
            Poll::Pending => panic!("the device is not answered"),
        }
    }

    #[test]
    fn an_event_that_is_handed_out_after_the_end_is_answered_as_received() {
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
    fn an_event_that_nobody_is_handed_is_not_answered_as_received() {
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
    fn senders_that_hang_up_while_they_wait_leave_nothing_and_are_counted() {
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
        /// Sizes of all that was sent.
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
        /// Senders that wait, several at a time, lose nothing and keep their order, and the queue keeps
        /// within its limits.
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

    /// Answers questions for paths, and keeps the address of each subscription for its events.
    struct Paths(Arc<Sink>, Arc<Mutex<String>>);

    impl Take<EventSink> for Paths {
        fn take(&mut self, output: Output<SinkTransmit, SinkEvent>) {
            if let Output::Transmit(SinkTransmit::Request { envelope, .. }) = output {
                *self.1.lock().unwrap() = envelope.to_text();
            }
        }

        fn settled(&mut self, machine: &EventSink) {
            self.0.answer_paths(machine);
        }
    }

    #[tokio::test]
    async fn a_path_is_known_while_a_subscription_has_it() {
        let config = SinkConfig::default();
        let machine = EventSink::new(config, Arc::new(|_: &str, _| Ok(())), [7; 16]);
        let (inputs, receive) = mpsc::channel(8);
        let sink = Arc::new(Sink {
            inputs,
            path: "/events",
            state: Mutex::default(),
        });
        let text = Arc::new(Mutex::default());
        let mut taker = Paths(Arc::clone(&sink), Arc::clone(&text));
        let driving = tokio::spawn(async move { drive(machine, receive, &mut taker).await });
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
