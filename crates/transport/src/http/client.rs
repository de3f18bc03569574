//! The client: connections kept alive, deadlines on every step, no redirects.
//!
//! It takes a [`Contact`] instead of text: a contact was checked by an address policy, or chosen by the caller.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chappe_dpws::exi::{ServiceSchema, ServiceSchemas};
use chappe_identity::{Contact, Proof, Scheme};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT_ENCODING, HOST, HeaderValue};
use hyper::{HeaderMap, Method};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use super::body::{self, BodyError};
use super::connection::Stream;
use super::security::{Connect, Security};
use super::{Answer, ClientLimits, Error, exi};
use crate::{Parsers, tls};

type Sender = SendRequest<Full<Bytes>>;

/// A client; clones share the connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

struct Inner {
    limits: ClientLimits,
    tls: Option<Arc<dyn Connect>>,
    parsers: Parsers,
    idle: Mutex<HashMap<Place, Vec<(Instant, Sender)>>>,
    exi: Mutex<ExiPeers>,
}

/// Peers whose acceptance of EXI is remembered; then all are forgotten. Reason: devices of a large network, about 50
/// bytes each.
const EXI_PEERS_MAX: usize = 4_096;
/// How long a refusal of EXI stands. Reason: a peer that says it accepts EXI and refuses it gets one message twice in
/// this time; a peer that was restarted gets EXI again after it.
const EXI_REFUSAL: Duration = Duration::from_secs(600);

/// Peers that accept EXI, and those that refused it all the same.
#[derive(Default)]
struct ExiPeers(HashMap<SocketAddr, ExiPeer>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExiPeer {
    /// It accepts EXI, and refused one by the schema of a service at this time.
    Accepts(Option<Instant>),
    Refused(Instant),
}

impl ExiPeers {
    fn accepts(&self, peer: SocketAddr) -> bool {
        matches!(self.0.get(&peer), Some(ExiPeer::Accepts(_)))
    }

    /// Whether a service's own schema may be used. A refusal stands for all schemas of the peer.
    fn accepts_schemas(&self, peer: SocketAddr, now: Instant) -> bool {
        match self.0.get(&peer) {
            Some(ExiPeer::Accepts(Some(since))) => now.duration_since(*since) >= EXI_REFUSAL,
            Some(ExiPeer::Accepts(None)) => true,
            Some(ExiPeer::Refused(_)) | None => false,
        }
    }

    /// The peer says that it accepts EXI. A refusal stands for its time all the same: otherwise each message might be
    /// sent twice.
    fn accepted(&mut self, peer: SocketAddr, now: Instant) {
        match self.0.get(&peer) {
            Some(ExiPeer::Refused(since)) if now.duration_since(*since) < EXI_REFUSAL => {}
            Some(ExiPeer::Accepts(_)) => {}
            _ => self.note(peer, ExiPeer::Accepts(None)),
        }
    }

    fn refused(&mut self, peer: SocketAddr, now: Instant) {
        self.note(peer, ExiPeer::Refused(now));
    }

    /// The peer refused EXI by the schema of a service.
    fn refused_schema(&mut self, peer: SocketAddr, now: Instant) {
        self.note(peer, ExiPeer::Accepts(Some(now)));
    }

    fn note(&mut self, peer: SocketAddr, what: ExiPeer) {
        if self.0.len() >= EXI_PEERS_MAX && !self.0.contains_key(&peer) {
            self.0.clear();
        }
        self.0.insert(peer, what);
    }
}

/// The destination of a connection, with or without TLS, and what its certificate has proven.
type Place = (SocketAddr, Scheme, Proof);

impl Client {
    /// A client with these limits.
    #[must_use]
    pub fn new(limits: ClientLimits) -> Self {
        Self::over(limits, None)
    }

    /// A client that uses TLS for https addresses. The handshake counts towards the time for the connection.
    #[must_use]
    pub fn with_tls(limits: ClientLimits, tls: tls::Client) -> Self {
        Self::over(limits, Some(Arc::new(tls)))
    }

    /// A client of devices, which uses this for https addresses, if it is given.
    #[must_use]
    pub fn to_devices(limits: ClientLimits, security: Option<&Security>) -> Self {
        Self::over(limits, security.map(|it| Arc::clone(&it.to_devices)))
    }

    /// A client of event sinks, whose certificates prove no name.
    #[must_use]
    pub fn to_sinks(limits: ClientLimits, security: Option<&Security>) -> Self {
        Self::over(limits, security.map(|it| Arc::clone(&it.to_sinks)))
    }

    /// A client of discovery proxies whose certificates have the configured usages; `None` if none are configured.
    #[must_use]
    pub fn to_proxies(limits: ClientLimits, security: Option<&Security>) -> Option<Self> {
        let tls = security?.to_proxies.as_ref()?;
        Some(Self::over(limits, Some(Arc::clone(tls))))
    }

    fn over(limits: ClientLimits, tls: Option<Arc<dyn Connect>>) -> Self {
        Self(Arc::new(Inner {
            limits,
            tls,
            parsers: Parsers::default(),
            idle: Mutex::default(),
            exi: Mutex::default(),
        }))
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &ClientLimits {
        &self.0.limits
    }

    /// The threads on which large answers are parsed.
    #[must_use]
    pub fn parsers(&self) -> &Parsers {
        &self.0.parsers
    }

    /// Gets a document.
    ///
    /// # Errors
    /// There is no successful answer.
    pub async fn get(&self, contact: &Contact) -> Result<Answer, Error> {
        let answer = self
            .request(contact, Method::GET, HeaderMap::new(), Bytes::new())
            .await?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            status => Err(Error::Status {
                peer: contact.address,
                status,
            }),
        }
    }

    /// Sends a request and reads the complete answer, whatever its status. A redirect is returned like any
    /// other answer.
    ///
    /// # Errors
    /// There is no answer within the limits.
    pub async fn request(
        &self,
        contact: &Contact,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Error> {
        self.request_by(contact, method, headers, body, None).await
    }

    /// Like [`Client::request`]; the answer may be EXI by this schema.
    pub(super) async fn request_by(
        &self,
        contact: &Contact,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        schema: Option<&ServiceSchema>,
    ) -> Result<Answer, Error> {
        let peer = contact.address;
        let proof = match contact.scheme {
            Scheme::Http => Proof::default(),
            Scheme::Https => contact.proof.clone(),
        };
        let place = (peer, contact.scheme, proof);
        if contact.scheme == Scheme::Https && self.0.tls.is_none() {
            return Err(Error::Https(peer));
        }
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(contact.path.as_str())
            .header(HOST, host(contact))
            .header(ACCEPT_ENCODING, self.accepted())
            .body(Full::new(body))?;
        request.headers_mut().extend(headers);
        let (response, sender) = self.exchange(&place, request).await?;
        let limits = &self.0.limits;
        let (parts, incoming) = response.into_parts();
        let schemas = schema.map_or_else(ServiceSchemas::default, |it| it.clone().into());
        let reader = body::Reader {
            bound: limits.body_bytes,
            exi: limits.exi.then_some(&schemas),
            parsers: &self.0.parsers,
            room: None,
        };
        let reading = reader.read(&parts.headers, incoming);
        let what = "send its complete answer";
        let body = timeout(limits.body_deadline, reading)
            .await
            .map_err(|_| Error::Late { peer, what })?;
        let bound = limits.body_bytes;
        let body = body.map_err(|error| match error {
            BodyError::TooLarge => Error::TooLarge { peer, bound },
            BodyError::Encoding | BodyError::Schema(_) => Error::Encoding { peer },
            BodyError::Broken(source) => broken(peer, source),
        })?;
        self.keep(place, sender);
        if limits.exi && exi::is_accepted(&parts.headers) {
            self.exi().accepted(peer, Instant::now());
        }
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.bytes,
        })
    }

    /// The content codings of answers.
    fn accepted(&self) -> HeaderValue {
        match self.0.limits.exi {
            true => exi::ACCEPTED,
            false => HeaderValue::from_static("gzip"),
        }
    }

    /// Whether the peer said that it accepts EXI, and has not refused any.
    pub(super) fn accepts_exi(&self, peer: SocketAddr) -> bool {
        self.exi().accepts(peer)
    }

    /// Whether the peer accepts EXI by the schema of a service, and has not refused any.
    pub(super) fn accepts_schemas(&self, peer: SocketAddr) -> bool {
        self.exi().accepts_schemas(peer, Instant::now())
    }

    /// The peer refused EXI by the schema of a service: it gets `dev1`.
    pub(super) fn refuses_schema(&self, peer: SocketAddr) {
        self.exi().refused_schema(peer, Instant::now());
    }

    /// The peer refused EXI: it gets text.
    pub(super) fn refuses_exi(&self, peer: SocketAddr) {
        self.exi().refused(peer, Instant::now());
    }

    fn exi(&self) -> MutexGuard<'_, ExiPeers> {
        // Every change is one step.
        self.0.exi.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes idle connections.
    pub fn close_idle(&self) {
        self.idle().clear();
    }

    /// Sends over an idle connection, or a new one if none is alive.
    async fn exchange(
        &self,
        place: &Place,
        mut request: hyper::Request<Full<Bytes>>,
    ) -> Result<(hyper::Response<Incoming>, Sender), Error> {
        let peer = place.0;
        while let Some(mut sender) = self.take(place) {
            if sender.ready().await.is_err() {
                continue;
            }
            match self.send(peer, &mut sender, request).await? {
                Sent::Answered(response) => return Ok((response, sender)),
                // Closed before a byte was sent: nothing happened there, so a retry is safe.
                Sent::Unsent(unsent, _) => request = unsent,
            }
        }
        let mut sender = self.connect(place).await?;
        match self.send(peer, &mut sender, request).await? {
            Sent::Answered(response) => Ok((response, sender)),
            Sent::Unsent(_, source) => Err(broken(peer, source)),
        }
    }

    async fn send(
        &self,
        peer: SocketAddr,
        sender: &mut Sender,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<Sent, Error> {
        let sending = sender.try_send_request(request);
        match timeout(self.0.limits.header_deadline, sending).await {
            Ok(Ok(response)) => Ok(Sent::Answered(response)),
            Ok(Err(mut error)) => match error.take_message() {
                Some(request) => Ok(Sent::Unsent(request, error.into_error())),
                None => Err(broken(peer, error.into_error())),
            },
            Err(_) => Err(Error::Late {
                peer,
                what: "answer",
            }),
        }
    }

    /// A new connection, with TLS for https, for requests that this client would not send.
    ///
    /// # Errors
    /// There is no connection within the limits.
    pub async fn connection(
        &self,
        contact: &Contact,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, Error> {
        let peer = contact.address;
        if contact.scheme == Scheme::Https && self.0.tls.is_none() {
            return Err(Error::Https(peer));
        }
        self.stream(&(peer, contact.scheme, contact.proof.clone()))
            .await
    }

    async fn stream(&self, (peer, scheme, proof): &Place) -> Result<Stream, Error> {
        let peer = *peer;
        let limits = &self.0.limits;
        let started = Instant::now();
        let stream = match timeout(limits.connect_deadline, self.open(peer)).await {
            Ok(stream) => stream.map_err(|source| Error::Connect { peer, source })?,
            Err(_) => {
                let what = "accept the connection";
                return Err(Error::Late { peer, what });
            }
        };
        Ok(match (&self.0.tls, scheme) {
            (Some(tls), Scheme::Https) => {
                let left = limits.connect_deadline.saturating_sub(started.elapsed());
                Stream::Secured(tls.connect(stream, proof, left).await?)
            }
            _ => Stream::Plain(stream),
        })
    }

    async fn connect(&self, place: &Place) -> Result<Sender, Error> {
        let peer = place.0;
        let stream = self.stream(place).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|source| Error::Exchange { peer, source })?;
        tokio::spawn(async move {
            // The task that waits for the answer gets the error.
            if let Err(error) = connection.await {
                tracing::trace!(%peer, %error, "connection ended");
            }
        });
        Ok(sender)
    }

    async fn open(&self, peer: SocketAddr) -> io::Result<TcpStream> {
        let socket = match peer {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        let local = self.0.limits.local_address;
        if let Some(local) = local.filter(|local| local.is_ipv4() == peer.is_ipv4()) {
            let mut local = SocketAddr::new(local, 0);
            if let (SocketAddr::V6(local), SocketAddr::V6(peer)) = (&mut local, peer) {
                local.set_scope_id(peer.scope_id());
            }
            socket.bind(local)?;
        }
        socket.set_nodelay(true)?;
        socket.connect(peer).await
    }

    /// The idle connection that was used last: the most likely one to be alive.
    fn take(&self, place: &Place) -> Option<Sender> {
        let mut idle = self.idle();
        let senders = idle.get_mut(place)?;
        let found = loop {
            match senders.pop() {
                Some((since, sender)) if self.usable(since, &sender) => break Some(sender),
                Some(_) => {}
                None => break None,
            }
        };
        if senders.is_empty() {
            idle.remove(place);
        }
        found
    }

    fn keep(&self, place: Place, sender: Sender) {
        let limits = &self.0.limits;
        if sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        if idle.values().map(Vec::len).sum::<usize>() >= limits.idle {
            idle.retain(|_, senders| {
                senders.retain(|(since, sender)| self.usable(*since, sender));
                !senders.is_empty()
            });
        }
        let kept = idle.values().map(Vec::len).sum::<usize>();
        let senders = idle.entry(place.clone()).or_default();
        senders.retain(|(since, sender)| self.usable(*since, sender));
        if senders.len() < limits.idle_per_authority && kept < limits.idle {
            senders.push((Instant::now(), sender));
        }
        if senders.is_empty() {
            idle.remove(&place);
        }
    }

    fn usable(&self, since: Instant, sender: &Sender) -> bool {
        !sender.is_closed() && since.elapsed() < self.0.limits.idle_time
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Place, Vec<(Instant, Sender)>>> {
        // Every change leaves the pool consistent.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new(ClientLimits::default())
    }
}

enum Sent {
    Answered(hyper::Response<Incoming>),
    Unsent(hyper::Request<Full<Bytes>>, hyper::Error),
}

/// The error of an exchange. What a peer says against a certificate arrives after the handshake of TLS 1.3.
fn broken(peer: SocketAddr, source: hyper::Error) -> Error {
    let inner = std::error::Error::source(&source).and_then(|inner| inner.downcast_ref());
    match inner.and_then(|inner| tls::Error::after_handshake(peer, inner)) {
        Some(error) => error.into(),
        None => Error::Exchange { peer, source },
    }
}

/// The authority of a URI: the zone means nothing to the peer.
fn host(contact: &Contact) -> String {
    if let Some(name) = &contact.proof.name {
        return format!("{name}:{}", contact.address.port());
    }
    match contact.address {
        SocketAddr::V4(peer) => peer.to_string(),
        SocketAddr::V6(peer) => format!("[{}]:{}", peer.ip(), peer.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_exi_stands_for_its_time() {
        let (mut peers, now) = (ExiPeers::default(), Instant::now());
        let peer = SocketAddr::from(([127, 0, 0, 1], 80));
        assert!(!peers.accepts(peer));
        peers.accepted(peer, now);
        assert!(peers.accepts(peer));
        peers.refused(peer, now);
        peers.accepted(peer, now + EXI_REFUSAL / 2);
        assert!(!peers.accepts(peer));
        peers.accepted(peer, now + EXI_REFUSAL);
        assert!(peers.accepts(peer));
    }

    #[test]
    fn a_refusal_of_a_schema_leaves_the_common_one() {
        let (mut peers, now) = (ExiPeers::default(), Instant::now());
        let peer = SocketAddr::from(([127, 0, 0, 1], 80));
        assert!(!peers.accepts_schemas(peer, now));
        peers.accepted(peer, now);
        assert!(peers.accepts_schemas(peer, now));
        peers.refused_schema(peer, now);
        peers.accepted(peer, now);
        assert!(peers.accepts(peer) && !peers.accepts_schemas(peer, now + EXI_REFUSAL / 2));
        assert!(peers.accepts_schemas(peer, now + EXI_REFUSAL));
        peers.refused(peer, now);
        assert!(!peers.accepts_schemas(peer, now));
    }

    #[test]
    fn only_so_many_peers_are_remembered() {
        let (mut peers, now) = (ExiPeers::default(), Instant::now());
        for port in 0..=EXI_PEERS_MAX as u16 {
            peers.accepted(SocketAddr::from(([127, 0, 0, 1], port)), now);
        }
        assert_eq!(peers.0.len(), 1);
    }
}
