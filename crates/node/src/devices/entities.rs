//! The registry entities of devices, their services and their streams.

use std::collections::HashSet;

use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::{Entity, EntityKind, vocabulary as v};
use chappe_stream::StreamSchema;

use super::device::Device;
use super::key::service_key;
use crate::catalogue;

/// The keys of a device's services.
pub(super) fn service_keys(device: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| service_key(device, index)).collect()
}

/// The entities of a device and its services.
pub(super) fn of_device(device: &Device) -> Vec<Entity> {
    let mut entity = Entity::new(device.key.clone(), EntityKind::Device, shown(&device.name));
    entity.types.clone_from(&device.types);
    entity.scopes.clone_from(&device.scopes);
    let mut say = Statements::about(&device.key);
    let texts = [
        (v::MANUFACTURER, &device.manufacturer),
        (v::MODEL, &device.model),
        (v::FIRMWARE, &device.firmware),
        (v::SERIAL_NUMBER, &device.serial_number),
    ];
    for (predicate, text) in texts {
        if let Some(text) = text {
            say.text(predicate, text);
        }
    }
    for address in &device.addresses {
        say.text(v::ADDRESS, address);
    }
    let mut entities = Vec::new();
    for (index, service) in device.services.iter().enumerate() {
        let key = service_key(&device.key, index);
        say.link(v::HOSTS, &key);
        let mut entity = Entity::new(key.clone(), EntityKind::Service, shown(&service.id));
        entity.types.clone_from(&service.types);
        entity.scopes.clone_from(&device.scopes);
        let mut say = Statements::about(&key);
        say.text(v::ADDRESS, &service.address);
        say.link(v::IS_HOSTED_BY, &device.key);
        entity.triples = say.triples;
        entities.push(entity);
    }
    for stream in &device.streams {
        say.link(v::STREAM, &catalogue::key(stream));
    }
    entity.triples = say.triples;
    entities.push(entity);
    entities
}

/// The entity of a stream of `producer`, with the producer's types and scopes.
pub(crate) fn stream_entity(
    name: &str,
    schema: &StreamSchema,
    producer: &str,
    description: Option<&str>,
) -> Entity {
    let key = catalogue::key(name);
    let mut entity = Entity::new(key.clone(), EntityKind::Stream, name);
    let mut say = Statements::about(&key);
    say.link(v::PRODUCED_BY, producer);
    if let Some(text) = description {
        say.text(v::RDFS_COMMENT, text);
    }
    for (index, field) in schema.fields.iter().enumerate() {
        let node = BlankNode::new_unchecked(format!("f{index}"));
        say.object(v::FIELD, node.clone().into());
        let mut of_field = |predicate: NamedNodeRef<'_>, object: Term| {
            say.triples
                .push(Triple::new(node.clone(), predicate.into_owned(), object));
        };
        of_field(v::FIELD_NAME, literal(&field.name));
        let word = serde_json::to_value(field.field_type).unwrap_or_default();
        of_field(v::FIELD_TYPE, literal(word.as_str().unwrap_or_default()));
        if let Some(unit) = &field.unit {
            of_field(v::UNIT, literal(unit));
        }
        if let Some(text) = &field.description {
            of_field(v::RDFS_COMMENT, literal(text));
        }
        if let Some(property) = &field.observed_property {
            let property = match NamedNode::new(property.as_str()) {
                Ok(property) => property,
                Err(_) => continue,
            };
            of_field(v::OBSERVED_PROPERTY, property.clone().into());
            say.object(v::OBSERVES, property.into());
        }
    }
    entity.triples = say.triples;
    entity
}

/// A display name, shortened to the registry's limit.
fn shown(name: &str) -> String {
    name.chars().take(200).collect()
}

fn literal(text: &str) -> Term {
    Literal::new_simple_literal(text).into()
}

/// The triples of one subject.
struct Statements {
    subject: NamedNode,
    triples: Vec<Triple>,
    /// The same triples: a device may have a thousand streams.
    known: HashSet<Triple>,
}

impl Statements {
    fn about(key: &str) -> Self {
        // Keys are checked where they are created, and again by the registry.
        Self {
            subject: NamedNode::new_unchecked(key),
            triples: Vec::new(),
            known: HashSet::new(),
        }
    }

    fn object(&mut self, predicate: NamedNodeRef<'_>, object: Term) {
        let triple = Triple::new(self.subject.clone(), predicate.into_owned(), object);
        if self.known.insert(triple.clone()) {
            self.triples.push(triple);
        }
    }

    fn text(&mut self, predicate: NamedNodeRef<'_>, text: &str) {
        self.object(predicate, literal(text));
    }

    fn link(&mut self, predicate: NamedNodeRef<'_>, key: &str) {
        self.object(predicate, NamedNode::new_unchecked(key).into());
    }
}
