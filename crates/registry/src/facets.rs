//! Facets of a search: how many of the entities found have each kind, type, owner, observed property and
//! UDDI category.
//!
//! The counts are of entities that the reader may see, under all criteria of the search: the count of a value is the
//! number of entities found when the value becomes a further criterion. They are exact unless more entities match
//! than are counted; then they are of the first in the order of the search, and marked so.

use std::collections::HashMap;

use chappe_identity::Principal;
use oxrdf::Term;

use crate::dictionary::Id;
use crate::entity::{Entity, EntityKind};
use crate::search::{self, Category, Search};
use crate::state::{Indexed, State};
use crate::uddi_keys::NO_TMODEL;

/// Maximum number of entities that are counted; reason: their names are read and sorted.
pub const MAX_FACET_ENTITIES: usize = 100_000;
/// Maximum number of values of a facet in an answer.
pub const MAX_FACET_VALUES: usize = 1_000;

/// The values of one field, those of most entities first, then by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facet<T> {
    /// Values with their numbers of entities, up to the requested number of values.
    pub values: Vec<(T, usize)>,
    /// How many distinct values there are.
    pub distinct: usize,
}

/// The facets of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facets {
    /// How many entities were counted.
    pub entities: usize,
    /// Whether these are all that match.
    pub is_complete: bool,
    /// Their kinds.
    pub kinds: Facet<EntityKind>,
    /// Their types, `{namespace}local`.
    pub types: Facet<String>,
    /// Their owners; of pieces of metadata the authors.
    pub owners: Facet<String>,
    /// IRIs of observed properties.
    pub observed_properties: Facet<String>,
    /// The keyed references of UDDI category bags.
    pub categories: Facet<Category>,
}

/// How much is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FacetLimits {
    /// Entities, at most [`MAX_FACET_ENTITIES`].
    pub entities: usize,
    /// Values of each facet, at most [`MAX_FACET_VALUES`].
    pub values: usize,
}

/// Counts the facets of what matches. `keep` leaves out further entities, which are decoded for it.
pub(crate) fn count(
    state: &State,
    search: &Search,
    principal: &Principal,
    limits: FacetLimits,
    keep: Option<&dyn Fn(&Entity) -> bool>,
) -> Facets {
    let limit = limits.entities.min(MAX_FACET_ENTITIES);
    let (all, is_complete) = search::ids(state, search, principal, limit);
    let kept = all
        .into_iter()
        .filter(|id| keep.is_none_or(|keep| state.entity(*id).is_some_and(|entity| keep(&entity))));
    let mut counter = Counter::default();
    let indexed = Indexed::of(&state.dictionary);
    for id in kept {
        counter.add(state, id, &indexed);
    }
    counter.facets(state, limits.values.min(MAX_FACET_VALUES), is_complete)
}

#[derive(Default)]
struct Counter {
    entities: usize,
    kinds: HashMap<EntityKind, usize>,
    types: HashMap<Id, usize>,
    owners: HashMap<Id, usize>,
    observed: HashMap<Id, usize>,
    categories: HashMap<[Id; 2], usize>,
}

impl Counter {
    fn add(&mut self, state: &State, id: Id, indexed: &Indexed) {
        let Some(fields) = state.fields(id) else {
            return;
        };
        self.entities += 1;
        *self.kinds.entry(fields.kind()).or_default() += 1;
        *self.owners.entry(fields.owner_id()).or_default() += 1;
        for one in distinct(fields.types()) {
            *self.types.entry(one).or_default() += 1;
        }
        for one in distinct(fields.objects_of(indexed.observing)) {
            *self.observed.entry(one).or_default() += 1;
        }
        for one in distinct(fields.categories(indexed)) {
            *self.categories.entry(one).or_default() += 1;
        }
    }

    fn facets(self, state: &State, most: usize, is_complete: bool) -> Facets {
        let dictionary = &state.dictionary;
        let text = |id: Id| Some(dictionary.value(id).to_owned());
        let iri = |id: Id| match dictionary.term(id) {
            Some(Term::NamedNode(node)) => Some(node.into_string()),
            _ => None,
        };
        let category = |[tmodel, value]: [Id; 2]| {
            let tmodel = match tmodel {
                NO_TMODEL => None,
                tmodel => Some(iri(tmodel)?),
            };
            let value = text(value)?;
            Some(Category { tmodel, value })
        };
        Facets {
            entities: self.entities,
            is_complete,
            kinds: facet(self.kinds, most, Some),
            types: facet(self.types, most, text),
            owners: facet(self.owners, most, text),
            observed_properties: facet(self.observed, most, iri),
            categories: facet(self.categories, most, category),
        }
    }
}

fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}

fn facet<K, T: Ord>(
    counts: HashMap<K, usize>,
    most: usize,
    value: impl Fn(K) -> Option<T>,
) -> Facet<T> {
    let counts = counts.into_iter();
    let mut values: Vec<(T, usize)> = counts
        .filter_map(|(key, count)| Some((value(key)?, count)))
        .collect();
    values.sort_by(|(one, count), (other, of_other)| of_other.cmp(count).then(one.cmp(other)));
    let distinct = values.len();
    values.truncate(most);
    Facet { values, distinct }
}
