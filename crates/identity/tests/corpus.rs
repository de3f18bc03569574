//! Every file of `fuzz/corpus/credentials` passes the checks of the fuzz target.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/credentials.rs"]
mod check;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

use chappe_identity::DistinguishedName;

#[test]
fn the_corpus_passes() {
    corpus::replay("credentials", 5, check::check);
}

/// openssl made the certificate; `openssl x509 -subject -nameopt RFC2253` prints the same name, with the number of
/// the attribute by its own word.
#[test]
fn the_subject_is_the_one_that_openssl_prints() {
    let certificate = include_bytes!("../../../fuzz/corpus/credentials/certificate");
    let name = DistinguishedName::of_certificate(certificate).unwrap();
    assert_eq!(name.to_string(), "CN=ada é,2.5.4.5=7,O=Ward\\, 3,C=FR");
}

#[test]
fn truncated_and_changed_certificates_pass() {
    let certificate = include_bytes!("../../../fuzz/corpus/credentials/certificate");
    for at in 0..certificate.len() {
        check::check(&certificate[..at]);
        for change in [0x01, 0x20, 0x80, 0xff] {
            let mut changed = certificate.to_vec();
            changed[at] ^= change;
            check::check(&changed);
        }
    }
}
