//! Subscriptions to changes of the registry, and how their events look to people and programs.
//!
//! [`follow::Follow`] drives the machine `registry::Watch` for one subscriber. [`stream`] delivers its events
//! as server-sent events, over the connection that asked for them; [`eventing`] by WS-Eventing,
//! [`mail`] by e-mail.

pub(crate) mod eventing;
mod follow;
pub(crate) mod mail;
mod mailer;
pub(crate) mod sources;
pub(crate) mod stored;
pub(crate) mod stream;

use chappe_registry::{EntityKind, SparqlAnswer, WatchEvent, WatchItem};
use serde_json::{Value, json};

pub(crate) use follow::{Follow, FollowEnd};

/// The name of an event and its data.
pub(crate) fn described(item: &WatchItem) -> (&'static str, Value) {
    let position = item.position;
    let entity = |change: &'static str, key: &str, kind: EntityKind, name: &str| {
        let kind = kind.as_str();
        let data = json!({"change": change, "key": key, "kind": kind, "name": name,
            "position": position});
        (change, data)
    };
    let row = |change: &'static str, answer: &SparqlAnswer| {
        let data = json!({"change": change, "row": row(answer), "position": position});
        (change, data)
    };
    match &item.event {
        WatchEvent::Added { key, kind, name } => entity("added", key, *kind, name),
        WatchEvent::Changed { key, kind, name } => entity("changed", key, *kind, name),
        WatchEvent::Removed { key, kind, name } => entity("removed", key, *kind, name),
        WatchEvent::RowAdded(answer) => row("added", answer),
        WatchEvent::RowRemoved(answer) => row("removed", answer),
        WatchEvent::Answer(answer) => ("answer", json!({"answer": answer, "position": position})),
        WatchEvent::Resync(reason) => {
            let reason = reason.as_str();
            ("resync", json!({"reason": reason, "position": position}))
        }
        WatchEvent::Synced => ("synced", json!({"position": position})),
    }
}

/// The only row of an answer, as in SPARQL's results in JSON.
fn row(answer: &SparqlAnswer) -> Value {
    let text = answer.to_json().unwrap_or_default();
    let mut json: Value = serde_json::from_str(&text).unwrap_or_default();
    json["results"]["bindings"][0].take()
}
