//! The discovery proxy: answers for target services that registered with it.
//!
//! [`Proxy`] takes Hello and Bye by UDP and HTTP, and what the application has found by other means
//! ([`Command::Learn`]). It answers unicast Probe and Resolve; a multicast one gets a Hello of the proxy itself,
//! which asks the client to use it (multicast suppression). It contains a [`TargetService`] that announces it.
//!
//! Unauthenticated messages are hints. An entry belongs to the source that registered it first; no other source
//! changes or removes it, and a datagram, whose sender may be forged, never removes one and does not change one
//! that the application has confirmed. Such messages become events by which the application can look for itself.
//!
//! An answer by UDP is at most [`AMPLIFICATION_MAX`] times the request, and one datagram. If the matches
//! are more, the answer is the proxy's Hello, whose transport addresses answer without these limits: an answer
//! never leaves out a part silently.
//!
//! Sources: WS-Discovery 1.1, sections 2.2.2 (managed mode), 3.2 (suppression), 4 to 6, and the version of April
//! 2005. Not implemented: compact signatures.

mod answer;
mod api;
mod entries;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_soap::udp::{Outbox, random_urn};
use chappe_xml::Str;

use super::intake::{self, Dropped, IntakeState};
use super::message::{Content, Message};
use super::policy::{self, XaddrPolicy};
use super::rate::Buckets;
use super::table::{Full, Known, differs, fill_absent_fields};
use super::target_service::{self, TargetService};
use super::{DropCounts, DropReason, Inbound, Outbound, Target};
use crate::Dialect;

pub use super::target_service::AMPLIFICATION_MAX;
pub use api::{Command, Config, Event, Request};
use entries::{Entries, Standing};

/// The machine of a discovery proxy, in both dialects.
///
/// ```
/// use chappe_dpws::discovery::{Interface, Proxy, proxy::{Command, Config}};
/// use chappe_machine::{Harness, Input, Output};
/// let mut config = Config::new("urn:uuid:4e1f3a3e-6a3b-4b7f-9d2c-0a1b2c3d4e5f", 1, 7);
/// let lo = Interface { index: 1, addresses: vec!["127.0.0.1".parse().unwrap()] };
/// config.interfaces = vec![(lo, vec!["http://127.0.0.1:8474/".into()])];
/// config.app_max_delay = std::time::Duration::ZERO;
/// let any = |_: &str, _: std::net::SocketAddr| Ok(());
/// let mut harness = Harness::new(Proxy::new(config, any), 7);
/// let outputs = harness.input(Input::Command(Command::Start)).unwrap();
/// assert!(matches!(&outputs[0], Output::Transmit(hello) if hello.to.ip().is_multicast()));
/// ```
pub struct Proxy {
    config: Config,
    policy: Box<dyn XaddrPolicy>,
    /// Announces the proxy, and answers searches for proxies.
    own: TargetService,
    is_started: bool,
    random: fastrand::Rng,
    intake: IntakeState,
    message_rate: Buckets,
    entries: Entries,
    /// The sequence of the proxy's answers, with the number of the last one.
    sequence: (Str, u32),
    outbox: Outbox,
    outputs: VecDeque<Output<Outbound, Event>>,
}

/// The source of a message.
struct Origin<'m> {
    now: Instant,
    from: SocketAddr,
    /// Whether it came over a connection, which proves the address.
    over_connection: bool,
    sender: Option<Str>,
    message: &'m Message,
}

impl Origin<'_> {
    fn is_proven(&self) -> bool {
        self.over_connection
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy without entries, which answers requests by HTTP; [`Command::Start`] starts the rest. `policy`
    /// decides which transport addresses a sender may register.
    #[must_use]
    pub fn new(config: Config, policy: impl XaddrPolicy + 'static) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed);
        let own = target_service::Config {
            dialects: config.dialects.clone(),
            types: vec![Dialect::V2009.proxy_type()],
            interfaces: config.interfaces.clone(),
            app_max_delay: config.app_max_delay,
            multicast: config.multicast,
            unicast: config.unicast,
            ..target_service::Config::new(
                config.endpoint.clone(),
                config.instance_id,
                random.u64(..),
            )
        };
        Self {
            policy: Box::new(policy),
            own: TargetService::new(own),
            is_started: false,
            intake: IntakeState::new(config.seen_capacity, random.u64(..)),
            message_rate: Buckets::per_subnet(config.messages_burst, config.messages_per_s),
            entries: Entries::new(config.quota()),
            sequence: (random_urn(&mut random).into(), 0),
            outbox: Outbox::new(config.queue_capacity),
            outputs: VecDeque::new(),
            random,
            config,
        }
    }

    /// Messages dropped so far, by reason.
    #[must_use]
    pub fn drops(&self) -> &DropCounts {
        &self.intake.drops
    }

    /// The number of entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The description that is offered of an endpoint.
    #[must_use]
    pub fn offered(&self, endpoint: &str) -> Option<&Target> {
        self.entries.target(endpoint)
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
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

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Start => {
                self.is_started = true;
                self.drive(now, Input::Command(target_service::Command::Start));
            }
            Command::Stop => {
                self.is_started = false;
                self.outbox.clear();
                self.drive(now, Input::Command(target_service::Command::Stop));
            }
            Command::SetInterfaces(interfaces) => {
                self.config.interfaces.clone_from(&interfaces);
                let command = target_service::Command::SetInterfaces(interfaces);
                self.drive(now, Input::Command(command));
            }
            Command::Request(request) => self.on_request(now, *request),
            Command::Learn {
                target,
                dialect,
                from,
            } => self.learn(now, target, dialect, from),
            Command::Unlearn { endpoint } => self.remove(&endpoint),
        }
    }

    /// Runs the target service of the proxy itself.
    fn drive(&mut self, now: Instant, input: Input<Inbound, target_service::Command>) {
        let outputs = &mut self.outputs;
        chappe_machine::drain(&mut self.own, now, input, |output| match output {
            Output::Transmit(datagram) => outputs.push_back(Output::Transmit(datagram)),
            Output::Event(target_service::Event::Stopped) => {
                outputs.push_back(Output::Event(Event::Stopped));
            }
            Output::Event(target_service::Event::NotSent { reason }) => {
                outputs.push_back(Output::Event(Event::NotSent { reason }));
            }
            // The proxy itself counts the outcomes of messages.
            Output::Event(_) => {}
        });
    }

    fn check_rate(&mut self, now: Instant, from: SocketAddr) -> Result<(), Dropped> {
        if self.message_rate.take(now, from.ip()) {
            return Ok(());
        }
        let detail = format!(
            "more than {} messages per second",
            self.config.messages_per_s
        );
        Err(Dropped::new(DropReason::RateLimited, detail))
    }

    fn receive(&mut self, now: Instant, datagram: &Inbound) -> Result<(), Dropped> {
        if !self.is_started {
            let detail = "the proxy is not running";
            return Err(Dropped::new(DropReason::NotStarted, detail));
        }
        self.check_rate(now, datagram.from)?;
        let received = intake::read(datagram)?;
        self.intake.check_duplicate(&received.message)?;
        let result = self.on_datagram(now, datagram, &received);
        self.intake.arrived(&received.message, &result);
        result
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Inbound,
        received: &intake::Received,
    ) -> Result<(), Dropped> {
        let message = &received.message;
        self.check_dialect(message)?;
        let origin = Origin {
            now,
            from: datagram.from,
            over_connection: false,
            sender: None,
            message,
        };
        match &message.content {
            Content::Hello(target) => self.on_hello(&origin, target),
            Content::Bye(target) => self.on_bye(&origin, &target.endpoint.address),
            Content::Probe(_) | Content::Resolve(_) if self.is_about_itself(message) => {
                let result = self.own.receive(now, datagram);
                self.drive(now, Input::Timeout);
                result
            }
            Content::Probe(_) | Content::Resolve(_) => {
                self.answer_datagram(now, datagram, received)
            }
            Content::ProbeMatches(_) | Content::ResolveMatches(_) => Err(Dropped::new(
                DropReason::OtherRole,
                message.content.action(),
            )),
        }
    }

    fn check_dialect(&self, message: &Message) -> Result<(), Dropped> {
        match self.config.dialects.contains(&message.dialect) {
            true => Ok(()),
            false => Err(Dropped::new(
                DropReason::OtherDialect,
                message.dialect.discovery(),
            )),
        }
    }

    /// Whether a request looks for proxies, or for this one.
    fn is_about_itself(&self, message: &Message) -> bool {
        match &message.content {
            Content::Probe(probe) => probe.types.contains(&message.dialect.proxy_type()),
            Content::Resolve(reference) => reference.address == self.config.endpoint,
            _ => false,
        }
    }

    fn on_hello(&mut self, origin: &Origin<'_>, target: &Target) -> Result<(), Dropped> {
        let dialect = origin.message.dialect;
        let endpoint = target.endpoint.address.clone();
        if target.types.contains(&dialect.proxy_type()) || endpoint == self.config.endpoint {
            let detail = "the Hello of a discovery proxy";
            return Err(Dropped::new(DropReason::OtherRole, detail));
        }
        let most = self.config.description_bytes;
        let permitted = policy::permit(&*self.policy, most, target.clone(), origin.from)?;
        let mut target = permitted.target;
        let standing = self.entries.standing(&endpoint, origin);
        if standing == Standing::Other {
            self.registered(origin, target, true);
            let detail = endpoint.chars().take(128).collect::<String>();
            return Err(Dropped::new(DropReason::HeldByOther, detail));
        }
        self.check_sequence(origin, &endpoint)?;
        let known = self.entries.target(&endpoint);
        let is_same = known.is_some_and(|known| !differs(known, &target));
        let end = origin.now + self.config.lifetime;
        if is_same || standing == Standing::Hint {
            let was_offered = self.entries.dialects(&endpoint);
            self.entries.renew(&endpoint, dialect, end);
            // A device that is back may differ in what it does not announce.
            self.registered(origin, target, !is_same);
            if !was_offered.contains(&dialect) {
                self.present(&endpoint);
            }
            return Ok(());
        }
        if let Some(known) = known {
            fill_absent_fields(&mut target, known);
        }
        let known = Known::new(target.clone(), dialect, origin.from, 0);
        self.insert(known, origin.sender.clone(), end)?;
        if let Some(sequence) = &origin.message.sequence {
            self.entries.follow(&endpoint, origin, sequence);
        }
        self.registered(origin, target, false);
        self.present(&endpoint);
        Ok(())
    }

    fn registered(&mut self, origin: &Origin<'_>, target: Target, is_hint: bool) {
        self.event(Event::Registered {
            target,
            dialect: origin.message.dialect,
            from: origin.from,
            is_hint,
        });
    }

    fn on_bye(&mut self, origin: &Origin<'_>, endpoint: &Str) -> Result<(), Dropped> {
        let short = || endpoint.chars().take(128).collect::<String>();
        let standing = self.entries.standing(endpoint, origin);
        match standing {
            Standing::Unknown => Err(Dropped::new(DropReason::OtherEndpoint, short())),
            Standing::Own if self.entries.may_leave(endpoint, origin) => {
                self.check_sequence(origin, endpoint)?;
                self.remove(endpoint);
                Ok(())
            }
            Standing::Own | Standing::Hint | Standing::Other => {
                self.event(Event::ByeHint {
                    endpoint: endpoint.clone(),
                    from: origin.from,
                });
                match standing {
                    Standing::Other => Err(Dropped::new(DropReason::HeldByOther, short())),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Drops messages older than the last one of the same source.
    fn check_sequence(&mut self, origin: &Origin<'_>, endpoint: &str) -> Result<(), Dropped> {
        let Some(sequence) = &origin.message.sequence else {
            return Ok(());
        };
        if self.entries.follow(endpoint, origin, sequence) {
            return Ok(());
        }
        let (instance, number) = (sequence.instance_id, sequence.message_number);
        let detail = format!("instance {instance}, message {number} of {endpoint:.128}");
        Err(Dropped::new(DropReason::Stale, detail))
    }

    fn learn(&mut self, now: Instant, target: Target, dialect: Dialect, from: SocketAddr) {
        let endpoint = target.endpoint.address.clone();
        let is_same = self.entries.target(&endpoint) == Some(&target);
        let mut known = Known::new(target, dialect, from, 0);
        known.confirmed = true;
        let end = now + self.config.lifetime;
        let sender = self.entries.sender_on_host(&endpoint, from.ip());
        if let Err(Dropped { reason, detail }) = self.insert(known, sender, end) {
            let suppressed = 0;
            return self.event(Event::Dropped {
                reason,
                from,
                detail,
                suppressed,
            });
        }
        if !is_same {
            self.present(&endpoint);
        }
    }

    /// Adds or replaces an entry.
    fn insert(&mut self, known: Known, sender: Option<Str>, end: Instant) -> Result<(), Dropped> {
        let inserted = self.entries.insert(known, sender, end);
        let evicted = inserted.map_err(|full| match full {
            Full::Table => {
                let detail = format!("all {} entries are confirmed", self.entries.len());
                Dropped::new(DropReason::TableFull, detail)
            }
            Full::Host => {
                let detail = format!("{} target services of this source", self.config.source_max);
                Dropped::new(DropReason::SourceFull, detail)
            }
        })?;
        if let Some((endpoint, dialects)) = evicted {
            self.event(Event::Absent { endpoint, dialects });
        }
        Ok(())
    }

    fn present(&mut self, endpoint: &str) {
        if let Some(target) = self.entries.target(endpoint).cloned() {
            let dialects = self.entries.dialects(endpoint);
            self.event(Event::Present { target, dialects });
        }
    }

    fn remove(&mut self, endpoint: &Str) {
        if let Some(dialects) = self.entries.remove(endpoint) {
            let endpoint = endpoint.clone();
            self.event(Event::Absent { endpoint, dialects });
        }
    }
}

impl Machine for Proxy {
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
            Input::Timeout => self.drive(now, Input::Timeout),
        }
        while let Some(report) = self.intake.due_report(now) {
            self.report(Some(report));
        }
        while let Some((endpoint, dialects)) = self.entries.pop_ended(now) {
            self.event(Event::Absent { endpoint, dialects });
        }
        while let Some(datagram) = self.outbox.pop(now) {
            self.outputs.push_back(Output::Transmit(datagram));
        }
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let own = Machine::deadline(&self.own);
        let ends = own.into_iter().chain(self.entries.next_end());
        ends.chain(self.outbox.next())
            .chain(self.intake.next_report())
            .min()
    }
}

impl Invariant for Proxy {
    fn check(&self) -> Result<(), String> {
        self.intake.check()?;
        self.own.check()?;
        self.entries.check()?;
        self.message_rate.check()?;
        if self.outbox.len() > self.outbox.capacity() {
            return Err(format!("{} messages queued", self.outbox.len()));
        }
        Ok(())
    }
}
