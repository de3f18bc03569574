//! Which link feeds which stream here: one at a time. How far a stream was read stands in its log, so
//! a link may only read that when nobody else is about to write behind it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_stream::{Epoch, Position};
use tokio::sync::Notify;

use super::LinkError;
use super::link::Link;

/// Streams that nobody feeds of which is remembered what was told lost; reason: an origin may make up
/// names without end.
const REMEMBERED_MAX: usize = 65_536;
/// Ranges of one stream that are remembered as told lost; reason: only those matter that a log that becomes
/// full can take back, and a link has no more losses on its way to the disk unless elements of less than a
/// kilobyte are between them. With 16 KiB of them for a stream, memory stays bounded.
const RANGES_MAX: usize = 1_024;

/// The streams that links feed.
#[derive(Default)]
pub(crate) struct Feeding {
    streams: Mutex<BTreeMap<String, Fed>>,
    freed: Notify,
}

/// One stream, by its name here.
#[derive(Default)]
struct Fed {
    by: Option<Arc<Link>>,
    lost: ToldLost,
}

/// Elements that were told lost, and counted, whichever link was told.
#[derive(Default)]
struct ToldLost {
    epoch: Epoch,
    /// Rising and apart. Elements between them were stored, or are again to come.
    ranges: VecDeque<Range<u64>>,
}

impl ToldLost {
    /// The numbers from `from` up to `next` are told lost; how many of them were not told before.
    fn add(&mut self, from: Position, next: u64) -> u64 {
        if self.epoch != from.epoch {
            *self = Self {
                epoch: from.epoch,
                ranges: VecDeque::new(),
            };
        }
        let (mut all, mut known) = (from.sequence..next, 0);
        self.ranges.retain(|told| {
            let is_apart = told.end < from.sequence || told.start > next;
            if !is_apart {
                let both = told.start.max(from.sequence)..told.end.min(next);
                known += both.end.saturating_sub(both.start);
                all = all.start.min(told.start)..all.end.max(told.end);
            }
            is_apart
        });
        let place = self.ranges.partition_point(|told| told.start < all.start);
        self.ranges.insert(place, all);
        if self.ranges.len() > RANGES_MAX {
            self.ranges.pop_front();
        }
        (next - from.sequence) - known
    }

    /// Everything up to here is stored: what was told lost before it is never told again.
    fn forget_to(&mut self, stored: Position) {
        if self.epoch == stored.epoch {
            let done = self
                .ranges
                .partition_point(|told| told.end <= stored.sequence);
            self.ranges.drain(..done);
        }
    }
}

/// The right to feed a stream, until it is dropped.
pub(crate) struct Claim {
    link: Arc<Link>,
    stream: String,
}

impl Claim {
    /// The right to feed the stream of this name here. One that is about to be given back is waited
    /// for: that of a link that was removed, or the link's own.
    ///
    /// # Errors
    /// Another link has it.
    pub(crate) async fn new(link: &Arc<Link>, stream: &str) -> Result<Self, LinkError> {
        let feeding = &link.shared.feeding;
        loop {
            let freed = feeding.freed.notified();
            {
                let mut streams = feeding.streams();
                let fed = streams.entry(stream.to_owned()).or_default();
                match &fed.by {
                    Some(by) if Arc::ptr_eq(by, link) || by.is_ended() => {}
                    Some(by) => {
                        return Err(LinkError::Fed {
                            stream: stream.to_owned(),
                            link: by.config.name.clone(),
                        });
                    }
                    None => {
                        fed.by = Some(link.clone());
                        return Ok(Self {
                            link: link.clone(),
                            stream: stream.to_owned(),
                        });
                    }
                }
            }
            freed.await;
        }
    }

    /// The numbers from `from` up to `next` are told lost; how many of them were not told before.
    pub(crate) fn told_lost(&self, from: Position, next: u64) -> u64 {
        let mut streams = self.link.shared.feeding.streams();
        let fed = streams.entry(self.stream.clone()).or_default();
        fed.lost.add(from, next)
    }

    /// Everything up to here is stored.
    pub(crate) fn stored(&self, position: Position) {
        let mut streams = self.link.shared.feeding.streams();
        if let Some(fed) = streams.get_mut(&self.stream) {
            fed.lost.forget_to(position);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let feeding = &self.link.shared.feeding;
        {
            let mut streams = feeding.streams();
            let full = streams.len() > REMEMBERED_MAX;
            match streams.get_mut(&self.stream) {
                Some(fed) if !fed.lost.ranges.is_empty() && !full => fed.by = None,
                _ => drop(streams.remove(&self.stream)),
            }
        }
        feeding.freed.notify_waiters();
    }
}

impl Feeding {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, Fed>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, sequence: u64) -> Position {
        let epoch = Epoch(epoch);
        Position { epoch, sequence }
    }

    #[test]
    fn what_was_taken_back_between_losses_and_is_lost_then_is_counted() {
        let mut told = ToldLost::default();
        assert_eq!(told.add(at(1, 100), 500), 400);
        // Elements 500 to 520 are queued, and the log is full.
        assert_eq!(told.add(at(1, 521), 560), 39);
        // Taken back, it begins anew behind 99, and the origin keeps nothing before 700.
        assert_eq!(told.add(at(1, 100), 700), 600 - 400 - 39);
        assert_eq!(told.add(at(1, 100), 700), 0);
        assert_eq!(told.add(at(1, 690), 701), 1);
        assert_eq!(told.add(at(2, 100), 200), 100, "another epoch");
    }

    #[test]
    fn ranges_are_bounded_and_the_newest_stay() {
        let mut told = ToldLost::default();
        let end = RANGES_MAX as u64 + 100;
        for n in 0..end {
            assert_eq!(told.add(at(1, 10 * n + 1), 10 * n + 5), 4);
        }
        assert_eq!(told.ranges.len(), RANGES_MAX);
        assert_eq!(told.add(at(1, 10 * end - 100), 10 * end), 100 - 4 * 10);
    }

    #[test]
    fn what_is_stored_needs_no_memory() {
        let mut told = ToldLost::default();
        told.add(at(1, 10), 20);
        told.add(at(1, 30), 40);
        told.forget_to(at(2, 100));
        assert_eq!(told.ranges.len(), 2, "another epoch");
        told.forget_to(at(1, 35));
        assert_eq!(told.ranges.len(), 1);
        assert_eq!(told.add(at(1, 30), 45), 5);
    }
}
