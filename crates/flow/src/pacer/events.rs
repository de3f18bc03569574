//! The events of one source, each sent to many sinks: tracks those in flight, for a pacer.
//!
//! A session acknowledges bytes; for an event sent to many, the source learns the outcome as a
//! whole. The caller reports when an event was sent and when its outcome is known, and asks when
//! the next may be sent.

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
/// // The second waits until the outcome of the first is known, or is no longer awaited.
/// assert_eq!(events.next(now), Err(now + Duration::from_millis(250)));
/// events.known(now + Duration::from_millis(2), 1, true);
/// assert_eq!(events.next(now + Duration::from_millis(2)), Ok(()));
/// ```
#[derive(Debug)]
pub struct Events {
    pacer: Box<dyn Pacer>,
    patience: Duration,
    /// Event, time and bytes; oldest first.
    on_the_way: VecDeque<(u64, Instant, u64)>,
}

impl Events {
    /// None is in flight. An event whose outcome stays unknown for as long as `patience` waits for
    /// a silent receiver, and not for the network, no longer counts.
    ///
    /// `adaptive` does not delay anything while nothing is in flight. Otherwise it would attribute
    /// the time until a silent receiver is detected to the network, and delay its next event by a
    /// second.
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

    /// Whether the next may be sent now.
    ///
    /// # Errors
    /// The time to ask again; sooner when an outcome becomes known.
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

    /// Records that an event was sent: `event` identifies it, with this many bytes for each
    /// receiver.
    pub fn sent(&mut self, now: Instant, event: u64, bytes: u64) {
        self.pacer.sent(now, bytes, 1);
        self.on_the_way.push_back((event, now, bytes));
    }

    /// Records an outcome; `measured`: its duration is a measurement of the network.
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
