//! Follows devices, each with a task of its own, and lets them depart.
//!
//! Nothing here waits for a device. A device departs in the background: its task stores all acknowledged
//! notifications, then the device is unregistered. If its endpoint address is found again meanwhile, the
//! next task starts after that.

use std::sync::Arc;
use std::time::Duration;

use chappe_device::DeviceClient;
use chappe_device::client::Found;
use chappe_identity::Room;
use chappe_transport::Hop;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::follower::{DeviceCommand, Follower};
use super::{device_key, follow, key, task};
use crate::shared::App;

/// The reason why a device is no longer followed.
enum Departure {
    /// It is gone, for this reason, and stays in the table.
    Gone(String),
    /// Another device replaced it in the table.
    Displaced,
}

/// The least time between two searches for refused devices that there is room for. Reason: each looks at all known devices,
/// and in a flood thousands of devices depart at once.
const REFUSED_PERIOD: Duration = Duration::from_secs(1);

/// When devices that were refused for lack of room are looked at again: once some have departed since.
#[derive(Debug)]
struct Refused {
    /// Whether there are such devices.
    is_any: bool,
    /// Whether a departure has made room since.
    is_room_made: bool,
    next: Instant,
}

impl Refused {
    fn new(now: Instant) -> Self {
        Self {
            is_any: false,
            is_room_made: false,
            next: now,
        }
    }

    fn room_made(&mut self) {
        self.is_room_made |= self.is_any;
    }

    fn due(&self) -> Option<Instant> {
        self.is_room_made.then_some(self.next)
    }

    /// Forgets them, since all are looked at now.
    fn looked_at(&mut self, now: Instant) {
        *self = Self::new(now + REFUSED_PERIOD);
    }
}

/// Starts and ends the tasks that follow devices; [`super::Devices`] holds them.
pub(super) struct Followers {
    app: App,
    client: Arc<DeviceClient>,
    /// Each returns whether it made room.
    departures: JoinSet<bool>,
    refused: Refused,
}

impl Followers {
    pub(super) fn new(app: App, client: Arc<DeviceClient>) -> Self {
        Self {
            app,
            client,
            departures: JoinSet::new(),
            refused: Refused::new(Instant::now()),
        }
    }

    /// Handles a device that was found or has changed.
    pub(super) fn found(&mut self, found: Found) {
        let command = DeviceCommand::Redescribe(Box::new(found.clone()));
        self.command(found, command);
    }

    /// Handles a Hello: the device may have restarted.
    pub(super) fn hello(&mut self, found: Found) {
        self.command(found, DeviceCommand::VerifySubscriptions);
    }

    fn command(&mut self, found: Found, command: DeviceCommand) {
        let key = device_key(&found.endpoint);
        if !self.app.devices.command(&key, command) {
            self.arrived(found);
        }
    }

    /// Handles a device that is gone.
    pub(super) fn gone(&mut self, endpoint: &str, reason: String) {
        let (key, devices) = (device_key(endpoint), &self.app.devices);
        if !devices.set_again(&key, None) && devices.is_present(&key) {
            self.depart(&key, Departure::Gone(reason));
        }
    }

    /// Waits until a device has departed, then follows devices that waited for that. It may be dropped.
    pub(super) async fn departed(&mut self) {
        let was_full = self.are_too_many_leaving();
        let due = self.refused.due();
        let (id, is_place_free) = tokio::select! {
            Some(ended) = self.departures.join_next_with_id() => match ended {
                Ok(departed) => departed,
                // A failed departure has ended as well.
                Err(error) => (error.id(), true),
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                return self.follow_refused();
            }
            else => return std::future::pending().await,
        };
        if let Some(found) = self.app.devices.departed(id) {
            self.arrived(found);
        }
        // The room of a replaced device is already in use.
        if is_place_free || was_full {
            self.refused.room_made();
        }
    }

    /// Ends all tasks. They wait for the disk, but for no device.
    pub(super) async fn end(mut self) {
        for task in self.app.devices.detach_all() {
            // A failed task has ended as well.
            let _ = task.await;
        }
        while self.departures.join_next().await.is_some() {}
    }

    /// Follows a new device, if there is room for it.
    fn arrived(&mut self, found: Found) {
        let (key, devices) = (device_key(&found.endpoint), &self.app.devices);
        if devices.set_again(&key, Some(&found)) {
            return;
        }
        if let Some(detail) = key::refusal(&found.endpoint) {
            let hint =
                Some("set the device's endpoint address to a urn:uuid:… of its own".to_owned());
            let (reason, from) = ("endpoint refused", found.from.ip());
            let drops = &self.app.observability.drops;
            return drops.record(Hop::Discovery, reason, from, detail, hint);
        }
        if !self.make_room(&key, &found) {
            return;
        }
        // Added before its task runs, so that the next arrival sees the whole table.
        let devices = &self.app.devices;
        if !devices.enter(&key, |device| device.announce(&found)) {
            self.refused.is_any = true;
            return;
        }
        let (app, client) = (self.app.clone(), self.client.clone());
        let follower = Follower::start(|commands, left, is_cut| {
            follow::follow(app, client, found, commands, left, is_cut)
        });
        devices.follow(&key, follower);
    }

    /// Follows devices that were refused earlier, as far as there is room now, because most devices send
    /// Hello only at their start.
    fn follow_refused(&mut self) {
        self.refused.looked_at(Instant::now());
        for found in self.client.known() {
            if self.are_too_many_leaving() {
                // Nobody is admitted. The next departure makes room again.
                self.refused.is_any = true;
                return;
            }
            let (key, devices) = (device_key(&found.endpoint), &self.app.devices);
            if devices.is_followed(&key) || crate::kad::claims_entrance(&found) {
                continue;
            }
            match devices.room(&key, found.host()) {
                Room::Free => self.arrived(found),
                _ => self.refused.is_any = true,
            }
        }
    }

    /// Makes room for a device in the table. In a full table a device of the address with most devices is
    /// evicted, so that one host cannot keep out the devices of others, whether its own devices answer or
    /// not. Returns whether there is room.
    fn make_room(&mut self, key: &str, found: &Found) -> bool {
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
            Room::Free => return true,
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
        self.refused.is_any = true;
        if let Some(victim) = &victim {
            self.depart(victim, Departure::Displaced);
        }
        victim.is_some()
    }

    fn are_too_many_leaving(&self) -> bool {
        self.departures.len() >= self.app.config.discovery.max_devices as usize
    }

    /// Stops following a device. A departing device continues to depart.
    fn depart(&mut self, key: &str, departure: Departure) {
        let is_displaced = matches!(departure, Departure::Displaced);
        let (app, departures) = (self.app.clone(), &mut self.departures);
        let spawn = |device, follower: Option<Follower>| {
            let departs = async move {
                if let Some(follower) = follower {
                    follower.end().await;
                }
                match departure {
                    Departure::Gone(reason) => task::leave(&app, device, &reason).await,
                    Departure::Displaced => task::unregister(&app, &device).await,
                }
                !is_displaced
            };
            departures.spawn(departs).id()
        };
        self.app.devices.depart(key, is_displaced, spawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_devices_are_looked_at_once_a_second_however_many_depart() {
        let start = Instant::now();
        let mut refused = Refused::new(start);
        refused.room_made();
        assert_eq!(refused.due(), None, "nobody was refused");
        let mut times = Vec::new();
        for departures in 0..4_000 {
            let now = start + Duration::from_millis(departures);
            refused.is_any = true;
            refused.room_made();
            if refused.due().is_some_and(|due| due <= now) {
                refused.looked_at(now);
                times.push(now - start);
            }
        }
        assert_eq!(times, [0, 1, 2, 3].map(Duration::from_secs));
        // The last of them waits for the next second.
        assert_eq!(refused.due(), Some(start + Duration::from_secs(4)));
        refused.looked_at(start + Duration::from_secs(4));
        assert_eq!(refused.due(), None);
    }
}
