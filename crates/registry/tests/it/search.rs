//! Goal: a search finds the entities that match its fields and are visible to the requester, in the
//! order of names.
//! Method: random changes and random searches, compared with a scan of all entities.

use crate::model::{Model, apply, key, principals, steps};
use chappe_registry::{EntityKind, MemoryJournal, Principal, Registry, Search, vocabulary};
use proptest::option;
use proptest::prelude::*;

fn search() -> impl Strategy<Value = Search> {
    let text = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        option::weighted(0.3, proptest::sample::select(texts))
    };
    (
        text(&["", "al", "ALP", "alpha", "ä", "zz"]),
        option::weighted(0.3, proptest::sample::select(EntityKind::ALL.to_vec())),
        text(&["{http://example.com/t}Pump", "{http://example.com/t}None"]),
        text(&["Pump", "None", "ump", ""]),
        text(&["http://h/a", "http://h", "urn:x:y"]),
        option::weighted(0.3, (0_u8..8).prop_map(key)),
        option::weighted(0.3, (0_u8..8).prop_map(key)),
        text(&["ada", "cleo", "nobody"]),
        option::of(0_usize..5),
    )
        .prop_map(
            |(
                name_prefix,
                kind,
                entity_type,
                local_type,
                scope,
                observed_property,
                about,
                owner,
                limit,
            )| {
                Search {
                    name_prefix,
                    kind,
                    entity_type,
                    local_type,
                    scope,
                    observed_property,
                    about,
                    owner,
                    limit,
                    ..Search::default()
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn it_finds_what_looking_through_all_finds(
        steps in steps(40),
        searches in proptest::collection::vec(search(), 1..12),
    ) {
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        let mut model = Model::default();
        apply(&registry, &mut model, steps);
        for principal in principals() {
            for search in &searches {
                let found = registry.search(search, &principal);
                prop_assert_eq!(&found, &model.search(search, &principal), "{:?}", search);
                let all = Search { limit: Some(1_000), ..search.clone() };
                let found = registry.search(&all, &principal).entities.into_iter();
                let all: Vec<String> = found.map(|entity| entity.key).collect();
                prop_assert_eq!(&in_pages_of_two(&registry, search, &principal), &all);
                let limited = all[..all.len().min(search.limit.unwrap_or(all.len()))].to_vec();
                prop_assert_eq!(registry.search_keys(search, &principal), limited);
            }
            for number in 0..8 {
                let expected = model.visible(&principal).find(|entity| entity.key == key(number));
                let found = registry.get(&key(number), &principal);
                prop_assert_eq!(found.as_ref(), expected);
            }
        }
    }
}

/// The keys of all pages, each of which begins after the last entity of the one before.
fn in_pages_of_two(registry: &Registry, search: &Search, principal: &Principal) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = Search {
            limit: Some(2),
            after,
            ..search.clone()
        };
        let found = registry.search(&page, principal);
        let last = found.entities.last();
        after = last.map(|entity| (entity.name.clone(), entity.key.clone()));
        keys.extend(found.entities.into_iter().map(|entity| entity.key));
        if !found.truncated {
            return keys;
        }
    }
}

/// The walk along names and the candidates of a rare field must agree.
#[test]
fn a_rare_field_among_many_names_is_found() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for number in 0..500 {
        let name = format!("Sensor {:03}", number);
        let mut entity =
            chappe_registry::Entity::new(format!("urn:s:{number}"), EntityKind::Stream, name);
        if number % 100 == 7 {
            entity.types.push("{urn:t}Rare".to_owned());
            entity.triples.push(chappe_registry::oxrdf::Triple::new(
                crate::model::node(1),
                vocabulary::OBSERVES,
                crate::model::node(2),
            ));
        }
        registry.publish(entity).unwrap().wait().unwrap();
    }
    let anyone = chappe_registry::Principal::Anonymous;
    let rare = Search {
        entity_type: Some("{urn:t}Rare".into()),
        name_prefix: Some("SENSOR".into()),
        limit: Some(3),
        ..Search::default()
    };
    let found = registry.search(&rare, &anyone);
    let names: Vec<&str> = found
        .entities
        .iter()
        .map(|entity| entity.name.as_str())
        .collect();
    assert_eq!(names, ["Sensor 007", "Sensor 107", "Sensor 207"]);
    assert!(found.truncated);
    let observed = Search {
        observed_property: Some(crate::model::key(2)),
        ..Search::default()
    };
    assert_eq!(registry.search(&observed, &anyone).entities.len(), 5);
    let prefix = Search {
        name_prefix: Some("sensor 49".into()),
        ..Search::default()
    };
    assert_eq!(registry.search(&prefix, &anyone).entities.len(), 10);
}

/// Subclasses of a type and what is narrower than a property, by the ontologies of some authors.
#[test]
fn a_widened_search_follows_the_authors_that_count() {
    use chappe_registry::oxrdf::{NamedNode, Triple};
    use chappe_registry::{Entity, Interrupt, SparqlError, SparqlLimits};
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let iri = |text: &str| NamedNode::new(text).unwrap();
    let publish = |entity: Entity| registry.publish(entity).unwrap().wait().unwrap();
    let ontology = |key: &str, owner: &str, edges: &[(&str, &str)]| {
        let mut entity = Entity::new(key, EntityKind::Other, key);
        (entity.owner, entity.types) = (owner.into(), vec![vocabulary::ONTOLOGY_TYPE.into()]);
        entity.triples = edges
            .iter()
            .map(|(narrow, wide)| {
                let relation = vocabulary::SUB_CLASS_OF.into_owned();
                Triple::new(iri(narrow), relation, iri(wide))
            })
            .collect();
        publish(entity);
    };
    for (name, kind) in [("ecg", "Ecg"), ("pump", "Pump"), ("odd", "Odd")] {
        let mut entity = Entity::new(format!("urn:d:{name}"), EntityKind::Device, name);
        entity.types = vec![format!("{{urn:t}}{kind}")];
        let observed = iri(&format!("urn:p:{name}"));
        let subject = iri(&entity.key);
        entity.triples = vec![Triple::new(
            subject,
            vocabulary::OBSERVES.into_owned(),
            observed,
        )];
        publish(entity);
    }
    // In a circle, which ends.
    ontology(
        "urn:o:1",
        "node",
        &[
            ("urn:t/Ecg", "urn:t/Monitor"),
            ("urn:t/Monitor", "urn:t/Device"),
            ("urn:t/Pump", "urn:t/Device"),
            ("urn:t/Device", "urn:t/Monitor"),
            ("urn:p:ecg", "urn:p:vital"),
        ],
    );
    ontology(
        "urn:o:2",
        "stranger",
        &[("urn:t/Odd", "urn:t/Device"), ("urn:p:odd", "urn:p:vital")],
    );
    let found = |search: &Search, authors: &[&str]| {
        let authors: Vec<String> = authors.iter().map(|it| (*it).to_owned()).collect();
        let (anyone, limits) = (Principal::Anonymous, SparqlLimits::default());
        let never = Interrupt::never();
        let wide = registry.widened(search.clone(), &authors, &anyone, &limits, &never);
        let found = registry.search(&wide.unwrap(), &anyone).entities;
        let names: Vec<String> = found.into_iter().map(|entity| entity.name).collect();
        names.join(" ")
    };
    let device = Search {
        entity_type: Some("{urn:t}Device".into()),
        ..Search::default()
    };
    assert_eq!(found(&device, &[]), "");
    assert_eq!(found(&device, &["node"]), "ecg pump");
    assert_eq!(found(&device, &["node", "stranger"]), "ecg odd pump");
    let ecg = Search {
        entity_type: Some("{urn:t}Ecg".into()),
        ..Search::default()
    };
    assert_eq!(found(&ecg, &["node"]), "ecg");
    let vital = Search {
        observed_property: Some("urn:p:vital".into()),
        ..Search::default()
    };
    assert_eq!(found(&vital, &["node"]), "ecg");
    assert_eq!(
        registry
            .search(&vital, &Principal::Anonymous)
            .entities
            .len(),
        0
    );
    // A hierarchy that exceeds a limit is an error, not a part.
    let few = SparqlLimits {
        steps: 3,
        ..SparqlLimits::default()
    };
    let (authors, never) = (["node".to_owned()], Interrupt::never());
    let wide = registry.widened(device, &authors, &Principal::Anonymous, &few, &never);
    let limit = "steps";
    assert_eq!(wide, Err(SparqlError::Limit { limit, value: 3 }));
}

/// Two fields that many entities have, far more than the limit: the result is in the order of
/// names, whichever way they are found.
#[test]
fn fields_of_many_are_intersected() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let mut expected = Vec::new();
    for number in 0..2_000_usize {
        let name = format!("Sensor {:04}", number * 7 % 2_000);
        let key = format!("urn:s:{number}");
        let mut entity = chappe_registry::Entity::new(key, EntityKind::Stream, name.clone());
        let (typed, scoped) = (number % 10 == 3, number % 4 == 3);
        if typed {
            entity.types.push("{urn:t}Some".to_owned());
        }
        let place = if scoped { "a" } else { "ab" };
        entity.scopes = vec![
            format!("http://h/{place}/{number}"),
            format!("http://h/{place}?{number}"),
        ];
        if typed && scoped {
            expected.push(name);
        }
        registry.publish(entity).unwrap().wait().unwrap();
    }
    expected.sort_unstable();
    for limit in [1, 20, expected.len(), 10_000] {
        for prefix in ["", "sensor 00", "sensor 1"] {
            let search = Search {
                name_prefix: Some(prefix.into()),
                entity_type: Some("{urn:t}Some".into()),
                scope: Some("HTTP://h/a/".into()),
                limit: Some(limit),
                ..Search::default()
            };
            let found = registry.search(&search, &chappe_registry::Principal::Anonymous);
            let names: Vec<&String> = found.entities.iter().map(|entity| &entity.name).collect();
            let all = expected
                .iter()
                .filter(|name| name.to_lowercase().starts_with(prefix));
            let all: Vec<&String> = all.collect();
            assert_eq!(names, all[..limit.min(all.len())], "{prefix} {limit}");
            assert_eq!(found.truncated, all.len() > limit);
        }
    }
}
