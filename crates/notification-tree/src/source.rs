//! What a source does: numbers events, sends them, and finds out what became of them.
//!
//! It goes in rounds. The first is the tree. What is not known to be delivered when it ends is tried
//! again, in ranges that are eight times smaller in each round and end as single sinks, with heads
//! chosen by chance: whoever dropped or belied a part hardly has it again. *Delivered* rests on
//! receipts alone.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::{Instant, Output};

use crate::config::Choice;
use crate::coverage::{Piece, Pieces};
use crate::error::Error;
use crate::event::{Content, Event, EventId};
use crate::guard::Guard;
use crate::interface::{Happened, Outcome};
use crate::job::{Hop, Job, Part, cut, divide};
use crate::membership::{Membership, contact_bytes};
use crate::message::{SPREAD_HEAD_BYTES, Suspects};
use crate::plan::Plan;
use crate::schedule::Cost;
use crate::state::{Alarm, JobId, Record, Sending, micros};
use crate::tree::Tree;
use crate::window::Window;

/// Rounds of one event.
///
/// Reason: each makes the ranges eight times smaller, and 8^8 is more than any list.
pub(crate) const ROUNDS_MAX: u8 = 12;

/// What a source knows of the sinks of one event.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sinks: u32,
    /// A bit for each sink that has it for certain.
    delivered: Vec<u64>,
    delivered_count: u32,
    /// Those that did not answer the source itself.
    failed: BTreeSet<u32>,
    /// Those that others said to have failed: the source tries each itself, once a round.
    hearsay: BTreeSet<u32>,
    pub(crate) round: u8,
    pub(crate) lies: u32,
    published: Instant,
    over: bool,
}

impl Tally {
    /// Begins with an event of which nothing is known yet, in the memory of one before.
    fn begin(&mut self, sinks: u32, published: Instant) {
        let mut delivered = core::mem::take(&mut self.delivered);
        delivered.clear();
        delivered.resize((sinks as usize).div_ceil(64), 0);
        *self = Self {
            sinks,
            delivered,
            published,
            ..Self::default()
        };
    }

    /// Bytes that it keeps.
    pub(crate) fn bytes(&self) -> usize {
        self.delivered.capacity() * size_of::<u64>()
    }

    /// When its outcome is due.
    pub(crate) fn end(&self, within: Duration) -> Instant {
        self.published + within
    }

    fn has(&self, sink: u32) -> bool {
        self.delivered[sink as usize / 64] >> (sink % 64) & 1 == 1
    }

    /// Takes a piece whose receipts were verified: of how many sinks of it nothing was said in this round.
    pub(crate) fn cover(&mut self, piece: &Piece) -> u32 {
        let mut failed = piece.failed.iter().copied().peekable();
        let mut fresh = 0;
        for sink in piece.first..piece.end.min(self.sinks) {
            let news = !self.has(sink) && !self.hearsay.contains(&sink);
            fresh += u32::from(news);
            // Who is said to have failed is hearsay: the source tries for itself.
            if failed.next_if_eq(&sink).is_none() && !self.has(sink) {
                self.delivered[sink as usize / 64] |= 1 << (sink % 64);
                self.delivered_count += 1;
                self.failed.remove(&sink);
            }
        }
        fresh
    }

    /// The sinks that a piece says to have failed and of which nothing else is known.
    pub(crate) fn news_of_failed(&mut self, piece: &Piece) -> Vec<u32> {
        let mut news = piece.failed.clone();
        news.retain(|sink| *sink < self.sinks && !self.has(*sink) && self.hearsay.insert(*sink));
        news
    }

    pub(crate) fn failed(&mut self, sink: u32) {
        if !self.has(sink) {
            self.failed.insert(sink);
        }
    }

    pub(crate) fn complete(&self) -> bool {
        !self.over && self.delivered_count == self.sinks
    }

    /// What holds of it at any time.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bits: u32 = self.delivered.iter().map(|word| word.count_ones()).sum();
        let both = self.failed.iter().find(|sink| self.has(**sink));
        if bits != self.delivered_count || bits > self.sinks || both.is_some() {
            let count = self.delivered_count;
            return Err(format!(
                "{bits} of {} have it, counted {count}; {both:?} has and failed",
                self.sinks
            ));
        }
        Ok(())
    }

    /// Ranges of which nothing is known.
    fn unknown(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut sink = 0;
        while sink < self.sinks {
            let word = self.delivered[sink as usize / 64] >> (sink % 64);
            if word == u64::MAX >> (sink % 64) {
                sink = (sink / 64 + 1) * 64;
                continue;
            }
            if word & 1 == 0 && !self.failed.contains(&sink) {
                match ranges.last_mut() {
                    Some(last) if last.1 == sink => last.1 += 1,
                    _ => ranges.push((sink, sink + 1)),
                }
            }
            sink += 1;
        }
        ranges
    }
}

/// How long a source waits for the answer of a single sink until it sends it the next message, or after
/// the last calls it failed; `later` messages are still to come.
///
/// `usual` is what round trips say. They say too little of a sink that stalls: the last wait is as long as
/// `patience`, each before it a quarter of the next, so that the messages are spread over times of
/// every size. They say too much when a few sinks answer late: each message but the last gets its share
/// of the time that is `left` at most, so that all are sent. Behind the last one there is no less than
/// usual: who did not have that time is unknown, and has not failed.
pub(crate) fn source_wait(
    usual: Duration,
    patience: Duration,
    later: u8,
    left: Duration,
) -> Duration {
    let wait = usual.max(patience / 4u32.saturating_pow(u32::from(later)));
    match later {
        0 => wait,
        _ => wait.min(left / (u32::from(later) + 1)),
    }
}

impl<G: Guard> Tree<G> {
    /// How much longer than round trips say a source may wait for a silent sink: as long as events that
    /// come as they came since the oldest under way find half of the room free. Whoever is silent does not
    /// hold up the events to come.
    pub(crate) fn patience(&self, topic: u32) -> Duration {
        let Some(topic) = self.topics.get(topic as usize) else {
            return Duration::ZERO;
        };
        let mut open = topic.records.iter().enumerate();
        let oldest = open.find_map(|(at, record)| Some((at, record.tally.as_ref()?.published)));
        let Some((at, published)) = oldest else {
            return Duration::ZERO;
        };
        let under_way = topic.records.len() - at;
        let free = (self.config.history / 2).saturating_sub(under_way);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let age = self.now.saturating_since(published);
        age.saturating_mul(number(free)) / number(under_way)
    }

    pub(crate) fn publisher(
        &mut self,
        membership: Arc<Membership>,
        boot: u32,
    ) -> Result<(), Error> {
        let topic = membership.topic();
        let contact = self.contact;
        if self
            .topic_index(topic)
            .is_some_and(|at| self.topics[at].own.is_none())
        {
            return Err(Error::Membership("this node is a sink of the topic"));
        }
        self.subscribe(topic, contact, Some((boot, 0)), Window::default())?;
        // The source is no sink: its own address in the list is a sink beside it.
        self.adopt(membership, Some(crate::SOURCE))
    }

    /// The plan for so many sinks, by what was measured; it changes only when the delay has changed by
    /// half.
    fn plan(&mut self, sinks: u32) -> Plan {
        let cap = match self.config.plan {
            Choice::Fixed(plan) => return plan,
            Choice::Measured { cap } => cap,
        };
        let latency = self.round_trip.latency();
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let Plan::Postal { delay, .. } = Plan::measured(nanos(self.send_cost), nanos(latency), cap)
        else {
            unreachable!("a measured plan is a postal one");
        };
        let near = |old: &u32| {
            u64::from(delay) * 2 <= u64::from(*old) * 3
                && u64::from(*old) * 2 <= u64::from(delay) * 3
        };
        let delay = *self.delay.insert(self.delay.filter(near).unwrap_or(delay));
        self.splitter.least_capped(sinks, delay, cap)
    }

    pub(crate) fn publish(
        &mut self,
        topic: u64,
        body: Option<&[u8]>,
        deadline: Option<Duration>,
    ) -> Result<(), Error> {
        let at = self.topic_index(topic).ok_or(Error::Topic { topic })?;
        let history = self.config.history.max(1);
        let most = self.config.datagram_bytes.min(crate::DATAGRAM_BYTES_MAX);
        let most = most.saturating_sub(SPREAD_HEAD_BYTES);
        if self.topics[at].records.len() >= history {
            if self.topics[at]
                .records
                .front()
                .is_some_and(|record| record.tally.is_some())
            {
                return Err(Error::Full {
                    what: "event under way",
                    most: history,
                });
            }
            self.forget_oldest(at);
        }
        let known = &mut self.topics[at];
        let (boot, last) = known.own.ok_or(Error::Topic { topic })?;
        let Some(version) = known.versions.last() else {
            return Err(Error::Topic { topic });
        };
        let membership = Arc::clone(&version.membership);
        let id = EventId {
            topic,
            boot,
            sequence: last + 1,
        };
        let keyed = self.guard.authenticates();
        let fixed = 30 + 5 + if keyed { crate::SIGNATURE_BYTES } else { 0 };
        let list: usize = membership
            .sinks()
            .iter()
            .take(most)
            .map(|sink| contact_bytes(sink.address.is_ipv4(), keyed))
            .sum();
        let inline = self.config.inline && fixed + list + body.map_or(0, <[u8]>::len) <= most;
        let content = Content {
            id,
            inline,
            deadline,
            body,
        };
        let guard = &self.guard;
        let make = |memory| Event::make(memory, guard, &membership, &content, most);
        let event = self.spare.event(make)?;
        let mut tally = self.spare.tally();
        tally.begin(membership.count(), self.now());
        self.topics[at].own = Some((boot, id.sequence));
        if body.is_some() {
            self.out.push_back(Output::Event(Happened::Published(id)));
        }
        let now = self.now();
        let sinks = membership.count();
        let topic = &mut self.topics[at];
        topic.records.push_back(Record {
            event,
            membership: Some(membership),
            number: None,
            verified: true,
            since: now,
            age_us: 0,
            parent: crate::SOURCE,
            jobs: self.spare.jobs(),
            tally: Some(tally),
        });
        let serial = topic.base + topic.records.len() as u64 - 1;
        let id = JobId {
            topic: at as u32,
            serial,
            job: 0,
        };
        let plan = self.plan(sinks);
        let mut parts = self.spare.parts();
        divide((0, sinks), None, plan, &mut self.splitter, &mut parts);
        let within = self.config.within;
        self.round(id, plan, parts, now + within / 2);
        Ok(())
    }

    /// Begins a round with these parts.
    fn round(&mut self, id: JobId, plan: Plan, parts: Vec<Part>, due: Instant) {
        let (now, send_cost) = (self.now(), self.send_cost);
        let latency = self.round_trip.latency();
        let timeout = self.timeout(0);
        let open = parts.len();
        let job = Job {
            askers: Vec::new(),
            first: 0,
            end: 0,
            due,
            hop: Hop {
                plan,
                timeout_us: micros(timeout),
                latency_us: micros(latency),
                send_cost_ns: u32::try_from(send_cost.as_nanos()).unwrap_or(u32::MAX),
            },
            suspects: Suspects::default(),
            in_order: open,
            parts,
            next: 0,
            open,
            burst_end: now,
            // What is known is in the tally.
            pieces: Pieces::default(),
            progress: None,
            done: false,
        };
        let Some(record) = self.record(id) else {
            return;
        };
        let id = JobId {
            job: record.jobs.len() as u16,
            ..id
        };
        record.jobs.push(job);
        self.open_jobs += 1;
        self.sending.push_back(Sending::Job(id));
        self.set_timer(due, id, Alarm::Due);
        self.finish_if_done(id);
    }

    /// All sinks have it: whatever the round still waits for does not matter.
    pub(crate) fn all_delivered(&mut self, id: JobId) {
        let open = self.record(id).map_or(0, |record| {
            let open = record.jobs.iter_mut().filter(|job| !job.done);
            open.map(|job| job.done = true).count()
        });
        self.outcome(id);
        (0..open).for_each(|_| self.job_ended());
    }

    /// A round is over: another one for what is not known, or the outcome.
    pub(crate) fn round_ended(&mut self, id: JobId) {
        let (now, within) = (self.now(), self.config.within);
        let Some(record) = self.record(id) else {
            return;
        };
        let hop = record.jobs.get(usize::from(id.job)).map(|job| job.hop.plan);
        let Some(tally) = record.tally.as_mut().filter(|tally| !tally.over) else {
            return;
        };
        let unknown = tally.unknown();
        let end = tally.end(within);
        let plan = hop.filter(|_| !unknown.is_empty() && now < end && tally.round < ROUNDS_MAX);
        let Some(plan) = plan else {
            return self.outcome(id);
        };
        tally.round += 1;
        tally.hearsay.clear();
        // Eight times smaller in each round: a range in which somebody lies is taken apart quickly.
        let most = tally.sinks >> (3 * u32::from(tally.round)).min(31);
        let mut parts = self.spare.parts();
        for (first, end) in unknown {
            cut(first, end, most, &mut parts);
        }
        // Half of what is left, and all of it when nothing is left to divide.
        let single = parts.iter().all(|part| part.count() == 1);
        let left = end.saturating_since(now);
        let due = if single { end } else { now + left / 2 };
        self.round(id, plan, parts, due);
    }

    fn outcome(&mut self, id: JobId) {
        let now = self.now();
        let (attempts, within) = (self.config.source_attempts, self.config.within);
        let Some(record) = self.record(id) else {
            return;
        };
        // The first round's.
        let Some(hop) = record.jobs.first().map(|job| job.hop) else {
            return;
        };
        let Some(mut tally) = record.tally.take() else {
            return;
        };
        let jobs = core::mem::take(&mut record.jobs);
        let unknown = tally
            .unknown()
            .into_iter()
            .flat_map(|(first, end)| first..end);
        let outcome = Outcome {
            id: record.event.id(),
            version: record.event.version(),
            plan: hop.plan,
            cost: Cost {
                send: Duration::from_nanos(u64::from(hop.send_cost_ns)),
                delay: Duration::from_micros(u64::from(hop.latency_us)),
            },
            sinks: tally.sinks,
            unknown: unknown.collect(),
            failed: core::mem::take(&mut tally.failed).into_iter().collect(),
            attempts,
            within,
            took: now.saturating_since(tally.published),
            lies: tally.lies,
        };
        self.spare.put_jobs(jobs);
        self.spare.put_tally(tally);
        self.out
            .push_back(Output::Event(Happened::Outcome(outcome)));
    }
}
