//! What both machines are told once.

use std::time::Duration;

use chappe_xml::Str;

use super::TreeConfig;
use crate::Dialect;

/// A service whose events one can subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The path of the service's endpoint, with its first slash.
    pub path: Str,
    /// The actions of its events.
    pub actions: Vec<Str>,
}

/// How the address of a subscription's manager names the subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagerStyle {
    /// A path of its own: understood by every sink.
    #[default]
    Path,
    /// One path and the reference parameter `wse:Identifier`.
    ReferenceParameter,
}

/// How an [`EventSource`](super::EventSource) behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// What can be subscribed to.
    pub offers: Vec<Offer>,
    /// The path of subscription managers. Default `/subscriptions`.
    pub manager_path: Str,
    /// How managers are addressed. Default by path.
    pub manager_style: ManagerStyle,
    /// Subscriptions in all. Default 1,000: about 1 MiB without queues.
    pub subscriptions_max: usize,
    /// Subscriptions that one address may hold. Default 64: a client has one for each service.
    pub subscriptions_per_peer_max: usize,
    /// The longest lease granted. Default 1 hour: how long a vanished sink is kept at most.
    pub lease_max: Duration,
    /// The lease of who asks for none. Default 10 minutes.
    pub lease_default: Duration,
    /// Actions in one filter. Default 1,024: a client may name each event of a service that has as many
    /// as a WSDL can hold.
    pub filter_actions_max: usize,
    /// Notifications that wait for one sink; the oldest is dropped for a new one. Default 64,
    /// at least 2.
    pub queue_max: usize,
    /// Failed deliveries in a row after which a subscription ends. Default 3.
    pub failures_max: u32,
    /// The pause before a failed delivery is repeated, doubled each time. Default 500 ms.
    pub retry_delay: Duration,
    /// After this a delivery without result counts as failed. Default 30 s.
    pub delivery_timeout: Duration,
    /// Nanoseconds since 1970 at the machine's time zero; `None` refuses expirations by date.
    pub utc_at_origin_ns: Option<i64>,
    /// How events are spread by sinks that understand the tree. Default `None`: all sinks get standard
    /// notifications.
    pub tree: Option<TreeConfig>,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            offers: Vec::new(),
            manager_path: "/subscriptions".into(),
            manager_style: ManagerStyle::Path,
            subscriptions_max: 1_000,
            subscriptions_per_peer_max: 64,
            lease_max: Duration::from_secs(3_600),
            lease_default: Duration::from_secs(600),
            filter_actions_max: 1_024,
            queue_max: 64,
            failures_max: 3,
            retry_delay: Duration::from_millis(500),
            delivery_timeout: Duration::from_secs(30),
            utc_at_origin_ns: None,
            tree: None,
        }
    }
}

/// How an [`EventSink`](super::EventSink) behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkConfig {
    /// The path under which notifications arrive. Default `/events`.
    pub path: Str,
    /// What is written. Default the 2009 dialect.
    pub dialect: Dialect,
    /// Subscriptions in all. Default 10,000.
    pub subscriptions_max: usize,
    /// After this a request without answer counts as failed. Default 10 s.
    pub request_timeout: Duration,
    /// The pause after a first failure; doubled, and varied by a quarter, each time. Default 1 s.
    pub backoff_first: Duration,
    /// The longest pause. Default 60 s.
    pub backoff_max: Duration,
    /// A lease is renewed after a random share between these of it, in percent. Default 50 to 75.
    pub renew_percent: (u32, u32),
    /// After this without a notification the source is asked for the status; `None` never asks of
    /// itself. Default `None`: many sources have nothing to say for hours.
    pub doubt_after: Option<Duration>,
    /// Identifiers remembered of each subscription to know repeated notifications. Default 64.
    pub duplicates_max: usize,
    /// The same of a subscription on a tree, where events under way come in any order. Default 4,096.
    pub tree_duplicates_max: usize,
    /// Nanoseconds since 1970 at the machine's time zero, to understand expirations by date.
    pub utc_at_origin_ns: Option<i64>,
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self {
            path: "/events".into(),
            dialect: Dialect::V2009,
            subscriptions_max: 10_000,
            request_timeout: Duration::from_secs(10),
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            renew_percent: (50, 75),
            doubt_after: None,
            duplicates_max: 64,
            tree_duplicates_max: 4_096,
            utc_at_origin_ns: None,
        }
    }
}
