//! A stream's schema changes and returns to an earlier one: copies have the origin's values,
//! although they received them while another schema was current.

use chappe_links::*;
use chappe_stream::*;
use chappe_transport::Drops;
use chappe_transport::zeromq::{Limits, Router, Security};

use crate::host::{Node, append, assert_same, link, own_address, schema};
use crate::{best_effort, server};

fn named(field: &str) -> StreamSchema {
    schema(field, FieldType::Integer)
}

/// The origin's stream: 300 elements of one schema, then 20 of another, which is current.
fn changed(origin: &Node) -> StreamLog {
    let log = origin.stream("a", 300);
    log.set_schema(&named("w")).expect("changes");
    append(&log, 300..320);
    log
}

/// The schema returns; whichever of both is current, the copy has the origin's values.
async fn assert_same_in_both(log: &StreamLog, subscriber: &Node) {
    let copy = subscriber.wait_for("a", 320).await;
    assert_same(log, &copy);
    log.set_schema(&named("v")).expect("returns");
    append(log, 320..330);
    let copy = subscriber.wait_for("a", 330).await;
    assert!(copy[299].values[0] == Value::Integer(299), "{copy:?}");
    assert_same(log, &copy);
    let copy = subscriber
        .store
        .existing("a")
        .expect("reads")
        .expect("there");
    assert_eq!((copy.schema(), copy.schema_version()), (named("v"), 0));
    for log in [log, &copy] {
        log.set_schema(&named("w")).expect("changes");
    }
    assert_same(log, &copy.newest(1_000).expect("reads"));
}

/// The subscriber reads the origin's stream over a session.
async fn read_over_a_session(origin: &Node, subscriber: &Node) {
    let endpoint = format!("tcp://{}:0", own_address());
    let (limits, drops) = (Limits::default(), Drops::default());
    let router = Router::bind(&endpoint, Security::Null, limits, drops);
    let router = router.await.expect("bound");
    let address = router.local_endpoint().to_string();
    let links = origin.links.clone();
    tokio::spawn(async move { links.serve_zeromq(router).await });
    let config = link(LinkKind::Zeromq, address, &["a"]);
    subscriber.links.add(config).expect("added");
}

#[tokio::test]
async fn over_a_session_copies_keep_the_values_of_each_schema() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = changed(&origin);
    read_over_a_session(&origin, &subscriber).await;
    assert_same_in_both(&log, &subscriber).await;
}

/// More versions than a subscriber confirms at once, each used more than once.
#[tokio::test]
async fn one_session_carries_as_many_versions_as_a_log_keeps() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let versions: Vec<_> = (0..200).map(|n| named(&format!("f{n}"))).collect();
    let log = origin.empty("a", &versions[0]);
    for (number, schema) in versions.iter().chain(&versions).enumerate() {
        log.set_schema(schema).expect("changes");
        append(&log, number as i64..number as i64 + 1);
    }
    read_over_a_session(&origin, &subscriber).await;
    subscriber.wait_for("a", 400).await;
    let status = subscriber.links.show("test").expect("there");
    assert_eq!((status.reconnects, &status.streams[0].refusal), (0, &None));
    let copy = subscriber
        .store
        .existing("a")
        .expect("reads")
        .expect("there");
    for schema in versions.iter().step_by(20) {
        for log in [&log, &copy] {
            log.set_schema(schema).expect("known");
        }
        assert_same(&log, &copy.newest(1_000).expect("reads"));
    }
}

#[tokio::test]
async fn by_best_effort_copies_keep_the_values_of_each_schema() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 1);
    let (publisher, address, directory) = best_effort::serve(&origin).await;
    let mut config = link(LinkKind::ZeromqBestEffort, address, &["a"]);
    config.directory = Some(directory);
    config.serialization = Some(Serialization::Xml);
    subscriber.links.add(config).expect("added");
    let mut changes = publisher.changes();
    while !publisher.wants(b"a xml") {
        changes.changed().await.expect("the publisher is there");
    }
    let copy = || subscriber.store.existing("a").expect("reads");
    let mut next = 1;
    for schema in [named("v"), named("w"), named("v"), named("w")] {
        log.set_schema(&schema).expect("changes");
        let before = copy().map_or(0, |copy| copy.log().last());
        // The first ones are missed: the stream is published soon after the subscription.
        while copy().map_or(0, |copy| copy.log().last()) < before + 5 {
            append(&log, next..next + 1);
            next += 1;
            tokio::task::yield_now().await;
        }
    }
    let copy = copy().expect("there");
    for schema in [named("v"), named("w")] {
        for log in [&log, &copy] {
            log.set_schema(&schema).expect("known");
        }
        let sent = log.newest(usize::MAX).expect("reads");
        for element in copy.newest(usize::MAX).expect("reads") {
            let number = element.origin.expect("has one").sequence;
            assert_eq!(element.values, sent[number as usize - 1].values);
        }
    }
}

#[tokio::test]
async fn over_http_copies_keep_the_values_of_each_schema() {
    for kind in [LinkKind::HttpPull, LinkKind::HttpPush] {
        for form in [
            Serialization::Xml,
            Serialization::Postcard,
            Serialization::MessagePack,
        ] {
            let (origin, subscriber) = (Node::new(1), Node::new(2));
            let log = changed(&origin);
            let server = server::serve(&origin.links, None).await;
            let _contact = server::serve_contact(&subscriber).await;
            let mut config = link(kind, server.url(), &["a"]);
            config.serialization = Some(form);
            subscriber.links.add(config).expect("added");
            assert_same_in_both(&log, &subscriber).await;
        }
    }
}
