//! The origin's end of a session: runs a [`chappe_link::Origin`] on a connection and the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_flow::{Channel, RefusalReason, SenderConfig, SessionEvent};
use chappe_link::{Hole, Origin, OriginCommand, OriginConfig, OriginEvent, OriginReceive};
use chappe_machine::{Input, Machine as _, Output};
use chappe_stream::StreamLog;
use chappe_transport::{Alarm, Clock, Every};
use tokio::time::Instant;

use super::wire::{READY_FRAMES_MAX, Wire};
use super::{ConnectionError, FrameConnection, LinkFrame, reading};
use crate::directory;
use crate::feed::{FeedSubscription, FeedUpdate, Mailbox};
use crate::peers::Peer;
use crate::replica::to_flow;
use crate::shared::Shared;
use crate::{Reader, Serialization, serialization};

/// The period of status updates.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// The period of looking for damage.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);
/// The first look for damage after a session starts.
const REPAIR_FIRST: Duration = Duration::from_millis(500);

/// Serves one subscriber until the connection or the session ends.
pub(crate) async fn serve<C: FrameConnection>(
    shared: Arc<Shared>,
    connection: C,
    peer: Arc<Peer>,
) -> Result<(), ConnectionError> {
    let config = OriginConfig {
        sender: SenderConfig {
            linger: Duration::ZERO, // the feeds linger, once for all sessions
            ..SenderConfig::default()
        },
        serialization: Serialization::Postcard.as_str(),
    };
    let mut session = Session {
        reader: connection.peer(),
        origin: Origin::new(config),
        wire: Wire::new(connection),
        clock: Clock::process(),
        mailbox: Arc::default(),
        streams: BTreeMap::new(),
        events: VecDeque::new(),
        peer,
        shared,
        ended: None,
    };
    let outcome = session.run().await;
    session.update_status();
    session.wire.finish().await;
    outcome
}

/// A session on its connection.
struct Session<C: FrameConnection> {
    shared: Arc<Shared>,
    reader: Reader,
    peer: Arc<Peer>,
    origin: Origin,
    wire: Wire<C>,
    clock: Clock,
    mailbox: Arc<Mailbox>,
    streams: BTreeMap<Channel, Served>,
    events: VecDeque<OriginEvent>,
    ended: Option<Result<(), ConnectionError>>,
}

/// A stream that is served on a channel.
struct Served {
    /// The name by which the subscriber asked for it.
    name: String,
    log: StreamLog,
    /// Puts new elements in the mailbox until it is dropped.
    _reading: FeedSubscription,
}

impl<C: FrameConnection> Session<C> {
    async fn run(&mut self) -> Result<(), ConnectionError> {
        let mut news = Vec::new();
        let mut repair = Every::new(REPAIR_FIRST, REPAIR_PAUSE);
        let mut status = Every::new(Duration::ZERO, STATUS_PAUSE);
        let mut alarm = Alarm::new();
        let mailbox = self.mailbox.clone();
        loop {
            let deadline = self.origin.deadline().map(|at| self.clock.at(at));
            let next = repair.next.min(status.next);
            alarm.at_latest(deadline.map_or(next, |deadline| deadline.min(next)));
            let mut rung = false;
            // While too much is queued, only timers run.
            let is_full = self.wire.is_full();
            let waits = is_full || !self.events.is_empty();
            tokio::select! {
                biased;
                ready = self.wire.ready(waits) => ready?,
                () = mailbox.wait(), if !is_full => {}
                () = alarm.rings() => rung = true,
            }
            self.answer_events();
            if rung {
                let now = Instant::now();
                if deadline.is_some_and(|deadline| deadline <= now) {
                    self.give(Input::Timeout);
                }
                if status.is_due(now) {
                    self.update_status();
                    self.review();
                }
                if repair.is_due(now) {
                    self.repair();
                }
            }
            for _ in 0..READY_FRAMES_MAX {
                let Some(frame) = self.wire.take()? else {
                    break;
                };
                match frame {
                    LinkFrame::Session(frame) => {
                        self.give(Input::Receive(OriginReceive::Frame(frame)));
                    }
                    LinkFrame::Directory(question) => self.answer_directory(&question),
                }
            }
            if !self.wire.is_full() {
                self.mailbox.take(&mut news);
            }
            for one in news.drain(..) {
                self.give(Input::Command(command(one)));
            }
            self.wire.send_ready()?;
            if let Some(ended) = self.ended.take() {
                return ended;
            }
        }
    }

    /// Passes an input to the machine, and answers its requests until it has none.
    fn give(&mut self, input: Input<OriginReceive, OriginCommand>) {
        self.drain(input);
        self.answer_events();
    }

    /// Answers the machine's requests as long as there is room for the results.
    fn answer_events(&mut self) {
        while self.ended.is_none()
            && (!self.wire.is_full() || self.origin.has_ended())
            && let Some(event) = self.events.pop_front()
        {
            if let Some(answer) = self.event(event) {
                self.drain(Input::Command(answer));
            }
        }
    }

    fn drain(&mut self, input: Input<OriginReceive, OriginCommand>) {
        let (wire, events) = (&mut self.wire, &mut self.events);
        let now = self.clock.now();
        chappe_machine::drain(&mut self.origin, now, input, |output| match output {
            Output::Transmit(frame) => wire.push(LinkFrame::Session(frame)),
            Output::Event(event) => events.push_back(event),
        });
    }

    fn event(&mut self, event: OriginEvent) -> Option<OriginCommand> {
        match event {
            OriginEvent::Open {
                channel,
                stream,
                positions,
            } => Some(self.open(channel, &stream, &positions)),
            OriginEvent::Schema { channel, of } => {
                let schema = reading::schema(&self.streams.get(&channel)?.log, of);
                Some(OriginCommand::Schema { channel, schema })
            }
            OriginEvent::Read(request) => Some(match self.streams.get(&request.channel) {
                Some(served) => reading::read(&served.log, request),
                None => OriginCommand::ReadFailed {
                    request,
                    text: "the stream is not open".to_owned(),
                },
            }),
            OriginEvent::PutBack {
                channel,
                first,
                records,
            } => {
                reading::put_back(&self.streams.get(&channel)?.log, first, &records);
                None
            }
            OriginEvent::Ended { channel, text } => {
                self.streams.remove(&channel);
                tracing::debug!(%channel, text, "channel closed");
                None
            }
            OriginEvent::Session(SessionEvent::Closed { .. }) => {
                self.ended = Some(Ok(()));
                None
            }
            OriginEvent::Session(SessionEvent::Failed(failure)) => {
                let (text, hint) = (failure.to_string(), failure.hint().map(str::to_owned));
                let (host, peer) = (&self.shared.host, self.reader.label());
                host.dropped("session failed", &peer, text.clone(), hint.clone());
                self.ended = Some(Err(ConnectionError { text, hint }));
                None
            }
            OriginEvent::Acknowledged { .. } | OriginEvent::Session(_) => None,
        }
    }

    fn open(
        &mut self,
        channel: Channel,
        name: &str,
        positions: &[chappe_flow::Position],
    ) -> OriginCommand {
        let Some(log) = self.shared.host.stream(name, &self.reader) else {
            return OriginCommand::Refuse {
                channel,
                reason: RefusalReason::UnknownStream,
                text: format!("there is no stream {name:?} that you may read"),
            };
        };
        // Subscribed before the newest number is read, so later elements are reported.
        let linger = self.shared.config.linger;
        let _reading = self.shared.feeds.read(&log, linger, &self.mailbox, channel);
        let stream = reading::state(&log, positions);
        let name = name.to_owned();
        self.streams.insert(
            channel,
            Served {
                name,
                log,
                _reading,
            },
        );
        self.peer.reads(self.stream_names());
        OriginCommand::Opened { channel, stream }
    }

    /// Ends the session when its reader may not read one of its streams any more, or a name that it uses was freed.
    /// The reader connects again for what it may read.
    fn review(&mut self) {
        let (host, reader) = (&self.shared.host, &self.reader);
        let mut streams = self.streams.values();
        let refused = streams.find(|it| !host.may_read(&it.name, it.log.name(), reader));
        if let Some(Served { name, .. }) = refused {
            let text =
                format!("the stream {name:?} may not be read any more, or its name was freed");
            host.dropped("access ended", &reader.label(), text.clone(), None);
            self.ended = Some(Err(ConnectionError { text, hint: None }));
        }
    }

    /// Looks for damage in the local streams.
    fn repair(&mut self) {
        let streams = self.streams.iter();
        let holes = streams.flat_map(|(channel, served)| reading::holes(*channel, &served.log));
        let holes: Vec<Hole> = holes.collect();
        if !holes.is_empty() {
            self.give(Input::Command(OriginCommand::Repair { holes }));
        }
    }

    fn answer_directory(&mut self, question: &Bytes) {
        let entries = self.shared.host.directory(&self.reader);
        match directory::answer(question, &entries, serialization::DOCUMENT_BYTES_MAX) {
            Ok(answer) => self.wire.push(LinkFrame::Directory(answer)),
            Err(error) => {
                let (host, peer) = (&self.shared.host, self.reader.label());
                host.dropped("directory question", &peer, error.to_string(), None);
            }
        }
    }

    fn stream_names(&self) -> Vec<String> {
        let served = self.streams.values();
        served.map(|served| served.log.name().to_owned()).collect()
    }

    fn update_status(&mut self) {
        let sender = self.origin.sender();
        let channels: Vec<_> = sender.channels().map(|(_, channel)| channel).collect();
        let read = sender.channels().filter_map(|(number, channel)| {
            let log = &self.streams.get(&number)?.log;
            // A position in an earlier epoch says nothing of the newest numbers.
            let is_current = channel.epoch == log.log().epoch();
            is_current.then(|| (log.name().to_owned(), channel.acknowledged))
        });
        let read = read.collect();
        let (counters, pacer) = (sender.counters(), sender.pacer());
        self.peer
            .tell(self.stream_names(), read, &counters, &channels, pacer);
    }
}

fn command(news: FeedUpdate) -> OriginCommand {
    match news {
        FeedUpdate::Live(channel, batch) => OriginCommand::Live {
            channel,
            first: to_flow(batch.first),
            schema_version: batch.schema_version,
            records: batch.records,
        },
        FeedUpdate::Appended(channel, last) => OriginCommand::Appended { channel, last },
    }
}
