//! One set of indexes over entities that the same principals may see; [`crate::groups`] says which there are.

use std::sync::Arc;

use crate::dictionary::Id;
use crate::ordered::{Iter, OrderedSet};
use crate::piece_keys::{LISTS, PieceKey};

/// The order of subject, predicate and object in an index's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Subject, predicate, object.
    Spo,
    /// Predicate, object, subject.
    Pos,
    /// Object, subject, predicate.
    Osp,
}

impl Order {
    /// The triple's terms in this order.
    pub(crate) fn key(self, [s, p, o]: [Id; 3]) -> [Id; 3] {
        match self {
            Self::Spo => [s, p, o],
            Self::Pos => [p, o, s],
            Self::Osp => [o, s, p],
        }
    }

    /// The triple of a key in this order.
    pub(crate) fn triple(self, [a, b, c]: [Id; 3]) -> [Id; 3] {
        match self {
            Self::Spo => [a, b, c],
            Self::Pos => [c, a, b],
            Self::Osp => [b, c, a],
        }
    }
}

/// A triple pattern with its known terms, as one range of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) order: Order,
    low: [Id; 3],
    high: [Id; 3],
}

impl Range {
    /// Three ordered indexes answer each of the eight patterns with one range.
    pub(crate) fn of(subject: Option<Id>, predicate: Option<Id>, object: Option<Id>) -> Self {
        let order = match (subject, predicate, object) {
            (Some(_), _, None) | (None, None, None) | (Some(_), Some(_), Some(_)) => Order::Spo,
            (None, Some(_), _) => Order::Pos,
            (_, None, Some(_)) => Order::Osp,
        };
        let fill = |rest: Id| {
            let or = |id: Option<Id>| id.unwrap_or(rest);
            order.key([or(subject), or(predicate), or(object)])
        };
        Self {
            order,
            low: fill(0),
            high: fill(Id::MAX),
        }
    }
}

/// Text in the form in which names are compared: Unicode lower case.
pub(crate) fn fold(text: &str) -> String {
    text.to_lowercase()
}

/// A text with its entity, ordered by text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text {
    pub(crate) text: Arc<str>,
    pub(crate) entity: Id,
}

/// How indexes change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Insert,
    Remove,
    /// Inserts without order, until [`Partition::order`]: for many entities at once.
    Load,
}

/// A set of indexes.
#[derive(Clone, Default)]
pub(crate) struct Partition {
    /// No other set that the same principal reads holds the same entities.
    pub(crate) is_only: bool,
    spo: OrderedSet<[Id; 3]>,
    pos: OrderedSet<[Id; 3]>,
    osp: OrderedSet<[Id; 3]>,
    /// Triples that several entities bring, with the number of entities besides the first.
    repeated: OrderedSet<[Id; 4]>,
    /// (subject, predicate, object, entity) of triples about something else than the entity that
    /// brings them and its blank nodes. Of all others the subject names the entity.
    foreign: OrderedSet<[Id; 4]>,
    /// Case-folded names.
    pub(crate) names: OrderedSet<Text>,
    /// Normal forms of scopes.
    pub(crate) scopes: OrderedSet<Text>,
    /// (type, entity).
    pub(crate) types: OrderedSet<[Id; 2]>,
    /// (kind, entity).
    pub(crate) kinds: OrderedSet<[Id; 2]>,
    /// (observed property, entity).
    pub(crate) observed: OrderedSet<[Id; 2]>,
    /// (IRI that the entity makes a statement about, entity).
    pub(crate) about: OrderedSet<[Id; 2]>,
    /// (owner, entity).
    pub(crate) owners: OrderedSet<[Id; 2]>,
    /// All names of UDDI data by class, case-folded.
    pub(crate) uddi_names: OrderedSet<Text>,
    /// (tModel, value, entity) of category bags.
    pub(crate) categories: OrderedSet<[Id; 3]>,
    /// (tModel, value, entity) of identifier bags.
    pub(crate) identifiers: OrderedSet<[Id; 3]>,
    /// (class and day, time of the day, entity) of the last save of UDDI data.
    pub(crate) saved: OrderedSet<[u32; 3]>,
    /// (parent, owner, position, entity) of services and bindings.
    pub(crate) children: OrderedSet<[u32; 4]>,
    /// Pieces of metadata; see [`crate::piece_keys`].
    pub(crate) pieces: OrderedSet<PieceKey>,
}

impl Partition {
    /// An empty set of indexes of entities that no other set which the same principal reads holds.
    pub(crate) fn only() -> Self {
        Self {
            is_only: true,
            ..Self::default()
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = |set: &OrderedSet<Text>| {
            set.memory_bytes() + set.iter().map(|key| key.text.len() + 16).sum::<usize>()
        };
        let pairs = [
            &self.types,
            &self.kinds,
            &self.observed,
            &self.about,
            &self.owners,
        ];
        let triples = [
            &self.spo,
            &self.pos,
            &self.osp,
            &self.categories,
            &self.identifiers,
            &self.saved,
        ];
        triples.map(OrderedSet::memory_bytes).iter().sum::<usize>()
            + pairs.map(OrderedSet::memory_bytes).iter().sum::<usize>()
            + self.repeated.memory_bytes()
            + self.foreign.memory_bytes()
            + self.children.memory_bytes()
            + self.pieces.memory_bytes()
            // The text, which the lists of a piece share.
            + self.pieces.iter().map(|key| key.text.len() / LISTS).sum::<usize>()
            + texts(&self.names)
            + texts(&self.scopes)
            + texts(&self.uddi_names)
    }

    /// Whether it holds nothing: everything that has keys here has triples.
    pub(crate) fn is_empty(&self) -> bool {
        self.spo.len() == 0
    }

    /// Orders what was loaded.
    pub(crate) fn order(&mut self) {
        let mut triples: Vec<[Id; 3]> = self.spo.iter().collect();
        triples.sort_unstable();
        let equal = triples.chunk_by(|one, other| one == other);
        let repeated = equal.filter_map(|equal| match equal {
            [] | [_] => None,
            [[s, p, o], more @ ..] => Some([*s, *p, *o, more.len() as u32]),
        });
        self.repeated = OrderedSet::of_sorted(&repeated.collect::<Vec<_>>());
        triples.dedup();
        self.spo = OrderedSet::of_sorted(&triples);
        for triple in &mut triples {
            *triple = Order::Pos.key(*triple);
        }
        triples.sort_unstable();
        self.pos = OrderedSet::of_sorted(&triples);
        for key in &mut triples {
            *key = Order::Osp.key(Order::Pos.triple(*key));
        }
        triples.sort_unstable();
        self.osp = OrderedSet::of_sorted(&triples);
        drop(triples);
        self.foreign.order();
        for set in [&mut self.names, &mut self.scopes, &mut self.uddi_names] {
            set.order();
        }
        for set in [
            &mut self.types,
            &mut self.kinds,
            &mut self.observed,
            &mut self.about,
            &mut self.owners,
        ] {
            set.order();
        }
        for set in [&mut self.categories, &mut self.identifiers, &mut self.saved] {
            set.order();
        }
        self.children.order();
        self.pieces.order();
    }

    /// Changes a triple that `foreign` brings about something else, or an entity about itself.
    pub(crate) fn put(&mut self, triple: [Id; 3], foreign: Option<Id>, put: Put) {
        match put {
            Put::Insert => self.insert(triple, foreign),
            Put::Remove => self.remove(triple, foreign),
            Put::Load => {
                if let Some(entity) = foreign {
                    let [s, p, o] = triple;
                    self.foreign.push([s, p, o, entity]);
                }
                self.spo.push(triple);
            }
        }
    }

    /// Adds a triple that `foreign` brings about something else, or an entity about itself.
    fn insert(&mut self, triple: [Id; 3], foreign: Option<Id>) {
        if let Some(entity) = foreign {
            let [s, p, o] = triple;
            self.foreign.insert([s, p, o, entity]);
        }
        if self.spo.insert(Order::Spo.key(triple)) {
            self.pos.insert(Order::Pos.key(triple));
            self.osp.insert(Order::Osp.key(triple));
            return;
        }
        let more = self.take_repeats(triple);
        self.put_repeats(triple, more + 1);
    }

    /// Removes what [`Partition::insert`] added.
    fn remove(&mut self, triple: [Id; 3], foreign: Option<Id>) {
        if let Some(entity) = foreign {
            let [s, p, o] = triple;
            self.foreign.remove(&[s, p, o, entity]);
        }
        let more = self.take_repeats(triple);
        if more > 0 {
            self.put_repeats(triple, more - 1);
        } else if self.spo.remove(&Order::Spo.key(triple)) {
            self.pos.remove(&Order::Pos.key(triple));
            self.osp.remove(&Order::Osp.key(triple));
        }
    }

    fn take_repeats(&mut self, [s, p, o]: [Id; 3]) -> u32 {
        let before = |key: &[Id; 4]| *key < [s, p, o, 0];
        let wanted = |key: &[Id; 4]| key.starts_with(&[s, p, o]);
        self.repeated
            .remove_at(before, wanted)
            .map_or(0, |[_, _, _, more]| more)
    }

    fn put_repeats(&mut self, [s, p, o]: [Id; 3], more: u32) {
        if more > 0 {
            self.repeated.insert([s, p, o, more]);
        }
    }

    /// Whether `entity` brings the triple. `own` is the entity that its subject is or belongs to.
    pub(crate) fn brings(&self, triple: [Id; 3], entity: Id, own: Id) -> bool {
        if entity == own {
            return self.contains(triple) && self.is_own(triple);
        }
        let [s, p, o] = triple;
        self.foreign.contains(&[s, p, o, entity])
    }

    /// Whether the entity of its subject is among those that bring a triple of this set.
    fn is_own(&self, triple: [Id; 3]) -> bool {
        let [s, p, o] = triple;
        let past = |key: &[Id; 4]| *key <= [s, p, o, Id::MAX];
        let before = |key: &[Id; 4]| *key < [s, p, o, 0];
        if self.foreign.len() == 0 {
            return true;
        }
        let foreign = self.foreign.rank(past) - self.foreign.rank(before);
        let more = self.repeated.first_from(before);
        let more = more.filter(|key| key.starts_with(&triple));
        foreign <= more.map_or(0, |[_, _, _, more]| *more as usize)
    }

    /// How often entities bring a triple about something else that has this subject and, if they
    /// are known with it, these terms; 0 if the subject is not known.
    pub(crate) fn count_foreign(&self, pattern: [Option<Id>; 3]) -> usize {
        let [s, p, o] = pattern;
        let Some(s) = s else { return 0 };
        let [low, high] = [0, Id::MAX].map(|rest| match (p, o) {
            (Some(p), o) => [s, p, o.unwrap_or(rest), rest],
            (None, _) => [s, rest, rest, rest],
        });
        self.foreign.rank(|key| *key <= high) - self.foreign.rank(|key| *key < low)
    }

    /// The entities that bring a triple of this set.
    pub(crate) fn bringers(&self, triple: [Id; 3], own: Id) -> impl Iterator<Item = Id> + use<> {
        let [s, p, o] = triple;
        let foreign = self.foreign.iter_from(|key| *key < [s, p, o, 0]);
        let foreign = foreign.take_while(move |key| key.starts_with(&triple));
        let own = self.is_own(triple).then_some(own);
        own.into_iter()
            .chain(foreign.map(|[_, _, _, entity]| entity))
    }

    fn index(&self, order: Order) -> &OrderedSet<[Id; 3]> {
        match order {
            Order::Spo => &self.spo,
            Order::Pos => &self.pos,
            Order::Osp => &self.osp,
        }
    }

    /// The exact number of triples in `range`.
    pub(crate) fn count(&self, range: Range) -> usize {
        let index = self.index(range.order);
        index.rank(|key| *key <= range.high) - index.rank(|key| *key < range.low)
    }

    pub(crate) fn contains(&self, triple: [Id; 3]) -> bool {
        self.spo.contains(&triple)
    }

    /// Whether `id` occurs in any triple.
    pub(crate) fn mentions(&self, id: Id) -> bool {
        let here = |index: &OrderedSet<[Id; 3]>| {
            index
                .first_from(|key| *key < [id, 0, 0])
                .is_some_and(|[first, _, _]| *first == id)
        };
        here(&self.spo) || here(&self.osp) || here(&self.pos)
    }

    /// The triples in `range`, from a snapshot.
    pub(crate) fn triples(&self, range: Range) -> Triples {
        let index = self.index(range.order);
        Triples {
            keys: index.iter_from(|key| *key < range.low),
            range,
        }
    }
}

/// Triples of one range.
pub(crate) struct Triples {
    keys: Iter<[Id; 3]>,
    range: Range,
}

impl Triples {
    /// The next triple in the order of its index.
    pub(crate) fn next_key(&mut self) -> Option<[Id; 3]> {
        self.keys.next().filter(|key| *key <= self.range.high)
    }
}

impl Iterator for Triples {
    type Item = [Id; 3];

    fn next(&mut self) -> Option<[Id; 3]> {
        let key = self.next_key()?;
        Some(self.range.order.triple(key))
    }
}
