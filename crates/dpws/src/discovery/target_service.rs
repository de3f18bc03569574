//! The device's side of discovery.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_soap::udp::{Outbox, SENT_ENVELOPE_BYTES_MAX, discovery_group};
use chappe_soap::udp::{random_between, random_urn};
use chappe_soap::{Addressing, EndpointReference, Envelope, Fault};
use chappe_xml::{Element, Name, Str};

use super::Target;
use super::intake::{self, Dropped, IntakeState};
use super::message::{AppSequence, Content, Message, Probe};
use super::rate::Buckets;
use super::{DropCounts, DropReason, Inbound, Interface, MatchRule, Outbound, Retransmission};
use crate::Dialect;

/// Bytes sent per byte received, retransmissions included. Reason: the client's address is
/// unproven, and an answer must not amplify a flood.
pub const AMPLIFICATION_MAX: usize = 3;

const DIALECT: Dialect = Dialect::V2009;

/// The description of a target service, and its limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stable address of the endpoint, `urn:uuid:…`.
    pub endpoint: Str,
    /// The types that it implements; a DPWS device lists [`Dialect::device_type`](crate::Dialect)
    /// here.
    pub types: Vec<Name>,
    /// The scopes that it belongs to (URIs).
    pub scopes: Vec<Str>,
    /// The version of its metadata.
    pub metadata_version: u32,
    /// Increases with every start of the device, for example seconds since 1970.
    pub instance_id: u32,
    /// The interfaces of announcements, each with its transport addresses.
    pub interfaces: Vec<(Interface, Vec<Str>)>,
    /// Longest random delay before a Hello and before the answer to a multicast Probe. Default
    /// 2,500 ms (DPWS 1.1, APP_MAX_DELAY); WS-Discovery 1.1 itself has 500 ms. Zero is allowed.
    pub app_max_delay: Duration,
    /// Retransmission of multicast messages.
    pub multicast: Retransmission,
    /// Retransmission of answers.
    pub unicast: Retransmission,
    /// Burst of answers to one address; four times as many to its subnet (/24 or /64). Default 200:
    /// as many clients of one host may start together.
    pub answers_burst: u32,
    /// Long-run rate of answers to one address; four times as many to its subnet. Default 20:
    /// enough for 1,200 clients of one host that search once a minute.
    pub answers_per_s: u32,
    /// Message identifiers stored to detect duplicates. Default 1,024: peers store about 200.
    pub seen_capacity: usize,
    /// Answers waiting to be sent. Default 1,024.
    pub queue_capacity: usize,
    /// Seeds the random choices.
    pub seed: u64,
}

impl Config {
    /// The defaults for an endpoint.
    #[must_use]
    pub fn new(endpoint: impl Into<Str>, instance_id: u32, seed: u64) -> Self {
        Self {
            endpoint: endpoint.into(),
            types: Vec::new(),
            scopes: Vec::new(),
            metadata_version: 1,
            instance_id,
            interfaces: Vec::new(),
            app_max_delay: Duration::from_millis(2_500),
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            answers_burst: 200,
            answers_per_s: 20,
            seen_capacity: 1_024,
            queue_capacity: 1_024,
            seed,
        }
    }
}

/// A command of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Send Hello on every interface and start answering.
    Start,
    /// Send Bye on every interface and stop answering.
    Stop,
    /// Replace the description; sends Hello if the service is running.
    Update {
        /// The types that it implements.
        types: Vec<Name>,
        /// The scopes that it belongs to.
        scopes: Vec<Str>,
        /// The increased version of its metadata.
        metadata_version: u32,
    },
    /// Replace the interfaces; sends Hello on each new or changed one.
    SetInterfaces(Vec<(Interface, Vec<Str>)>),
}

/// An event for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A Probe or Resolve was answered.
    Answered {
        /// The client.
        to: SocketAddr,
        /// `Probe`, `Resolve` or `Probe with an unknown rule`.
        request: &'static str,
    },
    /// A message was dropped. At most one event a second for each reason.
    Dropped {
        /// The reason.
        reason: DropReason,
        /// The sender.
        from: SocketAddr,
        /// The defect.
        detail: String,
        /// Messages dropped for this reason since the last event.
        suppressed: u64,
    },
    /// A message was not sent: it exceeds a datagram or the queue is full.
    NotSent {
        /// The message and the reason.
        reason: String,
    },
    /// The last copy of Bye was sent.
    Stopped,
}

/// The machine that announces one device and answers requests for it, in the 2009 dialect.
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
    kind: Kind,
    retransmission: Retransmission,
    /// Omits the optional scopes if the full message is too large.
    without_scopes: bool,
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
                }
            }
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
        for (index, group) in self.groups(is_selected) {
            let delay = random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay);
            self.announce_on(now + delay, index, group, Kind::Hello);
        }
    }

    fn stop(&mut self, now: Instant) {
        if self.state != State::Started {
            return;
        }
        self.state = State::Stopping;
        self.pending.clear();
        self.outbox.clear();
        for (index, group) in self.groups(|_| true) {
            self.announce_on(now, index, group, Kind::Bye);
        }
    }

    /// The groups of the selected interfaces.
    fn groups(
        &self,
        is_selected: impl Fn(&(Interface, Vec<Str>)) -> bool,
    ) -> Vec<(u32, SocketAddr)> {
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
        groups.collect()
    }

    fn announce_on(&mut self, at: Instant, interface: u32, to: SocketAddr, kind: Kind) {
        let mut pending = PendingMessage {
            to,
            interface,
            kind,
            retransmission: self.config.multicast,
            without_scopes: false,
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

    fn receive(&mut self, now: Instant, datagram: &Inbound) -> Result<(), Dropped> {
        if self.state != State::Started {
            return Err(Dropped::new(
                DropReason::NotStarted,
                "target service is not running",
            ));
        }
        let message = intake::read(datagram)?;
        self.intake.check_duplicate(&message)?;
        let from = datagram.from;
        let is_configured =
            |(interface, _): &(Interface, Vec<Str>)| interface.index == datagram.interface;
        if !self.config.interfaces.iter().any(is_configured) {
            let detail = format!("interface {} is not configured", datagram.interface);
            return Err(Dropped::new(DropReason::OtherInterface, detail));
        }
        let (request, kind) = self.answer(&message, datagram.multicast)?;
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
        let pending = self.limit_amplification(kind, datagram)?;
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
        if message.dialect != DIALECT {
            return drop(DropReason::OtherDialect, message.dialect.discovery());
        }
        let anonymous = DIALECT.addressing().anonymous();
        if let Some(uri) = message.reply_to.as_deref().filter(|uri| *uri != anonymous) {
            return drop(
                DropReason::ReplyElsewhere,
                &uri.chars().take(128).collect::<String>(),
            );
        }
        let relates_to = message.message_id.clone();
        let to = Str::Borrowed(anonymous);
        match &message.content {
            Content::Resolve(reference) if reference.address == self.config.endpoint => {
                Ok(("Resolve", Kind::ResolveMatch { relates_to, to }))
            }
            Content::Resolve(reference) => drop(
                DropReason::OtherEndpoint,
                &reference.address.chars().take(128).collect::<String>(),
            ),
            Content::Probe(probe) => match (self.matches(probe), multicast) {
                (Some(true), _) => Ok(("Probe", Kind::ProbeMatch { relates_to, to })),
                (Some(false), true) => drop(DropReason::NoMatch, "types or scopes do not match"),
                (Some(false), false) => Ok(("Probe", Kind::NoMatch { relates_to, to })),
                (None, true) => drop(
                    DropReason::UnknownMatchRule,
                    probe.match_by.as_deref().unwrap_or_default(),
                ),
                (None, false) => Ok((
                    "Probe with an unknown rule",
                    Kind::UnknownRule { relates_to, to },
                )),
            },
            _ => drop(DropReason::OtherRole, message.content.action()),
        }
    }

    /// Whether this target matches a Probe; `None` if its match rule is unknown.
    fn matches(&self, probe: &Probe) -> Option<bool> {
        let rule = match &probe.match_by {
            Some(uri) => MatchRule::from_uri(DIALECT, uri)?,
            None => MatchRule::Rfc3986,
        };
        let types = &self.config.types;
        let all_types = probe.types.iter().all(|required| types.contains(required));
        Some(all_types && rule.matches_all(&probe.scopes, &self.config.scopes))
    }

    /// Shortens the answer and limits its copies to bound the amplification.
    fn limit_amplification(
        &self,
        kind: Kind,
        datagram: &Inbound,
    ) -> Result<PendingMessage, Dropped> {
        let allowed = datagram.bytes.len().saturating_mul(AMPLIFICATION_MAX);
        let mut pending = PendingMessage {
            to: datagram.from,
            interface: datagram.interface,
            kind,
            retransmission: self.config.unicast,
            without_scopes: false,
        };
        let mut size = 0;
        for without_scopes in [false, true] {
            pending.without_scopes = without_scopes;
            size = self.largest_size(&pending);
            if size <= allowed.min(SENT_ENVELOPE_BYTES_MAX) {
                let copies = u32::try_from(allowed / size.max(1)).unwrap_or(u32::MAX);
                let repeat = &mut pending.retransmission.repeat;
                *repeat = (*repeat).min(copies.saturating_sub(1));
                return Ok(pending);
            }
        }
        let detail = format!("answer has {size} bytes, request {}", datagram.bytes.len());
        Err(Dropped::new(DropReason::Amplification, detail))
    }

    /// The largest possible size of a planned message.
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
        let multicast = Str::Borrowed(DIALECT.multicast_to());
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
                return unknown_rule_fault(message_id, relates_to.clone(), to.clone());
            }
        };
        let message = Message {
            dialect: DIALECT,
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
        let found = interfaces
            .iter()
            .find(|(interface, _)| interface.index == pending.interface);
        let xaddrs = found
            .map(|(_, xaddrs)| xaddrs.as_slice())
            .unwrap_or_default();
        let scopes = match pending.without_scopes {
            true => Vec::new(),
            false => self.config.scopes.clone(),
        };
        Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            types: self.config.types.clone(),
            scopes,
            xaddrs: same_family(xaddrs, pending.to.ip()),
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
                bytes: envelope.to_text().into_bytes(),
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

/// The transport addresses of the client's family, or all if there are none.
fn same_family(xaddrs: &[Str], client: IpAddr) -> Vec<Str> {
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

/// The fault for a unicast Probe with an unknown rule (WS-Discovery 1.1, section 5.1).
fn unknown_rule_fault(message_id: Str, relates_to: Str, to: Str) -> Envelope {
    let name = DIALECT.discovery_name("MatchingRuleNotSupported");
    let mut fault = Fault::sender(name, "the match rule is not supported");
    let rules: Vec<_> = MatchRule::all(DIALECT)
        .map(|rule| rule.uri(DIALECT))
        .collect();
    let detail = Element::new(DIALECT.discovery_name("SupportedMatchingRules"));
    fault.detail.push(detail.with_text(rules.join(" ")));
    let addressing = Addressing {
        message_id: Some(message_id),
        relates_to: Some(relates_to),
        to: Some(to),
        ..Addressing::new(DIALECT.addressing(), DIALECT.discovery_action("fault"))
    };
    Envelope::new(addressing).with_body(fault.to_element())
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
