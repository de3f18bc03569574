//! A number of bytes, or a share of something larger: `log.max_bytes`, `devices.max_bytes_per_day`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A limit in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaxBytes {
    /// A number of bytes; 0: no limit.
    Bytes(u64),
    /// A share of the disk or of the log.
    Word(Auto),
}

/// The text of [`MaxBytes::Word`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auto {
    /// `"auto"`.
    Auto,
}

impl MaxBytes {
    /// A share of the disk or of the log.
    pub const AUTO: Self = Self::Word(Auto::Auto);
}

impl JsonSchema for MaxBytes {
    fn schema_name() -> Cow<'static, str> {
        "MaxBytes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "enum": ["auto"] }] })
    }
}
