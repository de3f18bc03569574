//! The device's side of discovery.

mod announce;
mod answer;
mod api;
mod managed;
mod written;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_soap::udp::{Outbox, random_urn};
use chappe_xml::Str;

use super::intake::{self, Dropped, IntakeState};
use super::rate::Buckets;
use super::{DropCounts, Inbound, Outbound, Retransmission};
use crate::Dialect;

pub(super) use answer::limit_copies;
pub use api::{Command, Config, Event};
pub(super) use written::same_family;

/// Bytes sent per byte received, retransmissions included. Reason: the client's address is
/// unproven, and an answer must not amplify a flood.
pub const AMPLIFICATION_MAX: usize = 3;

/// The machine that announces one device and answers requests for it, in one dialect or both.
///
/// ```
/// use chappe_dpws::discovery::{Interface, TargetService, target_service::{Command, Config}};
/// use chappe_machine::{Harness, Input, Output};
/// let mut config = Config::new("urn:uuid:4e1f3a3e-6a3b-4b7f-9d2c-0a1b2c3d4e5f", 1, 7);
/// let lo = Interface { index: 1, addresses: vec!["127.0.0.1".parse().unwrap()] };
/// config.interfaces = vec![(lo, vec!["http://127.0.0.1:5357/".into()])];
/// config.app_max_delay = std::time::Duration::ZERO;
/// let mut harness = Harness::new(TargetService::new(config), 7);
/// let outputs = harness.input(Input::Command(Command::Start)).unwrap();
/// let Output::Transmit(hello) = &outputs[0] else { panic!("no Hello") };
/// assert_eq!(hello.to, "239.255.255.250:3702".parse().unwrap());
/// ```
#[derive(Debug)]
pub struct TargetService {
    config: Config,
    state: State,
    random: fastrand::Rng,
    intake: IntakeState,
    answer_rate: Buckets,
    message_number: u32,
    /// Messages encoded when they are due, so that their numbers increase in the order of sending.
    pending: BTreeMap<(Instant, u64), PendingMessage>,
    last_pending: u64,
    /// When the Hello to discovery proxies is repeated.
    renewal: Option<Instant>,
    outbox: Outbox,
    outputs: VecDeque<Output<Outbound, Event>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Started,
    Stopping,
}

#[derive(Debug, Clone)]
struct PendingMessage {
    to: SocketAddr,
    interface: u32,
    dialect: Dialect,
    kind: Kind,
    retransmission: Retransmission,
    /// Omits the optional scopes if the full message is too large.
    without_scopes: bool,
    /// Whether the client takes EXI.
    as_exi: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    Hello,
    Bye,
    ProbeMatch { relates_to: Str, to: Str },
    NoMatch { relates_to: Str, to: Str },
    ResolveMatch { relates_to: Str, to: Str },
    UnknownRule { relates_to: Str, to: Str },
}

impl TargetService {
    /// A stopped target service; [`Command::Start`] starts it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed);
        Self {
            state: State::Idle,
            intake: IntakeState::new(config.seen_capacity, random.u64(..)),
            answer_rate: Buckets::per_subnet(config.answers_burst, config.answers_per_s),
            message_number: 0,
            pending: BTreeMap::new(),
            last_pending: 0,
            renewal: None,
            outbox: Outbox::new(config.queue_capacity),
            outputs: VecDeque::new(),
            random,
            config,
        }
    }

    /// The configuration, including changes by commands.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Messages dropped so far, by reason.
    #[must_use]
    pub fn drops(&self) -> &DropCounts {
        &self.intake.drops
    }

    /// Messages received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.intake.received()
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Start => {
                if self.state != State::Started {
                    self.state = State::Started;
                    self.outbox.clear();
                    self.pending.clear();
                    self.announce_presence(now, |_| true);
                    self.announce_to_proxies(now, &Kind::Hello);
                }
            }
            Command::Renew => self.announce_to_proxies(now, &Kind::Hello),
            Command::Stop => self.stop(now),
            Command::Update {
                types,
                scopes,
                metadata_version,
            } => {
                self.config.types = types;
                self.config.scopes = scopes;
                self.config.metadata_version = metadata_version;
                self.announce_presence(now, |_| true);
                self.announce_to_proxies(now, &Kind::Hello);
            }
            Command::SetInterfaces(interfaces) => {
                let previous = std::mem::replace(&mut self.config.interfaces, interfaces);
                let is_removed = |index: &u32| {
                    !self
                        .config
                        .interfaces
                        .iter()
                        .any(|(i, _)| i.index == *index)
                };
                self.pending
                    .retain(|_, pending| !is_removed(&pending.interface));
                self.announce_presence(now, |interface| !previous.contains(interface));
                self.announce_to_proxies(now, &Kind::Hello);
            }
        }
    }

    fn schedule(&mut self, at: Instant, pending: PendingMessage) {
        self.last_pending += 1;
        self.pending.insert((at, self.last_pending), pending);
    }

    fn report(&mut self, report: Option<(Dropped, SocketAddr, u64)>) {
        if let Some((Dropped { reason, detail }, from, suppressed)) = report {
            self.event(Event::Dropped {
                reason,
                from,
                detail,
                suppressed,
            });
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Encodes and sends due messages.
    fn send_due(&mut self, now: Instant) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let pending = entry.remove();
            self.message_number = self.message_number.wrapping_add(1);
            let id = random_urn(&mut self.random);
            self.intake.seen.sent(&id);
            let envelope = self.envelope(&pending, id.into(), self.message_number);
            let datagram = Outbound {
                to: pending.to,
                interface: pending.interface,
                bytes: intake::bytes_of(envelope.to_text(), pending.as_exi),
            };
            let retransmission = pending.retransmission;
            let pushed = self
                .outbox
                .push(now, datagram, &retransmission, &mut self.random);
            if let Err(full) = pushed {
                let reason = full.to_string();
                self.event(Event::NotSent { reason });
            }
        }
        while let Some(datagram) = self.outbox.pop(now) {
            self.outputs.push_back(Output::Transmit(datagram));
        }
        if self.state == State::Stopping && self.outbox.is_empty() && self.pending.is_empty() {
            self.state = State::Idle;
            self.event(Event::Stopped);
        }
    }
}

impl Machine for TargetService {
    type Receive = Inbound;
    type Command = Command;
    type Transmit = Outbound;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<Inbound, Command>) {
        match input {
            Input::Receive(datagram) => {
                let result = self.receive(now, &datagram);
                let report = self.intake.record(now, datagram.from, result);
                self.report(report);
            }
            Input::Command(command) => self.command(now, command),
            Input::Timeout => {}
        }
        if self.renewal.is_some_and(|at| at <= now) {
            self.announce_to_proxies(now, &Kind::Hello);
        }
        while let Some(report) = self.intake.due_report(now) {
            self.report(Some(report));
        }
        self.send_due(now);
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let pending = self.pending.keys().next().map(|(at, _)| *at);
        pending
            .into_iter()
            .chain(self.outbox.next())
            .chain(self.renewal)
            .chain(self.intake.next_report())
            .min()
    }
}

impl Invariant for TargetService {
    fn check(&self) -> Result<(), String> {
        self.intake.check()?;
        self.answer_rate.check()?;
        if self.outbox.len() > self.outbox.capacity() {
            return Err(format!("{} messages queued", self.outbox.len()));
        }
        if self.state == State::Idle && !(self.pending.is_empty() && self.outbox.is_empty()) {
            return Err("a stopped target service has messages to send".into());
        }
        Ok(())
    }
}
