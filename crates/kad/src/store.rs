//! Records stored for others: bounded in total, by place, by publisher and by host.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_identity::PublicKey;
use chappe_machine::Instant;

use crate::message::Verdict;
use crate::{Config, Key, Record};

/// Overhead of a stored record in bytes, without its value.
const RECORD_COST: usize = size_of::<Stored>() + 64;

#[derive(Debug)]
struct Stored {
    record: Record,
    until: Instant,
    host: u64,
}

/// The records at one place, by identity.
#[derive(Debug, Default)]
struct Shelf {
    records: BTreeMap<Key, Stored>,
    /// Until when the place counts as split: a record was sent one level down.
    split_until: Option<Instant>,
    /// The digest of all records.
    digest: u64,
}

/// One page of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) held: u16,
    pub(crate) split: bool,
    pub(crate) records: Vec<Record>,
}

/// The records kept for others.
#[derive(Debug)]
pub(crate) struct Store {
    shelves: BTreeMap<Key, Shelf>,
    publishers: BTreeMap<PublicKey, usize>,
    hosts: BTreeMap<u64, usize>,
    bytes: usize,
    bytes_max: usize,
    place_records: usize,
    publisher_records: usize,
    host_bytes: usize,
}

/// The contribution of a record to the digest of a place, which does not depend on order. Both
/// sides of a search compare digests, so known records are not sent again.
pub(crate) fn digest_of(record: &Record) -> u64 {
    let parts = Key::derive(
        "chappe kad digest 1",
        &[
            &record.identity().to_bytes(),
            &record.sequence.to_be_bytes(),
        ],
    );
    // The first 64 bits.
    (parts.number() >> 64) as u64
}

fn cost(record: &Record) -> usize {
    RECORD_COST + record.value.len()
}

impl Store {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            shelves: BTreeMap::new(),
            publishers: BTreeMap::new(),
            hosts: BTreeMap::new(),
            bytes: 0,
            bytes_max: config.store_bytes,
            place_records: config.place_records,
            publisher_records: config.publisher_records,
            host_bytes: config.store_bytes / config.host_store_share,
        }
    }

    /// The number of records.
    pub(crate) fn len(&self) -> usize {
        self.publishers.values().sum()
    }

    /// Their size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores a record whose signature, time and place were checked.
    pub(crate) fn put(&mut self, now: Instant, place: Key, record: Record, host: u64) -> Verdict {
        let identity = record.identity();
        let lifetime = Duration::from_secs(record.lifetime_s.into());
        if let Some(known) = self
            .shelves
            .get(&place)
            .and_then(|shelf| shelf.records.get(&identity))
        {
            if known.record.sequence == record.sequence {
                // Storing the same record again does not extend its life.
                return Verdict::Kept;
            }
            if known.record.sequence > record.sequence {
                return Verdict::Outdated;
            }
            self.remove(place, identity);
        } else if let Some(shelf) = self.shelves.get_mut(&place)
            && shelf.records.len() >= self.place_records
        {
            shelf.split_until = Some(now + lifetime);
            return Verdict::Full;
        }
        let cost = cost(&record);
        let of_publisher = self.publishers.get(&record.publisher).copied();
        let of_host = self.hosts.get(&host).copied().unwrap_or(0);
        if of_publisher.unwrap_or(0) >= self.publisher_records
            || self.bytes + cost > self.bytes_max
            || of_host + cost > self.host_bytes
        {
            return Verdict::Rejected;
        }
        self.bytes += cost;
        *self.hosts.entry(host).or_default() += cost;
        *self.publishers.entry(record.publisher).or_default() += 1;
        let shelf = self.shelves.entry(place).or_default();
        shelf.digest ^= digest_of(&record);
        let until = now + lifetime;
        let stored = Stored {
            record,
            until,
            host,
        };
        shelf.records.insert(identity, stored);
        Verdict::Kept
    }

    fn remove(&mut self, place: Key, identity: Key) {
        let Some(shelf) = self.shelves.get_mut(&place) else {
            return;
        };
        let Some(stored) = shelf.records.remove(&identity) else {
            return;
        };
        shelf.digest ^= digest_of(&stored.record);
        let cost = cost(&stored.record);
        self.bytes -= cost;
        take_from(&mut self.hosts, &stored.host, cost);
        take_from(&mut self.publishers, &stored.record.publisher, 1);
    }

    /// The records of a place above `after`, as many as fit in `bytes`; none for a searcher with
    /// all of them.
    pub(crate) fn page(
        &self,
        now: Instant,
        place: Key,
        (after, digest): (u128, u64),
        mut bytes: usize,
    ) -> Page {
        let mut page = Page {
            held: 0,
            split: false,
            records: Vec::new(),
        };
        let Some(shelf) = self.shelves.get(&place) else {
            return page;
        };
        page.split = shelf.split_until.is_some_and(|until| until > now);
        let live = |stored: &&Stored| stored.until > now;
        let held = shelf.records.values().filter(live).count();
        page.held = u16::try_from(held).unwrap_or(u16::MAX);
        if digest == shelf.digest {
            return page;
        }
        let Some(next) = after.checked_add(1) else {
            return page;
        };
        // The smallest identity may be 0, which is above nothing.
        let from = if after == 0 { 0 } else { next };
        for (_, stored) in shelf.records.range(Key::new(from)..) {
            if stored.until <= now {
                continue;
            }
            let Some(left) = bytes.checked_sub(stored.record.wire_bytes()) else {
                break;
            };
            bytes = left;
            page.records.push(stored.record.clone());
        }
        page
    }

    /// Removes expired records.
    pub(crate) fn expire(&mut self, now: Instant) {
        let ended: Vec<(Key, Key)> = self
            .shelves
            .iter()
            .flat_map(|(place, shelf)| {
                let ended = shelf.records.iter().filter(|(_, it)| it.until <= now);
                ended.map(|(identity, _)| (*place, *identity))
            })
            .collect();
        for (place, identity) in ended {
            self.remove(place, identity);
        }
        self.shelves.retain(|_, shelf| {
            !shelf.records.is_empty() || shelf.split_until.is_some_and(|until| until > now)
        });
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let all = || self.shelves.values().flat_map(|it| it.records.values());
        let bytes: usize = all().map(|stored| cost(&stored.record)).sum();
        if bytes != self.bytes || self.bytes > self.bytes_max {
            return Err(format!(
                "{bytes} bytes are stored, {} are counted",
                self.bytes
            ));
        }
        if all().count() != self.len() || self.hosts.values().sum::<usize>() != bytes {
            return Err("records are counted wrongly".to_owned());
        }
        for (place, shelf) in &self.shelves {
            let digest = shelf.records.values().map(|it| digest_of(&it.record));
            if digest.fold(0, |sum, it| sum ^ it) != shelf.digest {
                return Err(format!("the digest of {place} is wrong"));
            }
        }
        Ok(())
    }
}

fn take_from<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K, amount: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count -= amount;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;
    const PLACE: Key = Key::new(7);

    fn store() -> Store {
        Store::new(&Config::new(1, [0; 32]))
    }

    fn record(publisher: u8, slot: u16, sequence: u64) -> Record {
        Record {
            publisher: PublicKey::new([publisher; 32]),
            key: PLACE,
            slot,
            sequence,
            lifetime_s: 60,
            expires_s: 0,
            value: vec![publisher; 100],
            signature: [0; 64],
        }
    }

    #[test]
    fn the_newest_is_kept_and_the_same_again_prolongs_nothing() {
        let mut store = store();
        let later = NOW + Duration::from_secs(59);
        assert_eq!(store.put(NOW, PLACE, record(1, 0, 5), 1), Verdict::Kept);
        assert_eq!(store.put(later, PLACE, record(1, 0, 5), 1), Verdict::Kept);
        assert_eq!(
            store.put(later, PLACE, record(1, 0, 4), 1),
            Verdict::Outdated
        );
        let ended = NOW + Duration::from_secs(60);
        assert_eq!(store.page(ended, PLACE, (0, 0), 2_000).held, 0);
        store.expire(ended);
        assert_eq!((store.len(), store.bytes()), (0, 0));
        assert_eq!(store.put(later, PLACE, record(1, 0, 6), 1), Verdict::Kept);
        assert_eq!(store.page(ended, PLACE, (0, 0), 2_000).held, 1);
        store.check().unwrap();
    }

    #[test]
    fn a_place_that_is_full_is_split() {
        let config = Config {
            place_records: 64,
            ..Config::new(1, [0; 32])
        };
        let mut store = Store::new(&config);
        for publisher in 0..64 {
            let put = store.put(NOW, PLACE, record(publisher, 0, 1), 1);
            assert_eq!(put, Verdict::Kept);
        }
        assert!(!store.page(NOW, PLACE, (0, 0), 0).split);
        assert_eq!(store.put(NOW, PLACE, record(64, 0, 1), 1), Verdict::Full);
        assert_eq!(store.put(NOW, PLACE, record(3, 0, 2), 1), Verdict::Kept);
        assert!(store.page(NOW, PLACE, (0, 0), 0).split);
        let later = NOW + Duration::from_secs(60);
        assert!(!store.page(later, PLACE, (0, 0), 0).split);
        store.check().unwrap();
    }

    #[test]
    fn pages_go_on_where_the_last_ended_and_a_digest_spares_them() {
        let mut store = store();
        let mut digest = 0;
        for publisher in 0..20 {
            digest ^= digest_of(&record(publisher, 0, 1));
            store.put(NOW, PLACE, record(publisher, 0, 1), 1);
        }
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = store.page(NOW, PLACE, (after, 0), 1_000);
            assert_eq!(page.held, 20);
            assert!(page.records.iter().map(Record::wire_bytes).sum::<usize>() <= 1_000);
            let Some(last) = page.records.last() else {
                break;
            };
            after = last.identity().number();
            seen.extend(page.records);
        }
        assert_eq!(seen.len(), 20);
        let page = store.page(NOW, PLACE, (0, digest), 1_000);
        assert_eq!((page.held, page.records.len()), (20, 0));
    }

    #[test]
    fn nobody_takes_more_than_a_share() {
        let mut store = store();
        let slots = (0..1_000).filter(|slot| {
            let place = Key::new(u128::from(*slot));
            store.put(NOW, place, record(1, *slot, 1), u64::from(*slot)) == Verdict::Kept
        });
        assert_eq!(slots.count(), 256, "of one publisher");
        let mut store = self::store();
        let cost = cost(&record(0, 0, 0));
        let mut kept = 0;
        for publisher in 0..255 {
            for slot in 0..255 {
                let place = Key::new(u128::from(slot) << 8 | u128::from(publisher));
                kept += usize::from(
                    store.put(NOW, place, record(publisher, slot, 1), 9) == Verdict::Kept,
                );
            }
        }
        assert_eq!(kept, (4 << 20) / 4 / cost, "of one host");
        store.check().unwrap();
    }
}
