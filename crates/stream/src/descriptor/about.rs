//! Facts about a sensor: the metadata of its descriptor.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::error::{DescriptorError, DescriptorFault, Place};
use crate::Value;

/// Most facts of a sensor; reason: a person writes them, and each is a triple of the registry.
const METADATA_MAX: usize = 256;
/// Most bytes of the name of a property, and of a text.
const PROPERTY_BYTES_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 4_096;
/// A fact: a text, a number, or true or false.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RawFact {
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(String),
}

pub(super) fn metadata(
    place: Place<'_>,
    raw: Option<Spanned<BTreeMap<String, RawFact>>>,
) -> Result<BTreeMap<String, Value>, DescriptorError> {
    let Some(raw) = raw else {
        return Ok(BTreeMap::new());
    };
    let at = raw.span().start;
    let wrong = |key: &str, message: &str| {
        let key = format!("metadata.{key}");
        Err(place.error(DescriptorFault::Value, at, key, message, None))
    };
    if raw.get_ref().len() > METADATA_MAX {
        return wrong("", &format!("there are more than {METADATA_MAX} facts"));
    }
    let mut facts = BTreeMap::new();
    for (property, fact) in raw.into_inner() {
        let is_plain = !property.contains(|c: char| c.is_control());
        if property.is_empty() || property.len() > PROPERTY_BYTES_MAX || !is_plain {
            let message =
                format!("a property has 1 to {PROPERTY_BYTES_MAX} bytes, without line breaks");
            return wrong("", &message);
        }
        let value = match fact {
            RawFact::Boolean(value) => Value::Boolean(value),
            RawFact::Integer(value) => Value::Integer(value),
            RawFact::Double(value) if value.is_finite() => Value::Double(value),
            RawFact::Text(text) if text.len() <= TEXT_BYTES_MAX => Value::Text(text),
            RawFact::Double(_) => return wrong(&property, "the number is not finite"),
            RawFact::Text(_) => {
                let message = format!("the text is longer than {TEXT_BYTES_MAX} bytes");
                return wrong(&property, &message);
            }
        };
        facts.insert(property, value);
    }
    Ok(facts)
}
