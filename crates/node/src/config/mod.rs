//! The configuration of a node: one TOML file, and what may stand above it.
//!
//! Layers, each over the one before: defaults, the file, the environment (`CHAPPE_HTTP_LISTEN` for
//! `http.listen`), flags. Each value knows where it comes from. The structures below are the one
//! description of the keys: the JSON Schema for editors ([`schema`]), the sample ([`sample`]), the
//! names in the environment and the checks of the loader are all made from them.
//!
//! Deliberately not here: the files of virtual sensors (`chappe-stream`), what a link may be told
//! (`chappe-links`).

mod check;
mod contradictions;
mod devices;
mod error;
mod kad;
mod layers;
mod max_bytes;
mod sample;
mod schema;

use std::net::SocketAddr;
use std::path::PathBuf;

#[cfg(feature = "dds")]
use chappe_dds::topics::DdsConfig;
use chappe_identity::Prefix;
use chappe_links::LinkConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use devices::Quotas;
pub use kad::Kad;

pub use error::{ConfigError, Problem, nearest};
pub use layers::{Flag, Layers, Loaded, Origin, Setting, load};
pub use max_bytes::{Auto, MaxBytes};
pub use sample::sample;
pub use schema::{Key, keys, schema, sensor_schema};

/// The configuration of a node (node.toml).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Chappe node")]
pub struct Config {
    /// Version of the structure of this file.
    #[schemars(range(min = 1, max = 1))]
    pub schema_version: u32,
    /// Name of the node, for people; empty: the name of the host.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Where the node keeps its key, its log and its registry. Relative to this file.
    #[schemars(length(min = 1))]
    pub data_directory: PathBuf,
    /// Where the files of virtual sensors lie (*.toml), watched for changes. Relative to this file.
    #[schemars(length(min = 1))]
    pub sensors_directory: PathBuf,
    /// Where the path rules lie (*.toml) for events that are not flat; read when a device is
    /// attached. Relative to this file.
    #[schemars(length(min = 1))]
    pub rules_directory: PathBuf,
    /// The REST interface and the console.
    pub http: Http,
    /// Who may read and change.
    pub access: Access,
    /// How devices are found.
    pub discovery: Discovery,
    /// What one device may bring.
    pub devices: Quotas,
    /// How devices are found where multicast does not reach.
    pub kad: Kad,
    /// How streams are stored.
    pub log: Log,
    /// What other nodes can read here.
    pub exchange: Exchange,
    /// Links: streams of other nodes that are brought here. Each is a table of its own, `[[links]]`;
    /// links can be added while the node runs, too (`chappe link add`).
    pub links: Vec<LinkConfig>,
    /// DDS topics: streams that are published to topics, and topics that are read into streams.
    #[cfg(feature = "dds")]
    pub dds: DdsConfig,
    /// What one request may cost.
    pub limits: Limits,
}

/// The REST interface and the console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Address and port to listen on; port 0 takes a free one, which is printed. An address other
    /// than loopback needs `access.read = "token"` and `[http.tls]`, or `access.insecure = true`.
    #[schemars(extend("format" = "socket-address"))]
    pub listen: SocketAddr,
    /// Further host names by which clients reach this node. A request that names another host is
    /// refused, so that a foreign page cannot reach the node through its visitor's browser.
    pub hosts: Vec<String>,
    /// Proxies before this node, as prefixes (`127.0.0.1`, `10.1.0.0/16`). A request that comes from one
    /// is from the client that its `Forwarded` (RFC 7239) or `X-Forwarded-For` names, which the proxy
    /// has to write; without this the proxy is taken for the client.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub trusted_proxies: Vec<String>,
    /// Connections served at once; for one more, the one that has waited longest for a request
    /// gives way. Half of them at most are endless answers to other nodes (links of `http_pull`); one more is refused
    /// with status 503.
    #[schemars(range(min = 4, max = 10_000))]
    pub max_connections: u32,
    /// Clients of live data at once; one more is refused with status 503.
    #[schemars(range(min = 1, max = 5_000))]
    pub max_live_clients: u32,
    /// Largest body of a request.
    #[schemars(range(min = 1_024, max = 67_108_864), extend("x-unit" = "bytes"))]
    pub max_body_bytes: u32,
    /// Time a client has for sending the head of a request, and again for its body.
    #[schemars(range(min = 100, max = 600_000), extend("x-unit" = "milliseconds"))]
    pub request_timeout_ms: u32,
    /// TLS; without it plain HTTP is spoken.
    pub tls: HttpTls,
}

/// TLS of the REST interface and the console: with files, or with a certificate of the node's own
/// making.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpTls {
    /// File of the certificate (PEM), the chain behind it; empty: none. Relative to this file.
    pub certificate: PathBuf,
    /// File of its key (PEM), which only its owner may read; empty: none. Relative to this file.
    pub key: PathBuf,
    /// Make a certificate instead, once, for this host's names and `http.hosts`. Who trusts it is
    /// told its fingerprint, which is printed at the start and by `chappe key show`.
    pub self_signed: bool,
}

impl Http {
    /// The networks of `trusted_proxies`.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = Prefix> {
        let prefixes = self.trusted_proxies.iter();
        prefixes.filter_map(|prefix| prefix.parse().ok())
    }
}

impl HttpTls {
    /// Whether TLS is spoken.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.self_signed || !self.certificate.as_os_str().is_empty()
    }
}

/// Who may read and change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Reading is open to whoever reaches the address, or needs the token that changing always
    /// needs.
    pub read: Read,
    /// Listen beyond loopback although reading is open or TLS is off, so that the token and what is
    /// read can be seen on the way; and push to `http://` contact points beyond loopback.
    pub insecure: bool,
}

/// What reading needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Read {
    /// Nothing.
    Open,
    /// The token.
    Token,
}

/// How devices are found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Discovery {
    /// Look for devices.
    pub enabled: bool,
    /// Look for them by multicast; without it those are known that are found by `[kad]` alone.
    pub multicast: bool,
    /// Interfaces to look on, by name; empty: all that can multicast, and loopback.
    pub interfaces: Vec<String>,
    /// Networks in which a stranger's message may make this node contact an address, as prefixes
    /// (`10.1.0.0/16`); empty: only the address that the message itself came from. Of devices that were
    /// found by `[kad]` the address at which their publisher answered.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub contact: Vec<String>,
    /// Take events of devices by their notification trees, where they have some: this node then helps to
    /// spread them, by UDP. Whoever does not know trees sends standard notifications as ever. What was seen is
    /// synced to disk for each event, so that nobody can have an old one taken again after a restart.
    pub tree: bool,
    /// How critical it is that this node has events of notification trees first, from 0 on: a device that
    /// orders its sinks by that may believe it.
    #[schemars(range(min = 0, max = 255))]
    pub tree_criticality: u8,
    /// Devices known at once; one more is dropped and counted.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_devices: u32,
    /// Devices known at once of one address, or of one IPv6 network of 64 bits; one more is dropped and
    /// counted. Half of `max_devices`, so that one host leaves room for others; raise both for a gateway
    /// with more devices, or for an IPv6 network with more. When `max_devices` are known, the newest
    /// device of the address with the most gives way to one of another address. None ever has to give
    /// way where `max_devices` exceeds the number of devices of the plant.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_devices_per_address: u32,
}

/// How streams are stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// What a stream survives unless its own descriptor says otherwise: nothing, the end of the
    /// process, the loss of power. Power costs one synchronisation of the disk for each group of
    /// batches.
    pub level: DurabilityLevel,
    /// Size at which a file of the log is closed and the next begun.
    #[schemars(
        range(min = 65_536, max = 4_294_967_295_u64),
        extend("x-unit" = "bytes")
    )]
    pub segment_bytes: u64,
    /// Time between two commits at least: what comes meanwhile shares one synchronization of the
    /// disk. Longer delays acknowledgements by up to as much, and spares processor and disk; what
    /// comes after a silence is committed at once.
    #[schemars(range(min = 0, max = 1_000), extend("x-unit" = "milliseconds"))]
    pub commit_pause_ms: u32,
    /// Newest elements that a stream keeps, and up to a sixteenth more; 0: no bound. A virtual sensor
    /// may say otherwise (`output.retention`). A thousand elements of a few numbers take about
    /// 0.1 MB, a thousand seconds of a waveform of 360 samples a second about 3 MB.
    #[schemars(range(min = 0))]
    pub keep_elements: u64,
    /// Age up to which a stream keeps elements, and up to a sixteenth more, by the node's clock; 0:
    /// no bound. A virtual sensor may say otherwise (`output.retention`).
    #[schemars(range(min = 0, max = 9_000_000_000_u64), extend("x-unit" = "seconds"))]
    pub keep_age_s: u64,
    /// Size of the whole log at which the oldest files are removed, whatever streams are meant to
    /// keep, in bytes; 0: never. `"auto"` is half of the disk, at least 1 GiB and at most nine tenths
    /// of the disk, and never less than the log holds when the node starts.
    pub max_bytes: MaxBytes,
    /// Free space of the disk below which nothing more is accepted.
    #[schemars(range(min = 0), extend("x-unit" = "bytes"))]
    pub min_free_bytes: u64,
    /// How fast old files are read again, over and over, to find damage before somebody needs what is
    /// damaged; 0: not at all. One MiB a second is 84 GiB a day.
    #[schemars(range(min = 0), extend("x-unit" = "bytes/s"))]
    pub scrub_bytes_per_s: u64,
    /// A device's stream is removed once it has held no element, and its device was not there, for so
    /// long while the node ran, in all its runs; 0: never.
    #[schemars(range(min = 0, max = 9_000_000_000_u64), extend("x-unit" = "seconds"))]
    pub remove_abandoned_s: u64,
    /// Streams at once; one more is refused and counted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_streams: u32,
}

/// What a stream survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DurabilityLevel {
    /// Nothing.
    Memory,
    /// The end of the process.
    Process,
    /// The loss of power.
    Power,
}

/// What other nodes can read here over ZeroMQ. Over HTTP they read as everyone does, by `http.listen`
/// and `access.read`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Exchange {
    /// Address and port for sessions, in which nothing acknowledged is lost (links of the kind
    /// `zeromq`); port 0 takes a free one, which is printed; empty: none. Beyond loopback CURVE is
    /// spoken, with the key that `chappe key show` prints.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub listen: String,
    /// Address and port for PUB, best effort (links of the kind `zeromq_best_effort`); empty: none.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub publish: String,
    /// Address and port for the directory (REP): which streams there are, with their structure;
    /// empty: none.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub directory: String,
    /// Public keys of the nodes that may read, as `chappe key show` prints them there (64
    /// hexadecimal digits or 40 characters of Z85); `*` admits every key. With keys, CURVE is spoken
    /// on loopback too.
    #[schemars(extend("items" = {"type": "string", "format": "curve-key"}))]
    pub allowed_keys: Vec<String>,
    /// Networks in which contact points of subscriptions by `http_push` may be, besides the
    /// subscriber's own address and `discovery.contact`, as prefixes. A contact point on this host
    /// itself has to be named, too: `127.0.0.0/8`, `::1`.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub contact: Vec<String>,
    /// Speak without CURVE beyond loopback: whoever reaches the addresses reads every stream, and
    /// whoever is on the way reads along.
    pub insecure: bool,
    /// Links of this node at once, those of the file and those added while it runs.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_links: u32,
    /// Sessions that other nodes have here at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: u32,
    /// Sessions and subscriptions of one peer (its key, or its address) at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions_per_peer: u32,
    /// How long an element waits for others to travel with; more costs latency and saves work.
    #[schemars(range(min = 0, max = 1_000), extend("x-unit" = "milliseconds"))]
    pub linger_ms: u32,
}

/// What one request may cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Elements in one answer.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub elements: u32,
    /// Rows in the answer to a query.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub query_rows: u32,
    /// Time for a query.
    #[schemars(range(min = 10, max = 600_000), extend("x-unit" = "milliseconds"))]
    pub query_time_ms: u32,
    /// Queries at once; one more is refused with status 503.
    #[schemars(range(min = 1, max = 64))]
    pub queries: u32,
    /// Streams that the metrics name one by one; the rest is counted together.
    #[schemars(range(min = 0, max = 10_000))]
    pub metric_streams: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            schema_version: 1,
            name: String::new(),
            data_directory: "chappe-data".into(),
            sensors_directory: "sensors".into(),
            rules_directory: "rules".into(),
            http: Http::default(),
            access: Access::default(),
            discovery: Discovery::default(),
            devices: Quotas::default(),
            kad: Kad::default(),
            log: Log::default(),
            exchange: Exchange::default(),
            links: Vec::new(),
            #[cfg(feature = "dds")]
            dds: DdsConfig::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8470)),
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            max_connections: 256,
            max_live_clients: 64,
            max_body_bytes: 1 << 20,
            request_timeout_ms: 10_000,
            tls: HttpTls::default(),
        }
    }
}

impl Default for Access {
    fn default() -> Self {
        Self {
            read: Read::Open,
            insecure: false,
        }
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            enabled: true,
            multicast: true,
            interfaces: Vec::new(),
            contact: Vec::new(),
            tree: false,
            tree_criticality: 0,
            max_devices: 2_000,
            max_devices_per_address: 1_000,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: DurabilityLevel::Power,
            segment_bytes: 64 << 20,
            commit_pause_ms: 2,
            keep_elements: 1_000_000,
            keep_age_s: 7 * 86_400,
            max_bytes: MaxBytes::AUTO,
            min_free_bytes: 64 << 20,
            scrub_bytes_per_s: 1 << 20,
            remove_abandoned_s: 30 * 86_400,
            max_streams: 10_000,
        }
    }
}

impl Default for Exchange {
    fn default() -> Self {
        Self {
            listen: String::new(),
            publish: String::new(),
            directory: String::new(),
            allowed_keys: Vec::new(),
            contact: Vec::new(),
            insecure: false,
            max_links: 256,
            max_sessions: 1_024,
            max_sessions_per_peer: 64,
            linger_ms: 5,
        }
    }
}

impl Exchange {
    /// The addresses that are listened on, by key.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let named = [
            ("exchange.listen", &self.listen),
            ("exchange.publish", &self.publish),
            ("exchange.directory", &self.directory),
        ];
        named
            .into_iter()
            .filter_map(|(key, text)| Some((key, text.parse().ok()?)))
    }

    /// The networks of `contact`.
    pub(crate) fn contacts(&self) -> impl Iterator<Item = Prefix> {
        self.contact.iter().filter_map(|prefix| prefix.parse().ok())
    }

    /// Whether CURVE is spoken at this address.
    pub(crate) fn curve(&self, address: SocketAddr) -> bool {
        !self.allowed_keys.is_empty() || !(self.insecure || address.ip().is_loopback())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            elements: 10_000,
            query_rows: 10_000,
            query_time_ms: 5_000,
            queries: 4,
            metric_streams: 200,
        }
    }
}
