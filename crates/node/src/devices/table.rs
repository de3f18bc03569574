//! The table of known devices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use chappe_device::DeviceClient;
use chappe_device::client::Way;
use chappe_identity::{Host, Quota, Room, Shares};
use serde::Serialize;
use utoipa::ToSchema;

use super::quota::DeviceQuotas;
use crate::clock;
use crate::completeness::Ledger;
use crate::config::Config;

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Device {
    /// Its key in the registry, a URI derived from its endpoint address; the source of its streams.
    pub(crate) key: String,
    /// Its endpoint address, a URI.
    pub(crate) endpoint: String,
    /// Its friendly name.
    pub(crate) name: String,
    /// Its state.
    pub(crate) state: DeviceState,
    /// Why it is in this state, when it is not usable.
    pub(crate) reason: Option<String>,
    /// How to repair that, when known.
    pub(crate) hint: Option<String>,
    /// Its dialect of DPWS.
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
    /// The version of its metadata.
    pub(crate) metadata_version: u64,
    /// RFC 3339.
    pub(crate) first_seen: String,
    /// RFC 3339.
    pub(crate) last_seen: String,
    /// How it was found: `discovery` (WS-Discovery, by multicast), `kad` (the distributed hash
    /// table), or both.
    pub(crate) found_by: Vec<String>,
    /// Its hosted services.
    pub(crate) services: Vec<Service>,
    /// Names of its streams.
    pub(crate) streams: Vec<String>,
    /// The host to whose quota in the table it counts.
    #[serde(skip)]
    pub(super) host: Option<Host>,
    /// Whether it has described itself; until then it may be forged.
    #[serde(skip)]
    pub(super) is_described: bool,
}

impl Device {
    /// Records how it was found.
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

/// The state of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceState {
    /// It is described, its offers are bound, and all its events are subscribed.
    Usable,
    /// It was found, but cannot be used yet.
    #[default]
    Attention,
    /// It has left, or no longer answers.
    Gone,
}

impl DeviceState {
    /// All states with their names.
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Usable, "usable"),
        (Self::Attention, "attention"),
        (Self::Gone, "gone"),
    ];
}

/// All devices. Devices that are gone stay listed as long as there is room.
pub(crate) struct Devices {
    devices_max: usize,
    table: Mutex<Table>,
    /// Limits of what devices store.
    pub(super) quotas: DeviceQuotas,
    /// The client that finds devices, once it is started.
    pub(crate) client: OnceLock<Weak<DeviceClient>>,
    /// Where it is recorded when a device is there.
    ledger: Option<Arc<Ledger>>,
}

#[derive(Debug)]
struct Table {
    devices: BTreeMap<String, Device>,
    /// Counts the devices that are present.
    shares: Shares<String>,
}

impl Table {
    fn change(&mut self, key: &str, change: impl FnOnce(&mut Device)) {
        let Some(device) = self.devices.get_mut(key) else {
            return;
        };
        change(device);
        if device.state != DeviceState::Gone {
            device.last_seen = clock::rfc3339(clock::now());
        }
        match device.host {
            Some(host) if device.state != DeviceState::Gone => {
                self.shares.set(&device.key, host, device.is_described);
            }
            _ => self.shares.forget(&device.key),
        }
    }
}

impl Devices {
    /// An empty table, with the limits of the configuration and of a log of `log_bytes`.
    pub(crate) fn new(config: &Config, log_bytes: Option<u64>) -> Self {
        let discovery = &config.discovery;
        let of_host = discovery.max_devices_per_address as usize;
        let quota = Quota {
            total: discovery.max_devices as usize,
            of_host,
            strangers_of_host: of_host,
        };
        Self {
            devices_max: quota.total,
            table: Mutex::new(Table {
                devices: BTreeMap::new(),
                shares: Shares::new(quota),
            }),
            quotas: DeviceQuotas::new(config, log_bytes),
            client: OnceLock::new(),
            ledger: None,
        }
    }

    /// Records from now on when devices become usable and when they are no longer.
    pub(crate) fn recorded_in(mut self, ledger: Arc<Ledger>) -> Self {
        self.ledger = Some(ledger);
        self
    }

    /// Records whether a device became usable, or is no longer.
    fn record(&self, was: DeviceState, streams_before: usize, device: &Device) {
        let was_usable = was == DeviceState::Usable;
        let is_usable = device.state == DeviceState::Usable;
        let has_left =
            was != device.state && device.state == DeviceState::Gone && !device.streams.is_empty();
        let Some(ledger) = &self.ledger else { return };
        if is_usable && (!was_usable || device.streams.len() != streams_before) {
            ledger.claimed(&device.key, device.streams.iter().map(String::as_str));
        }
        if was_usable != is_usable || has_left {
            let cause = device.reason.as_deref().unwrap_or("usable");
            ledger.changed(&device.key, is_usable, cause);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for a device of this host; a present device always has it.
    pub(super) fn room(&self, key: &str, host: Host) -> Room<String> {
        let table = self.lock();
        match table.devices.get(key) {
            Some(device) if device.state != DeviceState::Gone => Room::Free,
            _ => table.shares.room(host),
        }
    }

    /// Changes a device, adding it if it is new; false when there is no room for it.
    pub(super) fn enter(&self, key: &str, change: impl FnOnce(&mut Device)) -> bool {
        let mut table = self.lock();
        let devices = &mut table.devices;
        if !devices.contains_key(key) {
            if devices.len() >= self.devices_max {
                let gone = devices
                    .values()
                    .filter(|device| device.state == DeviceState::Gone)
                    .min_by(|a, b| a.last_seen.cmp(&b.last_seen))
                    .map(|device| device.key.clone());
                let Some(gone) = gone else { return false };
                devices.remove(&gone);
            }
            let device = Device {
                key: key.to_owned(),
                first_seen: clock::rfc3339(clock::now()),
                ..Device::default()
            };
            devices.insert(key.to_owned(), device);
        }
        self.change(&mut table, key, change);
        true
    }

    /// Changes a device that is in the table; does not add one that was evicted.
    pub(crate) fn update(&self, key: &str, change: impl FnOnce(&mut Device)) {
        self.change(&mut self.lock(), key, change);
    }

    fn change(&self, table: &mut Table, key: &str, change: impl FnOnce(&mut Device)) {
        let before = table
            .devices
            .get(key)
            .map(|device| (device.state, device.streams.len()));
        table.change(key, change);
        if let Some(device) = table.devices.get(key) {
            let (was, streams) = before.unwrap_or_default();
            self.record(was, streams, device);
        }
    }

    /// Records another way in which a present device was found.
    pub(crate) fn mark(&self, key: &str, way: Way) {
        let mut table = self.lock();
        let here = table.devices.get_mut(key);
        if let Some(device) = here.filter(|device| device.state != DeviceState::Gone) {
            device.found_by(way);
        }
    }

    /// Removes a device.
    pub(super) fn remove(&self, key: &str) -> Option<Device> {
        let mut table = self.lock();
        let (key, device) = table.devices.remove_entry(key)?;
        table.shares.forget(&key);
        if let Some(ledger) = &self.ledger
            && device.state == DeviceState::Usable
        {
            ledger.changed(&key, false, "another device took its place in the table");
        }
        Some(device)
    }

    /// One device.
    pub(crate) fn get(&self, key: &str) -> Option<Device> {
        self.lock().devices.get(key).cloned()
    }

    /// All devices, by key.
    pub(crate) fn all(&self) -> Vec<Device> {
        self.lock().devices.values().cloned().collect()
    }

    /// The number of devices in each state.
    pub(crate) fn counts(&self) -> [(&'static str, i64); 3] {
        let table = self.lock();
        DeviceState::ALL.map(|(state, word)| {
            let count = table
                .devices
                .values()
                .filter(|device| device.state == state);
            (word, i64::try_from(count.count()).unwrap_or(i64::MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(devices_max: u32, of_address: u32) -> Devices {
        let mut config = Config::default();
        config.discovery.max_devices = devices_max;
        config.discovery.max_devices_per_address = of_address;
        Devices::new(&config, None)
    }

    fn host(number: u8) -> Host {
        Host::from_address([192, 0, 2, number].into())
    }

    fn come(devices: &Devices, key: &str, of: Host, is_described: bool) -> Room<String> {
        let room = devices.room(key, of);
        match &room {
            Room::Free => {}
            Room::Replacing(victim) => drop(devices.remove(victim)),
            Room::TableFull | Room::HostFull => return room,
        }
        assert!(devices.enter(key, |device| {
            device.host = Some(of);
            device.is_described = is_described;
        }));
        room
    }

    #[test]
    fn a_full_table_evicts_gone_devices_first() {
        let devices = devices(2, 2);
        assert_eq!(come(&devices, "urn:a", host(1), true), Room::Free);
        assert_eq!(come(&devices, "urn:b", host(2), true), Room::Free);
        assert_eq!(come(&devices, "urn:c", host(3), true), Room::TableFull);
        devices.update("urn:a", |device| device.state = DeviceState::Gone);
        assert_eq!(come(&devices, "urn:c", host(3), true), Room::Free);
        assert!(devices.get("urn:a").is_none());
        assert_eq!(
            come(&devices, "urn:b", host(2), true),
            Room::Free,
            "it is here"
        );
        assert_eq!(
            devices.counts(),
            [("usable", 0), ("attention", 2), ("gone", 0)]
        );
    }

    #[test]
    fn an_address_with_many_devices_does_not_block_others() {
        for is_described in [false, true] {
            let devices = devices(20, 19);
            for number in 0..40 {
                come(
                    &devices,
                    &format!("urn:many:{number}"),
                    host(66),
                    is_described,
                );
            }
            for number in 0..19 {
                let room = come(&devices, &format!("urn:real:{number}"), host(number), true);
                assert!(
                    number == 0 || matches!(room, Room::Replacing(_)),
                    "{number}: {room:?}"
                );
                let more = format!("urn:many:more:{number}");
                let refused = come(&devices, &more, host(66), true);
                let own = matches!(&refused, Room::Replacing(key) if key.starts_with("urn:many"));
                assert!(own || refused != Room::Free, "{refused:?}");
            }
            let all = devices.all();
            let real = all
                .iter()
                .filter(|device| device.key.starts_with("urn:real"));
            assert_eq!(real.count(), 19);
        }
    }
}
