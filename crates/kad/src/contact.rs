//! The key and address of a node, and the addresses that a stranger may make this node send to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use chappe_identity::{Prefix, PublicKey};
use chappe_machine::wire::Reader;

/// A node: its public key, which determines its place, and its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Contact {
    /// Its public key.
    pub public: PublicKey,
    /// The receiving address: IPv4, or IPv6 without a zone.
    pub address: SocketAddr,
}

/// The addresses named by other nodes that this node may send to.
///
/// Never: unspecified, multicast, broadcast and link-local addresses, port 0, and the addresses of
/// cloud metadata services.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reach {
    /// Allows addresses of this host too. Default false; for networks on one host, and tests.
    pub loopback: bool,
    /// Allows only these, if any are given. Default: all that are not excluded.
    pub only: Vec<Prefix>,
}

impl Reach {
    /// Whether this node may send to `address`.
    #[must_use]
    pub fn allows(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let fit = match ip {
            IpAddr::V4(ip) => !(ip.is_broadcast() || ip.is_link_local() || ip.octets()[0] == 0),
            IpAddr::V6(ip) => {
                ip != Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
                    && !ip.is_unicast_link_local()
            }
        };
        address.port() != 0
            && fit
            && !ip.is_unspecified()
            && !ip.is_multicast()
            && (self.loopback || !ip.is_loopback())
            && (self.only.is_empty() || self.only.iter().any(|prefix| prefix.contains(ip)))
    }
}

/// The part of an address that counts as one host: an IPv4 address, or the first 64 bits of IPv6.
///
/// The holder of one address in an IPv6 subnet has all of them.
pub(crate) fn host(address: &PackedAddress) -> u64 {
    let [head, tail] = [&address.ip[..8], &address.ip[8..]].map(|half| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(half);
        u64::from_be_bytes(bytes)
    });
    // An IPv4 address is mapped: its first bytes are zero.
    if head == 0 { tail } else { head }
}

/// An address in 18 bytes; a `SocketAddr` takes 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PackedAddress {
    ip: [u8; 16],
    port: u16,
}

impl From<SocketAddr> for PackedAddress {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self {
            ip: ip.octets(),
            port: address.port(),
        }
    }
}

impl From<PackedAddress> for SocketAddr {
    fn from(packed: PackedAddress) -> Self {
        (Ipv6Addr::from(packed.ip).to_canonical(), packed.port).into()
    }
}

/// Bytes of an IPv4 address with port and family in a message.
pub(crate) const ADDRESS_V4_BYTES: usize = 7;
/// Bytes of an IPv6 address with port and family in a message.
pub(crate) const ADDRESS_V6_BYTES: usize = 19;
/// Bytes of the longest contact in a message.
pub(crate) const CONTACT_BYTES_MAX: usize = 32 + ADDRESS_V6_BYTES;

impl Contact {
    /// Its length in a message, in bytes.
    pub(crate) fn wire_bytes(&self) -> usize {
        match self.address.ip().to_canonical() {
            IpAddr::V4(_) => 32 + ADDRESS_V4_BYTES,
            IpAddr::V6(_) => CONTACT_BYTES_MAX,
        }
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.public.as_bytes());
        match self.address.ip().to_canonical() {
            IpAddr::V4(ip) => {
                to.push(4);
                to.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                to.push(6);
                to.extend_from_slice(&ip.octets());
            }
        }
        to.extend_from_slice(&self.address.port().to_be_bytes());
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let public = PublicKey::new(from.array()?);
        let ip: IpAddr = match from.byte()? {
            4 => Ipv4Addr::from(from.array::<4>()?).into(),
            6 => {
                let ip = Ipv6Addr::from(from.array::<16>()?);
                // One encoding for each address.
                if ip.to_ipv4_mapped().is_some() {
                    return None;
                }
                ip.into()
            }
            _ => return None,
        };
        let port = u16::from_be_bytes(from.array()?);
        let address = SocketAddr::from((ip, port));
        Some(Self { public, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_nobody_should_be_sent_to_are_ruled_out() {
        let allows = |reach: &Reach, text: &str| reach.allows(text.parse().unwrap());
        let open = Reach::default();
        for text in [
            "0.0.0.0:1",
            "0.1.2.3:1",
            "127.0.0.1:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "169.254.169.254:80",
            "10.0.0.1:0",
            "[::]:1",
            "[::1]:1",
            "[ff02::1]:1",
            "[fe80::1]:1",
            "[fd00:ec2::254]:80",
            "[::ffff:127.0.0.1]:1",
            "[::ffff:224.0.0.1]:1",
        ] {
            assert!(!allows(&open, text), "{text}");
        }
        assert!(allows(&open, "10.0.0.1:1") && allows(&open, "[2001:db8::1]:1"));
        let local = Reach {
            loopback: true,
            ..Reach::default()
        };
        assert!(allows(&local, "127.0.0.1:1") && allows(&local, "[::1]:1"));
        let narrow = Reach {
            only: vec!["10.1.0.0/16".parse().unwrap()],
            ..Reach::default()
        };
        assert!(allows(&narrow, "10.1.2.3:1") && !allows(&narrow, "10.2.2.3:1"));
    }

    #[test]
    fn packing_loses_nothing_and_hosts_are_told_apart() {
        for text in ["10.0.0.1:7", "[2001:db8::1]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(SocketAddr::from(PackedAddress::from(address)), address);
        }
        let host = |text: &str| host(&text.parse::<SocketAddr>().unwrap().into());
        assert_eq!(host("10.0.0.1:7"), host("10.0.0.1:8"));
        assert_ne!(host("10.0.0.1:7"), host("10.0.0.2:7"));
        assert_eq!(host("[2001:db8::1]:7"), host("[2001:db8::2]:7"));
        assert_ne!(host("[2001:db8::1]:7"), host("[2001:db8:0:1::1]:7"));
    }
}
