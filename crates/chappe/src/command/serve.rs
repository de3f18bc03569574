//! `chappe serve`: runs a node.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_node::config::{Config, Flag};
use chappe_node::{Node, StartError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::service;
use crate::cli::{DEFAULT_NODE, Serve};
use crate::output::{self, Failure, Outcome};

/// Maximum number of open files of a node; reason: the connections and files that a configuration permits by default are
/// far fewer.
const OPEN_FILES_MAX: u64 = 65_536;

/// Time for work on other threads after the node has ended; reason: all that must be stored is by then, and what is left
/// may take any time.
const THREADS_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a node until a signal.
pub(crate) fn run(flags: Serve, json: bool) -> Outcome {
    let set = flags
        .set
        .iter()
        .map(|text| setting(text))
        .collect::<Result<_, _>>()?;
    let loaded = super::config::load(flags.file.as_deref(), set).map_err(|mut failure| {
        failure.code = service::WRONG_CONFIGURATION;
        failure
    })?;
    raise_open_files_limit();
    let runtime = chappe_node::runtime()?;
    let outcome: Outcome = runtime.block_on(async {
        let node = start(loaded.config).await?;
        let address = node.url();
        if json {
            output::json(&json!({
                "event": "ready", "address": address, "name": node.name(), "key": node.key(),
                "pid": std::process::id(), "token_file": node.new_token_file(),
                "fingerprint": node.fingerprint(),
                "exchange": BTreeMap::from_iter(node.listening()),
                "log_max_bytes": node.size_limit().bytes,
                "kad": node.kad_address().map(|address| address.to_string()),
            }));
        } else {
            if let Some(file) = node.new_token_file() {
                output::note(format_args!(
                    "the new token for changes is in {}; remove the file once you have the token",
                    file.display()
                ));
            }
            if let Some(fingerprint) = node.fingerprint() {
                output::note(format_args!("certificate: {fingerprint}"));
            }
            for (what, address) in node.listening() {
                output::note(format_args!("exchange, {what}: {address}"));
            }
            if let Some(address) = node.kad_address() {
                output::note(format_args!("distributed hash table: {address}"));
            }
            output::note(node.size_limit());
            output::line(format_args!("{} is ready at {address}", node.name()));
            let at = match address.as_str() {
                DEFAULT_NODE => String::new(),
                other => format!(" --node {other}"),
            };
            output::progress(format_args!(
                "next: open {address} in a browser, or: chappe watch --stream '*'{at}"
            ));
        }
        service::run(&node, flags.file.as_deref()).await?;
        output::progress("draining");
        node.shutdown().await?;
        Ok(())
    });
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    outcome
}

/// Raises the limit of open files, 1,024 by default, as far as a process may. With the default, a flood of
/// announcements leaves no file for the connections of known devices and clients.
fn raise_open_files_limit() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    let wanted = hard.min(OPEN_FILES_MAX);
    if soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::debug!(%error, "the limit of open files stays at {soft}");
    }
}

/// Starts a node, with the hint of its error.
pub(crate) async fn start(config: Config) -> Result<Node, Failure> {
    Node::start(config).await.map_err(failure)
}

/// The failure with the hint and the code of the error.
pub(super) fn failure(error: StartError) -> Failure {
    let (hint, code) = (error.hint(), error.code());
    Failure::from(error).hint_if(hint).coded(code)
}

fn setting(text: &str) -> Result<Flag, Failure> {
    let (key, value) = text.split_once('=').ok_or_else(|| {
        Failure::new(format!("--set {text:?} has no value"))
            .coded("argument_invalid")
            .hint("write it as --set KEY=VALUE")
    })?;
    let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
    Ok(Flag {
        name: "--set".into(),
        key,
        value,
    })
}
