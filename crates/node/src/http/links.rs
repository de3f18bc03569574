//! Links in both directions: this node's own links, and the peers that read here.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chappe_links::{
    DeadLetter, LinkConfig, LinkError, LinkStatus, PacingStatus, PeerStatus, StreamStatus,
};
use chappe_stream::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::guard::Subject;
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use crate::accounts::Caller;
use crate::clock::rfc3339;
use crate::config::nearest;
use crate::links::{ChangeError, Exchange, Listening};
use crate::shared::App;

/// Default limit of dead letters in one answer; reason: a screen or two.
const LETTERS_DEFAULT: usize = 100;
/// Maximum of dead letters in one answer.
const LETTERS_MAX: usize = 1_000;

/// Links in both directions.
#[derive(Serialize, ToSchema)]
pub(crate) struct Links {
    /// The links of this node, by name.
    links: Vec<Link>,
    /// The peers that read here now.
    peers: Vec<Peer>,
    /// The addresses at which others can read.
    listening: Listening,
}

/// A link.
#[derive(Serialize, ToSchema)]
pub(crate) struct Link {
    /// Its name.
    name: String,
    /// zeromq, zeromq_best_effort, http_pull or http_push.
    kind: &'static str,
    /// The address of the origin.
    address: String,
    /// The selected streams: names, or prefixes ending in `*`.
    selects: Vec<String>,
    /// The prefix of its streams' names here.
    as_prefix: Option<String>,
    /// The serialization of elements on the link.
    serialization: String,
    /// Whether the configuration defines it, so that it cannot be removed here.
    configured: bool,
    /// connecting, connected, waiting or ended.
    state: String,
    /// The last error.
    last_error: Option<String>,
    /// How to repair it.
    hint: Option<String>,
    /// Number of reconnections.
    reconnects: u64,
    /// Current rate in elements per second.
    rate_per_s: f64,
    /// Elements at the origin that are not here yet, by its last report; null where unknown.
    lag_elements: Option<u64>,
    /// Lag of its slowest stream in seconds.
    lag_s: f64,
    /// Bytes received and not yet stored.
    held_bytes: u64,
    /// Bytes received.
    bytes_received: u64,
    /// Stored dead letters.
    dead_letters: u64,
    /// Elements refused here, by reason, over all streams.
    refused: BTreeMap<String, u64>,
    /// Lost elements, by reason, over all streams.
    lost: BTreeMap<String, u64>,
    /// Its streams, by name.
    streams: Vec<LinkStream>,
}

/// A stream of a link.
#[derive(Serialize, ToSchema)]
pub(crate) struct LinkStream {
    /// Its name at the origin.
    name: String,
    /// Its name here.
    local_name: String,
    /// Why the origin, or this node, refuses it.
    refusal: Option<String>,
    /// Position at the origin of the newest element stored here.
    stored: Option<String>,
    /// Current rate in elements per second.
    rate_per_s: f64,
    /// Elements at the origin that are not here yet, by its last report; null where unknown.
    lag_elements: Option<u64>,
    /// Seconds from the newest element's source time to its arrival.
    lag_s: f64,
    /// Occupation of its window, 0 to 1.
    occupation: f64,
    /// Bytes received and not yet stored.
    held_bytes: u64,
    /// Elements received.
    received: u64,
    /// Elements stored at their level and acknowledged.
    acknowledged: u64,
    /// Dropped duplicates.
    repeated: u64,
    /// Elements that became dead letters, by reason.
    refused: BTreeMap<String, u64>,
    /// Lost elements, by reason.
    lost: BTreeMap<String, u64>,
    /// Number of rollbacks of the origin.
    rollbacks: u64,
}

/// A peer that reads here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Peer {
    /// Its address.
    address: String,
    /// Its public key, if it proved one.
    key: Option<String>,
    /// The kind of its link: zeromq, zeromq_best_effort, http_pull or http_push.
    kind: &'static str,
    /// The streams that it reads.
    streams: Vec<String>,
    /// Time of its connection (RFC 3339).
    since: String,
    /// Current rate in elements per second.
    rate_per_s: f64,
    /// Elements sent.
    sent: u64,
    /// Elements retransmitted.
    sent_again: u64,
    /// Elements acknowledged.
    acknowledged: u64,
    /// Elements in flight.
    in_flight: u64,
    /// Occupation of its fullest window, 0 to 1.
    occupation: f64,
    /// Elements not acknowledged.
    lag_elements: u64,
    /// Number of times that a window was full.
    stalls: u64,
    /// Elements that it refused.
    refused: u64,
    /// The pacer of its session; null for kinds without sessions.
    pacing: Option<Pacing>,
}

/// The pacer of a reader's session, which schedules its frames.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pacing {
    /// The pacer: adaptive, napa, flood, fixed_window or fixed_period.
    pacer: String,
    /// Its state: fixed, measuring, idle, rising, holding, falling or draining.
    state: String,
    /// Elements in flight.
    occupation: u64,
    /// It sends faster below this number of elements in flight; 0: no threshold.
    low_threshold: u64,
    /// It waits above this number of elements in flight; 0: no threshold.
    high_threshold: u64,
    /// Seconds between two frames; 0: no pause.
    period_s: f64,
    /// The last round trip, from sending to acknowledgement, in seconds.
    round_trip_s: Option<f64>,
    /// The shortest round trip in seconds.
    round_trip_min_s: Option<f64>,
    /// The rate of the slowest part of the path, in bytes per second.
    delivery_rate_bytes_per_s: Option<u64>,
    /// Elements covered by one acknowledgement.
    acknowledged_at_once: u64,
}

impl Pacing {
    fn of(status: PacingStatus) -> Self {
        Self {
            pacer: status.pacer,
            state: status.state,
            occupation: status.occupation,
            low_threshold: status.low_threshold,
            high_threshold: status.high_threshold,
            period_s: status.period_s,
            round_trip_s: status.round_trip_s,
            round_trip_min_s: status.round_trip_min_s,
            delivery_rate_bytes_per_s: status.delivery_rate_bytes_per_s,
            acknowledged_at_once: status.acknowledged_at_once,
        }
    }
}

/// The name of an enum value, as in the configuration.
fn enum_name(value: impl Serialize) -> String {
    let name = serde_json::to_value(value).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

/// Adds up counts by reason.
fn sum<'a>(maps: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (reason, count) in maps.flatten() {
        let sum: &mut u64 = all.entry(reason.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    all
}

impl Link {
    fn of(exchange: &Exchange, status: LinkStatus) -> Self {
        let config = &status.config;
        Self {
            name: config.name.clone(),
            kind: config.kind.as_str(),
            address: config.address.clone(),
            selects: config.streams.clone(),
            as_prefix: config.as_prefix.clone(),
            serialization: enum_name(config.serialization()),
            configured: exchange.is_configured(&config.name),
            state: enum_name(status.state),
            last_error: status.last_error,
            hint: status.hint,
            reconnects: status.reconnects,
            // An empty sum is -0; adding 0 makes it 0.
            rate_per_s: status.rate_per_s + 0.0,
            lag_elements: status.lag_elements,
            lag_s: status.lag_s,
            held_bytes: status.held_bytes,
            bytes_received: status.bytes_received,
            dead_letters: status.dead_letters,
            refused: sum(status.streams.iter().map(|one| &one.counts.refused)),
            lost: sum(status.streams.iter().map(|one| &one.counts.lost)),
            streams: status.streams.into_iter().map(LinkStream::of).collect(),
        }
    }
}

impl LinkStream {
    fn of(status: StreamStatus) -> Self {
        Self {
            name: status.name,
            local_name: status.local_name,
            refusal: status.refusal,
            stored: status.stored.map(|position| position.to_string()),
            rate_per_s: status.rate_per_s,
            lag_elements: status.lag_elements,
            lag_s: status.lag_s,
            occupation: status.occupation,
            held_bytes: status.held_bytes,
            received: status.counts.received,
            acknowledged: status.counts.acknowledged,
            repeated: status.counts.repeated,
            refused: status.counts.refused,
            lost: status.counts.lost,
            rollbacks: status.counts.rollbacks,
        }
    }
}

impl Peer {
    fn of(status: PeerStatus) -> Self {
        Self {
            address: status.address,
            key: status.key,
            kind: status.kind.as_str(),
            streams: status.streams,
            since: rfc3339(Timestamp(status.since_ns)),
            rate_per_s: status.rate_per_s,
            sent: status.sent,
            sent_again: status.sent_again,
            acknowledged: status.acknowledged,
            in_flight: status.in_flight,
            occupation: status.occupation,
            lag_elements: status.lag_elements,
            stalls: status.stalls,
            refused: status.refused,
            pacing: status.pacing.map(Pacing::of),
        }
    }
}

/// Links in both directions: this node's own links, and the peers that read here.
#[utoipa::path(get, path = "/api/v1/links", tag = "links",
    responses((status = 200, body = Links)))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<Links>, Problem> {
    let exchange = parts::exchange(&app)?;
    let links = exchange.links().list().into_iter();
    let peers = exchange.peers().into_iter();
    Ok(Json(Links {
        links: links.map(|status| Link::of(exchange, status)).collect(),
        peers: peers.map(Peer::of).collect(),
        listening: exchange.listening(),
    }))
}

/// One link.
#[utoipa::path(get, path = "/api/v1/links/{name}", tag = "links",
    params(("name" = String, Path, description = "The link's name")),
    responses((status = 200, body = Link), (status = 404, body = Problem)))]
pub(super) async fn one(State(app): State<App>, Name(name): Name) -> Result<Json<Link>, Problem> {
    Ok(Json(find_link(&app, &name)?))
}

fn find_link(app: &App, name: &str) -> Result<Link, Problem> {
    let exchange = parts::exchange(app)?;
    let status = exchange.links().show(name);
    let status = status.map_err(|error| change_problem(app, error.into()))?;
    Ok(Link::of(exchange, status))
}

/// A new link: the keys of `[[links]]` in the configuration; `chappe config schema` prints their JSON
/// Schema.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only; it is parsed as a LinkConfig")]
pub(crate) struct NewLink {
    /// Its local name: a-z, 0-9, `_` and `-`.
    name: String,
    /// zeromq, zeromq_best_effort, http_pull or http_push.
    kind: String,
    /// The address of the origin: tcp://HOST:PORT or http://HOST:PORT.
    address: String,
    /// The selected streams: names, or prefixes ending in `*`.
    streams: Vec<String>,
    /// xml, postcard or message_pack.
    serialization: Option<String>,
    /// memory, process or power.
    level: Option<String>,
    /// Prefix of the local stream names, joined by a dot.
    as_prefix: Option<String>,
    /// first or new.
    start: Option<String>,
    /// The origin's public CURVE key.
    server_key: Option<String>,
}

/// Adds a link, which starts at once and survives restarts.
#[utoipa::path(post, path = "/api/v1/links", tag = "links",
    request_body(content = NewLink),
    responses((status = 201, body = Link), (status = 401, body = Problem),
        (status = 409, body = Problem, description = "a link with this name exists"),
        (status = 422, body = Problem, description = "the link is invalid; nothing was changed")))]
pub(super) async fn add(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    let link: LinkConfig = params::json(&app, body).await?;
    let name = link.name.clone();
    crate::links::add(&app, link, caller.name())
        .await
        .map_err(|error| change_problem(&app, error))?;
    let link = Json(find_link(&app, &name)?);
    Ok((StatusCode::CREATED, Extension(Subject(name)), link).into_response())
}

/// Removes a link. Its streams and their elements stay.
#[utoipa::path(delete, path = "/api/v1/links/{name}", tag = "links",
    params(("name" = String, Path, description = "The link's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the configuration defines it")))]
pub(super) async fn delete(
    State(app): State<App>,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    crate::links::remove(&app, &name)
        .await
        .map_err(|error| change_problem(&app, error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The requested dead letters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LetterParams {
    /// The first number.
    from: Option<u64>,
    /// Maximum number of dead letters.
    limit: Option<usize>,
}

/// Dead letters of a link.
#[derive(Serialize, ToSchema)]
pub(crate) struct Letters {
    /// Oldest first.
    dead_letters: Vec<Letter>,
    /// Whether there are more.
    truncated: bool,
}

/// An element that was received and could not be stored.
#[derive(Serialize, ToSchema)]
pub(crate) struct Letter {
    /// Its number.
    number: u64,
    /// The local stream that it was sent to; for `http-push` the stream that it is from.
    stream: String,
    /// Its position at the origin; for `http-push` its local position.
    origin: Option<String>,
    /// The contact point that refused it, for `http-push`.
    contact: Option<String>,
    /// schema, too_large or unreadable.
    reason: &'static str,
    /// The reason in detail.
    text: String,
    /// Time of its arrival (RFC 3339).
    received_at: String,
    /// Its size.
    bytes: u64,
}

impl Letter {
    fn of(letter: DeadLetter) -> Self {
        Self {
            number: letter.number,
            stream: letter.stream,
            origin: letter.origin.map(|position| position.to_string()),
            contact: letter.contact,
            reason: letter.reason.as_str(),
            text: letter.text,
            received_at: rfc3339(Timestamp(letter.received_ns)),
            bytes: letter.bytes,
        }
    }
}

/// Dead letters of a link: elements that were received and could not be stored.
#[utoipa::path(get, path = "/api/v1/links/{name}/dead-letters", tag = "links",
    params(("name" = String, Path, description = "The link's name"), LetterParams),
    responses((status = 200, body = Letters), (status = 404, body = Problem)))]
pub(super) async fn dead_letters(
    State(app): State<App>,
    Name(name): Name,
    Params(params): Params<LetterParams>,
) -> Result<Json<Letters>, Problem> {
    let limit = params.limit.unwrap_or(LETTERS_DEFAULT);
    if limit > LETTERS_MAX {
        let detail = format!("limit: an answer has at most {LETTERS_MAX} dead letters");
        return Err(Problem::bad_request(detail));
    }
    let links = parts::exchange(&app)?.links().clone();
    let from = params.from.unwrap_or(0);
    // Reading may block on the disk, so it must not run on the serving thread.
    let read = tokio::task::spawn_blocking(move || links.dead_letters(&name, from, limit + 1));
    let read = read
        .await
        .map_err(|_| Problem::internal("reading dead letters failed"))?;
    let mut letters = read.map_err(|error| change_problem(&app, error.into()))?;
    let truncated = letters.len() > limit;
    letters.truncate(limit);
    Ok(Json(Letters {
        dead_letters: letters.into_iter().map(Letter::of).collect(),
        truncated,
    }))
}

/// A selection of dead letters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterNumbers {
    /// Their numbers; without this, all dead letters.
    numbers: Option<Vec<u64>>,
}

/// The result of an action on dead letters.
#[derive(Serialize, ToSchema)]
pub(crate) struct LetterResult {
    /// The number of letters for which it succeeded.
    done: u64,
    /// The letters for which it failed.
    refused: Vec<RefusedLetter>,
}

/// A dead letter for which an action failed.
#[derive(Serialize, ToSchema)]
pub(crate) struct RefusedLetter {
    /// Its number.
    number: u64,
    /// The reason.
    why: String,
}

/// Stores dead letters after all (`send-again`), or deletes them (`discard`).
#[utoipa::path(post, path = "/api/v1/links/{name}/dead-letters/{verb}", tag = "links",
    params(("name" = String, Path, description = "The link's name"),
        ("verb" = String, Path, description = "send-again or discard")),
    request_body(content = LetterNumbers),
    responses((status = 200, body = LetterResult), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn act_on_letters(
    State(app): State<App>,
    Path((name, verb)): Path<(String, String)>,
    body: Body,
) -> Result<Json<LetterResult>, Problem> {
    let selection: LetterNumbers = params::json(&app, body).await?;
    let links = parts::exchange(&app)?.links().clone();
    let fail = |error: LinkError| change_problem(&app, error.into());
    links.dead_letters(&name, 0, 0).map_err(fail)?;
    let numbers = match selection.numbers {
        Some(numbers) => numbers,
        None => {
            let (links, name) = (links.clone(), name.clone());
            let read =
                tokio::task::spawn_blocking(move || links.dead_letters(&name, 0, usize::MAX));
            let read = read
                .await
                .map_err(|_| Problem::internal("reading dead letters failed"))?;
            read.map_err(fail)?
                .iter()
                .map(|letter| letter.number)
                .collect()
        }
    };
    let mut result = LetterResult {
        done: 0,
        refused: Vec::new(),
    };
    for number in numbers {
        let outcome = match verb.as_str() {
            "send-again" => links.send_again(&name, number).await,
            "discard" => links.discard(&name, Some(&[number])),
            _ => {
                let detail = format!("{verb:?} is not an action on dead letters");
                return Err(Problem::not_found(detail).hint("use send-again or discard"));
            }
        };
        match outcome {
            Ok(()) => result.done += 1,
            Err(error) => result.refused.push(RefusedLetter {
                number,
                why: error.to_string(),
            }),
        }
    }
    Ok(Json(result))
}

/// Converts the error of a change.
fn change_problem(app: &App, error: ChangeError) -> Problem {
    let status = match &error {
        ChangeError::Configured(_) | ChangeError::Link(LinkError::Exists(_)) => {
            StatusCode::CONFLICT
        }
        ChangeError::Link(LinkError::Unknown(name)) => return unknown(app, name),
        ChangeError::Link(LinkError::NoLetter(_)) => StatusCode::NOT_FOUND,
        ChangeError::NotSaved(_) | ChangeError::Link(LinkError::Store(_)) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let problem = Problem::new(status, error.to_string());
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn unknown(app: &App, name: &str) -> Problem {
    let links = app.exchange.get().map(|exchange| exchange.links().list());
    let names: Vec<String> = links
        .into_iter()
        .flatten()
        .map(|link| link.config.name)
        .collect();
    let problem = Problem::not_found(format!("there is no link {name:?}"));
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => problem.hint("GET /api/v1/links lists all links"),
    }
}
