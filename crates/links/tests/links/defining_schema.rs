//! A new schema version is defined without waiting for the disk: the session continues, other
//! streams are stored, and no element of the version is stored before its definition. Method: a
//! subscriber whose log is written only when the test does it, and an origin driven by the test.

use chappe_flow::message::{Message, Place, SchemaText, Stage, Welcome};
use chappe_flow::{Channel, Level, SchemaId};
use chappe_links::serialization as written;
use chappe_links::session::memory::pair;
use chappe_links::*;
use chappe_stream::*;

use crate::full_queue::{Writing, narrow, records};
use crate::host::{Node, link, schema};
use crate::hostile::{By, Peer};

const STREAMS: [&str; 2] = ["a", "b"];

fn text(version: u32, schema: &StreamSchema, bytes: &'static [u8]) -> SchemaText<'static> {
    SchemaText {
        version,
        id: SchemaId(written::SchemaId::of(schema).0),
        bytes: Some(bytes),
    }
}

fn json(schema: &StreamSchema) -> &'static [u8] {
    serde_json::to_vec(schema).expect("a schema").leak()
}

/// An origin driven by the test that has granted both streams.
async fn granted(peer: &mut Peer, first: &StreamSchema) {
    let session = peer
        .hear(|message| match message {
            Message::Hello(hello) => Some(hello.session),
            _ => None,
        })
        .await;
    peer.say(Message::Welcome(Welcome {
        version: chappe_flow::VERSION_MAX,
        session,
        frame_bytes_max: 100_000,
        dead_after_ms: 300_000,
    }))
    .await;
    let mut asked = 0;
    peer.hear(|message| {
        asked += usize::from(matches!(message, Message::Subscribe { .. }));
        (asked == STREAMS.len()).then_some(())
    })
    .await;
    for number in 0..STREAMS.len() as u32 {
        peer.say(Message::Accepted {
            channel: Channel(number),
            rollback: chappe_flow::message::RollbackPoint::No,
            epoch: 1,
            next: 1,
            last: 0,
            level: Level::Power,
            schema: text(0, first, json(first)),
        })
        .await;
    }
}

fn elements(channel: u32, numbers: std::ops::Range<u64>, version: u32) -> Message<'static> {
    let place = Place {
        channel: Channel(channel),
        stage: Stage {
            number: 0,
            first: 1,
            kept: 0,
        },
        epoch: 1,
    };
    Message::Records {
        place,
        first: numbers.start,
        schema: version,
        behind: 0,
        records: records(numbers, version),
    }
}

/// Returns when the subscriber has handled all earlier messages.
async fn handled(peer: &mut Peer, token: u64) {
    peer.say(Message::Ping { token }).await;
    peer.hear(|message| {
        matches!(message, Message::Pong { token: it } if *it == token).then_some(())
    })
    .await;
}

fn queued(node: &Node, stream: &str) -> u64 {
    let log = node.store.existing(stream).expect("reads").expect("there");
    log.log().assigned()
}

#[tokio::test]
async fn a_changed_schema_holds_up_its_own_stream_alone() {
    let subscriber = narrow(1 << 20);
    let (here, there) = pair(64);
    let config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &STREAMS);
    let dialler = By(tokio::sync::Mutex::new(vec![here]), None);
    subscriber.links.add_over(config, dialler).expect("added");
    let mut origin = Peer::new(there);
    let narrower = schema("v", FieldType::Integer);
    let mut wider = narrower.clone();
    wider.fields.extend(schema("w", FieldType::Text).fields);
    granted(&mut origin, &narrower).await;
    origin.say(elements(0, 1..11, 0)).await;
    handled(&mut origin, 1).await;
    assert_eq!(queued(&subscriber, "a"), 10);

    let syncs = subscriber.store.store().counters().syncs;
    let changed = Message::Schema {
        channel: Channel(0),
        index: 1,
        schema: text(1, &wider, json(&wider)),
    };
    for message in [changed, elements(0, 11..21, 1), elements(1, 1..6, 0)] {
        origin.say(message).await;
    }
    handled(&mut origin, 2).await;
    let after = subscriber.store.store().counters().syncs;
    assert_eq!(after, syncs, "the session waits for the disk");
    assert_eq!(queued(&subscriber, "a"), 10, "the version is not safe yet");
    assert_eq!(queued(&subscriber, "b"), 5, "another stream goes on");

    let _writing = Writing::of(&subscriber);
    let copy = subscriber.wait_for("a", 20).await;
    let numbers: Vec<_> = copy.iter().map(|it| it.values[0].clone()).collect();
    let sent: Vec<_> = (1..21).map(Value::Integer).collect();
    assert_eq!(numbers, sent);
    let more: Vec<_> = copy.iter().map(|it| it.values[1].clone()).collect();
    let (old, new) = more.split_at(10);
    assert!(old.iter().all(|value| *value == Value::Null), "{old:?}");
    assert!(
        new.iter().all(|value| *value == Value::Text("more".into())),
        "{new:?}"
    );
    subscriber.wait_for("b", 5).await;
}
