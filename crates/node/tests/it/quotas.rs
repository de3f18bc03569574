//! Goal: a device that sends too much is slowed to its quota and loses nothing that was answered; a device
//! that offers too many streams loses only its own elements, counted exactly with the reason; other devices
//! lose nothing.
//! Method: real devices of this process on loopback, one of them above a configured quota, and a node; the sent
//! elements are compared with the streams and the counted losses.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::devices::{host_options, until};
use crate::common::linked::stored;
use crate::common::medical::{Hosting, Monitor, Product};
use crate::common::{block, config, get, own_address};
use chappe_device::HostOptions;
use chappe_dpws::eventing::SourceConfig;
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{StreamElement, Value};
use serde_json::Value as Json;

const PLAIN: u32 = 262_656;
/// Metrics of the flood and of the backlog, which are all in each report.
const METRICS: u64 = 50;
/// Allowed elements per second, and the maximum that the other device sends: a burst of five
/// seconds is allowed.
const ALLOWED: u64 = 250;
const CALM_MOST: i64 = 4 * ALLOWED as i64;
/// Reports of a backlog: more than the allowed burst of five seconds.
const BACKLOG: i64 = 100;
/// Reports of the flood to store before it ends: three times those of five seconds.
const FLOOD: i64 = 75;

fn looking(directory: &tempfile::TempDir) -> Config {
    let mut config = config(directory.path());
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    config
}

/// Elements lost of streams with this prefix, for reasons with this prefix.
async fn lost(node: &Node, prefix: &str, reason: &str) -> u64 {
    let metrics = get(node, "/metrics").await.body;
    let of_device = format!("chappe_lost_total{{stream=\"{prefix}");
    let of_reason = format!("reason=\"{reason}");
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with(&of_device) && line.contains(&of_reason));
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    lines.map(count).sum()
}

#[test]
fn a_flood_is_slowed_to_its_quota_and_others_lose_nothing() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = looking(&directory);
        config.devices.max_elements_per_s = ALLOWED;
        let node = Node::start(config).await.unwrap();
        let start = Instant::now();
        let flood = subscribed_backlog(&node).await;
        let calm = Monitor::start(&own_address().to_string(), Hosting::Together);
        until(&node, &calm.path(), |device| device["state"] == "usable").await;
        let (mut sent, mut calm_sent) = (0, 0);
        loop {
            let stored_elements = stored_of(&node, &flood);
            // Before a report is read, at most those of five seconds and of the time that passed are.
            let most = ALLOWED as f64 * (5.0 + start.elapsed().as_secs_f64()) + METRICS as f64;
            assert!(
                stored_elements as f64 <= most,
                "{stored_elements} of {most}"
            );
            if stored_elements >= FLOOD as u64 * METRICS {
                break;
            }
            // More than its own queue holds would be dropped by the device itself.
            while sent < (stored_elements / METRICS) as i64 + BACKLOG / 2 {
                sent += 1;
                flood.set_all(sent).await;
            }
            if calm_sent < CALM_MOST {
                calm_sent += 1;
                calm.set("steady", calm_sent).await;
                let is_there = |held: &[StreamElement]| held.len() as i64 == calm_sent;
                stored(&node, &calm.stream("steady"), is_there).await;
            } else {
                let is_more = || async { stored_of(&node, &flood) > stored_elements };
                crate::common::linked::until("more is stored", is_more).await;
            }
        }
        let shown = until(&node, &flood.path(), is_slowed).await;
        assert_eq!(shown["state"], "attention");
        let all_stored = || async { stored_of(&node, &flood) == sent as u64 * METRICS };
        crate::common::linked::until("all are stored", all_stored).await;
        assert_eq!(lost(&node, &flood.name, "").await, 0);

        let shown = get(&node, &calm.path()).await.json();
        assert_eq!(shown["state"], "usable");
        assert_eq!(
            values(&node, &calm.stream("steady")),
            Vec::from_iter(1..=calm_sent)
        );
        let slowed = "chappe_devices_slowed_total{quota=\"devices.max_elements_per_s\"}";
        assert!(get(&node, "/metrics").await.body.contains(slowed));
        // A device that keeps to its quota is usable again.
        until(&node, &flood.path(), |device| device["state"] == "usable").await;
        node.shutdown().await.unwrap();
        flood.host.stop().await;
        calm.host.stop().await;
    });
}

/// Only one test of this process at a time: otherwise the nodes of other tests would subscribe to
/// its devices too, and the delivery counts include all subscribers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device with many metrics that holds a backlog and sends each report when the previous one is
/// answered.
fn with_backlog() -> Monitor {
    let name = format!("backlog-{}", crate::common::devices::unique());
    let key = chappe_identity::Key::from_seed(chappe_transport::seed().unwrap());
    let endpoint = chappe_device::host::endpoint_of(&key);
    let product = Product {
        name,
        ..Product::default()
    };
    let options = HostOptions {
        eventing: SourceConfig {
            queue_max: BACKLOG as usize,
            subscriptions_max: 1,
            ..SourceConfig::default()
        },
        ..host_options(&own_address().to_string())
    };
    let monitor = Monitor::start_product(&endpoint, &product, Hosting::Together, options);
    for number in 1..METRICS {
        monitor.put_silently(&format!("m{number}"), PLAIN, 2);
    }
    monitor
}

/// The same, when this node is its subscriber, and not one of another test on this host.
async fn subscribed_backlog(node: &Node) -> Monitor {
    loop {
        let monitor = with_backlog();
        let path = monitor.path();
        let usable = until(node, &path, |device| device["state"] == "usable");
        if tokio::time::timeout(Duration::from_secs(20), usable)
            .await
            .is_ok()
        {
            return monitor;
        }
        monitor.host.stop().await;
    }
}

/// The names of its streams.
fn streams_of(monitor: &Monitor) -> impl Iterator<Item = String> {
    let handles = (1..METRICS).map(|number| format!("m{number}"));
    let handles = handles.chain(["steady".to_owned()]);
    handles.map(|handle| monitor.stream(&handle))
}

/// Elements of a device that are stored.
fn stored_of(node: &Node, monitor: &Monitor) -> u64 {
    let last = |stream: String| node.stream(&stream).map_or(0, |stream| stream.log().last());
    streams_of(monitor).map(last).sum()
}

fn is_slowed(device: &Json) -> bool {
    let reason = device["reason"].as_str().unwrap_or_default();
    reason.contains("devices.max_elements_per_s")
}

/// The values of a stream that are stored, as they were sent.
fn values(node: &Node, stream: &str) -> Vec<i64> {
    let stream = node.stream(stream).unwrap();
    let all = stream.newest(usize::MAX).unwrap();
    let value = |element: &StreamElement| match element.values[0] {
        Value::Double(value) => value as i64,
        ref other => panic!("{other:?}"),
    };
    all.iter().map(value).collect()
}

#[test]
fn a_device_that_waits_for_its_answers_loses_nothing_of_a_backlog() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = looking(&directory);
        config.devices.max_elements_per_s = ALLOWED;
        let node = Node::start(config).await.unwrap();
        let monitor = subscribed_backlog(&node).await;
        for value in 1..=BACKLOG {
            monitor.set_all(value).await;
        }
        until(&node, &monitor.path(), is_slowed).await;
        let sent = BACKLOG as u64 * METRICS;
        let done =
            || async { stored_of(&node, &monitor) + lost(&node, &monitor.name, "").await == sent };
        crate::common::linked::until("all are stored or lost", done).await;
        for stream in streams_of(&monitor) {
            assert_eq!(
                values(&node, &stream),
                Vec::from_iter(1..=BACKLOG),
                "{stream}"
            );
        }
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn a_node_that_stops_while_a_device_is_slowed_stores_all_that_it_answered() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = looking(&directory);
        config.devices.max_elements_per_s = ALLOWED;
        let node = Node::start(config.clone()).await.unwrap();
        let monitor = subscribed_backlog(&node).await;
        let mut state = monitor.host.state();
        for value in 1..=BACKLOG {
            monitor.set_all(value).await;
        }
        // Beyond those of five seconds: some of these were answered and are not stored yet.
        let answered = state.wait_for(|state| state.delivered >= 60);
        answered.await.unwrap();
        node.shutdown().await.unwrap();
        let answered = monitor.host.state().borrow().delivered as i64;

        config.discovery.enabled = false;
        let node = Node::start(config).await.unwrap();
        for stream in streams_of(&monitor) {
            // The answer to the last one that is stored may not have arrived.
            let mut stored = values(&node, &stream);
            stored.truncate(answered as usize);
            assert_eq!(stored, Vec::from_iter(1..=answered), "{stream}");
        }
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn a_device_has_as_many_streams_as_allowed_however_they_change_and_others_get_theirs() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let greedy = Monitor::start(&own_address().to_string(), Hosting::Together);
        for number in 0..6 {
            greedy.put_silently(&format!("guest_{number}"), PLAIN, 2);
        }
        let mut config = looking(&directory);
        config.devices.max_streams = 4;
        let node = Node::start(config).await.unwrap();
        let is_refused = |device: &Json| {
            let reason = device["reason"].as_str().unwrap_or_default();
            device["state"] == "attention" && reason.contains("devices.max_streams")
        };
        let shown = until(&node, &greedy.path(), is_refused).await;
        let first = ["guest_0", "guest_1", "guest_2", "guest_3"].map(|one| greedy.stream(one));
        assert_eq!(shown["streams"], serde_json::json!(first));
        greedy.set("guest_5", 1).await;
        let counted = || async { lost(&node, &greedy.stream("guest_5"), "no stream").await == 1 };
        crate::common::linked::until("the element is counted", counted).await;

        // Others come in place of those that have streams.
        for number in 0..4 {
            greedy.remove(&format!("guest_{number}")).await;
            greedy.put(&format!("later_{number}"), PLAIN, 2).await;
        }
        greedy.set("later_3", 1).await;
        let counted = || async { lost(&node, &greedy.stream("later_3"), "no stream").await == 1 };
        crate::common::linked::until("the element is counted", counted).await;
        for number in 0..4 {
            assert!(
                node.stream(&greedy.stream(&format!("later_{number}")))
                    .is_none()
            );
        }

        let modest = Monitor::start(&own_address().to_string(), Hosting::Together);
        let shown = until(&node, &modest.path(), |device| device["state"] == "usable").await;
        assert_eq!(
            shown["streams"],
            serde_json::json!([modest.stream("steady")])
        );
        node.shutdown().await.unwrap();
        greedy.host.stop().await;
        modest.host.stop().await;
    });
}
