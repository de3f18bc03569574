//! The event sink: it keeps subscriptions alive and hands out their notifications.
//!
//! Every attempt to subscribe has a path of its own that nobody can guess. A notification to
//! another path is refused, so that a source whose answer was lost ends the subscription that
//! nobody here knows of.

mod life;
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

/// The subscriptions of one client. The module documentation says what it promises.
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
    /// Which subscription the paths of present attempts belong to.
    routes: BTreeMap<u128, SubscriptionKey>,
    /// Requests whose answer is awaited.
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    timers: Timers<Timer>,
    outputs: VecDeque<Output<SinkTransmit, SinkEvent>>,
    refused: BTreeMap<SinkRefusal, u64>,
    duplicates: u64,
    now: Instant,
}

#[derive(Debug)]
struct Subscription {
    source: Source,
    phase: Phase,
    /// The path of the present attempt.
    route: u128,
    manager: Option<EndpointReference>,
    /// When the lease passes, as far as this side knows.
    expires_at: Instant,
    renew_at: Instant,
    heard_at: Instant,
    failures: u32,
    seen: Seen,
    /// The source spreads its events on a tree.
    on_tree: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits before it subscribes.
    Waiting,
    Subscribing(u64),
    Live,
    Renewing(u64),
    Checking(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    key: SubscriptionKey,
    /// Who named the source.
    peer: SocketAddr,
    kind: Kind,
    sent_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Subscribe,
    /// A Subscribe that is no longer waited for; a late grant is given back.
    Abandoned,
    Renew,
    GetStatus,
    Unsubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Act(SubscriptionKey),
    Unanswered(u64),
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
    /// A sink without subscriptions. `check` judges the addresses that sources name; `secret` is
    /// random and told to nobody: from it come the paths.
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
            refused: BTreeMap::new(),
            duplicates: 0,
            now: Instant::ZERO,
        }
    }

    /// The subscriptions, and for how long each is still granted; `None` when it is not.
    pub fn subscriptions(&self) -> impl Iterator<Item = (SubscriptionKey, Option<Duration>)> + '_ {
        self.subscriptions.iter().map(|(key, subscription)| {
            let live = subscription.is_live() && subscription.expires_at > self.now;
            let rest = subscription.expires_at.saturating_since(self.now);
            (*key, live.then_some(rest))
        })
    }

    /// How many posted messages were refused for this reason.
    #[must_use]
    pub fn refused(&self, reason: SinkRefusal) -> u64 {
        self.refused.get(&reason).copied().unwrap_or_default()
    }

    /// How many notifications came again and were not handed out again.
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

    /// The subscription that has this path now.
    #[must_use]
    pub fn subscription_at(&self, path: &str) -> Option<SubscriptionKey> {
        self.route(path)
    }

    fn event(&mut self, event: SinkEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    fn trouble(&mut self, key: SubscriptionKey, reason: TroubleReason) {
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
                self.answered(request, answer);
            }
            Input::Receive(SinkReceive::Posted {
                token,
                peer,
                path,
                envelope,
            }) => self.posted(token, peer, &path, &envelope),
            Input::Receive(SinkReceive::Spread {
                key,
                message_id,
                action,
                body,
            }) => self.spread(key, &message_id, action, *body),
            Input::Command(command) => self.command(command),
            Input::Timeout => {}
        }
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Act(key) => self.act(key),
                Timer::Unanswered(request) => self.unanswered(request, "no answer in time".into()),
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
            return Err(format!("{} subscriptions", self.subscriptions.len()));
        }
        let routed = self
            .subscriptions
            .values()
            .filter(|one| one.phase != Phase::Waiting);
        if routed.count() != self.routes.len() {
            return Err(format!("{} paths are open", self.routes.len()));
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
                return Err(format!("{key:?} waits for an answer that never comes"));
            }
            if subscription.is_live() != subscription.manager.is_some() {
                return Err(format!(
                    "{key:?} is live without a manager, or not with one"
                ));
            }
            let seen_max = self.config.duplicates_max;
            let seen_max = seen_max.max(self.config.tree_duplicates_max);
            if subscription.seen.len() > seen_max {
                return Err(format!("{key:?} remembers {}", subscription.seen.len()));
            }
        }
        // Each subscription acts by time, or waits for an answer that has a time.
        let timers = self.timers.len();
        if timers < self.subscriptions.len().max(self.pending.len()) {
            return Err(format!("{timers} timers"));
        }
        Ok(())
    }
}
