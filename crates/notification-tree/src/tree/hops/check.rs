//! Invariants of the ranges under way: every open part has an alarm, or is in a queue.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::alarms::{Alarm, JobId};
use super::super::node::Node;
use super::{Hops, Queued};
use crate::job::{Job, Part, REQUESTERS_MAX};
use crate::plan::Plan;
use crate::topic::Record;

/// Jobs and parts that have an alarm or are in a queue.
pub(in super::super) struct Watched {
    /// Jobs with an end.
    due: BTreeSet<JobId>,
    /// Jobs whose next part is to be sent.
    sending: BTreeSet<JobId>,
    parts: BTreeSet<(JobId, u32)>,
}

pub(in super::super) fn ensure(
    holds: bool,
    violation: impl FnOnce() -> String,
) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation()) }
}

impl Hops {
    pub(in super::super) fn watched<G>(&self, node: &Node<G>) -> Watched {
        let mut watched = Watched {
            due: BTreeSet::new(),
            sending: BTreeSet::new(),
            parts: self.retransmissions.iter().copied().collect(),
        };
        for queued in &self.queue {
            match *queued {
                Queued::Job(id) => drop(watched.sending.insert(id)),
                Queued::Part(id, part) => drop(watched.parts.insert((id, part))),
            }
        }
        // Without an open job all alarms are void.
        let alarms = node.alarms.iter().filter(|_| self.open_jobs > 0);
        for (id, alarm) in alarms {
            match alarm {
                Alarm::Due => drop(watched.due.insert(id)),
                Alarm::Part(part, generation) => {
                    let job = node.topics.job(id);
                    let found = job.and_then(|job| job.parts.get(part as usize));
                    if found.is_some_and(|found| found.generation == generation) {
                        watched.parts.insert((id, part));
                    }
                }
                Alarm::Progress | Alarm::Pull | Alarm::Proof => {}
            }
        }
        watched
    }
}

impl Watched {
    /// Checks an open job.
    pub(in super::super) fn check(
        &self,
        id: JobId,
        record: &Record,
        attempts_max: u8,
    ) -> Result<(), String> {
        let Some(job) = record.jobs.get(usize::from(id.job)) else {
            return Err("it does not exist".into());
        };
        check_parts(job, attempts_max)?;
        if record.tally.is_none() {
            check_requested(record, job)?;
        }
        self.check_alarms(id, job)
    }

    fn check_alarms(&self, id: JobId, job: &Job) -> Result<(), String> {
        ensure(self.due.contains(&id), || "it has no end".into())?;
        let mut has_unsent = false;
        for (at, part) in (0..).zip(&job.parts) {
            if part.is_done || self.parts.contains(&(id, at)) {
                continue;
            }
            ensure(at as usize >= job.next_part, || {
                format!("part {at} is not awaited: {part:?}")
            })?;
            has_unsent = true;
        }
        let waits = job.hop.plan == Plan::SequentialWaiting
            && job.next_part > 0
            && !job.parts[job.next_part - 1].is_done;
        let is_sent = !has_unsent || waits || self.sending.contains(&id);
        ensure(is_sent, || {
            format!("parts from {} on are not sent", job.next_part)
        })
    }
}

fn check_parts(job: &Job, attempts_max: u8) -> Result<(), String> {
    let open = job.parts.iter().filter(|part| !part.is_done).count();
    ensure(job.open_parts == open, || {
        format!("{open} parts are open, counted {}", job.open_parts)
    })?;
    ensure(open > 0, || "no part is open".into())?;
    let count = job.parts.len();
    ensure(job.next_part <= count && job.ordered_parts <= count, || {
        format!("{} of {count} parts are sent", job.next_part)
    })?;
    for (at, part) in job.parts.iter().enumerate() {
        check_part(job, at, part, attempts_max)?;
    }
    Ok(())
}

fn check_part(job: &Job, at: usize, part: &Part, attempts_max: u8) -> Result<(), String> {
    let (first, end) = (part.first, part.end);
    let violation = |what: &str| format!("part {first} to {end} {what}: {part:?}");
    let has_counts = first < end && part.covered <= part.count();
    ensure(has_counts, || violation("is empty or covers too many"))?;
    let is_inside = part.head.is_none_or(|head| (first..end).contains(&head));
    ensure(is_inside, || violation("has a head outside of it"))?;
    let is_sent = part.attempts > 0;
    ensure(part.head.is_some() == is_sent, || {
        violation("was sent without a head")
    })?;
    ensure(at < job.next_part || !is_sent, || {
        violation("was sent before its turn")
    })?;
    ensure(part.attempts <= attempts_max.max(2), || {
        violation("was sent too often")
    })
}

/// Checks the range that a sink got from its requesters.
fn check_requested(record: &Record, job: &Job) -> Result<(), String> {
    let range = job.first..job.end;
    let (number, list) = (record.number, record.membership.as_ref());
    let own = number.filter(|own| range.contains(own));
    let count = list.map_or(0, |list| list.count());
    ensure(own.is_some() && job.end <= count, || {
        format!("sink {number:?} of {count} spreads over {range:?}")
    })?;
    let mut requesters: Vec<u32> = job.requesters.iter().map(|it| it.from).collect();
    requesters.sort_unstable();
    requesters.dedup();
    let many = job.requesters.len();
    let are_few = (1..=REQUESTERS_MAX).contains(&many) && requesters.len() == many;
    ensure(are_few, || {
        format!("its requesters are {:?}", job.requesters)
    })?;
    let open = job.parts.iter().filter(|part| !part.is_done);
    let mut open: Vec<(u32, u32)> = open.map(|part| (part.first, part.end)).collect();
    open.sort_unstable();
    let are_apart = open.windows(2).all(|two| two[0].1 <= two[1].0);
    let is_inside = |&(first, end): &(u32, u32)| {
        let is_own = own.is_some_and(|own| (first..end).contains(&own));
        range.start <= first && end <= range.end && !is_own
    };
    ensure(are_apart && open.iter().all(is_inside), || {
        format!("{open:?} are parts of {range:?} without {own:?}")
    })?;
    job.pieces.check(job.first, job.end)
}
