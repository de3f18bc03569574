//! Streams read for a peer: those of an exporter, and the inputs of a processor. Each has a follower and a
//! position of its own, and all have their turn.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use chappe_stream::{
    Epoch, Position, StoreError, StreamElement, StreamLog, Written, WrittenFollower,
};
use chappe_transport::Hop;
use chappe_wrappers::{
    BATCH_BYTES_MAX, Batch, INPUT_BYTES_MAX, Inputs, Part, StartKey, StreamDefinition,
    element_weight,
};
use serde::{Deserialize, Serialize};

use super::table::Exported;
use crate::catalogue::{AUDIT, Entry};
use crate::shared::App;

/// Elements that are read at once; reason: what the peer gets again after a crash, and what a program that reads slowly
/// has to take.
const READ_ELEMENTS: usize = 256;
/// The same for a peer that has many on their way; reason: a read takes whole frames from the disk, and a frame of
/// elements that arrived together has about as many.
const READ_ELEMENTS_AHEAD: usize = 2_048;

/// The positions of streams.
pub(super) type Positions = BTreeMap<String, Position>;
/// Elements that were removed before they were read, by stream, since the reader started. Clones share it.
pub(super) type Missed = Arc<Mutex<BTreeMap<String, u64>>>;

/// Moves on to a position, never back within an epoch.
pub(super) fn advance(positions: &mut Positions, stream: &str, at: Position) {
    let known = positions.entry(stream.to_owned()).or_insert(at);
    if known.epoch != at.epoch || known.sequence < at.sequence {
        *known = at;
    }
}

/// How far each stream was read. Its fields are the format of the record.
#[derive(Serialize, Deserialize)]
struct Record(Vec<(String, u64, u64)>);

/// Positions as bytes.
pub(super) fn encode(positions: &Positions) -> Vec<u8> {
    let positions = positions.iter();
    let flat = positions.map(|(name, at)| (name.clone(), at.epoch.0, at.sequence));
    // Plain data always encodes.
    postcard::to_allocvec(&Record(flat.collect())).unwrap_or_default()
}

/// The positions that were encoded.
pub(super) fn decode(bytes: &[u8]) -> Option<Positions> {
    let Record(flat) = postcard::from_bytes(bytes).ok()?;
    let positions = flat.into_iter().map(|(name, epoch, sequence)| {
        let epoch = Epoch(epoch);
        (name, Position { epoch, sequence })
    });
    Some(positions.collect())
}

/// Reads streams for a peer.
pub(super) struct Reading {
    app: App,
    /// The name of the exporter or wrapper.
    reader: String,
    /// The reason of elements that were removed before they were read.
    removed: &'static str,
    inputs: Inputs,
    /// Bytes of elements after which no other stream is read before they are returned.
    read_bytes: usize,
    /// Elements of a stream that are read at once.
    read_elements: usize,
    /// Most bytes of elements that are returned at once, unless one element has more.
    batch_bytes: usize,
    followers: BTreeMap<String, Followed>,
    missed: Missed,
    /// The stream that was read last: the next one has its turn.
    last: Option<String>,
    /// What was read and not returned yet.
    waiting: VecDeque<Waiting>,
}

/// Elements of one stream that were read and not returned yet.
struct Waiting {
    stream: Arc<str>,
    definition: Arc<StreamDefinition>,
    elements: std::vec::IntoIter<StreamElement>,
}

struct Followed {
    name: Arc<str>,
    follower: WrittenFollower,
    /// The definition of the elements that were read last, by the version of the schema.
    definition: Option<(u32, Arc<StreamDefinition>)>,
}

impl Reading {
    /// Reads the streams of an exporter.
    pub(super) fn of_exporter(app: &App, reader: &str, inputs: Inputs, missed: Missed) -> Self {
        Self {
            app: app.clone(),
            reader: reader.to_owned(),
            removed: "removed before export",
            inputs,
            read_bytes: BATCH_BYTES_MAX / 2,
            read_elements: READ_ELEMENTS,
            batch_bytes: usize::MAX,
            followers: BTreeMap::new(),
            missed,
            last: None,
            waiting: VecDeque::new(),
        }
    }

    /// Reads more at once, for a peer that has many elements on their way.
    pub(super) fn read_ahead(&mut self) {
        self.read_elements = READ_ELEMENTS_AHEAD;
    }

    /// Reads the inputs of a processor.
    pub(super) fn of_processor(app: &App, reader: &str, inputs: Inputs, missed: Missed) -> Self {
        Self {
            removed: "removed before processing",
            read_bytes: INPUT_BYTES_MAX,
            batch_bytes: INPUT_BYTES_MAX,
            ..Self::of_exporter(app, reader, inputs, missed)
        }
    }

    /// The streams that exist and are selected, now.
    pub(super) fn selected(&self) -> Vec<Arc<Entry>> {
        let entries = self.app.catalogue.entries().into_iter();
        let selected = entries.filter(|entry| {
            // A renamed stream is selected by any of its names.
            let selects = |name: &str| self.inputs.selects(name);
            entry.name != AUDIT && entry.log.has_name(selects)
        });
        selected.collect()
    }

    /// Follows the streams that are selected. True if one starts at its next element: then its position is
    /// among `positions`, and has to be stored.
    pub(super) fn follow(&mut self, positions: &mut Positions) -> bool {
        let mut is_new = false;
        for entry in self.selected() {
            let log = &entry.log;
            if self.followers.contains_key(&entry.name) {
                continue;
            }
            let from = match positions.get(&entry.name) {
                Some(at) => self.resume(log, *at),
                None if self.inputs.start == StartKey::New => {
                    is_new = true;
                    let at = Position {
                        epoch: Epoch(log.log().epoch()),
                        sequence: log.log().last(),
                    };
                    advance(positions, &entry.name, at);
                    at.sequence + 1
                }
                None => 0,
            };
            let followed = Followed {
                name: entry.name.as_str().into(),
                follower: log
                    .follow_written(from)
                    .within(2 * self.read_bytes)
                    .elements(self.read_elements),
                definition: None,
            };
            self.followers.insert(entry.name.clone(), followed);
        }
        is_new
    }

    /// The number after a position.
    fn resume(&self, log: &StreamLog, at: Position) -> u64 {
        let position = chappe_log::Position {
            epoch: at.epoch.0,
            sequence: at.sequence,
        };
        log.log().resume(position).unwrap_or_else(|rollback| {
            let detail = format!("{}: {at} is no longer a position", log.name());
            let drops = &self.app.observability.drops;
            drops.record(Hop::Element, "rolled back", &self.reader, detail, None);
            rollback.next
        })
    }

    /// The names of the streams that are followed.
    pub(super) fn streams(&self) -> impl Iterator<Item = &str> {
        self.followers.keys().map(String::as_str)
    }

    /// The streams that are followed, and how far each was read.
    pub(super) fn shown(&self, positions: &Positions) -> Vec<Exported> {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = self.followers.keys().map(|stream| Exported {
            stream: stream.clone(),
            read: positions.get(stream).map_or(0, |at| at.sequence),
            missed: missed.get(stream).copied().unwrap_or(0),
        });
        shown.collect()
    }

    /// The next elements, from each stream in turn; never empty. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The log failed.
    pub(super) async fn next(&mut self) -> Result<Batch, StoreError> {
        if self.waiting.is_empty() {
            let parts = poll_fn(|context| self.poll_parts(context)).await?;
            let waiting = parts.into_iter().map(|part| Waiting {
                stream: part.stream,
                definition: part.definition,
                elements: part.elements.into_iter(),
            });
            self.waiting.extend(waiting);
        }
        Ok(self.take())
    }

    /// What waits, as far as it may be returned at once.
    fn take(&mut self) -> Batch {
        let (mut batch, mut weight) = (Batch::default(), 0);
        while weight < self.batch_bytes
            && let Some(waiting) = self.waiting.front_mut()
        {
            let fits = |element: &StreamElement| {
                let fits = weight < self.batch_bytes;
                weight += element_weight(element);
                fits
            };
            batch.parts.push(waiting.take_while(fits));
            if waiting.elements.as_slice().is_empty() {
                self.waiting.pop_front();
            }
        }
        batch
    }

    /// The elements that can be read now, from each stream in turn, up to a batch.
    fn poll_parts(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Part>, StoreError>> {
        let last = self.last.clone().unwrap_or_default();
        let after = self.followers.keys().filter(|name| **name > last).cloned();
        let mut names: Vec<String> = after.collect();
        names.extend(self.followers.keys().filter(|name| **name <= last).cloned());
        let (mut parts, mut weight) = (Vec::new(), 0);
        for name in names {
            if weight >= self.read_bytes {
                break;
            }
            let Some(followed) = self.followers.get_mut(&name) else {
                continue;
            };
            // Dropping the future loses nothing.
            let polled = pin!(followed.follower.next()).poll(context);
            match polled {
                Poll::Pending => {}
                Poll::Ready(Ok(written)) => {
                    weight += written.elements.iter().map(element_weight).sum::<usize>();
                    parts.push(followed.part(written));
                    self.last = Some(name);
                }
                Poll::Ready(Err(StoreError::Log(chappe_log::Error::Gap {
                    from, next, ..
                }))) => {
                    self.record_gap(name, from, next);
                    context.waker().wake_by_ref();
                }
                Poll::Ready(Err(StoreError::Log(chappe_log::Error::Removed { .. }))) => {
                    self.followers.remove(&name);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        match parts.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(parts)),
        }
    }

    /// Counts elements that were removed before they were read.
    fn record_gap(&self, stream: String, from: u64, next: u64) {
        let count = next.saturating_sub(from);
        let detail = format!("elements {from} to {} of {stream}", next.saturating_sub(1));
        let hint = "keep elements for longer: log.keep_elements, log.keep_age_s";
        self.app.observability.drops.record_times(
            count,
            Hop::Element,
            self.removed,
            &self.reader,
            detail,
            Some(hint.to_owned()),
        );
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        *missed.entry(stream).or_default() += count;
    }
}

impl Waiting {
    /// The first elements, as long as they fit.
    fn take_while(&mut self, mut fits: impl FnMut(&StreamElement) -> bool) -> Part {
        let elements = self.elements.as_slice();
        let count = elements.iter().take_while(|element| fits(element)).count();
        Part {
            stream: self.stream.clone(),
            definition: self.definition.clone(),
            elements: self.elements.by_ref().take(count).collect(),
        }
    }
}

impl Followed {
    fn part(&mut self, written: Written) -> Part {
        let definition = match &self.definition {
            Some((version, definition)) if *version == written.schema_version => definition.clone(),
            _ => {
                let definition = Arc::new(StreamDefinition {
                    schema: written.schema,
                    ..StreamDefinition::default()
                });
                self.definition = Some((written.schema_version, definition.clone()));
                definition
            }
        };
        Part {
            stream: self.name.clone(),
            definition,
            elements: written.elements,
        }
    }
}
