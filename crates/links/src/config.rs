//! The configuration of a link, and the limits for all links of a node.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chappe_log::Level;
use chappe_stream::{NAME_BYTES_MAX, check_name};
use chappe_transport::tls::Fingerprint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LinkError;

/// Most selections of a link; reason: each is matched against each stream of the origin.
pub const SELECTIONS_MAX: usize = 256;
/// Longest address in bytes.
pub const ADDRESS_BYTES_MAX: usize = 512;

/// A link: the origin to read from, which streams, and how.
///
/// ```
/// use chappe_links::{LinkConfig, LinkKind};
/// let link: LinkConfig = toml::from_str(r#"
///     name = "ward-3"
///     kind = "zeromq"
///     address = "tcp://192.0.2.7:7403"
///     streams = ["ward.*", "lab.temperature"]
///     server_key = "8f2c0e7a5d3b91468f2c0e7a5d3b91468f2c0e7a5d3b91468f2c0e7a5d3b9146"
/// "#)?;
/// assert_eq!(link.kind, LinkKind::Zeromq);
/// link.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Its name here, which can be a part of a stream's name, such as `ward-3`.
    pub name: String,
    /// Its protocol: `zeromq` (sessions: acknowledged once stored), `zeromq_best_effort` (missed
    /// elements are counted), `http_pull` (an endless response) or `http_push` (requests to this
    /// node).
    pub kind: LinkKind,
    /// Where the origin listens: `tcp://HOST:PORT` for the kinds of ZeroMQ, `http://HOST:PORT` or
    /// `https://HOST:PORT` for those of HTTP.
    pub address: String,
    /// The streams: names, or prefixes ending in `*`.
    pub streams: Vec<String>,
    /// The serialization of elements: `xml`, `postcard` or `message_pack`; `zeromq` supports
    /// `postcard` only. Default: `postcard`; `xml` for the HTTP kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serialization: Option<Serialization>,
    /// The level at which elements are stored here before they are acknowledged: `memory` (survives
    /// nothing), `process` (survives `kill -9`) or `power` (survives power loss). Default:
    /// `log.level`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Prefix for the names of the streams here, followed by a dot. A `*` skips names at the origin that already
    /// contain the prefix, because these are copies that returned in a ring. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_prefix: Option<String>,
    /// Where to start a stream that was never read: `first`, the oldest element that the origin
    /// keeps, or `new`, the next one. Default: `first`.
    #[serde(default)]
    pub start: LinkStart,
    /// The address of the origin's directory, for `zeromq_best_effort`: `tcp://HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The origin's public key (CURVE), 64 hexadecimal digits or 40 characters of Z85. The ZeroMQ
    /// kinds need it beyond loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_key: Option<String>,
    /// The address at which the origin reaches this node, for `http_push`: `https://HOST:PORT` with
    /// this node's TLS (`[http.tls]`), whose certificate fingerprint is sent to the origin, or
    /// `http://HOST:PORT`, beyond loopback only with `insecure`. HOST is an IP address. Default:
    /// the address at which this node listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// The token that the origin requires of readers, for the HTTP kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A file with that token, readable by its owner only. Set either this or `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The SHA-256 of the origin's certificate, for `https://` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// A PEM file of the certificate authorities that sign the origin's certificate, for
    /// `https://`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<PathBuf>,
    /// Whether the link may leave this machine without encryption. Default: no.
    #[serde(default)]
    pub insecure: bool,
    /// The limits of the link, under `[links.limits]`.
    #[serde(default)]
    pub limits: LinkLimits,
}

/// The kind of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// Reliable sessions over ZeroMQ DEALER and ROUTER.
    Zeromq,
    /// ZeroMQ PUB and SUB: elements that a slow or absent subscriber misses are counted, not sent
    /// again.
    ZeromqBestEffort,
    /// An endless response to an HTTP GET.
    HttpPull,
    /// The origin sends each element in an HTTP request to this node.
    HttpPush,
}

impl LinkKind {
    /// The name in configuration and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zeromq => "zeromq",
            Self::ZeromqBestEffort => "zeromq_best_effort",
            Self::HttpPull => "http_pull",
            Self::HttpPush => "http_push",
        }
    }

    /// Whether the kind uses an HTTP address.
    #[must_use]
    pub const fn is_http(self) -> bool {
        matches!(self, Self::HttpPull | Self::HttpPush)
    }
}

/// The serialization of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Serialization {
    /// XML, one document per element, as in the exchange experiment.
    Xml,
    /// Postcard: compact, as in the log.
    Postcard,
    /// MessagePack, for programs in other languages.
    MessagePack,
}

/// Where to start a stream that was never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkStart {
    /// At the oldest element that the origin keeps.
    #[default]
    First,
    /// At the next new element.
    New,
}

/// The bounds of one link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinkLimits {
    /// Maximum number of streams. Each costs about a kilobyte and one subscription. Default: 1,024.
    #[schemars(range(min = 1, max = 65_535))]
    pub streams: usize,
    /// Maximum number of bytes in flight and not yet stored, over all streams. Default: 8 MiB.
    #[schemars(range(min = 65_536, max = 1_073_741_824), extend("x-unit" = "bytes"))]
    pub window_bytes: u64,
    /// Maximum number of bytes of one stream in flight and not yet stored. Default: 1 MiB.
    #[schemars(range(min = 4_096, max = 1_073_741_824), extend("x-unit" = "bytes"))]
    pub stream_window_bytes: u64,
    /// Maximum number of dead letters to keep; the oldest are dropped first. Default: 10,000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub dead_letters: u64,
    /// Seconds between queries of the origin's directory for new streams that match. Default: 10.
    #[schemars(range(min = 1, max = 86_400), extend("x-unit" = "seconds"))]
    pub directory_s: u64,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            streams: 1_024,
            window_bytes: 8 << 20,
            stream_window_bytes: 1 << 20,
            dead_letters: 10_000,
            directory_s: 10,
        }
    }
}

/// The limits for all links of a node, in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinksConfig {
    /// Most links. Default 256.
    pub links: usize,
    /// Most sessions that other nodes have with this one. Default 1,024.
    pub sessions: usize,
    /// Most sessions, subscriptions and pulls of one peer (by its key, or its address). Default 64.
    pub sessions_per_peer: usize,
    /// Longest time that an element waits at the origin to share a frame: after two thirds of it,
    /// the waiting elements go with the next commit. Default 5 ms: at a thousand elements a second,
    /// three to five share a frame.
    pub linger: Duration,
    /// HTTP: most subscriptions by contact point. Default 1,024.
    pub subscriptions: usize,
    /// HTTP: lifetime of a subscription that is not renewed. Default and maximum: 60 s.
    pub lease: Duration,
    /// HTTP: silence after which a pull sends a keep-alive. Default 15 s.
    pub keep_alive: Duration,
    /// HTTP: most bytes of elements in one request, for serializations other than XML. Default 64
    /// KiB.
    pub batch_bytes: usize,
}

impl Default for LinksConfig {
    fn default() -> Self {
        Self {
            links: 256,
            sessions: 1_024,
            sessions_per_peer: 64,
            linger: Duration::from_millis(5),
            subscriptions: 1_024,
            lease: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            batch_bytes: 64 << 10,
        }
    }
}

impl LinkConfig {
    /// The serialization of elements.
    #[must_use]
    pub fn serialization(&self) -> Serialization {
        self.serialization.unwrap_or(match self.kind.is_http() {
            true => Serialization::Xml,
            false => Serialization::Postcard,
        })
    }

    /// The selected streams.
    ///
    /// # Errors
    /// The first selection that is invalid.
    pub fn selections(&self) -> Result<Vec<Selection>, LinkError> {
        self.streams.iter().map(|text| text.parse()).collect()
    }

    /// The local name of the origin's stream `name`.
    #[must_use]
    pub fn local_name(&self, name: &str) -> String {
        match &self.as_prefix {
            Some(prefix) => format!("{prefix}.{name}"),
            None => name.to_owned(),
        }
    }

    /// Whether a selection matches the origin's stream of this name. A prefix skips names that
    /// contain the link's own prefix already, since those are copies of copies.
    #[must_use]
    pub fn takes(&self, selection: &Selection, name: &str) -> bool {
        let prefixes = |text: &str| match &self.as_prefix {
            Some(prefix) => times(prefix, text),
            None => 0,
        };
        selection.takes(name)
            && match selection {
                Selection::Exact(_) => true,
                Selection::Prefix(beginning) => prefixes(name) <= prefixes(beginning),
            }
    }

    /// Checks everything that can be checked without the origin.
    ///
    /// # Errors
    /// The first fault, with the key to change.
    pub fn check(&self) -> Result<(), LinkError> {
        let wrong = |key: &'static str, why: String| Err(LinkError::Config { key, why });
        if check_name(&self.name).is_err() || self.name.contains('.') || self.name.len() > 64 {
            let why = "use a-z, 0-9, `_` and `-`, at most 64".to_owned();
            return wrong("name", why);
        }
        let schemes: &[&str] = match self.kind.is_http() {
            true => &["http://", "https://"],
            false => &["tcp://"],
        };
        if let Err(why) = check_address(&self.address, schemes) {
            return wrong("address", format!("for {} {why}", self.kind.as_str()));
        }
        self.check_secrets()?;
        if self.streams.is_empty() || self.streams.len() > SELECTIONS_MAX {
            return wrong("streams", format!("give 1 to {SELECTIONS_MAX} selections"));
        }
        self.selections()?;
        if let Some(prefix) = self.as_prefix.as_deref()
            && (check_name(prefix).is_err() || prefix.len() > NAME_BYTES_MAX / 2)
        {
            return wrong(
                "as_prefix",
                "it is not a valid stream name, or too long".into(),
            );
        }
        if let Some(directory) = self.directory.as_deref()
            && let Err(why) = check_address(directory, &["tcp://"])
        {
            return wrong("directory", why);
        }
        if let Some(contact) = self.contact.as_deref()
            && let Err(why) = check_address(contact, &["http://", "https://"])
        {
            return wrong("contact", why);
        }
        if self.kind == LinkKind::ZeromqBestEffort && self.directory.is_none() {
            return wrong(
                "directory",
                "zeromq_best_effort reads the names and schemas there".into(),
            );
        }
        if self.kind == LinkKind::Zeromq && self.serialization() != Serialization::Postcard {
            return wrong("serialization", "zeromq supports postcard only".into());
        }
        if self.limits.streams == 0 || self.limits.stream_window_bytes == 0 {
            return wrong("limits", "no limit may be 0".into());
        }
        Ok(())
    }
}

impl LinkConfig {
    /// Whether elements for this contact point would leave this machine in plain text, which needs
    /// `insecure`.
    pub(crate) fn is_in_clear(&self, contact: &str) -> bool {
        !self.insecure && contact.starts_with("http://") && !is_loopback(contact)
    }

    fn check_secrets(&self) -> Result<(), LinkError> {
        let wrong = |key: &'static str, why: &str| {
            let why = why.to_owned();
            Err(LinkError::Config { key, why })
        };
        let fingerprint = self.fingerprint.as_deref().map(str::parse::<Fingerprint>);
        if matches!(fingerprint, Some(Err(_))) {
            return wrong(
                "fingerprint",
                "it is not the SHA-256 of a certificate (64 hexadecimal digits)",
            );
        }
        if self.token.is_some() && self.token_file.is_some() {
            return wrong("token_file", "give this or token, not both");
        }
        let has_token = self.token.is_some() || self.token_file.is_some();
        let open = !self.insecure && !is_loopback(&self.address);
        let certified = self.fingerprint.is_some() || self.authorities.is_some();
        match self.kind.is_http() {
            true if self.address.starts_with("https://") && !certified => {
                wrong("fingerprint", "an https address needs this, or authorities")
            }
            true if self
                .contact
                .as_deref()
                .is_some_and(|it| self.is_in_clear(it)) =>
            {
                wrong(
                    "contact",
                    "elements would travel in plain text: use https, or set insecure = true",
                )
            }
            true if open && has_token && self.address.starts_with("http://") => wrong(
                "token",
                "it would travel in plain text: use https, or set insecure = true",
            ),
            false if open && self.server_key.is_none() => wrong(
                "server_key",
                "required for an origin on another machine, unless insecure = true",
            ),
            _ => Ok(()),
        }
    }
}

/// Whether an address of scheme, host and port is on this machine.
fn is_loopback(address: &str) -> bool {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// How often `prefix` occurs in `name`, compared part by part.
fn times(prefix: &str, name: &str) -> usize {
    let prefix: Vec<&str> = prefix.split('.').collect();
    let parts: Vec<&str> = name.split('.').collect();
    let windows = parts.windows(prefix.len());
    windows.filter(|window| *window == prefix).count()
}

/// Checks that an address is one of these schemes and a host, with a port unless the scheme has a
/// default.
fn check_address(address: &str, schemes: &[&str]) -> Result<(), String> {
    let rest = schemes
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme));
    let rest = rest.filter(|_| address.len() <= ADDRESS_BYTES_MAX);
    let rest = rest.ok_or_else(|| format!("it has to start with {}", schemes.join(" or ")))?;
    if rest.contains("://") {
        return Err("it has two schemes".to_owned());
    }
    let authority = rest.trim_end_matches('/');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if host.is_empty() {
        return Err("it has no host".to_owned());
    }
    if schemes.contains(&"tcp://") && host.contains('/') {
        return Err("it has a path: use tcp://HOST:PORT".to_owned());
    }
    match port.map(str::parse::<u16>) {
        Some(Ok(1..)) => Ok(()),
        Some(_) => Err("its port has to be 1 to 65535".to_owned()),
        None if schemes.contains(&"tcp://") => Err("it has no port".to_owned()),
        None => Ok(()),
    }
}

/// Selected streams: one name, or all names with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The stream of this name.
    Exact(String),
    /// The streams with this prefix.
    Prefix(String),
}

impl Selection {
    /// Whether the selection matches this name.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

impl std::str::FromStr for Selection {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let error = || LinkError::Config {
            key: "streams",
            why: format!("{text:?} is neither a stream name nor a prefix ending in `*`"),
        };
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
        match text.strip_suffix('*') {
            Some(prefix) if prefix.len() <= NAME_BYTES_MAX && prefix.chars().all(known) => {
                Ok(Self::Prefix(prefix.to_owned()))
            }
            None if check_name(text).is_ok() => Ok(Self::Exact(text.to_owned())),
            _ => Err(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> LinkConfig {
        LinkConfig {
            name: "a".into(),
            kind: LinkKind::Zeromq,
            address: "tcp://127.0.0.1:1".into(),
            streams: vec!["a.*".into()],
            serialization: None,
            level: None,
            as_prefix: None,
            start: LinkStart::First,
            directory: None,
            server_key: None,
            contact: None,
            token: None,
            token_file: None,
            fingerprint: None,
            authorities: None,
            insecure: false,
            limits: LinkLimits::default(),
        }
    }

    #[test]
    fn an_error_names_its_key() {
        assert!(link().check().is_ok());
        type Change = fn(&mut LinkConfig);
        let cases: [(&str, Change); 23] = [
            ("server_key", |link| {
                link.address = "tcp://192.0.2.1:1".into()
            }),
            ("token_file", |link| {
                link.token = Some("t".into());
                link.token_file = Some("f".into());
            }),
            ("fingerprint", |link| {
                link.kind = LinkKind::HttpPull;
                link.address = "https://192.0.2.1".into();
            }),
            ("fingerprint", |link| {
                link.kind = LinkKind::HttpPull;
                link.address = "https://192.0.2.1".into();
                link.fingerprint = Some("FINGERPRINT".into());
            }),
            ("address", |link| {
                link.kind = LinkKind::HttpPull;
                link.address = "http://http://127.0.0.1:1".into();
            }),
            ("token", |link| {
                link.kind = LinkKind::HttpPull;
                link.address = "http://192.0.2.1".into();
                link.token = Some("t".into());
            }),
            ("contact", |link| {
                link.kind = LinkKind::HttpPush;
                link.address = "https://192.0.2.1".into();
                link.fingerprint = Some("0".repeat(64));
                link.contact = Some("http://192.0.2.2:80".into());
            }),
            ("contact", |link| {
                link.kind = LinkKind::HttpPush;
                link.address = "http://127.0.0.1".into();
                link.contact = Some("192.0.2.2".into());
            }),
            ("name", |link| link.name = "a.b".into()),
            ("address", |link| link.address = "http://127.0.0.1".into()),
            ("address", |link| link.address = "tcp://".into()),
            ("address", |link| link.address = "tcp://:1".into()),
            ("address", |link| {
                link.address = "tcp://tcp://127.0.0.1:1".into()
            }),
            ("address", |link| {
                link.address = "tcp://127.0.0.1/a:1".into()
            }),
            ("address", |link| link.address = "tcp://127.0.0.1".into()),
            ("address", |link| {
                link.address = "tcp://127.0.0.1:99999".into()
            }),
            ("address", |link| link.address = "tcp://[::1]:0".into()),
            ("directory", |link| {
                link.directory = Some("tcp://127.0.0.1:x".into())
            }),
            ("streams", |link| link.streams.clear()),
            ("streams", |link| link.streams = vec!["A*".into()]),
            ("as_prefix", |link| link.as_prefix = Some("a..b".into())),
            ("directory", |link| link.kind = LinkKind::ZeromqBestEffort),
            ("serialization", |link| {
                link.serialization = Some(Serialization::Xml)
            }),
        ];
        for (wanted, change) in cases {
            let mut link = link();
            change(&mut link);
            match link.check() {
                Err(LinkError::Config { key, .. }) => assert_eq!(key, wanted),
                other => panic!("{wanted}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_selection_matches_a_name_or_a_prefix() {
        let prefix: Selection = "ward.*".parse().expect("one");
        assert!(prefix.takes("ward.bed1") && !prefix.takes("wards"));
        let exact: Selection = "ward".parse().expect("one");
        assert!(exact.takes("ward") && !exact.takes("ward.bed1"));
        assert!("*".parse::<Selection>().expect("all").takes("x"));
    }

    #[test]
    fn a_prefix_skips_copies_of_copies() {
        let takes = |prefix: &str, selection: &str, name: &str| {
            let link = LinkConfig {
                as_prefix: Some(prefix.into()),
                ..link()
            };
            link.takes(&selection.parse().expect("one"), name)
        };
        for (selection, name, wanted) in [
            ("*", "x", true),
            ("*", "other.x", true),
            ("*", "farther.x", true),
            ("*", "far.x", false),
            ("*", "other.far.x", false),
            ("far.*", "far.x", true),
            ("far.*", "far.far.x", false),
            ("far.x", "far.x", true),
        ] {
            assert_eq!(takes("far", selection, name), wanted, "{selection} {name}");
        }
        assert!(!takes("a.b", "*", "c.a.b.x") && takes("a.b", "*", "a.x.b"));
    }
}
