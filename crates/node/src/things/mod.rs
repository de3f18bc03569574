//! The directory of things (WoT Discovery): what its parts share.
//!
//! Registered Thing Descriptions are entities of the kind `thing` ([`chappe_registry::thing`]). Devices
//! that the node has found are things too: their entities are of the kind `device`, and their Thing
//! Descriptions are made when they are read ([`device`]).

mod announce;
pub(crate) mod device;
mod expiry;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_registry::{EntityKind, Search};
use serde_json::{Value, json};

use crate::accounts::{Caller, View};
use crate::config::{Config, Read};
use crate::shared::App;

pub(crate) use announce::announce;
pub(crate) use expiry::watch;

/// Remembered patches, and their bytes; reason: clients that follow changes with `diff` reconnect within
/// minutes.
const PATCHES_MAX: usize = 1_000;
const PATCH_BYTES_MAX: usize = 4 << 20;

/// What the directory remembers besides the registry.
#[derive(Default)]
pub(crate) struct Things {
    patches: Mutex<Patches>,
}

/// The newest changes of documents, oldest first.
#[derive(Default)]
struct Patches {
    changes: VecDeque<Patch>,
    bytes: usize,
}

struct Patch {
    revision: u64,
    key: String,
    text: Arc<str>,
}

impl Things {
    fn patches(&self) -> MutexGuard<'_, Patches> {
        self.patches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the difference that the change of this revision makes.
    pub(crate) fn remember(&self, revision: u64, key: &str, patch: &Value) {
        let text: Arc<str> = patch.to_string().into();
        let mut patches = self.patches();
        patches.bytes += text.len();
        let key = key.to_owned();
        patches.changes.push_back(Patch {
            revision,
            key,
            text,
        });
        while patches.changes.len() > PATCHES_MAX || patches.bytes > PATCH_BYTES_MAX {
            let Some(oldest) = patches.changes.pop_front() else {
                break;
            };
            patches.bytes -= oldest.text.len();
        }
    }

    /// Forgets what was remembered for a change that another node's took the place of.
    pub(crate) fn forget(&self, revision: u64, key: &str) {
        let mut patches = self.patches();
        let Patches { changes, bytes } = &mut *patches;
        changes.retain(|patch| {
            let is_kept = patch.revision != revision || patch.key != key;
            *bytes -= if is_kept { 0 } else { patch.text.len() };
            is_kept
        });
    }

    /// The difference that the change of this revision made, as a JSON text.
    pub(crate) fn patch(&self, revision: u64, key: &str) -> Option<Arc<str>> {
        let patches = self.patches();
        let mut newest = patches.changes.iter().rev();
        let found = newest.find(|patch| patch.revision == revision && patch.key == key);
        found.map(|patch| patch.text.clone())
    }
}

/// The ids of all things that a caller may see, in the order of their code points.
pub(crate) fn ids(app: &App, caller: &Caller) -> Vec<String> {
    let view = View::of_reader(app, caller);
    let reader = caller.reader();
    let keys = |kind| {
        let search = Search {
            kind: Some(kind),
            ..Search::default()
        };
        app.registry.search_keys(&search, &reader)
    };
    let mut ids = keys(EntityKind::Device);
    ids.retain(|key| device::is_found(app, key));
    ids.extend(keys(EntityKind::Thing));
    if !view.is_whole() {
        ids.retain(|key| {
            let entity = app.registry.get(key, &reader);
            entity.is_some_and(|entity| view.has_entity(&entity))
        });
    }
    ids.sort_unstable();
    ids
}

/// The JSON text of a thing, if there is one that the caller may see. `base` is the address of this node, to
/// which the forms of found devices refer.
pub(crate) fn text(app: &App, id: &str, caller: &Caller, base: &str) -> Option<String> {
    let view = View::of_reader(app, caller);
    let entity = app.registry.get(id, &caller.reader());
    let entity = entity.filter(|entity| view.has_entity(entity))?;
    match entity.kind {
        EntityKind::Thing => chappe_registry::thing::document_text(&entity),
        EntityKind::Device if device::is_found(app, id) => {
            let device = app.devices.get(id)?;
            Some(device::description(app, &device, &view, base).to_string())
        }
        _ => None,
    }
}

/// The schemes by which this node admits requests, with the names of those for reading and for changing.
pub(crate) struct Security {
    pub(crate) definitions: Value,
    pub(crate) reading: &'static str,
    pub(crate) changing: &'static str,
}

impl Security {
    pub(crate) fn of(config: &Config) -> Self {
        let bearer = json!({
            "scheme": "bearer", "in": "header", "name": "Authorization", "format": "opaque",
            "description": "the token of an account",
        });
        match config.access.read {
            Read::Open => Self {
                definitions: json!({"nosec_sc": {"scheme": "nosec"}, "bearer_sc": bearer}),
                reading: "nosec_sc",
                changing: "bearer_sc",
            },
            Read::Token => Self {
                definitions: json!({"bearer_sc": bearer}),
                reading: "bearer_sc",
                changing: "bearer_sc",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_found_by_revision_and_the_oldest_are_forgotten() {
        let things = Things::default();
        for revision in 0..=PATCHES_MAX as u64 {
            things.remember(revision, "urn:a", &json!({"title": revision}));
        }
        assert_eq!(things.patch(0, "urn:a"), None);
        assert_eq!(things.patch(1, "urn:a").as_deref(), Some(r#"{"title":1}"#));
        assert_eq!(things.patch(1, "urn:b"), None);
        things.remember(2_000, "urn:a", &json!("a".repeat(PATCH_BYTES_MAX)));
        assert_eq!(things.patch(2_000, "urn:a"), None);
        assert_eq!(things.patches().bytes, 0);
    }
}
