//! Self-signed certificates (RFC 5280): one fixed form, encoded in DER.
//!
//! For a node ECDSA over P-256, which every browser supports (none accepts Ed25519 from a server). For a device its own
//! Ed25519 key: the same key, endpoint and usages give the same certificate, so that it is made at each start and stored
//! nowhere. No certificate has an expiry: peers pin its fingerprint, which would change with it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_identity::{Key, id_of};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

use super::Usage;

/// Object identifiers, as their DER contents.
pub(super) mod oid {
    /// ecdsa-with-SHA256 (RFC 5758).
    pub(super) const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    /// id-ecPublicKey (RFC 5480).
    pub(super) const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    /// id-Ed25519 (RFC 8410).
    pub(super) const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
    /// secp256r1 (RFC 5480).
    pub(super) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    /// commonName.
    pub(super) const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    /// subjectAltName.
    pub(in super::super) const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 17];
    /// basicConstraints.
    pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
    /// keyUsage.
    pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    /// extKeyUsage.
    pub(in super::super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    /// id-kp-serverAuth.
    pub(super) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
    /// id-kp-clientAuth.
    pub(super) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const GENERALIZED_TIME: u8 = 0x18;
const UTC_TIME: u8 = 0x17;

/// Bytes of a common name (RFC 5280, appendix A.1: ub-common-name).
const COMMON_NAME_MAX: usize = 64;

/// The end time of a certificate without expiry (RFC 5280, 4.1.2.5).
pub(super) const FOREVER: &str = "99991231235959Z";

/// A new key and its certificate as one PEM text, key first. The text is secret.
///
/// `uri` names the node by its key; `names` are host names and addresses; `until` is a
/// GeneralizedTime.
pub(super) fn make(
    name: &str,
    uri: &str,
    names: &[String],
    until: &str,
) -> Result<String, Unspecified> {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random)?;
    let key =
        EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).map_err(|_| Unspecified)?;
    let mut serial = [0; 16];
    random.fill(&mut serial)?;
    // Positive, and without a leading zero.
    serial[0] = serial[0] & 0x7f | 0x40;
    let subject = Subject {
        name,
        uri,
        names,
        until,
        signature: wrap(SEQUENCE, &wrap(OBJECT, oid::ECDSA_WITH_SHA256)),
        usages: wrap(OBJECT, oid::SERVER_AUTH),
        algorithm: [wrap(OBJECT, oid::EC_PUBLIC_KEY), wrap(OBJECT, oid::P256)].concat(),
        public: key.public_key().as_ref(),
    };
    let body = body(&serial, &subject);
    let signature = key.sign(&random, &body)?;
    let certificate = signed(body, &subject, signature.as_ref());
    Ok(pem("PRIVATE KEY", pkcs8.as_ref()) + &pem("CERTIFICATE", &certificate))
}

/// The certificate of a device or client in DER, always the same for these arguments: for both ends of TLS and
/// the other `usages`.
pub(super) fn of_key(key: &Key, name: &str, uri: &str, usages: &[Usage]) -> Vec<u8> {
    let public = key.public();
    let ends = [oid::SERVER_AUTH, oid::CLIENT_AUTH].map(|usage| wrap(OBJECT, usage));
    let others = usages.iter().map(Usage::der);
    let usages: Vec<u8> = ends.into_iter().chain(others).flatten().collect();
    let subject = Subject {
        name,
        uri,
        names: &[],
        until: FOREVER,
        signature: wrap(SEQUENCE, &wrap(OBJECT, oid::ED25519)),
        algorithm: wrap(OBJECT, oid::ED25519),
        public: public.as_bytes(),
        usages,
    };
    // No two certificates of a key that differ have the same number.
    let mut serial = id_of(&[name, uri, &format!("{public} {:?}", subject.usages)]);
    // Positive, and without a leading zero.
    serial[0] = serial[0] & 0x7f | 0x40;
    let body = body(&serial, &subject);
    let signature = key.sign(&body);
    signed(body, &subject, &signature)
}

/// The subject of a certificate.
struct Subject<'a> {
    name: &'a str,
    uri: &'a str,
    names: &'a [String],
    until: &'a str,
    /// The algorithm of the signature, in DER.
    signature: Vec<u8>,
    /// The contents of `extKeyUsage`.
    usages: Vec<u8>,
    /// The contents of the algorithm of the key.
    algorithm: Vec<u8>,
    public: &'a [u8],
}

/// The certificate with this signed part.
fn signed(body: Vec<u8>, of: &Subject<'_>, signature: &[u8]) -> Vec<u8> {
    wrap(
        SEQUENCE,
        &[body, of.signature.clone(), bits(signature)].concat(),
    )
}

/// The signed part (tbsCertificate).
fn body(serial: &[u8], of: &Subject<'_>) -> Vec<u8> {
    let subject = subject(of.name);
    let validity = [
        wrap(UTC_TIME, b"200101000000Z"),
        wrap(GENERALIZED_TIME, of.until.as_bytes()),
    ];
    let public = [wrap(SEQUENCE, &of.algorithm), bits(of.public)];
    let extensions = [
        extension(oid::BASIC_CONSTRAINTS, true, &wrap(SEQUENCE, &[])),
        // digitalSignature: the first of eight bits, seven of them unused.
        extension(oid::KEY_USAGE, true, &wrap(BIT_STRING, &[7, 0x80])),
        extension(oid::EXTENDED_KEY_USAGE, false, &wrap(SEQUENCE, &of.usages)),
        extension(
            oid::ALTERNATIVE_NAME,
            false,
            &alternatives(of.uri, of.names),
        ),
    ];
    let parts = [
        // Version 3.
        wrap(0xa0, &wrap(INTEGER, &[2])),
        wrap(INTEGER, serial),
        of.signature.clone(),
        subject.clone(),
        wrap(SEQUENCE, &validity.concat()),
        subject,
        wrap(SEQUENCE, &public.concat()),
        wrap(0xa3, &wrap(SEQUENCE, &extensions.concat())),
    ];
    wrap(SEQUENCE, &parts.concat())
}

fn subject(name: &str) -> Vec<u8> {
    let mut end = name.len().min(COMMON_NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let pair = [
        wrap(OBJECT, oid::COMMON_NAME),
        wrap(UTF8_STRING, &name.as_bytes()[..end]),
    ];
    wrap(SEQUENCE, &wrap(SET, &wrap(SEQUENCE, &pair.concat())))
}

/// GeneralNames: host names [2], the node [6], addresses [7].
fn alternatives(uri: &str, names: &[String]) -> Vec<u8> {
    let mut all = Vec::new();
    for name in names {
        all.extend(match name.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => wrap(0x87, &address.octets()),
            Ok(IpAddr::V6(address)) => wrap(0x87, &address.octets()),
            // Names beyond ASCII need another form; the fingerprint is sufficient for them.
            Err(_) if !name.is_ascii() => continue,
            Err(_) => wrap(0x82, name.as_bytes()),
        });
    }
    all.extend(wrap(0x86, uri.as_bytes()));
    wrap(SEQUENCE, &all)
}

fn extension(object: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = match critical {
        true => wrap(BOOLEAN, &[0xff]),
        false => Vec::new(),
    };
    let parts = [wrap(OBJECT, object), critical, wrap(OCTET_STRING, value)];
    wrap(SEQUENCE, &parts.concat())
}

/// A bit string of whole bytes.
fn bits(bytes: &[u8]) -> Vec<u8> {
    wrap(BIT_STRING, &[&[0], bytes].concat())
}

/// Tag, length, contents (X.690, 8.1).
pub(super) fn wrap(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len().to_be_bytes();
    let mut out = vec![tag];
    match contents.len() {
        short @ 0..128 => out.push(short as u8),
        _ => {
            let leading = length.iter().take_while(|byte| **byte == 0).count();
            out.push(0x80 | (length.len() - leading) as u8);
            out.extend(&length[leading..]);
        }
    }
    out.extend(contents);
    out
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().copied().map(char::from));
        lines.push('\n');
    }
    lines + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_short_as_they_can_be() {
        assert_eq!(wrap(4, &[]), [4, 0]);
        assert_eq!(wrap(4, &[1; 127])[..2], [4, 127]);
        assert_eq!(wrap(4, &[1; 128])[..3], [4, 0x81, 128]);
        assert_eq!(wrap(4, &[1; 256])[..4], [4, 0x82, 1, 0]);
    }

    #[test]
    fn a_key_has_one_certificate_for_each_endpoint_and_usage() {
        let key = Key::from_seed([7; 32]);
        let made = |uri, usages: &[&str]| {
            let usages: Vec<Usage> = usages.iter().map(|it| it.parse().unwrap()).collect();
            of_key(&key, "valve", uri, &usages)
        };
        let plain = made("urn:uuid:0a", &[]);
        assert_eq!(plain, made("urn:uuid:0a", &[]));
        assert_ne!(plain, made("urn:uuid:0b", &[]));
        assert_ne!(plain, made("urn:uuid:0a", &["1.2.840.10004.20701.1.1"]));
    }

    #[test]
    fn every_certificate_is_another() {
        let make = || make("node", "urn:chappe:node:00", &[], FOREVER).unwrap();
        assert_ne!(make(), make());
    }
}
