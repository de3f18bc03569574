//! Commands over TCP: a line that is made from the arguments of a call and written to every peer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::DescriptorError;
use chappe_stream::descriptor::toml_words;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::kinds::template::{TEXT_BYTES_MAX, Template};
use crate::{Command, WrapperError, WrapperFile};

/// Time for a peer to take the line; then its connection ends.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(5);

/// A line for every peer. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) line: Arc<[u8]>,
    /// Where each peer's task reports that the line is written.
    pub(super) written: mpsc::Sender<()>,
}

/// The keys of a `[[command]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    line: String,
}

/// The lines of the commands of a file, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Commands(BTreeMap<String, Template>);

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
                let hint = "line = \"SET {value}\" writes the argument `value`".to_owned();
                file.fault("command", format!("{name:?}: {text}"), Some(hint))
            };
            let settings = toml::Value::Table(table.settings.clone()).try_into();
            let Settings { line } =
                settings.map_err(|error: toml::de::Error| fault(toml_words(error.message())))?;
            if line.is_empty() || line.contains(['\n', '\r']) {
                return Err(fault("the line is empty, or has a line end".to_owned()));
            }
            let template = Template::parse(&line).map_err(|text| fault(text.to_owned()))?;
            if commands.insert(name.clone(), template).is_some() {
                return Err(fault("it is defined twice".to_owned()));
            }
        }
        Ok(Self(commands))
    }

    /// The line of a call, with its end.
    ///
    /// # Errors
    /// The command or an argument is not known, or an argument is no part of a line.
    pub(super) fn line(&self, command: &Command) -> Result<Arc<[u8]>, WrapperError> {
        let wrong = |text: String| Err(WrapperError::Command(text));
        let Some(template) = self.0.get(&command.name) else {
            return wrong(format!("this wrapper has no command {:?}", command.name));
        };
        let mut arguments = command.arguments.keys();
        if let Some(name) = arguments.find(|name| !template.names().any(|it| it == *name)) {
            return wrong(format!("the command has no argument {name:?}"));
        }
        let mut line = template
            .fill(&command.arguments)
            .map_err(WrapperError::Command)?;
        line.push('\n');
        match line.len() > TEXT_BYTES_MAX {
            true => wrong(format!("the line is longer than {TEXT_BYTES_MAX} bytes")),
            false => Ok(line.into_bytes().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;
    use serde_json::{Value, json};

    fn commands(line: &str) -> Result<Commands, String> {
        let file = wrapper_file(&format!(
            "kind = \"tcp\"\nlisten = \"127.0.0.1:0\"\nformat = \"json\"\n[[command]]\nname = \"set\"\nline = {line:?}\n\
             [[stream]]\nname = \"a\"\nfields = [{{ name = \"value\", type = \"integer\" }}]\n"
        ));
        Commands::of(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_made_from_the_arguments_of_the_call() {
        let commands = commands("{{\"set\": {value}, \"note\": \"{note}\"}}").unwrap();
        let line = |arguments: Value| {
            let command = Command {
                name: "set".to_owned(),
                arguments: arguments.as_object().unwrap().clone(),
            };
            let line = commands.line(&command).map_err(|error| error.to_string());
            line.map(|line| String::from_utf8(line.to_vec()).unwrap())
        };
        assert_eq!(
            line(json!({ "value": 2.5, "note": "a b" })),
            Ok("{\"set\": 2.5, \"note\": \"a b\"}\n".to_owned())
        );
        for (arguments, word) in [
            (json!({ "value": 1 }), "\"note\" is missing"),
            (
                json!({ "value": 1, "note": "a\nRESET" }),
                "control character",
            ),
            (json!({ "value": [], "note": "" }), "is not a text"),
            (
                json!({ "value": 1, "note": "", "x": 1 }),
                "no argument \"x\"",
            ),
            (json!({ "value": 1, "note": "x".repeat(5_000) }), "longer"),
        ] {
            let error = line(arguments.clone()).unwrap_err();
            assert!(error.contains(word), "{arguments}: {error}");
        }
    }

    #[test]
    fn a_template_that_is_none_is_refused() {
        for (line, word) in [
            ("", "empty"),
            ("a {b", "closed"),
            ("a} b", "opened"),
            ("{}", "name"),
        ] {
            let error = commands(line).unwrap_err();
            assert!(
                error.contains(word) && error.contains("\"set\""),
                "{line}: {error}"
            );
        }
    }
}
