//! What surrounds an entity of the registry, and what it was before.

use axum::Json;
use axum::extract::State;
use chappe_registry::{
    Differences, MAX_NEIGHBOURS, MAX_VERSIONS, NeighbourPage, Registry, SparqlError, Version,
};
use chappe_stream::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::entities::{Triple, unknown};
use super::paging::{Paging, cursor};
use super::params::{Name, Params};
use super::parts;
use super::problem::Problem;
use super::publish::registry_problem;
use super::{shapes, sparql};
use crate::accounts::{Caller, View};
use crate::permits::RequestKind;
use crate::shared::App;

/// Entries of a page without a limit.
const PAGE: usize = 50;

/// A part of the neighbours of an entity.
#[derive(Serialize, ToSchema)]
pub(crate) struct Surroundings {
    /// In the order of their keys.
    neighbours: Vec<Neighbour>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// An entity that another one names, or that names it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Neighbour {
    /// Its key.
    key: String,
    /// Its kind.
    #[schema(value_type = shapes::EntityKind)]
    kind: &'static str,
    name: String,
    /// The properties with which the entity of the request names it; `https://chappe.example/ns#about` if that
    /// makes statements about it.
    named_by: Vec<String>,
    /// The properties with which it names the entity of the request, likewise.
    names: Vec<String>,
}

/// A part of the history of an entity.
#[derive(Serialize, ToSchema)]
pub(crate) struct History {
    /// The newest first.
    changes: Vec<HistoryEntry>,
    /// The cursor of the next part, with older changes; null at the end.
    next: Option<String>,
    /// The first position of the registry's journal of which all changes are known.
    begins_at: u64,
    /// When that change was made (RFC 3339); null if it is not known.
    begins_time: Option<String>,
    /// Whether there may have been earlier changes, which the registry no longer knows.
    is_cut: bool,
}

/// A change of an entity, as the caller could see it then.
#[derive(Serialize, ToSchema)]
pub(crate) struct HistoryEntry {
    /// The position of the change in the registry's journal.
    position: u64,
    /// When it was made (RFC 3339); null if the store does not record it or has removed the record.
    time: Option<String>,
    /// `appeared`, `changed`, `rights` (only these changed) or `disappeared`; an entity also appears and
    /// disappears with the right to read it.
    change: &'static str,
    /// The name after the change, or the last one.
    name: String,
    /// What differs from the version before; null unless both are stored.
    differences: Option<EntityDifferences>,
}

/// What differs between two versions of an entity.
#[derive(Serialize, ToSchema)]
pub(crate) struct EntityDifferences {
    /// Which of name, kind, types, scopes, owner and lease differ.
    fields: Vec<&'static str>,
    /// Properties that were added, the first 50.
    added: Vec<Triple>,
    /// How many were added.
    added_count: usize,
    /// Properties that were removed, the first 50.
    removed: Vec<Triple>,
    /// How many were removed.
    removed_count: usize,
}

impl HistoryEntry {
    fn of(key: &str, version: Version) -> Self {
        Self {
            position: version.revision,
            time: version.time_ns.map(|time| Timestamp(time).to_string()),
            change: version.change.as_str(),
            name: version.name,
            differences: version
                .differences
                .map(|differences| EntityDifferences::of(key, differences)),
        }
    }
}

impl EntityDifferences {
    fn of(key: &str, differences: Differences) -> Self {
        let shown = |triples: &[chappe_registry::oxrdf::Triple]| {
            let triples = triples.iter();
            triples.map(|triple| Triple::of(key, triple)).collect()
        };
        Self {
            fields: differences.fields,
            added: shown(&differences.added),
            added_count: differences.added_count,
            removed: shown(&differences.removed),
            removed_count: differences.removed_count,
        }
    }
}

/// The entities that an entity names, and those that name it.
///
/// Pieces of metadata are listed at `/api/v1/registry/metadata`, and here only if their value names the entity.
#[utoipa::path(get, path = "/api/v1/entities/{key}/surroundings", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded"), Paging),
    responses((status = 200, body = Surroundings), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn surroundings(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
    Params(paging): Params<Paging>,
) -> Result<Json<Surroundings>, Problem> {
    paging.limit()?;
    let after = paging.after("surroundings")?;
    let limit = paging.limit.unwrap_or(PAGE).min(MAX_NEIGHBOURS);
    let (_, interrupt) = sparql::limits(&app);
    let work = read(app, caller, move |registry, reader, view| {
        let keep = |entity: &chappe_registry::Entity| view.has_entity(entity);
        let is_hidden = || {
            let entity = registry.get(&key, reader);
            entity.is_some_and(|entity| !view.has_entity(&entity))
        };
        let is_whole = view.is_whole();
        if !is_whole && is_hidden() {
            return Err(unknown(&key));
        }
        let page = NeighbourPage {
            after: after.as_deref(),
            limit,
            keep: (!is_whole).then_some(&keep),
        };
        let found = registry.surroundings(&key, reader, page, &interrupt);
        let found = found.map_err(|error: SparqlError| sparql::problem(&error))?;
        found.ok_or_else(|| unknown(&key))
    });
    let found = work.await?;
    let neighbours = found.neighbours.into_iter().map(|neighbour| Neighbour {
        key: neighbour.key,
        kind: neighbour.kind.as_str(),
        name: neighbour.name,
        named_by: neighbour.named_by_middle,
        names: neighbour.names_middle,
    });
    Ok(Json(Surroundings {
        neighbours: neighbours.collect(),
        next: found.next.map(|key| cursor("surroundings", &key)),
    }))
}

/// The recorded changes of an entity, newest first.
///
/// Each change is shown as the caller could see it when it was made. The registry keeps its newest 10,000 changes;
/// after a restart, those since its newest snapshot. `is_cut` means that older changes may be missing. The history of a
/// removed entity is kept as long.
#[utoipa::path(get, path = "/api/v1/entities/{key}/history", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded"), Paging),
    responses((status = 200, body = History), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn history(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
    Params(paging): Params<Paging>,
) -> Result<Json<History>, Problem> {
    paging.limit()?;
    let before = paging.after("history")?;
    let before = before.map(|text| {
        let position = text.parse::<u64>();
        position.map_err(|_| Problem::bad_request(format!("cursor: {text:?} is not a position")))
    });
    let before = before.transpose()?;
    let limit = paging.limit.unwrap_or(PAGE).min(MAX_VERSIONS);
    let work = read(app, caller, move |registry, reader, view| {
        // Of a removed entity the streams and scopes are not known, by which a role may be restricted.
        let entity = registry.get(&key, reader);
        let is_seen = view.is_whole() || entity.is_some_and(|entity| view.has_entity(&entity));
        let history = match is_seen {
            true => registry.history(&key, reader, before, limit),
            false => Ok(None),
        };
        let history = history.map_err(|error| registry_problem(&error))?;
        Ok((history.ok_or_else(|| unknown(&key))?, key))
    });
    let (history, key) = work.await?;
    let changes = history.versions.into_iter();
    Ok(Json(History {
        changes: changes.map(|it| HistoryEntry::of(&key, it)).collect(),
        next: history.next.map(|at| cursor("history", &at.to_string())),
        begins_at: history.begins_at,
        begins_time: history.begins_ns.map(|time| Timestamp(time).to_string()),
        is_cut: history.is_cut,
    }))
}

/// Reads the registry in the name of a caller on a thread that may take long, with a permit for a query,
/// for which it waits shortly.
pub(super) async fn read<T: Send + 'static>(
    app: App,
    caller: Caller,
    read: impl FnOnce(&Registry, &chappe_registry::Principal, &View<'_>) -> Result<T, Problem>
    + Send
    + 'static,
) -> Result<T, Problem> {
    let permit = parts::permit_soon(&app, &caller, RequestKind::Query).await?;
    let work = tokio::task::spawn_blocking(move || {
        let view = View::of_reader(&app, &caller);
        let answer = read(&app.registry, &caller.reader(), &view);
        drop(permit);
        answer
    });
    work.await
        .unwrap_or_else(|_| Err(Problem::internal("reading the registry failed")))
}
