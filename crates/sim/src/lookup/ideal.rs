//! Idealized cryptography that takes a few nanoseconds; no simulated node attacks it.
//!
//! A public key starts with the place of its node, so a place is available without searching for a
//! key. Secrets, tags and signatures are mixed numbers: a changed or misdirected packet is
//! rejected, a forged one would not be.

use chappe_identity::PublicKey;
use chappe_kad::{Cryptography, KEY_BYTES, Key, SECRET_BYTES, SIGNATURE_BYTES, Secret, TAG_BYTES};

/// The ideal cryptography of a node.
#[derive(Clone, Copy, Debug)]
pub struct Ideal(PublicKey);

impl Ideal {
    /// For a node at a place.
    #[must_use]
    pub fn at(place: Key) -> Self {
        let mut bytes = [0; 32];
        bytes[..KEY_BYTES].copy_from_slice(&place.to_bytes());
        Self(PublicKey::new(bytes))
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(state: u64, word: u64) -> u64 {
    let mixed = (state ^ word).wrapping_mul(MULTIPLIER);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn mix_bytes(mut state: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(state, u64::from_le_bytes(last)), bytes.len() as u64)
}

fn signature(public: &PublicKey, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let state = mix_bytes(mix_bytes(7, public.as_bytes()), message);
    let mut signature = [0; SIGNATURE_BYTES];
    signature[..8].copy_from_slice(&state.to_le_bytes());
    signature
}

impl Cryptography for Ideal {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn place(&self, public: &PublicKey) -> Key {
        let mut place = [0; KEY_BYTES];
        place.copy_from_slice(&public.as_bytes()[..KEY_BYTES]);
        Key::from_bytes(place)
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        signature(&self.0, message)
    }

    fn verify(&self, public: &PublicKey, message: &[u8], given: &[u8]) -> bool {
        signature(public, message) == *given
    }

    fn agree(&self, peer: &PublicKey) -> Option<Secret> {
        // The same for both: addition does not mind the order.
        let of = |key: &PublicKey| mix_bytes(1, key.as_bytes());
        let mut secret = [0; SECRET_BYTES];
        secret[..8].copy_from_slice(&of(&self.0).wrapping_add(of(peer)).to_le_bytes());
        Some(secret)
    }

    fn tag(&self, secret: &Secret, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let state = parts
            .iter()
            .fold(mix_bytes(3, secret), |state, part| mix_bytes(state, part));
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&state.to_le_bytes());
        tag[8..].copy_from_slice(&mix(state, 5).to_le_bytes());
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_agree_and_nothing_else_fits() {
        let [a, b, c] = [1, 2, 3].map(|number| Ideal::at(Key::new(number)));
        let secret = a.agree(&b.public()).unwrap();
        assert_eq!(secret, b.agree(&a.public()).unwrap());
        assert_ne!(secret, a.agree(&c.public()).unwrap());
        assert_ne!(a.tag(&secret, &[b"x"]), a.tag(&secret, &[b"y"]));
        assert!(b.verify(&a.public(), b"m", &a.sign(b"m")));
        assert!(!b.verify(&a.public(), b"n", &a.sign(b"m")));
        assert!(!b.verify(&c.public(), b"m", &a.sign(b"m")));
        assert_eq!(a.place(&b.public()), Key::new(2));
    }
}
