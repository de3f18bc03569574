//! Invariants of paths, query options and bodies of SensorThings for any bytes.

use chappe_sensorthings::body::{changes, data_arrays, new_entity};
use chappe_sensorthings::{EntityType, Options, ResourcePath, parse_filter};

use crate::bounds::Bound;

/// A token takes some 60 bytes and may be one character; each of eight types reads all of it.
const BOUND: Bound = Bound::memory(6 << 20, 2_000);

/// No panic; a path has at most as many steps as parts, and options that are parsed name what they came from.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    if let Ok(json) = serde_json::from_slice(data) {
        let _ = data_arrays(&json);
        for kind in EntityType::ALL {
            let _ = new_entity(kind, &json);
            let _ = changes(kind, &json);
        }
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(path) = ResourcePath::parse(text) {
        assert!(path.steps.len() <= text.len());
    }
    for kind in EntityType::ALL {
        let _ = parse_filter(text, kind);
        if let Ok(options) = Options::parse(text, kind) {
            assert!(options.filter.is_none() || !options.texts.is_empty());
        }
    }
}
