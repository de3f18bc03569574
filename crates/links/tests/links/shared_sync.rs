//! Goal: however many ranges of an origin's log are damaged, the elements between them and the
//! losses share the syncs of the subscriber's log. Method: the subscriber's log writes nothing
//! until the link has queued everything that the origin still has; then one commit has to store it.

use std::time::Duration;

use chappe_links::*;
use chappe_log::{Committed, Level};
use chappe_sim::SimDisk;
use chappe_stream::*;

use crate::full_queue::{Direct, Writing, damaged, narrow};
use crate::host::{Node, PATIENCE, assert_same, link, schema};
use crate::server::{Server, serve};

const RECORDS: i64 = 300;

/// Single records are damaged: each is a range of its own.
fn is_damaged(n: i64) -> bool {
    n % 3 == 1 && n < RECORDS - 1
}

/// A link that has queued everything; nothing is written yet.
struct Queued {
    origin: StreamLog,
    _server: Server,
    subscriber: Node,
    copy: StreamLog,
    kept: usize,
}

impl Queued {
    async fn new(kind: LinkKind, serialization: Option<Serialization>) -> Self {
        let disk = SimDisk::new(1);
        damaged(&disk, RECORDS, is_damaged);
        let node = Node::on(disk, 4, LinksConfig::default());
        let origin = node.store.existing("a").expect("reads").expect("there");
        let kept = origin.newest(1_000).expect("reads").len();
        let server = serve(&node.links, None).await;
        let subscriber = narrow(1 << 20);
        // An existing stream is opened without a write.
        let of = schema("v", FieldType::Text);
        let store = &subscriber.store;
        let copy = store.stream("a", Level::Power, &of, Some("test"));
        let copy = copy.expect("made");
        let mut config = link(kind, server.url(), &["a"]);
        config.serialization = serialization;
        let added = if kind == LinkKind::Zeromq {
            config.address = "tcp://127.0.0.1:1".into();
            let dialler = Direct(node.links.clone());
            subscriber.links.add_over(config, dialler)
        } else {
            subscriber.links.add(config)
        };
        added.expect("added");
        let queued = async {
            while copy.log().assigned() < kept as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let queued = tokio::time::timeout(PATIENCE, queued).await;
        let assigned = copy.log().assigned();
        queued
            .unwrap_or_else(|_| panic!("{kind:?}: {assigned} of {kept} elements wait for a sync"));
        Self {
            origin,
            _server: server,
            subscriber,
            copy,
            kept,
        }
    }

    /// Everything is stored once, and each loss counted once.
    async fn judge(&self) {
        let stored = self.subscriber.wait_for("a", self.kept).await;
        assert_same(&self.origin, &stored);
        let lost = self.subscriber.host.lost.lock().unwrap().clone();
        let missing = RECORDS as u64 - self.kept as u64;
        assert!(missing > 90, "{missing} are damaged");
        let reported = [(("a".to_owned(), LossReason::Corrupt), missing)];
        assert_eq!(lost.into_iter().collect::<Vec<_>>(), reported);
    }

    async fn in_one_group(self) {
        let store = self.subscriber.store.store();
        assert_eq!(store.commit().expect("writes"), Committed::Group);
        self.judge().await;
    }

    /// The disk is full: the log retracts all numbers, and the link reconnects.
    async fn in_a_second_session(self) {
        let store = self.subscriber.store.store();
        self.subscriber.disk.set_capacity(0);
        for _ in 0..10_000 {
            let _full = store.commit();
            if self.copy.log().assigned() == 0 {
                break;
            }
        }
        assert_eq!(self.copy.log().assigned(), 0, "all numbers are retracted");
        self.subscriber.disk.set_capacity(u64::MAX);
        let _writing = Writing::after(&self.subscriber, Duration::from_millis(1));
        self.judge().await;
    }
}

const FORMS: [Serialization; 3] = [
    Serialization::Xml,
    Serialization::Postcard,
    Serialization::MessagePack,
];

#[tokio::test]
async fn losses_of_a_session_share_a_sync_with_the_elements_between_them() {
    Queued::new(LinkKind::Zeromq, None)
        .await
        .in_one_group()
        .await;
}

#[tokio::test]
async fn losses_of_a_pull_share_a_sync_with_the_elements_between_them() {
    for form in FORMS {
        let queued = Queued::new(LinkKind::HttpPull, Some(form)).await;
        queued.in_one_group().await;
    }
}

#[tokio::test]
async fn losses_that_a_full_disk_took_back_are_counted_once() {
    let session = Queued::new(LinkKind::Zeromq, None).await;
    session.in_a_second_session().await;
    for form in FORMS {
        let pull = Queued::new(LinkKind::HttpPull, Some(form)).await;
        pull.in_a_second_session().await;
    }
}
