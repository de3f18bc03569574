//! Goal: facets, surroundings and history are the same as if hidden entities did not exist, and say where they end.
//! Method: random entities with random rights; each answer is compared with that of a registry without the entities
//! that the reader may not see, and with a scan of the model.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Model, Step, apply, key, principals, steps};
use chappe_registry::oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode, Term, Triple};
use chappe_registry::{
    Category, Entity, EntityKind, FacetLimits, Facets, Interrupt, MemoryJournal, Neighbour,
    NeighbourPage, Principal, Registry, Right, Search, VersionChange, vocabulary,
};
use proptest::prelude::*;

const ALL: FacetLimits = FacetLimits {
    entities: 1_000,
    values: 1_000,
};

/// Makes some entities services of UDDI with a category.
fn categorized(step: Step, number: usize) -> Step {
    let Step::Publish(mut entity) = step else {
        return step;
    };
    if number.is_multiple_of(3) {
        return Step::Publish(entity);
    }
    let own = NamedNode::new(entity.key.as_str()).unwrap();
    let bag = BlankNode::new("bag").unwrap();
    let value = Literal::new_simple_literal(["red", "blue"][number % 2]);
    entity.types.push(vocabulary::uddi::SERVICE_TYPE.to_owned());
    entity.triples.extend([
        Triple::new(own, vocabulary::uddi::CATEGORY, bag.clone()),
        Triple::new(bag.clone(), vocabulary::uddi::KEY_VALUE, value),
    ]);
    if number % 4 != 1 {
        let tmodel = crate::model::node(7);
        let triple = Triple::new(bag, vocabulary::uddi::TMODEL_KEY, tmodel);
        entity.triples.push(triple);
    }
    Step::Publish(entity)
}

/// A registry with no other entities than those that `principal` may see.
fn without_hidden(model: &Model, principal: &Principal) -> Registry {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for entity in model.visible(principal) {
        let publication = registry.publish(entity.clone()).unwrap();
        publication.wait().unwrap();
    }
    registry
}

fn searches() -> Vec<Search> {
    let all = Search::default();
    vec![
        Search {
            name_prefix: Some("al".to_owned()),
            ..all.clone()
        },
        Search {
            kind: Some(EntityKind::Device),
            ..all.clone()
        },
        Search {
            category: Some(Category {
                tmodel: Some(key(7)),
                value: "red".to_owned(),
            }),
            ..all.clone()
        },
        all,
    ]
}

/// Each count is the number of entities that are found when the value is a further criterion.
fn check_counts(registry: &Registry, principal: &Principal, search: &Search, facets: &Facets) {
    let found = |search: Search| registry.search_keys(&search, principal).len();
    assert_eq!(facets.entities, found(search.clone()));
    assert!(facets.is_complete);
    let search = || search.clone();
    for (kind, count) in &facets.kinds.values {
        let kind = Some(*kind);
        if search().kind.is_none() {
            assert_eq!(*count, found(Search { kind, ..search() }));
        }
    }
    for (name, count) in &facets.types.values {
        let entity_type = Some(name.clone());
        let search = Search {
            entity_type,
            ..search()
        };
        assert_eq!(*count, found(search), "{name}");
    }
    for (name, count) in &facets.owners.values {
        let owner = Some(name.clone());
        assert_eq!(*count, found(Search { owner, ..search() }), "{name}");
    }
    for (iri, count) in &facets.observed_properties.values {
        let observed_property = Some(iri.clone());
        let search = Search {
            observed_property,
            ..search()
        };
        assert_eq!(*count, found(search), "{iri}");
    }
    for (category, count) in &facets.categories.values {
        let category = Some(category.clone());
        if search().category.is_none() {
            assert_eq!(
                *count,
                found(Search {
                    category,
                    ..search()
                })
            );
        }
    }
    let owners: usize = facets.owners.values.iter().map(|(_, count)| count).sum();
    let kinds: usize = facets.kinds.values.iter().map(|(_, count)| count).sum();
    assert_eq!([owners, kinds], [facets.entities; 2]);
}

/// All neighbours, page by page.
fn neighbours(
    registry: &Registry,
    principal: &Principal,
    key: &str,
    limit: usize,
) -> Option<Vec<Neighbour>> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = NeighbourPage {
            after: after.as_deref(),
            limit,
            keep: None,
        };
        let found = registry.surroundings(key, principal, page, &Interrupt::never());
        let found = found.unwrap()?;
        assert!(found.neighbours.len() <= limit);
        all.extend(found.neighbours);
        match found.next {
            Some(next) => after = Some(next),
            None => return Some(all),
        }
    }
}

/// The same by a scan: by key, the properties with which the entity names it, and with which it names the entity.
fn scanned(
    model: &Model,
    principal: &Principal,
    key: &str,
) -> Option<BTreeMap<String, [BTreeSet<String>; 2]>> {
    let visible: BTreeMap<&str, &Entity> = model
        .visible(principal)
        .map(|entity| (entity.key.as_str(), entity))
        .collect();
    visible.get(key)?;
    let mut all = BTreeMap::<String, [BTreeSet<String>; 2]>::new();
    for (own, entity) in &visible {
        for triple in &entity.triples {
            let named = match &triple.object {
                Term::NamedNode(node) => Some((node.as_str(), triple.predicate.as_str())),
                _ => None,
            };
            let described = match &triple.subject {
                NamedOrBlankNode::NamedNode(node) => {
                    Some((node.as_str(), vocabulary::ABOUT.as_str()))
                }
                NamedOrBlankNode::BlankNode(_) => None,
            };
            for (other, property) in named.into_iter().chain(described) {
                if other == *own || !visible.contains_key(other) {
                    continue;
                }
                let mut relate = |neighbour: &str, side: usize| {
                    let relations = all.entry(neighbour.to_owned()).or_default();
                    relations[side].insert(property.to_owned());
                };
                if *own == key {
                    relate(other, 0);
                } else if other == key {
                    relate(own, 1);
                }
            }
        }
    }
    Some(all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn facets_and_surroundings_are_those_of_a_registry_without_the_hidden_entities(steps in steps(30)) {
        let steps: Vec<Step> = steps
            .into_iter()
            .enumerate()
            .map(|(number, step)| categorized(step, number))
            .collect();
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        let mut model = Model::default();
        apply(&registry, &mut model, steps);
        for principal in principals() {
            let other = without_hidden(&model, &principal);
            for search in searches() {
                let facets = registry.facets(&search, &principal, ALL, None);
                check_counts(&registry, &principal, &search, &facets);
                prop_assert_eq!(&facets, &other.facets(&search, &principal, ALL, None));
                let few = FacetLimits { entities: 3, values: 2 };
                let partial = registry.facets(&search, &principal, few, None);
                prop_assert_eq!(partial.is_complete, facets.entities <= 3);
                prop_assert_eq!(partial.entities, facets.entities.min(3));
                prop_assert!(partial.types.values.len() <= 2);
                prop_assert_eq!(partial, other.facets(&search, &principal, few, None));
            }
            for number in 0..8 {
                let key = key(number);
                let found = neighbours(&registry, &principal, &key, 2);
                prop_assert_eq!(&found, &neighbours(&other, &principal, &key, 100));
                let found = found.map(|found| {
                    let relations = |one: Neighbour| {
                        let sides = [one.named_by_middle, one.names_middle];
                        (one.key, sides.map(|side| side.into_iter().collect()))
                    };
                    found.into_iter().map(relations).collect()
                });
                prop_assert_eq!(found, scanned(&model, &principal, &key));
            }
        }
    }

    /// A history has what the reader could see of each change, and of nothing else.
    #[test]
    fn a_history_has_the_changes_as_they_could_be_seen(steps in steps(30)) {
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        let mut model = Model::default();
        let mut expected = BTreeMap::<(String, String), Vec<(VersionChange, Option<bool>)>>::new();
        for step in steps {
            let key = match &step {
                Step::Publish(entity) => entity.key.clone(),
                Step::Remove(key) => key.clone(),
            };
            let before = model.entities.get(&key).cloned();
            apply(&registry, &mut model, vec![step]);
            let after = model.entities.get(&key).cloned();
            for principal in principals() {
                let sees = |entity: &Option<Entity>, right| {
                    entity.as_ref().is_some_and(|entity| entity.permits(&principal, right))
                };
                let content = |entity: &Option<Entity>| entity.clone().map(|mut entity| {
                    (entity.access, entity.rights) = Default::default();
                    entity
                });
                let rule = |entity: &Option<Entity>| {
                    entity.clone().map(|entity| (entity.access, entity.rights))
                };
                let is_same = content(&before) == content(&after);
                let is_of_rights = is_same && rule(&before) != rule(&after);
                let administers = sees(&before, Right::Administer) || sees(&after, Right::Administer);
                let change = match [&before, &after].map(|entity| sees(entity, Right::Read)) {
                    [false, false] => continue,
                    [false, true] => VersionChange::Appeared,
                    [true, false] => VersionChange::Disappeared,
                    [true, true] if is_of_rights && !administers => continue,
                    [true, true] if is_of_rights => VersionChange::RightsChanged,
                    [true, true] => VersionChange::Changed,
                };
                let differs = (change == VersionChange::Changed).then_some(!is_same);
                let whose = (format!("{principal:?}"), key.clone());
                expected.entry(whose).or_default().push((change, differs));
            }
        }
        for principal in principals() {
            for number in 0..8 {
                let key = key(number);
                let (mut changes, mut before) = (Vec::new(), None);
                let expected = expected.get(&(format!("{principal:?}"), key.clone()));
                loop {
                    let page = registry.history(&key, &principal, before, 3).unwrap();
                    let Some(page) = page else {
                        prop_assert_eq!(expected, None);
                        break;
                    };
                    prop_assert_eq!((page.is_cut, page.begins_at), (false, 1));
                    for version in page.versions {
                        let differs = version.differences.map(|it| {
                            !it.fields.is_empty() || it.added_count + it.removed_count > 0
                        });
                        changes.push((version.change, differs));
                    }
                    before = page.next;
                    if before.is_none() {
                        changes.reverse();
                        let expected = expected.cloned().unwrap_or_default();
                        prop_assert_eq!(changes, expected, "{:?} {}", principal, key);
                        break;
                    }
                }
            }
        }
    }
}

/// The journal forgets what a snapshot replaces, and the history says so.
#[test]
fn a_history_says_where_it_begins() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let publish = |registry: &Registry, name: &str| {
        let mut entity = Entity::new("urn:one", EntityKind::Device, name);
        let own = NamedNode::new("urn:one").unwrap();
        let name = Literal::new_simple_literal(name);
        entity.triples = vec![Triple::new(own, vocabulary::ADDRESS, name)];
        registry.publish(entity).unwrap().wait().unwrap();
    };
    publish(&registry, "first");
    publish(&registry, "second");
    let anyone = Principal::Anonymous;
    let history = registry
        .history("urn:one", &anyone, None, 10)
        .unwrap()
        .unwrap();
    let differences = history.versions[0].differences.clone().unwrap();
    assert_eq!(differences.fields, ["name"]);
    assert_eq!((differences.added_count, differences.removed_count), (1, 1));
    assert_eq!(
        differences.added[0].object,
        Literal::new_simple_literal("second").into()
    );
    assert_eq!(history.versions[1].differences, None);
    assert!(!history.is_cut);

    // The feed still knows that it changed; what it was is gone.
    registry.compact().unwrap();
    publish(&registry, "third");
    let history = registry
        .history("urn:one", &anyone, None, 10)
        .unwrap()
        .unwrap();
    let names = history.versions.iter().map(|version| version.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["third", "second", "first"]);
    assert!(
        history
            .versions
            .iter()
            .all(|version| version.differences.is_none())
    );

    // A registry that was opened again knows the changes since the snapshot.
    let reopened = Registry::open(journal).unwrap();
    let history = reopened
        .history("urn:one", &anyone, None, 10)
        .unwrap()
        .unwrap();
    assert_eq!(history.versions.len(), 1);
    assert_eq!(
        (history.is_cut, history.versions[0].change),
        (true, VersionChange::Changed)
    );
    assert!(history.begins_at > 1);
    let unknown = reopened.history("urn:two", &anyone, None, 10).unwrap();
    assert_eq!(unknown, None);
}

/// Only the pages of an entity's own metadata leave out the pieces about it.
#[test]
fn pieces_are_no_neighbours_of_their_subject_and_their_subject_is_theirs() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let own = |key: &str| NamedNode::new(key).unwrap();
    let mut piece = Entity::new("urn:piece", EntityKind::Metadata, "piece");
    piece.triples = vec![
        Triple::new(own("urn:piece"), vocabulary::ABOUT, own("urn:pump")),
        Triple::new(
            own("urn:piece"),
            vocabulary::METADATA_TYPE,
            own("urn:calibrated"),
        ),
        Triple::new(
            own("urn:piece"),
            vocabulary::METADATA_VALUE,
            own("urn:place"),
        ),
        Triple::new(own("urn:piece"), vocabulary::AUTHOR, Literal::from("node")),
    ];
    for entity in [
        Entity::new("urn:pump", EntityKind::Device, "pump"),
        Entity::new("urn:place", EntityKind::Other, "place"),
        piece,
    ] {
        registry.publish(entity).unwrap().wait().unwrap();
    }
    let keys = |key: &str| {
        let found = neighbours(&registry, &Principal::Anonymous, key, 10).unwrap();
        found.into_iter().map(|one| one.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("urn:pump"), [""; 0]);
    assert_eq!(keys("urn:place"), ["urn:piece"]);
    assert_eq!(keys("urn:piece"), ["urn:place", "urn:pump"]);
}

#[test]
fn surroundings_end_when_they_are_interrupted() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let middle = NamedNode::new("urn:middle").unwrap();
    registry
        .publish(Entity::new("urn:middle", EntityKind::Other, "middle"))
        .unwrap()
        .wait()
        .unwrap();
    for number in 0..2_000 {
        let key = format!("urn:one:{number:04}");
        let mut entity = Entity::new(key.as_str(), EntityKind::Other, "one");
        let own = NamedNode::new(key).unwrap();
        entity.triples = vec![Triple::new(own, vocabulary::PRODUCED_BY, middle.clone())];
        registry.publish(entity).unwrap().wait().unwrap();
    }
    let page = NeighbourPage {
        after: Some("urn:one:1000"),
        limit: 5,
        keep: None,
    };
    let anyone = Principal::Anonymous;
    let found = registry.surroundings("urn:middle", &anyone, page, &Interrupt::never());
    let found = found.unwrap().unwrap();
    let keys = found.neighbours.iter().map(|one| one.key.as_str());
    let expected = [
        "urn:one:1001",
        "urn:one:1002",
        "urn:one:1003",
        "urn:one:1004",
        "urn:one:1005",
    ];
    assert_eq!(keys.collect::<Vec<_>>(), expected);
    assert_eq!(found.next.as_deref(), Some("urn:one:1005"));
    let ended = Interrupt::when(|| true);
    assert!(
        registry
            .surroundings("urn:middle", &anyone, page, &ended)
            .is_err()
    );
}
