//! The seam to cryptography: the operations on keys that the machine needs.
//!
//! [`NodeKey`] is the real implementation, over `chappe-identity`. The simulation of 100,000 nodes
//! replaces it with an ideal one, which nobody attacks, and which places nodes where an attacker
//! could after any amount of search.

use chappe_identity::{AGREED_BYTES, Key as IdentityKey, PublicKey};
use ring::hmac;

use crate::Key;

/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = AGREED_BYTES;

/// The type of secrets shared by two nodes, and of the local secret of address tokens.
pub type Secret = [u8; SECRET_BYTES];

/// A node's own key, and operations on the keys of others.
pub trait Cryptography {
    /// The own public key.
    fn public(&self) -> PublicKey;
    /// The place of the node with this public key.
    fn place(&self, public: &PublicKey) -> Key;
    /// Signs a message with the own key.
    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES];
    /// Whether a signature is that of `public` over `message`.
    fn verify(&self, public: &PublicKey, message: &[u8], signature: &[u8]) -> bool;
    /// The secret shared with `peer`; `None` if that key is not usable.
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
    /// Wraps this key.
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

/// Whether two tags are equal, in constant time.
pub(crate) fn same_tag(left: &[u8], right: &[u8; TAG_BYTES]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .fold(0, |sum, (left, right)| sum | (left ^ right))
            == 0
}
