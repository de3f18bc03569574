//! An HTTP server that calls the functions of `links::http`, as a node does.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use chappe_links::http::{
    CONTACT_ELEMENTS_MAX, Credential, ELEMENTS_MAX_HEADER, PullRequest, SECRET_HEADER,
    SubscriptionRequest, positions,
};
use chappe_links::{HttpRefusal, LinkStart, Links, Reader, Serialization};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::host::{Node, own_address};

/// A server that ends, with its connections, when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The number of requests.
    pub(crate) requests: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Serves the links of a node at its contact address.
pub(crate) async fn serve_contact(node: &Node) -> Server {
    let server = serve(&node.links, None).await;
    *node.host.contact.lock().unwrap() = Some(server.url());
    server
}

/// Serves the links of a node, at this address or at one of its own.
pub(crate) async fn serve(links: &Links, address: Option<SocketAddr>) -> Server {
    let address = address.unwrap_or_else(|| (own_address(), 0).into());
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            // The previous server releases the port soon.
            Err(_) if address.port() != 0 => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let address = listener.local_addr().expect("an address");
    let links = links.clone();
    let requests: Arc<AtomicUsize> = Arc::default();
    let counting = requests.clone();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, peer)) = listener.accept().await {
            let (links, counting) = (links.clone(), counting.clone());
            connections.spawn(async move {
                let service = service_fn(|request| {
                    counting.fetch_add(1, Ordering::Relaxed);
                    answer(links.clone(), peer, request)
                });
                let served = hyper::server::conn::http1::Builder::new();
                let _ = served.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Server {
        address,
        requests,
        task: task.abort_handle(),
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn full(status: u16, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).boxed_unsync();
    Response::builder()
        .status(status)
        .body(body)
        .expect("an answer")
}

fn refused(refusal: HttpRefusal) -> Answer {
    let problem = serde_json::json!({ "detail": refusal.text });
    full(refusal.status, problem.to_string())
}

async fn answer(
    links: Links,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let (parts, body) = request.into_parts();
    let reader = Reader {
        address: Some(peer),
        key: None,
        account: None,
    };
    let query: BTreeMap<String, String> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let form = query
        .get("serialization")
        .and_then(|word| Serialization::parse(word));
    let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
    Ok(match (&parts.method, path.as_slice()) {
        (&Method::POST, ["api", "v1", "exchange", "subscriptions"]) => {
            let body = body.collect().await.expect("a body").to_bytes();
            match serde_json::from_slice::<SubscriptionRequest>(&body) {
                Err(error) => full(400, error.to_string()),
                Ok(request) => match links.http_subscribe(&request, &reader).await {
                    Ok(answer) => full(201, serde_json::to_vec(&answer).expect("json")),
                    Err(refusal) => refused(refusal),
                },
            }
        }
        (&Method::PUT, ["api", "v1", "exchange", "subscriptions", id]) => {
            let secret = parts.headers.get(SECRET_HEADER);
            let secret = secret.and_then(|it| it.to_str().ok()).unwrap_or_default();
            match links.http_renew(id, Credential::Secret(secret)) {
                Ok(answer) => full(200, serde_json::to_vec(&answer).expect("json")),
                Err(refusal) => refused(refusal),
            }
        }
        (_, ["api", "v1", "exchange", "contact-points", link, secret]) => {
            let media_type = parts
                .headers
                .get("content-type")
                .and_then(|it| it.to_str().ok());
            let media_type = media_type.unwrap_or_default().to_owned();
            match body.collect().await {
                Err(error) => full(400, error.to_string()),
                Ok(body) => {
                    let body = body.to_bytes();
                    match links.http_take(link, secret, &media_type, &body).await {
                        Ok(taken) => {
                            let mut answer = full(taken.status, taken.body.unwrap_or_default());
                            let most = CONTACT_ELEMENTS_MAX.into();
                            answer.headers_mut().insert(ELEMENTS_MAX_HEADER, most);
                            answer
                        }
                        Err(refusal) => refused(refusal),
                    }
                }
            }
        }
        (&Method::GET, ["api", "v1", "exchange", "streams", stream]) => {
            let request = PullRequest {
                stream: (*stream).to_owned(),
                after: query
                    .get("after")
                    .map(|after| after.parse().expect("a position")),
                earlier: query
                    .get("earlier")
                    .map_or_else(Vec::new, |earlier| positions(earlier).expect("positions")),
                start: match query.get("start").map(String::as_str) {
                    Some("new") => LinkStart::New,
                    _ => LinkStart::First,
                },
                serialization: form,
            };
            match links.http_pull(&request, &reader) {
                Err(refusal) => refused(refusal),
                Ok(mut pull) => {
                    let (sender, receiver) = mpsc::channel(1);
                    tokio::spawn(async move {
                        while let Some(piece) = pull.next().await {
                            if sender.send(piece).await.is_err() {
                                return;
                            }
                        }
                    });
                    let body = Endless(receiver).boxed_unsync();
                    Response::new(body)
                }
            }
        }
        (&Method::GET, ["api", "v1", "directory"]) => {
            let streams = query.get("streams").map(String::as_str).unwrap_or_default();
            let form = form.unwrap_or(Serialization::Xml);
            match links.http_directory(streams, form, &reader, |_| true) {
                Ok(bytes) => full(200, bytes),
                Err(refusal) => refused(refusal),
            }
        }
        _ => full(404, "no such place"),
    })
}

struct Endless(mpsc::Receiver<Bytes>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
