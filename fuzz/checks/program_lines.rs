//! Invariants of the lines that a program prints, for any bytes.

use std::sync::Arc;

use chappe_stream::lines::{ElementReader, Format};
use chappe_stream::{Field, FieldType, StreamSchema, Timestamp};
use chappe_wrappers::program::{End, Line, Lines, Message};
use chappe_wrappers::{BATCH_BYTES_MAX, MARK_BYTES_MAX};

use crate::bounds::Bound;

/// A message refers to its line; the values of an element take some bytes for each of the text.
const BOUND: Bound = Bound::memory(4 << 20, 200);
/// Longest state of a processor.
const STATE_BYTES_MAX: usize = 64 << 10;

/// No panic; the lines are the same wherever reads divide them; a message keeps its limits, and its element is
/// taken or refused. The first byte is the length of each read.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        let Some((each, output)) = data.split_first() else {
            return;
        };
        let end = if *each % 2 == 0 { End::Whole } else { End::Cut };
        let whole = lines([output], end);
        let pieces = lines(output.chunks(usize::from(*each).max(1)), end);
        assert_eq!(whole, pieces);
        for line in whole {
            check_line(&line);
        }
    });
}

/// The lines of output that arrives in pieces.
fn lines<'o>(pieces: impl IntoIterator<Item = &'o [u8]>, end: End) -> Vec<Vec<u8>> {
    let (mut lines, mut taken) = (Lines::default(), Vec::new());
    let mut take = |lines: &mut Lines| {
        while let Some(Line::Whole(line) | Line::TooLong(line) | Line::Cut(line)) = lines.take() {
            taken.push(line.to_vec());
        }
    };
    for piece in pieces {
        lines.push(piece);
        take(&mut lines);
    }
    lines.end(end);
    take(&mut lines);
    assert_eq!(lines.held_bytes(), 0);
    taken
}

fn check_line(line: &[u8]) {
    let Ok(text) = std::str::from_utf8(line) else {
        return;
    };
    let message = Message::read(text);
    assert_eq!(Message::read(text), message);
    match message {
        Err(reason) => assert!(!reason.is_empty()),
        Ok(Message::Element { element, mark, .. }) => {
            assert!(text.contains(element));
            check_json(element.as_bytes());
            if let Some(mark) = mark {
                check_mark(mark.bytes(), MARK_BYTES_MAX);
            }
            check_element(element);
        }
        Ok(Message::Mark(mark)) => check_mark(mark.bytes(), MARK_BYTES_MAX),
        Ok(Message::Stored { state, .. }) => {
            if let Some(state) = state {
                check_mark(state.bytes(), STATE_BYTES_MAX);
            }
        }
        Ok(_) => {}
    }
}

/// A mark comes back to the program in a line, so it is one JSON value.
fn check_mark(mark: &[u8], most: usize) {
    assert!(mark.len() <= most && most < BATCH_BYTES_MAX);
    check_json(mark);
}

fn check_json(value: &[u8]) {
    let value = serde_json::from_slice::<serde::de::IgnoredAny>(value);
    assert!(value.is_ok(), "{value:?}");
}

/// An element is taken or refused, whatever it is.
fn check_element(element: &str) {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("n", FieldType::Double),
        ("i", FieldType::Integer),
        ("t", FieldType::Text),
        ("b", FieldType::Boolean),
        ("x", FieldType::Bytes),
    ];
    let schema = Arc::new(StreamSchema {
        fields: fields.map(field).to_vec(),
        key: None,
    });
    let mut reader = ElementReader::new(Format::Ndjson, schema.clone(), 0);
    let (mut records, now) = (Vec::new(), Timestamp(1_800_000_000_000_000_000));
    let pushed = reader
        .push(element.as_bytes(), now, &mut records)
        .and_then(|()| reader.push(b"\n", now, &mut records));
    if pushed.is_ok() {
        assert_eq!(records.len(), 1, "{element}");
    }
    for record in records {
        if let Ok(element) = record.element {
            assert_eq!(schema.check(&element), Ok(()));
        }
    }
}
