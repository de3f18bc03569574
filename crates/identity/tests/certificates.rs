//! Goal: only certificates that may sign, now, with a chain to a trusted root, are accepted.
//!
//! Method: certificates that openssl made (`certificates/make`), each with one fault, judged at given
//! times; then bytes of a good one flipped, one by one.

use std::path::Path;

use chappe_identity::certificate::{
    Algorithm, Certificate, CertificateError, INTERMEDIATES_MAX, RevocationStatus, SigningKey,
    TrustStore,
};
use ring::rand::SystemRandom;

/// Within the validity of all certificates but the expired one: 2026-01-01.
const NOW: u64 = 1_767_225_600;

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn certificate(name: &str) -> Certificate {
    let mut all = Certificate::from_pem(&file(&format!("{name}.pem"))).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn store() -> TrustStore {
    TrustStore::from_pem(&file("root.pem")).unwrap()
}

fn intermediate() -> Vec<Vec<u8>> {
    vec![certificate("intermediate").der().to_vec()]
}

#[test]
fn a_chain_to_the_root_is_accepted() {
    let store = store();
    assert_eq!(
        store.verify(&certificate("rsa"), &intermediate(), NOW),
        Ok(())
    );
    assert_eq!(store.verify(&certificate("p256"), &[], NOW), Ok(()));
    assert_eq!(store.verify(&certificate("plain"), &[], NOW), Ok(()));
    let subject = certificate("rsa").subject().to_string();
    assert_eq!(subject, "O=Ward 3,CN=rsa");
}

#[test]
fn each_fault_is_found() {
    for (name, expected) in [
        ("rsa", CertificateError::Untrusted),
        ("stranger", CertificateError::Untrusted),
        ("expired", CertificateError::Expired),
        ("encipher", CertificateError::Usage),
        ("code", CertificateError::Usage),
        ("authority", CertificateError::Usage),
    ] {
        let found = store().verify(&certificate(name), &[], NOW);
        assert_eq!(found, Err(expected), "{name}");
    }
    let sha1 = store().verify(&certificate("sha1"), &[], NOW);
    assert!(matches!(sha1, Err(CertificateError::Chain(_))), "{sha1:?}");
    let root = store().verify(&certificate("root"), &[], NOW);
    assert_eq!(root, Err(CertificateError::Usage));
    let early = store().verify(&certificate("p256"), &[], 0);
    assert_eq!(early, Err(CertificateError::NotYetValid));
    let many = vec![Vec::new(); INTERMEDIATES_MAX + 1];
    let many = store().verify(&certificate("p256"), &many, NOW);
    assert!(matches!(many, Err(CertificateError::TooMany(..))));
    let p384 = Certificate::from_pem(&file("p384.pem")).unwrap_err();
    assert_eq!(p384, CertificateError::Key);
}

#[test]
fn revoked_certificates_and_outdated_lists_are_refused() {
    let with = |list: &str, status| {
        let store = store().with_revocation_lists(&file(list), status);
        store.unwrap()
    };
    let revoked = certificate("revoked");
    assert_eq!(store().verify(&revoked, &[], NOW), Ok(()));
    let lists = with("root.crl", RevocationStatus::MayBeUnknown);
    let found = lists.verify(&revoked, &[], NOW);
    assert_eq!(found, Err(CertificateError::Revoked));
    assert_eq!(lists.verify(&certificate("p256"), &[], NOW), Ok(()));
    assert_eq!(
        lists.verify(&certificate("rsa"), &intermediate(), NOW),
        Ok(())
    );
    let strict = with("root.crl", RevocationStatus::MustBeKnown);
    let found = strict.verify(&certificate("rsa"), &intermediate(), NOW);
    assert_eq!(found, Err(CertificateError::RevocationUnknown));
    let outdated = with("outdated.crl", RevocationStatus::MayBeUnknown);
    let found = outdated.verify(&certificate("p256"), &[], NOW);
    assert_eq!(found, Err(CertificateError::RevocationListExpired));
}

#[test]
fn the_latest_list_of_an_authority_counts() {
    let revoked = certificate("replaced");
    for lists in [
        ["earlier", "later"],
        ["later", "earlier"],
        ["lapsed", "later"],
    ] {
        let text = lists.map(|list| file(&format!("{list}.crl"))).concat();
        let store = TrustStore::from_pem(&file("renewing.pem")).unwrap();
        let store = store.with_revocation_lists(&text, RevocationStatus::MayBeUnknown);
        let found = store.unwrap().verify(&revoked, &[], NOW);
        assert_eq!(found, Err(CertificateError::Revoked), "{lists:?}");
    }
}

#[test]
fn keys_sign_for_their_certificate() {
    let random = SystemRandom::new();
    for (name, algorithm) in [
        ("rsa", Algorithm::RsaSha256),
        ("p256", Algorithm::EcdsaSha256),
    ] {
        let key = SigningKey::from_pem(&file(&format!("{name}.key")), &random).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        let certificate = certificate(name);
        assert!(key.is_key_of(&certificate));
        let mut signature = key.sign(b"message", &random).unwrap();
        assert_eq!(
            certificate.verify(algorithm, b"message", &signature),
            Ok(())
        );
        let wrong = Err(CertificateError::Signature);
        assert_eq!(certificate.verify(algorithm, b"massage", &signature), wrong);
        let sha1 = certificate.verify(Algorithm::RsaSha1, b"message", &signature);
        assert_eq!(sha1, wrong);
        signature[7] ^= 1;
        assert_eq!(certificate.verify(algorithm, b"message", &signature), wrong);
        assert!(!format!("{key:?}").contains('['));
    }
    let key = SigningKey::from_pem(&file("rsa.key"), &random).unwrap();
    assert!(!key.is_key_of(&certificate("p256")));
    for name in ["small.key", "p384.key", "rsa.pem"] {
        assert!(
            SigningKey::from_pem(&file(name), &random).is_err(),
            "{name}"
        );
    }
}

/// A key of 1,024 bits is in a certificate that a trusted root signed.
#[test]
fn small_keys_verify_nothing() {
    let small = certificate("small");
    let found = small.verify(Algorithm::RsaSha256, b"message", &[0; 128]);
    assert_eq!(found, Err(CertificateError::Signature));
}

#[test]
fn no_changed_certificate_is_accepted() {
    let good = certificate("p256");
    let store = store();
    for index in 0..good.der().len() {
        for bit in [1, 0x80] {
            let mut der = good.der().to_vec();
            der[index] ^= bit;
            let accepted = Certificate::from_der(&der)
                .and_then(|certificate| store.verify(&certificate, &[], NOW));
            assert!(accepted.is_err(), "byte {index}");
        }
    }
    for length in 0..good.der().len() {
        assert!(Certificate::from_der(&good.der()[..length]).is_err());
    }
}
