//! The builder of a hosted device.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_dpws::Dialect;
use chappe_dpws::discovery::target_service::{Command, Config};
use chappe_dpws::discovery::{Retransmission, TargetService};
use chappe_dpws::eventing::SourceConfig;
use chappe_dpws::hosting::{Device, DeviceConfig, HostedService, Invocation};
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_identity::{AddressPolicy, Key, Scheme};
use chappe_soap::{Body, EndpointReference, Fault};
use chappe_transport::Drops;
use chappe_transport::http::{Client, ClientLimits, Security, ServerLimits, base};
use chappe_transport::signatures::Signing;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_xml::{Element, Name};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::outputs::HostState;
use super::schemas::Schemas;
use super::serving::Serving;
use super::{Announced, DeviceHost, HostTree, ProxyAddress, Shared};
use super::{discovery, proxies, serving, tree};
use crate::{Error, Selection};

/// Inputs queued for the machine.
const INPUTS_MAX: usize = 1_024;
/// The path of the device itself.
pub(super) const DEVICE_PATH: &str = "/device";

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Option<Body>, Fault>> + Send>>;

/// Answers one operation.
pub(crate) type Operation = Arc<dyn Fn(Invocation) -> Answer + Send + Sync>;

/// The operations of a device by the actions of their requests.
pub(crate) type Operations = HashMap<String, Operation>;

/// Options of a [`DeviceHost`].
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The networks on which it is announced and served. Default: all without the loopback.
    pub selection: Selection,
    /// The HTTP port; 0, the default, takes a free one on each address.
    pub port: u16,
    /// The addresses that a subscriber may name. Default: its own only.
    pub policy: AddressPolicy,
    /// The longest random delay before a Hello and before the answer to a Probe. Default 2.5 s
    /// (DPWS 1.1, APP_MAX_DELAY), which spares large networks. Use zero in small ones.
    pub app_max_delay: Duration,
    /// The dialects in which the device is announced and found. Default the 2009 dialect; requests by HTTP
    /// are answered in theirs.
    pub dialects: Vec<Dialect>,
    /// Discovery proxies at which the device registers, in addition to its announcements to the groups.
    pub proxies: Vec<ProxyAddress>,
    /// Repetition of messages to the multicast group.
    pub multicast: Retransmission,
    /// Repetition of answers to one host.
    pub unicast: Retransmission,
    /// Limits of the server. Default: those of [`ServerLimits`] with bodies of at most 256 KiB, eight times
    /// the size that devices have to accept (DPWS 1.1, MAX_ENVELOPE_SIZE). So all connections of a peer
    /// together cannot make it hold more than 16 MiB.
    pub server: ServerLimits,
    /// Limits of notifications.
    pub client: ClientLimits,
    /// Options of the event source.
    pub eventing: SourceConfig,
    /// The version of the metadata, which increases when the description changes. Default 1.
    pub metadata_version: u32,
    /// The interval of interface checks. Default 10 s.
    pub interfaces_period: Duration,
    /// How events are spread over notification trees. Default `None`: every sink gets standard
    /// notifications.
    pub tree: Option<HostTree>,
    /// Signed messages: requests are judged, answers and events are signed. Default `None`: signatures are
    /// ignored. Documents, discovery and events on a notification tree are not concerned.
    pub signing: Option<Signing>,
    /// TLS of the server and of notifications, made by [`Mutual`](chappe_transport::tls::Mutual). With it the device
    /// has https addresses alone, and sends events only to https sinks whose certificates it trusts. Default
    /// `None`: plain HTTP alone.
    pub tls: Option<Security>,
}

impl HostOptions {
    /// The transport address of the device itself at a server's address.
    pub(super) fn address(&self, local: SocketAddr) -> String {
        let scheme = match self.tls {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        format!("{}{DEVICE_PATH}", base(scheme, local))
    }

    /// Whether a subscriber may name this address: with TLS if the device has TLS, and never otherwise.
    fn check_sink(&self, address: &str, peer: SocketAddr) -> Result<(), String> {
        let contact = self.policy.check(address, peer);
        let contact = contact.map_err(|refusal| refusal.to_string())?;
        match (contact.scheme, &self.tls) {
            (Scheme::Http, None) => Ok(()),
            (Scheme::Https, Some(security)) if security.trusts() => Ok(()),
            (Scheme::Https, _) => Err("this device trusts no certificate of an event sink".into()),
            (Scheme::Http, Some(_)) => Err("this device sends events only to https".into()),
        }
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            port: 0,
            policy: AddressPolicy::default(),
            app_max_delay: Duration::from_millis(2_500),
            dialects: vec![Dialect::V2009],
            proxies: Vec::new(),
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            server: ServerLimits {
                body_bytes: 256 << 10,
                exi: true,
                ..ServerLimits::default()
            },
            client: ClientLimits {
                exi: true,
                ..ClientLimits::default()
            },
            eventing: SourceConfig::default(),
            metadata_version: 1,
            interfaces_period: Duration::from_secs(10),
            tree: None,
            signing: None,
            tls: None,
        }
    }
}

/// The stable endpoint of the device with this key, `urn:uuid:…`.
#[must_use]
pub fn endpoint_of(key: &Key) -> String {
    urn(key.derive_id("device endpoint"))
}

/// A stable endpoint derived from texts that identify the device, `urn:uuid:…`.
#[must_use]
pub fn endpoint_from(texts: &[&str]) -> String {
    urn(chappe_identity::id_of(texts))
}

/// The endpoint of 16 bytes.
pub(crate) fn urn(id: [u8; 16]) -> String {
    let uuid = uuid::Builder::from_custom_bytes(id).into_uuid();
    uuid.urn().to_string()
}

/// A device to be hosted.
///
/// ```no_run
/// # async fn run(wsdl: chappe_soap::wsdl::Wsdl) -> Result<(), chappe_device::Error> {
/// use chappe_device::DeviceHost;
/// use chappe_dpws::hosting::HostedService;
/// use chappe_dpws::metadata::{ThisDevice, ThisModel};
/// use chappe_transport::Drops;
/// let host = DeviceHost::builder("urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a")
///     .model(ThisModel { manufacturer: vec!["Example".into()], ..ThisModel::default() })
///     .device(ThisDevice { friendly_name: vec!["lamp".into()], ..ThisDevice::default() })
///     .service(HostedService::new("http://x/lamp/1", "/lamp", wsdl))
///     .operation("http://x/lamp/Lamp/SwitchRequest", |invocation| async move {
///         Ok(invocation.element())
///     })
///     .start(Drops::default())?;
/// host.stop().await;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Builder {
    endpoint: String,
    model: ThisModel,
    device: ThisDevice,
    types: Vec<Name>,
    scopes: Vec<String>,
    services: Vec<HostedService>,
    operations: Operations,
    options: HostOptions,
    instance_id: u32,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(endpoint: String) -> Self {
        Self {
            endpoint,
            model: ThisModel::default(),
            device: ThisDevice::default(),
            types: Vec::new(),
            scopes: Vec::new(),
            services: Vec::new(),
            operations: HashMap::new(),
            options: HostOptions::default(),
            instance_id: instance_id(),
        }
    }

    /// Sets the characteristics of the model.
    pub fn model(mut self, model: ThisModel) -> Self {
        self.model = model;
        self
    }

    /// Sets the characteristics of this device.
    pub fn device(mut self, device: ThisDevice) -> Self {
        self.device = device;
        self
    }

    /// Sets its types, in addition to that of a DPWS device.
    pub fn types(mut self, types: impl IntoIterator<Item = Name>) -> Self {
        self.types.extend(types);
        self
    }

    /// Sets its scopes (URIs).
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = String>) -> Self {
        self.scopes.extend(scopes);
        self
    }

    /// Adds a service.
    pub fn service(mut self, service: HostedService) -> Self {
        self.services.push(service);
        self
    }

    /// Sets the handler of the operation whose request has this action.
    pub fn operation<F, R>(mut self, action: impl Into<String>, answer: F) -> Self
    where
        F: Fn(Invocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<Element>, Fault>> + Send + 'static,
    {
        let operation: Operation = Arc::new(move |invocation| {
            let answer = answer(invocation);
            Box::pin(async move { Ok(answer.await?.map(Body::Tree)) })
        });
        self.operations.insert(action.into(), operation);
        self
    }

    /// Sets handlers by the actions of their requests.
    pub(crate) fn operations(mut self, operations: Operations) -> Self {
        self.operations.extend(operations);
        self
    }

    /// Sets its options.
    pub fn options(mut self, options: HostOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts serving, and sends Hello. Drops are recorded in `drops`.
    ///
    /// # Errors
    /// An operation has no action in the WSDL, no interface matches, or none can be used to listen.
    pub fn start(self, drops: Drops) -> Result<DeviceHost, Error> {
        self.check_operations()?;
        let interfaces = self.options.selection.resolve()?;
        let listen = |source| Error::Listen { at: None, source };
        let sockets = UdpSockets::bind(&interfaces, &UdpOptions::new(Role::Device), &drops);
        let sockets = sockets.map_err(listen)?;
        let seed = chappe_transport::seed_number().map_err(listen)?;
        let spreading = match &self.options.tree {
            Some(options) => Some(tree::BoundSource::new(options, &interfaces)?),
            None => None,
        };
        let device = self.machine(spreading.as_ref())?;
        let (inputs, receive_inputs) = mpsc::channel(INPUTS_MAX);
        let (orders, receive_orders) = mpsc::channel(INPUTS_MAX);
        let (send_events, events) = mpsc::channel(INPUTS_MAX);
        let (said_bye, stopped) = watch::channel(false);
        let mut addresses = interfaces.iter().flat_map(|interface| &interface.addresses);
        let http = match (addresses.next(), addresses.next()) {
            // With only one address it sends from that one.
            (Some(only), None) => self.client(Some(*only)),
            _ => self.client(None),
        };
        let mut tasks = JoinSet::new();
        let spreading = spreading.map(|bound| bound.run(&inputs, &drops, &mut tasks));
        let shared = Arc::new(Shared {
            tree: spreading,
            schemas: Schemas::new(&self.services),
            endpoint: self.endpoint.clone(),
            announced: Mutex::new(Announced {
                types: self.all_types(),
                scopes: self.scopes.clone(),
                metadata_version: self.options.metadata_version,
            }),
            operations: Mutex::new(self.operations.clone()),
            serving: Serving::new(device, self.endpoint.clone(), self.options.signing.clone()),
            inputs,
            orders,
            servers: Mutex::default(),
            http,
            drops: drops.clone(),
            state: watch::Sender::new(HostState::default()),
            options: self.options.clone(),
        });
        let announced = discovery::serve(&shared, &interfaces)?;
        let target = TargetService::new(self.target(announced, seed));
        let device = tokio::spawn(serving::run(Arc::clone(&shared), receive_inputs));
        let running = run_udp(target, sockets, receive_orders, send_events, drops);
        tasks.spawn(async {
            running.await;
        });
        tasks.spawn(discovery::listen(Arc::clone(&shared), events, said_bye));
        tasks.spawn(discovery::watch_interfaces(Arc::clone(&shared), interfaces));
        // The queue is empty and large: this is the first command.
        let start = Order::Command(Command::Start);
        shared.orders.try_send(start).map_err(|_| Error::Closed)?;
        Ok(DeviceHost {
            shared,
            device,
            tasks,
            stopped,
        })
    }

    /// Each operation must be in the WSDL, otherwise no client could call it.
    fn check_operations(&self) -> Result<(), Error> {
        for action in self.operations.keys() {
            let knows = |service: &HostedService| service.wsdl.operation_of(action).is_some();
            if !self.services.iter().any(knows) {
                return Err(Error::Misuse(format!("no service has the action {action}")));
            }
        }
        Ok(())
    }

    fn client(&self, local_address: Option<IpAddr>) -> Client {
        let limits = self.options.client.clone();
        let local_address = limits.local_address.or(local_address);
        let limits = ClientLimits {
            local_address,
            exi: limits.exi && self.options.signing.is_none(),
            ..limits
        };
        Client::to_sinks(limits, self.options.tls.as_ref())
    }

    /// The machine of a device without notification trees.
    pub(crate) fn machine_alone(&self) -> Result<Device, Error> {
        self.machine(None)
    }

    fn machine(&self, tree: Option<&tree::BoundSource>) -> Result<Device, Error> {
        let endpoint = EndpointReference::new(self.endpoint.clone());
        let options = self.options.clone();
        let check = move |address: &str, peer| options.check_sink(address, peer);
        let config = DeviceConfig {
            path: DEVICE_PATH.into(),
            types: self.types.clone(),
            scopes: self.scopes.iter().cloned().map(Into::into).collect(),
            metadata_version: self.options.metadata_version,
            instance_id: self.instance_id,
            this_model: self.model.clone(),
            this_device: self.device.clone(),
            eventing: SourceConfig {
                utc_at_origin_ns: Some(crate::http::utc_at_origin_ns()),
                tree: tree.map(tree::BoundSource::config),
                ..self.options.eventing.clone()
            },
            invocation_timeout: operation_limit(&self.options.server),
            ..DeviceConfig::new(endpoint, self.services.clone())
        };
        Ok(Device::new(config, Arc::new(check), crate::http::secret()?))
    }

    fn all_types(&self) -> Vec<Name> {
        all_types(&self.types)
    }

    fn target(&self, interfaces: discovery::Announced, seed: u64) -> Config {
        Config {
            types: self.all_types(),
            scopes: self.scopes.iter().cloned().map(Into::into).collect(),
            dialects: self.options.dialects.clone(),
            metadata_version: self.options.metadata_version,
            interfaces,
            app_max_delay: self.options.app_max_delay,
            multicast: self.options.multicast,
            unicast: self.options.unicast,
            proxies: proxies::by_udp(&self.options.proxies),
            announces_by_http: !proxies::by_http(&self.options.proxies).is_empty(),
            ..Config::new(self.endpoint.clone(), self.instance_id, seed)
        }
    }
}

/// The time limit of an operation: seven eighths of that of an HTTP answer, so that the fault about it is
/// sent before the server gives up.
pub(super) fn operation_limit(server: &ServerLimits) -> Duration {
    server.answer_deadline - server.answer_deadline / 8
}

/// The types with that of a DPWS device.
pub(super) fn all_types(types: &[Name]) -> Vec<Name> {
    let device = std::iter::once(Dialect::V2009.device_type());
    device.chain(types.iter().cloned()).collect()
}

/// A number that increases with each start as long as the clock does (WS-Discovery 1.1, AppSequence).
///
/// Quarters of a second since 2020, until 2054: a supervisor may restart a device within the same second.
/// Starts in one process increase regardless of the clock.
pub(crate) fn instance_id() -> u32 {
    const FROM: Duration = Duration::from_secs(1_577_836_800);
    static LAST: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let quarters = since.unwrap_or_default().saturating_sub(FROM).as_millis() / 250;
    let now = u32::try_from(quarters).unwrap_or(u32::MAX);
    let rise = |last: u32| Some(now.max(last.saturating_add(1)));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rise);
    now.max(last.unwrap_or(0).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_a_higher_number() {
        let first = instance_id();
        assert!(first > 0);
        assert!(instance_id() > first);
    }
}
