//! How a host spreads its events, and how many sinks got them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chappe_flow::pacer;
use chappe_identity::Key;

use crate::host::TreeOrder;

/// How a host spreads its events over notification trees.
#[derive(Debug, Clone)]
pub struct HostTree {
    /// The device's key, which signs events.
    pub key: Arc<Key>,
    /// The UDP port for answers; 0, the default, takes a free one.
    pub port: u16,
    /// The file that stores the number of starts of the source. `None` uses the time of day: after a start
    /// with a clock that was set back, sinks refuse events until it catches up, and get them as standard
    /// notifications.
    pub boot: Option<PathBuf>,
    /// The time from spreading after which an event is late; sinks of the tree deliver late events and count
    /// them. Default `None`: never.
    pub deadline: Option<Duration>,
    /// Deadlines for events of single actions.
    pub deadlines: HashMap<String, Duration>,
    /// How events are delayed while earlier ones are under way, so that several sources share a network.
    /// Default `flood`: not at all.
    pub pacer: pacer::Choice,
    /// The order of its sinks: most critical first, or most reliable where others depend on them. Default:
    /// as listed.
    pub order: TreeOrder,
}

impl HostTree {
    /// Defaults with this key.
    #[must_use]
    pub fn new(key: impl Into<Arc<Key>>) -> Self {
        Self {
            key: key.into(),
            port: 0,
            boot: None,
            deadline: None,
            deadlines: HashMap::new(),
            pacer: pacer::Choice::Flood,
            order: TreeOrder::default(),
        }
    }
}

/// Counters of notification trees; each sink is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeState {
    /// Subscriptions served by a tree now.
    pub sinks: usize,
    /// Confirmed deliveries since the start: their receipts were verified.
    pub delivered: u64,
    /// Deliveries not confirmed within 2 s since the start (failed or unknown); they continued as standard
    /// notifications.
    pub missed: u64,
    /// Subscriptions that requested the tree but get standard notifications, since the start.
    pub off: u64,
}
