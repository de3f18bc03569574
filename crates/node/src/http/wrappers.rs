//! Wrappers and exporters: their states, their files, their dead letters, their commands.

use axum::Json;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use chappe_links::{DeadLetters, PeerLetter};
use chappe_wrappers::{Command, Form, Inbound, Receipt, Sender, ShareExceeded, WrapperError};
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::create::{beyond_share, check_share};
use super::links::{LetterNumbers, LetterParams, LetterResult, RefusedLetter};
use super::paging::Paging;
use super::params::{self, Name, Params};
use super::parts;
use super::problem::{Problem, code};
use super::sensors::written;
use super::write::{self, with_pause};
use crate::accounts::{Caller, Shares};
use crate::config::nearest;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::wrappers::{
    self, Call, Exporter, Handle, InboxError, LetterError, Row, Sent, Table, Wrapper, WrapperHandle,
};

/// Memory of a message of unknown length, at most; reason: a larger `http.max_body_bytes` must leave some messages.
const MESSAGE_MEMORY: usize = 4 << 20;
/// Time that storing a message may take; then the client is asked to send it again.
const STORE_TIME: Duration = Duration::from_secs(30);

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
    let (wrappers, next) = paging.cut("wrappers", app.wrappers.all(), |one| &one.peer.name)?;
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
    row(&app.wrappers, &name).map(Json)
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
    write_file(&app, &app.wrappers, name, body).await
}

/// Removes a wrapper and its file; its streams stay.
#[utoipa::path(delete, path = "/api/v1/wrappers/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it is in the file of a virtual sensor")))]
pub(super) async fn delete(
    State(app): State<App>,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    if let Some(sensor) = &row(&app.wrappers, &name)?.sensor {
        let detail =
            format!("the wrapper {name:?} is in the file of the virtual sensor {sensor:?}");
        let problem = Problem::new(StatusCode::CONFLICT, detail);
        return Err(problem.hint("change or remove the sensor"));
    }
    remove_file(&app.wrappers, &name).await
}

/// All exporters.
#[utoipa::path(get, path = "/api/v1/exporters", tag = "wrappers", params(Paging),
    responses((status = 200, body = ExporterList), (status = 400, body = Problem)))]
pub(super) async fn list_exporters(
    State(app): State<App>,
    Params(paging): Params<Paging>,
) -> Result<Json<ExporterList>, Problem> {
    let (exporters, next) = paging.cut("exporters", app.exporters.all(), |one| &one.peer.name)?;
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
    row(&app.exporters, &name).map(Json)
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
    write_file(&app, &app.exporters, name, body).await
}

/// Removes an exporter and its file. Its cursor is kept: a new exporter of the same name continues from there.
#[utoipa::path(delete, path = "/api/v1/exporters/{name}", tag = "wrappers",
    params(("name" = String, Path, description = "The exporter's name")),
    responses((status = 204), (status = 401, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn delete_exporter(
    State(app): State<App>,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    remove_file(&app.exporters, &name).await
}

/// The row of one.
fn row<R: Row, H: Handle>(table: &Table<R, H>, name: &str) -> Result<R, Problem> {
    table.get(name).ok_or_else(|| unknown(table, name))
}

/// The handle of one that runs.
fn handle<R: Row, H: Handle>(table: &Table<R, H>, name: &str) -> Result<H, Problem> {
    table.handle(name).ok_or_else(|| unknown(table, name))
}

fn unknown<R: Row, H: Handle>(table: &Table<R, H>, name: &str) -> Problem {
    let all = table.all();
    let problem = Problem::not_found(format!("no {} {name:?} runs", R::NOUN));
    match nearest(name, all.iter().map(|one| one.peer().name.as_str())) {
        Some(near) if near != name => problem.hint(format!("did you mean {near:?}?")),
        _ => problem.hint(format!(
            "`chappe wrapper list` lists all {}s (GET {} over HTTP)",
            R::NOUN,
            R::PATH
        )),
    }
}

async fn write_file<R: Sent, H: Handle>(
    app: &App,
    table: &Table<R, H>,
    name: String,
    body: Body,
) -> Result<StatusCode, Problem> {
    let bytes = params::body(app, body).await?;
    let text = String::from_utf8(bytes.into());
    let text = text.map_err(|_| Problem::bad_request("the file is not UTF-8"))?;
    let of = app.clone();
    let done = tokio::task::spawn_blocking(move || wrappers::write::<R>(&of, &name, &text)).await;
    table.rescan.notify_one();
    written(done)
}

async fn remove_file<R: Row + Send + 'static, H: Handle>(
    table: &Table<R, H>,
    name: &str,
) -> Result<StatusCode, Problem> {
    let row = row(table, name)?;
    let done = tokio::task::spawn_blocking(move || wrappers::remove(&row)).await;
    table.rescan.notify_one();
    written(done)
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
    /// The message as text, with replacements for bytes that are none; the first 1,000 characters. An element that
    /// its stream refused is JSON.
    text: String,
    /// Whether only the beginning of the message is kept: it cannot be sent again.
    is_cut: bool,
}

impl MessageLetter {
    fn of((number, letter): (u64, PeerLetter)) -> Self {
        let (bytes, text) = match &letter {
            PeerLetter::Message(message) | PeerLetter::Beginning(message) => {
                let text = String::from_utf8_lossy(&message.bytes);
                (message.bytes.len(), text.chars().take(1_000).collect())
            }
            PeerLetter::Element(refused) => {
                let text = wrappers::shown(refused);
                (text.len(), text.chars().take(1_000).collect())
            }
        };
        Self {
            number,
            stream: letter.stream().map(str::to_owned),
            reason: letter.reason().to_owned(),
            received_at: letter.received().to_string(),
            bytes: bytes as u64,
            text,
            is_cut: matches!(letter, PeerLetter::Beginning(_)),
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
    read_letters(&app.wrappers, &name, params).await
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
    read_letters(&app.exporters, &name, params).await
}

async fn read_letters<R: Row, H: Handle>(
    table: &Table<R, H>,
    name: &str,
    params: LetterParams,
) -> Result<Json<MessageLetters>, Problem> {
    let letters = handle(table, name)?.letters().clone();
    let (from, limit) = params.range()?;
    // Reading may block on the disk, so it must not run on the serving thread.
    let read = tokio::task::spawn_blocking(move || letters.peer_letters(from, limit + 1)).await;
    let failed = || Problem::internal("reading dead letters failed");
    let mut letters = read
        .map_err(|_| failed())?
        .map_err(|error| Problem::internal(error.to_string()))?;
    let next = LetterParams::cut(&mut letters, limit, |(number, _)| *number);
    Ok(Json(MessageLetters {
        dead_letters: letters.into_iter().map(MessageLetter::of).collect(),
        truncated: next.is_some(),
        next,
    }))
}

/// Decodes dead letters again with the current settings and stores them (`send-again`), or deletes
/// them (`discard`).
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
    let handle = handle(&app.wrappers, &name)?;
    let sends = match verb.as_str() {
        "send-again" => true,
        "discard" => false,
        _ => return Err(unknown_verb(&verb)),
    };
    // It runs to its end even if the client disconnects: a stored letter must not stay.
    let work = tokio::spawn(async move {
        let mut result = LetterResult::default();
        for number in numbers(&handle.letters, selection) {
            let outcome = match sends {
                true => wrappers::resend(&app, &handle, number).await,
                false => wrappers::discard(&handle.letters, number).await,
            };
            result.note(number, outcome);
        }
        result
    });
    let interrupted = |_| Problem::internal("the action on dead letters was interrupted");
    Ok(Json(work.await.map_err(interrupted)?))
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
    let handle = handle(&app.exporters, &name)?;
    let mut result = LetterResult::default();
    for number in numbers(&handle.letters, selection) {
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
fn numbers(letters: &DeadLetters, selection: LetterNumbers) -> Vec<u64> {
    let all = || letters.numbers(0, usize::MAX);
    let selected = selection
        .numbers
        .map(|numbers| numbers.into_iter().collect());
    selected.unwrap_or_else(all)
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
    call(&app, &name, command, arguments).await.map(Json)
}

/// Calls a command of the wrapper `name`; returns the peer's answer.
pub(super) async fn call(
    app: &App,
    name: &str,
    command: String,
    arguments: Map<String, Value>,
) -> Result<Value, Problem> {
    let handle = handle(&app.wrappers, name)?;
    let tables = &handle.file.keys.commands;
    if !tables.iter().any(|table| table.name == command) {
        let problem = Problem::not_found(format!("{name} has no command {command:?}"));
        let names = tables.iter().map(|table| table.name.as_str());
        return Err(match nearest(&command, names) {
            Some(near) => problem.hint(format!("did you mean {near:?}?")),
            None => problem.hint("a [[command]] of the wrapper's file defines one"),
        });
    }
    called(app, name, None, command, arguments).await
}

/// Calls a command of the wrapper `wrapper`, or an operation of a device that its peer announces.
pub(super) async fn called(
    app: &App,
    wrapper: &str,
    device: Option<String>,
    name: String,
    arguments: Map<String, Value>,
) -> Result<Value, Problem> {
    let handle = handle(&app.wrappers, wrapper)?;
    let (reply, answer) = oneshot::channel();
    let call = Call {
        device,
        command: Command { name, arguments },
        reply,
    };
    let busy = || Problem::unavailable("the wrapper has too many calls, or is not connected");
    handle.calls.try_send(call).map_err(|_| busy())?;
    match answer.await {
        Ok(Ok(answer)) => Ok(answer),
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

/// Sends a message to a wrapper of kind `webhook`; responds once it is stored. A client that receives no response can
/// send the message again.
#[utoipa::path(post, path = "/api/v1/wrappers/{name}/messages", tag = "wrappers",
    params(("name" = String, Path, description = "The wrapper's name")),
    request_body(content((Vec<u8> = "application/octet-stream")),
        description = "A message in the format of the wrapper's file, of any media type"),
    responses((status = 200, body = MessageReceipt), (status = 401, body = Problem),
        (status = 404, body = Problem),
        (status = 429, body = Problem, description = "too many requests are writing, or too many of them are from \
            this account"),
        (status = 503, body = Problem),
        (status = 507, body = Problem, description = "the message needs new streams and the account has reached \
            its share, or the disk is full")))]
pub(super) async fn message(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    body: Body,
) -> Result<Response, Problem> {
    let handle = handle(&app.wrappers, &name)?;
    let taken = deliver(&app, &caller, &handle, "webhook", body, Form::Plain).await;
    let receipt = match taken {
        Ok(receipt) => receipt,
        Err(problem) if problem.retry_after_s.is_some() => return Ok(with_pause(problem)),
        Err(problem) => return Err(problem),
    };
    let receipt = MessageReceipt {
        elements: receipt.elements,
        undecodable: receipt.undecodable,
        refused: receipt.refused,
    };
    Ok(Json(receipt).into_response())
}

/// Passes a message to a wrapper of a kind that takes messages, and waits until it is stored.
///
/// # Errors
/// It is not, or perhaps not; `Retry-After` says that the client sends it again.
pub(super) async fn deliver(
    app: &App,
    caller: &Caller,
    handle: &WrapperHandle,
    kind: &str,
    body: Body,
    form: Form,
) -> Result<Receipt, Problem> {
    let _permit = parts::permit(app, caller, RequestKind::Write)?;
    let most = (app.config.http.max_body_bytes as usize).min(MESSAGE_MEMORY);
    let announced = body
        .size_hint()
        .upper()
        .and_then(|it| usize::try_from(it).ok());
    let bytes = announced.map_or(most, |bytes| bytes.min(most));
    let _memory = write::memory(app, caller, bytes)?;
    let body = params::body(app, body).await?.into();
    let (reply, receipt) = oneshot::channel();
    let busy = || match app.storage.log.health() {
        chappe_log::Health::Full => {
            let detail = "the node's disk is full";
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail).retry_after(write::busy::FULL_S)
        }
        _ => Problem::unavailable("the wrapper cannot take the message now")
            .retry_after(write::busy::BUSY_S),
    };
    let sender = Sender {
        account: Shares::payer(caller).into(),
        definitions_max: app
            .shares
            .definitions_max_of(caller)
            .map(|it| (it.streams, it.bytes)),
    };
    let message = Inbound {
        body,
        form,
        sender,
        reply,
    };
    match handle.inbox.send(message) {
        Ok(()) => {}
        Err(InboxError::Busy) => return Err(busy()),
        // It is opened again, after the disk was full for example.
        Err(InboxError::Closed) if handle.file.keys.kind == kind => return Err(busy()),
        Err(InboxError::Closed) => {
            let name = &handle.file.name;
            let problem = Problem::not_found(format!("the wrapper {name:?} accepts no messages"));
            return Err(problem.hint(format!("a wrapper of kind {kind:?} accepts messages")));
        }
    }
    match tokio::time::timeout(STORE_TIME, receipt).await {
        Ok(Ok(Err(ShareExceeded { definition_bytes }))) => {
            check_share(app, caller, definition_bytes)?;
            let detail = format!(
                "the message needs more new streams than the share of {:?} has left",
                caller.name()
            );
            Err(beyond_share(app, caller, code::SHARE_OF_STREAMS, detail))
        }
        Ok(Ok(Ok(receipt))) => Ok(receipt),
        _ => Err(busy()),
    }
}
