//! SQL over stored streams.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use chappe_stream::sqlite::{Answer, History, HistoryLimits, HistoryQuery};
use chappe_stream::{QueryError, QueryLimits};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::element::ValueView;
use super::params;
use super::problem::Problem;
use crate::catalogue::Entry;
use crate::shared::App;

/// A question.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// One SELECT statement; each stream is a table (`"ward.bed1.ecg"` or `ward_bed1_ecg`).
    sql: String,
    /// Rows at most.
    limit: Option<u32>,
}

/// An answer.
#[derive(Serialize, ToSchema)]
pub(crate) struct Rows {
    /// Names of the columns.
    columns: Vec<String>,
    /// The rows, a value for each column.
    rows: Vec<Vec<serde_json::Value>>,
    /// Rows were left out at the limit.
    truncated: bool,
    /// What was read of which stream.
    read: Vec<Read>,
}

/// What was read of a stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct Read {
    stream: String,
    /// How many of its newest elements.
    elements: usize,
    /// Whether these were all.
    complete: bool,
}

/// Asks stored streams in SQL. Nothing can be changed by it.
#[utoipa::path(post, path = "/api/v1/streams/query", tag = "streams", request_body = Question,
    responses((status = 200, body = Rows), (status = 400, body = Problem),
        (status = 503, body = Problem)))]
pub(super) async fn query(State(app): State<App>, body: Body) -> Result<Json<Rows>, Problem> {
    let question: Question = params::json(&app, body).await?;
    let limits = &app.config.limits;
    let rows = question.limit.unwrap_or(limits.query_rows);
    let rows = rows.min(limits.query_rows) as usize;
    let time = Duration::from_millis(u64::from(limits.query_time_ms));
    let permit = app.query_permit()?;
    let entries = app.catalogue.entries();
    let (handle_sender, handle) = oneshot::channel();
    let work = tokio::task::spawn_blocking(move || {
        let answer = run(&question.sql, &entries, rows, handle_sender);
        drop(permit);
        answer
    });
    let watchdog = async move {
        let Ok(stop) = handle.await else { return };
        tokio::time::sleep(time).await;
        stop();
    };
    let watchdog = tokio::spawn(watchdog);
    let answer = work.await;
    watchdog.abort();
    let answer = answer.map_err(|_| Problem::internal("the query failed"))?;
    answer.map(|answer| Json(rows_of(answer))).map_err(refused)
}

/// Stops a query that runs on another thread.
type Stop = Box<dyn FnOnce() + Send>;

fn run(
    sql: &str,
    entries: &[Arc<Entry>],
    rows: usize,
    handle: oneshot::Sender<Stop>,
) -> Result<Answer, QueryError> {
    let streams: Vec<&dyn History> = entries.iter().map(|entry| &entry.log as _).collect();
    let defaults = HistoryLimits::default();
    let limits = HistoryLimits {
        query: QueryLimits {
            rows,
            ..defaults.query
        },
        ..defaults
    };
    let query = HistoryQuery::new(sql, &streams, limits)?;
    // The receiver is gone when the client is: then nobody stops the query but its own limits.
    let interrupt = query.interrupt_handle();
    let _ = handle.send(Box::new(move || interrupt.interrupt()));
    query.run()
}

fn rows_of(answer: Answer) -> Rows {
    let json = |value| serde_json::to_value(ValueView(&value)).unwrap_or_default();
    let rows = answer.rows.into_iter();
    let read = answer.loaded.into_iter().map(|loaded| Read {
        stream: loaded.stream,
        elements: loaded.elements,
        complete: loaded.complete,
    });
    Rows {
        columns: answer.columns,
        rows: rows
            .map(|row| row.into_iter().map(json).collect())
            .collect(),
        truncated: answer.truncated,
        read: read.collect(),
    }
}

fn refused(error: QueryError) -> Problem {
    let detail = error.to_string();
    match error {
        QueryError::Statement { .. } => Problem::bad_request(detail)
            .hint("each stream is a table: \"ward.bed1.ecg\" or ward_bed1_ecg"),
        QueryError::Refused(_) => Problem::new(StatusCode::FORBIDDEN, detail)
            .hint("a query is one SELECT statement over streams"),
        QueryError::Interrupted => Problem::bad_request("the query was stopped at its time limit")
            .hint("ask for less; the limit is limits.query_time_ms"),
        QueryError::Limit { .. } => Problem::bad_request(detail).hint("ask for less"),
        QueryError::Read(_) | QueryError::Engine(_) => Problem::internal(detail),
        _ => Problem::bad_request(detail),
    }
}
