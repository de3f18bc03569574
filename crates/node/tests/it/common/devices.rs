//! Real devices of this process on the loopback, and waits for the node's results.

use std::path::Path;
use std::time::Duration;

use chappe_device::file::{File, FileDevice};
use chappe_device::{HostOptions, Selection};
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_transport::Drops;
use serde_json::Value;

use super::{config, get};

/// A name that no other test on this host observes or uses.
pub(crate) fn unique() -> String {
    let seed = chappe_transport::seed().unwrap();
    seed[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The configuration of a node that looks for devices on the loopback.
pub(crate) fn looking(directory: &Path) -> Config {
    let mut config = config(directory);
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    config
}

/// A thermometer that alternates between two values, every 20 ms.
pub(crate) fn device(directory: &Path, name: &str, property: &str, address: &str) -> FileDevice {
    let file = described(directory, name, property, 20);
    file.start(host_options(address), Drops::default()).unwrap()
}

/// A device that lives at this address of the loopback.
pub(crate) fn host_options(address: &str) -> HostOptions {
    HostOptions {
        selection: Selection::Addresses(vec![address.parse().unwrap()]),
        app_max_delay: Duration::ZERO,
        ..HostOptions::default()
    }
}

/// The description of that thermometer, with this period.
pub(crate) fn described(directory: &Path, name: &str, property: &str, period_ms: u32) -> File {
    let uuid = unique() + &unique() + &unique()[..8];
    let uuid = format!(
        "{}-{}-4{}-8{}-{}",
        &uuid[..8],
        &uuid[8..12],
        &uuid[13..16],
        &uuid[17..20],
        &uuid[20..32]
    );
    let text = format!(
        r#"name = "{name}"
manufacturer = "Example"
model = "T1"
uuid = "{uuid}"
namespace = "https://example.org/thermometer"
types = ["Thermometer"]

[[event]]
name = "Reading"
period_ms = {period_ms}
recording = "{name}.csv"

[[event.field]]
name = "celsius"
type = "double"
unit = "Cel"
property = "{property}"
"#
    );
    let path = directory.join(format!("{name}.toml"));
    std::fs::write(
        directory.join(format!("{name}.csv")),
        "celsius\n20.5\n21.5\n",
    )
    .unwrap();
    std::fs::write(&path, text).unwrap();
    File::read(&path).unwrap()
}

/// Asks until the answer is as wanted.
pub(crate) async fn until(node: &Node, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = get(node, path).await;
        if answer.status == 200 {
            let json = answer.json();
            if wanted(&json) {
                return json;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
