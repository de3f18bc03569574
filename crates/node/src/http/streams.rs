//! Streams and their elements.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_log::{Error, Level};
use chappe_stream::{Position, StoreError, StreamElement, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::element::{ElementShape, ElementView};
use super::params::{Name, Params};
use super::problem::Problem;
use crate::catalogue::Entry;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::config::nearest;
use crate::shared::App;

/// All streams.
#[derive(Serialize, ToSchema)]
pub(crate) struct Streams {
    /// By name.
    streams: Vec<Stream>,
}

/// A stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stream {
    /// Its name.
    name: String,
    /// What its elements survive: memory, process or power.
    level: &'static str,
    /// The present lineage of its numbers, 16 hexadecimal digits.
    epoch: String,
    /// The first number still kept; one more than `last` when there is none.
    first: u64,
    /// The last acknowledged number; 0 when there was none yet.
    last: u64,
    /// Elements a second, lately.
    rate_per_s: f64,
    /// The source time of the newest element (RFC 3339).
    last_time: Option<String>,
    /// The key of the device, or the name of the virtual sensor, that yields it.
    source: String,
    /// What its elements consist of.
    fields: Vec<Field>,
    /// What an element's key identifies, for streams with keys.
    key: Option<String>,
    /// Its key in the registry.
    entity: String,
}

/// A field.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Field {
    name: String,
    /// boolean, integer, double, text, bytes or samples.
    #[serde(rename = "type")]
    field_type: String,
    /// A UCUM code.
    unit: Option<String>,
    /// A URI.
    observed_property: Option<String>,
    description: Option<String>,
}

impl Field {
    pub(crate) fn of(field: &chappe_stream::Field) -> Self {
        let word = serde_json::to_value(field.field_type).unwrap_or_default();
        Self {
            name: field.name.clone(),
            field_type: word.as_str().unwrap_or_default().to_owned(),
            unit: field.unit.clone(),
            observed_property: field.observed_property.clone(),
            description: field.description.clone(),
        }
    }
}

impl Stream {
    fn of(entry: &Entry) -> Self {
        let schema = entry.log.schema();
        let log = entry.log.log();
        Self {
            name: entry.name.clone(),
            level: level_word(log.level()),
            epoch: chappe_stream::Epoch(log.epoch()).to_string(),
            first: log.first(),
            last: log.last(),
            rate_per_s: entry.rate_per_s(),
            last_time: entry.last_time().map(rfc3339),
            source: entry.source(),
            fields: schema.fields.iter().map(Field::of).collect(),
            key: schema.key.clone(),
            entity: entry.key(),
        }
    }
}

/// The word of a level.
pub(super) fn level_word(level: Level) -> &'static str {
    match level {
        Level::Memory => "memory",
        Level::Process => "process",
        Level::Power => "power",
    }
}

/// All streams.
#[utoipa::path(get, path = "/api/v1/streams", tag = "streams",
    responses((status = 200, body = Streams)))]
pub(super) async fn list(State(app): State<App>) -> Json<Streams> {
    let entries = app.catalogue.entries();
    Json(Streams {
        streams: entries.iter().map(|entry| Stream::of(entry)).collect(),
    })
}

/// One stream.
#[utoipa::path(get, path = "/api/v1/streams/{name}", tag = "streams",
    params(("name" = String, Path, description = "The stream's name")),
    responses((status = 200, body = Stream), (status = 404, body = Problem)))]
pub(super) async fn one(State(app): State<App>, Name(name): Name) -> Result<Json<Stream>, Problem> {
    Ok(Json(Stream::of(&*find(&app, &name)?)))
}

/// Which elements: the newest, those after a position, or those of a time.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// The newest elements, so many of them.
    newest: Option<u32>,
    /// Elements after this position, `EPOCH:N`; `0:0` is the beginning.
    after: Option<String>,
    /// Elements whose source time is not before this (RFC 3339).
    from: Option<String>,
    /// Elements whose source time is before this (RFC 3339).
    to: Option<String>,
    /// Elements at most.
    limit: Option<u32>,
}

/// Elements of a stream, in the order of their numbers.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "a description; elements are written by ElementView"
)]
pub(crate) struct Elements {
    /// The stream's name.
    stream: String,
    /// Its elements.
    elements: Vec<ElementShape>,
    /// There were more than the limit let through.
    truncated: bool,
    /// The position after which to go on.
    next_after: Option<String>,
}

/// Elements of a stream.
#[utoipa::path(get, path = "/api/v1/streams/{name}/elements", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), Which),
    responses((status = 200, body = Elements), (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the log went back behind the position"),
        (status = 410, body = Problem, description = "the elements are no longer kept")))]
pub(super) async fn elements(
    State(app): State<App>,
    Name(name): Name,
    Params(which): Params<Which>,
) -> Result<Response, Problem> {
    let entry = find(&app, &name)?;
    let most = app.config.limits.elements;
    let selection = Selection::of(which, most)?;
    // Reading touches the disk: not on the thread that serves.
    let body = tokio::task::spawn_blocking(move || page(&entry, &selection)).await;
    let body = body.map_err(|_| Problem::internal("reading the elements failed"))??;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

enum Selection {
    Newest(usize),
    After(Position, usize),
    Range(Timestamp, Timestamp, usize),
}

impl Selection {
    fn of(which: Which, most: u32) -> Result<Self, Problem> {
        let given = which.limit.or(which.newest).unwrap_or(most.min(1_000));
        if given > most {
            let detail = format!("at most {most} elements are given at once");
            return Err(Problem::bad_request(detail).hint("the limit is limits.elements"));
        }
        let limit = given as usize;
        let time = |name: &str, text: Option<String>, default: i64| match text {
            None => Ok(Timestamp(default)),
            Some(text) => parse_rfc3339(&text).ok_or_else(|| {
                Problem::bad_request(format!("{name}: {text:?} is no time"))
                    .hint("write it as 2026-11-21T10:00:00Z; a + of an offset is %2B in an address")
            }),
        };
        match (which.newest, which.after, which.from, which.to) {
            (_, None, None, None) => Ok(Self::Newest(limit)),
            (None, Some(after), None, None) => {
                let position = after
                    .parse()
                    .map_err(|error| Problem::bad_request(format!("after: {error}")))?;
                Ok(Self::After(position, limit))
            }
            (None, None, from, to) => Ok(Self::Range(
                time("from", from, i64::MIN)?,
                time("to", to, i64::MAX)?,
                limit,
            )),
            _ => Err(Problem::bad_request(
                "newest, after, and from with to exclude each other",
            )),
        }
    }
}

fn page(entry: &Entry, selection: &Selection) -> Result<String, Problem> {
    let (elements, limit) = match *selection {
        Selection::Newest(limit) => (entry.log.newest(limit).map_err(refused)?, usize::MAX),
        Selection::Range(from, to, limit) => {
            let more = limit.saturating_add(1);
            (entry.log.range(from, to, more).map_err(refused)?, limit)
        }
        Selection::After(position, limit) => (after(entry, position, limit)?, limit),
    };
    let truncated = elements.len() > limit;
    let elements = &elements[..elements.len().min(limit)];
    let schema = entry.log.schema();
    let views: Vec<ElementView<'_>> = elements
        .iter()
        .map(|element| ElementView {
            stream: None,
            element,
            schema: &schema,
        })
        .collect();
    let next = elements.last().map(|element| element.position.to_string());
    let body =
        serde_json::json!({"stream": entry.name, "truncated": truncated, "next_after": next});
    let mut json = body.to_string();
    let elements = serde_json::to_string(&views);
    let elements = elements.map_err(|error| Problem::internal(error.to_string()))?;
    // Written behind the small members, so that the large one is not built as a tree.
    json.truncate(json.len() - 1);
    json.push_str(",\"elements\":");
    json.push_str(&elements);
    json.push('}');
    Ok(json)
}

fn after(entry: &Entry, position: Position, limit: usize) -> Result<Vec<StreamElement>, Problem> {
    let more = limit.saturating_add(1);
    if position.sequence == 0 {
        // Who has nothing begins with what there is.
        return entry.log.read(0, more).map_err(refused);
    }
    let next = entry.log.resume(position).map_err(|rollback| {
        let epoch = chappe_stream::Epoch(entry.log.log().epoch());
        let before = rollback.next.saturating_sub(1);
        Problem::new(StatusCode::CONFLICT, rollback.to_string())
            .hint(format!("go on after {epoch}:{before}"))
    })?;
    entry.log.read(next, more).map_err(refused)
}

fn refused(error: StoreError) -> Problem {
    let text = error.to_string();
    match error {
        StoreError::Log(Error::Gap { next, .. }) => Problem::new(StatusCode::GONE, text)
            .hint(format!("the next one kept has number {next}")),
        _ => Problem::internal(text),
    }
}

/// The stream, or a problem that names the nearest.
pub(super) fn find(app: &App, name: &str) -> Result<Arc<Entry>, Problem> {
    app.catalogue.get(name).ok_or_else(|| {
        let entries = app.catalogue.entries();
        let problem = Problem::not_found(format!("there is no stream {name:?}"));
        match nearest(name, entries.iter().map(|entry| entry.name.as_str())) {
            Some(near) => problem.hint(format!("did you mean {near:?}?")),
            None => problem.hint("GET /api/v1/streams lists them"),
        }
    })
}
