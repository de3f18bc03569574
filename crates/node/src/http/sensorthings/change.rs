//! Changes and removes created entities (18-088, clauses 10.3 and 10.4).

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use chappe_identity::Role;
use chappe_registry::{Principal, Right};
use chappe_sensorthings::body::{Linked, changes};
use chappe_sensorthings::{Entity, EntityType, Fault, ResourcePath, Tail};
use serde_json::Value as Json;

use super::super::guard::Subject;
use super::super::problem::Problem;
use super::super::publish::registry_problem;
use super::create::Plan;
use super::documents::{Document, key};
use super::store::{check_role, check_thing, check_times, publish, remove, replace};
use super::streams::parse_datastream_id;
use super::{entities_of, not_allowed, problem, with_entities};
use crate::accounts::Caller;
use crate::catalogue;
use crate::shared::App;

/// The entity at the end of a path.
async fn at_end(app: &App, caller: &Caller, path: &ResourcePath) -> Result<Entity, Problem> {
    let path = path.clone();
    let found = with_entities(app, caller, None, move |reading| {
        let (_, here) = entities_of(reading, &path)?;
        here.ok_or_else(|| Fault::missing("the path names no entity"))
    });
    found.await?.map_err(problem)
}

/// The thing that a history is of.
async fn thing_of(app: &App, caller: &Caller, history: &Entity) -> Result<Option<String>, Problem> {
    if history.kind != EntityType::HistoricalLocation {
        return Ok(None);
    }
    let history = history.clone();
    let found = with_entities(app, caller, None, move |reading| {
        let links = history.kind.links().iter();
        let mut links = links.filter(|link| link.target == EntityType::Thing);
        let things = links
            .next()
            .map(|link| reading.snapshot.related(&history, *link));
        let things = things.transpose()?.unwrap_or_default();
        Ok::<_, Fault>(things.first().map(|thing| thing.id.clone()))
    });
    found.await?.map_err(problem)
}

/// The document of a created entity that the caller may change.
fn document_of(app: &App, caller: &Caller, entity: &Entity) -> Result<Document, Problem> {
    let key = key(entity.kind, &entity.id);
    let found = app.registry.require(&key, &caller.reader(), Right::Write);
    let found = found.map_err(|error| match error {
        chappe_registry::Error::Unknown(_) => Problem::new(
            StatusCode::CONFLICT,
            format!(
                "the {} {:?} is derived from a stream or its source",
                entity.kind.name(),
                entity.id
            ),
        )
        .hint("only entities that were created by POST are changed and removed here"),
        error => registry_problem(&error),
    })?;
    let document = Document::of(entity.kind, &found);
    document.ok_or_else(|| Problem::internal("a stored entity cannot be read"))
}

fn check_path(path: &ResourcePath, method: &Method) -> Result<(), Problem> {
    if path.tail != Tail::Whole || path.is_set() {
        return Err(not_allowed(method, "name one entity"));
    }
    match path.target() {
        Some(EntityType::Observation) => Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            "observations are elements of a stream, which are never changed or removed one by one",
        )
        .hint("the retention of a stream removes old ones")),
        _ => Ok(()),
    }
}

/// Changes members of an entity.
pub(super) async fn patch(
    app: &App,
    caller: &Caller,
    path: &ResourcePath,
    body: &Json,
) -> Result<Response, Problem> {
    check_role(caller, Role::Write)?;
    check_path(path, &Method::PATCH)?;
    let entity = at_end(app, caller, path).await?;
    let new = changes(entity.kind, body).map_err(problem)?;
    let locations = locations(&entity, &new.links)?;
    if entity.kind == EntityType::Datastream {
        let fixed = ["observationType", "unitOfMeasurement"];
        if let Some(name) = fixed
            .iter()
            .find(|name| new.properties.contains_key(**name))
        {
            let detail = format!("{name} of a Datastream is that of its stored observations");
            return Err(
                Problem::new(StatusCode::NOT_IMPLEMENTED, detail).hint("create another Datastream")
            );
        }
    }
    // Before anything is stored: a change of one part may be allowed, and of the other not.
    if locations.is_some() {
        check_thing(app, caller, &entity.id)?;
    }
    if !new.properties.is_empty() {
        if let Some(thing) = thing_of(app, caller, &entity).await? {
            check_thing(app, caller, &thing)?;
        }
        let mut document = document_of(app, caller, &entity)?;
        for (name, value) in new.properties {
            match value {
                Json::Null => document.properties.remove(&name),
                value => document.properties.insert(name, value),
            };
        }
        check_times(app, std::slice::from_ref(&document))?;
        replace(app, caller, &document).await?;
    }
    if let Some(locations) = locations {
        let thing = entity.id.clone();
        let planned = with_entities(app, caller, None, move |reading| {
            for id in &locations {
                if reading.snapshot.get(EntityType::Location, id).is_none() {
                    return Err(Fault::invalid("there is no such Location"));
                }
            }
            let mut plan = Plan::default();
            plan.add_history(&thing, &locations)?;
            Ok::<_, Fault>(plan)
        });
        let plan = planned.await?.map_err(problem)?;
        publish(app, caller, &plan.documents).await?;
    }
    let mut response = StatusCode::OK.into_response();
    let subject = Subject(key(entity.kind, &entity.id));
    response.extensions_mut().insert(subject);
    Ok(response)
}

/// The new locations of a thing, if a change names them.
fn locations(
    entity: &Entity,
    links: &[(chappe_sensorthings::Link, Vec<Linked>)],
) -> Result<Option<Vec<String>>, Problem> {
    let mut locations = None;
    for (link, ends) in links {
        let ids = ends.iter().map(|end| match end {
            Linked::Existing(id) => Some(id.clone()),
            Linked::New(_) => None,
        });
        let ids: Option<Vec<String>> = ids.collect();
        match (entity.kind, link.target, ids) {
            (EntityType::Thing, EntityType::Location, Some(ids)) => locations = Some(ids),
            _ => {
                let detail = format!("{} cannot be changed by PATCH", link.name);
                return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail)
                    .hint("only the Locations of a Thing can, by their @iot.id"));
            }
        }
    }
    Ok(locations)
}

/// Removes an entity, with those that cannot be without it.
pub(super) async fn delete(
    app: &App,
    caller: &Caller,
    path: &ResourcePath,
) -> Result<Response, Problem> {
    check_role(caller, Role::Write)?;
    check_path(path, &Method::DELETE)?;
    let entity = at_end(app, caller, path).await?;
    // The histories of a thing are its owner's to remove, whoever created them.
    let thing = thing_of(app, caller, &entity).await?;
    let is_of_own = thing.is_some_and(|thing| check_thing(app, caller, &thing).is_ok());
    if !is_of_own {
        document_of(app, caller, &entity)?;
    }
    let of = entity.clone();
    let found = with_entities(app, caller, None, move |reading| {
        let snapshot = &reading.snapshot;
        let mut datastreams = Vec::new();
        let mut histories = Vec::new();
        for link in of.kind.links() {
            let related = || snapshot.related(&of, *link);
            match (of.kind, link.target) {
                (
                    EntityType::Thing | EntityType::Sensor | EntityType::ObservedProperty,
                    EntityType::Datastream,
                ) => datastreams = related()?,
                (EntityType::Thing | EntityType::Location, EntityType::HistoricalLocation) => {
                    histories = related()?;
                }
                _ => {}
            }
        }
        Ok::<_, Fault>((datastreams, histories))
    });
    let (mut datastreams, histories) = found.await?.map_err(problem)?;
    if entity.kind == EntityType::Datastream {
        datastreams = vec![std::sync::Arc::new(entity.clone())];
    }
    if !datastreams.is_empty() {
        // Their streams go with all elements, as by DELETE of a stream.
        check_role(caller, Role::Operate)?;
    }
    for datastream in &datastreams {
        document_of(app, caller, datastream)?;
    }
    for datastream in &datastreams {
        let stream = parse_datastream_id(&datastream.id).map_or("", |(stream, _)| stream);
        match catalogue::remove(app, stream, true).await {
            Ok(_) | Err(catalogue::RemovalError::Unknown(_)) => {}
            Err(error) => {
                let problem = Problem::new(StatusCode::CONFLICT, error.to_string());
                return Err(problem.hint(error.hint()));
            }
        }
    }
    let all = datastreams
        .iter()
        .chain(&histories)
        .map(|it| (it.kind, it.id.clone()));
    let mut all: Vec<(EntityType, String)> = all.collect();
    all.push((entity.kind, entity.id.clone()));
    // The rights to a thing and to its datastreams were looked at above.
    let reader = match is_of_own || entity.kind == EntityType::Thing {
        true => Principal::Operator,
        false => caller.reader(),
    };
    remove(app, caller, &reader, &all).await?;
    let mut response = StatusCode::OK.into_response();
    let subject = Subject(key(entity.kind, &entity.id));
    response.extensions_mut().insert(subject);
    Ok(response)
}
