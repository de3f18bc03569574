//! Dead letters: what a link could not store in its stream, and what contact points refused.
//!
//! They stand in the log's stream `dead-letters/LINK`, each with a schema of its own, so that they can
//! be sent again later, when the cause is gone; a letter that was sent again or discarded is marked by
//! a later record. The newest of a stream tells how far the origin was read, if nothing was
//! stored after it: so a letter is written once. For the same reason they hold where a stream was
//! begun that was to be read from its end on, or is begun anew behind what is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chappe_identity::Contact;
use chappe_log::{Appended, Error, Level, Record, Store, Stream};
use chappe_stream::{
    Field, FieldType, Position, StreamElement, StreamSchema, StreamStore, Timestamp, Value,
    decode_element, encode_element,
};
use serde::{Deserialize, Serialize};

use super::serialization::widen;
use super::{DeadLetter, DeadLetterReason, LinkConfig, LinkError};

/// What stands before the link's name in the log.
const PREFIX: &str = "dead-letters/";
/// Records read at once.
const STEP: usize = 256;
/// Letters looked through for the newest of a stream.
const LOOK_BACK: usize = 1_024;
/// Letters that are forgotten before the log is told; reason: each trim mark is a record.
const TRIM_STEP: usize = 64;

/// The dead letters of a link.
pub(crate) struct DeadLetters {
    store: Store,
    name: String,
    /// Made when there is something to keep; reason: a stream of the log stays for good, and most links
    /// never have a dead letter.
    stream: OnceLock<Stream>,
    most: usize,
    /// The last number that was given out before they were opened. A link of the same name that has just
    /// ended may have queued it, and it is stored soon.
    before: u64,
    held: Mutex<Held>,
}

/// What is in them.
#[derive(Default)]
struct Held {
    /// The numbers of the letters that are neither sent again nor discarded.
    letters: BTreeSet<u64>,
    /// Where streams were begun, by the name here, with the number of the record.
    began: BTreeMap<String, (u64, Position)>,
    /// Letters let go of since the log was told.
    passed: usize,
    /// Of what was there before they were opened, it is known up to this number.
    known: u64,
}

/// A record of the log. A new kind goes to the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Entry {
    /// A letter of a link.
    Letter(Letter),
    /// The letter of this number was stored after all, or discarded.
    SentAgain(u64),
    /// The stream of this name here is read from behind this position at the origin on.
    Began(String, Position),
    /// A letter of pushing.
    Refused(Refused),
}

/// An element that could not be stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The stream here.
    pub(crate) stream: String,
    /// Its position at the origin.
    pub(crate) origin: Option<Position>,
    /// Why it is dead.
    pub(crate) reason: Reason,
    /// Why, as a text.
    pub(crate) text: String,
    /// When it came.
    pub(crate) received: Timestamp,
    /// The time at the source.
    pub(crate) source_time: Timestamp,
    /// The schema by which it is written: its own, see [`own_schema`].
    pub(crate) schema: StreamSchema,
    /// The record as it came.
    pub(crate) record: Vec<u8>,
}

/// An element of a stream here that a contact point refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// The element; its position at the origin is that in the stream here.
    pub(crate) letter: Letter,
    /// Who refused it.
    pub(crate) contact: String,
}

/// [`DeadLetterReason`] by its place, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    Schema,
    TooLarge,
    Unreadable,
}

impl From<Reason> for DeadLetterReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Schema => Self::Schema,
            Reason::TooLarge => Self::TooLarge,
            Reason::Unreadable => Self::Unreadable,
        }
    }
}

impl Letter {
    /// The element, in the shape of its own schema.
    ///
    /// # Errors
    /// Unreadable bytes, as a text.
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

    /// The dead letters of this name, at most so many.
    pub(crate) fn named(store: &StreamStore, name: &str, most: u64) -> Result<Self, LinkError> {
        let (store, name) = (store.store().clone(), format!("{PREFIX}{name}"));
        let stream = store
            .existing(&name)
            .map_or_else(OnceLock::new, OnceLock::from);
        let letters = Self {
            before: stream.get().map_or(0, Stream::assigned),
            store,
            name,
            stream,
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            held: Mutex::default(),
        };
        letters.count_stored()?;
        Ok(letters)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out what is stored of what was there before they were opened.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) fn count_stored(&self) -> Result<(), LinkError> {
        loop {
            let next = self.held().known + 1;
            if next > self.before {
                return Ok(());
            }
            let records = self.read(next, STEP)?;
            let Some(last) = records.last() else {
                return Ok(());
            };
            let mut held = self.held();
            held.known = last.position.sequence.min(self.before);
            for record in &records {
                let number = record.position.sequence;
                // Its own were noted when they were queued.
                if let Some(entry) = read(&record.payload).filter(|_| number <= self.before) {
                    held.note(number, &entry);
                }
            }
        }
    }

    /// Records from a number on, after damaged ones.
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

    /// Queues a letter of pushing; it is safe when the result resolves.
    pub(crate) fn put_refused(&self, refused: Refused) -> Result<Appended, LinkError> {
        self.keep(refused.letter.received, Entry::Refused(refused))
    }

    /// Queues where a stream is begun; it is safe when the result resolves.
    pub(crate) fn put_began(&self, stream: &str, at: Position) -> Result<Appended, LinkError> {
        self.keep(Timestamp(0), Entry::Began(stream.to_owned(), at))
    }

    fn keep(&self, time: Timestamp, entry: Entry) -> Result<Appended, LinkError> {
        let appended = self.append(time, &entry)?;
        let mut held = self.held();
        held.note(appended.last().sequence, &entry);
        while held.letters.len() > self.most {
            held.letters.pop_first();
            held.passed += 1;
        }
        if held.passed >= TRIM_STEP {
            held.passed = 0;
            let first = held.letters.first().copied();
            // A log that does not take the mark says so at the next letter.
            let _ = self.trim(held, first.unwrap_or(appended.last().sequence));
        }
        Ok(appended)
    }

    /// Lets go of all before this number, but not of where streams were begun.
    fn trim(&self, mut held: MutexGuard<'_, Held>, before: u64) -> Result<(), LinkError> {
        let begun: Vec<(String, Position)> = held
            .began
            .iter()
            .filter(|(_, (number, _))| *number < before)
            .map(|(stream, (_, at))| (stream.clone(), *at))
            .collect();
        for (stream, at) in begun {
            let entry = Entry::Began(stream, at);
            let appended = self.append(Timestamp(0), &entry)?;
            held.note(appended.last().sequence, &entry);
        }
        if let Some(stream) = self.log() {
            let trimmed = stream.trim(before);
            trimmed.map_err(chappe_stream::StoreError::from)?;
        }
        Ok(())
    }

    /// Discards these letters, or all.
    pub(crate) fn discard(&self, numbers: Option<&[u64]>) -> Result<(), LinkError> {
        let Some(numbers) = numbers else {
            let mut held = self.held();
            held.letters.clear();
            let next = self.log().map_or(0, Stream::assigned) + 1;
            return self.trim(held, next);
        };
        for number in numbers {
            if !self.held().letters.contains(number) {
                return Err(LinkError::NoLetter(*number));
            }
            drop(self.mark(*number)?);
        }
        Ok(())
    }

    /// Marks a letter as sent again, or discarded.
    fn mark(&self, number: u64) -> Result<Appended, LinkError> {
        let appended = self.append(Timestamp(0), &Entry::SentAgain(number))?;
        self.held().letters.remove(&number);
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

    /// The log's stream underneath, once there was something to keep.
    pub(crate) fn log(&self) -> Option<&Stream> {
        self.stream.get()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.held().letters.len() as u64
    }

    /// How far the origin of a stream was read, as far as that is told here: by the newest of its
    /// letters, or by where it was begun.
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
        let began = self.held().began.get(stream).copied();
        let later = letter
            .into_iter()
            .chain(began)
            .max_by_key(|(number, _)| *number);
        Ok(later.map(|(_, at)| at))
    }

    pub(crate) fn list(&self, from: u64, count: usize) -> Result<Vec<DeadLetter>, LinkError> {
        let numbers: Vec<u64> = self
            .held()
            .letters
            .range(from..)
            .take(count)
            .copied()
            .collect();
        let mut shown = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (letter, contact) = match self.entry(number) {
                Ok(Entry::Letter(letter)) => (letter, None),
                Ok(Entry::Refused(refused)) => {
                    // Not its path, in which the secret stands.
                    let contact = Contact::parse(&refused.contact, 0).ok();
                    (refused.letter, contact.map(|it| it.address.to_string()))
                }
                // It is not safe yet, or damaged: it is not shown.
                _ => continue,
            };
            shown.push(DeadLetter {
                number,
                stream: letter.stream,
                origin: letter.origin,
                reason: letter.reason.into(),
                text: letter.text,
                contact,
                received_ns: letter.received.0,
                bytes: letter.record.len() as u64,
            });
        }
        Ok(shown)
    }

    /// The letter of this number.
    fn entry(&self, number: u64) -> Result<Entry, LinkError> {
        let gone = || LinkError::NoLetter(number);
        if !self.held().letters.contains(&number) {
            return Err(gone());
        }
        let records = self.read(number, 1)?;
        let found = records
            .first()
            .filter(|it| it.position.sequence == number)
            .and_then(|it| read(&it.payload));
        found.ok_or_else(gone)
    }

    /// The letter of pushing with this number.
    pub(crate) fn refused(&self, number: u64) -> Result<Refused, LinkError> {
        match self.entry(number)? {
            Entry::Refused(refused) => Ok(refused),
            _ => {
                let why = "it does not name the contact point that refused it".to_owned();
                Err(LinkError::StillDead { number, why })
            }
        }
    }

    /// A letter was sent again; it is one no more when the future is ready.
    pub(crate) async fn sent_again(&self, number: u64) -> Result<(), LinkError> {
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
        // Not its origin: it follows newer elements, and the newest decides where the link resumes.
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

impl Held {
    fn note(&mut self, number: u64, entry: &Entry) {
        match entry {
            Entry::Letter(_) | Entry::Refused(_) => drop(self.letters.insert(number)),
            Entry::SentAgain(letter) => drop(self.letters.remove(letter)),
            Entry::Began(stream, at) => {
                let began = self.began.entry(stream.clone()).or_insert((number, *at));
                if began.0 < number {
                    *began = (number, *at);
                }
            }
        }
    }
}

/// The schema that an element has by itself, whatever its stream wants: fields of these names, with
/// the types of its values.
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

/// The record of an element that does not fit its stream; empty when it is too large for one.
pub(crate) fn record_of(element: &StreamElement) -> Vec<u8> {
    let mut element = element.clone();
    element.origin = None;
    encode_element(&element, 0).unwrap_or_default()
}

/// Values in the order of `to`. Unlike where a schema changes, nothing may be left behind.
///
/// # Errors
/// The first that would be, as a text.
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

    #[test]
    fn what_was_queued_before_is_known_as_soon_as_it_is_stored() {
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
        drop(ended.put_began("a", at(30)).unwrap());
        drop(ended.put_began("b", at(40)).unwrap());
        let begun = open();
        drop(begun.put_began("b", at(50)).unwrap());
        begun.count_stored().unwrap();
        assert_eq!(begun.newest_origin("a").unwrap(), None);
        store.commit().unwrap();
        begun.count_stored().unwrap();
        assert_eq!(begun.newest_origin("a").unwrap(), Some(at(30)));
        assert_eq!(begun.newest_origin("b").unwrap(), Some(at(50)));
    }
}
