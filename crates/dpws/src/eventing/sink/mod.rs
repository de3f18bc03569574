//! The event sink: keeps subscriptions alive and delivers their notifications.
//!
//! Every attempt to subscribe has its own unguessable path. A notification to any other path is
//! rejected, so that a source whose answer was lost ends its orphaned subscription.

mod lifecycle;
mod posted;
mod seen;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, Timers};
use chappe_soap::EndpointReference;

use super::{AddressCheck, SinkConfig};
use crate::ids::Ids;
use seen::Seen;

pub use types::{
    EndReason, SinkCommand, SinkEvent, SinkReceive, SinkRefusal, SinkTransmit, Source,
    SubscriptionKey, TroubleReason,
};

/// All subscriptions of one client. See the module documentation for its guarantees.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use chappe_dpws::eventing::{
///     EventSink, SinkCommand, SinkConfig, SinkTransmit, Source, SubscriptionKey,
/// };
/// use chappe_machine::{Input, Instant, Output, drain};
/// use chappe_soap::EndpointReference;
/// let mut sink = EventSink::new(SinkConfig::default(), Arc::new(|_, _| Ok(())), [7; 16]);
/// let source = Source {
///     endpoint: EndpointReference::new("http://192.0.2.7/thermometer"),
///     peer: "192.0.2.7:80".parse().unwrap(),
///     actions: vec!["urn:x/Report".into()],
///     lease: Duration::from_secs(60),
///     base: "http://192.0.2.1:8080".into(),
///     tree: None,
/// };
/// let command = SinkCommand::Subscribe { key: SubscriptionKey(1), source: Box::new(source) };
/// let mut sent = Vec::new();
/// drain(&mut sink, Instant::ZERO, Input::Command(command), |output| {
///     if let Output::Transmit(SinkTransmit::Request { envelope, .. }) = output {
///         sent.push(envelope);
///     }
/// });
/// assert_eq!(sent[0].addressing.to.as_deref(), Some("http://192.0.2.7/thermometer"));
/// ```
pub struct EventSink {
    config: SinkConfig,
    check: AddressCheck,
    ids: Ids,
    subscriptions: BTreeMap<SubscriptionKey, Subscription>,
    /// The subscription of each path in use.
    routes: BTreeMap<u128, SubscriptionKey>,
    /// Requests without an answer yet.
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    timers: Timers<Timer>,
    outputs: VecDeque<Output<SinkTransmit, SinkEvent>>,
    refusals: BTreeMap<SinkRefusal, u64>,
    duplicates: u64,
    now: Instant,
}

#[derive(Debug)]
struct Subscription {
    source: Source,
    phase: Phase,
    /// The path of the current attempt.
    route: u128,
    manager: Option<EndpointReference>,
    /// The end of the lease, from this side's view.
    expires_at: Instant,
    renew_at: Instant,
    last_contact: Instant,
    /// When its status was queried last, and whether the application wants to know it since.
    checked_at: Instant,
    must_check: bool,
    failures: u32,
    seen: Seen,
    /// Whether the source sends its events through a tree.
    on_tree: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Pauses before it subscribes.
    Waiting,
    Subscribing(u64),
    Live,
    Renewing(u64),
    Checking(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    key: SubscriptionKey,
    /// The host that announced the source.
    peer: SocketAddr,
    kind: Kind,
    sent_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Subscribe,
    /// A Subscribe whose answer is no longer expected; a late grant is unsubscribed.
    Abandoned,
    Renew,
    GetStatus,
    Unsubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Act(SubscriptionKey),
    RequestTimeout(u64),
}

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSink")
            .field("config", &self.config)
            .field("subscriptions", &self.subscriptions)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl EventSink {
    /// Creates a sink without subscriptions. `check` decides about addresses given by sources;
    /// `secret` is random and confidential, since the paths derive from it.
    #[must_use]
    pub fn new(config: SinkConfig, check: AddressCheck, secret: [u8; 16]) -> Self {
        Self {
            config,
            check,
            ids: Ids::new(secret),
            subscriptions: BTreeMap::new(),
            routes: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_request: 1,
            timers: Timers::default(),
            outputs: VecDeque::new(),
            refusals: BTreeMap::new(),
            duplicates: 0,
            now: Instant::ZERO,
        }
    }

    /// The subscriptions with their remaining leases; `None` if a subscription is not granted.
    pub fn subscriptions(&self) -> impl Iterator<Item = (SubscriptionKey, Option<Duration>)> + '_ {
        self.subscriptions.iter().map(|(key, subscription)| {
            let is_live = subscription.is_live() && subscription.expires_at > self.now;
            let rest = subscription.expires_at.saturating_since(self.now);
            (*key, is_live.then_some(rest))
        })
    }

    /// Posted messages rejected for this reason.
    #[must_use]
    pub fn refused(&self, reason: SinkRefusal) -> u64 {
        self.refusals.get(&reason).copied().unwrap_or_default()
    }

    /// Duplicate notifications that were not delivered.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Whether a request to this path is for this sink.
    #[must_use]
    pub fn receives(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.config.path);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// The subscription with this path.
    #[must_use]
    pub fn subscription_at(&self, path: &str) -> Option<SubscriptionKey> {
        self.find_route(path)
    }

    fn event(&mut self, event: SinkEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    fn report_trouble(&mut self, key: SubscriptionKey, reason: TroubleReason) {
        let hint = reason.hint();
        self.event(SinkEvent::Trouble { key, reason, hint });
    }
}

impl Subscription {
    fn is_live(&self) -> bool {
        matches!(
            self.phase,
            Phase::Live | Phase::Renewing(_) | Phase::Checking(_)
        )
    }
}

impl Machine for EventSink {
    type Receive = SinkReceive;
    type Command = SinkCommand;
    type Transmit = SinkTransmit;
    type Event = SinkEvent;

    fn handle_input(&mut self, now: Instant, input: Input<SinkReceive, SinkCommand>) {
        self.now = now;
        match input {
            Input::Receive(SinkReceive::Answer { request, answer }) => {
                self.on_answer(request, answer);
            }
            Input::Receive(SinkReceive::Posted {
                token,
                peer,
                path,
                envelope,
            }) => self.on_posted(token, peer, &path, &envelope),
            Input::Receive(SinkReceive::Spread {
                key,
                message_id,
                action,
                body,
            }) => self.on_tree_event(key, &message_id, action, *body),
            Input::Command(command) => self.command(command),
            Input::Timeout => {}
        }
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Act(key) => self.on_timer(key),
                Timer::RequestTimeout(request) => {
                    self.on_request_failed(request, "the request timed out".into())
                }
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output<SinkTransmit, SinkEvent>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }
}

impl Invariant for EventSink {
    fn check(&self) -> Result<(), String> {
        if self.subscriptions.len() > self.config.subscriptions_max {
            return Err(format!(
                "{} subscriptions, above the limit",
                self.subscriptions.len()
            ));
        }
        let routed = self
            .subscriptions
            .values()
            .filter(|one| one.phase != Phase::Waiting);
        if routed.count() != self.routes.len() {
            return Err(format!(
                "{} paths, but other active subscriptions",
                self.routes.len()
            ));
        }
        for (key, subscription) in &self.subscriptions {
            let request = match subscription.phase {
                Phase::Waiting | Phase::Live => None,
                Phase::Subscribing(request)
                | Phase::Renewing(request)
                | Phase::Checking(request) => Some(request),
            };
            let pending = request.map(|request| self.pending.get(&request));
            if pending.is_some_and(|found| found.is_none_or(|found| found.key != *key)) {
                return Err(format!("{key:?} waits for an unknown request"));
            }
            if subscription.is_live() != subscription.manager.is_some() {
                return Err(format!(
                    "{key:?}: a live subscription needs a manager, others must have none"
                ));
            }
            let seen_max = self.config.duplicates_max;
            let seen_max = seen_max.max(self.config.tree_duplicates_max);
            if subscription.seen.len() > seen_max {
                return Err(format!(
                    "{key:?} stores {} identifiers",
                    subscription.seen.len()
                ));
            }
        }
        // Each subscription has a timer of its own or of its request.
        let timers = self.timers.len();
        if timers < self.subscriptions.len().max(self.pending.len()) {
            return Err(format!("only {timers} timers"));
        }
        Ok(())
    }
}
