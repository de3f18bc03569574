//! Goal: a device with many streams is attached in few syncs of the log, however many streams it has.
//! Method: a real device of this process on the loopback with 500 events, which are all silent but for
//! their first; the node's own counters say how often the log was synced.

use crate::common::devices::{host_options, looking, unique, until};
use crate::common::{block, own_address};
use chappe_device::file::File;
use chappe_node::Node;
use chappe_transport::Drops;

const EVENTS: usize = 500;

#[test]
fn many_streams_cost_few_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("many-{}", unique());
    let mut text = format!(
        "name = \"{name}\"\nmanufacturer = \"Example\"\nmodel = \"M1\"\n\
         namespace = \"https://example.org/many\"\ntypes = [\"Many\"]\n"
    );
    for number in 0..EVENTS {
        text += &format!(
            "[[event]]\nname = \"Reading{number}\"\nperiod_ms = 3600000\nrecording = \"one.csv\"\n\
             [[event.field]]\nname = \"celsius\"\ntype = \"double\"\n"
        );
    }
    let path = directory.path().join("many.toml");
    std::fs::write(directory.path().join("one.csv"), "celsius\n20.5\n").unwrap();
    std::fs::write(&path, text).unwrap();
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let before = node.log_counters().syncs;
        let address = own_address().to_string();
        let file = File::read(&path).unwrap();
        let device = file
            .start(host_options(&address), Drops::default())
            .unwrap();
        let endpoint = device.host().endpoint().replace(':', "%3A");
        let path = format!("/api/v1/devices/{endpoint}");
        let shown = until(&node, &path, |device| {
            device["streams"]
                .as_array()
                .is_some_and(|all| all.len() == EVENTS)
        })
        .await;
        let syncs = node.log_counters().syncs - before;
        // One after another they cost one each at least; how many share one depends on the machine.
        assert!(
            syncs <= EVENTS as u64 * 3 / 4,
            "{syncs} syncs for {EVENTS} streams: {shown}"
        );
        until(&node, &path, |device| device["state"] == "usable").await;
        node.shutdown().await.unwrap();
        device.stop().await;
    });
}
