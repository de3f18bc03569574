//! Goal: of many changed messages none is accepted with other content than was signed, and none as a
//! new message.
//!
//! Method: each mutant ([`mutation`](super::mutation)) may be accepted only if all that is handed on is equal to
//! the original, as after a change of white space between headers. Then a cache that has seen the original must
//! refuse it. The same holds for a mutant as the answer to a request.

use chappe_identity::CertificateName;
use chappe_soap::security::{
    Answered, Expected, Mode, Policy, ReplayCache, Verified, admit_answer, verify,
};
use fastrand::Rng;

use super::mutation::Material;
use super::{NOW, REQUEST, file, signed_by, signer, trust};

/// Mutants of each run of the tests; `of_all_mutants_none_is_accepted` tries 10,000.
const SAMPLE: u64 = 500;

/// Messages of which mutants are made.
fn material() -> Material {
    let curve = signer("p256", &["p256"]);
    let documents = vec![
        signed_by(&curve),
        signed_by(&curve),
        signed_by(&signer("rsa", &["rsa", "intermediate"])),
    ];
    let names = [
        "stranger",
        "expired",
        "encipher",
        "code",
        "authority",
        "root",
        "p256",
        "sha1",
        "plain",
    ];
    let tokens = names.map(|name| {
        let text = file(&format!("{name}.pem"));
        text.lines()
            .filter(|line| !line.starts_with("---"))
            .collect()
    });
    Material {
        documents,
        tokens: tokens.to_vec(),
    }
}

/// All that is handed on.
fn content(verified: &Verified) -> String {
    format!(
        "{:?} {:?} {:?} {} {}",
        verified.certificate,
        verified.headers,
        verified.body,
        verified.created_unix_s,
        verified.soap_namespace(),
    )
}

/// Judges mutants; returns how many were accepted without a change of content.
fn try_mutants(mutants: u64) -> u64 {
    let material = material();
    let (policy, trust) = (Policy::default(), trust());
    let verify = |document: &str, replays: &mut ReplayCache| {
        verify(document.as_bytes(), &policy, &trust, replays, NOW)
    };
    let mut seen = ReplayCache::empty();
    let documents = material.documents.iter();
    let originals: Vec<Verified> = documents
        .map(|document| verify(document, &mut seen).unwrap())
        .collect();
    let signers: Vec<CertificateName> = originals.iter().map(Verified::signer).collect();
    let originals: Vec<String> = originals.iter().map(content).collect();
    let mut unchanged = 0;
    for seed in 0..mutants {
        let mut rng = Rng::with_seed(seed);
        let index = rng.usize(..material.documents.len());
        let original = &material.documents[index];
        let mutant = material.mutant(&mut rng, original);
        if mutant == *original {
            continue;
        }
        if let Ok(verified) = verify(&mutant, &mut ReplayCache::empty()) {
            let found = content(&verified);
            assert!(originals.contains(&found), "seed {seed}: {found}\n{mutant}");
            assert!(
                verify(&mutant, &mut seen).is_err(),
                "seed {seed}: new\n{mutant}"
            );
            unchanged += 1;
        }
        let expected = Expected {
            message_id: REQUEST,
            signer: Some(&signers[index]),
        };
        let document = mutant.as_bytes();
        let answer = admit_answer(document, Mode::Accepted, &policy, &trust, expected, NOW);
        if let Ok(answered) = answer {
            let Answered::Signed(verified) = answered else {
                panic!("seed {seed}: an answer without a signature\n{mutant}")
            };
            let found = content(&verified);
            assert!(originals.contains(&found), "seed {seed}: {found}\n{mutant}");
        }
    }
    unchanged
}

#[test]
fn of_a_sample_of_mutants_none_is_accepted() {
    let unchanged = try_mutants(SAMPLE);
    // Mutants that nobody would refuse say nothing.
    assert!(
        unchanged < SAMPLE / 4,
        "{unchanged} without a change of content"
    );
}

#[test]
#[ignore = "takes half a minute without optimization"]
fn of_all_mutants_none_is_accepted() {
    let unchanged = try_mutants(10_000);
    println!("{unchanged} of 10,000 mutants without a change of content were accepted");
}
