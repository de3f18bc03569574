//! The command lines of `chappe sensor` and `chappe import`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::NodeAddress;

/// Verbs of `sensor`.
#[derive(Debug, Subcommand)]
pub(crate) enum Sensor {
    /// Convert a descriptor between TOML and GSN's XML.
    #[command(
        after_help = "Examples:\n  chappe sensor convert mean.xml > sensors/mean.toml\n  chappe sensor convert sensors/mean.toml > mean.xml\n  chappe sensor convert mean.xml --json\n\nThe descriptor goes to standard output. Standard error lists whether each attribute was\ntaken, changed or ignored, and why."
    )]
    Convert(SensorConvert),
    /// Call a command of a virtual sensor.
    #[command(
        after_help = "Examples:\n  chappe sensor call yard set-period period='10 s'\n  chappe sensor call yard calibrate table=@offsets.csv days=mon days=tue\n\nWrite an argument as NAME=VALUE, and the bytes of a file as NAME=@FILE. An argument that is given\nseveral times is an array, such as the choices of a checkbox."
    )]
    Call(SensorCall),
}

/// Flags of `sensor call`.
#[derive(Debug, Args)]
pub(crate) struct SensorCall {
    /// The virtual sensor.
    pub name: String,
    /// Its command.
    pub command: String,
    /// The arguments.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `sensor convert`.
#[derive(Debug, Args)]
pub(crate) struct SensorConvert {
    /// The descriptor: `.xml` is GSN's, anything else TOML.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The format to convert to. Default: the other format.
    #[arg(long)]
    pub to: Option<DescriptorFormat>,
}

/// Formats of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DescriptorFormat {
    /// Chappe's TOML.
    Toml,
    /// GSN's XML.
    Gsn,
}

/// Verbs of `import`.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// Convert a directory of GSN's descriptors to sensor files.
    #[command(
        after_help = "Examples:\n  chappe import gsn virtual-sensors --dry-run\n  chappe import gsn virtual-sensors --into sensors\n  chappe import gsn virtual-sensors --into sensors --json\n\nPrints for each attribute whether it was taken, changed or ignored, and why. A file with a part that\nhas no counterpart is not written, and the error names an alternative. The node loads\nthe written files from its `sensors_directory`; it also loads the XML files themselves.\nExit code 1 when a file was not imported."
    )]
    Gsn(ImportGsn),
}

/// Flags of `import gsn`.
#[derive(Debug, Args)]
pub(crate) struct ImportGsn {
    /// GSN's directory of virtual sensors; its `*.xml` files are read.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The directory for the sensor files, usually the node's `sensors_directory`.
    #[arg(long, value_name = "DIR", default_value = "sensors")]
    pub into: PathBuf,
    /// Replace sensor files that exist.
    #[arg(long)]
    pub replace: bool,
    /// Write nothing.
    #[arg(long)]
    pub dry_run: bool,
}
