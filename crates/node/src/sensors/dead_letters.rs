//! Elements that a source of a virtual sensor refused, in a stream of their own.
//!
//! The stream is the output's, with `.dead-letters` after its name. An element has the source, the stream and
//! the number of the refused one, the reason, and its values as JSON; time, key and quality are those of
//! the refused one. After a crash the letters of the last second may be stored again.

use std::sync::Arc;

use chappe_stream::view::Values;
use chappe_stream::{
    Descriptor, Field, FieldType, Position, Refusal, SensorInput, StreamElement, StreamSchema,
    Value,
};

use super::candidates::sensor_key;
use crate::catalogue::{CatalogueError, Entry};
use crate::producer::Producer;
use crate::shared::App;

/// Longest values as JSON; longer ones are left out. 64 KiB: the element itself is in its stream.
const VALUES_BYTES_MAX: usize = 64 << 10;

fn schema() -> StreamSchema {
    let field = |name: &str, field_type, description: &str| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: Some(description.to_owned()),
    };
    StreamSchema {
        fields: vec![
            field("source", FieldType::Text, "the alias of the source"),
            field("of", FieldType::Text, "the stream of the element"),
            field("number", FieldType::Integer, "the number of the element"),
            field("reason", FieldType::Text, "why it was refused"),
            field("fields", FieldType::Text, "its fields as JSON"),
        ],
        key: None,
    }
}

/// The stream of dead letters, if a source of the sensor has any.
pub(super) async fn open(
    app: &App,
    descriptor: &Descriptor,
) -> Result<Option<Arc<Entry>>, CatalogueError> {
    let Some(name) = descriptor.dead_letters() else {
        return Ok(None);
    };
    let (schema, level) = (schema(), descriptor.output.level);
    let made = app
        .catalogue
        .create(&name, &schema, &descriptor.name, Some(level));
    let entry = made.await?;
    let text = format!(
        "Elements that the virtual sensor {} refused",
        descriptor.name
    );
    let producer = sensor_key(&descriptor.name);
    let entity = Producer::new(&producer).stream(&name, &schema, Some(&text));
    app.registrar.publish(vec![entity]).await;
    Ok(Some(entry))
}

/// A dead letter; `schema` is that of the element.
pub(super) fn letter(
    alias: String,
    reason: Refusal,
    input: &SensorInput,
    schema: Option<&StreamSchema>,
) -> StreamElement {
    let element = &*input.element;
    let fields = schema.map_or(&[][..], |schema| &schema.fields);
    let values = serde_json::to_string(&Values(fields, &element.values)).ok();
    let values = values.filter(|text| text.len() <= VALUES_BYTES_MAX);
    StreamElement {
        position: Position::default(),
        values: vec![
            Value::Text(alias),
            Value::Text(input.stream.to_string()),
            i64::try_from(element.position.sequence).map_or(Value::Null, Value::Integer),
            Value::Text(reason.as_str().to_owned()),
            values.map_or(Value::Null, Value::Text),
        ],
        origin: None,
        ..element.clone()
    }
}
