//! The sink of topics: accepts events, verifies them, has their windows stored, and delivers them.

use alloc::sync::Arc;
use core::time::Duration;

use chappe_machine::Instant;

use super::alarms::{Alarm, JobId};
use super::node::Node;
use super::repair::PULL_TIMEOUTS;
use crate::guard::Guard;
use crate::interface::TreeEvent;
use crate::limit::Limit;
use crate::membership::Contact;
use crate::message::Spread;
use crate::topic::Record;
use crate::window::Window;

/// How far ahead of the newest event a number may be for forwarding before verification.
const AHEAD_MAX: u64 = 1_024;
/// Signatures of unknown or distrusted senders verified a second, and keys agreed on with unknown ones.
///
/// Reason: a tenth of a processor; each takes 60 to 200 µs.
const VERIFICATIONS_PER_S: u32 = 1_000;

/// The next step for a spread message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// Nothing.
    Rejected,
    /// Its event is known: only the range may be new.
    Known(JobId),
    /// Its event is new: the range comes first, then [`Sink::verify_next`] or [`Sink::remember`].
    New {
        id: JobId,
        is_verified: bool,
        /// Open jobs of the event that made room for it.
        dropped_jobs: usize,
    },
}

/// The events that a sink verifies and has stored.
#[derive(Debug)]
pub(super) struct Sink {
    /// The event that was forwarded before its verification.
    unverified: Option<JobId>,
    /// The event that is delivered when its window is stored, and the window before it.
    awaiting_persist: Option<(JobId, Window)>,
    verifications: Limit,
}

impl Sink {
    pub(super) fn new() -> Self {
        Self {
            unverified: None,
            awaiting_persist: None,
            verifications: Limit::new(VERIFICATIONS_PER_S),
        }
    }

    /// Whether a signature or key of an unknown or distrusted sender may be checked now.
    pub(super) fn take_verification(&mut self, now: Instant, sender: Option<Contact>) -> bool {
        self.verifications.try_take(now, sender)
    }

    /// Accepts or rejects a spread message.
    pub(super) fn accept<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        at: usize,
        from: u32,
        spread: &Spread,
    ) -> Acceptance {
        let topic = &node.topics[at];
        let id = spread.event.id();
        if topic.publisher.is_some() {
            node.counters.unasked += 1;
            return Acceptance::Rejected;
        }
        let serial = topic.serial_of(id);
        if let Some(record) = serial.and_then(|serial| topic.record(serial)) {
            let is_same = Arc::ptr_eq(&record.event, &spread.event) || record.event == spread.event;
            if !is_same {
                // Other bytes with the same number: not signed by the source, or signed twice.
                on_forged(node, at, spread.event.version(), from);
                return Acceptance::Rejected;
            }
            node.counters.duplicates += 1;
            return Acceptance::Known(JobId {
                topic: at as u32,
                serial: serial.unwrap_or_default(),
                job: 0,
            });
        }
        if !topic.window.accepts(id.boot, id.sequence) {
            node.counters.old += 1;
            return Acceptance::Rejected;
        }
        let is_known = topic.version(spread.event.version()).is_some();
        let newest = topic.window.numbers.newest;
        let is_near = topic.window.boot == id.boot
            && newest > 0
            && id.sequence <= newest.saturating_add(AHEAD_MAX);
        let sender = topic.contact(spread.event.version(), from);
        let is_distrusted = sender.is_some_and(|sender| topic.distrusted.contains(&sender));
        let is_trusted = node.config.forward_first && is_known && is_near && !is_distrusted;
        if !is_trusted && !self.verify_first(node, at, from, spread, (sender, is_distrusted)) {
            return Acceptance::Rejected;
        }
        let (id, dropped_jobs) = keep(node, at, from, spread);
        Acceptance::New {
            id,
            is_verified: !is_trusted,
            dropped_jobs,
        }
    }

    /// Verifies an event before it is forwarded, and adopts the list in it.
    fn verify_first<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        at: usize,
        from: u32,
        spread: &Spread,
        (sender, is_distrusted): (Option<Contact>, bool),
    ) -> bool {
        // Verifying costs most. Honest senders are known and never distrusted, so they are not limited.
        let is_limited = node.guard.authenticates() && (is_distrusted || sender.is_none());
        if is_limited && !self.take_verification(node.now, sender) {
            node.counters.unverified += 1;
            return false;
        }
        let source = node.topics[at].source.key;
        let version = spread.event.version();
        if !spread.event.verify(&source, &mut node.guard) {
            on_forged(node, at, version, from);
            return false;
        }
        let is_known = node.topics[at].version(version).is_some();
        if !is_known && let Some(Ok(list)) = spread.event.list() {
            // An error means that a newer list is known; the event is still delivered.
            let _ = node.topics[at].adopt(Arc::new(list), None, &node.contact);
        }
        true
    }

    /// Has an event verified as soon as its range is forwarded.
    pub(super) fn verify_next(&mut self, id: JobId) {
        self.unverified = Some(id);
    }

    /// Verifies the event that was forwarded before. Returns how many open jobs a forged one had.
    pub(super) fn verify<G: Guard>(&mut self, node: &mut Node<G>) -> usize {
        let Some(id) = self.unverified.take() else {
            return 0;
        };
        let at = id.topic as usize;
        let source = node.topics[at].source.key;
        let Some(event) = node.topics.record(id).map(|it| Arc::clone(&it.event)) else {
            return 0;
        };
        if event.verify(&source, &mut node.guard) {
            self.remember(node, id);
            return 0;
        }
        let Some((parent, open_jobs)) = node.topics.forget_newest(at) else {
            return 0;
        };
        on_forged(node, at, event.version(), parent);
        open_jobs
    }

    /// Has the window of a verified event stored; the event is delivered afterwards.
    pub(super) fn remember<G: Guard>(&mut self, node: &mut Node<G>, id: JobId) {
        let Some(event) = node.topics.record(id).map(|record| record.event.id()) else {
            return;
        };
        let topic = &mut node.topics[id.topic as usize];
        self.awaiting_persist = Some((id, topic.window));
        topic.window.note(event.boot, event.sequence);
        let (topic, window) = (topic.id, topic.window);
        node.emit(TreeEvent::Remember { topic, window });
    }

    /// The event whose window is stored by now.
    pub(super) fn take_persisted(&mut self) -> Option<JobId> {
        self.awaiting_persist.take().map(|(id, _)| id)
    }

    /// The window could not be stored: its event is dropped. Returns how many open jobs it had.
    pub(super) fn on_not_persisted<G>(&mut self, node: &mut Node<G>) -> usize {
        let Some((id, window)) = self.awaiting_persist.take() else {
            return 0;
        };
        node.counters.not_stored += 1;
        node.topics[id.topic as usize].window = window;
        let dropped = node.topics.forget_newest(id.topic as usize);
        dropped.map_or(0, |(_, open_jobs)| open_jobs)
    }

    /// Delivers an event whose window is stored, and has missed ones pulled. Returns how many jobs can be
    /// receipted.
    pub(super) fn deliver<G: Guard>(
        &self,
        node: &mut Node<G>,
        id: JobId,
        timeout: Duration,
    ) -> usize {
        let Some(record) = node.topics.record_mut(id) else {
            return 0;
        };
        record.is_verified = true;
        let event = Arc::clone(&record.event);
        let age = Duration::from_micros(u64::from(record.age_us));
        let late = event.deadline().is_some_and(|deadline| age > deadline);
        let jobs = record.jobs.len();
        let topic = &mut node.topics[id.topic as usize];
        let has_gap = topic.window.missing().is_some() && topic.pull_attempts.is_none();
        if has_gap {
            topic.pull_attempts = Some(0);
        }
        if !event.is_heartbeat() {
            node.counters.delivered += 1;
            node.counters.late += u64::from(late);
            node.emit(TreeEvent::Delivered { event, age, late });
        }
        if has_gap {
            let wait = timeout * PULL_TIMEOUTS;
            node.alarms.set(node.now + wait, id, Alarm::Pull);
        }
        jobs
    }

    pub(super) fn is_idle(&self) -> bool {
        self.unverified.is_none() && self.awaiting_persist.is_none()
    }

    pub(super) fn check(&self) -> Result<(), alloc::string::String> {
        self.verifications.check()
    }
}

/// Replaces the oldest event with a new one. Returns how many open jobs the oldest had.
fn keep<G: Guard>(node: &mut Node<G>, at: usize, from: u32, spread: &Spread) -> (JobId, usize) {
    let mut dropped_jobs = 0;
    if node.topics[at].records.len() >= node.config.history.max(1) {
        dropped_jobs = node.topics.forget_oldest(at);
    }
    let version = node.topics[at].version(spread.event.version());
    let is_unknown = version.is_none();
    let (membership, number) = match version {
        Some(version) => (Some(Arc::clone(&version.membership)), version.number),
        None => (None, None),
    };
    let record = Record {
        event: Arc::clone(&spread.event),
        membership,
        number,
        is_verified: false,
        taken_at: node.now,
        age_us: spread.age_us.saturating_add(spread.latency_us),
        parent: from,
        jobs: node.topics.spare.jobs(),
        tally: None,
    };
    let id = node.topics.push(at, record);
    let topic = &mut node.topics[at];
    let version = spread.event.version();
    if is_unknown && topic.reported_version != Some(version) {
        topic.reported_version = Some(version);
        let topic = topic.id;
        node.emit(TreeEvent::MembershipUnknown { topic, version });
    }
    (id, dropped_jobs)
}

/// A sender forwarded an event that the source did not sign.
fn on_forged<G: Guard>(node: &mut Node<G>, at: usize, version: u32, from: u32) {
    node.counters.forged += 1;
    let topic = &mut node.topics[at];
    // Senders that no list names are never trusted, so they need no mark.
    if let Some(sender) = topic.contact(version, from) {
        topic.distrust(sender);
    }
    let topic = topic.id;
    node.emit(TreeEvent::Forged { topic, from });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::event::{Event, EventId};
    use crate::guard::TrustedNetwork;
    use crate::membership::Membership;
    use crate::message::{SOURCE, Suspects};
    use crate::plan::Plan;
    use chappe_machine::Output;

    fn contact(port: u16) -> Contact {
        Contact {
            address: ([10, 0, 0, 1], port).into(),
            key: [0; 32],
        }
    }

    fn spread(sequence: u64, body: &[u8]) -> Spread {
        let id = EventId {
            topic: 7,
            boot: 1,
            sequence,
        };
        let list = Membership::new(7, 1, [2, 3].map(contact).to_vec()).unwrap();
        let event = Event::new(&TrustedNetwork, id, &list, true, None, body, 1_000).unwrap();
        Spread {
            first: 0,
            end: 2,
            stamp_us: 0,
            due_us: 0,
            timeout_us: 0,
            age_us: 0,
            latency_us: 0,
            send_cost_ns: 0,
            plan: Plan::Sequential,
            repair: false,
            suspects: Suspects::default(),
            event: Arc::new(event),
        }
    }

    fn node() -> Node<TrustedNetwork> {
        let config = Arc::new(Config::default());
        let mut node = Node::new(config, contact(2), TrustedNetwork, 1);
        let window = Window::default();
        node.topics.add(7, contact(1), None, window, 1).unwrap();
        node
    }

    #[test]
    fn an_event_is_delivered_once_its_window_is_stored() {
        let (mut node, mut sink) = (node(), Sink::new());
        let accepted = sink.accept(&mut node, 0, SOURCE, &spread(1, b"x"));
        let Acceptance::New {
            id, is_verified, ..
        } = accepted
        else {
            panic!("{accepted:?}");
        };
        assert!(is_verified, "the first event of a topic");
        sink.remember(&mut node, id);
        assert!(!sink.is_idle() && node.counters.delivered == 0);
        assert_eq!(sink.take_persisted(), Some(id));
        assert_eq!(sink.deliver(&mut node, id, Duration::ZERO), 0);
        let last = node.outputs.pop_back();
        let is_delivered = matches!(last, Some(Output::Event(TreeEvent::Delivered { .. })));
        assert!(is_delivered && sink.is_idle());
        let again = sink.accept(&mut node, 0, SOURCE, &spread(1, b"x"));
        assert_eq!(again, Acceptance::Known(id));
        let forged = sink.accept(&mut node, 0, 1, &spread(1, b"y"));
        assert_eq!(forged, Acceptance::Rejected);
        assert_eq!(node.topics[0].distrusted.first(), Some(&contact(3)));
    }

    #[test]
    fn an_event_whose_window_is_not_stored_is_accepted_again() {
        let (mut node, mut sink) = (node(), Sink::new());
        for _ in 0..2 {
            let accepted = sink.accept(&mut node, 0, SOURCE, &spread(1, b"x"));
            let Acceptance::New { id, .. } = accepted else {
                panic!("{accepted:?}");
            };
            sink.remember(&mut node, id);
            assert_eq!(sink.on_not_persisted(&mut node), 0);
        }
        assert_eq!(node.counters.not_stored, 2);
        assert!(node.topics[0].records.is_empty());
    }
}
