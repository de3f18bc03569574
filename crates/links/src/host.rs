//! The interface of the node to its links.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use chappe_identity::AddressPolicy;
use chappe_log::Level;
use chappe_stream::{Position, StreamLog, StreamSchema, Timestamp};
use serde::{Deserialize, Serialize};

use super::{DeadLetterReason, HostError, LossReason, Serialization};

/// The node, as its links see it. All calls return soon; none is made for each element.
pub trait LinkHost: Send + Sync + 'static {
    /// Creates or opens the stream `name` for what comes over `link`, and registers it. Called when
    /// the origin has announced the structure of its elements, and when that changed.
    ///
    /// # Errors
    /// Another source has a stream of this name, or there are too many.
    fn open(
        &self,
        link: &str,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<Opened, HostError>;

    /// Whether the stream `name` may be fed by `link`, as [`LinkHost::open`] would decide; asked before
    /// the origin is.
    ///
    /// # Errors
    /// Another source has a stream of this name.
    fn may_feed(&self, _link: &str, _name: &str) -> Result<(), HostError> {
        Ok(())
    }

    /// The stream of this name, if `reader` may read it.
    fn stream(&self, name: &str, reader: &Reader) -> Option<StreamLog>;

    /// All streams that `reader` may read, by name.
    fn directory(&self, reader: &Reader) -> Vec<DirectoryEntry>;

    /// Elements of `stream` will never come: so many that were not reported before, among the numbers at
    /// the origin from `from` up to before `next`.
    fn lost(
        &self,
        link: &str,
        stream: &str,
        reason: LossReason,
        elements: u64,
        numbers: (Position, u64),
    );

    /// The element of `stream` with this position at the origin became a dead letter. It may be reported
    /// again after a crash.
    fn dead_letter(
        &self,
        _stream: &str,
        _reason: DeadLetterReason,
        _origin: Position,
        _source_time: Timestamp,
    ) {
    }

    /// A dead letter was sent again and is stored in `stream`.
    fn sent_again(&self, _stream: &str, _origin: Position) {}

    /// Something happened that people should know.
    fn notice(&self, notice: LinkNotice);

    /// Something received was not used.
    fn dropped(&self, reason: &'static str, peer: &str, detail: String, hint: Option<String>);

    /// The policy on addresses that strangers give.
    fn address_policy(&self) -> AddressPolicy;

    /// Where origins reach this node over HTTP, for contact points: `http://ADDRESS:PORT`, or
    /// `https://ADDRESS:PORT` where it speaks TLS.
    fn contact_base(&self) -> Option<String> {
        None
    }

    /// The fingerprint of the certificate with which this node speaks TLS: origins that push to it
    /// trust that certificate.
    fn contact_fingerprint(&self) -> Option<String> {
        None
    }

    /// Whether elements may be pushed to `http://` contact points beyond loopback, where they can be
    /// read on the way.
    fn may_push_in_clear(&self) -> bool {
        false
    }

    /// Keeps the subscriptions by contact point that others have here over a restart, after which
    /// they are given to [`Links::http_restore`](super::Links::http_restore). Called when they have
    /// changed, at most every two seconds, and at the end; it may write a file.
    fn keep_subscriptions(&self, _: &[KeptSubscription]) {}

    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Random bytes.
    fn random(&self) -> u64;
}

/// A stream of the node for what comes over a link.
pub struct Opened {
    /// Where it is stored.
    pub log: StreamLog,
    /// Counts arriving elements.
    pub arrivals: Arc<dyn Arrivals>,
}

/// Counts what comes, of one stream; found once and not for each batch.
pub trait Arrivals: Send + Sync {
    /// So many elements came and are queued for storing, the last one of this source time.
    fn came(&self, elements: u64, newest: Timestamp);
}

/// A subscription as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSubscription {
    /// Its id.
    pub id: String,
    /// Its subscriber's secret; empty in files that were written before there was one.
    #[serde(default)]
    pub secret: String,
    /// The stream.
    pub stream: String,
    /// Where its elements go.
    pub contact_point: String,
    /// The fingerprint of the certificate there.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Who asked for it.
    pub reader: SocketAddr,
    /// Everything up to here is there.
    pub after: Position,
    /// How elements are written.
    pub serialization: Serialization,
}

/// Who reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reader {
    /// Where from, if it is a connection over the network.
    pub address: Option<SocketAddr>,
    /// Its proven public key (CURVE).
    pub key: Option<[u8; 32]>,
}

impl Reader {
    /// How it is shown and counted: by its key, or its address without the port.
    #[must_use]
    pub fn label(&self) -> String {
        match (self.key, self.address) {
            (Some(key), _) => key.iter().map(|byte| format!("{byte:02x}")).collect(),
            (None, Some(address)) => address.ip().to_string(),
            (None, None) => "this process".to_owned(),
        }
    }
}

/// A stream of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: String,
    /// What its elements look like.
    pub schema: StreamSchema,
    /// The version of that.
    pub schema_version: u32,
    /// How safely its elements are stored.
    pub level: Level,
    /// What brings it forth.
    pub source: Option<String>,
}

impl DirectoryEntry {
    /// The entry of a stream.
    #[must_use]
    pub fn of(log: &StreamLog) -> Self {
        Self {
            name: log.name().to_owned(),
            schema: log.schema(),
            schema_version: log.schema_version(),
            level: log.log().level(),
            source: log.origin(),
        }
    }
}

/// Something that people should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkNotice {
    /// The link carries elements.
    Connected {
        /// The link.
        link: String,
    },
    /// The link is down; it is tried again.
    Disconnected {
        /// The link.
        link: String,
        /// Why.
        why: String,
        /// What can be done.
        hint: Option<String>,
    },
    /// The origin, or this node, refuses a stream.
    Refused {
        /// The link.
        link: String,
        /// The stream, as the origin calls it.
        stream: String,
        /// Why.
        why: String,
    },
    /// The origin lost elements that are stored here: a restored backup, or lost data.
    Rollback {
        /// The link.
        link: String,
        /// The stream here.
        stream: String,
        /// What is stored here.
        have: String,
        /// The last that both have.
        kept: Option<String>,
        /// How it goes on.
        next: String,
    },
    /// Elements will never come.
    Lost {
        /// The link.
        link: String,
        /// The stream here.
        stream: String,
        /// Why.
        reason: LossReason,
        /// How many.
        elements: u64,
    },
    /// An element is among the dead letters.
    DeadLetter {
        /// The link.
        link: String,
        /// The stream here.
        stream: String,
        /// Why.
        why: String,
    },
}

impl LinkNotice {
    /// The link.
    #[must_use]
    pub fn link(&self) -> &str {
        match self {
            Self::Connected { link }
            | Self::Disconnected { link, .. }
            | Self::Refused { link, .. }
            | Self::Rollback { link, .. }
            | Self::Lost { link, .. }
            | Self::DeadLetter { link, .. } => link,
        }
    }
}

impl fmt::Display for LinkNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { link } => write!(f, "link {link} is connected"),
            Self::Disconnected { link, why, .. } => write!(f, "link {link} is down: {why}"),
            Self::Refused { link, stream, why } => {
                write!(f, "link {link}: stream {stream} is refused: {why}")
            }
            Self::Rollback {
                link,
                stream,
                have,
                kept,
                next,
            } => {
                let kept = kept.as_deref().unwrap_or("nothing that is here");
                write!(
                    f,
                    "link {link}: the origin of {stream} went back: it keeps {kept}, here is \
                     {have}; it goes on at {next}"
                )
            }
            Self::Lost {
                link,
                stream,
                reason,
                elements,
            } => {
                let reason = reason.as_str();
                write!(
                    f,
                    "link {link}: {elements} elements of {stream} are lost: {reason}"
                )
            }
            Self::DeadLetter { link, stream, why } => {
                write!(
                    f,
                    "link {link}: an element of {stream} is a dead letter: {why}"
                )
            }
        }
    }
}
