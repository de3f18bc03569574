//! The configuration of a node: one TOML file and its overrides.
//!
//! Each layer overrides the one before: defaults, the file, the environment (`CHAPPE_HTTP_LISTEN`
//! sets `http.listen`), flags. Each value carries its origin. The structs below are the only
//! description of the keys: the JSON Schema for editors ([`schema`]), the sample ([`sample`]), the
//! environment variables and the loader's checks are derived from them.
//!
//! Sensor files are in `chappe-stream`, the keys of a link in `chappe-links`.

mod accounts;
mod check;
mod contact;
mod contradictions;
mod devices;
mod discovery_proxy;
mod error;
mod kad;
mod layers;
mod mail;
mod max_bytes;
mod migrate;
mod sample;
mod schema;
mod signatures;

use std::net::SocketAddr;
use std::path::PathBuf;

#[cfg(feature = "dds")]
use chappe_dds::topics::DdsConfig;
use chappe_identity::Prefix;
use chappe_links::LinkConfig;
use chappe_log::Level;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use accounts::AccountRules;
pub use devices::{DevicePattern, DeviceRules, DeviceTls, ScopeRule};
pub use discovery_proxy::DiscoveryProxy;
pub use kad::Kad;

pub(crate) use error::Fault;
pub use error::{ConfigError, Problem, nearest};
pub use layers::{Flag, Layers, Loaded, Origin, Setting, load};
pub use mail::{Mail, MailEncryption};
pub use max_bytes::{Auto, MaxBytes};
pub use migrate::{Migration, migrate};
pub use sample::sample;
pub use schema::{Key, exporter_schema, keys, schema, sensor_schema, wrapper_schema};
pub use signatures::{SignatureMode, SignatureRules};

/// The newest version of the file's format, and the one that is written.
pub const SCHEMA_VERSION: u32 = 1;

/// The fault and the remedy of a file of a newer version.
fn newer(found: i64) -> (String, &'static str) {
    let message =
        format!("the file has version {found}; this program reads up to {SCHEMA_VERSION}");
    (message, "use the program that wrote it, or a newer one")
}

/// The configuration of a node (node.toml).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Chappe node")]
pub struct Config {
    /// Version of this file's format.
    #[schemars(range(min = 1, max = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Display name of the node; empty: the name of the host.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Directory for the node's key, log and registry. Relative to this file.
    #[schemars(length(min = 1))]
    pub data_directory: PathBuf,
    /// Directory of the sensor files (*.toml), watched for changes. Relative to this file.
    #[schemars(length(min = 1))]
    pub sensors_directory: PathBuf,
    /// Directory of the wrapper files (*.toml), watched for changes; each names a peer that is read into
    /// streams. Relative to this file.
    #[schemars(length(min = 1))]
    pub wrappers_directory: PathBuf,
    /// Directory of the exporter files (*.toml), watched for changes; each names a peer that streams are
    /// written to. Relative to this file.
    #[schemars(length(min = 1))]
    pub exporters_directory: PathBuf,
    /// Directory of the path rules (*.toml) for events with nested structure, read when a device is
    /// attached. Relative to this file.
    #[schemars(length(min = 1))]
    pub rules_directory: PathBuf,
    /// The REST interface and the console.
    pub http: Http,
    /// Read and write access.
    pub access: Access,
    /// Shares of one account.
    pub accounts: AccountRules,
    /// Discovery of devices.
    pub discovery: Discovery,
    /// Excluded devices, and limits for each device.
    pub devices: DeviceRules,
    /// Discovery of devices where multicast does not reach.
    pub kad: Kad,
    /// Storage of streams.
    pub log: Log,
    /// The registry.
    pub registry: RegistryRules,
    /// Mail to subscribers of the registry.
    pub mail: Mail,
    /// Signed SOAP messages to the registry.
    pub signatures: SignatureRules,
    /// Access for other nodes.
    pub exchange: Exchange,
    /// Links, which copy streams of other nodes to this node. Each is a separate table,
    /// `[[links]]`; `chappe link add` adds links to a running node.
    pub links: Vec<LinkConfig>,
    /// The DDS participant, which wrappers and exporters of kind `dds` share.
    #[cfg(feature = "dds")]
    pub dds: DdsConfig,
    /// Limits on one request.
    pub limits: Limits,
}

/// The REST interface and the console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Address and port to listen on; port 0 picks a free one, which is printed. An address beyond
    /// loopback needs `access.read = "token"` and `[http.tls]`, or `access.insecure = true`.
    #[schemars(extend("format" = "socket-address"))]
    pub listen: SocketAddr,
    /// Additional host names of this node. A request for any other host is refused, so that a page of another site
    /// cannot reach the node through its visitor's browser.
    pub hosts: Vec<String>,
    /// Reverse proxies of this node, as prefixes (`127.0.0.1`, `10.1.0.0/16`). For their requests the node
    /// reads the client's address from `Forwarded` (RFC 7239) or `X-Forwarded-For`, which the proxy must
    /// set. An unlisted proxy counts as the client itself.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub trusted_proxies: Vec<String>,
    /// Maximum number of concurrent connections; for a further one, the connection that has been idle longest is
    /// closed. At most half of them may be endless responses to other nodes (links of kind `http_pull`), and at most a
    /// quarter responses with pages of the guide; further ones are refused with status 503.
    #[schemars(range(min = 4, max = 10_000))]
    pub max_connections: u32,
    /// Maximum number of concurrent clients of live data; further ones are refused with status 503.
    #[schemars(range(min = 1, max = 5_000))]
    pub max_live_clients: u32,
    /// Largest request body.
    #[schemars(range(min = 1_024, max = 67_108_864), extend("x-unit" = "bytes"))]
    pub max_body_bytes: u32,
    /// Time-out for receiving a request's head, and again for its body.
    #[schemars(range(min = 100, max = 600_000), extend("x-unit" = "milliseconds"))]
    pub request_timeout_ms: u32,
    /// Answer the calls of GSN's REST interface under `/gsn`: a GSN server reads streams of this node with its
    /// wrapper `remote-api`, by the name and the token of an account.
    pub gsn: bool,
    /// Directory of the guide that the node serves at `/docs`; empty: none. `mdbook build docs` builds one.
    /// Relative to this file.
    pub docs: PathBuf,
    /// TLS for HTTP; without it, the node serves plain HTTP.
    pub tls: HttpTls,
}

/// TLS of the REST interface and the console, with a certificate from files or a self-signed one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpTls {
    /// File of the certificate followed by its chain (PEM); empty: none. Relative to this file.
    pub certificate: PathBuf,
    /// File of the certificate's key (PEM), readable by its owner only; empty: none. Relative to this file.
    pub key: PathBuf,
    /// Create a self-signed certificate once, for this host's names and `http.hosts`, instead of reading one. Clients
    /// trust it by its fingerprint, which the node prints at start and `chappe key show` prints at any time.
    pub self_signed: bool,
    /// File of the authorities (PEM) that sign certificates of clients; empty: clients are not asked for
    /// one. The subject of a client's certificate is compared with the accounts. Relative to this file.
    pub client_authorities: PathBuf,
    /// File of lists of revoked certificates of clients (PEM); empty: none. An expired list causes all certificates of
    /// its issuer to be refused. Relative to this file, and read at the start.
    pub client_revocation_lists: PathBuf,
}

impl Http {
    /// The networks of `trusted_proxies`.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = Prefix> {
        let prefixes = self.trusted_proxies.iter();
        prefixes.filter_map(|prefix| prefix.parse().ok())
    }
}

impl HttpTls {
    /// Whether TLS is on.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.self_signed || !self.certificate.as_os_str().is_empty()
    }
}

/// Read and write access.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// Whether reading is open to every client or needs an account. Changing always needs an account, which
    /// `chappe account add` makes. Restrictions of accounts matter only if reading needs one.
    pub read: Read,
    /// Allow listening beyond loopback even if reading is open or TLS is off, so that others on the network can see the
    /// token and the data. Also allow pushing to `http://` contact points beyond loopback.
    pub insecure: bool,
}

/// The credential that reading needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Read {
    /// Reading needs no credential.
    Open,
    /// Reading needs the token or the certificate of an account with the role `read`.
    Token,
}

/// Discovery of devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Discovery {
    /// Search for devices.
    pub enabled: bool,
    /// Search by multicast; without it the node finds only the devices that `[kad]` finds.
    pub multicast: bool,
    /// Interfaces to search on, by name; empty: all that support multicast, and loopback.
    pub interfaces: Vec<String>,
    /// Announce the directory of things by DNS-SD over multicast DNS (`_directory._sub._wot._tcp`) on the interfaces of
    /// `discovery.interfaces`, and answer queries for it there, if `http.listen` is an address of one of them.
    pub dns_sd: bool,
    /// Networks, as prefixes (`10.1.0.0/16`), in which this node may contact the addresses that an
    /// unauthenticated message names; empty: only the sender's own address. For devices found by `[kad]`
    /// the sender is the address at which their publisher answered.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub contact: Vec<String>,
    /// Discovery proxies to query instead of the multicast groups while one of them answers, each by its URL
    /// (`http://192.0.2.7:8474/`). Devices that they name may be at any address. Proxies that only announce
    /// themselves are queried in addition to the groups.
    pub proxies: Vec<String>,
    /// The node as a discovery proxy.
    pub proxy: DiscoveryProxy,
    /// Receive events over notification trees from devices that have them; this node then forwards events to other
    /// sinks by UDP. Other devices send standard notifications as before. Each event costs one disk synchronization, so
    /// that an old event cannot be replayed after a restart.
    pub tree: bool,
    /// How important it is that this node receives the events of notification trees early; higher is more
    /// important. A device may order its sinks by it.
    #[schemars(range(min = 0, max = 255))]
    pub tree_criticality: u8,
    /// Maximum number of known devices; further ones are dropped and counted.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_devices: u32,
    /// Maximum number of known devices per address, or per IPv6 network of 64 bits; further ones
    /// are dropped and counted. The default is half of `max_devices`, so that one host leaves room
    /// for others; raise both for a gateway or an IPv6 network with more devices. When the table is
    /// full, a device of another address replaces the newest device of the address with the most
    /// devices. If `max_devices` exceeds the number of devices of the plant, no device is ever
    /// replaced.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_devices_per_address: u32,
}

/// Storage of streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The failure that streams survive unless their descriptor sets another level: none, the end of the
    /// process, or a loss of power. The level `power` costs one disk synchronization per group of batches.
    pub level: Level,
    /// Size at which a log file is closed and the next one started.
    #[schemars(
        range(min = 65_536, max = 4_294_967_295_u64),
        extend("x-unit" = "bytes")
    )]
    pub segment_bytes: u64,
    /// Minimum time between two commits; elements that arrive in between share one disk synchronization. A longer pause
    /// saves processor time and disk accesses, and delays acknowledgements by up to that pause. The first element after
    /// an idle time is committed at once.
    #[schemars(range(min = 0, max = 1_000), extend("x-unit" = "milliseconds"))]
    pub commit_pause_ms: u32,
    /// Number of newest elements that a stream keeps, plus up to a sixteenth; 0: no limit. A virtual sensor
    /// can override it (`output.retention`). A thousand elements of a few numbers take about 0.1 MB, a
    /// thousand seconds of a waveform with 360 samples per second about 3 MB.
    #[schemars(range(min = 0))]
    pub keep_elements: u64,
    /// Age up to which a stream keeps elements, plus up to a sixteenth, by the node's clock; 0: no limit. A
    /// virtual sensor can override it (`output.retention`).
    #[schemars(range(min = 0, max = 9_000_000_000_u64), extend("x-unit" = "seconds"))]
    pub keep_age_s: u64,
    /// Size of the whole log, in bytes, at which its oldest files are removed, even if the retention of streams would
    /// keep their elements; 0: never. Accounts that keep more than their share lose their oldest elements first
    /// (`accounts.bytes_percent`). `"auto"` is half of the disk, at least 1 GiB and at most nine tenths of the disk,
    /// and never less than the log's size when the node starts.
    pub max_bytes: MaxBytes,
    /// Free disk space below which the log accepts no more elements.
    #[schemars(range(min = 0), extend("x-unit" = "bytes"))]
    pub min_free_bytes: u64,
    /// Rate at which the node keeps re-reading old files, to find damage before the data is needed; 0: off.
    /// One MiB per second is 84 GiB per day.
    #[schemars(range(min = 0), extend("x-unit" = "bytes/s"))]
    pub scrub_bytes_per_s: u64,
    /// Time after which a device's stream is removed if it stays empty while its device is absent,
    /// in total over all runs of the node; 0: never.
    #[schemars(range(min = 0, max = 9_000_000_000_u64), extend("x-unit" = "seconds"))]
    pub remove_abandoned_s: u64,
    /// Maximum number of streams; further ones are refused and counted. Each takes memory even when it is silent: see
    /// docs/reference/data-directory.md.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_streams: u32,
}

/// Access for other nodes over ZeroMQ. Over HTTP they read like any client, by `http.listen` and
/// `access.read`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Exchange {
    /// Address and port for sessions, which lose nothing acknowledged (links of kind `zeromq`); port 0
    /// picks a free one, which is printed; empty: none. Beyond loopback, sessions use CURVE with the key
    /// that `chappe key show` prints.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub listen: String,
    /// Address and port for PUB, best effort (links of kind `zeromq_best_effort`); empty: none.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub publish: String,
    /// Address and port for the directory (REP), the list of streams with their structure; empty: none.
    #[schemars(extend("format" = "socket-address-or-empty"))]
    pub directory: String,
    /// Public keys of the nodes that may read, as `chappe key show` prints them on their hosts (64
    /// hexadecimal digits or 40 characters of Z85); `*` admits every key. With keys, CURVE is used on
    /// loopback as well. An account restricts the key that is bound to it (`chappe account add --key`).
    #[schemars(extend("items" = {"type": "string", "format": "curve-key"}))]
    pub allowed_keys: Vec<String>,
    /// Networks, as prefixes, in which contact points of `http_push` subscriptions may be, in addition to
    /// the subscriber's own address and `discovery.contact`. To allow contact points on this host, list
    /// `127.0.0.0/8` or `::1`.
    #[schemars(extend("items" = {"type": "string", "format": "ip-prefix"}))]
    pub contact: Vec<String>,
    /// Turn CURVE off beyond loopback: everyone who can connect can read every stream, and the traffic can be
    /// eavesdropped.
    pub insecure: bool,
    /// Maximum number of links of this node, both from this file and added at run time.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_links: u32,
    /// Maximum number of concurrent sessions of other nodes.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: u32,
    /// Maximum number of concurrent sessions and subscriptions of one peer (its key, or its address).
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions_per_peer: u32,
    /// Time that an element waits for others to share its message; a longer time adds latency and saves work.
    #[schemars(range(min = 0, max = 1_000), extend("x-unit" = "milliseconds"))]
    pub linger_ms: u32,
}

/// The registry of devices, streams and what clients publish.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryRules {
    /// Maximum size of all entities: their texts, 512 bytes for each entity and 128 for each triple, which is about the
    /// memory that they take. Entities that clients publish may fill three quarters of it, and those of one account
    /// `accounts.bytes_percent`. Beyond that, an entity is refused with status 507.
    #[schemars(range(min = 1_048_576, max = 4_294_967_295_u64), extend("x-unit" = "bytes"))]
    pub max_bytes: u32,
    /// Number of entities, of which one account may publish `accounts.bytes_percent`; further ones are refused with
    /// status 507. `registry.max_bytes` limits all of them together.
    #[schemars(range(min = 100, max = 100_000_000))]
    pub max_entities: u32,
    /// Where changes are recorded: `log`, in the data directory; `memory`, nowhere, so that the registry is
    /// empty after each start; or `postgres`, in a database that several nodes share (docs/reference/registry-stores.md).
    pub store: RegistryStore,
    /// The database of the store `postgres`.
    pub postgres: Postgres,
    /// Directory of the value sets of UDDI that are checked (*.txt), read at the start. Each is named by the
    /// UUID of its tModel and has one value in each line. Relative to this file.
    #[schemars(length(min = 1))]
    pub taxonomies_directory: PathBuf,
    /// Directory of ontologies (*.ttl, *.nt, *.rdf, *.owl), read at the start: up to 64, each up to 10,000
    /// triples. Searches and queries with `inferred` follow their subclasses and subproperties. Relative to
    /// this file.
    #[schemars(length(min = 1))]
    pub ontologies_directory: PathBuf,
}

/// Where the changes of the registry are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RegistryStore {
    /// In the data directory.
    #[default]
    Log,
    /// Nowhere.
    Memory,
    /// In PostgreSQL.
    Postgres,
}

/// The PostgreSQL database of the registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Postgres {
    /// `postgres://USER@HOST:PORT/DATABASE`, without the password; for a Unix socket
    /// `postgres://USER@/DATABASE?host=/run/postgresql`. The user needs the right to create a schema.
    pub url: String,
    /// File with the password; empty: none. Relative to this file.
    pub password_file: PathBuf,
    /// PEM file of the authorities that may sign the server's certificate. If it is set, the connection uses TLS. If it
    /// is empty, the connection is not encrypted, which is allowed only for a server on this host or with
    /// `sslmode=disable` in the URL. Relative to this file.
    pub authorities: PathBuf,
}

impl Default for RegistryRules {
    fn default() -> Self {
        Self {
            max_bytes: 256 << 20,
            max_entities: 200_000,
            store: RegistryStore::default(),
            postgres: Postgres::default(),
            taxonomies_directory: "taxonomies".into(),
            ontologies_directory: "ontologies".into(),
        }
    }
}

/// Limits on one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of elements in one response.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub elements: u32,
    /// Maximum number of rows in the response to a query.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub query_rows: u32,
    /// Time limit of a query.
    #[schemars(range(min = 10, max = 600_000), extend("x-unit" = "milliseconds"))]
    pub query_time_ms: u32,
    /// Maximum number of concurrent queries; further ones are refused with status 503.
    #[schemars(range(min = 1, max = 64))]
    pub queries: u32,
    /// Maximum number of concurrent requests that write elements; further ones are refused with status 429.
    #[schemars(range(min = 1, max = 10_000))]
    pub writes: u32,
    /// Largest body of a request that writes elements. It is stored as it arrives, not buffered.
    #[schemars(range(min = 1_024, max = 4_294_967_295_u64), extend("x-unit" = "bytes"))]
    pub write_bytes: u32,
    /// Rate at which a body of elements must arrive, averaged since its start. A request that stays more than
    /// `http.request_timeout_ms` behind this rate ends with status 408. 0: no minimum. Time in which the node itself is
    /// busy does not count.
    #[schemars(range(min = 0, max = 1_048_576), extend("x-unit" = "bytes/s"))]
    pub write_min_bytes_per_s: u32,
    /// How far the source time of a written element may be ahead of the node's clock.
    #[schemars(range(min = 0, max = 9_000_000_000_u64), extend("x-unit" = "seconds"))]
    pub future_s: u64,
    /// Number of streams with their own metrics; the others share one set.
    #[schemars(range(min = 0, max = 10_000))]
    pub metric_streams: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            name: String::new(),
            data_directory: "chappe-data".into(),
            sensors_directory: "sensors".into(),
            wrappers_directory: "wrappers".into(),
            exporters_directory: "exporters".into(),
            rules_directory: "rules".into(),
            http: Http::default(),
            access: Access::default(),
            accounts: AccountRules::default(),
            discovery: Discovery::default(),
            devices: DeviceRules::default(),
            kad: Kad::default(),
            log: Log::default(),
            registry: RegistryRules::default(),
            mail: Mail::default(),
            signatures: SignatureRules::default(),
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
            gsn: false,
            // Reason: packages install the guide there.
            docs: "/usr/share/chappe/docs/html".into(),
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
            dns_sd: false,
            contact: Vec::new(),
            proxies: Vec::new(),
            proxy: DiscoveryProxy::default(),
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
            level: Level::Power,
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
    /// The listening addresses, with their keys.
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

    /// Whether this address uses CURVE.
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
            writes: 128,
            write_bytes: 64 << 20,
            write_min_bytes_per_s: 128,
            future_s: 300,
            metric_streams: 200,
        }
    }
}
