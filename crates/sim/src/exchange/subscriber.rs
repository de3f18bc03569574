//! A node that reads all streams of all origins: it dials each origin and stores the elements.

use std::collections::{BTreeMap, VecDeque};

use std::time::Duration;

use chappe_flow::{
    Channel, EARLIER_MAX, Position, Reconnect, ReconnectCommand, ReconnectConfig, ReconnectEvent,
    Records, SessionCommand, SessionEvent, Start, Subscription,
};
use chappe_link::{
    Subscriber as Machine, SubscriberCommand, SubscriberConfig, SubscriberEvent, SubscriberReceive,
};
use chappe_log::{Store, Stream};
use chappe_machine::{Input, Instant, Machine as _, Output, drain};

use super::origin::stream_name;
use super::record;
use super::repair::{Filling, counts};
use super::rot::flip_frame;
use super::store::{Death, Disked, copied};
use super::storing::{Pending, cursor_of, position_of};
use super::world::{Timer, World};
use crate::judge::{Allows, At, Event};
use crate::network::{Connection, Frame, Line, Node};

/// The pause before a change that found no room is tried again; reason: a fault keeps a queue full for
/// minutes, and each attempt is a step.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct CopyOf {
    pub(super) stream: Option<Stream>,
    /// The newest position that is stored, lost or on its way to the log.
    pub(super) last: Option<At>,
    /// The value of [`chappe_log::Store::retractions`] when the session began.
    pub(super) retractions: u64,
    /// The newest stored position of each epoch, the newest last.
    pub(super) epochs: Vec<At>,
    /// The first and last position of each stored batch.
    pub(super) batches: Vec<(At, At)>,
}

impl CopyOf {
    /// The last position read of the origin that survives a power loss.
    fn cursor(&self) -> Option<At> {
        self.stream.as_ref()?.cursor().and_then(position_of)
    }

    /// Whether nothing is on its way to the disk.
    pub(super) fn is_settled(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_settled)
    }
}

/// The link to one origin.
pub(super) struct Link {
    origin: Node,
    reconnect: Reconnect,
    timer: Option<Instant>,
    pub(super) session: Option<Session>,
}

pub(super) struct Session {
    pub(super) serial: u32,
    pub(super) line: Line<Machine>,
    open: bool,
    subscribed: bool,
}

/// See the [module documentation](self).
pub(super) struct Subscriber {
    pub(super) disked: Disked,
    pub(super) index: usize,
    pub(super) copies: Vec<CopyOf>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) fillings: VecDeque<Filling>,
    /// The count of numbers that its ended sessions have reported lost.
    lost_before: u64,
    pub(super) links: Vec<Link>,
    by_connection: BTreeMap<Connection, usize>,
    /// The versions of the protocol that it supports.
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
            disked: Disked::new(node, seed, false, Some(cursor_of)),
            index,
            copies: (0..streams).map(|_| CopyOf::default()).collect(),
            pending: VecDeque::new(),
            fillings: VecDeque::new(),
            lost_before: 0,
            links: origins.iter().map(link).collect(),
            by_connection: BTreeMap::new(),
            versions: world.plan.receiver.session.versions,
        }
    }

    pub(super) fn node(&self) -> Node {
        self.disked.node
    }

    /// Opens the store and dials; false: not now.
    pub(super) fn start(&mut self, world: &mut World) -> bool {
        let Some((store, recovery)) = self.disked.open(world) else {
            return false;
        };
        let Some(newest) = self.copies_of(&store) else {
            self.disked.after_failed_open(world);
            self.copies.iter_mut().for_each(|copy| copy.stream = None);
            return false;
        };
        let allows = std::mem::replace(&mut self.disked.allows, Allows::Nothing);
        world.sometimes.old_subscriber += u64::from(copied(&recovery));
        for (stream, newest) in newest.into_iter().enumerate() {
            // Elements that are sent again may be stored in other batches.
            if allows == Allows::Loss {
                self.copies[stream].batches.clear();
            }
            let number = newest.map_or(0, |at| at.number);
            let torn = self.disked.torn.remove(&stream_name(stream)).unwrap_or(0);
            world.note(
                self.disked.node,
                "reopened: stream, newest, torn",
                [stream as u64, number, torn],
            );
            world.report(Event::Reopened {
                subscriber: self.index,
                stream,
                newest,
                passed: self.copies[stream].cursor(),
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

    /// Opens the copy of each stream; returns the newest position that can be read of each, an earlier
    /// one if the newest is damaged.
    fn copies_of(&mut self, store: &Store) -> Option<Vec<Option<At>>> {
        let mut all = Vec::new();
        for (number, copy) in self.copies.iter_mut().enumerate() {
            let mut newest = None;
            copy.last = None;
            copy.epochs.clear();
            copy.stream = store.existing(&stream_name(number));
            if let Some(stream) = &copy.stream {
                let read = record::each(stream, |record| {
                    if let Some((at, _)) = record::split(&record.payload) {
                        newest = Some(at);
                        remember(&mut copy.epochs, at);
                    }
                });
                read.ok()?;
            }
            all.push(newest);
        }
        Some(all)
    }

    /// The process ends.
    pub(super) fn die(&mut self, world: &mut World, death: Death) {
        for link in &mut self.links {
            if let Some(session) = link.session.take() {
                self.lost_before += session.line.machine.lost();
            }
        }
        self.by_connection.clear();
        self.pending.clear();
        self.fillings.clear();
        for copy in &mut self.copies {
            copy.stream = None;
            copy.last = None;
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
        let mut receiver = world.plan.receiver.clone();
        receiver.session.versions = self.versions;
        let config = SubscriberConfig {
            receiver,
            busy_pause: BUSY_PAUSE,
        };
        let machine = Machine::new(config, world.random.u64(..));
        self.by_connection.insert(connection, link);
        let before = self.links[link].session.replace(Session {
            serial,
            line: World::line(serial, connection, machine),
            open: false,
            subscribed: false,
        });
        if let Some(before) = before {
            self.by_connection.remove(&before.line.connection);
            world.network.close(node, before.line.connection);
            self.lost_before += before.line.machine.lost();
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
        self.pump(world, link, Input::Command(SubscriberCommand::Open));
        self.subscribe(world, link);
    }

    /// Subscribes to the origin's streams once none of their elements are on the way to the disk: only
    /// then the log's cursor is the last position read.
    pub(super) fn subscribe(&mut self, world: &mut World, link: usize) {
        let each = world.plan.streams_each;
        let streams = link * each..(link + 1) * each;
        let busy = self.pending.iter().any(|it| streams.contains(&it.stream))
            || !self.copies[streams.clone()].iter().all(CopyOf::is_settled);
        let ready = self.links[link]
            .session
            .as_mut()
            .filter(|session| session.open && !session.subscribed && !busy);
        let (Some(session), Some(store)) = (ready, &self.disked.store) else {
            return;
        };
        session.subscribed = true;
        let retractions = store.retractions();
        for number in streams {
            let copy = &mut self.copies[number];
            copy.retractions = retractions;
            copy.last = copy.cursor();
            world.sometimes.resumed += u64::from(copy.last.is_some());
            let last = copy.last.map(|at| position(&at));
            let mut subscription = Subscription::new(stream_name(number), Start::First);
            let newest = copy.last.map(|at| at.epoch);
            let earlier = copy.epochs.iter().rev();
            let earlier = earlier.filter(|at| Some(at.epoch) != newest);
            subscription.earlier = earlier.take(EARLIER_MAX).map(position).collect();
            let command = SubscriberCommand::Subscribe {
                channel: Channel(number as u32),
                last,
                subscription,
            };
            self.pump(world, link, Input::Command(command));
        }
    }

    // -- sessions --

    pub(super) fn receive(&mut self, world: &mut World, frame: Frame) {
        if let Some(link) = self.by_connection.get(&frame.connection).copied() {
            self.reconnect(world, link, Input::Command(ReconnectCommand::Worked(1)));
            let input = Input::Receive(SubscriberReceive::Frame(frame.bytes));
            self.pump(world, link, input);
        }
    }

    pub(super) fn writable(&mut self, world: &mut World, connection: Connection) {
        let node = self.node();
        let link = self.by_connection.get(&connection).copied();
        if let Some(session) = link.and_then(|link| self.links[link].session.as_mut()) {
            session.line.flush(&mut world.network, node);
        }
    }

    pub(super) fn closed(&mut self, world: &mut World, connection: Connection) {
        if let Some(link) = self.by_connection.get(&connection).copied() {
            self.end(world, link);
        }
    }

    pub(super) fn end(&mut self, world: &mut World, link: usize) {
        let node = self.node();
        if let Some(session) = self.links[link].session.take() {
            self.lost_before += session.line.machine.lost();
            self.by_connection.remove(&session.line.connection);
            world.network.close(node, session.line.connection);
        }
        self.reconnect(world, link, Input::Command(ReconnectCommand::Failed));
    }

    /// Ends all connections; new ones use the versions that are now supported.
    pub(super) fn redial_all(&mut self, world: &mut World) {
        for link in 0..self.links.len() {
            if self.links[link].session.is_some() {
                self.end(world, link);
            }
        }
    }

    pub(super) fn timeout(&mut self, world: &mut World, serial: u32) {
        let node = self.node();
        let has_serial = |link: &Link| link.session.as_ref().is_some_and(|it| it.serial == serial);
        let Some(link) = self.links.iter().position(has_serial) else {
            return;
        };
        let due = self.links[link]
            .session
            .as_mut()
            .is_some_and(|session| session.line.is_due(&mut world.network, node));
        if due {
            self.pump(world, link, Input::Timeout);
        }
    }

    pub(super) fn pump(
        &mut self,
        world: &mut World,
        link: usize,
        input: Input<SubscriberReceive, SubscriberCommand>,
    ) {
        let mut events = self.drive(world, link, input);
        while let Some((serial, event)) = events.pop_front() {
            for command in self.event(world, link, serial, event) {
                events.extend(self.drive(world, link, Input::Command(command)));
            }
        }
    }

    /// Passes an input to the machine of a session; returns its events, with the number of the
    /// session.
    fn drive(
        &mut self,
        world: &mut World,
        link: usize,
        input: Input<SubscriberReceive, SubscriberCommand>,
    ) -> VecDeque<(u32, SubscriberEvent)> {
        let node = self.node();
        let Some(session) = &mut self.links[link].session else {
            return VecDeque::new();
        };
        let serial = session.serial;
        let events = world.drive(&mut session.line, node, input).into_iter();
        events.map(|event| (serial, event)).collect()
    }

    fn event(
        &mut self,
        world: &mut World,
        link: usize,
        serial: u32,
        event: SubscriberEvent,
    ) -> Vec<SubscriberCommand> {
        match event {
            SubscriberEvent::Storage { channel, request } => {
                return self.store(world, link, serial, channel, request);
            }
            SubscriberEvent::Accepted { channel, next } => {
                if self.copies[channel.0 as usize].last.is_none() {
                    world.report(Event::Granted {
                        subscriber: self.index,
                        stream: channel.0 as usize,
                        from: next.sequence,
                    });
                }
            }
            // Commits report each element to the judge.
            SubscriberEvent::Stored { .. }
            | SubscriberEvent::Session(
                SessionEvent::Fetched { .. } | SessionEvent::FetchEnded { .. },
            ) => {}
            SubscriberEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                ..
            }) => {
                let (first, records) = self.fetch(channel, epoch, from, next);
                return vec![SubscriberCommand::Session(SessionCommand::Fetched {
                    request,
                    first,
                    records,
                })];
            }
            SubscriberEvent::PutBack {
                channel,
                first,
                records,
            } => self.put_back(world, channel.0 as usize, at(first), &records),
            SubscriberEvent::Session(SessionEvent::Closed { .. }) => self.end(world, link),
            SubscriberEvent::Session(SessionEvent::Failed(failure)) => {
                super::failed(world, self.node(), &failure);
                self.end(world, link);
            }
            SubscriberEvent::Refused { channel, .. } => {
                // The origin is not ready: a new session subscribes again.
                world.note(self.node(), "refused: stream", [u64::from(channel.0), 0, 0]);
                self.end(world, link);
            }
            SubscriberEvent::Session(SessionEvent::Welcomed { version }) => {
                let other = self.versions != world.plan.receiver.session.versions;
                world.sometimes.version_negotiated += u64::from(other && version > 0);
            }
        }
        Vec::new()
    }

    /// The elements of a range that this copy has, for an origin that lost them.
    fn fetch(&self, channel: Channel, epoch: u64, from: u64, next: u64) -> (u64, Records) {
        let mut first = from;
        let mut found: Vec<(i64, Vec<u8>)> = Vec::new();
        if let Some(stream) = &self.copies[channel.0 as usize].stream {
            let _ = record::each(stream, |it| {
                let Some((at, bytes)) = record::split(&it.payload) else {
                    return;
                };
                let is_requested = at.epoch == epoch && at.number >= from && at.number < next;
                let follows = found.is_empty() || at.number == first + found.len() as u64;
                if is_requested && follows && found.len() < 256 {
                    if found.is_empty() {
                        first = at.number;
                    }
                    found.push((it.time, bytes.to_vec()));
                }
            });
        }
        (first, found.into_iter().collect())
    }

    // -- faults and state --

    /// Flips a bit somewhere.
    pub(super) fn rot(&mut self, world: &mut World) {
        if world.random.f64() < 0.7 {
            let rotted = self.rot_batch(world);
            world.sometimes.rotted_there += u64::from(rotted);
        } else {
            self.disked.rot_other(world);
        }
    }

    /// Flips a bit of the frame of stored elements, which damages the whole batch.
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
            world.report(Event::DamagedThere {
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

    /// The last position read of each stream.
    pub(super) fn read_positions(&self) -> Vec<Option<At>> {
        self.copies.iter().map(CopyOf::cursor).collect()
    }

    /// Whether nothing is on its way to the disk.
    pub(super) fn settled(&self) -> bool {
        let sessions = || self.links.iter().filter_map(|link| link.session.as_ref());
        self.disked.settled()
            && self.pending.is_empty()
            && sessions().all(|session| !session.line.machine.is_waiting())
            && self.copies.iter().all(CopyOf::is_settled)
    }

    /// Reports its elements to the judge.
    pub(super) fn testify(&self, world: &mut World) {
        let Some(store) = &self.disked.store else {
            return;
        };
        let count = self.lost_before + self.lost_now();
        let subscriber = self.index;
        world.report(Event::LostTotal { subscriber, count });
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
            world.report(Event::CountedThere {
                subscriber: self.index,
                stream,
                counts: counts(store, log),
            });
            world.report(Event::SubscriberHolds {
                subscriber: self.index,
                stream,
                elements,
            });
        }
    }

    /// The count of numbers that the current sessions have reported lost.
    fn lost_now(&self) -> u64 {
        let sessions = self.links.iter().filter_map(|link| link.session.as_ref());
        sessions.map(|session| session.line.machine.lost()).sum()
    }
}

pub(super) fn position(at: &At) -> Position {
    Position {
        epoch: at.epoch,
        sequence: at.number,
    }
}

pub(super) const fn at(position: Position) -> At {
    At {
        epoch: position.epoch,
        number: position.sequence,
    }
}

/// Makes a position the newest of its epoch, and its epoch the newest.
pub(super) fn remember(epochs: &mut Vec<At>, at: At) {
    if epochs.last().is_none_or(|last| last.epoch != at.epoch) {
        epochs.retain(|it| it.epoch != at.epoch);
    } else {
        epochs.pop();
    }
    epochs.push(at);
}
