//! Wrappers and exporters: their states, their files, their dead letters, their commands.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use chappe_links::{DeadLetters, Message};
use chappe_wrappers::{Command, Inbound, WrapperError};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::links::{LetterNumbers, LetterParams, LetterResult, RefusedLetter};
use super::paging::Paging;
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::sensors::written;
use super::write::with_pause;
use crate::accounts::Caller;
use crate::config::nearest;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::wrappers::{self, Call, Exporter, InboxError, LetterError, Wrapper};

/// Time that storing a message may take; then the client is asked to send it again.
const STORE_TIME: Duration = Duration::from_secs(30);
/// Seconds after which a client sends a message again.
const RETRY_AFTER_S: &str = "1";

/// Wrappers.
#[derive(Serialize, ToSchema)]
pub(crate) struct WrapperList {
    /// By name, including those with an invalid file.
    wrappers: Vec<Wrapper>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// Exporters.
#[derive(Serialize, ToSchema)]
pub(crate) struct ExporterList {
    /// By name, including those with an invalid file.
    exporters: Vec<Exporter>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// All wrappers.
#[utoipa::path(get, path = "/api/v1/wrappers", tag = "wrappers", params(Paging),
    responses((status = 200, body = WrapperList), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<WrapperList>, Problem> {
    let (wrappers, next) = paging.cut("wrappers", app.wrappers.all(), |one| &one.name)?;
    Ok(Json(WrapperList { wrappers, next }))
}

/// One wrapper.
#[utoipa::path(get, path = "/api/v1/wrappers/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name")),
    responses((status = 200, body = Wrapper), (status = 404, body = Problem)))]
pub(super) async fn one(
    State(app): State<App>,
    Name(name): Name,
) -> Result<Json<Wrapper>, Problem> {
    app.wrappers
        .get(&name)
        .map(Json)
        .ok_or_else(|| unknown(&app, &name))
}

/// Writes the file of a wrapper; the change takes effect within a second.
#[utoipa::path(put, path = "/api/v1/wrappers/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name")),
    request_body(content((String = "application/toml"), (Vec<u8> = "application/octet-stream")),
        description = "The file, a TOML text"),
    responses((status = 204), (status = 401, body = Problem),
        (status = 422, body = Problem, description = "the file is invalid; nothing was changed")))]
pub(super) async fn put(
    State(app): State<App>,
    Name(name): Name,
    body: Body,
) -> Result<StatusCode, Problem> {
    let text = text(&app, body).await?;
    let of = app.clone();
    let done = tokio::task::spawn_blocking(move || wrappers::write_wrapper(&of, &name, &text));
    let done = done.await;
    app.wrappers.rescan.notify_one();
    written(done)
}

/// Removes a wrapper and its file; its streams stay.
#[utoipa::path(delete, path = "/api/v1/wrappers/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn delete(
    State(app): State<App>,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    let row = app
        .wrappers
        .get(&name)
        .ok_or_else(|| unknown(&app, &name))?;
    let done = tokio::task::spawn_blocking(move || wrappers::remove(&row)).await;
    app.wrappers.rescan.notify_one();
    written(done)
}

/// All exporters.
#[utoipa::path(get, path = "/api/v1/exporters", tag = "wrappers", params(Paging),
    responses((status = 200, body = ExporterList), (status = 400, body = Problem)))]
pub(super) async fn list_exporters(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<ExporterList>, Problem> {
    let (exporters, next) = paging.cut("exporters", app.exporters.all(), |one| &one.name)?;
    Ok(Json(ExporterList { exporters, next }))
}

/// One exporter.
#[utoipa::path(get, path = "/api/v1/exporters/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The exporter's name")),
    responses((status = 200, body = Exporter), (status = 404, body = Problem)))]
pub(super) async fn one_exporter(
    State(app): State<App>,
    Name(name): Name,
) -> Result<Json<Exporter>, Problem> {
    app.exporters
        .get(&name)
        .map(Json)
        .ok_or_else(|| unknown_exporter(&app, &name))
}

/// Writes the file of an exporter; the change takes effect within a second.
#[utoipa::path(put, path = "/api/v1/exporters/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The exporter's name")),
    request_body(content((String = "application/toml"), (Vec<u8> = "application/octet-stream")),
        description = "The file, a TOML text"),
    responses((status = 204), (status = 401, body = Problem),
        (status = 422, body = Problem, description = "the file is invalid; nothing was changed")))]
pub(super) async fn put_exporter(
    State(app): State<App>,
    Name(name): Name,
    body: Body,
) -> Result<StatusCode, Problem> {
    let text = text(&app, body).await?;
    let of = app.clone();
    let done = tokio::task::spawn_blocking(move || wrappers::write_exporter(&of, &name, &text));
    let done = done.await;
    app.exporters.rescan.notify_one();
    written(done)
}

/// Removes an exporter and its file. Its cursor stays: an exporter of the same name continues there.
#[utoipa::path(delete, path = "/api/v1/exporters/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The exporter's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn delete_exporter(
    State(app): State<App>,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    let row = app
        .exporters
        .get(&name)
        .ok_or_else(|| unknown_exporter(&app, &name))?;
    let done = tokio::task::spawn_blocking(move || wrappers::remove(&row)).await;
    app.exporters.rescan.notify_one();
    written(done)
}

async fn text(app: &App, body: Body) -> Result<String, Problem> {
    let bytes = params::body(app, body).await?;
    String::from_utf8(bytes.into()).map_err(|_| Problem::bad_request("the file is not UTF-8"))
}

/// A message that could not be decoded, or an element that a peer refused.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageLetter {
    /// Its number.
    number: u64,
    /// The stream, if it is known.
    stream: Option<String>,
    /// Why it is dead.
    reason: String,
    /// Time of receipt (RFC 3339).
    received_at: String,
    /// The length of the message.
    bytes: u64,
    /// The message as text, with replacements for bytes that are none; the first 1,000 characters.
    text: String,
}

impl MessageLetter {
    fn of((number, message): (u64, Message)) -> Self {
        let text = String::from_utf8_lossy(&message.bytes);
        Self {
            number,
            stream: message.stream,
            reason: message.reason,
            received_at: message.received.to_string(),
            bytes: message.bytes.len() as u64,
            text: text.chars().take(1_000).collect(),
        }
    }
}

/// Dead letters of a wrapper or an exporter.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageLetters {
    /// Oldest first.
    dead_letters: Vec<MessageLetter>,
    /// Whether there are more.
    truncated: bool,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// Dead letters of a wrapper: messages that were received and could not be decoded or stored.
#[utoipa::path(get, path = "/api/v1/wrappers/{name}/dead-letters", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name"), LetterParams),
    responses((status = 200, body = MessageLetters), (status = 404, body = Problem)))]
pub(super) async fn dead_letters(
    State(app): State<App>,
    Name(name): Name,
    Params(params): Params<LetterParams>,
) -> Result<Json<MessageLetters>, Problem> {
    let handle = app
        .wrappers
        .handle(&name)
        .ok_or_else(|| unknown(&app, &name))?;
    read_letters(handle.letters, params).await
}

/// Dead letters of an exporter: elements that its peer refused.
#[utoipa::path(get, path = "/api/v1/exporters/{name}/dead-letters", tag = "wrappers",
    params(("name" = String, Path, description = "The exporter's name"), LetterParams),
    responses((status = 200, body = MessageLetters), (status = 404, body = Problem)))]
pub(super) async fn exporter_letters(
    State(app): State<App>,
    Name(name): Name,
    Params(params): Params<LetterParams>,
) -> Result<Json<MessageLetters>, Problem> {
    let handle = app
        .exporters
        .handle(&name)
        .ok_or_else(|| unknown_exporter(&app, &name))?;
    read_letters(handle.letters, params).await
}

async fn read_letters(
    letters: Arc<DeadLetters>,
    params: LetterParams,
) -> Result<Json<MessageLetters>, Problem> {
    let (from, limit) = params.range()?;
    // Reading may block on the disk, so it must not run on the serving thread.
    let read = tokio::task::spawn_blocking(move || letters.messages(from, limit + 1)).await;
    let failed = || Problem::internal("reading dead letters failed");
    let mut messages = read
        .map_err(|_| failed())?
        .map_err(|error| Problem::internal(error.to_string()))?;
    let next = LetterParams::cut(&mut messages, limit, |(number, _)| *number);
    Ok(Json(MessageLetters {
        dead_letters: messages.into_iter().map(MessageLetter::of).collect(),
        truncated: next.is_some(),
        next,
    }))
}

/// Decodes dead letters again by the present settings and stores them (`send-again`), or deletes them
/// (`discard`).
#[utoipa::path(post, path = "/api/v1/wrappers/{name}/dead-letters/{verb}", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name"),
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
    let handle = app
        .wrappers
        .handle(&name)
        .ok_or_else(|| unknown(&app, &name))?;
    let numbers = numbers(&handle.letters, selection).await?;
    let mut result = LetterResult::default();
    for number in numbers {
        let outcome = match verb.as_str() {
            "send-again" => wrappers::resend(&app, &handle, number).await,
            "discard" => wrappers::discard(&handle.letters, number).await,
            _ => return Err(unknown_verb(&verb)),
        };
        result.note(number, outcome);
    }
    Ok(Json(result))
}

/// Deletes dead letters of an exporter.
#[utoipa::path(post, path = "/api/v1/exporters/{name}/dead-letters/discard", tag = "wrappers",
    params(("name" = String, Path, description = "The exporter's name")),
    request_body(content = LetterNumbers),
    responses((status = 200, body = LetterResult), (status = 401, body = Problem),
        (status = 404, body = Problem)))]
pub(super) async fn discard_exporter_letters(
    State(app): State<App>,
    Name(name): Name,
    body: Body,
) -> Result<Json<LetterResult>, Problem> {
    let selection: LetterNumbers = params::json(&app, body).await?;
    let handle = app
        .exporters
        .handle(&name)
        .ok_or_else(|| unknown_exporter(&app, &name))?;
    let numbers = numbers(&handle.letters, selection).await?;
    let mut result = LetterResult::default();
    for number in numbers {
        result.note(number, wrappers::discard(&handle.letters, number).await);
    }
    Ok(Json(result))
}

impl LetterResult {
    fn note(&mut self, number: u64, outcome: Result<(), LetterError>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(error) => self.refused.push(RefusedLetter {
                number,
                why: error.to_string(),
            }),
        }
    }
}

/// The selected numbers, or those of all letters.
async fn numbers(
    letters: &Arc<DeadLetters>,
    selection: LetterNumbers,
) -> Result<Vec<u64>, Problem> {
    if let Some(numbers) = selection.numbers {
        return Ok(numbers);
    }
    let letters = letters.clone();
    let read = tokio::task::spawn_blocking(move || letters.messages(0, usize::MAX)).await;
    let failed = || Problem::internal("reading dead letters failed");
    let read = read.map_err(|_| failed())?.map_err(|_| failed())?;
    Ok(read.into_iter().map(|(number, _)| number).collect())
}

fn unknown_verb(verb: &str) -> Problem {
    let detail = format!("{verb:?} is not an action on dead letters");
    Problem::not_found(detail).hint("use send-again or discard")
}

/// The arguments of a command, by name.
#[derive(ToSchema)]
#[schema(value_type = std::collections::BTreeMap<String, Value>)]
#[allow(dead_code, reason = "documentation only")]
pub(crate) struct CommandArguments(Map<String, Value>);

/// What the peer answered: any JSON value.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only")]
pub(crate) struct CommandAnswer(Value);

/// Calls a command of a wrapper, which passes it to its peer; the body is an object of arguments. Returns
/// the peer's answer.
#[utoipa::path(post, path = "/api/v1/wrappers/{name}/commands/{command}", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name"),
        ("command" = String, Path, description = "The name of a [[command]] of its file")),
    request_body(content = CommandArguments),
    responses((status = 200, body = CommandAnswer), (status = 401, body = Problem),
        (status = 404, body = Problem), (status = 502, body = Problem),
        (status = 503, body = Problem)))]
pub(super) async fn command(
    State(app): State<App>,
    Path((name, command)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let arguments: Map<String, Value> = params::json(&app, body).await?;
    let handle = app
        .wrappers
        .handle(&name)
        .ok_or_else(|| unknown(&app, &name))?;
    let tables = &handle.file.keys.commands;
    if !tables.iter().any(|table| table.name == command) {
        let problem = Problem::not_found(format!("{name} has no command {command:?}"));
        let names = tables.iter().map(|table| table.name.as_str());
        return Err(match nearest(&command, names) {
            Some(near) => problem.hint(format!("did you mean {near:?}?")),
            None => problem.hint("a [[command]] of the wrapper's file defines one"),
        });
    }
    let (reply, answer) = oneshot::channel();
    let name = command;
    let call = Call {
        command: Command { name, arguments },
        reply,
    };
    let busy = || Problem::unavailable("the wrapper has too many calls, or is not connected");
    handle.calls.try_send(call).map_err(|_| busy())?;
    match answer.await {
        Ok(Ok(answer)) => Ok(Json(answer)),
        Ok(Err(error)) => {
            let status = match error {
                WrapperError::Command(_) => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_GATEWAY,
            };
            Err(Problem::new(status, error.to_string()))
        }
        Err(_) => Err(busy()),
    }
}

/// What became of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageReceipt {
    /// The elements that it became.
    elements: u64,
    /// 1 if it could not be decoded, or not all of it, and became a dead letter.
    undecodable: u64,
    /// Elements that do not fit their streams and became dead letters.
    refused: u64,
}

/// Sends a message to a wrapper of kind `webhook`; answers once it is stored. A client that gets no answer
/// sends it again.
#[utoipa::path(post, path = "/api/v1/wrappers/{name}/messages", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name")),
    request_body(content((Vec<u8> = "application/octet-stream")),
        description = "A message in the format of the wrapper's file, of any media type"),
    responses((status = 200, body = MessageReceipt), (status = 401, body = Problem),
        (status = 404, body = Problem),
        (status = 429, body = Problem, description = "too many requests write, or too many of this account; \
            see Retry-After"),
        (status = 503, body = Problem)))]
pub(super) async fn message(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    body: Body,
) -> Result<Response, Problem> {
    let _permit = match parts::permit(&app, &caller, RequestKind::Write) {
        Ok(permit) => permit,
        Err(problem) => return Ok(with_pause(problem)),
    };
    let handle = app
        .wrappers
        .handle(&name)
        .ok_or_else(|| unknown(&app, &name))?;
    let body = params::body(&app, body).await?.into();
    let (reply, receipt) = oneshot::channel();
    let busy = || {
        let problem = Problem::unavailable("the wrapper cannot take the message now");
        ([(RETRY_AFTER, RETRY_AFTER_S)], problem).into_response()
    };
    match handle.inbox.send(Inbound { body, reply }) {
        Ok(()) => {}
        Err(InboxError::Busy) => return Ok(busy()),
        // It is opened again, after the disk was full for example.
        Err(InboxError::Closed) if handle.file.kind().is_ok_and(|it| it.name == "webhook") => {
            return Ok(busy());
        }
        Err(InboxError::Closed) => {
            let problem = Problem::not_found(format!("the wrapper {name:?} takes no messages"));
            return Err(problem.hint("a wrapper of kind \"webhook\" takes messages"));
        }
    }
    match tokio::time::timeout(STORE_TIME, receipt).await {
        Ok(Ok(receipt)) => Ok(Json(MessageReceipt {
            elements: receipt.elements,
            undecodable: receipt.undecodable,
            refused: receipt.refused,
        })
        .into_response()),
        _ => Ok(busy()),
    }
}

fn unknown(app: &App, name: &str) -> Problem {
    let all = app.wrappers.all();
    let problem = Problem::not_found(format!("no wrapper {name:?} runs"));
    match nearest(name, all.iter().map(|one| one.name.as_str())) {
        Some(near) if near != name => problem.hint(format!("did you mean {near:?}?")),
        _ => problem.hint("GET /api/v1/wrappers lists all wrappers"),
    }
}

fn unknown_exporter(app: &App, name: &str) -> Problem {
    let all = app.exporters.all();
    let problem = Problem::not_found(format!("no exporter {name:?} runs"));
    match nearest(name, all.iter().map(|one| one.name.as_str())) {
        Some(near) if near != name => problem.hint(format!("did you mean {near:?}?")),
        _ => problem.hint("GET /api/v1/exporters lists all exporters"),
    }
}
