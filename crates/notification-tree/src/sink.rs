//! What a node does with the messages of others: takes events and spreads its part.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::{Instant, Output};

use crate::coverage::Pieces;
use crate::guard::Guard;
use crate::interface::Happened;
use crate::job::{Asker, Hop, Job, divide};
use crate::message::{Body, Message, SOURCE, Spread};
use crate::repair::PULL_TIMEOUTS;
use crate::state::{Alarm, JobId, Record, SUSPECTS_KNOWN_MAX, Sending};
use crate::tree::Tree;

/// How far ahead of the newest a number may be and still be sent on before it is verified.
const AHEAD_MAX: u64 = 1_024;
/// Ranges of one event that a node takes from one other sink.
///
/// Reason: an honest one gives a second only when a head of its own part is gone.
const JOBS_PER_PARENT: usize = 4;

impl<G: Guard> Tree<G> {
    pub(crate) fn receive(&mut self, message: Message) {
        let Some(topic) = self.topic_index(message.topic()) else {
            self.counters.not_subscribed += 1;
            return;
        };
        match message.body {
            Body::Spread(spread) => {
                self.on_spread(topic, message.from, &spread);
                // Unless it is kept.
                self.spare.put_event(spread.event);
            }
            Body::Response(response) => self.on_response(topic, message.from, &response),
            Body::Coverage(coverage) => self.on_coverage(topic, message.from, coverage),
            Body::Pull(pull) => self.on_pull(topic, message.from, &pull),
            Body::Proof(proof) => self.on_proof(topic, proof),
        }
    }

    // -- events --

    fn on_spread(&mut self, at: usize, from: u32, spread: &Spread) {
        let forward_first = self.config.forward_first;
        let topic = &mut self.topics[at];
        let id = spread.event.id();
        if topic.own.is_some() {
            self.counters.unasked += 1;
            return;
        }
        if let Some(serial) = topic.serial_of(id) {
            let record = &topic.records[(serial - topic.base) as usize];
            let same = Arc::ptr_eq(&record.event, &spread.event) || record.event == spread.event;
            if same {
                self.counters.duplicates += 1;
                let job = JobId {
                    topic: at as u32,
                    serial,
                    job: 0,
                };
                self.spread_over(job, from, spread);
            } else {
                // The same number with other bytes: not signed by the source, or signed twice.
                self.forged(at, spread.event.version(), from);
            }
            return;
        }
        if !topic.window.accepts(id.boot, id.sequence) {
            self.counters.old += 1;
            return;
        }
        let known = topic.version(spread.event.version()).is_some();
        let near = topic.window.boot == id.boot
            && topic.window.numbers.newest > 0
            && id.sequence <= topic.window.numbers.newest.saturating_add(AHEAD_MAX);
        let sender = topic.contact(spread.event.version(), from);
        let caught = sender.is_some_and(|sender| topic.distrusted.contains(&sender));
        let trusted = forward_first && known && near && !caught;
        if !trusted {
            let source = topic.source.key;
            // Verifying is what costs most. An honest sender is known, and was never caught.
            let limited = self.guard.authenticates() && (caught || sender.is_none());
            if limited && !self.verifications.take(self.now, sender) {
                self.counters.unverified += 1;
                return;
            }
            if !spread.event.verify(&source, &mut self.guard) {
                self.forged(at, spread.event.version(), from);
                return;
            }
            if !known && let Some(Ok(list)) = spread.event.list() {
                // Older than what is known: of no use for spreading.
                let _ = self.adopt(Arc::new(list), None);
            }
        }
        let (history, now) = (self.config.history.max(1), self.now);
        let topic = &mut self.topics[at];
        if topic.records.len() >= history {
            self.forget_oldest(at);
        }
        let topic = &mut self.topics[at];
        let version = topic.version(spread.event.version());
        let (membership, number) = match version {
            Some(version) => (Some(Arc::clone(&version.membership)), version.number),
            None => (None, None),
        };
        let missing = version.is_none();
        topic.records.push_back(Record {
            event: Arc::clone(&spread.event),
            membership,
            number,
            verified: false,
            since: now,
            age_us: spread.age_us.saturating_add(spread.latency_us),
            parent: from,
            jobs: self.spare.jobs(),
            tally: None,
        });
        let serial = topic.base + topic.records.len() as u64 - 1;
        let job = JobId {
            topic: at as u32,
            serial,
            job: 0,
        };
        if missing && topic.version_missed != Some(spread.event.version()) {
            topic.version_missed = Some(spread.event.version());
            let unknown = Happened::MembershipUnknown {
                topic: id.topic,
                version: spread.event.version(),
            };
            self.out.push_back(Output::Event(unknown));
        }
        self.spread_over(job, from, spread);
        match trusted {
            true => self.unverified = Some(job),
            false => self.deliver(job),
        }
    }

    /// Drops the oldest event with all that is under way for it.
    pub(crate) fn forget_oldest(&mut self, at: usize) {
        let topic = &mut self.topics[at];
        let Some(record) = topic.records.pop_front() else {
            return;
        };
        topic.base += 1;
        self.forget(record);
    }

    fn forged(&mut self, at: usize, version: u32, from: u32) {
        self.counters.forged += 1;
        let topic = &mut self.topics[at];
        // Who is in no list of the source's is not believed anyway.
        if let Some(sender) = topic.contact(version, from)
            && topic.distrusted.len() < SUSPECTS_KNOWN_MAX
        {
            topic.distrusted.insert(sender);
        }
        let topic = topic.id;
        self.out
            .push_back(Output::Event(Happened::Forged { topic, from }));
    }

    /// Looks at the signature of what was sent on.
    pub(crate) fn verify(&mut self, id: JobId) {
        let source = self.topics[id.topic as usize].source.key;
        let Some(event) = self.record(id).map(|record| Arc::clone(&record.event)) else {
            return;
        };
        if event.verify(&source, &mut self.guard) {
            self.deliver(id);
            return;
        }
        if let Some(parent) = self.forget_newest(id.topic as usize) {
            self.forged(id.topic as usize, event.version(), parent);
        }
    }

    /// The event is the source's: it is remembered, and if that is not refused, delivered and receipted.
    fn deliver(&mut self, id: JobId) {
        let Some(event) = self.record(id).map(|record| record.event.id()) else {
            return;
        };
        let topic = &mut self.topics[id.topic as usize];
        self.keeping = Some((id, topic.window));
        topic.window.note(event.boot, event.sequence);
        let (topic, window) = (topic.id, topic.window);
        self.out
            .push_back(Output::Event(Happened::Remember { topic, window }));
    }

    /// The window of the last [`Happened::Remember`] could not be stored. Its event is as if it had not come: it
    /// is neither delivered nor answered for, and taken when it comes again.
    ///
    /// To be called before the next [`poll_output`](chappe_machine::Machine::poll_output).
    pub fn not_kept(&mut self) {
        let Some((id, before)) = self.keeping.take() else {
            return;
        };
        self.counters.not_kept += 1;
        let topic = &mut self.topics[id.topic as usize];
        topic.window = before;
        self.forget_newest(id.topic as usize);
    }

    /// Drops the newest event with all that is under way for it; says who sent it first.
    fn forget_newest(&mut self, at: usize) -> Option<u32> {
        let record = self.topics[at].records.pop_back()?;
        let parent = record.parent;
        self.forget(record);
        Some(parent)
    }

    fn forget(&mut self, record: Record) {
        for _ in record.jobs.iter().filter(|job| !job.done) {
            self.job_ended();
        }
        self.spare.put_record(record);
    }

    /// What was seen is kept: the event is delivered and receipted.
    pub(crate) fn kept(&mut self, id: JobId) {
        let at = id.topic as usize;
        let Some(record) = self.record(id) else {
            return;
        };
        record.verified = true;
        let event = Arc::clone(&record.event);
        let age = Duration::from_micros(u64::from(record.age_us));
        let late = event.deadline().is_some_and(|deadline| age > deadline);
        let jobs = record.jobs.len();
        let heartbeat = event.is_heartbeat();
        if !heartbeat {
            self.counters.delivered += 1;
            self.counters.late += u64::from(late);
        }
        let topic = &mut self.topics[at];
        let gap = topic.window.missing().is_some() && topic.pulls.is_none();
        if gap {
            topic.pulls = Some(0);
        }
        if !heartbeat {
            self.out
                .push_back(Output::Event(Happened::Delivered { event, age, late }));
        }
        if gap {
            let wait = self.timeout(0) * PULL_TIMEOUTS;
            self.set_timer(self.now + wait, id, Alarm::Pull);
        }
        for job in 0..jobs {
            // At most jobs_max.
            self.add_own(JobId {
                job: job as u16,
                ..id
            });
        }
    }

    // -- spreading --

    /// Takes a range: a new job, or one that was given before and is answered again.
    fn spread_over(&mut self, id: JobId, from: u32, spread: &Spread) {
        let (now, jobs_max) = (self.now, self.config.jobs_max.min(usize::from(u16::MAX)));
        let within = self.config.within;
        let Some(record) = self.record(id) else {
            return;
        };
        if spread.repair {
            return;
        }
        let Some((number, count)) = record
            .number
            .zip(record.membership.as_ref().map(|it| it.count()))
        else {
            return;
        };
        if !(spread.first..spread.end).contains(&number) || spread.end > count {
            self.counters.misdirected += 1;
            return;
        }
        let asked = |job: &&Job| job.askers.iter().any(|asker| asker.from == from);
        let of_parent = record.jobs.iter().filter(asked).count();
        let too_many = from != SOURCE && of_parent >= JOBS_PER_PARENT;
        let jobs = record.jobs.len();
        // Of time nobody is believed beyond this node's own `T`.
        let due = Duration::from_micros(u64::from(spread.due_us));
        let due = now + due.min(within);
        if self.asked_again(id, from, spread) || !too_many && self.joined(id, from, spread, due) {
            return;
        }
        let Some(record) = self.record(id) else {
            return;
        };
        if jobs >= jobs_max || too_many {
            let verified = record.verified;
            self.counters.overloaded += 1;
            if verified {
                self.answer_own(id, from, spread);
            }
            return;
        }
        let verified = record.verified;
        let job = record.jobs.len() as u16;
        let mut parts = Vec::new();
        let range = (spread.first, spread.end);
        if spread.end - spread.first > 1 {
            parts = self.spare.parts();
            divide(
                range,
                Some(number),
                spread.plan,
                &mut self.splitter,
                &mut parts,
            );
        }
        let open = parts.len();
        let mut askers = self.spare.askers();
        askers.push(Asker::new(from, now, spread.stamp_us));
        let job_of = Job {
            askers,
            first: spread.first,
            end: spread.end,
            due,
            hop: Hop {
                plan: spread.plan,
                timeout_us: spread.timeout_us,
                latency_us: spread.latency_us,
                send_cost_ns: spread.send_cost_ns,
            },
            suspects: spread.suspects.clone(),
            in_order: open,
            parts,
            next: 0,
            open,
            burst_end: now,
            pieces: Pieces::new(self.spare.pieces()),
            progress: None,
            done: false,
        };
        let id = JobId { job, ..id };
        if let Some(record) = self.record(id) {
            record.jobs.push(job_of);
        }
        self.open_jobs += 1;
        if open > 0 {
            self.sending.push_back(Sending::Job(id));
            self.set_timer(due, id, Alarm::Due);
        }
        if verified {
            self.add_own(id);
        }
    }

    /// The same range from the same node once more: it is answered again, unless it was a moment ago.
    fn asked_again(&mut self, id: JobId, from: u32, spread: &Spread) -> bool {
        let now = self.now;
        let timeout = Duration::from_micros(u64::from(spread.timeout_us));
        let jobs = self
            .record(id)
            .map_or(&mut [][..], |record| &mut record.jobs[..]);
        let same = |job: &Job| (job.first, job.end) == (spread.first, spread.end);
        let given = jobs.iter_mut().enumerate().filter(|(_, job)| same(job));
        let known = given.flat_map(|(at, job)| {
            let askers = job.askers.iter_mut().enumerate();
            askers.map(move |(asker, it)| (at, asker, it))
        });
        let Some((job, asker, known)) = { known }.find(|(.., asker)| asker.from == from) else {
            return false;
        };
        let answered = known.answered;
        if answered.is_none_or(|answered| now.saturating_since(answered) >= timeout / 2) {
            *known = Asker::new(from, now, spread.stamp_us);
            self.tell(id, job, asker);
        }
        true
    }

    /// A range that another gave before is not sent on twice: both are told what comes of it.
    fn joined(&mut self, id: JobId, from: u32, spread: &Spread, due: Instant) -> bool {
        let now = self.now;
        let mut jobs = self
            .record(id)
            .into_iter()
            .flat_map(|it| &mut it.jobs)
            .enumerate();
        let Some((at, job)) = jobs.find(|(_, job)| job.may_be_joined(spread)) else {
            return false;
        };
        let asker = job.askers.len();
        job.askers.push(Asker::new(from, now, spread.stamp_us));
        let longer = !job.done && due > job.due;
        if longer {
            job.due = due;
        }
        drop(jobs);
        if longer {
            let job = at as u16;
            self.set_timer(due, JobId { job, ..id }, Alarm::Due);
        }
        self.tell(id, at, asker);
        true
    }

    /// Tells one of those who gave a range what there is to tell.
    fn tell(&mut self, id: JobId, job: usize, asker: usize) {
        let id = JobId {
            job: job as u16,
            ..id
        };
        match self.job(id).is_some_and(|job| job.done) {
            true => self.answer(id, asker),
            false => self.respond(id, asker),
        }
    }

    /// Now, for others of this crate.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }
}
