//! Streams and their elements.

use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use chappe_identity::Role;
use chappe_log::Error;
use chappe_stream::{Position, RenameError as NamesError, StoreError, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::accept::Accepted;
use super::guard::{Subject, outside_problem};
use super::page::{Form, Gaps, NDJSON, Page};
use super::paging::{self, Paging};
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::shapes::Level;
use super::units::Units;
use super::write::busy;
use crate::accounts::{Caller, Unchanged, View};
use crate::catalogue::{self, Entry, RemovalError, RenameError};
use crate::config::nearest;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::view::{ElementShape, FieldView};

/// All streams.
#[derive(Serialize, ToSchema)]
pub(crate) struct Streams {
    /// By name.
    streams: Vec<Stream>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// A stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stream {
    /// Its name.
    name: String,
    /// The names that it had before, oldest first. They still refer to it.
    former_names: Vec<String>,
    /// Its durability level.
    #[schema(value_type = Level)]
    level: &'static str,
    /// The current lineage of its numbers, 16 hexadecimal digits.
    epoch: String,
    /// The first number still kept; `last` + 1 when the stream is empty.
    first: u64,
    /// The last acknowledged number; 0 when there was none yet.
    last: u64,
    /// Current rate in elements per second.
    rate_per_s: f64,
    /// The source time of the newest element (RFC 3339).
    last_time: Option<String>,
    /// The key of its device, or the name of its virtual sensor.
    source: String,
    /// The fields of its elements.
    fields: Vec<FieldView>,
    /// What an element's key identifies, for streams with keys.
    key: Option<String>,
    /// Its key in the registry.
    entity: String,
}

impl Stream {
    pub(super) fn of(entry: &Entry) -> Self {
        let schema = entry.log.schema();
        let log = entry.log.log();
        Self {
            name: entry.current_name(),
            former_names: entry.log.former_names(),
            level: log.level().as_str(),
            epoch: chappe_stream::Epoch(log.epoch()).to_string(),
            first: log.first(),
            last: log.last(),
            rate_per_s: entry.rate_per_s(),
            last_time: entry.last_time().map(|time| time.to_string()),
            source: entry.source(),
            fields: schema.fields.iter().map(FieldView::of).collect(),
            key: schema.key.clone(),
            entity: entry.key(),
        }
    }
}

/// The requested streams.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// Only streams whose name has this prefix.
    prefix: Option<String>,
    /// Only streams of this source: the key of a device, or the name of a virtual sensor.
    source: Option<String>,
    /// Maximum number of entries; without it, as many as fit in 16 MiB.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// Most bytes of definitions in one list; reason: 10,000 streams of some fields fit.
const LIST_BYTES_MAX: usize = 16 << 20;

/// All streams, up to about 16 MiB of them in one response.
#[utoipa::path(get, path = "/api/v1/streams", tag = "streams", params(StreamParams),
    responses((status = 200, body = Streams), (status = 400, body = Problem),
        (status = 429, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<StreamParams>,
) -> Result<Json<Streams>, Problem> {
    let _permit = parts::permit_soon(&app, &caller, RequestKind::Query).await?;
    let view = View::of_reader(&app, &caller);
    let mut entries = app.catalogue.by_current_name();
    let (prefix, source) = (params.prefix.unwrap_or_default(), params.source);
    entries.retain(|(name, entry)| {
        let is_wanted = source.as_ref().is_none_or(|of| *of == entry.source());
        name.starts_with(&prefix) && is_wanted && view.has(entry)
    });
    let paging = Paging::new(params.limit, params.cursor);
    let (entries, mut next) = paging.cut("streams", entries, |(name, _)| name)?;
    let (mut streams, mut bytes) = (Vec::new(), 0);
    let mut last: Option<&str> = None;
    for (name, entry) in &entries {
        bytes += entry.log.log().definition_bytes();
        if let Some(last) = last.filter(|_| bytes > LIST_BYTES_MAX) {
            next = Some(paging::cursor("streams", last));
            break;
        }
        last = Some(name);
        streams.push(Stream::of(entry));
    }
    Ok(Json(Streams { streams, next }))
}

/// One stream, by its name or a former one.
#[utoipa::path(get, path = "/api/v1/streams/{name}", tag = "streams",
    params(("name" = String, Path, description = "The stream's name")),
    responses((status = 200, body = Stream), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
) -> Result<Json<Stream>, Problem> {
    Ok(Json(Stream::of(&*find(&app, &caller, &name)?)))
}

/// Parameters of a removal.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemovalParams {
    /// Whether to remove the stream even if it holds elements.
    #[serde(default)]
    force: bool,
}

/// Removes a stream with all its elements. A later stream of the same name has another epoch.
#[utoipa::path(delete, path = "/api/v1/streams/{name}", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), RemovalParams),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "its source or a reader is present, or it holds \
            elements and `force` is not set")))]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<RemovalParams>,
) -> Result<StatusCode, Problem> {
    find(&app, &caller, &name)?;
    match catalogue::remove(&app, &name, params.force).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(error) => {
            let status = match &error {
                RemovalError::Unknown(_) => StatusCode::NOT_FOUND,
                RemovalError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::CONFLICT,
            };
            Err(Problem::new(status, error.to_string()).hint(error.hint()))
        }
    }
}

/// The new name of a stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renaming {
    /// Parts of a-z, 0-9, `_` and `-`, joined by dots.
    name: String,
}

/// Gives a stream another name. Its elements, their numbers and its epoch stay as they are, and its former names still
/// refer to it wherever a name is given. A restricted account needs the role for both names.
#[utoipa::path(post, path = "/api/v1/streams/{name}/rename", tag = "streams",
    params(("name" = String, Path, description = "The stream's name")),
    request_body(content = Renaming),
    responses((status = 200, body = Stream), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "another stream has or had the name"),
        (status = 422, body = Problem, description = "the name is invalid, or the stream has had too many names"),
        (status = 503, body = Problem), (status = 507, body = Problem, description = "there is no room for the \
            definitions of all streams, which include former names; or the disk is full")))]
pub(super) async fn rename(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    body: Body,
) -> Result<Response, Problem> {
    let Renaming { name: new } = params::json(&app, body).await?;
    let entry = find(&app, &caller, &name)?;
    let view = View::new(&app, &caller, Role::Operate);
    if !view.has_under_name(&entry, &new) {
        let extent = format!("not for the stream {new:?}");
        return Err(outside_problem(&caller, Role::Operate, &extent));
    }
    let has_name = entry.current_name() == new;
    let renamed = catalogue::rename(&app, &name, &new).await;
    let entry = renamed.map_err(|error| match error.other() {
        Some(other) if !View::of_reader(&app, &caller).has_stream(other) => {
            let detail =
                format!("another stream has or had the name {new:?}, or one like it in SQL");
            Problem::new(StatusCode::CONFLICT, detail).hint("choose another name")
        }
        _ => rename_problem(&error),
    })?;
    let mut response = Json(Stream::of(&entry)).into_response();
    response.extensions_mut().insert(Subject(new));
    if has_name {
        response.extensions_mut().insert(Unchanged);
    }
    Ok(response)
}

/// Frees a former name of a stream: it no longer refers to the stream, and another one can have it.
#[utoipa::path(delete, path = "/api/v1/streams/{name}/former-names/{former}", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"),
        ("former" = String, Path, description = "The former name")),
    responses((status = 200, body = Stream), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 422, body = Problem, description = "the stream was defined under this name, or has it now"),
        (status = 503, body = Problem), (status = 507, body = Problem, description = "the disk is full")))]
pub(super) async fn forget_name(
    State(app): State<App>,
    caller: Caller,
    Path((name, former)): Path<(String, String)>,
) -> Result<Json<Stream>, Problem> {
    find(&app, &caller, &name)?;
    let forgotten = catalogue::forget_name(&app, &name, &former).await;
    let entry = forgotten.map_err(|error| rename_problem(&error))?;
    Ok(Json(Stream::of(&entry)))
}

fn rename_problem(error: &RenameError) -> Problem {
    let status = match error {
        RenameError::Unknown(_)
        | RenameError::Store(StoreError::Rename(NamesError::NotFormer(_))) => StatusCode::NOT_FOUND,
        RenameError::Exists(_)
        | RenameError::Former { .. }
        | RenameError::SameTable { .. }
        | RenameError::Removing(_) => StatusCode::CONFLICT,
        RenameError::Own(_) | RenameError::Store(StoreError::Name(_) | StoreError::Rename(_)) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        // The room for the definitions of all streams, of which the names are a part.
        RenameError::Store(StoreError::Log(Error::TooLarge { .. })) => {
            StatusCode::INSUFFICIENT_STORAGE
        }
        RenameError::Store(error) => return busy::store_problem(error),
    };
    Problem::new(status, error.to_string()).hint(error.hint())
}

/// The requested elements: the newest, those after a position, those in a range of time, or those of the range
/// after a position, which continues it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ElementParams {
    /// This number of newest elements.
    newest: Option<u32>,
    /// Elements after this position, `EPOCH:N`; `0:0` is the start.
    after: Option<String>,
    /// Elements with a source time at or after this (RFC 3339).
    from: Option<String>,
    /// Elements with a source time before this (RFC 3339).
    to: Option<String>,
    /// Maximum number of elements.
    limit: Option<u32>,
    /// Units to convert fields into, UCUM codes: `temperature:K,pressure:kPa`.
    units: Option<String>,
}

/// Elements of a stream, in the order of their numbers.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only; ElementView writes elements")]
pub(crate) struct Elements {
    /// The stream's name.
    stream: String,
    /// Its elements.
    elements: Vec<ElementShape>,
    /// Whether there are more, beyond the limit or after a gap.
    truncated: bool,
    /// The value of `after` for the next request.
    next_after: Option<String>,
    /// Damaged elements that may be missing. Always 0 for elements after a position, because the answer
    /// ends before a gap.
    damaged: u64,
}

/// Elements of a stream. A client that accepts `application/x-ndjson` gets a line of JSON for each element, in which
/// numbers that are not finite are the texts `NaN`, `Infinity` and `-Infinity`, and a last line with `truncated`,
/// `next_after` and `damaged`; without that line the answer is incomplete.
#[utoipa::path(get, path = "/api/v1/streams/{name}/elements", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), ElementParams),
    responses((status = 200, content((Elements = "application/json"), (String = "application/x-ndjson"))),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the log rolled back past the position"),
        (status = 410, body = Problem, description = "the elements are no longer kept"),
        (status = 429, body = Problem), (status = 503, body = Problem, description = "`limits.queries` \
            are in progress, and this one needs one of them, because it names a range of time")))]
pub(super) async fn elements(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<ElementParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let entry = find(&app, &caller, &name)?;
    let most = app.config.limits.elements;
    let units = Units::of(params.units.as_deref(), &entry.log.schema())?;
    let selection = Selection::of(params, most)?;
    let is_range = matches!(selection, Selection::Range(..));
    let form = match Accepted::of(&headers).has(NDJSON) {
        true => Form::Lines(units),
        false => Form::Elements(units),
    };
    let page = selection.page(entry)?.in_form(form);
    match is_range {
        // The limit bounds the elements of the answer, not those that are read to find them.
        true => page.with_permits(app, caller).respond().await,
        false => page.respond().await,
    }
}

enum Selection {
    Newest(usize),
    After(Position, usize),
    Range(Option<Position>, Range<Timestamp>, usize),
}

impl Selection {
    fn of(params: ElementParams, most: u32) -> Result<Self, Problem> {
        let requested = params.limit.or(params.newest).unwrap_or(most.min(1_000));
        if requested > most {
            let detail = format!("an answer has at most {most} elements, not {requested}");
            return Err(Problem::bad_request(detail).hint("limits.elements sets the limit"));
        }
        let limit = requested as usize;
        let times = params::times(params.from.as_deref(), params.to.as_deref())?;
        let after = params.after.as_deref().map(str::parse::<Position>);
        let after = after
            .transpose()
            .map_err(|error| Problem::bad_request(format!("after: {error}")))?;
        match (params.newest, after, times) {
            (_, None, None) => Ok(Self::Newest(limit)),
            (None, Some(after), None) => Ok(Self::After(after, limit)),
            (None, after, Some(times)) => Ok(Self::Range(after, times, limit)),
            (Some(_), ..) => Err(Problem::bad_request(
                "newest cannot be combined with after, from or to",
            )),
        }
    }

    fn page(self, entry: Arc<Entry>) -> Result<Page, Problem> {
        let log = &entry.log;
        let (scan, limit, gaps) = match self {
            Self::Newest(limit) => {
                let from = log.log().newest_from(limit as u64);
                (log.scan(from, None), limit, Gaps::Skip)
            }
            Self::Range(after, times, limit) => {
                let from = after.map_or(Ok(0), |after| next_after(&entry, after))?;
                (log.scan(from, Some(times)), limit, Gaps::Skip)
            }
            Self::After(position, limit) => (
                log.scan(next_after(&entry, position)?, None),
                limit,
                Gaps::End,
            ),
        };
        Ok(Page::new(entry, scan, limit, gaps))
    }
}

/// The number after a position; 0 stands for the first kept.
fn next_after(entry: &Entry, position: Position) -> Result<u64, Problem> {
    if position.sequence == 0 {
        return Ok(0);
    }
    entry.log.resume(position).map_err(|rollback| {
        let epoch = chappe_stream::Epoch(entry.log.log().epoch());
        let before = rollback.next.saturating_sub(1);
        Problem::new(StatusCode::CONFLICT, rollback.to_string())
            .hint(format!("continue after {epoch}:{before}"))
    })
}

pub(super) fn store_problem(error: StoreError) -> Problem {
    let text = error.to_string();
    match error {
        StoreError::Log(Error::Gap { next, .. }) => Problem::new(StatusCode::GONE, text)
            .hint(format!("continue with number {next}, the next one kept")),
        _ => Problem::internal(text),
    }
}

/// The stream that has or had this name, or a problem with the most similar name that the caller sees as hint.
pub(super) fn find(app: &App, caller: &Caller, name: &str) -> Result<Arc<Entry>, Problem> {
    let entry = app.catalogue.get(name);
    entry.ok_or_else(|| unknown_stream(app, caller, name))
}

/// There is no stream of this name that the caller may see.
pub(super) fn unknown_stream(app: &App, caller: &Caller, name: &str) -> Problem {
    let view = View::of_reader(app, caller);
    let mut entries = app.catalogue.by_current_name();
    entries.retain(|(_, entry)| view.has(entry));
    let problem = Problem::not_found(format!("there is no stream {name:?}"));
    match nearest(name, entries.iter().map(|(name, _)| name.as_str())) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => {
            problem.hint("`chappe stream list` lists all streams (GET /api/v1/streams over HTTP)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_without_room_is_answered_with_the_limit_and_the_remedy() {
        let error = |error: Error| rename_problem(&RenameError::Store(StoreError::Log(error)));
        let definitions = error(Error::TooLarge {
            what: "all streams' names and metadata",
            bytes: 268_435_500,
            limit: 268_435_456,
        });
        assert_eq!(definitions.status, 507);
        assert!(definitions.detail.contains("the limit is 268435456"));
        let hint = definitions.hint.unwrap();
        assert!(hint.contains("chappe stream forget-name"), "{hint}");
        let closed = error(Error::Closed);
        assert_eq!(closed.status, 503);
        let busy = error(Error::QueueFull {
            bytes: 1,
            queued: 1,
            limit: 1,
        });
        assert_eq!((busy.status, busy.retry_after_s), (429, Some(1)));
    }
}
