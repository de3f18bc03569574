//! Goal: a property path has as many rows as SPARQL 1.1 gives it (section 18.2.2.4): alternatives are a union and
//! sequences a join, repeated paths have each pair of nodes once.
//! Method: a small graph in which rows occur twice; the counts are the specification's.

use chappe_registry::oxrdf::Term;
use chappe_registry::{
    Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, SparqlAnswer, SparqlLimits,
    triples_from_turtle,
};

fn registry() -> Registry {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for (key, turtle) in [
        (
            "urn:e",
            "<urn:e> <urn:p> <urn:a>, <urn:b> ; <urn:q> <urn:a> .",
        ),
        (
            "urn:f",
            "<urn:a> <urn:q> <urn:c> . <urn:b> <urn:q> <urn:c> .",
        ),
    ] {
        let mut entity = Entity::new(key, EntityKind::Other, key);
        entity.triples = triples_from_turtle(key, turtle).unwrap();
        registry.publish(entity).unwrap().wait().unwrap();
    }
    registry
}

fn rows(registry: &Registry, query: &str) -> Vec<String> {
    let (anyone, limits) = (Principal::Anonymous, SparqlLimits::default());
    let answer = registry.sparql(query, &anyone, &limits, &Interrupt::never());
    let SparqlAnswer::Solutions { rows, .. } = answer.unwrap() else {
        panic!("no table");
    };
    let cell = |term: &Option<Term>| term.as_ref().map(Term::to_string).unwrap_or_default();
    let mut rows: Vec<String> = rows
        .iter()
        .map(|row| row.iter().map(cell).collect::<Vec<_>>().join(" "))
        .collect();
    rows.sort();
    rows
}

#[test]
fn alternatives_are_a_union() {
    let registry = registry();
    for (path, objects) in [
        ("<urn:p>|<urn:q>", "a a b"),
        ("<urn:p>|<urn:p>", "a a b b"),
        ("(<urn:p>|<urn:q>)/<urn:q>", "c c c"),
        ("(<urn:p>/<urn:q>)|<urn:p>", "a b c c"),
        ("<urn:p>/^<urn:p>", "e e"),
        ("^(^<urn:p>|^<urn:q>)", "a a b"),
        ("(<urn:p>|<urn:q>)?", "a b e"),
        ("(<urn:p>|<urn:q>)+", "a b c"),
        ("<urn:p>/<urn:q>*", "a b c c"),
    ] {
        let wanted: Vec<_> = objects
            .split(' ')
            .map(|one| format!("<urn:{one}>"))
            .collect();
        let select = format!("SELECT ?o {{ <urn:e> {path} ?o }}");
        assert_eq!(rows(&registry, &select), wanted, "{path}");
        let all = format!("SELECT * {{ <urn:e> {path} ?o }}");
        assert_eq!(rows(&registry, &all), wanted, "{path}");
        let count = format!("SELECT (COUNT(*) AS ?n) {{ <urn:e> {path} ?o }}");
        let number = format!(
            "\"{}\"^^<http://www.w3.org/2001/XMLSchema#integer>",
            wanted.len()
        );
        assert_eq!(rows(&registry, &count), [number], "{path}");
    }
}

/// Each step of a path is in the one graph.
#[test]
fn a_path_stays_in_its_graph() {
    let registry = registry();
    let of = |path: &str| {
        let query = format!("SELECT ?g ?s ?o {{ GRAPH ?g {{ ?s {path} ?o }} }}");
        rows(&registry, &query)
    };
    assert_eq!(of("<urn:p>/<urn:q>"), Vec::<String>::new());
    assert_eq!(
        of("<urn:p>|<urn:q>"),
        [
            "<urn:e> <urn:e> <urn:a>",
            "<urn:e> <urn:e> <urn:a>",
            "<urn:e> <urn:e> <urn:b>",
            "<urn:f> <urn:a> <urn:c>",
            "<urn:f> <urn:b> <urn:c>",
        ]
    );
    assert_eq!(of("(<urn:q>|<urn:r>)/^<urn:q>").len(), 5);
}
