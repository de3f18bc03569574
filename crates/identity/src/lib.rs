//! Identities: keys, tokens and principals, and the policy on addresses that strangers announce.
//!
//! [`Key`] is the one key of a node or device (Ed25519, RFC 8032) in the PKCS#8 PEM form that
//! openssl reads (RFC 8410), [`Key::agree`] the secret that two of them share; [`CurveSecret`] is
//! the ZeroMQ key derived from it; [`Token`] is a bearer secret stored only as its hash;
//! [`Principal`] is the requester; [`AddressPolicy`] judges all addresses that arrive in messages;
//! [`Shares`] divides a bounded table among the hosts that fill it.
//!
//! This crate reads no files (`chappe-transport` reads key files), draws no random numbers (secrets
//! are made from the caller's bytes), and has no certificates.

#![forbid(unsafe_code)]

mod address;
mod agreement;
mod curve;
mod error;
mod key;
mod principal;
mod shares;
mod token;
mod z85;

pub use address::{AddressPolicy, Contact, Prefix, PrefixError, Refusal, Scheme};
pub use agreement::AGREED_BYTES;
pub use curve::{CURVE_KEY_BYTES, CurvePublic, CurveSecret};
pub use error::Error;
pub use key::{Key, PublicKey, SEED_BYTES, id_of};
pub use principal::Principal;
pub use shares::{Host, Quota, Room, Shares};
pub use token::{Token, TokenHash};

/// Formats bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex_encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
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
