//! How devices are found where multicast does not reach.

use std::net::SocketAddr;

use chappe_identity::{Prefix, PublicKey};
use chappe_kad::{Certificate, Membership};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How devices are found where multicast does not reach: by a distributed hash table over UDP unicast,
/// in which nodes publish the devices they know (docs/kademlia.md).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kad {
    /// UDP address and port to listen on; port 0 takes a free one, which is printed; empty: off, nothing is
    /// sent to anybody. On loopback only nodes of this host are spoken with. Beyond loopback it needs a
    /// certificate, or `kad.open = true`.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub listen: String,
    /// Addresses of nodes by which the network is entered, beside those of the last run and those that
    /// answer to multicast. The first node of a network has none. Eight are better than one: who is entered
    /// by a liar alone sees what he shows.
    #[schemars(extend("items" = {"type": "string", "format": "socket-address"}))]
    pub entrances: Vec<SocketAddr>,
    /// Take part beyond loopback without a certificate: everybody may join, publish, and read what is
    /// published.
    pub open: bool,
    /// Public key of who owns the network (64 hexadecimal digits): only nodes with his certificate are
    /// heard. Empty: everybody is.
    pub owner: String,
    /// This node's certificate, which `chappe key admit` prints on the owner's host. Empty: none.
    pub certificate: String,
    /// Networks in which addresses that other nodes name are sent to, as prefixes (`10.1.0.0/16`); empty:
    /// all. Which addresses of devices are contacted is another question: `discovery.contact`.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub reach: Vec<String>,
    /// Tell the local network by multicast that the network can be entered here.
    pub announce: bool,
    /// Publish the devices that were found by multicast, so that nodes elsewhere find them.
    pub publish: bool,
    /// Look for devices of these types alone, each as `{namespace}local`; empty: for all.
    pub types: Vec<String>,
    /// Time between two searches for devices.
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    pub search_period_s: u32,
    /// Bytes that one search may bring in; a device takes about half a kilobyte.
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
    /// Where it listens, when it is on.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }

    /// The network of one owner, when there is one.
    ///
    /// # Errors
    /// Key, what is wrong with it, and what to do.
    pub fn membership(&self) -> Result<Option<Membership>, (&'static str, String, &'static str)> {
        const BOTH: &str =
            "owner and certificate are what `chappe key admit` prints on the owner's host";
        match (self.owner.as_str(), self.certificate.as_str()) {
            ("", "") => Ok(None),
            ("", _) => Err((
                "kad.certificate",
                "there is no kad.owner to it".to_owned(),
                BOTH,
            )),
            (_, "") => Err((
                "kad.owner",
                "there is no kad.certificate to it".to_owned(),
                BOTH,
            )),
            (owner, certificate) => {
                let owner = owner.parse::<PublicKey>();
                let owner = owner.map_err(|error| ("kad.owner", error.to_string(), BOTH))?;
                let certificate = certificate.parse::<Certificate>();
                let certificate =
                    certificate.map_err(|error| ("kad.certificate", error.to_string(), BOTH))?;
                Ok(Some(Membership { owner, certificate }))
            }
        }
    }

    /// What does not go together: key, what, and what to do.
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String, &'static str)> {
        let membership = self.membership();
        let mut found: Vec<_> = membership.clone().err().into_iter().collect();
        let Some(address) = self.address() else {
            if !self.entrances.is_empty() {
                let what = "kad.listen is empty: the network is not entered".to_owned();
                let hint = "set kad.listen too, to 0.0.0.0:8473 or an address of this host";
                found.push(("kad.entrances", what, hint));
            }
            return found;
        };
        let loopback = address.ip().is_loopback();
        if !loopback && !self.open && matches!(membership, Ok(None)) {
            let what =
                format!("{address} can be reached from other machines, and everybody may join");
            let hint = "set owner and certificate under [kad], which `chappe key admit` prints on the \
                        owner's host; or open = true, to let everybody join and read what is published";
            found.push(("kad.listen", what, hint));
        }
        let apart = |entrance: &&SocketAddr| {
            entrance.ip().is_loopback() != loopback || entrance.is_ipv4() != address.is_ipv4()
        };
        if let Some(entrance) = self.entrances.iter().find(apart) {
            let what = format!("{entrance} cannot be reached from {address}");
            let hint =
                "a node on loopback speaks with this host alone, one of IPv4 with IPv4 alone";
            found.push(("kad.entrances", what, hint));
        }
        found
    }

    /// Networks that are sent to.
    pub(crate) fn prefixes(&self) -> Vec<Prefix> {
        self.reach
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect()
    }
}
