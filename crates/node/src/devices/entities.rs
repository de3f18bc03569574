//! What the registry says of devices, their services and their streams.

use std::collections::HashSet;

use chappe_device::client::{Description, HostedService};
use chappe_dpws::metadata::localized;
use chappe_identity::Host;
use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedNodeRef, Term, Triple};
use chappe_registry::{Entity, EntityKind, vocabulary as v};
use chappe_stream::StreamSchema;
use chappe_xml::Name;

use super::key::service_key;
use super::table::{Device, Service};
use crate::catalogue;

/// A name as `{namespace}local`.
pub(super) fn type_name(name: &Name) -> String {
    format!("{{{}}}{}", name.namespace, name.local)
}

/// The keys of a device's services.
pub(super) fn service_keys(device: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| service_key(device, index)).collect()
}

/// Fills in what a device says of itself.
pub(super) fn describe(device: &mut Device, description: &Description) {
    let text = |texts| localized(texts, "en").map(str::to_owned);
    device.name = description.name().to_owned();
    device.is_described = true;
    device.host = Some(Host::from_address(description.contact.address.ip()));
    device.dialect = dialect_word(description.dialect).to_owned();
    if !description.types.is_empty() {
        device.types = description.types.iter().map(type_name).collect();
    }
    device.manufacturer = text(&description.model.manufacturer);
    device.model = text(&description.model.model_name);
    device
        .firmware
        .clone_from(&description.device.firmware_version);
    device
        .serial_number
        .clone_from(&description.device.serial_number);
    device.services = description.services.iter().map(service).collect();
}

fn service(service: &HostedService) -> Service {
    Service {
        id: service.id.clone(),
        types: service.types.iter().map(type_name).collect(),
        address: service.contact.to_string(),
    }
}

/// The word of a dialect in the interface.
pub(super) fn dialect_word(dialect: chappe_dpws::Dialect) -> &'static str {
    match dialect {
        chappe_dpws::Dialect::V2005 => "2005",
        chappe_dpws::Dialect::V2009 => "2009",
    }
}

/// The entities of a device and its services.
pub(super) fn of_device(device: &Device) -> Vec<Entity> {
    let mut entity = Entity::new(device.key.clone(), EntityKind::Device, shown(&device.name));
    entity.types.clone_from(&device.types);
    entity.scopes.clone_from(&device.scopes);
    let mut say = Sayings::about(&device.key);
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
        let mut say = Sayings::about(&key);
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

/// The entity of a stream that `producer` yields; types and scopes are those of the producer.
pub(crate) fn of_stream(
    name: &str,
    schema: &StreamSchema,
    producer: &str,
    description: Option<&str>,
) -> Entity {
    let key = catalogue::key(name);
    let mut entity = Entity::new(key.clone(), EntityKind::Stream, name);
    let mut say = Sayings::about(&key);
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

/// A name for people, as long as the registry takes.
fn shown(name: &str) -> String {
    name.chars().take(200).collect()
}

fn literal(text: &str) -> Term {
    Literal::new_simple_literal(text).into()
}

/// What is said of one subject.
struct Sayings {
    subject: NamedNode,
    triples: Vec<Triple>,
    /// The same triples: a device may have a thousand streams.
    known: HashSet<Triple>,
}

impl Sayings {
    fn about(key: &str) -> Self {
        // Keys are checked where they are made; the registry checks them again.
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
