//! The accept loop: bounded connections, deadlines for slow clients, an orderly shutdown.
//!
//! At the connection limit, a new connection replaces the one that has been idle longest, so a client
//! that opens many idle connections cannot block others.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use chappe_identity::ClientCertificate;
use chappe_transport::http::{Place, Places, Taking, prepare};
use chappe_transport::{Drops, Hop, tls};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::bodies::{RequestBody, ResponseBody};
use crate::config;
use crate::metrics::Metrics;
use crate::tasks::shutdown;

/// Largest head of a request; reason: browsers stay below 16 kB.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Time that sent bytes may stay unacknowledged by a client that stopped reading.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// Time for answers in progress when the node shuts down.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after the system refused a connection (no more file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Closes the connection of a request, whose client takes the answer too slowly.
#[derive(Clone, Default)]
pub(super) struct Closing(Arc<Notify>);

impl Closing {
    /// Closes it.
    pub(super) fn close(&self) {
        self.0.notify_one();
    }
}

/// The shared state of all connections.
#[derive(Clone)]
pub(crate) struct Serving {
    /// The routes.
    pub(crate) router: Router,
    /// TLS; `None`: plain HTTP.
    pub(crate) tls: Option<tls::Server>,
    /// The limits.
    pub(crate) limits: config::Http,
    /// The metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// The record of refused connections.
    pub(crate) drops: Drops,
    /// Becomes true when the node shuts down.
    pub(crate) drain: watch::Receiver<bool>,
}

/// Serves until `drain` becomes true, then waits for answers in progress.
pub(crate) async fn serve(listener: TcpListener, serving: Serving) {
    let limits = &serving.limits;
    let mut drain = serving.drain.clone();
    let most = limits.max_connections as usize;
    let places = Places::new(most, most);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, &serving.drops) => accepted,
            () = shutdown(&mut drain) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let serving = serving.clone();
                connections.spawn(async move {
                    serving.metrics.connections.inc();
                    serving.serve_connection(stream, peer, place).await;
                    serving.metrics.connections.dec();
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_err() {
        let open = connections.len();
        tracing::warn!(
            open,
            "connections closed before their answers were complete"
        );
    }
}

/// Accepts the next connection; at the limit, further ones wait in the system's queue.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Places>,
    drops: &Drops,
) -> std::io::Result<(TcpStream, SocketAddr, Place)> {
    let (stream, peer) = listener.accept().await?;
    loop {
        match places.take(peer) {
            Taking::Free(place) => return Ok((stream, peer, place)),
            Taking::Displaced(place, _) => {
                let (reason, detail) = ("too many connections", "an idle connection was closed");
                let hint = "http.max_connections sets the limit".to_owned();
                drops.record(Hop::Http, reason, peer.ip(), detail, Some(hint));
                return Ok((stream, peer, place));
            }
            Taking::Full(_) => places.freed().await,
        }
    }
}

impl Serving {
    async fn serve_connection(&self, stream: TcpStream, peer: SocketAddr, place: Place) {
        // Without this, small answers wait for the client's acknowledgement.
        let _ = prepare(&stream, WRITE_DEADLINE);
        let mut drain = self.drain.clone();
        let stream = tokio::select! {
            stream = self.handshake(stream, peer) => stream,
            () = place.displaced() => return,
            () = shutdown(&mut drain) => return,
        };
        if let Some(stream) = stream {
            self.serve_requests(stream, peer, place).await;
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.limits.request_timeout_ms))
    }

    /// Performs the TLS handshake, if TLS is on; `None` when it failed.
    async fn handshake(&self, stream: TcpStream, peer: SocketAddr) -> Option<tls::Stream> {
        let Some(server) = &self.tls else {
            return Some(tls::Stream::Plain(stream));
        };
        match server.accept(stream, peer, self.timeout()).await {
            Ok(stream) => Some(stream),
            Err(error) => {
                let (reason, hint) = (error.reason(), error.hint());
                let detail = error.to_string();
                self.drops
                    .record(Hop::Http, reason, peer.ip(), detail, hint);
                None
            }
        }
    }

    async fn serve_requests(&self, stream: tls::Stream, peer: SocketAddr, place: Place) {
        let router = TowerToHyperService::new(self.router.clone());
        let place = Arc::new(place);
        let shared_place = place.clone();
        let certificate = stream.client_certificate();
        let subject = certificate.map(ClientCertificate::of_der);
        let closing = Closing::default();
        let closed = closing.0.clone();
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(closing.clone());
            if let Some(subject) = &subject {
                request.extensions_mut().insert(subject.clone());
            }
            let (router, place) = (router.clone(), shared_place.clone());
            let request = request.map(|body| Body::new(RequestBody::new(body, place.clone())));
            async move {
                let answer = hyper::service::Service::call(&router, request).await;
                let answer = answer.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(answer.map(|body| ResponseBody::new(body, place)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.timeout())
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let mut drain = self.drain.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = place.displaced() => return,
            () = closed.notified() => return,
            () = shutdown(&mut drain) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection ended early");
        }
    }
}
