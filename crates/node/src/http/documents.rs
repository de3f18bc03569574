//! WSDL documents over REST: their bytes, and the services that they describe.

use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chappe_registry::Attempts;
use chappe_registry::uddi::{BusinessKey, Error, ErrorCode, Key as _};
use chappe_registry::wsdl::message::{Add, Answer};
use chappe_registry::wsdl::{Document as Found, FindInterface, FindServices};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::guard::Subject;
use super::paging::{Paging, cursor};
use super::params::{Name, Params};
use super::problem::{Problem, code};
use super::{uddi, wsdl};
use crate::accounts::Caller;
use crate::shared::App;

/// A part of the WSDL documents and schemas.
#[derive(Serialize, ToSchema)]
pub(crate) struct Documents {
    /// In the order of their keys.
    documents: Vec<Document>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// A WSDL document or a schema, without its bytes.
#[derive(Serialize, ToSchema)]
pub(crate) struct Document {
    /// An IRI.
    key: String,
    name: String,
    owner: String,
    target_namespace: String,
    /// Its URL, if it is known.
    location: Option<String>,
    media_type: String,
    /// Its size.
    bytes: usize,
    /// Whether it is an XML schema rather than WSDL.
    is_schema: bool,
    /// The keys of the tModels of its port types and bindings.
    tmodels: Vec<String>,
}

impl Document {
    fn of(found: Found) -> Self {
        Self {
            key: found.key,
            name: found.name,
            owner: found.owner,
            target_namespace: found.target_namespace,
            location: found.location,
            media_type: found.media_type,
            bytes: found.size,
            is_schema: found.is_schema,
            tmodels: found.tmodels.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The documents of the registry.
#[utoipa::path(get, path = "/api/v1/registry/documents", tag = "registry", params(Paging),
    responses((status = 200, body = Documents), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(paging): Params<Paging>,
) -> Result<Json<Documents>, Problem> {
    let limit = paging.limit()?;
    let after = paging.after("documents")?;
    let reader = caller.reader();
    let found = uddi::run(&app, &caller, move |app| {
        let inquiry = uddi::inquiry(app, &reader);
        inquiry.documents(after.as_deref(), Some(limit))
    });
    let found = found
        .await
        .and_then(|found| found)
        .map_err(|error| problem(&error))?;
    let last = found.items.last().filter(|_| found.is_truncated);
    let next = last.map(|last| cursor("documents", &last.key));
    let documents = found.items.into_iter().map(Document::of).collect();
    Ok(Json(Documents { documents, next }))
}

/// The bytes of a document, as they were added.
#[utoipa::path(get, path = "/api/v1/registry/documents/{key}", tag = "registry",
    params(("key" = String, Path, description = "The document's key, percent-encoded")),
    responses((status = 200, content_type = "text/xml", body = String,
        description = "the document with its media type"), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Response, Problem> {
    let reader = caller.reader();
    let found = uddi::run(&app, &caller, move |app| {
        uddi::inquiry(app, &reader).document(&key)
    });
    let (document, bytes) = found
        .await
        .and_then(|found| found)
        .map_err(|error| problem(&error))?;
    let kind = HeaderValue::from_str(&document.media_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("text/xml"));
    // A document is not a page of the node, even if it has scripts in the namespace of XHTML.
    let policy = HeaderValue::from_static("default-src 'none'; sandbox");
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    Ok((headers, bytes).into_response())
}

/// How a document is added.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PutParams {
    /// Its URL, from which it is fetched if the body is empty. Default: its key, if that is an http URL.
    location: Option<String>,
    /// The key of a business: the services of the document become services of it.
    business: Option<String>,
}

/// What was added.
#[derive(Serialize, ToSchema)]
pub(crate) struct Added {
    /// The document and those that it imports.
    documents: Vec<AddedDocument>,
    /// Imports that were not read.
    unread: Vec<Unread>,
}

/// A document that was added.
#[derive(Serialize, ToSchema)]
pub(crate) struct AddedDocument {
    /// An IRI.
    key: String,
    /// The keys of the tModels of its port types and bindings.
    tmodels: Vec<String>,
    /// The keys of its services in UDDI.
    services: Vec<String>,
}

/// A document that was not read.
#[derive(Serialize, ToSchema)]
pub(crate) struct Unread {
    url: String,
    /// Why.
    reason: String,
}

/// Adds or replaces a document, with the documents that it imports if the address policy allows their addresses.
#[utoipa::path(put, path = "/api/v1/registry/documents/{key}", tag = "registry",
    params(("key" = String, Path, description = "The document's key, percent-encoded"), PutParams),
    request_body(content = String, content_type = "text/xml",
        description = "the document; empty to fetch it from its location"),
    responses((status = 200, body = Added), (status = 401, body = Problem),
        (status = 404, body = Problem, description = "the business is not known"),
        (status = 409, body = Problem, description = "the document or the business has another owner"),
        (status = 413, body = Problem),
        (status = 422, body = Problem, description = "the document is invalid or cannot be fetched"),
        (status = 429, body = Problem), (status = 507, body = Problem)))]
pub(super) async fn put(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
    Params(params): Params<PutParams>,
    request: HttpRequest,
) -> Result<Response, Problem> {
    let address = client(&request);
    let media_type = request.headers().get(header::CONTENT_TYPE);
    let media_type = media_type
        .and_then(|kind| kind.to_str().ok())
        .map(str::to_owned);
    let bytes = super::params::body(&app, request.into_body()).await?;
    let is_url = ["http://", "https://"]
        .iter()
        .any(|scheme| key.starts_with(scheme));
    let location = params.location.or_else(|| is_url.then(|| key.clone()));
    if bytes.is_empty() && location.is_none() {
        let problem = Problem::bad_request("the body is empty, and no location is given");
        return Err(problem.hint("send the document, or ?location= and its URL"));
    }
    let business = params.business.map(|key| {
        let unknown = || Problem::not_found(format!("there is no business {key:.80?}"));
        BusinessKey::parse(&key).ok_or_else(unknown)
    });
    let add = Add {
        key: Some(key.clone()),
        url: location,
        // Its body is empty: its type says nothing.
        media_type: media_type.filter(|_| !bytes.is_empty()),
        content: Some(bytes.to_vec()),
        business: business.transpose()?,
    };
    let mut attempts = Attempts::default();
    let answer = loop {
        let added = wsdl::add_document(&app, &caller, add.clone(), address).await;
        let (answer, publication) = added.map_err(|error| problem(&error))?;
        let settled = attempts.settle(publication).await.map_err(Error::from);
        if settled.map_err(|error| problem(&error))? {
            break answer;
        }
    };
    let (documents, unread) = match answer {
        Answer::Added(documents, unread) => (documents, unread),
        _ => (Vec::new(), Vec::new()),
    };
    let documents = documents.into_iter().map(|saved| AddedDocument {
        key: saved.key,
        tmodels: saved.tmodels.iter().map(ToString::to_string).collect(),
        services: saved.services.iter().map(ToString::to_string).collect(),
    });
    let unread = unread.into_iter().map(|one| Unread {
        url: one.url,
        reason: one.reason,
    });
    let added = Added {
        documents: documents.collect(),
        unread: unread.collect(),
    };
    Ok((Extension(Subject(key)), Json(added)).into_response())
}

/// Removes a document, with its tModels and services.
#[utoipa::path(delete, path = "/api/v1/registry/documents/{key}", tag = "registry",
    params(("key" = String, Path, description = "The document's key, percent-encoded")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the document has another owner"),
        (status = 429, body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<StatusCode, Problem> {
    let mut attempts = Attempts::default();
    loop {
        let (of, key) = (caller.clone(), key.clone());
        let removed = uddi::run(&app, &caller, move |app| {
            // A hidden document is unknown.
            uddi::inquiry(app, &of.reader()).document(&key)?;
            wsdl::remove(app, &of, &key)
        });
        let publication = removed.await.and_then(|removed| removed);
        let publication = publication.map_err(|error| problem(&error))?;
        let settled = attempts.settle(publication).await.map_err(Error::from);
        if settled.map_err(|error| problem(&error))? {
            return Ok(StatusCode::NO_CONTENT);
        }
    }
}

/// The criteria of services; all that are given must match.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ServiceParams {
    /// A port type: its IRI, `{namespace}local`, its local name or the key of its tModel.
    interface: Option<String>,
    /// An operation: its IRI or its local name.
    operation: Option<String>,
    /// A part of the operation's input, given by its IRI, local name, element or type, or by the IRI of its
    /// meaning.
    input: Option<String>,
    /// A part of the operation's output.
    output: Option<String>,
    /// Maximum number of services, up to 1,000.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// A part of the services that match.
#[derive(Serialize, ToSchema)]
pub(crate) struct Services {
    /// In the order of their keys.
    services: Vec<Service>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// A service in UDDI.
#[derive(Serialize, ToSchema)]
pub(crate) struct Service {
    /// Its key in the registry.
    key: String,
    /// Its serviceKey.
    service_key: String,
    /// The businessKey of its business.
    business_key: String,
    names: Vec<String>,
}

/// Finds services by the interface that they implement, its operations, and the inputs and outputs
/// of these.
#[utoipa::path(get, path = "/api/v1/registry/services", tag = "registry", params(ServiceParams),
    responses((status = 200, body = Services), (status = 400, body = Problem)))]
pub(super) async fn services(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<ServiceParams>,
) -> Result<Json<Services>, Problem> {
    let paging = Paging::new(params.limit, params.cursor);
    let ask = FindServices {
        interface: params.interface,
        operation: FindInterface {
            operation: params.operation,
            input: params.input,
            output: params.output,
            ..FindInterface::default()
        },
        after: paging.after("services")?,
        max_rows: Some(paging.limit()?),
    };
    let reader = caller.reader();
    let found = uddi::run(&app, &caller, move |app| {
        uddi::inquiry(app, &reader).find_services(&ask)
    });
    let found = found
        .await
        .and_then(|found| found)
        .map_err(|error| problem(&error))?;
    let last = found.items.last().filter(|_| found.is_truncated);
    let next = last.map(|last| cursor("services", &last.service_key.iri()));
    let services = found.items.into_iter().map(|info| Service {
        key: info.service_key.iri(),
        service_key: info.service_key.to_string(),
        business_key: info.business_key.to_string(),
        names: info.names.into_iter().map(|name| name.text).collect(),
    });
    let services = services.collect();
    Ok(Json(Services { services, next }))
}

fn client(request: &HttpRequest<Body>) -> Option<IpAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|ConnectInfo(peer)| peer.ip())
}

fn problem(error: &Error) -> Problem {
    let detail = error.detail.clone();
    match error.code {
        ErrorCode::InvalidKeyPassed => Problem::not_found(detail),
        ErrorCode::UserMismatch => Problem::new(StatusCode::CONFLICT, detail),
        ErrorCode::MessageTooLarge => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail),
        ErrorCode::AccountLimitExceeded => Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail)
            .code(code::SHARE_OF_REGISTRY)
            .hint("remove entities, or raise the share of bytes: chappe account share"),
        ErrorCode::Busy => {
            Problem::unavailable(detail).hint("GET /ready shows whether the registry accepts data")
        }
        ErrorCode::FatalError => Problem::internal(detail),
        ErrorCode::InvalidUrlPassed => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
            .hint("send the document itself in the body"),
        _ => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
    }
}
