//! From packets to messages.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::http::{HttpMessage, Parser, Refused, Start};
use super::packet::{NoPacket, Packet, Packets, Segment};
use super::tcp::{Brought, Direction};
use super::{Carrier, Frame, Losses, Message};

/// Directions of connections that are remembered. Reason: some hundred devices, each with some connections.
const DIRECTIONS_MAX: usize = 2_048;
/// Bytes of all of them. The direction that grows beyond is forgotten.
const BYTES_MAX: usize = 64 << 20;
/// Requests of one connection without their answers. Reason: clients of devices send one at a time.
const OPEN_REQUESTS_MAX: usize = 16;

/// Makes messages of packets.
#[derive(Debug, Default)]
pub struct Conversations {
    packets: Packets,
    streams: HashMap<(SocketAddr, SocketAddr), Stream>,
    bytes: usize,
    turn: u64,
    losses: Losses,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    direction: Direction,
    parser: Parser,
    /// The ends of requests that were sent in this direction, and not answered.
    open: VecDeque<u64>,
    /// When it was used last.
    turn: u64,
    is_other: bool,
}

impl Stream {
    fn bytes(&self) -> usize {
        self.direction.bytes() + self.parser.bytes()
    }
}

impl Conversations {
    /// Makes an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What could not be made into messages so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses {
            incomplete_datagrams: self.packets.incomplete(),
            ..self.losses
        }
    }

    /// Bytes that are remembered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a packet; calls `message` for each message that is complete with it.
    pub fn take(&mut self, frame: &Frame, mut message: impl FnMut(Message)) {
        if frame.is_cut {
            self.losses.cut_packets += 1;
        }
        match self.packets.read(frame) {
            Ok(Packet::Udp { from, to, bytes }) => message(Message {
                at_ns: frame.at_ns,
                from,
                to,
                carrier: Carrier::Datagram,
                content_type: String::new(),
                coding: String::new(),
                body: bytes,
                arrival: Duration::ZERO,
            }),
            Ok(Packet::Tcp(segment)) => self.segment(frame.at_ns, segment, &mut message),
            Err(NoPacket::Other) => self.losses.other_packets += 1,
            Err(NoPacket::Broken) => self.losses.broken_packets += 1,
            Err(NoPacket::Partial) => {}
        }
    }

    fn segment(&mut self, at_ns: u64, segment: Segment, message: &mut impl FnMut(Message)) {
        let key = (segment.from, segment.to);
        self.turn += 1;
        if !self.streams.contains_key(&key) {
            self.make_room();
        }
        let stream = self.streams.entry(key).or_default();
        stream.turn = self.turn;
        let before = stream.bytes();
        if segment.is_first {
            // The address is used again.
            *stream = Stream {
                turn: self.turn,
                ..Stream::default()
            };
            stream.direction.begin(segment.sequence);
        }
        let mut complete = Vec::new();
        for brought in stream.direction.take(segment.sequence, segment.bytes) {
            let taken = match brought {
                Brought::Gap => {
                    self.losses.gaps += 1;
                    stream.parser.cut();
                    Ok(())
                }
                Brought::Bytes(bytes) => {
                    let keep = |message| complete.push(message);
                    stream.parser.take(at_ns, &bytes, keep)
                }
            };
            match taken {
                Ok(()) => {}
                Err(Refused::Broken) => self.losses.broken_messages += 1,
                Err(Refused::Other) => {
                    self.losses.other_connections += u64::from(!stream.is_other);
                    stream.is_other = true;
                }
            }
        }
        if segment.is_last {
            complete.extend(stream.parser.end(at_ns));
        }
        let after = stream.bytes();
        self.bytes = self.bytes - before + after;
        if self.bytes > BYTES_MAX {
            self.forget(key);
        }
        for one in complete {
            message(self.message(key, one));
        }
        if segment.is_last {
            // The counts of its requests stay for the answers.
            let is_idle = self
                .streams
                .get(&key)
                .is_some_and(|stream| stream.open.is_empty());
            if is_idle && let Some(ended) = self.streams.remove(&key) {
                self.bytes -= ended.bytes();
            }
        }
    }

    /// Forgets the direction that was not used for the longest, if there are too many.
    fn make_room(&mut self) {
        if self.streams.len() < DIRECTIONS_MAX {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.turn);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: (SocketAddr, SocketAddr)) {
        if let Some(stream) = self.streams.remove(&key) {
            self.bytes -= stream.bytes();
            self.losses.forgotten += 1;
        }
    }

    /// A message of HTTP, with the time since its request.
    fn message(&mut self, (from, to): (SocketAddr, SocketAddr), one: HttpMessage) -> Message {
        let carrier = match one.start {
            Start::Request { method, target } => {
                if let Some(stream) = self.streams.get_mut(&(from, to)) {
                    if stream.open.len() == OPEN_REQUESTS_MAX {
                        stream.open.pop_front();
                    }
                    stream.open.push_back(one.ended_ns);
                }
                Carrier::Request { method, target }
            }
            Start::Answer { status } => {
                let asked = self.streams.get_mut(&(to, from));
                let asked = asked.and_then(|stream| stream.open.pop_front());
                let after = asked.map(|asked| one.began_ns.saturating_sub(asked));
                Carrier::Answer {
                    status,
                    after: after.map(Duration::from_nanos),
                }
            }
        };
        Message {
            at_ns: one.began_ns,
            from,
            to,
            carrier,
            content_type: one.content_type,
            coding: one.coding,
            body: one.body,
            arrival: Duration::from_nanos(one.ended_ns.saturating_sub(one.began_ns)),
        }
    }
}
