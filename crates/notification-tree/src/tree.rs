//! The machine: state, what it is told, what it says, and the order in which it says it.
//!
//! Order matters: what is to be sent on goes first, then the signature is verified, then the event is
//! delivered, then answers go. How sinks act is in `sink.rs`, `answers.rs` and `repair.rs`,
//! how a source does in `source.rs`; `sending.rs` is both's.

use alloc::collections::{BTreeSet, BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output, TokenBucket};

use crate::config::{Config, Pace};
use crate::error::{Error, Malformed};
use crate::guard::Guard;
use crate::interface::{Command, Counters, Happened};
use crate::job::Job;
use crate::limit::Limit;
use crate::membership::{Contact, Membership};
use crate::message::{Body, DATAGRAM_BYTES_MAX, Message, SOURCE, Tag, Transmit};
use crate::plan::Splitter;
use crate::proof::Proofs;
use crate::round_trip::RoundTrip;
use crate::spare::Spare;
use crate::state::{Alarm, JobId, Record, Sending, Topic, Version};
use crate::window::Window;

/// Versions of a membership that are kept: the newest, and those before it for events under way.
///
/// Reason: sinks come and go one by one; an answer of a version that is forgotten is not understood.
pub(crate) const VERSIONS_KEPT: usize = 8;

/// Signatures of senders that were caught, or that no list names, that are verified in a second, and
/// keys that are agreed on with the latter.
///
/// Reason: a tenth of a processor; each takes 60 to 200 µs.
const VERIFICATIONS_PER_S: u32 = 1_000;

/// A node of notification trees: source of some topics, sink of others.
#[derive(Debug)]
pub struct Tree<G> {
    pub(crate) config: Arc<Config>,
    pub(crate) contact: Contact,
    pub(crate) guard: G,
    pub(crate) random: fastrand::Rng,
    pub(crate) topics: Vec<Topic>,
    pub(crate) splitter: Splitter,
    pub(crate) round_trip: RoundTrip,
    pub(crate) measured: bool,
    pub(crate) send_cost: Duration,
    /// The delay of the last measured plan.
    pub(crate) delay: Option<u32>,
    pub(crate) now: Instant,
    /// Sends since the last input: the driver does them one after the other.
    pub(crate) burst: u32,
    /// What goes for the first time, and what goes to a single sink again: they take turns.
    pub(crate) sending: VecDeque<Sending>,
    pub(crate) again: VecDeque<(JobId, u32)>,
    pub(crate) again_next: bool,
    pub(crate) unverified: Option<JobId>,
    /// An event that goes on when what was seen is kept, and what was seen before it.
    pub(crate) keeping: Option<(JobId, Window)>,
    pub(crate) out: VecDeque<Output<Transmit, Happened>>,
    pub(crate) timers: BinaryHeap<Reverse<(Instant, JobId, Alarm)>>,
    pub(crate) open_jobs: usize,
    pub(crate) bucket: TokenBucket,
    pub(crate) repairs: Limit,
    /// Signatures of those who were caught, or whom nobody knows.
    pub(crate) verifications: Limit,
    pub(crate) proofs: Proofs,
    pub(crate) spare: Spare,
    pub(crate) counters: Counters,
}

impl<G: Guard> Tree<G> {
    /// A node that takes datagrams at `contact`. `seed` is where its choices come from.
    #[must_use]
    pub fn new(config: Arc<Config>, contact: Contact, guard: G, seed: u64) -> Self {
        let round_trip = RoundTrip::assume(config.latency * 2);
        let (send_cost, pace) = (config.send_cost, config.pace);
        let repairs = Limit::new(config.repairs_per_s);
        Self {
            config,
            contact,
            guard,
            random: fastrand::Rng::with_seed(seed),
            topics: Vec::new(),
            splitter: Splitter::default(),
            round_trip,
            measured: false,
            send_cost,
            delay: None,
            now: Instant::ZERO,
            burst: 0,
            sending: VecDeque::new(),
            again: VecDeque::new(),
            again_next: false,
            unverified: None,
            keeping: None,
            out: VecDeque::new(),
            timers: BinaryHeap::new(),
            open_jobs: 0,
            bucket: TokenBucket::full(
                Instant::ZERO,
                pace.map(Pace::token_rate).unwrap_or_default(),
            ),
            repairs,
            verifications: Limit::new(VERIFICATIONS_PER_S),
            proofs: Proofs::default(),
            spare: Spare::default(),
            counters: Counters::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The mean round trip without the peers' dwell times, once one was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.mean().filter(|_| self.measured)
    }

    /// What a send costs this node, as configured or last told.
    #[must_use]
    pub fn send_cost(&self) -> Duration {
        self.send_cost
    }

    /// Reads and authenticates a datagram, for [`Input::Receive`]; counts what it refuses.
    ///
    /// A sender that no known membership names is let through only with an event, which is verified
    /// before anything else. When only a list inside the event names it, agreeing on a key with it is
    /// limited as verifying is: who makes up lists does not keep a node busy.
    ///
    /// # Errors
    /// Why it is not used: [`Malformed`], or [`Malformed::Protocol`] when it is not authentic.
    pub fn open(&mut self, now: Instant, datagram: &[u8]) -> Result<Message, Malformed> {
        let (message, tag) = Message::read(&mut self.spare, datagram).inspect_err(|_| {
            self.counters.malformed += 1;
        })?;
        if !self.guard.authenticates() {
            // A tag that nobody looks at is not there: who sends one takes this for another network.
            return match tag {
                None => Ok(message),
                Some(_) => self.refuse(),
            };
        }
        let topic = self.topic_index(message.topic()).map(|at| &self.topics[at]);
        let Some(topic) = topic else {
            self.counters.not_subscribed += 1;
            return Err(Malformed::Protocol);
        };
        let version = topic.version(message.version());
        let own = topic.own.is_some();
        let peer = match (message.from, version, &message.body) {
            (_, _, Body::Proof(proof)) if proof.answer == own => {
                let asked = match own {
                    true => self.proofs.key_of(proof.number),
                    false => Some(topic.source.key),
                };
                match asked {
                    Some(key) => key,
                    None => return self.refuse(),
                }
            }
            (SOURCE, _, _) => topic.source.key,
            (from, Some(version), _) => match version.membership.sink(from) {
                Some(sink) => sink.key,
                None => return self.refuse(),
            },
            // The event itself says who made it.
            (from, None, Body::Spread(spread)) => match spread.event.list() {
                Some(list) => match list.ok().as_ref().and_then(|list| list.sink(from)) {
                    Some(_) if !self.verifications.take(now.max(self.now), None) => {
                        self.counters.unverified += 1;
                        return Err(Malformed::Protocol);
                    }
                    Some(sink) => sink.key,
                    None => return self.refuse(),
                },
                None => return Ok(message),
            },
            (_, None, _) => return self.refuse(),
        };
        match tag {
            Some(Tag { over, tag }) if self.guard.hop_tag(&peer, over) == Some(tag) => Ok(message),
            _ => self.refuse(),
        }
    }

    fn refuse(&mut self) -> Result<Message, Malformed> {
        self.counters.unauthenticated += 1;
        Err(Malformed::Protocol)
    }

    /// Makes the datagram of a message: replaces what is in `datagram`.
    pub fn seal(&mut self, transmit: &Transmit, datagram: &mut Vec<u8>) {
        datagram.clear();
        let authenticated = self.guard.authenticates();
        transmit.message.encode(authenticated, datagram);
        if authenticated {
            // A peer that is no key cannot check it either.
            let tag = self
                .guard
                .hop_tag(&transmit.key, datagram)
                .unwrap_or_default();
            datagram.extend_from_slice(&tag.to_be_bytes());
        }
        debug_assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    }

    /// [`Command::Publish`] of a body that stays the caller's, whose memory can so be used again. The
    /// outputs are to be drained as after any input.
    pub fn publish_borrowed(
        &mut self,
        now: Instant,
        topic: u64,
        body: &[u8],
        deadline: Option<Duration>,
    ) {
        self.begin(now);
        self.publish_or_say(topic, body, deadline);
    }

    fn publish_or_say(&mut self, topic: u64, body: &[u8], deadline: Option<Duration>) {
        if let Err(error) = self.publish(topic, Some(body), deadline) {
            let not = Happened::NotPublished { topic, error };
            self.out.push_back(Output::Event(not));
        }
    }

    /// Something came at `now`.
    fn begin(&mut self, now: Instant) {
        self.now = now.max(self.now);
        self.burst = 0;
    }

    pub(crate) fn topic_index(&self, topic: u64) -> Option<usize> {
        self.topics.iter().position(|it| it.id == topic && !it.left)
    }

    pub(crate) fn record(&mut self, id: JobId) -> Option<&mut Record> {
        let topic = self.topics.get_mut(id.topic as usize)?;
        let at = id.serial.checked_sub(topic.base)?;
        topic.records.get_mut(usize::try_from(at).ok()?)
    }

    pub(crate) fn job(&mut self, id: JobId) -> Option<&mut Job> {
        self.record(id)?.jobs.get_mut(usize::from(id.job))
    }

    pub(crate) fn set_timer(&mut self, at: Instant, id: JobId, alarm: Alarm) {
        self.timers.push(Reverse((at, id, alarm)));
    }

    /// How long to wait for one answer: as measured, or as the head before said, but never less than
    /// the floor, whatever a peer says.
    pub(crate) fn timeout(&self, hop_us: u32) -> Duration {
        let floor = self.config.timeout_floor;
        let hop = Duration::from_micros(u64::from(hop_us));
        match self.round_trip.timeout(floor) {
            Some(own) if self.measured || hop.is_zero() => own,
            _ => hop,
        }
        .max(floor)
    }

    /// Puts a message to a member into the queue.
    pub(crate) fn transmit(&mut self, id: JobId, to: u32, body: Body) {
        let Some(topic) = self.topics.get(id.topic as usize) else {
            return;
        };
        let Some(record) = topic.records.get((id.serial - topic.base) as usize) else {
            return;
        };
        let from = match topic.own {
            Some(_) => SOURCE,
            None => record.number.unwrap_or(SOURCE - 1),
        };
        let contact = match to {
            SOURCE => Some(topic.source),
            _ => record
                .membership
                .as_ref()
                .and_then(|it| it.sink(to).copied()),
        };
        if let Some(contact) = contact {
            let message = Message { from, body };
            self.out.push_back(Output::Transmit(Transmit {
                address: contact.address,
                key: contact.key,
                to,
                message,
            }));
        }
    }

    // -- commands --

    fn command(&mut self, command: Command) {
        let done = match command {
            Command::Publisher { membership, boot } => self.publisher(membership, boot),
            Command::Subscribe {
                topic,
                source,
                window,
            } => self.subscribe(topic, source, None, window),
            Command::Leave { topic } => self.leave(topic),
            Command::Membership { membership, number } => self.adopt(membership, number),
            Command::Prove { topic, contact } => self.prove(topic, contact).inspect_err(|_| {
                let there = false;
                self.out.push_back(Output::Event(Happened::Proven {
                    topic,
                    contact,
                    there,
                }));
            }),
            Command::Publish {
                topic,
                body,
                deadline,
            } => {
                self.publish_or_say(topic, &body, deadline);
                Ok(())
            }
            Command::Heartbeat { topic } => self.publish(topic, None, None),
            Command::Suspect {
                topic,
                sink,
                suspected,
            } => {
                if let Some(topic) = self.topics.iter_mut().find(|it| it.id == topic && !it.left) {
                    let newest = topic.versions.last();
                    let listed = newest.is_some_and(|it| sink < it.membership.count());
                    match suspected && listed {
                        true => topic.suspect(sink),
                        false => drop(topic.suspects.remove(&sink)),
                    }
                }
                Ok(())
            }
            Command::SendCost(send_cost) => {
                self.send_cost = send_cost.min(Duration::from_secs(1));
                Ok(())
            }
        };
        if let Err(error) = done {
            self.out.push_back(Output::Event(Happened::Refused(error)));
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        topic: u64,
        source: Contact,
        own: Option<(u32, u64)>,
        window: Window,
    ) -> Result<(), Error> {
        let most = self.config.topics_max;
        if let Some(known) = self.topics.iter_mut().find(|it| it.id == topic && !it.left) {
            // The source may have moved; what was seen stays seen.
            known.source = source;
            return Ok(());
        }
        let mut fresh = Topic {
            id: topic,
            source,
            left: false,
            own,
            versions: Vec::new(),
            version_missed: None,
            window,
            records: VecDeque::new(),
            base: 0,
            suspects: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            pulls: None,
        };
        if let Some(place) = self.topics.iter_mut().find(|it| it.left) {
            // Serial numbers go on, so that no old name of a job means a new one.
            fresh.base = place.base;
            *place = fresh;
            return Ok(());
        }
        if self.topics.len() >= most {
            return Err(Error::Full {
                what: "topic",
                most,
            });
        }
        self.topics.push(fresh);
        Ok(())
    }

    fn leave(&mut self, topic: u64) -> Result<(), Error> {
        let at = self.topic_index(topic).ok_or(Error::Topic { topic })?;
        // Jobs are named by the place of their topic: it stays, empty, until another takes it.
        let left = &mut self.topics[at];
        left.left = true;
        left.own = None;
        left.pulls = None;
        left.versions.clear();
        while !self.topics[at].records.is_empty() {
            self.forget_oldest(at);
        }
        Ok(())
    }

    /// Takes a version of a membership.
    pub(crate) fn adopt(
        &mut self,
        membership: Arc<Membership>,
        number: Option<u32>,
    ) -> Result<(), Error> {
        let id = membership.topic();
        let contact = self.contact;
        let topic = self.topics.iter_mut().find(|it| it.id == id && !it.left);
        let topic = topic.ok_or(Error::Topic { topic: id })?;
        if topic.version(membership.version()).is_some() {
            return Ok(());
        }
        let newest = topic.versions.last().map(|it| &it.membership);
        if newest.is_some_and(|newest| newest.version() > membership.version()) {
            return Err(Error::Membership("it is older than the one that is known"));
        }
        // Numbers mean others now.
        match newest {
            Some(newest) => newest.renumber(&mut topic.suspects, &membership),
            None => topic.suspects.clear(),
        }
        let number = number.or_else(|| membership.number(&contact));
        if topic.versions.len() == VERSIONS_KEPT {
            topic.versions.remove(0);
        }
        // Events that came before their list: asked again, they can be answered now.
        for record in &mut topic.records {
            if record.membership.is_none() && record.event.version() == membership.version() {
                record.membership = Some(Arc::clone(&membership));
                record.number = number;
            }
        }
        topic.versions.push(Version { membership, number });
        Ok(())
    }
}

impl<G: Guard> Machine for Tree<G> {
    type Receive = Message;
    type Command = Command;
    type Transmit = Transmit;
    type Event = Happened;

    fn handle_input(&mut self, now: Instant, input: Input<Message, Command>) {
        self.begin(now);
        match input {
            Input::Receive(message) => self.receive(message),
            Input::Command(command) => self.command(command),
            // Only now: an answer that has come but was not looked at is no silence.
            Input::Timeout => self.ring(),
        }
    }

    fn poll_output(&mut self) -> Option<Output<Transmit, Happened>> {
        if let Some(transmit) = self.next_spread() {
            return Some(Output::Transmit(transmit));
        }
        if let Some(id) = self.unverified.take() {
            self.verify(id);
        }
        if let Some(output) = self.out.pop_front() {
            return Some(output);
        }
        // Nobody said that what was seen is not kept.
        let (id, _) = self.keeping.take()?;
        self.kept(id);
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _, _))| *at)
    }
}
