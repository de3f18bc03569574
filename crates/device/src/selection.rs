//! Selects the interfaces and addresses of a device or client.

use std::net::IpAddr;

use chappe_dpws::discovery;
use chappe_transport::{Interface, interfaces};

use crate::Error;

/// The selected interfaces and addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// Every interface that is up and carries multicast, except the loopback.
    #[default]
    Network,
    /// Those, and the loopback.
    All,
    /// The interfaces with these names.
    Named(Vec<String>),
    /// These addresses; on the loopback any of its subnet, such as 127.0.1.7.
    Addresses(Vec<IpAddr>),
    /// None: for a client that learns of devices by other means. A device needs at least one.
    Nowhere,
}

impl Selection {
    /// The current interfaces that match.
    ///
    /// # Errors
    /// No interface matches.
    pub fn resolve(&self) -> Result<Vec<discovery::Interface>, Error> {
        let all = interfaces().map_err(|source| Error::Listen { at: None, source })?;
        let selected = match self {
            Self::Nowhere => return Ok(Vec::new()),
            Self::Network => whole_interfaces(&all, |interface| !interface.loopback),
            Self::All => whole_interfaces(&all, |_| true),
            Self::Named(names) => {
                whole_interfaces(&all, |interface| names.contains(&interface.name))
            }
            Self::Addresses(addresses) => {
                let mut selected: Vec<discovery::Interface> = Vec::new();
                for address in addresses {
                    let index = index_of(&all, *address)?;
                    match selected.iter_mut().find(|known| known.index == index) {
                        Some(known) => known.addresses.push(*address),
                        None => selected.push(discovery::Interface {
                            index,
                            addresses: vec![*address],
                        }),
                    }
                }
                selected
            }
        };
        if selected.is_empty() {
            let names: Vec<&str> = all
                .iter()
                .map(|interface| interface.name.as_str())
                .collect();
            let names = names.join(", ");
            let missing = match self {
                Self::Named(wanted) => {
                    format!("{} is missing, down or has no multicast", wanted.join(", "))
                }
                Self::Network => "only the loopback has an address and multicast".to_owned(),
                _ => "none has an address and multicast".to_owned(),
            };
            let found = format!("{missing} (interfaces: {names})");
            return Err(Error::NoInterface(found));
        }
        Ok(selected)
    }
}

fn whole_interfaces(
    all: &[Interface],
    wanted: impl Fn(&Interface) -> bool,
) -> Vec<discovery::Interface> {
    let usable = all.iter().filter(|interface| interface.usable());
    let wanted = usable.filter(|interface| wanted(interface));
    wanted
        .map(|interface| discovery::Interface {
            index: interface.index,
            addresses: interface
                .addresses
                .iter()
                .map(|(address, _)| *address)
                // The loopback carries multicast of IPv4 only.
                .filter(|address| !interface.loopback || address.is_ipv4())
                .collect(),
        })
        .filter(|interface| !interface.addresses.is_empty())
        .collect()
}

fn index_of(all: &[Interface], address: IpAddr) -> Result<u32, Error> {
    let has = |interface: &&Interface| {
        let mut addresses = interface.addresses.iter();
        addresses.any(|(own, subnet)| {
            *own == address || (interface.loopback && subnet.contains(address))
        })
    };
    match all.iter().find(has) {
        Some(interface) => Ok(interface.index),
        None => Err(Error::NoInterface(format!(
            "{address} is not an address of any interface"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_need_not_be_configured() {
        let address: IpAddr = "127.0.1.7".parse().unwrap();
        let selected = Selection::Addresses(vec![address]).resolve().unwrap();
        assert_eq!(selected[0].addresses, [address]);
        let foreign = Selection::Addresses(vec!["203.0.113.9".parse().unwrap()]);
        assert!(matches!(foreign.resolve(), Err(Error::NoInterface(_))));
        let none = Selection::Named(vec!["no such interface".into()]);
        assert!(none.resolve().unwrap_err().hint().is_some());
    }
}
