//! Settings for being a discovery proxy, and for using others.

use std::net::SocketAddr;

use chappe_identity::Contact;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Discovery;

/// Being a discovery proxy: the node answers for its devices, and for those that register with it, where
/// multicast does not reach (docs/discovery-proxy.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiscoveryProxy {
    /// Address and port for requests by HTTP; port 0 picks a free one; empty: the node is no discovery proxy.
    /// Requests by HTTPS come to `/discovery` of `http.listen`, and requests by UDP to port 3702 of
    /// `discovery.interfaces`. Everyone who can connect may register devices of its own address, and read
    /// which devices there are.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub listen: String,
}

impl DiscoveryProxy {
    /// The listening address, if the node is a discovery proxy.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

impl Discovery {
    /// The discovery proxies to ask.
    pub(crate) fn proxy_contacts(&self) -> Vec<Contact> {
        let parsed = self.proxies.iter().map(|url| Contact::parse(url, 0));
        parsed.filter_map(Result::ok).collect()
    }

    /// Entries of `proxies` that are no addresses, each with the fault.
    pub(super) fn wrong_proxy(&self) -> Option<String> {
        self.proxies.iter().find_map(|url| {
            let refusal = Contact::parse(url, 0).err()?;
            Some(format!("{url}: {refusal}"))
        })
    }
}
