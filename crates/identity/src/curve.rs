//! CURVE keys of ZeroMQ (26/CURVEZMQ), derived from the node's one key, written in Z85 (32/Z85) or
//! hexadecimal digits.
//!
//! The secret is HKDF-SHA256 (RFC 5869) of the Ed25519 seed for a separate purpose, so only the one
//! key file needs to be stored, and neither key reveals the other.

use std::fmt;
use std::str::FromStr;

use curve25519_dalek::MontgomeryPoint;
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::{Error, Key, hex_decode_32, hex_encode, z85};

/// Bytes of a CURVE key.
pub const CURVE_KEY_BYTES: usize = 32;
/// Separates these keys from others derived from the same seed.
const PURPOSE: &[&[u8]] = &[b"chappe CURVE key 1"];

/// A CURVE secret key. Its `Debug` shows only the public half.
///
/// ```
/// use chappe_identity::{CurvePublic, Key};
/// let secret = Key::from_seed([7; 32]).curve();
/// let public = secret.public();
/// assert_eq!(public.to_z85().len(), 40);
/// assert_eq!(public.to_z85().parse::<CurvePublic>()?, public);
/// assert_eq!(public.to_string().parse::<CurvePublic>()?, public);
/// # Ok::<(), chappe_identity::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CurveSecret([u8; CURVE_KEY_BYTES]);

impl CurveSecret {
    /// The key of these bytes, which must come from a cryptographic source of randomness.
    #[must_use]
    pub const fn new(bytes: [u8; CURVE_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads a secret key written in Z85 or hexadecimal digits.
    ///
    /// # Errors
    /// The text is in neither form. The error does not repeat it.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        read(text).map(Self).ok_or(Error::Curve("secret"))
    }

    /// The bytes: a secret.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; CURVE_KEY_BYTES] {
        &self.0
    }

    /// Z85 text, as ZeroMQ's tools write keys: a secret.
    #[must_use]
    pub fn to_z85(&self) -> String {
        z85::encode(&self.0)
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> CurvePublic {
        CurvePublic(MontgomeryPoint::mul_base_clamped(self.0).0)
    }
}

impl fmt::Debug for CurveSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CurveSecret(public {}, secret withheld)", self.public())
    }
}

impl Key {
    /// The CURVE key of the owner of this key, derived from it.
    #[must_use]
    pub fn curve(&self) -> CurveSecret {
        let secret = Salt::new(HKDF_SHA256, &[]).extract(self.seed());
        let mut bytes = [0; CURVE_KEY_BYTES];
        let filled = secret
            .expand(PURPOSE, HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut bytes));
        match filled {
            Ok(()) => CurveSecret(bytes),
            // Fails only for other lengths.
            Err(_) => unreachable!("HKDF-SHA256 gives 32 bytes"),
        }
    }
}

/// A CURVE public key. Written as 64 hexadecimal digits; read in that form or in Z85.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CurvePublic([u8; CURVE_KEY_BYTES]);

impl CurvePublic {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; CURVE_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; CURVE_KEY_BYTES] {
        &self.0
    }

    /// Z85 text, as ZeroMQ's tools write keys.
    #[must_use]
    pub fn to_z85(&self) -> String {
        z85::encode(&self.0)
    }
}

impl fmt::Display for CurvePublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex_encode(&self.0))
    }
}

impl fmt::Debug for CurvePublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CurvePublic {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).map(Self).ok_or(Error::Curve("public"))
    }
}

/// 40 characters of Z85 or 64 hexadecimal digits.
fn read(text: &str) -> Option<[u8; CURVE_KEY_BYTES]> {
    match text.len() {
        40 => z85::decode(text)?.try_into().ok(),
        _ => hex_decode_32(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of `zmq_curve_keypair(3)` and 26/CURVEZMQ's reference: a pair created by libzmq.
    #[test]
    fn a_pair_of_libzmq_is_a_pair_here() {
        let secret = CurveSecret::from_text("JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6").unwrap();
        let public = secret.public().to_z85();
        assert_eq!(public, "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7");
    }

    #[test]
    fn derived_keys_are_stable_and_tell_nothing() {
        let key = Key::from_seed([9; 32]);
        let secret = key.curve();
        assert_eq!(secret, Key::from_seed([9; 32]).curve());
        assert_ne!(secret, Key::from_seed([8; 32]).curve());
        assert_ne!(secret.as_bytes(), &[9; 32]);
        assert_ne!(secret.public().as_bytes(), key.public().as_bytes());
        let shown = format!("{secret:?}");
        assert!(
            !shown.contains(&hex_encode(secret.as_bytes())) && !shown.contains(&secret.to_z85())
        );
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        for text in [
            "",
            "secret",
            &"\u{e9}".repeat(20),
            &"~".repeat(40),
            &"g".repeat(64),
        ] {
            let error = CurveSecret::from_text(text).unwrap_err();
            assert!(text.is_empty() || !error.to_string().contains(&format!("{text:?}")));
            assert!(text.parse::<CurvePublic>().is_err());
        }
    }
}
