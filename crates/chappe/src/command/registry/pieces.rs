//! Pieces of metadata: attached, listed, deleted.

use serde_json::{Value, json};

use super::super::node_client::NodeClient;
use super::super::query::percent;
use super::{document, parameters, seconds, text};
use crate::cli::{RegistryAnnotate, RegistryAnnotations, RegistryRemove};
use crate::output::{self, Failure, Outcome, Table};

const PATH: &str = "/api/v1/registry/metadata";
/// Pieces of one request.
const PAGE: usize = 1_000;

pub(super) async fn annotate(flags: RegistryAnnotate, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let turtle = flags.turtle.as_deref().map(document).transpose()?;
    let mut piece = json!({ "subject": flags.subject, "type": flags.piece_type });
    let given = [
        ("value", flags.value),
        ("datatype", flags.datatype),
        ("uri", flags.uri),
        ("turtle", turtle),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            piece[name] = value.into();
        }
    }
    if !flags.readers.is_empty() {
        piece["readers"] = flags.readers.into();
    }
    if let Some(lease) = flags.lease {
        piece["lease_s"] = seconds(lease).into();
    }
    let piece = match &flags.piece {
        Some(key) => node.put(&format!("{PATH}/{}", percent(key)), piece).await?,
        None => node.post(PATH, piece).await?,
    };
    if json {
        output::json(&piece);
    } else {
        output::line(text(&piece["key"]));
    }
    Ok(())
}

pub(super) async fn list(flags: RegistryAnnotations, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let criteria = parameters(&[
        ("subject", &flags.subject),
        ("type", &flags.piece_type),
        ("author", &flags.author),
    ]);
    let (mut found, mut cursor) = (Vec::new(), Some(String::new()));
    while found.len() < flags.limit
        && let Some(next) = cursor.take()
    {
        let count = PAGE.min(flags.limit - found.len());
        let path = format!("{PATH}?limit={count}{criteria}{next}");
        let mut answer = node.get(&path).await?;
        if let Value::Array(part) = answer["pieces"].take() {
            found.extend(part);
        }
        let next = answer["next"].as_str();
        cursor = next.map(|next| format!("&cursor={}", percent(next)));
    }
    if json {
        output::json(&json!({ "pieces": found, "truncated": cursor.is_some() }));
    } else if !found.is_empty() {
        let mut table = Table::new(["SUBJECT", "TYPE", "VALUE", "AUTHOR", "DATE", "KEY"]);
        for piece in &found {
            let [subject, piece_type, author, date, key] =
                ["subject", "type", "author", "date", "key"].map(|column| text(&piece[column]));
            table.row([subject, piece_type, value(piece), author, date, key]);
        }
        output::line(table);
    }
    if cursor.is_some() {
        let count = found.len();
        output::note(format_args!("more than these {count} exist: raise --limit"));
    }
    if found.is_empty() {
        output::note("no piece matches");
        return Err(Failure::negative());
    }
    Ok(())
}

/// The value on one line.
fn value(piece: &Value) -> String {
    match (&piece["value"], &piece["uri"], &piece["graph"]) {
        (Value::String(value), _, _) => value.clone(),
        (_, Value::String(uri), _) => format!("<{uri}>"),
        (_, _, Value::Array(graph)) => format!("graph of {} triples", graph.len()),
        _ => String::new(),
    }
}

pub(super) async fn withdraw(flags: RegistryRemove, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let path = format!("{PATH}/{}", percent(&flags.key));
    node.delete(&path).await?;
    if json {
        output::json(&json!({ "removed": flags.key }));
    } else {
        output::line(format_args!("removed {}", flags.key));
    }
    Ok(())
}
