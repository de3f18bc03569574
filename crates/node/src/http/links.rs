//! Links in both directions: this node's own links, and the peers that read here.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chappe_identity::Role;
use chappe_links::{DeadLetter, LinkConfig, LinkError, LinkStatus, PeerStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::guard::{Subject, outside_problem};
use super::paging::{Paging, cursor};
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::shapes;
use crate::accounts::Caller;
use crate::config::nearest;
use crate::links::{ChangeError, Exchange, Listening};
use crate::shared::App;

/// Default limit of dead letters in one answer; reason: a screen or two.
pub(super) const LETTERS_DEFAULT: usize = 100;
/// Maximum of dead letters in one answer.
pub(super) const LETTERS_MAX: usize = 1_000;

/// Links in both directions.
#[derive(Serialize, ToSchema)]
pub(crate) struct Links {
    /// The links of this node, by name.
    links: Vec<Link>,
    /// The cursor of the next links; null at the end.
    next: Option<String>,
    /// The peers that read here now.
    peers: Vec<PeerStatus>,
    /// The addresses at which others can read.
    listening: Listening,
}

/// A link, and whether it can be removed here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Link {
    #[serde(flatten)]
    status: LinkStatus,
    /// Whether the configuration defines it, so that it cannot be removed here.
    configured: bool,
}

impl Link {
    fn new(app: &App, exchange: &Exchange, mut status: LinkStatus) -> Self {
        for stream in &mut status.streams {
            stream.local_name = app.catalogue.names().current(&stream.local_name);
        }
        let configured = exchange.is_configured(&status.name);
        Self { status, configured }
    }
}

/// Links in both directions: this node's own links, and the peers that read here.
#[utoipa::path(get, path = "/api/v1/links", tag = "links", params(Paging),
    responses((status = 200, body = Links), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<Links>, Problem> {
    let exchange = parts::exchange(&app)?;
    let by_name = |status: &LinkStatus| status.name.clone();
    let (links, next) = paging.cut_by("links", exchange.links().list(), by_name)?;
    let links = links.into_iter();
    Ok(Json(Links {
        links: links
            .map(|status| Link::new(&app, exchange, status))
            .collect(),
        next,
        peers: exchange.peers(),
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
    Ok(Link::new(app, exchange, status))
}

/// A new link: the keys of `[[links]]` in the configuration; `chappe config schema` prints their JSON
/// Schema.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only; it is parsed as a LinkConfig")]
pub(crate) struct NewLink {
    /// Its local name: a-z, 0-9, `_` and `-`.
    name: String,
    /// Its protocol.
    kind: shapes::LinkKind,
    /// The address of the origin: tcp://HOST:PORT, http://HOST:PORT or https://HOST:PORT.
    address: String,
    /// The selected streams: names, or prefixes ending in `*`.
    streams: Vec<String>,
    /// The serialization of elements. Default: postcard; xml for the HTTP kinds.
    serialization: Option<shapes::Serialization>,
    /// The level at which elements are stored here. Default: `log.level` of the node.
    level: Option<shapes::Level>,
    /// Prefix of the local stream names, joined by a dot.
    as_prefix: Option<String>,
    /// Where to start a stream that was never read. Default: first.
    start: Option<shapes::LinkStart>,
    /// The address of the origin's directory, for `zeromq_best_effort`.
    directory: Option<String>,
    /// The origin's public CURVE key.
    server_key: Option<String>,
    /// The address at which the origin reaches this node, for `http_push`.
    contact: Option<String>,
    /// The token that the origin requires of readers, for the HTTP kinds.
    token: Option<String>,
    /// A file of the node's host with that token; needs the role `administer`.
    token_file: Option<String>,
    /// The SHA-256 of the origin's certificate, for https.
    fingerprint: Option<String>,
    /// A file of the node's host with certificate authorities, for https; needs the role `administer`.
    authorities: Option<String>,
    /// Whether the link may leave this machine without encryption. Default: no.
    insecure: Option<bool>,
    /// The keys of `[links.limits]`.
    limits: Option<BTreeMap<String, Value>>,
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
    // The node reads these files, whoever may, and sends the token to the link's address.
    let names_file = link.token_file.is_some() || link.authorities.is_some();
    if names_file && !caller.administers() {
        let extent =
            "a link with files of the node's host (token_file, authorities) needs administer";
        return Err(outside_problem(&caller, Role::Operate, extent));
    }
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
    pub(super) from: Option<u64>,
    /// Maximum number of dead letters, up to 1,000; 100 without it.
    #[param(minimum = 1)]
    pub(super) limit: Option<usize>,
    /// The value of `next` in the previous response; then `from` has no effect.
    pub(super) cursor: Option<String>,
}

impl LetterParams {
    /// The first number, and how many.
    pub(super) fn range(self) -> Result<(u64, usize), Problem> {
        let limit = self.limit.unwrap_or(LETTERS_DEFAULT);
        if limit > LETTERS_MAX {
            let detail = format!("limit: an answer has at most {LETTERS_MAX} dead letters");
            return Err(Problem::bad_request(detail));
        }
        let paging = Paging::new(self.limit, self.cursor);
        paging.limit()?;
        let from = match paging.after("dead_letters")? {
            None => self.from.unwrap_or(0),
            Some(last) => last.parse::<u64>().map_or(0, |last| last.saturating_add(1)),
        };
        Ok((from, limit))
    }

    /// Removes the letters beyond the limit; returns the cursor of the next part.
    pub(super) fn cut<L>(
        letters: &mut Vec<L>,
        limit: usize,
        number: impl Fn(&L) -> u64,
    ) -> Option<String> {
        let is_cut = letters.len() > limit;
        letters.truncate(limit);
        let last = letters.last().filter(|_| is_cut)?;
        Some(cursor("dead_letters", &number(last).to_string()))
    }
}

/// Dead letters of a link.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetters)]
pub(crate) struct Letters {
    /// Oldest first.
    dead_letters: Vec<DeadLetter>,
    /// Whether there are more.
    truncated: bool,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// Dead letters of a link: elements that were received and could not be stored.
#[utoipa::path(get, path = "/api/v1/links/{name}/dead-letters", tag = "links",
    params(("name" = String, Path, description = "The link's name"), LetterParams),
    responses((status = 200, body = Letters), (status = 400, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn dead_letters(
    State(app): State<App>,
    Name(name): Name,
    Params(params): Params<LetterParams>,
) -> Result<Json<Letters>, Problem> {
    let (from, limit) = params.range()?;
    let links = parts::exchange(&app)?.links().clone();
    // Reading may block on the disk, so it must not run on the serving thread.
    let read = tokio::task::spawn_blocking(move || links.dead_letters(&name, from, limit + 1));
    let read = read
        .await
        .map_err(|_| Problem::internal("reading dead letters failed"))?;
    let mut letters = read.map_err(|error| change_problem(&app, error.into()))?;
    let next = LetterParams::cut(&mut letters, limit, |letter| letter.number);
    Ok(Json(Letters {
        dead_letters: letters,
        truncated: next.is_some(),
        next,
    }))
}

/// A selection of dead letters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeadLetterNumbers)]
pub(crate) struct LetterNumbers {
    /// Their numbers, each once; without this, all dead letters.
    pub(super) numbers: Option<BTreeSet<u64>>,
}

/// An action on dead letters.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
#[allow(dead_code, reason = "documentation only; it is a part of a path")]
pub(crate) enum DeadLetterVerb {
    /// Stores them after all.
    SendAgain,
    /// Deletes them.
    Discard,
}

/// The result of an action on dead letters.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = DeadLetterResult)]
pub(crate) struct LetterResult {
    /// The number of letters for which it succeeded.
    pub(super) done: u64,
    /// The letters for which it failed.
    pub(super) refused: Vec<RefusedLetter>,
}

/// A dead letter for which an action failed.
#[derive(Serialize, ToSchema)]
#[schema(as = RefusedDeadLetter)]
pub(crate) struct RefusedLetter {
    /// Its number.
    pub(super) number: u64,
    /// The reason.
    pub(super) why: String,
}

/// Tries again to store dead letters (`send-again`), or deletes them (`discard`).
#[utoipa::path(post, path = "/api/v1/links/{name}/dead-letters/{verb}", tag = "links",
    params(("name" = String, Path, description = "The link's name"),
        ("verb" = DeadLetterVerb, Path, description = "send-again or discard")),
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
    let mut result = LetterResult::default();
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
    let names: Vec<String> = links.into_iter().flatten().map(|link| link.name).collect();
    let problem = Problem::not_found(format!("there is no link {name:?}"));
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => problem.hint(format!("did you mean {near:?}?")),
        None => problem.hint("`chappe link list` lists all links (GET /api/v1/links over HTTP)"),
    }
}
