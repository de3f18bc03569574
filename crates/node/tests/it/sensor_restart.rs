//! Goal: after a restart of the node a virtual sensor resumes after its last evaluated element, with its
//! windows restored: no element is skipped or evaluated twice, and elements stored while it did not run are
//! evaluated later.
//! Method: nodes one after another on the same directory, every second one without the sensors: a sensor that
//! copies, one whose window and slide span the restarts, and one that seldom emits.

use std::path::Path;

use crate::common::config;
use chappe_node::Node;
use chappe_stream::{Field, FieldType, StreamElement, StreamLog, StreamSchema, Timestamp, Value};

/// Elements that each node stores; no multiple of the slide.
const EACH: i64 = 57;
const NODES: i64 = 6;
const SLIDE: i64 = 10;
/// The condition of the alarm: rare, and not in each window.
const HIGH: i64 = 57;

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "v".into(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn element(number: i64) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(number * 1_000_000),
        receive_time: Timestamp(number * 1_000_000),
        key: None,
        values: vec![Value::Integer(number)],
        quality: Default::default(),
        origin: None,
    }
}

fn describe(folder: &Path, name: &str, window: &str, sql: &str) {
    let text = format!(
        "name = \"{name}\"\n[[source]]\nalias = \"source\"\nstream = \"in\"\n{window}\n\
         [output]\nstream = \"{name}\"\nlevel = \"power\"\nsql = \"{sql}\"\n\
         [[output.field]]\nname = \"v\"\ntype = \"integer\"\n"
    );
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

fn values(log: &StreamLog) -> Vec<i64> {
    let mut values = Vec::new();
    let mut next = 1;
    while let Some(read) = log.read(next, 1_000).ok().filter(|read| !read.is_empty()) {
        next += read.len() as u64;
        values.extend(read.iter().map(|element| match element.values[..] {
            [Value::Integer(value)] => value,
            _ => panic!("{element:?}"),
        }));
    }
    values
}

/// Waits until the newest element of a stream is one of these.
async fn reaches(node: &Node, stream: &str, any: &[i64]) {
    let found = async {
        let log = loop {
            match node.stream(stream) {
                Some(log) => break log,
                None => tokio::task::yield_now().await,
            }
        };
        let mut follower = log.follow(0);
        while let Ok(elements) = follower.next().await {
            let newest = elements.last().map(|element| &element.values[..]);
            if matches!(newest, Some([Value::Integer(value)]) if any.contains(value)) {
                return;
            }
        }
    };
    let outcome = tokio::time::timeout(crate::common::PATIENCE, found).await;
    assert!(outcome.is_ok(), "{stream} does not reach {any:?}");
}

/// The result of the statement at an element; it is evaluated at the first and after each slide.
fn sum(end: i64) -> i64 {
    ((end - SLIDE + 1).max(0)..=end).sum()
}

async fn run(directory: &Path, number: i64, with_sensors: bool) {
    let mut config = config(directory);
    if !with_sensors {
        config.sensors_directory = directory.join("none");
    }
    let node = Node::start(config).await.unwrap();
    let last = (number + 1) * EACH;
    for first in (number * EACH + 1..=last).step_by(7) {
        let batch: Vec<_> = (first..=last.min(first + 6)).map(element).collect();
        node.store("in", &schema(), &batch).await.unwrap();
    }
    if with_sensors {
        reaches(&node, "copy", &[last]).await;
        let sums = [0, 1].map(|begun| sum((last - begun) / SLIDE * SLIDE + begun));
        reaches(&node, "sum", &sums).await;
        reaches(&node, "alarm", &[last / HIGH * HIGH]).await;
    }
    node.shutdown().await.unwrap();
}

#[test]
fn no_element_is_passed_over_and_none_evaluated_twice() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("sensors");
    std::fs::create_dir_all(&folder).unwrap();
    describe(&folder, "copy", "", "select v from source");
    let window = format!("window = {SLIDE}\nslide = {SLIDE}");
    describe(&folder, "sum", &window, "select sum(v) as v from source");
    let sql = format!("select v from source where v % {HIGH} = 0");
    describe(&folder, "alarm", "", &sql);
    let runtime = || chappe_node::runtime().unwrap();
    // Each begins with this element or behind it: it is there while they are bound.
    runtime().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        node.store("in", &schema(), &[element(0)]).await.unwrap();
        bound(&node).await;
        node.shutdown().await.unwrap();
    });
    for number in 0..NODES {
        runtime().block_on(run(directory.path(), number, number % 2 == 1));
    }
    runtime().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let found = |name: &str| values(&node.stream(name).unwrap());
        let all = NODES * EACH;
        let copied = found("copy");
        assert_eq!(copied, (copied[0]..=all).collect::<Vec<_>>());
        let sums = found("sum");
        let begun = i64::from(sums[0] != 0);
        assert_eq!(sums, (begun..=all).step_by(10).map(sum).collect::<Vec<_>>());
        let alarms = found("alarm");
        let high = (alarms[0]..=all).filter(|v| v % HIGH == 0);
        assert_eq!(alarms, high.collect::<Vec<_>>());
        assert!(copied[0] <= 1 && sums[0] <= 1 && alarms[0] <= HIGH);
        node.shutdown().await.unwrap();
    });
}

/// Waits until all sensors are bound.
async fn bound(node: &Node) {
    let all = async {
        loop {
            let sensors = crate::common::get(node, "/api/v1/virtual-sensors")
                .await
                .json();
            let sensors = sensors["virtual_sensors"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let running = sensors.iter().filter(|it| it["state"] == "running").count();
            if running == 3 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::time::timeout(crate::common::PATIENCE, all).await;
    assert!(outcome.is_ok(), "the sensors are not bound");
}
