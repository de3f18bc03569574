//! The life of a subscription: subscribe, renew, doubt, subscribe again, end.

use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::{Instant, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Str};

use super::{
    EndReason, EventSink, Kind, Pending, Phase, SinkCommand, SinkEvent, SinkTransmit, Source,
    Subscription, SubscriptionKey, Timer, TroubleReason,
};
use crate::eventing::EventingFault;
use crate::eventing::message::{
    DELIVERY_MODE_PUSH, Expiration, Filter, Lease, Subscribe, SubscribeResponse, action,
};
use crate::exchange;

/// The shortest pause before a renewal, so that a tiny lease is no storm of requests.
const RENEW_MIN: Duration = Duration::from_millis(500);
/// The longest lease that is believed. Default one day: a forgotten one is found out by then.
const LEASE_MAX: Duration = Duration::from_secs(86_400);

impl EventSink {
    pub(super) fn command(&mut self, command: SinkCommand) {
        match command {
            SinkCommand::Subscribe { key, source } => self.add(key, *source),
            SinkCommand::Doubt { key } => {
                if self
                    .subscriptions
                    .get(&key)
                    .is_some_and(|one| one.phase == Phase::Live)
                {
                    self.ask(key, Kind::GetStatus);
                }
            }
            SinkCommand::Unsubscribe { key } => self.remove(key, EndReason::Unsubscribed),
            SinkCommand::Stop => {
                let keys: Vec<_> = self.subscriptions.keys().copied().collect();
                for key in keys {
                    self.remove(key, EndReason::Unsubscribed);
                }
            }
        }
    }

    fn add(&mut self, key: SubscriptionKey, source: Source) {
        self.remove(key, EndReason::Replaced);
        if self.subscriptions.len() >= self.config.subscriptions_max {
            self.trouble(key, TroubleReason::Full);
            return;
        }
        let subscription = Subscription {
            source,
            phase: Phase::Waiting,
            route: 0,
            manager: None,
            expires_at: self.now,
            renew_at: self.now,
            heard_at: self.now,
            failures: 0,
            seen: Default::default(),
            on_tree: false,
        };
        self.subscriptions.insert(key, subscription);
        self.subscribe(key);
    }

    /// Forgets a subscription and tells its source.
    fn remove(&mut self, key: SubscriptionKey, why: EndReason) {
        let Some(removed) = self.subscriptions.remove(&key) else {
            return;
        };
        self.timers.cancel(&Timer::Act(key));
        self.routes.remove(&removed.route);
        self.abandon(removed.phase);
        if let Some(manager) = removed.manager {
            self.unsubscribe(key, removed.source.peer, &manager);
        }
        self.event(SinkEvent::Ended { key, why });
    }

    /// No longer waits for the answer of this phase.
    fn abandon(&mut self, phase: Phase) {
        match phase {
            Phase::Waiting | Phase::Live => {}
            Phase::Subscribing(request) => {
                if let Some(pending) = self.pending.get_mut(&request) {
                    pending.kind = Kind::Abandoned;
                }
            }
            Phase::Renewing(request) | Phase::Checking(request) => self.forget(request),
        }
    }

    fn forget(&mut self, request: u64) {
        self.pending.remove(&request);
        self.timers.cancel(&Timer::Unanswered(request));
    }

    fn subscribe(&mut self, key: SubscriptionKey) {
        let route = self.ids.next();
        let version = self.config.dialect.addressing();
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        let source = &subscription.source;
        let base = &source.base;
        let here = EndpointReference::new(format!("{base}{}/{route:032x}", self.config.path));
        let filter = (!source.actions.is_empty())
            .then(|| Filter::actions(self.config.dialect, source.actions.clone()));
        let message = Subscribe {
            end_to: Some(here.clone()),
            mode: Some(DELIVERY_MODE_PUSH.into()),
            notify_to: Some(here),
            expires: Some(Expiration::After(source.lease)),
            filter,
            tree: Ok(source.tree.filter(|_| !source.actions.is_empty())),
        };
        let (to, peer) = (source.endpoint.clone(), source.peer);
        subscription.route = route;
        subscription.seen.clear();
        subscription.on_tree = false;
        self.routes.insert(route, key);
        let body = message.to_element(version);
        let request = self.send((key, peer), Kind::Subscribe, &to, action::SUBSCRIBE, body);
        if let Some(subscription) = self.subscriptions.get_mut(&key) {
            subscription.phase = Phase::Subscribing(request);
        }
    }

    fn unsubscribe(&mut self, key: SubscriptionKey, peer: SocketAddr, manager: &EndpointReference) {
        let body = Lease::Unsubscribe.to_element(None);
        self.send(
            (key, peer),
            Kind::Unsubscribe,
            manager,
            action::UNSUBSCRIBE,
            body,
        );
    }

    /// Asks the manager of a live subscription.
    fn ask(&mut self, key: SubscriptionKey, kind: Kind) {
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        let Some(manager) = subscription.manager.clone() else {
            return;
        };
        let peer = subscription.source.peer;
        let (action, body) = match kind {
            Kind::GetStatus => (action::GET_STATUS, Lease::GetStatus.to_element(None)),
            _ => {
                let lease = Expiration::After(subscription.source.lease);
                (action::RENEW, Lease::Renew.to_element(Some(lease)))
            }
        };
        let request = self.send((key, peer), kind, &manager, action, body);
        if let Some(subscription) = self.subscriptions.get_mut(&key) {
            subscription.phase = match kind {
                Kind::GetStatus => Phase::Checking(request),
                _ => Phase::Renewing(request),
            };
        }
        self.timers.cancel(&Timer::Act(key));
    }

    fn send(
        &mut self,
        (key, peer): (SubscriptionKey, SocketAddr),
        kind: Kind,
        to: &EndpointReference,
        action: &'static str,
        body: Element,
    ) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        let version = self.config.dialect.addressing();
        let envelope = exchange::request(version, to, action, self.ids.urn()).with_body(body);
        let sent_at = self.now;
        let pending = Pending {
            key,
            peer,
            kind,
            sent_at,
        };
        self.pending.insert(request, pending);
        let unanswered_at = self.now + self.config.request_timeout;
        self.timers.set(Timer::Unanswered(request), unanswered_at);
        self.outputs
            .push_back(Output::Transmit(SinkTransmit::Request {
                request,
                envelope: Box::new(envelope),
            }));
        request
    }

    /// The time of a subscription has come.
    pub(super) fn act(&mut self, key: SubscriptionKey) {
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        match subscription.phase {
            Phase::Waiting => self.subscribe(key),
            Phase::Live if subscription.expires_at <= self.now => {
                self.lost(key, EndReason::Expired);
            }
            Phase::Live if subscription.renew_at <= self.now => self.ask(key, Kind::Renew),
            Phase::Live => self.ask(key, Kind::GetStatus),
            Phase::Subscribing(_) | Phase::Renewing(_) | Phase::Checking(_) => {}
        }
    }

    pub(super) fn answered(&mut self, request: u64, answer: Result<Box<Envelope>, Str>) {
        let envelope = match answer {
            Ok(envelope) => envelope,
            Err(why) => return self.unanswered(request, why),
        };
        let Some(pending) = self.pending.get(&request).copied() else {
            return;
        };
        self.forget(request);
        match pending.kind {
            Kind::Subscribe => self.granted(pending, &envelope),
            Kind::Abandoned => self.give_back(pending, &envelope),
            Kind::Renew | Kind::GetStatus => self.extended(pending, &envelope),
            Kind::Unsubscribe => {}
        }
    }

    /// A grant for an attempt that nobody waits for any more.
    fn give_back(&mut self, pending: Pending, envelope: &Envelope) {
        let version = envelope.addressing.version;
        let body = envelope.body();
        let read = body.and_then(|body| SubscribeResponse::from_element(version, body).ok());
        let read = read.filter(|read| (self.check)(&read.manager.address, pending.peer).is_ok());
        if let Some(read) = read {
            self.unsubscribe(pending.key, pending.peer, &read.manager);
        }
    }

    fn granted(&mut self, pending: Pending, envelope: &Envelope) {
        let key = pending.key;
        let read = response(envelope, |version, body| {
            SubscribeResponse::from_element(version, body)
        });
        let read = match read {
            Ok(read) => read,
            Err(reason) => return self.retry(key, reason),
        };
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        if let Err(why) = (self.check)(&read.manager.address, subscription.source.peer) {
            return self.retry(key, TroubleReason::Address(why));
        }
        let granted = self.lease(read.expires, pending.sent_at);
        let peer = subscription.source.peer;
        let offer = read.tree.filter(|_| subscription.source.tree.is_some());
        let offer = offer.filter(|offer| {
            let allowed = |uri: &str| (self.check)(uri, peer).is_ok();
            allowed(&offer.source.uri()) && allowed(&offer.members)
        });
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        subscription.manager = Some(read.manager);
        subscription.failures = 0;
        subscription.on_tree = offer.is_some();
        let actions = subscription.source.actions.clone();
        if let Some(offer) = offer {
            let offer = Box::new(offer);
            self.event(SinkEvent::Tree {
                key,
                offer,
                actions,
            });
        }
        self.live(key, pending.sent_at, granted);
        self.event(SinkEvent::Subscribed { key, granted });
    }

    fn extended(&mut self, pending: Pending, envelope: &Envelope) {
        let key = pending.key;
        let renew = pending.kind == Kind::Renew;
        let message = if renew {
            Lease::RenewResponse
        } else {
            Lease::GetStatusResponse
        };
        let expires = match response(envelope, |_, body| message.from_element(body)) {
            Ok(expires) => expires,
            Err(TroubleReason::Unusable(what)) => {
                self.trouble(key, TroubleReason::Unusable(what));
                return self.hold(key);
            }
            // Whatever the fault is called: the source does not keep the subscription.
            Err(reason) => {
                self.trouble(key, reason);
                return self.lost(key, EndReason::Forgotten);
            }
        };
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        let recovered = std::mem::take(&mut subscription.failures) > 0;
        subscription.heard_at = self.now;
        let asked = subscription.source.lease;
        let rest = subscription.expires_at.saturating_since(pending.sent_at);
        // An answer without expiration leaves what was asked for, or what was known.
        let known = Expiration::After(if renew { asked } else { rest });
        let granted = self.lease(expires.unwrap_or(known), pending.sent_at);
        self.live(key, pending.sent_at, granted);
        if renew || recovered {
            self.event(SinkEvent::Renewed { key, granted });
        }
    }

    fn lease(&self, expires: Expiration, sent_at: Instant) -> Duration {
        let lease = match (expires, self.config.utc_at_origin_ns) {
            (Expiration::After(lease), _) => lease,
            (Expiration::At(date), Some(origin)) => {
                let sent = i128::from(origin) + i128::from(sent_at.as_nanos());
                let rest = u64::try_from(i128::from(date) - sent).unwrap_or_default();
                Duration::from_nanos(rest)
            }
            // Without a clock a date says nothing: the renewal comes early instead.
            (Expiration::At(_), None) => 2 * RENEW_MIN,
        };
        lease.min(LEASE_MAX)
    }

    /// Live until `granted` after the request was sent, hence not longer than the source thinks.
    fn live(&mut self, key: SubscriptionKey, sent_at: Instant, granted: Duration) {
        let (low, high) = self.config.renew_percent;
        let share = self.ids.fraction();
        let percent = f64::from(low) + share * f64::from(high.saturating_sub(low));
        let pause = granted.mul_f64((percent / 100.0).clamp(0.0, 1.0));
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        subscription.phase = Phase::Live;
        subscription.expires_at = sent_at + granted.max(RENEW_MIN);
        subscription.renew_at = sent_at + pause.max(RENEW_MIN);
        subscription.heard_at = self.now;
        self.schedule(key);
    }

    /// Sets when a live subscription acts next: to renew, or out of doubt.
    pub(super) fn schedule(&mut self, key: SubscriptionKey) {
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        if subscription.phase != Phase::Live {
            return;
        }
        let doubt = self
            .config
            .doubt_after
            .map(|after| subscription.heard_at + after);
        let act = doubt.map_or(subscription.renew_at, |doubt| {
            doubt.min(subscription.renew_at)
        });
        self.timers.set(Timer::Act(key), act.max(self.now));
    }

    pub(super) fn unanswered(&mut self, request: u64, why: Str) {
        let Some(pending) = self.pending.get(&request).copied() else {
            return;
        };
        self.forget(request);
        match pending.kind {
            Kind::Subscribe => self.retry(pending.key, TroubleReason::Unreachable(why)),
            Kind::Renew | Kind::GetStatus => {
                self.trouble(pending.key, TroubleReason::Unreachable(why));
                self.hold(pending.key);
            }
            Kind::Unsubscribe | Kind::Abandoned => {}
        }
    }

    /// Stays live and tries the renewal again, until the lease has passed.
    fn hold(&mut self, key: SubscriptionKey) {
        let pause = self.pause(key);
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        subscription.phase = Phase::Live;
        let renew_at = (self.now + pause)
            .min(subscription.expires_at)
            .max(self.now);
        subscription.renew_at = renew_at;
        self.timers.set(Timer::Act(key), renew_at);
    }

    /// Subscribes again after a pause.
    fn retry(&mut self, key: SubscriptionKey, reason: TroubleReason) {
        self.trouble(key, reason);
        let pause = self.pause(key);
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        self.routes.remove(&subscription.route);
        subscription.phase = Phase::Waiting;
        subscription.manager = None;
        self.timers.set(Timer::Act(key), self.now + pause);
    }

    /// The subscription is no more on the source's side: tells it and subscribes again, at once the
    /// first time.
    pub(super) fn lost(&mut self, key: SubscriptionKey, why: EndReason) {
        let at_once = matches!(why, EndReason::Forgotten | EndReason::Expired);
        self.event(SinkEvent::Ended { key, why });
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        let phase = std::mem::replace(&mut subscription.phase, Phase::Waiting);
        subscription.manager = None;
        let first = subscription.failures == 0;
        self.routes.remove(&subscription.route);
        self.abandon(phase);
        if at_once && first {
            return self.subscribe(key);
        }
        let pause = self.pause(key);
        self.timers.set(Timer::Act(key), self.now + pause);
    }

    /// The next pause of a subscription with troubles: doubled each time, varied by a quarter.
    fn pause(&mut self, key: SubscriptionKey) -> Duration {
        let share = self.ids.fraction();
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return self.config.backoff_max;
        };
        let doublings = subscription.failures.min(16);
        subscription.failures = subscription.failures.saturating_add(1);
        let pause = self.config.backoff_first.saturating_mul(1 << doublings);
        let pause = pause.min(self.config.backoff_max);
        pause.mul_f64(0.75 + share / 2.0)
    }
}

/// Reads an answer, or says what is wrong with it.
fn response<T>(
    envelope: &Envelope,
    read: impl FnOnce(chappe_soap::AddressingVersion, &Element) -> Result<T, EventingFault>,
) -> Result<T, TroubleReason> {
    if let Some(fault) = envelope.fault() {
        return Err(match EventingFault::from_fault(&fault) {
            Some(known) => TroubleReason::Refused(known),
            None => TroubleReason::Fault(fault.to_string()),
        });
    }
    let Some(body) = envelope.body() else {
        return Err(TroubleReason::Unusable("it has no body".into()));
    };
    let version = envelope.addressing.version;
    read(version, body).map_err(|fault| TroubleReason::Unusable(fault.to_string()))
}
