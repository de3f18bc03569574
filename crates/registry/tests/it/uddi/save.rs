//! UDDI 2.04 API specification: the save calls. UDDI 2.03 data structure reference: lengths.

use chappe_registry::Entity;
use chappe_registry::uddi::{
    BindingKey, BusinessEntity, BusinessKey, BusinessService, Contact, Endpoint, ErrorCode,
    FindService, GENERAL_KEYWORDS, Key, KeyType, KeyedReference, Language, Reachable, ServiceKey,
    TModel, TModelKey, Text,
};

use super::{Desk, binding, business, code, reference, service, tmodel};

fn text(language: &str, text: &str) -> Text {
    Text {
        language: Language::parse(language),
        text: text.to_owned(),
    }
}

/// save_business, save_service, save_binding, save_tModel: without a key a new one is assigned;
/// an unknown key is an error, and so is one of another kind.
#[test]
fn keys_are_assigned_by_the_registry() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let unknown = BusinessEntity {
        key: Some(BusinessKey::new(1)),
        ..business("x")
    };
    let refused = desk.save_business("ada", unknown).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidKeyPassed);
    assert_eq!(refused.key_type, Some(KeyType::Business));
    let of_a_service = BusinessEntity {
        key: Some(BusinessKey::new(pulse.uuid())),
        ..business("x")
    };
    let refused = desk.save_business("ada", of_a_service);
    assert_eq!(code(refused), ErrorCode::InvalidKeyPassed);
    let unknown = BusinessService {
        key: Some(ServiceKey::new(1)),
        ..service(ward, "x")
    };
    assert_eq!(
        code(desk.save_service("ada", unknown)),
        ErrorCode::InvalidKeyPassed
    );
    let mut unknown = binding(Some(pulse), &[]);
    unknown.key = Some(BindingKey::new(1));
    assert_eq!(
        code(desk.save_binding("ada", unknown)),
        ErrorCode::InvalidKeyPassed
    );
    let unknown = TModel {
        key: Some(TModelKey::new(1)),
        ..tmodel("x")
    };
    assert_eq!(
        code(desk.save_tmodel("ada", unknown)),
        ErrorCode::InvalidKeyPassed
    );
}

/// E_userMismatch: only its publisher changes data, or adds to them.
#[test]
fn only_the_publisher_changes_data() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let kind = desk.tmodel("ada", "kind");
    let own = desk.business("bob", "Room 1");
    let taken = BusinessEntity {
        key: Some(ward),
        ..business("Mine")
    };
    assert_eq!(
        code(desk.save_business("bob", taken)),
        ErrorCode::UserMismatch
    );
    assert_eq!(
        code(desk.save_service("bob", service(ward, "x"))),
        ErrorCode::UserMismatch
    );
    let moved = BusinessService {
        key: Some(pulse),
        ..service(own, "x")
    };
    assert_eq!(
        code(desk.save_service("bob", moved)),
        ErrorCode::UserMismatch
    );
    let added = binding(Some(pulse), &[]);
    assert_eq!(
        code(desk.save_binding("bob", added)),
        ErrorCode::UserMismatch
    );
    let taken = TModel {
        key: Some(kind),
        ..tmodel("x")
    };
    assert_eq!(
        code(desk.save_tmodel("bob", taken)),
        ErrorCode::UserMismatch
    );
}

/// A client that publishes entities in the vocabulary adds nothing to what is another's.
#[test]
fn an_entity_of_another_owner_is_no_child() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let forged = desk
        .registry
        .get(&pulse.iri(), &chappe_registry::Principal::Operator);
    let mut forged: Entity = forged.unwrap();
    let key = ServiceKey::new(77).iri();
    for triple in &mut forged.triples {
        if triple.subject.to_string() == format!("<{}>", forged.key) {
            triple.subject = chappe_registry::oxrdf::NamedNode::new(&key).unwrap().into();
        }
    }
    forged.key = key;
    forged.owner = "eve".to_owned();
    desk.registry.publish(forged).unwrap().wait().unwrap();
    let detail = desk.inquiry().business_detail(&[ward]).unwrap().remove(0);
    assert_eq!(detail.value.services.len(), 1);
    let ask = FindService {
        business_key: Some(ward),
        ..FindService::default()
    };
    assert_eq!(desk.inquiry().find_service(&ask).unwrap().items.len(), 1);
}

/// save_business: the tree is replaced; services that are left out are deleted with their
/// bindings, and the order is that of the request.
#[test]
fn a_business_is_saved_as_a_whole() {
    let mut desk = Desk::new();
    let mut ward = business("Ward 3");
    let part = |name: &str| BusinessService {
        names: vec![Text::plain(name)],
        bindings: vec![binding(None, &[])],
        ..BusinessService::default()
    };
    ward.services = vec![part("a"), part("b"), part("c")];
    let saved = desk.save_business("ada", ward).unwrap();
    let entities = desk.registry.statistics().entities;
    assert_eq!(entities, 7);
    let mut changed = saved.clone();
    changed.services.swap(0, 2);
    let removed = changed.services.remove(1);
    let changed = desk.save_business("ada", changed.clone()).unwrap();
    let names = |business: &BusinessEntity| -> Vec<_> {
        business
            .services
            .iter()
            .map(|one| one.names[0].text.clone())
            .collect()
    };
    assert_eq!(names(&changed), ["c", "a"]);
    assert_eq!(desk.registry.statistics().entities, entities - 2);
    let inquiry = desk.inquiry();
    let gone = inquiry.service_detail(&[removed.key.unwrap()]);
    assert_eq!(code(gone), ErrorCode::InvalidKeyPassed);
    let gone = inquiry.binding_detail(&[removed.bindings[0].key.unwrap()]);
    assert_eq!(code(gone), ErrorCode::InvalidKeyPassed);
    let found = inquiry.business_detail(&[saved.key.unwrap()]).unwrap();
    assert_eq!(found[0].value, changed);
}

/// save_service: bindings that are left out are deleted; a service is appended to its business.
#[test]
fn a_service_is_saved_with_its_bindings() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    for name in ["z", "m", "a"] {
        desk.service("ada", ward, name);
    }
    let found = desk
        .inquiry()
        .business_detail(&[ward])
        .unwrap()
        .remove(0)
        .value;
    let names: Vec<_> = found
        .services
        .iter()
        .map(|one| one.names[0].text.as_str())
        .collect();
    assert_eq!(names, ["z", "m", "a"]);
    let mut middle = found.services[1].clone();
    middle.bindings = vec![binding(None, &[]), binding(None, &[])];
    let saved = desk.save_service("ada", middle).unwrap();
    let mut fewer = saved.clone();
    let removed = fewer.bindings.remove(0).key.unwrap();
    assert_eq!(desk.save_service("ada", fewer.clone()).unwrap(), fewer);
    let inquiry = desk.inquiry();
    assert_eq!(
        code(inquiry.binding_detail(&[removed])),
        ErrorCode::InvalidKeyPassed
    );
    let found = inquiry.business_detail(&[ward]).unwrap().remove(0).value;
    assert_eq!(found.services[1], fewer);
}

/// save_service with another businessKey, save_binding with another serviceKey, and a save of
/// the new parent: the child moves.
#[test]
fn children_move_between_parents_of_one_publisher() {
    let mut desk = Desk::new();
    let [from, to] = ["from", "to"].map(|name| desk.business("ada", name));
    let pulse = desk.service("ada", from, "Pulse");
    let first = desk.save_binding("ada", binding(Some(pulse), &[])).unwrap();
    let moved = BusinessService {
        key: Some(pulse),
        bindings: vec![first.clone()],
        ..service(to, "Pulse")
    };
    desk.save_service("ada", moved).unwrap();
    let services = |desk: &Desk, key| {
        let detail = desk.inquiry().business_detail(&[key]).unwrap().remove(0);
        detail.value.services
    };
    assert!(services(&desk, from).is_empty());
    assert_eq!(
        services(&desk, to)[0].bindings,
        std::slice::from_ref(&first)
    );
    let other = desk.service("ada", from, "Other");
    let mut again = first.clone();
    again.service_key = Some(other);
    desk.save_binding("ada", again).unwrap();
    assert!(services(&desk, to)[0].bindings.is_empty());
    assert_eq!(services(&desk, from)[0].bindings[0].key, first.key);
    // The whole business, with a service of the other that names no parent.
    let mut whole = desk
        .inquiry()
        .business_detail(&[from])
        .unwrap()
        .remove(0)
        .value;
    whole.services.push(BusinessService {
        business_key: None,
        ..services(&desk, to).remove(0)
    });
    desk.save_business("ada", whole).unwrap();
    assert_eq!(services(&desk, from).len(), 2);
    assert!(services(&desk, to).is_empty());
}

/// save_business, service projections: shown with the content of the service; a projection that
/// names no service of its business is E_invalidProjection. A projection ends with its service.
#[test]
fn projections_show_services_of_others() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let projection = |service, business| BusinessService {
        key: Some(service),
        business_key: Some(business),
        ..BusinessService::default()
    };
    let mut room = business("Room 1");
    room.services = vec![
        BusinessService {
            names: vec![Text::plain("Own")],
            ..BusinessService::default()
        },
        projection(pulse, ward),
    ];
    let room = desk.save_business("bob", room).unwrap();
    assert_eq!(room.services[1].names[0].text, "Pulse");
    assert_eq!(room.services[1].business_key, Some(ward));
    for wrong in [
        projection(ServiceKey::new(1), ward),
        projection(pulse, BusinessKey::new(1)),
        projection(room.services[0].key.unwrap(), ward),
        BusinessService {
            key: None,
            ..projection(pulse, ward)
        },
    ] {
        let mut other = business("Room 2");
        other.services = vec![wrong];
        let refused = desk.save_business("bob", other).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidProjection);
        assert_eq!(refused.key_type, Some(KeyType::Service));
    }
    // A service may not move into a business whose publisher does not own it.
    let mut thief = business("Room 3");
    thief.services = vec![BusinessService {
        business_key: None,
        ..projection(pulse, ward)
    }];
    assert_eq!(
        code(desk.save_business("bob", thief)),
        ErrorCode::UserMismatch
    );
    let key = room.key.unwrap();
    desk.ask("ada", |ada| ada.delete_service(&[pulse]))
        .unwrap()
        .wait()
        .unwrap();
    let detail = desk
        .inquiry()
        .business_detail(&[key])
        .unwrap()
        .remove(0)
        .value;
    assert_eq!(detail.services.len(), 1);
    // The business is saved again without the projection.
    desk.save_business("bob", detail).unwrap();
}

/// E_invalidKeyPassed for tModels in bags, addresses and bindings, and for the target of a hostingRedirector, which has
/// none itself. A hidden tModel may still be referred to.
#[test]
fn references_must_exist() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let pulse = desk.service("ada", ward, "Pulse");
    let missing = TModelKey::new(1);
    let in_bag = |key| BusinessEntity {
        category_bag: vec![reference(key, "x")],
        ..business("x")
    };
    assert_eq!(
        code(desk.save_business("ada", in_bag(missing))),
        ErrorCode::InvalidKeyPassed
    );
    let refused = desk
        .save_binding("ada", binding(Some(pulse), &[missing]))
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidKeyPassed);
    assert_eq!(refused.key_type, Some(KeyType::TModel));
    let mut redirects = binding(Some(pulse), &[]);
    redirects.endpoint = Endpoint::HostingRedirector(BindingKey::new(1));
    let refused = desk.save_binding("ada", redirects.clone());
    assert_eq!(code(refused), ErrorCode::InvalidKeyPassed);
    let target = desk
        .save_binding("ada", binding(Some(pulse), &[]))
        .unwrap()
        .key
        .unwrap();
    redirects.endpoint = Endpoint::HostingRedirector(target);
    let saved = desk.save_binding("ada", redirects.clone()).unwrap();
    for chained in [saved.key, Some(target)] {
        redirects.key = chained.filter(|key| *key == target);
        redirects.endpoint = Endpoint::HostingRedirector(chained.unwrap());
        let refused = desk.save_binding("ada", redirects.clone()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidKeyPassed);
        assert_eq!(refused.key_type, Some(KeyType::Binding));
    }
    let found = desk
        .inquiry()
        .binding_detail(&[saved.key.unwrap()])
        .unwrap();
    assert_eq!(found[0].endpoint, Endpoint::HostingRedirector(target));
    let kind = desk.tmodel("ada", "kind");
    desk.ask("ada", |ada| ada.delete_tmodel(&[kind]))
        .unwrap()
        .wait()
        .unwrap();
    for publisher in ["ada", "bob"] {
        desk.save_business(publisher, in_bag(kind)).unwrap();
    }
    let unnamed = KeyedReference {
        tmodel_key: None,
        ..reference(kind, "x")
    };
    let identified = BusinessEntity {
        identifier_bag: vec![unnamed.clone()],
        ..business("x")
    };
    let refused = desk.save_business("ada", identified);
    assert_eq!(code(refused), ErrorCode::InvalidKeyPassed);
    // A category without a tModelKey is a keyword, which has a name, and gets the key.
    let keyword = |key_name: Option<&str>| BusinessEntity {
        category_bag: vec![KeyedReference {
            key_name: key_name.map(str::to_owned),
            ..unnamed.clone()
        }],
        ..business("x")
    };
    for name in [None, Some("")] {
        let refused = desk.save_business("ada", keyword(name));
        assert_eq!(code(refused), ErrorCode::InvalidValue);
    }
    let saved = desk.save_business("ada", keyword(Some("bed"))).unwrap();
    assert_eq!(saved.category_bag[0].tmodel_key, Some(GENERAL_KEYWORDS));
    let homeless = desk.save_binding("ada", binding(None, &[]));
    assert_eq!(code(homeless), ErrorCode::InvalidKeyPassed);
    let homeless = BusinessService {
        business_key: None,
        ..service(ward, "x")
    };
    assert_eq!(
        code(desk.save_service("ada", homeless)),
        ErrorCode::InvalidKeyPassed
    );
}

/// Data structure reference, lengths: in characters; E_nameTooLong for names, E_valueNotAllowed
/// for others.
#[test]
fn lengths_are_limited() {
    let mut desk = Desk::new();
    let fits = business(&"ä".repeat(255));
    desk.save_business("ada", fits).unwrap();
    let long = desk.save_business("ada", business(&"ä".repeat(256)));
    assert_eq!(code(long), ErrorCode::NameTooLong);
    let with_phone = |length: usize| BusinessEntity {
        contacts: vec![Contact {
            phones: vec![Reachable {
                use_type: None,
                value: "1".repeat(length),
            }],
            ..Contact::default()
        }],
        ..business("x")
    };
    desk.save_business("ada", with_phone(50)).unwrap();
    let long = desk.save_business("ada", with_phone(51)).unwrap_err();
    assert_eq!(long.code, ErrorCode::ValueNotAllowed);
    assert_eq!(
        long.to_string(),
        "E_valueNotAllowed: phone has 51 characters; the limit is 50"
    );
    let described = |length: usize| BusinessEntity {
        descriptions: vec![Text::plain("x".repeat(length))],
        ..business("x")
    };
    desk.save_business("ada", described(255)).unwrap();
    assert_eq!(
        code(desk.save_business("ada", described(256))),
        ErrorCode::ValueNotAllowed
    );
    let nameless = BusinessEntity {
        names: Vec::new(),
        ..business("x")
    };
    assert_eq!(
        code(desk.save_business("ada", nameless)),
        ErrorCode::ValueNotAllowed
    );
    assert_eq!(
        code(desk.save_business("ada", business(" "))),
        ErrorCode::ValueNotAllowed
    );
}

/// E_languageError: names and descriptions have different languages.
#[test]
fn languages_are_distinct() {
    let mut desk = Desk::new();
    let with = |names: &[Text]| BusinessEntity {
        names: names.to_vec(),
        ..business("x")
    };
    let distinct = [Text::plain("a"), text("en", "a"), text("en-GB", "a")];
    desk.save_business("ada", with(&distinct)).unwrap();
    for pair in [
        [text("en", "a"), text("EN", "b")],
        [Text::plain("a"), Text::plain("b")],
    ] {
        let refused = desk.save_business("ada", with(&pair));
        assert_eq!(code(refused), ErrorCode::LanguageError);
    }
    assert_eq!(Language::parse("e n"), None);
    assert_eq!(Language::parse(&"a-".repeat(20)), None);
}

/// save_tModel, save_service: several values in one request come back in its order; the last of
/// equal keys counts.
#[test]
fn values_come_back_in_the_order_of_the_request() {
    let mut desk = Desk::new();
    let ward = desk.business("ada", "Ward 3");
    let two = [service(ward, "b"), service(ward, "a")];
    let saved = desk
        .ask("ada", |ada| ada.save_service(&two))
        .unwrap()
        .wait()
        .unwrap();
    let names: Vec<_> = saved.iter().map(|one| one.names[0].text.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let twice = ["first", "last"].map(|name| BusinessService {
        key: saved[0].key,
        ..service(ward, name)
    });
    desk.ask("ada", |ada| ada.save_service(&twice))
        .unwrap()
        .wait()
        .unwrap();
    let found = desk
        .inquiry()
        .service_detail(&[saved[0].key.unwrap()])
        .unwrap();
    assert_eq!(found[0].names[0].text, "last");
    let many = vec![service(ward, "x"); 1_001];
    let refused = desk.ask("ada", |ada| ada.save_service(&many));
    assert_eq!(code(refused), ErrorCode::MessageTooLarge);
}
