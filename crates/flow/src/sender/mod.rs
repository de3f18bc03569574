//! The origin's end of a session: one for each connection that a subscriber made.
//!
//! It holds no records: it sends the records just passed to it, and the log is the only buffer. It
//! keeps a few numbers per channel, so a slow subscriber costs no more than a fast one.

mod channel;
mod incoming;
mod outgoing;
mod schedule;
mod sending;
mod types;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::message::decode;
use crate::pacer::{Adaptive, AdaptiveConfig};
use crate::session::{EndedChannels, Session};
use crate::{
    Channel, Code, Counters, Credit, Failure, Fault, InFlight, Pacer, PacerStatus, SenderChannel,
    SenderConfig,
};

use channel::{ChannelState, Open};

pub use types::{SenderCommand, SenderEvent, SenderReceive};

/// The origin's end. The [crate documentation](crate) gives an overview.
///
/// Pass it [`Input::Timeout`] when the connection is established: the time limit of the handshake
/// starts then.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    session: Session<SenderEvent>,
    pacer: Box<dyn Pacer>,
    peer: Option<Peer>,
    handshake_until: Instant,
    channels: BTreeMap<Channel, ChannelState>,
    ended: EndedChannels,
    /// Channels that were refused because too many were open.
    refused_busy: usize,
    /// Channels with new records, and channels that catch up, in turn.
    live: VecDeque<Channel>,
    catch_up: VecDeque<Channel>,
    /// Channels that wait for more records; all wait equally long.
    lingering: VecDeque<(Instant, Channel)>,
    reads: usize,
    /// Bytes requested of the caller, over all channels and over those that catch up.
    reserved: u64,
    reserved_catch_up: u64,
    /// Bytes in flight, over all channels and over those that catch up.
    in_flight: Credit,
    in_flight_catch_up: u64,
    pace_at: Option<Instant>,
}

/// The subscriber's terms.
#[derive(Debug, Clone, Copy)]
struct Peer {
    version: u32,
    window_bytes: u64,
}

impl Sender {
    /// A sender without channels, at the pace of [`Adaptive`], which does not delay anything while
    /// less than some frames are in flight ([`AdaptiveConfig::of_session`]).
    #[must_use]
    pub fn new(config: SenderConfig) -> Self {
        let pacer = AdaptiveConfig::of_session(config.session.frame_bytes as u64);
        let pacer = Adaptive::new(pacer);
        Self::with_pacer(config, Box::new(pacer))
    }

    /// The same, at the pace of `pacer`.
    #[must_use]
    pub fn with_pacer(mut config: SenderConfig, pacer: Box<dyn Pacer>) -> Self {
        config.session = config.session.sane();
        config.reads_max = config.reads_max.max(1);
        Self {
            session: Session::new(config.session.clone()),
            config,
            pacer,
            peer: None,
            handshake_until: Instant::ZERO,
            channels: BTreeMap::new(),
            ended: EndedChannels::default(),
            refused_busy: 0,
            live: VecDeque::new(),
            catch_up: VecDeque::new(),
            lingering: VecDeque::new(),
            reads: 0,
            reserved: 0,
            reserved_catch_up: 0,
            in_flight: Credit {
                bytes: 0,
                elements: 0,
            },
            in_flight_catch_up: 0,
            pace_at: None,
        }
    }

    /// The number of further repairs that may be requested: at most
    /// [`FETCHES_MAX`](crate::FETCHES_MAX) are open at a time.
    #[must_use]
    pub fn fetch_room(&self) -> usize {
        self.session.fetch_room()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.session.counters
    }

    /// The version of the protocol, once it is agreed.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        self.peer.map(|peer| peer.version)
    }

    /// The amount in flight over all channels.
    #[must_use]
    pub fn in_flight(&self) -> InFlight {
        InFlight {
            bytes: self.in_flight.bytes,
            elements: self.in_flight.elements,
            window_bytes: self.peer.map_or(0, |peer| peer.window_bytes),
            reserved_bytes: self.reserved,
        }
    }

    /// The pacer's current state.
    #[must_use]
    pub fn pacer(&self) -> PacerStatus {
        self.pacer.status()
    }

    /// The open channels.
    pub fn channels(&self) -> impl Iterator<Item = (Channel, SenderChannel)> + '_ {
        self.channels
            .iter()
            .filter_map(|(channel, state)| Some((*channel, status_of(state.open.as_ref()?))))
    }

    fn fail_caller(&mut self, text: String) {
        self.session
            .fail(Failure::new(Fault::Caller, Code::Misuse, text));
    }

    fn command(&mut self, command: SenderCommand) {
        match command {
            SenderCommand::Answer { channel, offer } => self.answer(channel, offer),
            SenderCommand::Records {
                channel,
                epoch,
                first,
                schema_version,
                records,
            } => self.read_done(channel, epoch, first, schema_version, &records),
            SenderCommand::Gap {
                channel,
                epoch,
                from,
                next,
                reason,
            } => self.gap(channel, epoch, from, next, reason),
            SenderCommand::Appended { channel, last } => self.appended(channel, last),
            SenderCommand::Live {
                channel,
                epoch,
                first,
                schema_version,
                records,
            } => self.live(channel, epoch, first, schema_version, &records),
            SenderCommand::Schema { channel, schema } => self.schema(channel, schema),
            SenderCommand::Session(command) => {
                let channels = &self.channels;
                self.session
                    .command(command, |channel| channels.contains_key(&channel));
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

fn status_of(open: &Open) -> SenderChannel {
    let in_flight = open.in_flight();
    SenderChannel {
        epoch: open.epoch,
        last: open.last,
        next: open.next,
        acknowledged: open.acknowledged.stored,
        in_flight_elements: in_flight.elements,
        in_flight_bytes: in_flight.bytes,
        window_bytes: open
            .acknowledged
            .bytes_limit
            .saturating_sub(open.acknowledged.bytes),
        catching_up: open.catching_up,
        stalled: open.stalled,
        refused: open.acknowledged.refused,
    }
}

impl Machine for Sender {
    type Receive = SenderReceive;
    type Command = SenderCommand;
    type Transmit = Bytes;
    type Event = SenderEvent;

    fn handle_input(&mut self, now: Instant, input: Input<SenderReceive, SenderCommand>) {
        if self.session.is_ended() {
            return;
        }
        if self.session.begin(now) {
            self.handshake_until = now + self.config.session.handshake;
        }
        match input {
            Input::Receive(SenderReceive::Frame(frame)) => self.frame(&frame),
            Input::Command(command) => self.command(command),
            Input::Timeout => {}
        }
        self.timers();
        if !self.session.is_ended() {
            self.pump();
        }
        self.session.flush();
    }

    fn poll_output(&mut self) -> Option<Output<Bytes, SenderEvent>> {
        self.session.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.session.is_ended() {
            return None;
        }
        if self.peer.is_none() {
            return Some(self.handshake_until);
        }
        let linger = self.lingering.front().map(|(at, _)| *at);
        let own = [linger, self.pace_at, self.session.deadline()];
        own.into_iter().flatten().min()
    }
}

impl Invariant for Sender {
    fn check(&self) -> Result<(), String> {
        self.session.check()?;
        if self.session.is_ended() {
            return Ok(());
        }
        let open = || self.channels.values().filter_map(|one| one.open.as_ref());
        let reads = open().filter(|open| open.reading.is_some()).count();
        if reads != self.reads || reads > self.config.reads_max {
            return Err(format!("{reads} reads are open, counted {}", self.reads));
        }
        let in_flight: u64 = open().map(|open| open.in_flight().bytes).sum();
        if in_flight != self.in_flight.bytes {
            let counted = self.in_flight.bytes;
            return Err(format!("{in_flight} bytes in flight, counted {counted}"));
        }
        let catching_up = open().filter(|open| open.catching_up);
        let catching_up: u64 = catching_up.map(|open| open.in_flight().bytes).sum();
        if catching_up != self.in_flight_catch_up {
            return Err(format!("{catching_up} bytes in flight that catch up"));
        }
        for state in open() {
            if state.acknowledged.stored >= state.sent_next {
                let (acknowledged, next) = (state.acknowledged, state.next);
                return Err(format!("{acknowledged:?} acknowledged of {next}"));
            }
            if state.next > state.sent_next {
                return Err(format!(
                    "{} is sent, {} counted",
                    state.next, state.sent_next
                ));
            }
        }
        let queued = self.live.len() + self.catch_up.len() + self.lingering.len();
        if queued > self.channels.len() {
            return Err(format!("{queued} channels wait for their turn"));
        }
        Ok(())
    }
}
