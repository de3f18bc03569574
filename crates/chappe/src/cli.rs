//! The command line: every verb, its flags and its examples.
//!
//! `-h` is one screen: the first paragraph of each flag, without rare flags. `--help` has everything.

mod account;
mod begin;
mod dds;
mod device;
mod export;
mod link;
mod registry;
mod sensor;
mod stream;
mod wrapper;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use chappe_dpws::discovery::MatchRule;
use chappe_identity::{Contact, PublicKey};
use chappe_terminal::duration;
use chappe_transport::tls::Fingerprint;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use account::{
    Account, AccountAdd, AccountGroups, AccountList, AccountRenew, AccountRevoke, AccountShare,
    AccountShow,
};
pub(crate) use begin::{Init, New, NewSensor, Service, ServiceInstall, Test, Try, Up};
pub(crate) use dds::{Dds, DdsKeys, DdsVerb};
#[cfg(feature = "dds")]
pub(crate) use dds::{DdsDomain, DdsEcho, DdsTopics};
pub(crate) use device::{
    Device, DeviceCall, DeviceCheck, DeviceExclude, DeviceInclude, DeviceRecord, DeviceReplace,
    DeviceRun, DeviceTls,
};
pub(crate) use export::{Export, ExportFormat};
pub(crate) use link::{DeadLetters, Link, LinkAdd, LinkList, LinkRemove, LinkShow, Resend};
pub(crate) use registry::{
    RegistryAnnotate, RegistryAnnotations, RegistryExport, RegistryFind, RegistryHistory,
    RegistryImport, RegistryPublish, RegistryQuery, RegistryRemove, RegistryRenew, RegistryRights,
    RegistryShow, RegistrySubscribe, RegistryUnsubscribe, RegistryVerb,
};
pub(crate) use sensor::{DescriptorFormat, Import, ImportGsn, Sensor, SensorCall, SensorConvert};
pub(crate) use stream::{
    Stream, StreamCompleteness, StreamCreate, StreamForgetName, StreamRemove, StreamRename, Write,
};
pub(crate) use wrapper::{
    Wrapper, WrapperBrowse, WrapperCheck, WrapperDeadLetters, WrapperList, WrapperResend,
    WrapperShow, WrapperTry,
};

/// Finds devices, describes them, and makes their data durable, queryable streams.
#[derive(Debug, Parser)]
#[command(name = "chappe", version, about, max_term_width = 100)]
#[command(
    after_help = "Example: chappe demo; or with own devices: chappe find, chappe init, chappe up"
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
    /// Start a demonstration: several devices, and a node with a console that finds them.
    #[command(after_help = "Examples:\n  chappe demo\n  chappe demo --listen 127.0.0.1:0 --json")]
    Demo(Demo),
    /// Write the configuration of a node for the devices that are found.
    #[command(
        after_help = "Examples:\n  chappe init\n  chappe init plant --interface eth0\n  chappe init plant --proxy http://192.0.2.7:8474/\n\nWrites node.toml and node.schema.json, which editors use to complete keys. A network without\ndevices is not an error: the node finds devices when they appear.",
        mut_args(begin::of_init)
    )]
    Init(Init),
    /// Run the node of a directory in the foreground.
    #[command(
        after_help = "Examples:\n  chappe up\n  chappe up plant\n  chappe up plant/node.toml --set http.listen=127.0.0.1:0\n\nThe same as `chappe serve FILE`."
    )]
    Up(Up),
    /// Run a node as a systemd service.
    #[command(
        subcommand,
        after_help = "Examples:\n  sudo chappe service install /etc/chappe\n  chappe service status"
    )]
    Service(Service),
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
        after_help = "Examples:\n  chappe find\n  chappe find --interface eth0 --timeout 5s\n  chappe find --host 192.0.2.7\n  chappe find --proxy http://192.0.2.7:8474/       a discovery proxy instead of multicast\n  chappe find --entrance 192.0.2.7:8473          where multicast does not reach\n\nExit code 1 when no usable device is found."
    )]
    Find(Find),
    /// Check this machine for discovery and storage, with a remedy for each problem.
    #[command(
        after_help = "Examples:\n  chappe doctor\n  chappe doctor --interface eth0 --with 192.0.2.7\n  chappe doctor --answer                       on that other host\n  chappe doctor --entrance 192.0.2.7:8473\n\nExit code 1 when a check fails."
    )]
    Doctor(Doctor),
    /// Print the metadata of a device.
    #[command(
        after_help = "Examples:\n  chappe describe urn:uuid:6f1a1c1e-3d67-4f3e-9a44-0a6a2b0b5a10\n  chappe describe http://192.0.2.7:5357/device\n  chappe describe 'Body temperature' --wsdl\n  chappe describe thermometer.wsdl --rust > thermometer.rs"
    )]
    Describe(Describe),
    /// Call an operation of a device.
    #[command(
        after_help = "Examples:\n  chappe call 'Room sensor' SetPeriod period=2.5\n  chappe call urn:uuid:... GetStatus\n  chappe call Pump Plant/Start mode=slow limits.low=1 limits.high=9 alarm=a alarm=b\n  chappe call Pump Start '{\"mode\": \"slow\", \"limits\": {\"low\": 1, \"high\": 9}}'\n  chappe call Pump Start '{\"steps\": [{\"at\": 0}, {\"at\": 5}]}'\n  chappe call 'Room sensor' SetPeriod --body '<SetPeriod xmlns=\"urn:x\">...</SetPeriod>'\n\nArguments are checked by the device's schema before anything is sent."
    )]
    Call(Call),
    /// Show live values of a device, or of a node's streams.
    #[command(
        after_help = "Examples:\n  chappe watch 'Body temperature'          a device, without a node\n  chappe watch --stream heart-rate         a stream of the node\n  chappe watch --stream 'ward.*' --json"
    )]
    Watch(Watch),
    /// Query a node: SQL on its streams, SPARQL on its registry.
    #[command(
        after_help = "Examples:\n  chappe query 'select max(heart_rate) from \"heart-rate\"'\n  chappe query --sparql 'SELECT ?s WHERE { ?s a ?t } LIMIT 10'\n  chappe query --format csv 'select * from \"heart-rate\"'\n  chappe query --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z 'select count(*) from ecg'"
    )]
    Query(Query),
    /// Write the elements of streams to CSV, Parquet or Arrow files.
    #[command(
        after_help = "Examples:\n  chappe export heart-rate --out heart-rate.csv\n  chappe export lab.room --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --out room.parquet\n  chappe export lab.room lab.door --format arrow --out '{stream}.arrow'\n\nA file appears once it is complete. Exit code 1 when elements of the range were lost or refused."
    )]
    Export(Export),
    /// Write elements to a stream that was created with `chappe stream create`.
    #[command(
        after_help = "Examples:\n  chappe write lab.room temperature=21.5 note='door open'\n  chappe write lab.room --csv < room.csv\n  jq -c '.[]' room.json | chappe write lab.room --ndjson\n  chappe write lab.room --csv --file year.csv --producer year      can be repeated after a failure\n\nBesides the fields, an element may have source_time (RFC 3339), key and quality. A line that is\nnot a valid element is refused with its reason; the others are stored. Exit code 1 when a line was\nrefused."
    )]
    Write(Write),
    /// Decode messages of devices, live or from a capture, and show why messages are dropped.
    #[command(
        after_help = "Examples:\n  chappe trace\n  chappe trace --interface eth0 --raw --seconds 30\n  chappe trace --http --device 192.0.2.7        its HTTP too, with response times\n  tcpdump -i any -w - | chappe trace --capture -\n\nExit code 2 when a capture cannot be read."
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
    /// Read other protocols into streams, and write streams to them.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe wrapper try wrappers/climate.toml\n  chappe wrapper list"
    )]
    Wrapper(Wrapper),
    /// Find, publish, annotate and follow entities of a node's registry; export and import it.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe registry find pulse\n  chappe registry publish http://example.com/pump-7 'Pump 7' --turtle pump.ttl"
    )]
    Registry(RegistryVerb),
    /// List, create, rename and remove streams, and show which elements are missing.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe stream list\n  chappe stream create lab.room temperature:double:Cel note:text\n  chappe stream completeness heart-rate\n  chappe stream remove old-monitor.pulse"
    )]
    Stream(Stream),
    /// Write a first descriptor of a virtual sensor.
    #[command(
        subcommand,
        after_help = "Example:\n  chappe new sensor warm-room --from lab.room"
    )]
    New(New),
    /// Try a descriptor on recorded elements: input and output side by side.
    #[command(
        after_help = "Examples:\n  chappe try sensors/warm-room.toml\n  chappe try sensors/warm-room.toml --on lab.room --last 1h\n  chappe try sensors/warm-room.toml --input room.csv\n  chappe try sensors/warm-room.toml --on lab.room --data /var/lib/chappe\n\nThe node is not changed. Exit code 1 when there is no output, or an evaluation failed."
    )]
    Try(Try),
    /// Test descriptors against the expectations next to them.
    #[command(
        after_help = "Examples:\n  chappe test\n  chappe test sensors --json\n\nThe expectations of NAME.toml are in NAME.test.toml:\n\n  tolerance = 0.01\n  [[test]]\n  name = \"a mean of two\"\n  input = [{ at = \"0s\", temperature = 20.0 }, { at = \"1s\", temperature = 22.0 }]\n  output = [{ mean = 20.0 }, { at = \"1s\", mean = 21.0 }]\n\nExit code 1 when an expectation fails."
    )]
    Test(Test),
    /// Call commands of virtual sensors, and convert their descriptors.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe sensor convert mean.xml > sensors/mean.toml\n  chappe sensor call yard set-period period='10 s'"
    )]
    Sensor(Sensor),
    /// Import descriptors of virtual sensors from GSN.
    #[command(
        subcommand,
        after_help = "Example:\n  chappe import gsn virtual-sensors --into sensors"
    )]
    Import(Import),
    /// Explain why values do not arrive: the path of a value, hop by hop.
    #[command(
        after_help = "Examples:\n  chappe why heart-rate                 a stream\n  chappe why 'Body temperature'         a device by its name, endpoint or address\n  chappe why mean-temperature --kind sensor\n  chappe why ward-3 --json              a link\n\nExit code 1 when a hop is blocked or degraded."
    )]
    Why(Why),
    /// Explain a code of an error, a refusal or a drop: its cause and its remedy.
    #[command(
        after_help = "Examples:\n  chappe explain                    every code\n  chappe explain held_by_other\n  chappe explain 'no multicast'     a reason as the record of drops and the metrics show it"
    )]
    Explain(Explain),
    /// Manage the accounts of people and programs on a node.
    #[command(
        subcommand,
        after_help = "Examples:\n  chappe account add ada --role read --role operate\n  chappe account list"
    )]
    Account(Account),
    /// Show DDS topics: published, read, and mismatched.
    #[command(
        after_help = "Examples:\n  chappe dds\n  chappe dds --json\n  chappe dds topics          the topics of a domain, without a node\n  chappe dds echo /imu\n  chappe dds keys /etc/chappe/dds ward-1"
    )]
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
    /// Write the generated pages of the reference, for the documentation.
    #[command(
        hide = true,
        after_help = "Example:\n  chappe reference docs/reference"
    )]
    Reference {
        /// The directory.
        directory: PathBuf,
    },
    /// Print the completions of a shell.
    #[command(
        hide = true,
        after_help = "Example:\n  chappe completions bash > /etc/bash_completion.d/chappe"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a directory.
    #[cfg(feature = "man")]
    #[command(hide = true)]
    Man {
        /// The directory.
        directory: PathBuf,
    },
}

/// Flags of `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Address of the console, on loopback; port 0 picks a free port.
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
    /// The configuration. Without it, every key has its default.
    #[arg(value_name = "NODE.TOML")]
    pub file: Option<PathBuf>,
    /// Set one key of the configuration; overrides file and environment.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Flags of every verb that searches the network.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Network")]
pub(crate) struct Network {
    /// Use this interface only; may be repeated. Default: all with multicast.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Probe this host directly, without multicast; may be repeated.
    ///
    /// An address is probed by UDP; the URL of a device, such as http://192.0.2.7:5357/device, by HTTP.
    #[arg(long = "host", value_name = "ADDRESS|URL")]
    pub hosts: Vec<Host>,
    /// Query this discovery proxy instead of multicast; may be repeated.
    ///
    /// The proxy is given by its URL, such as http://192.0.2.7:8474/. If none answers, multicast is used.
    #[arg(long = "proxy", value_name = "URL", value_parser = contact)]
    pub proxies: Vec<Contact>,
    /// Also search the distributed hash table, through this node; may be repeated.
    ///
    /// Nodes that answer multicast are used as entrances without this flag.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
    /// Read entrances from [kad] of this configuration.
    #[arg(long, value_name = "NODE.TOML")]
    pub config: Option<PathBuf>,
    /// Time to wait for answers.
    #[arg(long, default_value = "3s", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    /// Certificates of devices, and the own one.
    #[command(flatten)]
    pub tls: DeviceTls,
}

/// A URL with an address instead of a name.
fn contact(text: &str) -> Result<Contact, String> {
    Contact::parse(text, 0).map_err(|refusal| refusal.to_string())
}

/// A host to probe directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// By UDP.
    Address(IpAddr),
    /// By HTTP, at the transport address of the device.
    Url(Contact),
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains("://") {
            true => Contact::parse(text, 0)
                .map(Self::Url)
                .map_err(|refusal| refusal.to_string()),
            false => text.parse().map(Self::Address).map_err(|_| {
                "neither an IP address nor a URL such as http://192.0.2.7:5357/device".to_owned()
            }),
        }
    }
}

/// A rule by its name.
fn match_rule(text: &str) -> Result<MatchRule, String> {
    let known = "rfc3986, strcmp0, uuid, ldap and none";
    MatchRule::from_name(text).ok_or_else(|| format!("the rules are {known}"))
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
    /// How scopes match: rfc3986 (prefix of the path), strcmp0 (equal), uuid, ldap, or none (devices
    /// without scopes).
    #[arg(long, default_value = "rfc3986", value_parser = match_rule, value_name = "RULE")]
    pub match_by: MatchRule,
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
    /// Also check that this host is reachable; it must run a device or `chappe doctor --answer`.
    #[arg(long, value_name = "HOST")]
    pub with: Option<IpAddr>,
    /// Also query the device at this transport address, with the certificates below; may be repeated.
    #[arg(long = "device", value_name = "URL")]
    pub devices: Vec<String>,
    /// Also check this entrance to the distributed hash table; may be repeated.
    #[arg(long = "entrance", value_name = "ADDRESS:PORT")]
    pub entrances: Vec<SocketAddr>,
    /// Also check this discovery proxy; may be repeated.
    #[arg(long = "proxy", value_name = "URL", value_parser = contact)]
    pub proxies: Vec<Contact>,
    /// Check the entrances in [kad] and the proxies in [discovery] of this configuration.
    #[arg(long, value_name = "NODE.TOML")]
    pub config: Option<PathBuf>,
    /// Answer searches until interrupted, for `chappe doctor --with` on another host.
    #[arg(long, conflicts_with = "with")]
    pub answer: bool,
    /// The data directory to check.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub data: PathBuf,
    /// Certificates of devices, and the own one.
    #[command(flatten)]
    pub tls: DeviceTls,
}

/// Flags of `describe`.
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// Endpoint address, transport address or name of the device; with --rust also a WSDL file.
    pub device: String,
    /// Print the WSDL of its services.
    #[arg(long)]
    pub wsdl: bool,
    /// Print Rust types for the messages of its services.
    #[arg(long, conflicts_with = "wsdl")]
    pub rust: bool,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `call`.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Endpoint address, transport address or name of the device.
    pub device: String,
    /// The operation by its name in the WSDL; SERVICE/OPERATION if several services have an operation of this name.
    #[arg(value_name = "[SERVICE/]OPERATION")]
    pub operation: String,
    /// Arguments by name, nested as `a.b=1`, repeated for several; or all as one JSON object.
    #[arg(value_name = "NAME=VALUE")]
    pub arguments: Vec<String>,
    /// The whole body, instead of arguments.
    #[arg(long, conflicts_with = "arguments", value_name = "XML")]
    pub body: Option<String>,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The code, or the reason of a drop. Default: all, with their titles.
    pub code: Option<String>,
}

/// Flags of `watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Endpoint address, transport address or name of a device.
    #[arg(required_unless_present = "stream")]
    pub device: Option<String>,
    /// A stream of the node, a prefix such as `ward.*`, or `*` for all; may be repeated.
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
    /// Remember events of trees in this directory, to detect replays in later runs.
    ///
    /// Costs one disk synchronization per event. Without this option, replays are detected only within one run.
    #[arg(long, requires = "tree", value_name = "DIR", hide_short_help = true)]
    pub seen: Option<PathBuf>,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// The address of a node by default.
pub(crate) const DEFAULT_NODE: &str = "http://127.0.0.1:8470";

/// The node that a verb talks to.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeAddress {
    /// The node's address.
    #[arg(
        long,
        env = "CHAPPE_NODE",
        default_value = DEFAULT_NODE,
        value_name = "URL"
    )]
    pub node: String,
    /// The token of an account, required for changes.
    #[arg(
        long,
        env = "CHAPPE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        allow_hyphen_values = true
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
    /// Present this client certificate, instead of a token.
    #[arg(
        long,
        env = "CHAPPE_CLIENT_CERTIFICATE",
        value_name = "PEM",
        requires = "client_key",
        hide_short_help = true
    )]
    pub client_certificate: Option<PathBuf>,
    /// The key of the client certificate, readable by its owner only.
    #[arg(
        long,
        env = "CHAPPE_CLIENT_KEY",
        value_name = "PEM",
        requires = "client_certificate",
        hide_short_help = true
    )]
    pub client_key: Option<PathBuf>,
}

impl NodeAddress {
    /// A node at this address.
    pub(crate) fn at(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            token: None,
            fingerprint: None,
            authorities: None,
            client_certificate: None,
            client_key: None,
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
    /// Follow subclasses and subproperties of the ontologies of the node and of your account.
    #[arg(long, requires = "sparql")]
    pub inferred: bool,
    /// Format of the rows; those after json are for SPARQL only.
    #[arg(long, default_value = "table")]
    pub format: Format,
    /// Print at most this many rows.
    #[arg(long, default_value_t = 1_000)]
    pub limit: usize,
    /// Only elements with a source time at or after this (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "sparql")]
    pub from: Option<String>,
    /// Only elements with a source time before this (RFC 3339).
    #[arg(long, value_name = "TIME", conflicts_with = "sparql")]
    pub to: Option<String>,
    /// Return a partial result when the query reaches a limit of the node (time, memory, rows).
    ///
    /// The result then covers the newest elements, or has only the first rows, and standard error
    /// reports what is missing. Without this flag, reaching a limit is an error.
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
    /// SPARQL results in XML.
    Xml,
    /// Tab-separated values of SPARQL results.
    Tsv,
    /// Turtle, the default of CONSTRUCT and DESCRIBE.
    Turtle,
    /// N-Triples.
    NTriples,
    /// RDF/XML.
    RdfXml,
}

impl Format {
    /// The media type of a format that only SPARQL has.
    pub(crate) fn sparql_media_type(self) -> Option<&'static str> {
        match self {
            Self::Table | Self::Csv | Self::Json => None,
            Self::Xml => Some("application/sparql-results+xml"),
            Self::Tsv => Some("text/tab-separated-values"),
            Self::Turtle => Some("text/turtle"),
            Self::NTriples => Some("application/n-triples"),
            Self::RdfXml => Some("application/rdf+xml"),
        }
    }
}

/// Flags of `trace`.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Listen on this interface only; may be repeated.
    #[arg(long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Read this capture, pcap or pcapng, instead of the network; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["interfaces", "seconds"])]
    pub capture: Option<PathBuf>,
    /// Also show HTTP messages; needs permission to capture packets (root, or CAP_NET_RAW).
    #[arg(long, conflicts_with = "capture")]
    pub http: bool,
    /// Only messages from or to this address, such as that of a device.
    #[arg(long, value_name = "ADDRESS")]
    pub device: Option<IpAddr>,
    /// Also print the whole message.
    #[arg(long)]
    pub raw: bool,
    /// End after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

/// Flags of `why`.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A stream, a device (name, endpoint, key or address), a virtual sensor, a link, a wrapper or an exporter.
    pub name: String,
    /// The kind of object that the name refers to. Default: the first of stream, device, sensor, link, wrapper
    /// and exporter that has it.
    #[arg(long, value_parser = ["stream", "device", "sensor", "link", "wrapper", "exporter"])]
    pub kind: Option<String>,
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
    #[command(
        after_help = "Example:\n  chappe config check node.toml\n\nThe columns of a virtual sensor are checked where a file states the fields of its streams; other\nsources are listed as not checked."
    )]
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
    /// Convert a configuration to the current format; comments are kept.
    #[command(
        after_help = "Examples:\n  chappe config migrate node.toml --dry-run\n  chappe config migrate node.toml\n\nThe old file is kept as node.toml.former. Tables that are separate files now are written to these\nfiles."
    )]
    Migrate {
        /// The configuration.
        #[arg(value_name = "NODE.TOML")]
        file: PathBuf,
        /// Print the changes, and write nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Files that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// node.toml.
    Node,
    /// A virtual sensor.
    Sensor,
    /// A wrapper.
    Wrapper,
    /// An exporter.
    Exporter,
}

/// Verbs of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum Data {
    /// Read a node's log and registry, and report damage. Changes nothing.
    #[command(
        after_help = "Examples:\n  chappe data check /var/lib/chappe\n  chappe data check . --json\n\nThe node may be running. Exit code 1 when records are missing."
    )]
    Check {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Repair the log and registry of a stopped node.
    #[command(
        after_help = "Example:\n  chappe data check /var/lib/chappe\n  chappe data repair /var/lib/chappe\n\nRepair cuts off an incomplete end, gives up missing records so that nothing waits for them, and\nrebuilds the index. Damaged bytes are moved to DIR/damaged-N. If a subscriber or another node still\nhas the missing records, start the node first and let it fetch them."
    )]
    Repair {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Copy a node's log and registry to a new directory, with checksums.
    #[command(
        after_help = "Example:\n  chappe data backup /var/lib/chappe /mnt/backup/monday --with-secrets\n\nThe node may be running. Exit code 1 when records are missing in the original, and so in the copy."
    )]
    Backup {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The directory to create.
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
        Duration::ZERO => Err("a deadline must be longer than 0".to_owned()),
        deadline if deadline > MAX => Err("a deadline must be at most 1h".to_owned()),
        deadline => Ok(deadline),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Lines of one screen; the list of all commands alone takes half of it.
    const SCREEN_LINES: usize = 48;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Keys of CURVE are Z85, and tokens base64url: their characters include `-`.
    #[test]
    fn a_key_or_token_may_begin_with_a_hyphen() {
        let key = "-".repeat(40);
        for line in [
            &[
                "chappe",
                "link",
                "add",
                "a",
                "tcp://192.0.2.7:1",
                "--server-key",
            ][..],
            &["chappe", "account", "add", "a", "--role", "read", "--key"][..],
            &["chappe", "account", "list", "--token"][..],
            &["chappe", "perf", "sub", "--server-key"][..],
            &["chappe", "perf", "pub", "--allow"][..],
        ] {
            let line = line.iter().copied().chain([key.as_str()]);
            Cli::try_parse_from(line).unwrap();
        }
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
