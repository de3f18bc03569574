//! A node of the network for programs: it joins, publishes devices, finds those of others, and stores its contacts.
//!
//! The publisher signed the record of a device, but anyone can publish. So before the addresses of a device are
//! delivered, the publisher is pinged at their hosts: an address at which it answers is its own
//! ([`Sighting::confirmed`]). The others are unverified claims.

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

/// Commands queued for a node; further callers wait.
const ORDERS_MAX: usize = 64;
/// Sightings of one search queued for the caller; further ones are dropped and counted.
pub(super) const SIGHTINGS_MAX: usize = 8_192;

/// Options of a [`KadNode`]. [`KadNodeOptions::at`] gives the defaults.
#[derive(Debug, Clone)]
pub struct KadNodeOptions {
    /// The listening address; port 0 takes a free one. On the loopback it communicates with this host only,
    /// elsewhere never with it.
    pub listen: SocketAddr,
    /// The nodes through which it joins.
    pub entrances: Vec<SocketAddr>,
    /// The folder of the last boot number and the last contacts (`kad-boot`, `kad-contacts`). Default `None`: only
    /// for a key that is made for one run.
    pub directory: Option<PathBuf>,
    /// Whether it only queries and publishes, and stores nothing for others. Default false. For devices, and for
    /// programs that end soon.
    pub client: bool,
    /// Networks in which it sends to addresses named by other nodes; empty, the default, allows all.
    pub reach: Vec<Prefix>,
    /// The network of one owner. Default `None`: everybody may join.
    pub membership: Option<Membership>,
    /// The interval of reports and of checks for republishing. Default 5 s.
    pub report_period: Duration,
}

impl KadNodeOptions {
    /// A node that listens at this address, with the defaults.
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

/// A device published by some node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The announced device.
    pub announcement: Announcement,
    /// The publisher, proven by a signature.
    pub publisher: PublicKey,
    /// Increases with each renewal, which shows that the publisher is alive.
    pub sequence: u64,
    /// The address at which the publisher itself answered; the device's addresses at that host are the publisher's
    /// own. `None`: it answered at none of them, for example if another program publishes the device.
    pub confirmed: Option<SocketAddr>,
}

impl Sighting {
    /// The publisher's host, to check the device's addresses against; if it is not confirmed, the unspecified
    /// address, which vouches for none.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        self.confirmed.unwrap_or(nobody)
    }
}

/// An event of a search.
#[derive(Debug)]
pub enum Finding {
    /// A device, or an update of it.
    Seen(Box<Sighting>),
    /// The search has ended.
    Ended {
        /// Its statistics.
        report: SearchReport,
        /// Whether it ended because its credit was used up: there may be more results.
        exhausted: bool,
    },
}

/// A node that runs on the current runtime, until it is closed or dropped.
#[derive(Debug)]
pub struct KadNode {
    orders: mpsc::Sender<Order>,
    local: SocketAddr,
    public: PublicKey,
    report: watch::Receiver<Report>,
}

impl KadNode {
    /// Starts a node with a key, and joins through the last known contacts and the entrances.
    ///
    /// # Errors
    /// The address cannot be used to listen, the files of `directory` cannot be read or written, or the operating
    /// system provides no randomness.
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
        // The configured ones last: if there are too many, the first are dropped.
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

    /// The listening address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Its public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Its state; updated every report period and when it has joined.
    #[must_use]
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.clone()
    }

    /// Joins through these nodes, too.
    pub async fn enter(&self, entrances: Vec<Entrance>) {
        // An error means that the node has ended, here and in the functions below.
        let _ = self.orders.send(Order::Enter(entrances)).await;
    }

    /// Publishes a device under a slot number, and renews it until it is withdrawn. The announcement gets this
    /// node's port. Parts that do not fit into a record are left out: clients read the rest from the device.
    pub async fn publish(&self, slot: u16, announcement: Announcement) {
        let order = Order::Publish(slot, Box::new(announcement));
        let _ = self.orders.send(order).await;
    }

    /// Withdraws the publication of this slot.
    pub async fn withdraw(&self, slot: u16) {
        let _ = self.orders.send(Order::Withdraw(slot)).await;
    }

    /// Searches for records under a key, until all are found or `credit` bytes of answers have arrived.
    /// [`Finding::Ended`] is the last event; dropping the receiver ends the search.
    pub async fn find(&self, key: Key, credit: u64) -> mpsc::Receiver<Finding> {
        let (to, findings) = mpsc::channel(SIGHTINGS_MAX);
        let _ = self.orders.send(Order::Find { key, credit, to }).await;
        findings
    }

    /// Withdraws its publications, as far as `patience` allows, and ends.
    pub async fn close(&self, patience: Duration) {
        let (done, ended) = oneshot::channel();
        if self.orders.send(Order::Close(patience, done)).await.is_ok() {
            // An error means that it ended without an answer.
            let _ = ended.await;
        }
    }
}

/// The time of day in seconds since 1970.
pub(super) fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The first few hosts that a device names.
pub(super) fn hosts(announcement: &Announcement) -> Vec<IpAddr> {
    /// The largest number of hosts of one device at which its publisher is pinged. Reason: most devices have one
    /// address of each family.
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
