//! One file a verb.

pub(crate) mod bench;
pub(crate) mod call;
mod client;
pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod dds;
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod device;
pub(crate) mod doctor;
pub(crate) mod exi;
pub(crate) mod find;
pub(crate) mod key;
pub(crate) mod link;
mod network;
mod node_client;
mod overlay;
pub(crate) mod perf;
mod published;
pub(crate) mod query;
pub(crate) mod serve;
mod session;
pub(crate) mod sim;
mod sim_lookup;
pub(crate) mod sim_tree;
pub(crate) mod stream;
pub(crate) mod trace;
pub(crate) mod watch;

use clap::CommandFactory;

use crate::cli::Cli;

/// Prints the completions of `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "chappe", &mut std::io::stdout());
}
