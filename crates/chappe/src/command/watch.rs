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
        // An unknown stream would stay silent; the node's error names the nearest name.
        if name.trim() != "*" {
            node.get(&format!("/api/v1/streams/{}", percent(name.trim())))
                .await?;
        }
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
