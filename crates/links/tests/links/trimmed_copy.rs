//! A subscriber's copy is emptied, by its retention or by hand: after a restart each kind of link
//! resumes at its position, and no element is fetched and stored again. The log's own tests cover
//! power loss.

use std::time::Duration;

use chappe_links::*;
use chappe_log::Options;
use chappe_sim::SimDisk;
use chappe_stream::*;

use crate::full_queue::Direct;
use crate::host::{Node, append, link};
use crate::server::{Server, serve, serve_contact};

const RELIABLE: [LinkKind; 3] = [LinkKind::Zeromq, LinkKind::HttpPull, LinkKind::HttpPush];

/// The numbers at the origin of what the copy has.
fn numbers(copy: &[StreamElement]) -> Vec<u64> {
    let origins = copy.iter().filter_map(|element| element.origin);
    origins.map(|at| at.sequence).collect()
}

/// The copy after `empty` has removed all of it and the node was restarted from its disk, while the
/// origin appended elements 60 to 70.
async fn copy_after(kind: LinkKind, limits: Options, empty: impl AsyncFn(&Node)) -> Vec<u64> {
    let origin = Node::new(1);
    let server = serve(&origin.links, None).await;
    let log = origin.stream("a", 50);
    let config = link(kind, server.url(), &["a"]);
    let mut disk = SimDisk::new(2);
    for round in 0..2 {
        let subscriber = Node::with(
            limits.clone(),
            disk.clone(),
            10 + round,
            LinksConfig::default(),
        );
        let _contact = serve_contact(&subscriber).await;
        match kind {
            LinkKind::Zeromq => {
                let mut config = config.clone();
                config.address = "tcp://127.0.0.1:1".into();
                let dialler = Direct(origin.links.clone());
                subscriber.links.add_over(config, dialler).expect("added");
            }
            _ => subscriber.links.add(config.clone()).expect("added"),
        }
        if round == 1 {
            append(&log, 60..70);
            // The other link's last element arrives last, so that nothing is left to wait for.
            let copy = subscriber.wait_for("a", 10).await;
            return numbers(&copy);
        }
        subscriber.wait_for("a", 50).await;
        append(&log, 50..60);
        subscriber.wait_for("a", 60).await;
        subscriber.links.close();
        empty(&subscriber).await;
        disk = subscriber.disk.kill();
        subscriber.store.store().clone().abandon();
    }
    Vec::new()
}

fn copy_of(node: &Node) -> StreamLog {
    node.store.existing("a").expect("reads").expect("there")
}

#[tokio::test]
async fn a_link_resumes_after_its_copy_is_trimmed() {
    for kind in RELIABLE {
        let by_hand = async |node: &Node| {
            let trimmed = copy_of(node).log().trim(u64::MAX).expect("queued");
            trimmed.await.expect("trimmed");
        };
        let copy = copy_after(kind, Options::default(), by_hand).await;
        assert_eq!(copy, (61..71).collect::<Vec<_>>(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_link_resumes_after_its_copy_is_too_old() {
    for kind in RELIABLE {
        let by_age = async |node: &Node| {
            let log = copy_of(node);
            let age = Some(Duration::from_secs(60));
            let retention = Retention {
                elements: None,
                age,
            };
            log.set_retention(Some(retention)).expect("set");
            log.retain(Timestamp(i64::MAX / 2)).expect("looked at");
            // The mark enters the log before a definition that is queued later.
            log.set_retention(None).expect("set");
            assert_eq!(log.newest(1), Ok(Vec::new()));
        };
        let copy = copy_after(kind, Options::default(), by_age).await;
        assert_eq!(copy, (61..71).collect::<Vec<_>>(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_link_resumes_after_the_size_limit_removed_its_copy() {
    for kind in RELIABLE {
        let limits = Options {
            segment_bytes: 4_096,
            retain_bytes: Some(5 * 4_096),
            ..Options::default()
        };
        let by_size = async |node: &Node| {
            let log = copy_of(node);
            let busy = node.stream("busy", 0);
            for n in 0..500 {
                append(&busy, n..n + 1);
            }
            assert_eq!(log.newest(1), Ok(Vec::new()));
        };
        let copy = copy_after(kind, limits, by_size).await;
        assert_eq!(copy, (61..71).collect::<Vec<_>>(), "{kind:?}");
    }
}

/// Losses in two epochs of an origin are skipped in both: a link that resumes directly after them
/// reports no rollback.
#[tokio::test]
async fn a_link_resumes_after_losses_in_several_epochs() {
    for kind in RELIABLE {
        let disk = SimDisk::new(1);
        let before = Node::on(disk.clone(), 1, LinksConfig::default());
        before.stream("a", 10);
        let subscriber = Node::new(2);
        let _contact = serve_contact(&subscriber).await;
        let _first = copy_over(kind, &before, &subscriber).await;
        subscriber.wait_for("a", 10).await;
        subscriber.links.remove("test").expect("there");
        append(
            &before.store.existing("a").expect("reads").expect("there"),
            10..15,
        );
        before.links.close();
        before.store.store().clone().close().expect("closes");
        // The copy of its files continues in a new epoch, whose elements are lost too.
        let origin = Node::on(disk.copied(), 3, LinksConfig::default());
        let log = origin.store.existing("a").expect("reads").expect("there");
        append(&log, 15..20);
        log.log().trim(21).expect("queued").await.expect("trimmed");
        let lost = || -> u64 { subscriber.host.lost.lock().unwrap().values().sum() };
        let _second = copy_over(kind, &origin, &subscriber).await;
        subscriber.wait_until(|| lost() == 10).await;
        subscriber.links.remove("test").expect("there");
        append(&log, 20..25);
        let _third = copy_over(kind, &origin, &subscriber).await;
        let copy = subscriber.wait_for("a", 15).await;
        assert_eq!(numbers(&copy), Vec::from_iter((1..=10).chain(21..=25)));
        assert_eq!(lost(), 10, "{kind:?}");
        let rollback = |it: &LinkNotice| matches!(it, LinkNotice::Rollback { .. });
        assert!(!subscriber.notices().iter().any(rollback), "{kind:?}");
    }
}

/// Adds a link from one node to the other.
async fn copy_over(kind: LinkKind, origin: &Node, subscriber: &Node) -> Option<Server> {
    if kind == LinkKind::Zeromq {
        let config = link(kind, "tcp://127.0.0.1:1".into(), &["a"]);
        let dialler = Direct(origin.links.clone());
        subscriber.links.add_over(config, dialler).expect("added");
        return None;
    }
    let server = serve(&origin.links, None).await;
    let config = link(kind, server.url(), &["a"]);
    subscriber.links.add(config).expect("added");
    Some(server)
}
