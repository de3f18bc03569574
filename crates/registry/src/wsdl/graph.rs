//! Links between parts of documents, as far as a principal may see them.

use std::collections::BTreeSet;

use oxrdf::{NamedNode, NamedNodeRef, Term};

use crate::dictionary::Id;
use crate::partition::Range;
use crate::uddi::graph::Graph;

/// What reading one statement counts for in an answer's limit; reason: it takes some steps of an index.
const STATEMENT_BYTES: usize = 32;

impl Graph<'_> {
    /// The objects of statements about `subject`.
    pub(crate) fn objects(&self, subject: Id, predicate: NamedNodeRef<'_>) -> BTreeSet<Id> {
        let Some(predicate) = self.state.dictionary.iri(predicate.as_str()) else {
            return BTreeSet::new();
        };
        let range = Range::of(Some(subject), Some(predicate), None);
        let triples = self
            .partitions
            .iter()
            .flat_map(|partition| partition.triples(range));
        let triples = triples.take_while(|_| self.charge(STATEMENT_BYTES));
        triples.map(|[_, _, object]| object).collect()
    }

    /// The subjects of statements about each of `objects`.
    pub(crate) fn subjects_of(
        &self,
        predicate: NamedNodeRef<'_>,
        objects: &BTreeSet<Id>,
    ) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        for object in objects {
            let Some(predicate) = self.state.dictionary.iri(predicate.as_str()) else {
                break;
            };
            let range = Range::of(None, Some(predicate), Some(*object));
            let triples = self
                .partitions
                .iter()
                .flat_map(|partition| partition.triples(range));
            let triples = triples.take_while(|_| self.charge(STATEMENT_BYTES));
            found.extend(triples.map(|[subject, _, _]| subject));
        }
        found
    }

    /// The IRI or literal with this number, as text.
    pub(crate) fn value(&self, id: Id) -> String {
        self.state.dictionary.value(id).to_owned()
    }

    /// The first object of a statement about `subject`, as text.
    pub(crate) fn value_of(&self, subject: Id, predicate: NamedNodeRef<'_>) -> Option<String> {
        self.object(subject, predicate).map(|id| self.value(id))
    }

    /// The IRIs that are objects of statements about the IRI `subject`.
    pub(crate) fn iris_of(&self, subject: &str, predicate: NamedNodeRef<'_>) -> Vec<NamedNode> {
        let Some(subject) = self.state.dictionary.iri(subject) else {
            return Vec::new();
        };
        let objects = self.objects(subject, predicate).into_iter();
        let iris = objects.filter_map(|id| match self.state.dictionary.term(id)? {
            Term::NamedNode(node) => Some(node),
            Term::BlankNode(_) | Term::Literal(_) => None,
        });
        iris.collect()
    }

    /// The first of these IRIs.
    pub(crate) fn iri_of(&self, subject: &str, predicate: NamedNodeRef<'_>) -> Option<NamedNode> {
        self.iris_of(subject, predicate).into_iter().next()
    }

    /// The keys of the entities that make statements about the IRI `part`.
    pub(crate) fn entities_about(&self, part: &str) -> Vec<String> {
        let Some(part) = self.state.dictionary.iri(part) else {
            return Vec::new();
        };
        let partitions = self.partitions.iter();
        let keys = partitions.flat_map(|partition| {
            let about = partition.about.iter_from(|key| *key < [part, 0]);
            about
                .take_while(|[of, _]| *of == part)
                .map(|[_, entity]| entity)
        });
        keys.map(|id| self.value(id)).collect()
    }
}
