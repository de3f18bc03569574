//! Goal: what an operator, an owner and a reader ask costs the same under one access rule and under hundreds, and a
//! statement that many rules cover is one answer.
//! Method: the same entities under few and under many rules, and the index entries that queries visit.

use chappe_identity::Role;
use chappe_registry::oxrdf::{NamedNode, Triple};
use chappe_registry::{
    Access, Entity, EntityKind, Error, Holder, Interrupt, MemoryJournal, Principal, Registry,
    Rights, Search, SparqlAnswer, SparqlLimits,
};

const ENTITIES: usize = 600;

fn named(name: &str) -> Principal {
    Principal::Named(name.to_owned())
}

fn iri(text: &str) -> NamedNode {
    NamedNode::new(format!("http://e/{text}")).unwrap()
}

/// An entity that states its maker, and something about a thing that others describe as well.
fn entity(number: usize, owner: &str, access: Access) -> Entity {
    let key = format!("http://e/s{number}");
    let subject = NamedNode::new(key.as_str()).unwrap();
    let mut entity = Entity::new(key, EntityKind::Stream, format!("Stream {number:04}"));
    owner.clone_into(&mut entity.owner);
    entity.access = access;
    entity.types = vec![format!("{{http://e}}T{}", number % 10)];
    let maker = iri(&format!("maker{}", number % 50));
    entity.triples = vec![
        Triple::new(subject, iri("madeBy"), maker.clone()),
        Triple::new(maker, iri("is"), iri("maker")),
    ];
    entity
}

fn publish(registry: &Registry, entity: Entity) {
    registry.publish(entity).unwrap().wait().unwrap();
}

fn registry(rule: impl Fn(usize) -> (String, Access)) -> Registry {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for number in 0..ENTITIES {
        let (owner, access) = rule(number);
        publish(&registry, entity(number, &owner, access));
    }
    registry
}

/// Rows, entries and keys of everything that is asked.
fn answers(registry: &Registry, principal: &Principal) -> Vec<(usize, u64, Vec<String>)> {
    let queries = [
        "SELECT * { ?s e:madeBy e:maker7 . ?s r:label ?n }",
        "SELECT * { ?m e:is e:maker . ?s e:madeBy ?m }",
        "SELECT * { e:s9 ?p ?o }",
        "SELECT (COUNT(*) AS ?n) { ?m e:is e:maker }",
        "ASK { ?s e:madeBy e:maker7 }",
    ];
    let asked = queries.map(|query| {
        let query = format!(
            "PREFIX e: <http://e/> PREFIX r: <http://www.w3.org/2000/01/rdf-schema#> {query}"
        );
        let (limits, interrupt) = (SparqlLimits::default(), Interrupt::never());
        let (answer, cost) = registry
            .sparql_with_cost(&query, principal, &limits, &interrupt)
            .unwrap();
        let rows = match answer {
            SparqlAnswer::Solutions { rows, .. } => rows.len(),
            SparqlAnswer::Graph(triples) => triples.len(),
            SparqlAnswer::Boolean(is_true) => usize::from(is_true),
        };
        (rows, cost.entries, Vec::new())
    });
    let searches = [
        Search {
            name_prefix: Some("stream 01".to_owned()),
            ..Search::default()
        },
        Search {
            entity_type: Some("{http://e}T3".to_owned()),
            kind: Some(EntityKind::Stream),
            ..Search::default()
        },
        Search {
            local_type: Some("T4".to_owned()),
            limit: Some(7),
            after: Some(("Stream 0100".to_owned(), String::new())),
            ..Search::default()
        },
    ];
    let found = searches.map(|search| (0, 0, registry.search_keys(&search, principal)));
    asked.into_iter().chain(found).collect()
}

#[test]
fn the_operator_and_an_owner_read_as_much_under_many_rules() {
    let one = registry(|_| ("ada".to_owned(), Access::Owner));
    let of_many = registry(|number| (format!("account{number}"), Access::Owner));
    let shared = registry(|number| {
        let readers = Access::Readers(vec!["ada".to_owned(), format!("reader{number}")]);
        ("ada".to_owned(), readers)
    });
    assert_eq!(one.statistics().access_groups, 1);
    assert_eq!(of_many.statistics().access_groups, ENTITIES);
    assert_eq!(shared.statistics().access_groups, ENTITIES);
    let expected = answers(&one, &Principal::Operator);
    // A triple of all entities, brought by a twelfth of them each, is 50 answers.
    assert_eq!((expected[1].0, expected[5].2.len()), (ENTITIES, 100));
    for registry in [&of_many, &shared] {
        assert_eq!(answers(registry, &Principal::Operator), expected);
    }
    for registry in [&one, &shared] {
        assert_eq!(answers(registry, &named("ada")), expected);
    }
    // Another account sees its own, and no more.
    let own = of_many.search_keys(&Search::default(), &named("account9"));
    assert_eq!(own, ["http://e/s9"]);
    let read = shared.search_keys(&Search::default(), &named("reader9"));
    assert_eq!(read, ["http://e/s9"]);
    let nothing = shared.search_keys(&Search::default(), &Principal::Anonymous);
    assert!(nothing.is_empty(), "{nothing:?}");
}

#[test]
fn a_reader_reads_as_much_under_many_rules() {
    let rule = |rules: usize| {
        move |number: usize| {
            let other = format!("reader{}", number % rules);
            let readers = Access::Readers(vec!["eve".to_owned(), other]);
            (format!("owner{}", number % rules % 3), readers)
        }
    };
    let (one, many) = (registry(rule(1)), registry(rule(ENTITIES)));
    assert_eq!(many.statistics().access_groups, ENTITIES);
    let eve = named("eve");
    let expected = answers(&one, &eve);
    assert_eq!((expected[1].0, expected[5].2.len()), (ENTITIES, 100));
    assert_eq!(answers(&many, &eve), expected);
}

#[test]
fn a_group_and_a_role_read_as_much_under_many_rules() {
    let rule = |rules: usize| {
        move |number: usize| Rights {
            read: vec![
                Holder::Group("ward".to_owned()),
                Holder::Account(format!("reader{}", number % rules)),
            ],
            write: vec![Holder::Role(Role::Operate)],
            ..Rights::default()
        }
    };
    let stated = |rights: &dyn Fn(usize) -> Rights| {
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        for number in 0..ENTITIES {
            let mut entity = entity(number, "cleo", Access::Owner);
            entity.rights = rights(number);
            publish(&registry, entity);
        }
        registry
    };
    let (one, many) = (stated(&rule(1)), stated(&rule(ENTITIES)));
    let ward = Principal::account("eve", ["ward".to_owned()], []);
    let operating = Principal::account("eve", [], [Role::Operate]);
    // In both, and named: entities are found once, in several sets of indexes.
    let several = Principal::account("reader0", ["ward".to_owned()], [Role::Operate]);
    for principal in [&ward, &operating] {
        let expected = answers(&one, principal);
        assert_eq!((expected[1].0, expected[5].2.len()), (ENTITIES, 100));
        assert_eq!(answers(&many, principal), expected);
        let rows = |principal: &Principal| -> Vec<(usize, Vec<String>)> {
            let answers = answers(&many, principal).into_iter();
            answers.map(|(rows, _, keys)| (rows, keys)).collect()
        };
        assert_eq!(rows(&several), rows(principal));
    }
    let outside = Principal::account("eve", ["lab".to_owned()], [Role::Write]);
    let nothing = many.search_keys(&Search::default(), &outside);
    assert!(nothing.is_empty(), "{nothing:?}");
}

#[test]
fn an_entity_with_many_triples_names_few_readers() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let mut wide = entity(0, "ada", Access::Readers(Vec::new()));
    let subject = NamedNode::new(wide.key.as_str()).unwrap();
    wide.triples = (0..1_000)
        .map(|number| Triple::new(subject.clone(), iri("is"), iri(&format!("{number}"))))
        .collect();
    let read_by = |readers: usize| {
        let mut wide = wide.clone();
        let names = (0..readers).map(|number| format!("reader{number}"));
        wide.access = Access::Readers(names.collect());
        wide
    };
    publish(&registry, read_by(99));
    let refused = registry.publish(read_by(100)).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::InvalidEntity {
                field: "rights",
                ..
            }
        ),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .contains("hint: put the accounts into a group")
    );
}

#[test]
fn statements_of_rights_leave_nothing_behind() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let lists: [&[Holder]; 3] = [
        &[Holder::Everybody],
        &[Holder::AnyAccount, Holder::Role(Role::Read)],
        &[
            Holder::Group("lab".to_owned()),
            Holder::Account("eve".to_owned()),
        ],
    ];
    for (read, write, administer) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
        let mut stated = entity(0, "ada", Access::Owner);
        stated.rights = Rights {
            read: lists[read].to_vec(),
            annotate: Some(lists[write].to_vec()),
            write: lists[write].to_vec(),
            administer: lists[administer].to_vec(),
        };
        publish(&registry, stated.clone());
        let found = registry.get(&stated.key, &Principal::Operator);
        assert_eq!(found, Some(stated));
    }
    registry.remove("http://e/s0").unwrap().wait().unwrap();
    let left = registry.statistics();
    let counts = (left.triples, left.terms, left.access_groups, left.bytes);
    assert_eq!(counts, (0, 0, 0, 0));
    let eve = Principal::account("eve", ["lab".to_owned()], Role::ALL);
    for principal in [Principal::Operator, Principal::Anonymous, named("ada"), eve] {
        assert_eq!(
            registry.search_keys(&Search::default(), &principal).len(),
            0
        );
    }
}

#[test]
fn entities_that_change_their_rule_leave_nothing_behind() {
    let registry = registry(|number| (format!("account{}", number % 100), Access::Owner));
    let held = registry.clone();
    for number in 0..ENTITIES {
        let access = match number % 3 {
            0 => Access::Public,
            1 => Access::Readers(vec!["eve".to_owned()]),
            _ => Access::Readers(Vec::new()),
        };
        publish(
            &registry,
            entity(number, &format!("account{}", number % 100), access),
        );
    }
    let count = |principal: &Principal| registry.search_keys(&Search::default(), principal).len();
    let public = ENTITIES / 3;
    assert_eq!(count(&Principal::Anonymous), public);
    assert_eq!(count(&named("eve")), 2 * public);
    assert_eq!(count(&Principal::Operator), ENTITIES);
    assert_eq!(count(&named("account7")), public + 4);
    for number in 0..ENTITIES {
        let removed = registry.remove(&format!("http://e/s{number}"));
        removed.unwrap().wait().unwrap();
    }
    let left = held.statistics();
    assert_eq!(
        (
            left.entities,
            left.triples,
            left.terms,
            left.access_groups,
            left.bytes
        ),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(count(&Principal::Operator), 0);
}
