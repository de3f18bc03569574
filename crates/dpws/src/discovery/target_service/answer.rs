//! Answers to Probe and Resolve, within the bound of amplification (WS-Discovery 1.1, sections 5 and 6).

use std::time::Duration;

use chappe_machine::Instant;
use chappe_soap::udp::{SENT_ENVELOPE_BYTES_MAX, random_between};
use chappe_xml::Str;

use super::{AMPLIFICATION_MAX, Event, Kind, PendingMessage, State, TargetService};
use crate::Dialect;
use crate::discovery::intake::{self, Dropped};
use crate::discovery::message::{Content, Message};
use crate::discovery::{DropReason, Inbound, Interface, Retransmission};

impl TargetService {
    /// Answers a datagram. The caller counts the outcome.
    pub(in crate::discovery) fn receive(
        &mut self,
        now: Instant,
        datagram: &Inbound,
    ) -> Result<(), Dropped> {
        if self.state != State::Started {
            return Err(Dropped::new(
                DropReason::NotStarted,
                "target service is not running",
            ));
        }
        let received = intake::read(datagram)?;
        self.intake.check_duplicate(&received.message)?;
        let result = self.on_message(now, datagram, &received);
        self.intake.arrived(&received.message, &result);
        result
    }

    fn on_message(
        &mut self,
        now: Instant,
        datagram: &Inbound,
        received: &intake::Received,
    ) -> Result<(), Dropped> {
        let message = &received.message;
        let from = datagram.from;
        let is_configured =
            |(interface, _): &(Interface, Vec<Str>)| interface.index == datagram.interface;
        if !self.config.interfaces.iter().any(is_configured) {
            let detail = format!("interface {} is not configured", datagram.interface);
            return Err(Dropped::new(DropReason::OtherInterface, detail));
        }
        let (request, kind) = self.answer(message, datagram.multicast)?;
        if !self.answer_rate.take(now, from.ip()) {
            let detail = format!(
                "more than {} answers per second to this address",
                self.config.answers_per_s
            );
            return Err(Dropped::new(DropReason::RateLimited, detail));
        }
        if self.pending.len() + self.outbox.len() >= self.config.queue_capacity {
            let detail = format!("{} answers are queued", self.config.queue_capacity);
            return Err(Dropped::new(DropReason::QueueFull, detail));
        }
        // The standard's delay spreads the answers of many targets to one Probe.
        let must_delay = datagram.multicast && matches!(kind, Kind::ProbeMatch { .. });
        let mut pending = self.limit_amplification(kind, message.dialect, datagram)?;
        pending.as_exi = received.takes_exi;
        let delay = match must_delay {
            true => random_between(&mut self.random, Duration::ZERO, self.config.app_max_delay),
            false => Duration::ZERO,
        };
        self.schedule(now + delay, pending);
        self.event(Event::Answered { to: from, request });
        Ok(())
    }

    /// The answer to a message.
    fn answer(&self, message: &Message, multicast: bool) -> Result<(&'static str, Kind), Dropped> {
        let drop = |reason, detail: &str| Err(Dropped::new(reason, detail));
        if !matches!(message.content, Content::Probe(_) | Content::Resolve(_)) {
            return drop(DropReason::OtherRole, message.content.action());
        }
        let dialect = message.dialect;
        if !self.config.dialects.contains(&dialect) {
            return drop(DropReason::OtherDialect, dialect.discovery());
        }
        intake::check_reply_to(message)?;
        let relates_to = message.message_id.clone();
        let to = Str::Borrowed(dialect.addressing().anonymous());
        match &message.content {
            Content::Resolve(reference) if reference.address == self.config.endpoint => {
                Ok(("Resolve", Kind::ResolveMatch { relates_to, to }))
            }
            Content::Resolve(reference) => drop(
                DropReason::OtherEndpoint,
                &reference.address.chars().take(128).collect::<String>(),
            ),
            Content::Probe(probe) => {
                let matches = probe.matches(dialect, &self.config.types, &self.config.scopes);
                match (matches, multicast) {
                    (Some(true), _) => Ok(("Probe", Kind::ProbeMatch { relates_to, to })),
                    // WS-Discovery 2005, section 5.2, demands silence for unicast too.
                    (Some(false), false) if dialect == Dialect::V2009 => {
                        Ok(("Probe", Kind::NoMatch { relates_to, to }))
                    }
                    (Some(false), _) => drop(DropReason::NoMatch, "types or scopes do not match"),
                    (None, true) => drop(
                        DropReason::UnknownMatchRule,
                        probe.match_by.as_deref().unwrap_or_default(),
                    ),
                    (None, false) => Ok((
                        "Probe with an unknown rule",
                        Kind::UnknownRule { relates_to, to },
                    )),
                }
            }
            _ => drop(DropReason::OtherRole, message.content.action()),
        }
    }

    /// Shortens the answer and limits its copies to bound the amplification.
    fn limit_amplification(
        &self,
        kind: Kind,
        dialect: Dialect,
        datagram: &Inbound,
    ) -> Result<PendingMessage, Dropped> {
        let allowed = datagram.bytes.len().saturating_mul(AMPLIFICATION_MAX);
        let mut pending = PendingMessage {
            to: datagram.from,
            interface: datagram.interface,
            dialect,
            kind,
            retransmission: self.config.unicast,
            without_scopes: false,
            as_exi: false,
        };
        let mut size = 0;
        for without_scopes in [false, true] {
            pending.without_scopes = without_scopes;
            size = self.largest_size(&pending);
            if size <= allowed.min(SENT_ENVELOPE_BYTES_MAX) {
                limit_copies(&mut pending.retransmission, allowed, size);
                return Ok(pending);
            }
        }
        let detail = format!("answer has {size} bytes, request {}", datagram.bytes.len());
        Err(Dropped::new(DropReason::Amplification, detail))
    }
}

/// Sends only as many copies of an answer of `size` bytes as `allowed` bytes have room for.
pub(in crate::discovery) fn limit_copies(
    retransmission: &mut Retransmission,
    allowed: usize,
    size: usize,
) {
    let copies = u32::try_from(allowed / size.max(1)).unwrap_or(u32::MAX);
    retransmission.repeat = retransmission.repeat.min(copies.saturating_sub(1));
}
