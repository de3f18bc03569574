//! Settings for being a discovery proxy, and for using others.

use std::net::SocketAddr;

use chappe_dpws::discovery::managed::PROXIES_MAX;
use chappe_identity::Contact;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Discovery;

/// Being a discovery proxy: the node answers for its devices, and for those that register with it, where
/// multicast does not reach (docs/reference/discovery-proxy.md).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiscoveryProxy {
    /// Address and port for requests by HTTP, or HTTPS with `tls`; port 0 picks a free one; empty:
    /// the node is not a discovery proxy. Requests are also accepted at `/discovery` of
    /// `http.listen`, and over UDP at port 3702 of `discovery.interfaces`. Everyone who can connect
    /// may register devices at their own address, and list the registered devices.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub listen: String,
    /// Use only HTTPS at `listen`, with the certificates of `[devices.tls]`: each device and client
    /// needs one that the node trusts.
    pub tls: bool,
}

impl DiscoveryProxy {
    /// The listening address, if the node is a discovery proxy.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

impl Discovery {
    /// The discovery proxies to ask.
    #[must_use]
    pub fn proxy_contacts(&self) -> Vec<Contact> {
        let parsed = self.proxies.iter().map(|url| Contact::parse(url, 0));
        parsed.filter_map(Result::ok).collect()
    }

    /// The fault in `proxies`, with a remedy: an entry is no address, or there are too many.
    pub(super) fn wrong_proxy(&self) -> Option<(String, &'static str)> {
        let malformed = self.proxies.iter().find_map(|url| {
            let refusal = Contact::parse(url, 0).err()?;
            let hint = "write its URL with an IP address, such as \"http://192.0.2.7:8474/\"";
            Some((format!("{url}: {refusal}"), hint))
        });
        let count = self.proxies.len();
        malformed.or_else(|| {
            let message = format!("{count} proxies (limit {PROXIES_MAX})");
            (count > PROXIES_MAX).then_some((message, "one and a second for its outage suffice"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_that_would_not_be_asked_are_refused() {
        let of = |proxies: Vec<String>| Discovery {
            proxies,
            ..Discovery::default()
        };
        let url = |number: usize| format!("http://192.0.2.{number}:8474/");
        assert_eq!(of((0..PROXIES_MAX).map(url).collect()).wrong_proxy(), None);
        let (message, _) = of((0..=PROXIES_MAX).map(url).collect())
            .wrong_proxy()
            .unwrap();
        assert!(message.contains("limit 8"), "{message}");
        let (message, hint) = of(vec!["http://proxy/".to_owned()]).wrong_proxy().unwrap();
        assert!(message.starts_with("http://proxy/") && hint.contains("IP address"));
    }
}
