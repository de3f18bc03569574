//! Reads pieces and finds what they are about.
//!
//! Every answer reads a contiguous part of one list of [`crate::piece_keys`], or of one list for each
//! author that was named, up to a limit; the answer's cursor continues there.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use chappe_identity::Principal;

use super::annotate::visible_piece;
use super::error::Error;
use super::piece::{Piece, Value, iri};
use super::wsdl_part;
use crate::ordered::Iter;
use crate::partition::Partition;
use crate::piece_keys::{List, PieceKey};
use crate::registry::Registry;
use crate::rights::Right;
use crate::state::State;

/// Number of items in a page when a request names no limit.
pub const DEFAULT_PAGE: usize = 100;
/// Maximum number of items in a page.
pub const MAX_PAGE: usize = 1_000;
/// Maximum number of criteria of a search, and of authors in each; reason: every one is looked up
/// for each entity that the rarest one finds.
pub const MAX_CRITERIA: usize = 16;
/// Maximum number of entries of the index that one page reads; some 50 ms. The page ends there, with
/// a cursor.
const MAX_READ: usize = 100_000;
/// Maximum size of the pieces in a page, as [`crate::Entity::counted_bytes`] counts them.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// Sorts after every key of a piece: those begin with a letter.
const PAST_KEYS: &str = " ~";

/// What a piece must be; an absent part matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Criterion {
    /// The type, an IRI.
    pub piece_type: Option<String>,
    /// The value, exactly; no graph.
    pub value: Option<Value>,
    /// The author is one of these; none: anyone.
    pub authors: Vec<String>,
    /// Not earlier than this, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// Earlier than this.
    pub until_ms: Option<i64>,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The cursor of the next part; `None` at the end. A part may be empty and have a next one.
    pub next: Option<String>,
    /// Entries of the index that were read.
    pub entries_read: usize,
}

impl Registry {
    /// The metadata that `principal` may see now.
    #[must_use]
    pub fn metadata(&self, principal: &Principal) -> Metadata {
        Metadata {
            state: self.snapshot(),
            principal: principal.clone(),
        }
    }
}

/// The metadata of one state of the registry, as one principal sees it.
pub struct Metadata {
    state: Arc<State>,
    principal: Principal,
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metadata")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

impl Metadata {
    /// The piece with this key (get_metadataDetail). A piece whose subject does not exist, or is
    /// hidden from the caller, exists only for its author and the operator.
    ///
    /// # Errors
    /// [`Error::UnknownPiece`].
    pub fn piece(&self, key: &str) -> Result<Piece, Error> {
        let piece = visible_piece(&self.state, key, &self.principal)?;
        match self.is_shown(&piece.subject, &piece.author) {
            true => Ok(piece),
            false => Err(Error::UnknownPiece(piece.key)),
        }
    }

    /// The pieces about an entity (get_entityMetadata), in the order of their keys.
    ///
    /// # Errors
    /// [`Error::UnknownSubject`].
    pub fn of_subject(
        &self,
        subject: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Piece>, Error> {
        self.pieces(Some(subject), &Criterion::default(), after, limit)
    }

    /// The pieces that are as asked, of one subject or of all, in the order of subjects and keys.
    /// Those of the caller itself whose subject does not exist are among them.
    ///
    /// # Errors
    /// [`Error::UnknownSubject`], or [`Error::Invalid`] if neither a subject nor a type, a value or an
    /// author is named.
    pub fn pieces(
        &self,
        subject: Option<&str>,
        asked: &Criterion,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Piece>, Error> {
        if let Some(subject) = subject.filter(|subject| !self.sees_subject(subject)) {
            return Err(Error::UnknownSubject(subject.chars().take(200).collect()));
        }
        check(std::slice::from_ref(asked), subject.is_some())?;
        let mut page = Page {
            items: Vec::new(),
            next: None,
            entries_read: 0,
        };
        let Some(lists) = self.lists(asked, subject)? else {
            return Ok(page);
        };
        let under = subject.map(|subject| format!("{subject} "));
        let under = under.as_deref().unwrap_or_default();
        let partitions = self.state.visible(&self.principal);
        let mut walk = Walk::new(&partitions, &lists, under, after);
        let limit = limit.clamp(1, MAX_PAGE);
        let mut bytes = 0;
        let mut last: Option<Arc<str>> = None;
        while let Some(key) = walk.next().filter(|key| key.text.starts_with(under)) {
            page.entries_read += 1;
            let is_full = page.items.len() >= limit || bytes >= MAX_PAGE_BYTES;
            if is_full || page.entries_read > MAX_READ {
                page.next = last.map(|text| text.to_string());
                break;
            }
            last = Some(Arc::clone(&key.text));
            if !is_in_time(asked, &key) {
                continue;
            }
            let entity = self.state.entity(key.entity);
            let Some(entity) = entity.filter(|entity| self.is_shown(key.subject(), &entity.owner))
            else {
                continue;
            };
            bytes += entity.counted_bytes();
            page.items.extend(Piece::from_entity(entity));
        }
        Ok(page)
    }

    /// The keys of the entities that have a piece for each criterion (find_entityByMetadata), in
    /// their order as texts. Parts of WSDL documents are among them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no criterion, or one names neither a type nor a value nor an
    /// author.
    pub fn entities(
        &self,
        asked: &[Criterion],
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<String>, Error> {
        self.entities_where(asked, after, limit, |_| true)
    }

    /// The same, of the entities that `wanted` accepts by their key.
    pub(crate) fn entities_where(
        &self,
        asked: &[Criterion],
        after: Option<&str>,
        limit: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Page<String>, Error> {
        check(asked, false)?;
        if asked.is_empty() {
            return Err(Error::invalid("criteria", "are missing"));
        }
        let mut page = Page {
            items: Vec::new(),
            next: None,
            entries_read: 0,
        };
        let mut lists = Vec::with_capacity(asked.len());
        for criterion in asked {
            match self.lists(criterion, None)? {
                Some(of) => lists.push((criterion, of)),
                None => return Ok(page),
            }
        }
        let partitions = self.state.visible(&self.principal);
        lists.sort_by_key(|(_, lists)| count(&partitions, lists));
        let Some(((rarest, first), others)) = lists.split_first() else {
            return Ok(page);
        };
        let mut walk = Walk::new(&partitions, first, "", after);
        let mut decided: Option<Arc<str>> = None;
        let mut last: Option<Arc<str>> = None;
        while let Some(key) = walk.next() {
            page.entries_read += 1;
            let subject = key.subject();
            let is_decided = decided
                .as_deref()
                .is_some_and(|text| subject_of(text) == subject);
            if !is_decided && page.items.len() >= limit.clamp(1, MAX_PAGE) {
                page.next = decided.map(|text| format!("{}{PAST_KEYS}", subject_of(&text)));
                break;
            }
            if page.entries_read > MAX_READ {
                page.next = last.map(|text| text.to_string());
                break;
            }
            last = Some(Arc::clone(&key.text));
            if is_decided || !is_in_time(rarest, &key) {
                continue;
            }
            decided = Some(Arc::clone(&key.text));
            let has_others = others.iter().all(|(criterion, lists)| {
                let (has, read) = has(&partitions, lists, criterion, subject);
                page.entries_read += read;
                has
            });
            if has_others && wanted(subject) && self.sees_subject(subject) {
                page.items.push(subject.to_owned());
            }
        }
        Ok(page)
    }

    /// Whether an entity has a piece for each criterion.
    ///
    /// # Errors
    /// As [`Metadata::entities`].
    pub fn has(&self, subject: &str, asked: &[Criterion]) -> Result<bool, Error> {
        check(asked, false)?;
        let partitions = self.state.visible(&self.principal);
        for criterion in asked {
            let lists = self.lists(criterion, None)?;
            let found = lists.is_some_and(|lists| has(&partitions, &lists, criterion, subject).0);
            if !found {
                return Ok(false);
            }
        }
        Ok(self.sees_subject(subject))
    }

    /// At most how many pieces are as asked: those of its type, value and authors, at any time.
    ///
    /// # Errors
    /// As [`Metadata::entities`].
    pub fn count(&self, asked: &Criterion) -> Result<usize, Error> {
        check(std::slice::from_ref(asked), false)?;
        let lists = self.lists(asked, None)?;
        let partitions = self.state.visible(&self.principal);
        Ok(lists.map_or(0, |lists| count(&partitions, &lists)))
    }

    /// Whether the caller sees the subject of a piece. That a part of a WSDL document exists is not
    /// checked.
    pub(crate) fn sees_subject(&self, subject: &str) -> bool {
        wsdl_part::is_part(subject)
            || self
                .state
                .rule_of(subject)
                .is_some_and(|(rule, _)| rule.permits(&self.principal, Right::Read))
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn shared_state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    fn is_shown(&self, subject: &str, author: &str) -> bool {
        self.principal.may_act_for(author) || self.sees_subject(subject)
    }

    /// The lists that hold the pieces of a criterion, whatever their date; `None`: there are none.
    fn lists(&self, asked: &Criterion, subject: Option<&str>) -> Result<Option<Vec<List>>, Error> {
        let dictionary = &self.state.dictionary;
        let kind = match &asked.piece_type {
            None => None,
            Some(text) => {
                iri("type", text)?;
                match dictionary.iri(text) {
                    None => return Ok(None),
                    found => found,
                }
            }
        };
        let value = match &asked.value {
            None => None,
            Some(value) => {
                let term = value.term()?;
                let term = term.ok_or_else(|| {
                    Error::invalid("value", "is a graph; ask for graphs with SPARQL")
                })?;
                match dictionary.id((&term).into(), 0) {
                    None => return Ok(None),
                    found => found,
                }
            }
        };
        let authors = asked.authors.iter();
        let authors: Vec<_> = authors.filter_map(|name| dictionary.text(name)).collect();
        if authors.is_empty() && !asked.authors.is_empty() {
            return Ok(None);
        }
        let is_anyone = asked.authors.is_empty();
        let by = |list: &dyn Fn(u32) -> List| authors.iter().map(|author| list(*author)).collect();
        Ok(Some(match (kind, value) {
            (Some(kind), Some(value)) if is_anyone => vec![List::Value(kind, value)],
            (Some(kind), Some(value)) => by(&|author| List::ValueBy(kind, value, author)),
            (Some(kind), None) if is_anyone => vec![List::Type(kind)],
            (Some(kind), None) => by(&|author| List::TypeBy(kind, author)),
            (None, Some(value)) if is_anyone => vec![List::AnyValue(value)],
            (None, Some(value)) => by(&|author| List::AnyValueBy(value, author)),
            (None, None) if is_anyone => {
                let subject = subject.and_then(|subject| dictionary.iri(subject));
                return Ok(subject.map(|subject| vec![List::Subject(subject)]));
            }
            (None, None) => by(&List::Author),
        }))
    }
}

/// Refuses criteria that would have to read everything.
fn check(asked: &[Criterion], has_subject: bool) -> Result<(), Error> {
    if asked.len() > MAX_CRITERIA {
        let reason = format!("are more than {MAX_CRITERIA}");
        return Err(Error::invalid("criteria", reason));
    }
    for criterion in asked {
        if criterion.authors.len() > MAX_CRITERIA {
            let reason = format!("has more than {MAX_CRITERIA} authors");
            return Err(Error::invalid("criterion", reason));
        }
        let is_empty = criterion.piece_type.is_none()
            && criterion.value.is_none()
            && criterion.authors.is_empty();
        if is_empty && !has_subject {
            let reason = "names neither a type nor a value nor an author";
            return Err(Error::invalid("criterion", reason));
        }
    }
    Ok(())
}

fn is_in_time(asked: &Criterion, key: &PieceKey) -> bool {
    asked.from_ms.is_none_or(|from| key.date_ms >= from)
        && asked.until_ms.is_none_or(|until| key.date_ms < until)
}

fn subject_of(text: &str) -> &str {
    text.split_once(' ').map_or(text, |(subject, _)| subject)
}

/// How many pieces are in the lists, counted for each set of indexes that holds them.
fn count(partitions: &[Arc<Partition>], lists: &[List]) -> usize {
    let of = |partition: &Arc<Partition>, list: List| {
        let pieces = &partition.pieces;
        pieces.rank(|key| key.list <= list) - pieces.rank(|key| key.list < list)
    };
    let counts = partitions
        .iter()
        .flat_map(|partition| lists.iter().map(move |list| of(partition, *list)));
    counts.sum()
}

/// Whether a subject has a piece in the lists at the right time, and how many entries were read.
fn has(
    partitions: &[Arc<Partition>],
    lists: &[List],
    asked: &Criterion,
    subject: &str,
) -> (bool, usize) {
    let under = format!("{subject} ");
    let mut walk = Walk::new(partitions, lists, &under, None);
    let mut read = 0;
    while let Some(key) = walk.next().filter(|key| key.text.starts_with(&under)) {
        read += 1;
        if is_in_time(asked, &key) {
            return (true, read);
        }
        if read > MAX_READ {
            break;
        }
    }
    (false, read + 1)
}

/// Parts of several lists, read in order as one.
struct Walk {
    parts: Vec<(List, Iter<PieceKey>)>,
    /// The next key of each part.
    heads: BinaryHeap<Reverse<(PieceKeyByText, usize)>>,
    last: Option<Arc<str>>,
}

/// A key ordered by its text alone.
struct PieceKeyByText(PieceKey);

impl PartialEq for PieceKeyByText {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for PieceKeyByText {}

impl PartialOrd for PieceKeyByText {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PieceKeyByText {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.text.cmp(&other.0.text)
    }
}

impl Walk {
    /// From the first text that is not before `from` and comes after `after`.
    fn new(partitions: &[Arc<Partition>], lists: &[List], from: &str, after: Option<&str>) -> Self {
        let mut walk = Self {
            parts: Vec::new(),
            heads: BinaryHeap::new(),
            last: None,
        };
        let is_before = |text: &str| text < from || after.is_some_and(|after| text <= after);
        for partition in partitions {
            for list in lists {
                let keys = partition
                    .pieces
                    .iter_from(|key| key.list < *list || key.list == *list && is_before(&key.text));
                walk.parts.push((*list, keys));
                walk.advance(walk.parts.len() - 1);
            }
        }
        walk
    }

    fn advance(&mut self, part: usize) {
        let Some((list, keys)) = self.parts.get_mut(part) else {
            return;
        };
        if let Some(key) = keys.next().filter(|key| key.list == *list) {
            self.heads.push(Reverse((PieceKeyByText(key), part)));
        }
    }

    /// The next key; a piece in several sets of indexes counts once.
    fn next(&mut self) -> Option<PieceKey> {
        loop {
            let Reverse((PieceKeyByText(key), part)) = self.heads.pop()?;
            self.advance(part);
            if self.last.as_ref() != Some(&key.text) {
                self.last = Some(Arc::clone(&key.text));
                return Some(key);
            }
        }
    }
}
