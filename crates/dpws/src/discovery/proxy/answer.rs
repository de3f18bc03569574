//! The proxy's answers.

use chappe_machine::Instant;
use chappe_soap::udp::{SENT_ENVELOPE_BYTES_MAX, random_urn};
use chappe_soap::{EndpointReference, Envelope, Fault, FaultCode};
use chappe_xml::Str;

use super::super::intake::{self, Dropped};
use super::super::message::{AppSequence, Content, MATCHES_MAX, MatchesSize, Message};
use super::super::scopes::unknown_rule;
use super::super::target_service::{limit_copies, same_family};
use super::super::{DropReason, Inbound, Outbound, Target};
use super::{AMPLIFICATION_MAX, Event, Origin, Proxy, Request};
use crate::Dialect;
use crate::exchange::{self, Reply};

/// Bytes of the matches in an answer by HTTP. Reason: a client reads answers of 4 MiB, of which the rest of the
/// envelope takes less than 16 KiB.
const ANSWER_BYTES_MAX: usize = (4 << 20) - (16 << 10);
/// Times the counted bytes of matches may exceed those of a datagram before they are written: the count is less than
/// twice the text.
const COUNTED_PER_TEXT: usize = 2;
/// The same if the answer is EXI, in which equal parts of matches are written once.
const COUNTED_PER_EXI: usize = 8;

impl Proxy {
    /// Answers a Probe or Resolve that came as a datagram.
    pub(super) fn answer_datagram(
        &mut self,
        now: Instant,
        datagram: &Inbound,
        received: &intake::Received,
    ) -> Result<(), Dropped> {
        let message = &received.message;
        intake::check_reply_to(message)?;
        let allowed = datagram.bytes.len().saturating_mul(AMPLIFICATION_MAX);
        // As EXI more matches fit.
        let bytes_of = |answer: Envelope| intake::bytes_of(answer.to_text(), received.takes_exi);
        let fits = |bytes: &Vec<u8>| bytes.len() <= allowed.min(SENT_ENVELOPE_BYTES_MAX);
        let counted_per_byte = match received.takes_exi {
            true => COUNTED_PER_EXI,
            false => COUNTED_PER_TEXT,
        };
        let bytes_max = allowed.min(SENT_ENVELOPE_BYTES_MAX) * counted_per_byte;
        let answer = match datagram.multicast {
            true => None,
            false => self.matches(message, bytes_max).map_err(|rule| {
                Dropped::new(DropReason::UnknownMatchRule, rule.unwrap_or_default())
            })?,
        };
        let answer = answer.map(|content| bytes_of(self.envelope(message, content)));
        let bytes = answer.filter(fits);
        // Suppression; or the answer is longer than a datagram may be, and is to be had at these addresses.
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                let own = self.own_target(message.dialect, Some(datagram));
                let hello = bytes_of(self.envelope(message, Content::Hello(own)));
                if !fits(&hello) {
                    let (size, asked) = (hello.len(), datagram.bytes.len());
                    let detail = format!("answer has {size} bytes, request {asked}");
                    return Err(Dropped::new(DropReason::Amplification, detail));
                }
                hello
            }
        };
        let mut retransmission = self.config.unicast;
        limit_copies(&mut retransmission, allowed, bytes.len());
        let answer = Outbound {
            to: datagram.from,
            interface: datagram.interface,
            bytes,
        };
        let pushed = self
            .outbox
            .push(now, answer, &retransmission, &mut self.random);
        pushed.map_err(|full| Dropped::new(DropReason::QueueFull, full.to_string()))
    }

    /// The answer to a Probe or Resolve; `None` if the matches are more than any answer may have, or their text
    /// is counted to be longer than `bytes_max`. The error is an unknown match rule.
    fn matches(&self, message: &Message, bytes_max: usize) -> Result<Option<Content>, Option<Str>> {
        let dialect = message.dialect;
        let offered = |target: &Target| Target {
            types: target
                .types
                .iter()
                .map(|name| dialect.translate(name))
                .collect(),
            ..target.clone()
        };
        match &message.content {
            Content::Probe(probe) => {
                let matching = self.entries.matches(dialect, probe);
                let matching = matching.ok_or_else(|| probe.match_by.clone())?;
                let mut size = MatchesSize::default();
                let mut counted = matching.iter();
                if matching.len() > MATCHES_MAX || !counted.all(|one| size.add(one, bytes_max)) {
                    return Ok(None);
                }
                let targets = matching.into_iter().map(offered).collect();
                Ok(Some(Content::ProbeMatches(targets)))
            }
            Content::Resolve(reference) => {
                let endpoint = &*reference.address;
                let is_offered = self.entries.dialects(endpoint).contains(&dialect);
                let target = self.entries.target(endpoint).filter(|_| is_offered);
                let target = target.filter(|target| !target.xaddrs.is_empty());
                Ok(Some(Content::ResolveMatches(target.map(offered))))
            }
            _ => Ok(None),
        }
    }

    /// The proxy's own description, with the addresses for a client.
    fn own_target(&self, dialect: Dialect, client: Option<&Inbound>) -> Target {
        let interfaces = &self.config.interfaces;
        let of_client = client.and_then(|client| {
            let mut found = interfaces.iter();
            let (_, xaddrs) = found.find(|(one, _)| one.index == client.interface)?;
            Some(same_family(xaddrs, client.from.ip()))
        });
        let all = || {
            let all = interfaces.iter().flat_map(|(_, xaddrs)| xaddrs);
            all.cloned().collect()
        };
        Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            types: vec![dialect.proxy_type()],
            scopes: Vec::new(),
            xaddrs: of_client.unwrap_or_else(all),
            metadata_version: 1,
        }
    }

    /// The envelope of an answer.
    fn envelope(&mut self, request: &Message, content: Content) -> Envelope {
        self.sequence.1 = self.sequence.1.wrapping_add(1);
        let (sequence_id, message_number) = self.sequence.clone();
        let dialect = request.dialect;
        let message_id = random_urn(&mut self.random);
        self.intake.seen.sent(&message_id);
        let answer = Message {
            dialect,
            message_id: message_id.into(),
            relates_to: Some(request.message_id.clone()),
            to: Some(Str::Borrowed(dialect.addressing().anonymous())),
            reply_to: None,
            sequence: Some(AppSequence {
                instance_id: self.config.instance_id,
                sequence_id: Some(sequence_id),
                message_number,
            }),
            content,
        };
        answer.to_envelope(&[])
    }

    /// Answers a message that came by HTTP. Each gets a reply, and one that is not used a fault.
    pub(super) fn on_request(&mut self, now: Instant, request: Request) {
        let token = request.token;
        let (result, reply) = match self.handle_request(now, &request) {
            Ok(reply) => (Ok(()), reply),
            Err(dropped) => {
                let reply = self.refusal(&request, &dropped);
                (Err(dropped), reply)
            }
        };
        let report = self.intake.record(now, request.from, result);
        self.report(report);
        self.event(Event::Reply { token, reply });
    }

    fn handle_request(&mut self, now: Instant, request: &Request) -> Result<Reply, Dropped> {
        self.check_rate(now, request.from)?;
        let message = Message::from_envelope(&request.envelope)
            .map_err(|error| Dropped::new(error.drop_reason(), error.to_string()))?;
        self.check_dialect(&message)?;
        let origin = Origin {
            now,
            from: request.from,
            over_connection: true,
            sender: request.sender.clone(),
            message: &message,
        };
        let content = match &message.content {
            Content::Hello(target) => {
                self.on_hello(&origin, target)?;
                return Ok(Reply::ACCEPTED);
            }
            Content::Bye(target) => {
                self.on_bye(&origin, &target.endpoint.address)?;
                return Ok(Reply::ACCEPTED);
            }
            Content::Probe(_) if self.is_about_itself(&message) => {
                Content::ProbeMatches(vec![self.own_target(message.dialect, None)])
            }
            Content::Resolve(_) if self.is_about_itself(&message) => {
                Content::ResolveMatches(Some(self.own_target(message.dialect, None)))
            }
            Content::Probe(_) | Content::Resolve(_) => {
                match self.matches(&message, ANSWER_BYTES_MAX) {
                    Ok(Some(content)) => content,
                    Ok(None) => {
                        let detail = format!(
                            "more than {MATCHES_MAX} matches, or {ANSWER_BYTES_MAX} bytes of them: ask for types or scopes"
                        );
                        return Err(Dropped::new(DropReason::TooLarge, detail));
                    }
                    Err(rule) => {
                        let detail = rule.unwrap_or_default();
                        return Err(Dropped::new(DropReason::UnknownMatchRule, detail));
                    }
                }
            }
            Content::ProbeMatches(_) | Content::ResolveMatches(_) => {
                let action = message.content.action();
                return Err(Dropped::new(DropReason::OtherRole, action));
            }
        };
        let mut answer = self.envelope(&message, content);
        let action = answer.addressing.action.clone();
        let id = random_urn(&mut self.random);
        let head = exchange::reply(&request.envelope, action, id);
        answer.addressing = head.addressing;
        answer.headers.extend(head.headers);
        Ok(Reply::message(answer))
    }

    /// The reply to a message that is not used.
    fn refusal(&mut self, request: &Request, dropped: &Dropped) -> Reply {
        let dialect = Dialect::of_discovery_action(&request.envelope.addressing.action);
        let fault = match dropped.reason {
            DropReason::RateLimited => return Reply::UNAVAILABLE,
            // A copy of an older message, after which its sender has said something newer; a Bye of what is
            // gone already.
            DropReason::Stale | DropReason::OtherEndpoint => return Reply::ACCEPTED,
            DropReason::UnknownMatchRule => {
                unknown_rule(dialect.map(|(dialect, _)| dialect).unwrap_or_default())
            }
            reason => Fault {
                code: match reason {
                    DropReason::TableFull => FaultCode::Receiver,
                    _ => FaultCode::Sender,
                },
                subcode: None,
                reason: format!("{reason}: {}", dropped.detail).into(),
                detail: Vec::new(),
            },
        };
        let id = random_urn(&mut self.random);
        Reply::message(exchange::fault(&request.envelope, &fault, id))
    }
}
