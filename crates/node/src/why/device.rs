//! The hops of a device: discovery, description, subscription, mapping.

use std::net::IpAddr;

use chappe_transport::{Dropped, Hop as Stage};

use super::{HopState, Path};
use crate::config::nearest;
use crate::devices::{Device, DeviceState, device_key};
use crate::shared::Shared;

/// Drops that are shown for a device that was not found.
const DROPS_SHOWN: usize = 3;

/// The device with this key, endpoint, name or address; the one that is present, if several have it.
pub(super) fn find(app: &Shared, name: &str) -> Option<Device> {
    let by_key = app.devices.get(name);
    if let Some(device) = by_key.or_else(|| app.devices.get(&device_key(name))) {
        return Some(device);
    }
    let address = name.parse::<IpAddr>().ok();
    let is_wanted = |device: &Device| {
        device.name.eq_ignore_ascii_case(name)
            || device.endpoint == name
            || address.is_some_and(|_| device.addresses.iter().any(|it| host_of(it) == name))
    };
    let mut found: Vec<Device> = app.devices.all().into_iter().filter(is_wanted).collect();
    found.sort_by_key(|device| device.state != DeviceState::Usable);
    found.into_iter().next()
}

/// The host in `scheme://host:port/path`.
fn host_of(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    }
}

impl Path<'_> {
    /// A device with all its streams.
    pub(super) fn device_with_streams(&mut self, device: &Device) {
        self.device(device);
        for name in &device.streams {
            if let Some(entry) = self.app.catalogue.get(name) {
                self.stream_after_source(&entry);
            }
        }
    }

    /// The hops of a device up to its streams.
    pub(super) fn device(&mut self, device: &Device) {
        if !self.enter("device", &device.key) {
            return;
        }
        let key = device.key.as_str();
        let reason = device.reason.clone().unwrap_or_default();
        let hint = device.hint.clone();
        if let Some(wrapper) = &device.wrapper {
            if let Some(wrapper) = self.app.wrappers.get(wrapper) {
                self.wrapper(&wrapper);
            }
            return match device.state {
                DeviceState::Offline => {
                    let detail = format!("{} is offline: {reason}", device.name);
                    self.add("device", key, HopState::Blocked, detail, hint);
                }
                _ => {
                    let detail = format!("{} is announced to the wrapper {wrapper}", device.name);
                    self.add("device", key, HopState::Ok, detail, None);
                }
            };
        }
        if device.state == DeviceState::Gone {
            let detail = format!("{} has left: {reason}", device.name);
            let hint = hint.or_else(|| {
                Some("check its power and network; chappe doctor checks this machine".to_owned())
            });
            return self.add("discovery", key, HopState::Blocked, detail, hint);
        }
        let ways = device.found_by.join(" and ");
        let detail = format!("found by {ways} at {}", device.addresses.join(", "));
        self.add("discovery", key, HopState::Ok, detail, None);
        let stage = self.stage_of(device, &reason);
        let described = format!("{}; services: {}", device.name, device.services.len());
        match stage {
            Some("description") => {
                return self.add("description", key, HopState::Blocked, reason, hint);
            }
            _ => self.add("description", key, HopState::Ok, described, None),
        }
        match stage {
            Some("subscription") => {
                let state = match device.streams.is_empty() {
                    true => HopState::Blocked,
                    false => HopState::Degraded,
                };
                self.add("subscription", key, state, reason, hint);
            }
            _ => self.add(
                "subscription",
                key,
                HopState::Ok,
                "its events are subscribed",
                None,
            ),
        }
        self.mapping(device);
    }

    /// The stage at which a device that is not usable stands.
    fn stage_of(&self, device: &Device, reason: &str) -> Option<&'static str> {
        if device.state == DeviceState::Usable {
            return None;
        }
        let of_stage = |stage: Stage| {
            let drops = self.drops_of(device).into_iter();
            let mut details = drops.filter(|drop| drop.hop == stage);
            details.any(|drop| reason.contains(&drop.detail))
        };
        Some(match () {
            () if of_stage(Stage::Element) => "mapping",
            () if of_stage(Stage::Event) => "subscription",
            () if device.services.is_empty() => "description",
            () => "subscription",
        })
    }

    fn mapping(&mut self, device: &Device) {
        let key = device.key.as_str();
        let drops = self.drops_of(device);
        let newest = drops.iter().find(|drop| drop.hop == Stage::Element);
        match (device.streams.len(), newest) {
            (0, Some(drop)) => {
                let detail = format!("{}: {}", drop.reason, drop.detail);
                self.add("mapping", key, HopState::Blocked, detail, drop.hint.clone());
            }
            (0, None) => {
                let detail = "none of its events is mapped to a stream";
                let hint = "chappe describe shows its services; map their events by a rule, see \
                            docs/reference/path-rules.md";
                self.add(
                    "mapping",
                    key,
                    HopState::Blocked,
                    detail,
                    Some(hint.to_owned()),
                );
            }
            (count, Some(drop)) => {
                let (reason, dropped) = (drop.reason, drop.count);
                let detail = format!(
                    "streams: {count}; dropped: {dropped} ({reason}: {})",
                    drop.detail
                );
                self.add(
                    "mapping",
                    key,
                    HopState::Degraded,
                    detail,
                    drop.hint.clone(),
                );
            }
            (count, None) => {
                let detail = format!("streams: {count}");
                self.add("mapping", key, HopState::Ok, detail, None);
            }
        }
    }

    /// What was dropped of a device, the latest first.
    fn drops_of(&self, device: &Device) -> Vec<Dropped> {
        let of_device = |drop: &Dropped| drop.peer == device.key || drop.peer == device.endpoint;
        let mut drops = self.app.observability.drops.entries();
        drops.retain(of_device);
        drops
    }

    /// No device has this name.
    pub(super) fn unknown_device(&mut self, name: &str) {
        let app = self.app;
        if !app.config.discovery.enabled {
            let detail = "this node does not search for devices";
            let hint = "set discovery.enabled = true";
            return self.add(
                "discovery",
                name,
                HopState::Blocked,
                detail,
                Some(hint.to_owned()),
            );
        }
        let mut drops = app.observability.drops.entries();
        let is_before =
            |stage| matches!(stage, Stage::Discovery | Stage::Address | Stage::Metadata);
        drops.retain(|drop| {
            is_before(drop.hop) && (drop.peer.contains(name) || drop.detail.contains(name))
        });
        if let Some(drop) = drops.first() {
            let texts = drops.iter().take(DROPS_SHOWN);
            let texts: Vec<String> = texts
                .map(|drop| format!("{}: {} ({}×)", drop.reason, drop.detail, drop.count))
                .collect();
            let hint = drop.hint.clone();
            return self.add("discovery", name, HopState::Blocked, texts.join("; "), hint);
        }
        let names = self.names();
        let near = nearest(name, names.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => "run chappe doctor on this machine: it checks interfaces, multicast and \
                     firewalls; where multicast does not reach, see chappe find --host"
                .to_owned(),
        };
        let detail = format!(
            "no device, stream, sensor, link, wrapper or exporter has this name, and no message of such a device was \
             dropped; known devices: {}",
            app.devices.all().len()
        );
        self.add("discovery", name, HopState::Blocked, detail, Some(hint));
    }
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn the_host_of_an_address_is_found() {
        assert_eq!(host_of("http://192.0.2.7:5357/device"), "192.0.2.7");
        assert_eq!(host_of("http://[2001:db8::7]:5357/device"), "2001:db8::7");
        assert_eq!(host_of("http://host/"), "host");
        assert_eq!(host_of(""), "");
    }
}
