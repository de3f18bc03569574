//! The deadlines of a node.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use chappe_machine::Instant;

/// Names a job; stays valid when older events are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId {
    /// The index of the topic.
    pub(super) topic: u32,
    pub(super) serial: u64,
    pub(super) job: u16,
}

/// The reason of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// The head of this part is silent; void unless the part has this generation.
    Part(u32, u16),
    /// Requesters get another response, or sending resumes.
    Progress,
    /// Coverage is due.
    Due,
    /// Missed events are pulled again.
    Pull,
    /// A proof has no answer; its serial number replaces the event's.
    Proof,
}

/// All deadlines. At the same time they ring in the order of jobs, then of alarms.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    heap: BinaryHeap<Reverse<(Instant, JobId, Alarm)>>,
}

impl Alarms {
    pub(super) fn set(&mut self, at: Instant, id: JobId, alarm: Alarm) {
        self.heap.push(Reverse((at, id, alarm)));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Removes the next deadline, if it has passed.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(JobId, Alarm)> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, id, alarm)) = self.heap.pop()?;
        Some((id, alarm))
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, Alarm)> {
        self.heap
            .iter()
            .map(|Reverse((_, id, alarm))| (*id, *alarm))
    }
}
