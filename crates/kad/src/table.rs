//! The routing table: buckets of contacts by the number of leading bits shared with the own place.
//!
//! Source: Maymounkov, Mazières: Kademlia (2002), sections 2.2, 2.4 and 4.1 (replacement cache).
//! In addition, only nodes that have proven their key and address are added; a full bucket keeps
//! its contacts spread over 16 cells, so a crowd at one place fills one cell; contacts of one host
//! are limited.

use std::net::SocketAddr;

use chappe_identity::PublicKey;

use crate::config::{FAILURES_LAST, FAILURES_MAX, SPREAD_BITS};
use crate::contact::{PackedAddress, host};
use crate::{Config, Contact, KEY_BITS, Key};

/// A contact and its state: 80 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) place: Key,
    public: PublicKey,
    address: PackedAddress,
    failures: u8,
    seen_s: u32,
}

impl Entry {
    pub(crate) fn new(place: Key, contact: &Contact, now_s: u32) -> Self {
        Self {
            place,
            public: contact.public,
            address: contact.address.into(),
            failures: 0,
            seen_s: now_s,
        }
    }

    pub(crate) fn contact(&self) -> Contact {
        Contact {
            public: self.public,
            address: self.address.into(),
        }
    }

    fn placed(&self) -> (Key, Contact) {
        (self.place, self.contact())
    }
}

#[derive(Debug, Default)]
struct Bucket {
    entries: Vec<Entry>,
    spares: Vec<Entry>,
    refreshed_s: u32,
}

/// The buckets of a node.
#[derive(Debug)]
pub(crate) struct Table {
    own: Key,
    contacts: usize,
    spares: usize,
    host_contacts: usize,
    /// By shared bits; none beyond the deepest that was ever used.
    buckets: Vec<Bucket>,
}

impl Table {
    pub(crate) fn new(own: Key, config: &Config) -> Self {
        Self {
            own,
            contacts: config.bucket_contacts,
            spares: config.bucket_spares,
            host_contacts: config.host_contacts,
            buckets: Vec::new(),
        }
    }

    fn index(&self, place: Key) -> Option<usize> {
        // Below 128 except for the own place.
        (place != self.own).then(|| self.own.shared_bits(place) as usize)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.buckets.iter().flat_map(|bucket| &bucket.entries)
    }

    /// The place of this node.
    pub(crate) fn own(&self) -> Key {
        self.own
    }

    /// The number of contacts.
    pub(crate) fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.entries.len()).sum()
    }

    /// All contacts.
    pub(crate) fn contacts(&self) -> impl Iterator<Item = Contact> {
        self.entries().map(Entry::contact)
    }

    /// Whether a node at this place would be added, so that it is worth asking.
    pub(crate) fn wants(&self, place: Key) -> bool {
        let Some(index) = self.index(place) else {
            return false;
        };
        let Some(bucket) = self.buckets.get(index) else {
            return true;
        };
        !bucket.entries.iter().any(|entry| entry.place == place)
            && (bucket.entries.len() < self.contacts || self.crowded(index, place).is_some())
    }

    fn cell(index: usize, place: Key) -> u32 {
        // At most 127.
        place.bits(index as u32 + 1, SPREAD_BITS)
    }

    /// The entry of a full bucket to replace with a newcomer whose cell is empty: the youngest of a
    /// cell with several.
    fn crowded(&self, index: usize, place: Key) -> Option<usize> {
        let mut cells = [0_u8; 1 << SPREAD_BITS];
        let entries = &self.buckets.get(index)?.entries;
        for entry in entries {
            cells[Self::cell(index, entry.place) as usize] += 1;
        }
        if cells[Self::cell(index, place) as usize] > 0 {
            return None;
        }
        entries
            .iter()
            .rposition(|entry| cells[Self::cell(index, entry.place) as usize] > 1)
    }

    /// Records that a node has answered, or asked with a valid token. Returns a contact to ping if
    /// that contact has been silent for long and this one waits to replace it.
    pub(crate) fn observe(&mut self, entry: Entry, silence_s: u32) -> Option<Contact> {
        let index = self.index(entry.place)?;
        if self.buckets.len() <= index {
            self.buckets.resize_with(index + 1, Bucket::default);
        }
        let bucket = &mut self.buckets[index];
        let known = |known: &&mut Entry| known.place == entry.place;
        if let Some(known) = bucket.entries.iter_mut().find(known) {
            *known = entry;
            return None;
        }
        bucket.spares.retain(|spare| spare.place != entry.place);
        let address = SocketAddr::from(entry.address);
        if !address.ip().is_loopback() {
            let same = |other: &&Entry| host(&other.address) == host(&entry.address);
            if self.entries().filter(same).count() >= self.host_contacts {
                return None;
            }
        }
        let crowded = self.crowded(index, entry.place);
        let (contacts, spares) = (self.contacts, self.spares);
        let bucket = &mut self.buckets[index];
        if bucket.entries.len() < contacts {
            bucket.entries.push(entry);
            return None;
        }
        let waits = match crowded {
            Some(crowded) => {
                let out = bucket.entries.remove(crowded);
                bucket.entries.push(entry);
                out
            }
            None => entry,
        };
        if spares > 0 {
            if bucket.spares.len() >= spares {
                bucket.spares.remove(0);
            }
            bucket.spares.push(waits);
        }
        let oldest = bucket.entries.iter().min_by_key(|entry| entry.seen_s)?;
        (entry.seen_s.saturating_sub(oldest.seen_s) > silence_s).then(|| oldest.contact())
    }

    /// Records a missing answer. Returns the contact if it was removed.
    pub(crate) fn on_failure(&mut self, place: Key) -> Option<Contact> {
        let index = self.index(place)?;
        let bucket = self.buckets.get_mut(index)?;
        bucket.spares.retain(|spare| spare.place != place);
        let at = bucket
            .entries
            .iter()
            .position(|entry| entry.place == place)?;
        let entry = &mut bucket.entries[at];
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        let spare = match failures {
            ..FAILURES_MAX => return None,
            FAILURES_MAX.. => bucket.spares.pop(),
        };
        let gone = match spare {
            Some(spare) => std::mem::replace(&mut bucket.entries[at], spare),
            None if failures >= FAILURES_LAST => bucket.entries.remove(at),
            None => return None,
        };
        Some(gone.contact())
    }

    /// The contacts that did not answer their last request.
    pub(crate) fn failing(&self) -> impl Iterator<Item = Contact> {
        self.entries()
            .filter(|entry| entry.failures > 0)
            .map(Entry::contact)
    }

    /// The contacts nearest to `target` with their places, nearest first; contacts that failed
    /// recently come last.
    pub(crate) fn closest(&self, target: Key, count: usize) -> Vec<(Key, Contact)> {
        let len = self.buckets.len();
        let own = self.index(target).map_or(len, |index| index.min(len));
        // Contacts in the target's own bucket share more bits with it than this node does, those in
        // lower buckets as many, those in higher buckets fewer and fewer.
        let groups = [own..len.min(own + 1), len.min(own + 1)..len]
            .into_iter()
            .chain((0..own).rev().map(|index| index..index + 1));
        let mut nearest: Vec<(bool, u128, &Entry)> = Vec::with_capacity(2 * self.contacts);
        let mut sound = 0;
        for group in groups {
            for entry in self.buckets[group].iter().flat_map(|it| &it.entries) {
                sound += usize::from(entry.failures == 0);
                nearest.push((entry.failures > 0, entry.place.distance(target), entry));
            }
            if sound >= count {
                break;
            }
        }
        nearest.sort_unstable_by_key(|(failed, distance, _)| (*failed, *distance));
        nearest
            .iter()
            .take(count)
            .map(|(_, _, entry)| entry.placed())
            .collect()
    }

    /// Random contacts that answered their last request, with their places.
    pub(crate) fn any(&self, count: usize, random: &mut fastrand::Rng) -> Vec<(Key, Contact)> {
        let mut entries: Vec<&Entry> = self.entries().filter(|it| it.failures == 0).collect();
        random.shuffle(&mut entries);
        let some = entries.into_iter().take(count);
        some.map(Entry::placed).collect()
    }

    /// Records a lookup for `target`.
    pub(crate) fn on_refreshed(&mut self, target: Key, now_s: u32) {
        let index = self.index(target);
        if let Some(bucket) = index.and_then(|index| self.buckets.get_mut(index)) {
            bucket.refreshed_s = now_s;
        }
    }

    /// The number of buckets down to the last that has a contact.
    pub(crate) fn depth(&self) -> u32 {
        let last = self.buckets.iter().rposition(|it| !it.entries.is_empty());
        last.map_or(0, |index| index as u32 + 1).min(KEY_BITS)
    }

    /// The first bucket without a lookup for `age_s`.
    pub(crate) fn stale(&self, now_s: u32, age_s: u32) -> Option<u32> {
        // At most 128 of them.
        let depth = self.depth() as usize;
        let is_stale = |bucket: &Bucket| now_s.saturating_sub(bucket.refreshed_s) >= age_s;
        let stale = self.buckets.iter().take(depth).position(is_stale);
        stale.map(|index| index as u32)
    }

    /// Size of the table in bytes, without the allocator's overhead.
    pub(crate) fn state_bytes(&self) -> usize {
        let of = |bucket: &Bucket| {
            size_of::<Bucket>()
                + (bucket.entries.capacity() + bucket.spares.capacity()) * size_of::<Entry>()
        };
        size_of::<Self>() + self.buckets.iter().map(of).sum::<usize>()
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, bucket) in self.buckets.iter().enumerate() {
            if bucket.entries.len() > self.contacts || bucket.spares.len() > self.spares {
                return Err(format!("bucket {index} has too many contacts"));
            }
            for (at, entry) in bucket.entries.iter().enumerate() {
                if self.index(entry.place) != Some(index) {
                    return Err(format!("{} is in the wrong bucket, {index}", entry.place));
                }
                let twice = |other: &Entry| other.place == entry.place;
                if bucket.entries[at + 1..]
                    .iter()
                    .chain(&bucket.spares)
                    .any(twice)
                {
                    return Err(format!("{} appears twice", entry.place));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(Key::new(0), &Config::new(1, [0; 32]))
    }

    fn entry(number: u128, now_s: u32) -> Entry {
        let mut public = [0; 32];
        public[..16].copy_from_slice(&number.to_be_bytes());
        // Each on its own host.
        let host = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 104) as u32;
        let address = std::net::Ipv4Addr::from(0x0a00_0000 | host);
        let contact = Contact {
            public: PublicKey::new(public),
            address: (address, 1).into(),
        };
        Entry::new(Key::new(number), &contact, now_s)
    }

    const TOP: u128 = 1 << 127;

    #[test]
    fn old_contacts_stay_and_spares_take_their_place() {
        let mut table = table();
        // All in one cell of the first bucket.
        for number in 0..30_u128 {
            table.observe(entry(TOP | number << 100, 0), 600);
            table.check().unwrap();
        }
        assert_eq!(table.len(), 16);
        let first = Key::new(TOP);
        for _ in 1..FAILURES_MAX {
            assert_eq!(table.on_failure(first), None);
            assert_eq!(table.failing().count(), 1);
        }
        assert_eq!(table.on_failure(first), Some(entry(TOP, 0).contact()));
        assert_eq!((table.len(), table.failing().count()), (16, 0));
        let newest = TOP | 29 << 100;
        assert!(table.entries().any(|entry| entry.place == Key::new(newest)));
        assert!(!table.entries().any(|entry| entry.place == first));
    }

    #[test]
    fn a_crowd_in_one_cell_gets_one_cell() {
        let mut table = table();
        for number in 0..100_u128 {
            table.observe(entry(TOP | number << 100, 0), 600);
        }
        for cell in 1..16_u128 {
            assert!(table.wants(Key::new(TOP | cell << 123)));
            table.observe(entry(TOP | cell << 123 | 1 << 101, 1), 600);
            table.check().unwrap();
        }
        let cells: std::collections::BTreeSet<_> = table
            .entries()
            .map(|entry| Table::cell(0, entry.place))
            .collect();
        assert_eq!((cells.len(), table.len()), (16, 16));
        assert!(!table.wants(Key::new(TOP | 2)));
    }

    #[test]
    fn one_host_gets_few_places() {
        let (mut many, mut one) = (table(), table());
        for number in 0..20_u16 {
            let mut entry = entry(TOP >> number, 0);
            many.observe(entry, 600);
            entry.address = SocketAddr::from(([10, 9, 9, 9], 1_000 + number)).into();
            one.observe(entry, 600);
        }
        assert_eq!((many.len(), one.len()), (20, 4));
    }

    #[test]
    fn the_silent_are_asked_before_they_are_replaced() {
        let mut table = table();
        for number in 0..16_u128 {
            table.observe(entry(TOP | number << 100, number as u32), 600);
        }
        assert_eq!(table.observe(entry(TOP | 16 << 100, 600), 600), None);
        let asked = table.observe(entry(TOP | 17 << 100, 700), 600);
        assert_eq!(asked, Some(entry(TOP, 0).contact()));
    }

    #[test]
    fn the_nearest_come_first_and_those_that_fail_last() {
        let mut table = table();
        for number in 0..40_u128 {
            table.observe(entry(1 << (87 + number), 0), 600);
        }
        let nearest = table.closest(Key::new(1 << 90), 3);
        assert_eq!(nearest[0].1, entry(1 << 90, 0).contact());
        table.on_failure(Key::new(1 << 90));
        assert_ne!(table.closest(Key::new(1 << 90), 3)[0], nearest[0]);
        assert_eq!(table.closest(Key::new(1 << 90), 100).len(), 40);
        assert_eq!(table.depth(), 41);
    }

    proptest::proptest! {
        #[test]
        fn the_table_holds_together(
            steps in proptest::collection::vec((0_u8..3, 0_u32..8, 0_u128..64), 0..400)
        ) {
            let mut table = table();
            for (now_s, (kind, shift, number)) in steps.into_iter().enumerate() {
                let place = (TOP | number << 115) >> shift;
                match kind {
                    0 | 1 => {
                        table.observe(entry(place, now_s as u32), 60);
                    }
                    _ => {
                        table.on_failure(Key::new(place));
                    }
                }
                proptest::prop_assert_eq!(table.check(), Ok(()));
            }
        }

        #[test]
        fn the_nearest_are_those_of_a_look_at_all(
            places in proptest::collection::vec((0_u32..12, 1_u128..64), 0..200),
            failed in proptest::collection::vec(0_usize..200, 0..20),
            target in (0_u32..12, 0_u128..64), count in 0_usize..40,
        ) {
            let mut table = table();
            let place = |(shift, number): (u32, u128)| number << 121 >> shift;
            for at in &places {
                table.observe(entry(place(*at), 0), 60);
            }
            for at in failed {
                if let Some(at) = places.get(at) {
                    table.on_failure(Key::new(place(*at)));
                }
            }
            let target = Key::new(place(target));
            let mut all: Vec<_> = table.entries().collect();
            all.sort_by_key(|it| (it.failures > 0, it.place.distance(target)));
            let all: Vec<_> = all.into_iter().take(count).map(Entry::placed).collect();
            proptest::prop_assert_eq!(table.closest(target, count), all);
        }
    }
}
