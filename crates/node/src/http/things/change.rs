//! Registering, changing and removing Thing Descriptions.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::thing::{Author, Changed, ThingError, long_integer};
use chappe_registry::{Attempts, Error, Registry, Room};
use chappe_transport::Hop;
use serde_json::{Value, json};

use super::super::publish::is_own_key;
use super::{ThingDescription, foreign, refusal};
use crate::accounts::Caller;
use crate::clock;
use crate::http::guard::Subject;
use crate::http::params::{self, Name};
use crate::http::parts;
use crate::http::problem::{InvalidThing, Problem, code};
use crate::http::publish::room;
use crate::permits::RequestKind;
use crate::registrar::OWN_KEYS;
use crate::shared::App;
use crate::things;

/// Registers a Thing Description without an id. The directory gives it one, a UUID as a URN.
#[utoipa::path(post, path = "/things", tag = "things",
    request_body(content(
        (ThingDescription = "application/td+json"), (ThingDescription = "application/json"),
        (ThingDescription = "application/ld+json"))),
    responses((status = 201, description = "`Location` names the thing"),
        (status = 400, content_type = "application/problem+json", body = InvalidThing, description = "`validationErrors` names the faults"),
        (status = 413, body = Problem), (status = 415, body = Problem), (status = 429, body = Problem),
        (status = 507, body = Problem)))]
pub(crate) async fn register(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let mut document = read(&app, &headers, &DOCUMENTS, body).await?;
    if document.get("id").is_some() {
        let problem = Problem::bad_request("a Thing Description with an id cannot be sent by POST");
        let problem = problem.hint("send it by PUT to /things/ and its id, percent-encoded");
        return Err(problem.into_response());
    }
    let id = random_urn().map_err(IntoResponse::into_response)?;
    if let Some(members) = document.as_object_mut() {
        members.insert("id".to_owned(), json!(id));
    }
    change(&app, &caller, &id, move |registry, author, room, now_ms| {
        registry.put_thing(&document, author, room, now_ms)
    })
    .await
}

/// Registers a Thing Description with an id, or replaces the one with this id.
#[utoipa::path(put, path = "/things/{id}", tag = "things",
    params(("id" = String, Path, description = "The thing's id, percent-encoded")),
    request_body(content(
        (ThingDescription = "application/td+json"), (ThingDescription = "application/json"),
        (ThingDescription = "application/ld+json"))),
    responses((status = 201, description = "the thing is new"), (status = 204, description = "the thing is replaced"),
        (status = 400, content_type = "application/problem+json", body = InvalidThing, description = "`validationErrors` names the faults"),
        (status = 403, body = Problem, description = "the thing belongs to another account, or is a discovered device"),
        (status = 409, body = Problem, description = "the id is the key of another kind of entity"),
        (status = 413, body = Problem), (status = 415, body = Problem), (status = 429, body = Problem),
        (status = 507, body = Problem)))]
pub(crate) async fn put(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Name(id): Name,
    body: Body,
) -> Result<Response, Response> {
    refuse_own(&id).map_err(IntoResponse::into_response)?;
    let document = read(&app, &headers, &DOCUMENTS, body).await?;
    let of_document = document.get("id").and_then(Value::as_str);
    if document.is_object() && of_document != Some(&id) {
        let detail = match of_document {
            Some(other) => {
                format!("the id of the document is {other:.120?}, that of the path {id:?}")
            }
            None => "the document has no id".to_owned(),
        };
        let hint = "a Thing Description without an id is sent by POST to /things";
        return Err(Problem::bad_request(detail).hint(hint).into_response());
    }
    change(&app, &caller, &id, move |registry, author, room, now_ms| {
        registry.put_thing(&document, author, room, now_ms)
    })
    .await
}

/// Changes members of a Thing Description by a merge patch (RFC 7396), and restarts its time to
/// live.
#[utoipa::path(patch, path = "/things/{id}", tag = "things",
    params(("id" = String, Path, description = "The thing's id, percent-encoded")),
    request_body(content((ThingDescription = "application/merge-patch+json"))),
    responses((status = 204), (status = 404, body = Problem),
        (status = 400, content_type = "application/problem+json", body = InvalidThing, description = "`validationErrors` names the faults of the result"),
        (status = 403, body = Problem, description = "the thing belongs to another account, or is a discovered device"),
        (status = 409, body = Problem, description = "the id is the key of another kind of entity"),
        (status = 413, body = Problem), (status = 415, body = Problem), (status = 429, body = Problem),
        (status = 507, body = Problem)))]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Name(id): Name,
    body: Body,
) -> Result<Response, Response> {
    refuse_own(&id).map_err(IntoResponse::into_response)?;
    let patch = read(&app, &headers, &["application/merge-patch+json"], body).await?;
    let key = id.clone();
    change(&app, &caller, &id, move |registry, author, room, now_ms| {
        registry.patch_thing(&key, &patch, author, room, now_ms)
    })
    .await
}

/// Removes a Thing Description.
#[utoipa::path(delete, path = "/things/{id}", tag = "things",
    params(("id" = String, Path, description = "The thing's id, percent-encoded")),
    responses((status = 204), (status = 404, body = Problem),
        (status = 403, body = Problem, description = "the thing belongs to another account, or is a discovered device"),
        (status = 409, body = Problem, description = "the id is the key of another kind of entity"),
        (status = 429, body = Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Name(id): Name,
) -> Result<Response, Response> {
    refuse_own(&id).map_err(IntoResponse::into_response)?;
    let key = id.clone();
    change(&app, &caller, &id, move |registry, author, _, _| {
        registry.remove_thing(&key, author)
    })
    .await
}

/// The content types of documents; a request without one is taken as the first.
const DOCUMENTS: [&str; 3] = [
    "application/td+json",
    "application/json",
    "application/ld+json",
];

/// Reads a JSON body of one of these content types.
async fn read(
    app: &App,
    headers: &HeaderMap,
    kinds: &[&str],
    body: Body,
) -> Result<Value, Response> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.map(|kind| kind.to_str().unwrap_or_default());
    let name = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    let is_known = |name: &str| kinds.iter().any(|kind| kind.eq_ignore_ascii_case(name));
    // A patch has to be named as one (section 7.3.2.1.3).
    if !name.map_or(kinds.len() > 1, is_known) {
        let detail = match name {
            Some(name) => format!("the content type is {name:.80?}"),
            None => "the request has no content type".to_owned(),
        };
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
        let hint = format!("send it as {}", kinds[0]);
        return Err(problem.hint(hint).into_response());
    }
    let bytes = params::body(app, body).await;
    let bytes = bytes.map_err(IntoResponse::into_response)?;
    let document = params::json_of(&bytes).map_err(IntoResponse::into_response)?;
    match long_integer(&bytes) {
        Some(number) => {
            let detail = format!("the integer {number:.80} has more than 64 bits");
            let problem = Problem::bad_request(detail);
            Err(problem.hint("write it as a string").into_response())
        }
        None => Ok(document),
    }
}

/// Refuses changes of what the node itself describes.
fn refuse_own(id: &str) -> Result<(), Problem> {
    match is_own_key(id) {
        true => {
            let detail = format!(
                "ids with the prefix {OWN_KEYS} are reserved for things that the node itself describes"
            );
            Err(foreign(detail))
        }
        false => Ok(()),
    }
}

/// A new id: a UUID of version 4 as a URN.
fn random_urn() -> Result<String, Problem> {
    let seed = chappe_transport::seed();
    let seed = seed.map_err(|error| Problem::unavailable(error.to_string()))?;
    let bits = seed[..16]
        .iter()
        .fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let text = format!("{bits:032x}");
    Ok(format!(
        "urn:uuid:{}-{}-{}-{}-{}",
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..]
    ))
}

/// Makes a change on a thread that may block, and waits until it is durable.
async fn change(
    app: &App,
    caller: &Caller,
    id: &str,
    make: impl Fn(&Registry, Author<'_>, &Room, i64) -> Result<Changed, ThingError>
    + Send
    + Sync
    + 'static,
) -> Result<Response, Response> {
    let make = Arc::new(make);
    let mut attempts = Attempts::default();
    let made = loop {
        let permit = parts::permit_soon(app, caller, RequestKind::Query).await;
        let permit = permit.map_err(IntoResponse::into_response)?;
        let (of, author, key) = (app.clone(), caller.clone(), id.to_owned());
        let make = Arc::clone(&make);
        let work = tokio::task::spawn_blocking(move || {
            let room = room(&of, &author);
            let principal = author.reader();
            let author = Author {
                name: author.name(),
                principal: &principal,
            };
            let changed = make(&of.registry, author, &room, clock::now().0 / 1_000_000);
            drop(permit);
            // Clients that follow changes see this one as soon as it is durable.
            if let Ok(Changed {
                publication,
                patch: Some(patch),
                ..
            }) = &changed
            {
                of.things.remember(publication.position(), &key, patch);
            }
            changed
        });
        let work = work
            .await
            .map_err(|_| Problem::internal("the change failed").into_response())?;
        let changed = match work {
            Ok(changed) => changed,
            Err(error) => break Err(error),
        };
        let position = changed.publication.position();
        match attempts.settle(Some(changed.publication)).await {
            Ok(true) => break Ok(changed.is_new),
            Ok(false) => app.things.forget(position, id),
            Err(error) => break Err(ThingError::from(error)),
        }
    };
    match made {
        Ok(true) => {
            let location = format!("/things/{}", things::device::encoded(id));
            let subject = Extension(Subject(id.to_owned()));
            Ok((StatusCode::CREATED, subject, [(header::LOCATION, location)]).into_response())
        }
        Ok(false) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(error) => {
            if let ThingError::Registry(Error::NoRoom {
                is_owners: true, ..
            }) = &error
            {
                let (drops, reason) = (&app.observability.drops, code::SHARE_OF_REGISTRY);
                drops.record(Hop::Http, reason, caller.name(), error.to_string(), None);
            }
            Err(refusal(&error))
        }
    }
}
