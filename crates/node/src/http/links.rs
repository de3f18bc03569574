//! Links in both directions: this node's own links, and the peers that read here.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use chappe_identity::Role;
use chappe_links::{DeadLetter, LinkConfig, LinkError, LinkStatus, PeerStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::guard::{Subject, outside_problem};
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
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
    fn new(exchange: &Exchange, status: LinkStatus) -> Self {
        let configured = exchange.is_configured(&status.name);
        Self { status, configured }
    }
}

/// Links in both directions: this node's own links, and the peers that read here.
#[utoipa::path(get, path = "/api/v1/links", tag = "links",
    responses((status = 200, body = Links)))]
pub(super) async fn list(State(app): State<App>) -> Result<Json<Links>, Problem> {
    let exchange = parts::exchange(&app)?;
    let links = exchange.links().list().into_iter();
    Ok(Json(Links {
        links: links.map(|status| Link::new(exchange, status)).collect(),
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
    Ok(Link::new(exchange, status))
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
    /// Maximum number of dead letters.
    pub(super) limit: Option<usize>,
}

/// Dead letters of a link.
#[derive(Serialize, ToSchema)]
pub(crate) struct Letters {
    /// Oldest first.
    dead_letters: Vec<DeadLetter>,
    /// Whether there are more.
    truncated: bool,
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
        dead_letters: letters,
        truncated,
    }))
}

/// A selection of dead letters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LetterNumbers {
    /// Their numbers; without this, all dead letters.
    pub(super) numbers: Option<Vec<u64>>,
}

/// The result of an action on dead letters.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct LetterResult {
    /// The number of letters for which it succeeded.
    pub(super) done: u64,
    /// The letters for which it failed.
    pub(super) refused: Vec<RefusedLetter>,
}

/// A dead letter for which an action failed.
#[derive(Serialize, ToSchema)]
pub(crate) struct RefusedLetter {
    /// Its number.
    pub(super) number: u64,
    /// The reason.
    pub(super) why: String,
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
        None => problem.hint("GET /api/v1/links lists all links"),
    }
}
