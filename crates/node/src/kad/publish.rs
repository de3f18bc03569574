//! Publishes the devices that multicast finds here for nodes that multicast does not reach.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chappe_identity::Contact;
use chappe_kad::service::Announcement;
use chappe_transport::Hop;
use chappe_transport::kad::KadNode;

use crate::devices::{Device, DeviceState};
use crate::shared::App;
use crate::tasks::shutdown;

/// Time between two checks of the devices.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum of published devices; reason: nodes store this many records of one publisher.
const PUBLISHED_MAX: usize = 256;

/// Publishes until the node shuts down.
pub(crate) async fn publish(app: App) {
    let Some(node) = app.kad.get() else { return };
    let mut drain = app.drain.clone();
    let mut published: BTreeMap<String, (u16, Announcement)> = BTreeMap::new();
    let mut next_slot = 0_u16;
    loop {
        let mut wanted: BTreeMap<String, Announcement> = BTreeMap::new();
        for device in app.devices.all() {
            if let Some(announcement) = announcement(&device, node) {
                wanted.insert(device.key, announcement);
            }
        }
        let gone =
            |key: &String, (slot, _): &mut (u16, _)| (!wanted.contains_key(key)).then_some(*slot);
        let gone: BTreeSet<u16> = published
            .iter_mut()
            .filter_map(|(key, it)| gone(key, it))
            .collect();
        published.retain(|_, (slot, _)| !gone.contains(slot));
        for slot in gone {
            node.withdraw(slot).await;
        }
        for (key, announcement) in wanted {
            let slot = match published.get(&key) {
                Some((_, before)) if *before == announcement => continue,
                Some((slot, _)) => *slot,
                None if published.len() >= PUBLISHED_MAX => {
                    let detail = format!("{key}: {PUBLISHED_MAX} devices are already published");
                    let hint = Some("let a second node publish the others".to_owned());
                    app.observability.drops.record(
                        Hop::Discovery,
                        "not published",
                        "",
                        detail,
                        hint,
                    );
                    continue;
                }
                None => {
                    // A slot that was just withdrawn is not reused at once.
                    while published.values().any(|(slot, _)| *slot == next_slot) {
                        next_slot = next_slot.wrapping_add(1);
                    }
                    next_slot = next_slot.wrapping_add(1);
                    next_slot.wrapping_sub(1)
                }
            };
            node.publish(slot, announcement.clone()).await;
            published.insert(key, (slot, announcement));
        }
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// The announcement of a device; `None` while it is not usable, was not found by multicast, or has no
/// address that others can reach.
fn announcement(device: &Device, node: &KadNode) -> Option<Announcement> {
    let by_multicast = device.found_by.iter().any(|way| way == "discovery");
    if device.state != DeviceState::Usable || !by_multicast {
        return None;
    }
    let own_host = node.local_addr().ip().is_loopback();
    let reached = |address: &&String| {
        Contact::parse(address, 0).is_ok_and(|contact| {
            let ip = contact.address.ip();
            let link_local = match ip {
                std::net::IpAddr::V4(ip) => ip.is_link_local(),
                std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            !link_local && ip.is_loopback() == own_host
        })
    };
    let addresses: Vec<String> = device.addresses.iter().filter(reached).cloned().collect();
    (!addresses.is_empty()).then(|| Announcement {
        endpoint: device.endpoint.clone(),
        metadata_version: u32::try_from(device.metadata_version).unwrap_or(u32::MAX),
        types: device.types.clone(),
        scopes: device.scopes.clone(),
        addresses,
        // The node sets it.
        port: 0,
    })
}
