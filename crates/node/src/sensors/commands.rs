//! Calls of a virtual sensor's commands: each is an element of the command's stream, which the sensor's statements
//! read like any other.

use std::sync::Arc;

use chappe_stream::descriptor::{Command, FieldInput};
use chappe_stream::{Descriptor, Position, Quality, StoreError, StreamElement, Value};
use serde::Serialize;
use utoipa::ToSchema;

use super::candidates::sensor_key;
use crate::catalogue::{CatalogueError, Entry};
use crate::clock;
use crate::producer::Producer;
use crate::shared::App;

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

/// Opens the streams of a sensor's commands.
pub(super) async fn open(
    app: &App,
    descriptor: &Descriptor,
) -> Result<Vec<Arc<Entry>>, CatalogueError> {
    let mut entries = Vec::with_capacity(descriptor.commands.len());
    for command in &descriptor.commands {
        let name = descriptor.command_stream(command);
        let (schema, level) = (command.schema(), descriptor.output.level);
        let made = app
            .catalogue
            .create(&name, &schema, &descriptor.name, Some(level));
        let entry = made.await?;
        let text = format!(
            "Calls of the command {:?} of the virtual sensor {}",
            command.name, descriptor.name
        );
        let source = sensor_key(&descriptor.name);
        let entity = Producer::new(&source).stream(&name, &schema, Some(&text));
        app.registrar.publish(vec![entity]).await;
        entries.push(entry);
    }
    Ok(entries)
}

/// Stores a call; resolves when it has reached the level of its stream.
///
/// # Errors
/// The stream does not take it.
pub(crate) async fn store(
    entry: &Entry,
    account: &str,
    values: Vec<Value>,
) -> Result<Position, StoreError> {
    let now = clock::now();
    let element = StreamElement {
        position: Position::default(),
        source_time: now,
        receive_time: now,
        key: Some(account.to_owned()).filter(|account| !account.is_empty()),
        values,
        quality: Quality::Good,
        origin: None,
    };
    let appended = entry.append(&[element]).await?;
    let first = appended.first;
    appended.await?;
    Ok(Position {
        epoch: chappe_stream::Epoch(first.epoch),
        sequence: first.sequence,
    })
}
