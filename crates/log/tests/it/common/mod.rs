//! Records whose contents follow from their numbers, appended to a stream and verified.

#![allow(dead_code, reason = "each test uses a part of it")]

use chappe_log::{Error, GapReason, Stream};

pub(crate) fn payload(number: u64) -> Vec<u8> {
    number.to_string().repeat(30).into_bytes()
}

/// Appends records with their numbers as times.
pub(crate) fn fill(stream: &Stream, records: u64) {
    for _ in 0..records {
        let number = stream.assigned() + 1;
        let appended = stream.append(vec![(number as i64, payload(number))]);
        appended.unwrap().wait().unwrap();
    }
}

/// Checks that everything from `first` to `last` is read, and nothing before.
pub(crate) fn holds(stream: &Stream, first: u64, last: u64) {
    assert_eq!((stream.first(), stream.last()), (first, last));
    let mut next = first;
    while next <= last {
        for record in stream.read(next, 50).unwrap() {
            let found = (record.position.sequence, record.payload);
            assert_eq!(found, (next, payload(next)));
            next += 1;
        }
    }
    assert!(stream.read(next, 1).unwrap().is_empty());
    if first > 1 {
        let gap = stream.read(first - 1, 1).unwrap_err();
        let is_trimmed =
            matches!(gap, Error::Gap { next, reason: GapReason::Trimmed, .. } if next == first);
        assert!(is_trimmed, "{gap}");
    }
}

/// Checks that everything from the first record to `last` is read.
pub(crate) fn holds_all(stream: &Stream, last: u64) {
    holds(stream, 1, last);
}
