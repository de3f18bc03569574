//! Limits the failed credentials of each host.
//!
//! A bucket of a host holds [`FAILURES_MAX`] failures and loses one every [`RECOVERY`]. Hosts share a bounded
//! table: when it is full, a new host takes the place of the one that has failed least recently.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::Host;

/// Failures of a host at once; reason: a person who mistypes a token, and a few programs with an old one.
pub const FAILURES_MAX: u32 = 20;
/// Time after which one failure is forgotten.
pub const RECOVERY: Duration = Duration::from_secs(3);
/// Hosts in the table.
pub const HOSTS_MAX: usize = 4_096;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    failures: u32,
    /// When the newest failure was counted, or the oldest remaining one was forgotten.
    since: Duration,
    order: u64,
}

/// The failed credentials of hosts. Times are those of any monotonic clock.
///
/// ```
/// use chappe_identity::{Attempts, FAILURES_MAX, Host};
/// use std::time::Duration;
/// let mut attempts = Attempts::default();
/// let host = Host::from_address("192.0.2.1".parse().unwrap());
/// for _ in 0..FAILURES_MAX {
///     assert_eq!(attempts.fail(host, Duration::ZERO), Ok(()));
/// }
/// assert_eq!(attempts.fail(host, Duration::ZERO), Err(Duration::from_secs(3)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Attempts {
    hosts: HashMap<Host, Bucket>,
    by_order: BTreeSet<(u64, Host)>,
    orders: u64,
}

impl Attempts {
    /// Counts a failure of a host.
    ///
    /// # Errors
    /// The host has failed too often; the time until it may fail again.
    pub fn fail(&mut self, host: Host, now: Duration) -> Result<(), Duration> {
        let mut bucket = match self.hosts.get(&host) {
            Some(bucket) => bucket.recovered(now),
            None => Bucket {
                failures: 0,
                since: now,
                order: 0,
            },
        };
        let outcome = match bucket.failures < FAILURES_MAX {
            true => {
                bucket.failures += 1;
                Ok(())
            }
            false => Err(RECOVERY.saturating_sub(now.saturating_sub(bucket.since))),
        };
        self.by_order.remove(&(bucket.order, host));
        self.orders += 1;
        bucket.order = self.orders;
        self.by_order.insert((bucket.order, host));
        self.hosts.insert(host, bucket);
        if self.hosts.len() > HOSTS_MAX
            && let Some((_, oldest)) = self.by_order.pop_first()
        {
            self.hosts.remove(&oldest);
        }
        outcome
    }

    /// The number of hosts in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether no host has failed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

impl Bucket {
    fn recovered(self, now: Duration) -> Self {
        let passed = now.saturating_sub(self.since).as_millis() / RECOVERY.as_millis();
        let forgotten = u32::try_from(passed).unwrap_or(u32::MAX);
        match self.failures.checked_sub(forgotten) {
            Some(failures) if failures > 0 => Self {
                failures,
                since: self.since + RECOVERY * forgotten,
                ..self
            },
            _ => Self {
                failures: 0,
                since: now,
                ..self
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn host(number: u32) -> Host {
        Host::from_address(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_host_that_fails_too_often_waits_and_no_other_host_does() {
        let mut attempts = Attempts::default();
        let at = Duration::from_secs;
        for _ in 0..FAILURES_MAX {
            attempts.fail(host(1), at(0)).unwrap();
        }
        assert_eq!(attempts.fail(host(1), at(1)), Err(at(2)));
        attempts.fail(host(2), at(1)).unwrap();
        attempts.fail(host(1), at(3)).unwrap();
        assert_eq!(attempts.fail(host(1), at(5)), Err(at(1)));
        for _ in 0..FAILURES_MAX {
            attempts.fail(host(1), at(3_600)).unwrap();
        }
        assert!(attempts.fail(host(1), at(3_600)).is_err());
    }

    #[test]
    fn the_table_is_bounded() {
        let mut attempts = Attempts::default();
        for number in 0..HOSTS_MAX as u32 + 100 {
            attempts.fail(host(number), Duration::ZERO).unwrap();
        }
        assert_eq!(attempts.len(), HOSTS_MAX);
        assert_eq!(attempts.by_order.len(), HOSTS_MAX);
    }
}
