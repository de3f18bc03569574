//! The status of topics.

use crate::SupervisorStatus;
use chappe_stream::Position;
use serde::{Serialize, Serializer};

/// The status of all topics.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicsStatus {
    /// The participant, its writers and readers; there is none without topics.
    pub participant: Option<SupervisorStatus>,
    /// Published streams.
    pub publications: Vec<PublicationStatus>,
    /// Subscribed topics.
    pub subscriptions: Vec<SubscriptionStatus>,
}

/// The status of a published stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PublicationStatus {
    /// The stream.
    pub stream: String,
    /// The topic.
    pub topic: String,
    /// `received` or `stored`.
    pub acknowledge: &'static str,
    /// The newest delivered element.
    #[serde(serialize_with = "shown")]
    pub delivered: Option<Position>,
    /// Elements that are not delivered yet.
    pub lag_elements: u64,
    /// Number of times that unstored elements were published again.
    pub again: u64,
    /// Elements too large to be published.
    pub refused: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// A remedy for it.
    pub hint: Option<String>,
}

/// The status of a subscribed topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SubscriptionStatus {
    /// The topic.
    pub topic: String,
    /// The local stream.
    pub stream: String,
    /// The newest stored element, by its position at the source.
    #[serde(serialize_with = "shown")]
    pub stored: Option<Position>,
    /// Elements stored.
    pub received: u64,
    /// Duplicates, which were dropped.
    pub repeated: u64,
    /// Elements that arrived before their predecessor and were dropped; they are published again.
    pub early: u64,
    /// Samples of another type.
    pub malformed: u64,
    /// Samples of writers whose type has other fields.
    pub other_fields: u64,
    /// Elements of other streams.
    pub foreign: u64,
    /// Rollbacks of the source.
    pub rollbacks: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// A position in its usual text form.
fn shown<S: Serializer>(position: &Option<Position>, serializer: S) -> Result<S::Ok, S::Error> {
    position.map(|at| at.to_string()).serialize(serializer)
}
