//! What other nodes ask over HTTP: elements of a stream in an endless answer, subscriptions with a
//! contact point, and the contact points of this node's own links.
//!
//! Reading is open or needs the token, as everywhere; a contact point is recognized by the secret in
//! its path, which only the origin that was told it knows.

use std::net::SocketAddr;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_identity::Principal;
use chappe_links::http::{
    CONTACT_ELEMENTS_MAX, Credential, ELEMENTS_MAX_HEADER, PullRequest, SECRET_HEADER,
    SubscriptionAnswer, SubscriptionRequest, positions,
};
use chappe_links::{HttpRefusal, LinkStart, Reader, Serialization};
use chappe_stream::Position;
use serde::{Deserialize, Serialize};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

use super::params::{self, Name, Params, Who};
use super::parts;
use super::problem::Problem;
use crate::shared::App;

/// Bytes of a body at a contact point; reason: the largest document that a link takes.
const CONTACT_BODY_MAX: usize = 4 << 20;
/// Parts of an endless answer that wait for the connection; reason: one is being sent while the next
/// is made.
const PARTS_QUEUED: usize = 1;

/// Who asks.
pub(super) fn reader(peer: SocketAddr) -> Reader {
    Reader {
        address: Some(peer),
        key: None,
    }
}

/// A refusal of the links as a problem.
pub(super) fn refused(refusal: HttpRefusal) -> Problem {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let problem = Problem::new(status, refusal.text);
    match refusal.hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// Which elements, and how they are written.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Elements after this position, `EPOCH:N`.
    after: Option<String>,
    /// With it, the newest element that the reader has of each earlier epoch, the newest first:
    /// `EPOCH:N,EPOCH:N`. An origin that was restored from a backup may know one of these.
    earlier: Option<String>,
    /// Without a position: `first` (the default) or `new`.
    start: Option<String>,
    /// xml (the default), postcard or message_pack.
    serialization: Option<String>,
}

/// The serialization of this word.
pub(super) fn serialization(word: &str) -> Result<Serialization, Problem> {
    Serialization::parse(word).ok_or_else(|| {
        Problem::bad_request(format!("there is no serialization {word:?}"))
            .hint("xml, postcard or message_pack")
    })
}

/// Elements of a stream in an answer that does not end: those that are there, and those that come.
#[utoipa::path(get, path = "/api/v1/exchange/streams/{name}", tag = "links",
    params(("name" = String, Path, description = "The stream's name"), Wanted),
    responses((status = 200, description = "documents, one after another"),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 503, body = Problem, description = "there are too many readers, or of this one")))]
pub(super) async fn pull(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Name(stream): Name,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let after = wanted
        .after
        .as_deref()
        .map(str::parse::<Position>)
        .transpose();
    let after = after.map_err(|error| Problem::bad_request(format!("after: {error}")))?;
    let earlier = positions(wanted.earlier.as_deref().unwrap_or_default());
    let earlier = earlier.map_err(|error| Problem::bad_request(format!("earlier: {error}")))?;
    let start = match wanted.start.as_deref() {
        None | Some("first") => LinkStart::First,
        Some("new") => LinkStart::New,
        Some(other) => {
            let problem = Problem::bad_request(format!("start: {other:?} is no beginning"));
            return Err(problem.hint("first or new"));
        }
    };
    let word = wanted.serialization.as_deref();
    let request = PullRequest {
        stream,
        after,
        earlier,
        start,
        serialization: word.map(serialization).transpose()?,
    };
    let links = parts::exchange(&app)?.links();
    let mut body = links.http_pull(&request, &reader(peer)).map_err(refused)?;
    let permit = app.permits.pull().ok_or_else(|| {
        Problem::unavailable("half of the connections are endless answers to other nodes")
            .hint("the limit of both is http.max_connections")
    })?;
    let media_type = body.media_type();
    let (sender, receiver) = tokio::sync::mpsc::channel(PARTS_QUEUED);
    let mut drain = app.drain.clone();
    tokio::spawn(async move {
        let _permit = permit;
        loop {
            let part = tokio::select! {
                part = body.next() => part,
                () = sender.closed() => return,
                () = crate::tasks::ended(&mut drain) => return,
            };
            let Some(part) = part else { return };
            if sender.send(part).await.is_err() {
                return;
            }
        }
    });
    let parts = ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>);
    let body = Body::from_stream(parts);
    Ok(([(header::CONTENT_TYPE, media_type)], body).into_response())
}

/// A subscription with a contact point.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "a description; it is read as a SubscriptionRequest"
)]
pub(crate) struct NewSubscription {
    /// The stream.
    stream: String,
    /// Where its elements are to be sent: an https or http address with a literal IP host; http
    /// beyond loopback only where the origin allows clear text.
    contact_point: String,
    /// The SHA-256 of the certificate at an https contact point, in hexadecimal digits.
    fingerprint: Option<String>,
    /// The newest element that the subscriber has, `EPOCH:N`.
    after: Option<String>,
    /// With it, the newest element that the subscriber has of each earlier epoch, the newest first.
    earlier: Option<Vec<String>>,
    /// Without a position: `first` or `new`.
    start: Option<String>,
    /// xml, postcard or message_pack.
    serialization: Option<String>,
}

/// A subscription that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct Subscription {
    /// Its id, for renewing and ending it.
    id: String,
    /// Renewing and ending it need this in the header `chappe-subscription-secret`.
    secret: String,
    /// Seconds that it lives without being renewed.
    lease_s: u64,
    /// It begins behind this position, `EPOCH:N`; of a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

impl From<SubscriptionAnswer> for Subscription {
    fn from(answer: SubscriptionAnswer) -> Self {
        Self {
            id: answer.id,
            secret: answer.secret,
            lease_s: answer.lease_s,
            after: answer.after,
        }
    }
}

/// Subscribes a contact point to a stream. The contact point is asked before the first element goes
/// there.
#[utoipa::path(post, path = "/api/v1/exchange/subscriptions", tag = "links",
    request_body(content = NewSubscription),
    responses((status = 201, body = Subscription), (status = 400, body = Problem),
        (status = 403, body = Problem, description = "the contact point may not be contacted"),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "the contact point does not confirm"),
        (status = 503, body = Problem, description = "there are too many readers, or of this one")))]
pub(super) async fn subscribe(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    body: Body,
) -> Result<(StatusCode, Json<Subscription>), Problem> {
    let request: SubscriptionRequest = params::json(&app, body).await?;
    let links = parts::exchange(&app)?.links();
    let made = links.http_subscribe(&request, &reader(peer)).await;
    let made = made.map_err(refused)?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// How a request proves that it may renew or end a subscription.
fn credential(who: Principal, headers: &HeaderMap) -> Credential<'_> {
    if who.is_operator() {
        return Credential::Operator;
    }
    let secret = headers.get(SECRET_HEADER);
    Credential::Secret(secret.and_then(|it| it.to_str().ok()).unwrap_or_default())
}

/// Renews a subscription: with its secret in a header, or with the node's token.
#[utoipa::path(put, path = "/api/v1/exchange/subscriptions/{id}", tag = "links",
    params(("id" = String, Path, description = "The subscription's id"),
        ("chappe-subscription-secret" = Option<String>, Header, description = "Its secret")),
    responses((status = 200, body = Subscription),
        (status = 403, body = Problem, description = "the secret is missing or wrong"),
        (status = 404, body = Problem)))]
pub(super) async fn renew(
    State(app): State<App>,
    Name(id): Name,
    Who(who): Who,
    headers: HeaderMap,
) -> Result<Json<Subscription>, Problem> {
    let links = parts::exchange(&app)?.links();
    let renewed = links.http_renew(&id, credential(who, &headers));
    Ok(Json(renewed.map_err(refused)?.into()))
}

/// Ends a subscription: with its secret in a header, or with the node's token.
#[utoipa::path(delete, path = "/api/v1/exchange/subscriptions/{id}", tag = "links",
    params(("id" = String, Path, description = "The subscription's id"),
        ("chappe-subscription-secret" = Option<String>, Header, description = "Its secret")),
    responses((status = 204),
        (status = 403, body = Problem, description = "the secret is missing or wrong"),
        (status = 404, body = Problem)))]
pub(super) async fn end(
    State(app): State<App>,
    Name(id): Name,
    Who(who): Who,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let links = parts::exchange(&app)?.links();
    let ended = links.http_end(&id, credential(who, &headers));
    ended.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes elements for a link of this node. A status of success says that they are stored.
#[utoipa::path(post, path = "/api/v1/exchange/contact-points/{link}/{secret}", tag = "links",
    params(("link" = String, Path, description = "The link's name"),
        ("secret" = String, Path, description = "What the origin was told")),
    request_body(content = String, content_type = "application/xml"),
    responses((status = 200), (status = 204, description = "stored"),
        (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn take(
    State(app): State<App>,
    Path((link, secret)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let time = std::time::Duration::from_millis(u64::from(app.config.http.request_timeout_ms));
    let read = tokio::time::timeout(time, to_bytes(body, CONTACT_BODY_MAX)).await;
    let late = |_| {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )
    };
    let bytes = read.map_err(late)?.map_err(|error| {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is not taken: {error}"),
        )
    })?;
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let taken = parts::exchange(&app)?
        .links()
        .http_take(&link, &secret, kind, &bytes)
        .await;
    let taken = taken.map_err(refused)?;
    let status = StatusCode::from_u16(taken.status).unwrap_or(StatusCode::NO_CONTENT);
    Ok(match taken.body {
        Some(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        None => {
            let most = [(ELEMENTS_MAX_HEADER, CONTACT_ELEMENTS_MAX.to_string())];
            (status, most).into_response()
        }
    })
}

/// Asks whether a contact point is one; what comes back is what was sent.
#[utoipa::path(put, path = "/api/v1/exchange/contact-points/{link}/{secret}", tag = "links",
    params(("link" = String, Path, description = "The link's name"),
        ("secret" = String, Path, description = "What the origin was told")),
    request_body(content = String, content_type = "application/json"),
    responses((status = 200), (status = 404, body = Problem)))]
pub(super) async fn confirm(
    state: State<App>,
    path: Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    take(state, path, headers, body).await
}
