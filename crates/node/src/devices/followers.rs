//! The followed devices, each with a task of its own, and the departing ones.
//!
//! Nothing here waits for a device. A device departs in the background: its task stores all acknowledged
//! notifications, then the device is unregistered. If its endpoint address is found again meanwhile, the
//! next task starts after that.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_device::client::Found;
use chappe_identity::Room;
use chappe_transport::Hop;
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinHandle, JoinSet};

use super::task::DeviceCommand;
use super::{Device, DeviceState, device_key, follow, key, task as device_task};
use crate::shared::App;

/// Time for which the task of a device that is gone may wait for room on a full disk.
const DRAIN: Duration = Duration::from_secs(2);
/// Queued commands of a device's task.
const COMMANDS_MAX: usize = 16;

/// A followed device.
struct Followed {
    commands: mpsc::Sender<DeviceCommand>,
    /// Dropped when the device has left, so that its task waits for no answer.
    left: watch::Sender<bool>,
    /// Once set, the task does not wait for a full disk: unstored elements are counted as lost.
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Followed {
    /// Lets the task store all acknowledged notifications; it waits only briefly for a full disk.
    async fn end(self) {
        let Self {
            commands,
            left,
            is_cut,
            mut task,
        } = self;
        drop((commands, left));
        if tokio::time::timeout(DRAIN, &mut task).await.is_err() {
            is_cut.store(true, Ordering::Relaxed);
            // The task waits only for the disk now. A failed task has ended as well.
            let _ = task.await;
        }
    }
}

/// A departing device.
struct Leaving {
    departure: task::Id,
    /// The device if it was found again meanwhile.
    again: Option<Found>,
}

/// The reason why a device is no longer followed.
enum Departure {
    /// It is gone, for this reason, and stays in the table.
    Gone(String),
    /// Another device replaced it in the table.
    Displaced,
}

/// Whether there is room for a device in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    /// It replaces another device, which is evicted.
    OfAnother,
    None,
}

/// All followed and departing devices, by endpoint address.
pub(super) struct Followers {
    app: App,
    client: Arc<DeviceClient>,
    followed: HashMap<String, Followed>,
    /// At most as many as the table holds; with more, no new device is followed.
    leaving: HashMap<String, Leaving>,
    /// Each returns whether it made room.
    departures: JoinSet<bool>,
    /// Whether known devices were refused for lack of room.
    is_crowded: bool,
}

impl Followers {
    pub(super) fn new(app: App, client: Arc<DeviceClient>) -> Self {
        Self {
            app,
            client,
            followed: HashMap::new(),
            leaving: HashMap::new(),
            departures: JoinSet::new(),
            is_crowded: false,
        }
    }

    /// Handles a device that was found or has changed.
    pub(super) fn found(&mut self, found: Found) {
        match self.followed.get(&found.endpoint) {
            // The task reads its commands before the next attempt; a full queue causes one anyway.
            Some(one) if !one.task.is_finished() => {
                drop(
                    one.commands
                        .try_send(DeviceCommand::Redescribe(Box::new(found))),
                );
            }
            _ => self.arrived(found),
        }
    }

    /// Handles a Hello: the device may have restarted.
    pub(super) fn hello(&mut self, found: Found) {
        match self.followed.get(&found.endpoint) {
            // A full queue holds a command with the same effect.
            Some(one) => drop(one.commands.try_send(DeviceCommand::VerifySubscriptions)),
            None => self.arrived(found),
        }
    }

    /// Handles a device that is gone.
    pub(super) fn gone(&mut self, endpoint: &str, reason: String) {
        if let Some(leaving) = self.leaving.get_mut(endpoint) {
            leaving.again = None;
            return;
        }
        let shown = self.app.devices.get(&device_key(endpoint));
        if let Some(device) = shown.filter(|device| device.state != DeviceState::Gone) {
            self.depart(device, Departure::Gone(reason));
        }
    }

    /// Waits until a device has departed, then follows devices that waited for that. It may be dropped.
    pub(super) async fn departed(&mut self) {
        let (id, is_place_free) = match self.departures.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok(departed)) => departed,
            // A failed departure has ended as well.
            Some(Err(error)) => (error.id(), true),
        };
        let was_full = self.are_too_many_leaving();
        let mut leaving = self.leaving.iter();
        let endpoint = leaving.find(|(_, one)| one.departure == id);
        let Some(endpoint) = endpoint.map(|(endpoint, _)| endpoint.clone()) else {
            return;
        };
        if let Some(found) = self.leaving.remove(&endpoint).and_then(|one| one.again) {
            self.arrived(found);
        }
        // The room of a replaced device is already in use.
        if (is_place_free || was_full) && std::mem::take(&mut self.is_crowded) {
            self.follow_refused();
        }
    }

    /// Ends all tasks. They wait for the disk, but for no device.
    pub(super) async fn end(mut self) {
        let (rest, tasks): (Vec<_>, Vec<_>) = self
            .followed
            .into_values()
            .map(|one| ((one.commands, one.left), one.task))
            .unzip();
        drop(rest);
        for task in tasks {
            // A failed task has ended as well.
            let _ = task.await;
        }
        while self.departures.join_next().await.is_some() {}
    }

    /// Follows a new device, if there is room for it.
    fn arrived(&mut self, found: Found) {
        if let Some(leaving) = self.leaving.get_mut(&found.endpoint) {
            leaving.again = Some(found);
            return;
        }
        if let Some(detail) = key::refusal(&found.endpoint) {
            let hint =
                Some("set the device's endpoint address to a urn:uuid:… of its own".to_owned());
            let (reason, from) = ("endpoint refused", found.from.ip());
            let drops = &self.app.observability.drops;
            return drops.record(Hop::Discovery, reason, from, detail, hint);
        }
        let key = device_key(&found.endpoint);
        let place = self.make_room(&key, &found);
        self.is_crowded |= place != Place::Free;
        if place == Place::None {
            return;
        }
        // Added before its task runs, so that the next arrival sees the whole table.
        if !device_task::enter(&self.app, &key, &found) {
            self.is_crowded = true;
            return;
        }
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (left, has_left) = watch::channel(false);
        let is_cut = Arc::<AtomicBool>::default();
        let endpoint = found.endpoint.clone();
        let (app, client) = (self.app.clone(), self.client.clone());
        let follow = follow::follow(app, client, found, receiver, has_left, is_cut.clone());
        let one = Followed {
            commands,
            left,
            is_cut,
            task: tokio::spawn(follow),
        };
        self.followed.insert(endpoint, one);
    }

    /// Follows devices that were refused earlier, as far as there is room now, because most devices send
    /// Hello only at their start.
    fn follow_refused(&mut self) {
        for found in self.client.known() {
            let endpoint = &found.endpoint;
            let is_known =
                self.followed.contains_key(endpoint) || self.leaving.contains_key(endpoint);
            if is_known || crate::kad::claims_entrance(&found) {
                continue;
            }
            match self.app.devices.room(&device_key(endpoint), found.host()) {
                Room::Free => self.arrived(found),
                _ => self.is_crowded = true,
            }
        }
    }

    /// Makes room for a device in the table. In a full table a device of the address with most devices is
    /// evicted, so that one host cannot keep out the devices of others, whether its own devices answer or
    /// not.
    fn make_room(&mut self, key: &str, found: &Found) -> Place {
        let discovery = &self.app.config.discovery;
        let (most, of_address) = (discovery.max_devices, discovery.max_devices_per_address);
        let all = ("too many devices", "discovery.max_devices", most);
        let of_one = (
            "too many devices of one address",
            "discovery.max_devices_per_address",
            of_address,
        );
        let leaving = (
            "too many devices are leaving",
            "discovery.max_devices",
            most,
        );
        let is_full = self.are_too_many_leaving();
        let (victim, (reason, limit, count)) = match self.app.devices.room(key, found.host()) {
            _ if is_full => (None, leaving),
            Room::Free => return Place::Free,
            Room::Replacing(victim) => (Some(victim), all),
            Room::TableFull => (None, all),
            Room::HostFull => (None, of_one),
        };
        let dropped = victim.as_deref().unwrap_or(key);
        let detail = format!("{dropped}: there are already {count}");
        let hint = Some(format!("{limit} sets the limit"));
        // One entry for all of them, so that a flood does not displace other entries.
        let drops = &self.app.observability.drops;
        drops.record(Hop::Discovery, reason, "", detail, hint);
        let Some(victim) = victim else {
            return Place::None;
        };
        if let Some(device) = self.app.devices.remove(&victim) {
            self.depart(device, Departure::Displaced);
        }
        Place::OfAnother
    }

    fn are_too_many_leaving(&self) -> bool {
        self.leaving.len() >= self.app.config.discovery.max_devices as usize
    }

    /// Stops following a device. A departing device continues to depart.
    fn depart(&mut self, device: Device, departure: Departure) {
        let endpoint = device.endpoint.clone();
        if self.leaving.contains_key(&endpoint) {
            return;
        }
        let followed = self.followed.remove(&endpoint);
        let app = self.app.clone();
        let departure = self.departures.spawn(async move {
            if let Some(one) = followed {
                one.end().await;
            }
            match departure {
                Departure::Gone(reason) => {
                    device_task::leave(&app, device, &reason).await;
                    true
                }
                Departure::Displaced => {
                    device_task::unregister(&app, &device).await;
                    false
                }
            }
        });
        let again = None;
        let departure = departure.id();
        self.leaving.insert(endpoint, Leaving { departure, again });
    }
}
