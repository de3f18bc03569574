//! `chappe device list` and `call`: the devices that a node knows, and the operations of those that are announced to it.

use serde_json::{Map, Value, json};

use super::exclusion::run;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{DeviceCall, NodeAddress};
use crate::output::{self, Failure, Outcome, Table};

/// Lists the devices.
pub(crate) fn list(node: &NodeAddress, json: bool) -> Outcome {
    run(async move {
        let answer = NodeClient::new(node)?.get("/api/v1/devices").await?;
        if json {
            output::json(&answer);
            return Ok(());
        }
        let devices = answer["devices"].as_array().map_or(&[][..], Vec::as_slice);
        let mut table = Table::new([
            "DEVICE",
            "STATE",
            "SINCE",
            "FOUND BY",
            "STREAMS",
            "OPERATIONS",
        ]);
        for device in devices {
            let ways = device["found_by"].as_array().into_iter().flatten();
            let ways: Vec<&str> = ways
                .filter_map(Value::as_str)
                .chain(device["wrapper"].as_str())
                .collect();
            let count = |member: &str| device[member].as_array().map_or(0, Vec::len).to_string();
            table.row([
                text(device, "name"),
                text(device, "state"),
                text(device, "state_since"),
                ways.join(" "),
                count("streams"),
                count("operations"),
            ]);
        }
        match devices {
            [] => output::line("the node knows no device"),
            _ => output::line(table),
        }
        Ok(())
    })
}

/// Calls an operation.
pub(crate) fn call(flags: DeviceCall, json: bool) -> Outcome {
    run(async move {
        let node = NodeClient::new(&flags.node)?;
        let answer = node.get("/api/v1/devices").await?;
        let devices = answer["devices"].as_array().map_or(&[][..], Vec::as_slice);
        let device = find(devices, &flags.device)?;
        let (key, operation) = (percent(&text(device, "key")), percent(&flags.operation));
        let mut arguments = Map::new();
        if let Some(written) = &flags.value {
            arguments.insert("value".to_owned(), value(device, &flags.operation, written));
        }
        let path = format!("/api/v1/devices/{key}/operations/{operation}");
        let answer = node.post(&path, Value::Object(arguments)).await?;
        if json {
            output::json(&answer);
        } else {
            let confirmed = answer["confirmed"] == true;
            let word = if confirmed {
                "confirmed by the device"
            } else {
                "acknowledged by the broker"
            };
            output::line(word);
        }
        Ok(())
    })
}

/// The device with this key, endpoint address or name.
fn find<'a>(devices: &'a [Value], wanted: &str) -> Result<&'a Value, Failure> {
    let with = |member: &'static str| {
        devices
            .iter()
            .filter(move |device| device[member] == wanted)
    };
    if let Some(device) = with("key").chain(with("endpoint")).next() {
        return Ok(device);
    }
    let mut named = with("name");
    match (named.next(), named.next()) {
        (Some(device), None) => Ok(device),
        (Some(_), Some(_)) => Err(
            Failure::new(format!("several devices have the name {wanted}"))
                .coded("device_unknown")
                .hint("use the key of one: `chappe device list --json`"),
        ),
        (None, _) => Err(Failure::new(format!("the node knows no device {wanted}"))
            .coded("device_unknown")
            .hint("`chappe device list` lists all")),
    }
}

/// A value as it is written, by the type of the argument: a text may look like a number.
fn value(device: &Value, operation: &str, written: &str) -> Value {
    let mut operations = device["operations"].as_array().into_iter().flatten();
    let found = operations.find(|one| one["name"] == operation);
    let is_text = found.is_some_and(|one| one["argument"]["type"] == "text");
    match serde_json::from_str::<Value>(written) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) if !is_text => value,
        _ => json!(written),
    }
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}
