//! The subscriber's end of a session: what comes is stored, then acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chappe_flow::{
    Channel, Credit, DeadLetterReason, Parked, Receiver, ReceiverCommand, ReceiverConfig,
    ReceiverEvent, ReceiverReceive, Records, RefusalReason, SchemaId, SessionCommand, SessionEvent,
    Start, Subscription,
};
use chappe_machine::{Input, Machine as _, Output};
use chappe_stream::{Epoch, Position, StreamSchema};
use chappe_transport::{Alarm, Clock, Every};
use tokio::time::Instant;

use super::wire::Wire;
use super::{ConnectionError, FrameConnection, LinkFrame};
use crate::links::directory;
use crate::links::feed::Batch;
use crate::links::inlet::{self, Inlet, InletError, Pending};
use crate::links::link::Link;
use crate::links::{LinkError, LinkStart, LossReason, Selection, Serialization, serialization};

/// How often a session tells how it does.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// How often damaged places are looked for and asked of the origin.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);
/// How soon after the beginning of a session.
const REPAIR_FIRST: Duration = Duration::from_millis(500);
/// How long what a full queue refused, or waits for the definition of its stream, waits before it is
/// given again.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// How long what is on its way to the disk goes without a look; reason: it is looked after whenever a
/// frame comes, and as long as the origin has room to send, nobody waits for its acknowledgement.
const STORED_PAUSE: Duration = Duration::from_millis(250);
/// How long what is stored goes unacknowledged; reason: as long as the origin has room to send, it
/// waits for nothing, and an acknowledgement costs both ends as much as a frame of elements.
const ACKNOWLEDGE_DELAY: Duration = Duration::from_millis(250);
/// Batches on their way to the disk with which the session is woken by the disk itself.
const STORED_WAKES: usize = 32;
/// The same, for so long after the origin was ahead; reason: then it waits for acknowledgements.
const CATCHING_UP: Duration = Duration::from_secs(1);

/// Reads from one origin until the connection or the session ends.
///
/// # Errors
/// Why it ended.
pub(crate) async fn subscribe<C: FrameConnection>(
    link: Arc<Link>,
    connection: C,
) -> Result<(), ConnectionError> {
    let limits = &link.config.limits;
    let config = ReceiverConfig {
        window_bytes: limits.window_bytes,
        channels_max: limits.streams,
        credit: Credit {
            bytes: limits.stream_window_bytes,
            ..Credit::default()
        },
        acknowledge_delay: ACKNOWLEDGE_DELAY,
        ..ReceiverConfig::default()
    };
    let selections = link.config.selections().unwrap_or_default();
    let mut subscriber = Subscriber {
        receiver: Receiver::new(config, link.shared.host.random()),
        wire: Wire::new(connection),
        clock: Clock::process(),
        channels: BTreeMap::new(),
        next_channel: 0,
        wanted: Vec::new(),
        pending: VecDeque::new(),
        stored_look: None,
        caught_up: Instant::now(),
        parked: Parked::default(),
        events: VecDeque::new(),
        commands: VecDeque::new(),
        asked: 0,
        bytes_told: 0,
        ended: None,
        selections,
        link,
    };
    let outcome = subscriber.run().await;
    subscriber.tell_status();
    subscriber.wire.finish().await;
    outcome
}

struct Subscriber<C: FrameConnection> {
    link: Arc<Link>,
    selections: Vec<Selection>,
    receiver: Receiver,
    wire: Wire<C>,
    clock: Clock,
    channels: BTreeMap<Channel, Inlet>,
    next_channel: u32,
    /// Streams to be subscribed to, if they are not.
    wanted: Vec<String>,
    /// What is on its way to the disk, in the order of the log.
    pending: VecDeque<(Channel, Pending)>,
    /// When it is looked whether some of it is there.
    stored_look: Option<Instant>,
    /// Until then the disk itself wakes the session.
    caught_up: Instant,
    /// The event that the log's queue had no room for, and all storing events after it; of a stream that
    /// is being defined, those of its channel.
    parked: Parked,
    events: VecDeque<ReceiverEvent>,
    commands: VecDeque<ReceiverCommand>,
    /// Damaged places that were asked for so far.
    asked: usize,
    bytes_told: u64,
    ended: Option<Result<(), ConnectionError>>,
}

impl<C: FrameConnection> Subscriber<C> {
    async fn run(&mut self) -> Result<(), ConnectionError> {
        let mut frames = Vec::new();
        let period = Duration::from_secs(self.link.config.limits.directory_s.max(1));
        let mut directory = Every::new(Duration::ZERO, period);
        let mut repair = Every::new(REPAIR_FIRST, REPAIR_PAUSE);
        let mut status = Every::new(STATUS_PAUSE, STATUS_PAUSE);
        let mut alarm = Alarm::new();
        self.command(ReceiverCommand::Open);
        self.work();
        self.wire.send_ready()?;
        loop {
            let deadline = self.receiver.deadline().map(|at| self.clock.at(at));
            let next = repair.next.min(status.next).min(directory.next);
            alarm.at_latest(deadline.map_or(next, |deadline| deadline.min(next)));
            if !self.parked.is_empty() {
                alarm.at_latest(Instant::now() + BUSY_PAUSE);
            }
            if let Some(look) = self.stored_look {
                alarm.at_latest(look);
            }
            let reads = !self.parked.is_full();
            let wakes = self.pending.len() >= STORED_WAKES || self.caught_up > Instant::now();
            let pending = &mut self.pending;
            let stored = std::future::poll_fn(|context| match pending.front_mut() {
                Some((_, Pending::Stored(_, appended) | Pending::Letter(_, _, appended)))
                    if wakes =>
                {
                    Pin::new(appended).poll(context).map(drop)
                }
                _ => Poll::Pending,
            });
            let mut rung = false;
            tokio::select! {
                biased;
                frame = self.wire.receive(), if reads => frames.push(frame?),
                () = stored => {}
                () = alarm.rings() => rung = true,
            }
            if rung {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.give(Input::Timeout);
                }
                self.parked.release();
                self.take_parked();
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
            if reads {
                self.wire.receive_ready(&mut frames)?;
            }
            for frame in frames.drain(..) {
                match frame {
                    LinkFrame::Session(frame) => {
                        self.give(Input::Receive(ReceiverReceive::Frame(frame)));
                        self.work();
                    }
                    LinkFrame::Directory(answer) => self.directory(&answer),
                }
            }
            for name in std::mem::take(&mut self.wanted) {
                self.subscribe_to(&name).await;
            }
            self.acknowledge();
            self.work();
            self.wire.send_ready()?;
            if let Some(ended) = self.ended.take() {
                return ended;
            }
        }
    }

    fn work(&mut self) {
        while self.ended.is_none() {
            if let Some(event) = self.events.pop_front() {
                self.event(event);
            } else if let Some(command) = self.commands.pop_front() {
                self.give(Input::Command(command));
            } else {
                break;
            }
        }
    }

    fn give(&mut self, input: Input<ReceiverReceive, ReceiverCommand>) {
        let (wire, events) = (&mut self.wire, &mut self.events);
        chappe_machine::drain(
            &mut self.receiver,
            self.clock.now(),
            input,
            |output| match output {
                Output::Transmit(frame) => wire.push(LinkFrame::Session(frame)),
                Output::Event(event) => events.push_back(event),
            },
        );
    }

    fn command(&mut self, command: ReceiverCommand) {
        self.commands.push_back(command);
    }

    fn end(&mut self, text: String, hint: Option<String>) {
        self.ended = Some(Err(ConnectionError { text, hint }));
    }

    /// Subscribes to what is selected by name, and asks for what is selected otherwise.
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
        if self.channels.values().any(|inlet| inlet.name() == name) {
            return;
        }
        if self.channels.len() >= self.link.config.limits.streams {
            let why = "the link has as many streams as its limit allows";
            return inlet::refused(&self.link, name, why);
        }
        if self.next_channel >= chappe_flow::CHANNEL_NUMBERS_MAX {
            let text = "the numbers of channels are used up".to_owned();
            return self.end(text, None);
        }
        if chappe_stream::check_name(&self.link.config.local_name(name)).is_err() {
            return inlet::refused(&self.link, name, "its name is none here");
        }
        let inlet = match Inlet::new(&self.link, name).await {
            Ok(inlet) => inlet,
            Err(error) if error.is_of_stream() => {
                return inlet::refused(&self.link, name, &error.told());
            }
            Err(error) => return self.end(error.to_string(), error.hint()),
        };
        let start = match (inlet.have(), self.link.config.start) {
            (Some(have), _) => Start::After(chappe_flow::Position {
                epoch: have.epoch.0,
                sequence: have.sequence,
            }),
            (None, LinkStart::First) => Start::First,
            (None, LinkStart::New) => Start::New,
        };
        let known = inlet.known();
        let channel = Channel(self.next_channel);
        self.next_channel += 1;
        let subscription = Subscription {
            level: match self.link.config.level {
                Some(super::super::LinkLevel::Memory) => chappe_flow::Level::Memory,
                Some(super::super::LinkLevel::Process) => chappe_flow::Level::Process,
                _ => chappe_flow::Level::Power,
            },
            known: known.map(|schema| SchemaId(serialization::SchemaId::of(&schema).0)),
            ..Subscription::new(name, start)
        };
        self.channels.insert(channel, inlet);
        self.command(ReceiverCommand::Subscribe {
            channel,
            subscription,
        });
        self.work();
    }

    fn event(&mut self, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Session(SessionEvent::Welcomed { .. }) => self.link.connected(),
            ReceiverEvent::Refused {
                channel,
                reason,
                text,
            } => {
                if let Some(inlet) = self.channels.remove(&channel) {
                    inlet.refused(&format!("{}: {text}", reason.name()));
                }
            }
            ReceiverEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes,
            }) => self.fetch(request, channel, position(epoch, from), next, bytes),
            ReceiverEvent::Session(SessionEvent::Fetched {
                channel,
                epoch,
                first,
                records,
            }) => self.put_back(channel, position(epoch, first), &records),
            ReceiverEvent::Session(SessionEvent::Closed { text, .. }) => {
                self.end(format!("the origin ended: {text}"), None)
            }
            ReceiverEvent::Session(SessionEvent::Failed(failure)) => {
                let hint = failure.hint().map(str::to_owned);
                let text = failure.to_string();
                let host = &self.link.shared.host;
                let peer = &self.link.config.address;
                host.dropped("session failed", peer, text.clone(), hint.clone());
                self.end(text, hint);
            }
            ReceiverEvent::Unsubscribed { .. }
            | ReceiverEvent::Session(SessionEvent::FetchEnded { .. }) => {}
            storing @ (ReceiverEvent::Accepted { .. }
            | ReceiverEvent::Schema { .. }
            | ReceiverEvent::Store { .. }
            | ReceiverEvent::Lost { .. }
            | ReceiverEvent::Rollback { .. }) => {
                self.count_behind(&storing);
                if self.parked.push(storing) {
                    self.take_parked();
                }
            }
        }
    }

    /// Counts the elements that are still at the origin.
    fn count_behind(&mut self, event: &ReceiverEvent) {
        let ReceiverEvent::Store {
            channel, behind, ..
        } = event
        else {
            return;
        };
        if let Some(inlet) = self.channels.get(channel) {
            inlet.count(|stream| stream.status.lag_elements = Some(*behind));
        }
        if *behind > 0 {
            self.caught_up = Instant::now() + CATCHING_UP;
        }
    }

    /// Handles the parked events, in order, until the log's queue is full. A stream that is being defined
    /// holds up its own events alone.
    fn take_parked(&mut self) {
        while let Some(event) = self.parked.take() {
            match self.store(&event) {
                Ok(()) => {}
                Err(InletError::Busy) => return self.parked.put_back(event),
                Err(InletError::Defining) => self.parked.hold(event),
                Err(error) => {
                    let hint = match &error {
                        InletError::Link(error) => LinkError::hint(error),
                        _ => None,
                    };
                    return self.end(error.to_string(), hint);
                }
            }
        }
    }

    /// Each of these events changes how far the origin was read, or how later elements are stored.
    fn store(&mut self, event: &ReceiverEvent) -> Result<(), InletError> {
        let of = |it: &chappe_flow::Position| position(it.epoch, it.sequence);
        match event {
            ReceiverEvent::Accepted { channel, grant } => {
                let before = position(grant.epoch, grant.next.saturating_sub(1));
                if let Some(inlet) = self.inlet(*channel).filter(|it| it.begins_at_end()) {
                    inlet.begin(before)?;
                }
                self.schema(*channel, &grant.schema)
            }
            ReceiverEvent::Schema { channel, schema } => self.schema(*channel, schema),
            ReceiverEvent::Store {
                channel,
                epoch,
                first,
                schema_version,
                records,
                ..
            } => self.store_records(*channel, position(*epoch, *first), *schema_version, records),
            ReceiverEvent::Lost {
                channel,
                epoch,
                from,
                next,
                reason,
            } => self.inlet(*channel).map_or(Ok(()), |inlet| {
                inlet.told_lost(position(*epoch, *from), *next, loss(*reason))
            }),
            ReceiverEvent::Rollback {
                channel,
                have,
                kept,
                next,
            } => self.inlet(*channel).map_or(Ok(()), |inlet| {
                inlet.rollback(of(have), kept.as_ref().map(of), of(next))
            }),
            _ => Ok(()),
        }
    }

    fn inlet(&mut self, channel: Channel) -> Option<&mut Inlet> {
        self.channels.get_mut(&channel)
    }

    fn store_records(
        &mut self,
        channel: Channel,
        first: Position,
        version: u32,
        records: &Records,
    ) -> Result<(), InletError> {
        let Some(inlet) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        let records = records.iter().map(|it| (it.time, it.payload));
        let mut pending = VecDeque::new();
        let outcome = inlet.take_records(first, version, records, &mut pending);
        self.pending
            .extend(pending.into_iter().map(|it| (channel, it)));
        outcome
    }

    /// The origin says what elements of a version look like. A stream that cannot be stored so is left.
    ///
    /// # Errors
    /// The log's queue is full, or the version is not safe yet.
    fn schema(&mut self, channel: Channel, said: &chappe_flow::Schema) -> Result<(), InletError> {
        let Some(inlet) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        let schema = match said.bytes.is_empty() {
            true => inlet
                .known()
                .ok_or("the origin did not say the schema".to_owned()),
            false => serde_json::from_slice::<StreamSchema>(&said.bytes)
                .map_err(|error| format!("the schema is none: {error}")),
        };
        let refused = match schema.map(|schema| (serialization::SchemaId::of(&schema), schema)) {
            Ok((id, schema)) if id.0 == said.id.0 => match inlet.learn(said.version, &schema) {
                Ok(()) => return Ok(()),
                Err(error @ (InletError::Busy | InletError::Defining)) => return Err(error),
                Err(error) => error.to_string(),
            },
            Ok((id, _)) => format!("the schema is {id}, another than the origin says"),
            Err(text) => text,
        };
        inlet.refused(&refused);
        self.channels.remove(&channel);
        self.command(ReceiverCommand::Unsubscribe {
            channel,
            reason: RefusalReason::Schema,
            text: refused,
        });
        Ok(())
    }

    /// Tells the machine what has reached the disk.
    fn acknowledge(&mut self) {
        let mut stored: Vec<(Channel, Position, u64)> = Vec::new();
        while let Some((channel, front)) = self.pending.front() {
            let (Pending::Stored(_, appended) | Pending::Letter(_, _, appended)) = front;
            let Some(outcome) = appended.try_result() else {
                break;
            };
            if let Err(error) = outcome {
                let text = format!("the log does not store: {error}");
                return self.end(text, None);
            }
            let channel = *channel;
            match self.pending.pop_front() {
                Some((_, Pending::Stored(position, appended))) => {
                    let count = u64::from(appended.count);
                    match stored.iter_mut().find(|(other, ..)| *other == channel) {
                        Some(known) => (known.1, known.2) = (position, known.2 + count),
                        None => stored.push((channel, position, count)),
                    }
                }
                Some((_, Pending::Letter(position, reason, _))) => {
                    self.tell_stored(&mut stored);
                    self.command(ReceiverCommand::Refused {
                        channel,
                        position: flow_position(position),
                        reason: match reason {
                            super::super::DeadLetterReason::Schema => DeadLetterReason::Schema,
                            super::super::DeadLetterReason::TooLarge => DeadLetterReason::TooLarge,
                            super::super::DeadLetterReason::Unreadable => {
                                DeadLetterReason::Unreadable
                            }
                        },
                    });
                }
                None => {}
            }
        }
        self.tell_stored(&mut stored);
        if self.pending.is_empty() {
            self.stored_look = None;
        } else {
            let now = Instant::now();
            let ahead = self.stored_look.filter(|look| *look > now);
            self.stored_look = Some(ahead.unwrap_or(now + STORED_PAUSE));
        }
    }

    fn tell_stored(&mut self, stored: &mut Vec<(Channel, Position, u64)>) {
        for (channel, position, count) in stored.drain(..) {
            if let Some(inlet) = self.channels.get(&channel) {
                inlet.stored(position, count);
                self.commands.push_back(ReceiverCommand::Stored {
                    channel,
                    position: flow_position(position),
                });
            }
        }
    }

    /// The origin has lost records that it once sent.
    fn fetch(&mut self, request: u64, channel: Channel, from: Position, next: u64, bytes: u64) {
        let count = next.saturating_sub(from.sequence);
        let inlet = self.channels.get(&channel);
        let raw = inlet.and_then(|inlet| inlet.read_copied(from, count, bytes));
        let raw = raw.filter(|raw| !raw.records.is_empty());
        let first = raw.as_ref().map_or(from.sequence, |raw| raw.first.sequence);
        let records = raw.map_or(Records::default(), |raw| Batch::of(&raw).records);
        self.command(ReceiverCommand::Session(SessionCommand::Fetched {
            request,
            first,
            records,
        }));
    }

    /// Asks the origin for what is damaged here.
    fn repair(&mut self) {
        let holes = self.channels.iter().flat_map(|(channel, inlet)| {
            let holes = inlet.holes().into_iter();
            holes.map(move |hole| (*channel, hole))
        });
        let mut holes: Vec<_> = holes.collect();
        // What the peer lacks too does not keep the others from being asked for.
        let first = self.asked % holes.len().max(1);
        holes.rotate_left(first);
        holes.truncate(self.receiver.fetch_room());
        self.asked = self.asked.wrapping_add(holes.len());
        for (channel, hole) in holes {
            self.commands
                .push_back(ReceiverCommand::Session(SessionCommand::Fetch {
                    channel,
                    epoch: hole.origin.epoch.0,
                    from: hole.origin.sequence,
                    next: hole.origin.sequence + hole.count,
                }));
        }
    }

    /// The origin has sent again what is damaged here.
    fn put_back(&mut self, channel: Channel, first: Position, records: &Records) {
        let Some(inlet) = self.channels.get(&channel) else {
            return;
        };
        let outcome = inlet.put_back(first, records.iter().map(|it| (it.time, it.payload)));
        match outcome {
            Ok(count) => tracing::info!(stream = inlet.name(), count, "damaged elements put back"),
            Err(error) => tracing::warn!(stream = inlet.name(), %error, "not put back"),
        }
    }

    fn tell_status(&mut self) {
        let bytes = self.receiver.counters().bytes_received;
        {
            let mut live = self.link.live();
            live.bytes_received += bytes.saturating_sub(self.bytes_told);
        }
        self.bytes_told = bytes;
        for (channel, state) in self.receiver.channels() {
            let Some(inlet) = self.channels.get(&channel) else {
                continue;
            };
            let occupation = match state.window_bytes {
                0 => 0.0,
                window => state.held_bytes as f64 / window as f64,
            };
            inlet.count(|stream| {
                stream.status.held_bytes = state.held_bytes;
                stream.status.occupation = occupation;
                stream.status.lag_elements = Some(state.behind);
            });
        }
    }
}

fn position(epoch: u64, sequence: u64) -> Position {
    Position {
        epoch: Epoch(epoch),
        sequence,
    }
}

fn flow_position(position: Position) -> chappe_flow::Position {
    chappe_flow::Position {
        epoch: position.epoch.0,
        sequence: position.sequence,
    }
}

fn loss(reason: chappe_flow::LossReason) -> LossReason {
    match reason {
        chappe_flow::LossReason::Trimmed => LossReason::Trimmed,
        chappe_flow::LossReason::Corrupt => LossReason::Corrupt,
        chappe_flow::LossReason::TooLarge => LossReason::TooLarge,
        _ => LossReason::Skipped,
    }
}
