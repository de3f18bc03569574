//! Settings for finding devices where multicast does not reach.

use std::net::SocketAddr;

use chappe_identity::{Prefix, PublicKey};
use chappe_kad::{Certificate, Membership};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Finding devices where multicast does not reach: nodes publish the devices they know in a distributed
/// hash table over UDP unicast (docs/reference/kademlia.md).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kad {
    /// UDP address and port to listen on; port 0 picks a free one, which is printed; empty: off, the node
    /// sends nothing. A loopback address reaches only nodes on this host. Any other address needs a
    /// certificate, or `kad.open = true`.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub listen: String,
    /// Addresses of nodes through which this node joins the network, in addition to those of the last run and those
    /// that answer multicast. The first node of a network has none. List several, such as eight: if the only entrance
    /// is dishonest, the node sees only the part of the network that this entrance reveals.
    #[schemars(extend("items" = {"type": "string", "format": "socket-address"}))]
    pub entrances: Vec<SocketAddr>,
    /// Take part beyond loopback without a certificate: everyone may join, publish and read.
    pub open: bool,
    /// Public key of the network's owner (64 hexadecimal digits): only nodes with a certificate from this
    /// key are accepted. Empty: all nodes are.
    pub owner: String,
    /// This node's certificate, which `chappe key admit` prints on the owner's host; empty: none.
    pub certificate: String,
    /// Networks, as prefixes (`10.1.0.0/16`), in which this node contacts addresses that other nodes name;
    /// empty: all. For the addresses of devices see `discovery.contact`.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub reach: Vec<String>,
    /// Announce this node as an entrance, by multicast on the local network.
    pub announce: bool,
    /// Publish the devices found by multicast, so that nodes elsewhere find them.
    pub publish: bool,
    /// Search only for devices of these types, each as `{namespace}local`; empty: for all.
    pub types: Vec<String>,
    /// Time between two searches for devices.
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    pub search_period_s: u32,
    /// Bytes that one search may receive; a device takes about half a kilobyte.
    #[schemars(range(min = 65_536, max = 1_073_741_824), extend("x-unit" = "bytes"))]
    pub search_bytes: u32,
}

impl Default for Kad {
    fn default() -> Self {
        Self {
            listen: String::new(),
            entrances: Vec::new(),
            open: false,
            owner: String::new(),
            certificate: String::new(),
            reach: Vec::new(),
            announce: true,
            publish: true,
            types: Vec::new(),
            search_period_s: 60,
            search_bytes: 4 << 20,
        }
    }
}

impl Kad {
    /// The listening address, when Kademlia is on.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }

    /// The membership in an owner's network, when there is one.
    ///
    /// # Errors
    /// The key, the fault and a hint.
    pub fn membership(&self) -> Result<Option<Membership>, (&'static str, String, &'static str)> {
        const HINT: &str =
            "set the owner and certificate that `chappe key admit` prints on the owner's host";
        match (self.owner.as_str(), self.certificate.as_str()) {
            ("", "") => Ok(None),
            ("", _) => Err(("kad.certificate", "kad.owner is not set".to_owned(), HINT)),
            (_, "") => Err(("kad.owner", "kad.certificate is not set".to_owned(), HINT)),
            (owner, certificate) => {
                let owner = owner.parse::<PublicKey>();
                let owner = owner.map_err(|error| ("kad.owner", error.to_string(), HINT))?;
                let certificate = certificate.parse::<Certificate>();
                let certificate =
                    certificate.map_err(|error| ("kad.certificate", error.to_string(), HINT))?;
                Ok(Some(Membership { owner, certificate }))
            }
        }
    }

    /// Contradictions, each with its key, the fault and a hint.
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String, &'static str)> {
        let membership = self.membership();
        let mut found: Vec<_> = membership.clone().err().into_iter().collect();
        let Some(address) = self.address() else {
            if !self.entrances.is_empty() {
                let message = "kad.listen is empty, so the node does not join".to_owned();
                let hint = "set kad.listen as well, to 0.0.0.0:8473 or an address of this host";
                found.push(("kad.entrances", message, hint));
            }
            return found;
        };
        let loopback = address.ip().is_loopback();
        if !loopback && !self.open && matches!(membership, Ok(None)) {
            let message =
                format!("{address} can be reached from other machines, and everyone may join");
            let hint = "set owner and certificate under [kad], which `chappe key admit` prints on the \
                        owner's host; or open = true, to let everyone join, publish and read";
            found.push(("kad.listen", message, hint));
        }
        let is_unreachable = |entrance: &&SocketAddr| {
            entrance.ip().is_loopback() != loopback || entrance.is_ipv4() != address.is_ipv4()
        };
        if let Some(entrance) = self.entrances.iter().find(is_unreachable) {
            let message = format!("{entrance} cannot be reached from {address}");
            let hint = "a node on loopback reaches only this host, and a node on IPv4 only IPv4";
            found.push(("kad.entrances", message, hint));
        }
        found
    }

    /// The networks of `reach`.
    pub(crate) fn prefixes(&self) -> Vec<Prefix> {
        self.reach
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect()
    }
}
