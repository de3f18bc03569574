//! Plans: how a node divides the sinks to be notified among the heads it sends to.
//!
//! A plan is a rule that is the same at every node. It divides `n` sinks into parts; the first sink of a part
//! becomes its *head*, receives the event and the part, and does the same with the rest of it. The cost of a
//! plan follows from two figures of the network, `o` (the time a node needs for one send) and `L` (the time
//! until the event has arrived and is handled); [`crate::schedule`] computes it.
//!
//! Sources: two halves are the paper's plan ("An Optimized WS-Eventing for Large-Scale Networks"); the
//! optimum is that of the postal model (Bar-Noy and Kipnis, 1992), here with a fan-out cap.

use alloc::vec::Vec;

/// The largest delay of a postal plan, in send costs: above it another level costs nothing.
pub const DELAY_MAX: u32 = 1 << 20;
/// The default fan-out cap.
///
/// Reason: each head answers, and a UDP socket's default receive buffer holds about 256 short
/// datagrams.
pub const CAP: u16 = 128;

/// A smaller cap may make an event slower by this fraction of its time, so that heads answer sooner.
///
/// Reason: 5 % more time without failures halves it with them (docs/explanation/notification-tree.md).
const SLOWDOWN_DIVISOR: u64 = 20;

/// A rule that divides sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// The source notifies each sink itself, without waiting for answers.
    Sequential,
    /// The source notifies each sink itself, after the answer of the previous one: plain WS-Eventing.
    SequentialWaiting,
    /// The paper's plan: one head for each half.
    TwoHalves,
    /// Repeatedly gives half of the remaining sinks to a head.
    Binomial,
    /// This number of parts, of equal size.
    Kary(u16),
    /// The optimum of the postal model.
    Postal {
        /// The time until a sent event is received and handled, in send costs: `L / o`, rounded.
        delay: u32,
        /// The largest number of heads that one node sends to; at least 1.
        cap: u16,
    },
}

impl Plan {
    /// The postal plan for a measured send cost and latency, both in the same unit.
    #[must_use]
    pub fn measured(send_cost: u64, latency: u64, cap: u16) -> Self {
        let send_cost = send_cost.max(1);
        let delay = (latency.saturating_add(send_cost / 2)) / send_cost;
        Self::Postal {
            delay: u32::try_from(delay).unwrap_or(DELAY_MAX).min(DELAY_MAX),
            cap: cap.max(1),
        }
    }

    /// Its name in `chappe-lab bench notify` and `chappe-lab sim tree`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::SequentialWaiting => "sequential-waiting",
            Self::TwoHalves => "two-halves",
            Self::Binomial => "binomial",
            Self::Kary(_) => "k-ary",
            Self::Postal { .. } => "postal",
        }
    }

    /// Divides `sinks` sinks: writes the sizes of the parts to `sizes`, in the order of sending.
    ///
    /// Every size is at least 1, and their sum is `sinks`.
    fn split(self, sinks: u32, sizes: &mut Vec<u32>, totals: &mut Vec<u32>) {
        sizes.clear();
        if sinks == 0 {
            return;
        }
        match self {
            Self::Sequential | Self::SequentialWaiting => {
                sizes.resize(sinks as usize, 1);
            }
            Self::TwoHalves => {
                sizes.push(sinks.div_ceil(2));
                sizes.push(sinks / 2);
                sizes.retain(|size| *size > 0);
            }
            Self::Binomial => {
                let mut left = sinks;
                while left > 0 {
                    let size = left.div_ceil(2);
                    sizes.push(size);
                    left -= size;
                }
            }
            Self::Kary(parts) => {
                let parts = u32::from(parts.max(1)).min(sinks);
                let (size, longer) = (sinks / parts, sinks % parts);
                sizes.extend((0..parts).map(|part| size + u32::from(part < longer)));
            }
            Self::Postal { delay, cap } => {
                postal(sinks, delay, cap.max(1), sizes, totals);
            }
        }
    }
}

/// Divides sinks; its buffers are reused.
#[derive(Debug, Clone, Default)]
pub struct Splitter {
    sizes: Vec<u32>,
    totals: Vec<u32>,
    /// The last fan-out query and its result: the parts of one job are often alike.
    fan_out: Option<(Plan, u32, u32)>,
    /// The last least-cap query and its result, which changes with the list or the network.
    least_cap: Option<((u32, u32, u16), u16)>,
}

/// Entries that a [`Splitter`] retains between divisions.
const RETAINED_ENTRIES: usize = 1_024;

impl Splitter {
    /// The sizes of the parts, in the order of sending; each at least 1, together `sinks`.
    ///
    /// ```
    /// use chappe_notification_tree::{Plan, Splitter};
    /// let mut splitter = Splitter::default();
    /// assert_eq!(splitter.split(Plan::TwoHalves, 7), [4, 3]);
    /// assert_eq!(splitter.split(Plan::Binomial, 7), [4, 2, 1]);
    /// assert_eq!(splitter.split(Plan::Kary(3), 7), [3, 2, 2]);
    /// // With a long delay, sending to three sinks directly is fastest.
    /// assert_eq!(splitter.split(Plan::Postal { delay: 10, cap: 128 }, 3), [1, 1, 1]);
    /// assert_eq!(splitter.split(Plan::Postal { delay: 0, cap: 128 }, 7), [4, 2, 1]);
    /// ```
    pub fn split(&mut self, plan: Plan, sinks: u32) -> &[u32] {
        plan.split(sinks, &mut self.sizes, &mut self.totals);
        &self.sizes
    }

    /// The postal plan of a source that measures, with the least sufficient cap.
    pub(crate) fn least_capped(&mut self, sinks: u32, delay: u32, cap: u16) -> Plan {
        let cap = self.least_cap(sinks, delay, cap);
        Plan::Postal { delay, cap }
    }

    /// The least cap with which a postal plan takes at most a [`SLOWDOWN_DIVISOR`]th longer than with `cap`.
    ///
    /// A head answers after it has sent. With fewer sends its parent knows sooner that it is alive, and can
    /// take over the part of a silent head sooner.
    fn least_cap(&mut self, sinks: u32, delay: u32, cap: u16) -> u16 {
        let cap = cap.max(1);
        if sinks <= u32::from(cap).min(delay.saturating_add(1)) {
            return cap;
        }
        if let Some((_, least)) = self.least_cap.filter(|it| it.0 == (sinks, delay, cap)) {
            return least;
        }
        let (sizes, totals) = (&mut self.sizes, &mut self.totals);
        // The plan's time in send costs, without the last delay.
        let mut steps = |cap| {
            sizes.clear();
            postal(sinks, delay, cap, sizes, totals)
        };
        let best = steps(cap);
        let most = best + (best + u64::from(delay)) / SLOWDOWN_DIVISOR;
        let (mut low, mut least) = (1, cap);
        while low < least {
            let middle = low + (least - low) / 2;
            match steps(middle) <= most {
                true => least = middle,
                false => low = middle + 1,
            }
        }
        self.shrink();
        self.least_cap = Some(((sinks, delay, cap), least));
        least
    }

    /// The number of heads to which a node with this number of sinks sends.
    pub(crate) fn fan_out(&mut self, plan: Plan, sinks: u32) -> u32 {
        let (last_plan, last_sinks, fan_out) = self.fan_out.unwrap_or((plan, 0, 0));
        if (last_plan, last_sinks) == (plan, sinks) {
            return fan_out;
        }
        let fan_out = u32::try_from(self.split(plan, sinks).len()).unwrap_or(u32::MAX);
        self.shrink();
        self.fan_out = Some((plan, sinks, fan_out));
        fan_out
    }

    /// Frees the memory of a large division.
    pub(crate) fn shrink(&mut self) {
        for buffer in [&mut self.sizes, &mut self.totals] {
            if buffer.capacity() > RETAINED_ENTRIES {
                *buffer = Vec::new();
            }
        }
    }
}

/// The postal optimum: fills `sizes` with the parts, and returns the smallest number of send costs,
/// without the last delay, in which all sinks can be reached.
///
/// `F(t)` nodes have the event `t` send costs after the first: `F(t) = 1` for `t <= d`, then
/// `F(t) = 1 + F(t-1-d) + ... + F(t-c-d)`, because a head that gets the `i`-th send has the event at
/// `i + d`. `totals[k - 1]` is `F(d + k)`.
///
/// With a delay of at least `generations * cap`, all heads of one generation have sent before the next one
/// starts. A longer delay only moves the generations apart and leaves the parts the same. The delay comes from
/// the network, so the shorter one is used, which bounds the sum.
fn postal(sinks: u32, delay: u32, cap: u16, sizes: &mut Vec<u32>, totals: &mut Vec<u32>) -> u64 {
    let cap = u32::from(cap);
    if sinks <= cap.min(delay.saturating_add(1)) {
        // No head could help before the last send.
        sizes.resize(sinks as usize, 1);
        return u64::from(sinks);
    }
    if cap == 1 {
        sizes.push(sinks);
        return 1 + u64::from(sinks - 1) * (u64::from(delay) + 1);
    }
    let generations = generations(sinks, cap);
    let summed = delay.min(generations.saturating_mul(cap));
    sum(sinks, summed, cap, totals);
    let steps = totals.len() as u32;
    let mut left = sinks;
    for send in 1..=cap.min(steps) {
        let size = at(totals, summed, steps - send).min(left);
        sizes.push(size);
        left -= size;
        if left == 0 {
            break;
        }
    }
    debug_assert_eq!(left, 0, "F(t) counts all nodes that the heads reach");
    u64::from(steps) + u64::from(generations - 1) * u64::from(delay - summed)
}

/// The depth of the smallest full tree with `cap` children per node that holds this number of sinks; `cap` is at
/// least 2.
fn generations(sinks: u32, cap: u32) -> u32 {
    let (mut depth, mut width, mut reached) = (0, 1u64, 0);
    while reached < u64::from(sinks) {
        depth += 1;
        width *= u64::from(cap);
        reached += width;
    }
    depth
}

/// `F(time)`.
fn at(totals: &[u32], delay: u32, time: u32) -> u32 {
    match time.checked_sub(delay) {
        None | Some(0) => 1,
        Some(after) => totals[after as usize - 1],
    }
}

/// Sums `F` until it reaches the sinks and the source.
fn sum(sinks: u32, delay: u32, cap: u32, totals: &mut Vec<u32>) {
    let wanted = sinks.saturating_add(1);
    totals.clear();
    let mut reached = 0u32; // By all heads.
    for step in 1.. {
        reached = reached.saturating_add(at(totals, delay, step - 1));
        if step > cap {
            reached -= at(totals, delay, step - 1 - cap).min(reached);
        }
        let total = reached.saturating_add(1);
        totals.push(total);
        if total >= wanted {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sizes(plan: Plan, sinks: u32) -> Vec<u32> {
        Splitter::default().split(plan, sinks).to_vec()
    }

    #[test]
    fn every_plan_divides_all_sinks() {
        let plans = [
            Plan::Sequential,
            Plan::SequentialWaiting,
            Plan::TwoHalves,
            Plan::Binomial,
            Plan::Kary(1),
            Plan::Kary(7),
            Plan::Postal { delay: 0, cap: 1 },
            Plan::Postal { delay: 3, cap: 2 },
            Plan::Postal { delay: 40, cap: 8 },
            Plan::Postal {
                delay: 500,
                cap: 128,
            },
        ];
        for plan in plans {
            for sinks in (0..70).chain([1_000, 4_097]) {
                let sizes = sizes(plan, sinks);
                assert_eq!(sizes.iter().sum::<u32>(), sinks, "{plan:?} {sinks}");
                assert!(sizes.iter().all(|size| *size > 0), "{plan:?} {sinks}");
            }
        }
    }

    /// Parts and send costs by the sum over the whole delay.
    fn whole_sum(sinks: u32, delay: u32, cap: u16) -> (Vec<u32>, u64) {
        let (mut sizes, mut totals) = (Vec::new(), Vec::new());
        let wide = u32::from(cap);
        if sinks <= wide.min(delay + 1) {
            return (vec![1; sinks as usize], u64::from(sinks));
        }
        sum(sinks, delay, wide, &mut totals);
        let (steps, mut left) = (totals.len() as u32, sinks);
        for send in 1..=wide.min(steps) {
            let size = at(&totals, delay, steps - send).min(left);
            left -= size;
            sizes.extend((size > 0).then_some(size));
        }
        (sizes, u64::from(steps))
    }

    #[test]
    fn a_long_delay_is_summed_as_a_short_one() {
        for cap in [1, 2, 3, 5, 8, 31, 128] {
            for sinks in (1..80).chain([128, 129, 257, 500]) {
                for delay in [0, 1, 2, 7, 30, 64, 65, 200, 900, 1_000] {
                    let (mut sizes, mut totals) = (Vec::new(), Vec::new());
                    let steps = postal(sinks, delay, cap, &mut sizes, &mut totals);
                    let whole = whole_sum(sinks, delay, cap);
                    assert_eq!((sizes, steps), whole, "{sinks} {delay} {cap}");
                }
            }
        }
    }

    #[test]
    fn a_strangers_plan_costs_little() {
        for (sinks, delay, cap) in [
            (48, DELAY_MAX, 1),
            (4_000_000, DELAY_MAX, 1),
            (4_000_000, DELAY_MAX, 2),
            (4_000_000, u32::MAX, u16::MAX),
        ] {
            let (mut sizes, mut totals) = (Vec::new(), Vec::new());
            postal(sinks, delay, cap, &mut sizes, &mut totals);
            assert_eq!(sizes.iter().sum::<u32>(), sinks);
            assert!(totals.len() <= 4 * 65_536, "{} {cap}", totals.len());
        }
    }

    #[test]
    fn direct_sending_falls_out_of_the_optimum() {
        let plan = Plan::measured(2, 20_000, CAP);
        assert_eq!(sizes(plan, 128), vec![1; 128]);
        assert!(sizes(plan, 129).len() <= usize::from(CAP));
        assert_eq!(
            Plan::measured(20, 30, CAP),
            Plan::Postal { delay: 2, cap: CAP }
        );
        assert_eq!(
            Plan::measured(0, u64::MAX, 0),
            Plan::Postal {
                delay: DELAY_MAX,
                cap: 1
            }
        );
    }

    #[test]
    fn the_least_cap_costs_a_twentieth_at_most() {
        use crate::schedule::{Cost, completion};
        use core::time::Duration;
        for delay in [0, 1, 2, 7, 50] {
            let cost = Cost {
                send: Duration::from_micros(1),
                delay: Duration::from_micros(delay.into()),
            };
            let took = |cap, sinks| completion(Plan::Postal { delay, cap }, sinks, cost);
            for sinks in [1, 2, 5, 18, 60, 129, 300] {
                for cap in [1, 8, CAP] {
                    let least = Splitter::default().least_cap(sinks, delay, cap);
                    let most = took(cap, sinks) * 21 / 20;
                    assert!(took(least, sinks) <= most, "{delay} {cap} {sinks}: {least}");
                    let direct = sinks <= u32::from(cap).min(delay + 1);
                    let tight = direct || least == 1 || took(least - 1, sinks) > most;
                    assert!(tight, "{delay} {cap} {sinks}: less than {least}");
                }
            }
        }
        assert_eq!(Splitter::default().least_cap(1_000, 2, CAP), 5);
    }

    #[test]
    fn no_node_sends_to_more_than_the_cap() {
        for cap in 1..10 {
            for sinks in 1..200 {
                let parts = sizes(Plan::Postal { delay: 6, cap }, sinks).len();
                assert!(parts <= usize::from(cap), "{cap} {sinks}");
            }
        }
    }
}
