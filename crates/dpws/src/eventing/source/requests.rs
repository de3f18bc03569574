//! Subscribe, Renew, GetStatus and Unsubscribe.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_identity::Host;
use chappe_machine::Instant;
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Str};

use super::spreading::OnTree;
use super::{
    EventSource, Filter, Request, SourceEvent, SourceRefusal, Subscription, SubscriptionId, Timer,
};
use crate::eventing::message::{
    DELIVERY_MODE_PUSH, Expiration, Lease, Subscribe, SubscribeResponse, action, name,
};
use crate::eventing::{EventingFault, ManagerStyle};
use crate::exchange;

/// A rejected request with its fault.
struct Rejected {
    reason: SourceRefusal,
    fault: EventingFault,
    detail: String,
}

impl Rejected {
    fn new(reason: SourceRefusal, fault: EventingFault) -> Self {
        Self {
            reason,
            detail: fault.to_string(),
            fault,
        }
    }
}

/// Defects of the message itself.
impl From<EventingFault> for Rejected {
    fn from(fault: EventingFault) -> Self {
        let reason = match fault {
            EventingFault::InvalidExpirationTime => SourceRefusal::Expiration,
            _ => SourceRefusal::Malformed,
        };
        Self::new(reason, fault)
    }
}

impl EventSource {
    pub(super) fn request(&mut self, request: &Request) {
        let requested = &request.envelope.addressing.action;
        let version = request.envelope.addressing.version;
        let result = match &**requested {
            action::SUBSCRIBE => self.subscribe(request),
            action::RENEW => self.renew(request),
            action::GET_STATUS => self.get_status(request),
            action::UNSUBSCRIBE => self.unsubscribe(request),
            _ => {
                let fault = exchange::action_not_supported(version, requested);
                let detail = fault.reason.clone().into_owned();
                self.refuse(request.peer, SourceRefusal::Action, detail);
                let urn = self.ids.urn();
                self.respond(request, exchange::fault(&request.envelope, &fault, urn));
                return;
            }
        };
        match result {
            Ok(envelope) => self.respond(request, envelope),
            Err(rejected) => {
                self.refuse(request.peer, rejected.reason, rejected.detail);
                let fault = rejected.fault.to_fault(version);
                let urn = self.ids.urn();
                self.respond(request, exchange::fault(&request.envelope, &fault, urn));
            }
        }
    }

    fn refuse(&mut self, peer: SocketAddr, reason: SourceRefusal, detail: String) {
        *self.refusals.entry(reason).or_default() += 1;
        self.event(SourceEvent::Refused {
            peer,
            reason,
            detail,
        });
    }

    fn answer(
        &mut self,
        request: &Request,
        action: &'static str,
        body: Option<Element>,
    ) -> Envelope {
        let urn = self.ids.urn();
        let mut envelope = exchange::reply(&request.envelope, action, urn);
        envelope.body.extend(body);
        envelope
    }

    fn subscribe(&mut self, request: &Request) -> Result<Envelope, Rejected> {
        let response = self.admit(request, None)?;
        let body = response.to_element(request.envelope.addressing.version);
        Ok(self.answer(request, action::SUBSCRIBE_RESPONSE, Some(body)))
    }

    /// Admits a subscription of an earlier run. What is refused now is reported.
    pub(super) fn restore(&mut self, id: SubscriptionId, request: &Request, lease: Duration) {
        if let Err(rejected) = self.admit(request, Some((id, lease))) {
            self.refuse(request.peer, rejected.reason, rejected.detail);
        }
    }

    /// Admits a subscription, one of an earlier run with the identifier and the lease that it has.
    fn admit(
        &mut self,
        request: &Request,
        restored: Option<(SubscriptionId, Duration)>,
    ) -> Result<SubscribeResponse, Rejected> {
        let version = request.envelope.addressing.version;
        let host = Host::from_address(request.peer.ip());
        let displaced = self.check_capacity(host)?;
        let requested = Subscribe::from_element(version, body_of(&request.envelope)?)?;
        let (actions, filter) = self.select_actions(request, &requested)?;
        let mode = requested.mode.as_deref().unwrap_or(DELIVERY_MODE_PUSH);
        if mode != DELIVERY_MODE_PUSH {
            let fault = EventingFault::DeliveryModeRequestedUnavailable;
            return Err(Rejected::new(SourceRefusal::DeliveryMode, fault));
        }
        let Some(notify_to) = requested.notify_to else {
            return Err(EventingFault::InvalidMessage("Delivery has no NotifyTo".into()).into());
        };
        for (field, to) in [
            ("NotifyTo", Some(&notify_to)),
            ("EndTo", requested.end_to.as_ref()),
        ] {
            let Some(to) = to else { continue };
            (self.check)(&to.address, request.peer).map_err(|reason| {
                let text = format!("{field} address {} is refused: {reason}", to.address);
                let fault = EventingFault::DestinationUnreachable(text.into());
                Rejected::new(SourceRefusal::Address, fault)
            })?;
            if let Some(parameter) = exchange::reserved_parameter(to) {
                let name = &parameter.name;
                let text = format!("{field} has the reference parameter {name}, which is reserved");
                let fault = EventingFault::InvalidAddressingHeader(text.into());
                return Err(Rejected::new(SourceRefusal::Address, fault));
            }
        }
        let (id, lease) = match restored {
            None => (SubscriptionId(self.ids.next()), requested.expires),
            Some((id, lease)) => (id, Some(Expiration::After(lease))),
        };
        let (expires_at, expires) = self.grant(lease)?;
        // The request is valid, so it takes its place.
        if let Some(displaced) = displaced {
            let reason = "its place was given to a host with fewer subscriptions";
            self.cancel(displaced, reason.into());
        }
        let manager = self.manager_reference(&request.base, id);
        // The members of a tree get all events of an action.
        let offer = match filter.0 {
            None => self.tree_for(request, &requested.tree, id),
            Some(_) => None,
        };
        let response = SubscribeResponse {
            manager: manager.clone(),
            expires,
            tree: offer.as_ref().map(|(offer, _)| offer.clone()),
        };
        let on_tree = offer.map(|(_, sink)| OnTree::new(sink));
        let subscription = Subscription {
            host,
            order: self.orders,
            version,
            notify_to,
            end_to: requested.end_to,
            actions: actions.clone(),
            filter,
            manager,
            expires_at,
            by_date: matches!(expires, Expiration::At(_)),
            queue: Default::default(),
            in_flight: None,
            failures: 0,
            on_tree,
        };
        self.orders += 1;
        self.subscriptions.insert(id, subscription);
        self.timers.set(Timer::Expire(id), expires_at);
        self.event(SourceEvent::Subscribed {
            subscription: id,
            peer: request.peer,
            actions: actions.clone(),
        });
        if let (Some(on_tree), Some(action)) = (on_tree, actions.into_iter().next()) {
            self.prove_address(action, on_tree.sink.peer);
        }
        Ok(response)
    }

    /// Checks the limits of subscriptions; returns the one that must end for a new one of this host.
    fn check_capacity(&self, host: Host) -> Result<Option<SubscriptionId>, Rejected> {
        let refuse = |reason, text: &'static str| {
            let fault = EventingFault::EventSourceUnableToProcess(text.into());
            Err(Rejected::new(reason, fault))
        };
        if self.closing {
            return refuse(SourceRefusal::Stopping, "the device is shutting down");
        }
        let all = self.subscriptions.values();
        let own = all.filter(|known| known.host == host).count();
        if own >= self.config.subscriptions_per_peer_max {
            return refuse(
                SourceRefusal::PeerFull,
                "this address has reached its limit of subscriptions",
            );
        }
        if self.subscriptions.len() < self.config.subscriptions_max {
            return Ok(None);
        }
        match self.oldest_of_greediest(own) {
            Some(displaced) => Ok(Some(displaced)),
            None => refuse(SourceRefusal::Full, "its limit of subscriptions is reached"),
        }
    }

    /// The oldest subscription of the host with the most, unless a host with `own` and one more would
    /// have more than that host is left with. So two hosts never displace each other in turn.
    fn oldest_of_greediest(&self, own: usize) -> Option<SubscriptionId> {
        let mut hosts: BTreeMap<Host, usize> = BTreeMap::new();
        for known in self.subscriptions.values() {
            *hosts.entry(known.host).or_default() += 1;
        }
        let (greediest, most) = hosts.into_iter().max_by_key(|(_, count)| *count)?;
        if most <= own + 1 {
            return None;
        }
        let all = self.subscriptions.iter();
        let of_greediest = all.filter(|(_, known)| known.host == greediest);
        let oldest = of_greediest.min_by_key(|(_, known)| known.order);
        oldest.map(|(id, _)| *id)
    }

    /// The actions of a new subscription, which are the requested ones that the path offers, and its
    /// filter in another dialect, which all actions are subject to.
    fn select_actions(
        &self,
        request: &Request,
        requested: &Subscribe,
    ) -> Result<(Vec<Str>, Filter), Rejected> {
        let offer = self
            .config
            .offers
            .iter()
            .find(|offer| offer.path == request.path);
        let Some(offer) = offer.filter(|offer| !offer.actions.is_empty()) else {
            let text = "this path offers no events";
            let fault = EventingFault::EventSourceUnableToProcess(text.into());
            return Err(Rejected::new(SourceRefusal::Path, fault));
        };
        let Some(filter) = &requested.filter else {
            return Ok((offer.actions.clone(), Filter::default()));
        };
        if !filter.is_by_actions() {
            let filter = self.compile_filter(request, filter.dialect.as_deref())?;
            return Ok((offer.actions.clone(), filter));
        }
        if filter.actions.len() > self.config.filter_actions_max {
            let text = format!(
                "the filter has more than {} actions",
                self.config.filter_actions_max
            );
            let fault = EventingFault::EventSourceUnableToProcess(text.into());
            return Err(Rejected::new(SourceRefusal::FilterSize, fault));
        }
        let actions = offer.actions.iter().filter(|action| filter.matches(action));
        let actions: Vec<_> = actions.cloned().collect();
        if actions.is_empty() {
            let fault = EventingFault::FilterActionNotSupported;
            return Err(Rejected::new(SourceRefusal::FilterAction, fault));
        }
        Ok((actions, Filter::default()))
    }

    /// The filter of a Subscribe in a dialect of the application.
    fn compile_filter(&self, request: &Request, uri: Option<&str>) -> Result<Filter, Rejected> {
        let mut dialects = self.config.filters.iter();
        let dialect = dialects.find(|dialect| Some(dialect.uri()) == uri);
        let body = body_of(&request.envelope)?;
        let (Some(dialect), Some(element)) = (dialect, body.child(&name("Filter"))) else {
            let fault = EventingFault::FilteringRequestedUnavailable;
            return Err(Rejected::new(SourceRefusal::FilterDialect, fault));
        };
        let mut element = element.clone();
        // The nearest declaration of a prefix counts.
        element.namespaces.extend(body.namespaces.iter().cloned());
        let compiled = dialect.compile(&element).map_err(|defect| {
            let text = format!("the filter is invalid: {defect}");
            Rejected::new(
                SourceRefusal::Malformed,
                EventingFault::InvalidMessage(text.into()),
            )
        })?;
        Ok(Filter(Some(compiled)))
    }

    /// The end of the granted lease, and its expiration in the requested type.
    fn grant(&self, requested: Option<Expiration>) -> Result<(Instant, Expiration), Rejected> {
        let limit = |lease: Duration| lease.min(self.config.lease_max);
        match requested {
            None => {
                let lease = limit(self.config.lease_default);
                Ok((self.now + lease, Expiration::After(lease)))
            }
            Some(Expiration::After(lease)) => {
                let lease = limit(lease);
                Ok((self.now + lease, Expiration::After(lease)))
            }
            Some(Expiration::At(date)) => {
                let Some(origin) = self.config.utc_at_origin_ns else {
                    let fault = EventingFault::UnsupportedExpirationType;
                    return Err(Rejected::new(SourceRefusal::ExpirationType, fault));
                };
                let now = i128::from(origin) + i128::from(self.now.as_nanos());
                let lease = u64::try_from(i128::from(date) - now).unwrap_or_default();
                if lease == 0 {
                    let fault = EventingFault::InvalidExpirationTime;
                    return Err(Rejected::new(SourceRefusal::Expiration, fault));
                }
                let end = self.now + limit(Duration::from_nanos(lease));
                Ok((end, self.date(end).unwrap_or(Expiration::At(date))))
            }
        }
    }

    fn date(&self, at: Instant) -> Option<Expiration> {
        let nanoseconds = i64::try_from(at.as_nanos()).ok()?;
        let date = self.config.utc_at_origin_ns?.checked_add(nanoseconds)?;
        Some(Expiration::At(date))
    }

    fn manager_reference(&self, base: &str, id: SubscriptionId) -> EndpointReference {
        let path = &self.config.manager_path;
        match self.config.manager_style {
            ManagerStyle::Path => EndpointReference::new(format!("{base}{path}/{}", id.path())),
            ManagerStyle::ReferenceParameter => {
                let identifier = Element::new(name("Identifier")).with_text(id.path());
                EndpointReference {
                    address: format!("{base}{path}").into(),
                    reference_parameters: vec![identifier],
                }
            }
        }
    }

    /// The subscription of a request to the manager, by path or by header.
    fn find_subscription(&self, request: &Request) -> Option<SubscriptionId> {
        let rest = request.path.strip_prefix(&*self.config.manager_path);
        let by_path = rest.and_then(|rest| rest.strip_prefix('/'));
        let header = request.envelope.header(&name("Identifier"));
        let header = header.map(|header| header.text().trim().to_owned());
        let text = by_path.map(str::to_owned).or(header)?;
        let id = SubscriptionId::from_path(&text)?;
        self.subscriptions.contains_key(&id).then_some(id)
    }

    fn renew(&mut self, request: &Request) -> Result<Envelope, Rejected> {
        let requested = Lease::Renew.from_element(body_of(&request.envelope)?)?;
        let Some(id) = self.find_subscription(request) else {
            let fault = EventingFault::UnableToRenew("the subscription does not exist".into());
            return Err(Rejected::new(SourceRefusal::Unknown, fault));
        };
        let (expires_at, expires) = self.grant(requested)?;
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            subscription.expires_at = expires_at;
            subscription.by_date = matches!(expires, Expiration::At(_));
        }
        self.timers.set(Timer::Expire(id), expires_at);
        self.event(SourceEvent::Renewed { subscription: id });
        let body = Lease::RenewResponse.to_element(Some(expires));
        Ok(self.answer(request, action::RENEW_RESPONSE, Some(body)))
    }

    fn get_status(&mut self, request: &Request) -> Result<Envelope, Rejected> {
        Lease::GetStatus.from_element(body_of(&request.envelope)?)?;
        let found = self
            .find_subscription(request)
            .and_then(|id| self.subscriptions.get(&id));
        let Some(subscription) = found else {
            return Err(unknown_subscription());
        };
        let rest = Expiration::After(subscription.rest(self.now));
        let date = self
            .date(subscription.expires_at)
            .filter(|_| subscription.by_date);
        let body = Lease::GetStatusResponse.to_element(Some(date.unwrap_or(rest)));
        Ok(self.answer(request, action::GET_STATUS_RESPONSE, Some(body)))
    }

    fn unsubscribe(&mut self, request: &Request) -> Result<Envelope, Rejected> {
        Lease::Unsubscribe.from_element(body_of(&request.envelope)?)?;
        let Some(subscription) = self.find_subscription(request) else {
            return Err(unknown_subscription());
        };
        self.end(subscription, None);
        self.event(SourceEvent::Unsubscribed { subscription });
        Ok(self.answer(request, action::UNSUBSCRIBE_RESPONSE, None))
    }
}

fn unknown_subscription() -> Rejected {
    let fault = EventingFault::InvalidMessage("the subscription does not exist".into());
    Rejected::new(SourceRefusal::Unknown, fault)
}

fn body_of(envelope: &Envelope) -> Result<&Element, Rejected> {
    let missing = || EventingFault::InvalidMessage("the body is empty".into());
    Ok(envelope.body().ok_or_else(missing)?)
}
