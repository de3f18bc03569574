//! The round-trip estimate, and the time-out that follows from it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::{Instant, RoundTripEstimator};

use crate::Key;

/// Timed-out requests that are remembered. Reason: about as many as are in flight at a time.
const LATE_MAX: usize = 64;
/// After this many consecutive time-outs, the time-out is considered too short, not the peers dead.
/// Reason: one lookup has as many in flight. If 1 of 20 nodes is dead, more than that in a row
/// happens once in 10^5 times.
const SILENT_MIN: u32 = 4;

/// A request that timed out: its answer may still arrive.
#[derive(Debug)]
struct Late {
    key: (Key, u64),
    address: SocketAddr,
    at: Instant,
}

/// Estimates round trips (RFC 6298): one estimator for all peers, since most are asked once.
///
/// Late answers count as samples until one is in time: on a path with a round trip above the first
/// time-out all answers are late. While other peers answer in time, a late answer carries no information
/// about the network.
#[derive(Debug)]
pub(super) struct RoundTrip {
    estimator: RoundTripEstimator,
    bounds: (Duration, Duration, Duration),
    /// Consecutive time-outs since the last answer in time.
    silent: u32,
    late: VecDeque<Late>,
}

impl RoundTrip {
    pub(super) fn new(bounds: (Duration, Duration, Duration)) -> Self {
        Self {
            estimator: RoundTripEstimator::new(),
            bounds,
            silent: 0,
            late: VecDeque::new(),
        }
    }

    /// Records an answer that arrived in time.
    pub(super) fn on_answer(&mut self, took: Duration) {
        self.silent = 0;
        self.estimator.sample(took);
    }

    /// The time-out of the next request.
    pub(super) fn timeout(&self) -> Duration {
        let (first, least, most) = self.bounds;
        let timeout = self.estimator.timeout(Duration::ZERO);
        timeout.map_or(first, |timeout| timeout.clamp(least, most))
    }

    /// Records that a request sent at `at` was not answered in time.
    pub(super) fn timed_out(&mut self, key: (Key, u64), address: SocketAddr, at: Instant) {
        self.silent = self.silent.saturating_add(1);
        if self.late.len() >= LATE_MAX {
            self.late.pop_front();
        }
        self.late.push_back(Late { key, address, at });
    }

    /// Whether an answer belongs to a request that timed out; true once for each request.
    pub(super) fn is_late_answer(
        &mut self,
        now: Instant,
        key: (Key, u64),
        address: SocketAddr,
    ) -> bool {
        let its = |late: &Late| late.key == key && late.address == address;
        let Some(late) = self.late.iter().position(its) else {
            return false;
        };
        let Some(late) = self.late.remove(late) else {
            return false;
        };
        if self.silent >= SILENT_MIN || self.estimator.mean().is_none() {
            let (_, _, most) = self.bounds;
            self.estimator.sample((now - late.at).min(most));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn key(number: u64) -> (Key, u64) {
        (Key::new(7), number)
    }

    fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    fn round_trip() -> RoundTrip {
        RoundTrip::new((500 * MS, 50 * MS, 3_000 * MS))
    }

    #[test]
    fn late_answers_make_the_wait_long_enough_and_count_once() {
        let mut it = round_trip();
        let sent = Instant::ZERO;
        it.timed_out(key(1), address(1), sent);
        let now = sent + 1_400 * MS;
        assert!(!it.is_late_answer(now, key(2), address(1)), "never asked");
        assert!(!it.is_late_answer(now, key(1), address(2)), "another peer");
        assert!(it.is_late_answer(now, key(1), address(1)));
        assert!(
            !it.is_late_answer(now, key(1), address(1)),
            "the second time"
        );
        assert!(it.timeout() > 1_400 * MS);
        // However late, the bound holds.
        it.timed_out(key(3), address(1), sent);
        assert!(it.is_late_answer(sent + 90_000 * MS, key(3), address(1)));
        assert!(it.timeout() <= 3_000 * MS);
    }

    #[test]
    fn while_others_answer_in_time_a_late_one_says_nothing_of_the_network() {
        let mut it = round_trip();
        it.on_answer(40 * MS);
        let usual = it.timeout();
        for number in 0..3 {
            it.timed_out(key(number), address(1), Instant::ZERO);
        }
        assert!(it.is_late_answer(Instant::ZERO + 2_000 * MS, key(0), address(1)));
        assert_eq!(it.timeout(), usual);
        // The fourth in a row: the network has become slow, or this node has.
        it.timed_out(key(3), address(1), Instant::ZERO);
        assert!(it.is_late_answer(Instant::ZERO + 2_000 * MS, key(3), address(1)));
        assert!(it.timeout() > usual);
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut it = round_trip();
        for number in 0..=LATE_MAX as u64 {
            it.timed_out(key(number), address(1), Instant::ZERO);
        }
        assert_eq!(it.late.len(), LATE_MAX);
        assert!(!it.is_late_answer(Instant::ZERO, key(0), address(1)));
        assert!(it.is_late_answer(Instant::ZERO, key(1), address(1)));
    }
}
