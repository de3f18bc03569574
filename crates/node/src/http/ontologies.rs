//! Ontologies that clients publish: RDF documents, each one entity and so one named graph.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::{ResultFormat, ontology};

use super::entities::Entity;
use super::params::{self, Name};
use super::problem::Problem;
use super::publish;
use crate::accounts::Caller;
use crate::shared::App;

/// Publishes an ontology: an entity whose triples are those of an RDF document, and whose key is in
/// the path. Publishing a key again replaces it.
///
/// Searches and queries with `inferred` follow its subclasses and subproperties for the account
/// that published it, and for all accounts if that is the operator's.
#[utoipa::path(put, path = "/api/v1/registry/ontologies/{key}", tag = "registry",
    params(("key" = String, Path, description = "The ontology's IRI, percent-encoded")),
    request_body(content((String = "text/turtle"), (String = "application/n-triples"),
        (String = "application/rdf+xml"))),
    responses((status = 200, body = Entity, description = "the ontology is replaced"),
        (status = 201, body = Entity), (status = 401, body = Problem),
        (status = 409, body = Problem, description = "the key has another owner"),
        (status = 415, body = Problem),
        (status = 422, body = Problem, description = "the document is invalid or too large"),
        (status = 429, body = Problem), (status = 507, body = Problem)))]
pub(super) async fn publish(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let bytes = params::body(&app, body).await;
    let bytes = bytes.map_err(IntoResponse::into_response)?;
    let entity = read(&key, &headers, &bytes, &caller);
    let entity = entity.map_err(IntoResponse::into_response)?;
    publish::published(&app, &caller, entity).await
}

fn read(
    key: &str,
    headers: &HeaderMap,
    bytes: &[u8],
    caller: &Caller,
) -> Result<chappe_registry::Entity, Problem> {
    publish::checked_key(key)?;
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let formats = ResultFormat::OF_GRAPHS.into_iter();
    let mut of_kind = formats.filter(|format| format.media_type().eq_ignore_ascii_case(kind));
    let format = of_kind.next().ok_or_else(|| {
        let detail = format!("an ontology cannot have the content type {kind:?}");
        let names = ResultFormat::OF_GRAPHS.map(ResultFormat::media_type);
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
            .hint(format!("send it as one of {}", names.join(", ")))
    })?;
    let entity = ontology(format, Some(key), key, bytes);
    let mut entity = entity.map_err(|error| publish::invalid(error.to_string()))?;
    entity.owner = caller.name().to_owned();
    Ok(entity)
}
