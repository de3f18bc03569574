//! UDDI 2.04 API specification: add_, delete_, get_ and set_publisherAssertions,
//! get_assertionStatusReport, find_relatedBusinesses.

use chappe_registry::uddi::{
    BusinessKey, CompletionStatus, ErrorCode, FindRelatedBusinesses, KeyedReference,
    PublisherAssertion, RelatedBusiness, TModelKey,
};

use super::{Desk, code, qualifiers, reference};

struct Family {
    desk: Desk,
    kind: TModelKey,
    /// Of ada.
    ward: BusinessKey,
    /// Of bob.
    room: BusinessKey,
    /// Of ada.
    attic: BusinessKey,
}

impl Family {
    fn new() -> Self {
        let mut desk = Desk::new();
        Self {
            kind: desk.tmodel("ada", "kind"),
            ward: desk.business("ada", "Ward 3"),
            room: desk.business("bob", "Room 1"),
            attic: desk.business("ada", "Attic"),
            desk,
        }
    }

    fn assertion(&self, from: BusinessKey, to: BusinessKey, value: &str) -> PublisherAssertion {
        PublisherAssertion {
            from_key: from,
            to_key: to,
            reference: KeyedReference {
                key_name: Some("holding".to_owned()),
                ..reference(self.kind, value)
            },
        }
    }

    fn add(&mut self, name: &str, assertion: &PublisherAssertion) -> Result<(), ErrorCode> {
        let assertions = [assertion.clone()];
        let added = self
            .desk
            .ask(name, |one| one.add_publisher_assertions(&assertions));
        added
            .and_then(|saved| saved.wait())
            .map_err(|error| error.code)
    }

    fn related(&self, key: BusinessKey, reference: Option<KeyedReference>) -> Vec<RelatedBusiness> {
        let ask = FindRelatedBusinesses {
            max_rows: None,
            qualifiers: qualifiers(&[]),
            business_key: key,
            reference,
        };
        let found = self.desk.inquiry().find_related_businesses(&ask).unwrap();
        assert!(!found.is_truncated);
        found.items
    }

    fn status(&mut self, name: &str) -> Vec<(CompletionStatus, bool, bool)> {
        let report = self.desk.ask(name, |one| one.assertion_status_report(None));
        let items = report.into_iter();
        items
            .map(|item| (item.status, item.owns_from, item.owns_to))
            .collect()
    }
}

/// find_relatedBusinesses: only relationships that both publishers assert, with their direction.
/// get_assertionStatusReport: who has not asserted yet, and which keys the asker owns.
#[test]
fn a_relationship_needs_both_publishers() {
    let mut family = Family::new();
    let assertion = family.assertion(family.ward, family.room, "parent-child");
    family.add("ada", &assertion).unwrap();
    assert!(family.related(family.ward, None).is_empty());
    let incomplete = CompletionStatus::ToKeyIncomplete;
    assert_eq!(family.status("ada"), [(incomplete, true, false)]);
    assert_eq!(family.status("bob"), [(incomplete, false, true)]);
    family.add("bob", &assertion).unwrap();
    let related = family.related(family.ward, None);
    assert_eq!(related.len(), 1);
    assert_eq!(related[0].business_key, family.room);
    assert_eq!(related[0].names[0].text, "Room 1");
    assert_eq!(
        related[0].from_key,
        std::slice::from_ref(&assertion.reference)
    );
    assert!(related[0].to_key.is_empty());
    let related = family.related(family.room, None);
    assert_eq!(related[0].business_key, family.ward);
    assert_eq!(
        related[0].to_key,
        std::slice::from_ref(&assertion.reference)
    );
    let complete = CompletionStatus::Complete;
    assert_eq!(family.status("ada"), [(complete, true, false)]);
    // One side takes it back.
    let assertions = [assertion];
    let deleted = family
        .desk
        .ask("ada", |ada| ada.delete_publisher_assertions(&assertions));
    deleted.unwrap().wait().unwrap();
    assert!(family.related(family.room, None).is_empty());
    let incomplete = CompletionStatus::FromKeyIncomplete;
    assert_eq!(family.status("bob"), [(incomplete, false, true)]);
}

/// get_assertionStatusReport, argument completionStatus.
#[test]
fn a_report_of_one_status() {
    let mut family = Family::new();
    let half = family.assertion(family.ward, family.room, "parent-child");
    let whole = family.assertion(family.ward, family.attic, "parent-child");
    family.add("ada", &half).unwrap();
    family.add("ada", &whole).unwrap();
    for (status, expect) in [
        ("status:complete", vec![whole]),
        ("status:toKey_incomplete", vec![half]),
        ("status:fromKey_incomplete", vec![]),
    ] {
        let status = CompletionStatus::parse(status).unwrap();
        let report = family
            .desk
            .ask("ada", |ada| ada.assertion_status_report(Some(status)));
        let found: Vec<_> = report.into_iter().map(|item| item.assertion).collect();
        assert_eq!(found, expect, "{status:?}");
    }
    assert_eq!(
        code(CompletionStatus::parse("status:x")),
        ErrorCode::InvalidCompletionStatus
    );
}

/// A publisher who owns both businesses asserts once.
#[test]
fn one_publisher_of_both_asserts_once() {
    let mut family = Family::new();
    let assertion = family.assertion(family.attic, family.ward, "peer-peer");
    family.add("ada", &assertion).unwrap();
    assert_eq!(family.related(family.attic, None).len(), 1);
    assert_eq!(
        family.status("ada"),
        [(CompletionStatus::Complete, true, true)]
    );
}

/// find_relatedBusinesses, argument keyedReference: selects businesses; those selected are
/// returned with all their relationships.
#[test]
fn a_reference_selects_businesses() {
    let mut family = Family::new();
    let parent = family.assertion(family.ward, family.room, "parent-child");
    let peer = family.assertion(family.room, family.ward, "peer-peer");
    for assertion in [&parent, &peer] {
        for name in ["ada", "bob"] {
            family.add(name, assertion).unwrap();
        }
    }
    let attic = family.assertion(family.ward, family.attic, "peer-peer");
    family.add("ada", &attic).unwrap();
    let related = family.related(family.ward, Some(parent.reference.clone()));
    assert_eq!(related.len(), 1);
    assert_eq!(related[0].from_key, [parent.reference]);
    assert_eq!(related[0].to_key, std::slice::from_ref(&peer.reference));
    let names: Vec<_> = family
        .related(family.ward, Some(peer.reference.clone()))
        .into_iter()
        .map(|one| one.names[0].text.clone())
        .collect();
    assert_eq!(names, ["Attic", "Room 1"]);
    // All three parts of the reference must be equal.
    let other = KeyedReference {
        key_name: None,
        ..peer.reference
    };
    assert!(family.related(family.ward, Some(other)).is_empty());
    let ask = FindRelatedBusinesses {
        max_rows: Some(1),
        qualifiers: qualifiers(&["sortByNameDesc"]),
        business_key: family.ward,
        reference: None,
    };
    let cut = family.desk.inquiry().find_related_businesses(&ask).unwrap();
    assert_eq!(
        (cut.items[0].business_key, cut.is_truncated),
        (family.room, true)
    );
}

/// add_publisherAssertions, errors: unknown keys, no own business. An equal assertion is left
/// alone.
#[test]
fn assertions_are_checked() {
    let mut family = Family::new();
    let assertion = family.assertion(family.ward, family.room, "parent-child");
    assert_eq!(family.add("eve", &assertion), Err(ErrorCode::UserMismatch));
    let unknown = family.assertion(family.ward, BusinessKey::new(1), "x");
    assert_eq!(
        family.add("ada", &unknown),
        Err(ErrorCode::InvalidKeyPassed)
    );
    let mut unknown = assertion.clone();
    unknown.reference.tmodel_key = Some(TModelKey::new(1));
    assert_eq!(
        family.add("ada", &unknown),
        Err(ErrorCode::InvalidKeyPassed)
    );
    unknown.reference.tmodel_key = None;
    assert_eq!(
        family.add("ada", &unknown),
        Err(ErrorCode::InvalidKeyPassed)
    );
    for _ in 0..2 {
        family.add("ada", &assertion).unwrap();
    }
    let made = family.desk.ask("ada", |ada| ada.publisher_assertions());
    assert_eq!(made, std::slice::from_ref(&assertion));
    let assertions = [assertion];
    let missing = family
        .desk
        .ask("bob", |bob| bob.delete_publisher_assertions(&assertions));
    assert_eq!(code(missing), ErrorCode::AssertionNotFound);
    let [assertion] = &assertions;
    let twice = [assertion.clone(), assertion.clone()];
    let twice = family
        .desk
        .ask("ada", |ada| ada.delete_publisher_assertions(&twice));
    assert_eq!(code(twice), ErrorCode::AssertionNotFound);
    let ask = |business_key, reference| FindRelatedBusinesses {
        max_rows: None,
        qualifiers: qualifiers(&[]),
        business_key,
        reference,
    };
    let other = reference(TModelKey::new(1), "x");
    for ask in [
        ask(BusinessKey::new(1), None),
        ask(family.ward, Some(other)),
    ] {
        let unknown = family.desk.inquiry().find_related_businesses(&ask);
        assert_eq!(code(unknown), ErrorCode::InvalidKeyPassed);
    }
}

/// set_publisherAssertions: the set is replaced; an empty one removes all.
#[test]
fn a_set_replaces_all() {
    let mut family = Family::new();
    let [a, b, c] = ["a", "b", "c"].map(|v| family.assertion(family.ward, family.room, v));
    for assertion in [&a, &b] {
        family.add("ada", assertion).unwrap();
    }
    let wanted = [b.clone(), c.clone()];
    let set = family
        .desk
        .ask("ada", |ada| ada.set_publisher_assertions(&wanted));
    assert_eq!(set.unwrap().wait().unwrap(), wanted);
    let mut made = family.desk.ask("ada", |ada| ada.publisher_assertions());
    made.sort_by(|x, y| x.reference.key_value.cmp(&y.reference.key_value));
    assert_eq!(made, wanted);
    // A fault changes nothing.
    let faulty = [a, family.assertion(family.ward, BusinessKey::new(1), "x")];
    let set = family
        .desk
        .ask("ada", |ada| ada.set_publisher_assertions(&faulty));
    assert_eq!(code(set), ErrorCode::InvalidKeyPassed);
    assert_eq!(
        family
            .desk
            .ask("ada", |ada| ada.publisher_assertions())
            .len(),
        2
    );
    let set = family
        .desk
        .ask("ada", |ada| ada.set_publisher_assertions(&[]));
    set.unwrap().wait().unwrap();
    assert!(
        family
            .desk
            .ask("ada", |ada| ada.publisher_assertions())
            .is_empty()
    );
}
