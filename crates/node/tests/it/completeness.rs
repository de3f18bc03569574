//! Goal: a loss of each kind is shown by `completeness` with the exact number, and silence is told from
//! loss.
//! Method: a writer at level memory that is killed by SIGKILL, a flipped bit, retention that overtakes a
//! link, and a device that is unplugged; each on real nodes on loopback. Dead letters are in
//! `crates/chappe/tests/it/dead_letters.rs`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::devices::{described, host_options, looking, unique};
use crate::common::linked::{fix, link, origin_config, stored, subscriber_config, until};
use crate::common::{block, config, elements, get, own_address, send};
use chappe_device::file::File;
use chappe_log::Level;
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};
use chappe_transport::Drops;
use serde_json::{Value as Json, json};

const STREAM: &str = "ward.bed1";
/// Names the directory of a writer that is to be killed.
const WRITER: &str = "CHAPPE_TEST_KILLED_WRITER";
/// The end of the line by which it says that all its elements are acknowledged.
const ACKNOWLEDGED: &str = "all acknowledged";
/// Elements that the killed writer stores, and those stored before.
const KILLED: i64 = 400;
const BEFORE: i64 = 10;

fn schema() -> StreamSchema {
    elements::schema(&[("n", FieldType::Integer), ("text", FieldType::Text)])
}

fn element(number: i64) -> StreamElement {
    let values = vec![Value::Integer(number), Value::Text("word ".repeat(400))];
    elements::element(number * 1_000_000_000, values)
}

/// Stores elements, each in a frame of its own; their source times are seconds.
async fn produce(node: &Node, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let one = [element(number)];
        node.store(STREAM, &schema(), &one).await.unwrap();
    }
}

async fn completeness(node: &Node, stream: &str, query: &str) -> Json {
    let path = format!("/api/v1/streams/{stream}/completeness{query}");
    get(node, &path).await.json()
}

fn count(elements: u64) -> Json {
    json!({ "elements": elements, "at_most": elements })
}

fn at_memory(directory: &Path) -> Config {
    let mut config = config(directory);
    config.log.level = Level::Memory;
    config
}

/// Not a test of its own: the writer that the test below kills.
#[test]
fn killed_writer() {
    let Some(directory) = std::env::var_os(WRITER).map(PathBuf::from) else {
        return;
    };
    let mut config = at_memory(&directory);
    // All but the first commit wait.
    config.log.commit_pause_ms = 3_600_000;
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config).await.unwrap();
        produce(&node, BEFORE..BEFORE + 1).await;
        // A log whose thread starts late on a busy machine would write all the elements by its first commit.
        tokio::time::sleep(Duration::from_secs(3)).await;
        produce(&node, BEFORE + 1..BEFORE + KILLED).await;
        println!("{ACKNOWLEDGED}");
        std::future::pending::<()>().await;
    });
}

#[test]
fn elements_at_level_memory_that_a_kill_takes_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(at_memory(directory.path())).await.unwrap();
        produce(&node, 0..BEFORE).await;
        node.shutdown().await.unwrap();
    });
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["completeness::killed_writer", "--exact", "--nocapture"])
        .env(WRITER, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The lines end early if the writer does.
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(ACKNOWLEDGED)));
    // SIGKILL.
    writer.kill().unwrap();
    writer.wait().unwrap();
    block(async {
        let mut lost_before = None;
        // Once more after a restart: the loss is on record, and is not counted again.
        for _ in 0..2 {
            let node = Node::start(at_memory(directory.path())).await.unwrap();
            let held = node.stream(STREAM).unwrap().newest(usize::MAX).unwrap();
            let lost = (BEFORE + KILLED) as u64 - held.len() as u64;
            assert!(lost > 0 && held.len() as i64 >= BEFORE, "{lost} lost");
            let shown = completeness(&node, STREAM, "").await;
            assert_eq!(shown["stored"], held.len(), "{shown}");
            assert_eq!(
                shown["lost"],
                json!({ "process_ended": count(lost) }),
                "{shown}"
            );
            assert_eq!(shown["exact"], true, "{shown}");
            assert_eq!(shown["gaps"][0]["first"], held.len() + 1, "{shown}");
            assert_eq!(shown["gaps"][0]["next"], BEFORE + KILLED + 1, "{shown}");
            // Silence of the node itself is on record, too.
            assert_eq!(shown["away"][0]["who"], "node", "{shown}");
            assert_eq!(*lost_before.get_or_insert(lost), lost);
            node.shutdown().await.unwrap();
        }
    });
}

#[test]
fn damage_is_counted_within_the_times_of_its_neighbours() {
    const ALL: i64 = 60;
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.log.segment_bytes = 65_536;
    config.log.scrub_bytes_per_s = 1 << 30;
    block(async {
        let node = Node::start(config.clone()).await.unwrap();
        produce(&node, 0..ALL).await;
        let shown = completeness(&node, STREAM, "").await;
        assert_eq!(
            (&shown["lost"], &shown["exact"]),
            (&json!({}), &json!(true))
        );
        node.shutdown().await.unwrap();
        let segment = directory.path().join("data/log/0000000001.segment");
        let mut bytes = std::fs::read(&segment).unwrap();
        bytes[40_000] ^= 2;
        std::fs::write(&segment, bytes).unwrap();

        let node = Node::start(config).await.unwrap();
        until("the damage is found", || async {
            completeness(&node, STREAM, "").await["lost"] != json!({})
        })
        .await;
        let held = node.stream(STREAM).unwrap().newest(usize::MAX).unwrap();
        let second = |element: &StreamElement| element.source_time.0 / 1_000_000_000;
        let missing: Vec<i64> = (0..ALL)
            .filter(|number| !held.iter().any(|element| second(element) == *number))
            .collect();
        let [missing] = missing[..] else {
            panic!("one frame is damaged: {missing:?}")
        };
        let shown = completeness(&node, STREAM, "").await;
        assert_eq!(shown["stored"], ALL - 1);
        assert_eq!(shown["lost"], json!({ "damaged": count(1) }), "{shown}");
        assert_eq!(shown["gaps"][0]["first"], missing + 1, "{shown}");
        let within = async |from: i64, to: i64| {
            let query = format!("?from=1970-01-01T00:00:{from:02}Z&to=1970-01-01T00:00:{to:02}Z");
            completeness(&node, STREAM, &query).await
        };
        let around = within(missing - 1, missing + 2).await;
        assert_eq!(around["stored"], 2, "{around}");
        assert_eq!(around["lost"], json!({ "damaged": count(1) }), "{around}");
        // The damaged element's time is known only by its neighbours.
        let partly = within(missing, missing + 2).await;
        let wanted = json!({ "damaged": { "elements": 0, "at_most": 1 } });
        assert_eq!(
            (&partly["lost"], &partly["exact"]),
            (&wanted, &json!(false))
        );
        assert_eq!(partly["notes"].as_array().unwrap().len(), 1, "{partly}");
        let before = within(0, missing - 1).await;
        assert_eq!(before["stored"], missing - 1, "{before}");
        assert_eq!(
            (&before["lost"], &before["exact"]),
            (&json!({}), &json!(true))
        );
        node.shutdown().await.unwrap();
    });
}

#[test]
fn what_retention_takes_before_a_link_has_read_it_is_counted_at_both_ends() {
    const FIRST: i64 = 20;
    const ALL: i64 = 100;
    const KEPT_FROM: u64 = 61;
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_origin = origin_config(there.path());
        let origin = Node::start(at_origin.clone()).await.unwrap();
        fix(&mut at_origin, &origin);
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.links = vec![link("zeromq", &origin)];
        produce(&origin, 0..FIRST).await;
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        stored(&subscriber, STREAM, |held| held.len() as i64 == FIRST).await;
        subscriber.shutdown().await.unwrap();
        produce(&origin, FIRST..ALL).await;
        let log = origin.stream(STREAM).unwrap();
        log.log().trim(KEPT_FROM).unwrap().await.unwrap();
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        let held = ALL as u64 + 1 - KEPT_FROM + FIRST as u64;
        stored(&subscriber, STREAM, |all| all.len() as u64 == held).await;

        let lost = KEPT_FROM - 1 - FIRST as u64;
        let shown = completeness(&subscriber, STREAM, "").await;
        assert_eq!(shown["stored"], held, "{shown}");
        assert_eq!(shown["lost"], json!({ "trimmed": count(lost) }), "{shown}");
        assert_eq!(shown["exact"], true, "{shown}");
        let gap = &shown["gaps"][0];
        assert_eq!(
            (&gap["first"], &gap["next"]),
            (&json!(FIRST + 1), &json!(KEPT_FROM))
        );
        assert_eq!(gap["is_of_origin"], true);
        // Between the last one of the first run and the first one of the second.
        assert_eq!(gap["from"], "1970-01-01T00:00:19Z", "{gap}");
        assert_eq!(gap["to"], "1970-01-01T00:01:00Z", "{gap}");
        let query = "?from=1970-01-01T00:02:00Z&to=1970-01-01T00:03:00Z";
        let later = completeness(&subscriber, STREAM, query).await;
        assert_eq!(
            (&later["stored"], &later["lost"]),
            (&json!(0), &json!({})),
            "{later}"
        );
        // In SQL, next to the elements themselves.
        let sql = format!(
            "select kind, reason, elements, (select count(*) from \"{STREAM}\") as held \
             from completeness('{STREAM}') where kind in ('stored', 'lost') order by kind"
        );
        let body = json!({ "sql": sql }).to_string();
        let path = "/api/v1/streams/query";
        let answer = send(&subscriber, "POST", path, &[], body.as_bytes()).await;
        let wanted = json!([
            ["lost", "trimmed", lost, held],
            ["stored", null, held, held]
        ]);
        assert_eq!(answer.json()["rows"], wanted, "{answer:?}");
        let body = json!({ "sql": "select * from completeness('nothing')" }).to_string();
        let answer = send(&subscriber, "POST", path, &[], body.as_bytes()).await;
        assert!(
            answer.status == 400 && answer.body.contains("no such stream"),
            "{answer:?}"
        );
        // The origin removed them, and lost none.
        let shown = completeness(&origin, STREAM, "").await;
        assert_eq!(shown["removed"], count(KEPT_FROM - 1), "{shown}");
        assert_eq!(shown["lost"], json!({}), "{shown}");
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();

        // While the origin is away, the link is, which is on record; the loss still is, too.
        let subscriber = Node::start(at_subscriber).await.unwrap();
        let shown = completeness(&subscriber, STREAM, "").await;
        assert_eq!(shown["lost"], json!({ "trimmed": count(lost) }), "{shown}");
        until("the link is away", || async {
            let shown = completeness(&subscriber, STREAM, "").await;
            let last = shown["away"].as_array().unwrap().last().cloned();
            last.is_some_and(|last| last["who"] == "source" && last["to"].is_null())
        })
        .await;
        subscriber.shutdown().await.unwrap();
    });
}

#[test]
fn an_unplugged_device_is_silent_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("unplugged-{}", unique());
    let property = format!("https://example.org/{name}");
    described(directory.path(), &name, &property, 20);
    let file = directory.path().join(format!("{name}.toml"));
    let address = own_address().to_string();
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let start = || {
            let options = host_options(&address);
            let device = File::read(&file).unwrap();
            device.start(options, Drops::default()).unwrap()
        };
        let device = start();
        let path = format!(
            "/api/v1/devices/{}",
            device.host().endpoint().replace(':', "%3A")
        );
        let is_now = async |state: &str| {
            until(state, || async {
                get(&node, &path).await.json()["state"] == state
            })
            .await;
            get(&node, &path).await.json()
        };
        let shown = is_now("usable").await;
        let stream = shown["streams"][0].as_str().unwrap().to_owned();
        let present = completeness(&node, &stream, "").await;
        assert_eq!(present["away"], json!([]), "{present}");
        assert!(present["away_known_since"].is_string(), "{present}");
        device.stop().await;
        let reason = is_now("gone").await["reason"].clone();
        let away = completeness(&node, &stream, "").await;
        let last = &away["away"][0];
        assert_eq!(
            (&last["cause"], &last["to"]),
            (&reason, &Json::Null),
            "{away}"
        );
        assert_eq!(last["who"], "source");
        let device = start();
        is_now("usable").await;
        let back = completeness(&node, &stream, "").await;
        let all = back["away"].as_array().unwrap();
        assert!(all[0]["to"].is_string() && all.len() == 1, "{back}");
        assert_eq!(all[0]["from"], last["from"]);
        assert_eq!(back["away_s"], all[0]["seconds"]);
        assert_eq!(
            (&back["lost"], &back["exact"]),
            (&json!({}), &json!(true)),
            "{back}"
        );
        device.stop().await;
        node.shutdown().await.unwrap();
    });
}
