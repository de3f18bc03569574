//! Wrapper and exporter against a scripted broker. `check/peers connectors` runs them against mosquitto.

use std::sync::Arc;
use std::time::Duration;

use chappe_stream::Value;
use mqtt::connection::Event as Protocol;
use mqtt::packet::{GenericPacketTrait as _, Packet, Qos, v3_1_1, v5_0};
use mqtt::result_code::{
    ConnectReasonCode, ConnectReturnCode, PubackReasonCode, SubackReasonCode, SubackReturnCode,
};
use mqtt_protocol_core::mqtt;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::tests::{open, wrapper_file};
use crate::{
    Command, Exporter, ExporterFile, ExporterOpening, Mark, NodeParts, Wrapper, WrapperError,
};

/// What a connection of the scripted broker does.
#[derive(Debug, Clone, Default)]
struct Script {
    had_session: bool,
    /// Messages that it sends: identifier (0: quality of service 0), payload, repeated.
    messages: Vec<(u16, &'static str, bool)>,
    /// What it answers to messages of which the payload contains this.
    refuses: Option<(&'static str, PubackReasonCode)>,
}

/// What clients have sent, in words.
type Seen = watch::Sender<Vec<String>>;

/// Serves one connection for each script.
async fn broker(version: mqtt::Version, scripts: Vec<Script>) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("mqtt://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let noted = seen.clone();
    tokio::spawn(async move {
        for script in scripts {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, version, script, &noted).await;
            noted.send_modify(|seen| seen.push("end".to_owned()));
        }
    });
    (address, seen)
}

async fn serve(mut stream: TcpStream, version: mqtt::Version, script: Script, seen: &Seen) {
    let mut connection = mqtt::Connection::<mqtt::role::Server>::new(version);
    let mut buffer = vec![0; 4_096];
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else {
            return;
        };
        let mut cursor = mqtt::common::Cursor::new(&buffer[..count]);
        while (cursor.position() as usize) < count {
            for event in connection.recv(&mut cursor) {
                let Protocol::NotifyPacketReceived(packet) = event else {
                    continue;
                };
                for answer in answers(&packet, version, &script, seen) {
                    // An identifier that the broker of the script uses as if it had chosen it.
                    let _ = connection.register_packet_id(packet_id(&answer));
                    for event in connection.send(answer) {
                        if let Protocol::RequestSendPacket { packet, .. } = event {
                            let bytes = packet.to_continuous_buffer();
                            stream.write_all(&bytes).await.unwrap();
                        }
                    }
                }
            }
        }
    }
}

/// The identifier of a message; 0 for any other packet.
fn packet_id(packet: &Packet) -> u16 {
    match packet {
        Packet::V3_1_1Publish(message) => message.packet_id().unwrap_or_default(),
        Packet::V5_0Publish(message) => message.packet_id().unwrap_or_default(),
        _ => 0,
    }
}

fn answers(packet: &Packet, version: mqtt::Version, script: &Script, seen: &Seen) -> Vec<Packet> {
    let note = |text: String| seen.send_modify(|seen| seen.push(text));
    match packet {
        Packet::V3_1_1Connect(connect) => {
            note(format!("connect {}", connect.client_id()));
            let answer = v3_1_1::Connack::builder()
                .session_present(script.had_session)
                .return_code(ConnectReturnCode::Accepted);
            let mut answers = vec![answer.build().unwrap().into()];
            if script.had_session {
                answers.extend(messages(version, script));
            }
            answers
        }
        Packet::V5_0Connect(connect) => {
            note(format!("connect {}", connect.client_id()));
            let answer = v5_0::Connack::builder()
                .session_present(script.had_session)
                .reason_code(ConnectReasonCode::Success);
            let mut answers = vec![answer.build().unwrap().into()];
            if script.had_session {
                answers.extend(messages(version, script));
            }
            answers
        }
        Packet::V3_1_1Subscribe(subscribe) => {
            note(format!(
                "subscribe {}",
                subscribe.entries()[0].topic_filter()
            ));
            let answer = v3_1_1::Suback::builder()
                .packet_id(subscribe.packet_id())
                .return_codes(vec![SubackReturnCode::SuccessMaximumQos1]);
            let mut answers = vec![answer.build().unwrap().into()];
            if !script.had_session {
                answers.extend(messages(version, script));
            }
            answers
        }
        Packet::V5_0Subscribe(subscribe) => {
            note(format!(
                "subscribe {}",
                subscribe.entries()[0].topic_filter()
            ));
            let answer = v5_0::Suback::builder()
                .packet_id(subscribe.packet_id())
                .reason_codes(vec![SubackReasonCode::GrantedQos1]);
            let mut answers = vec![answer.build().unwrap().into()];
            if !script.had_session {
                answers.extend(messages(version, script));
            }
            answers
        }
        Packet::V3_1_1Puback(puback) => {
            note(format!("puback {}", puback.packet_id()));
            vec![]
        }
        Packet::V5_0Puback(puback) => {
            note(format!("puback {}", puback.packet_id()));
            vec![]
        }
        Packet::V5_0Publish(publish) => {
            let payload = String::from_utf8_lossy(publish.payload().as_slice()).into_owned();
            note(format!("publish {} {payload}", publish.topic_name()));
            let Some(packet_id) = publish.packet_id() else {
                return vec![];
            };
            let code = match script.refuses {
                Some((text, code)) if payload.contains(text) => code,
                _ => PubackReasonCode::Success,
            };
            let answer = v5_0::Puback::builder().packet_id(packet_id);
            vec![answer.reason_code(code).build().unwrap().into()]
        }
        Packet::V5_0Pingreq(_) => vec![v5_0::Pingresp::builder().build().unwrap().into()],
        _ => vec![],
    }
}

fn messages(version: mqtt::Version, script: &Script) -> Vec<Packet> {
    let message = |&(packet_id, payload, is_duplicate): &(u16, &str, bool)| -> Packet {
        let qos = match packet_id {
            0 => Qos::AtMostOnce,
            _ => Qos::AtLeastOnce,
        };
        if version == mqtt::Version::V5_0 {
            let mut packet = v5_0::Publish::builder()
                .topic_name("plant/press/t")
                .unwrap();
            packet = packet
                .qos(qos)
                .dup(is_duplicate)
                .payload(payload.as_bytes());
            if packet_id > 0 {
                packet = packet.packet_id(packet_id);
            }
            return packet.build().unwrap().into();
        }
        let mut packet = v3_1_1::Publish::builder()
            .topic_name("plant/press/t")
            .unwrap();
        packet = packet
            .qos(qos)
            .dup(is_duplicate)
            .payload(payload.as_bytes());
        if packet_id > 0 {
            packet = packet.packet_id(packet_id);
        }
        packet.build().unwrap().into()
    };
    script.messages.iter().map(message).collect()
}

fn wrapper(address: &str, version: &str, mark: Option<Mark>) -> Box<dyn Wrapper> {
    let file = wrapper_file(&format!(
        "kind = \"mqtt\"\naddress = \"{address}\"\nversion = \"{version}\"\n\
         subscribe = [\"plant/{{machine}}/t\"]\nformat = \"json\"\n\
         [[command]]\nname = \"set\"\ntopic = \"plant/{{machine}}/set\"\npayload = \"{{value}}\"\n\
         [[stream]]\nname = \"t.{{machine}}\"\nfields = [{{ name = \"v\", type = \"integer\" }}]\n"
    ));
    let mut wrapper = open(&file, mark);
    let node = NodeParts {
        id: "0123456789abcdef".into(),
        ..NodeParts::default()
    };
    wrapper.attach(&node).unwrap();
    wrapper
}

async fn until(seen: &Seen, text: &str) {
    let mut changes = seen.subscribe();
    let waiting = changes.wait_for(|seen| seen.iter().any(|one| one == text));
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "{text}: {:?}", seen.borrow());
}

/// Takes batches until so many elements have arrived.
async fn take(wrapper: &mut dyn Wrapper, count: usize) -> (Vec<i64>, Mark) {
    let (mut values, mut mark) = (Vec::new(), Mark::default());
    while values.len() < count {
        let batch = wrapper.next().await.unwrap();
        for element in batch.parts.iter().flat_map(|part| &part.elements) {
            match element.values[0] {
                Value::Integer(value) => values.push(value),
                ref other => panic!("{other:?}"),
            }
        }
        mark = batch.mark;
    }
    (values, mark)
}

#[tokio::test]
async fn a_message_is_acknowledged_when_it_is_stored() {
    for (version, name) in [
        (mqtt::Version::V3_1_1, "3.1.1"),
        (mqtt::Version::V5_0, "5.0"),
    ] {
        let first = Script {
            messages: vec![
                (1, "{\"v\": 1}", false),
                (2, "no", false),
                (3, "{\"v\": 3}", false),
            ],
            ..Script::default()
        };
        let (address, seen) = broker(version, vec![first]).await;
        let mut wrapper = wrapper(&address, name, None);
        let (values, mark) = take(&mut *wrapper, 2).await;
        assert_eq!(values, [1, 3]);
        let early = seen.borrow().clone();
        assert_eq!(
            early,
            ["connect chappe-01234567-test", "subscribe plant/+/t"]
        );
        wrapper.stored(&mark).await.unwrap();
        until(&seen, "puback 3").await;
        let seen = seen.borrow();
        assert_eq!(seen[2..], ["puback 1", "puback 2", "puback 3"]);
    }
}

#[tokio::test]
async fn a_repeated_message_that_is_stored_is_not_stored_again() {
    for (version, name) in [
        (mqtt::Version::V3_1_1, "3.1.1"),
        (mqtt::Version::V5_0, "5.0"),
    ] {
        let first = Script {
            messages: vec![(1, "{\"v\": 1}", false), (2, "{\"v\": 2}", false)],
            ..Script::default()
        };
        // 1 and 2 are repeated, 3 was on its way, and 4 is another message with the content of 2.
        let second = Script {
            had_session: true,
            messages: vec![
                (1, "{\"v\": 1}", true),
                (2, "{\"v\": 2}", true),
                (3, "{\"v\": 3}", true),
                (4, "{\"v\": 2}", false),
            ],
            ..Script::default()
        };
        let (address, seen) = broker(version, vec![first, second]).await;
        let mut before = wrapper(&address, name, None);
        let (values, mark) = take(&mut *before, 2).await;
        assert_eq!(values, [1, 2]);
        // The node ends after it has stored the batch and before it acknowledges.
        drop(before);
        until(&seen, "end").await;
        let mut after = wrapper(&address, name, Some(mark));
        let (values, mark) = take(&mut *after, 2).await;
        assert_eq!(values, [3, 2]);
        after.stored(&mark).await.unwrap();
        until(&seen, "puback 3").await;
        let seen = seen.borrow();
        let again = seen
            .iter()
            .filter(|one| one.starts_with("subscribe"))
            .count();
        assert_eq!(again, 1, "the broker still had the subscription: {seen:?}");
    }
}

#[tokio::test]
async fn a_session_that_the_broker_lost_is_reported() {
    let first = Script {
        messages: vec![(1, "{\"v\": 1}", false)],
        ..Script::default()
    };
    let second = Script {
        messages: vec![(1, "{\"v\": 1}", false)],
        ..Script::default()
    };
    let (address, seen) = broker(mqtt::Version::V5_0, vec![first, second]).await;
    let mut before = wrapper(&address, "5.0", None);
    let (_, mark) = take(&mut *before, 1).await;
    drop(before);
    until(&seen, "end").await;
    let mut after = wrapper(&address, "5.0", Some(mark));
    let batch = after.next().await.unwrap();
    let lost: Vec<_> = batch
        .lost
        .iter()
        .map(|it| (it.reason, it.messages))
        .collect();
    assert_eq!(lost, [("session_expired", 0)]);
    let (values, _) = take(&mut *after, 1).await;
    assert_eq!(values, [1], "a new message of the new session");
}

#[tokio::test]
async fn a_command_is_a_message_that_the_broker_acknowledges() {
    let script = Script {
        messages: vec![(1, "{\"v\": 1}", false)],
        refuses: Some(("9", PubackReasonCode::NotAuthorized)),
        ..Script::default()
    };
    let (address, seen) = broker(mqtt::Version::V5_0, vec![script]).await;
    let mut wrapper = wrapper(&address, "5.0", None);
    let command = |value: i64| Command {
        name: "set".to_owned(),
        arguments: json!({ "machine": "press", "value": value })
            .as_object()
            .unwrap()
            .clone(),
    };
    let early = wrapper.command(&command(7)).await.unwrap_err();
    assert!(matches!(early, WrapperError::Command(_)), "{early}");
    take(&mut *wrapper, 1).await;
    let answer = wrapper.command(&command(7)).await.unwrap();
    assert_eq!(answer, json!({ "acknowledged": true }));
    assert!(
        seen.borrow()
            .contains(&"publish plant/press/set 7".to_owned())
    );
    let error = wrapper.command(&command(9)).await.unwrap_err();
    assert!(error.to_string().contains("refuses"), "{error}");
}

#[tokio::test]
async fn a_broker_that_cannot_be_used_is_an_error_with_a_hint() {
    let mut gone = wrapper("mqtt://127.0.0.1:1", "5.0", None);
    let error = gone.next().await.unwrap_err();
    assert!(
        error.to_string().contains("cannot connect to 127.0.0.1:1"),
        "{error}"
    );
    // A server of another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.unwrap();
        let answer = "HTTP/1.1 400 Bad Request\r\n".repeat(8);
        peer.write_all(answer.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest).await;
    });
    let mut other = wrapper(&format!("mqtt://{address}"), "5.0", None);
    assert!(other.next().await.is_err());
}

#[tokio::test]
async fn elements_are_messages_that_the_broker_acknowledges_or_refuses() {
    let script = Script {
        refuses: Some(("2.0", PubackReasonCode::TopicNameInvalid)),
        ..Script::default()
    };
    let (address, seen) = broker(mqtt::Version::V5_0, vec![script]).await;
    let text = format!(
        "kind = \"mqtt\"\nstreams = [\"a.*\"]\naddress = \"{address}\"\n\
         topic = \"out/{{stream}}/{{key}}\"\nfield = \"v\"\n"
    );
    let mut exporter = exporter(&text);
    let definition = Arc::new(crate::StreamDefinition {
        schema: chappe_stream::StreamSchema {
            fields: vec![chappe_stream::Field {
                name: "v".to_owned(),
                field_type: chappe_stream::FieldType::Text,
                unit: None,
                observed_property: None,
                description: None,
            }],
            key: Some("bed".to_owned()),
        },
        ..Default::default()
    });
    let mut batch = crate::Batch::default();
    for (number, key) in [(1, Some("b/7")), (2, Some("b8")), (3, None)] {
        let mut element = crate::tests::element(0.0);
        element.position.sequence = number;
        element.key = key.map(str::to_owned);
        element.values = vec![Value::Text(format!("{number}.0"))];
        batch.push(&"a.b".into(), &definition, element);
    }
    let written = exporter.write(&batch).await.unwrap();
    let mut refused: Vec<_> = written
        .refused
        .iter()
        .map(|it| (it.position.sequence, it.reason.clone()))
        .collect();
    refused.sort();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[1].1.contains("\"key\" is missing"), "{refused:?}");
    let seen = seen.borrow();
    assert_eq!(
        seen[..],
        [
            "connect chappe-out-out",
            "publish out/a/b/b%2F7 1.0",
            "publish out/a/b/b8 2.0"
        ]
    );
}

/// An exporter with this file, whose name is `out`.
fn exporter(text: &str) -> Box<dyn Exporter> {
    let file = ExporterFile::parse(std::path::Path::new("out.toml"), text).unwrap();
    let opening = ExporterOpening {
        file: &file,
        notes: Default::default(),
        drops: Default::default(),
    };
    let mut exporter = (file.kind().unwrap().open)(opening).unwrap();
    exporter
        .attach(&NodeParts::default(), &Default::default())
        .unwrap();
    exporter
}

/// A batch of one element.
fn batch() -> crate::Batch {
    let definition = Arc::new(crate::StreamDefinition {
        schema: chappe_stream::StreamSchema {
            fields: vec![chappe_stream::Field {
                name: "v".to_owned(),
                field_type: chappe_stream::FieldType::Double,
                unit: Some("Cel".to_owned()),
                observed_property: None,
                description: None,
            }],
            key: None,
        },
        ..Default::default()
    });
    let mut batch = crate::Batch::default();
    batch.push(&"a.b".into(), &definition, crate::tests::element(21.5));
    batch
}

#[tokio::test]
async fn home_assistant_learns_of_a_stream_before_its_first_element() {
    let (address, seen) = broker(mqtt::Version::V5_0, vec![Script::default()]).await;
    let mut exporter = exporter(&format!(
        "kind = \"mqtt\"\nstreams = [\"a.*\"]\naddress = \"{address}\"\nhome_assistant = true\n"
    ));
    exporter.write(&batch()).await.unwrap();
    drop(exporter);
    until(&seen, "end").await;
    let seen = seen.borrow();
    assert_eq!(seen[1], "publish chappe/chappe-out-out/status online");
    let (topic, config) = seen[2]
        .strip_prefix("publish ")
        .unwrap()
        .split_once(' ')
        .unwrap();
    assert!(
        topic.starts_with("homeassistant/sensor/") && topic.ends_with("/v/config"),
        "{topic}"
    );
    let config: serde_json::Value = serde_json::from_str(config).unwrap();
    assert_eq!(config["availability_topic"], "chappe/chappe-out-out/status");
    assert_eq!(config["state_topic"], "chappe/a/b");
    assert!(seen[3].starts_with("publish chappe/a/b {"), "{seen:?}");
    assert_eq!(seen[4], "publish chappe/chappe-out-out/status offline");
}

#[tokio::test]
async fn an_edge_node_is_born_before_its_data_and_says_when_it_ends() {
    let (address, seen) = broker(mqtt::Version::V5_0, vec![Script::default()]).await;
    let mut exporter = exporter(&format!(
        "kind = \"sparkplug\"\nstreams = [\"a.*\"]\naddress = \"{address}\"\ngroup = \"g\"\nedge_node = \"e\"\n"
    ));
    assert!(!exporter.has_room(), "it is not born");
    exporter.delivered().await.unwrap();
    assert!(exporter.has_room());
    let written = exporter.write(&batch()).await.unwrap();
    assert!(written.refused.is_empty() && written.partial.is_none());
    drop(exporter);
    until(&seen, "end").await;
    let seen = seen.borrow();
    let topics: Vec<&str> = seen
        .iter()
        .map(|it| it.split(' ').nth(1).unwrap_or(it))
        .collect();
    let expected = [
        "chappe-out-out",
        "spBv1.0/g/NCMD/e",
        "spBv1.0/g/NBIRTH/e",
        "spBv1.0/g/DBIRTH/e/a.b",
        "spBv1.0/g/DDATA/e/a.b",
        "spBv1.0/g/NDEATH/e",
        "end",
    ];
    assert_eq!(topics, expected);
}
