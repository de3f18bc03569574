//! Peers that break the session protocol: each receives a clear refusal, which is counted, and no
//! other peer is affected. The reactions of the machines are tested in `chappe-flow`; this tests
//! the effect on a node.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use chappe_flow::message::{
    Entry, FrameWriter, Hello, Message, RollbackPoint, SchemaText, Welcome, decode,
};
use chappe_flow::{Channel, Credit, Level, SchemaId, Start};
use chappe_links::session::memory::{MemoryConnection, pair};
use chappe_links::session::{ConnectionError, FrameConnection, LinkFrame};
use chappe_links::*;

use crate::host::{Node, PATIENCE, assert_same, link};

/// A peer driven by the test.
pub(crate) struct Peer {
    connection: MemoryConnection,
}

impl Peer {
    pub(crate) fn new(connection: MemoryConnection) -> Self {
        Self { connection }
    }

    async fn send(&mut self, frame: Bytes) {
        // The node may have refused it already.
        let _ = self.connection.push(LinkFrame::Session(frame));
        let _ = poll_fn(|context| self.connection.poll_flush(context)).await;
    }

    pub(crate) async fn say(&mut self, message: Message<'_>) {
        let mut writer = FrameWriter::default();
        writer.push(&message);
        self.send(writer.finish().expect("a message")).await;
    }

    /// Reads until a message matches.
    pub(crate) async fn hear<T>(&mut self, mut is: impl FnMut(&Message<'_>) -> Option<T>) -> T {
        let heard = async {
            loop {
                let frame = poll_fn(|context| self.connection.poll_receive(context)).await;
                let LinkFrame::Session(frame) = frame.expect("still there") else {
                    continue;
                };
                let messages = decode(&frame).expect("sound");
                if let Some(found) = messages.flatten().find_map(|message| is(&message)) {
                    return found;
                }
            }
        };
        let heard = tokio::time::timeout(PATIENCE, heard).await;
        heard.expect("within the time")
    }
}

fn hello(versions: (u32, u32)) -> Message<'static> {
    Message::Hello(Hello {
        versions,
        session: 4,
        frame_bytes_max: 100_000,
        window_bytes: 100_000,
        acknowledge_ms: 10,
        dead_after_ms: 20_000,
    })
}

fn subscribe(stream: &'static str) -> Message<'static> {
    Message::Subscribe {
        channel: Channel(0),
        start: Start::First,
        earlier: Vec::new(),
        level: Level::Power,
        credit: Credit {
            bytes: 10_000,
            elements: 100,
        },
        serialization: "postcard",
        stream,
        known: None,
    }
}

/// Serves a peer that the test drives; returns how the session ended.
async fn served<F: Future<Output = ()>>(
    origin: &Node,
    speaks: impl FnOnce(Peer) -> F,
) -> Result<(), ConnectionError> {
    let (here, there) = pair(16);
    let links = origin.links.clone();
    let serving = tokio::spawn(async move { links.serve(there).await });
    speaks(Peer::new(here)).await;
    let ended = tokio::time::timeout(PATIENCE, serving).await;
    ended.expect("ends").expect("no panic")
}

#[tokio::test]
async fn a_peer_of_another_version_is_refused_and_counted() {
    let origin = Node::new(1);
    let ended = served(&origin, |mut peer| async move {
        peer.say(hello((7, 9))).await;
        peer.hear(|message| matches!(message, Message::Goodbye { .. }).then_some(()))
            .await;
    })
    .await;
    let error = ended.expect_err("refused");
    assert!(error.text.contains("version"), "{error}");
    let drops = origin.drops();
    assert_eq!(drops.len(), 1, "{drops:?}");
    assert!(drops[0].starts_with("session failed: "), "{drops:?}");
}

#[tokio::test]
async fn an_acknowledgement_from_the_future_is_refused_and_counted() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let log = origin.stream("a", 10);
    let ended = served(&origin, |mut peer| async move {
        peer.say(hello((1, chappe_flow::VERSION_MAX))).await;
        peer.say(subscribe("a")).await;
        peer.hear(|message| matches!(message, Message::Records { .. }).then_some(()))
            .await;
        let stored = 1_000_000;
        let entry = Entry {
            channel: 0,
            stage: 0,
            stored,
            elements: stored,
            bytes: stored * 59,
            elements_limit: 100 + stored,
            bytes_limit: 10_000 + stored * 59,
            refused: 0,
        };
        let mut writer = FrameWriter::default();
        writer.push_acknowledge(&[entry], usize::MAX);
        peer.send(writer.finish().expect("it was pushed")).await;
        peer.hear(|message| matches!(message, Message::Goodbye { .. }).then_some(()))
            .await;
    })
    .await;
    ended.expect_err("refused");
    assert_eq!(origin.drops().len(), 1, "{:?}", origin.drops());
    // Neither the log nor other peers are affected.
    let mut config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &["a"]);
    config.name = "good".into();
    let dialler = By(
        tokio::sync::Mutex::new(Vec::new()),
        Some(origin.links.clone()),
    );
    subscriber.links.add_over(config, dialler).expect("added");
    assert_same(&log, &subscriber.wait_for("a", 10).await);
}

/// A connection that records the most bytes that were queued.
struct Measured {
    inner: MemoryConnection,
    most: Arc<AtomicUsize>,
}

impl FrameConnection for Measured {
    fn peer(&self) -> Reader {
        self.inner.peer()
    }

    fn push(&mut self, frame: LinkFrame) -> Result<(), ConnectionError> {
        let pushed = self.inner.push(frame);
        self.most
            .fetch_max(self.inner.queued_bytes(), Ordering::Relaxed);
        pushed
    }

    fn queued_bytes(&self) -> usize {
        self.inner.queued_bytes()
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<LinkFrame, ConnectionError>> {
        self.inner.poll_receive(context)
    }

    fn has_frame(&self) -> bool {
        self.inner.has_frame()
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.inner.poll_flush(context)
    }
}

#[tokio::test]
async fn questions_of_a_peer_that_reads_no_answer_wait_until_it_does() {
    const QUESTIONS: usize = 4_000;
    let origin = Node::new(1);
    for number in 0..20 {
        origin.stream(&format!("a{number}"), 1);
    }
    let (mut here, inner) = pair(16);
    let most = Arc::<AtomicUsize>::default();
    let there = Measured {
        inner,
        most: most.clone(),
    };
    let links = origin.links.clone();
    tokio::spawn(async move { drop(links.serve(there).await) });
    for _ in 0..QUESTIONS {
        let question = LinkFrame::Directory(Bytes::from_static(b"a*\nxml"));
        here.push(question).expect("still there");
    }
    // As many as it accepts; it accepts more when answers are read.
    for _ in 0..QUESTIONS {
        let _ = poll_fn(|context| Poll::Ready(here.poll_flush(context))).await;
        tokio::task::yield_now().await;
    }
    let most = || most.load(Ordering::Relaxed);
    assert!(most() <= 2 << 20, "{} bytes are queued", most());
    let mut bytes = 0;
    let answers = async {
        for _ in 0..QUESTIONS {
            let answer = poll_fn(|context| here.poll_receive(context)).await;
            bytes += answer.expect("still there").bytes().len();
        }
    };
    let answers = tokio::time::timeout(PATIENCE, answers).await;
    answers.expect("each is answered once there is room");
    assert!(bytes > 2 * most(), "{bytes} bytes of answers show nothing");
}

/// Dials a peer driven by the test once, or a real origin.
pub(crate) struct By(
    pub(crate) tokio::sync::Mutex<Vec<MemoryConnection>>,
    pub(crate) Option<Links>,
);

impl Dialler for By {
    type Connection = MemoryConnection;

    async fn dial(&self) -> Result<MemoryConnection, ConnectionError> {
        if let Some(connection) = self.0.lock().await.pop() {
            return Ok(connection);
        }
        let Some(links) = self.1.clone() else {
            let text = "there is no other".to_owned();
            return Err(ConnectionError { text, hint: None });
        };
        let (here, there) = pair(16);
        tokio::spawn(async move { drop(links.serve(there).await) });
        Ok(here)
    }
}

#[tokio::test]
async fn a_schema_with_a_wrong_id_is_refused_and_reported() {
    let subscriber = Node::new(2);
    let (here, there) = pair(16);
    let config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &["a", "b"]);
    let dialler = By(tokio::sync::Mutex::new(vec![here]), None);
    subscriber.links.add_over(config, dialler).expect("added");
    let mut origin = Peer::new(there);
    let session = origin
        .hear(|message| match message {
            Message::Hello(hello) => Some(hello.session),
            _ => None,
        })
        .await;
    origin
        .say(Message::Welcome(Welcome {
            version: chappe_flow::VERSION_MAX,
            session,
            frame_bytes_max: 100_000,
            dead_after_ms: 20_000,
        }))
        .await;
    let mut channels = Vec::new();
    origin
        .hear(|message| {
            if let Message::Subscribe { channel, .. } = message {
                channels.push(*channel);
            }
            (channels.len() == 2).then_some(())
        })
        .await;
    let schemas = [br#"{"fields":[],"key":null}"#.as_slice(), b"no schema"];
    for (channel, bytes) in channels.into_iter().zip(schemas) {
        origin
            .say(Message::Accepted {
                channel,
                rollback: RollbackPoint::No,
                epoch: 9,
                next: 1,
                last: 0,
                level: Level::Power,
                schema: SchemaText {
                    version: 1,
                    id: SchemaId([7; 8]),
                    bytes: Some(bytes),
                },
            })
            .await;
    }
    let refusals = || {
        let status = subscriber.links.show("test").expect("there");
        let refusals = status.streams.into_iter().filter_map(|it| it.refusal);
        refusals.collect::<Vec<String>>()
    };
    let reported = |notice: &LinkNotice| matches!(notice, LinkNotice::Refused { .. });
    let notices = || {
        subscriber
            .notices()
            .iter()
            .filter(|it| reported(it))
            .count()
    };
    subscriber
        .wait_until(|| refusals().len() == 2 && notices() == 2)
        .await;
    let refusals = refusals();
    assert!(
        refusals[0].contains("not the one that the origin names"),
        "{refusals:?}"
    );
    assert!(
        refusals[1].contains("the schema does not decode"),
        "{refusals:?}"
    );
    assert!(subscriber.store.streams().is_empty(), "nothing was opened");
}
