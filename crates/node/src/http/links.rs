//! Links, both ways: where this node reads, and who reads here.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chappe_links::{
    DeadLetter, LinkConfig, LinkError, LinkStatus, PacingStatus, PeerStatus, StreamStatus,
};
use chappe_stream::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use crate::clock::rfc3339;
use crate::config::nearest;
use crate::links::{ChangeError, Exchange, Listening};
use crate::shared::App;

/// Dead letters in one answer, unless fewer are asked for; reason: a screen or two.
const LETTERS_DEFAULT: usize = 100;
/// Dead letters in one answer at most.
const LETTERS_MAX: usize = 1_000;

/// Links, both ways.
#[derive(Serialize, ToSchema)]
pub(crate) struct Links {
    /// Where this node reads, by name.
    links: Vec<Link>,
    /// Who reads here now.
    peers: Vec<Peer>,
    /// Where others can read here.
    listening: Listening,
}

/// A link.
#[derive(Serialize, ToSchema)]
pub(crate) struct Link {
    /// Its name.
    name: String,
    /// zeromq, zeromq_best_effort, http_pull or http_push.
    kind: &'static str,
    /// Where the origin listens.
    address: String,
    /// Which streams it takes: names, or beginnings of names with `*`.
    selects: Vec<String>,
    /// What stands before the names of its streams here.
    as_prefix: Option<String>,
    /// How elements are written on the way.
    serialization: String,
    /// It stands in the node's configuration, and cannot be removed here.
    configured: bool,
    /// connecting, connected, waiting or ended.
    state: String,
    /// The last error.
    last_error: Option<String>,
    /// What to do about it.
    hint: Option<String>,
    /// How often it was connected again.
    reconnects: u64,
    /// Elements a second, lately.
    rate_per_s: f64,
    /// Elements that are at the origin and not here, as last heard; null where that cannot be known.
    lag_elements: Option<u64>,
    /// Seconds that the slowest of its streams is behind.
    lag_s: f64,
    /// Bytes that are here and not stored.
    held_bytes: u64,
    /// Bytes received.
    bytes_received: u64,
    /// Dead letters kept.
    dead_letters: u64,
    /// Elements refused here, by reason, over all streams.
    refused: BTreeMap<String, u64>,
    /// Elements that never come, by reason, over all streams.
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
    /// The origin's position of the newest element that is stored here.
    stored: Option<String>,
    /// Elements a second, lately.
    rate_per_s: f64,
    /// Elements that are at the origin and not here, as last heard; null where that cannot be known.
    lag_elements: Option<u64>,
    /// Seconds from the newest element's source time to its arrival.
    lag_s: f64,
    /// How full its window is, 0 to 1.
    occupation: f64,
    /// Bytes that are here and not stored.
    held_bytes: u64,
    /// Elements received.
    received: u64,
    /// Elements stored at their level and acknowledged.
    acknowledged: u64,
    /// Elements that came again and were dropped.
    repeated: u64,
    /// Elements among the dead letters, by reason.
    refused: BTreeMap<String, u64>,
    /// Elements that never come, by reason.
    lost: BTreeMap<String, u64>,
    /// How often the origin went back.
    rollbacks: u64,
}

/// Somebody who reads here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Peer {
    /// Its address.
    address: String,
    /// Its public key, if it proved one.
    key: Option<String>,
    /// How it reads: zeromq, zeromq_best_effort, http_pull or http_push.
    kind: &'static str,
    /// The streams that it reads.
    streams: Vec<String>,
    /// Since when (RFC 3339).
    since: String,
    /// Elements a second, lately.
    rate_per_s: f64,
    /// Elements sent.
    sent: u64,
    /// Elements sent again.
    sent_again: u64,
    /// Elements acknowledged.
    acknowledged: u64,
    /// Elements on the way.
    in_flight: u64,
    /// How full its windows are, 0 to 1: the fullest.
    occupation: f64,
    /// Elements that are not acknowledged.
    lag_elements: u64,
    /// How often its windows were full.
    stalls: u64,
    /// Elements that it refused.
    refused: u64,
    /// The pacer of its session; none where the kind has no session.
    pacing: Option<Pacing>,
}

/// The pacer of a reader's session: when the next frame may go.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pacing {
    /// The pacer: adaptive, napa, flood, fixed_window or fixed_period.
    pacer: String,
    /// What it is about: fixed, measuring, idle, rising, holding, falling or draining.
    state: String,
    /// Elements on the way.
    occupation: u64,
    /// Below so many on the way it sends faster; 0: none.
    low_threshold: u64,
    /// Above so many on the way it waits; 0: none.
    high_threshold: u64,
    /// Seconds between two frames; 0: it does not hold back.
    period_s: f64,
    /// Seconds from sending to acknowledgement, the last.
    round_trip_s: Option<f64>,
    /// The shortest.
    round_trip_min_s: Option<f64>,
    /// The rate of the slowest part of the way, bytes a second.
    delivery_rate_bytes_per_s: Option<u64>,
    /// Elements that one acknowledgement acknowledges.
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

/// The word of a choice of the configuration.
fn word(value: impl Serialize) -> String {
    let word = serde_json::to_value(value).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

/// Counts of streams by reason, added up.
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
            serialization: word(config.serialization()),
            configured: exchange.is_configured(&config.name),
            state: word(status.state),
            last_error: status.last_error,
            hint: status.hint,
            reconnects: status.reconnects,
            // The sum of nothing is -0.
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

/// Links, both ways: where this node reads, and who reads here.
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
    Ok(Json(shown(&app, &name)?))
}

fn shown(app: &App, name: &str) -> Result<Link, Problem> {
    let exchange = parts::exchange(app)?;
    let status = exchange.links().show(name);
    let status = status.map_err(|error| refused(app, error.into()))?;
    Ok(Link::of(exchange, status))
}

/// What makes a link: the keys of `[[links]]` in the configuration, whose JSON Schema `chappe config
/// schema` prints.
#[derive(ToSchema)]
#[allow(dead_code, reason = "a description; it is read as a LinkConfig")]
pub(crate) struct NewLink {
    /// What it is called here: a-z, 0-9, `_` and `-`.
    name: String,
    /// zeromq, zeromq_best_effort, http_pull or http_push.
    kind: String,
    /// Where the origin listens: tcp://HOST:PORT or http://HOST:PORT.
    address: String,
    /// Which streams: names, or beginnings of names with `*`.
    streams: Vec<String>,
    /// xml, postcard or message_pack.
    serialization: Option<String>,
    /// memory, process or power.
    level: Option<String>,
    /// Put before the names of the streams here, with a dot.
    as_prefix: Option<String>,
    /// first or new.
    start: Option<String>,
    /// The origin's public CURVE key.
    server_key: Option<String>,
}

/// Adds a link, which begins at once and outlives restarts.
#[utoipa::path(post, path = "/api/v1/links", tag = "links",
    request_body(content = NewLink),
    responses((status = 201, body = Link), (status = 401, body = Problem),
        (status = 409, body = Problem, description = "there is one of this name"),
        (status = 422, body = Problem, description = "it cannot be one; nothing was changed")))]
pub(super) async fn add(State(app): State<App>, body: Body) -> Result<Response, Problem> {
    let link: LinkConfig = params::json(&app, body).await?;
    let name = link.name.clone();
    crate::links::add(&app, link)
        .await
        .map_err(|error| refused(&app, error))?;
    Ok((StatusCode::CREATED, Json(shown(&app, &name)?)).into_response())
}

/// Ends and forgets a link. What it brought stays.
#[utoipa::path(delete, path = "/api/v1/links/{name}", tag = "links",
    params(("name" = String, Path, description = "The link's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it stands in the configuration")))]
pub(super) async fn delete(
    State(app): State<App>,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    crate::links::remove(&app, &name)
        .await
        .map_err(|error| refused(&app, error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which dead letters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichLetters {
    /// From this number on.
    from: Option<u64>,
    /// At most so many.
    limit: Option<usize>,
}

/// Dead letters of a link.
#[derive(Serialize, ToSchema)]
pub(crate) struct Letters {
    /// The oldest first.
    dead_letters: Vec<Letter>,
    /// There were more than the limit let through.
    truncated: bool,
}

/// An element that came and could not be stored.
#[derive(Serialize, ToSchema)]
pub(crate) struct Letter {
    /// Its number.
    number: u64,
    /// The stream here that it was for; of `http-push`: that it is from.
    stream: String,
    /// Its position at the origin; of `http-push`: here.
    origin: Option<String>,
    /// The contact point that refused it, of `http-push`.
    contact: Option<String>,
    /// schema, too_large or unreadable.
    reason: &'static str,
    /// Why, in words.
    text: String,
    /// When it came (RFC 3339).
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

/// Dead letters of a link: elements that came and could not be stored.
#[utoipa::path(get, path = "/api/v1/links/{name}/dead-letters", tag = "links",
    params(("name" = String, Path, description = "The link's name"), WhichLetters),
    responses((status = 200, body = Letters), (status = 404, body = Problem)))]
pub(super) async fn dead_letters(
    State(app): State<App>,
    Name(name): Name,
    Params(which): Params<WhichLetters>,
) -> Result<Json<Letters>, Problem> {
    let limit = which.limit.unwrap_or(LETTERS_DEFAULT);
    if limit > LETTERS_MAX {
        let detail = format!("at most {LETTERS_MAX} dead letters are given at once");
        return Err(Problem::bad_request(detail));
    }
    let links = parts::exchange(&app)?.links().clone();
    let from = which.from.unwrap_or(0);
    // Reading touches the disk: not on the thread that serves.
    let read = tokio::task::spawn_blocking(move || links.dead_letters(&name, from, limit + 1));
    let read = read
        .await
        .map_err(|_| Problem::internal("reading dead letters failed"))?;
    let mut letters = read.map_err(|error| refused(&app, error.into()))?;
    let truncated = letters.len() > limit;
    letters.truncate(limit);
    Ok(Json(Letters {
        dead_letters: letters.into_iter().map(Letter::of).collect(),
        truncated,
    }))
}

/// Which dead letters are meant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Numbers {
    /// These; without it all.
    numbers: Option<Vec<u64>>,
}

/// What was done with dead letters.
#[derive(Serialize, ToSchema)]
pub(crate) struct Done {
    /// With so many it was done.
    done: u64,
    /// Those that stayed.
    refused: Vec<Stayed>,
}

/// A dead letter that stayed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stayed {
    /// Its number.
    number: u64,
    /// Why it stayed.
    why: String,
}

/// Tries to store dead letters once more (`send-again`), or gives them up (`discard`).
#[utoipa::path(post, path = "/api/v1/links/{name}/dead-letters/{verb}", tag = "links",
    params(("name" = String, Path, description = "The link's name"),
        ("verb" = String, Path, description = "send-again or discard")),
    request_body(content = Numbers),
    responses((status = 200, body = Done), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn act_on_letters(
    State(app): State<App>,
    Path((name, verb)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Done>, Problem> {
    let meant: Numbers = params::json(&app, body).await?;
    let links = parts::exchange(&app)?.links().clone();
    let fail = |error: LinkError| refused(&app, error.into());
    links.dead_letters(&name, 0, 0).map_err(fail)?;
    let numbers = match meant.numbers {
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
    let mut done = Done {
        done: 0,
        refused: Vec::new(),
    };
    for number in numbers {
        let result = match verb.as_str() {
            "send-again" => links.send_again(&name, number).await,
            "discard" => links.discard(&name, Some(&[number])),
            _ => {
                let detail = format!("{verb:?} cannot be done with dead letters");
                return Err(Problem::not_found(detail).hint("send-again or discard"));
            }
        };
        match result {
            Ok(()) => done.done += 1,
            Err(error) => done.refused.push(Stayed {
                number,
                why: error.to_string(),
            }),
        }
    }
    Ok(Json(done))
}

/// What is told to who wanted a change.
fn refused(app: &App, error: ChangeError) -> Problem {
    let status = match &error {
        ChangeError::Configured(_) | ChangeError::Link(LinkError::Exists(_)) => {
            StatusCode::CONFLICT
        }
        ChangeError::Link(LinkError::Unknown(name)) => return unknown(app, name),
        ChangeError::Link(LinkError::NoLetter(_)) => StatusCode::NOT_FOUND,
        ChangeError::NotKept(_) | ChangeError::Link(LinkError::Store(_)) => {
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
        None => problem.hint("GET /api/v1/links lists them"),
    }
}
