//! The keys of a file, checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chappe_stream::descriptor::DescriptorFault;
use chappe_stream::{DescriptorError, Field, FieldType, StreamSchema, check_name};
use opcua_crypto::SecurityPolicy;
use opcua_types::MessageSecurityMode;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::node::NodeAddress;
use crate::{StreamDefinition, WrapperFile};

/// Most nodes of a file; reason: each batch has 8 bytes of a mark for each.
pub(super) const NODES_MAX: usize = 1_000;
/// Most fields of a stream, as of every stream.
pub(super) const FIELDS_MAX: usize = 256;
/// The port of a server (part 6, section 7.2: IANA's of `opcua-tcp`).
const PORT: u16 = 4_840;
/// Hexadecimal digits of a SHA-256 fingerprint.
const FINGERPRINT_DIGITS: usize = 64;

/// The keys of a wrapper of kind `opcua`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// `opc.tcp://HOST:PORT/PATH`.
    pub(super) endpoint: String,
    /// How messages are signed and encrypted. Default: None, which does neither.
    #[serde(default)]
    security_policy: PolicyKey,
    /// Whether messages are signed, or signed and encrypted. Default: SignAndEncrypt, with a policy.
    security_mode: Option<ModeKey>,
    /// File with the server's certificate (`.der` or `.pem`). Relative to this file.
    server_certificate: Option<PathBuf>,
    /// The SHA-256 fingerprint of the server's certificate, instead of the certificate.
    server_fingerprint: Option<String>,
    /// File with the certificate (`.der` or `.pem`) of this client. Relative to this file. Default: one that is made at
    /// first use.
    certificate: Option<PathBuf>,
    /// File with the key of the certificate (PEM). Relative to this file.
    key_file: Option<PathBuf>,
    /// The name of the user.
    user: Option<String>,
    /// File with the password. Relative to this file.
    password_file: Option<PathBuf>,
    /// File with the certificate (`.der` or `.pem`) of the user, instead of a password. Relative to this file.
    user_certificate: Option<PathBuf>,
    /// File with the key of the user's certificate (PEM). Relative to this file.
    user_key_file: Option<PathBuf>,
    /// Whether gaps are filled from the history of the server. Default: false.
    #[serde(default)]
    history: bool,
    /// Time that the server needs to write a value to its history. Default: 1000.
    #[serde(default = "second")]
    #[schemars(range(max = 60_000), extend("x-unit" = "milliseconds"))]
    history_delay_ms: u64,
    /// Time after which the server may discard a session without a connection. Default: 60.
    #[serde(default = "session_default")]
    #[schemars(range(min = 10, max = 3_600), extend("x-unit" = "seconds"))]
    session_timeout_s: u64,
    /// Time between two notifications. Default: 1000.
    #[serde(default = "second")]
    #[schemars(range(min = 10, max = 60_000), extend("x-unit" = "milliseconds"))]
    publishing_ms: u64,
    /// Time between two samples that the server takes of a node; 0: as fast as it can. Default: `publishing_ms`.
    #[schemars(range(max = 3_600_000), extend("x-unit" = "milliseconds"))]
    sampling_ms: Option<u64>,
    /// Maximum number of values of a node that the server keeps until the next notification.
    /// Default: 100.
    #[serde(default = "queue_default")]
    #[schemars(range(min = 1, max = 100_000))]
    queue_size: u32,
    /// Streams and the nodes that are their fields.
    #[serde(rename = "nodes")]
    #[schemars(with = "Vec<NodesTable>", length(min = 1, max = 256))]
    groups: Vec<Spanned<NodesTable>>,
}

fn second() -> u64 {
    1_000
}

fn session_default() -> u64 {
    60
}

fn queue_default() -> u32 {
    100
}

/// A security policy (part 7). Those that are broken are left out: Basic128Rsa15, Basic256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
enum PolicyKey {
    #[default]
    None,
    Basic256Sha256,
    #[serde(rename = "Aes128_Sha256_RsaOaep")]
    Aes128Sha256RsaOaep,
    #[serde(rename = "Aes256_Sha256_RsaPss")]
    Aes256Sha256RsaPss,
}

/// A security mode with a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum ModeKey {
    Sign,
    SignAndEncrypt,
}

/// A `[[nodes]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodesTable {
    /// The name of the stream. Default: the name of the wrapper.
    stream_name: Option<String>,
    /// The key of the elements, if several machines share a stream.
    stream_key: Option<String>,
    /// The nodes.
    #[schemars(with = "Vec<FieldTable>", length(min = 1, max = 256))]
    fields: Vec<Spanned<FieldTable>>,
}

/// A node, and the field that it becomes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FieldTable {
    /// The name of the field.
    name: String,
    /// A node id, such as `ns=2;s=Boiler.Temp`, or a path of browse names from the root: `/Objects/2:Boiler/2:Temp`.
    node: String,
    /// The type of the field.
    #[serde(rename = "type")]
    #[schemars(with = "String")]
    field_type: FieldType,
    /// The unit, a UCUM code. Default: that of the server, if it has a counterpart.
    unit: Option<String>,
    /// The property that the value describes.
    observed_property: Option<String>,
    /// For a person to read.
    description: Option<String>,
    /// Interval at which the server samples this node. Default: that of the file.
    #[schemars(range(max = 3_600_000), extend("x-unit" = "milliseconds"))]
    sampling_ms: Option<u64>,
    /// Maximum number of values of this node that the server keeps. Default: that of the file.
    #[schemars(range(min = 1, max = 100_000))]
    queue_size: Option<u32>,
    /// Smallest change that counts as a new value.
    #[schemars(range(min = 0.0))]
    deadband: Option<f64>,
    /// The same in percent of the range (`EURange`) of the node.
    #[schemars(range(min = 0.0, max = 100.0))]
    deadband_percent: Option<f64>,
    /// Time between two numbers of an array, for the type `samples`. Default: 0, not known.
    #[serde(default)]
    #[schemars(extend("x-unit" = "nanoseconds"))]
    period_ns: u64,
}

/// Smallest change that counts as a new value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Deadband {
    Absolute(f64),
    Percent(f64),
}

/// A node of a file.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) address: NodeAddress,
    /// The index of its stream.
    pub(super) group: usize,
    /// The index of its field.
    pub(super) field: usize,
    pub(super) name: String,
    pub(super) field_type: FieldType,
    pub(super) sampling_ms: f64,
    pub(super) queue_size: u32,
    pub(super) deadband: Option<Deadband>,
    pub(super) period_ns: u64,
}

/// A stream of a file.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) stream: Arc<str>,
    pub(super) key: Option<String>,
    pub(super) definition: Arc<StreamDefinition>,
}

/// Who uses the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum User {
    Anonymous,
    Password { user: String, file: PathBuf },
    Certificate { certificate: PathBuf, key: PathBuf },
}

/// By what the server's certificate is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    File(PathBuf),
    /// SHA-256, hexadecimal in small letters.
    Fingerprint(String),
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) url: String,
    /// Host and port.
    pub(super) place: String,
    pub(super) policy: SecurityPolicy,
    pub(super) mode: MessageSecurityMode,
    /// None without a policy.
    pub(super) server: Option<Known>,
    /// Certificate and key of this client; `None`: made at first use.
    pub(super) own: Option<(PathBuf, PathBuf)>,
    /// The directory of certificates.
    pub(super) directory: PathBuf,
    pub(super) user: User,
    pub(super) session_timeout: Duration,
    /// The name of the wrapper.
    pub(super) name: String,
}

/// A checked file.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) target: Target,
    /// Time to write to history, where gaps are closed by it.
    pub(super) history_delay: Option<Duration>,
    pub(super) publishing: Duration,
    pub(super) groups: Vec<Group>,
    pub(super) nodes: Vec<Node>,
}

/// Host and port of `opc.tcp://HOST:PORT/PATH`.
///
/// # Errors
/// Why there is none.
pub(super) fn place(endpoint: &str) -> Result<String, String> {
    let form = || format!("{endpoint:?} is not opc.tcp://HOST:PORT/PATH");
    let rest = endpoint.strip_prefix("opc.tcp://").ok_or_else(form)?;
    let place = rest.split('/').next().unwrap_or_default();
    if place.contains('@') {
        return Err("a password does not belong into an address; use password_file".to_owned());
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
    let is_fine = !place.is_empty() && place.bytes().all(is_plain) && endpoint.len() <= 1_024;
    match place.rsplit_once(':') {
        _ if !is_fine || !endpoint.is_ascii() => Err(form()),
        Some((host, port)) if !port.ends_with(']') => {
            let is_port = port.parse::<u16>().is_ok_and(|it| it > 0);
            match host.is_empty() || !is_port {
                true => Err(form()),
                false => Ok(place.to_owned()),
            }
        }
        _ => Ok(format!("{place}:{PORT}")),
    }
}

impl Plan {
    /// The plan of a file.
    ///
    /// # Errors
    /// The first fault, with line, key and hint.
    pub(super) fn of(file: &WrapperFile) -> Result<Self, DescriptorError> {
        let settings: Settings = file.settings()?;
        let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
        if !file.keys.streams.is_empty() || file.keys.format.is_some() {
            return wrong("stream", "the kind `opcua` has its streams in [[nodes]]");
        }
        for (key, value, low, high) in [
            ("history_delay_ms", settings.history_delay_ms, 0, 60_000),
            ("session_timeout_s", settings.session_timeout_s, 10, 3_600),
            ("publishing_ms", settings.publishing_ms, 10, 60_000),
            (
                "sampling_ms",
                settings.sampling_ms.unwrap_or(0),
                0,
                3_600_000,
            ),
            ("queue_size", settings.queue_size.into(), 1, 100_000),
        ] {
            if !(low..=high).contains(&value) {
                return wrong(key, &format!("it is not within {low} to {high}"));
            }
        }
        let count: usize = settings
            .groups
            .iter()
            .map(|it| it.get_ref().fields.len())
            .sum();
        if settings.groups.is_empty() || count > NODES_MAX {
            return wrong("nodes", &format!("a file has 1 to {NODES_MAX} nodes"));
        }
        let target = settings.target(file)?;
        let (mut groups, mut nodes) = (Vec::<Group>::new(), Vec::new());
        for table in &settings.groups {
            let (group, own) = settings.group(file, table, groups.len())?;
            let mut same = groups.iter().filter(|it| it.stream == group.stream);
            let is_wrong =
                |it: &Group| it.key == group.key || it.definition.schema != group.definition.schema;
            if same.any(is_wrong) {
                let text = format!(
                    "two [[nodes]] of the stream {:?} need equal fields and two keys",
                    group.stream
                );
                return Err(at(file, table.span().start, "stream_name", text));
            }
            groups.push(group);
            nodes.extend(own);
        }
        Ok(Self {
            target,
            history_delay: settings
                .history
                .then(|| Duration::from_millis(settings.history_delay_ms)),
            publishing: Duration::from_millis(settings.publishing_ms),
            groups,
            nodes,
        })
    }
}

fn at(file: &WrapperFile, start: usize, key: &str, text: String) -> DescriptorError {
    let fault = DescriptorFault::Value;
    file.place().error(fault, start, key, text, None)
}

impl Settings {
    fn target(&self, file: &WrapperFile) -> Result<Target, DescriptorError> {
        let fault = |key: &str, text: &str| file.fault(key, text.to_owned(), None);
        let place = place(&self.endpoint).map_err(|text| fault("endpoint", &text))?;
        let policy = match self.security_policy {
            PolicyKey::None => SecurityPolicy::None,
            PolicyKey::Basic256Sha256 => SecurityPolicy::Basic256Sha256,
            PolicyKey::Aes128Sha256RsaOaep => SecurityPolicy::Aes128Sha256RsaOaep,
            PolicyKey::Aes256Sha256RsaPss => SecurityPolicy::Aes256Sha256RsaPss,
        };
        let is_secure = policy != SecurityPolicy::None;
        let relative = |path: &Option<PathBuf>| path.as_ref().map(|path| file.path(path));
        let server = match (&self.server_certificate, &self.server_fingerprint) {
            (Some(path), None) => Some(Known::File(file.path(path))),
            (None, Some(text)) => {
                let digits: String = text.chars().filter(|it| *it != ':').collect();
                let is_hex = digits.bytes().all(|it| it.is_ascii_hexdigit());
                if digits.len() != FINGERPRINT_DIGITS || !is_hex {
                    return Err(fault(
                        "server_fingerprint",
                        "it is not a SHA-256 in hexadecimal digits",
                    ));
                }
                Some(Known::Fingerprint(digits.to_ascii_lowercase()))
            }
            (None, None) => None,
            (Some(_), Some(_)) => {
                return Err(fault(
                    "server_fingerprint",
                    "set it or server_certificate, not both",
                ));
            }
        };
        if is_secure && server.is_none() {
            let hint = "chappe wrapper browse prints the fingerprint; compare it with the one that the server \
                itself shows";
            return Err(file.fault(
                "security_policy",
                "with a policy, the server is known by server_fingerprint or server_certificate"
                    .to_owned(),
                Some(hint.to_owned()),
            ));
        }
        let user = match (
            &self.user,
            &self.password_file,
            &self.user_certificate,
            &self.user_key_file,
        ) {
            (None, None, None, None) => User::Anonymous,
            (Some(user), Some(path), None, None) => User::Password {
                user: user.clone(),
                file: file.path(path),
            },
            (None, None, Some(certificate), Some(key)) => User::Certificate {
                certificate: file.path(certificate),
                key: file.path(key),
            },
            _ => {
                let text = "a user has either user and password_file, or user_certificate and user_key_file";
                return Err(fault("user", text));
            }
        };
        if !is_secure && (user != User::Anonymous || self.certificate.is_some() || server.is_some())
        {
            let text =
                "a user, a certificate or a fingerprint need a security_policy other than None";
            return Err(fault("endpoint", text));
        }
        let own = match (relative(&self.certificate), relative(&self.key_file)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(fault(
                    "certificate",
                    "set certificate and key_file together",
                ));
            }
        };
        let mode = match (is_secure, self.security_mode) {
            (false, None) => MessageSecurityMode::None,
            (false, Some(_)) => return Err(fault("security_mode", "the policy None has no mode")),
            (true, Some(ModeKey::Sign)) => MessageSecurityMode::Sign,
            (true, _) => MessageSecurityMode::SignAndEncrypt,
        };
        Ok(Target {
            url: self.endpoint.clone(),
            place,
            policy,
            mode,
            server,
            own,
            directory: file.directory.join("opcua").join(&file.name),
            user,
            // Between two notifications the server hears nothing.
            session_timeout: Duration::from_secs(self.session_timeout_s)
                .max(3 * Duration::from_millis(self.publishing_ms)),
            name: file.name.clone(),
        })
    }

    fn group(
        &self,
        file: &WrapperFile,
        table: &Spanned<NodesTable>,
        index: usize,
    ) -> Result<(Group, Vec<Node>), DescriptorError> {
        let (start, table) = (table.span().start, table.get_ref());
        let wrong = |key: &str, text: String| Err(at(file, start, key, text));
        let own = file.name.replace('_', "-");
        let name = table.stream_name.clone();
        let name = name.unwrap_or_else(|| own.trim_matches('-').to_owned());
        if let Err(error) = check_name(&name) {
            return wrong("stream_name", error.to_string());
        }
        if !(1..=FIELDS_MAX).contains(&table.fields.len()) {
            return wrong("fields", format!("[[nodes]] has 1 to {FIELDS_MAX} fields"));
        }
        let (mut nodes, mut fields) = (Vec::new(), Vec::new());
        for (field, table) in table.fields.iter().enumerate() {
            nodes.push(self.node(file, table, (index, field))?);
            let table = table.get_ref();
            fields.push(Field {
                name: table.name.clone(),
                field_type: table.field_type,
                unit: table.unit.clone(),
                observed_property: table.observed_property.clone(),
                description: table.description.clone(),
            });
        }
        let schema = StreamSchema {
            fields,
            key: table.stream_key.is_some().then(|| "machine".to_owned()),
        };
        if let Err(error) = schema.check_names() {
            return wrong("fields", error.to_string());
        }
        let definition = StreamDefinition {
            schema,
            level: file.keys.level,
            description: None,
        };
        let group = Group {
            stream: name.into(),
            key: table.stream_key.clone(),
            definition: Arc::new(definition),
        };
        Ok((group, nodes))
    }

    fn node(
        &self,
        file: &WrapperFile,
        table: &Spanned<FieldTable>,
        (group, field): (usize, usize),
    ) -> Result<Node, DescriptorError> {
        let (start, table) = (table.span().start, table.get_ref());
        let wrong =
            |key: &str, text: &str| at(file, start, key, format!("{:?}: {text}", table.name));
        let address = NodeAddress::parse(&table.node).map_err(|text| wrong("node", &text))?;
        let sampling_ms = table
            .sampling_ms
            .or(self.sampling_ms)
            .unwrap_or(self.publishing_ms);
        let queue_size = table.queue_size.unwrap_or(self.queue_size);
        if sampling_ms > 3_600_000 {
            return Err(wrong("sampling_ms", "it is beyond 3600000"));
        }
        if !(1..=100_000).contains(&queue_size) {
            return Err(wrong("queue_size", "it is not within 1 to 100000"));
        }
        let deadband = match (table.deadband, table.deadband_percent) {
            (None, None) => None,
            (Some(value), None) if value >= 0.0 && value.is_finite() => {
                Some(Deadband::Absolute(value))
            }
            (None, Some(value)) if (0.0..=100.0).contains(&value) => Some(Deadband::Percent(value)),
            (Some(_), Some(_)) => {
                return Err(wrong("deadband", "set it or deadband_percent, not both"));
            }
            _ => return Err(wrong("deadband", "it is not from 0, or beyond 100 percent")),
        };
        let is_number = matches!(table.field_type, FieldType::Integer | FieldType::Double);
        if deadband.is_some() && !is_number {
            return Err(wrong("deadband", "only a number has one"));
        }
        Ok(Node {
            address,
            group,
            field,
            name: table.name.clone(),
            field_type: table.field_type,
            // At most an hour, which a double has exactly.
            sampling_ms: Duration::from_millis(sampling_ms).as_secs_f64() * 1_000.0,
            queue_size,
            deadband,
            period_ns: table.period_ns,
        })
    }
}
