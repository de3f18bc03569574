//! The exchange with other nodes over HTTP: elements of a stream in an endless answer, subscriptions
//! with a contact point, and the contact points of this node's own links.
//!
//! Reading is open or needs the token, as elsewhere. The secret in its path authenticates a contact
//! point: only the origin knows it.

use std::net::SocketAddr;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_identity::{Reach, Role};
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

use super::guard::outside_problem;
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::shapes::{self, Confirmation};
use crate::accounts::{Caller, View};
use crate::permits::RequestKind;
use crate::shared::App;

/// Bytes of a body at a contact point; reason: the largest document that a link accepts.
const CONTACT_BODY_MAX: usize = 4 << 20;
/// Queued parts of an endless answer; reason: one is being sent while the next is prepared.
const PARTS_QUEUED: usize = 1;

/// The reader at an address.
pub(super) fn reader(peer: SocketAddr) -> Reader {
    Reader {
        address: Some(peer),
        key: None,
        account: None,
    }
}

/// Converts a refusal of the links.
pub(super) fn refusal_problem(refusal: HttpRefusal) -> Problem {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let problem = Problem::new(status, refusal.text);
    match refusal.hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// The requested elements and their serialization.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PullParams {
    /// Elements after this position, `EPOCH:N`.
    after: Option<String>,
    /// With `after`: the newest element that the reader has of each earlier epoch, newest first, `EPOCH:N,EPOCH:N`. An
    /// origin that was restored from a backup may know one of these.
    earlier: Option<String>,
    /// Where to start if no position is given. Default: first.
    #[param(value_type = Option<shapes::LinkStart>)]
    start: Option<String>,
    /// Serialization of the elements. Default: xml.
    #[param(value_type = Option<shapes::Serialization>)]
    serialization: Option<String>,
}

/// Parses the name of a serialization.
pub(super) fn serialization(name: &str) -> Result<Serialization, Problem> {
    Serialization::parse(name).ok_or_else(|| {
        Problem::bad_request(format!("there is no serialization {name:?}"))
            .hint("use xml, postcard or message_pack")
    })
}

/// Elements of a stream in an endless response: the stored ones, then new ones as they arrive.
#[utoipa::path(get, path = "/api/v1/exchange/streams/{name}", tag = "links",
    params(("name" = String, Path, description = "The stream's name"), PullParams),
    responses((status = 200, description = "a sequence of documents without end", content(
            (String = "application/xml"), (Vec<u8> = "application/vnd.chappe.postcard"),
            (Vec<u8> = "application/vnd.msgpack"))),
        (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 503, body = Problem,
            description = "too many readers, in all or from this address")))]
pub(super) async fn pull(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    caller: Caller,
    Name(stream): Name,
    Params(params): Params<PullParams>,
) -> Result<Response, Problem> {
    let after = params
        .after
        .as_deref()
        .map(str::parse::<Position>)
        .transpose();
    let after = after.map_err(|error| Problem::bad_request(format!("after: {error}")))?;
    let earlier = positions(params.earlier.as_deref().unwrap_or_default());
    let earlier = earlier.map_err(|error| Problem::bad_request(format!("earlier: {error}")))?;
    let start = match params.start.as_deref() {
        None | Some("first") => LinkStart::First,
        Some("new") => LinkStart::New,
        Some(other) => {
            let problem = Problem::bad_request(format!("start: {other:?} is not first or new"));
            return Err(problem);
        }
    };
    let serialization_name = params.serialization.as_deref();
    let request = PullRequest {
        stream,
        after,
        earlier,
        start,
        serialization: serialization_name.map(serialization).transpose()?,
    };
    let links = parts::exchange(&app)?.links();
    let body = links.http_pull(&request, &reader(peer));
    let mut body = body.map_err(refusal_problem)?;
    let permit = parts::permit(&app, &caller, RequestKind::Pull)?;
    let media_type = body.media_type();
    let (sender, receiver) = tokio::sync::mpsc::channel(PARTS_QUEUED);
    let mut drain = app.drain.clone();
    tokio::spawn(async move {
        let _permit = permit;
        let mut ended = std::pin::pin!(app.accounts.ended(&caller));
        // The stream may be renamed to a name that the account may not read, and the name be freed.
        let first = app.catalogue.names().resolve(&request.stream);
        let may_read = || {
            app.catalogue.names().resolve(&request.stream) == first
                && View::of_reader(&app, &caller).has_stream(&request.stream)
        };
        loop {
            let part = tokio::select! {
                () = &mut ended => return,
                part = body.next() => part,
                () = sender.closed() => return,
                () = crate::tasks::shutdown(&mut drain) => return,
            };
            let Some(part) = part.filter(|_| may_read()) else {
                return;
            };
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
    reason = "documentation only; it is parsed as a SubscriptionRequest"
)]
pub(crate) struct NewSubscription {
    /// The stream.
    stream: String,
    /// Destination of its elements: an https or http URL whose host is an IP address; http beyond
    /// loopback only where the origin allows clear text.
    contact_point: String,
    /// The SHA-256 of the certificate at an https contact point, in hexadecimal digits.
    fingerprint: Option<String>,
    /// The newest element that the subscriber has, `EPOCH:N`.
    after: Option<String>,
    /// With `after`: the newest element that the subscriber has of each earlier epoch, newest first.
    earlier: Option<Vec<String>>,
    /// Where to start if no position is given. Default: first.
    start: Option<shapes::LinkStart>,
    /// Serialization of the elements. Default: xml.
    serialization: Option<shapes::Serialization>,
}

/// An accepted subscription.
#[derive(Serialize, ToSchema)]
pub(crate) struct Subscription {
    /// Its id, for renewing and ending it.
    id: String,
    /// The secret for renewing and ending it, sent in the header `chappe-subscription-secret`.
    secret: String,
    /// Seconds until it expires unless renewed.
    lease_s: u64,
    /// Its elements start after this position, `EPOCH:N`; only for a new subscription.
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

/// Subscribes a contact point to a stream. The contact point must confirm before elements are sent.
#[utoipa::path(post, path = "/api/v1/exchange/subscriptions", tag = "links",
    request_body(content = NewSubscription),
    responses((status = 201, body = Subscription), (status = 400, body = Problem),
        (status = 403, body = Problem, description = "the contact point may not be contacted"),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "the contact point does not confirm"),
        (status = 503, body = Problem,
            description = "too many readers, in all or from this address")))]
pub(super) async fn subscribe(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<Subscription>), Problem> {
    let request: SubscriptionRequest = params::json(&app, body).await?;
    if !View::of_reader(&app, &caller).has_stream(&request.stream) {
        return Err(outside_problem(&caller, Role::Read, "not for this stream"));
    }
    let links = parts::exchange(&app)?.links();
    // The subscription ends with the account.
    let reader = Reader {
        account: caller.session(),
        ..reader(peer)
    };
    let subscription = links.http_subscribe(&request, &reader).await;
    let subscription = subscription.map_err(refusal_problem)?;
    Ok((StatusCode::CREATED, Json(subscription.into())))
}

/// The credential with which a request may renew or end a subscription.
fn credential<'a>(caller: &Caller, headers: &'a HeaderMap) -> Credential<'a> {
    if caller.reach(Role::Operate) == Reach::All {
        return Credential::Operator;
    }
    let secret = headers.get(SECRET_HEADER);
    Credential::Secret(secret.and_then(|it| it.to_str().ok()).unwrap_or_default())
}

/// Renews a subscription, authorized by its secret in a header or by the role `operate`.
#[utoipa::path(put, path = "/api/v1/exchange/subscriptions/{id}", tag = "links",
    params(("id" = String, Path, description = "The subscription's id"),
        ("chappe-subscription-secret" = Option<String>, Header, description = "Its secret")),
    responses((status = 200, body = Subscription),
        (status = 403, body = Problem, description = "the secret is missing or wrong"),
        (status = 404, body = Problem)))]
pub(super) async fn renew(
    State(app): State<App>,
    Name(id): Name,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Json<Subscription>, Problem> {
    let links = parts::exchange(&app)?.links();
    let renewed = links.http_renew(&id, credential(&caller, &headers));
    Ok(Json(renewed.map_err(refusal_problem)?.into()))
}

/// Ends a subscription, authorized by its secret in a header or by the role `operate`.
#[utoipa::path(delete, path = "/api/v1/exchange/subscriptions/{id}", tag = "links",
    params(("id" = String, Path, description = "The subscription's id"),
        ("chappe-subscription-secret" = Option<String>, Header, description = "Its secret")),
    responses((status = 204),
        (status = 403, body = Problem, description = "the secret is missing or wrong"),
        (status = 404, body = Problem)))]
pub(super) async fn end(
    State(app): State<App>,
    Name(id): Name,
    caller: Caller,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let links = parts::exchange(&app)?.links();
    let ended = links.http_end(&id, credential(&caller, &headers));
    ended.map_err(refusal_problem)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Receives elements for a link of this node. A success status means that they are stored.
#[utoipa::path(post, path = "/api/v1/exchange/contact-points/{link}/{secret}", tag = "links",
    params(("link" = String, Path, description = "The link's name"),
        ("secret" = String, Path, description = "The secret given to the origin")),
    request_body(content((String = "application/xml"), (Vec<u8> = "application/vnd.chappe.postcard"),
        (Vec<u8> = "application/vnd.msgpack"))),
    responses((status = 200, body = Confirmation, description = "the contact point is confirmed"),
        (status = 204, description = "stored"),
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
            format!("the body cannot be read: {error}"),
        )
    })?;
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let taken = parts::exchange(&app)?
        .links()
        .http_take(&link, &secret, kind, &bytes)
        .await;
    let taken = taken.map_err(refusal_problem)?;
    let status = StatusCode::from_u16(taken.status).unwrap_or(StatusCode::NO_CONTENT);
    Ok(match taken.body {
        Some(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        None => {
            let most = [(ELEMENTS_MAX_HEADER, CONTACT_ELEMENTS_MAX.to_string())];
            (status, most).into_response()
        }
    })
}

/// Confirms a contact point by returning the body of the request.
#[utoipa::path(put, path = "/api/v1/exchange/contact-points/{link}/{secret}", tag = "links",
    params(("link" = String, Path, description = "The link's name"),
        ("secret" = String, Path, description = "The secret given to the origin")),
    request_body(content = Confirmation),
    responses((status = 200, body = Confirmation), (status = 404, body = Problem)))]
pub(super) async fn confirm(
    state: State<App>,
    path: Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    take(state, path, headers, body).await
}
