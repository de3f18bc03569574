//! What goes wrong, and whose fault it is.

use crate::wire::DATAGRAM_BYTES_MAX;

/// A datagram or event that is not of the format: its sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It ends too soon.
    #[error("the datagram ends too soon")]
    Short,
    /// It goes on after its end.
    #[error("the datagram goes on after its end")]
    Long,
    /// Larger than any may be.
    #[error("the datagram is larger than {} bytes", DATAGRAM_BYTES_MAX)]
    TooLarge,
    /// A number that is too large, or not in its shortest form.
    #[error("a number is too large or not in its shortest form")]
    Number,
    /// Not of this protocol, or of another version of it.
    #[error("not a datagram of this protocol and version")]
    Protocol,
    /// A kind of message, plan or address that is not known.
    #[error("a kind that is not known")]
    Kind,
    /// A range of sinks that is empty or reversed, or what lies outside of it.
    #[error("a range of sinks is empty, reversed, or left")]
    Range,
    /// A list of sinks that names one twice.
    #[error("the list names a sink twice")]
    Repeated,
    /// A list of sinks with an address that is nobody's.
    #[error("the list has an address that is not of one host")]
    Address,
}

/// What the caller asked for and cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The event's body does not fit a datagram.
    #[error("the body has {bytes} bytes, at most {most} fit a datagram")]
    TooLarge {
        /// Bytes of the body.
        bytes: usize,
        /// Bytes that fit.
        most: usize,
    },
    /// The topic is not known.
    #[error("topic {topic:#x} is not known here")]
    Topic {
        /// The topic.
        topic: u64,
    },
    /// The membership is not of this topic, not newer, or too large.
    #[error("the membership cannot be used: {0}")]
    Membership(&'static str),
    /// Too many topics, or events under way at once.
    #[error("no room for another {what}: at most {most}")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
}

impl Error {
    /// What the caller can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge { .. } => {
                Some("send a compact body, or a reference to where the whole can be fetched")
            }
            Self::Topic { .. } => Some("give the topic by Command::Source or Command::Subscribe"),
            Self::Membership(_) => None,
            Self::Full { .. } => Some("wait for the outcome of earlier events, or raise the limit"),
        }
    }
}
