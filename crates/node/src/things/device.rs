//! The Thing Description of a device that the node has found.
//!
//! It says what the node knows, and its forms are those of the node, not of the device: each stream of the
//! device is a property, whose form reads the newest element over REST, and an event, whose form follows the
//! stream by server-sent events. The operations of an announced device are actions; those of a device of DPWS are
//! not, because the node's REST interface does not call them.

use chappe_registry::vocabulary::{self, td};
use chappe_stream::{Field, FieldType};
use serde_json::{Map, Value, json};

use super::Security;
use crate::accounts::View;
use crate::catalogue::Entry;
use crate::devices::{DEVICE_KEYS, Device, DeviceOperation, OperationArgument};
use crate::shared::App;

/// Whether this is the key of a device that the node has found, or had.
pub(crate) fn is_own_key(key: &str) -> bool {
    key.starts_with(DEVICE_KEYS)
}

/// Whether this is the key of a device that is there.
pub(crate) fn is_found(app: &App, key: &str) -> bool {
    is_own_key(key) && app.devices.is_present(key)
}

/// The Thing Description of a device, with the streams in a view. `base` is the address of this node.
pub(crate) fn description(app: &App, device: &Device, view: &View<'_>, base: &str) -> Value {
    let security = Security::of(&app.config);
    let (mut properties, mut events) = (Map::new(), Map::new());
    for stream in &device.streams {
        let entry = app.catalogue.get(stream);
        let Some(entry) = entry.filter(|entry| view.has(entry)) else {
            continue;
        };
        let name = entry.current_name();
        properties.insert(name.clone(), property(&entry, &name));
        events.insert(name.clone(), event(&entry, &name));
    }
    let title = match device.name.as_str() {
        "" => &device.key,
        name => name,
    };
    let mut description = json!({
        // Consumers of version 1.0 want theirs first (Thing Description 1.1, section 5.3.1.1).
        "@context": [td::TD_1_0_CONTEXT, td::TD_CONTEXT, td::DISCOVERY_CONTEXT,
            {"chappe": vocabulary::CHAPPE, "sosa": vocabulary::SOSA}],
        "id": device.key,
        "title": title,
        "base": format!("{base}/"),
        "securityDefinitions": security.definitions,
        "security": security.reading,
        "properties": properties,
        "events": events,
        "links": [{
            "href": format!("api/v1/devices/{}", encoded(&device.key)),
            "rel": "alternate", "type": "application/json",
        }],
        "registration": {"created": device.first_seen},
    });
    if !device.operations.is_empty() {
        let operations = device.operations.iter();
        let actions = operations.map(|one| (one.name.clone(), action(device, one, &security)));
        description["actions"] = Value::Object(actions.collect());
    }
    let types = device.types.iter().filter_map(|name| class(name));
    let types: Vec<String> = types.collect();
    if !types.is_empty() {
        description["@type"] = json!(types);
    }
    for (name, text) in [
        ("chappe:manufacturer", &device.manufacturer),
        ("chappe:model", &device.model),
        ("chappe:firmware", &device.firmware),
        ("chappe:serialNumber", &device.serial_number),
    ] {
        if let Some(text) = text {
            description[name] = json!(text);
        }
    }
    description
}

/// The IRI of a type `{namespace}local`.
fn class(name: &str) -> Option<String> {
    let (namespace, local) = name.strip_prefix('{')?.split_once('}')?;
    let separator = match namespace.ends_with(['/', '#', ':']) {
        true => "",
        false => "/",
    };
    let iri = format!("{namespace}{separator}{local}");
    chappe_registry::oxrdf::NamedNode::new(&iri).ok()?;
    Some(iri)
}

/// Percent-encodes a segment of a path.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => encoded.push(char::from(byte)),
            byte if b"-._~:@".contains(&byte) => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The path, without a slash, that reads the newest element of a stream.
pub(crate) fn reading(stream: &str) -> String {
    format!("api/v1/streams/{}/elements?newest=1", encoded(stream))
}

/// The path, without a slash, that follows a stream.
pub(crate) fn following(stream: &str) -> String {
    format!("api/v1/live?streams={}", encoded(stream))
}

/// An operation of an announced device.
fn action(device: &Device, operation: &DeviceOperation, security: &Security) -> Value {
    let (key, name) = (encoded(&device.key), encoded(&operation.name));
    let mut action = json!({
        "safe": false,
        "synchronous": true,
        "forms": [{
            "href": format!("api/v1/devices/{key}/operations/{name}"),
            "op": "invokeaction",
            "contentType": "application/json",
            "htv:methodName": "POST",
            "security": security.changing,
        }],
    });
    if let Some(text) = &operation.description {
        action["description"] = json!(text);
    }
    action["input"] = match &operation.argument {
        None => json!({"type": "object"}),
        Some(argument) => json!({
            "type": "object",
            "properties": {"value": input(argument)},
            "required": ["value"],
        }),
    };
    action
}

fn input(argument: &OperationArgument) -> Value {
    let word = match &*argument.value_type {
        "double" => "number",
        "text" => "string",
        other => other,
    };
    let mut schema = json!({"type": word});
    for (key, limit) in [("minimum", argument.minimum), ("maximum", argument.maximum)] {
        if let Some(limit) = limit {
            schema[key] = json!(limit);
        }
    }
    if let Some(unit) = &argument.unit {
        schema["unit"] = json!(unit);
    }
    if !argument.choices.is_empty() {
        schema["enum"] = json!(argument.choices);
    }
    schema
}

/// The newest element of a stream.
fn property(entry: &Entry, name: &str) -> Value {
    json!({
        "description": "the newest element of the stream",
        "readOnly": true,
        "type": "object",
        "properties": {"elements": {"type": "array", "items": element(entry)}},
        "forms": [{
            "href": reading(name),
            "op": "readproperty",
            "contentType": "application/json",
        }],
    })
}

/// The elements of a stream as they arrive.
fn event(entry: &Entry, name: &str) -> Value {
    json!({
        "description": "elements of the stream as they arrive",
        "data": {
            "type": "object",
            "properties": {"elements": {"type": "array", "items": element(entry)}},
        },
        "forms": [{
            "href": following(name),
            "op": "subscribeevent",
            "contentType": "text/event-stream",
            "subprotocol": "sse",
        }],
    })
}

fn element(entry: &Entry) -> Value {
    let schema = entry.log.schema();
    let fields = schema.fields.iter();
    let fields: Map<String, Value> = fields
        .map(|field| (field.name.clone(), data_schema(field)))
        .collect();
    json!({
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "source_time": {"type": "string", "format": "date-time"},
            "quality": {"type": "string", "enum": ["good", "questionable", "bad"]},
            "values": {"type": "object", "properties": fields},
        },
    })
}

fn data_schema(field: &Field) -> Value {
    let mut schema = match field.field_type {
        FieldType::Boolean => json!({"type": "boolean"}),
        FieldType::Integer => json!({"type": "integer"}),
        FieldType::Double => json!({"type": "number"}),
        FieldType::Text => json!({"type": "string"}),
        FieldType::Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        FieldType::Samples => json!({
            "type": "object",
            "properties": {
                "start": {"type": "string", "format": "date-time"},
                "period_s": {"type": "number", "unit": "s"},
                "values": {"type": "array", "items": {"type": "number"}},
            },
        }),
    };
    if let Some(unit) = &field.unit {
        match field.field_type {
            FieldType::Samples => schema["properties"]["values"]["items"]["unit"] = json!(unit),
            _ => schema["unit"] = json!(unit),
        }
    }
    if let Some(text) = &field.description {
        schema["description"] = json!(text);
    }
    if let Some(property) = &field.observed_property {
        schema["sosa:observedProperty"] = json!({"@id": property});
    }
    schema
}
