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
//!
//! Then the caller is determined, by a token or by the certificate of its connection, and compared with the
//! decision of the route ([`super::routes`]). A valid credential is accepted however often others failed from
//! the same address: tokens are too long to be guessed, and a proxy's clients share its address. The limit
//! of failures bounds what failures cost.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{
    ConnectInfo, FromRequestParts as _, MatchedPath, RawPathParams, Request, State,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chappe_identity::{ClientCertificate, Host, Reach, Role, bearer};
use chappe_transport::Hop;

use super::client_address::{self, Contradiction};
use super::ingest::credential::Credential;
use super::ingest::is_ingest;
use super::problem::{Problem, code};
use super::routes::{Restriction, Rule, Rules};
use super::streams::unknown_stream;
use crate::accounts::{
    Audit, AuditCharge, Caller, Change, Refusal as CredentialRefusal, Unchanged, View,
};
use crate::config::Read;
use crate::shared::App;

/// Only this node's scripts, styles and images; no frames, forms or plugins.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The state of the guard.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) app: App,
    pub(super) rules: Arc<Rules>,
}

/// What a handler changed, for the audit stream, if the path does not name it.
#[derive(Debug, Clone)]
pub(super) struct Subject(pub(super) String);

/// Checks a request, passes it on with its [`Caller`], records changes, and adds headers to the response.
pub(super) async fn guard(
    State(Guard { app, rules }): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
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
    let matched = request.extensions().get::<MatchedPath>();
    let rule = matched.and_then(|matched| rules.find(&method, matched.as_str()));
    let address = client.as_ref().ok().copied().flatten();
    let address = address.map(|client| client.ip());
    let audited = rule.filter(|rule| rule.needs.is_audited);
    let identified = client.and_then(|_| identify(&app, &request, address));
    let (request, name) = with_stream_name(request).await;
    let (caller, admitted) = match identified {
        Ok(caller) => {
            let admitted = authorize(&app, &request, rule, name.as_deref(), &caller);
            (caller, admitted)
        }
        Err(refusal) => (Caller::default(), Err(refusal)),
    };
    let change = audited
        .filter(|_| !caller.is_anonymous())
        .map(|rule| Change {
            account: caller.name().to_owned(),
            address,
            operation: rule.operation,
            method: method.to_string(),
            path: path.clone(),
            subject: None,
            status: 0,
        });
    let (change, charge, admitted) = begin_change(&app, &caller, change, admitted);
    let mut response = match admitted {
        Ok(()) => {
            let mut request = request;
            request.extensions_mut().insert(caller);
            recorded(&app, change, charge, next.run(request)).await
        }
        Err((reason, problem)) => {
            let (detail, hint) = (problem.detail.clone(), problem.hint.clone());
            let drops = &app.observability.drops;
            drops.record(Hop::Http, reason, &peer, detail, hint.map(String::from));
            let refusal = std::future::ready(problem.into_response());
            recorded(&app, change, charge, refusal).await
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

/// Takes the room for the record of a change from its account's share of the audit stream. Without room the change
/// is refused, and the refusal is not recorded.
fn begin_change(
    app: &App,
    caller: &Caller,
    change: Option<Change>,
    admitted: Result<(), Refusal>,
) -> (Option<Change>, Option<AuditCharge>, Result<(), Refusal>) {
    let Some(change) = change else {
        return (None, None, admitted);
    };
    match app.shares.begin_change(caller, change.text_bytes()) {
        Ok(charge) => (Some(change), charge, admitted),
        Err(wait) => (
            None,
            None,
            admitted.and_then(|()| Err(no_audit_room(caller, wait))),
        ),
    }
}

/// The account has used its share of the audit stream.
fn no_audit_room(caller: &Caller, wait: Duration) -> Refusal {
    let seconds = wait.as_secs().saturating_add(1);
    let detail = format!(
        "the changes of the account {:?} fill its share of the audit stream",
        caller.name()
    );
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).code(code::SHARE_OF_AUDIT);
    let hint = format!(
        "retry in {seconds} s, change less often, or raise its share of bytes: chappe account share"
    );
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    (
        code::SHARE_OF_AUDIT,
        problem.hint(hint).retry_after(seconds),
    )
}

/// Answers a request, and records the change, if it is one. The change and its record complete even if the
/// client disconnects meanwhile.
async fn recorded(
    app: &App,
    change: Option<Change>,
    charge: Option<AuditCharge>,
    response: impl Future<Output = Response> + Send + 'static,
) -> Response {
    let Some(mut change) = change else {
        return response.await;
    };
    let app = app.clone();
    let running = tokio::spawn(async move {
        let mut response = response.await;
        let subject = response.extensions_mut().remove::<Subject>();
        change.subject = subject.map(|Subject(subject)| subject);
        change.status = response.status().as_u16();
        match response.extensions_mut().remove::<Unchanged>() {
            Some(Unchanged) => Audit::cancel(&app, charge),
            None => Audit::record(&app, change, charge).await,
        }
        response
    });
    let failed = |_| Problem::internal("the request failed").into_response();
    running.await.unwrap_or_else(failed)
}

/// The reason of a refusal, for the drop counters, and the response.
pub(super) type Refusal = (&'static str, Problem);

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

/// Checks the host and the origin of a request, and determines its caller.
fn identify(app: &App, request: &Request, address: Option<IpAddr>) -> Result<Caller, Refusal> {
    let headers = request.headers();
    let is_without_host =
        request.version() == Version::HTTP_10 && !headers.contains_key(header::HOST);
    let host = match is_without_host {
        // Only old programs omit it; every browser that runs scripts names the host.
        true => String::new(),
        false => check_host(app, headers, request.uri())?,
    };
    check_origin(headers, &host)?;
    check_site(request)?;
    let certificate = request.extensions().get::<ClientCertificate>();
    let caller = match ingest_credential(request) {
        Some(credential) => by_credential(app, credential, address)?,
        None => caller(app, headers, certificate, address)?,
    };
    Ok(match app.config.access.read {
        Read::Open => caller.with_open_reading(),
        Read::Token => caller,
    })
}

/// The part `{name}` of the path, decoded.
async fn with_stream_name(request: Request) -> (Request, Option<String>) {
    let (mut parts, body) = request.into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let params = params.ok();
    let name = params.as_ref().and_then(|params| {
        let mut params = params.iter();
        let named = params.find(|(key, _)| *key == "name");
        named.map(|(_, value)| value.to_owned())
    });
    (Request::from_parts(parts, body), name)
}

/// Compares the caller with the decision of the route.
fn authorize(
    app: &App,
    request: &Request,
    rule: Option<&Rule>,
    name: Option<&str>,
    caller: &Caller,
) -> Result<(), Refusal> {
    let Some(rule) = rule else {
        // There is nothing at this path, or not with this method; strangers learn that only by reading.
        let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_open = !is_guarded(request.uri().path()) || caller.reach(Role::Read) != Reach::None;
        return match (is_safe && is_open) || !caller.is_anonymous() {
            true => Ok(()),
            false => Err(no_credential(if is_safe { "reading" } else { "changing" })),
        };
    };
    let Some(role) = rule.needs.role else {
        return Ok(());
    };
    if rule.needs.restriction == Restriction::Refused {
        return for_the_whole_node(caller, role);
    }
    match (caller.reach(role), rule.needs.restriction) {
        (Reach::None, _) => Err(no_role(caller, role)),
        (_, Restriction::ByStream) => {
            let view = View::new(app, caller, role);
            match name {
                Some(name) if view.has_stream(name) => Ok(()),
                // A former name of a stream that the caller may not see answers as a name of none.
                Some(name) if view.has_name(name) => {
                    Err(("restricted", unknown_stream(app, caller, name)))
                }
                _ => Err(outside(caller, role, "not for this stream")),
            }
        }
        (Reach::Some | Reach::All, _) => Ok(()),
    }
}

/// Whether a caller has a role that is not restricted.
pub(super) fn for_the_whole_node(caller: &Caller, role: Role) -> Result<(), Refusal> {
    match caller.reach(role) {
        Reach::All => Ok(()),
        Reach::Some => Err(outside(
            caller,
            role,
            "not for the whole node, which this needs",
        )),
        Reach::None => Err(no_role(caller, role)),
    }
}

fn no_role(caller: &Caller, role: Role) -> Refusal {
    if caller.is_anonymous() {
        return no_credential(match role {
            Role::Read => "reading",
            _ => "changing",
        });
    }
    let detail = format!(
        "the account {:?} does not have the role {role}",
        caller.name()
    );
    let problem = Problem::new(StatusCode::FORBIDDEN, detail).code(code::ROLE_MISSING);
    let hint = "`chappe account list` shows roles; an administrator can add an account with \
                this role";
    ("role", problem.hint(hint))
}

fn outside(caller: &Caller, role: Role, extent: &str) -> Refusal {
    ("restricted", outside_problem(caller, role, extent))
}

/// The caller has a role, but not for what the request concerns.
pub(super) fn outside_problem(caller: &Caller, role: Role, extent: &str) -> Problem {
    let name = caller.name();
    let detail = format!("the account {name:?} has the role {role}, but {extent}");
    let problem = Problem::new(StatusCode::FORBIDDEN, detail).code(code::OUTSIDE_ROLE);
    problem.hint(format!("its roles are {}", caller.roles().join(" ")))
}

fn no_credential(access: &str) -> Refusal {
    let problem = Problem::new(StatusCode::UNAUTHORIZED, format!("{access} needs a token"));
    let problem = problem.code(code::NO_CREDENTIAL).hint(
        "pass --token TOKEN or CHAPPE_TOKEN to `chappe`, or send `Authorization: Bearer TOKEN` \
         over HTTP; `chappe account add` makes a token; the node's first start wrote that of its first \
         administrator to `new-token` in its data directory; to get a new one, remove the file `token` \
         there and restart the node",
    );
    ("no_token", problem)
}

/// Whether the path belongs to the API rather than to the console's page.
fn is_guarded(path: &str) -> bool {
    let interfaces = [
        "/api/",
        "/gsn/",
        "/uddi/",
        "/things/",
        "/events/",
        "/search/",
        "/sensorthings/",
        "/.well-known/",
        "/influxdb/",
    ];
    let whole = ["/metrics", "/things", "/events", "/write", "/query"];
    interfaces.iter().any(|start| path.starts_with(start)) || whole.contains(&path)
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
    let announced = app
        .config
        .discovery
        .dns_sd
        .then(|| format!("{}.local", app.identity.local_host()));
    let known = name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || announced.is_some_and(|announced| name.eq_ignore_ascii_case(&announced))
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
            let is_query = path == "/api/v1/sparql" || path.starts_with("/search/");
            let query = request.method() != Method::POST && is_query;
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
        .code(code::FOREIGN_ORIGIN)
        .hint("open the console under the node's own address");
    ("origin", problem)
}

/// The credential of a request of an agent, if it is in a form of agents; the inner `None` if it is no token.
fn ingest_credential(request: &Request) -> Option<Option<Credential>> {
    if !is_ingest(request.uri().path()) {
        return None;
    }
    let mut fields = request.headers().get_all(header::AUTHORIZATION).iter();
    match fields.next() {
        None => Credential::of_query(request.uri()),
        Some(_) if fields.next().is_some() => None,
        Some(field) => Credential::of_field(field.as_bytes()).map(Some),
    }
}

/// The caller of a credential of an agent.
fn by_credential(
    app: &App,
    credential: Option<Credential>,
    address: Option<IpAddr>,
) -> Result<Caller, Refusal> {
    let unknown = CredentialRefusal::Unknown;
    let admitted = match credential {
        None => Err(unknown),
        Some(Credential { name, token }) => match app.accounts.by_token(&token) {
            Ok(caller) if name.as_ref().is_some_and(|name| name != caller.name()) => Err(unknown),
            admitted => admitted,
        },
    };
    admitted.map_err(|refusal| refused(app, refusal, address))
}

fn caller(
    app: &App,
    headers: &HeaderMap,
    certificate: Option<&ClientCertificate>,
    address: Option<IpAddr>,
) -> Result<Caller, Refusal> {
    let mut credentials = headers.get_all(header::AUTHORIZATION).iter();
    let Some(credential) = credentials.next() else {
        let Some(certificate) = certificate else {
            return Ok(Caller::default());
        };
        let admitted = app.accounts.by_certificate(certificate);
        return admitted.or_else(|refusal| match refusal {
            // A certificate of an authority that the node trusts, for other purposes.
            CredentialRefusal::Unknown => Ok(Caller::default()),
            CredentialRefusal::Expired => Err(refused(app, refusal, address)),
        });
    };
    let token = bearer(credential.as_bytes()).filter(|_| credentials.next().is_none());
    let admitted = match token {
        Some(token) => app.accounts.by_token(&token),
        None => Err(CredentialRefusal::Unknown),
    };
    admitted.map_err(|refusal| refused(app, refusal, address))
}

/// A refused credential, counted for its address.
pub(super) fn refused(app: &App, refusal: CredentialRefusal, address: Option<IpAddr>) -> Refusal {
    let failed = address.map(|address| app.accounts.fail(Host::from_address(address)));
    if let Some(Err(wait)) = failed {
        let detail = "too many invalid credentials came from this address";
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, detail);
        let problem = problem.code(code::TOO_MANY_FAILURES);
        let seconds = u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
        let hint = format!("retry in {seconds} s; a valid credential is accepted at any time");
        return ("failed_too_often", problem.hint(hint).retry_after(seconds));
    }
    let problem = |detail| Problem::new(StatusCode::UNAUTHORIZED, detail);
    match refusal {
        CredentialRefusal::Unknown => {
            let problem = problem("the token is not valid here").code(code::BAD_CREDENTIAL);
            let hint = "it may be misspelt, revoked, or of another node";
            ("wrong_token", problem.hint(hint))
        }
        CredentialRefusal::Expired => {
            let problem = problem("the account has expired").code(code::EXPIRED_CREDENTIAL);
            (
                "expired",
                problem.hint("an administrator can add a new account"),
            )
        }
    }
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
        // What clients stored is answered with a policy that is stricter.
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    let caching = if is_guarded(path) && path != "/metrics" {
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
