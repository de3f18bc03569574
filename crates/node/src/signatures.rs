//! Signed SOAP messages: what a signed request says, the account that it is from, and signed answers.
//!
//! Nothing of a signed request reaches its handler but the elements that were signed. An accepted message is
//! remembered in the file `soap-replays` of the data directory before it has an effect, for all interfaces alike: sent
//! again, to any of them or after a restart, it is refused.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chappe_identity::ClientCertificate;
use chappe_identity::certificate::{Certificate, RevocationStatus, SigningKey, TrustStore};
use chappe_soap::security::{
    Admitted, Mode, Policy, RECORD_BYTES, REPLAYS_MAX, ReplayCache, SecurityError, Signer, admit,
};
use chappe_soap::v1_1::{Fault, FaultCode};
use chappe_transport::{Hop, key_file};
use chappe_xml::{Element, Limits};
use ring::rand::SystemRandom;

use crate::accounts::Caller;
use crate::clock;
use crate::config::{Config, SignatureMode};
use crate::error::StartError;
use crate::shared::Shared;

/// The file of accepted messages, in the data directory.
const FILE: &str = "soap-replays";
/// Maximum length of a file of certificates or of revocation lists in bytes; reason: lists grow with time.
const PEM_BYTES_MAX: u64 = 16 << 20;
/// Records that are forgotten before the file is written anew.
const SLACK: usize = 4_096;

/// A request as its handler may read it.
pub(crate) struct Received {
    /// The document: the one received, or what was signed of it.
    pub(crate) document: Vec<u8>,
    /// The account whose certificate signed it.
    pub(crate) signer: Option<Caller>,
    /// Whether it was signed, by an account or another trusted certificate.
    pub(crate) is_signed: bool,
}

/// What the node knows of signatures.
pub(crate) struct Signatures {
    trust: TrustStore,
    policy: Policy,
    signer: Option<Signer>,
    replays: Mutex<Replays>,
    random: SystemRandom,
}

impl Signatures {
    /// Reads the files of the configuration; `None` if signatures count nowhere.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub(crate) fn open(config: &Config) -> Result<Option<Self>, StartError> {
        let rules = &config.signatures;
        if !rules.are_used() {
            return Ok(None);
        }
        let roots = read_pem(&rules.authorities)?;
        let trust = TrustStore::from_pem(&roots).map_err(wrong(&rules.authorities))?;
        let trust = match is_named(&rules.revocation_lists) {
            None => trust,
            Some(path) => trust
                .with_revocation_lists(&read_pem(path)?, RevocationStatus::MayBeUnknown)
                .map_err(wrong(path))?,
        };
        let random = SystemRandom::new();
        let signer = match is_named(&rules.certificate) {
            None => None,
            Some(path) => {
                let certificates = Certificate::from_pem(&read_pem(path)?).map_err(wrong(path))?;
                let secret = key_file::read_secret(&rules.key);
                let secret = secret.map_err(|error| StartError::Signatures {
                    path: rules.key.clone(),
                    hint: error.hint(),
                    reason: error.to_string(),
                })?;
                let key = SigningKey::from_pem(&secret, &random).map_err(wrong(&rules.key))?;
                Some(Signer::new(key, certificates).map_err(wrong(path))?)
            }
        };
        let policy = Policy {
            allows_sha1: rules.sha1,
            requires_signed_token: rules.signed_token,
            ..Policy::default()
        };
        let path = config.data_directory.join(FILE);
        let replays = Replays::open(&path, unix_s(), &policy);
        let replays = replays.map_err(|error| StartError::Signatures {
            path,
            reason: error.to_string(),
            hint: Some("the messages accepted before are in it; restore the file".to_owned()),
        })?;
        Ok(Some(Self {
            trust,
            policy,
            signer,
            replays: Mutex::new(replays),
            random,
        }))
    }

    /// Judges a message, and remembers it durably.
    fn admit(&self, document: &[u8], mode: Mode, limits: Limits) -> Result<Admitted, Fault> {
        let policy = Policy {
            limits,
            ..self.policy.clone()
        };
        let mut replays = self.replays.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = admit(
            document,
            mode,
            &policy,
            &self.trust,
            &mut replays.cache,
            unix_s(),
        );
        let admitted = admitted.map_err(|error| refusal(&error))?;
        if let Admitted::Signed(verified) = &admitted {
            let stored = replays.append(verified.record.as_bytes());
            stored.map_err(|error| Fault {
                code: FaultCode::Server,
                text: format!("cannot remember the signed message: {error}").into(),
                detail: Vec::new(),
            })?;
        }
        Ok(admitted)
    }

    /// A signed document; as it is if there is no certificate.
    fn sign(&self, document: &[u8]) -> Result<Vec<u8>, SecurityError> {
        let Some(signer) = &self.signer else {
            return Ok(document.to_vec());
        };
        let envelope = Element::parse(document)?;
        let signed = signer.sign(&envelope, unix_s(), &self.random)?;
        Ok(signed.into_bytes())
    }
}

/// What a request says, by the mode of its interface, without waiting for anything but the disk.
///
/// # Errors
/// The fault to answer with: the signature is not valid, or absent where it is required.
pub(crate) fn receive(
    app: &Shared,
    mode: SignatureMode,
    document: &[u8],
    limits: Limits,
    peer: &str,
) -> Result<Received, Fault> {
    let unsigned = || Received {
        document: document.to_vec(),
        signer: None,
        is_signed: false,
    };
    let Some(signatures) = &app.signatures else {
        return Ok(unsigned());
    };
    match signatures.admit(document, mode.into(), limits) {
        Ok(Admitted::Unsigned) => Ok(unsigned()),
        Ok(Admitted::Signed(verified)) => Ok(Received {
            document: verified.to_text().into_bytes(),
            signer: app
                .accounts
                .by_certificate(&ClientCertificate::of_der(verified.certificate.der()))
                .ok(),
            is_signed: true,
        }),
        Err(fault) => {
            let (drops, detail) = (&app.observability.drops, fault.text.to_string());
            drops.record(Hop::Http, "signature", peer, detail, None);
            Err(fault)
        }
    }
}

/// An answer, signed if the interface looks at signatures and the node has a certificate for it.
///
/// # Errors
/// The reason why it cannot be signed: above all, it is longer than a signed message may be.
pub(crate) fn answer(app: &Shared, mode: SignatureMode, answer: &[u8]) -> Result<Vec<u8>, String> {
    let signatures = app.signatures.as_ref();
    match signatures.filter(|_| mode != SignatureMode::Off) {
        None => Ok(answer.to_vec()),
        Some(signatures) => signatures.sign(answer).map_err(|error| error.to_string()),
    }
}

fn refusal(error: &SecurityError) -> Fault {
    Fault {
        code: FaultCode::Security(error.fault_subcode()),
        text: error.to_string().into(),
        detail: Vec::new(),
    }
}

fn unix_s() -> u64 {
    u64::try_from(clock::now().0 / 1_000_000_000).unwrap_or(0)
}

fn is_named(path: &Path) -> Option<&Path> {
    (!path.as_os_str().is_empty()).then_some(path)
}

fn wrong<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> StartError + '_ {
    move |error| StartError::Signatures {
        path: path.to_owned(),
        reason: error.to_string(),
        hint: None,
    }
}

fn read_pem(path: &Path) -> Result<String, StartError> {
    let read = || {
        let mut text = String::new();
        File::open(path)?
            .take(PEM_BYTES_MAX)
            .read_to_string(&mut text)?;
        Ok::<_, io::Error>(text)
    };
    read().map_err(wrong(path))
}

/// The messages that were accepted, in memory and in a file.
struct Replays {
    cache: ReplayCache,
    path: PathBuf,
    file: File,
    /// The records of the file.
    records: usize,
    /// A record may be in the file in part: the file is written anew before another.
    is_torn: bool,
}

impl Replays {
    /// A missing file has none: it is written before the first message is accepted.
    fn open(path: &Path, unix_s: u64, policy: &Policy) -> io::Result<Self> {
        let mut records = Vec::new();
        match File::open(path) {
            Ok(file) => {
                let most = RECORD_BYTES * (2 * REPLAYS_MAX + SLACK);
                file.take(most as u64).read_to_end(&mut records)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let restored = ReplayCache::restore(&records, unix_s, policy.clock_skew);
        if restored.damaged > 0 {
            let (count, path) = (restored.damaged, path.display());
            tracing::warn!(
                "{count} records of {path} are damaged: messages signed before this start are refused"
            );
        }
        let (file, records) = write_anew(path, &restored.cache)?;
        Ok(Self {
            cache: restored.cache,
            path: path.to_owned(),
            file,
            records,
            is_torn: false,
        })
    }

    /// Stores a record durably.
    fn append(&mut self, record: &[u8; RECORD_BYTES]) -> io::Result<()> {
        if self.is_torn || self.records > 2 * self.cache.len() + SLACK {
            // The message is in the cache, and so in the new file.
            (self.file, self.records) = write_anew(&self.path, &self.cache)?;
            self.is_torn = false;
            return Ok(());
        }
        self.is_torn = true;
        self.file.write_all(record)?;
        self.file.sync_data()?;
        self.is_torn = false;
        self.records += 1;
        Ok(())
    }
}

/// Replaces the file by one with what the cache remembers, durably.
fn write_anew(path: &Path, cache: &ReplayCache) -> io::Result<(File, usize)> {
    let new = path.with_extension("new");
    let bytes = cache.to_bytes();
    let mut file = File::create(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    let file = OpenOptions::new().append(true).open(path)?;
    Ok((file, bytes.len() / RECORD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_soap::{Addressing, AddressingVersion, Envelope};
    use chappe_xml::Name;

    const UNIX_S: u64 = 1_767_225_600;

    fn file(name: &str) -> String {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../identity/tests/certificates/"
        );
        std::fs::read_to_string(format!("{folder}{name}")).unwrap()
    }

    fn signed(number: u32) -> String {
        let random = SystemRandom::new();
        let key = SigningKey::from_pem(&file("p256.key"), &random).unwrap();
        let signer = Signer::new(key, Certificate::from_pem(&file("p256.pem")).unwrap()).unwrap();
        let addressing = Addressing::new(AddressingVersion::V200508, "urn:x/Set");
        let body = Element::new(Name::new("urn:x", "Set")).with_text(number.to_string());
        let envelope = Envelope::new(addressing).with_body(body);
        signer
            .sign(&envelope.to_element(), UNIX_S, &random)
            .unwrap()
    }

    fn accept(replays: &mut Replays, message: &str) -> Result<(), String> {
        let (trust, policy) = (
            TrustStore::from_pem(&file("root.pem")).unwrap(),
            Policy::default(),
        );
        let admitted = admit(
            message.as_bytes(),
            Mode::Required,
            &policy,
            &trust,
            &mut replays.cache,
            UNIX_S + 1,
        );
        match admitted.map_err(|error| error.to_string())? {
            Admitted::Signed(verified) => replays
                .append(verified.record.as_bytes())
                .map_err(|error| error.to_string()),
            Admitted::Unsigned => Err("unsigned".to_owned()),
        }
    }

    #[test]
    fn a_message_is_accepted_once_through_restarts_and_torn_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let open = || Replays::open(&path, UNIX_S + 1, &Policy::default()).unwrap();
        let [first, second] = [1, 2].map(signed);
        let mut replays = open();
        accept(&mut replays, &first).unwrap();
        assert!(accept(&mut replays, &first).is_err());
        drop(replays);
        // A part of a record, as a power cut may leave it.
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(&[7; RECORD_BYTES / 2]).unwrap();
        let mut replays = open();
        assert!(accept(&mut replays, &first).is_err());
        accept(&mut replays, &second).unwrap();
        let mut replays = open();
        for message in [&first, &second] {
            assert!(accept(&mut replays, message).is_err());
        }
        assert_eq!(
            std::fs::metadata(&path).unwrap().len(),
            2 * RECORD_BYTES as u64
        );
    }

    #[test]
    fn a_failed_write_leaves_no_record_that_hides_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut replays = Replays::open(&path, UNIX_S + 1, &Policy::default()).unwrap();
        let [first, second] = [1, 2].map(signed);
        // A file that cannot be written stands for a full disk.
        replays.file = File::open(&path).unwrap();
        assert!(accept(&mut replays, &first).is_err());
        accept(&mut replays, &second).unwrap();
        let mut replays = Replays::open(&path, UNIX_S + 1, &Policy::default()).unwrap();
        for message in [&first, &second] {
            assert!(accept(&mut replays, message).is_err());
        }
    }
}
