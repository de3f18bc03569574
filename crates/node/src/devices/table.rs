//! The table of devices: one row for each device with everything that the node shares about it.
//!
//! A row is listed while its device is present, and as long as there is room after it has left. The row
//! of a device that another one has displaced stays, unlisted, until its task has stored its elements.
//! State that only a device's task uses, such as its attachment and its streams, belongs to that task
//! (`follow`). [`DeviceQuotas`] is a table of its own, since it remembers devices whose rows are gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use chappe_device::DeviceClient;
use chappe_device::client::{Found, ProxyUse, TreeCounts, Way};
use chappe_identity::{Host, Quota, Room, Shares};
use tokio::task::{self, JoinHandle};

use super::announced::Announced;
use super::device::{Device, DeviceState};
use super::exclusion::Exclusions;
use super::follower::{DeviceCommand, Follower};
use super::places::Places;
use super::quota::DeviceQuotas;
use super::rule::Rule;
use crate::clock;
use crate::completeness::Ledger;
use crate::config::Config;

/// All devices. Devices that are gone stay listed as long as there is room.
pub(crate) struct Devices {
    devices_max: usize,
    table: Mutex<Table>,
    /// Those that the peers of wrappers announce.
    pub(super) announced: Announced,
    /// Limits of what devices store.
    pub(super) quotas: DeviceQuotas,
    /// Devices that are left out.
    pub(crate) exclusions: Exclusions,
    /// Which devices fill which places, where an operator or the rule has decided it.
    pub(crate) places: Places,
    /// The rule by which newcomers replace devices, if there is one.
    pub(super) rule: Option<Rule>,
    /// The client that finds devices, once it is started.
    client: OnceLock<Weak<DeviceClient>>,
    /// Where it is recorded when a device is there.
    ledger: Option<Arc<Ledger>>,
}

#[derive(Debug)]
struct Table {
    /// By key.
    rows: BTreeMap<String, Row>,
    /// Counts the listed devices that are present.
    shares: Shares<String>,
}

#[derive(Debug)]
struct Row {
    device: Device,
    is_listed: bool,
    /// Its task, until it departs.
    follower: Option<Follower>,
    departure: Option<Departing>,
}

/// The departure of a device.
#[derive(Debug)]
struct Departing {
    task: task::Id,
    /// The device if it was found again meanwhile.
    again: Option<Found>,
}

impl Table {
    fn listed(&self) -> impl Iterator<Item = &Device> {
        let listed = self.rows.values().filter(|row| row.is_listed);
        listed.map(|row| &row.device)
    }

    fn get(&self, key: &str) -> Option<&Device> {
        let row = self.rows.get(key).filter(|row| row.is_listed);
        row.map(|row| &row.device)
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Device> {
        let row = self.rows.get_mut(key).filter(|row| row.is_listed);
        row.map(|row| &mut row.device)
    }

    fn change(&mut self, key: &str, change: impl FnOnce(&mut Device)) {
        let Some(device) = self.get_mut(key) else {
            return;
        };
        let was = device.state;
        change(device);
        if device.state != was || device.state_since.is_empty() {
            device.state_since = clock::now().to_string();
        }
        if device.is_present() {
            device.last_seen = clock::now().to_string();
        }
        match (device.host, device.is_described) {
            (Some(host), is_described) => self.shares.set(&key.to_owned(), host, is_described),
            (None, _) => self.shares.forget(&key.to_owned()),
        }
    }

    /// Makes its room available to others.
    fn unlist(&mut self, key: &str) {
        self.shares.forget(&key.to_owned());
        match self.rows.get_mut(key) {
            Some(row) if row.departure.is_some() => row.is_listed = false,
            _ => drop(self.rows.remove(key)),
        }
    }
}

impl Devices {
    /// An empty table, with the limits of the configuration and of a log of `log_bytes`.
    ///
    /// # Errors
    /// The exclusions, places or profiles of an earlier run cannot be read.
    pub(crate) fn open(config: &Config, log_bytes: Option<u64>) -> Result<Self, String> {
        let discovery = &config.discovery;
        let of_host = discovery.max_devices_per_address as usize;
        let quota = Quota {
            total: discovery.max_devices as usize,
            of_host,
            strangers_of_host: of_host,
        };
        Ok(Self {
            devices_max: quota.total,
            table: Mutex::new(Table {
                rows: BTreeMap::new(),
                shares: Shares::new(quota),
            }),
            announced: Announced::default(),
            quotas: DeviceQuotas::new(config, log_bytes),
            exclusions: Exclusions::open(config)?,
            places: Places::open(config)?,
            rule: Rule::open(config)?,
            client: OnceLock::new(),
            ledger: None,
        })
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
        let has_left = was != device.state && device.is_absent() && !device.streams.is_empty();
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
        match table.get(key) {
            Some(device) if device.is_present() => Room::Free,
            _ => table.shares.room(host),
        }
    }

    /// Changes a device, adding it if it is new; false when there is no room for it.
    pub(super) fn enter(&self, key: &str, change: impl FnOnce(&mut Device)) -> bool {
        let mut table = self.lock();
        if !table.rows.contains_key(key) {
            if table.listed().count() >= self.devices_max {
                let gone = table.listed().filter(|device| !device.is_present());
                let oldest = gone.min_by(|a, b| a.last_seen.cmp(&b.last_seen));
                let Some(oldest) = oldest.map(|device| device.key.clone()) else {
                    return false;
                };
                table.unlist(&oldest);
            }
            let row = Row {
                device: Device::new(key),
                is_listed: true,
                follower: None,
                departure: None,
            };
            table.rows.insert(key.to_owned(), row);
        }
        self.change(&mut table, key, change);
        true
    }

    /// Changes a listed device.
    pub(super) fn update(&self, key: &str, change: impl FnOnce(&mut Device)) {
        self.change(&mut self.lock(), key, change);
    }

    fn change(&self, table: &mut Table, key: &str, change: impl FnOnce(&mut Device)) {
        let before = table.get(key);
        let before = before.map(|device| (device.state, device.streams.len()));
        table.change(key, change);
        if let Some(device) = table.get(key) {
            let (was, streams) = before.unwrap_or_default();
            self.record(was, streams, device);
        }
    }

    /// Sets the streams of a listed device.
    pub(super) fn set_streams(&self, key: &str, streams: Vec<String>) {
        self.update(key, |device| device.streams = streams);
        // A usable device may have taken over another one's stream.
        if let Some(ledger) = &self.ledger
            && let Some(device) = self.get(key)
            && device.state == DeviceState::Usable
        {
            ledger.claimed(key, device.streams.iter().map(String::as_str));
        }
    }

    /// Whether a device has a scope that fits.
    pub(crate) fn has_scope(&self, key: &str, fits: impl Fn(&str) -> bool) -> bool {
        let device = self.get(key);
        device.is_some_and(|device| device.scopes.iter().any(|scope| fits(scope)))
    }

    /// Records another way in which a present device was found.
    pub(crate) fn mark(&self, key: &str, way: Way) {
        if let Some(device) = self.lock().get_mut(key)
            && device.is_present()
        {
            device.found_by(way);
        }
    }

    /// Sets the task that follows a device.
    pub(super) fn follow(&self, key: &str, follower: Follower) {
        if let Some(row) = self.lock().rows.get_mut(key) {
            row.follower = Some(follower);
        }
    }

    /// Gives a command to the task of a device; false if no task runs.
    pub(super) fn command(&self, key: &str, command: DeviceCommand) -> bool {
        let table = self.lock();
        let follower = table.rows.get(key).and_then(|row| row.follower.as_ref());
        follower.is_some_and(|follower| follower.command(command))
    }

    /// Whether a device has a task or departs.
    pub(super) fn is_followed(&self, key: &str) -> bool {
        let table = self.lock();
        let row = table.rows.get(key);
        row.is_some_and(|row| row.follower.is_some() || row.departure.is_some())
    }

    /// Sets whether a departing device is followed again; false if it is not departing.
    pub(super) fn set_again(&self, key: &str, again: Option<&Found>) -> bool {
        let mut table = self.lock();
        let row = table.rows.get_mut(key);
        let departure = row.and_then(|row| row.departure.as_mut());
        departure.map(|it| it.again = again.cloned()).is_some()
    }

    /// Lets a device depart by the task that `spawn` starts, unless it is departing. The row of a
    /// displaced device is no longer listed.
    pub(super) fn depart(
        &self,
        key: &str,
        is_displaced: bool,
        spawn: impl FnOnce(Device, Option<Follower>) -> task::Id,
    ) {
        let mut table = self.lock();
        let Some(row) = table.rows.get_mut(key) else {
            return;
        };
        let (device, follower) = (&row.device, &mut row.follower);
        row.departure.get_or_insert_with(|| Departing {
            task: spawn(device.clone(), follower.take()),
            again: None,
        });
        if is_displaced {
            if let Some(ledger) = &self.ledger
                && row.device.state == DeviceState::Usable
            {
                ledger.changed(key, false, "another device took its place in the table");
            }
            table.unlist(key);
        }
    }

    /// Ends a departure; returns the device if it was found again meanwhile.
    pub(super) fn departed(&self, task: task::Id) -> Option<Found> {
        let mut table = self.lock();
        let is_of_task = |row: &&mut Row| row.departure.as_ref().is_some_and(|it| it.task == task);
        let row = table.rows.values_mut().find(is_of_task)?;
        let again = row.departure.take()?.again;
        if !row.is_listed {
            let key = row.device.key.clone();
            table.rows.remove(&key);
        }
        again
    }

    /// Tells all tasks to end.
    pub(super) fn detach_all(&self) -> Vec<JoinHandle<()>> {
        let mut table = self.lock();
        let followers = table
            .rows
            .values_mut()
            .filter_map(|row| row.follower.take());
        followers.map(Follower::detach).collect()
    }

    /// One device.
    pub(crate) fn get(&self, key: &str) -> Option<Device> {
        let found = self.lock().get(key).cloned();
        found.or_else(|| self.announced.get(key))
    }

    /// Whether a device is here.
    pub(crate) fn is_present(&self, key: &str) -> bool {
        self.get(key).is_some_and(|device| device.is_present())
    }

    /// Whether nothing runs for a device: it is unknown, has left or is left out.
    pub(super) fn is_absent(&self, key: &str) -> bool {
        self.lock().get(key).is_none_or(Device::is_absent)
    }

    /// All devices, by key.
    pub(crate) fn all(&self) -> Vec<Device> {
        let mut all: Vec<Device> = self.lock().listed().cloned().collect();
        all.extend(self.announced.all());
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    /// Sets the client that finds devices.
    pub(super) fn set_client(&self, client: &Arc<DeviceClient>) {
        // Discovery starts once per run of the node.
        let _ = self.client.set(Arc::downgrade(client));
    }

    /// The discovery proxies that the client asks, once it is started.
    pub(crate) fn discovery_proxies(&self) -> Vec<ProxyUse> {
        let client = self.client.get().and_then(std::sync::Weak::upgrade);
        client.map(|client| client.proxies()).unwrap_or_default()
    }

    /// Counts of the notification trees, once the client is started.
    pub(crate) fn tree_counts(&self) -> Option<TreeCounts> {
        let client = self.client.get()?.upgrade()?;
        Some(client.tree_counts())
    }

    /// The number of devices in each state.
    pub(crate) fn counts(&self) -> [(&'static str, i64); 5] {
        let all = self.all();
        DeviceState::ALL.map(|(state, word)| {
            let count = all.iter().filter(|device| device.state == state);
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
        Devices::open(&config, None).unwrap()
    }

    fn host(number: u8) -> Host {
        Host::from_address([192, 0, 2, number].into())
    }

    fn come(devices: &Devices, key: &str, of: Host, is_described: bool) -> Room<String> {
        let room = devices.room(key, of);
        match &room {
            Room::Free => {}
            Room::Replacing(victim) => devices.lock().unlist(victim),
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
        devices.update("urn:a", |device| {
            device.set_state(DeviceState::Gone, None, None)
        });
        assert_eq!(come(&devices, "urn:c", host(3), true), Room::Free);
        assert!(devices.get("urn:a").is_none());
        assert_eq!(
            come(&devices, "urn:b", host(2), true),
            Room::Free,
            "it is here"
        );
        assert_eq!(
            devices.counts(),
            [
                ("usable", 0),
                ("attention", 2),
                ("offline", 0),
                ("excluded", 0),
                ("gone", 0)
            ]
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
