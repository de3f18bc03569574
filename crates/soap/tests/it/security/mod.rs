//! Goal: a signed message is accepted once, within its time, from a trusted signer, and only its signed
//! elements are handed on.
//!
//! Method: messages signed by [`Signer`] with certificates that openssl made, changed by hand here and
//! by the thousand in [`mutants`].

mod mutants;
mod mutation;
mod wrapping;

use std::path::Path;
use std::time::Duration;

use chappe_identity::certificate::{
    Certificate, CertificateError, RevocationStatus, SigningKey, TrustStore,
};
use chappe_soap::security::{
    Admitted, Answered, Expected, Mode, Policy, RECORD_BYTES, ReplayCache, SecurityError, Signer,
    Verified, WSSE, admit, admit_answer, verify,
};
use chappe_soap::{Addressing, AddressingVersion, EndpointReference, Envelope};
use chappe_xml::{Element, Name};
use ring::rand::SystemRandom;

/// 2026-01-01, within the validity of all certificates but the expired one.
const NOW: u64 = 1_767_225_600;
/// The identifier of the request that the message answers.
const REQUEST: &str = "urn:uuid:6";
const ADDRESS: &str = "urn:uuid:5e1f0b3a-0000-4000-8000-000000000001";

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../identity/tests/certificates");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn trust() -> TrustStore {
    TrustStore::from_pem(&file("root.pem")).unwrap()
}

/// A signer with the key `key`, which sends the certificates of these files.
fn signer(key: &str, certificates: &[&str]) -> Signer {
    let key = SigningKey::from_pem(&file(&format!("{key}.key")), &SystemRandom::new()).unwrap();
    let certificates = certificates.iter().map(|name| {
        let mut all = Certificate::from_pem(&file(&format!("{name}.pem"))).unwrap();
        all.remove(0)
    });
    Signer::new(key, certificates.collect()).unwrap()
}

/// A message with every kind of header, and prefixes that only text uses.
fn message() -> Envelope {
    let mut addressing = Addressing::new(AddressingVersion::V200508, "urn:x/Set");
    addressing.to = Some(ADDRESS.into());
    addressing.message_id = Some("urn:uuid:7".into());
    addressing.relates_to = Some(REQUEST.into());
    addressing.reply_to = Some(EndpointReference::new("http://192.0.2.1/reply"));
    let body = Element::parse(
        b"<s:Set xmlns:s='urn:x' xmlns:t='urn:types'><s:Level unit='%'>70</s:Level>\
          <s:Kind>t:Pump</s:Kind><s:Note> a &lt;b&gt; </s:Note></s:Set>",
    );
    Envelope::new(addressing)
        .with_header(Element::new(Name::new("urn:x", "Ward")).with_text("3"))
        .with_body(body.unwrap())
}

fn signed_by(signer: &Signer) -> String {
    let root = message().to_element();
    signer.sign(&root, NOW, &SystemRandom::new()).unwrap()
}

fn signed() -> String {
    signed_by(&signer("p256", &["p256"]))
}

fn check(document: &str) -> Result<Verified, SecurityError> {
    let replays = &mut ReplayCache::empty();
    verify(
        document.as_bytes(),
        &Policy::default(),
        &trust(),
        replays,
        NOW,
    )
}

#[test]
fn signed_messages_arrive_as_they_were() {
    for (key, certificates) in [
        ("p256", &["p256"][..]),
        ("rsa", &["rsa", "intermediate"]),
        ("p256", &["plain"]),
    ] {
        let sent = signed_by(&signer(key, certificates));
        let received = check(&sent).unwrap();
        assert_eq!(received.created_unix_s, NOW);
        assert!(received.unsigned_headers.is_empty());
        let subject = received.certificate.subject().to_string();
        assert_eq!(subject, format!("O=Ward 3,CN={}", certificates[0]));
        let envelope = received.into_envelope().unwrap();
        assert_eq!(envelope.addressing, message().addressing);
        assert_eq!(envelope.headers[0].text(), "3");
        let body = envelope.body().unwrap();
        assert_eq!(body.elements().next().unwrap().text(), "70");
        // The prefix that only text uses is still declared, with the namespace that was signed.
        let kind = body.elements().nth(1).unwrap();
        assert_eq!(kind.text(), "t:Pump");
        let declared = |prefix: &str| {
            let all = body.namespaces.iter();
            all.clone()
                .any(|(it, namespace)| it == prefix && *namespace == "urn:types")
        };
        assert!(declared("t"), "{:?}", body.namespaces);
    }
}

#[test]
fn messages_of_soap_1_1_are_signed_too() {
    let envelope = Element::parse(
        b"<Envelope xmlns='http://schemas.xmlsoap.org/soap/envelope/'><Body>\
          <find_business xmlns='urn:uddi-org:api_v2' generic='2.0'/></Body></Envelope>",
    );
    let signer = signer("rsa", &["rsa", "intermediate"]);
    let sent = signer.sign(&envelope.unwrap(), NOW, &SystemRandom::new());
    let received = check(&sent.unwrap()).unwrap();
    let soap = "http://schemas.xmlsoap.org/soap/envelope/";
    assert_eq!(received.soap_namespace(), soap);
    assert!(received.body.name.is(soap, "Body"));
    let request = received.body.elements().next().unwrap();
    assert!(request.name.is("urn:uddi-org:api_v2", "find_business"));
}

#[test]
fn messages_are_accepted_within_their_time_once() {
    let sent = signed();
    let (policy, trust) = (Policy::default(), trust());
    let mut replays = ReplayCache::empty();
    let mut at = |unix_s| verify(sent.as_bytes(), &policy, &trust, &mut replays, unix_s).err();
    assert_eq!(at(NOW - 61), Some(SecurityError::Future));
    assert_eq!(at(NOW + 361), Some(SecurityError::Expired));
    assert_eq!(at(NOW - 60), None);
    for unix_s in [NOW - 60, NOW, NOW + 360] {
        assert_eq!(at(unix_s), Some(SecurityError::Replayed));
    }
    assert_eq!(at(NOW + 361), Some(SecurityError::Expired));
    // The same content, signed again, is another message.
    let again = signed();
    assert!(verify(again.as_bytes(), &policy, &trust, &mut replays, NOW).is_ok());
}

#[test]
fn replays_are_recognized_after_a_restart() {
    let sent = signed();
    let (policy, trust) = (Policy::default(), trust());
    let skew = policy.clock_skew;
    let mut replays = ReplayCache::empty();
    let received = verify(sent.as_bytes(), &policy, &trust, &mut replays, NOW).unwrap();
    let stored = received.record.as_bytes().to_vec();
    assert_eq!(stored.len(), RECORD_BYTES);
    let mut restored = ReplayCache::restore(&stored, NOW + 1, skew).cache;
    let again = verify(sent.as_bytes(), &policy, &trust, &mut restored, NOW + 1);
    assert_eq!(again.err(), Some(SecurityError::Replayed));
    let mut lost = ReplayCache::new(NOW + 1, skew);
    let again = verify(sent.as_bytes(), &policy, &trust, &mut lost, NOW + 1);
    assert_eq!(again.err(), Some(SecurityError::BeforeReplays));
}

#[test]
fn certificates_must_be_trusted() {
    for (name, expected) in [
        ("stranger", CertificateError::Untrusted),
        ("expired", CertificateError::Expired),
        ("encipher", CertificateError::Usage),
        ("code", CertificateError::Usage),
        ("authority", CertificateError::Usage),
    ] {
        let sent = signed_by(&signer("p256", &[name]));
        let expected = SecurityError::Certificate(expected);
        assert_eq!(check(&sent).err(), Some(expected), "{name}");
    }
    // The chain is not complete.
    let sent = signed_by(&signer("rsa", &["rsa"]));
    let untrusted = SecurityError::Certificate(CertificateError::Untrusted);
    assert_eq!(check(&sent).err(), Some(untrusted));
    let list = file("root.crl");
    let trust = trust().with_revocation_lists(&list, RevocationStatus::MayBeUnknown);
    let sent = signed_by(&signer("p256", &["revoked"]));
    let (policy, replays) = (Policy::default(), &mut ReplayCache::empty());
    let found = verify(sent.as_bytes(), &policy, &trust.unwrap(), replays, NOW);
    let revoked = SecurityError::Certificate(CertificateError::Revoked);
    assert_eq!(found.err(), Some(revoked));
    let key = SigningKey::from_pem(&file("p256.key"), &SystemRandom::new()).unwrap();
    let other = Certificate::from_pem(&file("rsa.pem")).unwrap();
    assert_eq!(
        Signer::new(key, other).err(),
        Some(SecurityError::KeyMismatch)
    );
}

#[test]
fn modes_of_an_endpoint() {
    let (signed, unsigned) = (signed(), message().to_text());
    let changed = signed.replace(">70<", ">71<");
    let (policy, trust) = (Policy::default(), trust());
    let admit = |document: &str, mode| {
        let replays = &mut ReplayCache::empty();
        let admitted = admit(document.as_bytes(), mode, &policy, &trust, replays, NOW);
        admitted.map(|admitted| matches!(admitted, Admitted::Signed(_)))
    };
    for (mode, of_signed, of_unsigned) in [
        (Mode::Off, Ok(false), Ok(false)),
        (Mode::Accepted, Ok(true), Ok(false)),
        (Mode::Required, Ok(true), Err(SecurityError::NotSigned)),
    ] {
        assert_eq!(admit(&signed, mode), of_signed, "{mode:?}");
        assert_eq!(admit(&unsigned, mode), of_unsigned, "{mode:?}");
        if mode != Mode::Off {
            assert!(matches!(
                admit(&changed, mode),
                Err(SecurityError::Digest(_))
            ));
        }
    }
}

#[test]
fn only_messages_to_the_endpoint_are_accepted() {
    let sent = signed();
    let with = |addressees: &[&str]| {
        let policy = Policy {
            addressees: addressees.iter().map(|it| (*it).to_owned()).collect(),
            ..Policy::default()
        };
        let replays = &mut ReplayCache::empty();
        verify(sent.as_bytes(), &policy, &trust(), replays, NOW).err()
    };
    assert_eq!(with(&["urn:uuid:other", ADDRESS]), None);
    assert_eq!(with(&["urn:uuid:other"]), Some(SecurityError::Addressee));
}

#[test]
fn lifetimes_of_the_sender_are_kept() {
    let policy = Policy {
        max_age: Duration::from_secs(3_600),
        ..Policy::default()
    };
    let sent = signed();
    let replays = &mut ReplayCache::empty();
    let found = verify(sent.as_bytes(), &policy, &trust(), replays, NOW + 361);
    assert_eq!(
        found.err(),
        Some(SecurityError::Expired),
        "Expires comes first"
    );
}

#[test]
fn an_answer_is_of_its_request_and_its_peer() {
    let by_curve = signed();
    let by_rsa = signed_by(&signer("rsa", &["rsa", "intermediate"]));
    let unsigned = message().to_element().to_text();
    let curve = check(&by_curve).unwrap().signer();
    let judge = |document: &str, mode, message_id, signer| {
        let expected = Expected { message_id, signer };
        let (policy, trust) = (Policy::default(), trust());
        admit_answer(document.as_bytes(), mode, &policy, &trust, expected, NOW)
    };
    let accepted = |answered| matches!(answered, Ok(Answered::Signed(_)));
    for signer in [None, Some(&curve)] {
        for _ in 0..2 {
            // The identifier of the request is used once, so that no replay is remembered.
            assert!(accepted(judge(&by_curve, Mode::Required, REQUEST, signer)));
        }
        let other = judge(&by_curve, Mode::Accepted, "urn:uuid:5", signer).unwrap_err();
        assert_eq!(other, SecurityError::Unrelated);
    }
    let other = judge(&by_rsa, Mode::Accepted, REQUEST, Some(&curve)).unwrap_err();
    assert!(matches!(other, SecurityError::Signer(_)), "{other}");
    assert_eq!(other.fault_subcode(), "FailedAuthentication");
    let bare = judge(&unsigned, Mode::Accepted, REQUEST, Some(&curve)).unwrap_err();
    assert_eq!(bare, SecurityError::NotSigned);
    for mode in [Mode::Off, Mode::Accepted] {
        let bare = judge(&unsigned, mode, REQUEST, None);
        assert!(matches!(bare, Ok(Answered::Unsigned)), "{bare:?}");
    }
}
