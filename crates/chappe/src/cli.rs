//! The command line: every verb, its flags and its examples.
//!
//! `-h` is one screen: the first paragraph of each flag, without rare flags. `--help` has everything.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chappe_device::host::{CriticalityRule, Order};
use chappe_identity::PublicKey;
use chappe_terminal::duration;
use chappe_transport::tls::Fingerprint;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Finds devices, describes them, and makes their data durable, queryable streams.
#[derive(Debug, Parser)]
#[command(name = "chappe", version, about, max_term_width = 100)]
#[command(
    after_help = "Examples:\n  chappe demo                  a plant of devices and a console, on this machine alone\n  chappe find                  the devices of this network\n  chappe doctor                why a device or a node is not found"
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON on standard output.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to standard error; repeat for more detail.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a small plant of devices and a node that finds them, with a console.
    #[command(after_help = "Examples:\n  chappe demo\n  chappe demo --listen 127.0.0.1:0 --json")]
    Demo(Demo),
    /// Run a node: discovery, registry, streams, virtual sensors, REST, console.
    #[command(
        after_help = "Examples:\n  chappe config sample > node.toml\n  chappe serve node.toml\n  CHAPPE_HTTP_LISTEN=127.0.0.1:0 chappe serve"
    )]
    Serve(Serve),
    /// Run devices.
    #[command(
        subcommand,
        after_help = "Example:\n  chappe device run thermometer.toml --address 127.0.1.1"
    )]
    Device(Device),
    /// Find devices, and explain why some are not usable.
    #[command(
        after_help = "Examples:\n  chappe find\n  chappe find --interface eth0 --timeout 5s\n  chappe find --host 192.0.2.7\n  chappe find --entrance 192.0.2.7:8473          where multicast does not reach\n\nExit code 1 when no usable device is found."
    )]
    Find(Find),
    /// Check this machine for discovery and storage, with a remedy for each problem.
    #[command(
        after_help = "Examples:\n  chappe doctor\n  chappe doctor --interface eth0 --with 192.0.2.7\n  chappe doctor --answer                       on that other host\n  chappe doctor --entrance 192.0.2.7:8473\n\nExit code 1 when a check fails."
    )]
    Doctor(Doctor),
    /// Print the metadata of a device.
    #[command(
        after_help = "Examples:\n  chappe describe urn:uuid:6f1a1c1e-3d67-4f3e-9a44-0a6a2b0b5a10\n  chappe describe http://192.0.2.7:5357/device\n  chappe describe 'Body temperature' --wsdl"
    )]
    Describe(Describe),
    /// Call an operation of a device.
    #[command(
        after_help = "Examples:\n  chappe call 'Room sensor' SetPeriod period=2.5\n  chappe call urn:uuid:... GetStatus\n  chappe call 'Room sensor' SetPeriod --body '<SetPeriod xmlns=\"urn:x\">...</SetPeriod>'"
    )]
    Call(Call),
    /// Show live values of a device, or of a node's streams.
    #[command(
        after_help = "Examples:\n  chappe watch 'Body temperature'          a device, without a node\n  chappe watch --stream heart-rate         a stream of the node\n  chappe watch --stream '*' --json"
    )]
    Watch(Watch),
    /// Query a node: SQL on its streams, SPARQL on its registry.
    #[command(
        after_help = "Examples:\n  chappe query 'select max(heart_rate) from \"heart-rate\"'\n  chappe query --sparql 'SELECT ?s WHERE { ?s a ?t } LIMIT 10'\n  chappe query --format csv 'select * from \"heart-rate\"'\n  chappe query --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z 'select count(*) from ecg'"
    )]
    Query(Query),
    /// Print discovery messages on the wire, decoded, and why any is dropped.
    #[command(
        after_help = "Examples:\n  chappe trace\n  chappe trace --interface eth0 --raw --seconds 30"
    )]
    Trace(Trace),
    /// Check, show and describe configuration.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe config sample > node.toml\n  chappe config check node.toml\n  chappe config show node.toml"
    )]
    Config(Config),
    /// Check, repair, back up and restore stored data.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe data check /var/lib/chappe\n  chappe data backup /var/lib/chappe /mnt/backup/monday --with-secrets"
    )]
    Data(Data),
    /// Read streams of other nodes over links.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe link add ward-3 http://127.0.0.1:8471\n  chappe link list --watch"
    )]
    Link(Link),
    /// Show what streams lack, and remove streams.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe stream completeness heart-rate\n  chappe stream remove old-monitor.pulse"
    )]
    Stream(Stream),
    /// Explain why values do not arrive: the path of a value hop by hop, and the first hop that stands in
    /// its way.
    #[command(
        after_help = "Examples:\n  chappe why heart-rate                 a stream\n  chappe why 'Body temperature'         a device by its name, endpoint or address\n  chappe why mean-temperature --kind sensor\n  chappe why ward-3 --json              a link\n\nExit code 1 when something stands in the way."
    )]
    Why(Why),
    /// Show DDS topics: published, read, and mismatched.
    #[command(after_help = "Examples:\n  chappe dds\n  chappe dds --json")]
    Dds(Dds),
    /// Show the public keys of a node, and admit members to its network.
    #[command(subcommand, after_help = "Example:\n  chappe key show node.toml")]
    Key(Key),
    /// Convert text XML to EXI and back, explain streams, compile schemas.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe exi encode order.xml -o order.exi\n  chappe exi info order.exi"
    )]
    Exi(crate::command::exi::Exi),
    /// Measure latency, throughput and pacing between a publisher and subscribers.
    #[command(
        subcommand,
        after_help = "Examples, in two terminals:\n  chappe perf pub --pacer adaptive\n  chappe perf sub"
    )]
    Perf(crate::command::perf::Perf),
    /// Print the completions of a shell.
    #[command(after_help = "Example:\n  chappe completions bash > /etc/bash_completion.d/chappe")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Flags of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Address of the console, on loopback; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8470", value_name = "ADDRESS:PORT")]
    pub listen: String,
    /// Keep the data in this directory. Default: a temporary one, removed at the end.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// End after this time, for scripts.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub run_for: Option<Duration>,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration. Without it every key has its default.
    #[arg(value_name = "NODE.TOML")]
    pub file: Option<PathBuf>,
    /// Set one key of the configuration; overrides file and environment.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Verbs of `device`.
#[derive(Debug, Subcommand)]
pub(crate) enum Device {
    /// Run the device that a file describes, replaying its recording as events.
    #[command(
        after_help = "Examples:\n  chappe device run thermometer.toml --address 127.0.1.1\n  chappe device run thermometer.toml --entrance 192.0.2.7:8473"
    )]
    Run(DeviceRun),
}

/// Flags of `device run`.
#[derive(Debug, Args)]
pub(crate) struct DeviceRun {
    /// The description of the device.
    #[arg(value_name = "DEVICE.TOML")]
    pub file: PathBuf,
    /// The address of the device; on loopback, one for each device, such as 127.0.1.7.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The port of its services; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Longest random delay before Hello and before answers to multicast.
    ///
    /// The standard's default protects large networks; use less in small ones.
    #[arg(long, default_value = "2500ms", value_parser = duration, value_name = "DURATION")]
    pub announce_within: Duration,
    /// End when standard input ends, as it does when the parent process ends.
    #[arg(long)]
    pub end_with_input: bool,
    /// Offer a notification tree: sinks that support it forward events.
    ///
    /// Other sinks get standard notifications. The directory holds the key that signs events and the
    /// number of starts.
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// How the tree paces events: flood, adaptive, fixed_window:16, fixed_period:1ms.
    ///
    /// Useful when several sources share one network.
    #[arg(long, value_name = "PACER", requires = "tree", default_value = "flood")]
    pub pacer: chappe_flow::pacer::Choice,
    /// Sinks count an event of the tree as late after this time; at most 1h.
    ///
    /// deadline_ms of an event in DEVICE.TOML overrides it.
    #[arg(long, requires = "tree", value_parser = deadline, value_name = "DURATION")]
    pub deadline: Option<Duration>,
    /// The order of the tree's sinks.
    ///
    /// By subscription, critical sinks first, or sinks that answered earlier events first.
    #[arg(long, requires = "tree", default_value = Order::AsListed.name(),
          value_parser = PossibleValuesParser::new(Order::ALL.map(Order::name)).try_map(|name| name.parse::<Order>()))]
    pub order: Order,
    /// Criticality of sinks by address, such as 10.1.0.0/16=7; may be repeated.
    ///
    /// The first matching prefix overrides the sink's own claim. Put 0.0.0.0/0=0 last to ignore all
    /// claims.
    #[arg(long, value_name = "PREFIX=0..255", requires = "tree")]
    pub criticality: Vec<CriticalityRule>,
    /// Also publish the device in the distributed hash table, through this node; may be repeated.
    ///
    /// Clients can then find it where multicast does not reach.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
}

/// Flags of every verb that searches the network.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Network")]
pub(crate) struct Network {
    /// Use this interface only; may be repeated. Default: all with multicast.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Probe this host directly, without multicast; may be repeated.
    #[arg(long = "host", value_name = "ADDRESS")]
    pub hosts: Vec<IpAddr>,
    /// Also search the distributed hash table, through this node; may be repeated.
    ///
    /// Nodes that answer multicast are used as entrances without this flag.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
    /// Take entrances from [kad] of this configuration.
    #[arg(long, value_name = "NODE.TOML")]
    pub config: Option<PathBuf>,
    /// How long to wait for answers.
    #[arg(long, default_value = "3s", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

/// Flags of `find`.
#[derive(Debug, Args)]
pub(crate) struct Find {
    /// Only devices of this type: `{namespace}local` or a local name.
    #[arg(long = "type", value_name = "TYPE")]
    pub device_type: Option<String>,
    /// Only devices within this scope.
    #[arg(long, value_name = "URI")]
    pub scope: Option<String>,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Check this interface only; may be repeated. Default: all.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Also reach this host, which runs a device or `chappe doctor --answer`.
    #[arg(long, value_name = "HOST")]
    pub with: Option<IpAddr>,
    /// Also check this entrance to the distributed hash table; may be repeated.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
    /// Check the entrances in [kad] of this configuration.
    #[arg(long, value_name = "NODE.TOML")]
    pub config: Option<PathBuf>,
    /// Answer searches until interrupted, for a doctor on another host.
    #[arg(long, conflicts_with = "with")]
    pub answer: bool,
    /// The data directory to check.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub data: PathBuf,
}

/// Flags of `describe`.
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// Endpoint address, transport address or name of the device.
    pub device: String,
    /// Print the WSDL of its services.
    #[arg(long)]
    pub wsdl: bool,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `call`.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Endpoint address, transport address or name of the device.
    pub device: String,
    /// The operation, by its name in the WSDL.
    pub operation: String,
    /// Arguments by name.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
    /// The whole body, instead of arguments.
    #[arg(long, conflicts_with = "arguments", value_name = "XML")]
    pub body: Option<String>,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Endpoint address, transport address or name of a device.
    #[arg(required_unless_present = "stream")]
    pub device: Option<String>,
    /// A stream of the node, or `*`; may be repeated.
    #[arg(long, conflicts_with = "device", value_name = "STREAM")]
    pub stream: Vec<String>,
    /// End after this many values.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Join the device's notification tree, if it has one, and forward its events.
    #[arg(long, requires = "device", conflicts_with = "stream")]
    pub tree: bool,
    /// The criticality that this sink claims in the tree.
    ///
    /// A device that orders its sinks by criticality may ignore the claim.
    #[arg(
        long,
        requires = "tree",
        value_name = "0..255",
        default_value_t = 0,
        hide_short_help = true
    )]
    pub criticality: u8,
    /// Remember events of trees in this directory, against replays in the next run.
    ///
    /// Costs one sync of the disk for each event. Without it replays are detected within one run.
    #[arg(long, requires = "tree", value_name = "DIR", hide_short_help = true)]
    pub seen: Option<PathBuf>,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// The node that a verb talks to.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeAddress {
    /// The node's address.
    #[arg(
        long,
        env = "CHAPPE_NODE",
        default_value = "http://127.0.0.1:8470",
        value_name = "URL"
    )]
    pub node: String,
    /// The node's token, required for changes.
    #[arg(
        long,
        env = "CHAPPE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub token: Option<String>,
    /// Trust the certificate with this fingerprint.
    ///
    /// `chappe key show` prints the fingerprint on the node's host.
    #[arg(long, env = "CHAPPE_FINGERPRINT", value_name = "SHA256")]
    pub fingerprint: Option<Fingerprint>,
    /// Trust certificates signed by the authorities in this file.
    #[arg(
        long,
        env = "CHAPPE_AUTHORITIES",
        value_name = "PEM",
        conflicts_with = "fingerprint"
    )]
    pub authorities: Option<PathBuf>,
}

impl NodeAddress {
    /// A node at this address.
    pub(crate) fn at(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            token: None,
            fingerprint: None,
            authorities: None,
        }
    }
}

/// Flags of `query`.
#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The query; `-` reads it from standard input.
    pub query: String,
    /// Run the query as SPARQL on the registry.
    #[arg(long)]
    pub sparql: bool,
    /// Format of the rows.
    #[arg(long, default_value = "table")]
    pub format: Format,
    /// Print at most this many rows.
    #[arg(long, default_value_t = 1_000)]
    pub limit: usize,
    /// Only elements with a source time from here on (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "sparql")]
    pub from: Option<String>,
    /// Only elements with a source time before this (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "sparql")]
    pub to: Option<String>,
    /// Answer from the newest elements of a stream that is too long for one query.
    ///
    /// Without this flag such a stream is an error. Standard error reports how many elements were
    /// read.
    #[arg(long, conflicts_with = "sparql")]
    pub partial: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Formats of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    Table,
    /// Comma-separated values with a header line.
    Csv,
    /// The node's answer.
    Json,
}

/// Flags of `trace`.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Listen on this interface only; may be repeated.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Also print the whole message.
    #[arg(long)]
    pub raw: bool,
    /// End after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

/// Verbs of `link`.
#[derive(Debug, Subcommand)]
pub(crate) enum Link {
    /// Add a link: the node stores streams of another node, each element once.
    #[command(
        after_help = "Examples:\n  chappe link add ward-3 http://127.0.0.1:8471\n  chappe link add ward-3 tcp://192.0.2.7:8472 --streams 'ward.*' --server-key KEY\n  chappe link add ward-3 https://192.0.2.7:8470 --origin-fingerprint SHA256 --token-file token",
        after_long_help = "Examples:\n  chappe link add ward-3 http://127.0.0.1:8471\n  chappe link add ward-3 tcp://192.0.2.7:8472 --streams 'ward.*' --server-key KEY\n  chappe link add ward-3 https://192.0.2.7:8470 --origin-fingerprint SHA256 --token-file token\n\n`chappe key show` prints KEY and SHA256 on the origin's host. The link survives restarts.\nExit code 1 when it does not connect in time; the node keeps the link and continues to try."
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
    #[arg(long, value_name = "KEY")]
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
    /// How long to wait for the connection.
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

/// Flags of `dds`.
#[derive(Debug, Args)]
pub(crate) struct Dds {
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
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

/// Verbs of `stream`.
#[derive(Debug, Subcommand)]
pub(crate) enum Stream {
    /// Show how many elements of a stream are stored, lost, refused and removed, and when its source was
    /// away.
    #[command(
        after_help = "Examples:\n  chappe stream completeness heart-rate\n  chappe stream completeness heart-rate --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z\n  chappe stream completeness heart-rate --json\n\nExit code 1 when elements were lost or refused. Silence of a device that was away is no loss."
    )]
    Completeness(StreamCompleteness),
    /// Remove a stream with all its elements.
    #[command(
        after_help = "Examples:\n  chappe stream remove old-monitor.pulse\n  chappe stream remove old-monitor.pulse --force\n\nRefused while its source exists or another node reads it. A later stream of the same name\nstarts in a new epoch."
    )]
    Remove(StreamRemove),
}

/// Flags of `why`.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A stream, a device (name, endpoint, key or address), a virtual sensor or a link.
    pub name: String,
    /// What the name is. Default: the first of stream, device, sensor and link that has it.
    #[arg(long, value_parser = ["stream", "device", "sensor", "link"])]
    pub kind: Option<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `stream completeness`.
#[derive(Debug, Args)]
pub(crate) struct StreamCompleteness {
    /// The stream.
    pub name: String,
    /// Only elements with a source time from here on (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only elements with a source time before this (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
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

/// Verbs of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Print the node's public keys and the fingerprint of its certificate.
    #[command(
        after_help = "Examples:\n  chappe key show\n  chappe key show node.toml --json\n\nRun it on the node's host, as the node's user. It prints no secret."
    )]
    Show {
        /// The node's configuration, which names its data directory.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
    },
    /// Admit a node to this node's network of members.
    #[command(
        after_help = "Example:\n  chappe key admit 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c owner.toml\n\nRun it on the host of the node that owns the network, as the node's user. It prints the lines for\n[kad] of the member's configuration. `chappe key show` prints KEY on the member's host. The owner\nadmits itself in the same way."
    )]
    Admit {
        /// The member's public key.
        #[arg(value_name = "KEY")]
        member: PublicKey,
        /// The owner's configuration, which names the directory of its key.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
        /// Validity in days.
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
}

/// Verbs of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Check a node's configuration and virtual sensors without starting the node.
    #[command(after_help = "Example:\n  chappe config check node.toml")]
    Check {
        /// The configuration.
        #[arg(value_name = "NODE.TOML")]
        file: PathBuf,
    },
    /// Print every key with its value and the origin of the value.
    #[command(
        after_help = "Examples:\n  chappe config show\n  chappe config show node.toml --json"
    )]
    Show {
        /// The configuration.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema, for editors.
    #[command(after_help = "Example:\n  chappe config schema sensor > sensor.schema.json")]
    Schema {
        /// The file that the schema describes.
        #[arg(value_enum, default_value = "node")]
        of: SchemaOf,
    },
    /// Print a sample with every key at its default.
    #[command(after_help = "Example:\n  chappe config sample > node.toml")]
    Sample,
}

/// Files that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// node.toml.
    Node,
    /// A virtual sensor.
    Sensor,
}

/// Verbs of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum Data {
    /// Read a node's log and registry, and report damage. Changes nothing.
    #[command(
        after_help = "Examples:\n  chappe data check /var/lib/chappe\n  chappe data check . --json\n\nThe node may run. Exit code 1 when records are missing."
    )]
    Check {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Repair the log and registry of a stopped node.
    #[command(
        after_help = "Example:\n  chappe data check /var/lib/chappe\n  chappe data repair /var/lib/chappe\n\nRepair cuts an incomplete end, gives up missing records so that nothing waits for them, and\nrebuilds the index. Damaged bytes move to DIR/damaged-N. If a subscriber or another node still\nhas the missing records, start the node first and let it fetch them."
    )]
    Repair {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Copy a node's log and registry to a new directory, with checksums.
    #[command(
        after_help = "Example:\n  chappe data backup /var/lib/chappe /mnt/backup/monday --with-secrets\n\nThe node may run. Exit code 1 when the original misses records: the copy misses them too."
    )]
    Backup {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The directory to make.
        #[arg(value_name = "BACKUP")]
        to: PathBuf,
        /// Also copy key, certificate, token, links and subscriptions.
        ///
        /// Anyone with such a backup can impersonate the node.
        #[arg(long)]
        with_secrets: bool,
    },
    /// Verify a backup and restore it to a data directory that holds no data.
    #[command(
        after_help = "Example:\n  chappe data restore /mnt/backup/monday /var/lib/chappe\n\nA restored node gives every stream a new epoch. If the backup has no secrets, also copy the\nnode's key.pem, links.json and subscriptions.json, so that it keeps its identity and its links."
    )]
    Restore {
        /// The backup.
        #[arg(value_name = "BACKUP")]
        from: PathBuf,
        /// The data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// A deadline of an event.
fn deadline(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(3_600);
    match duration(text)? {
        Duration::ZERO => Err("a deadline is longer than 0".to_owned()),
        deadline if deadline > MAX => Err("a deadline is at most 1h".to_owned()),
        deadline => Ok(deadline),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Lines of one screen.
    const SCREEN_LINES: usize = 40;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_a_short_help() {
        let mut root = Cli::command().term_width(100);
        root.build();
        let mut commands = vec![root];
        let mut wrong = Vec::new();
        while let Some(mut command) = commands.pop() {
            let path = command.get_bin_name().unwrap_or_default().to_owned();
            let subcommands = command.get_subcommands();
            commands.extend(subcommands.filter(|it| it.get_name() != "help").cloned());
            let lines = command.render_help().to_string().lines().count();
            if lines > SCREEN_LINES {
                wrong.push(format!("{path} -h has {lines} lines"));
            }
            if !command.render_long_help().to_string().contains("Example") {
                wrong.push(format!("{path} --help has no example"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
