//! The status of links.

use std::collections::BTreeMap;
use std::fmt::Display;

use chappe_flow::{DeadLetterReason, PacerStatus};
use chappe_stream::{Position, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::{LinkKind, Serialization};

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

/// A stream of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[schema(as = LinkStream)]
pub struct StreamStatus {
    /// The stream's name at the origin.
    pub name: String,
    /// The stream's name here.
    pub local_name: String,
    /// Why the origin, or this node, refuses it.
    pub refusal: Option<String>,
    /// Position at the origin of the newest element stored here.
    #[serde(serialize_with = "as_text_if_known")]
    #[schema(value_type = Option<String>)]
    pub stored: Option<Position>,
    /// Current rate in elements per second.
    pub rate_per_s: f64,
    /// Elements at the origin that are not here yet, by its last report; null where unknown: elements
    /// written for `http_pull` may still wait in the connection.
    pub lag_elements: Option<u64>,
    /// Seconds from the newest element's source time to its arrival.
    pub lag_s: f64,
    /// Occupation of its window, 0 to 1.
    pub occupation: f64,
    /// Bytes received and not yet stored.
    pub held_bytes: u64,
    /// Elements received.
    pub received: u64,
    /// Elements stored at their level and acknowledged.
    pub acknowledged: u64,
    /// Dropped duplicates.
    pub repeated: u64,
    /// Elements that became dead letters, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Lost elements, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Number of rollbacks of the origin.
    pub rollbacks: u64,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// zeromq, zeromq_best_effort, http_pull or http_push.
    #[schema(value_type = String)]
    pub kind: LinkKind,
    /// The address of the origin.
    pub address: String,
    /// The selected streams: names, or prefixes ending in `*`.
    pub selects: Vec<String>,
    /// The prefix of its streams' names here.
    pub as_prefix: Option<String>,
    /// The serialization of elements on the link.
    #[schema(value_type = String)]
    pub serialization: Serialization,
    /// connecting, connected, waiting or ended.
    #[schema(value_type = String)]
    pub state: LinkState,
    /// The last error.
    pub last_error: Option<String>,
    /// How to repair it.
    pub hint: Option<String>,
    /// Number of reconnections.
    pub reconnects: u64,
    /// Current rate in elements per second.
    pub rate_per_s: f64,
    /// Elements at the origin that are not here yet, by its last report; null where unknown.
    pub lag_elements: Option<u64>,
    /// Lag of its slowest stream in seconds.
    pub lag_s: f64,
    /// Bytes received and not yet stored.
    pub held_bytes: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Stored dead letters.
    pub dead_letters: u64,
    /// Elements refused here, by reason, over all streams.
    pub refused: BTreeMap<String, u64>,
    /// Lost elements, by reason, over all streams.
    pub lost: BTreeMap<String, u64>,
    /// Its streams, by name.
    pub streams: Vec<StreamStatus>,
}

/// A peer that reads here.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Peer)]
pub struct PeerStatus {
    /// Its address.
    pub address: String,
    /// Its public key, if it proved one.
    pub key: Option<String>,
    /// The kind of its link: zeromq, zeromq_best_effort, http_pull or http_push.
    #[schema(value_type = String)]
    pub kind: LinkKind,
    /// The streams that it reads.
    pub streams: Vec<String>,
    /// The number of the last element of each stream that it has, where that is known. Of `http_pull`: that
    /// was given to its connection.
    pub read: BTreeMap<String, u64>,
    /// Time of its connection (RFC 3339).
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    pub since: Timestamp,
    /// Current rate in elements per second.
    pub rate_per_s: f64,
    /// Elements sent.
    pub sent: u64,
    /// Elements retransmitted: over HTTP push only, since a session sends nothing twice.
    pub sent_again: u64,
    /// Elements acknowledged.
    pub acknowledged: u64,
    /// Elements in flight.
    pub in_flight: u64,
    /// Occupation of its fullest window, 0 to 1.
    pub occupation: f64,
    /// Elements not acknowledged.
    pub lag_elements: u64,
    /// Number of times that a window was full.
    pub stalls: u64,
    /// Elements that it refused.
    pub refused: u64,
    /// The pacer of its session; null for kinds without sessions.
    #[schema(value_type = Option<Pacing>)]
    pub pacing: Option<PacerStatus>,
}

/// The pacer of a reader's session, which schedules its frames.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation only: the members of PacerStatus")]
struct Pacing {
    /// The pacer: adaptive, napa, flood, fixed_window or fixed_period.
    pacer: String,
    /// Its state: fixed, measuring, idle, rising, holding, falling or draining.
    state: String,
    /// Elements in flight.
    occupation: u64,
    /// It sends faster below this number of elements in flight; 0: no threshold.
    low_threshold: u64,
    /// It waits above this number of elements in flight; 0: no threshold.
    high_threshold: u64,
    /// Seconds between two frames; 0: no pause.
    period_s: f64,
    /// The last round trip, from sending to acknowledgement, in seconds.
    round_trip_s: Option<f64>,
    /// The shortest round trip in seconds.
    round_trip_min_s: Option<f64>,
    /// The rate of the slowest part of the path, in bytes per second.
    delivery_rate_bytes_per_s: Option<u64>,
    /// Elements covered by one acknowledgement.
    acknowledged_at_once: u64,
}

/// An element that was received and could not be stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub struct DeadLetter {
    /// Its number.
    pub number: u64,
    /// The local stream that it was sent to; for `http-push` the stream that it is from.
    pub stream: String,
    /// Its position at the origin; for `http-push` its local position.
    #[serde(serialize_with = "as_text_if_known")]
    #[schema(value_type = Option<String>)]
    pub origin: Option<Position>,
    /// The contact point that refused it, for `http-push`.
    pub contact: Option<String>,
    /// schema, too_large or unreadable.
    #[schema(value_type = String)]
    pub reason: DeadLetterReason,
    /// The reason in detail.
    pub text: String,
    /// Time of its arrival (RFC 3339).
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    pub received_at: Timestamp,
    /// Its size.
    pub bytes: u64,
}

fn as_text<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn as_text_if_known<S: Serializer>(value: &Option<Position>, to: S) -> Result<S::Ok, S::Error> {
    value.map(|value| value.to_string()).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use utoipa::PartialSchema as _;

    #[test]
    fn the_schema_of_pacing_names_the_members_of_pacers() {
        let written = serde_json::to_value(PacerStatus::default()).unwrap();
        let schema = serde_json::to_value(Pacing::schema()).unwrap();
        let described = schema["properties"].as_object().unwrap();
        assert!(written.as_object().unwrap().keys().eq(described.keys()));
    }
}
