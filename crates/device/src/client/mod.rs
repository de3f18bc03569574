//! The client: finds devices, reads their descriptions, calls them, and receives their events.

mod describe;
mod description;
mod directed;
mod discovery;
mod documents;
mod found;
mod inbox;
mod learning;
mod liveness;
mod metadata;
mod posted;
mod presence;
mod proxies;
mod resolver;
mod secured;
mod services;
mod subscription;
mod table;
mod tree;
mod turns;
mod typed;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_dpws::discovery::client::{Command, Config};
use chappe_dpws::discovery::{self as machine, MatchRule};
use chappe_dpws::exi::ServiceSchemas;
use chappe_dpws::{Dialect, exchange};
use chappe_identity::{AddressPolicy, CertificateName, Contact};
use chappe_soap::{Body, EndpointReference, Envelope, LazyEnvelope};
use chappe_transport::http::{
    Client, ClientLimits, Error as HttpError, Exchanged, Security, ServerLimits,
};
use chappe_transport::signatures::Signing;
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_transport::{Drops, Hop};
use chappe_xml::{Element, Name};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use crate::{Error, Selection};

pub use description::{Description, Document, HostedService, Note};
pub use discovery::Discovery;
pub(crate) use discovery::note_drop;
pub use found::{Found, Seen, Way};
pub use presence::Presence;
pub use proxies::ProxyUse;
pub use subscription::{Delivery, Notification, Subscription};
use table::Table;
pub use tree::{ClientTree, TreeCounts};
pub use typed::{CallError, Events, Received};

/// Discovery events that may wait for a slow reader, which then reads the table again.
const SEEN_MAX: usize = 1_024;
/// Commands and events between the client and its machine.
const QUEUE_MAX: usize = 256;

/// Options of a [`DeviceClient`].
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The networks to search. Default: all without the loopback.
    pub selection: Selection,
    /// The dialects of its searches. Default: both.
    pub dialects: Vec<Dialect>,
    /// Discovery proxies that are asked instead of the multicast groups while one of them answers. They may name
    /// devices at any address but this host's. Default none. Proxies that announce themselves are asked in
    /// addition to the groups. At most eight are used.
    pub proxies: Vec<Contact>,
    /// The addresses that a device may name. Default: its own only.
    pub policy: AddressPolicy,
    /// Limits of its requests.
    pub http: ClientLimits,
    /// Limits of the notification server. Default: those of a server, with as many requests as connections,
    /// so that devices that wait for their answers do not delay others.
    pub notifications: ServerLimits,
    /// The largest total size of all WSDL and schema documents of one device, inline or fetched, counted by
    /// [`Element::expanded_bytes`]. Default 64 MiB: an SDC provider whose services each import all schemas
    /// takes about 20 MiB.
    pub description_bytes: usize,
    /// The time limit for the description of a device, to its last document. Default 60 s: an SDC
    /// provider takes 1 s.
    pub description_deadline: Duration,
    /// The interval of periodic searches; `None` for none. Default 60 s: Hellos get lost.
    pub probe_period: Option<Duration>,
    /// The interval of liveness probes of a described device; `None` for none. Default 3 s: a device that
    /// loses power sends no Bye.
    pub liveness_period: Option<Duration>,
    /// The interval of interface checks. Default 10 s.
    pub interfaces_period: Duration,
    /// Notifications of one subscription that may wait to be read. A further one waits for its answer, and
    /// so does its device. Default 1,024.
    pub notifications_max: usize,
    /// The limit on their bytes, counted by [`Element::expanded_bytes`](chappe_xml::Element::expanded_bytes).
    /// Default 8 MiB: as many notifications of a usual size.
    pub notifications_bytes: usize,
    /// How events are received over notification trees of devices that offer them. Default `None`: standard
    /// notifications only.
    pub tree: Option<ClientTree>,
    /// Signed calls: requests to devices are signed, and their answers judged. Default `None`: signatures are
    /// ignored. Once a device has answered with a signature, all its answers have to be signed by the same.
    pub signing: Option<Signing>,
    /// Signed events: what devices send to subscriptions is judged. Default `None`. Events over notification
    /// trees have signatures of their own.
    pub event_signing: Option<Signing>,
    /// TLS of requests and of the notification server, made by [`Mutual`](chappe_transport::tls::Mutual). Default
    /// `None`: an https address is refused. If it trusts any certificate, a device that has an https address is never
    /// contacted without TLS.
    pub tls: Option<Security>,
    /// Whether devices without an https address are contacted. Default true.
    pub plain: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            dialects: Dialect::ALL.to_vec(),
            proxies: Vec::new(),
            policy: AddressPolicy::default(),
            http: ClientLimits {
                exi: true,
                ..ClientLimits::default()
            },
            notifications: ServerLimits {
                requests: ServerLimits::default().connections,
                exi: true,
                ..ServerLimits::default()
            },
            description_bytes: 64 << 20,
            description_deadline: Duration::from_secs(60),
            probe_period: Some(Duration::from_secs(60)),
            liveness_period: Some(Duration::from_secs(3)),
            interfaces_period: Duration::from_secs(10),
            notifications_max: 1_024,
            notifications_bytes: 8 << 20,
            tree: None,
            signing: None,
            event_signing: None,
            tls: None,
            plain: true,
        }
    }
}

/// The criteria of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// All of these types; an empty list matches everything. Names of DPWS are translated to each dialect.
    pub types: Vec<Name>,
    /// All of these scopes.
    pub scopes: Vec<String>,
    /// The rule by which scopes match; the default compares prefixes of path segments. A dialect without
    /// the rule is not asked.
    pub match_by: MatchRule,
    /// Time for which answers are accepted. Default 3 s: devices may wait 2.5 s before they answer.
    pub timeout: Duration,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            types: Vec::new(),
            scopes: Vec::new(),
            match_by: MatchRule::default(),
            timeout: Duration::from_secs(3),
        }
    }
}

struct Shared {
    options: ClientOptions,
    http: Client,
    /// For small answers.
    small: Client,
    /// For discovery proxies whose certificates have the usages of proxies, if these are configured.
    certified: Option<Client>,
    drops: Drops,
    orders: mpsc::Sender<Order<Command>>,
    seen: broadcast::Sender<Seen>,
    table: Mutex<Table>,
    /// The claims under verification.
    claims: Mutex<liveness::Claims>,
    random: Mutex<fastrand::Rng>,
    sinks: Mutex<subscription::Sinks>,
    /// The schemas by which event sinks understand EXI: those of the services that are subscribed to.
    schemas: ServiceSchemas,
    probes: AtomicU64,
    proxies: proxies::Proxies,
    tree_counters: tree::Counters,
    /// Turns of the addresses whose devices are being described.
    turns: turns::Turns,
    resolver: resolver::Resolver,
    /// The devices that were contacted with TLS.
    known: secured::Known,
}

/// Finds and uses devices. Runs on the current runtime until it is closed or dropped.
pub struct DeviceClient {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl std::fmt::Debug for DeviceClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceClient").finish_non_exhaustive()
    }
}

impl DeviceClient {
    /// Listens on the selected interfaces. Without any, only devices that are [learned](Self::learn) are
    /// known. Drops are recorded in `drops`.
    ///
    /// # Errors
    /// No interface matches, or none can be used to listen.
    pub fn start(mut options: ClientOptions, drops: Drops) -> Result<Self, Error> {
        // A signature covers the text as it was written.
        options.http.exi &= options.signing.is_none();
        options.notifications.exi &= options.event_signing.is_none();
        let interfaces = options.selection.resolve()?;
        let listen = |source| Error::Listen { at: None, source };
        let seed = chappe_transport::seed_number().map_err(listen)?;
        let sockets = match interfaces.as_slice() {
            [] => UdpSockets::none(),
            some => {
                UdpSockets::bind(some, &UdpOptions::new(Role::Client), &drops).map_err(listen)?
            }
        };
        let mut config = Config::new(interfaces, seed);
        config.dialects.clone_from(&options.dialects);
        config.exi = options.http.exi;
        // Addresses are checked when they are used, so a device that names a bad one is shown with the
        // reason instead of missing.
        let machine = machine::Client::new(config, |_: &str, _| Ok(()));
        let (orders, receive_orders) = mpsc::channel(QUEUE_MAX);
        let (send_events, events) = mpsc::channel(QUEUE_MAX);
        let mut tasks = JoinSet::new();
        let running = run_udp(machine, sockets, receive_orders, send_events, drops.clone());
        tasks.spawn(async {
            running.await;
        });
        let (proxies, checks) = proxies::Proxies::new(&options.proxies);
        let shared = Arc::new(Shared {
            proxies,
            http: Client::to_devices(options.http.clone(), options.tls.as_ref()),
            small: Client::to_devices(
                ClientLimits {
                    body_bytes: options.http.body_bytes.min(metadata::GET_BYTES),
                    ..options.http.clone()
                },
                options.tls.as_ref(),
            ),
            certified: Client::to_proxies(options.http.clone(), options.tls.as_ref()),
            options,
            drops,
            orders,
            seen: broadcast::Sender::new(SEEN_MAX),
            table: Mutex::default(),
            claims: Mutex::default(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            sinks: Mutex::default(),
            schemas: ServiceSchemas::default(),
            probes: AtomicU64::new(1),
            tree_counters: tree::Counters::default(),
            turns: turns::Turns::default(),
            resolver: resolver::Resolver::default(),
            known: secured::Known::default(),
        });
        tasks.spawn(discovery::listen(Arc::clone(&shared), events));
        tasks.spawn(discovery::watch_interfaces(Arc::clone(&shared)));
        tasks.spawn(proxies::run(Arc::clone(&shared), checks));
        if let Some(period) = shared.options.probe_period {
            tasks.spawn(discovery::probe_regularly(Arc::clone(&shared), period));
        }
        if let Some(period) = shared.options.liveness_period {
            tasks.spawn(liveness::watch(Arc::clone(&shared), period));
        }
        Ok(Self { shared, tasks })
    }

    /// The known devices, followed by changes; searches for everything in all dialects.
    pub async fn discover(&self) -> Result<Discovery, Error> {
        let discovery = self.listen();
        self.shared.probe_everything().await?;
        Ok(discovery)
    }

    /// The known devices, followed by changes, without a search.
    #[must_use]
    pub fn listen(&self) -> Discovery {
        Discovery::new(&self.shared)
    }

    /// Searches once. The answers arrive as [`Seen::Match`] with the returned number, followed by
    /// [`Seen::SearchEnded`].
    ///
    /// # Errors
    /// The client is closed.
    pub async fn search(&self, search: &Search) -> Result<u64, Error> {
        self.shared.probe(search).await
    }

    /// Searches on one host, which multicast does not reach; otherwise like [`Self::search`].
    ///
    /// # Errors
    /// The client is closed.
    pub async fn search_at(&self, to: SocketAddr, search: &Search) -> Result<u64, Error> {
        let id = self.shared.probes.fetch_add(1, Ordering::Relaxed);
        let command = Command::DirectedProbe {
            id,
            to,
            types: search.types.clone(),
            scopes: search.scopes.iter().cloned().map(Into::into).collect(),
            match_by: search.match_by,
            timeout: search.timeout,
        };
        self.shared.command(command).await?;
        Ok(id)
    }

    /// Searches at one HTTP address, which UDP does not reach: in each dialect until one is answered within
    /// the limits of requests. Devices in the answer are added to the list. The caller vouches for the
    /// address; the policy judges those in the answer.
    ///
    /// # Errors
    /// There is no answer, or it is no answer to a Probe.
    pub async fn search_by_http(
        &self,
        contact: &Contact,
        search: &Search,
    ) -> Result<Vec<Found>, Error> {
        directed::search(&self.shared, contact, search).await
    }

    /// The discovery proxies that it uses.
    #[must_use]
    pub fn proxies(&self) -> Vec<ProxyUse> {
        self.shared.proxies.all()
    }

    /// Verifies a Bye that was heard otherwise than by this client: if the device no longer listens, it is
    /// removed and reported as [`Seen::Gone`].
    pub async fn verify_bye(&self, endpoint: &str, from: SocketAddr) {
        if self.shared.table().contains_key(endpoint) {
            liveness::confirm_bye(&self.shared, endpoint, from).await;
        }
    }

    /// Resolves an endpoint by multicast, and at discovery proxies; the answer arrives as [`Seen::Found`] or [`Seen::Changed`].
    ///
    /// # Errors
    /// The client is closed.
    pub async fn resolve(&self, endpoint: &str) -> Result<(), Error> {
        self.shared.resolve_by_proxies(endpoint);
        let endpoint = endpoint.to_owned().into();
        self.shared.command(Command::Resolve { endpoint }).await
    }

    /// Adds a device found by other means than datagrams of WS-Discovery to the same list; news arrive as
    /// [`Seen::Found`] or [`Seen::Changed`]. While a device listens at its known address, no other
    /// address is accepted for it.
    pub async fn learn(&self, found: Found) {
        learning::learn(&self.shared, found).await;
    }

    /// Like [`Self::learn`], for a description that nobody but its sender vouches for: it changes nothing about
    /// a device that another host announced.
    pub async fn hear(&self, found: Found) {
        learning::hear(&self.shared, found).await;
    }

    /// Records that a [learned](Self::learn) device is no longer published. It is removed, unless
    /// it was
    /// described; then it is removed when it no longer listens.
    pub async fn unlearn(&self, endpoint: &str) {
        learning::unlearn(&self.shared, endpoint).await;
    }

    /// All known devices.
    #[must_use]
    pub fn known(&self) -> Vec<Found> {
        let table = self.shared.table();
        table.values().map(|entry| entry.found.clone()).collect()
    }

    /// Counters of events received over notification trees.
    #[must_use]
    pub fn tree_counts(&self) -> TreeCounts {
        self.shared.tree_counters.read()
    }

    /// The record of drops.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.shared.drops
    }

    /// Calls an operation: sends `body` with `action`, and returns the body of the answer; `None` if the
    /// service accepts the request without an answer.
    ///
    /// # Errors
    /// The device is unreachable, or answers with a fault or without a valid message.
    pub async fn call(
        &self,
        service: &HostedService,
        action: &str,
        body: Element,
    ) -> Result<Option<Element>, Error> {
        self.caller().call(service, action, body).await
    }

    /// A handle that calls services without the client.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Unsubscribes, stops all tasks, and returns when they have ended.
    pub async fn close(mut self) {
        let sinks = {
            let mut sinks = self
                .shared
                .sinks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *sinks)
        };
        sinks.close().await;
        self.tasks.shutdown().await;
        self.shared.http.close_idle();
        self.shared.small.close_idle();
    }
}

/// Calls services of devices by action. Clones share it.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    /// Like [`DeviceClient::call`].
    ///
    /// # Errors
    /// Those of [`DeviceClient::call`].
    pub async fn call(
        &self,
        service: &HostedService,
        action: &str,
        body: Element,
    ) -> Result<Option<Element>, Error> {
        let answer = self.call_body(service, action, body.into()).await?;
        let answer = answer.map(Body::into_element).transpose();
        answer.map_err(|error| Error::Answer {
            operation: "an operation",
            what: error.to_string(),
        })
    }

    /// Calls an operation with a body that is made by its type, and returns one that is read by its type.
    async fn call_body(
        &self,
        service: &HostedService,
        action: &str,
        body: Body,
    ) -> Result<Option<Body>, Error> {
        let shared = &self.shared;
        let request = LazyEnvelope {
            head: shared.request(service.dialect, &service.endpoint, action),
            body: vec![body],
        };
        let answer = shared.ask_lazy(service, request).await;
        let answer = answer.map_err(Error::from).inspect_err(|error| {
            shared.note(Hop::Call, &service.contact.address.ip().to_string(), error);
        })?;
        Ok(answer.and_then(|answer| answer.body.into_iter().next()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let sinks = self.sinks.get_mut();
        sinks.unwrap_or_else(PoisonError::into_inner).abandon();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claims(&self) -> MutexGuard<'_, liveness::Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn command(&self, command: Command) -> Result<(), Error> {
        let order = Order::Command(command);
        self.orders.send(order).await.map_err(|_| Error::Closed)
    }

    fn message_id(&self) -> String {
        let random = self.random.lock();
        chappe_soap::udp::random_urn(&mut random.unwrap_or_else(PoisonError::into_inner))
    }

    fn request(&self, dialect: Dialect, to: &EndpointReference, action: &str) -> Envelope {
        let version = dialect.addressing();
        exchange::request(version, to, action.to_owned(), self.message_id())
    }

    /// Sends a request, signed and judged as the options say. A fault is an error.
    async fn ask(
        &self,
        http: &Client,
        contact: &Contact,
        request: &Envelope,
        signer: Option<&CertificateName>,
    ) -> Result<Exchanged, HttpError> {
        let signing = self.options.signing.as_ref();
        let answer = http.exchange_signed(contact, request, signing, signer);
        let answer = answer.await?;
        match answer.envelope.as_ref().and_then(Envelope::fault) {
            None => Ok(answer),
            Some(fault) => Err(HttpError::Fault {
                peer: contact.address,
                fault: Box::new(fault),
            }),
        }
    }

    /// Like [`Self::ask`], with bodies that are made and read by their types. Signatures need trees.
    async fn ask_lazy(
        &self,
        service: &HostedService,
        request: LazyEnvelope,
    ) -> Result<Option<LazyEnvelope>, HttpError> {
        let contact = &service.contact;
        let peer = contact.address;
        if self.options.signing.is_some() {
            let request = request.into_envelope();
            let request = request.map_err(|source| HttpError::Soap { peer, source })?;
            let signer = service.signer.as_ref();
            let answer = self.ask(&self.http, contact, &request, signer).await?;
            return Ok(answer.envelope.map(LazyEnvelope::from));
        }
        let schema = Some(&service.exi_schema);
        let answer = self.http.exchange_lazy(contact, &request, schema).await?;
        match answer.as_ref().and_then(LazyEnvelope::fault) {
            None => Ok(answer),
            Some(fault) => Err(HttpError::Fault {
                peer,
                fault: Box::new(fault),
            }),
        }
    }

    /// Records an error as a drop.
    fn note(&self, hop: Hop, peer: &str, error: &Error) {
        let (hop, detail) = (error.hop(hop), error.to_string());
        self.drops
            .record(hop, error.reason(), peer, detail, error.hint());
    }

    fn emit(&self, seen: Seen) {
        // Without a reader the event is not needed.
        let _ = self.seen.send(seen);
    }
}
