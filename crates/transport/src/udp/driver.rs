//! Drives a machine with datagrams, commands and time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use chappe_dpws::discovery::{Inbound, Outbound};
use chappe_machine::{Input, Instant, Machine, Output, drain};
use tokio::sync::mpsc;

use super::UdpSockets;
use crate::{Clock, Drops, Hop};

/// A command for the driver.
#[derive(Debug)]
pub enum Order<C> {
    /// A command for the machine.
    Command(C),
    /// Replaces the sockets: the interfaces have changed.
    Sockets(UdpSockets),
}

/// Runs `machine` on `sockets` until the orders end; returns the machine.
///
/// No event of the machine is lost: while the receiver of events is full no datagrams are read (the kernel's buffer
/// bounds them, and drops the excess), but timers continue. It ends early if the receiver of events is dropped.
pub async fn run_udp<M>(
    mut machine: M,
    mut sockets: UdpSockets,
    mut orders: mpsc::Receiver<Order<M::Command>>,
    events: mpsc::Sender<M::Event>,
    drops: Drops,
) -> M
where
    M: Machine<Receive = Inbound, Transmit = Outbound>,
{
    let clock = Clock::process();
    let mut pending: VecDeque<M::Event> = VecDeque::new();
    let mut deadline: Option<Instant> = machine.deadline();
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
                if at.is_some() => Input::Timeout,
            order = orders.recv() => match order {
                Some(Order::Command(command)) => Input::Command(command),
                Some(Order::Sockets(new)) => {
                    sockets = new;
                    continue;
                }
                None => return machine,
            },
            datagram = poll_fn(|context| sockets.poll_receive(context)), if !has_backlog => {
                match datagram {
                    Ok(datagram) => Input::Receive(datagram),
                    Err(error) => {
                        let reason = "receiving failed";
                        drops.record(Hop::Network, reason, "", error.to_string(), None);
                        continue;
                    }
                }
            }
        };
        deadline = drain(&mut machine, clock.now(), input, |output| match output {
            Output::Transmit(datagram) => transmit(&sockets, &datagram, &drops),
            Output::Event(event) => pending.push_back(event),
        });
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

fn transmit(sockets: &UdpSockets, datagram: &Outbound, drops: &Drops) {
    let Err(error) = sockets.send(datagram) else {
        return;
    };
    let to = datagram.to.ip();
    let (reason, hint) = match error.kind() {
        io::ErrorKind::WouldBlock => ("send buffer full", None),
        io::ErrorKind::NetworkUnreachable => {
            let hint = if to.is_multicast() {
                "add a multicast route: ip route add 239.0.0.0/8 dev INTERFACE"
            } else {
                "check the route to that address: ip route get ADDRESS"
            };
            ("no route", Some(hint.to_owned()))
        }
        io::ErrorKind::PermissionDenied => {
            let hint = "a firewall of this host forbids it: nft list ruleset";
            ("sending forbidden", Some(hint.to_owned()))
        }
        _ => ("sending failed", None),
    };
    drops.record(Hop::Network, reason, to, error.to_string(), hint);
}
