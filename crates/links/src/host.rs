//! The interface of the node to its links.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use chappe_identity::AddressPolicy;
use chappe_log::Level;
use chappe_stream::{Position, StreamLog, StreamSchema, Timestamp};
use serde::{Deserialize, Serialize};

use super::{DeadLetterReason, HostError, LossReason, Serialization};

/// The node as seen by its links. All calls return quickly; none is made per element.
pub trait LinkHost: Send + Sync + 'static {
    /// Creates or opens the stream `name` for elements of `link`, and registers it. Called when the
    /// origin has announced a structure, and when the structure changed.
    ///
    /// # Errors
    /// Another source has a stream of this name, or the limit of streams is reached.
    fn open(
        &self,
        link: &str,
        name: &str,
        schema: &StreamSchema,
        level: Option<Level>,
    ) -> Result<Opened, HostError>;

    /// Checks whether `link` may feed the stream `name`, by the rules of [`LinkHost::open`]; called
    /// before the origin is contacted.
    ///
    /// # Errors
    /// Another source has a stream of this name.
    fn may_feed(&self, _link: &str, _name: &str) -> Result<(), HostError> {
        Ok(())
    }

    /// The stream that has or had this name, if `reader` may read it.
    fn stream(&self, name: &str, reader: &Reader) -> Option<StreamLog>;

    /// Whether `name` still refers to the stream that was defined as `first`, and `reader` may still read it. Asked at
    /// least once a second for what is read over a session, by PUB or through a contact point, which ends when the
    /// answer is no. The removal of the stream ends them by itself.
    fn may_read(&self, _name: &str, _first: &str, _reader: &Reader) -> bool {
        true
    }

    /// All streams that `reader` may read, each once.
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

    /// Reports an event for operators.
    fn notice(&self, notice: LinkNotice);

    /// Reports received data that was not used.
    fn dropped(&self, reason: &'static str, peer: &str, detail: String, hint: Option<String>);

    /// The policy for addresses that other nodes supply.
    fn address_policy(&self) -> AddressPolicy;

    /// The address at which origins reach this node over HTTP, for contact points:
    /// `http://ADDRESS:PORT`, or `https://ADDRESS:PORT` with TLS.
    fn contact_base(&self) -> Option<String> {
        None
    }

    /// The fingerprint of this node's TLS certificate, which origins that push to it trust.
    fn contact_fingerprint(&self) -> Option<String> {
        None
    }

    /// Whether elements may be pushed to `http://` contact points beyond loopback, where others can
    /// read them.
    fn may_push_in_clear(&self) -> bool {
        false
    }

    /// Stores the subscriptions by contact point that other nodes have here; after a restart they
    /// are passed to [`Links::http_restore`](super::Links::http_restore). Called after changes, at
    /// most every two seconds, and at the end; it may write a file.
    fn keep_subscriptions(&self, _: &[KeptSubscription]) {}

    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// Random bytes.
    fn random(&self) -> u64;
}

/// A stream of the node that stores the elements of a link.
pub struct Opened {
    /// The stream's log.
    pub log: StreamLog,
    /// Counts arriving elements.
    pub arrivals: Arc<dyn Arrivals>,
}

/// Counts the arriving elements of one stream; looked up once, not per batch.
pub trait Arrivals: Send + Sync {
    /// Counts elements that are queued for storing, the newest of which has this source time.
    fn record_arrivals(&self, elements: u64, newest: Timestamp);
}

/// A subscription as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSubscription {
    /// Its id.
    pub id: String,
    /// Its subscriber's secret; empty in files from before secrets existed.
    #[serde(default)]
    pub secret: String,
    /// The stream.
    pub stream: String,
    /// The address for its elements.
    pub contact_point: String,
    /// The fingerprint of the certificate there.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// The address of the subscriber.
    pub reader: SocketAddr,
    /// The account of the subscriber; see [`Reader::account`].
    #[serde(default)]
    pub account: Option<String>,
    /// Everything up to this position was delivered.
    pub after: Position,
    /// The serialization of elements.
    pub serialization: Serialization,
}

/// A reader of streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reader {
    /// Its address, for connections over the network.
    pub address: Option<SocketAddr>,
    /// Its proven public key (CURVE).
    pub key: Option<[u8; 32]>,
    /// The account by which the host recognized it, in the host's own words.
    pub account: Option<String>,
}

impl Reader {
    /// Its name in messages and metrics: its key, or its address without the port.
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
    /// Its names, oldest first; there is at least one.
    pub names: Vec<String>,
    /// The schema of its elements.
    pub schema: StreamSchema,
    /// The version of the schema.
    pub schema_version: u32,
    /// The durability level of its elements.
    pub level: Level,
    /// The source of its elements.
    pub source: Option<String>,
    /// Whether the source is here. The list of all streams leaves out those of sources that left; by
    /// name or prefix their stored elements can still be read.
    pub is_present: bool,
}

impl DirectoryEntry {
    /// The entry of a stream.
    #[must_use]
    pub fn of(log: &StreamLog) -> Self {
        Self {
            names: log.names(),
            schema: log.schema(),
            schema_version: log.schema_version(),
            level: log.log().level(),
            source: log.origin(),
            is_present: true,
        }
    }

    /// The oldest of its names that fits. A stream that is renamed has one more name, so a pattern that selected it
    /// selects it under the same name as before: its readers have no gap, and nothing twice.
    #[must_use]
    pub fn oldest_name(&self, fits: impl Fn(&str) -> bool) -> Option<&str> {
        let mut names = self.names.iter().map(String::as_str);
        names.find(|name| fits(name))
    }
}

/// An event for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkNotice {
    /// The link carries elements.
    Connected {
        /// The link.
        link: String,
    },
    /// The link is down; it retries.
    Disconnected {
        /// The link.
        link: String,
        /// The reason.
        why: String,
        /// The hint, if there is one.
        hint: Option<String>,
    },
    /// The origin or this node refuses a stream.
    Refused {
        /// The link.
        link: String,
        /// The stream's name at the origin.
        stream: String,
        /// The reason.
        why: String,
    },
    /// The origin lost elements that are stored here, by a restored backup or a data loss.
    Rollback {
        /// The link.
        link: String,
        /// The stream here.
        stream: String,
        /// The last position here.
        have: String,
        /// The last position that both have.
        kept: Option<String>,
        /// The position at which the origin continues.
        next: String,
    },
    /// Elements never arrive.
    Lost {
        /// The link.
        link: String,
        /// The stream here.
        stream: String,
        /// The reason.
        reason: LossReason,
        /// The number of elements.
        elements: u64,
    },
    /// An element became a dead letter.
    DeadLetter {
        /// The link.
        link: String,
        /// The stream here.
        stream: String,
        /// The reason.
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
                    "link {link}: the origin of {stream} was rolled back: it keeps {kept}, this node has {have}; \
                        the link continues at {next}"
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
