//! What an entity adds to each set of indexes that holds it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dictionary::Id;
use crate::ordered::OrderedSet;
use crate::partition::{Partition, Put, Text};
use crate::piece_keys::PieceKey;
use crate::uddi_keys::UddiKeys;

/// The keys of one entity.
pub(crate) struct EntityKeys {
    pub(crate) entity: Id,
    pub(crate) triples: BTreeSet<[Id; 3]>,
    /// Case-folded.
    pub(crate) name: Arc<str>,
    /// Normal forms.
    pub(crate) scopes: BTreeSet<Arc<str>>,
    pub(crate) types: BTreeSet<Id>,
    pub(crate) kind: Id,
    pub(crate) observed: BTreeSet<Id>,
    /// Subjects of its triples other than itself and its blank nodes.
    pub(crate) about: BTreeSet<Id>,
    pub(crate) owner: Id,
    pub(crate) uddi: Option<UddiKeys>,
    /// Those of a piece of metadata.
    pub(crate) pieces: Vec<PieceKey>,
}

impl EntityKeys {
    /// Changes the keys of the entity in the indexes.
    pub(crate) fn apply(&self, partition: &mut Partition, put: Put) {
        for triple in &self.triples {
            let foreign = self.about.contains(&triple[0]).then_some(self.entity);
            partition.put(*triple, foreign, put);
        }
        self.texts(&mut partition.names, [&self.name], put);
        self.texts(&mut partition.scopes, &self.scopes, put);
        self.pairs(&mut partition.types, &self.types, put);
        self.pairs(&mut partition.kinds, [&self.kind], put);
        self.pairs(&mut partition.observed, &self.observed, put);
        self.pairs(&mut partition.about, &self.about, put);
        self.pairs(&mut partition.owners, [&self.owner], put);
        for key in &self.pieces {
            change(&mut partition.pieces, key.clone(), put);
        }
        let Some(uddi) = &self.uddi else { return };
        if let Some([parent, position]) = uddi.place {
            let key = [parent, self.owner, position, self.entity];
            change(&mut partition.children, key, put);
        }
        self.texts(&mut partition.uddi_names, &uddi.names, put);
        let saved = uddi.saved.into_iter().collect();
        let lists = [
            (&mut partition.categories, &uddi.categories),
            (&mut partition.identifiers, &uddi.identifiers),
            (&mut partition.saved, &saved),
        ];
        for (set, firsts) in lists {
            for [first, second] in firsts {
                change(set, [*first, *second, self.entity], put);
            }
        }
    }

    fn texts<'a>(
        &self,
        set: &mut OrderedSet<Text>,
        texts: impl IntoIterator<Item = &'a Arc<str>>,
        put: Put,
    ) {
        for text in texts {
            let (text, entity) = (Arc::clone(text), self.entity);
            change(set, Text { text, entity }, put);
        }
    }

    fn pairs<'a>(
        &self,
        set: &mut OrderedSet<[Id; 2]>,
        firsts: impl IntoIterator<Item = &'a Id>,
        put: Put,
    ) {
        for first in firsts {
            change(set, [*first, self.entity], put);
        }
    }
}

fn change<K: Ord + Clone>(set: &mut OrderedSet<K>, key: K, put: Put) {
    match put {
        Put::Insert => drop(set.insert(key)),
        Put::Remove => drop(set.remove(&key)),
        Put::Load => set.push(key),
    }
}
