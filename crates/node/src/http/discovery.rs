//! Messages to the discovery proxy. They are SOAP 1.2, which the OpenAPI document does not describe.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chappe_device::proxy::Posted;

pub(super) use crate::discovery_proxy::PATH;

use super::params;
use super::problem::Problem;
use crate::accounts::Caller;
use crate::shared::App;

/// A message to the discovery proxy. One of an account is authenticated; others are hints.
pub(super) async fn answer(
    State(app): State<App>,
    caller: Caller,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, Problem> {
    let Some(proxy) = app.discovery_proxy.get() else {
        let detail = "this node is not a discovery proxy";
        return Err(Problem::new(StatusCode::NOT_FOUND, detail).hint("set discovery.proxy.listen"));
    };
    let is_forwarded = app
        .trusted_proxies
        .iter()
        .any(|prefix| prefix.contains(peer.ip()));
    if is_forwarded {
        let detail = "a reverse proxy hides the address that a device may register";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // A page in a browser cannot send this type to a foreign host.
    if !kind.eq_ignore_ascii_case("application/soap+xml") {
        let detail = format!("a message cannot have the content type {kind:?}");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
            .hint("send it as application/soap+xml (SOAP 1.2)"));
    }
    let own = app.identity.url();
    let scheme = own.split("://").next().unwrap_or("http");
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let base = host.map_or_else(|| own.clone(), |host| format!("{scheme}://{host}{PATH}"));
    let path = uri.path().strip_prefix(PATH).unwrap_or_default().to_owned();
    let answer = proxy
        .answer(Posted {
            peer,
            base,
            path,
            body: params::body(&app, body).await?.to_vec(),
            sender: (!caller.is_anonymous()).then(|| caller.name().to_owned()),
        })
        .await;
    Ok((answer.status, answer.headers, answer.body).into_response())
}
