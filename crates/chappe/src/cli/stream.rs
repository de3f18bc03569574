//! The command lines of `chappe stream` and `chappe write`.

use std::path::PathBuf;
use std::time::Duration;

use chappe_terminal::duration;
use clap::{Args, Subcommand};

use super::NodeAddress;

/// Verbs of `stream`.
#[derive(Debug, Subcommand)]
pub(crate) enum Stream {
    /// Create a stream for elements that programs write.
    #[command(
        after_help = "Examples:\n  chappe stream create lab.room temperature:double:Cel note:text\n  chappe stream create ward.pulse rate:double:{beat}/min --key bed --title 'Pulse by bed' --level power\n\nTypes: boolean, integer, double, text, bytes, samples. Units are UCUM codes: Cel, kPa, mmol/L, %.\nRepeating the command changes nothing; another definition of the same name is refused."
    )]
    Create(StreamCreate),
    /// List the streams of a node.
    #[command(after_help = "Examples:\n  chappe stream list\n  chappe stream list --json")]
    List {
        /// The node.
        #[command(flatten)]
        node: NodeAddress,
    },
    /// Show how many elements of a stream are stored, lost, refused and removed, and when its source was
    /// away.
    #[command(
        after_help = "Examples:\n  chappe stream completeness heart-rate\n  chappe stream completeness heart-rate --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z\n  chappe stream completeness heart-rate --json\n\nExit code 1 when elements were lost or refused. The absence of a device is not a loss."
    )]
    Completeness(StreamCompleteness),
    /// Give a stream another name.
    ///
    /// Its elements and their numbers stay as they are. The former name still refers to it in commands, queries,
    /// virtual sensors, links and topics.
    #[command(
        after_help = "Examples:\n  chappe stream rename monitor.pulse ward-3.bed-1.pulse\n  chappe stream rename ward-3.bed-1.pulse ward-3.bed-2.pulse\n\nRefused when another stream has or had the new name."
    )]
    Rename(StreamRename),
    /// Free a former name of a stream, so that another stream can have it.
    #[command(
        after_help = "Example:\n  chappe stream forget-name ward-3.bed-2.pulse ward-3.bed-1.pulse\n\nThe name under which a stream was defined stays with it until the stream is removed."
    )]
    ForgetName(StreamForgetName),
    /// Remove a stream with all its elements.
    #[command(
        after_help = "Examples:\n  chappe stream remove old-monitor.pulse\n  chappe stream remove old-monitor.pulse --force\n\nRefused while its source exists or another node reads it. A later stream of the same name\nstarts in a new epoch."
    )]
    Remove(StreamRemove),
}

/// Flags of `stream create`.
#[derive(Debug, Args)]
pub(crate) struct StreamCreate {
    /// The name: parts of a-z, 0-9, `_` and `-`, joined by dots.
    pub name: String,
    /// The fields of its elements.
    #[arg(required = true, value_name = "FIELD:TYPE[:UNIT]")]
    pub fields: Vec<String>,
    /// Its title, for people.
    #[arg(long)]
    pub title: Option<String>,
    /// The failure that its elements survive: none, the end of the process, or a loss of power.
    ///
    /// Default: the node's log.level.
    #[arg(long, value_name = "LEVEL", value_parser = ["memory", "process", "power"])]
    pub level: Option<String>,
    /// The subject that an element's key identifies, for a stream whose elements have keys.
    #[arg(long, value_name = "WHAT")]
    pub key: Option<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `write`.
#[derive(Debug, Args)]
pub(crate) struct Write {
    /// The stream.
    pub stream: String,
    /// The values of one element.
    #[arg(required_unless_present_any = ["csv", "ndjson"], value_name = "FIELD=VALUE")]
    pub values: Vec<String>,
    /// Read comma-separated values whose first line names the columns.
    #[arg(long, conflicts_with_all = ["values", "ndjson"])]
    pub csv: bool,
    /// Read one JSON object per line.
    #[arg(long, conflicts_with = "values")]
    pub ndjson: bool,
    /// Read this file instead of standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "values")]
    pub file: Option<PathBuf>,
    /// The name of this input.
    ///
    /// A later run with the same name and the same input stores only the missing elements. Default: a random name, so
    /// that lines are stored once only within this run.
    #[arg(long, value_name = "NAME")]
    pub producer: Option<String>,
    /// How long to retry while the node cannot be reached or has no room.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub retry_for: Duration,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `stream completeness`.
#[derive(Debug, Args)]
pub(crate) struct StreamCompleteness {
    /// The stream.
    pub name: String,
    /// Only elements with a source time at or after this (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only elements with a source time before this (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `stream rename`.
#[derive(Debug, Args)]
pub(crate) struct StreamRename {
    /// The stream, by its name or a former one.
    #[arg(value_name = "OLD")]
    pub name: String,
    /// The new name: parts of a-z, 0-9, `_` and `-`, joined by dots.
    #[arg(value_name = "NEW")]
    pub new: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `stream forget-name`.
#[derive(Debug, Args)]
pub(crate) struct StreamForgetName {
    /// The stream.
    #[arg(value_name = "STREAM")]
    pub name: String,
    /// Its former name.
    #[arg(value_name = "FORMER")]
    pub former: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `stream remove`.
#[derive(Debug, Args)]
pub(crate) struct StreamRemove {
    /// The stream.
    pub name: String,
    /// Remove it even if it holds elements.
    #[arg(long)]
    pub force: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}
