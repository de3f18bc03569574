//! OGC SensorThings API 1.1 at `/sensorthings/v1.1`: see docs/reference/sensorthings.md for the mapping.
//!
//! Entities are the node's streams, devices and other sources, and what clients created. The pure part is
//! `chappe_sensorthings`. A request that reads builds the entities that its caller may see, and runs on a
//! thread that may wait for the disk.

mod change;
mod create;
mod documents;
mod observe;
#[cfg(test)]
mod pauses;
mod reading;
mod snapshot;
mod store;
mod streams;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use chappe_sensorthings::{
    Answer, Entity, EntityType, Fault, Limits, Options, Request, ResourcePath, Source as _, Tail,
    answer,
};
use serde_json::{Value as Json, json};

use super::params;
use super::parts;
use super::problem::Problem;
use super::write::busy::with_pause;
use crate::accounts::Caller;
use crate::clock;
use crate::permits::RequestKind;
use crate::shared::App;
use reading::Reading;
use snapshot::Snapshot;

/// The path of the service root.
pub(super) const ROOT: &str = "/sensorthings/v1.1";
/// The paths of everything below it.
pub(super) const BELOW: &str = "/sensorthings/v1.1/{*path}";
/// The name of the action that creates observations of several datastreams.
const CREATE_OBSERVATIONS: &str = "CreateObservations";
/// The limits of an answer. Reason: the SensorThings clients of browsers ask for pages of 100 to 1,000.
const LIMITS: Limits = Limits {
    page: 100,
    page_max: 1_000,
    bytes_max: 16 << 20,
};
/// The start of the requirements that the service meets.
const REQUIREMENTS: &str = "http://www.opengis.net/spec/iot_sensing/1.1/req/";
/// The requirements that the service meets; docs/reference/sensorthings.md names a test for each.
const CONFORMANCE: [&str; 17] = [
    "datamodel",
    "resource-path/resource-path-to-entities",
    "request-data/order",
    "request-data/expand",
    "request-data/select",
    "request-data/status-code",
    "request-data/query-status-code",
    "request-data/orderby",
    "request-data/top",
    "request-data/skip",
    "request-data/count",
    "request-data/filter",
    "request-data/built-in-filter-operations",
    "request-data/pagination",
    "create-update-delete/create-entity",
    "create-update-delete/deep-insert",
    "data-array/data-array",
];

/// The service root with the sets of entities.
pub(super) async fn root(State(app): State<App>, headers: HeaderMap) -> Response {
    let root = root_url(&app, &headers);
    let sets = EntityType::ALL.map(EntityType::set_name);
    let sets = sets.map(|name| json!({"name": name, "url": format!("{root}/{name}")}));
    let conformance = CONFORMANCE.map(|name| format!("{REQUIREMENTS}{name}"));
    document(&json!({
        "value": sets,
        "serverSettings": {"conformance": conformance},
    }))
}

/// Entities, sets and properties.
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let path = ResourcePath::parse(below(&uri)).map_err(problem)?;
    let kind = path.target().ok_or_else(|| {
        Problem::not_found("the path names no entity").hint(format!("{ROOT} lists the sets"))
    })?;
    let options = Options::parse(uri.query().unwrap_or_default(), kind).map_err(problem)?;
    let root = root_url(&app, &headers);
    let answered = with_entities(&app, &caller, stream_of(&path, &options), move |reading| {
        let request = Request {
            path: &path,
            options: &options,
            root: &root,
            now: clock::now(),
            limits: LIMITS,
        };
        answer(reading, &request)
    });
    Ok(match answered.await?.map_err(problem)? {
        Answer::Json(json) => document(&json),
        Answer::Text(text) => {
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        Answer::Empty => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Creates entities, or observations.
pub(super) async fn post(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, Response> {
    let root = root_url(&app, &headers);
    let created = async {
        let path = below(&uri).trim_matches('/');
        if path == CREATE_OBSERVATIONS {
            let body = params::json(&app, body).await?;
            return observe::create_many(&app, &caller, &root, &body).await;
        }
        let path = ResourcePath::parse(path).map_err(problem)?;
        if path.tail != Tail::Whole || !path.is_set() {
            return Err(not_allowed(
                &Method::POST,
                "entities are created by POST to a set",
            ));
        }
        let body: Json = params::json(&app, body).await?;
        match path.target() {
            Some(EntityType::Observation) => {
                observe::create_one(&app, &caller, &root, &path, &body).await
            }
            _ => create::create(&app, &caller, &root, &path, &body).await,
        }
    };
    created.await.map_err(with_pause)
}

/// Changes a created entity.
pub(super) async fn patch(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, Response> {
    let changed = async {
        let path = ResourcePath::parse(below(&uri)).map_err(problem)?;
        let kind = headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("application/json-patch") {
            let detail = "changes as JSON Patch (RFC 6902) are not supported";
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail)
                .hint("send the changed members as application/json"));
        }
        let body: Json = params::json(&app, body).await?;
        change::patch(&app, &caller, &path, &body).await
    };
    changed.await.map_err(with_pause)
}

/// Removes a created entity.
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Response> {
    let removed = async {
        let path = ResourcePath::parse(below(&uri)).map_err(problem)?;
        change::delete(&app, &caller, &path).await
    };
    removed.await.map_err(with_pause)
}

/// The part of a path below the service root, as it is in the URL.
fn below(uri: &Uri) -> &str {
    uri.path().strip_prefix(ROOT).unwrap_or_default()
}

fn root_url(app: &App, headers: &HeaderMap) -> String {
    format!("{}{ROOT}", parts::own_url(app, headers))
}

fn document(json: &Json) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        json.to_string(),
    )
        .into_response()
}

/// The stream that alone is needed to answer: that of the observations of one datastream.
fn stream_of(path: &ResourcePath, options: &Options) -> Option<String> {
    let [first, second] = &path.steps[..] else {
        return None;
    };
    let id = first.id.as_deref()?;
    let is_observations = second.link.target == EntityType::Observation && second.id.is_none();
    if first.link.target != EntityType::Datastream || !is_observations {
        return None;
    }
    let mut has_links = !options.expand.is_empty();
    let mut look = |path: &[String]| has_links |= path.len() > 1;
    if let Some(filter) = &options.filter {
        filter.each_path(&mut look);
    }
    options.order.iter().for_each(|key| look(&key.path));
    let (stream, _) = streams::parse_datastream_id(id)?;
    (!has_links).then(|| stream.to_owned())
}

/// Stops the reading of a request that is dropped, as when its client disconnects: it would hold its permit
/// until the time limit.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` with the entities that the caller may see, on a thread that may wait for the disk.
async fn with_entities<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    stream: Option<String>,
    work: impl FnOnce(&Reading) -> T + Send + 'static,
) -> Result<T, Problem> {
    let permit = parts::permit_soon(app, caller, RequestKind::Query).await?;
    let (app, caller) = (app.clone(), caller.clone());
    let time = Duration::from_millis(u64::from(app.config.limits.query_time_ms));
    let is_abandoned: Arc<AtomicBool> = Arc::default();
    let _abandon = Abandon(is_abandoned.clone());
    let running = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let reading = Reading {
            snapshot: Snapshot::new(&app, &caller, stream.as_deref()),
            deadline: Instant::now() + time,
            elements_read: Cell::new(0),
            is_abandoned,
        };
        work(&reading)
    });
    let failed = |_| Problem::internal("reading entities failed");
    running.await.map_err(failed)
}

/// The entity at the end of a path's step before the last, and the one at its end if it names one.
fn entities_of(
    reading: &Reading,
    path: &ResourcePath,
) -> Result<(Option<Entity>, Option<Entity>), Fault> {
    let (mut before, mut here): (Option<Entity>, Option<Entity>) = (None, None);
    for step in &path.steps {
        let kind = step.link.target;
        let missing = || Fault::missing(format!("there is no such {}", kind.name()));
        before = here.take();
        let found = match (&before, &step.id) {
            (None, Some(id)) => reading.get(kind, id)?,
            (Some(from), id) if kind != EntityType::Observation => {
                let related = reading.related(from, step.link)?;
                let is_set = step.link.is_many && id.is_none();
                let mut related = related.into_iter().filter(|_| !is_set);
                related.find(|entity| id.as_ref().is_none_or(|id| entity.id == *id))
            }
            (_, id) => match id {
                Some(id) => reading.get(kind, id)?,
                None => None,
            },
        };
        here = found.map(|entity| (*entity).clone());
        let names_one = step.id.is_some() || !step.link.is_many;
        if names_one && here.is_none() {
            return Err(missing());
        }
    }
    Ok((before, here))
}

fn not_allowed(method: &Method, hint: &str) -> Problem {
    let detail = format!("this cannot be done by {method} here");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).hint(hint)
}

/// The problem of a fault.
fn problem(fault: Fault) -> Problem {
    let detail = fault.to_string();
    match fault {
        Fault::Missing(_) => Problem::not_found(detail),
        Fault::Unsupported(_) => Problem::new(StatusCode::NOT_IMPLEMENTED, detail),
        Fault::Conflict(_) => Problem::new(StatusCode::CONFLICT, detail),
        Fault::Stopped(_) => {
            Problem::bad_request(detail).hint("limits.query_time_ms sets the time limit")
        }
        Fault::Failed(_) => Problem::internal(detail),
        _ => Problem::bad_request(detail),
    }
}
