//! Things in a registry in memory.

use chappe_identity::Principal;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::journal::MemoryJournal;
use crate::limits::{Interrupt, SparqlLimits};

const NOW: i64 = 1_774_000_000_000;

fn lamp() -> Value {
    json!({
        "@context": [td::TD_CONTEXT, {"saref": "https://w3id.org/saref#"}],
        "@type": "saref:LightSwitch",
        "id": "urn:example:lamp",
        "title": "Kitchen lamp",
        "titles": {"de": "Küchenlampe"},
        "base": "http://lamp.example/",
        "saref:hasManufacturer": "Lux",
        "securityDefinitions": {"basic_sc": {"scheme": "basic"}},
        "security": "basic_sc",
        "properties": {"power": {
            "type": "number", "unit": "W", "readOnly": true,
            "forms": [{"href": "power", "op": "readproperty", "contentType": "application/json"}],
        }},
        "actions": {"toggle": {"forms": [{"href": "/toggle"}]}},
        "events": {"overheating": {"data": {"type": "string"}, "forms": [{"href": "e", "subprotocol": "sse"}]}},
        "links": [{"href": "manual.pdf", "rel": "service-doc", "type": "application/pdf"}],
        "x-unknown": {"kept": [1, 2.5, null]},
    })
}

fn named(name: &str) -> Principal {
    Principal::Named(name.to_owned())
}

fn author<'a>(name: &'a str, principal: &'a Principal) -> Author<'a> {
    Author { name, principal }
}

fn registry() -> Registry {
    Registry::open(MemoryJournal::new()).unwrap()
}

fn put(registry: &Registry, document: &Value, now_ms: i64) -> Result<bool, ThingError> {
    let changed = registry.put_thing(
        document,
        author("ada", &named("ada")),
        &Room::default(),
        now_ms,
    )?;
    let is_new = changed.is_new;
    changed.publication.wait()?;
    Ok(is_new)
}

fn patch(registry: &Registry, key: &str, patch: &Value, now_ms: i64) -> Result<Value, ThingError> {
    let changed = registry.patch_thing(
        key,
        patch,
        author("ada", &named("ada")),
        &Room::default(),
        now_ms,
    )?;
    changed.publication.wait()?;
    Ok(changed.patch.unwrap())
}

fn get(registry: &Registry, key: &str) -> Option<Value> {
    document(&registry.get(key, &Principal::Anonymous)?)
}

fn ask(registry: &Registry, query: &str) -> bool {
    let query = format!(
        "PREFIX td: <{}> PREFIX hctl: <{}> PREFIX js: <{}> PREFIX d: <{}> \
         PREFIX saref: <https://w3id.org/saref#> ASK {{ {query} }}",
        td::TD,
        td::HYPERMEDIA,
        td::JSON_SCHEMA,
        td::DISCOVERY
    );
    let (principal, limits) = (Principal::Anonymous, SparqlLimits::default());
    let answer = registry.sparql(&query, &principal, &limits, &Interrupt::never());
    answer.unwrap().to_json().unwrap().contains("true")
}

#[test]
fn a_document_comes_back_with_its_registration() {
    let registry = registry();
    assert!(put(&registry, &lamp(), NOW).unwrap());
    let mut expected = lamp();
    expected["registration"] =
        json!({"created": "2026-03-20T09:46:40.000Z", "modified": "2026-03-20T09:46:40.000Z"});
    expected["@context"]
        .as_array_mut()
        .unwrap()
        .push(json!(td::DISCOVERY_CONTEXT));
    assert_eq!(get(&registry, "urn:example:lamp"), Some(expected));
    assert!(!put(&registry, &lamp(), NOW + 1_000).unwrap());
    let registration = &get(&registry, "urn:example:lamp").unwrap()["registration"];
    assert_eq!(registration["created"], "2026-03-20T09:46:40.000Z");
    assert_eq!(registration["modified"], "2026-03-20T09:46:41.000Z");
}

#[test]
fn sparql_sees_its_statements() {
    let registry = registry();
    put(&registry, &lamp(), NOW).unwrap();
    for pattern in [
        "<urn:example:lamp> a td:Thing, saref:LightSwitch ; td:title 'Kitchen lamp' ; \
         td:titleInLanguage 'Küchenlampe'@de ; saref:hasManufacturer 'Lux'",
        "?thing td:hasPropertyAffordance [ a td:PropertyAffordance, js:NumberSchema ; td:name 'power' ; \
         <http://schema.org/unitCode> 'W' ; js:readOnly true ; td:hasForm [ \
         hctl:hasOperationType td:readProperty ; hctl:forContentType 'application/json' ; \
         hctl:hasTarget 'http://lamp.example/power'^^<http://www.w3.org/2001/XMLSchema#anyURI> ] ]",
        "?thing td:hasActionAffordance [ td:name 'toggle' ; td:hasForm [ hctl:hasTarget ?target ] ] \
         FILTER(STR(?target) = 'http://lamp.example/toggle')",
        "?thing td:hasEventAffordance [ td:hasNotificationSchema [ a js:StringSchema ] ; \
         td:hasForm [ hctl:forSubProtocol 'sse' ] ]",
        "?thing td:hasLink [ hctl:hasRelationType 'service-doc' ; hctl:hintsAtMediaType 'application/pdf' ]",
        "?thing td:definesSecurityScheme [ a <https://www.w3.org/2019/wot/security#BasicSecurityScheme> ; \
         td:name 'basic_sc' ] ; td:hasSecurityConfiguration 'basic_sc'",
        "?thing d:hasRegistrationInformation [ d:dateCreated ?time ] FILTER(YEAR(?time) = 2026)",
    ] {
        assert!(ask(&registry, pattern), "{pattern}");
    }
}

#[test]
fn a_patch_changes_members_and_is_reported() {
    let registry = registry();
    put(&registry, &lamp(), NOW).unwrap();
    let key = "urn:example:lamp";
    let reported = patch(
        &registry,
        key,
        &json!({"title": "Lamp", "events": null}),
        NOW + 5,
    );
    let modified = "2026-03-20T09:46:40.005Z";
    assert_eq!(
        reported.unwrap(),
        json!({"title": "Lamp", "events": null, "registration": {"modified": modified}})
    );
    assert!(!ask(&registry, "?thing td:hasEventAffordance ?event"));
    for (change, field) in [
        (json!({"id": "urn:other"}), "id"),
        (json!({"id": null}), "id"),
        (json!({"title": null}), "(root)"),
        (json!(3), "(root)"),
    ] {
        match patch(&registry, key, &change, NOW) {
            Err(ThingError::Invalid(faults)) => assert_eq!(faults[0].field, field, "{change}"),
            other => panic!("{change}: {other:?}"),
        }
    }
    let unknown = patch(&registry, "urn:none", &json!({}), NOW).unwrap_err();
    assert_eq!(unknown, ThingError::Unknown("urn:none".to_owned()));
}

#[test]
fn a_time_to_live_ends_and_is_renewed() {
    let registry = registry();
    let key = "urn:example:lamp";
    let mut document = lamp();
    document["registration"] = json!({"ttl": 60, "expires": "2001-01-01T00:00:00Z"});
    put(&registry, &document, NOW).unwrap();
    let registered = get(&registry, key).unwrap();
    assert_eq!(registered["registration"]["ttl"], 60);
    assert_eq!(
        registered["registration"]["expires"],
        "2026-03-20T09:47:40.000Z"
    );
    let lease_s = |key| registry.get(key, &Principal::Operator).unwrap().lease_s;
    assert_eq!(lease_s(key), Some(60));
    let removed = |now_ms| registry.remove_expired_thing(key, now_ms).unwrap();
    assert!(removed(NOW + 59_999).is_none());
    patch(&registry, key, &json!({}), NOW + 50_000).unwrap();
    assert!(removed(NOW + 60_000).is_none());
    removed(NOW + 110_000).unwrap().wait().unwrap();
    assert_eq!(get(&registry, key), None);
    assert!(removed(NOW + 110_000).is_none());
    // Without it, the client names the end.
    document["registration"] = json!({"expires": "2026-03-20T10:46:41+01:00"});
    put(&registry, &document, NOW).unwrap();
    assert_eq!(lease_s(key), None);
    assert!(removed(NOW + 999).is_none());
    assert!(removed(NOW + 1_000).is_some());
    document["registration"] = json!({"expires": "2026-03-20T10:46:40+01:00"});
    assert!(matches!(
        put(&registry, &document, NOW),
        Err(ThingError::Invalid(_))
    ));
}

#[test]
fn only_its_owner_and_administrators_change_a_thing() {
    let registry = registry();
    put(&registry, &lamp(), NOW).unwrap();
    let bob = named("bob");
    let bob = author("bob", &bob);
    let room = Room::default();
    let refused = [
        registry.put_thing(&lamp(), bob, &room, NOW).unwrap_err(),
        registry
            .patch_thing("urn:example:lamp", &json!({}), bob, &room, NOW)
            .unwrap_err(),
        registry.remove_thing("urn:example:lamp", bob).unwrap_err(),
    ];
    for error in refused {
        assert!(
            matches!(error, ThingError::Registry(Error::NotOwner { .. })),
            "{error}"
        );
    }
    let administrator = author("bob", &Principal::Operator);
    let changed = registry.put_thing(&lamp(), administrator, &room, NOW);
    changed.unwrap().publication.wait().unwrap();
    let thing = registry
        .get("urn:example:lamp", &Principal::Anonymous)
        .unwrap();
    assert_eq!(thing.owner, "ada");
    let removed = registry.remove_thing("urn:example:lamp", administrator);
    removed.unwrap().publication.wait().unwrap();
    let other = Entity::new("urn:example:lamp", EntityKind::Other, "a note");
    registry.publish(other).unwrap().wait().unwrap();
    let error = put(&registry, &lamp(), NOW).unwrap_err();
    assert!(matches!(error, ThingError::NotThing { .. }), "{error}");
}

#[test]
fn faults_name_the_member() {
    let with = |pointer: &str, value: Value| {
        let mut document = lamp();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[name] = value;
        document
    };
    let mut without_title = lamp();
    without_title.as_object_mut().unwrap().remove("title");
    let deep = (0..70).fold(json!(1), |inner, _| json!([inner]));
    for (document, field) in [
        (json!([]), "(root)"),
        (without_title, "(root)"),
        (with("/@context", json!("https://schema.org")), "@context"),
        (with("/@context", json!([td::TD_CONTEXT, 3])), "@context.1"),
        (with("/@type", json!("tm:ThingModel")), "@type"),
        (with("/id", json!("lamp")), "id"),
        (with("/title", json!(3)), "title"),
        (with("/titles", json!({"de": 3})), "titles.de"),
        (with("/security", json!("none_sc")), "security"),
        (with("/security", json!([])), "security"),
        (
            with("/securityDefinitions", json!({})),
            "securityDefinitions",
        ),
        (
            with("/securityDefinitions/basic_sc", json!({})),
            "securityDefinitions.basic_sc",
        ),
        (with("/properties/power", json!(1)), "properties.power"),
        (
            with("/properties/power/forms", json!([])),
            "properties.power.forms",
        ),
        (
            with("/properties/power/forms", json!([{}])),
            "properties.power.forms.0",
        ),
        (
            with("/properties/power/forms", json!([{"href": 1}])),
            "properties.power.forms.0.href",
        ),
        (
            with(
                "/actions/toggle/forms",
                json!([{"href": "a", "op": "readproperty"}]),
            ),
            "actions.toggle.forms.0.op",
        ),
        (
            with("/actions/toggle/input", json!("a")),
            "actions.toggle.input",
        ),
        (with("/links", json!([{"rel": "a"}])), "links.0"),
        (with("/forms", json!([{"href": "a"}])), "forms.0"),
        (
            with("/registration", json!({"ttl": -1})),
            "registration.ttl",
        ),
        (
            with("/registration", json!({"ttl": 1e300})),
            "registration.ttl",
        ),
        (
            with("/registration", json!({"expires": "soon"})),
            "registration.expires",
        ),
        (with("/x-unknown", deep), "(root)"),
    ] {
        match check(&document, NOW) {
            Err(ThingError::Invalid(faults)) => assert_eq!(faults[0].field, field, "{faults:?}"),
            other => panic!("{field}: {other:?}"),
        }
    }
    let long = with("/description", json!("a".repeat(MAX_DOCUMENT_BYTES)));
    assert!(matches!(check(&long, NOW), Err(ThingError::TooLong { .. })));
    check(&lamp(), NOW).unwrap();
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "ä{0,9000}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z@:]{1,8}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn documents_with_unknown_members_come_back(
        extra in prop::collection::btree_map("x-[a-z:@]{1,8}", value(), 0..4),
        title in ".{0,300}",
    ) {
        let mut document = lamp();
        document["title"] = json!(title);
        document.as_object_mut().unwrap().extend(extra);
        let entity = to_entity(&document, "ada").unwrap();
        prop_assert_eq!(super::document(&entity), Some(document));
    }

    #[test]
    fn no_member_causes_a_panic(name in 0_usize..16, member in value()) {
        let mut document = lamp();
        let members = document.as_object_mut().unwrap();
        let name = members.keys().nth(name % members.len()).cloned().unwrap();
        members.insert(name, member);
        let checked = check(&document, NOW);
        if let Some(entity) = to_entity(&document, "ada") {
            prop_assert_eq!(super::document(&entity), Some(document));
        } else {
            prop_assert!(checked.is_err());
        }
    }
}

/// A prefix makes long IRIs of short names: what is made of them ends where the document is refused.
#[test]
fn names_do_not_grow_without_end() {
    let mut document = lamp();
    let namespace = format!("http://e/{}/", "x".repeat(20_000));
    document["@context"] = json!([td::TD_CONTEXT, {"p": namespace, "saref": "urn:s:"}]);
    let members: Vec<String> = (0..3_000).map(|n| format!("p:{n}")).collect();
    for name in &members {
        document[name] = json!("p:x");
    }
    document["@type"] = json!(members);
    document["properties"]["power"]["@type"] = json!(members);
    check(&document, NOW).unwrap();
    let entity = to_entity(&document, "ada").unwrap();
    assert!(entity.types.len() < 300);
    let bytes: usize = entity.triples.iter().map(crate::entity::triple_bytes).sum();
    assert!(bytes < 1 << 20, "{bytes}");
    assert!(put(&registry(), &document, NOW).is_err());
}
