//! `format = "csv"` or `format = { csv = { ... } }`, and lists of texts that may be one text.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::{
    BinaryConfig, CsvConfig, JsonConfig, KeyValueConfig, LineProtocolConfig, NmeaConfig,
    RegexConfig, SenmlConfig, XmlConfig,
};

/// A format with its options, or its name alone.
#[derive(Debug, Clone)]
pub struct FormatConfig(pub(crate) FormatTable);

impl FormatConfig {
    /// The options of CSV, if that is the format: a file that grows must find where its rows begin.
    #[must_use]
    pub const fn csv(&self) -> Option<&CsvConfig> {
        self.0.csv.as_ref()
    }

    /// Whether a message ends with the bracket that it begins with, so that its first bytes alone are never another
    /// message: an object or an array of JSON, or XML. The other formats decode `n=10` of `n=1002`.
    #[must_use]
    pub const fn is_bracketed(&self) -> bool {
        self.0.json.is_some() || self.0.senml.is_some() || self.0.xml.is_some()
    }
}

/// One of the formats.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormatTable {
    /// JSON, with paths (RFC 9535).
    pub(crate) json: Option<JsonConfig>,
    /// Delimited columns.
    pub(crate) csv: Option<CsvConfig>,
    /// Pairs such as `t=21.5 h=40`.
    pub(crate) key_value: Option<KeyValueConfig>,
    /// The named groups of a regular expression.
    pub(crate) regex: Option<RegexConfig>,
    /// InfluxDB's line protocol.
    pub(crate) line_protocol: Option<LineProtocolConfig>,
    /// Sensor Measurement Lists (RFC 8428), as JSON.
    pub(crate) senml: Option<SenmlConfig>,
    /// NMEA 0183 sentences.
    pub(crate) nmea: Option<NmeaConfig>,
    /// Numbers at fixed offsets.
    #[schemars(with = "Option<BinaryConfig>")]
    pub(crate) binary: Option<Spanned<BinaryConfig>>,
    /// XML, with paths.
    pub(crate) xml: Option<XmlConfig>,
}

const NAMES: [&str; 9] = [
    "json",
    "csv",
    "key_value",
    "regex",
    "line_protocol",
    "senml",
    "nmea",
    "binary",
    "xml",
];

impl FormatTable {
    /// The number of formats given.
    pub(crate) fn count(&self) -> usize {
        let given = [
            self.json.is_some(),
            self.csv.is_some(),
            self.key_value.is_some(),
            self.regex.is_some(),
            self.line_protocol.is_some(),
            self.senml.is_some(),
            self.nmea.is_some(),
            self.binary.is_some(),
            self.xml.is_some(),
        ];
        given.iter().filter(|given| **given).count()
    }

    fn named<E: Error>(name: &str) -> Result<Self, E> {
        let mut table = Self::default();
        match name {
            "json" => table.json = Some(JsonConfig::default()),
            "csv" => table.csv = Some(CsvConfig::default()),
            "key_value" => table.key_value = Some(KeyValueConfig::default()),
            "line_protocol" => table.line_protocol = Some(LineProtocolConfig::default()),
            "senml" => table.senml = Some(SenmlConfig::default()),
            "nmea" => table.nmea = Some(NmeaConfig::default()),
            "xml" => table.xml = Some(XmlConfig::default()),
            "regex" => {
                let hint = "write format = { regex = { pattern = \"...\" } }";
                let hint_mark = chappe_stream::descriptor::HINT;
                return Err(E::custom(format!("regex needs a pattern{hint_mark}{hint}")));
            }
            "binary" => {
                let hint = "write format = { binary = { layout = [...] } }";
                let hint_mark = chappe_stream::descriptor::HINT;
                return Err(E::custom(format!("binary needs a layout{hint_mark}{hint}")));
            }
            _ => return Err(E::unknown_variant(name, &NAMES)),
        }
        Ok(table)
    }
}

impl<'de> Deserialize<'de> for FormatConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = FormatConfig;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a format, or a table such as { json = { ... } }")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<FormatConfig, E> {
                FormatTable::named(name).map(FormatConfig)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FormatConfig, A::Error> {
                FormatTable::deserialize(MapAccessDeserializer::new(map)).map(FormatConfig)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for FormatConfig {
    fn schema_name() -> Cow<'static, str> {
        "FormatConfig".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<FormatTable>();
        let names: Vec<_> = NAMES
            .iter()
            .filter(|name| !matches!(**name, "regex" | "binary"))
            .collect();
        json_schema!({
            "description": "The format of the messages: its name, or a table with its options.",
            "oneOf": [
                { "type": "string", "enum": names },
                { "allOf": [table], "minProperties": 1, "maxProperties": 1 }
            ]
        })
    }
}

/// One text or several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Texts(pub Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Texts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of texts")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(List)
    }
}

impl JsonSchema for Texts {
    fn schema_name() -> Cow<'static, str> {
        "Texts".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "oneOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } }
            ]
        })
    }
}
