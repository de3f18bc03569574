//! Putting back what was damaged: a stream and its copy on another node have the same elements, so
//! that the holes of one are filled from the other.

use chappe_log::{Appended, Error};

use super::{RawRecords, StoreError, StreamLog};
use crate::codec::{RecordHead, validate_body};
use crate::{CodecError, Epoch, IntakeError, Position, Timestamp};

/// Numbers that are damaged here, and where the same elements stand at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first number here.
    pub here: Position,
    /// Where that element stands at the origin: for a copy, at the node that it came from; for a
    /// stream of this node, the same as `here`.
    pub origin: Position,
    /// How many.
    pub count: u64,
}

impl StreamLog {
    /// The damaged numbers of a stream of this node.
    #[must_use]
    pub fn holes(&self) -> Vec<Hole> {
        let epochs = self.stream.epochs();
        let mut holes = Vec::new();
        for (first, last) in self.stream.gaps() {
            // A part for each epoch that has elements in it.
            let begins = epochs.iter().map(|(_, begin)| *begin);
            let begins = begins.filter(|begin| *begin > first && *begin <= last);
            let mut from = first;
            for next in begins.chain([last + 1]) {
                if next == from {
                    continue;
                }
                let here = self.position_of(from);
                holes.push(Hole {
                    here,
                    origin: here,
                    count: next - from,
                });
                from = next;
            }
        }
        holes
    }

    /// The damaged numbers of a stream that came over a link, as far as the elements around them tell
    /// where they stood at the origin.
    ///
    /// # Errors
    /// What the log says.
    pub fn copied_holes(&self) -> Result<Vec<Hole>, StoreError> {
        let mut holes = Vec::new();
        for hole in self.holes() {
            let first = hole.here.sequence;
            let before = self.origin_of(first.saturating_sub(1))?;
            let behind = self.origin_of(first + hole.count)?;
            let (Some(before), Some(behind)) = (before, behind) else {
                continue;
            };
            let fits = before.epoch == behind.epoch
                && behind.sequence.checked_sub(before.sequence) == Some(hole.count + 1);
            if fits {
                let sequence = before.sequence + 1;
                let origin = Position { sequence, ..before };
                holes.push(Hole { origin, ..hole });
            }
        }
        Ok(holes)
    }

    /// Records that came from consecutive numbers of the origin from `from` on, in its newest epoch
    /// here: the first of at most `count` that is here, and those behind it without a hole. Their
    /// position is that at the origin.
    ///
    /// # Errors
    /// What the log says.
    pub fn read_copied(
        &self,
        from: Position,
        count: u64,
        bytes: usize,
    ) -> Result<RawRecords, StoreError> {
        let nothing = RawRecords::default();
        let newest = self.newest_origin()?;
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
            let Some(record) = one.records.pop() else {
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

    /// Puts damaged records back that a reader of this stream has. The result resolves when they are
    /// stored.
    ///
    /// # Errors
    /// A record that does not fit its version of the schema, numbers that are not damaged, or what the
    /// log says.
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

    /// Puts checked records back.
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
                "it has an origin of elsewhere".into(),
            ));
        }
        validate_body(body, &schema)
    }

    /// The position of the element with this number, whether it is there or to come.
    #[must_use]
    pub fn position_of(&self, sequence: u64) -> Position {
        let epochs = self.stream.epochs();
        let epoch = epochs.iter().rev().find(|(_, first)| *first <= sequence);
        Position {
            epoch: Epoch(epoch.map_or(self.stream.epoch(), |(epoch, _)| *epoch)),
            sequence,
        }
    }

    /// Where the element of a number stands at the origin; none if it is not there, or did not come
    /// over a link.
    fn origin_of(&self, number: u64) -> Result<Option<Position>, StoreError> {
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

    /// The first number here whose element stands at `from` or behind it at the origin, in the
    /// origin's newest epoch; and where.
    fn first_copied(&self, from: Position) -> Result<Option<(u64, Position)>, StoreError> {
        let (mut low, mut high) = (self.stream.first(), self.stream.last() + 1);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            // The next one with an origin, at `middle` or behind it.
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
    /// The same records under another number of the same version of the schema: that of the node that
    /// they are sent to.
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
