//! Signed messages: WS-Security with X.509 certificates.
//!
//! [`verify`] judges the bytes of an envelope by a [`Policy`], a store of trusted roots, a
//! [`ReplayCache`] and the time, and returns [`Verified`]: the certificate of the signer and the
//! elements that were signed, each read from the very canonical form that was digested. Nothing else
//! of the message is handed on, so an element that was copied, moved, renamed or hidden elsewhere in
//! the message is never used. [`Signer`] signs messages; [`admit`] applies the mode of an endpoint, and
//! [`admit_answer`] judges the answer to a request.
//!
//! What a message needs: one `Security` header with one signature, by a certificate in it with a chain
//! to a trusted root; the Body, a `Timestamp` and each header of WS-Addressing signed, in exclusive
//! canonical form. Other headers are used if they are signed.
//!
//! ```
//! use chappe_identity::certificate::{Certificate, SigningKey, TrustStore};
//! use chappe_soap::security::{Policy, ReplayCache, Signer, verify};
//! use chappe_soap::{Addressing, AddressingVersion, Envelope};
//! # use chappe_xml::{Element, Name};
//! # let file = |name: &str| {
//! #     let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../identity/tests/certificates/");
//! #     std::fs::read_to_string(format!("{folder}{name}")).unwrap()
//! # };
//! let random = ring::rand::SystemRandom::new();
//! let key = SigningKey::from_pem(&file("p256.key"), &random)?;
//! let signer = Signer::new(key, Certificate::from_pem(&file("p256.pem"))?)?;
//! let addressing = Addressing::new(AddressingVersion::V200508, "urn:x/Set");
//! let envelope = Envelope::new(addressing).with_body(Element::new(Name::new("urn:x", "Set")));
//! let unix_s = 1_767_225_600;
//! let sent = signer.sign(&envelope.to_element(), unix_s, &random)?;
//!
//! let trust = TrustStore::from_pem(&file("root.pem"))?;
//! let mut replays = ReplayCache::empty();
//! let policy = Policy::default();
//! let received = verify(sent.as_bytes(), &policy, &trust, &mut replays, unix_s + 1)?;
//! assert_eq!(received.certificate.subject().to_string(), "O=Ward 3,CN=p256");
//! assert!(received.into_envelope()?.body().unwrap().name.is("urn:x", "Set"));
//! assert!(verify(sent.as_bytes(), &policy, &trust, &mut replays, unix_s + 2).is_err(), "a replay");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sources: Web Services Security 1.1 (OASIS): SOAP Message Security and X.509 Certificate Token
//! Profile; XML Signature 1.1 (W3C); Exclusive XML Canonicalization 1.0 (W3C). Deliberately absent:
//! encryption, tokens other than certificates, transforms other than exclusive canonicalization,
//! references to parts of a Body, signature confirmation.

mod algorithm;
mod answer;
mod error;
mod key_info;
mod layout;
mod policy;
mod replay;
mod sign;
mod signed_info;
mod timestamp;
mod verify;

pub use answer::{Answered, Expected, admit_answer};
pub use error::SecurityError;
pub use policy::{CLOCK_SKEW, MAX_AGE, Mode, Policy};
pub use replay::{
    RECORD_BYTES, REPLAYS_MAX, REPLAYS_OF_SIGNER_MAX, ReplayCache, ReplayRecord, Restored,
};
pub use sign::{LIFETIME, Signer};
pub use signed_info::REFERENCES_MAX;
pub use verify::{Admitted, Checked, Verified, admit, check, verify};

use chappe_xml::Name;
use chappe_xml::canonical::Exclusive;

/// The namespace of `Security`, its tokens and its faults.
pub const WSSE: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
/// The namespace of `Timestamp` and of the attribute `Id`.
pub const WSU: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
/// The namespace of XML Signature.
const DS: &str = "http://www.w3.org/2000/09/xmldsig#";
/// The namespace of `InclusiveNamespaces`.
const EC: &str = chappe_xml::canonical::EXCLUSIVE;

const BASE64_BINARY: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";
const X509_V3: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3";
const PKI_PATH: &str =
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509PKIPathv1";

/// Maximum bytes of the form of a `Signature`, a `SignedInfo` or a token. Default 1 MiB: they are read
/// before it is known who sent them.
const SIGNATURE_BYTES_MAX: usize = 1 << 20;

/// A canonical form of at most [`SIGNATURE_BYTES_MAX`].
fn short(exclusive: Exclusive) -> Exclusive {
    exclusive.with_bytes_max(SIGNATURE_BYTES_MAX)
}

const fn wsse(local: &'static str) -> Name {
    Name::new(WSSE, local)
}

const fn wsu(local: &'static str) -> Name {
    Name::new(WSU, local)
}

const fn ds(local: &'static str) -> Name {
    Name::new(DS, local)
}
