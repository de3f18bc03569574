//! An event in the bytes that its source signed. It is forwarded unchanged.
//!
//! | bytes | content |
//! |---|---|
//! | 8, 4, 8 | topic, boot of the source, sequence number |
//! | 4 | version of the membership |
//! | 1 | flags: 1 list inside, 2 its sinks have keys, 4 signed, 8 heartbeat (no body) |
//! | LEB128 | deadline in µs from publishing; 0: none |
//! | LEB128, sinks | the list, if inside: number of sinks; for each 4 or 6, the IP address, the port, the key |
//! | rest | body: opaque |
//! | 64 | Ed25519 signature over a purpose and all bytes before, if signed |

use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use crate::error::{Error, Malformed};
use crate::guard::{Guard, SIGNATURE_BYTES};
use crate::membership::{Membership, read_sinks};
use crate::wire::{Reader, Writer};

/// The prefix of the signed bytes, so that the signature is valid for nothing else.
const PURPOSE: &[u8] = b"chappe notification event 1";
const FLAG_LIST: u8 = 1;
const FLAG_KEYED: u8 = 2;
const FLAG_SIGNED: u8 = 4;
const FLAG_HEARTBEAT: u8 = 8;

/// Identifies an event; duplicates have the same identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The topic, which has one source.
    pub topic: u64,
    /// The number of starts of the source; its caller stores it before the first event.
    pub boot: u32,
    /// The sequence number of the event in this boot, from 1.
    pub sequence: u64,
}

impl EventId {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.topic);
        writer.u32(self.boot);
        writer.u64(self.sequence);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            topic: reader.u64()?,
            boot: reader.u32()?,
            sequence: reader.u64()?,
        })
    }
}

/// The content of an event to be made.
pub(crate) struct Content<'a> {
    pub(crate) id: EventId,
    /// Whether the list travels inside.
    pub(crate) inline: bool,
    pub(crate) deadline: Option<Duration>,
    /// `None` makes a heartbeat, which no application sees.
    pub(crate) body: Option<&'a [u8]>,
}

/// An event and its signed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    id: EventId,
    version: u32,
    deadline: Option<Duration>,
    list: Option<ListInside>,
    body: Range<usize>,
    signed: bool,
    heartbeat: bool,
    /// The purpose, followed by the event as it travels, so that the signed bytes are one slice.
    bytes: Vec<u8>,
}

/// A list of sinks inside an event. Few nodes read it, since most know the version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListInside {
    /// The offset of its count.
    bytes: Range<usize>,
    count: u32,
    keyed: bool,
}

impl Event {
    /// Makes a new event of a source, signed by `guard`; the membership travels inside if `inline`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if it exceeds `most_bytes`.
    pub fn new(
        guard: &impl Guard,
        id: EventId,
        membership: &Membership,
        inline: bool,
        deadline: Option<Duration>,
        body: &[u8],
        most_bytes: usize,
    ) -> Result<Self, Error> {
        let content = Content {
            id,
            inline,
            deadline,
            body: Some(body),
        };
        Self::make(Vec::new(), guard, membership, &content, most_bytes)
    }

    /// Makes an event in reused memory.
    pub(crate) fn make(
        mut bytes: Vec<u8>,
        guard: &impl Guard,
        membership: &Membership,
        content: &Content<'_>,
        most_bytes: usize,
    ) -> Result<Self, Error> {
        let Content {
            id,
            inline,
            deadline,
            body,
        } = *content;
        let heartbeat = body.is_none();
        let body = body.unwrap_or_default();
        let keyed = guard.authenticates();
        let most_bytes = PURPOSE.len() + most_bytes;
        bytes.clear();
        bytes.reserve(most_bytes);
        bytes.extend_from_slice(PURPOSE);
        let mut writer = Writer(&mut bytes);
        id.write(&mut writer);
        writer.u32(membership.version());
        let flag = |set, flag| if set { flag } else { 0 };
        writer.byte(
            flag(inline, FLAG_LIST)
                | flag(inline && keyed, FLAG_KEYED)
                | flag(keyed, FLAG_SIGNED)
                | flag(heartbeat, FLAG_HEARTBEAT),
        );
        let micros = deadline.map_or(0, |deadline| deadline.as_micros().max(1));
        writer.number(u32::try_from(micros).unwrap_or(u32::MAX));
        let from = bytes.len();
        let mut list = None;
        if inline {
            let mut writer = Writer(&mut bytes);
            writer.number(membership.count());
            for sink in membership.sinks() {
                sink.write(&mut writer, keyed);
            }
            list = Some(ListInside {
                bytes: from..bytes.len(),
                count: membership.count(),
                keyed,
            });
        }
        let start = bytes.len();
        bytes.extend_from_slice(body);
        let end = bytes.len();
        let most = most_bytes.saturating_sub(if keyed { SIGNATURE_BYTES } else { 0 });
        if end > most {
            return Err(Error::TooLarge {
                bytes: body.len(),
                most: most.saturating_sub(start),
            });
        }
        if keyed {
            let signature = guard.sign(&bytes);
            bytes.extend_from_slice(&signature);
        }
        Ok(Self {
            id,
            version: membership.version(),
            deadline,
            list,
            body: start..end,
            signed: keyed,
            heartbeat,
            bytes,
        })
    }

    /// Reads an event without verifying its signature.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::read(Vec::new(), bytes)
    }

    /// Reads an event into reused memory.
    pub(crate) fn read(mut memory: Vec<u8>, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let place = |reader: &Reader<'_>| PURPOSE.len() + bytes.len() - reader.rest().len();
        let id = EventId::read(&mut reader)?;
        let version = reader.u32()?;
        let flags = reader.byte()?;
        let known = FLAG_LIST | FLAG_KEYED | FLAG_SIGNED | FLAG_HEARTBEAT;
        if flags & !known != 0 || flags & (FLAG_LIST | FLAG_KEYED) == FLAG_KEYED {
            return Err(Malformed::Kind);
        }
        let micros = reader.number()?;
        let list = match flags & FLAG_LIST != 0 {
            true => {
                let (from, keyed) = (place(&reader), flags & FLAG_KEYED != 0);
                let count = read_sinks(&mut reader, keyed, |_| {})?;
                Some(ListInside {
                    bytes: from..place(&reader),
                    count,
                    keyed,
                })
            }
            false => None,
        };
        let signed = flags & FLAG_SIGNED != 0;
        let start = place(&reader);
        let signature = if signed { SIGNATURE_BYTES } else { 0 };
        let end = (PURPOSE.len() + bytes.len())
            .checked_sub(signature)
            .filter(|end| *end >= start);
        let body = start..end.ok_or(Malformed::Short)?;
        let heartbeat = flags & FLAG_HEARTBEAT != 0;
        if heartbeat && !body.is_empty() {
            return Err(Malformed::Long);
        }
        memory.clear();
        memory.reserve_exact(PURPOSE.len() + bytes.len());
        memory.extend_from_slice(PURPOSE);
        memory.extend_from_slice(bytes);
        Ok(Self {
            id,
            version,
            deadline: (micros > 0).then(|| Duration::from_micros(u64::from(micros))),
            list,
            body,
            signed,
            heartbeat,
            bytes: memory,
        })
    }

    /// Whether `source` signed it. A trusted network accepts every event.
    #[must_use]
    pub fn verify(&self, source: &[u8; 32], guard: &mut impl Guard) -> bool {
        if !guard.authenticates() {
            return true;
        }
        let Some((signed, signature)) = self.bytes.split_last_chunk::<SIGNATURE_BYTES>() else {
            return false;
        };
        self.signed && guard.verify(source, signed, signature)
    }

    /// The identity.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The version of the membership to which its ranges refer.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The time from publishing until it should be delivered.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The membership, if it travels inside; decoded at each call.
    ///
    /// # Errors
    /// The inner result fails if an address occurs twice.
    #[must_use]
    pub fn list(&self) -> Option<Result<Membership, Malformed>> {
        let list = self.list.as_ref()?;
        let mut sinks = Vec::with_capacity(list.count as usize);
        let mut reader = Reader::new(&self.bytes[list.bytes.clone()]);
        let read = read_sinks(&mut reader, list.keyed, |sink| sinks.push(sink));
        Some(read.and_then(|_| Membership::new(self.id.topic, self.version, sinks)))
    }

    /// The number of sinks in the membership inside.
    pub(crate) fn listed(&self) -> Option<u32> {
        self.list.as_ref().map(|list| list.count)
    }

    /// Whether it only asks which sinks are alive; no application sees it.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.heartbeat
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body.clone()]
    }

    /// The whole event, as it travels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[PURPOSE.len()..]
    }

    /// Takes its memory, for another event.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }
}
