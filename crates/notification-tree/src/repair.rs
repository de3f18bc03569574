//! Repair: asking for what was missed, and sending it again.

use alloc::sync::Arc;

use chappe_machine::Output;

use crate::guard::Guard;
use crate::interface::Happened;
use crate::message::{Body, Pull, SOURCE, Spread, Suspects};
use crate::state::{Alarm, JobId, micros};
use crate::tree::Tree;

/// Attempts to get what was missed: the parent, some siblings, the source.
const PULLS_MAX: u8 = 6;
/// Missed events that are sent again for one pull.
const REPAIRS_PER_PULL: usize = 16;
/// Time-outs for the answer to a pull, and before the first: what is late may still come.
pub(crate) const PULL_TIMEOUTS: u32 = 2;

impl<G: Guard> Tree<G> {
    /// Asks for what was missed: first the parent, then some siblings, then the source.
    pub(crate) fn pull(&mut self, at: usize) {
        let now = self.now;
        let Some(topic) = self.topics.get_mut(at) else {
            return;
        };
        let Some(attempt) = topic.pulls else { return };
        let Some((first, wanted)) = topic.window.missing() else {
            topic.pulls = None;
            return;
        };
        let boot = topic.window.boot;
        if attempt >= PULLS_MAX {
            topic.pulls = None;
            topic.window.give_up();
            let (topic, window) = (topic.id, topic.window);
            self.out
                .push_back(Output::Event(Happened::Remember { topic, window }));
            let missed = Happened::Missed {
                topic,
                boot,
                first,
                which: wanted,
            };
            self.out.push_back(Output::Event(missed));
            return;
        }
        topic.pulls = Some(attempt + 1);
        let last = topic.base + topic.records.len() as u64;
        let Some(record) = topic.records.back() else {
            topic.pulls = None;
            return;
        };
        let sinks = record.membership.as_ref().map_or(0, |it| it.count());
        let to = match attempt {
            0 => record.parent,
            1..=3 if sinks > 1 => self.random.u32(..sinks),
            _ => SOURCE,
        };
        let version = record.event.version();
        let id = JobId {
            topic: at as u32,
            serial: last - 1,
            job: 0,
        };
        let pull = Pull {
            topic: topic.id,
            version,
            boot,
            first,
            wanted,
        };
        self.transmit(id, to, Body::Pull(pull));
        let wait = self.timeout(0) * (PULL_TIMEOUTS << attempt);
        self.set_timer(now + wait, id, Alarm::Pull);
    }

    /// Sends what another node missed and this one keeps.
    pub(crate) fn on_pull(&mut self, at: usize, from: u32, pull: &Pull) {
        let now = self.now;
        let peer = self.topics[at].contact(pull.version, from);
        let mut sent = 0;
        for n in (0..64u64).filter(|n| pull.wanted >> n & 1 == 1) {
            let topic = &self.topics[at];
            let held = topic.records.iter().position(|record| {
                let id = record.event.id();
                record.verified
                    && id.boot == pull.boot
                    && pull.first.checked_add(n) == Some(id.sequence)
            });
            let Some(held) = held else { continue };
            if sent == REPAIRS_PER_PULL || !self.repairs.take(now, peer) {
                self.counters.repairs_refused += 1;
                return;
            }
            sent += 1;
            let topic = &self.topics[at];
            let record = &topic.records[held];
            if record
                .membership
                .as_ref()
                .is_none_or(|it| from >= it.count())
            {
                self.counters.misdirected += 1;
                return;
            }
            let held_for = micros(now.saturating_since(record.since));
            let spread = Spread {
                first: from,
                end: from + 1,
                stamp_us: 0,
                due_us: 0,
                timeout_us: 0,
                age_us: record.age_us.saturating_add(held_for),
                latency_us: micros(self.round_trip.latency()),
                send_cost_ns: 0,
                plan: crate::Plan::Sequential,
                repair: true,
                suspects: Suspects::default(),
                event: Arc::clone(&record.event),
            };
            let id = JobId {
                topic: at as u32,
                serial: topic.base + held as u64,
                job: 0,
            };
            self.transmit(id, from, Body::Spread(spread));
        }
    }
}
