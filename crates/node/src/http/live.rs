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
use super::problem::Problem;
use crate::live::{self, After, STREAMS_MAX, Vector, Wanted};
use crate::shared::App;

/// Events that wait for a connection; reason: one is being sent while the next is made.
const EVENTS_QUEUED: usize = 1;

/// Which live data.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Live {
    /// Names of streams, separated by commas, or `*` for all, those to come included.
    streams: Option<String>,
    /// Where to go on: `stream@EPOCH:N`, separated by commas; streams that it does not name begin
    /// now. A `Last-Event-ID` goes before it; streams that came since begin with their first
    /// element. Without either, live data begins now.
    after: Option<String>,
}

/// Live data of many streams as server-sent events.
///
/// `elements` events carry `{elements: [...]}` and, as their id, the positions of all streams of
/// this client; `rollback` events `{stream, have, want}` say that the log went back behind what the
/// client has; `notice` events `{at, kind, subject, text}` say what happened.
#[utoipa::path(get, path = "/api/v1/live", tag = "streams", params(Live),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(super) async fn live(
    State(app): State<App>,
    headers: HeaderMap,
    Params(which): Params<Live>,
) -> Result<Response, Problem> {
    let wanted = wanted(which.streams.as_deref().unwrap_or("*"))?;
    let last_event = headers.get("last-event-id");
    let last_event = last_event.map(|value| value.to_str().unwrap_or("unreadable").to_owned());
    let last_event = last_event.filter(|id| !id.is_empty());
    let complete = last_event.is_some();
    let after = match last_event.or(which.after) {
        Some(text) => {
            let vector = Vector::parse(&text).map_err(Problem::bad_request)?;
            Some(After { vector, complete })
        }
        None => None,
    };
    let permit = app.permits.live_client().ok_or_else(|| {
        Problem::unavailable("there are as many clients of live data as allowed")
            .hint("one connection carries many streams; the limit is http.max_live_clients")
    })?;
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUED);
    tokio::spawn(async move {
        live::run(app, wanted, after, sender).await;
        drop(permit);
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

fn wanted(text: &str) -> Result<Wanted, Problem> {
    if text == "*" {
        return Ok(Wanted::All);
    }
    let names: BTreeSet<String> = text
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if names.is_empty() || names.len() > STREAMS_MAX {
        let detail = format!("streams: takes `*` or 1 to {STREAMS_MAX} names");
        return Err(Problem::bad_request(detail));
    }
    for name in &names {
        check_name(name).map_err(|error| Problem::bad_request(error.to_string()))?;
    }
    Ok(Wanted::Names(names))
}
