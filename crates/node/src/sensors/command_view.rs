//! The commands of a virtual sensor as they are shown.

use chappe_stream::Descriptor;
use chappe_stream::descriptor::{Command, FieldInput};
use serde::Serialize;
use utoipa::ToSchema;

/// A command of a virtual sensor.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SensorCommand)]
pub(crate) struct CommandView {
    /// Its name.
    pub(crate) name: String,
    /// The stream of its calls.
    pub(crate) stream: String,
    /// Its arguments.
    fields: Vec<ArgumentView>,
    /// The wrapper to which a call is passed on before it is stored.
    wrapper: Option<String>,
    /// The command itself.
    #[serde(skip)]
    pub(crate) described: Command,
}

/// An argument of a command.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SensorCommandArgument)]
struct ArgumentView {
    /// Its name.
    name: String,
    /// How a person gives it: `text`, `integer`, `double`, `boolean`, `binary` (base64), `radio`, `select`,
    /// `checkbox`.
    #[serde(rename = "type")]
    input: &'static str,
    /// Whether it must be given.
    required: bool,
    /// The choices of `radio`, `select` and `checkbox`.
    choices: Vec<String>,
    /// The most bytes of `binary`.
    max_bytes: Option<u64>,
    /// For a person to read.
    description: Option<String>,
}

/// The commands of a sensor.
pub(super) fn views(descriptor: &Descriptor) -> Vec<CommandView> {
    let view = |command: &Command| CommandView {
        name: command.name.clone(),
        stream: descriptor.command_stream(command),
        fields: command
            .fields
            .iter()
            .map(|field| ArgumentView {
                name: field.name.clone(),
                input: field.input.word(),
                required: field.is_required,
                choices: field.input.choices().to_vec(),
                max_bytes: match field.input {
                    FieldInput::Binary { bytes_max } => bytes_max,
                    _ => None,
                },
                description: field.description.clone(),
            })
            .collect(),
        wrapper: command.pass_to.as_ref().map(|pass| pass.wrapper.clone()),
        described: command.clone(),
    };
    descriptor.commands.iter().map(view).collect()
}
