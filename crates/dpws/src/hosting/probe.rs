//! Probes sent by HTTP to the device's path, for clients that multicast does not reach (DPWS 1.1, section
//! 3: R1015, R1021, R1022).

use chappe_soap::{Envelope, Fault, FaultCode};
use chappe_xml::Str;

use super::HostRefusal;
use super::device::Device;
use crate::Dialect;
use crate::discovery::scopes::unknown_rule;
use crate::discovery::{AppSequence, Content, Message, Target};
use crate::eventing::Request;
use crate::exchange::{self, Reply};

/// Whether a message is a Probe.
pub(super) fn is_probe(envelope: &Envelope) -> bool {
    let action = Dialect::of_discovery_action(&envelope.addressing.action);
    action.is_some_and(|(_, action)| action == "Probe")
}

/// Whether a message has the destination of all Probes, which names no endpoint.
pub(super) fn is_to_all(envelope: &Envelope) -> bool {
    let to = envelope.addressing.to.as_deref();
    let all = Dialect::ALL.map(|dialect| Some(dialect.multicast_to()));
    is_probe(envelope) && all.contains(&to)
}

impl Device {
    /// Answers a Probe. Without a match, the answer is empty instead of absent.
    pub(super) fn on_probe(&mut self, request: &Request) {
        let message = match Message::from_envelope(&request.envelope) {
            Ok(message) => message,
            Err(error) => {
                let fault = Fault {
                    code: FaultCode::Sender,
                    subcode: None,
                    reason: error.to_string().into(),
                    detail: Vec::new(),
                };
                return self.fault(request, HostRefusal::Unreadable, &fault);
            }
        };
        let dialect = message.dialect;
        let types = self.host(dialect).types;
        let matches = match &message.content {
            Content::Probe(probe) => probe.matches(dialect, &types, &self.config.scopes),
            _ => Some(false),
        };
        let Some(matches) = matches else {
            let fault = unknown_rule(dialect);
            return self.fault(request, HostRefusal::MatchRule, &fault);
        };
        let target = || Target {
            endpoint: self.config.endpoint.clone(),
            types,
            scopes: self.config.scopes.clone(),
            xaddrs: vec![format!("{}{}", request.base, self.config.path).into()],
            metadata_version: self.config.metadata_version,
        };
        let content = Content::ProbeMatches(matches.then(target).into_iter().collect());
        self.probe_sequence.1 = self.probe_sequence.1.wrapping_add(1);
        let (sequence_id, message_number) = self.probe_sequence.clone();
        let answer = Message {
            dialect,
            message_id: Str::default(),
            relates_to: None,
            to: None,
            reply_to: None,
            sequence: Some(AppSequence {
                instance_id: self.config.instance_id,
                sequence_id: Some(sequence_id),
                message_number,
            }),
            content,
        };
        let mut answer = answer.to_envelope(&[]);
        let action = answer.addressing.action.clone();
        let head = exchange::reply(&request.envelope, action, self.ids.urn());
        answer.addressing = head.addressing;
        answer.headers.extend(head.headers);
        self.reply(request.token, Reply::message(answer));
    }
}
