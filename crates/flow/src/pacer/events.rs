//! Paces a source whose events each go to many receivers, and counts the events in flight.
//!
//! A session acknowledges bytes; for an event that spreads to many receivers, the source learns
//! only the outcome as a whole. The source reports when it sent an event and when the outcome is
//! known, and asks when the next may be sent.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use chappe_machine::Instant;

use super::{AdaptiveConfig, Choice, InFlight, Pace, Pacer};

/// The events of one source at the pace of a [`Pacer`].
///
/// ```
/// use chappe_flow::pacer::{Choice, Events};
/// use chappe_machine::Instant;
/// use core::time::Duration;
///
/// let mut events = Events::new(&Choice::FixedWindow(1), Duration::from_millis(250));
/// let now = Instant::ZERO;
/// assert_eq!(events.next(now), Ok(()));
/// events.sent(now, 1, 300);
/// // The second waits until it is known what became of the first, or nobody waits for that any more.
/// assert_eq!(events.next(now), Err(now + Duration::from_millis(250)));
/// events.known(now + Duration::from_millis(2), 1, true);
/// assert_eq!(events.next(now + Duration::from_millis(2)), Ok(()));
/// ```
#[derive(Debug)]
pub struct Events {
    pacer: Box<dyn Pacer>,
    patience: Duration,
    /// Events in flight: name, send time, bytes; the oldest first.
    on_the_way: VecDeque<(u64, Instant, u64)>,
}

impl Events {
    /// Starts with none in flight. An event without an outcome after `patience` waits for a silent
    /// receiver, not for the network, and is no longer counted.
    ///
    /// `adaptive` holds nothing back while nothing is in flight. Otherwise it would mistake the
    /// wait for a silent receiver for the network's delay, and send its next event a second later.
    #[must_use]
    pub fn new(pacer: &Choice, patience: Duration) -> Self {
        let pacer = match pacer {
            Choice::Adaptive(config) => Choice::Adaptive(AdaptiveConfig {
                least_bytes: config.least_bytes.max(1),
            }),
            other => other.clone(),
        };
        Self {
            pacer: pacer.build(),
            patience,
            on_the_way: VecDeque::new(),
        }
    }

    /// Whether the next event may be sent now.
    ///
    /// # Errors
    /// When to ask again; earlier when an outcome becomes known.
    pub fn next(&mut self, now: Instant) -> Result<(), Instant> {
        let in_flight = self.in_flight(now);
        match self.pacer.next(now, in_flight) {
            Pace::Now => Ok(()),
            Pace::At(at) => Err(at),
            Pace::AfterAcknowledgement => Err(self
                .on_the_way
                .front()
                .map_or(now, |(_, sent, _)| *sent + self.patience)),
        }
    }

    /// Notes that `event` was sent, with this many bytes for each receiver.
    pub fn sent(&mut self, now: Instant, event: u64, bytes: u64) {
        self.pacer.sent(now, bytes, 1);
        self.on_the_way.push_back((event, now, bytes));
    }

    /// Notes that the outcome of an event is known; `measured`: its delay was caused by the
    /// network.
    pub fn known(&mut self, now: Instant, event: u64, measured: bool) {
        let Some(at) = self.on_the_way.iter().position(|one| one.0 == event) else {
            return;
        };
        let Some((_, sent, bytes)) = self.on_the_way.remove(at) else {
            return;
        };
        let delay = measured.then(|| now.saturating_since(sent));
        let in_flight = self.in_flight(now);
        self.pacer.acknowledged(now, bytes, 1, delay, in_flight);
    }

    fn in_flight(&mut self, now: Instant) -> InFlight {
        while let Some((_, sent, _)) = self.on_the_way.front()
            && *sent + self.patience <= now
        {
            self.on_the_way.pop_front();
        }
        InFlight {
            bytes: self.on_the_way.iter().map(|(_, _, bytes)| bytes).sum(),
            elements: self.on_the_way.len() as u64,
            ..InFlight::default()
        }
    }
}
