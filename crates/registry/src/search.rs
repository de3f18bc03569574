//! Finds entities by their fields, all of which must match.
//!
//! The index of the rarest field supplies the candidates, and the indexes of the others filter
//! them; a field that far more entities have is checked on each candidate instead. Then the names
//! are fetched, or walked in order up to the limit, whichever touches less. If no field is rare,
//! names are walked immediately.

use std::collections::HashSet;

use chappe_identity::Principal;

use crate::dictionary::Id;
use crate::entity::{Entity, EntityKind};
use crate::ordered::OrderedSet;
use crate::partition::{Partition, Text, fold};
use crate::scope;
use crate::state::State;

/// Number of entities returned when a search names no limit.
pub const DEFAULT_SEARCH_LIMIT: usize = 100;
/// Maximum number of entities that one search returns.
pub const MAX_SEARCH_LIMIT: usize = 10_000;

/// The criteria of a search; an absent field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Prefix of the name, ignoring case (UDDI's default).
    pub name_prefix: Option<String>,
    /// The kind.
    pub kind: Option<EntityKind>,
    /// One of its types, `{namespace}local`, exactly.
    pub entity_type: Option<String>,
    /// One of its types has this local part: what follows `}`, or all of a type without a namespace.
    pub local_type: Option<String>,
    /// One of its scopes lies under this URI by the WS-Discovery rule `rfc3986`.
    pub scope: Option<String>,
    /// IRI of an observed property in its triples.
    pub observed_property: Option<String>,
    /// IRI of an entity or thing that its triples describe.
    pub about: Option<String>,
    /// The owner, exactly.
    pub owner: Option<String>,
    /// Only entities after this name and key, in the order of the result.
    pub after: Option<(String, String)>,
    /// Maximum number of entities to return; [`DEFAULT_SEARCH_LIMIT`] if absent.
    pub limit: Option<usize>,
}

/// The result of a search, ordered by name (case folded), then key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The entities.
    pub entities: Vec<Entity>,
    /// More entities matched than the limit allowed.
    pub truncated: bool,
}

/// Names are walked in order unless another field has fewer candidates by this factor: the
/// candidates of a field have to be sorted by name, and all are read before the limit applies.
const RARE: usize = 8;
/// An index is read entirely to filter candidates if it has at most this many entries per
/// candidate: checking one candidate costs as much as reading these.
const READ_FOR_EACH: usize = 16;
/// Names walked in the time in which one is fetched.
const WALKED_FOR_EACH: usize = 32;

/// The search with its texts as numbers.
struct ResolvedSearch {
    prefix: String,
    kind: Option<EntityKind>,
    entity_type: Option<Id>,
    /// A local part, with the types that have it in the partition searched.
    local_type: Option<(String, Vec<Id>)>,
    scope: Option<String>,
    observed: Option<Id>,
    about: Option<Id>,
    owner: Option<Id>,
    /// A folded name and a key.
    after: Option<(String, String)>,
}

/// Resolves the texts; `None` if no entity can match.
fn resolve(state: &State, search: &Search) -> Option<ResolvedSearch> {
    // An absent field is Some(None); a text that occurs nowhere ends the search.
    fn known<T>(asked: Option<&String>, find: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
        asked.map_or(Some(None), |text| find(text).map(Some))
    }
    let dictionary = &state.dictionary;
    Some(ResolvedSearch {
        prefix: fold(search.name_prefix.as_deref().unwrap_or_default()),
        kind: search.kind,
        entity_type: known(search.entity_type.as_ref(), |text| dictionary.text(text))?,
        local_type: search.local_type.clone().map(|local| (local, Vec::new())),
        scope: known(search.scope.as_ref(), scope::normalize)?,
        observed: known(search.observed_property.as_ref(), |iri| dictionary.iri(iri))?,
        about: known(search.about.as_ref(), |iri| dictionary.iri(iri))?,
        owner: known(search.owner.as_ref(), |text| dictionary.text(text))?,
        after: (search.after.as_ref()).map(|(name, key)| (fold(name), key.clone())),
    })
}

impl ResolvedSearch {
    /// The part of an index that each given field selects, with its number of entries.
    fn lists<'a>(&'a self, partition: &'a Partition) -> Vec<(usize, List<'a>)> {
        let fields = [
            (self.entity_type, &partition.types),
            (self.kind.map(|kind| kind as Id), &partition.kinds),
            (self.observed, &partition.observed),
            (self.about, &partition.about),
            (self.owner, &partition.owners),
        ];
        let pairs = fields.into_iter().filter_map(|(first, set)| {
            let first = first?;
            Some((pairs_of(set, first), List::Pairs(set, first)))
        });
        let scopes = self.scope.iter().map(|scope| {
            let set = &partition.scopes;
            let count = set.rank(past(scope)) - set.rank(before(scope));
            (count, List::Scopes(set, scope))
        });
        let local_types = self.local_type.iter().map(|(_, types)| {
            let set = &partition.types;
            let count = types.iter().map(|first| pairs_of(set, *first)).sum();
            (count, List::Any(set, types))
        });
        pairs.chain(scopes).chain(local_types).collect()
    }

    /// Finds the types with the local part asked for. A partition has few distinct types.
    fn find_local_types(&mut self, state: &State, partition: &Partition) {
        let Some((local, types)) = &mut self.local_type else {
            return;
        };
        types.clear();
        let set = &partition.types;
        let mut next = 0;
        while let Some([first, _]) = set.first_from(|key| *key < [next, 0]) {
            if local_part(state.dictionary.value(*first)) == local.as_str() {
                types.push(*first);
            }
            let Some(after) = first.checked_add(1) else {
                return;
            };
            next = after;
        }
    }

    /// The entities that match all fields but the name; `None` if no field is rare among `named`.
    fn candidates(
        &self,
        state: &State,
        partition: &Partition,
        named: usize,
    ) -> Option<HashSet<Id>> {
        let mut lists = self.lists(partition);
        lists.sort_by_key(|(count, _)| *count);
        let mut lists = lists.into_iter();
        let (count, rarest) = lists.next()?;
        if count.saturating_mul(RARE) > named {
            return None;
        }
        let mut candidates: HashSet<Id> = rarest.ids().collect();
        let mut all_read = true;
        for (count, list) in lists {
            if count <= candidates.len().saturating_mul(READ_FOR_EACH) {
                candidates = list.ids().filter(|id| candidates.contains(id)).collect();
            } else {
                all_read = false;
            }
        }
        if !all_read {
            candidates.retain(|entity| self.fits(state, partition, *entity));
        }
        Some(candidates)
    }

    /// Whether an entity of this folded name and key comes after the given one.
    fn follows(&self, name: &str, key: &str) -> bool {
        let after = self.after.as_ref();
        after.is_none_or(|(last, last_key)| (name, key) > (last.as_str(), last_key.as_str()))
    }

    /// The folded name at which the walk starts.
    fn start(&self) -> &str {
        let after = self.after.as_ref().map(|(name, _)| name.as_str());
        after.unwrap_or_default().max(self.prefix.as_str())
    }

    fn fits(&self, state: &State, partition: &Partition, entity: Id) -> bool {
        let Some(fields) = state.fields(entity) else {
            return false;
        };
        let has = |set: &OrderedSet<[Id; 2]>, first: Option<Id>| {
            first.is_none_or(|first| set.contains(&[first, entity]))
        };
        self.kind.is_none_or(|kind| kind == fields.kind())
            && has(&partition.types, self.entity_type)
            && self.local_type.as_ref().is_none_or(|(_, types)| {
                let mut types = types.iter();
                types.any(|first| partition.types.contains(&[*first, entity]))
            })
            && has(&partition.observed, self.observed)
            && has(&partition.about, self.about)
            && has(&partition.owners, self.owner)
            && self
                .scope
                .as_ref()
                .is_none_or(|scope| fields.has_scope_under(scope))
    }
}

/// A part of an index.
enum List<'a> {
    /// Pairs with this prefix.
    Pairs(&'a OrderedSet<[Id; 2]>, Id),
    /// Pairs that begin with one of these.
    Any(&'a OrderedSet<[Id; 2]>, &'a [Id]),
    /// Normal forms that lie under this.
    Scopes(&'a OrderedSet<Text>, &'a str),
}

impl<'a> List<'a> {
    /// The entities in it; one may occur twice.
    fn ids(&self) -> Box<dyn Iterator<Item = Id> + 'a> {
        match *self {
            Self::Pairs(set, first) => {
                let keys = set.iter_from(|key| *key < [first, 0]);
                let keys = keys.take_while(move |key| key[0] == first);
                Box::new(keys.map(|[_, entity]| entity))
            }
            Self::Any(set, firsts) => {
                let lists = firsts.iter().map(move |first| Self::Pairs(set, *first));
                Box::new(lists.flat_map(|list| list.ids()))
            }
            Self::Scopes(set, asked) => {
                let keys = set.iter_from(before(asked));
                let keys = keys.take_while(move |key| key.text.starts_with(asked));
                let under = keys.filter(move |key| scope::covers(asked, &key.text));
                Box::new(under.map(|key| key.entity))
            }
        }
    }
}

/// How many pairs begin with this.
fn pairs_of(set: &OrderedSet<[Id; 2]>, first: Id) -> usize {
    set.rank(|key| *key <= [first, Id::MAX]) - set.rank(|key| *key < [first, 0])
}

/// What follows the namespace of a type.
fn local_part(name: &str) -> &str {
    name.rsplit_once('}').map_or(name, |(_, local)| local)
}

fn before(prefix: &str) -> impl Fn(&Text) -> bool + '_ {
    move |key| *key.text < *prefix
}

/// True for all texts up to the last with the prefix `prefix`.
fn past(prefix: &str) -> impl Fn(&Text) -> bool + '_ {
    move |key| *key.text < *prefix || key.text.starts_with(prefix)
}

pub(crate) fn run(state: &State, search: &Search, principal: &Principal) -> SearchResult {
    let limit = search
        .limit
        .unwrap_or(DEFAULT_SEARCH_LIMIT)
        .min(MAX_SEARCH_LIMIT);
    let matches = matching(state, search, principal, limit);
    let truncated = matches.len() > limit;
    let found = matches.into_iter().take(limit);
    SearchResult {
        entities: found.filter_map(|(_, _, id)| state.entity(id)).collect(),
        truncated,
    }
}

/// The keys of all that match, in the order of names (case folded), then keys.
pub(crate) fn keys(state: &State, search: &Search, principal: &Principal) -> Vec<String> {
    let limit = search.limit.unwrap_or(usize::MAX - 1);
    let matches = matching(state, search, principal, limit);
    let keys = matches.into_iter().take(limit);
    keys.map(|(_, key, _)| key).collect()
}

/// The first `limit` matches by name and key, and one more if there is one.
fn matching(
    state: &State,
    search: &Search,
    principal: &Principal,
    limit: usize,
) -> Vec<(String, String, Id)> {
    let Some(mut asked) = resolve(state, search) else {
        return Vec::new();
    };
    let mut matches = Vec::new();
    for partition in state.visible(principal) {
        asked.find_local_types(state, &partition);
        collect(state, &asked, &partition, limit, &mut matches);
    }
    matches.sort_unstable();
    matches.dedup();
    matches
}

/// Adds the first `limit` matches of one access rule, and one more if there is one.
fn collect(
    state: &State,
    asked: &ResolvedSearch,
    partition: &Partition,
    limit: usize,
    matches: &mut Vec<(String, String, Id)>,
) {
    let names = &partition.names;
    let named = names.rank(past(&asked.prefix)) - names.rank(before(&asked.prefix));
    let candidates = asked.candidates(state, partition, named);
    if let Some(candidates) = &candidates
        && candidates.len().saturating_mul(WALKED_FOR_EACH)
            <= named.saturating_mul(limit.saturating_add(1)) / candidates.len().max(1)
    {
        for entity in candidates {
            let Some(fields) = state.fields(*entity) else {
                continue;
            };
            let name = fields.folded_name();
            if name.starts_with(&asked.prefix) && asked.follows(&name, fields.key()) {
                matches.push((name, fields.key().to_owned(), *entity));
            }
        }
        return;
    }
    let fits = |entity: Id| match &candidates {
        Some(candidates) => candidates.contains(&entity),
        None => asked.fits(state, partition, entity),
    };
    let start = matches.len();
    let walk = names.iter_from(before(asked.start()));
    for Text { text, entity } in walk.take_while(|key| key.text.starts_with(&asked.prefix)) {
        // Equal names are ordered by key, not by number: all of them are read.
        let full = matches.len() - start > limit;
        if full && matches.last().is_some_and(|(name, _, _)| **name != *text) {
            return;
        }
        if fits(entity)
            && let Some(fields) = state.fields(entity)
            && asked.follows(&text, fields.key())
        {
            matches.push((text.to_string(), fields.key().to_owned(), entity));
        }
    }
}
