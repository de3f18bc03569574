//! Sending parts to heads, and what silence means.

use alloc::sync::Arc;
use core::cmp::Reverse;
use core::time::Duration;

use chappe_machine::Instant;

use crate::config::TakeOver;
use crate::guard::Guard;
use crate::job::{Part, divide, suspects_in};
use crate::message::{
    Body, DATAGRAM_BYTES_MAX, Message, SOURCE, SPREAD_HEAD_BYTES, Spread, Transmit,
};
use crate::plan::Plan;
use crate::source::source_wait;
use crate::state::{Alarm, JobId, Sending, micros, stamp};
use crate::tree::Tree;

/// Longest wait of a forwarder between two attempts, in time-outs.
const BACKOFF_MAX: u32 = 8;
/// Messages between two looks at what has come in.
///
/// Reason: half of what a UDP socket's default receive buffer holds, so that answers find room.
const BURST_MAX: u32 = 128;
/// How often a forwarder sends to a suspect; the source tries it, too.
///
/// Reason: two leave 1 of 100 wrongly suspected sinks out where 5 % is lost, which the source hears late.
const SUSPECT_ATTEMPTS: u8 = 3;
/// A head that waits for its part says so each so many time-outs.
const PROGRESS_TIMEOUTS: u32 = 4;
/// How often it says so until it is asked again.
///
/// Reason: whoever gave the part takes it over after [`PATIENCE_TIMEOUTS`], which are 16 of these; eight
/// times that, for where the head's time-outs are shorter than its own.
const PROGRESS_MAX: u8 = 128;
/// The least that it takes for one, whatever it was told and configured: a time-out of nothing would have it
/// say so without end.
const TIMEOUT_LEAST: Duration = Duration::from_micros(10);
/// A head that did not say so for so many time-outs is asked again, and then its part is taken over.
const SILENCE_TIMEOUTS: u32 = 12;
/// The part of a head is taken over when it is not known after so many time-outs, whatever the head says.
const PATIENCE_TIMEOUTS: u32 = 64;
impl<G: Guard> Tree<G> {
    /// The next spread message, while there is one that may go.
    pub(crate) fn next_spread(&mut self) -> Option<Transmit> {
        loop {
            let again = match self.again_next || self.sending.is_empty() {
                true => self.again.front().copied(),
                false => None,
            };
            let next = again.map(|(id, part)| Sending::Part(id, part));
            let (id, part, whole) = match next.or(self.sending.front().copied())? {
                Sending::Part(id, part) => (id, part as usize, false),
                Sending::Job(id) => {
                    let next = self
                        .job(id)
                        .map(|job| (job.next, job.parts.len(), job.done));
                    match next {
                        Some((next, count, false)) if next < count => (id, next, true),
                        _ => {
                            self.sending.pop_front();
                            self.all_sent(id);
                            continue;
                        }
                    }
                }
            };
            let may = match self.burst < BURST_MAX {
                true => self.pace(id),
                false => Err(self.now + self.send_cost),
            };
            if let Err(at) = may {
                // Comes again by this timer; the queue stays as it is.
                if self
                    .timers
                    .peek()
                    .is_none_or(|Reverse((next, _, _))| *next > at)
                {
                    self.set_timer(at, id, Alarm::Progress);
                }
                return None;
            }
            self.again_next = again.is_none();
            if again.is_some() {
                self.again.pop_front();
            } else if !whole {
                self.sending.pop_front();
            }
            let transmit = self.spread(id, part);
            if whole && let Some(job) = self.job(id) {
                job.next = job.next.max(part + 1);
                let waits =
                    job.hop.plan == crate::Plan::SequentialWaiting && job.next < job.parts.len();
                if waits {
                    self.sending.pop_front();
                }
            }
            if transmit.is_some() {
                return transmit;
            }
        }
    }

    fn pace(&mut self, id: JobId) -> Result<(), Instant> {
        let Some(pace) = self.config.pace else {
            return Ok(());
        };
        let Some(topic) = self.topics.get(id.topic as usize) else {
            return Ok(());
        };
        if topic.own.is_none() {
            return Ok(());
        }
        let bytes = self
            .record(id)
            .map_or(0, |record| 64 + record.event.bytes().len());
        let now = self.now;
        self.bucket.take(now, bytes as u64, pace.token_rate())
    }

    /// Makes the message of one part and sets its timer.
    fn spread(&mut self, id: JobId, part: usize) -> Option<Transmit> {
        self.burst += 1;
        let sent = self.now + self.send_cost * self.burst;
        let (now, send_cost) = (self.now, self.send_cost);
        let hop_us = self.job(id)?.hop.timeout_us;
        let timeout = self.timeout(hop_us);
        let random = self.random.u32(..);
        let again = self.job(id)?.parts.get(part)?.attempts > 0;
        let patience = match again {
            true => self.patience(id.topic),
            false => Duration::ZERO,
        };
        let topic = self.topics.get_mut(id.topic as usize)?;
        let record = topic.records.get_mut((id.serial - topic.base) as usize)?;
        let (is_source, number) = (topic.own.is_some(), record.number);
        let record_is_source = record.tally.is_some();
        let end = record.tally.as_ref().map(|it| it.end(self.config.within));
        let later_round = record.tally.as_ref().is_some_and(|tally| tally.round > 0);
        let job = record.jobs.get_mut(usize::from(id.job))?;
        let open = job.parts.len() - job.next.min(job.parts.len());
        let next = job.parts.get_mut(part).filter(|part| !part.done)?;
        let head = match next.head {
            Some(head) => head,
            None => {
                // A range that failed once gets a head by chance: whoever lies is not asked again.
                let start = match later_round {
                    true => next.first + random % next.count(),
                    false => next.first,
                };
                next.choose_head(start, &topic.suspects, &job.suspects)
            }
        };
        next.attempts = next.attempts.saturating_add(1);
        next.generation = next.generation.wrapping_add(1);
        if next.attempts == 1 {
            next.begun = sent;
        }
        next.sent = sent;
        if next.attempts > 1 {
            self.counters.repeated += 1;
        }
        self.counters.spread += 1;
        // The head sends its own messages before it answers, and we ours before we listen.
        let fan_out = self.splitter.fan_out(job.hop.plan, next.count() - 1);
        let before = send_cost * fan_out;
        let burst_end = sent + send_cost * u32::try_from(open).unwrap_or(u32::MAX);
        job.burst_end = job.burst_end.max(burst_end);
        let most = match record_is_source {
            // All attempts fit into half of the time that there is.
            true => self.config.within / (2 * u32::from(self.config.source_attempts.max(1))),
            false => timeout * BACKOFF_MAX,
        };
        // The first repetition comes as quickly as the first message was given up: one datagram more
        // fills no network, and with 5 % loss one of ten is needed.
        let doublings = u32::from(next.attempts).saturating_sub(2).min(16);
        let mut wait = (timeout * (1 << doublings)).min(most).max(timeout);
        if let Some(end) = end.filter(|_| next.count() == 1) {
            let later = self.config.source_attempts.saturating_sub(next.attempts);
            let left = end.saturating_since(sent);
            wait = source_wait(wait, most.min(patience), later, left);
        }
        // What came while we were sending is looked at before any timer rings.
        let at = burst_end.max(sent + before + wait);
        let alarm = Alarm::Part(part as u32, next.generation);
        let left = job.due.saturating_since(now);
        let since = now.saturating_since(record.since);
        let used = record.event.bytes().len() + SPREAD_HEAD_BYTES;
        let room = self
            .config
            .datagram_bytes
            .min(DATAGRAM_BYTES_MAX)
            .saturating_sub(used);
        let spread = Spread {
            first: next.first,
            end: next.end,
            stamp_us: stamp(sent),
            // The last quarter is for taking over.
            due_us: micros(left / 4 * 3),
            // Whoever answered a moment ago does not answer again: asked sooner, it has to know.
            timeout_us: micros(timeout.min(wait)),
            age_us: record.age_us.saturating_add(micros(since)),
            latency_us: job.hop.latency_us,
            send_cost_ns: job.hop.send_cost_ns,
            plan: job.hop.plan,
            repair: false,
            suspects: suspects_in(&topic.suspects, &job.suspects, (next.first, next.end), room),
            event: Arc::clone(&record.event),
        };
        let contact = *record.membership.as_ref()?.sink(head)?;
        self.set_timer(at, id, alarm);
        let from = if is_source { SOURCE } else { number? };
        Some(Transmit {
            address: contact.address,
            key: contact.key,
            to: head,
            message: Message {
                from,
                body: Body::Spread(spread),
            },
        })
    }

    /// All first messages of a job are out: its parent is told, unless everything is known already.
    fn all_sent(&mut self, id: JobId) {
        let Some(job) = self.job(id) else { return };
        if !job.done && !job.parts.is_empty() {
            let askers = job.askers.len();
            (0..askers).for_each(|asker| self.respond(id, asker));
        }
    }

    /// Tells who gave a range that this node is on it, and again while it waits.
    pub(crate) fn respond(&mut self, id: JobId, asker: usize) {
        let (now, burst) = (self.now, self.send_cost * self.burst);
        let hop_us = self.job(id).map_or(0, |job| job.hop.timeout_us);
        let timeout = self.timeout(hop_us).max(TIMEOUT_LEAST);
        let Some(record) = self.record(id) else {
            return;
        };
        if record.tally.is_some() || !record.verified && record.number.is_none() {
            return;
        }
        let job = &record.jobs[usize::from(id.job)];
        let Some(asked) = job.askers.get(asker) else {
            return;
        };
        let response = record.response(job, asked, now + burst);
        let job = &mut record.jobs[usize::from(id.job)];
        let asked = &mut job.askers[asker];
        asked.answered = Some(now);
        asked.said = asked.said.saturating_add(1);
        let to = asked.from;
        let again = now + burst + timeout * PROGRESS_TIMEOUTS;
        let goes_on = job.progress.is_none() && again < job.due && asked.said < PROGRESS_MAX;
        if goes_on {
            job.progress = Some(again);
        }
        self.transmit(id, to, Body::Response(response));
        if goes_on {
            self.set_timer(again, id, Alarm::Progress);
        }
    }

    /// Tells those who still wait for a range, if it is time.
    fn progress(&mut self, id: JobId) {
        let now = self.now;
        let Some(job) = self.job(id) else { return };
        if job.done || job.progress.is_none_or(|at| now < at) {
            return;
        }
        job.progress = None;
        for asker in 0..job.askers.len() {
            let job = self.job(id);
            let asker_at = job.and_then(|job| job.askers.get(asker));
            if asker_at.is_some_and(|it| it.said < PROGRESS_MAX) {
                self.respond(id, asker);
            }
        }
    }

    // -- timers --

    pub(crate) fn ring(&mut self) {
        while let Some(Reverse((at, id, alarm))) = self.timers.peek().copied() {
            if at > self.now {
                break;
            }
            self.timers.pop();
            match alarm {
                Alarm::Part(part, generation) => self.silent(id, part as usize, generation),
                Alarm::Progress => self.progress(id),
                Alarm::Due => self.due(id),
                Alarm::Pull => self.pull(id.topic as usize),
                Alarm::Proof => self.ask(id.serial),
            }
        }
    }

    /// A head has not answered in time: it is asked again, its part is taken over, or it is given up.
    fn silent(&mut self, id: JobId, part: usize, generation: u16) {
        let now = self.now;
        let hop_us = self.job(id).map_or(0, |job| job.hop.timeout_us);
        let patience = self.timeout(hop_us) * PATIENCE_TIMEOUTS;
        let (tree, source) = (self.config.tree_attempts, self.config.source_attempts);
        let Some(topic) = self.topics.get_mut(id.topic as usize) else {
            return;
        };
        let Some(at) = id.serial.checked_sub(topic.base) else {
            return;
        };
        let Some(record) = topic.records.get_mut(at as usize) else {
            return;
        };
        let (is_source, version) = (record.tally.is_some(), record.event.version());
        let Some(job) = record
            .jobs
            .get_mut(usize::from(id.job))
            .filter(|job| !job.done)
        else {
            return;
        };
        let Some(found) = job.parts.get_mut(part) else {
            return;
        };
        if found.done || found.generation != generation {
            return;
        }
        let Some(head) = found.head else { return };
        let suspect = topic.suspects.contains(&head) || job.suspects.contains(head);
        let attempts_max = match (is_source, suspect) {
            (true, _) => source,
            (false, true) => tree.min(SUSPECT_ATTEMPTS),
            (false, false) => tree,
        };
        if found.count() == 1 {
            let first_time = found.attempts == 1;
            let (attempts, last) = (found.attempts, found.attempts >= attempts_max);
            // A source may have half of `T` to go until it gives up; the next event does not wait for that.
            if last || is_source && attempts > 1 {
                topic.silent(version, head);
            }
            if last {
                self.gave_up(id, part);
            } else {
                self.again.push_back((id, part as u32));
            }
            if first_time {
                // A plan that waits for each answer does not wait longer than for one.
                self.go_on(id, part);
            }
            return;
        }
        if found.heard && found.attempts < 2 && now.saturating_since(found.begun) < patience {
            // It was there: its answer may be lost, or it is gone since.
            found.pieces = 0;
            self.sending.push_back(Sending::Part(id, part as u32));
            return;
        }
        topic.silent(version, head);
        self.counters.taken_over += 1;
        self.take_over(id, part, head);
    }

    /// Divides a part as its head would have, and tries the head by itself: whoever has its range from
    /// the head already is given the same one, and sends nothing twice. By the paper's rule the others stay together,
    /// behind the next of them.
    fn take_over(&mut self, id: JobId, part: usize, head: u32) {
        let Some(record) = (self.topics.get_mut(id.topic as usize))
            .and_then(|topic| topic.records.get_mut((id.serial - topic.base) as usize))
        else {
            return;
        };
        let job = &mut record.jobs[usize::from(id.job)];
        let before = job.parts.len();
        job.parts[part].done = true;
        let range = (job.parts[part].first, job.parts[part].end);
        let plan = match self.config.take_over {
            TakeOver::Divide => job.hop.plan,
            TakeOver::NextSink => Plan::Kary(1),
        };
        divide(range, Some(head), plan, &mut self.splitter, &mut job.parts);
        job.parts.push(Part::new(head, head + 1));
        job.open += job.parts.len() - before - 1;
        if job.next == before {
            job.next = job.parts.len();
            let added = before..job.parts.len();
            self.sending
                .extend(added.map(|part| Sending::Part(id, part as u32)));
        } else {
            self.go_on(id, part);
        }
    }

    /// After an answer of a head that has more to say: how long silence is borne.
    pub(crate) fn watch(&mut self, id: JobId, part: usize) {
        let now = self.now;
        let Some(job) = self.job(id) else { return };
        let hop_us = job.hop.timeout_us;
        let Some(found) = job.parts.get_mut(part) else {
            return;
        };
        found.generation = found.generation.wrapping_add(1);
        let (generation, begun) = (found.generation, found.begun);
        let timeout = self.timeout(hop_us);
        let at = (now + timeout * SILENCE_TIMEOUTS)
            .min(begun + timeout * PATIENCE_TIMEOUTS)
            .max(now);
        self.set_timer(at, id, Alarm::Part(part as u32, generation));
    }

    /// Whether nothing is under way, so that no timer matters.
    pub(crate) fn job_ended(&mut self) {
        self.open_jobs = self.open_jobs.saturating_sub(1);
        let idle = self.open_jobs == 0
            && self.proofs.is_empty()
            && self.topics.iter().all(|topic| topic.pulls.is_none());
        if idle {
            self.timers.clear();
        }
    }
}
