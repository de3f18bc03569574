//! A device's side of discovery.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_soap::udp::{Outbox, SENT_ENVELOPE_BYTES_MAX, discovery_group};
use chappe_soap::udp::{random_between, random_urn};
use chappe_soap::{Addressing, EndpointReference, Envelope, Fault};
use chappe_xml::{Element, Name, Str};

use super::Target;
use super::intake::{self, Books, Dropped};
use super::message::{AppSequence, Content, Message, Probe};
use super::rate::Buckets;
use super::{DropCounts, DropReason, Inbound, Interface, MatchRule, Outbound, Retransmission};
use crate::Dialect;

/// How many bytes may leave for one byte that came, repeats included, before the asker's address
/// is proven.
pub const AMPLIFICATION_MAX: usize = 3;

const DIALECT: Dialect = Dialect::V2009;

/// What a target service is, and its limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stable address of the endpoint, `urn:uuid:…`.
    pub endpoint: Str,
    /// What it implements; a DPWS device names [`Dialect::device_type`](crate::Dialect) here.
    pub types: Vec<Name>,
    /// Where it belongs (URIs).
    pub scopes: Vec<Str>,
    /// The version of its metadata.
    pub metadata_version: u32,
    /// Rises with every start of the device (seconds since 1970 do, if the clock does).
    pub instance_id: u32,
    /// The interfaces it is announced on, each with the transport addresses that fit it.
    pub interfaces: Vec<(Interface, Vec<Str>)>,
    /// Longest random delay before a Hello and before the answer to a multicast Probe. Default
    /// 2,500 ms (DPWS 1.1, APP_MAX_DELAY); WS-Discovery 1.1 itself has 500 ms. Zero is allowed.
    pub app_max_delay: Duration,
    /// How messages to the group are repeated.
    pub multicast: Retransmission,
    /// How answers are repeated.
    pub unicast: Retransmission,
    /// Answers to one address: how many at once; four times as many to its subnet (/24 or /64).
    /// Default 200: as many clients of one host may start at once.
    pub answers_burst: u32,
    /// Answers to one address in a second, in the long run; four times as many to its subnet.
    /// Default 20: a client that asks once a minute leaves room for 1,200 of its host.
    pub answers_per_s: u32,
    /// Message identifiers remembered to know repeats. Default 1,024: peers remember about 200.
    pub seen_capacity: usize,
    /// Answers that may wait. Default 1,024.
    pub queue_capacity: usize,
    /// Makes the random choices.
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

/// What the application asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Say Hello on every interface and answer from now on.
    Start,
    /// Say Bye on every interface and answer no more.
    Stop,
    /// Describe the device anew, with a Hello when it is started.
    Update {
        /// What it implements.
        types: Vec<Name>,
        /// Where it belongs.
        scopes: Vec<Str>,
        /// The version of its metadata, risen.
        metadata_version: u32,
    },
    /// The interfaces have changed; Hello on each that is new or whose addresses changed.
    SetInterfaces(Vec<(Interface, Vec<Str>)>),
}

/// What the application is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A Probe or Resolve is answered.
    Answered {
        /// Who asked.
        to: SocketAddr,
        /// `Probe`, `Resolve` or `Probe with an unknown rule`.
        question: &'static str,
    },
    /// A message was dropped. At most one such event a second for each reason.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Who sent it.
        from: SocketAddr,
        /// What was wrong with it.
        detail: String,
        /// Messages dropped for the same reason since the last such event.
        suppressed: u64,
    },
    /// A message of its own is larger than a datagram may be, or too many wait, so it was not sent.
    NotSent {
        /// Which, and why.
        reason: String,
    },
    /// The last copy of Bye is out.
    Stopped,
}

/// The machine that announces one device and answers questions about it, in the 2009 dialect.
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
    books: Books,
    answers: Buckets,
    message_number: u32,
    /// Messages that are made when their time comes, so that their numbers rise as they are sent.
    planned: BTreeMap<(Instant, u64), Planned>,
    plans: u64,
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
struct Planned {
    to: SocketAddr,
    interface: u32,
    kind: Kind,
    retransmission: Retransmission,
    /// Without scopes, which may be left out, when the whole would be too large.
    short: bool,
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
    /// A target service that waits for [`Command::Start`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed);
        Self {
            state: State::Idle,
            books: Books::new(config.seen_capacity, random.u64(..)),
            answers: Buckets::of_subnets(config.answers_burst, config.answers_per_s),
            message_number: 0,
            planned: BTreeMap::new(),
            plans: 0,
            outbox: Outbox::new(config.queue_capacity),
            outputs: VecDeque::new(),
            random,
            config,
        }
    }

    /// How it was made, with what commands have changed since.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What was dropped so far.
    #[must_use]
    pub fn drops(&self) -> &DropCounts {
        &self.books.drops
    }

    /// How many messages arrived so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.books.received()
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Start => {
                if self.state != State::Started {
                    self.state = State::Started;
                    self.outbox.clear();
                    self.planned.clear();
                    self.hello(now, |_| true);
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
                self.hello(now, |_| true);
            }
            Command::SetInterfaces(interfaces) => {
                let before = std::mem::replace(&mut self.config.interfaces, interfaces);
                let gone = |index: &u32| {
                    !self
                        .config
                        .interfaces
                        .iter()
                        .any(|(i, _)| i.index == *index)
                };
                self.planned.retain(|_, planned| !gone(&planned.interface));
                self.hello(now, |interface| !before.contains(interface));
            }
        }
    }

    /// Plans a Hello on each interface that `wanted` takes, after the random delay.
    fn hello(&mut self, now: Instant, wanted: impl Fn(&(Interface, Vec<Str>)) -> bool) {
        if self.state != State::Started {
            return;
        }
        // What was to be said before is out of date.
        let outdated = |planned: &Planned| matches!(planned.kind, Kind::Hello);
        self.planned.retain(|_, planned| {
            let interfaces = &self.config.interfaces;
            let same = interfaces
                .iter()
                .find(|(i, _)| i.index == planned.interface);
            !(outdated(planned) && same.is_some_and(&wanted))
        });
        for (index, group) in self.groups(wanted) {
            let delay = random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay);
            self.announce(now + delay, index, group, Kind::Hello);
        }
    }

    fn stop(&mut self, now: Instant) {
        if self.state != State::Started {
            return;
        }
        self.state = State::Stopping;
        self.planned.clear();
        self.outbox.clear();
        for (index, group) in self.groups(|_| true) {
            self.announce(now, index, group, Kind::Bye);
        }
    }

    /// The groups of the interfaces that `wanted` takes.
    fn groups(&self, wanted: impl Fn(&(Interface, Vec<Str>)) -> bool) -> Vec<(u32, SocketAddr)> {
        let interfaces = self.config.interfaces.iter().filter(|entry| wanted(entry));
        let groups = interfaces.flat_map(|(interface, _)| {
            let index = interface.index;
            interface
                .families()
                .map(move |family| (index, discovery_group(family, index)))
        });
        groups.collect()
    }

    fn announce(&mut self, at: Instant, interface: u32, to: SocketAddr, kind: Kind) {
        let mut planned = Planned {
            to,
            interface,
            kind,
            retransmission: self.config.multicast,
            short: false,
        };
        for short in [false, true] {
            planned.short = short;
            if self.measure(&planned) <= SENT_ENVELOPE_BYTES_MAX {
                return self.plan(at, planned);
            }
        }
        let reason = format!("the announcement is larger than {SENT_ENVELOPE_BYTES_MAX} bytes");
        self.event(Event::NotSent { reason });
    }

    fn plan(&mut self, at: Instant, planned: Planned) {
        self.plans += 1;
        self.planned.insert((at, self.plans), planned);
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
            return Err(Dropped::new(DropReason::NotStarted, "not started"));
        }
        let message = intake::read(datagram)?;
        self.books.first_time(&message)?;
        let from = datagram.from;
        let served = |(interface, _): &(Interface, Vec<Str>)| interface.index == datagram.interface;
        if !self.config.interfaces.iter().any(served) {
            let detail = format!("interface {}", datagram.interface);
            return Err(Dropped::new(DropReason::OtherInterface, detail));
        }
        let (question, kind) = self.answer(&message, datagram.multicast)?;
        if !self.answers.take(now, from.ip()) {
            let detail = format!(
                "{} answers a second to an address",
                self.config.answers_per_s
            );
            return Err(Dropped::new(DropReason::RateLimited, detail));
        }
        if self.planned.len() + self.outbox.len() >= self.config.queue_capacity {
            let detail = format!("{} answers wait", self.config.queue_capacity);
            return Err(Dropped::new(DropReason::QueueFull, detail));
        }
        // The standard's delay keeps the answers of many targets to one Probe apart.
        let delayed = datagram.multicast && matches!(kind, Kind::ProbeMatch { .. });
        let planned = self.fitted(kind, datagram)?;
        let delay = match delayed {
            true => random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay),
            false => Duration::ZERO,
        };
        self.plan(now + delay, planned);
        self.event(Event::Answered { to: from, question });
        Ok(())
    }

    /// What is answered to a message.
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
                (Some(false), true) => drop(DropReason::NoMatch, "its types or scopes are others"),
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

    /// Whether this target is what a Probe asks for; `None` when its rule is not known.
    fn matches(&self, probe: &Probe) -> Option<bool> {
        let rule = match &probe.match_by {
            Some(uri) => MatchRule::of_uri(DIALECT, uri)?,
            None => MatchRule::Rfc3986,
        };
        let types = &self.config.types;
        let all_types = probe.types.iter().all(|wanted| types.contains(wanted));
        Some(all_types && rule.matches_all(&probe.scopes, &self.config.scopes))
    }

    /// The answer, short enough and with so few copies that it amplifies nothing.
    fn fitted(&self, kind: Kind, question: &Inbound) -> Result<Planned, Dropped> {
        let allowed = question.bytes.len().saturating_mul(AMPLIFICATION_MAX);
        let mut planned = Planned {
            to: question.from,
            interface: question.interface,
            kind,
            retransmission: self.config.unicast,
            short: false,
        };
        let mut size = 0;
        for short in [false, true] {
            planned.short = short;
            size = self.measure(&planned);
            if size <= allowed.min(SENT_ENVELOPE_BYTES_MAX) {
                let copies = u32::try_from(allowed / size.max(1)).unwrap_or(u32::MAX);
                let repeat = &mut planned.retransmission.repeat;
                *repeat = (*repeat).min(copies.saturating_sub(1));
                return Ok(planned);
            }
        }
        let detail = format!("{size} bytes in answer to {}", question.bytes.len());
        Err(Dropped::new(DropReason::Amplification, detail))
    }

    /// The most bytes that a planned message can have.
    fn measure(&self, planned: &Planned) -> usize {
        let id = "urn:uuid:00000000-0000-4000-8000-000000000000";
        self.envelope(planned, id.into(), u32::MAX).to_text().len()
    }

    fn envelope(&self, planned: &Planned, message_id: Str, message_number: u32) -> Envelope {
        let target = || self.target(planned);
        let endpoint = || Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            ..Target::default()
        };
        let multicast = Str::Borrowed(DIALECT.multicast_to());
        let (content, relates_to, to) = match &planned.kind {
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
                return unknown_rule(message_id, relates_to.clone(), to.clone());
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

    /// The description that fits where it goes.
    fn target(&self, planned: &Planned) -> Target {
        let interfaces = &self.config.interfaces;
        let found = interfaces
            .iter()
            .find(|(interface, _)| interface.index == planned.interface);
        let xaddrs = found
            .map(|(_, xaddrs)| xaddrs.as_slice())
            .unwrap_or_default();
        let scopes = match planned.short {
            true => Vec::new(),
            false => self.config.scopes.clone(),
        };
        Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            types: self.config.types.clone(),
            scopes,
            xaddrs: of_family(xaddrs, planned.to.ip()),
            metadata_version: self.config.metadata_version,
        }
    }

    /// Makes and sends what is due.
    fn send_due(&mut self, now: Instant) {
        while let Some(entry) = self.planned.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let planned = entry.remove();
            self.message_number = self.message_number.wrapping_add(1);
            let id = random_urn(&mut self.random);
            self.books.seen.sent(&id);
            let envelope = self.envelope(&planned, id.into(), self.message_number);
            let datagram = Outbound {
                to: planned.to,
                interface: planned.interface,
                bytes: envelope.to_text().into_bytes(),
            };
            let retransmission = planned.retransmission;
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
        if self.state == State::Stopping && self.outbox.is_empty() && self.planned.is_empty() {
            self.state = State::Idle;
            self.event(Event::Stopped);
        }
    }
}

/// The transport addresses of the asker's family, or all when there is none of it.
fn of_family(xaddrs: &[Str], asker: IpAddr) -> Vec<Str> {
    let is_v6 = |uri: &str| {
        uri.split_once("://")
            .is_some_and(|(_, rest)| rest.starts_with('['))
    };
    let wanted = asker.to_canonical().is_ipv6();
    let fitting: Vec<_> = xaddrs
        .iter()
        .filter(|uri| is_v6(uri) == wanted)
        .cloned()
        .collect();
    match fitting.is_empty() {
        true => xaddrs.to_vec(),
        false => fitting,
    }
}

/// The fault that a unicast Probe with an unknown rule gets (WS-Discovery 1.1, section 5.1).
fn unknown_rule(message_id: Str, relates_to: Str, to: Str) -> Envelope {
    let name = DIALECT.discovery_name("MatchingRuleNotSupported");
    let mut fault = Fault::sender(name, "the matching rule specified is not supported");
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
                let report = self.books.enter(now, datagram.from, result);
                self.report(report);
            }
            Input::Command(command) => self.command(now, command),
            Input::Timeout => {}
        }
        while let Some(held) = self.books.held_back(now) {
            self.report(Some(held));
        }
        self.send_due(now);
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let planned = self.planned.keys().next().map(|(at, _)| *at);
        planned
            .into_iter()
            .chain(self.outbox.next())
            .chain(self.books.next_report())
            .min()
    }
}

impl Invariant for TargetService {
    fn check(&self) -> Result<(), String> {
        self.books.check()?;
        self.answers.check()?;
        if self.outbox.len() > self.outbox.capacity() {
            return Err(format!("{} messages wait", self.outbox.len()));
        }
        if self.state == State::Idle && !(self.planned.is_empty() && self.outbox.is_empty()) {
            return Err("a stopped target service still speaks".into());
        }
        Ok(())
    }
}
