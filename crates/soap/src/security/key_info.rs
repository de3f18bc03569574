//! `KeyInfo`: the certificate of the signer, and those between it and a root.

use chappe_identity::certificate::{Certificate, INTERMEDIATES_MAX};
use chappe_identity::der;
use chappe_xml::Element;
use chappe_xml::canonical::Exclusive;

use super::layout::{Kind, Layout};
use super::signed_info::{attribute, base64, children};
use super::{BASE64_BINARY, PKI_PATH, SecurityError, X509_V3, ds, short, wsse};

const SEQUENCE: u8 = 0x30;

/// The signer's certificate, and others of the chain in DER.
#[derive(Debug)]
pub(super) struct Chain {
    /// The part of the message that is the token; none if the certificate is in the `KeyInfo`.
    pub(super) token: Option<usize>,
    pub(super) certificate: Certificate,
    pub(super) intermediates: Vec<Vec<u8>>,
}

/// The chain that a `KeyInfo` names: a token of the message by reference, or a certificate in place
/// (X.509 Certificate Token Profile 1.1, sections 3.1 and 3.2).
pub(super) fn chain(key_info: &Element, layout: &Layout<'_>) -> Result<Chain, SecurityError> {
    let why = "the KeyInfo has not exactly one SecurityTokenReference";
    let [reference] = children(key_info, [wsse("SecurityTokenReference")], why)?;
    let mut kinds = reference.elements();
    let (first, second) = (kinds.next(), kinds.next());
    let Some(first) = first.filter(|_| second.is_none()) else {
        let why = "the SecurityTokenReference has not exactly one reference";
        return Err(SecurityError::Header(why));
    };
    if first.name == wsse("Reference") {
        return token(attribute(first, "URI"), layout);
    }
    if first.name == ds("X509Data") {
        let certificates: Vec<&Element> = first
            .elements()
            .filter(|it| it.name == ds("X509Certificate"))
            .collect();
        // Several certificates have no order there.
        if let [certificate] = certificates[..] {
            return single(&base64(&certificate.text())?);
        }
    }
    Err(SecurityError::Token(
        "only a reference to a BinarySecurityToken, or one X509Certificate, is supported",
    ))
}

fn single(der: &[u8]) -> Result<Chain, SecurityError> {
    Ok(Chain {
        token: None,
        certificate: Certificate::from_der(der)?,
        intermediates: Vec::new(),
    })
}

/// The chain of a `BinarySecurityToken` in the `Security` header.
fn token(uri: &str, layout: &Layout<'_>) -> Result<Chain, SecurityError> {
    let id = uri.strip_prefix('#').unwrap_or_default();
    let index = layout.part(id)?;
    let part = &layout.parts[index];
    if part.kind != Kind::Token {
        return Err(SecurityError::reference(
            id,
            "the element is not a BinarySecurityToken",
        ));
    }
    let (token, _) = part.fragment.read(&short(Exclusive::default()))?;
    let encoding = attribute(&token, "EncodingType");
    if !encoding.is_empty() && encoding != BASE64_BINARY {
        return Err(SecurityError::Token(
            "the encoding of a token is not base64",
        ));
    }
    let bytes = base64(&token.text())?;
    let chain = match attribute(&token, "ValueType") {
        X509_V3 => single(&bytes)?,
        PKI_PATH => path(&bytes)?,
        _ => {
            let why = "the token is not an X.509 certificate or path";
            return Err(SecurityError::Token(why));
        }
    };
    Ok(Chain {
        token: Some(index),
        ..chain
    })
}

/// A `PKIPath`: certificates from the root's to the signer's, which is the last.
fn path(bytes: &[u8]) -> Result<Chain, SecurityError> {
    let malformed = SecurityError::Token("the path of certificates is malformed");
    let outer = der::value(bytes).filter(|(tag, _, rest)| *tag == SEQUENCE && rest.is_empty());
    let (_, mut left, _) = outer.ok_or_else(|| malformed.clone())?;
    let mut all = Vec::new();
    while !left.is_empty() {
        let value = der::value(left).filter(|it| it.0 == SEQUENCE);
        let (_, _, rest) = value.ok_or_else(|| malformed.clone())?;
        if all.len() > INTERMEDIATES_MAX {
            return Err(SecurityError::Token("the path has too many certificates"));
        }
        all.push(left[..left.len() - rest.len()].to_vec());
        left = rest;
    }
    let last = all.pop().ok_or(malformed)?;
    Ok(Chain {
        token: None,
        certificate: Certificate::from_der(&last)?,
        intermediates: all,
    })
}

/// The `PKIPath` of certificates in the order from the signer's to the root's.
pub(super) fn path_of(certificates: &[Certificate]) -> Vec<u8> {
    let contents: Vec<u8> = certificates
        .iter()
        .rev()
        .flat_map(|certificate| certificate.der().iter().copied())
        .collect();
    let length = contents.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut path = vec![SEQUENCE];
    match contents.len() {
        short @ 0..=0x7f => path.push(u8::try_from(short).unwrap_or_default()),
        _ => {
            path.push(0x80 | u8::try_from(length.len()).unwrap_or_default());
            path.extend_from_slice(length);
        }
    }
    path.extend(contents);
    path
}
