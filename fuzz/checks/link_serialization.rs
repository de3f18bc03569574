//! Invariants of the serializations of links for any bytes.

use chappe_links::Serialization;
use chappe_links::serialization::{Document, Elements};
use chappe_stream::StreamSchema;

use crate::bounds::Bound;

/// A tree of 70 bytes for a byte at most, the elements made of it, and both once more.
const BOUND: Bound = Bound::memory(1 << 20, 300);

/// No panic; a decoded document that can be encoded decodes to the same again.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    for serialization in [
        Serialization::Xml,
        Serialization::Postcard,
        Serialization::MessagePack,
    ] {
        let Ok((document, used)) = serialization.decode(data) else {
            continue;
        };
        assert!(used <= data.len());
        if matches!(document, Document::Elements(_)) {
            elements(document);
            continue;
        }
        let mut bytes = Vec::new();
        let schema = StreamSchema::default();
        serialization
            .encode(&document, &schema, &mut bytes)
            .expect("what was read can be written");
        let (again, _) = serialization.decode(&bytes).expect("a document");
        assert_eq!(again, document);
    }
}

/// Elements are shaped to a schema of other fields without a panic.
fn elements(document: Document) {
    let Document::Elements(Elements { names, .. }) = &document else {
        return;
    };
    let field = |name: &String| chappe_stream::Field {
        name: name.clone(),
        field_type: chappe_stream::FieldType::Double,
        unit: None,
        observed_property: None,
        description: None,
    };
    let schema = StreamSchema {
        fields: names.iter().rev().map(field).collect(),
        key: None,
    };
    if let Document::Elements(elements) = document {
        let _ = elements.shape(&schema);
    }
}
