//! What discovery says of a device.

use std::net::SocketAddr;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::Target;
use chappe_xml::Name;

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
    /// Who said so.
    pub from: SocketAddr,
}

impl Found {
    pub(super) fn new(target: &Target, dialect: Dialect, from: SocketAddr) -> Self {
        Self {
            endpoint: target.endpoint.address.to_string(),
            dialect,
            types: target.types.clone(),
            scopes: target.scopes.iter().map(ToString::to_string).collect(),
            xaddrs: target.xaddrs.iter().map(ToString::to_string).collect(),
            metadata_version: target.metadata_version,
            from,
        }
    }

    /// Whether it says that it is a device of the profile.
    #[must_use]
    pub fn is_dpws(&self) -> bool {
        let device = |name: &Name| Dialect::ALL.iter().any(|d| d.device_type() == *name);
        self.types.iter().any(device)
    }
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
