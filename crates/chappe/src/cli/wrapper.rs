//! The command line of `chappe wrapper`.

use std::path::PathBuf;
use std::time::Duration;

use chappe_terminal::duration;
use clap::{Args, Subcommand};

use super::NodeAddress;

/// Verbs of `wrapper`.
#[derive(Debug, Subcommand)]
pub(crate) enum Wrapper {
    /// List the wrappers and exporters of a node.
    #[command(after_help = "Examples:\n  chappe wrapper list\n  chappe wrapper list --json")]
    List(WrapperList),
    /// Show one wrapper or exporter.
    #[command(after_help = "Example:\n  chappe wrapper show climate")]
    Show(WrapperShow),
    /// Show the first elements that a wrapper's file produces, without a node and without storing them.
    #[command(
        after_help = "Examples:\n  chappe wrapper try wrappers/climate.toml\n  chappe wrapper try wrappers/climate.toml --count 100 --json\n\nNothing is acknowledged, so the peer sends the same messages to the node. Exit code 1 when a message\ncannot be decoded or nothing arrives in time."
    )]
    Try(WrapperTry),
    /// Check whether the program of a wrapper's file follows the rules of the protocol; stores nothing.
    #[command(
        after_help = "Examples:\n  chappe wrapper check wrappers/load.toml\n  chappe wrapper check wrappers/load.toml --wait 30s --json\n  chappe wrapper check wrappers/mean.toml --elements elements.jsonl\n\nExit code 1 when a rule is broken. The rules are in docs/reference/programs.md."
    )]
    Check(WrapperCheck),
    /// Print a wrapper's file for a peer, as far as the peer describes itself.
    #[command(
        after_help = "Examples:\n  chappe wrapper browse /var/log/machine/climate.csv > wrappers/climate.toml\n  chappe wrapper browse plant.db --kind sqlite\n  PGPASSWORD=... chappe wrapper browse postgres://chappe@localhost/plant\n  chappe wrapper browse modbus://10.0.0.5:502/1\n  chappe wrapper browse mqtt://broker.plant.example"
    )]
    Browse(WrapperBrowse),
    /// List messages that a wrapper received and could not decode.
    #[command(
        after_help = "Examples:\n  chappe wrapper dead-letters climate\n  chappe wrapper dead-letters --exporter archive"
    )]
    DeadLetters(WrapperDeadLetters),
    /// Decode dead letters again and store them, or discard them.
    #[command(
        after_help = "Examples:\n  chappe wrapper resend climate 17 18\n  chappe wrapper resend climate --all\n  chappe wrapper resend climate --all --discard\n\nExit code 1 when a message still cannot be decoded."
    )]
    Resend(WrapperResend),
}

/// Flags of `wrapper list`.
#[derive(Debug, Args)]
pub(crate) struct WrapperList {
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `wrapper show`.
#[derive(Debug, Args)]
pub(crate) struct WrapperShow {
    /// The wrapper or exporter.
    pub name: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `wrapper try`.
#[derive(Debug, Args)]
pub(crate) struct WrapperTry {
    /// The wrapper's file.
    pub file: PathBuf,
    /// Number of elements.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub count: usize,
    /// Time to wait for them.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub wait: Duration,
}

/// Flags of `wrapper check`.
#[derive(Debug, Args)]
pub(crate) struct WrapperCheck {
    /// The wrapper's file, of kind `program`.
    pub file: PathBuf,
    /// For a program with `inputs`: the elements to pass, one JSON object per line.
    ///
    /// `chappe watch --stream INPUT --json` prints such lines.
    #[arg(long, value_name = "FILE")]
    pub elements: Option<PathBuf>,
    /// How long the program runs each time.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub wait: Duration,
}

/// Flags of `wrapper browse`.
#[derive(Debug, Args)]
pub(crate) struct WrapperBrowse {
    /// The peer: a file, a database, or an address such as mqtt://HOST or modbus://HOST:PORT/UNIT.
    pub address: String,
    /// The kind of the wrapper.
    ///
    /// Default: by the scheme of the address; `sqlite` for names ending in .db, .sqlite and .sqlite3, else `file`.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
}

/// Flags of `wrapper dead-letters`.
#[derive(Debug, Args)]
pub(crate) struct WrapperDeadLetters {
    /// The wrapper.
    pub name: String,
    /// The name is that of an exporter: list elements that its peer refused.
    #[arg(long)]
    pub exporter: bool,
    /// Start at this number.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub from: u64,
    /// List at most this many.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: usize,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `wrapper resend`.
#[derive(Debug, Args)]
pub(crate) struct WrapperResend {
    /// The wrapper.
    pub name: String,
    /// The numbers of the dead letters.
    #[arg(required_unless_present = "all", value_name = "NUMBER")]
    pub numbers: Vec<u64>,
    /// All dead letters.
    #[arg(long, conflicts_with = "numbers")]
    pub all: bool,
    /// Discard them instead.
    #[arg(long)]
    pub discard: bool,
    /// The name is that of an exporter, whose dead letters can only be discarded.
    #[arg(long, requires = "discard")]
    pub exporter: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}
