//! The Events API of the directory (WoT Discovery, section 7.3.2.2): changes of things as server-sent events.
//!
//! The id of an event is the registry's revision. A client that reconnects with its last one gets all later
//! changes, also after a restart of the node, as long as the registry remembers them; otherwise it is refused
//! with status 410 and reads the list again. Between events the stream repeats the newest id, so that a client
//! of a quiet directory does not fall behind the registry's other changes.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chappe_registry::{Change, EntityKind, FEED_CAPACITY, FeedItem, Subscription};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use crate::accounts::Caller;
use crate::http::params::{Name, Params};
use crate::http::parts;
use crate::http::problem::Problem;
use crate::permits::RequestKind;
use crate::shared::App;
use crate::tasks::shutdown;
use crate::things;

/// Time between two lines that keep an idle connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A connection is abandoned if the client receives nothing for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The types of events.
const TYPES: [&str; 3] = ["thing_created", "thing_updated", "thing_deleted"];

/// The wanted events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ThingEventParams {
    /// Whether events carry the whole new Thing Description, or the merge patch of a changed one.
    #[serde(default)]
    diff: bool,
}

/// Changes of the directory as server-sent events `thing_created`, `thing_updated` and `thing_deleted`.
///
/// Their data is `{"id": ...}`; with `diff`, the created Thing Description or the merge patch (RFC 7396) of the changed
/// one. The whole changed document is sent instead of a patch if it describes a discovered device, if the node was
/// restarted since the change, or if a thousand other changes followed it.
#[utoipa::path(get, path = "/events", tag = "things", params(ThingEventParams,
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received")),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 400, body = Problem), (status = 503, body = Problem),
        (status = 410, body = Problem, description = "the changes since that event are no longer remembered")))]
pub(crate) async fn all_events(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Params(params): Params<ThingEventParams>,
) -> Result<Response, Problem> {
    follow(app, caller, &headers, None, params.diff)
}

/// Changes of one type in the directory, as server-sent events.
#[utoipa::path(get, path = "/events/{type}", tag = "things", params(ThingEventParams,
        ("type" = String, Path, description = "thing_created, thing_updated or thing_deleted"),
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received")),
    responses((status = 200, content_type = "text/event-stream", body = String),
        (status = 400, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem),
        (status = 410, body = Problem, description = "the changes since that event are no longer remembered")))]
pub(crate) async fn events(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Name(name): Name,
    Params(params): Params<ThingEventParams>,
) -> Result<Response, Problem> {
    let Some(of_type) = TYPES.into_iter().find(|of_type| *of_type == name) else {
        return Err(
            Problem::not_found(format!("there are no events {name:.80?}"))
                .hint(format!("there are {}", TYPES.join(", "))),
        );
    };
    follow(app, caller, &headers, Some(of_type), params.diff)
}

fn follow(
    app: App,
    caller: Caller,
    headers: &HeaderMap,
    of_type: Option<&'static str>,
    is_diff: bool,
) -> Result<Response, Problem> {
    let last = headers.get("last-event-id");
    let last = last.map(|last| last.to_str().unwrap_or("unreadable"));
    let last =
        match last.filter(|last| !last.is_empty()) {
            None => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                Problem::bad_request(format!("{text:.80?} is not the id of an event"))
            })?),
        };
    let permit = parts::permit(&app, &caller, RequestKind::Live)?;
    let from = last.unwrap_or_else(|| app.registry.revision());
    let mut changes = app
        .registry
        .subscribe(from.saturating_add(1), caller.reader());
    let first = changes.try_next();
    if let (Some(FeedItem::Resync { .. }), Some(last)) = (&first, last) {
        let detail = format!("the changes after {last} are not, or no longer, remembered");
        let hint = format!(
            "read GET /things again, and connect without Last-Event-ID; the last {FEED_CAPACITY} changes of the \
             registry are remembered"
        );
        return Err(Problem::new(StatusCode::GONE, detail).hint(hint));
    }
    let (sender, receiver) = mpsc::channel(1);
    let follower = Follower {
        base: parts::own_url(&app, headers),
        app,
        caller,
        of_type,
        is_diff,
        changes,
        sender,
        last: from,
    };
    tokio::spawn(async move {
        // Fails when the client has disconnected.
        let _ = follower.run(first).await;
        drop(permit);
    });
    let body = Body::from_stream(ReceiverStream::new(receiver));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// The client's connection is closed or stalled, or it has to begin again.
struct Ended;

struct Follower {
    app: App,
    caller: Caller,
    base: String,
    of_type: Option<&'static str>,
    is_diff: bool,
    changes: Subscription,
    sender: mpsc::Sender<Result<Bytes, std::convert::Infallible>>,
    /// The revision up to which the client has everything.
    last: u64,
}

impl Follower {
    async fn run(mut self, first: Option<FeedItem>) -> Result<(), Ended> {
        let mut drain = self.app.drain.clone();
        let (app, caller) = (self.app.clone(), self.caller.clone());
        let mut ended = std::pin::pin!(app.accounts.ended(&caller));
        self.send(format!("retry: 1000\nid: {}\n\n", self.last))
            .await?;
        if let Some(item) = first {
            self.deliver(item).await?;
        }
        loop {
            tokio::select! {
                biased;
                () = shutdown(&mut drain) => return self.send(": shutting down\n\n".into()).await,
                () = self.sender.closed() => return Err(Ended),
                () = &mut ended => return self.send(": the account has ended\n\n".into()).await,
                item = self.changes.next() => self.deliver(item).await?,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    self.send(format!(": keep-alive\nid: {}\n\n", self.last)).await?;
                }
            }
        }
    }

    async fn deliver(&mut self, item: FeedItem) -> Result<(), Ended> {
        let (revision, change) = match item {
            FeedItem::Change { revision, change } => (revision, change),
            // It was too slow: with its last id it learns that it has to read the list again.
            FeedItem::Resync { .. } => return Err(Ended),
        };
        self.last = revision;
        let (of_type, id) = match &change {
            Change::Published { key, kind, is_new } if self.is_thing(key, *kind, true) => {
                (TYPES[usize::from(!is_new)], key)
            }
            Change::Removed { key, kind } if self.is_thing(key, *kind, false) => (TYPES[2], key),
            _ => return Ok(()),
        };
        if self.of_type.is_some_and(|wanted| wanted != of_type) {
            return Ok(());
        }
        let data = self.data(revision, of_type, id);
        self.send(format!(
            "event: {of_type}\ndata: {data}\nid: {revision}\n\n"
        ))
        .await
    }

    /// Whether an entity is, or was, a thing of the directory.
    fn is_thing(&self, key: &str, kind: EntityKind, exists: bool) -> bool {
        match kind {
            EntityKind::Thing => true,
            EntityKind::Device if exists => things::device::is_found(&self.app, key),
            EntityKind::Device => things::device::is_own_key(key),
            _ => false,
        }
    }

    fn data(&self, revision: u64, of_type: &str, id: &str) -> String {
        let only_id = json!({"id": id}).to_string();
        if !self.is_diff || of_type == TYPES[2] {
            return only_id;
        }
        if of_type == TYPES[1]
            && let Some(patch) = self.app.things.patch(revision, id)
            && let Ok(Value::Object(mut patch)) = serde_json::from_str(&patch)
        {
            patch.insert("id".to_owned(), json!(id));
            return Value::Object(patch).to_string();
        }
        let whole = things::text(&self.app, id, &self.caller, &self.base);
        whole.unwrap_or(only_id)
    }

    async fn send(&self, text: String) -> Result<(), Ended> {
        match timeout(STALL_TIMEOUT, self.sender.send(Ok(text.into()))).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Ended),
        }
    }
}
