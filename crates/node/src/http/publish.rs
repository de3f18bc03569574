//! Entities that clients publish in the registry.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term};
use chappe_registry::{
    Attempts, EntityKind, Error, JournalError, Right, Room, triples_from_turtle,
};
use chappe_transport::Hop;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::entities::{Entity, unknown_kind};
use super::guard::Subject;
use super::params::{self, Name};
use super::problem::{Problem, code};
use super::shapes::EntityKind as EntityKindShape;
use super::write::busy::{busy, with_pause};
use crate::accounts::{Caller, Unchanged};
use crate::registrar::{OWN_KEYS, Registrar};
use crate::shared::App;

/// Kinds that clients publish; the others exist when the node has them.
const KINDS: [EntityKind; 3] = [EntityKind::Device, EntityKind::Service, EntityKind::Other];

/// An entity to publish. Publishing a key again replaces the entity.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEntity {
    /// An absolute IRI, outside `urn:chappe:`.
    key: String,
    /// device, service or other. Default: other.
    #[serde(default)]
    #[schema(value_type = Option<EntityKindShape>)]
    kind: Option<String>,
    /// Its name, for people.
    name: String,
    /// `{namespace}local` each.
    #[serde(default)]
    types: Vec<String>,
    /// URIs.
    #[serde(default)]
    scopes: Vec<String>,
    /// Seconds after which it is removed, unless its lease is renewed or it is published again. Default: it
    /// stays.
    #[serde(default)]
    #[schema(minimum = 1)]
    lease_s: Option<u32>,
    /// Its properties.
    #[serde(default)]
    triples: Vec<NewTriple>,
    /// More properties, as a Turtle document; relative IRIs are resolved against the key.
    #[serde(default)]
    turtle: Option<String>,
}

/// A property of an entity.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTriple {
    /// The IRI or blank node (`_:label`) that it describes. Default: the entity itself.
    #[serde(default)]
    subject: Option<String>,
    /// An IRI.
    predicate: String,
    /// An IRI, a literal or the label of a blank node.
    object: String,
    /// iri, literal or blank. Default: literal.
    #[serde(default)]
    object_kind: ObjectKind,
    /// The datatype of a literal, an IRI. Default: plain text.
    #[serde(default)]
    datatype: Option<String>,
    /// The language of a literal (BCP 47), instead of a datatype.
    #[serde(default)]
    language: Option<String>,
}

/// Kinds of objects.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ObjectKind {
    /// An IRI.
    Iri,
    /// A literal.
    #[default]
    Literal,
    /// A blank node.
    Blank,
}

impl NewEntity {
    fn entity(self, owner: &str) -> Result<chappe_registry::Entity, Problem> {
        let kind = match &self.kind {
            None => EntityKind::Other,
            Some(word) => EntityKind::from_word(word).ok_or_else(|| unknown_kind(word))?,
        };
        if !KINDS.contains(&kind) {
            let kind = kind.as_str();
            return Err(
                invalid(format!("kind: only the node itself publishes a {kind}"))
                    .hint("publish a device, a service or other"),
            );
        }
        let subject = checked_key(&self.key)?;
        let mut entity = chappe_registry::Entity::new(self.key, kind, self.name);
        entity.owner = owner.to_owned();
        (entity.types, entity.scopes) = (self.types, self.scopes);
        entity.lease_s = self.lease_s;
        for (index, triple) in self.triples.into_iter().enumerate() {
            let triple = triple.triple(&subject);
            entity.triples.push(triple.map_err(|problem| Problem {
                detail: format!("triple {}: {}", index + 1, problem.detail),
                ..problem
            })?);
        }
        if let Some(turtle) = self.turtle {
            let triples = triples_from_turtle(&entity.key, &turtle);
            let triples = triples.map_err(|error| invalid(error.to_string()))?;
            entity.triples.extend(triples);
        }
        Ok(entity)
    }
}

impl NewTriple {
    fn triple(self, entity: &NamedNode) -> Result<chappe_registry::oxrdf::Triple, Problem> {
        let subject: NamedOrBlankNode = match self.subject.as_deref() {
            None => entity.clone().into(),
            Some(text) => match text.strip_prefix("_:") {
                Some(label) => blank("subject", label)?.into(),
                None => iri("subject", text)?.into(),
            },
        };
        let object: Term = match (self.object_kind, self.datatype, self.language) {
            (ObjectKind::Literal, None, None) => Literal::new_simple_literal(self.object).into(),
            (ObjectKind::Literal, Some(datatype), None) => {
                Literal::new_typed_literal(self.object, iri("datatype", &datatype)?).into()
            }
            (ObjectKind::Literal, None, Some(language)) => {
                let tagged = Literal::new_language_tagged_literal(self.object, &language);
                let tagged = tagged.map_err(|_| {
                    let shown: String = language.chars().take(80).collect();
                    invalid(format!(
                        "language: {shown:?} is not a language tag (BCP 47)"
                    ))
                });
                tagged?.into()
            }
            (ObjectKind::Literal, Some(_), Some(_)) => {
                return Err(invalid("a literal has a datatype or a language, not both"));
            }
            (ObjectKind::Iri | ObjectKind::Blank, Some(_), _) => {
                return Err(invalid("only a literal has a datatype"));
            }
            (ObjectKind::Iri | ObjectKind::Blank, None, Some(_)) => {
                return Err(invalid("only a literal has a language"));
            }
            (ObjectKind::Iri, None, None) => iri("object", &self.object)?.into(),
            (ObjectKind::Blank, None, None) => {
                let label = self.object.strip_prefix("_:").unwrap_or(&self.object);
                blank("object", label)?.into()
            }
        };
        let predicate = iri("predicate", &self.predicate)?;
        Ok(chappe_registry::oxrdf::Triple::new(
            subject, predicate, object,
        ))
    }
}

/// Whether a key is one of the node's own entities. The scheme and the namespace of a URN ignore case.
pub(super) fn is_own_key(key: &str) -> bool {
    let start = key.get(..OWN_KEYS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OWN_KEYS))
}

/// The key of an entity that a client may publish.
pub(super) fn checked_key(key: &str) -> Result<NamedNode, Problem> {
    if is_own_key(key) {
        return Err(invalid(format!(
            "key: {OWN_KEYS} is for the node's own entities"
        )));
    }
    iri("key", key)
}

fn iri(member: &str, text: &str) -> Result<NamedNode, Problem> {
    NamedNode::new(text).map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        invalid(format!("{member}: {shown:?} is not an absolute IRI"))
    })
}

fn blank(member: &str, label: &str) -> Result<BlankNode, Problem> {
    BlankNode::new(label).map_err(|_| {
        let shown: String = label.chars().take(80).collect();
        invalid(format!(
            "{member}: {shown:?} is not a label of a blank node"
        ))
    })
}

pub(super) fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// Publishes an entity in the registry: its type, its name and its properties.
#[utoipa::path(post, path = "/api/v1/entities", tag = "registry", request_body = NewEntity,
    responses((status = 200, body = Entity, description = "the entity is replaced"),
        (status = 201, body = Entity), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 409, body = Problem, description = "the key has another owner, or is that of a document, a \
            thing or a piece of metadata"),
        (status = 422, body = Problem, description = "the entity is invalid"),
        (status = 429, body = Problem), (status = 507, body = Problem, description = "the registry has reached \
            `registry.max_bytes`, the account has reached its share of it, or the disk is full")))]
pub(super) async fn publish(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Response> {
    let new: NewEntity = params::json(&app, body)
        .await
        .map_err(IntoResponse::into_response)?;
    let entity = new.entity(caller.name());
    let entity = entity.map_err(IntoResponse::into_response)?;
    published(&app, &caller, entity).await
}

/// Publishes an entity of the caller.
pub(super) async fn published(
    app: &App,
    caller: &Caller,
    entity: chappe_registry::Entity,
) -> Result<Response, Response> {
    let reader = caller.reader();
    let known = app.registry.get(&entity.key, &reader);
    if let Some(known) = &known
        && Registrar::is_node(&known.owner)
    {
        let (key, owner) = (known.key.clone(), known.owner.clone());
        return Err(registry_problem(&Error::NotOwner { key, owner }).into_response());
    }
    let status = match known {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    let room = room(app, caller);
    let published = async {
        let mut attempts = Attempts::default();
        loop {
            let publication = app.registry.publish_as(&reader, &entity, &room)?;
            let is_changed = publication.is_some();
            if attempts.settle(publication).await? {
                return Ok(is_changed);
            }
        }
    };
    match published.await {
        Ok(is_changed) => {
            let subject = Extension(Subject(entity.key.clone()));
            // Another's entity keeps its owner.
            let stored = app.registry.get(&entity.key, &reader);
            let shown = Json(Entity::of(stored.unwrap_or(entity)));
            let mut response = (status, subject, shown).into_response();
            if !is_changed {
                response.extensions_mut().insert(Unchanged);
            }
            Ok(response)
        }
        Err(error) => {
            if matches!(
                &error,
                Error::NoRoom {
                    is_owners: true,
                    ..
                } | Error::TooManyEntities { .. }
            ) {
                let (drops, reason) = (&app.observability.drops, code::SHARE_OF_REGISTRY);
                drops.record(Hop::Http, reason, caller.name(), error.to_string(), None);
            }
            Err(with_pause(registry_problem(&error)))
        }
    }
}

/// The room for what a caller publishes. It leaves a quarter of the registry to the node's own entities.
pub(super) fn room(app: &App, caller: &Caller) -> Room {
    let all = app.config.registry.max_bytes as usize;
    let own = app.shares.registry_part_of(caller, all);
    let entities = app.config.registry.max_entities as usize;
    let own_entities = app.shares.registry_part_of(caller, entities);
    Room {
        total_bytes: all / 4 * 3,
        owner_bytes: own.unwrap_or(usize::MAX),
        owner_entities: own_entities.unwrap_or(usize::MAX),
    }
}

/// The lease of an entity.
#[derive(Serialize, ToSchema)]
pub(crate) struct RenewedLease {
    key: String,
    /// Seconds from now after which it is removed, unless it is renewed.
    lease_s: u32,
}

/// Renews the lease of an entity: it starts again.
#[utoipa::path(post, path = "/api/v1/entities/{key}/renew", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded")),
    responses((status = 200, body = RenewedLease), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 403, body = Problem, description = "the caller may not write the entity"),
        (status = 409, body = Problem, description = "the entity has no lease, or belongs to the node"),
        (status = 429, body = Problem)))]
pub(super) async fn renew(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Json<RenewedLease>, Response> {
    let entity = app.registry.require(&key, &caller.reader(), Right::Write);
    let entity = entity.map_err(|error| registry_problem(&error).into_response())?;
    if Registrar::is_node(&entity.owner) {
        let owner = entity.owner;
        return Err(registry_problem(&Error::NotOwner { key, owner }).into_response());
    }
    let renewed = async { app.registry.renew(&key)?.await };
    match (renewed.await, entity.lease_s) {
        (Ok(_), Some(lease_s)) => Ok(Json(RenewedLease { key, lease_s })),
        (Ok(_), None) => Err(registry_problem(&Error::NoLease(key)).into_response()),
        (Err(error), _) => Err(with_pause(registry_problem(&error))),
    }
}

/// Removes an entity that a client published.
#[utoipa::path(delete, path = "/api/v1/entities/{key}", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the entity has another owner"),
        (status = 429, body = Problem)))]
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<StatusCode, Response> {
    let unknown = || Problem::not_found(format!("there is no entity {key:?}")).into_response();
    let entity = app
        .registry
        .get(&key, &caller.reader())
        .ok_or_else(unknown)?;
    if entity.kind == EntityKind::Document && !Registrar::is_node(&entity.owner) {
        let detail = "a document is removed with its tModels and services";
        let problem = Problem::new(StatusCode::CONFLICT, detail);
        let hint = "DELETE /api/v1/registry/documents/{key}";
        return Err(problem.hint(hint).into_response());
    }
    // Those of the node come back, or mislead until they do; a stream is removed with its elements.
    if Registrar::is_node(&entity.owner) || entity.kind == EntityKind::Stream {
        let owner = entity.owner;
        let error = Error::NotOwner { key, owner };
        return Err(registry_problem(&error).into_response());
    }
    let removed = async {
        let mut attempts = Attempts::default();
        loop {
            let publication = app.registry.remove_as(&caller.reader(), &key)?;
            if attempts.settle(publication).await? {
                return Ok(());
            }
        }
    };
    match removed.await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(Error::Unknown(_)) => Err(unknown()),
        Err(error) => Err(with_pause(registry_problem(&error))),
    }
}

pub(super) fn registry_problem(error: &Error) -> Problem {
    let text = error.to_string();
    match error {
        Error::InvalidEntity { .. } => invalid(text),
        Error::Unknown(key) => Problem::not_found(format!("there is no entity {key:?}")),
        Error::NotOwner { .. } => Problem::new(StatusCode::CONFLICT, text),
        Error::NoLease(_) => Problem::new(StatusCode::CONFLICT, text)
            .hint("publish the entity with lease_s; without, it stays until it is removed"),
        Error::OtherKind { key, kind } => {
            let hint = match kind {
                EntityKind::Document => format!("DELETE /api/v1/registry/documents/{key} first"),
                EntityKind::Thing => format!("PUT /things/{key}, or DELETE it first"),
                EntityKind::Metadata => format!("PUT /api/v1/registry/metadata/{key}"),
                _ => "choose another key".to_owned(),
            };
            Problem::new(StatusCode::CONFLICT, text).hint(hint)
        }
        Error::KeyTaken(_) => Problem::new(StatusCode::CONFLICT, text).hint("choose another key"),
        Error::NoRight { key, right, .. } => {
            let status = match right {
                Right::Write => StatusCode::CONFLICT,
                _ => StatusCode::FORBIDDEN,
            };
            let hint = format!("its owner can give the right: PUT /api/v1/entities/{key}/rights");
            Problem::new(status, text).hint(hint)
        }
        Error::TooManyEntities { .. } => Problem::new(StatusCode::INSUFFICIENT_STORAGE, text)
            .code(code::SHARE_OF_REGISTRY)
            .hint(
                "remove entities, or raise registry.max_entities or the account's share of bytes",
            ),
        Error::Busy { .. } => busy(text),
        Error::Full { .. } => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, text).code(code::DISK_FULL)
        }
        Error::NoRoom { is_owners, .. } => {
            let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, text);
            match is_owners {
                true => problem
                    .code(code::SHARE_OF_REGISTRY)
                    .hint("remove entities, or raise the share of bytes: chappe account share"),
                false => problem.hint("remove entities, or raise registry.max_bytes"),
            }
        }
        Error::Journal(JournalError::Away(_) | JournalError::Moved { .. }) => {
            Problem::unavailable(text).hint("GET /ready shows whether the registry accepts changes")
        }
        error if error.is_transient() => Problem::new(StatusCode::INSUFFICIENT_STORAGE, text),
        _ => Problem::unavailable(text).hint("GET /ready shows whether the registry accepts data"),
    }
}
