//! The sending end of a link. The [crate documentation](crate) gives an overview.

mod served;
mod types;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use chappe_flow::{
    Channel, FETCHES_MAX, LossReason, Offer, Position, Records, RefusalReason, Schema, Sender,
    SenderCommand, SenderEvent, SenderReceive, SessionCommand, SessionEvent, Subscription,
};
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::Hole;
use crate::planted::{self, Defect};
use crate::repair::RepairTurn;
use served::{Beginning, Open, Served, Step};

pub use types::{
    OriginCommand, OriginConfig, OriginEvent, OriginReceive, ReadPurpose, ReadRequest, Resumption,
    SchemaOf, StreamState,
};

/// Maximum number of steps of one channel that may wait for a schema: the next elements, live
/// elements, answers to fetches, and fetches, each with the schemas that must precede it.
const WAITING_MAX: usize = 2 + 2 + FETCHES_MAX * 2 + FETCHES_MAX * 3;

/// The sending end of a link, for one session. The [crate documentation](crate) has its contract.
///
/// Give it [`Input::Timeout`] when the connection is established: the time limit of the handshake
/// starts then.
#[derive(Debug)]
pub struct Origin {
    sender: Sender,
    serialization: &'static str,
    channels: BTreeMap<Channel, Served>,
    repair: RepairTurn,
    commands: VecDeque<SenderCommand>,
    events: VecDeque<OriginEvent>,
    /// Elements were passed to the session before their schema: the invariant is broken.
    unannounced: Option<(Channel, u32)>,
    has_ended: bool,
    now: Instant,
}

impl Origin {
    /// An origin without streams.
    #[must_use]
    pub fn new(config: OriginConfig) -> Self {
        Self {
            sender: Sender::new(config.sender),
            serialization: config.serialization,
            channels: BTreeMap::new(),
            repair: RepairTurn::default(),
            commands: VecDeque::new(),
            events: VecDeque::new(),
            unannounced: None,
            has_ended: false,
            now: Instant::ZERO,
        }
    }

    /// Whether the session is over: commands cause nothing more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The session inside, for its counters and the state of its channels.
    #[must_use]
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    fn command(&mut self, command: OriginCommand) {
        match command {
            OriginCommand::Opened { channel, stream } => self.opened(channel, stream),
            OriginCommand::Refuse {
                channel,
                reason,
                text,
            } => {
                self.channels.remove(&channel);
                self.refuse(channel, reason, text);
            }
            OriginCommand::Schema { channel, schema } => self.schema(channel, schema),
            OriginCommand::Records {
                request,
                epoch,
                schema_version,
                records,
            } => self.records(request, epoch, schema_version, records),
            OriginCommand::Gap {
                request,
                next,
                reason,
            } => self.gap(request, next, reason),
            OriginCommand::Undecodable { request } => self.undecodable(request),
            OriginCommand::ReadFailed { request, text } => self.read_failed(request, text),
            OriginCommand::Live {
                channel,
                first,
                schema_version,
                records,
            } => self.live(channel, first, schema_version, records),
            OriginCommand::Appended { channel, last } => self.appended(channel, last),
            OriginCommand::Repair { holes } => self.repair(holes),
            OriginCommand::Session(command) => self.tell_session(command),
        }
    }

    fn tell_session(&mut self, command: SessionCommand) {
        self.commands.push_back(SenderCommand::Session(command));
    }

    fn open_mut(&mut self, channel: Channel) -> Option<&mut Open> {
        match self.channels.get_mut(&channel) {
            Some(Served::Open(open)) => Some(open),
            _ => None,
        }
    }

    // -- subscriptions --

    fn subscribe(&mut self, channel: Channel, wanted: Subscription) {
        if wanted.serialization != self.serialization {
            let text = format!("sessions carry {} only", self.serialization);
            return self.refuse(channel, RefusalReason::Unsupported, text);
        }
        let positions = served::positions(&wanted);
        let opening = Served::Opening(wanted.start, positions.clone());
        self.channels.insert(channel, opening);
        self.events.push_back(OriginEvent::Open {
            channel,
            stream: wanted.stream,
            positions,
        });
    }

    fn refuse(&mut self, channel: Channel, reason: RefusalReason, text: String) {
        let offer = Offer::Refuse { reason, text };
        let answer = SenderCommand::Answer { channel, offer };
        self.commands.push_back(answer);
    }

    fn opened(&mut self, channel: Channel, stream: StreamState) {
        let Some(served) = self.channels.get_mut(&channel) else {
            return;
        };
        if let Served::Opening(start, positions) = served {
            let beginning = Beginning::new(*start, positions, stream);
            let of = SchemaOf::Element(beginning.next);
            *served = Served::Beginning(beginning);
            self.events.push_back(OriginEvent::Schema { channel, of });
        }
    }

    /// Handles a channel that the subscriber ended, or whose log cannot be read.
    fn end(&mut self, channel: Channel, text: String) {
        if self.channels.remove(&channel).is_some() {
            self.events.push_back(OriginEvent::Ended { channel, text });
        }
    }

    // -- schemas --

    fn schema(&mut self, channel: Channel, schema: Schema) {
        match self.channels.remove(&channel) {
            Some(Served::Beginning(beginning)) => {
                let (offer, open) = beginning.open(schema);
                let answer = SenderCommand::Answer { channel, offer };
                self.commands.push_back(answer);
                self.channels.insert(channel, Served::Open(open));
            }
            Some(Served::Open(mut open)) => {
                if open.define(schema.version) {
                    let announcement = SenderCommand::Schema { channel, schema };
                    self.commands.push_back(announcement);
                }
                self.channels.insert(channel, Served::Open(open));
                self.advance(channel);
            }
            Some(opening @ Served::Opening(..)) => {
                self.channels.insert(channel, opening);
            }
            None => {}
        }
    }

    /// Adds steps; requests the schema that the first one needs.
    fn push(&mut self, channel: Channel, steps: impl IntoIterator<Item = Step>) {
        if let Some(open) = self.open_mut(channel) {
            let was_waiting = open.is_waiting();
            open.push(steps);
            if !was_waiting {
                self.advance(channel);
            }
        }
    }

    /// Runs the steps of a channel that need no further schema, and requests the next schema.
    fn advance(&mut self, channel: Channel) {
        while let Some(step) = self.open_mut(channel).and_then(Open::step) {
            match step {
                Step::Send(command) => self.commands.push_back(command),
                Step::Announce(of) => {
                    return self.events.push_back(OriginEvent::Schema { channel, of });
                }
            }
        }
    }

    /// Sends elements, after their schema.
    fn send(&mut self, channel: Channel, version: u32, command: SenderCommand) {
        let Some(open) = self.open_mut(channel) else {
            return;
        };
        let late = planted::is(Defect::AnnouncesLate);
        if open.is_ready(version) || late {
            if !open.has_announced(version) {
                self.unannounced = Some((channel, version));
            }
            self.commands.push_back(command);
            if late {
                let announcement = Step::Announce(SchemaOf::Version(version));
                self.push(channel, [announcement]);
            }
            return;
        }
        let announcement = Step::Announce(SchemaOf::Version(version));
        self.push(channel, [announcement, Step::Send(command)]);
    }

    // -- elements --

    fn read(&mut self, request: ReadRequest) {
        self.events.push_back(OriginEvent::Read(request));
    }

    fn records(&mut self, request: ReadRequest, epoch: u64, version: u32, records: Records) {
        let ReadRequest { channel, from, .. } = request;
        match request.purpose {
            ReadPurpose::Send => {
                let is_empty = records.is_empty();
                let command = SenderCommand::Records {
                    channel,
                    epoch,
                    first: from,
                    schema_version: version,
                    records,
                };
                if is_empty {
                    self.commands.push_back(command);
                } else {
                    self.send(channel, version, command);
                }
            }
            ReadPurpose::Fetch {
                epoch: requested, ..
            } if epoch != requested || records.is_empty() || self.open_mut(channel).is_none() => {
                self.fetched_none(request);
            }
            ReadPurpose::Fetch { request, .. } => {
                let answer = SessionCommand::Fetched {
                    request,
                    first: from,
                    records: shifted(Defect::AnswersShifted, records),
                };
                self.send(channel, version, SenderCommand::Session(answer));
            }
        }
    }

    /// Handles numbers that are lost here. A subscriber continues from the last of them, so only
    /// those of one epoch are named; the others are read next.
    fn gap(&mut self, request: ReadRequest, next: u64, reason: LossReason) {
        let ReadRequest { channel, from, .. } = request;
        match request.purpose {
            ReadPurpose::Send => {
                let Some(open) = self.open_mut(channel) else {
                    return;
                };
                let epoch = open.epoch_of(from);
                let next = open.end_in_epoch(from, next);
                self.commands.push_back(SenderCommand::Gap {
                    channel,
                    epoch,
                    from,
                    next,
                    reason,
                });
            }
            ReadPurpose::Fetch { next: end, .. } if next <= from || next >= end => {
                self.fetched_none(request);
            }
            ReadPurpose::Fetch { next: end, .. } => self.read(ReadRequest {
                from: next,
                elements: end - next,
                ..request
            }),
        }
    }

    /// Reads elements before an undecodable one separately; that one is lost.
    fn undecodable(&mut self, request: ReadRequest) {
        match request.purpose {
            ReadPurpose::Send if request.elements > 1 => self.read(ReadRequest {
                elements: 1,
                ..request
            }),
            ReadPurpose::Send => self.gap(request, request.from + 1, LossReason::Corrupt),
            ReadPurpose::Fetch { .. } => self.fetched_none(request),
        }
    }

    fn read_failed(&mut self, request: ReadRequest, text: String) {
        match request.purpose {
            ReadPurpose::Send => {
                self.end(request.channel, text.clone());
                self.refuse(request.channel, RefusalReason::Busy, text);
            }
            ReadPurpose::Fetch { .. } => self.fetched_none(request),
        }
    }

    fn live(&mut self, channel: Channel, first: Position, version: u32, records: Records) {
        let last = (first.sequence + records.len() as u64).saturating_sub(1);
        if self.open_mut(channel).is_none_or(|open| open.is_waiting()) {
            // Read from the log later, so they need no memory here until then.
            return self.appended(channel, last);
        }
        let command = SenderCommand::Live {
            channel,
            epoch: first.epoch,
            first: first.sequence,
            schema_version: version,
            records,
        };
        self.send(channel, version, command);
    }

    fn appended(&mut self, channel: Channel, last: u64) {
        match self.channels.get_mut(&channel) {
            Some(Served::Beginning(beginning)) => beginning.last = beginning.last.max(last),
            Some(Served::Open(_)) => {
                let command = SenderCommand::Appended { channel, last };
                self.commands.push_back(command);
            }
            Some(Served::Opening(..)) | None => {}
        }
    }

    // -- repair --

    /// Requests elements from the subscriber. The request names their schema by the version
    /// announced to it, most likely that of an element next to the hole.
    fn repair(&mut self, mut holes: Vec<Hole>) {
        holes.retain(|hole| self.open_mut(hole.channel).is_some());
        let served = self.channels.values();
        let waiting: usize = served
            .map(|served| match served {
                Served::Open(open) => open.waiting_fetches(),
                _ => 0,
            })
            .sum();
        let room = self.sender.fetch_room().saturating_sub(waiting);
        for hole in self.repair.next(holes, room) {
            let [before, after] = [hole.from.saturating_sub(1), hole.next];
            let steps = [
                Step::Announce(SchemaOf::Element(before)),
                Step::Announce(SchemaOf::Element(after)),
                Step::Send(SenderCommand::Session(hole.into())),
            ];
            self.push(hole.channel, steps);
        }
    }

    /// Handles the subscriber's request for elements that are damaged there.
    fn fetch(&mut self, mut wanted: ReadRequest, epoch: u64, next: u64) {
        let open = self.open_mut(wanted.channel);
        let Some(first) = open.and_then(|open| open.first_of(epoch)) else {
            return self.fetched_none(wanted);
        };
        wanted.from = wanted.from.max(first);
        wanted.elements = next.saturating_sub(wanted.from);
        if wanted.elements == 0 {
            return self.fetched_none(wanted);
        }
        self.read(wanted);
    }

    /// Answers a fetch when none of the requested elements exist here.
    fn fetched_none(&mut self, wanted: ReadRequest) {
        if let ReadPurpose::Fetch { request, .. } = wanted.purpose {
            self.tell_session(SessionCommand::Fetched {
                request,
                first: wanted.from,
                records: Records::default(),
            });
        }
    }

    // -- from the session --

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::Subscribe {
                channel,
                subscription,
            } => self.subscribe(channel, subscription),
            SenderEvent::Read {
                channel,
                from,
                bytes,
                elements,
            } => self.read(ReadRequest {
                channel,
                from,
                bytes,
                elements,
                purpose: ReadPurpose::Send,
            }),
            SenderEvent::Acknowledged {
                channel, position, ..
            } => self
                .events
                .push_back(OriginEvent::Acknowledged { channel, position }),
            SenderEvent::Unsubscribed { channel, text, .. } => self.end(channel, text),
            SenderEvent::Stalled { .. } | SenderEvent::Resumed { .. } => {}
            SenderEvent::Session(event) => self.session_event(event),
        }
    }

    fn session_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes,
            } => {
                let purpose = ReadPurpose::Fetch {
                    request,
                    epoch,
                    next,
                };
                let wanted = ReadRequest {
                    channel,
                    from,
                    bytes,
                    elements: 0,
                    purpose,
                };
                self.fetch(wanted, epoch, next);
            }
            SessionEvent::Fetched {
                channel,
                epoch,
                first,
                records,
            } => {
                let sequence = first;
                self.events.push_back(OriginEvent::PutBack {
                    channel,
                    first: Position { epoch, sequence },
                    records: shifted(Defect::PutsBackShifted, records),
                });
            }
            event => {
                self.has_ended |=
                    matches!(event, SessionEvent::Closed { .. } | SessionEvent::Failed(_));
                self.events.push_back(OriginEvent::Session(event));
            }
        }
    }

    fn check_channels(&self) -> Result<(), String> {
        for (channel, _) in self.sender.channels() {
            if !matches!(self.channels.get(&channel), Some(Served::Open(_))) {
                return Err(format!("{channel} is granted but not open here"));
            }
        }
        for (channel, served) in &self.channels {
            let Served::Open(open) = served else { continue };
            let (count, is_schema) = open.waiting();
            if count > WAITING_MAX {
                return Err(format!("{channel}: {count} steps wait for schemas"));
            }
            if count > 0 && !is_schema {
                return Err(format!(
                    "{channel}: a step waits although its schema was announced"
                ));
            }
        }
        Ok(())
    }
}

/// The records, or with the defect those after the first.
pub(crate) fn shifted(defect: Defect, records: Records) -> Records {
    if planted::is(defect) {
        return records.skip(1);
    }
    records
}

impl Machine for Origin {
    type Receive = OriginReceive;
    type Command = OriginCommand;
    type Transmit = Bytes;
    type Event = OriginEvent;

    fn handle_input(&mut self, now: Instant, input: Input<OriginReceive, OriginCommand>) {
        self.now = now;
        if self.has_ended {
            return;
        }
        match input {
            Input::Receive(OriginReceive::Frame(frame)) => {
                let frame = SenderReceive::Frame(frame);
                self.sender.handle_input(now, Input::Receive(frame));
            }
            Input::Command(command) => self.command(command),
            Input::Timeout => self.sender.handle_input(now, Input::Timeout),
        }
    }

    /// Frames first, as in the session: frames caused by the program's answers are sent after them.
    fn poll_output(&mut self) -> Option<Output<Bytes, OriginEvent>> {
        loop {
            match self.sender.poll_output() {
                Some(Output::Transmit(frame)) => return Some(Output::Transmit(frame)),
                Some(Output::Event(event)) => self.event(event),
                None => match self.commands.pop_front() {
                    Some(command) => self.sender.handle_input(self.now, Input::Command(command)),
                    None => return self.events.pop_front().map(Output::Event),
                },
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.has_ended {
            return None;
        }
        self.sender.deadline()
    }
}

impl Invariant for Origin {
    fn check(&self) -> Result<(), String> {
        self.sender.check()?;
        if self.has_ended {
            return Ok(());
        }
        if let Some((channel, version)) = self.unannounced {
            return Err(format!(
                "{channel}: elements precede version {version} of their schema"
            ));
        }
        self.check_channels()
    }
}
