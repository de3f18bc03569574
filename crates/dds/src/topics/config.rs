//! The configuration of a node's participant, of published and of subscribed topics.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::{DdsError, ElementType, ParticipantConfig, Qos, SecurityConfig, Stored, Topic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DdsPacer;

/// The participant of a node, which its topics share.
///
/// ```
/// use chappe_dds::topics::{DdsConfig, Publication};
/// let dds: DdsConfig = toml::from_str(r#"
///     domain = 7
///     interfaces = ["10.1.0.5"]
/// "#)?;
/// dds.check()?;
/// let publication: Publication = toml::from_str(r#"
///     topic = "ward/temperature"
///     acknowledge = "received"
/// "#)?;
/// publication.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DdsConfig {
    /// The domain: participants of different domains do not discover each other.
    #[schemars(range(min = 0, max = 232))]
    pub domain: u16,
    /// IPv4 addresses of this host for DDS. The node announces itself at these only, and uses multicast on their
    /// interfaces only; with 127.0.0.1 alone it stays on this host.
    #[schemars(length(min = 1))]
    pub interfaces: Vec<IpAddr>,
    /// Seconds that the DDS library may be stuck before it is restarted.
    #[schemars(range(min = 2, max = 3_600), extend("x-unit" = "seconds"))]
    pub stall_s: u32,
    /// DDS Security: identity, permissions and encryption.
    pub security: SecurityConfig,
}

/// A topic to which a stream is published: the keys of an exporter of kind `dds`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The topic.
    pub topic: String,
    /// The scoped name of the IDL type. Default: derived from the stream's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// When an element counts as delivered. Default: `stored` for a stream of the level `power`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledge: Option<Acknowledge>,
    /// Required readers: this many must match before anything is written, and must have stored an element before it
    /// counts as delivered. Default: 1.
    #[serde(default = "default_readers")]
    #[schemars(range(min = 0, max = 1_024))]
    pub readers: u32,
    /// The treatment of a reader that acknowledges nothing.
    #[serde(default)]
    pub stalled: DdsStalled,
    /// Seconds without an acknowledgement after which a reader counts as stalled, and elements that are not stored are
    /// published again. Default: 10.
    #[serde(default = "default_seconds")]
    #[schemars(range(min = 1, max = 3_600), extend("x-unit" = "seconds"))]
    pub stalled_after_s: u32,
    /// The pacer: `adaptive`, the default, follows measured acknowledgements; `fixed_window:16` limits the
    /// samples in flight; `fixed_period:1ms` sets their interval; `napa:125000000:10` takes the link's
    /// capacity in bytes per second and K; `flood` sends while there is room.
    #[serde(default, with = "pacer_text")]
    #[schemars(with = "String", extend("format" = "pacer"))]
    pub pacer: DdsPacer,
    /// The offered quality of service.
    #[serde(default)]
    pub qos: Qos,
}

/// A topic that is stored in a stream: the keys of a wrapper of kind `dds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The stream's name at its source. Default: the local name. Elements of other streams are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The scoped name of the IDL type. Default: derived from the stream's name at its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
    /// The requested quality of service.
    #[serde(default)]
    pub qos: Qos,
}

/// When an element counts as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// Once the DDS libraries of all reliable readers have it in memory.
    Received,
    /// When Chappe nodes confirm that their logs have it.
    Stored,
}

/// The treatment of a reader that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DdsStalled {
    /// Wait for it until discovery reports that it has left.
    #[default]
    Wait,
    /// Continue with the others, one window of samples at a time.
    Pass,
}

impl Default for DdsConfig {
    fn default() -> Self {
        Self {
            domain: 0,
            interfaces: vec![Ipv4Addr::LOCALHOST.into()],
            stall_s: 10,
            security: SecurityConfig::default(),
        }
    }
}

impl DdsConfig {
    pub(super) fn participant(&self) -> ParticipantConfig {
        ParticipantConfig {
            domain: self.domain,
            interfaces: self.interfaces.clone(),
            security: self.security.clone(),
        }
    }

    pub(super) fn stall_after(&self) -> Duration {
        Duration::from_secs(self.stall_s.max(2).into())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        self.participant().check()?;
        match cfg!(cyclone) || *self == Self::default() {
            true => Ok(()),
            false => Err(DdsError::Missing),
        }
    }

    /// Checks that this host has the addresses in `interfaces`.
    ///
    /// # Errors
    /// The first missing address.
    pub fn check_host(&self) -> Result<(), DdsError> {
        self.participant().check_host()
    }
}

impl Publication {
    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        let ranges = [
            ("readers", self.readers, 0, 1_024),
            ("stalled_after_s", self.stalled_after_s, 1, 3_600),
        ];
        for (key, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                let why = format!("{value} is not within {low} to {high}");
                return Err(DdsError::Qos { key, why });
            }
        }
        self.qos.check()?;
        let type_name = self.type_name.clone();
        topic(&self.topic, type_name.unwrap_or_else(|| "a".into())).check()
    }

    /// The topic, of the type with this name if the configuration has none.
    pub(super) fn dds_topic(&self, of: String) -> Topic {
        topic(&self.topic, self.type_name.clone().unwrap_or(of))
    }

    pub(super) fn stalled_after(&self) -> Duration {
        Duration::from_secs(self.stalled_after_s.max(1).into())
    }
}

impl Subscription {
    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), DdsError> {
        self.qos.check()?;
        let type_name = self.type_name.clone();
        topic(&self.topic, type_name.unwrap_or_else(|| "a".into())).check()
    }

    pub(super) fn dds_topic(&self, of: &ElementType) -> Topic {
        let type_name = self.type_name.clone();
        topic(&self.topic, type_name.unwrap_or_else(|| of.type_name()))
    }
}

/// Serializes a pacer as text.
pub(super) mod pacer_text {
    use super::{DdsPacer, Deserialize};
    use serde::{Deserializer, Serializer, de::Error as _};

    pub(in crate::topics) fn serialize<S: Serializer>(
        pacer: &DdsPacer,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(pacer)
    }

    pub(in crate::topics) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<DdsPacer, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The topic for confirmations of storage.
pub(super) fn stored_topic(of: &str) -> Topic {
    topic(&Stored::topic(of), Stored::TYPE_NAME.into())
}

fn topic(name: &str, type_name: String) -> Topic {
    Topic {
        name: name.to_owned(),
        type_name,
    }
}

pub(super) fn default_readers() -> u32 {
    1
}

pub(super) fn default_seconds() -> u32 {
    10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(pacer: &str) -> Result<Publication, toml::de::Error> {
        toml::from_str(&format!("topic = \"b\"\n{pacer}"))
    }

    #[test]
    fn a_publication_parses_each_pacer_with_its_parameters() {
        let period = Duration::from_micros(1_500);
        for (words, high, apart) in [
            ("flood", 0, Duration::ZERO),
            ("fixed_window:7", 7, Duration::ZERO),
            ("fixed_period:1.5ms", 0, period),
            ("napa:25000000:10", 0, Duration::ZERO),
            ("adaptive", 0, Duration::ZERO),
        ] {
            let publication = publication(&format!("pacer = \"{words}\"")).unwrap();
            let status = publication.pacer.build().status();
            assert_eq!(Some(status.name), words.split(':').next());
            if words.starts_with("fixed") {
                assert_eq!((status.high_threshold, status.period), (high, apart));
            }
            let written = toml::to_string(&publication).unwrap();
            let read: Publication = toml::from_str(&written).unwrap();
            assert_eq!(read, publication, "{written}");
        }
        let default = publication("").unwrap();
        assert_eq!(default.pacer, DdsPacer::default());
        for words in ["fast", "fixed_window", "fixed_period:2", "adaptive:1"] {
            let error = publication(&format!("pacer = \"{words}\"")).unwrap_err();
            assert!(error.to_string().contains(DdsPacer::WORDS), "{error}");
        }
    }

    #[test]
    fn an_invalid_participant_or_topic_is_refused() {
        let config = |text: &str| toml::from_str::<DdsConfig>(text).unwrap().check();
        assert!(config("").is_ok());
        assert!(config("domain = 300").is_err());
        assert!(config("interfaces = []").is_err());
        assert!(config("interfaces = [\"::1\"]").is_err());
        let error = Publication::check(
            &publication("")
                .map(|it| Publication {
                    topic: "a b".to_owned(),
                    ..it
                })
                .unwrap(),
        );
        assert!(error.unwrap_err().to_string().contains("topic"));
    }
}
