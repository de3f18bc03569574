//! The subscriber's end of a session: one for each connection that it makes.
//!
//! It hands out elements in order and once, and acknowledges those that its program has stored. It
//! keeps nothing beyond the connection: the newest stored element carries its origin's position, at
//! which the next session resumes.

mod channel;
mod delivery;
mod incoming;
mod outgoing;
mod types;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::message::{Entry, decode};
use crate::session::{EndedChannels, Session};
use crate::{
    Channel, Code, Counters, Failure, Fault, ReceiverChannel, ReceiverConfig, SessionCommand,
};

use channel::{ChannelState, Phase};

pub use types::{ReceiverCommand, ReceiverEvent, ReceiverReceive};

/// The subscriber's end; see the [crate documentation](crate).
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    session: Session<ReceiverEvent>,
    phase: Greeting,
    /// The number of the session.
    number: u64,
    channels: BTreeMap<Channel, ChannelState>,
    ended: EndedChannels,
    /// When the handshake counts as failed; `None` before and after it.
    handshake_until: Option<Instant>,
    /// Packed bytes that the caller holds, over all channels.
    held_bytes: u64,
    /// Channels with pending acknowledgements, and when they are due.
    news: Vec<Channel>,
    acknowledge_at: Option<Instant>,
    /// Whether they are sent with this input.
    acknowledge_now: bool,
    entries: Vec<Entry>,
}

/// The progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// Hello was not sent.
    Silent,
    /// Hello was sent.
    Sent,
    /// The origin has agreed to this version.
    Done(u32),
}

impl Receiver {
    /// A session without channels. `seed` is random and different for each session.
    #[must_use]
    pub fn new(mut config: ReceiverConfig, seed: u64) -> Self {
        config.session = config.session.clamped();
        config.window_bytes = config.window_bytes.max(1);
        Self {
            session: Session::new(config.session.clone()),
            config,
            phase: Greeting::Silent,
            number: fastrand::Rng::with_seed(seed).u64(..),
            channels: BTreeMap::new(),
            ended: EndedChannels::default(),
            handshake_until: None,
            held_bytes: 0,
            news: Vec::new(),
            acknowledge_at: None,
            acknowledge_now: false,
            entries: Vec::new(),
        }
    }

    /// How many more repairs may be requested now: at most [`FETCHES_MAX`](crate::FETCHES_MAX) are
    /// open at a time.
    #[must_use]
    pub fn fetch_room(&self) -> usize {
        self.session.fetch_room()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.session.counters
    }

    /// The version of the protocol, once it is agreed.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        match self.phase {
            Greeting::Done(version) => Some(version),
            Greeting::Silent | Greeting::Sent => None,
        }
    }

    /// Packed bytes handed out and not stored.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The channels that have not ended.
    pub fn channels(&self) -> impl Iterator<Item = (Channel, ReceiverChannel)> + '_ {
        self.channels
            .iter()
            .map(|(channel, state)| (*channel, status_of(state)))
    }

    fn fail_caller(&mut self, text: String) {
        self.session
            .fail(Failure::new(Fault::Caller, Code::Misuse, text));
    }

    fn command(&mut self, command: ReceiverCommand) {
        match command {
            ReceiverCommand::Open => {}
            ReceiverCommand::Subscribe {
                channel,
                subscription,
            } => self.subscribe(channel, subscription),
            ReceiverCommand::Unsubscribe {
                channel,
                reason,
                text,
            } => self.unsubscribe(channel, reason, &text),
            ReceiverCommand::Stored { channel, position } => self.stored(channel, position),
            ReceiverCommand::Refused {
                channel,
                position,
                reason,
            } => self.refused(channel, position, reason),
            ReceiverCommand::Session(command) => {
                if command == SessionCommand::Close {
                    self.acknowledge();
                }
                let channels = &self.channels;
                self.session.command(command, |channel| {
                    let state = channels.get(&channel);
                    state.is_some_and(|state| state.phase == Phase::Open)
                });
            }
        }
    }

    fn frame(&mut self, frame: &Bytes) {
        if !self.session.check_frame(frame) {
            return;
        }
        let messages = match decode(frame) {
            Ok(messages) => messages,
            Err(error) => return self.session.decode_failed(error),
        };
        self.session.accept_frame();
        for message in messages {
            match message {
                Ok(message) => self.message(&message),
                Err(error) => self.session.decode_failed(error),
            }
            if self.session.is_ended() {
                return;
            }
        }
    }
}

fn status_of(state: &ChannelState) -> ReceiverChannel {
    ReceiverChannel {
        accepted: state.phase == Phase::Open,
        delivered: state.position(),
        stored: state.stored,
        behind: state.behind,
        held_bytes: state.held_bytes(),
        window_bytes: state.credit.bytes,
        refused: state.refused,
    }
}

impl Machine for Receiver {
    type Receive = ReceiverReceive;
    type Command = ReceiverCommand;
    type Transmit = Bytes;
    type Event = ReceiverEvent;

    fn handle_input(&mut self, now: Instant, input: Input<ReceiverReceive, ReceiverCommand>) {
        if self.session.is_ended() {
            return;
        }
        self.session.begin(now);
        match input {
            Input::Receive(ReceiverReceive::Frame(frame)) => self.frame(&frame),
            Input::Command(command) => {
                if self.phase == Greeting::Silent {
                    self.send_hello();
                }
                self.command(command);
            }
            Input::Timeout => {}
        }
        self.run_timers();
        self.session.flush();
    }

    fn poll_output(&mut self) -> Option<Output<Bytes, ReceiverEvent>> {
        self.session.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.session.is_ended() {
            return None;
        }
        let own = [
            self.acknowledge_at,
            self.handshake_until,
            self.session.deadline(),
        ];
        own.into_iter().flatten().min()
    }
}

impl Invariant for Receiver {
    fn check(&self) -> Result<(), String> {
        self.session.check()?;
        if self.session.is_ended() {
            return Ok(());
        }
        let held: u64 = self.channels.values().map(ChannelState::held_bytes).sum();
        if held != self.held_bytes {
            return Err(format!(
                "{held} bytes are held, counted {}",
                self.held_bytes
            ));
        }
        let most = self.held_bytes_max() + self.config.session.frame_bytes_max as u64;
        if held > most {
            return Err(format!("{held} bytes are held"));
        }
        for (channel, state) in &self.channels {
            if state.stored > state.delivered {
                let (stored, delivered) = (state.stored, state.delivered);
                return Err(format!("{channel}: {stored} stored of {delivered}"));
            }
        }
        Ok(())
    }
}
