//! DEALER and ROUTER (28/REQREP), each connection by itself: the identity frames of a ROUTER are not
//! needed, and a slow peer holds up nobody else.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use chappe_identity::CurvePublic;
use chappe_zmtp::{Message, SocketType};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::driver::{self, Driver, Outgoing, Shared};
use super::listener::{Listener, Serve};
use super::{Endpoint, Error, Limits, Security};
use crate::Drops;

/// Connections done with their handshake that wait to be accepted.
const ACCEPT_QUEUE: usize = 64;

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where it connects from, or where it listens.
    pub address: SocketAddr,
    /// The public key that it proved to have, with CURVE.
    pub key: Option<CurvePublic>,
    /// The identity it gave itself: a name, not a proof.
    pub identity: Bytes,
    /// Its socket type.
    pub socket_type: SocketType,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, peer: chappe_zmtp::Peer) -> Self {
        Self {
            address,
            key: peer.key.map(CurvePublic::new),
            identity: peer.identity,
            socket_type: peer.socket_type,
        }
    }
}

/// A listening ROUTER: one [`Connection`] for each DEALER that connects.
///
/// Dropping it ends its connections.
#[derive(Debug)]
pub struct Router {
    listener: Listener,
    accepted: mpsc::Receiver<Connection>,
}

impl Router {
    /// Listens. What is refused is noted in `drops`.
    ///
    /// # Errors
    /// When the endpoint cannot be read or listened at.
    pub async fn bind(
        endpoint: &str,
        security: Security,
        limits: Limits,
        drops: Drops,
    ) -> Result<Self, Error> {
        let (sender, accepted) = mpsc::channel(ACCEPT_QUEUE);
        let serve = Accepted {
            sender,
            limits: Arc::new(limits.clone()),
        };
        let listener = Listener::bind(
            endpoint,
            SocketType::Router,
            &security,
            &limits,
            drops,
            serve,
        )?;
        Ok(Self { listener, accepted })
    }

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn local_endpoint(&self) -> Endpoint {
        self.listener.local.into()
    }

    /// The next peer whose handshake is done.
    ///
    /// # Errors
    /// [`Error::Closed`] when the runtime shuts down.
    pub async fn accept(&mut self) -> Result<Connection, Error> {
        self.accepted.recv().await.ok_or(Error::Closed)
    }
}

#[derive(Clone)]
struct Accepted {
    sender: mpsc::Sender<Connection>,
    limits: Arc<Limits>,
}

impl Serve for Accepted {
    async fn serve(&self, driver: Driver, peer: Peer) -> Error {
        let shared = Shared::new(&self.limits);
        let connection = Connection::new(Arc::clone(&shared), peer, &self.limits);
        if self.sender.send(connection).await.is_err() {
            return Error::Closed;
        }
        driver.run(shared, &self.limits, ()).await
    }
}

/// Makes connections to ROUTERs.
#[derive(Debug)]
pub struct Dealer;

impl Dealer {
    /// Connects, with the handshake; does not reconnect by itself.
    ///
    /// # Errors
    /// When there is no connection, or the handshake fails.
    pub async fn connect(
        endpoint: &str,
        security: Security,
        limits: Limits,
    ) -> Result<Connection, Error> {
        connect(endpoint, SocketType::Dealer, &security, limits).await
    }
}

/// Connects a socket of this type and runs it.
pub(super) async fn connect(
    endpoint: &str,
    socket_type: SocketType,
    security: &Security,
    limits: Limits,
) -> Result<Connection, Error> {
    let (driver, peer) = dial(endpoint, socket_type, security, &limits).await?;
    let limits = Arc::new(limits);
    let shared = Shared::new(&limits);
    let connection = Connection::new(Arc::clone(&shared), peer, &limits);
    tokio::spawn(async move { driver.run(shared, &limits, ()).await });
    Ok(connection)
}

/// Connects and does the handshake, both within the handshake's time.
pub(super) async fn dial(
    endpoint: &str,
    socket_type: SocketType,
    security: &Security,
    limits: &Limits,
) -> Result<(Driver, Peer), Error> {
    let config = driver::config(socket_type, security, limits);
    let dialing = async {
        let stream = open(endpoint).await?;
        let failed = |source: std::io::Error| Error::Connect {
            endpoint: endpoint.to_owned(),
            kind: source.kind(),
            source: Arc::new(source),
        };
        let address = stream.peer_addr().map_err(failed)?;
        Driver::handshake(stream, address, config).await
    };
    match tokio::time::timeout(limits.handshake_timeout, dialing).await {
        Ok(done) => done,
        Err(_) => Err(Error::Late {
            endpoint: endpoint.to_owned(),
        }),
    }
}

async fn open(endpoint: &str) -> Result<TcpStream, Error> {
    let addresses = endpoint.parse::<Endpoint>()?.resolve().await?;
    let mut failure = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(Error::Connect {
        endpoint: endpoint.to_owned(),
        kind: failure.kind(),
        source: Arc::new(failure),
    })
}

/// One connection. Its two halves may live in different tasks; when either is dropped, what is
/// queued goes out and the connection ends.
#[derive(Debug)]
pub struct Connection {
    sender: ConnectionSender,
    receiver: ConnectionReceiver,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, peer: Peer, limits: &Limits) -> Self {
        let peer = Arc::new(peer);
        Self {
            sender: ConnectionSender {
                shared: Arc::clone(&shared),
                peer: Arc::clone(&peer),
                max_message_bytes: limits.max_message_bytes,
            },
            receiver: ConnectionReceiver {
                shared,
                peer,
                batch: Vec::new().into_iter(),
            },
        }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.sender.peer
    }

    /// As [`ConnectionSender::send`].
    ///
    /// # Errors
    /// As there.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.sender.send(message).await
    }

    /// As [`ConnectionReceiver::recv`].
    ///
    /// # Errors
    /// As there.
    pub async fn recv(&mut self) -> Result<Message, Error> {
        self.receiver.recv().await
    }

    /// The two halves.
    #[must_use]
    pub fn split(self) -> (ConnectionSender, ConnectionReceiver) {
        (self.sender, self.receiver)
    }
}

/// The sending half.
#[derive(Debug)]
pub struct ConnectionSender {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    max_message_bytes: usize,
}

impl ConnectionSender {
    /// Queues a message, waiting while the queue is full: back-pressure, never loss. Messages that
    /// are queued before the connection's task runs leave in one write.
    ///
    /// *Queued* is not *received*: who has to know asks for an answer.
    ///
    /// # Errors
    /// When the message is too large, or the connection has ended, and why.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.push(message.into(), true).await
    }

    /// As [`ConnectionSender::send`], but the message may wait for [`ConnectionSender::flush`] or
    /// for a full queue.
    ///
    /// # Errors
    /// As there.
    pub async fn feed(&mut self, message: impl Into<Message>) -> Result<(), Error> {
        self.push(message.into(), false).await
    }

    /// Lets what was fed go out. Does not wait for it.
    pub fn flush(&mut self) {
        self.shared.outgoing.wake();
    }

    async fn push(&mut self, message: Message, wake: bool) -> Result<(), Error> {
        let bytes = message.bytes();
        if bytes > self.max_message_bytes {
            return Err(Error::TooLarge {
                bytes,
                bound: self.max_message_bytes,
            });
        }
        let pushed = self.shared.outgoing.push(Outgoing::Message(message), wake);
        pushed.await.map_err(|_| self.shared.error())
    }

    /// Messages and bytes that wait to be sent.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        self.shared.outgoing.size()
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for ConnectionSender {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct ConnectionReceiver {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    batch: std::vec::IntoIter<Message>,
}

impl ConnectionReceiver {
    /// The next message. Giving the wait up loses nothing.
    ///
    /// # Errors
    /// When the connection has ended and everything that came was taken: why it ended, which is
    /// [`Error::Ended`] when the peer just closed it.
    pub async fn recv(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.try_recv() {
                return Ok(message);
            }
            let mut batch = Vec::new();
            if !self.shared.incoming.pop(&mut batch, usize::MAX).await {
                return Err(self.shared.error());
            }
            self.batch = batch.into_iter();
        }
    }

    /// A message that is already there.
    pub fn try_recv(&mut self) -> Option<Message> {
        if let Some(message) = self.batch.next() {
            return Some(message);
        }
        let mut batch = Vec::new();
        self.shared.incoming.try_pop(&mut batch, usize::MAX);
        self.batch = batch.into_iter();
        self.batch.next()
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for ConnectionReceiver {
    fn drop(&mut self) {
        self.shared.close();
    }
}
