//! Token buckets for source prefixes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use chappe_machine::Instant;

/// Source prefixes with a bucket of their own. Reason: a /24 for each of four busy sites.
const PREFIXES_MAX: usize = 1_024;

/// How often full buckets are looked for when there is no room, at most.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

const NANOS_PER_S: u64 = 1_000_000_000;

/// What shares a bucket: the /24 or /64 of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Prefix(u128);

impl Prefix {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // The IPv4-mapped form keeps the families apart.
            IpAddr::V4(v4) => Self(u128::from(v4.to_ipv6_mapped()) >> 8 << 8),
            IpAddr::V6(v6) => Self(u128::from(v6) >> 64 << 64),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Billionths of a token.
    level: u64,
    at: Instant,
}

/// Buckets of equal size; a token is one message.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    burst: u32,
    per_s: u32,
    buckets: HashMap<Prefix, Bucket>,
    swept: Option<Instant>,
}

impl Buckets {
    pub(crate) fn new(burst: u32, per_s: u32) -> Self {
        Self {
            burst,
            per_s,
            buckets: HashMap::new(),
            swept: None,
        }
    }

    fn full(&self) -> u64 {
        u64::from(self.burst) * NANOS_PER_S
    }

    /// The level of a bucket now.
    fn level(&self, bucket: &Bucket, now: Instant) -> u64 {
        let elapsed = now.saturating_since(bucket.at).as_nanos();
        let gained = elapsed.saturating_mul(u128::from(self.per_s));
        let gained = u64::try_from(gained).unwrap_or(u64::MAX);
        bucket.level.saturating_add(gained).min(self.full())
    }

    /// Takes a token for `source`; says whether there was one.
    pub(crate) fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let prefix = Prefix::of(source);
        if !self.buckets.contains_key(&prefix) && !self.make_room(now) {
            return false;
        }
        let bucket = self.buckets.get(&prefix).copied();
        let level = bucket.map_or(self.full(), |bucket| self.level(&bucket, now));
        let taken = level.checked_sub(NANOS_PER_S);
        let level = taken.unwrap_or(level);
        self.buckets.insert(prefix, Bucket { level, at: now });
        taken.is_some()
    }

    /// Forgets the buckets that have filled up again, when there are too many.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.buckets.len() < PREFIXES_MAX {
            return true;
        }
        let recently = self
            .swept
            .is_some_and(|at| now.saturating_since(at) < SWEEP_PERIOD);
        if recently {
            return false;
        }
        self.swept = Some(now);
        let (full, all) = (self.full(), std::mem::take(&mut self.buckets));
        let kept = all
            .into_iter()
            .filter(|(_, bucket)| self.level(bucket, now) < full);
        self.buckets = kept.collect();
        self.buckets.len() < PREFIXES_MAX
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match self.buckets.len() {
            0..=PREFIXES_MAX => Ok(()),
            many => Err(format!("{many} buckets, at most {PREFIXES_MAX}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_shares_its_tokens_and_they_come_back() {
        let mut buckets = Buckets::new(2, 1);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let [a, b, c] = ["192.0.2.1", "192.0.2.200", "192.0.3.1"].map(|ip| ip.parse().expect(ip));
        assert!(buckets.take(at(0), a));
        assert!(buckets.take(at(0), b));
        assert!(!buckets.take(at(0), a));
        assert!(buckets.take(at(0), c));
        assert!(!buckets.take(at(999), a));
        assert!(buckets.take(at(1_000), b));
        assert!(!buckets.take(at(1_000), b));
    }

    #[test]
    fn many_prefixes_do_not_grow_the_table() {
        let mut buckets = Buckets::new(2, 1);
        for n in 0..10_000_u32 {
            let now = Instant::ZERO + Duration::from_millis(u64::from(n));
            buckets.take(now, IpAddr::from((n << 8).to_be_bytes()));
            assert_eq!(buckets.check(), Ok(()));
        }
        let later = Instant::ZERO + Duration::from_secs(100);
        assert!(
            buckets.take(later, IpAddr::from([203, 0, 113, 1])),
            "room is made again"
        );
    }
}
