//! The seam to cryptography: what the machine asks of keys.
//!
//! [`NodeKey`] is the real one, over `chappe-identity`. The simulation of 100,000 nodes puts an ideal
//! one in its place, which nobody can forge because nobody tries, and lets it place nodes where an
//! attacker would after any amount of search.

use chappe_identity::{AGREED_BYTES, Key as IdentityKey, PublicKey};
use ring::hmac;

use crate::Key;

/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = AGREED_BYTES;

/// What secrets that two nodes share, and the local one of address tokens, are.
pub type Secret = [u8; SECRET_BYTES];

/// A node's own key, and what can be asked about others'.
pub trait Cryptography {
    /// The own public key.
    fn public(&self) -> PublicKey;
    /// The place of the node with this public key.
    fn place(&self, public: &PublicKey) -> Key;
    /// The own signature.
    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES];
    /// Whether a signature is that of `public` over `message`.
    fn verify(&self, public: &PublicKey, message: &[u8], signature: &[u8]) -> bool;
    /// The secret shared with `peer`; `None` when that is no usable key.
    fn agree(&self, peer: &PublicKey) -> Option<Secret>;
    /// A tag over the parts, of which only the last may vary in length.
    fn tag(&self, secret: &Secret, parts: &[&[u8]]) -> [u8; TAG_BYTES];
}

/// Ed25519 and X25519 of the node's one key; tags are HMAC-SHA256, cut to 16 bytes.
#[derive(Debug)]
pub struct NodeKey {
    key: IdentityKey,
    public: PublicKey,
}

impl NodeKey {
    /// The cryptography of this key.
    #[must_use]
    pub fn new(key: IdentityKey) -> Self {
        let public = key.public();
        Self { key, public }
    }
}

impl Cryptography for NodeKey {
    fn public(&self) -> PublicKey {
        self.public
    }

    fn place(&self, public: &PublicKey) -> Key {
        Key::of_node(public)
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(message)
    }

    fn verify(&self, public: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        public.verify(message, signature).is_ok()
    }

    fn agree(&self, peer: &PublicKey) -> Option<Secret> {
        self.key.agree(peer, "kad 1").ok()
    }

    fn tag(&self, secret: &Secret, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mut context = hmac::Context::with_key(&key);
        for part in parts {
            context.update(part);
        }
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&context.sign().as_ref()[..TAG_BYTES]);
        tag
    }
}

/// Whether two tags are the same, in a time that does not depend on where they differ.
pub(crate) fn same_tag(left: &[u8], right: &[u8; TAG_BYTES]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .fold(0, |sum, (left, right)| sum | (left ^ right))
            == 0
}
