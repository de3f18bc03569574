//! Connects the device's machine, HTTP and the application's operations.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_dpws::eventing::{DropReason, Failure, Notification, SourceEvent, Token};
use chappe_dpws::exchange::{self, Content, Reply};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceEvent, DeviceReceive, DeviceTransmit, HttpRequest, Invocation,
    Method,
};
use chappe_identity::Contact;
use chappe_machine::{Input, Output};
use chappe_soap::wsdl::OperationKind;
use chappe_soap::{AddressingVersion, Envelope};
use chappe_transport::http::header::CONTENT_TYPE;
use chappe_transport::http::{self, Request, Response};
use chappe_transport::signatures::{NotAdmitted, Signing, random_urn};
use chappe_transport::{Drops, Hop, Parsers};
use chappe_xml::Limits;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::{Operation, Shared, TreeState, builder};
use crate::driver::{InputOf, OutputHandler, drive};
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

/// Requests that the machine is processing.
pub(super) struct Serving {
    inputs: mpsc::Sender<Option<InputOf<Device>>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    next_token: AtomicU64,
    /// The interfaces of link-local peers, which the addresses in their messages do not name.
    zones: Mutex<HashMap<Ipv6Addr, u32>>,
    /// The threads that parse large messages.
    parsers: Parsers,
    /// The stable endpoint of the device.
    endpoint: String,
    signing: Option<Signing>,
}

impl Serving {
    pub(super) fn new(
        inputs: mpsc::Sender<Option<InputOf<Device>>>,
        endpoint: String,
        signing: Option<Signing>,
    ) -> Self {
        Self {
            inputs,
            waiting: Mutex::default(),
            next_token: AtomicU64::new(1),
            zones: Mutex::default(),
            parsers: Parsers::default(),
            endpoint,
            signing,
        }
    }

    /// Answers a request by the machine.
    pub(super) async fn answer(&self, drops: &Drops, request: Request) -> Response {
        if request.method == http::Method::POST && !is_soap(&request.headers) {
            let (peer, reason) = (request.peer.ip(), "not sent as SOAP");
            let detail = format!("its type is {:?}", request.headers.get(CONTENT_TYPE));
            drops.record(Hop::Http, reason, peer, detail, None);
            return Response::empty(http::StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        self.remember_zone(request.peer);
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let (peer, bytes) = (request.peer.ip(), request.body.len());
        let read = match self.signing.clone() {
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
        };
        let request = match read {
            Ok(Ok(request)) => request,
            Ok(Err(error)) => {
                drops.record(Hop::Http, "signature", peer, error.to_string(), None);
                let urn = random_urn().unwrap_or_default();
                let fault = exchange::unrelated_fault(&error.fault(), urn);
                return self.respond(drops, Reply::message(fault)).await;
            }
            Err(_) => return response(&Reply::UNAVAILABLE),
        };
        let (reply, replied) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.insert(token, reply);
        }
        // If the peer disconnects, this future is dropped, and its entry is removed.
        let _pending = PendingReply {
            serving: self,
            token,
        };
        let input = Input::Receive(DeviceReceive::Http(Box::new(request)));
        if self.inputs.send(Some(input)).await.is_err() {
            return response(&Reply::UNAVAILABLE);
        }
        let reply = replied.await.unwrap_or(Reply::UNAVAILABLE);
        self.respond(drops, reply).await
    }

    /// The response of a reply; a message is signed.
    async fn respond(&self, drops: &Drops, reply: Reply) -> Response {
        let (Some(signing), Content::Envelope(envelope)) = (&self.signing, &reply.content) else {
            return response(&reply);
        };
        let (signing, envelope) = (signing.clone(), envelope.clone());
        let signed = self.parsers.run(move || signing.text(&envelope)).await;
        match signed {
            Ok(Ok(text)) => response_with(&reply, text),
            Ok(Err(error)) => {
                let (reason, detail) = ("answer cannot be signed", error.to_string());
                drops.record(Hop::Http, reason, "", detail, None);
                Response::empty(http::StatusCode::INTERNAL_SERVER_ERROR)
            }
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

    fn reply(&self, token: u64, reply: Reply) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = waiting.remove(&token) {
            // The connection may be closed.
            let _ = waiting.send(reply);
        }
    }
}

/// Removes the entry of a request that waits for its reply.
struct PendingReply<'a> {
    serving: &'a Serving,
    token: u64,
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        let waiting = self.serving.waiting.lock();
        waiting
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.token);
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
fn read_envelope(body: &[u8]) -> Result<Envelope, chappe_soap::Error> {
    Envelope::parse_within(body, limits_of(body))
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
    Ok(machine_request(request, token, |_| received.envelope))
}

/// Converts a request for the machine. Endpoints use the address that was contacted, not the host name in
/// the request.
fn machine_request(
    request: Request,
    token: u64,
    read: impl FnOnce(&[u8]) -> Result<Envelope, chappe_soap::Error>,
) -> HttpRequest {
    let base = request.base();
    let target = match &request.query {
        Some(query) => format!("{}?{query}", request.path),
        None => request.path,
    };
    let method = match request.method {
        http::Method::GET => Method::Get,
        http::Method::POST => Method::Post(read(&request.body).map(Box::new)),
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

/// Runs the device's machine until it is stopped.
pub(super) fn run(
    device: Device,
    inputs: mpsc::Receiver<Option<InputOf<Device>>>,
    shared: &Arc<Shared>,
) -> impl Future<Output = ()> + Send + 'static {
    let mut outputs = DeviceOutputs {
        shared: Arc::clone(shared),
        tasks: JoinSet::new(),
        under_way: HashMap::new(),
        one_way: JoinSet::new(),
        state: HostState::default(),
    };
    async move {
        drive(device, inputs, &mut outputs).await;
        let last = async { while outputs.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_NOTIFICATIONS_DEADLINE, last).await;
        let mut waiting = outputs.shared.serving.waiting.lock();
        if let Ok(waiting) = &mut waiting {
            waiting.clear();
        }
    }
}

struct DeviceOutputs {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    /// Operations that will answer.
    under_way: HashMap<Token, AbortHandle>,
    one_way: JoinSet<()>,
    state: HostState,
}

impl OutputHandler<Device> for DeviceOutputs {
    fn handle(&mut self, output: Output<DeviceTransmit, DeviceEvent>) {
        while self.tasks.try_join_next().is_some() {}
        while self.one_way.try_join_next().is_some() {}
        match output {
            Output::Transmit(DeviceTransmit::Reply { token, reply }) => {
                // An operation that is answered otherwise has exceeded its time limit.
                if let Some(operation) = self.under_way.remove(&token) {
                    operation.abort();
                }
                self.shared.serving.reply(token.0, reply);
            }
            Output::Transmit(DeviceTransmit::Notify(notification)) => {
                let shared = Arc::clone(&self.shared);
                self.tasks.spawn(async move {
                    let receive = deliver(&shared, &notification).await;
                    let _ = shared.inputs.send(Some(Input::Receive(receive))).await;
                });
            }
            Output::Transmit(DeviceTransmit::Tree(order)) => {
                if let Some(tree) = &self.shared.tree
                    && let Err(refused) = tree.order(order)
                {
                    let shared = Arc::clone(&self.shared);
                    self.tasks.spawn(async move {
                        let input = Input::Receive(DeviceReceive::Tree(refused));
                        let _ = shared.inputs.send(Some(input)).await;
                    });
                }
            }
            Output::Event(DeviceEvent::Invoked(invocation)) => self.invoke(*invocation),
            Output::Event(DeviceEvent::Eventing(event)) => self.on_source_event(event),
            Output::Event(DeviceEvent::Refused {
                peer,
                reason,
                detail,
            }) => {
                let detail = format!("{reason:?}: {detail}");
                let drops = &self.shared.drops;
                drops.record(Hop::Http, "request refused", peer.ip(), detail, None);
            }
            Output::Event(_) => {}
        }
    }

    fn on_drained(&mut self, device: &Device) {
        self.state.subscriptions = device.events().subscriptions();
        self.state.delivered = device.events().delivered();
        self.state.tree.sinks = device.events().on_trees();
        self.state.tree.delivered = device.events().delivered_by_tree();
        self.state.tree.missed = device.events().missed_by_tree();
        let state = self.state;
        self.shared.state.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        });
    }
}

impl DeviceOutputs {
    fn invoke(&mut self, invocation: Invocation) {
        self.state.invoked += 1;
        let token = invocation.token;
        let shared = Arc::clone(&self.shared);
        let Some(operation) = self.shared.operation(&invocation.action) else {
            let version = AddressingVersion::default();
            let fault = exchange::action_not_supported(version, &invocation.action);
            let result = Err(fault);
            self.tasks.spawn(async move {
                let _ = shared.command(DeviceCommand::Reply { token, result }).await;
            });
            return;
        };
        if invocation.kind == OperationKind::OneWay {
            return self.invoke_one_way(&operation, invocation);
        }
        let answer = operation(invocation);
        let answering = self.tasks.spawn(async move {
            let result = answer.await;
            let _ = shared.command(DeviceCommand::Reply { token, result }).await;
        });
        self.under_way.insert(token, answering);
    }

    /// Runs a one-way operation, whose client has its answer, under the same time limit.
    fn invoke_one_way(&mut self, operation: &Operation, invocation: Invocation) {
        if self.one_way.len() >= ONE_WAY_MAX {
            let (peer, reason) = (invocation.peer.ip(), "too many one-way operations");
            let detail = format!(
                "{} is not run: {ONE_WAY_MAX} others are",
                invocation.operation
            );
            let hint = Some("make the operation end sooner".to_owned());
            return self
                .shared
                .drops
                .record(Hop::Http, reason, peer, detail, hint);
        }
        let limit = builder::operation_limit(&self.shared.options.server);
        let acting = tokio::time::timeout(limit, operation(invocation));
        self.one_way.spawn(async move {
            let _ = acting.await;
        });
    }

    fn on_source_event(&mut self, event: SourceEvent) {
        let drops = &self.shared.drops;
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
