//! `chappe link`: links, by which a node reads streams of other nodes.

use std::time::{Duration, Instant};

use chappe_terminal::counted;
use serde_json::{Map, Value, json};

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{DeadLetters, Link, LinkAdd, LinkList, LinkRemove, LinkShow, Resend};
use crate::output::{self, Failure, Outcome, Table};

/// Time between two requests while a new link connects.
const POLL_PERIOD: Duration = Duration::from_millis(200);

/// Runs a verb of `link`.
pub(crate) fn run(verb: Link, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Link::Add(flags) => add(*flags, json).await,
                    Link::List(flags) => list(flags, json).await,
                    Link::Show(flags) => show(flags, json).await,
                    Link::Remove(flags) => remove(flags, json).await,
                    Link::DeadLetters(flags) => dead_letters(flags, json).await,
                    Link::Resend(flags) => resend(flags, json).await,
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
}

fn path(name: &str, rest: &str) -> String {
    format!("/api/v1/links/{}{rest}", percent(name))
}

/// The body of the request that makes a link.
fn body(flags: &LinkAdd) -> Value {
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| {
        if !value.is_null() {
            body.insert(key.to_owned(), value);
        }
    };
    set("name", json!(flags.name));
    set("address", json!(flags.address));
    set("kind", json!(flags.kind()));
    set("streams", json!(flags.streams));
    set("serialization", json!(flags.serialization));
    set("level", json!(flags.level));
    set("as_prefix", json!(flags.as_prefix));
    set("start", json!(flags.start));
    set("server_key", json!(flags.server_key));
    set("fingerprint", json!(flags.origin_fingerprint()));
    set("authorities", json!(flags.origin_authorities));
    set("token_file", json!(flags.token_file));
    set("directory", json!(flags.directory));
    set("contact", json!(flags.contact));
    if flags.insecure {
        set("insecure", json!(true));
    }
    Value::Object(body)
}

async fn add(flags: LinkAdd, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let mut link = node.post("/api/v1/links", body(&flags)).await?;
    let deadline = Instant::now() + flags.wait;
    let mut printed = String::new();
    loop {
        let text = progress(&link);
        if text != printed {
            output::progress(&text);
            printed = text;
        }
        if link["state"] == "connected" || Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(POLL_PERIOD).await;
        link = node.get(&path(&flags.name, "")).await?;
    }
    let connected = link["state"] == "connected";
    if json {
        output::json(&link);
    } else if connected {
        output::line(format_args!("{}: {}", flags.name, progress(&link)));
    }
    if connected {
        return Ok(());
    }
    let waited = format!("{:?}", flags.wait);
    let error = link["last_error"]
        .as_str()
        .map_or_else(String::new, |e| format!(": {e}"));
    let failure = Failure {
        code: 1,
        ..Failure::new(format!(
            "{} was added, but is not connected after {waited}{error}",
            flags.name
        ))
        .coded("link_not_connected")
    };
    let kept = format!(
        "the node keeps the link and continues to try: chappe link show {0}; to remove it: \
         chappe link remove {0}",
        flags.name
    );
    let hint = match link["hint"].as_str() {
        Some(hint) => format!("{hint}; {kept}"),
        None => kept,
    };
    Err(failure.hint(hint))
}

/// The state of a link in one line.
fn progress(link: &Value) -> String {
    if link["state"] != "connected" {
        return match link["last_error"].as_str() {
            Some(error) => format!("{}: {error}", state(link)),
            None => format!("{}…", state(link)),
        };
    }
    let streams = counted(link["streams"].as_array().map_or(0, Vec::len), "stream");
    let refused = match refused_streams(link) {
        0 => String::new(),
        count => format!(" ({count} refused)"),
    };
    format!("connected, {streams}{refused}, lag {}", lag(link))
}

/// The number of its streams that the origin or this node refuses.
fn refused_streams(link: &Value) -> usize {
    let streams = link["streams"].as_array().into_iter().flatten();
    streams
        .filter(|stream| stream["refusal"].is_string())
        .count()
}

/// Refused streams and elements of a link: `1 stream, 3 schema`.
fn refused(link: &Value) -> String {
    let streams = match refused_streams(link) {
        0 => String::new(),
        count => counted(count, "stream"),
    };
    let parts = [streams, reasons(&link["refused"])];
    let parts: Vec<String> = parts.into_iter().filter(|it| !it.is_empty()).collect();
    parts.join(", ")
}

fn state(link: &Value) -> &str {
    link["state"].as_str().unwrap_or("unknown")
}

/// The lag of a link or a stream: elements, if the origin reports them, and seconds from one on.
fn lag(one: &Value) -> String {
    let elements = one["lag_elements"].as_u64();
    let elements = elements.map_or_else(|| "-".to_owned(), |count| count.to_string());
    match one["lag_s"].as_f64() {
        Some(seconds) if seconds >= 1.0 => format!("{elements} ({seconds:.0} s)"),
        _ => elements,
    }
}

fn rate(one: &Value) -> String {
    format!("{:.1}/s", one["rate_per_s"].as_f64().unwrap_or(0.0))
}

/// `3 trimmed, 1 corrupt`.
fn reasons(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    let words = counts.map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")));
    words.collect::<Vec<_>>().join(", ")
}

async fn list(flags: LinkList, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    loop {
        let answer = node.get("/api/v1/links").await?;
        if json {
            output::json(&answer);
        } else {
            if flags.watch && output::colour() {
                // ANSI: cursor to the upper left, clear the screen.
                output::styled("\u{1b}[H\u{1b}[2J", "");
            }
            print_list(&answer);
        }
        if !flags.watch {
            return Ok(());
        }
        tokio::time::sleep(flags.every).await;
    }
}

fn print_list(answer: &Value) {
    let links: Vec<&Value> = answer["links"].as_array().into_iter().flatten().collect();
    let peers: Vec<&Value> = answer["peers"].as_array().into_iter().flatten().collect();
    if links.is_empty() {
        output::note("no links; add one: chappe link add NAME http://HOST:PORT");
    } else {
        let mut table = Table::new([
            "LINK",
            "STATE",
            "ORIGIN",
            "STREAMS",
            "RATE",
            "LAG",
            "HELD",
            "REFUSED",
            "LOST",
            "DEAD LETTERS",
        ]);
        for link in links {
            let text = |key: &str| link[key].as_str().unwrap_or_default().to_owned();
            table.row([
                text("name"),
                text("state"),
                text("address"),
                link["streams"].as_array().map_or(0, Vec::len).to_string(),
                rate(link),
                lag(link),
                link["held_bytes"].to_string(),
                refused(link),
                reasons(&link["lost"]),
                link["dead_letters"].to_string(),
            ]);
        }
        output::line(table);
    }
    if !peers.is_empty() {
        let head = [
            "READER",
            "KIND",
            "STREAMS",
            "RATE",
            "SENT",
            "ACKNOWLEDGED",
            "IN FLIGHT",
            "LAG",
            "RESENT",
            "PACE",
        ];
        let mut table = Table::new(head);
        for peer in peers {
            let text = |key: &str| peer[key].as_str().unwrap_or_default().to_owned();
            // A puller acknowledges nothing, so its origin knows nothing in flight.
            let known = |key: &str| match peer["kind"] == "http_pull" {
                true => "-".to_owned(),
                false => peer[key].to_string(),
            };
            table.row([
                text("address"),
                text("kind"),
                peer["streams"].as_array().map_or(0, Vec::len).to_string(),
                rate(peer),
                peer["sent"].to_string(),
                known("acknowledged"),
                known("in_flight"),
                lag(peer),
                known("sent_again"),
                pace(&peer["pacing"]),
            ]);
        }
        output::line(format_args!("\n{table}"));
    }
}

/// A reader's pacer in one cell.
fn pace(pacing: &serde_json::Value) -> String {
    let Some(state) = pacing["state"].as_str() else {
        return "-".to_owned();
    };
    let in_flight = &pacing["occupation"];
    match pacing["period_s"].as_f64() {
        Some(period) if period > 0.0 => {
            format!(
                "{state}, {in_flight} in flight, every {:.3} ms",
                period * 1e3
            )
        }
        _ => format!("{state}, {in_flight} in flight"),
    }
}

async fn show(flags: LinkShow, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let link = node.get(&path(&flags.name, "")).await?;
    if json {
        output::json(&link);
        return Ok(());
    }
    let origin = link["address"].as_str().unwrap_or_default();
    let kind = link["kind"].as_str().unwrap_or_default();
    output::line(format_args!(
        "{} from {origin} ({kind}): {}",
        flags.name,
        progress(&link)
    ));
    if let Some(error) = link["last_error"].as_str() {
        output::line(format_args!("last error: {error}"));
        if let Some(hint) = link["hint"].as_str() {
            output::line(format_args!("hint: {hint}"));
        }
    }
    let head = [
        "STREAM",
        "RATE",
        "LAG",
        "WINDOW",
        "HELD",
        "ACKNOWLEDGED",
        "REPEATED",
        "REFUSED",
        "LOST",
    ];
    let mut table = Table::new(head);
    for stream in link["streams"].as_array().into_iter().flatten() {
        let refusal = stream["refusal"].as_str();
        table.row([
            stream["local_name"].as_str().unwrap_or_default().to_owned(),
            rate(stream),
            lag(stream),
            format!(
                "{:.0} %",
                stream["occupation"].as_f64().unwrap_or(0.0) * 100.0
            ),
            stream["held_bytes"].to_string(),
            stream["acknowledged"].to_string(),
            stream["repeated"].to_string(),
            refusal.map_or_else(|| reasons(&stream["refused"]), str::to_owned),
            reasons(&stream["lost"]),
        ]);
    }
    output::line(table);
    if let Some(count) = link["dead_letters"].as_u64().filter(|count| *count > 0) {
        output::note(format_args!(
            "{}: chappe link dead-letters {}",
            counted(count, "dead letter"),
            flags.name
        ));
    }
    Ok(())
}

async fn remove(flags: LinkRemove, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    node.delete(&path(&flags.name, "")).await?;
    if json {
        output::json(&json!({ "removed": flags.name }));
    } else {
        output::line(format_args!("removed {}; its elements stay", flags.name));
    }
    Ok(())
}

async fn dead_letters(flags: DeadLetters, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let query = format!("/dead-letters?from={}&limit={}", flags.from, flags.limit);
    let answer = node.get(&path(&flags.name, &query)).await?;
    if json {
        output::json(&answer);
        return Ok(());
    }
    let mut table = Table::new(["NUMBER", "STREAM", "RECEIVED", "BYTES", "REASON"]);
    let letters = answer["dead_letters"].as_array();
    for letter in letters.into_iter().flatten() {
        let text = |key: &str| letter[key].as_str().unwrap_or_default().to_owned();
        let why = [text("reason"), text("text")].join(": ");
        table.row([
            letter["number"].to_string(),
            text("stream"),
            text("received_at"),
            letter["bytes"].to_string(),
            why,
        ]);
    }
    if letters.is_none_or(Vec::is_empty) {
        output::note("no dead letters");
        return Ok(());
    }
    output::line(table);
    if answer["truncated"] == true {
        output::note("more dead letters exist; continue with --from");
    }
    Ok(())
}

async fn resend(flags: Resend, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let verb = if flags.discard {
        "discard"
    } else {
        "send-again"
    };
    let body = match flags.all {
        true => json!({}),
        false => json!({ "numbers": flags.numbers }),
    };
    let answer = node
        .post(&path(&flags.name, &format!("/dead-letters/{verb}")), body)
        .await?;
    report_letters(&answer, flags.discard, json)
}

/// Prints what became of dead letters.
pub(super) fn report_letters(answer: &Value, is_discarded: bool, json: bool) -> Outcome {
    let refused: Vec<&Value> = answer["refused"].as_array().into_iter().flatten().collect();
    if json {
        output::json(answer);
    } else {
        let done = if is_discarded { "discarded" } else { "stored" };
        output::line(format_args!(
            "{} {done}, {} refused",
            answer["done"],
            refused.len()
        ));
        for one in &refused {
            let why = one["why"].as_str().unwrap_or_default();
            output::note(format_args!("{}: {why}", one["number"]));
        }
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_refusals() {
        let link = json!({
            "state": "connected",
            "refused": {"too_large": 3},
            "lag_elements": 2,
            "streams": [{"refusal": "taken"}, {"refusal": null}],
        });
        assert_eq!(refused(&link), "1 stream, 3 too large");
        assert_eq!(progress(&link), "connected, 2 streams (1 refused), lag 2");
        assert_eq!(refused(&json!({"streams": []})), "");
    }
}
