//! UDDI 2.04 API specification: delete_binding, delete_business, delete_service.

use chappe_registry::Principal;
use chappe_registry::uddi::{BusinessKey, BusinessService, ErrorCode, Key, PublisherAssertion};

use super::{Desk, binding, code, reference, service};

/// delete_binding and delete_service remove from the parent; delete_service removes bindings.
#[test]
fn children_leave_their_parents() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let two = BusinessService {
        bindings: vec![binding(None, &[]), binding(None, &[])],
        ..service(ward, "Pulse")
    };
    let saved = desk.save_service("ada", two).unwrap();
    let keys: Vec<_> = saved.bindings.iter().map(|one| one.key.unwrap()).collect();
    desk.ask("ada", |ada| ada.delete_binding(&keys[..1]))
        .unwrap()
        .wait()
        .unwrap();
    let key = saved.key.unwrap();
    let found = desk.inquiry().service_detail(&[key]).unwrap().remove(0);
    assert_eq!(found.bindings[0].key, Some(keys[1]));
    assert_eq!(found.bindings.len(), 1);
    desk.ask("ada", |ada| ada.delete_service(&[key]))
        .unwrap()
        .wait()
        .unwrap();
    let inquiry = desk.inquiry();
    assert_eq!(
        code(inquiry.service_detail(&[key])),
        ErrorCode::InvalidKeyPassed
    );
    assert_eq!(
        code(inquiry.binding_detail(&keys[1..])),
        ErrorCode::InvalidKeyPassed
    );
    let detail = inquiry.business_detail(&[ward]).unwrap().remove(0).value;
    assert!(detail.services.is_empty());
}

/// delete_business removes services, bindings, and the assertions of all publishers about it.
#[test]
fn a_business_leaves_nothing() {
    let mut desk = Desk::new();
    let kind = desk.tmodel("ada", "kind");
    let [ward, room] =
        [("ada", "Ward 3"), ("bob", "Room 1")].map(|(owner, name)| desk.business(owner, name));
    let full = BusinessService {
        bindings: vec![binding(None, &[kind])],
        ..service(ward, "Pulse")
    };
    desk.save_service("ada", full).unwrap();
    let assertion = PublisherAssertion {
        from_key: ward,
        to_key: room,
        reference: reference(kind, "parent-child"),
    };
    for name in ["ada", "bob"] {
        let asserted = desk.ask(name, |one| {
            one.add_publisher_assertions(std::slice::from_ref(&assertion))
        });
        asserted.unwrap().wait().unwrap();
    }
    assert_eq!(desk.registry.statistics().entities, 7);
    desk.ask("ada", |ada| ada.delete_business(&[ward]))
        .unwrap()
        .wait()
        .unwrap();
    // The tModel and the other business are left.
    assert_eq!(desk.registry.statistics().entities, 2);
    assert!(desk.ask("bob", |bob| bob.publisher_assertions()).is_empty());
}

/// An entity that is removed by its key takes along what delete_business and delete_service would.
#[test]
fn a_removed_entity_leaves_nothing_below_it() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let keys = ["Pulse", "Heat"].map(|name| {
        let full = BusinessService {
            bindings: vec![binding(None, &[]), binding(None, &[])],
            ..service(ward, name)
        };
        desk.save_service("ada", full).unwrap().key.unwrap()
    });
    assert_eq!(desk.registry.statistics().entities, 7);
    let remove = |key: String, by: &str| {
        let by = Principal::Named(by.into());
        let removed = desk.registry.remove_as(&by, &key);
        removed.map(|publication| publication.unwrap().wait().unwrap())
    };
    assert!(remove(keys[0].iri(), "eve").is_err());
    remove(keys[0].iri(), "ada").unwrap();
    assert_eq!(desk.registry.statistics().entities, 4);
    remove(ward.iri(), "ada").unwrap();
    assert_eq!(desk.registry.statistics().entities, 0);
}

/// E_invalidKeyPassed and E_userMismatch; nothing of a request with an error is done.
#[test]
fn a_faulty_key_stops_the_whole_request() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let room = desk.business("bob", "Room 1");
    let unknown = desk.ask("ada", |ada| {
        ada.delete_business(&[ward, BusinessKey::new(1)])
    });
    assert_eq!(code(unknown), ErrorCode::InvalidKeyPassed);
    let foreign = desk.ask("ada", |ada| ada.delete_business(&[ward, room]));
    assert_eq!(code(foreign), ErrorCode::UserMismatch);
    let twice = desk.ask("ada", |ada| ada.delete_business(&[ward, ward]));
    assert_eq!(code(twice), ErrorCode::InvalidKeyPassed);
    assert!(desk.inquiry().business_detail(&[ward, room]).is_ok());
    let pulse = desk.service("bob", room, "Pulse");
    let foreign = desk.ask("ada", |ada| ada.delete_service(&[pulse]));
    assert_eq!(code(foreign), ErrorCode::UserMismatch);
    let own = desk
        .save_binding("bob", binding(Some(pulse), &[]))
        .unwrap()
        .key
        .unwrap();
    let foreign = desk.ask("ada", |ada| ada.delete_binding(&[own]));
    assert_eq!(code(foreign), ErrorCode::UserMismatch);
}
