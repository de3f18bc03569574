//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use chappe_stream::Timestamp;

/// The current time.
pub(crate) fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

/// Converts a system time.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let nanos = |duration: std::time::Duration| i64::try_from(duration.as_nanos());
    Timestamp(match time.duration_since(UNIX_EPOCH) {
        Ok(since) => nanos(since).unwrap_or(i64::MAX),
        Err(before) => nanos(before.duration()).map_or(i64::MIN, |nanos| -nanos),
    })
}
