//! The common part of both ends of a session: frames, keep-alive, repairs, the end.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use chappe_machine::{Instant, Output};

use crate::config::{CHANNEL_NUMBERS_MAX, FETCH_WAIT, FETCHES_MAX, TEXT_BYTES_MAX};
use crate::message::{DecodeError, FrameWriter, Message};
use crate::planted::{self, Defect};
use crate::{
    Channel, Code, Counters, Failure, Fault, Records, SessionCommand, SessionConfig, SessionEvent,
};

/// Shortest keep-alive interval for a peer that requests one; reason: a hostile peer must not make
/// this side busy.
const KEEP_ALIVE_MIN: Duration = Duration::from_millis(200);

/// A repair: a range of one epoch of a channel's stream, by the origin's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repair {
    pub(crate) channel: Channel,
    pub(crate) epoch: u64,
    /// The first number of the range.
    pub(crate) from: u64,
    pub(crate) next: u64,
    /// How many of them the peer does not have.
    pub(crate) missing: u64,
    /// The next number to request.
    at: u64,
    /// When the answer counts as missing.
    wait_until: Instant,
}

impl Repair {
    fn ended(&self) -> SessionEvent {
        SessionEvent::FetchEnded {
            channel: self.channel,
            epoch: self.epoch,
            from: self.from,
            next: self.next,
            missing: self.missing,
        }
    }
}

/// The common part of either end.
#[derive(Debug)]
pub(crate) struct Session<E> {
    pub(crate) config: SessionConfig,
    pub(crate) now: Instant,
    pub(crate) counters: Counters,
    frames: VecDeque<Bytes>,
    events: VecDeque<E>,
    writer: FrameWriter,
    /// The largest frame that the peer accepts.
    peer_frame_max: usize,
    started: bool,
    ended: bool,
    /// Whether keep-alives are sent and expected.
    open: bool,
    last_received_at: Instant,
    last_sent_at: Instant,
    keep_alive: Duration,
    /// Pings sent: the token of the last.
    pings: u64,
    /// Repairs of this side, by the number of the current request.
    repairs: BTreeMap<u64, Repair>,
    next_request: u64,
    /// The peer's requests that the caller has not answered.
    answering: BTreeSet<u64>,
}

impl<E: From<SessionEvent>> Session<E> {
    pub(crate) fn new(config: SessionConfig) -> Self {
        Self {
            now: Instant::ZERO,
            counters: Counters::default(),
            frames: VecDeque::new(),
            events: VecDeque::new(),
            writer: FrameWriter::default(),
            peer_frame_max: crate::FRAME_BYTES_MIN,
            started: false,
            ended: false,
            open: false,
            last_received_at: Instant::ZERO,
            last_sent_at: Instant::ZERO,
            keep_alive: config.keep_alive,
            pings: 0,
            repairs: BTreeMap::new(),
            next_request: 1,
            answering: BTreeSet::new(),
            config,
        }
    }

    /// Called with each input; returns whether it is the first.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        self.now = now;
        if self.started {
            return false;
        }
        self.started = true;
        self.last_received_at = now;
        self.last_sent_at = now;
        true
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// The handshake is finished: the peer accepts frames of this size, and this side sends at
    /// least three times within the silence after which the peer would give up.
    pub(crate) fn opened(&mut self, peer_frame_max: u64, peer_dead_after_ms: u64) {
        self.open = true;
        self.peer_frame_max = usize::try_from(peer_frame_max).unwrap_or(usize::MAX);
        let third = Duration::from_millis(peer_dead_after_ms / 3);
        // A peer cannot request endless keep-alives.
        self.keep_alive = self.config.keep_alive.min(third.max(KEEP_ALIVE_MIN));
    }

    /// The current limit for the content of a frame.
    pub(crate) fn frame_max(&self) -> usize {
        self.peer_frame_max
    }

    /// Bytes up to which a frame is filled.
    pub(crate) fn frame_fill(&self) -> usize {
        self.config.frame_bytes.min(self.peer_frame_max)
    }

    // -- out --

    pub(crate) fn event(&mut self, event: impl Into<E>) {
        self.events.push_back(event.into());
    }

    /// Frames first: frames that result from the caller's answers are sent after them.
    pub(crate) fn pop(&mut self) -> Option<Output<Bytes, E>> {
        let frame = self.frames.pop_front().map(Output::Transmit);
        frame.or_else(|| self.events.pop_front().map(Output::Event))
    }

    pub(crate) fn push(&mut self, message: &Message<'_>) {
        if self.ended {
            return;
        }
        let limit = self.frame_fill();
        let full = self.writer.push_within(message, limit);
        self.transmit(full);
    }

    pub(crate) fn writer(&mut self) -> &mut FrameWriter {
        &mut self.writer
    }

    pub(crate) fn transmit(&mut self, frame: Option<Bytes>) {
        if let Some(frame) = frame {
            self.last_sent_at = self.now;
            self.counters.frames_sent += 1;
            self.counters.bytes_sent += frame.len() as u64;
            self.frames.push_back(frame);
        }
    }

    /// Finishes the current frame; called at the end of each input.
    pub(crate) fn flush(&mut self) {
        let frame = self.writer.finish();
        self.transmit(frame);
    }

    // -- the end --

    /// Ends the session with a failure and informs both sides.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.ended {
            return;
        }
        self.goodbye(failure.code, &failure.text);
        self.event(SessionEvent::Failed(failure));
    }

    pub(crate) fn close(&mut self) {
        if !self.ended {
            self.goodbye(Code::Closed, "");
            self.event(SessionEvent::Closed {
                by_peer: false,
                text: String::new(),
            });
        }
    }

    fn goodbye(&mut self, code: Code, text: &str) {
        let versions = self.config.versions;
        let text = truncated(text);
        self.push(&Message::Goodbye {
            code,
            versions,
            text,
        });
        self.flush();
        self.end();
    }

    fn end(&mut self) {
        self.ended = true;
        self.open = false;
        self.repairs.clear();
        self.answering.clear();
    }

    /// The peer has ended the session.
    pub(crate) fn goodbye_received(&mut self, code: Code, versions: (u32, u32), text: &str) {
        self.end();
        let fault = match code {
            Code::Closed => {
                return self.event(SessionEvent::Closed {
                    by_peer: true,
                    text: text.to_string(),
                });
            }
            Code::Version => {
                let failure = version_failure(self.config.versions, versions);
                return self.event(SessionEvent::Failed(failure));
            }
            Code::Silent | Code::Handshake => Fault::Connection,
            Code::Misuse => Fault::Peer,
            _ => Fault::Here,
        };
        let text = format!("the peer ended the session: {text}");
        self.event(SessionEvent::Failed(Failure::new(fault, code, text)));
    }

    // -- in --

    /// Checks a frame before its messages; `false`: it must be ignored.
    pub(crate) fn check_frame(&mut self, frame: &Bytes) -> bool {
        self.counters.frames_received += 1;
        self.counters.bytes_received += frame.len() as u64;
        let limit = self.config.frame_bytes_max;
        if frame.len() > limit {
            let text = format!("a frame of {} bytes, the limit is {limit}", frame.len());
            self.fail(Failure::peer(Code::TooLarge, text));
            return false;
        }
        true
    }

    /// Notes a valid frame.
    pub(crate) fn accept_frame(&mut self) {
        self.last_received_at = self.now;
    }

    /// A frame or a message of it is invalid. Nothing is sent twice, so the session ends.
    pub(crate) fn decode_failed(&mut self, error: DecodeError) {
        let text = error.to_string();
        self.fail(match error {
            DecodeError::Checksum(_) => Failure::new(Fault::Connection, Code::Damaged, text),
            _ => Failure::peer(Code::Malformed, text),
        });
    }

    /// Handles the messages that both ends treat alike; returns `false` for others.
    pub(crate) fn common(&mut self, message: &Message<'_>) -> bool {
        match message {
            Message::Goodbye {
                code,
                versions,
                text,
            } => self.goodbye_received(*code, *versions, text),
            Message::Ping { token } => {
                let token = *token;
                self.push(&Message::Pong { token });
            }
            // Only the sign of life matters.
            Message::Pong { .. } => {}
            _ => return false,
        }
        true
    }

    /// A message that is invalid in this state.
    pub(crate) fn unexpected(&mut self, message: &Message<'_>, when: &str) {
        let text = format!("{} {when}", message.name());
        self.fail(Failure::peer(Code::Unexpected, text));
    }

    // -- time --

    fn ping(&mut self) {
        self.pings += 1;
        let token = self.pings;
        self.push(&Message::Ping { token });
    }

    pub(crate) fn timers(&mut self) {
        if !self.open {
            return;
        }
        if self.last_received_at + self.config.dead_after <= self.now {
            let silent = self.now - self.last_received_at;
            let text = format!("nothing was received from the peer for {silent:?}");
            return self.fail(Failure::new(Fault::Connection, Code::Silent, text));
        }
        if self.ping_at() <= self.now {
            self.ping();
            // Messages pushed now are sent with this input.
            self.last_sent_at = self.now;
        }
        while let Some(request) = self.fetch_due() {
            if let Some(mut repair) = self.repairs.remove(&request) {
                repair.missing += repair.next - repair.at;
                self.event(repair.ended());
            }
        }
    }

    /// When this side has been silent long enough to ping the peer.
    fn ping_at(&self) -> Instant {
        self.last_sent_at + self.keep_alive
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.open {
            return None;
        }
        let life = self
            .ping_at()
            .min(self.last_received_at + self.config.dead_after);
        let fetch = self.repairs.values().map(|repair| repair.wait_until).min();
        Some(fetch.map_or(life, |fetch| fetch.min(life)))
    }

    // -- repairs --

    /// How many more repairs may be requested.
    pub(crate) fn fetch_room(&self) -> usize {
        FETCHES_MAX.saturating_sub(self.repairs.len())
    }

    /// Handles commands of either end; `is_open`: whether records of a channel can be requested.
    pub(crate) fn command(
        &mut self,
        command: SessionCommand,
        is_open: impl FnOnce(Channel) -> bool,
    ) {
        match command {
            SessionCommand::Fetch {
                channel,
                epoch,
                from,
                next,
            } if is_open(channel) => self.ask(channel, epoch, from, next),
            SessionCommand::Fetch { .. } => self.counters.answers_unused += 1,
            SessionCommand::Fetched {
                request,
                first,
                records,
            } => self.answer_fetch(request, first, &records),
            SessionCommand::Close => self.close(),
        }
    }

    /// Requests records from the peer.
    fn ask(&mut self, channel: Channel, epoch: u64, from: u64, next: u64) {
        if from == 0 || from >= next || next == u64::MAX || self.repairs.len() >= FETCHES_MAX {
            let text = format!(
                "a repair of {from} to {next} exceeds the limit of {FETCHES_MAX} repairs: {} are open",
                self.repairs.len()
            );
            return self.fail(Failure::new(Fault::Caller, Code::Misuse, text));
        }
        let repair = Repair {
            channel,
            epoch,
            from,
            next,
            missing: 0,
            at: from,
            wait_until: self.now,
        };
        self.counters.fetches += 1;
        self.send_fetch(repair);
    }

    fn send_fetch(&mut self, mut repair: Repair) {
        let request = self.next_request;
        self.next_request += 1;
        repair.wait_until = self.now + FETCH_WAIT;
        self.push(&Message::Fetch {
            request,
            channel: repair.channel,
            epoch: repair.epoch,
            from: repair.at,
            next: repair.next,
            bytes: self.config.frame_bytes as u64,
        });
        self.repairs.insert(request, repair);
    }

    fn fetch_due(&self) -> Option<u64> {
        let due = |repair: &Repair| repair.wait_until <= self.now;
        self.repairs
            .iter()
            .find(|(_, repair)| due(repair))
            .map(|(request, _)| *request)
    }

    /// Answers a request for records of a channel that has ended: there are none.
    pub(crate) fn answer_none(&mut self, request: u64, first: u64) {
        self.push(&Message::Fetched {
            request,
            first,
            records: Records::default(),
        });
    }

    /// Handles a request for records.
    pub(crate) fn fetch_requested(
        &mut self,
        request: u64,
        channel: Channel,
        epoch: u64,
        range: (u64, u64),
        bytes: u64,
    ) {
        if self.answering.len() >= FETCHES_MAX || !self.answering.insert(request) {
            let open = self.answering.len();
            let text = format!(
                "repair request {request} with {open} open: the limit is {FETCHES_MAX}, and each needs a new number"
            );
            return self.fail(Failure::peer(Code::TooLarge, text));
        }
        let room = self.frame_fill() - crate::message::RECORDS_OVERHEAD_MAX;
        self.event(SessionEvent::Fetch {
            request,
            channel,
            epoch,
            from: range.0,
            next: range.1,
            bytes: bytes.min(room as u64),
        });
    }

    /// Sends the caller's answer to the peer.
    fn answer_fetch(&mut self, request: u64, first: u64, records: &Records) {
        if !self.answering.remove(&request) {
            self.counters.answers_unused += 1;
            return;
        }
        let room = self.frame_max() - crate::message::RECORDS_OVERHEAD_MAX;
        let fill = self.frame_fill() - crate::message::RECORDS_OVERHEAD_MAX;
        let mut records = records.take(usize::MAX, fill);
        if records.byte_len() > room || planted::is(Defect::KeepsRecords) {
            records = Records::default();
        }
        self.push(&Message::Fetched {
            request,
            first,
            records,
        });
    }

    /// Handles the peer's answer. An answer that contradicts the request ends the session; one that
    /// is later than [`FETCH_WAIT`] is dropped.
    pub(crate) fn fetched(&mut self, request: u64, first: u64, records: Records) {
        let Some(mut repair) = self.repairs.remove(&request) else {
            self.counters.stale += 1;
            return;
        };
        if records.is_empty() {
            repair.missing += repair.next - repair.at;
            return self.event(repair.ended());
        }
        let end = first + records.len() as u64;
        if first < repair.at || end > repair.next {
            let text = format!(
                "records {first} to {} answer a request for {} to {}",
                end - 1,
                repair.at,
                repair.next - 1
            );
            return self.fail(Failure::peer(Code::Contradiction, text));
        }
        repair.missing += first - repair.at;
        repair.at = end;
        self.event(SessionEvent::Fetched {
            channel: repair.channel,
            epoch: repair.epoch,
            first,
            records,
        });
        if repair.at == repair.next {
            self.event(repair.ended());
        } else {
            self.send_fetch(repair);
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.repairs.len() > FETCHES_MAX || self.answering.len() > FETCHES_MAX {
            return Err(format!("{} repairs are open", self.repairs.len()));
        }
        if !self.writer.is_empty() {
            return Err(String::from("a frame was begun and not sent"));
        }
        Ok(())
    }
}

/// The two sides have no version in common.
pub(crate) fn version_failure(own: (u32, u32), peer: (u32, u32)) -> Failure {
    let text = format!(
        "this side supports versions {} to {} of the protocol, the peer {} to {}",
        own.0, own.1, peer.0, peer.1
    );
    Failure::new(Fault::Connection, Code::Version, text)
}

/// The longest prefix of a text that may be sent.
pub(crate) fn truncated(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The ended channels: a bit for each number, up to the highest.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndedChannels(Vec<u64>);

impl EndedChannels {
    pub(crate) fn insert(&mut self, channel: Channel) {
        if channel.0 >= CHANNEL_NUMBERS_MAX {
            return;
        }
        let word = channel.0 as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (channel.0 % 64);
    }

    pub(crate) fn contains(&self, channel: Channel) -> bool {
        let word = self.0.get(channel.0 as usize / 64);
        word.is_some_and(|word| word & (1 << (channel.0 % 64)) != 0)
    }
}
