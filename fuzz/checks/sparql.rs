//! Invariants of SPARQL queries and of RDF documents for any bytes. The first byte says what they are.

use std::sync::LazyLock;

use chappe_registry::oxrdf::{NamedNode, Triple};
use chappe_registry::{
    Entity, EntityKind, Interrupt, MemoryJournal, Principal, Registry, ResultFormat, SparqlLimits,
    SparqlRequest, ontology, vocabulary,
};

use crate::bounds::Bound;

/// Limits far below those of a node, so that few bytes reach them.
fn limits() -> SparqlLimits {
    SparqlLimits {
        rows: 100,
        result_bytes: 64 * 1024,
        steps: 20_000,
        memory_bytes: 256 * 1024,
        ..SparqlLimits::default()
    }
}

/// A query of the limits above with its rows, and a document with its triples.
const BOUND: Bound = Bound::memory(16 << 20, 2_000);

/// No panic within the bounds; an answer has each of its formats or a reason, and the triples of an
/// ontology that is accepted come back from its Turtle.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    LazyLock::force(&REGISTRY);
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    BOUND.hold(data.len(), || match kind {
        b't' => document(ResultFormat::Turtle, rest),
        b'n' => document(ResultFormat::NTriples, rest),
        b'x' => document(ResultFormat::RdfXml, rest),
        b'i' => query(rest, true),
        _ => query(rest, false),
    });
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::open(MemoryJournal::new()).expect("memory");
    let node = |number: usize| NamedNode::new_unchecked(format!("urn:n:{number}"));
    for number in 0..8 {
        let mut entity = Entity::new(format!("urn:n:{number}"), EntityKind::Other, "thing");
        entity.triples = vec![
            Triple::new(
                node(number),
                NamedNode::new_unchecked("urn:p"),
                node(number % 3),
            ),
            Triple::new(node(1), NamedNode::new_unchecked("urn:q"), node(number)),
            Triple::new(
                node(number),
                vocabulary::SUB_CLASS_OF.into_owned(),
                node((number + 1) % 8),
            ),
        ];
        if number == 0 {
            entity.types.push(vocabulary::ONTOLOGY_TYPE.to_owned());
        }
        let published = registry.publish(entity).expect("an entity");
        published.wait().expect("memory");
    }
    registry
});

fn query(bytes: &[u8], is_inferred: bool) {
    let query = String::from_utf8_lossy(bytes).into_owned();
    let request = SparqlRequest {
        query,
        inferred_by: is_inferred.then(|| vec!["node".to_owned()]),
        ..SparqlRequest::default()
    };
    let answer = REGISTRY.answer(
        &request,
        &Principal::Operator,
        &limits(),
        &Interrupt::never(),
    );
    let Ok((answer, _)) = answer else { return };
    let all = ResultFormat::OF_ROWS
        .into_iter()
        .chain(ResultFormat::OF_GRAPHS);
    for format in all {
        let written = answer.write(format);
        assert!(written.is_err() || answer.formats().contains(&format));
    }
    let default = answer.formats().first().expect("a format");
    assert!(answer.write(*default).is_ok(), "{answer:?}");
}

fn document(format: ResultFormat, bytes: &[u8]) {
    let Ok(entity) = ontology(format, None, "urn:base:x", bytes) else {
        return;
    };
    let turtle = chappe_registry::SparqlAnswer::Graph(entity.triples.clone());
    let turtle = turtle
        .write(ResultFormat::Turtle)
        .expect("Turtle holds every graph");
    let again = ontology(
        ResultFormat::Turtle,
        Some(&entity.key),
        "urn:base:x",
        &turtle,
    );
    let again =
        again.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&turtle)));
    assert_eq!(again.triples, entity.triples);
}
