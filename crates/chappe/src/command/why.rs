//! `chappe why`: the hops of a value's path, and the first that stands in its way.

use serde_json::Value;

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::Why;
use crate::output::{self, Failure, Outcome, Table};

/// Asks a node; ends with exit code 1 when something stands in the way.
pub(crate) fn run(flags: Why, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = ask(flags, json) => result,
            result = network::interrupted() => result,
        }
    })
}

async fn ask(flags: Why, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let kind = flags
        .kind
        .map_or(String::new(), |kind| format!("?kind={kind}"));
    let path = format!("/api/v1/why/{}{kind}", percent(&flags.name));
    let answer = node.get(&path).await?;
    let is_clear = answer["obstacle"].is_null();
    if json {
        output::json(&answer);
    } else {
        print(&answer);
    }
    match is_clear {
        true => Ok(()),
        false => Err(Failure::negative()),
    }
}

fn print(answer: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let hops = || answer["hops"].as_array().into_iter().flatten();
    let mut table = Table::new(["HOP", "STATE", "SUBJECT", "OBSERVATION"]);
    for hop in hops() {
        table.row(["hop", "state", "subject", "detail"].map(|key| text(&hop[key])));
    }
    if output::width().is_none_or(|width| table.width() <= width) {
        output::line(table);
    } else {
        // The address of a device alone takes most of a terminal's line.
        for hop in hops() {
            let [name, state, subject, detail] =
                ["hop", "state", "subject", "detail"].map(|key| output::clean(&text(&hop[key])));
            output::line(format_args!("{name:<12}  {state:<8}  {subject}"));
            output::line(format_args!("              {detail}"));
        }
    }
    if answer["truncated"] == true {
        output::note("more hops exist; ask for one of the streams");
    }
    for notice in answer["notices"].as_array().into_iter().flatten() {
        output::line(format_args!(
            "{}  {}",
            text(&notice["at"]),
            text(&notice["text"])
        ));
    }
    let obstacle = &answer["obstacle"];
    if obstacle.is_null() {
        output::line("nothing blocks the path");
        return;
    }
    let (hop, subject) = (text(&obstacle["hop"]), text(&obstacle["subject"]));
    output::line(format_args!(
        "{hop} {subject}: {}",
        text(&obstacle["detail"])
    ));
    if let Some(hint) = obstacle["hint"].as_str() {
        output::note(format_args!("hint: {hint}"));
    }
}
