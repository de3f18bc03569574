//! DEALER and ROUTER (28/REQREP) with separate connections: the identity frames of a ROUTER are unnecessary, and a slow
//! peer does not delay others.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use chappe_identity::CurvePublic;
use chappe_zmtp::SocketType;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::connection::Connection;
use super::driver::{self, Driver};
use super::listener::{Listener, Serve};
use super::{Endpoint, Error, Limits, Security};
use crate::Drops;

/// Connections after the handshake that wait to be accepted.
const ACCEPT_QUEUE: usize = 64;

/// The peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address: the source of an accepted connection, or the destination of an outgoing one.
    pub address: SocketAddr,
    /// The public key that it has proven, with CURVE.
    pub key: Option<CurvePublic>,
    /// The identity that it claims: a name, not a proof.
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
    /// Listens. Refusals are recorded in `drops`.
    ///
    /// # Errors
    /// The endpoint is malformed or cannot be bound.
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

    /// The listening endpoint, with the bound port.
    #[must_use]
    pub fn local_endpoint(&self) -> Endpoint {
        self.listener.local.into()
    }

    /// The next peer that has finished its handshake.
    ///
    /// # Errors
    /// [`Error::Closed`] if the runtime shuts down.
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
        let (lease, ended) = oneshot::channel();
        let connection = Connection::new(driver, peer, Arc::clone(&self.limits), Some(lease));
        if self.sender.send(connection).await.is_err() {
            return Error::Closed;
        }
        // Dropping the router drops this, which notifies the owner of the connection.
        ended.await.unwrap_or(Error::Closed)
    }
}

/// Connects to ROUTERs.
#[derive(Debug)]
pub struct Dealer;

impl Dealer {
    /// Connects and performs the handshake; does not reconnect.
    ///
    /// # Errors
    /// There is no connection, or the handshake fails.
    pub async fn connect(
        endpoint: &str,
        security: Security,
        limits: Limits,
    ) -> Result<Connection, Error> {
        let (driver, peer) = dial(endpoint, SocketType::Dealer, &security, &limits).await?;
        Ok(Connection::new(driver, peer, Arc::new(limits), None))
    }
}

/// Connects and performs the handshake, both within the time for the handshake.
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
