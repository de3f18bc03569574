//! A record: a value under a key, signed by its publisher, for a limited time.
//!
//! A holder stores the newest record of each publisher, key and slot, for at most the record's
//! lifetime after its first arrival. Storing the same record again does not extend its life, so a
//! record outlives its publisher by at most its lifetime, whoever keeps storing it. Holders that
//! know the time of day refuse expired records.

use chappe_identity::PublicKey;
use chappe_machine::wire::Reader;

use crate::cryptography::{Cryptography, SIGNATURE_BYTES};
use crate::{KEY_BYTES, Key};

/// Maximum length of a record's value in bytes: with all fields a record fills one packet.
pub const VALUE_BYTES_MAX: usize = 900;
/// Maximum lifetime of a record in seconds. Reason: a record that is not renewed within two hours
/// expires.
pub const LIFETIME_S_MAX: u32 = 7_200;
/// Maximum difference of the clocks of publisher and holder in seconds. Reason: devices set by
/// hand.
pub const CLOCK_SLACK_S: u64 = 600;

/// Bytes of a record without its value.
pub(crate) const RECORD_BYTES: usize = 32 + KEY_BYTES + 2 + 8 + 4 + 8 + 2 + SIGNATURE_BYTES;

/// A signed value under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The publisher's key.
    pub publisher: PublicKey,
    /// The key under which it is found, without salt.
    pub key: Key,
    /// Distinguishes the publisher's records under one key.
    pub slot: u16,
    /// Of two records of one publisher, key and slot, the newer has the higher number.
    pub sequence: u64,
    /// Time for which a holder stores it after its arrival, in seconds; at most [`LIFETIME_S_MAX`].
    pub lifetime_s: u32,
    /// Its expiry by the publisher's clock, in seconds since 1970 (UTC); 0: the publisher has no
    /// clock.
    pub expires_s: u64,
    /// The value; at most [`VALUE_BYTES_MAX`] bytes.
    pub value: Vec<u8>,
    /// The publisher's signature over all other fields.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl Record {
    /// Signs a record with the node's own key. Holders refuse a longer value or lifetime.
    #[must_use]
    pub fn sign(
        cryptography: &impl Cryptography,
        (key, slot): (Key, u16),
        sequence: u64,
        (lifetime_s, expires_s): (u32, u64),
        value: Vec<u8>,
    ) -> Self {
        let mut record = Self {
            publisher: cryptography.public(),
            key,
            slot,
            sequence,
            lifetime_s,
            expires_s,
            value,
            signature: [0; SIGNATURE_BYTES],
        };
        record.signature = cryptography.sign(&record.statement());
        record
    }

    /// Whether the publisher signed it.
    #[must_use]
    pub fn is_signed(&self, cryptography: &impl Cryptography) -> bool {
        cryptography.verify(&self.publisher, &self.statement(), &self.signature)
    }

    /// Identifies it among the records under its key; also selects its place when the key is split.
    #[must_use]
    pub fn identity(&self) -> Key {
        identity(&self.publisher, self.slot)
    }

    /// Its length in a message, in bytes.
    pub(crate) fn wire_bytes(&self) -> usize {
        RECORD_BYTES + self.value.len()
    }

    fn statement(&self) -> Vec<u8> {
        let mut bytes = b"chappe kad record 1".to_vec();
        self.write_unsigned(&mut bytes);
        bytes
    }

    fn write_unsigned(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.publisher.as_bytes());
        to.extend_from_slice(&self.key.to_bytes());
        to.extend_from_slice(&self.slot.to_be_bytes());
        to.extend_from_slice(&self.sequence.to_be_bytes());
        to.extend_from_slice(&self.lifetime_s.to_be_bytes());
        to.extend_from_slice(&self.expires_s.to_be_bytes());
        // A longer value is refused before it is written.
        to.extend_from_slice(&(self.value.len() as u16).to_be_bytes());
        to.extend_from_slice(&self.value);
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        self.write_unsigned(to);
        to.extend_from_slice(&self.signature);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let publisher = PublicKey::new(from.array()?);
        let key = Key::from_bytes(from.array()?);
        let slot = u16::from_be_bytes(from.array()?);
        let sequence = u64::from_be_bytes(from.array()?);
        let lifetime_s = u32::from_be_bytes(from.array()?);
        let expires_s = u64::from_be_bytes(from.array()?);
        let length = usize::from(u16::from_be_bytes(from.array()?));
        if length > VALUE_BYTES_MAX || !(1..=LIFETIME_S_MAX).contains(&lifetime_s) {
            return None;
        }
        Some(Self {
            publisher,
            key,
            slot,
            sequence,
            lifetime_s,
            expires_s,
            value: from.take(length)?.to_vec(),
            signature: from.array()?,
        })
    }

    /// Whether it has expired, or expires impossibly late, at the time `unix_s`.
    #[must_use]
    pub fn is_out_of_time(&self, unix_s: u64) -> bool {
        let latest = unix_s.saturating_add(u64::from(self.lifetime_s) + CLOCK_SLACK_S);
        self.expires_s != 0
            && (self.expires_s.saturating_add(CLOCK_SLACK_S) < unix_s || self.expires_s > latest)
    }
}

/// Signs own records and checks those of others, at one time of day.
#[derive(Debug)]
pub(crate) struct Notary<'a, C> {
    pub(crate) cryptography: &'a C,
    /// Seconds since 1970, if the node knows the time of day.
    pub(crate) unix_s: Option<u64>,
}

impl<C: Cryptography> Notary<'_, C> {
    /// Whether a record is neither expired nor too far in the future. A node without a clock accepts any
    /// time.
    pub(crate) fn is_in_time(&self, record: &Record) -> bool {
        let is_wrong = |unix_s| record.is_out_of_time(unix_s);
        !self.unix_s.is_some_and(is_wrong)
    }

    pub(crate) fn is_signed(&self, record: &Record) -> bool {
        record.is_signed(self.cryptography)
    }
}

/// The identity of a publisher's record in a slot.
pub(crate) fn identity(publisher: &PublicKey, slot: u16) -> Key {
    Key::derive(
        "chappe kad record 1",
        &[publisher.as_bytes(), &slot.to_be_bytes()],
    )
}
