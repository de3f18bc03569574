//! The device's side of discovery.

mod api;
mod managed;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_soap::udp::{Outbox, SENT_ENVELOPE_BYTES_MAX, discovery_group};
use chappe_soap::udp::{random_between, random_urn};
use chappe_soap::{Addressing, EndpointReference, Envelope};
use chappe_xml::Str;

use super::intake::{self, Dropped, IntakeState};
use super::message::{AppSequence, Content, Message};
use super::rate::Buckets;
use super::scopes::unknown_rule;
use super::{DropCounts, DropReason, Inbound, Interface, Outbound, Retransmission, Target};
use crate::Dialect;

pub use api::{Command, Config, Event};

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

    /// Plans a Hello on each selected interface, after the random delay.
    fn announce_presence(
        &mut self,
        now: Instant,
        is_selected: impl Fn(&(Interface, Vec<Str>)) -> bool,
    ) {
        if self.state != State::Started {
            return;
        }
        // Pending Hellos are out of date.
        let is_hello = |pending: &PendingMessage| matches!(pending.kind, Kind::Hello);
        self.pending.retain(|_, pending| {
            let interfaces = &self.config.interfaces;
            let interface = interfaces
                .iter()
                .find(|(i, _)| i.index == pending.interface);
            !(is_hello(pending) && interface.is_some_and(&is_selected))
        });
        for (dialect, index, group) in self.groups(is_selected) {
            let delay = random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay);
            self.announce_on(now + delay, dialect, (index, group), Kind::Hello);
        }
    }

    fn stop(&mut self, now: Instant) {
        if self.state != State::Started {
            return;
        }
        self.pending.clear();
        self.outbox.clear();
        self.announce_to_proxies(now, &Kind::Bye);
        self.state = State::Stopping;
        for (dialect, index, group) in self.groups(|_| true) {
            self.announce_on(now, dialect, (index, group), Kind::Bye);
        }
    }

    /// The groups of the selected interfaces, once for each dialect.
    fn groups(
        &self,
        is_selected: impl Fn(&(Interface, Vec<Str>)) -> bool,
    ) -> Vec<(Dialect, u32, SocketAddr)> {
        let interfaces = self
            .config
            .interfaces
            .iter()
            .filter(|entry| is_selected(entry));
        let groups = interfaces.flat_map(|(interface, _)| {
            let index = interface.index;
            interface
                .families()
                .map(move |family| (index, discovery_group(family, index)))
        });
        let dialects = self.config.dialects.iter();
        let in_dialect = |(index, group)| dialects.clone().map(move |one| (*one, index, group));
        groups.flat_map(in_dialect).collect()
    }

    fn announce_on(
        &mut self,
        at: Instant,
        dialect: Dialect,
        (interface, to): (u32, SocketAddr),
        kind: Kind,
    ) {
        let retransmission = match to.ip().is_multicast() {
            true => self.config.multicast,
            false => self.config.unicast,
        };
        let mut pending = PendingMessage {
            to,
            interface,
            dialect,
            kind,
            retransmission,
            without_scopes: false,
            as_exi: false,
        };
        for without_scopes in [false, true] {
            pending.without_scopes = without_scopes;
            if self.largest_size(&pending) <= SENT_ENVELOPE_BYTES_MAX {
                return self.schedule(at, pending);
            }
        }
        let reason = format!("announcement exceeds {SENT_ENVELOPE_BYTES_MAX} bytes");
        self.event(Event::NotSent { reason });
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

    /// Answers a datagram. The caller counts the outcome.
    pub(super) fn receive(&mut self, now: Instant, datagram: &Inbound) -> Result<(), Dropped> {
        if self.state != State::Started {
            return Err(Dropped::new(
                DropReason::NotStarted,
                "target service is not running",
            ));
        }
        let received = intake::read(datagram)?;
        self.intake.check_duplicate(&received.message)?;
        let result = self.on_message(now, datagram, &received);
        self.intake.arrived(&received.message, &result);
        result
    }

    fn on_message(
        &mut self,
        now: Instant,
        datagram: &Inbound,
        received: &intake::Received,
    ) -> Result<(), Dropped> {
        let message = &received.message;
        let from = datagram.from;
        let is_configured =
            |(interface, _): &(Interface, Vec<Str>)| interface.index == datagram.interface;
        if !self.config.interfaces.iter().any(is_configured) {
            let detail = format!("interface {} is not configured", datagram.interface);
            return Err(Dropped::new(DropReason::OtherInterface, detail));
        }
        let (request, kind) = self.answer(message, datagram.multicast)?;
        if !self.answer_rate.take(now, from.ip()) {
            let detail = format!(
                "more than {} answers per second to this address",
                self.config.answers_per_s
            );
            return Err(Dropped::new(DropReason::RateLimited, detail));
        }
        if self.pending.len() + self.outbox.len() >= self.config.queue_capacity {
            let detail = format!("{} answers are queued", self.config.queue_capacity);
            return Err(Dropped::new(DropReason::QueueFull, detail));
        }
        // The standard's delay spreads the answers of many targets to one Probe.
        let must_delay = datagram.multicast && matches!(kind, Kind::ProbeMatch { .. });
        let mut pending = self.limit_amplification(kind, message.dialect, datagram)?;
        pending.as_exi = received.takes_exi;
        let delay = match must_delay {
            true => random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay),
            false => Duration::ZERO,
        };
        self.schedule(now + delay, pending);
        self.event(Event::Answered { to: from, request });
        Ok(())
    }

    /// The answer to a message.
    fn answer(&self, message: &Message, multicast: bool) -> Result<(&'static str, Kind), Dropped> {
        let drop = |reason, detail: &str| Err(Dropped::new(reason, detail));
        if !matches!(message.content, Content::Probe(_) | Content::Resolve(_)) {
            return drop(DropReason::OtherRole, message.content.action());
        }
        let dialect = message.dialect;
        if !self.config.dialects.contains(&dialect) {
            return drop(DropReason::OtherDialect, dialect.discovery());
        }
        intake::check_reply_to(message)?;
        let relates_to = message.message_id.clone();
        let to = Str::Borrowed(dialect.addressing().anonymous());
        match &message.content {
            Content::Resolve(reference) if reference.address == self.config.endpoint => {
                Ok(("Resolve", Kind::ResolveMatch { relates_to, to }))
            }
            Content::Resolve(reference) => drop(
                DropReason::OtherEndpoint,
                &reference.address.chars().take(128).collect::<String>(),
            ),
            Content::Probe(probe) => {
                let matches = probe.matches(dialect, &self.config.types, &self.config.scopes);
                match (matches, multicast) {
                    (Some(true), _) => Ok(("Probe", Kind::ProbeMatch { relates_to, to })),
                    // WS-Discovery 2005, section 5.2, demands silence for unicast too.
                    (Some(false), false) if dialect == Dialect::V2009 => {
                        Ok(("Probe", Kind::NoMatch { relates_to, to }))
                    }
                    (Some(false), _) => drop(DropReason::NoMatch, "types or scopes do not match"),
                    (None, true) => drop(
                        DropReason::UnknownMatchRule,
                        probe.match_by.as_deref().unwrap_or_default(),
                    ),
                    (None, false) => Ok((
                        "Probe with an unknown rule",
                        Kind::UnknownRule { relates_to, to },
                    )),
                }
            }
            _ => drop(DropReason::OtherRole, message.content.action()),
        }
    }

    /// Shortens the answer and limits its copies to bound the amplification.
    fn limit_amplification(
        &self,
        kind: Kind,
        dialect: Dialect,
        datagram: &Inbound,
    ) -> Result<PendingMessage, Dropped> {
        let allowed = datagram.bytes.len().saturating_mul(AMPLIFICATION_MAX);
        let mut pending = PendingMessage {
            to: datagram.from,
            interface: datagram.interface,
            dialect,
            kind,
            retransmission: self.config.unicast,
            without_scopes: false,
            as_exi: false,
        };
        let mut size = 0;
        for without_scopes in [false, true] {
            pending.without_scopes = without_scopes;
            size = self.largest_size(&pending);
            if size <= allowed.min(SENT_ENVELOPE_BYTES_MAX) {
                limit_copies(&mut pending.retransmission, allowed, size);
                return Ok(pending);
            }
        }
        let detail = format!("answer has {size} bytes, request {}", datagram.bytes.len());
        Err(Dropped::new(DropReason::Amplification, detail))
    }

    /// The largest possible size of a planned message, as text: EXI is used where it is shorter.
    fn largest_size(&self, pending: &PendingMessage) -> usize {
        let id = "urn:uuid:00000000-0000-4000-8000-000000000000";
        self.envelope(pending, id.into(), u32::MAX).to_text().len()
    }

    fn envelope(&self, pending: &PendingMessage, message_id: Str, message_number: u32) -> Envelope {
        let target = || self.target(pending);
        let endpoint = || Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            ..Target::default()
        };
        let multicast = Str::Borrowed(pending.dialect.multicast_to());
        let (content, relates_to, to) = match &pending.kind {
            Kind::Hello => (Content::Hello(target()), None, multicast),
            Kind::Bye => (Content::Bye(endpoint()), None, multicast),
            Kind::ProbeMatch { relates_to, to } => (
                Content::ProbeMatches(vec![target()]),
                Some(relates_to.clone()),
                to.clone(),
            ),
            Kind::NoMatch { relates_to, to } => (
                Content::ProbeMatches(Vec::new()),
                Some(relates_to.clone()),
                to.clone(),
            ),
            Kind::ResolveMatch { relates_to, to } => (
                Content::ResolveMatches(Some(target())),
                Some(relates_to.clone()),
                to.clone(),
            ),
            Kind::UnknownRule { relates_to, to } => {
                let (relates_to, to) = (relates_to.clone(), to.clone());
                return unknown_rule_fault(pending.dialect, message_id, relates_to, to);
            }
        };
        let message = Message {
            dialect: pending.dialect,
            message_id,
            relates_to,
            to: Some(to),
            reply_to: None,
            sequence: Some(AppSequence {
                instance_id: self.config.instance_id,
                sequence_id: None,
                message_number,
            }),
            content,
        };
        message.to_envelope(&[])
    }

    /// The description with the transport addresses for the destination.
    fn target(&self, pending: &PendingMessage) -> Target {
        let interfaces = &self.config.interfaces;
        let is_selected = |(interface, _): &&(Interface, Vec<Str>)| {
            pending.interface == managed::ANY_INTERFACE || interface.index == pending.interface
        };
        let selected = interfaces.iter().filter(is_selected);
        let xaddrs: Vec<Str> = selected.flat_map(|(_, xaddrs)| xaddrs).cloned().collect();
        let scopes = match pending.without_scopes {
            true => Vec::new(),
            false => self.config.scopes.clone(),
        };
        let types = self.config.types.iter();
        Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            types: types.map(|name| pending.dialect.translate(name)).collect(),
            scopes,
            xaddrs: match pending.to.ip().is_unspecified() {
                true => xaddrs,
                false => same_family(&xaddrs, pending.to.ip()),
            },
            metadata_version: self.config.metadata_version,
        }
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

/// Sends only as many copies of an answer of `size` bytes as `allowed` bytes have room for.
pub(super) fn limit_copies(retransmission: &mut Retransmission, allowed: usize, size: usize) {
    let copies = u32::try_from(allowed / size.max(1)).unwrap_or(u32::MAX);
    retransmission.repeat = retransmission.repeat.min(copies.saturating_sub(1));
}

/// The transport addresses of the client's family, or all if there are none.
pub(super) fn same_family(xaddrs: &[Str], client: IpAddr) -> Vec<Str> {
    let is_v6 = |uri: &str| {
        uri.split_once("://")
            .is_some_and(|(_, rest)| rest.starts_with('['))
    };
    let client_is_v6 = client.to_canonical().is_ipv6();
    let matching: Vec<_> = xaddrs
        .iter()
        .filter(|uri| is_v6(uri) == client_is_v6)
        .cloned()
        .collect();
    match matching.is_empty() {
        true => xaddrs.to_vec(),
        false => matching,
    }
}

/// The answer to a unicast Probe with an unknown rule.
fn unknown_rule_fault(dialect: Dialect, message_id: Str, relates_to: Str, to: Str) -> Envelope {
    let addressing = Addressing {
        message_id: Some(message_id),
        relates_to: Some(relates_to),
        to: Some(to),
        ..Addressing::new(dialect.addressing(), dialect.discovery_action("fault"))
    };
    Envelope::new(addressing).with_body(unknown_rule(dialect).to_element())
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
