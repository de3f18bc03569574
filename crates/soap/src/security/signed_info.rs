//! `SignedInfo`: the algorithms, and the digest of each signed element.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_identity::certificate::Algorithm;
use chappe_xml::canonical::{EXCLUSIVE, Exclusive};
use chappe_xml::{Element, Name};

use super::algorithm::{self, Digest};
use super::{EC, Policy, SecurityError, ds};

/// Maximum signed elements. Default 32: a message has a Body, a timestamp and about ten headers, and
/// each costs a digest.
pub const REFERENCES_MAX: usize = 32;
/// Maximum bytes of base64 text: a token with a chain of certificates.
const BASE64_BYTES_MAX: usize = 192 << 10;

/// The content of a `SignedInfo`.
#[derive(Debug)]
pub(super) struct SignedInfo {
    pub(super) algorithm: Algorithm,
    pub(super) references: Vec<Reference>,
}

/// A reference to a signed element.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) id: String,
    pub(super) exclusive: Exclusive,
    pub(super) digest: Digest,
    pub(super) value: Vec<u8>,
}

/// The child elements of `element`, which must have exactly these names, in this order.
pub(super) fn children<'e, const N: usize>(
    element: &'e Element,
    names: [Name; N],
    why: &'static str,
) -> Result<[&'e Element; N], SecurityError> {
    let found: Vec<&Element> = element.elements().collect();
    let matches = found
        .iter()
        .zip(&names)
        .all(|(child, name)| child.name == *name);
    let found: Result<[&Element; N], _> = found.try_into();
    found
        .ok()
        .filter(|_| matches)
        .ok_or(SecurityError::Header(why))
}

/// An attribute in no namespace, or an empty text.
pub(super) fn attribute<'e>(element: &'e Element, name: &'static str) -> &'e str {
    element.attribute(&Name::local(name)).unwrap_or_default()
}

/// The bytes of base64 text, in which white space may be anywhere.
pub(super) fn base64(text: &str) -> Result<Vec<u8>, SecurityError> {
    if text.len() > BASE64_BYTES_MAX {
        return Err(SecurityError::Header("a base64 text is too long"));
    }
    let digits: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(digits);
    bytes.map_err(|_| SecurityError::Header("a base64 text is malformed"))
}

/// The parameters of a `CanonicalizationMethod` or `Transform`.
fn exclusive(element: &Element) -> Result<Exclusive, SecurityError> {
    let algorithm = attribute(element, "Algorithm");
    if algorithm != EXCLUSIVE {
        return Err(SecurityError::algorithm(algorithm));
    }
    let mut parameters = element.elements();
    let (first, second) = (parameters.next(), parameters.next());
    let Some(first) = first else {
        return Ok(Exclusive::default());
    };
    if !first.name.is(EC, "InclusiveNamespaces") || second.is_some() {
        return Err(SecurityError::Header("a transform has unknown parameters"));
    }
    let list = attribute(first, "PrefixList");
    Ok(Exclusive::default().with_prefix_list(list)?)
}

/// The canonical form in which the `SignedInfo` itself was signed.
pub(super) fn canonicalization(signed_info: &Element) -> Result<Exclusive, SecurityError> {
    let method = signed_info.elements().next();
    let method = method.filter(|method| method.name == ds("CanonicalizationMethod"));
    let missing = SecurityError::Header("the SignedInfo has no CanonicalizationMethod");
    exclusive(method.ok_or(missing)?)
}

impl SignedInfo {
    /// Reads the element, as it was signed.
    pub(super) fn of(signed_info: &Element, policy: &Policy) -> Result<Self, SecurityError> {
        let mut parts = signed_info.elements();
        let malformed = SecurityError::Header("the SignedInfo is malformed");
        let canonicalization = parts
            .next()
            .map(|it| it.name == ds("CanonicalizationMethod"));
        let method = parts.next().filter(|it| it.name == ds("SignatureMethod"));
        let method = method.filter(|_| canonicalization == Some(true));
        let method = method.ok_or_else(|| malformed.clone())?;
        if method.elements().next().is_some() {
            return Err(SecurityError::Header("the SignatureMethod has parameters"));
        }
        let algorithm = algorithm::signature(attribute(method, "Algorithm"), policy)?;
        let mut references = Vec::new();
        for part in parts {
            if part.name != ds("Reference") {
                return Err(malformed);
            }
            if references.len() >= REFERENCES_MAX {
                return Err(SecurityError::Header(
                    "the SignedInfo has too many references",
                ));
            }
            references.push(Reference::of(part, policy)?);
        }
        Ok(Self {
            algorithm,
            references,
        })
    }
}

/// The parts of a `Reference`: transforms, method and value of the digest.
fn parts(reference: &Element) -> Result<[&Element; 3], SecurityError> {
    let names = [ds("Transforms"), ds("DigestMethod"), ds("DigestValue")];
    children(reference, names, "a reference is malformed")
}

/// The one transform of a `Reference`.
pub(super) fn transform(reference: &Element) -> Result<Exclusive, SecurityError> {
    let [transforms, ..] = parts(reference)?;
    let why = "a reference has not exactly one transform";
    let [transform] = children(transforms, [ds("Transform")], why)?;
    exclusive(transform)
}

impl Reference {
    fn of(element: &Element, policy: &Policy) -> Result<Self, SecurityError> {
        let uri = attribute(element, "URI");
        let id = uri.strip_prefix('#').filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| {
            SecurityError::reference(uri, "only identifiers of elements are supported")
        })?;
        let [_, method, value] = parts(element)?;
        Ok(Self {
            id: id.to_owned(),
            exclusive: transform(element)?,
            digest: Digest::of(attribute(method, "Algorithm"), policy)?,
            value: base64(&value.text())?,
        })
    }
}
