//! Records packed one after another: written once, shared without copying, read by borrowing.
//!
//! A packed record is its time (eight bytes, little-endian), the length of its payload (varint) and
//! the payload. It does not depend on its position, so any run of complete records is [`Records`]
//! too.

use alloc::vec::Vec;

use bytes::Bytes;

use chappe_machine::wire::{Reader, varint_len, write_varint};

/// Consecutive records, packed. Cloning shares the bytes.
///
/// ```
/// use chappe_flow::Records;
/// let records: Records = [(7, b"21.5".as_slice()), (8, b"21.6")].into_iter().collect();
/// assert_eq!(records.len(), 2);
/// let payloads: Vec<&[u8]> = records.iter().map(|record| record.payload).collect();
/// assert_eq!(payloads, [b"21.5", b"21.6"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Records {
    bytes: Bytes,
    count: u32,
}

/// One record, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Source time, nanoseconds since 1970.
    pub time: i64,
    /// The bytes; the schema gives their meaning.
    pub payload: &'a [u8],
}

impl Records {
    /// The packed size of a record with a payload of this length in bytes. Windows count these.
    #[must_use]
    pub const fn packed_bytes(payload: usize) -> usize {
        8 + varint_len(payload as u64) + payload
    }

    /// The number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The packed bytes, which windows count.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The records in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            reader: Reader::new(&self.bytes),
        }
    }

    /// The records after the first `count`.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        let mut reader = Reader::new(&self.bytes);
        let skipped = count.min(self.len());
        for _ in 0..skipped {
            let _ = read_record(&mut reader);
        }
        Self {
            bytes: self.bytes.slice(reader.offset()..),
            count: self
                .count
                .saturating_sub(u32::try_from(skipped).unwrap_or(u32::MAX)),
        }
    }

    /// The first records: at most `count` of them, and at most `bytes` but at least one.
    #[must_use]
    pub fn take(&self, count: usize, bytes: usize) -> Self {
        if self.len() <= count && self.bytes.len() <= bytes {
            return self.clone();
        }
        let mut reader = Reader::new(&self.bytes);
        let (mut taken, mut end) = (0, 0);
        while taken < count.min(self.len()) && read_record(&mut reader).is_some() {
            if taken > 0 && reader.offset() > bytes {
                break;
            }
            taken += 1;
            end = reader.offset();
        }
        Self {
            bytes: self.bytes.slice(..end),
            count: u32::try_from(taken).unwrap_or(u32::MAX),
        }
    }

    /// The packed bytes.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Takes over packed bytes; `None` unless they are `count` complete records.
    pub(crate) fn from_packed(bytes: Bytes, count: u64) -> Option<Self> {
        let count = u32::try_from(count).ok()?;
        let mut reader = Reader::new(&bytes);
        for _ in 0..count {
            read_record(&mut reader)?;
        }
        reader.is_empty().then_some(())?;
        Some(Self { bytes, count })
    }
}

fn read_record<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let time = i64::from_le_bytes(reader.array()?);
    let length = usize::try_from(reader.varint()?).ok()?;
    let payload = reader.take(length)?;
    Some(Record { time, payload })
}

/// Goes through [`Records`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Record<'a>;
    fn next(&mut self) -> Option<Record<'a>> {
        if self.reader.is_empty() {
            return None;
        }
        read_record(&mut self.reader)
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Record<'a>;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<P: AsRef<[u8]>> FromIterator<(i64, P)> for Records {
    fn from_iter<I: IntoIterator<Item = (i64, P)>>(records: I) -> Self {
        let mut builder = RecordsBuilder::default();
        for (time, payload) in records {
            builder.push(time, payload.as_ref());
        }
        builder.finish()
    }
}

/// Packs records.
#[derive(Debug, Clone, Default)]
pub struct RecordsBuilder {
    bytes: Vec<u8>,
    count: u32,
}

impl RecordsBuilder {
    /// A builder with room for `bytes` packed bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            count: 0,
        }
    }

    /// Adds a record.
    pub fn push(&mut self, time: i64, payload: &[u8]) {
        self.bytes.extend_from_slice(&time.to_le_bytes());
        write_varint(&mut self.bytes, payload.len() as u64);
        self.bytes.extend_from_slice(payload);
        self.count = self.count.saturating_add(1);
    }

    /// Adds packed records.
    pub fn append(&mut self, records: &Records) {
        self.bytes.extend_from_slice(&records.bytes);
        self.count = self.count.saturating_add(records.count);
    }

    /// Packed bytes so far.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Records so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The records.
    #[must_use]
    pub fn finish(self) -> Records {
        Records {
            bytes: Bytes::from(self.bytes),
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn runs_of_whole_records_are_records() {
        let payloads = [vec![1; 3], vec![2; 200], vec![]];
        let records: Records = (1..).zip(&payloads).collect();
        assert_eq!(records.skip(1).len(), 2);
        assert_eq!(records.skip(2).iter().next().unwrap().time, 3);
        assert!(records.skip(9).is_empty());
        assert_eq!(records.take(2, usize::MAX).len(), 2);
        assert_eq!(records.take(9, 20).len(), 1, "12 bytes, then 210");
        assert_eq!(records.skip(1).take(9, 20).len(), 1, "never nothing");
        let lengths = payloads.iter().map(|one| Records::packed_bytes(one.len()));
        assert_eq!(lengths.sum::<usize>(), records.byte_len());
        let bytes = records.bytes().clone();
        assert_eq!(Records::from_packed(bytes.clone(), 3), Some(records));
        assert_eq!(Records::from_packed(bytes.clone(), 2), None);
        assert_eq!(Records::from_packed(bytes, 4), None);
    }
}
