//! UDDI 2.04 API specification: the get calls.

use chappe_registry::uddi::{BindingKey, BusinessKey, ErrorCode, KeyType, ServiceKey, TModelKey};

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
