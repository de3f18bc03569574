//! Goal: a medical device in use that begins to answer GetMdib with an error, a half or another device's
//! description is shown with the reason, its known streams go on, and with the right answer everything
//! that it reported is stored once.
//! Method: a real device of this process on the loopback that changes its answers, and a node.

use crate::common::devices::{looking, until};
use crate::common::linked::stored;
use crate::common::medical::{Answer, Hosting, Monitor, are_all_once};
use crate::common::{block, own_address};
use chappe_node::Node;
use chappe_stream::{StreamElement, Value};

const PLAIN: u32 = 262_656;
const STATES: i64 = 5;

async fn values(node: &Node, monitor: &Monitor, handle: &str, count: i64) -> Vec<i64> {
    let there = |held: &[StreamElement]| held.len() as i64 >= count;
    numbers(&stored(node, &monitor.stream(handle), there).await)
}

fn numbers(held: &[StreamElement]) -> Vec<i64> {
    let number = |element: &StreamElement| match element.values[0] {
        Value::Double(value) => value as i64,
        _ => panic!("{element:?}"),
    };
    held.iter().map(number).collect()
}

fn recovers_from(answer: Answer, why: &'static str) {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let monitor = Monitor::start(&own_address().to_string(), Hosting::Together);
        until(&node, &monitor.path(), |device| device["state"] == "usable").await;
        monitor.set("steady", 1).await;
        assert_eq!(values(&node, &monitor, "steady", 1).await, [1]);

        monitor.answer(answer);
        // The report that says what it is gets lost, so that its description has to be read.
        monitor.put_silently("guest", PLAIN, 2);
        for value in 1..=STATES {
            monitor.set("guest", value).await;
            monitor.set("steady", 1 + value).await;
        }
        let is_shown = |device: &serde_json::Value| {
            let reason = device["reason"].as_str().unwrap_or_default();
            device["state"] == "attention" && reason.contains(why)
        };
        until(&node, &monitor.path(), is_shown).await;
        monitor.answer(Answer::Right);
        let is_whole = |device: &serde_json::Value| {
            device["state"] == "usable" && device["streams"].as_array().unwrap().len() == 2
        };
        until(&node, &monitor.path(), is_whole).await;
        monitor.set("guest", STATES + 1).await;
        let steady = values(&node, &monitor, "steady", 1 + STATES).await;
        assert!(
            are_all_once(&steady, 1..=1 + STATES),
            "{answer:?}: {steady:?}"
        );
        let is_last = |held: &[StreamElement]| {
            let newest = held.last().map(|element| &element.values[0]);
            newest == Some(&Value::Double((STATES + 1) as f64))
        };
        let guest = stored(&node, &monitor.stream("guest"), is_last).await;
        let guest = numbers(&guest);
        let newest = STATES + 2 - guest.len() as i64..=STATES + 1;
        assert!(are_all_once(&guest, newest), "{answer:?}: {guest:?}");
        node.shutdown().await.unwrap();
        monitor.host.stop().await;
    });
}

#[test]
fn an_error_while_in_use_is_shown_and_costs_known_streams_nothing() {
    recovers_from(Answer::Fault, "it is starting");
}

#[test]
fn a_half_description_while_in_use_is_shown_and_costs_known_streams_nothing() {
    recovers_from(Answer::Half, "MdDescription");
}

#[test]
fn the_description_of_another_device_while_in_use_is_shown_and_costs_known_streams_nothing() {
    recovers_from(Answer::Other, "another sequence");
}
