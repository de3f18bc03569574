//! Goal: a source is bound to a matching stream while it exists, binds the replacement, and gives
//! the reason.
//! Method: seeded histories of streams that appear and disappear; after each update the invariants
//! of a binding are checked, and that the reported changes add up to the bound streams.

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
fn a_replacement_is_taken_and_told() {
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
    assert_eq!(nothing, [], "nothing is let go for a newcomer");
    let changes = binding.update(Timestamp(3), &[candidate("a", 7)]);
    let told: Vec<_> = changes
        .iter()
        .map(|c| (c.kind, c.candidate.stream.as_str(), c.reason.as_str()))
        .collect();
    assert_eq!(
        told,
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
fn a_changed_schema_is_let_go_and_taken_again() {
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
        let mut told: BTreeSet<String> = BTreeSet::new();
        for (at, present) in steps.into_iter().enumerate() {
            let now = Timestamp(at as i64);
            let mut candidates: Vec<_> = present
                .iter()
                .map(|n| candidate(&format!("s{n}"), u64::from(n * 5 % 8)))
                .collect();
            let before: BTreeSet<String> = told.clone();
            let changes = binding.update(now, &candidates);
            candidates.reverse();
            prop_assert_eq!(&reversed.update(now, &candidates), &changes, "order matters");
            for change in &changes {
                prop_assert!(!change.reason.is_empty());
                let stream = change.candidate.stream.clone();
                let new = match change.kind {
                    BindingChangeKind::Bound => told.insert(stream),
                    BindingChangeKind::Unbound => told.remove(&stream),
                };
                prop_assert!(new, "told twice");
            }
            let bound: BTreeSet<String> =
                binding.bound().map(|b| b.candidate.stream.clone()).collect();
            let present: BTreeSet<String> =
                candidates.iter().map(|c| c.stream.clone()).collect();
            prop_assert_eq!(&bound, &told, "what is told is not what is bound");
            prop_assert!(bound.is_subset(&present));
            let most = if all { streams } else { 1 };
            prop_assert_eq!(bound.len(), present.len().min(most), "bound less than could be");
            // What was bound and still matches is kept.
            prop_assert!(before.intersection(&present).all(|stream| bound.contains(stream)));
            prop_assert_eq!(binding.is_bound(), binding.unbound_reason().is_none());
            prop_assert!(binding.history().count() <= history);
            prop_assert_eq!(binding.matching(), present.len());
        }
    }
}
