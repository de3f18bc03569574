//! Pieces of metadata about entities: list, find, attach, update and delete.

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chappe_registry::metadata::{self, Annotator, Criterion, DEFAULT_PAGE, Draft, Error, Value};
use chappe_registry::{Access, Attempts, Error as RegistryError, Holder, Rights};
use chappe_stream::Timestamp;
use chappe_transport::Hop;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::entities::Triple;
use super::guard::Subject;
use super::paging::{Paging, cursor};
use super::params::{self, Name, Params};
use super::problem::{Problem, code};
use super::publish::{invalid, registry_problem, room};
use super::write::busy::with_pause;
use crate::accounts::Caller;
use crate::clock;
use crate::registrar::key_bits;
use crate::shared::App;

/// Nanoseconds of a millisecond.
const MS: i64 = 1_000_000;

/// What pieces must be; all that is given must hold.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PieceParams {
    /// The key of the entity that they are about.
    subject: Option<String>,
    /// The type of their statement, an IRI.
    #[serde(rename = "type")]
    piece_type: Option<String>,
    /// The value, a text.
    value: Option<String>,
    /// The datatype of `value`, an IRI. Default: plain text.
    datatype: Option<String>,
    /// The value, a URI.
    uri: Option<String>,
    /// The author, an account.
    author: Option<String>,
    /// Changed at this time or later (RFC 3339).
    from: Option<String>,
    /// Changed before this time.
    to: Option<String>,
    /// Maximum number of pieces, up to 1,000; 100 without it.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// A part of a list of pieces.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pieces {
    /// In the order of subjects and keys.
    pieces: Vec<Piece>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// A piece of metadata.
#[derive(Serialize, ToSchema)]
pub(crate) struct Piece {
    /// Its own key, an IRI; also the name of its graph in SPARQL.
    key: String,
    /// The key of the entity that it describes, or the IRI of a part of a WSDL document.
    subject: String,
    /// The type of its statement, an IRI.
    #[serde(rename = "type")]
    piece_type: String,
    /// The value, if it is a text or a literal.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The datatype of a value that is not plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    datatype: Option<String>,
    /// The value, if it is a URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    /// The value, if it is an RDF graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<Vec<Triple>>,
    /// The account that wrote it.
    author: String,
    /// When it was attached or last updated (RFC 3339).
    date: String,
    /// Who may read it: everybody, accounts, account:NAME, group:NAME or role:ROLE.
    readers: Vec<String>,
    /// Who may change it, besides its author.
    writers: Vec<String>,
    /// Seconds after which it is removed unless its lease is renewed; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_s: Option<u32>,
}

impl Piece {
    fn of(piece: metadata::Piece) -> Self {
        let date = piece.date();
        let mut readers = match piece.access {
            Access::Public => vec![Holder::Everybody],
            Access::Owner => Vec::new(),
            Access::Readers(names) => names.into_iter().map(Holder::Account).collect(),
        };
        readers.extend(piece.rights.read);
        let texts = |holders: Vec<Holder>| holders.iter().map(ToString::to_string).collect();
        let mut shown = Self {
            subject: piece.subject,
            piece_type: piece.piece_type,
            value: None,
            datatype: None,
            uri: None,
            graph: None,
            author: piece.author,
            date,
            readers: texts(readers),
            writers: texts(piece.rights.write),
            key: piece.key,
            lease_s: piece.lease_s,
        };
        match piece.value {
            Value::Text(text) => shown.value = Some(text),
            Value::Uri(uri) => shown.uri = Some(uri),
            Value::Typed { value, datatype } => {
                (shown.value, shown.datatype) = (Some(value), Some(datatype));
            }
            Value::Graph(triples) => {
                let triples = triples.iter().map(|triple| Triple::of("", triple));
                shown.graph = Some(triples.collect());
            }
        }
        shown
    }
}

/// A piece to attach, or the new state of one. It has one of `value`, `uri` and `turtle`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPiece {
    /// The key of the entity that it describes, or the IRI of a part of a WSDL document.
    subject: String,
    /// The type of its statement, an IRI.
    #[serde(rename = "type")]
    piece_type: String,
    /// The value, a text.
    #[serde(default)]
    value: Option<String>,
    /// The datatype of `value`, an IRI. Default: plain text.
    #[serde(default)]
    datatype: Option<String>,
    /// The value, a URI.
    #[serde(default)]
    uri: Option<String>,
    /// The value, an RDF graph as a Turtle document; relative IRIs are resolved against the subject.
    #[serde(default)]
    turtle: Option<String>,
    /// Who may read it: everybody, accounts, account:NAME, group:NAME or role:ROLE. Default: those who
    /// may read the subject; of a known piece, as before; with `writers` alone, everybody.
    #[serde(default)]
    readers: Option<Vec<String>>,
    /// Who may change it, besides its author. Default: nobody; of a known piece without `readers`, as before.
    #[serde(default)]
    writers: Option<Vec<String>>,
    /// Seconds after which it is removed unless its lease is renewed or it is updated. Default: it stays; a
    /// known piece keeps its lease.
    #[serde(default)]
    #[schema(minimum = 1)]
    lease_s: Option<u32>,
}

impl NewPiece {
    fn draft(self, key: Option<String>) -> Result<Draft, Problem> {
        let subject = self.subject;
        let literal = literal(self.value, self.datatype, self.uri)?;
        let value = match (literal, self.turtle) {
            (Some(value), None) => value,
            (None, Some(text)) => {
                Value::from_turtle(&subject, &text).map_err(|error| piece_problem(&error))?
            }
            (None, None) => return Err(invalid("one of value, uri and turtle is missing")),
            (Some(_), Some(_)) => return Err(invalid("value, uri and turtle exclude each other")),
        };
        let holders = |texts: Vec<String>| {
            let holders = texts.iter().map(|text| text.parse::<Holder>());
            let holders = holders.collect::<Result<Vec<_>, _>>();
            holders.map_err(|error| invalid(error.to_string()))
        };
        let rule = match (self.readers, self.writers) {
            (None, None) => None,
            (readers, writers) => {
                let readers = readers.map_or_else(|| Ok(vec![Holder::Everybody]), holders)?;
                let write = holders(writers.unwrap_or_default())?;
                let (access, read) = match readers.contains(&Holder::Everybody) {
                    true => (Access::Public, Vec::new()),
                    false => (Access::Owner, readers),
                };
                let rights = Rights {
                    read,
                    write,
                    ..Rights::default()
                };
                Some((access, rights.normalized()))
            }
        };
        Ok(Draft {
            key,
            subject,
            piece_type: self.piece_type,
            value,
            rule,
            lease_s: self.lease_s,
        })
    }
}

/// The value that a request gives in these members.
fn literal(
    value: Option<String>,
    datatype: Option<String>,
    uri: Option<String>,
) -> Result<Option<Value>, Problem> {
    Ok(match (value, datatype, uri) {
        (None, None, None) => None,
        (Some(text), None, None) => Some(Value::Text(text)),
        (Some(value), Some(datatype), None) => Some(Value::Typed { value, datatype }),
        (None, None, Some(uri)) => Some(Value::Uri(uri)),
        (None, Some(_), _) => return Err(invalid("datatype: it is that of a value")),
        (Some(_), _, Some(_)) => return Err(invalid("value and uri exclude each other")),
    })
}

fn time(name: &str, text: Option<&str>) -> Result<Option<i64>, Problem> {
    let text = text.map(|text| {
        Timestamp::parse(text).ok_or_else(|| {
            Problem::bad_request(format!("{name}: {text:?} is not a time"))
                .hint("write it as 2026-11-21T10:00:00Z")
        })
    });
    // The first millisecond that is not before it.
    Ok(text
        .transpose()?
        .map(|time| (time.0 + MS - 1).div_euclid(MS)))
}

/// Lists pieces of metadata: those of a subject, or those of a type, a value or an author.
#[utoipa::path(get, path = "/api/v1/registry/metadata", tag = "registry", params(PieceParams),
    responses((status = 200, body = Pieces), (status = 400, body = Problem),
        (status = 404, body = Problem, description = "the subject is unknown"),
        (status = 422, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<PieceParams>,
) -> Result<Json<Pieces>, Problem> {
    let paging = Paging::new(params.limit, params.cursor);
    let after = paging.after("metadata")?;
    paging.limit()?;
    let asked = Criterion {
        piece_type: params.piece_type,
        value: literal(params.value, params.datatype, params.uri)?,
        authors: params.author.into_iter().collect(),
        from_ms: time("from", params.from.as_deref())?,
        until_ms: time("to", params.to.as_deref())?,
    };
    let limit = params.limit.unwrap_or(DEFAULT_PAGE);
    let metadata = app.registry.metadata(&caller.reader());
    let subject = params.subject.as_deref();
    let page = metadata.pieces(subject, &asked, after.as_deref(), limit);
    let page = page.map_err(|error| piece_problem(&error))?;
    Ok(Json(Pieces {
        pieces: page.items.into_iter().map(Piece::of).collect(),
        next: page.next.map(|after| cursor("metadata", &after)),
    }))
}

/// One piece of metadata.
#[utoipa::path(get, path = "/api/v1/registry/metadata/{key}", tag = "registry",
    params(("key" = String, Path, description = "The key of the piece, percent-encoded")),
    responses((status = 200, body = Piece), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<Json<Piece>, Problem> {
    let piece = app.registry.metadata(&caller.reader()).piece(&key);
    piece
        .map(|piece| Json(Piece::of(piece)))
        .map_err(|error| piece_problem(&error))
}

/// A search for entities by their metadata.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PieceSearch {
    /// An entity is found if it has a piece for each of these, up to 16.
    criteria: Vec<PieceCriterion>,
    /// Maximum number of entities, up to 1,000; 100 without it.
    #[serde(default)]
    #[schema(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    #[serde(default)]
    cursor: Option<String>,
}

/// What a piece must be. It names at least a type, a value or an author.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PieceCriterion {
    /// The type of its statement, an IRI.
    #[serde(rename = "type", default)]
    piece_type: Option<String>,
    /// The value, a text.
    #[serde(default)]
    value: Option<String>,
    /// The datatype of `value`, an IRI. Default: plain text.
    #[serde(default)]
    datatype: Option<String>,
    /// The value, a URI.
    #[serde(default)]
    uri: Option<String>,
    /// Its author is one of these accounts. Default: anyone.
    #[serde(default)]
    authors: Vec<String>,
    /// Changed at this time or later (RFC 3339).
    #[serde(default)]
    from: Option<String>,
    /// Changed before this time.
    #[serde(default)]
    to: Option<String>,
}

/// Entities that were found by their metadata.
#[derive(Serialize, ToSchema)]
pub(crate) struct Annotated {
    /// Their keys; also IRIs of parts of WSDL documents.
    entities: Vec<String>,
    /// The cursor of the next part; null at the end. A part may be empty and have a next one.
    next: Option<String>,
}

/// Finds entities by their metadata.
#[utoipa::path(post, path = "/api/v1/registry/metadata/find", tag = "registry",
    request_body = PieceSearch,
    responses((status = 200, body = Annotated), (status = 400, body = Problem),
        (status = 422, body = Problem)))]
pub(super) async fn find(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Json<Annotated>, Problem> {
    let search: PieceSearch = params::json(&app, body).await?;
    let paging = Paging::new(search.limit, search.cursor);
    let after = paging.after("annotated")?;
    paging.limit()?;
    let criteria = search.criteria.into_iter().map(|asked| {
        Ok(Criterion {
            piece_type: asked.piece_type,
            value: literal(asked.value, asked.datatype, asked.uri)?,
            authors: asked.authors,
            from_ms: time("from", asked.from.as_deref())?,
            until_ms: time("to", asked.to.as_deref())?,
        })
    });
    let criteria = criteria.collect::<Result<Vec<_>, Problem>>()?;
    let metadata = app.registry.metadata(&caller.reader());
    let limit = search.limit.unwrap_or(DEFAULT_PAGE);
    let page = metadata.entities(&criteria, after.as_deref(), limit);
    let page = page.map_err(|error| piece_problem(&error))?;
    Ok(Json(Annotated {
        entities: page.items,
        next: page.next.map(|after| cursor("annotated", &after)),
    }))
}

/// Attaches a piece of metadata to an entity. The caller is its author.
#[utoipa::path(post, path = "/api/v1/registry/metadata", tag = "registry", request_body = NewPiece,
    responses((status = 201, body = Piece), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 403, body = Problem, description = "the subject may not be annotated"),
        (status = 404, body = Problem, description = "the subject is unknown"),
        (status = 422, body = Problem), (status = 429, body = Problem), (status = 507, body = Problem)))]
pub(super) async fn attach(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Response> {
    put(&app, &caller, None, body).await
}

/// Updates a piece of metadata; its author stays.
#[utoipa::path(put, path = "/api/v1/registry/metadata/{key}", tag = "registry", request_body = NewPiece,
    params(("key" = String, Path, description = "The key of the piece, percent-encoded")),
    responses((status = 200, body = Piece), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 403, body = Problem, description = "another account wrote the piece"), (status = 404, body = Problem),
        (status = 422, body = Problem), (status = 429, body = Problem), (status = 507, body = Problem)))]
pub(super) async fn update(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
    body: Body,
) -> Result<Response, Response> {
    put(&app, &caller, Some(key), body).await
}

async fn put(
    app: &App,
    caller: &Caller,
    key: Option<String>,
    body: Body,
) -> Result<Response, Response> {
    let status = match &key {
        Some(_) => StatusCode::OK,
        None => StatusCode::CREATED,
    };
    let new: NewPiece = params::json(app, body)
        .await
        .map_err(IntoResponse::into_response)?;
    let draft = new.draft(key).map_err(IntoResponse::into_response)?;
    let changed = change(app, caller, |author| author.attach(&draft)).await?;
    let subject = Extension(Subject(changed.key.clone()));
    Ok((status, subject, Json(Piece::of(changed))).into_response())
}

/// Deletes a piece of metadata.
#[utoipa::path(delete, path = "/api/v1/registry/metadata/{key}", tag = "registry",
    params(("key" = String, Path, description = "The key of the piece, percent-encoded")),
    responses((status = 204), (status = 401, body = Problem),
        (status = 403, body = Problem, description = "another account wrote the piece"), (status = 404, body = Problem),
        (status = 429, body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Name(key): Name,
) -> Result<StatusCode, Response> {
    change(&app, &caller, |author| author.delete(&key)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs a change of the caller, and waits until it is durable.
async fn change(
    app: &App,
    caller: &Caller,
    run: impl Fn(&mut Annotator<'_>) -> Result<metadata::Changed<metadata::Piece>, Error>,
) -> Result<metadata::Piece, Response> {
    let refuse = |error: &Error| {
        if let Error::Registry(RegistryError::NoRoom {
            is_owners: true, ..
        }) = error
        {
            let (drops, reason) = (&app.observability.drops, code::SHARE_OF_REGISTRY);
            drops.record(Hop::Http, reason, caller.name(), error.to_string(), None);
        }
        with_pause(piece_problem(error))
    };
    let mut attempts = Attempts::default();
    loop {
        let changed = {
            let random = key_bits();
            let mut random =
                random.map_err(|error| Problem::unavailable(error.to_string()).into_response())?;
            let unix_ms = clock::now().0 / MS;
            let author = Annotator::new(
                &app.registry,
                caller.name(),
                caller.reader(),
                unix_ms,
                &mut random,
            );
            run(&mut author.within(room(app, caller))).map_err(|error| refuse(&error))?
        };
        let settled = attempts.settle(changed.publication).await;
        if settled.map_err(|error| refuse(&Error::Registry(error)))? {
            return Ok(changed.value);
        }
    }
}

fn piece_problem(error: &Error) -> Problem {
    let text = error.to_string();
    match error {
        Error::UnknownPiece(_) => Problem::not_found(text)
            .hint("GET /api/v1/registry/metadata?subject=KEY lists the pieces of an entity"),
        Error::UnknownSubject(_) => {
            Problem::not_found(text).hint("GET /api/v1/entities searches entities")
        }
        Error::Refused { .. } => Problem::new(StatusCode::FORBIDDEN, text)
            .hint("attach a piece of your own, or ask the owner for the right"),
        Error::Registry(error) => registry_problem(error),
        _ => invalid(text),
    }
}
