//! Best effort over PUB and SUB, and the directory over REQ and REP, on loopback.

use chappe_links::serialization::Document;
use chappe_links::*;
use chappe_stream::*;
use chappe_transport::Drops;
use chappe_transport::zeromq::{Limits, Publisher, Reply, Request, Security};

use crate::host::{Node, PATIENCE, append, link, schema};

pub(crate) async fn serve(origin: &Node) -> (Publisher, String, String) {
    let everybody = Reader {
        address: None,
        key: None,
        account: None,
    };
    let (limits, drops) = (Limits::default(), Drops::default());
    let at = "tcp://127.0.0.1:0";
    let publisher = Publisher::bind(at, Security::Null, limits.clone(), drops.clone());
    let publisher = publisher.await.expect("bound");
    let reply = Reply::bind(at, Security::Null, limits, drops)
        .await
        .expect("bound");
    let directory = reply.local_endpoint().to_string();
    let address = publisher.local_endpoint().expect("bound").to_string();
    let (links, published) = (origin.links.clone(), publisher.clone());
    tokio::spawn(async move { links.publish_zeromq(published, everybody).await });
    let links = origin.links.clone();
    tokio::spawn(async move { links.serve_directory(reply).await });
    (publisher, address, directory)
}

#[tokio::test]
async fn published_elements_are_stored_and_missed_ones_counted() {
    for form in [
        Serialization::Xml,
        Serialization::Postcard,
        Serialization::MessagePack,
    ] {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("ward.a", 5);
        origin.stream("ward.a-2", 5);
        let (publisher, address, directory) = serve(&origin).await;
        let mut config = link(LinkKind::ZeromqBestEffort, address, &["ward.a"]);
        config.directory = Some(directory);
        config.serialization = Some(form);
        subscriber.links.add(config.clone()).expect("added");
        let topic = format!("ward.a {}", form.as_str());
        let mut changes = publisher.changes();
        while !publisher.wants(topic.as_bytes()) {
            changes.changed().await.expect("the publisher is there");
        }
        // The stream is published soon after that; until then elements are missed.
        let mut sent = 5;
        while subscriber
            .store
            .existing("ward.a")
            .expect("reads")
            .is_none()
        {
            append(&log, sent..sent + 1);
            sent += 1;
            tokio::task::yield_now().await;
        }
        append(&log, sent..sent + 10);
        sent += 10;
        let mut wanted = 10;
        let newest = loop {
            let copy = subscriber.wait_for("ward.a", wanted).await;
            let newest = copy.last().expect("some").clone();
            if newest.values[0] == Value::Integer(sent - 1) {
                break newest;
            }
            wanted = copy.len() + 1;
        };
        let last = log.newest(1).expect("reads").pop().expect("some");
        assert_eq!(newest.origin, Some(last.position));
        // While it is away, it misses elements.
        subscriber.links.remove("test").expect("there");
        append(&log, sent..sent + 20);
        sent += 20;
        subscriber.links.add(config).expect("added");
        let newest = || {
            let log = subscriber
                .store
                .existing("ward.a")
                .expect("reads")
                .expect("there");
            log.newest_origin()
        };
        let before = newest();
        while newest() == before {
            append(&log, sent..sent + 1);
            sent += 1;
            tokio::task::yield_now().await;
        }
        let status = subscriber.links.show("test").expect("there");
        let counts = &status.streams[0];
        assert!(counts.lost["skipped"] >= 20, "{counts:?}");
        let stored = subscriber
            .store
            .existing("ward.a")
            .expect("reads")
            .expect("there");
        let stored = stored.newest(10_000).expect("reads");
        let rises = |pair: &[StreamElement]| pair[0].origin < pair[1].origin;
        assert!(stored.windows(2).all(rises));
        assert!(
            subscriber
                .store
                .existing("ward.a-2")
                .expect("reads")
                .is_none()
        );
    }
}

#[tokio::test]
async fn the_directory_answers_by_name_and_lists() {
    let origin = Node::new(1);
    origin.stream("a", 0);
    origin.stream("b", 0);
    origin.stream("secret", 0);
    let (_publisher, _, directory) = serve(&origin).await;
    let limits = Limits::default();
    let mut request = Request::connect(&directory, Security::Null, limits)
        .await
        .expect("connected");
    let patience = PATIENCE;
    for form in [
        Serialization::Xml,
        Serialization::Postcard,
        Serialization::MessagePack,
    ] {
        let question = format!("a\n{}", form.as_str());
        let answer = request.ask(question, patience).await.expect("answered");
        let (document, used) = form.decode(answer.last()).expect("a document");
        assert_eq!(used, answer.last().len());
        let Document::Structure(structure) = document else {
            panic!("{document:?}")
        };
        assert_eq!(structure.stream, "a");
        assert_eq!(structure.schema, schema("v", FieldType::Integer));
    }
    let list = request.ask("", patience).await.expect("answered");
    let list = String::from_utf8(list.last().to_vec()).expect("xml");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    assert!(lines[0].starts_with("<structure stream=\"a\""));
    for nothing in ["c", "c\nyaml", "../etc\nxml"] {
        let answer = request.ask(nothing, patience).await.expect("answered");
        assert_eq!(answer.last().len(), 0);
    }
}

#[tokio::test]
async fn a_silent_directory_is_reported() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 1);
    let (publisher, address, _) = serve(&origin).await;
    let mut config = link(LinkKind::ZeromqBestEffort, address, &["a"]);
    // No program listens there.
    config.directory = Some("tcp://127.0.0.1:1".to_owned());
    subscriber.links.add(config).expect("added");
    let mut changes = publisher.changes();
    while !publisher.wants(b"a postcard") {
        changes.changed().await.expect("the publisher is there");
    }
    let mut sent = 1;
    let refusal = || {
        let streams = subscriber.links.show("test").expect("there").streams;
        streams.first().and_then(|stream| stream.refusal.clone())
    };
    while refusal().is_none() {
        append(&log, sent..sent + 1);
        sent += 1;
        tokio::task::yield_now().await;
    }
    let why = refusal().expect("reported");
    assert!(why.contains("directory at tcp://127.0.0.1:1"), "{why}");
}

#[tokio::test]
async fn a_prefix_subscribes_to_one_serialization() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("ward.a", 1);
    origin.stream("lab", 1);
    let (publisher, address, directory) = serve(&origin).await;
    let mut config = link(LinkKind::ZeromqBestEffort, address, &["ward.*"]);
    config.directory = Some(directory);
    config.limits.directory_s = 1;
    subscriber.links.add(config).expect("added");
    let mut changes = publisher.changes();
    while !publisher.wants(b"ward.a postcard") {
        changes.changed().await.expect("the publisher is there");
    }
    // A later query finds the new stream.
    origin.stream("ward.b", 1);
    while !publisher.wants(b"ward.b postcard") {
        changes.changed().await.expect("the publisher is there");
    }
    for other in ["ward.a xml", "ward.b message_pack", "lab postcard"] {
        assert!(!publisher.wants(other.as_bytes()), "{other}");
    }
    let mut sent = 1;
    while subscriber
        .store
        .existing("ward.a")
        .expect("reads")
        .is_none()
    {
        append(&log, sent..sent + 1);
        sent += 1;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_link_without_listed_streams_is_not_connected() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let (_publisher, address, _) = serve(&origin).await;
    let mut config = link(LinkKind::ZeromqBestEffort, address, &["*"]);
    // No program listens there.
    config.directory = Some("tcp://127.0.0.1:1".to_owned());
    subscriber.links.add(config).expect("added");
    let status = || subscriber.links.show("test").expect("there");
    subscriber
        .wait_until(|| status().last_error.is_some())
        .await;
    let why = status().last_error.expect("reported");
    assert!(why.contains("directory at tcp://127.0.0.1:1"), "{why}");
}
