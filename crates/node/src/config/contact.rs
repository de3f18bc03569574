//! Which addresses the node contacts when others name them.

use chappe_identity::{AddressPolicy, Prefix};

use super::{Config, Discovery};

impl Discovery {
    /// The policy for addresses that unauthenticated messages name.
    pub(crate) fn contact_policy(&self) -> AddressPolicy {
        let prefixes = self.contact.iter();
        let prefixes = prefixes.filter_map(|prefix| prefix.parse::<Prefix>().ok());
        prefixes.fold(AddressPolicy::default(), AddressPolicy::allow)
    }
}

impl Config {
    /// The policy for addresses that clients name.
    pub(crate) fn contact_policy(&self) -> AddressPolicy {
        let prefixes = self.exchange.contacts();
        prefixes
            .fold(self.discovery.contact_policy(), AddressPolicy::allow)
            .loopback_by_prefix()
    }
}
