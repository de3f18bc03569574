//! SQL over stored streams.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use chappe_identity::Role;
use chappe_stream::sqlite::{
    Answer, FunctionTable, HistoryLimits, HistoryQuery, Scope, StopHandle,
};
use chappe_stream::{QueryError, QueryLimits, StreamLog};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::completeness::completeness_calls;
use super::guard::outside_problem;
use super::params;
use super::parts;
use super::problem::Problem;
use crate::accounts::{Caller, View};
use crate::catalogue::Entry;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::view::ValueView;

/// The header of an incomplete answer: `elements` of a stream are missing, `rows` of the result, or both.
const PARTIAL: HeaderName = HeaderName::from_static("chappe-partial");

/// A query.
#[derive(Deserialize, ToSchema)]
#[schema(as = StreamQuery)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// One SELECT statement; each stream is a table (`"ward.bed1.ecg"` or `ward_bed1_ecg`).
    sql: String,
    /// Maximum number of rows; the answer says when there are more. Without it, and beyond the limit of
    /// the node, such an answer is an error unless `partial` is set.
    limit: Option<u32>,
    /// Only elements with a source time at or after this (RFC 3339).
    from: Option<String>,
    /// Only elements with a source time before this (RFC 3339).
    to: Option<String>,
    /// Whether to answer in part if a limit (time, memory, rows) is reached: from the newest elements, or
    /// with the first rows. Otherwise such a query fails.
    #[serde(default)]
    partial: bool,
}

impl Question {
    fn scope(&self) -> Result<Scope, Problem> {
        let times = params::times(self.from.as_deref(), self.to.as_deref())?;
        Ok(Scope {
            times,
            allows_partial: self.partial,
        })
    }
}

/// An answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct Rows {
    /// Names of the columns.
    columns: Vec<String>,
    /// The rows, each with one value per column.
    rows: Vec<Vec<serde_json::Value>>,
    /// Whether rows beyond the limit were omitted.
    truncated: bool,
    /// Whether not all requested elements were read; `read` lists the elements behind the rows.
    partial: bool,
    /// The elements read of each stream.
    read: Vec<Read>,
}

/// The elements read of one stream.
#[derive(Serialize, ToSchema)]
#[schema(as = StreamRead)]
pub(crate) struct Read {
    stream: String,
    /// The former name of the stream by which the statement names it; absent if it uses the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    former_name: Option<String>,
    /// The number of elements read; the newest ones when not all were read.
    elements: u64,
    /// The number of elements in the stream.
    kept: u64,
    /// Whether all requested elements were read.
    complete: bool,
    /// The number of damaged elements that may be missing.
    damaged: u64,
}

/// Queries stored streams in SQL. A query cannot change anything.
#[utoipa::path(post, path = "/api/v1/streams/query", tag = "streams", request_body = Question,
    responses(
        (status = 200, body = Rows, headers(("chappe-partial" = String, description = "The missing \
            part of an incomplete answer: `elements` of a stream, `rows` of the result, or both"))),
        (status = 400, body = Problem, description = "the statement is invalid, or a limit (time, \
            memory, rows) was reached and `partial` is not set"),
        (status = 403, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn query(
    State(app): State<App>,
    caller: Caller,
    body: Body,
) -> Result<Response, Problem> {
    let question: Question = params::json(&app, body).await?;
    let scope = question.scope()?;
    let limits = &app.config.limits;
    let rows_max = limits.query_rows;
    let rows = question.limit.unwrap_or(rows_max).min(rows_max) as usize;
    let time = Duration::from_millis(u64::from(limits.query_time_ms));
    let permit = parts::permit(&app, &caller, RequestKind::Query)?;
    let view = View::of_reader(&app, &caller);
    let mut entries = app.catalogue.entries();
    entries.retain(|entry| view.has(entry));
    let is_whole = view.is_whole();
    let (handle_sender, handle) = oneshot::channel();
    let ledger = app.observability.ledger.clone();
    let work = tokio::task::spawn_blocking(move || {
        let (sql, calls) =
            completeness_calls(&question.sql, &entries, &ledger, &scope).map_err(query_problem)?;
        let answer = run(&sql, &calls, &entries, rows, &scope, handle_sender);
        // Rows may be 64 MiB: encode them here, not on the serving thread.
        let is_bounded = question.partial || question.limit.is_some_and(|limit| limit <= rows_max);
        let answer = match answer {
            Ok(answer) if answer.truncated && !is_bounded => Err(too_many_rows(rows_max)),
            Ok(answer) => Ok(response(answer)),
            Err(error) if is_whole => Err(query_problem(error)),
            Err(error) => Err(restricted_problem(&caller, error)),
        };
        drop(permit);
        answer
    });
    let watchdog = async move {
        let Ok(handle) = handle.await else { return };
        // A partial answer that follows the first stop has as much time again.
        loop {
            tokio::time::sleep(time).await;
            handle.stop();
        }
    };
    let watchdog = tokio::spawn(watchdog);
    let answer = work.await;
    watchdog.abort();
    answer.map_err(|_| Problem::internal("the query failed"))?
}

fn too_many_rows(rows_max: u32) -> Problem {
    Problem::bad_request(format!("the answer has more than {rows_max} rows")).hint(
        "select less, ask for the first rows with LIMIT, or allow an incomplete answer with \
         --partial (the member partial over REST); limits.query_rows sets the limit",
    )
}

fn run(
    sql: &str,
    calls: &[FunctionTable],
    entries: &[Arc<Entry>],
    rows: usize,
    scope: &Scope,
    handle: oneshot::Sender<StopHandle>,
) -> Result<Answer, QueryError> {
    let streams: Vec<&StreamLog> = entries.iter().map(|entry| &entry.log).collect();
    let defaults = HistoryLimits::default();
    let limits = HistoryLimits {
        query: QueryLimits {
            rows,
            ..defaults.query
        },
        ..defaults
    };
    let query = HistoryQuery::with_tables(sql, &streams, calls, limits)?;
    // Fails when the client has disconnected; the query's own limits still stop it.
    let _ = handle.send(query.stop_handle());
    query.run(scope)
}

fn response(answer: Answer) -> Response {
    let partial = answer.is_partial();
    let missing = match (partial, answer.truncated) {
        (false, false) => None,
        (true, false) => Some("elements"),
        (false, true) => Some("rows"),
        (true, true) => Some("elements, rows"),
    };
    let mut response = Json(rows_of(answer, partial)).into_response();
    if let Some(missing) = missing {
        let headers = response.headers_mut();
        headers.insert(PARTIAL, HeaderValue::from_static(missing));
    }
    response
}

fn rows_of(answer: Answer, partial: bool) -> Rows {
    let json = |value| serde_json::to_value(ValueView(&value)).unwrap_or_default();
    let rows = answer.rows.into_iter();
    let read = answer.loaded.into_iter().map(|loaded| Read {
        stream: loaded.stream,
        former_name: loaded.former_name,
        elements: loaded.elements,
        kept: loaded.kept,
        complete: loaded.complete,
        damaged: loaded.damaged,
    });
    Rows {
        columns: answer.columns,
        rows: rows
            .map(|row| row.into_iter().map(json).collect())
            .collect(),
        truncated: answer.truncated,
        partial,
        read: read.collect(),
    }
}

/// The remedy for a query that reached a limit.
const NARROW: &str = "restrict the source time with --from and --to, or allow an answer from the newest \
    elements with --partial; over REST these are the members from, to and partial";
/// The error of a restricted account's query. A stream that the account may not read is unknown to its
/// query, whether it exists or not.
fn restricted_problem(caller: &Caller, error: QueryError) -> Problem {
    match &error {
        QueryError::Statement { .. } if error.to_string().contains("no such table") => {
            outside_problem(caller, Role::Read, "not for all streams of the query")
        }
        _ => query_problem(error),
    }
}

/// The remedy for a statement that SQLite refuses.
fn statement_hint(refusal: &str) -> Option<&'static str> {
    let remedies = [
        (
            "no such table",
            "each stream is a table: \"ward.bed1.ecg\" or ward_bed1_ecg; `chappe stream list` lists the streams",
        ),
        (
            "no such column",
            "`select * from TABLE limit 1` shows the columns of a table",
        ),
        (
            "no such function",
            "the functions are in /docs/reference/sql-functions.html of this node",
        ),
    ];
    let no_select = [
        "it is empty",
        "incomplete input",
        "syntax error",
        "cannot modify",
    ];
    let found = remedies
        .into_iter()
        .find(|(part, _)| refusal.contains(part));
    found.map(|(_, remedy)| remedy).or_else(|| {
        let is_other = no_select.iter().any(|part| refusal.contains(part));
        is_other.then_some(
            "a query is one SELECT over streams, such as select * from ward_bed1_ecg limit 10",
        )
    })
}

fn query_problem(error: QueryError) -> Problem {
    let detail = error.to_string();
    match error {
        QueryError::Statement { .. } => {
            let hint = statement_hint(&detail);
            let problem = Problem::bad_request(detail);
            match hint {
                Some(hint) => problem.hint(hint),
                None => problem,
            }
        }
        QueryError::Refused(_) => Problem::new(StatusCode::FORBIDDEN, detail)
            .hint("a query is one SELECT statement over streams"),
        QueryError::Interrupted => Problem::bad_request("the query was stopped at its time limit")
            .hint(format!(
                "{NARROW}; limits.query_time_ms sets the time limit"
            )),
        QueryError::Ambiguous { .. } => {
            Problem::bad_request(detail).hint("write the full stream name in double quotes")
        }
        QueryError::Limit { .. } => Problem::bad_request(detail).hint(NARROW),
        QueryError::Read(_) | QueryError::Engine(_) => Problem::internal(detail),
        _ => Problem::bad_request(detail),
    }
}
