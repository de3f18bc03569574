//! Goal: rights to UDDI data. Under random rights each inquiry answers as a registry without the hidden entities
//! would; those with the right to write an entity save and delete it, and others learn why not.
//! Method: a registry with random rights, and for each principal a second one that has only what it may see,
//! published in another order, so that numbers of entities differ.

use chappe_identity::Role;
use chappe_registry::uddi::{
    BindingKey, BusinessKey, ErrorCode, FindBinding, FindBusiness, FindRelatedBusinesses,
    FindService, FindTModel, Inquiry, Key, Publisher, PublisherAssertion, RELATIONSHIPS, Saved,
    ServiceKey, TModelKey, Text,
};
use chappe_registry::{
    Access, Entity, Holder, MemoryJournal, Principal, Registry, Right, Rights, Room, Search,
};
use proptest::prelude::*;

use super::{Desk, binding, business, code, qualifiers, reference, service, tmodel};
use crate::model;

fn named(name: &str) -> Principal {
    Principal::Named(name.to_owned())
}

fn holders(texts: &[&str]) -> Vec<Holder> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// States the rights to an entity.
fn set(desk: &Desk, key: impl Key, rights: &Rights) {
    let (operator, room) = (Principal::Operator, Room::default());
    let set = desk
        .registry
        .set_rights(&operator, &key.iri(), rights, &room);
    if let (Some(publication), _) = set.unwrap() {
        publication.wait().unwrap();
    }
}

/// One request with the rights of a principal.
fn ask_as<T>(
    desk: &mut Desk,
    principal: &Principal,
    request: impl FnOnce(&mut Publisher<'_>) -> T,
) -> T {
    let (registry, time) = (desk.registry.clone(), desk.unix_ms);
    desk.unix_ms += 1_000;
    let mut bits = u128::from(time.unsigned_abs()) << 64;
    let mut random = || {
        bits += 1;
        bits
    };
    let name = principal.name().unwrap().to_owned();
    let publisher = Publisher::new(&registry, &name, Access::Public, time, &mut random);
    request(&mut publisher.acting_as(principal.clone()))
}

/// Businesses of two publishers with services, bindings, tModels, projections and assertions.
struct World {
    desk: Desk,
    keys: Vec<String>,
}

fn world() -> World {
    let mut desk = Desk::new();
    let kinds = ["alpha", "beta"].map(|name| desk.tmodel("ada", name));
    let mut businesses = Vec::new();
    for (number, owner) in ["ada", "cleo", "ada", "cleo"].into_iter().enumerate() {
        let mut one = business(&format!("Ward {}", number % 2));
        one.category_bag = vec![reference(kinds[number % 2], "red")];
        one.identifier_bag = vec![reference(kinds[0], "id")];
        let key = desk.save_business(owner, one).unwrap().key.unwrap();
        for at in 0..2 {
            let mut part = service(key, &format!("Heart {at}"));
            part.category_bag = vec![reference(kinds[at], "green")];
            part.bindings = vec![binding(None, &kinds[..=at]), binding(None, &kinds[at..])];
            desk.save_service(owner, part).unwrap();
        }
        businesses.push((owner, key));
    }
    // Each business projects a service of the one before.
    for pair in businesses.windows(2) {
        let [(_, before), (owner, key)] = pair else {
            unreachable!()
        };
        let details = |key: &BusinessKey| {
            let found = desk.inquiry().business_detail(&[*key]).unwrap();
            found.into_iter().next().unwrap().value
        };
        let (mut one, other) = (details(key), details(before));
        one.services.insert(1, other.services[0].clone());
        desk.save_business(owner, one).unwrap();
    }
    for from in &businesses {
        for to in &businesses {
            let assertion = PublisherAssertion {
                from_key: from.1,
                to_key: to.1,
                reference: reference(RELATIONSHIPS, "peer-peer"),
            };
            for owner in [from.0, to.0] {
                let saved = desk.ask(owner, |publisher| {
                    publisher.add_publisher_assertions(std::slice::from_ref(&assertion))
                });
                if let Ok(saved) = saved {
                    saved.wait().unwrap();
                }
            }
        }
    }
    let keys = desk
        .registry
        .search_keys(&Search::default(), &Principal::Operator);
    World { desk, keys }
}

/// Everything that may be asked, as text.
fn answers(inquiry: &Inquiry, keys: &[String]) -> Vec<String> {
    let mut answers = Vec::new();
    let mut add = |answer: &dyn std::fmt::Debug| answers.push(format!("{answer:?}"));
    let kinds: Vec<TModelKey> = keys
        .iter()
        .filter_map(|key| TModelKey::from_iri(key))
        .collect();
    let known = |key: &&TModelKey| inquiry.tmodel_detail(&[**key]).is_ok();
    let kinds: Vec<TModelKey> = kinds.iter().filter(known).copied().collect();
    let words: [&[&str]; 6] = [
        &[],
        &["sortByNameDesc"],
        &["sortByDateDesc"],
        &["orAllKeys", "sortByDateAsc"],
        &["combineCategoryBags"],
        &["serviceSubset"],
    ];
    for (number, words) in words.into_iter().enumerate() {
        let find = FindBusiness {
            qualifiers: qualifiers(words),
            ..FindBusiness::default()
        };
        add(&inquiry.find_business(&find));
        for names in [&["%"][..], &["ward 1", "Ward 0"]] {
            let names = names.iter().map(|name| Text::plain(*name)).collect();
            add(&inquiry.find_business(&FindBusiness {
                names,
                ..find.clone()
            }));
        }
        add(&inquiry.find_business(&FindBusiness {
            max_rows: Some(2),
            ..find.clone()
        }));
        let find_service = FindService {
            qualifiers: qualifiers(if number < 4 { words } else { &[] }),
            ..FindService::default()
        };
        add(&inquiry.find_service(&FindService {
            names: vec![Text::plain("heart")],
            max_rows: Some(3),
            ..find_service.clone()
        }));
        add(&inquiry.find_service(&find_service));
        for kind in &kinds {
            let (red, green) = (reference(*kind, "red"), reference(*kind, "green"));
            add(&inquiry.find_business(&FindBusiness {
                category_bag: vec![red.clone(), green.clone()],
                ..find.clone()
            }));
            add(&inquiry.find_business(&FindBusiness {
                category_bag: vec![green.clone()],
                identifier_bag: vec![reference(*kind, "id")],
                tmodel_bag: vec![*kind],
                ..find.clone()
            }));
            add(&inquiry.find_service(&FindService {
                category_bag: vec![green],
                tmodel_bag: vec![*kind],
                ..find_service.clone()
            }));
        }
    }
    add(&inquiry.find_tmodel(&FindTModel::default()));
    for key in keys {
        let business = BusinessKey::from_iri(key).unwrap();
        let service = ServiceKey::from_iri(key).unwrap();
        add(&inquiry.business_detail(&[business]));
        add(&inquiry.service_detail(&[service]));
        add(&inquiry.binding_detail(&[BindingKey::from_iri(key).unwrap()]));
        add(&inquiry.tmodel_detail(&[TModelKey::from_iri(key).unwrap()]));
        add(&inquiry.find_service(&FindService {
            business_key: Some(business),
            ..FindService::default()
        }));
        add(&inquiry.find_binding(&FindBinding {
            max_rows: None,
            qualifiers: qualifiers(&[]),
            service_key: service,
            tmodel_bag: kinds.first().copied().into_iter().collect(),
        }));
        add(&inquiry.find_related_businesses(&FindRelatedBusinesses {
            max_rows: None,
            qualifiers: qualifiers(&[]),
            business_key: business,
            reference: None,
        }));
    }
    answers
}

/// A registry that has only what the principal may see.
pub(crate) fn without_hidden(entities: &[Entity], principal: &Principal) -> Registry {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for entity in entities.iter().rev() {
        if entity.permits(principal, Right::Read) {
            registry.publish(entity.clone()).unwrap().wait().unwrap();
        }
    }
    registry
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn hidden_entities_change_no_inquiry(
        stated in proptest::collection::vec((any::<prop::sample::Index>(), model::rights()), 1..24),
    ) {
        let World { desk, keys } = world();
        for (at, rights) in stated {
            set(&desk, BusinessKey::from_iri(at.get::<String>(&keys)).unwrap(), &rights);
        }
        let get = |key: &String| desk.registry.get(key, &Principal::Operator);
        let entities: Vec<Entity> = keys.iter().filter_map(get).collect();
        for principal in model::principals() {
            let reduced = without_hidden(&entities, &principal);
            let found = answers(&desk.registry.uddi(&principal), &keys);
            let expected = answers(&reduced.uddi(&principal), &keys);
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found, expected, "{:?}", principal);
            }
            prop_assert_eq!(found.len(), expected.len());
            let search = |registry: &Registry| {
                let searches = [None, Some("heart"), Some("ward 1")].map(|prefix| Search {
                    name_prefix: prefix.map(str::to_owned),
                    limit: Some(5),
                    ..Search::default()
                });
                searches.map(|search| registry.search(&search, &principal))
            };
            prop_assert_eq!(search(&desk.registry), search(&reduced));
        }
    }
}

/// A business of ada with a service and a binding, which bob may write.
fn shared() -> (Desk, BusinessKey, ServiceKey) {
    let mut desk = Desk::new();
    let business = desk.business("ada", "Ward 3");
    let service = desk.service("ada", business, "Heart");
    let rights = Rights {
        read: holders(&["everybody"]),
        write: holders(&["account:bob", "group:ward"]),
        ..Rights::default()
    };
    set(&desk, business, &rights);
    set(&desk, service, &rights);
    (desk, business, service)
}

fn wait<T>(saved: Result<Saved<T>, chappe_registry::uddi::Error>) -> T {
    saved.unwrap().wait().unwrap()
}

#[test]
fn those_with_the_right_to_write_save_what_stays_the_owners() {
    let (mut desk, business_key, service_key) = shared();
    let member = Principal::account("dora", ["ward".to_owned()], [Role::Write]);
    for principal in [named("bob"), member] {
        let name = principal.name().unwrap().to_owned();
        let mut found = desk.inquiry().business_detail(&[business_key]).unwrap();
        let mut one = found.remove(0).value;
        one.names = vec![Text::plain(format!("Ward of {name}"))];
        let saved = wait(ask_as(&mut desk, &principal, |it| it.save_business(&[one])));
        assert_eq!(saved[0].authorized_name, "ada");
        // What is new below it has the owner and the rights of its parent.
        let new = service(business_key, &format!("of {name}"));
        let saved = wait(ask_as(&mut desk, &principal, |it| it.save_service(&[new])));
        let key = saved[0].key.unwrap();
        let part = binding(Some(key), &[]);
        let saved = wait(ask_as(&mut desk, &principal, |it| it.save_binding(&[part])));
        for iri in [key.iri(), saved[0].key.unwrap().iri()] {
            let entity = desk.registry.get(&iri, &principal).unwrap();
            assert_eq!(entity.owner, "ada");
            assert!(entity.permits(&principal, Right::Write));
            assert!(!entity.permits(&named("eve"), Right::Write));
        }
        let found = desk.inquiry().business_detail(&[business_key]).unwrap();
        assert!(
            found[0]
                .value
                .services
                .iter()
                .any(|one| one.key == Some(key))
        );
    }
    assert_eq!(desk.registry.entities_of("bob"), 0);
    wait(ask_as(&mut desk, &named("bob"), |it| {
        it.delete_service(&[service_key])
    }));
    wait(ask_as(&mut desk, &named("bob"), |it| {
        it.delete_business(&[business_key])
    }));
    assert_eq!(desk.registry.entities_of("ada"), 0);
}

#[test]
fn others_learn_only_of_what_they_see() {
    let (mut desk, business_key, service_key) = shared();
    let eve = named("eve");
    let new = || service(business_key, "of eve");
    let delete = |desk: &mut Desk, principal: &Principal| {
        code(ask_as(desk, principal, |it| {
            it.delete_service(&[service_key])
        }))
    };
    assert_eq!(
        code(ask_as(&mut desk, &eve, |it| it.save_service(&[new()]))),
        ErrorCode::UserMismatch
    );
    assert_eq!(delete(&mut desk, &eve), ErrorCode::UserMismatch);
    // Hidden, they do not exist.
    let hidden = Rights {
        write: holders(&["account:bob"]),
        ..Rights::default()
    };
    set(&desk, business_key, &hidden);
    set(&desk, service_key, &hidden);
    let unknown = ErrorCode::InvalidKeyPassed;
    assert_eq!(
        code(ask_as(&mut desk, &eve, |it| it.save_service(&[new()]))),
        unknown
    );
    assert_eq!(delete(&mut desk, &eve), unknown);
    let mut projecting = business("Ward of eve");
    let mut projected = service(business_key, "Heart");
    projected.key = Some(service_key);
    projecting.services = vec![projected.clone()];
    let refused = ask_as(&mut desk, &eve, |it| it.save_business(&[projecting]));
    assert_eq!(code(refused), ErrorCode::InvalidProjection);
    let kind = desk.tmodel("ada", "hidden");
    set(&desk, kind, &hidden);
    let mut bag = business("Ward of eve");
    bag.category_bag = vec![reference(kind, "red")];
    assert_eq!(
        code(ask_as(&mut desk, &eve, |it| it.save_business(&[bag]))),
        unknown
    );
    // Those who may write it, see it.
    wait(ask_as(&mut desk, &named("bob"), |it| {
        it.delete_service(&[service_key])
    }));
}

#[test]
fn a_hidden_child_is_left_alone_by_those_who_save_its_parent() {
    let (mut desk, business_key, service_key) = shared();
    set(&desk, service_key, &Rights::default());
    let bob = named("bob");
    let seen = desk
        .registry
        .uddi(&bob)
        .business_detail(&[business_key])
        .unwrap();
    assert_eq!(seen[0].value.services, []);
    let saved = wait(ask_as(&mut desk, &bob, |it| {
        it.save_business(&[seen[0].value.clone()])
    }));
    assert_eq!(saved[0].value.services, []);
    let ada = desk.registry.uddi(&named("ada"));
    assert_eq!(
        ada.business_detail(&[business_key]).unwrap()[0]
            .value
            .services
            .len(),
        1
    );
    // It goes with its parent.
    wait(ask_as(&mut desk, &bob, |it| {
        it.delete_business(&[business_key])
    }));
    assert_eq!(desk.registry.entities_of("ada"), 0);
}

#[test]
fn a_service_does_not_move_to_a_business_of_another_owner() {
    let (mut desk, _, service_key) = shared();
    let bob = named("bob");
    let own = desk.business("bob", "Ward of bob");
    let mut moved = service(own, "Heart");
    moved.key = Some(service_key);
    let refused = ask_as(&mut desk, &bob, |it| it.save_service(&[moved]));
    assert_eq!(code(refused), ErrorCode::UserMismatch);
}

#[test]
fn rights_are_set_by_those_who_administer() {
    let (desk, business_key, _) = shared();
    let registry = &desk.registry;
    let (key, room) = (business_key.iri(), Room::default());
    let rights = Rights {
        read: holders(&["accounts"]),
        administer: holders(&["group:lab"]),
        ..Rights::default()
    };
    let set = |principal: &Principal| registry.set_rights(principal, &key, &rights, &room);
    let refused = set(&named("bob")).unwrap_err();
    assert!(matches!(
        refused,
        chappe_registry::Error::NoRight {
            right: Right::Administer,
            ..
        }
    ));
    let (publication, entity) = set(&named("ada")).unwrap();
    publication.unwrap().wait().unwrap();
    assert_eq!(entity.rights, rights);
    // Again: nothing changes.
    let lab = Principal::account("eve", ["lab".to_owned()], []);
    assert!(set(&lab).unwrap().0.is_none());
    assert!(registry.get(&key, &Principal::Anonymous).is_none());
    let unknown = set(&Principal::Anonymous).unwrap_err();
    assert_eq!(unknown, chappe_registry::Error::Unknown(key.clone()));
    // Only those who administer it, and those who could see it before, hear of the change.
    let heard = |principal: Principal| {
        let mut feed = registry.subscribe(registry.revision(), principal);
        feed.try_next().is_some()
    };
    let heard = [Principal::Anonymous, named("bob"), named("ada"), lab].map(heard);
    assert_eq!(heard, [true, false, true, true]);
    assert!(registry.require(&key, &named("bob"), Right::Read).is_ok());
    assert!(registry.require(&key, &named("bob"), Right::Write).is_err());
}

#[test]
fn entities_are_published_and_removed_by_those_who_may_write() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let room = Room::default();
    let entity = |owner: &str, name: &str| {
        let mut entity = Entity::new("urn:e", chappe_registry::EntityKind::Other, name);
        owner.clone_into(&mut entity.owner);
        entity
    };
    let publish = |principal: &Principal, name: &str| {
        let new = entity(principal.name().unwrap(), name);
        let published = registry.publish_as(principal, &new, &room)?;
        published.map_or(Ok(0), |publication| publication.wait())
    };
    let (ada, bob, eve) = (named("ada"), named("bob"), named("eve"));
    publish(&ada, "first").unwrap();
    let refused = publish(&bob, "second").unwrap_err();
    assert!(refused.to_string().contains("owned by ada"), "{refused}");
    let rights = Rights {
        write: holders(&["account:bob"]),
        ..Rights::default()
    };
    let (set, _) = registry.set_rights(&ada, "urn:e", &rights, &room).unwrap();
    set.unwrap().wait().unwrap();
    publish(&bob, "second").unwrap();
    // The same again is no change.
    let revision = registry.revision();
    publish(&bob, "second").unwrap();
    assert_eq!(registry.revision(), revision);
    let found = registry.get("urn:e", &bob).unwrap();
    assert_eq!(
        (found.owner.as_str(), found.name.as_str()),
        ("ada", "second")
    );
    assert_eq!(found.rights, rights);
    // The error says nothing of what is hidden.
    let taken = publish(&eve, "third").unwrap_err();
    assert_eq!(taken.to_string(), "the key urn:e is not available");
    let unknown = registry.remove_as(&eve, "urn:e").unwrap_err();
    assert_eq!(unknown, chappe_registry::Error::Unknown("urn:e".to_owned()));
    registry
        .remove_as(&bob, "urn:e")
        .unwrap()
        .unwrap()
        .wait()
        .unwrap();
    assert!(registry.get("urn:e", &Principal::Operator).is_none());
    // An account has so many entities, whoever publishes them.
    let few = Room {
        owner_entities: 1,
        ..Room::default()
    };
    publish(&ada, "first").unwrap();
    let mut second = entity("ada", "second");
    "urn:f".clone_into(&mut second.key);
    let refused = registry.publish_as(&ada, &second, &few).unwrap_err();
    let text = r#"the entities of "ada" would be 2 in the registry; the limit is 1"#;
    assert_eq!(refused.to_string(), text);
    let replaced = registry.publish_as(&ada, &entity("ada", "again"), &few);
    replaced.unwrap().unwrap().wait().unwrap();
}

/// tModels are saved by those who may write them, too.
#[test]
fn a_shared_tmodel_is_saved_and_hidden_by_others() {
    let mut desk = Desk::new();
    let key = desk.tmodel("ada", "shared");
    let rights = Rights {
        read: holders(&["everybody"]),
        write: holders(&["role:operate"]),
        ..Rights::default()
    };
    set(&desk, key, &rights);
    let operating = Principal::account("bob", [], [Role::Operate]);
    let mut changed = tmodel("renamed");
    changed.key = Some(key);
    let saved = wait(ask_as(&mut desk, &operating, |it| {
        it.save_tmodel(&[changed])
    }));
    assert_eq!(
        (
            saved[0].authorized_name.as_str(),
            saved[0].value.name.text.as_str()
        ),
        ("ada", "renamed")
    );
    wait(ask_as(&mut desk, &operating, |it| it.delete_tmodel(&[key])));
    let found = desk.inquiry().find_tmodel(&FindTModel::default()).unwrap();
    assert_eq!(found.items, []);
}
