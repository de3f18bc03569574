//! InfluxDB's write interfaces of versions 1 and 2, and what their clients ask before they write.
//!
//! Source: the API references of InfluxDB 1.8 and 2. Queries are not answered: the streams have SQL.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use chappe_wrappers::{Form, Receipt};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::params::{self, Params};
use super::super::problem::Problem;
use super::super::wrappers::deliver;
use super::{coding, wrapper};
use crate::accounts::Caller;
use crate::shared::App;

/// The kind of the wrapper.
const KIND: &str = "influxdb";
/// By which clients recognize the interface.
const VERSION: HeaderName = HeaderName::from_static("x-influxdb-version");
/// The version that this node names.
const OWN_VERSION: &str = concat!("chappe-", env!("CARGO_PKG_VERSION"));
/// The reason of a refusal, as version 1 repeats it.
const ERROR: HeaderName = HeaderName::from_static("x-influxdb-error");

/// What version 1 says of the points.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct V1Params {
    /// The database.
    db: Option<String>,
    /// The unit of times: `ns`, `n`, `us`, `u`, `ms`, `s`, `m` or `h`. Default: `ns`.
    precision: Option<String>,
}

/// What version 2 says of the points.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct V2Params {
    /// The bucket.
    bucket: Option<String>,
    /// The unit of times: `ns`, `us`, `ms` or `s`. Default: `ns`.
    precision: Option<String>,
}

/// Why points are not stored, in the words of both versions.
#[derive(Serialize, ToSchema)]
pub(crate) struct InfluxError {
    /// The kind of error (version 2).
    code: &'static str,
    /// The reason (version 2).
    message: String,
    /// The reason (version 1).
    error: String,
}

fn refusal(status: StatusCode, code: &'static str, message: String) -> Response {
    let plain: String = message
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    let error = message.clone();
    let body = Json(InfluxError {
        code,
        message,
        error,
    });
    let mut response = (status, body).into_response();
    if let Ok(value) = plain.try_into() {
        response.headers_mut().insert(ERROR, value);
    }
    response
}

fn invalid(message: impl Into<String>) -> Response {
    refusal(StatusCode::BAD_REQUEST, "invalid", message.into())
}

/// Writes points of InfluxDB's line protocol, like version 1 of InfluxDB; responds once they are
/// stored. The wrapper of kind `influxdb` that names the database accepts them, or the first that
/// names none.
#[utoipa::path(post, path = "/write", tag = "ingest", params(V1Params),
    request_body(content((String = "text/plain")), description = "points, a line each; gzip is allowed"),
    responses((status = 204, description = "every point is stored"),
        (status = 400, body = InfluxError, description = "some points are refused (`partial write`), the others \
            are stored"),
        (status = 404, body = Problem, description = "no wrapper accepts the database"),
        (status = 413, body = InfluxError, description = "the body is too long"),
        (status = 415, body = Problem), (status = 429, body = Problem), (status = 503, body = Problem),
        (status = 507, body = Problem)))]
pub(in crate::http) async fn write_v1(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<V1Params>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let database = params.db.unwrap_or_default();
    if database.is_empty() {
        return Ok(invalid("database is required"));
    }
    write(&app, &caller, &database, params.precision, &headers, body).await
}

/// Writes points of InfluxDB's line protocol, like version 2 of InfluxDB; responds once they are
/// stored.
#[utoipa::path(post, path = "/api/v2/write", tag = "ingest", params(V2Params),
    request_body(content((String = "text/plain")), description = "points, a line each; gzip is allowed"),
    responses((status = 204, description = "every point is stored"),
        (status = 400, body = InfluxError, description = "some points are refused (`partial write`), the others \
            are stored"),
        (status = 404, body = Problem, description = "no wrapper accepts the bucket"),
        (status = 413, body = InfluxError, description = "the body is too long"),
        (status = 415, body = Problem), (status = 429, body = Problem), (status = 503, body = Problem),
        (status = 507, body = Problem)))]
pub(in crate::http) async fn write_v2(
    State(app): State<App>,
    caller: Caller,
    Params(params): Params<V2Params>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let bucket = params.bucket.unwrap_or_default();
    if bucket.is_empty() {
        return Ok(invalid("bucket is required"));
    }
    write(&app, &caller, &bucket, params.precision, &headers, body).await
}

async fn write(
    app: &App,
    caller: &Caller,
    database: &str,
    precision: Option<String>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Some(unit_ns) = unit_ns(precision.as_deref()) else {
        let precision: String = precision.unwrap_or_default().chars().take(20).collect();
        return Ok(invalid(format!(
            "invalid precision {precision:?}: use ns, us, ms or s"
        )));
    };
    let is_gzip = match coding(headers).as_str() {
        "" => false,
        "gzip" => true,
        _ => {
            let detail = "points are compressed with gzip or not at all";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
    };
    let handle = wrapper(app, KIND, |handle| {
        let own = handle.databases.iter().any(|own| own == database);
        match (own, handle.databases.is_empty()) {
            (true, _) => Some(2),
            (_, true) => Some(1),
            _ => None,
        }
    })?;
    let form = Form::LineProtocol { unit_ns, is_gzip };
    let receipt = deliver(app, caller, &handle, KIND, body, form).await?;
    Ok(answer(&receipt))
}

/// The answer to points.
fn answer(receipt: &Receipt) -> Response {
    let dropped = receipt.undecodable + receipt.refused;
    let reason = receipt.reason.as_deref();
    match (dropped, reason) {
        (0, _) => StatusCode::NO_CONTENT.into_response(),
        (_, Some(reason)) if receipt.is_too_large => refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            "request too large",
            reason.to_owned(),
        ),
        (_, reason) => {
            let reason = reason.unwrap_or("points do not fit their streams");
            invalid(format!("partial write: {reason} dropped={dropped}"))
        }
    }
}

/// Nanoseconds of a unit.
fn unit_ns(precision: Option<&str>) -> Option<i64> {
    Some(match precision.unwrap_or("ns") {
        "ns" | "n" | "" => 1,
        "us" | "u" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Whether the interface is available: status 204, and the version in a header.
#[utoipa::path(get, path = "/ping", tag = "ingest", responses((status = 204, description = "the interface is \
    available")))]
pub(in crate::http) async fn ping() -> Response {
    (StatusCode::NO_CONTENT, [(VERSION, OWN_VERSION)]).into_response()
}

/// Whether the interface is available, as in version 2 of the InfluxDB API.
#[utoipa::path(get, path = "/api/v2/ping", tag = "ingest", responses((status = 204, description = "the interface \
    is available")))]
pub(in crate::http) async fn ping_v2() -> Response {
    ping().await
}

/// The health that clients of version 2 ask for.
#[derive(Serialize, ToSchema)]
pub(crate) struct InfluxHealth {
    /// `influxdb`: the interface.
    name: &'static str,
    /// For people.
    message: &'static str,
    /// `pass` or `fail`.
    status: &'static str,
    /// The version of this node.
    version: &'static str,
}

/// The health of this node in InfluxDB's form.
#[utoipa::path(get, path = "/influxdb/health", tag = "ingest", responses((status = 200, body = InfluxHealth),
    (status = 503, body = InfluxHealth, description = "the node does not accept data")))]
pub(in crate::http) async fn health(State(app): State<App>) -> Response {
    let is_ready = app.reasons_not_ready().is_empty();
    let health = InfluxHealth {
        name: KIND,
        message: match is_ready {
            true => "ready for writes",
            false => "the node does not accept data: GET /ready says why",
        },
        status: if is_ready { "pass" } else { "fail" },
        version: OWN_VERSION,
    };
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(health)).into_response()
}

/// A statement of version 1.
#[derive(Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatementParams {
    /// The statement.
    q: Option<String>,
}

/// The results of statements of version 1.
#[derive(Serialize, ToSchema)]
pub(crate) struct Statements {
    /// One for each statement.
    results: Vec<StatementResult>,
}

/// The result of a statement.
#[derive(Serialize, ToSchema)]
struct StatementResult {
    /// Its number.
    statement_id: u32,
    /// The rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    series: Vec<StatementRows>,
}

/// Rows of a result.
#[derive(Serialize, ToSchema)]
struct StatementRows {
    /// What they are.
    name: &'static str,
    /// The columns.
    columns: Vec<&'static str>,
    /// The rows.
    values: Vec<Vec<String>>,
}

/// The statements that agents send before they write: `CREATE DATABASE` and `SHOW DATABASES`. Others are refused.
#[utoipa::path(get, path = "/query", tag = "ingest", params(StatementParams),
    responses((status = 200, body = Statements),
        (status = 400, body = InfluxError, description = "another statement")))]
pub(in crate::http) async fn query(
    State(app): State<App>,
    Params(params): Params<StatementParams>,
) -> Response {
    statement(&app, params.q)
}

/// The same statements in the body.
#[utoipa::path(post, path = "/query", tag = "ingest", params(StatementParams),
    request_body(content((StatementParams = "application/x-www-form-urlencoded"))),
    responses((status = 200, body = Statements),
        (status = 400, body = InfluxError, description = "another statement")))]
pub(in crate::http) async fn post_query(
    State(app): State<App>,
    Params(params): Params<StatementParams>,
    body: Body,
) -> Result<Response, Problem> {
    if params.q.is_some() {
        return Ok(statement(&app, params.q));
    }
    let bytes = params::body(&app, body).await?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let uri = format!("/?{text}").parse();
    let form = uri
        .ok()
        .and_then(|uri| axum::extract::Query::<StatementParams>::try_from_uri(&uri).ok());
    Ok(statement(&app, form.and_then(|form| form.0.q)))
}

fn statement(app: &App, statement: Option<String>) -> Response {
    let statement = statement.unwrap_or_default();
    let words: Vec<String> = statement
        .split_whitespace()
        .take(2)
        .map(str::to_ascii_uppercase)
        .collect();
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.trim_end_matches(';'))
        .collect();
    let series = match &words[..] {
        // Databases are named where points are written.
        ["CREATE", "DATABASE"] => Vec::new(),
        ["SHOW", "DATABASES"] => {
            let handles = app.wrappers.handles_of(KIND);
            let mut names: Vec<String> = handles
                .iter()
                .flat_map(|handle| handle.databases.iter().cloned())
                .collect();
            names.sort();
            names.dedup();
            vec![StatementRows {
                name: "databases",
                columns: vec!["name"],
                values: names.into_iter().map(|name| vec![name]).collect(),
            }]
        }
        _ => {
            let text =
                "this node has no InfluxQL: query its streams by SQL, POST /api/v1/streams/query";
            return invalid(text);
        }
    };
    let results = vec![StatementResult {
        statement_id: 0,
        series,
    }];
    ([(VERSION, OWN_VERSION)], Json(Statements { results })).into_response()
}
