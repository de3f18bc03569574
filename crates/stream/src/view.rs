//! Elements as JSON, written directly from the element.
//!
//! Times are RFC 3339; bytes are base64; an epoch is 16 hexadecimal digits, as in a position. NaN and
//! infinite numbers become null. Integers beyond 2^53 are written in full; a reader that supports only
//! doubles rounds them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeStruct, Serializer};

use crate::{Field, Quality, Samples, StreamElement, StreamSchema, Value};

/// An element with the schema that names its values.
#[derive(Debug, Clone, Copy)]
pub struct ElementView<'a> {
    /// The stream's name, where the answer mixes elements of several streams.
    pub stream: Option<&'a str>,
    /// The element.
    pub element: &'a StreamElement,
    /// Its schema.
    pub schema: &'a StreamSchema,
}

impl Serialize for ElementView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let element = self.element;
        let mut object = serializer.serialize_struct("Element", 9)?;
        if let Some(stream) = self.stream {
            object.serialize_field("stream", stream)?;
        }
        object.serialize_field("epoch", &element.position.epoch.to_string())?;
        object.serialize_field("number", &element.position.sequence)?;
        object.serialize_field("source_time", &element.source_time.to_string())?;
        object.serialize_field("receive_time", &element.receive_time.to_string())?;
        object.serialize_field("key", &element.key)?;
        object.serialize_field("quality", quality(element.quality))?;
        let values = Values(&self.schema.fields, &element.values);
        object.serialize_field("values", &values)?;
        if let Some(origin) = element.origin {
            object.serialize_field("origin", &origin.to_string())?;
        }
        object.end()
    }
}

fn quality(quality: Quality) -> &'static str {
    match quality {
        Quality::Good => "good",
        Quality::Questionable => "questionable",
        Quality::Bad => "bad",
    }
}

/// The values of an element as JSON, by the names of their fields.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(
    /// The fields.
    pub &'a [Field],
    /// A value for each.
    pub &'a [Value],
);

impl Serialize for Values<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (field, value) in self.0.iter().zip(self.1) {
            map.serialize_entry(&field.name, &ValueView(value))?;
        }
        map.end()
    }
}

/// A value as JSON.
#[derive(Debug, Clone, Copy)]
pub struct ValueView<'a>(
    /// The value.
    pub &'a Value,
);

impl Serialize for ValueView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Boolean(flag) => serializer.serialize_bool(*flag),
            Value::Integer(number) => serializer.serialize_i64(*number),
            Value::Double(number) => serializer.serialize_f64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Bytes(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
            Value::Samples(samples) => samples_object(samples, serializer),
        }
    }
}

fn samples_object<S: Serializer>(samples: &Samples, serializer: S) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_struct("Samples", 3)?;
    object.serialize_field("start", &samples.start.to_string())?;
    object.serialize_field("period_s", &(samples.period_ns as f64 / 1e9))?;
    object.serialize_field("values", &samples.values)?;
    object.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, FieldType, Position, Timestamp};

    #[test]
    fn every_type_of_value_is_written_as_documented() {
        let values = vec![
            Value::Null,
            Value::Boolean(true),
            Value::Integer(-7),
            Value::Double(f64::NAN),
            Value::Text("<script>".into()),
            Value::Bytes(vec![0, 255]),
            Value::Samples(Samples {
                start: Timestamp(0),
                period_ns: 4_000_000,
                values: vec![1.5],
            }),
        ];
        let fields = ('a'..='g').map(|name| Field {
            name: name.to_string(),
            field_type: FieldType::Double,
            unit: None,
            observed_property: None,
            description: None,
        });
        let schema = StreamSchema {
            fields: fields.collect(),
            key: None,
        };
        let element = StreamElement {
            position: Position {
                epoch: Epoch(10),
                sequence: 3,
            },
            source_time: Timestamp(0),
            receive_time: Timestamp(1_000_000_000),
            key: None,
            values,
            quality: Quality::Questionable,
            origin: Some(Position {
                epoch: Epoch(11),
                sequence: 4,
            }),
        };
        let view = ElementView {
            stream: Some("a.b"),
            element: &element,
            schema: &schema,
        };
        assert_eq!(
            serde_json::to_value(view).unwrap(),
            serde_json::json!({
                "stream": "a.b", "epoch": "000000000000000a", "number": 3,
                "source_time": "1970-01-01T00:00:00Z", "receive_time": "1970-01-01T00:00:01Z",
                "key": null, "quality": "questionable",
                "values": {"a": null, "b": true, "c": -7, "d": null, "e": "<script>", "f": "AP8=",
                    "g": {"start": "1970-01-01T00:00:00Z", "period_s": 0.004, "values": [1.5]}},
                "origin": "000000000000000b:4",
            })
        );
    }
}
