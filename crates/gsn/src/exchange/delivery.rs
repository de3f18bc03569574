//! The sending end of synchronous delivery: to the REP socket of a GSN server (`zeromq-sync`, `zeromq-push`), or of a
//! Chappe node.
//!
//! Elements are sent in order, up to a window of them before the first is answered: a REP answers in the order of the
//! requests. What is not answered when a connection ends is sent again over the next one, so an element may arrive
//! twice. A refused element is not sent again: a server refuses one that is older than its newest, that comes sooner
//! than its rate allows, or that its queries drop.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Machine, Output};

use super::{ACCEPTED, REFUSED};

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryArrival {
    /// There is a connection.
    Connected,
    /// The connection has ended.
    Disconnected,
    /// The peer answered the oldest element.
    Answer(Bytes),
}

/// What is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryDispatch {
    /// This frame.
    Frame(Bytes),
    /// The end of the connection.
    Disconnect,
}

/// What became of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOccurrence {
    /// The peer accepted the oldest element.
    Accepted,
    /// The peer refused the oldest element.
    Refused,
    /// The peer did not answer in time.
    Late,
    /// The peer answered with something else than one byte of 0 or 1.
    BadAnswer,
}

/// The sending end of one connection after another.
pub struct Delivery {
    window: usize,
    patience: Duration,
    /// Elements without an answer, oldest first.
    unanswered: VecDeque<Bytes>,
    /// How many of them were sent over this connection.
    sent: usize,
    is_connected: bool,
    /// When the oldest was sent, or the one before it answered.
    waiting_since: Instant,
    outputs: VecDeque<Output<DeliveryDispatch, DeliveryOccurrence>>,
}

impl Delivery {
    /// Sends `window` elements before the first is answered, and ends a connection whose peer does not answer for
    /// `patience`.
    #[must_use]
    pub const fn new(window: usize, patience: Duration) -> Self {
        Self {
            window: if window == 0 { 1 } else { window },
            patience,
            unanswered: VecDeque::new(),
            sent: 0,
            is_connected: false,
            waiting_since: Instant::ZERO,
            outputs: VecDeque::new(),
        }
    }

    /// The number of elements without an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    fn send(&mut self, now: Instant) {
        if !self.is_connected {
            return;
        }
        if self.sent == 0 {
            self.waiting_since = now;
        }
        let until = self.unanswered.len().min(self.window);
        for frame in self.unanswered.range(self.sent.min(until)..until) {
            let frame = DeliveryDispatch::Frame(frame.clone());
            self.outputs.push_back(Output::Transmit(frame));
        }
        self.sent = self.sent.max(until);
    }

    fn disconnect(&mut self, why: DeliveryOccurrence) {
        self.is_connected = false;
        self.sent = 0;
        self.outputs
            .push_back(Output::Transmit(DeliveryDispatch::Disconnect));
        self.outputs.push_back(Output::Event(why));
    }

    fn on_answer(&mut self, now: Instant, answer: &[u8]) {
        let outcome = match answer {
            [ACCEPTED] if self.sent > 0 => DeliveryOccurrence::Accepted,
            [REFUSED] if self.sent > 0 => DeliveryOccurrence::Refused,
            _ => return self.disconnect(DeliveryOccurrence::BadAnswer),
        };
        self.sent -= 1;
        self.unanswered.pop_front();
        self.waiting_since = now;
        self.outputs.push_back(Output::Event(outcome));
        self.send(now);
    }
}

impl Machine for Delivery {
    type Receive = DeliveryArrival;
    /// The frame of an element, to be delivered after those before it. The owner bounds their number.
    type Command = Bytes;
    type Transmit = DeliveryDispatch;
    type Event = DeliveryOccurrence;

    fn handle_input(&mut self, now: Instant, input: Input<DeliveryArrival, Bytes>) {
        match input {
            Input::Receive(DeliveryArrival::Connected) => {
                self.is_connected = true;
                self.sent = 0;
                self.send(now);
            }
            Input::Receive(DeliveryArrival::Disconnected) => {
                self.is_connected = false;
                self.sent = 0;
            }
            Input::Receive(DeliveryArrival::Answer(answer)) if self.is_connected => {
                self.on_answer(now, &answer);
            }
            Input::Receive(DeliveryArrival::Answer(_)) => {}
            Input::Command(frame) => {
                self.unanswered.push_back(frame);
                self.send(now);
            }
            Input::Timeout => {
                if self.deadline().is_some_and(|deadline| deadline <= now) {
                    self.disconnect(DeliveryOccurrence::Late);
                }
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output<DeliveryDispatch, DeliveryOccurrence>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        (self.sent > 0).then(|| self.waiting_since + self.patience)
    }
}
