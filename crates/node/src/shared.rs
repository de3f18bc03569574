//! The parts of a running node.

use std::sync::{Arc, OnceLock};

use chappe_identity::{Prefix, TokenHash};
use chappe_registry::Registry;
use tokio::sync::watch;

use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::devices::Devices;
use crate::identity::Identity;
use crate::links::Exchange;
use crate::observability::Observability;
use crate::permits::Permits;
use crate::registrar::Registrar;
use crate::sensors::Sensors;
use crate::storage::Storage;

/// A running node, as its tasks and its HTTP interface hold it.
pub(crate) type App = Arc<Shared>;

/// The parts of a running node.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    /// The proxies whose `Forwarded` headers count.
    pub(crate) trusted_proxies: Vec<Prefix>,
    /// Recognizes the operator's token.
    pub(crate) token: TokenHash,
    pub(crate) storage: Storage,
    pub(crate) catalogue: Catalogue,
    pub(crate) registry: Registry,
    pub(crate) registrar: Registrar,
    pub(crate) devices: Devices,
    pub(crate) sensors: Sensors,
    /// The links to and from other nodes, once they are started.
    pub(crate) exchange: OnceLock<Exchange>,
    /// The node of the distributed hash table, if the configuration has one.
    pub(crate) kad: OnceLock<chappe_transport::kad::KadNode>,
    /// The DDS topics, once they are started, if the configuration has some.
    #[cfg(feature = "dds")]
    pub(crate) topics: OnceLock<chappe_dds::topics::Topics>,
    pub(crate) observability: Arc<Observability>,
    pub(crate) permits: Permits,
    /// Becomes true when the node ends.
    pub(crate) drain: watch::Receiver<bool>,
}

impl Shared {
    /// Why the node takes no data; empty when it does.
    pub(crate) fn reasons_not_ready(&self) -> Vec<String> {
        let mut reasons = self.storage.reasons_not_ready();
        if *self.drain.borrow() {
            reasons.push("the node ends".to_owned());
        }
        reasons
    }
}
