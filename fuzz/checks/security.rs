//! Invariants of signed messages for any bytes.

use chappe_identity::CertificateName;
use chappe_identity::certificate::TrustStore;
use chappe_soap::security::{
    Answered, Expected, Mode, Policy, ReplayCache, Verified, admit_answer, verify,
};
use chappe_xml::Limits;

use crate::bounds::Bound;

/// Trees and forms of the Signature and of each signed part, at most 64 KiB of document each.
const BOUND: Bound = Bound::memory(16 << 20, 400);
const ROOT: &str = include_str!("../../crates/identity/tests/certificates/root.pem");
/// The time at which the messages of the corpus were signed.
const SIGNED_UNIX_S: u64 = 1_767_225_600;

/// No panic; a message that is accepted is refused when it comes again, and after a restart. As the answer to a
/// request it is accepted if it relates to it and is signed by the peer that is expected, and not otherwise.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    let trust = TrustStore::from_pem(ROOT).expect("the root is a certificate");
    BOUND.hold(data.len(), || check_unbounded(data, &trust));
}

fn check_unbounded(data: &[u8], trust: &TrustStore) {
    let policy = Policy {
        allows_sha1: true,
        limits: Limits::datagram(),
        ..Policy::default()
    };
    let mut replays = ReplayCache::empty();
    let Ok(verified) = verify(data, &policy, trust, &mut replays, SIGNED_UNIX_S) else {
        assert!(replays.is_empty());
        let answered = answer(data, &policy, trust, ("", None));
        assert!(!matches!(answered, Some(Answered::Signed(_))));
        return;
    };
    assert_eq!(verified.body.name.local, "Body");
    check_answer(data, &policy, trust, &verified);
    let mut restored =
        ReplayCache::restore(verified.record.as_bytes(), SIGNED_UNIX_S, policy.clock_skew);
    let _ = verified.into_envelope();
    for replays in [&mut replays, &mut restored.cache] {
        assert!(verify(data, &policy, trust, replays, SIGNED_UNIX_S).is_err());
    }
}

fn answer(
    data: &[u8],
    policy: &Policy,
    trust: &TrustStore,
    (message_id, signer): (&str, Option<&CertificateName>),
) -> Option<Answered> {
    let expected = Expected { message_id, signer };
    admit_answer(data, Mode::Accepted, policy, trust, expected, SIGNED_UNIX_S).ok()
}

fn check_answer(data: &[u8], policy: &Policy, trust: &TrustStore, verified: &Verified) {
    let signer = verified.signer();
    let id = verified.addressing_header("RelatesTo");
    let judge = |id: &str, signer: Option<&CertificateName>| {
        answer(data, policy, trust, (id, signer)).is_some()
    };
    if let Some(id) = &id {
        assert!(judge(id, Some(&signer)));
        let other: CertificateName = "CN=other".parse().expect("a name");
        assert!(!judge(id, Some(&other)));
    }
    let id = id.unwrap_or_default();
    assert!(!judge(&format!("{id}x"), None));
}
