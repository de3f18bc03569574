//! Invariants of Thing Descriptions and merge patches for any bytes.

use chappe_registry::thing::{check as validate, difference, document, merge, to_entity};
use serde_json::Value;

use crate::bounds::Bound;

/// The document, its text, its entity, and the document again.
const BOUND: Bound = Bound::memory(4 << 20, 2_000);

/// What stands between a document and a patch.
const SEPARATOR: u8 = 0x1e;
/// The time at which the documents are checked, 2026.
const NOW_MS: i64 = 1_774_000_000_000;

/// No panic; a valid document comes back from its entity; a patch that makes one document of another does
/// so, unless the other has members that are null.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == SEPARATOR);
    let read = |part: Option<&[u8]>| serde_json::from_slice::<Value>(part?).ok();
    let Some(before) = read(parts.next()) else {
        return;
    };
    come_back(&before);
    let Some(patch) = read(parts.next()) else {
        return;
    };
    let mut after = before.clone();
    merge(&mut after, patch);
    come_back(&after);
    if !has_null(&after) {
        let mut again = before.clone();
        merge(&mut again, difference(&before, &after));
        assert_eq!(again, after);
    }
}

fn come_back(thing: &Value) {
    let is_valid = validate(thing, NOW_MS).is_ok();
    let has_id = thing.get("id").is_some();
    match to_entity(thing, "ada") {
        Some(entity) => {
            assert_eq!(document(&entity).as_ref(), Some(thing));
            // It may be too large, which is an error.
            let _ = entity.validate();
        }
        None => assert!(!is_valid || !has_id),
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(members) => members.values().any(has_null),
        _ => false,
    }
}
