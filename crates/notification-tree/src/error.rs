//! Errors, by fault: malformed input of a peer, or misuse by the caller.

use crate::wire::DATAGRAM_BYTES_MAX;

/// A malformed datagram or event: the fault of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The datagram is truncated.
    #[error("the datagram is truncated")]
    Short,
    /// Bytes follow the end of the message.
    #[error("the datagram has trailing bytes")]
    Long,
    /// The datagram exceeds the size limit.
    #[error("the datagram is larger than {} bytes", DATAGRAM_BYTES_MAX)]
    TooLarge,
    /// A number is too large or not in its shortest form.
    #[error("a number is too large or not in its shortest form")]
    Number,
    /// Another protocol, or another version of this one.
    #[error("not a datagram of this protocol and version")]
    Protocol,
    /// The kind of message, plan or address is unknown.
    #[error("the kind of message, plan or address is unknown")]
    Kind,
    /// A range of sinks is empty or reversed, or an index lies outside it.
    #[error("a range of sinks is empty or reversed, or an index lies outside it")]
    Range,
    /// A list of sinks names one twice.
    #[error("the list names a sink twice")]
    Repeated,
    /// A list of sinks has an address that cannot belong to one host.
    #[error("the list has an address that cannot belong to one host")]
    Address,
}

/// A command that cannot be followed: the fault of the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The event's body does not fit a datagram.
    #[error("the body has {bytes} bytes, at most {most} fit a datagram")]
    TooLarge {
        /// Bytes of the body.
        bytes: usize,
        /// The largest number of bytes that fits.
        most: usize,
    },
    /// The topic is unknown.
    #[error("topic {topic:#x} is unknown to this node")]
    Topic {
        /// The topic.
        topic: u64,
    },
    /// The membership is of another topic, outdated or too large.
    #[error("the membership cannot be used: {0}")]
    Membership(&'static str),
    /// Too many topics, or events under way at once.
    #[error("no room for another {what}: at most {most}")]
    Full {
        /// The limited items.
        what: &'static str,
        /// The limit.
        most: usize,
    },
}

impl Error {
    /// A remedy for the caller, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge { .. } => {
                Some("send a compact body, or a reference from which the full data can be fetched")
            }
            Self::Topic { .. } => {
                Some("add the topic with Command::Publisher or Command::Subscribe")
            }
            Self::Membership(_) => None,
            Self::Full { .. } => Some("wait for the outcome of earlier events, or raise the limit"),
        }
    }
}
