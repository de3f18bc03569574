//! The searching side of discovery.
//!
//! Source: WS-Discovery 1.1, sections 4 to 6, and its version of April 2005. Deliberately absent:
//! managed mode; trust in what is heard.

mod api;
mod hearing;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};
use chappe_soap::EndpointReference;
use chappe_soap::udp::{Outbox, SENT_ENVELOPE_BYTES_MAX, discovery_group, random_urn};
use chappe_xml::{Name, Str};

use super::drops::Reports;
use super::intake::{Books, Dropped};
use super::message::{Content, Message, Probe};
use super::rate::Buckets;
use super::table::Table;
use super::{DropCounts, Inbound, Interface, Outbound, Target};
use crate::Dialect;

pub use super::table::Known;
pub use api::{Command, Config, Event, Via, XaddrPolicy};

/// The machine that searches, in both dialects.
///
/// ```
/// use chappe_dpws::discovery::{Client, Interface, client::{Command, Config}};
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
///     timeout: std::time::Duration::from_secs(1),
/// };
/// let outputs = harness.input(Input::Command(probe)).unwrap();
/// assert!(matches!(&outputs[0], Output::Transmit(probe) if probe.to.ip().is_multicast()));
/// ```
pub struct Client {
    config: Config,
    policy: Box<dyn XaddrPolicy>,
    random: fastrand::Rng,
    books: Books,
    refusals: Reports,
    messages: Buckets,
    resolves: Buckets,
    table: Table,
    questions: BTreeMap<u64, Question>,
    by_message: HashMap<Str, u64>,
    ends: Timers<u64>,
    asked: u64,
    outbox: Outbox,
    outputs: VecDeque<Output<Outbound, Event>>,
}

#[derive(Debug)]
struct Question {
    subject: Subject,
    message_ids: Vec<Str>,
}

#[derive(Debug)]
enum Subject {
    Probe {
        id: u64,
        /// Who matched so far; at most as many as the table holds.
        matched: BTreeSet<Str>,
    },
    Resolve {
        endpoint: Str,
        /// What was said of the endpoint when its addresses were missing.
        partial: Option<Target>,
    },
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("known", &self.table.len())
            .field("questions", &self.questions.len())
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
            books: Books::new(config.seen_capacity, random.u64(..)),
            refusals: Reports::default(),
            messages: Buckets::of_subnets(config.messages_burst, config.messages_per_s),
            resolves: Buckets::of_all(config.resolves_burst, config.resolves_per_s),
            table: Table::new(config.quota()),
            questions: BTreeMap::new(),
            by_message: HashMap::new(),
            ends: Timers::default(),
            asked: 0,
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

    /// How many target services were forgotten to make room.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.table.evicted()
    }

    /// What is known of an endpoint.
    #[must_use]
    pub fn known(&self, endpoint: &str) -> Option<&Known> {
        self.table.get(endpoint)
    }

    /// All that is known, in no order.
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
                timeout,
            } => {
                let to = self.groups(None);
                self.probe(now, id, (&types, &scopes), &to, timeout);
            }
            Command::DirectedProbe {
                id,
                to,
                types,
                scopes,
                timeout,
            } => {
                let interface = self
                    .config
                    .interfaces
                    .first()
                    .map_or(0, |first| first.index);
                self.probe(now, id, (&types, &scopes), &[(interface, to)], timeout);
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
            }
            Command::SetInterfaces(interfaces) => self.config.interfaces = interfaces,
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
            let reason = "the table is full of confirmed target services".to_owned();
            self.event(Event::NotAsked { id: None, reason });
        }
    }

    /// The groups of one interface, or of all.
    fn groups(&self, only: Option<u32>) -> Vec<(u32, SocketAddr)> {
        let wanted = |interface: &&Interface| only.is_none_or(|index| interface.index == index);
        let interfaces = self.config.interfaces.iter().filter(wanted);
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
        (types, scopes): (&[Name], &[Str]),
        to: &[(u32, SocketAddr)],
        timeout: Duration,
    ) {
        let subject = Subject::Probe {
            id,
            matched: BTreeSet::new(),
        };
        let Some(question) = self.open(now, subject, timeout) else {
            let reason = format!("{} questions are open", self.config.questions_capacity);
            self.event(Event::NotAsked {
                id: Some(id),
                reason,
            });
            self.event(Event::ProbeEnded { id, count: 0 });
            return;
        };
        for dialect in self.config.dialects.clone() {
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
                    match_by: None,
                };
                self.ask(now, question, dialect, &Content::Probe(probe), to);
            }
        }
    }

    /// Asks for an endpoint, unless it is asked for already.
    fn resolve(
        &mut self,
        now: Instant,
        endpoint: Str,
        partial: Option<Target>,
        dialect: Option<Dialect>,
        to: &[(u32, SocketAddr)],
        unicast: Option<(u32, SocketAddr)>,
    ) {
        let open = self.questions.values().any(|question| {
            matches!(&question.subject, Subject::Resolve { endpoint: open, .. } if *open == endpoint)
        });
        if open {
            return;
        }
        let subject = Subject::Resolve {
            endpoint: endpoint.clone(),
            partial,
        };
        let Some(question) = self.open(now, subject, self.config.resolve_timeout) else {
            let reason = format!("{} questions are open", self.config.questions_capacity);
            self.event(Event::NotAsked { id: None, reason });
            self.event(Event::ResolveEnded {
                endpoint,
                answered: false,
            });
            return;
        };
        let content = Content::Resolve(EndpointReference::new(endpoint));
        let dialects = dialect.map_or_else(|| self.config.dialects.clone(), |one| vec![one]);
        for dialect in dialects {
            self.ask(now, question, dialect, &content, to);
            self.ask(now, question, dialect, &content, unicast.as_slice());
        }
    }

    /// Opens a question until `timeout` has passed.
    fn open(&mut self, now: Instant, subject: Subject, timeout: Duration) -> Option<u64> {
        if self.questions.len() >= self.config.questions_capacity {
            return None;
        }
        self.asked += 1;
        let question = Question {
            subject,
            message_ids: Vec::new(),
        };
        self.questions.insert(self.asked, question);
        self.ends.set(self.asked, now + timeout);
        Some(self.asked)
    }

    /// Sends a question's message to each destination, each with an identifier of its own.
    fn ask(
        &mut self,
        now: Instant,
        question: u64,
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
            let bytes = message
                .to_envelope(&self.config.prefixes)
                .to_text()
                .into_bytes();
            if bytes.len() > SENT_ENVELOPE_BYTES_MAX {
                let reason = format!("{} bytes, at most {SENT_ENVELOPE_BYTES_MAX}", bytes.len());
                self.event(Event::NotAsked { id: None, reason });
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
                self.event(Event::NotAsked { id: None, reason });
                return;
            }
            self.books.seen.sent(&message_id);
            self.by_message.insert(message_id.clone(), question);
            if let Some(question) = self.questions.get_mut(&question) {
                question.message_ids.push(message_id);
            }
        }
    }

    /// Ends a question and tells how it went.
    fn close(&mut self, question: u64, answered: bool) {
        let Some(question) = self.forget(question) else {
            return;
        };
        match question.subject {
            Subject::Probe { id, matched } => {
                let count = matched.len();
                self.event(Event::ProbeEnded { id, count });
            }
            Subject::Resolve { endpoint, .. } => {
                self.event(Event::ResolveEnded { endpoint, answered });
            }
        }
    }

    fn forget(&mut self, question: u64) -> Option<Question> {
        self.ends.cancel(&question);
        let question = self.questions.remove(&question)?;
        for id in &question.message_ids {
            self.by_message.remove(id);
        }
        Some(question)
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
                let report = self.books.enter(now, datagram.from, result);
                self.report(report);
            }
            Input::Command(command) => self.command(now, command),
            Input::Timeout => {}
        }
        while let Some(held) = self.books.held_back(now) {
            self.report(Some(held));
        }
        while let Some(question) = self.ends.pop(now) {
            self.close(question, false);
        }
        self.send_due(now);
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let ends = self.ends.next().into_iter();
        ends.chain(self.outbox.next())
            .chain(self.books.next_report())
            .min()
    }
}

impl Invariant for Client {
    fn check(&self) -> Result<(), String> {
        self.books.check()?;
        self.table.check()?;
        self.messages.check()?;
        self.resolves.check()?;
        let (questions, ends) = (self.questions.len(), self.ends.len());
        if questions > self.config.questions_capacity || questions != ends {
            return Err(format!("{questions} questions, {ends} ends"));
        }
        let ids: usize = self
            .questions
            .values()
            .map(|question| question.message_ids.len())
            .sum();
        if ids != self.by_message.len() {
            return Err(format!(
                "{ids} messages asked, {} known",
                self.by_message.len()
            ));
        }
        if self.outbox.len() > self.outbox.capacity() {
            return Err(format!("{} messages wait", self.outbox.len()));
        }
        Ok(())
    }
}
