//! The host of a device: answers discovery and HTTP, sends events, runs operations.

mod builder;
mod discovery;
mod order;
mod serving;
mod tree;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_dpws::discovery::target_service::Command;
use chappe_dpws::eventing::SourceCommand;
use chappe_dpws::hosting::{Device, DeviceCommand};
use chappe_dpws::metadata::ThisDevice;
use chappe_kad::service::Announcement;
use chappe_machine::Input;
use chappe_transport::Drops;
use chappe_transport::http::{Client, Server};
use chappe_transport::udp;
use chappe_xml::{Element, Name, Str};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::Error;
use crate::driver::InputOf;

#[cfg(feature = "file")]
pub(crate) use builder::urn;
pub use builder::{Builder, HostOptions, endpoint_of};
pub use order::{CriticalityRule, CriticalityRuleError, Order, TreeOrder};
pub use serving::HostState;
pub use tree::{HostTree, TreeState};

/// Time for the last messages when a host stops.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// A device on the network. Dropping it ends it at once, as a power cut would; [`DeviceHost::stop`]
/// takes leave.
pub struct DeviceHost {
    shared: Arc<Shared>,
    device: tokio::task::JoinHandle<()>,
    tasks: JoinSet<()>,
    stopped: watch::Receiver<bool>,
}

impl std::fmt::Debug for DeviceHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceHost")
            .field("endpoint", &self.shared.endpoint)
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}

/// What the parts of a host share.
struct Shared {
    endpoint: String,
    types: Vec<Name>,
    scopes: Vec<String>,
    inputs: mpsc::Sender<Option<InputOf<Device>>>,
    orders: mpsc::Sender<udp::Order<Command>>,
    serving: Arc<serving::Serving>,
    servers: Mutex<HashMap<IpAddr, Server>>,
    options: HostOptions,
    http: Client,
    drops: Drops,
    state: watch::Sender<HostState>,
    tree: Option<tree::Spreading>,
}

impl DeviceHost {
    /// Begins the description of a device with this stable endpoint, `urn:uuid:…`.
    pub fn builder(endpoint: impl Into<String>) -> Builder {
        Builder::new(endpoint.into())
    }

    /// The stable endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.shared.endpoint
    }

    /// Where it serves, with the ports that were taken.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let servers = self.shared.servers.lock();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        servers.values().map(Server::local_addr).collect()
    }

    /// What is said of it where multicast does not reach: to be published in the distributed hash
    /// table.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        let addresses = self.addresses().into_iter();
        Announcement {
            endpoint: self.shared.endpoint.clone(),
            metadata_version: self.shared.options.metadata_version,
            types: self.shared.types.iter().map(type_text).collect(),
            scopes: self.shared.scopes.clone(),
            addresses: addresses
                .map(|address| format!("http://{address}{}", builder::DEVICE_PATH))
                .collect(),
            port: 0,
        }
    }

    /// Something happened: whoever subscribed to `action` is told.
    ///
    /// # Errors
    /// When the host is stopped.
    pub async fn notify(&self, action: impl Into<Str>, body: Element) -> Result<(), Error> {
        let action = action.into();
        let command = SourceCommand::Notify { action, body };
        self.shared.command(DeviceCommand::Eventing(command)).await
    }

    /// Another name, firmware or serial number from now on.
    ///
    /// # Errors
    /// When the host is stopped.
    pub async fn describe(&self, device: ThisDevice) -> Result<(), Error> {
        let command = DeviceCommand::Describe(Box::new(device));
        self.shared.command(command).await
    }

    /// Where it takes the answers of its notification trees, when it has some.
    #[must_use]
    pub fn tree_address(&self) -> Option<SocketAddr> {
        self.shared.tree.as_ref().map(tree::Spreading::address)
    }

    /// How busy it is; to wait for changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<HostState> {
        self.shared.state.subscribe()
    }

    /// The record of what was dropped.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.shared.drops
    }

    /// Takes leave: ends the subscriptions, stops serving, says Bye.
    pub async fn stop(mut self) {
        let shutdown = DeviceCommand::Eventing(SourceCommand::Shutdown);
        // Closed already: then there is nothing to end.
        let _ = self.shared.command(shutdown).await;
        let _ = self.shared.inputs.send(None).await;
        let _ = tokio::time::timeout(STOP_DEADLINE, &mut self.device).await;
        // Nothing must listen when Bye is heard: that is what makes it credible.
        let servers = {
            let servers = self.shared.servers.lock();
            std::mem::take(&mut *servers.unwrap_or_else(PoisonError::into_inner))
        };
        for server in servers.into_values() {
            server.stop(Duration::from_millis(100)).await;
        }
        let order = udp::Order::Command(Command::Stop);
        if self.shared.orders.send(order).await.is_ok() {
            let said = self.stopped.wait_for(|stopped| *stopped);
            let _ = tokio::time::timeout(STOP_DEADLINE, said).await;
        }
        self.tasks.shutdown().await;
    }
}

impl Drop for DeviceHost {
    fn drop(&mut self) {
        self.device.abort();
    }
}

fn type_text(name: &Name) -> String {
    format!("{{{}}}{}", name.namespace, name.local)
}

impl Shared {
    async fn command(&self, command: DeviceCommand) -> Result<(), Error> {
        let input = Some(Input::Command(command));
        self.inputs.send(input).await.map_err(|_| Error::Closed)
    }
}
