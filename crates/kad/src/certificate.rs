//! Membership in one owner's network: a certificate that the owner signs for a node's key.
//!
//! A network of members accepts no messages from other nodes. Keys are free, certificates are not:
//! where every member is known, nobody can place nodes at will.

use chappe_identity::{Key as IdentityKey, PublicKey};

use crate::cryptography::{Cryptography, SIGNATURE_BYTES};

/// Bytes of a certificate in a packet.
pub const CERTIFICATE_BYTES: usize = 8 + SIGNATURE_BYTES;

/// The owner's statement that a key belongs to a member until a given time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Its expiry, in seconds since 1970 (UTC).
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

/// Written as 144 hexadecimal digits: its expiry, big-endian, and the signature.
impl core::fmt::Display for Certificate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let end = self.expires_s.to_be_bytes();
        let mut bytes = end.iter().chain(&self.signature);
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is not a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid certificate: 144 hexadecimal digits expected")]
pub struct NoCertificate;

impl core::str::FromStr for Certificate {
    type Err = NoCertificate;

    fn from_str(text: &str) -> Result<Self, NoCertificate> {
        let mut bytes = [0; CERTIFICATE_BYTES];
        if text.len() != 2 * CERTIFICATE_BYTES || !text.is_ascii() {
            return Err(NoCertificate);
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * index..2 * index + 2];
            // A sign would count as a digit for the parser.
            let right = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let number = u8::from_str_radix(digits, 16).ok().filter(|_| right);
            *byte = number.ok_or(NoCertificate)?;
        }
        let (end, signed) = bytes.split_at(8);
        let mut expires = [0; 8];
        expires.copy_from_slice(end);
        let mut signature = [0; SIGNATURE_BYTES];
        signature.copy_from_slice(signed);
        Ok(Self {
            expires_s: u64::from_be_bytes(expires),
            signature,
        })
    }
}

impl Certificate {
    /// Signs a certificate.
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

    /// Whether `owner` signed it for `member`. Its expiry is not checked.
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

/// The network of one owner, and this node's membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The owner's public key.
    pub owner: PublicKey,
    /// This node's certificate.
    pub certificate: Certificate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_is_read_and_nothing_else() {
        let owner = IdentityKey::from_seed([1; 32]);
        let certificate = Certificate::issue(&owner, &owner.public(), 1_800_000_000);
        let text = certificate.to_string();
        assert_eq!(text.parse(), Ok(certificate));
        let signed = format!("+0{}", &text[2..]);
        for wrong in ["", "zz", &text[1..], &signed, &"é".repeat(72)] {
            assert_eq!(wrong.parse::<Certificate>(), Err(NoCertificate));
        }
    }
}
