//! Subscriptions: one event sink for each dialect, one server for each local address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use chappe_dpws::Dialect;
use chappe_dpws::eventing::{
    EndReason, EventSink, SinkCommand, SinkConfig, SinkEvent, SinkReceive, SinkRefusal,
    SinkTransmit, Source, SubscriptionKey, Token,
};
use chappe_dpws::exchange::Reply;
use chappe_identity::Contact;
use chappe_machine::{Input, Output};
use chappe_soap::Envelope;
use chappe_transport::http::{Request, Response, Server};
use chappe_transport::{Hop, Parsers, route_source};
use chappe_xml::Element;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

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
/// A device is not answered while as many deliveries as permitted wait here.
pub struct Subscription {
    key: SubscriptionKey,
    receiver: mpsc::UnboundedReceiver<Delivery>,
    room: Arc<Semaphore>,
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
        let delivery = self.receiver.recv().await?;
        if matches!(delivery, Delivery::Notification(_)) {
            self.room.add_permits(1);
        }
        Some(delivery)
    }

    /// As [`Subscription::next`], for one who polls several.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let delivery = ready!(self.receiver.poll_recv(context));
        if matches!(delivery, Some(Delivery::Notification(_))) {
            self.room.add_permits(1);
        }
        Poll::Ready(delivery)
    }

    /// Asks the device whether it still knows the subscription: it was seen to restart.
    pub async fn doubt(&self) {
        self.sink
            .command(SinkCommand::Doubt { key: self.key })
            .await;
    }

    /// Unsubscribes. Events that have arrived are still handed out, and their device is told that they
    /// are received; then `None`. Later ones are refused.
    pub fn close(&mut self) {
        if self.end() {
            self.room.add_permits(Semaphore::MAX_PERMITS / 2);
        }
    }

    /// Unsubscribes and takes no more events; false when it has ended before.
    fn end(&mut self) -> bool {
        let command = SinkCommand::Unsubscribe { key: self.key };
        // When the queue is full, the lease ends it: nothing is renewed without a receiver.
        let _ = self.sink.inputs.try_send(Some(Input::Command(command)));
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
        self.room.close();
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

/// What to answer, and the room that has to be waited for first.
type Answered = (Reply, Option<Arc<Semaphore>>);

#[derive(Default)]
struct State {
    receivers: HashMap<SubscriptionKey, (mpsc::UnboundedSender<Delivery>, Arc<Semaphore>)>,
    /// The hosts that subscriptions are at.
    hosts: HashMap<SubscriptionKey, IpAddr>,
    /// The nodes of notification trees that subscriptions may use.
    trees: HashMap<SubscriptionKey, Arc<TreeNode>>,
    /// Paths of which it is asked whether a subscription has them. As many as requests are served at once.
    asked_paths: Vec<(String, oneshot::Sender<bool>)>,
    /// Posted messages whose answer is awaited.
    posted: HashMap<u64, oneshot::Sender<Answered>>,
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
        let room = Arc::new(Semaphore::new(shared.options.notifications_max));
        let (sender, receiver) = mpsc::unbounded_channel();
        {
            let mut state = sink.state();
            state.receivers.insert(key, (sender, Arc::clone(&room)));
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
        Ok(Subscription {
            key,
            receiver,
            room,
            sink,
        })
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
            sink.command(SinkCommand::Doubt { key }).await;
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
            room: None,
            is_unread: false,
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
            sink.state().receivers.clear();
        }
    }

    /// Ends without a word.
    pub(super) fn abandon(&mut self) {
        for (sink, running) in self.of_dialect.values() {
            running.abort();
            sink.state().receivers.clear();
        }
    }
}

fn without_zone(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

impl Sink {
    /// The room of a subscription, while somebody reads it.
    pub(super) fn room(&self, key: SubscriptionKey) -> Option<Arc<Semaphore>> {
        let state = self.state();
        state.receivers.get(&key).map(|(_, room)| Arc::clone(room))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn command(&self, command: SinkCommand) {
        // When the machine has ended, the client is closed, and so is every subscription.
        let _ = self.inputs.send(Some(Input::Command(command))).await;
    }

    /// Whether a subscription has this path.
    async fn has_path(&self, path: &str) -> bool {
        let (answer, answered) = oneshot::channel();
        self.state().asked_paths.push((path.to_owned(), answer));
        // Paths are looked up after each input of the machine; this one changes nothing.
        if self.inputs.send(Some(Input::Timeout)).await.is_err() {
            self.state().asked_paths.clear();
        }
        answered.await.unwrap_or(false)
    }

    fn answer_paths(&self, machine: &EventSink) {
        let asked = std::mem::take(&mut self.state().asked_paths);
        for (path, answer) in asked {
            // Nobody waits for it when the connection is gone.
            let _ = answer.send(machine.has_path(&path));
        }
    }

    /// Gives the machine a posted message and waits for what to answer.
    async fn post(&self, peer: SocketAddr, path: String, envelope: Envelope) -> Option<Reply> {
        let (answer, answered) = oneshot::channel();
        let token = {
            let mut state = self.state();
            state.next_token += 1;
            let token = state.next_token;
            state.posted.insert(token, answer);
            token
        };
        let posted = SinkReceive::Posted {
            token: Token(token),
            peer,
            path: path.into(),
            envelope: Box::new(envelope),
        };
        self.inputs.send(Some(Input::Receive(posted))).await.ok()?;
        let (reply, room) = answered.await.ok()?;
        if let Some(room) = room {
            // Until the application has read enough, the device waits for its answer.
            room.acquire().await.ok()?.forget();
        }
        Some(reply)
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
    // A short message costs no more than the question.
    if Parsers::is_large(bytes) && !sink.has_path(&request.path).await {
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
    let reply = sink.post(request.peer, request.path, envelope).await;
    response(&reply.unwrap_or(Reply::UNAVAILABLE))
}

/// Takes what the machine says.
struct Taker {
    sink: Weak<Sink>,
    shared: Weak<Shared>,
    /// Of the notification that was just handed out; its answer comes next.
    room: Option<Arc<Semaphore>>,
    /// The notification whose answer comes next has no reader any more.
    is_unread: bool,
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
                let room = self.room.take();
                let reply = match std::mem::take(&mut self.is_unread) {
                    true => Reply::UNAVAILABLE,
                    false => reply,
                };
                if let Some(posted) = sink.state().posted.remove(&token.0) {
                    // Whoever posted may have gone.
                    let _ = posted.send((reply, room));
                }
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
            Output::Event(SinkEvent::NotTaken { key }) => {
                shared.tree_counters.duplicate();
                // Its place was taken before.
                if let Some(room) = sink.room(key) {
                    room.add_permits(1);
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
        let mut posted = true;
        let (key, delivery) = match event {
            SinkEvent::Subscribed { key, granted } => (key, Delivery::Subscribed { granted }),
            SinkEvent::Renewed { key, granted } => (key, Delivery::Renewed { granted }),
            SinkEvent::Ended { key, why } => {
                let tree = sink.state().trees.get(&key).map(Arc::clone);
                if let Some(tree) = tree {
                    tree.leave(sink, key);
                }
                (key, Delivery::Ended(why))
            }
            SinkEvent::Notification {
                key,
                action,
                body,
                by_tree,
            } => {
                posted = !by_tree;
                let notification = Notification {
                    action: action.into_owned(),
                    body,
                    received_at: SystemTime::now(),
                };
                (key, Delivery::Notification(notification))
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
        let state = sink.state();
        let is_posted = posted && matches!(delivery, Delivery::Notification(_));
        match state.receivers.get(&key) {
            Some((sender, room)) => {
                if is_posted {
                    self.room = Some(Arc::clone(room));
                }
                let _ = sender.send(delivery);
            }
            None if is_posted => {
                self.is_unread = true;
                let reason = "notification after the end";
                shared
                    .drops
                    .record(Hop::Event, reason, "", String::new(), None);
            }
            None => {}
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
    use std::pin::pin;
    use std::task::Waker;

    use chappe_soap::{Addressing, AddressingVersion};

    use super::*;

    const KEY: SubscriptionKey = SubscriptionKey(1);

    fn event() -> Delivery {
        Delivery::Notification(Notification {
            action: "urn:event".to_owned(),
            body: Element::new(chappe_xml::Name::new("urn:test", "Event")),
            received_at: SystemTime::UNIX_EPOCH,
        })
    }

    /// A subscription with one event, whose device is not answered before there is room. `end` ends it;
    /// gives what the device is answered then, and the subscription if it is left.
    fn answer_after(
        end: impl FnOnce(Subscription) -> Option<Subscription>,
    ) -> (Option<Reply>, Option<Subscription>) {
        let (inputs, mut posted) = mpsc::channel(8);
        let sink = Arc::new(Sink {
            inputs,
            path: "/events",
            state: Mutex::default(),
        });
        let (room, (sender, receiver)) = (Arc::new(Semaphore::new(0)), mpsc::unbounded_channel());
        sender.send(event()).unwrap();
        let of_key = (sender, Arc::clone(&room));
        sink.state().receivers.insert(KEY, of_key);
        let subscription = Subscription {
            key: KEY,
            receiver,
            room: Arc::clone(&room),
            sink: Arc::clone(&sink),
        };
        let addressing = Addressing::new(AddressingVersion::V200508, "urn:event");
        let envelope = Envelope::new(addressing);
        let peer = "127.0.0.1:1".parse().unwrap();
        let mut post = pin!(sink.post(peer, "/events/1".to_owned(), envelope));
        let mut context = Context::from_waker(Waker::noop());
        assert!(post.as_mut().poll(&mut context).is_pending());
        let Ok(Some(Input::Receive(SinkReceive::Posted { token, .. }))) = posted.try_recv() else {
            panic!("nothing was posted")
        };
        let waiting = sink.state().posted.remove(&token.0).unwrap();
        assert!(waiting.send((Reply::ACCEPTED, Some(room))).is_ok());
        assert!(post.as_mut().poll(&mut context).is_pending());
        let left = end(subscription);
        match post.as_mut().poll(&mut context) {
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
        assert_eq!(left.poll_next(&mut context), Poll::Ready(Some(event())));
        assert_eq!(left.poll_next(&mut context), Poll::Ready(None));
    }

    #[test]
    fn an_event_that_nobody_is_handed_is_not_answered_as_received() {
        let (reply, _) = answer_after(|subscription| {
            drop(subscription);
            None
        });
        assert_eq!(reply, None);
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
        assert!(!sink.has_path(&unknown).await);
        let text = text.lock().unwrap().clone();
        let path = text.split("192.0.2.1:1").nth(1).unwrap();
        let path = path.split('<').next().unwrap();
        assert!(sink.has_path(path).await, "{path} of {text}");
        sink.inputs.send(None).await.unwrap();
        driving.await.unwrap();
        assert!(!sink.has_path(path).await, "the client has ended");
    }
}
