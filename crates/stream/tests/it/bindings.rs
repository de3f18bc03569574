//! Goal: a source is bound to a matching stream as long as it exists, switches to the replacement,
//! and reports why. Method: seeded histories of streams that appear and disappear; after each
//! update the invariants of a binding, and that the reported changes add up to the bound streams.

use std::collections::BTreeSet;

use chappe_stream::binding::{BindingChangeKind, BindingLimits};
use chappe_stream::*;
use proptest::prelude::*;

fn candidate(stream: &str, registered: u64) -> Candidate {
    Candidate {
        stream: stream.into(),
        device: Some(format!("urn:device:{stream}")),
        registered,
        why: "observes urn:ecg".into(),
        schema: StreamSchema::default(),
    }
}

#[test]
fn a_replacement_is_bound_and_reported() {
    let mut binding = Binding::new("ecg", BindingPolicy::One, BindingLimits::default());
    assert_eq!(
        binding.unbound_reason().as_deref(),
        Some("no stream has matched so far")
    );
    let bound = binding.update(Timestamp(1), &[candidate("a", 7), candidate("b", 5)]);
    assert_eq!(bound.len(), 1);
    assert_eq!(bound[0].candidate.stream, "b", "the earliest registered");
    assert_eq!(bound[0].reason, "observes urn:ecg");
    let nothing = binding.update(Timestamp(2), &[candidate("b", 5), candidate("0", 1)]);
    assert_eq!(nothing, [], "no stream is released for a new one");
    let changes = binding.update(Timestamp(3), &[candidate("a", 7)]);
    let reported: Vec<_> = changes
        .iter()
        .map(|c| (c.kind, c.candidate.stream.as_str(), c.reason.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (
                BindingChangeKind::Unbound,
                "b",
                "it was removed, or no longer matches; its device: urn:device:b"
            ),
            (
                BindingChangeKind::Bound,
                "a",
                "observes urn:ecg; replaces b"
            ),
        ]
    );
    binding.update(Timestamp(4), &[]);
    let reason = binding.unbound_reason().expect("unbound");
    assert!(
        reason.starts_with("no stream matches; the last one, a: "),
        "{reason}"
    );
    assert_eq!(binding.history().count(), 4);
}

#[test]
fn a_changed_schema_is_unbound_and_bound_again() {
    let mut binding = Binding::new("ecg", BindingPolicy::One, BindingLimits::default());
    binding.update(Timestamp(1), &[candidate("a", 1)]);
    let mut other = candidate("a", 1);
    other.schema.key = Some("bed".into());
    let changes = binding.update(Timestamp(2), &[other]);
    let kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
    assert_eq!(
        kinds,
        [BindingChangeKind::Unbound, BindingChangeKind::Bound]
    );
    assert_eq!(changes[0].reason, "its fields or its device changed");
}

proptest! {
    #[test]
    fn a_binding_keeps_its_invariants(
        all in any::<bool>(),
        streams in 1_usize..5,
        history in 1_usize..6,
        steps in prop::collection::vec(prop::collection::vec(0_u8..8, 0..8), 1..40),
    ) {
        let policy = if all { BindingPolicy::All } else { BindingPolicy::One };
        let limits = BindingLimits { streams, history };
        let mut binding = Binding::new("s", policy, limits);
        let mut reversed = Binding::new("s", policy, limits);
        let mut reported: BTreeSet<String> = BTreeSet::new();
        for (at, present) in steps.into_iter().enumerate() {
            let now = Timestamp(at as i64);
            let mut candidates: Vec<_> = present
                .iter()
                .map(|n| candidate(&format!("s{n}"), u64::from(n * 5 % 8)))
                .collect();
            let before: BTreeSet<String> = reported.clone();
            let changes = binding.update(now, &candidates);
            candidates.reverse();
            prop_assert_eq!(&reversed.update(now, &candidates), &changes, "order matters");
            for change in &changes {
                prop_assert!(!change.reason.is_empty());
                let stream = change.candidate.stream.clone();
                let new = match change.kind {
                    BindingChangeKind::Bound => reported.insert(stream),
                    BindingChangeKind::Unbound => reported.remove(&stream),
                };
                prop_assert!(new, "reported twice");
            }
            let bound: BTreeSet<String> =
                binding.bound().map(|b| b.candidate.stream.clone()).collect();
            let present: BTreeSet<String> =
                candidates.iter().map(|c| c.stream.clone()).collect();
            prop_assert_eq!(&bound, &reported, "the reported streams differ from the bound ones");
            prop_assert!(bound.is_subset(&present));
            let most = if all { streams } else { 1 };
            prop_assert_eq!(bound.len(), present.len().min(most), "bound less than could be");
            // Streams that were bound and still match are kept.
            prop_assert!(before.intersection(&present).all(|stream| bound.contains(stream)));
            prop_assert_eq!(binding.is_bound(), binding.unbound_reason().is_none());
            prop_assert!(binding.history().count() <= history);
            prop_assert_eq!(binding.matching(), present.len());
        }
    }
}
