//! The configuration of an encoding: its name, or a table with its options.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::{CsvEncoding, Encoding};

const NAMES: [&str; 4] = ["json", "csv", "line_protocol", "senml"];

impl Encoding {
    fn named<E: Error>(name: &str) -> Result<Self, E> {
        match name {
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv(CsvEncoding::default())),
            "line_protocol" => Ok(Self::LineProtocol),
            "senml" => Ok(Self::Senml),
            _ => Err(E::unknown_variant(name, &NAMES)),
        }
    }
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Encoding;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an encoding, or a table such as { csv = { ... } }")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Encoding, E> {
                Encoding::named(name)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Encoding, A::Error> {
                let Some(name) = map.next_key::<String>()? else {
                    return Err(A::Error::custom("it names no encoding"));
                };
                let encoding = match Encoding::named::<A::Error>(&name)? {
                    Encoding::Csv(_) => Encoding::Csv(map.next_value()?),
                    other => {
                        let options: serde_json::Map<String, serde_json::Value> =
                            map.next_value()?;
                        match options.keys().next() {
                            Some(key) => return Err(A::Error::unknown_field(key, &[])),
                            None => other,
                        }
                    }
                };
                match map.next_entry::<String, IgnoredAny>()? {
                    Some(_) => Err(A::Error::custom("it names several encodings")),
                    None => Ok(encoding),
                }
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Encoding {
    fn schema_name() -> Cow<'static, str> {
        "Encoding".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let csv = generator.subschema_for::<CsvEncoding>();
        json_schema!({
            "description": "The format of exported elements: its name, or a table with its options.",
            "oneOf": [
                { "type": "string", "enum": NAMES },
                {
                    "type": "object",
                    "properties": {
                        "json": { "type": "object", "maxProperties": 0 },
                        "csv": csv,
                        "line_protocol": { "type": "object", "maxProperties": 0 },
                        "senml": { "type": "object", "maxProperties": 0 }
                    },
                    "additionalProperties": false,
                    "minProperties": 1,
                    "maxProperties": 1
                }
            ]
        })
    }
}
