//! The task between the event source and the tree: requests of the source become commands, paced for the network, and
//! outcomes return to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chappe_dpws::eventing::{
    Compact, CompactCodec, SourceReceive, SourceTransmit, Spread, TreePeer, TreeSink,
};
use chappe_dpws::hosting::{Device, DeviceReceive};
use chappe_flow::pacer;
use chappe_machine::{Input, Instant};
use chappe_notification_tree::schedule::Order;
use chappe_notification_tree::{
    Arranger, Command, Contact, EventId, Keys, Membership, Outcome, SOURCE, TreeEvent, topic_of,
};
use chappe_transport::{Clock, Drops, Hop};
use chappe_xml::{Element, Str};
use tokio::sync::mpsc;

use super::lists::Lists;
use super::options::HostTree;
use crate::driver::InputOf;
use crate::host::TreeOrder;

/// After this time without an outcome an event waits for a silent sink, not for the network, and the pacer
/// stops counting it.
const PACER_PATIENCE: Duration = Duration::from_millis(250);
/// The approximate size of an event's datagrams without the body, for the pacer.
const EVENT_OVERHEAD_BYTES: u64 = 200;

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
pub(super) struct Source {
    key: [u8; 32],
    boot: u32,
    deadline: Option<Duration>,
    deadlines: HashMap<String, Duration>,
    signer: Keys,
    codec: CompactCodec,
    trees: BTreeMap<Str, SinkList>,
    order: TreeOrder,
    arranger: Arranger,
    /// When lists were last arranged, and whether there was an outcome since.
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
    pub(super) fn new(
        options: HostTree,
        boot: u32,
        arranger: Arranger,
        lists: Lists,
        commands: mpsc::Sender<Command>,
        drops: Drops,
    ) -> Self {
        Self {
            key: *options.key.public().as_bytes(),
            boot,
            deadline: options.deadline,
            deadlines: options.deadlines,
            signer: Keys::new(options.key),
            codec: CompactCodec::default(),
            trees: BTreeMap::new(),
            order: options.order,
            arranger,
            arranged_at: Clock::process().now(),
            has_new_outcome: false,
            pacer: pacer::Events::new(&options.pacer, PACER_PATIENCE),
            waiting: VecDeque::new(),
            publishing: VecDeque::new(),
            under_way: HashMap::new(),
            number: 0,
            lists,
            commands,
            drops,
        }
    }

    pub(super) async fn run(
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
        self.lists.set(topic, bytes);
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
