//! The source of notification trees: one UDP socket, one tree for each action.
//!
//! The event source of the device decides which sinks to prove and list, and which events to spread. Here its
//! requests become commands of the tree, paced for the network, and outcomes return to it. Lists that do not fit
//! into events are fetched by sinks over HTTP, signed, from a path that only subscribers learn.

mod lists;
mod options;
mod source;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chappe_dpws::discovery::Interface;
use chappe_dpws::eventing::{SourceReceive, SourceTransmit, TreeConfig};
use chappe_dpws::hosting::Device;
use chappe_notification_tree::{Arranger, Config, Contact, Keys, Tree};
use chappe_transport::Drops;
use chappe_transport::kad::{KadOptions, bind, next_boot};
use chappe_transport::tree::{MemoryWindows, TreeOptions, run_tree};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Error;
use crate::driver::InputOf;

use lists::Lists;
pub use options::{HostTree, TreeState};
use source::Source;

/// Requests, commands and events queued between machine, task and tree.
const QUEUE_MAX: usize = 1_024;
/// Events of one action under way; further ones are sent as standard notifications.
///
/// Reason: five times the events of the 2 s that a silent sink is awaited, at 100 events a second.
const UNDER_WAY_MAX: usize = 1_024;
/// The latest time for the outcome of an event; sinks without it then get it over HTTP.
const OUTCOME_DEADLINE: Duration = Duration::from_secs(2);

/// A source with a bound socket that does not run yet.
pub(super) struct BoundSource {
    options: HostTree,
    socket: UdpSocket,
    address: SocketAddr,
    members_path: String,
    boot: u32,
}

impl BoundSource {
    pub(super) fn new(options: &HostTree, interfaces: &[Interface]) -> Result<Self, Error> {
        let addresses = || interfaces.iter().flat_map(|interface| &interface.addresses);
        let at = match (addresses().next(), addresses().nth(1)) {
            // With only one address it sends from that one.
            (Some(only), None) => *only,
            _ if addresses().any(IpAddr::is_ipv4) => Ipv4Addr::UNSPECIFIED.into(),
            _ => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listen = |source| Error::Listen {
            at: Some(at),
            source,
        };
        let socket = bind(SocketAddr::new(at, options.port), &KadOptions::default());
        let socket = socket.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_s = since.unwrap_or_default().as_secs();
        let boot = match &options.boot {
            Some(path) => next_boot(path, unix_s).map_err(listen)?,
            None => u32::try_from(unix_s).unwrap_or(u32::MAX),
        };
        let secret = u128::from_le_bytes(crate::http::secret()?);
        Ok(Self {
            options: options.clone(),
            socket,
            address,
            members_path: format!("/tree/{secret:032x}"),
            boot,
        })
    }

    /// The configuration for the event source.
    pub(super) fn config(&self) -> TreeConfig {
        let key = *self.options.key.public().as_bytes();
        let (port, v4) = (self.address.port(), self.address.is_ipv4());
        TreeConfig::new(key, port, v4, self.members_path.clone().into())
    }

    pub(super) fn run(
        self,
        inputs: &mpsc::Sender<Option<InputOf<Device>>>,
        drops: &Drops,
        tasks: &mut JoinSet<()>,
    ) -> RunningSource {
        let (orders, receive_orders) = mpsc::channel(QUEUE_MAX);
        let (commands, receive_commands) = mpsc::channel(QUEUE_MAX);
        let (send_events, events) = mpsc::channel(QUEUE_MAX);
        let lists = Lists::new(&self.members_path);
        let key = *self.options.key.public().as_bytes();
        let config = Config {
            history: UNDER_WAY_MAX,
            within: OUTCOME_DEADLINE,
            ..Config::default()
        };
        let contact = Contact {
            address: self.address,
            key,
        };
        let keys = Keys::new(Arc::clone(&self.options.key));
        let arranger = Arranger::new(self.options.order.order, &config);
        let machine = Tree::new(Arc::new(config), contact, keys, u64::from(self.boot));
        let running = run_tree(
            machine,
            self.socket,
            receive_commands,
            send_events,
            (MemoryWindows, TreeOptions::default()),
            drops.clone(),
        );
        tasks.spawn(async {
            running.await;
        });
        let source = Source::new(
            self.options,
            self.boot,
            arranger,
            lists.clone(),
            commands,
            drops.clone(),
        );
        tasks.spawn(source.run(receive_orders, events, inputs.clone()));
        RunningSource {
            orders,
            lists,
            address: self.address,
        }
    }
}

/// A running source.
pub(super) struct RunningSource {
    orders: mpsc::Sender<SourceTransmit>,
    lists: Lists,
    address: SocketAddr,
}

impl RunningSource {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// Accepts a request, or returns the failure for the machine.
    pub(super) fn order(&self, order: SourceTransmit) -> Result<(), SourceReceive> {
        let Err(refused) = self.orders.try_send(order) else {
            return Ok(());
        };
        match refused.into_inner() {
            SourceTransmit::Spread(spread) => {
                let delivery = spread.delivery;
                Err(SourceReceive::NotSpread { delivery })
            }
            SourceTransmit::Prove { peer, .. } => {
                let is_reachable = false;
                Err(SourceReceive::Proven { peer, is_reachable })
            }
            // The next change contains all sinks again; until then the previous ones are notified.
            _ => Ok(()),
        }
    }
}
