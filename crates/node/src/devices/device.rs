//! A device as the REST API shows it.

use chappe_device::client::{Description, Found, HostedService, Way};
use chappe_dpws::metadata::localized;
use chappe_identity::Host;
use chappe_xml::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::operation::DeviceOperation;
use crate::clock;

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
    /// Since when (RFC 3339).
    pub(crate) state_since: String,
    /// Its dialect of DPWS; empty for a device that a wrapper's peer announces.
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
    /// table), or both; for a device that a wrapper's peer announces, the wrapper's kind.
    pub(crate) found_by: Vec<String>,
    /// The wrapper whose peer announces it; null for a device of DPWS.
    pub(crate) wrapper: Option<String>,
    /// What an announced device can be told to do.
    pub(crate) operations: Vec<DeviceOperation>,
    /// Its hosted services.
    pub(crate) services: Vec<Service>,
    /// Names of its streams.
    pub(crate) streams: Vec<String>,
    /// The number of the added exclusion by which it is left out; null when the configuration leaves it out.
    pub(crate) exclusion: Option<u64>,
    /// The host to whose share of the table it counts, until it has left.
    #[serde(skip)]
    pub(super) host: Option<Host>,
    /// Whether it has described itself; until then it may be forged.
    #[serde(skip)]
    pub(super) is_described: bool,
}

impl Device {
    /// A device that was just found or announced.
    pub(crate) fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            first_seen: clock::now().to_string(),
            ..Self::default()
        }
    }

    /// Whether it has not left.
    pub(crate) fn is_present(&self) -> bool {
        self.state != DeviceState::Gone
    }

    /// Whether nothing runs for it: it has left or is left out.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.state, DeviceState::Gone | DeviceState::Excluded)
    }

    /// Records how it was found.
    pub(super) fn found_by(&mut self, way: Way) {
        if self.found_by.iter().all(|known| known != way.as_str()) {
            self.found_by.push(way.as_str().to_owned());
        }
    }

    /// Updates it from discovery.
    pub(super) fn announce(&mut self, found: &Found) {
        self.endpoint.clone_from(&found.endpoint);
        self.host.get_or_insert(found.host());
        if self.name.is_empty() {
            self.name.clone_from(&found.endpoint);
        }
        if self.is_absent() || self.dialect.is_empty() {
            let reason = "it is being described".to_owned();
            self.set_state(DeviceState::Attention, reason, None);
            self.exclusion = None;
            self.found_by.clear();
        }
        self.found_by(found.way);
        self.dialect = dialect_name(found.dialect).to_owned();
        self.types = found.types.iter().map(type_name).collect();
        self.scopes.clone_from(&found.scopes);
        self.addresses.clone_from(&found.xaddrs);
        self.metadata_version = u64::from(found.metadata_version);
    }

    /// Updates it from its own description.
    pub(super) fn describe(&mut self, description: &Description) {
        let text = |texts| localized(texts, "en").map(str::to_owned);
        self.name = description.name().to_owned();
        self.is_described = true;
        self.host = Some(Host::from_address(description.contact.address.ip()));
        self.dialect = dialect_name(description.dialect).to_owned();
        if !description.types.is_empty() {
            self.types = description.types.iter().map(type_name).collect();
        }
        self.manufacturer = text(&description.model.manufacturer);
        self.model = text(&description.model.model_name);
        self.firmware
            .clone_from(&description.device.firmware_version);
        self.serial_number
            .clone_from(&description.device.serial_number);
        self.services = description.services.iter().map(Service::new).collect();
    }

    /// Sets its state, with the reason and the remedy when it is not usable.
    pub(crate) fn set_state(
        &mut self,
        state: DeviceState,
        reason: impl Into<Option<String>>,
        hint: Option<String>,
    ) {
        (self.state, self.reason, self.hint) = (state, reason.into(), hint);
        if !self.is_present() {
            (self.host, self.is_described) = (None, false);
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

impl Service {
    fn new(service: &HostedService) -> Self {
        Self {
            id: service.id.clone(),
            types: service.types.iter().map(type_name).collect(),
            address: service.contact.to_string(),
        }
    }
}

/// The state of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceState {
    /// It is described, its offers are bound, and all its events are subscribed.
    Usable,
    /// It was found, but cannot be used yet.
    #[default]
    Attention,
    /// It is announced, and was said to be away: its values are not known.
    Offline,
    /// It is left out: nothing is read of it, and it is not registered.
    Excluded,
    /// It has left, or no longer answers.
    Gone,
}

impl DeviceState {
    /// All states with their names.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Usable, "usable"),
        (Self::Attention, "attention"),
        (Self::Offline, "offline"),
        (Self::Excluded, "excluded"),
        (Self::Gone, "gone"),
    ];
}

/// A name as `{namespace}local`.
fn type_name(name: &Name) -> String {
    format!("{{{}}}{}", name.namespace, name.local)
}

/// The name of a dialect in the REST API.
fn dialect_name(dialect: chappe_dpws::Dialect) -> &'static str {
    match dialect {
        chappe_dpws::Dialect::V2005 => "2005",
        chappe_dpws::Dialect::V2009 => "2009",
    }
}
