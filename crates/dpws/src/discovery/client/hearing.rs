//! What a client makes of the messages that arrive.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use chappe_machine::Instant;
use chappe_soap::udp::DISCOVERY_PORT;
use chappe_xml::{Name, Str};

use super::super::intake::{self, Dropped};
use super::super::message::{AppSequence, Content, Message};
use super::super::table::{Full, size};
use super::super::{DropReason, Inbound, Target};
use super::{Client, Event, Known, Subject, Via};
use crate::Dialect;

/// Where a message came from and what it was.
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
        if !self.messages.take(now, datagram.from.ip()) {
            let detail = format!("{} messages a second", self.config.messages_per_s);
            return Err(Dropped::new(DropReason::RateLimited, detail));
        }
        let message = intake::read(datagram)?;
        self.books.first_time(&message)?;
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
            Content::Hello(target) => self.hello(origin(Via::Hello), target),
            Content::Bye(target) => self.bye(origin(Via::Hello), target),
            Content::ProbeMatches(targets) => {
                let question = self.question(&message)?;
                self.probe_matches(origin(Via::Probe), question, targets)
            }
            Content::ResolveMatches(target) => {
                let question = self.question(&message)?;
                self.resolve_matches(origin(Via::Resolve), question, target.as_ref())
            }
            Content::Probe(_) | Content::Resolve(_) => Err(Dropped::new(
                DropReason::OtherRole,
                message.content.action(),
            )),
        }
    }

    /// The open question that a message answers.
    fn question(&self, message: &Message) -> Result<u64, Dropped> {
        let id = message.relates_to.as_ref();
        id.and_then(|id| self.by_message.get(id))
            .copied()
            .ok_or_else(|| {
                let detail = "it answers no question that is open";
                Dropped::new(DropReason::Unrelated, detail)
            })
    }

    fn hello(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        refuse_proxy(origin.dialect, target)?;
        self.follow(origin, target)?;
        if self.table.get(&target.endpoint.address).is_none() {
            return self.meet(origin, target.clone());
        }
        let target = self.permitted(origin, target.clone())?;
        let known = self.table.get(&target.endpoint.address);
        let Some(differs) = known.map(|known| differs(&known.target, &target)) else {
            return Ok(());
        };
        if differs {
            self.confirm(origin, &target.endpoint.address)?;
        }
        self.event(Event::Hello {
            target,
            differs,
            from: origin.from,
        });
        Ok(())
    }

    fn bye(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        self.follow(origin, target)?;
        let endpoint = target.endpoint.address.clone();
        let Some(known) = self.table.get(&endpoint) else {
            let detail = endpoint.chars().take(128).collect::<String>();
            return Err(Dropped::new(DropReason::OtherEndpoint, detail));
        };
        let same_source = known.from.ip() == origin.from.ip();
        self.confirm(origin, &endpoint)?;
        self.event(Event::ByeHint {
            endpoint,
            from: origin.from,
            same_source,
        });
        Ok(())
    }

    /// Drops what the same source said after something newer.
    fn follow(&mut self, origin: Origin<'_>, target: &Target) -> Result<(), Dropped> {
        let Some(sequence) = origin.sequence else {
            return Ok(());
        };
        let fresh = origin.via != Via::Hello;
        let endpoint = &target.endpoint.address;
        match self
            .table
            .follow(endpoint, origin.from.ip(), sequence, fresh)
        {
            true => Ok(()),
            false => {
                let (instance, number) = (sequence.instance_id, sequence.message_number);
                let detail = format!("instance {instance}, message {number} of {endpoint:.128}");
                Err(Dropped::new(DropReason::Stale, detail))
            }
        }
    }

    /// Asks a known target service whether it still is what it was: at the address it was known
    /// from, and, since that port may be shared by several processes there, on its network.
    fn confirm(&mut self, origin: Origin<'_>, endpoint: &Str) -> Result<(), Dropped> {
        let Some(known) = self.table.get(endpoint) else {
            return Ok(());
        };
        let (dialect, interface) = (known.dialect, known.interface);
        let mut host = known.from;
        host.set_port(DISCOVERY_PORT);
        self.may_resolve(origin)?;
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

    fn may_resolve(&mut self, origin: Origin<'_>) -> Result<(), Dropped> {
        // All addresses share a rate: what strangers say must not make this host shout.
        if self.resolves.take(origin.now, origin.from.ip()) {
            return Ok(());
        }
        let detail = format!("{} Resolves a second", self.config.resolves_per_s);
        Err(Dropped::new(DropReason::RateLimited, detail))
    }

    fn probe_matches(
        &mut self,
        origin: Origin<'_>,
        question: u64,
        targets: &[Target],
    ) -> Result<(), Dropped> {
        let mut failure = None;
        let mut used = targets.is_empty();
        for target in targets {
            match self.probe_match(origin, question, target) {
                Ok(()) => used = true,
                Err(dropped) => failure = failure.or(Some(dropped)),
            }
        }
        match failure {
            Some(dropped) if !used => Err(dropped),
            _ => Ok(()),
        }
    }

    fn probe_match(
        &mut self,
        origin: Origin<'_>,
        question: u64,
        target: &Target,
    ) -> Result<(), Dropped> {
        refuse_proxy(origin.dialect, target)?;
        let endpoint = &target.endpoint.address;
        let followed = self.follow(origin, target);
        // An older message still matches this Probe, but says nothing new.
        let told = match followed {
            Ok(()) if self.table.get(endpoint).is_none() => self.meet(origin, target.clone()),
            Ok(()) => self.answer_of_known(origin, target.clone()).map(|_| ()),
            stale => stale,
        };
        let stale = matches!(&told, Err(dropped) if dropped.reason == DropReason::Stale);
        if told.is_ok() || stale {
            self.matched(question, endpoint);
        }
        told
    }

    fn matched(&mut self, question: u64, endpoint: &Str) {
        let Some(question) = self.questions.get_mut(&question) else {
            return;
        };
        if let Subject::Probe { id, matched } = &mut question.subject
            && matched.len() < self.config.table_capacity
            && matched.insert(endpoint.clone())
        {
            let (id, endpoint) = (*id, endpoint.clone());
            self.event(Event::Match { id, endpoint });
        }
    }

    fn resolve_matches(
        &mut self,
        origin: Origin<'_>,
        question: u64,
        target: Option<&Target>,
    ) -> Result<(), Dropped> {
        let Some(target) = target else {
            return Ok(());
        };
        let subject = self
            .questions
            .get(&question)
            .map(|question| &question.subject);
        let Some(Subject::Resolve { endpoint, partial }) = subject else {
            return Err(Dropped::new(
                DropReason::Invalid,
                "a ResolveMatch to a Probe",
            ));
        };
        if *endpoint != target.endpoint.address {
            return Err(Dropped::new(
                DropReason::OtherEndpoint,
                "not what was asked for",
            ));
        }
        if target.xaddrs.is_empty() {
            return Err(Dropped::new(
                DropReason::Invalid,
                "a ResolveMatch without XAddrs",
            ));
        }
        let mut target = target.clone();
        if let Some(partial) = partial {
            for (list, before) in [(&mut target.scopes, &partial.scopes)] {
                if list.is_empty() {
                    list.clone_from(before);
                }
            }
            if target.types.is_empty() {
                target.types.clone_from(&partial.types);
            }
        }
        self.follow(origin, &target)?;
        let settled = if self.table.get(&target.endpoint.address).is_none() {
            self.meet(origin, target)?;
            true
        } else {
            self.answer_of_known(origin, target)?
        };
        if settled {
            self.close(question, true);
        }
        Ok(())
    }

    /// A target service that is not in the table.
    fn meet(&mut self, origin: Origin<'_>, target: Target) -> Result<(), Dropped> {
        let target = self.permitted(origin, target)?;
        if target.xaddrs.is_empty() {
            self.may_resolve(origin)?;
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
        self.remember(origin, target.clone())?;
        self.event(Event::Found {
            target,
            dialect: origin.dialect,
            via: origin.via,
            from: origin.from,
            interface: origin.interface,
        });
        Ok(())
    }

    fn remember(&mut self, origin: Origin<'_>, target: Target) -> Result<(), Dropped> {
        let endpoint = target.endpoint.address.clone();
        let known = Known::new(target, origin.dialect, origin.from, origin.interface);
        self.table.insert(known).map_err(|full| match full {
            Full::Table => {
                let detail = format!("{} confirmed target services", self.table.len());
                Dropped::new(DropReason::TableFull, detail)
            }
            Full::Host => {
                let detail = format!("{} target services of it", self.config.source_max);
                Dropped::new(DropReason::SourceFull, detail)
            }
        })?;
        if let Some(sequence) = origin.sequence {
            let ip = origin.from.ip();
            self.table.follow(&endpoint, ip, sequence, true);
        }
        Ok(())
    }

    /// A known target service answers a question; says whether that settles what is known of it.
    fn answer_of_known(&mut self, origin: Origin<'_>, target: Target) -> Result<bool, Dropped> {
        let mut target = self.permitted(origin, target)?;
        let Some(known) = self.table.get(&target.endpoint.address) else {
            return Ok(true);
        };
        if !differs(&known.target, &target) {
            return Ok(true);
        }
        if known.confirmed && known.from.ip() != origin.from.ip() {
            let from = origin.from;
            self.event(Event::MoveHint { target, from });
            return Ok(false);
        }
        inherit(&mut target, &known.target);
        self.remember(origin, target.clone())?;
        self.event(Event::Changed {
            target,
            dialect: origin.dialect,
            via: origin.via,
            from: origin.from,
        });
        Ok(true)
    }

    /// The description with only those transport addresses that may be contacted, those of the
    /// sender's own host first.
    fn permitted(&mut self, origin: Origin<'_>, mut target: Target) -> Result<Target, Dropped> {
        let (bytes, most) = (size(&target), self.config.description_bytes);
        if bytes > most {
            let detail = format!("it describes itself in {bytes} bytes, at most {most}");
            return Err(Dropped::new(DropReason::TooLarge, detail));
        }
        let given = std::mem::take(&mut target.xaddrs);
        let mut refused = None;
        for xaddr in given {
            match self.judge(&xaddr, origin.from) {
                Ok(()) => target.xaddrs.push(xaddr),
                Err(reason) => refused = refused.or(Some((xaddr, reason))),
            }
        }
        let host = host_of(origin.from.ip());
        target.xaddrs.sort_by_key(|xaddr| !is_at(xaddr, &host));
        let Some((xaddr, reason)) = refused else {
            return Ok(target);
        };
        if target.xaddrs.is_empty() {
            let detail = format!("{xaddr:.256}: {reason}");
            return Err(Dropped::new(DropReason::AddressRefused, detail));
        }
        let reported = self.refusals.pass(origin.now, DropReason::AddressRefused);
        if reported.is_some() {
            let endpoint = target.endpoint.address.clone();
            self.event(Event::AddressRefused {
                endpoint,
                xaddr,
                reason,
            });
        }
        Ok(target)
    }

    fn judge(&self, xaddr: &str, from: SocketAddr) -> Result<(), String> {
        let scheme = xaddr.split(':').next().unwrap_or_default();
        let is = |known: &&str| scheme.eq_ignore_ascii_case(known);
        match ["http", "https", "udp"].iter().find(|known| is(known)) {
            // A target service that is no device may be spoken to otherwise; where, is judged alike.
            Some(&"udp") => self.policy.judge(&format!("http{}", &xaddr[3..]), from),
            Some(_) => self.policy.judge(xaddr, from),
            None => Err("neither http nor https nor udp".to_owned()),
        }
    }
}

/// An address as it stands in a URI.
fn host_of(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(v4) => format!("://{v4}"),
        IpAddr::V6(v6) => format!("://[{v6}"),
    }
}

/// Whether a transport address is of this host.
fn is_at(xaddr: &str, host: &str) -> bool {
    xaddr
        .split_once(host)
        .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with([':', '/', ']', '%']))
}

/// Whether `said` contradicts `known`; what a message leaves out contradicts nothing.
fn differs(known: &Target, said: &Target) -> bool {
    let uris = |known: &[Str], said: &[Str]| {
        let sorted = |list: &[Str]| list.iter().cloned().collect::<BTreeSet<_>>();
        !said.is_empty() && sorted(known) != sorted(said)
    };
    let types = |list: &[Name]| list.iter().cloned().collect::<BTreeSet<_>>();
    (said.metadata_version != 0 && known.metadata_version != said.metadata_version)
        || (!said.types.is_empty() && types(&known.types) != types(&said.types))
        || uris(&known.scopes, &said.scopes)
        || uris(&known.xaddrs, &said.xaddrs)
}

/// Keeps from `known` what `target` leaves out.
fn inherit(target: &mut Target, known: &Target) {
    if target.types.is_empty() {
        target.types.clone_from(&known.types);
    }
    if target.scopes.is_empty() {
        target.scopes.clone_from(&known.scopes);
    }
    if target.xaddrs.is_empty() {
        target.xaddrs.clone_from(&known.xaddrs);
    }
    if target.metadata_version == 0 {
        target.metadata_version = known.metadata_version;
    }
}

/// Managed mode is not spoken.
fn refuse_proxy(dialect: Dialect, target: &Target) -> Result<(), Dropped> {
    if target.types.contains(&dialect.proxy_type()) {
        let detail = "a discovery proxy; managed mode is not spoken";
        return Err(Dropped::new(DropReason::DiscoveryProxy, detail));
    }
    Ok(())
}
