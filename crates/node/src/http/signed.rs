//! Signatures at the interfaces of SOAP 1.1: requests are judged before their handlers see them, and answers are
//! signed. Those of SOAP 1.2 are at [`super::eventing`].

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::Response;
use chappe_registry::uddi::message::fault_text;
use chappe_registry::uddi::{Error, ErrorCode};
use chappe_xml::Element;

use super::{uddi, uddi_metadata, wsdl};
use crate::accounts::Caller;
use crate::config::{Config, SignatureMode};
use crate::shared::App;
use crate::signatures::{self, Received};

/// Whether signatures count at a path.
fn mode_at(config: &Config, path: &str) -> SignatureMode {
    match path {
        uddi::INQUIRY => config.signatures.inquiry,
        uddi::PUBLISH => config.signatures.publication,
        wsdl::PATH => config.signatures.documents,
        uddi_metadata::PATH => config.signatures.metadata,
        _ => SignatureMode::Off,
    }
}

/// Replaces a signed request by what was signed of it, with its account as the caller, and signs the answer.
pub(super) async fn judge(State(app): State<App>, request: Request, next: Next) -> Response {
    let mode = mode_at(&app.config, request.uri().path());
    if mode == SignatureMode::Off || request.method() != Method::POST {
        return next.run(request).await;
    }
    let (answer, relates_to) = match read(&app, mode, request).await {
        Ok((request, relates_to)) => (next.run(request).await, relates_to),
        Err((answer, relates_to)) => (answer, relates_to),
    };
    let signed = sign(&app, mode, answer, relates_to).await;
    signed.unwrap_or_else(|reason| {
        let text = format!("cannot sign the answer: {reason}");
        tracing::warn!("{text}");
        uddi::failed(&app, &Error::new(ErrorCode::FatalError, text))
    })
}

/// A signed answer. It takes no permit: the change that it answers may have been made.
/// What is no SOAP, such as a refusal of HTTP, stays as it is.
async fn sign(
    app: &App,
    mode: SignatureMode,
    answer: Response,
    relates_to: Option<Element>,
) -> Result<Response, String> {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/xml")) {
        return Ok(answer);
    }
    let (mut parts, body) = answer.into_parts();
    // Answers are as long as the node makes them.
    let body = axum::body::to_bytes(body, usize::MAX).await;
    let body = body.map_err(|error| error.to_string())?;
    let of = app.clone();
    let signed =
        tokio::task::spawn_blocking(move || signatures::answer(&of, mode, &body, relates_to));
    let text = signed.await.map_err(|error| error.to_string())??;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(text)))
}

/// The request with the elements that were signed, or as it is, or the answer; and what the answer relates to.
async fn read(
    app: &App,
    mode: SignatureMode,
    request: Request,
) -> Result<(Request, Option<Element>), (Response, Option<Element>)> {
    let failed = |error: Error| (uddi::failed(app, &error), None);
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or_else(String::new, |ConnectInfo(peer)| peer.ip().to_string());
    let caller = request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or_default();
    let (mut parts, body) = request.into_parts();
    let bytes = uddi::read(app, body).await.map_err(failed)?;
    let judged = uddi::run(app, &caller, move |app| {
        signatures::receive(app, mode, &bytes, uddi::limits(app), &peer)
    });
    let judged = judged.await.map_err(failed)?;
    let Received {
        document,
        signer,
        is_signed,
        relates_to,
    } = judged.map_err(|error| {
        let text = fault_text(signatures::fault(&error));
        (uddi::faulty(text), None)
    })?;
    match signer {
        Some(signer) => {
            parts.extensions.insert(signer);
        }
        None if is_signed && mode == SignatureMode::Required => {
            let error = Error::new(ErrorCode::UnknownUser, signatures::NO_ACCOUNT);
            return Err((uddi::failed(app, &error), relates_to));
        }
        None => {}
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    let request = Request::from_parts(parts, Body::from(document));
    Ok((request, relates_to))
}
