//! The surroundings of an entity: the visible entities that it names, and those that name it.
//!
//! An entity names another if a triple that it brings has the other's key as its object or subject. Pieces of
//! metadata are not neighbours of their subject, unless their value names it: [`crate::metadata`] lists them.
//!
//! Neighbours come in the order of their keys, so neither hidden entities nor the order of publication changes
//! a page. A page reads all triples that name the entity, and keeps no more than the page.

use std::collections::{BTreeMap, BTreeSet};

use chappe_identity::Principal;

use crate::dictionary::Id;
use crate::entity::{Entity, EntityKind};
use crate::limits::{Interrupt, SparqlError};
use crate::partition::{Partition, Range};
use crate::rights::Right;
use crate::state::State;
use crate::vocabulary;

/// Maximum number of neighbours of one page.
pub const MAX_NEIGHBOURS: usize = 1_000;
/// Triples between two questions to the interrupt.
const TRIPLES_PER_CHECK: usize = 1_024;

/// An entity next to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: EntityKind,
    /// Its name.
    pub name: String,
    /// The properties with which the entity in the middle names it, in order; [`vocabulary::ABOUT`] if it makes
    /// statements about it.
    pub named_by_middle: Vec<String>,
    /// The properties with which it names the entity in the middle, likewise.
    pub names_middle: Vec<String>,
}

/// A page of neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// In the order of their keys.
    pub neighbours: Vec<Neighbour>,
    /// The key after which the next page starts, if there is one.
    pub next: Option<String>,
}

/// Which neighbours a page has.
#[derive(Clone, Copy)]
pub struct NeighbourPage<'a> {
    /// Only keys after this one.
    pub after: Option<&'a str>,
    /// Maximum number of neighbours, up to [`MAX_NEIGHBOURS`].
    pub limit: usize,
    /// Leaves out further entities.
    pub keep: Option<&'a dyn Fn(&Entity) -> bool>,
}

/// The relations of one neighbour, as numbers of properties; `None`: one makes statements about the other.
#[derive(Default)]
struct Relations {
    outgoing: BTreeSet<Option<Id>>,
    incoming: BTreeSet<Option<Id>>,
}

/// The neighbours of the entity `key`; `None` if the principal may not see it.
pub(crate) fn page(
    state: &State,
    key: &str,
    principal: &Principal,
    page: NeighbourPage<'_>,
    interrupt: &Interrupt,
) -> Result<Option<Surroundings>, SparqlError> {
    let middle = state.dictionary.iri(key);
    let rule = state.rule_of(key);
    let is_visible = rule.is_some_and(|(rule, _)| rule.permits(principal, Right::Read));
    let Some(middle) = middle.filter(|_| is_visible) else {
        return Ok(None);
    };
    let mut finder = Finder {
        state,
        middle,
        principal,
        page,
        limit: page.limit.clamp(1, MAX_NEIGHBOURS),
        found: BTreeMap::new(),
        is_cut: false,
    };
    finder.outgoing();
    for partition in state.visible(principal) {
        finder.incoming(&partition, interrupt)?;
    }
    Ok(Some(finder.surroundings()))
}

struct Finder<'a> {
    state: &'a State,
    middle: Id,
    principal: &'a Principal,
    page: NeighbourPage<'a>,
    limit: usize,
    /// The first neighbours by key.
    found: BTreeMap<String, (Id, Relations)>,
    is_cut: bool,
}

impl Finder<'_> {
    /// The relations of an entity, if it is on the page as far as that is known.
    fn relations(&mut self, id: Id) -> Option<&mut Relations> {
        let fields = self.state.fields(id)?;
        let key = fields.key();
        let is_before = self.page.after.is_some_and(|after| key <= after);
        if id == self.middle || is_before {
            return None;
        }
        if !self.found.contains_key(key) {
            let last = self.found.last_key_value();
            let is_full = self.found.len() >= self.limit;
            let is_past = is_full && last.is_some_and(|(last, _)| key > last.as_str());
            // Once cut, another neighbour after the last changes nothing.
            if is_past && self.is_cut || !self.is_kept(id, key) {
                return None;
            }
            if is_full {
                self.is_cut = true;
                if is_past {
                    return None;
                }
                self.found.pop_last();
            }
            self.found
                .insert(key.to_owned(), (id, Relations::default()));
        }
        self.found.get_mut(key).map(|(_, relations)| relations)
    }

    fn is_kept(&self, id: Id, key: &str) -> bool {
        let rule = self.state.rule_of(key);
        let is_visible = rule.is_some_and(|(rule, _)| rule.permits(self.principal, Right::Read));
        let keep = self.page.keep;
        is_visible
            && keep.is_none_or(|keep| self.state.entity(id).is_some_and(|entity| keep(&entity)))
    }

    /// What the entity in the middle names.
    fn outgoing(&mut self) {
        let state = self.state;
        let Some(fields) = state.fields(self.middle) else {
            return;
        };
        for [subject, predicate, object] in fields.own_triples().iter().copied() {
            for (neighbour, relation) in [(object, Some(predicate)), (subject, None)] {
                if let Some(relations) = self.relations(neighbour) {
                    relations.outgoing.insert(relation);
                }
            }
        }
    }

    /// What names it, in one set of indexes.
    fn incoming(
        &mut self,
        partition: &Partition,
        interrupt: &Interrupt,
    ) -> Result<(), SparqlError> {
        let dictionary = &self.state.dictionary;
        let about = dictionary.iri(vocabulary::ABOUT.as_str());
        let own_of = |subject: Id| dictionary.blank_scope(subject).unwrap_or(subject);
        let objects = Range::of(None, None, Some(self.middle));
        let subjects = Range::of(Some(self.middle), None, None);
        let mut count = 0;
        for range in [objects, subjects] {
            for triple in partition.triples(range) {
                count += 1;
                if count % TRIPLES_PER_CHECK == 0 && interrupt.ended() {
                    return Err(SparqlError::Interrupted);
                }
                let [subject, predicate, object] = triple;
                for bringer in partition.bringers(triple, own_of(subject)) {
                    let kind = self.state.fields(bringer).map(|fields| fields.kind());
                    let is_of_piece =
                        kind == Some(EntityKind::Metadata) && Some(predicate) == about;
                    let (names, states) = (object == self.middle, subject == self.middle);
                    if is_of_piece || !names && !states {
                        continue;
                    }
                    if let Some(relations) = self.relations(bringer) {
                        let named = names.then_some(Some(predicate));
                        relations.incoming.extend(named);
                        relations.incoming.extend(states.then_some(None));
                    }
                }
            }
        }
        Ok(())
    }

    fn surroundings(self) -> Surroundings {
        let state = self.state;
        let text = |id: Option<Id>| {
            let text = id.map_or(vocabulary::ABOUT.as_str(), |id| state.dictionary.value(id));
            text.to_owned()
        };
        let texts = |ids: BTreeSet<Option<Id>>| {
            let texts: BTreeSet<String> = ids.into_iter().map(text).collect();
            texts.into_iter().collect()
        };
        let last = self.found.last_key_value().map(|(key, _)| key.clone());
        let neighbours = self.found.into_iter().filter_map(|(key, (id, relations))| {
            let fields = state.fields(id)?;
            Some(Neighbour {
                key,
                kind: fields.kind(),
                name: fields.name().to_owned(),
                named_by_middle: texts(relations.outgoing),
                names_middle: texts(relations.incoming),
            })
        });
        Surroundings {
            neighbours: neighbours.collect(),
            next: last.filter(|_| self.is_cut),
        }
    }
}
