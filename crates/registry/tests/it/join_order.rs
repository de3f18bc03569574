//! Goal: the order in which patterns are written does not affect the cost of a query.
//! Method: the same query in every order of its patterns, and the index entries each visits.

use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
use chappe_registry::{
    Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, SparqlAnswer, SparqlLimits,
};

const SERVICES: usize = 2_000;

/// Services that all state their maker; one in five hundred states that it is in the cellar.
fn registry() -> Registry {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let iri = |text: &str| NamedNode::new(format!("http://e/{text}")).unwrap();
    for number in 0..SERVICES {
        let key = format!("http://e/s{number}");
        let subject = NamedNode::new(key.as_str()).unwrap();
        let mut entity = Entity::new(key, EntityKind::Service, format!("Service {number}"));
        let mut say = |predicate: &str, object: NamedNode| {
            entity
                .triples
                .push(Triple::new(subject.clone(), iri(predicate), object));
        };
        say("madeBy", iri(&format!("maker{}", number % 3)));
        say("in", iri(if number % 500 == 3 { "cellar" } else { "hall" }));
        let serial = Literal::new_simple_literal(format!("{number:05}"));
        entity
            .triples
            .push(Triple::new(subject.clone(), iri("serial"), serial));
        registry.publish(entity).unwrap().wait().unwrap();
    }
    registry
}

fn cost(registry: &Registry, query: &str) -> (usize, u64) {
    let query =
        format!("PREFIX e: <http://e/> PREFIX r: <http://www.w3.org/2000/01/rdf-schema#> {query}");
    let limits = SparqlLimits::default();
    let asked =
        registry.sparql_with_cost(&query, &Principal::Anonymous, &limits, &Interrupt::never());
    let (answer, cost) = asked.unwrap();
    match answer {
        SparqlAnswer::Solutions { rows, .. } => (rows.len(), cost.entries),
        SparqlAnswer::Boolean(value) => (usize::from(value), cost.entries),
        SparqlAnswer::Graph(triples) => (triples.len(), cost.entries),
    }
}

fn orders(patterns: &[&str]) -> Vec<String> {
    if patterns.is_empty() {
        return vec![String::new()];
    }
    let mut all = Vec::new();
    for first in 0..patterns.len() {
        let mut rest = patterns.to_vec();
        let pattern = rest.remove(first);
        all.extend(
            orders(&rest)
                .into_iter()
                .map(|rest| format!("{pattern} . {rest}")),
        );
    }
    all
}

/// Every order gives the same rows and visits at most `most` entries.
fn same_in_every_order(patterns: &[&str], rows: usize, most: u64) {
    let registry = registry();
    for group in orders(patterns) {
        let (found, entries) = cost(&registry, &format!("SELECT * {{ {group} }}"));
        assert_eq!(found, rows, "{group}");
        assert!(entries <= most, "{entries} entries for {group}");
    }
}

#[test]
fn two_patterns_cost_the_same_in_either_order() {
    same_in_every_order(&["?s e:madeBy e:maker0", "?s e:in e:cellar"], 2, 8);
}

#[test]
fn a_pattern_without_constants_waits_for_the_selective_one() {
    same_in_every_order(
        &["?s r:label ?n", "?s e:in e:cellar", "?s e:serial ?x"],
        4,
        12,
    );
}

#[test]
fn a_table_goes_first_and_a_filter_as_soon_as_it_can() {
    let registry = registry();
    let table = "VALUES ?x { \"00003\" \"00503\" }";
    for query in [
        format!("SELECT * {{ ?s e:serial ?x . ?s r:label ?n {table} }}"),
        format!("SELECT * {{ {table} ?s r:label ?n . ?s e:serial ?x }}"),
    ] {
        assert_eq!(cost(&registry, &query), (2, 4), "{query}");
    }
    let query = "SELECT * { ?s e:in e:cellar . ?s e:serial ?x . ?s r:label ?n FILTER(?x < \"1\") }";
    let (rows, entries) = cost(&registry, query);
    assert_eq!(rows, 4);
    assert!(entries <= 12, "{entries}");
}

#[test]
fn an_optional_part_is_looked_up_for_each_row() {
    let registry = registry();
    let query = "SELECT * { OPTIONAL { ?s e:serial ?x } }";
    assert_eq!(cost(&registry, query).0, SERVICES);
    let query = "SELECT * { ?s e:in e:cellar OPTIONAL { ?s e:serial ?x . ?s e:madeBy ?m } }";
    let (rows, entries) = cost(&registry, query);
    assert_eq!(rows, 4);
    assert!(entries <= 12, "{entries}");
}

#[test]
fn exists_and_ask_stop_at_the_first_match() {
    let registry = registry();
    assert!(cost(&registry, "ASK { ?s e:in e:hall }").1 <= 1);
    let query = "SELECT * { ?s e:in e:cellar FILTER EXISTS { ?t e:madeBy ?m . ?s e:madeBy ?m } }";
    let (rows, entries) = cost(&registry, query);
    assert_eq!(rows, 4);
    assert!(entries <= 20, "{entries}");
}

/// A thousand statements about one service, each its own graph with its author.
fn annotated() -> Registry {
    let registry = registry();
    let iri = |text: &str| NamedNode::new(format!("http://e/{text}")).unwrap();
    for number in 0..1_000 {
        let key = format!("http://e/m{number}");
        let mut entity = Entity::new(key.as_str(), EntityKind::Other, "note");
        let about = iri("s7");
        let rating = Literal::from(i64::from(number % 10));
        let author = iri(&format!("author{}", number % 500));
        entity.triples = vec![
            Triple::new(about, iri("rating"), rating),
            Triple::new(NamedNode::new(key).unwrap(), iri("by"), author),
        ];
        registry.publish(entity).unwrap().wait().unwrap();
    }
    registry
}

#[test]
fn graphs_are_found_from_either_side() {
    let registry = annotated();
    for (patterns, rows, most) in [
        // From the author to the graphs, and from the statement to the graph.
        (["?g e:by e:author7", "GRAPH ?g { ?s e:rating ?x }"], 2, 16),
        (["?g e:by e:author7", "GRAPH ?g { ?s ?p ?o }"], 10, 16),
        (["?g e:by e:author7", "GRAPH ?g { e:s7 e:rating 7 }"], 2, 16),
        (
            [
                "GRAPH e:m7 { e:s7 e:rating ?x }",
                "GRAPH ?g { ?g e:serial ?x }",
            ],
            0,
            16,
        ),
        (["?s e:in e:cellar", "GRAPH ?s { ?s e:serial ?x }"], 4, 12),
        (["?s e:in e:cellar", "GRAPH ?g { ?s e:serial ?x }"], 4, 12),
    ] {
        for group in orders(&patterns) {
            let (found, entries) = cost(&registry, &format!("SELECT * {{ {group} }}"));
            assert_eq!(found, rows, "{group}");
            assert!(entries <= most, "{entries} entries for {group}");
        }
    }
}

/// Of triples about the entity itself the index of graphs has no entry.
#[test]
fn only_triples_about_something_else_need_memory_for_their_graph() {
    let bytes = |about_others: bool| {
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        for number in 0..200 {
            let key = format!("http://e/s{number}");
            let other = format!("http://e/s{}", (number + 1) % 200);
            let subject = if about_others { &other } else { &key };
            let subject = NamedNode::new(subject.as_str()).unwrap();
            let mut entity = Entity::new(key, EntityKind::Service, "Service");
            entity.triples.extend((0..100).map(|value| {
                let predicate = NamedNode::new("http://e/p").unwrap();
                Triple::new(subject.clone(), predicate, Literal::from(value))
            }));
            registry.publish(entity).unwrap().wait().unwrap();
        }
        registry.statistics().memory_bytes
    };
    let more = bytes(true) - bytes(false);
    // Sixteen bytes for each of 20,000 triples, with the spare room of leaves, and their subjects.
    assert!((320_000..700_000).contains(&more), "{more}");
}

/// Hidden entities do not change the plan: the cost is that of the graph without them.
#[test]
fn hidden_entities_do_not_change_the_cost() {
    let query = "SELECT * { ?s e:madeBy e:maker0 . ?s e:in e:cellar }";
    let registry = registry();
    let before = cost(&registry, query);
    for number in 0..1_000 {
        let key = format!("http://e/hidden{number}");
        let subject = NamedNode::new(key.as_str()).unwrap();
        let mut entity = Entity::new(key, EntityKind::Service, "hidden");
        entity.access = chappe_registry::Access::Owner;
        let cellar = NamedNode::new("http://e/cellar").unwrap();
        entity.triples.push(Triple::new(
            subject,
            NamedNode::new("http://e/in").unwrap(),
            cellar,
        ));
        registry.publish(entity).unwrap().wait().unwrap();
    }
    assert_eq!(cost(&registry, query), before);
}
