//! The origin's end of a session: one for each connection that a subscriber made.
//!
//! It holds no records. What it sends it has just been given, and what must go again is read again:
//! the log is the only buffer. For each channel it remembers a few numbers, so that a subscriber that
//! is slow or gone costs the same as one that is well.

mod types;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::{Channel, Counters, FixedWindow, Pacer, SenderChannel, SenderConfig};

pub use types::{SenderCommand, SenderEvent, SenderReceive};

/// The origin's end. The [crate documentation](crate) has the whole picture.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    pacer: Box<dyn Pacer>,
    counters: Counters,
    outputs: VecDeque<Output<Bytes, SenderEvent>>,
}

impl Sender {
    /// An end without channels. `seed` is random and different for each session.
    #[must_use]
    pub fn new(config: SenderConfig, seed: u64) -> Self {
        Self::with_pacer(config, Box::new(FixedWindow::default()), seed)
    }

    /// The same, at the pace of `pacer`.
    #[must_use]
    pub fn with_pacer(config: SenderConfig, pacer: Box<dyn Pacer>, seed: u64) -> Self {
        let _ = seed;
        Self {
            config,
            pacer,
            counters: Counters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = (Channel, SenderChannel)> + '_ {
        core::iter::empty()
    }
}

impl Machine for Sender {
    type Receive = SenderReceive;
    type Command = SenderCommand;
    type Transmit = Bytes;
    type Event = SenderEvent;

    fn handle_input(&mut self, _: Instant, _: Input<SenderReceive, SenderCommand>) {
        let _ = (&self.config, &self.pacer);
    }

    fn poll_output(&mut self) -> Option<Output<Bytes, SenderEvent>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

impl Invariant for Sender {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
