//! Reliable: the sessions of `chappe-flow` over DEALER and ROUTER, as in links between nodes.
//!
//! The publisher is the origin and keeps samples in memory until all have acknowledged them; each
//! subscriber has its own session. The session's own pacer does not delay anything: the pace is
//! decided above, where it is measured. A sample is acknowledged when the subscriber has taken it.

use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use chappe_flow::pacer::Flood;
use chappe_flow::{
    Channel, Credit, Grant, Level, Offer, Position, Receiver, ReceiverCommand, ReceiverConfig,
    ReceiverEvent, ReceiverReceive, Records, RecordsBuilder, RefusalReason, Schema, Sender,
    SenderCommand, SenderConfig, SenderEvent, SenderReceive, SessionCommand, SessionEvent, Start,
    Subscription,
};
use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_transport::zeromq::{Connection, CurvePublic, Dealer, Limits, Message, Router};
use chappe_transport::{Alarm, Clock, Drops, FineAlarm};
use tokio::runtime::Runtime;

use crate::Error;
use crate::carrier::{Acknowledged, Counters, Inlet, Outlet};
use crate::zeromq::{connecting, offered, runtime, until};

/// The one stream there is.
const STREAM: &str = "perf";
/// There is only one epoch: a run is not resumed.
const EPOCH: u64 = 1;
/// The first frame of a sample that is sent back.
const ECHO: &[u8] = b"E";
/// Maximum number of unread samples that were sent back; older ones are dropped.
const ECHOES_MAX: usize = 1_024;
/// Maximum number of frames processed before samples are.
const FRAMES_MAX: usize = 64;
/// Between two attempts to connect.
const DIAL_PAUSE: Duration = Duration::from_millis(50);
/// Time limit for the final messages.
const LINGER: Duration = Duration::from_secs(1);

/// The publisher's end, with a session for each subscriber.
pub(crate) struct SessionOutlet {
    /// Dropped first: its connections need the runtime.
    origin: Origin,
    alarm: FineAlarm,
    endpoint: String,
    key: Option<CurvePublic>,
    runtime: Runtime,
}

struct Origin {
    router: Router,
    sessions: Vec<Session>,
    /// The samples not acknowledged by all, oldest first: packed sample, size, time of writing.
    kept: VecDeque<(Records, usize, Instant)>,
    /// The number of the last one written.
    written: u64,
    echoes: VecDeque<Bytes>,
    clock: Clock,
}

struct Session {
    connection: Connection,
    sender: Sender,
    channel: Option<Channel>,
    /// The last number that it has acknowledged.
    has: u64,
    events: VecDeque<SenderEvent>,
    alarm: Alarm,
    /// The reason why it ended; nothing: in order.
    ended: Option<Option<String>>,
}

impl SessionOutlet {
    /// Listens.
    pub(crate) fn bind(listen: &str, allow: &[CurvePublic], spin: Duration) -> Result<Self, Error> {
        let offered = offered(listen, allow)?;
        let (runtime, alarm) = runtime(spin)?;
        let bind = Router::bind(
            listen,
            offered.security,
            Limits::default(),
            Drops::default(),
        );
        let router = runtime.block_on(bind)?;
        Ok(Self {
            endpoint: router.local_endpoint().to_string(),
            origin: Origin {
                router,
                sessions: Vec::new(),
                kept: VecDeque::new(),
                written: 0,
                echoes: VecDeque::new(),
                clock: Clock::process(),
            },
            alarm,
            key: offered.key,
            runtime,
        })
    }

    /// Its address and key.
    pub(crate) fn address(&self) -> (String, Option<CurvePublic>) {
        (self.endpoint.clone(), self.key)
    }
}

impl Outlet for SessionOutlet {
    fn subscribers(&mut self) -> usize {
        let sessions = self.origin.sessions.iter();
        sessions.filter(|session| session.channel.is_some()).count()
    }

    fn write(&mut self, sample: &[u8]) -> Result<bool, Error> {
        // The connections are polled without a task that could be woken.
        let _entered = self.runtime.enter();
        self.origin.write(sample);
        Ok(true)
    }

    fn unacknowledged(&mut self) -> u64 {
        self.origin.written - self.origin.all_have()
    }

    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged)) {
        let now = self.origin.clock.now();
        let wanted = self.unacknowledged();
        while self.origin.kept.len() as u64 > wanted {
            if let Some((_, bytes, written_at)) = self.origin.kept.pop_front() {
                let delay = now - written_at;
                each(Acknowledged { bytes, delay });
            }
        }
    }

    fn echoes(&mut self, each: &mut dyn FnMut(&[u8])) {
        self.origin.echoes.drain(..).for_each(|echo| each(&echo));
    }

    fn counters(&mut self) -> Counters {
        Counters::default()
    }

    fn wait(&mut self, at: Instant) -> Result<(), Error> {
        let (origin, alarm) = (&mut self.origin, &mut self.alarm);
        let polled = until(alarm, at, |context| origin.poll(context));
        self.runtime.block_on(polled).unwrap_or(Ok(()))
    }

    fn is_idle(&mut self) -> bool {
        self.unacknowledged() == 0
    }
}

impl Origin {
    /// The last number that all subscribers have.
    fn all_have(&self) -> u64 {
        let subscribed = self.sessions.iter().filter(|it| it.channel.is_some());
        let least = subscribed.map(|session| session.has).min();
        least.unwrap_or(self.written)
    }

    fn write(&mut self, sample: &[u8]) {
        let now = self.clock.now();
        let time = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        let records: Records = [(time, sample)].into_iter().collect();
        self.written += 1;
        self.kept.push_back((records.clone(), sample.len(), now));
        for session in &mut self.sessions {
            if let Some(channel) = session.channel {
                session.give(
                    now,
                    Input::Command(SenderCommand::Live {
                        channel,
                        epoch: EPOCH,
                        first: self.written,
                        schema_version: 0,
                        records: records.clone(),
                    }),
                );
                session.flush();
            }
        }
    }

    /// Ready when something has changed.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut changed = false;
        while let Poll::Ready(accepted) = pin!(self.router.accept()).poll(context) {
            let mut session = Session::new(accepted?)?;
            session.give(self.clock.now(), Input::Timeout);
            self.sessions.push(session);
            changed = true;
        }
        let mut sessions = std::mem::take(&mut self.sessions);
        for session in &mut sessions {
            changed |= self.run(session, context);
        }
        sessions.retain(|session| {
            if let Some(Some(why)) = &session.ended {
                let peer = session.connection.peer().address;
                tracing::warn!(%peer, why, "a subscriber has left");
            }
            session.ended.is_none()
        });
        self.sessions = sessions;
        if changed {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Does the pending work of a session; returns whether there was any.
    fn run(&mut self, session: &mut Session, context: &mut Context<'_>) -> bool {
        let mut changed = false;
        for _ in 0..FRAMES_MAX {
            match session.connection.poll_recv(context) {
                Poll::Ready(Ok(message)) => {
                    changed = true;
                    match message.len() {
                        1 => {
                            let frame = SenderReceive::Frame(message.last().clone());
                            session.give(self.clock.now(), Input::Receive(frame));
                        }
                        2 if message.frame(0).is_some_and(|first| first == ECHO) => {
                            if self.echoes.len() == ECHOES_MAX {
                                self.echoes.pop_front();
                            }
                            self.echoes.push_back(message.last().clone());
                        }
                        _ => session.end(Some(
                            "it sends messages that do not belong to a session".to_owned(),
                        )),
                    }
                }
                Poll::Ready(Err(error)) => {
                    changed = true;
                    session.end(Some(error.to_string()));
                }
                Poll::Pending => break,
            }
            self.events(session);
            if session.ended.is_some() {
                return true;
            }
        }
        if let Some(deadline) = session.sender.deadline() {
            let now = self.clock.now();
            if deadline <= now {
                session.give(now, Input::Timeout);
                self.events(session);
            }
            if let Some(deadline) = session.sender.deadline() {
                session.alarm.at_latest(self.clock.at(deadline));
                // When it fires, the next poll sees the due work.
                changed |= session.alarm.poll(context).is_ready();
            }
        }
        if let Poll::Ready(Err(error)) = session.connection.poll_flush(context) {
            session.end(Some(error.to_string()));
            changed = true;
        }
        changed
    }

    fn events(&mut self, session: &mut Session) {
        while let Some(event) = session.events.pop_front() {
            let command = match event {
                SenderEvent::Subscribe {
                    channel,
                    subscription,
                } => {
                    let offer = self.offer(session, channel, &subscription);
                    SenderCommand::Answer { channel, offer }
                }
                SenderEvent::Read {
                    channel,
                    from,
                    bytes,
                    elements,
                } => SenderCommand::Records {
                    channel,
                    epoch: EPOCH,
                    first: from,
                    schema_version: 0,
                    records: self.read(from, bytes, elements),
                },
                SenderEvent::Acknowledged { position, .. } => {
                    session.has = session.has.max(position.sequence);
                    continue;
                }
                SenderEvent::Unsubscribed { .. }
                | SenderEvent::Session(SessionEvent::Closed { .. }) => {
                    session.end(None);
                    continue;
                }
                SenderEvent::Session(SessionEvent::Failed(failure)) => {
                    session.end(Some(failure.to_string()));
                    continue;
                }
                _ => continue,
            };
            session.give(self.clock.now(), Input::Command(command));
        }
    }

    fn offer(&self, session: &mut Session, channel: Channel, wanted: &Subscription) -> Offer {
        if wanted.stream != STREAM || session.channel.is_some() {
            return Offer::Refuse {
                reason: RefusalReason::UnknownStream,
                text: format!("this is a measurement: only the stream {STREAM:?} exists, once"),
            };
        }
        session.channel = Some(channel);
        session.has = self.written;
        Offer::Accept(Grant {
            epoch: EPOCH,
            next: self.written + 1,
            last: self.written,
            level: Level::Memory,
            schema: Schema::default(),
        })
    }

    /// Samples that a session had no room for at first.
    fn read(&self, from: u64, bytes: u64, elements: u64) -> Records {
        let first = self.written + 1 - self.kept.len() as u64;
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut records = RecordsBuilder::default();
        if from >= first {
            for (one, ..) in self.kept.iter().skip(skip) {
                let more = records.byte_len() + one.byte_len();
                let full = more as u64 > bytes || records.len() as u64 >= elements;
                if full && !records.is_empty() {
                    break;
                }
                records.append(one);
            }
        }
        records.finish()
    }
}

impl Session {
    fn new(connection: Connection) -> Result<Self, Error> {
        let unpaced = Box::new(Flood::default());
        Ok(Self {
            connection,
            sender: Sender::with_pacer(SenderConfig::default(), unpaced),
            channel: None,
            has: 0,
            events: VecDeque::new(),
            alarm: Alarm::new(),
            ended: None,
        })
    }

    fn give(&mut self, now: Instant, input: Input<SenderReceive, SenderCommand>) {
        let (connection, events) = (&mut self.connection, &mut self.events);
        let mut failed = None;
        chappe_machine::drain(&mut self.sender, now, input, |output| match output {
            Output::Transmit(frame) => {
                if let Err(error) = connection.feed(Message::new(frame)) {
                    failed.get_or_insert(error);
                }
            }
            Output::Event(event) => events.push_back(event),
        });
        if let Some(error) = failed {
            self.end(Some(error.to_string()));
        }
    }

    /// Sends as much as the system accepts now; the rest is sent when it is polled.
    fn flush(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(Err(error)) = self.connection.poll_flush(&mut nobody) {
            self.end(Some(error.to_string()));
        }
    }

    fn end(&mut self, why: Option<String>) {
        self.ended.get_or_insert(why);
        self.channel = None;
    }
}

/// A subscriber's limits and acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taking {
    /// Maximum number of bytes in flight to it.
    pub(crate) window_bytes: u64,
    /// Acknowledge after this many samples.
    pub(crate) acknowledge_every: u64,
    /// Acknowledge at the latest this long after a sample arrived.
    pub(crate) acknowledge_delay: Duration,
}

/// The subscriber's end.
pub(crate) struct SessionInlet {
    /// Dropped first: its connection needs the runtime.
    end: Subscriber,
    alarm: FineAlarm,
    runtime: Runtime,
}

struct Subscriber {
    connection: Connection,
    receiver: Receiver,
    events: VecDeque<ReceiverEvent>,
    /// Samples that arrived and were not taken, with the number of the first of each run.
    ready: VecDeque<(u64, Records)>,
    /// The first of them is being taken.
    taking: bool,
    /// Echoes that may not have been sent.
    echoing: usize,
    clock: Clock,
    alarm: Alarm,
    ended: Option<Result<(), Error>>,
}

const CHANNEL: Channel = Channel(0);

impl SessionInlet {
    /// Connects, retrying until a time limit, and subscribes.
    pub(crate) fn connect(
        endpoint: &str,
        server_key: Option<CurvePublic>,
        taking: Taking,
        patience: Instant,
    ) -> Result<Self, Error> {
        let (runtime, alarm) = runtime(Duration::ZERO)?;
        let connection = runtime.block_on(dial(endpoint, server_key, patience))?;
        let config = ReceiverConfig {
            window_bytes: taking.window_bytes,
            acknowledge_elements: taking.acknowledge_every.max(1),
            acknowledge_bytes: u64::MAX,
            acknowledge_delay: taking.acknowledge_delay,
            ..ReceiverConfig::default()
        };
        let seed = chappe_transport::seed_number().map_err(Error::io("drawing a seed"))?;
        let _entered = runtime.enter();
        let mut end = Subscriber {
            connection,
            receiver: Receiver::new(config, seed),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            taking: false,
            echoing: 0,
            clock: Clock::process(),
            alarm: Alarm::new(),
            ended: None,
        };
        end.give(Input::Command(ReceiverCommand::Subscribe {
            channel: CHANNEL,
            subscription: Subscription {
                level: Level::Memory,
                credit: Some(Credit {
                    bytes: taking.window_bytes,
                    elements: u64::from(u32::MAX),
                }),
                ..Subscription::new(STREAM, Start::New)
            },
        }));
        drop(_entered);
        Ok(Self {
            end,
            alarm,
            runtime,
        })
    }
}

async fn dial(
    endpoint: &str,
    server_key: Option<CurvePublic>,
    patience: Instant,
) -> Result<Connection, Error> {
    use chappe_transport::zeromq::Error as Zeromq;
    loop {
        let security = connecting(server_key)?;
        match Dealer::connect(endpoint, security, Limits::default()).await {
            Ok(connection) => return Ok(connection),
            Err(Zeromq::Connect { .. }) if Clock::process().now() < patience => {
                tokio::time::sleep(DIAL_PAUSE).await;
            }
            Err(error @ Zeromq::Connect { .. }) => {
                let error = Error::from(error);
                return Err(error.hint("start `chappe perf pub` first, or wait longer: --wait 60s"));
            }
            Err(error @ (Zeromq::Ended { .. } | Zeromq::Protocol { .. }))
                if server_key.is_none() =>
            {
                let error = Error::from(error);
                return Err(error.hint(
                    "a publisher beyond loopback encrypts: use --server-key KEY, which `chappe perf pub` prints",
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Inlet for SessionInlet {
    fn wait(&mut self, at: Instant) -> Result<bool, Error> {
        if self.end.ready.is_empty() {
            let (end, alarm) = (&mut self.end, &mut self.alarm);
            self.runtime
                .block_on(until(alarm, at, |context| end.poll(context)));
        }
        match &self.end.ended {
            Some(ended) if self.end.ready.is_empty() => ended.clone().map(|()| false),
            _ => Ok(true),
        }
    }

    fn take(&mut self) -> Result<Option<&[u8]>, Error> {
        let _entered = self.runtime.enter();
        self.end.taken();
        self.end.taking = !self.end.ready.is_empty();
        let first = self.end.ready.front();
        Ok(first
            .and_then(|(_, records)| records.iter().next())
            .map(|one| one.payload))
    }

    fn echo(&mut self) -> Result<(), Error> {
        let _entered = self.runtime.enter();
        self.end.echo()
    }

    fn finish(&mut self) {
        let entered = self.runtime.enter();
        self.end.taken();
        self.end.give(Input::Command(ReceiverCommand::Session(
            SessionCommand::Close,
        )));
        drop(entered);
        let connection = &mut self.end.connection;
        // Late or broken: it ends nevertheless.
        let _ = self
            .runtime
            .block_on(async { tokio::time::timeout(LINGER, connection.flush()).await });
    }
}

impl Subscriber {
    fn give(&mut self, input: Input<ReceiverReceive, ReceiverCommand>) {
        let (connection, events) = (&mut self.connection, &mut self.events);
        let (mut failed, mut fed) = (None, false);
        chappe_machine::drain(
            &mut self.receiver,
            self.clock.now(),
            input,
            |output| match output {
                Output::Transmit(frame) => {
                    fed = true;
                    if let Err(error) = connection.feed(Message::new(frame)) {
                        failed.get_or_insert(error);
                    }
                }
                Output::Event(event) => events.push_back(event),
            },
        );
        if let Some(error) = failed {
            self.ended.get_or_insert(Err(error.into()));
        }
        if fed {
            self.flush();
        }
        while let Some(event) = self.events.pop_front() {
            match event {
                ReceiverEvent::Store { first, records, .. } => {
                    self.ready.push_back((first, records));
                }
                ReceiverEvent::Session(SessionEvent::Closed { .. }) => {
                    self.ended.get_or_insert(Ok(()));
                }
                ReceiverEvent::Refused { text, .. } => {
                    self.ended.get_or_insert(Err(Error::new(text)));
                }
                ReceiverEvent::Session(SessionEvent::Failed(failure)) => {
                    self.ended
                        .get_or_insert(Err(Error::new(failure.to_string())));
                }
                _ => {}
            }
        }
    }

    fn flush(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        if self.connection.poll_flush(&mut nobody).is_ready() {
            self.echoing = 0;
        }
    }

    /// The current sample is taken.
    fn taken(&mut self) {
        if !std::mem::take(&mut self.taking) {
            return;
        }
        if let Some((number, records)) = self.ready.pop_front() {
            let rest = records.skip(1);
            if !rest.is_empty() {
                self.ready.push_front((number + 1, rest));
            }
            let position = Position {
                epoch: EPOCH,
                sequence: number,
            };
            let channel = CHANNEL;
            self.give(Input::Command(ReceiverCommand::Stored {
                channel,
                position,
            }));
        }
    }

    fn echo(&mut self) -> Result<(), Error> {
        let Some(sample) = self
            .ready
            .front()
            .and_then(|(_, records)| records.iter().next())
        else {
            return Ok(());
        };
        // A publisher that does not read receives no more.
        if self.echoing < ECHOES_MAX {
            self.echoing += 1;
            let mut message = Message::new(Bytes::from_static(ECHO));
            message.push(Bytes::copy_from_slice(sample.payload));
            self.connection.feed(message)?;
            self.flush();
        }
        Ok(())
    }

    /// Ready when samples are available, or it has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..FRAMES_MAX {
            match self.connection.poll_recv(context) {
                Poll::Ready(Ok(message)) => {
                    let frame = ReceiverReceive::Frame(message.last().clone());
                    self.give(Input::Receive(frame));
                }
                Poll::Ready(Err(_)) => {
                    // The publisher has left: the numbers show whether any are missing.
                    self.ended.get_or_insert(Ok(()));
                }
                Poll::Pending => break,
            }
            if !self.ready.is_empty() || self.ended.is_some() {
                return Poll::Ready(());
            }
        }
        while let Some(deadline) = self.receiver.deadline() {
            if deadline <= self.clock.now() {
                self.give(Input::Timeout);
                continue;
            }
            self.alarm.at_latest(self.clock.at(deadline));
            if self.alarm.poll(context).is_pending() {
                break;
            }
        }
        if self.connection.poll_flush(context).is_ready() {
            self.echoing = 0;
        }
        Poll::Pending
    }
}
