//! Errors of DDS, by fault.

use std::net::IpAddr;

/// A failed operation of DDS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DdsError {
    /// The domain has no valid RTPS ports.
    #[error("domain {0} is above {max}", max = crate::DOMAIN_MAX)]
    Domain(u16),
    /// The address is not one of this host, so peers could not reach it.
    #[error("{0} is not an IPv4 address of this host")]
    Interface(IpAddr),
    /// An invalid name for DDS.
    #[error("{name:?} is not a valid {what}: 1 to {max} of letters, digits, `_`, `/`, `:`, `.` and `-`", max = crate::TOPIC_BYTES_MAX)]
    Name {
        /// Topic or type.
        what: &'static str,
        /// The given name.
        name: String,
    },
    /// The program was built without the library.
    #[error("this program was built without DDS")]
    Missing,
    /// Invalid quality of service, with the key to change.
    #[error("{key}: {why}")]
    Qos {
        /// The key.
        key: &'static str,
        /// The reason.
        why: String,
    },
    /// A setting of `[dds.security]` or its file is unusable.
    #[error("dds.security.{key}: {why}")]
    Security {
        /// The setting.
        key: &'static str,
        /// The reason.
        why: String,
        /// The remedy.
        hint: &'static str,
    },
    /// The library refused or failed. Its participant may be unusable.
    #[error("{doing}: {why}")]
    Library {
        /// The operation.
        doing: &'static str,
        /// The error of the library.
        why: String,
    },
    /// The thread that calls the library panicked; the participant is unusable.
    #[error("the thread of the participant panicked: {why}")]
    Panic {
        /// The panic message.
        why: String,
    },
}

impl DdsError {
    /// The setting to change, by its path in the node's configuration.
    #[must_use]
    pub fn setting(&self) -> String {
        match self {
            Self::Security { key, .. } => format!("dds.security.{key}"),
            Self::Domain(_) => "dds.domain".to_owned(),
            _ => "dds.interfaces".to_owned(),
        }
    }

    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Interface(_) => {
                Some("list the addresses: ip -4 address; 127.0.0.1 is for this host only")
            }
            Self::Security { hint, .. } => Some(hint),
            Self::Missing => Some("build it again where CMake and a C compiler are installed"),
            Self::Domain(_) => Some("use the same domain on both sides of a topic; 0 is usual"),
            Self::Panic { .. } => {
                Some("create a new participant; a supervised one is replaced automatically")
            }
            _ => None,
        }
    }
}

/// A sample could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The limit on unacknowledged samples is reached; retry the same sample later.
    #[error("{0} samples are unacknowledged, which is the limit")]
    Full(u64),
    /// The sample exceeds the size limit.
    #[error("a sample of {bytes} bytes is above {max}", max = crate::SAMPLE_BYTES_MAX)]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// The library failed.
    #[error(transparent)]
    Dds(#[from] DdsError),
}

/// Bytes that are not valid CDR of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdrError {
    /// The payload is too short.
    #[error("the payload needs {wanted} bytes at offset {offset}, but has {left}")]
    Short {
        /// The offset.
        offset: usize,
        /// The required bytes.
        wanted: usize,
        /// The remaining bytes.
        left: usize,
    },
    /// A value that the type does not allow.
    #[error("{what} at {offset}")]
    Value {
        /// The offset after it.
        offset: usize,
        /// The problem.
        what: &'static str,
    },
    /// The payload is longer than the type.
    #[error("the payload has {left} trailing bytes at offset {offset}")]
    Long {
        /// The offset.
        offset: usize,
        /// The trailing bytes.
        left: usize,
    },
}
