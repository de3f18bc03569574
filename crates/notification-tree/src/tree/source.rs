//! The source of topics: numbers events, plans their rounds and finds out their outcome.
//!
//! An event is spread in rounds. The first one is the tree. Sinks that are not known to have the event when a round
//! ends are tried again, in ranges that are eight times smaller each round and end as single sinks. Their
//! heads are random, so that a head that dropped a part or lied about it hardly gets it again. *Delivered*
//! rests on receipts alone.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::Instant;

use super::alarms::JobId;
use super::node::Node;
use crate::config::Choice;
use crate::coverage::Piece;
use crate::error::Error;
use crate::event::{Content, Event, EventId};
use crate::guard::{Guard, SIGNATURE_BYTES};
use crate::interface::{Outcome, TreeEvent};
use crate::job::{Part, cut, divide};
use crate::membership::{Membership, contact_bytes};
use crate::message::{SOURCE, SPREAD_HEAD_BYTES};
use crate::plan::{Plan, Splitter};
use crate::schedule::Cost;
use crate::topic::{Publisher, Record};
use crate::window::Window;
use crate::wire::DATAGRAM_BYTES_MAX;

/// Rounds of one event.
///
/// Reason: each makes the ranges eight times smaller, and 8^8 is more than any list.
pub(super) const ROUNDS_MAX: u8 = 12;

/// A round of an event, which is to be started.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) id: JobId,
    pub(super) plan: Plan,
    pub(super) parts: Vec<Part>,
    pub(super) due: Instant,
}

/// The planning of a source.
#[derive(Debug, Default)]
pub(super) struct Source {
    splitter: Splitter,
    /// The delay of the last measured plan.
    delay: Option<u32>,
}

impl Source {
    /// Makes this node the source of a topic.
    ///
    /// # Errors
    /// It is a sink of the topic, has too many topics, or knows a newer membership.
    pub(super) fn add<G>(
        &self,
        node: &mut Node<G>,
        membership: Arc<Membership>,
        boot: u32,
    ) -> Result<(), Error> {
        let topic = membership.topic();
        let known = node.topics.find(topic).map(|at| &node.topics[at]);
        if known.is_some_and(|known| known.publisher.is_none()) {
            return Err(Error::Membership("this node is a sink of the topic"));
        }
        let publisher = Publisher {
            boot,
            last_sequence: 0,
        };
        let (contact, window) = (node.contact, Window::default());
        let topics_max = node.config.topics_max;
        node.topics
            .add(topic, contact, Some(publisher), window, topics_max)?;
        // The source is not a sink: a sink at its address is another node.
        node.topics.adopt(membership, Some(SOURCE), &contact)
    }

    /// The plan for this number of sinks. A measured one follows the network when its delay has changed by half.
    fn plan(&mut self, choice: Choice, sinks: u32, cost: Cost) -> Plan {
        let cap = match choice {
            Choice::Fixed(plan) => return plan,
            Choice::Measured { cap } => cap,
        };
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let plan = Plan::measured(nanos(cost.send), nanos(cost.delay), cap);
        let Plan::Postal { delay, .. } = plan else {
            unreachable!("a measured plan is a postal one");
        };
        let is_near = |old: &u32| {
            u64::from(delay) * 2 <= u64::from(*old) * 3
                && u64::from(*old) * 2 <= u64::from(delay) * 3
        };
        let delay = self.delay.filter(is_near).unwrap_or(delay);
        self.delay = Some(delay);
        self.splitter.least_capped(sinks, delay, cap)
    }

    /// Publishes an event; without a body, a heartbeat. Returns its first round.
    ///
    /// # Errors
    /// The topic is not this source's, the body is too large, or too many events are under way.
    pub(super) fn publish<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        cost: Cost,
        topic: u64,
        body: Option<&[u8]>,
        deadline: Option<Duration>,
    ) -> Result<Round, Error> {
        let at = node.topics.find(topic).ok_or(Error::Topic { topic })?;
        let publisher = node.topics[at].publisher.ok_or(Error::Topic { topic })?;
        make_room(node, at)?;
        let known = &node.topics[at];
        let version = known.versions.last().ok_or(Error::Topic { topic })?;
        let membership = Arc::clone(&version.membership);
        let id = EventId {
            topic,
            boot: publisher.boot,
            sequence: publisher.last_sequence + 1,
        };
        let datagram_bytes = node.config.datagram_bytes.min(DATAGRAM_BYTES_MAX);
        let bytes_max = datagram_bytes.saturating_sub(SPREAD_HEAD_BYTES);
        let keyed = node.guard.authenticates();
        let fits = || fits_inline(&membership, body.map_or(0, <[u8]>::len), keyed, bytes_max);
        let content = Content {
            id,
            inline: node.config.inline && fits(),
            deadline,
            body,
        };
        let guard = &node.guard;
        let make = |memory| Event::make(memory, guard, &membership, &content, bytes_max);
        let event = node.topics.spare.events.event(make)?;
        let sinks = membership.count();
        let mut tally = node.topics.spare.tally();
        tally.restart(sinks, node.now);
        node.topics[at].publisher = Some(Publisher {
            last_sequence: id.sequence,
            ..publisher
        });
        if body.is_some() {
            node.emit(TreeEvent::Published(id));
        }
        let record = Record {
            event,
            membership: Some(membership),
            number: None,
            is_verified: true,
            taken_at: node.now,
            age_us: 0,
            parent: SOURCE,
            jobs: node.topics.spare.jobs(),
            tally: Some(tally),
        };
        let id = node.topics.push(at, record);
        let plan = self.plan(node.config.plan, sinks, cost);
        let mut parts = node.topics.spare.parts();
        divide((0, sinks), None, plan, &mut self.splitter, &mut parts);
        let due = node.now + node.config.within / 2;
        Ok(Round {
            id,
            plan,
            parts,
            due,
        })
    }

    /// Ends a round. Returns the next one for sinks of which nothing is known, or else emits the outcome.
    pub(super) fn end_round<G: Guard>(&self, node: &mut Node<G>, id: JobId) -> Option<Round> {
        let (now, within) = (node.now, node.config.within);
        let record = node.topics.record_mut(id)?;
        let plan = record.jobs.get(usize::from(id.job)).map(|job| job.hop.plan);
        let tally = record.tally.as_mut()?;
        let unknown = tally.unknown();
        let end = tally.end(within);
        let goes_on = !unknown.is_empty() && now < end && tally.round() < ROUNDS_MAX;
        let Some(plan) = plan.filter(|_| goes_on) else {
            self.conclude(node, id);
            return None;
        };
        tally.next_round();
        // Smaller ranges each round: a range with a liar in it is taken apart quickly.
        let most = tally.sinks() >> (3 * u32::from(tally.round())).min(31);
        let mut parts = node.topics.spare.parts();
        for (first, end) in unknown {
            cut(first, end, most, &mut parts);
        }
        // Half of the time that is left, or all of it for single sinks.
        let are_single = parts.iter().all(|part| part.count() == 1);
        let left = end.saturating_since(now);
        let due = if are_single { end } else { now + left / 2 };
        Some(Round {
            id,
            plan,
            parts,
            due,
        })
    }

    /// Ends an event that all sinks have. Returns how many jobs were open.
    pub(super) fn end_event<G: Guard>(&self, node: &mut Node<G>, id: JobId) -> usize {
        let open_jobs = node.topics.record_mut(id).map_or(0, |record| {
            let open = record.jobs.iter_mut().filter(|job| !job.is_done);
            open.map(|job| job.is_done = true).count()
        });
        self.conclude(node, id);
        open_jobs
    }

    /// Emits the outcome of an event.
    fn conclude<G: Guard>(&self, node: &mut Node<G>, id: JobId) {
        let Some(record) = node.topics.record_mut(id) else {
            return;
        };
        let Some(first_hop) = record.jobs.first().map(|job| job.hop) else {
            return;
        };
        let Some(mut tally) = record.tally.take() else {
            return;
        };
        let jobs = core::mem::take(&mut record.jobs);
        let unknown = tally.unknown().into_iter();
        let outcome = Outcome {
            id: record.event.id(),
            version: record.event.version(),
            plan: first_hop.plan,
            cost: Cost {
                send: Duration::from_nanos(u64::from(first_hop.send_cost_ns)),
                delay: Duration::from_micros(u64::from(first_hop.latency_us)),
            },
            sinks: tally.sinks(),
            unknown: unknown.flat_map(|(first, end)| first..end).collect(),
            failed: tally.take_failed(),
            attempts: node.config.source_attempts,
            within: node.config.within,
            took: node.now.saturating_since(tally.published()),
            lies: tally.lies(),
        };
        node.topics.spare.put_jobs(jobs);
        node.topics.spare.put_tally(tally);
        node.emit(TreeEvent::Outcome(outcome));
    }

    /// Whether the receipts of a piece are those of its sinks; counts a lie if not. Only a source can verify
    /// them: for a sink all are genuine.
    pub(super) fn is_genuine<G: Guard>(
        &self,
        node: &mut Node<G>,
        id: JobId,
        piece: &Piece,
    ) -> bool {
        if !node.guard.authenticates() {
            return true;
        }
        let Some(record) = node.topics.record_mut(id) else {
            return false;
        };
        let Some(tally) = record.tally.as_mut() else {
            return true;
        };
        let Some(membership) = record.membership.as_ref() else {
            return false;
        };
        let Some(expected) = receipts(&mut node.guard, membership, record.event.id(), piece) else {
            return false;
        };
        let is_genuine = expected == piece.receipts;
        if !is_genuine {
            node.counters.lies += 1;
            tally.count_lie();
        }
        is_genuine
    }
}

/// The receipts of the sinks of a piece, failed ones apart.
fn receipts<G: Guard>(
    guard: &mut G,
    membership: &Membership,
    event: EventId,
    piece: &Piece,
) -> Option<u128> {
    let mut failed = piece.failed.iter().copied().peekable();
    let mut sum = 0;
    for sink in piece.first..piece.end {
        if failed.next_if_eq(&sink).is_none() {
            let contact = membership.sink(sink)?;
            sum ^= guard.receipt(&contact.key, event, sink)?;
        }
    }
    Some(sum)
}

/// Drops the oldest event of a topic with `history` ones.
///
/// # Errors
/// The oldest one is under way.
fn make_room<G>(node: &mut Node<G>, at: usize) -> Result<(), Error> {
    let history = node.config.history.max(1);
    let records = &node.topics[at].records;
    if records.len() < history {
        return Ok(());
    }
    if records.front().is_some_and(|record| record.tally.is_some()) {
        return Err(Error::Full {
            what: "event under way",
            most: history,
        });
    }
    // An event with an outcome has no job that could be open.
    node.topics.forget_oldest(at);
    Ok(())
}

/// Whether the list fits into an event with a body of this size.
fn fits_inline(membership: &Membership, body: usize, keyed: bool, bytes_max: usize) -> bool {
    let head = 30 + 5 + if keyed { SIGNATURE_BYTES } else { 0 };
    // Each sink has more than one byte.
    let sinks = membership.sinks().iter().take(bytes_max);
    let list = sinks.map(|sink| contact_bytes(sink.address.is_ipv4(), keyed));
    head + list.sum::<usize>() + body <= bytes_max
}

#[cfg(test)]
mod tests {
    use super::super::hops::Hops;
    use super::*;
    use crate::config::Config;
    use crate::guard::TrustedNetwork;
    use crate::membership::Contact;

    fn contact(port: u16) -> Contact {
        Contact {
            address: ([10, 0, 0, 1], port).into(),
            key: [0; 32],
        }
    }

    fn cost(delay_us: u64) -> Cost {
        Cost {
            send: Duration::from_micros(1),
            delay: Duration::from_micros(delay_us),
        }
    }

    #[test]
    fn events_are_numbered_and_rounds_cover_the_unknown() {
        let config = Arc::new(Config::default());
        let mut node = Node::new(config, contact(1), TrustedNetwork, 1);
        let mut source = Source::default();
        let sinks = (2..18).map(contact).collect();
        let list = Arc::new(Membership::new(7, 1, sinks).unwrap());
        source.add(&mut node, list, 3).unwrap();
        let round = source.publish(&mut node, cost(10), 7, Some(b"x"), None);
        let round = round.unwrap();
        let ranges = |round: &Round| {
            let range = |part: &Part| (part.first, part.end);
            round.parts.iter().map(range).collect::<Vec<_>>()
        };
        assert_eq!(round.parts.iter().map(Part::count).sum::<u32>(), 16);
        let record = node.topics.record_mut(round.id).unwrap();
        assert_eq!((record.event.id().boot, record.event.id().sequence), (3, 1));
        let tally = record.tally.as_mut().unwrap();
        tally.cover(&Piece {
            first: 0,
            end: 12,
            failed: Vec::new(),
            receipts: 0,
        });
        let Round {
            id,
            plan,
            parts,
            due,
        } = round;
        let mut hops = Hops::new(&node.config);
        hops.start_round(&mut node, id, plan, parts, due);
        let next = source.end_round(&mut node, id).expect("another round");
        assert_eq!(ranges(&next), [(12, 14), (14, 16)]);
        assert_eq!(source.end_event(&mut node, id), 1);
        assert!(node.topics.record(id).unwrap().tally.is_none());
        let unknown = source.publish(&mut node, cost(10), 8, Some(b"x"), None);
        assert_eq!(unknown.err(), Some(Error::Topic { topic: 8 }));
    }

    #[test]
    fn the_plan_changes_when_the_delay_has_changed_by_half() {
        let mut source = Source::default();
        let mut delay =
            |delay_us| match source.plan(Choice::Measured { cap: 8 }, 1_000, cost(delay_us)) {
                Plan::Postal { delay, .. } => delay,
                plan => panic!("{plan:?}"),
            };
        assert_eq!(
            [100, 140, 70, 160, 120, 100].map(&mut delay),
            [100, 100, 100, 160, 160, 100]
        );
    }
}
