//! Errors of links.

use chappe_stream::StoreError;

/// A link that cannot be made, or one of its letters that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The configuration is wrong.
    #[error("{key}: {why}")]
    Config {
        /// The key that is to be changed.
        key: &'static str,
        /// The fault.
        why: String,
    },
    /// There is a link of this name.
    #[error("there is a link {0:?} already")]
    Exists(String),
    /// There is none of this name.
    #[error("there is no link {0:?}")]
    Unknown(String),
    /// There are as many as allowed.
    #[error("there are {0} links already, which is the limit")]
    TooMany(usize),
    /// There is no dead letter of this number.
    #[error("there is no dead letter {0}")]
    NoLetter(u64),
    /// The dead letter still does not fit.
    #[error("dead letter {number} still does not fit: {why}")]
    StillDead {
        /// Its number.
        number: u64,
        /// Why.
        why: String,
    },
    /// Another link feeds a stream.
    #[error("stream {stream} is fed by link {link} here")]
    Fed {
        /// The stream here.
        stream: String,
        /// The other link.
        link: String,
    },
    /// The host refuses a stream.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The log refuses or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This program was built or started without what the link needs.
    #[error("{0}")]
    Unsupported(String),
}

impl LinkError {
    /// Whether it is about one stream, and the link's others may go on.
    pub(crate) fn is_of_stream(&self) -> bool {
        match self {
            Self::Fed { .. } => true,
            Self::Host(error) => !error.transient,
            _ => false,
        }
    }

    /// The text, with the remedy.
    pub(crate) fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }

    /// The remedy, if it is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists(_) => Some("take another name, or remove that one first".to_owned()),
            Self::Unknown(_) => Some("see `chappe link list`".to_owned()),
            Self::TooMany(_) => Some("remove one; a link may carry many streams".to_owned()),
            Self::Fed { .. } => {
                Some("remove one of the two links, or give this one an as_prefix".to_owned())
            }
            Self::Config {
                key: "fingerprint", ..
            } => Some(
                "`chappe key show` on the origin's host prints it; `chappe link add` takes it as \
                 --origin-fingerprint, or --origin-authorities FILE"
                    .to_owned(),
            ),
            Self::Config {
                key: "server_key", ..
            } => Some(
                "`chappe key show` on the origin's host prints its CURVE key; `chappe link add` takes \
                 it as --server-key"
                    .to_owned(),
            ),
            Self::Config { key: "contact", .. } => Some(
                "`self_signed = true` under [http.tls] of this node, and contact = \"https://ADDRESS:PORT\""
                    .to_owned(),
            ),
            Self::StillDead { .. } => {
                Some("remove the cause that is named, or discard the letter".to_owned())
            }
            _ => None,
        }
    }
}

/// The host does not give a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct HostError {
    /// Why.
    pub text: String,
    /// Whether another try may succeed without anything being changed.
    pub transient: bool,
}

/// An HTTP request that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {text}")]
pub struct HttpRefusal {
    /// The status.
    pub status: u16,
    /// A constant text, for counters.
    pub reason: &'static str,
    /// The fault.
    pub text: String,
    /// The remedy, if it is known.
    pub hint: Option<String>,
}

impl HttpRefusal {
    pub(crate) fn new(status: u16, reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            text: text.into(),
            hint: None,
        }
    }
}
