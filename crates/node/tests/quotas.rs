//! Goal: a device that sends too much or offers too many streams loses of its own, to the number and
//! with the reason, and nothing of the other devices.
//! Method: real devices of this process on the loopback, one of them above a quota of the configuration,
//! and a node; what the devices sent against the streams and the counted losses.

mod common;

use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{StreamElement, Value};
use common::devices::until;
use common::linked::stored;
use common::medical::{Hosting, Monitor};
use common::{block, config, get, own_address};
use serde_json::Value as Json;

const PLAIN: u32 = 262_656;
/// Elements that the flood is to lose before it ends.
const LOST: u64 = 2_000;
/// Metrics of the flood, which are all in each report.
const METRICS: u64 = 50;
/// Reports on their way to the node; with more than 64 the device itself would drop some.
const UNDER_WAY: u64 = 40;
/// Elements a second that are allowed, and the most that the other device sends: it may bring those of
/// five seconds at once.
const ALLOWED: u64 = 20;
const CALM_MOST: i64 = 4 * ALLOWED as i64;

fn looking(directory: &tempfile::TempDir) -> Config {
    let mut config = config(directory.path());
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    config
}

/// What was lost of streams with this prefix, for this reason.
async fn lost(node: &Node, prefix: &str, reason: &str) -> u64 {
    let metrics = get(node, "/metrics").await.body;
    let of_device = format!("chappe_lost_total{{stream=\"{prefix}");
    let of_reason = format!("reason=\"{reason}\"");
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with(&of_device) && line.contains(&of_reason));
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    lines.map(count).sum()
}

/// Elements of the device that the node has stored or counted as lost.
async fn done(node: &Node, flood: &Monitor) -> u64 {
    let handles = (1..METRICS).map(|number| format!("m{number}"));
    let streams = handles.chain(["steady".to_owned()]);
    let last = |handle: String| node.stream(&flood.stream(&handle)).unwrap().log().last();
    let stored: u64 = streams.map(last).sum();
    stored + lost(node, &flood.name, "device_elements_quota").await
}

#[test]
fn a_flood_is_cut_to_its_quota_and_counted_and_others_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = looking(&directory);
        config.devices.max_elements_per_s = ALLOWED;
        let node = Node::start(config).await.unwrap();
        let flood = Monitor::start(&own_address().to_string(), Hosting::Together);
        for number in 1..METRICS {
            flood.put_silently(&format!("m{number}"), PLAIN, 2);
        }
        let calm = Monitor::start(&own_address().to_string(), Hosting::Together);
        for monitor in [&flood, &calm] {
            until(&node, &monitor.path(), |device| device["state"] == "usable").await;
        }
        let (mut sent, mut calm_sent) = (0, 0);
        while lost(&node, &flood.name, "device_elements_quota").await < LOST {
            let done = done(&node, &flood).await;
            while sent * METRICS < done + UNDER_WAY * METRICS {
                sent += 1;
                flood.set_all(sent as i64).await;
            }
            if calm_sent < CALM_MOST {
                calm_sent += 1;
                calm.set("steady", calm_sent).await;
                let is_there = |held: &[StreamElement]| held.len() as i64 == calm_sent;
                stored(&node, &calm.stream("steady"), is_there).await;
            }
        }
        let is_shown = |device: &Json| {
            let reason = device["reason"].as_str().unwrap_or_default();
            reason.contains("devices.max_elements_per_s") && reason.contains("dropped")
        };
        let shown = until(&node, &flood.path(), is_shown).await;
        assert_eq!(shown["state"], "attention");
        let counted = || async { done(&node, &flood).await == sent * METRICS };
        common::linked::until("all are stored or lost", counted).await;

        let shown = get(&node, &calm.path()).await.json();
        assert_eq!(shown["state"], "usable");
        let held = stored(&node, &calm.stream("steady"), |_| true).await;
        let values = held.iter().map(|element| element.values[0].clone());
        assert!(values.eq((1..=calm_sent).map(|value| Value::Double(value as f64))));
        let slowed = "chappe_devices_slowed_total{quota=\"devices.max_elements_per_s\"}";
        assert!(get(&node, "/metrics").await.body.contains(slowed));
        // A device that keeps to its quota is usable again.
        until(&node, &flood.path(), |device| device["state"] == "usable").await;
        node.shutdown().await.unwrap();
        flood.host.stop().await;
        calm.host.stop().await;
    });
}

#[test]
fn a_device_has_as_many_streams_as_allowed_however_they_change_and_others_get_theirs() {
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
        common::linked::until("the element is counted", counted).await;

        // Others come in place of those that have streams.
        for number in 0..4 {
            greedy.remove(&format!("guest_{number}")).await;
            greedy.put(&format!("later_{number}"), PLAIN, 2).await;
        }
        greedy.set("later_3", 1).await;
        let counted = || async { lost(&node, &greedy.stream("later_3"), "no stream").await == 1 };
        common::linked::until("the element is counted", counted).await;
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
