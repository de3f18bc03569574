//! The responder on sockets: one for each interface and family, bound to the group's address.
//!
//! Such a socket receives only what is sent to the group, so datagrams to the host's own port still reach the responder of
//! the system; and what it sends has the port that answers need, from an address of its interface.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};
use std::time::Duration;

use chappe_machine::{Input, Output, drain};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use super::responder::Place;
use super::{Asked, PORT, Reply, Responder, ResponderCommand, ResponderEvent};
use crate::udp::tolerate_unknown_option;
use crate::{Clock, Drops, Hop};

/// The groups (RFC 6762, section 3).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The TTL of answers (section 11); the group does not leave the link anyway.
const TTL: u32 = 255;
/// Longest datagram that is read; a longer one is cut, and refused as too short (section 17).
const DATAGRAM_BYTES_MAX: usize = 9_000;
/// Time between two looks at the interfaces, as of discovery.
const INTERFACES_PERIOD: Duration = Duration::from_secs(10);

/// Runs a responder until `end`. `addresses` are the interfaces with the addresses at which the service listens; they are
/// looked at again from time to time.
pub async fn run(
    mut responder: Responder,
    addresses: impl Fn() -> Vec<(u32, Vec<IpAddr>)>,
    end: impl Future<Output = ()>,
    drops: Drops,
) {
    let clock = Clock::process();
    let mut end = std::pin::pin!(end);
    let mut sockets = Sockets::default();
    let mut known = Vec::new();
    let mut look_at = tokio::time::Instant::now();
    let mut deadline = None;
    loop {
        let at = deadline.map(|deadline| clock.at(deadline));
        let input = tokio::select! {
            biased;
            () = &mut end => break,
            () = tokio::time::sleep_until(look_at) => {
                look_at += INTERFACES_PERIOD;
                let now = addresses();
                if now == known {
                    continue;
                }
                known = sockets.open(now, &drops);
                Input::Command(ResponderCommand::Addresses(known.clone()))
            }
            () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                if at.is_some() => Input::Timeout,
            received = poll_fn(|context| sockets.poll_receive(context)) => match received {
                Ok(asked) => Input::Receive(asked),
                Err(error) => {
                    drops.record(Hop::Network, "receiving failed", "", error.to_string(), None);
                    continue;
                }
            },
        };
        deadline = pass(&mut responder, &sockets, &clock, input, &drops);
    }
    let end = Input::Command(ResponderCommand::Shutdown);
    pass(&mut responder, &sockets, &clock, end, &drops);
}

fn pass(
    responder: &mut Responder,
    sockets: &Sockets,
    clock: &Clock,
    input: Input<Asked, ResponderCommand>,
    drops: &Drops,
) -> Option<chappe_machine::Instant> {
    drain(responder, clock.now(), input, |output| match output {
        Output::Transmit(reply) => {
            if let Err(error) = sockets.send(&reply) {
                let to = reply
                    .to
                    .map_or_else(|| "the group".to_owned(), |to| to.to_string());
                drops.record(Hop::Network, "sending failed", to, error.to_string(), None);
            }
        }
        Output::Event(ResponderEvent::Refused { from, error }) => {
            let (reason, detail) = ("multicast DNS", error.to_string());
            drops.record(Hop::Network, reason, from.ip(), detail, None);
        }
    })
}

#[derive(Default)]
struct Sockets {
    all: BTreeMap<Place, UdpSocket>,
    /// The first socket of the next poll, so that none starves the others.
    turn: usize,
}

impl Sockets {
    /// Opens those that are missing, closes those that are not needed, and returns the interfaces that have one.
    fn open(
        &mut self,
        mut wanted: Vec<(u32, Vec<IpAddr>)>,
        drops: &Drops,
    ) -> Vec<(u32, Vec<IpAddr>)> {
        let mut before = std::mem::take(&mut self.all);
        wanted.retain(|(interface, addresses)| {
            for address in addresses {
                let place = (*interface, address.is_ipv6());
                if self.all.contains_key(&place) {
                    continue;
                }
                let known = before.remove(&place);
                match known.map_or_else(|| socket(*interface, *address), Ok) {
                    Ok(socket) => drop(self.all.insert(place, socket)),
                    Err(error) => {
                        let detail = format!("interface {interface}: {error}");
                        drops.record(Hop::Network, "no multicast", address, detail, None);
                    }
                }
            }
            [false, true]
                .iter()
                .any(|is_v6| self.all.contains_key(&(*interface, *is_v6)))
        });
        wanted
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Asked>> {
        let count = self.all.len();
        let mut bytes = [0; DATAGRAM_BYTES_MAX];
        for (index, ((interface, _), socket)) in self
            .all
            .iter()
            .cycle()
            .enumerate()
            .skip(self.turn)
            .take(count)
        {
            let mut buffer = ReadBuf::new(&mut bytes);
            if let Poll::Ready(received) = socket.poll_recv_from(context, &mut buffer) {
                self.turn = (index + 1) % count;
                return Poll::Ready(received.map(|from| Asked {
                    from,
                    interface: *interface,
                    bytes: buffer.filled().to_vec(),
                }));
            }
        }
        Poll::Pending
    }

    fn send(&self, reply: &Reply) -> io::Result<()> {
        let missing = || io::Error::new(io::ErrorKind::AddrNotAvailable, "no socket for it");
        let place = (reply.interface, reply.is_v6);
        let socket = self.all.get(&place).ok_or_else(missing)?;
        let to = reply
            .to
            .unwrap_or_else(|| group(reply.interface, reply.is_v6));
        // The runtime's own try_send_to refuses until it has seen the socket writable once.
        let socket = socket2::SockRef::from(socket);
        socket.send_to(&reply.bytes, &to.into()).map(drop)
    }
}

fn group(interface: u32, is_v6: bool) -> SocketAddr {
    match is_v6 {
        false => (GROUP_V4, PORT).into(),
        true => SocketAddrV6::new(GROUP_V6, PORT, 0, interface).into(),
    }
}

fn socket(interface: u32, address: IpAddr) -> io::Result<UdpSocket> {
    let group = group(interface, address.is_ipv6());
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // The system's responder and other nodes have the same port.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    match address {
        IpAddr::V4(address) => {
            tolerate_unknown_option(socket.set_multicast_all_v4(false))?;
            socket.set_multicast_if_v4(&address)?;
            socket.set_multicast_ttl_v4(TTL)?;
            socket.set_ttl_v4(TTL)?;
            socket.set_multicast_loop_v4(true)?;
            socket.bind(&group.into())?;
            let index = InterfaceIndexOrAddress::Index(interface);
            socket.join_multicast_v4_n(&GROUP_V4, &index)?;
        }
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            tolerate_unknown_option(socket.set_multicast_all_v6(false))?;
            socket.set_multicast_if_v6(interface)?;
            socket.set_multicast_hops_v6(TTL)?;
            socket.set_unicast_hops_v6(TTL)?;
            socket.set_multicast_loop_v6(true)?;
            socket.bind(&group.into())?;
            socket.join_multicast_v6(&GROUP_V6, interface)?;
        }
    }
    UdpSocket::from_std(socket.into())
}
