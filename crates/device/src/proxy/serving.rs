//! Requests by HTTP, and the events of the machine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chappe_dpws::dialect::EVENTING;
use chappe_dpws::discovery::proxy::{self, Command, Event};
use chappe_dpws::exchange::Reply;
use chappe_soap::Envelope;
use chappe_transport::Hop;
use chappe_transport::http::{Method, Request, Response, Server, StatusCode};
use chappe_xml::Limits;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Posted, ProxyNews, ProxyOptions, Shared};
use crate::Error;
use crate::client::{Found, note_drop};
use crate::http::response;

/// Requests that wait for their replies, by token.
#[derive(Default)]
pub(super) struct Replies {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    last: AtomicU64,
}

impl Replies {
    /// A token, and where its reply arrives.
    pub(super) fn wait(&self) -> (u64, oneshot::Receiver<Reply>) {
        let token = self.last.fetch_add(1, Ordering::Relaxed);
        let (send, replied) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Clients that left no longer wait.
        waiting.retain(|_, reply| !reply.is_closed());
        waiting.insert(token, send);
        (token, replied)
    }

    pub(super) fn reply(&self, token: u64, reply: Reply) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = waiting.remove(&token) {
            // The connection may be closed.
            let _ = waiting.send(reply);
        }
    }
}

/// Starts the proxy's own server.
pub(super) fn bind(
    address: SocketAddr,
    options: &ProxyOptions,
    shared: &Arc<Shared>,
) -> Result<Server, Error> {
    let drops = shared.drops.clone();
    let shared = Arc::clone(shared);
    let handler = move |request: Request| {
        let shared = Arc::clone(&shared);
        async move {
            if request.method != Method::POST {
                return response(&Reply::method_not_allowed("POST"));
            }
            let message = Posted {
                peer: request.peer,
                base: request.base(),
                path: request.path,
                body: request.body.to_vec(),
                sender: None,
            };
            answer(&shared, message).await
        }
    };
    let security = options.tls.as_ref().filter(|_| !options.plain);
    let limits = options.server.clone();
    let bound = Server::bind_secured(address, limits, security, drops, handler);
    bound.map_err(|source| Error::Listen {
        at: Some(address.ip()),
        source,
    })
}

/// Answers a message: of discovery by the machine, of WS-Eventing by the event source.
pub(super) async fn answer(shared: &Shared, mut message: Posted) -> Response {
    let body = std::mem::take(&mut message.body);
    let limits = Limits {
        bytes: body.len(),
        ..Limits::default()
    };
    let reading = move || Envelope::parse_within(&body, limits);
    let envelope = match shared.parsers.run_if_large(limits.bytes, reading).await {
        Ok(Ok(envelope)) => envelope,
        Err(_) => return response(&Reply::UNAVAILABLE),
        Ok(Err(error)) => {
            let (peer, detail) = (message.peer.ip(), error.to_string());
            let drops = &shared.drops;
            drops.record(Hop::Http, "request refused", peer, detail, None);
            return Response::empty(StatusCode::BAD_REQUEST);
        }
    };
    if envelope.addressing.action.starts_with(EVENTING) {
        return response(&shared.subscribers.answer(message, envelope).await);
    }
    // The semaphore is never closed.
    let _permit = shared.answering.acquire().await;
    let (token, replied) = shared.replies.wait();
    let request = proxy::Request {
        token,
        from: message.peer,
        sender: message.sender.map(Into::into),
        envelope,
    };
    shared.command(Command::Request(Box::new(request))).await;
    response(&replied.await.unwrap_or(Reply::UNAVAILABLE))
}

/// Handles the events of the machine until it ends.
pub(super) async fn listen(
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<Event>,
    said_bye: watch::Sender<bool>,
) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Reply { token, reply } => shared.replies.reply(token, reply),
            Event::Registered {
                target,
                dialect,
                from,
                ..
            } => tell(
                &shared,
                ProxyNews::Registered(Found::new(&target, dialect, from)),
            ),
            Event::ByeHint { endpoint, from } => {
                let endpoint = endpoint.to_string();
                tell(&shared, ProxyNews::Bye { endpoint, from });
            }
            Event::Present { target, dialects } => {
                let devices = shared.subscribers.present(target, &dialects).await;
                shared.state.send_replace(super::ProxyState { devices });
            }
            Event::Absent { endpoint, dialects } => {
                let devices = shared.subscribers.absent(&endpoint, &dialects).await;
                shared.state.send_replace(super::ProxyState { devices });
            }
            Event::Dropped {
                reason,
                from,
                detail,
                suppressed,
            } => note_drop(&shared.drops, reason, from, detail, suppressed),
            Event::NotSent { reason } => {
                let what = "answer not sent";
                shared.drops.record(Hop::Discovery, what, "", reason, None);
            }
            Event::Stopped => {
                said_bye.send_replace(true);
            }
            _ => {}
        }
    }
}

fn tell(shared: &Shared, news: ProxyNews) {
    // Without a reader nobody looks.
    let _ = shared.news.send(news);
}
