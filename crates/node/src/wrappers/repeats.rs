//! Elements that are sent again: a sender whose answer was lost repeats its message, perhaps after a restart of this
//! node, and a stream has each element once.
//!
//! An element is the same if time, key, quality and values are. An element that is newer than all of its stream costs
//! no look at the disk, nor does one among the newest, whose digests are held: messages of several senders do not come
//! in the order of their times. Of a batch with older times, or with a digest that is known, the elements of these times
//! are read.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;

use chappe_stream::{StoreError, StreamElement, Timestamp, Value};

use super::progress::Prepared;
use crate::catalogue;

/// Elements of a batch's times that are read at once; reason: they are held. More are read in pieces.
const READ_MAX: usize = 20_000;
/// Digests that are held for all streams of a wrapper; reason: some ten messages of agents, in 4 MiB.
const DIGESTS_MAX: usize = 131_072;

/// What is known of the elements of streams.
#[derive(Default)]
pub(super) struct Repeats {
    streams: HashMap<String, Known>,
}

/// What is known of the elements of a stream, queued ones included.
struct Known {
    /// The number after the last element, as long as nobody else writes.
    next: u64,
    /// No element is newer.
    newest: Timestamp,
    /// The digests of all elements from this time on are held.
    complete_from: Timestamp,
    digests: HashSet<u64>,
    /// They with their times, in the order of the elements.
    order: VecDeque<(Timestamp, u64)>,
}

impl Known {
    /// A stream without elements that are newer than this.
    fn new(next: u64, newest: Timestamp) -> Self {
        Self {
            next,
            newest,
            complete_from: Timestamp(newest.0.saturating_add(1)),
            digests: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    /// Whether it has none of the elements with these digests, of which this is the oldest time.
    fn lacks(&self, oldest: Timestamp, digests: &[u64]) -> bool {
        let has_any = || digests.iter().any(|digest| self.digests.contains(digest));
        oldest > self.newest || (oldest >= self.complete_from && !has_any())
    }

    /// Adds elements, which are stored next; of all, the newest `most` digests are held.
    fn add(&mut self, elements: &[StreamElement], digests: &[u64], most: usize) {
        self.next += elements.len() as u64;
        for (element, digest) in elements.iter().zip(digests) {
            self.newest = self.newest.max(element.source_time);
            self.digests.insert(*digest);
            self.order.push_back((element.source_time, *digest));
        }
        let surplus = self.order.len().saturating_sub(most);
        for (time, digest) in self.order.drain(..surplus) {
            self.digests.remove(&digest);
            let after = Timestamp(time.0.saturating_add(1));
            self.complete_from = self.complete_from.max(after);
        }
    }
}

impl Repeats {
    /// Removes the elements that their stream has, or that occur twice; returns their number. The others must be
    /// stored next.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn remove(&mut self, part: &mut Prepared) -> Result<u64, StoreError> {
        let times = part.elements.iter().map(|element| element.source_time);
        let (Some(oldest), Some(newest)) = (times.clone().min(), times.max()) else {
            return Ok(0);
        };
        let before = part.elements.len();
        let name = &part.entry.name;
        let assigned = part.entry.log.log().assigned();
        if self.streams.get(name).is_some_and(|it| it.next != assigned) {
            self.streams.remove(name);
        }
        let mut digests: Vec<u64> = part.elements.iter().map(digest).collect();
        let known = self.streams.get(name);
        if !known.is_some_and(|known| known.lacks(oldest, &digests)) {
            let entry = part.entry.clone();
            // What is on its way is not read.
            entry.log.log().settled().await;
            let read = tokio::task::spawn_blocking(move || stored(&entry, oldest, newest)).await;
            let closed = |_| Err(StoreError::Log(chappe_log::Error::Closed));
            match read.unwrap_or_else(closed)? {
                Stored::All(stored, is_newest) => {
                    let stored: Times<'_> = by_time(&stored);
                    let is_new = |element: &StreamElement| {
                        let same = stored.get(&element.source_time);
                        !same.is_some_and(|same| same.iter().any(|it| is_same(it, element)))
                    };
                    part.elements.retain(is_new);
                    if is_newest {
                        let known = || Known::new(assigned, newest);
                        self.streams.entry(name.clone()).or_insert_with(known);
                    }
                }
                Stored::TooMany => {
                    let (entry, elements) =
                        (part.entry.clone(), std::mem::take(&mut part.elements));
                    let times = oldest..Timestamp(newest.0.saturating_add(1));
                    let search = move || unknown(&entry, elements, times);
                    let kept = tokio::task::spawn_blocking(search).await;
                    part.elements = kept.unwrap_or_else(closed_elements)?;
                }
            }
            digests = part.elements.iter().map(digest).collect();
        }
        remove_doubles(&mut part.elements, &mut digests);
        let most = DIGESTS_MAX / self.streams.len().max(1);
        if let Some(known) = self.streams.get_mut(name) {
            known.add(&part.elements, &digests, most);
        }
        Ok((before - part.elements.len()) as u64)
    }
}

fn closed_elements(_: tokio::task::JoinError) -> Result<Vec<StreamElement>, StoreError> {
    Err(StoreError::Log(chappe_log::Error::Closed))
}

/// The elements of a stream with times of a batch.
enum Stored {
    /// They, and whether there is none that is newer.
    All(Vec<StreamElement>, bool),
    /// There are too many to be held.
    TooMany,
}

/// Reads the elements of a stream from `oldest` to `newest`.
fn stored(
    entry: &Arc<catalogue::Entry>,
    oldest: Timestamp,
    newest: Timestamp,
) -> Result<Stored, StoreError> {
    let after = Timestamp(newest.0.saturating_add(1));
    let elements = entry.log.range(oldest, after, READ_MAX)?;
    if elements.len() == READ_MAX {
        return Ok(Stored::TooMany);
    }
    let newer = entry.log.range(after, Timestamp(i64::MAX), 1)?;
    Ok(Stored::All(elements, newer.is_empty()))
}

/// The elements that their stream does not have. The stream is read once, piece by piece, so that a batch costs the
/// same however many elements have its times.
fn unknown(
    entry: &Arc<catalogue::Entry>,
    elements: Vec<StreamElement>,
    times: Range<Timestamp>,
) -> Result<Vec<StreamElement>, StoreError> {
    let mut search = Search::new(elements);
    let mut scan = entry.log.scan(0, Some(times));
    loop {
        match scan.next_piece(READ_MAX) {
            Ok(None) => return Ok(search.unknown()),
            Ok(Some(piece)) => piece.iter().for_each(|stored| search.pass(stored)),
            // What is damaged cannot be compared.
            Err(StoreError::Log(chappe_log::Error::Gap { .. })) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Elements that are looked for among those of their stream.
struct Search {
    elements: Vec<Option<StreamElement>>,
    by_digest: HashMap<u64, Vec<usize>>,
}

impl Search {
    fn new(elements: Vec<StreamElement>) -> Self {
        let mut by_digest = HashMap::<_, Vec<usize>>::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            by_digest.entry(digest(element)).or_default().push(index);
        }
        let elements = elements.into_iter().map(Some).collect();
        Self {
            elements,
            by_digest,
        }
    }

    /// The stream has this element.
    fn pass(&mut self, stored: &StreamElement) {
        for index in self.by_digest.get(&digest(stored)).into_iter().flatten() {
            let element = &mut self.elements[*index];
            if element.as_ref().is_some_and(|it| is_same(stored, it)) {
                *element = None;
            }
        }
    }

    /// Those that no element of the stream was the same as.
    fn unknown(self) -> Vec<StreamElement> {
        self.elements.into_iter().flatten().collect()
    }
}

/// What an element has for a column that was added later.
static NULL: Value = Value::Null;

/// The value of an element in a column.
fn value(element: &StreamElement, column: usize) -> &Value {
    element.values.get(column).unwrap_or(&NULL)
}

/// Elements by their times.
type Times<'e> = HashMap<Timestamp, Vec<&'e StreamElement>>;

fn by_time(elements: &[StreamElement]) -> Times<'_> {
    let mut times = Times::with_capacity(elements.len());
    for element in elements {
        times.entry(element.source_time).or_default().push(element);
    }
    times
}

/// Removes elements that are the same as an earlier one, and their digests.
fn remove_doubles(elements: &mut Vec<StreamElement>, digests: &mut Vec<u64>) {
    let is_rising = |pair: &[StreamElement]| pair[0].source_time < pair[1].source_time;
    if elements.windows(2).all(is_rising) {
        return;
    }
    let mut known: HashMap<u64, usize> = HashMap::with_capacity(elements.len());
    let mut is_first = Vec::with_capacity(elements.len());
    for (index, digest) in digests.iter().enumerate() {
        let first = *known.entry(*digest).or_insert(index);
        is_first.push(first == index || !is_same(&elements[first], &elements[index]));
    }
    let mut kept = is_first.iter();
    elements.retain(|_| kept.next().is_none_or(|is_first| *is_first));
    let mut kept = is_first.iter();
    digests.retain(|_| kept.next().is_none_or(|is_first| *is_first));
}

/// A number that elements have in common which [`is_same`] calls the same, and few others. Columns without a value do
/// not count.
fn digest(element: &StreamElement) -> u64 {
    let mut hasher = DefaultHasher::new();
    element.source_time.hash(&mut hasher);
    element.key.hash(&mut hasher);
    for (column, value) in element.values.iter().enumerate() {
        match value {
            Value::Null => continue,
            Value::Boolean(it) => it.hash(&mut hasher),
            Value::Integer(it) => it.hash(&mut hasher),
            Value::Double(it) => it.to_bits().hash(&mut hasher),
            Value::Text(it) => it.hash(&mut hasher),
            Value::Bytes(it) => it.hash(&mut hasher),
            Value::Samples(it) => it.start.hash(&mut hasher),
        }
        column.hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether two elements are the same apart from what this node adds. A column that was added since has no value in
/// the older one.
fn is_same(one: &StreamElement, other: &StreamElement) -> bool {
    let is_same_value = |column| match (value(one, column), value(other, column)) {
        // A number that is none is itself.
        (Value::Double(one), Value::Double(other)) => one.to_bits() == other.to_bits(),
        (one, other) => one == other,
    };
    one.source_time == other.source_time
        && one.key == other.key
        && one.quality == other.quality
        && (0..one.values.len().max(other.values.len())).all(is_same_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(time: i64, key: Option<&str>, values: Vec<Value>) -> StreamElement {
        StreamElement {
            position: Default::default(),
            source_time: Timestamp(time),
            receive_time: Timestamp(0),
            key: key.map(str::to_owned),
            values,
            quality: Default::default(),
            origin: None,
        }
    }

    #[test]
    fn an_element_is_the_same_by_time_key_and_values() {
        let number = |value| vec![Value::Double(value)];
        let one = element(1, Some("a"), number(f64::NAN));
        assert!(is_same(&one, &element(1, Some("a"), number(f64::NAN))));
        let wider = element(1, Some("a"), vec![Value::Double(f64::NAN), Value::Null]);
        assert!(is_same(&one, &wider));
        for other in [
            element(2, Some("a"), number(f64::NAN)),
            element(1, Some("b"), number(f64::NAN)),
            element(1, Some("a"), number(1.0)),
        ] {
            assert!(!is_same(&one, &other));
        }
    }

    #[test]
    fn doubles_of_a_batch_are_removed() {
        let text = |time, key| element(time, Some(key), vec![Value::Null]);
        let mut elements = vec![text(1, "a"), text(1, "b"), text(1, "a"), text(2, "a")];
        let mut digests = elements.iter().map(digest).collect();
        remove_doubles(&mut elements, &mut digests);
        assert_eq!(digests, elements.iter().map(digest).collect::<Vec<_>>());
        let left: Vec<_> = elements
            .iter()
            .map(|it| (it.source_time.0, it.key.as_deref()))
            .collect();
        assert_eq!(left, [(1, Some("a")), (1, Some("b")), (2, Some("a"))]);
    }

    #[test]
    fn elements_among_the_newest_need_no_look_at_the_disk() {
        let elements = |times: std::ops::Range<i64>| -> (Vec<StreamElement>, Vec<u64>) {
            let elements: Vec<_> = times.map(|time| element(time, Some("a"), vec![])).collect();
            let digests = elements.iter().map(digest).collect();
            (elements, digests)
        };
        let mut known = Known::new(7, Timestamp(99));
        let lacks = |known: &Known, times| {
            let (elements, digests) = elements(times);
            known.lacks(elements[0].source_time, &digests)
        };
        assert!(lacks(&known, 100..103));
        assert!(!lacks(&known, 99..103), "older elements may be stored");
        for times in [110..120, 100..103] {
            let (elements, digests) = elements(times);
            known.add(&elements, &digests, 12);
        }
        assert_eq!((known.next, known.newest), (20, Timestamp(119)));
        assert!(!lacks(&known, 112..113), "it has this one");
        assert!(lacks(&known, 120..130));
        // One was too many, and from its time on the others are complete.
        assert!(!lacks(&known, 103..110));
        let (others, digests) = elements(111..112);
        let others: Vec<_> = others
            .iter()
            .map(|one| element(one.source_time.0, Some("b"), vec![]))
            .collect();
        assert_ne!(digests[0], digest(&others[0]));
        assert!(known.lacks(Timestamp(111), &[digest(&others[0])]));
    }

    #[test]
    fn of_many_elements_with_one_time_those_that_are_stored_are_found() {
        let numbered = |number| element(1, Some("a"), vec![Value::Integer(number)]);
        let mut search = Search::new((0..30_000).map(numbered).collect());
        for number in (0..60_000).step_by(2) {
            search.pass(&numbered(number));
        }
        search.pass(&element(2, Some("a"), vec![Value::Integer(1)]));
        let left = search.unknown();
        let expected: Vec<_> = (0..30_000).skip(1).step_by(2).map(numbered).collect();
        assert_eq!(left, expected);
    }
}
