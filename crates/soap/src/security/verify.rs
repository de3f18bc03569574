//! Verifying a signed message.

use chappe_identity::certificate::{Certificate, TrustStore};
use chappe_identity::{CertificateName, ClientCertificate};
use chappe_xml::canonical::{Exclusive, FORM_BYTES_MAX};
use chappe_xml::{Element, Limits, Name};
use ring::digest::{Context, SHA256};

use super::key_info::{Chain, chain};
use super::layout::{Kind, Layout, Part};
use super::signed_info::{SignedInfo, base64, canonicalization, children};
use super::timestamp::Timestamp;
use super::{Mode, Policy, ReplayCache, ReplayRecord, SecurityError, ds, short, wsse, wsu};
use crate::{AddressingVersion, Envelope, Error};

/// A message whose signature is valid: its signed elements and nothing else.
#[derive(Debug, Clone)]
pub struct Verified {
    /// The signer's certificate, with a chain to a trusted root.
    pub certificate: Certificate,
    /// The signed headers, in the order of the signature. Each is read from its canonical form: a
    /// prefix that only its text uses is declared in it only if the signer included it.
    pub headers: Vec<Element>,
    /// The Body, read from its canonical form.
    pub body: Element,
    /// Headers that were not signed, and are not in `headers`.
    pub unsigned_headers: Vec<Name>,
    /// When the message was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// To be stored before the message has an effect, so that replays are recognized after a restart.
    pub record: ReplayRecord,
    soap: &'static str,
}

impl Verified {
    /// The message with its signed parts, of SOAP 1.2.
    ///
    /// # Errors
    /// The message is of SOAP 1.1, or has no valid addressing headers.
    pub fn into_envelope(self) -> Result<Envelope, Error> {
        let element = |local: &'static str| {
            Element::new(Name {
                namespace: self.soap.into(),
                local: local.into(),
            })
        };
        let header = element("Header").with_children(self.headers);
        Envelope::from_element(element("Envelope").with_child(header).with_child(self.body))
    }

    /// The message with its signed parts, of SOAP 1.1 or 1.2, for a receiver that reads the text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let element = |local: &'static str| {
            Element::new(Name {
                namespace: self.soap.into(),
                local: local.into(),
            })
        };
        let header = element("Header").with_children(self.headers.clone());
        let envelope = element("Envelope").with_child(header);
        envelope.with_child(self.body.clone()).to_text()
    }

    /// The signer by subject and issuer, which stay when the certificate is renewed.
    #[must_use]
    pub fn signer(&self) -> CertificateName {
        ClientCertificate::of_der(self.certificate.der()).lasting_name()
    }

    /// The text of the one signed addressing header with this local name, such as `MessageID`; `None` if there
    /// is none or several.
    #[must_use]
    pub fn addressing_header(&self, local: &str) -> Option<String> {
        addressing_header(&self.headers, local)
    }

    /// The header by which an answer relates to this message, if the message has one signed identifier.
    #[must_use]
    pub fn relates_to(&self) -> Option<Element> {
        let id = self.addressing_header("MessageID")?;
        let versions = self
            .headers
            .iter()
            .filter(|it| it.name.local == "MessageID");
        let version = versions
            .filter_map(|header| AddressingVersion::from_namespace(&header.name.namespace))
            .next()?;
        Some(Element::new(version.name("RelatesTo")).with_text(id))
    }

    /// The namespace of the envelope: of SOAP 1.1 or 1.2.
    #[must_use]
    pub const fn soap_namespace(&self) -> &'static str {
        self.soap
    }
}

/// A message at an endpoint with a [`Mode`].
#[derive(Debug)]
pub enum Admitted {
    /// The message has no signature, or the endpoint does not look at it.
    Unsigned,
    /// The message is signed.
    Signed(Box<Verified>),
}

/// Judges a message by the mode of an endpoint; see [`verify`].
///
/// # Errors
/// The message is not signed and the mode is [`Mode::Required`], or its signature is not valid.
pub fn admit(
    document: &[u8],
    mode: Mode,
    policy: &Policy,
    trust: &TrustStore,
    replays: &mut ReplayCache,
    unix_s: u64,
) -> Result<Admitted, SecurityError> {
    let checked = check(document, mode, policy, trust, unix_s)?;
    let verified = checked.map(|checked| checked.accept(replays)).transpose()?;
    Ok(match verified {
        None => Admitted::Unsigned,
        Some(verified) => Admitted::Signed(Box::new(verified)),
    })
}

/// Judges a message by the mode of an endpoint, apart from replays; `None` for a message without a signature. It
/// needs no cache of messages, so many messages can be checked at once.
///
/// # Errors
/// Those of [`admit`].
pub fn check(
    document: &[u8],
    mode: Mode,
    policy: &Policy,
    trust: &TrustStore,
    unix_s: u64,
) -> Result<Option<Checked>, SecurityError> {
    if mode == Mode::Off {
        return Ok(None);
    }
    match check_signature(document, policy, trust, unix_s) {
        Err(SecurityError::NotSigned) if mode == Mode::Accepted => Ok(None),
        checked => checked.map(Some),
    }
}

/// A message whose signature is valid. Whether it is a replay is not known yet.
pub struct Checked {
    certificate: Certificate,
    parts: Parts,
    timestamp: Timestamp,
    /// Tells the message from all others.
    message: [u8; 32],
    soap: &'static str,
    unix_s: u64,
}

impl std::fmt::Debug for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Checked");
        debug.field("certificate", &self.certificate);
        debug.finish_non_exhaustive()
    }
}

impl Checked {
    /// The message, if it was not accepted before; `replays` remembers it.
    ///
    /// # Errors
    /// The message was accepted before, or that cannot be known or remembered.
    pub fn accept(self, replays: &mut ReplayCache) -> Result<Verified, SecurityError> {
        let times = (self.timestamp.created, self.timestamp.last);
        let key_hash = self.certificate.key_hash();
        let record = replays.accept(self.message, &key_hash, times, self.unix_s)?;
        Ok(Verified {
            certificate: self.certificate,
            headers: self.parts.headers,
            body: self.parts.body,
            unsigned_headers: self.parts.unsigned_headers,
            created_unix_s: times.0,
            record,
            soap: self.soap,
        })
    }
}

/// Verifies the signature of an envelope, as the bytes that were received.
///
/// Costs that a stranger can cause without a trusted certificate are one reading of the document and
/// one chain; digests follow only after the signature of `SignedInfo`.
///
/// # Errors
/// The first rule of the policy that is violated. No part of the message may be used then.
pub fn verify(
    document: &[u8],
    policy: &Policy,
    trust: &TrustStore,
    replays: &mut ReplayCache,
    unix_s: u64,
) -> Result<Verified, SecurityError> {
    check_signature(document, policy, trust, unix_s)?.accept(replays)
}

fn check_signature(
    document: &[u8],
    policy: &Policy,
    trust: &TrustStore,
    unix_s: u64,
) -> Result<Checked, SecurityError> {
    let layout = Layout::read(document, policy.limits)?;
    let Some((signature, signed_info)) = &layout.signature else {
        return Err(SecurityError::NotSigned);
    };
    let (signature, _) = signature.read(&short(Exclusive::default()))?;
    let names = [ds("SignedInfo"), ds("SignatureValue"), ds("KeyInfo")];
    let why = "the Signature is not SignedInfo, SignatureValue and KeyInfo";
    let [unverified, value, key_info] = children(&signature, names, why)?;
    // Read here only for the form in which it was signed, and to refuse algorithms before any work.
    let exclusive = canonicalization(unverified)?;
    SignedInfo::of(unverified, policy)?;
    let (element, form) = signed_info.read(&short(exclusive))?;
    let signed = SignedInfo::of(&element, policy)?;
    let Chain {
        token,
        certificate,
        intermediates,
    } = chain(key_info, &layout)?;
    trust.verify(&certificate, &intermediates, unix_s)?;
    certificate.verify(signed.algorithm, &form, &base64(&value.text())?)?;

    let parts = Parts::of(&layout, &signed, policy.limits)?;
    if policy.requires_signed_token && !token.is_some_and(|token| parts.is_signed[token]) {
        return Err(SecurityError::Unsigned(wsse("BinarySecurityToken")));
    }
    let timestamp = Timestamp::check(&parts.timestamp, policy, unix_s)?;
    parts.check_addressee(policy)?;
    let mut context = Context::new(&SHA256);
    context.update(&certificate.key_hash());
    context.update(&form);
    let mut message = [0; 32];
    message.copy_from_slice(context.finish().as_ref());
    Ok(Checked {
        certificate,
        parts,
        timestamp,
        message,
        soap: layout.soap,
        unix_s,
    })
}

/// The text of the one addressing header with this local name; `None` if there is none or several.
fn addressing_header(headers: &[Element], local: &str) -> Option<String> {
    let mut all = headers.iter().filter(|header| {
        header.name.local == local
            && AddressingVersion::from_namespace(&header.name.namespace).is_some()
    });
    let (first, second) = (all.next()?, all.next());
    second.is_none().then(|| first.text().trim().to_owned())
}

/// The signed elements.
struct Parts {
    headers: Vec<Element>,
    body: Element,
    timestamp: Element,
    unsigned_headers: Vec<Name>,
    /// For each part of the layout.
    is_signed: Vec<bool>,
}

impl Parts {
    /// Compares each reference with the element at its place, and reads the element from the form
    /// that was digested.
    fn of(layout: &Layout<'_>, signed: &SignedInfo, limits: Limits) -> Result<Self, SecurityError> {
        let mut is_signed = vec![false; layout.parts.len()];
        let (mut headers, mut body, mut timestamp) = (Vec::new(), None, None);
        let mut left = FORM_BYTES_MAX;
        for reference in &signed.references {
            let index = layout.part(&reference.id)?;
            let part = &layout.parts[index];
            if std::mem::replace(&mut is_signed[index], true) {
                let why = "the element is signed twice";
                return Err(SecurityError::reference(&reference.id, why));
            }
            let exclusive = reference.exclusive.clone().with_bytes_max(left);
            let form = part.fragment.canonical(&exclusive)?;
            left = left.saturating_sub(form.len());
            if reference.digest.digest(&form) != reference.value {
                return Err(SecurityError::Digest(part.name.clone()));
            }
            let element = || {
                let bytes = limits.bytes.max(form.len());
                Element::parse_within(&form, Limits { bytes, ..limits })
            };
            match part.kind {
                Kind::Header => headers.push(element()?),
                Kind::Body => body = Some(element()?),
                Kind::Timestamp => timestamp = Some(element()?),
                Kind::Token => {}
            }
        }
        let unsigned = layout.parts.iter().zip(&is_signed);
        let unsigned: Vec<&Part<'_>> = unsigned
            .filter(|(part, is_signed)| part.kind == Kind::Header && !**is_signed)
            .map(|(part, _)| part)
            .collect();
        // An unsigned header that steers the message, or that must not be left out.
        let forbidden = unsigned.iter().find(|part| {
            part.must_understand
                || AddressingVersion::from_namespace(&part.name.namespace).is_some()
        });
        if let Some(part) = forbidden {
            return Err(SecurityError::Unsigned(part.name.clone()));
        }
        let missing = |name: Name| SecurityError::Unsigned(name);
        let soap = layout.soap;
        Ok(Self {
            headers,
            body: body.ok_or_else(|| missing(Name::new(soap, "Body")))?,
            timestamp: timestamp.ok_or_else(|| missing(wsu("Timestamp")))?,
            unsigned_headers: unsigned.into_iter().map(|part| part.name.clone()).collect(),
            is_signed,
        })
    }

    fn check_addressee(&self, policy: &Policy) -> Result<(), SecurityError> {
        if policy.addressees.is_empty() {
            return Ok(());
        }
        let address = addressing_header(&self.headers, "To");
        let is_ours = address.is_some_and(|address| policy.addressees.contains(&address));
        match is_ours {
            true => Ok(()),
            false => Err(SecurityError::Addressee),
        }
    }
}
