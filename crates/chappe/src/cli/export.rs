//! The command line of `chappe export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::NodeAddress;

/// Flags of `export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The streams.
    #[arg(required = true, value_name = "STREAM")]
    pub streams: Vec<String>,
    /// Only elements with a source time at or after this (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only elements with a source time before this (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// The format of the files.
    ///
    /// Default: from the extension of FILE.
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// The file, with `{stream}` in its name for several streams.
    ///
    /// It appears once it is complete, and replaces an existing file. A device, a pipe or `/dev/stdout` gets the rows as
    /// they come.
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Forms of exported files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// Parquet.
    Parquet,
    /// Arrow's file format.
    Arrow,
}
