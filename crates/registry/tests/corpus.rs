//! Goal: defects found by fuzzing stay fixed, and the fuzz target's checks hold on its seeds.
//!
//! Method: passes every file of `fuzz/corpus/uddi`, `uddi_wsdl`, `metadata`, `thing`, `sparql` and `registry_record` to
//! the function of its fuzz target.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/metadata.rs"]
mod metadata;
#[path = "../../../fuzz/checks/registry_record.rs"]
mod registry_record;
#[path = "../../../fuzz/checks/sparql.rs"]
mod sparql;
#[path = "../../../fuzz/checks/thing.rs"]
mod thing;
#[path = "../../../fuzz/checks/uddi.rs"]
mod uddi;
#[path = "../../../fuzz/checks/uddi_wsdl.rs"]
mod uddi_wsdl;

#[test]
fn sparql_corpus_passes() {
    corpus::replay("sparql", 10, sparql::check);
}

#[test]
fn uddi_corpus_passes() {
    corpus::replay("uddi", 11, uddi::check);
}

#[test]
fn metadata_corpus_passes() {
    corpus::replay("metadata", 4, metadata::check);
}

#[test]
fn uddi_wsdl_corpus_passes() {
    corpus::replay("uddi_wsdl", 11, uddi_wsdl::check);
}

#[test]
fn registry_record_corpus_passes() {
    corpus::replay("registry_record", 4, registry_record::check);
}

#[test]
fn thing_corpus_passes() {
    corpus::replay("thing", 5, thing::check);
}

/// A query holds no more memory than its limit, with some room for what is not estimated.
#[test]
fn the_estimate_of_memory_is_not_below_the_truth() {
    use chappe_registry::oxrdf::{NamedNode, Triple};
    use chappe_registry::{
        Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, SparqlError,
        SparqlLimits,
    };
    const LIMIT: u64 = 8 << 20;
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let node = |number: usize| NamedNode::new(format!("http://e/n{number}")).unwrap();
    for number in 0..60 {
        let mut entity = Entity::new(node(number).as_str(), EntityKind::Other, "a");
        let triples = [1, 7, 11].map(|step| {
            let predicate = NamedNode::new("http://e/p").unwrap();
            Triple::new(node(number), predicate, node((number + step) % 60))
        });
        entity.triples = triples.into();
        registry.publish(entity).unwrap().wait().unwrap();
    }
    let limits = SparqlLimits {
        memory_bytes: LIMIT,
        rows: usize::MAX,
        result_bytes: usize::MAX,
        ..SparqlLimits::default()
    };
    let many = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l";
    for query in [
        format!("SELECT * {{ {many} }} ORDER BY ?a ?d"),
        format!("SELECT DISTINCT * {{ {many} }} ORDER BY ?a ?d"),
        format!("SELECT DISTINCT ?a ?d ?g {{ {many} }}"),
        format!("SELECT (COUNT(DISTINCT *) AS ?n) {{ {many} }}"),
        format!("SELECT * {{ ?x ?y ?z MINUS {{ {many} . ?x ?y ?z }} }}"),
        format!("SELECT * {{ {{ SELECT ?a ?d {{ {many} }} }} {{ SELECT ?a ?g {{ {many} }} }} }}"),
        format!("DESCRIBE ?a ?d {{ {many} }}"),
    ] {
        let (peak, answer) = bounds::peak_bytes(|| {
            registry.sparql(&query, &Principal::Operator, &limits, &Interrupt::never())
        });
        let limit = "memory bytes";
        let value = LIMIT;
        assert_eq!(
            answer.unwrap_err(),
            SparqlError::Limit { limit, value },
            "{query}"
        );
        println!("{peak} bytes: {query}");
        assert!(peak as u64 <= LIMIT + LIMIT / 4, "{peak} bytes: {query}");
    }
}
