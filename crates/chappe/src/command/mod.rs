//! The verbs, one module each.

pub(crate) mod account;
pub(crate) mod announced;
pub(crate) mod call;
mod client;
mod completeness;
pub(crate) mod config;
pub(crate) mod conformance;
pub(crate) mod data;
pub(crate) mod dds;
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod device;
pub(crate) mod doctor;
pub(crate) mod exclusion;
pub(crate) mod exi;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod link;
mod network;
pub(crate) mod new;
mod node_client;
mod overlay;
pub(crate) mod perf;
pub(crate) mod place;
mod published;
pub(crate) mod query;
pub(crate) mod recording;
pub(crate) mod reference;
pub(crate) mod registry;
pub(crate) mod sensor;
pub(crate) mod serve;
mod service;
mod session;
pub(crate) mod stream;
mod text_file;
pub(crate) mod trace;
pub(crate) mod trial;
pub(crate) mod unit;
pub(crate) mod up;
pub(crate) mod watch;
pub(crate) mod why;
pub(crate) mod wrapper;
pub(crate) mod write;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};

use crate::cli::Cli;
use crate::output::Failure;

/// Prints the completions of `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) {
    // It would panic if it wrote to a pipe whose reader has enough.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "chappe", &mut text);
    crate::output::bytes(&text);
}

/// Writes a manual page for each verb to a directory.
#[cfg(feature = "man")]
pub(crate) fn man(directory: &std::path::Path) -> crate::output::Outcome {
    Ok(clap_mangen::generate_to(Cli::command(), directory)?)
}

/// The program that provides an unknown verb.
pub(crate) fn moved(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let is_moved = matches!(verb.as_str(), "bench" | "sim");
    is_moved.then(|| {
        let message = format!("`chappe {verb}` is now `chappe-lab {verb}`");
        Failure::new(message).coded("not_built_in").hint(format!(
            "in a checkout: cargo run --release -p chappe-lab -- {verb} --help"
        ))
    })
}
