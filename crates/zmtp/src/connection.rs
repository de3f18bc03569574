//! The machine: one end of a connection, from the greeting on.
//!
//! Memory before authentication is bounded by [`handshake_command_bytes`](crate::Limits::handshake_command_bytes). A
//! frame's size counts only as far as its bytes have arrived: a size alone reserves nothing.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use chappe_machine::{Input, Instant, Machine, Output};

use crate::command::{self, Properties};
use crate::config::{Config, KEY_BYTES, Mechanism};
use crate::curve::{self, ClientHello, Randomness, ServerWelcome, Session};
use crate::error::Error;
use crate::frame::{COMMAND, Header, MORE};
use crate::greeting::{self, GREETING_BYTES, VERSION_2_BYTES, VERSION_BYTES, Version};
use crate::{Message, SocketType, Subscriptions};

/// Frames up to this size are copied out of the received bytes, so that keeping one does not keep the whole buffer;
/// larger ones share its memory. Likewise, smaller frames to be sent are collected in one buffer.
pub const COPY_BYTES_MAX: usize = 4 << 10;
/// The size of a command after the handshake other than a subscription: room for later versions.
const COMMAND_BYTES_MAX: usize = 8 << 10;
/// Bytes of collected frames that become one output.
const GATHER_BYTES: usize = 64 << 10;

/// A command of the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Sends these messages in order. Only after [`Event::Ready`].
    Send(Vec<Message>),
    /// Subscribes to a prefix. Only for subscribing sockets, after [`Event::Ready`].
    Subscribe(Bytes),
    /// Cancels one subscription of this prefix.
    Cancel(Bytes),
}

/// The identity of the peer, known after the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its socket type, which is compatible.
    pub socket_type: SocketType,
    /// The identity that it claims: a name, not a proof.
    pub identity: Bytes,
    /// The public key that it has proven, with CURVE.
    pub key: Option<[u8; KEY_BYTES]>,
    /// Its major version of ZMTP: 3, or 2 if the configuration accepts it.
    pub major_version: u8,
    /// Its minor version.
    pub minor_version: u8,
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Ready(Peer),
    /// A message arrived.
    Message(Message),
    /// The peer has subscribed to a new prefix.
    Subscribed(Bytes),
    /// The peer has cancelled its last subscription of a prefix.
    Cancelled(Bytes),
    /// The connection has ended: send the remaining output, and close. No event follows.
    Failed(Error),
}

enum State {
    /// Only signature and version were sent: the rest depends on the peer's version.
    Version,
    Greeting,
    /// A peer of version 2.0 sends its identity as a frame.
    Identity(SocketType),
    Null,
    CurveHello,
    CurveInitiate(Box<ServerWelcome>),
    CurveWelcome(Box<ClientHello>),
    CurveReady(Box<Session>),
    Ready(Option<Box<Session>>),
    Ended,
}

/// One end of a ZMTP connection.
///
/// Receives the bytes read, in pieces of any size; transmits the bytes to be written, in order.
pub struct Connection {
    config: Config,
    random: Randomness,
    state: State,
    major_version: u8,
    minor_version: u8,
    /// Received bytes that are not parsed yet.
    buffer: BytesMut,
    /// The number of parsed bytes, for errors.
    offset: u64,
    /// Frames of an incomplete message.
    partial: Option<Message>,
    partial_bytes: usize,
    /// Collected output.
    gather: BytesMut,
    outputs: VecDeque<Output<Bytes, Event>>,
    subscriptions: Subscriptions,
    idle_budget: IdleBudget,
    handshake_until: Instant,
    heard_at: Instant,
    pinged: bool,
    /// The time to live in the peer's last PING.
    ttl: Option<Duration>,
}

impl Connection {
    /// Starts at `now`. The seed must be unpredictable and used once: the keys of a CURVE connection are derived
    /// from it. The greeting is the first output.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let mut gather = BytesMut::new();
        let greeting = greeting::write(&config.mechanism);
        let accepts_version_2 = config.accepts_version_2 && config.mechanism == Mechanism::Null;
        let (state, first) = match accepts_version_2 {
            true => (State::Version, &greeting[..VERSION_BYTES]),
            false => (State::Greeting, &greeting[..]),
        };
        gather.extend_from_slice(first);
        Self {
            random: Randomness::new(&seed),
            state,
            major_version: 3,
            minor_version: 0,
            buffer: BytesMut::new(),
            offset: 0,
            partial: None,
            partial_bytes: 0,
            gather,
            outputs: VecDeque::new(),
            subscriptions: Subscriptions::default(),
            idle_budget: IdleBudget::new(config.limits.idle_commands_per_s, now),
            handshake_until: now + config.limits.handshake_timeout,
            heard_at: now,
            pinged: false,
            ttl: None,
            config,
        }
    }

    /// Whether the handshake is complete and the connection open.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready(_))
    }

    /// Received bytes that are no complete message yet.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.buffer.len() + self.partial_bytes
    }

    /// The subscriptions of the peer.
    #[must_use]
    pub const fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn fail(&mut self, error: Error) {
        self.state = State::Ended;
        self.buffer = BytesMut::new();
        self.partial = None;
        self.flush();
        self.outputs.push_back(Output::Event(Event::Failed(error)));
    }

    /// Refuses the peer's handshake, with a reason where the protocol has one.
    fn refuse(&mut self, error: Error) {
        match &error {
            // The status code of 27/ZAP, which libzmq and compatible peers understand.
            Error::NotAllowed { .. } => self.put_command(&command::error_body("400")),
            Error::SocketTypes { .. } if self.major_version >= 3 => {
                let reason = error.to_string();
                self.put_command(&command::error_body(&reason));
            }
            _ => {}
        }
        self.fail(error);
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn protocol<T>(&self, what: &'static str) -> Result<T, Error> {
        let offset = self.offset;
        Err(Error::Protocol { what, offset })
    }

    // -- receiving ------------------------------------------------------------------------------

    fn receive(&mut self, now: Instant, bytes: BytesMut) {
        if matches!(self.state, State::Ended) || bytes.is_empty() {
            return;
        }
        self.heard_at = now;
        self.pinged = false;
        self.buffer.unsplit(bytes);
        loop {
            match self.step(now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.refuse(error),
            }
        }
        if self.buffer.is_empty() {
            // An idle connection holds no memory.
            self.buffer = BytesMut::new();
        }
    }

    /// Parses a part of the greeting or one frame. Returns whether there was one.
    fn step(&mut self, now: Instant) -> Result<bool, Error> {
        if matches!(self.state, State::Version) {
            return self.step_version();
        }
        if matches!(self.state, State::Greeting) {
            let Some(minor) = greeting::read(&self.buffer, &self.config.mechanism)? else {
                return Ok(false);
            };
            self.consume(GREETING_BYTES);
            self.minor_version = minor;
            self.begin_handshake();
            return Ok(true);
        }
        let Some(header) = Header::read(&self.buffer, self.offset)? else {
            return Ok(false);
        };
        let size = self.admit(header)?;
        if self.buffer.len() < header.bytes + size {
            return Ok(false);
        }
        self.consume(header.bytes);
        if let State::Ready(None) = self.state {
            let body = self.take(size);
            self.process_frame(now, header.flags, body)?;
            return Ok(true);
        }
        let mut body = self.buffer.split_to(size);
        self.offset += size as u64;
        if let State::Ready(Some(session)) = &mut self.state {
            let (flags, start) = session.open(&mut body, self.offset)?;
            body.advance(start);
            let body = match body.len() > COPY_BYTES_MAX {
                true => body.freeze(),
                false => Bytes::copy_from_slice(&body),
            };
            let flags = match flags & curve::PAYLOAD_COMMAND {
                0 => flags,
                _ if flags & MORE != 0 => return self.protocol("a command has several frames"),
                _ => COMMAND,
            };
            self.process_frame(now, flags, body)?;
        } else {
            self.process_handshake(&mut body)?;
        }
        Ok(true)
    }

    /// Chooses the rest of the greeting by the peer's version.
    fn step_version(&mut self) -> Result<bool, Error> {
        match greeting::read_version(&self.buffer)? {
            None => return Ok(false),
            Some(Version::Three) => {
                let rest = &greeting::write(&self.config.mechanism)[VERSION_BYTES..];
                self.gather.extend_from_slice(rest);
                self.state = State::Greeting;
                return Ok(true);
            }
            Some(Version::Two) => {}
        }
        if self.major_version != 2 {
            self.major_version = 2;
            self.gather
                .extend_from_slice(&[self.config.socket_type.version_2_code()]);
            let identity = command::identity(&self.config);
            Header::write(&mut self.gather, 0, identity.len());
            self.gather.extend_from_slice(identity);
        }
        let Some(code) = self.buffer.get(VERSION_2_BYTES - 1).copied() else {
            return Ok(false);
        };
        let ours = self.config.socket_type;
        let theirs = SocketType::from_version_2_code(code);
        let theirs = theirs.filter(|theirs| ours.is_compatible_with(*theirs));
        let socket_type = theirs.ok_or_else(|| Error::SocketTypes {
            ours: ours.name(),
            theirs: SocketType::from_version_2_code(code)
                .map_or_else(|| format!("type {code}"), |known| known.to_string()),
        })?;
        self.consume(VERSION_2_BYTES);
        self.state = State::Identity(socket_type);
        Ok(true)
    }

    fn consume(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
        self.offset += bytes as u64;
    }

    fn take(&mut self, size: usize) -> Bytes {
        self.offset += size as u64;
        if size > COPY_BYTES_MAX {
            return self.buffer.split_to(size).freeze();
        }
        let body = Bytes::copy_from_slice(&self.buffer[..size]);
        self.buffer.advance(size);
        body
    }

    /// Checks the header of a frame, before the frame has arrived. Returns its size.
    fn admit(&self, header: Header) -> Result<usize, Error> {
        let limits = &self.config.limits;
        let (limit, bound, extra) = match &self.state {
            State::Ready(session) => {
                let extra = session.as_ref().map_or(0, |_| curve::MESSAGE_BYTES_MIN);
                let is_command = header.flags & COMMAND != 0;
                if session.is_some() && header.flags & MORE != 0 {
                    return self.protocol("a MESSAGE has several frames");
                }
                // In CURVE the payload marks a command, which is checked after decryption.
                if is_command && session.is_none() {
                    ("command_bytes", self.command_bytes_max(), 0)
                } else {
                    // A subscriber sends only subscriptions; ZMTP 3.0 sends them as messages.
                    let most = match self.config.socket_type.publishes() {
                        true => self.command_bytes_max().min(limits.message_bytes),
                        false => limits.message_bytes,
                    };
                    let left = most.saturating_sub(self.partial_bytes);
                    let left = match session {
                        None => left,
                        Some(_) => left.max(self.command_bytes_max()),
                    };
                    ("message_bytes", left, extra)
                }
            }
            State::Identity(_) if header.flags != 0 => {
                return self.protocol("an identity is not one message frame");
            }
            State::Identity(_) => ("identity_bytes", command::IDENTITY_BYTES_MAX, 0),
            _ if header.flags & COMMAND == 0 => {
                return self.protocol("a message precedes the end of the handshake");
            }
            _ => ("handshake_command_bytes", limits.handshake_command_bytes, 0),
        };
        match usize::try_from(header.size) {
            Ok(size) if size <= bound.saturating_add(extra) => Ok(size),
            _ => Err(Error::Limit { limit, bound }),
        }
    }

    fn command_bytes_max(&self) -> usize {
        // Room for the name before a subscription.
        COMMAND_BYTES_MAX.max(self.config.limits.subscription_bytes + 16)
    }

    fn process_frame(&mut self, now: Instant, flags: u8, body: Bytes) -> Result<(), Error> {
        if flags & COMMAND != 0 {
            if self.major_version < 3 {
                return self.protocol("version 2 has no commands");
            }
            if body.len() > self.command_bytes_max() {
                return Err(Error::Limit {
                    limit: "command_bytes",
                    bound: self.command_bytes_max(),
                });
            }
            return self.process_command(now, &body);
        }
        self.partial_bytes += body.len();
        let limits = &self.config.limits;
        if self.partial_bytes > limits.message_bytes {
            return Err(Error::Limit {
                limit: "message_bytes",
                bound: limits.message_bytes,
            });
        }
        let message = match self.partial.take() {
            None => Message::new(body),
            Some(mut message) => {
                if message.len() >= limits.message_frames {
                    return Err(Error::Limit {
                        limit: "message_frames",
                        bound: limits.message_frames,
                    });
                }
                message.push(body);
                message
            }
        };
        if flags & MORE != 0 {
            self.partial = Some(message);
            return Ok(());
        }
        self.partial_bytes = 0;
        if self.config.socket_type.publishes() {
            return self.process_subscription_message(now, &message);
        }
        self.event(Event::Message(message));
        Ok(())
    }

    /// Version 3.0 subscribes with messages: 1 and the prefix, or 0 and the prefix (23/ZMTP).
    fn process_subscription_message(
        &mut self,
        now: Instant,
        message: &Message,
    ) -> Result<(), Error> {
        let body = message.first();
        match body.first() {
            Some(1) if message.len() == 1 => self.on_subscribe(body.slice(1..)),
            Some(0) if message.len() == 1 => {
                self.on_cancel(&body.slice(1..));
                Ok(())
            }
            // A message for an XPUB that reads, which does not exist here.
            _ => self.idle_budget.take(now),
        }
    }

    fn process_command(&mut self, now: Instant, body: &Bytes) -> Result<(), Error> {
        let Some((name, data)) = command::split(body) else {
            return self.protocol("a command has no name");
        };
        let publishes = self.config.socket_type.publishes();
        match name {
            b"SUBSCRIBE" if publishes => self.on_subscribe(body.slice_ref(data)),
            b"CANCEL" if publishes => {
                self.on_cancel(data);
                Ok(())
            }
            b"SUBSCRIBE" | b"CANCEL" => {
                self.protocol("a subscription to a socket that publishes nothing")
            }
            b"PING" => self.on_ping(now, data),
            b"ERROR" => Err(Error::Refused {
                reason: command::error_reason(data),
            }),
            // PONG, and commands of later versions. The answers to PINGs cost little.
            b"PONG" if self.pinged => Ok(()),
            _ => self.idle_budget.take(now),
        }
    }

    fn on_subscribe(&mut self, prefix: Bytes) -> Result<(), Error> {
        let limits = &self.config.limits;
        if prefix.len() > limits.subscription_bytes {
            return Err(Error::Limit {
                limit: "subscription_bytes",
                bound: limits.subscription_bytes,
            });
        }
        let known = self.subscriptions.contains(&prefix);
        if !known && self.subscriptions.len() >= limits.subscriptions {
            return Err(Error::Limit {
                limit: "subscriptions",
                bound: limits.subscriptions,
            });
        }
        // Copied, so that it does not keep the received buffer.
        let prefix = Bytes::copy_from_slice(&prefix);
        if self.subscriptions.add(prefix.clone()) {
            self.event(Event::Subscribed(prefix));
        }
        Ok(())
    }

    fn on_cancel(&mut self, prefix: &[u8]) {
        if self.subscriptions.remove(prefix) {
            self.event(Event::Cancelled(Bytes::copy_from_slice(prefix)));
        }
    }

    fn on_ping(&mut self, now: Instant, data: &[u8]) -> Result<(), Error> {
        let Some((ttl, context)) = data.split_first_chunk::<2>() else {
            return self.protocol("a PING has no time to live");
        };
        if context.len() > command::PING_CONTEXT_BYTES_MAX {
            return self.protocol("the context of a PING has more than 16 bytes");
        }
        self.idle_budget.take(now)?;
        let tenths = u64::from(u16::from_be_bytes(*ttl));
        self.ttl = (tenths > 0).then(|| Duration::from_millis(100 * tenths));
        let pong = command::body("PONG", context);
        self.put_command(&pong);
        Ok(())
    }

    // -- the handshake --------------------------------------------------------------------------

    fn begin_handshake(&mut self) {
        self.state = match &self.config.mechanism {
            Mechanism::Null => {
                let properties = command::properties(&self.config);
                self.put_command(&command::body("READY", &properties));
                State::Null
            }
            Mechanism::CurveServer { .. } => State::CurveHello,
            Mechanism::CurveClient { secret, server } => {
                let (hello, body) = ClientHello::start(secret, server, &mut self.random);
                self.put_command(&body);
                State::CurveWelcome(Box::new(hello))
            }
        };
    }

    fn process_handshake(&mut self, body: &mut [u8]) -> Result<(), Error> {
        let offset = self.offset;
        if let State::Identity(socket_type) = self.state {
            self.begin_version_2(socket_type, Bytes::copy_from_slice(body));
            return Ok(());
        }
        if let Some((b"ERROR", data)) = command::split(body) {
            let reason = command::error_reason(data);
            return Err(Error::Refused { reason });
        }
        let state = std::mem::replace(&mut self.state, State::Ended);
        match (state, &self.config.mechanism) {
            (State::Null, _) => {
                let Some((b"READY", data)) = command::split(body) else {
                    return self.protocol("a READY was expected");
                };
                self.ready(data, None, None)
            }
            (State::CurveHello, Mechanism::CurveServer { secret, .. }) => {
                let (welcome, body) = ServerWelcome::hello(secret, body, &mut self.random, offset)?;
                self.put_command(&body);
                self.state = State::CurveInitiate(Box::new(welcome));
                Ok(())
            }
            (State::CurveInitiate(welcome), Mechanism::CurveServer { allowed, .. }) => {
                let (mut session, key, data) = welcome.initiate(body, allowed, offset)?;
                let properties = command::properties(&self.config);
                // Only a peer with a compatible socket type gets a READY.
                let fits = Properties::read(data, self.config.socket_type, offset);
                if fits.is_ok() {
                    let body = session.write_ready(&properties);
                    self.put_command(&body);
                }
                self.ready(data, Some(Box::new(session)), Some(key))
            }
            (State::CurveWelcome(hello), _) => {
                let properties = command::properties(&self.config);
                let (session, body) = hello.welcome(body, &properties, &mut self.random, offset)?;
                self.put_command(&body);
                self.state = State::CurveReady(Box::new(session));
                Ok(())
            }
            (State::CurveReady(mut session), Mechanism::CurveClient { server, .. }) => {
                let key = *server;
                let data = session.ready(body, offset)?;
                self.ready(data, Some(session), Some(key))
            }
            _ => self.protocol("an unexpected command"),
        }
    }

    fn begin_version_2(&mut self, socket_type: SocketType, identity: Bytes) {
        self.state = State::Ready(None);
        self.event(Event::Ready(Peer {
            socket_type,
            identity,
            key: None,
            major_version: self.major_version,
            minor_version: self.minor_version,
        }));
    }

    fn ready(
        &mut self,
        properties: &[u8],
        session: Option<Box<Session>>,
        key: Option<[u8; KEY_BYTES]>,
    ) -> Result<(), Error> {
        let theirs = Properties::read(properties, self.config.socket_type, self.offset)?;
        self.state = State::Ready(session);
        self.event(Event::Ready(Peer {
            socket_type: theirs.socket_type,
            identity: theirs.identity,
            key,
            major_version: self.major_version,
            minor_version: self.minor_version,
        }));
        Ok(())
    }

    // -- sending --------------------------------------------------------------------------------

    fn command(&mut self, command: Command) {
        if matches!(self.state, State::Ended) {
            return;
        }
        if !self.is_ready() {
            return self.fail(Error::Misuse("a command precedes the end of the handshake"));
        }
        match command {
            Command::Send(messages) => messages.iter().for_each(|message| self.put(message)),
            Command::Subscribe(_) | Command::Cancel(_) if !self.config.socket_type.subscribes() => {
                self.fail(Error::Misuse(
                    "a subscription on a socket that does not subscribe",
                ));
            }
            Command::Subscribe(prefix) => self.put_subscription("SUBSCRIBE", 1, &prefix),
            Command::Cancel(prefix) => self.put_subscription("CANCEL", 0, &prefix),
        }
    }

    fn put_subscription(&mut self, name: &str, flag: u8, prefix: &[u8]) {
        if self.minor_version >= 1 {
            let body = command::body(name, prefix);
            self.put_command(&body);
        } else {
            self.put_frame(0, Bytes::from([&[flag], prefix].concat()));
        }
    }

    fn put(&mut self, message: &Message) {
        let last = message.len() - 1;
        for (index, frame) in message.frames().enumerate() {
            let flags = if index < last { MORE } else { 0 };
            self.put_frame(flags, frame.clone());
        }
    }

    fn put_frame(&mut self, flags: u8, body: Bytes) {
        if let State::Ready(Some(session)) = &mut self.state {
            // A MESSAGE is sent in a message frame, as libzmq and compatible peers do.
            Header::write(&mut self.gather, 0, curve::MESSAGE_BYTES_MIN + body.len());
            session.seal(&mut self.gather, flags, &body);
        } else {
            Header::write(&mut self.gather, flags, body.len());
            if body.len() > COPY_BYTES_MAX {
                self.flush();
                self.outputs.push_back(Output::Transmit(body));
            } else {
                self.gather.extend_from_slice(&body);
            }
        }
        if self.gather.len() >= GATHER_BYTES {
            self.flush();
        }
    }

    fn put_command(&mut self, body: &[u8]) {
        if let State::Ready(Some(session)) = &mut self.state {
            Header::write(&mut self.gather, 0, curve::MESSAGE_BYTES_MIN + body.len());
            session.seal(&mut self.gather, curve::PAYLOAD_COMMAND, body);
        } else {
            Header::write(&mut self.gather, COMMAND, body.len());
            self.gather.extend_from_slice(body);
        }
    }

    fn flush(&mut self) {
        if !self.gather.is_empty() {
            let piece = self.gather.split().freeze();
            self.outputs.push_back(Output::Transmit(piece));
        }
    }

    // -- time -----------------------------------------------------------------------------------

    fn dead_at(&self) -> Option<Instant> {
        let own = self.config.heartbeat.filter(|_| self.minor_version >= 1);
        let timeout = match (own.map(|own| own.timeout), self.ttl) {
            (Some(own), Some(theirs)) => own.min(theirs),
            (own, theirs) => own.or(theirs)?,
        };
        Some(self.heard_at + timeout)
    }

    fn ping_at(&self) -> Option<Instant> {
        let own = self.config.heartbeat.filter(|_| self.minor_version >= 1)?;
        (!self.pinged).then(|| self.heard_at + own.interval)
    }

    fn timeout(&mut self, now: Instant) {
        match &self.state {
            State::Ended => {}
            State::Ready(_) => {
                if self.dead_at().is_some_and(|at| at <= now) {
                    return self.fail(Error::Silent);
                }
                if self.ping_at().is_some_and(|at| at <= now) {
                    self.pinged = true;
                    let timeout = self
                        .config
                        .heartbeat
                        .map_or(Duration::ZERO, |own| own.timeout);
                    let tenths = u16::try_from(timeout.as_millis() / 100).unwrap_or(u16::MAX);
                    let ping = command::body("PING", &tenths.to_be_bytes());
                    self.put_command(&ping);
                }
            }
            _ if self.handshake_until <= now => self.fail(Error::HandshakeTimeout),
            _ => {}
        }
    }
}

impl Machine for Connection {
    type Receive = BytesMut;
    type Command = Command;
    type Transmit = Bytes;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<BytesMut, Command>) {
        match input {
            Input::Receive(bytes) => self.receive(now, bytes),
            Input::Command(command) => self.command(command),
            Input::Timeout => self.timeout(now),
        }
    }

    fn poll_output(&mut self) -> Option<Output<Bytes, Event>> {
        if self.outputs.is_empty() {
            self.flush();
        }
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Ended => None,
            State::Ready(_) => match (self.ping_at(), self.dead_at()) {
                (Some(ping), Some(dead)) => Some(ping.min(dead)),
                (ping, dead) => ping.or(dead),
            },
            _ => Some(self.handshake_until),
        }
    }
}

/// Rate limit on commands without content.
struct IdleBudget {
    per_s: usize,
    left: usize,
    since: Instant,
}

impl IdleBudget {
    const fn new(per_s: usize, now: Instant) -> Self {
        Self {
            per_s,
            left: per_s,
            since: now,
        }
    }

    fn take(&mut self, now: Instant) -> Result<(), Error> {
        if now >= self.since + Duration::from_secs(1) {
            (self.since, self.left) = (now, self.per_s);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::Limit {
                limit: "idle_commands_per_s",
                bound: self.per_s,
            }),
        }
    }
}
