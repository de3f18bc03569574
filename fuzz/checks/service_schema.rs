//! Invariants of the schemas of services, made of any documents, and of messages by them.

use chappe_dpws::exi::{self, ServiceSchema, ServiceSchemas};
use chappe_xml::Limits;

use crate::bounds::Bound;

/// Grammars have 20,000 states at most, and are held three times while they are made: as particles, as grammars and as
/// the bytes of which the name is a digest. An element of a document is held as tree, as text and as particle.
pub(crate) const BOUND: Bound = Bound::memory(64 << 20, 200);
/// The longest text of a message that is decoded.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A document, and a message after the first zero byte, which no document has: the document becomes grammars or none, a
/// message that fits them is the same after a second way there and back, and any other bytes are refused.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let document = parts.next().unwrap_or_default();
    let message = parts.next().unwrap_or_default();
    let Ok(document) = std::str::from_utf8(document) else {
        return;
    };
    let schema = ServiceSchema::new([document]);
    if schema.id().is_none() {
        return;
    }
    let schemas = ServiceSchemas::from(schema.clone());
    let limits = Limits {
        bytes: TEXT_BYTES_MAX,
        ..Limits::default()
    };
    let decoded = |stream: &[u8]| exi::decode(stream, limits, &schemas);
    drop(decoded(message));
    let Some(first) = schema.encode(message).and_then(|it| decoded(&it).ok()) else {
        return;
    };
    assert_eq!(first.schema.as_ref(), Some(&schema));
    // The text of a stream has each value in the form of its type. It may be shorter than its stream.
    if let Some(again) = schema.encode(first.text.as_bytes()) {
        let second = decoded(&again).expect("a stream of our own");
        assert_eq!(second.text, first.text);
    }
}
