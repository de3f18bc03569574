//! Two links for one local stream: one feeds it, the other reports why it does not, and takes over
//! when the first is removed. A stream that this node or the origin refuses: its link reports that,
//! and its other streams continue.

use chappe_links::serialization::{Document, Structure};
use chappe_links::session::ConnectionError;
use chappe_links::session::memory::{MemoryConnection, pair};
use chappe_links::*;
use chappe_stream::{FieldType, StreamSchema};

use crate::best_effort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::host::{Node, PATIENCE, append, assert_same, link, schema};
use crate::server::{Server, serve};

/// Dials an origin in this process.
struct Direct(Links);

impl Dialler for Direct {
    type Connection = MemoryConnection;

    async fn dial(&self) -> Result<Self::Connection, ConnectionError> {
        let (here, there) = pair(16);
        let links = self.0.clone();
        tokio::spawn(async move { drop(links.serve(there).await) });
        Ok(here)
    }
}

/// An origin and a subscriber that it reaches.
async fn nodes() -> (Node, Node, [Server; 2]) {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let servers = [
        serve(&origin.links, None).await,
        serve(&subscriber.links, None).await,
    ];
    *subscriber.host.contact.lock().unwrap() = Some(servers[1].url());
    (origin, subscriber, servers)
}

fn add(name: &str, kind: LinkKind, nodes: &(Node, Node, [Server; 2]), streams: &[&str]) {
    let (origin, subscriber, servers) = nodes;
    let address = match kind {
        LinkKind::Zeromq => "tcp://127.0.0.1:1".to_owned(),
        _ => servers[0].url(),
    };
    let mut config = link(kind, address, streams);
    config.name = name.to_owned();
    match kind {
        LinkKind::Zeromq => {
            let dialler = Direct(origin.links.clone());
            subscriber.links.add_over(config, dialler).expect("added");
        }
        _ => subscriber.links.add(config).expect("added"),
    }
}

/// The refusal of a link's stream, from its status.
fn refusal(node: &Node, name: &str, stream: &str) -> Option<String> {
    let status = node.links.show(name).expect("there");
    let streams = status.streams.into_iter();
    let mut found = streams.filter(|it| it.name == stream);
    found.next().and_then(|stream| stream.refusal)
}

fn refused(node: &Node, name: &str) -> usize {
    let notices = node.notices();
    let reported = notices
        .iter()
        .filter(|it| matches!(it, LinkNotice::Refused { link, .. } if link == name));
    reported.count()
}

const RELIABLE: [LinkKind; 3] = [LinkKind::Zeromq, LinkKind::HttpPull, LinkKind::HttpPush];

#[tokio::test]
async fn elements_of_two_links_are_stored_once() {
    for (first, second) in RELIABLE.into_iter().flat_map(|a| RELIABLE.map(|b| (a, b))) {
        let nodes = nodes().await;
        let (origin, subscriber, _) = &nodes;
        let log = origin.stream("a", 50);
        origin.stream("b", 5);
        add("one", first, &nodes, &["a"]);
        subscriber.wait_for("a", 50).await;
        add("two", second, &nodes, &["a", "b"]);
        subscriber
            .wait_until(|| refused(subscriber, "two") > 0)
            .await;
        let why = refusal(subscriber, "two", "a").expect("refused");
        assert!(why.contains("link one already feeds"), "{why}");
        // Its other stream is copied meanwhile.
        subscriber.wait_for("b", 5).await;
        append(&log, 50..60);
        subscriber.wait_for("a", 60).await;
        subscriber.links.remove("one").expect("there");
        append(&log, 60..80);
        let copy = subscriber.wait_for("a", 80).await;
        assert_same(&log, &copy);
        assert_eq!(refusal(subscriber, "two", "a"), None);
        assert_eq!(refused(subscriber, "two"), 1, "reported once");
        assert!(subscriber.host.lost.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn losses_are_counted_once_whichever_links_report_them() {
    for kind in RELIABLE {
        let nodes = nodes().await;
        let (origin, subscriber, _) = &nodes;
        let log = origin.stream("a", 30);
        add("one", kind, &nodes, &["a"]);
        subscriber.wait_for("a", 30).await;
        subscriber.links.remove("one").expect("there");
        append(&log, 30..40);
        log.log().trim(41).expect("queued").await.expect("trimmed");
        let lost = || subscriber.host.lost.lock().unwrap().values().sum::<u64>();
        add("one", kind, &nodes, &["a"]);
        subscriber.wait_until(|| lost() == 10).await;
        subscriber.links.remove("one").expect("there");
        // Nothing was stored after the loss, so this link receives the loss again.
        add("two", kind, &nodes, &["a"]);
        append(&log, 40..41);
        subscriber.wait_for("a", 31).await;
        assert_eq!(lost(), 10);
    }
}

#[tokio::test]
async fn a_stream_that_is_not_taken_is_refused_and_the_others_go_on() {
    for kind in RELIABLE {
        let nodes = nodes().await;
        let (origin, subscriber, _) = &nodes;
        let log = origin.stream("a", 3);
        origin.stream("taken", 3);
        add("test", kind, &nodes, &["a", "taken", "nowhere"]);
        subscriber
            .wait_until(|| refused(subscriber, "test") == 2)
            .await;
        let why = refusal(subscriber, "test", "taken").expect("refused");
        assert!(why.contains("belongs to somebody else"), "{why}");
        let why = refusal(subscriber, "test", "nowhere").expect("refused");
        assert!(!why.ends_with([' ', ':']), "{why}");
        append(&log, 3..10);
        let copy = subscriber.wait_for("a", 10).await;
        assert_same(&log, &copy);
        let status = subscriber.links.show("test").expect("there");
        assert_eq!(
            (status.state, status.last_error),
            (LinkState::Connected, None)
        );
    }
}

#[tokio::test]
async fn a_stream_that_the_origin_has_no_place_for_is_refused_and_the_others_go_on() {
    for kind in [LinkKind::HttpPull, LinkKind::HttpPush] {
        let nodes = nodes().await;
        let (origin, subscriber, _) = &nodes;
        let places = LinksConfig::default().sessions_per_peer;
        let names: Vec<String> = (0..=places).map(|number| format!("s.{number}")).collect();
        for name in &names {
            origin.stream(name, 1);
        }
        add("test", kind, &nodes, &["s.*"]);
        subscriber
            .wait_until(|| refused(subscriber, "test") == 1)
            .await;
        let refusals = |name: &String| refusal(subscriber, "test", name);
        let why: Vec<String> = names.iter().filter_map(refusals).collect();
        assert!(
            why[0].contains("503") && why[0].contains("limit"),
            "{why:?}"
        );
        for name in names.iter().filter(|name| refusals(name).is_none()) {
            subscriber.wait_for(name, 1).await;
        }
        let status = subscriber.links.show("test").expect("there");
        let wanted = (LinkState::Connected, None);
        assert_eq!((status.state, status.last_error), wanted, "{kind:?}");
    }
}

#[tokio::test]
async fn best_effort_reports_refusals_and_counts_only_misses() {
    let (origin, subscriber) = (Node::new(1), Node::new(2));
    let (log, taken) = (origin.stream("a", 5), origin.stream("taken", 5));
    let (publisher, address, directory) = best_effort::serve(&origin).await;
    let mut config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &["a"]);
    config.name = "one".into();
    let dialler = Direct(origin.links.clone());
    subscriber.links.add_over(config, dialler).expect("added");
    subscriber.wait_for("a", 5).await;
    let streams = &["a", "taken"];
    let mut config = link(LinkKind::ZeromqBestEffort, address, streams);
    config.directory = Some(directory);
    config.name = "two".into();
    subscriber.links.add(config).expect("added");
    let mut changes = publisher.changes();
    while !publisher.wants(b"a postcard") || !publisher.wants(b"taken postcard") {
        changes.changed().await.expect("the publisher is there");
    }
    let mut sent = 5;
    let mut more = || {
        append(&log, sent..sent + 1);
        append(&taken, sent..sent + 1);
        sent += 1;
    };
    while refused(&subscriber, "two") < 2 {
        more();
        tokio::task::yield_now().await;
    }
    let why = refusal(&subscriber, "two", "taken").expect("refused");
    assert!(why.contains("belongs to somebody else"), "{why}");
    let why = refusal(&subscriber, "two", "a").expect("refused");
    assert!(why.contains("link one already feeds"), "{why}");
    // The second link resumes after the elements that the first has stored.
    let stored = log.log().last() as usize;
    subscriber.wait_for("a", stored).await;
    subscriber.links.remove("one").expect("there");
    while refusal(&subscriber, "two", "a").is_some() {
        more();
        tokio::task::yield_now().await;
    }
    let copy = subscriber
        .store
        .existing("a")
        .expect("reads")
        .expect("there");
    let newest = || copy.newest(1_000_000).expect("reads");
    while newest()
        .last()
        .and_then(|it| it.origin)
        .map(|it| it.sequence)
        <= Some(stored as u64)
    {
        more();
        tokio::task::yield_now().await;
    }
    let copy = newest();
    let numbers: Vec<u64> = copy
        .iter()
        .filter_map(|it| Some(it.origin?.sequence))
        .collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    let missed = numbers.last().expect("some") - numbers.len() as u64;
    let lost = subscriber.host.lost.lock().unwrap().values().sum::<u64>();
    assert_eq!(lost, missed);
}

/// The names of the streams of elements.
fn names(node: &Node) -> Vec<String> {
    let streams = node.store.streams();
    let mut names: Vec<String> = streams.iter().map(|log| log.name().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn nodes_that_read_all_of_each_other_do_not_grow_without_end() {
    for kind in RELIABLE {
        let (north, south, servers) = nodes().await;
        let (url, contact) = (servers[0].url(), Some(servers[0].url()));
        *north.host.contact.lock().unwrap() = contact;
        let add = |reader: &Node, origin: &Node, url: String, prefix: &str| {
            let mut config = link(kind, url, &["*"]);
            config.as_prefix = Some(prefix.into());
            match kind {
                LinkKind::Zeromq => {
                    config.address = "tcp://127.0.0.1:1".into();
                    let dialler = Direct(origin.links.clone());
                    reader.links.add_over(config, dialler).expect("added");
                }
                _ => reader.links.add(config).expect("added"),
            }
        };
        north.stream("x", 3);
        south.stream("y", 3);
        add(&north, &south, servers[1].url(), "south");
        add(&south, &north, url, "north");
        north.wait_for("south.north.x", 3).await;
        south.wait_for("north.south.y", 3).await;
        // Each of these is found by a later query, which finds all new streams.
        for late in ["z1", "z2", "z3"] {
            north.stream(late, 1);
            north.wait_for(&format!("south.north.{late}"), 1).await;
        }
        let own = ["x", "z1", "z2", "z3"];
        let mut at_north: Vec<String> = own.map(str::to_owned).into();
        at_north.extend(own.map(|name| format!("south.north.{name}")));
        at_north.push("south.y".into());
        at_north.sort();
        let mut at_south: Vec<String> = own.map(|name| format!("north.{name}")).into();
        at_south.extend(["north.south.y".to_owned(), "y".to_owned()]);
        at_south.sort();
        assert_eq!((names(&north), names(&south)), (at_north, at_south));
    }
}

#[tokio::test]
async fn a_node_that_reads_all_of_itself_has_each_stream_twice() {
    let node = Node::new(1);
    let mut config = link(LinkKind::Zeromq, "tcp://127.0.0.1:1".into(), &["*"]);
    config.as_prefix = Some("self".into());
    node.stream("x", 3);
    let dialler = Direct(node.links.clone());
    node.links.add_over(config, dialler).expect("added");
    node.wait_for("self.x", 3).await;
    for late in ["z1", "z2", "z3"] {
        node.stream(late, 1);
        node.wait_for(&format!("self.{late}"), 1).await;
    }
    let wanted = [
        "self.x", "self.z1", "self.z2", "self.z3", "x", "z1", "z2", "z3",
    ];
    assert_eq!(names(&node), wanted);
}

/// An origin whose directory lists new names each time, none of which exists; also counts the
/// queries.
async fn inventive(names: usize) -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (asked, times) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a request"));
            }
            let (mut status, mut body) = ("404 Not Found", Vec::new());
            if head.windows(10).any(|part| part == b"/directory") {
                status = "200 OK";
                asked.send_modify(|times| *times += 1);
                for name in 0..names {
                    let structure = Document::Structure(Structure {
                        stream: format!("s{}-{name}", *asked.borrow()),
                        version: 0,
                        schema: schema("v", FieldType::Integer),
                    });
                    let any = StreamSchema::default();
                    let encoded = Serialization::Postcard.encode(&structure, &any, &mut body);
                    encoded.expect("a document");
                }
            }
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(&[head.into_bytes(), body].concat()).await;
        }
    });
    (address, times)
}

#[tokio::test]
async fn an_origin_that_makes_up_names_is_not_remembered_without_end() {
    let subscriber = Node::new(1);
    let (address, mut asked) = inventive(4).await;
    let mut config = link(LinkKind::HttpPull, address, &["*"]);
    config.limits.streams = 4;
    config.limits.directory_s = 1;
    subscriber.links.add(config).expect("added");
    let asked = asked.wait_for(|times| *times >= 5);
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    asked.expect("in time").expect("there");
    let streams = subscriber.links.show("test").expect("there").streams;
    assert!((1..=8).contains(&streams.len()), "{streams:?}");
}
