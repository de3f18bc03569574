//! Own records and records stored for other nodes.
//!
//! [`Publications`] holds the values that this node publishes, schedules the renewal of their records,
//! signs them, and stores records for other nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_machine::{Instant, Timers};

use super::lookups::{NewRecord, StoredRecord};
use crate::contact::{PackedAddress, host};
use crate::cryptography::Cryptography;
use crate::message::Verdict;
use crate::record::Notary;
use crate::store::{Page, Store};
use crate::{Config, Contact, Key, Misuse, Record, VALUE_BYTES_MAX};

/// Keys of one publication. Reason: types and scopes of a device.
const KEYS_MAX: usize = 64;
/// The first wait until a record with too few holders is stored again; each further wait is twice as
/// long.
const RETRY_MIN: Duration = Duration::from_secs(15);
/// The lifetime of a record that replaces one that was withdrawn.
const WITHDRAWAL_LIFETIME: Duration = Duration::from_secs(1);

/// A value that this node publishes.
#[derive(Debug)]
struct Publication {
    keys: Vec<Key>,
    value: Vec<u8>,
    /// Since the last renewal, a record was stored at fewer nodes than a search asks.
    has_few_holders: bool,
    /// The wait before the renewal in that case.
    retry: Duration,
}

/// Own publications, and records stored for others.
#[derive(Debug)]
pub(super) struct Publications {
    publications: BTreeMap<u16, Publication>,
    publications_max: usize,
    republish: Duration,
    lifetime: Duration,
    /// The last sequence number of an own record.
    sequence: u64,
    store: Store,
    /// The next renewal of each publication.
    timers: Timers<u16>,
}

impl Publications {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            publications: BTreeMap::new(),
            publications_max: config.publications_max,
            republish: config.republish,
            lifetime: config.lifetime,
            sequence: u64::from(config.boot) << 32,
            store: Store::new(config),
            timers: Timers::default(),
        }
    }

    /// Own publications.
    pub(super) fn len(&self) -> usize {
        self.publications.len()
    }

    /// The earliest renewal.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    // -- own records --

    /// Publishes a value; replaces the previous one in this slot. Returns the keys of the old value to
    /// withdraw. The caller then calls [`Publications::renew`].
    ///
    /// # Errors
    /// The value, the keys or the publications exceed their limit.
    pub(super) fn publish(
        &mut self,
        slot: u16,
        keys: Vec<Key>,
        value: Vec<u8>,
    ) -> Result<Vec<Key>, Misuse> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Misuse::TooLong {
                bytes: value.len(),
                most: VALUE_BYTES_MAX,
            });
        }
        if keys.len() > KEYS_MAX {
            return Err(Misuse::TooMany(KEYS_MAX));
        }
        if !self.publications.contains_key(&slot)
            && self.publications.len() >= self.publications_max
        {
            return Err(Misuse::TooMany(self.publications_max));
        }
        let mut old_keys = self.publications.remove(&slot).map_or(vec![], |it| it.keys);
        old_keys.retain(|key| !keys.contains(key));
        let publication = Publication {
            keys,
            value,
            has_few_holders: false,
            retry: RETRY_MIN,
        };
        self.publications.insert(slot, publication);
        Ok(old_keys)
    }

    /// Ends a publication; returns the keys to withdraw.
    pub(super) fn withdraw(&mut self, slot: u16) -> Vec<Key> {
        self.timers.cancel(&slot);
        self.publications.remove(&slot).map_or(vec![], |it| it.keys)
    }

    /// The next publication whose renewal is due.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<u16> {
        self.timers.pop(now)
    }

    /// Schedules the next renewal of a publication; returns the keys whose records must be stored now.
    pub(super) fn renew(
        &mut self,
        now: Instant,
        slot: u16,
        random: &mut fastrand::Rng,
    ) -> Vec<Key> {
        let Some(publication) = self.publications.get_mut(&slot) else {
            return Vec::new();
        };
        publication.retry = match std::mem::take(&mut publication.has_few_holders) {
            true => (publication.retry * 2).min(self.republish),
            false => RETRY_MIN.min(self.republish),
        };
        let wait = shortened(self.republish, random);
        self.timers.set(slot, now + wait);
        publication.keys.clone()
    }

    /// Signs the record of a publication under a key; `None` if the publication has ended.
    pub(super) fn record<C: Cryptography>(
        &mut self,
        (slot, key, level): (u16, Key, u8),
        notary: &Notary<'_, C>,
    ) -> Option<NewRecord> {
        let value = self.publications.get(&slot)?.value.clone();
        let record = self.sign((key, slot), self.lifetime, value, notary);
        Some(NewRecord {
            slot,
            level,
            record,
            is_withdrawal: false,
        })
    }

    /// Signs a record that replaces one of an ended publication and expires soon.
    pub(super) fn withdrawal<C: Cryptography>(
        &mut self,
        (slot, key, level): (u16, Key, u8),
        notary: &Notary<'_, C>,
    ) -> NewRecord {
        let record = self.sign((key, slot), WITHDRAWAL_LIFETIME, Vec::new(), notary);
        NewRecord {
            slot,
            level,
            record,
            is_withdrawal: true,
        }
    }

    fn sign<C: Cryptography>(
        &mut self,
        about: (Key, u16),
        lifetime: Duration,
        value: Vec<u8>,
        notary: &Notary<'_, C>,
    ) -> Record {
        self.sequence += 1;
        let lifetime_s = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let end = |unix_s: u64| unix_s + u64::from(lifetime_s);
        let times = (lifetime_s, notary.unix_s.map_or(0, end));
        Record::sign(notary.cryptography, about, self.sequence, times, value)
    }

    /// Handles a stored record. If fewer than `wanted` nodes answered, it is renewed sooner.
    pub(super) fn on_stored(
        &mut self,
        now: Instant,
        stored: &StoredRecord,
        wanted: usize,
        random: &mut fastrand::Rng,
    ) {
        if !stored.is_withdrawal
            && (stored.answers() as usize) < wanted
            && let Some(publication) = self.publications.get_mut(&stored.slot)
        {
            publication.has_few_holders = true;
            let wait = shortened(publication.retry, random);
            self.timers.set(stored.slot, now + wait);
        }
    }

    // -- kept records --

    /// The number of records stored for others, and their size in bytes.
    pub(super) fn stored(&self) -> (usize, usize) {
        (self.store.len(), self.store.bytes())
    }

    /// Stores a record for another node if its time and signature are valid.
    pub(super) fn store_record<C: Cryptography>(
        &mut self,
        now: Instant,
        from: &Contact,
        place: Key,
        record: Record,
        notary: &Notary<'_, C>,
    ) -> Verdict {
        // The signature last: it is the most expensive check.
        if !notary.is_in_time(&record) || !notary.is_signed(&record) {
            return Verdict::Rejected;
        }
        let host = host(&PackedAddress::from(from.address));
        self.store.put(now, place, record, host)
    }

    /// Stores an own record, which counts towards no other host's share.
    pub(super) fn store_own_record(&mut self, now: Instant, place: Key, record: Record) -> Verdict {
        self.store.put(now, place, record, 0)
    }

    /// The stored records of a place after an identity, as many as fit in `bytes`.
    pub(super) fn page(
        &self,
        now: Instant,
        place: Key,
        (after, digest): (u128, u64),
        bytes: usize,
    ) -> Page {
        self.store.page(now, place, (after, digest), bytes)
    }

    /// Removes stored records whose lifetime has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        self.store.expire(now);
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.store.check()
    }
}

/// A wait shortened by up to a tenth, so that nodes do not act at the same time.
fn shortened(wait: Duration, random: &mut fastrand::Rng) -> Duration {
    wait.mul_f64(1.0 - random.f64() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Published;

    const NOW: Instant = Instant::ZERO;

    fn publications() -> Publications {
        Publications::new(&Config::new(1, [0; 32]))
    }

    #[test]
    fn a_changed_publication_withdraws_only_its_old_keys() {
        let mut publications = publications();
        let [a, b, c] = [1, 2, 3].map(Key::new);
        assert_eq!(publications.publish(0, vec![a, b], vec![1]), Ok(vec![]));
        assert_eq!(publications.publish(0, vec![b, c], vec![2]), Ok(vec![a]));
        assert_eq!(publications.withdraw(0), [b, c]);
        assert_eq!(publications.len(), 0);
    }

    #[test]
    fn a_record_with_few_holders_is_renewed_sooner() {
        let mut publications = publications();
        let mut random = fastrand::Rng::with_seed(1);
        let key = Key::new(1);
        assert_eq!(publications.publish(0, vec![key], vec![1]), Ok(vec![]));
        assert_eq!(publications.renew(NOW, 0, &mut random), [key]);
        let usual = publications.deadline().unwrap() - NOW;
        let stored = StoredRecord {
            slot: 0,
            key,
            level: 0,
            is_withdrawal: false,
            outcome: Published::default(),
        };
        publications.on_stored(NOW, &stored, 1, &mut random);
        let soon = publications.deadline().unwrap() - NOW;
        assert!(soon <= RETRY_MIN && RETRY_MIN < usual, "{soon:?} {usual:?}");
    }
}
