//! `chappe dds`: the DDS topics of a node, and the files of DDS Security.

#[cfg(feature = "dds")]
mod domain;
mod keys;

use serde_json::Value;

use super::network;
use super::node_client::NodeClient;
use crate::cli::{Dds, DdsVerb, NodeAddress};
use crate::output::{self, Outcome, Table};

/// Runs a verb, or shows the topics of a node.
pub(crate) fn run(flags: Dds, json: bool) -> Outcome {
    match flags.verb {
        None => show(&flags.node, json),
        Some(DdsVerb::Keys(flags)) => keys::run(&flags, json),
        #[cfg(feature = "dds")]
        Some(DdsVerb::Topics(flags)) => domain::topics(&flags, json),
        #[cfg(feature = "dds")]
        Some(DdsVerb::Echo(flags)) => domain::echo(&flags, json),
    }
}

/// Shows the participant, its writers and readers, publications and subscriptions.
fn show(node: &NodeAddress, json: bool) -> Outcome {
    network::block_on(async move {
        let node = NodeClient::new(node)?;
        let answer = node.get("/api/v1/dds").await?;
        match json {
            true => output::json(&answer),
            false => print(&answer),
        }
        Ok(())
    })
}

fn print(answer: &Value) {
    let participant = &answer["participant"];
    if participant.is_null() {
        return output::note("no DDS topics; wrappers and exporters of kind \"dds\" define them");
    }
    let text = |of: &Value, key: &str| match &of[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    output::line(format_args!(
        "{} in domain {}, {}; peers {}, restarts {}, panics {}, stalls {}, aborts {}, warnings {}\n",
        text(participant, "backend"),
        participant["domain"],
        text(participant, "state"),
        participant["peers"],
        participant["restarts"],
        participant["panics"],
        participant["stalls"],
        participant["aborts"],
        participant["warnings"],
    ));
    let error = text(participant, "last_error");
    if !error.is_empty() {
        output::line(format_args!("last error: {error}"));
        if let Some(hint) = participant["hint"].as_str() {
            output::line(format_args!("hint: {hint}"));
        }
    }
    let writers = [
        "topic",
        "matched",
        "sent",
        "unacknowledged",
        "given_up",
        "pace",
        "blocked_s",
        "deadlines_missed",
        "mismatches",
    ];
    table(&participant["writers"], &writers, &text);
    let readers = [
        "topic",
        "matched",
        "received",
        "lost",
        "deadlines_missed",
        "mismatches",
    ];
    table(&participant["readers"], &readers, &text);
    let publications = [
        "stream",
        "topic",
        "acknowledge",
        "delivered",
        "lag_elements",
        "again",
        "last_error",
    ];
    table(&answer["publications"], &publications, &text);
    let subscriptions = [
        "topic",
        "stream",
        "stored",
        "received",
        "repeated",
        "early",
        "malformed",
        "foreign",
        "last_error",
    ];
    table(&answer["subscriptions"], &subscriptions, &text);
    for ends in ["writers", "readers"] {
        for end in participant[ends].as_array().into_iter().flatten() {
            for mismatch in end["mismatched"].as_array().into_iter().flatten() {
                let words = mismatch.as_str().unwrap_or_default();
                output::note(format_args!("{}: {words}", text(end, "topic")));
            }
        }
    }
    for warning in participant["newest_warnings"]
        .as_array()
        .into_iter()
        .flatten()
    {
        output::note(format_args!(
            "warning: {}",
            warning.as_str().unwrap_or_default()
        ));
    }
    for publication in answer["publications"].as_array().into_iter().flatten() {
        if let Some(hint) = publication["hint"].as_str() {
            output::note(format_args!("{}: {hint}", text(publication, "stream")));
        }
    }
}

fn table(rows: &Value, keys: &[&str], text: &impl Fn(&Value, &str) -> String) {
    let rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
    if rows.is_empty() {
        return;
    }
    let head = keys.iter().map(|key| key.replace('_', " ").to_uppercase());
    let mut table = Table::with_head(head.collect());
    for row in rows {
        table.row(keys.iter().map(|key| match *key {
            "pace" => pace(&row["pacer"]),
            key => text(row, key),
        }));
    }
    output::line(format_args!("{table}\n"));
}

/// A pacer's state, and the time between two samples.
fn pace(pacer: &Value) -> String {
    let state = pacer["state"].as_str().unwrap_or_default();
    match pacer["period_s"].as_f64() {
        Some(period) if period > 0.0 => format!("{state}, every {:.3} ms", period * 1e3),
        _ => state.to_owned(),
    }
}
