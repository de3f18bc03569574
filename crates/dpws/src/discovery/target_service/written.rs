//! The messages of a target service, as they are sent.

use std::net::IpAddr;

use chappe_soap::{Addressing, EndpointReference, Envelope};
use chappe_xml::Str;

use super::{Kind, PendingMessage, TargetService, managed};
use crate::Dialect;
use crate::discovery::message::{AppSequence, Content, Message};
use crate::discovery::scopes::unknown_rule;
use crate::discovery::{Interface, Target};

impl TargetService {
    /// The largest possible size of a planned message, as text: EXI is used where it is shorter.
    pub(super) fn largest_size(&self, pending: &PendingMessage) -> usize {
        let id = "urn:uuid:00000000-0000-4000-8000-000000000000";
        self.envelope(pending, id.into(), u32::MAX).to_text().len()
    }

    pub(super) fn envelope(
        &self,
        pending: &PendingMessage,
        message_id: Str,
        message_number: u32,
    ) -> Envelope {
        let target = || self.target(pending);
        let endpoint = || Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            ..Target::default()
        };
        let multicast = Str::Borrowed(pending.dialect.multicast_to());
        let (content, relates_to, to) = match &pending.kind {
            Kind::Hello => (Content::Hello(target()), None, multicast),
            Kind::Bye => (Content::Bye(endpoint()), None, multicast),
            Kind::ProbeMatch { relates_to, to } => (
                Content::ProbeMatches(vec![target()]),
                Some(relates_to.clone()),
                to.clone(),
            ),
            Kind::NoMatch { relates_to, to } => (
                Content::ProbeMatches(Vec::new()),
                Some(relates_to.clone()),
                to.clone(),
            ),
            Kind::ResolveMatch { relates_to, to } => (
                Content::ResolveMatches(Some(target())),
                Some(relates_to.clone()),
                to.clone(),
            ),
            Kind::UnknownRule { relates_to, to } => {
                let (relates_to, to) = (relates_to.clone(), to.clone());
                return unknown_rule_fault(pending.dialect, message_id, relates_to, to);
            }
        };
        let message = Message {
            dialect: pending.dialect,
            message_id,
            relates_to,
            to: Some(to),
            reply_to: None,
            sequence: Some(AppSequence {
                instance_id: self.config.instance_id,
                sequence_id: None,
                message_number,
            }),
            content,
        };
        message.to_envelope(&[])
    }

    /// The description with the transport addresses for the destination.
    fn target(&self, pending: &PendingMessage) -> Target {
        let interfaces = &self.config.interfaces;
        let is_selected = |(interface, _): &&(Interface, Vec<Str>)| {
            pending.interface == managed::ANY_INTERFACE || interface.index == pending.interface
        };
        let selected = interfaces.iter().filter(is_selected);
        let xaddrs: Vec<Str> = selected.flat_map(|(_, xaddrs)| xaddrs).cloned().collect();
        let scopes = match pending.without_scopes {
            true => Vec::new(),
            false => self.config.scopes.clone(),
        };
        let types = self.config.types.iter();
        Target {
            endpoint: EndpointReference::new(self.config.endpoint.clone()),
            types: types.map(|name| pending.dialect.translate(name)).collect(),
            scopes,
            xaddrs: match pending.to.ip().is_unspecified() {
                true => xaddrs,
                false => same_family(&xaddrs, pending.to.ip()),
            },
            metadata_version: self.config.metadata_version,
        }
    }
}

/// The transport addresses of the client's family, or all if there are none.
pub(in crate::discovery) fn same_family(xaddrs: &[Str], client: IpAddr) -> Vec<Str> {
    let is_v6 = |uri: &str| {
        uri.split_once("://")
            .is_some_and(|(_, rest)| rest.starts_with('['))
    };
    let client_is_v6 = client.to_canonical().is_ipv6();
    let matching: Vec<_> = xaddrs
        .iter()
        .filter(|uri| is_v6(uri) == client_is_v6)
        .cloned()
        .collect();
    match matching.is_empty() {
        true => xaddrs.to_vec(),
        false => matching,
    }
}

/// The answer to a unicast Probe with an unknown rule.
fn unknown_rule_fault(dialect: Dialect, message_id: Str, relates_to: Str, to: Str) -> Envelope {
    let addressing = Addressing {
        message_id: Some(message_id),
        relates_to: Some(relates_to),
        to: Some(to),
        ..Addressing::new(dialect.addressing(), dialect.discovery_action("fault"))
    };
    Envelope::new(addressing).with_body(unknown_rule(dialect).to_element())
}
