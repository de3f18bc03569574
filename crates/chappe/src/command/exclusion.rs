//! `chappe device exclude`, `include` and `excluded`: which devices a node leaves out.

use serde_json::{Map, Value, json};

use super::network;
use super::node_client::NodeClient;
use crate::cli::{DeviceExclude, DeviceInclude, NodeAddress};
use crate::output::{self, Outcome, Table};

const PATH: &str = "/api/v1/devices/exclusions";

/// Leaves devices out.
pub(crate) fn exclude(flags: DeviceExclude, json: bool) -> Outcome {
    let parts = [
        ("endpoint", flags.endpoint),
        ("name", flags.name),
        ("type", flags.device_type),
        ("scope", flags.scope),
        ("match_by", flags.match_by),
    ];
    let given = parts
        .into_iter()
        .filter_map(|(part, text)| Some((part.to_owned(), json!(text?))));
    let pattern: Map<String, Value> = given.collect();
    run(async move {
        let added = NodeClient::new(&flags.node)?
            .post(PATH, pattern.into())
            .await?;
        if json {
            output::json(&added);
        } else {
            let text = shown(&added["devices"]);
            output::line(format_args!("{}: left out by {text}", number(&added)));
        }
        Ok(())
    })
}

/// Takes devices back.
pub(crate) fn include(flags: DeviceInclude, json: bool) -> Outcome {
    run(async move {
        let node = NodeClient::new(&flags.node)?;
        node.delete(&format!("{PATH}/{}", flags.id)).await?;
        if json {
            output::json(&json!({ "included": flags.id }));
        } else {
            output::line(format_args!("exclusion {} removed", flags.id));
        }
        Ok(())
    })
}

/// Lists the exclusions.
pub(crate) fn list(node: &NodeAddress, json: bool) -> Outcome {
    run(async move {
        let answer = NodeClient::new(node)?.get(PATH).await?;
        if json {
            output::json(&answer);
            return Ok(());
        }
        let exclusions = answer["exclusions"].as_array().into_iter().flatten();
        let mut table = Table::new(["NUMBER", "DEVICES", "SINCE"]);
        let mut count = 0;
        for one in exclusions {
            let since = one["since"].as_str().unwrap_or("in the configuration");
            table.row([number(one), shown(&one["devices"]), since.to_owned()]);
            count += 1;
        }
        match count {
            0 => output::line("no device is left out"),
            _ => output::line(table),
        }
        Ok(())
    })
}

pub(super) fn run(command: impl Future<Output = Outcome>) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = command => result,
            result = network::interrupted() => result,
        }
    })
}

fn number(exclusion: &Value) -> String {
    exclusion["id"]
        .as_u64()
        .map_or("-".to_owned(), |id| id.to_string())
}

/// The parts of a pattern, such as `type Printer, name "Lab*"`.
fn shown(pattern: &Value) -> String {
    let parts = pattern.as_object().into_iter().flatten();
    let parts = parts.map(|(part, text)| format!("{part} {}", text.as_str().unwrap_or_default()));
    parts.collect::<Vec<_>>().join(", ")
}
