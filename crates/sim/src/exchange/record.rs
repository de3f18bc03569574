//! The stored records: an element's content with filling, at a subscriber after its position at the
//! origin.

use chappe_log::{Error, Record, Stream};

use crate::judge::At;

/// Maximum number of records read at once.
const READ_RECORDS: usize = 4_096;

/// An element of a content, filled up with bytes that are different for each.
pub(super) fn payload(content: u64, bytes: usize) -> Vec<u8> {
    let mut payload = content.to_le_bytes().to_vec();
    let mut filling = fastrand::Rng::with_seed(content);
    payload.resize_with(bytes.max(16), || filling.u8(..));
    payload
}

/// The content of an element, or none if the filling does not match.
pub(super) fn content(bytes: &[u8]) -> Option<u64> {
    let content = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (payload(content, bytes.len()) == bytes).then_some(content)
}

/// An element as a subscriber stores it.
pub(super) fn with_origin(at: At, bytes: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(16 + bytes.len());
    record.extend_from_slice(&at.epoch.to_le_bytes());
    record.extend_from_slice(&at.number.to_le_bytes());
    record.extend_from_slice(bytes);
    record
}

/// The position and the element in a subscriber's record.
pub(super) fn split(record: &[u8]) -> Option<(At, &[u8])> {
    let epoch = u64::from_le_bytes(record.get(..8)?.try_into().ok()?);
    let number = u64::from_le_bytes(record.get(8..16)?.try_into().ok()?);
    Some((At { epoch, number }, record.get(16..)?))
}

/// Passes all records to `take`, skipping gaps.
pub(super) fn each(stream: &Stream, mut take: impl FnMut(&Record)) -> Result<(), Error> {
    let mut from = stream.first();
    while from <= stream.last() {
        match stream.read(from, READ_RECORDS) {
            Ok(records) => {
                let Some(last) = records.last() else { break };
                from = last.position.sequence + 1;
                records.iter().for_each(&mut take);
            }
            Err(Error::Gap { next, .. }) => from = next,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
