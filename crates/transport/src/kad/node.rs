//! A node of the network as programs use it: it enters, publishes devices, finds those of others,
//! and keeps whom it knew.
//!
//! What a record says of a device was signed by its publisher, and a publisher is anybody. So before
//! the addresses of a device are handed on, the publisher is asked at their hosts whether it is there: an
//! address that it answers at is its own ([`Sighting::confirmed`]). The others are somebody's word.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_identity::{Key as IdentityKey, Prefix, PublicKey};
use chappe_kad::service::Announcement;
use chappe_kad::{Config, Entrance, Kad, Key, Membership, NodeKey, Reach, Report, SearchReport};
use tokio::sync::{mpsc, oneshot, watch};

use super::agent::{self, Agent, Order};
use super::{KadOptions, bind, next_boot, read_contacts, run_kad};
use crate::{Clock, Drops};

/// Orders that may wait for a node; then who orders waits.
const ORDERS_MAX: usize = 64;
/// Sightings of one search that may wait for who searches; more are dropped and counted.
pub(super) const SIGHTINGS_MAX: usize = 8_192;

/// How a [`KadNode`] behaves. [`KadNodeOptions::at`] gives the defaults.
#[derive(Debug, Clone)]
pub struct KadNodeOptions {
    /// Where it listens; port 0 takes a free one. On an address of the loopback it speaks with this host
    /// alone, elsewhere never with it.
    pub listen: SocketAddr,
    /// Nodes by which it enters.
    pub entrances: Vec<SocketAddr>,
    /// Where the number of its last start and its last contacts are kept (`kad-boot`,
    /// `kad-contacts`). Default nowhere: right only for a key that is made for one run.
    pub directory: Option<PathBuf>,
    /// Only asks and publishes, and keeps nothing for others. Default no. For devices, and for programs
    /// that soon end.
    pub client: bool,
    /// Networks in which it sends to addresses that other nodes name; none, the default: all.
    pub reach: Vec<Prefix>,
    /// The network of one owner. Default none: everybody may join.
    pub membership: Option<Membership>,
    /// Time between two reports and looks at what is to be published again. Default 5 s.
    pub report_period: Duration,
}

impl KadNodeOptions {
    /// A node that listens there, with the defaults.
    #[must_use]
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            entrances: Vec::new(),
            directory: None,
            client: false,
            reach: Vec::new(),
            membership: None,
            report_period: Duration::from_secs(5),
        }
    }
}

/// A device that somebody publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// What is said of it.
    pub announcement: Announcement,
    /// Who says so, by a signature.
    pub publisher: PublicKey,
    /// Rises with each renewal: who renews is there.
    pub sequence: u64,
    /// Where the publisher itself answered; the device's addresses at that host are the publisher's own.
    /// `None`: it answered at none of them, as of a device that another program publishes.
    pub confirmed: Option<SocketAddr>,
}

impl Sighting {
    /// The publisher's host, for judging the device's addresses: where it is not confirmed, the
    /// unspecified address, which vouches for none.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        self.confirmed.unwrap_or(nobody)
    }
}

/// What comes of a search.
#[derive(Debug)]
pub enum Finding {
    /// A device, or news of it.
    Seen(Box<Sighting>),
    /// The search has ended.
    Ended {
        /// What it did.
        report: SearchReport,
        /// Whether it ended because the bytes it granted were used up: there may be more.
        exhausted: bool,
    },
}

/// A node that runs by itself on the current runtime, until it is closed or dropped.
#[derive(Debug)]
pub struct KadNode {
    orders: mpsc::Sender<Order>,
    local: SocketAddr,
    public: PublicKey,
    report: watch::Receiver<Report>,
}

impl KadNode {
    /// Starts a node with a key, and enters by the last known contacts and the entrances.
    ///
    /// # Errors
    /// When the address cannot be listened on, the files of `directory` cannot be read or written,
    /// or the operating system gives no randomness.
    pub fn start(key: IdentityKey, options: KadNodeOptions, drops: Drops) -> io::Result<Self> {
        let contacts = match &options.directory {
            Some(directory) => read_contacts(&directory.join(agent::CONTACTS_FILE))?,
            None => Vec::new(),
        };
        let socket = bind(options.listen, &KadOptions::default())?;
        let local = socket.local_addr()?;
        let boot = match &options.directory {
            Some(directory) => next_boot(&directory.join("kad-boot"), unix_s())?,
            // Seconds fit until 2106.
            None => u32::try_from(unix_s()).unwrap_or(u32::MAX),
        };
        let config = Config {
            client: options.client,
            reach: Reach {
                loopback: local.ip().is_loopback(),
                only: options.reach.clone(),
            },
            membership: options.membership,
            ..Config::new(boot, crate::seed()?)
        };
        let public = key.public();
        let machine = Kad::new(NodeKey::new(key), config.clone(), Clock::process().now());
        let (commands, receive_commands) = mpsc::channel(ORDERS_MAX);
        let (send_events, events) = mpsc::channel(ORDERS_MAX);
        let running = run_kad(
            machine,
            socket,
            receive_commands,
            send_events,
            drops.clone(),
        );
        let running = tokio::spawn(running);
        let (orders, receive_orders) = mpsc::channel(ORDERS_MAX);
        let (tell, report) = watch::channel(Report::default());
        let known = contacts.into_iter().map(|contact| Entrance {
            address: contact.address,
            public: Some(contact.public),
        });
        // The configured ones last: of more than are kept the first give way.
        let entrances = known.chain(options.entrances.iter().map(|address| Entrance {
            address: *address,
            public: None,
        }));
        let agent = Agent::new(
            (commands, running),
            config.reach,
            (&options, local),
            tell,
            drops,
        );
        tokio::spawn(agent.run(entrances.collect(), receive_orders, events));
        Ok(Self {
            orders,
            local,
            public,
            report,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Its public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// How it is; renewed every report period and when it has entered.
    #[must_use]
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.clone()
    }

    /// Enters by these too.
    pub async fn enter(&self, entrances: Vec<Entrance>) {
        // Without its agent the node has ended; so it is with the others below.
        let _ = self.orders.send(Order::Enter(entrances)).await;
    }

    /// Publishes a device under a number of its own, and renews it until it is withdrawn. The port of the
    /// announcement is this node's, whatever it says. What does not fit a record is left out: who finds
    /// the device reads the rest from itself.
    pub async fn publish(&self, slot: u16, announcement: Announcement) {
        let order = Order::Publish(slot, Box::new(announcement));
        let _ = self.orders.send(order).await;
    }

    /// Publishes no more under this number.
    pub async fn withdraw(&self, slot: u16) {
        let _ = self.orders.send(Order::Withdraw(slot)).await;
    }

    /// Searches for what is published under a key, until all is found or `credit` bytes of answers have
    /// arrived. What comes ends with [`Finding::Ended`]; dropping the receiver ends the search.
    pub async fn find(&self, key: Key, credit: u64) -> mpsc::Receiver<Finding> {
        let (to, findings) = mpsc::channel(SIGHTINGS_MAX);
        let _ = self.orders.send(Order::Find { key, credit, to }).await;
        findings
    }

    /// Withdraws what it publishes, as far as that is done in `patience`, and ends.
    pub async fn close(&self, patience: Duration) {
        let (done, ended) = oneshot::channel();
        if self.orders.send(Order::Close(patience, done)).await.is_ok() {
            // An error says that it ended without a word.
            let _ = ended.await;
        }
    }
}

/// The time of day in seconds since 1970.
pub(super) fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The hosts that a device names: the first few.
pub(super) fn hosts(announcement: &Announcement) -> Vec<IpAddr> {
    /// Hosts of one device at which its publisher is asked for. Reason: most devices have one address
    /// of each family.
    const HOSTS_MAX: usize = 4;
    let mut hosts = Vec::new();
    for address in &announcement.addresses {
        let Ok(contact) = chappe_identity::Contact::parse(address, 0) else {
            continue;
        };
        let ip = contact.address.ip().to_canonical();
        if !hosts.contains(&ip) && hosts.len() < HOSTS_MAX {
            hosts.push(ip);
        }
    }
    hosts
}
