//! Writes what a server answers, and the parts of a request.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_stream::{StreamElement, StreamSchema, Value};
use serde_json::{Value as Json, json};

use super::TIMESTAMP;
use crate::kryo::DataField;
use crate::mapping::{MappingError, structure};

const NS_PER_MS: i64 = 1_000_000;

/// The member `fields` of a sensor: the time, then the fields of its stream in lower case.
///
/// # Errors
/// A field of samples, for which GSN has no type.
pub fn field_documents(schema: &StreamSchema) -> Result<Vec<Json>, MappingError> {
    let time = json!({"name": TIMESTAMP, "type": "time", "unit": "ms"});
    let document = |field: DataField| {
        let name = field.name.to_lowercase();
        json!({"name": name, "type": field.declared, "unit": field.unit})
    };
    let fields = structure(schema)?.into_iter().map(document);
    Ok(std::iter::once(time).chain(fields).collect())
}

/// Where the values of the announced fields are in elements of another version of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Vec<Option<usize>>);

impl Columns {
    /// The places of the fields of `announced` in elements with the schema `stored`.
    #[must_use]
    pub fn new(announced: &StreamSchema, stored: &StreamSchema) -> Self {
        let place = |field: &chappe_stream::Field| {
            let same = |other: &chappe_stream::Field| {
                other.name == field.name && other.field_type == field.field_type
            };
            stored.fields.iter().position(same)
        };
        Self(announced.fields.iter().map(place).collect())
    }

    /// Appends an element as an array: its time, then its values.
    pub fn write(&self, element: &StreamElement, text: &mut String) {
        let _ = write!(text, "[{}", milliseconds(element));
        for place in &self.0 {
            text.push(',');
            match place.and_then(|place| element.values.get(place)) {
                Some(value) => write_value(value, text),
                None => text.push_str("null"),
            }
        }
        text.push(']');
    }
}

/// The time of an element in milliseconds since 1970.
#[must_use]
pub fn milliseconds(element: &StreamElement) -> i64 {
    element.source_time.0.div_euclid(NS_PER_MS)
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Boolean(value) => text.push(if *value { '1' } else { '0' }),
        Value::Integer(value) => {
            let _ = write!(text, "{value}");
        }
        // JSON has no other numbers.
        Value::Double(value) if value.is_finite() => text.push_str(&json!(value).to_string()),
        Value::Text(value) => text.push_str(&json!(value).to_string()),
        Value::Bytes(value) => {
            text.push('"');
            STANDARD.encode_string(value, text);
            text.push('"');
        }
        Value::Null | Value::Double(_) | Value::Samples(_) => text.push_str("null"),
    }
}

/// A time for `from` and `to`, from milliseconds since 1970: `2026-11-26T03:16:50.193Z`.
#[must_use]
pub fn time_text(time_ms: i64) -> String {
    let whole = chappe_stream::Timestamp(time_ms.div_euclid(1_000).saturating_mul(1_000_000_000));
    let text = whole.to_string();
    let second = text.trim_end_matches('Z');
    format!("{second}.{:03}Z", time_ms.rem_euclid(1_000))
}

/// A text as a part of a path or of a form.
#[must_use]
pub fn path_segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            segment.push(char::from(byte));
        } else {
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::{Field, FieldType, Timestamp};

    fn schema(fields: &[(&str, FieldType)]) -> StreamSchema {
        let field = |(name, field_type): &(&str, FieldType)| Field {
            name: (*name).to_owned(),
            field_type: *field_type,
            unit: None,
            observed_property: None,
            description: None,
        };
        StreamSchema {
            fields: fields.iter().map(field).collect(),
            key: None,
        }
    }

    #[test]
    fn an_element_is_written_with_the_fields_that_were_announced() {
        let announced = schema(&[
            ("a", FieldType::Integer),
            ("b", FieldType::Bytes),
            ("c", FieldType::Double),
            ("d", FieldType::Boolean),
            ("e", FieldType::Text),
        ]);
        let stored = schema(&[
            ("e", FieldType::Text),
            ("d", FieldType::Boolean),
            ("c", FieldType::Double),
            ("b", FieldType::Bytes),
            ("a", FieldType::Double),
        ]);
        let element = StreamElement {
            position: Default::default(),
            source_time: Timestamp(1_700_000_000_123_999_999),
            receive_time: Timestamp(0),
            key: None,
            values: vec![
                Value::Text("größe \"x\"".to_owned()),
                Value::Boolean(true),
                Value::Double(f64::NAN),
                Value::Bytes(b"hallo".to_vec()),
                Value::Double(1.0),
            ],
            quality: Default::default(),
            origin: None,
        };
        let mut text = String::new();
        Columns::new(&announced, &stored).write(&element, &mut text);
        // The field a has another type now, so that its former values are absent.
        assert_eq!(
            text,
            "[1700000000123,null,\"aGFsbG8=\",null,1,\"größe \\\"x\\\"\"]"
        );
    }

    #[test]
    fn samples_are_not_announced() {
        assert!(field_documents(&schema(&[("s", FieldType::Samples)])).is_err());
        let fields = field_documents(&schema(&[("level", FieldType::Double)])).unwrap();
        assert_eq!(fields[0]["name"], TIMESTAMP);
        assert_eq!(fields[1]["name"], "level");
    }

    #[test]
    fn times_have_milliseconds_and_segments_no_special_characters() {
        assert_eq!(time_text(1_795_662_990_193), "2026-11-26T03:16:30.193Z");
        assert_eq!(time_text(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(path_segment("a b/ü?.x"), "a%20b%2F%C3%BC%3F.x");
    }
}
