//! Devices that the peers of wrappers announce, in the table of devices.
//!
//! Nothing is asked of such a device: its wrapper says what it is, and whether it is there. Its key begins with that of
//! the wrapper, which no endpoint address of a found device can: whatever a peer announces, it is a device of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::device::{Device, DeviceState};
use super::key::{self, device_key};
use super::table::Devices;
use crate::clock;

/// How long a device stays that is not announced again after its wrapper was opened; reason: like the lease of a found
/// device.
const LEASE: Duration = Duration::from_secs(crate::registrar::FOUND_LEASE_S as u64);

/// The announced devices.
#[derive(Default)]
pub(super) struct Announced(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// By key.
    rows: BTreeMap<String, Row>,
    /// The keys of the devices of streams.
    of_stream: HashMap<String, String>,
    /// The number of devices of each wrapper.
    counts: HashMap<String, usize>,
}

struct Row {
    device: Device,
    /// Since when it waits to be announced again.
    unconfirmed: Option<Instant>,
}

impl Row {
    fn is_of(&self, wrapper: &str) -> bool {
        self.device.wrapper.as_deref() == Some(wrapper)
    }
}

impl Table {
    fn of(&self, wrapper: &str) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(move |row| row.is_of(wrapper))
    }

    fn set_streams(&mut self, key: &str, streams: Vec<String>) -> Vec<String> {
        let Some(row) = self.rows.get_mut(key) else {
            return Vec::new();
        };
        let former = std::mem::replace(&mut row.device.streams, streams);
        for stream in &former {
            // Another device may have it by now.
            if self.of_stream.get(stream).is_some_and(|of| of == key) {
                self.of_stream.remove(stream);
            }
        }
        for stream in &row.device.streams {
            self.of_stream.insert(stream.clone(), key.to_owned());
        }
        former
    }

    fn remove(&mut self, key: &str) -> Option<Device> {
        let streams = self.set_streams(key, Vec::new());
        let mut device = self.rows.remove(key)?.device;
        device.streams = streams;
        let wrapper = device.wrapper.as_deref().unwrap_or_default();
        if let Some(count) = self.counts.get_mut(wrapper) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(wrapper);
            }
        }
        Some(device)
    }

    /// The key of the device that gives way to a new one: one without streams, those that are away and the oldest first.
    /// One that is usable gives way only to one that has streams.
    fn displaced_by(&self, wrapper: &str, state: DeviceState, has_streams: bool) -> Option<String> {
        if state != DeviceState::Usable && !has_streams {
            return None;
        }
        let rows = self.of(wrapper).map(|row| &row.device);
        let places = rows
            .filter(|device| device.streams.is_empty())
            .map(|device| (device.state == DeviceState::Usable, device))
            .filter(|(is_usable, _)| has_streams || !is_usable);
        let oldest = places.min_by(|a, b| (a.0, &a.1.last_seen).cmp(&(b.0, &b.1.last_seen)));
        oldest.map(|(_, device)| device.key.clone())
    }
}

/// There is no room for one more device of a wrapper.
pub(crate) struct NoRoom;

/// The changes that the announcement of a device made.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    /// The device that had to give way.
    pub(crate) displaced: Option<Device>,
    /// The streams that the device had before.
    pub(crate) former_streams: Vec<String>,
}

/// The endpoint address of a device that is announced to the wrapper with this key, and its key; `None`: it would be too
/// long for the registry.
pub(crate) fn announced_key(wrapper_key: &str, id: &str) -> Option<(String, String)> {
    let endpoint = format!("{wrapper_key}:{id}");
    let key = device_key(&endpoint);
    key::fits(&key).then_some((endpoint, key))
}

impl Announced {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &str) -> Option<Device> {
        self.lock().rows.get(key).map(|row| row.device.clone())
    }

    pub(super) fn all(&self) -> Vec<Device> {
        self.lock()
            .rows
            .values()
            .map(|row| row.device.clone())
            .collect()
    }
}

impl Devices {
    /// Adds or changes a device of a wrapper with its streams. The wrapper has at most `most` devices, beyond which only
    /// those with streams find a place: their number is that of the wrapper's streams at most.
    ///
    /// # Errors
    /// There are as many, and none of them gives way.
    pub(crate) fn announce(&self, mut device: Device, most: usize) -> Result<Announcement, NoRoom> {
        let mut table = self.announced.lock();
        let wrapper = device.wrapper.clone().unwrap_or_default();
        let streams = std::mem::take(&mut device.streams);
        let mut displaced = None;
        match table.rows.get(&device.key) {
            Some(known) => {
                device.first_seen.clone_from(&known.device.first_seen);
                device.streams.clone_from(&known.device.streams);
            }
            None => {
                if table
                    .counts
                    .get(&wrapper)
                    .is_some_and(|count| *count >= most)
                {
                    let has_streams = !streams.is_empty();
                    match table.displaced_by(&wrapper, device.state, has_streams) {
                        Some(oldest) => displaced = table.remove(&oldest),
                        None if has_streams => {}
                        None => return Err(NoRoom),
                    }
                }
                *table.counts.entry(wrapper).or_default() += 1;
                device.first_seen = clock::now().to_string();
            }
        }
        device.last_seen = clock::now().to_string();
        let key = device.key.clone();
        let row = Row {
            unconfirmed: None,
            device,
        };
        table.rows.insert(key.clone(), row);
        let former_streams = table.set_streams(&key, streams);
        Ok(Announcement {
            displaced,
            former_streams,
        })
    }

    /// The key of the announced device that has a stream.
    pub(crate) fn announced_with(&self, stream: &str) -> Option<String> {
        self.announced.lock().of_stream.get(stream).cloned()
    }

    /// Removes an announced device.
    pub(crate) fn retract(&self, key: &str) -> Option<Device> {
        self.announced.lock().remove(key)
    }

    /// The connection to the peer of a wrapper has ended or begins: whether its devices are there is not known.
    pub(crate) fn unconfirm(&self, wrapper: &str) {
        let now = clock::now().to_string();
        let mut table = self.announced.lock();
        for row in table.rows.values_mut().filter(|row| row.is_of(wrapper)) {
            row.unconfirmed = Some(Instant::now());
            if row.device.state == DeviceState::Usable {
                let reason =
                    format!("it was not announced since the wrapper {wrapper} lost its peer");
                row.device.set_state(DeviceState::Offline, reason, None);
                row.device.state_since.clone_from(&now);
            }
        }
    }

    /// The keys of the devices of a wrapper that were not announced again for long.
    pub(crate) fn expired(&self, wrapper: &str) -> Vec<String> {
        let table = self.announced.lock();
        let is_old = |since: Instant| since.elapsed() >= LEASE;
        let old = table
            .of(wrapper)
            .filter(|row| row.unconfirmed.is_some_and(is_old));
        old.map(|row| row.device.key.clone()).collect()
    }

    /// Removes the devices of a wrapper that has ended; returns their keys.
    pub(crate) fn retract_all(&self, wrapper: &str) -> Vec<String> {
        let mut table = self.announced.lock();
        let keys: Vec<String> = table
            .of(wrapper)
            .map(|row| row.device.key.clone())
            .collect();
        for key in &keys {
            table.remove(key);
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn device(wrapper: &str, id: &str, state: DeviceState) -> Device {
        let (endpoint, key) = announced_key(&crate::wrappers::wrapper_key(wrapper), id).unwrap();
        let mut device = Device {
            endpoint,
            key,
            wrapper: Some(wrapper.to_owned()),
            ..Device::default()
        };
        device.set_state(state, None, None);
        device
    }

    #[test]
    fn each_wrapper_has_its_share_and_devices_that_are_away_give_way() {
        let devices = Devices::open(&Config::default(), None).unwrap();
        let announce = |wrapper: &str, id: &str, state| {
            let outcome = devices.announce(device(wrapper, id, state), 2);
            outcome
                .map(|it| it.displaced.is_some())
                .map_err(|NoRoom| ())
        };
        use DeviceState::{Offline, Usable};
        assert_eq!(announce("a", "1", Usable), Ok(false));
        assert_eq!(announce("a", "2", Usable), Ok(false));
        assert_eq!(announce("a", "3", Usable), Err(()));
        assert_eq!(
            announce("b", "1", Usable),
            Ok(false),
            "another wrapper has room"
        );
        assert_eq!(announce("a", "2", Offline), Ok(false), "it is known");
        assert_eq!(announce("a", "3", Usable), Ok(true));
        assert_eq!(
            announce("a", "4", Offline),
            Err(()),
            "one that is away displaces none"
        );
        assert_eq!(devices.all().len(), 3);
        devices.unconfirm("a");
        let usable = devices
            .all()
            .into_iter()
            .filter(|device| device.state == Usable);
        assert_eq!(usable.count(), 1);
        assert!(devices.expired("a").is_empty());
        assert_eq!(devices.retract_all("a").len(), 2);
        assert_eq!(devices.all().len(), 1);
    }

    #[test]
    fn a_device_with_streams_keeps_and_takes_places() {
        use DeviceState::{Offline, Usable};
        let devices = Devices::open(&Config::default(), None).unwrap();
        let announce = |id: &str, state, streams: &[&str]| {
            let mut device = device("a", id, state);
            device.streams = streams.iter().map(|&name| name.to_owned()).collect();
            let made = devices.announce(device, 2).map_err(|NoRoom| ())?;
            Ok::<_, ()>(made.displaced.map(|device| device.endpoint))
        };
        let endpoint = |id: &str| Some(format!("{}:{id}", crate::wrappers::wrapper_key("a")));
        assert_eq!(announce("real", Offline, &["s"]), Ok(None));
        assert_eq!(announce("forged", Usable, &[]), Ok(None));
        assert_eq!(announce("other", Usable, &[]), Err(()));
        assert_eq!(
            announce("second", Usable, &["t"]),
            Ok(endpoint("forged")),
            "it has a stream"
        );
        // The limit of the file may have been lowered.
        assert_eq!(announce("third", Usable, &["u"]), Ok(None));
        assert_eq!(devices.all().len(), 3);
        assert!(devices.announced_with("s").is_some());
        assert_eq!(announce("real", Usable, &[]), Ok(None));
        assert_eq!(devices.announced_with("s"), None);
    }

    #[test]
    fn no_announced_device_has_the_key_of_a_found_one() {
        let (endpoint, _) = announced_key("urn:chappe:wrapper:home", "urn:uuid:1").unwrap();
        assert!(
            key::refusal(&endpoint).is_some(),
            "no device may be found with it"
        );
        let keys = ["a", "a b", "a%20b", "a:b"].map(|id| announced_key("urn:chappe:wrapper:h", id));
        let keys: std::collections::BTreeSet<_> = keys.into_iter().flatten().collect();
        assert_eq!(keys.len(), 4);
        assert_eq!(
            announced_key("urn:chappe:wrapper:h", &"é".repeat(256)),
            None
        );
    }
}
