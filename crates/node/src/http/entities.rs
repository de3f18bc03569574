//! The registry: search, single entities, SPARQL.

use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::oxrdf::Term;
use chappe_registry::{EntityKind, Interrupt, Principal, Search, SparqlError, SparqlLimits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::params::{self, Name, Params, Who};
use super::parts;
use super::problem::Problem;
use crate::config::nearest;
use crate::shared::App;

/// What to look for; all that is given must match.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Beginning of the name, whatever the case.
    prefix: Option<String>,
    /// node, device, service, stream, virtual-sensor or other.
    kind: Option<String>,
    /// A type, `{namespace}local`.
    #[serde(rename = "type")]
    entity_type: Option<String>,
    /// A URI under which one of its scopes lies.
    scope: Option<String>,
    /// The IRI of a property that is observed.
    observed_property: Option<String>,
    /// The key of an entity that it says something about.
    about: Option<String>,
    /// Who owns it.
    owner: Option<String>,
    /// Entities at most.
    limit: Option<usize>,
}

/// What was found.
#[derive(Serialize, ToSchema)]
pub(crate) struct Entities {
    /// In the order of their names.
    entities: Vec<Entity>,
    /// There are more.
    truncated: bool,
}

/// An entity of the registry.
#[derive(Serialize, ToSchema)]
pub(crate) struct Entity {
    /// An IRI.
    key: String,
    /// node, device, service, stream, virtual-sensor or other.
    kind: &'static str,
    name: String,
    /// `{namespace}local` each.
    types: Vec<String>,
    /// URIs.
    scopes: Vec<String>,
    owner: String,
    /// What is said of it.
    triples: Vec<Triple>,
}

/// What is said of an entity.
#[derive(Serialize, ToSchema)]
pub(crate) struct Triple {
    /// The IRI or blank node it is said of, where that is not the entity itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// An IRI.
    predicate: String,
    /// An IRI, a text or the label of a blank node.
    object: String,
    /// iri, literal or blank.
    object_kind: &'static str,
    /// The datatype of a literal that is no plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    datatype: Option<String>,
}

impl Entity {
    fn of(entity: chappe_registry::Entity) -> Self {
        let key = entity.key.clone();
        let triples = entity.triples.iter();
        Self {
            kind: entity.kind.as_str(),
            name: entity.name,
            types: entity.types,
            scopes: entity.scopes,
            owner: entity.owner,
            triples: triples.map(|triple| Triple::of(&key, triple)).collect(),
            key: entity.key,
        }
    }
}

impl Triple {
    fn of(key: &str, triple: &chappe_registry::oxrdf::Triple) -> Self {
        use chappe_registry::oxrdf::NamedOrBlankNode;
        const PLAIN: &str = "http://www.w3.org/2001/XMLSchema#string";
        let subject = match &triple.subject {
            NamedOrBlankNode::NamedNode(node) if node.as_str() == key => None,
            NamedOrBlankNode::NamedNode(node) => Some(node.as_str().to_owned()),
            NamedOrBlankNode::BlankNode(node) => Some(format!("_:{}", node.as_str())),
        };
        let (object, object_kind, datatype) = match &triple.object {
            Term::NamedNode(node) => (node.as_str().to_owned(), "iri", None),
            Term::BlankNode(node) => (format!("_:{}", node.as_str()), "blank", None),
            Term::Literal(literal) => {
                let datatype = literal.datatype().as_str();
                let datatype = (datatype != PLAIN).then(|| datatype.to_owned());
                (literal.value().to_owned(), "literal", datatype)
            }
        };
        Self {
            subject,
            predicate: triple.predicate.as_str().to_owned(),
            object,
            object_kind,
            datatype,
        }
    }
}

/// Searches the registry.
#[utoipa::path(get, path = "/api/v1/entities", tag = "registry", params(Wanted),
    responses((status = 200, body = Entities), (status = 400, body = Problem)))]
pub(super) async fn search(
    State(app): State<App>,
    Who(who): Who,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Entities>, Problem> {
    let kind = match &wanted.kind {
        None => None,
        Some(word) => Some(EntityKind::from_word(word).ok_or_else(|| unknown_kind(word))?),
    };
    let search = Search {
        name_prefix: wanted.prefix,
        kind,
        entity_type: wanted.entity_type,
        scope: wanted.scope,
        observed_property: wanted.observed_property,
        about: wanted.about,
        owner: wanted.owner,
        limit: wanted.limit,
    };
    let found = app.registry.search(&search, &who);
    Ok(Json(Entities {
        entities: found.entities.into_iter().map(Entity::of).collect(),
        truncated: found.truncated,
    }))
}

fn unknown_kind(word: &str) -> Problem {
    let words = EntityKind::ALL.map(EntityKind::as_str);
    let problem = Problem::bad_request(format!("kind: {word:?} is none of {}", words.join(", ")));
    match nearest(word, words) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => problem,
    }
}

/// One entity.
#[utoipa::path(get, path = "/api/v1/entities/{key}", tag = "registry",
    params(("key" = String, Path, description = "The entity's key, percent-encoded")),
    responses((status = 200, body = Entity), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    Who(who): Who,
    Name(key): Name,
) -> Result<Json<Entity>, Problem> {
    match app.registry.get(&key, &who) {
        Some(entity) => Ok(Json(Entity::of(entity))),
        None => Err(Problem::not_found(format!("there is no entity {key:?}"))
            .hint("GET /api/v1/entities searches; a key is percent-encoded in the path")),
    }
}

/// A SPARQL query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SparqlQuery {
    /// A SELECT or ASK query.
    query: String,
}

/// Answers a SPARQL 1.1 query over the registry.
#[utoipa::path(get, path = "/api/v1/sparql", tag = "registry", params(SparqlQuery),
    responses((status = 200, content_type = "application/sparql-results+json", body = String),
        (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn sparql_get(
    State(app): State<App>,
    Who(who): Who,
    Params(SparqlQuery { query }): Params<SparqlQuery>,
) -> Result<Response, Problem> {
    answer(&app, query, who).await
}

/// Answers a SPARQL 1.1 query over the registry (SPARQL 1.1 Protocol, both forms of POST).
#[utoipa::path(post, path = "/api/v1/sparql", tag = "registry",
    request_body(content = String, content_type = "application/sparql-query"),
    responses((status = 200, content_type = "application/sparql-results+json", body = String),
        (status = 400, body = Problem), (status = 415, body = Problem),
        (status = 503, body = Problem)))]
pub(super) async fn sparql_post(
    State(app): State<App>,
    Who(who): Who,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let bytes = params::body(&app, body).await?;
    let query = match kind {
        "application/sparql-query" => String::from_utf8(bytes.into())
            .map_err(|_| Problem::bad_request("the query is no UTF-8"))?,
        "application/x-www-form-urlencoded" => form_query(&bytes)?,
        _ => {
            let detail = format!("a query is not sent as {kind:?}");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
                .hint("send it as application/sparql-query"));
        }
    };
    answer(&app, query, who).await
}

fn form_query(bytes: &[u8]) -> Result<String, Problem> {
    // The query string of an address is the same format.
    let text = String::from_utf8_lossy(bytes);
    let uri = axum::http::Uri::builder()
        .path_and_query(format!("/?{text}"))
        .build();
    let uri = uri.map_err(|error| Problem::bad_request(error.to_string()))?;
    axum::extract::Query::<SparqlQuery>::try_from_uri(&uri)
        .map(|form| form.0.query)
        .map_err(|error| Problem::bad_request(error.body_text()))
}

async fn answer(app: &App, query: String, who: Principal) -> Result<Response, Problem> {
    let limits = &app.config.limits;
    let deadline = Instant::now() + Duration::from_millis(u64::from(limits.query_time_ms));
    let limits = SparqlLimits {
        rows: limits.query_rows as usize,
        ..SparqlLimits::default()
    };
    let permit = parts::query_permit(app)?;
    let registry = app.registry.clone();
    let work = tokio::task::spawn_blocking(move || {
        let interrupt = Interrupt::when(move || Instant::now() >= deadline);
        let answer = registry.sparql(&query, &who, &limits, &interrupt);
        drop(permit);
        answer.and_then(|answer| answer.to_json())
    });
    match work.await {
        Ok(Ok(json)) => {
            let kind = "application/sparql-results+json";
            Ok(([(header::CONTENT_TYPE, kind)], json).into_response())
        }
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(Problem::internal("the query failed")),
    }
}

fn refused(error: &SparqlError) -> Problem {
    let detail = error.to_string();
    match error {
        SparqlError::Evaluation(_) => Problem::internal(detail),
        SparqlError::NotOffered(_) => {
            Problem::bad_request(detail).hint("SELECT and ASK over the registry are offered")
        }
        SparqlError::Interrupted => {
            Problem::bad_request(detail).hint("the limit is limits.query_time_ms")
        }
        SparqlError::Limit { .. } => {
            Problem::bad_request(detail).hint("ask for less, for example with LIMIT")
        }
        _ => Problem::bad_request(detail),
    }
}
