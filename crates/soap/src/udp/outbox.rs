//! Scheduling of messages and their retransmissions.

use std::collections::BTreeMap;

use chappe_machine::Instant;

use super::{Outbound, Retransmission};

/// Stores messages until their last copy is sent.
///
/// Copies have the same bytes and hence the same message identifier. [`Outbox::capacity`] limits
/// the number of messages; excess messages are rejected and counted.
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
    queue: BTreeMap<(Instant, u64), Copies>,
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

/// The outbox is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the send queue is full ({0} messages)")]
pub struct Full(pub usize);

impl Outbox {
    /// Creates an outbox for `capacity` messages.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            queue: BTreeMap::new(),
            pushed: 0,
            capacity,
            refused: 0,
        }
    }

    /// Adds a message whose first copy is due at `first`.
    ///
    /// # Errors
    /// [`Full`] if the outbox is full.
    pub fn push(
        &mut self,
        first: Instant,
        datagram: Outbound,
        retransmission: &Retransmission,
        random: &mut fastrand::Rng,
    ) -> Result<(), Full> {
        if self.queue.len() >= self.capacity {
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
        self.queue.insert((at, self.pushed), copies);
    }

    /// A copy that is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Outbound> {
        if self.next()? > now {
            return None;
        }
        let (_, mut copies) = self.queue.pop_first()?;
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

    /// The time when the next copy is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// Messages with unsent copies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether every copy is sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The limit of messages.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Messages rejected so far.
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
    fn copies_are_equal_and_gaps_double() {
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
            assert_eq!(
                times.len(),
                5,
                "seed {seed}: one copy and four retransmissions"
            );
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
    fn full_outbox_rejects_and_counts() {
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
