//! The server: one handler and many connections, none of which can delay the others.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chappe_dpws::exi::{ServiceSchema, ServiceSchemas};
use chappe_identity::{ClientCertificate, Scheme};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::body::{self, BodyError};
use super::connection::{Counted, Stream};
use super::room::Room;
use super::security::{Accept, Security};
use super::{Crowd, Place, Places, Request, Response, ServerLimits, Taking, exi};
use crate::{Drops, Hop, Parsers, tls};

/// The pause after the system fails to provide a connection (no file descriptors, no memory).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that the kernel queues before they are accepted.
const BACKLOG: i32 = 256;

/// Answers requests. Closures of the matching type are handlers.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;
}

impl<F, R> Handler for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Response> + Send,
{
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send {
        self(request)
    }
}

/// The load of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerState {
    /// Open connections.
    pub connections: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Requests handed to the handler since the start.
    pub requests: u64,
    /// Connections and requests refused since the start; the drops give the reasons.
    pub refused: u64,
}

#[derive(Default)]
struct Counters {
    connections: AtomicUsize,
    accepted: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
}

/// A running server. Dropping it ends it at once; [`Server::stop`] finishes requests.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    stop: watch::Sender<bool>,
    accept: AbortHandle,
    ended: watch::Receiver<bool>,
    counters: Arc<Counters>,
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state().fmt(f)
    }
}

impl Counters {
    fn state(&self) -> ServerState {
        ServerState {
            connections: self.connections.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl Server {
    /// Listens at `address` (port 0 takes a free one) and serves on the current runtime.
    ///
    /// # Errors
    /// The address cannot be used to listen.
    pub fn bind(
        address: SocketAddr,
        limits: ServerLimits,
        drops: Drops,
        handler: impl Handler,
    ) -> io::Result<Self> {
        Self::bind_secured(address, limits, None, drops, handler)
    }

    /// Like [`Server::bind`], with TLS alone if `security` is given. It must have a certificate. A handshake has the
    /// time of a header, and its connection waits meanwhile like one without a request.
    ///
    /// # Errors
    /// The address cannot be used to listen, or there is no certificate.
    pub fn bind_secured(
        address: SocketAddr,
        limits: ServerLimits,
        security: Option<&Security>,
        drops: Drops,
        handler: impl Handler,
    ) -> io::Result<Self> {
        let schemas = ServiceSchemas::default();
        Self::bind_for_services(address, limits, (security, &schemas), drops, handler)
    }

    /// Like [`Server::bind_secured`]; EXI may be by these schemas of services, too, which may change.
    ///
    /// # Errors
    /// Those of [`Server::bind_secured`].
    pub fn bind_for_services(
        address: SocketAddr,
        limits: ServerLimits,
        (security, schemas): (Option<&Security>, &ServiceSchemas),
        drops: Drops,
        handler: impl Handler,
    ) -> io::Result<Self> {
        let tls = match security.map(|security| &security.accept) {
            Some(None) => return Err(io::Error::other("https needs a certificate")),
            Some(Some(accept)) => Some(Arc::clone(accept)),
            None => None,
        };
        let listener = listen(address)?;
        let local = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let counters = Arc::new(Counters::default());
        let shared = Arc::new(Shared {
            requests: Semaphore::new(limits.requests),
            places: Places::new(limits.connections, limits.connections_per_peer),
            room: Room::new(limits.bodies_bytes, limits.body_bytes),
            parsers: Parsers::default(),
            schemas: schemas.clone(),
            limits,
            tls,
            drops,
            handler,
            counters: Arc::clone(&counters),
        });
        let accept = tokio::spawn(async move {
            accept(listener, shared, stopped).await;
            end.send_replace(true);
        });
        let accept = accept.abort_handle();
        Ok(Self {
            local,
            stop,
            accept,
            ended,
            counters,
        })
    }

    /// The listening address, with the bound port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Its load.
    #[must_use]
    pub fn state(&self) -> ServerState {
        self.counters.state()
    }

    /// Accepts no more connections, finishes requests in progress, and ends the rest after `deadline`.
    pub async fn stop(mut self, deadline: Duration) {
        self.stop.send_replace(true);
        let ended = self.ended.wait_for(|ended| *ended);
        let _ = tokio::time::timeout(deadline, ended).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    // A restart must not wait for old connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// State shared by all connections of a server.
struct Shared<H> {
    limits: ServerLimits,
    tls: Option<Arc<dyn Accept>>,
    requests: Semaphore,
    drops: Drops,
    handler: H,
    counters: Arc<Counters>,
    places: Arc<Places>,
    room: Room,
    parsers: Parsers,
    schemas: ServiceSchemas,
}

impl<H> Shared<H> {
    fn refuse(&self, reason: &'static str, peer: SocketAddr, detail: String) {
        self.refuse_with(reason, peer, detail, None);
    }

    fn refuse_with(
        &self,
        reason: &'static str,
        peer: SocketAddr,
        detail: String,
        hint: Option<String>,
    ) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        self.drops
            .record(Hop::Http, reason, peer.ip(), detail, hint);
    }
}

/// The client of a connection.
struct Peer {
    address: SocketAddr,
    certificate: Option<Arc<ClientCertificate>>,
}

/// The slot of one connection, released when it is dropped.
struct Slot<H> {
    shared: Arc<Shared<H>>,
    place: Place,
}

impl<H> Slot<H> {
    /// Takes a slot for `peer`, and counts a displaced connection or a refusal.
    fn take(shared: &Arc<Shared<H>>, peer: SocketAddr) -> Option<Self> {
        let (place, crowd) = match shared.places.take(peer) {
            Taking::Free(place) => (Some(place), None),
            Taking::Displaced(place, crowd) => (Some(place), Some(crowd)),
            Taking::Full(crowd) => (None, Some(crowd)),
        };
        if let Some(crowd) = crowd {
            let reason = match crowd {
                Crowd::All => "too many connections",
                Crowd::Peer => "too many connections of one peer",
            };
            let detail = match place {
                Some(_) => "a waiting connection was closed",
                None => "all connections have a request in progress",
            };
            shared.refuse(reason, peer, detail.to_owned());
        }
        let place = place?;
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(shared);
        Some(Self { shared, place })
    }
}

impl<H> Drop for Slot<H> {
    fn drop(&mut self) {
        let counters = &self.shared.counters;
        counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept<H: Handler>(
    listener: TcpListener,
    shared: Arc<Shared<H>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut open = JoinSet::new();
    let stop = stopped.clone();
    loop {
        tokio::select! {
            () = stop_asked(&mut stopped) => break,
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if let Some(slot) = Slot::take(&shared, peer) {
                        open.spawn(connection(stream, peer, slot, stop.clone()));
                    }
                }
                Err(error) => {
                    let reason = "the system gives no connection";
                    let hint = Some("raise the limit of open files: ulimit -n".to_owned());
                    shared.drops.record(Hop::Http, reason, "", error.to_string(), hint);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Waits until the server is stopped or dropped.
async fn stop_asked(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Serves one connection until it ends.
async fn connection<H: Handler>(
    stream: TcpStream,
    peer: SocketAddr,
    slot: Slot<H>,
    mut stopped: watch::Receiver<bool>,
) {
    let shared = &slot.shared;
    let Ok(local) = prepare(&stream, shared.limits.write_deadline) else {
        return;
    };
    let stream = tokio::select! {
        stream = secured(shared, stream, peer) => stream,
        () = stop_asked(&mut stopped) => return,
        () = slot.place.displaced() => return,
    };
    let Some(stream) = stream else { return };
    let peer = &Peer {
        certificate: stream.client_certificate(),
        address: peer,
    };
    let read = Arc::new(AtomicU64::new(0));
    let io = TokioIo::new(Counted::new(stream, Arc::clone(&read)));
    // Bytes read up to the last complete request: more means that a header has started.
    let understood = AtomicU64::new(0);
    let service = service_fn(|request| async {
        let response = answer(&slot, request, peer, local).await;
        slot.place.waits();
        understood.store(read.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok::<_, Infallible>(response)
    });
    let mut builder = http1::Builder::new();
    builder
        // Without it an answer is copied, and its room released before it is written.
        .writev(true)
        .timer(TokioTimer::new())
        .header_read_timeout(shared.limits.header_deadline)
        .max_buf_size(shared.limits.header_bytes.max(8 << 10));
    let mut serving = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        result = serving.as_mut() => Some(result),
        () = stop_asked(&mut stopped) => None,
        () = slot.place.displaced() => return,
    };
    let result = match ended {
        Some(result) => result,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    let Err(error) = result else { return };
    let peer = peer.address;
    if error.is_timeout() {
        // The end of an idle connection is normal.
        if read.load(Ordering::Relaxed) > understood.load(Ordering::Relaxed) {
            shared.refuse("header too slow", peer, error.to_string());
        }
    } else if error.is_parse_too_large() {
        shared.refuse("header too large", peer, error.to_string());
    } else if error.is_parse() {
        shared.refuse("not HTTP", peer, error.to_string());
    } else {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// The connection with TLS, if the server has TLS; `None` after a failed handshake, which is counted unless the peer
/// only asked whether somebody listens.
async fn secured<H>(shared: &Shared<H>, stream: TcpStream, peer: SocketAddr) -> Option<Stream> {
    let Some(tls) = &shared.tls else {
        return Some(Stream::Plain(stream));
    };
    match tls
        .accept(stream, peer, shared.limits.header_deadline)
        .await
    {
        Ok(stream) => Some(Stream::Secured(stream)),
        Err(tls::Error::Unused { .. }) => None,
        Err(error) => {
            shared.refuse_with(error.reason(), peer, error.to_string(), error.hint());
            None
        }
    }
}

/// Sets the options of a connection, and returns the local address.
///
/// A peer that reads nothing for `write_deadline` loses the connection.
///
/// # Errors
/// The system refuses them, since the connection has ended already.
pub fn prepare(stream: &TcpStream, write_deadline: Duration) -> io::Result<SocketAddr> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(write_deadline))?;
    stream.local_addr()
}

/// The reason why a request is refused before it reaches the handler.
struct Refusal {
    status: StatusCode,
    reason: &'static str,
    detail: String,
}

/// Answers one request, with the handler or the status of a refusal.
async fn answer<H: Handler>(
    slot: &Slot<H>,
    request: hyper::Request<Incoming>,
    peer: &Peer,
    local: SocketAddr,
) -> hyper::Response<Full<Bytes>> {
    let head = request.method() == Method::HEAD;
    let exi = slot.shared.limits.exi.then(|| {
        let headers = request.headers();
        (exi::is_accepted(headers), exi::is_coded(headers))
    });
    let mut schema = None;
    let mut response = match handled(slot, request, (peer, local), &mut schema).await {
        Ok(response) => response,
        Err(refusal) => {
            slot.shared
                .refuse(refusal.reason, peer.address, refusal.detail);
            // The rest of the request may still be under way: the connection cannot continue.
            let close = HeaderValue::from_static("close");
            Response::empty(refusal.status).with_header(CONNECTION, close)
        }
    };
    if let Some((is_accepted, is_coded)) = exi {
        if is_accepted {
            response = coded(&slot.shared.parsers, response, schema).await;
        }
        // A client that sends it knows.
        if !is_coded || response.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            response = response.with_header(ACCEPT_ENCODING, exi::ACCEPTED);
        }
    }
    if !head {
        let length = response.body.len();
        let body = std::mem::take(&mut response.body);
        match slot.shared.room.holding(peer.address, body) {
            Some(body) => response.body = body,
            None => {
                let detail = format!("one of {length} bytes, while others are not read");
                let reason = "too many unread answers";
                slot.shared.refuse(reason, peer.address, detail);
                response = Response::empty(StatusCode::SERVICE_UNAVAILABLE);
            }
        }
    }
    let length = response.body.len();
    let body = if head { Bytes::new() } else { response.body };
    let mut written = hyper::Response::new(Full::new(body));
    *written.status_mut() = response.status;
    *written.headers_mut() = response.headers;
    if head {
        written.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    written
}

/// The response as EXI, where it is a message and gets shorter.
async fn coded(parsers: &Parsers, response: Response, schema: Option<ServiceSchema>) -> Response {
    let (bytes, text) = (response.body.len(), response.clone());
    let coding = move || exi::coded(text, schema.as_ref());
    let coded = parsers.run_if_large(bytes, coding).await;
    coded.unwrap_or(response)
}

/// Hands the request to the handler. `schema` is set to that of a service by which it was EXI.
async fn handled<H: Handler>(
    slot: &Slot<H>,
    request: hyper::Request<Incoming>,
    (peer, local): (&Peer, SocketAddr),
    schema: &mut Option<ServiceSchema>,
) -> Result<Response, Refusal> {
    let shared = &slot.shared;
    let limits = &shared.limits;
    let (parts, incoming) = request.into_parts();
    let received = read_body(shared, &parts.headers, incoming, peer.address).await?;
    *schema = received.schema;
    let (body, _room) = (received.bytes, received.room);
    // Only now, so that a slow body does not use up the limit on requests.
    let unavailable = |reason, detail: String| Refusal {
        status: StatusCode::SERVICE_UNAVAILABLE,
        reason,
        detail,
    };
    let Ok(_permit) = shared.requests.try_acquire() else {
        let detail = format!("{} are in progress", limits.requests);
        return Err(unavailable("too many requests", detail));
    };
    slot.place.is_answered();
    shared.counters.requests.fetch_add(1, Ordering::Relaxed);
    let request = Request {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: parts.headers,
        body,
        peer: peer.address,
        certificate: peer.certificate.clone(),
        local,
        scheme: match shared.tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        },
    };
    let answering = shared.handler.handle(request);
    match tokio::time::timeout(limits.answer_deadline, answering).await {
        Ok(response) => Ok(response),
        Err(_) => Err(unavailable("answer too slow", parts.uri.path().to_owned())),
    }
}

/// Reads the body, within its limits on bytes and time, and takes room for it until it is answered.
async fn read_body<H>(
    shared: &Shared<H>,
    headers: &HeaderMap,
    incoming: Incoming,
    peer: SocketAddr,
) -> Result<body::Received, Refusal> {
    let limits = &shared.limits;
    let reader = body::Reader {
        bound: limits.body_bytes,
        exi: limits.exi.then_some(&shared.schemas),
        parsers: &shared.parsers,
        room: Some((&shared.room, peer)),
    };
    let reading = reader.read(headers, incoming);
    let (status, reason, detail) = match tokio::time::timeout(limits.body_deadline, reading).await {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(BodyError::TooLarge)) => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "body too large",
            "above the limit".to_owned(),
        ),
        Ok(Err(BodyError::Encoding)) => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unreadable content encoding",
            "neither plain nor a valid coding".to_owned(),
        ),
        Ok(Err(BodyError::Schema(wanted))) => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "EXI of an unknown schema",
            format!("schema {wanted:.64}"),
        ),
        Ok(Err(BodyError::Broken(error))) => (
            StatusCode::BAD_REQUEST,
            "body broken off",
            error.to_string(),
        ),
        Err(_) => (
            StatusCode::REQUEST_TIMEOUT,
            "body too slow",
            format!("incomplete after {:?}", limits.body_deadline),
        ),
    };
    Err(Refusal {
        status,
        reason,
        detail,
    })
}
