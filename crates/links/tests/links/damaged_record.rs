//! Goal: whichever record of an origin's log is damaged, each link that catches up stores every
//! other element once, in order, and reports the damaged one as lost. Method: for each position of
//! a short log, eight links of three kinds feed one node whose queue holds a fraction of their data
//! and is written only once it was full, and with pauses; judged by both logs and by the reported
//! losses.

use std::time::Duration;

use chappe_links::*;
use chappe_log::Level;
use chappe_sim::SimDisk;
use chappe_stream::*;
use tokio::task::JoinSet;

use crate::full_queue::{Direct, Writing, damaged, narrow};
use crate::host::{Node, append_texts, assert_same, link, schema, until};
use crate::server::{serve, serve_contact};

const RECORDS: i64 = 40;
const KINDS: [LinkKind; 3] = [LinkKind::Zeromq, LinkKind::HttpPull, LinkKind::HttpPush];
const LINKS: usize = 8;
/// Two records and more of each link, and one whole response of an origin.
const QUEUE_BYTES: usize = 5_000;
/// Positions that are tested concurrently.
const TOGETHER: usize = 8;
/// Duration of a sync.
const PAUSES_MS: [u64; 4] = [1, 3, 10, 30];

/// A node with all links, each of which copies stream `a` under a prefix of its own.
async fn catching_up(origin: &Node, url: &str) -> (Node, crate::server::Server) {
    let subscriber = narrow(QUEUE_BYTES);
    let contact = serve_contact(&subscriber).await;
    for number in 0..LINKS {
        let name = format!("link-{number}");
        // An existing stream is opened without a write, so that the queue fills.
        let copy = (format!("{name}.a"), schema("v", FieldType::Text));
        let made = subscriber
            .store
            .stream(&copy.0, Level::Power, &copy.1, Some(&name));
        made.expect("made");
        let kind = KINDS[number % KINDS.len()];
        let is_session = kind == LinkKind::Zeromq;
        let address = if is_session { "tcp://127.0.0.1:1" } else { url };
        let mut config = link(kind, address.into(), &["a"]);
        config.name.clone_from(&name);
        config.as_prefix = Some(name);
        let added = if is_session {
            let dialler = Direct(origin.links.clone());
            subscriber.links.add_over(config, dialler)
        } else {
            subscriber.links.add(config)
        };
        added.expect("added");
    }
    (subscriber, contact)
}

async fn judge(position: i64, log: &StreamLog, subscriber: &Node) {
    let kept = log.newest(1_000).expect("reads");
    let missing = log.log().last() - kept.len() as u64;
    assert_eq!(missing, 1, "record {position} is damaged");
    for number in 0..LINKS {
        let local = format!("link-{number}.a");
        let copy = subscriber.wait_for(&local, kept.len()).await;
        assert_same(log, &copy);
        let lost = subscriber.host.lost.lock().unwrap();
        let reported: Vec<_> = lost
            .iter()
            .filter(|((name, _), _)| *name == local)
            .collect();
        let expected = (local.clone(), LossReason::Corrupt);
        assert_eq!(reported, [(&expected, &1)], "record {position}");
    }
}

async fn catch_up_with_a_damaged_record(position: i64) {
    let disk = SimDisk::new(position as u64);
    damaged(&disk, RECORDS, |n| n == position);
    let origin = Node::on(disk, 4, LinksConfig::default());
    let log = origin.store.existing("a").expect("reads").expect("there");
    // Marks the end of the damage if the last record is damaged.
    append_texts(&log, RECORDS..RECORDS + 1);
    let server = serve(&origin.links, None).await;
    let (subscriber, _contact) = catching_up(&origin, &server.url()).await;
    let refused = || subscriber.store.store().counters().refused;
    until("the queue is full", || refused() > 0).await;
    let pause = PAUSES_MS[position as usize % PAUSES_MS.len()];
    let _writing = Writing::after(&subscriber, Duration::from_millis(pause));
    judge(position, &log, &subscriber).await;
    subscriber.links.close();
    origin.links.close();
}

#[tokio::test]
async fn a_damaged_record_at_any_position_is_the_only_one_that_is_lost() {
    let mut positions: Vec<i64> = (0..RECORDS).collect();
    while !positions.is_empty() {
        let mut together = JoinSet::new();
        for position in positions.split_off(positions.len().saturating_sub(TOGETHER)) {
            together.spawn(catch_up_with_a_damaged_record(position));
        }
        together.join_all().await;
    }
}
