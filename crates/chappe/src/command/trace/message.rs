//! One message, decoded and judged as its receiver would.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use chappe_device::capture::{Carrier, Message};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::Interface;
use chappe_dpws::exi;
use chappe_exi::{Decoder as ExiDecoder, Schema};
use chappe_machine::{Input, Machine, Output};
use chappe_soap::udp::{DISCOVERY_PORT, Inbound};
use chappe_soap::{AddressingVersion, Envelope};
use chappe_xml::{Element, Limits};

use super::{Traced, Tracer, text_of_exi};
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
        let is_discovery = ports.contains(&DISCOVERY_PORT);
        let is_text = message.body.trim_ascii_start().starts_with(b"<");
        if exi::is_exi(&message.body) && text_of_exi(&message.body, Limits::datagram()).is_err() {
            // Datagrams of other protocols often begin with the same two bits.
            let is_some = is_discovery || message.body.starts_with(b"$EXI");
            return is_some.then(|| read_exi(&message.body));
        }
        if !is_discovery && !is_text && !exi::is_exi(&message.body) {
            return None;
        }
        let traced = self.judge(message)?;
        let mut decoded = Decoded {
            kind: "no message".to_owned(),
            coding: traced.coding,
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
        return read_exi(&message.body);
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
fn read_exi(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded {
        kind: "EXI".to_owned(),
        coding: "exi",
        ..Decoded::default()
    };
    let limits = Limits::default();
    let text = text_of_exi(bytes, limits).or_else(|error| {
        // Streams of other programs may have other options.
        let mut decoder = ExiDecoder::new(std::sync::Arc::new(Schema::none()));
        chappe_exi::text::decode(&mut decoder, bytes, None).map_err(|_| error)
    });
    match text {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(from: u16, body: Vec<u8>) -> Message {
        Message {
            at_ns: 0,
            from: ([192, 0, 2, 7], from).into(),
            to: ([192, 0, 2, 1], 40_000).into(),
            carrier: Carrier::Datagram,
            content_type: String::new(),
            coding: String::new(),
            arrival: Duration::ZERO,
            body,
        }
    }

    #[test]
    fn datagrams_in_exi_are_decoded_and_others_are_left_out() {
        let hello = "<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope' \
            xmlns:a='http://www.w3.org/2005/08/addressing' \
            xmlns:d='http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01'><s:Header>\
            <a:Action>http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01/Hello</a:Action>\
            <a:MessageID>urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a</a:MessageID>\
            <a:To>urn:docs-oasis-open-org:ws-dd:ns:discovery:2009:01</a:To>\
            <d:AppSequence InstanceId='1' MessageNumber='1'/></s:Header><s:Body><d:Hello>\
            <a:EndpointReference><a:Address>urn:uuid:98190dc2-0890-4ef8-ac9a-5940995e6119</a:Address>\
            </a:EndpointReference><d:MetadataVersion>1</d:MetadataVersion></d:Hello></s:Body></s:Envelope>";
        let stream = exi::encode(hello.as_bytes()).unwrap();
        let mut decoder = Decoder::new().unwrap();
        for from in [DISCOVERY_PORT, 50_000] {
            let decoded = decoder.decode(&datagram(from, stream.clone())).unwrap();
            assert_eq!(
                (decoded.coding, decoded.action.as_deref()),
                ("exi", Some("Hello"))
            );
            assert_eq!(decoded.dialect, Some("2009"));
            assert!(decoded.text.contains("urn:uuid:98190dc2"));
        }
        // A packet of RTP.
        let other = datagram(50_000, vec![0x80, 0, 0, 1, 0, 0, 0, 0]);
        assert!(decoder.decode(&other).is_none());
        let broken = decoder
            .decode(&datagram(DISCOVERY_PORT, vec![0x80, 0, 0]))
            .unwrap();
        assert_eq!((broken.coding, broken.action), ("exi", None));
        assert!(broken.detail.is_some());
    }
}
