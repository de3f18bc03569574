//! One connection: runs the machine on the socket, in the awaiting task or in a separate one.
//!
//! A wake-up reads up to `READ_BYTES` and writes all queued messages in one vectored write. While the owner does not
//! take received messages nothing is read, so TCP slows the peer down: that is the back-pressure of each connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use chappe_machine::{Input, Output, drain};
use chappe_zmtp::{Command, Config, Connection as Zmtp, Event, Message};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;

use super::hold::Hold;
use super::queue::{Cost, Queue};
use super::{Error, Limits, Peer, Security};
use crate::{Alarm, Clock};

/// Bytes of one read: some hundred messages of the usual size. Empty messages cost about forty times their bytes until
/// they are taken, so a larger read brings no gain.
const READ_BYTES: usize = 32 << 10;
/// Bytes of one read before authentication.
const HANDSHAKE_READ_BYTES: usize = 4 << 10;
/// Bytes of one read after which other tasks get a turn.
const YIELD_BYTES: usize = 8 << 10;
/// Bytes of messages encoded in one step.
const WRITE_BYTES: usize = 256 << 10;
/// Buffers of one vectored write.
const PIECES_MAX: usize = 64;

/// A message or command from the owner.
#[derive(Debug)]
pub(super) enum Outgoing {
    Message(Message),
    Subscribe(Bytes),
    Cancel(Bytes),
}

impl Cost for Outgoing {
    fn cost(&self) -> usize {
        match self {
            Self::Message(message) => message.cost(),
            // Never refused for room: the owner bounds its own subscriptions.
            Self::Subscribe(_) | Self::Cancel(_) => 0,
        }
    }
}

/// State shared by the owner and the task of a connection.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) outgoing: Queue<Outgoing>,
    pub(super) incoming: Arc<Queue<Message>>,
    /// Whether the incoming queue continues over another connection.
    reconnects: bool,
    /// The cause of the end; set before `incoming` is closed.
    ended: Mutex<Option<Error>>,
}

impl Shared {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let incoming = Queue::new(limits.receive_messages, limits.receive_bytes);
        Self::with_incoming(limits, Arc::new(incoming), false)
    }

    /// With an incoming queue that outlives the connection.
    pub(super) fn reconnecting(limits: &Limits, incoming: &Arc<Queue<Message>>) -> Arc<Self> {
        Self::with_incoming(limits, Arc::clone(incoming), true)
    }

    fn with_incoming(
        limits: &Limits,
        incoming: Arc<Queue<Message>>,
        reconnects: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            outgoing: Queue::new(limits.send_messages, limits.send_bytes),
            incoming,
            reconnects,
            ended: Mutex::new(None),
        })
    }

    /// The cause of the end; [`Error::Closed`] before it.
    pub(super) fn error(&self) -> Error {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.clone().unwrap_or(Error::Closed)
    }

    /// Closes it at this end: queued messages are still sent, within the linger time.
    pub(super) fn close(&self) {
        self.outgoing.close();
        if !self.reconnects {
            self.incoming.close();
        }
    }

    pub(super) fn end(&self, error: Error) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(error);
        drop(ended);
        self.close();
    }
}

/// Handles the subscriptions of a peer.
pub(super) trait SubscriptionHandler: Send {
    fn on_subscribed(&mut self, prefix: Bytes);
    fn on_cancelled(&mut self, prefix: &Bytes);
}

/// For sockets that publish nothing, whose machine reports no subscriptions.
impl SubscriptionHandler for () {
    fn on_subscribed(&mut self, _: Bytes) {}
    fn on_cancelled(&mut self, _: &Bytes) {}
}

/// A connection with its machine.
pub(super) struct Driver {
    stream: TcpStream,
    address: SocketAddr,
    machine: Zmtp,
    clock: Clock,
    read_bytes: usize,
    write: VecDeque<Bytes>,
    /// The size of `write`.
    write_bytes: usize,
    events: VecDeque<Event>,
    /// Messages to be encoded.
    fed: Vec<Message>,
    /// The memory of `fed`, in bytes.
    fed_bytes: usize,
    deadline: Option<chappe_machine::Instant>,
    alarm: Alarm,
    hold: Hold,
}

impl Driver {
    /// Performs the handshake. Dropping it cancels the connection.
    pub(super) async fn handshake(
        stream: TcpStream,
        address: SocketAddr,
        config: Config,
    ) -> Result<(Self, Peer), Error> {
        let broken = |source: io::Error| broken(address, source);
        // Small messages are sent at once: batching happens here.
        stream.set_nodelay(true).map_err(broken)?;
        let clock = Clock::process();
        let seed = crate::seed().map_err(broken)?;
        let mut driver = Self {
            stream,
            address,
            machine: Zmtp::new(config, seed, clock.now()),
            clock,
            read_bytes: HANDSHAKE_READ_BYTES,
            write: VecDeque::new(),
            write_bytes: 0,
            events: VecDeque::new(),
            fed: Vec::new(),
            fed_bytes: 0,
            deadline: None,
            alarm: Alarm::new(),
            hold: Hold::default(),
        };
        driver.input(Input::Timeout);
        loop {
            driver.try_write().map_err(broken)?;
            while let Some(event) = driver.events.pop_front() {
                match event {
                    Event::Ready(peer) => {
                        driver.read_bytes = READ_BYTES;
                        let peer = Peer::new(address, peer);
                        return Ok((driver, peer));
                    }
                    Event::Failed(source) => {
                        // Send the reason, if the socket accepts it at once.
                        let _ = driver.try_write();
                        return Err(Error::Protocol {
                            peer: address,
                            source,
                        });
                    }
                    _ => {}
                }
            }
            let writing = !driver.write.is_empty();
            let deadline = driver.deadline;
            tokio::select! {
                turn = driver.turn(true, writing) => {
                    if let Turn::Read(read) = turn.map_err(broken)? {
                        if read.is_empty() {
                            return Err(Error::Ended { peer: address, handshake: true });
                        }
                        driver.input(Input::Receive(read));
                    }
                }
                () = sleep_until(clock, deadline) => driver.input(Input::Timeout),
            }
        }
    }

    /// Bounds what it holds from now on.
    pub(super) fn bound(&mut self, hold: Hold) {
        self.hold = hold;
    }

    // -- run by the awaiting task --

    /// The next message; writes queued ones meanwhile.
    pub(super) fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Message, Error>> {
        let address = self.address;
        loop {
            while let Some(event) = self.events.pop_front() {
                match event {
                    Event::Message(message) => return Poll::Ready(Ok(message)),
                    Event::Failed(source) => {
                        // Send the reason, if the socket accepts it at once.
                        let _ = self.try_write();
                        let peer = address;
                        return Poll::Ready(Err(Error::Protocol { peer, source }));
                    }
                    _ => {}
                }
            }
            if let Poll::Ready(written) = self.poll_flush(context) {
                written?;
            }
            if let Poll::Ready(read) = self.poll_read(context) {
                let read = read.map_err(|source| broken(address, source))?;
                let bytes = read.len();
                self.input(Input::Receive(read));
                if bytes == 0 {
                    let handshake = false;
                    let peer = address;
                    return Poll::Ready(Err(Error::Ended { peer, handshake }));
                }
                continue;
            }
            if !self.is_due(context) {
                return Poll::Pending;
            }
            self.input(Input::Timeout);
        }
    }

    /// Whether a received message has not been taken yet.
    pub(super) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Ready when all queued messages are written.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let address = self.address;
        self.encode_fed();
        loop {
            self.try_write().map_err(|source| broken(address, source))?;
            if self.write.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match self.stream.poll_write_ready(context) {
                Poll::Ready(ready) => ready.map_err(|source| broken(address, source))?,
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Queues a message; those of one turn are encoded together.
    pub(super) fn feed(&mut self, message: Message) {
        self.fed_bytes += message.cost();
        self.fed.push(message);
    }

    /// Memory of the queue that the system has not accepted yet, in bytes.
    pub(super) const fn queued_bytes(&self) -> usize {
        self.fed_bytes + self.write_bytes
    }

    /// Writes as much as the system accepts now.
    pub(super) fn flush_now(&mut self) {
        self.encode_fed();
        // The connection ends in any case.
        let _ = self.try_write();
    }

    fn encode_fed(&mut self) {
        if !self.fed.is_empty() {
            let fed = std::mem::take(&mut self.fed);
            self.fed_bytes = 0;
            self.input(Input::Command(Command::Send(fed)));
        }
    }

    /// Whether the machine's deadline has passed; otherwise the task is woken at it.
    fn is_due(&mut self, context: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else {
            return false;
        };
        self.alarm.at_latest(self.clock.at(deadline));
        self.alarm.poll(context).is_ready()
    }

    // -- run by a separate task --

    /// Runs until the connection ends or its owner closes it; returns the cause.
    pub(super) async fn run(
        mut self,
        shared: Arc<Shared>,
        limits: &Limits,
        mut handler: impl SubscriptionHandler,
    ) -> Error {
        // Waiting owners are also notified if the task is dropped.
        let ending = Ending(Arc::clone(&shared));
        let error = match self.exchange(&shared, &mut handler).await {
            Ok(error) => {
                // Closed here: queued messages are sent, if the peer accepts them in time.
                let _ = tokio::time::timeout(limits.linger, self.write_out(&shared)).await;
                error
            }
            Err(error) => error,
        };
        ending.0.end(error.clone());
        error
    }

    async fn exchange(
        &mut self,
        shared: &Shared,
        handler: &mut impl SubscriptionHandler,
    ) -> Result<Error, Error> {
        let address = self.address;
        let broken = |source: io::Error| broken(address, source);
        let mut batch = Vec::new();
        loop {
            if let Some(error) = self.deliver(shared, handler) {
                let _ = self.try_write();
                return Err(error);
            }
            self.try_write().map_err(broken)?;
            let (reading, writing) = (self.events.is_empty(), !self.write.is_empty());
            let (clock, deadline) = (self.clock, self.deadline);
            // The first event is the one without room.
            let wanted = match self.events.front() {
                Some(Event::Message(message)) => message.cost(),
                _ => 0,
            };
            tokio::select! {
                turn = self.turn(reading, writing) => {
                    if let Turn::Read(read) = turn.map_err(broken)? {
                        if read.is_empty() {
                            return Err(Error::Ended { peer: address, handshake: false });
                        }
                        let bytes = read.len();
                        self.input(Input::Receive(read));
                        // A peer that sends without pause gets only its share of the thread.
                        if bytes >= YIELD_BYTES {
                            tokio::task::yield_now().await;
                        }
                    }
                }
                open = shared.outgoing.pop(&mut batch, WRITE_BYTES), if !writing => match open {
                    true => self.encode(&mut batch),
                    false => return Ok(Error::Closed),
                },
                () = shared.incoming.room(wanted), if !reading => self.hold.resume(clock.now()),
                // A peer that is not read from does not count as silent.
                () = sleep_until(clock, deadline), if reading => {
                    self.input(Input::Timeout);
                }
            }
            if shared.outgoing.is_closed() {
                return Ok(Error::Closed);
            }
        }
    }

    /// Writes all queued bytes.
    async fn write_out(&mut self, shared: &Shared) -> io::Result<()> {
        let mut batch = Vec::new();
        loop {
            self.try_write()?;
            if !self.write.is_empty() {
                self.stream.writable().await?;
            } else if shared.outgoing.try_pop(&mut batch, WRITE_BYTES) {
                self.encode(&mut batch);
            } else {
                return Ok(());
            }
        }
    }

    /// Delivers received messages, as far as there is room. Returns the error of a failed connection.
    fn deliver(
        &mut self,
        shared: &Shared,
        handler: &mut impl SubscriptionHandler,
    ) -> Option<Error> {
        while let Some(event) = self.events.pop_front() {
            match event {
                Event::Message(message) => match shared.incoming.try_push(message, false) {
                    Some(Ok(())) => {}
                    Some(Err(message)) => {
                        self.events.push_front(Event::Message(message));
                        break;
                    }
                    None => {}
                },
                Event::Subscribed(prefix) => handler.on_subscribed(prefix),
                Event::Cancelled(prefix) => handler.on_cancelled(&prefix),
                Event::Failed(source) => {
                    let peer = self.address;
                    return Some(Error::Protocol { peer, source });
                }
                _ => {}
            }
        }
        shared.incoming.wake();
        None
    }

    fn encode(&mut self, batch: &mut Vec<Outgoing>) {
        let mut messages = Vec::with_capacity(batch.len());
        for outgoing in batch.drain(..) {
            let command = match outgoing {
                Outgoing::Message(message) => {
                    messages.push(message);
                    continue;
                }
                Outgoing::Subscribe(prefix) => Command::Subscribe(prefix),
                Outgoing::Cancel(prefix) => Command::Cancel(prefix),
            };
            // In the order of the queue.
            if !messages.is_empty() {
                let before = std::mem::take(&mut messages);
                self.input(Input::Command(Command::Send(before)));
            }
            self.input(Input::Command(command));
        }
        if !messages.is_empty() {
            self.input(Input::Command(Command::Send(messages)));
        }
    }

    fn input(&mut self, input: Input<BytesMut, Command>) {
        let (write, events) = (&mut self.write, &mut self.events);
        let write_bytes = &mut self.write_bytes;
        let now = self.clock.now();
        let mut has_message = false;
        let deadline = drain(&mut self.machine, now, input, |output| match output {
            Output::Transmit(bytes) => {
                *write_bytes += bytes.len();
                write.push_back(bytes);
            }
            Output::Event(event) => {
                has_message |= matches!(event, Event::Message(_));
                events.push_back(event);
            }
        });
        let unfinished = self.machine.unfinished_bytes();
        if let Some(error) = self.hold.update(unfinished, has_message, now) {
            self.events.push_back(Event::Failed(error));
        }
        let held_until = self.hold.deadline();
        self.deadline = deadline.into_iter().chain(held_until).min();
    }

    /// Waits until something was read, or can be written. Cancel-safe.
    async fn turn(&mut self, reading: bool, writing: bool) -> io::Result<Turn> {
        poll_fn(|context| {
            if reading && let Poll::Ready(read) = self.poll_read(context) {
                return Poll::Ready(read.map(Turn::Read));
            }
            if writing {
                let ready = self.stream.poll_write_ready(context);
                return ready.map_ok(|()| Turn::Writable);
            }
            Poll::Pending
        })
        .await
    }

    /// Reads available bytes; empty at the end of the stream.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<BytesMut>> {
        thread_local! {
            /// One for all connections of the thread: it stays in the processor's cache, and waiting connections
            /// have none.
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(READ_BYTES, 0);
            let mut read = ReadBuf::new(&mut buffer[..self.read_bytes]);
            // Unlike try_read, this knows that a socket that filled less than the buffer is empty, and does not
            // read again.
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            Poll::Ready(Ok(BytesMut::from(read.filled())))
        })
    }

    /// Writes as much as the socket accepts.
    fn try_write(&mut self) -> io::Result<()> {
        while !self.write.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.write) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            let mut written = match self.stream.try_write_vectored(&slices[..count]) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.write_bytes -= written;
            while let Some(piece) = self.write.front_mut() {
                if written < piece.len() {
                    piece.advance(written);
                    break;
                }
                written -= piece.len();
                self.write.pop_front();
            }
        }
        Ok(())
    }
}

struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(Error::Closed);
    }
}

fn broken(peer: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Error::Ended {
            peer,
            handshake: false,
        },
        _ => Error::Broken {
            peer,
            source: Arc::new(source),
        },
    }
}

/// The readiness of the socket.
enum Turn {
    /// These bytes were read; empty at the end.
    Read(BytesMut),
    /// It can be written.
    Writable,
}

async fn sleep_until(clock: Clock, deadline: Option<chappe_machine::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(clock.at(deadline)).await,
        None => std::future::pending().await,
    }
}

/// The machine's configuration for a socket.
pub(super) fn config(
    socket_type: chappe_zmtp::SocketType,
    security: &Security,
    limits: &Limits,
) -> Config {
    let mut config = Config::new(socket_type, security.mechanism());
    config.limits = limits.machine();
    config.heartbeat = limits.heartbeat;
    config.accepts_version_2 = matches!(security, Security::NullFrom2);
    config
}
