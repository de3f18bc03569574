//! Elements that are sent again: a sender whose answer was lost repeats its message, perhaps after a restart of this
//! node, and a stream has each element once.
//!
//! An element is the same if time, key, quality and values are. One that is newer than all of its stream costs no look
//! at the disk: only of a batch with older times, the elements of these times are read.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;

use chappe_stream::{StoreError, StreamElement, Timestamp, Value};

use super::progress::Prepared;
use crate::catalogue;

/// Elements of a batch's times that are read at once; reason: they are held. More are read in pieces.
const READ_MAX: usize = 20_000;

/// What is known of the times of streams.
#[derive(Default)]
pub(super) struct Repeats {
    /// The newest time of each stream that was queued or stored; no element is newer.
    newest: HashMap<String, Timestamp>,
}

impl Repeats {
    /// Removes the elements that their stream has, or that occur twice; returns their number.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn remove(&mut self, part: &mut Prepared) -> Result<u64, StoreError> {
        let times = part.elements.iter().map(|element| element.source_time);
        let (Some(oldest), Some(newest)) = (times.clone().min(), times.max()) else {
            return Ok(0);
        };
        let before = part.elements.len();
        let known = self.newest.get(&part.entry.name).copied();
        if known.is_none_or(|known| oldest <= known) {
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
                        self.newest.insert(part.entry.name.clone(), newest);
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
        }
        remove_doubles(&mut part.elements);
        if let Some(known) = self.newest.get_mut(&part.entry.name) {
            *known = (*known).max(newest);
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

/// Removes elements that are the same as an earlier one.
fn remove_doubles(elements: &mut Vec<StreamElement>) {
    let is_rising = |pair: &[StreamElement]| pair[0].source_time < pair[1].source_time;
    if elements.windows(2).all(is_rising) {
        return;
    }
    let mut known: HashMap<u64, Vec<usize>> = HashMap::with_capacity(elements.len());
    let mut is_first = Vec::with_capacity(elements.len());
    for (index, element) in elements.iter().enumerate() {
        let same = known.entry(digest(element)).or_default();
        let is_new = !same.iter().any(|at| is_same(&elements[*at], element));
        if is_new {
            same.push(index);
        }
        is_first.push(is_new);
    }
    let mut is_first = is_first.into_iter();
    elements.retain(|_| is_first.next().unwrap_or(true));
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
        remove_doubles(&mut elements);
        let left: Vec<_> = elements
            .iter()
            .map(|it| (it.source_time.0, it.key.as_deref()))
            .collect();
        assert_eq!(left, [(1, Some("a")), (1, Some("b")), (2, Some("a"))]);
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
