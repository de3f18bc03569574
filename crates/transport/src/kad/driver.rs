//! The socket, and the loop that joins it with the machine.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use chappe_kad::{Command, Cryptography, Datagram, Event, Kad, PACKET_BYTES_MAX};
use chappe_machine::{Input, Machine, Output, drain};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::{Clock, Drops, Hop};

/// Datagrams taken from the socket before timers and commands have their turn again.
const DATAGRAMS_AT_ONCE: usize = 64;

/// How the socket is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KadOptions {
    /// Receive buffer asked of the kernel, in bytes. Default 1 MiB: a thousand packets; the kernel
    /// grants `net.core.rmem_max` at most.
    pub receive_buffer_bytes: usize,
}

impl Default for KadOptions {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 1 << 20,
        }
    }
}

/// A socket for one node at this address; port 0 takes a free one.
///
/// # Errors
/// What the operating system says.
pub fn bind(address: SocketAddr, options: &KadOptions) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_recv_buffer_size(options.receive_buffer_bytes)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Runs `machine` on `socket` until the commands end; gives the machine back.
///
/// Nothing that the machine says is lost: while the receiver of events is behind, no datagrams are
/// read (the kernel's buffer is the bound, and drops what exceeds it), but timers go on. It ends
/// early when the receiver of events is gone.
pub async fn run_kad<C: Cryptography>(
    mut machine: Kad<C>,
    socket: UdpSocket,
    mut commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<Event>,
    drops: Drops,
) -> Kad<C> {
    let clock = Clock::process();
    let mut pending: VecDeque<Event> = VecDeque::new();
    let mut deadline = machine.deadline();
    // One byte more than a packet has, so that a longer one is seen to be too long.
    let mut buffer = [0; PACKET_BYTES_MAX + 1];
    loop {
        let at = deadline.map(|deadline| clock.at(deadline));
        let behind = !pending.is_empty();
        let input = tokio::select! {
            biased;
            permit = events.reserve(), if behind => {
                let Ok(permit) = permit else { return machine };
                if let Some(event) = pending.pop_front() {
                    permit.send(event);
                }
                continue;
            }
            () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                if at.is_some() => Some(Input::Timeout),
            command = commands.recv() => match command {
                Some(command) => Some(Input::Command(command)),
                None => return machine,
            },
            ready = socket.readable(), if !behind => match ready {
                Ok(()) => None,
                Err(error) => {
                    note(&drops, "receiving failed", &error);
                    continue;
                }
            },
        };
        let mut take = |output| match output {
            Output::Transmit(datagram) => transmit(&socket, &datagram, &drops),
            Output::Event(event) => pending.push_back(event),
        };
        match input {
            Some(input) => deadline = drain(&mut machine, clock.now(), input, &mut take),
            None => {
                for _ in 0..DATAGRAMS_AT_ONCE {
                    let (bytes, address) = match socket.try_recv_from(&mut buffer) {
                        Ok((length, address)) => (buffer[..length].to_vec(), address),
                        Err(error) => {
                            // An earlier packet reached nobody: the machine sees that by itself.
                            let usual =
                                [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused];
                            if !usual.contains(&error.kind()) {
                                note(&drops, "receiving failed", &error);
                            }
                            break;
                        }
                    };
                    let input = Input::Receive(Datagram { address, bytes });
                    deadline = drain(&mut machine, clock.now(), input, &mut take);
                }
            }
        }
        // The usual case without waiting: there is room.
        while let Some(event) = pending.pop_front() {
            if let Err(error) = events.try_send(event) {
                match error {
                    mpsc::error::TrySendError::Full(event) => pending.push_front(event),
                    mpsc::error::TrySendError::Closed(_) => return machine,
                }
                break;
            }
        }
    }
}

fn note(drops: &Drops, reason: &'static str, error: &io::Error) {
    drops.record(Hop::Network, reason, "", error.to_string(), None);
}

fn transmit(socket: &UdpSocket, datagram: &Datagram, drops: &Drops) {
    // The runtime's own try_send_to refuses until it has seen the socket writable once.
    let sent = SockRef::from(socket).send_to(&datagram.bytes, &datagram.address.into());
    let Err(error) = sent else { return };
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock => "send buffer full",
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "no route",
        io::ErrorKind::PermissionDenied => "sending forbidden",
        // What an earlier packet met; this one may go.
        io::ErrorKind::ConnectionRefused => return,
        _ => "sending failed",
    };
    let to = datagram.address.ip();
    drops.record(Hop::Network, reason, to, error.to_string(), None);
}
