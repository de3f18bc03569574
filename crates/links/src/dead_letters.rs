//! Dead letters: elements that a link could not store in their stream, or that a contact point
//! refused. Wrappers and exporters keep theirs here too: messages that they could not decode, and
//! elements that a peer refused.
//!
//! They are kept in the log's stream `dead-letters/LINK`, each with its own schema, so that they
//! can be sent again once the cause is removed. A later record marks a letter as sent again or
//! discarded. The newest letter of a stream also records how far the origin was read, if nothing
//! was stored after it, so a letter is written once. For the same reason the log holds the start
//! positions of streams that are read from their end, or that restart after a loss.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use chappe_identity::Contact;
use chappe_log::{Appended, Error, Level, Record, Store, Stream};
use chappe_stream::{
    Field, FieldType, Position, StreamElement, StreamSchema, StreamStore, Timestamp, Value,
    decode_element, encode_element,
};
use serde::{Deserialize, Serialize};

use super::serialization::widen;
use super::{DeadLetter, DeadLetterReason, LinkConfig, LinkError};

mod peer;

pub use peer::{Message, PeerLetter, RefusedElement};

/// The prefix of the link's name in the log.
const PREFIX: &str = "dead-letters/";
/// Records read at once.
const STEP: usize = 256;
/// Letters searched for the newest of a stream.
const LOOK_BACK: usize = 1_024;
/// Letters dropped before the log is trimmed; reason: each trim mark is a record.
const TRIM_STEP: usize = 64;
/// Most bytes of the letters of a wrapper or an exporter; for more, the oldest are dropped. Reason: a letter may
/// have a MiB, and a client that sends such ones must not fill the disk.
const BYTES_MAX: u64 = 640 << 20;

/// The dead letters of a link, a wrapper or an exporter.
pub struct DeadLetters {
    store: Store,
    name: String,
    /// Created with the first letter; reason: a stream of the log stays for good, and most links
    /// never have a dead letter.
    stream: OnceLock<Stream>,
    /// Most letters.
    most: AtomicU64,
    /// The last number assigned before these were opened. A link of the same name that has just
    /// ended may have queued it; it is stored soon.
    assigned_before_open: u64,
    state: Mutex<LetterState>,
}

/// The state of a link's dead letters.
#[derive(Default)]
struct LetterState {
    /// The letters that were neither sent again nor discarded, by number, with their bytes; 0 for a letter of a link.
    letters: BTreeMap<u64, u64>,
    /// The sum of these bytes.
    bytes: u64,
    /// The start positions, by local stream name, with the number of their record.
    start_positions: BTreeMap<String, (u64, Position)>,
    /// Letters dropped since the log was last trimmed.
    dropped_letters: usize,
    /// Letters dropped since these were opened: for newer ones, or by the size limit of the log.
    dropped: u64,
    /// Records assigned before opening are counted up to this number.
    counted_up_to: u64,
    /// Whether all of them are counted.
    is_counted: bool,
}

/// A record of the log. New variants are appended: their order is the format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Entry {
    /// A letter of a link.
    Letter(Letter),
    /// The letter of this number was stored after all, or discarded.
    SentAgain(u64),
    /// The stream of this local name is read from this position at the origin, exclusive.
    StartPosition(String, Position),
    /// An element that a contact point refused.
    Refused(Refused),
    /// A message that a wrapper could not decode, or an element that the peer of an exporter refused.
    Message(Message),
    /// The first bytes of a message that is too long to be kept whole.
    Beginning(Message),
    /// An element of a wrapper that its stream refused.
    Element(RefusedElement),
}

/// An element that could not be stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The stream here.
    pub(crate) stream: String,
    /// The element's position at the origin.
    pub(crate) origin: Option<Position>,
    /// Why it is dead.
    pub(crate) reason: DeadLetterReason,
    /// Why, as a text.
    pub(crate) text: String,
    /// When it was received.
    pub(crate) received: Timestamp,
    /// The source time of the element.
    pub(crate) source_time: Timestamp,
    /// The schema that the record is encoded with: its own, see [`own_schema`].
    pub(crate) schema: StreamSchema,
    /// The record as it was received.
    pub(crate) record: Vec<u8>,
}

/// An element of a local stream that a contact point refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// The element; its position at the origin is its position in the local stream.
    pub(crate) letter: Letter,
    /// The contact point that refused it.
    pub(crate) contact: String,
}

impl Letter {
    /// The element, in the shape of its own schema.
    ///
    /// # Errors
    /// A description of bytes that do not decode.
    pub(crate) fn element(&self) -> Result<StreamElement, String> {
        let decoded = decode_element(&self.record, Position::default(), self.source_time);
        let (element, _) = decoded.map_err(|error| error.to_string())?;
        let checked = self.schema.check(&element);
        checked.map_err(|error| error.to_string())?;
        Ok(element)
    }
}

impl DeadLetters {
    pub(crate) fn open(store: &StreamStore, config: &LinkConfig) -> Result<Self, LinkError> {
        Self::named(store, &config.name, config.limits.dead_letters)
    }

    /// The dead letters of this name, at most `most`. Reads all that are there.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn named(store: &StreamStore, name: &str, most: u64) -> Result<Self, LinkError> {
        let (store, name) = (store.store().clone(), format!("{PREFIX}{name}"));
        let stream = store
            .existing(&name)
            .map_or_else(OnceLock::new, OnceLock::from);
        let letters = Self {
            assigned_before_open: stream.get().map_or(0, Stream::assigned),
            store,
            name,
            stream,
            most: AtomicU64::new(most.max(1)),
            state: Mutex::default(),
        };
        letters.count_stored()?;
        Ok(letters)
    }

    fn lock_state(&self) -> MutexGuard<'_, LetterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the most letters that are kept.
    pub fn set_most(&self, most: u64) {
        self.most.store(most.max(1), Ordering::Relaxed);
        let mut state = self.lock_state();
        let surplus = self.drop_surplus(&mut state);
        state.dropped += surplus;
    }

    /// Drops the oldest letters above the limits; returns how many.
    fn drop_surplus(&self, state: &mut LetterState) -> u64 {
        let most = self.most.load(Ordering::Relaxed);
        let mut surplus = 0;
        while state.letters.len() as u64 > most
            || (state.bytes > BYTES_MAX && state.letters.len() > 1)
        {
            state.drop_first();
            surplus += 1;
        }
        surplus
    }

    /// All letters of the log are counted: those that were dropped before come back until the log is trimmed.
    fn drop_former_surplus(&self) {
        let mut state = self.lock_state();
        if std::mem::replace(&mut state.is_counted, true) {
            return;
        }
        let surplus = self.drop_surplus(&mut state);
        // More of them were not dropped before: the limit is lower now.
        if surplus >= TRIM_STEP as u64 {
            state.dropped += surplus;
        }
    }

    /// Counts the records that were assigned before these letters were opened and are stored by
    /// now.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) fn count_stored(&self) -> Result<(), LinkError> {
        loop {
            let next = self.lock_state().counted_up_to + 1;
            if next > self.assigned_before_open {
                self.drop_former_surplus();
                return Ok(());
            }
            let records = self.read(next, STEP)?;
            let Some(last) = records.last() else {
                return Ok(());
            };
            let mut state = self.lock_state();
            state.counted_up_to = last.position.sequence.min(self.assigned_before_open);
            for record in &records {
                let number = record.position.sequence;
                // Those queued since then were noted at that time.
                if let Some(entry) =
                    read(&record.payload).filter(|_| number <= self.assigned_before_open)
                {
                    state.note(number, &entry);
                }
            }
        }
    }

    /// Reads records from a number on, skipping damaged ones.
    fn read(&self, from: u64, count: usize) -> Result<Vec<Record>, LinkError> {
        let Some(stream) = self.log() else {
            return Ok(Vec::new());
        };
        let mut from = from;
        loop {
            match stream.read(from, count) {
                Err(Error::Gap { next, .. }) => from = next,
                other => return Ok(other.map_err(chappe_stream::StoreError::from)?),
            }
        }
    }

    /// Queues a letter; it is safe when the result resolves.
    pub(crate) fn put(&self, letter: Letter) -> Result<Appended, LinkError> {
        self.keep(letter.received, Entry::Letter(letter))
    }

    /// Queues an element that a contact point refused; it is safe when the result resolves.
    pub(crate) fn put_refused(&self, refused: Refused) -> Result<Appended, LinkError> {
        self.keep(refused.letter.received, Entry::Refused(refused))
    }

    /// The numbers of the letters from a number on, at most `count`, also of those that are not safe yet or
    /// damaged. Reads nothing.
    #[must_use]
    pub fn numbers(&self, from: u64, count: usize) -> Vec<u64> {
        let state = self.lock_state();
        let numbers = state.letters.range(from..).take(count);
        numbers.map(|(number, _)| *number).collect()
    }

    /// Queues a stream's start position; it is safe when the result resolves.
    pub(crate) fn put_start_position(
        &self,
        stream: &str,
        at: Position,
    ) -> Result<Appended, LinkError> {
        self.keep(Timestamp(0), Entry::StartPosition(stream.to_owned(), at))
    }

    fn keep(&self, time: Timestamp, entry: Entry) -> Result<Appended, LinkError> {
        let appended = self.append(time, &entry)?;
        let mut state = self.lock_state();
        state.note(appended.last().sequence, &entry);
        let surplus = self.drop_surplus(&mut state);
        state.dropped += surplus;
        if state.dropped_letters >= TRIM_STEP {
            state.dropped_letters = 0;
            let first = state.letters.first_key_value().map(|(number, _)| *number);
            // If the log refuses the mark, the next letter reports it.
            let _ = self.trim(state, first.unwrap_or(appended.last().sequence));
        }
        Ok(appended)
    }

    /// Trims everything before this number except the start positions.
    fn trim(&self, mut state: MutexGuard<'_, LetterState>, before: u64) -> Result<(), LinkError> {
        let begun: Vec<(String, Position)> = state
            .start_positions
            .iter()
            .filter(|(_, (number, _))| *number < before)
            .map(|(stream, (_, at))| (stream.clone(), *at))
            .collect();
        for (stream, at) in begun {
            let entry = Entry::StartPosition(stream, at);
            let appended = self.append(Timestamp(0), &entry)?;
            state.note(appended.last().sequence, &entry);
        }
        if let Some(stream) = self.log() {
            let trimmed = stream.trim(before);
            trimmed.map_err(chappe_stream::StoreError::from)?;
        }
        Ok(())
    }

    /// Forgets the letters that the size limit of the log has removed; they count as dropped.
    pub fn forget_removed(&self) {
        let Some(first) = self.log().map(Stream::first) else {
            return;
        };
        let mut state = self.lock_state();
        while state
            .letters
            .first_key_value()
            .is_some_and(|(number, _)| *number < first)
        {
            state.drop_first();
            state.dropped += 1;
        }
    }

    /// Waits until the letters that were queued before these were opened are stored, and counts them.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn settled(self: &Arc<Self>) -> Result<(), LinkError> {
        if let Some(stream) = self.log() {
            stream.settled().await;
        }
        let letters = self.clone();
        let counted = tokio::task::spawn_blocking(move || letters.count_stored()).await;
        counted.unwrap_or(Ok(()))
    }

    /// Discards the letters of these numbers, or all.
    ///
    /// # Errors
    /// There is no letter of a number; errors of the log.
    pub fn discard(&self, numbers: Option<&[u64]>) -> Result<(), LinkError> {
        let Some(numbers) = numbers else {
            let mut state = self.lock_state();
            state.letters.clear();
            state.bytes = 0;
            let next = self.log().map_or(0, Stream::assigned) + 1;
            return self.trim(state, next);
        };
        for number in numbers {
            if !self.lock_state().letters.contains_key(number) {
                return Err(LinkError::NoLetter(*number));
            }
            drop(self.mark(*number)?);
        }
        Ok(())
    }

    /// Marks a letter as sent again, or discarded.
    fn mark(&self, number: u64) -> Result<Appended, LinkError> {
        let appended = self.append(Timestamp(0), &Entry::SentAgain(number))?;
        self.lock_state().remove(number);
        Ok(appended)
    }

    fn append(&self, time: Timestamp, entry: &Entry) -> Result<Appended, LinkError> {
        let bytes = postcard::to_allocvec(entry).map_err(|error| {
            LinkError::Unsupported(format!("a dead letter cannot be written: {error}"))
        })?;
        let stream = match self.log() {
            Some(stream) => stream,
            None => {
                let made = self.store.stream(&self.name, Level::Power, b"");
                let made = made.map_err(chappe_stream::StoreError::from)?;
                self.stream.get_or_init(|| made)
            }
        };
        let appended = stream.append(vec![(time.0, bytes)]);
        Ok(appended.map_err(chappe_stream::StoreError::from)?)
    }

    /// The log's stream, if it was created.
    pub(crate) fn log(&self) -> Option<&Stream> {
        self.stream.get()
    }

    /// The number of letters.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock_state().letters.len() as u64
    }

    /// The number of letters that were dropped since these were opened: for newer ones, or by the size limit of
    /// the log.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lock_state().dropped
    }

    /// How far the origin of a stream was read, according to its newest letter or its start
    /// position.
    pub(crate) fn newest_origin(&self, stream: &str) -> Result<Option<Position>, LinkError> {
        let newest = self
            .log()
            .map(|stream| stream.newest(LOOK_BACK))
            .transpose();
        let newest = newest
            .map_err(chappe_stream::StoreError::from)?
            .unwrap_or_default();
        let letter = newest.iter().rev().find_map(|record| {
            let origin = match read(&record.payload)? {
                Entry::Letter(letter) if letter.stream == stream => letter.origin,
                _ => None,
            };
            Some((record.position.sequence, origin?))
        });
        let began = self.lock_state().start_positions.get(stream).copied();
        let later = letter
            .into_iter()
            .chain(began)
            .max_by_key(|(number, _)| *number);
        Ok(later.map(|(_, at)| at))
    }

    pub(crate) fn list(&self, from: u64, count: usize) -> Result<Vec<DeadLetter>, LinkError> {
        let numbers = self.numbers(from, count);
        let mut shown = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (letter, contact) = match self.entry(number) {
                Ok(Entry::Letter(letter)) => (letter, None),
                Ok(Entry::Refused(refused)) => {
                    // Without its path, which contains the secret.
                    let contact = Contact::parse(&refused.contact, 0).ok();
                    (refused.letter, contact.map(|it| it.address.to_string()))
                }
                // Not safe yet, or damaged: it is not listed. Links have no messages.
                _ => continue,
            };
            shown.push(DeadLetter {
                number,
                stream: letter.stream,
                origin: letter.origin,
                reason: letter.reason,
                text: letter.text,
                contact,
                received_at: letter.received,
                bytes: letter.record.len() as u64,
            });
        }
        Ok(shown)
    }

    /// The record of this letter.
    fn entry(&self, number: u64) -> Result<Entry, LinkError> {
        let no_letter = || LinkError::NoLetter(number);
        if !self.lock_state().letters.contains_key(&number) {
            return Err(no_letter());
        }
        let records = self.read(number, 1)?;
        let found = records
            .first()
            .filter(|it| it.position.sequence == number)
            .and_then(|it| read(&it.payload));
        found.ok_or_else(no_letter)
    }

    /// The refused element of this number.
    pub(crate) fn refused(&self, number: u64) -> Result<Refused, LinkError> {
        match self.entry(number)? {
            Entry::Refused(refused) => Ok(refused),
            _ => {
                let why = "the letter has no contact point".to_owned();
                Err(LinkError::StillDead { number, why })
            }
        }
    }

    /// Marks a letter as sent again; the mark is stored when the future resolves.
    ///
    /// # Errors
    /// Errors of the log.
    pub async fn sent_again(&self, number: u64) -> Result<(), LinkError> {
        let marked = self.mark(number)?;
        marked.await.map_err(chappe_stream::StoreError::from)?;
        Ok(())
    }

    /// Stores a letter in its stream after all; returns the stream, and the position at the origin.
    pub(crate) async fn send_again(
        &self,
        store: &StreamStore,
        now: Timestamp,
        number: u64,
    ) -> Result<(String, Option<Position>), LinkError> {
        let letter = match self.entry(number)? {
            Entry::Letter(letter) => letter,
            _ => return Err(LinkError::NoLetter(number)),
        };
        let still = |why: String| LinkError::StillDead { number, why };
        let log = store.existing(&letter.stream)?;
        let log = log.ok_or_else(|| still(format!("there is no stream {:?}", letter.stream)))?;
        let mut element = letter.element().map_err(still)?;
        let values = std::mem::take(&mut element.values);
        element.values = fit(&letter.schema, values, &log.schema()).map_err(still)?;
        // Without its origin: it follows newer elements, and the newest decides where the link
        // resumes.
        element.origin = None;
        element.receive_time = now;
        let appended = log
            .append(&[element])
            .map_err(|error| still(error.to_string()))?;
        appended.await.map_err(chappe_stream::StoreError::from)?;
        self.sent_again(number).await?;
        Ok((letter.stream, letter.origin))
    }
}

impl LetterState {
    fn insert(&mut self, number: u64, bytes: u64) {
        self.bytes += bytes;
        if let Some(before) = self.letters.insert(number, bytes) {
            self.bytes -= before;
        }
    }

    fn remove(&mut self, number: u64) {
        self.bytes -= self.letters.remove(&number).unwrap_or_default();
    }

    /// Drops the oldest letter.
    fn drop_first(&mut self) {
        let first = self.letters.pop_first();
        self.bytes -= first.map_or(0, |(_, bytes)| bytes);
        self.dropped_letters += 1;
    }

    fn note(&mut self, number: u64, entry: &Entry) {
        match entry {
            Entry::Letter(_) | Entry::Refused(_) => self.insert(number, 0),
            Entry::Message(message) | Entry::Beginning(message) => {
                self.insert(number, message.bytes.len() as u64);
            }
            Entry::Element(refused) => self.insert(number, refused.bytes()),
            Entry::SentAgain(letter) => self.remove(*letter),
            Entry::StartPosition(stream, at) => {
                let began = self
                    .start_positions
                    .entry(stream.clone())
                    .or_insert((number, *at));
                if began.0 < number {
                    *began = (number, *at);
                }
            }
        }
    }
}

/// The schema that fits this element, regardless of its stream: fields of these names, with the
/// types of its values.
pub(crate) fn own_schema(names: &[String], values: &[Value]) -> StreamSchema {
    let fields = names.iter().zip(values).map(|(name, value)| Field {
        name: name.clone(),
        field_type: value.field_type().unwrap_or(FieldType::Text),
        unit: None,
        observed_property: None,
        description: None,
    });
    StreamSchema {
        fields: fields.collect(),
        key: None,
    }
}

/// The record of an element that does not fit its stream; empty if it is too large for one.
pub(crate) fn record_of(element: &StreamElement) -> Vec<u8> {
    let mut element = element.clone();
    element.origin = None;
    encode_element(&element, 0).unwrap_or_default()
}

/// Values in the order of `to`. Unlike at a schema change, no value may be dropped.
///
/// # Errors
/// A description of the first value that would be dropped.
pub(crate) fn fit(
    from: &StreamSchema,
    values: Vec<Value>,
    to: &StreamSchema,
) -> Result<Vec<Value>, String> {
    let mut fitted = vec![Value::Null; to.fields.len()];
    for (field, mut value) in from.fields.iter().zip(values) {
        let place = to.fields.iter().position(|known| known.name == field.name);
        match place {
            Some(place) => {
                widen(to.fields[place].field_type, &mut value);
                fitted[place] = value;
            }
            None if value == Value::Null => {}
            None => return Err(format!("the stream has no field {:?}", field.name)),
        }
    }
    Ok(fitted)
}

fn read(bytes: &[u8]) -> Option<Entry> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_log::{Commit, MemoryDisk, Options, Store};
    use chappe_stream::Epoch;

    fn message(number: i64) -> PeerLetter {
        PeerLetter::Message(Message {
            stream: None,
            reason: "no".to_owned(),
            received: Timestamp(number),
            bytes: vec![0; 100],
        })
    }

    #[test]
    fn letters_that_were_dropped_stay_so_after_a_crash() {
        let disk = MemoryDisk::new();
        let options = || Options {
            commit: Commit::Caller,
            ..Options::default()
        };
        let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
        let letters = DeadLetters::named(&StreamStore::new(store.clone()), "far", 10).unwrap();
        for number in 1..=30 {
            drop(letters.put_peer(message(number)).unwrap());
        }
        assert_eq!((letters.count(), letters.dropped()), (10, 20));
        store.commit().unwrap();
        store.abandon();
        let (store, _) = Store::open(Box::new(disk), options(), 2).unwrap();
        let streams = StreamStore::new(store);
        let letters = DeadLetters::named(&streams, "far", 10).unwrap();
        assert_eq!((letters.count(), letters.dropped()), (10, 0));
        assert_eq!(letters.numbers(0, 1), [21]);
        assert_eq!(letters.lock_state().bytes, 1_000);
        // A lower limit drops those that were kept.
        letters.set_most(4);
        assert_eq!((letters.count(), letters.dropped()), (4, 6));
        assert_eq!(letters.lock_state().bytes, 400);
    }

    #[test]
    fn records_queued_before_opening_count_once_they_are_stored() {
        let options = Options {
            commit: Commit::Caller,
            ..Options::default()
        };
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), options, 1).unwrap();
        let streams = StreamStore::new(store.clone());
        let open = || DeadLetters::named(&streams, "far", 10).unwrap();
        let at = |sequence| Position {
            epoch: Epoch(7),
            sequence,
        };
        let ended = open();
        drop(ended.put_start_position("a", at(30)).unwrap());
        drop(ended.put_start_position("b", at(40)).unwrap());
        let begun = open();
        drop(begun.put_start_position("b", at(50)).unwrap());
        begun.count_stored().unwrap();
        assert_eq!(begun.newest_origin("a").unwrap(), None);
        store.commit().unwrap();
        begun.count_stored().unwrap();
        assert_eq!(begun.newest_origin("a").unwrap(), Some(at(30)));
        assert_eq!(begun.newest_origin("b").unwrap(), Some(at(50)));
    }

    #[test]
    fn letters_are_numbered_without_being_read() {
        let options = Options {
            commit: Commit::Caller,
            ..Options::default()
        };
        let (store, _) = Store::open(Box::new(MemoryDisk::new()), options, 1).unwrap();
        let letters = DeadLetters::named(&StreamStore::new(store.clone()), "far", 10).unwrap();
        for number in 1..=3 {
            drop(letters.put_peer(message(number)).unwrap());
        }
        assert_eq!(letters.numbers(0, usize::MAX), [1, 2, 3]);
        assert_eq!(letters.numbers(2, 1), [2]);
        assert_eq!(letters.peer_letters(0, 10).unwrap(), [], "none is safe yet");
        store.commit().unwrap();
        assert_eq!(letters.peer_letters(2, 10).unwrap().len(), 2);
    }
}
