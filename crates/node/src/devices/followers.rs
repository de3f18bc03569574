//! The devices that are followed, each by a task of its own, and those that are leaving.
//!
//! Nothing here waits for a device. A device leaves in the background: its task stores what the device
//! was told is received, then the device is removed from the registry. If its endpoint address is
//! found again meanwhile, the next task starts after that.

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

use super::task::Order;
use super::{Device, DeviceState, follow, key, key_of, task as device_task};
use crate::shared::App;

/// How long the task of a device that is gone may wait for room on a full disk.
const DRAIN: Duration = Duration::from_secs(2);
/// Orders that may wait for a device's task.
const ORDERS_MAX: usize = 16;

/// A device that is being followed.
struct Followed {
    orders: mpsc::Sender<Order>,
    /// Dropped when the device has left: its task waits for no answer any more.
    left: watch::Sender<bool>,
    /// Nothing waits for room on a full disk: what is not stored is counted as lost.
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Followed {
    /// Lets the task store what the device was told is received; it waits for no full disk for long.
    async fn end(self) {
        let Self {
            orders,
            left,
            is_cut,
            mut task,
        } = self;
        drop((orders, left));
        if tokio::time::timeout(DRAIN, &mut task).await.is_err() {
            is_cut.store(true, Ordering::Relaxed);
            // Only the disk is waited for now. A failed task has ended as well.
            let _ = task.await;
        }
    }
}

/// A device that is leaving.
struct Leaving {
    departure: task::Id,
    /// It was found again meanwhile.
    again: Option<Found>,
}

/// Why a device is not followed any more.
enum Departure {
    /// It is gone, for this reason; it stays in the table.
    Gone(String),
    /// Another has its place in the table.
    Displaced,
}

/// Whether a device has a place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    /// That of another, which is forgotten.
    OfAnother,
    None,
}

/// All devices that are followed or leaving, by endpoint address.
pub(super) struct Followers {
    app: App,
    client: Arc<DeviceClient>,
    followed: HashMap<String, Followed>,
    /// At most as many as the table has places; with more, no new device is followed.
    leaving: HashMap<String, Leaving>,
    /// Each says whether it made a place free.
    departures: JoinSet<bool>,
    /// Whether devices are known that had no place.
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

    /// A device was found, or describes itself otherwise.
    pub(super) fn found(&mut self, found: Found) {
        match self.followed.get(&found.endpoint) {
            // It takes its orders before the next attempt; a full queue makes one anyway.
            Some(one) if !one.task.is_finished() => {
                drop(one.orders.try_send(Order::Changed(Box::new(found))));
            }
            _ => self.arrived(found),
        }
    }

    /// A device says Hello: it may have restarted.
    pub(super) fn hello(&mut self, found: Found) {
        match self.followed.get(&found.endpoint) {
            // A full queue holds an order that does as much.
            Some(one) => drop(one.orders.try_send(Order::Doubt)),
            None => self.arrived(found),
        }
    }

    /// A device is gone.
    pub(super) fn gone(&mut self, endpoint: &str, reason: String) {
        if let Some(leaving) = self.leaving.get_mut(endpoint) {
            leaving.again = None;
            return;
        }
        let shown = self.app.devices.get(&key_of(endpoint));
        if let Some(device) = shown.filter(|device| device.state != DeviceState::Gone) {
            self.depart(device, Departure::Gone(reason));
        }
    }

    /// Waits until a device has left; then those that waited for that are followed. It may be dropped.
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
        // The place of one that was displaced has been taken before.
        if (is_place_free || was_full) && std::mem::take(&mut self.is_crowded) {
            self.follow_refused();
        }
    }

    /// Ends all tasks. They wait for the disk, and for no device.
    pub(super) async fn end(mut self) {
        let (rest, tasks): (Vec<_>, Vec<_>) = self
            .followed
            .into_values()
            .map(|one| ((one.orders, one.left), one.task))
            .unzip();
        drop(rest);
        for task in tasks {
            // A failed task has ended as well.
            let _ = task.await;
        }
        while self.departures.join_next().await.is_some() {}
    }

    /// Follows a device that is not followed, if there is a place for it.
    fn arrived(&mut self, found: Found) {
        if let Some(leaving) = self.leaving.get_mut(&found.endpoint) {
            leaving.again = Some(found);
            return;
        }
        if let Some(detail) = key::refusal(&found.endpoint) {
            let hint = Some("give the device an endpoint of its own, as urn:uuid:…".to_owned());
            let (reason, from) = ("endpoint refused", found.from.ip());
            let drops = &self.app.observability.drops;
            return drops.record(Hop::Discovery, reason, from, detail, hint);
        }
        let key = key_of(&found.endpoint);
        let place = self.make_room(&key, &found);
        self.is_crowded |= place != Place::Free;
        if place == Place::None {
            return;
        }
        // Before its task runs: the next one to come is judged by the whole table.
        if !device_task::enter(&self.app, &key, &found) {
            self.is_crowded = true;
            return;
        }
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        let (left, has_left) = watch::channel(false);
        let is_cut = Arc::<AtomicBool>::default();
        let endpoint = found.endpoint.clone();
        let (app, client) = (self.app.clone(), self.client.clone());
        let follow = follow::follow(app, client, found, receiver, has_left, is_cut.clone());
        let one = Followed {
            orders,
            left,
            is_cut,
            task: tokio::spawn(follow),
        };
        self.followed.insert(endpoint, one);
    }

    /// Follows the devices that had no place when they came, as far as there is room now: most say
    /// Hello only when they start.
    fn follow_refused(&mut self) {
        for found in self.client.known() {
            let endpoint = &found.endpoint;
            let is_known =
                self.followed.contains_key(endpoint) || self.leaving.contains_key(endpoint);
            if is_known || crate::kad::says_entrance(&found) {
                continue;
            }
            match self.app.devices.room(&key_of(endpoint), found.host()) {
                Room::Free => self.arrived(found),
                _ => self.is_crowded = true,
            }
        }
    }

    /// Makes room for a device in the table. In a full table the address with the most devices gives
    /// way, so that one host, whether it only announces devices or answers for them, keeps none of
    /// another host out.
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
        let detail = format!("{dropped}: there are {count} already");
        let hint = Some(format!("the limit is {limit}"));
        // One entry for all of them: a flood must not push out the others.
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

    /// Follows a device no longer. One that is leaving already goes on doing so.
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
