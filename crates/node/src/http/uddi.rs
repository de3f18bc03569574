//! UDDI v2 over SOAP 1.1: inquiry and publication.
//!
//! Requests, answers and faults are those of [`chappe_registry::uddi::message`]; their WSDL describes them,
//! not the OpenAPI document. An inquiry needs the role `read`, and publication the role that `POST
//! /api/v1/entities` needs. A publisher gives the name of its account and the account's token in
//! get_authToken, and the token that it gets in all other messages. Each fault has the status 500, as
//! SOAP 1.1 over HTTP demands (section 6.2).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_identity::{Host, Principal, Reach, Role, Token};
use chappe_registry::uddi::message::{self, Answer, Message, Port, Request};
use chappe_registry::uddi::{Error, ErrorCode, Inquiry, Publisher, Values};
use chappe_registry::{Access, Attempts, Publication};
use chappe_transport::Hop;
use chappe_xml::Limits;

use super::guard::for_the_whole_node;
use super::params;
use super::parts;
use super::publish::room;
use super::sparql;
use crate::accounts::{Audit, AuditCharge, Caller, Change, Refusal};
use crate::clock;
use crate::permits::RequestKind;
use crate::registrar::key_bits;
use crate::shared::App;

/// The path of inquiries.
pub(super) const INQUIRY: &str = "/uddi/inquiry";
/// The path of publication.
pub(super) const PUBLISH: &str = "/uddi/publish";
/// The path of entities by their keys.
pub(super) const GET_PATH: &str = message::GET_PATH;
/// The path of the schema of `xml:lang`, next to them.
pub(super) const LANG: &str = "/uddi/xml.xsd";
/// Maximum memory of a request's tree; reason: a batch of changes has at most 4 MiB.
const TREE_BYTES_MAX: usize = 32 << 20;

/// The WSDL of the port for inquiries.
pub(super) async fn describe_inquiry(State(app): State<App>, headers: HeaderMap) -> Response {
    describe(&app, &headers, Port::Inquiry, INQUIRY)
}

/// The WSDL of the port for publication.
pub(super) async fn describe_publication(State(app): State<App>, headers: HeaderMap) -> Response {
    describe(&app, &headers, Port::Publication, PUBLISH)
}

/// The schema that both descriptions import.
pub(super) async fn describe_lang() -> Response {
    soap(StatusCode::OK, message::schema_of_lang())
}

fn describe(app: &App, headers: &HeaderMap, port: Port, path: &str) -> Response {
    let address = address(app, headers, path);
    soap(StatusCode::OK, message::wsdl(port, &address))
}

/// The URL of a path, at the host that the client asked.
pub(super) fn address(app: &App, headers: &HeaderMap, path: &str) -> String {
    format!("{}{path}", parts::own_url(app, headers))
}

pub(super) fn soap(status: StatusCode, text: String) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/xml; charset=utf-8")],
        text,
    )
        .into_response()
}

pub(super) fn faulty(text: String) -> Response {
    soap(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// The answer to a request that failed.
pub(super) fn failed(app: &App, error: &Error) -> Response {
    faulty(message::fault_text(message::fault(
        error,
        &app.identity.name,
    )))
}

pub(super) fn limits(app: &App) -> Limits {
    Limits {
        bytes: app.config.http.max_body_bytes as usize,
        expanded_bytes: TREE_BYTES_MAX,
        ..Limits::default()
    }
}

/// The body of a request.
pub(super) async fn read(app: &App, body: Body) -> Result<Bytes, Error> {
    params::body(app, body).await.map_err(|problem| {
        let code = match problem.status {
            413 => ErrorCode::MessageTooLarge,
            _ => ErrorCode::FatalError,
        };
        Error::new(code, problem.detail)
    })
}

/// Inquiries of this reader, each with the time of a query.
pub(super) fn inquiry(app: &App, reader: &Principal) -> Inquiry {
    let (_, interrupt) = sparql::limits(app);
    app.registry.uddi(reader).until(interrupt)
}

/// Runs work on a thread that may block, with a permit of the caller.
pub(super) async fn run<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<T, Error> {
    let permit = parts::permit_soon(app, caller, RequestKind::Query).await;
    let permit = permit.map_err(|problem| Error::new(ErrorCode::Busy, problem.detail))?;
    let of = app.clone();
    let done = tokio::task::spawn_blocking(move || {
        let result = work(&of);
        drop(permit);
        result
    });
    let failed = |_| Error::new(ErrorCode::FatalError, "the request failed");
    done.await.map_err(failed)
}

/// Answers an inquiry. The caller of a signed one is known only here, so the role is checked here.
pub(super) async fn inquire(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err((reason, problem)) = for_the_whole_node(&caller, Role::Read) {
        let (drops, detail) = (&app.observability.drops, problem.detail.clone());
        drops.record(
            Hop::Http,
            reason,
            caller.name(),
            detail,
            problem.hint.clone().map(String::from),
        );
        return problem.into_response();
    }
    let answered = async {
        let bytes = read(&app, body).await?;
        let reader = caller.reader();
        let base = parts::own_url(&app, &headers);
        if !app.checkers.is_empty() {
            let message = bytes.clone();
            let values = run(&app, &caller, move |app| {
                let received = message::receive(&message, limits(app), Port::Inquiry, "").ok()?;
                locally_valid(app, &received.request)
            });
            if let Some(values) = values.await? {
                app.checkers
                    .check(&app.observability.drops, &values)
                    .await?;
            }
        }
        run(&app, &caller, move |app| {
            let operator = &app.identity.name;
            let received = message::receive(&bytes, limits(app), Port::Inquiry, operator);
            let request = match received {
                Ok(message) => message.request,
                Err(fault) => return faulty(message::fault_text(fault)),
            };
            let inquiry = inquiry(app, &reader);
            match inquiry.answer(request, &app.taxonomies) {
                Ok(answer) => {
                    let answer = answer.with_discovery_urls(&base);
                    soap(StatusCode::OK, answer.to_text(operator))
                }
                Err(error) => failed(app, &error),
            }
        })
        .await
    };
    match answered.await {
        Ok(response) => response,
        Err(error) => failed(&app, &error),
    }
}

/// The entities of a request that services of others check, unless it fails without them.
fn locally_valid(app: &App, request: &Request) -> Option<Values> {
    let values = request.checked_values()?;
    app.taxonomies.validate(&values).ok()?;
    Some(values)
}

/// Asks the services of others about the values of a request for publication, if its sender may publish.
async fn check_values(app: &App, sender: &Caller, bytes: &Bytes) -> Result<(), Error> {
    if app.checkers.is_empty() {
        return Ok(());
    }
    let (message, of) = (bytes.clone(), sender.clone());
    let values = run(app, sender, move |app| {
        let received = message::receive(&message, limits(app), Port::Publication, "").ok()?;
        let publisher = publisher(app, received.token.as_deref(), &of).ok()?;
        may_publish(&publisher).ok()?;
        locally_valid(app, &received.request)
    });
    match values.await? {
        Some(values) => app.checkers.check(&app.observability.drops, &values).await,
        None => Ok(()),
    }
}

/// Answers a request for publication. Its change and the record of it complete even if the client
/// disconnects meanwhile.
pub(super) async fn publish(State(app): State<App>, request: HttpRequest) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = peer.map(|ConnectInfo(peer)| peer.ip());
    let caller = request.extensions().get::<Caller>();
    let caller = caller.cloned().unwrap_or_default();
    let base = parts::own_url(&app, request.headers());
    let body = request.into_body();
    let of = app.clone();
    let running = tokio::spawn(async move {
        let bytes = read(&of, body).await?;
        let checked = check_values(&of, &caller, &bytes).await;
        let mut attempts = Attempts::default();
        loop {
            let message = bytes.clone();
            let sender = Sender {
                caller: caller.clone(),
                address,
                base: base.clone(),
                checked: checked.clone(),
            };
            let outcome = run(&of, &caller, move |app| change(app, &message, &sender));
            let mut outcome = outcome.await?;
            if outcome.is_settled(&of, &mut attempts).await {
                return Ok::<Response, Error>(outcome.complete(&of).await);
            }
        }
    });
    match running.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => failed(&app, &error),
        Err(_) => failed(
            &app,
            &Error::new(ErrorCode::FatalError, "the request failed"),
        ),
    }
}

/// What became of a request for publication.
pub(super) struct Outcome {
    /// The text of the answer, or of a fault of the message.
    pub(super) answer: Result<Response, Error>,
    /// The changes in flight.
    pub(super) publication: Option<Publication>,
    /// The record for the audit stream, with what was taken for it of its account's share.
    pub(super) change: Option<(Change, Option<AuditCharge>)>,
}

impl Outcome {
    /// What was answered. Without a change there is no record of it.
    pub(super) fn answered(
        app: &App,
        answer: Response,
        publication: Option<Publication>,
        (change, charge): (Change, Option<AuditCharge>),
    ) -> Self {
        let change = match publication.is_some() {
            true => Some((change, charge)),
            false => {
                Audit::cancel(app, charge);
                None
            }
        };
        Self {
            answer: Ok(answer),
            publication,
            change,
        }
    }

    /// A request that failed, with the record of it if it was for a change.
    pub(super) fn failed(
        app: &App,
        caller: &Caller,
        error: Error,
        change: Option<(Change, Option<AuditCharge>)>,
    ) -> Self {
        if error.code == ErrorCode::AccountLimitExceeded {
            let (drops, reason) = (&app.observability.drops, "uddi_limit");
            drops.record(Hop::Http, reason, caller.name(), error.detail.clone(), None);
        }
        Self {
            change,
            ..Self::refused(error)
        }
    }

    pub(super) fn refused(error: Error) -> Self {
        Self {
            answer: Err(error),
            publication: None,
            change: None,
        }
    }

    /// Waits until the changes are durable. `false`: another node was faster, so the request has to be
    /// planned again on its changes.
    pub(super) async fn is_settled(&mut self, app: &App, attempts: &mut Attempts) -> bool {
        let publication = self.publication.take();
        // Where no other node can be faster, change and record wait for the disk together.
        let recorded = match (&publication, &self.answer, app.registry.is_shared()) {
            (Some(_), Ok(_), false) => self.change.take(),
            _ => None,
        };
        let record = async {
            let (mut change, charge) = recorded?;
            change.status = 200;
            Audit::record(app, change.clone(), charge).await;
            Some(change)
        };
        let (settled, recorded) = tokio::join!(attempts.settle(publication), record);
        match settled {
            Ok(true) => true,
            Ok(false) => {
                if let Some((_, charge)) = self.change.take() {
                    Audit::cancel(app, charge);
                }
                false
            }
            Err(error) => {
                self.answer = Err(error.into());
                // A second record takes back what the first one says.
                self.change = self.change.take().or(recorded.map(|change| (change, None)));
                true
            }
        }
    }

    /// Records the changes, which are settled.
    pub(super) async fn complete(self, app: &App) -> Response {
        let answer = self.recorded(app).await;
        answer.unwrap_or_else(|error| failed(app, &error))
    }

    /// The same; the caller answers errors.
    pub(super) async fn recorded(self, app: &App) -> Result<Response, Error> {
        let answer = self.answer;
        if let Some((mut change, charge)) = self.change {
            // SOAP has one status for all faults; the record says whose fault it was.
            change.status = match &answer {
                Ok(_) => 200,
                Err(error) if matches!(error.code, ErrorCode::Busy | ErrorCode::FatalError) => 500,
                Err(_) => 400,
            };
            Audit::record(app, change, charge).await;
        }
        answer
    }
}

/// The sender of a request for publication, and what is known of the request before it is run.
struct Sender {
    /// The account of the connection.
    caller: Caller,
    address: Option<IpAddr>,
    /// The address of this node for it.
    base: String,
    /// What services of others say of its values.
    checked: Result<(), Error>,
}

/// Reads a message and runs its request, without waiting for the disk.
fn change(app: &App, bytes: &[u8], sender: &Sender) -> Outcome {
    let address = sender.address;
    let operator = &app.identity.name;
    let received = message::receive(bytes, limits(app), Port::Publication, operator);
    let Message {
        name,
        token,
        request,
    } = match received {
        Ok(message) => message,
        Err(fault) => {
            return Outcome {
                answer: Ok(faulty(message::fault_text(fault))),
                publication: None,
                change: None,
            };
        }
    };
    let request = request.without_discovery_urls();
    let text = |answer: &Answer| soap(StatusCode::OK, answer.to_text(operator));
    if let Request::AuthToken {
        user_id,
        credential,
    } = &request
    {
        let answer = admit(app, user_id, credential, address);
        return Outcome {
            answer: answer.map(|answer| text(&answer)),
            publication: None,
            change: None,
        };
    }
    let discarded = || Outcome {
        answer: Ok(text(&Answer::Success)),
        publication: None,
        change: None,
    };
    let is_discard = matches!(request, Request::DiscardAuthToken);
    let caller = match publisher(app, token.as_deref(), &sender.caller) {
        Ok(caller) => caller,
        // One that has expired is gone already.
        Err(error) if is_discard && error.code == ErrorCode::AuthTokenExpired => {
            return discarded();
        }
        Err(error) => return Outcome::refused(error),
    };
    let token = token.and_then(|token| token.parse::<Token>().ok());
    if let Some(token) = token.filter(|_| is_discard) {
        app.accounts.dismiss_publisher(&token);
        return discarded();
    }
    let record = |subject: String| Change {
        account: caller.name().to_owned(),
        address,
        operation: "uddi_publish",
        method: "POST".to_owned(),
        path: PUBLISH.to_owned(),
        subject: Some(subject),
        status: 0,
    };
    let mut charge = None;
    if request.is_change() {
        let begun = app
            .shares
            .begin_change(&caller, record(String::new()).text_bytes());
        charge = match begun {
            Ok(charge) => Some(charge),
            Err(wait) => return Outcome::refused(no_audit_room(&caller, wait)),
        };
    }
    let done = may_publish(&caller).and_then(|()| {
        sender.checked.clone()?;
        save(app, &caller, &request)
    });
    match done {
        Ok((answer, publication)) => {
            let answer = answer.with_discovery_urls(&sender.base);
            let subject = format!("{name} {}", request.keys(&answer).join(", "));
            let change = (record(subject), charge.flatten());
            Outcome::answered(app, text(&answer), publication, change)
        }
        Err(error) => {
            let subject = format!("{name} {}", error.code.as_str());
            let change = charge.map(|charge| (record(subject), charge));
            Outcome::failed(app, &caller, error, change)
        }
    }
}

/// The account has used its share of the audit stream.
pub(super) fn no_audit_room(caller: &Caller, wait: Duration) -> Error {
    let detail = format!(
        "the changes of the account {:?} fill its share of the audit stream; retry in {} s",
        caller.name(),
        wait.as_secs().saturating_add(1)
    );
    Error::new(ErrorCode::AccountLimitExceeded, detail)
}

/// Runs the request of a publisher.
fn save(
    app: &App,
    caller: &Caller,
    request: &Request,
) -> Result<(Answer, Option<Publication>), Error> {
    let mut random = key_bits().map_err(|error| Error::new(ErrorCode::Busy, error.to_string()))?;
    let unix_ms = clock::now().0 / 1_000_000;
    let name = caller.name();
    let publisher = Publisher::new(&app.registry, name, Access::Public, unix_ms, &mut random);
    let saved = publisher
        .acting_as(caller.reader())
        .within(room(app, caller))
        .checking(&app.taxonomies)
        .answer(request)?;
    Ok((saved.value, saved.publication))
}

/// get_authToken.
fn admit(
    app: &App,
    user: &str,
    credential: &str,
    address: Option<IpAddr>,
) -> Result<Answer, Error> {
    let credential = credential.trim().parse::<Token>().ok();
    let found = credential.and_then(|credential| {
        let caller = app.accounts.by_token(&credential).ok()?;
        (caller.name() == user.trim()).then_some((caller, credential))
    });
    let Some((caller, credential)) = found else {
        let failed = address.map(|address| app.accounts.fail(Host::from_address(address)));
        let (drops, peer) = (&app.observability.drops, address);
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        let detail = "the userID and the credential are not those of an account";
        drops.record(Hop::Http, "wrong_token", &peer, detail, None);
        return Err(match failed {
            Some(Err(wait)) => {
                let seconds = wait.as_secs().saturating_add(1);
                let detail = format!("too many credentials were wrong; retry in {seconds} s");
                Error::new(ErrorCode::Busy, detail)
            }
            _ => Error::new(ErrorCode::UnknownUser, detail),
        });
    };
    may_publish(&caller)?;
    let seed = chappe_transport::seed();
    let seed = seed.map_err(|error| Error::new(ErrorCode::Busy, error.to_string()))?;
    let token = Token::from_seed(seed);
    app.accounts
        .admit_publisher(caller.name(), &credential, &token);
    Ok(Answer::AuthToken(token.reveal()))
}

/// The account of a token that get_authToken gave; without a token in the message, its sender, known by a signature, or
/// by a token or a certificate of the connection.
pub(super) fn publisher(app: &App, token: Option<&str>, sender: &Caller) -> Result<Caller, Error> {
    let token = token.map(str::trim).filter(|token| !token.is_empty());
    if token.is_none() && !sender.is_anonymous() {
        return Ok(sender.clone());
    }
    let found = token.and_then(|token| token.parse::<Token>().ok());
    let found = found.ok_or(Refusal::Unknown);
    found
        .and_then(|token| app.accounts.publisher(&token))
        .map_err(|refusal| match refusal {
            Refusal::Unknown => {
                let detail = "the authInfo is missing or not a token of get_authToken";
                Error::new(ErrorCode::AuthTokenRequired, detail)
            }
            Refusal::Expired => {
                let detail = "the token has expired; get_authToken gives another";
                Error::new(ErrorCode::AuthTokenExpired, detail)
            }
        })
}

/// Whether an account has the role that publishing entities needs, for the whole node.
pub(super) fn may_publish(caller: &Caller) -> Result<(), Error> {
    if caller.reach(Role::Write) == Reach::All {
        return Ok(());
    }
    let name = caller.name();
    let role = Role::Write;
    let detail = format!("the account {name:?} does not have the role {role} for the whole node");
    Err(Error::new(ErrorCode::UnknownUser, detail))
}

/// Reads the checked value sets: files of a directory, each named by the UUID of a tModel.
///
/// # Errors
/// The directory or a file cannot be read, or is not a value set. A missing directory has none.
pub(crate) fn taxonomies(
    directory: &std::path::Path,
) -> Result<Arc<chappe_registry::uddi::Taxonomies>, String> {
    use chappe_registry::uddi::{TModelKey, Taxonomies};
    let mut taxonomies = Taxonomies::default();
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Arc::new(taxonomies));
        }
        entries => entries.map_err(|error| format!("{}: {error}", directory.display()))?,
    };
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let fail = |reason: String| format!("{}: {reason}", path.display());
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().and_then(|name| name.to_str());
        let key = name.and_then(|name| TModelKey::parse(&format!("uuid:{name}")));
        let key = key.ok_or_else(|| fail("its name is not the UUID of a tModel".to_owned()))?;
        let text = std::fs::read_to_string(&path).map_err(|error| fail(error.to_string()))?;
        let added = taxonomies.add(key, &text);
        added.map_err(|error| fail(error.to_string()))?;
    }
    Ok(Arc::new(taxonomies))
}

#[cfg(test)]
mod tests {
    use chappe_registry::{Entity, EntityKind, JournalError, MemoryJournal, Registry};
    use chappe_stream::Value;

    use super::*;
    use crate::catalogue::AUDIT;

    #[test]
    fn a_node_with_too_many_requests_is_busy() {
        let few = |config: &mut crate::config::Config| config.limits.queries = 1;
        crate::node::tests::on_node(few, async |app| {
            let caller = Caller::operator();
            let _all = parts::permit(app, &caller, RequestKind::Query).unwrap();
            let response =
                inquire(State(app.clone()), caller, HeaderMap::new(), Body::empty()).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let body = axum::body::to_bytes(response.into_body(), 10_000).await;
            let body = String::from_utf8(body.unwrap().into()).unwrap();
            assert!(body.contains("E_busy"), "{body}");
        });
    }

    /// Change and record are synced at once, in two logs; if only the change fails, a second record says so.
    #[test]
    fn a_change_that_its_log_refuses_is_recorded_as_failed() {
        crate::node::tests::on_node(
            |_| {},
            async |app| {
                let (journal, mut attempts) = (MemoryJournal::new(), Attempts::default());
                let mut statuses = Vec::new();
                for failure in [Some(JournalError::Failed("no disk".to_owned())), None] {
                    journal.fail(failure);
                    let registry = Registry::open(journal.clone()).unwrap();
                    let entity = Entity::new("urn:x:1", EntityKind::Other, "one");
                    let publication = registry.publish(entity).unwrap();
                    let change = Change {
                        account: "ada".to_owned(),
                        address: None,
                        operation: "uddi_publish",
                        method: "POST".to_owned(),
                        path: PUBLISH.to_owned(),
                        subject: None,
                        status: 0,
                    };
                    let answer = soap(StatusCode::OK, String::new());
                    let mut outcome =
                        Outcome::answered(app, answer, Some(publication), (change, None));
                    assert!(outcome.is_settled(app, &mut attempts).await);
                    let response = outcome.complete(app).await;
                    let elements = app.catalogue.get(AUDIT).unwrap().log.newest(10).unwrap();
                    statuses.push((response.status(), elements.len()));
                }
                let (failed, made) = (StatusCode::INTERNAL_SERVER_ERROR, StatusCode::OK);
                assert_eq!(statuses, [(failed, 2), (made, 3)]);
                let elements = app.catalogue.get(AUDIT).unwrap().log.newest(10).unwrap();
                let last = elements.iter().filter_map(|element| element.values.last());
                let last: Vec<Value> = last.cloned().collect();
                assert_eq!(last, [200, 500, 200].map(Value::Integer));
            },
        );
    }
}
