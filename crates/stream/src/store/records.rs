//! Reading a stream's records as they are stored, value by value, without making elements of them.
//!
//! A [`StreamElement`](crate::StreamElement) costs several allocations; a query that needs two numbers of
//! each record finds them in the stored bytes. The log's checksum covers every byte. A value that is
//! read is checked against its field's type; values that are skipped are not.

use std::sync::Arc;

use chappe_log::GapReason;

use super::metadata::Metadata;
use super::{StoreError, StreamLog};
use crate::codec::{RecordHead, read_varint};
use crate::schema::converted_integer;
use crate::ucum::Conversion;
use crate::{CodecError, FieldType, Quality, StreamSchema};

/// Records of one visit of the log when the index may skip some between two visits.
const SOUGHT_RECORDS: usize = 16 * 1024;
/// Bytes of one visit; the caller may stop in between.
const VISIT_BYTES: usize = 8 << 20;
/// Records of a piece for random access.
const PIECE_RECORDS: usize = 1_024;
/// Bytes after which a piece ends.
const PIECE_BYTES: usize = 1 << 20;

/// The least and the greatest time that is wanted.
pub(crate) type Times = (i64, i64);

/// A stream's records, from the oldest kept to the newest at the time of its making.
pub(crate) struct Records {
    log: StreamLog,
    metadata: Arc<Metadata>,
    /// For each version of the schema, where the current fields are.
    versions: Vec<Layout>,
    first: u64,
    last: u64,
}

/// Where the fields of the current schema are in a record of one version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// The place among the record's values; `None` when that version has no such field.
    pub(crate) places: Vec<Option<usize>>,
    /// How the numbers there become those of the field, if it had another unit.
    conversions: Vec<Option<Conversion>>,
    /// The number of values.
    pub(crate) width: usize,
    /// The type of each value.
    pub(crate) types: Vec<FieldType>,
}

/// A value in its stored form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stored<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Samples(StoredSamples<'a>),
}

/// Samples in their stored form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StoredSamples<'a> {
    pub(crate) start: i64,
    pub(crate) period_ns: u64,
    /// Eight bytes a sample.
    values: &'a [u8],
    /// Into the unit of the field.
    conversion: Option<Conversion>,
}

/// A record, its head read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordView<'a> {
    pub(crate) source_time: i64,
    pub(crate) quality: Quality,
    /// The bytes from the distance of the receive time on.
    delay: &'a [u8],
    key: Option<&'a [u8]>,
    /// The version of the schema.
    pub(crate) version: usize,
    /// The bytes of its values.
    pub(crate) values: &'a [u8],
}

impl Records {
    pub(crate) fn new(log: &StreamLog) -> Self {
        let metadata = log.snapshot();
        let current = metadata.current();
        let versions = metadata.versions.iter();
        let versions = versions.map(|version| Layout::new(current, version));
        Self {
            versions: versions.collect(),
            first: log.stream.first(),
            last: log.stream.last(),
            log: log.clone(),
            metadata,
        }
    }

    /// The schema whose fields [`RecordView::value`] counts.
    pub(crate) fn schema(&self) -> &StreamSchema {
        self.metadata.current()
    }

    pub(crate) fn layouts(&self) -> &[Layout] {
        &self.versions
    }

    /// The first and the last number that may have a time in `times`; `None` when there is none.
    pub(crate) fn numbers(&self, times: Option<Times>) -> Option<(u64, u64)> {
        let (mut first, mut last) = (self.first, self.last);
        if let Some(times) = times {
            let stream = &self.log.stream;
            let end = times.1.saturating_add(1);
            first = stream.seek_time(first, times.0, end)?;
            last = last.min(stream.seek_time_back(times.0, end)?);
        }
        (first <= last).then_some((first, last))
    }

    /// Passes number, time and payload of each record of `numbers` with a time in `times` to `take`, in
    /// the order of the numbers. Damaged records are skipped, as by
    /// [`Scan::next_undamaged`](super::Scan::next_undamaged). Ends early and returns false when
    /// `is_stopped` returns true, which is asked every few milliseconds.
    pub(crate) fn each(
        &self,
        numbers: (u64, u64),
        times: Option<Times>,
        is_stopped: &dyn Fn() -> bool,
        mut take: impl FnMut(u64, i64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let stream = &self.log.stream;
        let (mut next, last) = numbers;
        let mut begun = false;
        let most = times.map_or(usize::MAX, |_| SOUGHT_RECORDS);
        while next <= last {
            if is_stopped() {
                return Ok(false);
            }
            if let Some(times) = times {
                match stream.seek_time(next, times.0, times.1.saturating_add(1)) {
                    Some(sought) if sought <= last => next = sought,
                    _ => break,
                }
            }
            let mut outcome = Ok(());
            let mut visit = |position: chappe_log::Position, time, payload: &[u8]| {
                let is_wanted = times.is_none_or(|(low, high)| low <= time && time <= high);
                if is_wanted && position.sequence <= last && outcome.is_ok() {
                    outcome = take(position.sequence, time, payload);
                }
            };
            match stream.visit(next, most, VISIT_BYTES, &mut visit) {
                Ok(after) if after > next => {
                    begun = true;
                    next = after;
                }
                // The log no longer has the number: it was rolled back.
                Ok(_) => break,
                Err(error) => next = skipped(error, begun)?,
            }
            outcome?;
        }
        Ok(true)
    }

    /// Reads the piece that includes `number`: from it on, or up to it when `backwards`. Only records
    /// with a time in `times`, and with numbers up to `last`, are in it.
    pub(crate) fn piece(
        &self,
        number: u64,
        last: u64,
        backwards: bool,
        times: Option<Times>,
        begun: bool,
    ) -> Result<Piece, StoreError> {
        let stream = &self.log.stream;
        let records = PIECE_RECORDS as u64;
        let mut from = match backwards {
            true => number.saturating_sub(records - 1).max(self.first),
            false => number,
        };
        if let Some(times) = times
            && !backwards
        {
            let sought = stream.seek_time(number, times.0, times.1.saturating_add(1));
            let sought = sought.unwrap_or(self.last + 1);
            if sought > number {
                return Ok(Piece::empty(number, sought));
            }
        }
        let end = match backwards {
            true => number + 1,
            false => last.min(self.last).max(number) + 1,
        };
        let mut piece = Piece::empty(from, from);
        while piece.next <= number {
            let mut visit = |position: chappe_log::Position, time, payload: &[u8]| {
                if position.sequence >= end {
                    return;
                }
                // Going backwards, the records next to `number` are those that are needed.
                if piece.bytes.len() >= PIECE_BYTES {
                    piece = Piece::empty(position.sequence, position.sequence);
                }
                piece.next = position.sequence + 1;
                if times.is_none_or(|(low, high)| low <= time && time <= high) {
                    piece.push(position.sequence, time, payload);
                }
            };
            match stream.visit(from, PIECE_RECORDS, PIECE_BYTES, &mut visit) {
                Ok(after) if after > from => from = after,
                Ok(_) => {
                    piece.next = self.last + 1;
                    break;
                }
                Err(error) => {
                    from = skipped(error, begun)?;
                    piece.next = from;
                }
            }
        }
        Ok(piece)
    }

    /// Reads the head of a record.
    #[inline]
    pub(crate) fn view<'a>(
        &self,
        source_time: i64,
        payload: &'a [u8],
    ) -> Result<RecordView<'a>, StoreError> {
        // One byte, as long as there is no origin and versions are few.
        let (version, body) = match payload.split_first() {
            Some((lead, body)) if *lead < 0x80 => (usize::from(*lead), body),
            _ => {
                let (head, body) = RecordHead::decode(payload)?;
                (head.schema_version as usize, body)
            }
        };
        let Some(layout) = self.versions.get(version) else {
            return Err(unknown(version));
        };
        match RecordView::new(source_time, version, body, layout.width) {
            Some(view) => Ok(view),
            None => Err(malformed("its head")),
        }
    }

    /// A value of the record, by its field in the current schema.
    pub(crate) fn value<'a>(
        &self,
        view: &RecordView<'a>,
        field: usize,
    ) -> Result<Stored<'a>, StoreError> {
        let layout = &self.versions[view.version];
        let Some(place) = layout.places.get(field).copied().flatten() else {
            return Ok(Stored::Null);
        };
        let mut rest = view.values;
        for _ in 0..place {
            rest = skip(rest).ok_or_else(|| malformed("a value"))?;
        }
        let (value, _) = read(rest).ok_or_else(|| malformed("a value"))?;
        match (value.is_of(layout.types[place]), layout.conversions[field]) {
            (true, None) => Ok(value),
            (true, Some(conversion)) => Ok(value.converted(conversion)),
            (false, _) => Err(malformed("a value of another type")),
        }
    }

    /// Whether older elements have a field in another unit.
    pub(crate) fn is_converted(&self, field: usize) -> bool {
        let mut versions = self.versions.iter();
        versions.any(|layout| layout.conversions.get(field).is_some_and(Option::is_some))
    }
}

/// Where reading goes on after an error that is a gap, or the error.
fn skipped(error: chappe_log::Error, begun: bool) -> Result<u64, StoreError> {
    match error {
        chappe_log::Error::Gap { next, reason, .. } if reason == GapReason::Corrupt || !begun => {
            Ok(next)
        }
        error => Err(error.into()),
    }
}

#[cold]
pub(crate) fn malformed(what: &str) -> StoreError {
    CodecError::Malformed(format!("it has {what} that does not decode")).into()
}

#[cold]
fn unknown(version: usize) -> StoreError {
    StoreError::UnknownVersion(u32::try_from(version).unwrap_or(u32::MAX))
}

impl Layout {
    fn new(current: &StreamSchema, version: &StreamSchema) -> Self {
        let fields = current.fields.iter();
        let origins: Vec<_> = fields.map(|field| version.origin_of(field)).collect();
        Self {
            places: origins.iter().map(|it| it.map(|it| it.0)).collect(),
            conversions: origins.iter().map(|it| it.and_then(|it| it.1)).collect(),
            width: version.fields.len(),
            types: version
                .fields
                .iter()
                .map(|field| field.field_type)
                .collect(),
        }
    }
}

impl<'a> RecordView<'a> {
    #[inline]
    fn new(source_time: i64, version: usize, delay: &'a [u8], width: usize) -> Option<Self> {
        let rest = after_varint(delay)?;
        let (quality, rest) = varint(rest)?;
        let quality = match quality {
            0 => Quality::Good,
            1 => Quality::Questionable,
            2 => Quality::Bad,
            _ => return None,
        };
        let (has_key, mut rest) = rest.split_first()?;
        let mut key = None;
        match has_key {
            0 => {}
            1 => {
                let bytes;
                (bytes, rest) = counted(rest)?;
                key = Some(bytes);
            }
            _ => return None,
        }
        let (count, values) = varint(rest)?;
        (count == width as u64).then_some(Self {
            source_time,
            quality,
            delay,
            key,
            version,
            values,
        })
    }

    /// The time of arrival.
    pub(crate) fn receive_time(&self) -> i64 {
        let delay = varint(self.delay).map_or(0, |(delay, _)| delay);
        self.source_time.wrapping_add(zigzag(delay))
    }

    /// The key.
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        self.key
    }
}

impl<'a> StoredSamples<'a> {
    pub(crate) fn len(&self) -> usize {
        self.values.len() / 8
    }

    pub(crate) fn value(&self, index: usize) -> Option<f64> {
        let bytes = self.values.get(index * 8..index * 8 + 8)?;
        let stored = bytes.try_into().ok().map(f64::from_le_bytes)?;
        let conversion = self.conversion;
        Some(conversion.map_or(stored, |conversion| conversion.apply(stored)))
    }

    /// The time of a sample in nanoseconds.
    pub(crate) fn time(&self, index: usize) -> i64 {
        let time = i128::from(self.start) + i128::from(self.period_ns) * index as i128;
        i64::try_from(time).unwrap_or(i64::MAX)
    }

    /// As bytes: start, period and values, eight bytes each, the lowest first.
    pub(crate) fn blob(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.values.len());
        bytes.extend_from_slice(&self.start.to_le_bytes());
        bytes.extend_from_slice(&self.period_ns.to_le_bytes());
        match self.conversion {
            None => bytes.extend_from_slice(self.values),
            Some(_) => {
                let values = (0..self.len()).filter_map(|index| self.value(index));
                values.for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
            }
        }
        bytes
    }
}

impl Stored<'_> {
    /// A number in another unit.
    #[cold]
    fn converted(self, conversion: Conversion) -> Self {
        match self {
            Self::Double(number) => Self::Double(conversion.apply(number)),
            Self::Integer(whole) => {
                converted_integer(whole, conversion).map_or(Self::Null, Self::Integer)
            }
            Self::Samples(samples) => Self::Samples(StoredSamples {
                conversion: Some(conversion),
                ..samples
            }),
            other => other,
        }
    }

    fn is_of(&self, field_type: FieldType) -> bool {
        match self {
            Self::Null => true,
            Self::Boolean(_) => field_type == FieldType::Boolean,
            Self::Integer(_) => field_type == FieldType::Integer,
            Self::Double(_) => field_type == FieldType::Double,
            Self::Text(_) => field_type == FieldType::Text,
            Self::Bytes(_) => field_type == FieldType::Bytes,
            Self::Samples(_) => field_type == FieldType::Samples,
        }
    }
}

/// As [`read_varint`], fast for one byte.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes.split_first() {
        Some((byte, rest)) if *byte < 0x80 => Some((u64::from(*byte), rest)),
        _ => read_varint(bytes),
    }
}

/// What follows a number.
#[inline]
fn after_varint(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().take(10).position(|byte| *byte < 0x80)?;
    bytes.get(last + 1..)
}

#[inline]
fn zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// Bytes after their count, and the rest.
#[inline]
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = varint(bytes)?;
    rest.split_at_checked(usize::try_from(count).ok()?)
}

/// The value at the beginning, and the rest.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Option<(Stored<'_>, &[u8])> {
    let (variant, rest) = varint(bytes)?;
    Some(match variant {
        0 => (Stored::Null, rest),
        1 => {
            let (byte, rest) = rest.split_first()?;
            (Stored::Boolean(*byte == 1), rest)
        }
        2 => {
            let (number, rest) = varint(rest)?;
            (Stored::Integer(zigzag(number)), rest)
        }
        3 => {
            let (number, rest) = rest.split_first_chunk::<8>()?;
            (Stored::Double(f64::from_le_bytes(*number)), rest)
        }
        4 => {
            let (text, rest) = counted(rest)?;
            (Stored::Text(std::str::from_utf8(text).ok()?), rest)
        }
        5 => {
            let (bytes, rest) = counted(rest)?;
            (Stored::Bytes(bytes), rest)
        }
        6 => {
            let (start, rest) = varint(rest)?;
            let (period_ns, rest) = varint(rest)?;
            let (count, rest) = varint(rest)?;
            let bytes = usize::try_from(count.checked_mul(8)?).ok()?;
            let (values, rest) = rest.split_at_checked(bytes)?;
            let start = zigzag(start);
            let samples = StoredSamples {
                start,
                period_ns,
                values,
                conversion: None,
            };
            (Stored::Samples(samples), rest)
        }
        _ => return None,
    })
}

/// The byte before a double.
pub(crate) const DOUBLE: u8 = 3;

/// What follows the value at the beginning.
#[inline]
pub(crate) fn skip(bytes: &[u8]) -> Option<&[u8]> {
    match bytes.first()? {
        0 => bytes.get(1..),
        2 => after_varint(&bytes[1..]),
        3 => bytes.get(9..),
        4 => Some(counted(&bytes[1..])?.1),
        _ => Some(read(bytes)?.1),
    }
}

/// Consecutive records, held for random access.
pub(crate) struct Piece {
    /// The numbers that it covers, from the first to before `next`.
    pub(crate) first: u64,
    pub(crate) next: u64,
    bytes: Vec<u8>,
    /// Number, time and the end of the payload, which begins at the end of the one before.
    rows: Vec<(u64, i64, usize)>,
}

impl Piece {
    fn empty(first: u64, next: u64) -> Self {
        Self {
            first,
            next,
            bytes: Vec::new(),
            rows: Vec::new(),
        }
    }

    fn push(&mut self, number: u64, time: i64, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.rows.push((number, time, self.bytes.len()));
    }

    pub(crate) fn covers(&self, number: u64) -> bool {
        (self.first..self.next).contains(&number)
    }

    /// The numbers of its records.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().map(|row| row.0)
    }

    /// Time and payload of a record, if it is there.
    pub(crate) fn record(&self, number: u64) -> Option<(i64, &[u8])> {
        let first = self.rows.first()?.0;
        let guess = usize::try_from(number.checked_sub(first)?).ok()?;
        let at = match self.rows.get(guess) {
            Some(row) if row.0 == number => guess,
            _ => self.rows.binary_search_by_key(&number, |row| row.0).ok()?,
        };
        let begin = at.checked_sub(1).map_or(0, |before| self.rows[before].2);
        let (_, time, end) = self.rows[at];
        Some((time, &self.bytes[begin..end]))
    }
}
