//! The subscriber's end of a session: runs a [`chappe_link::Subscriber`] on a connection and the log.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chappe_flow::{
    Channel, Credit, ReceiverConfig, Records, RefusalReason, Schema, SchemaId, SessionCommand,
    SessionEvent, Start, Subscription,
};
use chappe_link::{
    Hole, StorageOutcome, StorageRequest, Subscriber, SubscriberCommand, SubscriberConfig,
    SubscriberEvent, SubscriberReceive,
};
use chappe_log::{Appended, Level};
use chappe_machine::{Input, Machine as _, Output};
use chappe_stream::{Position, StreamSchema};
use chappe_transport::{Alarm, Clock, Every};
use tokio::time::Instant;

use super::wire::{READY_FRAMES_MAX, Wire};
use super::{ConnectionError, FrameConnection, LinkFrame};
use crate::directory;
use crate::feed::Batch;
use crate::link::Link;
use crate::replica::{self, InletError, Pending, Replica, from_flow, to_flow};
use crate::{LinkError, LinkStart, LossReason, Selection, Serialization, serialization};

/// The period of status updates.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// The period of looking for damage, which is requested from the origin.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);
/// The first look for damage after a session starts.
const REPAIR_FIRST: Duration = Duration::from_millis(500);
/// Longest time between checks of the log's queue; reason: it is checked whenever a frame arrives,
/// and while the origin has room to send, nothing waits for its acknowledgement.
const STORED_PAUSE: Duration = Duration::from_millis(250);
/// Longest time that stored elements stay unacknowledged; reason: while the origin has room to
/// send, it waits for nothing, and an acknowledgement costs both ends as much as a frame of
/// elements.
const ACKNOWLEDGE_DELAY: Duration = Duration::from_millis(250);
/// From this number of batches in the log's queue, each commit wakes the session.
const STORED_WAKES: usize = 32;
/// Commits also wake the session for this long after the origin was ahead; reason: the origin then
/// waits for acknowledgements.
const CATCHING_UP: Duration = Duration::from_secs(1);

/// Reads from one origin until the connection or the session ends.
///
/// # Errors
/// The reason for the end.
pub(crate) async fn subscribe<C: FrameConnection>(
    link: Arc<Link>,
    connection: C,
) -> Result<(), ConnectionError> {
    let limits = &link.config.limits;
    let receiver = ReceiverConfig {
        window_bytes: limits.window_bytes,
        channels_max: limits.streams,
        credit: Credit {
            bytes: limits.stream_window_bytes,
            ..Credit::default()
        },
        acknowledge_delay: ACKNOWLEDGE_DELAY,
        ..ReceiverConfig::default()
    };
    let config = SubscriberConfig {
        receiver,
        ..SubscriberConfig::default()
    };
    let selections = link.config.selections().unwrap_or_default();
    let mut session = Session {
        subscriber: Subscriber::new(config, link.shared.host.random()),
        wire: Wire::new(connection),
        clock: Clock::process(),
        replicas: BTreeMap::new(),
        next_channel: 0,
        wanted: Vec::new(),
        queued_batches: VecDeque::new(),
        stored_look: None,
        caught_up: Instant::now(),
        events: VecDeque::new(),
        bytes_told: 0,
        ended: None,
        selections,
        link,
    };
    let outcome = session.run().await;
    session.tell_status();
    session.wire.finish().await;
    outcome
}

/// A session on its connection.
struct Session<C: FrameConnection> {
    link: Arc<Link>,
    selections: Vec<Selection>,
    subscriber: Subscriber,
    wire: Wire<C>,
    clock: Clock,
    replicas: BTreeMap<Channel, Replica>,
    next_channel: u32,
    /// Selected streams, subscribed or not.
    wanted: Vec<String>,
    /// Batches queued in the log, in the order of the log.
    queued_batches: VecDeque<Appended>,
    /// The time of the next check for stored batches.
    stored_look: Option<Instant>,
    /// Until then each commit wakes the session.
    caught_up: Instant,
    events: VecDeque<SubscriberEvent>,
    bytes_told: u64,
    ended: Option<Result<(), ConnectionError>>,
}

impl<C: FrameConnection> Session<C> {
    async fn run(&mut self) -> Result<(), ConnectionError> {
        let period = Duration::from_secs(self.link.config.limits.directory_s.max(1));
        let mut directory = Every::new(Duration::ZERO, period);
        let mut repair = Every::new(REPAIR_FIRST, REPAIR_PAUSE);
        let mut status = Every::new(STATUS_PAUSE, STATUS_PAUSE);
        let mut alarm = Alarm::new();
        self.command(SubscriberCommand::Open);
        self.wire.send_ready()?;
        loop {
            let deadline = self.subscriber.deadline().map(|at| self.clock.at(at));
            let next = repair.next.min(status.next).min(directory.next);
            alarm.at_latest(deadline.map_or(next, |deadline| deadline.min(next)));
            if let Some(look) = self.stored_look {
                alarm.at_latest(look);
            }
            let reads = !self.subscriber.is_full();
            let wakes =
                self.queued_batches.len() >= STORED_WAKES || self.caught_up > Instant::now();
            let queued_batches = &mut self.queued_batches;
            let stored = std::future::poll_fn(|context| match queued_batches.front_mut() {
                Some(appended) if wakes => Pin::new(appended).poll(context).map(drop),
                _ => Poll::Pending,
            });
            let mut rung = false;
            tokio::select! {
                biased;
                ready = self.wire.ready(false), if reads => ready?,
                () = stored => {}
                () = alarm.rings() => rung = true,
            }
            if rung {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.give(Input::Timeout);
                }
                if directory.is_due(now) {
                    self.look_at_directory();
                }
                if repair.is_due(now) {
                    self.repair();
                }
                if status.is_due(now) {
                    self.tell_status();
                }
            }
            for _ in 0..READY_FRAMES_MAX {
                if !reads {
                    break;
                }
                let Some(frame) = self.wire.take()? else {
                    break;
                };
                match frame {
                    LinkFrame::Session(frame) => {
                        self.give(Input::Receive(SubscriberReceive::Frame(frame)));
                    }
                    LinkFrame::Directory(answer) => self.directory(&answer),
                }
            }
            for name in std::mem::take(&mut self.wanted) {
                self.subscribe_to(&name).await;
            }
            self.look_at_log();
            self.wire.send_ready()?;
            if let Some(ended) = self.ended.take() {
                return ended;
            }
        }
    }

    fn command(&mut self, command: SubscriberCommand) {
        self.give(Input::Command(command));
    }

    /// Passes an input to the machine, and handles its requests until it has none.
    fn give(&mut self, input: Input<SubscriberReceive, SubscriberCommand>) {
        self.drain(input);
        while self.ended.is_none()
            && let Some(event) = self.events.pop_front()
        {
            self.event(event);
        }
    }

    fn drain(&mut self, input: Input<SubscriberReceive, SubscriberCommand>) {
        let (wire, events) = (&mut self.wire, &mut self.events);
        chappe_machine::drain(
            &mut self.subscriber,
            self.clock.now(),
            input,
            |output| match output {
                Output::Transmit(frame) => wire.push(LinkFrame::Session(frame)),
                Output::Event(event) => events.push_back(event),
            },
        );
    }

    /// Answers an event; events that result from it are handled after those that wait.
    fn answer(&mut self, command: SubscriberCommand) {
        self.drain(Input::Command(command));
    }

    fn end(&mut self, text: String, hint: Option<String>) {
        self.ended = Some(Err(ConnectionError { text, hint }));
    }

    /// Subscribes to the streams selected by name, and queries the directory for the other
    /// selections.
    fn look_at_directory(&mut self) {
        for selection in self.selections.clone() {
            match &selection {
                Selection::Exact(name) => self.wanted.push(name.clone()),
                Selection::Prefix(_) => {
                    let question = directory::question(&selection, Serialization::Postcard);
                    self.wire.push(LinkFrame::Directory(question));
                }
            }
        }
    }

    fn directory(&mut self, answer: &[u8]) {
        match directory::read(answer, Serialization::Postcard) {
            Ok(structures) => {
                for structure in structures {
                    let name = &structure.stream;
                    if self
                        .selections
                        .iter()
                        .any(|selection| self.link.config.takes(selection, name))
                    {
                        self.wanted.push(name.clone());
                    }
                }
            }
            Err(error) => {
                let host = &self.link.shared.host;
                let peer = &self.link.config.address;
                host.dropped("directory answer", peer, error.to_string(), None);
            }
        }
    }

    async fn subscribe_to(&mut self, name: &str) {
        if self.replicas.values().any(|replica| replica.name() == name) {
            return;
        }
        if self.replicas.len() >= self.link.config.limits.streams {
            let why = "the link has as many streams as its limit allows";
            return replica::refused(&self.link, name, why);
        }
        if self.next_channel >= chappe_flow::CHANNEL_NUMBERS_MAX {
            let text = "all channel numbers of the session are used".to_owned();
            return self.end(text, None);
        }
        if chappe_stream::check_name(&self.link.config.local_name(name)).is_err() {
            return replica::refused(&self.link, name, "its name is not valid here");
        }
        let replica = Replica::new(&self.link, name).await;
        let known = replica.and_then(|(replica, last)| Ok((replica.earlier()?, replica, last)));
        let (earlier, replica, last) = match known {
            Ok(known) => known,
            Err(error) if error.is_of_stream() => {
                return replica::refused(&self.link, name, &error.with_hint());
            }
            Err(error) => return self.end(error.to_string(), error.hint()),
        };
        let start = match self.link.config.start {
            LinkStart::First => Start::First,
            LinkStart::New => Start::New,
        };
        let known = replica.known();
        let channel = Channel(self.next_channel);
        self.next_channel += 1;
        let subscription = Subscription {
            level: self.link.config.level.unwrap_or(Level::Power),
            known: known.map(|schema| SchemaId(serialization::SchemaId::of(&schema).0)),
            earlier,
            ..Subscription::new(name, start)
        };
        self.replicas.insert(channel, replica);
        self.command(SubscriberCommand::Subscribe {
            channel,
            last: last.map(to_flow),
            subscription,
        });
    }

    fn event(&mut self, event: SubscriberEvent) {
        match event {
            SubscriberEvent::Storage { channel, request } => {
                if let Some(outcome) = self.store(channel, request) {
                    self.answer(SubscriberCommand::Outcome(outcome));
                }
            }
            SubscriberEvent::Stored {
                channel,
                last,
                count,
            } => {
                if let Some(replica) = self.replicas.get(&channel) {
                    replica.stored(from_flow(last), count);
                }
            }
            SubscriberEvent::Refused {
                channel,
                reason,
                text,
            } => {
                if let Some(replica) = self.replicas.remove(&channel) {
                    replica.refused(&format!("{}: {text}", reason.name()));
                }
            }
            SubscriberEvent::Accepted { .. } => {}
            SubscriberEvent::PutBack {
                channel,
                first,
                records,
            } => self.put_back(channel, from_flow(first), &records),
            SubscriberEvent::Session(event) => self.session_event(event),
        }
    }

    fn session_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Welcomed { .. } => self.link.connected(),
            SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes,
            } => {
                let (first, records) =
                    self.read_copied(channel, position(epoch, from), next, bytes);
                self.answer(SubscriberCommand::Session(SessionCommand::Fetched {
                    request,
                    first,
                    records,
                }));
            }
            SessionEvent::Closed { text, .. } => {
                self.end(format!("the origin ended the session: {text}"), None);
            }
            SessionEvent::Failed(failure) => {
                let hint = failure.hint().map(str::to_owned);
                let text = failure.to_string();
                let host = &self.link.shared.host;
                let peer = &self.link.config.address;
                host.dropped("session failed", peer, text.clone(), hint.clone());
                self.end(text, hint);
            }
            SessionEvent::Fetched { .. } | SessionEvent::FetchEnded { .. } => {}
        }
    }

    /// Makes one change of the log. `None`: it failed, and the session ends.
    fn store(&mut self, channel: Channel, request: StorageRequest) -> Option<StorageOutcome> {
        let Some(replica) = self.replicas.get_mut(&channel) else {
            return Some(StorageOutcome::Done);
        };
        let outcome = match request {
            StorageRequest::Define { schema } => return Some(self.define(channel, &schema)),
            StorageRequest::Append {
                first,
                schema_version,
                records,
                behind,
            } => {
                replica.count(|stream| stream.status.lag_elements = Some(behind));
                if behind > 0 {
                    self.caught_up = Instant::now() + CATCHING_UP;
                }
                let records = records.iter().map(|it| (it.time, it.payload));
                let mut pending = VecDeque::new();
                let outcome =
                    replica.append_records(from_flow(first), schema_version, records, &mut pending);
                pending.into_iter().for_each(|it| self.queued(it));
                outcome
            }
            StorageRequest::Begin { at } => replica.remember(from_flow(at)),
            StorageRequest::Lost { from, next, reason } => {
                let reason = match reason {
                    LossReason::Other(_) => LossReason::Skipped,
                    known => known,
                };
                replica.lost(from_flow(from), next, reason)
            }
            StorageRequest::Rollback { have, kept, next } => {
                replica.rollback(from_flow(have), kept.map(from_flow), from_flow(next))
            }
        };
        match outcome {
            Ok(()) => Some(StorageOutcome::Done),
            Err(InletError::Busy(_)) => Some(StorageOutcome::Busy),
            Err(InletError::Defining) => Some(StorageOutcome::Defining),
            Err(error) => {
                let hint = match &error {
                    InletError::Link(error) => LinkError::hint(error),
                    _ => None,
                };
                self.end(error.to_string(), hint);
                None
            }
        }
    }

    /// Notes a batch or a dead letter in the log's queue.
    fn queued(&mut self, pending: Pending) {
        let (last, dead_letter, appended) = match pending {
            Pending::Stored(last, appended) => (last, None, appended),
            Pending::Letter(last, reason, appended) => (last, Some(reason), appended),
        };
        self.answer(SubscriberCommand::Queued {
            last: to_flow(last),
            count: u64::from(appended.count),
            dead_letter,
        });
        self.queued_batches.push_back(appended);
    }

    /// Defines a schema version that the origin has announced. A stream that cannot be stored with
    /// it is dropped.
    fn define(&mut self, channel: Channel, announced: &Schema) -> StorageOutcome {
        let Some(replica) = self.replicas.get_mut(&channel) else {
            return StorageOutcome::Done;
        };
        let schema = match announced.bytes.is_empty() {
            true => replica
                .known()
                .ok_or("the origin did not send the schema".to_owned()),
            false => serde_json::from_slice::<StreamSchema>(&announced.bytes)
                .map_err(|error| format!("the schema does not decode: {error}")),
        };
        let text = match schema.map(|schema| (serialization::SchemaId::of(&schema), schema)) {
            Ok((id, schema)) if id.0 == announced.id.0 => {
                match replica.learn(announced.version, &schema) {
                    Ok(()) => return StorageOutcome::Done,
                    Err(InletError::Busy(_)) => return StorageOutcome::Busy,
                    Err(InletError::Defining) => return StorageOutcome::Defining,
                    Err(error) => error.to_string(),
                }
            }
            Ok((id, _)) => format!("the schema is {id}, not the one that the origin names"),
            Err(text) => text,
        };
        replica.refused(&text);
        self.replicas.remove(&channel);
        StorageOutcome::Refused {
            reason: RefusalReason::Schema,
            text,
        }
    }

    /// Reports to the machine which batches are on disk.
    fn look_at_log(&mut self) {
        let mut batches = 0;
        while let Some(outcome) = self.queued_batches.front().and_then(Appended::try_result) {
            if let Err(error) = outcome {
                let text = format!("the log cannot store elements: {error}");
                self.end(text, None);
                break;
            }
            self.queued_batches.pop_front();
            batches += 1;
        }
        if batches > 0 {
            self.command(SubscriberCommand::Stored { batches });
        }
        if self.queued_batches.is_empty() {
            self.stored_look = None;
        } else {
            let now = Instant::now();
            let ahead = self.stored_look.filter(|look| *look > now);
            self.stored_look = Some(ahead.unwrap_or(now + STORED_PAUSE));
        }
    }

    /// The copy's records of a range that is damaged at the origin.
    fn read_copied(
        &self,
        channel: Channel,
        from: Position,
        next: u64,
        bytes: u64,
    ) -> (u64, Records) {
        let count = next.saturating_sub(from.sequence);
        let replica = self.replicas.get(&channel);
        let raw = replica.and_then(|replica| replica.read_copied(from, count, bytes));
        match raw.filter(|raw| !raw.records.is_empty()) {
            Some(raw) => (raw.first.sequence, Batch::of(&raw).records),
            None => (from.sequence, Records::default()),
        }
    }

    /// Requests records from the origin that are damaged here.
    fn repair(&mut self) {
        let holes = self.replicas.iter().flat_map(|(channel, replica)| {
            replica.holes().into_iter().map(move |hole| Hole {
                channel: *channel,
                epoch: hole.origin.epoch.0,
                from: hole.origin.sequence,
                next: hole.origin.sequence + hole.count,
            })
        });
        let holes: Vec<Hole> = holes.collect();
        if !holes.is_empty() {
            self.command(SubscriberCommand::Repair { holes });
        }
    }

    /// Fills in damaged records that the origin has sent again.
    fn put_back(&mut self, channel: Channel, first: Position, records: &Records) {
        let Some(replica) = self.replicas.get(&channel) else {
            return;
        };
        let outcome = replica.put_back(first, records.iter().map(|it| (it.time, it.payload)));
        match outcome {
            Ok(count) => {
                tracing::info!(stream = replica.name(), count, "damaged elements repaired")
            }
            Err(error) => {
                tracing::warn!(stream = replica.name(), %error, "cannot repair damaged elements")
            }
        }
    }

    fn tell_status(&mut self) {
        let bytes = self.subscriber.receiver().counters().bytes_received;
        {
            let mut live = self.link.live();
            live.bytes_received += bytes.saturating_sub(self.bytes_told);
        }
        self.bytes_told = bytes;
        for (channel, state) in self.subscriber.receiver().channels() {
            let Some(replica) = self.replicas.get(&channel) else {
                continue;
            };
            let occupation = match state.window_bytes {
                0 => 0.0,
                window => state.held_bytes as f64 / window as f64,
            };
            replica.count(|stream| {
                stream.status.held_bytes = state.held_bytes;
                stream.status.occupation = occupation;
                stream.status.lag_elements = Some(state.behind);
            });
        }
    }
}

fn position(epoch: u64, sequence: u64) -> Position {
    from_flow(chappe_flow::Position { epoch, sequence })
}
