//! The Search API of the directory (WoT Discovery, section 7.3.2.3): JSONPath and SPARQL.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use chappe_format::{JsonPath, OutOfWork, Work};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::ThingDescription;
use crate::accounts::Caller;
use crate::http::params::Params;
use crate::http::parts;
use crate::http::problem::Problem;
use crate::http::shapes::SparqlResults;
use crate::http::sparql::{self, SparqlParams};
use crate::permits::RequestKind;
use crate::shared::App;
use crate::things;

/// Steps of one search; reason: about a second of one core.
const STEPS_MAX: u64 = 10_000_000;
/// Bytes of the documents that a search holds at once, if it cannot look at one after the other.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// Memory of these documents as values, as estimated; reason: as much as a SPARQL query may hold. Small objects take
/// fifty times their text.
const VALUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A search by JSONPath.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JsonPathQuery {
    /// A query (RFC 9535) of the array of all Thing Descriptions, such as `$[?@.title == 'Lamp'].id`.
    query: String,
}

/// Selects things, or parts of them, by a JSONPath query (RFC 9535) of the array that `GET /things` returns.
#[utoipa::path(get, path = "/search/jsonpath", tag = "things", params(JsonPathQuery),
    responses((status = 200, content_type = "application/json", body = Vec<ThingDescription>,
            description = "the selected values"),
        (status = 400, body = Problem, description = "the query is invalid, or needs too much work"),
        (status = 503, body = Problem)))]
pub(crate) async fn jsonpath(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Params(JsonPathQuery { query }): Params<JsonPathQuery>,
) -> Result<Response, Problem> {
    let path = JsonPath::parse(&query);
    let path = path.map_err(|error| Problem::bad_request(format!("query: {error}")))?;
    let permit = parts::permit_soon(&app, &caller, RequestKind::Query).await?;
    let base = parts::own_url(&app, &headers);
    let time = Duration::from_millis(u64::from(app.config.limits.query_time_ms));
    let search = Search {
        path,
        deadline: Instant::now() + time,
        work: Work::new(STEPS_MAX),
        answer: "[".to_owned(),
    };
    let found = tokio::task::spawn_blocking(move || {
        let found = search.run(&app, &caller, &base);
        drop(permit);
        found
    });
    let found = found.await;
    let text = found.map_err(|_| Problem::internal("the search failed"))??;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

struct Search {
    path: JsonPath,
    deadline: Instant,
    work: Work,
    answer: String,
}

impl Search {
    fn run(mut self, app: &App, caller: &Caller, base: &str) -> Result<String, Problem> {
        let is_per_item = self.path.is_per_item();
        let (mut all, mut bytes, mut value_bytes) = (Vec::new(), 0, 0);
        for id in things::ids(app, caller) {
            if Instant::now() >= self.deadline {
                return Err(Problem::bad_request("the search exceeded its time limit")
                    .hint("limits.query_time_ms sets the limit"));
            }
            let Some(text) = things::text(app, &id, caller, base) else {
                continue;
            };
            let Ok(thing) = serde_json::from_str::<Value>(&text) else {
                continue;
            };
            if is_per_item {
                self.select(&Value::Array(vec![thing]))?;
                continue;
            }
            bytes += text.len();
            value_bytes += memory_of(&thing);
            let over = [
                (bytes, DOCUMENT_BYTES_MAX, "bytes"),
                (value_bytes, VALUE_BYTES_MAX, "bytes in memory"),
            ];
            if let Some((_, most, what)) = over.into_iter().find(|(has, most, _)| has > most) {
                let detail = format!(
                    "all Thing Descriptions have more than {most} {what}, and the query needs them at once"
                );
                return Err(Problem::bad_request(detail)
                    .hint("start it with $[*] or $[?…] and without $ in filters, or use SPARQL"));
            }
            all.push(thing);
        }
        if !is_per_item {
            self.select(&Value::Array(all))?;
        }
        self.answer.push(']');
        Ok(self.answer)
    }

    /// Adds what the query selects from a document.
    fn select(&mut self, document: &Value) -> Result<(), Problem> {
        let found = self.path.select(document, &mut self.work);
        let found = found.map_err(|OutOfWork| {
            Problem::bad_request(format!("the search needs more than {STEPS_MAX} steps"))
                .hint("name members instead of `..` and `*`")
        })?;
        for value in found {
            if self.answer.len() > 1 {
                self.answer.push(',');
            }
            self.answer.push_str(&value.to_string());
            if self.answer.len() > ANSWER_BYTES_MAX {
                let detail = format!("the answer has more than {ANSWER_BYTES_MAX} bytes");
                return Err(Problem::bad_request(detail).hint("select less of each thing"));
            }
        }
        Ok(())
    }
}

/// The memory of a value, as estimated. Members of an object are in nodes for 11 that may be half full.
fn memory_of(value: &Value) -> usize {
    const MEMBERS: usize = 6;
    const NODE_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
    size_of::<Value>()
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(memory_of).sum(),
            Value::Object(members) => {
                let nodes = members.len().div_ceil(MEMBERS);
                let members = members
                    .iter()
                    .map(|(name, value)| name.len() + memory_of(value));
                nodes * NODE_BYTES + members.sum::<usize>()
            }
        }
}

/// Answers a SPARQL 1.1 query over the registry, in which things have the terms of the W3C ontologies.
#[utoipa::path(get, path = "/search/sparql", tag = "things", params(SparqlParams),
    responses((status = 200, content_type = "application/json", body = SparqlResults),
        (status = 400, body = Problem), (status = 406, body = Problem), (status = 503, body = Problem)))]
pub(crate) async fn sparql_get(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let accepted = headers.clone();
    let answer = sparql::sparql_get(State(app), caller, uri, headers).await?;
    Ok(in_plain_json(&accepted, answer))
}

/// Answers a SPARQL 1.1 query over the registry (SPARQL 1.1 Protocol, both forms of POST).
#[utoipa::path(post, path = "/search/sparql", tag = "things",
    request_body(content(
        (String = "application/sparql-query"), (SparqlParams = "application/x-www-form-urlencoded"))),
    responses((status = 200, content_type = "application/json", body = SparqlResults),
        (status = 400, body = Problem), (status = 406, body = Problem), (status = 415, body = Problem),
        (status = 503, body = Problem)))]
pub(crate) async fn sparql_post(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let accepted = headers.clone();
    let answer = sparql::sparql_post(State(app), caller, uri, headers, body).await?;
    Ok(in_plain_json(&accepted, answer))
}

/// Names results as `application/json`, as the specification demands, unless the client asks for the type
/// of SPARQL results.
fn in_plain_json(headers: &HeaderMap, mut answer: Response) -> Response {
    const RESULTS: &str = "application/sparql-results+json";
    let accepts = headers.get_all(header::ACCEPT).iter();
    let mut accepts = accepts.filter_map(|accept| accept.to_str().ok());
    let is_asked = accepts.any(|accept| accept.contains(RESULTS));
    let fields = answer.headers_mut();
    let is_results = fields
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes() == RESULTS.as_bytes());
    if is_results && !is_asked {
        let kind = HeaderValue::from_static("application/json");
        fields.insert(header::CONTENT_TYPE, kind);
    }
    answer
}
