//! Finds entities by their fields, all of which must match.
//!
//! The index of the rarest field supplies the candidates, and the indexes of the others filter
//! them; a field that far more entities have is checked on each candidate instead. Then the names
//! are fetched, or walked in order up to the limit, whichever touches less. If no field is rare,
//! names are walked immediately. The names of several sets of indexes are walked as one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use chappe_identity::Principal;

use crate::dictionary::Id;
use crate::entity::{Entity, EntityKind};
use crate::ordered::{Iter, OrderedSet};
use crate::partition::{Partition, Text, fold};
use crate::scope;
use crate::state::State;
use crate::uddi_keys::NO_TMODEL;

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
    /// A keyed reference of its UDDI category bag, exactly.
    pub category: Option<Category>,
    /// Besides `entity_type`: types whose class is one of these IRIs. See [`crate::Registry::widened`].
    pub classes: Vec<String>,
    /// Besides `observed_property`: IRIs of others.
    pub observed_properties: Vec<String>,
    /// Only entities after this name and key, in the order of the result.
    pub after: Option<(String, String)>,
    /// Maximum number of entities to return; [`DEFAULT_SEARCH_LIMIT`] if absent.
    pub limit: Option<usize>,
}

/// A keyed reference of a UDDI category bag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Category {
    /// Key of the tModel of the taxonomy; `None` for references that name none.
    pub tmodel: Option<String>,
    /// The value, `keyValue`.
    pub value: String,
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
/// All matches are read from the indexes, without the names that order them, if one index has at most this many
/// times the limit.
const READ_FOR_ALL: usize = 4;
/// Names walked in the time in which one is fetched.
const WALKED_FOR_EACH: usize = 32;

/// The search with its texts as numbers.
struct ResolvedSearch {
    prefix: String,
    kind: Option<EntityKind>,
    /// Each of these.
    types: Vec<Types>,
    scope: Option<String>,
    /// Any of these.
    observed: Option<Vec<Id>>,
    about: Option<Id>,
    owner: Option<Id>,
    /// tModel and value.
    category: Option<[Id; 2]>,
    /// A folded name and a key.
    after: Option<(String, String)>,
}

/// The types that an entity may have, any of them.
enum Types {
    /// This one.
    One(Id),
    /// Those with this local part.
    Local(String),
    /// This one, if there is one, and those of these classes.
    Classes(Option<Id>, HashSet<String>),
}

impl Types {
    /// Which types of a set of indexes these are. A set has few distinct types.
    fn of(&self, state: &State, partition: &Partition) -> Vec<Id> {
        let has = |id: Id| {
            let text = state.dictionary.value(id);
            match self {
                Self::One(one) => id == *one,
                Self::Local(local) => local_part(text) == local,
                Self::Classes(one, classes) => {
                    let class = crate::state::class(text);
                    *one == Some(id) || class.is_some_and(|class| classes.contains(class.as_str()))
                }
            }
        };
        if let Self::One(one) = self {
            return vec![*one];
        }
        let set = &partition.types;
        let mut types = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next
            && let Some([first, _]) = set.first_from(|key| *key < [from, 0])
        {
            if has(*first) {
                types.push(*first);
            }
            next = first.checked_add(1);
        }
        types
    }
}

/// Resolves the texts; `None` if no entity can match.
fn resolve(state: &State, search: &Search) -> Option<ResolvedSearch> {
    // An absent field is Some(None); a text that occurs nowhere ends the search.
    fn known<T>(asked: Option<&String>, find: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
        asked.map_or(Some(None), |text| find(text).map(Some))
    }
    let dictionary = &state.dictionary;
    let iri = |iri: &str| dictionary.iri(iri);
    let one = search.entity_type.as_deref();
    let one = one.map(|text| (dictionary.text(text), search.classes.iter().cloned()));
    let one = match one {
        None => None,
        Some((None, classes)) if classes.len() == 0 => return None,
        Some((Some(id), classes)) if classes.len() == 0 => Some(Types::One(id)),
        Some((one, classes)) => Some(Types::Classes(one, classes.collect())),
    };
    let local = search.local_type.clone().map(Types::Local);
    let observed = search.observed_property.iter();
    let observed = observed.chain(&search.observed_properties);
    let observed: Vec<Id> = observed.filter_map(|text| iri(text)).collect();
    let any_observed = search.observed_property.is_some();
    let category = match &search.category {
        None => None,
        Some(category) => {
            let tmodel = category.tmodel.as_deref();
            Some([
                tmodel.map_or(Some(NO_TMODEL), iri)?,
                dictionary.text(&category.value)?,
            ])
        }
    };
    if any_observed && observed.is_empty() {
        return None;
    }
    Some(ResolvedSearch {
        prefix: fold(search.name_prefix.as_deref().unwrap_or_default()),
        kind: search.kind,
        types: one.into_iter().chain(local).collect(),
        scope: known(search.scope.as_ref(), scope::normalize)?,
        observed: any_observed.then_some(observed),
        about: known(search.about.as_ref(), iri)?,
        owner: known(search.owner.as_ref(), |text| dictionary.text(text))?,
        category,
        after: (search.after.as_ref()).map(|(name, key)| (fold(name), key.clone())),
    })
}

impl ResolvedSearch {
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
}

/// The search in one set of indexes.
struct Scoped<'a> {
    state: &'a State,
    asked: &'a ResolvedSearch,
    partition: &'a Partition,
    /// For each condition on types those that meet it.
    types: Vec<Vec<Id>>,
    /// The entities that match all fields but the name; `None` if no field is rare.
    candidates: Option<HashSet<Id>>,
}

impl<'a> Scoped<'a> {
    /// The search without candidates.
    fn of(state: &'a State, asked: &'a ResolvedSearch, partition: &'a Partition) -> Self {
        let types = asked.types.iter().map(|it| it.of(state, partition));
        Self {
            state,
            asked,
            partition,
            types: types.collect(),
            candidates: None,
        }
    }

    fn new(state: &'a State, asked: &'a ResolvedSearch, partition: &'a Partition) -> Self {
        let mut scoped = Self::of(state, asked, partition);
        scoped.candidates = scoped.candidates(scoped.named());
        scoped
    }

    /// How many names have the prefix.
    fn named(&self) -> usize {
        let (names, prefix) = (&self.partition.names, &self.asked.prefix);
        names.rank(past(prefix)) - names.rank(before(prefix))
    }

    /// The part of an index that each given field selects, with its number of entries.
    fn lists(&self) -> Vec<(usize, List<'_>)> {
        let (asked, partition) = (self.asked, self.partition);
        let fields = [
            (asked.kind.map(|kind| kind as Id), &partition.kinds),
            (asked.about, &partition.about),
            (asked.owner, &partition.owners),
        ];
        let pairs = fields.into_iter().filter_map(|(first, set)| {
            let first = first?;
            Some((pairs_of(set, first), List::Pairs(set, first)))
        });
        let scopes = asked.scope.iter().map(|scope| {
            let set = &partition.scopes;
            let count = set.rank(past(scope)) - set.rank(before(scope));
            (count, List::Scopes(set, scope))
        });
        let types = self.types.iter().map(|types| (&partition.types, types));
        let observed = asked.observed.iter().map(|any| (&partition.observed, any));
        let any = types.chain(observed).map(|(set, firsts)| {
            let count = firsts.iter().map(|first| pairs_of(set, *first)).sum();
            (count, List::Any(set, firsts))
        });
        let categories = asked.category.iter().map(|category| {
            let set = &partition.categories;
            let [tmodel, value] = *category;
            let last = [tmodel, value, Id::MAX];
            let count = set.rank(|key| *key <= last) - set.rank(|key| *key < [tmodel, value, 0]);
            (count, List::Category(set, *category))
        });
        pairs.chain(scopes).chain(any).chain(categories).collect()
    }

    fn candidates(&self, named: usize) -> Option<HashSet<Id>> {
        let lists = self.lists();
        let rarest = lists.iter().map(|(count, _)| *count).min()?;
        if rarest.saturating_mul(RARE) > named {
            return None;
        }
        self.in_all(lists)
    }

    /// All entities that match, without order; `None` if each index has more than `most` that might.
    fn all(&self, most: usize) -> Option<HashSet<Id>> {
        let mut lists = self.lists();
        let named = self.named();
        lists.push((
            named,
            List::Names(&self.partition.names, &self.asked.prefix),
        ));
        let rarest = lists.iter().map(|(count, _)| *count).min()?;
        (rarest <= most).then(|| self.in_all(lists)).flatten()
    }

    /// The entities in all of the lists; `None` without lists.
    fn in_all(&self, mut lists: Vec<(usize, List<'_>)>) -> Option<HashSet<Id>> {
        lists.sort_by_key(|(count, _)| *count);
        let mut lists = lists.into_iter();
        let (_, rarest) = lists.next()?;
        let mut found: HashSet<Id> = rarest.ids().collect();
        let mut all_read = true;
        for (count, list) in lists {
            if list.has_all() {
                continue;
            }
            if count <= found.len().saturating_mul(READ_FOR_EACH) {
                found = list.ids().filter(|id| found.contains(id)).collect();
            } else {
                all_read = false;
            }
        }
        if !all_read {
            found.retain(|entity| self.is_named(*entity) && self.fits(*entity));
        }
        Some(found)
    }

    /// Whether the name of the entity has the prefix.
    fn is_named(&self, entity: Id) -> bool {
        let (prefix, fields) = (&self.asked.prefix, self.state.fields(entity));
        prefix.is_empty() || fields.is_some_and(|it| it.folded_name().starts_with(prefix))
    }

    /// Whether the entity matches all fields but the name.
    fn fits(&self, entity: Id) -> bool {
        let (asked, partition) = (self.asked, self.partition);
        let Some(fields) = self.state.fields(entity) else {
            return false;
        };
        let has = |set: &OrderedSet<[Id; 2]>, first: Option<Id>| {
            first.is_none_or(|first| set.contains(&[first, entity]))
        };
        let any = |set: &OrderedSet<[Id; 2]>, firsts: &[Id]| {
            let mut firsts = firsts.iter();
            firsts.any(|first| set.contains(&[*first, entity]))
        };
        asked.kind.is_none_or(|kind| kind == fields.kind())
            && self.types.iter().all(|types| any(&partition.types, types))
            && asked
                .observed
                .as_ref()
                .is_none_or(|observed| any(&partition.observed, observed))
            && has(&partition.about, asked.about)
            && has(&partition.owners, asked.owner)
            && asked.category.is_none_or(|[tmodel, value]| {
                partition.categories.contains(&[tmodel, value, entity])
            })
            && asked
                .scope
                .as_ref()
                .is_none_or(|scope| fields.has_scope_under(scope))
    }

    /// Whether fetching the names of all candidates touches less than walking names up to `limit`.
    fn are_few(&self, candidates: &HashSet<Id>, limit: usize) -> bool {
        let walked = self.named().saturating_mul(limit.saturating_add(1));
        candidates.len().saturating_mul(WALKED_FOR_EACH) <= walked / candidates.len().max(1)
    }
}

/// A part of an index.
enum List<'a> {
    /// Pairs with this prefix.
    Pairs(&'a OrderedSet<[Id; 2]>, Id),
    /// Pairs that begin with one of these.
    Any(&'a OrderedSet<[Id; 2]>, &'a [Id]),
    /// References of this tModel and value.
    Category(&'a OrderedSet<[Id; 3]>, [Id; 2]),
    /// Normal forms that lie under this.
    Scopes(&'a OrderedSet<Text>, &'a str),
    /// Names with this prefix.
    Names(&'a OrderedSet<Text>, &'a str),
}

impl<'a> List<'a> {
    /// Whether every entity is in it.
    fn has_all(&self) -> bool {
        matches!(self, Self::Names(_, ""))
    }

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
            Self::Category(set, [tmodel, value]) => {
                let keys = set.iter_from(|key| *key < [tmodel, value, 0]);
                let keys = keys.take_while(move |key| key.starts_with(&[tmodel, value]));
                Box::new(keys.map(|[_, _, entity]| entity))
            }
            Self::Scopes(set, asked) => {
                let keys = set.iter_from(before(asked));
                let keys = keys.take_while(move |key| key.text.starts_with(asked));
                let under = keys.filter(move |key| scope::covers(asked, &key.text));
                Box::new(under.map(|key| key.entity))
            }
            Self::Names(set, prefix) => {
                let keys = set.iter_from(before(prefix));
                let keys = keys.take_while(move |key| key.text.starts_with(prefix));
                Box::new(keys.map(|key| key.entity))
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

/// All that match, in any order, and whether these are all: of more than `limit` they are the first in the order of
/// names, then keys. The position of the search in that order does not count.
pub(crate) fn ids(
    state: &State,
    search: &Search,
    principal: &Principal,
    limit: usize,
) -> (Vec<Id>, bool) {
    let Some(asked) = resolve(state, search) else {
        return (Vec::new(), true);
    };
    let visible = state.visible(principal);
    let most = limit.saturating_mul(READ_FOR_ALL);
    let each = visible.iter();
    let each = each.map(|partition| Scoped::of(state, &asked, partition).all(most));
    let all: Option<Vec<HashSet<Id>>> = each.collect();
    let all: Option<HashSet<Id>> = all.map(|all| all.into_iter().flatten().collect());
    if let Some(all) = all.filter(|all| all.len() <= limit) {
        return (all.into_iter().collect(), true);
    }
    let matches = matching(state, search, principal, limit);
    let is_complete = matches.len() <= limit;
    let ids = matches.into_iter().map(|(_, _, id)| id);
    (ids.take(limit).collect(), is_complete)
}

/// Whether the entity `key` exists, is visible to `principal`, and matches; the limit and the position in the
/// order do not count.
pub(crate) fn matches(state: &State, search: &Search, principal: &Principal, key: &str) -> bool {
    let Some(asked) = resolve(state, search) else {
        return false;
    };
    let Some(id) = state.dictionary.iri(key) else {
        return false;
    };
    let Some(fields) = state.fields(id) else {
        return false;
    };
    let text = fields.folded_name();
    if !text.starts_with(&asked.prefix) {
        return false;
    }
    let name = Text {
        text: text.into(),
        entity: id,
    };
    let visible = state.visible(principal);
    let mut holding = visible.iter().filter(|one| one.names.contains(&name));
    holding.any(|partition| Scoped::of(state, &asked, partition).fits(id))
}

/// The first `limit` matches by name and key, and one more if there is one.
fn matching(
    state: &State,
    search: &Search,
    principal: &Principal,
    limit: usize,
) -> Vec<(String, String, Id)> {
    let Some(asked) = resolve(state, search) else {
        return Vec::new();
    };
    let visible = state.visible(principal);
    let scoped = visible
        .iter()
        .map(|partition| Scoped::new(state, &asked, partition));
    let mut matches = Vec::new();
    let mut walk = Walk::default();
    for scoped in scoped {
        match &scoped.candidates {
            Some(candidates) if scoped.are_few(candidates, limit) => {
                fetch(state, &asked, candidates, &mut matches);
            }
            _ => walk.add(scoped),
        }
    }
    walk.collect(state, &asked, limit, &mut matches);
    matches.sort_unstable();
    matches.dedup();
    matches
}

/// Adds those candidates that have the name.
fn fetch(
    state: &State,
    asked: &ResolvedSearch,
    candidates: &HashSet<Id>,
    matches: &mut Vec<(String, String, Id)>,
) {
    for entity in candidates {
        let Some(fields) = state.fields(*entity) else {
            continue;
        };
        let name = fields.folded_name();
        if name.starts_with(&asked.prefix) && asked.follows(&name, fields.key()) {
            matches.push((name, fields.key().to_owned(), *entity));
        }
    }
}

/// The names of several sets of indexes, walked in order as one.
#[derive(Default)]
struct Walk<'a> {
    parts: Vec<(Scoped<'a>, Iter<Text>)>,
    /// The next name of each part.
    heads: BinaryHeap<Reverse<(Text, usize)>>,
}

impl<'a> Walk<'a> {
    fn add(&mut self, scoped: Scoped<'a>) {
        let names = scoped
            .partition
            .names
            .iter_from(before(scoped.asked.start()));
        let part = self.parts.len();
        self.parts.push((scoped, names));
        self.advance(part);
    }

    /// Moves a part to its next name with the prefix.
    fn advance(&mut self, part: usize) {
        let Some((scoped, names)) = self.parts.get_mut(part) else {
            return;
        };
        let prefix = &scoped.asked.prefix;
        let next = names.next();
        if let Some(next) = next.filter(|key| key.text.starts_with(prefix)) {
            self.heads.push(Reverse((next, part)));
        }
    }

    /// Whether an entity of a part matches all fields but the name.
    fn fits(&self, part: usize, entity: Id) -> bool {
        self.parts
            .get(part)
            .is_some_and(|(scoped, _)| match &scoped.candidates {
                Some(candidates) => candidates.contains(&entity),
                None => scoped.fits(entity),
            })
    }

    /// Adds the first `limit` matches, and one more if there is one.
    fn collect(
        mut self,
        state: &State,
        asked: &ResolvedSearch,
        limit: usize,
        matches: &mut Vec<(String, String, Id)>,
    ) {
        let start = matches.len();
        let mut last = None;
        while let Some(Reverse((Text { text, entity }, part))) = self.heads.pop() {
            // Another part may have the same entity: equal keys come one after the other.
            if last.replace(entity) == Some(entity) {
                self.advance(part);
                continue;
            }
            // Equal names are ordered by key, not by number: all of them are read.
            let full = matches.len() - start > limit;
            if full && matches.last().is_some_and(|(name, _, _)| **name != *text) {
                return;
            }
            if self.fits(part, entity)
                && let Some(fields) = state.fields(entity)
                && asked.follows(&text, fields.key())
            {
                matches.push((text.to_string(), fields.key().to_owned(), entity));
            }
            self.advance(part);
        }
    }
}
