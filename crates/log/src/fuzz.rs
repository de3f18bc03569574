//! The entry for fuzzing recovery: a segment of any bytes must neither panic nor return
//! contradictory records.

use crate::frame::{HEADER_BYTES, MAGIC, reseal};
use crate::segment::{FORMAT_VERSION, SegmentHeader, salt, segment_name};
use crate::{Error, Level, MemoryDisk, Options, Position, Store, check};

/// Recovers a log whose only segment consists of these bytes, twice: unchanged, and with all
/// checksums corrected, so that deeper checks are reached. Then reads it entirely and continues
/// writing. Panics if the store contradicts itself.
pub fn fuzz_recover(bytes: &[u8]) {
    let disk = MemoryDisk::new();
    disk.put(&segment_name(1), bytes);
    exercise(&disk);

    let store = 7;
    let header = SegmentHeader {
        version: FORMAT_VERSION,
        number: 1,
        store,
        previous: 0,
        previous_bytes: 0,
    };
    let mut sealed = header.encode().to_vec();
    let (mut rest, mut previous) = (bytes, 0);
    while rest.len() >= HEADER_BYTES {
        let mut frame = rest[..HEADER_BYTES].to_vec();
        frame[..4].copy_from_slice(&MAGIC);
        frame[5] %= 2;
        frame[6..8].fill(0);
        let length = usize::from(frame[8]).min(rest.len() - HEADER_BYTES);
        frame[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        // One in eight frames keeps its own previous checksum.
        if frame[60] % 8 != 0 {
            frame[60..64].copy_from_slice(&u32::to_le_bytes(previous));
        }
        let body = &rest[HEADER_BYTES..HEADER_BYTES + length];
        previous = reseal(&mut frame, body, salt(store, 1), sealed.len() as u32);
        sealed.extend_from_slice(&frame);
        sealed.extend_from_slice(body);
        rest = &rest[HEADER_BYTES + length..];
    }
    let disk = MemoryDisk::new();
    disk.put(&segment_name(1), &sealed);
    exercise(&disk);
}

fn exercise(disk: &MemoryDisk) {
    let report = check(disk);
    let options = Options {
        segment_bytes: 4096,
        ..Options::default()
    };
    let (store, recovery) = match Store::open(Box::new(disk.clone()), options, 3) {
        Ok(opened) => opened,
        Err(Error::Unreadable { .. } | Error::NewerFormat { .. }) => return,
        Err(error) => panic!("a disk without faults failed: {error}"),
    };
    if let Ok(report) = report {
        assert_eq!(report.records, recovery.records, "check and open agree");
    }
    for info in store.streams() {
        let Some(stream) = store.existing(&info.name) else {
            continue;
        };
        let (mut from, mut last, mut read) = (0, 0, 0u64);
        loop {
            match stream.read(from, 16) {
                Ok(records) if records.is_empty() => break,
                Ok(records) => {
                    for record in records {
                        assert!(record.position.sequence > last, "numbers rise");
                        last = record.position.sequence;
                        read += 1;
                    }
                    from = last.saturating_add(1);
                }
                Err(Error::Gap { next, .. }) => from = next,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(read <= recovery.records, "no record comes from nowhere");
        let _ = stream.range(i64::MIN, i64::MAX, 100);
        for (epoch, first) in stream.epochs() {
            for sequence in [0, first, last, u64::MAX] {
                let _ = stream.resume(Position { epoch, sequence });
            }
        }
        let kept = stream.first() + last / 2;
        if let Ok(trimmed) = stream.trim(kept) {
            assert_eq!(trimmed.wait(), Ok(()));
            assert!(
                stream.first() >= kept.min(stream.last() + 1),
                "a trim counts at once"
            );
        }
        if let Ok(appended) = stream.append(vec![(0, vec![1])]) {
            assert!(appended.first.sequence > last, "numbers are not used twice");
            assert_eq!(appended.wait(), Ok(()));
        }
    }
    let _ = store.stream("one more", Level::Power, b"");
    assert_eq!(store.close(), Ok(()));
}
