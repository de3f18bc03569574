//! Devices: found, described, registered, streamed, and let go when they leave.
//!
//! Discovery runs in one client; each device has a task of its own, so that a slow one keeps no
//! other waiting. What discovery hears is a hint: a device is gone when the client has looked and
//! it did not answer.

mod entities;
mod follow;
mod identity;
mod intake;
mod key;
mod lineage;
mod offered;
mod output;
mod quota;
mod table;
mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chappe_device::client::{ClientTree, Found, Seen};
use chappe_device::{ClientOptions, DeviceClient, Selection};
use chappe_identity::{AddressPolicy, Prefix, Room};
use chappe_transport::Hop;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) use entities::of_stream;
pub(crate) use intake::{FULL_PAUSE, lost};
pub(crate) use key::{former_key, key_of};
pub(crate) use quota::DeviceQuotas;
pub(crate) use table::{Device, DeviceState, Devices};
use task::Order;

use crate::config::Discovery;
use crate::notices::NoticeKind;
use crate::shared::{App, ended};

/// Pause before discovery is tried again when it could not begin.
const RETRY: Duration = Duration::from_secs(5);
/// How long the task of a device that is gone may wait for room on a full disk.
const DRAIN: Duration = Duration::from_secs(2);
/// Orders that may wait for a device's task.
const ORDERS_MAX: usize = 16;

/// A device that is being followed.
struct Followed {
    orders: mpsc::Sender<Order>,
    /// Nothing waits for room on a full disk: what is not stored is counted as lost.
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Followed {
    /// Lets the task store what the device was told is received; it waits for no full disk for long.
    async fn end(self) {
        let Self {
            orders,
            is_cut,
            mut task,
        } = self;
        drop(orders);
        if tokio::time::timeout(DRAIN, &mut task).await.is_err() {
            is_cut.store(true, Ordering::Relaxed);
            // A failed task has ended as well.
            let _ = task.await;
        }
    }
}

/// Finds and follows devices until the node ends.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let mut told = String::new();
    loop {
        match DeviceClient::start(options(&app), app.drops.clone()) {
            Ok(client) => return follow_all(&app, client).await,
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    let hint = error
                        .hint()
                        .map_or(String::new(), |hint| format!(" ({hint})"));
                    let notice = format!("cannot look for devices: {text}{hint}");
                    app.notices.tell(NoticeKind::Health, "discovery", notice);
                    told = text;
                }
            }
        }
        tokio::select! {
            () = ended(&mut drain) => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

fn options(app: &App) -> ClientOptions {
    let discovery = &app.config.discovery;
    let selection = match discovery.interfaces.as_slice() {
        _ if !discovery.multicast => Selection::Nowhere,
        [] => Selection::All,
        names => Selection::Named(names.to_vec()),
    };
    ClientOptions {
        selection,
        policy: policy(discovery),
        tree: app.tree.clone().map(|key| ClientTree {
            criticality: discovery.tree_criticality,
            windows: Some(app.config.data_directory.join("tree-windows")),
            ..ClientTree::new(key)
        }),
        ..ClientOptions::default()
    }
}

/// Which addresses of strangers may be contacted.
pub(crate) fn policy(discovery: &Discovery) -> AddressPolicy {
    let prefixes = discovery.contact.iter();
    let prefixes = prefixes.filter_map(|prefix| prefix.parse::<Prefix>().ok());
    prefixes.fold(AddressPolicy::default(), AddressPolicy::allow)
}

async fn follow_all(app: &App, client: DeviceClient) {
    let client = Arc::new(client);
    // Discovery starts once in the life of a node.
    let _ = app.device_client.set(Arc::downgrade(&client));
    let mut drain = app.drain.clone();
    let mut followed: HashMap<String, Followed> = HashMap::new();
    // Whether devices are known that had no place in the table.
    let mut is_crowded = false;
    let searching = tokio::spawn(crate::kad::search(app.clone(), client.clone()));
    let mut seen = match client.discover().await {
        Ok(seen) => seen,
        Err(_) => return searching.abort(),
    };
    loop {
        let event = tokio::select! {
            () = ended(&mut drain) => break,
            event = seen.next() => match event {
                Some(event) => event,
                None => break,
            },
        };
        match event {
            Seen::Found(found) | Seen::Changed(found)
                if crate::kad::is_entrance(app, &found).await => {}
            Seen::Found(found) | Seen::Changed(found) => {
                is_crowded |= !arrived(app, &client, &mut followed, found).await;
            }
            Seen::Hello(found) if crate::kad::is_entrance(app, &found).await => {}
            Seen::Hello(found) => match followed.get(&found.endpoint) {
                // A full queue holds an order that does as much.
                Some(one) => drop(one.orders.try_send(Order::Doubt)),
                None => is_crowded |= !arrived(app, &client, &mut followed, found).await,
            },
            Seen::Gone { endpoint, reason } => {
                if let Some(one) = followed.remove(&endpoint) {
                    one.end().await;
                }
                task::leave(app, &key_of(&endpoint), &reason).await;
                if is_crowded {
                    is_crowded = follow_refused(app, &client, &mut followed).await;
                }
            }
            _ => {}
        }
    }
    // It holds the client, too.
    searching.abort();
    let _ = searching.await;
    // Without orders a task stores what it has and ends: it waits for the disk, and for no device.
    let (orders, tasks): (Vec<_>, Vec<_>) = followed
        .into_values()
        .map(|one| (one.orders, one.task))
        .unzip();
    drop(orders);
    for task in tasks {
        // A failed task has ended as well.
        let _ = task.await;
    }
    drop(seen);
    // All tasks have ended: nobody else holds the client.
    if let Ok(client) = Arc::try_unwrap(client) {
        client.close().await;
    }
}

/// Follows a device that was found; says whether there was a place for it and for all others.
async fn arrived(
    app: &App,
    client: &Arc<DeviceClient>,
    followed: &mut HashMap<String, Followed>,
    found: Found,
) -> bool {
    if let Some(one) = followed.get(&found.endpoint)
        && !one.task.is_finished()
    {
        // It takes what it is told before the next attempt; a full queue makes one anyway.
        let _ = one.orders.try_send(Order::Changed(Box::new(found)));
        return true;
    }
    if let Some(detail) = key::refusal(&found.endpoint) {
        let hint = Some("give the device an endpoint of its own, as urn:uuid:…".to_owned());
        let (reason, from) = ("endpoint refused", found.from.ip());
        app.drops.record(Hop::Discovery, reason, from, detail, hint);
        return true;
    }
    let key = key_of(&found.endpoint);
    let place = make_room(app, followed, &key, &found).await;
    if place == Place::None {
        return false;
    }
    // Before its task runs: the next one to come is judged by the whole table.
    task::announce(app, &key, &found);
    let (orders, receiver) = mpsc::channel(ORDERS_MAX);
    let endpoint = found.endpoint.clone();
    let is_cut = Arc::default();
    let (app, client, cut) = (app.clone(), client.clone(), Arc::clone(&is_cut));
    let task = tokio::spawn(follow::follow(app, client, found, receiver, cut));
    let one = Followed {
        orders,
        is_cut,
        task,
    };
    followed.insert(endpoint, one);
    place == Place::Free
}

/// Follows the devices that had no place when they came, as far as there is room now: most say Hello
/// only when they start. Says whether there are more.
async fn follow_refused(
    app: &App,
    client: &Arc<DeviceClient>,
    followed: &mut HashMap<String, Followed>,
) -> bool {
    let mut is_crowded = false;
    for found in client.known() {
        if followed.contains_key(&found.endpoint) || crate::kad::says_entrance(&found) {
            continue;
        }
        match app.devices.room(&key_of(&found.endpoint), found.host()) {
            Room::Free => is_crowded |= !arrived(app, client, followed, found).await,
            _ => is_crowded = true,
        }
    }
    is_crowded
}

/// Whether a device has a place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    /// That of another, which is forgotten.
    OfAnother,
    None,
}

/// Makes room for a device in the table. In a full table the address with the most devices gives way,
/// so that one host, whether it only announces devices or answers for them, keeps none of another host
/// out.
async fn make_room(
    app: &App,
    followed: &mut HashMap<String, Followed>,
    key: &str,
    found: &Found,
) -> Place {
    let discovery = &app.config.discovery;
    let (most, of_address) = (discovery.max_devices, discovery.max_devices_per_address);
    let all = ("too many devices", "discovery.max_devices", most);
    let of_one = (
        "too many devices of one address",
        "discovery.max_devices_per_address",
        of_address,
    );
    let (victim, (reason, limit, count)) = match app.devices.room(key, found.host()) {
        Room::Free => return Place::Free,
        Room::Of(victim) => (Some(victim), all),
        Room::TableFull => (None, all),
        Room::HostFull => (None, of_one),
    };
    if let Some(victim) = &victim {
        displace(app, followed, victim).await;
    }
    let dropped = victim.as_deref().unwrap_or(key);
    let detail = format!("{dropped}: there are {count} already");
    let hint = Some(format!("the limit is {limit}"));
    // One entry for all of them: a flood must not push out the others.
    app.drops.record(Hop::Discovery, reason, "", detail, hint);
    victim.map_or(Place::None, |_| Place::OfAnother)
}

/// Follows a device no longer, and forgets it.
async fn displace(app: &App, followed: &mut HashMap<String, Followed>, key: &str) {
    let Some(shown) = app.devices.get(key) else {
        return;
    };
    if let Some(one) = followed.remove(&shown.endpoint) {
        // A stranger has nothing to store, and may wait for an answer that does not come.
        if !shown.is_described {
            one.task.abort();
        }
        one.end().await;
    }
    if let Some(device) = app.devices.remove(key) {
        task::unregister(app, &device).await;
    }
}
