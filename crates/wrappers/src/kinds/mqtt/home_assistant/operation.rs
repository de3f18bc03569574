//! What an announced entity can be told to do: the message for its `command_topic`.

use chappe_format::units::{Vocabulary, to_ucum};
use chappe_stream::FieldType;
use serde_json::Value;

use super::config::{Keys, shortened};
use super::template::{STATE_CHARACTERS_MAX, beginning};
use crate::kinds::mqtt::broker::is_topic;
use crate::kinds::mqtt::session::Publication;
use crate::{Argument, Command, Operation};

/// Longest template of a command in bytes; reason: as for templates of values.
const TEMPLATE_BYTES_MAX: usize = 1_024;
/// Most choices of a selection.
const CHOICES_MAX: usize = 256;
/// The range of a number that states none, as Home Assistant has it.
const RANGE: (f64, f64) = (1.0, 100.0);

/// An operation with its message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EntityOperation {
    pub(super) shown: Operation,
    topic: String,
    is_retained: bool,
    /// What the value stands between.
    template: Option<(String, String)>,
    writing: Writing,
}

/// How an argument becomes a text.
#[derive(Debug, Clone, PartialEq)]
enum Writing {
    /// As it is.
    Plain,
    /// The texts of true and false.
    Flag(String, String),
    /// The same text always.
    Fixed(String),
}

impl EntityOperation {
    /// The operation of keys that are written out; `None`: the entity has none.
    ///
    /// # Errors
    /// Why it is not offered.
    pub(super) fn of(
        component: &str,
        name: String,
        config: Keys<'_>,
    ) -> Result<Option<Self>, String> {
        let Some(topic) = config.text("command_topic") else {
            return match component {
                "button" => Err("it has no command_topic".to_owned()),
                _ => Ok(None),
            };
        };
        if !is_topic(&topic) {
            return Err(format!("its command_topic {:?} is none", beginning(&topic)));
        }
        let or = |key: &str, default: &str| config.text(key).unwrap_or_else(|| default.to_owned());
        let number = |key: &str, default: f64| {
            let found = config.get(key).and_then(Value::as_f64);
            Some(found.unwrap_or(default))
        };
        let (argument, writing) = match component {
            "button" => (None, Writing::Fixed(or("payload_press", "PRESS"))),
            "switch" => {
                let texts = Writing::Flag(or("payload_on", "ON"), or("payload_off", "OFF"));
                (Some(Argument::of(FieldType::Boolean)), texts)
            }
            "number" => {
                let unit = config.text("unit_of_measurement");
                let argument = Argument {
                    unit: unit.and_then(|unit| to_ucum(Vocabulary::HomeAssistant, &unit)),
                    minimum: number("min", RANGE.0),
                    maximum: number("max", RANGE.1),
                    ..Argument::of(FieldType::Double)
                };
                (Some(argument), Writing::Plain)
            }
            "select" => {
                let items = config.get("options").and_then(Value::as_array);
                let items = items.ok_or("it has no options")?;
                let choices: Vec<String> = items
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                if choices.is_empty() || choices.len() > CHOICES_MAX {
                    return Err(format!("it has {} options", choices.len()));
                }
                let argument = Argument {
                    choices,
                    ..Argument::of(FieldType::Text)
                };
                (Some(argument), Writing::Plain)
            }
            "text" => (Some(Argument::of(FieldType::Text)), Writing::Plain),
            _ => return Ok(None),
        };
        let template = match config.text("command_template") {
            Some(text) if !text.is_empty() => Some(template(&text)?),
            _ => None,
        };
        Ok(Some(Self {
            shown: Operation {
                name,
                description: config.text("name").map(|text| shortened(&text)),
                argument,
            },
            topic,
            is_retained: config.get("retain").and_then(Value::as_bool) == Some(true),
            template,
            writing,
        }))
    }

    /// The message of a call.
    ///
    /// # Errors
    /// The arguments do not fit.
    pub(super) fn publication(&self, command: &Command) -> Result<Publication, String> {
        let value = self.shown.argument_of(&command.arguments)?;
        let text = match (&self.writing, value) {
            (Writing::Fixed(text), _) => text.clone(),
            (Writing::Flag(on, _), Some(Value::Bool(true))) => on.clone(),
            (Writing::Flag(_, off), _) => off.clone(),
            (Writing::Plain, Some(Value::String(text))) => text.clone(),
            (Writing::Plain, Some(value)) => plain(value),
            (Writing::Plain, None) => String::new(),
        };
        if text.chars().count() > STATE_CHARACTERS_MAX {
            return Err(format!(
                "a value has at most {STATE_CHARACTERS_MAX} characters"
            ));
        }
        let payload = match &self.template {
            Some((before, after)) => format!("{before}{text}{after}"),
            None => text,
        };
        Ok(Publication {
            token: 0,
            topic: self.topic.clone(),
            payload: payload.into_bytes(),
            qos: 1,
            is_retained: self.is_retained,
            property: None,
        })
    }
}

/// A number as Home Assistant writes it: a whole one without a point.
fn plain(value: &Value) -> String {
    match value.as_f64() {
        // Beyond 2 to the power of 53 neighbours are further apart than 1.
        Some(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            format!("{}", number as i64)
        }
        _ => value.to_string(),
    }
}

/// The parts of a template before and after `{{ value }}`.
fn template(text: &str) -> Result<(String, String), String> {
    let refused = || {
        format!(
            "its command_template {:?} is none that is written",
            beginning(text)
        )
    };
    let (before, rest) = text.split_once("{{").ok_or_else(refused)?;
    let (name, after) = rest.split_once("}}").ok_or_else(refused)?;
    let is_plain = |part: &str| {
        !["{{", "}}", "{%", "{#"]
            .iter()
            .any(|sign| part.contains(sign))
    };
    let is_written = text.len() <= TEMPLATE_BYTES_MAX && name.trim() == "value";
    match is_written && is_plain(before) && is_plain(after) {
        true => Ok((before.to_owned(), after.to_owned())),
        false => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::config::written_out;
    use super::*;

    fn operation(component: &str, config: &Value) -> Result<Option<EntityOperation>, String> {
        let own = written_out(config.as_object().unwrap(), None);
        let keys = Keys {
            own: &own,
            shared: None,
        };
        EntityOperation::of(component, "it".to_owned(), keys)
    }

    fn sent(operation: &EntityOperation, arguments: Value) -> Result<(String, String), String> {
        let command = Command {
            name: "it".to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
        };
        let made = operation.publication(&command)?;
        assert_eq!(made.qos, 1);
        Ok((made.topic, String::from_utf8(made.payload).unwrap()))
    }

    #[test]
    fn entities_are_told_what_home_assistant_would_tell_them() {
        let number = json!({"cmd_t": "h/set", "min": 5, "max": 30, "unit_of_meas": "°C",
            "cmd_tpl": "{\"t\": {{ value }}}"});
        let relay = json!({"cmd_t": "r/set", "pl_on": "1", "pl_off": "0"});
        let mode = json!({"cmd_t": "m/set", "ops": ["eco", "boost"]});
        for (component, config, arguments, topic, payload) in [
            (
                "number",
                &number,
                json!({"value": 21.5}),
                "h/set",
                "{\"t\": 21.5}",
            ),
            (
                "number",
                &number,
                json!({"value": 21.0}),
                "h/set",
                "{\"t\": 21}",
            ),
            ("switch", &relay, json!({"value": true}), "r/set", "1"),
            ("switch", &relay, json!({"value": false}), "r/set", "0"),
            ("select", &mode, json!({"value": "eco"}), "m/set", "eco"),
            ("button", &json!({"cmd_t": "b"}), json!({}), "b", "PRESS"),
        ] {
            let made = operation(component, config).unwrap().unwrap();
            assert_eq!(
                sent(&made, arguments),
                Ok((topic.to_owned(), payload.to_owned()))
            );
        }
        let number = operation("number", &number).unwrap().unwrap();
        assert_eq!(
            number.shown.argument.as_ref().unwrap().unit.as_deref(),
            Some("Cel")
        );
        assert!(
            sent(&number, json!({"value": 31}))
                .unwrap_err()
                .contains("from 5 to 30")
        );
        assert!(sent(&number, json!({})).is_err());
    }

    #[test]
    fn what_cannot_be_told_is_not_offered() {
        assert_eq!(operation("sensor", &json!({"state_topic": "a"})), Ok(None));
        for (component, config, word) in [
            ("button", json!({}), "command_topic"),
            ("button", json!({"cmd_t": "a/#"}), "command_topic"),
            ("select", json!({"cmd_t": "a"}), "options"),
            (
                "number",
                json!({"cmd_t": "a", "cmd_tpl": "{{ value * 2 }}"}),
                "command_template",
            ),
            (
                "number",
                json!({"cmd_t": "a", "cmd_tpl": "{{ value }}{{ value }}"}),
                "command_template",
            ),
        ] {
            let error = operation(component, &config).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
