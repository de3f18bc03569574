//! `chappe stream`: lists, creates, renames and removes streams of a node, and shows what they lack.

use chappe_stream::FieldType;
use serde_json::{Value, json};

use super::completeness;
use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{NodeAddress, Stream, StreamCreate, StreamForgetName, StreamRemove, StreamRename};
use crate::output::{self, Failure, Outcome, Table};

/// Fields that are listed for each stream; reason: a line.
const FIELDS_MAX: usize = 8;

/// Runs a verb of `stream`.
pub(crate) fn run(verb: Stream, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Stream::Create(flags) => create(flags, json).await,
                    Stream::List { node } => list(&node, json).await,
                    Stream::Completeness(flags) => completeness::run(flags, json).await,
                    Stream::Rename(flags) => rename(flags, json).await,
                    Stream::ForgetName(flags) => forget_name(flags, json).await,
                    Stream::Remove(flags) => remove(flags, json).await,
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
}

async fn list(node: &NodeAddress, json: bool) -> Outcome {
    let answer = NodeClient::new(node)?.get("/api/v1/streams").await?;
    if json {
        output::json(&answer);
        return Ok(());
    }
    let streams = answer["streams"].as_array().map_or(&[][..], Vec::as_slice);
    if streams.is_empty() {
        output::line("the node has no stream");
        return Ok(());
    }
    let mut table = Table::new(["STREAM", "NEWEST", "AT", "RATE", "FIELDS"]);
    for stream in streams {
        let text = |key: &str| stream[key].as_str().unwrap_or("-").to_owned();
        let fields = stream["fields"].as_array().into_iter().flatten();
        let field = |field: &Value| {
            let name = field["name"].as_str().unwrap_or_default();
            match field["unit"].as_str() {
                Some(unit) => format!("{name} ({unit})"),
                None => name.to_owned(),
            }
        };
        let mut fields: Vec<String> = fields.map(field).collect();
        if fields.len() > FIELDS_MAX {
            let more = fields.len() - FIELDS_MAX;
            fields.truncate(FIELDS_MAX);
            fields.push(format!("and {more} more"));
        }
        table.row([
            text("name"),
            stream["last"].to_string(),
            text("last_time"),
            format!("{}/s", stream["rate_per_s"]),
            fields.join(", "),
        ]);
    }
    output::line(table);
    Ok(())
}

async fn create(flags: StreamCreate, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let fields = flags.fields.iter().map(|text| field(text));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let definition = json!({
        "name": flags.name, "title": flags.title, "level": flags.level, "key": flags.key,
        "fields": fields,
    });
    let stream = node.post("/api/v1/streams", definition).await?;
    if json {
        output::json(&stream);
    } else {
        let level = stream["level"].as_str().unwrap_or_default();
        output::line(format_args!("stream {} of level {level}", flags.name));
    }
    Ok(())
}

/// A field as `FIELD:TYPE` or `FIELD:TYPE:UNIT`.
pub(super) fn field(text: &str) -> Result<serde_json::Value, Failure> {
    let mut parts = text.splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(field_type), unit) => {
            match serde_json::from_value::<FieldType>(json!(field_type)) {
                Ok(_) => Ok(json!({ "name": name, "type": field_type, "unit": unit })),
                Err(_) => Err(
                    Failure::new(format!("{text:?}: {field_type:?} is not a type"))
                        .coded("argument_invalid")
                        .hint("the types are boolean, integer, double, text, bytes and samples"),
                ),
            }
        }
        _ => Err(Failure::new(format!("{text:?} is not FIELD:TYPE"))
            .coded("argument_invalid")
            .hint("write it as temperature:double:Cel or note:text")),
    }
}

async fn rename(flags: StreamRename, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let path = format!("/api/v1/streams/{}/rename", percent(&flags.name));
    let stream = node.post(&path, json!({ "name": flags.new })).await?;
    if json {
        output::json(&stream);
    } else {
        output::line(format_args!("{} is now {}", flags.name, flags.new));
    }
    Ok(())
}

async fn forget_name(flags: StreamForgetName, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let (name, former) = (percent(&flags.name), percent(&flags.former));
    let path = format!("/api/v1/streams/{name}/former-names/{former}");
    node.delete(&path).await?;
    if json {
        output::json(&json!({ "stream": flags.name, "forgotten": flags.former }));
    } else {
        let (name, former) = (&flags.name, &flags.former);
        output::line(format_args!("{former} no longer refers to {name}"));
    }
    Ok(())
}

async fn remove(flags: StreamRemove, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let force = if flags.force { "?force=true" } else { "" };
    let path = format!("/api/v1/streams/{}{force}", percent(&flags.name));
    node.delete(&path).await?;
    if json {
        output::json(&json!({ "removed": flags.name }));
    } else {
        output::line(format_args!("removed {}", flags.name));
    }
    Ok(())
}
