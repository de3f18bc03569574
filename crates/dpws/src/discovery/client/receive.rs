//! Handles arriving messages.

use std::net::SocketAddr;

use chappe_machine::Instant;
use chappe_soap::udp::DISCOVERY_PORT;
use chappe_xml::Str;

use super::super::intake::{self, Dropped};
use super::super::message::{AppSequence, Content, Message};
use super::super::policy;
use super::super::table::{Full, differs, fill_absent_fields};
use super::super::{DropReason, Inbound, Target};
use super::{Client, Event, Known, PROXIES_MAX, PROXY_REPORTS_PER_S, Subject, Via};
use crate::Dialect;

/// The source of a message, and its kind.
#[derive(Clone, Copy)]
struct Origin<'m> {
    now: Instant,
    from: SocketAddr,
    interface: u32,
    dialect: Dialect,
    via: Via,
    sequence: Option<&'m AppSequence>,
}

impl Client {
    pub(super) fn receive(&mut self, now: Instant, datagram: &Inbound) -> Result<(), Dropped> {
        if !self.message_rate.take(now, datagram.from.ip()) {
            let detail = format!(
                "more than {} messages per second",
                self.config.messages_per_s
            );
            return Err(Dropped::new(DropReason::RateLimited, detail));
        }
        let message = intake::read(datagram)?.message;
        self.intake.check_duplicate(&message)?;
        let result = self.on_message(now, datagram, &message);
        self.intake.arrived(&message, &result);
        result
    }

    fn on_message(
        &mut self,
        now: Instant,
        datagram: &Inbound,
        message: &Message,
    ) -> Result<(), Dropped> {
        if !self.config.dialects.contains(&message.dialect) {
            let detail = message.dialect.discovery();
            return Err(Dropped::new(DropReason::OtherDialect, detail));
        }
        let origin = |via| Origin {
            now,
            from: datagram.from,
            interface: datagram.interface,
            dialect: message.dialect,
            via,
            sequence: message.sequence.as_ref(),
        };
        match &message.content {
            Content::Hello(target) => self.on_hello(origin(Via::Hello), target),
            Content::Bye(target) => self.on_bye(origin(Via::Hello), target),
            Content::ProbeMatches(targets) => {
                let request = self.request(message)?;
                self.on_probe_matches(origin(Via::Probe), request, targets)
            }
            Content::ResolveMatches(target) => {
                let request = self.request(message)?;
                self.on_resolve_matches(origin(Via::Resolve), request, target.as_ref())
            }
            Content::Probe(_) | Content::Resolve(_) => Err(Dropped::new(
                DropReason::OtherRole,
                message.content.action(),
            )),
        }
    }

    /// The pending request that a message answers.
    fn request(&self, message: &Message) -> Result<u64, Dropped> {
        let id = message.relates_to.as_ref();
        id.and_then(|id| self.by_message.get(id))
            .copied()
            .ok_or_else(|| {
                let detail = "no pending request has this RelatesTo";
                Dropped::new(DropReason::Unrelated, detail)
            })
    }

    fn on_hello(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        if is_proxy(origin.dialect, target) {
            return self.on_proxy(origin, target);
        }
        self.check_sequence(origin, target)?;
        if self.table.get(&target.endpoint.address).is_none() {
            return self.on_new_target(origin, target.clone());
        }
        let target = self.permit_xaddrs(origin, target.clone())?;
        let known = self.table.get(&target.endpoint.address);
        let Some(differs) = known.map(|known| differs(&known.target, &target)) else {
            return Ok(());
        };
        if differs {
            self.verify(origin, &target.endpoint.address)?;
        }
        self.event(Event::Hello {
            target,
            differs,
            from: origin.from,
        });
        Ok(())
    }

    fn on_bye(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        if self.on_bye_of_proxy(target) {
            return Ok(());
        }
        self.check_sequence(origin, target)?;
        let endpoint = target.endpoint.address.clone();
        let Some(known) = self.table.get(&endpoint) else {
            let detail = endpoint.chars().take(128).collect::<String>();
            return Err(Dropped::new(DropReason::OtherEndpoint, detail));
        };
        let same_source = known.from.ip() == origin.from.ip();
        self.verify(origin, &endpoint)?;
        self.event(Event::ByeHint {
            endpoint,
            from: origin.from,
            same_source,
        });
        Ok(())
    }

    /// Drops messages older than the last one of the same source.
    fn check_sequence(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        let Some(sequence) = origin.sequence else {
            return Ok(());
        };
        let answers_request = origin.via != Via::Hello;
        let endpoint = &target.endpoint.address;
        match self
            .table
            .follow(endpoint, origin.from.ip(), sequence, answers_request)
        {
            true => Ok(()),
            false => {
                let (instance, number) = (sequence.instance_id, sequence.message_number);
                let detail = format!("instance {instance}, message {number} of {endpoint:.128}");
                Err(Dropped::new(DropReason::Stale, detail))
            }
        }
    }

    /// Sends a Resolve for a known target service to the address in the table and, as several
    /// processes may share that port, to the group of its network.
    fn verify(&mut self, origin: Origin<'_>, endpoint: &Str) -> Result<(), Dropped> {
        let Some(known) = self.table.get(endpoint) else {
            return Ok(());
        };
        let (dialect, interface) = (known.dialect, known.interface);
        let mut host = known.from;
        host.set_port(DISCOVERY_PORT);
        self.check_resolve_rate(origin)?;
        let to = self.groups(Some(interface));
        let unicast = Some((interface, host));
        self.resolve(
            origin.now,
            endpoint.clone(),
            None,
            Some(dialect),
            &to,
            unicast,
        );
        Ok(())
    }

    fn check_resolve_rate(&mut self, origin: Origin<'_>) -> Result<(), Dropped> {
        // All addresses share a rate, so that forged messages cannot make this host flood the
        // network.
        if self.resolve_rate.take(origin.now, origin.from.ip()) {
            return Ok(());
        }
        let detail = format!(
            "more than {} Resolves per second",
            self.config.resolves_per_s
        );
        Err(Dropped::new(DropReason::RateLimited, detail))
    }

    fn on_probe_matches(
        &mut self,
        origin: Origin<'_>,
        request: u64,
        targets: &[Target],
    ) -> Result<(), Dropped> {
        let mut failure = None;
        let mut used = targets.is_empty();
        for target in targets {
            match self.on_probe_match(origin, request, target) {
                Ok(()) => used = true,
                Err(dropped) => failure = failure.or(Some(dropped)),
            }
        }
        match failure {
            Some(dropped) if !used => Err(dropped),
            _ => Ok(()),
        }
    }

    fn on_probe_match(
        &mut self,
        origin: Origin<'_>,
        request: u64,
        target: &Target,
    ) -> Result<(), Dropped> {
        if is_proxy(origin.dialect, target) {
            return self.on_proxy(origin, target);
        }
        let endpoint = &target.endpoint.address;
        let sequence_check = self.check_sequence(origin, target);
        // An older message still matches this Probe, but does not update the table.
        let outcome = match sequence_check {
            Ok(()) if self.table.get(endpoint).is_none() => {
                self.on_new_target(origin, target.clone())
            }
            Ok(()) => self.update_known(origin, target.clone()).map(|_| ()),
            stale => stale,
        };
        let stale = matches!(&outcome, Err(dropped) if dropped.reason == DropReason::Stale);
        if outcome.is_ok() || stale {
            self.record_match(request, endpoint);
        }
        outcome
    }

    fn record_match(&mut self, request: u64, endpoint: &Str) {
        let Some(request) = self.requests.get_mut(&request) else {
            return;
        };
        if let Subject::Probe { id, matched } = &mut request.subject
            && matched.len() < self.config.table_capacity
            && matched.insert(endpoint.clone())
        {
            let (id, endpoint) = (*id, endpoint.clone());
            self.event(Event::Match { id, endpoint });
        }
    }

    fn on_resolve_matches(
        &mut self,
        origin: Origin<'_>,
        request: u64,
        target: Option<&Target>,
    ) -> Result<(), Dropped> {
        let Some(target) = target else {
            return Ok(());
        };
        let subject = self.requests.get(&request).map(|request| &request.subject);
        let Some(Subject::Resolve { endpoint, partial }) = subject else {
            return Err(Dropped::new(
                DropReason::Invalid,
                "ResolveMatches in reply to a Probe",
            ));
        };
        if *endpoint != target.endpoint.address {
            return Err(Dropped::new(
                DropReason::OtherEndpoint,
                "ResolveMatch for another endpoint",
            ));
        }
        if target.xaddrs.is_empty() {
            return Err(Dropped::new(
                DropReason::Invalid,
                "ResolveMatch without XAddrs",
            ));
        }
        let mut target = target.clone();
        if let Some(partial) = partial {
            for (list, earlier) in [(&mut target.scopes, &partial.scopes)] {
                if list.is_empty() {
                    list.clone_from(earlier);
                }
            }
            if target.types.is_empty() {
                target.types.clone_from(&partial.types);
            }
        }
        self.check_sequence(origin, &target)?;
        let settled = if self.table.get(&target.endpoint.address).is_none() {
            self.on_new_target(origin, target)?;
            true
        } else {
            self.update_known(origin, target)?
        };
        if settled {
            self.close(request, true);
        }
        Ok(())
    }

    /// Handles a target service that is not in the table.
    fn on_new_target(&mut self, origin: Origin<'_>, target: Target) -> Result<(), Dropped> {
        let target = self.permit_xaddrs(origin, target)?;
        if target.xaddrs.is_empty() {
            self.check_resolve_rate(origin)?;
            let endpoint = target.endpoint.address.clone();
            let to = self.groups(Some(origin.interface));
            self.resolve(
                origin.now,
                endpoint,
                Some(target),
                Some(origin.dialect),
                &to,
                None,
            );
            return Ok(());
        }
        self.insert(origin, target.clone())?;
        self.event(Event::Found {
            target,
            dialect: origin.dialect,
            via: origin.via,
            from: origin.from,
            interface: origin.interface,
        });
        Ok(())
    }

    fn insert(&mut self, origin: Origin<'_>, target: Target) -> Result<(), Dropped> {
        let endpoint = target.endpoint.address.clone();
        let known = Known::new(target, origin.dialect, origin.from, origin.interface);
        self.table.insert(known).map_err(|full| match full {
            Full::Table => {
                let detail = format!("all {} entries are confirmed", self.table.len());
                Dropped::new(DropReason::TableFull, detail)
            }
            Full::Host => {
                let detail = format!(
                    "{} target services from this source",
                    self.config.source_max
                );
                Dropped::new(DropReason::SourceFull, detail)
            }
        })?;
        if let Some(sequence) = origin.sequence {
            let ip = origin.from.ip();
            self.table.follow(&endpoint, ip, sequence, true);
        }
        Ok(())
    }

    /// Updates a known target service from an answer. False if the answer does not settle its
    /// state.
    fn update_known(&mut self, origin: Origin<'_>, target: Target) -> Result<bool, Dropped> {
        let mut target = self.permit_xaddrs(origin, target)?;
        let Some(known) = self.table.get(&target.endpoint.address) else {
            return Ok(true);
        };
        // A device of both dialects is used in the newer one.
        if !differs(&known.target, &target) && known.dialect >= origin.dialect {
            return Ok(true);
        }
        if known.confirmed && known.from.ip() != origin.from.ip() {
            let from = origin.from;
            self.event(Event::MoveHint { target, from });
            return Ok(false);
        }
        fill_absent_fields(&mut target, &known.target);
        self.insert(origin, target.clone())?;
        self.event(Event::Changed {
            target,
            dialect: origin.dialect,
            via: origin.via,
            from: origin.from,
        });
        Ok(true)
    }

    /// Checks the description's size and removes refused transport addresses.
    fn permit_xaddrs(&mut self, origin: Origin<'_>, target: Target) -> Result<Target, Dropped> {
        let most = self.config.description_bytes;
        let permitted = policy::permit(&*self.policy, most, target, origin.from)?;
        let Some((xaddr, reason)) = permitted.refused else {
            return Ok(permitted.target);
        };
        let reported = self
            .refusal_reports
            .pass(origin.now, DropReason::AddressRefused);
        if reported.is_some() {
            let endpoint = permitted.target.endpoint.address.clone();
            self.event(Event::AddressRefused {
                endpoint,
                xaddr,
                reason,
            });
        }
        Ok(permitted.target)
    }

    /// Reports a discovery proxy, once for each list of addresses. It is no device, and nothing is believed of it:
    /// the application decides whether to ask it.
    fn on_proxy(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        let target = self.permit_xaddrs(origin, target.clone())?;
        let endpoint = &target.endpoint.address;
        if self.proxies.get(endpoint) == Some(&target.xaddrs) {
            return Ok(());
        }
        if self.proxies.len() >= PROXIES_MAX && !self.proxies.contains_key(endpoint) {
            let detail = format!("{PROXIES_MAX} discovery proxies are known");
            return Err(Dropped::new(DropReason::DiscoveryProxy, detail));
        }
        if !self.proxy_rate.take(origin.now, origin.from.ip()) {
            let detail = format!("more than {PROXY_REPORTS_PER_S} discovery proxies per second");
            return Err(Dropped::new(DropReason::RateLimited, detail));
        }
        self.proxies.insert(endpoint.clone(), target.xaddrs.clone());
        self.event(Event::Proxy {
            target,
            dialect: origin.dialect,
            from: origin.from,
        });
        Ok(())
    }

    /// Forgets a discovery proxy that left, so that it is reported when it is back. A forged Bye costs
    /// one more event, at most as many as the rate of reports allows.
    fn on_bye_of_proxy(&mut self, target: &Target) -> bool {
        self.proxies.remove(&target.endpoint.address).is_some()
    }
}

fn is_proxy(dialect: Dialect, target: &Target) -> bool {
    target.types.contains(&dialect.proxy_type())
}
