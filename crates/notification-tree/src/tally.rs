//! A source's record of the sinks of one event.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use chappe_machine::Instant;

use crate::coverage::Piece;

/// The sinks that have an event, those that failed, and the rest.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sinks: u32,
    /// A bit for each sink whose receipt was verified.
    delivered: Vec<u64>,
    delivered_count: u32,
    /// Sinks that did not answer the source itself.
    failed: BTreeSet<u32>,
    /// Sinks that forwarders reported as failed; the source tries each itself, once a round.
    reported_failed: BTreeSet<u32>,
    round: u8,
    lies: u32,
    published: Instant,
}

impl Tally {
    /// Starts over for a new event, in the memory of an ended one.
    pub(crate) fn restart(&mut self, sinks: u32, published: Instant) {
        let mut delivered = core::mem::take(&mut self.delivered);
        delivered.clear();
        delivered.resize((sinks as usize).div_ceil(64), 0);
        *self = Self {
            sinks,
            delivered,
            published,
            ..Self::default()
        };
    }

    /// The bytes of its allocation.
    pub(crate) fn bytes(&self) -> usize {
        self.delivered.capacity() * size_of::<u64>()
    }

    pub(crate) fn sinks(&self) -> u32 {
        self.sinks
    }

    /// The number of the current round, from 0.
    pub(crate) fn round(&self) -> u8 {
        self.round
    }

    pub(crate) fn next_round(&mut self) {
        self.round += 1;
        self.reported_failed.clear();
    }

    pub(crate) fn lies(&self) -> u32 {
        self.lies
    }

    pub(crate) fn count_lie(&mut self) {
        self.lies = self.lies.saturating_add(1);
    }

    pub(crate) fn published(&self) -> Instant {
        self.published
    }

    /// The time when the outcome is due.
    pub(crate) fn end(&self, within: Duration) -> Instant {
        self.published + within
    }

    fn has(&self, sink: u32) -> bool {
        self.delivered[sink as usize / 64] >> (sink % 64) & 1 == 1
    }

    /// Adds a piece whose receipts were verified. Returns for how many of its sinks it is the first report
    /// in this round.
    pub(crate) fn cover(&mut self, piece: &Piece) -> u32 {
        let mut failed = piece.failed.iter().copied().peekable();
        let mut fresh = 0;
        for sink in piece.first..piece.end.min(self.sinks) {
            let is_first = !self.has(sink) && !self.reported_failed.contains(&sink);
            fresh += u32::from(is_first);
            if failed.next_if_eq(&sink).is_none() && !self.has(sink) {
                self.delivered[sink as usize / 64] |= 1 << (sink % 64);
                self.delivered_count += 1;
                self.failed.remove(&sink);
            }
        }
        fresh
    }

    /// The sinks that a piece reports as failed for the first time in this round.
    pub(crate) fn newly_reported_failed(&mut self, piece: &Piece) -> Vec<u32> {
        let mut failed = piece.failed.clone();
        failed.retain(|sink| {
            *sink < self.sinks && !self.has(*sink) && self.reported_failed.insert(*sink)
        });
        failed
    }

    /// A sink did not answer the source itself.
    pub(crate) fn add_failed(&mut self, sink: u32) {
        if !self.has(sink) {
            self.failed.insert(sink);
        }
    }

    /// The failed sinks, increasing; none are left in the tally.
    pub(crate) fn take_failed(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.failed).into_iter().collect()
    }

    /// Whether all sinks have the event.
    pub(crate) fn is_complete(&self) -> bool {
        self.delivered_count == self.sinks
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let bits: u32 = self.delivered.iter().map(|word| word.count_ones()).sum();
        let both = self.failed.iter().find(|sink| self.has(**sink));
        if bits != self.delivered_count || bits > self.sinks || both.is_some() {
            let count = self.delivered_count;
            return Err(format!(
                "{bits} of {} sinks have the event, counted {count}; {both:?} has it and failed",
                self.sinks
            ));
        }
        Ok(())
    }

    /// Ranges of sinks that neither have the event nor failed.
    pub(crate) fn unknown(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut sink = 0;
        while sink < self.sinks {
            let word = self.delivered[sink as usize / 64] >> (sink % 64);
            if word == u64::MAX >> (sink % 64) {
                sink = (sink / 64 + 1) * 64;
                continue;
            }
            if word & 1 == 0 && !self.failed.contains(&sink) {
                match ranges.last_mut() {
                    Some(last) if last.1 == sink => last.1 += 1,
                    _ => ranges.push((sink, sink + 1)),
                }
            }
            sink += 1;
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn piece(first: u32, end: u32, failed: Vec<u32>) -> Piece {
        Piece {
            first,
            end,
            failed,
            receipts: 0,
        }
    }

    #[test]
    fn only_verified_sinks_count_as_delivered() {
        let mut tally = Tally::default();
        tally.restart(130, Instant::ZERO);
        assert_eq!(tally.unknown(), [(0, 130)]);
        let first = piece(0, 100, vec![7, 80]);
        assert_eq!(tally.cover(&first), 100);
        assert_eq!(tally.newly_reported_failed(&first), [7, 80]);
        assert_eq!(tally.newly_reported_failed(&first), []);
        assert_eq!(tally.unknown(), [(7, 8), (80, 81), (100, 130)]);
        tally.add_failed(7);
        tally.add_failed(0);
        assert_eq!(tally.unknown(), [(80, 81), (100, 130)]);
        // The sink was late: its receipt counts more than its silence.
        assert_eq!(tally.cover(&piece(7, 8, vec![])), 0);
        assert_eq!(tally.cover(&piece(80, 200, vec![])), 30);
        assert!(tally.is_complete());
        assert_eq!(tally.check(), Ok(()));
        assert_eq!(tally.take_failed(), []);
    }
}
