//! Goal: however many stretches of an origin's log are damaged, the elements between them and the losses
//! share the syncs of the subscriber's log.
//! Method: the subscriber's log writes nothing until the link has queued all that the origin still has;
//! then one group has to store it.

use std::time::Duration;

use chappe_log::{Committed, Level};
use chappe_sim::SimDisk;
use chappe_stream::*;
use chappe_wrappers::links::*;

use crate::full_queue::{Direct, damaged, narrow};
use crate::host::{Node, PATIENCE, assert_same, link, schema};
use crate::server::serve;

const RECORDS: i64 = 300;

/// Damaged are single records: each is a stretch of its own.
fn is_damaged(n: i64) -> bool {
    n % 3 == 1 && n < RECORDS - 1
}

async fn copy_in_one_group(kind: LinkKind, serialization: Option<Serialization>) {
    let disk = SimDisk::new(1);
    damaged(&disk, RECORDS, is_damaged);
    let origin = Node::on(disk, 4, LinksConfig::default());
    let log = origin.store.existing("a").expect("reads").expect("there");
    let kept = log.newest(1_000).expect("reads").len();
    let server = serve(&origin.links, None).await;
    let subscriber = narrow(1 << 20);
    // A stream that is there already is opened without a write.
    let of = schema("v", FieldType::Text);
    let made = subscriber
        .store
        .stream("a", Level::Power, &of, Some("test"));
    let copy = made.expect("made");
    let mut config = link(kind, server.url(), &["a"]);
    config.serialization = serialization;
    let added = if kind == LinkKind::Zeromq {
        config.address = "tcp://127.0.0.1:1".into();
        let dialler = Direct(origin.links.clone());
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
    queued.unwrap_or_else(|_| panic!("{kind:?}: {assigned} of {kept} elements wait for a sync"));
    let store = subscriber.store.store();
    assert_eq!(store.commit().expect("writes"), Committed::Group);
    assert_same(&log, &subscriber.wait_for("a", kept).await);
    let lost = subscriber.host.lost.lock().unwrap().clone();
    let missing = RECORDS as u64 - kept as u64;
    assert!(missing > 90, "{missing} are damaged");
    let told = [(("a".to_owned(), LossReason::Corrupt), missing)];
    assert_eq!(lost.into_iter().collect::<Vec<_>>(), told);
}

#[tokio::test]
async fn losses_of_a_session_share_a_sync_with_the_elements_between_them() {
    copy_in_one_group(LinkKind::Zeromq, None).await;
}

#[tokio::test]
async fn losses_of_a_pull_share_a_sync_with_the_elements_between_them() {
    for form in [
        Serialization::Xml,
        Serialization::Postcard,
        Serialization::MessagePack,
    ] {
        copy_in_one_group(LinkKind::HttpPull, Some(form)).await;
    }
}
