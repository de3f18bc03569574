//! Configuration of both machines.

use std::time::Duration;

use chappe_xml::Str;

use super::{FilterDialect, TreeConfig};
use crate::Dialect;

/// A service that offers events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The path of the service's endpoint, with its leading slash.
    pub path: Str,
    /// The actions of its events.
    pub actions: Vec<Str>,
}

/// How a subscription manager's address identifies the subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagerStyle {
    /// A path per subscription, which every sink understands.
    #[default]
    Path,
    /// One path and the reference parameter `wse:Identifier`.
    ReferenceParameter,
}

/// Configuration of an [`EventSource`](super::EventSource).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// The services with events.
    pub offers: Vec<Offer>,
    /// The path of subscription managers. Default `/subscriptions`.
    pub manager_path: Str,
    /// How managers are addressed. Default [`ManagerStyle::Path`].
    pub manager_style: ManagerStyle,
    /// Total subscriptions. Default 1,000: about 1 MiB without queues.
    pub subscriptions_max: usize,
    /// Subscriptions of one address. Default 64: a client has one for each service.
    pub subscriptions_per_peer_max: usize,
    /// The longest lease. Default 1 hour: limits how long a vanished sink stays.
    pub lease_max: Duration,
    /// The lease if the request names none. Default 10 minutes.
    pub lease_default: Duration,
    /// Actions in one filter. Default 1,024: as many events as a WSDL can hold.
    pub filter_actions_max: usize,
    /// Filter dialects beside that of actions. Default none.
    pub filters: Vec<FilterDialect>,
    /// Notifications queued for one sink; a full queue drops the oldest. Default 64, at least 2.
    pub queue_max: usize,
    /// Consecutive failed deliveries that end a subscription. Default 3.
    pub failures_max: u32,
    /// The first pause before a failed delivery is repeated; doubles each time. Default 500 ms.
    pub retry_delay: Duration,
    /// Time limit of a delivery. Default 30 s.
    pub delivery_timeout: Duration,
    /// Nanoseconds since 1970 at the machine's time zero; `None` rejects expirations by date.
    pub utc_at_origin_ns: Option<i64>,
    /// The notification tree for sinks that support it. Default `None`: all sinks get standard
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
            filters: Vec::new(),
            queue_max: 64,
            failures_max: 3,
            retry_delay: Duration::from_millis(500),
            delivery_timeout: Duration::from_secs(30),
            utc_at_origin_ns: None,
            tree: None,
        }
    }
}

/// Configuration of an [`EventSink`](super::EventSink).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkConfig {
    /// The path that receives notifications. Default `/events`.
    pub path: Str,
    /// The dialect of requests. Default the 2009 dialect.
    pub dialect: Dialect,
    /// Total subscriptions. Default 10,000.
    pub subscriptions_max: usize,
    /// Time limit of a request. Default 10 s.
    pub request_timeout: Duration,
    /// The pause after the first failure; doubled, and varied by a quarter, each time. Default 1 s.
    pub backoff_first: Duration,
    /// The longest pause. Default 60 s.
    pub backoff_max: Duration,
    /// A lease is renewed after a random share of it between these percentages. Default 50 to 75.
    pub renew_percent: (u32, u32),
    /// Time without a notification after which the sink queries the subscription's status. Default
    /// `None`, never: many sources have no events for hours.
    pub verify_after: Option<Duration>,
    /// Message identifiers stored per subscription to detect duplicates. Default 64.
    pub duplicates_max: usize,
    /// The same for a subscription on a tree, which may reorder events. Default 4,096.
    pub tree_duplicates_max: usize,
    /// Nanoseconds since 1970 at the machine's time zero, to interpret expirations by date.
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
            verify_after: None,
            duplicates_max: 64,
            tree_duplicates_max: 4_096,
            utc_at_origin_ns: None,
        }
    }
}
