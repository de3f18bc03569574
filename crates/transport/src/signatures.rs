//! Signed SOAP messages of a program: its certificate, whom it trusts, and the messages that it has accepted.
//!
//! [`Signatures`] is read from files once. It signs messages and admits those of others, for all endpoints of the
//! program. An accepted message is remembered in a file before it has an effect: sent again, to any of the
//! endpoints or after a restart, it is refused. [`Signing`] is what one endpoint does with it.
//!
//! The rules are those of [`chappe_soap::security`].

mod replays;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use chappe_identity::CertificateName;
use chappe_identity::certificate::{Certificate, RevocationStatus, SigningKey, TrustStore};
use chappe_soap::security::{
    Admitted, Answered, Expected, Mode, Policy, SecurityError, Signer, admit_answer, check,
};
use chappe_soap::{Envelope, Fault, FaultCode};
use chappe_xml::{Element, Limits, Name};
use ring::rand::SystemRandom;

use crate::key_file;
use replays::Replays;

/// Maximum length of a file of certificates or of revocation lists in bytes; reason: lists grow with time.
const PEM_BYTES_MAX: u64 = 16 << 20;
/// The files of [`Signatures`], in PEM where nothing else is said.
#[derive(Debug, Clone, Default)]
pub struct SignatureFiles {
    /// The authorities that issue certificates of signers. Without any, no signature is valid.
    pub authorities: PathBuf,
    /// Lists of revoked certificates.
    pub revocation_lists: Option<PathBuf>,
    /// The certificate that signs, followed by its chain, and the file of its key. Without it, messages are sent
    /// unsigned.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The accepted messages, which the program writes. Without it, they are remembered until the program ends.
    pub replays: Option<PathBuf>,
    /// Whether signatures and digests with SHA-1 are accepted.
    pub allows_sha1: bool,
    /// Whether the token with the certificate must be signed as well.
    pub requires_signed_token: bool,
}

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("signatures: {}: {reason}", path.display())]
pub struct SignatureFileError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
    /// A remedy, if one is known.
    pub hint: Option<String>,
}

impl SignatureFileError {
    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

/// A message is not admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAdmitted {
    /// The message is refused.
    #[error(transparent)]
    Refused(#[from] SecurityError),
    /// The message is valid, but cannot be remembered.
    #[error("cannot remember the signed message: {0}")]
    Store(#[from] io::Error),
}

impl NotAdmitted {
    /// The fault of SOAP 1.2 to answer with.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Refused(error) => {
                let subcode = Name::new(chappe_soap::security::WSSE, error.fault_subcode());
                Fault::sender(subcode, error.to_string())
            }
            Self::Store(_) => Fault {
                code: FaultCode::Receiver,
                subcode: None,
                reason: self.to_string().into(),
                detail: Vec::new(),
            },
        }
    }
}

/// The certificate, trust and accepted messages of a program.
#[derive(Debug)]
pub struct Signatures {
    trust: TrustStore,
    policy: Policy,
    signer: Option<Signer>,
    replays: Replays,
    random: SystemRandom,
}

impl Signatures {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn open(files: &SignatureFiles) -> Result<Self, SignatureFileError> {
        let roots = read_pem(&files.authorities)?;
        let trust = TrustStore::from_pem(&roots).map_err(wrong(&files.authorities))?;
        let trust = match &files.revocation_lists {
            None => trust,
            Some(path) => trust
                .with_revocation_lists(&read_pem(path)?, RevocationStatus::MayBeUnknown)
                .map_err(wrong(path))?,
        };
        let random = SystemRandom::new();
        let signer = match &files.certificate {
            None => None,
            Some((path, key)) => {
                let certificates = Certificate::from_pem(&read_pem(path)?).map_err(wrong(path))?;
                let secret = key_file::read_secret(key).map_err(|error| SignatureFileError {
                    path: key.clone(),
                    hint: error.hint(),
                    reason: error.to_string(),
                })?;
                let secret = SigningKey::from_pem(&secret, &random).map_err(wrong(key))?;
                Some(Signer::new(secret, certificates).map_err(wrong(path))?)
            }
        };
        let policy = Policy {
            allows_sha1: files.allows_sha1,
            requires_signed_token: files.requires_signed_token,
            ..Policy::default()
        };
        let replays = match &files.replays {
            None => Replays::in_memory(),
            Some(path) => {
                Replays::open(path, unix_s(), &policy).map_err(|error| SignatureFileError {
                    path: path.clone(),
                    reason: error.to_string(),
                    hint: Some(
                        "the messages accepted before are in it; restore the file".to_owned(),
                    ),
                })?
            }
        };
        Ok(Self {
            trust,
            policy,
            signer,
            replays,
            random,
        })
    }

    /// Judges a message to an endpoint with this mode, and remembers it. If there are `addressees`, its signed
    /// header `To` must be one of them. Takes as long as the disk needs to store a record; messages that come
    /// meanwhile are judged at the same time and stored together.
    ///
    /// # Errors
    /// The message is refused, or cannot be remembered.
    pub fn admit(
        &self,
        document: &[u8],
        mode: Mode,
        limits: Limits,
        addressees: Vec<String>,
    ) -> Result<Admitted, NotAdmitted> {
        let policy = Policy {
            limits,
            addressees,
            ..self.policy.clone()
        };
        Ok(
            match check(document, mode, &policy, &self.trust, unix_s())? {
                None => Admitted::Unsigned,
                Some(checked) => Admitted::Signed(Box::new(self.replays.accept(checked)?)),
            },
        )
    }

    /// Judges the answer to a request.
    ///
    /// # Errors
    /// See [`admit_answer`].
    pub fn admit_answer(
        &self,
        document: &[u8],
        mode: Mode,
        limits: Limits,
        expected: Expected<'_>,
    ) -> Result<Answered, SecurityError> {
        let policy = Policy {
            limits,
            ..self.policy.clone()
        };
        admit_answer(document, mode, &policy, &self.trust, expected, unix_s())
    }

    /// Whether it has a certificate to sign with.
    #[must_use]
    pub fn can_sign(&self) -> bool {
        self.signer.is_some()
    }

    /// The signed document of an envelope; `None` if there is no certificate.
    ///
    /// # Errors
    /// It cannot be signed: above all, it is longer than a signed message may be.
    pub fn sign(&self, envelope: &Element) -> Result<Option<String>, SecurityError> {
        let signer = self.signer.as_ref();
        let signed = signer.map(|signer| signer.sign(envelope, unix_s(), &self.random));
        signed.transpose()
    }
}

/// What an endpoint does with signatures. Clones share the [`Signatures`].
#[derive(Debug, Clone)]
pub struct Signing {
    /// Those of the program.
    pub signatures: Arc<Signatures>,
    /// Whether messages of peers have to be signed.
    pub mode: Mode,
}

/// A message of a peer as the endpoint may use it.
#[derive(Debug)]
pub struct Received {
    /// The message: as it was received, or what was signed of it.
    pub envelope: Result<Envelope, chappe_soap::Error>,
    /// The signer, if it is signed.
    pub signer: Option<CertificateName>,
}

impl Signing {
    /// Judges a message of SOAP 1.2 to this endpoint; see [`Signatures::admit`]. If earlier messages of the peer
    /// are signed by `signer`, this one has to be as well.
    ///
    /// # Errors
    /// The message is refused, or cannot be remembered.
    pub fn receive(
        &self,
        document: &[u8],
        limits: Limits,
        addressees: Vec<String>,
        signer: Option<&CertificateName>,
    ) -> Result<Received, NotAdmitted> {
        let mode = match (self.mode, signer) {
            (Mode::Accepted, Some(_)) => Mode::Required,
            (mode, _) => mode,
        };
        match self.signatures.admit(document, mode, limits, addressees)? {
            Admitted::Unsigned => Ok(Received {
                envelope: Envelope::parse_within(document, limits),
                signer: None,
            }),
            Admitted::Signed(verified) => {
                let actual = verified.signer();
                if signer.is_some_and(|expected| *expected != actual) {
                    return Err(SecurityError::Signer(actual.to_string()).into());
                }
                Ok(Received {
                    envelope: verified.into_envelope(),
                    signer: Some(actual),
                })
            }
        }
    }

    /// The text of a message, signed if there is a certificate. A peer that need not sign may ignore it.
    ///
    /// # Errors
    /// It cannot be signed.
    pub fn text(&self, envelope: &Envelope) -> Result<String, SecurityError> {
        let Signatures { signer, random, .. } = &*self.signatures;
        let Some(signer) = signer else {
            return Ok(envelope.to_text());
        };
        let (envelope, now) = (envelope.to_element(), unix_s());
        match self.mode {
            Mode::Required => signer.sign(&envelope, now, random),
            _ => signer.sign_optionally(&envelope, now, random),
        }
    }
}

/// An identifier of a message that nobody can predict (RFC 9562, version 4).
///
/// # Errors
/// The operating system provides no randomness.
pub fn random_urn() -> io::Result<String> {
    let seed = crate::seed()?;
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&seed[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = chappe_identity::hex_encode(&bytes);
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Ok(format!("urn:uuid:{}", parts.join("-")))
}

fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn wrong<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> SignatureFileError + '_ {
    move |error| SignatureFileError {
        path: path.to_owned(),
        reason: error.to_string(),
        hint: None,
    }
}

fn read_pem(path: &Path) -> Result<String, SignatureFileError> {
    let bytes = key_file::read_within(path, PEM_BYTES_MAX).map_err(wrong(path))?;
    String::from_utf8(bytes).map_err(wrong(path))
}
