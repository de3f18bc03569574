//! Invariants of a node after every drained input, whatever its peers sent: for tests and simulations.
//!
//! A check reads everything that the node keeps.

use alloc::format;
use alloc::string::String;

use chappe_machine::Invariant;

use super::Tree;
use super::alarms::JobId;
use super::hops::ensure;
use super::source::ROUNDS_MAX;
use crate::config::Config;
use crate::topic::{Record, Topic};

impl<G> Invariant for Tree<G> {
    fn check(&self) -> Result<(), String> {
        let is_drained = self.node.outputs.is_empty() && self.sink.is_idle();
        ensure(is_drained, || "outputs are left".into())?;
        let config = &self.node.config;
        let topics = self.node.topics.len();
        ensure(topics <= config.topics_max, || format!("{topics} topics"))?;
        let attempts_max = config.tree_attempts.max(config.source_attempts);
        let watched = self.hops.watched(&self.node);
        let mut open_jobs = 0;
        for (at, topic) in self.node.topics.iter().enumerate() {
            let in_topic = |what: String| format!("topic {:#x}: {what}", topic.id);
            topic.check().map_err(in_topic)?;
            let records = topic.records.len();
            ensure(records <= config.history.max(1), || {
                in_topic(format!("{records} events"))
            })?;
            for (record, serial) in topic.records.iter().zip(topic.first_serial..) {
                let in_record = |what: String| format!("{:?}: {what}", record.event.id());
                check_record(config, topic, record).map_err(in_record)?;
                let open = record.jobs.iter().enumerate();
                for (number, _) in open.filter(|(_, job)| !job.is_done) {
                    let id = JobId {
                        topic: at as u32,
                        serial,
                        job: number as u16,
                    };
                    open_jobs += 1;
                    let in_job = |what| in_record(format!("job {number}: {what}"));
                    watched.check(id, record, attempts_max).map_err(in_job)?;
                }
            }
        }
        let counted = self.hops.open_jobs();
        ensure(counted == open_jobs, || {
            format!("{open_jobs} jobs are open, counted {counted}")
        })?;
        self.repairs.check()?;
        self.sink.check()?;
        self.proofs.check()
    }
}

fn check_record(config: &Config, topic: &Topic, record: &Record) -> Result<(), String> {
    let id = record.event.id();
    ensure(record.is_verified, || "it is kept and not verified".into())?;
    let jobs = record.jobs.len();
    let Some(publisher) = topic.publisher else {
        ensure(record.tally.is_none(), || "a sink has a tally".into())?;
        ensure(jobs <= config.jobs_max, || format!("it has {jobs} jobs"))?;
        let is_seen = !topic.window.accepts(id.boot, id.sequence);
        return ensure(is_seen, || {
            format!("it would be delivered again, seen is {:?}", topic.window)
        });
    };
    let is_numbered = id.boot == publisher.boot && id.sequence <= publisher.last_sequence;
    ensure(is_numbered, || format!("it was numbered by {publisher:?}"))?;
    ensure(jobs <= usize::from(ROUNDS_MAX) + 1, || {
        format!("it has {jobs} rounds")
    })?;
    let Some(tally) = &record.tally else {
        return ensure(jobs == 0, || "it goes on after its outcome".into());
    };
    let is_open = record.jobs.iter().any(|job| !job.is_done);
    ensure(is_open, || "it will have no outcome".into())?;
    tally.check()
}

impl<G> Tree<G> {
    /// The number of events, open jobs and alarms kept, which a check reads.
    #[must_use]
    pub fn kept_items(&self) -> usize {
        let events: usize = self.node.topics.iter().map(|it| it.records.len()).sum();
        events + self.hops.open_jobs() + self.node.alarms.len()
    }
}
