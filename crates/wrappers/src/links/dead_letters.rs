//! Dead letters: what a link could not store in its stream.
//!
//! They stand in the log's stream `dead-letters/LINK`, with their schema, so that they can be stored
//! later, when the stream here has been changed; a letter that was sent again is marked by a record
//! behind it. The newest of a stream says how far the origin was read, when nothing was stored
//! behind it: so a letter is written once.

use std::collections::BTreeSet;

use chappe_log::{Appended, Error, GapReason, Level, Stream};
use chappe_stream::{Position, StreamSchema, StreamStore, Timestamp, decode_element};
use serde::{Deserialize, Serialize};

use super::handle::Shared;
use super::{DeadLetter, DeadLetterReason, LinkConfig, LinkError};

/// What stands before the link's name in the log.
const PREFIX: &str = "dead-letters/";
/// Letters read at once.
const STEP: usize = 256;
/// Letters looked through for the newest of a stream.
const LOOK_BACK: usize = 1_024;

/// The dead letters of a link.
pub(crate) struct DeadLetters {
    stream: Stream,
    most: u64,
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Entry {
    /// A letter.
    Letter(Letter),
    /// The letter of this number was stored after all, or discarded.
    SentAgain(u64),
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
    /// Why, in words.
    pub(crate) text: String,
    /// When it came.
    pub(crate) received: Timestamp,
    /// When the source says it happened.
    pub(crate) source_time: Timestamp,
    /// The schema by which it is written.
    pub(crate) schema: StreamSchema,
    /// The record as it came.
    pub(crate) record: Vec<u8>,
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

/// What a part of the dead letters holds.
struct Scan {
    /// The letters with their numbers.
    letters: Vec<(u64, Letter)>,
    /// Those that were sent again.
    sent: BTreeSet<u64>,
}

impl DeadLetters {
    pub(crate) fn open(store: &StreamStore, config: &LinkConfig) -> Result<Self, LinkError> {
        Self::named(store, &config.name, config.limits.dead_letters)
    }

    /// The dead letters of this name, at most so many.
    pub(crate) fn named(store: &StreamStore, name: &str, most: u64) -> Result<Self, LinkError> {
        let name = format!("{PREFIX}{name}");
        let stream = match store.store().existing(&name) {
            Some(stream) => stream,
            None => store
                .store()
                .stream(&name, Level::Power, b"")
                .map_err(chappe_stream::StoreError::from)?,
        };
        let most = most.max(1);
        Ok(Self { stream, most })
    }

    /// Queues a letter; it is safe when the result resolves.
    pub(crate) fn put(&self, letter: Letter) -> Result<Appended, LinkError> {
        let time = letter.received.0;
        let appended = self.append(time, &Entry::Letter(letter))?;
        let last = appended.last().sequence;
        if last % 64 == 0 && last > self.most {
            // A log that does not take the mark says so at the next letter.
            let _ = self.stream.trim(last - self.most);
        }
        Ok(appended)
    }

    /// Discards these letters, or all.
    pub(crate) fn discard(&self, numbers: Option<&[u64]>) -> Result<(), LinkError> {
        let Some(numbers) = numbers else {
            let trimmed = self.stream.trim(self.stream.last() + 1);
            return trimmed
                .map(drop)
                .map_err(|error| chappe_stream::StoreError::from(error).into());
        };
        for number in numbers {
            drop(self.append(0, &Entry::SentAgain(*number))?);
        }
        Ok(())
    }

    fn append(&self, time: i64, entry: &Entry) -> Result<Appended, LinkError> {
        let bytes = postcard::to_allocvec(entry).map_err(|error| {
            LinkError::Unsupported(format!("a dead letter cannot be written: {error}"))
        })?;
        let appended = self.stream.append(vec![(time, bytes)]);
        Ok(appended.map_err(chappe_stream::StoreError::from)?)
    }

    /// How many there are, those included that were sent again.
    pub(crate) fn count(&self) -> u64 {
        (self.stream.last() + 1).saturating_sub(self.stream.first())
    }

    /// The origin's position of the newest letter of a stream, among the newest.
    pub(crate) fn newest_origin(&self, stream: &str) -> Result<Option<Position>, LinkError> {
        let newest = self.stream.newest(LOOK_BACK);
        let newest = newest.map_err(chappe_stream::StoreError::from)?;
        let entries = newest
            .iter()
            .rev()
            .filter_map(|record| read(&record.payload));
        let mut letters = entries.filter_map(|entry| match entry {
            Entry::Letter(letter) if letter.stream == stream => letter.origin,
            _ => None,
        });
        Ok(letters.next())
    }

    pub(crate) fn list(&self, from: u64, count: usize) -> Result<Vec<DeadLetter>, LinkError> {
        let Scan { letters, sent } = self.scan(from)?;
        let letters = letters.into_iter().filter(|(n, _)| !sent.contains(n));
        let shown = letters.take(count).map(|(number, letter)| DeadLetter {
            number,
            stream: letter.stream,
            origin: letter.origin,
            reason: letter.reason.into(),
            text: letter.text,
            received_ns: letter.received.0,
            bytes: letter.record.len() as u64,
        });
        Ok(shown.collect())
    }

    /// All letters from a number on, and which were sent again.
    fn scan(&self, from: u64) -> Result<Scan, LinkError> {
        let (mut letters, mut sent) = (Vec::new(), BTreeSet::new());
        let mut next = from.max(self.stream.first());
        loop {
            let records = match self.stream.read(next, STEP) {
                Ok(records) => records,
                Err(Error::Gap {
                    next: after,
                    reason,
                    ..
                }) => {
                    debug_assert!(matches!(reason, GapReason::Corrupt | GapReason::Trimmed));
                    next = after;
                    continue;
                }
                Err(error) => return Err(chappe_stream::StoreError::from(error).into()),
            };
            let Some(last) = records.last() else { break };
            next = last.position.sequence + 1;
            for record in &records {
                match read(&record.payload) {
                    Some(Entry::Letter(letter)) => letters.push((record.position.sequence, letter)),
                    Some(Entry::SentAgain(number)) => drop(sent.insert(number)),
                    None => {}
                }
            }
        }
        Ok(Scan { letters, sent })
    }

    /// Stores a letter in its stream after all.
    pub(crate) async fn send_again(&self, shared: &Shared, number: u64) -> Result<(), LinkError> {
        let Scan { letters, sent } = self.scan(number)?;
        let found = letters.into_iter().find(|(n, _)| *n == number);
        let Some((_, letter)) = found.filter(|_| !sent.contains(&number)) else {
            return Err(LinkError::NoLetter(number));
        };
        let still = |why: String| LinkError::StillDead { number, why };
        let log = shared.store.existing(&letter.stream)?;
        let log = log.ok_or_else(|| still(format!("there is no stream {:?}", letter.stream)))?;
        let decoded = decode_element(&letter.record, Position::default(), letter.source_time);
        let (mut element, _) = decoded.map_err(|error| still(error.to_string()))?;
        letter
            .schema
            .check(&element)
            .map_err(|error| still(error.to_string()))?;
        let values = std::mem::take(&mut element.values);
        element.values = log.schema().project(&letter.schema, values);
        // Not its origin: it stands behind newer elements, and the newest says where the link goes on.
        element.origin = None;
        let appended = log
            .append(&[element])
            .map_err(|error| still(error.to_string()))?;
        appended.await.map_err(chappe_stream::StoreError::from)?;
        let marked = self.append(letter.received.0, &Entry::SentAgain(number))?;
        marked.await.map_err(chappe_stream::StoreError::from)?;
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Option<Entry> {
    postcard::from_bytes(bytes).ok()
}
