//! `chappe stream`: shows what streams of a node lack, and removes streams.

use serde_json::json;

use super::completeness;
use super::network;
use super::node_client::NodeClient;
use super::query::percent;
use crate::cli::{Stream, StreamRemove};
use crate::output::{self, Outcome};

/// Runs a verb of `stream`.
pub(crate) fn run(verb: Stream, json: bool) -> Outcome {
    network::block_on(async move {
        tokio::select! {
            result = async {
                match verb {
                    Stream::Completeness(flags) => completeness::run(flags, json).await,
                    Stream::Remove(flags) => remove(flags, json).await,
                }
            } => result,
            result = network::interrupted() => result,
        }
    })
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
