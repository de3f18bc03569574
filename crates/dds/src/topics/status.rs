//! What topics tell of themselves.

use crate::SupervisorStatus;
use chappe_stream::Position;
use serde::{Serialize, Serializer};

use super::{Publication, Subscription};

/// Topics at a glance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicsStatus {
    /// The participant, its writers and readers.
    pub participant: SupervisorStatus,
    /// Streams that are published.
    pub publications: Vec<PublicationStatus>,
    /// Topics that are read.
    pub subscriptions: Vec<SubscriptionStatus>,
}

/// A stream that is published.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PublicationStatus {
    /// The stream.
    pub stream: String,
    /// The topic.
    pub topic: String,
    /// `received` or `stored`.
    pub acknowledge: &'static str,
    /// The newest element that was delivered.
    #[serde(serialize_with = "shown")]
    pub delivered: Option<Position>,
    /// Elements that are here and not delivered.
    pub lag_elements: u64,
    /// How often was gone back to what was not stored.
    pub again: u64,
    /// Elements that cannot be published, being too large.
    pub refused: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// What can be done about it.
    pub hint: Option<String>,
    /// The IDL of the topic.
    #[serde(skip)]
    pub idl: String,
}

/// A topic that is read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SubscriptionStatus {
    /// The topic.
    pub topic: String,
    /// The stream here.
    pub stream: String,
    /// The newest element that is stored, by its position at the source.
    #[serde(serialize_with = "shown")]
    pub stored: Option<Position>,
    /// Elements stored.
    pub received: u64,
    /// Elements that came again and were dropped.
    pub repeated: u64,
    /// Elements that came before the one that they follow, and were dropped: they come again.
    pub early: u64,
    /// Samples that are not of the type.
    pub malformed: u64,
    /// Elements of other streams.
    pub foreign: u64,
    /// How often the source went back.
    pub rollbacks: u64,
    /// The last error.
    pub last_error: Option<String>,
}

impl PublicationStatus {
    pub(super) fn of(publication: &Publication) -> Self {
        Self {
            stream: publication.stream.clone(),
            topic: publication.topic.clone(),
            ..Self::default()
        }
    }
}

impl SubscriptionStatus {
    pub(super) fn of(subscription: &Subscription) -> Self {
        Self {
            topic: subscription.topic.clone(),
            stream: subscription.stream.clone(),
            ..Self::default()
        }
    }
}

/// As positions are written everywhere.
#[allow(clippy::ref_option, reason = "serde gives it so")]
fn shown<S: Serializer>(position: &Option<Position>, serializer: S) -> Result<S::Ok, S::Error> {
    position.map(|at| at.to_string()).serialize(serializer)
}
