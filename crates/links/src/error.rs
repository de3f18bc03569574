//! Errors of links.

use chappe_stream::StoreError;

/// A link that cannot be created, or a dead letter that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The configuration is invalid.
    #[error("{key}: {why}")]
    Config {
        /// The key to change.
        key: &'static str,
        /// The fault.
        why: String,
    },
    /// A link of this name exists already.
    #[error("link {0:?} already exists")]
    Exists(String),
    /// No link has this name.
    #[error("there is no link {0:?}")]
    Unknown(String),
    /// The limit of links is reached.
    #[error("the limit of {0} links is reached")]
    TooMany(usize),
    /// No dead letter has this number.
    #[error("there is no dead letter {0}")]
    NoLetter(u64),
    /// The dead letter still does not fit.
    #[error("dead letter {number} still does not fit: {why}")]
    StillDead {
        /// Its number.
        number: u64,
        /// The reason.
        why: String,
    },
    /// Another link feeds the stream.
    #[error("link {link} already feeds stream {stream}")]
    Fed {
        /// The stream here.
        stream: String,
        /// The other link.
        link: String,
    },
    /// The host refuses the stream.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The log refused a change or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This program was built or started without a feature that the link needs.
    #[error("{0}")]
    Unsupported(String),
}

impl LinkError {
    /// Whether the error concerns one stream, so that the link's others continue.
    pub(crate) fn is_of_stream(&self) -> bool {
        match self {
            Self::Fed { .. } => true,
            Self::Host(error) => !error.transient,
            _ => false,
        }
    }

    /// The message, with its hint.
    pub(crate) fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }

    /// The hint, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists(_) => Some("use another name, or remove that link first".to_owned()),
            Self::Unknown(_) => Some("list the links with `chappe link list`".to_owned()),
            Self::TooMany(_) => Some("remove a link; one link can carry many streams".to_owned()),
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
                Some("fix the cause, or discard the letter".to_owned())
            }
            _ => None,
        }
    }
}

/// The host refuses a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct HostError {
    /// The reason.
    pub text: String,
    /// Whether a retry can succeed without a change of configuration.
    pub transient: bool,
}

/// A refused HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {text}")]
pub struct HttpRefusal {
    /// The HTTP status.
    pub status: u16,
    /// A constant text, for counters.
    pub reason: &'static str,
    /// The fault.
    pub text: String,
    /// The hint, if there is one.
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
