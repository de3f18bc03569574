//! Limits on what others may ask: tokens that come at a rate, of each peer and of all together.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use chappe_machine::Instant;

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

/// Tokens that come at a rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    tokens: u64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(tokens: u64) -> Self {
        Self {
            tokens,
            filled: Instant::ZERO,
        }
    }

    /// Takes `wanted` of what comes at `rate` a second, or says when there are enough. More than
    /// `most` counts as `most`.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        wanted: u64,
        rate: u64,
        most: u64,
    ) -> Result<(), Instant> {
        let rate = u128::from(rate.max(1));
        let fresh = (now - self.filled).as_nanos() * rate / 1_000_000_000;
        if fresh > 0 {
            let sum = u128::from(self.tokens) + fresh;
            self.tokens = u64::try_from(sum).unwrap_or(u64::MAX).min(most);
            self.filled = now;
        }
        let wanted = wanted.min(most);
        if let Some(left) = self.tokens.checked_sub(wanted) {
            self.tokens = left;
            return Ok(());
        }
        let wait = u128::from(wanted - self.tokens) * 1_000_000_000 / rate + 1;
        Err(now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

/// So many a second for all together and an eighth of it for each, and as many at once.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: u64,
    all: Bucket,
    peers: BTreeMap<Option<Contact>, Bucket>,
}

impl Limit {
    pub(crate) fn new(rate: u32) -> Self {
        let rate = u64::from(rate);
        Self {
            rate,
            all: Bucket::new(rate),
            peers: BTreeMap::new(),
        }
    }

    /// Takes one for a peer, if there is one; those whom nobody knows are one peer.
    pub(crate) fn take(&mut self, now: Instant, peer: Option<Contact>) -> bool {
        if self.rate == 0 {
            return false;
        }
        let own = (self.rate / PART).max(1);
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) {
            // What has been filled for a second is full, as that of a new peer.
            let second = Duration::from_secs(1);
            let used = |bucket: &Bucket| now.saturating_since(bucket.filled) < second;
            self.peers.retain(|_, bucket| used(bucket));
            if self.peers.len() >= PEERS_MAX {
                return false;
            }
        }
        let peer = self.peers.entry(peer).or_insert(Bucket {
            tokens: own,
            filled: now,
        });
        peer.take(now, 1, own, own).is_ok() && self.all.take(now, 1, self.rate, self.rate).is_ok()
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
