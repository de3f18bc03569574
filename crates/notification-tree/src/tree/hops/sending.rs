//! Sending parts to their heads.

use alloc::sync::Arc;
use core::time::Duration;

use chappe_machine::Instant;

use super::super::alarms::{Alarm, JobId};
use super::super::node::Node;
use super::waits::{retry_wait, source_wait};
use super::{Hops, Queued};
use crate::guard::Guard;
use crate::job::suspects_in;
use crate::message::{Body, Message, SOURCE, SPREAD_HEAD_BYTES, Spread, Transmit};
use crate::plan::Plan;
use crate::topic::{micros, stamp};
use crate::wire::DATAGRAM_BYTES_MAX;

/// The longest wait of a forwarder between two attempts, in timeouts.
const BACKOFF_MAX: u32 = 8;
/// Messages sent before received ones are processed.
///
/// Reason: half the capacity of a UDP socket's default receive buffer, which leaves room for answers.
const BURST_MAX: u32 = 128;

impl Hops {
    /// The next spread message that may be sent now.
    pub(in super::super) fn next_spread<G: Guard>(
        &mut self,
        node: &mut Node<G>,
    ) -> Option<Transmit> {
        loop {
            let retransmission = match self.retransmit_next || self.queue.is_empty() {
                true => self.retransmissions.front().copied(),
                false => None,
            };
            let next = retransmission.map(|(id, part)| Queued::Part(id, part));
            let (id, part, is_first) = match next.or(self.queue.front().copied())? {
                Queued::Part(id, part) => (id, part as usize, false),
                Queued::Job(id) => match node.topics.job(id) {
                    Some(job) if !job.is_done && job.next_part < job.parts.len() => {
                        (id, job.next_part, true)
                    }
                    _ => {
                        self.queue.pop_front();
                        self.on_all_sent(node, id);
                        continue;
                    }
                },
            };
            let may_send = match self.burst < BURST_MAX {
                true => self.take_tokens(node, id),
                false => Err(node.now + self.send_cost),
            };
            if let Err(at) = may_send {
                // The alarm resumes sending; the queues stay as they are.
                if node.alarms.next().is_none_or(|next| next > at) {
                    node.alarms.set(at, id, Alarm::Progress);
                }
                return None;
            }
            self.retransmit_next = retransmission.is_none();
            if retransmission.is_some() {
                self.retransmissions.pop_front();
            } else if !is_first {
                self.queue.pop_front();
            }
            let transmit = self.spread(node, id, part);
            if is_first && let Some(job) = node.topics.job_mut(id) {
                job.next_part = job.next_part.max(part + 1);
                let waits = job.hop.plan == Plan::SequentialWaiting;
                if waits && job.next_part < job.parts.len() {
                    self.queue.pop_front();
                }
            }
            if transmit.is_some() {
                return transmit;
            }
        }
    }

    /// Takes the tokens for a message of a source with a pace; the error is the time when there are enough.
    fn take_tokens<G>(&mut self, node: &mut Node<G>, id: JobId) -> Result<(), Instant> {
        let Some(pace) = node.config.pace else {
            return Ok(());
        };
        let topic = node.topics.topic_mut(id);
        if topic.is_none_or(|topic| topic.publisher.is_none()) {
            return Ok(());
        }
        let record = node.topics.record(id);
        let bytes = record.map_or(0, |record| 64 + record.event.bytes().len());
        self.bucket.take(node.now, bytes as u64, pace.token_rate())
    }

    /// Makes the message of one part and sets its alarm.
    fn spread<G: Guard>(&mut self, node: &mut Node<G>, id: JobId, part: usize) -> Option<Transmit> {
        self.burst += 1;
        let sent = node.now + self.send_cost * self.burst;
        let timeout = self.timeout(&node.config, node.topics.job(id)?.hop.timeout_us);
        let head = choose_head(node, id, part)?;
        let (wait, burst_end) = self.note_sent(node, id, part, (sent, timeout))?;
        let topic = &node.topics[id.topic as usize];
        let record = topic.record(id.serial)?;
        let job = record.jobs.get(usize::from(id.job))?;
        let (first, end) = job.parts.get(part).map(|part| (part.first, part.end))?;
        // The head sends its own messages before it answers, and this node before it reads answers.
        let fan_out = self.splitter.fan_out(job.hop.plan, end - first - 1);
        let at = burst_end.max(sent + self.send_cost * fan_out + wait);
        let alarm = Alarm::Part(part as u32, job.parts[part].generation);
        let left = job.due.saturating_since(node.now);
        let since = node.now.saturating_since(record.taken_at);
        let used = record.event.bytes().len() + SPREAD_HEAD_BYTES;
        let most = node.config.datagram_bytes.min(DATAGRAM_BYTES_MAX);
        let room = most.saturating_sub(used);
        let spread = Spread {
            first,
            end,
            stamp_us: stamp(sent),
            // The last quarter is for taking over.
            due_us: micros(left / 4 * 3),
            // A head ignores repetitions within half of the timeout, so it has to know a shorter wait.
            timeout_us: micros(timeout.min(wait)),
            age_us: record.age_us.saturating_add(micros(since)),
            latency_us: job.hop.latency_us,
            send_cost_ns: job.hop.send_cost_ns,
            plan: job.hop.plan,
            repair: false,
            suspects: suspects_in(&topic.suspects, &job.suspects, (first, end), room),
            event: Arc::clone(&record.event),
        };
        let contact = *record.membership.as_ref()?.sink(head)?;
        let from = match topic.publisher {
            Some(_) => Some(SOURCE),
            None => record.number,
        };
        node.alarms.set(at, id, alarm);
        Some(Transmit {
            address: contact.address,
            key: contact.key,
            to: head,
            message: Message {
                from: from?,
                body: Body::Spread(spread),
            },
        })
    }

    /// Counts a message of a part. Returns how long its answer is awaited, and when the last first message of
    /// the job leaves.
    fn note_sent<G>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        part: usize,
        (sent, timeout): (Instant, Duration),
    ) -> Option<(Duration, Instant)> {
        let is_first = node.topics.job(id)?.parts.get(part)?.attempts == 0;
        let patience = match is_first {
            true => Duration::ZERO,
            false => node.topics[id.topic as usize].patience(node.now, node.config.history),
        };
        let record = node.topics.record_mut(id)?;
        let end = record.tally.as_ref().map(|it| it.end(node.config.within));
        let job = record.jobs.get_mut(usize::from(id.job))?;
        let unsent = job.parts.len() - job.next_part.min(job.parts.len());
        let burst_end = sent + self.send_cost * u32::try_from(unsent).unwrap_or(u32::MAX);
        job.burst_end = job.burst_end.max(burst_end);
        let part = job.parts.get_mut(part)?;
        part.attempts = part.attempts.saturating_add(1);
        part.generation = part.generation.wrapping_add(1);
        part.last_sent = sent;
        if is_first {
            part.first_sent = sent;
        }
        node.counters.spread += 1;
        node.counters.repeated += u64::from(!is_first);
        let source_attempts = node.config.source_attempts;
        let Some(end) = end else {
            let wait = retry_wait(part.attempts, timeout, timeout * BACKOFF_MAX);
            return Some((wait, burst_end));
        };
        // All attempts fit into half of the time for the event.
        let most = node.config.within / (2 * u32::from(source_attempts.max(1)));
        let usual = retry_wait(part.attempts, timeout, most);
        if part.count() > 1 {
            return Some((usual, burst_end));
        }
        let later = source_attempts.saturating_sub(part.attempts);
        let left = end.saturating_since(sent);
        let wait = source_wait(usual, most.min(patience), later, left);
        Some((wait, burst_end))
    }

    /// All first messages of a job are sent: its requesters get a response.
    fn on_all_sent<G: Guard>(&mut self, node: &mut Node<G>, id: JobId) {
        let Some(job) = node.topics.job(id) else {
            return;
        };
        if !job.is_done && !job.parts.is_empty() {
            let requesters = job.requesters.len();
            (0..requesters).for_each(|requester| self.respond(node, id, requester));
        }
    }
}

/// The head of a part that is not done: the one it has, or a new one.
fn choose_head<G>(node: &mut Node<G>, id: JobId, part: usize) -> Option<u32> {
    let random = node.random.u32(..);
    let topic = node.topics.topic_mut(id)?;
    let at = id.serial.checked_sub(topic.first_serial)?;
    let record = topic.records.get_mut(usize::try_from(at).ok()?)?;
    let is_later_round = record.tally.as_ref().is_some_and(|tally| tally.round() > 0);
    let job = record.jobs.get_mut(usize::from(id.job))?;
    let part = job.parts.get_mut(part).filter(|part| !part.is_done)?;
    if part.head.is_some() {
        return part.head;
    }
    // The range failed in the round before: a random head avoids asking a liar again.
    let start = match is_later_round {
        true => part.first + random % part.count(),
        false => part.first,
    };
    Some(part.choose_head(start, &topic.suspects, &job.suspects))
}
