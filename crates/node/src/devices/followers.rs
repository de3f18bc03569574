//! Follows devices, each with a task of its own, and lets them depart.
//!
//! Nothing here waits for a device. A device departs in the background: its task stores all acknowledged
//! notifications, then the device is unregistered. If its endpoint address is found again meanwhile, the
//! next task starts after that.

use std::sync::Arc;

use chappe_device::DeviceClient;
use chappe_device::client::Found;
use chappe_identity::Room;
use chappe_transport::Hop;
use tokio::task::JoinSet;

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

/// Starts and ends the tasks that follow devices; [`super::Devices`] holds them.
pub(super) struct Followers {
    app: App,
    client: Arc<DeviceClient>,
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
            departures: JoinSet::new(),
            is_crowded: false,
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
        let (id, is_place_free) = match self.departures.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok(departed)) => departed,
            // A failed departure has ended as well.
            Some(Err(error)) => (error.id(), true),
        };
        let was_full = self.are_too_many_leaving();
        if let Some(found) = self.app.devices.departed(id) {
            self.arrived(found);
        }
        // The room of a replaced device is already in use.
        if (is_place_free || was_full) && std::mem::take(&mut self.is_crowded) {
            self.follow_refused();
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
            self.is_crowded = true;
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
        for found in self.client.known() {
            let (key, devices) = (device_key(&found.endpoint), &self.app.devices);
            if devices.is_followed(&key) || crate::kad::claims_entrance(&found) {
                continue;
            }
            match devices.room(&key, found.host()) {
                Room::Free => self.arrived(found),
                _ => self.is_crowded = true,
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
        self.is_crowded = true;
        if let Some(victim) = &victim {
            self.depart(victim, Departure::Displaced);
        }
        victim.is_some()
    }

    fn are_too_many_leaving(&self) -> bool {
        self.app.devices.departing() >= self.app.config.discovery.max_devices as usize
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
