//! The queue of a subscriber's log is full: nothing overtakes elements that wait for room, nothing
//! is counted twice, and nothing is acknowledged before it is stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chappe_flow::message::{Message, Place, RollbackPoint, SchemaText, Stage, Welcome};
use chappe_flow::{Channel, Level, LossReason as Loss, Records, SchemaId};
use chappe_links::serialization as written;
use chappe_links::session::ConnectionError;
use chappe_links::session::memory::MemoryConnection;
use chappe_links::session::memory::pair;
use chappe_links::*;
use chappe_log::{Commit, Options};
use chappe_sim::SimDisk;
use chappe_stream::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::host::{Node, append_texts, element, link, own_address, schema, text, until};
use crate::hostile::{By, Peer};

/// A node whose queue has this size, and is written only when [`Writing`] does it.
pub(crate) fn narrow(queue_bytes: usize) -> Node {
    let limits = Options {
        commit: Commit::Caller,
        queue_bytes,
        batch_bytes: queue_bytes,
        ..Options::default()
    };
    Node::with(limits, SimDisk::new(2), 2, LinksConfig::default())
}

/// Writes a node's queue repeatedly, until it is dropped.
pub(crate) struct Writing(tokio::task::AbortHandle);

impl Writing {
    pub(crate) fn of(node: &Node) -> Self {
        Self::after(node, Duration::from_millis(1))
    }

    /// Each group is written after a pause, as by a slow disk.
    pub(crate) fn after(node: &Node, pause: Duration) -> Self {
        let store = node.store.store().clone();
        let writing = tokio::spawn(async move {
            loop {
                store.commit().expect("writes");
                tokio::time::sleep(pause).await;
            }
        });
        Self(writing.abort_handle())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn lost(node: &Node) -> Vec<(LossReason, u64)> {
    let lost = node.host.lost.lock().unwrap();
    lost.iter()
        .map(|((_, reason), count)| (*reason, *count))
        .collect()
}

/// The origins of a node's elements, by epoch and number.
fn origins(node: &Node) -> Vec<(u64, u64)> {
    let Some(log) = node.store.existing("a").expect("reads") else {
        return Vec::new();
    };
    let elements = log.newest(10_000).expect("reads");
    let origins = elements.iter().filter_map(|element| element.origin);
    origins.map(|at| (at.epoch.0, at.sequence)).collect()
}

/// Records of version `version`, with that many fields.
pub(crate) fn records(numbers: std::ops::Range<u64>, version: u32) -> Records {
    let record = |number: u64| {
        let mut element = element(Value::Integer(number as i64));
        element
            .values
            .extend((0..version).map(|_| Value::Text("more".into())));
        (
            number as i64,
            encode_element(&element, version).expect("fits"),
        )
    };
    numbers.map(record).collect()
}

/// An origin driven by the test that has granted stream `a`.
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
    peer.hear(|message| matches!(message, Message::Subscribe { .. }).then_some(()))
        .await;
    let bytes = serde_json::to_vec(first).expect("a schema");
    peer.say(Message::Accepted {
        channel: Channel(0),
        rollback: RollbackPoint::No,
        epoch: 1,
        next: 1,
        last: 0,
        level: Level::Power,
        schema: SchemaText {
            version: 0,
            id: SchemaId(written::SchemaId::of(first).0),
            bytes: Some(&bytes),
        },
    })
    .await;
}

#[tokio::test]
async fn nothing_overtakes_records_that_wait_for_room() {
    let subscriber = narrow(450);
    let (here, there) = pair(64);
    let config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &["a"]);
    let dialler = By(tokio::sync::Mutex::new(vec![here]), None);
    subscriber.links.add_over(config, dialler).expect("added");
    let mut origin = Peer::new(there);
    let narrower = schema("v", FieldType::Integer);
    let mut wider = narrower.clone();
    wider.fields.extend(schema("w", FieldType::Text).fields);
    granted(&mut origin, &narrower).await;
    let place = |number, first, kept, epoch| Place {
        channel: Channel(0),
        stage: Stage {
            number,
            first,
            kept,
        },
        epoch,
    };
    let (old, new) = (place(0, 1, 0, 1), place(1, 46, 45, 2));
    let elements = |place, numbers: std::ops::Range<u64>, schema| Message::Records {
        place,
        first: numbers.start,
        schema,
        behind: 0,
        records: records(numbers, schema),
    };
    let loss = |place, from, next| Message::Lost {
        place,
        from,
        next,
        reason: Loss::Corrupt,
    };
    let bytes = serde_json::to_vec(&wider).expect("a schema");
    for message in [
        elements(old, 1..11, 0),
        elements(old, 11..21, 0),
        Message::Schema {
            channel: Channel(0),
            index: 1,
            schema: SchemaText {
                version: 1,
                id: SchemaId(written::SchemaId::of(&wider).0),
                bytes: Some(&bytes),
            },
        },
        elements(old, 21..31, 1),
        loss(old, 31, 41),
        elements(old, 41..51, 1),
        Message::Stage { place: new },
        elements(new, 46..56, 1),
        loss(new, 56, 61),
        Message::Ping { token: 7 },
    ] {
        origin.say(message).await;
    }
    origin
        .hear(|message| match message {
            Message::Acknowledge { entries, .. } => {
                assert!(
                    entries
                        .iter()
                        .all(|entry| entry.stored == 0 && entry.stage == 0)
                );
                None
            }
            Message::Pong { token: 7 } => Some(()),
            _ => None,
        })
        .await;
    assert!(
        subscriber.store.store().counters().refused > 0,
        "it is full"
    );
    assert_eq!(lost(&subscriber), [], "what is before is not stored yet");
    let _writing = Writing::of(&subscriber);
    let sent = (1..31).chain(41..51).map(|number| (1, number));
    let sent: Vec<_> = sent.chain((46..56).map(|number| (2, number))).collect();
    origin
        .hear(|message| {
            let Message::Acknowledge { entries, .. } = message else {
                return None;
            };
            let stored: BTreeSet<_> = origins(&subscriber).into_iter().collect();
            entries.iter().find_map(|entry| {
                let epoch = u64::from(entry.stage) + 1;
                let covered = sent
                    .iter()
                    .filter(|(of, number)| *of == epoch && *number <= entry.stored);
                for at in covered {
                    assert!(stored.contains(at), "{at:?} is acknowledged and not stored");
                }
                (epoch == 2 && entry.stored == 60).then_some(())
            })
        })
        .await;
    assert_eq!(origins(&subscriber), sent);
    assert_eq!(lost(&subscriber), [(LossReason::Corrupt, 15)]);
    let log = subscriber
        .store
        .existing("a")
        .expect("reads")
        .expect("there");
    assert_eq!(log.schema(), wider);
    let last = log.newest(1).expect("reads").remove(0);
    assert_eq!(
        last.values,
        [Value::Integer(55), Value::Text("more".into())]
    );
    let rollbacks = subscriber.notices();
    let rollback = |it: &&LinkNotice| matches!(it, LinkNotice::Rollback { .. });
    assert_eq!(rollbacks.iter().filter(rollback).count(), 1);
}

/// Dials an origin in this process.
pub(crate) struct Direct(pub(crate) Links);

impl Dialler for Direct {
    type Connection = MemoryConnection;

    async fn dial(&self) -> Result<MemoryConnection, ConnectionError> {
        let (here, there) = pair(16);
        let links = self.0.clone();
        tokio::spawn(async move { drop(links.serve(there).await) });
        Ok(here)
    }
}

/// Stream `a` with texts that can be found in its files; some are damaged there.
pub(crate) fn damaged(disk: &SimDisk, count: i64, is_damaged: impl Fn(i64) -> bool) {
    let node = Node::on(disk.clone(), 3, LinksConfig::default());
    let log = node.empty("a", &schema("v", FieldType::Text));
    append_texts(&log, 0..count);
    drop(log);
    node.links.close();
    node.store.store().clone().close().expect("closes");
    for file in disk.names().iter().filter(|it| it.ends_with(".segment")) {
        let bytes = disk.bytes(file).expect("there");
        for n in (0..count).filter(|n| is_damaged(*n)) {
            let wanted = text(n).into_bytes();
            let found = bytes.windows(wanted.len()).position(|it| it == wanted);
            if let Some(at) = found {
                assert!(disk.flip(file, 8 * at as u64));
            }
        }
    }
}

#[tokio::test]
async fn a_full_queue_stores_all_intact_elements() {
    let disk = SimDisk::new(1);
    damaged(&disk, 1_000, |n| n % 8 == 4 && n < 999);
    let origin = Node::on(disk, 4, LinksConfig::default());
    let subscriber = narrow(20_000);
    let _writing = Writing::of(&subscriber);
    let config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &["a"]);
    let dialler = Direct(origin.links.clone());
    subscriber.links.add_over(config, dialler).expect("added");
    let log = origin.store.existing("a").expect("reads").expect("there");
    let kept = log.newest(10_000).expect("reads");
    assert!(kept.len() < 1_000, "some records are damaged");
    let copy = subscriber.wait_for("a", kept.len()).await;
    crate::host::assert_same(&log, &copy);
    let missing = 1_000 - kept.len() as u64;
    assert_eq!(lost(&subscriber), [(LossReason::Corrupt, missing)]);
    assert!(
        subscriber.store.store().counters().refused > 0,
        "it was full"
    );
}

/// An origin of stream `a` that responds to a pull with elements that leave a gap, and ends.
async fn gappy(asked: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind((own_address(), 0)).await.expect("bound");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let of = schema("v", FieldType::Integer);
    let mut body = Vec::new();
    let structure = written::Document::Structure(written::Structure {
        stream: "a".into(),
        version: 0,
        schema: of.clone(),
    });
    let at = |sequence| Position {
        epoch: Epoch(1),
        sequence,
    };
    let numbers = (1..11).chain(21..31);
    let elements = numbers.map(|number| StreamElement {
        position: at(number),
        ..element(Value::Integer(number as i64))
    });
    let elements = written::Document::Elements(written::Elements {
        stream: "a".into(),
        schema: written::SchemaRef {
            id: written::SchemaId::of(&of),
            version: 0,
        },
        elements: elements.collect(),
        ..Default::default()
    });
    let documents = [structure, elements];
    for document in &documents {
        let encoded = Serialization::Postcard.encode(document, &of, &mut body);
        encoded.expect("a document");
    }
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a request"));
            }
            asked.fetch_add(1, Ordering::Relaxed);
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream
                .write_all(&[head.into_bytes(), body.clone()].concat())
                .await;
        }
    });
    address
}

#[tokio::test]
async fn skipped_numbers_are_counted_once() {
    let subscriber = narrow(450);
    let asked = Arc::new(AtomicUsize::new(0));
    let address = gappy(asked.clone()).await;
    let mut config = link(LinkKind::HttpPull, address, &["a"]);
    config.serialization = Some(Serialization::Postcard);
    subscriber.links.add(config).expect("added");
    // The elements after the gap wait for room, and are retried when there is some.
    let refused = || subscriber.store.store().counters().refused;
    until("the queue was full", || refused() >= 1).await;
    let _writing = Writing::of(&subscriber);
    let is_copied = || origins(&subscriber).len() >= 20 && asked.load(Ordering::Relaxed) >= 3;
    until("it is copied", is_copied).await;
    let sent = (1..11).chain(21..31).map(|number| (1, number));
    assert_eq!(origins(&subscriber), sent.collect::<Vec<_>>());
    assert_eq!(lost(&subscriber), [(LossReason::Skipped, 10)]);
    let status = subscriber.links.show("test").expect("there");
    let counted = status.streams[0].counts.lost.get("skipped").copied();
    assert_eq!(counted, Some(10));
}
