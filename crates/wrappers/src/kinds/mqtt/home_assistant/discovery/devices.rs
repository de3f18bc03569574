//! The devices of announced entities, and the calls of their operations.
//!
//! Entities whose configurations have the same identifier of a device are of one device; one that names no device is a
//! device of its own. The first entity that names a device describes it.

use std::collections::BTreeSet;

use chappe_stream::Timestamp;
use serde_json::Value;

use super::super::config::{Keys, scalar, shortened};
use super::{Discovery, Id};
use crate::kinds::mqtt::follow::Call;
use crate::{AnnouncedDevice, Command, DeviceReport};

/// Longest identifier of a device in bytes; reason: it becomes part of a key of the registry.
const IDENTIFIER_BYTES_MAX: usize = 256;

/// What a configuration says about the device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct About {
    pub(super) id: String,
    name: Option<String>,
    manufacturer: Option<String>,
    model: Option<String>,
    firmware: Option<String>,
    serial_number: Option<String>,
}

impl About {
    /// The device of an entity with this path of its topic.
    ///
    /// # Errors
    /// Its identifier is too long.
    pub(super) fn of(config: Keys<'_>, path: &[&str]) -> Result<Self, String> {
        let table = config.get("device").and_then(Value::as_object);
        let text = |key: &str| {
            let text = table?.get(key).and_then(scalar)?;
            Some(shortened(&text)).filter(|text| !text.is_empty())
        };
        let identifier = table.and_then(|table| {
            let listed = table.get("identifiers").and_then(first);
            let connection = || {
                let connection = table.get("connections")?.as_array()?.first()?.as_array()?;
                let parts: Vec<String> = connection.iter().filter_map(scalar).collect();
                Some(parts.join(":"))
            };
            listed.or_else(connection).filter(|id| !id.is_empty())
        });
        // No identifier can be a topic of three levels, as far as it matters: an entity has one topic.
        let id = identifier.unwrap_or_else(|| path.join("/"));
        if id.len() > IDENTIFIER_BYTES_MAX {
            return Err(format!(
                "the identifier of its device is longer than {IDENTIFIER_BYTES_MAX} bytes"
            ));
        }
        let own = || config.text("name").map(|text| shortened(&text));
        Ok(Self {
            name: if table.is_some() { text("name") } else { own() },
            manufacturer: text("manufacturer"),
            model: text("model"),
            firmware: text("sw_version"),
            serial_number: text("serial_number"),
            id,
        })
    }
}

/// The first of several identifiers.
fn first(value: &Value) -> Option<String> {
    match value {
        Value::Array(items) => items.first().and_then(scalar),
        other => scalar(other),
    }
}

/// A device with its entities.
#[derive(Default)]
pub(super) struct Group {
    about: About,
    /// The entity that describes it.
    describer: Option<Id>,
    members: BTreeSet<Id>,
    is_available: bool,
    since: Timestamp,
}

impl Discovery {
    /// Adds an entity to its device.
    pub(super) fn join(&mut self, id: &Id, about: About, now: Timestamp) {
        let device = about.id.clone();
        self.changed.insert(device.clone(), now);
        self.device_of.insert(id.clone(), device.clone());
        let group = self.groups.entry(device).or_default();
        group.members.insert(id.clone());
        if group
            .describer
            .as_ref()
            .is_none_or(|describer| describer == id)
        {
            (group.about, group.describer) = (about, Some(id.clone()));
        }
    }

    /// Takes an entity from its device.
    pub(super) fn leave(&mut self, id: &Id, now: Timestamp) {
        let Some(device) = self.device_of.remove(id) else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&device) {
            group.members.remove(id);
            if group.describer.as_ref() == Some(id) {
                group.describer = None;
            }
        }
        self.changed.insert(device, now);
    }

    /// The availability of an entity has changed.
    pub(super) fn note(changed: &mut super::Changed, device: Option<&String>, now: Timestamp) {
        if let Some(device) = device {
            changed.insert(device.clone(), now);
        }
    }

    /// What is new about devices since the last call.
    pub(in super::super) fn devices(&mut self) -> Vec<DeviceReport> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|(id, at)| self.report(id, at))
            .collect()
    }

    fn report(&mut self, id: String, at: Timestamp) -> DeviceReport {
        let Some(group) = self
            .groups
            .get_mut(&id)
            .filter(|group| !group.members.is_empty())
        else {
            self.groups.remove(&id);
            return DeviceReport { id, device: None };
        };
        let members = group.members.iter();
        let known: Vec<_> = members
            .filter_map(|member| self.entities.get(member))
            .collect();
        let is_available = known.is_empty() || known.iter().any(|known| known.is_available);
        if is_available != group.is_available || group.since == Timestamp::default() {
            (group.is_available, group.since) = (is_available, at);
        }
        let operations = group.members.iter();
        let operations = operations.filter_map(|member| self.operations.get(member));
        let about = group.about.clone();
        let device = AnnouncedDevice {
            name: about.name.unwrap_or_else(|| shortened(&about.id)),
            manufacturer: about.manufacturer,
            model: about.model,
            firmware: about.firmware,
            serial_number: about.serial_number,
            offline: (!is_available)
                .then(|| "its topics of availability say that it is not there".to_owned()),
            since: group.since,
            streams: known
                .iter()
                .map(|known| (known.stream.clone(), known.definition.clone()))
                .collect(),
            operations: operations
                .map(|operation| operation.shown.clone())
                .collect(),
        };
        DeviceReport {
            id,
            device: Some(device),
        }
    }

    /// The message that calls an operation.
    ///
    /// # Errors
    /// There is none, its entity is not available, or the arguments do not fit.
    pub(in super::super) fn operate(
        &self,
        device: &str,
        command: &Command,
    ) -> Result<Call, String> {
        let called = self.called.get(&(device.to_owned(), command.name.clone()));
        let found = called.and_then(|member| Some((member, self.operations.get(member)?)));
        let (member, operation) = found
            .ok_or_else(|| format!("no device {device:?} has an operation {:?}", command.name))?;
        if self
            .entities
            .get(member)
            .is_some_and(|known| !known.is_available)
        {
            return Err(format!("{:?} is not available", command.name));
        }
        Ok(Call {
            publication: operation.publication(command)?,
            confirms: None,
        })
    }
}
