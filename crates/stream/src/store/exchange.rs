//! Records in transit between nodes: read without decoding elements, and stored after a check of
//! their bytes.

use std::future::poll_fn;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use chappe_log::{Appended, Batch, Cursor, Error, Follower, Record, Trimmed};

use super::elements::batch_of;
use super::{IntakeError, OpeningIntake, StoreError, StreamLog};
use crate::codec::{RecordHead, record_version, validate_body, write_body};
use crate::{CodecError, Epoch, Position, StreamElement, StreamSchema, Timestamp};

/// Maximum number of records read at once; reason: records that exceed the requested bytes are read
/// again.
const READ_RECORDS_MAX: usize = 1024;

/// Maximum number of elements without an origin to skip while looking for one with it; reason:
/// damaged ones, and those that an operator sent again, rarely follow each other.
const WITHOUT_ORIGIN_MAX: usize = 1_024;
/// Maximum number of parts of a stream searched for earlier epochs; reason: a copy that lacks many
/// elements has as many parts, and each link searches its streams when it starts.
const PARTS_MAX: usize = 512;

/// Maximum length of a record's head in bytes: version, epoch, number.
const HEAD_BYTES: usize = 24;
/// Usual length of a record in bytes, for the initial capacity.
const RECORD_BYTES_USUAL: usize = 96;

/// Consecutive records of one epoch and one version of the schema.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawRecords {
    /// Position of the first record.
    pub first: Position,
    /// The version of the schema of all records.
    pub schema_version: u32,
    /// Source time and bytes: the version and the element's body, without any origin.
    pub records: Vec<(Timestamp, Vec<u8>)>,
}

impl StreamLog {
    /// The position up to which the origin was read: that of the newest element there, or the one
    /// last passed to [`StreamLog::set_origin`]. Neither retention nor the log's size limit removes
    /// it. The log must have been opened with [`origin_cursor`].
    #[must_use]
    pub fn newest_origin(&self) -> Option<Position> {
        let both = u128::from_be_bytes(self.stream.cursor()?);
        Some(Position {
            epoch: Epoch((both >> 64) as u64),
            sequence: both as u64,
        })
    }

    /// Records how far the origin was read when no element states it. `retractions` as in
    /// [`Intake::append`].
    ///
    /// # Errors
    /// The log's error.
    pub fn set_origin(&self, retractions: u64, at: Position) -> Result<Trimmed, StoreError> {
        Ok(self.stream.set_cursor(retractions, cursor(at))?)
    }

    /// The newest element here of each epoch of the origin except that of
    /// [`StreamLog::newest_origin`], newest first, at most `most`. Reads few elements: if an epoch
    /// advanced by as many numbers at the origin as here, no other epoch lies in between.
    ///
    /// # Errors
    /// The log's error.
    pub fn earlier_origins(&self, most: usize) -> Result<Vec<Position>, StoreError> {
        let mut found: Vec<Position> = Vec::new();
        let all = self.stream.first()..self.stream.last() + 1;
        let Some(newest) = self.newest_origin() else {
            return Ok(found);
        };
        let oldest = self.first_with_origin(all.clone())?;
        let Some((oldest, last)) = oldest.zip(self.last_with_origin(all)?) else {
            return Ok(found);
        };
        let note = |found: &mut Vec<Position>, at: Position| {
            let is_known = |known: &Position| known.epoch == at.epoch;
            if at.epoch != newest.epoch && !found.iter().any(is_known) {
                found.push(at);
            }
        };
        note(&mut found, last.1);
        let mut looks = 0;
        // The newest part is on top.
        let mut parts = vec![(oldest, last)];
        while let Some((low, high)) = parts.pop() {
            let ((first, at_first), (end, at_end)) = (low, high);
            let is_one_epoch = at_first.epoch == at_end.epoch
                && at_end.sequence.checked_sub(at_first.sequence) == Some(end - first);
            let middle = first + (end - first) / 2;
            let between = match is_one_epoch {
                true => None,
                false => match self.last_with_origin(first + 1..middle + 1)? {
                    None => self.first_with_origin(middle + 1..end)?,
                    before => before,
                },
            };
            match between {
                Some(between) => parts.extend([(low, between), (between, high)]),
                None => note(&mut found, at_first),
            }
            looks += 1;
            if found.len() >= most || looks >= PARTS_MAX {
                break;
            }
        }
        Ok(found)
    }

    /// The first of these numbers whose element came over a link, and its position at the origin.
    fn first_with_origin(&self, range: Range<u64>) -> Result<Option<(u64, Position)>, StoreError> {
        self.with_origin(range.take(WITHOUT_ORIGIN_MAX))
    }

    /// The last of these numbers whose element came over a link.
    fn last_with_origin(&self, range: Range<u64>) -> Result<Option<(u64, Position)>, StoreError> {
        self.with_origin(range.rev().take(WITHOUT_ORIGIN_MAX))
    }

    fn with_origin(
        &self,
        mut numbers: impl Iterator<Item = u64>,
    ) -> Result<Option<(u64, Position)>, StoreError> {
        let found = numbers.find_map(|number| {
            let origin = self.origin_of(number).transpose()?;
            Some(origin.map(|origin| (number, origin)))
        });
        found.transpose()
    }

    /// Consecutive records from number `from` (0: from the first kept), for sending: at most
    /// `count`, and at most one more than fits `bytes`. Fewer if an epoch ends or the version of
    /// the schema changes; none at the end of the stream.
    ///
    /// # Errors
    /// A gap, with the number to continue at; a record whose head does not decode, or of an unknown
    /// version.
    pub fn read_raw(
        &self,
        from: u64,
        count: usize,
        bytes: usize,
    ) -> Result<RawRecords, StoreError> {
        let count = count.min(READ_RECORDS_MAX);
        let records = self.stream.read_within(from, count, bytes)?;
        self.raw(&mut records.into_iter().peekable(), bytes)
    }

    /// Follows from number `from` (0: from the first kept), for sending.
    #[must_use]
    pub fn follow_raw(&self, from: u64) -> RawFollower {
        RawFollower {
            follower: self.stream.follow(from),
            log: self.clone(),
        }
    }

    /// A version of its schema.
    #[must_use]
    pub fn schema_of(&self, version: u32) -> Option<StreamSchema> {
        let metadata = self.snapshot();
        metadata.versions.get(version as usize).cloned()
    }

    /// The version of the schema of the first element from number `from`, which a reader needs
    /// first. The current one if there is no such element yet.
    #[must_use]
    pub fn version_at(&self, from: u64) -> u32 {
        let records = match self.stream.read_within(from, 1, 1) {
            Err(Error::Gap { next, .. }) => self.stream.read_within(next, 1, 1),
            other => other,
        };
        let first = records.ok().and_then(|records| records.into_iter().next());
        let version = first.and_then(|record| record_version(&record.payload).ok());
        version.unwrap_or_else(|| self.schema_version())
    }

    /// Collects records of one epoch and one version, up to and including the one that reaches
    /// `bytes`.
    fn raw(
        &self,
        records: &mut Peekable<impl Iterator<Item = Record>>,
        bytes: usize,
    ) -> Result<RawRecords, StoreError> {
        let mut raw = RawRecords::default();
        let Some(first) = records.peek() else {
            return Ok(raw);
        };
        raw.first = Position {
            epoch: Epoch(first.position.epoch),
            sequence: first.position.sequence,
        };
        // A record whose head does not decode is consumed too, so that a follower continues after
        // it.
        let version = record_version(&first.payload);
        let mut gathered = 0;
        while let Some(record) = records.next_if(|record| {
            gathered < bytes.max(1)
                && record.position.epoch == raw.first.epoch.0
                && record_version(&record.payload) == version
        }) {
            let (head, body) = RecordHead::decode(&record.payload)?;
            raw.schema_version = head.schema_version;
            let payload = match head.origin {
                Some(_) => with_head(head.schema_version, None, body)?,
                None => record.payload,
            };
            gathered += payload.len();
            raw.records.push((Timestamp(record.time), payload));
        }
        // After the read: by now the version is known if it exists.
        let is_known = self.snapshot().versions.len() > raw.schema_version as usize;
        is_known
            .then_some(raw)
            .ok_or(StoreError::UnknownVersion(version?))
    }

    /// Prepares for storing elements that another node sends under `schema`. If the schema is new,
    /// it becomes a version here, but not the current one. Does not wait for the disk: the result
    /// resolves when the version is durable.
    ///
    /// # Errors
    /// An invalid schema, too many versions, or the log's error; the log's queue may be full.
    pub fn intake(&self, schema: &StreamSchema) -> Result<OpeningIntake, StoreError> {
        schema.check_names().map_err(StoreError::Schema)?;
        let mut version = 0;
        let defining = self.redefine(|metadata| {
            version = metadata.add_schema(schema)?;
            Ok(())
        })?;
        let intake = Intake {
            log: self.clone(),
            schema: Arc::new(schema.clone()),
            version,
            received: None,
        };
        Ok(OpeningIntake { intake, defining })
    }
}

/// Returns a stream's records in order, as they are stored, for sending.
pub struct RawFollower {
    follower: Follower,
    log: StreamLog,
}

impl RawFollower {
    /// The next records; never empty, more than one group only where epochs or versions change.
    /// After a gap it continues after the gap.
    ///
    /// # Errors
    /// A gap, or a record whose head does not decode, or of an unknown version.
    pub async fn next(&mut self) -> Result<Vec<RawRecords>, StoreError> {
        let mut records = self.follower.next().await?.into_iter().peekable();
        let mut all = Vec::with_capacity(1);
        while records.peek().is_some() {
            all.push(self.log.raw(&mut records, usize::MAX)?);
        }
        Ok(all)
    }

    /// If records wait for the next commit, requests and awaits it. May be dropped.
    pub async fn committed(&mut self) {
        let seen = self.log.log().last();
        if self.log.log().skip_commit_pause() {
            poll_fn(|context| self.follower.poll_beyond(seen, context)).await;
        }
    }

    /// The number of the next record.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.follower.next_sequence()
    }
}

/// Stores records from another node, one by one as [`StreamLog::read_raw`] returned them there.
///
/// Created by [`StreamLog::intake`] for one version of the sender's schema.
#[derive(Clone)]
pub struct Intake {
    pub(super) log: StreamLog,
    schema: Arc<StreamSchema>,
    /// The version of the schema here.
    version: u32,
    /// The time of receipt; `None`: the sender's receive times are kept.
    received: Option<Timestamp>,
}

impl Intake {
    /// The stream in which it stores.
    #[must_use]
    pub fn log(&self) -> &StreamLog {
        &self.log
    }

    /// The schema that records are checked against.
    #[must_use]
    pub fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// The version of that schema here.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether that version is current here.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.log.schema_version() == self.version
    }

    /// From now on, records are stored as received at `now` by this node's clock. Retention by age
    /// uses it: the sender's clock may be years off.
    #[must_use]
    pub fn received_at(self, now: Timestamp) -> Self {
        let received = Some(now);
        Self { received, ..self }
    }

    /// The record to store for one that is at `origin` at the sender with time `source_time`, of
    /// the sender's version `sent_version`.
    ///
    /// # Errors
    /// Bytes that are not a record, another version, or values that do not fit the schema.
    pub fn check(
        &self,
        origin: Position,
        sent_version: u32,
        source_time: Timestamp,
        record: &[u8],
    ) -> Result<Vec<u8>, CodecError> {
        let mut bytes = Vec::with_capacity(record.len() + HEAD_BYTES);
        self.write(origin, sent_version, source_time, record, &mut bytes)?;
        Ok(bytes)
    }

    /// Like [`Intake::check`], appended to `bytes`.
    fn write(
        &self,
        origin: Position,
        sent_version: u32,
        source_time: Timestamp,
        record: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let (head, body) = RecordHead::decode(record)?;
        if body.len() >= crate::RECORD_BYTES_MAX {
            return Err(CodecError::TooLarge(body.len()));
        }
        if head.schema_version != sent_version || head.origin.is_some() {
            let found = head.schema_version;
            let why = format!("the record has schema version {found}, not {sent_version}");
            return Err(CodecError::Malformed(why));
        }
        validate_body(body, self.schema())?;
        let head = RecordHead {
            schema_version: self.version,
            origin: Some(origin),
        };
        head.encode(bytes)?;
        match self.received {
            Some(received) => write_body(body, received.0.wrapping_sub(source_time.0), bytes),
            None => bytes.extend_from_slice(body),
        }
        Ok(())
    }

    /// Queues consecutive records; the first is at `origin` at the sender. One operation stores
    /// them and records how far the sender was read: each record carries its origin. `retractions`
    /// is the result of [`chappe_log::Store::retractions`] before the caller's first append: after
    /// a batch that the log refused later, none is queued.
    ///
    /// # Errors
    /// The first record that does not fit ([`StoreError::Intake`]), or the log's error; then none
    /// is queued.
    pub fn append<T: AsRef<[u8]>>(
        &self,
        retractions: u64,
        origin: Position,
        sent_version: u32,
        records: impl ExactSizeIterator<Item = (Timestamp, T)>,
    ) -> Result<Appended, StoreError> {
        let mut batch = Batch::with_capacity(records.len(), RECORD_BYTES_USUAL * records.len());
        for (index, (time, record)) in records.enumerate() {
            let sequence = origin.sequence + index as u64;
            let at = Position { sequence, ..origin };
            let record = record.as_ref();
            let write = |bytes: &mut Vec<u8>| self.write(at, sent_version, time, record, bytes);
            batch
                .push_with(time.0, write)
                .map_err(|error| IntakeError { index, error })?;
        }
        let appended = self.log.stream.append_after(retractions, batch)?;
        Ok(self.log.queued(appended))
    }

    /// Queues elements in the shape of the schema, after those that the same caller queued before,
    /// as in [`Intake::append`].
    ///
    /// # Errors
    /// The first element that does not fit ([`StoreError::Element`]), or the log's error; then none
    /// is queued.
    pub fn append_elements(
        &self,
        retractions: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        let batch = batch_of(elements, &self.schema, self.version)?;
        let appended = self.log.stream.append_after(retractions, batch)?;
        Ok(self.log.queued(appended))
    }
}

impl Intake {
    /// Restores damaged records of a copy: they have numbers from `here` in this stream and from
    /// `origin` at the sender.
    ///
    /// # Errors
    /// Like [`Intake::append`]; or the numbers are not damaged.
    pub fn put_back<T: AsRef<[u8]>>(
        &self,
        here: Position,
        origin: Position,
        sent_version: u32,
        records: impl Iterator<Item = (Timestamp, T)>,
    ) -> Result<Appended, StoreError> {
        let mut batch = Vec::new();
        for (index, (time, record)) in records.enumerate() {
            let sequence = origin.sequence + index as u64;
            let at = Position { sequence, ..origin };
            let stored = self
                .check(at, sent_version, time, record.as_ref())
                .map_err(|error| IntakeError { index, error })?;
            batch.push((time.0, stored));
        }
        self.log.fill(here, batch)
    }
}

/// The cursor of a stream of elements: the position of the element at its origin. For
/// [`chappe_log::Options::cursor_of`].
#[must_use]
pub fn origin_cursor(record: &[u8]) -> Option<Cursor> {
    let (head, _) = RecordHead::decode(record).ok()?;
    head.origin.map(cursor)
}

fn cursor(at: Position) -> Cursor {
    (u128::from(at.epoch.0) << 64 | u128::from(at.sequence)).to_be_bytes()
}

/// A record from a head and a body.
fn with_head(
    schema_version: u32,
    origin: Option<Position>,
    body: &[u8],
) -> Result<Vec<u8>, CodecError> {
    let head = RecordHead {
        schema_version,
        origin,
    };
    let mut bytes = Vec::with_capacity(body.len() + HEAD_BYTES);
    head.encode(&mut bytes)?;
    bytes.extend_from_slice(body);
    Ok(bytes)
}
