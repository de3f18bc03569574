//! Membership of one owner's network: a certificate that the owner signs for a node's key.
//!
//! A network of members takes no messages from others. Keys cost nothing, certificates do: where
//! everybody is known, nobody can place nodes at will.

use chappe_identity::{Key as IdentityKey, PublicKey};

use crate::cryptography::{Cryptography, SIGNATURE_BYTES};

/// Bytes of a certificate in a packet.
pub const CERTIFICATE_BYTES: usize = 8 + SIGNATURE_BYTES;

/// The owner's word that a key belongs to a member, until a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// When it ends, in seconds since 1970 (UTC).
    pub expires_s: u64,
    /// The owner's signature.
    pub signature: [u8; SIGNATURE_BYTES],
}

fn statement(member: &PublicKey, expires_s: u64) -> Vec<u8> {
    let mut bytes = b"chappe kad member 1".to_vec();
    bytes.extend_from_slice(member.as_bytes());
    bytes.extend_from_slice(&expires_s.to_be_bytes());
    bytes
}

impl Certificate {
    /// Signs one.
    ///
    /// ```
    /// use chappe_identity::Key;
    /// use chappe_kad::{Certificate, NodeKey};
    /// let (owner, member) = (Key::from_seed([1; 32]), Key::from_seed([2; 32]));
    /// let certificate = Certificate::issue(&owner, &member.public(), 1_800_000_000);
    /// let member_key = member.public();
    /// let anybody = NodeKey::new(member);
    /// assert!(certificate.is_of(&anybody, &owner.public(), &member_key));
    /// assert!(!certificate.is_of(&anybody, &owner.public(), &owner.public()));
    /// ```
    #[must_use]
    pub fn issue(owner: &IdentityKey, member: &PublicKey, expires_s: u64) -> Self {
        let signature = owner.sign(&statement(member, expires_s));
        Self {
            expires_s,
            signature,
        }
    }

    /// Whether `owner` signed it for `member`. Whether it has ended is another question.
    #[must_use]
    pub fn is_of(
        &self,
        cryptography: &impl Cryptography,
        owner: &PublicKey,
        member: &PublicKey,
    ) -> bool {
        let statement = statement(member, self.expires_s);
        cryptography.verify(owner, &statement, &self.signature)
    }
}

/// The network of one owner, and this node's place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The owner's public key.
    pub owner: PublicKey,
    /// This node's certificate.
    pub certificate: Certificate,
}
