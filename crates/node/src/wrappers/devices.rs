//! The devices that the peer of a wrapper announces: in the table of devices and in the registry, with their streams,
//! until they are retracted or the wrapper ends.

use std::collections::HashSet;

use chappe_stream::StoreError;
use chappe_transport::Hop;
use chappe_wrappers::{AnnouncedDevice, DeviceReport};

use super::store::{Storer, stream_entity};
use crate::catalogue;
use crate::devices::{Device, DeviceState, announced_key, device_entities};

impl Storer {
    /// Takes what the peer says about its devices.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn take_devices(
        &mut self,
        reports: Vec<DeviceReport>,
    ) -> Result<(), StoreError> {
        for DeviceReport { id, device } in reports {
            let Some((endpoint, key)) = announced_key(&self.key, &id) else {
                self.refuse_device(
                    "device_name_too_long",
                    format!("{id:.64}…: its key would be too long"),
                    None,
                );
                continue;
            };
            match device {
                Some(device) => self.announce(endpoint, key, device).await?,
                None => self.retract(vec![key]).await,
            }
        }
        Ok(())
    }

    /// Adds or changes a device.
    async fn announce(
        &mut self,
        endpoint: String,
        key: String,
        announced: AnnouncedDevice,
    ) -> Result<(), StoreError> {
        let most = self.file.keys.limits.streams as usize;
        let streams = announced.streams.clone();
        let device = self.shown(endpoint, &key, announced);
        match self.app.devices.announce(device, most) {
            Ok(displaced) => {
                if let Some(displaced) = displaced {
                    self.unregister(&displaced).await;
                }
            }
            Err(_) => {
                let hint = "limits.streams of its file is the most devices, too".to_owned();
                let detail = format!("{key}: the wrapper already has {most} devices");
                self.refuse_device("too_many_devices", detail, Some(hint));
                return Ok(());
            }
        }
        let (mut names, mut entities) = (Vec::new(), Vec::new());
        for (stream, definition) in &streams {
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
        self.app.registrar.publish(entities).await;
        let former = self.app.devices.set_announced_streams(&key, names.clone());
        let names: HashSet<String> = names.into_iter().collect();
        let gone = former.iter().filter(|name| !names.contains(*name));
        let gone: Vec<String> = gone.map(|name| catalogue::key(name)).collect();
        self.app.registrar.remove(gone).await;
        if let Some(device) = self.app.devices.get(&key) {
            let entities = device_entities(&self.app, &device);
            self.app.registrar.publish(entities).await;
        }
        Ok(())
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

    /// Removes devices that are not announced any more.
    pub(super) async fn retract(&mut self, keys: Vec<String>) {
        for key in keys {
            if let Some(device) = self.app.devices.retract(&key) {
                self.unregister(&device).await;
            }
        }
    }

    /// Removes those that were not announced again after the wrapper was opened.
    pub(super) async fn retract_expired(&mut self) {
        let expired = self.app.devices.expired(&self.file.name);
        self.retract(expired).await;
    }

    /// Takes a device and its streams out of the registry. The streams keep their elements.
    async fn unregister(&mut self, device: &Device) {
        self.devices.retain(|_, key| *key != device.key);
        let streams = device.streams.iter().map(|name| catalogue::key(name));
        let keys = streams.chain([device.key.clone()]).collect();
        self.app.registrar.remove(keys).await;
    }

    fn refuse_device(&self, reason: &'static str, detail: String, hint: Option<String>) {
        let drops = &self.app.observability.drops;
        drops.record(Hop::Metadata, reason, &self.file.name, detail, hint);
    }
}
