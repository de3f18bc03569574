//! Messages and their repeats, each at its time.

use std::collections::BTreeMap;

use chappe_machine::Instant;

use super::{Outbound, Retransmission};

/// Holds every message until its last copy is out.
///
/// Copies are the same bytes, so a receiver sees the same message identifier. The bound is
/// [`Outbox::capacity`] messages; what does not fit is refused and counted.
///
/// ```
/// use chappe_machine::Instant;
/// use chappe_soap::udp::{Outbound, Outbox, Retransmission};
/// let mut outbox = Outbox::new(16);
/// let mut random = fastrand::Rng::with_seed(1);
/// let to = "127.0.0.1:3702".parse().unwrap();
/// let datagram = Outbound { to, interface: 1, bytes: b"once and again".to_vec() };
/// outbox.push(Instant::ZERO, datagram.clone(), &Retransmission::default(), &mut random)?;
/// assert_eq!(outbox.pop(Instant::ZERO), Some(datagram.clone()));
/// let again = outbox.next().unwrap();
/// assert_eq!(outbox.pop(again), Some(datagram));
/// assert_eq!(outbox.next(), None);
/// # Ok::<(), chappe_soap::udp::Full>(())
/// ```
#[derive(Debug, Clone)]
pub struct Outbox {
    waiting: BTreeMap<(Instant, u64), Copies>,
    pushed: u64,
    capacity: usize,
    refused: u64,
}

#[derive(Debug, Clone)]
struct Copies {
    datagram: Outbound,
    /// Copies after the next one.
    remaining: u32,
    gap: std::time::Duration,
    retransmission: Retransmission,
}

/// The outbox holds as many messages as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} messages wait to be sent already")]
pub struct Full(pub usize);

impl Outbox {
    /// An outbox for `capacity` messages.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            pushed: 0,
            capacity,
            refused: 0,
        }
    }

    /// Takes a message whose first copy is due at `first`.
    ///
    /// # Errors
    /// When the outbox is full.
    pub fn push(
        &mut self,
        first: Instant,
        datagram: Outbound,
        retransmission: &Retransmission,
        random: &mut fastrand::Rng,
    ) -> Result<(), Full> {
        if self.waiting.len() >= self.capacity {
            self.refused += 1;
            return Err(Full(self.capacity));
        }
        let copies = Copies {
            datagram,
            remaining: retransmission.repeat,
            gap: retransmission.first_gap(random),
            retransmission: *retransmission,
        };
        self.insert(first, copies);
        Ok(())
    }

    fn insert(&mut self, at: Instant, copies: Copies) {
        self.pushed += 1;
        self.waiting.insert((at, self.pushed), copies);
    }

    /// One copy that is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Outbound> {
        if self.next()? > now {
            return None;
        }
        let (_, mut copies) = self.waiting.pop_first()?;
        if copies.remaining == 0 {
            return Some(copies.datagram);
        }
        let datagram = copies.datagram.clone();
        let at = now + copies.gap;
        copies.remaining -= 1;
        copies.gap = copies.retransmission.next_gap(copies.gap);
        self.insert(at, copies);
        Some(datagram)
    }

    /// When the next copy is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// Forgets everything that waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many messages have copies to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether every copy is out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many messages fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many messages were refused so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn datagram(text: &str) -> Outbound {
        Outbound {
            to: "127.0.0.1:3702".parse().expect("an address"),
            interface: 1,
            bytes: text.into(),
        }
    }

    #[test]
    fn copies_are_equal_and_gaps_double_up_to_the_cap() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut outbox = Outbox::new(4);
            let retransmission = Retransmission::with_repeat(4);
            outbox
                .push(Instant::ZERO, datagram("a"), &retransmission, &mut random)
                .expect("room");
            let mut times = Vec::new();
            while let Some(at) = outbox.next() {
                assert_eq!(outbox.pop(at), Some(datagram("a")), "seed {seed}");
                times.push(at);
            }
            assert_eq!(times.len(), 5, "seed {seed}: one and four repeats");
            let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let first = gaps[0];
            assert!(first >= Duration::from_millis(50) && first <= Duration::from_millis(250));
            for pair in gaps.windows(2) {
                let doubled = (pair[0] * 2).min(Duration::from_millis(450));
                assert_eq!(pair[1], doubled, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_full_outbox_refuses_and_counts() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut outbox = Outbox::new(1);
        let once = Retransmission::with_repeat(0);
        let later = Instant::ZERO + Duration::from_secs(1);
        assert_eq!(
            outbox.push(later, datagram("a"), &once, &mut random),
            Ok(())
        );
        let refused = outbox.push(Instant::ZERO, datagram("b"), &once, &mut random);
        assert_eq!(refused, Err(Full(1)));
        assert_eq!((outbox.refused(), outbox.len()), (1, 1));
        assert_eq!(outbox.pop(Instant::ZERO), None);
        assert_eq!(outbox.pop(later), Some(datagram("a")));
        assert!(outbox.is_empty());
    }
}
