//! Streams and their elements.

use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chappe_log::{Error, Level};
use chappe_stream::{Position, StoreError, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page::{Gaps, Page};
use super::params::{self, Name, Params};
use super::problem::Problem;
use crate::catalogue::{self, Entry, RemovalError};
use crate::clock::rfc3339;
use crate::config::nearest;
use crate::shared::App;
use crate::view::{ElementShape, FieldView};

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
    fields: Vec<FieldView>,
    /// What an element's key identifies, for streams with keys.
    key: Option<String>,
    /// Its key in the registry.
    entity: String,
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
            fields: schema.fields.iter().map(FieldView::of).collect(),
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

/// How a stream is removed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Removal {
    /// Also when it holds elements.
    #[serde(default)]
    force: bool,
}

/// Removes a stream with all its elements. One of this name that comes later has another epoch.
#[utoipa::path(delete, path = "/api/v1/streams/{name}", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), Removal),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "its source or a reader is there, or it holds \
            elements and `force` is not set")))]
pub(super) async fn delete(
    State(app): State<App>,
    Name(name): Name,
    Params(removal): Params<Removal>,
) -> Result<StatusCode, Problem> {
    find(&app, &name)?;
    match catalogue::remove(&app, &name, removal.force).await {
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
    /// There are more than the limit let through, or than there are before a gap.
    truncated: bool,
    /// The position after which to go on.
    next_after: Option<String>,
    /// Damaged elements that may be missing among these. After a position there are none: the answer
    /// ends before a gap.
    damaged: u64,
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
    selection.page(entry)?.respond().await
}

enum Selection {
    Newest(usize),
    After(Position, usize),
    Range(Range<Timestamp>, usize),
}

impl Selection {
    fn of(which: Which, most: u32) -> Result<Self, Problem> {
        let given = which.limit.or(which.newest).unwrap_or(most.min(1_000));
        if given > most {
            let detail = format!("at most {most} elements are given at once");
            return Err(Problem::bad_request(detail).hint("the limit is limits.elements"));
        }
        let limit = given as usize;
        let times = params::times(which.from.as_deref(), which.to.as_deref())?;
        match (which.newest, which.after, times) {
            (_, None, None) => Ok(Self::Newest(limit)),
            (None, Some(after), None) => {
                let position = after
                    .parse()
                    .map_err(|error| Problem::bad_request(format!("after: {error}")))?;
                Ok(Self::After(position, limit))
            }
            (None, None, Some(times)) => Ok(Self::Range(times, limit)),
            _ => Err(Problem::bad_request(
                "newest, after, and from with to exclude each other",
            )),
        }
    }

    fn page(self, entry: Arc<Entry>) -> Result<Page, Problem> {
        let log = &entry.log;
        let (scan, limit, gaps) = match self {
            Self::Newest(limit) => {
                let from = log.log().newest_from(limit as u64);
                (log.scan(from, None), limit, Gaps::Passed)
            }
            Self::Range(times, limit) => (log.scan(0, Some(times)), limit, Gaps::Passed),
            Self::After(position, limit) => (
                log.scan(next_after(&entry, position)?, None),
                limit,
                Gaps::End,
            ),
        };
        Ok(Page::new(entry, scan, limit, gaps))
    }
}

/// The number that follows a position; 0 for the first kept.
fn next_after(entry: &Entry, position: Position) -> Result<u64, Problem> {
    if position.sequence == 0 {
        return Ok(0);
    }
    entry.log.resume(position).map_err(|rollback| {
        let epoch = chappe_stream::Epoch(entry.log.log().epoch());
        let before = rollback.next.saturating_sub(1);
        Problem::new(StatusCode::CONFLICT, rollback.to_string())
            .hint(format!("go on after {epoch}:{before}"))
    })
}

pub(super) fn refused(error: StoreError) -> Problem {
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
