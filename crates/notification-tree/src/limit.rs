//! Limits on what others may ask: tokens that come at a rate, of each peer and of all together.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use chappe_machine::{Instant, TokenBucket, TokenRate};

use crate::membership::Contact;

/// Peers whose tokens are counted at the same time.
///
/// Reason: about 100 bytes each. So many that all ask within a second have used up the tokens of all anyway.
const PEERS_MAX: usize = 1_024;
/// The part of all tokens that one peer has.
///
/// Reason: eight that flood at once leave nothing to the others, and one that asks in earnest has 125 of 1,000,
/// more than the 64 events that it can have missed of a source.
const PART: u64 = 8;

/// So many a second, and as many at once.
fn within_a_second(tokens: u64) -> TokenRate {
    TokenRate {
        per_s: tokens,
        burst: tokens,
    }
}

/// So many a second for all together and an eighth of it for each, and as many at once.
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

    /// Takes one for a peer, if there is one; those whom nobody knows are one peer.
    pub(crate) fn take(&mut self, now: Instant, peer: Option<Contact>) -> bool {
        if self.rate.per_s == 0 {
            return false;
        }
        let own = within_a_second((self.rate.per_s / PART).max(1));
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) {
            // A full bucket is as good as that of a new peer.
            self.peers.retain(|_, bucket| !bucket.is_full(now, own));
            if self.peers.len() >= PEERS_MAX {
                return false;
            }
        }
        let full = || TokenBucket::full(now, own);
        let peer = self.peers.entry(peer).or_insert_with(full);
        peer.take(now, 1, own).is_ok() && self.all.take(now, 1, self.rate).is_ok()
    }

    /// What holds of it at any time.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.peers.len() {
            0..=PEERS_MAX => Ok(()),
            many => Err(format!("the tokens of {many} peers are counted")),
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
            (0..100).filter(|_| limit.take(now, peer(number))).count()
        };
        assert_eq!(taken(&mut limit, now, 1), 10);
        assert_eq!(taken(&mut limit, now, 2), 10, "another has its own");
        let rest: usize = (3..30).map(|number| taken(&mut limit, now, number)).sum();
        assert_eq!(rest, 60);
        now += SECOND / 2;
        assert_eq!(taken(&mut limit, now, 1), 5);
        assert_eq!((0..100).filter(|_| limit.take(now, None)).count(), 10);
    }

    #[test]
    fn a_limit_of_none_gives_none_and_one_of_few_gives_one_each() {
        let now = Instant::ZERO + SECOND;
        let mut limit = Limit::new(0);
        assert!(!limit.take(now, peer(1)));
        let mut limit = Limit::new(3);
        let taken = [1, 1, 2, 3, 4].map(|number| limit.take(now, peer(number)));
        assert_eq!(taken, [true, false, true, true, false]);
    }

    #[test]
    fn peers_are_counted_up_to_a_number_and_forgotten_when_it_does_not_matter() {
        let mut limit = Limit::new(1_000_000);
        let now = Instant::ZERO + SECOND;
        let most = PEERS_MAX as u16;
        assert!((0..most).all(|number| limit.take(now, peer(number))));
        assert!(!limit.take(now, peer(most)));
        assert!(limit.take(now, peer(0)), "who is known is served");
        assert_eq!(limit.peers.len(), PEERS_MAX);
        assert!(limit.take(now + SECOND, peer(most)));
        assert_eq!(limit.peers.len(), 1);
        assert_eq!(limit.check(), Ok(()));
    }
}
