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
use chappe_transport::{Drops, Hop};
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
use crate::shared::ended;

/// Largest head of a request; reason: browsers stay below 16 kB.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Time that sent bytes may stay unacknowledged by a client that reads no more.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// How long answers under way may still take once the node ends.
const DRAIN: Duration = Duration::from_secs(3);
/// Pause after the system refused a connection (no more file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `drain` becomes true, then lets what is under way finish.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: config::Http,
    metrics: Arc<Metrics>,
    drops: Drops,
    mut drain: watch::Receiver<bool>,
) {
    let most = limits.max_connections as usize;
    let places = Places::new(most, most);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, &drops) => accepted,
            () = ended(&mut drain) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                let router = router.clone();
                let timeout = Duration::from_millis(u64::from(limits.request_timeout_ms));
                let (metrics, drain) = (metrics.clone(), drain.clone());
                connections.spawn(async move {
                    metrics.connections.inc();
                    connection(stream, peer, place, router, timeout, drain).await;
                    metrics.connections.dec();
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

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    place: Place,
    router: Router,
    timeout: Duration,
    mut drain: watch::Receiver<bool>,
) {
    // Without it, small answers wait for the client's acknowledgement.
    let _ = prepare(&stream, WRITE_DEADLINE);
    let router = TowerToHyperService::new(router);
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
        .header_read_timeout(timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
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
