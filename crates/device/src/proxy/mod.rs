//! A discovery proxy: answers for devices that multicast does not reach (docs/reference/discovery-proxy.md).
//!
//! The protocol is in [`chappe_dpws::discovery::Proxy`]; this gives it sockets, HTTP and subscribers. What
//! unauthenticated messages say is passed on as [`ProxyNews`], so that the application can look for itself, and
//! tell by [`DiscoveryProxy::learn`] and [`DiscoveryProxy::unlearn`].

mod events;
mod serving;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::discovery::proxy::{Command, Config};
use chappe_dpws::discovery::{Interface, Proxy, Target};
use chappe_identity::{AddressPolicy, Scheme};
use chappe_soap::EndpointReference;
use chappe_transport::http::{ClientLimits, Response, Security, Server, ServerLimits, base};
use chappe_transport::udp::{Order, Role, UdpOptions, UdpSockets, run_udp};
use chappe_transport::{Drops, Parsers};
use chappe_xml::Str;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio::task::JoinSet;

use crate::client::Found;
use crate::{Error, Selection};

/// Commands and events between the proxy and its machine.
const QUEUE_MAX: usize = 1_024;
/// Messages of discovery that are answered at a time; others wait. Reason: an answer has up to 4 MiB of text and as much
/// again before it is written, and the machine makes one after another anyway.
const ANSWERING_MAX: usize = 4;
/// News that may wait for a slow reader.
const NEWS_MAX: usize = 1_024;
/// Time for the last Bye.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// Options of a [`DiscoveryProxy`].
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// Its stable endpoint, `urn:uuid:…`.
    pub endpoint: String,
    /// The networks on which it announces itself and answers datagrams. Default: all without the loopback.
    pub selection: Selection,
    /// The address of its own HTTP server; `None` for none. Each path of it answers.
    pub listen: Option<SocketAddr>,
    /// Further addresses that it announces, of servers that pass requests to [`DiscoveryProxy::answer`].
    pub addresses: Vec<String>,
    /// The transport addresses that a device may register. Default: its own only.
    pub policy: AddressPolicy,
    /// TLS of notifications, and of its server unless that is plain; made by
    /// [`Mutual`](chappe_transport::tls::Mutual). Default `None`.
    pub tls: Option<Security>,
    /// Whether its server speaks plain HTTP. Default yes; without it every client needs a certificate that `tls`
    /// trusts, and the proxy announces an address with https.
    pub plain: bool,
    /// Limits of its server.
    pub server: ServerLimits,
    /// Limits of notifications.
    pub client: ClientLimits,
    /// Time after which an unconfirmed entry ends that was not renewed. Default 10 min.
    pub lifetime: Duration,
}

impl ProxyOptions {
    /// The defaults for an endpoint.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            selection: Selection::default(),
            listen: None,
            addresses: Vec::new(),
            policy: AddressPolicy::default(),
            tls: None,
            plain: true,
            server: ServerLimits {
                // A gateway registers its devices over a connection each.
                connections: 1_024,
                connections_per_peer: 512,
                ..ServerLimits::default()
            },
            client: ClientLimits::default(),
            lifetime: Duration::from_secs(600),
        }
    }
}

/// News that the proxy does not believe unseen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyNews {
    /// A device registered, or says that it has changed.
    Registered(Found),
    /// A Bye that may be forged.
    Bye {
        /// The endpoint.
        endpoint: String,
        /// The sender.
        from: SocketAddr,
    },
}

/// A message that came by HTTP or HTTPS (POST).
#[derive(Debug, Clone)]
pub struct Posted {
    /// The client at the other end of the connection.
    pub peer: SocketAddr,
    /// Scheme, host and port that it contacted, without trailing slash.
    pub base: String,
    /// The path, which matters only for subscriptions.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
    /// Who sent it, if the server has authenticated its client.
    pub sender: Option<String>,
}

/// The load of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyState {
    /// Devices that it offers.
    pub devices: usize,
}

struct Shared {
    orders: mpsc::Sender<Order<Command>>,
    replies: serving::Replies,
    subscribers: events::Subscribers,
    answering: Semaphore,
    /// Read large messages apart from the serving threads.
    parsers: Parsers,
    news: broadcast::Sender<ProxyNews>,
    state: watch::Sender<ProxyState>,
    drops: Drops,
}

/// A running discovery proxy. Dropping it ends it at once, like a power cut; [`DiscoveryProxy::stop`] says Bye
/// first.
pub struct DiscoveryProxy {
    shared: Arc<Shared>,
    server: Option<Server>,
    /// They end with it.
    _tasks: JoinSet<()>,
    stopped: watch::Receiver<bool>,
}

impl std::fmt::Debug for DiscoveryProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscoveryProxy")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

impl DiscoveryProxy {
    /// Listens, and says Hello. Drops are recorded in `drops`.
    ///
    /// # Errors
    /// No interface matches, an address cannot be used to listen, or TLS lacks a certificate.
    pub fn start(options: ProxyOptions, drops: Drops) -> Result<Self, Error> {
        if !options.plain && options.tls.is_none() {
            let missing = "a proxy whose server does not speak plain HTTP needs `tls`";
            return Err(Error::Misuse(missing.to_owned()));
        }
        let listen = |source| Error::Listen { at: None, source };
        let interfaces = options.selection.resolve()?;
        let seed = chappe_transport::seed_number().map_err(listen)?;
        let sockets = match interfaces.as_slice() {
            [] => UdpSockets::none(),
            some => {
                UdpSockets::bind(some, &UdpOptions::new(Role::Device), &drops).map_err(listen)?
            }
        };
        let (orders, receive_orders) = mpsc::channel(QUEUE_MAX);
        let (send_events, events) = mpsc::channel(QUEUE_MAX);
        let (said_bye, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let subscribers = events::Subscribers::start(&options, &drops, &mut tasks)?;
        let shared = Arc::new(Shared {
            orders,
            replies: serving::Replies::default(),
            subscribers,
            answering: Semaphore::new(ANSWERING_MAX),
            parsers: Parsers::default(),
            news: broadcast::Sender::new(NEWS_MAX),
            state: watch::Sender::default(),
            drops: drops.clone(),
        });
        let server = match options.listen {
            Some(address) => Some(serving::bind(address, &options, &shared)?),
            None => None,
        };
        let scheme = match options.plain {
            true => Scheme::Http,
            false => Scheme::Https,
        };
        let address = server.as_ref().map(|server| (scheme, server.local_addr()));
        let policy = options.policy.clone();
        let check = move |xaddr: &str, from: SocketAddr| {
            let checked = policy.check(xaddr, from);
            checked.map(drop).map_err(|refusal| refusal.to_string())
        };
        let config = Config {
            interfaces: announced(&interfaces, address, &options.addresses),
            lifetime: options.lifetime,
            ..Config::new(options.endpoint, crate::host::instance_id(), seed)
        };
        let machine = Proxy::new(config, check);
        let running = run_udp(machine, sockets, receive_orders, send_events, drops);
        tasks.spawn(async {
            running.await;
        });
        tasks.spawn(serving::listen(Arc::clone(&shared), events, said_bye));
        // The queue is empty and large: this is the first command.
        let start = Order::Command(Command::Start);
        shared.orders.try_send(start).map_err(|_| Error::Closed)?;
        Ok(Self {
            shared,
            server,
            _tasks: tasks,
            stopped,
        })
    }

    /// The address of its own server, with the bound port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::local_addr)
    }

    /// Its load.
    #[must_use]
    pub fn state(&self) -> ProxyState {
        *self.shared.state.borrow()
    }

    /// News from now on.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<ProxyNews> {
        self.shared.news.subscribe()
    }

    /// Offers a device that the application has reached, until [`Self::unlearn`].
    pub async fn learn(&self, found: &Found) {
        let strings = |list: &[String]| list.iter().cloned().map(Str::from).collect();
        let target = Target {
            endpoint: EndpointReference::new(found.endpoint.clone()),
            types: found.types.clone(),
            scopes: strings(&found.scopes),
            xaddrs: strings(&found.xaddrs),
            metadata_version: found.metadata_version,
        };
        let (dialect, from) = (found.dialect, found.from);
        self.shared
            .command(Command::Learn {
                target,
                dialect,
                from,
            })
            .await;
    }

    /// Ends the entry of a device that the application no longer reaches.
    pub async fn unlearn(&self, endpoint: &str) {
        let endpoint = endpoint.to_owned().into();
        self.shared.command(Command::Unlearn { endpoint }).await;
    }

    /// Answers a message that another server received.
    pub async fn answer(&self, message: Posted) -> Response {
        serving::answer(&self.shared, message).await
    }

    /// Ends the subscriptions, and says Bye. Its server ends when it is dropped.
    pub async fn stop(&self) {
        self.shared.subscribers.end().await;
        self.shared.command(Command::Stop).await;
        let mut stopped = self.stopped.clone();
        let said = stopped.wait_for(|stopped| *stopped);
        let _ = tokio::time::timeout(STOP_DEADLINE, said).await;
    }
}

impl Shared {
    async fn command(&self, command: Command) {
        // A closed machine has nothing to do.
        let _ = self.orders.send(Order::Command(command)).await;
    }
}

/// The interfaces with the HTTP addresses that clients on them use.
fn announced(
    interfaces: &[Interface],
    server: Option<(Scheme, SocketAddr)>,
    others: &[String],
) -> Vec<(Interface, Vec<Str>)> {
    let of = |interface: &Interface| {
        let ours = server.into_iter().flat_map(|(scheme, server)| {
            let all = interface.addresses.iter().copied();
            let addresses: Vec<_> = match server.ip() {
                ip if ip.is_unspecified() => {
                    all.filter(|one| one.is_ipv4() || ip.is_ipv6()).collect()
                }
                ip => vec![ip],
            };
            let at = move |ip| base(scheme, SocketAddr::new(ip, server.port()));
            addresses
                .into_iter()
                .map(move |ip| Str::from(format!("{}/", at(ip))))
        });
        ours.chain(others.iter().cloned().map(Str::from)).collect()
    };
    let with_addresses = interfaces.iter().map(|one| (one.clone(), of(one)));
    with_addresses.collect()
}
