//! A node whose own streams others want: elements are made, stored, and sent by a sender for each
//! connection.

use std::collections::{BTreeMap, VecDeque};

use chappe_flow::{
    Channel, Grant, Level, LossReason, Offer, Position, Records, RefusalReason, Schema, SchemaId,
    Sender, SenderCommand, SenderEvent, SenderReceive, SessionCommand, SessionEvent, Start,
    Subscription,
};
use chappe_log::{Appended, Error, GapReason, Recovery, Stream, Trimmed};
use chappe_machine::Input;

use super::derived::Derived;
use super::record;
use super::repair::{Filling, counts};
use super::rot::flip_frame;
use super::store::{Death, Disked, Outcome, copied};
use super::world::{Frame, Line, Timer, World};
use crate::judge::{Allows, At, Event};
use crate::network::{Connection, Node};

/// Most records that are handed out for one question.
const RECORDS_PER_READ: u64 = 256;

/// A batch on its way to the disk.
struct Pending {
    appended: Appended,
    first: At,
    contents: Vec<u64>,
}

pub(super) struct OriginStream {
    /// Its number among all streams of the run.
    pub(super) number: usize,
    name: String,
    pub(super) stream: Option<Stream>,
    pending: VecDeque<Pending>,
    trim: Option<Trimmed>,
    derived: Option<Derived>,
    /// First and last number of each batch that was accepted: what rots together.
    pub(super) batches: Vec<(At, u64)>,
    announced: u64,
}

impl OriginStream {
    /// Says from where on it has elements; what is before counts as let go of.
    fn keeps(&self, world: &mut World) {
        if let Some(stream) = &self.stream {
            world.tell(Event::Keeps {
                stream: self.number,
                first: stream.first(),
            });
        }
    }
}

pub(super) struct Session {
    pub(super) line: Line<Sender>,
    pub(super) channels: Vec<(Channel, usize)>,
    /// Damaged places that were asked for.
    pub(super) asked: usize,
}

/// See the [module documentation](self).
pub(super) struct Origin {
    pub(super) disked: Disked,
    pub(super) streams: Vec<OriginStream>,
    pub(super) sessions: BTreeMap<u32, Session>,
    pub(super) fillings: VecDeque<Filling>,
    by_connection: BTreeMap<Connection, u32>,
    /// The versions of the protocol that it speaks.
    pub(super) versions: (u32, u32),
    /// Whether new elements are made.
    pub(super) produces: bool,
}

impl Origin {
    pub(super) fn new(world: &mut World, node: Node, index: usize) -> Self {
        let seed = world.random.u64(..);
        let each = world.plan.streams_each;
        let stream = |number: usize| OriginStream {
            number,
            name: stream_name(number),
            stream: None,
            pending: VecDeque::new(),
            trim: None,
            derived: None,
            batches: Vec::new(),
            announced: 0,
        };
        Self {
            disked: Disked::new(node, seed, world.plan.weak, None),
            streams: (index * each..(index + 1) * each).map(stream).collect(),
            sessions: BTreeMap::new(),
            fillings: VecDeque::new(),
            by_connection: BTreeMap::new(),
            versions: world.plan.sender.session.versions,
            produces: true,
        }
    }

    pub(super) fn node(&self) -> Node {
        self.disked.node
    }

    /// Opens the store and begins; false: not now.
    pub(super) fn start(&mut self, world: &mut World) -> bool {
        let Some((store, recovery)) = self.disked.open(world) else {
            return false;
        };
        let level = if world.plan.weak {
            chappe_log::Level::Process
        } else {
            chappe_log::Level::Power
        };
        for it in &mut self.streams {
            match store.stream(&it.name, level, b"schema") {
                Ok(stream) => it.stream = Some(stream),
                Err(_) => {
                    self.disked.after_failed_open(world);
                    self.streams.iter_mut().for_each(|it| it.stream = None);
                    return false;
                }
            }
        }
        self.began(world, &recovery);
        if world.plan.derives {
            for it in &mut self.streams {
                let source = it.stream.as_ref();
                it.derived =
                    source.and_then(|source| Derived::begin(world, &store, source, it.number));
            }
        }
        for index in 0..self.streams.len() {
            self.produce_later(world, index);
        }
        world.repair_later(self.node());
        true
    }

    fn began(&mut self, world: &mut World, recovery: &Recovery) {
        let allows = std::mem::replace(&mut self.disked.allows, Allows::Nothing);
        world.sometimes.old_origin += u64::from(copied(recovery));
        for it in &mut self.streams {
            let Some(stream) = &it.stream else { continue };
            it.announced = stream.last();
            let (epoch, last) = (stream.epoch(), stream.last());
            world.note(self.disked.node, "began: epoch, last", [epoch, last, 0]);
            world.tell(Event::Began {
                stream: it.number,
                epochs: stream.epochs(),
                last,
                allows,
            });
            it.keeps(world);
            // What a power loss may take of a level that does not survive it, it may also take from
            // the middle; that is named, and said to the subscribers.
            let gaps = if allows == Allows::Loss {
                stream.gaps()
            } else {
                Vec::new()
            };
            for number in gaps.iter().flat_map(|(first, last)| *first..=*last) {
                let at = At {
                    epoch: epoch_of(stream, number),
                    number,
                };
                let stream = it.number;
                world.tell(Event::Damaged { stream, at });
            }
        }
    }

    /// The process ends.
    pub(super) fn die(&mut self, world: &mut World, death: Death) {
        for (_, session) in std::mem::take(&mut self.sessions) {
            count(world, &session.line.machine);
        }
        self.by_connection.clear();
        self.fillings.clear();
        for it in &mut self.streams {
            it.pending.clear();
            it.trim = None;
            it.derived = None;
            it.stream = None;
        }
        self.disked.die(world, death);
    }

    // -- elements --

    fn produce_later(&self, world: &mut World, index: usize) {
        let after = world.around(world.plan.every);
        world.set_timer(self.node(), after, Timer::Produce, index as u32);
    }

    pub(super) fn produce(&mut self, world: &mut World, index: u32) {
        let index = index as usize;
        if !self.produces {
            return;
        }
        self.produce_later(world, index);
        let burst = world.random.f64() < world.plan.burst;
        let mut count = if burst {
            world.random.u64(1..=world.plan.burst_elements)
        } else {
            1
        };
        while count > 0 {
            let batch = world.random.u64(1..=world.plan.batch).min(count);
            count -= batch;
            if !self.append(world, index, batch) {
                return;
            }
        }
    }

    /// One element in each stream, so that the end can be seen to arrive.
    pub(super) fn produce_last(&mut self, world: &mut World) {
        for index in 0..self.streams.len() {
            self.append(world, index, 1);
        }
    }

    /// Some elements in each stream, one after the other.
    pub(super) fn burst(&mut self, world: &mut World, count: usize) {
        for index in 0..self.streams.len() * count {
            self.append(world, index % self.streams.len(), 1);
        }
    }

    fn append(&mut self, world: &mut World, index: usize, count: u64) -> bool {
        let time = world.network.wall_clock_ns(self.node());
        let size = world.plan.payload_bytes;
        let it = &mut self.streams[index];
        let Some(stream) = &it.stream else {
            return false;
        };
        let contents: Vec<u64> = (0..count).map(|_| world.content()).collect();
        let payloads = contents.iter().map(|content| {
            let bytes = 16 + (*content as usize * 7) % size.max(1);
            (time, record::payload(*content, bytes))
        });
        // A full queue refuses; what is refused was never accepted.
        let appended = match stream.append(payloads.collect::<Vec<_>>()) {
            Ok(appended) => appended,
            Err(error) => {
                let is_full = matches!(error, Error::QueueFull { .. });
                world.sometimes.not_accepted += u64::from(is_full);
                return false;
            }
        };
        let first = At {
            epoch: appended.first.epoch,
            number: appended.first.sequence,
        };
        for (number, content) in (first.number..).zip(&contents) {
            world.tell(Event::Offered {
                stream: it.number,
                at: At { number, ..first },
                content: *content,
            });
        }
        it.pending.push_back(Pending {
            appended,
            first,
            contents,
        });
        self.disked.commit_soon(world);
        true
    }

    /// Lets go of what is more than is kept.
    fn trim(&mut self, world: &mut World) {
        let Some(keep) = world.plan.keep else { return };
        for it in &mut self.streams {
            let Some(stream) = &it.stream else { continue };
            let before = (stream.last() + 1).saturating_sub(keep);
            // Not after each element: a tenth at a time.
            if before <= stream.first() + keep / 10 || it.trim.is_some() {
                continue;
            }
            if let Ok(trimmed) = stream.trim(before) {
                world.tell(Event::Trimmed {
                    stream: it.number,
                    before,
                });
                it.trim = Some(trimmed);
                self.disked.commit_soon(world);
            }
        }
    }

    pub(super) fn commit(&mut self, world: &mut World) -> Outcome {
        let derived = self.streams.iter_mut().filter_map(|it| it.derived.as_mut());
        derived.for_each(Derived::derive);
        let outcome = self.disked.commit(world);
        for it in &mut self.streams {
            if it
                .trim
                .as_ref()
                .is_some_and(|trim| trim.try_result().is_some())
            {
                it.trim = None;
                it.keeps(world);
            }
            while let Some(result) = it.pending.front().and_then(|it| it.appended.try_result()) {
                let Some(pending) = it.pending.pop_front() else {
                    break;
                };
                if result.is_err() {
                    world.sometimes.refused_full += 1;
                    continue;
                }
                let last = pending.first.number + pending.contents.len() as u64 - 1;
                it.batches.push((pending.first, last));
                for number in pending.first.number..=last {
                    world.tell(Event::Accepted {
                        stream: it.number,
                        at: At {
                            number,
                            ..pending.first
                        },
                    });
                }
            }
        }
        if outcome != Outcome::Failed {
            self.filled(world);
            self.announce(world);
            self.trim(world);
        }
        outcome
    }

    /// Tells the senders what is new.
    fn announce(&mut self, world: &mut World) {
        let mut news = Vec::new();
        for (index, it) in self.streams.iter_mut().enumerate() {
            let Some(stream) = &it.stream else { continue };
            let last = stream.last();
            if last > it.announced {
                news.push((index, it.announced + 1, last));
                it.announced = last;
            }
        }
        for (index, from, last) in news {
            let live = world
                .plan
                .live
                .then(|| self.records(index, from, RECORDS_PER_READ));
            let tell: Vec<(u32, Channel)> = self
                .sessions
                .iter()
                .flat_map(|(serial, session)| {
                    let wanted = session.channels.iter().filter(|(_, it)| *it == index);
                    wanted.map(|(channel, _)| (*serial, *channel))
                })
                .collect();
            for (serial, channel) in tell {
                let command = match &live {
                    // Only the whole news may be told this way.
                    Some(Ok((epoch, records))) if records.len() as u64 == last - from + 1 => {
                        SenderCommand::Live {
                            channel,
                            epoch: *epoch,
                            first: from,
                            schema_version: 1,
                            records: records.clone(),
                        }
                    }
                    _ => SenderCommand::Appended { channel, last },
                };
                self.pump(world, serial, Input::Command(command));
            }
        }
    }

    /// Records of one epoch from a number on.
    fn records(&self, index: usize, from: u64, most: u64) -> Result<(u64, Records), Error> {
        let Some(stream) = &self.streams[index].stream else {
            return Err(Error::Closed);
        };
        let records = stream.read(from, usize::try_from(most).unwrap_or(usize::MAX))?;
        let epoch = records.first().map_or(0, |record| record.position.epoch);
        let same = records.iter().take_while(|it| it.position.epoch == epoch);
        Ok((epoch, same.map(|it| (it.time, &it.payload)).collect()))
    }

    // -- sessions --

    pub(super) fn accept(&mut self, world: &mut World, connection: Connection, peer: Node) {
        let serial = world.serial();
        let mut config = world.plan.sender.clone();
        config.session.versions = self.versions;
        let sender = Sender::new(config, world.random.u64(..));
        let session = Session {
            line: Line::new(serial, connection, peer, sender),
            channels: Vec::new(),
            asked: 0,
        };
        self.sessions.insert(serial, session);
        self.by_connection.insert(connection, serial);
        world.note(
            self.node(),
            "accepted: session, from",
            [u64::from(serial), u64::from(peer.0), 0],
        );
        // The machine's first deadline.
        self.pump(world, serial, Input::Timeout);
    }

    pub(super) fn receive(&mut self, world: &mut World, frame: Frame) {
        if let Some(serial) = self.by_connection.get(&frame.connection).copied() {
            let input = Input::Receive(SenderReceive::Frame(frame.bytes));
            self.pump(world, serial, input);
        }
    }

    pub(super) fn writable(&mut self, world: &mut World, connection: Connection) {
        let serial = self.by_connection.get(&connection);
        if let Some(session) = serial.and_then(|serial| self.sessions.get_mut(serial)) {
            session.line.flush(world, self.disked.node);
        }
    }

    pub(super) fn closed(&mut self, world: &mut World, connection: Connection) {
        if let Some(serial) = self.by_connection.remove(&connection)
            && let Some(session) = self.sessions.remove(&serial)
        {
            count(world, &session.line.machine);
        }
    }

    pub(super) fn timeout(&mut self, world: &mut World, serial: u32) {
        let node = self.node();
        let session = self.sessions.get_mut(&serial);
        if session.is_some_and(|session| session.line.due(world, node)) {
            self.pump(world, serial, Input::Timeout);
        }
    }

    pub(super) fn pump(
        &mut self,
        world: &mut World,
        serial: u32,
        input: Input<SenderReceive, SenderCommand>,
    ) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let Some(session) = self.sessions.get_mut(&serial) else {
                return;
            };
            let events = session.line.drive(world, self.disked.node, input);
            for event in events {
                inputs.extend(self.heard(world, serial, event).map(Input::Command));
            }
        }
    }

    fn heard(
        &mut self,
        world: &mut World,
        serial: u32,
        event: SenderEvent,
    ) -> Option<SenderCommand> {
        let node = self.node();
        match event {
            SenderEvent::Subscribe {
                channel,
                subscription,
            } => {
                let offer = self.offer(serial, channel, &subscription);
                Some(SenderCommand::Answer { channel, offer })
            }
            SenderEvent::Read {
                channel,
                from,
                elements,
                ..
            } => self.read(world, serial, channel, from, elements),
            SenderEvent::Acknowledged {
                channel, position, ..
            } => {
                let index = self.stream_of(serial, channel)?;
                let session = self.sessions.get(&serial)?;
                let subscriber = session.line.peer.0 as usize - 1 - world.plan.origins;
                let at = At {
                    epoch: position.epoch,
                    number: position.sequence,
                };
                world.note(
                    node,
                    "acknowledged: stream, by, number",
                    [
                        self.streams[index].number as u64,
                        subscriber as u64,
                        at.number,
                    ],
                );
                // Number 0 stands before the first: nothing.
                if at.number > 0 {
                    world.tell(Event::Acknowledged {
                        subscriber,
                        stream: self.streams[index].number,
                        at,
                    });
                }
                None
            }
            SenderEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                ..
            }) => {
                let (first, records) = self.fetch(serial, channel, epoch, from, next);
                Some(SenderCommand::Session(SessionCommand::Fetched {
                    request,
                    first,
                    records,
                }))
            }
            SenderEvent::Session(SessionEvent::Fetched {
                channel,
                epoch,
                first,
                records,
            }) => {
                if let Some(index) = self.stream_of(serial, channel) {
                    let number = first;
                    self.put_back(world, index, At { epoch, number }, &records);
                }
                None
            }
            SenderEvent::Unsubscribed { channel, .. } => {
                let session = self.sessions.get_mut(&serial)?;
                session.channels.retain(|(it, _)| *it != channel);
                None
            }
            SenderEvent::Session(SessionEvent::Closed { .. }) => {
                self.end(world, serial);
                None
            }
            SenderEvent::Session(SessionEvent::Failed(failure)) => {
                super::failed(world, node, &failure);
                self.end(world, serial);
                None
            }
            SenderEvent::Session(SessionEvent::Welcomed { .. })
            | SenderEvent::Stalled { .. }
            | SenderEvent::Resumed { .. }
            | SenderEvent::Session(SessionEvent::FetchEnded { .. }) => None,
        }
    }

    fn end(&mut self, world: &mut World, serial: u32) {
        if let Some(session) = self.sessions.remove(&serial) {
            count(world, &session.line.machine);
            self.by_connection.remove(&session.line.connection);
            world
                .network
                .close(self.disked.node, session.line.connection);
        }
    }

    fn stream_of(&self, serial: u32, channel: Channel) -> Option<usize> {
        let session = self.sessions.get(&serial)?;
        let found = session.channels.iter().find(|(it, _)| *it == channel);
        found.map(|(_, index)| *index)
    }

    fn offer(&mut self, serial: u32, channel: Channel, wanted: &Subscription) -> Offer {
        let found = self.streams.iter().position(|it| it.name == wanted.stream);
        let session = self.sessions.get_mut(&serial);
        let (Some(index), Some(session)) = (found, session) else {
            return Offer::Refuse {
                reason: RefusalReason::UnknownStream,
                text: wanted.stream.clone(),
            };
        };
        let Some(stream) = &self.streams[index].stream else {
            return Offer::Refuse {
                reason: RefusalReason::Busy,
                text: String::new(),
            };
        };
        session.channels.push((channel, index));
        let grant = |next: u64| Grant {
            epoch: epoch_of(stream, next),
            next,
            last: stream.last(),
            level: Level::Power,
            schema: Schema {
                id: SchemaId([1; 8]),
                version: 1,
                // Another in each epoch, so that it is often new.
                bytes: [b"schema", &epoch_of(stream, next).to_le_bytes()[..]]
                    .concat()
                    .into(),
            },
        };
        match wanted.start {
            Start::First => Offer::Accept(grant(stream.first())),
            Start::New => Offer::Accept(grant(stream.last() + 1)),
            Start::After(have) => {
                let resume = |at: &Position| {
                    stream.resume(chappe_log::Position {
                        epoch: at.epoch,
                        sequence: at.sequence,
                    })
                };
                let flow = |at: chappe_log::Position| Position {
                    epoch: at.epoch,
                    sequence: at.sequence,
                };
                let rollback = match resume(&have) {
                    Ok(next) => return Offer::Accept(grant(next)),
                    Err(rollback) => rollback,
                };
                // An epoch that is not known here: perhaps an earlier one is.
                let earlier = wanted.earlier.iter().filter(|_| rollback.kept.is_none());
                let mut known = earlier.filter_map(|at| match resume(at) {
                    Ok(next) => Some((*at, next)),
                    Err(earlier) => earlier.kept.map(|kept| (flow(kept), earlier.next)),
                });
                let (kept, next) = match known.next() {
                    Some((kept, next)) => (Some(kept), next),
                    None => (rollback.kept.map(flow), rollback.next),
                };
                Offer::Rollback {
                    kept,
                    grant: grant(next),
                }
            }
        }
    }

    fn read(
        &mut self,
        world: &mut World,
        serial: u32,
        channel: Channel,
        from: u64,
        elements: u64,
    ) -> Option<SenderCommand> {
        let index = self.stream_of(serial, channel)?;
        match self.records(index, from, elements.min(RECORDS_PER_READ)) {
            Ok((epoch, records)) => Some(SenderCommand::Records {
                channel,
                epoch,
                first: from,
                schema_version: 1,
                records,
            }),
            Err(Error::Gap {
                from, next, reason, ..
            }) => {
                // Only numbers of one epoch: the next question is for the rest.
                let stream = self.streams[index].stream.as_ref()?;
                let mut begins = stream.epochs().into_iter().map(|(_, begin)| begin);
                let next = begins.find(|begin| *begin > from).unwrap_or(next).min(next);
                let epoch = epoch_of(stream, from);
                world.note(self.node(), "gap: from, next", [from, next, 0]);
                Some(SenderCommand::Gap {
                    channel,
                    epoch,
                    from,
                    next,
                    reason: match reason {
                        GapReason::Trimmed => LossReason::Trimmed,
                        _ => LossReason::Corrupt,
                    },
                })
            }
            // The store is stopping; the session ends with it.
            Err(_) => Some(SenderCommand::Session(SessionCommand::Close)),
        }
    }

    /// What of a range is here, for a subscriber that lost it.
    fn fetch(
        &self,
        serial: u32,
        channel: Channel,
        epoch: u64,
        from: u64,
        next: u64,
    ) -> (u64, Records) {
        let nothing = (from, Records::default());
        let Some(index) = self.stream_of(serial, channel) else {
            return nothing;
        };
        let epochs = self.streams[index].stream.iter().flat_map(Stream::epochs);
        let Some((_, begin)) = epochs.into_iter().find(|(it, _)| *it == epoch) else {
            return nothing;
        };
        let mut first = from.max(begin);
        if first >= next {
            return nothing;
        }
        let mut read = self.records(index, first, (next - first).min(RECORDS_PER_READ));
        while let Err(Error::Gap { next: behind, .. }) = &read
            && *behind < next
        {
            first = *behind;
            read = self.records(index, first, (next - first).min(RECORDS_PER_READ));
        }
        match read {
            Ok((found, records)) if found == epoch => (first, records),
            _ => nothing,
        }
    }

    // -- what a run does to it and asks of it --

    /// Flips a bit somewhere.
    pub(super) fn rot(&mut self, world: &mut World) {
        if world.random.f64() < 0.7 {
            let rotted = self.rot_batch(world);
            world.sometimes.rotted += u64::from(rotted);
        } else {
            self.disked.rot_other(world);
        }
    }

    /// Flips a bit of the frame of accepted elements; the whole batch is damaged by that.
    fn rot_batch(&mut self, world: &mut World) -> bool {
        let index = world.random.usize(..self.streams.len());
        let it = &self.streams[index];
        let Some(stream) = &it.stream else {
            return false;
        };
        // Of the newest batches the log may say that they were torn, not rotten.
        let Some(choice) = it.batches.len().checked_sub(4).filter(|count| *count > 0) else {
            return false;
        };
        // Half of the time among the newest, which not everybody may have.
        let oldest = if world.random.bool() {
            choice.saturating_sub(20)
        } else {
            0
        };
        let chosen = world.random.usize(oldest..choice);
        let (first, last) = it.batches[chosen];
        let Ok(records) = stream.read(first.number, 1) else {
            return false;
        };
        let Some(one) = records
            .first()
            .filter(|it| it.position.epoch == first.epoch)
        else {
            return false;
        };
        if !flip_frame(&self.disked.disk, &one.payload, &mut world.random) {
            return false;
        }
        let it = &mut self.streams[index];
        it.batches.remove(chosen);
        world.note(
            self.disked.node,
            "rot: stream, from, to",
            [it.number as u64, first.number, last],
        );
        for number in first.number..=last {
            world.tell(Event::Damaged {
                stream: it.number,
                at: At { number, ..first },
            });
        }
        true
    }

    /// The newest place of each stream, with the stream's number.
    pub(super) fn newest(&self) -> Vec<(usize, At)> {
        let newest = |it: &OriginStream| {
            let stream = it.stream.as_ref()?;
            let number = stream.last();
            let epoch = epoch_of(stream, number);
            Some((it.number, At { epoch, number }))
        };
        self.streams.iter().filter_map(newest).collect()
    }

    /// Whether everything offered was accepted or refused.
    pub(super) fn settled(&self) -> bool {
        let settled = |it: &OriginStream| it.pending.is_empty() && it.stream.is_some();
        self.disked.settled() && self.streams.iter().all(settled)
    }

    /// Says what it holds in the end.
    pub(super) fn testify(&self, world: &mut World) {
        let Some(store) = &self.disked.store else {
            return;
        };
        for it in &self.streams {
            let Some(stream) = &it.stream else { continue };
            let mut elements = Vec::new();
            let read = record::each(stream, |record| {
                let at = At {
                    epoch: record.position.epoch,
                    number: record.position.sequence,
                };
                elements.push((at, record::content(&record.payload).unwrap_or(0)));
            });
            if let Err(error) = read {
                let what = format!("stream {} cannot be read: {error}", it.number);
                world.violations.push(crate::judge::Violation(what));
            }
            it.keeps(world);
            let counts = counts(store, stream);
            let stream = it.number;
            world.tell(Event::Counted { stream, counts });
            world.tell(Event::OriginHolds { stream, elements });
        }
    }

    pub(super) fn count_sessions(&self, world: &mut World) {
        for session in self.sessions.values() {
            count(world, &session.line.machine);
        }
    }
}

/// The epoch that a number belongs to.
pub(super) fn epoch_of(stream: &Stream, number: u64) -> u64 {
    let epochs = stream.epochs();
    let epoch = epochs.iter().rev().find(|(_, first)| *first <= number);
    epoch.map_or(stream.epoch(), |(epoch, _)| *epoch)
}

/// The global name of a stream.
pub(super) fn stream_name(number: usize) -> String {
    format!("plant/{number}")
}

fn count(world: &mut World, sender: &Sender) {
    let counters = sender.counters();
    world.sometimes.sent_again += counters.sent_again;
    world.sometimes.stalls += counters.stalls;
}
