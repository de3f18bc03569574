//! A node that wants all streams of all origins: it dials each, stores what it is handed, and says so.

use std::collections::{BTreeMap, VecDeque};

use chappe_flow::{
    Channel, EARLIER_MAX, LossReason, Position, Receiver, ReceiverCommand, ReceiverEvent,
    ReceiverReceive, Reconnect, ReconnectCommand, ReconnectConfig, ReconnectEvent, Records,
    SessionCommand, SessionEvent, Start, Subscription,
};
use chappe_log::{Appended, Level, Stream};
use chappe_machine::{Input, Instant, Machine, Output, drain};

use super::origin::stream_name;
use super::record;
use super::repair::{Filling, counts};
use super::rot::flip_frame;
use super::store::{Death, Disked, Outcome, copied};
use super::world::{Frame, Line, Timer, World};
use crate::judge::{Allows, At, Event, Reason};
use crate::network::{Connection, Node};

/// Handed out by a receiver, on its way to the disk.
struct Pending {
    stream: usize,
    /// The session that wants to hear of it, and its channel.
    serial: u32,
    channel: Channel,
    batch: Vec<(i64, Vec<u8>)>,
    elements: Vec<(At, u64)>,
    /// The last place that was handed out; nothing is to be stored if all of it repeats.
    last: At,
    /// `None`: to be appended (again).
    appended: Option<Appended>,
}

impl Pending {
    /// Whether it is done, for good or ill.
    fn result(&self) -> Option<Result<(), chappe_log::Error>> {
        if self.batch.is_empty() {
            return Some(Ok(()));
        }
        self.appended.as_ref().and_then(Appended::try_result)
    }
}

#[derive(Default)]
pub(super) struct CopyOf {
    pub(super) stream: Option<Stream>,
    /// The newest place stored.
    newest: Option<At>,
    /// The newest place stored or lost.
    passed: Option<At>,
    /// The newest place stored of each epoch, the newest last.
    epochs: Vec<At>,
    /// Places of what was stored in one batch.
    pub(super) batches: Vec<(At, At)>,
}

/// The link to one origin.
pub(super) struct Link {
    origin: Node,
    reconnect: Reconnect,
    timer: Option<Instant>,
    pub(super) session: Option<Session>,
}

pub(super) struct Session {
    pub(super) line: Line<Receiver>,
    open: bool,
    subscribed: bool,
    /// Damaged places that were asked for.
    pub(super) asked: usize,
}

/// See the [module documentation](self).
pub(super) struct Subscriber {
    pub(super) disked: Disked,
    pub(super) index: usize,
    pub(super) copies: Vec<CopyOf>,
    pending: VecDeque<Pending>,
    pub(super) fillings: VecDeque<Filling>,
    /// Numbers that its sessions have counted as lost.
    lost_total: u64,
    pub(super) links: Vec<Link>,
    by_connection: BTreeMap<Connection, usize>,
    /// The versions of the protocol that it speaks.
    pub(super) versions: (u32, u32),
}

impl Subscriber {
    pub(super) fn new(world: &mut World, node: Node, index: usize, origins: &[Node]) -> Self {
        let seed = world.random.u64(..);
        let link = |origin: &Node| Link {
            origin: *origin,
            reconnect: Reconnect::new(ReconnectConfig::default(), seed ^ u64::from(origin.0)),
            timer: None,
            session: None,
        };
        let streams = world.plan.origins * world.plan.streams_each;
        Self {
            disked: Disked::new(node, seed, false),
            index,
            copies: (0..streams).map(|_| CopyOf::default()).collect(),
            pending: VecDeque::new(),
            fillings: VecDeque::new(),
            lost_total: 0,
            links: origins.iter().map(link).collect(),
            by_connection: BTreeMap::new(),
            versions: world.plan.receiver.session.versions,
        }
    }

    pub(super) fn node(&self) -> Node {
        self.disked.node
    }

    /// Opens the store and begins to dial; false: not now.
    pub(super) fn start(&mut self, world: &mut World) -> bool {
        let Some((store, recovery)) = self.disked.open(world) else {
            return false;
        };
        for number in 0..self.copies.len() {
            let copy = &mut self.copies[number];
            let stream = store.stream(&stream_name(number), Level::Power, b"schema");
            copy.newest = None;
            copy.epochs.clear();
            // The newest may be damaged: then an earlier one is the newest.
            let read = stream.as_ref().map(|stream| {
                record::each(stream, |record| {
                    if let Some((at, _)) = record::split(&record.payload) {
                        copy.newest = Some(at);
                        remember(&mut copy.epochs, at);
                    }
                })
            });
            match (&stream, read) {
                (Ok(stream), Ok(Ok(()))) => {
                    copy.passed = copy.newest;
                    copy.stream = Some(stream.clone());
                }
                _ => {
                    self.disked.after_failed_open(world);
                    self.copies.iter_mut().for_each(|copy| copy.stream = None);
                    return false;
                }
            }
        }
        let allows = std::mem::replace(&mut self.disked.allows, Allows::Nothing);
        world.sometimes.old_subscriber += u64::from(copied(&recovery));
        for stream in 0..self.copies.len() {
            // What comes again may be stored in other batches.
            if allows == Allows::Loss {
                self.copies[stream].batches.clear();
            }
            let newest = self.copies[stream].newest;
            let number = newest.map_or(0, |at| at.number);
            let torn = self.disked.torn.remove(&stream_name(stream)).unwrap_or(0);
            world.note(
                self.disked.node,
                "reopened: stream, newest, torn",
                [stream as u64, number, torn],
            );
            world.tell(Event::Reopened {
                subscriber: self.index,
                stream,
                newest,
                allows,
                torn,
            });
        }
        for link in 0..self.links.len() {
            let seed = world.random.u64(..);
            self.links[link].reconnect = Reconnect::new(ReconnectConfig::default(), seed);
            self.links[link].timer = None;
            self.reconnect(world, link, Input::Command(ReconnectCommand::Start));
        }
        world.repair_later(self.node());
        true
    }

    /// The process ends.
    pub(super) fn die(&mut self, world: &mut World, death: Death) {
        for link in &mut self.links {
            if let Some(session) = link.session.take() {
                self.lost_total += count(world, &session.line.machine);
            }
        }
        self.by_connection.clear();
        self.pending.clear();
        self.fillings.clear();
        for copy in &mut self.copies {
            copy.stream = None;
        }
        self.disked.die(world, death);
    }

    // -- dialling --

    fn reconnect(&mut self, world: &mut World, link: usize, input: Input<(), ReconnectCommand>) {
        let node = self.node();
        let it = &mut self.links[link];
        let mut dials = false;
        let now = world.network.now();
        let deadline = drain(&mut it.reconnect, now, input, |output| {
            if let Output::Event(ReconnectEvent::Dial { .. }) = output {
                dials = true;
            }
        });
        if let Some(at) = deadline
            && it.timer.is_none_or(|timer| at < timer || timer <= now)
        {
            it.timer = Some(at);
            world
                .network
                .set_timer(node, at, Timer::Redial.key(link as u32));
        }
        if dials {
            self.dial(world, link);
        }
    }

    pub(super) fn redial(&mut self, world: &mut World, link: u32) {
        let link = link as usize;
        let now = world.network.now();
        let node = self.node();
        let it = &mut self.links[link];
        if it.timer.is_some_and(|timer| timer <= now) {
            it.timer = None;
        }
        match it.reconnect.deadline() {
            Some(at) if at <= now => self.reconnect(world, link, Input::Timeout),
            Some(at) if it.timer.is_none() => {
                it.timer = Some(at);
                world
                    .network
                    .set_timer(node, at, Timer::Redial.key(link as u32));
            }
            _ => {}
        }
    }

    fn dial(&mut self, world: &mut World, link: usize) {
        let node = self.node();
        let serial = world.serial();
        let origin = self.links[link].origin;
        let connection = world.network.connect(node, origin);
        let mut config = world.plan.receiver.clone();
        config.session.versions = self.versions;
        let receiver = Receiver::new(config, world.random.u64(..));
        self.by_connection.insert(connection, link);
        let before = self.links[link].session.replace(Session {
            line: Line::new(serial, connection, origin, receiver),
            open: false,
            subscribed: false,
            asked: 0,
        });
        if let Some(before) = before {
            self.by_connection.remove(&before.line.connection);
            world.network.close(node, before.line.connection);
            self.lost_total += count(world, &before.line.machine);
        }
    }

    pub(super) fn opened(&mut self, world: &mut World, connection: Connection) {
        let Some(link) = self.by_connection.get(&connection).copied() else {
            return;
        };
        if let Some(session) = &mut self.links[link].session {
            session.open = true;
        }
        self.reconnect(world, link, Input::Command(ReconnectCommand::Connected));
        self.pump(world, link, Input::Command(ReceiverCommand::Open));
        self.subscribe(world, link);
    }

    /// Asks for the origin's streams, once nothing of them is on its way to the disk any more:
    /// what is asked for begins behind what is stored.
    fn subscribe(&mut self, world: &mut World, link: usize) {
        let each = world.plan.streams_each;
        let streams = link * each..(link + 1) * each;
        let busy = self.pending.iter().any(|it| streams.contains(&it.stream));
        let ready = self.links[link]
            .session
            .as_mut()
            .filter(|session| session.open && !session.subscribed && !busy);
        let Some(session) = ready else { return };
        session.subscribed = true;
        for number in streams {
            let start = match self.copies[number].newest {
                Some(at) => {
                    world.sometimes.resumed += 1;
                    Start::After(position(&at))
                }
                None => Start::First,
            };
            let mut subscription = Subscription::new(stream_name(number), start);
            let earlier = self.copies[number].epochs.iter().rev().skip(1);
            subscription.earlier = earlier.take(EARLIER_MAX).map(position).collect();
            let command = ReceiverCommand::Subscribe {
                channel: Channel(number as u32),
                subscription,
            };
            self.pump(world, link, Input::Command(command));
        }
    }

    // -- sessions --

    pub(super) fn receive(&mut self, world: &mut World, frame: Frame) {
        if let Some(link) = self.by_connection.get(&frame.connection).copied() {
            self.reconnect(world, link, Input::Command(ReconnectCommand::Worked(1)));
            let input = Input::Receive(ReceiverReceive::Frame(frame.bytes));
            self.pump(world, link, input);
        }
    }

    pub(super) fn writable(&mut self, world: &mut World, connection: Connection) {
        let node = self.node();
        let link = self.by_connection.get(&connection).copied();
        if let Some(session) = link.and_then(|link| self.links[link].session.as_mut()) {
            session.line.flush(world, node);
        }
    }

    pub(super) fn closed(&mut self, world: &mut World, connection: Connection) {
        if let Some(link) = self.by_connection.get(&connection).copied() {
            self.end(world, link);
        }
    }

    fn end(&mut self, world: &mut World, link: usize) {
        let node = self.node();
        if let Some(session) = self.links[link].session.take() {
            self.lost_total += count(world, &session.line.machine);
            self.by_connection.remove(&session.line.connection);
            world.network.close(node, session.line.connection);
        }
        self.reconnect(world, link, Input::Command(ReconnectCommand::Failed));
    }

    /// Ends all connections: they are made anew with the versions that are now spoken.
    pub(super) fn redial_all(&mut self, world: &mut World) {
        for link in 0..self.links.len() {
            if self.links[link].session.is_some() {
                self.end(world, link);
            }
        }
    }

    pub(super) fn timeout(&mut self, world: &mut World, serial: u32) {
        let node = self.node();
        let of = |link: &Link| {
            link.session
                .as_ref()
                .is_some_and(|it| it.line.serial == serial)
        };
        let Some(link) = self.links.iter().position(of) else {
            return;
        };
        let due = self.links[link]
            .session
            .as_mut()
            .is_some_and(|session| session.line.due(world, node));
        if due {
            self.pump(world, link, Input::Timeout);
        }
    }

    pub(super) fn pump(
        &mut self,
        world: &mut World,
        link: usize,
        input: Input<ReceiverReceive, ReceiverCommand>,
    ) {
        let node = self.node();
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let Some(session) = &mut self.links[link].session else {
                return;
            };
            let serial = session.line.serial;
            let events = session.line.drive(world, node, input);
            for event in events {
                inputs.extend(self.heard(world, link, serial, event).map(Input::Command));
            }
        }
    }

    fn heard(
        &mut self,
        world: &mut World,
        link: usize,
        serial: u32,
        event: ReceiverEvent,
    ) -> Option<ReceiverCommand> {
        match event {
            ReceiverEvent::Store {
                channel,
                epoch,
                first,
                records,
                ..
            } => {
                self.store(
                    world,
                    serial,
                    channel,
                    At {
                        epoch,
                        number: first,
                    },
                    &records,
                );
                None
            }
            ReceiverEvent::Lost {
                channel,
                epoch,
                from,
                next,
                reason,
            } => {
                self.lost(world, channel, epoch, from, next, reason);
                None
            }
            ReceiverEvent::Rollback { channel, have, .. } => {
                let stream = channel.0 as usize;
                world.sometimes.rollback += 1;
                world.note(
                    self.node(),
                    "rollback: stream, have",
                    [stream as u64, have.epoch, have.sequence],
                );
                let subscriber = self.index;
                world.tell(Event::RollbackSaid { subscriber, stream });
                None
            }
            ReceiverEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                ..
            }) => {
                let (first, records) = self.fetch(channel, epoch, from, next);
                Some(ReceiverCommand::Session(SessionCommand::Fetched {
                    request,
                    first,
                    records,
                }))
            }
            ReceiverEvent::Session(SessionEvent::Fetched {
                channel,
                epoch,
                first,
                records,
            }) => {
                let (stream, number) = (channel.0 as usize, first);
                self.put_back(world, stream, At { epoch, number }, &records);
                None
            }
            ReceiverEvent::Session(SessionEvent::Closed { .. }) => {
                self.end(world, link);
                None
            }
            ReceiverEvent::Session(SessionEvent::Failed(failure)) => {
                super::failed(world, self.node(), &failure);
                self.end(world, link);
                None
            }
            ReceiverEvent::Refused { channel, .. } => {
                // The origin is not ready: a new session asks again.
                world.note(self.node(), "refused: stream", [u64::from(channel.0), 0, 0]);
                self.end(world, link);
                None
            }
            ReceiverEvent::Session(SessionEvent::Welcomed { version }) => {
                let other = self.versions != world.plan.receiver.session.versions;
                world.sometimes.version_negotiated += u64::from(other && version > 0);
                None
            }
            ReceiverEvent::Accepted { channel, grant } => {
                let stream = channel.0 as usize;
                if self.copies[stream].newest.is_none() {
                    world.tell(Event::Granted {
                        subscriber: self.index,
                        stream,
                        from: grant.next,
                    });
                }
                None
            }
            ReceiverEvent::Unsubscribed { .. }
            | ReceiverEvent::Schema { .. }
            | ReceiverEvent::Session(SessionEvent::FetchEnded { .. }) => None,
        }
    }

    fn lost(
        &mut self,
        world: &mut World,
        channel: Channel,
        epoch: u64,
        from: u64,
        next: u64,
        reason: LossReason,
    ) {
        let stream = channel.0 as usize;
        let reason = match reason {
            LossReason::Trimmed => Reason::Trimmed,
            LossReason::Corrupt => Reason::Damaged,
            other => {
                let what = format!("stream {stream}: numbers {from} to {next} lost as {other:?}");
                world.violations.push(crate::judge::Violation(what));
                return;
            }
        };
        match reason {
            Reason::Trimmed => world.sometimes.lost_trimmed += 1,
            Reason::Damaged => world.sometimes.lost_damaged += 1,
        }
        world.note(
            self.node(),
            "lost: stream, from, next",
            [stream as u64, from, next],
        );
        world.tell(Event::LostSaid {
            subscriber: self.index,
            stream,
            epoch,
            from,
            next,
            reason,
        });
        self.copies[stream].passed = Some(At {
            epoch,
            number: next - 1,
        });
    }

    // -- storing --

    fn store(
        &mut self,
        world: &mut World,
        serial: u32,
        channel: Channel,
        first: At,
        records: &Records,
    ) {
        let stream = channel.0 as usize;
        let mut batch = Vec::with_capacity(records.len());
        let mut elements = Vec::with_capacity(records.len());
        for (number, record) in (first.number..).zip(records) {
            let at = At { number, ..first };
            batch.push((record.time, record::with_origin(at, record.payload)));
            elements.push((at, record::content(record.payload).unwrap_or(0)));
            world.tell(Event::Storing {
                subscriber: self.index,
                stream,
                at,
            });
        }
        world.note(
            self.node(),
            "store: stream, first, count",
            [stream as u64, first.number, records.len() as u64],
        );
        self.pending.push_back(Pending {
            stream,
            serial,
            channel,
            batch,
            elements,
            last: At {
                number: first.number + records.len() as u64 - 1,
                ..first
            },
            appended: None,
        });
        self.append(world);
    }

    /// Appends what waits, in order.
    fn append(&mut self, world: &mut World) {
        for pending in &mut self.pending {
            if pending.appended.is_some() || pending.batch.is_empty() {
                continue;
            }
            let Some(stream) = &self.copies[pending.stream].stream else {
                return;
            };
            match stream.append(pending.batch.clone()) {
                Ok(appended) => pending.appended = Some(appended),
                // No room in the queue: after the next commit there is.
                Err(_) => break,
            }
        }
        if !self.pending.is_empty() {
            self.disked.commit_soon(world);
        }
    }

    pub(super) fn commit(&mut self, world: &mut World) -> Outcome {
        let outcome = self.disked.commit(world);
        if outcome == Outcome::Failed {
            return outcome;
        }
        self.filled(world);
        let mut stored = Vec::new();
        let mut refused = false;
        while let Some(pending) = self.pending.front() {
            match pending.result() {
                Some(Ok(())) => {}
                Some(Err(_)) => {
                    refused = true;
                    break;
                }
                None => break,
            }
            let Some(pending) = self.pending.pop_front() else {
                break;
            };
            stored.push(self.stored(world, &pending));
        }
        if refused {
            // One refusal refuses all that wait: their order stays, and they are appended anew.
            world.sometimes.refused_full += 1;
            for pending in &mut self.pending {
                if pending.result().is_some_and(|it| it.is_err()) {
                    pending.appended = None;
                }
            }
        }
        for (serial, command) in stored.into_iter().flatten() {
            let of = |link: &Link| {
                link.session
                    .as_ref()
                    .is_some_and(|it| it.line.serial == serial)
            };
            if let Some(link) = self.links.iter().position(of) {
                self.pump(world, link, Input::Command(command));
            }
        }
        self.append(world);
        for link in 0..self.links.len() {
            self.subscribe(world, link);
        }
        outcome
    }

    fn stored(&mut self, world: &mut World, pending: &Pending) -> Option<(u32, ReceiverCommand)> {
        for (at, content) in &pending.elements {
            world.tell(Event::Stored {
                subscriber: self.index,
                stream: pending.stream,
                at: *at,
                content: *content,
            });
        }
        let copy = &mut self.copies[pending.stream];
        let last = pending.last;
        if let Some((first, _)) = pending.elements.first() {
            copy.newest = Some(last);
            copy.passed = Some(last);
            remember(&mut copy.epochs, last);
            copy.batches.push((*first, last));
        }
        let command = ReceiverCommand::Stored {
            channel: pending.channel,
            position: position(&last),
        };
        Some((pending.serial, command))
    }

    /// What of a range is here, for an origin that lost it.
    fn fetch(&self, channel: Channel, epoch: u64, from: u64, next: u64) -> (u64, Records) {
        let mut first = from;
        let mut found: Vec<(i64, Vec<u8>)> = Vec::new();
        if let Some(stream) = &self.copies[channel.0 as usize].stream {
            let _ = record::each(stream, |it| {
                let Some((at, bytes)) = record::split(&it.payload) else {
                    return;
                };
                let wanted = at.epoch == epoch && at.number >= from && at.number < next;
                let follows = found.is_empty() || at.number == first + found.len() as u64;
                if wanted && follows && found.len() < 256 {
                    if found.is_empty() {
                        first = at.number;
                    }
                    found.push((it.time, bytes.to_vec()));
                }
            });
        }
        (first, found.into_iter().collect())
    }

    // -- what a run does to it and asks of it --

    /// Flips a bit somewhere.
    pub(super) fn rot(&mut self, world: &mut World) {
        if world.random.f64() < 0.7 {
            let rotted = self.rot_batch(world);
            world.sometimes.rotted_there += u64::from(rotted);
        } else {
            self.disked.rot_other(world);
        }
    }

    /// Flips a bit of the frame of stored elements; the whole batch is damaged by that.
    fn rot_batch(&mut self, world: &mut World) -> bool {
        let number = world.random.usize(..self.copies.len());
        let copy = &self.copies[number];
        let Some(stream) = &copy.stream else {
            return false;
        };
        let Some(choice) = copy.batches.len().checked_sub(4).filter(|count| *count > 0) else {
            return false;
        };
        let chosen = world.random.usize(..choice);
        let (first, last) = copy.batches[chosen];
        let mut element = None;
        let read = record::each(stream, |it| {
            if record::split(&it.payload).is_some_and(|(at, _)| at == first) {
                element = Some(it.payload.clone());
            }
        });
        let Some(element) = element.filter(|_| read.is_ok()) else {
            return false;
        };
        if !flip_frame(&self.disked.disk, &element, &mut world.random) {
            return false;
        }
        self.copies[number].batches.remove(chosen);
        world.note(
            self.disked.node,
            "rot: stream, from, to",
            [number as u64, first.number, last.number],
        );
        for at in first.number..=last.number {
            world.tell(Event::DamagedThere {
                subscriber: self.index,
                stream: number,
                at: At {
                    number: at,
                    ..first
                },
            });
        }
        true
    }

    /// The newest place of each stream that is stored or lost.
    pub(super) fn passed(&self) -> Vec<Option<At>> {
        self.copies.iter().map(|copy| copy.passed).collect()
    }

    /// Whether nothing is on its way to the disk.
    pub(super) fn settled(&self) -> bool {
        self.disked.settled()
            && self.pending.is_empty()
            && self.copies.iter().all(|copy| copy.stream.is_some())
    }

    /// Says what it holds in the end.
    pub(super) fn testify(&self, world: &mut World) {
        let Some(store) = &self.disked.store else {
            return;
        };
        let count = self.lost_total + self.lost_now();
        let subscriber = self.index;
        world.tell(Event::LostTotal { subscriber, count });
        for (stream, copy) in self.copies.iter().enumerate() {
            let Some(log) = &copy.stream else { continue };
            let mut elements = Vec::new();
            let read = record::each(log, |it| {
                let (at, bytes) = record::split(&it.payload).unwrap_or((
                    At {
                        epoch: 0,
                        number: 0,
                    },
                    &[],
                ));
                elements.push((at, record::content(bytes).unwrap_or(0)));
            });
            if let Err(error) = read {
                let what = format!("subscriber {}: cannot be read: {error}", self.index);
                world.violations.push(crate::judge::Violation(what));
            }
            world.tell(Event::CountedThere {
                subscriber: self.index,
                stream,
                counts: counts(store, log),
            });
            world.tell(Event::SubscriberHolds {
                subscriber: self.index,
                stream,
                elements,
            });
        }
    }

    /// Numbers that the present sessions have counted as lost.
    fn lost_now(&self) -> u64 {
        let sessions = self.links.iter().filter_map(|link| link.session.as_ref());
        sessions.map(|it| it.line.machine.counters().lost).sum()
    }

    pub(super) fn count_sessions(&self, world: &mut World) {
        for session in self.links.iter().filter_map(|link| link.session.as_ref()) {
            count(world, &session.line.machine);
        }
    }
}

fn position(at: &At) -> Position {
    Position {
        epoch: at.epoch,
        sequence: at.number,
    }
}

/// A place is the newest of its epoch, and its epoch the newest of all.
fn remember(epochs: &mut Vec<At>, at: At) {
    if epochs.last().is_none_or(|last| last.epoch != at.epoch) {
        epochs.retain(|it| it.epoch != at.epoch);
    } else {
        epochs.pop();
    }
    epochs.push(at);
}

/// Counts what a session did; the numbers that it said are lost.
fn count(world: &mut World, receiver: &Receiver) -> u64 {
    let counters = receiver.counters();
    world.sometimes.duplicates += counters.duplicates;
    counters.lost
}
