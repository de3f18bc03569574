//! The retention of a stream's elements, and when it is trimmed.
//!
//! Trimming is amortized: a bound in elements is checked after every sixteenth of it, a bound in
//! age when the oldest element is a sixteenth too old. So a stream may exceed its bound by that
//! much, plus elements in flight to the log. Age is measured by the receive time, which is the
//! node's own clock, so a device with a wrong clock loses nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chappe_log::{Error, Stream};
use serde::{Deserialize, Serialize};

use crate::{Epoch, Position, Timestamp, decode_element};

/// Minimum number of elements after which a bound is checked; reason: a trim costs a frame in the
/// log.
const CHECK_ELEMENTS_MIN: u64 = 16;

/// Bounds of a stream; without either, elements stay as long as the log keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retention {
    /// Number of newest elements kept, plus up to a sixteenth (at least 16).
    pub elements: Option<u64>,
    /// Those younger than this, and up to a sixteenth older; by receive time.
    pub age: Option<Duration>,
}

/// Trims one stream by its retention.
#[derive(Debug, Default)]
pub(crate) struct Trimmer {
    /// The number at which the elements are counted next.
    next_check: AtomicU64,
    /// The number and the receive time of the oldest element, if known.
    oldest: Mutex<Option<(u64, Timestamp)>>,
}

impl Trimmer {
    /// The retention has changed.
    pub(crate) fn reset(&self) {
        self.next_check.store(0, Ordering::Relaxed);
    }

    /// After an append up to number `last`: trims surplus elements at intervals.
    pub(crate) fn appended(&self, stream: &Stream, last: u64, retention: Retention) {
        if last >= self.next_check.load(Ordering::Relaxed) {
            let elements = retention.elements;
            let step = elements.map_or(u64::MAX, |most| (most / 16).max(CHECK_ELEMENTS_MIN));
            let next = last.saturating_add(step);
            self.next_check.store(next, Ordering::Relaxed);
            // A log that refuses the mark refuses the next append too.
            let _ = elements.map(|most| keep_newest(stream, most));
        }
    }

    /// Trims surplus elements and those that are too old at `now`.
    pub(crate) fn trim_overdue(
        &self,
        stream: &Stream,
        now: Timestamp,
        retention: Retention,
    ) -> Result<(), Error> {
        if let Some(most) = retention.elements {
            keep_newest(stream, most)?;
        }
        let Some(age) = retention.age else {
            return Ok(());
        };
        let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        let Some((first, received)) = self.oldest(stream)? else {
            return Ok(());
        };
        let overdue = now.0.saturating_sub(age).saturating_sub(age / 16);
        if received.0 < overdue {
            let young = Timestamp(now.0.saturating_sub(age));
            let before = first_received_from(stream, first, young)?;
            drop(stream.trim(before)?);
        }
        Ok(())
    }

    /// The oldest element's number and receive time.
    fn oldest(&self, stream: &Stream) -> Result<Option<(u64, Timestamp)>, Error> {
        let mut oldest = self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        let first = stream.first();
        if oldest.is_none_or(|(number, _)| number < first) {
            *oldest = received_at(stream, first)?;
        }
        Ok(*oldest)
    }
}

fn keep_newest(stream: &Stream, most: u64) -> Result<(), Error> {
    let before = (stream.last() + 1).saturating_sub(most);
    if before > stream.first() {
        drop(stream.trim(before)?);
    }
    Ok(())
}

/// The first number from `low` whose element was received at `time` or later, if receive times are
/// ascending; the one after the last if there is none.
fn first_received_from(stream: &Stream, mut low: u64, time: Timestamp) -> Result<u64, Error> {
    let mut high = stream.last() + 1;
    while low < high {
        let middle = low + (high - low) / 2;
        match received_at(stream, middle)? {
            Some((number, received)) if number < high => match received < time {
                true => low = number + 1,
                false => high = middle,
            },
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The number and the receive time of the first element from `number` on.
fn received_at(stream: &Stream, number: u64) -> Result<Option<(u64, Timestamp)>, Error> {
    let mut read = stream.read(number, 1);
    while let Err(Error::Gap { next, .. }) = read {
        read = stream.read(next, 1);
    }
    let records = read?;
    let Some(record) = records.first() else {
        return Ok(None);
    };
    let source_time = Timestamp(record.time);
    let position = Position {
        epoch: Epoch(record.position.epoch),
        sequence: record.position.sequence,
    };
    // A record that does not decode has the age of its source time.
    let decoded = decode_element(&record.payload, position, source_time);
    let received = decoded.map_or(source_time, |(element, _)| element.receive_time);
    Ok(Some((position.sequence, received)))
}
