//! Extractors of request parameters and bodies, with errors as problems.

use std::ops::Range;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use chappe_stream::Timestamp;
use serde::de::DeserializeOwned;

use super::ingest::is_ingest;
use super::problem::Problem;
use crate::accounts::Caller;
use crate::shared::App;

/// The byte order mark of UTF-8, with which some editors begin a file.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// The query parameters; unknown ones are refused.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => Err(Problem::bad_request(error.body_text())
                .hint("/api/v1/openapi.json describes the parameters")),
        }
    }
}

/// The one variable part of the path, decoded.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(error) => Err(Problem::bad_request(error.body_text())),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;
    /// The caller of a request, which the guard determined.
    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Self, std::convert::Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// The range of source time from `from` until before `to` (RFC 3339); `None` when neither is given.
pub(super) fn times(
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Option<Range<Timestamp>>, Problem> {
    let time = |name: &str, text: Option<&str>, default: i64| {
        match text {
        None => Ok(Timestamp(default)),
        Some(text) => Timestamp::parse(text).ok_or_else(|| {
            Problem::bad_request(format!("{name}: {text:?} is not a time"))
                .hint(
                "write it as 2026-11-21T10:00:00Z, from the year 1678 to 2262; encode the + of an offset as \
                 %2B in a URL",
            )
        }),
    }
    };
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    Ok(Some(
        time("from", from, i64::MIN)?..time("to", to, i64::MAX)?,
    ))
}

/// Reads a body within its size and time limits.
pub(super) async fn body(app: &App, body: Body) -> Result<Bytes, Problem> {
    let limit = app.config.http.max_body_bytes as usize;
    let time = Duration::from_millis(u64::from(app.config.http.request_timeout_ms));
    match tokio::time::timeout(time, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.to_string().contains("length limit") => {
            let detail = format!("the body is longer than {limit} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
                .hint("http.max_body_bytes sets the limit"))
        }
        Ok(Err(error)) => Err(Problem::bad_request(format!(
            "the body cannot be read: {error}"
        ))),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )
        .hint("http.request_timeout_ms sets the limit")),
    }
}

/// Refuses compressed bodies, whose bytes would be taken as they are, but not of agents.
pub(super) async fn refuse_compressed(request: Request, next: Next) -> Response {
    if is_ingest(request.uri().path()) {
        return next.run(request).await;
    }
    let mut codings = request.headers().get_all(header::CONTENT_ENCODING).iter();
    let is_other = |coding: &[u8]| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity");
    let Some(other) = codings.find(|coding| is_other(coding.as_bytes())) else {
        return next.run(request).await;
    };
    let shown: String = String::from_utf8_lossy(other.as_bytes())
        .chars()
        .take(80)
        .collect();
    let detail = format!("a body cannot have the content encoding {shown:?}");
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
    let problem = problem.hint("send it without compression");
    ([(header::ACCEPT_ENCODING, "identity")], problem).into_response()
}

/// Reads a body as JSON.
pub(super) async fn json<T: DeserializeOwned>(app: &App, content: Body) -> Result<T, Problem> {
    json_of(&body(app, content).await?)
}

/// The JSON of a body.
pub(super) fn json_of<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = bytes.strip_prefix(MARK).unwrap_or(bytes);
    serde_json::from_slice(text)
        .map_err(|error| Problem::bad_request(format!("the body is invalid: {error}")))
}
