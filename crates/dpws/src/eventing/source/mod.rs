//! The event source with its subscription manager, as one machine.
//!
//! A notification that could not be delivered is repeated with the same identifier until it is
//! delivered or the subscription ends: a sink sees every event, or the end of its subscription, or
//! a number of dropped ones that is counted here.

mod delivery;
mod requests;
mod spreading;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};
use chappe_soap::{AddressingVersion, EndpointReference, Envelope};
use chappe_xml::Str;

use super::{AddressCheck, EndStatus, SourceConfig};
use crate::ids::Ids;
use delivery::{QUEUE_MIN, Waiting};
use spreading::OnTree;

pub use types::{
    DropReason, Failure, Notification, Request, SourceCommand, SourceEvent, SourceReceive,
    SourceRefusal, SourceTransmit, Spread, SubscriptionId,
};

/// The event source of one device. The module documentation says what it promises.
///
/// ```
/// use std::sync::Arc;
/// use chappe_dpws::eventing::{EventSource, Offer, SourceCommand, SourceConfig};
/// use chappe_machine::{Input, Instant, drain};
/// use chappe_xml::{Element, Name};
/// let config = SourceConfig {
///     offers: vec![Offer { path: "/thermometer".into(), actions: vec!["urn:x/Report".into()] }],
///     ..SourceConfig::default()
/// };
/// // The secret comes from the operating system; the check from the node's policy.
/// let mut source = EventSource::new(config, Arc::new(|_, _| Ok(())), [7; 16]);
/// let report = Element::new(Name::new("urn:x", "Report"));
/// let notify = SourceCommand::Notify { action: "urn:x/Report".into(), body: report };
/// drain(&mut source, Instant::ZERO, Input::Command(notify), |_| panic!("nobody subscribed"));
/// ```
pub struct EventSource {
    config: SourceConfig,
    check: AddressCheck,
    ids: Ids,
    subscriptions: BTreeMap<SubscriptionId, Subscription>,
    /// Deliveries whose result is awaited.
    deliveries: BTreeMap<u64, SubscriptionId>,
    next_delivery: u64,
    timers: Timers<Timer>,
    outputs: VecDeque<Output<SourceTransmit, SourceEvent>>,
    refused: BTreeMap<SourceRefusal, u64>,
    dropped: BTreeMap<DropReason, u64>,
    delivered: u64,
    /// Events on trees whose result is awaited, for the sinks that they do not reach.
    spreading: BTreeMap<u64, Waiting>,
    /// Actions whose trees have other sinks now.
    changed: BTreeSet<Str>,
    delivered_by_tree: u64,
    missed_by_tree: u64,
    closing: bool,
    now: Instant,
}

#[derive(Debug)]
struct Subscription {
    peer: IpAddr,
    version: AddressingVersion,
    notify_to: EndpointReference,
    end_to: Option<EndpointReference>,
    /// The wanted actions, of those that the offer has.
    actions: Vec<Str>,
    manager: EndpointReference,
    expires_at: Instant,
    by_date: bool,
    queue: VecDeque<Waiting>,
    in_flight: Option<u64>,
    failures: u32,
    on_tree: Option<OnTree>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Expire(SubscriptionId),
    /// A delivery has had no result for too long.
    Silent(u64),
    Retry(SubscriptionId),
}

impl std::fmt::Debug for EventSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSource")
            .field("config", &self.config)
            .field("subscriptions", &self.subscriptions)
            .field("refused", &self.refused)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

impl EventSource {
    /// A source without subscriptions. `check` judges the addresses that subscribers name; `secret`
    /// is random and told to nobody: from it come the subscriptions' identifiers.
    #[must_use]
    pub fn new(config: SourceConfig, check: AddressCheck, secret: [u8; 16]) -> Self {
        Self {
            config,
            check,
            ids: Ids::new(secret),
            subscriptions: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            next_delivery: 1,
            timers: Timers::default(),
            outputs: VecDeque::new(),
            refused: BTreeMap::new(),
            dropped: BTreeMap::new(),
            delivered: 0,
            spreading: BTreeMap::new(),
            changed: BTreeSet::new(),
            delivered_by_tree: 0,
            missed_by_tree: 0,
            closing: false,
            now: Instant::ZERO,
        }
    }

    /// How many subscriptions live.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// How many live subscriptions want this action.
    #[must_use]
    pub fn subscribers(&self, action: &str) -> usize {
        let wanting = self
            .subscriptions
            .values()
            .filter(|known| known.wants(action));
        wanting.count()
    }

    /// How many requests were refused for this reason.
    #[must_use]
    pub fn refused(&self, reason: SourceRefusal) -> u64 {
        self.refused.get(&reason).copied().unwrap_or_default()
    }

    /// How many notifications were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }

    /// How many notifications were delivered.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether a request to this path is for the subscription manager.
    #[must_use]
    pub fn manages(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.config.manager_path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// How many events reached sinks by trees, each sink counted.
    #[must_use]
    pub fn delivered_by_tree(&self) -> u64 {
        self.delivered_by_tree
    }

    /// How many did not, and went as standard notifications afterwards.
    #[must_use]
    pub fn missed_by_tree(&self) -> u64 {
        self.missed_by_tree
    }

    /// How many subscriptions get their events by a tree.
    #[must_use]
    pub fn on_trees(&self) -> usize {
        let all = self.subscriptions.values();
        all.filter(|one| one.is_member()).count()
    }

    fn event(&mut self, event: SourceEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Ends a subscription: forgets it, drops what waits, tells `EndTo` when the source is the one
    /// who ends it.
    fn end(&mut self, id: SubscriptionId, status: Option<(EndStatus, Str)>) {
        let Some(ended) = self.subscriptions.remove(&id) else {
            return;
        };
        self.timers.cancel(&Timer::Expire(id));
        self.timers.cancel(&Timer::Retry(id));
        self.left_tree(&ended);
        if let Some(delivery) = ended.in_flight {
            self.deliveries.remove(&delivery);
            self.timers.cancel(&Timer::Silent(delivery));
        }
        if !ended.queue.is_empty() {
            self.drop_notifications(id, DropReason::Ended, ended.queue.len());
        }
        if let Some((status, reason)) = status {
            self.tell_end(id, ended, status, reason);
        }
    }

    fn drop_notifications(&mut self, id: SubscriptionId, reason: DropReason, count: usize) {
        *self.dropped.entry(reason).or_default() += count as u64;
        self.event(SourceEvent::Dropped {
            subscription: id,
            reason,
            count,
        });
    }

    fn command(&mut self, command: SourceCommand) {
        match command {
            SourceCommand::Notify { action, body } => self.notify(&action, body),
            SourceCommand::Cancel {
                subscription,
                reason,
            } => {
                if self.subscriptions.contains_key(&subscription) {
                    let status = EndStatus::SourceCancelling;
                    self.end(subscription, Some((status.clone(), reason)));
                    self.event(SourceEvent::Ended {
                        subscription,
                        status,
                    });
                }
            }
            SourceCommand::Shutdown => {
                self.closing = true;
                let ids: Vec<_> = self.subscriptions.keys().copied().collect();
                for subscription in ids {
                    let status = EndStatus::SourceShuttingDown;
                    self.end(
                        subscription,
                        Some((status.clone(), "the device stops".into())),
                    );
                    self.event(SourceEvent::Ended {
                        subscription,
                        status,
                    });
                }
            }
        }
    }

    fn timeout(&mut self) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Expire(subscription) => {
                    self.end(subscription, None);
                    self.event(SourceEvent::Expired { subscription });
                }
                Timer::Silent(delivery) => self.failed(delivery, Failure::Unreachable),
                Timer::Retry(subscription) => self.send_next(subscription),
            }
        }
    }

    fn respond(&mut self, request: &Request, envelope: Envelope) {
        self.outputs
            .push_back(Output::Transmit(SourceTransmit::Response {
                token: request.token,
                envelope: Box::new(envelope),
            }));
    }
}

impl Subscription {
    fn wants(&self, action: &str) -> bool {
        self.actions.iter().any(|wanted| wanted == action)
    }

    fn rest(&self, now: Instant) -> Duration {
        self.expires_at.saturating_since(now)
    }
}

impl Machine for EventSource {
    type Receive = SourceReceive;
    type Command = SourceCommand;
    type Transmit = SourceTransmit;
    type Event = SourceEvent;

    fn handle_input(&mut self, now: Instant, input: Input<SourceReceive, SourceCommand>) {
        self.now = now;
        // What has expired is gone before anything else happens at this time.
        self.timeout();
        match input {
            Input::Receive(SourceReceive::Request(request)) => self.request(&request),
            Input::Receive(SourceReceive::Delivered { delivery }) => self.delivered_one(delivery),
            Input::Receive(SourceReceive::Failed { delivery, failure }) => {
                self.failed(delivery, failure);
            }
            Input::Receive(SourceReceive::Proven { peer, there }) => self.proven(peer, there),
            Input::Receive(SourceReceive::Spread {
                delivery,
                delivered,
                missed,
            }) => self.spread_ended(delivery, delivered, &missed),
            Input::Receive(SourceReceive::NotSpread { delivery }) => self.not_spread(delivery),
            Input::Command(command) => self.command(command),
            Input::Timeout => {}
        }
        self.tell_members();
    }

    fn poll_output(&mut self) -> Option<Output<SourceTransmit, SourceEvent>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }
}

impl Invariant for EventSource {
    fn check(&self) -> Result<(), String> {
        let count = self.subscriptions.len();
        if count > self.config.subscriptions_max {
            return Err(format!("{count} subscriptions"));
        }
        let mut peers: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (id, subscription) in &self.subscriptions {
            *peers.entry(subscription.peer).or_default() += 1;
            if subscription.expires_at <= self.now {
                return Err(format!("{id:?} lives beyond its lease"));
            }
            if subscription.expires_at > self.now + self.config.lease_max {
                return Err(format!("{id:?} has a longer lease than any"));
            }
            if subscription.queue.len() > self.config.queue_max.max(QUEUE_MIN) {
                return Err(format!("{id:?} has {} waiting", subscription.queue.len()));
            }
            if subscription.failures >= self.config.failures_max {
                return Err(format!(
                    "{id:?} lives with {} failures",
                    subscription.failures
                ));
            }
            let known = subscription
                .in_flight
                .map(|delivery| self.deliveries.get(&delivery));
            if known.is_some_and(|known| known != Some(id)) {
                return Err(format!("the delivery in flight of {id:?} is not known"));
            }
            if !subscription.queue.is_empty()
                && subscription.in_flight.is_none()
                && subscription.failures == 0
            {
                return Err(format!("{id:?} waits for nothing"));
            }
        }
        let most = self.config.tree.as_ref().map_or(0, |tree| tree.spreads_max);
        if self.spreading.len() > most {
            return Err(format!("{} events on trees", self.spreading.len()));
        }
        if !self.changed.is_empty() {
            return Err("a tree has other sinks, and nobody is told".into());
        }
        let in_flight = self
            .subscriptions
            .values()
            .filter(|one| one.in_flight.is_some());
        if in_flight.count() != self.deliveries.len() {
            return Err("a delivery belongs to no subscription".into());
        }
        match peers.values().max() {
            Some(most) if *most > self.config.subscriptions_per_peer_max => {
                Err(format!("a peer has {most} subscriptions"))
            }
            _ => Ok(()),
        }
    }
}
