//! Answers to clients that write faster than the node can store.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_log::Error;
use chappe_stream::{CodecError, StoreError};

use super::super::problem::{Problem, code};

/// Pause that a client is asked for when the node has too much to do; a commit takes milliseconds.
pub(in crate::http) const BUSY_S: u32 = 1;
/// Pause that a client is asked for when the disk is full.
pub(in crate::http) const FULL_S: u32 = 10;

/// A refusal for lack of room.
pub(in crate::http) fn busy(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
        .hint("send the request again after the seconds of Retry-After")
        .retry_after(BUSY_S)
}

/// The problem of an error of the log.
pub(in crate::http) fn store_problem(error: &StoreError) -> Problem {
    let text = error.to_string();
    match error {
        StoreError::Log(Error::QueueFull { .. }) => busy(text),
        StoreError::Log(Error::Full { .. } | Error::Retracted { .. }) => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, text)
                .code(code::DISK_FULL)
                .hint("free space on the node's disk, or lower log.max_bytes or log.keep_age_s")
                .retry_after(FULL_S)
        }
        StoreError::Log(Error::Failed { .. } | Error::Closed) => {
            Problem::unavailable(text).hint("GET /ready shows whether the log accepts data")
        }
        StoreError::Log(Error::Removed { .. }) => Problem::not_found(text),
        StoreError::Log(Error::TooLarge { .. }) | StoreError::Codec(CodecError::TooLarge(_)) => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        }
        _ => Problem::internal(text),
    }
}

/// Adds `Retry-After` to a refusal for lack of room.
pub(in crate::http) fn with_pause(response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    let seconds = match response.status() {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => BUSY_S,
        StatusCode::INSUFFICIENT_STORAGE => FULL_S,
        _ => return response,
    };
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
