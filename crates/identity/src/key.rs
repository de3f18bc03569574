//! One key per node or device: Ed25519 (RFC 8032), PKCS#8 PEM text (RFC 5958, RFC 8410, RFC 7468).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::{Error, hex_decode_32, hex_encode};

/// Length of the secret from which a key is made, in bytes.
pub const SEED_BYTES: usize = 32;

/// The bytes before the seed in the DER form of an Ed25519 private key (RFC 8410, section 7).
const DER_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// Maximum length of a PEM text in bytes: a private key takes 120.
const PEM_BYTES_MAX: usize = 4_096;

/// The private key of a node or device. Its `Debug` shows only the public half.
///
/// ```
/// use chappe_identity::Key;
/// let key = Key::from_seed([7; 32]);
/// let signature = key.sign(b"message");
/// assert!(key.public().verify(b"message", &signature).is_ok());
/// assert!(key.public().verify(b"other", &signature).is_err());
/// assert_eq!(Key::from_pem(&key.to_pem())?.public(), key.public());
/// # Ok::<(), chappe_identity::Error>(())
/// ```
pub struct Key {
    seed: [u8; SEED_BYTES],
    pair: Ed25519KeyPair,
}

impl Key {
    /// The key of this secret, which must come from a cryptographic source of randomness.
    #[must_use]
    pub fn from_seed(seed: [u8; SEED_BYTES]) -> Self {
        match Ed25519KeyPair::from_seed_unchecked(&seed) {
            Ok(pair) => Self { seed, pair },
            // Any 32 bytes are a private key (RFC 8032, section 5.1.5).
            Err(_) => unreachable!("32 bytes are an Ed25519 seed"),
        }
    }

    /// Reads PKCS#8 PEM text, with or without the public key that newer writers append.
    ///
    /// # Errors
    /// The text is not an Ed25519 private key.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        if text.len() > PEM_BYTES_MAX {
            return Err(Error::Pem("too long"));
        }
        let (_, text) = text
            .split_once(PEM_BEGIN)
            .ok_or(Error::Pem("no BEGIN PRIVATE KEY line"))?;
        let (body, _) = text
            .split_once(PEM_END)
            .ok_or(Error::Pem("no END PRIVATE KEY line"))?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD
            .decode(body)
            .map_err(|_| Error::Pem("the body is not base64"))?;
        let seed = match der.first_chunk::<48>() {
            // The version of RFC 5958 may be 1 when the public key follows, with another length.
            Some(head) if head[2..4] == DER_PREFIX[2..4] && head[5..16] == DER_PREFIX[5..] => {
                &head[16..]
            }
            _ => return Err(Error::Pem("the algorithm is not Ed25519")),
        };
        let seed = seed
            .try_into()
            .map_err(|_| Error::Pem("the seed is not 32 bytes"))?;
        Ok(Self::from_seed(seed))
    }

    /// PKCS#8 PEM text, as `openssl pkey` reads and writes it. A secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let der = [&DER_PREFIX[..], &self.seed].concat();
        format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", STANDARD.encode(der))
    }

    pub(crate) const fn seed(&self) -> &[u8; SEED_BYTES] {
        &self.seed
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The signature of these bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }

    /// 16 bytes that identify this key's `purpose` without revealing the key: always the same for
    /// one key, so an endpoint address derived from them survives restarts.
    #[must_use]
    pub fn derive_id(&self, purpose: &str) -> [u8; 16] {
        id_of(&[&self.public().to_string(), purpose])
    }
}

/// 16 bytes that identify these texts in this order.
#[must_use]
pub fn id_of(texts: &[&str]) -> [u8; 16] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for text in texts {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut id = [0; 16];
    id.copy_from_slice(&context.finish().as_ref()[..16]);
    id
}

/// 16 bytes that identify these bytes.
#[must_use]
pub fn id_of_bytes(bytes: &[u8]) -> [u8; 16] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut id = [0; 16];
    id.copy_from_slice(&digest.as_ref()[..16]);
    id
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(public {}, secret withheld)", self.public())
    }
}

/// A public key. Written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Checks a signature.
    ///
    /// # Errors
    /// The signature does not match this key and `message`.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Error> {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .map_err(|_| Error::Signature)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex_encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        hex_decode_32(text)
            .map(Self)
            .ok_or(Error::Hex("a public key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn signature_of_the_standard() {
        let seed =
            hex_decode_32("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
        let key = Key::from_seed(seed.unwrap());
        let public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        assert_eq!(key.public().to_string(), public);
        let signature = hex_encode(&key.sign(&[0x72]));
        assert!(signature.starts_with("92a009a9f0d4cab8720e820b5f642540"));
    }

    /// RFC 8410, section 10.3: the form with and the form without the public key.
    #[test]
    fn pem_of_the_standard() {
        let short = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
            -----END PRIVATE KEY-----\n";
        let long = "-----BEGIN PRIVATE KEY-----\n\
            MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
            oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB\n\
            Z9w7lshQhqowtrbLDFw4rXAxZuE=\n\
            -----END PRIVATE KEY-----\n";
        let key = Key::from_pem(short).unwrap();
        assert_eq!(key.to_pem(), short);
        assert_eq!(Key::from_pem(long).unwrap().public(), key.public());
        let public = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";
        assert_eq!(key.public(), public.parse().unwrap());
    }

    #[test]
    fn what_is_no_key_is_refused_and_never_shown() {
        let rsa = "-----BEGIN PRIVATE KEY-----\nMIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6\
            AgEAAkEA\n-----END PRIVATE KEY-----\n";
        for text in ["", "secret", rsa, &"-".repeat(10_000)] {
            assert!(matches!(Key::from_pem(text), Err(Error::Pem(_))));
        }
        let key = Key::from_seed([0xAB; 32]);
        let shown = format!("{key:?}").to_lowercase();
        assert!(!shown.contains("abababab") && shown.contains(&key.public().to_string()));
    }

    #[test]
    fn identifiers_are_stable_and_apart() {
        let key = Key::from_seed([1; 32]);
        assert_eq!(key.derive_id("a"), Key::from_seed([1; 32]).derive_id("a"));
        assert_ne!(key.derive_id("a"), key.derive_id("b"));
        assert_ne!(key.derive_id("a"), Key::from_seed([2; 32]).derive_id("a"));
        assert_ne!(id_of(&["ab", "c"]), id_of(&["a", "bc"]));
    }
}
