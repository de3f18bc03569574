//! A pair of sockets for each interface and address family.
//!
//! The group's socket is bound to the group address, and receives only the groups joined on its own interface, so a host
//! with several interfaces receives a datagram once. The other socket sends. A device's is bound to the discovery port
//! at the device's own address: a unicast datagram to a shared port reaches only one of its sockets, so each device of
//! a host needs its own address. A client's has its own port, which receives the answers.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};

use chappe_dpws::discovery::{Inbound, Interface, Outbound};
use chappe_soap::udp::{DISCOVERY_GROUP_V4, DISCOVERY_GROUP_V6, DISCOVERY_PORT};
use nix::errno::Errno;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use crate::{Drops, Hop};

/// The port of the sending socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The discovery port at the device's own address, shared if necessary.
    Device,
    /// A free port, which receives the answers.
    Client,
}

/// Options of the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpOptions {
    /// Their user.
    pub role: Role,
    /// The multicast TTL: the number of routers plus one. Default 1: the link only.
    pub ttl: u32,
    /// The requested receive buffer, in bytes. Default 1 MiB: the answers of 200 devices with 4 KiB each. The kernel
    /// grants at most `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
}

impl UdpOptions {
    /// The defaults for a role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            ttl: 1,
            receive_buffer_bytes: 1 << 20,
        }
    }
}

/// The properties of one pair of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketInfo {
    /// The index of the interface.
    pub interface: u32,
    /// The source address.
    pub local: SocketAddr,
    /// The multicast group.
    pub group: SocketAddr,
    /// The granted receive buffer, in bytes of payload and overhead.
    pub receive_buffer_bytes: usize,
}

struct Pair {
    info: SocketInfo,
    group: UdpSocket,
    unicast: UdpSocket,
}

/// The sockets of one machine.
pub struct UdpSockets {
    pairs: Vec<Pair>,
    /// The first socket of the next poll, so that none starves the others.
    turn: usize,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for UdpSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.info()).finish()
    }
}

impl UdpSockets {
    /// Joins the group on each interface, for each address family of its addresses.
    ///
    /// Failures are recorded in `drops`; one working interface is sufficient.
    ///
    /// # Errors
    /// No interface works: the last error.
    pub fn bind(interfaces: &[Interface], options: &UdpOptions, drops: &Drops) -> io::Result<Self> {
        let mut pairs = Vec::new();
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no interface was given");
        for interface in interfaces {
            for address in one_of_each_family(&interface.addresses) {
                match pair(interface.index, address, options) {
                    Ok(pair) => pairs.push(pair),
                    Err(error) => {
                        let detail = format!("interface {}: {error}", interface.index);
                        let hint = hint(&error);
                        drops.record(Hop::Network, "no multicast", address, detail, hint);
                        last = error;
                    }
                }
            }
        }
        if pairs.is_empty() {
            return Err(last);
        }
        Ok(Self {
            pairs,
            turn: 0,
            buffer: vec![0; usize::from(u16::MAX)],
        })
    }

    /// No socket: nothing is received or sent.
    #[must_use]
    pub fn none() -> Self {
        Self {
            pairs: Vec::new(),
            turn: 0,
            buffer: Vec::new(),
        }
    }

    /// The properties of each pair of sockets.
    #[must_use]
    pub fn info(&self) -> Vec<SocketInfo> {
        self.pairs.iter().map(|pair| pair.info).collect()
    }

    /// The next datagram from any socket.
    pub(super) fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Inbound>> {
        let count = self.pairs.len() * 2;
        for step in 0..count {
            let index = (self.turn + step) % count;
            let pair = &self.pairs[index / 2];
            let multicast = index.is_multiple_of(2);
            let socket = if multicast {
                &pair.group
            } else {
                &pair.unicast
            };
            let mut buffer = ReadBuf::new(&mut self.buffer);
            if let Poll::Ready(result) = socket.poll_recv_from(context, &mut buffer) {
                self.turn = (index + 1) % count;
                return Poll::Ready(result.map(|from| Inbound {
                    from,
                    interface: pair.info.interface,
                    multicast,
                    bytes: buffer.filled().to_vec(),
                }));
            }
        }
        Poll::Pending
    }

    /// Sends immediately or not at all.
    pub(super) fn send(&self, datagram: &Outbound) -> io::Result<()> {
        let to = datagram.to;
        let fits = |pair: &&Pair| pair.info.local.is_ipv4() == to.is_ipv4();
        let mut fitting = self.pairs.iter().filter(fits);
        let of_interface = |pair: &&Pair| pair.info.interface == datagram.interface;
        let pair = fitting.clone().find(of_interface);
        // Any interface may send an answer; a multicast names its interface.
        let pair = match pair {
            None if !to.ip().is_multicast() => fitting.next(),
            pair => pair,
        };
        let missing = || io::Error::new(io::ErrorKind::AddrNotAvailable, "no socket for it");
        let pair = pair.ok_or_else(missing)?;
        // The runtime's own try_send_to refuses until it has seen the socket writable once.
        let socket = socket2::SockRef::from(&pair.unicast);
        socket.send_to(&datagram.bytes, &to.into()).map(drop)
    }
}

/// The first address of each family; for IPv6 a link-local one, since the group has link scope.
fn one_of_each_family(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    let is_link_local = |address: &&IpAddr| match address {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let v6 = addresses.iter().find(is_link_local);
    let v6 = v6.or_else(|| addresses.iter().find(|address| address.is_ipv6()));
    [v4, v6].into_iter().flatten().copied()
}

/// The result without the error of a system that does not know the option: Linux before 4.20 lacks IPV6_MULTICAST_ALL,
/// gVisor and qemu-user lack IP_MULTICAST_ALL. The socket also receives datagrams of groups that others of this host
/// joined at another interface, then.
pub(crate) fn tolerate_unknown_option(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(error) if error.raw_os_error() == Some(Errno::ENOPROTOOPT as i32) => Ok(()),
        set => set,
    }
}

fn pair(interface: u32, address: IpAddr, options: &UdpOptions) -> io::Result<Pair> {
    let group_address: SocketAddr = match address {
        IpAddr::V4(_) => (DISCOVERY_GROUP_V4, DISCOVERY_PORT).into(),
        IpAddr::V6(_) => SocketAddrV6::new(DISCOVERY_GROUP_V6, DISCOVERY_PORT, 0, interface).into(),
    };
    let group = socket(group_address, options)?;
    group.set_reuse_address(true)?;
    group.set_reuse_port(true)?;
    match address {
        IpAddr::V4(_) => {
            tolerate_unknown_option(group.set_multicast_all_v4(false))?;
            group.bind(&group_address.into())?;
            let index = InterfaceIndexOrAddress::Index(interface);
            group.join_multicast_v4_n(&DISCOVERY_GROUP_V4, &index)?;
        }
        IpAddr::V6(_) => {
            tolerate_unknown_option(group.set_multicast_all_v6(false))?;
            group.bind(&group_address.into())?;
            group.join_multicast_v6(&DISCOVERY_GROUP_V6, interface)?;
        }
    }
    let unicast = sender(interface, address, options)?;
    let local = unicast.local_addr()?.as_socket();
    let local = local.ok_or_else(|| io::Error::other("a socket without address"))?;
    let info = SocketInfo {
        interface,
        local,
        group: group_address,
        receive_buffer_bytes: unicast.recv_buffer_size()?,
    };
    Ok(Pair {
        info,
        group: UdpSocket::from_std(group.into())?,
        unicast: UdpSocket::from_std(unicast.into())?,
    })
}

/// The socket that sends, and receives datagrams to its address.
fn sender(interface: u32, address: IpAddr, options: &UdpOptions) -> io::Result<Socket> {
    let port = match options.role {
        Role::Device => DISCOVERY_PORT,
        Role::Client => 0,
    };
    let local: SocketAddr = match address {
        IpAddr::V4(address) => (address, port).into(),
        IpAddr::V6(address) => {
            let zone = if address.is_unicast_link_local() {
                interface
            } else {
                0
            };
            SocketAddrV6::new(address, port, 0, zone).into()
        }
    };
    let socket = socket(local, options)?;
    match address {
        IpAddr::V4(address) => {
            socket.set_multicast_if_v4(&address)?;
            socket.set_multicast_ttl_v4(options.ttl)?;
            socket.set_multicast_loop_v4(true)?;
        }
        IpAddr::V6(_) => {
            socket.set_multicast_if_v6(interface)?;
            socket.set_multicast_hops_v6(options.ttl)?;
            socket.set_multicast_loop_v6(true)?;
        }
    }
    if options.role == Role::Device {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

fn socket(address: SocketAddr, options: &UdpOptions) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_recv_buffer_size(options.receive_buffer_bytes)?;
    Ok(socket)
}

/// A remedy for an interface that does not work, if one is known.
fn hint(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::AddrInUse => Some(format!(
            "another program uses port {DISCOVERY_PORT} exclusively: ss -ulpn | grep {DISCOVERY_PORT}"
        )),
        io::ErrorKind::AddrNotAvailable => {
            Some("this host does not have the address: ip address".to_owned())
        }
        io::ErrorKind::NotFound => Some("the interface does not exist: ip link".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_option_is_tolerated() {
        let failed = |errno: Errno| Err(io::Error::from_raw_os_error(errno as i32));
        assert!(tolerate_unknown_option(failed(Errno::ENOPROTOOPT)).is_ok());
        assert!(tolerate_unknown_option(failed(Errno::EPERM)).is_err());
    }
}
