//! The devices that the peer of a wrapper announces: in the table of devices and in the registry, with their streams,
//! until they are retracted or the wrapper ends.

use std::collections::{BTreeMap, HashSet};

use chappe_registry::Entity;
use chappe_stream::StoreError;
use chappe_transport::Hop;
use chappe_wrappers::{AnnouncedDevice, DeviceReport};

use super::store::{Storer, stream_entity};
use crate::catalogue;
use crate::devices::{Device, DeviceState, announced_key, device_entities};

/// Changes of the registry that a batch of reports makes. They are applied together: each application waits for the log.
#[derive(Default)]
struct Changes {
    removed: Vec<String>,
    published: BTreeMap<String, Entity>,
    /// The keys of the devices that are gone.
    gone: HashSet<String>,
}

impl Changes {
    fn publish(&mut self, entities: impl IntoIterator<Item = Entity>) {
        let keyed = entities.into_iter().map(|one| (one.key.clone(), one));
        self.published.extend(keyed);
    }

    fn remove(&mut self, key: String) {
        self.published.remove(&key);
        self.removed.push(key);
    }

    /// A device and its streams leave the registry.
    fn unregister(&mut self, device: Device) {
        for stream in &device.streams {
            self.remove(catalogue::key(stream));
        }
        self.remove(device.key.clone());
        self.gone.insert(device.key);
    }
}

impl Storer {
    /// Takes what the peer says about its devices.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn take_devices(
        &mut self,
        reports: Vec<DeviceReport>,
    ) -> Result<(), StoreError> {
        let mut changes = Changes::default();
        let taken = self.take_each(reports, &mut changes).await;
        self.apply(changes).await;
        taken
    }

    async fn take_each(
        &mut self,
        reports: Vec<DeviceReport>,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        for DeviceReport { id, device } in reports {
            match (announced_key(&self.key, &id), device) {
                (Some((endpoint, key)), Some(device)) => {
                    self.announce(endpoint, key, device, changes).await?;
                }
                (Some((_, key)), None) => self.retract(&key, changes),
                (None, Some(_)) => self.refuse_device(
                    "device_name_too_long",
                    format!("{id:.64}…: its key would be too long"),
                    None,
                ),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Adds or changes a device. One that has neither a stream nor an operation is not shown.
    async fn announce(
        &mut self,
        endpoint: String,
        key: String,
        announced: AnnouncedDevice,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let (mut names, mut entities) = (Vec::new(), Vec::new());
        for (stream, definition) in &announced.streams {
            self.devices.insert(stream.clone(), key.clone());
            match self.stream(stream, definition).await? {
                Ok(entry) => {
                    entities.push(stream_entity(
                        &self.file,
                        &entry.name,
                        definition,
                        Some(&key),
                    ));
                    names.push(entry.name.clone());
                }
                Err(reason) => {
                    self.devices.remove(stream);
                    self.refuse_device("device_without_stream", format!("{key}: {reason}"), None);
                }
            }
        }
        if names.is_empty() && announced.operations.is_empty() {
            self.retract(&key, changes);
            return Ok(());
        }
        let most = self.file.keys.limits.streams as usize;
        let mut device = self.shown(endpoint, &key, announced);
        device.streams.clone_from(&names);
        let Ok(made) = self.app.devices.announce(device, most) else {
            let hint = "limits.streams of its file is the most devices, too".to_owned();
            let detail = format!("{key}: the wrapper already has {most} devices");
            self.refuse_device("too_many_devices", detail, Some(hint));
            return Ok(());
        };
        changes.gone.remove(&key);
        if let Some(displaced) = made.displaced {
            self.unregister(displaced, changes);
        }
        let names: HashSet<String> = names.into_iter().collect();
        let former = made.former_streams.iter();
        let former = former.filter(|name| !names.contains(*name));
        // Another device may have it by now.
        for name in former.filter(|name| self.app.devices.announced_with(name).is_none()) {
            changes.remove(catalogue::key(name));
        }
        changes.publish(entities);
        if let Some(device) = self.app.devices.get(&key) {
            changes.publish(device_entities(&self.app, &device));
        }
        Ok(())
    }

    /// Applies changes to the registry.
    async fn apply(&mut self, changes: Changes) {
        let Changes {
            removed,
            published,
            gone,
        } = changes;
        if !gone.is_empty() {
            self.devices.retain(|_, key| !gone.contains(key));
        }
        if !removed.is_empty() {
            self.app.registrar.remove(removed).await;
        }
        if !published.is_empty() {
            let entities = published.into_values().collect();
            self.app.registrar.publish(entities).await;
        }
    }

    /// A device as the node shows it.
    fn shown(&self, endpoint: String, key: &str, announced: AnnouncedDevice) -> Device {
        let keys = &self.file.keys;
        let state = match announced.offline {
            None => DeviceState::Usable,
            Some(_) => DeviceState::Offline,
        };
        let mut device = Device::new(key);
        device.endpoint = endpoint;
        device.name = announced.name;
        device.types.clone_from(&keys.types);
        device.scopes.clone_from(&keys.scopes);
        device.manufacturer = announced.manufacturer;
        device.model = announced.model;
        device.firmware = announced.firmware;
        device.serial_number = announced.serial_number;
        device.found_by = vec![keys.kind.clone()];
        device.wrapper = Some(self.file.name.clone());
        device.operations = announced.operations.into_iter().map(Into::into).collect();
        device.state_since = announced.since.to_string();
        device.set_state(state, announced.offline, None);
        device
    }

    /// Removes a device that is not announced any more. Its streams keep their elements.
    fn retract(&self, key: &str, changes: &mut Changes) {
        if let Some(device) = self.app.devices.retract(key) {
            self.unregister(device, changes);
        }
    }

    /// Takes a device and its streams out of the registry, but no stream that another device has by now.
    fn unregister(&self, mut device: Device, changes: &mut Changes) {
        let devices = &self.app.devices;
        device
            .streams
            .retain(|name| devices.announced_with(name).is_none());
        changes.unregister(device);
    }

    /// Removes those that were not announced again after the wrapper was opened.
    pub(super) async fn retract_expired(&mut self) {
        let mut changes = Changes::default();
        for key in self.app.devices.expired(&self.file.name) {
            self.retract(&key, &mut changes);
        }
        self.apply(changes).await;
    }

    fn refuse_device(&self, reason: &'static str, detail: String, hint: Option<String>) {
        let drops = &self.app.observability.drops;
        drops.record(Hop::Metadata, reason, &self.file.name, detail, hint);
    }
}
