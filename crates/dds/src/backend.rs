//! The face that all DDS libraries have here: a participant, its writers and readers.
//!
//! Samples are bytes in CDR; types are above ([`crate::ElementType`], [`crate::Octets`]). One thread
//! owns a participant and what it made; nothing blocks but [`Participant::wait`].

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::str::FromStr;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::qos::Announced;
use crate::{DdsError, Qos, WriteError};

/// The highest domain whose ports are port numbers (RTPS 2.5, clause 9.6.2.3).
pub const DOMAIN_MAX: u16 = 232;
/// Longest name of a topic or type in bytes; reason: the standard allows 255 with their ends.
pub const TOPIC_BYTES_MAX: usize = 255;
/// Largest sample in bytes; reason: above it the largest record of a stream ends, too.
pub const SAMPLE_BYTES_MAX: usize = 4 << 20;
/// Bytes that a reliable writer may have unacknowledged, whatever its window; reason: a reader of RustDDS
/// that holds as many samples as it may gives up one that is missing when 16 MiB have come after the first
/// that waits behind it. These are not older than a window before that one, and not newer than a window
/// behind it.
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 15 << 19;
/// What the library adds to each at most.
#[cfg(any(feature = "rustdds", feature = "cyclone"))]
const ADDED_BYTES: usize = 8;

/// A DDS library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Backend {
    /// RustDDS: RTPS in Rust.
    #[default]
    Rustdds,
    /// Cyclone DDS: the C library of the system.
    #[cfg(feature = "cyclone")]
    Cyclone,
}

impl Backend {
    /// The word in configuration and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rustdds => "rustdds",
            #[cfg(feature = "cyclone")]
            Self::Cyclone => "cyclone",
        }
    }
}

impl FromStr for Backend {
    type Err = DdsError;

    fn from_str(word: &str) -> Result<Self, DdsError> {
        match word {
            "rustdds" => Ok(Self::Rustdds),
            #[cfg(feature = "cyclone")]
            "cyclone" => Ok(Self::Cyclone),
            _ => Err(DdsError::Qos {
                key: "library",
                why: format!("{word:?} is none that this program was built with"),
            }),
        }
    }
}

/// Where a participant takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParticipantConfig {
    /// The domain: participants of different domains do not see each other.
    pub domain: u16,
    /// Addresses of this host by which it takes part: it announces itself at these only, and sends
    /// and joins multicast on their interfaces only. With 127.0.0.1 alone no multicast is used.
    pub interfaces: Vec<IpAddr>,
}

impl Default for ParticipantConfig {
    /// Domain 0, loopback only.
    fn default() -> Self {
        Self {
            domain: 0,
            interfaces: vec![Ipv4Addr::LOCALHOST.into()],
        }
    }
}

impl ParticipantConfig {
    /// Checks what can be checked without the network.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
            None => Ok(()),
        }
    }

    /// Checks that this host has the addresses in [`interfaces`](Self::interfaces).
    ///
    /// # Errors
    /// The first that it lacks.
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

/// Who a participant, writer or reader is (RTPS 2.5, clause 8.2.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// What all writers and readers of one participant share.
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
    /// The scoped name of the IDL type, such as `chappe::Octets`.
    pub type_name: String,
}

impl Topic {
    /// Checks the names.
    ///
    /// # Errors
    /// The first that DDS does not take.
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

    /// Whether every library that there may be below takes the name: what [`Topic::check`] lets through
    /// besides, Cyclone DDS refuses.
    #[must_use]
    pub fn is_for_every_library(&self) -> bool {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_/".contains(&b);
        let first = self.name.bytes().next();
        self.check().is_ok()
            && self.name.bytes().all(plain)
            && first.is_some_and(|b| !b.is_ascii_digit())
    }
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endian {
    /// The lowest first.
    #[default]
    Little,
    /// The highest first.
    Big,
}

/// A sample in CDR (the plain encoding of version 1), without the four bytes of encapsulation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Payload {
    /// The order of its bytes; writers here write the lowest first.
    pub endian: Endian,
    /// The bytes.
    pub bytes: Bytes,
}

/// A sample that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Who wrote it.
    pub writer: Guid,
    /// Its number at that writer, from 1.
    pub number: i64,
    /// What it says.
    pub payload: Payload,
}

/// A sample that all readers have acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its number, as [`Writer::write`] gave it.
    pub number: u64,
    /// Its bytes.
    pub bytes: usize,
    /// From writing it to seeing that it was acknowledged.
    pub delay: Duration,
}

/// What discovery says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A participant was found.
    PeerFound {
        /// Who.
        guid: Guid,
        /// What it calls itself.
        name: Option<String>,
    },
    /// A participant is gone, or silent for longer than it said that it would be.
    PeerLost {
        /// Its GUID's first 12 bytes.
        prefix: [u8; 12],
    },
    /// An end here and one elsewhere fit.
    Matched {
        /// The writer or reader here.
        here: Guid,
        /// The reader or writer there.
        there: Guid,
    },
    /// They do no more.
    Unmatched {
        /// The writer or reader here.
        here: Guid,
        /// The reader or writer there.
        there: Guid,
    },
    /// An end elsewhere has the same topic, and what the writer offers is less than the reader
    /// requests: no sample flows.
    QosMismatch(Box<QosMismatch>),
}

/// Two ends that do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QosMismatch {
    /// The writer or reader here.
    pub here: Guid,
    /// The reader or writer there.
    pub there: Guid,
    /// What the participant there calls itself.
    pub peer: Option<String>,
    /// What the writer offers.
    pub offered: Announced,
    /// What the reader requests.
    pub requested: Announced,
}

impl fmt::Display for QosMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, peer) = (self.there, self.peer.as_deref().unwrap_or("a peer"));
        let missed = match self.offered.misses(&self.requested) {
            missed if missed.is_empty() => "another policy".to_owned(),
            missed => missed.join(", "),
        };
        write!(
            f,
            "{peer} ({there}) does not fit in {missed}: the writer offers {}, the reader requests {}",
            self.offered, self.requested
        )
    }
}

/// One's presence in a domain.
pub trait Participant: Send {
    /// Who it is.
    fn guid(&self) -> Guid;

    /// Makes a writer.
    ///
    /// # Errors
    /// What is wrong with topic or quality, or what the library says.
    fn writer(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Writer>, DdsError>;

    /// Makes a reader.
    ///
    /// # Errors
    /// What is wrong with topic or quality, or what the library says.
    fn reader(&mut self, topic: &Topic, qos: &Qos) -> Result<Box<dyn Reader>, DdsError>;

    /// Waits until a sample came, one was acknowledged, discovery says something, [`Self::waker`]
    /// was called, or the time has passed. It may return without any of them.
    ///
    /// # Errors
    /// What the library says; the participant is then of no more use.
    fn wait(&mut self, timeout: Duration) -> Result<(), DdsError>;

    /// Ends [`Self::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// What discovery says next. To be called until nothing is left, after each [`Self::wait`]: the
    /// ends learn from it what matches them.
    fn event(&mut self) -> Option<Event>;
}

/// Writes samples of one topic.
pub trait Writer: Send {
    /// Who it is.
    fn guid(&self) -> Guid;

    /// Writes a sample, and answers its number: 1 and rising by one. It does not block.
    ///
    /// # Errors
    /// [`WriteError::Full`] when [`Qos::window`] samples or [`UNACKNOWLEDGED_BYTES_MAX`] are not
    /// acknowledged.
    fn write(&mut self, payload: &Payload) -> Result<u64, WriteError>;

    /// Samples written and not acknowledged by all matched reliable readers: exact. Nothing while
    /// there is no such reader, and of a writer that is best effort.
    fn unacknowledged(&mut self) -> u64;

    /// What was acknowledged since the last call, in order.
    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged));

    /// Readers that match it.
    fn matched(&self) -> usize;
}

/// How much a reliable writer has unacknowledged.
#[cfg(any(feature = "rustdds", feature = "cyclone"))]
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged(usize);

#[cfg(any(feature = "rustdds", feature = "cyclone"))]
impl Unacknowledged {
    /// Whether a sample of so many bytes may be added.
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
    /// Who it is.
    fn guid(&self) -> Guid;

    /// Takes what came, at most `most` samples, in the order of each writer.
    ///
    /// # Errors
    /// What the library says.
    fn take(&mut self, most: usize, into: &mut Vec<Sample>) -> Result<(), DdsError>;

    /// Writers that match it.
    fn matched(&self) -> usize;

    /// Samples that were passed over: numbers missing behind the first of each writer.
    fn lost(&self) -> u64;
}

/// Writes a sample, waiting for room for no longer than `most`; answers its number and how long it
/// was held up. What discovery says meanwhile is read.
///
/// # Errors
/// [`WriteError::Full`] when there was no room in that time.
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
                participant.wait(left)?;
                while participant.event().is_some() {}
            }
            written => return written.map(|number| (number, begun.elapsed())),
        }
    }
}
