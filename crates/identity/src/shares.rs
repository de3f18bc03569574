//! A bounded table that is shared fairly among hosts: the host with the most entries loses one first.
//!
//! An entry is a *stranger* until it is confirmed. Forged addresses make as many strangers as an attacker
//! wants; a confirmed entry has answered at its host. So strangers replace confirmed entries only up to
//! a quarter of the table, and only those of a host that has more entries than theirs.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

/// The part of a table in which strangers may displace confirmed entries.
const STRANGERS_PART: usize = 4;

/// The share of an address: an IPv4 address, or the /64 of an IPv6 address, of which one machine can
/// use all. Link-local addresses count one by one, since whole networks have the same prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(IpAddr);

impl Host {
    /// The host that an address counts for.
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => {
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64))
            }
            other => other,
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => write!(f, "{v6}/64"),
            other => other.fmt(f),
        }
    }
}

/// Limits of the number of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// In all.
    pub total: usize,
    /// Of one host.
    pub of_host: usize,
    /// Of one host that are not confirmed.
    pub strangers_of_host: usize,
}

/// Whether a table has room for a new entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room<K> {
    /// It has room.
    Free,
    /// It has, once this entry is removed.
    Replacing(K),
    /// Its host has the maximum number of entries, all of them confirmed.
    HostFull,
    /// The table is full, and no host has so many entries that one is removed.
    TableFull,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    host: Host,
    is_confirmed: bool,
    order: u64,
}

/// The entries of one host by age.
#[derive(Debug, Clone)]
struct Share<K> {
    strangers: BTreeMap<u64, K>,
    confirmed: BTreeMap<u64, K>,
}

impl<K> Default for Share<K> {
    fn default() -> Self {
        Self {
            strangers: BTreeMap::new(),
            confirmed: BTreeMap::new(),
        }
    }
}

impl<K> Share<K> {
    fn len(&self) -> usize {
        self.strangers.len() + self.confirmed.len()
    }

    fn oldest_stranger(&self) -> Option<Reverse<u64>> {
        self.strangers.keys().next().copied().map(Reverse)
    }

    fn newest_confirmed(&self) -> Option<u64> {
        self.confirmed.keys().next_back().copied()
    }
}

/// The entries of a table by host.
///
/// ```
/// use chappe_identity::{Host, Quota, Room, Shares};
/// let quota = Quota { total: 3, of_host: 3, strangers_of_host: 3 };
/// let mut shares = Shares::new(quota);
/// let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| Host::from_address(ip.parse().unwrap()));
/// for key in ["a", "b", "c"] {
///     assert_eq!(shares.room(one), Room::Free);
///     shares.set(&key, one, true);
/// }
/// assert_eq!(shares.room(one), Room::HostFull);
/// assert_eq!(shares.room(other), Room::Replacing("c"));
/// ```
#[derive(Debug, Clone)]
pub struct Shares<K> {
    quota: Quota,
    entries: HashMap<K, Entry>,
    hosts: HashMap<Host, Share<K>>,
    /// Hosts with strangers, by their number of entries, then by their oldest stranger: among equal
    /// hosts a new one has the longest time to be confirmed.
    with_strangers: BTreeSet<(usize, Reverse<u64>, Host)>,
    /// Hosts with confirmed entries, by their number of entries, then by their newest.
    with_confirmed: BTreeSet<(usize, u64, Host)>,
    strangers: usize,
    orders: u64,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// For an empty table.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self {
            quota,
            entries: HashMap::new(),
            hosts: HashMap::new(),
            with_strangers: BTreeSet::new(),
            with_confirmed: BTreeSet::new(),
            strangers: 0,
            orders: 0,
        }
    }

    /// Records that `key` is an entry of `host`; a known entry keeps its age.
    pub fn set(&mut self, key: &K, host: Host, is_confirmed: bool) {
        let before = self.remove(key);
        let order = before.map_or(self.orders, |entry| entry.order);
        self.orders += u64::from(before.is_none());
        let entry = Entry {
            host,
            is_confirmed,
            order,
        };
        self.entries.insert(key.clone(), entry);
        self.strangers += usize::from(!is_confirmed);
        self.change(host, |share| {
            let list = match is_confirmed {
                true => &mut share.confirmed,
                false => &mut share.strangers,
            };
            list.insert(order, key.clone());
        });
    }

    /// Records that an entry has left the table.
    pub fn forget(&mut self, key: &K) {
        self.remove(key);
    }

    fn remove(&mut self, key: &K) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.strangers -= usize::from(!entry.is_confirmed);
        self.change(entry.host, |share| {
            share.strangers.remove(&entry.order);
            share.confirmed.remove(&entry.order);
        });
        Some(entry)
    }

    fn change(&mut self, host: Host, change: impl FnOnce(&mut Share<K>)) {
        let share = self.hosts.entry(host).or_default();
        if let Some(oldest) = share.oldest_stranger() {
            self.with_strangers.remove(&(share.len(), oldest, host));
        }
        if let Some(newest) = share.newest_confirmed() {
            self.with_confirmed.remove(&(share.len(), newest, host));
        }
        change(share);
        if let Some(oldest) = share.oldest_stranger() {
            self.with_strangers.insert((share.len(), oldest, host));
        }
        if let Some(newest) = share.newest_confirmed() {
            self.with_confirmed.insert((share.len(), newest, host));
        }
        if share.len() == 0 {
            self.hosts.remove(&host);
        }
    }

    /// Whether there is room for a new entry of `host`, which starts as a stranger.
    #[must_use]
    pub fn room(&self, host: Host) -> Room<K> {
        let share = self.hosts.get(&host);
        let of_host = share.map_or(0, Share::len);
        let strangers = share.map_or(0, |share| share.strangers.len());
        if of_host >= self.quota.of_host || strangers >= self.quota.strangers_of_host {
            return self
                .stranger_of(host)
                .map_or(Room::HostFull, Room::Replacing);
        }
        if self.entries.len() < self.quota.total {
            return Room::Free;
        }
        self.victim(host).map_or(Room::TableFull, Room::Replacing)
    }

    /// The entry to remove for a new one of `host`; `None` if there is room.
    fn victim(&self, host: Host) -> Option<K> {
        let own = self.hosts.get(&host).map_or(0, Share::len);
        let strangers_max = self.quota.total.div_ceil(STRANGERS_PART);
        if self.strangers < strangers_max
            && let Some((count, _, greediest)) = self.with_confirmed.last()
            && *count > own + 1
        {
            // The host's oldest entries stay longest.
            let stranger = self.stranger_of(*greediest);
            let newest = || {
                self.hosts
                    .get(greediest)?
                    .confirmed
                    .values()
                    .next_back()
                    .cloned()
            };
            return stranger.or_else(newest);
        }
        match self.with_strangers.last() {
            Some((count, _, greediest)) if *count > own => self.stranger_of(*greediest),
            _ => self.stranger_of(host),
        }
    }

    /// The oldest stranger of a host.
    fn stranger_of(&self, host: Host) -> Option<K> {
        self.hosts.get(&host)?.strangers.values().next().cloned()
    }

    /// Whether an entry is here and confirmed.
    #[must_use]
    pub fn is_confirmed<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries
            .get(key)
            .is_some_and(|entry| entry.is_confirmed)
    }

    /// The host that an entry counts for.
    #[must_use]
    pub fn host<Q>(&self, key: &Q) -> Option<Host>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.get(key).map(|entry| entry.host)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Checks the invariants: the lists agree, and a host has no more than its quota of strangers.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self) -> Result<(), String> {
        let listed: usize = self.hosts.values().map(Share::len).sum();
        let strangers: usize = self.hosts.values().map(|share| share.strangers.len()).sum();
        if listed != self.entries.len() || strangers != self.strangers {
            let entries = self.entries.len();
            return Err(format!(
                "{listed} of {entries} entries listed, {strangers} strangers"
            ));
        }
        let most = self
            .hosts
            .iter()
            .max_by_key(|(_, share)| share.strangers.len());
        match most {
            Some((host, share)) if share.strangers.len() > self.quota.strangers_of_host => {
                Err(format!("{} strangers of {host}", share.strangers.len()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::from_address(text.parse().unwrap())
    }

    fn shares(total: usize) -> Shares<String> {
        Shares::new(Quota {
            total,
            of_host: total,
            strangers_of_host: total,
        })
    }

    /// Adds a new entry as a table does; returns whether there was room.
    fn add(shares: &mut Shares<String>, key: &str, of: Host) -> bool {
        match shares.room(of) {
            Room::Free => {}
            Room::Replacing(other) => shares.forget(&other),
            Room::HostFull | Room::TableFull => return false,
        }
        shares.set(&key.to_owned(), of, false);
        shares.check().unwrap();
        true
    }

    #[test]
    fn a_host_is_an_address_or_a_network_that_one_machine_has() {
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::2"));
        assert_ne!(host("fe80::1"), host("fe80::2"));
        assert_eq!(host("2001:db8::1").to_string(), "2001:db8::/64");
    }

    #[test]
    fn one_host_keeps_no_other_out_whether_it_answers_or_not() {
        for answers in [false, true] {
            let (mut shares, flood) = (shares(20), host("10.0.0.66"));
            for number in 0..100 {
                let key = format!("flood {number}");
                if add(&mut shares, &key, flood) && answers {
                    shares.set(&key, flood, true);
                }
            }
            for number in 0..19 {
                let real = host(&format!("10.0.0.{number}"));
                let key = format!("real {number}");
                assert!(add(&mut shares, &key, real), "{number}");
                shares.set(&key, real, true);
                // It continues, and displaces only its own.
                let more = format!("more {number}");
                if add(&mut shares, &more, flood) && answers {
                    shares.set(&more, flood, true);
                }
            }
            let real = shares.entries.keys().filter(|key| key.starts_with("real"));
            assert_eq!(real.count(), 19);
        }
    }

    #[test]
    fn strangers_of_many_addresses_displace_a_quarter_and_no_device_that_has_its_host_alone() {
        let mut shares = shares(40);
        for number in 0..40 {
            let of = match number {
                0..20 => host("10.0.0.1"),
                other => host(&format!("10.0.1.{other}")),
            };
            let key = format!("real {number}");
            assert!(add(&mut shares, &key, of));
            shares.set(&key, of, true);
        }
        for number in 0..=255 {
            add(
                &mut shares,
                &format!("forged {number}"),
                host(&format!("10.0.2.{number}")),
            );
        }
        let alone = (20..40).filter(|n| shares.entries.contains_key(&format!("real {n}")));
        assert_eq!(alone.count(), 20);
        let gateway = (0..20).filter(|n| shares.entries.contains_key(&format!("real {n}")));
        assert_eq!(
            gateway.collect::<Vec<_>>(),
            (0..10).collect::<Vec<_>>(),
            "the oldest stay"
        );
    }

    #[test]
    fn among_equal_hosts_the_oldest_stranger_gives_way_whatever_its_address() {
        for real in ["10.0.0.0", "10.0.9.9"] {
            let mut shares = shares(20);
            let forged = |number: usize| host(&format!("10.0.1.{number}"));
            for number in 0..20 {
                add(&mut shares, &format!("forged {number}"), forged(number));
            }
            assert!(add(&mut shares, "real", host(real)));
            for number in 20..39 {
                assert!(shares.entries.contains_key("real"), "{real} {number}");
                add(&mut shares, &format!("forged {number}"), forged(number));
            }
        }
    }

    #[test]
    fn a_host_has_no_more_than_its_quota() {
        let mut shares = Shares::new(Quota {
            total: 100,
            of_host: 4,
            strangers_of_host: 2,
        });
        let one = host("10.0.0.1");
        for key in ["a", "b", "c"] {
            assert!(add(&mut shares, key, one));
        }
        assert_eq!(shares.len(), 2, "two strangers");
        for key in ["b", "c"] {
            shares.set(&key.to_owned(), one, true);
        }
        for key in ["d", "e"] {
            assert!(add(&mut shares, key, one));
            shares.set(&key.to_owned(), one, true);
        }
        assert_eq!(shares.room(one), Room::HostFull);
        assert_eq!(shares.room(host("10.0.0.2")), Room::Free);
    }
}
