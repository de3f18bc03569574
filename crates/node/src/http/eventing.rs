//! WS-Eventing: event sources of the registry, and their subscription managers. Messages are SOAP 1.2, which
//! the OpenAPI document does not describe.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chappe_dpws::dialect::EVENTING;
use chappe_dpws::exchange::{self, Reply};
use chappe_identity::Role;
use chappe_soap::security::WSSE;
use chappe_soap::{Envelope, Fault};
use chappe_transport::Hop;
use chappe_transport::signatures::random_urn;
use chappe_xml::{Limits, Name};

pub(super) use crate::subscriptions::eventing::SOURCES;

use super::changes::ChangesParams;
use super::guard::for_the_whole_node;
use super::params::{self, Params};
use super::problem::Problem;
use super::sparql::problem as sparql_problem;
use crate::accounts::Caller;
use crate::config::SignatureMode;
use crate::shared::App;
use crate::signatures::{self, Received};
use crate::subscriptions::eventing::{self as sources, EventingError, SUBSCRIBE_BYTES_MAX};
use crate::subscriptions::sources::Request;

/// Requests to an event source: Subscribe. The parameters say what its events are about. The caller of a signed one is
/// known only here, so the role is checked here.
pub(super) async fn subscribe(
    State(app): State<App>,
    caller: Caller,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
    Params(params): Params<ChangesParams>,
    body: Body,
) -> Result<Response, Problem> {
    let about = params.about_of_events()?;
    let (request, signer) = match request(&app, peer, &headers, &uri, body).await? {
        Ok(read) => read,
        Err(fault) => return signed(&app, Reply::message(*fault)).await,
    };
    let caller = signer.unwrap_or(caller);
    if let Err((reason, problem)) = for_the_whole_node(&caller, Role::Read) {
        let (drops, detail) = (&app.observability.drops, problem.detail.clone());
        let hint = problem.hint.clone().map(String::from);
        drops.record(Hop::Http, reason, caller.name(), detail, hint);
        return Err(problem);
    }
    if request.envelope.to_text().len() > SUBSCRIBE_BYTES_MAX {
        let detail = format!("Subscribe has more than {SUBSCRIBE_BYTES_MAX} bytes");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let replied = sources::subscribe(&app, &caller, about, request).await;
    answer(&app, replied).await
}

/// Requests to a subscription manager: Renew, GetStatus, Unsubscribe.
pub(super) async fn manage(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, Problem> {
    let request = match request(&app, peer, &headers, &uri, body).await? {
        Ok((request, _)) => request,
        Err(fault) => return signed(&app, Reply::message(*fault)).await,
    };
    let replied = sources::manage(&app, request).await;
    answer(&app, replied).await
}

/// The request, and the account that signed it; or the fault with which it is refused.
async fn request(
    app: &App,
    peer: SocketAddr,
    headers: &HeaderMap,
    uri: &Uri,
    body: Body,
) -> Result<Result<(Request, Option<Caller>), Box<Envelope>>, Problem> {
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
    let received = match judged(app, bytes, limits, peer).await? {
        Ok(received) => received,
        Err(fault) => return Ok(Err(fault)),
    };
    // What was signed is written in other words, which may be longer.
    let limits = Limits {
        bytes: received.document.len(),
        ..limits
    };
    let envelope = Envelope::parse_within(&received.document, limits)
        .map_err(|error| Problem::bad_request(format!("the message cannot be read: {error}")))?;
    // A subscription manager may be addressed by its identifier.
    let mut understood = vec![Name::new(EVENTING, "Identifier")];
    if app.config.signatures.subscriptions != SignatureMode::Off {
        understood.push(Name::new(WSSE, "Security"));
    }
    let urn = random_urn().map_err(|error| Problem::internal(error.to_string()))?;
    if let Some(fault) = exchange::check_headers(&envelope, &understood, urn) {
        return Ok(Err(Box::new(fault)));
    }
    let request = Request {
        peer,
        base,
        path: uri.path().to_owned(),
        envelope,
    };
    Ok(Ok((request, received.signer)))
}

/// What the message says, by the mode of signatures; or the fault with which it is refused.
async fn judged(
    app: &App,
    document: Bytes,
    limits: Limits,
    peer: SocketAddr,
) -> Result<Result<Received, Box<Envelope>>, Problem> {
    let mode = app.config.signatures.subscriptions;
    let of = app.clone();
    // It may wait for the disk.
    let judging = move || {
        let peer = peer.ip().to_string();
        signatures::receive(&of, mode, &document, limits, &peer)
    };
    let judged = match mode {
        SignatureMode::Off => Ok(judging()),
        _ => tokio::task::spawn_blocking(judging).await,
    };
    let judged = judged.map_err(|error| Problem::internal(error.to_string()))?;
    let fault = match judged {
        Ok(received) => {
            let is_unknown = received.is_signed && received.signer.is_none();
            if !(is_unknown && mode == SignatureMode::Required) {
                return Ok(Ok(received));
            }
            let code = Name::new(WSSE, "FailedAuthentication");
            Fault::sender(code, signatures::NO_ACCOUNT)
        }
        Err(error) => error.fault(),
    };
    let urn = random_urn().map_err(|error| Problem::internal(error.to_string()))?;
    Ok(Err(Box::new(exchange::unrelated_fault(&fault, urn))))
}

async fn answer(app: &App, replied: Result<Reply, EventingError>) -> Result<Response, Problem> {
    match replied {
        Ok(reply) => signed(app, reply).await,
        Err(error) => Err(problem(&error)),
    }
}

/// The response of a reply; a message is signed, if signatures count.
async fn signed(app: &App, reply: Reply) -> Result<Response, Problem> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = reply.content_type().unwrap_or_default();
    let signing = signatures::signing(app, app.config.signatures.subscriptions);
    let text = match (signing, reply.envelope()) {
        (Some(signing), Some(envelope)) => {
            let envelope = envelope.clone();
            let text = tokio::task::spawn_blocking(move || signing.text(&envelope)).await;
            let text = text.map_err(|error| Problem::internal(error.to_string()))?;
            text.map_err(|error| Problem::internal(format!("cannot sign the answer: {error}")))?
        }
        _ => reply.to_text(),
    };
    Ok((status, [(header::CONTENT_TYPE, kind)], text).into_response())
}

fn problem(error: &EventingError) -> Problem {
    let text = error.to_string();
    match error {
        EventingError::Unknown | EventingError::Ended => {
            Problem::not_found(text).hint("subscribe again")
        }
        EventingError::Full | EventingError::Share => {
            Problem::unavailable(text).hint("subscribe to fewer searches")
        }
        EventingError::Query(error) => sparql_problem(error),
    }
}
