//! Goal: answers to questions that offer EXI are EXI, at devices and proxies, and everyone else notices nothing.
//!
//! Method: datagrams at the real machines, on virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use crate::network::{interface, sender_host_only};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::proxy::{self, AMPLIFICATION_MAX};
use chappe_dpws::discovery::{
    Client, Content, DropReason, Inbound, MatchRule, Message, Outbound, Probe, Proxy, Target,
    TargetService, client, target_service,
};
use chappe_dpws::exi::{self, ServiceSchemas};
use chappe_machine::{Harness, Input, Machine, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::Limits;

const ENDPOINT: &str = "urn:uuid:4e1f3a3e-6a3b-4b7f-9d2c-0a1b2c3d4e5f";
const FROM: &str = "192.0.2.9:40000";

fn device() -> Harness<TargetService> {
    let mut config = target_service::Config::new(ENDPOINT, 1, 7);
    let own = interface(1, "192.0.2.17".parse().unwrap());
    config.interfaces = vec![(own, vec!["http://192.0.2.17:5357/device".into()])];
    config.types = vec![Dialect::V2009.device_type()];
    config.app_max_delay = Duration::ZERO;
    let mut device = Harness::new(TargetService::new(config), 7);
    device
        .input(Input::Command(target_service::Command::Start))
        .unwrap();
    device.advance(Duration::from_secs(2)).unwrap();
    device
}

fn question(id: &str, content: Content, offers: bool) -> Inbound {
    let message = Message {
        dialect: Dialect::V2009,
        message_id: format!("urn:m:{id}").into(),
        relates_to: None,
        to: Some(Dialect::V2009.multicast_to().into()),
        reply_to: None,
        sequence: None,
        content,
    };
    let mut envelope = message.to_envelope(&[]);
    if offers {
        envelope.headers.push(exi::offer());
    }
    Inbound {
        from: FROM.parse().unwrap(),
        interface: 1,
        multicast: false,
        bytes: envelope.to_text().into_bytes(),
    }
}

/// The datagrams in answer to this one, and their copies.
fn answers<M>(machine: &mut Harness<M>, datagram: Inbound) -> Vec<Outbound>
where
    M: Machine<Receive = Inbound, Transmit = Outbound> + chappe_machine::Invariant,
{
    let mut outputs = machine.input(Input::Receive(datagram)).unwrap();
    outputs.extend(machine.advance(Duration::from_secs(2)).unwrap());
    let sent = outputs.into_iter().filter_map(|output| match output {
        Output::Transmit(datagram) => Some(datagram),
        Output::Event(_) => None,
    });
    sent.collect()
}

fn read(bytes: &[u8]) -> Message {
    let text = match exi::is_exi(bytes) {
        true => {
            let decoded = exi::decode(bytes, Limits::datagram(), &ServiceSchemas::default());
            decoded.unwrap().text
        }
        false => String::from_utf8(bytes.to_vec()).unwrap(),
    };
    Message::from_envelope(&Envelope::parse(text.as_bytes()).unwrap()).unwrap()
}

#[test]
fn a_device_answers_as_it_is_asked() {
    let resolve = || Content::Resolve(EndpointReference::new(ENDPOINT));
    let none = || {
        Content::Probe(Probe {
            types: vec![Dialect::V2009.proxy_type()],
            ..Probe::default()
        })
    };
    for (id, content) in [
        ("probe", Content::Probe(Probe::default())),
        ("resolve", resolve()),
        ("none", none()),
    ] {
        let mut device = device();
        let texts = answers(&mut device, question(id, content.clone(), false));
        let asked = question(&format!("{id}-exi"), content, true);
        let allowed = asked.bytes.len() * AMPLIFICATION_MAX;
        let streams = answers(&mut device, asked);
        assert!(!texts.is_empty() && !streams.is_empty());
        assert!(texts.iter().all(|text| text.bytes.starts_with(b"<")));
        assert!(streams.iter().all(|stream| exi::is_exi(&stream.bytes)));
        assert!(
            streams
                .iter()
                .map(|stream| stream.bytes.len())
                .sum::<usize>()
                <= allowed
        );
        assert!(streams[0].bytes.len() < texts[0].bytes.len());
        let [text, stream] = [&texts[0], &streams[0]].map(|one| read(&one.bytes));
        assert_eq!(text.content, stream.content);
    }
}

#[test]
fn a_client_offers_and_understands_exi() {
    for offers in [true, false] {
        let own = interface(1, "192.0.2.9".parse().unwrap());
        let mut config = client::Config::new(vec![own], 3);
        config.exi = offers;
        let mut client = Harness::new(Client::new(config, sender_host_only), 3);
        let probe = client::Command::Probe {
            id: 1,
            types: Vec::new(),
            scopes: Vec::new(),
            match_by: MatchRule::default(),
            timeout: Duration::from_secs(3),
        };
        let asked = client.input(Input::Command(probe)).unwrap();
        let mut device = device();
        let mut found = false;
        for output in asked {
            let Output::Transmit(datagram) = output else {
                continue;
            };
            let envelope = Envelope::parse(&datagram.bytes).unwrap();
            let is_new = Dialect::of_discovery_action(&envelope.addressing.action)
                .is_some_and(|(dialect, _)| dialect == Dialect::V2009);
            assert_eq!(exi::is_offered(&envelope), offers && is_new);
            let asked = Inbound {
                from: FROM.parse().unwrap(),
                interface: 1,
                multicast: true,
                bytes: datagram.bytes,
            };
            for answer in answers(&mut device, asked) {
                assert_eq!(exi::is_exi(&answer.bytes), offers);
                let heard = Inbound {
                    from: "192.0.2.17:3702".parse().unwrap(),
                    interface: 1,
                    multicast: false,
                    bytes: answer.bytes,
                };
                let outputs = client.input(Input::Receive(heard)).unwrap();
                found |= outputs
                    .iter()
                    .any(|output| matches!(output, Output::Event(client::Event::Found { .. })));
            }
        }
        assert!(found);
    }
}

#[test]
fn a_proxy_has_room_for_more_matches() {
    let mut config = proxy::Config::new("urn:uuid:00000000-0000-4000-8000-000000000001", 1, 7);
    let own = interface(1, "192.0.2.200".parse().unwrap());
    config.interfaces = vec![(own, vec!["http://192.0.2.200:8474/".into()])];
    config.app_max_delay = Duration::ZERO;
    let mut proxy = Harness::new(Proxy::new(config, sender_host_only), 7);
    proxy.input(Input::Command(proxy::Command::Start)).unwrap();
    proxy.advance(Duration::from_secs(2)).unwrap();
    let mut matches = Vec::new();
    for number in 0..6 {
        let from = SocketAddr::from(([192, 0, 2, 20 + number], 3702));
        let target = Target {
            endpoint: EndpointReference::new(format!(
                "urn:uuid:00000000-0000-4000-8000-0000000001{number:02}"
            )),
            types: vec![Dialect::V2009.device_type()],
            xaddrs: vec![format!("http://{}:5357/device", from.ip()).into()],
            metadata_version: 1,
            ..Target::default()
        };
        let learn = proxy::Command::Learn {
            target,
            dialect: Dialect::V2009,
            from,
        };
        proxy.input(Input::Command(learn)).unwrap();
    }
    for offers in [false, true] {
        let asked = question(
            &format!("all-{offers}"),
            Content::Probe(Probe::default()),
            offers,
        );
        let allowed = asked.bytes.len() * AMPLIFICATION_MAX;
        let sent = answers(&mut proxy, asked);
        assert!(sent.iter().map(|one| one.bytes.len()).sum::<usize>() <= allowed);
        assert_eq!(exi::is_exi(&sent[0].bytes), offers);
        matches.push(match read(&sent[0].bytes).content {
            Content::ProbeMatches(targets) => targets.len(),
            content => {
                // As text they do not fit, and the answer says where to ask by HTTP.
                assert!(matches!(content, Content::Hello(_)));
                0
            }
        });
    }
    assert_eq!(matches, [0, 6]);
}

#[test]
fn broken_exi_is_counted_and_harms_nobody() {
    let mut device = device();
    let text = question("a", Content::Probe(Probe::default()), true).bytes;
    let stream = exi::encode(&text).unwrap();
    // A question may be EXI, too.
    let mut asked = question("a", Content::Probe(Probe::default()), true);
    asked.bytes.clone_from(&stream);
    let answered = answers(&mut device, asked.clone());
    assert!(answered.is_empty() || exi::is_exi(&answered[0].bytes));
    for length in 1..stream.len() {
        asked.bytes = stream[..length].to_vec();
        assert!(
            answers(&mut device, asked.clone()).is_empty(),
            "{length} bytes"
        );
    }
    let broken = [b"$EXI".to_vec(), vec![0x80], vec![0xa0; 4_000]];
    let count = broken.len();
    for bytes in broken {
        asked.bytes = bytes;
        assert!(answers(&mut device, asked.clone()).is_empty());
    }
    // The text of this one is longer than any datagram.
    let long = format!("<a>{}</a>", "x".repeat(60_000));
    asked.bytes = exi::encode(long.as_bytes()).unwrap();
    assert!(answers(&mut device, asked).is_empty());
    let drops = device.machine().drops();
    assert!(drops.count(DropReason::Malformed) as usize >= count);
    assert_eq!(drops.count(DropReason::TooLarge), 1);
}
