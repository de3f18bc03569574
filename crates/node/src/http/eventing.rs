//! WS-Eventing: event sources of the registry, and their subscription managers. Messages are SOAP 1.2, which
//! the OpenAPI document does not describe.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chappe_dpws::exchange::Reply;
use chappe_soap::Envelope;
use chappe_xml::Limits;

pub(super) use crate::subscriptions::eventing::SOURCES;

use super::changes::ChangesParams;
use super::params::{self, Params};
use super::problem::Problem;
use super::sparql::problem as sparql_problem;
use crate::accounts::Caller;
use crate::shared::App;
use crate::subscriptions::eventing::{self as sources, EventingError};
use crate::subscriptions::sources::Request;

/// Requests to an event source: Subscribe. The parameters say what its events are about.
pub(super) async fn subscribe(
    State(app): State<App>,
    caller: Caller,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
    Params(params): Params<ChangesParams>,
    body: Body,
) -> Result<Response, Problem> {
    let subject = params.subject()?;
    let request = request(&app, peer, &headers, &uri, body).await?;
    let replied = sources::subscribe(&app, &caller, subject, request).await;
    replied.map(answer).map_err(|error| problem(&error))
}

/// Requests to a subscription manager: Renew, GetStatus, Unsubscribe.
pub(super) async fn manage(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, Problem> {
    let request = request(&app, peer, &headers, &uri, body).await?;
    let replied = sources::manage(&app, request).await;
    replied.map(answer).map_err(|error| problem(&error))
}

async fn request(
    app: &App,
    peer: SocketAddr,
    headers: &HeaderMap,
    uri: &Uri,
    body: Body,
) -> Result<Request, Problem> {
    let field = |name| {
        headers
            .get(name)
            .and_then(|value: &header::HeaderValue| value.to_str().ok())
    };
    let kind = field(header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/soap+xml") {
        let detail = format!("a message cannot have the content type {kind:?}");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
            .hint("send it as application/soap+xml (SOAP 1.2)"));
    }
    let own = app.identity.url();
    let scheme = own.split("://").next().unwrap_or("http");
    let host = field(header::HOST);
    let base = host.map_or_else(|| own.clone(), |host| format!("{scheme}://{host}"));
    let bytes = params::body(app, body).await?;
    let limits = Limits {
        bytes: bytes.len(),
        ..Limits::default()
    };
    let envelope = Envelope::parse_within(&bytes, limits)
        .map_err(|error| Problem::bad_request(format!("the message cannot be read: {error}")))?;
    Ok(Request {
        peer,
        base,
        path: uri.path().to_owned(),
        envelope,
    })
}

fn answer(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = reply.content_type().unwrap_or_default();
    (status, [(header::CONTENT_TYPE, kind)], reply.to_text()).into_response()
}

fn problem(error: &EventingError) -> Problem {
    let text = error.to_string();
    match error {
        EventingError::Unknown | EventingError::Ended => {
            Problem::not_found(text).hint("subscribe again")
        }
        EventingError::Full => Problem::unavailable(text).hint("subscribe to fewer searches"),
        EventingError::Query(error) => sparql_problem(error),
    }
}
