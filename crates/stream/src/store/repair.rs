//! Restores damaged elements: a stream and its copy on another node have the same elements, so the
//! holes of one are filled from the other.

use std::ops::Range;

use chappe_log::{Appended, Error};

use super::{RawRecords, StoreError, StreamLog};
use crate::codec::{RecordHead, validate_body};
use crate::{CodecError, Epoch, IntakeError, Position, Timestamp};

/// Damaged numbers, and the positions of the same elements at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first number here.
    pub here: Position,
    /// Position of that element at the origin: for a copy, at the node it came from; for a stream
    /// of this node, the same as `here`.
    pub origin: Position,
    /// The number of elements.
    pub count: u64,
}

impl From<chappe_log::Hole> for Hole {
    fn from(hole: chappe_log::Hole) -> Self {
        Self {
            here: position(hole.here),
            origin: position(hole.origin),
            count: hole.count,
        }
    }
}

const fn position(at: chappe_log::Position) -> Position {
    Position {
        epoch: Epoch(at.epoch),
        sequence: at.sequence,
    }
}

impl StreamLog {
    /// The damaged numbers of a stream of this node.
    #[must_use]
    pub fn holes(&self) -> Vec<Hole> {
        self.stream.holes().into_iter().map(Hole::from).collect()
    }

    /// The damaged numbers of a stream that came over a link, and the positions that the elements may
    /// have at their origin ([`chappe_log::Stream::copied_holes`]).
    ///
    /// The log's errors.
    /// Those of the log.
    pub fn copied_holes(&self) -> Result<Vec<Hole>, StoreError> {
        let holes = self.stream.copied_holes(|number| {
            let origin = self.origin_of(number)?;
            Ok::<_, StoreError>(origin.map(|at| chappe_log::Position {
                epoch: at.epoch.0,
                sequence: at.sequence,
            }))
        })?;
        Ok(holes.into_iter().map(Hole::from).collect())
    }

    /// Records of one epoch from a range of numbers: the first that exists, and those that follow
    /// without a hole and with the same version of the schema.
    ///
    /// # Errors
    /// The log's error. An empty result is not an error.
    pub fn read_epoch(
        &self,
        epoch: Epoch,
        range: Range<u64>,
        bytes: usize,
    ) -> Result<RawRecords, StoreError> {
        let epochs = self.stream.epochs();
        let begin = epochs.iter().find(|(it, _)| *it == epoch.0);
        let Some((_, begin)) = begin else {
            return Ok(RawRecords::default());
        };
        let mut from = range.start.max(*begin);
        loop {
            let count = usize::try_from(range.end.saturating_sub(from)).unwrap_or(usize::MAX);
            match self.read_raw(from, count, bytes) {
                Err(StoreError::Log(Error::Gap { next, .. }))
                    if next > from && next < range.end =>
                {
                    from = next;
                }
                Ok(raw) if raw.first.epoch != epoch => return Ok(RawRecords::default()),
                other => return other,
            }
        }
    }

    /// Records that came from consecutive numbers of the origin from `from`, in its newest epoch
    /// here: the first of at most `count` that exists, and those that follow without a hole and
    /// with the same version of the schema. Their position is that at the origin.
    ///
    /// # Errors
    /// The log's error.
    pub fn read_copied(
        &self,
        from: Position,
        count: u64,
        bytes: usize,
    ) -> Result<RawRecords, StoreError> {
        let nothing = RawRecords::default();
        let newest = self.newest_origin();
        if newest.is_none_or(|newest| newest.epoch != from.epoch) {
            return Ok(nothing);
        }
        let Some((mut number, first)) = self.first_copied(from)? else {
            return Ok(nothing);
        };
        if first.sequence >= from.sequence.saturating_add(count) {
            return Ok(nothing);
        }
        let most = from.sequence + count - first.sequence;
        let mut all = RawRecords::default();
        let mut gathered = 0;
        while (all.records.len() as u64) < most && gathered < bytes.max(1) {
            let wanted = first.sequence + all.records.len() as u64;
            match self.origin_of(number)? {
                Some(origin) if origin.epoch == first.epoch && origin.sequence == wanted => {}
                _ => break,
            }
            let mut one = self.read_raw(number, 1, usize::MAX)?;
            let is_first = all.records.is_empty();
            let Some(record) = one
                .records
                .pop()
                .filter(|_| is_first || one.schema_version == all.schema_version)
            else {
                break;
            };
            all.schema_version = one.schema_version;
            gathered += record.1.len();
            all.records.push(record);
            number += 1;
        }
        all.first = first;
        Ok(all)
    }

    /// Restores damaged records from a reader of this stream. The result resolves when they are
    /// stored.
    ///
    /// # Errors
    /// A record that does not fit its version of the schema, numbers that are not damaged, or the
    /// log's error.
    pub fn put_back<T: AsRef<[u8]>>(
        &self,
        first: Position,
        records: impl Iterator<Item = (Timestamp, T)>,
    ) -> Result<Appended, StoreError> {
        let mut batch = Vec::new();
        for (index, (time, record)) in records.enumerate() {
            let record = record.as_ref();
            self.check_own(record)
                .map_err(|error| IntakeError { index, error })?;
            batch.push((time.0, record.to_vec()));
        }
        self.fill(first, batch)
    }

    /// Stores checked records at damaged numbers.
    pub(super) fn fill(
        &self,
        first: Position,
        batch: Vec<(i64, Vec<u8>)>,
    ) -> Result<Appended, StoreError> {
        let first = chappe_log::Position {
            epoch: first.epoch.0,
            sequence: first.sequence,
        };
        Ok(self.stream.fill(first, batch)?)
    }

    fn check_own(&self, record: &[u8]) -> Result<(), CodecError> {
        let (head, body) = RecordHead::decode(record)?;
        let schema = self.schema_of(head.schema_version);
        let schema = schema.ok_or(CodecError::Version(head.schema_version))?;
        if head.origin.is_some() {
            return Err(CodecError::Malformed(
                "the record has an origin at another node".into(),
            ));
        }
        validate_body(body, &schema)
    }

    /// The position of the element with this number, whether it exists yet or not.
    #[must_use]
    pub fn position_of(&self, sequence: u64) -> Position {
        position(self.stream.position_of(sequence))
    }

    /// The numbers from `from` up to `next`, one part for each epoch: the position of its first
    /// number, and the number after its last.
    #[must_use]
    pub fn by_epoch(&self, from: u64, next: u64) -> Vec<(Position, u64)> {
        let epochs = self.stream.epochs();
        let begins = epochs.iter().map(|(_, begin)| *begin);
        let mut parts = Vec::new();
        let mut first = from;
        for end in begins
            .filter(|begin| *begin > from && *begin < next)
            .chain([next])
        {
            if end > first {
                parts.push((self.position_of(first), end));
                first = end;
            }
        }
        parts
    }

    /// The position of an element at the origin; none if it does not exist, or did not come over a
    /// link.
    pub(super) fn origin_of(&self, number: u64) -> Result<Option<Position>, StoreError> {
        if number == 0 {
            return Ok(None);
        }
        let records = match self.stream.read(number, 1) {
            Ok(records) => records,
            Err(Error::Gap { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match records.first() {
            Some(record) => Ok(RecordHead::decode(&record.payload)?.0.origin),
            None => Ok(None),
        }
    }

    /// The first number here whose element is at or after `from` at the origin, in the origin's
    /// newest epoch; and its position there.
    fn first_copied(&self, from: Position) -> Result<Option<(u64, Position)>, StoreError> {
        let (mut low, mut high) = (self.stream.first(), self.stream.last() + 1);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            // The next one with an origin, at or after `middle`.
            let mut at = middle;
            let mut origin = None;
            while at < high && origin.is_none() {
                origin = self.origin_of(at)?;
                at += 1;
            }
            match origin {
                Some(origin) if origin.epoch != from.epoch || origin.sequence < from.sequence => {
                    low = at;
                }
                Some(origin) => {
                    found = Some((at - 1, origin));
                    high = middle;
                }
                None => high = middle,
            }
        }
        Ok(found)
    }
}

impl RawRecords {
    /// The same records under the receiving node's number for this version of the schema.
    ///
    /// # Errors
    /// A record that does not decode, or a number beyond the limit.
    pub fn with_version(mut self, schema_version: u32) -> Result<Self, StoreError> {
        for (_, record) in &mut self.records {
            let (_, body) = RecordHead::decode(record)?;
            let head = RecordHead {
                schema_version,
                origin: None,
            };
            let mut bytes = Vec::with_capacity(record.len() + 1);
            head.encode(&mut bytes)?;
            bytes.extend_from_slice(body);
            *record = bytes;
        }
        self.schema_version = schema_version;
        Ok(self)
    }
}
