//! Flags of `dds`.

#[cfg(feature = "dds")]
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::NodeAddress;

/// Flags of `dds`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Dds {
    /// What to do without a node.
    #[command(subcommand)]
    pub verb: Option<DdsVerb>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Verbs of `dds`.
#[derive(Debug, Subcommand)]
pub(crate) enum DdsVerb {
    /// Create the files of DDS Security for a participant, for tests and small sites.
    #[command(
        after_help = "Examples:\n  chappe dds keys /etc/chappe/dds ward-1\n  chappe dds keys /etc/chappe/dds monitor --topic 'ward/*' --days 90\n\nThe first participant of a directory creates its authority (ca.pem, ca_key.pem) and the domain's\nrules (governance.p7s). Further ones are signed by it. It prints the section [dds.security] of the\nparticipant's node. Keep ca_key.pem away from nodes: anyone who has it can admit participants."
    )]
    Keys(DdsKeys),
    /// List the topics of a domain, with their types and quality of service.
    #[command(
        after_help = "Examples:\n  chappe dds topics\n  chappe dds topics --domain 7 --address 10.1.0.5\n  chappe dds topics --types             also the members of each type\n  chappe dds topics --json\n\nTopics of ROS 2 are shown by their names there: `rt/imu` is /imu. Exit code 1 if there are none."
    )]
    #[cfg(feature = "dds")]
    Topics(DdsTopics),
    /// Print the samples of a topic of any type.
    #[command(
        after_help = "Examples:\n  chappe dds echo /imu                  a topic of ROS 2, `rt/imu`\n  chappe dds echo ward/pose --count 1\n  chappe dds echo ward/pose --partition north --json\n\nThe type is the one that the writers announce. The quality of service is the one that they offer."
    )]
    #[cfg(feature = "dds")]
    Echo(DdsEcho),
}

/// Where to look for topics.
#[cfg(feature = "dds")]
#[derive(Debug, Args)]
pub(crate) struct DdsDomain {
    /// The domain.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub domain: u16,
    /// An address of this host to use; repeat for several. With 127.0.0.1 alone it stays on this host.
    #[arg(long = "address", default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub addresses: Vec<IpAddr>,
    /// Look for writers and readers this long.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub seconds: f64,
}

/// Flags of `dds topics`.
#[cfg(feature = "dds")]
#[derive(Debug, Args)]
pub(crate) struct DdsTopics {
    /// Also print the members of each type.
    #[arg(long)]
    pub types: bool,
    /// Where.
    #[command(flatten)]
    pub at: DdsDomain,
}

/// Flags of `dds echo`.
#[cfg(feature = "dds")]
#[derive(Debug, Args)]
pub(crate) struct DdsEcho {
    /// The topic; one that starts with `/` is a topic of ROS 2.
    pub topic: String,
    /// End after this many samples.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// A partition; repeat for several. Default: those of the topic's writers.
    #[arg(long = "partition", value_name = "NAME")]
    pub partitions: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub at: DdsDomain,
}

/// Flags of `dds keys`.
#[derive(Debug, Args)]
pub(crate) struct DdsKeys {
    /// The directory of the authority.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// The participant: the common name of its certificate, and the name of its directory.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Topics that it may write and read; `*` and `?` match any characters. Default: all.
    #[arg(long = "topic", value_name = "PATTERN")]
    pub topics: Vec<String>,
    /// Validity of its certificate and permissions in days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub days: u32,
}
