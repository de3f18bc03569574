//! The command lines of the first hour: `init`, `up`, `service`, `new`, `try` and `test`.

use std::path::PathBuf;
use std::time::Duration;

use chappe_terminal::duration;
use clap::{Arg, Args, Subcommand};

use super::{Network, NodeAddress};

/// Flags of `init`.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The directory for `node.toml`.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// The name of the node. Default: the name of the host.
    #[arg(long)]
    pub name: Option<String>,
    /// Overwrite an existing configuration.
    #[arg(long)]
    pub force: bool,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// An argument of `init`: those of [`Network`] for which a configuration has no key are hidden. They are refused with what
/// to do instead.
pub(super) fn of_init(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "hosts" | "entrances" | "config" => argument.hide(true),
        "interfaces" | "proxies" | "timeout" => argument.help_heading(None::<&str>),
        _ => argument,
    }
}

/// Flags of `up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The configuration, or its directory.
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    pub at: PathBuf,
    /// Set one key of the configuration; overrides file and environment.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Verbs of `service`.
#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// Run a node as a systemd service, now and after each boot.
    #[command(
        after_help = "Examples:\n  sudo chappe service install /etc/chappe\n  chappe service install plant            a user service\n  chappe service install plant --print    the unit alone, changes nothing\n\nAs root, it installs a system service, which runs as the owner of the configuration. If root owns\nthe configuration, the service has its own user and keeps its data in /var/lib/chappe; sensors,\nwrappers and exporters are also there, unless the configuration has some or names their\ndirectories. Otherwise, it installs a user service."
    )]
    Install(ServiceInstall),
    /// Stop the service and remove its unit; configuration and data stay.
    #[command(after_help = "Example:\n  sudo chappe service uninstall")]
    Uninstall,
    /// Print whether the service is installed and running.
    #[command(
        after_help = "Examples:\n  chappe service status\n  chappe service status --json\n\nExit code 1 when it is not running."
    )]
    Status,
}

/// Flags of `service install`.
#[derive(Debug, Args)]
pub(crate) struct ServiceInstall {
    /// The configuration, or its directory.
    #[arg(value_name = "DIR|FILE", default_value = ".")]
    pub at: PathBuf,
    /// Print the unit, and change nothing.
    #[arg(long)]
    pub print: bool,
    /// Replace the service of another configuration.
    #[arg(long)]
    pub force: bool,
}

/// Verbs of `new`.
#[derive(Debug, Subcommand)]
pub(crate) enum New {
    /// Write the descriptor of a virtual sensor over a stream.
    #[command(
        after_help = "Examples:\n  chappe new sensor warm-room --from lab.room\n  chappe new sensor warm-room --from lab.room --fields temperature:double:Cel\n\nThe fields come from the node; without one, from --fields. The file computes means of the numbers\nover one minute: change its window, statement and fields, and check the result with `chappe try`."
    )]
    Sensor(NewSensor),
}

/// Flags of `new sensor`.
#[derive(Debug, Args)]
pub(crate) struct NewSensor {
    /// The name of the sensor and of its stream.
    pub name: String,
    /// The stream that it reads.
    #[arg(long, value_name = "STREAM")]
    pub from: String,
    /// A field of the stream, instead of asking the node; may be repeated.
    #[arg(
        long = "fields",
        value_name = "FIELD:TYPE[:UNIT]",
        value_delimiter = ','
    )]
    pub fields: Vec<String>,
    /// The directory for the file: the node's `sensors_directory`.
    #[arg(long, value_name = "DIR", default_value = "sensors")]
    pub into: PathBuf,
    /// Overwrite a file that exists.
    #[arg(long)]
    pub force: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `try`.
#[derive(Debug, Args)]
pub(crate) struct Try {
    /// The descriptor.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The stream of the source; with several sources ALIAS=STREAM for each.
    ///
    /// A source that names its stream needs none.
    #[arg(long, value_name = "[ALIAS=]STREAM")]
    pub on: Vec<String>,
    /// How far to go back from the newest element of the streams.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub last: Duration,
    /// Read the elements from this CSV file, not from a node; with several sources ALIAS=FILE for each.
    ///
    /// The header names the fields. The columns source_time, receive_time, key and quality are
    /// optional; rows without a time are one second apart. Files written by `chappe export` can be
    /// used.
    #[arg(long, value_name = "[ALIAS=]FILE.CSV", conflicts_with_all = ["on", "data"])]
    pub input: Vec<String>,
    /// A field of the CSV files whose type or unit cannot be inferred; may be repeated.
    #[arg(
        long = "fields",
        value_name = "FIELD:TYPE[:UNIT]",
        value_delimiter = ',',
        requires = "input"
    )]
    pub fields: Vec<String>,
    /// Read the elements from this data directory of a node, without changing it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print at most this many of the newest rows; 0 prints all.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub rows: usize,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `test`.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// A directory of descriptors, or one file `NAME.test.toml`.
    #[arg(value_name = "DIR|FILE", default_value = "sensors")]
    pub at: PathBuf,
}
