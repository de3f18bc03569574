//! The source of notification trees: one UDP socket, one tree for each action.
//!
//! The machine of the device says whom to ask and list and what to spread; here it becomes commands of
//! the tree, at the pace that the network bears, and what became of each event goes back. Lists that do not fit into events are fetched
//! by sinks over HTTP, signed, from a path that only subscribers are told.

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

/// Orders, commands and events between machine, task and tree.
const QUEUE_MAX: usize = 1_024;
/// Events of one action that are under way; further ones go as standard notifications.
///
/// Reason: at 100 events a second, those of the 2 s that a silent sink is waited for, five times.
const UNDER_WAY_MAX: usize = 1_024;
/// When it is said at the latest what became of an event; who did not get it gets it by HTTP then.
const WITHIN: Duration = Duration::from_secs(2);

/// An event of which nothing is known for so long waits for a sink that is silent, and not for the
/// network: the pacer counts it no more.
const PATIENCE: Duration = Duration::from_millis(250);
/// Bytes of an event that its datagrams have beside its body, about: for the pacer.
const HEAD_BYTES: u64 = 200;

/// How a host spreads its events.
#[derive(Debug, Clone)]
pub struct HostTree {
    /// The device's key: events are signed with it.
    pub key: Arc<Key>,
    /// The UDP port for answers; 0, the default, takes a free one.
    pub port: u16,
    /// The file that keeps how often the source has started. Without one it is the time of day: after a
    /// start by a clock that went back, sinks refuse events until it has caught up, and get them as
    /// standard notifications.
    pub boot: Option<PathBuf>,
    /// After this an event is late, counted from when it is spread; sinks of the tree take it all the same,
    /// and count it. Default `None`: never.
    pub deadline: Option<Duration>,
    /// The same for events of these actions.
    pub deadlines: HashMap<String, Duration>,
    /// How it holds events back while earlier ones are on their way, so that several sources share a
    /// network. Default `flood`: not at all.
    pub pacer: pacer::Choice,
    /// In which order it lists its sinks: the most critical first, or the most reliable where others
    /// depend on them. Default: as listed.
    pub order: TreeOrder,
}

impl HostTree {
    /// With this key and the defaults.
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

/// What went by trees; each sink counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeState {
    /// Subscriptions whose events go by a tree now.
    pub sinks: usize,
    /// Events delivered for certain since the start: their receipts were verified.
    pub delivered: u64,
    /// Events that did not reach a sink within 2 s since the start (failed, or unknown); they went
    /// on as standard notifications.
    pub missed: u64,
    /// Subscriptions that asked for the tree and get standard notifications, since the start.
    pub off: u64,
}

/// A source that listens, before it runs.
pub(super) struct Bound {
    options: HostTree,
    socket: UdpSocket,
    address: SocketAddr,
    members_path: String,
    boot: u32,
}

impl Bound {
    pub(super) fn new(options: &HostTree, interfaces: &[Interface]) -> Result<Self, Error> {
        let addresses = || interfaces.iter().flat_map(|interface| &interface.addresses);
        let at = match (addresses().next(), addresses().nth(1)) {
            // Who has one address alone speaks from it.
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

    /// What the event source is to know.
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
    ) -> Spreading {
        let (orders, receive_orders) = mpsc::channel(QUEUE_MAX);
        let (commands, receive_commands) = mpsc::channel(QUEUE_MAX);
        let (send_events, events) = mpsc::channel(QUEUE_MAX);
        let lists = Lists {
            path: self.members_path.into(),
            of_topic: Arc::default(),
        };
        let key = *self.options.key.public().as_bytes();
        let config = Config {
            history: UNDER_WAY_MAX,
            within: WITHIN,
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
            arranged: Clock::process().now(),
            learnt: false,
            pacer: pacer::Events::new(&self.options.pacer, PATIENCE),
            waiting: VecDeque::new(),
            publishing: VecDeque::new(),
            under_way: HashMap::new(),
            number: 0,
            lists: lists.clone(),
            commands,
            drops: drops.clone(),
        };
        tasks.spawn(source.run(receive_orders, events, inputs.clone()));
        Spreading {
            orders,
            lists,
            address: self.address,
        }
    }
}

/// A source that runs.
pub(super) struct Spreading {
    orders: mpsc::Sender<SourceTransmit>,
    lists: Lists,
    address: SocketAddr,
}

impl Spreading {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// Takes an order, or says what to tell the machine instead.
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
                let there = false;
                Err(SourceReceive::Proven {
                    peer,
                    is_reachable: there,
                })
            }
            // The next change has all sinks again; until then those of before are told.
            _ => Ok(()),
        }
    }
}

/// The signed lists of sinks, as HTTP gives them.
#[derive(Clone)]
pub(super) struct Lists {
    path: Arc<str>,
    of_topic: Arc<Mutex<HashMap<u64, Bytes>>>,
}

impl Lists {
    /// The answer to a request for a list; `None` when it is for something else.
    pub(super) fn answer(&self, request: &Request) -> Option<Response> {
        let topic = request.path.strip_prefix(&*self.path)?.strip_prefix('/')?;
        let topic = u64::from_str_radix(topic, 16).ok();
        let lists = self.of_topic.lock().unwrap_or_else(PoisonError::into_inner);
        let list = topic.and_then(|topic| lists.get(&topic));
        Some(match list.filter(|_| request.method == Method::GET) {
            Some(list) => Response::new(StatusCode::OK, "application/octet-stream", list.clone()),
            None => Response::empty(StatusCode::NOT_FOUND),
        })
    }
}

/// An event that may not go yet.
struct Waiting {
    delivery: u64,
    action: Str,
    body: Vec<u8>,
    /// The sinks when it happened.
    wanted: Arc<Membership>,
}

/// An event that has gone.
struct UnderWay {
    delivery: u64,
    /// The sinks when it happened, and those that it was sent to.
    wanted: Arc<Membership>,
    sent_to: Arc<Membership>,
}

/// The sinks of an action.
struct Listed {
    /// As they came, each with how critical it is.
    sinks: Vec<(Contact, u8)>,
    /// In order.
    membership: Arc<Membership>,
}

/// Between the event source and the tree.
struct Source {
    key: [u8; 32],
    boot: u32,
    deadline: Option<Duration>,
    deadlines: HashMap<String, Duration>,
    signer: Keys,
    codec: CompactCodec,
    trees: BTreeMap<Str, Listed>,
    order: TreeOrder,
    arranger: Arranger,
    /// When lists were last put in order, and whether there was an outcome since.
    arranged: Instant,
    learnt: bool,
    pacer: pacer::Events,
    /// Events that the pacer holds back; the event source bounds them.
    waiting: VecDeque<Waiting>,
    /// Events that have no number yet, in order.
    publishing: VecDeque<UnderWay>,
    under_way: HashMap<EventId, UnderWay>,
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
                    Some(event) => self.happened(clock.now(), event),
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

    /// The tree ends only when its task does; then this one ends, too.
    async fn command(&mut self, command: Command) {
        let _ = self.commands.send(command).await;
    }

    async fn order(&mut self, order: SourceTransmit) -> Option<SourceReceive> {
        match order {
            SourceTransmit::Prove { action, peer } => {
                if !self.trees.contains_key(&action) {
                    self.list(action.clone(), Vec::new()).await;
                }
                let topic = topic_of(&self.key, &action);
                let contact = contact(peer);
                self.command(Command::Prove { topic, contact }).await;
                None
            }
            SourceTransmit::Members { action, sinks } => {
                let of = |sink: &TreeSink| (contact(sink.peer), self.order.criticality(sink));
                let sinks = sinks.iter().map(of).collect();
                self.list(action, sinks).await;
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

    /// A new version of the sinks of an action.
    async fn list(&mut self, action: Str, sinks: Vec<(Contact, u8)>) {
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
            let lists = self.lists.of_topic.lock();
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
        self.trees.insert(action, Listed { sinks, membership });
        self.command(command).await;
    }

    /// Makes those lists anew that outcomes since the last time put in another order.
    async fn rearrange(&mut self, now: Instant) {
        let due = now.saturating_since(self.arranged) >= self.order.anew_after;
        if self.order.order == Order::AsListed || !self.learnt || !due {
            return;
        }
        (self.learnt, self.arranged) = (false, now);
        let differs =
            |listed: &&Listed| self.arranger.arrange(&listed.sinks) != listed.membership.sinks();
        let trees = self.trees.iter().filter(|(_, listed)| differs(listed));
        let anew: Vec<_> = trees
            .map(|(action, listed)| (action.clone(), listed.sinks.clone()))
            .collect();
        for (action, sinks) in anew {
            self.list(action, sinks).await;
        }
    }

    /// What became of an event or a heartbeat says which sinks are reliable, and how events are divided.
    fn learn(&mut self, outcome: &Outcome) {
        let of_event = self.under_way.get(&outcome.id).map(|event| &event.sent_to);
        let mut newest = self.trees.values().map(|listed| &listed.membership);
        let list = of_event.or_else(|| newest.find(|list| list.topic() == outcome.id.topic));
        if let Some(list) = list {
            self.arranger.learn(list, outcome);
            self.learnt = true;
        }
    }

    /// Makes the message of an event, to go when it may; says whether it can.
    fn spread(&mut self, spread: Spread) -> bool {
        let Some(listed) = self.trees.get(&spread.action) else {
            return false;
        };
        let wanted = Arc::clone(&listed.membership);
        let topic = wanted.topic();
        // As text has it, so that sinks see the same whichever way it comes.
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
        self.waiting.push_back(Waiting {
            delivery: spread.delivery,
            action: spread.action,
            body,
            wanted,
        });
        true
    }

    /// Publishes what may go; says when to look again.
    async fn send_due(&mut self, now: Instant) -> Option<Instant> {
        while let Some(first) = self.waiting.front() {
            let bytes = first.body.len() as u64 + HEAD_BYTES;
            if let Err(at) = self.pacer.next(now) {
                return Some(at);
            }
            let first = self.waiting.pop_front()?;
            self.pacer.sent(now, first.delivery, bytes);
            let newest = self
                .trees
                .get(&first.action)
                .map(|listed| &listed.membership);
            let sent_to = Arc::clone(newest.unwrap_or(&first.wanted));
            self.publishing.push_back(UnderWay {
                delivery: first.delivery,
                wanted: first.wanted,
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

    fn happened(&mut self, now: Instant, event: TreeEvent) -> Option<SourceReceive> {
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
                let hint = "it goes as standard notifications".to_owned();
                self.drops.record(Hop::Event, what, "", detail, Some(hint));
                Some(SourceReceive::NotSpread { delivery })
            }
            TreeEvent::Outcome(outcome) => {
                self.learn(&outcome);
                // That of a heartbeat is of no event.
                let event = self.under_way.remove(&outcome.id)?;
                let all = outcome.failed.is_empty() && outcome.unknown.is_empty();
                self.pacer.known(now, event.delivery, all);
                Some(self.ended(&event, &outcome))
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

    fn ended(&self, event: &UnderWay, outcome: &Outcome) -> SourceReceive {
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
        if !Arc::ptr_eq(&event.wanted, &event.sent_to) {
            // Who was taken off the list before it was sent.
            let sent_to: BTreeSet<&Contact> = event.sent_to.sinks().iter().collect();
            let wanted = event.wanted.sinks().iter();
            let left_out = wanted.filter(|sink| !sent_to.contains(sink));
            missed.extend(left_out.copied().map(peer));
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
