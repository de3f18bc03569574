//! The triples that a query reads: those in the graphs that its principal may see.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use chappe_identity::Principal;

use crate::budget::{Budget, BudgetSpent};
use crate::dictionary::{Id, LOCAL};
use crate::graphs::{Dataset, Every, Graph, Listed, Owned, Owners, Quads, Tested};
use crate::inference::{Hierarchy, Inferred};
use crate::merged::Merged;
use crate::partition::{Partition, Range};
use crate::state::State;

/// A triple pattern with its known terms.
pub(crate) type Pattern = [Option<Id>; 3];

/// Which graphs a pattern is about: a named one, the default one, or every named one.
pub(crate) type Choice = Option<Option<Id>>;

/// The graphs of one query.
pub(crate) struct Source {
    pub(crate) state: Arc<State>,
    pub(crate) partitions: Arc<[Arc<Partition>]>,
    /// The graphs of the default graph, unless it is everything.
    default: Option<Arc<[Graph]>>,
    /// The named graphs, unless these are all entities.
    named: Option<Arc<[Graph]>>,
    /// Names of named graphs that the query chooses and that are empty.
    pub(crate) empty: Vec<Id>,
    /// The ontologies that are followed, if any are.
    pub(crate) hierarchy: Option<Hierarchy>,
    pub(crate) budget: Arc<Budget>,
    /// The owners whose entities bring triples, unless these are all.
    owners: Option<Owners>,
    principal: Principal,
}

impl Source {
    pub(crate) fn new(
        state: &Arc<State>,
        principal: &Principal,
        dataset: &Dataset,
        budget: Arc<Budget>,
    ) -> Self {
        let partitions: Arc<[_]> = state.visible(principal).into();
        let owners = dataset.owners.as_ref();
        let owners = owners.map(|names| Owners::new(state, names));
        let is_owned = |id: &Id| owners.as_ref().is_none_or(|owners| owners.own(state, *id));
        let graphs = |names: &Vec<String>| {
            let ids = names.iter();
            let ids = ids.filter_map(|name| state.dictionary.iri(name));
            let ids = ids.filter(is_owned);
            // In order, and each once.
            let ids: BTreeSet<Id> = ids.collect();
            let graphs = ids.into_iter();
            graphs
                .filter_map(|id| Graph::find(state, id, &partitions, principal))
                .collect()
        };
        let authors = dataset.inferred_by.as_ref();
        Self {
            state: Arc::clone(state),
            default: dataset.default.as_ref().map(graphs),
            named: dataset.named.as_ref().map(graphs),
            empty: Vec::new(),
            hierarchy: authors
                .map(|authors| Hierarchy::new(state, &partitions, authors, principal)),
            owners,
            partitions,
            budget,
            principal: principal.clone(),
        }
    }

    /// The number of triples that match, each counted once for each set of indexes that holds it:
    /// exact, or at least as many as there are if the query chooses its default graph.
    pub(crate) fn count(&self, pattern: Pattern) -> usize {
        let jobs = match &self.hierarchy {
            None => return self.count_stated(pattern),
            Some(hierarchy) => hierarchy.jobs(self, pattern),
        };
        // Without a budget the query ends anyway.
        let jobs = jobs.unwrap_or_default().into_iter();
        jobs.map(|job| self.count_stated(job.pattern)).sum()
    }

    fn count_stated(&self, pattern: Pattern) -> usize {
        let all = self.indexed(pattern);
        self.default
            .as_ref()
            .map_or(all, |graphs| all.min(graphs.iter().map(Graph::len).sum()))
    }

    /// The number of triples in all indexes.
    fn indexed(&self, [subject, predicate, object]: Pattern) -> usize {
        let range = Range::of(subject, predicate, object);
        let counts = self.partitions.iter();
        counts.map(|partition| partition.count(range)).sum()
    }

    /// How often entities bring a matching triple about something else, if the subject is known.
    pub(crate) fn foreign(&self, pattern: Pattern) -> usize {
        let counts = self.partitions.iter();
        counts.map(|it| it.count_foreign(pattern)).sum()
    }

    /// The average number of triples of a graph.
    pub(crate) fn average_graph(&self) -> u64 {
        let all = self.indexed([None; 3]) as u64;
        all / self.entities().max(1)
    }

    /// The number of visible entities.
    pub(crate) fn entities(&self) -> u64 {
        self.partitions
            .iter()
            .map(|partition| partition.names.len() as u64)
            .sum()
    }

    /// The named graph `id` of the query.
    pub(crate) fn graph(&self, id: Id) -> Option<Graph> {
        match &self.named {
            None => {
                let owners = self.owners.as_ref();
                let is_owned = owners.is_none_or(|owners| owners.own(&self.state, id));
                is_owned.then(|| Graph::find(&self.state, id, &self.partitions, &self.principal))?
            }
            Some(named) => named.iter().find(|graph| graph.name == id).cloned(),
        }
    }

    /// Whether the query has a named graph of this name.
    pub(crate) fn has_graph(&self, name: Id) -> bool {
        self.graph(name).is_some() || self.empty.contains(&name)
    }

    /// The names of all named graphs.
    pub(crate) fn names(&self) -> impl Iterator<Item = Result<Id, BudgetSpent>> + use<> {
        let budget = Arc::clone(&self.budget);
        let all = self.named.is_none().then(|| Arc::clone(&self.partitions));
        let all = all.into_iter().flat_map(|partitions| {
            let (only, shared): (Vec<_>, Vec<_>) = partitions.iter().partition(|it| it.is_only);
            let entities = |set: &Arc<Partition>| set.kinds.iter().map(|[_, entity]| entity);
            // Several sets of indexes may hold one entity.
            let shared: BTreeSet<Id> = shared.into_iter().flat_map(entities).collect();
            let only: Vec<_> = only.into_iter().map(entities).collect();
            only.into_iter().flatten().chain(shared)
        });
        let chosen = self.named.as_deref().unwrap_or_default();
        let chosen = chosen.iter().map(|graph| graph.name);
        let chosen: Vec<Id> = chosen.chain(self.empty.iter().copied()).collect();
        let (owners, state) = (self.owners.clone(), Arc::clone(&self.state));
        let is_owned = move |id: &Id| owners.as_ref().is_none_or(|owners| owners.own(&state, *id));
        all.filter(is_owned)
            .chain(chosen)
            .map(move |name| budget.charge_entry().map(|()| name))
    }

    /// The triples of a pattern, with what follows from the ontologies.
    pub(crate) fn quads(self: &Rc<Self>, pattern: Pattern, choice: Choice) -> Quads {
        match &self.hierarchy {
            None => self.stated(pattern, choice),
            Some(hierarchy) => {
                let jobs = hierarchy.jobs(self, pattern);
                Quads::Inferred(Box::new(Inferred::new(Rc::clone(self), jobs, choice)))
            }
        }
    }

    /// The triples of a pattern as they are stated.
    pub(crate) fn stated(&self, pattern: Pattern, choice: Choice) -> Quads {
        // A term made by the query is in no triple, but looking for it costs a step.
        if pattern.iter().flatten().any(|id| *id >= LOCAL) {
            return self.within(Arc::new([]), pattern, None);
        }
        match choice {
            None => self.every(pattern),
            Some(None) => match &self.default {
                None => self.all(pattern),
                Some(graphs) => self.within(Arc::clone(graphs), pattern, None),
            },
            Some(Some(name)) => {
                let graph = self.graph(name);
                self.within(graph.into_iter().collect(), pattern, Some(name))
            }
        }
    }

    /// The triples of the pattern in the default graph of all entities that count.
    fn all(&self, pattern: Pattern) -> Quads {
        let merged = self.merged(pattern);
        match &self.owners {
            None => Quads::Merged(merged),
            Some(owners) => Quads::Owned(Owned {
                merged,
                partitions: Arc::clone(&self.partitions),
                owners: owners.clone(),
                state: Arc::clone(&self.state),
                budget: Arc::clone(&self.budget),
            }),
        }
    }

    /// Each triple of the pattern in all that is visible.
    fn merged(&self, [subject, predicate, object]: Pattern) -> Merged {
        Merged::new(
            Range::of(subject, predicate, object),
            Arc::clone(&self.partitions),
            Arc::clone(&self.budget),
        )
    }

    /// The triples of the pattern in some graphs, by the shorter path.
    pub(crate) fn within(&self, graphs: Arc<[Graph]>, pattern: Pattern, name: Option<Id>) -> Quads {
        let listed = graphs.iter().map(Graph::len).sum::<usize>();
        let (state, budget) = (Arc::clone(&self.state), Arc::clone(&self.budget));
        if graphs.is_empty() || listed <= self.indexed(pattern) {
            return Quads::Listed(Listed {
                graphs,
                pattern,
                name,
                graph: 0,
                at: 0,
                state,
                budget,
            });
        }
        Quads::Tested(Tested {
            merged: self.merged(pattern),
            graphs,
            name,
            state,
            budget,
        })
    }

    /// The triples of the pattern with the name of each graph that holds them.
    fn every(&self, pattern: Pattern) -> Quads {
        if let Some(named) = &self.named {
            let graphs = named.iter().map(|graph| {
                let name = Some(graph.name);
                self.within(Arc::new([graph.clone()]), pattern, name)
            });
            return Quads::Several(graphs.collect::<Vec<_>>().into_iter());
        }
        let [subject, predicate, object] = pattern;
        Quads::Every(Every {
            partitions: Arc::clone(&self.partitions),
            range: Range::of(subject, predicate, object),
            owners: self.owners.clone(),
            state: Arc::clone(&self.state),
            budget: Arc::clone(&self.budget),
            at: 0,
            triples: None,
            bringers: None,
        })
    }
}
