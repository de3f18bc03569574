//! The command line: every verb, its flags and its examples.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chappe_device::host::{CriticalityRule, Order};
use chappe_identity::PublicKey;
use chappe_terminal::duration;
use chappe_transport::tls::Fingerprint;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Finds devices, learns what they are and mean, streams their data and never loses what it
/// acknowledged.
#[derive(Debug, Parser)]
#[command(name = "chappe", version, about, max_term_width = 100)]
#[command(after_help = "Start here:  chappe demo\nIn trouble:  chappe doctor")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Print results as JSON on standard output.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more on standard error; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring up a small plant of devices and a node that finds them, in a browser.
    #[command(after_help = "Examples:\n  chappe demo\n  chappe demo --listen 127.0.0.1:0 --json")]
    Demo(Demo),
    /// Run a node: discovery, registry, streams, virtual sensors, REST, console.
    #[command(
        after_help = "Examples:\n  chappe config sample > node.toml\n  chappe serve node.toml\n  CHAPPE_HTTP_LISTEN=127.0.0.1:0 chappe serve"
    )]
    Serve(Serve),
    /// Run devices.
    #[command(subcommand)]
    Device(Device),
    /// Find devices, and say what is wrong with those that are not usable.
    #[command(
        after_help = "Examples:\n  chappe find\n  chappe find --interface eth0 --timeout 5s\n  chappe find --host 192.0.2.7\n  chappe find --entrance 192.0.2.7:8473          where multicast does not reach\n\nExit code 1 when no usable device was found."
    )]
    Find(Find),
    /// Check what discovery and storage need on this machine, and say what to do.
    #[command(
        after_help = "Examples:\n  chappe doctor\n  chappe doctor --interface eth0 --with 192.0.2.7\n  chappe doctor --answer                       on that other host\n  chappe doctor --entrance 192.0.2.7:8473\n\nExit code 1 when a check failed."
    )]
    Doctor(Doctor),
    /// Print what a device says of itself.
    #[command(
        after_help = "Examples:\n  chappe describe urn:uuid:6f1a1c1e-3d67-4f3e-9a44-0a6a2b0b5a10\n  chappe describe http://192.0.2.7:5357/device\n  chappe describe 'Body temperature' --wsdl"
    )]
    Describe(Describe),
    /// Call an operation of a device.
    #[command(
        after_help = "Examples:\n  chappe call 'Room sensor' SetPeriod period=2.5\n  chappe call urn:uuid:... GetStatus\n  chappe call 'Room sensor' SetPeriod --body '<SetPeriod xmlns=\"urn:x\">...</SetPeriod>'"
    )]
    Call(Call),
    /// Show values as they come: of a device, or of a node's streams.
    #[command(
        after_help = "Examples:\n  chappe watch 'Body temperature'          a device, without a node\n  chappe watch --stream heart-rate         a stream of the node\n  chappe watch --stream '*' --json"
    )]
    Watch(Watch),
    /// Ask the node: SQL on its streams, SPARQL on its registry.
    #[command(
        after_help = "Examples:\n  chappe query 'select max(heart_rate) from \"heart-rate\"'\n  chappe query --sparql 'SELECT ?s WHERE { ?s a ?t } LIMIT 10'\n  chappe query --format csv 'select * from \"heart-rate\"'\n  chappe query --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z 'select count(*) from ecg'"
    )]
    Query(Query),
    /// Print discovery messages on the wire, decoded, with the reason when one is dropped.
    #[command(
        after_help = "Examples:\n  chappe trace\n  chappe trace --interface eth0 --raw --seconds 30"
    )]
    Trace(Trace),
    /// Check, show and describe configuration.
    #[command(subcommand)]
    Config(Config),
    /// Check, mend, copy and restore stored data.
    #[command(subcommand)]
    Data(Data),
    /// Bring streams of other nodes here, and see how they come.
    #[command(subcommand)]
    Link(Link),
    /// Remove streams that are not needed any more.
    #[command(subcommand)]
    Stream(Stream),
    /// Show DDS topics: what is published, what is read, and what does not fit.
    #[command(after_help = "Examples:\n  chappe dds\n  chappe dds --json")]
    Dds(Dds),
    /// Show what others recognize this node by.
    #[command(subcommand)]
    Key(Key),
    /// Turn text XML into EXI and back, explain streams, compile schemas.
    #[command(subcommand)]
    Exi(crate::command::exi::Exi),
    /// Measure latency, throughput and pace between a publisher and subscribers.
    #[command(subcommand)]
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
    /// Keep the data here instead of in a temporary directory that is removed at the end.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// End after this time, for scripts.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub run_for: Option<Duration>,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration; without it every key has its default.
    #[arg(value_name = "NODE.TOML")]
    pub file: Option<PathBuf>,
    /// Set one key of the configuration, above file and environment.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Verbs of `device`.
#[derive(Debug, Subcommand)]
pub(crate) enum Device {
    /// Run the device that a file describes, replaying its recording as events.
    #[command(after_help = "Example:\n  chappe device run thermometer.toml --address 127.0.1.1")]
    Run(DeviceRun),
}

/// Flags of `device run`.
#[derive(Debug, Args)]
pub(crate) struct DeviceRun {
    /// The description of the device.
    #[arg(value_name = "DEVICE.TOML")]
    pub file: PathBuf,
    /// The address to live on; on loopback each device wants one of its own, such as 127.0.1.7.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The port of its services; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// The longest random delay before it announces itself or answers a search by multicast. The
    /// standard's spares large networks; small ones want less.
    #[arg(long, default_value = "2500ms", value_parser = duration, value_name = "DURATION")]
    pub announce_within: Duration,
    /// End when standard input ends, as it does when the program that holds its other end is gone.
    #[arg(long)]
    pub end_with_input: bool,
    /// Let sinks that understand it help to spread events; others get standard notifications. The folder
    /// keeps the key that signs them and how often the device has started.
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// How events of the tree are held back while earlier ones are on their way: flood, adaptive,
    /// fixed_window:16 or fixed_period:1ms; for several sources on one network.
    #[arg(long, value_name = "PACER", requires = "tree", default_value = "flood")]
    pub pacer: chappe_flow::pacer::Choice,
    /// After this an event of the tree is late: sinks take it, and count it. deadline_ms of an event in
    /// DEVICE.TOML goes before it. At most an hour.
    #[arg(long, requires = "tree", value_parser = deadline, value_name = "DURATION")]
    pub deadline: Option<Duration>,
    /// In which order the tree's sinks are listed: as they came, critical sinks first, or those that
    /// answered earlier events first.
    #[arg(long, requires = "tree", default_value = Order::AsListed.name(),
          value_parser = PossibleValuesParser::new(Order::ALL.map(Order::name)).try_map(|name| name.parse::<Order>()))]
    pub order: Order,
    /// How critical the sinks at these addresses are, whatever they say, such as 10.1.0.0/16=7; may be
    /// repeated, the first that has a sink counts. 0.0.0.0/0=0 at the end believes nobody.
    #[arg(long, value_name = "PREFIX=0..255", requires = "tree")]
    pub criticality: Vec<CriticalityRule>,
    /// Publish it in the distributed hash table too, entered by this node; may be repeated. So it is found
    /// where multicast does not reach.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
}

/// What all that look at the network share.
#[derive(Debug, Args, Clone)]
pub(crate) struct Network {
    /// Only this interface, by name; may be repeated. Default: all that can multicast.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Ask this host directly, for networks without multicast; may be repeated.
    #[arg(long = "host", value_name = "ADDRESS")]
    pub hosts: Vec<IpAddr>,
    /// Look in the distributed hash table too, entered by this node; may be repeated. Nodes that answer to
    /// multicast are entered by without this.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
    /// Enter by what this node's configuration says under [kad].
    #[arg(long, value_name = "NODE.TOML")]
    pub config: Option<PathBuf>,
    /// How long to wait for answers.
    #[arg(long, default_value = "3s", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

/// Flags of `find`.
#[derive(Debug, Args)]
pub(crate) struct Find {
    /// Where and how long.
    #[command(flatten)]
    pub network: Network,
    /// Only devices of this type, `{namespace}local` or a local name.
    #[arg(long = "type", value_name = "TYPE")]
    pub device_type: Option<String>,
    /// Only devices within this scope.
    #[arg(long, value_name = "URI")]
    pub scope: Option<String>,
}

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Only this interface, by name; may be repeated. Default: all.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Another host to reach, on which a device runs, or `chappe doctor --answer`.
    #[arg(long, value_name = "HOST")]
    pub with: Option<IpAddr>,
    /// A node by which the distributed hash table is to be entered; may be repeated.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
    /// Try what this node's configuration says under [kad].
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
    /// Where and how long.
    #[command(flatten)]
    pub network: Network,
    /// Print the WSDL of its services.
    #[arg(long)]
    pub wsdl: bool,
}

/// Flags of `call`.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Endpoint address, transport address or name of the device.
    pub device: String,
    /// The operation by its name in the WSDL.
    pub operation: String,
    /// Arguments by name.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
    /// The whole body, instead of arguments.
    #[arg(long, conflicts_with = "arguments", value_name = "XML")]
    pub body: Option<String>,
    /// Where and how long.
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
    /// Where and how long.
    #[command(flatten)]
    pub network: Network,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
    /// End after so many values.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Take events by the device's notification tree, if it has one, and help to spread them.
    #[arg(long, requires = "device", conflicts_with = "stream")]
    pub tree: bool,
    /// How critical it is to have them first: a device that orders its sinks by that may believe it.
    #[arg(long, requires = "tree", value_name = "0..255", default_value_t = 0)]
    pub criticality: u8,
    /// Keep there which events of trees were seen, so that the next run takes no old one that somebody
    /// sends again: a sync of the disk for each event. Without it that is known for one run.
    #[arg(long, requires = "tree", value_name = "DIR")]
    pub seen: Option<PathBuf>,
}

/// Which node to talk to.
#[derive(Debug, Args, Clone)]
pub(crate) struct NodeAddress {
    /// The node's address.
    #[arg(
        long,
        env = "CHAPPE_NODE",
        default_value = "http://127.0.0.1:8470",
        value_name = "URL"
    )]
    pub node: String,
    /// The token, for what changes something.
    #[arg(
        long,
        env = "CHAPPE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub token: Option<String>,
    /// Trust the certificate with this fingerprint, as `chappe key show` prints it on the node's host.
    #[arg(long, env = "CHAPPE_FINGERPRINT", value_name = "SHA256")]
    pub fingerprint: Option<Fingerprint>,
    /// Trust certificates that the authorities in this file have signed.
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
    /// The query is SPARQL, on the registry.
    #[arg(long)]
    pub sparql: bool,
    /// How to print the rows.
    #[arg(long, default_value = "table")]
    pub format: Format,
    /// At most so many rows.
    #[arg(long, default_value_t = 1_000)]
    pub limit: usize,
    /// Only elements whose source time is not before this (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "sparql")]
    pub from: Option<String>,
    /// Only elements whose source time is before this (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "sparql")]
    pub to: Option<String>,
    /// Answer from the newest elements of a stream that has more than one query reads; without it
    /// that is an error. Standard error says what was read.
    #[arg(long, conflicts_with = "sparql")]
    pub partial: bool,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    Table,
    /// Comma-separated values with a head line.
    Csv,
    /// The node's answer.
    Json,
}

/// Flags of `trace`.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Only this interface, by name; may be repeated.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Print the whole message too.
    #[arg(long)]
    pub raw: bool,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

/// Verbs of `link`.
#[derive(Debug, Subcommand)]
pub(crate) enum Link {
    /// Add a link: streams of another node become streams of this one, each element once.
    #[command(
        after_help = "Examples:\n  chappe link add ward-3 http://127.0.0.1:8471\n  chappe link add ward-3 tcp://192.0.2.7:8472 --streams 'ward.*' --server-key KEY\n  chappe link add ward-3 https://192.0.2.7:8470 --origin-fingerprint SHA256 --token-file token\n\nKEY and SHA256 are printed by `chappe key show` on the origin's host. The link outlives\nrestarts. Exit code 1 when it is not connected in time; it stays and goes on trying."
    )]
    Add(Box<LinkAdd>),
    /// List the links, and who reads here.
    #[command(
        after_help = "Examples:\n  chappe link list\n  chappe link list --watch\n  chappe link list --json"
    )]
    List(LinkList),
    /// Show one link with its streams.
    #[command(after_help = "Example:\n  chappe link show ward-3")]
    Show(LinkShow),
    /// End and forget a link; what it brought stays, and so do its dead letters, for a link of the same
    /// name.
    #[command(after_help = "Example:\n  chappe link remove ward-3")]
    Remove(LinkRemove),
    /// List elements that came over a link and could not be stored.
    #[command(after_help = "Example:\n  chappe link dead-letters ward-3")]
    DeadLetters(DeadLetters),
    /// Try to store dead letters once more, or give them up.
    #[command(
        after_help = "Examples:\n  chappe link resend ward-3 17 18\n  chappe link resend ward-3 --all\n  chappe link resend ward-3 --all --discard\n\nExit code 1 when one still cannot be stored."
    )]
    Resend(Resend),
}

/// Flags of `link add`.
#[derive(Debug, Args)]
pub(crate) struct LinkAdd {
    /// What the link is called here: a-z, 0-9, `_` and `-`.
    pub name: String,
    /// Where the origin listens: http://HOST:PORT, https://HOST:PORT or tcp://HOST:PORT.
    pub address: String,
    /// How it is spoken. Default: `http_pull` for http and https, `zeromq` for tcp.
    #[arg(long, value_name = "KIND", value_parser = ["zeromq", "zeromq_best_effort", "http_pull", "http_push"])]
    pub kind: Option<String>,
    /// Which streams: names, or beginnings with `*` behind them, separated by commas.
    #[arg(
        long,
        value_name = "STREAMS",
        default_value = "*",
        value_delimiter = ','
    )]
    pub streams: Vec<String>,
    /// How elements are written on the way. Default: `xml` for HTTP, `postcard` for ZeroMQ.
    #[arg(long, value_name = "FORM", value_parser = ["xml", "postcard", "message_pack"])]
    pub serialization: Option<String>,
    /// What the elements survive here before they are acknowledged: nothing, the end of the process, or
    /// the loss of power. Default: the node's log.level.
    #[arg(long, value_name = "LEVEL", value_parser = ["memory", "process", "power"])]
    pub level: Option<String>,
    /// Put before the names of the streams here, with a dot. A `*` in --streams passes over names
    /// that have it already: copies that came round.
    #[arg(long, value_name = "PREFIX")]
    pub as_prefix: Option<String>,
    /// Where a stream begins that was never read: the oldest element that the origin keeps (the
    /// default), or the next new one.
    #[arg(long, value_name = "WHERE", value_parser = ["first", "new"])]
    pub start: Option<String>,
    /// The origin's public key, for tcp beyond loopback.
    #[arg(long, value_name = "KEY")]
    pub server_key: Option<String>,
    /// The fingerprint of the origin's certificate, for https.
    #[arg(long, value_name = "SHA256")]
    pub origin_fingerprint: Option<Fingerprint>,
    /// The file of the authorities that signed the origin's certificate, on the node's host.
    #[arg(long, value_name = "PEM", conflicts_with = "origin_fingerprint")]
    pub origin_authorities: Option<PathBuf>,
    /// The file, on the node's host, with the token that the origin asks of readers.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where the origin's directory answers, for `zeromq_best_effort`: tcp://HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub directory: Option<String>,
    /// The address at which the origin reaches this node, for `http_push`.
    #[arg(long, value_name = "URL")]
    pub contact: Option<String>,
    /// Speak without encryption beyond loopback.
    #[arg(long)]
    pub insecure: bool,
    /// How long to wait for the connection.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub wait: Duration,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

impl LinkAdd {
    /// How it is spoken.
    pub(crate) fn kind(&self) -> String {
        let default = match self.address.starts_with("tcp://") {
            true => "zeromq",
            false => "http_pull",
        };
        self.kind.clone().unwrap_or_else(|| default.to_owned())
    }

    /// The origin's fingerprint as text.
    pub(crate) fn origin_fingerprint(&self) -> Option<String> {
        self.origin_fingerprint.map(|shown| shown.to_string())
    }
}

/// Flags of `dds`.
#[derive(Debug, Args)]
pub(crate) struct Dds {
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link list`.
#[derive(Debug, Args)]
pub(crate) struct LinkList {
    /// Go on showing, until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// How often, when watching.
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION")]
    pub every: Duration,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link show`.
#[derive(Debug, Args)]
pub(crate) struct LinkShow {
    /// The link.
    pub name: String,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Verbs of `stream`.
#[derive(Debug, Subcommand)]
pub(crate) enum Stream {
    /// Remove a stream with all its elements. Refused while its source is there or another node reads it.
    #[command(
        after_help = "Examples:\n  chappe stream remove old-monitor.pulse\n  chappe stream remove old-monitor.pulse --force\n\nA stream of the same name that comes later starts in another epoch."
    )]
    Remove(StreamRemove),
}

/// Flags of `stream remove`.
#[derive(Debug, Args)]
pub(crate) struct StreamRemove {
    /// The stream.
    pub name: String,
    /// Remove it although it holds elements.
    #[arg(long)]
    pub force: bool,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link remove`.
#[derive(Debug, Args)]
pub(crate) struct LinkRemove {
    /// The link.
    pub name: String,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `link dead-letters`.
#[derive(Debug, Args)]
pub(crate) struct DeadLetters {
    /// The link.
    pub name: String,
    /// From this number on.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub from: u64,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: usize,
    /// Which node.
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
    /// All of them.
    #[arg(long, conflicts_with = "numbers")]
    pub all: bool,
    /// Give them up instead.
    #[arg(long)]
    pub discard: bool,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Verbs of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Print the public keys of the node and the fingerprint of its certificate, to give to those who
    /// are to trust it. Secrets are not printed.
    #[command(
        after_help = "Examples:\n  chappe key show\n  chappe key show node.toml --json\n\nTo be run on the node's host, as its user."
    )]
    Show {
        /// The node's configuration, which says where its data directory is.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
    },
    /// Admit a node to this node's network of members: print what belongs under [kad] in its
    /// configuration.
    #[command(
        after_help = "Example:\n  chappe key admit 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c owner.toml\n\nTo be run on the host of the node that owns the network, as its user. The key is the one that\n`chappe key show` prints on the member's host; the owner admits itself in the same way."
    )]
    Admit {
        /// The member's public key.
        #[arg(value_name = "KEY")]
        member: PublicKey,
        /// The owner's configuration, which says where its key is.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
        /// For how many days.
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
}

/// Verbs of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Check a node's configuration and its virtual sensors without starting.
    Check {
        /// The configuration.
        #[arg(value_name = "NODE.TOML")]
        file: PathBuf,
    },
    /// Print every key with its value and where it comes from.
    Show {
        /// The configuration.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema, for editors.
    Schema {
        /// Of which file.
        #[arg(value_enum, default_value = "node")]
        of: SchemaOf,
    },
    /// Print a sample with every key at its default.
    Sample,
}

/// Which file a schema describes.
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
    /// Read every frame of a node's log and registry and say what is damaged; changes nothing, and
    /// may run beside the node.
    #[command(
        after_help = "Examples:\n  chappe data check /var/lib/chappe\n  chappe data check . --json\n\nExit code 1 when records are missing."
    )]
    Check {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Mend a node's log and registry while it is stopped: cut an incomplete end, give up what is
    /// missing so that nothing waits for it, write the index anew. Damaged bytes are kept in
    /// DIR/damaged-N.
    #[command(
        after_help = "Example:\n  chappe data check /var/lib/chappe\n  chappe data repair /var/lib/chappe\n\nWhat a subscriber or another node still has is better put back than given up: start the node and\nlet it fetch that first."
    )]
    Repair {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Copy a node's log and registry to a new directory, with checksums; the node may run. What
    /// holds secrets (key, certificate, token, links and subscriptions that were added while it ran)
    /// is copied when that is asked for.
    #[command(
        after_help = "Example:\n  chappe data backup /var/lib/chappe /mnt/backup/monday --with-secrets\n\nExit code 1 when records were missing already: the copy is as good as the original."
    )]
    Backup {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The directory to make.
        #[arg(value_name = "BACKUP")]
        to: PathBuf,
        /// Copy the files with secrets, too: who has the backup can be the node.
        #[arg(long)]
        with_secrets: bool,
    },
    /// Verify a backup and put it into a data directory that holds no data. The node that starts
    /// there gives every stream a new epoch.
    #[command(
        after_help = "Example:\n  chappe data restore /mnt/backup/monday /var/lib/chappe\n\nOf a backup without secrets, put the node's key.pem, links.json and subscriptions.json there too,\nso that it stays the same node and reads what it read."
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
    const MOST: Duration = Duration::from_secs(3_600);
    match duration(text)? {
        Duration::ZERO => Err("no event comes in no time".to_owned()),
        one if one > MOST => Err("it is longer than an hour".to_owned()),
        one => Ok(one),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
