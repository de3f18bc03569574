//! Token buckets for source addresses, inside those of their subnets.
//!
//! Each address has its own bucket, so that a flooding host does not spend its neighbours' tokens.
//! The subnet's bucket limits forged addresses. A host that forges its neighbours' addresses can
//! still spend the whole subnet's tokens, since datagrams prove no address.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use chappe_machine::{Instant, TokenBucket, TokenRate};

/// Addresses of one subnet that may spend their whole rate together. Reason: a flooding address
/// leaves three quarters to the others.
const FULL_RATE_ADDRESSES: u32 = 4;
/// Subnets with their own bucket. Reason: a /24 for each of four busy sites.
const SUBNETS_MAX: usize = 1_024;
/// Addresses with their own bucket; further ones use their subnet's alone.
const ADDRESSES_MAX: usize = 4_096;

/// Minimum time between two searches for full buckets while the map is full.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// The key of a shared bucket: the /24 or /64 of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Subnet(u128);

impl Subnet {
    /// One key for all addresses.
    const ALL: Self = Self(0);

    fn of(address: IpAddr) -> Self {
        match address {
            // The IPv4-mapped form keeps the families apart.
            IpAddr::V4(v4) => Self(u128::from(v4.to_ipv6_mapped()) >> 8 << 8),
            IpAddr::V6(v6) => Self(u128::from(v6) >> 64 << 64),
        }
    }
}

/// Buckets of equal size; a token is one message.
#[derive(Debug, Clone)]
struct Layer<K> {
    rate: TokenRate,
    capacity: usize,
    buckets: HashMap<K, TokenBucket>,
    last_sweep: Option<Instant>,
}

impl<K: Copy + Eq + Hash> Layer<K> {
    fn new(burst: u32, per_s: u32, capacity: usize) -> Self {
        Self {
            rate: TokenRate {
                per_s: per_s.into(),
                burst: burst.into(),
            },
            capacity,
            buckets: HashMap::new(),
            last_sweep: None,
        }
    }

    /// The bucket after one more message; `None` if it has no token.
    fn try_take(&self, now: Instant, key: K) -> Option<TokenBucket> {
        let bucket = self.buckets.get(&key).copied();
        let mut bucket = bucket.unwrap_or_else(|| TokenBucket::full(now, self.rate));
        bucket.take(now, 1, self.rate).ok().map(|()| bucket)
    }

    /// Whether the map has room for the key's bucket; removes full buckets if necessary.
    fn has_room(&mut self, now: Instant, key: K) -> bool {
        if self.buckets.len() < self.capacity || self.buckets.contains_key(&key) {
            return true;
        }
        let swept_recently = self
            .last_sweep
            .is_some_and(|at| now.saturating_since(at) < SWEEP_PERIOD);
        if swept_recently {
            return false;
        }
        self.last_sweep = Some(now);
        let rate = self.rate;
        self.buckets.retain(|_, bucket| !bucket.is_full(now, rate));
        self.buckets.len() < self.capacity
    }
}

/// The buckets of addresses and of their subnets.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    own: Layer<IpAddr>,
    shared: Layer<Subnet>,
    by_subnet: bool,
}

impl Buckets {
    /// Each address has this rate, and a subnet four times as much.
    pub(crate) fn per_subnet(burst: u32, per_s: u32) -> Self {
        let [all_burst, all_per_s] = [burst, per_s].map(|n| n.saturating_mul(FULL_RATE_ADDRESSES));
        Self {
            own: Layer::new(burst, per_s, ADDRESSES_MAX),
            shared: Layer::new(all_burst, all_per_s, SUBNETS_MAX),
            by_subnet: true,
        }
    }

    /// All addresses share this rate, and each has a quarter of it.
    pub(crate) fn shared_by_all(burst: u32, per_s: u32) -> Self {
        let [own, own_per_s] = [burst, per_s].map(|n| n.div_ceil(FULL_RATE_ADDRESSES));
        Self {
            own: Layer::new(own, own_per_s, ADDRESSES_MAX),
            shared: Layer::new(burst, per_s, 1),
            by_subnet: false,
        }
    }

    /// Takes a token for `source`. False if there is none.
    pub(crate) fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let source = source.to_canonical();
        let subnet = match self.by_subnet {
            true => Subnet::of(source),
            false => Subnet::ALL,
        };
        if !self.shared.has_room(now, subnet) {
            return false;
        }
        let has_own = self.own.has_room(now, source);
        let own = self.own.try_take(now, source);
        // An address without its own tokens must not spend its neighbours'.
        let own = match own {
            None if has_own => return false,
            own => own.filter(|_| has_own),
        };
        let Some(shared) = self.shared.try_take(now, subnet) else {
            return false;
        };
        self.shared.buckets.insert(subnet, shared);
        if let Some(own) = own {
            self.own.buckets.insert(source, own);
        }
        true
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let (own, shared) = (self.own.buckets.len(), self.shared.buckets.len());
        match own <= self.own.capacity && shared <= self.shared.capacity {
            true => Ok(()),
            false => Err(format!(
                "too many buckets: {own} of addresses, {shared} of subnets"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn subnet_has_tokens_of_four_addresses() {
        let mut buckets = Buckets::per_subnet(2, 1);
        let ip = |number: u8| IpAddr::from([192, 0, 2, number]);
        let mut spend = |ms, source| {
            let granted = (0..100).filter(|_| buckets.take(at(ms), source));
            granted.count()
        };
        for number in 1..=4 {
            assert_eq!(spend(0, ip(number)), 2);
        }
        assert_eq!(
            spend(0, ip(5)),
            0,
            "four addresses spent the subnet's tokens"
        );
        assert_eq!(spend(0, IpAddr::from([192, 0, 3, 1])), 2, "another subnet");
        assert_eq!(spend(999, ip(1)), 0);
        assert_eq!(spend(1_000, ip(1)), 1);
        assert_eq!(spend(1_000, ip(5)), 2);
    }

    #[test]
    fn one_address_spends_quarter_of_shared_rate() {
        let mut buckets = Buckets::shared_by_all(8, 4);
        let mut spend = |source: &str| {
            let source = source.parse().unwrap();
            let granted = (0..100).filter(|_| buckets.take(at(0), source));
            granted.count()
        };
        assert_eq!(spend("192.0.2.1"), 2);
        for source in ["198.51.100.1", "2001:db8::1", "2001:db8::2"] {
            assert_eq!(spend(source), 2);
        }
        assert_eq!(spend("203.0.113.1"), 0);
    }

    #[test]
    fn many_addresses_keep_maps_bounded() {
        let mut buckets = Buckets::per_subnet(2, 1);
        for n in 0..10_000_u32 {
            let now = at(u64::from(n) / 10);
            buckets.take(now, IpAddr::from((n << 8).to_be_bytes()));
            buckets.take(now, IpAddr::from(n.to_be_bytes()));
            assert_eq!(buckets.check(), Ok(()));
        }
        let room = buckets.take(at(100_000), IpAddr::from([203, 0, 113, 1]));
        assert!(room, "full buckets are removed");
    }
}
