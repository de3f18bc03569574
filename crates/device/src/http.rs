//! Converts between HTTP and the messages of the profile.

use std::time::{SystemTime, UNIX_EPOCH};

use chappe_dpws::exchange::Reply;
use chappe_transport::Clock;
use chappe_transport::http::header::{ALLOW, HeaderValue};
use chappe_transport::http::{ClientLimits, Response, StatusCode};
use chappe_xml::Limits;

use crate::Error;

/// The HTTP response of a reply.
pub(crate) fn response(reply: &Reply) -> Response {
    response_with(reply, reply.to_text())
}

/// The HTTP response of a reply with this text as its content, if it has content.
pub(crate) fn response_with(reply: &Reply, text: String) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let response = match reply.content_type() {
        Some(media_type) => Response::new(status, media_type, text),
        None => Response::empty(status),
    };
    match reply.allow {
        Some(methods) => response.with_header(ALLOW, HeaderValue::from_static(methods)),
        None => response,
    }
}

/// The parser limits for bodies within these client limits.
pub(crate) fn limits_for(http: &ClientLimits) -> Limits {
    Limits {
        bytes: http.body_bytes,
        ..Limits::default()
    }
}

/// Nanoseconds since 1970 at the origin of the machines' time.
pub(crate) fn utc_at_origin_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let utc = i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX);
    let now = i64::try_from(Clock::process().now().as_nanos()).unwrap_or(i64::MAX);
    utc.saturating_sub(now)
}

/// A random secret for the identifiers of a machine.
pub(crate) fn secret() -> Result<[u8; 16], Error> {
    let seed = chappe_transport::seed().map_err(|source| Error::Listen { at: None, source })?;
    let mut secret = [0; 16];
    secret.copy_from_slice(&seed[..16]);
    Ok(secret)
}
