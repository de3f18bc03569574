//! The loop between a socket and the machine.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::{
    Command, Counters, DATAGRAM_BYTES_MAX, Guard, Message, Transmit, Tree, TreeEvent,
};
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::Windows;
use super::send_cost::SendCost;
use crate::{Clock, Drops, Hop};

/// Datagrams read from the socket before commands get a turn.
const DATAGRAMS_AT_ONCE: usize = 64;
/// The largest number of topics with heartbeats.
const TOPICS_MAX: usize = 1_024;

/// Options of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeOptions {
    /// The pause of a source after which it spreads a heartbeat; it also does so when its membership changes.
    /// Default 30 s: dead sinks are known before the next event, for two short messages a sink in that time.
    /// `None`: never.
    pub heartbeat: Option<Duration>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            heartbeat: Some(Duration::from_secs(30)),
        }
    }
}

/// Runs `machine` on `socket` until the commands end; returns the machine.
///
/// Each window is stored in `windows` before its event is delivered. If that fails the event is neither delivered nor
/// acknowledged, and the failure is recorded in `drops`, which also counts the messages rejected by the machine. The
/// cost of a send is measured, and set in the machine when it has changed by half. While the receiver of events is
/// full no datagrams are read (the kernel's buffer bounds them), but timers continue. A timer rings only after all
/// received datagrams are processed. It ends early if the receiver of events is dropped.
pub async fn run_tree<G: Guard, W: Windows>(
    machine: Tree<G>,
    socket: UdpSocket,
    mut commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<TreeEvent>,
    (mut windows, options): (W, TreeOptions),
    drops: Drops,
) -> Tree<G> {
    let clock = Clock::process();
    let mut node = Node {
        clock,
        send_cost: SendCost::assume(machine.send_cost()),
        machine,
        socket,
        drops,
        pending: VecDeque::new(),
        datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX),
        quiet: Vec::new(),
        heartbeat: options.heartbeat,
        counted: [0; REJECTED_REASONS.len()],
    };
    // One byte more than the largest datagram, so that a longer one is detected.
    let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
    loop {
        let has_backlog = !node.pending.is_empty();
        let beat = node.quiet.iter().map(|(_, at)| *at).min();
        let deadline = node.machine.deadline().into_iter().chain(beat).min();
        let at = deadline.map(|deadline| clock.at(deadline));
        tokio::select! {
            biased;
            permit = events.reserve(), if has_backlog => {
                let Ok(permit) = permit else { return node.machine };
                if let Some(event) = node.pending.pop_front() {
                    permit.send(event);
                }
                continue;
            }
            ready = node.socket.readable(), if !has_backlog => {
                if let Err(error) = ready {
                    node.note("receiving failed", &error);
                }
                for _ in 0..DATAGRAMS_AT_ONCE {
                    match node.socket.try_recv(&mut buffer) {
                        Ok(length) => {
                            let now = clock.now();
                            if let Ok(message) = node.machine.open(now, &buffer[..length]) {
                                node.input(now, Input::Receive(message), &mut windows);
                            }
                        }
                        Err(error) => {
                            // An earlier datagram was undeliverable: the machine notices the silence.
                            let usual =
                                [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused];
                            if !usual.contains(&error.kind()) {
                                node.note("receiving failed", &error);
                            }
                            break;
                        }
                    }
                }
            }
            command = commands.recv() => match command {
                Some(command) => {
                    let now = clock.now();
                    node.postpone_heartbeat(now, &command);
                    node.input(now, Input::Command(command), &mut windows);
                }
                None => return node.machine,
            },
            () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                if at.is_some() => {
                let now = clock.now();
                node.send_heartbeats(now, &mut windows);
                node.input(now, Input::Timeout, &mut windows);
            }
        }
        node.count();
        if let Some(send_cost) = node.send_cost.changed_mean() {
            let measured = Input::Command(Command::SendCost(send_cost));
            node.input(clock.now(), measured, &mut windows);
        }
        // The usual case does not wait: there is room.
        while let Some(event) = node.pending.pop_front() {
            if let Err(error) = events.try_send(event) {
                match error {
                    mpsc::error::TrySendError::Full(event) => node.pending.push_front(event),
                    mpsc::error::TrySendError::Closed(_) => return node.machine,
                }
                break;
            }
        }
    }
}

struct Node<G> {
    clock: Clock,
    send_cost: SendCost,
    machine: Tree<G>,
    socket: UdpSocket,
    drops: Drops,
    pending: VecDeque<TreeEvent>,
    /// The buffer of the current datagram.
    datagram: Vec<u8>,
    /// Topics of which this node is the source, with the time of their next heartbeat.
    quiet: Vec<(u64, Instant)>,
    heartbeat: Option<Duration>,
    /// The counts of rejected messages at the last report.
    counted: [u64; REJECTED_REASONS.len()],
}

/// The reasons for which the machine rejects messages.
const REJECTED_REASONS: [&str; 10] = [
    "tree datagram unreadable",
    "tree datagram not authentic",
    "tree datagram of another topic",
    "duplicate event",
    "event too old",
    "range of another sink",
    "unexpected answer",
    "too many ranges of an event",
    "too many repairs",
    "too many events of an unverified source",
];

/// Their counts, in the same order.
fn rejected_counts(of: &Counters) -> [u64; REJECTED_REASONS.len()] {
    [
        of.malformed,
        of.unauthenticated,
        of.not_subscribed,
        of.duplicates,
        of.old,
        of.misdirected,
        of.unasked,
        of.overloaded,
        of.repairs_refused,
        of.unverified,
    ]
}

impl<G: Guard> Node<G> {
    /// Postpones the heartbeat of a topic with a publication; a new topic starts with one.
    fn postpone_heartbeat(&mut self, now: Instant, command: &Command) {
        let Some(period) = self.heartbeat else { return };
        let (topic, at) = match command {
            Command::Publisher { membership, .. } => (membership.topic(), now),
            Command::Publish { topic, .. } => (*topic, now + period),
            Command::Leave { topic } => {
                self.quiet.retain(|(known, _)| known != topic);
                return;
            }
            Command::Membership { membership, .. } => {
                let of = |known: &&mut (u64, Instant)| known.0 == membership.topic();
                if let Some(known) = self.quiet.iter_mut().find(of) {
                    known.1 = now;
                }
                return;
            }
            _ => return,
        };
        match self.quiet.iter().position(|(known, _)| *known == topic) {
            Some(known) => self.quiet[known].1 = at,
            None if self.quiet.len() < TOPICS_MAX => self.quiet.push((topic, at)),
            None => {}
        }
    }

    /// Spreads due heartbeats.
    fn send_heartbeats<W: Windows>(&mut self, now: Instant, windows: &mut W) {
        let Some(period) = self.heartbeat else { return };
        for index in 0..self.quiet.len() {
            let (topic, at) = self.quiet[index];
            if at <= now {
                self.quiet[index].1 = now + period;
                self.input(now, Input::Command(Command::Heartbeat { topic }), windows);
            }
        }
    }

    fn input<W: Windows>(&mut self, now: Instant, input: Input<Message, Command>, windows: &mut W) {
        self.machine.handle_input(now, input);
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Transmit(transmit) => self.transmit(&transmit),
                Output::Event(TreeEvent::Remember { topic, window }) => {
                    if let Err(error) = windows.store(topic, &window) {
                        // It would be delivered again after a restart, so it counts as not received.
                        self.machine.reject_window();
                        self.note("a window is not kept", &error);
                    }
                }
                Output::Event(event) => self.pending.push_back(event),
            }
        }
    }

    fn transmit(&mut self, transmit: &Transmit) {
        let send = || {
            self.machine.seal(transmit, &mut self.datagram);
            // The runtime's own try_send_to refuses until it has seen the socket writable once.
            let socket = SockRef::from(&self.socket);
            socket.send_to(&self.datagram, &transmit.address.into())
        };
        let Err(error) = self.send_cost.time(|| self.clock.now(), send) else {
            return;
        };
        let reason = match error.kind() {
            io::ErrorKind::WouldBlock => "send buffer full",
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "no route",
            io::ErrorKind::PermissionDenied => "sending forbidden",
            // The error of an earlier datagram; this one may be sent.
            io::ErrorKind::ConnectionRefused => return,
            _ => "sending failed",
        };
        let to = transmit.address.ip();
        self.drops
            .record(Hop::Network, reason, to, error.to_string(), None);
    }

    /// Counts newly rejected messages. (Forged events and false coverage are events of the machine.)
    fn count(&mut self) {
        let now = rejected_counts(&self.machine.counters());
        if now == self.counted {
            return;
        }
        let before = std::mem::replace(&mut self.counted, now);
        for ((reason, now), before) in REJECTED_REASONS.iter().zip(now).zip(before) {
            if now > before {
                self.drops.count(now - before, Hop::Event, reason);
            }
        }
    }

    fn note(&self, reason: &'static str, error: &io::Error) {
        self.drops
            .record(Hop::Network, reason, "", error.to_string(), None);
    }
}
