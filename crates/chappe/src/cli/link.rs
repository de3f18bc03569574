//! The command line of `chappe link`.

use std::path::PathBuf;
use std::time::Duration;

use chappe_terminal::duration;
use chappe_transport::tls::Fingerprint;
use clap::{Args, Subcommand};

use super::NodeAddress;

/// Verbs of `link`.
#[derive(Debug, Subcommand)]
pub(crate) enum Link {
    /// Add a link: the node stores streams of another node, each element once.
    #[command(
        after_help = "Examples:\n  chappe link add ward-3 http://127.0.0.1:8471\n  chappe link add ward-3 tcp://192.0.2.7:8472 --streams 'ward.*' --server-key KEY\n  chappe link add ward-3 https://192.0.2.7:8470 --origin-fingerprint SHA256 --token-file token",
        after_long_help = "Examples:\n  chappe link add ward-3 http://127.0.0.1:8471\n  chappe link add ward-3 tcp://192.0.2.7:8472 --streams 'ward.*' --server-key KEY\n  chappe link add ward-3 https://192.0.2.7:8470 --origin-fingerprint SHA256 --token-file token\n\n`chappe key show` prints KEY and SHA256 on the origin's host. The link survives restarts.\nExit code 1 when it does not connect in time; the node keeps the link and keeps trying."
    )]
    Add(Box<LinkAdd>),
    /// List the links, and the readers of this node.
    #[command(
        after_help = "Examples:\n  chappe link list\n  chappe link list --watch\n  chappe link list --json"
    )]
    List(LinkList),
    /// Show one link with its streams.
    #[command(after_help = "Example:\n  chappe link show ward-3")]
    Show(LinkShow),
    /// Remove a link. Its elements and dead letters stay.
    #[command(
        after_help = "Example:\n  chappe link remove ward-3\n\nA new link of the same name takes over the dead letters."
    )]
    Remove(LinkRemove),
    /// List elements that a link received and could not store.
    #[command(after_help = "Example:\n  chappe link dead-letters ward-3")]
    DeadLetters(DeadLetters),
    /// Store dead letters again, or discard them.
    #[command(
        after_help = "Examples:\n  chappe link resend ward-3 17 18\n  chappe link resend ward-3 --all\n  chappe link resend ward-3 --all --discard\n\nExit code 1 when an element still cannot be stored."
    )]
    Resend(Resend),
}

/// Flags of `link add`.
#[derive(Debug, Args)]
pub(crate) struct LinkAdd {
    /// Name of the link: a-z, 0-9, `_` and `-`.
    pub name: String,
    /// Address of the origin: http://, https:// or tcp://HOST:PORT.
    pub address: String,
    /// Protocol of the link.
    ///
    /// Default: `http_pull` for http and https, `zeromq` for tcp.
    #[arg(long, value_name = "KIND", value_parser = ["zeromq", "zeromq_best_effort", "http_pull", "http_push"])]
    pub kind: Option<String>,
    /// Streams to read: names, or prefixes ending in `*`, separated by commas.
    #[arg(
        long,
        value_name = "STREAMS",
        default_value = "*",
        value_delimiter = ','
    )]
    pub streams: Vec<String>,
    /// Serialization of elements on the link.
    ///
    /// Default: `xml` for HTTP, `postcard` for ZeroMQ.
    #[arg(long, value_name = "FORM", value_parser = ["xml", "postcard", "message_pack"])]
    pub serialization: Option<String>,
    /// Durability that elements reach here before they are acknowledged.
    ///
    /// `memory` survives nothing, `process` the end of the process, `power` the loss of power.
    /// Default: the node's log.level.
    #[arg(long, value_name = "LEVEL", value_parser = ["memory", "process", "power"])]
    pub level: Option<String>,
    /// Prefix for the names of the streams here, followed by a dot.
    ///
    /// A `*` in --streams skips names that already have the prefix: copies that return in a ring of
    /// links.
    #[arg(long, value_name = "PREFIX")]
    pub as_prefix: Option<String>,
    /// Start a stream that was never read at the oldest (default) or next element.
    #[arg(long, value_name = "WHERE", value_parser = ["first", "new"])]
    pub start: Option<String>,
    /// The origin's public key, for tcp beyond loopback.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub server_key: Option<String>,
    /// The fingerprint of the origin's certificate, for https.
    #[arg(long, value_name = "SHA256")]
    pub origin_fingerprint: Option<Fingerprint>,
    /// The authorities of the origin's certificate, a file on the node's host.
    #[arg(
        long,
        value_name = "PEM",
        conflicts_with = "origin_fingerprint",
        hide_short_help = true
    )]
    pub origin_authorities: Option<PathBuf>,
    /// The origin's token, a file on the node's host.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Address of the origin's directory, for `zeromq_best_effort`: tcp://HOST:PORT.
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    pub directory: Option<String>,
    /// The address at which the origin reaches this node, for `http_push`.
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub contact: Option<String>,
    /// Allow clear text beyond loopback.
    #[arg(long)]
    pub insecure: bool,
    /// Time to wait for the connection.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION", hide_short_help = true)]
    pub wait: Duration,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

impl LinkAdd {
    /// The protocol: as given, or the default of the address.
    pub(crate) fn kind(&self) -> String {
        let default = match self.address.starts_with("tcp://") {
            true => "zeromq",
            false => "http_pull",
        };
        self.kind.clone().unwrap_or_else(|| default.to_owned())
    }

    /// The origin's fingerprint as text.
    pub(crate) fn origin_fingerprint(&self) -> Option<String> {
        self.origin_fingerprint
            .map(|fingerprint| fingerprint.to_string())
    }
}

/// Flags of `link list`.
#[derive(Debug, Args)]
pub(crate) struct LinkList {
    /// Repeat until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Time between two lists, with --watch.
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub every: Duration,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link show`.
#[derive(Debug, Args)]
pub(crate) struct LinkShow {
    /// The link.
    pub name: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link remove`.
#[derive(Debug, Args)]
pub(crate) struct LinkRemove {
    /// The link.
    pub name: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link dead-letters`.
#[derive(Debug, Args)]
pub(crate) struct DeadLetters {
    /// The link.
    pub name: String,
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

/// Flags of `link resend`.
#[derive(Debug, Args)]
pub(crate) struct Resend {
    /// The link.
    pub name: String,
    /// The numbers of the dead letters.
    #[arg(required_unless_present = "all", value_name = "NUMBER")]
    pub numbers: Vec<u64>,
    /// All dead letters of the link.
    #[arg(long, conflicts_with = "numbers")]
    pub all: bool,
    /// Discard them instead.
    #[arg(long)]
    pub discard: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}
