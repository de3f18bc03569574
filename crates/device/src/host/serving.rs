//! Connects the device's machine, HTTP and the application's operations.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use chappe_dpws::eventing::{DropReason, Failure, Notification, SourceEvent, Token};
use chappe_dpws::exchange::{self, Content, Reply};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceEvent, DeviceReceive, DeviceTransmit, HttpRequest, Invocation,
    Method,
};
use chappe_identity::Contact;
use chappe_machine::{Input, Instant, Machine as _, Output, drain};
use chappe_soap::wsdl::OperationKind;
use chappe_soap::{AddressingVersion, Envelope, LazyEnvelope};
use chappe_transport::http::header::CONTENT_TYPE;
use chappe_transport::http::{self, Request, Response};
use chappe_transport::signatures::{NotAdmitted, Signing, random_urn};
use chappe_transport::{Clock, Drops, Hop, ParserEnded, Parsers};
use chappe_xml::Limits;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::builder::{self, Answer};
use super::{Operation, Shared, TreeState};
use crate::driver::InputOf;
use crate::http::{response, response_with};

/// One-way operations under way. Reason: as many as operations that wait for an answer.
const ONE_WAY_MAX: usize = 256;
/// Link-local subscribers whose interface is remembered.
const ZONES_MAX: usize = 1_024;
/// The time limit for the last notifications, which end subscriptions.
const LAST_NOTIFICATIONS_DEADLINE: Duration = Duration::from_secs(1);

/// The load of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostState {
    /// Active subscriptions.
    pub subscriptions: usize,
    /// Notifications delivered since the start.
    pub delivered: u64,
    /// Notifications dropped since the start; the drops give the reasons.
    pub dropped: u64,
    /// Operations called since the start.
    pub invoked: u64,
    /// Counters of notification trees.
    pub tree: TreeState,
}

/// The machine of a host, and the requests that it is processing.
///
/// A connection's task feeds the machine its request, and runs the operation that is called; the task of
/// [`run`] feeds it everything else. Whoever feeds an input handles its outputs.
pub(super) struct Serving {
    /// The machine; `None` after the end.
    hosted: Mutex<Option<Hosted>>,
    /// The machine has an earlier deadline than its task sleeps for.
    earlier: Notify,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Step>>>,
    next_token: AtomicU64,
    /// The interfaces of link-local peers, which the addresses in their messages do not name.
    zones: Mutex<HashMap<Ipv6Addr, u32>>,
    /// The threads that parse large messages.
    parsers: Parsers,
    /// The stable endpoint of the device.
    endpoint: String,
    signing: Option<Signing>,
}

/// What the machine wants of the task of a request.
enum Step {
    Reply(Reply),
    Run(Operation, Box<Invocation>),
}

/// The machine with what handles its outputs.
struct Hosted {
    device: Device,
    outputs: DeviceOutputs,
    produced: Vec<Output<DeviceTransmit, DeviceEvent>>,
    /// The next deadline, and the one that the machine's task sleeps for.
    deadline: Option<Instant>,
    sleeps_until: Option<Instant>,
}

impl Serving {
    pub(super) fn new(device: Device, endpoint: String, signing: Option<Signing>) -> Self {
        let hosted = Hosted {
            deadline: device.deadline(),
            device,
            outputs: DeviceOutputs::default(),
            produced: Vec::new(),
            sleeps_until: None,
        };
        Self {
            hosted: Mutex::new(Some(hosted)),
            earlier: Notify::new(),
            waiting: Mutex::default(),
            next_token: AtomicU64::new(1),
            zones: Mutex::default(),
            parsers: Parsers::default(),
            endpoint,
            signing,
        }
    }

    fn hosted(&self) -> MutexGuard<'_, Option<Hosted>> {
        self.hosted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the machine with its operations and deliveries; requests are not answered any more.
    pub(super) fn close(&self) {
        let hosted = self.hosted().take();
        // Not under the lock, which tasks may want that end with it.
        drop(hosted);
    }

    /// Reads a request for the machine.
    async fn read(
        &self,
        request: Request,
        token: u64,
    ) -> Result<Result<HttpRequest, NotAdmitted>, ParserEnded> {
        let bytes = request.body.len();
        match self.signing.clone() {
            None => {
                let reading = move || Ok(machine_request(request, token, read_envelope));
                self.parsers.run_if_large(bytes, reading).await
            }
            // It may wait for the disk.
            Some(signing) => {
                let endpoint = self.endpoint.clone();
                let reading = move || signed_request(request, token, &signing, endpoint);
                self.parsers.run(reading).await
            }
        }
    }

    /// The response of a reply; a message is signed.
    async fn respond(&self, drops: &Drops, reply: Reply) -> Response {
        let Some(signing) = self.signing.clone() else {
            return response(&reply);
        };
        let envelope = match &reply.content {
            Content::Envelope(envelope) => Ok(Envelope::clone(envelope)),
            Content::Lazy(envelope) => LazyEnvelope::clone(envelope).into_envelope(),
            Content::Empty | Content::Document(_) => return response(&reply),
        };
        let cannot = |detail: String| {
            let reason = "answer cannot be signed";
            drops.record(Hop::Http, reason, "", detail, None);
            Response::empty(http::StatusCode::INTERNAL_SERVER_ERROR)
        };
        let envelope = match envelope {
            Ok(envelope) => envelope,
            Err(error) => return cannot(error.to_string()),
        };
        match self.parsers.run(move || signing.text(&envelope)).await {
            Ok(Ok(text)) => response_with(&reply, text),
            Ok(Err(error)) => cannot(error.to_string()),
            Err(_) => response(&Reply::UNAVAILABLE),
        }
    }

    fn remember_zone(&self, peer: SocketAddr) {
        let SocketAddr::V6(peer) = peer else { return };
        if peer.scope_id() == 0 {
            return;
        }
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        if zones.len() >= ZONES_MAX {
            zones.clear();
        }
        zones.insert(*peer.ip(), peer.scope_id());
    }

    /// The contact of a notification; the machine had the address checked.
    fn contact(&self, to: &str) -> Option<Contact> {
        let mut contact = Contact::parse(to, 0).ok()?;
        if let SocketAddr::V6(address) = &mut contact.address {
            let zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
            address.set_scope_id(zones.get(address.ip()).copied().unwrap_or(0));
        }
        Some(contact)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Step>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the next step of a request arrives.
    fn expect(&self, token: u64) -> oneshot::Receiver<Step> {
        let (send, step) = oneshot::channel();
        self.waiting().insert(token, send);
        step
    }

    /// Hands a step to the task of its request; returns it if its connection is closed.
    fn give(&self, token: u64, step: Step) -> Option<Step> {
        let waiting = self.waiting().remove(&token);
        match waiting {
            Some(waiting) => waiting.send(step).err(),
            None => Some(step),
        }
    }
}

/// Answers a request by the machine of a host.
pub(super) async fn answer(host: &Weak<Shared>, request: Request) -> Response {
    // Held for reading the request and writing the answer, but not while an operation runs.
    let Some(shared) = host.upgrade() else {
        return response(&Reply::UNAVAILABLE);
    };
    let (serving, drops) = (&shared.serving, &shared.drops);
    if request.method == http::Method::POST && !is_soap(&request.headers) {
        let (peer, reason) = (request.peer.ip(), "not sent as SOAP");
        let detail = format!("its type is {:?}", request.headers.get(CONTENT_TYPE));
        drops.record(Hop::Http, reason, peer, detail, None);
        return Response::empty(http::StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    serving.remember_zone(request.peer);
    let token = serving.next_token.fetch_add(1, Ordering::Relaxed);
    let peer = request.peer.ip();
    let request = match serving.read(request, token).await {
        Ok(Ok(request)) => request,
        Ok(Err(error)) => {
            drops.record(Hop::Http, "signature", peer, error.to_string(), None);
            let urn = random_urn().unwrap_or_default();
            let fault = exchange::unrelated_fault(&error.fault(), urn);
            return serving.respond(drops, Reply::message(fault)).await;
        }
        Err(_) => return response(&Reply::UNAVAILABLE),
    };
    // If the peer disconnects, this future is dropped, and its entry is removed.
    let _pending = PendingReply { host, token };
    let mut step = serving.expect(token);
    let input = Input::Receive(DeviceReceive::Http(Box::new(request)));
    if !shared.feed(input) {
        return response(&Reply::UNAVAILABLE);
    }
    drop(shared);
    loop {
        match step.await {
            Ok(Step::Reply(reply)) => {
                return match host.upgrade() {
                    Some(shared) => shared.serving.respond(&shared.drops, reply).await,
                    None => response(&Reply::UNAVAILABLE),
                };
            }
            Ok(Step::Run(operation, invocation)) => {
                let Some(shared) = host.upgrade() else {
                    return response(&Reply::UNAVAILABLE);
                };
                step = shared.serving.expect(token);
                let mut answering = operation(*invocation);
                // An operation that answers at once is answered from here. Any other continues in a
                // task of its own, since a client that disconnects must not end it half way.
                let polled = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context)));
                match polled.await {
                    Poll::Ready(result) => {
                        let token = Token(token);
                        shared.feed(Input::Command(DeviceCommand::Reply { token, result }));
                    }
                    Poll::Pending => shared.continue_operation(Token(token), answering),
                }
            }
            Err(_) => return response(&Reply::UNAVAILABLE),
        }
    }
}

/// Removes the entry of a request that waits for its reply.
struct PendingReply<'a> {
    host: &'a Weak<Shared>,
    token: u64,
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.host.upgrade() {
            shared.serving.waiting().remove(&self.token);
        }
    }
}

/// Whether the content type is that of SOAP (SOAP 1.2 part 2, section 7.5.1.1).
///
/// A page in a browser can send other types, or none, to any host without a preflight request.
fn is_soap(headers: &http::HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/soap+xml"))
}

/// A message as it was received.
fn read_envelope(body: Bytes) -> Result<LazyEnvelope, chappe_soap::Error> {
    let limits = limits_of(&body);
    LazyEnvelope::parse_within(body, limits)
}

fn limits_of(body: &[u8]) -> Limits {
    Limits {
        bytes: body.len(),
        ..Limits::default()
    }
}

/// Converts a request for the machine, with only those parts of its message that are signed. The message must be
/// for the device or the contacted address: otherwise, one for another device could be sent to this one.
fn signed_request(
    request: Request,
    token: u64,
    signing: &Signing,
    endpoint: String,
) -> Result<HttpRequest, NotAdmitted> {
    if request.method != http::Method::POST {
        return Ok(machine_request(request, token, read_envelope));
    }
    let address = format!("{}{}", request.base(), request.path);
    let (body, addressees) = (request.body.clone(), vec![endpoint, address]);
    let received = signing.receive(&body, limits_of(&body), addressees, None)?;
    Ok(machine_request(request, token, |_| {
        received.envelope.map(LazyEnvelope::from)
    }))
}

/// Converts a request for the machine. Endpoints use the address that was contacted, not the host name in
/// the request.
fn machine_request(
    request: Request,
    token: u64,
    read: impl FnOnce(Bytes) -> Result<LazyEnvelope, chappe_soap::Error>,
) -> HttpRequest {
    let base = request.base();
    let target = match &request.query {
        Some(query) => format!("{}?{query}", request.path),
        None => request.path,
    };
    let method = match request.method {
        http::Method::GET => Method::Get,
        http::Method::POST => Method::Post(read(request.body).map(Box::new)),
        _ => Method::Other,
    };
    HttpRequest {
        token: Token(token),
        peer: request.peer,
        base: base.into(),
        target: target.into(),
        method,
    }
}

/// Feeds the machine until it is stopped: the inputs of its channel, and its deadlines.
pub(super) async fn run(shared: Arc<Shared>, mut inputs: mpsc::Receiver<Option<InputOf<Device>>>) {
    let clock = Clock::process();
    loop {
        let at = shared.serving.hosted().as_mut().and_then(|hosted| {
            hosted.sleeps_until = hosted.deadline;
            hosted.deadline.map(|deadline| clock.at(deadline))
        });
        let input = tokio::select! {
            biased;
            () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                if at.is_some() => Input::Timeout,
            input = inputs.recv() => match input {
                Some(Some(input)) => input,
                Some(None) | None => break,
            },
            () = shared.serving.earlier.notified() => continue,
        };
        shared.feed(input);
    }
    let hosted = shared.serving.hosted().take();
    if let Some(mut hosted) = hosted {
        let tasks = &mut hosted.outputs.tasks;
        let last = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_NOTIFICATIONS_DEADLINE, last).await;
    }
    shared.serving.waiting().clear();
}

impl Shared {
    /// Feeds the machine an input, and handles the outputs; `false` after its end.
    fn feed(self: &Arc<Self>, input: InputOf<Device>) -> bool {
        let mut hosted = self.serving.hosted();
        let Some(hosted) = hosted.as_mut() else {
            return false;
        };
        let Hosted {
            device,
            outputs,
            produced,
            deadline,
            sleeps_until,
        } = hosted;
        let now = Clock::process().now();
        *deadline = drain(device, now, input, |output| produced.push(output));
        for output in produced.drain(..) {
            outputs.handle(self, output);
        }
        outputs.on_drained(self, device);
        let is_earlier = |deadline: &Instant| sleeps_until.is_none_or(|until| *deadline < until);
        if deadline.as_ref().is_some_and(is_earlier) {
            self.serving.earlier.notify_one();
        }
        true
    }

    /// Continues an operation in a task of its own.
    fn continue_operation(self: &Arc<Self>, token: Token, answering: Answer) {
        if let Some(hosted) = self.serving.hosted().as_mut() {
            hosted.outputs.spawn_operation(self, token, answering);
        }
    }
}

/// Handles the outputs of the machine.
#[derive(Default)]
struct DeviceOutputs {
    tasks: JoinSet<()>,
    /// Operations that will answer.
    under_way: HashMap<Token, AbortHandle>,
    one_way: JoinSet<()>,
    state: HostState,
}

impl DeviceOutputs {
    fn handle(&mut self, shared: &Arc<Shared>, output: Output<DeviceTransmit, DeviceEvent>) {
        while self.tasks.try_join_next().is_some() {}
        while self.one_way.try_join_next().is_some() {}
        match output {
            Output::Transmit(DeviceTransmit::Reply { token, reply }) => {
                // An operation that is answered otherwise has exceeded its time limit.
                if let Some(operation) = self.under_way.remove(&token) {
                    operation.abort();
                }
                // The connection may be closed.
                let _ = shared.serving.give(token.0, Step::Reply(reply));
            }
            Output::Transmit(DeviceTransmit::Notify(notification)) => {
                let shared = Arc::clone(shared);
                self.tasks.spawn(async move {
                    let receive = deliver(&shared, &notification).await;
                    let _ = shared.inputs.send(Some(Input::Receive(receive))).await;
                });
            }
            Output::Transmit(DeviceTransmit::Tree(order)) => {
                if let Some(tree) = &shared.tree
                    && let Err(refused) = tree.order(order)
                {
                    let shared = Arc::clone(shared);
                    self.tasks.spawn(async move {
                        let input = Input::Receive(DeviceReceive::Tree(refused));
                        let _ = shared.inputs.send(Some(input)).await;
                    });
                }
            }
            Output::Event(DeviceEvent::Invoked(invocation)) => self.invoke(shared, invocation),
            Output::Event(DeviceEvent::Eventing(event)) => {
                self.on_source_event(&shared.drops, event);
            }
            Output::Event(DeviceEvent::Refused {
                peer,
                reason,
                detail,
            }) => {
                let detail = format!("{reason:?}: {detail}");
                let drops = &shared.drops;
                drops.record(Hop::Http, "request refused", peer.ip(), detail, None);
            }
            Output::Event(_) => {}
        }
    }

    /// Called after all outputs of an input.
    fn on_drained(&mut self, shared: &Shared, device: &Device) {
        self.state.subscriptions = device.events().subscriptions();
        self.state.delivered = device.events().delivered();
        self.state.tree.sinks = device.events().on_trees();
        self.state.tree.delivered = device.events().delivered_by_tree();
        self.state.tree.missed = device.events().missed_by_tree();
        let state = self.state;
        shared.state.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        });
    }

    fn invoke(&mut self, shared: &Arc<Shared>, invocation: Box<Invocation>) {
        self.state.invoked += 1;
        let token = invocation.token;
        let Some(operation) = shared.operation(&invocation.action) else {
            let version = AddressingVersion::default();
            let fault = exchange::action_not_supported(version, &invocation.action);
            let answering = Box::pin(async move { Err(fault) });
            return self.spawn_operation(shared, token, answering);
        };
        if invocation.kind == OperationKind::OneWay {
            return self.invoke_one_way(shared, &operation, *invocation);
        }
        let step = Step::Run(operation, invocation);
        // Without a connection nobody else runs it.
        if let Some(Step::Run(operation, invocation)) = shared.serving.give(token.0, step) {
            let answering = operation(*invocation);
            self.spawn_operation(shared, token, answering);
        }
    }

    fn spawn_operation(&mut self, shared: &Arc<Shared>, token: Token, answering: Answer) {
        let shared = Arc::clone(shared);
        let operation = self.tasks.spawn(async move {
            let result = answering.await;
            let _ = shared.command(DeviceCommand::Reply { token, result }).await;
        });
        self.under_way.insert(token, operation);
    }

    /// Runs a one-way operation, whose client has its answer, under the same time limit.
    fn invoke_one_way(&mut self, shared: &Shared, operation: &Operation, invocation: Invocation) {
        if self.one_way.len() >= ONE_WAY_MAX {
            let (peer, reason) = (invocation.peer.ip(), "too many one-way operations");
            let detail = format!(
                "{} is not run: {ONE_WAY_MAX} others are",
                invocation.operation
            );
            let hint = Some("make the operation end sooner".to_owned());
            let drops = &shared.drops;
            return drops.record(Hop::Http, reason, peer, detail, hint);
        }
        let limit = builder::operation_limit(&shared.options.server);
        let acting = tokio::time::timeout(limit, operation(invocation));
        self.one_way.spawn(async move {
            let _ = acting.await;
        });
    }

    fn on_source_event(&mut self, drops: &Drops, event: SourceEvent) {
        match event {
            SourceEvent::Dropped {
                subscription,
                reason,
                count,
            } => {
                let count = count as u64;
                self.state.dropped += count;
                let (reason, hint) = match reason {
                    DropReason::QueueFull => (
                        "subscriber too slow",
                        Some(
                            "enlarge the event source's queue, or make the subscriber read faster",
                        ),
                    ),
                    DropReason::Refused => ("subscriber refused the event", None),
                    _ => ("subscription ended before delivery", None),
                };
                let (hop, hint) = (Hop::Event, hint.map(str::to_owned));
                let detail = format!("subscription {subscription:?}");
                drops.record_times(count, hop, reason, "", detail, hint);
            }
            SourceEvent::Refused {
                peer,
                reason,
                detail,
            } => {
                let detail = format!("{reason:?}: {detail}");
                let reason = "subscription refused";
                drops.record(Hop::Event, reason, peer.ip(), detail, None);
            }
            SourceEvent::OffTree {
                subscription,
                reason,
            } => {
                self.state.tree.off += 1;
                let detail = format!("subscription {subscription:?}: {reason}");
                let hint = "it gets standard notifications; check that UDP passes both ways";
                let what = "sink is not on the tree";
                drops.record(Hop::Event, what, "", detail, Some(hint.to_owned()));
            }
            event => tracing::debug!(?event, "eventing"),
        }
    }
}

/// Posts a notification and returns its result.
async fn deliver(shared: &Shared, notification: &Notification) -> DeviceReceive {
    let delivery = notification.delivery;
    let Some(contact) = shared.serving.contact(notification.to()) else {
        let failure = Failure::Refused;
        return DeviceReceive::Failed { delivery, failure };
    };
    let posted = match &shared.options.signing {
        Some(signing) => {
            let envelope = notification.to_envelope();
            shared.http.post_signed(&contact, envelope, signing).await
        }
        None => {
            let (action, text) = (notification.action(), notification.to_text());
            shared.http.post_text(&contact, action, text).await
        }
    };
    let failure = match posted {
        Ok(answer) if answer.status.is_success() => {
            return DeviceReceive::Delivered { delivery };
        }
        Ok(answer) if answer.status.is_client_error() => Failure::Refused,
        Ok(_) => Failure::Unreachable,
        Err(error) => {
            let (peer, detail) = (contact.address.ip(), error.to_string());
            let hint = error.hint();
            shared
                .drops
                .record(Hop::Event, "event not delivered", peer, detail, hint);
            Failure::Unreachable
        }
    };
    DeviceReceive::Failed { delivery, failure }
}
