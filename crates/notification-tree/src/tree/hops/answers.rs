//! Answers: the reports of this node about its ranges, and the handling of the reports of heads.

use alloc::vec::Vec;
use core::time::Duration;

use super::super::alarms::{Alarm, JobId};
use super::super::node::Node;
use super::{Hops, Progress, done_job};
use crate::coverage::Piece;
use crate::guard::Guard;
use crate::job::{Job, Part};
use crate::message::{Body, Coverage, Response, Spread};
use crate::topic::{micros, stamp};

/// A head that waits for its parts responds again after this many timeouts.
const PROGRESS_TIMEOUTS: u32 = 4;
/// Responses to one message of a requester.
///
/// Reason: the requester takes the range over after its patience, which is 16 of them; eight times that, for
/// heads whose timeouts are shorter than the requester's.
const RESPONSES_MAX: u8 = 128;
/// The minimum timeout between responses, even if advice and configuration give none: with zero a head would
/// respond without end.
const RESPONSE_TIMEOUT_MIN: Duration = Duration::from_micros(10);

impl Hops {
    // -- reports --

    /// Responds to a requester that this node works on its range, and again while it waits.
    pub(super) fn respond<G: Guard>(&mut self, node: &mut Node<G>, id: JobId, requester: usize) {
        let sent = node.now + self.send_cost * self.burst;
        let advised_us = node.topics.job(id).map_or(0, |job| job.hop.timeout_us);
        let timeout = self.timeout(&node.config, advised_us);
        let timeout = timeout.max(RESPONSE_TIMEOUT_MIN);
        let Some(record) = node.topics.record_mut(id) else {
            return;
        };
        if record.tally.is_some() || !record.is_verified && record.number.is_none() {
            return;
        }
        let job = &record.jobs[usize::from(id.job)];
        let Some(asked) = job.requesters.get(requester) else {
            return;
        };
        let response = record.response(job, asked, sent);
        let job = &mut record.jobs[usize::from(id.job)];
        let asked = &mut job.requesters[requester];
        asked.answered_at = Some(node.now);
        asked.responses = asked.responses.saturating_add(1);
        let to = asked.from;
        let next = sent + timeout * PROGRESS_TIMEOUTS;
        let may_repeat = asked.responses < RESPONSES_MAX && next < job.due;
        let repeats = job.progress_at.is_none() && may_repeat;
        if repeats {
            job.progress_at = Some(next);
        }
        node.transmit(id, to, Body::Response(response));
        if repeats {
            node.alarms.set(next, id, Alarm::Progress);
        }
    }

    /// Responds to the requesters that still wait, if it is time.
    pub(in super::super) fn on_progress<G: Guard>(&mut self, node: &mut Node<G>, id: JobId) {
        let now = node.now;
        let Some(job) = node.topics.job_mut(id) else {
            return;
        };
        if job.is_done || job.progress_at.is_none_or(|at| now < at) {
            return;
        }
        job.progress_at = None;
        for requester in 0..job.requesters.len() {
            let job = node.topics.job(id);
            let waiting = job.and_then(|job| job.requesters.get(requester));
            if waiting.is_some_and(|it| it.responses < RESPONSES_MAX) {
                self.respond(node, id, requester);
            }
        }
    }

    /// Answers for this node alone.
    pub(super) fn answer_own<G: Guard>(
        &self,
        node: &mut Node<G>,
        id: JobId,
        to: u32,
        spread: &Spread,
    ) {
        let Some(piece) = node.own_piece(id) else {
            return;
        };
        let response = Response {
            id: spread.event.id(),
            version: spread.event.version(),
            first: spread.first,
            end: spread.end,
            stamp_us: spread.stamp_us,
            dwell_us: 0,
        };
        let coverage = Coverage {
            response,
            pieces: 1,
            piece,
        };
        node.transmit(id, to, Body::Coverage(coverage));
    }

    /// Sends all coverage of a job to one of its requesters.
    pub(super) fn answer<G: Guard>(&self, node: &mut Node<G>, id: JobId, requester: usize) {
        let now = node.now;
        let Some(record) = node.topics.record_mut(id) else {
            return;
        };
        let job = &record.jobs[usize::from(id.job)];
        let Some(asked) = job.requesters.get(requester) else {
            return;
        };
        let response = record.response(job, asked, now);
        let (to, count) = (asked.from, job.pieces.pieces().len());
        record.jobs[usize::from(id.job)].requesters[requester].answered_at = Some(now);
        let pieces = u32::try_from(count).unwrap_or(u32::MAX);
        for piece in 0..count {
            let Some(job) = node.topics.job(id) else {
                return;
            };
            let coverage = Coverage {
                response,
                pieces,
                piece: job.pieces.pieces()[piece].clone(),
            };
            node.transmit(id, to, Body::Coverage(coverage));
        }
    }

    /// Sends all coverage of a job to all its requesters.
    pub(in super::super) fn answer_all<G: Guard>(&self, node: &mut Node<G>, id: JobId) {
        let requesters = node.topics.job(id).map_or(0, |job| job.requesters.len());
        (0..requesters).for_each(|requester| self.answer(node, id, requester));
    }

    /// Coverage of a job is due, complete or not: returns the job, unless a later requester gave it more time.
    pub(in super::super) fn on_due<G>(&self, node: &Node<G>, id: JobId) -> Option<JobId> {
        let job = node.topics.job(id)?;
        (!job.is_done && job.due <= node.now).then_some(id)
    }

    // -- reports of heads --

    pub(in super::super) fn on_response<G>(
        &mut self,
        node: &mut Node<G>,
        at: usize,
        from: u32,
        response: &Response,
    ) {
        let Some((id, part)) = find_part(node, at, from, response) else {
            return;
        };
        self.on_sign_of_life(node, (id, part), from, response);
        // A single sink has no other to wait for: its coverage comes next.
        let is_single = response.end - response.first == 1;
        let Some(job) = node.topics.job_mut(id) else {
            return;
        };
        if !job.parts[part].is_done && !is_single {
            job.parts[part].attempts = 1;
            self.watch(node, id, part);
        }
    }

    /// Finds the part that coverage is about.
    pub(in super::super) fn on_coverage<G>(
        &mut self,
        node: &mut Node<G>,
        at: usize,
        from: u32,
        response: &Response,
    ) -> Option<(JobId, usize)> {
        let (id, part) = find_part(node, at, from, response)?;
        // Coverage of several sinks comes long after the message, so it gives no round trip.
        if response.end - response.first == 1 {
            self.on_sign_of_life(node, (id, part), from, response);
        }
        node.topics[at].clear_suspect_in(response.version, from);
        Some((id, part))
    }

    /// Adds a piece to the coverage of a part; `is_genuine`: its receipts are not known to be wrong.
    pub(in super::super) fn cover<G>(
        &mut self,
        node: &mut Node<G>,
        (id, part): (JobId, usize),
        coverage: Coverage,
        is_genuine: bool,
    ) -> Progress {
        let (piece, pieces) = (coverage.piece, coverage.pieces);
        if is_genuine {
            update_suspects(node, id, coverage.response.version, &piece);
        }
        let Some(record) = node.topics.record_mut(id) else {
            return Progress::Waiting;
        };
        let Some(job) = record.jobs.get_mut(usize::from(id.job)) else {
            return Progress::Waiting;
        };
        let mut reported_failed = Vec::new();
        let fresh = match &mut record.tally {
            _ if !is_genuine => 0,
            Some(tally) => {
                let fresh = tally.cover(&piece);
                reported_failed = tally.newly_reported_failed(&piece);
                fresh
            }
            None if job.is_done => 0,
            None => {
                let count = piece.count();
                if job.pieces.add(piece) { count } else { 0 }
            }
        };
        let covered = &mut job.parts[part];
        covered.covered += fresh;
        covered.pieces = covered.pieces.saturating_add(1);
        let is_covered = covered.covered >= covered.count() || u32::from(covered.pieces) >= pieces;
        if !job.is_done {
            let added = try_alone(job, reported_failed);
            // As many parts as sinks at most.
            let added = added.map(|part| (id, part as u32));
            self.retransmissions.extend(added);
        }
        if record.tally.as_ref().is_some_and(|it| it.is_complete()) {
            return Progress::AllDelivered(id);
        }
        if !is_covered {
            self.watch(node, id, part);
            return Progress::Waiting;
        }
        match self.close(node, id, part) {
            Some(id) => Progress::JobDone(id),
            None => Progress::Waiting,
        }
    }

    /// A head has answered: it is alive, and its answer may give a round trip.
    fn on_sign_of_life<G>(
        &mut self,
        node: &mut Node<G>,
        (id, part): (JobId, usize),
        from: u32,
        response: &Response,
    ) {
        let now = node.now;
        node.topics[id.topic as usize].clear_suspect_in(response.version, from);
        let Some(job) = node.topics.job_mut(id) else {
            return;
        };
        let burst_end = job.burst_end;
        let Some(part) = job.parts.get_mut(part) else {
            return;
        };
        part.has_answered = true;
        // An honest stamp is not older than the part. Answers that came during sending waited for this node, so
        // they give no round trip.
        let round = stamp(now).wrapping_sub(response.stamp_us);
        let age = micros(now.saturating_since(part.first_sent));
        let is_honest = round <= age.saturating_add(1);
        let mean = self.round_trip.mean().unwrap_or_default();
        if is_honest && part.last_sent + mean >= burst_end {
            let micros = round.saturating_sub(response.dwell_us);
            self.round_trip
                .sample(Duration::from_micros(u64::from(micros)));
        }
    }

    /// Ends a job; returns whether this node is the event's source.
    pub(in super::super) fn end_job<G>(&mut self, node: &mut Node<G>, id: JobId) -> Option<bool> {
        let record = node.topics.record_mut(id)?;
        let is_source = record.tally.is_some();
        record.jobs.get_mut(usize::from(id.job))?.is_done = true;
        Some(is_source)
    }

    /// The event of a job was verified: adds this node's own receipt.
    pub(in super::super) fn add_own<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
    ) -> Option<JobId> {
        let piece = node.own_piece(id)?;
        if let Some(job) = node.topics.job_mut(id) {
            job.pieces.add(piece);
        }
        done_job(node, id)
    }
}

/// The job and part that an answer is about, if `from` was asked; counts other answers.
fn find_part<G>(
    node: &mut Node<G>,
    at: usize,
    from: u32,
    response: &Response,
) -> Option<(JobId, usize)> {
    let topic = &node.topics[at];
    let found = topic.serial_of(response.id).and_then(|serial| {
        let record = topic.record(serial)?;
        // In another version the number is another node's.
        if record.event.version() != response.version {
            return None;
        }
        let fits = |job: &Job| job.part_of(response.first, response.end, from);
        let mut jobs = record.jobs.iter().enumerate().rev();
        let (job, part) = jobs.find_map(|(job, it)| Some((job, fits(it)?)))?;
        let id = JobId {
            topic: at as u32,
            serial,
            job: job as u16,
        };
        Some((id, part))
    });
    node.counters.unasked += u64::from(found.is_none());
    found
}

/// Sinks that have the event are alive, though a forwarder cannot verify their receipts: a false report costs
/// time at worst. Sinks reported as failed are suspected, too.
fn update_suspects<G>(node: &mut Node<G>, id: JobId, version: u32, piece: &Piece) {
    let topic = &mut node.topics[id.topic as usize];
    let range = topic.suspects.range(piece.first..piece.end);
    let is_there = |sink: &u32| piece.failed.binary_search(sink).is_err();
    let cleared: Vec<u32> = range.copied().filter(is_there).collect();
    for sink in cleared {
        topic.clear_suspect_in(version, sink);
    }
    for sink in &piece.failed {
        topic.suspect_in(version, *sink);
    }
}

/// Adds a part for each sink that others reported as failed, since the source tries each itself. Returns the parts
/// to be sent at once; others follow in turn.
fn try_alone(job: &mut Job, sinks: Vec<u32>) -> core::ops::Range<usize> {
    let (before, added) = (job.parts.len(), sinks.len());
    let parts = sinks.into_iter().map(|sink| Part::new(sink, sink + 1));
    job.parts.extend(parts);
    job.open_parts += added;
    if job.next_part < before || added == 0 {
        return 0..0;
    }
    job.next_part += added;
    before..before + added
}
