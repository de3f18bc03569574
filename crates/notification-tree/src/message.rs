//! The datagrams between source and sinks, and between sinks.
//!
//! | bytes | content |
//! |---|---|
//! | 1, 1 | `T`, version 1 |
//! | 1 | kind: 1 spread, 2 response, 3 coverage, 4 pull, 5 proof; plus 128: authenticated |
//! | 4 | the sender's number in the membership; `FFFFFFFF`: the source |
//! | … | by kind, below |
//! | 16 | hop tag over all bytes before, if authenticated |
//!
//! Numbers are LEB128 unless a size is given. A *range* is two numbers, first and length.
//!
//! - spread: range; stamp, which answers repeat; time left until coverage is due (µs); timeout (µs); age of the
//!   event (µs); latency (µs); send cost (ns); plan (1 byte, its numbers); flags (1 byte: 1 repair); number of
//!   suspects and their indices in the range, increasing; the event (see [`crate::event`])
//! - response: event id (20 bytes), version (4), range of the job, stamp, dwell time (µs)
//! - coverage: event id, version, range of the job, stamp, dwell time, total number of pieces, range of this
//!   piece, number of failed sinks and their indices in the piece, receipts (16 bytes)
//! - pull: topic (8), version (4), boot (4), first sequence number (8), bitmap of the sequence numbers (8)
//! - proof: topic (8), number (16), flags (1 byte: 1 answer)

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::coverage::Piece;
use crate::error::Malformed;
use crate::event::{Event, EventId};
use crate::event_pool::EventPool;
use crate::guard::TAG_BYTES;
use crate::plan::Plan;
use crate::wire::{DATAGRAM_BYTES_MAX, Reader, Writer};

/// The number of the source, which is not a sink.
pub const SOURCE: u32 = u32::MAX;
/// The largest number of suspects that a hop names; fewer if the datagram has no room.
pub const SUSPECTS_MAX: usize = 512;
/// The largest size of a spread message without its event and suspects.
pub(crate) const SPREAD_HEAD_BYTES: usize = 3 + 4 + 8 * 5 + 11 + 2 + 2 + TAG_BYTES;

const MAGIC: [u8; 2] = [b'T', 1];
const AUTHENTICATED: u8 = 0x80;

/// Indices of suspects in a range, increasing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Suspects(Vec<u32>);

impl Suspects {
    /// Appends one; ignores indices that are out of order, and any after [`SUSPECTS_MAX`].
    pub fn push(&mut self, place: u32) {
        if self.0.len() < SUSPECTS_MAX && self.0.last().is_none_or(|last| *last < place) {
            self.0.push(place);
        }
    }

    /// The indices.
    #[must_use]
    pub fn places(&self) -> &[u32] {
        &self.0
    }

    /// Whether this index is among them.
    #[must_use]
    pub fn contains(&self, place: u32) -> bool {
        self.0.binary_search(&place).is_ok()
    }
}

/// A part of the sinks, with the parameters for its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// The first sink of the range, which includes the receiver.
    pub first: u32,
    /// The end of the range, exclusive.
    pub end: u32,
    /// The sender's clock, which answers repeat: microseconds, the lower 32 bits.
    pub stamp_us: u32,
    /// Microseconds until the sender needs the coverage.
    pub due_us: u32,
    /// The sender's timeout for one answer, in microseconds.
    pub timeout_us: u32,
    /// The age of the event at sending, in microseconds.
    pub age_us: u32,
    /// The source's estimate of the one-way latency, in microseconds.
    pub latency_us: u32,
    /// The source's estimate of a node's send cost, in nanoseconds.
    pub send_cost_ns: u32,
    /// The plan by which the head divides the range.
    pub plan: Plan,
    /// Answers a pull: no answer is expected.
    pub repair: bool,
    /// The sinks that should not become heads.
    pub suspects: Suspects,
    /// The event.
    pub event: Arc<Event>,
}

/// Reports that a head has the event and has forwarded it; coverage follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The event.
    pub id: EventId,
    /// The version to which the range refers.
    pub version: u32,
    /// The first sink of the range that the head got.
    pub first: u32,
    /// The end of the range, exclusive.
    pub end: u32,
    /// The stamp of the message that this answers.
    pub stamp_us: u32,
    /// Microseconds from the receipt of that message to this answer.
    pub dwell_us: u32,
}

/// The report of a head about a piece of its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// The range that it got, and the dwell time.
    pub response: Response,
    /// The total number of pieces; 0 if no more is known than was reported before.
    pub pieces: u32,
    /// One of the pieces.
    pub piece: Piece,
}

/// Requests missed events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    /// The topic.
    pub topic: u64,
    /// The version to which the sender's number refers.
    pub version: u32,
    /// The source's boot.
    pub boot: u32,
    /// The first sequence number.
    pub first: u64,
    /// Bit `n` requests `first + n`.
    pub wanted: u64,
}

/// Asks whether a sink is at its address, or answers that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The topic: one node is its source, the other wants to be a sink.
    pub topic: u64,
    /// The question's number, which the answer repeats.
    pub number: u128,
    /// Whether this is the answer.
    pub answer: bool,
}

/// The hop tag of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag<'a> {
    /// The bytes that it authenticates.
    pub over: &'a [u8],
    /// The tag.
    pub tag: u128,
}

/// The content of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// An event, to be spread over a range.
    Spread(Spread),
    /// The event is received and forwarded.
    Response(Response),
    /// The result for a range.
    Coverage(Coverage),
    /// A request for missed events.
    Pull(Pull),
    /// A proof of address.
    Proof(Proof),
}

/// A message and its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender's number, or [`SOURCE`].
    pub from: u32,
    /// The content.
    pub body: Body,
}

/// A message and its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver's address.
    pub address: SocketAddr,
    /// The receiver's key, for the hop tag.
    pub key: [u8; 32],
    /// The receiver's number, or [`SOURCE`].
    pub to: u32,
    /// The message.
    pub message: Message,
}

impl Message {
    /// The topic of the message.
    #[must_use]
    pub fn topic(&self) -> u64 {
        match &self.body {
            Body::Spread(spread) => spread.event.id().topic,
            Body::Response(response) => response.id.topic,
            Body::Coverage(coverage) => coverage.response.id.topic,
            Body::Pull(pull) => pull.topic,
            Body::Proof(proof) => proof.topic,
        }
    }

    /// The version of the membership to which its numbers refer; 0 for a proof, which has none.
    #[must_use]
    pub fn version(&self) -> u32 {
        match &self.body {
            Body::Spread(spread) => spread.event.version(),
            Body::Response(response) => response.version,
            Body::Coverage(coverage) => coverage.response.version,
            Body::Pull(pull) => pull.version,
            Body::Proof(_) => 0,
        }
    }

    /// Appends the datagram without its hop tag to `bytes`.
    pub fn encode(&self, authenticated: bool, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        writer.bytes(&MAGIC);
        let kind = match &self.body {
            Body::Spread(_) => 1,
            Body::Response(_) => 2,
            Body::Coverage(_) => 3,
            Body::Pull(_) => 4,
            Body::Proof(_) => 5,
        };
        writer.byte(kind | if authenticated { AUTHENTICATED } else { 0 });
        writer.u32(self.from);
        match &self.body {
            Body::Spread(spread) => write_spread(spread, &mut writer),
            Body::Response(response) => write_response(response, &mut writer),
            Body::Coverage(coverage) => {
                write_response(&coverage.response, &mut writer);
                writer.number(coverage.pieces);
                let piece = &coverage.piece;
                write_range(piece.first, piece.end, &mut writer);
                writer.number(u32::try_from(piece.failed.len()).unwrap_or(u32::MAX));
                write_places(piece.first, &piece.failed, &mut writer);
                writer.bytes(&piece.receipts.to_be_bytes());
            }
            Body::Pull(pull) => {
                writer.u64(pull.topic);
                writer.u32(pull.version);
                writer.u32(pull.boot);
                writer.u64(pull.first);
                writer.u64(pull.wanted);
            }
            Body::Proof(proof) => {
                writer.u64(proof.topic);
                writer.bytes(&proof.number.to_be_bytes());
                writer.byte(u8::from(proof.answer));
            }
        }
    }

    /// Decodes a datagram. Returns the message and, if it is authenticated, the tag for the caller to
    /// check.
    ///
    /// # Errors
    /// The datagram is malformed.
    pub fn decode(datagram: &[u8]) -> Result<(Self, Option<Tag<'_>>), Malformed> {
        Self::read(&mut EventPool::default(), datagram)
    }

    /// Decodes a datagram; its event uses pooled memory.
    pub(crate) fn read<'a>(
        pool: &mut EventPool,
        datagram: &'a [u8],
    ) -> Result<(Self, Option<Tag<'a>>), Malformed> {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(Malformed::TooLarge);
        }
        let mut reader = Reader::new(datagram);
        if reader.array()? != MAGIC {
            return Err(Malformed::Protocol);
        }
        let kind = reader.byte()?;
        let mut tag = None;
        if kind & AUTHENTICATED != 0 {
            let split = datagram.split_last_chunk::<TAG_BYTES>();
            let (over, last) = split.ok_or(Malformed::Short)?;
            let last = u128::from_be_bytes(*last);
            tag = Some(Tag { over, tag: last });
            reader = Reader::new(over);
            reader.take(MAGIC.len() + 1)?;
        }
        let from = reader.u32()?;
        let body = match kind & !AUTHENTICATED {
            1 => Body::Spread(read_spread(&mut reader, pool)?),
            2 => Body::Response(read_response(&mut reader)?),
            3 => Body::Coverage(read_coverage(&mut reader)?),
            4 => Body::Pull(Pull {
                topic: reader.u64()?,
                version: reader.u32()?,
                boot: reader.u32()?,
                first: reader.u64()?,
                wanted: reader.u64()?,
            }),
            5 => Body::Proof(Proof {
                topic: reader.u64()?,
                number: u128::from_be_bytes(reader.array()?),
                answer: match reader.byte()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed::Kind),
                },
            }),
            _ => return Err(Malformed::Kind),
        };
        match reader.rest().is_empty() {
            true => Ok((Self { from, body }, tag)),
            false => Err(Malformed::Long),
        }
    }

    /// The approximate size of the datagram, for links with a rate.
    #[must_use]
    pub fn wire_bytes(&self) -> u32 {
        let bytes = match &self.body {
            Body::Spread(spread) => 64 + spread.event.bytes().len(),
            Body::Response(_) => 54,
            Body::Coverage(coverage) => 80 + 3 * coverage.piece.failed.len(),
            Body::Pull(_) => 55,
            Body::Proof(_) => 48,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

fn write_range(first: u32, end: u32, writer: &mut Writer<'_>) {
    writer.number(first);
    writer.number(end.saturating_sub(first));
}

/// A non-empty range.
fn read_range(reader: &mut Reader<'_>) -> Result<(u32, u32), Malformed> {
    let (first, length) = (reader.number()?, reader.number()?);
    let end = first.checked_add(length).ok_or(Malformed::Range)?;
    match length > 0 && end < SOURCE {
        true => Ok((first, end)),
        false => Err(Malformed::Range),
    }
}

/// Writes increasing indices, each as its distance from the one before.
fn write_places(first: u32, places: &[u32], writer: &mut Writer<'_>) {
    let mut next = first;
    for place in places {
        writer.number(place.saturating_sub(next));
        next = place.saturating_add(1);
    }
}

fn read_place(next: &mut u32, end: u32, reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let place = next.checked_add(reader.number()?).ok_or(Malformed::Range)?;
    if place >= end {
        return Err(Malformed::Range);
    }
    *next = place + 1;
    Ok(place)
}

fn write_spread(spread: &Spread, writer: &mut Writer<'_>) {
    write_range(spread.first, spread.end, writer);
    writer.number(spread.stamp_us);
    writer.number(spread.due_us);
    writer.number(spread.timeout_us);
    writer.number(spread.age_us);
    writer.number(spread.latency_us);
    writer.number(spread.send_cost_ns);
    match spread.plan {
        Plan::Sequential => writer.byte(0),
        Plan::SequentialWaiting => writer.byte(1),
        Plan::TwoHalves => writer.byte(2),
        Plan::Binomial => writer.byte(3),
        Plan::Kary(parts) => {
            writer.byte(4);
            writer.number(u32::from(parts));
        }
        Plan::Postal { delay, cap } => {
            writer.byte(5);
            writer.number(delay);
            writer.number(u32::from(cap));
        }
    }
    writer.byte(u8::from(spread.repair));
    let suspects = spread.suspects.places();
    // Not above SUSPECTS_MAX.
    writer.number(suspects.len() as u32);
    write_places(spread.first, suspects, writer);
    writer.bytes(spread.event.bytes());
}

fn read_spread(reader: &mut Reader<'_>, pool: &mut EventPool) -> Result<Spread, Malformed> {
    let (first, end) = read_range(reader)?;
    let stamp_us = reader.number()?;
    let due_us = reader.number()?;
    let timeout_us = reader.number()?;
    let age_us = reader.number()?;
    let latency_us = reader.number()?;
    let send_cost_ns = reader.number()?;
    let plan = read_plan(reader)?;
    let repair = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed::Kind),
    };
    let count = reader.number()?;
    if count as usize > SUSPECTS_MAX.min(reader.rest().len()) {
        return Err(Malformed::Number);
    }
    let mut suspects = Suspects::default();
    let mut next = first;
    for _ in 0..count {
        suspects.push(read_place(&mut next, end, reader)?);
    }
    let bytes = reader.take(reader.rest().len())?;
    let event = pool.event(|memory| Event::read(memory, bytes))?;
    if event.listed().is_some_and(|count| count < end) {
        return Err(Malformed::Range);
    }
    Ok(Spread {
        first,
        end,
        stamp_us,
        due_us,
        timeout_us,
        age_us,
        latency_us,
        send_cost_ns,
        plan,
        repair,
        suspects,
        event,
    })
}

fn read_plan(reader: &mut Reader<'_>) -> Result<Plan, Malformed> {
    let small = |number| u16::try_from(number).map_err(|_| Malformed::Number);
    Ok(match reader.byte()? {
        0 => Plan::Sequential,
        1 => Plan::SequentialWaiting,
        2 => Plan::TwoHalves,
        3 => Plan::Binomial,
        4 => Plan::Kary(small(reader.number()?)?),
        5 => {
            let (delay, cap) = (reader.number()?, small(reader.number()?)?);
            if delay > crate::plan::DELAY_MAX || cap == 0 {
                return Err(Malformed::Number);
            }
            Plan::Postal { delay, cap }
        }
        _ => return Err(Malformed::Kind),
    })
}

fn write_response(response: &Response, writer: &mut Writer<'_>) {
    response.id.write(writer);
    writer.u32(response.version);
    write_range(response.first, response.end, writer);
    writer.number(response.stamp_us);
    writer.number(response.dwell_us);
}

fn read_response(reader: &mut Reader<'_>) -> Result<Response, Malformed> {
    let id = EventId::read(reader)?;
    let version = reader.u32()?;
    let (first, end) = read_range(reader)?;
    let stamp_us = reader.number()?;
    let dwell_us = reader.number()?;
    Ok(Response {
        id,
        version,
        first,
        end,
        stamp_us,
        dwell_us,
    })
}

fn read_coverage(reader: &mut Reader<'_>) -> Result<Coverage, Malformed> {
    let response = read_response(reader)?;
    let pieces = reader.number()?;
    let (first, end) = read_range(reader)?;
    if first < response.first || end > response.end {
        return Err(Malformed::Range);
    }
    let count = reader.number()? as usize;
    // Each takes at least one byte, which bounds their number.
    if count > reader.rest().len() {
        return Err(Malformed::Short);
    }
    let mut next = first;
    let mut failed = Vec::with_capacity(count);
    for _ in 0..count {
        failed.push(read_place(&mut next, end, reader)?);
    }
    let receipts = u128::from_be_bytes(reader.array()?);
    Ok(Coverage {
        response,
        pieces,
        piece: Piece {
            first,
            end,
            failed,
            receipts,
        },
    })
}
