//! The loop between the socket and the machine.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use chappe_kad::{Command, Cryptography, Datagram, Event, Kad, PACKET_BYTES_MAX};
use chappe_machine::{Input, Machine, Output, drain};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::{Clock, Drops, Hop};

/// Datagrams read from the socket before timers and commands get a turn.
const DATAGRAMS_AT_ONCE: usize = 64;

/// Options of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KadOptions {
    /// The requested receive buffer, in bytes. Default 1 MiB: a thousand packets. The kernel grants at most
    /// `net.core.rmem_max`.
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
/// The operating system fails.
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

/// Runs `machine` on `socket` until the commands end; returns the machine.
///
/// No event of the machine is lost: while the receiver of events is full no datagrams are read (the kernel's buffer
/// bounds them, and drops the excess), but timers continue. It ends early if the receiver of events is dropped.
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
    // One byte more than the largest packet, so that a longer one is detected.
    let mut buffer = [0; PACKET_BYTES_MAX + 1];
    loop {
        let at = deadline.map(|deadline| clock.at(deadline));
        let has_backlog = !pending.is_empty();
        let input = tokio::select! {
            biased;
            permit = events.reserve(), if has_backlog => {
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
            ready = socket.readable(), if !has_backlog => match ready {
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
                            // An earlier packet was undeliverable: the machine notices the silence.
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
        // The usual case does not wait: there is room.
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
        // The error of an earlier packet; this one may be sent.
        io::ErrorKind::ConnectionRefused => return,
        _ => "sending failed",
    };
    let to = datagram.address.ip();
    drops.record(Hop::Network, reason, to, error.to_string(), None);
}
