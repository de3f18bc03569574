//! Handles the silence of a head: sends another message, takes over its part, or gives it up.

use core::time::Duration;

use super::super::alarms::{Alarm, JobId};
use super::super::node::Node;
use super::{Hops, Queued};
use crate::config::TakeOver;
use crate::coverage::Piece;
use crate::guard::Guard;
use crate::job::{Part, divide};
use crate::plan::Plan;

/// Messages of a forwarder to a suspect; the source tries it, too.
///
/// Reason: with 5 % loss, two would leave out 1 of 100 wrongly suspected sinks, which the source learns late.
const SUSPECT_ATTEMPTS: u8 = 3;
/// Silence of a head that has answered, in timeouts, after which it is asked again, and then its part is taken
/// over.
const SILENCE_TIMEOUTS: u32 = 12;
/// The part of a head is taken over if its outcome is unknown after this many timeouts, even if the head responds.
const PATIENCE_TIMEOUTS: u32 = 64;

impl Hops {
    /// A head has not answered in time: it gets the message again, its part is taken over, or it is given up.
    pub(in super::super) fn on_silence<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        id: JobId,
        part: usize,
        generation: u16,
    ) -> Option<JobId> {
        let advised_us = node.topics.job(id).map_or(0, |job| job.hop.timeout_us);
        let patience = self.timeout(&node.config, advised_us) * PATIENCE_TIMEOUTS;
        let (tree, source) = (node.config.tree_attempts, node.config.source_attempts);
        let topic = node.topics.topic_mut(id)?;
        let record = topic.record_mut(id.serial)?;
        let (is_source, version) = (record.tally.is_some(), record.event.version());
        let job = record.jobs.get_mut(usize::from(id.job))?;
        let silent = job.parts.get_mut(part)?;
        if job.is_done || silent.is_done || silent.generation != generation {
            return None;
        }
        let head = silent.head?;
        if silent.count() > 1 {
            let since = node.now.saturating_since(silent.first_sent);
            if silent.has_answered && silent.attempts < 2 && since < patience {
                // The head was alive: its answer may be lost.
                silent.pieces = 0;
                self.queue.push_back(Queued::Part(id, part as u32));
                return None;
            }
            topic.suspect_in(version, head);
            node.counters.taken_over += 1;
            self.take_over(node, id, part, head);
            return None;
        }
        let attempts = silent.attempts;
        let is_suspect_of_hop = job.suspects.contains(head);
        let is_suspect = is_suspect_of_hop || topic.suspects.contains(&head);
        let attempts_max = match (is_source, is_suspect) {
            (true, _) => source,
            (false, true) => tree.min(SUSPECT_ATTEMPTS),
            (false, false) => tree,
        };
        let is_last = attempts >= attempts_max;
        // A source may wait half of `within` until it gives up; the next event needs to know sooner.
        if is_last || is_source && attempts > 1 {
            topic.suspect_in(version, head);
        }
        if is_last {
            return self.give_up(node, id, part);
        }
        self.retransmissions.push_back((id, part as u32));
        if attempts == 1 {
            // A plan that waits for each answer waits for one attempt only.
            self.send_next(node, id, part);
        }
        None
    }

    /// Divides a part as its head would have, or by the paper's rule gives the others to the next sink, and tries
    /// the head alone. Sinks that got their range from the head already get the same one, and send nothing twice.
    fn take_over<G>(&mut self, node: &mut Node<G>, id: JobId, part: usize, head: u32) {
        let Some(job) = node.topics.job_mut(id) else {
            return;
        };
        let before = job.parts.len();
        job.parts[part].is_done = true;
        let range = (job.parts[part].first, job.parts[part].end);
        let plan = match node.config.take_over {
            TakeOver::Divide => job.hop.plan,
            TakeOver::NextSink => Plan::Kary(1),
        };
        divide(range, Some(head), plan, &mut self.splitter, &mut job.parts);
        job.parts.push(Part::new(head, head + 1));
        job.open_parts += job.parts.len() - before - 1;
        if job.next_part == before {
            job.next_part = job.parts.len();
            let added = before..job.parts.len();
            let queued = added.map(|part| Queued::Part(id, part as u32));
            self.queue.extend(queued);
        } else {
            self.send_next(node, id, part);
        }
    }

    /// A single sink never answered.
    fn give_up<G>(&mut self, node: &mut Node<G>, id: JobId, part: usize) -> Option<JobId> {
        let record = node.topics.record_mut(id)?;
        let job = record.jobs.get_mut(usize::from(id.job))?;
        let sink = job.parts.get(part)?.first;
        match &mut record.tally {
            Some(tally) => tally.add_failed(sink),
            None => {
                job.pieces.add(Piece {
                    first: sink,
                    end: sink + 1,
                    failed: alloc::vec![sink],
                    receipts: 0,
                });
            }
        }
        self.close(node, id, part)
    }

    /// Awaits the rest of a head's answers.
    pub(super) fn watch<G>(&mut self, node: &mut Node<G>, id: JobId, part: usize) {
        let Some(job) = node.topics.job_mut(id) else {
            return;
        };
        let advised_us = job.hop.timeout_us;
        let Some(watched) = job.parts.get_mut(part) else {
            return;
        };
        watched.generation = watched.generation.wrapping_add(1);
        let (generation, first_sent) = (watched.generation, watched.first_sent);
        let timeout: Duration = self.timeout(&node.config, advised_us);
        let at = (node.now + timeout * SILENCE_TIMEOUTS)
            .min(first_sent + timeout * PATIENCE_TIMEOUTS)
            .max(node.now);
        node.alarms
            .set(at, id, Alarm::Part(part as u32, generation));
    }
}
