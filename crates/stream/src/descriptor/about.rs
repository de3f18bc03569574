//! What a descriptor says about a sensor beyond its data: metadata and declared commands.

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
/// Most declared commands, fields of a command, and choices of a field.
const COMMANDS_MAX: usize = 64;

/// A command that a device accepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub fields: Vec<CommandField>,
}

/// An argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandField {
    /// Its name.
    pub name: String,
    /// How a person gives it.
    pub input: FieldInput,
    /// Whether it must be given.
    pub is_required: bool,
    /// For a person to read.
    pub description: Option<String>,
}

/// How a person gives an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldInput {
    /// A line of text.
    Text,
    /// A file of at most this many bytes.
    Binary {
        /// The bound, if one is declared.
        bytes_max: Option<u64>,
    },
    /// One of these, all shown.
    Radio(Vec<String>),
    /// One of these, from a list.
    Select(Vec<String>),
    /// Any of these.
    Checkbox(Vec<String>),
}

/// A command that the sensor's device accepts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCommand {
    /// The name.
    name: String,
    /// The arguments.
    #[serde(default)]
    field: Vec<RawCommandField>,
}

/// An argument of a command.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawCommandField {
    /// The name.
    name: String,
    /// How a person gives it.
    #[serde(rename = "type")]
    input: RawInput,
    /// Whether it must be given. Default: false.
    #[serde(default)]
    required: bool,
    /// The choices of `radio`, `select` and `checkbox`.
    #[serde(default)]
    choices: Vec<String>,
    /// The most bytes of `binary`.
    max_bytes: Option<u64>,
    /// The description.
    description: Option<String>,
}

/// How a person gives an argument.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum RawInput {
    Text,
    Binary,
    Radio,
    Select,
    Checkbox,
}

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

pub(super) fn commands(
    place: Place<'_>,
    raw: Option<Spanned<Vec<RawCommand>>>,
) -> Result<Vec<Command>, DescriptorError> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let at = raw.span().start;
    let wrong = |key: String, message: String| {
        Err(place.error(DescriptorFault::Value, at, key, message, None))
    };
    if raw.get_ref().len() > COMMANDS_MAX {
        let message = format!("there are more than {COMMANDS_MAX} commands");
        return wrong("command".to_owned(), message);
    }
    let mut commands: Vec<Command> = Vec::new();
    for (index, raw) in raw.into_inner().into_iter().enumerate() {
        let key = format!("command[{index}]");
        if commands.iter().any(|other| other.name == raw.name) {
            return wrong(key, format!("there is another command {:?}", raw.name));
        }
        if raw.field.len() > COMMANDS_MAX {
            let message = format!("the command has more than {COMMANDS_MAX} fields");
            return wrong(key, message);
        }
        let mut fields = Vec::new();
        for (field, raw) in raw.field.into_iter().enumerate() {
            match command_field(raw) {
                Ok(made) => fields.push(made),
                Err(message) => return wrong(format!("{key}.field[{field}]"), message),
            }
        }
        commands.push(Command {
            name: raw.name,
            fields,
        });
    }
    Ok(commands)
}

fn command_field(raw: RawCommandField) -> Result<CommandField, String> {
    let has_choices = !raw.choices.is_empty();
    if raw.choices.len() > COMMANDS_MAX {
        return Err(format!("there are more than {COMMANDS_MAX} choices"));
    }
    let input = match raw.input {
        RawInput::Text => FieldInput::Text,
        RawInput::Binary => FieldInput::Binary {
            bytes_max: raw.max_bytes,
        },
        RawInput::Radio => FieldInput::Radio(raw.choices),
        RawInput::Select => FieldInput::Select(raw.choices),
        RawInput::Checkbox => FieldInput::Checkbox(raw.choices),
    };
    let takes_choices = !matches!(raw.input, RawInput::Text | RawInput::Binary);
    if takes_choices != has_choices {
        return Err("`choices` belongs to radio, select and checkbox".to_owned());
    }
    if raw.max_bytes.is_some() && !matches!(raw.input, RawInput::Binary) {
        return Err("`max_bytes` belongs to binary".to_owned());
    }
    Ok(CommandField {
        name: raw.name,
        input,
        is_required: raw.required,
        description: raw.description,
    })
}
