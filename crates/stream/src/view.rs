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
        element_object(self, false, serializer)
    }
}

/// An element whose numbers are all kept: those that are not finite are the texts `NaN`, `Infinity` and `-Infinity`.
#[derive(Debug, Clone, Copy)]
pub struct ExactElementView<'a>(
    /// The element.
    pub ElementView<'a>,
);

impl Serialize for ExactElementView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        element_object(&self.0, true, serializer)
    }
}

fn element_object<S: Serializer>(
    view: &ElementView<'_>,
    is_exact: bool,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let element = view.element;
    let mut object = serializer.serialize_struct("Element", 9)?;
    if let Some(stream) = view.stream {
        object.serialize_field("stream", stream)?;
    }
    object.serialize_field("epoch", &element.position.epoch.to_string())?;
    object.serialize_field("number", &element.position.sequence)?;
    object.serialize_field("source_time", &element.source_time.to_string())?;
    object.serialize_field("receive_time", &element.receive_time.to_string())?;
    object.serialize_field("key", &element.key)?;
    object.serialize_field("quality", quality(element.quality))?;
    match is_exact {
        true => {
            let values = ExactValues(&view.schema.fields, &element.values);
            object.serialize_field("values", &values)?;
        }
        false => {
            let values = Values(&view.schema.fields, &element.values);
            object.serialize_field("values", &values)?;
        }
    }
    if let Some(origin) = element.origin {
        object.serialize_field("origin", &origin.to_string())?;
    }
    object.end()
}

/// [`Values`] whose numbers are all kept.
struct ExactValues<'a>(&'a [Field], &'a [Value]);

impl Serialize for ExactValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (field, value) in self.0.iter().zip(self.1) {
            match value {
                Value::Double(number) => map.serialize_entry(&field.name, &ExactNumber(*number))?,
                Value::Samples(samples) => {
                    map.serialize_entry(&field.name, &ExactSamples(samples))?;
                }
                other => map.serialize_entry(&field.name, &ValueView(other))?,
            }
        }
        map.end()
    }
}

struct ExactNumber(f64);

impl Serialize for ExactNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            number if number.is_finite() => serializer.serialize_f64(number),
            number if number.is_nan() => serializer.serialize_str("NaN"),
            number if number > 0.0 => serializer.serialize_str("Infinity"),
            _ => serializer.serialize_str("-Infinity"),
        }
    }
}

struct ExactSamples<'a>(&'a Samples);

impl Serialize for ExactSamples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let values = self.0.values.iter().map(|value| ExactNumber(*value));
        let values: Vec<ExactNumber> = values.collect();
        samples_with(self.0, &values, serializer)
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
    samples_with(samples, &samples.values, serializer)
}

fn samples_with<S: Serializer>(
    samples: &Samples,
    values: &impl Serialize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_struct("Samples", 3)?;
    object.serialize_field("start", &samples.start.to_string())?;
    object.serialize_field("period_s", &(samples.period_ns as f64 / 1e9))?;
    object.serialize_field("values", values)?;
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
        let exact = serde_json::to_value(ExactElementView(view)).unwrap();
        assert_eq!(exact["values"]["d"], "NaN");
        assert_eq!(exact["values"]["g"]["values"], serde_json::json!([1.5]));
    }
}
