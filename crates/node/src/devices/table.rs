//! The devices that are known, as they are shown.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_device::client::Way;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock;

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Device {
    /// Its name in the registry, a URI made of its endpoint address; its streams name it as source.
    pub(crate) key: String,
    /// Its endpoint address, a URI.
    pub(crate) endpoint: String,
    /// Its friendly name.
    pub(crate) name: String,
    /// Whether it can be used.
    pub(crate) state: DeviceState,
    /// Why it is in this state, when it is not usable.
    pub(crate) reason: Option<String>,
    /// What to do about it, when that is known.
    pub(crate) hint: Option<String>,
    /// The dialect of DPWS it speaks.
    pub(crate) dialect: String,
    /// `{namespace}local` each.
    pub(crate) types: Vec<String>,
    /// URIs.
    pub(crate) scopes: Vec<String>,
    /// Transport addresses.
    pub(crate) addresses: Vec<String>,
    pub(crate) manufacturer: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) serial_number: Option<String>,
    /// The version of what it says of itself.
    pub(crate) metadata_version: u64,
    /// RFC 3339.
    pub(crate) first_seen: String,
    /// RFC 3339.
    pub(crate) last_seen: String,
    /// How it was found: `discovery` (WS-Discovery, by multicast), `kad` (the distributed hash
    /// table), or both.
    pub(crate) found_by: Vec<String>,
    /// What it hosts.
    pub(crate) services: Vec<Service>,
    /// Names of its streams.
    pub(crate) streams: Vec<String>,
}

impl Device {
    /// Notes how it was found.
    pub(super) fn found_by(&mut self, way: Way) {
        if self.found_by.iter().all(|known| known != way.as_str()) {
            self.found_by.push(way.as_str().to_owned());
        }
    }
}

/// A hosted service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Service {
    /// Its ServiceId.
    pub(crate) id: String,
    /// `{namespace}local` each.
    pub(crate) types: Vec<String>,
    /// Its endpoint address.
    pub(crate) address: String,
}

/// Whether a device can be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceState {
    /// It is described, what it offers is bound, and all its events are subscribed.
    Usable,
    /// It was seen, and something keeps it from being used.
    #[default]
    Attention,
    /// It has left, or answers no more.
    Gone,
}

impl DeviceState {
    /// All states with their words.
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Usable, "usable"),
        (Self::Attention, "attention"),
        (Self::Gone, "gone"),
    ];
}

/// All devices. Those that are gone stay for those who ask where they are, as long as there is
/// room.
#[derive(Debug)]
pub(crate) struct Devices {
    devices_max: usize,
    devices: Mutex<BTreeMap<String, Device>>,
}

impl Devices {
    /// A table with room for so many.
    pub(crate) fn new(devices_max: usize) -> Self {
        Self {
            devices_max,
            devices: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a device, making it when it is new; false when there is no room for a new one.
    pub(crate) fn update(&self, key: &str, change: impl FnOnce(&mut Device)) -> bool {
        let mut devices = self.lock();
        if !devices.contains_key(key) && devices.len() >= self.devices_max {
            let gone = devices
                .values()
                .filter(|device| device.state == DeviceState::Gone)
                .min_by(|a, b| a.last_seen.cmp(&b.last_seen))
                .map(|device| device.key.clone());
            let Some(gone) = gone else { return false };
            devices.remove(&gone);
        }
        let now = clock::rfc3339(clock::now());
        let device = devices.entry(key.to_owned()).or_insert_with(|| Device {
            key: key.to_owned(),
            first_seen: now.clone(),
            ..Device::default()
        });
        change(device);
        if device.state != DeviceState::Gone {
            device.last_seen = now;
        }
        true
    }

    /// Notes that a device that is here was found this way too.
    pub(crate) fn mark(&self, key: &str, way: Way) {
        let mut devices = self.lock();
        let here = devices.get_mut(key);
        if let Some(device) = here.filter(|device| device.state != DeviceState::Gone) {
            device.found_by(way);
        }
    }

    /// Removes the device that was seen first of those that never described themselves.
    pub(crate) fn remove_stranger(&self) -> Option<String> {
        let mut devices = self.lock();
        let strangers = devices.values().filter(|device| {
            device.state == DeviceState::Attention
                && device.manufacturer.is_none()
                && device.services.is_empty()
        });
        let first = strangers.min_by(|a, b| a.first_seen.cmp(&b.first_seen));
        let key = first.map(|device| device.key.clone())?;
        devices.remove(&key);
        Some(key)
    }

    /// One device.
    pub(crate) fn get(&self, key: &str) -> Option<Device> {
        self.lock().get(key).cloned()
    }

    /// All of them, by key.
    pub(crate) fn all(&self) -> Vec<Device> {
        self.lock().values().cloned().collect()
    }

    /// How many there are in each state.
    pub(crate) fn counts(&self) -> [(&'static str, i64); 3] {
        let devices = self.lock();
        DeviceState::ALL.map(|(state, word)| {
            let count = devices.values().filter(|device| device.state == state);
            (word, i64::try_from(count.count()).unwrap_or(i64::MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_forgets_only_those_that_are_gone() {
        let devices = Devices::new(2);
        let usable = |device: &mut Device| device.state = DeviceState::Usable;
        assert!(devices.update("urn:a", usable));
        assert!(devices.update("urn:b", usable));
        assert!(!devices.update("urn:c", usable));
        assert!(devices.update("urn:a", |device| device.state = DeviceState::Gone));
        assert!(devices.update("urn:c", usable));
        assert!(devices.get("urn:a").is_none());
        assert_eq!(devices.remove_stranger(), None);
        devices.update("urn:b", |device| device.state = DeviceState::Gone);
        for stranger in ["urn:d", "urn:e"] {
            assert!(devices.update(stranger, |_| {}) || stranger == "urn:e");
        }
        assert_eq!(devices.remove_stranger().as_deref(), Some("urn:d"));
        assert!(devices.update("urn:b", usable));
        assert_eq!(
            devices.counts(),
            [("usable", 2), ("attention", 0), ("gone", 0)]
        );
    }
}
