//! Ranges that a sink gets from others.

use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::Instant;

use super::super::alarms::{Alarm, JobId};
use super::super::node::Node;
use super::{Hops, Queued};
use crate::coverage::Pieces;
use crate::guard::Guard;
use crate::job::{Hop, Job, Requester, divide};
use crate::message::{SOURCE, Spread};

/// Ranges of one event that a sink takes from one other sink.
///
/// Reason: an honest sink gives a second range only when a head of its own part is silent.
const JOBS_PER_PARENT: usize = 4;

impl Hops {
    /// Takes a range: starts a job, or answers for one that has the same range. Returns a job that is done.
    pub(in super::super) fn take_range<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        from: u32,
        spread: &Spread,
    ) -> Option<JobId> {
        if spread.repair {
            return None;
        }
        let record = node.topics.record(id)?;
        let number = record.number?;
        let count = record.membership.as_ref()?.count();
        if !(spread.first..spread.end).contains(&number) || spread.end > count {
            node.counters.misdirected += 1;
            return None;
        }
        let is_of_parent = |job: &&Job| job.requesters.iter().any(|it| it.from == from);
        let of_parent = record.jobs.iter().filter(is_of_parent).count();
        let exceeds_share = from != SOURCE && of_parent >= JOBS_PER_PARENT;
        let jobs_max = node.config.jobs_max.min(usize::from(u16::MAX));
        let exceeds_limit = record.jobs.len() >= jobs_max;
        let is_verified = record.is_verified;
        // No hop can hold a range open for longer than this node's own limit.
        let due = Duration::from_micros(u64::from(spread.due_us));
        let due = node.now + due.min(node.config.within);
        if self.answer_again(node, id, from, spread) {
            return None;
        }
        if !exceeds_share && self.join(node, id, from, spread, due) {
            return None;
        }
        if exceeds_limit || exceeds_share {
            node.counters.overloaded += 1;
            if is_verified {
                self.answer_own(node, id, from, spread);
            }
            return None;
        }
        let id = self.start_job(node, id, from, (number, spread), due)?;
        match is_verified {
            true => self.add_own(node, id),
            false => None,
        }
    }

    fn start_job<G>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        from: u32,
        (number, spread): (u32, &Spread),
        due: Instant,
    ) -> Option<JobId> {
        let mut parts = Vec::new();
        let range = (spread.first, spread.end);
        if spread.end - spread.first > 1 {
            parts = node.topics.spare.parts();
            let splitter = &mut self.splitter;
            divide(range, Some(number), spread.plan, splitter, &mut parts);
        }
        let open_parts = parts.len();
        let mut requesters = node.topics.spare.requesters();
        requesters.push(Requester::new(from, node.now, spread.stamp_us));
        let job = Job {
            requesters,
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
            ordered_parts: open_parts,
            parts,
            next_part: 0,
            open_parts,
            burst_end: node.now,
            pieces: Pieces::new(node.topics.spare.pieces()),
            progress_at: None,
            is_done: false,
        };
        let record = node.topics.record_mut(id)?;
        let id = JobId {
            job: record.jobs.len() as u16,
            ..id
        };
        record.jobs.push(job);
        self.open_jobs += 1;
        if open_parts > 0 {
            self.queue.push_back(Queued::Job(id));
            node.alarms.set(due, id, Alarm::Due);
        }
        Some(id)
    }

    /// Answers a repeated range of the same requester, unless it was answered within half of its timeout.
    fn answer_again<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        from: u32,
        spread: &Spread,
    ) -> bool {
        let now = node.now;
        let timeout = Duration::from_micros(u64::from(spread.timeout_us));
        let record = node.topics.record_mut(id);
        let jobs = record.map_or(&mut [][..], |record| &mut record.jobs[..]);
        let is_same = |job: &Job| (job.first, job.end) == (spread.first, spread.end);
        let same = jobs.iter_mut().enumerate().filter(|(_, job)| is_same(job));
        let mut requesters = same.flat_map(|(at, job)| {
            let requesters = job.requesters.iter_mut().enumerate();
            requesters.map(move |(requester, it)| (at, requester, it))
        });
        let Some((job, requester, known)) = requesters.find(|(.., it)| it.from == from) else {
            return false;
        };
        let answered_at = known.answered_at;
        if answered_at.is_none_or(|at| now.saturating_since(at) >= timeout / 2) {
            *known = Requester::new(from, now, spread.stamp_us);
            self.report(node, id, job, requester);
        }
        true
    }

    /// Adds a requester to a job with the same range, which is not sent twice.
    fn join<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        from: u32,
        spread: &Spread,
        due: Instant,
    ) -> bool {
        let now = node.now;
        let record = node.topics.record_mut(id).into_iter();
        let mut jobs = record.flat_map(|record| &mut record.jobs).enumerate();
        let Some((at, job)) = jobs.find(|(_, job)| job.can_be_joined(spread)) else {
            return false;
        };
        let requester = job.requesters.len();
        job.requesters
            .push(Requester::new(from, now, spread.stamp_us));
        if !job.is_done && due > job.due {
            job.due = due;
            let job = at as u16;
            node.alarms.set(due, JobId { job, ..id }, Alarm::Due);
        }
        self.report(node, id, at, requester);
        true
    }

    /// Sends a requester the coverage of a job that is done, or else a response.
    fn report<G: Guard>(&mut self, node: &mut Node<G>, id: JobId, job: usize, requester: usize) {
        let job = job as u16;
        let id = JobId { job, ..id };
        match node.topics.job(id).is_some_and(|job| job.is_done) {
            true => self.answer(node, id, requester),
            false => self.respond(node, id, requester),
        }
    }
}
