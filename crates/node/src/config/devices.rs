//! Which devices are left out, when others are replaced, and their quotas.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use chappe_dpws::discovery::MatchRule;
use chappe_transport::tls::Files;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::MaxBytes;

/// Devices that are left out, the rule by which others are replaced, and limits on each other one, so that it cannot crowd out the rest. A device that
/// exceeds a rate is slowed down: its notifications are answered later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceRules {
    /// Devices to exclude. An entry has an `endpoint`, `name`, `type` or `scope`, or several of these, which
    /// must then all match. The node neither subscribes to these devices nor registers them. Their streams
    /// keep their elements. `chappe device exclude` adds entries to a running node.
    pub exclude: Vec<DevicePattern>,
    /// Seconds for which a device must have been absent before a newcomer takes its place and continues its streams. A
    /// newcomer is a device with the same friendly name, types and scopes that was first found after the former device
    /// had left. The former device must not answer at its last address. 0: never; use `chappe device replace`.
    #[schemars(range(min = 0, max = 31_536_000), extend("x-unit" = "s"))]
    pub replace_after_s: u32,
    /// Maximum number of streams of one device in the log, including those that the device no longer offers. Further
    /// streams are refused, and their elements are counted as lost.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_streams: u32,
    /// Elements per second from one device, averaged over five seconds; 0: no limit. A waveform has
    /// one element per block of samples: ten leads in blocks of 25 ms make 400 elements per second.
    #[schemars(range(min = 0), extend("x-unit" = "elements/s"))]
    pub max_elements_per_s: u64,
    /// Bytes per second from one device, averaged over five seconds, measured as size in memory (about
    /// 150 bytes per element plus its values, 8 bytes per sample); 0: no limit. Ten leads at 500 samples
    /// per second need about 0.1 MB/s.
    #[schemars(range(min = 0), extend("x-unit" = "bytes/s"))]
    pub max_bytes_per_s: u64,
    /// Bytes per day from one device, measured like `max_bytes_per_s`; 0: no limit. It bounds how
    /// fast one device displaces the elements of others from a full log (`log.max_bytes`). `"auto"`
    /// is half of `log.max_bytes`, at least 64 GiB: a patient monitor with 24 leads at 1,000
    /// samples per second sends 27 GiB per day in blocks of 25 ms, 45 GiB in blocks of 10 ms.
    pub max_bytes_per_day: MaxBytes,
    /// TLS with devices.
    pub tls: DeviceTls,
}

/// TLS with devices, used as soon as it trusts somebody. Without it a device that offers only https is reported as
/// unusable, with the fingerprint of its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceTls {
    /// File of the authorities (PEM) that sign certificates of devices; empty: none. A certificate must name the
    /// endpoint of its device, or the address or host name at which it is reached. Relative to this file.
    pub authorities: PathBuf,
    /// Fingerprints (SHA-256) of device certificates to trust, whatever their names and dates.
    #[schemars(extend("items" = {"type": "string", "pattern": "^[0-9a-fA-F:]{64,95}$"}))]
    pub fingerprints: Vec<String>,
    /// File of the certificate (PEM) that the node presents to devices, followed by its chain; empty: one is made from
    /// the key of the node, whose fingerprint `chappe key show` prints. Relative to this file.
    pub certificate: PathBuf,
    /// File of the certificate's key (PEM), readable by its owner only; empty: none. Relative to this file.
    pub key: PathBuf,
    /// Usages (extended key usage), as object identifiers such as 1.2.840.10004.20701.1.1, that a certificate must
    /// have if an authority has signed it; one that is made from the key of the node has them.
    #[schemars(extend("items" = {"type": "string", "pattern": "^[0-9.]+$"}))]
    pub usages: Vec<String>,
    /// File of the revocation lists (PEM) of the authorities; empty: none. An expired list causes all certificates of
    /// its authority to be refused. Read at the start. Relative to this file.
    pub revocation_lists: PathBuf,
    /// Usages (extended key usage) of discovery proxies, as object identifiers. A proxy that announces itself counts
    /// like one of `discovery.proxies` only if its trusted certificate has all of them; empty: no such proxy counts. If
    /// this node is a proxy with `discovery.proxy.tls`, the certificate that is made from its key has them.
    #[schemars(extend("items" = {"type": "string", "pattern": "^[0-9.]+$"}))]
    pub proxy_usages: Vec<String>,
    /// Accept certificates of the authorities regardless of the names in them: the certificates of many medical devices
    /// have none. A certificate that names the endpoint of another device is still refused.
    pub any_name: bool,
    /// Also use devices without https, even if trusted certificates are configured.
    pub plain: bool,
}

impl DeviceTls {
    /// Whether anybody is trusted.
    #[must_use]
    pub fn trusts(&self) -> bool {
        !self.authorities.as_os_str().is_empty() || !self.fingerprints.is_empty()
    }

    /// The files, with those of the node where none is named.
    ///
    /// # Errors
    /// The key with a malformed text, and the problem.
    pub(crate) fn files(&self, data_directory: &Path) -> Result<Files, (&'static str, String)> {
        let some = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
        let fingerprints = parsed("devices.tls.fingerprints", &self.fingerprints)?;
        let usages = parsed("devices.tls.usages", &self.usages)?;
        let proxy_usages = parsed("devices.tls.proxy_usages", &self.proxy_usages)?;
        let certificate = some(&self.certificate);
        let own = certificate
            .is_none()
            .then(|| data_directory.join("key.pem"));
        Ok(Files {
            key: some(&self.key).or(own),
            certificate,
            authorities: some(&self.authorities),
            revocation_lists: some(&self.revocation_lists),
            fingerprints,
            usages,
            proxy_usages,
            is_proxy: false,
            any_name: self.any_name,
        })
    }
}

fn parsed<T: FromStr<Err: Display>>(
    key: &'static str,
    texts: &[String],
) -> Result<Vec<T>, (&'static str, String)> {
    let parse = |text: &String| {
        let parsed = text.parse();
        parsed.map_err(|error: T::Err| (key, format!("{text:?}: {error}")))
    };
    texts.iter().map(parse).collect()
}

impl Default for DeviceRules {
    fn default() -> Self {
        Self {
            exclude: Vec::new(),
            replace_after_s: 0,
            max_streams: 2_000,
            max_elements_per_s: 10_000,
            max_bytes_per_s: 2 << 20,
            max_bytes_per_day: MaxBytes::AUTO,
            tls: DeviceTls::default(),
        }
    }
}

/// Devices, by what they have in common. Every given part must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DevicePattern {
    /// The endpoint address; `*` at the end stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub endpoint: Option<String>,
    /// The friendly name; `*` at the end stands for any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub name: Option<String>,
    /// A type, as `{namespace}local` or by its local name.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub device_type: Option<String>,
    /// A scope. Matches scopes of the same scheme and authority whose path starts with its segments, as in a
    /// Probe, unless `match_by` says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub scope: Option<String>,
    /// The rule by which `scope` matches; rfc3986 if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_by: Option<ScopeRule>,
}

/// A rule by which scopes match (WS-Discovery 1.1, section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScopeRule {
    /// The same scheme and authority, and a prefix of the path's segments.
    Rfc3986,
    /// Equal texts.
    Strcmp0,
    /// Equal 128 bits.
    Uuid,
    /// The same host and port, and a prefix of the relative distinguished names.
    Ldap,
}

impl From<ScopeRule> for MatchRule {
    fn from(rule: ScopeRule) -> Self {
        match rule {
            ScopeRule::Rfc3986 => Self::Rfc3986,
            ScopeRule::Strcmp0 => Self::Strcmp0,
            ScopeRule::Uuid => Self::Uuid,
            ScopeRule::Ldap => Self::Ldap,
        }
    }
}

impl DevicePattern {
    /// Whether it has no part, so that it would match every device.
    pub(crate) fn is_empty(&self) -> bool {
        let rule_alone = Self {
            match_by: self.match_by,
            ..Self::default()
        };
        *self == rule_alone
    }

    /// Whether it matches a device; `types` as `{namespace}local`. A device that has not told its name yet
    /// matches no name.
    pub(crate) fn matches(
        &self,
        endpoint: &str,
        name: Option<&str>,
        types: &[String],
        scopes: &[String],
    ) -> bool {
        let is_type = |pattern: &str| {
            let has_local = |one: &String| one.rsplit('}').next() == Some(pattern);
            types.iter().any(|one| one == pattern || has_local(one))
        };
        let is_scope = |pattern: &str| {
            let rule = self.match_by.map_or_else(MatchRule::default, Into::into);
            let is_within = |one: &String| rule.matches(pattern, one);
            scopes.iter().any(is_within)
        };
        let fits = |pattern: &Option<String>, test: &dyn Fn(&str) -> bool| {
            pattern.as_deref().is_none_or(test)
        };
        !self.is_empty()
            && fits(&self.endpoint, &|pattern| is_text(pattern, endpoint))
            && fits(&self.name, &|pattern| {
                name.is_some_and(|name| is_text(pattern, name))
            })
            && fits(&self.device_type, &is_type)
            && fits(&self.scope, &is_scope)
    }
}

impl std::fmt::Display for DevicePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            ("endpoint", &self.endpoint),
            ("name", &self.name),
            ("type", &self.device_type),
            ("scope", &self.scope),
        ];
        let mut separator = "";
        for (part, text) in parts {
            if let Some(text) = text {
                write!(f, "{separator}{part} {text:?}")?;
                separator = ", ";
            }
        }
        match self.match_by {
            Some(rule) => write!(f, " (by {})", MatchRule::from(rule).name()),
            None => Ok(()),
        }
    }
}

fn is_text(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_by_all_its_parts() {
        let types = ["{urn:plant}Pump".to_owned()];
        let scopes = ["http://plant.example/hall-1/line-2".to_owned()];
        let pattern = |text: &str| -> DevicePattern { toml::from_str(text).unwrap() };
        let matches = |text: &str, name| pattern(text).matches("urn:uuid:7", name, &types, &scopes);
        for text in [
            "endpoint = 'urn:uuid:7'",
            "endpoint = 'urn:*'",
            "name = 'Pump 3'",
            "name = 'Pump*'",
            "type = 'Pump'",
            "type = '{urn:plant}Pump'",
            "scope = 'http://plant.example/hall-1'",
            "type = 'Pump'\nscope = 'http://PLANT.example/hall-1/line-2'",
            "scope = 'http://plant.example/hall-1/line-2'\nmatch_by = 'strcmp0'",
        ] {
            assert!(matches(text, Some("Pump 3")), "{text}");
        }
        for text in [
            "",
            "endpoint = 'urn:uuid:70'",
            "name = 'Pump'",
            "type = 'ump'",
            "scope = 'http://plant.example/hall'",
            "type = 'Pump'\nname = 'Valve'",
            "scope = 'http://plant.example/hall-1'\nmatch_by = 'strcmp0'",
            "match_by = 'strcmp0'",
        ] {
            assert!(!matches(text, Some("Pump 3")), "{text}");
        }
        assert!(!matches("name = '*'", None), "the name is not known yet");
        for text in ["kind = 'Pump'", "match_by = 'none'"] {
            assert!(toml::from_str::<DevicePattern>(text).is_err(), "{text}");
        }
    }
}
