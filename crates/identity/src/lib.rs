//! Identities: keys, tokens and principals, and the policy on addresses that strangers announce.
//!
//! [`Key`] is the one key of a node or device (Ed25519, RFC 8032) in the PKCS#8 PEM form that
//! openssl reads (RFC 8410), [`Key::agree`] the secret that two of them share; [`CurveSecret`] is the
//! ZeroMQ key made from it; [`Token`] is a bearer secret stored only as its hash; [`DistinguishedName`] is
//! the subject of a client certificate, and [`CertificateName`] what an account names it by; [`Principal`] is who asks and [`Rights`] what that account may do;
//! [`Attempts`] limits failed credentials by host; [`AddressPolicy`] is the one judge of addresses that
//! arrive in messages; [`Shares`] divides a bounded table among the hosts that fill it; [`certificate`]
//! judges the certificates of those who sign messages.
//!
//! Deliberately absent: files (key files are read by `chappe-transport`), random numbers (secrets
//! are made from bytes the caller gives), the certificates of TLS connections, which rustls verifies.

#![forbid(unsafe_code)]

mod address;
mod agreement;
mod attempts;
pub mod certificate;
mod client_certificate;
mod contact;
mod curve;
pub mod der;
mod distinguished_name;
mod error;
mod key;
mod principal;
mod role;
mod shares;
mod token;
mod z85;

pub use address::{AddressPolicy, Prefix, PrefixError, Refusal};
pub use agreement::AGREED_BYTES;
pub use attempts::{Attempts, FAILURES_MAX, HOSTS_MAX, RECOVERY};
pub use client_certificate::{CertificateName, ClientCertificate};
pub use contact::{Contact, Proof, Scheme};
pub use curve::{CURVE_KEY_BYTES, CurvePublic, CurveSecret};
pub use distinguished_name::{DISTINGUISHED_NAME_BYTES_MAX, DistinguishedName};
pub use error::Error;
pub use key::{Key, PublicKey, SEED_BYTES, id_of, id_of_bytes};
pub use principal::{GROUPS_MAX, Membership, Principal, check_group_name};
pub use role::{
    AREA_BYTES_MAX, AREAS_MAX, Area, GRANTS_MAX, Grant, NAME_BYTES_MAX, Reach, Rights, Role,
    check_account_name,
};
pub use shares::{Host, Quota, Room, Shares};
pub use token::{Token, TokenHash, bearer};

/// Formats bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex_encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

/// The first eight bytes of the SHA-256 of a name, for a table in which a name has a fixed size.
#[must_use]
pub fn name_hash(name: &str) -> [u8; 8] {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let mut hash = [0; 8];
    hash.copy_from_slice(&digest.as_ref()[..8]);
    hash
}

/// Parses hexadecimal digits of either case; `None` if a character is not one, or their number is odd.
#[must_use]
pub fn hex_decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect()
}

/// 32 bytes from 64 hexadecimal digits of either case.
fn hex_decode_32(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 {
        return None;
    }
    hex_decode(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_of_either_case_come_back() {
        assert_eq!(hex_encode(&[0, 0xA5, 0xFF]), "00a5ff");
        assert_eq!(hex_decode("00a5FF"), Some(vec![0, 0xA5, 0xFF]));
        for wrong in ["0", "0g", "+1", "\u{e9}"] {
            assert_eq!(hex_decode(wrong), None, "{wrong}");
        }
    }
}
