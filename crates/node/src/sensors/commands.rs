//! Calls of a virtual sensor's commands: each is an element of the command's stream, which the sensor's statements
//! read like any other.

use std::sync::Arc;

use chappe_stream::{Descriptor, Position, Quality, StoreError, StreamElement, Value};

use super::candidates::sensor_key;
use crate::catalogue::{CatalogueError, Entry};
use crate::clock;
use crate::producer::Producer;
use crate::shared::App;

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
