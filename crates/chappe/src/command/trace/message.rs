//! One message, decoded and judged as its receiver would.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use chappe_device::capture::{Carrier, Message};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::Interface;
use chappe_exi::{Decoder as ExiDecoder, Schema};
use chappe_machine::{Input, Machine, Output};
use chappe_soap::udp::{DISCOVERY_PORT, Inbound};
use chappe_soap::{AddressingVersion, Envelope};
use chappe_xml::{Element, Limits};

use super::{Traced, Tracer};
use crate::command::network;
use crate::output::Failure;

/// Questions that are remembered, to know the answers to them.
const QUESTIONS_MAX: usize = 4_096;
/// The interface of all captured datagrams.
const INTERFACE: u32 = 1;

/// A message that is of a device, or might be.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// What it is, where it has no action.
    pub(super) kind: String,
    /// `text` or `exi`.
    pub(super) coding: &'static str,
    pub(super) dialect: Option<&'static str>,
    pub(super) action: Option<String>,
    pub(super) subjects: Vec<String>,
    pub(super) message_id: Option<String>,
    pub(super) relates_to: Option<String>,
    pub(super) fault: Option<String>,
    pub(super) dropped: Option<&'static str>,
    pub(super) detail: Option<String>,
    pub(super) decoding: Duration,
    pub(super) text: String,
}

/// Decodes messages in their order.
pub(super) struct Decoder {
    tracer: Tracer,
    questions: HashSet<String>,
    order: VecDeque<String>,
    begin_ns: Option<u64>,
}

impl Decoder {
    pub(super) fn new() -> Result<Self, Failure> {
        let interface = Interface {
            index: INTERFACE,
            addresses: vec![std::net::Ipv4Addr::LOCALHOST.into()],
        };
        Ok(Self {
            tracer: Tracer::new(vec![interface])?,
            questions: HashSet::new(),
            order: VecDeque::new(),
            begin_ns: None,
        })
    }

    /// Decodes a message; `None` if it is of another protocol or a gap.
    pub(super) fn decode(&mut self, message: &Message) -> Option<Decoded> {
        let started = Instant::now();
        let mut decoded = match message.carrier {
            Carrier::Datagram => self.datagram(message)?,
            Carrier::Request { .. } | Carrier::Answer { .. } => http(message),
            Carrier::Gap { .. } => return None,
        };
        decoded.decoding = started.elapsed();
        Some(decoded)
    }

    fn datagram(&mut self, message: &Message) -> Option<Decoded> {
        let ports = [message.from.port(), message.to.port()];
        let is_exi = message.body.starts_with(b"$EXI");
        let is_text = message.body.trim_ascii_start().starts_with(b"<");
        if !ports.contains(&DISCOVERY_PORT) && !is_exi && !is_text {
            return None;
        }
        if is_exi {
            return Some(exi(&message.body));
        }
        let traced = self.judge(message)?;
        let mut decoded = Decoded {
            kind: "no message".to_owned(),
            coding: "text",
            action: traced.action.map(str::to_owned),
            subjects: traced.subjects,
            message_id: traced.message_id.map(|id| id.to_string()),
            relates_to: traced.relates_to.map(|id| id.to_string()),
            dropped: traced.dropped,
            detail: traced.detail,
            dialect: traced.dialect.as_deref().map(|year| match year {
                "2005" => "2005",
                _ => "2009",
            }),
            text: traced.text,
            ..Decoded::default()
        };
        // The judge is a client that asked nothing itself: the questions are those of the capture.
        let is_known = decoded
            .relates_to
            .as_ref()
            .is_some_and(|id| self.questions.contains(id));
        match decoded.dropped {
            Some("unrelated") if is_known => (decoded.dropped, decoded.detail) = (None, None),
            Some("unrelated") => {
                decoded.detail = Some("it answers no question of the capture".to_owned());
            }
            _ => {}
        }
        if let (Some("Probe" | "Resolve"), Some(id)) =
            (decoded.action.as_deref(), &decoded.message_id)
        {
            self.remember(id.clone());
        }
        Some(decoded)
    }

    fn remember(&mut self, id: String) {
        if self.questions.insert(id.clone()) {
            self.order.push_back(id);
        }
        if self.order.len() > QUESTIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.questions.remove(&oldest);
        }
    }

    /// The verdict of a client of discovery.
    fn judge(&mut self, message: &Message) -> Option<Traced> {
        let begin = *self.begin_ns.get_or_insert(message.at_ns);
        let now = chappe_machine::Instant::from_nanos(message.at_ns.saturating_sub(begin));
        let inbound = Inbound {
            from: message.from,
            interface: INTERFACE,
            multicast: message.to.ip().is_multicast(),
            bytes: message.body.clone(),
        };
        self.tracer.handle_input(now, Input::Receive(inbound));
        let mut traced = None;
        while let Some(output) = self.tracer.poll_output() {
            if let Output::Event(event) = output {
                traced = Some(event);
            }
        }
        traced
    }
}

/// A message of HTTP, judged as one of SOAP where it claims to be one.
fn http(message: &Message) -> Decoded {
    if message.body.is_empty() {
        return Decoded {
            kind: "without content".to_owned(),
            coding: "text",
            ..Decoded::default()
        };
    }
    let is_soap = message.content_type.contains("soap+xml");
    if message.coding == "exi" || message.content_type.contains("exi") {
        return exi(&message.body);
    }
    let root = Element::parse_within(&message.body, Limits::default());
    let mut decoded = Decoded {
        coding: "text",
        kind: match &root {
            Ok(root) => format!("a document {}", root.name.local),
            Err(_) if message.content_type.is_empty() => "no XML".to_owned(),
            Err(_) => message.content_type.clone(),
        },
        text: String::from_utf8_lossy(&message.body).into_owned(),
        ..Decoded::default()
    };
    let is_envelope = root
        .as_ref()
        .is_ok_and(|root| &*root.name.local == "Envelope");
    match root {
        Ok(root) if is_soap || is_envelope => match Envelope::from_element(root) {
            Ok(envelope) => fill(&mut decoded, &envelope),
            Err(error) => {
                decoded.dropped = Some("malformed");
                decoded.detail = Some(error.to_string());
            }
        },
        Err(error) if is_soap => {
            decoded.dropped = Some("malformed");
            decoded.detail = Some(error.to_string());
        }
        _ => {}
    }
    if is_envelope && !is_soap && decoded.dropped.is_none() {
        decoded.dropped = Some("media_type");
        decoded.detail = Some(format!(
            "{:?} is not that of SOAP 1.2",
            message.content_type
        ));
    }
    decoded
}

fn fill(decoded: &mut Decoded, envelope: &Envelope) {
    let addressing = &envelope.addressing;
    let text = |text: &Option<chappe_xml::Str>| text.as_deref().map(str::to_owned);
    decoded.dialect = Some(network::dialect(match addressing.version {
        AddressingVersion::V200408 => Dialect::V2005,
        AddressingVersion::V200508 => Dialect::V2009,
    }));
    decoded.action = Some(addressing.action.to_string());
    decoded.message_id = text(&addressing.message_id);
    decoded.relates_to = text(&addressing.relates_to);
    decoded.fault = envelope.fault().map(|fault| fault.to_string());
    if decoded.fault.is_none() {
        decoded.subjects = envelope
            .body
            .iter()
            .map(|one| one.name.local.to_string())
            .collect();
    }
}

/// A stream of EXI, decoded as far as it needs no schema that only the devices have.
fn exi(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded {
        kind: "EXI".to_owned(),
        coding: "exi",
        ..Decoded::default()
    };
    let mut decoder = ExiDecoder::new(std::sync::Arc::new(Schema::none()));
    match chappe_exi::text::decode(&mut decoder, bytes, None) {
        Ok(text) => {
            if let Ok(envelope) = Envelope::parse(text.as_bytes()) {
                fill(&mut decoded, &envelope);
            }
            decoded.text = text;
        }
        Err(error) => decoded.detail = Some(error.to_string()),
    }
    decoded
}
