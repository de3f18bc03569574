//! The sessions of an origin: each runs a [`chappe_link::Origin`] on a connection and answers its
//! questions from the log.

use std::collections::VecDeque;

use chappe_flow::{
    Channel, LossReason, Position, Records, RefusalReason, Schema, SchemaId, Sender, SessionEvent,
};
use chappe_link::{
    Origin as Machine, OriginCommand, OriginConfig, OriginEvent, OriginReceive, ReadRequest,
    Resumption, SchemaOf, StreamState,
};
use chappe_log::{Error, GapReason, Stream};
use chappe_machine::Input;

use super::origin::{ELEMENTS_PER_READ, Origin};
use super::subscriber::at;
use super::world::World;
use crate::judge::{At, Event};
use crate::network::{Connection, Node};
use crate::network::{Frame, Line};

/// Numbers written by one schema; reason: a stream of an hour has several schemas, also in one batch.
const NUMBERS_PER_SCHEMA: u64 = 40;

/// A session on its connection.
pub(super) struct Session {
    pub(super) line: Line<Machine>,
    /// The subscriber's node.
    peer: Node,
    /// The streams that are read, by their indexes.
    pub(super) channels: Vec<(Channel, usize)>,
}

/// Consecutive elements of one epoch and one schema.
pub(super) struct Batch {
    pub(super) first: Position,
    pub(super) schema_version: u32,
    pub(super) records: Records,
}

impl Batch {
    /// Reads from a number; there may be no records.
    pub(super) fn read(stream: &Stream, from: u64, most: u64) -> Result<Self, Error> {
        let schema_version = schema_version(from);
        let most = usize::try_from(most.min(ELEMENTS_PER_READ)).unwrap_or(usize::MAX);
        let records = stream.read(from, most)?;
        let epoch = records.first().map_or(0, |record| record.position.epoch);
        let fitting = records.iter().take_while(|it| {
            it.position.epoch == epoch
                && self::schema_version(it.position.sequence) == schema_version
        });
        Ok(Self {
            first: Position {
                epoch,
                sequence: from,
            },
            schema_version,
            records: fitting.map(|it| (it.time, &it.payload)).collect(),
        })
    }
}

/// The version of the schema by which the element of a number is written.
pub(super) fn schema_version(number: u64) -> u32 {
    u32::try_from(number / NUMBERS_PER_SCHEMA).unwrap_or(u32::MAX)
}

fn schema(version: u32) -> Schema {
    let bytes = u64::from(version).to_le_bytes();
    Schema {
        id: SchemaId(bytes),
        version,
        bytes: [b"schema", &bytes[..]].concat().into(),
    }
}

impl Origin {
    pub(super) fn accept(&mut self, world: &mut World, connection: Connection, peer: Node) {
        let serial = world.serial();
        let mut sender = world.plan.sender.clone();
        sender.session.versions = self.versions;
        let config = OriginConfig {
            sender,
            ..OriginConfig::default()
        };
        let machine = Machine::new(config);
        let session = Session {
            line: World::line(serial, connection, machine),
            peer,
            channels: Vec::new(),
        };
        self.sessions.insert(serial, session);
        self.by_connection.insert(connection, serial);
        world.note(
            self.node(),
            "accepted: session, from",
            [u64::from(serial), u64::from(peer.0), 0],
        );
        // The machine's first deadline.
        self.give(world, serial, Input::Timeout);
    }

    pub(super) fn receive(&mut self, world: &mut World, frame: Frame) {
        if let Some(serial) = self.by_connection.get(&frame.connection).copied() {
            let input = Input::Receive(OriginReceive::Frame(frame.bytes));
            self.give(world, serial, input);
        }
    }

    pub(super) fn writable(&mut self, world: &mut World, connection: Connection) {
        let serial = self.by_connection.get(&connection);
        if let Some(session) = serial.and_then(|serial| self.sessions.get_mut(serial)) {
            session.line.flush(&mut world.network, self.disked.node);
        }
    }

    pub(super) fn closed(&mut self, world: &mut World, connection: Connection) {
        if let Some(serial) = self.by_connection.remove(&connection)
            && let Some(session) = self.sessions.remove(&serial)
        {
            count(world, session.line.machine.sender());
        }
    }

    pub(super) fn timeout(&mut self, world: &mut World, serial: u32) {
        let node = self.node();
        let session = self.sessions.get_mut(&serial);
        if session.is_some_and(|session| session.line.is_due(&mut world.network, node)) {
            self.give(world, serial, Input::Timeout);
        }
    }

    /// The sessions that read a stream, with their channels.
    pub(super) fn readers(&self, index: usize) -> Vec<(u32, Channel)> {
        let sessions = self.sessions.iter();
        let readers = sessions.flat_map(|(serial, session)| {
            let channels = session.channels.iter().filter(|(_, it)| *it == index);
            channels.map(|(channel, _)| (*serial, *channel))
        });
        readers.collect()
    }

    /// Passes an input to a session's machine, and answers its questions until it has none.
    pub(super) fn give(
        &mut self,
        world: &mut World,
        serial: u32,
        input: Input<OriginReceive, OriginCommand>,
    ) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let Some(session) = self.sessions.get_mut(&serial) else {
                return;
            };
            let events = world.drive(&mut session.line, self.disked.node, input);
            for event in events {
                inputs.extend(self.event(world, serial, event).map(Input::Command));
            }
        }
    }

    fn event(
        &mut self,
        world: &mut World,
        serial: u32,
        event: OriginEvent,
    ) -> Option<OriginCommand> {
        match event {
            OriginEvent::Open {
                channel,
                stream,
                positions,
            } => self.open(serial, channel, &stream, &positions),
            OriginEvent::Schema { channel, of } => {
                let schema = schema(match of {
                    SchemaOf::Version(version) => version,
                    SchemaOf::Element(number) => schema_version(number),
                });
                Some(OriginCommand::Schema { channel, schema })
            }
            OriginEvent::Read(request) => Some(self.read(world, serial, request)),
            OriginEvent::PutBack {
                channel,
                first,
                records,
            } => {
                let index = self.stream_of(serial, channel)?;
                self.put_back(world, index, at(first), &records);
                None
            }
            OriginEvent::Acknowledged { channel, position } => {
                self.acknowledged(world, serial, channel, at(position));
                None
            }
            OriginEvent::Ended { channel, .. } => {
                let session = self.sessions.get_mut(&serial)?;
                session.channels.retain(|(it, _)| *it != channel);
                None
            }
            OriginEvent::Session(SessionEvent::Closed { .. }) => {
                self.end(world, serial);
                None
            }
            OriginEvent::Session(SessionEvent::Failed(failure)) => {
                super::failed(world, self.node(), &failure);
                self.end(world, serial);
                None
            }
            OriginEvent::Session(_) => None,
        }
    }

    fn end(&mut self, world: &mut World, serial: u32) {
        if let Some(session) = self.sessions.remove(&serial) {
            count(world, session.line.machine.sender());
            let connection = session.line.connection;
            self.by_connection.remove(&connection);
            world.network.close(self.disked.node, connection);
        }
    }

    fn stream_of(&self, serial: u32, channel: Channel) -> Option<usize> {
        let channels = &self.sessions.get(&serial)?.channels;
        let found = channels.iter().find(|(it, _)| *it == channel);
        found.map(|(_, index)| *index)
    }

    fn acknowledged(&mut self, world: &mut World, serial: u32, channel: Channel, at: At) {
        let Some(index) = self.stream_of(serial, channel) else {
            return;
        };
        let stream = self.streams[index].number;
        let peer = self.sessions[&serial].peer;
        let subscriber = peer.0 as usize - 1 - world.plan.origins;
        world.note(
            self.node(),
            "acknowledged: stream, by, number",
            [stream as u64, subscriber as u64, at.number],
        );
        // Number 0 is before the first element.
        if at.number > 0 {
            world.report(Event::Acknowledged {
                subscriber,
                stream,
                at,
            });
        }
    }

    fn open(
        &mut self,
        serial: u32,
        channel: Channel,
        name: &str,
        positions: &[Position],
    ) -> Option<OriginCommand> {
        let session = self.sessions.get_mut(&serial)?;
        let index = self.streams.iter().position(|it| it.name == name);
        let stream = index.and_then(|index| self.streams[index].stream.as_ref());
        let (Some(index), Some(stream)) = (index, stream) else {
            return Some(OriginCommand::Refuse {
                channel,
                reason: RefusalReason::UnknownStream,
                text: name.to_owned(),
            });
        };
        session.channels.push((channel, index));
        let resume = |at: &Position| {
            let (epoch, sequence) = (at.epoch, at.sequence);
            match stream.resume(chappe_log::Position { epoch, sequence }) {
                Ok(next) => Resumption::Next(next),
                Err(rollback) => Resumption::Rollback {
                    kept: rollback.kept.map(|kept| Position {
                        epoch: kept.epoch,
                        sequence: kept.sequence,
                    }),
                    next: rollback.next,
                },
            }
        };
        let stream = StreamState {
            first: stream.first(),
            last: stream.last(),
            level: chappe_flow::Level::Power,
            epochs: stream.epochs(),
            resumptions: positions.iter().map(resume).collect(),
        };
        Some(OriginCommand::Opened { channel, stream })
    }

    fn read(&self, world: &mut World, serial: u32, request: ReadRequest) -> OriginCommand {
        let index = self.stream_of(serial, request.channel);
        let stream = index.and_then(|index| self.streams[index].stream.as_ref());
        let read = stream.ok_or(Error::Closed);
        match read.and_then(|stream| Batch::read(stream, request.from, request.elements)) {
            Ok(batch) => OriginCommand::Records {
                request,
                epoch: batch.first.epoch,
                schema_version: batch.schema_version,
                records: batch.records,
            },
            Err(Error::Gap { next, reason, .. }) => {
                world.note(self.node(), "gap: from, next", [request.from, next, 0]);
                OriginCommand::Gap {
                    request,
                    next,
                    reason: match reason {
                        GapReason::Trimmed => LossReason::Trimmed,
                        _ => LossReason::Corrupt,
                    },
                }
            }
            Err(error) => OriginCommand::ReadFailed {
                request,
                text: error.to_string(),
            },
        }
    }
}

/// Counts the work of a session.
pub(super) fn count(world: &mut World, sender: &Sender) {
    world.sometimes.stalls += sender.counters().stalls;
}
