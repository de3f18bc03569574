//! UDDI 2.04 API specification: the get calls.

use chappe_registry::uddi::{
    BindingKey, BusinessKey, ErrorCode, FindBusiness, FindTModel, Key as _, KeyType, ServiceKey,
    TModelKey, Text,
};

use chappe_registry::{Entity, EntityKind, triples_from_turtle};

use super::{Desk, binding, code};

/// get_bindingDetail, get_serviceDetail, get_businessDetail: in the order of the keys; one
/// unknown key fails the request.
#[test]
fn details_in_the_order_of_the_keys() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let room = desk.business("ada", "Room 1");
    let pulse = desk.service("ada", ward, "Pulse");
    let first = desk.save_binding("ada", binding(Some(pulse), &[])).unwrap();
    let inquiry = desk.inquiry();
    let found = inquiry.business_detail(&[room, ward, room]).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|one| one.value.names[0].text.as_str())
        .collect();
    assert_eq!(names, ["Room 1", "Ward 3", "Room 1"]);
    assert_eq!(
        found[1].value.services[0].bindings,
        std::slice::from_ref(&first)
    );
    assert_eq!(
        inquiry.service_detail(&[pulse]).unwrap()[0].bindings,
        std::slice::from_ref(&first)
    );
    assert_eq!(
        inquiry.binding_detail(&[first.key.unwrap()]).unwrap(),
        [first]
    );
    let refused = inquiry
        .business_detail(&[ward, BusinessKey::new(5)])
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidKeyPassed);
    assert_eq!(refused.key_type, Some(KeyType::Business));
    assert_eq!(
        code(inquiry.service_detail(&[ServiceKey::new(5)])),
        refused.code
    );
    assert_eq!(
        code(inquiry.binding_detail(&[BindingKey::new(5)])),
        refused.code
    );
    assert_eq!(
        code(inquiry.tmodel_detail(&[TModelKey::new(5)])),
        refused.code
    );
    let many = vec![ward; 1_001];
    assert_eq!(
        code(inquiry.business_detail(&many)),
        ErrorCode::TooManyOptions
    );
}

/// get_registeredInfo: what the publisher controls, and nothing else.
#[test]
fn registered_info_is_of_one_publisher() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    desk.service("ada", ward, "Pulse");
    desk.business("bob", "Room 1");
    let kind = desk.tmodel("ada", "kind");
    let info = desk.ask("ada", |ada| ada.registered_info().unwrap());
    assert_eq!(info.businesses.len(), 1);
    assert_eq!(info.businesses[0].business_key, ward);
    assert_eq!(info.businesses[0].services[0].names[0].text, "Pulse");
    assert_eq!(info.tmodels.len(), 1);
    assert_eq!(info.tmodels[0].tmodel_key, kind);
    let none = desk.ask("eve", |eve| eve.registered_info().unwrap());
    assert!(none.businesses.is_empty() && none.tmodels.is_empty());
}

/// An entity that anyone publishes in UDDI's vocabulary: nodes that others share are not copied for each of them, and a
/// key in another case does not speak for the key.
#[test]
fn entities_of_another_form_are_not_in_uddi() {
    const NS: &str = "https://chappe.example/ns/uddi#";
    let desk = Desk::new();
    let publish = |key: &str, class: &str, name: &str, more: &str| {
        let text = format!(
            "@prefix u: <{NS}> . <> u:name \"{name}\" ; <http://purl.org/dc/terms/modified> \
             \"2026-01-01T00:00:00.000Z\" . {more}"
        );
        let mut entity = Entity::new(key, EntityKind::Other, name);
        entity.owner = "eve".to_owned();
        entity.types = vec![format!("{{{NS}}}{class}")];
        entity.triples = triples_from_turtle(key, &text).unwrap();
        desk.registry.publish(entity).unwrap().wait().unwrap();
    };
    let contact = "<> u:contact _:c . _:c u:personName \"p\" ; u:address _:a, _:b . ";
    let lines = "_:a u:addressLine _:l . _:l u:value \"x\" . ";
    let key = BusinessKey::new(7);
    let text = format!("{contact}{lines}");
    publish(&key.iri(), "businessEntity", "Plain", &text);
    let found = desk.inquiry().business_detail(&[key]).unwrap();
    assert_eq!(found[0].value.contacts[0].addresses.len(), 2);
    let text = format!("{contact}{lines} _:b u:addressLine _:l .");
    publish(&key.iri(), "businessEntity", "Plain", &text);
    let refused = desk.inquiry().business_detail(&[key]);
    assert_eq!(code(refused), ErrorCode::InvalidKeyPassed);

    let upper = "urn:uuid:8609C81E-EE1F-4D5A-B202-3EB13AD01823";
    publish(upper, "tModel", "dnb-com:D-U-N-S", "");
    publish(
        &upper.replace("8609C81E", "8609c81E"),
        "businessEntity",
        "dnb",
        "",
    );
    let inquiry = desk.inquiry();
    let tmodels = inquiry.find_tmodel(&FindTModel {
        name: Some(Text::plain("dnb")),
        ..FindTModel::default()
    });
    assert!(tmodels.unwrap().items.is_empty());
    let businesses = inquiry.find_business(&FindBusiness {
        names: vec![Text::plain("dnb")],
        ..FindBusiness::default()
    });
    assert!(businesses.unwrap().items.is_empty());
}
