//! Reliable sessions, over queues that are cut at random and over ZeroMQ on loopback.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use chappe_links::session::memory::{MemoryConnection, pair};
use chappe_links::session::{ConnectionError, FrameConnection, LinkFrame};
use chappe_links::*;
use chappe_stream::*;
use chappe_transport::Drops;
use chappe_transport::zeromq::{Limits, Router, Security};

use crate::host::{Node, PATIENCE, append, assert_same, element, link, own_address, schema};

/// Dials an origin in this process; each connection is cut after a number of frames.
pub(crate) struct Cutting {
    origin: Links,
    cuts: Mutex<Vec<u64>>,
    dialled: Arc<AtomicU64>,
}

impl Cutting {
    pub(crate) fn never(origin: &Links) -> Self {
        Self {
            origin: origin.clone(),
            cuts: Mutex::default(),
            dialled: Arc::default(),
        }
    }
}

impl Dialler for Cutting {
    type Connection = Cut<MemoryConnection>;

    async fn dial(&self) -> Result<Self::Connection, ConnectionError> {
        let (here, there) = pair(16);
        let links = self.origin.clone();
        self.dialled.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move { drop(links.serve(there).await) });
        let left = self.cuts.lock().unwrap().pop().unwrap_or(u64::MAX);
        Ok(Cut { inner: here, left })
    }
}

/// A connection that is cut after a number of received frames.
pub(crate) struct Cut<C> {
    inner: C,
    left: u64,
}

impl<C: FrameConnection> FrameConnection for Cut<C> {
    fn peer(&self) -> Reader {
        self.inner.peer()
    }

    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError> {
        self.inner.push(frame)
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>> {
        if self.left == 0 {
            return Poll::Ready(Err(ConnectionError {
                text: "cut".into(),
                hint: None,
            }));
        }
        let frame = ready!(self.inner.poll_receive(context))?;
        self.left -= 1;
        Poll::Ready(Ok(frame))
    }

    fn queued_bytes(&self) -> usize {
        self.inner.queued_bytes()
    }

    fn has_frame(&self) -> bool {
        self.inner.has_frame()
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.inner.poll_flush(context)
    }
}

fn config(streams: &[&str]) -> LinkConfig {
    link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), streams)
}

#[tokio::test]
async fn streams_arrive_complete_and_in_order() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let [a, b] = ["ward.a", "ward.b"].map(|name| origin.stream(name, 3_000));
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["ward.*"]), dialler)
        .expect("added");
    for (name, log) in [("ward.a", &a), ("ward.b", &b)] {
        subscriber.wait_for(name, 3_000).await;
        append(log, 3_000..3_500);
        let copy = subscriber.wait_for(name, 3_500).await;
        assert_same(log, &copy);
    }
    // A new stream is found in the directory.
    let late = origin.stream("ward.late", 10);
    let copy = subscriber.wait_for("ward.late", 10).await;
    assert_same(&late, &copy);
    let status = subscriber.links.show("test").expect("there");
    assert_eq!(status.state, LinkState::Connected);
    assert_eq!(status.streams.len(), 3);
    assert_eq!(status.streams[0].counts.received, 3_500);
}

/// Dials an origin in this process, which appends an element just when a certain frame is sent.
struct Appending {
    origin: Links,
    log: StreamLog,
    at_frame: u32,
}

impl Dialler for Appending {
    type Connection = MemoryConnection;

    async fn dial(&self) -> Result<Self::Connection, ConnectionError> {
        let (here, inner) = pair(16);
        let (links, log, left) = (self.origin.clone(), self.log.clone(), self.at_frame);
        tokio::spawn(async move { drop(links.serve(Append { inner, log, left }).await) });
        Ok(here)
    }
}

/// A connection that appends an element before this many more frames are sent.
struct Append<C> {
    inner: C,
    log: StreamLog,
    left: u32,
}

impl<C: FrameConnection> FrameConnection for Append<C> {
    fn peer(&self) -> Reader {
        self.inner.peer()
    }

    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError> {
        if self.left == 0 {
            append(&self.log, 0..1);
        }
        self.left = self.left.wrapping_sub(1);
        self.inner.push(frame)
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>> {
        self.inner.poll_receive(context)
    }

    fn queued_bytes(&self) -> usize {
        self.inner.queued_bytes()
    }

    fn has_frame(&self) -> bool {
        self.inner.has_frame()
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.inner.poll_flush(context)
    }
}

#[tokio::test]
async fn elements_appended_during_a_grant_are_sent_at_once() {
    // With the welcome, with the answer to the heartbeat, and with the grant: no other frame
    // follows.
    for at_frame in 0..3 {
        let (origin, subscriber) = (Node::new(1), Node::new(2));
        let log = origin.empty("a", &schema("v", FieldType::Integer));
        let dialler = Appending {
            origin: origin.links.clone(),
            log: log.clone(),
            at_frame,
        };
        subscriber
            .links
            .add_over(config(&["a"]), dialler)
            .expect("added");
        let copy = subscriber.wait_for("a", 1).await;
        assert_same(&log, &copy);
    }
}

#[tokio::test]
async fn each_element_comes_once_however_often_the_connection_is_cut() {
    let mut runs = tokio::task::JoinSet::new();
    (0..8).for_each(|seed| drop(runs.spawn(cut_at_random(seed))));
    while let Some(run) = runs.join_next().await {
        run.expect("each once");
    }
}

async fn cut_at_random(seed: u64) {
    let (origin, subscriber) = (Node::new(seed), Node::new(100 + seed));
    let log = origin.stream("a", 500);
    let dialler = Cutting {
        cuts: Mutex::new((0..4).map(|n| (seed * 7 + n * 5) % 6 + 1).collect()),
        ..Cutting::never(&origin.links)
    };
    let dialled = dialler.dialled.clone();
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    let mut copy = Vec::new();
    for step in 0..20 {
        append(&log, 500 + step * 50..550 + step * 50);
        copy = subscriber.wait_for("a", 550 + step as usize * 50).await;
    }
    assert_same(&log, &copy);
    assert!(dialled.load(Ordering::Relaxed) > 2, "seed {seed}");
}

#[tokio::test]
async fn a_subscriber_resumes_from_its_disk_after_power_loss() {
    let origin = Node::new(1);
    let log = origin.stream("a", 2_000);
    let mut subscriber = Node::new(2);
    for round in 0..3 {
        let dialler = Cutting::never(&origin.links);
        subscriber
            .links
            .add_over(config(&["a"]), dialler)
            .expect("added");
        let wanted = (round + 1) * 600;
        subscriber.wait_for("a", wanted).await;
        subscriber.links.close();
        let disk = subscriber.disk.crash(round as u64);
        subscriber.store.store().clone().abandon();
        subscriber = Node::on(disk, 10 + round as u64, LinksConfig::default());
    }
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    let copy = subscriber.wait_for("a", 2_000).await;
    assert_same(&log, &copy);
}

#[tokio::test]
async fn a_changed_schema_is_stored_as_one() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 100);
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    subscriber.wait_for("a", 100).await;
    let mut wider = schema("v", FieldType::Integer);
    wider
        .fields
        .push(schema("w", FieldType::Text).fields.remove(0));
    log.set_schema(&wider).expect("changes");
    let mut both = element(Value::Integer(100));
    both.values.push(Value::Text("wide".into()));
    log.append(&[both]).expect("queued").await.expect("stored");
    let copy = subscriber.wait_for("a", 101).await;
    assert_same(&log, &copy);
    let stored = subscriber
        .store
        .existing("a")
        .expect("reads")
        .expect("there");
    assert_eq!(stored.schema(), wider);
}

#[tokio::test]
async fn refusals_and_losses_are_reported() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    origin.stream("secret", 1);
    origin.stream("taken", 1);
    let log = origin.stream("a", 30);
    log.log().trim(11).expect("queued").await.expect("trimmed");
    let mut behind = config(&["a", "secret", "taken", "nowhere"]);
    behind.limits.directory_s = 60;
    let dialler = Cutting::never(&origin.links);
    subscriber.links.add_over(behind, dialler).expect("added");
    let copy = subscriber.wait_for("a", 20).await;
    assert_same(&log, &copy);
    let refused = || {
        let status = subscriber.links.show("test").expect("there");
        let refused = status.streams.iter().filter(|it| it.refusal.is_some());
        refused.map(|it| it.name.clone()).collect::<Vec<String>>()
    };
    subscriber.wait_until(|| refused().len() == 3).await;
    assert_eq!(refused(), ["nowhere", "secret", "taken"]);
}

#[tokio::test]
async fn a_rollback_of_the_origin_is_reported_and_followed() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    origin.stream("a", 30);
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    subscriber.wait_for("a", 30).await;
    subscriber.links.remove("test").expect("there");
    let other = Node::new(3);
    let log = other.stream("a", 5);
    let dialler = Cutting::never(&other.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    let copy = subscriber.wait_for("a", 35).await;
    assert_same(&log, &copy[30..]);
    let reported = |notice: &LinkNotice| matches!(notice, LinkNotice::Rollback { .. });
    assert_eq!(
        subscriber
            .notices()
            .iter()
            .filter(|it| reported(it))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_stream_read_from_its_end_resumes_there_without_elements() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 30);
    let from_end = LinkConfig {
        start: LinkStart::New,
        ..config(&["a"])
    };
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(from_end.clone(), dialler)
        .expect("added");
    let letters = |node: &Node| node.store.store().existing("dead-letters/test");
    // The stream is opened when the origin has reported its start position.
    let there = || subscriber.store.existing("a").expect("reads").is_some();
    subscriber.wait_until(there).await;
    subscriber.links.remove("test").expect("there");
    append(&log, 30..50);
    let dialler = Cutting::never(&origin.links);
    subscriber.links.add_over(from_end, dialler).expect("added");
    let copy = subscriber.wait_for("a", 20).await;
    let sent = log.newest(20).expect("reads");
    let origins: Vec<_> = copy.iter().map(|element| element.origin).collect();
    let positions: Vec<_> = sent.iter().map(|it| Some(it.position)).collect();
    assert_eq!(origins, positions);
    let status = subscriber.links.show("test").expect("there");
    assert_eq!(
        status.dead_letters, 0,
        "a start position is not a dead letter"
    );
    assert!(
        letters(&subscriber).is_some(),
        "the start position is stored"
    );
    let dialler = Cutting::never(&subscriber.links);
    let whole = config(&["a"]);
    let third = Node::new(3);
    third.links.add_over(whole, dialler).expect("added");
    third.wait_for("a", 20).await;
    assert!(letters(&third).is_none(), "there is no start position");
}

#[tokio::test]
async fn losses_are_counted_once_across_connections() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 10);
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    subscriber.wait_for("a", 10).await;
    subscriber.links.remove("test").expect("there");
    append(&log, 10..30);
    // Everything after the read position arrives, and nothing is left.
    log.log().trim(31).expect("queued").await.expect("trimmed");
    for _ in 0..3 {
        let dialler = Cutting::never(&origin.links);
        let connected = subscriber.notices().len();
        subscriber
            .links
            .add_over(config(&["a"]), dialler)
            .expect("added");
        let lost = || subscriber.host.lost.lock().unwrap().values().sum::<u64>();
        subscriber
            .wait_until(|| lost() >= 20 && subscriber.notices().len() > connected)
            .await;
        subscriber.links.remove("test").expect("there");
    }
    append(&log, 30..31);
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    let copy = subscriber.wait_for("a", 11).await;
    assert_eq!(copy[10].values[0], Value::Integer(30));
    let lost = subscriber.host.lost.lock().unwrap().clone();
    let wanted = [(("a".to_owned(), LossReason::Trimmed), 20)];
    assert_eq!(lost.into_iter().collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn hostile_frames_end_their_session_only() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 100);
    for garbage in [&b""[..], b"\xff", b"hello, is this a session?", &[0; 4_096]] {
        let (mut here, there) = pair(16);
        let links = origin.links.clone();
        let served = tokio::spawn(async move { links.serve(there).await });
        for _ in 0..100 {
            let frame = LinkFrame::Session(Bytes::copy_from_slice(garbage));
            here.push(frame).expect("room");
        }
        let question = LinkFrame::Directory(Bytes::from_static(b"\xff"));
        here.push(question).expect("room");
        while poll_fn(|context| here.poll_receive(context)).await.is_ok() {}
        let ended = tokio::time::timeout(PATIENCE, served).await;
        assert!(ended.expect("ends").expect("no panic").is_err());
    }
    assert!(origin.links.peers().is_empty());
    assert!(!origin.drops().is_empty());
    let dialler = Cutting::never(&origin.links);
    subscriber
        .links
        .add_over(config(&["a"]), dialler)
        .expect("added");
    assert_same(&log, &subscriber.wait_for("a", 100).await);
}

#[tokio::test]
async fn one_peer_gets_no_more_sessions_than_its_share() {
    let few = LinksConfig {
        sessions_per_peer: 2,
        ..LinksConfig::default()
    };
    let origin = Node::on(chappe_sim::SimDisk::new(1), 1, few);
    let mut held = Vec::new();
    for _ in 0..2 {
        let (here, there) = pair(16);
        let links = origin.links.clone();
        tokio::spawn(async move { drop(links.serve(there).await) });
        held.push(here);
    }
    while origin.links.peers().len() < 2 {
        tokio::task::yield_now().await;
    }
    let (_here, there) = pair(16);
    assert!(origin.links.serve(there).await.is_err());
    drop(held);
    while !origin.links.peers().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn over_zeromq_a_link_survives_the_end_of_the_router() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("ward.a", 1_000);
    let bind = |endpoint: String| async move {
        loop {
            let bound = Router::bind(
                &endpoint,
                Security::Null,
                Limits::default(),
                Drops::default(),
            );
            match bound.await {
                Ok(router) => return router,
                // The port is released soon.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let router = bind(format!("tcp://{}:0", own_address())).await;
    let endpoint = router.local_endpoint().to_string();
    let links = origin.links.clone();
    let serving = tokio::spawn(async move { links.serve_zeromq(router).await });
    let config = link(LinkKind::Zeromq, endpoint.clone(), &["ward.*"]);
    subscriber.links.add(config).expect("added");
    subscriber.wait_for("ward.a", 1_000).await;
    serving.abort();
    append(&log, 1_000..1_200);
    let router = bind(endpoint).await;
    let links = origin.links.clone();
    tokio::spawn(async move { links.serve_zeromq(router).await });
    append(&log, 1_200..1_300);
    let copy = subscriber.wait_for("ward.a", 1_300).await;
    assert_same(&log, &copy);
    let peers = origin.links.peers();
    assert_eq!(
        (peers.len(), peers[0].streams.as_slice()),
        (1, &["ward.a".to_owned()][..])
    );
}

#[tokio::test]
async fn damaged_places_are_put_back_from_the_other_node() {
    let cases = [(false, false), (true, false), (false, true), (true, true)];
    for (origin_is_damaged, schema_changes) in cases {
        let (mut origin, mut subscriber) = (Node::new(1), Node::new(2));
        let log = origin.stream("a", 0);
        let dialler = Cutting::never(&origin.links);
        subscriber
            .links
            .add_over(config(&["a"]), dialler)
            .expect("added");
        for step in 0..10 {
            append(&log, step * 50..step * 50 + 50);
            subscriber.wait_for("a", step as usize * 50 + 50).await;
        }
        let sent = log.newest(1_000).expect("reads");
        let (older, mut newest) = (log.schema(), log.schema());
        if schema_changes {
            newest = schema("w", FieldType::Integer);
            log.set_schema(&newest).expect("changes");
            append(&log, 500..550);
            subscriber.wait_for("a", 550).await;
        }
        subscriber.links.close();
        drop(log);
        match origin_is_damaged {
            true => origin = damaged(origin, 3),
            false => subscriber = damaged(subscriber, 4),
        }
        let log = origin.store.existing("a").expect("reads").expect("there");
        let copy = subscriber
            .store
            .existing("a")
            .expect("reads")
            .expect("there");
        let gaps = || [log.log().gaps(), copy.log().gaps()].concat();
        assert_eq!(gaps().len(), 1);
        let dialler = Cutting::never(&origin.links);
        subscriber
            .links
            .add_over(config(&["a"]), dialler)
            .expect("added");
        while !gaps().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!([log.schema(), copy.schema()], [newest.clone(), newest]);
        for log in [&log, &copy] {
            log.set_schema(&older).expect("known");
        }
        let found = log.newest(1_000).expect("reads");
        for (found, sent) in found.iter().zip(&sent) {
            // Records that the subscriber returned have its time of receipt.
            let receive_time = found.receive_time;
            assert!(receive_time == sent.receive_time || receive_time == super::host::NOW);
            let sent = StreamElement {
                receive_time,
                ..sent.clone()
            };
            assert_eq!(found, &sent);
        }
        assert_same(&log, &copy.newest(1_000).expect("reads"));
    }
}

/// Restarts the node after flipping a bit in the middle of its stream.
fn damaged(node: Node, seed: u64) -> Node {
    let Node {
        store,
        links,
        host,
        disk,
    } = node;
    drop((links, host));
    store.store().clone().close().expect("closes");
    drop(store);
    let disk = disk.kill();
    let needle = b"bed 1";
    let segments = disk
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".segment"));
    let (name, at) = segments
        .filter_map(|name| {
            let bytes = disk.bytes(&name)?;
            let places = bytes.windows(needle.len()).enumerate();
            let places: Vec<usize> = places
                .filter(|(_, window)| *window == needle)
                .map(|(at, _)| at)
                .collect();
            Some((name, *places.get(places.len() / 2)?))
        })
        .next()
        .expect("elements");
    assert!(disk.flip(&name, at as u64 * 8));
    let node = Node::on(disk, seed, LinksConfig::default());
    let log = node.store.existing("a").expect("reads").expect("there");
    let _ = log.newest(1_000).expect("reads");
    node
}
