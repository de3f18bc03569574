//! Announces the fields of exported streams to Home Assistant: one retained message for each, before the first element.

use std::collections::HashMap;
use std::sync::Arc;

use chappe_format::units::{Vocabulary, from_ucum};
use chappe_stream::{Field, FieldType};
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{classes, prefix};
use crate::StreamDefinition;
use crate::kinds::mqtt::session::Publication;

/// Most streams and keys that are announced in a connection; reason: each is kept, so that it is announced once.
const SUBJECTS_MAX: usize = 10_000;
/// Hexadecimal digits that distinguish identifiers whose letters are the same.
const HASH_DIGITS: usize = 8;
/// Classes of sums, which Home Assistant does not accept as measurements.
const SUMS: [&str; 3] = ["energy", "volume", "water"];

/// Whether and how streams are announced.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write true, or a table with `prefix`")]
pub(in crate::kinds::mqtt) enum Settings {
    /// With the usual settings, or not.
    Switch(bool),
    /// With these.
    Table(Table),
}

/// How streams are announced.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::kinds::mqtt) struct Table {
    /// The first level of the topics of announcements.
    #[serde(default = "prefix")]
    prefix: String,
}

impl Settings {
    /// The first level of the topics; `None`: nothing is announced.
    pub(in crate::kinds::mqtt) fn prefix(&self) -> Option<String> {
        match self {
            Self::Switch(false) => None,
            Self::Switch(true) => Some(prefix()),
            Self::Table(table) => Some(table.prefix.clone()),
        }
    }
}

/// A stream, or one key of it.
type Subject = (Arc<str>, Option<String>);

/// What was announced in a connection.
#[derive(Debug)]
pub(in crate::kinds::mqtt) struct Announcer {
    prefix: String,
    /// The client of the broker, as a part of identifiers.
    client: String,
    availability: String,
    /// Whether messages are the text of one field alone, and not JSON.
    only_field: Option<String>,
    known: HashMap<Subject, Arc<StreamDefinition>>,
}

impl Announcer {
    pub(in crate::kinds::mqtt) fn new(
        prefix: String,
        client: &str,
        availability: String,
        only_field: Option<String>,
    ) -> Self {
        Self {
            prefix,
            client: identifier(client),
            availability,
            only_field,
            known: HashMap::new(),
        }
    }

    /// The announcements of a stream or key that has none yet, or another definition than before.
    ///
    /// # Errors
    /// There are too many.
    pub(in crate::kinds::mqtt) fn announce(
        &mut self,
        stream: &Arc<str>,
        key: Option<&str>,
        definition: &Arc<StreamDefinition>,
        state_topic: &str,
    ) -> Result<Vec<Publication>, String> {
        let subject = (stream.clone(), key.map(str::to_owned));
        let known = self.known.get(&subject);
        if known.is_some_and(|it| Arc::ptr_eq(it, definition) || it.schema == definition.schema) {
            return Ok(Vec::new());
        }
        if known.is_none() && self.known.len() >= SUBJECTS_MAX {
            return Err(format!(
                "more than {SUBJECTS_MAX} streams and keys: {stream} is not announced"
            ));
        }
        self.known.insert(subject, definition.clone());
        let fields = definition.schema.fields.iter();
        let fields = fields.filter(|field| match &self.only_field {
            Some(only) => field.name == *only,
            None => true,
        });
        Ok(fields
            .filter_map(|field| self.publication(stream, key, field, definition, state_topic))
            .collect())
    }

    fn publication(
        &self,
        stream: &str,
        key: Option<&str>,
        field: &Field,
        definition: &StreamDefinition,
        state_topic: &str,
    ) -> Option<Publication> {
        let shown = match key {
            Some(key) => format!("{stream} {key}"),
            None => stream.to_owned(),
        };
        let device = match key {
            Some(key) => format!("{}_{}", identifier(stream), identifier(key)),
            None => identifier(stream),
        };
        let path = match self.only_field {
            Some(_) => "{{ value }}".to_owned(),
            // The JSON of an element leaves out fields without a value.
            None => format!("{{{{ value_json['{}'] | default(None) }}}}", field.name),
        };
        let identifier = format!("chappe_{}_{device}", self.client);
        let mut config = json!({
            "name": field.name.replace('_', " "),
            "unique_id": format!("{identifier}_{}", field.name),
            "state_topic": state_topic,
            "value_template": path,
            "availability_topic": self.availability,
            "device": {
                "identifiers": [identifier],
                "name": shown,
                "manufacturer": "Chappe",
            },
            "origin": { "name": "Chappe", "sw_version": env!("CARGO_PKG_VERSION") },
        });
        if let Some(text) = &definition.description {
            config["device"]["model"] = text.as_str().into();
        }
        let mut set = |key: &str, value: Value| config[key] = value;
        let component = match field.field_type {
            FieldType::Boolean => {
                let texts = match self.only_field {
                    Some(_) => ("true", "false"),
                    None => ("True", "False"),
                };
                set("payload_on", texts.0.into());
                set("payload_off", texts.1.into());
                "binary_sensor"
            }
            FieldType::Integer | FieldType::Double => {
                let (property, unit) = (field.observed_property.as_deref(), field.unit.as_deref());
                let class = classes::class(property, unit, &field.name);
                if let Some(class) = class {
                    set("device_class", class.into());
                }
                if !class.is_some_and(|class| SUMS.contains(&class)) {
                    set("state_class", "measurement".into());
                }
                if let Some(unit) = unit.filter(|unit| *unit != "1") {
                    let symbol = from_ucum(Vocabulary::HomeAssistant, unit).unwrap_or(unit);
                    set("unit_of_measurement", symbol.into());
                }
                "sensor"
            }
            FieldType::Text => "sensor",
            FieldType::Bytes | FieldType::Samples => return None,
        };
        Some(Publication {
            token: 0,
            topic: format!(
                "{}/{component}/{}_{device}/{}/config",
                self.prefix, self.client, field.name
            ),
            payload: config.to_string().into_bytes(),
            qos: 1,
            is_retained: true,
            property: None,
        })
    }
}

/// A text as an identifier of letters, digits and `_`; texts that differ have different ones.
fn identifier(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let letters = text.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    });
    let mut identifier: String = letters.take(64).collect();
    if identifier.len() != text.len() || !text.chars().all(|c| is_plain(c) || c == '.') {
        let hash = digest(&SHA256, text.as_bytes());
        let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
        identifier.push('_');
        identifier.extend(digits.take(HASH_DIGITS / 2));
    }
    identifier
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::StreamSchema;

    fn definition() -> Arc<StreamDefinition> {
        let field = |name: &str, field_type, unit: Option<&str>| Field {
            name: name.to_owned(),
            field_type,
            unit: unit.map(str::to_owned),
            observed_property: None,
            description: None,
        };
        Arc::new(StreamDefinition {
            schema: StreamSchema {
                fields: vec![
                    field("celsius", FieldType::Double, Some("Cel")),
                    field("is_open", FieldType::Boolean, None),
                    field("wave", FieldType::Samples, None),
                ],
                key: None,
            },
            ..StreamDefinition::default()
        })
    }

    #[test]
    fn each_field_is_announced_once_with_unit_and_class() {
        let mut announcer =
            Announcer::new(prefix(), "chappe-x", "chappe/x/status".to_owned(), None);
        let (stream, definition): (Arc<str>, _) = ("room.climate".into(), definition());
        let mut announce = || announcer.announce(&stream, None, &definition, "chappe/room/climate");
        let made = announce().unwrap();
        assert_eq!(made.len(), 2, "samples are not a state");
        let configs: Vec<Value> = made
            .iter()
            .map(|one| serde_json::from_slice(&one.payload).unwrap())
            .collect();
        assert_eq!(configs[0]["unit_of_measurement"], "°C");
        assert_eq!(configs[0]["device_class"], "temperature");
        assert_eq!(configs[0]["state_topic"], "chappe/room/climate");
        assert_eq!(configs[1]["payload_on"], "True");
        assert!(made[1].topic.starts_with("homeassistant/binary_sensor/") && made[1].is_retained);
        assert!(announce().unwrap().is_empty());
    }

    #[test]
    fn texts_that_differ_have_different_identifiers() {
        let texts = [
            "a.b",
            "a_b",
            "a-b",
            "A.b",
            "a b",
            "ä",
            "ö",
            &"x".repeat(70),
            &"x".repeat(71),
        ];
        let identifiers = texts.map(identifier);
        let distinct: std::collections::HashSet<_> = identifiers.iter().collect();
        assert_eq!(distinct.len(), texts.len(), "{identifiers:?}");
        assert_eq!(identifiers[0], "a_b");
        for one in &identifiers {
            assert!(
                one.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
                "{one}"
            );
        }
    }
}
