//! Goal: a query may name any IRI that metadata may contain, whatever its characters.
//! Method: entities with such keys; each is found by a query that writes its key.

use chappe_registry::{
    Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, SparqlAnswer, SparqlLimits,
};

const IRIS: [&str; 10] = [
    "urn:x#y",
    "urn:oid:1.2#3",
    "urn:a/b/c",
    "urn:a?b=c&d=e",
    "mailto:someone+tag@example.com",
    "urn:it's!",
    "urn:(a)*,;$",
    "urn:x:é#ö",
    "urn:a-b-c-d-e-f-g-h-i-j-k-l",
    "http://example.com/a?b=(c)&d#e",
];

#[test]
fn every_iri_can_be_asked_for() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for iri in IRIS {
        let entity = Entity::new(iri, EntityKind::Other, iri);
        registry.publish(entity).unwrap().wait().unwrap();
    }
    let label = "http://www.w3.org/2000/01/rdf-schema#label";
    for iri in IRIS {
        for query in [
            format!("ASK {{ <{iri}> <{label}> \"{iri}\" }}"),
            format!("ASK {{ ?s <{label}> ?l FILTER(?s=<{iri}>&&?l > \"\") }}"),
            format!("ASK {{ VALUES (?s ?t) {{ (<{iri}> <{iri}>) }} ?t <{label}> ?l . }}"),
        ] {
            let limits = SparqlLimits::default();
            let anyone = Principal::Anonymous;
            let answer = registry.sparql(&query, &anyone, &limits, &Interrupt::never());
            assert_eq!(answer, Ok(SparqlAnswer::Boolean(true)), "{query}");
        }
    }
}
