//! The network interfaces of this host, with their addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use chappe_identity::Prefix;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index, which is the zone of link-local addresses.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The addresses, each with its directly connected subnet.
    pub addresses: Vec<(IpAddr, Prefix)>,
    /// Whether it is up and running.
    pub up: bool,
    /// Whether it is the loopback.
    pub loopback: bool,
    /// Whether it claims to carry multicast. The loopback does not, but carries it for IPv4.
    pub multicast: bool,
}

impl Interface {
    /// Whether discovery can use it: it is up and has an address, and is the loopback or carries multicast.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.up && !self.addresses.is_empty() && (self.loopback || self.multicast)
    }
}

/// All interfaces, ordered by index.
///
/// # Errors
/// The kernel does not report them.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<u32, Interface> = BTreeMap::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        // An interface that vanishes between the two calls is not usable either.
        let Ok(index) = if_nametoindex(entry.interface_name.as_str()) else {
            continue;
        };
        let flags = entry.flags;
        let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let interface = found.entry(index).or_insert_with(|| Interface {
            index,
            name: entry.interface_name.clone(),
            addresses: Vec::new(),
            up: flags.contains(running),
            loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
            multicast: flags.contains(InterfaceFlags::IFF_MULTICAST),
        });
        if let Some(address) = entry.address.as_ref().and_then(ip) {
            let bits = entry.netmask.as_ref().and_then(ip).map_or(128, prefix_bits);
            interface
                .addresses
                .push((address, Prefix::new(address, bits)));
        }
    }
    Ok(found.into_values().collect())
}

/// The local address from which the kernel would send to `peer`; sends nothing.
///
/// # Errors
/// There is no route.
pub fn route_source(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn prefix_bits(netmask: IpAddr) -> u8 {
    let bits = match netmask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    u8::try_from(bits).unwrap_or(128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_found_whole() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.loopback).unwrap();
        assert!(loopback.usable());
        let (_, subnet) = loopback
            .addresses
            .iter()
            .find(|(address, _)| address.is_ipv4())
            .unwrap();
        assert!(subnet.contains("127.0.1.7".parse().unwrap()));
        assert!(!subnet.contains("128.0.0.1".parse().unwrap()));
    }

    #[test]
    fn the_loopback_routes_to_itself() {
        let source = route_source("127.0.1.7:3702".parse().unwrap()).unwrap();
        assert!(source.is_loopback());
    }
}
