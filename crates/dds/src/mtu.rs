//! The largest datagram that an interface sends in one frame.
//!
//! A larger one is split by the operating system, and a lost frame then costs all of it.

use std::net::IpAddr;

/// The bytes of the headers of IPv4 and UDP (RFC 791, 3.1, without options; RFC 768).
const HEADERS: usize = 20 + 8;
/// The frame of an unknown interface: Ethernet's.
const MTU_DEFAULT: usize = 1_500;
/// The smallest frame; reason: below, headers take most of a datagram, and the system has to split it.
const MTU_MIN: usize = 1_280;
/// The largest datagram; reason: UDP's limit is 65,507, and the library's headers come on top.
const DATAGRAM_MAX: usize = 65_500;

/// The bytes of a datagram that each of these interfaces sends in one frame.
pub(crate) fn datagram_bytes(interfaces: &[IpAddr]) -> usize {
    let mtu = interfaces.iter().map(|address| mtu(*address)).min();
    let mtu = mtu.unwrap_or(MTU_DEFAULT).max(MTU_MIN);
    (mtu - HEADERS).min(DATAGRAM_MAX)
}

#[cfg(target_os = "linux")]
fn mtu(address: IpAddr) -> usize {
    let read = || -> Option<usize> {
        let found = nix::ifaddrs::getifaddrs().ok()?.find(|found| {
            let known = found.address.and_then(|it| Some(it.as_sockaddr_in()?.ip()));
            known.is_some_and(|known| IpAddr::V4(known) == address)
        })?;
        // Only the system's files have it without an unsafe call.
        let file = format!("/sys/class/net/{}/mtu", found.interface_name);
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    read().unwrap_or(MTU_DEFAULT)
}

#[cfg(not(target_os = "linux"))]
fn mtu(address: IpAddr) -> usize {
    match address.is_loopback() {
        true => DATAGRAM_MAX + HEADERS,
        false => MTU_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_fits_the_smallest_frame() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(datagram_bytes(&[loopback]), DATAGRAM_MAX);
        let unknown = "192.0.2.77".parse().unwrap();
        assert_eq!(datagram_bytes(&[loopback, unknown]), 1_472);
        assert_eq!(datagram_bytes(&[]), 1_472);
    }
}
