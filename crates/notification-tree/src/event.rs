//! An event as its source signed it: forwarded as it is, byte for byte.
//!
//! | bytes | what |
//! |---|---|
//! | 8, 4, 8 | topic, boot of the source, sequence number |
//! | 4 | version of the membership |
//! | 1 | flags: 1 list inside, 2 its sinks have keys, 4 signed, 8 heartbeat (no body) |
//! | LEB128 | deadline in µs from publishing; 0: none |
//! | LEB128, sinks | the list, when inside: number of sinks; each 4 or 6, the IP address, the port, the key |
//! | rest | body: opaque |
//! | 64 | Ed25519 signature over a purpose and all bytes before, when signed |

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use crate::error::{Error, Malformed};
use crate::guard::{Guard, SIGNATURE_BYTES};
use crate::membership::{Membership, read_sinks};
use crate::wire::{Reader, Writer};

/// What the signature of an event begins with, so that it is of nothing else.
const PURPOSE: &[u8] = b"chappe notification event 1";
const FLAG_LIST: u8 = 1;
const FLAG_KEYED: u8 = 2;
const FLAG_SIGNED: u8 = 4;
const FLAG_HEARTBEAT: u8 = 8;

/// Which event: duplicates have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The topic, which has one source.
    pub topic: u64,
    /// How often the source has started; stored by its caller before the first event.
    pub boot: u32,
    /// The event's number in this boot, from 1.
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

/// An event and the bytes that were signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    id: EventId,
    version: u32,
    deadline: Option<Duration>,
    list: Option<Arc<Membership>>,
    body: Range<usize>,
    signed: bool,
    heartbeat: bool,
    bytes: Vec<u8>,
}

impl Event {
    /// A new event of a source, signed by `guard`; the membership travels inside when `inline`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when it has more than `most_bytes`.
    pub fn new(
        guard: &impl Guard,
        id: EventId,
        membership: &Arc<Membership>,
        inline: bool,
        deadline: Option<Duration>,
        body: &[u8],
        most_bytes: usize,
    ) -> Result<Self, Error> {
        Self::make(
            guard,
            id,
            membership,
            inline,
            deadline,
            Some(body),
            most_bytes,
        )
    }

    /// Without a body it is a heartbeat, which no application sees.
    pub(crate) fn make(
        guard: &impl Guard,
        id: EventId,
        membership: &Arc<Membership>,
        inline: bool,
        deadline: Option<Duration>,
        body: Option<&[u8]>,
        most_bytes: usize,
    ) -> Result<Self, Error> {
        let heartbeat = body.is_none();
        let body = body.unwrap_or_default();
        let keyed = guard.authenticates();
        let mut bytes = Vec::with_capacity(most_bytes);
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
        if inline {
            writer.number(membership.count());
            for sink in membership.sinks() {
                sink.write(&mut writer, keyed);
            }
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
            let signature = guard.sign(&[PURPOSE, &bytes].concat());
            bytes.extend_from_slice(&signature);
        }
        Ok(Self {
            id,
            version: membership.version(),
            deadline,
            list: inline.then(|| Arc::clone(membership)),
            body: start..end,
            signed: keyed,
            heartbeat,
            bytes,
        })
    }

    /// Reads an event; its signature is not looked at.
    ///
    /// # Errors
    /// When it is not of the format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
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
                let sinks = read_sinks(&mut reader, flags & FLAG_KEYED != 0)?;
                Some(Arc::new(Membership::new(id.topic, version, sinks)?))
            }
            false => None,
        };
        let signed = flags & FLAG_SIGNED != 0;
        let start = bytes.len() - reader.rest().len();
        let signature = if signed { SIGNATURE_BYTES } else { 0 };
        let end = bytes
            .len()
            .checked_sub(signature)
            .filter(|end| *end >= start);
        let body = start..end.ok_or(Malformed::Short)?;
        let heartbeat = flags & FLAG_HEARTBEAT != 0;
        if heartbeat && !body.is_empty() {
            return Err(Malformed::Long);
        }
        Ok(Self {
            id,
            version,
            deadline: (micros > 0).then(|| Duration::from_micros(u64::from(micros))),
            list,
            body,
            signed,
            heartbeat,
            bytes: bytes.to_vec(),
        })
    }

    /// Whether `source` signed it. On a trusted network everything is taken as signed.
    #[must_use]
    pub fn verify(&self, source: &[u8; 32], guard: &mut impl Guard) -> bool {
        if !guard.authenticates() {
            return true;
        }
        let Some((signed, signature)) = self.bytes.split_last_chunk::<SIGNATURE_BYTES>() else {
            return false;
        };
        self.signed && guard.verify(source, &[PURPOSE, signed].concat(), signature)
    }

    /// Which event.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The version of the membership that its ranges are of.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// When it should be delivered at the latest, from publishing.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The membership, when it travels inside.
    #[must_use]
    pub fn list(&self) -> Option<&Arc<Membership>> {
        self.list.as_ref()
    }

    /// Whether it only asks who is there; no application sees it.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.heartbeat
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body.clone()]
    }

    /// All of it, as it travels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
