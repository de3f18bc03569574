//! Answers: what a node says of its part, and what it makes of what others say.

use alloc::vec::Vec;
use core::time::Duration;

use crate::coverage::Piece;
use crate::guard::Guard;
use crate::job::{Job, Part};
use crate::message::{Body, Coverage, Response, Spread};
use crate::state::{JobId, Sending, micros, stamp};
use crate::tree::Tree;

impl<G: Guard> Tree<G> {
    /// This node's own receipt, once the event is verified.
    fn own_piece(&mut self, id: JobId) -> Option<Piece> {
        let source = self.topics[id.topic as usize].source.key;
        let record = self.record(id)?;
        let (number, event) = (record.number?, record.event.id());
        Some(Piece {
            first: number,
            end: number + 1,
            failed: Vec::new(),
            receipts: self.guard.receipt(&source, event, number)?,
        })
    }

    pub(crate) fn add_own(&mut self, id: JobId) {
        let Some(piece) = self.own_piece(id) else {
            return;
        };
        if let Some(job) = self.job(id) {
            job.pieces.add(piece);
        }
        self.finish_if_done(id);
    }

    /// Answers for this node alone.
    pub(crate) fn answer_own(&mut self, id: JobId, to: u32, spread: &Spread) {
        let Some(piece) = self.own_piece(id) else {
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
        self.transmit(
            id,
            to,
            Body::Coverage(Coverage {
                response,
                pieces: 1,
                piece,
            }),
        );
    }

    /// Sends all that is known of a job to one of those who gave it.
    pub(crate) fn answer(&mut self, id: JobId, asker: usize) {
        let now = self.now;
        let Some(record) = self.record(id) else {
            return;
        };
        let job = &record.jobs[usize::from(id.job)];
        let Some(asked) = job.askers.get(asker) else {
            return;
        };
        let response = record.response(job, asked, now);
        let (to, count) = (asked.from, job.pieces.pieces().len());
        record.jobs[usize::from(id.job)].askers[asker].answered = Some(now);
        for piece in 0..count {
            let Some(piece) = self.job(id).map(|job| job.pieces.pieces()[piece].clone()) else {
                return;
            };
            let pieces = u32::try_from(count).unwrap_or(u32::MAX);
            self.transmit(
                id,
                to,
                Body::Coverage(Coverage {
                    response,
                    pieces,
                    piece,
                }),
            );
        }
    }

    pub(crate) fn finish_if_done(&mut self, id: JobId) {
        let Some(record) = self.record(id) else {
            return;
        };
        let (is_source, verified) = (record.tally.is_some(), record.verified);
        let Some(job) = record.jobs.get(usize::from(id.job)) else {
            return;
        };
        if !job.done && job.open == 0 && job.next >= job.parts.len() && verified {
            self.finish(id, is_source);
        }
    }

    /// The coverage of a job is due, complete or not.
    pub(crate) fn due(&mut self, id: JobId) {
        let now = self.now;
        let Some(record) = self.record(id) else {
            return;
        };
        let is_source = record.tally.is_some();
        let job = record.jobs.get(usize::from(id.job));
        // Who asked later may have more time.
        if job.is_some_and(|job| !job.done && job.due <= now) {
            self.finish(id, is_source);
        }
    }

    fn finish(&mut self, id: JobId, is_source: bool) {
        let Some(job) = self.job(id) else { return };
        job.done = true;
        let askers = job.askers.len();
        match is_source {
            true => self.round_ended(id),
            false => (0..askers).for_each(|asker| self.answer(id, asker)),
        }
        self.job_ended();
    }

    /// A part is over.
    pub(crate) fn close(&mut self, id: JobId, part: usize) {
        let Some(job) = self.job(id) else { return };
        let Some(found) = job.parts.get_mut(part).filter(|part| !part.done) else {
            return;
        };
        found.done = true;
        job.open -= 1;
        self.go_on(id, part);
        self.finish_if_done(id);
    }

    /// A plan that waits between two sends goes on after its latest.
    pub(crate) fn go_on(&mut self, id: JobId, part: usize) {
        let Some(job) = self.job(id) else { return };
        let waits = job.hop.plan == crate::Plan::SequentialWaiting;
        if waits && job.next == part + 1 && job.next < job.parts.len() {
            self.sending.push_back(Sending::Job(id));
        }
    }

    /// A single sink that never answered.
    pub(crate) fn gave_up(&mut self, id: JobId, part: usize) {
        let Some(record) = self.record(id) else {
            return;
        };
        let Some(job) = record.jobs.get_mut(usize::from(id.job)) else {
            return;
        };
        let Some(sink) = job.parts.get(part).map(|part| part.first) else {
            return;
        };
        match &mut record.tally {
            Some(tally) => tally.failed(sink),
            None => {
                let failed = alloc::vec![sink];
                job.pieces.add(Piece {
                    first: sink,
                    end: sink + 1,
                    failed,
                    receipts: 0,
                });
            }
        }
        self.close(id, part);
    }

    /// The job and part that an answer is about, if `from` was asked.
    fn asked(&mut self, at: usize, from: u32, response: &Response) -> Option<(JobId, usize)> {
        let topic = &self.topics[at];
        let found = topic.serial_of(response.id).and_then(|serial| {
            let record = &topic.records[(serial - topic.base) as usize];
            let fits = |job: &Job| job.part_of(response.first, response.end, from);
            // A number of another version is somebody else's.
            if record.event.version() != response.version {
                return None;
            }
            let mut jobs = record.jobs.iter().enumerate().rev();
            let (job, part) = jobs.find_map(|(job, it)| Some((job, fits(it)?)))?;
            Some((
                JobId {
                    topic: at as u32,
                    serial,
                    job: job as u16,
                },
                part,
            ))
        });
        if found.is_none() {
            self.counters.unasked += 1;
        }
        found
    }

    /// What an answer tells about the network and the head.
    fn heard(&mut self, id: JobId, part: usize, from: u32, response: &Response) {
        let now = self.now;
        let mean = self.round_trip.mean().unwrap_or_default();
        self.topics[id.topic as usize].there(response.version, from);
        let Some(job) = self.job(id) else { return };
        let burst_end = job.burst_end;
        let Some(found) = job.parts.get_mut(part) else {
            return;
        };
        found.heard = true;
        // Answers that came while we were sending waited for us: they say nothing of the network.
        // No honest stamp is older than the part.
        let round = stamp(now).wrapping_sub(response.stamp_us);
        let honest = round <= micros(now.saturating_since(found.begun)).saturating_add(1);
        if honest && found.sent + mean >= burst_end {
            let micros = round.saturating_sub(response.dwell_us);
            let first = !self.measured;
            self.measured = true;
            self.round_trip
                .measured(Duration::from_micros(u64::from(micros)), first);
        }
    }

    pub(crate) fn on_response(&mut self, at: usize, from: u32, response: &Response) {
        let Some((id, part)) = self.asked(at, from, response) else {
            return;
        };
        self.heard(id, part, from, response);
        let done = self.job(id).is_none_or(|job| job.parts[part].done);
        // A single sink has nobody to wait for.
        let waits = response.end - response.first > 1;
        if !done && waits {
            if let Some(job) = self.job(id) {
                job.parts[part].attempts = 1;
            }
            self.watch(id, part);
        }
    }

    pub(crate) fn on_coverage(&mut self, at: usize, from: u32, coverage: Coverage) {
        let Coverage {
            response,
            pieces,
            piece,
        } = coverage;
        let Some((id, part)) = self.asked(at, from, &response) else {
            return;
        };
        // Coverage of more than one sink comes long after the message: no measure of the network.
        if response.end - response.first == 1 {
            self.heard(id, part, from, &response);
        }
        self.topics[at].there(response.version, from);
        let true_piece = self.receipts_fit(id, &piece);
        if true_piece {
            // Who has it by another way is there. A forwarder cannot check that; it costs time at worst.
            let there = |sink: &u32| piece.failed.binary_search(sink).is_err();
            let topic = &mut self.topics[at];
            let range = topic.suspects.range(piece.first..piece.end);
            let cleared: Vec<u32> = range.copied().filter(there).collect();
            for sink in cleared {
                topic.there(response.version, sink);
            }
            // Hearsay, too: whoever was silent to another is not made a head by this node.
            for sink in &piece.failed {
                topic.silent(response.version, *sink);
            }
        }
        let Some(record) = self.record(id) else {
            return;
        };
        let Some(job) = record.jobs.get_mut(usize::from(id.job)) else {
            return;
        };
        let mut failed = Vec::new();
        let fresh = match &mut record.tally {
            _ if !true_piece => 0,
            Some(tally) => {
                let fresh = tally.cover(&piece);
                failed = tally.news_of_failed(&piece);
                fresh
            }
            None if job.done => 0,
            None => {
                let count = piece.count();
                if job.pieces.add(piece) { count } else { 0 }
            }
        };
        let found = &mut job.parts[part];
        found.covered += fresh;
        found.pieces = found.pieces.saturating_add(1);
        let all = found.covered >= found.count() || u32::from(found.pieces) >= pieces;
        let mut again = 0..0;
        if !job.done && !failed.is_empty() {
            // Hearsay: the source tries for itself, at once, whatever the round still waits for.
            let (before, added) = (job.parts.len(), failed.len());
            let single = |sink: u32| Part::new(sink, sink + 1);
            job.parts.extend(failed.into_iter().map(single));
            job.open += added;
            if job.next == before {
                job.next += added;
                again = before..before + added;
            }
        }
        let nothing_left = record.tally.as_ref().is_some_and(|tally| tally.complete());
        // As many parts as sinks at most.
        self.again.extend(again.map(|part| (id, part as u32)));
        if nothing_left {
            self.all_delivered(id);
        } else if all {
            self.close(id, part);
        } else {
            self.watch(id, part);
        }
    }

    /// Whether a piece's receipts are what its sinks make; the source alone can tell.
    fn receipts_fit(&mut self, id: JobId, piece: &Piece) -> bool {
        if !self.guard.authenticates() {
            return true;
        }
        let Some(record) = self.record(id) else {
            return false;
        };
        if record.tally.is_none() {
            return true;
        }
        let Some(membership) = record.membership.clone() else {
            return false;
        };
        let event = record.event.id();
        let mut failed = piece.failed.iter().copied().peekable();
        let mut expected = 0;
        for sink in piece.first..piece.end {
            if failed.next_if_eq(&sink).is_some() {
                continue;
            }
            let Some(contact) = membership.sink(sink) else {
                return false;
            };
            let Some(receipt) = self.guard.receipt(&contact.key, event, sink) else {
                return false;
            };
            expected ^= receipt;
        }
        let fits = expected == piece.receipts;
        if !fits {
            self.counters.lies += 1;
            if let Some(tally) = self.record(id).and_then(|record| record.tally.as_mut()) {
                tally.lies = tally.lies.saturating_add(1);
            }
        }
        fits
    }
}
