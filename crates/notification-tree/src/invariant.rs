//! What holds of a node after every drained input, whatever its peers sent: for tests and simulations.
//!
//! Costs as much as all that the node keeps.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use chappe_machine::Invariant;

use crate::job::{ASKERS_MAX, Job, Part};
use crate::plan::Plan;
use crate::source::ROUNDS_MAX;
use crate::state::{Alarm, JobId, Record, SUSPECTS_KNOWN_MAX, Sending, Topic};
use crate::tree::{Tree, VERSIONS_KEPT};

/// What will come to be looked at: by a timer that is not void, or since it stands in a queue.
struct Watched {
    /// Jobs whose time ends, and jobs whose next part is to be sent.
    due: BTreeSet<JobId>,
    sending: BTreeSet<JobId>,
    parts: BTreeSet<(JobId, u32)>,
}

fn holds(it: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if it { Ok(()) } else { Err(what()) }
}

impl<G> Invariant for Tree<G> {
    fn check(&self) -> Result<(), String> {
        let drained = self.out.is_empty() && self.unverified.is_none() && self.keeping.is_none();
        holds(drained, || "outputs are left".into())?;
        let topics = self.topics.len();
        holds(topics <= self.config.topics_max, || {
            format!("{topics} topics")
        })?;
        let watched = self.watched();
        let mut under_way = 0;
        for (at, topic) in self.topics.iter().enumerate() {
            let in_topic = |what: String| format!("topic {:#x}: {what}", topic.id);
            topic.check().map_err(in_topic)?;
            let records = topic.records.len();
            holds(records <= self.config.history.max(1), || {
                in_topic(format!("{records} events"))
            })?;
            for (record, serial) in topic.records.iter().zip(topic.base..) {
                let in_record = |what: String| format!("{:?}: {what}", record.event.id());
                self.check_record(topic, record).map_err(in_record)?;
                for (number, job) in record.jobs.iter().enumerate().filter(|(_, job)| !job.done) {
                    let id = JobId {
                        topic: at as u32,
                        serial,
                        job: number as u16,
                    };
                    let in_job = |what| in_record(format!("range {number}: {what}"));
                    under_way += 1;
                    self.check_job(record, job).map_err(in_job)?;
                    watched.check(id, job).map_err(in_job)?;
                }
            }
        }
        holds(self.open_jobs == under_way, || {
            format!("{under_way} ranges are open, counted {}", self.open_jobs)
        })?;
        self.repairs.check()?;
        self.verifications.check()?;
        self.proofs.check()
    }
}

impl<G> Tree<G> {
    /// How much this node keeps, in events, ranges under way and timers: what a check looks at.
    #[must_use]
    pub fn keeps(&self) -> usize {
        let events: usize = self.topics.iter().map(|topic| topic.records.len()).sum();
        events + self.open_jobs + self.timers.len()
    }

    fn watched(&self) -> Watched {
        let mut watched = Watched {
            due: BTreeSet::new(),
            sending: BTreeSet::new(),
            parts: self.again.iter().copied().collect(),
        };
        for sending in &self.sending {
            match *sending {
                Sending::Job(id) => drop(watched.sending.insert(id)),
                Sending::Part(id, part) => drop(watched.parts.insert((id, part))),
            }
        }
        // Without a range under way all are void.
        let timers = self.timers.iter().filter(|_| self.open_jobs > 0);
        for Reverse((_, id, alarm)) in timers {
            match *alarm {
                Alarm::Due => drop(watched.due.insert(*id)),
                Alarm::Part(part, generation) => {
                    let found = self.part(*id, part);
                    if found.is_some_and(|found| found.generation == generation) {
                        watched.parts.insert((*id, part));
                    }
                }
                Alarm::Progress | Alarm::Pull | Alarm::Proof => {}
            }
        }
        watched
    }

    fn part(&self, id: JobId, part: u32) -> Option<&Part> {
        let topic = self.topics.get(id.topic as usize)?;
        let at = id.serial.checked_sub(topic.base)?;
        let record = topic.records.get(usize::try_from(at).ok()?)?;
        record
            .jobs
            .get(usize::from(id.job))?
            .parts
            .get(part as usize)
    }

    fn check_record(&self, topic: &Topic, record: &Record) -> Result<(), String> {
        let id = record.event.id();
        holds(record.verified, || "kept and not verified".into())?;
        let jobs = record.jobs.len();
        let Some((boot, last)) = topic.own else {
            holds(record.tally.is_none(), || "a sink counts".into())?;
            holds(jobs <= self.config.jobs_max, || format!("{jobs} ranges"))?;
            return holds(!topic.window.accepts(id.boot, id.sequence), || {
                format!("would be delivered again, seen is {:?}", topic.window)
            });
        };
        holds(id.boot == boot && id.sequence <= last, || {
            format!("published after boot {boot}, number {last}")
        })?;
        holds(jobs <= usize::from(ROUNDS_MAX) + 1, || {
            format!("{jobs} rounds")
        })?;
        let Some(tally) = &record.tally else {
            return holds(jobs == 0, || "goes on after its outcome".into());
        };
        holds(record.jobs.iter().any(|job| !job.done), || {
            "nothing will bring its outcome".into()
        })?;
        tally.check()
    }

    fn check_job(&self, record: &Record, job: &Job) -> Result<(), String> {
        let open = job.parts.iter().filter(|part| !part.done).count();
        holds(job.open == open, || {
            format!("{open} parts are open, counted {}", job.open)
        })?;
        holds(open > 0, || "waits for nothing".into())?;
        let count = job.parts.len();
        holds(job.next <= count && job.in_order <= count, || {
            format!("{} of {count} parts are sent", job.next)
        })?;
        let attempts = self.config.tree_attempts.max(self.config.source_attempts);
        for (at, part) in job.parts.iter().enumerate() {
            let (first, end) = (part.first, part.end);
            let in_part = |what: &str| format!("part {first} to {end} {what}: {part:?}");
            holds(first < end && part.covered <= part.count(), || {
                in_part("counts wrongly")
            })?;
            let head = part.head;
            holds(head.is_none_or(|it| (first..end).contains(&it)), || {
                in_part("has a head outside of it")
            })?;
            holds(head.is_some() == (part.attempts > 0), || {
                in_part("was sent to nobody")
            })?;
            holds(at < job.next || part.attempts == 0, || {
                in_part("was sent before its turn")
            })?;
            holds(part.attempts <= attempts.max(2), || {
                in_part("was sent too often")
            })?;
        }
        match record.tally {
            Some(_) => Ok(()),
            None => check_given(record, job),
        }
    }
}

/// A range that a sink was given.
fn check_given(record: &Record, job: &Job) -> Result<(), String> {
    let range = job.first..job.end;
    let (number, list) = (record.number, record.membership.as_ref());
    let own = number.filter(|own| range.contains(own));
    let count = list.map_or(0, |list| list.count());
    holds(own.is_some() && job.end <= count, || {
        format!("{number:?} of {count} sinks spreads over {range:?}")
    })?;
    let mut askers: Vec<u32> = job.askers.iter().map(|asker| asker.from).collect();
    askers.sort_unstable();
    askers.dedup();
    let many = job.askers.len();
    holds(
        (1..=ASKERS_MAX).contains(&many) && askers.len() == many,
        || format!("{:?} wait for it", job.askers),
    )?;
    let open = job.parts.iter().filter(|part| !part.done);
    let mut open: Vec<(u32, u32)> = open.map(|part| (part.first, part.end)).collect();
    open.sort_unstable();
    let apart = open.windows(2).all(|two| two[0].1 <= two[1].0);
    let inside = |&(first, end): &(u32, u32)| {
        range.start <= first
            && end <= range.end
            && own.is_none_or(|own| !(first..end).contains(&own))
    };
    holds(apart && open.iter().all(inside), || {
        format!("{open:?} are parts of {range:?} without {own:?}")
    })?;
    job.pieces.check(job.first, job.end)
}

impl Watched {
    /// Nothing of a range that is under way is forgotten.
    fn check(&self, id: JobId, job: &Job) -> Result<(), String> {
        holds(self.due.contains(&id), || "has no end".into())?;
        let mut unsent = false;
        for (at, part) in (0..).zip(&job.parts) {
            if part.done || self.parts.contains(&(id, at)) {
                continue;
            }
            holds(at as usize >= job.next, || {
                format!("part {at} is not waited for: {part:?}")
            })?;
            unsent = true;
        }
        let waits = job.hop.plan == Plan::SequentialWaiting
            && job.next > 0
            && !job.parts[job.next - 1].done;
        holds(!unsent || waits || self.sending.contains(&id), || {
            format!("nobody sends from part {} on", job.next)
        })
    }
}

impl Topic {
    fn check(&self) -> Result<(), String> {
        let empty = self.records.is_empty() && self.versions.is_empty();
        holds(!self.left || empty, || "something is left of it".into())?;
        let versions = self.versions.iter().map(|it| it.membership.version());
        let versions: Vec<u32> = versions.collect();
        let increase = versions.windows(2).all(|two| two[0] < two[1]);
        holds(versions.len() <= VERSIONS_KEPT && increase, || {
            format!("versions {versions:?}")
        })?;
        let newest = self.versions.last();
        let sinks = newest.map_or(0, |it| it.membership.count());
        let most = self.suspects.last();
        holds(most.is_none_or(|most| *most < sinks), || {
            format!("{most:?} of {sinks} sinks is suspected")
        })?;
        let (suspects, distrusted) = (self.suspects.len(), self.distrusted.len());
        holds(suspects.max(distrusted) <= SUSPECTS_KNOWN_MAX, || {
            format!("{suspects} suspects, {distrusted} were caught")
        })?;
        let window = &self.window.numbers;
        holds(window.newest == 0 || window.seen & 1 == 1, || {
            format!("the newest was not seen: {window:?}")
        })
    }
}
