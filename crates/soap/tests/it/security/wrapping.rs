//! Attacks on signed messages that are known by name, each with the reason for which it is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_soap::security::{Policy, ReplayCache, SecurityError, verify};

use super::{NOW, check, file, signed, signed_by, signer, trust};

/// The text from the first `from` up to the end of the first `to` after it.
fn span<'d>(document: &'d str, from: &str, to: &str) -> &'d str {
    let start = document
        .find(from)
        .unwrap_or_else(|| panic!("{from} in {document}"));
    let end = start + document[start..].find(to).unwrap() + to.len();
    &document[start..end]
}

fn body(document: &str) -> &str {
    span(document, "<soap:Body", "</soap:Body>")
}

fn id_of(element: &str) -> &str {
    let start = element.find("wsu:Id=\"").unwrap() + 8;
    &element[start..start + element[start..].find('"').unwrap()]
}

fn refused(document: &str) -> SecurityError {
    match check(document) {
        Ok(verified) => panic!("accepted: {:?}\n{document}", verified.body),
        Err(error) => error,
    }
}

#[test]
fn a_signed_body_elsewhere_is_not_the_body() {
    let document = signed();
    let real = body(&document).to_owned();
    let evil = real.replace(">70<", ">99<");
    let unsigned = evil.replace(id_of(&real), "other");
    let in_header = |wrapped: &str| {
        let moved = document.replace(&real, "BODY");
        let moved = moved.replace("</soap:Header>", &format!("{wrapped}</soap:Header>"));
        moved.replace("BODY", &unsigned)
    };
    for wrapped in [
        real.clone(),
        format!("<x:w xmlns:x='urn:w'>{real}</x:w>"),
        format!("<soap:Header>{real}</soap:Header>"),
    ] {
        let error = refused(&in_header(&wrapped));
        let is_expected = matches!(
            error,
            SecurityError::Unsigned(_) | SecurityError::Reference { .. }
        );
        assert!(is_expected, "{error}");
    }
    // In the Security header, in the Signature, and inside the new Body.
    for place in [
        "</wsse:Security>",
        "</ds:Signature>",
        "</wsse:SecurityTokenReference>",
    ] {
        let moved = document.replace(&real, &unsigned);
        refused(&moved.replacen(place, &format!("{real}{place}"), 1));
    }
    let inside = unsigned.replace("</soap:Body>", &format!("{real}</soap:Body>"));
    refused(&document.replace(&real, &inside));
}

#[test]
fn two_bodies_are_no_message() {
    let document = signed();
    let real = body(&document).to_owned();
    let evil = real.replace(">70<", ">99<");
    for both in [format!("{real}{evil}"), format!("{evil}{real}")] {
        let error = refused(&document.replace(&real, &both));
        assert!(matches!(error, SecurityError::Envelope(_)), "{error}");
    }
}

#[test]
fn an_identifier_that_occurs_twice_is_refused() {
    let document = signed();
    let id = id_of(body(&document)).to_owned();
    for other in ["wsu:Id", "Id", "id", "ID", "xml:id"] {
        let changed = document.replace(" unit=", &format!(" {other}='{id}' unit="));
        assert_ne!(changed, document);
        // It is in the signed Body, but even outside, the identifier must be unique.
        refused(&changed);
        let header = format!("<x:h xmlns:x='urn:x' {other}='{id}'/></soap:Header>");
        let error = refused(&document.replace("</soap:Header>", &header));
        assert!(matches!(error, SecurityError::Reference { .. }), "{error}");
    }
}

#[test]
fn headers_that_steer_must_be_signed() {
    let document = signed();
    let to = span(&document, "<wsa:To", "</wsa:To>").to_owned();
    for header in [
        "<wsa:To>urn:other</wsa:To>",
        "<wsa:FaultTo><wsa:Address>http://192.0.2.9/</wsa:Address></wsa:FaultTo>",
        "<x:Old xmlns:x='http://schemas.xmlsoap.org/ws/2004/08/addressing'/>",
        "<x:New xmlns:x='urn:x' soap:mustUnderstand='1'/>",
    ] {
        let changed = document.replace(&to, &format!("{to}{header}"));
        let error = refused(&changed);
        assert!(matches!(error, SecurityError::Unsigned(_)), "{error}");
    }
    // Others are left out, and reported.
    let harmless = format!("{to}<x:Trace xmlns:x='urn:x'>1</x:Trace>");
    let received = check(&document.replace(&to, &harmless)).unwrap();
    assert_eq!(received.unsigned_headers.len(), 1);
    let names: Vec<_> = received
        .headers
        .iter()
        .map(|it| it.name.to_string())
        .collect();
    assert!(
        !names.iter().any(|name| name.contains("Trace")),
        "{names:?}"
    );
    // A signed header that was removed, or is in another place.
    assert!(matches!(
        refused(&document.replace(&to, "")),
        SecurityError::Reference { .. }
    ));
    let moved = document.replace(&to, "");
    let moved = moved.replace("<ds:Signature>", &format!("{to}<ds:Signature>"));
    assert!(matches!(refused(&moved), SecurityError::Reference { .. }));
}

#[test]
fn a_prefix_of_a_qname_in_text_cannot_be_bound_again() {
    let document = signed();
    let changed = document.replace("xmlns:t=\"urn:types\"", "xmlns:t=\"urn:other\"");
    assert_ne!(changed, document);
    assert!(matches!(refused(&changed), SecurityError::Digest(_)));
}

#[test]
fn algorithms_are_those_of_the_policy() {
    let document = signed_by(&signer("rsa", &["rsa", "intermediate"]));
    let sha256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
    let digest = "http://www.w3.org/2001/04/xmlenc#sha256";
    let exclusive = "Transform Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#\"";
    for (from, to) in [
        (sha256, "http://www.w3.org/2000/09/xmldsig#rsa-sha1"),
        (sha256, "http://www.w3.org/2000/09/xmldsig#hmac-sha1"),
        (sha256, "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256"),
        (sha256, "http://www.w3.org/2001/04/xmldsig-more#rsa-md5"),
        (sha256, ""),
        (digest, "http://www.w3.org/2000/09/xmldsig#sha1"),
        (digest, "http://www.w3.org/2001/04/xmldsig-more#md5"),
        (
            exclusive,
            "Transform Algorithm=\"http://www.w3.org/TR/1999/REC-xslt-19991116\"",
        ),
        (
            exclusive,
            "Transform Algorithm=\"http://www.w3.org/TR/2001/REC-xml-c14n-20010315\"",
        ),
        (
            exclusive,
            "Transform Algorithm=\"http://www.w3.org/2001/10/xml-exc-c14n#WithComments\"",
        ),
    ] {
        let error = refused(&document.replace(from, to));
        assert!(
            matches!(error, SecurityError::Algorithm(_)),
            "{to}: {error}"
        );
        assert_eq!(error.fault_subcode(), "UnsupportedAlgorithm");
    }
    // With SHA-1 allowed, the signature is not one of SHA-1.
    let policy = Policy {
        allows_sha1: true,
        ..Policy::default()
    };
    let changed = document.replace(sha256, "http://www.w3.org/2000/09/xmldsig#rsa-sha1");
    let replays = &mut ReplayCache::empty();
    let found = verify(changed.as_bytes(), &policy, &trust(), replays, NOW);
    assert_eq!(found.unwrap_err().fault_subcode(), "FailedCheck");
}

#[test]
fn signed_parts_of_two_messages_do_not_mix() {
    let signer = signer("p256", &["p256"]);
    let (one, other) = (signed_by(&signer), signed_by(&signer));
    for part in [
        ("<soap:Body", "</soap:Body>"),
        ("<wsu:Timestamp", "</wsu:Timestamp>"),
        ("<ds:SignedInfo", "</ds:SignedInfo>"),
        ("<ds:SignatureValue", "</ds:SignatureValue>"),
        ("<ds:KeyInfo", "</ds:KeyInfo>"),
        ("<wsa:To", "</wsa:To>"),
    ] {
        let (from, to) = (span(&one, part.0, part.1), span(&other, part.0, part.1));
        refused(&one.replace(from, to));
    }
}

#[test]
fn the_structure_of_the_security_header_is_strict() {
    let document = signed();
    let signature = span(&document, "<ds:Signature>", "</ds:Signature>");
    let timestamp = span(&document, "<wsu:Timestamp", "</wsu:Timestamp>");
    let security = span(&document, "<wsse:Security ", "</wsse:Security>");
    let info = span(&document, "<ds:SignedInfo>", "</ds:SignedInfo>");
    let key = span(&document, "<ds:KeyInfo>", "</ds:KeyInfo>");
    for (from, to) in [
        (signature, format!("{signature}{signature}")),
        (timestamp, format!("{timestamp}{timestamp}")),
        (security, format!("{security}{security}")),
        (
            security,
            format!("<wsse:Security xmlns:wsse=\"{}\"/>{security}", super::WSSE),
        ),
        (info, format!("{info}{info}")),
        (info, String::new()),
        (key, String::new()),
        (
            key,
            format!("{key}<ds:Object>{}</ds:Object>", body(&document)),
        ),
        (timestamp, String::new()),
    ] {
        refused(&document.replace(from, &to));
    }
    // A document type could define entities, or identifiers.
    let typed = document.replace("?><soap", "?><!DOCTYPE a [<!ENTITY b 'c'>]><soap");
    assert_ne!(typed, document);
    assert!(matches!(refused(&typed), SecurityError::Xml(_)));
}

/// ECDSA has two signatures for each: (r, s) and (r, n - s). The other one must not make a new message.
#[test]
fn the_other_signature_is_no_new_message() {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
        0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let document = signed();
    let value = text_of(&document, "ds:SignatureValue");
    let mut signature = STANDARD.decode(value).unwrap();
    let mut borrow = 0;
    for index in (0..32).rev() {
        let difference = i16::from(ORDER[index]) - i16::from(signature[32 + index]) - borrow;
        borrow = i16::from(difference < 0);
        signature[32 + index] = u8::try_from(difference.rem_euclid(256)).unwrap();
    }
    let other = document.replace(value, &STANDARD.encode(signature));
    assert_ne!(other, document);
    let (policy, trust) = (Policy::default(), trust());
    let verify = |document: &str, replays: &mut ReplayCache| {
        verify(document.as_bytes(), &policy, &trust, replays, NOW).err()
    };
    assert_eq!(verify(&other, &mut ReplayCache::empty()), None);
    let mut seen = ReplayCache::empty();
    assert_eq!(verify(&document, &mut seen), None);
    assert_eq!(verify(&other, &mut seen), Some(SecurityError::Replayed));
}

fn text_of<'d>(document: &'d str, name: &str) -> &'d str {
    let element = span(document, &format!("<{name}"), &format!("</{name}>"));
    let start = element.find('>').unwrap() + 1;
    &element[start..element.len() - name.len() - 3]
}

/// A message of zeep, which does not sign its token, with another certificate of the same key.
#[test]
fn a_token_that_is_not_signed_can_be_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/security");
    let document = std::fs::read_to_string(format!("{folder}/unsigned-token.xml")).unwrap();
    let plain: String = file("plain.pem")
        .lines()
        .filter(|line| !line.starts_with("---"))
        .collect();
    let exchanged = document.replace(text_of(&document, "wsse:BinarySecurityToken"), &plain);
    assert_ne!(exchanged, document);
    let verify = |document: &str, requires_signed_token| {
        let policy = Policy {
            requires_signed_token,
            ..Policy::default()
        };
        let replays = &mut ReplayCache::empty();
        verify(document.as_bytes(), &policy, &trust(), replays, NOW)
    };
    let certificate = |document: &str| verify(document, false).unwrap().certificate;
    let (real, other) = (certificate(&document), certificate(&exchanged));
    assert_eq!(real.subject().to_string(), "O=Ward 3,CN=p256");
    assert_eq!(other.subject().to_string(), "O=Ward 3,CN=plain");
    assert_eq!(real.key_hash(), other.key_hash());
    for document in [&document, &exchanged] {
        let error = verify(document, true).unwrap_err();
        assert!(matches!(error, SecurityError::Unsigned(_)), "{error}");
    }
    assert!(verify(&signed(), true).is_ok());
}
