//! The life cycle of a subscription: subscribe, renew, verify, resubscribe, end.

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

/// The shortest pause before a renewal. Reason: a tiny lease must not cause a flood of requests.
const RENEW_MIN: Duration = Duration::from_millis(500);
/// The shortest pause between two queries for the status of a subscription. Reason: what makes a client verify it, a
/// Hello, is not authenticated, so a flood of forged ones must not become one of requests.
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// The longest lease that the sink accepts. Reason: a subscription lost by its source is found
/// within a day.
const LEASE_MAX: Duration = Duration::from_secs(86_400);

impl EventSink {
    pub(super) fn command(&mut self, command: SinkCommand) {
        match command {
            SinkCommand::Subscribe { key, source } => self.add_subscription(key, *source),
            SinkCommand::Verify { key } => {
                if let Some(subscription) = self.subscriptions.get_mut(&key) {
                    subscription.must_check = true;
                    self.schedule(key);
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

    fn add_subscription(&mut self, key: SubscriptionKey, source: Source) {
        self.remove(key, EndReason::Replaced);
        if self.subscriptions.len() >= self.config.subscriptions_max {
            self.report_trouble(key, TroubleReason::Full);
            return;
        }
        let subscription = Subscription {
            source,
            phase: Phase::Waiting,
            route: 0,
            manager: None,
            expires_at: self.now,
            renew_at: self.now,
            last_contact: self.now,
            checked_at: self.now,
            must_check: false,
            failures: 0,
            seen: Default::default(),
            on_tree: false,
        };
        self.subscriptions.insert(key, subscription);
        self.subscribe(key);
    }

    /// Removes a subscription and unsubscribes from its source.
    fn remove(&mut self, key: SubscriptionKey, reason: EndReason) {
        let Some(removed) = self.subscriptions.remove(&key) else {
            return;
        };
        self.timers.cancel(&Timer::Act(key));
        self.routes.remove(&removed.route);
        self.abandon_request(removed.phase);
        if let Some(manager) = removed.manager {
            self.unsubscribe(key, removed.source.peer, &manager);
        }
        self.event(SinkEvent::Ended { key, reason });
    }

    /// Stops waiting for the answer of this phase.
    fn abandon_request(&mut self, phase: Phase) {
        match phase {
            Phase::Waiting | Phase::Live => {}
            Phase::Subscribing(request) => {
                if let Some(pending) = self.pending.get_mut(&request) {
                    pending.kind = Kind::Abandoned;
                }
            }
            Phase::Renewing(request) | Phase::Checking(request) => self.remove_request(request),
        }
    }

    fn remove_request(&mut self, request: u64) {
        self.pending.remove(&request);
        self.timers.cancel(&Timer::RequestTimeout(request));
    }

    fn subscribe(&mut self, key: SubscriptionKey) {
        let route = self.ids.next();
        let version = self.config.dialect.addressing();
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        let source = &subscription.source;
        let base = &source.base;
        let own_endpoint =
            EndpointReference::new(format!("{base}{}/{route:032x}", self.config.path));
        let filter = (!source.actions.is_empty())
            .then(|| Filter::actions(self.config.dialect, source.actions.clone()));
        let message = Subscribe {
            end_to: Some(own_endpoint.clone()),
            mode: Some(DELIVERY_MODE_PUSH.into()),
            notify_to: Some(own_endpoint),
            expires: Some(Expiration::After(source.lease)),
            filter,
            tree: Ok(source.tree.filter(|_| !source.actions.is_empty())),
        };
        let (to, peer) = (source.endpoint.clone(), source.peer);
        subscription.route = route;
        subscription.must_check = false;
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

    /// Sends a request about a live subscription to its manager.
    fn query_manager(&mut self, key: SubscriptionKey, kind: Kind) {
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
            subscription.checked_at = self.now;
            subscription.must_check = false;
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
        self.timers
            .set(Timer::RequestTimeout(request), unanswered_at);
        self.outputs
            .push_back(Output::Transmit(SinkTransmit::Request {
                request,
                key,
                envelope: Box::new(envelope),
            }));
        request
    }

    /// Handles the timer of a subscription.
    pub(super) fn on_timer(&mut self, key: SubscriptionKey) {
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        match subscription.phase {
            Phase::Waiting => self.subscribe(key),
            Phase::Live if subscription.expires_at <= self.now => {
                self.on_source_end(key, EndReason::Expired);
            }
            Phase::Live if subscription.renew_at <= self.now => {
                self.query_manager(key, Kind::Renew)
            }
            Phase::Live => self.query_manager(key, Kind::GetStatus),
            Phase::Subscribing(_) | Phase::Renewing(_) | Phase::Checking(_) => {}
        }
    }

    pub(super) fn on_answer(&mut self, request: u64, answer: Result<Box<Envelope>, Str>) {
        let envelope = match answer {
            Ok(envelope) => envelope,
            Err(reason) => return self.on_request_failed(request, reason),
        };
        let Some(pending) = self.pending.get(&request).copied() else {
            return;
        };
        self.remove_request(request);
        match pending.kind {
            Kind::Subscribe => self.granted(pending, &envelope),
            Kind::Abandoned => self.unsubscribe_late_grant(pending, &envelope),
            Kind::Renew | Kind::GetStatus => self.on_lease_answer(pending, &envelope),
            Kind::Unsubscribe => {}
        }
    }

    /// Unsubscribes from a late grant for an abandoned attempt.
    fn unsubscribe_late_grant(&mut self, pending: Pending, envelope: &Envelope) {
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
            Err(reason) => return self.retry_subscribe(key, reason),
        };
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        if let Err(reason) = (self.check)(&read.manager.address, subscription.source.peer) {
            return self.retry_subscribe(key, TroubleReason::Address(reason));
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
        self.set_live(key, pending.sent_at, granted, None);
        self.event(SinkEvent::Subscribed { key, granted });
    }

    fn on_lease_answer(&mut self, pending: Pending, envelope: &Envelope) {
        let key = pending.key;
        let renew = pending.kind == Kind::Renew;
        let message = if renew {
            Lease::RenewResponse
        } else {
            Lease::GetStatusResponse
        };
        let expires = match response(envelope, |_, body| message.from_element(body)) {
            Ok(expires) => expires,
            Err(TroubleReason::Unusable(text)) => {
                self.report_trouble(key, TroubleReason::Unusable(text));
                return self.retry_renewal(key);
            }
            // Any fault means that the source does not have the subscription.
            Err(reason) => {
                self.report_trouble(key, reason);
                return self.on_source_end(key, EndReason::Forgotten);
            }
        };
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        let recovered = std::mem::take(&mut subscription.failures) > 0;
        subscription.last_contact = self.now;
        let requested = subscription.source.lease;
        let rest = subscription.expires_at.saturating_since(pending.sent_at);
        // Without an expiration in the answer, the requested or the remaining lease holds.
        let known = Expiration::After(if renew { requested } else { rest });
        // However often the status is queried, the renewal is not postponed.
        let due = (!renew).then_some(subscription.renew_at);
        let granted = self.lease(expires.unwrap_or(known), pending.sent_at);
        self.set_live(key, pending.sent_at, granted, due);
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
            // A date is useless without a clock, so the renewal comes early.
            (Expiration::At(_), None) => 2 * RENEW_MIN,
        };
        lease.min(LEASE_MAX)
    }

    /// The lease starts when the request was sent, so that it never ends after the source's. The renewal is no later
    /// than `due`.
    fn set_live(
        &mut self,
        key: SubscriptionKey,
        sent_at: Instant,
        granted: Duration,
        due: Option<Instant>,
    ) {
        let (low, high) = self.config.renew_percent;
        let share = self.ids.fraction();
        let percent = f64::from(low) + share * f64::from(high.saturating_sub(low));
        let next_pause = granted.mul_f64((percent / 100.0).clamp(0.0, 1.0));
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        subscription.phase = Phase::Live;
        subscription.expires_at = sent_at + granted.max(RENEW_MIN);
        let renew_at = sent_at + next_pause.max(RENEW_MIN);
        subscription.renew_at = due.map_or(renew_at, |due| renew_at.min(due));
        subscription.last_contact = self.now;
        self.schedule(key);
    }

    /// Sets the timer of a live subscription: to renew or to verify.
    pub(super) fn schedule(&mut self, key: SubscriptionKey) {
        let Some(subscription) = self.subscriptions.get(&key) else {
            return;
        };
        if subscription.phase != Phase::Live {
            return;
        }
        let verify_at = self
            .config
            .verify_after
            .map(|after| subscription.last_contact + after);
        let check_at = subscription
            .must_check
            .then(|| subscription.checked_at + CHECK_PAUSE);
        let on_timer = [verify_at, check_at]
            .into_iter()
            .flatten()
            .fold(subscription.renew_at, Instant::min);
        self.timers.set(Timer::Act(key), on_timer.max(self.now));
    }

    pub(super) fn on_request_failed(&mut self, request: u64, reason: Str) {
        let Some(pending) = self.pending.get(&request).copied() else {
            return;
        };
        self.remove_request(request);
        match pending.kind {
            Kind::Subscribe => {
                self.retry_subscribe(pending.key, TroubleReason::Unreachable(reason))
            }
            Kind::Renew | Kind::GetStatus => {
                self.report_trouble(pending.key, TroubleReason::Unreachable(reason));
                self.retry_renewal(pending.key);
            }
            Kind::Unsubscribe | Kind::Abandoned => {}
        }
    }

    /// Stays live and retries the renewal until the lease ends.
    fn retry_renewal(&mut self, key: SubscriptionKey) {
        let next_pause = self.next_pause(key);
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        subscription.phase = Phase::Live;
        let renew_at = (self.now + next_pause)
            .min(subscription.expires_at)
            .max(self.now);
        subscription.renew_at = renew_at;
        self.timers.set(Timer::Act(key), renew_at);
    }

    /// Subscribes again after a pause.
    fn retry_subscribe(&mut self, key: SubscriptionKey, reason: TroubleReason) {
        self.report_trouble(key, reason);
        let next_pause = self.next_pause(key);
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        self.routes.remove(&subscription.route);
        subscription.phase = Phase::Waiting;
        subscription.manager = None;
        self.timers.set(Timer::Act(key), self.now + next_pause);
    }

    /// The source has ended the subscription: reports it and subscribes again, the first time
    /// without a pause.
    pub(super) fn on_source_end(&mut self, key: SubscriptionKey, reason: EndReason) {
        let immediately = matches!(reason, EndReason::Forgotten | EndReason::Expired);
        self.event(SinkEvent::Ended { key, reason });
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return;
        };
        let phase = std::mem::replace(&mut subscription.phase, Phase::Waiting);
        subscription.manager = None;
        let first = subscription.failures == 0;
        self.routes.remove(&subscription.route);
        self.abandon_request(phase);
        if immediately && first {
            return self.subscribe(key);
        }
        let next_pause = self.next_pause(key);
        self.timers.set(Timer::Act(key), self.now + next_pause);
    }

    /// The next pause of a failing subscription: doubled each time, varied by a quarter.
    fn next_pause(&mut self, key: SubscriptionKey) -> Duration {
        let share = self.ids.fraction();
        let Some(subscription) = self.subscriptions.get_mut(&key) else {
            return self.config.backoff_max;
        };
        let doublings = subscription.failures.min(16);
        subscription.failures = subscription.failures.saturating_add(1);
        let next_pause = self.config.backoff_first.saturating_mul(1 << doublings);
        let next_pause = next_pause.min(self.config.backoff_max);
        next_pause.mul_f64(0.75 + share / 2.0)
    }
}

/// Parses an answer.
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
        return Err(TroubleReason::Unusable("answer has no body".into()));
    };
    let version = envelope.addressing.version;
    read(version, body).map_err(|fault| TroubleReason::Unusable(fault.to_string()))
}
