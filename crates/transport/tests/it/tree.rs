//! Goal: notification trees work on real sockets, many nodes in one process: every event reaches every
//! sink once, the source knows it, who is gone is known by a heartbeat before the next event, and a
//! sink that starts again with its window is given nothing twice.
//!
//! Method: nodes with real keys on loopback, each with a socket and a task; events, not time, say when
//! the next thing is done.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::own_address;
use chappe_identity::Key;
use chappe_notification_tree::{
    Choice, Command, Config, Contact, DATAGRAM_BYTES_MAX, Keys, Membership, Outcome, Plan, Tree,
    TreeEvent, Window,
};
use chappe_transport::kad::{KadOptions, bind};
use chappe_transport::tree::{MemoryWindows, TreeOptions, WindowFiles, Windows, run_tree};
use chappe_transport::{Drops, Hop};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const DEADLINE: Duration = Duration::from_secs(300);
const SINKS: u8 = 24;
const TOPIC: u64 = 9;

fn key(number: u8) -> Key {
    Key::from_seed([number + 1; 32])
}

fn socket(address: SocketAddr) -> UdpSocket {
    bind(address, &KadOptions::default()).expect("a free port")
}

fn config() -> Config {
    Config {
        // Heads send on to others also here, where the way is short.
        plan: Choice::Fixed(Plan::TwoHalves),
        within: Duration::from_secs(20),
        source_attempts: 5,
        timeout_floor: Duration::from_millis(20),
        ..Config::default()
    }
}

struct Node {
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<TreeEvent>,
    task: JoinHandle<Tree<Keys>>,
}

impl Node {
    fn start(number: u8, socket: UdpSocket, windows: impl Windows) -> Self {
        Self::counted(number, socket, windows, Drops::default())
    }

    fn counted(number: u8, socket: UdpSocket, windows: impl Windows, drops: Drops) -> Self {
        Self::configured(config(), number, socket, (windows, drops))
    }

    fn configured(
        config: Config,
        number: u8,
        socket: UdpSocket,
        (windows, drops): (impl Windows, Drops),
    ) -> Self {
        let keys = Keys::new(key(number));
        let contact = Contact {
            address: socket.local_addr().expect("it is bound"),
            key: keys.public(),
        };
        let machine = Tree::new(Arc::new(config), contact, keys, u64::from(number));
        let (commands, orders) = mpsc::channel(64);
        let (said, events) = mpsc::channel(64);
        let heartbeat = Some(Duration::from_secs(3_600));
        let options = (windows, TreeOptions { heartbeat });
        let task = run_tree(machine, socket, orders, said, options, drops);
        Self {
            commands,
            events,
            task: tokio::spawn(task),
        }
    }

    async fn tell(&self, command: Command) {
        self.commands.send(command).await.expect("the node runs");
    }

    async fn next(&mut self) -> TreeEvent {
        let next = tokio::time::timeout(DEADLINE, self.events.recv()).await;
        next.expect("in time").expect("the node runs")
    }

    /// The next event that is delivered.
    async fn delivered(&mut self) -> Vec<u8> {
        loop {
            if let TreeEvent::Delivered { event, .. } = self.next().await {
                return event.body().to_vec();
            }
        }
    }

    async fn outcome(&mut self) -> Outcome {
        loop {
            if let TreeEvent::Outcome(outcome) = self.next().await {
                return outcome;
            }
        }
    }

    async fn publish(&mut self, number: u8) -> Outcome {
        let body = vec![number; 40];
        let (topic, deadline) = (TOPIC, None);
        self.tell(Command::Publish {
            topic,
            body,
            deadline,
        })
        .await;
        self.outcome().await
    }

    /// Ends the node; gives what it had still to say, and its machine.
    async fn end(mut self) -> (Vec<Vec<u8>>, Tree<Keys>) {
        drop(self.commands);
        let mut left = Vec::new();
        while let Some(event) = self.events.recv().await {
            if let TreeEvent::Delivered { event, .. } = event {
                left.push(event.body().to_vec());
            }
        }
        (left, self.task.await.expect("it ends by itself"))
    }
}

#[tokio::test]
async fn every_sink_is_given_every_event_once_and_the_dead_are_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = |number: u8| {
        WindowFiles::new(folder.path().join(number.to_string())).expect("a folder for windows")
    };
    // A port of it is still free when one starts again.
    let own = own_address();
    let sockets: Vec<_> = (0..=SINKS).map(|_| socket((own, 0).into())).collect();
    let contacts: Vec<_> = (0..=SINKS)
        .map(|number| Contact {
            address: sockets[usize::from(number)]
                .local_addr()
                .expect("it is bound"),
            key: Keys::new(key(number)).public(),
        })
        .collect();
    let source_at = contacts[usize::from(SINKS)];
    let list = contacts[..usize::from(SINKS)].to_vec();
    let membership = Arc::new(Membership::new(TOPIC, 1, list).expect("they are apart"));
    let mut nodes: BTreeMap<u8, Node> = (0..)
        .zip(sockets)
        .map(|(number, socket)| (number, Node::start(number, socket, files(number))))
        .collect();
    let mut source = nodes.remove(&SINKS).expect("it is there");
    let subscribe = |window| Command::Subscribe {
        topic: TOPIC,
        source: source_at,
        window,
    };
    let listed = |number: u8| Command::Membership {
        membership: Arc::clone(&membership),
        number: Some(number.into()),
    };
    for (number, node) in &nodes {
        let window = files(*number).last(TOPIC).expect("none yet");
        node.tell(subscribe(window)).await;
        node.tell(listed(*number)).await;
    }
    // Two are gone before the first event; the heartbeat finds out, and nobody is given it.
    for dead in [0, 13] {
        nodes.remove(&dead).expect("it is there").end().await;
    }
    source
        .tell(Command::Publisher {
            membership: Arc::clone(&membership),
            boot: 1,
        })
        .await;
    let heartbeat = source.outcome().await;
    assert_eq!((heartbeat.failed, heartbeat.unknown), (vec![0, 13], vec![]));
    for number in 1..=3 {
        let outcome = source.publish(number).await;
        assert_eq!(outcome.failed, [0, 13], "event {number}");
        assert_eq!(outcome.unknown, [0; 0], "event {number}");
        for node in nodes.values_mut() {
            assert_eq!(node.delivered().await, vec![number; 40]);
        }
    }
    // One starts again, with its window: it is given the next, and none of the old ones.
    let (left, _) = nodes.remove(&5).expect("it is there").end().await;
    assert!(left.is_empty(), "twice: {left:?}");
    let again = Node::start(5, socket(contacts[5].address), files(5));
    let window = files(5).last(TOPIC).expect("it was kept");
    assert_eq!(window.numbers.newest, 4, "a heartbeat and three events");
    again.tell(subscribe(window)).await;
    again.tell(listed(5)).await;
    nodes.insert(5, again);
    assert_eq!(source.publish(4).await.failed, [0, 13]);
    for (number, mut node) in nodes {
        assert_eq!(node.delivered().await, vec![4; 40], "sink {number}");
        let (left, machine) = node.end().await;
        assert!(left.is_empty(), "sink {number} twice: {left:?}");
        assert_eq!(machine.counters().forged, 0);
    }
    let (_, machine) = source.end().await;
    assert!(machine.round_trip().is_some_and(|it| it < DEADLINE));
}

/// Windows of a disk that is full until it is said that it is not.
struct Full(Arc<AtomicBool>);

impl Windows for Full {
    fn last(&self, _: u64) -> io::Result<Window> {
        Ok(Window::default())
    }

    fn keep(&mut self, _: u64, _: &Window) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

#[tokio::test]
async fn what_cannot_be_kept_is_neither_delivered_nor_called_so() {
    let sockets = [0, 0].map(|port| socket(([127, 0, 0, 1], port).into()));
    let contact = |number: u8| Contact {
        address: sockets[usize::from(number)]
            .local_addr()
            .expect("it is bound"),
        key: Keys::new(key(number)).public(),
    };
    let (sink_at, source_at) = (contact(0), contact(1));
    let membership = Arc::new(Membership::new(TOPIC, 1, vec![sink_at]).expect("one"));
    let [sink, source] = sockets;
    let (full, drops) = (Arc::new(AtomicBool::new(true)), Drops::default());
    let mut sink = Node::counted(0, sink, Full(Arc::clone(&full)), drops.clone());
    let mut source = Node::start(1, source, MemoryWindows);
    let window = Window::default();
    sink.tell(Command::Subscribe {
        topic: TOPIC,
        source: source_at,
        window,
    })
    .await;
    sink.tell(Command::Membership {
        membership: Arc::clone(&membership),
        number: Some(0),
    })
    .await;
    source
        .tell(Command::Publisher {
            membership,
            boot: 1,
        })
        .await;
    let heartbeat = source.outcome().await;
    assert!(!heartbeat.delivered(0), "{heartbeat:?}");
    let outcome = source.publish(1).await;
    assert!(!outcome.delivered(0), "{outcome:?}");
    let refused = drops.total(Hop::Network, "a window is not kept");
    assert!(refused >= 2, "{refused}");
    // A stranger's bytes are counted and nothing more: none, some, and one more than a datagram has.
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    for bytes in [
        vec![],
        b"T\x01".to_vec(),
        vec![b'T'; DATAGRAM_BYTES_MAX + 1],
    ] {
        let sent = stranger.send_to(&bytes, sink_at.address).await;
        assert_eq!(sent.expect("loopback takes it"), bytes.len());
    }
    full.store(false, Ordering::Relaxed);
    // The outcome is the network's affair; the next event is the first that is given.
    source.publish(2).await;
    assert_eq!(sink.delivered().await, vec![2; 40]);
    let (left, machine) = sink.end().await;
    assert!(left.is_empty(), "twice: {left:?}");
    assert_eq!(machine.counters().not_stored, refused);
    assert_eq!(machine.counters().malformed, 3);
    assert_eq!(drops.total(Hop::Event, "tree datagram unreadable"), 3);
}

#[tokio::test]
async fn what_a_send_costs_is_measured_and_planned_by() {
    let sockets = [0, 0].map(|port| socket(([127, 0, 0, 1], port).into()));
    let contact = |number: u8| Contact {
        address: sockets[usize::from(number)]
            .local_addr()
            .expect("it is bound"),
        key: Keys::new(key(number)).public(),
    };
    let (sink_at, source_at) = (contact(0), contact(1));
    let membership = Arc::new(Membership::new(TOPIC, 1, vec![sink_at]).expect("one"));
    let [sink, source] = sockets;
    let sink = Node::start(0, sink, MemoryWindows);
    // No machine is so slow.
    let assumed = Duration::from_secs(1);
    let config = Config {
        send_cost: assumed,
        ..config()
    };
    let unkept = (MemoryWindows, Drops::default());
    let mut source = Node::configured(config, 1, source, unkept);
    let (window, number) = (Window::default(), Some(0));
    sink.tell(Command::Subscribe {
        topic: TOPIC,
        source: source_at,
        window,
    })
    .await;
    let listed = Arc::clone(&membership);
    sink.tell(Command::Membership {
        membership: listed,
        number,
    })
    .await;
    let boot = 1;
    source.tell(Command::Publisher { membership, boot }).await;
    let heartbeat = source.outcome().await;
    assert_eq!(heartbeat.cost.send, assumed);
    let mut send = assumed;
    for event in 1..=32 {
        send = source.publish(event).await.cost.send;
    }
    assert!(send * 4 < assumed, "{send:?}");
    let (_, machine) = source.end().await;
    assert!(machine.send_cost() <= send);
}
