//! The time of receipt.

use std::time::{SystemTime, UNIX_EPOCH};

use chappe_stream::Timestamp;

/// The present time.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = since.map_or(0, |it| it.as_nanos());
    Timestamp(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
}
