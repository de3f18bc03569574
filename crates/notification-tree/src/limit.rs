//! Rate limits on the requests of peers: token buckets for each peer and for all together.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use chappe_machine::{Instant, TokenBucket, TokenRate};

use crate::membership::Contact;

/// Peers with a token bucket at the same time.
///
/// Reason: about 100 bytes each. If so many ask within a second, the common bucket is empty anyway.
const PEERS_MAX: usize = 1_024;
/// The divisor of one peer's share of all tokens.
///
/// Reason: eight flooding peers can use up all tokens, and an honest one has 125 of 1,000, more than the 64
/// events of a source that it can have missed.
const PEER_SHARE: u64 = 8;

/// Refills within a second; the burst is as large.
fn within_a_second(tokens: u64) -> TokenRate {
    TokenRate {
        per_s: tokens,
        burst: tokens,
    }
}

/// A bucket of `rate` tokens a second for all peers, and an eighth of it for each.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: TokenRate,
    all: TokenBucket,
    peers: BTreeMap<Option<Contact>, TokenBucket>,
}

impl Limit {
    pub(crate) fn new(rate: u32) -> Self {
        let rate = within_a_second(u64::from(rate));
        Self {
            rate,
            all: TokenBucket::full(Instant::ZERO, rate),
            peers: BTreeMap::new(),
        }
    }

    /// Takes a token for a peer, if there is one; unknown senders share one bucket.
    pub(crate) fn try_take(&mut self, now: Instant, peer: Option<Contact>) -> bool {
        if self.rate.per_s == 0 {
            return false;
        }
        let own = within_a_second((self.rate.per_s / PEER_SHARE).max(1));
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) {
            // A full bucket equals that of a new peer.
            self.peers.retain(|_, bucket| !bucket.is_full(now, own));
            if self.peers.len() >= PEERS_MAX {
                return false;
            }
        }
        let full = || TokenBucket::full(now, own);
        let peer = self.peers.entry(peer).or_insert_with(full);
        peer.take(now, 1, own).is_ok() && self.all.take(now, 1, self.rate).is_ok()
    }

    /// The invariants of the limit.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.peers.len() {
            0..=PEERS_MAX => Ok(()),
            many => Err(format!("{many} peers have a token bucket")),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn peer(number: u16) -> Option<Contact> {
        Some(Contact {
            address: ([10, 0, 0, 1], number).into(),
            key: [0; 32],
        })
    }

    #[test]
    fn one_peer_has_an_eighth_and_all_together_have_the_rate() {
        let mut limit = Limit::new(80);
        let mut now = Instant::ZERO + SECOND;
        let taken = |limit: &mut Limit, now, number| {
            (0..100)
                .filter(|_| limit.try_take(now, peer(number)))
                .count()
        };
        assert_eq!(taken(&mut limit, now, 1), 10);
        assert_eq!(
            taken(&mut limit, now, 2),
            10,
            "another peer has its own bucket"
        );
        let rest: usize = (3..30).map(|number| taken(&mut limit, now, number)).sum();
        assert_eq!(rest, 60);
        now += SECOND / 2;
        assert_eq!(taken(&mut limit, now, 1), 5);
        assert_eq!((0..100).filter(|_| limit.try_take(now, None)).count(), 10);
    }

    #[test]
    fn a_limit_of_zero_gives_none_and_a_small_one_gives_one_each() {
        let now = Instant::ZERO + SECOND;
        let mut limit = Limit::new(0);
        assert!(!limit.try_take(now, peer(1)));
        let mut limit = Limit::new(3);
        let taken = [1, 1, 2, 3, 4].map(|number| limit.try_take(now, peer(number)));
        assert_eq!(taken, [true, false, true, true, false]);
    }

    #[test]
    fn full_buckets_are_evicted_at_the_limit_of_peers() {
        let mut limit = Limit::new(1_000_000);
        let now = Instant::ZERO + SECOND;
        let most = PEERS_MAX as u16;
        assert!((0..most).all(|number| limit.try_take(now, peer(number))));
        assert!(!limit.try_take(now, peer(most)));
        assert!(limit.try_take(now, peer(0)), "a known peer is served");
        assert_eq!(limit.peers.len(), PEERS_MAX);
        assert!(limit.try_take(now + SECOND, peer(most)));
        assert_eq!(limit.peers.len(), 1);
        assert_eq!(limit.check(), Ok(()));
    }
}
