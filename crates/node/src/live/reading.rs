//! Builds the next event of a client: reads elements from the log and writes them as JSON.
//!
//! An event of 256 KiB takes milliseconds, and many clients may lag far. Nothing here waits, so that
//! it can run outside the serving thread.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use chappe_log::Store;
use chappe_stream::{Position, StoreError, StreamElement, StreamFollower, StreamSchema};

use super::{Label, VECTOR_MAX, Vector, id};
use crate::catalogue::Entry;
use crate::view::ElementView;

/// Bytes of records in one read, and in one event.
pub(super) const EVENT_BYTES: usize = 256 << 10;
/// Lag in elements from which a client counts as slow and receives a notice.
const LAG: u64 = 5_000;

/// A client's position in each of its streams.
#[derive(Default)]
pub(super) struct Cursors {
    /// By the names under which the streams were defined.
    of_stream: BTreeMap<String, Cursor>,
    /// The stream that was read last.
    last: String,
}

/// A client's position in one stream.
struct Cursor {
    entry: Arc<Entry>,
    label: Label,
    follower: StreamFollower,
    /// The schema of the newest elements, and its version.
    schema: (Arc<StreamSchema>, u32),
    position: Position,
    is_slow: bool,
}

/// The result of one read.
#[derive(Default)]
pub(super) struct Piece {
    /// The event, if there are elements.
    pub(super) event: Option<String>,
    /// The number of elements in it.
    pub(super) elements: u64,
    /// Their bytes in memory.
    pub(super) bytes: usize,
    /// Streams in which the client has become slow, with its lag in elements.
    pub(super) lagging: Vec<(String, u64)>,
    /// Why there is no event though elements were read.
    pub(super) failure: Option<StoreError>,
    /// The stream whose reading failed, with the error; its earlier elements are in the event.
    pub(super) interruption: Option<(String, StoreError)>,
}

/// Elements of one stream to send, with the schema that they were read with; the stream's schema may
/// have changed since.
struct Gathered {
    /// The stream's name.
    name: String,
    schema: Arc<StreamSchema>,
    elements: Vec<StreamElement>,
}

/// The position before the element with number `next`, in the epoch of that element: a client that
/// reconnects with it continues at `next`, whatever epochs follow.
fn before(entry: &Entry, next: u64) -> Position {
    Position {
        sequence: next.saturating_sub(1),
        ..entry.log.position_of(next)
    }
}

impl Cursors {
    /// The number of followed streams.
    pub(super) fn len(&self) -> usize {
        self.of_stream.len()
    }

    /// Whether the stream is followed.
    pub(super) fn follows(&self, name: &str) -> bool {
        self.of_stream.contains_key(name)
    }

    /// Follows a stream from number `next` on.
    pub(super) fn follow(&mut self, entry: Arc<Entry>, label: Label, next: u64) {
        let follower = entry.log.follow_within(next, EVENT_BYTES);
        let schema = Arc::new(follower.schema().clone());
        let cursor = Cursor {
            schema: (schema, follower.schema_version()),
            follower,
            position: before(&entry, next),
            is_slow: false,
            label,
            entry: entry.clone(),
        };
        self.of_stream.insert(entry.name.clone(), cursor);
    }

    /// Stops following a stream.
    pub(super) fn remove(&mut self, name: &str) -> Option<(Arc<Entry>, Label)> {
        let cursor = self.of_stream.remove(name)?;
        Some((cursor.entry, cursor.label))
    }

    /// Stops following some streams; returns their names and the positions that were reached.
    pub(super) fn leave(&mut self, is_left: impl Fn(&Entry) -> bool) -> Vec<(String, Position)> {
        let mut left = Vec::new();
        self.of_stream.retain(|name, cursor| {
            let is_left = is_left(&cursor.entry);
            if is_left {
                left.push((name.clone(), cursor.position));
            }
            !is_left
        });
        left
    }

    /// The name that the client gives to a stream.
    pub(super) fn label(&self, name: &str) -> String {
        let cursor = self.of_stream.get(name);
        cursor.map_or(name.to_owned(), |cursor| cursor.label.of(&cursor.entry))
    }

    /// Moves past missing elements: `next` is the next number.
    pub(super) fn skip_to(&mut self, name: &str, next: u64) {
        if let Some(cursor) = self.of_stream.get_mut(name) {
            cursor.position = before(&cursor.entry, next);
        }
    }

    /// The id of an event that ends here.
    ///
    /// # Errors
    /// The disk does not read.
    pub(super) fn id(&self, store: &Store) -> Result<String, StoreError> {
        let position = |(name, cursor): (&String, &Cursor)| (name.clone(), cursor.position);
        if self.of_stream.len() <= VECTOR_MAX {
            let vector = self.of_stream.iter().map(position).collect();
            return Ok(id(None, &Vector(vector)));
        }
        let reading = self.of_stream.values();
        let reading = reading.map(|it| (it.entry.log.log(), it.position.sequence + 1));
        let (place, behind) = store.place(&reading.collect::<Vec<_>>(), VECTOR_MAX)?;
        let behind: BTreeSet<usize> = behind.into_iter().collect();
        let streams = self.of_stream.iter().enumerate();
        let vector = streams.filter(|(number, _)| behind.contains(number));
        let vector = vector.map(|(_, stream)| position(stream)).collect();
        Ok(id(Some(place), &Vector(vector)))
    }

    /// Waits until there is something to read, without reading it.
    pub(super) async fn ready(&mut self) {
        poll_fn(|context| {
            for cursor in self.of_stream.values_mut() {
                if cursor.follower.poll_ready(context).is_ready() {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Reads available elements, at most one event, and encodes them.
    pub(super) fn read(&mut self, store: &Store) -> Piece {
        let mut piece = Piece::default();
        let mut all = Vec::new();
        while piece.bytes <= EVENT_BYTES {
            match self.next() {
                Some((name, Ok(elements))) => all.extend(self.gather(&name, elements, &mut piece)),
                Some((name, Err(error))) => {
                    piece.interruption = Some((name, error));
                    break;
                }
                None => break,
            }
        }
        if !all.is_empty() {
            match self.id(store) {
                Ok(id) => piece.event = Some(write(&id, &all, &mut piece.elements)),
                Err(error) => piece.failure = Some(error),
            }
        }
        piece
    }

    /// The next elements of any stream. The search starts after the stream `last`, so that none starves.
    fn next(&mut self) -> Option<(String, Result<Vec<StreamElement>, StoreError>)> {
        // `ready` registers the waker.
        let mut context = Context::from_waker(Waker::noop());
        for round in [true, false] {
            for (name, cursor) in &mut self.of_stream {
                if (*name > self.last) == round
                    && let Poll::Ready(result) = cursor.follower.poll_next(&mut context)
                {
                    self.last.clone_from(name);
                    return Some((name.clone(), result));
                }
            }
        }
        None
    }

    fn gather(
        &mut self,
        name: &str,
        elements: Vec<StreamElement>,
        piece: &mut Piece,
    ) -> Option<Gathered> {
        let cursor = self.of_stream.get_mut(name)?;
        if let Some(last) = elements.last() {
            cursor.position = last.position;
        }
        let last = cursor.entry.log.log().last();
        let behind = last.saturating_sub(cursor.position.sequence);
        let was_slow = cursor.is_slow;
        cursor.is_slow = behind > if was_slow { LAG / 4 } else { LAG };
        if cursor.is_slow && !was_slow {
            piece.lagging.push((name.to_owned(), behind));
        }
        piece.bytes += elements
            .iter()
            .map(StreamElement::size_bytes)
            .sum::<usize>();
        let version = cursor.follower.schema_version();
        if cursor.schema.1 != version {
            cursor.schema = (Arc::new(cursor.follower.schema().clone()), version);
        }
        Some(Gathered {
            name: cursor.label.of(&cursor.entry),
            schema: cursor.schema.0.clone(),
            elements,
        })
    }
}

/// The event of these elements; its id is the position after them.
fn write(id: &str, all: &[Gathered], count: &mut u64) -> String {
    let mut data = format!("event: elements\nid: {id}\ndata: {{\"elements\":[");
    for gathered in all {
        for element in &gathered.elements {
            let view = ElementView {
                stream: Some(&gathered.name),
                element,
                schema: &gathered.schema,
            };
            if let Ok(json) = serde_json::to_string(&view) {
                data.push_str(if *count == 0 { "" } else { "," });
                data.push_str(&json);
                *count += 1;
            }
        }
    }
    data.push_str("]}\n\n");
    data
}
