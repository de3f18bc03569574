//! Terms as numbers.
//!
//! A term is stored once, as bytes in a chunk with others, with a count of its uses. When the last
//! use is released, its number is reused. Small non-negative integers are their own numbers and
//! take no space. Blank nodes belong to the entity that brought them: the same label in two
//! entities is two nodes.
//!
//! Clones are snapshots, as in [`crate::ordered`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use oxrdf::vocab::xsd;
use oxrdf::{BlankNode, Literal, LiteralRef, NamedNode, NamedNodeRef, Term, TermRef};

use crate::ordered::OrderedSet;

/// The number of a term.
pub(crate) type Id = u32;

/// Numbers from here up to [`LOCAL`] are the integers from 0.
const INTEGER: Id = 1 << 30;
/// Numbers from here on belong to one query and never enter the dictionary.
pub(crate) const LOCAL: Id = 1 << 31;
/// Maximum number of terms: the remaining numbers.
pub(crate) const MAX_TERMS: usize = INTEGER as usize;

/// Number of terms in a chunk, and of chunks in a shelf.
const CHUNK: usize = 256;

const IRI: u8 = b'I';
const TEXT: u8 = b'S';
const TAGGED: u8 = b'L';
const TYPED: u8 = b'T';
const BLANK: u8 = b'B';
/// Datatypes encoded as a single byte instead of their IRI.
const DATATYPES: [(u8, NamedNodeRef<'static>); 6] = [
    (b'i', xsd::INTEGER),
    (b'b', xsd::BOOLEAN),
    (b'd', xsd::DOUBLE),
    (b'e', xsd::DECIMAL),
    (b't', xsd::DATE_TIME),
    (b'u', xsd::ANY_URI),
];

#[derive(Clone, Default)]
struct Chunk {
    /// The terms, one after another.
    bytes: Vec<u8>,
    /// The end of each.
    ends: Vec<u32>,
    /// The use count of each; 0: the number is free.
    uses: Vec<u32>,
}

impl Chunk {
    fn span(&self, slot: usize) -> std::ops::Range<usize> {
        let end = |slot: usize| self.ends.get(slot).map_or(0, |end| *end as usize);
        slot.checked_sub(1).map_or(0, end)..end(slot)
    }

    fn bytes_of(&self, slot: usize) -> &[u8] {
        self.bytes.get(self.span(slot)).unwrap_or_default()
    }

    /// Replaces the content of the slot with `bytes`.
    fn replace(&mut self, slot: usize, bytes: &[u8]) {
        let span = self.span(slot);
        let (old, new) = (span.len() as u32, bytes.len() as u32);
        if self.bytes.capacity() < self.bytes.len() + bytes.len() {
            self.bytes.reserve_exact(bytes.len() + self.bytes.len() / 8);
        }
        self.bytes.splice(span, bytes.iter().copied());
        for end in self.ends.iter_mut().skip(slot) {
            *end = *end + new - old;
        }
    }
}

type Shelf = Arc<Vec<Arc<Chunk>>>;

/// The dictionary.
#[derive(Clone, Default)]
pub(crate) struct Dictionary {
    shelves: Arc<Vec<Shelf>>,
    /// (hash, number) of each term in use that is not in `loading`.
    by_hash: OrderedSet<[u32; 2]>,
    /// The number of the first term with each hash, while a journal is read; reason: searches in an ordered set took a
    /// quarter of the time of opening.
    loading: Option<HashMap<u32, Id>>,
    free: OrderedSet<Id>,
    given: Id,
    hasher: RandomState,
}

fn place(id: Id) -> (usize, usize, usize) {
    let id = id as usize;
    (id / (CHUNK * CHUNK), id / CHUNK % CHUNK, id % CHUNK)
}

impl Dictionary {
    /// An empty dictionary for the terms of a journal, up to [`Dictionary::finish_loading`]. Until then, clones are
    /// whole copies.
    pub(crate) fn loading() -> Self {
        Self {
            loading: Some(HashMap::new()),
            ..Self::default()
        }
    }

    /// Terms are found in an ordered set from now on, and clones are snapshots.
    pub(crate) fn finish_loading(&mut self) {
        let loaded = self.loading.take().into_iter().flatten();
        let loaded = loaded.map(|(hash, id)| [hash, id]);
        let mut all: Vec<[u32; 2]> = loaded.chain(self.by_hash.iter()).collect();
        all.sort_unstable();
        self.by_hash = OrderedSet::of_sorted(&all);
    }

    /// The number of terms in use.
    pub(crate) fn len(&self) -> usize {
        self.by_hash.len() + self.loading.as_ref().map_or(0, HashMap::len)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let arc = 2 * size_of::<usize>();
        let mut bytes = self.by_hash.memory_bytes() + self.free.memory_bytes();
        for shelf in self.shelves.iter() {
            bytes += arc + shelf.capacity() * size_of::<usize>();
            for chunk in shelf.iter() {
                bytes += arc + size_of::<Chunk>() + chunk.bytes.capacity();
                bytes += (chunk.ends.capacity() + chunk.uses.capacity()) * size_of::<u32>();
            }
        }
        bytes
    }

    fn chunk(&self, id: Id) -> Option<(&Chunk, usize)> {
        let (shelf, chunk, slot) = place(id);
        self.shelves
            .get(shelf)?
            .get(chunk)
            .map(|chunk| (&**chunk, slot))
    }

    fn chunk_mut(&mut self, id: Id) -> Option<(&mut Chunk, usize)> {
        let (shelf, chunk, slot) = place(id);
        let shelf = Arc::make_mut(&mut self.shelves).get_mut(shelf)?;
        Arc::make_mut(shelf)
            .get_mut(chunk)
            .map(|chunk| (Arc::make_mut(chunk), slot))
    }

    fn bytes_of(&self, id: Id) -> &[u8] {
        self.chunk(id)
            .map_or(&[], |(chunk, slot)| chunk.bytes_of(slot))
    }

    fn hash(&self, bytes: &[u8]) -> u32 {
        (self.hasher.hash_one(bytes) >> 32) as u32
    }

    fn find(&self, hash: u32, bytes: &[u8]) -> Option<Id> {
        let first = self.loading.as_ref().and_then(|first| first.get(&hash));
        if let Some(id) = first.filter(|id| self.bytes_of(**id) == bytes) {
            return Some(*id);
        }
        let mut from = [hash, 0];
        loop {
            let [found, id] = *self.by_hash.first_from(|key| *key < from)?;
            if found != hash {
                return None;
            }
            if self.bytes_of(id) == bytes {
                return Some(id);
            }
            from = [hash, id + 1];
        }
    }

    /// The number of `term`; blank nodes belong to the entity `scope`.
    pub(crate) fn id(&self, term: TermRef<'_>, scope: Id) -> Option<Id> {
        if let Some(id) = integer_id(term) {
            return Some(id);
        }
        let bytes = encode(term, scope);
        self.find(self.hash(&bytes), &bytes)
    }

    /// The number of the IRI `iri`.
    pub(crate) fn iri(&self, iri: &str) -> Option<Id> {
        self.id(TermRef::NamedNode(NamedNodeRef::new_unchecked(iri)), 0)
    }

    /// The number of the simple literal `text`.
    pub(crate) fn text(&self, text: &str) -> Option<Id> {
        self.id(LiteralRef::new_simple_literal(text).into(), 0)
    }

    /// Adds one use of `term` and returns its number.
    pub(crate) fn intern(&mut self, term: TermRef<'_>, scope: Id) -> Id {
        if let Some(id) = integer_id(term) {
            return id;
        }
        let bytes = encode(term, scope);
        let hash = self.hash(&bytes);
        if let Some(id) = self.find(hash, &bytes) {
            self.count(id, 1);
            return id;
        }
        self.add(hash, &bytes)
    }

    /// Adds a term that is not known, with one use.
    fn add(&mut self, hash: u32, bytes: &[u8]) -> Id {
        let id = self.free_number();
        if let Some((chunk, slot)) = self.chunk_mut(id) {
            chunk.replace(slot, bytes);
            if let Some(uses) = chunk.uses.get_mut(slot) {
                *uses = 1;
            }
        }
        match self.loading.as_mut().map(|first| first.entry(hash)) {
            Some(Entry::Vacant(first)) => {
                first.insert(id);
            }
            // Another term has the same hash.
            Some(Entry::Occupied(_)) | None => {
                self.by_hash.insert([hash, id]);
            }
        }
        id
    }

    fn free_number(&mut self) -> Id {
        if let Some(id) = self.free.remove_at(|_| false, |_| true) {
            return id;
        }
        let id = self.given;
        self.given += 1;
        let (_, chunk, slot) = place(id);
        if slot == 0 {
            let shelves = Arc::make_mut(&mut self.shelves);
            if chunk == 0 {
                shelves.push(Arc::default());
            }
            if let Some(shelf) = shelves.last_mut() {
                Arc::make_mut(shelf).push(Arc::default());
            }
        }
        if let Some((chunk, _)) = self.chunk_mut(id) {
            let end = chunk.bytes.len() as u32;
            if chunk.ends.is_empty() {
                chunk.ends.reserve_exact(CHUNK);
                chunk.uses.reserve_exact(CHUNK);
            }
            chunk.ends.push(end);
            chunk.uses.push(0);
        }
        id
    }

    fn count(&mut self, id: Id, more: u32) {
        if let Some((chunk, slot)) = self.chunk_mut(id)
            && let Some(uses) = chunk.uses.get_mut(slot)
        {
            *uses = uses.saturating_add(more);
        }
    }

    /// Removes one use; the last one frees the number.
    pub(crate) fn release(&mut self, id: Id) {
        if id >= INTEGER {
            return;
        }
        let hash = self.hash(self.bytes_of(id));
        let Some((chunk, slot)) = self.chunk_mut(id) else {
            return;
        };
        let Some(uses) = chunk.uses.get_mut(slot) else {
            return;
        };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return;
        }
        chunk.replace(slot, &[]);
        self.forget(hash, id);
        self.free.insert(id);
    }

    /// The term is no longer found.
    fn forget(&mut self, hash: u32, id: Id) {
        match self.loading.as_mut().map(|first| first.entry(hash)) {
            Some(Entry::Occupied(first)) if *first.get() == id => {
                first.remove();
            }
            _ => {
                self.by_hash.remove(&[hash, id]);
            }
        }
    }

    /// The term; blank nodes have the label their entity gave them.
    pub(crate) fn term(&self, id: Id) -> Option<Term> {
        if (INTEGER..LOCAL).contains(&id) {
            return Some(
                Literal::new_typed_literal((id - INTEGER).to_string(), xsd::INTEGER).into(),
            );
        }
        decode(self.bytes_of(id))
    }

    /// The text of an IRI or literal, or the label of a blank node.
    pub(crate) fn value(&self, id: Id) -> &str {
        let (tag, rest) = self.bytes_of(id).split_first().unwrap_or((&IRI, &[]));
        let skip = match *tag {
            TAGGED | TYPED => split_sized(rest).0.len() + size_of_length(rest),
            BLANK => 4,
            _ => 0,
        };
        std::str::from_utf8(rest.get(skip..).unwrap_or_default()).unwrap_or_default()
    }

    /// The language of a literal.
    pub(crate) fn language(&self, id: Id) -> Option<&str> {
        if id >= INTEGER {
            return None;
        }
        let tagged = self.bytes_of(id).strip_prefix(&[TAGGED])?;
        std::str::from_utf8(split_sized(tagged).0).ok()
    }

    /// The integer that is its own number, or is written as one.
    pub(crate) fn integer(&self, id: Id) -> Option<u32> {
        if (INTEGER..LOCAL).contains(&id) {
            return Some(id - INTEGER);
        }
        self.value(id).parse().ok()
    }

    /// The entity that a blank node belongs to.
    pub(crate) fn blank_scope(&self, id: Id) -> Option<Id> {
        if id >= INTEGER {
            return None;
        }
        let scope = self.bytes_of(id).strip_prefix(&[BLANK])?.get(..4)?;
        Some(Id::from_le_bytes(scope.try_into().ok()?))
    }
}

/// The number of a small integer in its canonical form.
fn integer_id(term: TermRef<'_>) -> Option<Id> {
    let TermRef::Literal(literal) = term else {
        return None;
    };
    let text = literal.value();
    let canonical = text.len() <= 10 && (text == "0" || !text.starts_with(['0', '+', '-']));
    if !canonical || literal.datatype() != xsd::INTEGER {
        return None;
    }
    let value: Id = text.parse().ok()?;
    (value < INTEGER).then_some(INTEGER | value)
}

/// Encodes a tag; the entity of a blank node, or length and bytes of a literal's language or
/// datatype; and the value.
fn encode(term: TermRef<'_>, scope: Id) -> Vec<u8> {
    let (tag, head, value) = match term {
        TermRef::NamedNode(node) => (IRI, Vec::new(), node.as_str()),
        TermRef::BlankNode(node) => (BLANK, scope.to_le_bytes().to_vec(), node.as_str()),
        TermRef::Literal(literal) => match literal.language() {
            Some(language) => (TAGGED, sized(language.as_bytes()), literal.value()),
            None if literal.datatype() == xsd::STRING => (TEXT, Vec::new(), literal.value()),
            None => (
                TYPED,
                sized(&datatype_bytes(literal.datatype())),
                literal.value(),
            ),
        },
    };
    let mut bytes = Vec::with_capacity(1 + head.len() + value.len());
    bytes.push(tag);
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(value.as_bytes());
    bytes
}

/// The length of a language or datatype: one byte, or 255 and four bytes more.
fn sized(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 5);
    match u8::try_from(text.len()) {
        Ok(length) if length < u8::MAX => bytes.push(length),
        _ => {
            bytes.push(u8::MAX);
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        }
    }
    bytes.extend_from_slice(text);
    bytes
}

fn size_of_length(bytes: &[u8]) -> usize {
    if bytes.first() == Some(&u8::MAX) {
        5
    } else {
        1
    }
}

fn split_sized(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length = match bytes {
        [u8::MAX, a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
        [length, ..] => usize::from(*length),
        [] => 0,
    };
    let rest = bytes.get(size_of_length(bytes)..).unwrap_or_default();
    rest.split_at_checked(length).unwrap_or((&[], rest))
}

/// A common datatype as its byte, any other as its IRI (which is longer than a byte).
fn datatype_bytes(datatype: NamedNodeRef<'_>) -> Vec<u8> {
    match DATATYPES.iter().find(|(_, usual)| *usual == datatype) {
        Some((code, _)) => vec![*code],
        None => datatype.as_str().as_bytes().to_vec(),
    }
}

fn datatype_of(bytes: &[u8]) -> Option<NamedNode> {
    if let [code] = bytes
        && let Some((_, usual)) = DATATYPES.iter().find(|(usual, _)| usual == code)
    {
        return Some(usual.into_owned());
    }
    Some(NamedNode::new_unchecked(std::str::from_utf8(bytes).ok()?))
}

fn decode(bytes: &[u8]) -> Option<Term> {
    let (tag, rest) = bytes.split_first()?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    Some(match *tag {
        IRI => NamedNode::new_unchecked(text(rest)?).into(),
        TEXT => Literal::new_simple_literal(text(rest)?).into(),
        TAGGED => {
            let (language, value) = split_sized(rest);
            Literal::new_language_tagged_literal_unchecked(text(value)?, text(language)?).into()
        }
        TYPED => {
            let (datatype, value) = split_sized(rest);
            Literal::new_typed_literal(text(value)?, datatype_of(datatype)?).into()
        }
        BLANK => BlankNode::new_unchecked(text(rest.get(4..)?)?).into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Vec<Term> {
        let long = NamedNode::new_unchecked(format!("http://example.com/{}", "x".repeat(300)));
        let typed = |value: &str, datatype| Term::from(Literal::new_typed_literal(value, datatype));
        vec![
            NamedNode::new_unchecked("http://example.com/a").into(),
            BlankNode::new_unchecked("a").into(),
            Literal::new_simple_literal("").into(),
            Literal::new_simple_literal("http://example.com/a").into(),
            Literal::new_language_tagged_literal_unchecked("Grün", "de").into(),
            typed("1.5", xsd::DECIMAL.into_owned()),
            typed("1.5", xsd::DOUBLE.into_owned()),
            typed("a", NamedNode::new_unchecked("u:i")),
            typed("a", long),
            typed("7", xsd::INTEGER.into_owned()),
            typed("007", xsd::INTEGER.into_owned()),
            typed("-7", xsd::INTEGER.into_owned()),
            typed("4294967295", xsd::INTEGER.into_owned()),
            typed("7", xsd::INT.into_owned()),
        ]
    }

    #[test]
    fn a_term_comes_back_as_it_went_in() {
        let mut dictionary = Dictionary::default();
        let ids: Vec<Id> = terms()
            .iter()
            .map(|term| dictionary.intern(term.into(), 9))
            .collect();
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        for (term, id) in terms().iter().zip(&ids) {
            assert_eq!(dictionary.term(*id).as_ref(), Some(term));
            assert_eq!(dictionary.id(term.into(), 9), Some(*id));
        }
        assert_eq!(dictionary.value(ids[8]), "a");
        assert_eq!(dictionary.value(ids[4]), "Grün");
    }

    /// Loading a dictionary changes neither which terms are found nor their use counts.
    #[test]
    fn a_loaded_dictionary_equals_one_of_single_terms() {
        let (mut single, mut loaded) = (Dictionary::default(), Dictionary::loading());
        let numbers = (0..4_000_u32).map(|number| number % 3_000);
        let text = |number: u32| Term::from(Literal::new_simple_literal(format!("term {number}")));
        for dictionary in [&mut single, &mut loaded] {
            for number in numbers.clone() {
                dictionary.intern((&text(number)).into(), 0);
            }
            for number in 500..2_000 {
                let id = dictionary.id((&text(number)).into(), 0).unwrap();
                dictionary.release(id);
            }
        }
        assert_eq!(loaded.len(), 2_000);
        loaded.finish_loading();
        assert!(loaded.loading.is_none());
        for dictionary in [&mut single, &mut loaded] {
            assert_eq!(dictionary.len(), 2_000);
            for number in 0..3_000 {
                let term = text(number);
                let id = dictionary.id((&term).into(), 0);
                assert_eq!(id.is_some(), !(1_000..2_000).contains(&number));
                let Some(id) = id else { continue };
                assert_eq!(dictionary.term(id), Some(term));
                dictionary.release(id);
            }
            assert_eq!(dictionary.len(), 500);
        }
    }

    #[test]
    fn terms_with_one_hash_are_found_while_loading() {
        let mut dictionary = Dictionary::loading();
        let terms: Vec<Vec<u8>> = (0..4_u8).map(|number| vec![TEXT, b'a' + number]).collect();
        let mut ids = Vec::new();
        for bytes in &terms {
            ids.push(dictionary.add(7, bytes));
        }
        let found = |dictionary: &Dictionary| -> Vec<Option<Id>> {
            terms
                .iter()
                .map(|bytes| dictionary.find(7, bytes))
                .collect()
        };
        let all: Vec<Option<Id>> = ids.iter().copied().map(Some).collect();
        assert_eq!(found(&dictionary), all);
        // The first is forgotten, then one of the others.
        dictionary.forget(7, ids[0]);
        assert_eq!(found(&dictionary), [&[None], &all[1..]].concat());
        dictionary.forget(7, ids[2]);
        let left = [None, all[1], None, all[3]];
        assert_eq!(found(&dictionary), left);
        assert_eq!(dictionary.len(), 2);
        dictionary.finish_loading();
        assert_eq!(found(&dictionary), left);
        assert_eq!(dictionary.len(), 2);
    }

    #[test]
    fn blank_nodes_of_two_entities_are_two() {
        let mut dictionary = Dictionary::default();
        let term = Term::from(BlankNode::new_unchecked("a"));
        let ids = [
            dictionary.intern((&term).into(), 1),
            dictionary.intern((&term).into(), 2),
        ];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(dictionary.blank_scope(ids[1]), Some(2));
    }

    #[test]
    fn the_last_use_frees_the_number_and_a_snapshot_keeps_it() {
        let mut dictionary = Dictionary::default();
        let first: Vec<Id> = terms()
            .iter()
            .map(|term| dictionary.intern(term.into(), 0))
            .collect();
        let again: Vec<Id> = terms()
            .iter()
            .map(|term| dictionary.intern(term.into(), 0))
            .collect();
        assert_eq!(first, again);
        let snapshot = dictionary.clone();
        for id in first.iter().chain(&again) {
            dictionary.release(*id);
        }
        assert_eq!(dictionary.len(), 0);
        let other = Term::from(NamedNode::new_unchecked("http://example.com/other"));
        let reused = dictionary.intern((&other).into(), 0);
        assert!(first.contains(&reused));
        assert_eq!(snapshot.term(first[0]), Some(terms()[0].clone()));
        assert_eq!(dictionary.term(reused), Some(other));
    }
}
