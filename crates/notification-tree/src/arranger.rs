//! Arranges a source's list of sinks in one of the paper's two orders, and measures reliability for it.
//!
//! The paper's source arranges its list before it notifies: by criticality, so that the most important sinks
//! receive the event first, or by reliability, so that the heads of large parts are likely to answer. The
//! caller supplies the criticality. Reliability is measured: the share of recent events that a sink answered.
//!
//! Out of scope: when to make a new list. Each list is a membership version, which the sinks must receive.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::config::{Choice, Config};
use crate::interface::Outcome;
use crate::membership::{Contact, Membership};
use crate::plan::{Plan, Splitter};
use crate::schedule::{Cost, Order, arrange};

/// Sinks whose reliability is remembered; the others rank as unknown.
///
/// Reason: about 100 bytes each.
const REMEMBERED_SINKS_MAX: usize = 131_072;
/// The reliability of a sink that was never asked: after proven sinks, before failed ones.
const UNKNOWN_RELIABILITY: u16 = u16::MAX / 2;
/// The divisor of an event's weight. With an eighth, 16 answers make a new sink one of the most reliable,
/// and a sink that failed once recovers its rank after as many.
const WEIGHT_DIVISOR: u16 = 8;
/// Reliabilities within a sixteenth rank equal; equal sinks keep the order of the list.
const RANK_STEP: u16 = 1 << 12;

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
    /// The plan of the last event.
    plan: Plan,
    cost: Cost,
    /// The share of events that each sink answered, of 65,535; recent events count most.
    reliability: BTreeMap<Contact, u16>,
}

impl Arranger {
    /// Starts with the plan of `config`, until an outcome brings measurements.
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

    /// Learns from the outcome of an event or a heartbeat; `list` is the version that it was sent to.
    pub fn learn(&mut self, list: &Membership, outcome: &Outcome) {
        if list.version() != outcome.version || list.topic() != outcome.id.topic {
            return;
        }
        (self.plan, self.cost) = (outcome.plan, outcome.cost);
        if self.order != Order::Reliability {
            return;
        }
        for (number, sink) in (0..).zip(list.sinks()) {
            let known = self.reliability.entry(*sink).or_insert(UNKNOWN_RELIABILITY);
            let answered = if outcome.delivered(number) {
                u16::MAX
            } else {
                0
            };
            *known = *known - *known / WEIGHT_DIVISOR + answered / WEIGHT_DIVISOR;
            if self.reliability.len() > REMEMBERED_SINKS_MAX {
                // Any sink can be forgotten, so the one with the smallest address is.
                self.reliability.pop_first();
            }
        }
    }

    /// The sinks in the order of the list. Each is given with its criticality (larger is more critical);
    /// equals keep their order. Costs as much as sorting them.
    #[must_use]
    pub fn arrange(&self, sinks: &[(Contact, u8)]) -> Vec<Contact> {
        let rank = |(contact, criticality): &(Contact, u8)| match self.order {
            Order::AsListed => 0,
            Order::Criticality => u32::from(*criticality),
            Order::Reliability => {
                let known = self.reliability.get(contact).copied();
                u32::from(known.unwrap_or(UNKNOWN_RELIABILITY) / RANK_STEP)
            }
        };
        let ranks: Vec<u32> = sinks.iter().map(rank).collect();
        let places = arrange(self.order, self.plan_for(sinks.len()), &ranks, self.cost);
        let sink = |number: u32| sinks[number as usize].0;
        places.into_iter().map(sink).collect()
    }

    /// The source's plan for this number of sinks. A measured plan takes its cap from this list, not the previous one.
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

    /// The outcome of an event on this list that the given sinks did not receive.
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
    fn failed_sinks_become_leaves_until_they_answer() {
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
        assert_eq!(list.len(), 14, "every sink is listed");
        for _ in 0..40 {
            event(&mut arranger, &[]);
        }
        assert_eq!(
            arranger.arrange(&sinks),
            first,
            "all sinks have recovered their rank"
        );
    }

    #[test]
    fn the_list_follows_the_plan_of_its_own_outcomes() {
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
        // With two halves the event arrives first at 0, then at 7, then at 1.
        let listed = arranger.arrange(&sinks);
        assert_eq!([listed[0], listed[7], listed[1]], critical);
    }

    #[test]
    fn remembered_sinks_are_bounded() {
        let mut arranger = Arranger::new(Order::Reliability, &Config::default());
        let count = REMEMBERED_SINKS_MAX as u32 + 5;
        let sink = |number: u32| Contact {
            address: (core::net::Ipv4Addr::from(0x0A00_0001 + number), 9).into(),
            key: [0; 32],
        };
        let list = Membership::new(1, 1, (0..count).map(sink).collect()).unwrap();
        arranger.learn(&list, &outcome(&list, Plan::Sequential, &[]));
        assert_eq!(arranger.reliability.len(), REMEMBERED_SINKS_MAX);
    }
}
