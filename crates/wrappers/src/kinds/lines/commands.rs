//! Commands over TCP: a line that is made from the arguments of a call and written to every peer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::DescriptorError;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::{Command, WrapperError, WrapperFile};

/// Longest template of a line, and longest line.
const LINE_BYTES_MAX: usize = 4 << 10;
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
pub(super) struct Commands(BTreeMap<String, Vec<Piece>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Argument(String),
}

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
                settings.map_err(|error: toml::de::Error| fault(error.message().to_owned()))?;
            let pieces = parse(&line).map_err(|text| fault(text.to_owned()))?;
            if commands.insert(name.clone(), pieces).is_some() {
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
        let Some(pieces) = self.0.get(&command.name) else {
            return wrong(format!("this wrapper has no command {:?}", command.name));
        };
        let names = |piece: &Piece, name: &str| matches!(piece, Piece::Argument(it) if it == name);
        let mut arguments = command.arguments.keys();
        let unknown = arguments.find(|name| !pieces.iter().any(|piece| names(piece, name)));
        if let Some(name) = unknown {
            return wrong(format!("the command has no argument {name:?}"));
        }
        let mut line = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => line.push_str(text),
                Piece::Argument(name) => match text(&command.arguments, name) {
                    Ok(text) => line.push_str(&text),
                    Err(reason) => return wrong(format!("the argument {name:?} {reason}")),
                },
            }
        }
        line.push('\n');
        match line.len() > LINE_BYTES_MAX {
            true => wrong(format!("the line is longer than {LINE_BYTES_MAX} bytes")),
            false => Ok(line.into_bytes().into()),
        }
    }
}

/// An argument as a part of a line. It must not end the line: another command could follow.
fn text(arguments: &Map<String, Value>, name: &str) -> Result<String, &'static str> {
    let text = match arguments.get(name) {
        None => return Err("is missing"),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(_) => return Err("is no text, number or Boolean"),
    };
    match text.contains(char::is_control) {
        true => Err("has a control character"),
        false => Ok(text),
    }
}

/// Divides a template; `{{` and `}}` are braces.
fn parse(line: &str) -> Result<Vec<Piece>, &'static str> {
    if line.is_empty() || line.len() > LINE_BYTES_MAX || line.contains(['\n', '\r']) {
        return Err("the line is empty, too long, or has a line end");
    }
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), line);
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{") {
            text.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            text.push('}');
            rest = after;
        } else {
            let inner = rest.strip_prefix('{').ok_or("a brace is not opened")?;
            let (name, after) = inner.split_once('}').ok_or("a brace is not closed")?;
            if name.is_empty() || name.contains('{') {
                return Err("a placeholder has no name");
            }
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Argument(name.to_owned()));
            rest = after;
        }
    }
    text.push_str(rest);
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;
    use serde_json::json;

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
            (json!({ "value": [], "note": "" }), "is no text"),
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
