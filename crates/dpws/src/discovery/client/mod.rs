//! The client of discovery: searches for target services.
//!
//! Source: WS-Discovery 1.1, sections 4 to 6, and its version of April 2005. Received descriptions are not
//! trusted. Of managed mode the machine has the part that concerns datagrams: it reports discovery proxies,
//! and stops its multicasts while the application asks one ([`Command::SetManaged`]).

mod api;
mod receive;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};
use chappe_soap::EndpointReference;
use chappe_soap::udp::{Outbox, SENT_ENVELOPE_BYTES_MAX, discovery_group, random_urn};
use chappe_xml::{Name, Str};

use super::drops::ReportLimiter;
use super::intake::{Dropped, IntakeState};
use super::message::{Content, Message, Probe};
use super::rate::Buckets;
use super::table::Table;
use super::{DropCounts, Inbound, Interface, MatchRule, Outbound, Target};
use crate::Dialect;
use crate::exi;

pub use super::policy::XaddrPolicy;
pub use super::table::Known;
pub use api::{Command, Config, Event, Via};

/// Discovery proxies that are reported. Reason: a network has one or two; the rest is a flood.
pub(super) const PROXIES_MAX: usize = 8;
/// Reports of discovery proxies that one sender may cause, after as many at once as are reported in all. Reason: a
/// proxy moves rarely, and each report costs the application a connection.
pub(super) const PROXY_REPORTS_PER_S: u32 = 1;
const PROXY_REPORTS_BURST: u32 = 8;

/// The machine that searches for target services, in both dialects.
///
/// ```
/// use chappe_dpws::discovery::{Client, Interface, MatchRule, client::{Command, Config}};
/// use chappe_machine::{Harness, Input, Output};
/// let lo = Interface { index: 1, addresses: vec!["127.0.0.1".parse().unwrap()] };
/// let only_source = |xaddr: &str, source: std::net::SocketAddr| {
///     let host = format!("://{}", source.ip());
///     if xaddr.contains(&host) { Ok(()) } else { Err("another host".to_owned()) }
/// };
/// let mut harness = Harness::new(Client::new(Config::new(vec![lo], 7), only_source), 7);
/// let probe = Command::Probe {
///     id: 1,
///     types: vec![],
///     scopes: vec![],
///     match_by: MatchRule::default(),
///     timeout: std::time::Duration::from_secs(1),
/// };
/// let outputs = harness.input(Input::Command(probe)).unwrap();
/// assert!(matches!(&outputs[0], Output::Transmit(probe) if probe.to.ip().is_multicast()));
/// ```
pub struct Client {
    config: Config,
    policy: Box<dyn XaddrPolicy>,
    random: fastrand::Rng,
    intake: IntakeState,
    refusal_reports: ReportLimiter,
    message_rate: Buckets,
    resolve_rate: Buckets,
    proxy_rate: Buckets,
    table: Table,
    /// The transport addresses of reported discovery proxies, by endpoint.
    proxies: BTreeMap<Str, Vec<Str>>,
    is_managed: bool,
    requests: BTreeMap<u64, Request>,
    by_message: HashMap<Str, u64>,
    timers: Timers<u64>,
    last_request: u64,
    outbox: Outbox,
    outputs: VecDeque<Output<Outbound, Event>>,
}

#[derive(Debug)]
struct Request {
    subject: Subject,
    message_ids: Vec<Str>,
}

#[derive(Debug)]
enum Subject {
    Probe {
        id: u64,
        /// Endpoints that matched; at most as many as the table holds.
        matched: BTreeSet<Str>,
    },
    Resolve {
        endpoint: Str,
        /// The description that lacked transport addresses.
        partial: Option<Target>,
    },
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("known", &self.table.len())
            .field("requests", &self.requests.len())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client that contacts only what `policy` allows.
    #[must_use]
    pub fn new(config: Config, policy: impl XaddrPolicy + 'static) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed);
        Self {
            policy: Box::new(policy),
            intake: IntakeState::new(config.seen_capacity, random.u64(..)),
            refusal_reports: ReportLimiter::default(),
            message_rate: Buckets::per_subnet(config.messages_burst, config.messages_per_s),
            resolve_rate: Buckets::shared_by_all(config.resolves_burst, config.resolves_per_s),
            proxy_rate: Buckets::per_subnet(PROXY_REPORTS_BURST, PROXY_REPORTS_PER_S),
            table: Table::new(config.quota()),
            proxies: BTreeMap::new(),
            is_managed: false,
            requests: BTreeMap::new(),
            by_message: HashMap::new(),
            timers: Timers::default(),
            last_request: 0,
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

    /// Target services evicted from the table so far.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.table.evicted()
    }

    /// The table's entry for an endpoint.
    #[must_use]
    pub fn known(&self, endpoint: &str) -> Option<&Known> {
        self.table.get(endpoint)
    }

    /// All entries, in no particular order.
    pub fn all_known(&self) -> impl Iterator<Item = &Known> {
        self.table.values()
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

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Probe {
                id,
                types,
                scopes,
                match_by,
                timeout,
            } => {
                let to = self.groups(None);
                self.probe(now, id, (&types, &scopes, match_by), &to, timeout);
            }
            Command::DirectedProbe {
                id,
                to,
                types,
                scopes,
                match_by,
                timeout,
            } => {
                let interface = self
                    .config
                    .interfaces
                    .first()
                    .map_or(0, |first| first.index);
                self.probe(
                    now,
                    id,
                    (&types, &scopes, match_by),
                    &[(interface, to)],
                    timeout,
                );
            }
            Command::Resolve { endpoint } => {
                let dialect = self.table.get(&endpoint).map(|known| known.dialect);
                let to = self.groups(None);
                self.resolve(now, endpoint, None, dialect, &to, None);
            }
            Command::Confirm { endpoint } => {
                self.table.confirm(&endpoint);
            }
            Command::Accept { target, from } => self.accept(target, from),
            Command::Forget { endpoint } => {
                self.table.remove(&endpoint);
                self.proxies.remove(&endpoint);
            }
            Command::SetInterfaces(interfaces) => self.config.interfaces = interfaces,
            Command::SetManaged(is_managed) => self.is_managed = is_managed,
        }
    }

    fn accept(&mut self, target: Target, from: SocketAddr) {
        let before = self.table.get(&target.endpoint.address);
        let (dialect, interface) = before
            .map(|known| (known.dialect, known.interface))
            .unwrap_or_default();
        let mut known = Known::new(target, dialect, from, interface);
        known.confirmed = true;
        if self.table.insert(known).is_err() {
            let reason = "all entries of the table are confirmed".to_owned();
            self.event(Event::NotSent { id: None, reason });
        }
    }

    /// The multicast groups of one interface, or of all; none while discovery proxies are asked instead.
    fn groups(&self, only: Option<u32>) -> Vec<(u32, SocketAddr)> {
        if self.is_managed {
            return Vec::new();
        }
        let is_selected =
            |interface: &&Interface| only.is_none_or(|index| interface.index == index);
        let interfaces = self.config.interfaces.iter().filter(is_selected);
        let groups = interfaces.flat_map(|interface| {
            let index = interface.index;
            interface
                .families()
                .map(move |family| (index, discovery_group(family, index)))
        });
        groups.collect()
    }

    fn probe(
        &mut self,
        now: Instant,
        id: u64,
        (types, scopes, rule): (&[Name], &[Str], MatchRule),
        to: &[(u32, SocketAddr)],
        timeout: Duration,
    ) {
        let subject = Subject::Probe {
            id,
            matched: BTreeSet::new(),
        };
        let Some(request) = self.open(now, subject, timeout) else {
            let reason = format!("{} requests are pending", self.config.requests_capacity);
            self.event(Event::NotSent {
                id: Some(id),
                reason,
            });
            self.event(Event::ProbeEnded { id, count: 0 });
            return;
        };
        for dialect in self.config.dialects.clone() {
            let Some(match_by) = rule.attribute(dialect) else {
                continue;
            };
            let types: Vec<_> = types.iter().map(|name| dialect.translate(name)).collect();
            let mut variants = vec![types];
            if dialect == Dialect::V2005 && variants[0].is_empty() {
                // Some devices of this dialect answer only a Probe for exactly this type.
                variants.push(vec![dialect.device_type()]);
            }
            for types in variants {
                let probe = Probe {
                    types,
                    scopes: scopes.to_vec(),
                    match_by: match_by.clone(),
                };
                self.ask(now, request, dialect, &Content::Probe(probe), to);
            }
        }
    }

    /// Resolves an endpoint, unless a Resolve for it is pending.
    fn resolve(
        &mut self,
        now: Instant,
        endpoint: Str,
        partial: Option<Target>,
        dialect: Option<Dialect>,
        to: &[(u32, SocketAddr)],
        unicast: Option<(u32, SocketAddr)>,
    ) {
        let open = self.requests.values().any(|request| {
            matches!(&request.subject, Subject::Resolve { endpoint: open, .. } if *open == endpoint)
        });
        if open {
            return;
        }
        let subject = Subject::Resolve {
            endpoint: endpoint.clone(),
            partial,
        };
        let Some(request) = self.open(now, subject, self.config.resolve_timeout) else {
            let reason = format!("{} requests are pending", self.config.requests_capacity);
            self.event(Event::NotSent { id: None, reason });
            self.event(Event::ResolveEnded {
                endpoint,
                answered: false,
            });
            return;
        };
        let content = Content::Resolve(EndpointReference::new(endpoint));
        let dialects = dialect.map_or_else(|| self.config.dialects.clone(), |one| vec![one]);
        for dialect in dialects {
            self.ask(now, request, dialect, &content, to);
            self.ask(now, request, dialect, &content, unicast.as_slice());
        }
    }

    /// Registers a request until `timeout` has passed.
    fn open(&mut self, now: Instant, subject: Subject, timeout: Duration) -> Option<u64> {
        if self.requests.len() >= self.config.requests_capacity {
            return None;
        }
        self.last_request += 1;
        let request = Request {
            subject,
            message_ids: Vec::new(),
        };
        self.requests.insert(self.last_request, request);
        self.timers.set(self.last_request, now + timeout);
        Some(self.last_request)
    }

    /// Sends a request's message to each destination, each with its own identifier.
    fn ask(
        &mut self,
        now: Instant,
        request: u64,
        dialect: Dialect,
        content: &Content,
        to: &[(u32, SocketAddr)],
    ) {
        for (interface, to) in to {
            let message_id = Str::from(random_urn(&mut self.random));
            let message = Message {
                dialect,
                message_id: message_id.clone(),
                relates_to: None,
                to: Some(dialect.multicast_to().into()),
                reply_to: None,
                sequence: None,
                content: content.clone(),
            };
            let mut envelope = message.to_envelope(&self.config.prefixes);
            // Devices of the older dialect alone are not ours, and some are strict.
            if self.config.exi && dialect == Dialect::V2009 {
                envelope.headers.push(exi::offer());
            }
            let bytes = envelope.to_text().into_bytes();
            if bytes.len() > SENT_ENVELOPE_BYTES_MAX {
                let reason = format!(
                    "message has {} bytes (limit {SENT_ENVELOPE_BYTES_MAX})",
                    bytes.len()
                );
                self.event(Event::NotSent { id: None, reason });
                return;
            }
            let retransmission = match to.ip().is_multicast() {
                true => self.config.multicast,
                false => self.config.unicast,
            };
            let datagram = Outbound {
                to: *to,
                interface: *interface,
                bytes,
            };
            let pushed = self
                .outbox
                .push(now, datagram, &retransmission, &mut self.random);
            if let Err(full) = pushed {
                let reason = full.to_string();
                self.event(Event::NotSent { id: None, reason });
                return;
            }
            self.intake.seen.sent(&message_id);
            self.by_message.insert(message_id.clone(), request);
            if let Some(request) = self.requests.get_mut(&request) {
                request.message_ids.push(message_id);
            }
        }
    }

    /// Ends a request and reports its outcome.
    fn close(&mut self, request: u64, answered: bool) {
        let Some(request) = self.forget(request) else {
            return;
        };
        match request.subject {
            Subject::Probe { id, matched } => {
                let count = matched.len();
                self.event(Event::ProbeEnded { id, count });
            }
            Subject::Resolve { endpoint, .. } => {
                self.event(Event::ResolveEnded { endpoint, answered });
            }
        }
    }

    fn forget(&mut self, request: u64) -> Option<Request> {
        self.timers.cancel(&request);
        let request = self.requests.remove(&request)?;
        for id in &request.message_ids {
            self.by_message.remove(id);
        }
        Some(request)
    }

    fn send_due(&mut self, now: Instant) {
        while let Some(datagram) = self.outbox.pop(now) {
            self.outputs.push_back(Output::Transmit(datagram));
        }
    }
}

impl Machine for Client {
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
        while let Some(request) = self.timers.pop(now) {
            self.close(request, false);
        }
        self.send_due(now);
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let timers = self.timers.next().into_iter();
        timers
            .chain(self.outbox.next())
            .chain(self.intake.next_report())
            .min()
    }
}

impl Invariant for Client {
    fn check(&self) -> Result<(), String> {
        self.intake.check()?;
        self.table.check()?;
        self.message_rate.check()?;
        self.resolve_rate.check()?;
        self.proxy_rate.check()?;
        let (requests, timers) = (self.requests.len(), self.timers.len());
        if requests > self.config.requests_capacity || requests != timers {
            return Err(format!("{requests} requests, {timers} timers"));
        }
        let ids: usize = self
            .requests
            .values()
            .map(|request| request.message_ids.len())
            .sum();
        if ids != self.by_message.len() {
            return Err(format!(
                "{ids} messages sent, {} indexed",
                self.by_message.len()
            ));
        }
        if self.outbox.len() > self.outbox.capacity() {
            return Err(format!("{} messages queued", self.outbox.len()));
        }
        if self.proxies.len() > PROXIES_MAX {
            return Err(format!("{} discovery proxies", self.proxies.len()));
        }
        Ok(())
    }
}
