//! `chappe stream completeness`: what a stream holds, and what it lacks.

use serde_json::Value;

use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::StreamCompleteness;
use crate::output::{self, Failure, Outcome, Table};

pub(super) async fn run(flags: StreamCompleteness, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let times = [("from", &flags.from), ("to", &flags.to)];
    let query: Vec<String> = times
        .iter()
        .filter_map(|(key, time)| Some(format!("{key}={}", percent(time.as_deref()?))))
        .collect();
    let path = format!(
        "/api/v1/streams/{}/completeness?{}",
        percent(&flags.name),
        query.join("&")
    );
    let answer = node.get(&path).await?;
    if json {
        output::json(&answer);
    } else {
        print(&answer);
    }
    let is_whole = ["lost", "refused"]
        .iter()
        .all(|kind| answer[*kind].as_object().is_none_or(|it| it.is_empty()));
    match is_whole {
        true => Ok(()),
        false => Err(Failure::negative()),
    }
}

fn print(answer: &Value) {
    let mut table = Table::new(["ELEMENTS", "COUNT", "BY REASON"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    table.row(["stored".into(), answer["stored"].to_string(), String::new()]);
    for kind in ["lost", "refused"] {
        let counts = answer[kind].as_object();
        let counts: Vec<(&String, &Value)> = counts.into_iter().flatten().collect();
        let total = counts
            .iter()
            .map(|(_, it)| it["elements"].as_u64().unwrap_or(0));
        let total: u64 = total.sum();
        let reasons: Vec<String> = counts
            .iter()
            .map(|(reason, it)| format!("{reason} {}", count(it)))
            .collect();
        table.row([kind.into(), total.to_string(), reasons.join(", ")]);
    }
    let removed = &answer["removed"];
    let by_size = match answer["removed_by_size_limit"].as_u64() {
        Some(elements) if elements > 0 => {
            format!("{elements} by the log's size limit since the node started")
        }
        _ => String::new(),
    };
    table.row(["removed".into(), count(removed), by_size]);
    output::line(table);
    for gap in answer["gaps"].as_array().into_iter().flatten() {
        let between = |time: &Value| time.as_str().unwrap_or("an unknown time").to_owned();
        output::line(format_args!(
            "{} {} elements ({}), between {} and {}",
            text(&gap["kind"]),
            gap["elements"],
            text(&gap["reason"]),
            between(&gap["from"]),
            between(&gap["to"]),
        ));
    }
    for away in answer["away"].as_array().into_iter().flatten() {
        output::line(format_args!(
            "{} away for {:.1} s from {} to {}: {}",
            text(&away["who"]),
            away["seconds"].as_f64().unwrap_or_default(),
            text(&away["from"]),
            away["to"].as_str().unwrap_or("now"),
            text(&away["cause"]),
        ));
    }
    match answer["away_known_since"].as_str() {
        Some(since) => output::note(format_args!(
            "the presence of the source is on record since {since}"
        )),
        None => output::note("the presence of the source is not on record"),
    }
    for note in answer["notes"].as_array().into_iter().flatten() {
        output::note(format_args!("not exact: {}", text(note)));
    }
}

/// A count with the doubt that it has.
fn count(count: &Value) -> String {
    match (count["elements"].as_u64(), count["at_most"].as_u64()) {
        (Some(elements), Some(most)) if elements == most => elements.to_string(),
        (Some(elements), Some(most)) => format!("{elements} to {most}"),
        (Some(elements), None) => format!("{elements} or more"),
        (None, _) => String::new(),
    }
}
