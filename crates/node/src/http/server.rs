//! The accept loop: bounded connections, deadlines for slow clients, an orderly end.
//!
//! When as many connections are open as may be, the one that has waited longest for a request
//! gives way: who opens many and asks for nothing keeps nobody out.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use chappe_transport::http::{Place, Places, Taking, prepare};
use chappe_transport::{Drops, Hop, tls};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bodies::{Arriving, Leaving};
use crate::config;
use crate::metrics::Metrics;
use crate::tasks::ended;

/// Largest head of a request; reason: browsers stay below 16 kB.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Time that sent bytes may stay unacknowledged by a client that reads no more.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// How long answers under way may still take once the node ends.
const DRAIN: Duration = Duration::from_secs(3);
/// Pause after the system refused a connection (no more file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Serving {
    /// What answers.
    pub(crate) router: Router,
    /// TLS, if it is spoken.
    pub(crate) tls: Option<tls::Server>,
    /// The limits.
    pub(crate) limits: config::Http,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// What is refused.
    pub(crate) drops: Drops,
    /// Becomes true when the node ends.
    pub(crate) drain: watch::Receiver<bool>,
}

/// Serves until `drain` becomes true, then lets what is under way finish.
pub(crate) async fn serve(listener: TcpListener, serving: Serving) {
    let limits = &serving.limits;
    let mut drain = serving.drain.clone();
    let most = limits.max_connections as usize;
    let places = Places::new(most, most);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, &serving.drops) => accepted,
            () = ended(&mut drain) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let serving = serving.clone();
                connections.spawn(async move {
                    serving.metrics.connections.inc();
                    serving.connection(stream, peer, place).await;
                    serving.metrics.connections.dec();
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, rest).await.is_err() {
        tracing::warn!(open = connections.len(), "connections cut at the end");
    }
}

/// The next connection. What cannot be served waits in the system's queue.
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
                let (reason, detail) = ("too many connections", "one that asked nothing gave way");
                let hint = "the limit is http.max_connections".to_owned();
                drops.record(Hop::Http, reason, peer.ip(), detail, Some(hint));
                return Ok((stream, peer, place));
            }
            Taking::Full(_) => places.freed().await,
        }
    }
}

impl Serving {
    async fn connection(&self, stream: TcpStream, peer: SocketAddr, place: Place) {
        // Without it, small answers wait for the client's acknowledgement.
        let _ = prepare(&stream, WRITE_DEADLINE);
        let mut drain = self.drain.clone();
        let stream = tokio::select! {
            stream = self.secured(stream, peer) => stream,
            () = place.displaced() => return,
            () = ended(&mut drain) => return,
        };
        if let Some(stream) = stream {
            self.requests(stream, peer, place).await;
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.limits.request_timeout_ms))
    }

    /// The connection with TLS where it is spoken; `None` when the handshake failed.
    async fn secured(&self, stream: TcpStream, peer: SocketAddr) -> Option<tls::Stream> {
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

    async fn requests(&self, stream: tls::Stream, peer: SocketAddr, place: Place) {
        let router = TowerToHyperService::new(self.router.clone());
        let place = Arc::new(place);
        let telling = place.clone();
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            let (router, place) = (router.clone(), telling.clone());
            let request = request.map(|body| Body::new(Arriving::new(body, place.clone())));
            async move {
                let answer = hyper::service::Service::call(&router, request).await;
                let answer = answer.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(answer.map(|body| Leaving::new(body, place)))
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
            () = ended(&mut drain) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection ended early");
        }
    }
}
