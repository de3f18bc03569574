//! Commands over MQTT: a message that is made from the arguments of a call.

use std::collections::BTreeMap;

use chappe_stream::DescriptorError;
use chappe_stream::descriptor::toml_words;
use serde::Deserialize;

use super::session::Publication;
use crate::kinds::template::Template;
use crate::{Command, WrapperError, WrapperFile};

/// The keys of a `[[command]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The topic, with placeholders for arguments.
    topic: String,
    /// The payload, with placeholders for arguments.
    payload: String,
    #[serde(default = "qos")]
    qos: u8,
    #[serde(default)]
    retain: bool,
}

fn qos() -> u8 {
    1
}

/// A message of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Prepared {
    topic: Template,
    payload: Template,
    qos: u8,
    is_retained: bool,
}

/// The messages of the commands of a file, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Commands(BTreeMap<String, Prepared>);

impl Commands {
    /// Those of a file.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn of(file: &WrapperFile) -> Result<Self, DescriptorError> {
        let mut commands = BTreeMap::new();
        for table in &file.keys.commands {
            let name = &table.name;
            let fault = |text: String| {
                let hint = "topic = \"lamp/{lamp}/set\" and payload = \"{value}\" use the arguments \
                            `lamp` and `value`";
                file.fault(
                    "command",
                    format!("{name:?}: {text}"),
                    Some(hint.to_owned()),
                )
            };
            let settings = toml::Value::Table(table.settings.clone()).try_into();
            let settings: Settings =
                settings.map_err(|error: toml::de::Error| fault(toml_words(error.message())))?;
            let template =
                |text: &str| Template::parse(text).map_err(|text| fault(text.to_owned()));
            if settings.topic.is_empty() || settings.topic.contains(['+', '#', '\0']) {
                return Err(fault("a message has a topic without wildcards".to_owned()));
            }
            if settings.qos > 2 {
                return Err(fault("qos is 0, 1 or 2".to_owned()));
            }
            let prepared = Prepared {
                topic: template(&settings.topic)?,
                payload: template(&settings.payload)?,
                qos: settings.qos,
                is_retained: settings.retain,
            };
            if commands.insert(name.clone(), prepared).is_some() {
                return Err(fault("it is defined twice".to_owned()));
            }
        }
        Ok(Self(commands))
    }

    /// The message of a call.
    ///
    /// # Errors
    /// The command or an argument is not known, or an argument is no part of a topic or payload.
    pub(super) fn publication(&self, command: &Command) -> Result<Publication, WrapperError> {
        let wrong = |text: String| Err(WrapperError::Command(text));
        let Some(prepared) = self.0.get(&command.name) else {
            return wrong(format!("this wrapper has no command {:?}", command.name));
        };
        let known = |name: &str| {
            let mut names = prepared.topic.names().chain(prepared.payload.names());
            names.any(|it| it == name)
        };
        if let Some(name) = command.arguments.keys().find(|name| !known(name)) {
            return wrong(format!("the command has no argument {name:?}"));
        }
        for name in prepared.topic.names() {
            let value = command.arguments.get(name).and_then(|it| it.as_str());
            if value.is_some_and(|text| text.is_empty() || text.contains(['/', '+', '#'])) {
                return wrong(format!("the argument {name:?} is not a level of a topic"));
            }
        }
        let fill = |template: &Template| {
            let filled = template.fill(&command.arguments);
            filled.map_err(WrapperError::Command)
        };
        Ok(Publication {
            token: 0,
            topic: fill(&prepared.topic)?,
            payload: fill(&prepared.payload)?.into_bytes(),
            qos: prepared.qos,
            is_retained: prepared.is_retained,
            property: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;
    use serde_json::{Value, json};

    fn commands(keys: &str) -> Result<Commands, String> {
        let file = wrapper_file(&format!(
            "kind = \"mqtt\"\naddress = \"mqtt://a\"\nsubscribe = [\"a\"]\nformat = \"json\"\n[[command]]\n\
             name = \"set\"\n{keys}\n[[stream]]\nname = \"a\"\n\
             fields = [{{ name = \"value\", type = \"integer\" }}]\n"
        ));
        Commands::of(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_is_made_from_the_arguments_of_the_call() {
        let keys = "topic = \"lamp/{lamp}/set\"\npayload = \"{{\\\"on\\\": {on}}}\"\nretain = true";
        let commands = commands(keys).unwrap();
        let publication = |arguments: Value| {
            let command = Command {
                name: "set".to_owned(),
                arguments: arguments.as_object().unwrap().clone(),
            };
            commands
                .publication(&command)
                .map_err(|error| error.to_string())
        };
        let made = publication(json!({ "lamp": "7", "on": true })).unwrap();
        assert_eq!(
            (&*made.topic, &*made.payload, made.qos, made.is_retained),
            ("lamp/7/set", &b"{\"on\": true}"[..], 1, true)
        );
        for (arguments, word) in [
            (json!({ "lamp": "7" }), "\"on\" is missing"),
            (json!({ "lamp": "7/../8", "on": true }), "not a level"),
            (json!({ "lamp": "#", "on": true }), "not a level"),
            (json!({ "lamp": "7", "on": true, "x": 1 }), "no argument"),
        ] {
            let error = publication(arguments.clone()).unwrap_err();
            assert!(error.contains(word), "{arguments}: {error}");
        }
    }

    #[test]
    fn settings_that_make_no_message_are_refused() {
        for (keys, word) in [
            ("topic = \"a\"", "payload"),
            ("topic = \"a/#\"\npayload = \"\"", "wildcards"),
            ("topic = \"a\"\npayload = \"{\"", "closed"),
            ("topic = \"a\"\npayload = \"\"\nqos = 3", "qos"),
        ] {
            let error = commands(keys).unwrap_err();
            assert!(error.contains(word), "{keys}: {error}");
        }
    }
}
