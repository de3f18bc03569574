//! Invariants of the answers of GSN's REST interface for any bytes.

use chappe_gsn::exchange::Progress;
use chappe_gsn::mapping;
use chappe_gsn::rest::{Pull, Taken, read_answer, read_token};
use chappe_stream::Timestamp;

use crate::bounds::Bound;

/// Each value takes 32 bytes, and may be one digit and a comma; a row names its fields again.
const BOUND: Bound = Bound::memory(6 << 20, 300);
/// 2023-11-14.
const NOW_MS: i64 = 1_700_000_000_000;

/// No panic; a row with a time is new in one answer only; an element has the fields of the answer, and the next range
/// starts at no time that is ahead of the clock.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let _ = read_token(data);
    let Ok(mut answer) = read_answer(data) else {
        return;
    };
    let schema = mapping::schema(&answer.fields).ok();
    let mut pull = Pull::new(Progress::default(), 0);
    while let Some(row) = answer.next() {
        let is_new = pull.take(&row, NOW_MS) == Ok(Taken::New);
        if let Ok(element) = &row.element {
            assert_eq!(element.values.len(), answer.fields.len());
            assert_eq!(Some(element.timed_ms), row.timed_ms);
            if let (true, Some(schema)) = (is_new, &schema) {
                let _ = mapping::from_gsn(element, schema, Timestamp(0));
            }
        }
    }
    drop(answer);
    let asked = pull.next(NOW_MS);
    assert!(asked.from_ms <= NOW_MS + 300_000);
    pull.answered(asked, NOW_MS);
    let again = read_answer(data).into_iter().flatten();
    for row in again.filter(|row| row.timed_ms.is_some()) {
        assert_ne!(pull.take(&row, NOW_MS), Ok(Taken::New));
    }
}
