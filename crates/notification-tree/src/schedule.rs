//! The cost of a plan on a network without failures, and the best position of each sink.
//!
//! The model: a node needs [`Cost::send`] (`o`) for each send, one after the other. The receiver has handled the
//! event [`Cost::delay`] (`L` and the handling) after the end of the send. The source starts at 0.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::str::FromStr;
use core::time::Duration;

use crate::plan::{Plan, Splitter};

/// The two cost figures of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The time a node needs for one send: `o`.
    pub send: Duration,
    /// From the end of a send until the event is handled at the other end: `L` and the handling.
    pub delay: Duration,
}

/// The time at which each sink has the event, by its index in the list.
///
/// Answers cost nothing in this model, except with [`Plan::SequentialWaiting`], where each send waits for the
/// previous answer: `2·(o + L)` a sink.
///
/// ```
/// use chappe_notification_tree::{Plan, schedule::{Cost, arrivals}};
/// use std::time::Duration;
/// let cost = Cost { send: Duration::from_micros(10), delay: Duration::from_micros(30) };
/// let of = |plan| arrivals(plan, 18, cost).into_iter().max().unwrap().as_micros();
/// assert_eq!(of(Plan::Sequential), 18 * 10 + 30);
/// assert_eq!(of(Plan::TwoHalves), 180);
/// assert_eq!(of(Plan::measured(10, 30, 128)), 110);
/// ```
#[must_use]
pub fn arrivals(plan: Plan, sinks: u32, cost: Cost) -> Vec<Duration> {
    walk(plan, sinks, cost)
        .into_iter()
        .map(|(at, _)| at)
        .collect()
}

/// The time at which the last sink has the event.
#[must_use]
pub fn completion(plan: Plan, sinks: u32, cost: Cost) -> Duration {
    let last = arrivals(plan, sinks, cost).into_iter().max();
    last.unwrap_or_default()
}

/// For each index its arrival and the number of sinks that depend on it, itself included.
fn walk(plan: Plan, sinks: u32, cost: Cost) -> Vec<(Duration, u32)> {
    let mut places = vec![(Duration::ZERO, 1); sinks as usize];
    let mut splitter = Splitter::default();
    // Ranges still to be divided: first index, size, start of its owner.
    let mut open = vec![(0u32, sinks, Duration::ZERO)];
    while let Some((mut first, number, begins)) = open.pop() {
        let mut sent = begins;
        for size in splitter.split(plan, number) {
            sent += cost.send;
            let arrives = sent + cost.delay;
            places[first as usize] = (arrives, *size);
            open.push((first + 1, size - 1, arrives));
            first += size;
            if plan == Plan::SequentialWaiting {
                sent = arrives + cost.send + cost.delay;
            }
        }
    }
    places
}

/// The order of a list: the paper's two orders, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As listed.
    #[default]
    AsListed,
    /// The most critical sinks are where the event arrives first.
    Criticality,
    /// The most reliable sinks are where most others depend on them.
    Reliability,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::AsListed, Self::Criticality, Self::Reliability];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsListed => "as-listed",
            Self::Criticality => "criticality",
            Self::Reliability => "reliability",
        }
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|order| order.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown order {name:?}; known: {names}")
        })
    }
}

/// Arranges sinks: returns for each index of the list the number of the sink that belongs there.
///
/// `ranks` holds the criticality or reliability of each sink (larger is more); equals keep their order. The
/// result is used for a membership version, so it is computed when sinks or ranks change, not for each event.
#[must_use]
pub fn arrange(order: Order, plan: Plan, ranks: &[u32], cost: Cost) -> Vec<u32> {
    // A membership has at most u32::MAX sinks; further ones keep their order at the end.
    let sinks = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    let mut by_rank: Vec<u32> = (0..sinks).collect();
    if order == Order::AsListed {
        return by_rank;
    }
    by_rank.sort_by_key(|sink| Reverse(ranks[*sink as usize]));
    let worth = walk(plan, sinks, cost);
    let mut places: Vec<u32> = (0..sinks).collect();
    match order {
        Order::AsListed => {}
        Order::Criticality => places.sort_by_key(|place| worth[*place as usize].0),
        Order::Reliability => places.sort_by_key(|place| Reverse(worth[*place as usize].1)),
    }
    let mut arranged = vec![0; ranks.len()];
    for (place, sink) in places.into_iter().zip(by_rank) {
        arranged[place as usize] = sink;
    }
    arranged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exact optimum by dynamic programming over every division, in send costs.
    ///
    /// `of[n]`: the least time to reach `n` sinks; `from[i][n]`: the same if the `i`-th send is next.
    /// Independent of `F(t)`.
    fn optimum(sinks: usize, delay: u64, cap: usize) -> Vec<u64> {
        let mut of = vec![0u64; sinks + 1];
        for n in 1..=sinks {
            // from[i] for the numbers up to n, from the last allowed send to the first.
            let mut from = vec![u64::MAX; n + 1];
            from[0] = 0;
            for send in (1..=cap.min(n)).rev() {
                let mut next = from.clone();
                for (left, best) in next.iter_mut().enumerate().skip(1) {
                    // `of[n]` itself is not needed: a head is one of its part's sinks.
                    *best = (1..=left)
                        .map(|size| (send as u64 + delay + of[size - 1]).max(from[left - size]))
                        .min()
                        .unwrap_or(u64::MAX);
                }
                from = next;
            }
            of[n] = from[n];
        }
        of
    }

    #[test]
    fn the_postal_plan_is_the_exact_optimum() {
        for delay in [0, 1, 2, 3, 7, 17] {
            for cap in [1, 2, 3, 5, 64] {
                let exact = optimum(40, delay, cap);
                for sinks in 1..=40u32 {
                    let plan = Plan::Postal {
                        delay: u32::try_from(delay).unwrap(),
                        cap: u16::try_from(cap).unwrap(),
                    };
                    let cost = Cost {
                        send: Duration::from_nanos(1),
                        delay: Duration::from_nanos(delay),
                    };
                    let took = completion(plan, sinks, cost).as_nanos();
                    let best = u128::from(exact[sinks as usize]);
                    assert_eq!(took, best, "delay {delay} cap {cap} sinks {sinks}");
                }
            }
        }
    }

    #[test]
    fn the_model_gives_the_known_formulas() {
        let cost = Cost {
            send: Duration::from_nanos(1),
            delay: Duration::from_nanos(4),
        };
        let took = |plan, sinks| completion(plan, sinks, cost).as_nanos();
        for sinks in 1..300u32 {
            let n = u128::from(sinks);
            assert_eq!(took(Plan::Sequential, sinks), n + 4);
            assert_eq!(took(Plan::SequentialWaiting, sinks), n * 10 - 5);
            // k levels of two halves reach 2^(k+1) - 2 sinks in k·(2·o + D).
            let levels = (n + 2).next_power_of_two().ilog2() - 1;
            assert!(took(Plan::TwoHalves, sinks) <= u128::from(levels) * 6);
        }
        assert_eq!(took(Plan::TwoHalves, 254), 7 * 6);
        // 2 µs a send, 30 µs of latency and 2 µs of handling: computed by another program.
        let cost = Cost {
            send: Duration::from_micros(2),
            delay: Duration::from_micros(32),
        };
        let of = |plan| completion(plan, 1_000, cost).as_micros();
        assert_eq!(of(Plan::measured(2, 32, 128)), 128);
        assert_eq!(of(Plan::TwoHalves), 322);
        assert_eq!(of(Plan::Binomial), 308);
        assert_eq!(of(Plan::Kary(10)), 152);
    }

    #[test]
    fn the_critical_come_first_and_the_reliable_carry_most() {
        let cost = Cost {
            send: Duration::from_micros(10),
            delay: Duration::from_micros(30),
        };
        let ranks: Vec<u32> = (0..40).map(|sink| u32::from(sink % 7 == 3)).collect();
        for plan in [Plan::TwoHalves, Plan::Binomial, Plan::measured(10, 30, 8)] {
            let worth = walk(plan, 40, cost);
            for order in [Order::Criticality, Order::Reliability] {
                let arranged = arrange(order, plan, &ranks, cost);
                let mut sorted = arranged.clone();
                sorted.sort_unstable();
                assert_eq!(
                    sorted,
                    (0..40).collect::<Vec<_>>(),
                    "every sink has one index"
                );
                let of = |rank| {
                    let places =
                        (0..40usize).filter(|place| ranks[arranged[*place] as usize] == rank);
                    places.map(|place| worth[place]).collect::<Vec<_>>()
                };
                if order == Order::Criticality {
                    assert!(
                        of(1).iter().max_by_key(|it| it.0).unwrap().0
                            <= of(0).iter().min_by_key(|it| it.0).unwrap().0
                    );
                } else {
                    assert!(
                        of(1).iter().min_by_key(|it| it.1).unwrap().1
                            >= of(0).iter().max_by_key(|it| it.1).unwrap().1
                    );
                }
            }
        }
        assert_eq!(
            arrange(Order::AsListed, Plan::TwoHalves, &[1, 9], cost),
            [0, 1]
        );
    }
}
