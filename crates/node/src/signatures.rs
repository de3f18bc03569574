//! Signed SOAP messages: what a signed request says, the account that it is from, and signed answers.
//!
//! Nothing of a signed request reaches its handler but the elements that were signed. An accepted message is
//! remembered in the file `soap-replays` of the data directory before it has an effect, for all interfaces alike: sent
//! again, to any of them or after a restart, it is refused.

use std::path::Path;
use std::sync::Arc;

use chappe_identity::ClientCertificate;
use chappe_identity::certificate::Certificate;
use chappe_soap::security::{Admitted, Mode};
use chappe_soap::v1_1::{self, Fault, FaultCode};
use chappe_transport::Hop;
use chappe_transport::signatures::{NotAdmitted, SignatureFiles, Signatures, Signing};
use chappe_xml::{Element, Limits, Name, Node};

use crate::accounts::Caller;
use crate::config::{Config, Read, SignatureMode};
use crate::error::StartError;
use crate::shared::Shared;

/// Why a message whose signer has no account is refused where signatures are required.
pub(crate) const NO_ACCOUNT: &str = "no account has the certificate that signed the message \
    (hint: chappe account add NAME --certificate SUBJECT)";
/// The file of accepted messages, in the data directory.
const FILE: &str = "soap-replays";

/// A request as its handler may read it.
pub(crate) struct Received {
    /// The document: the one received, or what was signed of it.
    pub(crate) document: Vec<u8>,
    /// The account whose certificate signed it.
    pub(crate) signer: Option<Caller>,
    /// Whether it was signed, by an account or another trusted certificate.
    pub(crate) is_signed: bool,
    /// What the answer relates to, if the request has a signed identifier: without it, a peer could not tell a
    /// recent answer to another request from its own.
    pub(crate) relates_to: Option<Element>,
}

/// Reads the files of the configuration; `None` if signatures count nowhere and no authority is named.
///
/// # Errors
/// A file cannot be read, or is not what it should be.
pub(crate) fn open(config: &Config) -> Result<Option<Arc<Signatures>>, StartError> {
    let rules = &config.signatures;
    if !rules.are_used() && rules.authorities.as_os_str().is_empty() {
        return Ok(None);
    }
    let named = |path: &Path| (!path.as_os_str().is_empty()).then(|| path.to_owned());
    let files = SignatureFiles {
        authorities: rules.authorities.clone(),
        revocation_lists: named(&rules.revocation_lists),
        certificate: named(&rules.certificate).map(|path| (path, rules.key.clone())),
        replays: Some(config.data_directory.join(FILE)),
        allows_sha1: rules.sha1,
        requires_signed_token: rules.signed_token,
    };
    Ok(Some(Arc::new(Signatures::open(&files)?)))
}

/// What an endpoint for devices does with signatures; `None` where they are ignored.
pub(crate) fn signing(app: &Shared, mode: SignatureMode) -> Option<Signing> {
    let signatures = app.signatures.clone();
    let signatures = signatures.filter(|_| mode != SignatureMode::Off)?;
    Some(Signing {
        signatures,
        mode: mode.into(),
    })
}

/// What a request says, by the mode of its interface, without waiting for anything but the disk.
///
/// # Errors
/// The signature is not valid, or absent where it is required.
pub(crate) fn receive(
    app: &Shared,
    mode: SignatureMode,
    document: &[u8],
    limits: Limits,
    peer: &str,
) -> Result<Received, NotAdmitted> {
    let unsigned = || Received {
        document: document.to_vec(),
        signer: None,
        is_signed: false,
        relates_to: None,
    };
    let Some(signatures) = &app.signatures else {
        return Ok(unsigned());
    };
    match signatures.admit(document, Mode::from(mode), limits, Vec::new()) {
        Ok(Admitted::Unsigned) => Ok(unsigned()),
        Ok(Admitted::Signed(verified)) => Ok(Received {
            document: verified.to_text().into_bytes(),
            relates_to: verified.relates_to(),
            signer: signer(app, &verified.certificate),
            is_signed: true,
        }),
        Err(error) => {
            let (drops, detail) = (&app.observability.drops, error.to_string());
            drops.record(Hop::Http, "signature", peer, detail, None);
            Err(error)
        }
    }
}

/// The account with this certificate.
fn signer(app: &Shared, certificate: &Certificate) -> Option<Caller> {
    let certificate = ClientCertificate::of_der(certificate.der());
    let signer = app.accounts.by_certificate(&certificate).ok()?;
    Some(match app.config.access.read {
        Read::Open => signer.with_open_reading(),
        Read::Token => signer,
    })
}

/// An answer, signed if the interface looks at signatures and the node has a certificate for it.
///
/// # Errors
/// The reason why it cannot be signed: above all, it is longer than a signed message may be.
pub(crate) fn answer(
    app: &Shared,
    mode: SignatureMode,
    answer: &[u8],
    relates_to: Option<Element>,
) -> Result<Vec<u8>, String> {
    let signatures = app.signatures.as_ref();
    let signatures = signatures.filter(|it| mode != SignatureMode::Off && it.can_sign());
    let Some(signatures) = signatures else {
        return Ok(answer.to_vec());
    };
    let text = |error: chappe_xml::Error| error.to_string();
    let mut envelope = Element::parse(answer).map_err(text)?;
    if let Some(header) = relates_to {
        let name = Name::new(v1_1::NAMESPACE, "Header");
        let header = Element::new(name).with_child(header);
        envelope.children.insert(0, Node::Element(header));
    }
    let signed = signatures.sign(&envelope);
    let signed = signed.map_err(|error| error.to_string())?;
    Ok(signed.map_or_else(|| answer.to_vec(), String::into_bytes))
}

/// The fault of SOAP 1.1 to answer with.
pub(crate) fn fault(error: &NotAdmitted) -> Fault {
    Fault {
        code: match error {
            NotAdmitted::Refused(error) => FaultCode::Security(error.fault_subcode()),
            _ => FaultCode::Server,
        },
        text: error.to_string().into(),
        detail: Vec::new(),
    }
}
