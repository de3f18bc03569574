//! Goal: elements that a subscriber has of an earlier epoch are not stored again when its origin
//! returns to that epoch. Method: an origin is restored from one backup twice, and from another in
//! between, over each reliable kind of link.

use std::collections::BTreeSet;

use chappe_links::*;
use chappe_stream::StreamLog;

use crate::host::{Node, append, link};
use crate::server::{serve, serve_contact};
use crate::session::Cutting;

const KINDS: [LinkKind; 3] = [LinkKind::Zeromq, LinkKind::HttpPull, LinkKind::HttpPush];

/// The node started on a copy of this one's disk.
fn restored(backup: &Node, seed: u64) -> (Node, StreamLog) {
    let node = Node::on(backup.disk.copied(), seed, LinksConfig::default());
    let log = node.store.existing("a").expect("reads").expect("there");
    (node, log)
}

/// Links to the origin until the copy has `count` elements; then the link ends.
async fn copies(kind: LinkKind, origin: &Node, subscriber: &Node, count: usize) {
    let server = serve(&origin.links, None).await;
    let _contact = serve_contact(subscriber).await;
    let config = link(kind, server.url(), &["a"]);
    let added = match kind {
        LinkKind::Zeromq => {
            let address = "tcp://127.0.0.1:1".into();
            let config = LinkConfig { address, ..config };
            subscriber
                .links
                .add_over(config, Cutting::never(&origin.links))
        }
        _ => subscriber.links.add(config),
    };
    added.expect("added");
    let copy = subscriber.wait_for("a", count).await;
    let distinct: BTreeSet<_> = copy.iter().map(|it| it.origin).collect();
    assert_eq!(distinct.len(), copy.len(), "{kind:?}: stored twice");
    assert_eq!(copy.len(), count, "{kind:?}");
    subscriber.links.remove("test").expect("there");
}

#[tokio::test]
async fn elements_of_an_earlier_epoch_are_stored_once() {
    for kind in KINDS {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("a", 10);
        let (early, _) = restored(&origin, 3);
        append(&log, 10..15);
        copies(kind, &origin, &subscriber, 15).await;
        // The backup of 10 elements, with other elements after them.
        let (second, log) = restored(&early, 4);
        append(&log, 20..26);
        copies(kind, &second, &subscriber, 21).await;
        // The same backup again: of the subscriber's epochs it knows only the first.
        let (third, log) = restored(&early, 5);
        append(&log, 30..34);
        copies(kind, &third, &subscriber, 25).await;
        // A backup of the second is restored.
        let (fourth, log) = restored(&second, 6);
        append(&log, 40..42);
        copies(kind, &fourth, &subscriber, 27).await;
        let rollbacks = subscriber.notices();
        let rollbacks = rollbacks
            .iter()
            .filter(|it| matches!(it, LinkNotice::Rollback { .. }));
        assert_eq!(rollbacks.count(), 3, "{kind:?}");
        assert!(subscriber.host.lost.lock().unwrap().is_empty(), "{kind:?}");
    }
}

/// Each origin reports that the other's position is unknown, which is a rollback here.
#[tokio::test]
async fn two_origins_feed_one_stream_in_turn() {
    for kind in KINDS {
        let origins = [Node::new(1), Node::new(2)];
        let subscriber = Node::new(3);
        let logs = [origins[0].stream("a", 0), origins[1].stream("a", 0)];
        let mut count = 0;
        for turn in 0..5 {
            let number = turn % 2;
            append(&logs[number], 0..7);
            count += 7;
            copies(kind, &origins[number], &subscriber, count).await;
        }
        for (number, log) in logs.iter().enumerate() {
            let all = log.newest(1_000).expect("reads");
            let copy = subscriber.wait_for("a", count).await;
            let here = copy.iter().filter_map(|it| it.origin);
            let here = here.filter(|it| it.epoch == all[0].position.epoch);
            let there = all.iter().map(|it| it.position);
            assert!(here.eq(there), "{kind:?}: origin {number}");
        }
    }
}
