//! Named graphs: each entity is the graph of the triples that it brings and of what its fields
//! state. The graph's name is the entity's key.
//!
//! The indexes have an entry for the graph only where an entity brings a triple about something
//! else; see [`Partition::bringers`]. A known graph is read either from the entity's own list or
//! from an index whose triples are tested, whichever is shorter.

use std::sync::Arc;

use chappe_identity::Principal;
use spareval::InternalQuad;

use crate::budget::{Budget, BudgetSpent};
use crate::dictionary::{Dictionary, Id};
use crate::inference::Inferred;
use crate::merged::Merged;
use crate::partition::{Partition, Range, Triples};
use crate::rights::Right;
use crate::state::{State, StoredEntity};

/// Graphs that a query names with FROM or FROM NAMED, or the request's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dataset {
    /// The default graph is the union of these; without it, of all visible entities.
    pub(crate) default: Option<Vec<String>>,
    /// The named graphs are these; without it, all visible entities.
    pub(crate) named: Option<Vec<String>>,
    /// Entities of other owners bring no triple; without it, those of all owners count.
    pub(crate) owners: Option<Vec<String>>,
    /// Subclasses and subproperties are followed as the ontologies of these owners state them.
    pub(crate) inferred_by: Option<Vec<String>>,
}

/// Known graphs tested at the price of one step.
const TESTED_FOR_STEP: usize = 8;

/// A visible graph.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) name: Id,
    stored: Arc<StoredEntity>,
    partition: Arc<Partition>,
    /// What the entity states of its rights is visible, too.
    shows_rights: bool,
}

impl Graph {
    /// The graph of the entity `name`, if it is visible.
    pub(crate) fn find(
        state: &State,
        name: Id,
        visible: &[Arc<Partition>],
        principal: &Principal,
    ) -> Option<Self> {
        let (stored, partition) = state.held(name, visible)?;
        let partition = Arc::clone(partition);
        let has_rights = !stored.rights().is_empty();
        let administers = || {
            let rule = state.rule_of(state.dictionary.value(name));
            rule.is_some_and(|(rule, _)| rule.permits(principal, Right::Administer))
        };
        Some(Self {
            name,
            shows_rights: has_rights && administers(),
            stored,
            partition,
        })
    }

    /// The number of its triples; a few may count twice.
    pub(crate) fn len(&self) -> usize {
        match self.shows_rights {
            true => self.stored.len(),
            false => self.stored.len() - self.stored.rights().len(),
        }
    }

    /// Whether it holds a triple. `own` is the entity that its subject is or belongs to.
    fn holds(&self, triple: [Id; 3], own: Id) -> bool {
        self.partition.brings(triple, self.name, own)
            || self.shows_rights && self.stored.rights().contains(&triple)
    }
}

/// The entity that a subject is or belongs to.
fn own_graph(dictionary: &Dictionary, [subject, _, _]: [Id; 3]) -> Id {
    dictionary.blank_scope(subject).unwrap_or(subject)
}

fn quad([subject, predicate, object]: [Id; 3], graph_name: Option<Id>) -> InternalQuad<Id> {
    InternalQuad {
        subject,
        predicate,
        object,
        graph_name,
    }
}

type Item = Result<InternalQuad<Id>, BudgetSpent>;

/// The triples of a pattern in some graphs.
pub(crate) enum Quads {
    /// In the default graph: each triple once.
    Merged(Merged),
    /// In known graphs, from their own lists.
    Listed(Listed),
    /// In known graphs, from the indexes.
    Tested(Tested),
    /// In every visible graph, with its name.
    Every(Every),
    /// In the default graph: each triple that an entity of some owners brings, once.
    Owned(Owned),
    /// Those and what follows from them.
    Inferred(Box<Inferred>),
    /// Several of these in turn.
    Several(std::vec::IntoIter<Self>),
}

impl Iterator for Quads {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        match self {
            Self::Merged(merged) => merged.next().map(|next| Ok(quad(next?, None))),
            Self::Listed(listed) => listed.next(),
            Self::Tested(tested) => tested.next(),
            Self::Owned(owned) => owned.next(),
            Self::Every(every) => every.next(),
            Self::Inferred(inferred) => inferred.next(),
            Self::Several(parts) => loop {
                // The first part that has a triple left.
                let part = parts.as_mut_slice().first_mut()?;
                match part.next() {
                    None => drop(parts.next()),
                    item => return item,
                }
            },
        }
    }
}

/// The triples of a pattern in the lists of some entities, each once.
pub(crate) struct Listed {
    pub(crate) graphs: Arc<[Graph]>,
    pub(crate) pattern: [Option<Id>; 3],
    /// The name that the quads have.
    pub(crate) name: Option<Id>,
    pub(crate) graph: usize,
    pub(crate) at: usize,
    pub(crate) state: Arc<State>,
    pub(crate) budget: Arc<Budget>,
}

impl Listed {
    fn next(&mut self) -> Option<Item> {
        loop {
            let graph = self.graphs.get(self.graph)?;
            if self.at == 0 && self.budget.step().is_err() {
                self.graphs = Arc::new([]);
                return Some(Err(BudgetSpent));
            }
            if self.at >= graph.len() {
                (self.graph, self.at) = (self.graph + 1, 0);
                continue;
            }
            if self.budget.charge_entry().is_err() {
                self.graphs = Arc::new([]);
                return Some(Err(BudgetSpent));
            }
            let triple = graph.stored.triple(self.at);
            self.at += 1;
            let fits = |triple: &[Id; 3]| {
                let mut terms = triple.iter().zip(&self.pattern);
                terms.all(|(term, known)| known.is_none_or(|known| known == *term))
            };
            let Some(triple) = triple.filter(fits) else {
                continue;
            };
            let earlier = self.graphs.get(..self.graph).unwrap_or_default();
            match holds_any(earlier, triple, &self.state.dictionary, &self.budget) {
                Err(spent) => return Some(Err(spent)),
                Ok(true) => {}
                Ok(false) => return Some(Ok(quad(triple, self.name))),
            }
        }
    }
}

/// Whether one of the graphs holds the triple.
fn holds_any(
    graphs: &[Graph],
    triple: [Id; 3],
    dictionary: &Dictionary,
    budget: &Budget,
) -> Result<bool, BudgetSpent> {
    if graphs.is_empty() {
        return Ok(false);
    }
    budget.charge_steps((1 + graphs.len() / TESTED_FOR_STEP) as u64, false)?;
    let own = own_graph(dictionary, triple);
    let mut graphs = graphs.iter();
    Ok(graphs.any(|graph| graph.holds(triple, own)))
}

/// The triples of a pattern in the indexes that some graphs hold, each once.
pub(crate) struct Tested {
    pub(crate) merged: Merged,
    pub(crate) graphs: Arc<[Graph]>,
    /// The name that the quads have.
    pub(crate) name: Option<Id>,
    pub(crate) state: Arc<State>,
    pub(crate) budget: Arc<Budget>,
}

impl Tested {
    fn next(&mut self) -> Option<Item> {
        loop {
            let triple = match self.merged.next()? {
                Ok(triple) => triple,
                Err(spent) => return Some(Err(spent)),
            };
            match holds_any(&self.graphs, triple, &self.state.dictionary, &self.budget) {
                Ok(true) => return Some(Ok(quad(triple, self.name))),
                Ok(false) => {}
                Err(spent) => return Some(Err(spent)),
            }
        }
    }
}

/// The triples of a pattern in all that is visible, as far as an entity of some owners brings them.
pub(crate) struct Owned {
    pub(crate) merged: Merged,
    pub(crate) partitions: Arc<[Arc<Partition>]>,
    pub(crate) owners: Owners,
    pub(crate) state: Arc<State>,
    pub(crate) budget: Arc<Budget>,
}

impl Owned {
    fn next(&mut self) -> Option<Item> {
        loop {
            let triple = match self.merged.next()? {
                Ok(triple) => triple,
                Err(spent) => return Some(Err(spent)),
            };
            let own = own_graph(&self.state.dictionary, triple);
            for partition in self.partitions.iter() {
                for name in partition.bringers(triple, own) {
                    if self.budget.step().is_err() {
                        return Some(Err(BudgetSpent));
                    }
                    if self.owners.own(&self.state, name) {
                        return Some(Ok(quad(triple, None)));
                    }
                }
            }
        }
    }
}

/// The owners whose entities count.
#[derive(Clone)]
pub(crate) struct Owners(Arc<[Id]>);

impl Owners {
    pub(crate) fn new(state: &State, names: &[String]) -> Self {
        let ids = names.iter().filter_map(|name| state.dictionary.text(name));
        Self(ids.collect())
    }

    /// Whether the entity `name` is one of theirs.
    pub(crate) fn own(&self, state: &State, name: Id) -> bool {
        let owner = state.owner_of(name);
        owner.is_some_and(|owner| self.0.contains(&owner))
    }
}

/// The triples of a pattern with each entity that brings them.
pub(crate) struct Every {
    pub(crate) partitions: Arc<[Arc<Partition>]>,
    pub(crate) range: Range,
    /// Only entities of these, if some are named.
    pub(crate) owners: Option<Owners>,
    pub(crate) state: Arc<State>,
    pub(crate) budget: Arc<Budget>,
    /// The set of indexes that is read.
    pub(crate) at: usize,
    pub(crate) triples: Option<Triples>,
    /// The last triple with the entities that bring it.
    pub(crate) bringers: Option<([Id; 3], Box<dyn Iterator<Item = Id>>)>,
}

impl Every {
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some((triple, names)) = &mut self.bringers
                && let Some(name) = names.next()
            {
                if self.partitions.get(self.at).is_some_and(|it| !it.is_only) {
                    // Another set of indexes may have had the same entity.
                    let own = own_graph(&self.state.dictionary, *triple);
                    let mut earlier = self.partitions.iter().take(self.at);
                    if earlier.any(|it| !it.is_only && it.brings(*triple, name, own)) {
                        if self.budget.step().is_err() {
                            self.end();
                            return Some(Err(BudgetSpent));
                        }
                        continue;
                    }
                }
                let item = quad(*triple, Some(name));
                let charged = self.budget.charge_entry();
                let owners = self.owners.as_ref();
                if charged.is_ok() && owners.is_some_and(|owners| !owners.own(&self.state, name)) {
                    continue;
                }
                return Some(charged.map(|()| item).inspect_err(|_| self.end()));
            }
            let partition = self.partitions.get(self.at)?;
            let triples = match &mut self.triples {
                Some(triples) => triples,
                // A lookup costs a step even if it finds nothing.
                None if self.budget.step().is_err() => {
                    self.end();
                    return Some(Err(BudgetSpent));
                }
                none => none.insert(partition.triples(self.range)),
            };
            match triples.next() {
                Some(triple) => {
                    let own = own_graph(&self.state.dictionary, triple);
                    let names = Box::new(partition.bringers(triple, own));
                    self.bringers = Some((triple, names));
                }
                None => (self.at, self.triples) = (self.at + 1, None),
            }
        }
    }

    fn end(&mut self) {
        (self.bringers, self.at) = (None, usize::MAX);
    }
}
