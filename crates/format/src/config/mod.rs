//! The TOML of a format: `format = { json = { ... } }` and the `[[stream]]` tables of a wrapper.
//!
//! A wrapper embeds [`FormatConfig`] and [`StreamConfig`] in its own configuration and compiles them by
//! [`Format::new`](crate::Format::new), which reports the first fault as the descriptors of virtual
//! sensors do: with line, column, key and hint.

mod form;
mod options;

use std::collections::BTreeMap;

use chappe_stream::FieldType;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use toml::Spanned;

pub(crate) use form::FormatTable;
pub use form::{FormatConfig, Texts};
pub(crate) use options::Common;
pub use options::{
    BinaryConfig, ByteOrder, CsvConfig, JsonConfig, KeyValueConfig, LayoutField,
    LineProtocolConfig, NmeaConfig, Precision, RegexConfig, SenmlConfig, SenmlEach, Unmatched,
    XmlConfig,
};

/// A stream that messages fill, or with placeholders many of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The name. `{line}` stands for a value: of the topic or file name, of `variables`, of a field, or of
    /// the format (a column, a key, a tag, a group).
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// The key of an element, with placeholders as in `name`. Default: the stream has no keys.
    #[schemars(with = "Option<String>")]
    pub key: Option<Spanned<String>>,
    /// The subject that a key identifies. Default: the placeholder of `key` if it is one, otherwise "key".
    pub subject: Option<String>,
    /// Named values for placeholders: a path for each.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub variables: BTreeMap<String, Spanned<String>>,
    /// Use only records in which each of these placeholders has the given value, or one of the given
    /// values.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Texts>")]
    pub when: BTreeMap<String, Spanned<Texts>>,
    /// Characters that a stream name cannot have: converted (`Line A` becomes `line-a`), or the record is
    /// refused. Default: convert.
    #[serde(default)]
    pub name_values: NameValues,
    /// Maximum number of streams that the placeholders of `name` may create. Default: 1000.
    #[schemars(with = "Option<u32>", range(min = 1, max = 100_000))]
    pub streams_max: Option<Spanned<u32>>,
    /// The fields of the elements.
    #[schemars(with = "Vec<FieldConfig>")]
    pub fields: Spanned<Vec<Spanned<FieldConfig>>>,
}

/// A field of a stream.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldConfig {
    /// A column name: a-z, 0-9 and _. Its placeholders must also be in the name of the stream.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Where the value is, in the notation of the format. Default: the name.
    #[schemars(with = "Option<String>")]
    pub path: Option<Spanned<String>>,
    /// The type: boolean, integer, double, text, bytes or samples.
    #[serde(rename = "type")]
    #[schemars(with = "FieldTypeName")]
    pub field_type: Spanned<FieldType>,
    /// The unit of the stored values, a UCUM code.
    #[schemars(with = "Option<String>")]
    pub unit: Option<Spanned<String>>,
    /// The unit of the values in the message, a UCUM code, if it differs from `unit`.
    #[schemars(with = "Option<String>")]
    pub source_unit: Option<Spanned<String>>,
    /// Where the message names the unit of the value.
    #[schemars(with = "Option<String>")]
    pub source_unit_path: Option<Spanned<String>>,
    /// The observed property, a URI.
    pub observed_property: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// Refuse a record without this value. Default: false, a missing value is stored as null.
    #[serde(default)]
    pub required: bool,
    /// How bytes are encoded in a text. Default: base64.
    #[serde(default)]
    pub encoding: BytesEncoding,
    /// Seconds from one sample to the next, for type samples.
    #[schemars(with = "Option<f64>")]
    pub period_s: Option<Spanned<f64>>,
}

/// The types, for the JSON Schema.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "names only")]
enum FieldTypeName {
    Boolean,
    Integer,
    Double,
    Text,
    Bytes,
    Samples,
}

/// What becomes of values with characters that a stream name cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NameValues {
    /// They are converted. If two values become the same name, the second is refused.
    #[default]
    Convert,
    /// The record is refused.
    Refuse,
}

/// How a text writes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BytesEncoding {
    /// Base64 (RFC 4648), with or without padding.
    #[default]
    Base64,
    /// Two hexadecimal digits per byte.
    Hex,
}

/// What becomes of numbers that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// The record is refused.
    #[default]
    Refuse,
    /// They are stored as null.
    Null,
}

/// A format and its streams alone: what a wrapper's configuration contains.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Format")]
pub struct FormatDocument {
    /// The names that topics or file names give.
    #[serde(default)]
    pub names: Vec<String>,
    /// The format.
    #[schemars(with = "FormatConfig")]
    pub format: Spanned<FormatConfig>,
    /// The streams.
    #[schemars(with = "Vec<StreamConfig>")]
    pub stream: Vec<Spanned<StreamConfig>>,
}

/// The JSON Schema of `format` and `[[stream]]`, for editors.
#[must_use]
pub fn format_json_schema() -> Schema {
    schemars::schema_for!(FormatDocument)
}
