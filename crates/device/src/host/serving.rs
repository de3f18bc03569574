//! Connects the device's machine, HTTP and the application's operations.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use bytes::Bytes;
use chappe_dpws::eventing::Token;
use chappe_dpws::exchange::{self, Content, Reply};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceEvent, DeviceReceive, DeviceTransmit, HttpRequest, Invocation,
    Method,
};
use chappe_identity::Contact;
use chappe_machine::{Input, Instant, Machine as _, Output, drain};
use chappe_soap::{Envelope, LazyEnvelope};
use chappe_transport::http::header::CONTENT_TYPE;
use chappe_transport::http::{self, Request, Response};
use chappe_transport::signatures::{NotAdmitted, Signing, random_urn};
use chappe_transport::{Clock, Drops, Hop, ParserEnded, Parsers};
use chappe_xml::Limits;
use tokio::sync::{Notify, mpsc, oneshot};

use super::builder::Answer;
use super::outputs::DeviceOutputs;
use super::{Operation, Shared};
use crate::driver::InputOf;
use crate::http::{response, response_with};

/// Link-local subscribers whose interface is remembered.
const ZONES_MAX: usize = 1_024;

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
pub(super) enum Step {
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

    /// Wakes the machine's task if there is an earlier deadline than it sleeps for.
    fn wake_if_earlier(&self) {
        let is_earlier = self.hosted().as_ref().is_some_and(|hosted| {
            let until = hosted.sleeps_until;
            let is_earlier = |deadline| until.is_none_or(|until| deadline < until);
            hosted.deadline.is_some_and(is_earlier)
        });
        if is_earlier {
            self.earlier.notify_one();
        }
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
    pub(super) fn contact(&self, to: &str) -> Option<Contact> {
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
    pub(super) fn give(&self, token: u64, step: Step) -> Option<Step> {
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
    let certificate = request.certificate.clone();
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
            Ok(Step::Run(operation, mut invocation)) => {
                invocation.certificate.clone_from(&certificate);
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

/// Removes the entry of a request that waits for its reply, and wakes the machine's task if the request left an earlier
/// deadline. Not before: that of an operation that answers at once is gone again.
struct PendingReply<'a> {
    host: &'a Weak<Shared>,
    token: u64,
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.host.upgrade() {
            shared.serving.waiting().remove(&self.token);
            shared.serving.wake_if_earlier();
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
    if let Some(hosted) = hosted {
        hosted.outputs.end().await;
    }
    shared.serving.waiting().clear();
}

impl Shared {
    /// Feeds the machine an input, and handles the outputs; `false` after its end. A task other than the machine's own
    /// wakes that one afterwards.
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
            ..
        } = hosted;
        let now = Clock::process().now();
        *deadline = drain(device, now, input, |output| produced.push(output));
        for output in produced.drain(..) {
            outputs.handle(self, output);
        }
        outputs.on_drained(self, device);
        true
    }

    /// Continues an operation in a task of its own.
    fn continue_operation(self: &Arc<Self>, token: Token, answering: Answer) {
        if let Some(hosted) = self.serving.hosted().as_mut() {
            hosted.outputs.spawn_operation(self, token, answering);
        }
        self.serving.wake_if_earlier();
    }
}
