//! Token buckets for source addresses inside those of their subnets.
//!
//! An address has a bucket of its own, so that one host that floods does not spend what its
//! neighbours need; the subnet's bucket bounds what goes to addresses that are forged. A host that
//! forges its neighbours' addresses can still spend all of it: datagrams prove no address.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use chappe_machine::{Instant, TokenBucket, TokenRate};

/// How many addresses of a subnet may spend their whole rate at once. Reason: one that floods
/// leaves three quarters to the others.
const ADDRESSES_AT_ONCE: u32 = 4;
/// Subnets with a bucket of their own. Reason: a /24 for each of four busy sites.
const SUBNETS_MAX: usize = 1_024;
/// Addresses with a bucket of their own; those beyond have their subnet's alone.
const ADDRESSES_MAX: usize = 4_096;

/// How often full buckets are looked for when there is no room, at most.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// What shares a bucket: the /24 or /64 of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Subnet(u128);

impl Subnet {
    /// All addresses together.
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
    most: usize,
    buckets: HashMap<K, TokenBucket>,
    swept: Option<Instant>,
}

impl<K: Copy + Eq + Hash> Layer<K> {
    fn new(burst: u32, per_s: u32, most: usize) -> Self {
        Self {
            rate: TokenRate {
                per_s: per_s.into(),
                burst: burst.into(),
            },
            most,
            buckets: HashMap::new(),
            swept: None,
        }
    }

    /// The bucket after one message more; `None` when it has no token.
    fn after(&self, now: Instant, key: K) -> Option<TokenBucket> {
        let bucket = self.buckets.get(&key).copied();
        let mut bucket = bucket.unwrap_or_else(|| TokenBucket::full(now, self.rate));
        bucket.take(now, 1, self.rate).ok().map(|()| bucket)
    }

    /// Whether there is room for the key's bucket; forgets those that have filled up again, when
    /// there are too many.
    fn has_room(&mut self, now: Instant, key: K) -> bool {
        if self.buckets.len() < self.most || self.buckets.contains_key(&key) {
            return true;
        }
        let recently = self
            .swept
            .is_some_and(|at| now.saturating_since(at) < SWEEP_PERIOD);
        if recently {
            return false;
        }
        self.swept = Some(now);
        let rate = self.rate;
        self.buckets.retain(|_, bucket| !bucket.is_full(now, rate));
        self.buckets.len() < self.most
    }
}

/// The buckets of addresses, and those that addresses share.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    own: Layer<IpAddr>,
    shared: Layer<Subnet>,
    by_subnet: bool,
}

impl Buckets {
    /// An address has this rate, and a subnet that of four addresses.
    pub(crate) fn of_subnets(burst: u32, per_s: u32) -> Self {
        let [of_all, all_per_s] = [burst, per_s].map(|n| n.saturating_mul(ADDRESSES_AT_ONCE));
        Self {
            own: Layer::new(burst, per_s, ADDRESSES_MAX),
            shared: Layer::new(of_all, all_per_s, SUBNETS_MAX),
            by_subnet: true,
        }
    }

    /// All addresses together have this rate, and one of them a quarter of it.
    pub(crate) fn of_all(burst: u32, per_s: u32) -> Self {
        let [own, own_per_s] = [burst, per_s].map(|n| n.div_ceil(ADDRESSES_AT_ONCE));
        Self {
            own: Layer::new(own, own_per_s, ADDRESSES_MAX),
            shared: Layer::new(burst, per_s, 1),
            by_subnet: false,
        }
    }

    /// Takes a token for `source`; says whether there was one.
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
        let own = self.own.after(now, source);
        // An address that has spent its own tokens takes none of its neighbours'.
        let own = match own {
            None if has_own => return false,
            own => own.filter(|_| has_own),
        };
        let Some(shared) = self.shared.after(now, subnet) else {
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
        match own <= self.own.most && shared <= self.shared.most {
            true => Ok(()),
            false => Err(format!("{own} buckets of addresses, {shared} of subnets")),
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
    fn an_address_has_its_tokens_and_a_subnet_those_of_four() {
        let mut buckets = Buckets::of_subnets(2, 1);
        let ip = |number: u8| IpAddr::from([192, 0, 2, number]);
        let mut spend = |ms, source| {
            let taken = (0..100).filter(|_| buckets.take(at(ms), source));
            taken.count()
        };
        for number in 1..=4 {
            assert_eq!(spend(0, ip(number)), 2);
        }
        assert_eq!(spend(0, ip(5)), 0, "four have spent the subnet's");
        assert_eq!(spend(0, IpAddr::from([192, 0, 3, 1])), 2, "another subnet");
        assert_eq!(spend(999, ip(1)), 0);
        assert_eq!(spend(1_000, ip(1)), 1);
        assert_eq!(spend(1_000, ip(5)), 2);
    }

    #[test]
    fn one_address_spends_a_quarter_of_what_all_share() {
        let mut buckets = Buckets::of_all(8, 4);
        let mut spend = |source: &str| {
            let source = source.parse().unwrap();
            let taken = (0..100).filter(|_| buckets.take(at(0), source));
            taken.count()
        };
        assert_eq!(spend("192.0.2.1"), 2);
        for source in ["198.51.100.1", "2001:db8::1", "2001:db8::2"] {
            assert_eq!(spend(source), 2);
        }
        assert_eq!(spend("203.0.113.1"), 0);
    }

    #[test]
    fn many_addresses_do_not_grow_the_tables() {
        let mut buckets = Buckets::of_subnets(2, 1);
        for n in 0..10_000_u32 {
            let now = at(u64::from(n) / 10);
            buckets.take(now, IpAddr::from((n << 8).to_be_bytes()));
            buckets.take(now, IpAddr::from(n.to_be_bytes()));
            assert_eq!(buckets.check(), Ok(()));
        }
        let room = buckets.take(at(100_000), IpAddr::from([203, 0, 113, 1]));
        assert!(room, "room is made again");
    }
}
