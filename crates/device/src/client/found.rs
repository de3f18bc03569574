//! What discovery says of a device.

use std::net::SocketAddr;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::Target;
use chappe_identity::{Contact, Host};
use chappe_transport::kad::Sighting;
use chappe_xml::Name;

/// How a device was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Way {
    /// By WS-Discovery: it announced itself, or answered.
    Discovery,
    /// In the distributed hash table: somebody publishes it there.
    Kad,
}

impl Way {
    /// The word used in the REST API and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Kad => "kad",
        }
    }
}

/// A device as it announced itself; nothing of it is confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The stable endpoint, as a rule `urn:uuid:…`.
    pub endpoint: String,
    /// How it speaks.
    pub dialect: Dialect,
    /// What it says it is.
    pub types: Vec<Name>,
    /// Where it says it belongs.
    pub scopes: Vec<String>,
    /// Its transport addresses.
    pub xaddrs: Vec<String>,
    /// Rises when its description changes.
    pub metadata_version: u32,
    /// Who said so; the unspecified address when nobody vouches for the transport addresses.
    pub from: SocketAddr,
    /// How it was found.
    pub way: Way,
}

impl Found {
    /// A device that somebody publishes in the distributed hash table.
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

    pub(super) fn new(target: &Target, dialect: Dialect, from: SocketAddr) -> Self {
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

    /// The host that it counts for until it answers: the sender's, or the first that it names where
    /// nobody vouches for any.
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

    /// Whether it says that it is a device of the profile.
    #[must_use]
    pub fn is_dpws(&self) -> bool {
        let device = |name: &Name| Dialect::ALL.iter().any(|d| d.device_type() == *name);
        self.types.iter().any(device)
    }
}

/// The name that `{namespace}local` stands for.
fn name_of(text: &str) -> Option<Name> {
    let (namespace, local) = text.strip_prefix('{')?.split_once('}')?;
    (!local.is_empty()).then(|| Name::owned(namespace, local))
}

/// What happens with devices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// A device that was not known.
    Found(Found),
    /// A known device describes itself otherwise: read its description again.
    Changed(Found),
    /// A known device says Hello again without a change: it may have restarted.
    Hello(Found),
    /// A device said Bye or fell silent, and does not listen any more.
    Gone {
        /// Its endpoint.
        endpoint: String,
        /// How that was noticed.
        reason: String,
    },
    /// A device matches a search.
    Match {
        /// Of the search.
        id: u64,
        /// Its endpoint.
        endpoint: String,
    },
    /// The time of a [`resolve`](super::DeviceClient::resolve) is over, or it is answered.
    ResolveEnded {
        /// The endpoint that was asked for.
        endpoint: String,
        /// Whether an answer came.
        answered: bool,
    },
    /// The time of a search is over.
    SearchEnded {
        /// Of the search.
        id: u64,
        /// How many devices matched.
        count: usize,
    },
}
