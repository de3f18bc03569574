//! Checks that every request passes: its host, its origin, its credential.
//!
//! A page of another site can make its visitor's browser send requests to this node, and by DNS
//! rebinding even read the answers. Therefore the `Host` must be an IP address, `localhost` or a
//! configured name, and an `Origin`, if present, must equal the requested host.
//!
//! A link, a form or an image of another site sends no `Origin`, but browsers mark such requests in
//! `Sec-Fetch-Site`. They may open the console's page, but not use the API, because even an unread
//! answer costs work. Programs other than browsers send neither field. Browsers also omit
//! `Sec-Fetch-Site` where the address is neither https nor this host; there a browser's GET of a
//! SPARQL query is refused, and the console sends its queries by POST.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chappe_identity::{Principal, Token};
use chappe_transport::Hop;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::client_address::{self, Contradiction};
use super::problem::Problem;
use crate::config::Read;
use crate::shared::App;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;

/// Only this node's scripts, styles and images; no frames, forms or plugins.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// Checks a request, passes it on with its [`Principal`], and adds headers to the response.
pub(super) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let client = client(&app, &request);
    if let Ok(Some(client)) = &client {
        let client = ConnectInfo(*client);
        request.extensions_mut().insert(client);
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or_else(String::new, |ConnectInfo(peer)| peer.ip().to_string());
    let path = request.uri().path().to_owned();
    let mut response = match client.and_then(|_| admit(&app, &request)) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err((reason, problem)) => {
            let (detail, hint) = (problem.detail.clone(), problem.hint.clone());
            let drops = &app.observability.drops;
            drops.record(Hop::Http, reason, &peer, detail, hint);
            problem.into_response()
        }
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response = method_not_allowed(&method, &path, &response);
    }
    add_headers(response.headers_mut(), &path);
    app.observability
        .metrics
        .request(&method, response.status(), started.elapsed());
    response
}

/// The reason of a refusal, for the drop counters, and the response.
type Refusal = (&'static str, Problem);

/// The client of a request, seen through trusted proxies.
fn client(app: &App, request: &Request) -> Result<Option<SocketAddr>, Refusal> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let Some(ConnectInfo(peer)) = peer else {
        return Ok(None);
    };
    let client = client_address::client(*peer, request.headers(), &app.trusted_proxies);
    client.map(Some).map_err(|Contradiction| {
        let detail = "Forwarded and X-Forwarded-For name different clients";
        let hint = "configure the proxy to remove the header that it does not set itself";
        ("forwarded", Problem::bad_request(detail).hint(hint))
    })
}

fn admit(app: &App, request: &Request) -> Result<Principal, Refusal> {
    let headers = request.headers();
    let host = check_host(app, headers, request.uri())?;
    check_origin(headers, &host)?;
    check_site(request)?;
    let principal = principal(app, headers)?;
    let reads = matches!(*request.method(), Method::GET | Method::HEAD)
        || request.uri().path() == "/api/v1/sparql"
        || request.uri().path() == "/api/v1/streams/query"
        || request
            .uri()
            .path()
            .starts_with("/api/v1/exchange/subscriptions");
    let path = request.uri().path();
    // The secret in the path of a contact point is its credential.
    let has_secret = path.starts_with("/api/v1/exchange/contact-points/");
    let open = reads && (app.config.access.read == Read::Open || !is_guarded(path));
    if !open && !has_secret && !principal.is_operator() {
        let access = if reads { "reading" } else { "changing" };
        let problem = Problem::new(StatusCode::UNAUTHORIZED, format!("{access} needs a token"));
        let problem = problem.hint(
            "pass --token TOKEN or CHAPPE_TOKEN to `chappe`, or send `Authorization: Bearer TOKEN` \
             over HTTP; the node's first start wrote the token to `new-token` in its data \
             directory; to get a new one, remove the file `token` there and restart the node",
        );
        return Err(("no_token", problem));
    }
    Ok(principal)
}

/// Whether the path belongs to the API rather than to the console's page.
fn is_guarded(path: &str) -> bool {
    path.starts_with("/api/") || path == "/metrics"
}

fn check_host(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<String, Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    // The request target may name a host as well; both must agree.
    let same = |host: &&str| {
        let named = uri.authority().map(|named| named.as_str());
        named.is_none_or(|named| named.eq_ignore_ascii_case(host))
    };
    let host = host.filter(|_| hosts.next().is_none()).filter(same);
    let host = host.unwrap_or_default();
    let name = host_name(host);
    let known = name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || app
            .config
            .http
            .hosts
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name));
    if known {
        return Ok(host.to_ascii_lowercase());
    }
    let shortened: String = host.chars().take(80).collect();
    let problem = Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        format!("{shortened:?} is not a name of this node"),
    );
    let hint = format!("to allow it, add `hosts = [{name:?}]` under [http] in node.toml");
    Err(("host", problem.hint(hint)))
}

/// The name in `name:port` or `[address]:port`; empty for other text.
fn host_name(host: &str) -> &str {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => return name,
            Some((name, rest)) => (name, rest.strip_prefix(':')),
            None => return "",
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => return host,
        },
    };
    let number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if port.is_some_and(number) { name } else { "" }
}

fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("unreadable");
        // Either scheme is possible, because a proxy may add TLS.
        let named = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        if !named.is_some_and(|named| named.eq_ignore_ascii_case(host)) {
            let origin: String = origin.chars().take(80).collect();
            return Err(foreign_origin(format!(
                "requests from pages of {origin:?} are refused"
            )));
        }
    }
    Ok(())
}

/// Refuses requests that another site caused, except opening the console's page.
fn check_site(request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let path = request.uri().path();
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let opens_page = field("sec-fetch-mode") == Some("navigate") && !is_guarded(path);
    match field("sec-fetch-site") {
        Some("cross-site" | "same-site") if !opens_page => Err(foreign_origin(
            "requests from pages of another site are refused".to_owned(),
        )),
        None => {
            let browser = field("user-agent").is_some_and(|agent| agent.starts_with("Mozilla/"));
            let query = request.method() != Method::POST && path == "/api/v1/sparql";
            if browser && query {
                let detail = "the browser does not report which page sends this query";
                let (reason, problem) = foreign_origin(detail.to_owned());
                return Err((reason, problem.hint("send it by POST, or use the console")));
            }
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

fn foreign_origin(detail: String) -> Refusal {
    let problem = Problem::new(StatusCode::FORBIDDEN, detail)
        .hint("open the console under the node's own address");
    ("origin", problem)
}

fn principal(app: &App, headers: &HeaderMap) -> Result<Principal, Refusal> {
    let mut credentials = headers.get_all(header::AUTHORIZATION).iter();
    let Some(credential) = credentials.next() else {
        return Ok(Principal::Anonymous);
    };
    let token = credential
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .and_then(|(_, token)| token.trim().parse::<Token>().ok());
    if token.is_some_and(|token| app.token.accepts(&token)) && credentials.next().is_none() {
        return Ok(Principal::Operator);
    }
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "the token is not valid here");
    Err(("wrong_token", problem))
}

fn method_not_allowed(method: &Method, path: &str, response: &Response) -> Response {
    let allowed = response.headers().get(header::ALLOW).cloned();
    let detail = format!("{path} does not support {method}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
    let mut response = match &allowed {
        Some(list) => problem.hint(format!("supported: {}", list.to_str().unwrap_or(""))),
        None => problem,
    }
    .into_response();
    if let Some(list) = allowed {
        response.headers_mut().insert(header::ALLOW, list);
    }
    response
}

fn add_headers(headers: &mut HeaderMap, path: &str) {
    const ALWAYS: [(&str, &str); 6] = [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ];
    for (name, value) in ALWAYS {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    let caching = if path.starts_with("/api/") {
        "no-store"
    } else {
        "no-cache"
    };
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static(caching));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_host_has_a_name() {
        for (host, name) in [
            ("node.example", "node.example"),
            ("127.0.0.1:8470", "127.0.0.1"),
            ("[::1]", "::1"),
            ("[::1]:8470", "::1"),
            ("[::1].evil.example", ""),
            ("[::1]:8470.evil.example", ""),
            ("[::1", ""),
            ("127.0.0.1:80@evil.example", ""),
            ("localhost:evil", ""),
            ("", ""),
        ] {
            assert_eq!(host_name(host), name, "{host}");
        }
    }
}
