//! Authenticity: signatures of events, authentication of hops, receipts of sinks.
//!
//! - A **signature** (Ed25519) is the source's and stays with the event to every sink.
//! - A **hop tag** (HMAC-SHA256, first 16 bytes) authenticates a message between two nodes. Both compute the
//!   secret from their keys (`identity::Key::agree`) without exchanging anything.
//! - A **receipt** authenticates an event between sink and source: only a sink that verified and delivered the
//!   event can make it. Receipts are combined by exclusive or as they travel (an aggregate authentication code,
//!   Katz and Lindell 2008). With 16 bytes a source verifies a forwarder's report about thousands of sinks,
//!   and no node can forge the receipt of another.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use chappe_identity::{Key, PublicKey};
use ring::{digest, hmac};

use crate::event::EventId;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of a hop tag and of a receipt.
pub const TAG_BYTES: usize = 16;
/// The purpose of the secrets.
const PURPOSE: &str = "chappe notification tree 1";
/// The default number of peers whose secrets are cached: about 400 bytes and 100 µs each.
pub const PAIRS_MAX: usize = 131_072;

/// The topic of a source's name. It depends on the source's key, so no other source has the same number,
/// and it is the same after each start.
#[must_use]
pub fn topic_of(source: &[u8; 32], name: &str) -> u64 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(PURPOSE.as_bytes());
    context.update(source);
    context.update(name.as_bytes());
    let hash = context.finish();
    hash.as_ref()
        .first_chunk()
        .map_or(0, |first| u64::from_be_bytes(*first))
}

/// Signs, verifies and authenticates for one node.
pub trait Guard {
    /// Whether messages are authenticated: `false` only on a trusted network.
    fn authenticates(&self) -> bool;
    /// Signs with this node's key.
    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES];
    /// Whether `signature` is by `source`.
    fn verify(&mut self, source: &[u8; 32], bytes: &[u8], signature: &[u8; 64]) -> bool;
    /// The tag of a hop message between this node and `peer`; `None` if `peer` is not a valid key.
    fn hop_tag(&mut self, peer: &[u8; 32], bytes: &[u8]) -> Option<u128>;
    /// The receipt of sink number `sink` for an event, between this node and `peer` (one is the source, the
    /// other the sink). `None` if `peer` is not a valid key.
    fn receipt(&mut self, peer: &[u8; 32], id: EventId, sink: u32) -> Option<u128>;
}

/// A trusted network: no signatures, no tags, no receipts. Any node that can send a datagram can forge
/// events and coverage. Never the default: the caller chooses it explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedNetwork;

impl Guard for TrustedNetwork {
    fn authenticates(&self) -> bool {
        false
    }
    fn sign(&self, _: &[u8]) -> [u8; SIGNATURE_BYTES] {
        [0; SIGNATURE_BYTES]
    }
    fn verify(&mut self, _: &[u8; 32], _: &[u8], _: &[u8; 64]) -> bool {
        true
    }
    fn hop_tag(&mut self, _: &[u8; 32], _: &[u8]) -> Option<u128> {
        Some(0)
    }
    fn receipt(&mut self, _: &[u8; 32], _: EventId, _: u32) -> Option<u128> {
        Some(0)
    }
}

/// The key of a node, and the secrets it shares with others.
#[derive(Debug)]
pub struct Keys {
    key: Arc<Key>,
    pairs: BTreeMap<[u8; 32], hmac::Key>,
    pairs_max: usize,
}

impl Keys {
    /// Starts with a node's key.
    #[must_use]
    pub fn new(key: impl Into<Arc<Key>>) -> Self {
        Self {
            key: key.into(),
            pairs: BTreeMap::new(),
            pairs_max: PAIRS_MAX,
        }
    }

    /// Caches the secrets of at most this many peers.
    #[must_use]
    pub fn with_pairs_max(mut self, pairs_max: usize) -> Self {
        self.pairs_max = pairs_max.max(1);
        self
    }

    /// The public key, for this node's [`Contact`](crate::Contact).
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        *self.key.public().as_bytes()
    }

    fn tag(&mut self, peer: &[u8; 32], purpose: u8, bytes: &[u8]) -> Option<u128> {
        if !self.pairs.contains_key(peer) {
            let secret = self.key.agree(&PublicKey::new(*peer), PURPOSE).ok()?;
            if self.pairs.len() >= self.pairs_max {
                // Peers change with memberships. Any key can be forgotten, so the smallest is.
                self.pairs.pop_first();
            }
            let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
            self.pairs.insert(*peer, key);
        }
        let mut context = hmac::Context::with_key(self.pairs.get(peer)?);
        context.update(&[purpose]);
        context.update(bytes);
        let tag = context.sign();
        let (tag, _) = tag.as_ref().split_first_chunk::<TAG_BYTES>()?;
        Some(u128::from_be_bytes(*tag))
    }
}

impl Guard for Keys {
    fn authenticates(&self) -> bool {
        true
    }

    fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(bytes)
    }

    fn verify(&mut self, source: &[u8; 32], bytes: &[u8], signed: &[u8; 64]) -> bool {
        PublicKey::new(*source).verify(bytes, signed).is_ok()
    }

    fn hop_tag(&mut self, peer: &[u8; 32], bytes: &[u8]) -> Option<u128> {
        self.tag(peer, 0, bytes)
    }

    fn receipt(&mut self, peer: &[u8; 32], id: EventId, sink: u32) -> Option<u128> {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&id.topic.to_be_bytes());
        bytes[8..12].copy_from_slice(&id.boot.to_be_bytes());
        bytes[12..20].copy_from_slice(&id.sequence.to_be_bytes());
        bytes[20..].copy_from_slice(&sink.to_be_bytes());
        self.tag(peer, 1, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys::new(Key::from_seed([byte; 32]))
    }

    #[test]
    fn both_ends_compute_the_same_and_nobody_else_does() {
        let (mut a, mut b, mut c) = (keys(1), keys(2), keys(3).with_pairs_max(1));
        let id = EventId {
            topic: 1,
            boot: 2,
            sequence: 3,
        };
        let (of_a, of_b) = (a.public(), b.public());
        assert_eq!(a.hop_tag(&of_b, b"x"), b.hop_tag(&of_a, b"x"));
        assert_ne!(a.hop_tag(&of_b, b"x"), a.hop_tag(&of_b, b"y"));
        assert_eq!(a.receipt(&of_b, id, 7), b.receipt(&of_a, id, 7));
        assert_ne!(a.receipt(&of_b, id, 7), b.receipt(&of_a, id, 8));
        assert_ne!(c.hop_tag(&of_a, b"x"), b.hop_tag(&of_a, b"x"));
        let before = c.hop_tag(&of_a, b"x");
        c.hop_tag(&of_b, b"x");
        assert_eq!(c.hop_tag(&of_a, b"x"), before, "evicted and computed again");
        assert_eq!(c.pairs.len(), 1);
        // Points of small order give the same secret with every key, so they are no valid keys.
        assert_eq!(c.hop_tag(&[0; 32], b"x"), None);
        assert_eq!(c.receipt(&[0; 32], id, 1), None);
    }
}
