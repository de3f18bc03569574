//! Signing a message.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_identity::certificate::{Certificate, SigningKey};
use chappe_identity::hex_encode;
use chappe_xml::canonical::{EXCLUSIVE, Exclusive};
use chappe_xml::{Element, Limits, Name, Node};
use ring::rand::SecureRandom;

use super::algorithm::{DIGEST_SHA256, Digest, identifier};
use super::key_info::path_of;
use super::layout::Layout;
use super::signed_info::{canonicalization, transform};
use super::{
    BASE64_BINARY, DS, EC, PKI_PATH, Policy, REFERENCES_MAX, SecurityError, WSSE, WSU, X509_V3, ds,
    short, wsse, wsu,
};
use crate::envelope::NAMESPACE;
use crate::schema::format_date_time;
use crate::v1_1;

/// How long a signed message is valid. Default 5 minutes, as receivers accept.
pub const LIFETIME: std::time::Duration = super::MAX_AGE;

/// Signs messages with a key and its certificates.
#[derive(Debug)]
pub struct Signer {
    key: SigningKey,
    /// From the key's own to the last one before a root.
    certificates: Vec<Certificate>,
}

/// Texts that stand in the message until the digests and the signature are known.
struct Marks {
    /// Unique, so that no text of the message can be taken for a mark.
    id: String,
}

impl Marks {
    fn part(&self, index: usize) -> String {
        format!("{}-{index}", self.id)
    }

    fn digest(&self, index: usize) -> String {
        format!("{}-digest-{index}-", self.id)
    }

    fn signature(&self) -> String {
        format!("{}-signature-", self.id)
    }
}

impl Signer {
    /// A signer with a key and its certificate, which may be followed by those between it and a root.
    /// With more than one, messages have a path (`X509PKIPathv1`), otherwise the certificate alone.
    ///
    /// # Errors
    /// The first certificate is not of the key.
    pub fn new(key: SigningKey, certificates: Vec<Certificate>) -> Result<Self, SecurityError> {
        let is_first = certificates.first().is_some_and(|it| key.is_key_of(it));
        match is_first {
            true => Ok(Self { key, certificates }),
            false => Err(SecurityError::KeyMismatch),
        }
    }

    /// Signs the Body and all headers of an envelope of SOAP 1.1 or 1.2, and a timestamp and the
    /// certificate, which it adds. Returns the document.
    ///
    /// # Errors
    /// `envelope` is no envelope, has a `Security` header or too many headers or prefixes, or `random`
    /// fails.
    pub fn sign(
        &self,
        envelope: &Element,
        unix_s: u64,
        random: &dyn SecureRandom,
    ) -> Result<String, SecurityError> {
        self.sign_for(envelope, true, unix_s, random)
    }

    /// Like [`Signer::sign`], but a receiver that knows no signatures may ignore this one: the header has no
    /// `mustUnderstand`.
    ///
    /// # Errors
    /// Those of [`Signer::sign`].
    pub fn sign_optionally(
        &self,
        envelope: &Element,
        unix_s: u64,
        random: &dyn SecureRandom,
    ) -> Result<String, SecurityError> {
        self.sign_for(envelope, false, unix_s, random)
    }

    fn sign_for(
        &self,
        envelope: &Element,
        must_understand: bool,
        unix_s: u64,
        random: &dyn SecureRandom,
    ) -> Result<String, SecurityError> {
        let mut unique = [0; 16];
        random
            .fill(&mut unique)
            .map_err(|_| SecurityError::Random)?;
        let marks = Marks {
            id: format!("id-{}", hex_encode(&unique)),
        };
        let mut root = envelope.clone();
        self.complete(&mut root, must_understand, unix_s, &marks)?;
        let text = root.to_text();
        let limits = Policy::default().limits;
        let text = with_digests(&text, &marks, limits)?;
        let layout = Layout::read(text.as_bytes(), limits)?;
        let Some((_, signed_info)) = &layout.signature else {
            return Err(SecurityError::Header("the signature was lost"));
        };
        let (element, _) = signed_info.read(&short(Exclusive::default()))?;
        let form = signed_info.canonical(&short(canonicalization(&element)?))?;
        let signature = STANDARD.encode(self.key.sign(&form, random)?);
        let text = text.replacen(&marks.signature(), &signature, 1);
        Ok(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{text}"))
    }

    /// Adds the `Security` header, with marks where digests and the signature will be.
    fn complete(
        &self,
        root: &mut Element,
        must_understand: bool,
        unix_s: u64,
        marks: &Marks,
    ) -> Result<(), SecurityError> {
        let versions = [NAMESPACE, v1_1::NAMESPACE];
        let soap = versions
            .into_iter()
            .find(|soap| root.name.is(soap, "Envelope"));
        let soap = soap.ok_or(SecurityError::Envelope("the root is not an Envelope"))?;
        // Declared once, in place of on each signed element.
        if !root.namespaces.iter().any(|(prefix, _)| prefix == "wsu") {
            root.namespaces.push(("wsu".into(), WSU.into()));
        }
        let prefixes_of_root = prefixes(&root.namespaces);
        if !root.elements().any(|child| child.name.is(soap, "Header")) {
            let header = Element::new(Name::new(soap, "Header"));
            root.children.insert(0, Node::Element(header));
        }
        let mut references = Vec::new();
        let mut sign = |element: &mut Element, around: &BTreeSet<String>| {
            let id = marks.part(references.len());
            element.attributes.retain(|(name, _)| *name != wsu("Id"));
            element.attributes.push((wsu("Id"), id.clone().into()));
            let mut all = around.clone();
            collect_prefixes(element, &mut all);
            let mark = marks.digest(references.len());
            references.push(reference(&id, &all, &mark));
        };
        let mut security = self.security(unix_s);
        if must_understand {
            let understood = if soap == NAMESPACE { "true" } else { "1" };
            let name = Name::new(soap, "mustUnderstand");
            security.attributes.push((name, understood.into()));
        }
        let around = prefixes(&security.namespaces);
        for child in security.children.iter_mut().filter_map(element_of) {
            sign(child, &around);
        }
        for child in root.children.iter_mut().filter_map(element_of) {
            if child.name.is(soap, "Body") {
                sign(child, &prefixes_of_root);
            } else if child.name.is(soap, "Header") {
                let mut around = prefixes_of_root.clone();
                around.extend(prefixes(&child.namespaces));
                for block in child.children.iter_mut().filter_map(element_of) {
                    if block.name == wsse("Security") {
                        return Err(SecurityError::Header("the message has one already"));
                    }
                    sign(block, &around);
                }
            }
        }
        if references.len() > REFERENCES_MAX {
            return Err(SecurityError::Header("the message has too many headers"));
        }
        let token = marks.part(0);
        security = security.with_child(self.signature(references, &token, marks));
        let header = root.children.iter_mut().filter_map(element_of);
        if let Some(header) = header.into_iter().find(|it| it.name.is(soap, "Header")) {
            header.children.push(Node::Element(security));
        }
        Ok(())
    }

    /// The header with the token, which comes first, and the timestamp.
    fn security(&self, unix_s: u64) -> Element {
        let (kind, der) = match &self.certificates[..] {
            [one] => (X509_V3, one.der().to_vec()),
            path => (PKI_PATH, path_of(path)),
        };
        let token = Element::new(wsse("BinarySecurityToken"))
            .with_attribute(Name::local("EncodingType"), BASE64_BINARY)
            .with_attribute(Name::local("ValueType"), kind)
            .with_text(STANDARD.encode(der));
        let time = |local, unix_s: u64| {
            let nanoseconds = i64::try_from(unix_s).unwrap_or(i64::MAX);
            let nanoseconds = nanoseconds.saturating_mul(1_000_000_000);
            Element::new(wsu(local)).with_text(format_date_time(nanoseconds))
        };
        let timestamp = Element::new(wsu("Timestamp"))
            .with_child(time("Created", unix_s))
            .with_child(time("Expires", unix_s.saturating_add(LIFETIME.as_secs())));
        Element::new(wsse("Security"))
            .with_namespace("wsse", WSSE)
            .with_namespace("wsu", WSU)
            .with_namespace("ds", DS)
            .with_child(token)
            .with_child(timestamp)
    }

    fn signature(&self, references: Vec<Element>, token: &str, marks: &Marks) -> Element {
        let method = identifier(self.key.algorithm());
        let signed_info = Element::new(ds("SignedInfo"))
            .with_child(with_algorithm("CanonicalizationMethod", EXCLUSIVE))
            .with_child(with_algorithm("SignatureMethod", method))
            .with_children(references);
        let value = Element::new(ds("SignatureValue")).with_text(marks.signature());
        let kind = match self.certificates.len() {
            1 => X509_V3,
            _ => PKI_PATH,
        };
        let reference = Element::new(wsse("Reference"))
            .with_attribute(Name::local("URI"), format!("#{token}"))
            .with_attribute(Name::local("ValueType"), kind);
        let key_info = Element::new(ds("KeyInfo"))
            .with_child(Element::new(wsse("SecurityTokenReference")).with_child(reference));
        Element::new(ds("Signature"))
            .with_child(signed_info)
            .with_child(value)
            .with_child(key_info)
    }
}

fn element_of(node: &mut Node) -> Option<&mut Element> {
    match node {
        Node::Element(element) => Some(element),
        Node::Text(_) => None,
    }
}

fn with_algorithm(local: &'static str, algorithm: &'static str) -> Element {
    Element::new(ds(local)).with_attribute(Name::local("Algorithm"), algorithm)
}

fn prefixes(declarations: &[(chappe_xml::Str, chappe_xml::Namespace)]) -> BTreeSet<String> {
    let prefixes = declarations.iter();
    prefixes.map(|(prefix, _)| prefix.to_string()).collect()
}

/// The prefixes that an element or one in it declares: its text may use them.
fn collect_prefixes(element: &Element, all: &mut BTreeSet<String>) {
    all.extend(prefixes(&element.namespaces));
    for child in element.elements() {
        collect_prefixes(child, all);
    }
}

/// A reference that includes these prefixes, so that QNames in text are part of what is signed.
fn reference(id: &str, prefixes: &BTreeSet<String>, digest: &str) -> Element {
    let list: Vec<&str> = prefixes
        .iter()
        .map(|prefix| {
            if prefix.is_empty() {
                "#default"
            } else {
                prefix
            }
        })
        .collect();
    let mut transform = with_algorithm("Transform", EXCLUSIVE);
    if !list.is_empty() {
        let inclusive = Element::new(Name::new(EC, "InclusiveNamespaces"))
            .with_namespace("ec", EC)
            .with_attribute(Name::local("PrefixList"), list.join(" "));
        transform = transform.with_child(inclusive);
    }
    Element::new(ds("Reference"))
        .with_attribute(Name::local("URI"), format!("#{id}"))
        .with_child(Element::new(ds("Transforms")).with_child(transform))
        .with_child(with_algorithm("DigestMethod", DIGEST_SHA256))
        .with_child(Element::new(ds("DigestValue")).with_text(digest.to_owned()))
}

/// The document with the digests of its parts in place of their marks.
fn with_digests(text: &str, marks: &Marks, limits: Limits) -> Result<String, SecurityError> {
    let layout = Layout::read(text.as_bytes(), limits)?;
    let Some((_, signed_info)) = &layout.signature else {
        return Err(SecurityError::Header("the signature was lost"));
    };
    let (element, _) = signed_info.read(&short(Exclusive::default()))?;
    let mut finished = text.to_owned();
    let references = element.elements().filter(|it| it.name == ds("Reference"));
    for (index, reference) in references.enumerate() {
        let part = &layout.parts[layout.part(&marks.part(index))?];
        let form = part.fragment.canonical(&transform(reference)?)?;
        let digest = Digest::Sha256.digest(&form);
        finished = finished.replacen(&marks.digest(index), &STANDARD.encode(digest), 1);
    }
    Ok(finished)
}
