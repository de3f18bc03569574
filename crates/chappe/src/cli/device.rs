//! The command line of `chappe device`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chappe_device::host::{CriticalityRule, Order};
use chappe_dpws::Dialect;
use chappe_terminal::duration;
use chappe_transport::tls::{Fingerprint, Usage};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};

use super::{Host, Network, NodeAddress, deadline};

/// Verbs of `device`.
#[derive(Debug, Subcommand)]
pub(crate) enum Device {
    /// Run the device that a file describes, replaying its recording as events, or a recorded device.
    #[command(
        after_help = "Examples:\n  chappe device run thermometer.toml --address 127.0.1.1\n  chappe device run monitor/ --dialect 2005          recorded by `chappe device record`\n  chappe device run thermometer.toml --entrance 192.0.2.7:8473"
    )]
    Run(DeviceRun),
    /// Record a device to files: its metadata, WSDL, responses of read operations, and events.
    ///
    /// `chappe device run DIR` replays it.
    #[command(
        after_help = "Examples:\n  chappe device record 'Body temperature' thermometer/\n  chappe device record http://192.0.2.7:5357/device monitor/ --events 5m --call Status"
    )]
    Record(DeviceRecord),
    /// Check whether a device complies with DPWS, WS-Discovery, WS-Addressing, WS-Eventing and
    /// SOAP.
    ///
    /// It provokes faults on purpose, and calls no operation of the device's own services. Exit code 1 when a
    /// "must" is violated, 2 when the device is not reachable.
    #[command(
        after_help = "Examples:\n  chappe device check http://192.0.2.7:5357/device\n  chappe device check 'Body temperature' --json\n  chappe device check --list"
    )]
    Check(DeviceCheck),
    /// List the devices of a node: discovered ones, and those that peers of wrappers announce.
    #[command(after_help = "Examples:\n  chappe device list\n  chappe device list --json")]
    List {
        /// The node.
        #[command(flatten)]
        node: NodeAddress,
    },
    /// Call an operation of a device that a wrapper's peer announces (Home Assistant, Sparkplug).
    #[command(
        after_help = "Examples:\n  chappe device call Kitchen switch/kitchen/relay true\n  chappe device call counter setpoint 21.5\n  chappe device call line-3 'Node Control/Rebirth' true\n\nThe value is a number, true or false, or a text. `chappe device list --json` shows the operations\nof each device. `chappe call` calls operations of DPWS devices, without a node."
    )]
    Call(DeviceCall),
    /// Let a device continue the streams of a device that it replaces.
    #[command(
        after_help = "Examples:\n  chappe device replace urn:uuid:3e1f… urn:uuid:77a0…\n  chappe device replace urn:uuid:3e1f… urn:uuid:77a0… --place ward-3.pump-1\n\nThe former device must be gone or excluded. `chappe device places` lists the replacements."
    )]
    Replace(DeviceReplace),
    /// List the places that are assigned to devices, with their former devices, and the claims of newcomers.
    #[command(
        after_help = "Examples:\n  chappe device places\n  chappe device places --json\n\nWith devices.replace_after_s, a newcomer (a new device with the same name, types and scopes) takes\nthe place of a device that is gone. If this is ambiguous, as with two newcomers, use `chappe\ndevice replace`."
    )]
    Places {
        /// The node.
        #[command(flatten)]
        node: NodeAddress,
    },
    /// Exclude devices from a node: it neither subscribes to them nor registers them.
    #[command(
        after_help = "Examples:\n  chappe device exclude --name 'Lab printer'\n  chappe device exclude --type Printer --scope http://plant.example/hall-1\n  chappe device exclude --endpoint 'urn:uuid:3e1f*'\n\nAll given parts must match. Streams keep their elements. `chappe device excluded` lists the\nexclusions, `chappe device include NUMBER` removes one of them."
    )]
    Exclude(DeviceExclude),
    /// Include excluded devices again.
    #[command(after_help = "Example:\n  chappe device include 3")]
    Include(DeviceInclude),
    /// List the exclusions of devices.
    #[command(after_help = "Example:\n  chappe device excluded --json")]
    Excluded {
        /// The node.
        #[command(flatten)]
        node: NodeAddress,
    },
}

/// Flags of `device record`.
#[derive(Debug, Args)]
pub(crate) struct DeviceRecord {
    /// Endpoint address, transport address or name of the device.
    pub device: String,
    /// The directory of the recording, which is created.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Time to record events.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub events: Duration,
    /// Also call this operation, without arguments; may be repeated. Default: those whose names
    /// start with Get.
    #[arg(long = "call", value_name = "OPERATION")]
    pub calls: Vec<String>,
    /// Replay the events once.
    #[arg(long)]
    pub once: bool,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `device check`.
#[derive(Debug, Args)]
pub(crate) struct DeviceCheck {
    /// Endpoint address, transport address or name of the device.
    #[arg(required_unless_present = "list")]
    pub device: Option<String>,
    /// Print the clauses instead.
    #[arg(long)]
    pub list: bool,
    /// Check it in this dialect, 2009 or 2005. Default: the newer one that it answers.
    #[arg(long, value_parser = dialect, value_name = "YEAR")]
    pub dialect: Option<Dialect>,
    /// Time to wait for events.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub events: Duration,
    /// Time limit of the whole check.
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION")]
    pub limit: Duration,
    /// Print the messages of each finding.
    #[arg(long)]
    pub messages: bool,
    /// Where to search, and for how long.
    #[command(flatten)]
    pub network: Network,
}

/// Flags of `device call`.
#[derive(Debug, Args)]
pub(crate) struct DeviceCall {
    /// The name, key or endpoint address of the device.
    pub device: String,
    /// The operation.
    pub operation: String,
    /// Its argument, if it has one.
    pub value: Option<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `device replace`.
#[derive(Debug, Args)]
pub(crate) struct DeviceReplace {
    /// The endpoint address of the device that is replaced.
    pub former: String,
    /// The endpoint address of the new device.
    pub device: String,
    /// The prefix of the streams' names; needed only if the former device has streams of several places.
    #[arg(long)]
    pub place: Option<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `device exclude`.
#[derive(Debug, Args)]
#[group(id = "pattern", required = true, multiple = true, args = ["endpoint", "name", "device_type", "scope"])]
pub(crate) struct DeviceExclude {
    /// The endpoint address; `*` at the end stands for any text.
    #[arg(long, value_name = "URI")]
    pub endpoint: Option<String>,
    /// The friendly name; `*` at the end stands for any text.
    #[arg(long)]
    pub name: Option<String>,
    /// The type, as {namespace}local or by its local name.
    #[arg(long = "type", value_name = "TYPE")]
    pub device_type: Option<String>,
    /// The scope; it also matches scopes below it.
    #[arg(long, value_name = "URI")]
    pub scope: Option<String>,
    /// How the scope matches, if not by the prefix of its path (rfc3986).
    #[arg(long, value_name = "RULE", requires = "scope", value_parser = ["rfc3986", "strcmp0", "uuid", "ldap"])]
    pub match_by: Option<String>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `device include`.
#[derive(Debug, Args)]
pub(crate) struct DeviceInclude {
    /// The number of the exclusion.
    #[arg(value_name = "NUMBER")]
    pub id: u64,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `device run`.
#[derive(Debug, Args)]
pub(crate) struct DeviceRun {
    /// The description of the device, or the directory of a recording.
    #[arg(value_name = "DEVICE.TOML|DIR")]
    pub file: PathBuf,
    /// The address of the device; on loopback, one for each device, such as 127.0.1.7.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The port of its services; 0 picks a free port.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Longest random delay before Hello and before answers to multicast.
    ///
    /// The standard's default protects large networks; use less in small ones.
    #[arg(long, default_value = "2500ms", value_parser = duration, value_name = "DURATION")]
    pub announce_within: Duration,
    /// Announce it in this dialect, 2009 or 2005; may be repeated. Default: 2009.
    ///
    /// SDC uses 2009, Windows uses 2005.
    #[arg(long = "dialect", value_parser = dialect, value_name = "YEAR")]
    pub dialects: Vec<Dialect>,
    /// Register it at this discovery proxy as well; may be repeated.
    ///
    /// The proxy is given by its URL, such as http://192.0.2.7:8474/, or, for UDP, by its address.
    #[arg(long = "proxy", value_name = "ADDRESS|URL")]
    pub proxies: Vec<Host>,
    /// End when standard input ends, as it does when the parent process ends.
    #[arg(long)]
    pub end_with_input: bool,
    /// Offer a notification tree: sinks that support it forward events.
    ///
    /// Other sinks get standard notifications. The directory holds the number of starts and the key that
    /// signs events.
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// Pace of the tree's events: flood, adaptive, fixed_window:16, fixed_period:1ms.
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

fn dialect(year: &str) -> Result<Dialect, String> {
    match year {
        "2005" => Ok(Dialect::V2005),
        "2009" => Ok(Dialect::V2009),
        _ => Err("the dialects are 2005 and 2009".to_owned()),
    }
}

/// The devices to trust with TLS, and the certificate to present to them.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "TLS (limits the command to devices with https)")]
pub(crate) struct DeviceTls {
    /// Trust the device whose certificate has this fingerprint; may be repeated.
    #[arg(long = "device-fingerprint", value_name = "SHA256")]
    pub device_fingerprints: Vec<Fingerprint>,
    /// Trust devices with certificates that the authorities in this file have signed.
    #[arg(long, value_name = "PEM")]
    pub device_authorities: Option<PathBuf>,
    /// Present this certificate, which events require.
    #[arg(long, value_name = "PEM", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The key of the certificate; without --certificate, one is created from this key.
    #[arg(long, value_name = "PEM")]
    pub key: Option<PathBuf>,
    /// Accept only certificates for this usage (extended key usage); may be repeated.
    #[arg(
        long = "usage",
        value_name = "OID",
        requires = "device_authorities",
        hide_short_help = true
    )]
    pub usages: Vec<Usage>,
    /// Refuse certificates that a revocation list in this file names.
    #[arg(
        long,
        value_name = "PEM",
        requires = "device_authorities",
        hide_short_help = true
    )]
    pub revocation_lists: Option<PathBuf>,
    /// Trust a discovery proxy that announces itself if its certificate is for this usage; may be repeated.
    #[arg(long = "proxy-usage", value_name = "OID", hide_short_help = true)]
    pub proxy_usages: Vec<Usage>,
    /// Accept certificates of the authorities regardless of the names in them.
    #[arg(long, requires = "device_authorities", hide_short_help = true)]
    pub any_name: bool,
}
