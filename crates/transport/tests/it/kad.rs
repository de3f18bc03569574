//! Goal: Kademlia works on real sockets with many nodes in one process: they join through one address, published records
//! are found by others, and a restarted node is known again.
//!
//! Method: nodes with real keys on loopback, each with a socket and a task; events, not time, trigger the next step.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::own_address;
use chappe_identity::Key as IdentityKey;
use chappe_kad::service::{Announcement, scope_key, type_key};
use chappe_kad::{Command, Config, Contact, Entrance, Event, Kad, Key, NodeKey, Reach, SearchId};
use chappe_transport::kad::{KadOptions, bind, run_kad};
use chappe_transport::{Clock, Drops};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const DEADLINE: Duration = Duration::from_secs(300);
const NODES: u8 = 40;

struct Node {
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<Event>,
    task: JoinHandle<Kad<NodeKey>>,
    contact: Contact,
}

impl Node {
    fn start(number: u8, boot: u32, address: SocketAddr) -> Self {
        let key = IdentityKey::from_seed([number; 32]);
        let public = key.public();
        let reach = Reach {
            loopback: true,
            ..Reach::default()
        };
        let config = Config {
            reach,
            ..Config::new(boot, [number; 32])
        };
        let machine = Kad::new(NodeKey::new(key), config, Clock::process().now());
        let socket = bind(address, &KadOptions::default()).expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        let (commands, orders) = mpsc::channel(64);
        let (said, events) = mpsc::channel(64);
        let task = tokio::spawn(run_kad(machine, socket, orders, said, Drops::default()));
        let contact = Contact { public, address };
        Self {
            commands,
            events,
            task,
            contact,
        }
    }

    async fn tell(&self, command: Command) {
        self.commands.send(command).await.expect("the node runs");
    }

    /// The first event for which `wanted` returns a value.
    async fn hear<T>(&mut self, wanted: impl Fn(Event) -> Option<T>) -> T {
        let heard = async {
            loop {
                let event = self.events.recv().await.expect("the node runs");
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
        };
        tokio::time::timeout(DEADLINE, heard)
            .await
            .expect("in time")
    }

    async fn enter(&mut self, by: SocketAddr) {
        let entrance = Entrance {
            address: by,
            public: None,
        };
        self.tell(Command::Enter(vec![entrance])).await;
        self.hear(|event| matches!(event, Event::Joined { .. }).then_some(()))
            .await;
    }
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn network() -> Vec<Node> {
    let mut nodes = vec![Node::start(0, 1, free())];
    for number in 1..NODES {
        let mut node = Node::start(number, 1, free());
        node.enter(nodes[0].contact.address).await;
        nodes.push(node);
    }
    nodes
}

async fn publish(node: &mut Node, slot: u16, keys: Vec<Key>, value: Vec<u8>) {
    let count = keys.len();
    node.tell(Command::Publish { slot, keys, value }).await;
    for _ in 0..count {
        let kept = node
            .hear(|event| match event {
                Event::Published { outcome, .. } => Some(outcome.kept),
                _ => None,
            })
            .await;
        assert!(kept > 5, "kept by {kept}");
    }
}

#[tokio::test]
async fn forty_nodes_find_a_published_device() {
    let mut nodes = network().await;
    let device = Announcement {
        endpoint: "urn:uuid:11111111-2222-3333-4444-555555555555".to_owned(),
        metadata_version: 1,
        types: vec!["{http://example.org}Pump".to_owned()],
        scopes: vec!["http://example.org/ward-3".to_owned()],
        addresses: vec!["http://192.0.2.7:80/".to_owned()],
        port: 0,
    };
    let value = device.to_bytes().expect("it fits");
    publish(&mut nodes[7], 1, device.keys(), value).await;
    for (searcher, key) in [
        (31, type_key("{http://example.org}Pump")),
        (32, scope_key("http://example.org/ward-3")),
    ] {
        let search = SearchId(1);
        let credit = 1 << 20;
        nodes[searcher]
            .tell(Command::Search {
                search,
                key,
                credit,
            })
            .await;
        let found = nodes[searcher]
            .hear(|event| match event {
                Event::Found { record, .. } => Some(record),
                _ => None,
            })
            .await;
        assert_eq!(found.publisher, nodes[7].contact.public);
        assert_eq!(Announcement::from_bytes(&found.value), Some(device.clone()));
        let report = nodes[searcher]
            .hear(|event| match event {
                Event::SearchEnded { report, .. } => Some(report),
                _ => None,
            })
            .await;
        assert_eq!(report.found, 1);
        assert!(report.inflow <= report.granted, "{report:?}");
    }
}

#[tokio::test]
async fn a_restarted_node_is_known_again() {
    // A port of it is still free when the second node restarts.
    let own = SocketAddr::from((own_address(), 0));
    let mut first = Node::start(1, 1, own);
    let mut second = Node::start(2, 1, own);
    second.enter(first.contact.address).await;
    let there = |event| match event {
        Event::Pinged { there, .. } => Some(there),
        _ => None,
    };
    second.tell(Command::Ping(first.contact)).await;
    assert!(second.hear(there).await);
    // It stops, and restarts at the same address with a higher number.
    let address = second.contact.address;
    drop(second.commands);
    let machine = tokio::time::timeout(DEADLINE, second.task).await;
    let known: Vec<_> = machine
        .expect("in time")
        .expect("no panic")
        .contacts()
        .collect();
    assert_eq!(known, [first.contact]);
    let mut second = Node::start(2, 2, address);
    second.tell(Command::Ping(first.contact)).await;
    assert!(second.hear(there).await);
    first.tell(Command::Ping(second.contact)).await;
    assert!(first.hear(there).await);
}
