//! The machine: one node of notification trees.
//!
//! [`Tree`] routes between its parts. [`Hops`] gives ranges to heads and collects their answers; [`Source`]
//! numbers events and plans their rounds; [`Sink`] verifies and delivers; [`Repairs`] pulls missed events;
//! [`Proofs`] asks sinks for their address. The parts do not know each other: each works on the [`Node`] that it
//! is given and returns the next actions.
//!
//! The order of work makes events fast: forwarding comes first, then the signature is verified, then the event
//! is delivered, then answers are sent.

mod alarms;
mod hops;
mod invariant;
mod node;
mod proof;
mod repair;
mod sink;
mod source;
mod topics;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};

use crate::config::Config;
use crate::error::{Error, Malformed};
use crate::guard::Guard;
use crate::interface::{Command, Counters, TreeEvent};
use crate::membership::Contact;
use crate::message::{Body, Coverage, Message, SOURCE, Spread, Tag, Transmit};
use crate::wire::DATAGRAM_BYTES_MAX;
use alarms::{Alarm, JobId};
use hops::{Hops, Progress};
use node::Node;
use proof::Proofs;
use repair::Repairs;
use sink::{Acceptance, Sink};
use source::{Round, Source};

/// A node of notification trees: source of some topics, sink of others.
#[derive(Debug)]
pub struct Tree<G> {
    node: Node<G>,
    hops: Hops,
    source: Source,
    sink: Sink,
    repairs: Repairs,
    proofs: Proofs,
}

impl<G: Guard> Tree<G> {
    /// A node that receives datagrams at `contact`. Its random choices come from `seed`.
    #[must_use]
    pub fn new(config: Arc<Config>, contact: Contact, guard: G, seed: u64) -> Self {
        Self {
            hops: Hops::new(&config),
            source: Source::default(),
            sink: Sink::new(),
            repairs: Repairs::new(config.repairs_per_s),
            proofs: Proofs::default(),
            node: Node::new(config, contact, guard, seed),
        }
    }

    /// The counters since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.node.counters
    }

    /// The mean round trip without the peers' dwell times, once one was measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.hops.round_trip()
    }

    /// The cost of a send, as configured or last set by [`Command::SendCost`].
    #[must_use]
    pub fn send_cost(&self) -> Duration {
        self.hops.cost().send
    }

    /// Reads and authenticates a datagram, for [`Input::Receive`]; counts refused ones.
    ///
    /// A sender that no known membership names may send an event only, which is verified before anything else. If
    /// only the list inside the event names it, agreeing on a key with it is limited as verifying is, so that
    /// made-up lists cannot keep a node busy.
    ///
    /// # Errors
    /// The datagram is malformed; [`Malformed::Protocol`] also if it is not authentic.
    pub fn open(&mut self, now: Instant, datagram: &[u8]) -> Result<Message, Malformed> {
        let pool = &mut self.node.topics.spare.events;
        let (message, tag) = Message::read(pool, datagram).inspect_err(|_| {
            self.node.counters.malformed += 1;
        })?;
        if !self.node.guard.authenticates() {
            // A sender of tags believes that this is an authenticated network.
            return match tag {
                None => Ok(message),
                Some(_) => self.refuse(),
            };
        }
        match (self.peer_key(now, &message)?, tag) {
            (None, _) => Ok(message),
            (Some(peer), Some(Tag { over, tag }))
                if self.node.guard.hop_tag(&peer, over) == Some(tag) =>
            {
                Ok(message)
            }
            _ => self.refuse(),
        }
    }

    /// The key that authenticates the sender of a message; `None` if the event in it does, since its list is
    /// unknown.
    fn peer_key(&mut self, now: Instant, message: &Message) -> Result<Option<[u8; 32]>, Malformed> {
        let topics = &self.node.topics;
        let Some(at) = topics.find(message.topic()) else {
            self.node.counters.not_subscribed += 1;
            return Err(Malformed::Protocol);
        };
        let topic = &topics[at];
        let is_source = topic.publisher.is_some();
        let version = topic.version(message.version());
        let key = match (message.from, version, &message.body) {
            (_, _, Body::Proof(proof)) if proof.answer == is_source => match is_source {
                true => self.proofs.key_of(proof.number),
                false => Some(topic.source.key),
            },
            (SOURCE, _, _) => Some(topic.source.key),
            (from, Some(version), _) => version.membership.sink(from).map(|sink| sink.key),
            (from, None, Body::Spread(spread)) => {
                let Some(list) = spread.event.list() else {
                    return Ok(None);
                };
                let sink = list.ok().and_then(|list| list.sink(from).copied());
                let now = now.max(self.node.now);
                if sink.is_some() && !self.sink.take_verification(now, None) {
                    self.node.counters.unverified += 1;
                    return Err(Malformed::Protocol);
                }
                sink.map(|sink| sink.key)
            }
            (_, None, _) => None,
        };
        match key {
            Some(key) => Ok(Some(key)),
            None => self.refuse(),
        }
    }

    fn refuse<T>(&mut self) -> Result<T, Malformed> {
        self.node.counters.unauthenticated += 1;
        Err(Malformed::Protocol)
    }

    /// Writes the datagram of a message into `datagram`, in place of its content.
    pub fn seal(&mut self, transmit: &Transmit, datagram: &mut Vec<u8>) {
        datagram.clear();
        let guard = &mut self.node.guard;
        let is_authenticated = guard.authenticates();
        transmit.message.encode(is_authenticated, datagram);
        if is_authenticated {
            // A peer without a valid key cannot check the tag either.
            let tag = guard.hop_tag(&transmit.key, datagram).unwrap_or_default();
            datagram.extend_from_slice(&tag.to_be_bytes());
        }
        debug_assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
    }

    /// [`Command::Publish`] of a borrowed body, so that the caller can use its memory again. The outputs are to
    /// be drained as after any input.
    pub fn publish_borrowed(
        &mut self,
        now: Instant,
        topic: u64,
        body: &[u8],
        deadline: Option<Duration>,
    ) {
        self.begin(now);
        self.publish_or_report(topic, body, deadline);
    }

    /// Rejects the window of the last [`TreeEvent::Remember`], which could not be stored. Its event counts as not
    /// received: it is neither delivered nor answered for, and accepted when it arrives again.
    ///
    /// To be called before the next [`poll_output`](Machine::poll_output).
    pub fn reject_window(&mut self) {
        let dropped_jobs = self.sink.on_not_persisted(&mut self.node);
        self.on_jobs_ended(dropped_jobs);
    }

    fn begin(&mut self, now: Instant) {
        self.node.now = now.max(self.node.now);
        self.hops.begin();
    }

    // -- messages --

    fn receive(&mut self, message: Message) {
        let Some(at) = self.node.topics.find(message.topic()) else {
            self.node.counters.not_subscribed += 1;
            return;
        };
        let (node, from) = (&mut self.node, message.from);
        match message.body {
            Body::Spread(spread) => {
                self.on_spread(at, from, &spread);
                self.node.topics.spare.events.put(spread.event);
            }
            Body::Response(response) => self.hops.on_response(node, at, from, &response),
            Body::Coverage(coverage) => self.on_coverage(at, from, coverage),
            Body::Pull(pull) => {
                let latency = self.hops.cost().delay;
                self.repairs.on_pull(node, at, from, &pull, latency);
            }
            Body::Proof(proof) => self.proofs.on_proof(node, at, proof),
        }
    }

    fn on_spread(&mut self, at: usize, from: u32, spread: &Spread) {
        match self.sink.accept(&mut self.node, at, from, spread) {
            Acceptance::Rejected => {}
            Acceptance::Known(id) => self.take_range(id, from, spread),
            Acceptance::New {
                id,
                is_verified,
                dropped_jobs,
            } => {
                self.on_jobs_ended(dropped_jobs);
                self.take_range(id, from, spread);
                match is_verified {
                    true => self.sink.remember(&mut self.node, id),
                    false => self.sink.verify_next(id),
                }
            }
        }
    }

    fn take_range(&mut self, id: JobId, from: u32, spread: &Spread) {
        let done = self.hops.take_range(&mut self.node, id, from, spread);
        self.on_job_done(done);
    }

    fn on_coverage(&mut self, at: usize, from: u32, coverage: Coverage) {
        let (node, response) = (&mut self.node, &coverage.response);
        let Some((id, part)) = self.hops.on_coverage(node, at, from, response) else {
            return;
        };
        let is_genuine = self.source.is_genuine(node, id, &coverage.piece);
        match self.hops.cover(node, (id, part), coverage, is_genuine) {
            Progress::Waiting => {}
            Progress::JobDone(id) => self.on_job_done(Some(id)),
            Progress::AllDelivered(id) => {
                let open_jobs = self.source.end_event(node, id);
                self.on_jobs_ended(open_jobs);
            }
        }
    }

    // -- jobs --

    fn start_round(&mut self, round: Round) -> Option<JobId> {
        let Round {
            id,
            plan,
            parts,
            due,
        } = round;
        self.hops.start_round(&mut self.node, id, plan, parts, due)
    }

    /// Ends a job whose parts are done or whose time is over: a source starts the next round, a sink
    /// answers its requesters.
    fn on_job_done(&mut self, done: Option<JobId>) {
        let mut next = done;
        while let Some(id) = next.take() {
            match self.hops.end_job(&mut self.node, id) {
                None => return,
                Some(true) => {
                    if let Some(round) = self.source.end_round(&mut self.node, id) {
                        next = self.start_round(round);
                    }
                }
                Some(false) => self.hops.answer_all(&mut self.node, id),
            }
            self.on_jobs_ended(1);
        }
    }

    /// Clears the alarms when nothing is under way.
    fn on_jobs_ended(&mut self, count: usize) {
        if self.hops.on_jobs_ended(count)
            && self.proofs.is_empty()
            && !self.node.topics.is_pulling()
        {
            self.node.alarms.clear();
        }
    }

    /// The window of an event is stored: the event is delivered and receipted.
    fn deliver(&mut self, id: JobId) {
        let timeout = self.hops.timeout(&self.node.config, 0);
        let jobs = self.sink.deliver(&mut self.node, id, timeout);
        for job in 0..jobs {
            // At most jobs_max.
            let job = job as u16;
            let done = self.hops.add_own(&mut self.node, JobId { job, ..id });
            self.on_job_done(done);
        }
    }

    // -- commands --

    fn execute(&mut self, command: Command) {
        let node = &mut self.node;
        let done = match command {
            Command::Publisher { membership, boot } => self.source.add(node, membership, boot),
            Command::Subscribe {
                topic,
                source,
                window,
            } => {
                let topics_max = node.config.topics_max;
                node.topics.add(topic, source, None, window, topics_max)
            }
            Command::Leave { topic } => {
                let dropped_jobs = node.topics.leave(topic);
                dropped_jobs.map(|count| self.on_jobs_ended(count))
            }
            Command::Membership { membership, number } => {
                node.topics.adopt(membership, number, &node.contact)
            }
            Command::Prove { topic, contact } => {
                let asked = self.proofs.start(node, topic, contact);
                if asked.is_err() {
                    let is_reachable = false;
                    node.emit(TreeEvent::Proven {
                        topic,
                        contact,
                        is_reachable,
                    });
                }
                asked
            }
            Command::Publish {
                topic,
                body,
                deadline,
            } => {
                self.publish_or_report(topic, &body, deadline);
                Ok(())
            }
            Command::Heartbeat { topic } => self.publish(topic, None, None),
            Command::Suspect {
                topic,
                sink,
                suspected,
            } => {
                self.suspect(topic, sink, suspected);
                Ok(())
            }
            Command::SendCost(send_cost) => {
                self.hops.set_send_cost(send_cost);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.node.emit(TreeEvent::Refused(error));
        }
    }

    fn publish(
        &mut self,
        topic: u64,
        body: Option<&[u8]>,
        deadline: Option<Duration>,
    ) -> Result<(), Error> {
        let (node, cost) = (&mut self.node, self.hops.cost());
        let round = self.source.publish(node, cost, topic, body, deadline)?;
        let done = self.start_round(round);
        self.on_job_done(done);
        Ok(())
    }

    fn publish_or_report(&mut self, topic: u64, body: &[u8], deadline: Option<Duration>) {
        if let Err(error) = self.publish(topic, Some(body), deadline) {
            self.node.emit(TreeEvent::NotPublished { topic, error });
        }
    }

    fn suspect(&mut self, topic: u64, sink: u32, is_suspected: bool) {
        let Some(at) = self.node.topics.find(topic) else {
            return;
        };
        let topic = &mut self.node.topics[at];
        let newest = topic.versions.last();
        let is_listed = newest.is_some_and(|it| sink < it.membership.count());
        match is_suspected && is_listed {
            true => topic.suspect(sink),
            false => drop(topic.suspects.remove(&sink)),
        }
    }

    // -- alarms --

    fn ring(&mut self) {
        while let Some((id, alarm)) = self.node.alarms.pop(self.node.now) {
            let node = &mut self.node;
            let done = match alarm {
                Alarm::Part(part, generation) => {
                    self.hops.on_silence(node, id, part as usize, generation)
                }
                Alarm::Due => self.hops.on_due(node, id),
                Alarm::Progress => {
                    self.hops.on_progress(node, id);
                    None
                }
                Alarm::Pull => {
                    let timeout = self.hops.timeout(&node.config, 0);
                    self.repairs.pull(node, id.topic as usize, timeout);
                    None
                }
                Alarm::Proof => {
                    self.proofs.ask(node, id.serial);
                    None
                }
            };
            self.on_job_done(done);
        }
    }
}

impl<G: Guard> Machine for Tree<G> {
    type Receive = Message;
    type Command = Command;
    type Transmit = Transmit;
    type Event = TreeEvent;

    fn handle_input(&mut self, now: Instant, input: Input<Message, Command>) {
        self.begin(now);
        match input {
            Input::Receive(message) => self.receive(message),
            Input::Command(command) => self.execute(command),
            // Alarms ring here alone: an answer that has arrived and was not read yet is not silence.
            Input::Timeout => self.ring(),
        }
    }

    fn poll_output(&mut self) -> Option<Output<Transmit, TreeEvent>> {
        if let Some(transmit) = self.hops.next_spread(&mut self.node) {
            return Some(Output::Transmit(transmit));
        }
        let dropped_jobs = self.sink.verify(&mut self.node);
        self.on_jobs_ended(dropped_jobs);
        if let Some(output) = self.node.outputs.pop_front() {
            return Some(output);
        }
        // The window was not rejected, so it is stored.
        let id = self.sink.take_persisted()?;
        self.deliver(id);
        self.node.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.node.alarms.next()
    }
}
