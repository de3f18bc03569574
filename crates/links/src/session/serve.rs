//! The origin's end of a session: a stream of the log for each channel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_flow::{
    Channel, Grant, LossReason, Offer, Records, RefusalReason, Schema, SchemaId, Sender,
    SenderCommand, SenderConfig, SenderEvent, SenderReceive, SessionCommand, SessionEvent, Start,
    Subscription,
};
use chappe_log::GapReason;
use chappe_machine::{Input, Machine as _, Output};
use chappe_stream::{Epoch, Position, StoreError, StreamLog};
use chappe_transport::{Alarm, Clock, Every};
use tokio::time::Instant;

use super::wire::Wire;
use super::{ConnectionError, FrameConnection, LinkFrame};
use crate::directory;
use crate::feed::{Batch, Mailbox, News, Reading};
use crate::handle::Shared;
use crate::peers::Peer;
use crate::{Reader, Serialization, serialization};

/// How often a session tells how it does.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// How often damaged places are looked for and asked of the subscriber.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);
/// How soon after the beginning of a session.
const REPAIR_FIRST: Duration = Duration::from_millis(500);

/// Serves one subscriber until the connection or the session ends.
pub(crate) async fn serve<C: FrameConnection>(
    shared: Arc<Shared>,
    connection: C,
    peer: Arc<Peer>,
) -> Result<(), ConnectionError> {
    let reader = connection.peer();
    let config = SenderConfig {
        linger: Duration::ZERO, // the feeds wait, once for all sessions
        ..SenderConfig::default()
    };
    let seed = shared.host.random();
    let mut origin = Origin {
        reader,
        sender: Sender::new(config, seed),
        wire: Wire::new(connection),
        clock: Clock::process(),
        mailbox: Arc::default(),
        channels: BTreeMap::new(),
        events: VecDeque::new(),
        commands: VecDeque::new(),
        asked: 0,
        peer,
        shared,
        ended: None,
    };
    let outcome = origin.run().await;
    origin.tell_status();
    origin.wire.finish().await;
    outcome
}

struct Origin<C: FrameConnection> {
    shared: Arc<Shared>,
    reader: Reader,
    peer: Arc<Peer>,
    sender: Sender,
    wire: Wire<C>,
    clock: Clock,
    mailbox: Arc<Mailbox>,
    channels: BTreeMap<Channel, Served>,
    events: VecDeque<SenderEvent>,
    commands: VecDeque<SenderCommand>,
    /// Damaged places that were asked for so far.
    asked: usize,
    ended: Option<Result<(), ConnectionError>>,
}

/// A stream that is served on a channel.
struct Served {
    log: StreamLog,
    /// The versions of its schema that were announced.
    announced: BTreeSet<u32>,
    /// What tells of new elements, as long as it is held.
    _reading: Reading,
}

impl<C: FrameConnection> Origin<C> {
    async fn run(&mut self) -> Result<(), ConnectionError> {
        let mut frames = Vec::new();
        let mut news = Vec::new();
        let mut repair = Every::new(REPAIR_FIRST, REPAIR_PAUSE);
        let mut status = Every::new(Duration::ZERO, STATUS_PAUSE);
        let mut alarm = Alarm::new();
        let mailbox = self.mailbox.clone();
        loop {
            let deadline = self.sender.deadline().map(|at| self.clock.at(at));
            let next = repair.next.min(status.next);
            alarm.at_latest(deadline.map_or(next, |deadline| deadline.min(next)));
            let mut rung = false;
            tokio::select! {
                biased;
                frame = self.wire.receive() => frames.push(frame?),
                () = mailbox.wait() => {}
                () = alarm.rings() => rung = true,
            }
            if rung {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.input(Input::Timeout);
                }
                if status.is_due(now) {
                    self.tell_status();
                }
                if repair.is_due(now) {
                    self.repair();
                }
            }
            self.wire.receive_ready(&mut frames)?;
            for frame in frames.drain(..) {
                match frame {
                    LinkFrame::Session(frame) => {
                        self.input(Input::Receive(SenderReceive::Frame(frame)));
                    }
                    LinkFrame::Directory(question) => self.answer_directory(&question),
                }
            }
            self.mailbox.take(&mut news);
            for one in news.drain(..) {
                self.news(one);
            }
            self.work();
            self.wire.send_ready()?;
            if let Some(ended) = self.ended.take() {
                return ended;
            }
        }
    }

    /// Gives the machine an input, and does what it says, until it says nothing more.
    fn input(&mut self, input: Input<SenderReceive, SenderCommand>) {
        self.give(input);
        self.work();
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

    fn give(&mut self, input: Input<SenderReceive, SenderCommand>) {
        let (wire, events) = (&mut self.wire, &mut self.events);
        chappe_machine::drain(
            &mut self.sender,
            self.clock.now(),
            input,
            |output| match output {
                Output::Transmit(frame) => wire.push(LinkFrame::Session(frame)),
                Output::Event(event) => events.push_back(event),
            },
        );
    }

    /// Tells the machine something, in its turn.
    fn command(&mut self, command: SenderCommand) {
        self.commands.push_back(command);
    }

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Subscribe {
                channel,
                subscription,
            } => {
                let offer = self.subscribe(channel, &subscription);
                self.command(SenderCommand::Answer { channel, offer });
            }
            SenderEvent::Read {
                channel,
                from,
                bytes,
                elements,
            } => self.read(channel, from, bytes, elements),
            SenderEvent::Unsubscribed { channel, text, .. } => {
                self.channels.remove(&channel);
                tracing::debug!(%channel, text, "no longer read");
            }
            SenderEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes,
            }) => self.fetch(request, channel, epoch, from..next, bytes),
            SenderEvent::Session(SessionEvent::Closed { .. }) => self.ended = Some(Ok(())),
            SenderEvent::Session(SessionEvent::Failed(failure)) => {
                let hint = failure.hint().map(str::to_owned);
                let peer = self.reader.label();
                let text = failure.to_string();
                let host = &self.shared.host;
                host.dropped("session failed", &peer, text.clone(), hint.clone());
                self.ended = Some(Err(ConnectionError { text, hint }));
            }
            SenderEvent::Session(SessionEvent::Fetched {
                channel,
                epoch,
                first,
                records,
            }) => self.put_back(channel, epoch, first, &records),
            SenderEvent::Session(SessionEvent::Welcomed { .. })
            | SenderEvent::Acknowledged { .. }
            | SenderEvent::Stalled { .. }
            | SenderEvent::Resumed { .. }
            | SenderEvent::Session(SessionEvent::FetchEnded { .. }) => {}
        }
    }

    fn subscribe(&mut self, channel: Channel, wanted: &Subscription) -> Offer {
        let refuse = |reason, text: String| Offer::Refuse { reason, text };
        if wanted.serialization != Serialization::Postcard.as_str() {
            let text = "sessions speak postcard only".to_owned();
            return refuse(RefusalReason::Unsupported, text);
        }
        let Some(log) = self.shared.host.stream(&wanted.stream, &self.reader) else {
            let text = format!("there is no stream {:?} that you may read", wanted.stream);
            return refuse(RefusalReason::UnknownStream, text);
        };
        // Before it is asked what is newest: what comes after is told.
        let linger = self.shared.config.linger;
        let reading = self.shared.feeds.read(&log, linger, &self.mailbox, channel);
        let stream = log.log();
        let (next, rollback) = match wanted.start {
            Start::First => (stream.first(), None),
            Start::New => (stream.last() + 1, None),
            Start::After(have) => match log.resume(position(have)) {
                Ok(next) => (next, None),
                Err(rollback) => (rollback.next, Some(rollback.kept)),
            },
        };
        let epoch = log.position_of(next).epoch.0;
        let version = log.version_at(next);
        let grant = Grant {
            epoch,
            next,
            last: stream.last(),
            level: level(stream.level()),
            schema: schema(&log, version),
        };
        let served = Served {
            log,
            announced: BTreeSet::from([version]),
            _reading: reading,
        };
        self.channels.insert(channel, served);
        self.peer.reads(self.streams());
        match rollback {
            None => Offer::Accept(grant),
            Some(kept) => Offer::Rollback {
                kept: kept.map(|kept| chappe_flow::Position {
                    epoch: kept.epoch,
                    sequence: kept.sequence,
                }),
                grant,
            },
        }
    }

    fn read(&mut self, channel: Channel, from: u64, bytes: u64, elements: u64) {
        let Some(served) = self.channels.get(&channel) else {
            return;
        };
        let log = served.log.clone();
        let bounds = (usize_of(elements), usize_of(bytes));
        let outcome = match log.read_raw(from, bounds.0, bounds.1) {
            // One of them is unreadable: which is found by reading one.
            Err(StoreError::Codec(_)) => log.read_raw(from, 1, bounds.1),
            other => other,
        };
        match outcome {
            Ok(raw) if raw.records.is_empty() => self.command(SenderCommand::Records {
                channel,
                epoch: log.log().epoch(),
                first: from,
                schema_version: raw.schema_version,
                records: Records::default(),
            }),
            Ok(raw) => {
                let batch = Batch::of(&raw);
                self.announce(channel, batch.schema_version);
                self.command(SenderCommand::Records {
                    channel,
                    epoch: batch.first.epoch.0,
                    first: batch.first.sequence,
                    schema_version: batch.schema_version,
                    records: batch.records,
                });
            }
            Err(StoreError::Log(chappe_log::Error::Gap { next, reason, .. })) => {
                let reason = match reason {
                    GapReason::Trimmed => LossReason::Trimmed,
                    _ => LossReason::Corrupt,
                };
                self.gap(channel, from, next, reason);
            }
            Err(StoreError::Codec(_) | StoreError::UnknownVersion(_)) => {
                self.gap(channel, from, from + 1, LossReason::Corrupt);
            }
            Err(error) => {
                let text = format!("the stream cannot be read: {error}");
                tracing::warn!(stream = log.name(), %error, "cannot be read for a link");
                let offer = Offer::Refuse {
                    reason: RefusalReason::Busy,
                    text,
                };
                self.channels.remove(&channel);
                self.command(SenderCommand::Answer { channel, offer });
            }
        }
    }

    /// Those of the numbers that are in one epoch are lost; the others are read later.
    fn gap(&mut self, channel: Channel, from: u64, next: u64, reason: LossReason) {
        let Some(served) = self.channels.get(&channel) else {
            return;
        };
        let parts = served.log.by_epoch(from, next);
        let Some((first, next)) = parts.first().copied() else {
            return;
        };
        self.command(SenderCommand::Gap {
            channel,
            epoch: first.epoch.0,
            from,
            next,
            reason,
        });
    }

    /// Says the schema of this version, if it was not said in this session: records name theirs.
    fn announce(&mut self, channel: Channel, version: u32) {
        let Some(served) = self.channels.get_mut(&channel) else {
            return;
        };
        if served.announced.insert(version) {
            let schema = schema(&served.log, version);
            self.command(SenderCommand::Schema { channel, schema });
        }
    }

    /// As [`Self::announce`], of the element with this number.
    fn announce_at(&mut self, channel: Channel, number: u64) {
        let served = self.channels.get(&channel);
        if let Some(version) = served.map(|served| served.log.version_at(number)) {
            self.announce(channel, version);
        }
    }

    fn news(&mut self, news: News) {
        match news {
            News::Live(channel, batch) if self.channels.contains_key(&channel) => {
                self.announce(channel, batch.schema_version);
                self.command(SenderCommand::Live {
                    channel,
                    epoch: batch.first.epoch.0,
                    first: batch.first.sequence,
                    schema_version: batch.schema_version,
                    records: batch.records,
                });
            }
            News::Appended(channel, last) if self.channels.contains_key(&channel) => {
                self.command(SenderCommand::Appended { channel, last });
            }
            _ => {}
        }
    }

    /// Asks the subscriber for what is damaged here.
    fn repair(&mut self) {
        let holes = self.channels.iter().flat_map(|(channel, served)| {
            let holes = served.log.holes().into_iter();
            holes.map(move |hole| (*channel, hole))
        });
        let mut holes: Vec<_> = holes.collect();
        // What the peer lacks too does not keep the others from being asked for.
        let first = self.asked % holes.len().max(1);
        holes.rotate_left(first);
        holes.truncate(self.sender.fetch_room());
        self.asked = self.asked.wrapping_add(holes.len());
        for (channel, hole) in holes {
            // The subscriber names the version of what it has by the number that it was told: most
            // likely that of an element next to the hole.
            let first = hole.here.sequence;
            for next in [first.saturating_sub(1), first + hole.count] {
                self.announce_at(channel, next);
            }
            self.commands
                .push_back(SenderCommand::Session(SessionCommand::Fetch {
                    channel,
                    epoch: hole.here.epoch.0,
                    from: hole.here.sequence,
                    next: hole.here.sequence + hole.count,
                }));
        }
        self.work();
    }

    /// The subscriber has sent what is damaged here.
    fn put_back(&mut self, channel: Channel, epoch: u64, first: u64, records: &Records) {
        let Some(served) = self.channels.get(&channel) else {
            return;
        };
        let first = Position {
            epoch: Epoch(epoch),
            sequence: first,
        };
        let records = records.iter();
        let records = records.map(|it| (chappe_stream::Timestamp(it.time), it.payload));
        match served.log.put_back(first, records) {
            Ok(put) => {
                let (stream, count) = (served.log.name(), put.count);
                tracing::info!(stream, count, "damaged elements put back");
            }
            // Another subscriber was faster, or they do not fit.
            Err(error) => tracing::debug!(stream = served.log.name(), %error, "not put back"),
        }
    }

    /// The subscriber has lost records that it once had.
    fn fetch(
        &mut self,
        request: u64,
        channel: Channel,
        epoch: u64,
        range: std::ops::Range<u64>,
        bytes: u64,
    ) {
        let served = self.channels.get(&channel);
        let raw = served.map(|it| {
            it.log
                .read_epoch(Epoch(epoch), range.clone(), usize_of(bytes))
        });
        let raw = raw.and_then(Result::ok);
        let raw = raw.filter(|raw| !raw.records.is_empty());
        if let Some(raw) = &raw {
            self.announce(channel, raw.schema_version);
        }
        let first = raw.as_ref().map_or(range.start, |raw| raw.first.sequence);
        let records = raw.map_or(Records::default(), |raw| Batch::of(&raw).records);
        self.command(SenderCommand::Session(SessionCommand::Fetched {
            request,
            first,
            records,
        }));
    }

    fn answer_directory(&mut self, question: &Bytes) {
        let entries = self.shared.host.directory(&self.reader);
        match directory::answer(question, &entries, serialization::DOCUMENT_BYTES_MAX) {
            Ok(answer) => self.wire.push(LinkFrame::Directory(answer)),
            Err(error) => {
                let peer = self.reader.label();
                let host = &self.shared.host;
                host.dropped("directory question", &peer, error.to_string(), None);
            }
        }
    }

    fn streams(&self) -> Vec<String> {
        let served = self.channels.values();
        served.map(|served| served.log.name().to_owned()).collect()
    }

    fn tell_status(&mut self) {
        let counters = self.sender.counters();
        let channels: Vec<_> = self.sender.channels().map(|(_, channel)| channel).collect();
        let pacer = self.sender.pacer();
        self.peer.tell(self.streams(), &counters, &channels, pacer);
    }
}

fn schema(log: &StreamLog, version: u32) -> Schema {
    let schema = log.schema_of(version).unwrap_or_default();
    Schema {
        id: SchemaId(serialization::SchemaId::of(&schema).0),
        version,
        // A schema is plain data: it can always be written.
        bytes: serde_json::to_vec(&schema).unwrap_or_default().into(),
    }
}

fn position(position: chappe_flow::Position) -> Position {
    Position {
        epoch: Epoch(position.epoch),
        sequence: position.sequence,
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

const fn level(level: chappe_log::Level) -> chappe_flow::Level {
    match level {
        chappe_log::Level::Memory => chappe_flow::Level::Memory,
        chappe_log::Level::Process => chappe_flow::Level::Process,
        chappe_log::Level::Power => chappe_flow::Level::Power,
    }
}
