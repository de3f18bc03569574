//! The host of a device: answers discovery and HTTP, sends events, runs operations.

mod builder;
mod discovery;
mod order;
mod outputs;
mod proxies;
mod schemas;
mod serving;
mod tree;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_dpws::discovery::target_service::Command;
use chappe_dpws::eventing::SourceCommand;
use chappe_dpws::hosting::{Device, DeviceCommand, HostedService};
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
pub use builder::{Builder, HostOptions, endpoint_from, endpoint_of};
pub(crate) use builder::{Operation, Operations, instance_id};
pub use order::{CriticalityRule, CriticalityRuleError, Order, TreeOrder};
pub use outputs::HostState;
pub use proxies::ProxyAddress;
pub use tree::{HostTree, TreeState};

/// The time limit for the last messages of a stopping host.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// A device on the network. Dropping it ends it at once, like a power cut; [`DeviceHost::stop`] says Bye
/// first.
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

/// The description in announcements.
#[derive(Clone)]
struct Announced {
    types: Vec<Name>,
    scopes: Vec<String>,
    metadata_version: u32,
}

/// A description that replaces the one of a running host.
pub(crate) struct Change {
    pub(crate) device: ThisDevice,
    /// Without that of a DPWS device.
    pub(crate) types: Vec<Name>,
    pub(crate) scopes: Vec<String>,
    pub(crate) services: Vec<HostedService>,
    pub(crate) operations: Operations,
    pub(crate) metadata_version: u32,
}

/// State shared by the parts of a host.
struct Shared {
    endpoint: String,
    announced: Mutex<Announced>,
    operations: Mutex<Operations>,
    inputs: mpsc::Sender<Option<InputOf<Device>>>,
    orders: mpsc::Sender<udp::Order<Command>>,
    serving: serving::Serving,
    servers: Mutex<HashMap<IpAddr, Server>>,
    options: HostOptions,
    http: Client,
    drops: Drops,
    state: watch::Sender<HostState>,
    tree: Option<tree::RunningSource>,
    schemas: schemas::Schemas,
}

impl DeviceHost {
    /// Starts to build a device with this stable endpoint, `urn:uuid:…`.
    pub fn builder(endpoint: impl Into<String>) -> Builder {
        Builder::new(endpoint.into())
    }

    /// The stable endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.shared.endpoint
    }

    /// Its HTTP addresses, with the bound ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let servers = self.shared.servers.lock();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        servers.values().map(Server::local_addr).collect()
    }

    /// Its announcement for networks without multicast, to be published in the distributed hash table.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        let addresses = self.addresses().into_iter();
        let announced = self.shared.announced.lock();
        let announced = announced.unwrap_or_else(PoisonError::into_inner);
        Announcement {
            endpoint: self.shared.endpoint.clone(),
            metadata_version: announced.metadata_version,
            types: announced.types.iter().map(type_text).collect(),
            scopes: announced.scopes.clone(),
            addresses: addresses
                .map(|address| self.shared.options.address(address))
                .collect(),
            port: 0,
        }
    }

    /// Sends an event to all subscribers to `action`.
    ///
    /// # Errors
    /// The host is stopped.
    pub async fn notify(&self, action: impl Into<Str>, body: Element) -> Result<(), Error> {
        let action = action.into();
        let command = SourceCommand::Notify {
            action,
            body: body.into(),
        };
        self.shared.command(DeviceCommand::Eventing(command)).await
    }

    /// Changes the name, firmware or serial number.
    ///
    /// # Errors
    /// The host is stopped.
    pub async fn describe(&self, device: ThisDevice) -> Result<(), Error> {
        let command = DeviceCommand::Describe(Box::new(device));
        self.shared.command(command).await
    }

    /// Replaces the description, and sends Hello with its version.
    ///
    /// # Errors
    /// The host is stopped.
    pub(crate) async fn change(&self, change: Change) -> Result<(), Error> {
        let announced = Announced {
            types: builder::all_types(&change.types),
            scopes: change.scopes,
            metadata_version: change.metadata_version,
        };
        {
            let operations = self.shared.operations.lock();
            *operations.unwrap_or_else(PoisonError::into_inner) = change.operations;
            self.shared.schemas.set(&change.services);
            let known = self.shared.announced.lock();
            *known.unwrap_or_else(PoisonError::into_inner) = announced.clone();
        }
        // Hello comes last: who reads the description then finds the new one.
        for command in [
            DeviceCommand::Describe(Box::new(change.device)),
            DeviceCommand::SetTypes(change.types),
            DeviceCommand::SetServices(change.services),
        ] {
            self.shared.command(command).await?;
        }
        let update = Command::Update {
            types: announced.types,
            scopes: announced.scopes.into_iter().map(Into::into).collect(),
            metadata_version: announced.metadata_version,
        };
        let order = udp::Order::Command(update);
        self.shared
            .orders
            .send(order)
            .await
            .map_err(|_| Error::Closed)
    }

    /// Where the machine takes its inputs.
    pub(crate) fn inputs(&self) -> mpsc::Sender<Option<InputOf<Device>>> {
        self.shared.inputs.clone()
    }

    /// The address for answers of its notification trees, if it has some.
    #[must_use]
    pub fn tree_address(&self) -> Option<SocketAddr> {
        self.shared.tree.as_ref().map(tree::RunningSource::address)
    }

    /// Its load, with change notifications.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<HostState> {
        self.shared.state.subscribe()
    }

    /// The record of drops.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.shared.drops
    }

    /// Ends the subscriptions, stops serving, and sends Bye.
    pub async fn stop(mut self) {
        let shutdown = DeviceCommand::Eventing(SourceCommand::Shutdown);
        // If it is closed already, there is nothing to end.
        let _ = self.shared.command(shutdown).await;
        let _ = self.shared.inputs.send(None).await;
        let _ = tokio::time::timeout(STOP_DEADLINE, &mut self.device).await;
        // Clients verify a Bye by a connection, so nothing may listen when it arrives.
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
        self.shared.serving.close();
    }
}

fn type_text(name: &Name) -> String {
    format!("{{{}}}{}", name.namespace, name.local)
}

impl Shared {
    fn operation(&self, action: &str) -> Option<Operation> {
        let operations = self.operations.lock();
        let operations = operations.unwrap_or_else(PoisonError::into_inner);
        operations.get(action).cloned()
    }

    async fn command(&self, command: DeviceCommand) -> Result<(), Error> {
        let input = Some(Input::Command(command));
        self.inputs.send(input).await.map_err(|_| Error::Closed)
    }
}
