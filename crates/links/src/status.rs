//! The status of links.

use std::collections::BTreeMap;

use chappe_stream::Position;
use serde::{Deserialize, Serialize};

use super::{LinkConfig, LinkKind};

/// Whether a link carries elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It is connecting, for the first time or again.
    #[default]
    Connecting,
    /// It carries elements.
    Connected,
    /// It waits before the next attempt.
    Waiting,
    /// It was removed.
    Ended,
}

/// Why elements never arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossReason {
    /// The origin's retention removed them before they were read.
    Trimmed,
    /// They are damaged at the origin.
    Corrupt,
    /// They are larger than this node accepts.
    TooLarge,
    /// Their numbers were skipped without a reason.
    Skipped,
}

impl LossReason {
    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::Corrupt => "corrupt",
            Self::TooLarge => "too_large",
            Self::Skipped => "skipped",
        }
    }
}

/// Why an element is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// It does not fit the schema.
    Schema,
    /// It is larger than a stream accepts.
    TooLarge,
    /// Its bytes do not decode.
    Unreadable,
}

impl DeadLetterReason {
    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Counters since the link was added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Elements stored, or queued in the log.
    pub received: u64,
    /// Elements stored at their level and acknowledged.
    pub acknowledged: u64,
    /// Elements that were received again and dropped.
    pub repeated: u64,
    /// Elements that became dead letters, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Elements that never arrive, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Rollbacks of the origin.
    pub rollbacks: u64,
}

/// A stream of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The stream's name at the origin.
    pub name: String,
    /// The stream's name here.
    pub local_name: String,
    /// The reason if the origin or this node refuses the stream.
    pub refusal: Option<String>,
    /// The origin's position of the newest element stored here.
    pub stored: Option<Position>,
    /// Recent rate of elements per second.
    pub rate_per_s: f64,
    /// Elements that are at the origin and not here, as last reported. None where that cannot be
    /// known: with `http_pull`, the connection may hold elements that the origin has written.
    pub lag_elements: Option<u64>,
    /// Seconds from the newest element's source time to its arrival.
    pub lag_s: f64,
    /// Fill of the window, 0 to 1.
    pub occupation: f64,
    /// Bytes that were received and are not stored.
    pub held_bytes: u64,
    /// Its counters.
    pub counts: Counts,
}

/// The status of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The configuration, without the token.
    pub config: LinkConfig,
    /// Whether the link carries elements.
    pub state: LinkState,
    /// The last error.
    pub last_error: Option<String>,
    /// The hint, if there is one.
    pub hint: Option<String>,
    /// Number of reconnections.
    pub reconnects: u64,
    /// Recent rate of elements per second.
    pub rate_per_s: f64,
    /// The sum of its streams' known lags in elements.
    pub lag_elements: Option<u64>,
    /// The largest of its streams' lags in seconds.
    pub lag_s: f64,
    /// Bytes that were received and are not stored.
    pub held_bytes: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Dead letters kept.
    pub dead_letters: u64,
    /// Its streams, by name.
    pub streams: Vec<StreamStatus>,
}

/// The pacer of a session with a reader.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PacingStatus {
    /// The pacer: `adaptive`, `napa`, `flood`, `fixed_window` or `fixed_period`.
    pub pacer: String,
    /// Its state: `fixed`, `measuring`, `idle`, `rising`, `holding`, `falling` or `draining`.
    pub state: String,
    /// Elements in flight.
    pub occupation: u64,
    /// Below this number in flight it sends faster; 0 if it has no such threshold.
    pub low_threshold: u64,
    /// Above this number in flight it waits; 0 if it has no such threshold.
    pub high_threshold: u64,
    /// Seconds between two frames; 0 if it does not pace.
    pub period_s: f64,
    /// The last round trip in seconds, from sending to acknowledgement.
    pub round_trip_s: Option<f64>,
    /// The shortest round trip in seconds.
    pub round_trip_min_s: Option<f64>,
    /// The rate of the slowest part of the path in bytes per second, once it is known.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Elements acknowledged by one acknowledgement.
    pub acknowledged_at_once: u64,
}

impl From<chappe_flow::PacerStatus> for PacingStatus {
    fn from(status: chappe_flow::PacerStatus) -> Self {
        let seconds = |time: std::time::Duration| time.as_secs_f64();
        Self {
            pacer: status.name.to_owned(),
            state: status.state.as_str().to_owned(),
            occupation: status.occupation,
            low_threshold: status.low_threshold,
            high_threshold: status.high_threshold,
            period_s: seconds(status.period),
            round_trip_s: status.round_trip.map(seconds),
            round_trip_min_s: status.round_trip_min.map(seconds),
            delivery_rate_bytes_per_s: status.delivery_rate_bytes_per_s,
            acknowledged_at_once: status.acknowledged_at_once,
        }
    }
}

/// A reader of streams of this node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its address.
    pub address: String,
    /// Its key, if it proved one.
    pub key: Option<String>,
    /// The kind of its link.
    pub kind: LinkKind,
    /// The streams that it reads.
    pub streams: Vec<String>,
    /// Time of its arrival, nanoseconds since 1970.
    pub since_ns: i64,
    /// Recent rate of elements sent per second.
    pub rate_per_s: f64,
    /// Elements sent.
    pub sent: u64,
    /// Elements sent again over HTTP push; a session sends nothing twice.
    pub sent_again: u64,
    /// Elements acknowledged.
    pub acknowledged: u64,
    /// Elements in flight.
    pub in_flight: u64,
    /// Fill of its fullest window, 0 to 1.
    pub occupation: f64,
    /// Elements that are not acknowledged, over all streams.
    pub lag_elements: u64,
    /// How often its window was full.
    pub stalls: u64,
    /// Elements that it refused.
    pub refused: u64,
    /// The pacer of its session; none where the kind has no session.
    #[serde(default)]
    pub pacing: Option<PacingStatus>,
}

/// An element that a link could not store in its stream, or that a contact point refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its number in the link's stream of dead letters.
    pub number: u64,
    /// The local stream that it belongs to.
    pub stream: String,
    /// Its position at the origin; for pushing, in the local stream.
    pub origin: Option<Position>,
    /// Why it is a dead letter.
    pub reason: DeadLetterReason,
    /// The reason as a text.
    pub text: String,
    /// For pushing, the address of the contact point that refused it.
    pub contact: Option<String>,
    /// When it was received, nanoseconds since 1970.
    pub received_ns: i64,
    /// Its bytes.
    pub bytes: u64,
}
