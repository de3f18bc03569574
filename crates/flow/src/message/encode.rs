//! Encodes messages into frames. Frames are cut from one buffer, so none needs its own allocation.

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};

use super::{CHECKSUM_BYTES, Entry, MAGIC, Message, Place, RollbackPoint, SchemaText, kind};
use crate::{Channel, Position, Records, SchemaId, Start};
use chappe_machine::wire::{varint_len, write_bytes, write_varint};

/// Bytes of the buffer that frames are cut from.
const CHUNK_BYTES: usize = 16 * 1024;

/// Writes frames one after the other.
///
/// ```
/// use chappe_flow::message::{FrameWriter, Message, decode};
/// let mut writer = FrameWriter::default();
/// writer.push(&Message::Ping { token: 7 });
/// let frame = writer.finish().unwrap();
/// let messages: Vec<_> = decode(&frame).unwrap().map(Result::unwrap).collect();
/// assert_eq!(messages, [Message::Ping { token: 7 }]);
/// assert_eq!(writer.finish(), None, "nothing was pushed since");
/// ```
#[derive(Debug, Default)]
pub struct FrameWriter {
    frame: BytesMut,
    body: Vec<u8>,
}

impl FrameWriter {
    /// Bytes of the current frame; 0 if nothing was pushed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Returns the frame, if it has messages, and starts the next.
    pub fn finish(&mut self) -> Option<Bytes> {
        if self.frame.is_empty() {
            return None;
        }
        let checksum = crc32fast::hash(&self.frame[CHECKSUM_BYTES..]);
        self.frame[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        Some(self.frame.split().freeze())
    }

    /// Adds a message.
    pub fn push(&mut self, message: &Message<'_>) {
        let none = self.push_within(message, usize::MAX);
        debug_assert!(none.is_none(), "the length is unlimited");
    }

    /// Adds a message. If the frame would exceed `limit`, the previous messages are returned as a
    /// frame, and the message starts the next.
    pub fn push_within(&mut self, message: &Message<'_>, limit: usize) -> Option<Bytes> {
        self.body.clear();
        let (kind, records) = write_body(&mut self.body, message);
        self.append(kind, records, limit)
    }

    /// Adds an acknowledgement, like [`FrameWriter::push_within`].
    pub fn push_acknowledge(&mut self, entries: &[Entry], limit: usize) -> Option<Bytes> {
        self.body.clear();
        for entry in entries {
            write_entry(&mut self.body, entry);
        }
        self.append(kind::ACKNOWLEDGE, None, limit)
    }

    /// Adds the message with the body in `self.body`, then `records`.
    fn append(&mut self, kind: u8, records: Option<&Records>, limit: usize) -> Option<Bytes> {
        let packed = records.map_or(0, Records::byte_len);
        let length = self.body.len() + packed;
        let header = 1 + varint_len(length as u64);
        let needed = CHECKSUM_BYTES + header + length;
        let full = !self.frame.is_empty() && self.frame.len() + header + length > limit;
        let finished = if full { self.finish() } else { None };
        if self.frame.capacity() - self.frame.len() < needed {
            self.frame.reserve(needed.max(CHUNK_BYTES));
        }
        if self.frame.is_empty() {
            self.frame.put_slice(&[0; CHECKSUM_BYTES]);
        }
        self.frame.put_u8(kind);
        let mut rest = length as u64;
        while rest >= 0x80 {
            self.frame.put_u8(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.frame.put_u8(rest as u8);
        self.frame.put_slice(&self.body);
        if let Some(records) = records {
            self.frame.put_slice(records.bytes());
        }
        finished
    }
}

/// Prepends the checksum to the bytes of messages, valid or not: for tests of a peer.
#[must_use]
pub fn seal(messages: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(CHECKSUM_BYTES + messages.len());
    frame.extend_from_slice(&crc32fast::hash(messages).to_le_bytes());
    frame.extend_from_slice(messages);
    Bytes::from(frame)
}

fn write_body<'a>(to: &mut Vec<u8>, message: &'a Message<'_>) -> (u8, Option<&'a Records>) {
    let kind = match message {
        Message::Records { .. } | Message::Fetched { .. } => return write_records(to, message),
        Message::Hello(hello) => {
            to.extend_from_slice(&MAGIC);
            write_varint(to, u64::from(hello.versions.0));
            write_varint(to, u64::from(hello.versions.1));
            to.extend_from_slice(&hello.session.to_le_bytes());
            write_varint(to, hello.frame_bytes_max);
            write_varint(to, hello.window_bytes);
            write_varint(to, hello.acknowledge_ms);
            write_varint(to, hello.dead_after_ms);
            kind::HELLO
        }
        Message::Welcome(welcome) => {
            to.extend_from_slice(&MAGIC);
            write_varint(to, u64::from(welcome.version));
            to.extend_from_slice(&welcome.session.to_le_bytes());
            write_varint(to, welcome.frame_bytes_max);
            write_varint(to, welcome.dead_after_ms);
            kind::WELCOME
        }
        Message::Goodbye {
            code,
            versions,
            text,
        } => {
            to.push(code.number());
            write_varint(to, u64::from(versions.0));
            write_varint(to, u64::from(versions.1));
            write_bytes(to, text.as_bytes());
            kind::GOODBYE
        }
        Message::Subscribe { .. } | Message::Accepted { .. } => write_subscription(to, message),
        Message::Refused {
            channel,
            reason,
            text,
        } => {
            write_channel(to, *channel);
            to.push(reason.number());
            write_bytes(to, text.as_bytes());
            kind::REFUSED
        }
        Message::Schema {
            channel,
            index,
            schema,
        } => {
            write_channel(to, *channel);
            write_varint(to, u64::from(*index));
            write_schema(to, schema);
            kind::SCHEMA
        }
        Message::Lost {
            place,
            from,
            next,
            reason,
        } => {
            write_place(to, place);
            write_varint(to, *from);
            write_varint(to, *next);
            to.push(reason.number());
            kind::LOST
        }
        Message::Stage { place } => {
            write_place(to, place);
            kind::STAGE
        }
        Message::Acknowledge { entries } => {
            to.extend_from_slice(entries.0);
            kind::ACKNOWLEDGE
        }
        Message::Ping { token } => {
            write_varint(to, *token);
            kind::PING
        }
        Message::Pong { token } => {
            write_varint(to, *token);
            kind::PONG
        }
        Message::Unsubscribe {
            channel,
            reason,
            text,
        } => {
            write_channel(to, *channel);
            to.push(reason.number());
            write_bytes(to, text.as_bytes());
            kind::UNSUBSCRIBE
        }
        Message::Ended { channel } => {
            write_channel(to, *channel);
            kind::ENDED
        }
        Message::Fetch {
            request,
            channel,
            epoch,
            from,
            next,
            bytes,
        } => {
            write_varint(to, *request);
            write_channel(to, *channel);
            for number in [epoch, from, next, bytes] {
                write_varint(to, *number);
            }
            kind::FETCH
        }
    };
    (kind, None)
}

fn write_records<'a>(to: &mut Vec<u8>, message: &'a Message<'_>) -> (u8, Option<&'a Records>) {
    match message {
        Message::Records {
            place,
            first,
            schema,
            behind,
            records,
        } => {
            write_place(to, place);
            write_varint(to, *first);
            write_varint(to, u64::from(*schema));
            write_varint(to, *behind);
            write_varint(to, records.len() as u64);
            (kind::RECORDS, Some(records))
        }
        Message::Fetched {
            request,
            first,
            records,
        } => {
            write_varint(to, *request);
            write_varint(to, *first);
            write_varint(to, records.len() as u64);
            (kind::FETCHED, Some(records))
        }
        _ => unreachable!("the caller gives messages with records only"),
    }
}

fn write_subscription(to: &mut Vec<u8>, message: &Message<'_>) -> u8 {
    match message {
        Message::Subscribe {
            channel,
            start,
            earlier,
            level,
            credit,
            serialization,
            stream,
            known,
        } => {
            write_channel(to, *channel);
            match start {
                Start::First => to.push(0),
                Start::New => to.push(1),
                Start::After(position) => {
                    to.push(2);
                    write_position(to, *position);
                }
            }
            write_varint(to, earlier.len() as u64);
            for position in earlier {
                write_position(to, *position);
            }
            to.push(level.number());
            write_varint(to, credit.bytes);
            write_varint(to, credit.elements);
            write_bytes(to, serialization.as_bytes());
            write_bytes(to, stream.as_bytes());
            write_known(to, *known);
            kind::SUBSCRIBE
        }
        Message::Accepted {
            channel,
            rollback,
            epoch,
            next,
            last,
            level,
            schema,
        } => {
            write_channel(to, *channel);
            match rollback {
                RollbackPoint::No => to.push(0),
                RollbackPoint::Unknown => to.push(1),
                RollbackPoint::Kept(position) => {
                    to.push(2);
                    write_position(to, *position);
                }
            }
            for number in [epoch, next, last] {
                write_varint(to, *number);
            }
            to.push(level.number());
            write_schema(to, schema);
            kind::ACCEPTED
        }
        _ => unreachable!("the caller gives Subscribe and Accepted only"),
    }
}

fn write_channel(to: &mut Vec<u8>, channel: Channel) {
    write_varint(to, u64::from(channel.0));
}

fn write_position(to: &mut Vec<u8>, position: Position) {
    write_varint(to, position.epoch);
    write_varint(to, position.sequence);
}

fn write_known(to: &mut Vec<u8>, known: Option<SchemaId>) {
    match known {
        None => to.push(0),
        Some(SchemaId(id)) => {
            to.push(1);
            to.extend_from_slice(&id);
        }
    }
}

fn write_schema(to: &mut Vec<u8>, schema: &SchemaText<'_>) {
    write_varint(to, u64::from(schema.version));
    to.extend_from_slice(&schema.id.0);
    match schema.bytes {
        None => to.push(0),
        Some(bytes) => {
            to.push(1);
            write_bytes(to, bytes);
        }
    }
}

fn write_place(to: &mut Vec<u8>, place: &Place) {
    write_channel(to, place.channel);
    write_varint(to, u64::from(place.stage.number));
    if place.stage.number > 0 {
        write_varint(to, place.stage.first);
        write_varint(to, place.stage.kept);
    }
    write_varint(to, place.epoch);
}

fn write_entry(to: &mut Vec<u8>, entry: &Entry) {
    write_varint(to, u64::from(entry.channel));
    write_varint(to, u64::from(entry.stage));
    write_varint(to, entry.stored);
    write_varint(to, entry.elements);
    write_varint(to, entry.bytes);
    write_varint(to, entry.elements_limit);
    write_varint(to, entry.bytes_limit);
    write_varint(to, entry.refused);
}
