//! Writing elements: JSON, newline-delimited JSON or CSV, stored as it arrives.
//!
//! The body is read in pieces, its elements are appended in batches, and the answer comes when every
//! batch has reached the stream's level. A request that has begun runs to its end even if its client
//! disconnects, so that the elements it queued are settled before the next turn of its producer.

pub(super) mod busy;
mod outcome;
pub(super) mod pace;
mod run;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_stream::lines::Format;
use serde::Deserialize;
use utoipa::IntoParams;

use super::params::{Name, Params};
use super::parts;
use super::problem::Problem;
use super::shapes::NewElements;
use super::streams::find;
use crate::accounts::Caller;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::written;

pub(super) use busy::with_pause;
pub(crate) use outcome::Written;
use run::Writing;
pub(super) use run::memory;

/// Bytes of the name of a producer.
const PRODUCER_BYTES_MAX: usize = 255;
/// The header that names a request, so that it can be sent again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How elements are written.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParams {
    /// Store all elements or none. Such a body has at most 10,000 elements and 512 KiB.
    #[serde(default)]
    atomic: bool,
    /// The producer, a name of up to 255 bytes, which numbers its elements in ascending order: each number is stored
    /// once. Requires `first`.
    producer: Option<String>,
    /// The producer's number of the first element of the body, from 1; the others follow one by one,
    /// refused ones included.
    first: Option<u64>,
}

/// The producer of a request and the number of its first element.
struct Numbering {
    producer: String,
    first: u64,
}

/// Writes elements to a stream that a client defined. The response is sent once they have reached the stream's level. A
/// line that is not a valid element is refused with its reason, and the others are stored.
///
/// The members of an element are the fields of the stream and, optionally, `source_time` (RFC 3339), `key` and
/// `quality`. A request with an `Idempotency-Key`, or with `producer` and `first`, can be sent again: elements that are
/// already stored are not stored twice.
#[utoipa::path(post, path = "/api/v1/streams/{name}/elements", tag = "streams",
    params(("name" = String, Path, description = "The stream's name"), WriteParams,
        ("Idempotency-Key" = Option<String>, Header, description = "a name of this request, up to 255 \
            bytes; equivalent to a producer of this name with `first=1`")),
    request_body(content(
        (NewElements = "application/json"),
        (String = "application/x-ndjson"), (String = "text/csv")),
        description = "one element in JSON or an array of them; an element a line; CSV with a header"),
    responses((status = 200, body = Written, description = "every element is stored"),
        (status = 207, body = Written, description = "some lines were refused"),
        (status = 400, body = Problem), (status = 401, body = Problem), (status = 404, body = Problem),
        (status = 408, body = Problem, description = "the body arrives too slowly"),
        (status = 409, body = Problem, description = "the stream has another source"),
        (status = 413, body = Problem, description = "the body is too long"),
        (status = 415, body = Problem, description = "the content type is unknown"),
        (status = 422, body = Written, description = "no line is an element, or with `atomic` one is not"),
        (status = 429, body = Problem, description = "too many requests are writing, or too many of them are from \
            this account, or the log's queue is full"),
        (status = 503, body = Problem), (status = 507, body = Problem, description = "the disk is full")))]
pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    Name(name): Name,
    Params(params): Params<WriteParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let refuse = |problem: Problem| with_pause(problem);
    let entry = find(&app, &caller, &name).map_err(refuse)?;
    let source = entry.source();
    if source != written::SOURCE {
        let detail = format!("the stream {name:?} is written by {source}");
        let problem = Problem::new(StatusCode::CONFLICT, detail)
            .hint("write a stream that was defined with `chappe stream create` (POST /api/v1/streams over HTTP)");
        return Err(problem.into_response());
    }
    let format = format(&headers).map_err(refuse)?;
    let numbering = numbering(&params, &headers).map_err(refuse)?;
    let permit = parts::permit(&app, &caller, RequestKind::Write).map_err(refuse)?;
    let work = async move {
        let answer =
            match Writing::begin(&app, caller, entry, format, params.atomic, numbering).await {
                Ok(writing) => writing.run(body).await,
                Err(problem) => problem.into_response(),
            };
        drop(permit);
        with_pause(answer)
    };
    let answer = tokio::spawn(work).await;
    answer.map_err(|_| Problem::internal("writing elements failed").into_response())
}

fn format(headers: &HeaderMap) -> Result<Format, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE);
    let text = content_type.and_then(|text| text.to_str().ok());
    let text = text.unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim() {
        "application/json" => Ok(Format::Json),
        "application/x-ndjson" | "application/jsonl" => Ok(Format::Ndjson),
        "text/csv" => Ok(Format::Csv),
        other => {
            let shown: String = other.chars().take(80).collect();
            let detail = format!("elements cannot have the content type {shown:?}");
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
                .hint("send application/json, application/x-ndjson or text/csv"))
        }
    }
}

fn numbering(params: &WriteParams, headers: &HeaderMap) -> Result<Option<Numbering>, Problem> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = keys.next();
    let numbering = match (key, &params.producer, params.first) {
        (None, None, None) => return Ok(None),
        (Some(key), None, None) if keys.next().is_none() => {
            let key = key.to_str();
            let key = key.map_err(|_| Problem::bad_request("Idempotency-Key is not ASCII"))?;
            Numbering {
                producer: key.to_owned(),
                first: 1,
            }
        }
        (None, Some(producer), Some(first)) => Numbering {
            producer: producer.clone(),
            first,
        },
        (None, Some(_), None) | (None, None, Some(_)) => {
            return Err(Problem::bad_request("producer and first go together"));
        }
        _ => {
            let detail = "only one Idempotency-Key, or producer with first, is allowed";
            return Err(Problem::bad_request(detail));
        }
    };
    let length = numbering.producer.len();
    if length == 0 || length > PRODUCER_BYTES_MAX {
        let detail = format!("a producer's name has 1 to {PRODUCER_BYTES_MAX} bytes, not {length}");
        return Err(Problem::bad_request(detail));
    }
    if numbering.first == 0 || numbering.first > i64::MAX as u64 {
        return Err(Problem::bad_request("first is a number from 1"));
    }
    Ok(Some(numbering))
}
