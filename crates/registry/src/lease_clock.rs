//! Which leases are over, by the clock of this node.
//!
//! A lease must never end early, because its holder cannot know better. Wall clocks step, so no date in a
//! record ends a lease. A lease ends once its remaining time has passed on this node's own monotonic clock,
//! counted from the moment when the node learned of the grant or of its last renewal. Nodes never compare
//! clocks.
//!
//! The remaining time survives restarts by a record in the journal, the tick, which is written every
//! [`TICK_MS`] while there are leases. It says that `ms` milliseconds passed on the clock of its writer since
//! the writer had read the journal up to `since`. A tick counts only if `since` is not before the last tick
//! that counted, so the intervals do not overlap, however many nodes write them. A lease that is older than
//! `since` has therefore aged by at least `ms`. A node that starts adds up the ticks after each grant and
//! counts the rest on its own clock. A snapshot states the age of each lease in the same manner. A restart
//! thus lengthens a lease by a tick at most; while no node runs, no lease ages, because nobody could renew it.
//!
//! This module has no clock: time is an argument.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Milliseconds between two ticks; reason: a restart lengthens leases by as much, and a record is short.
pub(crate) const TICK_MS: u64 = 60_000;
/// Maximum of the milliseconds that count between two looks at the clock; reason: a node that was stopped for
/// longer accepted no renewal meanwhile.
const MAX_LOOK_MS: u64 = 60_000;

/// A lease that was granted or renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) key: String,
    /// Position of the record that granted or renewed it.
    pub(crate) position: u64,
    pub(crate) length_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    granted: u64,
    length_ms: u64,
    /// Its end on the own clock; absent until that is next looked at.
    due_ms: Option<u64>,
    /// Its age at the record `noted`.
    aged_ms: u64,
    noted: u64,
    /// The total of all ticks before the first that counts for it.
    total_ms: Option<u64>,
}

/// See the documentation of the module.
#[derive(Debug, Default)]
pub(crate) struct LeaseClock {
    /// The time of the caller when it last looked.
    looked: Option<Duration>,
    /// Own time: the sum of what passed between looks.
    own_ms: u64,
    leases: HashMap<String, Lease>,
    /// The ends of leases on the own clock.
    order: BTreeSet<(u64, String)>,
    /// Leases without an end.
    unstarted: Vec<String>,
    /// Those of them for which no tick counts yet.
    untouched: Vec<String>,
    /// The sum of the ticks that counted, and the position of the last.
    total_ms: u64,
    last_tick: u64,
    /// Where the next tick starts: a position in the journal, and the own time when it was read.
    mark: Option<(u64, u64)>,
}

impl LeaseClock {
    /// A lease was granted or renewed. Its time starts when the clock is next looked at.
    pub(crate) fn grant(&mut self, granted: Granted) {
        let noted = granted.position;
        self.set(granted, 0, noted);
    }

    /// A snapshot states that a lease was `aged_ms` old at its record `noted`.
    pub(crate) fn state_age(&mut self, granted: Granted, aged_ms: u64, noted: u64) {
        self.set(granted, aged_ms, noted);
    }

    fn set(&mut self, granted: Granted, aged_ms: u64, noted: u64) {
        self.forget(&granted.key);
        let lease = Lease {
            granted: granted.position,
            length_ms: granted.length_ms,
            due_ms: None,
            aged_ms,
            noted,
            total_ms: None,
        };
        self.unstarted.push(granted.key.clone());
        self.untouched.push(granted.key.clone());
        self.leases.insert(granted.key, lease);
    }

    /// The entity has no lease any more.
    pub(crate) fn forget(&mut self, key: &str) {
        let lease = self.leases.remove(key);
        if let Some(due_ms) = lease.and_then(|lease| lease.due_ms) {
            self.order.remove(&(due_ms, key.to_owned()));
        }
    }

    /// A tick at `position`.
    pub(crate) fn tick(&mut self, position: u64, since: u64, ms: u64) {
        if since < self.last_tick {
            return;
        }
        let (leases, total_ms) = (&mut self.leases, self.total_ms);
        self.untouched.retain(|key| {
            let Some(lease) = leases.get_mut(key) else {
                return false;
            };
            let counts = lease.noted <= since;
            if counts && lease.total_ms.is_none() {
                lease.total_ms = Some(total_ms);
            }
            !counts && lease.due_ms.is_none()
        });
        self.total_ms = total_ms.saturating_add(ms);
        self.last_tick = position;
        self.mark = None;
    }

    /// Notes the time and starts that of new leases. `now` is monotonic, from any origin; `read` is the
    /// position up to which the journal has been read. Returns the own time.
    pub(crate) fn look(&mut self, now: Duration, read: u64) -> u64 {
        let before = self.looked.replace(now).unwrap_or(now);
        let passed = now.saturating_sub(before).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX).min(MAX_LOOK_MS);
        self.own_ms = self.own_ms.saturating_add(passed);
        for key in std::mem::take(&mut self.unstarted) {
            let Some(lease) = self.leases.get_mut(&key) else {
                continue;
            };
            if lease.due_ms.is_none() {
                let left_ms = lease.length_ms.saturating_sub(lease.age_ms(self.total_ms));
                let due_ms = self.own_ms.saturating_add(left_ms);
                lease.due_ms = Some(due_ms);
                self.order.insert((due_ms, key));
            }
        }
        self.untouched.clear();
        self.mark.get_or_insert((read, self.own_ms));
        self.own_ms
    }

    /// The leases that are over, at most `max`, with the positions of their grants.
    pub(crate) fn over(&self, max: usize) -> Vec<(String, u64)> {
        let over = self
            .order
            .iter()
            .take_while(|(due_ms, _)| *due_ms <= self.own_ms);
        over.take(max)
            .filter_map(|(_, key)| Some((key.clone(), self.leases.get(key)?.granted)))
            .collect()
    }

    /// The tick that is due, as `since` and `ms`.
    pub(crate) fn due_tick(&self) -> Option<(u64, u64)> {
        let (since, own_ms) = self.mark?;
        let ms = self.own_ms.saturating_sub(own_ms);
        (ms >= TICK_MS && !self.leases.is_empty()).then_some((since, ms))
    }

    /// The least age of a lease that was granted or renewed at `granted`.
    pub(crate) fn age_ms(&self, key: &str, granted: u64) -> u64 {
        let lease = self
            .leases
            .get(key)
            .filter(|lease| lease.granted == granted);
        lease.map_or(0, |lease| match lease.due_ms {
            Some(due_ms) => lease
                .length_ms
                .saturating_sub(due_ms.saturating_sub(self.own_ms)),
            None => lease.age_ms(self.total_ms),
        })
    }

    /// The time until the lease of `key` is over, as of the last look.
    pub(crate) fn remaining(&self, key: &str) -> Option<Duration> {
        let lease = self.leases.get(key)?;
        let age_ms = self.age_ms(key, lease.granted);
        Some(Duration::from_millis(
            lease.length_ms.saturating_sub(age_ms),
        ))
    }

    /// Time until the next lease is over.
    pub(crate) fn until_next(&self) -> Option<Duration> {
        let (due_ms, _) = self.order.first()?;
        Some(Duration::from_millis(due_ms.saturating_sub(self.own_ms)))
    }

    /// Takes over what `former` knows of the same grants; this one was read from a snapshot by a node that
    /// runs.
    pub(crate) fn continue_from(&mut self, former: Self) {
        self.looked = former.looked;
        self.own_ms = former.own_ms;
        for (key, known) in former.leases {
            let Some(due_ms) = known.due_ms else { continue };
            if let Some(lease) = self.leases.get_mut(&key)
                && lease.granted == known.granted
            {
                lease.due_ms = Some(due_ms);
                self.order.insert((due_ms, key));
            }
        }
    }

    /// Number of leases.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }
}

impl Lease {
    fn age_ms(&self, total_ms: u64) -> u64 {
        let ticks = self
            .total_ms
            .map_or(0, |before| total_ms.saturating_sub(before));
        self.aged_ms.saturating_add(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(position: u64, length_s: u64) -> Granted {
        Granted {
            key: "urn:x".into(),
            position,
            length_ms: length_s * 1_000,
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_ends_after_its_whole_length_on_the_own_clock() {
        let mut clock = LeaseClock::default();
        // The origin of the caller's time does not matter.
        assert_eq!(clock.look(s(1_000), 0), 0);
        clock.grant(granted(1, 5));
        assert_eq!(clock.look(s(1_010), 1), 10_000);
        assert_eq!(clock.until_next(), Some(s(5)));
        clock.look(s(1_014), 1);
        assert_eq!(
            (clock.over(9), clock.remaining("urn:x")),
            (vec![], Some(s(1)))
        );
        clock.look(s(1_015), 1);
        assert_eq!(clock.over(9), [("urn:x".into(), 1)]);
        // Renewed: the time starts again, and the former end is forgotten.
        clock.grant(granted(2, 5));
        clock.look(s(1_016), 2);
        assert_eq!(clock.over(9), []);
        // A clock that went back, against the rule, ends nothing early; time goes on from there.
        clock.look(s(5), 2);
        clock.look(s(9), 2);
        assert_eq!(clock.over(9), []);
        clock.look(s(10), 2);
        assert_eq!(clock.over(9), [("urn:x".into(), 2)]);
        clock.forget("urn:x");
        assert_eq!((clock.over(9).len(), clock.len()), (0, 0));
    }

    #[test]
    fn time_during_which_the_node_was_stopped_counts_a_minute_at_most() {
        let mut clock = LeaseClock::default();
        clock.grant(granted(1, 61));
        clock.look(s(0), 1);
        clock.look(s(3_600), 1);
        assert_eq!((clock.over(9), clock.until_next()), (vec![], Some(s(1))));
    }

    #[test]
    fn ticks_of_others_do_not_age_a_lease_whose_end_is_known() {
        let mut clock = LeaseClock::default();
        clock.look(s(0), 0);
        clock.grant(granted(1, 100));
        clock.look(s(10), 1);
        clock.tick(2, 1, 99_000);
        clock.look(s(20), 2);
        assert_eq!(clock.until_next(), Some(s(90)));
    }

    #[test]
    fn a_tick_is_due_once_a_minute_while_there_are_leases() {
        let mut clock = LeaseClock::default();
        clock.look(s(0), 0);
        clock.look(s(60), 0);
        assert_eq!(clock.due_tick(), None);
        clock.grant(granted(1, 100));
        assert_eq!(clock.due_tick(), Some((0, 60_000)));
        clock.tick(2, 0, 60_000);
        assert_eq!(clock.due_tick(), None);
        clock.look(s(70), 2);
        clock.look(s(129), 2);
        assert_eq!(clock.due_tick(), None);
        clock.look(s(130), 2);
        assert_eq!(clock.due_tick(), Some((2, 60_000)));
    }

    #[test]
    fn a_restart_continues_a_lease() {
        let mut clock = LeaseClock::default();
        clock.grant(granted(1, 600));
        // The first tick started before the grant; of two that overlap, one counts.
        clock.tick(2, 0, 60_000);
        clock.tick(3, 2, 60_000);
        clock.tick(4, 2, 60_000);
        clock.tick(5, 3, 60_000);
        clock.look(s(7), 5);
        assert_eq!(clock.until_next(), Some(s(480)));
        assert_eq!(clock.age_ms("urn:x", 1), 120_000);
        assert_eq!(clock.age_ms("urn:x", 2), 0);
        // From a snapshot, its age is that of the statement and of the ticks after it.
        let mut clock = LeaseClock::default();
        clock.state_age(granted(1, 600), 120_000, 9);
        clock.tick(10, 5, 60_000);
        clock.tick(11, 10, 60_000);
        clock.look(s(7), 11);
        assert_eq!(clock.until_next(), Some(s(420)));
    }

    #[test]
    fn a_running_node_that_reads_a_snapshot_keeps_the_ends_that_it_knows() {
        for (position, until) in [(1, 60), (3, 100)] {
            let mut clock = LeaseClock::default();
            clock.state_age(granted(position, 100), 0, 9);
            let mut known = LeaseClock::default();
            known.grant(granted(1, 100));
            known.look(s(0), 1);
            known.look(s(40), 1);
            clock.continue_from(known);
            clock.look(s(40), 9);
            assert_eq!(clock.until_next(), Some(s(until)));
        }
    }
}
