//! The route of live data.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use chappe_stream::check_name;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::params::Params;
use super::parts;
use super::problem::Problem;
use crate::accounts::Caller;
use crate::live::{self, After, STREAMS_MAX, Wanted};
use crate::permits::RequestKind;
use crate::shared::App;

/// Queued events of a connection; reason: one is being sent while the next is prepared.
const EVENTS_QUEUED: usize = 1;

/// The requested live data.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LiveParams {
    /// Names of streams and prefixes that end in `*`, separated by commas; `*` alone for all. Streams that are
    /// defined later are included.
    streams: Option<String>,
    /// Positions to resume from: `stream@EPOCH:N`, separated by commas; other streams start now. A
    /// `Last-Event-ID` takes precedence; with it, streams that are new since then start with their
    /// first element. Without either, live data starts now.
    after: Option<String>,
}

/// Live data of many streams as server-sent events.
///
/// `elements` events carry `{elements: [...]}`. A stream that is requested by its name keeps this name in the events
/// even if it is renamed; with `*` or a prefix, the events have its current name. The id of an event is the client's position: with
/// up to 32 streams, the position in each; with more, a position in the node's log and the positions in up to 32
/// streams that lag most. A client that reconnects with a `Last-Event-ID` loses nothing; with more than 32 streams it
/// may receive some elements twice, which their `position` shows. `rollback` events `{stream, have, want}` report that
/// the log rolled back past the client's position. `notice` events `{at, kind, subject, text}` carry notices. A
/// restricted account gets its streams and the notices about them. The stream of events ends when the account is
/// revoked or expires.
#[utoipa::path(get, path = "/api/v1/live", tag = "streams", params(LiveParams,
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received")),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn live(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Params(params): Params<LiveParams>,
) -> Result<Response, Problem> {
    let wanted = wanted(params.streams.as_deref().unwrap_or("*"))?;
    let last_event = headers.get("last-event-id");
    let last_event = last_event.map(|value| value.to_str().unwrap_or("unreadable").to_owned());
    let last_event = last_event.filter(|id| !id.is_empty());
    let complete = last_event.is_some();
    let after = match last_event.or(params.after) {
        Some(text) => Some(After::parse(&text, complete).map_err(Problem::bad_request)?),
        None => None,
    };
    let permit = parts::permit(&app, &caller, RequestKind::Live)?;
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
    tokio::spawn(async move {
        live::run(app, caller, wanted, after, sender).await;
        drop(permit);
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

fn wanted(text: &str) -> Result<Wanted, Problem> {
    if text == "*" {
        return Ok(Wanted::All);
    }
    let (mut names, mut prefixes) = (BTreeSet::new(), BTreeSet::new());
    for name in text.split(',').filter(|name| !name.is_empty()) {
        match name.strip_suffix('*') {
            Some(prefix) if is_prefix(prefix) => prefixes.insert(prefix.to_owned()),
            Some(_) => {
                let detail = format!("streams: {name:?} is not a prefix of names followed by `*`");
                return Err(Problem::bad_request(detail));
            }
            None => {
                check_name(name).map_err(|error| Problem::bad_request(error.to_string()))?;
                names.insert(name.to_owned())
            }
        };
    }
    let count = names.len() + prefixes.len();
    if count == 0 || count > STREAMS_MAX {
        let detail = format!("streams: must be `*` or 1 to {STREAMS_MAX} names and prefixes");
        return Err(Problem::bad_request(detail));
    }
    let prefixes = prefixes.into_iter().collect();
    Ok(Wanted::Matching { names, prefixes })
}

/// Whether names of streams can start so.
fn is_prefix(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
    text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_are_distinguished() {
        let Ok(Wanted::Matching { names, prefixes }) = wanted("ward.a,lab.*,ward.b") else {
            panic!("all streams");
        };
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["ward.a", "ward.b"]);
        assert_eq!(prefixes, ["lab."]);
        assert!(matches!(wanted("*"), Ok(Wanted::All)));
        for wrong in ["", ",", "a*b", "*.b", "a**", "Ward*"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
