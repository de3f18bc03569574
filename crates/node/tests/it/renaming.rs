//! Goal: a renamed stream keeps its elements, numbers and epoch, every name that it has or had finds it wherever a
//! name is given, its writers and readers go on without a gap or a repetition, and no name refers to two streams,
//! across restarts and SIGKILL.
//! Method: nodes of this process on loopback with writers, live clients, sensors, devices and links, whose streams are
//! renamed over REST while they run; a node in a process of its own that is killed after the answer.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::linked::{fix, link, origin_config, stored, subscriber_config, until};
use crate::common::{
    Answer, Live, Operated, block, config, elements, get, identity, send, write_sensor,
};
use chappe_node::Node;
use chappe_node::config::{Config, Read};
use chappe_stream::{FieldType, NAMES_MAX, StreamElement, StreamLog, StreamSchema, Value};
use serde_json::{Value as Json, json};

/// Names the directory of a node that is to be killed.
const KILLED: &str = "CHAPPE_TEST_KILLED_RENAME";
/// The end of the line by which it says that the rename was answered.
const ANSWERED: &str = "the rename is answered";

fn schema() -> StreamSchema {
    elements::schema(&[("n", FieldType::Integer)])
}

async fn produce(node: &Node, stream: &str, numbers: std::ops::Range<i64>) {
    let elements: Vec<StreamElement> = numbers
        .map(|number| elements::element(number * 1_000_000, vec![Value::Integer(number)]))
        .collect();
    node.store(stream, &schema(), &elements).await.unwrap();
}

async fn rename(operated: &Operated, old: &str, new: &str) -> Answer {
    let path = format!("/api/v1/streams/{old}/rename");
    operated
        .change("POST", &path, &json!({ "name": new }))
        .await
}

async fn renamed(operated: &Operated, old: &str, new: &str) -> Json {
    let answer = rename(operated, old, new).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// The numbers that a stream holds, in order.
fn numbers(log: &StreamLog) -> Vec<i64> {
    let held = log.newest(1_000_000).unwrap();
    let number = |element: &StreamElement| match element.values[0] {
        Value::Integer(number) => number,
        _ => panic!("{element:?}"),
    };
    held.iter().map(number).collect()
}

/// Waits until a stream holds so many elements; they must be the numbers from 0 on.
async fn holds(node: &Node, stream: &str, count: i64) {
    stored(node, stream, |held| held.len() as i64 >= count).await;
    let held = numbers(&node.stream(stream).unwrap());
    assert!(held.iter().copied().eq(0..count), "{stream}: {held:?}");
}

async fn names(node: &Node) -> Vec<String> {
    let all = get(node, "/api/v1/streams").await.json();
    let all = all["streams"].as_array().unwrap().iter();
    let names = all.map(|one| one["name"].as_str().unwrap().to_owned());
    names.filter(|name| name != "chappe.audit").collect()
}

async fn sql(node: &Node, statement: &str) -> Json {
    let body = json!({ "sql": statement }).to_string();
    let answer = send(node, "POST", "/api/v1/streams/query", &[], body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
    answer.json()
}

#[test]
fn every_name_finds_the_stream_and_answers_show_the_current_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    // The file names the former name; the sensor's own stream is renamed too.
    let sensor = |output: &str| {
        format!(
            "name = \"doubled\"\n[[source]]\nalias = \"s\"\nstream = \"plant.old\"\nwindow = 1\n\
             [output]\nstream = \"{output}\"\nlevel = \"power\"\nsql = \"select n as n from s\"\n\
             [[output.field]]\nname = \"n\"\ntype = \"integer\"\n"
        )
    };
    write_sensor(directory.path(), "doubled", &sensor("doubled"));
    block(async {
        let operated = Operated::start(&config, None).await;
        let node = &operated.node;
        produce(node, "plant.old", 0..5).await;
        produce(node, "plant.other", 0..1).await;
        let before = get(node, "/api/v1/streams/plant.old").await.json();
        assert_eq!(before["former_names"], json!([]));
        let is_running = async || {
            let sensor = get(node, "/api/v1/virtual-sensors/doubled").await.json();
            sensor["state"] == "running"
        };
        until("the sensor runs", is_running).await;
        let mut by_name = Live::open(node, "streams=plant.old", None).await;
        let mut all = Live::open(node, "streams=*", None).await;
        for live in [&mut by_name, &mut all] {
            live.next_of("elements").await;
        }
        let after = renamed(&operated, "plant.old", "plant.new").await;
        assert_eq!(after["name"], "plant.new");
        assert_eq!(after["former_names"], json!(["plant.old"]));
        for key in ["epoch", "first", "last", "entity", "source"] {
            assert_eq!(after[key], before[key], "{key}");
        }
        renamed(&operated, "doubled", "plant.doubled").await;
        // The program that writes knows one name, the next one the other.
        produce(node, "plant.old", 5..8).await;
        produce(node, "plant.new", 8..10).await;
        for name in ["plant.old", "plant.new"] {
            let one = get(node, &format!("/api/v1/streams/{name}")).await.json();
            assert_eq!(
                (&one["name"], &one["last"]),
                (&json!("plant.new"), &json!(10))
            );
            for rest in ["elements?newest=1", "range", "completeness"] {
                let path = format!("/api/v1/streams/{name}/{rest}");
                let answer = get(node, &path).await;
                assert_eq!(answer.json()["stream"], "plant.new", "{path}: {answer:?}");
            }
            let why = get(node, &format!("/api/v1/why/{name}")).await.json();
            let hops = why["hops"].as_array().unwrap();
            let hop = hops.iter().find(|hop| hop["hop"] == "stream").unwrap();
            assert_eq!(hop["subject"], "plant.new", "{why}");
            let readers = get(node, &format!("/api/v1/readers?stream={name}"))
                .await
                .json();
            assert_eq!(readers["readers"][0]["stream"], "plant.new", "{readers}");
            let former = (name == "plant.old").then_some("plant.old");
            let plain = name.replace('.', "_");
            for table in [format!("\"{name}\""), plain] {
                let answer = sql(node, &format!("select count(*) from {table}")).await;
                assert_eq!(answer["rows"], json!([[10]]));
                assert_eq!(answer["read"][0]["stream"], "plant.new");
                assert_eq!(
                    answer["read"][0]["former_name"].as_str(),
                    former,
                    "{answer}"
                );
            }
            let held = format!("select elements from completeness('{name}') where kind = 'stored'");
            assert_eq!(sql(node, &held).await["rows"], json!([[10]]));
            let listed = get(node, &format!("/api/v1/directory?streams={name}"))
                .await
                .json();
            assert_eq!(listed["streams"][0]["name"], "plant.new", "{listed}");
        }
        // A client keeps the name by which it asked; one of all streams gets the current one.
        for (live, name) in [(&mut by_name, "plant.old"), (&mut all, "plant.new")] {
            let mut seen = Vec::new();
            while seen.len() < 5 {
                let event = live.next_of("elements").await;
                let data: Json = serde_json::from_str(&event.data).unwrap();
                let of_plant = data["elements"].as_array().unwrap().iter();
                let of_plant = of_plant.filter(|one| one["stream"] == name);
                seen.extend(of_plant.map(|one| one["values"]["n"].as_i64().unwrap()));
            }
            assert_eq!(seen, [5, 6, 7, 8, 9]);
        }
        // Live data continues after a position by either name.
        for (name, number) in [("plant.old", 8), ("plant.new", 9)] {
            let epoch = after["epoch"].as_str().unwrap();
            let query = format!("streams={name}&after={name}@{epoch}:{number}");
            let mut live = Live::open(node, &query, None).await;
            live.next_of("elements").await;
            let event = live.next_of("elements").await;
            assert!(
                event.data.contains(&format!("\"number\":{},", number + 1)),
                "{event:?}"
            );
            assert!(
                event.data.contains(&format!("\"stream\":\"{name}\"")),
                "{event:?}"
            );
        }
        let entity = after["entity"].as_str().unwrap().replace(':', "%3A");
        let entity = get(node, &format!("/api/v1/entities/{entity}"))
            .await
            .json();
        assert_eq!(entity["name"], "plant.new");
        let found = get(node, "/api/v1/entities?prefix=plant.new").await.body;
        assert!(found.contains("plant.new"), "{found}");
        let audited =
            "select operation, subject from \"chappe.audit\" where path like '%old/rename'";
        let body = json!({ "sql": audited });
        let audited = operated
            .change("POST", "/api/v1/streams/query", &body)
            .await;
        assert_eq!(
            audited.json()["rows"],
            json!([["rename_stream", "plant.new"]])
        );
        let shown = get(node, "/api/v1/virtual-sensors/doubled").await.json();
        assert_eq!(shown["stream"], "plant.doubled", "{shown}");
        assert_eq!(
            shown["sources"][0]["bound"][0]["stream"], "plant.new",
            "{shown}"
        );
        stored(node, "plant.doubled", |held| held.len() >= 5).await;
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();

        // The operator edits the file; everything goes on after a restart.
        write_sensor(directory.path(), "doubled", &sensor("plant.doubled"));
        config.log.max_streams = 100;
        let operated = Operated::start(&config, Some(token)).await;
        let node = &operated.node;
        assert_eq!(
            names(node).await,
            ["plant.doubled", "plant.new", "plant.other"]
        );
        produce(node, "plant.new", 10..20).await;
        holds(node, "plant.old", 20).await;
        let doubled = stored(node, "doubled", |held| {
            held.last()
                .is_some_and(|last| last.values == [Value::Integer(19)])
        });
        let doubled = doubled.await.len();
        let held = numbers(&node.stream("plant.doubled").unwrap());
        assert!(held.iter().copied().eq(20 - doubled as i64..20), "{held:?}");
        assert_eq!(names(node).await.len(), 3);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn no_name_refers_to_two_streams() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = Operated::start(&config(directory.path()), None).await;
        let node = &operated.node;
        for stream in ["a.x", "b.x", "c.x"] {
            produce(node, stream, 0..3).await;
        }
        renamed(&operated, "b.x", "b.y").await;
        renamed(&operated, "b.x", "b.z").await;
        for (old, new, status, reason) in [
            ("a.x", "c.x", 409, "there is already a stream"),
            ("a.x", "b.z", 409, "there is already a stream"),
            (
                "a.x",
                "b.x",
                409,
                "is a former name of the stream \\\"b.z\\\"",
            ),
            ("a.x", "b.y", 409, "forget-name b.z b.y"),
            ("a.x", "c-x", 409, "the same name in SQL"),
            ("a.x", "b_y", 409, "the same name in SQL"),
            ("a.x", "A X", 422, "is not a stream name"),
            ("a.x", "chappe.x", 422, "for the node's own streams"),
            ("chappe.audit", "b.a", 404, "there is no stream"),
            ("d.x", "e.x", 404, "there is no stream"),
        ] {
            let answer = rename(&operated, old, new).await;
            let case = format!("{old} to {new}: {}", answer.body);
            assert_eq!(answer.status, status, "{case}");
            assert!(answer.body.contains(reason), "{case}");
        }
        // A definition is refused, too, and a name that no stream of its own has.
        for name in ["b.x", "b.y", "b-y"] {
            let stream = json!({ "name": name, "fields": [{ "name": "v", "type": "double" }] });
            let answer = operated.change("POST", "/api/v1/streams", &stream).await;
            assert_eq!(answer.status, 409, "{}", answer.body);
        }
        let path =
            |name: &str, former: &str| format!("/api/v1/streams/{name}/former-names/{former}");
        for (name, former, status) in [
            ("b.z", "b.x", 422),
            ("b.z", "b.z", 422),
            ("b.z", "c.x", 404),
            ("d.x", "b.y", 404),
        ] {
            let answer = operated
                .change("DELETE", &path(name, former), &Json::Null)
                .await;
            assert_eq!(answer.status, status, "{name} {former}: {}", answer.body);
        }
        let answer = operated
            .change("DELETE", &path("b.x", "b.y"), &Json::Null)
            .await;
        assert_eq!(
            answer.json()["former_names"],
            json!(["b.x"]),
            "{}",
            answer.body
        );
        assert_eq!(get(node, "/api/v1/streams/b.y").await.status, 404);
        renamed(&operated, "a.x", "b.y").await;
        assert_eq!(
            renamed(&operated, "b.y", "a.x").await["former_names"],
            json!(["b.y"])
        );
        for number in 0..NAMES_MAX - 2 {
            renamed(&operated, "a.x", &format!("many.n{number}")).await;
        }
        let answer = rename(&operated, "a.x", "one.more").await;
        assert!(
            answer.status == 422 && answer.body.contains("which is the limit"),
            "{answer:?}"
        );
        assert_eq!(get(node, "/api/v1/streams/one.more").await.status, 404);
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();

        // Nothing writes it now: with the stream all its names go.
        let operated = Operated::start(&config(directory.path()), Some(token)).await;
        let remove = "/api/v1/streams/many.n3?force=true";
        let answer = operated.change("DELETE", remove, &Json::Null).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
        for name in ["a.x", "b.y", "many.n3", "many.n12"] {
            let path = format!("/api/v1/streams/{name}");
            assert_eq!(get(&operated.node, &path).await.status, 404, "{name}");
        }
        produce(&operated.node, "many.n3", 0..2).await;
        assert_eq!(names(&operated.node).await, ["b.z", "c.x", "many.n3"]);
        operated.node.shutdown().await.unwrap();
    });
}

/// Not a test of its own: the node that the test below kills.
#[test]
fn killed_node() {
    let Some(directory) = std::env::var_os(KILLED).map(PathBuf::from) else {
        return;
    };
    chappe_node::runtime().unwrap().block_on(async {
        let operated = Operated::start(&config(&directory), None).await;
        produce(&operated.node, "ward.old", 0..10).await;
        renamed(&operated, "ward.old", "ward.new").await;
        println!("{ANSWERED}");
        std::future::pending::<()>().await;
    });
}

#[test]
fn an_answered_rename_survives_sigkill() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Command::new(std::env::current_exe().unwrap())
        .args(["renaming::killed_node", "--exact", "--nocapture"])
        .env(KILLED, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The lines end early if the node does.
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(ANSWERED)));
    node.kill().unwrap();
    node.wait().unwrap();
    block(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        assert_eq!(names(&node).await, ["ward.new"]);
        produce(&node, "ward.old", 10..20).await;
        holds(&node, "ward.new", 20).await;
        node.shutdown().await.unwrap();
    });
}

/// The origin's stream is renamed while it is written and read, and so is the copy.
fn a_link_goes_on(kind: &'static str, selects: &str) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_origin = origin_config(there.path());
        let origin = Operated::start(&at_origin, None).await;
        fix(&mut at_origin, &origin.node);
        produce(&origin.node, "ward.old", 0..100).await;
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.links = vec![link(kind, &origin.node)];
        at_subscriber.links[0].streams = vec![selects.to_owned()];
        at_subscriber.links[0].limits.directory_s = 1;
        let subscriber = Operated::start(&at_subscriber, None).await;
        at_subscriber.http.listen = subscriber.node.address();
        holds(&subscriber.node, "ward.old", 100).await;
        let writing = produce(&origin.node, "ward.old", 100..300);
        let renaming = renamed(&origin, "ward.old", "hall.new");
        tokio::join!(writing, renaming);
        holds(&subscriber.node, "ward.old", 300).await;
        let (origin_token, token) = (origin.token.clone(), subscriber.token.clone());
        subscriber.node.shutdown().await.unwrap();
        produce(&origin.node, "hall.new", 300..400).await;
        origin.node.shutdown().await.unwrap();

        let origin = Operated::start(&at_origin, Some(origin_token)).await;
        let subscriber = Operated::start(&at_subscriber, Some(token)).await;
        holds(&subscriber.node, "ward.old", 400).await;
        renamed(&subscriber, "ward.old", "copy.of-old").await;
        produce(&origin.node, "hall.new", 400..500).await;
        holds(&subscriber.node, "copy.of-old", 500).await;
        assert_eq!(
            names(&subscriber.node).await,
            ["copy.of-old"],
            "there is one copy"
        );
        let shown = get(&subscriber.node, "/api/v1/links/origin").await.json();
        assert_eq!(shown["lost"], json!({}), "{shown}");
        assert_eq!(shown["streams"][0]["local_name"], "copy.of-old", "{shown}");
        // An origin's stream of the copy's name is another stream, and stays out.
        produce(&origin.node, "copy.of-old", 0..5).await;
        subscriber.node.shutdown().await.unwrap();
        origin.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_session_by_prefix_goes_on_in_one_copy() {
    a_link_goes_on("zeromq", "ward.*");
}

#[test]
fn a_session_of_all_streams_goes_on_in_one_copy() {
    // The other selections find the stream by its oldest name; so does this one.
    a_link_goes_on("zeromq", "*");
}

#[test]
fn a_pull_by_name_goes_on_in_one_copy() {
    a_link_goes_on("http_pull", "ward.old");
}

#[test]
fn a_pull_by_prefix_goes_on_in_one_copy() {
    a_link_goes_on("http_pull", "ward.*");
}

#[test]
fn a_push_by_prefix_goes_on_in_one_copy() {
    a_link_goes_on("http_push", "ward.*");
}

#[test]
fn a_new_link_finds_a_stream_by_its_new_name_and_streams_never_merge() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let origin = Operated::start(&origin_config(there.path()), None).await;
        produce(&origin.node, "ward.a", 0..10).await;
        renamed(&origin, "ward.a", "hall.a").await;
        for kind in ["zeromq", "http_pull", "http_push"] {
            let directory = here.path().join(kind);
            let mut at_subscriber = subscriber_config(&directory);
            let mut hall = link(kind, &origin.node);
            hall.streams = vec!["hall.*".into()];
            at_subscriber.links = vec![hall];
            let subscriber = Operated::start(&at_subscriber, None).await;
            holds(&subscriber.node, "hall.a", 10).await;
            // The copy gets the name of a stream that the link selects as well.
            let other = format!("hall.of-{kind}");
            renamed(&subscriber, "hall.a", &other).await;
            let token = subscriber.token.clone();
            subscriber.node.shutdown().await.unwrap();
            produce(&origin.node, &other, 500..505).await;
            at_subscriber.links[0].limits.directory_s = 1;
            let subscriber = Operated::start(&at_subscriber, Some(token)).await;
            until("a refusal", async || {
                let shown = get(&subscriber.node, "/api/v1/links/origin").await.json();
                let streams = shown["streams"].as_array().unwrap().iter();
                let mut refusals = streams.filter_map(|one| one["refusal"].as_str());
                refusals.any(|why| why.contains("is a name of the stream"))
            })
            .await;
            holds(&subscriber.node, &other, 10).await;
            subscriber.node.shutdown().await.unwrap();
        }
        origin.node.shutdown().await.unwrap();
    });
}

#[test]
fn best_effort_links_get_every_name_that_they_ask_for() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let origin = Operated::start(&origin_config(there.path()), None).await;
        produce(&origin.node, "ward.a", 0..1).await;
        let mut at_subscriber = config(here.path());
        at_subscriber.links = vec![link("zeromq_best_effort", &origin.node)];
        let subscriber = Node::start(at_subscriber).await.unwrap();
        let mut next = 0;
        for step in 0..2 {
            let before = subscriber
                .stream("ward.a")
                .map_or(0, |log| log.log().last());
            until("something that arrives", || {
                next += 1;
                let (origin, subscriber) = (&origin.node, &subscriber);
                async move {
                    produce(origin, "ward.a", next..next + 1).await;
                    let log = subscriber.stream("ward.a");
                    log.is_some_and(|log| log.log().last() > before)
                }
            })
            .await;
            if step == 0 {
                renamed(&origin, "ward.a", "hall.a").await;
            }
        }
        let held = numbers(&subscriber.stream("ward.a").unwrap());
        assert!(held.is_sorted_by(|one, other| one < other), "{held:?}");
        assert_eq!(names(&subscriber).await, ["ward.a"]);
        subscriber.shutdown().await.unwrap();
        origin.node.shutdown().await.unwrap();
    });
}

fn looking(directory: &Path) -> Config {
    let mut config = config(directory);
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    config
}

#[test]
fn a_device_goes_on_in_its_renamed_stream_also_after_it_was_away() {
    const PLAIN: u32 = 262_656;
    let directory = tempfile::tempdir().unwrap();
    let product = identity::product();
    let stream = format!("{}.steady", product.name);
    let new = format!("bed-{}.pulse", crate::common::devices::unique());
    block(async {
        let operated = Operated::start(&looking(directory.path()), None).await;
        let node = &operated.node;
        let device = || {
            let device = identity::device(&product, identity::anywhere());
            device.put_silently("steady", PLAIN, 1);
            device
        };
        let old = device();
        identity::usable(node, &old).await;
        old.set("steady", 1).await;
        identity::values(node, &stream, 1).await;
        renamed(&operated, &stream, &new).await;
        old.set("steady", 2).await;
        assert_eq!(identity::values(node, &new, 2).await, [1, 2]);
        let shown = get(node, &old.path()).await.json();
        assert_eq!(shown["streams"], json!([new]));
        let path = old.path();
        old.host.stop().await;
        crate::common::devices::until(node, &path, |device| device["state"] == "gone").await;
        // It comes back under another endpoint address.
        let again = device();
        let shown = identity::usable(node, &again).await;
        assert_eq!(shown["streams"], json!([new]));
        again.set("steady", 3).await;
        assert_eq!(identity::values(node, &new, 3).await, [1, 2, 3]);
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();

        let operated = Operated::start(&looking(directory.path()), Some(token)).await;
        let node = &operated.node;
        let shown = identity::usable(node, &again).await;
        assert_eq!(shown["streams"], json!([new]));
        again.set("steady", 4).await;
        assert_eq!(identity::values(node, &stream, 4).await, [1, 2, 3, 4]);
        assert_eq!(identity::streams(node, &product).await, [""; 0]);
        operated.node.shutdown().await.unwrap();
        again.host.stop().await;
    });
}

#[test]
fn roles_follow_the_current_name_and_a_rename_needs_both_names() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.access.read = Read::Token;
    block(async {
        let operated = Operated::start(&config, None).await;
        for stream in ["ward.a", "lab.b"] {
            produce(&operated.node, stream, 0..3).await;
        }
        let add = async |name: &str, role: &str| {
            let account = json!({ "name": name, "roles": [role] });
            let answer = operated.change("POST", "/api/v1/accounts", &account).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
            answer.json()["token"].as_str().unwrap().to_owned()
        };
        let (reader, keeper) = (
            add("reader", "read=ward.*").await,
            add("keeper", "operate=ward.*").await,
        );
        let ask = async |token: &str, method: &str, path: &str, body: &Json| {
            let credential = format!("Bearer {token}");
            let body = if body.is_null() {
                String::new()
            } else {
                body.to_string()
            };
            let fields = [("Authorization", credential.as_str())];
            send(&operated.node, method, path, &fields, body.as_bytes()).await
        };
        let rename = async |old: &str, new: &str| {
            let path = format!("/api/v1/streams/{old}/rename");
            ask(&keeper, "POST", &path, &json!({ "name": new }))
                .await
                .status
        };
        assert_eq!(rename("lab.b", "ward.b").await, 403);
        assert_eq!(rename("ward.a", "lab.a").await, 403);
        assert_eq!(rename("ward.a", "ward.c").await, 200);
        let mut live = Live::open_as(&operated.node, "streams=*", &reader).await;
        let first = live.next_of("elements").await;
        assert!(first.id.contains("ward.a@"), "{first:?}");

        // The stream leaves what both accounts may see, by every name.
        renamed(&operated, "ward.c", "lab.a").await;
        produce(&operated.node, "ward.a", 3..4).await;
        for name in ["ward.a", "ward.c", "lab.a"] {
            // A former name within the role answers like a name of no stream.
            let refused = if name == "lab.a" { 403 } else { 404 };
            for rest in ["", "/elements", "/completeness"] {
                let path = format!("/api/v1/streams/{name}{rest}");
                let status = ask(&reader, "GET", &path, &Json::Null).await.status;
                assert_eq!(status, refused, "{path}");
            }
            let path = format!("/api/v1/exchange/streams/{name}");
            let status = ask(&reader, "GET", &path, &Json::Null).await.status;
            assert_eq!(status, refused, "{path}");
            let query = json!({ "sql": format!("select * from \"{name}\"") });
            let answer = ask(&reader, "POST", "/api/v1/streams/query", &query).await;
            assert_eq!(answer.status, 403, "{name}: {}", answer.body);
            assert_eq!(rename(name, "ward.d").await, refused, "{name}");
        }
        // What comes now it gets: the other stream under its new name, and nothing of the first.
        renamed(&operated, "lab.b", "ward.b").await;
        // The notice comes after the client has begun to follow the stream.
        while !live
            .next_of("notice")
            .await
            .data
            .contains("renamed from lab.b")
        {}
        produce(&operated.node, "lab.a", 4..5).await;
        produce(&operated.node, "ward.b", 3..4).await;
        let mut seen = String::new();
        while !seen.contains("ward.b") {
            seen.push_str(&live.next_of("elements").await.data);
        }
        assert!(
            !seen.contains("lab.a") && !seen.contains("ward.c"),
            "{seen}"
        );
        operated.node.shutdown().await.unwrap();
    });
}
