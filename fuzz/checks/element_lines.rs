//! What must hold of the text formats of elements for any bytes.

use std::sync::Arc;

use chappe_stream::lines::{Broken, ElementReader, Format, LINE_BYTES_MAX, Line};
use chappe_stream::ucum::Unit;
use chappe_stream::{Field, FieldType, StreamSchema, Timestamp};

use crate::bounds::Bound;

/// A refused line of two bytes takes a line, its reason and their doubling; both readers hold theirs.
const BOUND: Bound = Bound::memory(1 << 20, 2_000);

/// No panic; a body that arrives in pieces is read as the whole one; what is read fits the schema. The
/// first byte chooses the format, the second one the length of the pieces.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let [format, piece, body @ ..] = data else {
        return;
    };
    let format = match format % 3 {
        0 => Format::Json,
        1 => Format::Ndjson,
        _ => Format::Csv,
    };
    let schema = schema();
    let whole = read(format, &schema, body, body.len());
    let pieces = read(format, &schema, body, usize::from(*piece));
    assert_eq!(whole, pieces);
    for (index, line) in whole.0.iter().enumerate() {
        assert_eq!(line.index, index as u64);
        if let Ok(element) = &line.element {
            schema.check(element).expect("an element of the schema");
        }
    }
    if let Ok(text) = std::str::from_utf8(body) {
        let _ = Unit::parse(text);
    }
}

fn read(
    format: Format,
    schema: &Arc<StreamSchema>,
    body: &[u8],
    piece: usize,
) -> (Vec<Line>, Result<(), Broken>) {
    let now = Timestamp(1_800_000_000_000_000_000);
    let mut reader = ElementReader::new(format, schema.clone(), 0);
    let mut lines = Vec::new();
    for piece in body.chunks(piece.max(1)) {
        if let Err(broken) = reader.push(piece, now, &mut lines) {
            return (lines, Err(broken));
        }
        assert!(reader.held_bytes() <= LINE_BYTES_MAX);
    }
    let outcome = reader.finish(now, &mut lines);
    (lines, outcome)
}

fn schema() -> Arc<StreamSchema> {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("b", FieldType::Boolean),
        ("i", FieldType::Integer),
        ("d", FieldType::Double),
        ("t", FieldType::Text),
        ("x", FieldType::Bytes),
        ("s", FieldType::Samples),
    ];
    Arc::new(StreamSchema {
        fields: fields.map(field).to_vec(),
        key: None,
    })
}
