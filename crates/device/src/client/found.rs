//! Devices as discovery reports them.

use std::net::SocketAddr;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::Target;
use chappe_identity::{AddressPolicy, Contact, Host};
use chappe_transport::kad::Sighting;
use chappe_xml::Name;

/// The way in which a device was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Way {
    /// By WS-Discovery: the device announced itself or answered.
    Discovery,
    /// In the distributed hash table: a node publishes it there.
    Kad,
    /// By a discovery proxy.
    Proxy,
}

impl Way {
    /// Its name in the REST API and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Kad => "kad",
            Self::Proxy => "proxy",
        }
    }
}

/// A device as it announced itself; unconfirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The stable endpoint, usually `urn:uuid:…`.
    pub endpoint: String,
    /// Its dialect.
    pub dialect: Dialect,
    /// The types it claims.
    pub types: Vec<Name>,
    /// The scopes it claims.
    pub scopes: Vec<String>,
    /// Its transport addresses.
    pub xaddrs: Vec<String>,
    /// Increases when its description changes.
    pub metadata_version: u32,
    /// The sender; the unspecified address if no sender vouches for the transport addresses.
    pub from: SocketAddr,
    /// The way in which it was found.
    pub way: Way,
}

impl Found {
    /// A device published in the distributed hash table.
    #[must_use]
    pub fn published(sighting: &Sighting) -> Self {
        let said = &sighting.announcement;
        let types: Vec<Name> = said.types.iter().filter_map(|text| name_of(text)).collect();
        let old = types.contains(&Dialect::V2005.device_type());
        Self {
            endpoint: said.endpoint.clone(),
            dialect: if old { Dialect::V2005 } else { Dialect::V2009 },
            types,
            scopes: said.scopes.clone(),
            xaddrs: said.addresses.clone(),
            metadata_version: said.metadata_version,
            from: sighting.from(),
            way: Way::Kad,
        }
    }

    pub(crate) fn new(target: &Target, dialect: Dialect, from: SocketAddr) -> Self {
        Self {
            endpoint: target.endpoint.address.to_string(),
            dialect,
            types: target.types.clone(),
            scopes: target.scopes.iter().map(ToString::to_string).collect(),
            xaddrs: target.xaddrs.iter().map(ToString::to_string).collect(),
            metadata_version: target.metadata_version,
            from,
            way: Way::Discovery,
        }
    }

    /// The host to which it is charged until it answers: the sender, or the host of its first address
    /// if no sender vouches for one.
    #[must_use]
    pub fn host(&self) -> Host {
        let from = self.from.ip();
        let named = || {
            let contact = Contact::parse(self.xaddrs.first()?, 0).ok()?;
            Some(contact.address.ip())
        };
        Host::from_address(match from.is_unspecified() {
            true => named().unwrap_or(from),
            false => from,
        })
    }

    /// Whether one of its transport addresses has the host and port of this contact. Paths do not count: a device that
    /// restarts may change them.
    pub(super) fn names(&self, contact: &Contact) -> bool {
        let ip = contact.address.ip();
        let is_same = |uri: &String| {
            let announced = match Contact::provable_name(uri) {
                Some(name) => {
                    let known = contact.proof.name.as_deref();
                    let is_known = known.is_some_and(|known| known.eq_ignore_ascii_case(name));
                    let resolved =
                        AddressPolicy::default().check_resolved(uri, ip, contact.address);
                    resolved.ok().filter(|_| is_known)
                }
                None => Contact::parse(uri, 0).ok(),
            };
            announced.is_some_and(|announced| {
                announced.scheme == contact.scheme
                    && announced.address.ip() == ip
                    && announced.address.port() == contact.address.port()
            })
        };
        self.xaddrs.iter().any(is_same)
    }

    /// Whether it claims to be a DPWS device.
    #[must_use]
    pub fn is_dpws(&self) -> bool {
        let device = |name: &Name| Dialect::ALL.iter().any(|d| d.device_type() == *name);
        self.types.iter().any(device)
    }
}

/// The name written as `{namespace}local`.
fn name_of(text: &str) -> Option<Name> {
    let (namespace, local) = text.strip_prefix('{')?.split_once('}')?;
    (!local.is_empty()).then(|| Name::owned(namespace, local))
}

/// A discovery event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// A new device.
    Found(Found),
    /// The description of a known device has changed: read it again.
    Changed(Found),
    /// A known device sent Hello again without a change: it may have restarted.
    Hello(Found),
    /// A device said Bye or became silent, and no longer listens.
    Gone {
        /// Its endpoint.
        endpoint: String,
        /// The way in which the end was detected.
        reason: String,
    },
    /// A device matches a search.
    Match {
        /// The number of the search.
        id: u64,
        /// Its endpoint.
        endpoint: String,
    },
    /// A [`resolve`](super::DeviceClient::resolve) was answered, or its time has passed.
    ResolveEnded {
        /// The requested endpoint.
        endpoint: String,
        /// Whether an answer arrived.
        answered: bool,
    },
    /// The time of a search has passed.
    SearchEnded {
        /// The number of the search.
        id: u64,
        /// The number of matching devices.
        count: usize,
    },
}
