//! How complete streams are, how far their readers are from a loss, and why a value does not arrive.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use chappe_stream::sqlite::{FunctionTable, Scope, table_calls};
use chappe_stream::{QueryError, Timestamp, Value};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::Paging;
use super::params::{self, Name, Params};
use super::parts;
use super::problem::Problem;
use super::streams::find;
use crate::accounts::Caller;
use crate::catalogue::Entry;
use crate::completeness::{self, Completeness, Count, Ledger, Reader};
use crate::permits::RequestKind;
use crate::shared::App;
use crate::why::{self, SubjectKind, Why};

/// The span of source time in question.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SpanParams {
    /// Elements with a source time at or after this (RFC 3339).
    from: Option<String>,
    /// Elements with a source time before this (RFC 3339).
    to: Option<String>,
}

/// How many elements of a stream are stored, lost, refused and removed, and how long its source was away.
#[utoipa::path(get, path = "/api/v1/streams/{name}/completeness", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), SpanParams),
    responses((status = 200, body = Completeness), (status = 400, body = Problem),
        (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn completeness(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<SpanParams>,
) -> Result<Json<Completeness>, Problem> {
    let entry = find(&app, &caller, &name)?;
    let span = params::times(params.from.as_deref(), params.to.as_deref())?;
    let permit = parts::permit(&app, &caller, RequestKind::Query)?;
    let ledger = app.observability.ledger.clone();
    let answer = tokio::task::spawn_blocking(move || {
        let answer = completeness::completeness(&entry, &ledger, span.as_ref());
        drop(permit);
        answer
    });
    match answer.await {
        Ok(Ok(answer)) => Ok(Json(answer)),
        Ok(Err(error)) => Err(Problem::internal(error.to_string())),
        Err(_) => Err(Problem::internal("the answer failed")),
    }
}

/// Readers of streams.
#[derive(Serialize, ToSchema)]
pub(crate) struct Readers {
    /// By stream, kind and name.
    readers: Vec<Reader>,
    /// The cursor of the next part; null at the end.
    next: Option<String>,
}

/// Whose readers.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReaderParams {
    /// Only readers of this stream.
    stream: Option<String>,
    /// Maximum number of readers; without it, all.
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// The value of `next` in the previous response.
    cursor: Option<String>,
}

/// How far each reader is from losing elements. Readers are virtual sensors, nodes that read over links, and exporters.
#[utoipa::path(get, path = "/api/v1/readers", tag = "streams", params(ReaderParams),
    responses((status = 200, body = Readers), (status = 400, body = Problem)))]
pub(super) async fn readers(
    State(app): State<App>,
    Params(params): Params<ReaderParams>,
) -> Result<Json<Readers>, Problem> {
    let read =
        tokio::task::spawn_blocking(move || completeness::readers(&app, params.stream.as_deref()));
    let readers = read.await;
    let readers = readers.map_err(|_| Problem::internal("the answer failed"))?;
    let paging = Paging::new(params.limit, params.cursor);
    // The time that is left changes from one part to the next, so it is no order for parts.
    let name = |one: &Reader| format!("{} {} {}", one.stream, one.kind, one.reader);
    let (readers, next) = paging.cut_by("readers", readers, name)?;
    Ok(Json(Readers { readers, next }))
}

/// The kind of object that the name refers to.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyParams {
    /// `stream`, `device`, `sensor`, `link`, `wrapper` or `exporter`; without it, the first of these that has the name.
    kind: Option<SubjectKind>,
}

/// Why a value does not arrive: the hops of its path, and the first one that blocks it.
#[utoipa::path(get, path = "/api/v1/why/{name}", tag = "node",
    params(("name" = String, Path, description = "A stream, a device (key, endpoint, name or \
        address), a virtual sensor, a link, a wrapper or an exporter"), WhyParams),
    responses((status = 200, body = Why, description = "also if nothing has this name"),
        (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn why(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<WhyParams>,
) -> Result<Json<Why>, Problem> {
    let permit = parts::permit(&app, &caller, RequestKind::Query)?;
    let answer = tokio::task::spawn_blocking(move || {
        let answer = why::why(&app, &name, params.kind, caller.administers());
        drop(permit);
        answer
    });
    let answer = answer.await;
    Ok(Json(
        answer.map_err(|_| Problem::internal("the answer failed"))?,
    ))
}

/// The columns of the table function `completeness('stream')`; times are nanoseconds since 1970.
const COLUMNS: &[&str] = &[
    "kind",
    "reason",
    "elements",
    "at_most",
    "seconds",
    "from_time",
    "to_time",
];

/// The statement with the tables of its calls of `completeness('stream')`.
pub(super) fn completeness_calls(
    sql: &str,
    entries: &[Arc<Entry>],
    ledger: &Ledger,
    scope: &Scope,
) -> Result<(String, Vec<FunctionTable>), QueryError> {
    let (sql, streams) = table_calls(sql, "completeness");
    let table = |argument: String| {
        let is_named = |entry: &&Arc<Entry>| entry.log.has_name(|name| name == argument);
        let entry = entries.iter().find(is_named);
        let entry = entry.ok_or_else(|| QueryError::Statement {
            message: format!("no such stream: {argument}"),
            offset: None,
        })?;
        let answer = completeness::completeness(entry, ledger, scope.times.as_ref());
        let answer = answer.map_err(|error| QueryError::Read(error.to_string()))?;
        Ok(FunctionTable {
            function: "completeness",
            argument,
            columns: COLUMNS,
            rows: table_rows(&answer),
        })
    };
    let tables = streams.into_iter().map(table).collect::<Result<_, _>>()?;
    Ok((sql, tables))
}

/// A row for what is stored and what is removed, for each reason of losses and refusals, and for each
/// absence of the source.
fn table_rows(answer: &Completeness) -> Vec<Vec<Value>> {
    let integer = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let counted = |kind: &str, reason: Option<&str>, count: &Count| {
        let reason = reason.map_or(Value::Null, |reason| Value::Text(reason.into()));
        let at_most = count.at_most.map_or(Value::Null, integer);
        let count = integer(count.elements);
        let (kind, none) = (Value::Text(kind.into()), Value::Null);
        vec![
            kind,
            reason,
            count,
            at_most,
            none.clone(),
            none.clone(),
            none,
        ]
    };
    let stored = Count {
        elements: answer.stored,
        at_most: Some(answer.stored),
    };
    let mut rows = vec![counted("stored", None, &stored)];
    for (kind, counts) in [("lost", &answer.lost), ("refused", &answer.refused)] {
        let counts = counts.iter();
        rows.extend(counts.map(|(reason, count)| counted(kind, Some(reason), count)));
    }
    rows.push(counted("removed", None, &answer.removed));
    let time =
        |text: &str| Timestamp::parse(text).map_or(Value::Null, |time| Value::Integer(time.0));
    rows.extend(answer.away.iter().map(|away| {
        let to = away.to.as_deref().map_or(Value::Null, time);
        let cause = Value::Text(away.cause.clone());
        let (kind, seconds) = (Value::Text("away".into()), Value::Double(away.seconds));
        vec![
            kind,
            cause,
            Value::Null,
            Value::Null,
            seconds,
            time(&away.from),
            to,
        ]
    }));
    rows
}
