//! Bits that flip on a disk.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::SimDisk;

/// Lengths of a segment's header, of a frame's header, and of a record without its payload, in
/// bytes (`chappe_log`'s format).
const SEGMENT_HEADER: usize = 36;
const FRAME_HEADER: usize = 72;
const RECORD: usize = 12;
/// Kinds of frames that hold records.
const RECORDS: [u8; 2] = [1, 6];

/// Rotten data other than elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rotted {
    /// A header of a segment, a definition, a trim mark, a mark of opening or closing.
    Mark,
    /// An index snapshot.
    Index,
}

/// Flips a bit of the frame whose first record has this payload, in header or body; false if it is
/// on no disk. Of several copies the newest is used: an older one is the damaged one.
pub(super) fn flip_frame(disk: &SimDisk, element: &[u8], random: &mut fastrand::Rng) -> bool {
    let mark = &element[..element.len().min(32)];
    for name in disk.names().iter().rev() {
        let Some(bytes) = disk.bytes(name) else {
            continue;
        };
        let mut windows = bytes.windows(mark.len());
        if let Some(at) = windows.rposition(|window| window == mark) {
            let begin = at - FRAME_HEADER - RECORD;
            let byte = random.usize(begin..at + mark.len());
            return disk.flip(name, byte as u64 * 8 + random.u64(..8));
        }
    }
    false
}

/// Flips a bit that no element depends on. Data that is written twice, or can be derived from its
/// neighbours, survives one flip: at most one place of each segment file rots, and `rotten` holds
/// their names.
pub(super) fn flip_other(
    disk: &SimDisk,
    rotten: &mut BTreeSet<String>,
    random: &mut fastrand::Rng,
) -> Option<Rotted> {
    let index = random.bool();
    let ending = if index { ".index" } else { ".segment" };
    let names = disk.names().into_iter();
    let names: Vec<String> = names
        .filter(|name| name.ends_with(ending) && !rotten.contains(name))
        .collect();
    let name = names.get(random.usize(..names.len().max(1)))?;
    let bytes = disk.bytes(name)?;
    if index {
        disk.flip(name, random.u64(..(bytes.len() as u64 * 8).max(1)))
            .then_some(Rotted::Index)
    } else {
        let places = marks(&bytes);
        let place = places.get(random.usize(..places.len().max(1)))?.clone();
        rotten.insert(name.clone());
        let byte = random.usize(place) as u64;
        disk.flip(name, byte * 8 + random.u64(..8))
            .then_some(Rotted::Mark)
    }
}

/// The positions of the segment's header and of the frames without records.
fn marks(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    if bytes.len() >= SEGMENT_HEADER {
        places.push(0..SEGMENT_HEADER);
    }
    let mut at = SEGMENT_HEADER;
    while let Some(header) = bytes.get(at..at + FRAME_HEADER) {
        if header[..4] != *b"CHf1" {
            break;
        }
        let body = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let end = at + FRAME_HEADER + body;
        if end > bytes.len() {
            break;
        }
        if !RECORDS.contains(&header[4]) {
            places.push(at..end);
        }
        at = end;
    }
    places
}
