//! WSDL documents over SOAP 1.1.
//!
//! Requests and answers are those of [`chappe_registry::wsdl::message`]; their WSDL describes them, not the OpenAPI
//! document. A change needs a token of get_authToken, as publication over UDDI does; it has the same faults, limits and
//! records, and a signature can take the token's place. An inquiry needs the role `read`: of the token in the message
//! if there is one, else of the HTTP request.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use chappe_identity::{Reach, Role};
use chappe_registry::uddi::message::fault_text;
use chappe_registry::uddi::{Error, ErrorCode, Publisher};
use chappe_registry::wsdl::NewDocument;
use chappe_registry::wsdl::message::{self, Add, Answer, Message, Request};
use chappe_registry::{Access, Attempts, Publication, Right};

use super::publish::{is_own_key, room};
use super::uddi::{self, Outcome};
use super::write::memory;
use crate::accounts::{Caller, Change};
use crate::clock;
use crate::documents::{self, Collected, media_type_of};
use crate::registrar::{NODE_OWNER, OWN_KEYS, key_bits};
use crate::shared::App;

/// The path of the port.
pub(super) const PATH: &str = "/uddi/wsdl";

/// The WSDL of the port.
pub(super) async fn describe(State(app): State<App>, headers: HeaderMap) -> Response {
    let address = uddi::address(&app, &headers, PATH);
    uddi::soap(StatusCode::OK, message::wsdl(&address))
}

/// Answers a request. A change and the record of it complete even if the client disconnects meanwhile.
pub(super) async fn answer(State(app): State<App>, request: HttpRequest) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = peer.map(|ConnectInfo(peer)| peer.ip());
    let caller = request.extensions().get::<Caller>();
    let caller = caller.cloned().unwrap_or_default();
    let body = request.into_body();
    let of = app.clone();
    let running = tokio::spawn(async move {
        let bytes = uddi::read(&of, body).await?;
        let read = move |app: &App| message::receive(&bytes, uddi::limits(app), &app.identity.name);
        match uddi::run(&of, &caller, read).await? {
            Err(fault) => Ok(uddi::faulty(fault_text(fault))),
            Ok(message) if message.request.is_change() => {
                let mut attempts = Attempts::default();
                loop {
                    let mut outcome = change(&of, message.clone(), &caller, address).await?;
                    if outcome.is_settled(&of, &mut attempts).await {
                        return Ok(outcome.complete(&of).await);
                    }
                }
            }
            Ok(message) => inquire(&of, caller, message).await,
        }
    });
    match running.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => uddi::failed(&app, &error),
        Err(_) => {
            let error = Error::new(ErrorCode::FatalError, "the request failed");
            uddi::failed(&app, &error)
        }
    }
}

async fn inquire(app: &App, caller: Caller, message: Message) -> Result<Response, Error> {
    let caller = match message.token.as_deref() {
        Some(token) => uddi::publisher(app, Some(token), &caller)?,
        None => caller,
    };
    if caller.reach(Role::Read) != Reach::All {
        let detail = "reading needs the role read for the whole node: send a token of get_authToken as authInfo, or \
                      a credential over HTTP";
        return Err(Error::new(ErrorCode::AuthTokenRequired, detail));
    }
    let reader = caller.reader();
    let answered = uddi::run(app, &caller, move |app| {
        message.request.answer(&uddi::inquiry(app, &reader))
    });
    let answer = answered.await??;
    Ok(uddi::soap(StatusCode::OK, answer.to_text()))
}

/// Adds or removes documents, without waiting for the disk.
async fn change(
    app: &App,
    message: Message,
    sender: &Caller,
    address: Option<IpAddr>,
) -> Result<Outcome, Error> {
    let Message {
        name,
        token,
        request,
    } = message;
    let caller = uddi::publisher(app, token.as_deref(), sender)?;
    let record = |subject: String| Change {
        account: caller.name().to_owned(),
        address,
        operation: "uddi_wsdl",
        method: "POST".to_owned(),
        path: PATH.to_owned(),
        subject: Some(subject),
        status: 0,
    };
    let begun = app
        .shares
        .begin_change(&caller, record(String::new()).text_bytes());
    let charge = begun.map_err(|wait| uddi::no_audit_room(&caller, wait))?;
    let done = match uddi::may_publish(&caller) {
        Ok(()) => run(app, &caller, request, address).await,
        Err(error) => Err(error),
    };
    Ok(match done {
        Ok((answer, publication)) => {
            let subject = format!("{name} {}", answer.keys().join(", "));
            let answer = uddi::soap(StatusCode::OK, answer.to_text());
            Outcome::answered(app, answer, publication, (record(subject), charge))
        }
        Err(error) => {
            let subject = format!("{name} {}", error.code.as_str());
            Outcome::failed(app, &caller, error, Some((record(subject), charge)))
        }
    })
}

async fn run(
    app: &App,
    caller: &Caller,
    request: Request,
    address: Option<IpAddr>,
) -> Result<(Answer, Option<Publication>), Error> {
    match request {
        Request::Add(add) => add_document(app, caller, add, address).await,
        Request::Remove(name) => {
            let of = caller.clone();
            let removed = uddi::run(app, caller, move |app| {
                let (document, _) = uddi::inquiry(app, &of.reader()).document_at(&name)?;
                let publication = remove(app, &of, &document.key)?;
                Ok::<_, Error>((Answer::Removed(document.key), publication))
            });
            removed.await?
        }
        _ => Err(Error::new(
            ErrorCode::Unsupported,
            "the request changes nothing",
        )),
    }
}

/// Refuses a key that is for the node's own entities.
pub(super) fn check_key(key: &str) -> Result<(), Error> {
    match is_own_key(key) {
        true => Err(Error::new(
            ErrorCode::InvalidKeyPassed,
            format!("keys that begin with {OWN_KEYS} are for the node's own entities"),
        )),
        false => Ok(()),
    }
}

/// Adds a document with those that it imports.
pub(super) async fn add_document(
    app: &App,
    caller: &Caller,
    add: Add,
    address: Option<IpAddr>,
) -> Result<(Answer, Option<Publication>), Error> {
    let media_type = match add.media_type.as_deref() {
        None => None,
        Some(text) => Some(media_type_of(text).ok_or_else(|| {
            let detail = format!("the media type {text:.100?} is not one of XML");
            Error::new(ErrorCode::ValueNotAllowed, detail)
        })?),
    };
    let names = [&add.key, &add.url];
    names
        .into_iter()
        .flatten()
        .try_for_each(|key| check_key(key))?;
    let first = NewDocument {
        key: add.key,
        location: add.url,
        media_type,
        bytes: add.content.unwrap_or_default(),
    };
    // Held until the documents are in the registry, however slowly they come.
    let _memory = memory(app, caller, documents::BYTES_MAX)
        .map_err(|problem| Error::new(ErrorCode::Busy, problem.detail))?;
    let Collected { documents, unread } = documents::collect(app, address, first).await?;
    let (of, business) = (caller.clone(), add.business);
    let saved = uddi::run(app, caller, move |app| {
        publish(app, &of, of.name(), |publisher| {
            publisher.put_documents(&documents, business)
        })
    });
    let saved = saved.await??;
    Ok((Answer::Added(saved.value, unread), saved.publication))
}

/// Removes a document, in its owner's name if the caller has the right to change it.
pub(super) fn remove(app: &App, caller: &Caller, key: &str) -> Result<Option<Publication>, Error> {
    let reader = caller.reader();
    let document = app.registry.get(key, &reader);
    let changeable =
        document.filter(|known| known.owner != NODE_OWNER && known.permits(&reader, Right::Write));
    let owner = changeable.map_or_else(|| caller.name().to_owned(), |known| known.owner);
    let keys = [key.to_owned()];
    let removed = publish(app, caller, &owner, |publisher| {
        publisher.remove_documents(&keys)
    })?;
    Ok(removed.publication)
}

/// Runs a request in the name of `owner`, within the share of the caller.
fn publish<T>(
    app: &App,
    caller: &Caller,
    owner: &str,
    request: impl FnOnce(&mut Publisher<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut bits = key_bits().map_err(|error| Error::new(ErrorCode::Busy, error.to_string()))?;
    let unix_ms = clock::now().0 / 1_000_000;
    let publisher = Publisher::new(&app.registry, owner, Access::Public, unix_ms, &mut bits);
    request(
        &mut publisher
            .acting_as(caller.reader())
            .within(room(app, caller))
            .checking(&app.taxonomies),
    )
}
