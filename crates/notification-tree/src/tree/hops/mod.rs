//! Hops: gives parts of a range to heads, waits for their answers, and answers for the whole range.
//!
//! The same at a source, whose range is a round of an event, and at a sink, which gets ranges from others.
//! Once all parts of a job are done, a method returns the job: the machine then ends the round or answers the
//! requesters.

mod answers;
mod check;
mod ranges;
mod sending;
mod silence;
mod waits;

pub(super) use check::ensure;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::{Instant, TokenBucket};

use super::alarms::{Alarm, JobId};
use super::node::Node;
use crate::config::{Config, Pace};
use crate::coverage::Pieces;
use crate::job::{Hop, Job, Part};
use crate::message::Suspects;
use crate::plan::{Plan, Splitter};
use crate::round_trip::RoundTrip;
use crate::schedule::Cost;
use crate::topic::micros;

/// A message to be sent for the first time, or again to the head of many.
#[derive(Debug, Clone, Copy)]
enum Queued {
    /// All parts of a job from its next one on.
    Job(JobId),
    /// One part again.
    Part(JobId, u32),
}

/// The effect of an answer on its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Answers are still awaited.
    Waiting,
    /// All parts of the job are done.
    JobDone(JobId),
    /// All sinks of the event have it; open jobs do not matter any more.
    AllDelivered(JobId),
}

/// The ranges under way at a node, and its measurements of the network.
#[derive(Debug)]
pub(super) struct Hops {
    round_trip: RoundTrip,
    send_cost: Duration,
    splitter: Splitter,
    /// The tokens of a source with a pace.
    bucket: TokenBucket,
    /// Messages since the last input, which the driver sends one after the other.
    burst: u32,
    /// First messages and retransmissions to single sinks take turns.
    queue: VecDeque<Queued>,
    retransmissions: VecDeque<(JobId, u32)>,
    retransmit_next: bool,
    open_jobs: usize,
}

impl Hops {
    pub(super) fn new(config: &Config) -> Self {
        let rate = config.pace.map(Pace::token_rate).unwrap_or_default();
        Self {
            round_trip: RoundTrip::assume(config.latency * 2),
            send_cost: config.send_cost,
            splitter: Splitter::default(),
            bucket: TokenBucket::full(Instant::ZERO, rate),
            burst: 0,
            queue: VecDeque::new(),
            retransmissions: VecDeque::new(),
            retransmit_next: false,
            open_jobs: 0,
        }
    }

    /// Starts an input: all earlier messages have left the node.
    pub(super) fn begin(&mut self) {
        self.burst = 0;
    }

    /// The mean round trip, once one was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.measured_mean()
    }

    /// The send cost and the one-way latency, as known now.
    pub(super) fn cost(&self) -> Cost {
        Cost {
            send: self.send_cost,
            delay: self.round_trip.latency(),
        }
    }

    pub(super) fn set_send_cost(&mut self, send_cost: Duration) {
        self.send_cost = send_cost.min(Duration::from_secs(1));
    }

    /// How long to wait for an answer; `advised_us` is the timeout of the node that sent the range.
    pub(super) fn timeout(&self, config: &Config, advised_us: u32) -> Duration {
        let advised = Duration::from_micros(u64::from(advised_us));
        self.round_trip.timeout(config.timeout_floor, advised)
    }

    pub(super) fn open_jobs(&self) -> usize {
        self.open_jobs
    }

    /// Jobs have ended. Returns whether none is left, so that their deadlines are void.
    pub(super) fn on_jobs_ended(&mut self, count: usize) -> bool {
        self.open_jobs = self.open_jobs.saturating_sub(count);
        count > 0 && self.open_jobs == 0
    }

    /// Starts a round of an event at its source.
    pub(super) fn start_round<G>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        plan: Plan,
        parts: Vec<Part>,
        due: Instant,
    ) -> Option<JobId> {
        let Cost { send, delay } = self.cost();
        let hop = Hop {
            plan,
            timeout_us: micros(self.timeout(&node.config, 0)),
            latency_us: micros(delay),
            send_cost_ns: u32::try_from(send.as_nanos()).unwrap_or(u32::MAX),
        };
        let record = node.topics.record_mut(id)?;
        let id = JobId {
            job: record.jobs.len() as u16,
            ..id
        };
        record.jobs.push(Job {
            requesters: Vec::new(),
            first: 0,
            end: 0,
            due,
            hop,
            suspects: Suspects::default(),
            ordered_parts: parts.len(),
            open_parts: parts.len(),
            parts,
            next_part: 0,
            burst_end: node.now,
            pieces: Pieces::default(),
            progress_at: None,
            is_done: false,
        });
        self.open_jobs += 1;
        self.queue.push_back(Queued::Job(id));
        node.alarms.set(due, id, Alarm::Due);
        done_job(node, id)
    }

    /// Ends a part; returns the job if it was the last one.
    fn close<G>(&mut self, node: &mut Node<G>, id: JobId, part: usize) -> Option<JobId> {
        let job = node.topics.job_mut(id)?;
        let part_of = job.parts.get_mut(part).filter(|part| !part.is_done)?;
        part_of.is_done = true;
        job.open_parts -= 1;
        self.send_next(node, id, part);
        done_job(node, id)
    }

    /// A plan that waits for each answer sends the part after this one.
    fn send_next<G>(&mut self, node: &mut Node<G>, id: JobId, part: usize) {
        let Some(job) = node.topics.job_mut(id) else {
            return;
        };
        let waits = job.hop.plan == Plan::SequentialWaiting;
        if waits && job.next_part == part + 1 && job.next_part < job.parts.len() {
            self.queue.push_back(Queued::Job(id));
        }
    }
}

/// The job, if all its parts are sent and done and its event is verified.
fn done_job<G>(node: &Node<G>, id: JobId) -> Option<JobId> {
    let record = node.topics.record(id)?;
    let job = record.jobs.get(usize::from(id.job))?;
    let all_parts = job.open_parts == 0 && job.next_part >= job.parts.len();
    (!job.is_done && all_parts && record.is_verified).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Piece;
    use crate::error::Error;
    use crate::event::{Event, EventId};
    use crate::guard::TrustedNetwork;
    use crate::membership::{Contact, Membership};
    use crate::message::{Coverage, Response, SOURCE};
    use crate::topic::{Publisher, Record};
    use crate::window::Window;
    use alloc::sync::Arc;

    const TOPIC: u64 = 7;

    fn contact(port: u16) -> Contact {
        Contact {
            address: ([10, 0, 0, 1], port).into(),
            key: [0; 32],
        }
    }

    /// A source with an event for two sinks, and the round that sends it to both.
    fn round() -> Result<(Node<TrustedNetwork>, Hops, JobId), Error> {
        let config = Arc::new(Config::default());
        let mut node = Node::new(config, contact(1), TrustedNetwork, 1);
        let list = Arc::new(Membership::new(TOPIC, 1, [2, 3].map(contact).to_vec()).unwrap());
        let publisher = Publisher {
            boot: 1,
            last_sequence: 1,
        };
        let window = Window::default();
        node.topics
            .add(TOPIC, contact(1), Some(publisher), window, 1)?;
        let id = EventId {
            topic: TOPIC,
            boot: 1,
            sequence: 1,
        };
        let event = Event::new(&TrustedNetwork, id, &list, true, None, b"x", 1_000)?;
        let mut tally = node.topics.spare.tally();
        tally.restart(2, node.now);
        let record = Record {
            event: Arc::new(event),
            membership: Some(list),
            number: None,
            is_verified: true,
            taken_at: node.now,
            age_us: 0,
            parent: SOURCE,
            jobs: Vec::new(),
            tally: Some(tally),
        };
        let id = node.topics.push(0, record);
        let mut hops = Hops::new(&node.config);
        let parts = [0, 1].map(|sink| Part::new(sink, sink + 1)).to_vec();
        let due = node.now + Duration::from_secs(1);
        let done = hops.start_round(&mut node, id, Plan::Sequential, parts, due);
        assert_eq!(done, None);
        Ok((node, hops, id))
    }

    fn answer(hops: &mut Hops, node: &mut Node<TrustedNetwork>, sink: u32) -> Progress {
        let id = EventId {
            topic: TOPIC,
            boot: 1,
            sequence: 1,
        };
        let response = Response {
            id,
            version: 1,
            first: sink,
            end: sink + 1,
            stamp_us: 0,
            dwell_us: 0,
        };
        let piece = Piece {
            first: sink,
            end: sink + 1,
            failed: Vec::new(),
            receipts: 0,
        };
        let part = hops.on_coverage(node, 0, sink, &response);
        let coverage = Coverage {
            response,
            pieces: 1,
            piece,
        };
        hops.cover(node, part.expect("it was asked"), coverage, true)
    }

    #[test]
    fn a_round_ends_when_all_sinks_have_answered() {
        let (mut node, mut hops, id) = round().unwrap();
        let heads = [(); 3].map(|()| hops.next_spread(&mut node).map(|it| it.to));
        assert_eq!(heads, [Some(0), Some(1), None]);
        assert_eq!(answer(&mut hops, &mut node, 1), Progress::Waiting);
        assert_eq!(answer(&mut hops, &mut node, 0), Progress::AllDelivered(id));
    }

    #[test]
    fn a_silent_sink_is_retried_and_then_failed() {
        let (mut node, mut hops, id) = round().unwrap();
        while hops.next_spread(&mut node).is_some() {}
        assert_eq!(answer(&mut hops, &mut node, 0), Progress::Waiting);
        let mut sent = 1;
        let done = loop {
            node.now = node.alarms.next().expect("an alarm");
            let Some((job, Alarm::Part(part, generation))) = node.alarms.pop(node.now) else {
                continue;
            };
            let done = hops.on_silence(&mut node, job, part as usize, generation);
            if done.is_some() {
                break done;
            }
            let again = hops.next_spread(&mut node);
            sent += u8::from(again.is_some_and(|it| it.to == 1));
        };
        assert_eq!(done, Some(id));
        assert_eq!(sent, node.config.source_attempts);
        assert_eq!(hops.end_job(&mut node, id), Some(true));
        assert!(hops.on_jobs_ended(1));
    }
}
