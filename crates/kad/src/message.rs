//! The packets and their encoding.
//!
//! All numbers are big-endian. A packet is a head, a body by its kind, and a tag:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 1 | version, [`VERSION`] |
//! | 1 | 1 | kind |
//! | 2 | 1 | flags: 1 a certificate is attached, 2 the sender belongs in no table (a client), 4 please attach yours |
//! | 3 | 32 | the sender's public key |
//! | 35 | 8 | number: a request's own number; in a response that of the request |
//! | 43 | 8 | address token: in a request the one that the receiver issued, in a response one for the requester; 0 none |
//! | 51 | 72 | certificate, with flag 1: end (8), owner's signature (64) |
//! | | | body |
//! | end | 16 | tag under the secret of the pair, over the receiver's public key and all bytes before it; zeros in a `Greet` |
//!
//! | kind | body |
//! |---|---|
//! | 1 `Greet` | zeros to make it as long as its answer |
//! | 2 `Greeting` | – |
//! | 3 `Ping`, 4 `Pong` | – |
//! | 5 `Find` | key (16), number of contacts (1), zeros |
//! | 6 `Contacts` | contacts to the end: public key (32), 4 or 6, address (4 or 16), port (2) |
//! | 7 `Store` | level of salt (1), record |
//! | 8 `Stored` | verdict (1) |
//! | 9 `Ask` | key (16), records after this identity (16), digest of the known records (8), maximum length of the answer (2), zeros |
//! | 10 `Records` | number of records held (2), 1 when the key is split (1), records to the end |
//! | 11 `Refused` | reason (1) |
//!
//! A record is publisher (32), key (16), slot (2), sequence (8), lifetime in seconds (4), expiry in
//! seconds since 1970 or 0 (8), length (2), value, signature (64). Each packet has one encoding:
//! decoding and encoding again produces the same bytes.

use chappe_identity::PublicKey;
use chappe_machine::wire::Reader;

use crate::certificate::{CERTIFICATE_BYTES, Certificate};
use crate::cryptography::TAG_BYTES;
use crate::record::RECORD_BYTES;
use crate::{Contact, Error, Key, Record};

/// The version of the protocol.
pub const VERSION: u8 = 1;
/// Maximum length of a packet in bytes. Reason: the payload of UDP over IPv6 at its smallest MTU of
/// 1,280, so that nothing is ever fragmented.
pub const PACKET_BYTES_MAX: usize = 1_232;
/// Length of the head without a certificate, in bytes.
pub const HEAD_BYTES: usize = 51;
/// Maximum number of contacts in an answer: as many of the longest as fit together with a
/// certificate.
pub const CONTACTS_MAX: usize = 20;
/// Bytes of a `Records` body before its records.
pub(crate) const RECORDS_HEAD_BYTES: usize = 3;
/// Bytes of a packet without its body, with a certificate.
pub(crate) const AROUND_BYTES: usize = HEAD_BYTES + CERTIFICATE_BYTES + TAG_BYTES;

const FLAG_CERTIFICATE: u8 = 1;
const FLAG_CLIENT: u8 = 2;
const FLAG_SEND_CERTIFICATE: u8 = 4;

/// A holder's verdict on a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The record is stored.
    Kept,
    /// A newer one is stored.
    Outdated,
    /// The key has enough records here: store it one level of salt down.
    Full,
    /// Signature, time or place is wrong, or there is no room.
    Rejected,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The address is not confirmed: repeat the request with this token.
    Token,
    /// This network is for members: repeat the request with the token and your certificate.
    Certificate,
    /// The rate limit is exceeded; try later.
    Busy,
}

/// The content of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Asks for the key of an address.
    Greet {
        /// Padding at the end.
        padding: u16,
    },
    /// Answers `Greet` with the sender's key.
    Greeting,
    /// Asks whether a node is alive.
    Ping,
    /// Answers a ping.
    Pong,
    /// Asks for the nodes nearest to a key.
    Find {
        /// The key.
        target: Key,
        /// Maximum number of contacts.
        count: u8,
        /// Padding at the end, so that the answer is at most three times as long.
        padding: u16,
    },
    /// The nearest contacts.
    Contacts(Vec<Contact>),
    /// Asks to store a record.
    Store {
        /// The level of salt of its place.
        level: u8,
        /// The record.
        record: Record,
    },
    /// The verdict on a `Store`.
    Stored(Verdict),
    /// Asks for the records of a place.
    Ask {
        /// The place: a key, salted or not.
        place: Key,
        /// Only records whose identity is greater.
        after: u128,
        /// The digest of the requester's records; a holder with the same digest sends none.
        digest: u64,
        /// Maximum length of the answer in bytes: the credit.
        bytes: u16,
        /// Padding at the end, so that the answer is at most three times as long.
        padding: u16,
    },
    /// A page of records: the lowest identities first, as many as the credit allows.
    Records {
        /// Total number of records held for the place.
        held: u16,
        /// There are more one level of salt down.
        split: bool,
        /// The records of this page.
        records: Vec<Record>,
    },
    /// Refuses a request.
    Refused(Reason),
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Self::Greet { .. } => 1,
            Self::Greeting => 2,
            Self::Ping => 3,
            Self::Pong => 4,
            Self::Find { .. } => 5,
            Self::Contacts(_) => 6,
            Self::Store { .. } => 7,
            Self::Stored(_) => 8,
            Self::Ask { .. } => 9,
            Self::Records { .. } => 10,
            Self::Refused(_) => 11,
        }
    }

    /// Whether it answers a request.
    #[must_use]
    pub fn is_response(&self) -> bool {
        matches!(
            self,
            Self::Greeting
                | Self::Pong
                | Self::Contacts(_)
                | Self::Stored(_)
                | Self::Records { .. }
                | Self::Refused(_)
        )
    }
}

/// A packet without its tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The sender's public key.
    pub sender: PublicKey,
    /// The sender must not be put into routing tables.
    pub client: bool,
    /// The sender wants the receiver's certificate.
    pub please: bool,
    /// The number of the request.
    pub number: u64,
    /// The address token.
    pub token: u64,
    /// The sender's certificate.
    pub certificate: Option<Certificate>,
    /// The content.
    pub body: Body,
}

impl Packet {
    /// Appends everything except the tag.
    pub fn write(&self, to: &mut Vec<u8>) {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(self.certificate.is_some(), FLAG_CERTIFICATE)
            | flag(self.client, FLAG_CLIENT)
            | flag(self.please, FLAG_SEND_CERTIFICATE);
        to.extend_from_slice(&[VERSION, self.body.kind(), flags]);
        to.extend_from_slice(self.sender.as_bytes());
        to.extend_from_slice(&self.number.to_be_bytes());
        to.extend_from_slice(&self.token.to_be_bytes());
        if let Some(certificate) = &self.certificate {
            to.extend_from_slice(&certificate.expires_s.to_be_bytes());
            to.extend_from_slice(&certificate.signature);
        }
        match &self.body {
            Body::Greet { padding } => pad(to, *padding),
            Body::Greeting | Body::Ping | Body::Pong => {}
            Body::Find {
                target,
                count,
                padding,
            } => {
                to.extend_from_slice(&target.to_bytes());
                to.push(*count);
                pad(to, *padding);
            }
            Body::Contacts(contacts) => contacts.iter().for_each(|contact| contact.write(to)),
            Body::Store { level, record } => {
                to.push(*level);
                record.write(to);
            }
            Body::Stored(verdict) => to.push(*verdict as u8),
            Body::Ask {
                place,
                after,
                digest,
                bytes,
                padding,
            } => {
                to.extend_from_slice(&place.to_bytes());
                to.extend_from_slice(&after.to_be_bytes());
                to.extend_from_slice(&digest.to_be_bytes());
                to.extend_from_slice(&bytes.to_be_bytes());
                pad(to, *padding);
            }
            Body::Records {
                held,
                split,
                records,
            } => {
                to.extend_from_slice(&held.to_be_bytes());
                to.push(u8::from(*split));
                records.iter().for_each(|record| record.write(to));
            }
            Body::Refused(reason) => to.push(*reason as u8),
        }
    }

    /// Parses a packet; returns it with the bytes that its tag covers, and the tag.
    ///
    /// # Errors
    /// The packet is malformed; the error names the offset.
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8], &[u8]), Error> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(Error::TooLong(bytes.len()));
        }
        let Some(end) = bytes.len().checked_sub(TAG_BYTES) else {
            return Err(Error::Truncated);
        };
        let (under, tag) = bytes.split_at(end);
        let mut reader = Reader::new(under);
        let packet = read(&mut reader)?;
        Ok((packet, under, tag))
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Packet, Error> {
    let version = reader.byte().ok_or(Error::Truncated)?;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let kind = reader.byte().ok_or(Error::Truncated)?;
    let flags = reader.byte().ok_or(Error::Truncated)?;
    if flags > 7 {
        return Err(Error::Malformed { kind, offset: 2 });
    }
    let head = (|| {
        let sender = PublicKey::new(reader.array()?);
        let number = u64::from_be_bytes(reader.array()?);
        let token = u64::from_be_bytes(reader.array()?);
        let certificate = match flags & FLAG_CERTIFICATE {
            0 => None,
            _ => Some(Certificate {
                expires_s: u64::from_be_bytes(reader.array()?),
                signature: reader.array()?,
            }),
        };
        Some((sender, number, token, certificate))
    })();
    let (sender, number, token, certificate) = head.ok_or(Error::Truncated)?;
    let body = read_body(kind, reader);
    let body = match body {
        Some(body) if reader.is_empty() => body,
        _ if !(1..=12).contains(&kind) => return Err(Error::Kind(kind)),
        _ => {
            let offset = reader.offset();
            return Err(Error::Malformed { kind, offset });
        }
    };
    Ok(Packet {
        sender,
        client: flags & FLAG_CLIENT != 0,
        please: flags & FLAG_SEND_CERTIFICATE != 0,
        number,
        token,
        certificate,
        body,
    })
}

fn read_body(kind: u8, reader: &mut Reader<'_>) -> Option<Body> {
    Some(match kind {
        1 => Body::Greet {
            padding: padding(reader)?,
        },
        2 => Body::Greeting,
        3 => Body::Ping,
        4 => Body::Pong,
        5 => Body::Find {
            target: Key::from_bytes(reader.array()?),
            count: reader.byte()?,
            padding: padding(reader)?,
        },
        6 => {
            let mut contacts = Vec::new();
            while !reader.is_empty() {
                contacts.push(Contact::read(reader)?);
            }
            Body::Contacts(contacts)
        }
        7 => {
            let level = reader.byte()?;
            if level > crate::SALT_LEVELS_MAX {
                return None;
            }
            let record = Record::read(reader)?;
            Body::Store { level, record }
        }
        8 => Body::Stored(match reader.byte()? {
            0 => Verdict::Kept,
            1 => Verdict::Outdated,
            2 => Verdict::Full,
            3 => Verdict::Rejected,
            _ => return None,
        }),
        9 => Body::Ask {
            place: Key::from_bytes(reader.array()?),
            after: u128::from_be_bytes(reader.array()?),
            digest: u64::from_be_bytes(reader.array()?),
            bytes: u16::from_be_bytes(reader.array()?),
            padding: padding(reader)?,
        },
        10 => {
            let held = u16::from_be_bytes(reader.array()?);
            let split = match reader.byte()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let mut records = Vec::new();
            while !reader.is_empty() {
                records.push(Record::read(reader)?);
            }
            Body::Records {
                held,
                split,
                records,
            }
        }
        11 => Body::Refused(match reader.byte()? {
            0 => Reason::Token,
            1 => Reason::Certificate,
            2 => Reason::Busy,
            _ => return None,
        }),
        _ => return None,
    })
}

fn pad(to: &mut Vec<u8>, zeros: u16) {
    to.resize(to.len() + usize::from(zeros), 0);
}

/// Zeros to the end.
fn padding(reader: &mut Reader<'_>) -> Option<u16> {
    let rest = reader.rest();
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    u16::try_from(rest.len()).ok()
}

const _: () = assert!(
    AROUND_BYTES + 1 + RECORD_BYTES + crate::VALUE_BYTES_MAX <= PACKET_BYTES_MAX
        && AROUND_BYTES + RECORDS_HEAD_BYTES + RECORD_BYTES + crate::VALUE_BYTES_MAX
            <= PACKET_BYTES_MAX
        && AROUND_BYTES + CONTACTS_MAX * crate::contact::CONTACT_BYTES_MAX <= PACKET_BYTES_MAX,
    "the longest packet of each kind fits"
);
