//! The registry entities of devices and their services. A device is a thing of the directory too: its streams are
//! properties and events.

use chappe_registry::uddi::Key as _;
use chappe_registry::vocabulary::{self as v, td};
use chappe_registry::{Entity, EntityKind};

use super::device::Device;
use super::key::service_key;
use super::services;
use crate::catalogue;
use crate::producer::Statements;
use crate::shared::App;

/// The keys of a device's services.
pub(super) fn service_keys(device: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| service_key(device, index)).collect()
}

/// The entities of a device and its services.
pub(crate) fn of_device(app: &App, device: &Device) -> Vec<Entity> {
    let mut entity = Entity::new(device.key.clone(), EntityKind::Device, shown(&device.name));
    entity.types.clone_from(&device.types);
    entity.scopes.clone_from(&device.scopes);
    let mut say = Statements::about(&device.key);
    say.link(v::RDF_TYPE, td::THING.as_str());
    say.text(td::TITLE, &entity.name);
    say.link(v::RDF_TYPE, v::PLATFORM.as_str());
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
        say.link(v::BUSINESS_SERVICE, &services::key(app, &key).iri());
        entity.triples = say.into_triples();
        entities.push(entity);
    }
    for stream in &device.streams {
        let key = catalogue::key(stream);
        say.link(v::STREAM, &key);
        say.link(td::HAS_PROPERTY, &key);
        say.link(td::HAS_EVENT, &key);
    }
    entity.triples = say.into_triples();
    entities.push(entity);
    entities
}

/// A display name, shortened to the registry's limit.
fn shown(name: &str) -> String {
    name.chars().take(200).collect()
}
