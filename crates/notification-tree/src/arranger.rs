//! A source's lists of sinks in one of the paper's two orders, and what it measures for them.
//!
//! The paper's source arranges its list before it notifies: by criticality, so that the sinks that matter most
//! have the event first, or by reliability, so that those on which others depend are there. How critical a
//! sink is the caller says. How reliable it is follows from what became of earlier events: it answered or not.
//!
//! Deliberately absent: when a list is made anew. Each is a version, which sinks have to get.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::config::{Choice, Config};
use crate::interface::Outcome;
use crate::membership::{Contact, Membership};
use crate::plan::{Plan, Splitter};
use crate::schedule::{Cost, Order, arrange};

/// Sinks whose reliability is remembered; of more some are as new.
///
/// Reason: about 100 bytes each.
const REMEMBERED_MAX: usize = 131_072;
/// The reliability of a sink that was never asked: behind who proved itself, before who failed.
const UNKNOWN: u16 = u16::MAX / 2;
/// What an event counts for: an eighth, so that 16 answers make a new sink one of the most reliable, and
/// one that fails is as good as before after as many.
const WEIGHT: u16 = 8;
/// Reliabilities within a sixteenth are alike, and such sinks stay as listed.
const STEP: u16 = 1 << 12;

/// Arranges the lists of one source.
///
/// ```
/// use chappe_notification_tree::{Arranger, Choice, Config, Contact, Plan, schedule::Order};
/// let config = Config { plan: Choice::Fixed(Plan::Sequential), ..Config::default() };
/// let sink = |port: u16| Contact { address: ([127, 0, 0, 1], port).into(), key: [0; 32] };
/// let arranger = Arranger::new(Order::Criticality, &config);
/// let list = arranger.arrange(&[(sink(1), 0), (sink(2), 0), (sink(3), 9)]);
/// assert_eq!(list, [sink(3), sink(1), sink(2)]);
/// ```
#[derive(Debug, Clone)]
pub struct Arranger {
    order: Order,
    choice: Choice,
    /// As the last event was divided.
    plan: Plan,
    cost: Cost,
    /// The share of events that each answered, of 65,535; the latest count most.
    reliability: BTreeMap<Contact, u16>,
}

impl Arranger {
    /// Begins with the plan of `config`, until an outcome says what was measured.
    #[must_use]
    pub fn new(order: Order, config: &Config) -> Self {
        let cost = Cost {
            send: config.send_cost,
            delay: config.latency,
        };
        let plan = match config.plan {
            Choice::Fixed(plan) => plan,
            Choice::Measured { cap } => {
                let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
                Plan::measured(nanos(cost.send), nanos(cost.delay), cap)
            }
        };
        Self {
            order,
            choice: config.plan,
            plan,
            cost,
            reliability: BTreeMap::new(),
        }
    }

    /// Takes what became of an event or a heartbeat; `list` is the version that it went to.
    pub fn learn(&mut self, list: &Membership, outcome: &Outcome) {
        if list.version() != outcome.version || list.topic() != outcome.id.topic {
            return;
        }
        (self.plan, self.cost) = (outcome.plan, outcome.cost);
        if self.order != Order::Reliability {
            return;
        }
        for (number, sink) in (0..).zip(list.sinks()) {
            let known = self.reliability.entry(*sink).or_insert(UNKNOWN);
            let answered = if outcome.delivered(number) {
                u16::MAX
            } else {
                0
            };
            *known = *known - *known / WEIGHT + answered / WEIGHT;
            if self.reliability.len() > REMEMBERED_MAX {
                // Sinks come and go; the smallest address is as good as any to forget.
                self.reliability.pop_first();
            }
        }
    }

    /// The sinks in the order of the list, each given with how critical it is (larger is more); equals
    /// stay as given. Costs as much as sorting them.
    #[must_use]
    pub fn arrange(&self, sinks: &[(Contact, u8)]) -> Vec<Contact> {
        let rank = |(contact, criticality): &(Contact, u8)| match self.order {
            Order::AsListed => 0,
            Order::Criticality => u32::from(*criticality),
            Order::Reliability => {
                let known = self.reliability.get(contact).copied();
                u32::from(known.unwrap_or(UNKNOWN) / STEP)
            }
        };
        let ranks: Vec<u32> = sinks.iter().map(rank).collect();
        let places = arrange(self.order, self.plan_for(sinks.len()), &ranks, self.cost);
        let sink = |number: u32| sinks[number as usize].0;
        places.into_iter().map(sink).collect()
    }

    /// How the source divides so many sinks: its cap is the list's, not that of the list before.
    fn plan_for(&self, sinks: usize) -> Plan {
        match (self.choice, self.plan) {
            (Choice::Measured { cap }, Plan::Postal { delay, .. }) => {
                let sinks = u32::try_from(sinks).unwrap_or(u32::MAX);
                Splitter::default().least_capped(sinks, delay, cap)
            }
            (_, plan) => plan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;

    fn sinks(count: u16) -> Vec<(Contact, u8)> {
        let sink = |number| Contact {
            address: ([10, 0, 0, 1], 1 + number).into(),
            key: [0; 32],
        };
        (0..count).map(|number| (sink(number), 0)).collect()
    }

    /// What became of an event on this list, of which the sinks at these addresses had nothing.
    fn outcome(list: &Membership, plan: Plan, failed: &[Contact]) -> Outcome {
        let numbers = failed.iter().filter_map(|sink| list.number(sink));
        let mut failed: Vec<u32> = numbers.collect();
        failed.sort_unstable();
        Outcome {
            id: EventId {
                topic: 1,
                boot: 1,
                sequence: 1,
            },
            version: list.version(),
            plan,
            cost: Cost {
                send: Duration::from_micros(10),
                delay: Duration::from_micros(30),
            },
            sinks: list.count(),
            failed,
            unknown: Vec::new(),
            attempts: 6,
            within: Duration::from_secs(5),
            took: Duration::ZERO,
            lies: 0,
        }
    }

    #[test]
    fn who_failed_becomes_a_leaf_and_who_answers_again_a_head() {
        let config = Config {
            plan: Choice::Fixed(Plan::TwoHalves),
            ..Config::default()
        };
        let mut arranger = Arranger::new(Order::Reliability, &config);
        let sinks = sinks(14);
        let first = arranger.arrange(&sinks);
        // Two halves of 14: heads of others are at 0, 1, 4, 7, 8 and 11.
        let heads = [0, 1, 4, 7, 8, 11];
        let bad = heads.map(|place| first[place]);
        let mut version = 1;
        let mut event = |arranger: &mut Arranger, failed: &[Contact]| {
            let listed = arranger.arrange(&sinks);
            let list = Membership::new(1, version, listed).unwrap();
            version += 1;
            arranger.learn(&list, &outcome(&list, Plan::TwoHalves, failed));
        };
        event(&mut arranger, &bad);
        let list = arranger.arrange(&sinks);
        assert!(
            heads.iter().all(|place| !bad.contains(&list[*place])),
            "{list:?}"
        );
        assert_eq!(list.len(), 14, "nobody is left out");
        for _ in 0..40 {
            event(&mut arranger, &[]);
        }
        assert_eq!(arranger.arrange(&sinks), first, "all is forgiven");
    }

    #[test]
    fn the_list_follows_the_plan_that_is_used_and_no_outcome_of_another_list() {
        let config = Config {
            plan: Choice::Fixed(Plan::Sequential),
            ..Config::default()
        };
        let mut arranger = Arranger::new(Order::Criticality, &config);
        let mut sinks = sinks(14);
        for place in [3, 5, 9] {
            sinks[place].1 = 200;
        }
        let critical = [3, 5, 9].map(|place| sinks[place].0);
        assert_eq!(arranger.arrange(&sinks)[..3], critical);
        let list = Membership::new(1, 7, arranger.arrange(&sinks)).unwrap();
        let mut other = outcome(&list, Plan::TwoHalves, &[]);
        other.version = 6;
        arranger.learn(&list, &other);
        assert_eq!(arranger.arrange(&sinks)[..3], critical);
        arranger.learn(&list, &outcome(&list, Plan::TwoHalves, &[]));
        // By two halves the event is first at 0, then at 7, then at 1.
        let listed = arranger.arrange(&sinks);
        assert_eq!([listed[0], listed[7], listed[1]], critical);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut arranger = Arranger::new(Order::Reliability, &Config::default());
        let count = REMEMBERED_MAX as u32 + 5;
        let sink = |number: u32| Contact {
            address: (core::net::Ipv4Addr::from(0x0A00_0001 + number), 9).into(),
            key: [0; 32],
        };
        let list = Membership::new(1, 1, (0..count).map(sink).collect()).unwrap();
        arranger.learn(&list, &outcome(&list, Plan::Sequential, &[]));
        assert_eq!(arranger.reliability.len(), REMEMBERED_MAX);
    }
}
