//! The status of links.

use std::collections::BTreeMap;

use chappe_stream::Position;
use serde::{Deserialize, Serialize};

use super::{LinkConfig, LinkKind};

/// Whether a link carries elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It is being connected, for the first time or again.
    #[default]
    Connecting,
    /// It carries elements.
    Connected,
    /// It waits before it tries again.
    Waiting,
    /// It was ended.
    Ended,
}

/// Why elements never come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossReason {
    /// The origin's retention took them before they were read.
    Trimmed,
    /// They are corrupt at the origin.
    Corrupt,
    /// They are larger than is taken here.
    TooLarge,
    /// Their numbers were passed over and nobody said why.
    Skipped,
}

impl LossReason {
    /// The word in metrics.
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

/// Why an element is among the dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// It does not fit the schema.
    Schema,
    /// It is larger than a stream takes.
    TooLarge,
    /// Its bytes are no element.
    Unreadable,
}

impl DeadLetterReason {
    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What was counted since the link was added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Elements stored, or on their way to the log.
    pub received: u64,
    /// Elements stored at their level and acknowledged.
    pub acknowledged: u64,
    /// Elements that came again and were dropped.
    pub repeated: u64,
    /// Elements among the dead letters, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Elements that never come, by reason.
    pub lost: BTreeMap<String, u64>,
    /// How often the origin went back.
    pub rollbacks: u64,
}

/// A stream of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Its name at the origin.
    pub name: String,
    /// Its name here.
    pub local_name: String,
    /// Why the origin, or this node, refuses it, if one does.
    pub refusal: Option<String>,
    /// The origin's position of the newest element that is stored here.
    pub stored: Option<Position>,
    /// Elements a second, lately.
    pub rate_per_s: f64,
    /// Elements that are at the origin and not here, as last heard. None where that cannot be known: by
    /// `http_pull`, what the origin has written may still wait in the connection.
    pub lag_elements: Option<u64>,
    /// Seconds from the newest element's source time to its arrival.
    pub lag_s: f64,
    /// How full the window is, 0 to 1.
    pub occupation: f64,
    /// Bytes that are here and not stored.
    pub held_bytes: u64,
    /// What was counted.
    pub counts: Counts,
}

/// A link at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// How it is configured; without its token.
    pub config: LinkConfig,
    /// Whether it carries elements.
    pub state: LinkState,
    /// The last error.
    pub last_error: Option<String>,
    /// What can be done about it, when that is known.
    pub hint: Option<String>,
    /// How often it was connected again.
    pub reconnects: u64,
    /// Elements a second, lately.
    pub rate_per_s: f64,
    /// The sum of its streams' lags in elements, of those that are known.
    pub lag_elements: Option<u64>,
    /// The largest of its streams' lags in seconds.
    pub lag_s: f64,
    /// Bytes that are here and not stored.
    pub held_bytes: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Dead letters that are kept.
    pub dead_letters: u64,
    /// Its streams, by name.
    pub streams: Vec<StreamStatus>,
}

/// The pacer of a session to somebody who reads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PacingStatus {
    /// The pacer: `adaptive`, `napa`, `flood`, `fixed_window` or `fixed_period`.
    pub pacer: String,
    /// What it is about: `fixed`, `measuring`, `idle`, `rising`, `holding`, `falling` or `draining`.
    pub state: String,
    /// Elements on the way.
    pub occupation: u64,
    /// Below so many on the way it sends faster; 0: it has no such threshold.
    pub low_threshold: u64,
    /// Above so many on the way it waits; 0: it has no such threshold.
    pub high_threshold: u64,
    /// Seconds between two frames; 0: it does not hold back.
    pub period_s: f64,
    /// Seconds from sending to acknowledgement, the last.
    pub round_trip_s: Option<f64>,
    /// The shortest.
    pub round_trip_min_s: Option<f64>,
    /// The rate of the slowest part of the way, bytes a second, once it is known.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Elements that one acknowledgement acknowledges.
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
    /// How it reads.
    pub kind: LinkKind,
    /// The streams that it reads.
    pub streams: Vec<String>,
    /// The number of the last element of each stream that it has, where that is known. Of `http_pull`: that
    /// was given to its connection.
    #[serde(default)]
    pub read: BTreeMap<String, u64>,
    /// When it came, nanoseconds since 1970.
    pub since_ns: i64,
    /// Elements sent a second, lately.
    pub rate_per_s: f64,
    /// Elements sent.
    pub sent: u64,
    /// Elements sent again: over HTTP push, since a session sends nothing twice.
    pub sent_again: u64,
    /// Elements acknowledged.
    pub acknowledged: u64,
    /// Elements on the way.
    pub in_flight: u64,
    /// How full its windows are, 0 to 1: the fullest.
    pub occupation: f64,
    /// Elements that are not acknowledged, over all streams.
    pub lag_elements: u64,
    /// How often it had no room.
    pub stalls: u64,
    /// Elements that it refused.
    pub refused: u64,
    /// The pacer of its session; none where the kind has no session.
    #[serde(default)]
    pub pacing: Option<PacingStatus>,
}

/// What a link could not store in its stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its number in the link's stream of dead letters.
    pub number: u64,
    /// The stream here that it was for; of pushing: that it is from.
    pub stream: String,
    /// Its position at the origin; of pushing: here.
    pub origin: Option<Position>,
    /// Why it is here.
    pub reason: DeadLetterReason,
    /// Why, as a text.
    pub text: String,
    /// The address of the contact point that refused it, of pushing.
    pub contact: Option<String>,
    /// When it came, nanoseconds since 1970.
    pub received_ns: i64,
    /// Its bytes.
    pub bytes: u64,
}
