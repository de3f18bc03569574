//! `chappe stream`: creates, renames and removes streams of a node, and shows what they lack.

use serde_json::json;

use super::completeness;
use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{Stream, StreamCreate, StreamForgetName, StreamRemove, StreamRename};
use crate::output::{self, Failure, Outcome};

/// Runs a verb of `stream`.
pub(crate) fn run(verb: Stream, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Stream::Create(flags) => create(flags, json).await,
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
            Ok(json!({ "name": name, "type": field_type, "unit": unit }))
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
