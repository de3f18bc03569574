//! A sink on notification trees: one UDP socket for each local address, shared by all subscriptions.
//!
//! The tree verifies events. They are read and given to the machine of the subscription, which delivers each
//! once, whether it arrives by tree or by HTTP. While the queue of the application is full no event is accepted:
//! the source notices, and falls back to standard notifications, which wait.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use chappe_dpws::eventing::{
    CompactCodec, SinkReceive, SubscriptionKey, TreeOffer, TreePeer, TreeSink,
};
use chappe_identity::Key;
use chappe_machine::Input;
use chappe_notification_tree::{
    Command, Config, Contact, Event, Keys, Membership, Tree, TreeEvent, Window, topic_of,
};
use chappe_transport::kad::{KadOptions, bind};
use chappe_transport::tree::{TreeOptions, WindowFiles, Windows, run_tree};
use chappe_transport::{Drops, Hop};
use chappe_xml::Str;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Shared;
use super::subscription::Sink;
use crate::Error;

/// Commands and events queued between the client and the tree.
const QUEUE_MAX: usize = 1_024;
/// Topics whose windows are remembered, for later subscriptions.
const WINDOWS_MAX: usize = 4_096;
/// Attempts to fetch a list before the next version is awaited.
const FETCHES_MAX: u32 = 5;
/// The pause after the first failed attempt; doubled each time.
const FETCH_PAUSE: Duration = Duration::from_millis(100);

/// How a client receives events from notification trees.
#[derive(Debug, Clone)]
pub struct ClientTree {
    /// Its key, which identifies it to sources and other sinks.
    pub key: Arc<Key>,
    /// The UDP port on each local address that is used; 0, the default, takes a free one.
    pub port: u16,
    /// The folder of the stored windows, synced before each event is delivered, so that no event is
    /// delivered again after a restart. `None` keeps them in memory.
    pub windows: Option<PathBuf>,
    /// The criticality that this client claims. A source that orders by criticality notifies larger numbers
    /// first, if it trusts the claim. Default 0.
    pub criticality: u8,
}

impl ClientTree {
    /// Defaults with this key.
    #[must_use]
    pub fn new(key: impl Into<Arc<Key>>) -> Self {
        Self {
            key: key.into(),
            port: 0,
            windows: None,
            criticality: 0,
        }
    }
}

/// Counters of events received over notification trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeCounts {
    /// Events verified and delivered to subscriptions.
    pub delivered: u64,
    /// Events delivered after their deadline.
    pub late: u64,
    /// Duplicates of events received otherwise, not delivered.
    pub duplicates: u64,
    /// Events that no node could retransmit; the source sends them as standard notifications.
    pub missed: u64,
    /// Events that the source did not sign.
    pub forged: u64,
    /// Events that are not a compact message, or belong to no subscription.
    pub unreadable: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    delivered: AtomicU64,
    late: AtomicU64,
    duplicates: AtomicU64,
    missed: AtomicU64,
    forged: AtomicU64,
    unreadable: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> TreeCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TreeCounts {
            delivered: read(&self.delivered),
            late: read(&self.late),
            duplicates: read(&self.duplicates),
            missed: read(&self.missed),
            forged: read(&self.forged),
            unreadable: read(&self.unreadable),
        }
    }

    pub(super) fn duplicate(&self) {
        count(&self.duplicates, 1);
    }
}

fn count(counter: &AtomicU64, times: u64) {
    counter.fetch_add(times, Ordering::Relaxed);
}

/// A node on one local address.
pub(super) struct TreeNode {
    pub(super) sink: TreeSink,
    commands: mpsc::Sender<Command>,
    topics: Mutex<HashMap<u64, Topic>>,
    windows: SharedWindows,
    key: Arc<Key>,
}

/// A topic and the subscriptions to its events.
struct Topic {
    source: Contact,
    /// The location of its lists.
    members: Str,
    subscriptions: Vec<(Weak<Sink>, SubscriptionKey)>,
    /// A list is being fetched.
    is_fetching: bool,
}

impl TreeNode {
    /// Starts a node that runs until the client and its subscriptions have ended.
    pub(super) fn start(
        options: &ClientTree,
        local: IpAddr,
        shared: Weak<Shared>,
        drops: &Drops,
    ) -> Result<Arc<Self>, Error> {
        let at = Some(local);
        let listen = |source| Error::Listen { at, source };
        let socket = bind(SocketAddr::new(local, options.port), &KadOptions::default());
        let socket = socket.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let peer = TreePeer {
            key: *options.key.public().as_bytes(),
            address: SocketAddr::new(address.ip(), address.port()),
        };
        let files = options.windows.clone().map(window_files).transpose();
        let windows = SharedWindows {
            memory: Arc::default(),
            files: files.map_err(listen)?,
        };
        let contact = Contact {
            address: peer.address,
            key: peer.key,
        };
        let seed = chappe_transport::seed_number().map_err(listen)?;
        let keys = Keys::new(Arc::clone(&options.key));
        let machine = Tree::new(Arc::new(Config::default()), contact, keys, seed);
        let (commands, receive_commands) = mpsc::channel(QUEUE_MAX);
        let (send_events, events) = mpsc::channel(QUEUE_MAX);
        let node = Arc::new(Self {
            sink: TreeSink {
                peer,
                criticality: options.criticality,
            },
            commands,
            topics: Mutex::default(),
            windows: windows.clone(),
            key: Arc::clone(&options.key),
        });
        let running = run_tree(
            machine,
            socket,
            receive_commands,
            send_events,
            (windows, TreeOptions::default()),
            drops.clone(),
        );
        tokio::spawn(running);
        tokio::spawn(handle_events(Arc::downgrade(&node), shared, events));
        Ok(node)
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<u64, Topic>> {
        // Every change leaves the map consistent.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command. Without room it is dropped like a lost datagram: the source notices the missing
    /// answer.
    fn command(&self, command: Command) {
        let _ = self.commands.try_send(command);
    }

    /// Joins the topics of a source that spreads the events of a subscription.
    pub(super) fn join(
        &self,
        sink: &Arc<Sink>,
        key: SubscriptionKey,
        offer: &TreeOffer,
        actions: &[Str],
        drops: &Drops,
    ) {
        let source = Contact {
            address: offer.source.address,
            key: offer.source.key,
        };
        let mut topics = self.topics();
        for action in actions {
            let topic = topic_of(&source.key, action);
            let known = topics.entry(topic).or_insert_with(|| Topic {
                source,
                members: offer.members.clone(),
                subscriptions: Vec::new(),
                is_fetching: false,
            });
            if known.source != source && !known.subscriptions.is_empty() {
                let what = "forged address of a tree's source";
                let (peer, hint) = (source.address.ip(), "two devices use the same key");
                let detail = format!("{action}: it is at {}", known.source.address);
                drops.record(Hop::Event, what, peer, detail, Some(hint.to_owned()));
                continue;
            }
            known.source = source;
            known.members = offer.members.clone();
            known.subscriptions.push((Arc::downgrade(sink), key));
            match self.windows.last(topic) {
                Ok(window) => self.command(Command::Subscribe {
                    topic,
                    source,
                    window,
                }),
                // Without answers the source sends standard notifications.
                Err(error) => {
                    let (what, detail) = ("stored window not readable", error.to_string());
                    drops.record(Hop::Event, what, "", detail, None);
                }
            }
        }
    }

    /// Leaves the topics of a subscription that has ended.
    pub(super) fn leave(&self, sink: &Arc<Sink>, key: SubscriptionKey) {
        self.topics().retain(|topic, known| {
            let of_other = |(other, name): &(Weak<Sink>, SubscriptionKey)| {
                *name != key || !std::ptr::eq(other.as_ptr(), Arc::as_ptr(sink))
            };
            let before = known.subscriptions.len();
            known.subscriptions.retain(of_other);
            let left = known.subscriptions.is_empty() && before > 0;
            if left {
                self.command(Command::Leave { topic: *topic });
            }
            !left
        });
    }

    /// Fetches the newest list of a topic, which the tree needs for ranges.
    async fn fetch(&self, shared: &Weak<Shared>, topic: u64) {
        for attempt in 0..FETCHES_MAX {
            let asked = {
                let topics = self.topics();
                let known = topics.get(&topic);
                known.map(|known| (known.members.clone(), known.source.key))
            };
            let (Some(shared), Some((members, source))) = (shared.upgrade(), asked) else {
                break;
            };
            let fetched = self.list(&shared, &members, topic, &source).await;
            match fetched {
                Ok(membership) => {
                    let (membership, number) = (Arc::new(membership), None);
                    self.command(Command::Membership { membership, number });
                    break;
                }
                Err(detail) => {
                    let what = "list of a tree not fetched";
                    shared.drops.record(Hop::Event, what, "", detail, None);
                }
            }
            drop(shared);
            tokio::time::sleep(FETCH_PAUSE * (1 << attempt)).await;
        }
        if let Some(known) = self.topics().get_mut(&topic) {
            known.is_fetching = false;
        }
    }

    async fn list(
        &self,
        shared: &Shared,
        members: &str,
        topic: u64,
        source: &[u8; 32],
    ) -> Result<Membership, String> {
        let uri = format!("{members}/{topic:016x}");
        // The machine had the address checked.
        let contact = shared.known.contact(&uri);
        let contact = contact.map_err(|refusal| refusal.to_string())?;
        let answer = shared.http.get(&contact).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let mut keys = Keys::new(Arc::clone(&self.key));
        match Membership::decode(&answer.body, source, &mut keys) {
            Ok(Some(membership)) if membership.topic() == topic => Ok(membership),
            Ok(Some(_)) => Err("the list is of another topic".to_owned()),
            Ok(None) => Err("the source did not sign the list".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn window_files(folder: PathBuf) -> io::Result<WindowFiles> {
    let named = |error: io::Error| {
        let what = format!("{}: {error}", folder.display());
        io::Error::new(error.kind(), what)
    };
    WindowFiles::new(folder.clone()).map_err(named)
}

/// Handles the events of the tree, until it or the client ends.
async fn handle_events(
    node: Weak<TreeNode>,
    shared: Weak<Shared>,
    mut events: mpsc::Receiver<TreeEvent>,
) {
    let mut codec = CompactCodec::default();
    let mut fetches = JoinSet::new();
    while let Some(event) = events.recv().await {
        while fetches.try_join_next().is_some() {}
        let (Some(node), Some(client)) = (node.upgrade(), shared.upgrade()) else {
            return;
        };
        let counters = &client.tree_counters;
        match event {
            TreeEvent::Delivered { event, late, .. } => {
                count(&counters.late, u64::from(late));
                let drops = client.drops.clone();
                // Waiting for room must not keep the client alive.
                drop(client);
                let taken = dispatch(&node, &mut codec, &event).await;
                let Some(client) = shared.upgrade() else {
                    return;
                };
                match taken {
                    Ok(()) => count(&client.tree_counters.delivered, 1),
                    Err(detail) => {
                        count(&client.tree_counters.unreadable, 1);
                        let what = "event of a tree not readable";
                        drops.record(Hop::Event, what, "", detail, None);
                    }
                }
            }
            TreeEvent::MembershipUnknown { topic, .. } => {
                let idle = {
                    let mut topics = node.topics();
                    let known = topics.get_mut(&topic);
                    known.is_some_and(|known| !std::mem::replace(&mut known.is_fetching, true))
                };
                if idle {
                    let (node, shared) = (Arc::clone(&node), Weak::clone(&shared));
                    fetches.spawn(async move { node.fetch(&shared, topic).await });
                }
            }
            TreeEvent::Missed { which, .. } => {
                count(&counters.missed, u64::from(which.count_ones()));
            }
            TreeEvent::Forged { topic, from } => {
                count(&counters.forged, 1);
                let detail = format!("topic {topic:016x}, from sink {from}");
                let what = "forged event refused";
                client.drops.record(Hop::Event, what, "", detail, None);
            }
            TreeEvent::Refused(error) => {
                let (what, detail) = ("tree refused a command", error.to_string());
                client.drops.record(Hop::Event, what, "", detail, None);
            }
            _ => {}
        }
    }
}

/// Gives an event to the machines of its subscriptions, once there is room.
async fn dispatch(node: &TreeNode, codec: &mut CompactCodec, event: &Event) -> Result<(), String> {
    let message = codec.decode(event.body());
    let message = message.map_err(|error| error.to_string())?;
    let id = message.event_id.ok_or("the event has no EventID")?;
    let body = message.data.ok_or("the event has no EventData")?;
    let message_id: Str = uuid::Uuid::from_bytes(id).urn().to_string().into();
    let subscriptions = {
        let topics = node.topics();
        let known = topics.get(&event.id().topic);
        known.map(|known| known.subscriptions.clone())
    };
    for (sink, key) in subscriptions.unwrap_or_default() {
        let Some(sink) = sink.upgrade() else { continue };
        let Some(inbox) = sink.inbox(key) else {
            continue;
        };
        if inbox.reserve_for_spread(&body).await.is_none() {
            continue;
        }
        let spread = SinkReceive::Spread {
            key,
            message_id: message_id.clone(),
            action: message.action.clone(),
            body: Box::new(body.clone()),
        };
        let _ = sink.inputs.send(Some(Input::Receive(spread))).await;
    }
    Ok(())
}

/// The windows of topics, in memory and optionally on disk; a later subscription continues with its window.
#[derive(Clone)]
struct SharedWindows {
    memory: Arc<Mutex<HashMap<u64, Window>>>,
    files: Option<WindowFiles>,
}

impl Windows for SharedWindows {
    fn last(&self, topic: u64) -> io::Result<Window> {
        {
            let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(window) = memory.get(&topic) {
                return Ok(*window);
            }
        }
        match &self.files {
            Some(files) => files.last(topic),
            None => Ok(Window::default()),
        }
    }

    fn store(&mut self, topic: u64, window: &Window) -> io::Result<()> {
        if let Some(files) = &mut self.files {
            files.store(topic, window)?;
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= WINDOWS_MAX && !memory.contains_key(&topic) {
            let any = memory.keys().next().copied();
            any.map(|any| memory.remove(&any));
        }
        memory.insert(topic, *window);
        Ok(())
    }
}
