//! `chappe wrapper`: wrappers, which read peers of any protocol, and exporters, which write to them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use chappe_stream::Value as FieldValue;
use chappe_stream::view::ElementView;
use chappe_terminal::counted;
use chappe_wrappers::{
    Batch, Condition, Part, WrapperFile, WrapperOpening, kind_of_address, wrapper_kinds,
};
use serde_json::{Value, json};

use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{
    Wrapper, WrapperBrowse, WrapperCheck, WrapperDeadLetters, WrapperList, WrapperResend,
    WrapperShow, WrapperTry,
};
use crate::output::{self, Failure, Outcome, Table};

/// Runs a verb of `wrapper`.
pub(crate) fn run(verb: Wrapper, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Wrapper::List(flags) => list(flags, json).await,
                    Wrapper::Show(flags) => show(flags, json).await,
                    Wrapper::Try(flags) => try_file(flags, json).await,
                    Wrapper::Check(flags) => check(flags, json).await,
                    Wrapper::Browse(flags) => browse(&flags),
                    Wrapper::DeadLetters(flags) => dead_letters(flags, json).await,
                    Wrapper::Resend(flags) => resend(flags, json).await,
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
}

async fn list(flags: WrapperList, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let wrappers = all(&node, "wrappers").await?;
    let exporters = all(&node, "exporters").await?;
    if json {
        output::json(&json!({ "wrappers": wrappers, "exporters": exporters }));
        return Ok(());
    }
    if wrappers.is_empty() && exporters.is_empty() {
        output::note("no wrappers; write a file into the node's wrappers directory");
        return Ok(());
    }
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    if !wrappers.is_empty() {
        let head = [
            "WRAPPER",
            "KIND",
            "STATE",
            "STREAMS",
            "ELEMENTS",
            "UNSTORED",
            "DEAD LETTERS",
            "REASON",
        ];
        let mut table = Table::new(head);
        for row in &wrappers {
            table.row([
                text(row, "name"),
                text(row, "kind"),
                text(row, "state"),
                row["streams"].as_array().map_or(0, Vec::len).to_string(),
                row["elements"].to_string(),
                row["unstored_bytes"].to_string(),
                row["dead_letters"].to_string(),
                reason(row),
            ]);
        }
        output::line(table);
    }
    if !exporters.is_empty() {
        let head = [
            "EXPORTER", "KIND", "STATE", "STREAMS", "ELEMENTS", "REFUSED", "REASON",
        ];
        let mut table = Table::new(head);
        for row in &exporters {
            table.row([
                text(row, "name"),
                text(row, "kind"),
                text(row, "state"),
                row["streams"].as_array().map_or(0, Vec::len).to_string(),
                row["elements"].to_string(),
                row["refused"].to_string(),
                reason(row),
            ]);
        }
        output::line(table);
    }
    Ok(())
}

/// All rows of a list.
async fn all(node: &NodeClient, list: &str) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    let mut path = format!("/api/v1/{list}");
    loop {
        let mut answer = node.get(&path).await?;
        if let Value::Array(part) = answer[list].take() {
            rows.extend(part);
        }
        match answer["next"].as_str() {
            Some(next) => path = format!("/api/v1/{list}?cursor={}", percent(next)),
            None => return Ok(rows),
        }
    }
}

/// Why it does not run.
fn reason(row: &Value) -> String {
    let error = &row["error"];
    match (error["key"].as_str(), error["message"].as_str()) {
        (Some(key), Some(message)) => format!("{key}: {message}"),
        (None, Some(message)) => message.to_owned(),
        (_, None) => row["reason"].as_str().unwrap_or_default().to_owned(),
    }
}

async fn show(flags: WrapperShow, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let name = percent(&flags.name);
    let (row, is_wrapper) = match node.get(&format!("/api/v1/wrappers/{name}")).await {
        Ok(row) => (row, true),
        Err(unknown) => match node.get(&format!("/api/v1/exporters/{name}")).await {
            Ok(row) => (row, false),
            Err(_) => return Err(unknown),
        },
    };
    if json {
        output::json(&row);
        return Ok(());
    }
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    output::line(format_args!(
        "{} ({}): {}",
        text("name"),
        text("kind"),
        text("state")
    ));
    let reason = reason(&row);
    if !reason.is_empty() {
        output::line(format_args!("reason: {reason}"));
    }
    let hint = row["error"]["hint"].as_str().or(row["hint"].as_str());
    if let Some(hint) = hint {
        output::line(format_args!("hint: {hint}"));
    }
    output::line(format_args!("file: {}", text("file")));
    output::line(format_args!("elements: {}", row["elements"]));
    let streams = row["streams"].as_array();
    for stream in streams.into_iter().flatten() {
        match stream["stream"].as_str() {
            Some(name) => {
                let missed = stream["missed"].as_u64().filter(|missed| *missed > 0);
                let missed = missed.map_or_else(String::new, |count| format!(", missed {count}"));
                output::line(format_args!(
                    "stream: {name}, up to {}{missed}",
                    stream["read"]
                ));
            }
            None => output::line(format_args!(
                "stream: {}",
                stream.as_str().unwrap_or_default()
            )),
        }
    }
    for input in row["inputs"].as_array().into_iter().flatten() {
        let name = input["stream"].as_str().unwrap_or_default();
        let missed = input["missed"].as_u64().filter(|missed| *missed > 0);
        let missed = missed.map_or_else(String::new, |count| format!(", missed {count}"));
        output::line(format_args!(
            "input: {name}, up to {}{missed}",
            input["read"]
        ));
    }
    for (reason, count) in row["lost"].as_object().into_iter().flatten() {
        output::line(format_args!("lost: {count} ({reason})"));
    }
    if let Some(count) = row["dead_letters"].as_u64().filter(|count| *count > 0) {
        let flag = if is_wrapper { "" } else { "--exporter " };
        output::note(format_args!(
            "{}: chappe wrapper dead-letters {flag}{}",
            counted(count, "dead letter"),
            flags.name
        ));
    }
    Ok(())
}

/// Reads the file of a wrapper.
fn read(path: &Path) -> Result<WrapperFile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()))
            .coded("file_unreadable")
            .hint("name the file of the wrapper, such as wrappers/NAME.toml")
    })?;
    let file = WrapperFile::parse(path, &text).map_err(located)?;
    file.kind().map_err(located)?;
    Ok(file)
}

fn located(error: chappe_stream::DescriptorError) -> Failure {
    let hint = error.hint.clone();
    Failure::new(error.to_string())
        .coded("descriptor_invalid")
        .hint_if(hint)
}

fn failed(error: chappe_wrappers::WrapperError) -> Failure {
    let hint = error.hint().map(str::to_owned);
    Failure::new(error.to_string())
        .coded("wrapper_failed")
        .hint_if(hint)
}

async fn check(flags: WrapperCheck, json: bool) -> Outcome {
    let file = read(&flags.file)?;
    if file.keys.kind != "program" {
        let failure = Failure::new(format!(
            "the kind is {:?}: only programs are checked",
            file.keys.kind
        ))
        .coded("argument_invalid");
        return Err(failure.hint("chappe wrapper try shows the first elements of any wrapper"));
    }
    let elements = match &flags.elements {
        None => None,
        Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
            Failure::new(format!("{}: {error}", path.display())).coded("file_unreadable")
        })?),
    };
    output::note(format_args!(
        "running the program for up to {:?} three times",
        flags.wait
    ));
    let checks = chappe_wrappers::check_program(&file, elements.as_deref(), flags.wait)
        .await
        .map_err(failed)?;
    let is_kept = checks.iter().all(|check| check.is_kept);
    if json {
        output::json(&json!({ "kept": is_kept, "rules": checks }));
    } else {
        let mut table = Table::new(["RULE", "KEPT", "SEEN"]);
        for check in &checks {
            let kept = if check.is_kept { "yes" } else { "NO" };
            table.row([check.rule.to_owned(), kept.to_owned(), check.detail.clone()]);
        }
        output::line(table);
    }
    if is_kept {
        Ok(())
    } else {
        Err(Failure::negative())
    }
}

async fn try_file(flags: WrapperTry, json: bool) -> Outcome {
    let file = read(&flags.file)?;
    let kind = file.kind().map_err(located)?;
    let condition = Condition::default();
    let mut wrapper = (kind.open)(WrapperOpening {
        file: &file,
        mark: None,
        condition: condition.clone(),
        notes: Default::default(),
        drops: Default::default(),
        inbox: tokio::sync::mpsc::channel(1).1,
    })
    .map_err(failed)?;
    if wrapper.inputs().is_some() {
        let failure =
            Failure::new("the program only processes its `inputs`").coded("argument_invalid");
        let file = flags.file.display();
        let hint = format!("chappe wrapper check {file} --elements elements.jsonl passes it some");
        return Err(failure.hint(hint));
    }
    let deadline = Instant::now() + flags.wait;
    let (mut shown, mut undecodable) = (0, 0);
    let mut fields = Fields::default();
    while shown < flags.count {
        let next = tokio::time::timeout_at(deadline.into(), wrapper.next()).await;
        let Ok(batch) = next else { break };
        let batch = batch.map_err(failed)?;
        batch.parts.iter().for_each(|part| fields.take(part));
        shown += print(&batch, flags.count - shown, json)?;
        undecodable += batch.undecodable.len();
    }
    if shown == 0 && undecodable == 0 {
        let reason = condition
            .reason()
            .map_or_else(String::new, |it| format!(": {it}"));
        let is_path = reason.ends_with("does not exist");
        let hint = is_path.then_some("correct `path`: it is relative to the wrapper's file");
        return Err(Failure {
            code: 1,
            ..Failure::new(format!("nothing arrived within {:?}{reason}", flags.wait))
                .coded("no_values")
                .hint_if(hint)
        });
    }
    for (stream, field) in fields.without_value() {
        output::note(format_args!(
            "no element of {stream} has a value in {field}: compare the field's name or `path` with the input"
        ));
    }
    match undecodable {
        0 => Ok(()),
        _ => Err(Failure::negative()),
    }
}

/// The fields of the streams that arrived, and whether an element had a value in each.
#[derive(Default)]
struct Fields(BTreeMap<(String, String), bool>);

impl Fields {
    fn take(&mut self, part: &Part) {
        if part.elements.is_empty() {
            return;
        }
        for (index, field) in part.definition.schema.fields.iter().enumerate() {
            let mut values = part.elements.iter().map(|element| &element.values[index]);
            let has_value = values.any(|value| *value != FieldValue::Null);
            let key = (part.stream.to_string(), field.name.clone());
            *self.0.entry(key).or_default() |= has_value;
        }
    }

    fn without_value(&self) -> impl Iterator<Item = &(String, String)> {
        self.0
            .iter()
            .filter(|(_, has_value)| !**has_value)
            .map(|(key, _)| key)
    }
}

fn browse(flags: &WrapperBrowse) -> Outcome {
    let default = kind_of_address(&flags.address);
    let name = flags.kind.as_deref().unwrap_or(default);
    let kinds = wrapper_kinds().iter();
    let mut able = kinds.filter_map(|kind| Some((kind.name, kind.browse?)));
    let found = able.clone().find(|(kind, _)| *kind == name);
    let Some((_, browse)) = found else {
        let names: Vec<&str> = able.by_ref().map(|(kind, _)| kind).collect();
        let failure = Failure::new(format!("peers of kind {name:?} do not describe themselves"))
            .coded("argument_invalid");
        return Err(failure.hint(format!("kinds that do: {}", names.join(", "))));
    };
    let text = browse(&flags.address).map_err(|error| {
        let hint = error.hint().map(str::to_owned);
        Failure::new(error.to_string())
            .coded("wrapper_failed")
            .hint_if(hint)
    })?;
    output::line(text.trim_end());
    Ok(())
}

/// Prints elements, and messages that are none; returns the number of elements.
fn print(batch: &Batch, most: usize, json: bool) -> Result<usize, Failure> {
    let mut count = 0;
    for part in &batch.parts {
        for element in part.elements.iter().take(most - count) {
            let view = ElementView {
                stream: Some(&part.stream),
                element,
                schema: &part.definition.schema,
            };
            let view = serde_json::to_value(view)?;
            count += 1;
            if json {
                output::json(&view);
                continue;
            }
            let key = view["key"]
                .as_str()
                .map_or_else(String::new, |key| format!(" [{key}]"));
            output::line(format_args!(
                "{}{key} {} {}",
                part.stream,
                view["source_time"].as_str().unwrap_or_default(),
                view["values"]
            ));
        }
    }
    for one in &batch.undecodable {
        let text = String::from_utf8_lossy(&one.message);
        let text: String = text.chars().take(200).collect();
        output::note(format_args!(
            "undecodable: {}: {}",
            one.reason,
            text.trim_end()
        ));
    }
    for lost in &batch.lost {
        output::note(format_args!("lost: {} ({})", lost.messages, lost.reason));
    }
    Ok(count)
}

/// The path of the dead letters.
fn letters_path(name: &str, is_exporter: bool, rest: &str) -> String {
    let list = if is_exporter { "exporters" } else { "wrappers" };
    format!("/api/v1/{list}/{}/dead-letters{rest}", percent(name))
}

async fn dead_letters(flags: WrapperDeadLetters, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let query = format!("?from={}&limit={}", flags.from, flags.limit);
    let path = letters_path(&flags.name, flags.exporter, &query);
    let answer = match node.get(&path).await {
        Ok(answer) => answer,
        Err(failure) => {
            let flag = if flags.exporter { "" } else { " --exporter" };
            let instead = format!("chappe wrapper dead-letters {}{flag}", flags.name);
            return Err(of_other_kind(&node, failure, &flags.name, flags.exporter, instead).await);
        }
    };
    if json {
        output::json(&answer);
        return Ok(());
    }
    let letters = answer["dead_letters"].as_array();
    if letters.is_none_or(Vec::is_empty) {
        output::note("no dead letters");
        return Ok(());
    }
    let mut table = Table::new(["NUMBER", "STREAM", "RECEIVED", "BYTES", "REASON", "MESSAGE"]);
    for letter in letters.into_iter().flatten() {
        let text = |key: &str| letter[key].as_str().unwrap_or_default().to_owned();
        let message: String = text("text").chars().take(60).collect();
        table.row([
            letter["number"].to_string(),
            text("stream"),
            text("received_at"),
            letter["bytes"].to_string(),
            text("reason"),
            message.escape_debug().to_string(),
        ]);
    }
    output::line(table);
    if answer["truncated"] == true {
        output::note("more dead letters exist; continue with --from");
    }
    Ok(())
}

/// The failure to find a wrapper or an exporter: if its name is that of one of the other kind, with what to type instead.
async fn of_other_kind(
    node: &NodeClient,
    failure: Failure,
    name: &str,
    is_exporter: bool,
    instead: String,
) -> Failure {
    let (list, kind, wanted) = match is_exporter {
        true => ("wrappers", "a wrapper", "an exporter"),
        false => ("exporters", "an exporter", "a wrapper"),
    };
    let path = format!("/api/v1/{list}/{}", percent(name));
    if failure.error_code != "not_found" || node.get(&path).await.is_err() {
        return failure;
    }
    Failure::new(format!("{name} is {kind}, not {wanted}"))
        .coded("not_found")
        .hint(instead)
}

async fn resend(flags: WrapperResend, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let verb = if flags.discard {
        "/discard"
    } else {
        "/send-again"
    };
    let body = match flags.all {
        true => json!({}),
        false => json!({ "numbers": flags.numbers }),
    };
    let path = letters_path(&flags.name, flags.exporter, verb);
    let answer = match node.post(&path, body).await {
        Ok(answer) => answer,
        Err(failure) => {
            let name = &flags.name;
            let instead = match flags.exporter {
                true => format!("chappe wrapper resend {name} --all --discard"),
                false => format!(
                    "chappe wrapper resend {name} --all --discard --exporter: an exporter's dead letters can only be \
                     discarded"
                ),
            };
            return Err(of_other_kind(&node, failure, name, flags.exporter, instead).await);
        }
    };
    super::link::report_letters(&answer, flags.discard, json)
}
