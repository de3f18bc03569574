//! Recognizes messages that were accepted before.
//!
//! A message is remembered until its timestamp refuses it. Each accepted message gives a
//! [`ReplayRecord`]; whoever stores it before the message has an effect recognizes replays after a
//! restart too, by [`ReplayCache::restore`]. Without stored records, [`ReplayCache::new`] refuses
//! messages created before the restart.

use std::collections::{BTreeSet, HashMap};

use ring::digest::{SHA256, digest};

use super::SecurityError;

/// Maximum remembered messages. Default 65,536: 180 each second for 6 minutes, in about 12 MB. When
/// they are full, messages are refused: to forget one would be to accept its replay.
pub const REPLAYS_MAX: usize = 65_536;
/// Maximum remembered messages of one key, so that one signer cannot shut out the others. Default a
/// quarter of all.
pub const REPLAYS_OF_SIGNER_MAX: usize = REPLAYS_MAX / 4;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 32 + 8 + 8 + CHECK_BYTES;
const CHECK_BYTES: usize = 8;

/// The stored form of one accepted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRecord([u8; RECORD_BYTES]);

impl ReplayRecord {
    /// The bytes to append to the file of records.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; RECORD_BYTES] {
        &self.0
    }

    fn new(message: &[u8; 32], entry: Entry) -> Self {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..32].copy_from_slice(message);
        bytes[32..40].copy_from_slice(&entry.signer);
        bytes[40..48].copy_from_slice(&entry.last.to_be_bytes());
        let check = digest(&SHA256, &bytes[..48]);
        bytes[48..].copy_from_slice(&check.as_ref()[..CHECK_BYTES]);
        Self(bytes)
    }

    /// The message and its entry; `None` if the bytes are damaged.
    fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<([u8; 32], Entry)> {
        let message = *bytes.first_chunk::<32>()?;
        let entry = Entry {
            signer: bytes[32..40].try_into().ok()?,
            last: u64::from_be_bytes(bytes[40..48].try_into().ok()?),
        };
        (Self::new(&message, entry).0 == *bytes).then_some((message, entry))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The first bytes of the hash of the signer's key.
    signer: [u8; 8],
    /// The last second at which the message could be accepted.
    last: u64,
}

/// Messages that were accepted and may come again.
#[derive(Debug, Clone, Default)]
pub struct ReplayCache {
    messages: HashMap<[u8; 32], Entry>,
    /// The messages by the second at which they are forgotten.
    order: BTreeSet<(u64, [u8; 32])>,
    of_signer: HashMap<[u8; 8], usize>,
    /// Messages created up to then may have been accepted without being known here.
    unknown_until: Option<u64>,
    /// The latest of the seconds until which forgotten messages could be accepted. A clock that is
    /// set back must not make them acceptable again.
    forgotten: Option<u64>,
}

/// What [`ReplayCache::restore`] found.
#[derive(Debug)]
pub struct Restored {
    /// The cache.
    pub cache: ReplayCache,
    /// Damaged records. If there are any, messages created before the restart are refused.
    pub damaged: usize,
}

impl ReplayCache {
    /// A cache without messages that trusts that none was accepted before: for the first start, and
    /// for tests.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// A cache without messages after a restart at `unix_s`, which refuses messages that were created
    /// before it. Clocks differ, so that messages of the next seconds of `clock_skew` are refused too.
    #[must_use]
    pub fn new(unix_s: u64, clock_skew: std::time::Duration) -> Self {
        Self {
            unknown_until: Some(unix_s.saturating_add(clock_skew.as_secs())),
            ..Self::default()
        }
    }

    /// The cache of stored records. A part of a record at the end is ignored: it was not stored, so
    /// its message had no effect. A damaged record might have been of any message, so that then the
    /// cache is as after [`new`](Self::new) besides the records that are sound.
    #[must_use]
    pub fn restore(records: &[u8], unix_s: u64, clock_skew: std::time::Duration) -> Restored {
        let mut cache = Self::empty();
        let (records, _) = records.as_chunks::<RECORD_BYTES>();
        let mut damaged = 0;
        for record in records {
            match ReplayRecord::parse(record) {
                Some((_, entry)) if entry.last < unix_s => {
                    cache.forgotten = cache.forgotten.max(Some(entry.last));
                }
                Some((message, entry)) if cache.messages.len() < REPLAYS_MAX => {
                    cache.insert(message, entry);
                }
                _ => damaged += 1,
            }
        }
        if damaged > 0 {
            cache.unknown_until = Self::new(unix_s, clock_skew).unknown_until;
        }
        Restored { cache, damaged }
    }

    /// The records of all remembered messages: the compact form of the file of records.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.order
            .iter()
            .filter_map(|(_, message)| {
                let entry = self.messages.get(message)?;
                Some(ReplayRecord::new(message, *entry).0)
            })
            .flatten()
            .collect()
    }

    /// The number of remembered messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether no message is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Remembers a message, created at `created`, that can be accepted until `last`.
    pub(super) fn accept(
        &mut self,
        message: [u8; 32],
        key_hash: &[u8; 32],
        (created, last): (u64, u64),
        unix_s: u64,
    ) -> Result<ReplayRecord, SecurityError> {
        self.forget(unix_s);
        let is_unknown = self.unknown_until.is_some_and(|until| created <= until);
        if is_unknown || self.forgotten.is_some_and(|until| last <= until) {
            return Err(SecurityError::BeforeReplays);
        }
        if self.messages.contains_key(&message) {
            return Err(SecurityError::Replayed);
        }
        if self.messages.len() >= REPLAYS_MAX {
            return Err(SecurityError::ReplaysFull("of all signers"));
        }
        let signer = *key_hash.first_chunk().unwrap_or(&[0; 8]);
        let of_signer = self.of_signer.get(&signer).copied().unwrap_or_default();
        if of_signer >= REPLAYS_OF_SIGNER_MAX {
            return Err(SecurityError::ReplaysFull("of one signer"));
        }
        let entry = Entry { signer, last };
        self.insert(message, entry);
        Ok(ReplayRecord::new(&message, entry))
    }

    fn insert(&mut self, message: [u8; 32], entry: Entry) {
        if self.messages.insert(message, entry).is_none() {
            self.order.insert((entry.last, message));
            *self.of_signer.entry(entry.signer).or_default() += 1;
        }
    }

    /// Removes messages that the timestamp check refuses.
    fn forget(&mut self, unix_s: u64) {
        while let Some((last, message)) = self.order.first().copied() {
            if last >= unix_s {
                break;
            }
            self.order.pop_first();
            self.forgotten = self.forgotten.max(Some(last));
            let Some(entry) = self.messages.remove(&message) else {
                continue;
            };
            if let Some(count) = self.of_signer.get_mut(&entry.signer) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.of_signer.remove(&entry.signer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const SKEW: Duration = Duration::from_secs(60);

    fn message(number: u64) -> [u8; 32] {
        let mut message = [0; 32];
        message[..8].copy_from_slice(&number.to_be_bytes());
        message
    }

    #[test]
    fn one_signer_cannot_shut_out_others() {
        let mut cache = ReplayCache::empty();
        let mut accept = |number, signer: u8| {
            let number = message(number);
            cache.accept(number, &[signer; 32], (0, 10), 0)
        };
        for number in 0..REPLAYS_OF_SIGNER_MAX as u64 {
            accept(number, 1).unwrap();
        }
        let full = accept(u64::MAX, 1).unwrap_err();
        assert_eq!(full, SecurityError::ReplaysFull("of one signer"));
        assert!(accept(u64::MAX, 2).is_ok());
        let later = cache.accept(message(7), &[1; 32], (11, 20), 11);
        assert!(later.is_ok(), "the others are forgotten");
        assert_eq!(cache.len(), 1);
        assert_eq!(cache.of_signer.len(), 1);
    }

    #[test]
    fn without_records_older_messages_are_refused() {
        let mut cache = ReplayCache::new(1_000, SKEW);
        let refused = cache.accept(message(1), &[1; 32], (1_060, 2_000), 1_001);
        assert_eq!(refused, Err(SecurityError::BeforeReplays));
        assert!(
            cache
                .accept(message(1), &[1; 32], (1_061, 2_000), 1_001)
                .is_ok()
        );
    }

    #[test]
    fn a_clock_set_back_is_no_way_to_replay() {
        let mut cache = ReplayCache::empty();
        cache.accept(message(1), &[1; 32], (0, 500), 0).unwrap();
        cache
            .accept(message(2), &[1; 32], (900, 1_400), 1_000)
            .unwrap();
        let again = cache.accept(message(1), &[1; 32], (0, 500), 400);
        assert_eq!(again, Err(SecurityError::BeforeReplays));
        assert!(cache.accept(message(3), &[1; 32], (400, 900), 400).is_ok());
    }

    #[test]
    fn damage_is_no_way_to_replay() {
        let mut cache = ReplayCache::empty();
        for number in 0..3 {
            cache
                .accept(message(number), &[1; 32], (0, 500), 0)
                .unwrap();
        }
        let bytes = cache.to_bytes();
        let torn = ReplayCache::restore(&bytes[..bytes.len() - 1], 100, SKEW);
        assert_eq!((torn.damaged, torn.cache.len()), (0, 2));
        for index in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[index] ^= 1;
            let mut restored = ReplayCache::restore(&bytes, 100, SKEW);
            assert_eq!((restored.damaged, restored.cache.len()), (1, 2));
            for number in 0..3 {
                let again = restored
                    .cache
                    .accept(message(number), &[1; 32], (0, 500), 101);
                assert!(again.is_err(), "byte {index}");
            }
        }
    }

    proptest! {
        /// Messages with random times, and restarts between: each is accepted at most once.
        #[test]
        fn no_message_is_accepted_twice(
            steps in prop::collection::vec((0..8_u64, 0..4_u64, any::<bool>()), 0..60),
        ) {
            let mut cache = ReplayCache::empty();
            let mut records = Vec::new();
            let mut accepted = BTreeSet::new();
            let mut now = 0;
            for (number, seconds, restarts) in steps {
                now += seconds;
                let (created, last) = (number, number + 20);
                if last < now {
                    continue;
                }
                let result = cache.accept(message(number), &[number as u8 & 1; 32], (created, last), now);
                prop_assert_eq!(result.is_ok(), accepted.insert(number));
                if let Ok(record) = result {
                    records.extend_from_slice(record.as_bytes());
                }
                if restarts {
                    cache = ReplayCache::restore(&records, now, SKEW).cache;
                    let compact = ReplayCache::restore(&cache.to_bytes(), now, SKEW).cache;
                    prop_assert_eq!(&compact.messages, &cache.messages);
                    prop_assert_eq!(&compact.of_signer, &cache.of_signer);
                }
            }
        }
    }
}
