//! The accept loop: bounded connections, deadlines for slow clients, an orderly end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::config;
use crate::metrics::Metrics;
use crate::shared::ended;

/// Largest head of a request; reason: browsers stay below 16 kB.
const HEAD_BYTES_MAX: usize = 32 << 10;
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
    mut drain: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(limits.max_connections as usize));
    let mut connections = JoinSet::new();
    loop {
        // The permit comes first: what cannot be served waits in the system's queue.
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            () = ended(&mut drain) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                let router = router.clone();
                let timeout = Duration::from_millis(u64::from(limits.request_timeout_ms));
                let (metrics, drain) = (metrics.clone(), drain.clone());
                connections.spawn(async move {
                    metrics.connections.inc();
                    connection(stream, peer, router, timeout, drain).await;
                    metrics.connections.dec();
                    drop(permit);
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

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await;
    let permit = permit.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, permit))
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    timeout: Duration,
    mut drain: watch::Receiver<bool>,
) {
    // Without it, small answers wait for the client's acknowledgement.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let router = router.clone();
        async move {
            let answer = hyper::service::Service::call(&router, request).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|never| match never {}))
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
        () = ended(&mut drain) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}
