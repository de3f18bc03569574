//! Repair: pulls missed events, and sends kept ones again.

use alloc::sync::Arc;
use core::time::Duration;

use super::alarms::{Alarm, JobId};
use super::node::Node;
use crate::guard::Guard;
use crate::interface::TreeEvent;
use crate::limit::Limit;
use crate::message::{Body, Pull, SOURCE, Spread, Suspects};
use crate::plan::Plan;
use crate::topic::{Record, micros};

/// Attempts to get missed events: from the parent, some siblings, the source.
const PULLS_MAX: u8 = 6;
/// Events that are sent again for one pull.
const REPAIRS_PER_PULL: usize = 16;
/// The wait for the answer to a pull, and before the first one, since late events may still arrive; in timeouts.
pub(super) const PULL_TIMEOUTS: u32 = 2;

/// Pulls, and the limit on repairs for others.
#[derive(Debug)]
pub(super) struct Repairs {
    limit: Limit,
}

impl Repairs {
    pub(super) fn new(repairs_per_s: u32) -> Self {
        Self {
            limit: Limit::new(repairs_per_s),
        }
    }

    /// Pulls the missed events of a topic: first from the parent, then from some siblings, then from the source.
    pub(super) fn pull<G: Guard>(&self, node: &mut Node<G>, at: usize, timeout: Duration) {
        let Some(attempt) = node.topics[at].pull_attempts else {
            return;
        };
        let topic = &mut node.topics[at];
        let Some((first, wanted)) = topic.window.missing() else {
            topic.pull_attempts = None;
            return;
        };
        if attempt >= PULLS_MAX {
            give_up(node, at, (first, wanted));
            return;
        }
        topic.pull_attempts = Some(attempt + 1);
        let serial = topic.first_serial + topic.records.len() as u64;
        let Some(record) = topic.records.back() else {
            topic.pull_attempts = None;
            return;
        };
        let id = JobId {
            topic: at as u32,
            serial: serial - 1,
            job: 0,
        };
        let sinks = record.membership.as_ref().map_or(0, |it| it.count());
        let to = match attempt {
            0 => record.parent,
            1..=3 if sinks > 1 => node.random.u32(..sinks),
            _ => SOURCE,
        };
        let pull = Pull {
            topic: topic.id,
            version: record.event.version(),
            boot: topic.window.boot,
            first,
            wanted,
        };
        node.transmit(id, to, Body::Pull(pull));
        let wait = timeout * (PULL_TIMEOUTS << attempt);
        node.alarms.set(node.now + wait, id, Alarm::Pull);
    }

    /// Sends the events that another node pulls, as far as this one keeps them.
    pub(super) fn on_pull<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        at: usize,
        from: u32,
        pull: &Pull,
        latency: Duration,
    ) {
        let now = node.now;
        let peer = node.topics[at].contact(pull.version, from);
        let mut sent = 0;
        for n in (0..64u64).filter(|n| pull.wanted >> n & 1 == 1) {
            let topic = &node.topics[at];
            let is_pulled = |record: &Record| {
                let id = record.event.id();
                record.is_verified
                    && id.boot == pull.boot
                    && pull.first.checked_add(n) == Some(id.sequence)
            };
            let Some(kept) = topic.records.iter().position(is_pulled) else {
                continue;
            };
            if sent == REPAIRS_PER_PULL || !self.limit.try_take(now, peer) {
                node.counters.repairs_refused += 1;
                return;
            }
            sent += 1;
            let record = &topic.records[kept];
            let list = record.membership.as_ref();
            if list.is_none_or(|list| from >= list.count()) {
                node.counters.misdirected += 1;
                return;
            }
            let spread = repair(record, from, now.saturating_since(record.taken_at), latency);
            let id = JobId {
                topic: at as u32,
                serial: topic.first_serial + kept as u64,
                job: 0,
            };
            node.transmit(id, from, Body::Spread(spread));
        }
    }

    pub(super) fn check(&self) -> Result<(), alloc::string::String> {
        self.limit.check()
    }
}

/// No node has sent the missed events: they are pulled no more.
fn give_up<G: Guard>(node: &mut Node<G>, at: usize, (first, which): (u64, u64)) {
    let topic = &mut node.topics[at];
    topic.pull_attempts = None;
    topic.window.give_up();
    let (topic, window) = (topic.id, topic.window);
    node.emit(TreeEvent::Remember { topic, window });
    let boot = window.boot;
    node.emit(TreeEvent::Missed {
        topic,
        boot,
        first,
        which,
    });
}

/// The message that repeats an event to one sink.
fn repair(record: &Record, sink: u32, kept_for: Duration, latency: Duration) -> Spread {
    Spread {
        first: sink,
        end: sink + 1,
        stamp_us: 0,
        due_us: 0,
        timeout_us: 0,
        age_us: record.age_us.saturating_add(micros(kept_for)),
        latency_us: micros(latency),
        send_cost_ns: 0,
        plan: Plan::Sequential,
        repair: true,
        suspects: Suspects::default(),
        event: Arc::clone(&record.event),
    }
}
