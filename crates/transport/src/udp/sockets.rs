//! One pair of sockets for each interface and address family.
//!
//! The group's socket is bound to the group address itself and hears only the groups it joined on
//! its own interface, so that a datagram is seen once on a host with several interfaces. The other
//! socket sends. A device's is bound to the discovery port at the device's own address: a unicast
//! datagram to a shared port reaches only one of its sockets, hence one address for each device of
//! a host. A client's has a port of its own, to which the answers come.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};

use chappe_dpws::discovery::{Inbound, Interface, Outbound};
use chappe_soap::udp::{DISCOVERY_GROUP_V4, DISCOVERY_GROUP_V6, DISCOVERY_PORT};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use crate::{Drops, Hop};

/// Which port the sending socket takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The discovery port at the device's own address, shared if it must be.
    Device,
    /// A free port, to which answers come.
    Client,
}

/// How sockets are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpOptions {
    /// Who uses them.
    pub role: Role,
    /// Routers that multicast may pass, plus one. Default 1: the link alone.
    pub ttl: u32,
    /// Receive buffer asked of the kernel, in bytes. Default 1 MiB: the answers of 200 devices at
    /// 4 KiB each; the kernel grants `net.core.rmem_max` at most.
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

/// What one pair of sockets got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketInfo {
    /// Index of the interface.
    pub interface: u32,
    /// Where it sends from.
    pub local: SocketAddr,
    /// The group it hears.
    pub group: SocketAddr,
    /// The receive buffer that the kernel granted, in bytes of payload and bookkeeping.
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
    /// Where the next look for datagrams begins, so that no socket starves the others.
    turn: usize,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for UdpSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.info()).finish()
    }
}

impl UdpSockets {
    /// Joins the group on each interface, for each address family it has an address of.
    ///
    /// What does not work is noted in `drops`; one interface that works is enough.
    ///
    /// # Errors
    /// When none works: the last reason.
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

    /// No socket: nothing is heard, and what is sent reaches nobody.
    #[must_use]
    pub fn none() -> Self {
        Self {
            pairs: Vec::new(),
            turn: 0,
            buffer: Vec::new(),
        }
    }

    /// What each pair of sockets got.
    #[must_use]
    pub fn info(&self) -> Vec<SocketInfo> {
        self.pairs.iter().map(|pair| pair.info).collect()
    }

    /// The next datagram of any socket.
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

    /// Sends at once or not at all.
    pub(super) fn send(&self, datagram: &Outbound) -> io::Result<()> {
        let to = datagram.to;
        let fits = |pair: &&Pair| pair.info.local.is_ipv4() == to.is_ipv4();
        let mut fitting = self.pairs.iter().filter(fits);
        let of_interface = |pair: &&Pair| pair.info.interface == datagram.interface;
        let pair = fitting.clone().find(of_interface);
        // An answer may leave by any interface; the group is told which.
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

/// The first address of each family; of IPv6 a link-local one, as the group's scope is the link.
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
            group.set_multicast_all_v4(false)?;
            group.bind(&group_address.into())?;
            let index = InterfaceIndexOrAddress::Index(interface);
            group.join_multicast_v4_n(&DISCOVERY_GROUP_V4, &index)?;
        }
        IpAddr::V6(_) => {
            group.set_multicast_all_v6(false)?;
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

/// The socket that sends, and receives what is sent to its address.
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

/// What can be done about an interface that does not work.
fn hint(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::AddrInUse => Some(format!(
            "another program holds port {DISCOVERY_PORT} alone: see ss -ulpn | grep {DISCOVERY_PORT}"
        )),
        io::ErrorKind::AddrNotAvailable => {
            Some("the address has gone or never was: see ip address".to_owned())
        }
        io::ErrorKind::NotFound => Some("the interface has gone: see ip link".to_owned()),
        _ => None,
    }
}
