//! Stores created entities in the registry, and answers once they are stored.

use axum::Extension;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_identity::Role;
use chappe_registry::{Attempts, Entity, Error, Principal, Right};
use chappe_sensorthings::{EntityType, Fault, quoted};
use chappe_stream::Timestamp;
use chappe_transport::Hop;

use super::super::guard::{Subject, for_the_whole_node};
use super::super::problem::{Problem, code};
use super::super::publish::{registry_problem, room};
use super::documents::{Document, key};
use super::observe::future_ns;
use super::problem;
use crate::accounts::Caller;
use crate::clock;
use crate::shared::App;

/// A new id.
///
/// # Errors
/// The system has no random bytes.
pub(super) fn new_id() -> Result<String, Problem> {
    let number = chappe_transport::seed_number();
    let number = number.map_err(|error| Problem::internal(error.to_string()))?;
    Ok(format!("{number:016x}"))
}

/// Entities belong to the whole node, so that creating them needs a role for it.
pub(super) fn check_role(caller: &Caller, role: Role) -> Result<(), Problem> {
    for_the_whole_node(caller, role).map_err(|(_, problem)| problem)
}

/// Whether the caller may move a thing or add datastreams to it: it needs the right to change the thing. A
/// thing without a document has no owner, so that only an administrator may.
pub(super) fn check_thing(app: &App, caller: &Caller, thing: &str) -> Result<(), Problem> {
    let key = key(EntityType::Thing, thing);
    match app.registry.require(&key, &caller.reader(), Right::Write) {
        Ok(_) => Ok(()),
        Err(Error::Unknown(_)) => check_role(caller, Role::Administer),
        Err(error) => Err(registry_problem(&error)),
    }
}

/// Refuses histories that are further ahead of the clock than elements may be: they would hide where a thing
/// is for as long.
pub(super) fn check_times(app: &App, documents: &[Document]) -> Result<(), Problem> {
    let latest = clock::now().0.saturating_add(future_ns(app));
    let histories = documents.iter();
    let histories = histories.filter(|it| it.kind == EntityType::HistoricalLocation);
    for history in histories {
        let time = history.properties.get("time").and_then(|it| it.as_str());
        let time = time.and_then(Timestamp::parse);
        if let Some(time) = time.filter(|time| time.0 > latest) {
            return Err(problem(Fault::Invalid(format!(
                "HistoricalLocation: time {time} is too far ahead of the node's clock (limits.future_s)"
            ))));
        }
    }
    Ok(())
}

/// Stores new entities, all of them or none.
pub(super) async fn publish(
    app: &App,
    caller: &Caller,
    documents: &[Document],
) -> Result<(), Problem> {
    let entities = documents
        .iter()
        .map(|document| document.entity(caller.name()));
    let entities: Vec<Entity> = entities.collect::<Result<_, _>>().map_err(problem)?;
    let (reader, room) = (caller.reader(), room(app, caller));
    let mut attempts = Attempts::default();
    let published = async {
        loop {
            let publication = app.registry.publish_new_as(&reader, &entities, &room)?;
            if attempts.settle(publication).await? {
                return Ok::<(), Error>(());
            }
        }
    };
    published
        .await
        .map_err(|error| refused(app, caller, &error))
}

/// Stores a changed entity, and new ones with it.
pub(super) async fn replace(
    app: &App,
    caller: &Caller,
    document: &Document,
) -> Result<(), Problem> {
    let entity = document.entity(caller.name()).map_err(problem)?;
    let (reader, room) = (caller.reader(), room(app, caller));
    let mut attempts = Attempts::default();
    let published = async {
        loop {
            let publication = app.registry.publish_as(&reader, &entity, &room)?;
            if attempts.settle(publication).await? {
                return Ok::<(), Error>(());
            }
        }
    };
    published
        .await
        .map_err(|error| refused(app, caller, &error))
}

/// Removes entities in the name of `reader`, all of them or none.
pub(super) async fn remove(
    app: &App,
    caller: &Caller,
    reader: &Principal,
    documents: &[(EntityType, String)],
) -> Result<(), Problem> {
    let keys: Vec<String> = documents.iter().map(|(kind, id)| key(*kind, id)).collect();
    let mut attempts = Attempts::default();
    let removed = async {
        loop {
            let publication = app.registry.remove_all_as(reader, &keys)?;
            if attempts.settle(publication).await? {
                return Ok::<(), Error>(());
            }
        }
    };
    removed.await.map_err(|error| refused(app, caller, &error))
}

fn refused(app: &App, caller: &Caller, error: &Error) -> Problem {
    let is_share = matches!(
        error,
        Error::NoRoom {
            is_owners: true,
            ..
        } | Error::TooManyEntities { .. }
    );
    if is_share {
        let (drops, reason) = (&app.observability.drops, code::SHARE_OF_REGISTRY);
        drops.record(Hop::Http, reason, caller.name(), error.to_string(), None);
    }
    registry_problem(error)
}

/// The answer that an entity is stored, with its address.
pub(super) fn created(root: &str, kind: EntityType, id: &str) -> Response {
    let address = format!("{root}/{}({})", kind.set_name(), quoted(id));
    let subject = Extension(Subject(key(kind, id)));
    (StatusCode::CREATED, subject, [(header::LOCATION, address)]).into_response()
}
