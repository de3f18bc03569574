//! Goal: every state of a medical device is stored once, whatever happens to its description: unreadable at
//! first, half or that of another device, changing constantly, with toggling units, losing metrics; also
//! when the node shuts down, and when node or device restart.
//! Method: real devices of this process on loopback with scripted behavior, and a node; the device's count of
//! deliveries is compared with the streams.

use std::collections::BTreeMap;

use crate::common::devices::{looking, unique, until};
use crate::common::linked::stored;
use crate::common::medical::{Answer, Hosting, Monitor, are_all_once};
use crate::common::{block, elements, get, write_sensor};
use chappe_node::Node;
use chappe_stream::Value;
use serde_json::Value as Json;

const PLAIN: u32 = 262_656;
const PERCENT: u32 = 262_688;

async fn start(directory: &tempfile::TempDir) -> Node {
    Node::start(looking(directory.path())).await.unwrap()
}

async fn usable(node: &Node, monitor: &Monitor) -> Json {
    until(node, &monitor.path(), |device| device["state"] == "usable").await
}

/// Waits until the device is shown with this in the reason why it cannot be used.
async fn attention(node: &Node, monitor: &Monitor, why: &str) {
    let is_so = |device: &Json| {
        let reason = device["reason"].as_str().unwrap_or_default();
        device["state"] == "attention" && reason.contains(why)
    };
    until(node, &monitor.path(), is_so).await;
}

/// The values of a metric, once there are this many.
async fn values(node: &Node, monitor: &Monitor, handle: &str, count: usize) -> Vec<i64> {
    let there = |held: &[chappe_stream::StreamElement]| held.len() >= count;
    let held = stored(node, &monitor.stream(handle), there).await;
    let value = |element: &chappe_stream::StreamElement| match element.values[0] {
        Value::Double(value) => value as i64,
        _ => panic!("{element:?}"),
    };
    held.iter().map(value).collect()
}

/// The losses of this device's streams, by reason.
async fn lost(node: &Node, monitor: &Monitor) -> BTreeMap<String, u64> {
    let metrics = get(node, "/metrics").await.body;
    let of_device = format!("chappe_lost_total{{stream=\"{}", monitor.name);
    let lines = metrics.lines().filter(|line| line.starts_with(&of_device));
    let counts = lines.map(|line| {
        let (labels, count) = line.rsplit_once(' ').unwrap();
        let reason = labels.split('"').nth(3).unwrap_or_default();
        (reason.to_owned(), count.parse().unwrap())
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_description_that_cannot_be_read_is_asked_for_again_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        for (answer, why) in [
            (Answer::Fault, "it is starting"),
            (Answer::Half, "MdDescription"),
        ] {
            let monitor = Monitor::start("127.0.9.41", Hosting::Together);
            monitor.answer(answer);
            let node = start(&directory).await;
            attention(&node, &monitor, why).await;
            for value in 1..=5 {
                monitor.set("steady", value).await;
            }
            monitor.answer(Answer::Right);
            let shown = usable(&node, &monitor).await;
            assert_eq!(shown["streams"][0], monitor.stream("steady"));
            assert_eq!(shown["reason"], Json::Null);
            let held = values(&node, &monitor, "steady", 5).await;
            assert!(are_all_once(&held, 1..=5), "after {answer:?}: {held:?}");
            assert_eq!(lost(&node, &monitor).await, BTreeMap::new());
            node.shutdown().await.unwrap();
            monitor.host.stop().await;
        }
    });
}

#[test]
fn the_description_of_another_device_is_found_out_by_the_first_report() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start("127.0.9.42", Hosting::Together);
        monitor.answer(Answer::Other);
        let node = start(&directory).await;
        usable(&node, &monitor).await;
        monitor.set("steady", 1).await;
        attention(&node, &monitor, "another sequence").await;
        monitor.answer(Answer::Right);
        let shown = usable(&node, &monitor).await;
        assert_eq!(
            shown["streams"],
            serde_json::json!([monitor.stream("steady")])
        );
        assert_eq!(values(&node, &monitor, "steady", 1).await, [1]);
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

/// Metrics that appear and disappear, and one that stays: every state sent is stored once.
fn changes_and_keeps_all(address: &str, hosting: Hosting) {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start(address, hosting);
        let node = start(&directory).await;
        usable(&node, &monitor).await;
        let mut sent: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for round in 0..30 {
            let handle = format!("guest_{}", round % 10);
            let send = |value, handle: &str| {
                sent.entry(handle.to_owned()).or_default().push(value);
            };
            let mut send = send;
            monitor.put(&handle, PLAIN, 2).await;
            for step in 0..3 {
                let value = 10 * round + step;
                send(value, &handle);
                monitor.set(&handle, value).await;
                send(value, "steady");
                monitor.set("steady", value).await;
            }
            // When they have come the metric may go.
            values(&node, &monitor, &handle, sent[&handle].len()).await;
            let last = 10 * round + 3;
            sent.entry(handle.clone()).or_default().push(last);
            monitor.set(&handle, last).await;
            monitor.remove(&handle).await;
        }
        for (handle, sent) in &sent {
            let held = values(&node, &monitor, handle, sent.len()).await;
            assert_eq!(held, *sent, "of {handle}, {hosting:?}");
        }
        assert_eq!(lost(&node, &monitor).await, BTreeMap::new());
        let is_alone = |device: &Json| device["streams"].as_array().unwrap().len() == 1;
        until(&node, &monitor.path(), is_alone).await;
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn a_description_that_changes_loses_and_doubles_nothing() {
    changes_and_keeps_all("127.0.9.43", Hosting::Together);
}

#[test]
fn reports_that_overtake_each_other_lose_and_double_nothing() {
    changes_and_keeps_all("127.0.9.44", Hosting::Apart);
}

#[test]
fn a_unit_may_toggle_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start("127.0.9.45", Hosting::Together);
        let node = start(&directory).await;
        usable(&node, &monitor).await;
        for round in 0..300 {
            let unit = [PERCENT, PLAIN][round as usize % 2];
            monitor.put("steady", unit, 1).await;
            monitor.set("steady", round).await;
            if round % 10 == 9 {
                // A device drops events of those who do not keep up.
                values(&node, &monitor, "steady", round as usize + 1).await;
            }
        }
        let held = values(&node, &monitor, "steady", 300).await;
        // Every second one was in per cent, and is read as a whole number of the present unit.
        let expected = (0..300).map(|round| if round % 2 == 0 { round / 100 } else { round });
        assert!(held.iter().copied().eq(expected), "{held:?}");
        let log = node.stream(&monitor.stream("steady")).unwrap();
        assert!(log.schema_version() < 2);
        let raw = |from| log.log().read(from, 1).unwrap();
        assert_ne!(
            raw(1)[0].payload[0],
            raw(2)[0].payload[0],
            "each has its unit"
        );
        assert_eq!(log.schema().fields[0].unit.as_deref(), Some("1"));
        usable(&node, &monitor).await;
        assert_eq!(lost(&node, &monitor).await, BTreeMap::new());
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn elements_without_a_stream_are_counted_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start("127.0.9.46", Hosting::Together);
        let mut config = looking(directory.path());
        config.log.max_streams = 1;
        let node = Node::start(config).await.unwrap();
        let schema = chappe_stream::StreamSchema::default();
        let element = elements::element(0, Vec::new());
        node.store("first", &schema, &[element]).await.unwrap();
        attention(&node, &monitor, "log.max_streams").await;
        for value in 0..3 {
            monitor.set("steady", value).await;
        }
        let counted = || async { lost(&node, &monitor).await.get("no stream") == Some(&3) };
        crate::common::linked::until("they are counted", counted).await;
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn a_metric_that_vanishes_is_unregistered_and_its_sensor_takes_another() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let property = 1 + u32::from_str_radix(&unique()[..6], 16).unwrap();
        let monitor = Monitor::start("127.0.9.47", Hosting::Together);
        monitor.put("first", PLAIN, property).await;
        let sensor = format!(
            "name = \"follower\"\n[[source]]\nalias = \"s\"\nbind = \"one\"\n\
             query = {{ observed_property = \"urn:oid:1.2.840.10004.1.1.1.0.0.1.{property}\" }}\n\
             window = 1\n[output]\nsql = \"select last(value) as v from s\"\n\
             [[output.field]]\nname = \"v\"\ntype = \"double\"\n"
        );
        write_sensor(directory.path(), "follower", &sensor);
        let node = start(&directory).await;
        let is_bound = |handle: &'static str| {
            let stream = monitor.stream(handle);
            move |sensor: &Json| sensor["sources"][0]["bound"][0]["stream"] == *stream
        };
        let sensor = "/api/v1/virtual-sensors/follower";
        until(&node, sensor, is_bound("first")).await;
        monitor.put("second", PLAIN, property).await;
        let both = |device: &Json| device["streams"].as_array().unwrap().len() == 3;
        until(&node, &monitor.path(), both).await;
        monitor.remove("first").await;
        until(&node, sensor, is_bound("second")).await;
        let key = format!("urn:chappe:stream:{}", monitor.stream("first")).replace(':', "%3A");
        let entity = get(&node, &format!("/api/v1/entities/{key}")).await;
        assert_eq!(entity.status, 404, "{}", entity.body);
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn a_node_that_begins_again_does_not_store_again_what_it_reads() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start("127.0.9.48", Hosting::Together);
        let mut sent = 0;
        for _ in 0..3 {
            let node = start(&directory).await;
            usable(&node, &monitor).await;
            for _ in 0..5 {
                sent += 1;
                monitor.set("steady", sent).await;
            }
            let held = values(&node, &monitor, "steady", sent as usize).await;
            assert!(held.iter().copied().eq(1..=sent), "{held:?}");
            node.shutdown().await.unwrap();
        }
        monitor.host.stop().await;
    });
}

#[test]
fn a_device_that_begins_again_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let address = "127.0.9.49";
        let monitor = Monitor::start(address, Hosting::Together);
        let node = start(&directory).await;
        usable(&node, &monitor).await;
        for value in 0..5 {
            monitor.set("steady", value).await;
        }
        values(&node, &monitor, "steady", 5).await;
        let (endpoint, name) = (monitor.host.endpoint().to_owned(), monitor.name.clone());
        monitor.host.stop().await;
        // Versions of states begin again with the new sequence.
        let again = Monitor::start_as(&endpoint, &name, address, Hosting::Together);
        again.valued("steady", 5);
        usable(&node, &again).await;
        values(&node, &again, "steady", 6).await;
        again.set("steady", 6).await;
        assert_eq!(
            values(&node, &again, "steady", 7).await,
            [0, 1, 2, 3, 4, 5, 6]
        );
        node.shutdown().await.unwrap();
        again.host.stop().await;
    });
}

#[test]
fn missed_reports_are_reported_and_their_changes_are_read() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start("127.0.9.50", Hosting::Together);
        let node = start(&directory).await;
        usable(&node, &monitor).await;
        monitor.set("steady", 1).await;
        monitor.valued("steady", 2);
        monitor.put_silently("unheard_of", PLAIN, 2);
        monitor.valued("steady", 3);
        monitor.set("steady", 4).await;
        assert_eq!(values(&node, &monitor, "steady", 2).await, [1, 4]);
        let notices = get(&node, "/api/v1/notices").await.body;
        assert!(
            notices.contains("steady: 2 states were not reported"),
            "{notices}"
        );
        assert!(
            notices.contains("MdibVersion 2 is followed by 6"),
            "{notices}"
        );
        let is_read_again = |device: &Json| device["streams"].as_array().unwrap().len() == 2;
        until(&node, &monitor.path(), is_read_again).await;
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}
