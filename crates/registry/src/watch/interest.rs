//! Which changes can alter the answer of a query.
//!
//! A change is described by the predicates of the triples before and after it, as a set of hashes that
//! may say yes too often and never no too often. A query names its predicates; one with a variable in the
//! place of a predicate, or a path of any length, is concerned by every change.

use std::hash::{DefaultHasher, Hash, Hasher};

use spargebra::Query;
use spargebra::algebra::{Expression, GraphPattern, PropertyPathExpression};
use spargebra::term::{NamedNodePattern, TriplePattern};

use crate::expression;

/// Predicates that extend what other triples mean: a change of one concerns every query.
const SCHEMA: [&str; 2] = [
    "http://www.w3.org/2000/01/rdf-schema#subClassOf",
    "http://www.w3.org/2000/01/rdf-schema#subPropertyOf",
];

/// A set of predicates, by two bits of the hash of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Predicates(u128);

impl Predicates {
    const ALL: Self = Self(u128::MAX);

    fn bits(iri: &str) -> u128 {
        let mut hasher = DefaultHasher::new();
        iri.hash(&mut hasher);
        let hash = hasher.finish();
        (1 << (hash & 127)) | (1 << ((hash >> 7) & 127))
    }

    pub(crate) fn insert(&mut self, iri: &str) {
        self.0 |= Self::bits(iri);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The predicates that a query reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    reads_all: bool,
    predicates: Vec<u128>,
}

impl Interest {
    /// In every change.
    pub(crate) fn all() -> Self {
        Self {
            reads_all: true,
            predicates: Vec::new(),
        }
    }

    pub(crate) fn of(query: &Query) -> Self {
        let mut interest = Self::default();
        match query {
            Query::Select { pattern, .. }
            | Query::Ask { pattern, .. }
            | Query::Construct { pattern, .. } => interest.pattern(pattern),
            Query::Describe { .. } => interest.reads_all = true,
        }
        let schema = SCHEMA.map(Predicates::bits);
        interest.predicates.extend(schema);
        interest
    }

    /// Whether a change of triples with these predicates may concern the query.
    pub(crate) fn includes(&self, changed: Predicates) -> bool {
        let mut predicates = self.predicates.iter();
        self.reads_all
            || changed == Predicates::ALL
            || predicates.any(|bits| changed.0 & bits == *bits)
    }

    fn pattern(&mut self, pattern: &GraphPattern) {
        use GraphPattern as G;
        match pattern {
            G::Bgp { patterns } => patterns.iter().for_each(|triple| self.triple(triple)),
            G::Path { path, .. } => self.path(path),
            G::Values { .. } => {}
            G::Join { left, right } | G::Union { left, right } | G::Minus { left, right } => {
                self.pattern(left);
                self.pattern(right);
            }
            G::LeftJoin {
                left,
                right,
                expression,
            } => {
                self.pattern(left);
                self.pattern(right);
                expression.iter().for_each(|part| self.expression(part));
            }
            G::Filter { expr, inner } => {
                self.expression(expr);
                self.pattern(inner);
            }
            G::Extend {
                inner, expression, ..
            } => {
                self.expression(expression);
                self.pattern(inner);
            }
            G::OrderBy { inner, expression } => {
                for order in expression {
                    self.expression(expression::of_order(order));
                }
                self.pattern(inner);
            }
            G::Project { inner, .. }
            | G::Distinct { inner }
            | G::Reduced { inner }
            | G::Slice { inner, .. } => self.pattern(inner),
            // The graphs themselves may be what is asked for, and aggregates may count anything.
            _ => self.other(pattern),
        }
    }

    fn other(&mut self, pattern: &GraphPattern) {
        match pattern {
            GraphPattern::Group {
                inner, aggregates, ..
            } => {
                for (_, aggregate) in aggregates {
                    use spargebra::algebra::AggregateExpression as A;
                    if let A::FunctionCall { expr, .. } = aggregate {
                        self.expression(expr);
                    }
                }
                self.pattern(inner);
            }
            _ => self.reads_all = true,
        }
    }

    fn expression(&mut self, expression: &Expression) {
        expression::visit(expression, &mut |part| {
            if let Expression::Exists(inner) = part {
                self.pattern(inner);
            }
        });
    }

    fn triple(&mut self, triple: &TriplePattern) {
        match &triple.predicate {
            NamedNodePattern::NamedNode(name) => {
                self.predicates.push(Predicates::bits(name.as_str()));
            }
            NamedNodePattern::Variable(_) => self.reads_all = true,
        }
    }

    fn path(&mut self, path: &PropertyPathExpression) {
        use PropertyPathExpression as P;
        match path {
            P::NamedNode(name) => self.predicates.push(Predicates::bits(name.as_str())),
            P::Reverse(inner) | P::OneOrMore(inner) => self.path(inner),
            P::Sequence(left, right) | P::Alternative(left, right) => {
                self.path(left);
                self.path(right);
            }
            // They also relate each term to itself, or name what is excluded.
            P::ZeroOrMore(_) | P::ZeroOrOne(_) | P::NegatedPropertySet(_) => self.reads_all = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns(query: &str, changed: &[&str]) -> bool {
        let query = spargebra::SparqlParser::new().parse_query(query).unwrap();
        let mut predicates = Predicates::default();
        changed.iter().for_each(|iri| predicates.insert(iri));
        Interest::of(&query).includes(predicates)
    }

    #[test]
    fn a_query_is_concerned_by_the_predicates_that_it_reads() {
        let a = "SELECT ?s WHERE { ?s <urn:a> ?o OPTIONAL { ?s <urn:b>/<urn:c> ?x } }";
        for (changed, is_concerned) in [
            (&["urn:a"][..], true),
            (&["urn:c", "urn:z"], true),
            (&["urn:z"], false),
            (&[], false),
            (&SCHEMA[..1], true),
        ] {
            assert_eq!(concerns(a, changed), is_concerned, "{changed:?}");
        }
        let exists = "ASK { ?s <urn:a> ?o FILTER NOT EXISTS { ?s <urn:b> ?o } }";
        assert!(concerns(exists, &["urn:b"]));
        assert!(!concerns(exists, &["urn:z"]));
    }

    #[test]
    fn a_query_without_known_predicates_is_concerned_by_every_change() {
        for query in [
            "SELECT * WHERE { ?s ?p ?o }",
            "SELECT * WHERE { ?s <urn:a>* ?o }",
            "SELECT * WHERE { ?s !<urn:a> ?o }",
            "SELECT * WHERE { GRAPH ?g { ?s <urn:a> ?o } }",
            "DESCRIBE <urn:x>",
        ] {
            assert!(concerns(query, &["urn:z"]), "{query}");
        }
    }
}
