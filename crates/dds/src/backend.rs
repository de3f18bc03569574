//! The interface of the DDS library: a participant with writers and readers.
//!
//! Samples are bytes in CDR; the types are [`crate::ElementType`] and [`crate::Octets`]. One thread owns a
//! participant with its writers and readers; only [`Participant::wait`] blocks.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::qos::Announced;
use crate::types::{Structure, TypeError, TypeHash};
use crate::{DdsError, Qos, SecurityConfig, WriteError};

/// The highest domain with valid port numbers (RTPS 2.5, clause 9.6.2.3).
pub const DOMAIN_MAX: u16 = 232;
/// The longest name of a topic or type, in bytes; reason: the limit of the standard is 255.
pub const TOPIC_BYTES_MAX: usize = 255;
/// The largest sample in bytes; reason: the limit on records of a stream.
pub const SAMPLE_BYTES_MAX: usize = 4 << 20;
/// The unacknowledged bytes of a reliable writer, regardless of its window; reason: they are memory of this program
/// for as long as a reader acknowledges nothing. The pacers were measured with this bound.
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 15 << 19;
/// The largest overhead of a library for each sample.
#[cfg(cyclone)]
const ADDED_BYTES: usize = 8;

/// The domain and interfaces of a participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParticipantConfig {
    /// The domain: participants of different domains do not discover each other.
    pub domain: u16,
    /// Addresses of this host that it uses: it announces itself at these only, and sends and joins multicast on
    /// their interfaces only. With 127.0.0.1 alone it uses no multicast.
    pub interfaces: Vec<IpAddr>,
    /// Its identity and permissions, if it is secure.
    pub security: SecurityConfig,
}

impl Default for ParticipantConfig {
    /// Domain 0, loopback only, no security.
    fn default() -> Self {
        Self {
            domain: 0,
            interfaces: vec![Ipv4Addr::LOCALHOST.into()],
            security: SecurityConfig::default(),
        }
    }
}

impl ParticipantConfig {
    /// Checks the values, without the network.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        if self.domain > DOMAIN_MAX {
            return Err(DdsError::Domain(self.domain));
        }
        let other = |address: &&IpAddr| !address.is_ipv4() || address.is_unspecified();
        match self.interfaces.iter().find(other) {
            Some(address) => Err(DdsError::Interface(*address)),
            None if self.interfaces.is_empty() => Err(DdsError::Qos {
                key: "interfaces",
                why: "name at least one address of this host".into(),
            }),
            None => self.security.check(),
        }
    }

    /// Checks that this host has the addresses in [`interfaces`](Self::interfaces).
    ///
    /// # Errors
    /// The first missing address.
    pub fn check_host(&self) -> Result<(), DdsError> {
        let lacks = |address: &&IpAddr| {
            let bound = UdpSocket::bind((**address, 0));
            bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
        };
        match self.interfaces.iter().find(lacks) {
            Some(address) => Err(DdsError::Interface(*address)),
            None => Ok(()),
        }
    }
}

/// The identity of a participant, writer or reader (RTPS 2.5, clause 8.2.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// The part that all writers and readers of one participant share.
    #[must_use]
    pub fn prefix(&self) -> [u8; 12] {
        let mut prefix = [0; 12];
        prefix.copy_from_slice(&self.0[..12]);
        prefix
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if index == 12 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A topic and the type of its samples.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// The scoped name of the IDL type, such as `chappe::Octets`. Empty, for a reader only: the types of its writers,
    /// whatever they are.
    pub type_name: String,
}

impl Topic {
    /// A topic whose type its writers announce.
    #[must_use]
    pub fn of_any_type(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            type_name: String::new(),
        }
    }

    /// Checks the names, as far as a reader needs them.
    pub(crate) fn check_for_reader(&self) -> Result<(), DdsError> {
        match self.type_name.is_empty() {
            // Any valid name, so that only that of the topic is checked.
            true => Self {
                name: self.name.clone(),
                type_name: "any".into(),
            }
            .check(),
            false => self.check(),
        }
    }

    /// Checks the names.
    ///
    /// # Errors
    /// The first invalid name.
    pub fn check(&self) -> Result<(), DdsError> {
        let fits = |name: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"_/:.-".contains(&b);
            (1..=TOPIC_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
        };
        for (what, name) in [("topic", &self.name), ("type name", &self.type_name)] {
            if !fits(name) {
                let name = name.chars().take(64).collect();
                return Err(DdsError::Name { what, name });
            }
        }
        Ok(())
    }
}

/// The byte order of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endian {
    /// Little-endian.
    #[default]
    Little,
    /// Big-endian.
    Big,
}

/// The encoding of a sample (DDS-XTypes 1.3, clause 7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Version 1: members in their order.
    #[default]
    Plain1,
    /// Version 1: members with their identifiers.
    Parameters1,
    /// Version 2: members in their order.
    Plain2,
    /// Version 2: members in their order, after their size.
    Delimited2,
    /// Version 2: members with their identifiers.
    Parameters2,
}

/// A sample in CDR, without the four bytes of encapsulation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payload {
    /// The byte order; local writers use little-endian.
    pub endian: Endian,
    /// The encoding; that of Chappe's own types is plain CDR of version 1.
    pub encoding: Encoding,
    /// The bytes.
    pub bytes: Bytes,
}

/// The encodings by their encapsulation in big-endian; little-endian is one more (DDS-XTypes 1.3, table 60).
#[cfg(cyclone)]
const ENCAPSULATIONS: [(u8, Encoding); 5] = [
    (0x0, Encoding::Plain1),
    (0x2, Encoding::Parameters1),
    (0x6, Encoding::Plain2),
    (0x8, Encoding::Delimited2),
    (0xa, Encoding::Parameters2),
];

#[cfg(cyclone)]
impl Payload {
    /// A payload with this second byte of its encapsulation.
    pub(crate) fn of(encapsulation: i32, bytes: Bytes) -> Self {
        let big = u8::try_from(encapsulation & !1).unwrap_or_default();
        let known = ENCAPSULATIONS.iter().find(|(code, _)| *code == big);
        Self {
            endian: match encapsulation & 1 {
                1 => Endian::Little,
                _ => Endian::Big,
            },
            encoding: known.map(|(_, encoding)| *encoding).unwrap_or_default(),
            bytes,
        }
    }

    /// The second byte of its encapsulation.
    pub(crate) fn encapsulation(&self) -> u8 {
        let known = ENCAPSULATIONS
            .iter()
            .find(|(_, encoding)| *encoding == self.encoding);
        let code = known.map_or(0, |(code, _)| *code);
        code + u8::from(self.endian == Endian::Little)
    }
}

/// A received sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The GUID of its writer.
    pub writer: Guid,
    /// Its sequence number at that writer, from 1.
    pub number: i64,
    /// The time at which it was written, by its writer, in nanoseconds since 1970; 0 or less: unknown.
    pub source_time_ns: i64,
    /// The type that its writer announced, for a reader of any type.
    pub of: Option<Arc<Structure>>,
    /// How the fields that its writer announced differ from those of the reader ([`Qos::fields`]): its content is of
    /// another type then.
    pub differences: Option<Arc<str>>,
    /// Its content.
    pub payload: Payload,
}

/// What a writer or reader announced about its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnouncedType {
    /// Its name only.
    Name,
    /// Its hash, by which [`Participant::type_of`] requests it.
    Hash(TypeHash),
    /// All of it: one of Chappe's own types.
    Known(Arc<Structure>),
}

/// A writer or reader elsewhere in the domain, as it was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEnd {
    /// Its GUID.
    pub guid: Guid,
    /// Whether it is a writer.
    pub writes: bool,
    /// The topic.
    pub topic: Topic,
    /// Its quality of service.
    pub announced: Announced,
    /// Its partitions; empty: the default one.
    pub partitions: Vec<String>,
    /// What it announced about its type.
    pub of: AnnouncedType,
    /// The name of its participant.
    pub peer: Option<String>,
}

/// A sample that all matched readers have acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its number, as returned by [`Writer::write`].
    pub number: u64,
    /// Its bytes.
    pub bytes: usize,
    /// The time from the write until the acknowledgement was seen.
    pub delay: Duration,
}

/// An event of discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A participant was found.
    PeerFound {
        /// Its GUID.
        guid: Guid,
        /// Its name.
        name: Option<String>,
    },
    /// A participant left, or was silent for longer than its lease.
    PeerLost {
        /// The first 12 bytes of its GUID.
        prefix: [u8; 12],
    },
    /// A local end and a remote one match.
    Matched {
        /// The local writer or reader.
        here: Guid,
        /// The remote reader or writer.
        there: Guid,
    },
    /// A pair no longer matches.
    Unmatched {
        /// The local writer or reader.
        here: Guid,
        /// The remote reader or writer.
        there: Guid,
    },
    /// The library has reported warnings or errors.
    Warnings {
        /// Their number since the last event of this kind.
        count: u64,
        /// The newest ones of the participant, oldest first.
        newest: Vec<String>,
    },
    /// There are too many remote writers and readers, or of one participant: the library has forgotten one.
    EndDropped {
        /// Its topic.
        topic: String,
        /// Which one, and the limit.
        detail: String,
    },
    /// A remote end has the same topic, but no sample is transferred or used.
    Mismatch(Box<Mismatch>),
}

/// Two ends of a topic that are incompatible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The local writer or reader.
    pub here: Guid,
    /// The remote reader or writer.
    pub there: Guid,
    /// The name of the remote participant.
    pub peer: Option<String>,
    /// In what they are incompatible.
    pub kind: MismatchKind,
}

/// In what two ends are incompatible.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MismatchKind {
    /// The writer offers less than the reader requests.
    Qos {
        /// The values offered by the writer.
        offered: Announced,
        /// The values requested by the reader.
        requested: Announced,
    },
    /// Their types have different fields: the differences of the remote ones from the local ones.
    Fields(Vec<String>),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, peer) = (self.there, self.peer.as_deref().unwrap_or("a peer"));
        write!(f, "{peer} ({there}) ")?;
        match &self.kind {
            MismatchKind::Qos { offered, requested } => {
                let missed = match offered.misses(requested) {
                    missed if missed.is_empty() => "another policy".to_owned(),
                    missed => missed.join(", "),
                };
                write!(
                    f,
                    "is incompatible in {missed}: the writer offers {offered}, the reader requests {requested}"
                )
            }
            MismatchKind::Fields(differences) => {
                write!(f, "has other fields: {}", differences.join("; "))
            }
        }
    }
}

/// A participant in a domain.
pub trait Participant: Send {
    /// Its GUID.
    fn guid(&self) -> Guid;

    /// Creates a writer.
    ///
    /// # Errors
    /// The topic or quality of service is invalid, or the library fails.
    fn writer(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Writer>, DdsError>;

    /// Creates a reader.
    ///
    /// # Errors
    /// The topic or quality of service is invalid, or the library fails.
    fn reader(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Reader>, DdsError>;

    /// Waits for a sample, an acknowledgement, a discovery event, a call of [`Self::waker`], or the timeout.
    /// May return early.
    ///
    /// # Errors
    /// The library failed; the participant is then unusable.
    fn wait(&mut self, timeout: Duration) -> Result<(), DdsError>;

    /// Wakes [`Self::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// The next discovery event. Call it after each [`Self::wait`] until it returns `None`: writers and readers
    /// learn their matches from it.
    fn event(&mut self) -> Option<Event>;

    /// The writers and readers found elsewhere in the domain.
    fn remote_ends(&self) -> Vec<RemoteEnd>;

    /// The announced type of a writer or reader; `None` while it is being requested.
    ///
    /// # Errors
    /// The type cannot be read.
    fn type_of(&self, hash: &TypeHash) -> Result<Option<Arc<Structure>>, TypeError>;
}

/// Writes samples of one topic.
pub trait Writer: Send {
    /// Its GUID.
    fn guid(&self) -> Guid;

    /// Writes a sample and returns its number, which starts at 1 and increases by one. Does not block. A batched writer
    /// may send it only when it is flushed.
    ///
    /// # Errors
    /// [`WriteError::Full`] if [`Qos::window`] samples or [`UNACKNOWLEDGED_BYTES_MAX`] are unacknowledged.
    fn write(&mut self, payload: &Payload) -> Result<u64, WriteError>;

    /// Sends the samples that a batched writer has collected.
    ///
    /// # Errors
    /// The library failed.
    fn flush(&mut self) -> Result<(), DdsError>;

    /// The exact number of samples not acknowledged by all matched reliable readers. Zero without such a
    /// reader, and for a best-effort writer.
    fn unacknowledged(&mut self) -> u64;

    /// The samples acknowledged since the last call, in order.
    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged));

    /// The bytes retransmitted since the last call, for each matching reader on average. They are counted when
    /// acknowledgements are read.
    fn retransmitted_bytes(&mut self) -> u64;

    /// The number of matching readers.
    fn matched(&self) -> usize;
}

/// The unacknowledged bytes of a reliable writer.
#[cfg(cyclone)]
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged(usize);

#[cfg(cyclone)]
impl Unacknowledged {
    /// Whether a sample of this size fits.
    pub(crate) const fn has_room(&self, bytes: usize) -> bool {
        self.0 + bytes + ADDED_BYTES <= UNACKNOWLEDGED_BYTES_MAX
    }

    pub(crate) const fn add(&mut self, bytes: usize) {
        self.0 += bytes + ADDED_BYTES;
    }

    pub(crate) const fn remove(&mut self, bytes: usize) {
        self.0 -= bytes + ADDED_BYTES;
    }
}

/// Reads samples of one topic.
pub trait Reader: Send {
    /// Its GUID.
    fn guid(&self) -> Guid;

    /// Takes at most `most` received samples, in the order of each writer.
    ///
    /// # Errors
    /// The library failed.
    fn take(&mut self, most: usize, into: &mut Vec<Sample>) -> Result<(), DdsError>;

    /// The number of matching writers.
    fn matched(&self) -> usize;

    /// Faults found since the last call, of a reader of any type: writers whose type cannot be read.
    fn faults(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// When to take again although nothing has happened, of a reader that waits for a type.
    fn look_again(&self) -> Option<Duration> {
        None
    }

    /// The number of lost samples: gaps after the first number of each writer, and all numbers before it if the reader
    /// was full.
    fn lost(&self) -> u64;
}

/// Writes a sample, and waits for room for at most `most`. Returns its number and the time it waited. Processes
/// discovery events meanwhile.
///
/// # Errors
/// [`WriteError::Full`] if there was no room in that time.
pub fn write_within(
    participant: &mut dyn Participant,
    writer: &mut dyn Writer,
    payload: &Payload,
    most: Duration,
) -> Result<(u64, Duration), WriteError> {
    let begun = Instant::now();
    loop {
        match writer.write(payload) {
            Err(WriteError::Full(unacknowledged)) => {
                let left = most.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return Err(WriteError::Full(unacknowledged));
                }
                writer.flush()?;
                participant.wait(left)?;
                while participant.event().is_some() {}
            }
            written => return written.map(|number| (number, begun.elapsed())),
        }
    }
}
