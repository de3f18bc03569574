//! The seam to TLS: trait objects, so that a linker can leave TLS out of a program that never makes a [`Security`] or a
//! TLS client.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::Proof;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::tls;

/// A connection, with or without TLS.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {
    /// The verified certificate of the client in DER, at the server end, if it has shown one.
    fn client_certificate(&self) -> Option<&[u8]> {
        None
    }
}

impl Duplex for TcpStream {}
impl Duplex for tls::Stream {
    fn client_certificate(&self) -> Option<&[u8]> {
        self.client_certificate()
    }
}

type Handshake<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Duplex>, tls::Error>> + Send + 'a>>;

/// The client end of a handshake, within the time.
pub(super) trait Connect: Send + Sync {
    fn connect<'a>(
        &'a self,
        stream: TcpStream,
        proof: &'a Proof,
        deadline: Duration,
    ) -> Handshake<'a>;
}

impl Connect for tls::Client {
    fn connect<'a>(
        &'a self,
        stream: TcpStream,
        proof: &'a Proof,
        deadline: Duration,
    ) -> Handshake<'a> {
        Box::pin(async move {
            let stream = self.connect_to(stream, proof, deadline).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// The server end of a handshake, within the time.
pub(super) trait Accept: Send + Sync {
    fn accept(&self, stream: TcpStream, peer: SocketAddr, deadline: Duration) -> Handshake<'_>;
}

impl Accept for tls::Server {
    fn accept(&self, stream: TcpStream, peer: SocketAddr, deadline: Duration) -> Handshake<'_> {
        Box::pin(async move {
            let stream = self.accept(stream, peer, deadline).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

/// The client ends of a [`Security`], which differ in what the server's certificate must prove.
pub(crate) struct Clients {
    pub(crate) to_devices: tls::Client,
    pub(crate) to_sinks: tls::Client,
    /// To discovery proxies that are recognized by the usages of their certificates, if any can be.
    pub(crate) to_proxies: Option<tls::Client>,
}

/// TLS of a device or a client, both ends; made by [`tls::Mutual`].
#[derive(Clone)]
pub struct Security {
    pub(super) to_devices: Arc<dyn Connect>,
    pub(super) to_sinks: Arc<dyn Connect>,
    pub(super) to_proxies: Option<Arc<dyn Connect>>,
    pub(super) accept: Option<Arc<dyn Accept>>,
    trusts: bool,
}

impl Security {
    pub(crate) fn new(clients: Clients, server: Option<tls::Server>, trusts: bool) -> Self {
        Self {
            to_devices: Arc::new(clients.to_devices),
            to_sinks: Arc::new(clients.to_sinks),
            to_proxies: clients
                .to_proxies
                .map(|client| Arc::new(client) as Arc<dyn Connect>),
            accept: server.map(|server| Arc::new(server) as Arc<dyn Accept>),
            trusts,
        }
    }

    /// Whether any certificate is trusted.
    #[must_use]
    pub fn trusts(&self) -> bool {
        self.trusts
    }

    /// Whether it has a certificate, so that it can serve.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.accept.is_some()
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("trusts", &self.trusts)
            .field("serves", &self.serves())
            .finish_non_exhaustive()
    }
}
