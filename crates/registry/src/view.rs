//! The triples that one principal may see, as the dataset of a SPARQL query.
//!
//! It contains only indexes of what the principal may see, so hidden triples cannot be counted,
//! ordered or found by accident. Everything visible is one default graph, unless the query names
//! others; each visible entity is a named graph, see [`crate::graphs`].

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use oxrdf::{BlankNode, NamedNode, Term};
use spareval::{InternalQuad, QueryableDataset};

use crate::budget::BudgetSpent;
use crate::dictionary::{Id, LOCAL};
use crate::entity::{MAX_TERM_BYTES, term_bytes};
use crate::graphs::Dataset;
use crate::limits::SparqlError;
use crate::source::{Pattern, Source};

/// Estimated size of a term made by the query in bytes, without its text.
const TERM_BYTES: u64 = 96;

/// Terms that the query makes itself, and its names for blank nodes.
#[derive(Default)]
struct Local {
    terms: Vec<Term>,
    ids: HashMap<Term, Id>,
    /// Blank nodes in the order in which they were first read: their labels reveal nothing else.
    blanks: Vec<Id>,
    labels: HashMap<Id, usize>,
}

impl Local {
    fn label(&mut self, id: Id) -> String {
        let blanks = &mut self.blanks;
        let label = *self.labels.entry(id).or_insert_with(|| {
            blanks.push(id);
            blanks.len() - 1
        });
        format!("b{label}")
    }

    fn labelled(&self, label: &str) -> Option<Id> {
        let label: usize = label.strip_prefix('b')?.parse().ok()?;
        self.blanks.get(label).copied()
    }
}

/// The dataset of one query.
pub(crate) struct View {
    source: Rc<Source>,
    local: RefCell<Local>,
}

impl View {
    pub(crate) fn new(source: Source, dataset: &Dataset) -> Self {
        let mut view = Self {
            source: Rc::new(source),
            local: RefCell::default(),
        };
        // A chosen graph that is not visible is empty, but has its name.
        let chosen: BTreeSet<&String> = dataset.named.iter().flatten().collect();
        let chosen = chosen.into_iter().filter_map(|name| {
            let name = NamedNode::new_unchecked(name.as_str());
            // Without a budget the query ends anyway.
            view.internalize_term(name.into()).ok()
        });
        let empty = chosen.filter(|name| view.source.graph(*name).is_none());
        let empty = empty.collect();
        if let Some(source) = Rc::get_mut(&mut view.source) {
            source.empty = empty;
        }
        view
    }

    /// The number of triples that match, for the planner.
    pub(crate) fn count(&self, pattern: Pattern) -> usize {
        self.source.count(pattern)
    }

    /// See [`Source::foreign`].
    pub(crate) fn foreign(&self, pattern: Pattern) -> usize {
        self.source.foreign(pattern)
    }

    /// The average number of triples of a graph.
    pub(crate) fn average_graph(&self) -> u64 {
        self.source.average_graph()
    }

    /// The number of visible entities.
    pub(crate) fn entities(&self) -> u64 {
        self.source.entities()
    }

    /// See [`crate::budget::Budget::hold_pairs`].
    pub(crate) fn hold_pairs(&self) {
        self.source.budget.hold_pairs();
    }

    /// The number of triples of a graph; 0 if there is none of this name.
    pub(crate) fn graph_len(&self, name: &Term) -> usize {
        let id = self.known(name);
        let graph = id.and_then(|id| self.source.graph(id));
        graph.map_or(0, |graph| graph.len())
    }

    /// The number of `term`, if it occurs in any visible triple.
    pub(crate) fn known(&self, term: &Term) -> Option<Id> {
        if let Term::BlankNode(node) = term {
            return self.local.borrow().labelled(node.as_str());
        }
        let id = self.source.state.dictionary.id(term.into(), 0)?;
        let mut partitions = self.source.partitions.iter();
        partitions
            .any(|partition| partition.mentions(id))
            .then_some(id)
    }
}

impl QueryableDataset<'static> for View {
    type InternalTerm = Id;
    type Error = BudgetSpent;

    fn internal_quads_for_pattern(
        &self,
        subject: Option<&Id>,
        predicate: Option<&Id>,
        object: Option<&Id>,
        graph_name: Option<Option<&Id>>,
    ) -> impl Iterator<Item = Result<InternalQuad<Id>, BudgetSpent>> + use<> {
        let pattern = [subject, predicate, object].map(Option::<&Id>::copied);
        self.source
            .quads(pattern, graph_name.map(|name| name.copied()))
    }

    fn internal_named_graphs(&self) -> impl Iterator<Item = Result<Id, BudgetSpent>> + use<> {
        self.source.names()
    }

    fn contains_internal_graph_name(&self, graph_name: &Id) -> Result<bool, BudgetSpent> {
        self.source.budget.step()?;
        Ok(self.source.has_graph(*graph_name))
    }

    fn internalize_term(&self, term: Term) -> Result<Id, BudgetSpent> {
        self.source.budget.step()?;
        if let Some(id) = self.known(&term) {
            return Ok(id);
        }
        let mut local = self.local.borrow_mut();
        if let Some(id) = local.ids.get(&term) {
            return Ok(*id);
        }
        let bytes = term_bytes(&term);
        if bytes > MAX_TERM_BYTES {
            let value = MAX_TERM_BYTES as u64;
            return Err(self.source.budget.end(SparqlError::Limit {
                limit: "bytes of a term",
                value,
            }));
        }
        self.source
            .budget
            .charge_memory(2 * bytes as u64 + TERM_BYTES)?;
        let id = LOCAL | local.terms.len() as Id;
        local.terms.push(term.clone());
        local.ids.insert(term, id);
        Ok(id)
    }

    fn externalize_term(&self, id: Id) -> Result<Term, BudgetSpent> {
        self.source.budget.step()?;
        let term = if id >= LOCAL {
            self.local
                .borrow()
                .terms
                .get((id - LOCAL) as usize)
                .cloned()
        } else if self.source.state.dictionary.blank_scope(id).is_some() {
            Some(BlankNode::new_unchecked(self.local.borrow_mut().label(id)).into())
        } else {
            self.source.state.dictionary.term(id)
        };
        if self.source.budget.texts
            && let Some(term) = &term
        {
            self.source.budget.charge_memory(term_bytes(term) as u64)?;
        }
        term.ok_or_else(|| {
            self.source
                .budget
                .end(SparqlError::Evaluation("a term has no number".to_owned()))
        })
    }
}
