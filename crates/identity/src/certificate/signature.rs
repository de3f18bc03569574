//! Algorithms and keys that sign messages.

use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256,
    RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;

use super::{BIT_STRING, Certificate, CertificateError, OBJECT, SEQUENCE};
use crate::der;

/// Maximum length of the PEM text of a signing key: one of RSA with 8,192 bits takes 6,400.
pub const SIGNING_KEY_PEM_BYTES_MAX: usize = 16 << 10;

/// The contents of object identifiers: `rsaEncryption`, `ecPublicKey`, `prime256v1`.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// An algorithm of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// RSA with PKCS #1 v1.5 and SHA-256, 2,048 to 8,192 bits.
    RsaSha256,
    /// ECDSA on P-256 with SHA-256; the signature is `r` and `s`, 32 bytes each.
    EcdsaSha256,
    /// RSA with SHA-1, which is broken: only for peers that know nothing else.
    RsaSha1,
}

/// The public half of a signer's key.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum VerifyingKey {
    /// `RSAPublicKey` in DER.
    Rsa(Vec<u8>),
    /// An uncompressed point on P-256.
    P256(Vec<u8>),
}

impl VerifyingKey {
    /// The key of the contents of a `SubjectPublicKeyInfo`.
    pub(super) fn from_spki(spki: &[u8]) -> Option<Self> {
        let (_, algorithm, rest) = der::value(spki).filter(|it| it.0 == SEQUENCE)?;
        let (_, object, parameters) = der::value(algorithm).filter(|it| it.0 == OBJECT)?;
        let (_, bits, rest) = der::value(rest).filter(|it| it.0 == BIT_STRING)?;
        let (0, key) = bits.split_first()? else {
            return None;
        };
        if !rest.is_empty() {
            return None;
        }
        match object {
            RSA_ENCRYPTION => Some(Self::Rsa(key.to_vec())),
            EC_PUBLIC_KEY => {
                let (_, curve, _) = der::value(parameters).filter(|it| it.0 == OBJECT)?;
                (curve == P256).then(|| Self::P256(key.to_vec()))
            }
            _ => None,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Rsa(key) | Self::P256(key) => key,
        }
    }

    pub(super) fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, self.bytes()).as_ref());
        hash
    }

    pub(super) fn verify(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CertificateError> {
        let rules: &dyn VerificationAlgorithm = match (algorithm, self) {
            (Algorithm::RsaSha256, Self::Rsa(_)) => &RSA_PKCS1_2048_8192_SHA256,
            (Algorithm::RsaSha1, Self::Rsa(_)) => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            (Algorithm::EcdsaSha256, Self::P256(_)) => &ECDSA_P256_SHA256_FIXED,
            _ => return Err(CertificateError::Signature),
        };
        UnparsedPublicKey::new(rules, self.bytes())
            .verify(message, signature)
            .map_err(|_| CertificateError::Signature)
    }
}

/// The private key of a signer, RSA or ECDSA on P-256. Its `Debug` shows neither half.
pub struct SigningKey(Pair);

enum Pair {
    Rsa(Box<RsaKeyPair>),
    P256(Box<EcdsaKeyPair>),
}

impl SigningKey {
    /// Reads PKCS#8 PEM text, as `openssl genpkey` writes it.
    ///
    /// # Errors
    /// The text is no RSA key of at least 2,048 bits, and no key on P-256.
    pub fn from_pem(text: &str, random: &dyn SecureRandom) -> Result<Self, CertificateError> {
        if text.len() > SIGNING_KEY_PEM_BYTES_MAX {
            return Err(CertificateError::Pem(
                "the text of the signing key is too long",
            ));
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
            CertificateError::Pem("not a private key in PKCS#8 PEM form (BEGIN PRIVATE KEY)")
        })?;
        let der = der.secret_pkcs8_der();
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der) {
            return Ok(Self(Pair::Rsa(Box::new(pair))));
        }
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random);
        let pair = pair.map_err(|_| {
            CertificateError::Pem(
                "the key is neither RSA of 2,048 to 4,096 bits nor ECDSA on P-256",
            )
        })?;
        Ok(Self(Pair::P256(Box::new(pair))))
    }

    /// The algorithm of its signatures.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.0 {
            Pair::Rsa(_) => Algorithm::RsaSha256,
            Pair::P256(_) => Algorithm::EcdsaSha256,
        }
    }

    /// Whether `certificate` is for this key.
    #[must_use]
    pub fn is_key_of(&self, certificate: &Certificate) -> bool {
        let public = match &self.0 {
            Pair::Rsa(pair) => VerifyingKey::Rsa(pair.public_key().as_ref().to_vec()),
            Pair::P256(pair) => VerifyingKey::P256(pair.public_key().as_ref().to_vec()),
        };
        public == certificate.key
    }

    /// The signature of these bytes.
    ///
    /// # Errors
    /// `random` fails.
    pub fn sign(
        &self,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CertificateError> {
        match &self.0 {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, message, &mut signature)
                    .map_err(|_| CertificateError::Signature)?;
                Ok(signature)
            }
            Pair::P256(pair) => match pair.sign(random, message) {
                Ok(signature) => Ok(signature.as_ref().to_vec()),
                Err(_) => Err(CertificateError::Signature),
            },
        }
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({:?}, withheld)", self.algorithm())
    }
}
