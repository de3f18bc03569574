//! Decodes frames into messages. Arbitrary bytes cause no panic, and no allocation beyond the
//! frame.

use bytes::Bytes;

use super::{
    CHECKSUM_BYTES, Entries, Entry, Hello, MAGIC, Message, Place, RollbackPoint, SchemaText, Stage,
    Welcome, kind,
};
use crate::config::{
    CHANNEL_NUMBERS_MAX, EARLIER_MAX, NAME_BYTES_MAX, SCHEMA_BYTES_MAX, SERIALIZATION_BYTES_MAX,
    TEXT_BYTES_MAX,
};
use crate::{
    Channel, Code, Credit, Level, LossReason, Position, Records, RefusalReason, SchemaId, Start,
};
use chappe_machine::wire::Reader;

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The checksum does not fit: the frame was changed in transit.
    #[error("the frame of {0} bytes does not fit its checksum")]
    Checksum(usize),
    /// The checksum is right, but a message is invalid: a defect of the program that encoded it.
    #[error("byte {offset} of the frame: the message of kind {kind} does not decode")]
    Malformed {
        /// The offset of the message.
        offset: usize,
        /// Its kind.
        kind: u8,
    },
    /// The checksum is right, but no supported version has messages of this kind.
    #[error("byte {offset} of the frame: unknown message kind {kind}")]
    UnknownKind {
        /// The offset of the message.
        offset: usize,
        /// Its kind.
        kind: u8,
    },
}

/// The messages of a frame.
///
/// # Errors
/// A frame with a wrong checksum, or without messages.
pub fn decode(frame: &Bytes) -> Result<Messages<'_>, DecodeError> {
    let checksum = DecodeError::Checksum(frame.len());
    let (given, rest) = frame.split_first_chunk().ok_or(checksum)?;
    if crc32fast::hash(rest) != u32::from_le_bytes(*given) || rest.is_empty() {
        return Err(checksum);
    }
    Ok(Messages {
        frame,
        offset: CHECKSUM_BYTES,
    })
}

/// Iterates over the messages of a frame; ends after an error.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    frame: &'a Bytes,
    offset: usize,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.frame.get(self.offset..)?;
        let kind = *rest.first()?;
        let offset = self.offset;
        if !kind::is_known(kind) {
            self.offset = self.frame.len();
            return Some(Err(DecodeError::UnknownKind { offset, kind }));
        }
        let mut reader = Reader::new(&rest[1..]);
        let message = reader.bytes(usize::MAX).and_then(|body| {
            let end = offset + 1 + reader.offset();
            self.offset = end;
            read(kind, self.frame, end - body.len(), body)
        });
        if message.is_none() {
            self.offset = self.frame.len();
        }
        Some(message.ok_or(DecodeError::Malformed { offset, kind }))
    }
}

/// Decodes a message; `at` is the offset of `body` in `frame`.
fn read<'a>(kind: u8, frame: &'a Bytes, at: usize, body: &'a [u8]) -> Option<Message<'a>> {
    let reader = &mut Reader::new(body);
    let message = match kind {
        // Later versions add fields at the end of these two.
        kind::HELLO => return read_hello(reader),
        kind::WELCOME => return read_welcome(reader),
        kind::RECORDS => return read_records(frame, at, body),
        kind::FETCHED => {
            let (request, first) = (reader.varint()?, reader.varint()?);
            let records = packed(frame, at, body, reader)?;
            first.checked_add(records.len() as u64)?;
            return Some(Message::Fetched {
                request,
                first,
                records,
            });
        }
        kind::GOODBYE => Message::Goodbye {
            code: Code::from_number(reader.byte()?),
            versions: (reader.varint_u32()?, reader.varint_u32()?),
            text: reader.text(TEXT_BYTES_MAX)?,
        },
        kind::SUBSCRIBE => read_subscribe(reader)?,
        kind::ACCEPTED => read_accepted(reader)?,
        kind::REFUSED => Message::Refused {
            channel: channel(reader)?,
            reason: RefusalReason::from_number(reader.byte()?),
            text: reader.text(TEXT_BYTES_MAX)?,
        },
        kind::SCHEMA => Message::Schema {
            channel: channel(reader)?,
            index: reader.varint_u32()?,
            schema: schema(reader)?,
        },
        kind::LOST => {
            let place = place(reader)?;
            let (from, next) = range(reader)?;
            let reason = LossReason::from_number(reader.byte()?);
            Message::Lost {
                place,
                from,
                next,
                reason,
            }
        }
        kind::STAGE => Message::Stage {
            place: place(reader).filter(|place| place.stage.number > 0)?,
        },
        kind::ACKNOWLEDGE => return read_acknowledge(reader, body),
        kind::PING => Message::Ping {
            token: reader.varint()?,
        },
        kind::PONG => Message::Pong {
            token: reader.varint()?,
        },
        kind::UNSUBSCRIBE => Message::Unsubscribe {
            channel: channel(reader)?,
            reason: RefusalReason::from_number(reader.byte()?),
            text: reader.text(TEXT_BYTES_MAX)?,
        },
        kind::ENDED => Message::Ended {
            channel: channel(reader)?,
        },
        kind::FETCH => {
            let (request, channel, epoch) = (reader.varint()?, channel(reader)?, reader.varint()?);
            let (from, next) = range(reader)?;
            Message::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                bytes: reader.varint()?,
            }
        }
        _ => return None,
    };
    reader.is_empty().then_some(message)
}

fn read_hello<'a>(reader: &mut Reader<'a>) -> Option<Message<'a>> {
    (reader.array()? == MAGIC).then_some(())?;
    let versions = (reader.varint_u32()?, reader.varint_u32()?);
    (versions.0 <= versions.1).then_some(())?;
    Some(Message::Hello(Hello {
        versions,
        session: u64::from_le_bytes(reader.array()?),
        frame_bytes_max: reader.varint()?,
        window_bytes: reader.varint()?,
        acknowledge_ms: reader.varint()?,
        dead_after_ms: reader.varint()?,
    }))
}

fn read_welcome<'a>(reader: &mut Reader<'a>) -> Option<Message<'a>> {
    (reader.array()? == MAGIC).then_some(())?;
    Some(Message::Welcome(Welcome {
        version: reader.varint_u32()?,
        session: u64::from_le_bytes(reader.array()?),
        frame_bytes_max: reader.varint()?,
        dead_after_ms: reader.varint()?,
    }))
}

fn read_subscribe<'a>(reader: &mut Reader<'a>) -> Option<Message<'a>> {
    Some(Message::Subscribe {
        channel: channel(reader)?,
        start: match reader.byte()? {
            0 => Start::First,
            1 => Start::New,
            2 => Start::After(position(reader)?),
            _ => return None,
        },
        earlier: {
            let count = reader.varint()?;
            (count <= EARLIER_MAX as u64).then_some(())?;
            (0..count)
                .map(|_| position(reader))
                .collect::<Option<_>>()?
        },
        level: Level::from_number(reader.byte()?)?,
        credit: Credit {
            bytes: reader.varint()?,
            elements: reader.varint()?,
        },
        serialization: reader.text(SERIALIZATION_BYTES_MAX)?,
        stream: reader.text(NAME_BYTES_MAX)?,
        known: match reader.byte()? {
            0 => None,
            1 => Some(SchemaId(reader.array()?)),
            _ => return None,
        },
    })
}

fn read_accepted<'a>(reader: &mut Reader<'a>) -> Option<Message<'a>> {
    let channel = channel(reader)?;
    let rollback = match reader.byte()? {
        0 => RollbackPoint::No,
        1 => RollbackPoint::Unknown,
        2 => RollbackPoint::Kept(position(reader)?),
        _ => return None,
    };
    let (epoch, next, last) = (reader.varint()?, reader.varint()?, reader.varint()?);
    (next > 0 && last < u64::MAX).then_some(())?;
    Some(Message::Accepted {
        channel,
        rollback,
        epoch,
        next,
        last,
        level: Level::from_number(reader.byte()?)?,
        schema: schema(reader)?,
    })
}

fn read_records<'a>(frame: &'a Bytes, at: usize, body: &'a [u8]) -> Option<Message<'a>> {
    let reader = &mut Reader::new(body);
    let place = place(reader)?;
    let (first, schema, behind) = (reader.varint()?, reader.varint_u32()?, reader.varint()?);
    let records = packed(frame, at, body, reader)?;
    let next = first.checked_add(records.len() as u64)?;
    (first > 0 && !records.is_empty() && next < u64::MAX).then_some(())?;
    Some(Message::Records {
        place,
        first,
        schema,
        behind,
        records,
    })
}

fn read_acknowledge<'a>(reader: &mut Reader<'a>, body: &'a [u8]) -> Option<Message<'a>> {
    let entries = Entries(body);
    while !reader.is_empty() {
        entry(reader)?;
    }
    Some(Message::Acknowledge { entries })
}

/// Decodes a count, then that many records up to the end of the body.
fn packed(frame: &Bytes, at: usize, body: &[u8], reader: &mut Reader<'_>) -> Option<Records> {
    let count = reader.varint()?;
    let bytes = frame.slice(at + reader.offset()..at + body.len());
    Records::from_packed(bytes, count)
}

fn channel(reader: &mut Reader<'_>) -> Option<Channel> {
    let number = reader.varint_u32()?;
    (number < CHANNEL_NUMBERS_MAX).then_some(Channel(number))
}

fn position(reader: &mut Reader<'_>) -> Option<Position> {
    Some(Position {
        epoch: reader.varint()?,
        sequence: reader.varint().filter(|number| *number < u64::MAX)?,
    })
}

/// Decodes a range of numbers that is not empty.
fn range(reader: &mut Reader<'_>) -> Option<(u64, u64)> {
    let (from, next) = (reader.varint()?, reader.varint()?);
    (from > 0 && from < next && next < u64::MAX).then_some((from, next))
}

fn schema<'a>(reader: &mut Reader<'a>) -> Option<SchemaText<'a>> {
    Some(SchemaText {
        version: reader.varint_u32()?,
        id: SchemaId(reader.array()?),
        bytes: match reader.byte()? {
            0 => None,
            1 => Some(reader.bytes(SCHEMA_BYTES_MAX)?),
            _ => return None,
        },
    })
}

fn place(reader: &mut Reader<'_>) -> Option<Place> {
    let channel = channel(reader)?;
    let number = reader.varint_u32()?;
    let mut stage = Stage {
        number,
        ..Stage::default()
    };
    if number > 0 {
        stage.first = reader.varint().filter(|first| *first > 0)?;
        stage.kept = reader.varint().filter(|kept| *kept < stage.first)?;
    }
    Some(Place {
        channel,
        stage,
        epoch: reader.varint()?,
    })
}

fn entry(reader: &mut Reader<'_>) -> Option<Entry> {
    let (channel, stage) = (channel(reader)?.0, reader.varint_u32()?);
    Some(Entry {
        channel,
        stage,
        stored: reader.varint()?,
        elements: reader.varint()?,
        bytes: reader.varint()?,
        elements_limit: reader.varint()?,
        bytes_limit: reader.varint()?,
        refused: reader.varint()?,
    })
}

impl Entries<'_> {
    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let mut reader = Reader::new(self.0);
        core::iter::from_fn(move || entry(&mut reader))
    }
}
