//! What goes wrong with DDS, and whose fault it is.

use std::net::IpAddr;

/// DDS could not be used as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DdsError {
    /// A domain beyond what the port numbers of RTPS allow.
    #[error("domain {0} is above {max}", max = crate::DOMAIN_MAX)]
    Domain(u16),
    /// No address of this host, so that nobody would be reached by it.
    #[error("{0} is not an IPv4 address of this host")]
    Interface(IpAddr),
    /// A name that DDS does not take.
    #[error("{name:?} is no {what}: 1 to {max} of letters, digits, `_`, `/`, `:`, `.` and `-`", max = crate::TOPIC_BYTES_MAX)]
    Name {
        /// Topic or type.
        what: &'static str,
        /// What was given.
        name: String,
    },
    /// A topic's name that DDS takes and Cyclone DDS does not.
    #[error("{0:?} is no topic for Cyclone DDS: letters, digits, `_` and `/`, no digit first")]
    CycloneName(String),
    /// A quality of service that makes no sense, with the key to change.
    #[error("{key}: {why}")]
    Qos {
        /// The key.
        key: &'static str,
        /// Why.
        why: String,
    },
    /// The library refused or failed. Its participant may be of no more use.
    #[error("{doing}: {why}")]
    Library {
        /// What was done.
        doing: &'static str,
        /// What it says.
        why: String,
    },
    /// The library panicked, which it should not; the participant is of no more use.
    #[error("the library panicked while {doing}: {why}")]
    Panic {
        /// What was done.
        doing: &'static str,
        /// What it said.
        why: String,
    },
}

impl DdsError {
    /// What can be done about it, when that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Interface(_) => Some("`ip -4 address` lists what there is; 127.0.0.1 stays here"),
            Self::CycloneName(_) => {
                Some("name it otherwise at both ends, or use `library = \"rustdds\"`")
            }
            Self::Domain(_) => Some("both sides of a topic use the same domain; 0 is usual"),
            Self::Panic { .. } => {
                Some("make a new participant; a supervised one is made by itself")
            }
            _ => None,
        }
    }
}

/// A sample was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// As many are not acknowledged as may be: the same may be written a little later.
    #[error("{0} samples are not acknowledged, as many as may be")]
    Full(u64),
    /// Larger than is sent.
    #[error("a sample of {bytes} bytes is above {max}", max = crate::SAMPLE_BYTES_MAX)]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// The library failed.
    #[error(transparent)]
    Dds(#[from] DdsError),
}

/// Bytes that are not the CDR that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdrError {
    /// It ends too early.
    #[error("{wanted} bytes are wanted at {offset}, there are {left}")]
    Short {
        /// Where.
        offset: usize,
        /// Bytes that were wanted.
        wanted: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// Something else than the type allows.
    #[error("{what} at {offset}")]
    Value {
        /// Where it ends.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Longer than the type.
    #[error("{left} bytes are left at {offset}, behind the last member")]
    Long {
        /// Where.
        offset: usize,
        /// Bytes that are left.
        left: usize,
    },
}
