//! The parts of a running node.

use std::sync::{Arc, OnceLock};

use chappe_identity::Prefix;
use chappe_registry::Registry;
use chappe_registry::uddi::Taxonomies;
use chappe_transport::signatures::Signatures;
use tokio::sync::watch;

use crate::accounts::{Accounts, Owners, Shares};
use crate::catalogue::Catalogue;
use crate::checkers::Checkers;
use crate::config::Config;
use crate::devices::Devices;
use crate::identity::Identity;
use crate::links::Exchange;
use crate::observability::Observability;
use crate::permits::Permits;
use crate::registrar::Registrar;
use crate::sensors::Sensors;
use crate::storage::{Outage, Storage};
use crate::things::Things;
use crate::wrappers::{Exporters, Wrappers};
use crate::written::Producers;

/// The handle by which tasks and the HTTP server share a running node.
pub(crate) type App = Arc<Shared>;

/// The parts of a running node.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    /// The proxies whose `Forwarded` headers count.
    pub(crate) trusted_proxies: Vec<Prefix>,
    pub(crate) accounts: Accounts,
    /// What each account may take of the node.
    pub(crate) shares: Shares,
    pub(crate) owners: Arc<Owners>,
    pub(crate) storage: Storage,
    pub(crate) catalogue: Catalogue,
    pub(crate) registry: Registry,
    /// Why the store of the registry does not accept changes.
    pub(crate) registry_outage: Outage,
    /// The checked value sets of UDDI.
    pub(crate) taxonomies: Arc<Taxonomies>,
    /// The services that check values for them.
    pub(crate) checkers: Checkers,
    /// Signed SOAP messages; `None` if signatures count nowhere.
    pub(crate) signatures: Option<Arc<Signatures>>,
    pub(crate) registrar: Registrar,
    pub(crate) things: Things,
    /// Subscriptions to the registry by WS-Eventing.
    pub(crate) events: crate::subscriptions::sources::Events,
    /// Subscriptions to the registry by e-mail.
    pub(crate) mail: crate::subscriptions::stored::MailSubscriptions,
    pub(crate) devices: Devices,
    pub(crate) sensors: Sensors,
    pub(crate) wrappers: Wrappers,
    pub(crate) exporters: Exporters,
    /// The links to and from other nodes, once they are started.
    pub(crate) exchange: OnceLock<Exchange>,
    /// The node in the distributed hash table, if configured.
    pub(crate) kad: OnceLock<chappe_transport::kad::KadNode>,
    /// The discovery proxy, if configured.
    pub(crate) discovery_proxy: OnceLock<chappe_device::DiscoveryProxy>,
    /// The DDS topics.
    #[cfg(feature = "dds")]
    pub(crate) topics: Arc<chappe_dds::topics::Topics>,
    pub(crate) observability: Arc<Observability>,
    pub(crate) permits: Permits,
    /// The producers of streams that clients write.
    pub(crate) producers: Producers,
    /// Held while a client defines a stream, so that each sees the definitions before it.
    pub(crate) defining: tokio::sync::Mutex<()>,
    /// Becomes true when the node shuts down.
    pub(crate) drain: watch::Receiver<bool>,
}

impl Shared {
    /// The reasons why the node does not accept data; empty when it does.
    pub(crate) fn reasons_not_ready(&self) -> Vec<String> {
        let mut reasons = self.storage.reasons_not_ready();
        reasons.extend((self.registry_outage)().map(|reason| format!("registry: {reason}")));
        if *self.drain.borrow() {
            reasons.push("the node is shutting down".to_owned());
        }
        reasons
    }
}
