//! The command line: every verb, its flags and its examples.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chappe_transport::tls::Fingerprint;
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
        after_help = "Examples:\n  chappe config sample > node.toml\n  chappe serve node.toml\n  CHAPPE_LISTEN=127.0.0.1:0 chappe serve"
    )]
    Serve(Serve),
    /// Run devices.
    #[command(subcommand)]
    Device(Device),
    /// Find devices, and say what is wrong with those that are not usable.
    #[command(
        after_help = "Examples:\n  chappe find\n  chappe find --interface eth0 --timeout 5s\n  chappe find --host 192.0.2.7\n\nExit code 1 when no usable device was found."
    )]
    Find(Find),
    /// Check what discovery and storage need on this machine, and say what to do.
    #[command(
        after_help = "Examples:\n  chappe doctor\n  chappe doctor --interface eth0 --with 192.0.2.7\n  chappe doctor --answer                       on that other host\n\nExit code 1 when a check failed."
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
        after_help = "Examples:\n  chappe query 'select max(heart_rate) from \"heart-rate\"'\n  chappe query --sparql 'SELECT ?s WHERE { ?s a ?t } LIMIT 10'\n  chappe query --format csv 'select * from \"heart-rate\"'"
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
    /// Check stored data.
    #[command(subcommand)]
    Data(Data),
    /// Show what others recognize this node by.
    #[command(subcommand)]
    Key(Key),
    /// Measure a part beside its peers and floors, and say which targets are met.
    #[command(
        after_help = "Examples:\n  chappe bench readiness --quick\n  chappe bench registry --out figures --json\n\nScenarios:\n  readiness  from a search to a description, from a device to its first element\n  device     what a small device costs (in a checkout: it is built)\n  registry   100,000 services in memory\n  exchange   24 nodes that all subscribe to all, beside GSN, mosquitto and NATS JetStream\n  query      a virtual sensor from log to log, compiled and by SQLite\n\nExit code 1 when a target is missed."
    )]
    Bench(Bench),
    /// A process of a scenario of `bench`, which starts it.
    #[command(hide = true)]
    BenchProcess {
        /// What it is.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Simulate: exchanges between nodes under faults, or what a session would see on a network.
    #[command(subcommand)]
    Sim(crate::command::sim::Sim),
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
    /// Address of the console; port 0 takes a free one.
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

/// Verbs of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Print the public key of the node and the fingerprint of its certificate, to give to those who
    /// are to trust it. Secrets are not printed.
    #[command(
        after_help = "Examples:\n  chappe key show\n  chappe key show node.toml --json\n\nTo be run on the node's host, as its user."
    )]
    Show {
        /// The node's configuration, which says where its data directory is.
        #[arg(value_name = "NODE.TOML")]
        file: Option<PathBuf>,
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
    /// Read every frame of a node's log and registry and say what is damaged; changes nothing.
    Check {
        /// The node's data directory.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Flags of `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(chappe_bench::SCENARIOS))]
    pub scenario: String,
    /// Fewer repeats, for a first look.
    #[arg(long)]
    pub quick: bool,
    /// Write report, raw samples and figures here.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only this part of the scenario, by name; may be repeated.
    #[arg(long, value_name = "PART")]
    pub only: Vec<String>,
    /// Where choices come from.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// A duration such as `500ms`, `3s`, `2m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} begins with no number"))?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(format!("unit {unit:?} is none of ms, s, m, h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_take_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert!(duration("3 days").is_err() && duration("s").is_err() && duration("-1s").is_err());
    }
}
