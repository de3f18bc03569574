//! `chappe watch`: live values.

use chappe_terminal::counted;
use serde_json::Value;

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::Watch;
use crate::output::{self, Failure, Outcome};

/// Prints values until the count is reached or an interrupt.
pub(crate) fn run(flags: Watch, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match &flags.device {
                    Some(device) => super::client::watch(device, &flags, json).await,
                    None => streams(&flags, json).await,
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
}

async fn streams(flags: &Watch, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let path = format!("/api/v1/live?streams={}", percent(&flags.stream.join(",")));
    for name in flags.stream.iter().flat_map(|names| names.split(',')) {
        check_followed(&node, name.trim()).await?;
    }
    let mut events = node.events(&path).await?;
    let mut left = flags.count.unwrap_or(u64::MAX);
    while let Some(event) = events.next().await? {
        let data: Value = serde_json::from_str(&event.data)?;
        match event.name.as_str() {
            "rollback" => output::note(format_args!("rollback: {data}")),
            // Missing or late elements, and unreadable streams.
            "notice" if data["kind"] == "lag" => {
                let text = |key: &str| data[key].as_str().unwrap_or_default();
                output::note(format_args!("{}: {}", text("subject"), text("text")));
            }
            _ => {}
        }
        if event.name != "elements" {
            continue;
        }
        for element in data["elements"].as_array().into_iter().flatten() {
            if json {
                output::json(element);
            } else {
                output::line(element_line(element));
            }
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
    }
    let ended = "the node closed the stream of events";
    match flags.count {
        Some(count) => {
            let text = format!(
                "{ended} before {}; missing: {left}",
                counted(count, "element")
            );
            Err(Failure::new(text)
                .coded("subscription_ended")
                .hint("check that the node still runs"))
        }
        None => {
            output::note(ended);
            Ok(())
        }
    }
}

/// Checks a name or a prefix: an unknown stream would stay silent.
async fn check_followed(node: &NodeClient, name: &str) -> Outcome {
    let Some(prefix) = name.strip_suffix('*') else {
        if name.contains('*') {
            let failure = Failure::new(format!("{name:?} has a `*` before its end"));
            return Err(failure.coded("argument_invalid").hint(
                "write a prefix of names and `*`, such as --stream 'ward.*', or --stream '*' for all",
            ));
        }
        // The node's error names the nearest name.
        node.get(&format!("/api/v1/streams/{}", percent(name)))
            .await?;
        return Ok(());
    };
    if prefix.contains('*') {
        let failure = Failure::new(format!("{name:?} has more than one `*`"));
        return Err(failure
            .coded("argument_invalid")
            .hint("write a prefix of names and one `*`, such as --stream 'ward.*'"));
    }
    let path = format!("/api/v1/streams?limit=1&prefix={}", percent(prefix));
    let found = node.get(&path).await?;
    if found["streams"].as_array().is_some_and(Vec::is_empty) {
        output::note(format_args!(
            "no stream matches {name} yet; those defined from now on are followed"
        ));
    }
    Ok(())
}

fn element_line(element: &Value) -> String {
    let text = |key: &str| element[key].as_str().unwrap_or_default();
    let values = element["values"].as_object().into_iter().flatten();
    let values: Vec<_> = values
        .map(|(name, value)| format!("{name} {}", short(value)))
        .collect();
    let quality = match text("quality") {
        "good" | "" => String::new(),
        other => format!("  ({other})"),
    };
    format!(
        "{} {} #{}  {}{quality}",
        text("source_time"),
        text("stream"),
        element["number"],
        values.join("  ")
    )
}

/// A value on one line; a waveform as a sparkline.
pub(crate) fn short(value: &Value) -> String {
    match value["values"].as_array() {
        Some(samples) => {
            output::sparkline(&samples.iter().filter_map(Value::as_f64).collect::<Vec<_>>())
        }
        None => match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
    }
}
