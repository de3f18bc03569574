//! What a signed message costs beyond its bare cryptography: the product signs and verifies a message, and the floor
//! does what it needs of keys and certificates alone: one signature made, or one verified and one chain checked.

use std::hint::black_box;

use chappe_identity::certificate::{Certificate, SigningKey, TrustStore};
use chappe_soap::security::{Policy, ReplayCache, Signer, verify};
use chappe_soap::v1_1;
use chappe_xml::{Element, Name};
use ring::rand::SystemRandom;

use crate::{Error, Limit, Reference, Report, Settings, timing};

/// Batches, of which the median counts, and messages in each.
const BATCHES: usize = 21;
const MESSAGES: u32 = 50;
/// The largest part of the bare cryptography that a message costs, and what it costs besides, in microseconds.
const MOST: f64 = 1.3;
const MORE_US: f64 = 50.0;
/// 2026-01-01, within the validity of the certificates.
const UNIX_S: u64 = 1_767_225_600;

const ROOT: &str = include_str!("../../../identity/tests/certificates/root.pem");
/// Key and certificate of a signer, and its name.
const SIGNERS: [(&str, &str, &str); 2] = [
    (
        "ECDSA on P-256",
        include_str!("../../../identity/tests/certificates/p256.key"),
        include_str!("../../../identity/tests/certificates/p256.pem"),
    ),
    (
        "RSA, 2,048 bits",
        include_str!("../../../identity/tests/certificates/rsa.key"),
        concat!(
            include_str!("../../../identity/tests/certificates/rsa.pem"),
            include_str!("../../../identity/tests/certificates/intermediate.pem"),
        ),
    ),
];

/// A save_service of 1.5 kB.
fn message() -> Result<Element, Error> {
    let element = |local| Element::new(Name::new("urn:uddi-org:api_v2", local));
    let reference = |number: usize| {
        element("keyedReference")
            .with_attribute(Name::local("keyName"), "a property")
            .with_attribute(Name::local("keyValue"), format!("value {number}"))
    };
    let bag = (0..16).map(reference).collect::<Vec<_>>();
    let service = element("businessService")
        .with_child(element("name").with_text("Infusion pump 7"))
        .with_child(element("categoryBag").with_children(bag));
    let text = v1_1::to_text(element("save_service").with_child(service));
    Element::parse(text.as_bytes()).map_err(Error::failed("a message"))
}

pub(super) fn run(settings: &Settings, report: &mut Report) -> Result<(), Error> {
    (settings.progress)("signing and verifying messages");
    let random = SystemRandom::new();
    let failed = || Error::failed("a certificate");
    let trust = TrustStore::from_pem(ROOT).map_err(failed())?;
    let (envelope, policy) = (message()?, Policy::default());
    for (name, key, chain) in SIGNERS {
        let read = || SigningKey::from_pem(key, &random).map_err(failed());
        let certificates = Certificate::from_pem(chain).map_err(failed())?;
        let bare = read()?;
        let signer = Signer::new(read()?, certificates.clone());
        let signer = signer.map_err(Error::failed("a signer"))?;
        let sign = || signer.sign(&envelope, UNIX_S, &random);
        let signed = sign().map_err(Error::failed("signing"))?;
        let form = [7; 2_000];
        let signature = bare.sign(&form, &random).map_err(failed())?;
        let (own, above) = (&certificates[0], &certificates[1..]);
        let above: Vec<Vec<u8>> = above.iter().map(|it| it.der().to_vec()).collect();
        let cost = |work: &mut dyn FnMut()| 1e6 * timing::median_s(BATCHES, MESSAGES, work);
        let floors = [
            cost(&mut || drop(black_box(bare.sign(&form, &random)))),
            cost(&mut || {
                black_box(own.verify(bare.algorithm(), &form, &signature).is_ok());
                black_box(trust.verify(own, &above, UNIX_S).is_ok());
            }),
        ];
        let costs = [
            cost(&mut || drop(black_box(sign()))),
            cost(&mut || {
                let replays = &mut ReplayCache::empty();
                let verified = verify(signed.as_bytes(), &policy, &trust, replays, UNIX_S);
                black_box(verified.is_ok());
            }),
        ];
        for ((what, cost), floor) in ["signed", "verified"].into_iter().zip(costs).zip(floors) {
            let of = format!("{} B, {name}", signed.len());
            report.row(&format!("a message {what}, {name}"), cost, "us", of);
            let bare = format!("bare cryptography, {what}, {name}");
            report.row(&bare, floor, "us", "signature; chain if verified");
            report.target(
                format!("a message {what}, {name}, in 1.3 times the bare cryptography and 50 us"),
                (cost, "us"),
                Reference::new(bare, MOST * floor + MORE_US),
                Limit::AtMost(1.0),
            );
        }
    }
    Ok(())
}
