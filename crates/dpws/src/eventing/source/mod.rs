//! The event source with its subscription manager, as one machine.
//!
//! A failed notification is retried with the same identifier until it is delivered or the
//! subscription ends. A sink thus sees every event or the end of its subscription; dropped
//! notifications are counted.
//!
//! The subscriptions are shared among hosts: when the table is full, a host with fewer subscriptions
//! takes the place of the oldest one of the host with the most.

mod delivery;
mod requests;
mod spreading;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chappe_identity::Host;
use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};
use chappe_soap::{AddressingVersion, EndpointReference, Envelope};
use chappe_xml::Str;

use super::{AddressCheck, EndStatus, NotificationFilter, Offer, SourceConfig};
use crate::ids::Ids;
use delivery::{QUEUE_MIN, QueuedNotification};
use spreading::OnTree;
use types::SharedBody;

pub use types::{
    DropReason, Failure, Notification, Request, SourceCommand, SourceEvent, SourceReceive,
    SourceRefusal, SourceTransmit, Spread, SubscriptionId,
};

/// The event source of one device. See the module documentation for its guarantees.
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
/// let notify = SourceCommand::Notify { action: "urn:x/Report".into(), body: report.into() };
/// drain(&mut source, Instant::ZERO, Input::Command(notify), |_| panic!("nobody subscribed"));
/// ```
pub struct EventSource {
    config: SourceConfig,
    check: AddressCheck,
    ids: Ids,
    subscriptions: BTreeMap<SubscriptionId, Subscription>,
    /// Deliveries without a result yet.
    deliveries: BTreeMap<u64, SubscriptionId>,
    next_delivery: u64,
    /// The number of subscriptions so far.
    orders: u64,
    timers: Timers<Timer>,
    outputs: VecDeque<Output<SourceTransmit, SourceEvent>>,
    refusals: BTreeMap<SourceRefusal, u64>,
    dropped: BTreeMap<DropReason, u64>,
    delivered: u64,
    /// Events on trees without a result yet, kept for sinks that they do not reach.
    spreading: BTreeMap<u64, QueuedNotification>,
    /// Actions whose tree members have changed.
    changed: BTreeSet<Str>,
    delivered_by_tree: u64,
    missed_by_tree: u64,
    closing: bool,
    now: Instant,
}

#[derive(Debug)]
struct Subscription {
    host: Host,
    /// Increases with each subscription.
    order: u64,
    version: AddressingVersion,
    notify_to: EndpointReference,
    end_to: Option<EndpointReference>,
    /// The subscribed actions of the service.
    actions: Vec<Str>,
    /// Its filter, if it is in a dialect of the application.
    filter: Filter,
    manager: EndpointReference,
    expires_at: Instant,
    by_date: bool,
    queue: VecDeque<QueuedNotification>,
    in_flight: Option<u64>,
    failures: u32,
    on_tree: Option<OnTree>,
}

/// A filter in a dialect of the application; without one, every notification of the actions passes.
#[derive(Default)]
struct Filter(Option<NotificationFilter>);

impl Filter {
    fn passes(&self, action: &str, body: &SharedBody) -> bool {
        let passes = self.0.as_ref();
        passes.is_none_or(|passes| passes(action, body.element()))
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Filter").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Expire(SubscriptionId),
    /// A delivery has timed out.
    DeliveryTimeout(u64),
    Retry(SubscriptionId),
}

impl std::fmt::Debug for EventSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSource")
            .field("config", &self.config)
            .field("subscriptions", &self.subscriptions)
            .field("refusals", &self.refusals)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

impl EventSource {
    /// Creates a source without subscriptions. `check` decides about addresses given by
    /// subscribers; `secret` is random and confidential, since the subscription identifiers derive
    /// from it.
    #[must_use]
    pub fn new(config: SourceConfig, check: AddressCheck, secret: [u8; 16]) -> Self {
        Self {
            config,
            check,
            ids: Ids::new(secret),
            subscriptions: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            next_delivery: 1,
            orders: 0,
            timers: Timers::default(),
            outputs: VecDeque::new(),
            refusals: BTreeMap::new(),
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

    /// The number of subscriptions.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// The number of subscriptions to this action.
    #[must_use]
    pub fn subscribers(&self, action: &str) -> usize {
        let subscribers = self
            .subscriptions
            .values()
            .filter(|known| known.has_action(action));
        subscribers.count()
    }

    /// Requests rejected for this reason.
    #[must_use]
    pub fn refused(&self, reason: SourceRefusal) -> u64 {
        self.refusals.get(&reason).copied().unwrap_or_default()
    }

    /// Notifications dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or_default()
    }

    /// Notifications that wait for their delivery, summed over the sinks.
    #[must_use]
    pub fn undelivered(&self) -> usize {
        self.subscriptions.values().map(|one| one.queue.len()).sum()
    }

    /// What is left of a subscription's lease at this time.
    #[must_use]
    pub fn lease_left(&self, id: SubscriptionId, now: Instant) -> Option<Duration> {
        self.subscriptions.get(&id).map(|known| known.rest(now))
    }

    /// Delivered notifications.
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

    /// Events delivered through trees, counted per sink.
    #[must_use]
    pub fn delivered_by_tree(&self) -> u64 {
        self.delivered_by_tree
    }

    /// Events that missed a sink on a tree and were sent as standard notifications, counted per
    /// sink.
    #[must_use]
    pub fn missed_by_tree(&self) -> u64 {
        self.missed_by_tree
    }

    /// Subscriptions served through a tree.
    #[must_use]
    pub fn on_trees(&self) -> usize {
        let all = self.subscriptions.values();
        all.filter(|one| one.is_member()).count()
    }

    fn event(&mut self, event: SourceEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Removes a subscription, drops its queue and, if the source ends it, notifies `EndTo`.
    fn end(&mut self, id: SubscriptionId, status: Option<(EndStatus, Str)>) {
        let Some(ended) = self.subscriptions.remove(&id) else {
            return;
        };
        self.timers.cancel(&Timer::Expire(id));
        self.timers.cancel(&Timer::Retry(id));
        self.on_member_ended(&ended);
        if let Some(delivery) = ended.in_flight {
            self.deliveries.remove(&delivery);
            self.timers.cancel(&Timer::DeliveryTimeout(delivery));
        }
        if !ended.queue.is_empty() {
            self.drop_notifications(id, DropReason::Ended, ended.queue.len());
        }
        if let Some((status, reason)) = status {
            self.send_subscription_end(id, ended, status, reason);
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
            SourceCommand::Notify { action, body } => self.notify(&action, body, None),
            SourceCommand::NotifyLatest { key, action, body } => {
                self.notify(&action, body, Some(&key));
            }
            SourceCommand::Cancel {
                subscription,
                reason,
            } => self.cancel(subscription, reason),
            SourceCommand::Offer(offers) => self.offer(offers),
            SourceCommand::Restore {
                subscription,
                request,
                lease,
            } => self.restore(subscription, &request, lease),
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

    fn cancel(&mut self, subscription: SubscriptionId, reason: Str) {
        if self.subscriptions.contains_key(&subscription) {
            let status = EndStatus::SourceCancelling;
            self.end(subscription, Some((status.clone(), reason)));
            self.event(SourceEvent::Ended {
                subscription,
                status,
            });
        }
    }

    fn offer(&mut self, offers: Vec<Offer>) {
        self.config.offers = offers;
        let offers = &self.config.offers;
        let offered: BTreeSet<&Str> = offers.iter().flat_map(|offer| &offer.actions).collect();
        let mut without = Vec::new();
        for (id, subscription) in &mut self.subscriptions {
            // A subscription on a tree ends whole: its membership is by action.
            let is_offered = |action: &Str| offered.contains(action);
            if subscription.on_tree.is_none() {
                subscription.actions.retain(is_offered);
            }
            if !subscription.actions.iter().any(is_offered) {
                without.push(*id);
            }
        }
        for subscription in without {
            self.cancel(subscription, "the device offers its events no more".into());
        }
    }

    fn timeout(&mut self) {
        while let Some(timer) = self.timers.pop(self.now) {
            match timer {
                Timer::Expire(subscription) => {
                    self.end(subscription, None);
                    self.event(SourceEvent::Expired { subscription });
                }
                Timer::DeliveryTimeout(delivery) => self.on_failed(delivery, Failure::Unreachable),
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
    fn has_action(&self, action: &str) -> bool {
        self.actions.iter().any(|subscribed| subscribed == action)
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
        // Expired subscriptions are removed before the input is handled.
        self.timeout();
        match input {
            Input::Receive(SourceReceive::Request(request)) => self.request(&request),
            Input::Receive(SourceReceive::Delivered { delivery }) => self.on_delivered(delivery),
            Input::Receive(SourceReceive::Failed { delivery, failure }) => {
                self.on_failed(delivery, failure);
            }
            Input::Receive(SourceReceive::Proven { peer, is_reachable }) => {
                self.on_proof_result(peer, is_reachable)
            }
            Input::Receive(SourceReceive::Spread {
                delivery,
                delivered,
                missed,
            }) => self.on_spread_result(delivery, delivered, &missed),
            Input::Receive(SourceReceive::NotSpread { delivery }) => {
                self.on_spread_failed(delivery)
            }
            Input::Command(command) => self.command(command),
            Input::Timeout => {}
        }
        self.send_members();
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
            return Err(format!("{count} subscriptions, above the limit"));
        }
        let mut hosts: BTreeMap<Host, usize> = BTreeMap::new();
        for (id, subscription) in &self.subscriptions {
            *hosts.entry(subscription.host).or_default() += 1;
            if subscription.expires_at <= self.now {
                return Err(format!("{id:?} has outlived its lease"));
            }
            if subscription.expires_at > self.now + self.config.lease_max {
                return Err(format!("{id:?} has a lease above the limit"));
            }
            if subscription.queue.len() > self.config.queue_max.max(QUEUE_MIN) {
                return Err(format!(
                    "{id:?} has {} queued notifications",
                    subscription.queue.len()
                ));
            }
            if subscription.failures >= self.config.failures_max {
                return Err(format!(
                    "{id:?} still exists after {} failures",
                    subscription.failures
                ));
            }
            let known = subscription
                .in_flight
                .map(|delivery| self.deliveries.get(&delivery));
            if known.is_some_and(|known| known != Some(id)) {
                return Err(format!("{id:?} has an unknown delivery in flight"));
            }
            if !subscription.queue.is_empty()
                && subscription.in_flight.is_none()
                && !self.timers.is_set(&Timer::Retry(*id))
            {
                return Err(format!(
                    "{id:?} has queued notifications, but none in flight or to be sent again"
                ));
            }
        }
        let most = self.config.tree.as_ref().map_or(0, |tree| tree.spreads_max);
        if self.spreading.len() > most {
            return Err(format!(
                "{} events on trees, above the limit",
                self.spreading.len()
            ));
        }
        if !self.changed.is_empty() {
            return Err("tree members changed without a Members output".into());
        }
        let in_flight = self
            .subscriptions
            .values()
            .filter(|one| one.in_flight.is_some());
        if in_flight.count() != self.deliveries.len() {
            return Err("a delivery has no subscription".into());
        }
        match hosts.values().max() {
            Some(most) if *most > self.config.subscriptions_per_peer_max => {
                Err(format!("a host has {most} subscriptions"))
            }
            _ => Ok(()),
        }
    }
}
