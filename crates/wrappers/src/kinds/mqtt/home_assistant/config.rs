//! The configuration of an entity that a device announces: which topic has its value, and what the value is.

use std::borrow::Cow;

use chappe_format::units::{Vocabulary, to_ucum};
use chappe_stream::{Field, FieldType, Quality, StreamSchema, Value as Element};
use serde_json::{Map, Value};

use super::classes;
use super::template::{Payload, STATE_CHARACTERS_MAX, ValueTemplate, beginning, number, too_long};
use crate::StreamDefinition;
use crate::kinds::mqtt::broker::is_topic;

/// Most topics by which an entity tells whether it is available; reason: devices use one or two.
const AVAILABILITY_MAX: usize = 8;
/// Longest base of topics in bytes; reason: one letter of a message stands for all of it.
const BASE_BYTES_MAX: usize = 256;
/// Longest text of a person's that is kept: names of devices and entities.
const TEXT_CHARACTERS_MAX: usize = 120;
/// The short forms of keys, as devices with little memory write them.
const SHORT: &[(&str, &str)] = &[
    ("avty", "availability"),
    ("avty_mode", "availability_mode"),
    ("avty_t", "availability_topic"),
    ("avty_tpl", "availability_template"),
    ("cmd_t", "command_topic"),
    ("cmd_tpl", "command_template"),
    ("cmps", "components"),
    ("cns", "connections"),
    ("dev", "device"),
    ("dev_cla", "device_class"),
    ("e", "encoding"),
    ("ids", "identifiers"),
    ("mdl", "model"),
    ("mf", "manufacturer"),
    ("ops", "options"),
    ("p", "platform"),
    ("pl_avail", "payload_available"),
    ("pl_not_avail", "payload_not_available"),
    ("pl_off", "payload_off"),
    ("pl_on", "payload_on"),
    ("pl_prs", "payload_press"),
    ("ret", "retain"),
    ("sn", "serial_number"),
    ("stat_cla", "state_class"),
    ("stat_off", "state_off"),
    ("stat_on", "state_on"),
    ("stat_t", "state_topic"),
    ("sw", "sw_version"),
    ("t", "topic"),
    ("unit_of_meas", "unit_of_measurement"),
    ("val_tpl", "value_template"),
];
/// Keys whose short form is the same in every table.
const PREFIXED: [&str; 2] = ["topic", "_topic"];

/// The keys of a table, written out, and topics with the base in the place of `~`.
pub(super) fn written_out(table: &Map<String, Value>, base: Option<&str>) -> Map<String, Value> {
    let base = table.get("~").and_then(Value::as_str).or(base);
    let mut full = Map::new();
    for (key, value) in table {
        let long = SHORT.iter().find(|(short, _)| short == key);
        let key = long.map_or(key.as_str(), |(_, long)| long);
        let value = match value {
            // The keys are names that the device chose.
            Value::Object(inner) if key == "components" => {
                let components = inner.iter().map(|(name, component)| {
                    let component = match component {
                        Value::Object(inner) => Value::Object(written_out(inner, base)),
                        other => other.clone(),
                    };
                    (name.clone(), component)
                });
                Value::Object(components.collect())
            }
            Value::Object(inner) => Value::Object(written_out(inner, base)),
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| match item {
                        Value::Object(inner) => Value::Object(written_out(inner, base)),
                        other => other.clone(),
                    })
                    .collect(),
            ),
            Value::String(topic) if PREFIXED.iter().any(|end| key.ends_with(end)) => {
                Value::String(with_base(topic, base))
            }
            other => other.clone(),
        };
        full.insert(key.to_owned(), value);
    }
    full
}

fn with_base(topic: &str, base: Option<&str>) -> String {
    let Some(base) = base.filter(|base| base.len() <= BASE_BYTES_MAX) else {
        return topic.to_owned();
    };
    if let Some(rest) = topic.strip_prefix('~') {
        return format!("{base}{rest}");
    }
    match topic.strip_suffix('~') {
        Some(rest) => format!("{rest}{base}"),
        None => topic.to_owned(),
    }
}

/// The keys of an entity: its own, and those that it shares with the other entities of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'k> {
    pub(super) own: &'k Map<String, Value>,
    pub(super) shared: Option<&'k Map<String, Value>>,
}

impl<'k> Keys<'k> {
    pub(super) fn get(self, key: &str) -> Option<&'k Value> {
        let shared = || self.shared.and_then(|shared| shared.get(key));
        self.own.get(key).or_else(shared)
    }

    pub(super) fn text(self, key: &str) -> Option<String> {
        self.get(key).and_then(scalar)
    }
}

/// An entity.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entity {
    pub(super) state_topic: String,
    template: ValueTemplate,
    reading: Reading,
    pub(super) availability: Vec<Availability>,
    pub(super) mode: Mode,
    pub(super) definition: StreamDefinition,
    /// The unit as announced, if it has no UCUM code.
    pub(super) unknown_unit: Option<String>,
}

/// How a value becomes one of an element.
#[derive(Debug, Clone, PartialEq)]
enum Reading {
    Number,
    Text,
    /// The texts of true and false.
    Flag(String, String),
}

/// How topics of availability are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Latest,
    All,
    Any,
}

/// A topic of availability.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Availability {
    pub(super) topic: String,
    template: ValueTemplate,
    available: String,
    not_available: String,
}

impl Availability {
    /// Whether a message says that the entity is available; `None`: it says nothing of that.
    pub(super) fn is_available(&self, payload: &mut Payload<'_>) -> Option<bool> {
        let value = self.template.value(payload).ok()??;
        match &*rendered(&value) {
            text if text == self.available => Some(true),
            text if text == self.not_available => Some(false),
            _ => None,
        }
    }
}

impl Entity {
    /// The entity of keys that are written out.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn of(component: &str, config: Keys<'_>) -> Result<Self, String> {
        let text = |key: &str| config.text(key);
        let or = |key: &str, default: &str| text(key).unwrap_or_else(|| default.to_owned());
        if let Some(encoding) = text("encoding")
            && !matches!(&*encoding.to_ascii_lowercase(), "utf-8" | "utf8")
        {
            return Err(format!(
                "its messages are encoded as {:?}",
                beginning(&encoding)
            ));
        }
        let state_topic = text("state_topic").ok_or("it has no state_topic")?;
        if !is_topic(&state_topic) {
            return Err(format!("its topic {:?} is none", beginning(&state_topic)));
        }
        let class = text("device_class");
        let is_number = config.get("unit_of_measurement").is_some()
            || config.get("state_class").is_some()
            || class.as_deref().is_some_and(classes::is_number);
        let reading = match component {
            "number" => Reading::Number,
            "sensor" if is_number => Reading::Number,
            "sensor" | "select" | "text" => Reading::Text,
            "binary_sensor" => Reading::Flag(or("payload_on", "ON"), or("payload_off", "OFF")),
            "switch" => Reading::Flag(
                text("state_on").unwrap_or_else(|| or("payload_on", "ON")),
                text("state_off").unwrap_or_else(|| or("payload_off", "OFF")),
            ),
            other => return Err(format!("a {:?} has no single value", beginning(other))),
        };
        let template = template(text("value_template").as_deref())?;
        let availability = availability(config)?;
        let mode = match text("availability_mode").as_deref() {
            None | Some("latest") => Mode::Latest,
            Some("all") => Mode::All,
            Some("any") => Mode::Any,
            Some(other) => return Err(format!("{:?} is no availability_mode", beginning(other))),
        };
        let unit = text("unit_of_measurement").filter(|unit| !unit.is_empty());
        let code = unit
            .as_ref()
            .and_then(|unit| to_ucum(Vocabulary::HomeAssistant, unit));
        let unknown_unit = unit.filter(|_| code.is_none());
        let field = Field {
            name: "value".to_owned(),
            field_type: reading.field_type(),
            unit: code.or_else(|| unknown_unit.clone()),
            observed_property: class.as_deref().and_then(classes::observed_property),
            description: class.map(|class| shortened(&class)),
        };
        Ok(Self {
            state_topic,
            template,
            reading,
            availability,
            mode,
            definition: StreamDefinition {
                schema: StreamSchema {
                    fields: vec![field],
                    key: None,
                },
                level: None,
                description: description(config),
            },
            unknown_unit,
        })
    }

    /// The value of a message; `None`: the message has none for this entity.
    ///
    /// # Errors
    /// The message has another value than the announced one.
    pub(super) fn value(
        &self,
        payload: &mut Payload<'_>,
    ) -> Result<Option<(Element, Quality)>, String> {
        let Some(value) = self.template.value(payload)? else {
            return Ok(None);
        };
        let text = rendered(&value);
        let is_nothing = value.is_null() || matches!(&*text, "None" | "unknown");
        if is_nothing || (text.is_empty() && self.reading != Reading::Text) {
            return Ok(Some((Element::Null, Quality::Good)));
        }
        if text == "unavailable" {
            return Ok(Some((Element::Null, Quality::Bad)));
        }
        let element = match &self.reading {
            Reading::Text if text.chars().count() > STATE_CHARACTERS_MAX => {
                return Err(too_long());
            }
            Reading::Text => Element::Text(text.into_owned()),
            Reading::Number => match number(&value) {
                Some(number) => Element::Double(number),
                None => return Err(format!("{:?} is not a number", beginning(&text))),
            },
            Reading::Flag(on, off) => match &*text {
                text if text == on => Element::Boolean(true),
                text if text == off => Element::Boolean(false),
                other => {
                    let [found, on, off] = [other, on, off].map(beginning);
                    return Err(format!("{found:?} is neither {on:?} nor {off:?}"));
                }
            },
        };
        Ok(Some((element, Quality::Good)))
    }
}

impl Reading {
    fn field_type(&self) -> FieldType {
        match self {
            Self::Number => FieldType::Double,
            Self::Text => FieldType::Text,
            Self::Flag(..) => FieldType::Boolean,
        }
    }
}

fn template(text: Option<&str>) -> Result<ValueTemplate, String> {
    match text {
        None | Some("") => Ok(ValueTemplate::default()),
        Some(text) => ValueTemplate::parse(text),
    }
}

fn availability(config: Keys<'_>) -> Result<Vec<Availability>, String> {
    let single = |keys: Keys<'_>, topic: &str, template_key: &str| {
        let topic = keys.text(topic).filter(|topic| is_topic(topic));
        let or = |key: &str, default: &str| keys.text(key).unwrap_or_else(|| default.to_owned());
        Ok::<_, String>(Availability {
            topic: topic.ok_or("a topic of its availability is none")?,
            template: template(keys.text(template_key).as_deref())?,
            available: or("payload_available", "online"),
            not_available: or("payload_not_available", "offline"),
        })
    };
    if config.get("availability_topic").is_some() {
        let one = single(config, "availability_topic", "availability_template")?;
        return Ok(vec![one]);
    }
    let listed = match config.get("availability") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(table)) => vec![table],
        Some(Value::Array(items)) => {
            let tables: Option<Vec<_>> = items.iter().map(Value::as_object).collect();
            tables.ok_or("its availability is not a list of tables")?
        }
        Some(_) => return Err("its availability is not a list of tables".to_owned()),
    };
    if listed.len() > AVAILABILITY_MAX {
        return Err(format!(
            "it has more than {AVAILABILITY_MAX} topics of availability"
        ));
    }
    let keys = listed.into_iter().map(|own| Keys { own, shared: None });
    keys.map(|keys| single(keys, "topic", "value_template"))
        .collect()
}

/// A setting as the text that Home Assistant makes of it.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Object(_) | Value::Array(_) | Value::Null => None,
        other => Some(rendered(other).into_owned()),
    }
}

/// A value as a template of Home Assistant writes it.
fn rendered(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(true) => Cow::Borrowed("True"),
        Value::Bool(false) => Cow::Borrowed("False"),
        Value::Null => Cow::Borrowed("None"),
        other => Cow::Owned(other.to_string()),
    }
}

/// A text about a device, as far as it is kept.
pub(super) fn shortened(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(TEXT_CHARACTERS_MAX)
        .collect()
}

/// Which entity of which device it is, for a person to read.
fn description(config: Keys<'_>) -> Option<String> {
    let name = config.text("name");
    let device = config.get("device").and_then(Value::as_object);
    let of_device = |key: &str| device?.get(key).and_then(scalar);
    let model: Vec<String> = [of_device("manufacturer"), of_device("model")]
        .into_iter()
        .flatten()
        .collect();
    let model = (!model.is_empty()).then(|| format!("({})", model.join(" ")));
    let device = of_device("name").or_else(|| of_device("identifiers"));
    let of = (name.is_some() && device.is_some()).then(|| "of".to_owned());
    let words: Vec<String> = [name, of, device, model].into_iter().flatten().collect();
    (!words.is_empty()).then(|| shortened(&words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entity(component: &str, config: Value) -> Result<Entity, String> {
        let own = written_out(config.as_object().unwrap(), None);
        let keys = Keys {
            own: &own,
            shared: None,
        };
        Entity::of(component, keys)
    }

    fn value(entity: &Entity, message: &str) -> Result<Option<(Element, Quality)>, String> {
        entity.value(&mut Payload::new(message.as_bytes()))
    }

    #[test]
    fn short_keys_and_the_base_of_topics_are_written_out() {
        let short = json!({
            "~": "home/1", "stat_t": "~/state", "unit_of_meas": "°C", "dev_cla": "temperature",
            "val_tpl": "{{ value_json.t }}", "avty": [{"t": "x/~"}], "name": "Temperature",
            "dev": {"name": "Kitchen", "mf": "Acme", "mdl": "T1"},
        });
        let entity = entity("sensor", short).unwrap();
        assert_eq!(entity.state_topic, "home/1/state");
        assert_eq!(entity.availability[0].topic, "x/home/1");
        let field = &entity.definition.schema.fields[0];
        assert_eq!(
            (field.unit.as_deref(), field.field_type),
            (Some("Cel"), FieldType::Double)
        );
        let property = field.observed_property.as_deref();
        assert!(
            property.is_some_and(|it| it.ends_with("quantitykind/Temperature")),
            "{property:?}"
        );
        let text = entity.definition.description.as_deref();
        assert_eq!(text, Some("Temperature of Kitchen (Acme T1)"));
        let good = |element| Ok(Some((element, Quality::Good)));
        assert_eq!(
            value(&entity, r#"{"t": 21.5}"#),
            good(Element::Double(21.5))
        );
        assert_eq!(value(&entity, r#"{"t": null}"#), good(Element::Null));
        assert_eq!(value(&entity, r#"{"h": 1}"#), Ok(None));
        assert!(value(&entity, r#"{"t": "warm"}"#).is_err());
    }

    #[test]
    fn flags_and_texts_are_read_as_announced() {
        let switch = entity(
            "switch",
            json!({"state_topic": "s", "payload_on": true, "payload_off": false,
            "value_template": "{{ value_json.on }}"}),
        )
        .unwrap();
        let good = |element| Ok(Some((element, Quality::Good)));
        assert_eq!(
            value(&switch, r#"{"on": true}"#),
            good(Element::Boolean(true))
        );
        assert!(value(&switch, r#"{"on": "ON"}"#).is_err());
        let sensor = entity("sensor", json!({"state_topic": "s"})).unwrap();
        assert_eq!(
            value(&sensor, "idle"),
            good(Element::Text("idle".to_owned()))
        );
        assert_eq!(
            value(&sensor, "unavailable"),
            Ok(Some((Element::Null, Quality::Bad)))
        );
    }

    #[test]
    fn what_is_no_entity_is_refused_with_the_reason() {
        for (component, config, word) in [
            ("sensor", json!({}), "state_topic"),
            ("sensor", json!({"state_topic": "a/#"}), "topic"),
            ("light", json!({"state_topic": "a"}), "no single value"),
            (
                "sensor",
                json!({"state_topic": "a", "value_template": "{{ 1 + 1 }}"}),
                "template",
            ),
            (
                "sensor",
                json!({"state_topic": "a", "encoding": "utf-16"}),
                "encoded",
            ),
            (
                "sensor",
                json!({"state_topic": "a", "availability_topic": "+"}),
                "availability",
            ),
        ] {
            let error = entity(component, config).unwrap_err();
            assert!(error.contains(word), "{component}: {error}");
        }
        let unknown = entity(
            "sensor",
            json!({"state_topic": "a", "unit_of_measurement": "furlongs"}),
        )
        .unwrap();
        assert_eq!(unknown.unknown_unit.as_deref(), Some("furlongs"));
        assert_eq!(
            unknown.definition.schema.fields[0].unit.as_deref(),
            Some("furlongs")
        );
    }
}
