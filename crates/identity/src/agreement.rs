//! A secret that two keys share without a message: X25519 (RFC 7748) of the two Ed25519 identities.
//!
//! Both halves of an Ed25519 key have counterparts on the curve of X25519 (RFC 7748, section 4.1),
//! so anyone who knows a public key can authenticate to its owner in the first packet. The secret
//! is HKDF-SHA256 (RFC 5869) of the agreement, for one purpose and these two keys.
//!
//! Such a secret is constant while the keys are: it authenticates, but provides no forward secrecy.

use curve25519_dalek::edwards::CompressedEdwardsY;
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::{Error, Key, PublicKey};

/// Bytes of an agreed secret.
pub const AGREED_BYTES: usize = 32;

impl Key {
    /// The secret that this key and `peer` share for `purpose`; the peer derives the same.
    ///
    /// ```
    /// use chappe_identity::Key;
    /// let (ada, bob) = (Key::from_seed([1; 32]), Key::from_seed([2; 32]));
    /// let secret = ada.agree(&bob.public(), "example")?;
    /// assert_eq!(secret, bob.agree(&ada.public(), "example")?);
    /// assert_ne!(secret, ada.agree(&bob.public(), "other")?);
    /// # Ok::<(), chappe_identity::Error>(())
    /// ```
    ///
    /// # Errors
    /// `peer` is not a point of the curve, or is a weak one for which all agreements are equal.
    pub fn agree(&self, peer: &PublicKey, purpose: &str) -> Result<[u8; AGREED_BYTES], Error> {
        let point = CompressedEdwardsY(*peer.as_bytes())
            .decompress()
            .ok_or(Error::Agreement)?;
        // RFC 8032, section 5.1.5: the first half of the hash is the scalar, which X25519 clamps.
        let hash = ring::digest::digest(&ring::digest::SHA512, self.seed());
        let mut scalar = [0; 32];
        scalar.copy_from_slice(&hash.as_ref()[..32]);
        let agreed = point.to_montgomery().mul_clamped(scalar).0;
        // RFC 7748, section 6.1: a point of small order.
        if agreed == [0; 32] {
            return Err(Error::Agreement);
        }
        let own = self.public();
        let (low, high) = if own < *peer {
            (own, *peer)
        } else {
            (*peer, own)
        };
        let info: [&[u8]; 4] = [
            b"chappe agreement 1",
            low.as_bytes(),
            high.as_bytes(),
            purpose.as_bytes(),
        ];
        let mut secret = [0; AGREED_BYTES];
        let filled = Salt::new(HKDF_SHA256, &[])
            .extract(&agreed)
            .expand(&info, HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut secret));
        match filled {
            Ok(()) => Ok(secret),
            // Fails only for other lengths.
            Err(_) => unreachable!("HKDF-SHA256 gives 32 bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_a_secret_of_its_own() {
        let [a, b, c] = [1, 2, 3].map(|byte| Key::from_seed([byte; 32]));
        let of = |one: &Key, other: &Key| one.agree(&other.public(), "x").unwrap();
        assert_eq!(of(&a, &b), of(&b, &a));
        assert_ne!(of(&a, &b), of(&a, &c));
        assert_ne!(of(&a, &b), of(&b, &c));
    }

    #[test]
    fn points_of_small_order_and_no_points_are_refused() {
        let key = Key::from_seed([1; 32]);
        let mut identity = [0; 32];
        identity[0] = 1;
        // y = 0 has order 4; y = -1 has order 2.
        let mut minus_one = [0xff; 32];
        (minus_one[0], minus_one[31]) = (0xec, 0x7f);
        let mut off_the_curve = [0; 32];
        off_the_curve[0] = 2;
        for bytes in [identity, [0; 32], minus_one, off_the_curve] {
            let agreed = key.agree(&PublicKey::new(bytes), "x");
            assert_eq!(agreed, Err(Error::Agreement), "{bytes:?}");
        }
    }
}
