//! Reads what a certificate may be used for (RFC 5280, 4.2.1.12) from its DER.

use std::fmt;
use std::str::FromStr;

use chappe_identity::der::{extension, values};

use super::certificate::{oid, wrap};

/// The tag of an object identifier (X.690, 8.1.2).
const OBJECT: u8 = 0x06;

/// Bytes of an object identifier; reason: those of the roles of SDC have 9.
const USAGE_BYTES_MAX: usize = 64;

/// A purpose of certificates, by its object identifier, such as a role of IEEE 11073-20701.
///
/// ```
/// use chappe_transport::tls::Usage;
/// let role: Usage = "1.2.840.10004.20701.1.1".parse()?;
/// assert_eq!(role.to_string(), "1.2.840.10004.20701.1.1");
/// assert!("1.2.".parse::<Usage>().is_err());
/// # Ok::<(), chappe_transport::tls::UsageError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Usage(Vec<u8>);

/// A text that is not an object identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an object identifier (hint: write numbers with dots, such as 1.3.6.1.5.5.7.3.2)"
)]
pub struct UsageError(String);

impl Usage {
    /// Its DER, as a value of `extKeyUsage`.
    pub(super) fn der(&self) -> Vec<u8> {
        wrap(OBJECT, &self.0)
    }
}

impl FromStr for Usage {
    type Err = UsageError;
    fn from_str(text: &str) -> Result<Self, UsageError> {
        let error = || UsageError(text.chars().take(64).collect());
        let numbers: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
        let numbers = numbers.map_err(|_| error())?;
        let (first, second, rest) = match numbers.as_slice() {
            [first @ 0..=1, second @ 0..=39, rest @ ..] if !rest.is_empty() => {
                (first, second, rest)
            }
            [first @ 2, second @ 0..=0xffff, rest @ ..] if !rest.is_empty() => {
                (first, second, rest)
            }
            _ => return Err(error()),
        };
        let mut bytes = Vec::new();
        for number in std::iter::once(first * 40 + second).chain(rest.iter().copied()) {
            // Seven bits a byte, the most significant ones first; all but the last have the top bit.
            let digits = (64 - number.leading_zeros()).div_ceil(7).max(1);
            for digit in (0..digits).rev() {
                let bits = (number >> (7 * digit)) as u8 & 0x7f;
                bytes.push(if digit > 0 { bits | 0x80 } else { bits });
            }
        }
        match bytes.len() {
            0..=USAGE_BYTES_MAX => Ok(Self(bytes)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number: u64 = 0;
        let mut is_first = true;
        for byte in &self.0 {
            number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
            if byte & 0x80 != 0 {
                continue;
            }
            match std::mem::take(&mut is_first) {
                true => {
                    let first = (number / 40).min(2);
                    write!(f, "{first}.{}", number - first * 40)?;
                }
                false => write!(f, ".{number}")?,
            }
            number = 0;
        }
        Ok(())
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Usage({self})")
    }
}

/// Whether a certificate names this usage.
pub(super) fn has_usage(certificate: &[u8], usage: &Usage) -> bool {
    let Some(usages) = extension(certificate, oid::EXTENDED_KEY_USAGE) else {
        return false;
    };
    values(usages).any(|(tag, contents)| tag == OBJECT && contents == usage.0)
}

#[cfg(test)]
mod tests {
    use chappe_identity::der::uris;

    use super::super::certificate;
    use super::*;

    /// A certificate with a usage of its own.
    fn made() -> Vec<u8> {
        let key = chappe_identity::Key::from_seed([7; 32]);
        let usages = ["1.2.840.10004.20701.1.1".parse().unwrap()];
        certificate::of_key(&key, "valve", "urn:uuid:0a", &usages)
    }

    #[test]
    fn usages_and_uris_are_read_as_they_were_written() {
        let certificate = made();
        let has = |text: &str| has_usage(&certificate, &text.parse().unwrap());
        assert!(has("1.2.840.10004.20701.1.1") && has("1.3.6.1.5.5.7.3.1"));
        assert!(!has("1.2.840.10004.20701.1.2") && !has("2.5.29.37.0"));
        assert_eq!(uris(&certificate).collect::<Vec<_>>(), ["urn:uuid:0a"]);
    }

    #[test]
    fn object_identifiers_are_read_and_written() {
        for text in [
            "2.5.29.37.0",
            "1.3.6.1.5.5.7.3.2",
            "2.999.18446744073709551615",
            "0.39.0",
        ] {
            assert_eq!(text.parse::<Usage>().unwrap().to_string(), text);
        }
        let long = "1.2".to_owned() + &".4294967295".repeat(20);
        for text in [
            "", "1", "1.2", "1.40.1", "3.1.1", "1.2.x", "1.2.-1", "1..2", &long,
        ] {
            assert!(text.parse::<Usage>().is_err(), "{text}");
        }
    }

    #[test]
    fn truncated_and_changed_certificates_do_not_panic() {
        let certificate = made();
        let usage = "2.5.29.37.0".parse().unwrap();
        for at in 0..certificate.len() {
            let _ = has_usage(&certificate[..at], &usage);
            for change in [0x01, 0x80, 0xff] {
                let mut changed = certificate.clone();
                changed[at] ^= change;
                let _ = has_usage(&changed, &usage);
                let _ = uris(&changed).count();
            }
        }
    }
}
