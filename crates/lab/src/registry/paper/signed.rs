//! Messages signed by both ends, with RSA of 2,048 bits and a chain of two certificates, and the bare cryptography of one.

use chappe_identity::certificate::{Certificate, SigningKey, TrustStore};
use chappe_soap::security::{Policy, ReplayCache, Signer, verify};
use chappe_xml::{Element, Limits};
use ring::rand::SystemRandom;

use super::library::since_1970;
use crate::{Error, timing};

macro_rules! certificate {
    ($name:literal) => {
        include_str!(concat!("../../../../identity/tests/certificates/", $name))
    };
}

/// The certificate of both ends, and its key.
pub(super) const CERTIFICATE: &str = certificate!("rsa.pem");
pub(super) const KEY: &str = certificate!("rsa.key");
/// Who issued it.
pub(super) const INTERMEDIATE: &str = certificate!("intermediate.pem");
pub(super) const ROOT: &str = certificate!("root.pem");
/// Whose it is.
pub(super) const SUBJECT: &str = "O=Ward 3,CN=rsa";
/// Bytes of what a signature covers: the form of `SignedInfo` with two or three references.
const SIGNED_BYTES: usize = 1_500;
/// Bytes of a message, whose digest is computed.
const MESSAGE_BYTES: usize = 4_096;

/// A signer of requests that checks answers.
pub(super) struct Signing {
    signer: Signer,
    trust: TrustStore,
    random: SystemRandom,
}

fn failed<E: std::fmt::Display>() -> impl FnOnce(E) -> Error {
    Error::failed("signing a message")
}

impl Signing {
    pub(super) fn new() -> Result<Self, Error> {
        let random = SystemRandom::new();
        let key = SigningKey::from_pem(KEY, &random).map_err(failed())?;
        let chain = format!("{CERTIFICATE}{INTERMEDIATE}");
        let certificates = Certificate::from_pem(&chain).map_err(failed())?;
        Ok(Self {
            signer: Signer::new(key, certificates).map_err(failed())?,
            trust: TrustStore::from_pem(ROOT).map_err(failed())?,
            random,
        })
    }

    pub(super) fn sign(&self, envelope: &str) -> Result<String, Error> {
        let envelope = Element::parse_within(envelope.as_bytes(), Limits::default());
        let envelope = envelope.map_err(failed())?;
        let now = since_1970().as_secs();
        self.signer
            .sign(&envelope, now, &self.random)
            .map_err(failed())
    }

    /// The text of an answer, as far as it is signed.
    pub(super) fn check(&self, answer: &str) -> Result<String, Error> {
        let (policy, mut replays) = (Policy::default(), ReplayCache::empty());
        let now = since_1970().as_secs();
        let checked = verify(answer.as_bytes(), &policy, &self.trust, &mut replays, now);
        Ok(checked.map_err(failed())?.to_text())
    }
}

/// Milliseconds of the cryptography of one message: a signature, its verification, that of the chain, and the digests
/// on both ends.
pub(super) fn bare_ms() -> Result<f64, Error> {
    let random = SystemRandom::new();
    let key = SigningKey::from_pem(KEY, &random).map_err(failed())?;
    let certificates = Certificate::from_pem(&format!("{CERTIFICATE}{INTERMEDIATE}"));
    let certificates = certificates.map_err(failed())?;
    let trust = TrustStore::from_pem(ROOT).map_err(failed())?;
    let (Some(own), Some(issuer)) = (certificates.first(), certificates.get(1)) else {
        return Err(Error::Failed(
            "the chain of the bench is not whole".to_owned(),
        ));
    };
    let intermediates = [issuer.der().to_vec()];
    let (form, message) = (vec![7; SIGNED_BYTES], vec![7; MESSAGE_BYTES]);
    let now = since_1970().as_secs();
    let times = timing::each(200, |_| {
        let signature = key.sign(&form, &random).map_err(failed())?;
        own.verify(key.algorithm(), &form, &signature)
            .map_err(failed())?;
        trust.verify(own, &intermediates, now).map_err(failed())?;
        for _ in 0..2 {
            std::hint::black_box(ring::digest::digest(&ring::digest::SHA256, &message));
        }
        Ok(())
    })?;
    Ok(super::under_test::Point::median(&times))
}
