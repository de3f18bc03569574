//! The commands of a virtual sensor: their TOML, and the element that a call becomes.
//!
//! A call is an element of the command's stream ([`Descriptor::command_stream`]), with a field for each argument.
//! Statements read it through a source with `command`.
//!
//! [`Descriptor::command_stream`]: super::Descriptor::command_stream

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use toml::Spanned;

use super::error::{DescriptorError, DescriptorFault, Place, nearest};
use crate::schema::is_column_name;
use crate::{Field, FieldType, StreamSchema, Value, column_name, name_part};

/// Most commands, fields of a command, and choices of a field; reason: a person chooses among them.
const COMMANDS_MAX: usize = 64;
/// Most characters of a column that are taken from a name; a column has at most 64.
const COLUMN_CHARACTERS: usize = 60;
/// The subject that the key of a call identifies.
const KEY: &str = "account";
/// Stands between the checked choices of a checkbox in a text.
const BETWEEN_CHOICES: &str = "|";

/// A command of a virtual sensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub fields: Vec<CommandField>,
    /// The command of a wrapper to which a call is passed on.
    pub pass_to: Option<PassTo>,
}

/// The command of a wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassTo {
    /// The wrapper.
    pub wrapper: String,
    /// The name of its command.
    pub command: String,
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
    /// A whole number.
    Integer,
    /// A number.
    Double,
    /// True or false.
    Boolean,
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

/// An argument that does not fit its command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument}: {message}")]
pub struct ArgumentError {
    /// The argument.
    pub argument: String,
    /// The fault.
    pub message: String,
    /// The remedy, if known.
    pub hint: Option<String>,
}

impl FieldInput {
    /// Its word in a descriptor.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Boolean => "boolean",
            Self::Binary { .. } => "binary",
            Self::Radio(_) => "radio",
            Self::Select(_) => "select",
            Self::Checkbox(_) => "checkbox",
        }
    }

    /// The choices; empty if any value is possible.
    #[must_use]
    pub fn choices(&self) -> &[String] {
        match self {
            Self::Radio(choices) | Self::Select(choices) | Self::Checkbox(choices) => choices,
            _ => &[],
        }
    }

    fn field_type(&self) -> FieldType {
        match self {
            Self::Text | Self::Radio(_) | Self::Select(_) | Self::Checkbox(_) => FieldType::Text,
            Self::Integer => FieldType::Integer,
            Self::Double => FieldType::Double,
            Self::Boolean => FieldType::Boolean,
            Self::Binary { .. } => FieldType::Bytes,
        }
    }

    /// The value of an argument, or what it must be.
    fn value(&self, given: &Json) -> Result<Value, String> {
        let is_choice = |text: &str| self.choices().iter().any(|choice| choice == text);
        let text = given.as_str();
        let fits = match self {
            Self::Text => text.map(|text| Value::Text(text.to_owned())),
            Self::Integer => given
                .as_i64()
                .or_else(|| text?.trim().parse().ok())
                .map(Value::Integer),
            Self::Double => given
                .as_f64()
                .or_else(|| text?.trim().parse().ok())
                .filter(|number| number.is_finite())
                .map(Value::Double),
            Self::Boolean => given
                .as_bool()
                .or_else(|| text?.trim().parse().ok())
                .map(Value::Boolean),
            Self::Binary { bytes_max } => {
                let bytes = text.and_then(|text| STANDARD.decode(text).ok());
                if let (Some(bytes), Some(most)) = (&bytes, bytes_max)
                    && bytes.len() as u64 > *most
                {
                    return Err(format!("{} bytes are more than {most}", bytes.len()));
                }
                bytes.map(Value::Bytes)
            }
            Self::Radio(_) | Self::Select(_) => text
                .filter(|text| is_choice(text))
                .map(|text| Value::Text(text.to_owned())),
            Self::Checkbox(choices) => checked(given).and_then(|given| {
                // In the order of the choices, so that equal answers are equal texts.
                let all_known = given.iter().all(|text| is_choice(text));
                let chosen = choices.iter().filter(|choice| given.contains(choice));
                let chosen: Vec<&str> = chosen.map(String::as_str).collect();
                all_known.then(|| Value::Text(chosen.join(BETWEEN_CHOICES)))
            }),
        };
        let wanted = || match self {
            Self::Text => "a text".to_owned(),
            Self::Integer => "a whole number of 64 bits".to_owned(),
            Self::Double => "a finite number".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Binary { .. } => "bytes as base64".to_owned(),
            Self::Radio(choices) | Self::Select(choices) => {
                format!("one of {}", choices.join(", "))
            }
            Self::Checkbox(choices) => format!("an array of any of {}", choices.join(", ")),
        };
        fits.ok_or_else(|| format!("it must be {}", wanted()))
    }
}

/// The choices that were checked: an array, or a text with signs between them.
fn checked(given: &Json) -> Option<Vec<String>> {
    match given {
        Json::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect(),
        Json::String(text) if text.is_empty() => Some(Vec::new()),
        Json::String(text) => Some(text.split(BETWEEN_CHOICES).map(str::to_owned).collect()),
        _ => None,
    }
}

impl CommandField {
    /// Its column in the command's stream: the name in lower case, with `_` for characters that a column cannot
    /// have.
    #[must_use]
    pub fn column(&self) -> String {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let name = self.name.trim().to_lowercase();
        let characters = name.chars().take(COLUMN_CHARACTERS);
        let mut column: String = characters.map(|c| if fits(c) { c } else { '_' }).collect();
        if !is_column_name(&column) {
            column.insert(0, '_');
        }
        column_name(&column)
    }
}

impl Command {
    /// The last part of the name of its stream.
    #[must_use]
    pub fn stream_part(&self) -> String {
        name_part(&self.name)
    }

    /// The schema of its stream: a field for each argument. The key of an element is the account that called.
    #[must_use]
    pub fn schema(&self) -> StreamSchema {
        let fields = self.fields.iter().map(|field| Field {
            name: field.column(),
            field_type: field.input.field_type(),
            unit: None,
            observed_property: None,
            description: field.description.clone(),
        });
        StreamSchema {
            fields: fields.collect(),
            key: Some(KEY.to_owned()),
        }
    }

    /// The values of a call, one for each field of [`Self::schema`]; null for an argument that is not given.
    ///
    /// # Errors
    /// The first argument that is unknown, missing or does not fit.
    pub fn values(&self, arguments: &Map<String, Json>) -> Result<Vec<Value>, ArgumentError> {
        let wrong = |argument: &str, message: &str, hint: Option<String>| ArgumentError {
            argument: argument.to_owned(),
            message: message.to_owned(),
            hint,
        };
        let known: Vec<&str> = self.fields.iter().map(|field| &*field.name).collect();
        if let Some(name) = arguments.keys().find(|name| !known.contains(&&***name)) {
            let hint = match (nearest(name, &known), known.is_empty()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, true) => "the command has no arguments".to_owned(),
                (None, false) => format!("its arguments are {}", known.join(", ")),
            };
            return Err(wrong(name, "the command has no such argument", Some(hint)));
        }
        let value = |field: &CommandField| match arguments
            .get(&field.name)
            .filter(|given| !given.is_null())
        {
            Some(given) => field
                .input
                .value(given)
                .map_err(|message| wrong(&field.name, &message, field.description.clone())),
            None if field.is_required => {
                let hint = field.description.clone();
                Err(wrong(&field.name, "this argument is missing", hint))
            }
            None => Ok(Value::Null),
        };
        self.fields.iter().map(value).collect()
    }
}

/// A command, which is called over REST.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCommand {
    /// The name.
    name: String,
    /// The arguments.
    #[serde(default)]
    field: Vec<RawCommandField>,
    /// The command of a wrapper to which a call is passed on first. Default: none.
    pass_to: Option<RawPassTo>,
}

/// The command of a wrapper.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawPassTo {
    /// The wrapper.
    wrapper: String,
    /// The name of its command. Default: that of the sensor's command.
    command: Option<String>,
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
#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum RawInput {
    Text,
    Integer,
    Double,
    Boolean,
    Binary,
    Radio,
    Select,
    Checkbox,
}

pub(super) fn commands(
    place: Place<'_>,
    raw: Option<Spanned<Vec<Spanned<RawCommand>>>>,
) -> Result<Vec<Command>, DescriptorError> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let wrong = |at: usize, key: String, message: String| {
        Err(place.error(DescriptorFault::Value, at, key, message, None))
    };
    if raw.get_ref().len() > COMMANDS_MAX {
        let message = format!("there are more than {COMMANDS_MAX} commands");
        return wrong(raw.span().start, "command".to_owned(), message);
    }
    let mut commands: Vec<Command> = Vec::new();
    for (index, raw) in raw.into_inner().into_iter().enumerate() {
        let key = format!("command[{index}]");
        let (at, raw) = (raw.span().start, raw.into_inner());
        if commands.iter().any(|other| other.name == raw.name) {
            let message = format!("there is another command {:?}", raw.name);
            return wrong(at, key, message);
        }
        if raw.field.len() > COMMANDS_MAX {
            let message = format!("the command has more than {COMMANDS_MAX} fields");
            return wrong(at, key, message);
        }
        let mut fields = Vec::new();
        for (field, raw) in raw.field.into_iter().enumerate() {
            match command_field(raw) {
                Ok(made) => fields.push(made),
                Err(message) => return wrong(at, format!("{key}.field[{field}]"), message),
            }
        }
        let pass_to = raw.pass_to.map(|pass| PassTo {
            wrapper: pass.wrapper,
            command: pass.command.unwrap_or_else(|| raw.name.clone()),
        });
        let command = Command {
            name: raw.name,
            fields,
            pass_to,
        };
        let part = command.stream_part();
        if let Some(other) = commands.iter().find(|other| other.stream_part() == part) {
            let message = format!(
                "the streams of {:?} and {:?} would have the same name",
                other.name, command.name
            );
            return wrong(at, key, message);
        }
        if let Err(error) = command.schema().check_names() {
            return wrong(at, format!("{key}.field"), error.to_string());
        }
        commands.push(command);
    }
    Ok(commands)
}

fn command_field(raw: RawCommandField) -> Result<CommandField, String> {
    let has_choices = !raw.choices.is_empty();
    if raw.choices.len() > COMMANDS_MAX {
        return Err(format!("there are more than {COMMANDS_MAX} choices"));
    }
    let takes_choices = matches!(
        raw.input,
        RawInput::Radio | RawInput::Select | RawInput::Checkbox
    );
    if takes_choices != has_choices {
        return Err("`choices` belongs to radio, select and checkbox".to_owned());
    }
    if raw.max_bytes.is_some() && raw.input != RawInput::Binary {
        return Err("`max_bytes` belongs to binary".to_owned());
    }
    let divides = |choice: &String| choice.contains(BETWEEN_CHOICES);
    if raw.input == RawInput::Checkbox && raw.choices.iter().any(divides) {
        return Err(format!(
            "a choice of a checkbox cannot contain {BETWEEN_CHOICES:?}, which separates choices"
        ));
    }
    let input = match raw.input {
        RawInput::Text => FieldInput::Text,
        RawInput::Integer => FieldInput::Integer,
        RawInput::Double => FieldInput::Double,
        RawInput::Boolean => FieldInput::Boolean,
        RawInput::Binary => FieldInput::Binary {
            bytes_max: raw.max_bytes,
        },
        RawInput::Radio => FieldInput::Radio(raw.choices),
        RawInput::Select => FieldInput::Select(raw.choices),
        RawInput::Checkbox => FieldInput::Checkbox(raw.choices),
    };
    Ok(CommandField {
        name: raw.name,
        input,
        is_required: raw.required,
        description: raw.description,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn command(fields: &[(&str, FieldInput, bool)]) -> Command {
        let fields = fields
            .iter()
            .map(|(name, input, is_required)| CommandField {
                name: (*name).to_owned(),
                input: input.clone(),
                is_required: *is_required,
                description: None,
            });
        Command {
            name: "Set Period".to_owned(),
            fields: fields.collect(),
            pass_to: None,
        }
    }

    #[test]
    fn arguments_become_the_values_of_an_element() {
        let days = ["mon", "tue", "wed"].map(str::to_owned).to_vec();
        let command = command(&[
            ("Note", FieldInput::Text, false),
            ("count", FieldInput::Integer, true),
            ("limit", FieldInput::Double, false),
            ("on", FieldInput::Boolean, false),
            ("file", FieldInput::Binary { bytes_max: Some(3) }, false),
            ("mode", FieldInput::Radio(days[..2].to_vec()), false),
            ("days", FieldInput::Checkbox(days), false),
        ]);
        let of = |arguments: Json| command.values(arguments.as_object().unwrap());
        let values = of(json!({
            "Note": "x", "count": "7", "limit": 2, "on": "true", "file": "AQID", "mode": "tue",
            "days": ["wed", "mon"],
        }));
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = vec![
            text("x"),
            Value::Integer(7),
            Value::Double(2.0),
            Value::Boolean(true),
            Value::Bytes(vec![1, 2, 3]),
            text("tue"),
            text("mon|wed"),
        ];
        assert_eq!(values, Ok(expected));
        assert_eq!(of(json!({ "count": 1 })).unwrap()[0], Value::Null);
        for (arguments, argument, message) in [
            (json!({}), "count", "missing"),
            (json!({ "count": null }), "count", "missing"),
            (json!({ "count": 1.5 }), "count", "whole number"),
            (json!({ "count": 1, "note": "x" }), "note", "no such"),
            (json!({ "count": 1, "limit": "inf" }), "limit", "finite"),
            (json!({ "count": 1, "on": 1 }), "on", "true or false"),
            (
                json!({ "count": 1, "file": "AQIDBA==" }),
                "file",
                "more than 3",
            ),
            (json!({ "count": 1, "file": "?" }), "file", "base64"),
            (
                json!({ "count": 1, "mode": "wed" }),
                "mode",
                "one of mon, tue",
            ),
            (json!({ "count": 1, "days": ["sun"] }), "days", "any of mon"),
        ] {
            let error = of(arguments).unwrap_err();
            assert_eq!(error.argument, argument, "{error}");
            assert!(error.message.contains(message), "{error}");
        }
        assert_eq!(command.stream_part(), "set-period");
        let names: Vec<String> = command
            .schema()
            .fields
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names[..2], ["note", "count"]);
    }

    #[test]
    fn any_name_becomes_a_column() {
        let column = |name: &str| {
            let field = command(&[(name, FieldInput::Text, false)]);
            field.fields[0].column()
        };
        for (name, expected) in [
            ("Sample rate", "sample_rate"),
            ("2nd", "_2nd"),
            ("key", "key_"),
            ("°C", "_c"),
            ("", "_"),
        ] {
            assert_eq!(column(name), expected);
            assert!(is_column_name(&column(name)), "{name}");
        }
    }
}
