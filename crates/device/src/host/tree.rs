//! The source of notification trees: one UDP socket, one tree for each action.
//!
//! The event source of the device decides which sinks to prove and list, and which events to spread. Here its
//! requests become commands of the tree, paced for the network, and outcomes return to it. Lists that do not fit
//! into events are fetched by sinks over HTTP, signed, from a path that only subscribers learn.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use chappe_dpws::discovery::Interface;
use chappe_dpws::eventing::{
    Compact, CompactCodec, SourceReceive, SourceTransmit, Spread, TreeConfig, TreePeer, TreeSink,
};
use chappe_dpws::hosting::{Device, DeviceReceive};
use chappe_flow::pacer;
use chappe_identity::Key;
use chappe_machine::{Input, Instant};
use chappe_notification_tree::schedule::Order;
use chappe_notification_tree::{
    Arranger, Command, Config, Contact, EventId, Keys, Membership, Outcome, SOURCE, Tree,
    TreeEvent, topic_of,
};
use chappe_transport::http::{Method, Request, Response, StatusCode};
use chappe_transport::kad::{KadOptions, bind, next_boot};
use chappe_transport::tree::{MemoryWindows, TreeOptions, run_tree};
use chappe_transport::{Clock, Drops, Hop};
use chappe_xml::{Element, Str};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::TreeOrder;
use crate::Error;
use crate::driver::InputOf;

/// Requests, commands and events queued between machine, task and tree.
const QUEUE_MAX: usize = 1_024;
/// Events of one action under way; further ones are sent as standard notifications.
///
/// Reason: five times the events of the 2 s that a silent sink is awaited, at 100 events a second.
const UNDER_WAY_MAX: usize = 1_024;
/// The latest time for the outcome of an event; sinks without it then get it over HTTP.
const OUTCOME_DEADLINE: Duration = Duration::from_secs(2);

/// After this time without an outcome an event waits for a silent sink, not for the network, and the pacer
/// stops counting it.
const PACER_PATIENCE: Duration = Duration::from_millis(250);
/// The approximate size of an event's datagrams without the body, for the pacer.
const EVENT_OVERHEAD_BYTES: u64 = 200;

/// How a host spreads its events over notification trees.
#[derive(Debug, Clone)]
pub struct HostTree {
    /// The device's key, which signs events.
    pub key: Arc<Key>,
    /// The UDP port for answers; 0, the default, takes a free one.
    pub port: u16,
    /// The file that stores the number of starts of the source. `None` uses the time of day: after a start
    /// with a clock that was set back, sinks refuse events until it catches up, and get them as standard
    /// notifications.
    pub boot: Option<PathBuf>,
    /// The time from spreading after which an event is late; sinks of the tree deliver late events and count
    /// them. Default `None`: never.
    pub deadline: Option<Duration>,
    /// Deadlines for events of single actions.
    pub deadlines: HashMap<String, Duration>,
    /// How events are delayed while earlier ones are under way, so that several sources share a network.
    /// Default `flood`: not at all.
    pub pacer: pacer::Choice,
    /// The order of its sinks: most critical first, or most reliable where others depend on them. Default:
    /// as listed.
    pub order: TreeOrder,
}

impl HostTree {
    /// Defaults with this key.
    #[must_use]
    pub fn new(key: impl Into<Arc<Key>>) -> Self {
        Self {
            key: key.into(),
            port: 0,
            boot: None,
            deadline: None,
            deadlines: HashMap::new(),
            pacer: pacer::Choice::Flood,
            order: TreeOrder::default(),
        }
    }
}

/// Counters of notification trees; each sink is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeState {
    /// Subscriptions served by a tree now.
    pub sinks: usize,
    /// Confirmed deliveries since the start: their receipts were verified.
    pub delivered: u64,
    /// Deliveries not confirmed within 2 s since the start (failed or unknown); they continued as standard
    /// notifications.
    pub missed: u64,
    /// Subscriptions that requested the tree but get standard notifications, since the start.
    pub off: u64,
}

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
        let lists = Lists {
            path: self.members_path.into(),
            by_topic: Arc::default(),
        };
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
        let keys = || Keys::new(Arc::clone(&self.options.key));
        let arranger = Arranger::new(self.options.order.order, &config);
        let machine = Tree::new(Arc::new(config), contact, keys(), u64::from(self.boot));
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
        let source = Source {
            key,
            boot: self.boot,
            deadline: self.options.deadline,
            deadlines: self.options.deadlines,
            signer: keys(),
            codec: CompactCodec::default(),
            trees: BTreeMap::new(),
            order: self.options.order,
            arranger,
            arranged_at: Clock::process().now(),
            has_new_outcome: false,
            pacer: pacer::Events::new(&self.options.pacer, PACER_PATIENCE),
            waiting: VecDeque::new(),
            publishing: VecDeque::new(),
            under_way: HashMap::new(),
            number: 0,
            lists: lists.clone(),
            commands,
            drops: drops.clone(),
        };
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

/// The signed lists of sinks, served over HTTP.
#[derive(Clone)]
pub(super) struct Lists {
    path: Arc<str>,
    by_topic: Arc<Mutex<HashMap<u64, Bytes>>>,
}

impl Lists {
    /// The answer to a request for a list; `None` for other paths.
    pub(super) fn answer(&self, request: &Request) -> Option<Response> {
        let topic = request.path.strip_prefix(&*self.path)?.strip_prefix('/')?;
        let topic = u64::from_str_radix(topic, 16).ok();
        let lists = self.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        let list = topic.and_then(|topic| lists.get(&topic));
        Some(match list.filter(|_| request.method == Method::GET) {
            Some(list) => Response::new(StatusCode::OK, "application/octet-stream", list.clone()),
            None => Response::empty(StatusCode::NOT_FOUND),
        })
    }
}

/// An event that the pacer delays.
struct PendingEvent {
    delivery: u64,
    action: Str,
    body: Vec<u8>,
    /// The sinks at the time of the event.
    intended: Arc<Membership>,
}

/// An event that was sent.
struct SentEvent {
    delivery: u64,
    /// The sinks at the time of the event, and those that it was sent to.
    intended: Arc<Membership>,
    sent_to: Arc<Membership>,
}

/// The sinks of an action.
struct SinkList {
    /// In the order of arrival, each with its criticality.
    sinks: Vec<(Contact, u8)>,
    /// In the order of the list.
    membership: Arc<Membership>,
}

/// Connects the event source and the tree.
struct Source {
    key: [u8; 32],
    boot: u32,
    deadline: Option<Duration>,
    deadlines: HashMap<String, Duration>,
    signer: Keys,
    codec: CompactCodec,
    trees: BTreeMap<Str, SinkList>,
    order: TreeOrder,
    arranger: Arranger,
    /// When lists were last arranged_at, and whether there was an outcome since.
    arranged_at: Instant,
    has_new_outcome: bool,
    pacer: pacer::Events,
    /// Events that the pacer delays; the event source bounds them.
    waiting: VecDeque<PendingEvent>,
    /// Events without a sequence number yet, in order.
    publishing: VecDeque<SentEvent>,
    under_way: HashMap<EventId, SentEvent>,
    /// The number of the last message.
    number: u32,
    lists: Lists,
    commands: mpsc::Sender<Command>,
    drops: Drops,
}

impl Source {
    async fn run(
        mut self,
        mut orders: mpsc::Receiver<SourceTransmit>,
        mut events: mpsc::Receiver<TreeEvent>,
        inputs: mpsc::Sender<Option<InputOf<Device>>>,
    ) {
        let clock = Clock::process();
        loop {
            self.rearrange(clock.now()).await;
            let wake = self.send_due(clock.now()).await;
            let at = wake.map(|wake| clock.at(wake));
            let result = tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(event) => self.on_tree_event(clock.now(), event),
                    None => return,
                },
                order = orders.recv() => match order {
                    Some(order) => self.order(order).await,
                    None => return,
                },
                () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                    if at.is_some() => None,
            };
            if let Some(result) = result {
                let input = Input::Receive(DeviceReceive::Tree(result));
                if inputs.send(Some(input)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// The tree ends only with its task; then this one ends, too.
    async fn command(&mut self, command: Command) {
        let _ = self.commands.send(command).await;
    }

    async fn order(&mut self, order: SourceTransmit) -> Option<SourceReceive> {
        match order {
            SourceTransmit::Prove { action, peer } => {
                if !self.trees.contains_key(&action) {
                    self.set_sinks(action.clone(), Vec::new()).await;
                }
                let topic = topic_of(&self.key, &action);
                let contact = contact(peer);
                self.command(Command::Prove { topic, contact }).await;
                None
            }
            SourceTransmit::Members { action, sinks } => {
                let of = |sink: &TreeSink| (contact(sink.peer), self.order.criticality(sink));
                let sinks = sinks.iter().map(of).collect();
                self.set_sinks(action, sinks).await;
                None
            }
            SourceTransmit::Spread(spread) => {
                let delivery = spread.delivery;
                let spread = self.spread(*spread);
                (!spread).then_some(SourceReceive::NotSpread { delivery })
            }
            _ => None,
        }
    }

    /// Sets a new version of the sinks of an action.
    async fn set_sinks(&mut self, action: Str, sinks: Vec<(Contact, u8)>) {
        let topic = topic_of(&self.key, &action);
        let before = self.trees.get(&action);
        let version = before.map_or(1, |before| before.membership.version().saturating_add(1));
        let membership = match Membership::new(topic, version, self.arranger.arrange(&sinks)) {
            Ok(membership) => Arc::new(membership),
            Err(error) => {
                let detail = format!("{action}: {error}");
                let what = "list of sinks refused";
                return self.drops.record(Hop::Event, what, "", detail, None);
            }
        };
        let bytes = Bytes::from(membership.encode(&self.signer));
        {
            let lists = self.lists.by_topic.lock();
            let mut lists = lists.unwrap_or_else(PoisonError::into_inner);
            lists.insert(topic, bytes);
        }
        let command = match before {
            None => Command::Publisher {
                membership: Arc::clone(&membership),
                boot: self.boot,
            },
            Some(_) => Command::Membership {
                membership: Arc::clone(&membership),
                number: Some(SOURCE),
            },
        };
        self.trees.insert(action, SinkList { sinks, membership });
        self.command(command).await;
    }

    /// Renews the lists whose order has changed since the last time because of outcomes.
    async fn rearrange(&mut self, now: Instant) {
        let due = now.saturating_since(self.arranged_at) >= self.order.rearrange_interval;
        if self.order.order == Order::AsListed || !self.has_new_outcome || !due {
            return;
        }
        (self.has_new_outcome, self.arranged_at) = (false, now);
        let differs =
            |listed: &&SinkList| self.arranger.arrange(&listed.sinks) != listed.membership.sinks();
        let trees = self.trees.iter().filter(|(_, listed)| differs(listed));
        let changed: Vec<_> = trees
            .map(|(action, listed)| (action.clone(), listed.sinks.clone()))
            .collect();
        for (action, sinks) in changed {
            self.set_sinks(action, sinks).await;
        }
    }

    /// Learns the reliability of sinks and the current plan from the outcome of an event or a heartbeat.
    fn learn(&mut self, outcome: &Outcome) {
        let of_event = self.under_way.get(&outcome.id).map(|event| &event.sent_to);
        let mut newest = self.trees.values().map(|listed| &listed.membership);
        let list = of_event.or_else(|| newest.find(|list| list.topic() == outcome.id.topic));
        if let Some(list) = list {
            self.arranger.learn(list, outcome);
            self.has_new_outcome = true;
        }
    }

    /// Encodes an event, to be sent when the pacer allows it. Returns false if that is impossible.
    fn spread(&mut self, spread: Spread) -> bool {
        let Some(listed) = self.trees.get(&spread.action) else {
            return false;
        };
        let intended = Arc::clone(&listed.membership);
        let topic = intended.topic();
        // As if read from text, so that sinks see the same by tree and by HTTP.
        let Ok(data) = Element::parse(spread.body().to_text().as_bytes()) else {
            return false;
        };
        self.number = self.number.wrapping_add(1);
        let event_id = spread.message_id.strip_prefix("urn:uuid:");
        let event_id = event_id.and_then(|id| uuid::Uuid::parse_str(id).ok());
        let message = Compact {
            action: spread.action.clone(),
            event_id: event_id.map(uuid::Uuid::into_bytes),
            message_number: Some(self.number),
            subscription_id: Some(topic.to_be_bytes().to_vec()),
            data: Some(data),
            ..Compact::default()
        };
        let Ok(body) = self.codec.encode(&message) else {
            return false;
        };
        self.waiting.push_back(PendingEvent {
            delivery: spread.delivery,
            action: spread.action,
            body,
            intended,
        });
        true
    }

    /// Publishes due events. Returns when to call it again.
    async fn send_due(&mut self, now: Instant) -> Option<Instant> {
        while let Some(first) = self.waiting.front() {
            let bytes = first.body.len() as u64 + EVENT_OVERHEAD_BYTES;
            if let Err(at) = self.pacer.next(now) {
                return Some(at);
            }
            let first = self.waiting.pop_front()?;
            self.pacer.sent(now, first.delivery, bytes);
            let newest = self
                .trees
                .get(&first.action)
                .map(|listed| &listed.membership);
            let sent_to = Arc::clone(newest.unwrap_or(&first.intended));
            self.publishing.push_back(SentEvent {
                delivery: first.delivery,
                intended: first.intended,
                sent_to: Arc::clone(&sent_to),
            });
            let topic = sent_to.topic();
            let own = self.deadlines.get(&*first.action).copied();
            let deadline = own.or(self.deadline);
            self.command(Command::Publish {
                topic,
                body: first.body,
                deadline,
            })
            .await;
        }
        None
    }

    fn on_tree_event(&mut self, now: Instant, event: TreeEvent) -> Option<SourceReceive> {
        match event {
            TreeEvent::Published(id) => {
                let published = self.publishing.pop_front()?;
                self.under_way.insert(id, published);
                None
            }
            TreeEvent::NotPublished { error, .. } => {
                let delivery = self.publishing.pop_front()?.delivery;
                self.pacer.known(now, delivery, false);
                let (what, detail) = ("event not spread", error.to_string());
                let hint = "it is sent as standard notifications".to_owned();
                self.drops.record(Hop::Event, what, "", detail, Some(hint));
                Some(SourceReceive::NotSpread { delivery })
            }
            TreeEvent::Outcome(outcome) => {
                self.learn(&outcome);
                // The outcome of a heartbeat belongs to no event.
                let event = self.under_way.remove(&outcome.id)?;
                let all = outcome.failed.is_empty() && outcome.unknown.is_empty();
                self.pacer.known(now, event.delivery, all);
                Some(self.report(&event, &outcome))
            }
            TreeEvent::Proven {
                contact,
                is_reachable,
                ..
            } => {
                let peer = peer(contact);
                Some(SourceReceive::Proven { peer, is_reachable })
            }
            TreeEvent::Refused(error) => {
                let (what, detail) = ("tree refused a command", error.to_string());
                self.drops.record(Hop::Event, what, "", detail, None);
                None
            }
            _ => None,
        }
    }

    fn report(&self, event: &SentEvent, outcome: &Outcome) -> SourceReceive {
        let count = |reason, times: usize| {
            if times > 0 {
                self.drops.count(times as u64, Hop::Event, reason);
            }
        };
        count("sink did not answer on the tree", outcome.failed.len());
        count("sink unknown on the tree", outcome.unknown.len());
        count("false coverage on the tree", outcome.lies as usize);
        let missed = outcome.failed.iter().chain(&outcome.unknown);
        let missed = missed.filter_map(|number| event.sent_to.sink(*number).copied());
        let mut missed: Vec<TreePeer> = missed.map(peer).collect();
        let delivered = u64::from(outcome.sinks).saturating_sub(missed.len() as u64);
        if !Arc::ptr_eq(&event.intended, &event.sent_to) {
            // Sinks that were removed from the list before it was sent.
            let sent_to: BTreeSet<&Contact> = event.sent_to.sinks().iter().collect();
            let intended = event.intended.sinks().iter();
            let removed = intended.filter(|sink| !sent_to.contains(sink));
            missed.extend(removed.copied().map(peer));
        }
        SourceReceive::Spread {
            delivery: event.delivery,
            delivered,
            missed,
        }
    }
}

fn contact(peer: TreePeer) -> Contact {
    Contact {
        address: peer.address,
        key: peer.key,
    }
}

fn peer(contact: Contact) -> TreePeer {
    TreePeer {
        key: contact.key,
        address: contact.address,
    }
}
